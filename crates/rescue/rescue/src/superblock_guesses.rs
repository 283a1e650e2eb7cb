//! Guesses from incomplete superblocks about how an array was put together, for `--solve` and for
//! members that became spares.
//!
//! ```text
//!   sound superblocks, and slightly damaged ones ─▶ their own slots ─▶ guesses ─▶ braid_solver
//!   spares, and disks without a superblock ───────▶ every free slot ──────┘
//! ```
//!
//! A member that drops out and is *added* again, not re-added, becomes a spare, and no superblock
//! records its former slot. Its data stay whole until something is rebuilt onto it. `--with SPARE`
//! tries it in each free slot, `--with SPARE=SLOT` in one.

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::{Family, Geometry, SECTOR_BYTES};
use braid_member::Member;
use braid_ondisk::{Role, Superblock, SuperblockUpdate};
use braid_solver::{Effort, Evidence, Guess, Platter, weigh};

use super::config::RescueConfig;
use super::damaged_superblocks::Remnant;
use super::disk::Disk;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

/// The former member's superblock gets this many events fewer than the newest, so that the member
/// counts as dropped out, as it did.
const EVENTS_BEHIND: u64 = 2;

pub(super) struct MemberPlatter<'a>(&'a dyn Member);

impl Platter for MemberPlatter<'_> {
    fn sectors(&self) -> u64 {
        self.0.size_bytes() / SECTOR_BYTES
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        self.0.read_at(bytes, sector * SECTOR_BYTES).is_ok()
    }
}

pub(super) fn platters(disks: &[Disk]) -> Vec<MemberPlatter<'_>> {
    disks.iter().map(|disk| MemberPlatter(disk.device.as_ref())).collect()
}

const ARRANGEMENTS_MAX: usize = 24;

struct DiskSuperblock<'a> {
    disk: usize,
    start_sectors: u64,
    superblock: &'a Superblock,
}

impl DiskSuperblock<'_> {
    fn offset(&self) -> u64 {
        self.start_sectors + self.superblock.device.data_offset_sectors
    }
}

/// A disk that is put into a slot, and the offset of the data on the disk.
#[derive(Clone, Copy)]
struct SlotData {
    disk: usize,
    offset: u64,
    data_sectors: u64,
}

/// Guesses for the largest array: one guess, or one for each arrangement of spares and blank disks
/// in the free slots.
pub(super) fn guesses(disks: &[Disk], remnants: &[Remnant]) -> Vec<Guess> {
    let mut arrays: BTreeMap<[u8; 16], Vec<DiskSuperblock<'_>>> = BTreeMap::new();
    let sound = disks.iter().enumerate().filter_map(|(disk, it)| {
        let superblock = it.probed.probe.newest()?;
        Some(DiskSuperblock { disk, start_sectors: 0, superblock })
    });
    let damaged = remnants.iter().map(|one| DiskSuperblock {
        disk: one.disk,
        start_sectors: one.damaged.start_bytes / SECTOR_BYTES,
        superblock: &one.damaged.superblock,
    });
    let mut blank: BTreeSet<usize> = (0..disks.len()).collect();
    for entry in sound.chain(damaged) {
        blank.remove(&entry.disk);
        arrays.entry(entry.superblock.array.uuid).or_default().push(entry);
    }
    let largest = arrays.into_values().max_by_key(Vec::len);
    largest.map(|superblocks| of_array(&superblocks, &blank)).unwrap_or_default()
}

fn of_array(superblocks: &[DiskSuperblock<'_>], blank: &BTreeSet<usize>) -> Vec<Guess> {
    let newest = superblocks.iter().max_by_key(|entry| entry.superblock.state.events);
    let newest = newest.expect("an array has a superblock");
    let array = &newest.superblock.array;
    if newest.superblock.reshape.is_some() || array.raid_slots > u32::from(u16::MAX) {
        return Vec::new();
    }
    let sectors = |own: u64| match array.level.family() {
        Family::Direct => own,
        Family::Mirror | Family::Stripe => array.member_size_sectors,
    };
    let slot_data = |entry: &DiskSuperblock<'_>| SlotData {
        disk: entry.disk,
        offset: entry.offset(),
        data_sectors: sectors(entry.superblock.device.data_size_sectors),
    };
    let slots = usize::try_from(array.raid_slots).expect("slots are counted in 16 bits");
    let mut in_slots: Vec<Option<&DiskSuperblock<'_>>> = vec![None; slots];
    let mut without_slot = Vec::new();
    for one in superblocks {
        match one.superblock.state.role {
            Role::Active(slot) => {
                let Some(held) = in_slots.get_mut(usize::from(slot)) else { continue };
                let events = |entry: &DiskSuperblock<'_>| entry.superblock.state.events;
                if held.is_none_or(|entry| events(entry) < events(one)) {
                    *held = Some(one);
                }
            }
            Role::Spare => without_slot.push(slot_data(one)),
            Role::Faulty | Role::Journal => {}
        }
    }
    // A blank disk does not show where its data begins, so the other members' data offset is
    // assumed.
    without_slot.extend(blank.iter().map(|disk| SlotData { disk: *disk, ..slot_data(newest) }));
    let mut arrangements =
        vec![in_slots.iter().map(|entry| entry.map(slot_data)).collect::<Vec<_>>()];
    for one in without_slot {
        let more: Vec<_> = arrangements.iter().flat_map(|slots| in_each_slot(slots, one)).collect();
        // Guesses with more members come first; a disk without a slot may not belong to the array.
        arrangements.splice(0..0, more);
        arrangements.truncate(ARRANGEMENTS_MAX);
    }
    let guesses = arrangements.iter().map(|slots| guess(newest, slots));
    guesses.filter(is_readable).collect()
}

/// Arrangements made from `slots` by placing `one` into each of the free slots.
fn in_each_slot(slots: &[Option<SlotData>], one: SlotData) -> Vec<Vec<Option<SlotData>>> {
    let free = (0..slots.len()).filter(|slot| slots[*slot].is_none());
    let with = |slot: usize| {
        let mut slots = slots.to_vec();
        slots[slot] = Some(one);
        slots
    };
    free.map(with).collect()
}

fn guess(newest: &DiskSuperblock<'_>, slots: &[Option<SlotData>]) -> Guess {
    let array = &newest.superblock.array;
    Guess {
        level: array.level,
        layout: array.layout,
        chunk_sectors: array.chunk_sectors,
        slots: slots.iter().map(|data| data.map(|data| data.disk)).collect(),
        offsets: slots
            .iter()
            .map(|data| data.map_or(newest.offset(), |data| data.offset))
            .collect(),
        data_sectors: slots
            .iter()
            .map(|data| data.map_or(array.member_size_sectors, |data| data.data_sectors))
            .collect(),
        starts: Vec::new(),
        evidence: Evidence::default(),
    }
}

fn is_readable(guess: &Guess) -> bool {
    let survives = |map: Geometry| map.survives(&|slot| guess.slots[slot.index()].is_none());
    guess.geometry().is_some_and(survives)
}

/// Gives each spare that the operator named the slot that the spare may have had; returns all
/// disks, and notes.
pub(super) fn with_spares(
    args: &RescueConfig,
    mut disks: Vec<Disk>,
) -> Result<(Vec<Disk>, Vec<String>), CliError> {
    let mut lines = Vec::new();
    for name in &args.with {
        let (name, wanted) = named(name, &disks);
        let Some(index) = disks.iter().position(|disk| disk.label == name) else { continue };
        let Some(own) = disks[index].probed.probe.newest().cloned() else { continue };
        if own.state.role != Role::Spare || !own.version.is_v1() {
            continue;
        }
        let of_array: Vec<DiskSuperblock<'_>> = disks
            .iter()
            .enumerate()
            .filter_map(|(disk, it)| {
                let superblock = it.probed.probe.newest()?;
                let is_other_spare = superblock.state.role == Role::Spare && disk != index;
                let is_of_it = superblock.array.uuid == own.array.uuid && !is_other_spare;
                is_of_it.then_some(DiskSuperblock { disk, start_sectors: 0, superblock })
            })
            .collect();
        let events = of_array.iter().map(|entry| entry.superblock.state.events).max().unwrap_or(0);
        let slot_of = |guess: &Guess| guess.slots.iter().position(|slot| *slot == Some(index));
        let guesses = self::of_array(&of_array, &BTreeSet::new()).into_iter();
        let guesses: Vec<Guess> = guesses.filter(|guess| slot_of(guess).is_some()).collect();
        let free: Vec<usize> = guesses.iter().filter_map(slot_of).collect();
        let slot = match wanted {
            Some(slot) if free.contains(&slot) => slot,
            Some(slot) => return Err(not_free(args, name, slot, &free)),
            None if free.is_empty() => continue,
            None => {
                let members = platters(&disks);
                let members: Vec<&dyn Platter> =
                    members.iter().map(|it| it as &dyn Platter).collect();
                let weighed = weigh(&members, &Effort::default(), guesses);
                let best = weighed.first().and_then(&slot_of).expect("there is one");
                lines.push(tried(name, best, &weighed, &slot_of));
                best
            }
        };
        let superblock = in_slot(own.clone(), u16::try_from(slot).expect("slots are few"), events);
        // The changed superblock is only in memory. As for any believed member, the plan decides
        // which superblock the spare would get.
        let superblocks = disks[index].probed.probe.superblocks.iter_mut().flatten();
        let own_ones = superblocks.filter(|one| **one == own);
        own_ones.for_each(|one| *one = superblock.clone());
    }
    Ok((disks, lines))
}

/// Splits a name from `--with` into a label and a slot, if the name has a slot.
fn named<'a>(name: &'a str, disks: &[Disk]) -> (&'a str, Option<usize>) {
    let is_label = |name: &str| disks.iter().any(|disk| disk.label == name);
    match name.rsplit_once('=') {
        Some((label, slot)) if !is_label(name) && is_label(label) => (label, slot.parse().ok()),
        _ => (name, None),
    }
}

/// A spare's superblock, changed so that it names the spare's former slot.
fn in_slot(mut own: Superblock, slot: u16, events: u64) -> Superblock {
    let number = usize::try_from(own.device.number).unwrap_or(usize::MAX);
    let mut roles = own.state.roles.clone();
    if let Some(role) = roles.get_mut(number) {
        *role = Role::Active(slot);
    }
    own.apply(&SuperblockUpdate {
        events: events.saturating_sub(EVENTS_BEHIND),
        update_time: own.state.update_time,
        resync_offset: own.state.resync_offset,
        roles: roles.into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: Role::Active(slot),
    });
    own
}

/// A sentence for the report on the slots that a spare was tried in, and their evidence.
fn tried(
    name: &str,
    best: usize,
    weighed: &[Guess],
    slot_of: &impl Fn(&Guess) -> Option<usize>,
) -> String {
    let says = |guess: &Guess| {
        let it = guess.evidence;
        let slot = slot_of(guess).unwrap_or(0);
        let found = it.confirmed + it.explained;
        let sought = it.confirmed + it.refuted + it.addresses;
        format!("{found} of {sought} structures have their right place in slot {slot}")
    };
    let all = weighed.iter().map(says).collect::<Vec<_>>().join(", ");
    let is_decided = match weighed {
        [first, next, ..] => first.evidence != next.evidence,
        _ => true,
    };
    match is_decided {
        true => {
            format!("{name} is called a spare, and is taken for the member of slot {best}: {all}")
        }
        false => format!(
            "{name} is called a spare, and is taken for the member of slot {best}; it may belong \
             to another slot (--with {name}=SLOT)"
        ),
    }
}

fn not_free(args: &RescueConfig, name: &str, slot: usize, free: &[usize]) -> CliError {
    let free: Vec<String> = free.iter().map(ToString::to_string).collect();
    let why = match free.is_empty() {
        true => "no slot would make the array readable".to_owned(),
        false => format!("free are {}", free.join(", ")),
    };
    CliError::new(Code::Usage, format!("slot {slot} is not free for {name}")).because(why).remedy(
        Risk::Look,
        "See who has which",
        RescueConfig { with: Vec::new(), ..args.clone() }.command(""),
    )
}
