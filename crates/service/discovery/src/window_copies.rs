//! Files in the state folder with copies of windows that a reshape overwrites: where they are, and
//! which arrays have one. [`braid_runtime::WindowCopy`] has their content.

use std::path::{Path, PathBuf};

use braid_assembly::ProbedMember;
use braid_ondisk::format_uuid;

/// The folder of what changes of shape keep in the state folder.
const FOLDER: &str = "reshape";

/// The file with copies of an array's windows.
#[must_use]
pub fn path(state_dir: &Path, uuid: &[u8; 16]) -> PathBuf {
    state_dir.join(FOLDER).join(format!("{}.copy", format_uuid(uuid)))
}

/// The file with the name of the parity log that rests during a change of shape.
#[must_use]
pub fn log_note(state_dir: &Path, uuid: &str) -> PathBuf {
    state_dir.join(FOLDER).join(uuid)
}

/// UUIDs of the members' arrays that have such a file.
#[must_use]
pub fn of(state_dir: &Path, members: &[ProbedMember]) -> Vec<[u8; 16]> {
    let uuids = members.iter().filter_map(|member| Some(member.probe.newest()?.array.uuid));
    let mut uuids: Vec<[u8; 16]> = uuids.filter(|uuid| path(state_dir, uuid).exists()).collect();
    uuids.dedup();
    uuids
}
