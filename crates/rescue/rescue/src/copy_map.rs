//! Members that are copies of failing disks: the map of a copy lists the bytes that it lacks.
//!
//! The map is `IMAGE.map` next to the copy, as `braid image` leaves it, or the file that `--map`
//! names. ddrescue's maps have the same format. Bytes that the map does not call read are returned
//! as read errors. So the array computes these bytes from the other members or reports an I/O
//! error, and never takes a hole's zeroes for data.

use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_imaging::Map;

use super::config::RescueConfig;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::maps;

pub(super) struct CopyMap {
    pub(super) path: PathBuf,
    pub(super) map: Map,
}

/// The map of the copy at `path`, if one exists. The copy has `size_bytes`; its disk may be larger.
pub(super) fn of(
    args: &RescueConfig,
    path: &Path,
    size_bytes: u64,
) -> Result<Option<CopyMap>, CliError> {
    if let Some(named) = args.maps.iter().find(|named| named.member == path) {
        let map = maps::read_of_copy(&named.map, size_bytes)?;
        let map = map.ok_or_else(|| {
            let what = format!("there is no map {}", named.map.display());
            CliError::new(Code::Usage, what).because("--map says MEMBER=FILE").remedy(
                Risk::Look,
                "See the names",
                "braid rescue --help",
            )
        })?;
        return Ok(Some(CopyMap { path: named.map.clone(), map }));
    }
    let beside = maps::beside(path);
    Ok(maps::read_of_copy(&beside, size_bytes)?.map(|map| CopyMap { path: beside, map }))
}

/// Refuses a map for a file that is not a member.
pub(super) fn check(args: &RescueConfig) -> Result<(), CliError> {
    let of_none = args.maps.iter().find(|named| !args.members.contains(&named.member));
    match of_none {
        None => Ok(()),
        Some(named) => {
            let what = format!("{} is not one of the members", named.member.display());
            Err(CliError::new(Code::Usage, what).because("--map says MEMBER=FILE").remedy(
                Risk::Look,
                "See the names",
                "braid rescue --help",
            ))
        }
    }
}

/// The holes within `part`, with offsets counted from the start of `part`.
pub(super) fn within(holes: &[Range<u64>], part: &Range<u64>) -> Vec<Range<u64>> {
    let clipped = holes.iter().map(|hole| hole.start.max(part.start)..hole.end.min(part.end));
    let clipped = clipped.filter(|hole| hole.start < hole.end);
    clipped.map(|hole| hole.start - part.start..hole.end - part.start).collect()
}
