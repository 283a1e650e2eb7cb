//! Opens the devices of a rescue read-only, and splits disks into their partitions.
//!
//! A NAS disk has its members in partitions, and an image of the disk has no device nodes for
//! these. So a disk that is no member itself and has a partition table is split into its
//! partitions, called `DISK#NUMBER`. A disk of an Intel or DDF container is split into its
//! stretches of volumes, called `DISK@VOLUME` (`containers`).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_member::layer::{Holes, Part};
use braid_member::{Access, Member};
use braid_ondisk::{SuperblockFault, Version};

use super::config::RescueConfig;
use super::containers;
use super::copy_map;
use super::damaged_superblocks::{self, Remnant};
pub(super) use super::disk::{Disk, for_looking, mark};
use super::disk::{WholeDisk, disk};
use super::superblock_guesses;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::open_commands::{OpenCommand, Use, open_command, open_commands};
use braid_discovery::probe::open_member;
use braid_discovery::ready::{is_dead, refuse_repeated};

#[derive(Default)]
pub(super) struct Disks {
    pub(super) all: Vec<Disk>,
    /// Devices that exist and cannot be read, each with the reason.
    pub(super) unreadable: Vec<(String, String)>,
    /// Notes on disks of containers that are not md's.
    pub(super) notes: Vec<String>,
    /// Slightly damaged superblocks that the operator did not ask braid to believe.
    pub(super) remnants: Vec<Remnant>,
    pub(super) spares: Vec<String>,
}

impl Disks {
    /// Opens the named devices, with the maps of those that are copies. An unreadable device is
    /// reported; a missing or busy one is an error, since it is probably a typing mistake.
    pub(super) fn open(args: &RescueConfig) -> Result<Self, CliError> {
        let paths = &args.members;
        refuse_repeated(paths.iter().map(PathBuf::as_path))?;
        copy_map::check(args)?;
        let mut disks = Self::default();
        let mut wholes = Vec::new();
        for path in paths {
            let label = path.display().to_string();
            let opened = open_member(path, Access::ReadOnly);
            let opened = opened.and_then(|device| {
                let copy_map = copy_map::of(args, path, device.size_bytes())?;
                let device: Arc<dyn Member> = Arc::from(device);
                let (label, path) = (label.clone(), path.clone());
                Ok(match copy_map {
                    None => WholeDisk { label, path, device, holes: Vec::new() },
                    Some(copy_map) => {
                        let holes = copy_map.map.missing();
                        let device = longer(device, copy_map.map.size_bytes());
                        WholeDisk { label, path, device, holes }
                    }
                })
            });
            match opened {
                Ok(whole) => wholes.push(whole),
                Err(error) if is_dead(&error) => disks.unreadable.push((label, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        // `--solve` does not use the metadata on the disks.
        let found = match args.solve {
            true => {
                containers::ContainerScan { others: wholes, ..containers::ContainerScan::default() }
            }
            false => containers::split(args, wholes)?,
        };
        disks.all.extend(found.members);
        disks.notes = found.notes;
        for whole in found.others {
            match taken_apart((&whole.label, &whole.path), whole.device, &whole.holes) {
                Ok(found) => disks.all.extend(found),
                Err(error) if is_dead(&error) => {
                    disks.unreadable.push((whole.label, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        if disks.all.is_empty() {
            let (label, why) = disks.unreadable.first().cloned().unwrap_or_default();
            let what = format!("none of the members can be read: {why}");
            return Err(CliError::new(Code::MemberIo, what).about(label));
        }
        (disks.all, disks.remnants) = damaged_superblocks::taken(args, disks.all)?;
        if !args.solve {
            (disks.all, disks.spares) = superblock_guesses::with_spares(args, disks.all)?;
        }
        Ok(disks)
    }

    /// Commands that open the wrapped disks of `is_meant`: images that are not raw, encryption.
    pub(super) fn openings(&self, is_meant: impl Fn(&Disk) -> bool) -> Vec<(&str, OpenCommand)> {
        let kind = |disk: &Disk| {
            let mut kinds = disk.probed.probe.foreign.iter().map(|foreign| foreign.kind);
            kinds.find(|kind| {
                disk.part.is_none() && open_command(*kind, &disk.label, Use::Reading).is_some()
            })
        };
        let meant = self.all.iter().filter(|disk| is_meant(disk));
        open_commands(meant.map(|disk| (disk.label.as_str(), kind(disk))), Use::Reading)
    }

    /// The next commands if no member was found: first those that open wrapped disks, else
    /// `--solve`.
    pub(super) fn ways(&self, args: &RescueConfig) -> Vec<(Risk, String, String)> {
        let ways = self.openings(|_| true);
        if ways.is_empty() {
            let what =
                "If they were members, find out how they were put together; nothing is written";
            return vec![(Risk::Look, what.to_owned(), args.command("--solve"))];
        }
        let opened = |path: &PathBuf| {
            let way = ways.iter().find(|(label, _)| Path::new(label) == path);
            way.map_or_else(|| path.clone(), |(_, way)| PathBuf::from(&way.path))
        };
        let within =
            RescueConfig { members: args.members.iter().map(opened).collect(), ..args.clone() };
        // This command works only after the commands that open the wrapped disks.
        let then = (Risk::Change, "Then look at what is within".to_owned(), within.command(""));
        let ways = ways.into_iter().map(|(_, way)| (Risk::Change, way.label, way.command));
        ways.chain([then]).collect()
    }

    /// The disks called `name`: a disk with this label, or all partitions of the disk with this
    /// path.
    pub(super) fn called(&self, name: &str) -> Vec<usize> {
        let of = |name: &str| -> Vec<usize> {
            let is_it = |disk: &&Disk| disk.label == name || disk.path == Path::new(name);
            let all = self.all.iter().enumerate();
            all.filter(|(_, disk)| is_it(disk)).map(|(index, _)| index).collect()
        };
        let found = of(name);
        match name.rsplit_once('=') {
            // `--with SPARE=SLOT`: the name gives a spare, and the slot that the spare had.
            Some((label, slot)) if found.is_empty() && slot.parse::<u16>().is_ok() => of(label),
            _ => found,
        }
    }
}

/// A copy, extended to the size of its disk: the bytes after its end are a hole.
fn longer(device: Arc<dyn Member>, size_bytes: u64) -> Arc<dyn Member> {
    match size_bytes > device.size_bytes() {
        true => Arc::new(Holes::of_longer(device, size_bytes, &[])),
        false => device,
    }
}

/// The full size of a disk whose superblock says that the disk's end is missing: a copy that was
/// stopped early, or a disk behind a bridge that hides the end.
fn uncut_bytes(disk: &Disk) -> Option<u64> {
    let superblocks = &disk.probed.probe.superblocks;
    let missing = superblocks.iter().filter_map(|found| match found.as_ref().err()?.cause {
        SuperblockFault::Truncated { missing_bytes } => Some(missing_bytes),
        _ => None,
    });
    let missing = missing.max().filter(|_| disk.probed.probe.newest().is_none())?;
    disk.device.size_bytes().checked_add(missing)
}

/// A disk as a whole, or split into its partitions.
fn taken_apart(
    (label, path): (&str, &Path),
    mut device: Arc<dyn Member>,
    holes: &[Range<u64>],
) -> Result<Vec<Disk>, CliError> {
    let mut holes = holes.to_vec();
    let of_whole = |device: &Arc<dyn Member>, holes: &[Range<u64>]| {
        disk(label.to_owned(), path, (Arc::clone(device), None), holes.to_vec())
    };
    let mut whole = of_whole(&device, &holes)?;
    if let Some(size_bytes) = uncut_bytes(&whole) {
        holes.push(device.size_bytes()..size_bytes);
        device = longer(device, size_bytes);
        whole = of_whole(&device, &holes)?;
    }
    // A 0.90 superblock at the disk's end may be the disk's or its last partition's.
    let sound = whole.probed.probe.superblocks.iter().flatten();
    let is_member = sound.clone().any(|superblock| superblock.version != Version::V0_90);
    let Some(table) = whole.contents.table.as_ref().filter(|_| !is_member) else {
        return Ok(vec![whole]);
    };
    let of_table = |partition: &braid_signatures::Partition| {
        let bytes = partition.bytes.clone();
        let part = Part::new(Arc::clone(&device), bytes.start, bytes.end - bytes.start);
        let part = part.expect("a partition lies in its disk");
        let label = format!("{label}#{}", partition.number);
        let holes = copy_map::within(&holes, &bytes);
        disk(label, path, (Arc::new(part), Some(bytes)), holes)
    };
    let parts: Vec<Disk> = table.partitions.iter().map(of_table).collect::<Result<_, _>>()?;
    let has_members = parts.iter().any(|part| !part.probed.probe.superblocks.is_empty());
    // If no partition is a member, the partition table may have overwritten a member, so the whole
    // disk is tried.
    Ok(if has_members { parts } else { vec![whole] })
}
