//! What would be written where, decided before anything is.
//!
//! Has the members opened and looked at, and judges the shape. Writes nothing; a file that is to be made is only a size
//! here.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use braid_geometry::{Family, Geometry, Level, SECTOR_BYTES, Shape, Slot};
use braid_ondisk::{Placement, PlacementError, PlacementRequest, Version, placement};

use super::destroy::Doomed;
use super::opened::{Opened, Source, open_all};
use super::words::{self, Wanted};
use super::{Args, destroy};
use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::output::size::format_size;

/// The word for a slot without a member.
const MISSING: &str = "missing";

/// One member of the new array.
pub(super) struct Seat {
    pub(super) label: String,
    pub(super) path: PathBuf,
    /// `None`: a spare.
    pub(super) slot: Option<u16>,
    pub(super) size_bytes: u64,
    pub(super) source: Source,
    pub(super) placement: Placement,
}

/// Whether redundancy is right from the start, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// The level keeps none, or none is left with the members that are missing.
    NoRedundancy,
    /// Every member is a new file of zeroes.
    NewFiles,
    /// The person said so.
    Assumed,
    /// Data areas are zeroed first.
    Zeroed,
    /// It is not: superblocks will say so.
    Pending,
}

impl Sync {
    /// The superblock's word.
    pub(super) fn resync_offset(self) -> u64 {
        if self == Self::Pending { 0 } else { u64::MAX }
    }

    /// One word for programs.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::NoRedundancy => "no-redundancy",
            Self::NewFiles => "new-files",
            Self::Assumed => "assumed",
            Self::Zeroed => "zeroed",
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
            Self::Pending => "not in sync yet",
        })
    }
}

/// The whole plan.
pub(super) struct Plan {
    pub(super) wanted: Wanted,
    pub(super) geometry: Geometry,
    /// In the order of the command line, without the missing.
    pub(super) seats: Vec<Seat>,
    /// Slots without a member.
    pub(super) missing: Vec<u16>,
    /// The superblock's `size`; 0 for linear and raid0.
    pub(super) member_size_sectors: u64,
    pub(super) sync: Sync,
    /// What is destroyed, each once.
    pub(super) destroyed: Vec<Doomed>,
    /// What was named to be destroyed and stays, within the data areas (`--assume-clean`).
    pub(super) kept: Vec<Doomed>,
    /// The command line again.
    pub(super) args: Args,
}

impl Plan {
    /// The sectors of a member on which foreign signatures stay: with `--assume-clean` its data
    /// area, for what is there are then the contents of an array that is made again.
    pub(super) fn kept_sectors(&self, placement: Placement) -> Range<u64> {
        kept_sectors(&self.args, placement, self.member_size_sectors)
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

/// Decides everything.
pub(super) fn plan(args: &Args) -> Result<Plan, CliError> {
    let wanted = words::read(args)?;
    let roster = roster(args, &wanted)?;
    let opened = open_all(args, &wanted, &roster.given)?;
    let named = destroy::check(args, &opened)?;
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
    let sync = sync(args, &geometry, &roster, &opened)?;
    let seats = opened.into_iter().zip(places).zip(&roster.slots);
    let seats = seats.map(|((opened, placement), &slot)| Seat {
        label: opened.label,
        path: opened.path,
        slot,
        size_bytes: opened.size_bytes,
        source: opened.source,
        placement,
    });
    Ok(Plan {
        seats: seats.collect(),
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

/// Who sits where.
struct Roster {
    slot_count: u16,
    /// Index into the command line, of members that are not missing.
    given: Vec<usize>,
    /// One for each of those.
    slots: Vec<Option<u16>>,
    missing: Vec<u16>,
}

fn roster(args: &Args, wanted: &Wanted) -> Result<Roster, CliError> {
    let refuse = |why: &str| {
        let what = format!("{} members and {} spares do not fit", args.members.len(), args.spare);
        Err(CliError::new(Code::MemberCount, what).about(args.name.clone()).because(why))
    };
    let Some(active) = args.members.len().checked_sub(args.spare).filter(|active| *active > 0)
    else {
        return refuse("the last members become spares, and none is left for the array");
    };
    if args.spare > 0 && wanted.level.family() == Family::Direct {
        return refuse("a level without redundancy has no use for a spare");
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
    Ok(roster)
}

/// A place on each member, and the size that all of them use.
fn places(
    wanted: &Wanted,
    roster: &Roster,
    opened: &[Opened],
) -> Result<(Vec<Placement>, u64), CliError> {
    let place = |opened: &Opened, data_offset_sectors, member_size_sectors| {
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
    // mdadm chooses the data offset for the first member and uses it for all.
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

fn placement_error(error: PlacementError, opened: &Opened, offset: Option<u64>) -> CliError {
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
            "the first member's size puts data at {} on all members; name the smallest first to have less",
            format_size(offset.saturating_mul(SECTOR_BYTES))
        )),
        None => refused,
    }
}

fn geometry(
    args: &Args,
    wanted: &Wanted,
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
    args: &Args,
    geometry: &Geometry,
    roster: &Roster,
    opened: &[Opened],
) -> Result<Sync, CliError> {
    let lost = u16::try_from(roster.missing.len()).unwrap_or(u16::MAX);
    let is_bare = match geometry.level() {
        Level::Linear | Level::Raid0 => true,
        Level::Raid1 => lost + 1 == geometry.slots(),
        // As mdadm: with nothing left to compare with, there is nothing to bring in sync.
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
    if lost > 0 && geometry.level().family() == Family::Stripe {
        let mut zeroed = args.clone();
        zeroed.zero = true;
        let what =
            format!("{} would begin with a member missing and parity that is not right", args.name);
        return Err(CliError::new(Code::DirtyDegraded, what)
            .about(args.name.clone())
            .because("one of two parities is left, and nothing says that it matches the data")
            .remedy(Risk::Change, "Make it match: zero the members", zeroed.command_line()));
    }
    Ok(Sync::Pending)
}
