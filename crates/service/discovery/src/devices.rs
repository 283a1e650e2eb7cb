//! Finds devices by patterns, and the arrays of which these devices are members. Locks and writes
//! nothing.
//!
//! ```text
//!   patterns, or all of /sys/class/block (of /dev without it) ─▶ devices
//!     ─probe─▶ MemberDevice { path, probed } ─by UUID─▶ members of one array
//! ```
//!
//! If the last partition ends where the disk ends, disk and partition both show the partition's
//! superblock (metadata 0.90 and 1.0 are at the end). Of the two devices the smaller one is the
//! member.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use braid_assembly::{Choice, Options, ProbedMember, assemble, bare_name};
use braid_member::{Access, Reach};
use braid_ondisk::{Superblock, format_uuid};

use crate::newest_state;
use crate::probe::{open_member, probe_member};
use crate::raid0_layout;
use braid_console::error::CliError;
use braid_console::error::Risk;
use braid_console::error::code::Code;

/// Most devices to read: more than a machine has, even if each device has a few names.
const DEVICES_MAX: usize = 8192;

/// An example of a pattern, for errors.
const LIKE: &str = "braid scan '/dev/disk/by-id/ata-*'";

/// A device with a superblock.
pub struct MemberDevice {
    /// The device's path.
    pub path: PathBuf,
    /// All data that the probe read from the device.
    pub probed: ProbedMember,
    /// The device's newest superblock.
    pub superblock: Superblock,
    reach: Reach,
}

impl MemberDevice {
    /// The UUID of the device's array, as text.
    pub fn uuid(&self) -> String {
        format_uuid(&self.superblock.array.uuid)
    }

    /// The name of the device's array, without the host; empty if the metadata has none.
    pub fn name(&self) -> &str {
        bare_name(&self.superblock.array.name)
    }

    /// Whether `choice` selects the device's array.
    pub fn is_of(&self, choice: &Choice) -> bool {
        choice.admits(&self.superblock.array.uuid, &self.superblock.array.name)
    }
}

/// Device nodes of all block devices of the kernel that are not empty.
pub fn all_devices() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/sys/class/block") else {
        return nodes_in("/dev".as_ref());
    };
    let entries = entries.flatten();
    let has_bytes = |folder: &Path| {
        let size = std::fs::read_to_string(folder.join("size")).unwrap_or_default();
        size.trim().parse::<u64>().is_ok_and(|sectors| sectors > 0)
    };
    let entries = entries.filter(|entry| has_bytes(&entry.path()));
    // The kernel writes a slash within a name as an exclamation mark.
    let node = |name: String| Path::new("/dev").join(name.replace('!', "/"));
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut nodes: Vec<PathBuf> = names.map(node).collect();
    nodes.sort();
    nodes
}

/// Device nodes of block devices in this folder, also of empty devices: only opening a device shows
/// that it is empty.
fn nodes_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_block = |path: &PathBuf| {
        std::fs::symlink_metadata(path).is_ok_and(|one| one.file_type().is_block_device())
    };
    let mut nodes: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_block).collect();
    nodes.sort();
    nodes
}

/// Devices that match patterns, each once, in order. A word without pattern characters is a path.
///
/// # Errors
/// A pattern is invalid.
pub fn matching(patterns: &[String]) -> Result<Vec<PathBuf>, CliError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        if braid_member::is_uri(Path::new(pattern)) {
            paths.push(pattern.into());
            continue;
        }
        let found = glob::glob(pattern).map_err(|error| {
            let what = format!("'{pattern}' is no pattern of devices");
            let error = CliError::new(Code::Usage, what).about(pattern).because(error.to_string());
            error.remedy(Risk::Look, "Like this", LIKE)
        })?;
        if pattern.contains("**") {
            let what = format!("'{pattern}' is no pattern of devices");
            let why = "`**` goes down every folder, and through links for ever";
            let error = CliError::new(Code::Usage, what).about(pattern).because(why);
            return Err(error.remedy(Risk::Look, "Like this", LIKE));
        }
        paths.extend(found.flatten().take(DEVICES_MAX + 1 - paths.len()));
        if paths.len() > DEVICES_MAX {
            let what = format!("'{pattern}' finds too much");
            let why = format!("no more than {DEVICES_MAX} devices are looked at");
            let error = CliError::new(Code::Usage, what).about(pattern).because(why);
            return Err(error.remedy(Risk::Look, "Like this", LIKE));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    paths.retain(|path| seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    Ok(paths)
}

/// Probes devices. Skips devices that have no superblock, or that cannot be opened or read.
pub fn look(paths: &[PathBuf]) -> Vec<MemberDevice> {
    let mut found: Vec<MemberDevice> = paths.iter().filter_map(|path| look_at(path)).collect();
    let is_around = |one: &MemberDevice| {
        found.iter().any(|other| {
            other.path != one.path
                && other.uuid() == one.uuid()
                && other.probed.size_bytes < one.probed.size_bytes
                && other.reach.shared_with(&one.reach).is_some()
        })
    };
    let around: Vec<bool> = found.iter().map(is_around).collect();
    let mut around = around.into_iter();
    found.retain(|_| around.next() != Some(true));
    found
}

/// Probes one device.
pub fn look_at(path: &Path) -> Option<MemberDevice> {
    try_look_at(path).ok()
}

/// Probes one device. The error says why the device is no member.
pub fn try_look_at(path: &Path) -> Result<MemberDevice, String> {
    let device = open_member(path, Access::Examine).map_err(|error| error.to_string())?;
    let probed = probe_member(&*device, &path.display().to_string());
    let probed = probed.map_err(|error| error.to_string())?;
    let superblock = probed.probe.newest().ok_or("it has no superblock")?.clone();
    Ok(MemberDevice { path: path.to_path_buf(), probed, superblock, reach: Reach::of(path) })
}

/// Whether all members are present that the newest superblock counts as active.
pub fn is_complete(found: &[&MemberDevice], choice: &Choice, state_dir: &Path) -> bool {
    if found.is_empty() {
        return false;
    }
    let probed: Vec<ProbedMember> = found.iter().map(|one| one.probed.clone()).collect();
    let known = newest_state::of(state_dir, &probed);
    let choice = choice.clone();
    let options = Options { known, choice, read_only: true, ..Options::default() };
    let assembled = assemble(&probed, &options).array;
    match assembled {
        Ok(array) => !array.may_return() && array.journal_fault.is_none(),
        // Only the layout is missing, and the operator's options will supply it.
        Err(refusal) => raid0_layout::is_missing(&refusal),
    }
}

/// The device's name for `serve`: its persistent name, if it has one.
pub fn stable_name(path: &Path) -> PathBuf {
    let Ok(device) = std::fs::canonicalize(path) else { return path.to_path_buf() };
    let links = std::fs::read_dir("/dev/disk/by-id").into_iter().flatten().flatten();
    let mut links: Vec<PathBuf> = links
        .map(|entry| entry.path())
        .filter(|link| std::fs::canonicalize(link).is_ok_and(|to| to == device))
        .collect();
    links.sort();
    links.into_iter().next().unwrap_or_else(|| path.to_path_buf())
}
