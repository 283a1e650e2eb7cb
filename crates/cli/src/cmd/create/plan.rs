//! The plan of `braid create`: every write and its offset, decided before the first write.
//!
//! Planning takes the opened and probed members and judges the shape. It writes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_assembly::{journal_sectors_min, resync_sectors};
use braid_geometry::{Family, Geometry, Level, SECTOR_BYTES, Shape, Slot};
use braid_member::OpenError;
use braid_ondisk::{
    ArrayFacts, BitmapFile, BitmapPlace, BitmapSuperblock, DeviceFlags, LOG_SECTORS_MIN, LogPlace,
    NewSuperblock, OwnLogPlace, Placement, PlacementError, PlacementRequest, PplPlace, Role,
    Superblock, Timestamp, Version, placement,
};
use uuid::Uuid;

use super::candidates::{Candidate, Source, open_all};
use super::destroy::NamedThing;
use super::words::{self, ArraySpec};
use super::{Args, destroy};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::size::{format_size, format_size_exact};
use braid_console::output::utc::now_seconds;
use braid_discovery::policy::Policy;
use braid_discovery::probe::open_error;

const MISSING: &str = "missing";

pub(super) struct PlannedMember {
    pub(super) label: String,
    pub(super) path: PathBuf,
    /// The member's slot; `None` for a spare and for the journal's device.
    pub(super) slot: Option<u16>,
    /// The member holds the write journal.
    pub(super) is_journal: bool,
    /// Reads use the member only if no other copy is available.
    pub(super) write_mostly: bool,
    pub(super) size_bytes: u64,
    pub(super) source: Source,
    pub(super) placement: Placement,
}

/// Whether redundancy is right from the start, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// The level has no redundancy, or the missing members leave none.
    NoRedundancy,
    /// Every member is a new file of zeroes.
    NewFiles,
    /// `--assume-clean`.
    Assumed,
    Zeroed,
    /// No client has written anything; parity is computed when a client writes.
    Unwritten,
    /// Redundancy is not right yet, and the superblocks say so: a resync is pending.
    Pending,
}

impl Sync {
    pub(super) fn resync_offset(self) -> u64 {
        if self == Self::Pending { 0 } else { u64::MAX }
    }

    pub(super) fn code(self) -> &'static str {
        match self {
            Self::NoRedundancy => "no-redundancy",
            Self::NewFiles => "new-files",
            Self::Assumed => "assumed",
            Self::Zeroed => "zeroed",
            Self::Unwritten => "unwritten",
            Self::Pending => "pending",
        }
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRedundancy => "no redundancy to bring in sync",
            Self::NewFiles => "in sync: all members are new files of zeroes",
            Self::Assumed => "assumed to be in sync (--assume-clean)",
            Self::Zeroed => "in sync: data areas are zeroed first (--zero)",
            Self::Unwritten => "brought in sync where it is written (lockless bitmap)",
            Self::Pending => "not in sync yet",
        })
    }
}

/// mdadm's limit for the size of a lockless bitmap, in sectors.
const LOCKLESS_SECTORS_MAX: u32 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consistency {
    /// The level has no redundancy.
    NoRedundancy,
    /// A full resync after a crash.
    Resync,
    /// A full resync, because members have no room for a bitmap.
    NoRoom,
    /// After a crash, a resync of the regions that the bitmap names.
    Bitmap(BitmapSuperblock),
    /// After a crash, a resync of the regions that the lockless bitmap names.
    Lockless(BitmapSuperblock),
    /// md's partial parity logs restore parity, with any member missing.
    Ppl,
    /// braid's own logs restore parity, also with members missing. If there is room, a bitmap in
    /// addition lets a returning member catch up.
    Log(OwnLogPlace, Option<BitmapSuperblock>),
    /// Writes in the write journal are replayed, also with a member missing. The field is the
    /// sequence of the journal's first block.
    Journal(u32),
}

impl Consistency {
    /// The policy's word in JSON: md's word, if md has the policy.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::NoRedundancy => "none",
            Self::Resync | Self::NoRoom => "resync",
            Self::Bitmap(_) => "bitmap",
            Self::Lockless(_) => "llbitmap",
            Self::Ppl => "ppl",
            Self::Log(..) => "log",
            Self::Journal(_) => "journal",
        }
    }

    pub(super) fn bitmap(self) -> Option<BitmapSuperblock> {
        match self {
            Self::Bitmap(bitmap) | Self::Lockless(bitmap) => Some(bitmap),
            Self::Log(_, bitmap) => bitmap,
            Self::NoRedundancy | Self::Resync | Self::NoRoom | Self::Ppl | Self::Journal(_) => None,
        }
    }

    /// The sequence of the journal's first block, if the array has a journal.
    pub(super) fn journal_sequence(self) -> Option<u64> {
        match self {
            Self::Journal(sequence) => Some(sequence.into()),
            _ => None,
        }
    }

    /// The place where a member with this superblock keeps its parity log, if it has one.
    pub(super) fn log_place(self, superblock: &Superblock) -> Option<LogPlace> {
        match self {
            Self::Log(place, _) => Some(LogPlace::Own(place)),
            _ => superblock.intent.ppl.map(LogPlace::Ppl),
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRedundancy => f.write_str("no redundancy to keep in sync"),
            Self::Resync => f.write_str("after one, all of it is brought in sync (no bitmap)"),
            Self::NoRoom => {
                f.write_str("after one, all of it is brought in sync (no room for a bitmap)")
            }
            Self::Ppl => f.write_str(
                "after one, interrupted writes are repaired, also with a member missing (PPL)",
            ),
            Self::Journal(_) => f.write_str(
                "after one, the journal is written to the members, also with members missing \
                 (write journal)",
            ),
            Self::Log(_, bitmap) => {
                f.write_str(
                    "after one, interrupted writes are repaired, also with members missing \
                     (braid's log",
                )?;
                match bitmap {
                    Some(bitmap) => {
                        let each = format_size_exact(u64::from(bitmap.chunk_bytes));
                        write!(f, "; bitmap, {each} per bit)")
                    }
                    None => f.write_str(")"),
                }
            }
            Self::Bitmap(bitmap) => {
                let each = format_size_exact(u64::from(bitmap.chunk_bytes));
                let what = "after one, only interrupted writes are brought in sync";
                write!(f, "{what} (bitmap, {each} per bit)")
            }
            Self::Lockless(bitmap) => {
                let each = format_size_exact(u64::from(bitmap.chunk_bytes));
                let what = "after one, only interrupted writes are brought in sync";
                write!(f, "{what} (lockless bitmap, {each} per mark)")
            }
        }
    }
}

pub(super) struct Plan {
    pub(super) wanted: ArraySpec,
    pub(super) geometry: Geometry,
    /// The members in the order of the command line, without `missing` words.
    pub(super) members: Vec<PlannedMember>,
    /// Slots without a member.
    pub(super) missing: Vec<u16>,
    /// The superblock's `size`; 0 for linear and raid0.
    pub(super) member_size_sectors: u64,
    pub(super) sync: Sync,
    pub(super) consistency: Consistency,
    /// The file that holds bitmap and log, if members do not.
    pub(super) bitmap_file: Option<PathBuf>,
    /// One superblock for each member; each already names the bitmap or the logs.
    pub(super) superblocks: Vec<Superblock>,
    /// Things on members that the plan destroys, each once.
    pub(super) destroyed: Vec<NamedThing>,
    /// Things that the operator named for `--destroy` and that stay, because they are within the
    /// data areas (`--assume-clean`).
    pub(super) kept: Vec<NamedThing>,
    pub(super) args: Args,
}

impl Plan {
    pub(super) fn bitmap_file_bytes(&self) -> u64 {
        self.consistency.bitmap().map_or(0, |bitmap| BitmapFile::bytes_for(&bitmap))
    }

    /// The sectors of a member on which foreign signatures stay. With `--assume-clean` these are
    /// its data area, which holds the contents of the array that is made again.
    pub(super) fn kept_sectors(&self, member: &PlannedMember) -> Range<u64> {
        match member.is_journal {
            true => 0..0,
            false => kept_sectors(&self.args, member.placement, self.member_size_sectors),
        }
    }
}

fn kept_sectors(args: &Args, placement: Placement, member_size_sectors: u64) -> Range<u64> {
    if !args.assume_clean {
        return 0..0;
    }
    let size_sectors =
        if member_size_sectors == 0 { placement.data_size_sectors } else { member_size_sectors };
    placement.data_offset_sectors..placement.data_offset_sectors + size_sectors
}

pub(super) fn plan(args: &Args) -> Result<Plan, CliError> {
    let wanted = words::read(args)?;
    let roster = roster(args, &wanted)?;
    let members = roster.given.iter().map(|&index| args.members[index].as_path());
    let paths: Vec<&Path> = members.chain(args.write_journal.as_deref()).collect();
    let mut opened = open_all(args, &wanted, &paths)?;
    let named = destroy::check(args, &opened)?;
    let journal = args.write_journal.is_some().then(|| opened.pop().expect("it was opened last"));
    let (places, member_size_sectors) = places(&wanted, &roster, &opened)?;
    let kept: BTreeMap<&str, Range<u64>> = opened
        .iter()
        .zip(&places)
        .map(|(opened, place)| {
            (opened.label.as_str(), kept_sectors(args, *place, member_size_sectors))
        })
        .collect();
    let (destroyed, kept) = destroy::split(&named, &kept);
    let geometry = geometry(args, &wanted, &roster, &places)?;
    check_missing(args, &geometry, &roster.missing)?;
    let sync = sync((args, &wanted), &geometry, &roster, &opened)?;
    let members = opened.into_iter().zip(places).zip(&roster.slots);
    let members = members.map(|((opened, placement), &slot)| PlannedMember {
        write_mostly: args.write_mostly.contains(&opened.path),
        label: opened.label,
        path: opened.path,
        slot,
        is_journal: false,
        size_bytes: opened.size_bytes,
        source: opened.source,
        placement,
    });
    let mut members: Vec<PlannedMember> = members.collect();
    if let Some(opened) = journal {
        members.push(journal_member(&wanted, &geometry, opened)?);
    }
    let mut superblocks = superblocks((&wanted, &geometry), &members, member_size_sectors, sync)?;
    let consistency = consistency(args, (&wanted, &geometry), &mut superblocks)?;
    Ok(Plan {
        members,
        consistency,
        bitmap_file: args.bitmap_file.clone(),
        superblocks,
        missing: roster.missing,
        wanted,
        geometry,
        member_size_sectors,
        sync,
        destroyed,
        kept,
        args: args.clone(),
    })
}

/// Plans the journal's device, whose whole size becomes the journal's ring.
fn journal_member(
    wanted: &ArraySpec,
    geometry: &Geometry,
    opened: Candidate,
) -> Result<PlannedMember, CliError> {
    let request = PlacementRequest {
        version: wanted.version,
        device_bytes: opened.size_bytes,
        level: wanted.level,
        chunk_sectors: 8,
        member_size_sectors: None,
        data_offset_sectors: None,
    };
    let place = placement(&request).map_err(|error| placement_error(error, &opened, None))?;
    let placement = Placement { bad_block_log: None, ..place };
    let needed_sectors = journal_sectors_min(geometry).unwrap_or(u64::MAX);
    if placement.data_size_sectors < needed_sectors {
        let before = placement.data_offset_sectors;
        let needed = needed_sectors.saturating_add(before).saturating_mul(SECTOR_BYTES);
        let what = format!(
            "{} is too small for the journal: it has {}, at least {} are needed",
            opened.label,
            format_size(opened.size_bytes),
            format_size(needed)
        );
        return Err(CliError::new(Code::MemberTooSmall, what).about(opened.label.clone()));
    }
    Ok(PlannedMember {
        label: opened.label,
        path: opened.path,
        slot: None,
        is_journal: true,
        write_mostly: false,
        size_bytes: opened.size_bytes,
        source: opened.source,
        placement,
    })
}

/// Members and their slots.
struct Roster {
    slot_count: u16,
    /// Indexes into the command line, of members that are not missing.
    given: Vec<usize>,
    /// The slots of the members in `given`, in the same order.
    slots: Vec<Option<u16>>,
    missing: Vec<u16>,
}

fn roster(args: &Args, wanted: &ArraySpec) -> Result<Roster, CliError> {
    let refuse = |why: &str| {
        let what = format!("{} members and {} spares do not fit", args.members.len(), args.spare);
        Err(CliError::new(Code::MemberCount, what).about(args.name.clone()).because(why))
    };
    let Some(active) = args.members.len().checked_sub(args.spare).filter(|active| *active > 0)
    else {
        return refuse("the last members become spares, and none is left for the array");
    };
    if args.spare > 0 && wanted.level.family() == Family::Direct {
        return refuse("a level without redundancy cannot use a spare");
    }
    let Ok(slot_count) = u16::try_from(active) else { return refuse("md counts slots in 16 bits") };
    let mut roster =
        Roster { slot_count, given: Vec::new(), slots: Vec::new(), missing: Vec::new() };
    for (index, path) in args.members.iter().enumerate() {
        let slot = u16::try_from(index).ok().filter(|slot| *slot < slot_count);
        match (path.as_os_str() == MISSING, slot) {
            (true, Some(slot)) => roster.missing.push(slot),
            (true, None) => return refuse("a spare cannot be missing"),
            (false, slot) => {
                roster.given.push(index);
                roster.slots.push(slot);
            }
        }
    }
    if roster.slots.iter().all(Option::is_none) {
        return refuse("every member is missing");
    }
    if !args.write_mostly.is_empty() && wanted.level.family() != Family::Mirror {
        return refuse("--write-mostly marks the copy to read last, so it is for raid1 and raid10");
    }
    if let Some(other) = args.write_mostly.iter().find(|one| !args.members.contains(one)) {
        let what = format!("--write-mostly names {}, which is no member", other.display());
        return Err(CliError::new(Code::Usage, what).about(other.display().to_string()));
    }
    Ok(roster)
}

/// The data offset on each member, and the size that all members use.
fn places(
    wanted: &ArraySpec,
    roster: &Roster,
    opened: &[Candidate],
) -> Result<(Vec<Placement>, u64), CliError> {
    let place = |opened: &Candidate, data_offset_sectors, member_size_sectors| {
        let request = PlacementRequest {
            version: wanted.version,
            device_bytes: opened.size_bytes,
            level: wanted.level,
            chunk_sectors: wanted.chunk_sectors,
            member_size_sectors,
            data_offset_sectors,
        };
        placement(&request).map_err(|error| placement_error(error, opened, data_offset_sectors))
    };
    // mdadm chooses the data offset for the first member and uses this offset for all members.
    let first = roster.slots.iter().position(Option::is_some).expect("checked by the roster");
    let data_offset = place(&opened[first], None, None)?.data_offset_sectors;
    let offset = (wanted.version != Version::V1_0).then_some(data_offset);
    let largest = opened
        .iter()
        .map(|opened| place(opened, offset, None))
        .collect::<Result<Vec<_>, CliError>>()?;
    if wanted.level.family() == Family::Direct {
        return Ok((largest, 0));
    }
    let smallest = largest.iter().map(|place| place.usable_sectors).min().unwrap_or(0);
    let places = opened.iter().map(|opened| place(opened, offset, Some(smallest)));
    Ok((places.collect::<Result<Vec<_>, CliError>>()?, smallest))
}

fn placement_error(error: PlacementError, opened: &Candidate, offset: Option<u64>) -> CliError {
    let label = &opened.label;
    let PlacementError::TooSmall { device_bytes, needed_bytes } = error else {
        return CliError::new(Code::SizeInvalid, format!("{label}: {error}")).about(label.clone());
    };
    let what = format!(
        "{label} is too small: it has {}, at least {} are needed (short by {})",
        format_size(device_bytes),
        format_size(needed_bytes),
        format_size(needed_bytes.saturating_sub(device_bytes))
    );
    let refused = CliError::new(Code::MemberTooSmall, what).about(label.clone());
    match offset {
        Some(offset) => refused.because(format!(
            "the first member's size puts data at {} on all members; name the smallest first for \
             a lower offset",
            format_size(offset.saturating_mul(SECTOR_BYTES))
        )),
        None => refused,
    }
}

fn geometry(
    args: &Args,
    wanted: &ArraySpec,
    roster: &Roster,
    places: &[Placement],
) -> Result<Geometry, CliError> {
    let member_sectors = if wanted.level.family() == Family::Direct {
        if !roster.missing.is_empty() {
            return Err(beyond(args, &roster.missing, 0));
        }
        places.iter().map(|place| place.data_size_sectors).collect()
    } else {
        let size = places.first().map_or(0, |place| place.member_size_sectors);
        vec![size; usize::from(roster.slot_count)]
    };
    let shape = Shape {
        level: wanted.level,
        layout: wanted.layout,
        chunk_sectors: wanted.chunk_sectors,
        slots: roster.slot_count,
        member_sectors,
    };
    Geometry::new(&shape).map_err(|error| words::geometry_error(error, args))
}

fn check_missing(args: &Args, geometry: &Geometry, missing: &[u16]) -> Result<(), CliError> {
    if geometry.survives(&|slot: Slot| missing.contains(&slot.0)) {
        return Ok(());
    }
    Err(beyond(args, missing, geometry.lost_max()))
}

fn beyond(args: &Args, missing: &[u16], lost_max: u16) -> CliError {
    let slots: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let what = format!("{} cannot begin with slot {} missing", args.name, slots.join(", "));
    CliError::new(Code::TooFewMembers, what)
        .about(args.name.clone())
        .because(format!("this level and layout can lose {lost_max} of any members"))
        .remedy(Risk::Look, "Put members in place of 'missing'", "")
}

fn sync(
    (args, wanted): (&Args, &ArraySpec),
    geometry: &Geometry,
    roster: &Roster,
    opened: &[Candidate],
) -> Result<Sync, CliError> {
    let lost = u16::try_from(roster.missing.len()).unwrap_or(u16::MAX);
    let is_bare = match geometry.level() {
        Level::Linear | Level::Raid0 => true,
        Level::Raid1 => lost + 1 == geometry.slots(),
        // The rule is mdadm's: if no redundancy is left to compare, there is nothing to resync.
        Level::Raid4 | Level::Raid5 | Level::Raid6 => lost == geometry.lost_max(),
        Level::Raid10 => false,
    };
    if is_bare {
        return Ok(Sync::NoRedundancy);
    }
    if args.assume_clean {
        return Ok(Sync::Assumed);
    }
    if opened.iter().all(|opened| matches!(opened.source, Source::ToMake)) {
        return Ok(Sync::NewFiles);
    }
    if args.zero {
        return Ok(Sync::Zeroed);
    }
    if wanted.consistency == Some(Policy::Lockless) {
        return Ok(Sync::Unwritten);
    }
    if lost > 0 && geometry.level().family() == Family::Stripe {
        let mut zeroed = args.clone();
        zeroed.zero = true;
        let what = format!("{} would begin with a member missing and with wrong parity", args.name);
        return Err(CliError::new(Code::DirtyDegraded, what)
            .about(args.name.clone())
            .because("one of two parities is left, and may not match the data")
            .remedy(Risk::Change, "Make it match: zero the members", zeroed.command_line()));
    }
    Ok(Sync::Pending)
}

/// One superblock for each member. The device number in a slot is the slot's number; spares get the
/// next numbers.
fn superblocks(
    (wanted, geometry): (&ArraySpec, &Geometry),
    members: &[PlannedMember],
    member_size_sectors: u64,
    sync: Sync,
) -> Result<Vec<Superblock>, CliError> {
    let slots = geometry.slots();
    let others = members.iter().filter(|member| member.slot.is_none()).count();
    let mut roles = vec![Role::Spare; usize::from(slots) + others];
    for slot in members.iter().filter_map(|member| member.slot) {
        roles[usize::from(slot)] = Role::Active(slot);
    }
    // The journal's device has the last role.
    if members.iter().any(|member| member.is_journal) {
        roles.iter_mut().last().into_iter().for_each(|role| *role = Role::Journal);
    }
    let roles: Arc<[Role]> = roles.into();
    let array = ArrayFacts {
        uuid: *Uuid::new_v4().as_bytes(),
        name: wanted.name.clone(),
        creation_time: Timestamp { seconds: now_seconds(), microseconds: 0 },
        level: wanted.level,
        layout: wanted.layout,
        chunk_sectors: wanted.chunk_sectors,
        member_size_sectors,
        raid_slots: u32::from(slots),
        preferred_minor: None,
        logical_block_bytes: None,
    };
    let mut spare_number = u32::from(slots);
    let mut superblocks = Vec::new();
    for member in members {
        let device_number = member.slot.map(u32::from).unwrap_or_else(|| {
            spare_number += 1;
            spare_number - 1
        });
        let new = NewSuperblock {
            array: array.clone(),
            placement: member.placement,
            device_number,
            device_uuid: *Uuid::new_v4().as_bytes(),
            device_flags: DeviceFlags {
                write_mostly: member.write_mostly,
                ..DeviceFlags::default()
            },
            roles: Arc::clone(&roles),
            events: 0,
            resync_offset: sync.resync_offset(),
        };
        superblocks.push(Superblock::new_v1(&new).map_err(|error| {
            let what = format!("no superblock can be made for {}", member.label);
            CliError::new(Code::MemberCount, what).about(member.label.clone()).caused_by(&error)
        })?);
    }
    Ok(superblocks)
}

/// Chooses the safest consistency policy that members have room for, unless the operator chose one.
/// The superblocks then name the bitmap or the logs. All members get the same policy.
fn consistency(
    args: &Args,
    (wanted, geometry): (&ArraySpec, &Geometry),
    superblocks: &mut [Superblock],
) -> Result<Consistency, CliError> {
    if let Some(file) = &args.bitmap_file {
        return in_file(args, (wanted, geometry), file);
    }
    if geometry.level().family() == Family::Direct {
        return Ok(Consistency::NoRedundancy);
    }
    if wanted.consistency == Some(Policy::Resync) {
        return Ok(Consistency::Resync);
    }
    if wanted.consistency == Some(Policy::Ppl) {
        return parity_logs(args, superblocks);
    }
    if wanted.consistency == Some(Policy::Journal) {
        // The sequence starts at random: old blocks on the device must never continue it.
        let (sequence, ..) = Uuid::new_v4().as_fields();
        return Ok(Consistency::Journal(sequence));
    }
    let bitmap = bitmap(args, (wanted, geometry), superblocks)?;
    match wanted.consistency {
        Some(Policy::Log) => own_logs(args, superblocks, bitmap.bitmap()),
        // Parity has a write hole that copies do not have: a crash with one column of a stripe half
        // written makes every column of the stripe unsafe.
        None if geometry.level().family() == Family::Stripe => {
            Ok(own_logs(args, superblocks, bitmap.bitmap()).unwrap_or(bitmap))
        }
        _ => Ok(bitmap),
    }
}

/// Chooses a bitmap, and makes the superblocks name it.
fn bitmap(
    args: &Args,
    (wanted, geometry): (&ArraySpec, &Geometry),
    superblocks: &mut [Superblock],
) -> Result<Consistency, CliError> {
    let asked = wanted.bitmap_chunk_bytes;
    let sectors = resync_sectors(geometry);
    let places: Option<Vec<BitmapPlace>> =
        superblocks.iter().map(Superblock::bitmap_place).collect();
    if wanted.consistency == Some(Policy::Lockless) {
        return lockless(args, (sectors, asked), (superblocks, &places.unwrap_or_default()));
    }
    let chunk_bytes = |asked| {
        let fitting = places.iter().flatten().map(|place| place.chunk_bytes(sectors, asked));
        fitting.collect::<Option<Vec<u32>>>().and_then(|all| all.into_iter().max())
    };
    let Some((bytes, places)) = chunk_bytes(asked).zip(places.as_ref()) else {
        return match (wanted.consistency, asked) {
            (None | Some(Policy::Log), None) => Ok(Consistency::NoRoom),
            _ => Err(no_room(args, chunk_bytes(None))),
        };
    };
    for (superblock, place) in superblocks.iter_mut().zip(places) {
        superblock.set_bitmap(Some(place.offset_sectors));
    }
    let reserved = places.iter().map(|place| place.room_sectors).min().unwrap_or(0);
    let reserved = u32::try_from(reserved).unwrap_or(u32::MAX);
    Ok(Consistency::Bitmap(BitmapSuperblock::new(sectors, bytes, reserved)))
}

/// Chooses the policy for an array with a bitmap file, which has room for a bitmap and a log.
fn in_file(
    args: &Args,
    (wanted, geometry): (&ArraySpec, &Geometry),
    file: &Path,
) -> Result<Consistency, CliError> {
    let family = geometry.level().family();
    let why = match (wanted.consistency, family) {
        (_, Family::Direct) => Some("this level has no redundancy that a crash could make wrong"),
        (None | Some(Policy::Bitmap | Policy::Log), _) => None,
        (Some(_), _) => Some("only 'bitmap' or 'log' can be in a file"),
    };
    if let Some(why) = why {
        let mut better = args.clone();
        better.bitmap_file = None;
        let label = file.display().to_string();
        let what = format!("{} has nothing to store in {label}", args.name);
        let error = CliError::new(Code::Usage, what).about(label).because(why);
        return Err(error.remedy(Risk::Change, "Without the file", better.command_line()));
    }
    if file.symlink_metadata().is_ok() {
        return Err(open_error(&OpenError::AlreadyExists { path: file.to_path_buf() }));
    }
    let sectors = resync_sectors(geometry);
    let asked = wanted.bitmap_chunk_bytes;
    let Some(bitmap) = BitmapFile::plan(sectors, None, asked) else {
        let fitting = BitmapFile::plan(sectors, None, None);
        return Err(no_room(args, fitting.map(|bitmap| bitmap.chunk_bytes)));
    };
    let log = BitmapFile::log_place(BitmapFile::bytes_for(&bitmap), bitmap.area_sectors());
    match (wanted.consistency, log) {
        (None | Some(Policy::Log), Some(place)) if family == Family::Stripe => {
            Ok(Consistency::Log(place, Some(bitmap)))
        }
        _ => Ok(Consistency::Bitmap(bitmap)),
    }
}

/// Checks that braid's own logs have room next to the bitmap in `superblocks`.
fn own_logs(
    args: &Args,
    superblocks: &[Superblock],
    bitmap: Option<BitmapSuperblock>,
) -> Result<Consistency, CliError> {
    let bitmap_sectors = bitmap.map_or(0, |bitmap| bitmap.area_sectors());
    let size = |superblock: &Superblock| {
        superblock.own_log_place(bitmap_sectors).map_or(0, |place| place.size_sectors)
    };
    let size_sectors = superblocks.iter().map(size).min().unwrap_or(0);
    if size_sectors < u32::from(LOG_SECTORS_MIN) {
        return Err(no_room_for_logs(
            args,
            "logs",
            "right before its data, after its other metadata",
        ));
    }
    Ok(Consistency::Log(OwnLogPlace::of(size_sectors), bitmap))
}

fn lockless(
    args: &Args,
    (sectors, asked): (u64, Option<u32>),
    (superblocks, places): (&mut [Superblock], &[BitmapPlace]),
) -> Result<Consistency, CliError> {
    let room = places.iter().map(|place| place.room_sectors).min().unwrap_or(0);
    let room = u32::try_from(room).unwrap_or(u32::MAX).min(LOCKLESS_SECTORS_MAX);
    let fitting = BitmapSuperblock::new_lockless(sectors, room);
    let least = fitting.map(|head| head.chunk_bytes);
    let with = |head: BitmapSuperblock| BitmapSuperblock {
        chunk_bytes: asked.unwrap_or(head.chunk_bytes),
        ..head
    };
    let fits = |head: &BitmapSuperblock| head.area_sectors() <= u64::from(room);
    let Some(head) = fitting.map(with).filter(fits) else { return Err(no_room(args, least)) };
    for (superblock, place) in superblocks.iter_mut().zip(places) {
        superblock.set_bitmap(Some(place.offset_sectors));
    }
    Ok(Consistency::Lockless(head))
}

fn parity_logs(args: &Args, superblocks: &mut [Superblock]) -> Result<Consistency, CliError> {
    let places: Vec<Option<PplPlace>> = superblocks.iter().map(Superblock::ppl_place).collect();
    let room = |place: &Option<PplPlace>| place.map_or(0, |place| place.size_sectors);
    let size_sectors = places.iter().map(room).min().unwrap_or(0);
    if size_sectors < LOG_SECTORS_MIN {
        return Err(no_room_for_logs(args, "partial parity logs", "beside data and superblock"));
    }
    for (superblock, place) in superblocks.iter_mut().zip(places) {
        let place = place.expect("it has room");
        superblock.set_ppl(PplPlace { size_sectors, ..place });
    }
    Ok(Consistency::Ppl)
}

fn no_room_for_logs(args: &Args, logs: &str, place: &str) -> CliError {
    let mut better = args.clone();
    better.consistency = Some("resync".to_owned());
    let what = format!("the members of {} have no room for {logs}", args.name);
    let error = CliError::new(Code::SizeInvalid, what).about(args.name.clone());
    let needed = format_size_exact(u64::from(LOG_SECTORS_MIN) * SECTOR_BYTES);
    let error = error.because(format!("each needs {needed} {place}"));
    error.remedy(Risk::Change, "Instead", better.command_line())
}

/// The error for a requested bitmap that does not fit; it would fit with this many bytes per bit.
fn no_room(args: &Args, fitting_bytes: Option<u32>) -> CliError {
    let mut better = args.clone();
    better.bitmap_chunk = fitting_bytes.map(|bytes| format_size_exact(u64::from(bytes)));
    if fitting_bytes.is_none() {
        better.consistency = Some("resync".to_owned());
    }
    let what = format!("the members of {} have no room for this bitmap", args.name);
    let error = CliError::new(Code::SizeInvalid, what).about(args.name.clone());
    error.remedy(Risk::Change, "Instead", better.command_line())
}
