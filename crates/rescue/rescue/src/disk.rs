//! One device of a rescue, or a part of one: opened read-only and probed. If the device is a copy,
//! the bytes that the copy lacks are listed.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_assembly::ProbedMember;
use braid_member::Member;
use braid_member::layer::{Holes, Lenient};
use braid_signatures::{Contents, look};
use crc32c::crc32c_append;

use braid_console::error::CliError;
use braid_discovery::contents::read_ends;
use braid_discovery::probe::probe_beside;

/// An opened device. If it is a copy of a disk, `holes` are the bytes that the copy lacks.
pub(super) struct WholeDisk {
    pub(super) label: String,
    pub(super) path: PathBuf,
    pub(super) device: Arc<dyn Member>,
    pub(super) holes: Vec<Range<u64>>,
}

/// The volume of a member whose metadata is not md's.
#[derive(Debug, Clone)]
pub(super) struct ContainerVolume {
    pub(super) name: String,
    /// The name of the kind of metadata, for messages.
    pub(super) kind: &'static str,
    /// The volume's size in sectors, which may be less than its members provide.
    pub(super) size_sectors: u64,
}

/// One device, or a partition of one.
pub(super) struct Disk {
    pub(super) label: String,
    pub(super) path: PathBuf,
    /// The bytes of the device that the partition covers; `None` for the whole device.
    pub(super) part: Option<Range<u64>>,
    pub(super) device: Arc<dyn Member>,
    pub(super) probed: ProbedMember,
    /// A checksum of the first and last bytes of the disk or partition.
    pub(super) mark: u64,
    /// The disk's content, if the disk is not a member.
    pub(super) contents: Contents,
    /// If the disk is a copy, the bytes that the copy lacks; reading them is an error.
    pub(super) holes: Vec<Range<u64>>,
    /// The volume to which the disk belongs, if its metadata is not md's.
    pub(super) volume: Option<ContainerVolume>,
    /// The plain device, if `device` has bytes in memory in front of it.
    pub(super) plain: Option<PlainDevice>,
}

/// A device that is read with other bytes in place of some of its own.
pub(super) struct PlainDevice {
    pub(super) device: Arc<dyn Member>,
    /// Checksum of the plain device's first and last bytes.
    pub(super) mark: u64,
    /// The replaced bytes.
    pub(super) ranges: Vec<Range<u64>>,
}

/// A checksum of a device's ends, which detects writes to the device: a writer also writes the
/// member's superblock, at one end of the device.
pub(super) fn mark(device: &dyn Member, label: &str) -> Result<u64, CliError> {
    let ends = read_ends(device, label)?;
    let sum = |seed: u32| ends.iter().fold(seed, |sum, snippet| crc32c_append(sum, &snippet.bytes));
    Ok((u64::from(sum(0)) << 32) | u64::from(sum(0x6272_6169)))
}

/// The device for probing: bytes that a copy lacks read as zeroes.
pub(super) fn for_looking(device: &Arc<dyn Member>, holes: &[Range<u64>]) -> Arc<dyn Member> {
    match holes.is_empty() {
        true => Arc::clone(device),
        false => Arc::new(Lenient(Arc::clone(device))),
    }
}

pub(super) fn disk(
    label: String,
    path: &Path,
    (device, part): (Arc<dyn Member>, Option<Range<u64>>),
    holes: Vec<Range<u64>>,
) -> Result<Disk, CliError> {
    let device: Arc<dyn Member> = match holes.is_empty() {
        true => device,
        false => Arc::new(Holes::new(device, &holes)),
    };
    let seen = for_looking(&device, &holes);
    let mut probed = probe_beside(&device, &seen, &label)?;
    if part.is_some() {
        // Two partitions of a disk count as two devices.
        probed.identity = format!("{} {label}", probed.identity);
    }
    let mark = mark(&seen, &label)?;
    let contents = contents(seen.as_ref());
    let (path, plain, volume) = (path.to_path_buf(), None, None);
    Ok(Disk { label, path, part, device, probed, mark, contents, holes, volume, plain })
}

fn contents(device: &dyn Member) -> Contents {
    let mut read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        device.read_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    look(device.size_bytes(), &mut read)
}
