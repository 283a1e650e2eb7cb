//! The devices of a rescue: opened for reading only, and disks taken apart into their partitions.
//!
//! A disk of a NAS has its members in partitions, and where its image is looked at nobody has made devices of them. So a disk that is no
//! member itself and has a table of partitions stands for its partitions, called `DISK#NUMBER`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_assembly::ProbedMember;
use braid_contents::{Contents, look};
use braid_member::layer::{Holes, Lenient, Part};
use braid_member::{Access, Member};
use braid_ondisk::Version;
use crc32c::crc32c_append;

use super::args::Args;
use super::sick;
use crate::cmd::serve::assemble::{is_dead, refuse_repeated};
use crate::contents::read_ends;
use crate::error::CliError;
use crate::error::code::Code;
use crate::probe::{open_member, probe_beside};

/// One device, or a partition of one.
pub(super) struct Disk {
    /// What it is called here.
    pub(super) label: String,
    /// The path of the device.
    pub(super) path: PathBuf,
    /// Which bytes of the device, if not all of them.
    pub(super) part: Option<Range<u64>>,
    /// For reading only.
    pub(super) device: Arc<dyn Member>,
    /// What was read of it.
    pub(super) probed: ProbedMember,
    /// What stands for its first and last bytes.
    pub(super) mark: u64,
    /// What is on it, if it is no member.
    pub(super) contents: Contents,
    /// What it lacks, if it is a copy: these bytes of it are errors.
    pub(super) holes: Vec<Range<u64>>,
    /// What is behind `device`, if that has something in memory in front of it.
    pub(super) behind: Option<Behind>,
}

/// A device that is read with something else in place of some of its bytes.
pub(super) struct Behind {
    pub(super) device: Arc<dyn Member>,
    /// What stands for its own first and last bytes.
    pub(super) mark: u64,
    /// Which bytes are not its own.
    pub(super) ranges: Vec<Range<u64>>,
}

/// All of them.
pub(super) struct Disks {
    pub(super) all: Vec<Disk>,
    /// Those that are there and cannot be read, and why.
    pub(super) unreadable: Vec<(String, String)>,
}

impl Disks {
    /// Opens what was named, with what is missing of copies. One that cannot be read is told of; one that is not there, or in use, is a slip of the hand.
    pub(super) fn open(args: &Args) -> Result<Self, CliError> {
        let paths = &args.members;
        refuse_repeated(paths.iter().map(PathBuf::as_path))?;
        sick::check(args)?;
        let mut disks = Self { all: Vec::new(), unreadable: Vec::new() };
        for path in paths {
            let label = path.display().to_string();
            let opened = open_member(path, Access::ReadOnly);
            let opened = opened.and_then(|device| {
                let sick = sick::of(args, path, device.size_bytes())?;
                let holes = sick.map_or_else(Vec::new, |sick| sick.map.missing());
                taken_apart((&label, path), Arc::from(device), &holes)
            });
            match opened {
                Ok(found) => disks.all.extend(found),
                Err(error) if is_dead(&error) => disks.unreadable.push((label, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        if disks.all.is_empty() {
            let (label, why) = disks.unreadable.first().cloned().unwrap_or_default();
            let what = format!("none of the members can be read: {why}");
            return Err(CliError::new(Code::MemberIo, what).about(label));
        }
        Ok(disks)
    }

    /// The indices of what is called so: a label, or the path of a disk with all of its partitions.
    pub(super) fn called(&self, name: &str) -> Vec<usize> {
        let all = self.all.iter().enumerate();
        let is_it = |disk: &Disk| disk.label == name || disk.path == Path::new(name);
        all.filter(|(_, disk)| is_it(disk)).map(|(index, _)| index).collect()
    }
}

/// What stands for what a device holds: who writes to a member writes its superblock, too, and that is at one of its ends.
pub(super) fn mark(device: &dyn Member, label: &str) -> Result<u64, CliError> {
    let ends = read_ends(device, label)?;
    let sum = |seed: u32| ends.iter().fold(seed, |sum, snippet| crc32c_append(sum, &snippet.bytes));
    Ok((u64::from(sum(0)) << 32) | u64::from(sum(0x6272_6169)))
}

/// Looks for signatures and superblocks: of a copy what it lacks is zeroes then, and says nothing.
pub(super) fn for_looking(device: &Arc<dyn Member>, holes: &[Range<u64>]) -> Arc<dyn Member> {
    match holes.is_empty() {
        true => Arc::clone(device),
        false => Arc::new(Lenient(Arc::clone(device))),
    }
}

fn disk(
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
        // Two partitions of a disk are two devices.
        probed.identity = format!("{} {label}", probed.identity);
    }
    let mark = mark(&seen, &label)?;
    let contents = contents(seen.as_ref());
    let (path, behind) = (path.to_path_buf(), None);
    Ok(Disk { label, path, part, device, probed, mark, contents, holes, behind })
}

/// What is on a device, by its tables and signatures.
fn contents(device: &dyn Member) -> Contents {
    let mut read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        device.read_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    look(device.size_bytes(), &mut read)
}

/// The disk, or the partitions that it consists of.
fn taken_apart(
    (label, path): (&str, &Path),
    device: Arc<dyn Member>,
    holes: &[Range<u64>],
) -> Result<Vec<Disk>, CliError> {
    let whole = disk(label.to_owned(), path, (Arc::clone(&device), None), holes.to_vec())?;
    // Of a superblock 0.90 nothing tells whether it is the disk's or its last partition's.
    let sound = whole.probed.probe.superblocks.iter().flatten();
    let is_member = sound.clone().any(|superblock| superblock.version != Version::V0_90);
    let Some(table) = whole.contents.table.as_ref().filter(|_| !is_member) else {
        return Ok(vec![whole]);
    };
    let of_table = |partition: &braid_contents::Partition| {
        let bytes = partition.bytes.clone();
        let part = Part::new(Arc::clone(&device), bytes.start, bytes.end - bytes.start);
        let part = part.expect("a partition lies in its disk");
        let label = format!("{label}#{}", partition.number);
        let holes = sick::within(holes, &bytes);
        disk(label, path, (Arc::new(part), Some(bytes)), holes)
    };
    let parts: Vec<Disk> = table.partitions.iter().map(of_table).collect::<Result<_, _>>()?;
    let has_members = parts.iter().any(|part| !part.probed.probe.superblocks.is_empty());
    // A table that leads to no member may have been written over one.
    Ok(if has_members { parts } else { vec![whole] })
}
