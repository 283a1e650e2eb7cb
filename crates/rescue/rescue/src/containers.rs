//! Disks of containers that are not md's: Intel's RAID (IMSM) and DDF. Each volume becomes an
//! ordinary array.
//!
//! ```text
//!   whole disks ─▶ look ─▶ gather ─▶ each volume and disk: a stretch of the disk, `DISK@VOLUME`
//!                            with a superblock in memory after its data ─▶ arrays, as everywhere
//! ```
//!
//! `look` and `gather` are in `braid_external_metadata`.
//!
//! The metadata is translated into md's terms. The newest disk has most events, so that an older
//! disk is stale and may be believed by name. The slot of a disk that was being rebuilt has
//! recovery offset 0. A volume that was being written, verified or initialised is dirty, and data
//! that would be computed from it is withheld.
//!
//! Invariants:
//! - the container is believed before a partition table: the first disk of a mirror has the
//!   mirror's table `[check: a_foreign_mirror_is_read_although_its_disks_seem_to_have_a_table]`;
//! - superblocks made here are never written to a disk: a commit is refused
//!   `[check: what_is_not_mds_is_not_committed]`;
//! - all bytes of each volume are as they were written, with any disk missing that its level can
//!   lose `[check: foreign_containers_are_read_with_each_loss]`.

use braid_external_metadata::{Array, Damage, Label, Occupant, ScannedDisk, State, gather, look};
use braid_geometry::{Level, SECTOR_BYTES};
use std::path::PathBuf;
use std::sync::Arc;

use braid_member::layer::Part;
use braid_member::{IdentityKey, Member};
use braid_ondisk::Role;
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::copy_map;
use super::disk::{ContainerVolume, Disk, WholeDisk, disk, for_looking};
use super::memory_superblock::{MemorySuperblock, in_front, roles};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::printable::printable;

/// Space after a volume's data for a superblock in memory: a 1.0 superblock is in the last 24
/// sectors.
const ROOM_SECTORS: u64 = 32;
/// Intel's metadata stores this many characters of a serial number, the last ones.
const SERIAL_CHARACTERS: usize = 16;

/// Disks with metadata that is not md's, and the report's notes on these disks.
#[derive(Default)]
pub(super) struct ContainerScan {
    pub(super) members: Vec<Disk>,
    /// Disks without foreign metadata, or whose foreign metadata is not believed.
    pub(super) others: Vec<WholeDisk>,
    pub(super) notes: Vec<String>,
}

/// Splits disks with foreign metadata into stretches of volumes.
pub(super) fn split(
    args: &RescueConfig,
    wholes: Vec<WholeDisk>,
) -> Result<ContainerScan, CliError> {
    let mut scan = ContainerScan::default();
    let mut disks: Vec<(WholeDisk, Label, Option<String>)> = Vec::new();
    for whole in wholes {
        match said(&whole) {
            None => scan.others.push(whole),
            Some(Err(Damage { kind, what })) => {
                let (label, kind) = (printable(&whole.label), kind.name());
                scan.notes.push(format!("{label} has {kind} metadata that braid ignores: {what}."));
                scan.others.push(whole);
            }
            Some(Ok(label)) => {
                let serial = serial(args, &whole);
                disks.push((whole, label, serial));
            }
        }
    }
    check_serials(args, &disks)?;
    let scanned: Vec<ScannedDisk<'_>> = disks
        .iter()
        .map(|(_, label, serial)| ScannedDisk { label: Some(label), serial: serial.as_deref() })
        .collect();
    let arrays = gather(&scanned);
    let mut used = vec![false; disks.len()];
    for array in &arrays {
        scan.notes.extend(notes(args, array, &disks));
        let (Ok(shape), true) = (&array.shape, array.unknown.is_empty() || is_enough(array)) else {
            continue;
        };
        for occupant in &array.occupants {
            let (whole, ..) = &disks[occupant.disk];
            match member(array, *shape, occupant, whole)? {
                Ok(member) => {
                    used[occupant.disk] = true;
                    scan.members.push(member);
                }
                Err(why) => scan.notes.push(why),
            }
        }
    }
    // A disk that is in no volume is treated as a plain disk.
    for ((whole, label, _), is_used) in disks.into_iter().zip(used) {
        if !is_used {
            let is_spare = label.disks.iter().any(|disk| disk.is_spare);
            let kind = label.kind.name();
            let what = if is_spare {
                "in no volume; its container has a spare"
            } else {
                "in no complete volume"
            };
            scan.notes
                .push(format!("{} is of a container of {kind}, {what}.", printable(&whole.label)));
            scan.others.push(whole);
        }
    }
    Ok(scan)
}

/// Whether at least one up-to-date disk of the array is identified. One such disk is enough, even
/// if other disks could not be identified.
fn is_enough(array: &Array) -> bool {
    array.occupants.iter().filter(|occupant| !occupant.is_stale).count() > 0
}

fn said(whole: &WholeDisk) -> Option<Result<Label, Damage>> {
    let device = for_looking(&whole.device, &whole.holes);
    let mut read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        device.read_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    look(device.size_bytes(), &mut read)
}

/// The serial number of a disk, from the operator or the kernel.
fn serial(args: &RescueConfig, whole: &WholeDisk) -> Option<String> {
    let named = args.serials.iter().find(|named| named.member == whole.path);
    if let Some(named) = named {
        return Some(as_intel_has_it(&named.serial));
    }
    let IdentityKey::BlockDevice { device } = whole.device.identity().key else { return None };
    let folder = PathBuf::from(format!("/sys/dev/block/{device}"));
    let read = |name: &str| std::fs::read(folder.join(name)).ok();
    // A SCSI or SATA page has a header of four bytes before the serial number.
    let page = read("device/vpd_pg80").and_then(|page| page.get(4..).map(<[u8]>::to_vec));
    let bytes = page.or_else(|| read("device/serial")).or_else(|| read("serial"))?;
    let text = as_intel_has_it(&String::from_utf8_lossy(&bytes));
    (!text.is_empty()).then_some(text)
}

fn as_intel_has_it(serial: &str) -> String {
    let letters: Vec<char> = serial.chars().filter(char::is_ascii_graphic).collect();
    letters[letters.len().saturating_sub(SERIAL_CHARACTERS)..].iter().collect()
}

/// Checks that each serial number from the operator names a disk of this rescue, and is in the
/// metadata of a container.
fn check_serials(
    args: &RescueConfig,
    disks: &[(WholeDisk, Label, Option<String>)],
) -> Result<(), CliError> {
    for named in &args.serials {
        let serial = as_intel_has_it(&named.serial);
        let Some((_, label, _)) = disks.iter().find(|(whole, ..)| whole.path == named.member)
        else {
            let what = format!("{} is not a disk of a container", named.member.display());
            return Err(CliError::new(Code::Usage, what)
                .because("--serial says MEMBER=SERIAL")
                .remedy(Risk::Look, "See the names", "braid rescue --help"));
        };
        if label.own.is_none() && !label.disks.iter().any(|disk| disk.identity == serial) {
            let known: Vec<&str> = label.disks.iter().map(|disk| disk.identity.as_str()).collect();
            let what = format!("{} lists no disk {serial}", named.member.display());
            return Err(CliError::new(Code::Usage, what)
                .because(format!("its disks are {}", known.join(", ")))
                .remedy(Risk::Look, "See the names", "braid rescue --help"));
        }
    }
    Ok(())
}

/// Notes for the report on a volume that is not turned into an array yet.
fn notes(
    args: &RescueConfig,
    array: &Array,
    disks: &[(WholeDisk, Label, Option<String>)],
) -> Vec<String> {
    let (kind, name) = (array.kind.name(), printable(&array.name));
    let mut notes = Vec::new();
    if let Err(why) = &array.shape {
        notes.push(format!("{name} ({kind}) is not read: {}.", printable(why)));
        return notes;
    }
    let mut about = format!("{name} is a volume of {kind}");
    about += match array.state {
        State::Clean => "",
        State::Dirty => ", and was being written at its last update",
        State::Syncing => ", and its redundancy was being made or checked at its last update",
        State::Rebuilding => {
            ", and a disk was being rebuilt at its last update: missing data is computed from the \
             others"
        }
    };
    notes.push(about + ".");
    if !array.unknown.is_empty() {
        let paths = array.unknown.iter().map(|disk| disks[*disk].0.path.display().to_string());
        let paths: Vec<String> = paths.collect();
        let serials = array.slots.iter().map(|slot| slot.identity.as_str()).collect::<Vec<_>>();
        let first = paths.first().cloned().unwrap_or_default();
        let named = format!("--serial {first}=SERIAL");
        notes.push(format!(
            "{name}: {} may be any of its disks, because copies have no serial numbers; by slot \
             they are {}. Name it with {}, or find out: {}",
            printable(&paths.join(", ")),
            printable(&serials.join(", ")),
            printable(&named),
            printable(&args.command("--solve")),
        ));
    }
    // If a mirror's disk is not identified, braid may not know which half of the mirror the disk
    // holds.
    let is_known = array.occupants.iter().all(|occupant| {
        let (_, label, serial) = &disks[occupant.disk];
        label.own.is_some() || serial.is_some()
    });
    for (number, slot) in array.slots.iter().enumerate().filter(|_| is_known) {
        let is_here =
            array.occupants.iter().any(|occupant| occupant.slot == number && !occupant.is_stale);
        if !is_here && array.unknown.is_empty() && !slot.identity.is_empty() {
            let identity = printable(&slot.identity);
            notes.push(format!("{name}: slot {number} is missing; its disk was {identity}."));
        }
    }
    for occupant in array.occupants.iter().filter(|occupant| occupant.is_stale) {
        let label = printable(&disks[occupant.disk].0.label);
        notes.push(format!(
            "{label} is older than {name}, or was dropped: its last generation is {}, the \
             volume's is {}.",
            occupant.generation, array.generation
        ));
    }
    notes
}

/// A disk's stretch of a volume as an md member, or the reason why it cannot be one.
fn member(
    array: &Array,
    (level, layout, chunk): (Level, u32, u32),
    occupant: &Occupant,
    whole: &WholeDisk,
) -> Result<Result<Disk, String>, CliError> {
    let name = format!("{}@{}", whole.label, array.name);
    let cannot = |why: &str| Ok(Err(format!("{} is left out: {why}.", printable(&name))));
    let Some(member_sectors) = member_sectors(array, (level, layout, chunk)) else {
        return cannot("its size is impossible");
    };
    let data_sectors = match level {
        Level::Linear => occupant.sectors,
        _ => member_sectors,
    };
    let length = data_sectors.checked_add(ROOM_SECTORS);
    let bytes = length.and_then(|length| {
        let start = occupant.start_sector.checked_mul(SECTOR_BYTES)?;
        Some(start..start.checked_add(length.checked_mul(SECTOR_BYTES)?)?)
    });
    let size_bytes = whole.device.size_bytes();
    let Some(bytes) =
        bytes.filter(|bytes| bytes.end <= size_bytes && data_sectors <= occupant.sectors)
    else {
        return cannot("the volume extends beyond the disk");
    };
    let slot = u16::try_from(occupant.slot).expect("few slots");
    let part = Part::new(Arc::clone(&whole.device), bytes.start, bytes.end - bytes.start);
    let part: Arc<dyn Member> = Arc::new(part.expect("it was just seen to lie in its disk"));
    let holes = copy_map::within(&whole.holes, &bytes);
    let mut disk = disk(name.clone(), &whole.path, (part, Some(bytes)), holes)?;
    disk.volume = Some(ContainerVolume {
        name: array.name.clone(),
        kind: array.kind.name(),
        size_sectors: array.size_sectors,
    });
    // A disk that is present and being rebuilt holds its slot; its recovery offset says how far it
    // is rebuilt.
    let is_here = |number: usize| {
        array.occupants.iter().any(|occupant| occupant.slot == number && !occupant.is_stale)
    };
    let slots = array.slots.iter().enumerate();
    let held: Vec<bool> = slots
        .map(|(number, slot)| !slot.identity.is_empty() && (!slot.is_incomplete || is_here(number)))
        .collect();
    let is_incomplete = array.slots[occupant.slot].is_incomplete;
    let mut all = roles(&held).to_vec();
    let mut number = occupant.slot;
    if occupant.is_stale {
        // By its own label, a stale disk was in the array. The disk that took its number keeps the
        // number; the stale disk gets a number beyond the slots.
        if is_here(occupant.slot) {
            all[occupant.slot] = Role::Faulty;
            number = array.slots.len()
                + array.occupants.iter().position(|one| one == occupant).unwrap_or(0);
            all.resize(number + 1, Role::Spare);
        }
        all[number] = Role::Active(slot);
    }
    let has_redundancy = !matches!(level, Level::Raid0 | Level::Linear);
    let facts = MemorySuperblock {
        uuid: array.id,
        name: array.name.chars().filter(char::is_ascii_graphic).take(32).collect(),
        shape: (level, layout, chunk),
        slot,
        number: u16::try_from(number).expect("few disks"),
        slots: u16::try_from(array.slots.len()).expect("few slots"),
        roles: all.into(),
        data_offset_sectors: 0,
        data_sectors: Some(data_sectors),
        member_sectors,
        events: occupant.generation,
        resync_offset: match array.state {
            State::Dirty | State::Syncing if has_redundancy => 0,
            _ => u64::MAX,
        },
        recovery_offset: (is_incomplete && !occupant.is_stale).then_some(0),
    };
    let superblock = match facts.superblock(&disk) {
        Ok(superblock) => superblock,
        Err(error) => return cannot(&error.to_string()),
    };
    in_front(&superblock, &(0..data_sectors), disk).map(Ok)
}

/// The sectors that each member provides for a volume of its size; never more than the member has.
fn member_sectors(array: &Array, (level, layout, chunk): (Level, u32, u32)) -> Option<u64> {
    let slots = u64::try_from(array.slots.len()).ok()?;
    let given = array.slots.iter().map(|slot| slot.sectors).filter(|sectors| *sectors > 0).min()?;
    let (times, share) = match level {
        Level::Raid0 => (1, slots),
        Level::Raid1 => (1, 1),
        Level::Raid4 | Level::Raid5 => (1, slots.checked_sub(1)?),
        Level::Raid6 => (1, slots.checked_sub(2)?),
        Level::Raid10 => (u64::from(layout & 0xff) * u64::from(layout >> 8 & 0xff), slots),
        Level::Linear => return Some(given),
    };
    let chunk = u64::from(chunk).max(1);
    let wanted = array.size_sectors.checked_mul(times)?.div_ceil(share.max(1));
    let wanted = wanted.checked_next_multiple_of(chunk)?;
    // A record may give the size of one part only as the whole size.
    let all = if array.size_sectors == 0 { given } else { wanted };
    Some(all.min(given / chunk * chunk)).filter(|sectors| *sectors > 0)
}

pub(super) fn not_written(args: &RescueConfig, volume: &ContainerVolume) -> CliError {
    let what = format!(
        "{} is a volume of {}, and braid writes no such metadata",
        volume.name, volume.kind
    );
    CliError::new(Code::MetadataForeign, what)
        .because("braid reads it through md superblocks in memory, which must not reach its disks")
        .because("the state that firmware or mdadm keeps of the volume would not match the writes")
        .remedy(Risk::Look, "Look at it; nothing is written", args.command(""))
}

pub(super) fn to_json(volume: &ContainerVolume) -> Value {
    json!({
        "metadata": volume.kind,
        "volume": volume.name,
        "size_bytes": volume.size_sectors * SECTOR_BYTES,
    })
}
