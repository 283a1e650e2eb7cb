//! Files in the state folder with copies of windows that a reshape overwrites: their paths, and
//! which arrays have a valid copy. [`braid_runtime::WindowCopy`] has their content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use braid_assembly::ProbedMember;
use braid_ondisk::{Superblock, format_uuid};
use braid_runtime::{ReshapePoint, WindowCopy};

/// The folder in the state folder for files about changes of shape.
const FOLDER: &str = "reshape";

/// The file with copies of an array's windows.
#[must_use]
pub fn path(state_dir: &Path, uuid: &[u8; 16]) -> PathBuf {
    state_dir.join(FOLDER).join(format!("{}.copy", format_uuid(uuid)))
}

/// The file that names the parity log or bitmap which an array lacks during a change of shape.
#[must_use]
pub fn log_note(state_dir: &Path, uuid: &str) -> PathBuf {
    state_dir.join(FOLDER).join(uuid)
}

/// The file with the byte at which an array ends for clients, if that is before its own end.
#[must_use]
pub fn end_note(state_dir: &Path, uuid: &str) -> PathBuf {
    state_dir.join(FOLDER).join(format!("{uuid}.array-size"))
}

/// UUIDs of the members' arrays that have a valid copy of a window moved in place.
#[must_use]
pub fn of(state_dir: &Path, members: &[ProbedMember]) -> Vec<[u8; 16]> {
    let superblocks = members.iter().filter_map(|member| member.probe.newest());
    let mut newest: BTreeMap<[u8; 16], &Superblock> = BTreeMap::new();
    for superblock in superblocks {
        let known = newest.entry(superblock.array.uuid).or_insert(superblock);
        if superblock.state.events > known.state.events {
            *known = superblock;
        }
    }
    let is_known = |uuid: &[u8; 16], superblock: &Superblock| {
        let copy = WindowCopy::new(path(state_dir, uuid), *uuid);
        ReshapePoint::of(superblock).is_some_and(|point| copy.knows(point))
    };
    newest.retain(|uuid, superblock| is_known(uuid, superblock));
    newest.into_keys().collect()
}
