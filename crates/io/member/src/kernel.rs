//! The kernel's knowledge of a device: its holders, and its block sizes.
//!
//! This module reads `/sys` and `/proc` as text, so that an ordinary user can ask and no unsafe
//! call is needed. The roots are fields, so that tests can build a small kernel in a folder.
//!
//! This module keeps no process out. A look here only gives an error message that names the holder;
//! the lock and `O_EXCL` taken afterwards exclude other processes (`open`).
//!
//! The holders of a device `D` are: a holder in sysfs, an array in mdstat, a mount, swap, or a loop
//! device over it. Each counts if it holds `D` itself, a partition of `D`, or, if `D` is a
//! partition, the whole disk.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::limits::{COMMAND_LETTERS_MAX, SECTOR_BYTES};
use crate::{DeviceNumber, Holder, IdentityKey};

/// The kernel's file systems `/sys`, `/proc` and `/dev`.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
}

/// A block device by both of its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedDevice {
    pub(crate) name: String,
    pub(crate) number: DeviceNumber,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopAttachment {
    /// The kernel's name, such as `loop3`.
    pub(crate) name: String,
    /// The backing file or device.
    pub(crate) over: IdentityKey,
    /// The path of the backing when it was attached. The path may be stale, or of another mount
    /// namespace.
    pub(crate) path: PathBuf,
    /// The loop device's bytes on the backing; up to `u64::MAX` if it has no limit.
    pub(crate) bytes: Range<u64>,
    pub(crate) is_read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockOwner {
    ThisProcess,
    Other { process_id: Option<u32> },
}

/// Drivers of a hypervisor's disks: KVM's and Xen's.
const VIRTUAL_DRIVERS: [&str; 2] = ["virtio_blk", "vbd"];
/// Prefixes of vendor or model of a hypervisor's SCSI and ATA disks.
const VIRTUAL_MAKES: [&str; 5] = ["QEMU", "VMware", "Msft", "VBOX", "Google"];

/// A device's request queue, as sysfs describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Queue {
    pub(crate) rotational: Option<bool>,
    pub(crate) zeroes_fast: bool,
    /// The number of requests that the queue holds.
    pub(crate) requests: Option<u32>,
}

impl Kernel {
    pub(crate) fn running() -> Self {
        let [sys, proc, dev] = ["/sys", "/proc", "/dev"].map(PathBuf::from);
        Self { sys, proc, dev }
    }

    pub(crate) fn holder_of(&self, key: IdentityKey) -> Option<Holder> {
        let related = self.related_to(key);
        self.holder_among(key, &related).or_else(|| self.loop_device_over(key, &related))
    }

    /// As `holder_of`, but ignores loop devices over the file or device.
    pub(crate) fn holder_beside_loops(&self, key: IdentityKey) -> Option<Holder> {
        self.holder_among(key, &self.related_to(key))
    }

    fn related_to(&self, key: IdentityKey) -> Vec<NamedDevice> {
        match key {
            IdentityKey::BlockDevice { device } => self.related_devices(device),
            _ => Vec::new(),
        }
    }

    fn holder_among(&self, key: IdentityKey, related: &[NamedDevice]) -> Option<Holder> {
        self.holder_in_sysfs(related)
            .or_else(|| self.holder_in_mdstat(related))
            .or_else(|| self.mount_of(related))
            .or_else(|| self.swap_on(key, related))
    }

    pub(crate) fn name_of(&self, device: DeviceNumber) -> Option<String> {
        named(&self.device_folder(device)?).map(|named| named.name)
    }

    /// The device node of this name.
    pub(crate) fn node_of(&self, name: &str) -> PathBuf {
        // sysfs writes the slashes of a name as exclamation marks.
        self.dev.join(name.replace('!', "/"))
    }

    /// The disk that a partition belongs to, and the partition's bytes on it.
    pub(crate) fn disk_of(&self, partition: DeviceNumber) -> Option<(NamedDevice, Range<u64>)> {
        let folder = self.device_folder(partition)?;
        let disk = named(folder.parent().filter(|_| folder.join("partition").is_file())?)?;
        let sectors = |name| number_in(&folder.join(name));
        let (start, size) = (sectors("start")?, sectors("size")?);
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        Some((disk, bytes(start)..bytes(start.saturating_add(size))))
    }

    /// The devices directly below `device`.
    pub(crate) fn slaves_of(&self, device: DeviceNumber) -> Vec<NamedDevice> {
        let Some(folder) = self.device_folder(device) else { return Vec::new() };
        let slaves = folder.join("slaves");
        entries(&slaves).iter().filter_map(|entry| named(&slaves.join(entry))).collect()
    }

    /// Sectors of a block device.
    pub(crate) fn size_of(&self, device: DeviceNumber) -> Option<u64> {
        number_in(&self.device_folder(device)?.join("size"))
    }

    pub(crate) fn loops(&self) -> Vec<LoopAttachment> {
        let names = entries(&self.sys.join("block"));
        names.iter().filter_map(|name| self.attached(name.to_str()?)).collect()
    }

    /// The backing of the loop device of this name. `None` if the name is no loop device's, or the
    /// backing cannot be found.
    pub(crate) fn attached(&self, name: &str) -> Option<LoopAttachment> {
        let folder = self.sys.join("block").join(name);
        let mut backing = fs::read(folder.join("loop/backing_file")).ok()?;
        while backing.last() == Some(&b'\n') {
            backing.pop();
        }
        let path = PathBuf::from(OsString::from_vec(backing));
        let number = |name: &str| number_in(&folder.join(name)).unwrap_or_default();
        // The device's own report is the most reliable. Without the right to open the device, use
        // the path in sysfs.
        let (over, offset, length) = self.status_of(name).or_else(|| {
            let key = key_of_path(&path)?;
            Some((key, number("loop/offset"), number("loop/sizelimit")))
        })?;
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
        let is_read_only = number("ro") != 0;
        Some(LoopAttachment { name: name.to_owned(), over, path, bytes: offset..end, is_read_only })
    }

    /// The loop device's own report: its backing, the offset, and the length, or 0 for all.
    fn status_of(&self, name: &str) -> Option<(IdentityKey, u64, u64)> {
        let node = self.node_of(name);
        fs::metadata(&node).ok().filter(|node| node.file_type().is_block_device())?;
        let status = braid_block_ioctl::status(fs::File::open(&node).ok()?).ok()?;
        let over = if status.block_device == 0 {
            let device = DeviceNumber::from_packed(status.device);
            IdentityKey::File { device, inode: status.inode }
        } else {
            IdentityKey::BlockDevice { device: DeviceNumber::from_packed(status.block_device) }
        };
        Some((over, status.offset_bytes, status.length_bytes_max))
    }

    /// A loop device over this file or device, as its holder; preferably a loop device in use.
    pub(crate) fn loop_holder(
        &self,
        loops: impl Iterator<Item = LoopAttachment>,
    ) -> Option<Holder> {
        let holders = loops.map(|attached| self.as_holder(attached.name));
        holders.min_by_key(|holder| matches!(holder, Holder::LoopDevice { user: None, .. }))
    }

    /// A loop device as a holder, with the user of the loop device.
    fn as_holder(&self, name: String) -> Holder {
        let node = fs::metadata(self.node_of(&name)).ok();
        let user = node.and_then(|node| {
            let key = key_of(&node)?;
            let lock = || self.foreign_lock(DeviceNumber::from_packed(node.dev()), node.ino());
            self.holder_beside_loops(key).or_else(lock)
        });
        Holder::LoopDevice { name, user: user.map(Box::new) }
    }

    /// The other process that holds a lock on a file.
    pub(crate) fn foreign_lock(&self, device: DeviceNumber, inode: u64) -> Option<Holder> {
        self.locks_on(device, inode).iter().find_map(|owner| match owner {
            LockOwner::Other { process_id } => Some(Holder::Lock {
                process_id: *process_id,
                command: process_id.and_then(|id| self.command_of(id)),
            }),
            LockOwner::ThisProcess => None,
        })
    }

    /// A process's command line, shortened for a message.
    fn command_of(&self, process_id: u32) -> Option<String> {
        let line = fs::read(self.proc.join(process_id.to_string()).join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split_terminator('\0');
        let program = words.next().filter(|program| !program.is_empty())?;
        let program = program.rsplit('/').next().unwrap_or(program);
        let words: Vec<&str> = std::iter::once(program).chain(words).collect();
        let whole = words.join(" ");
        let mut shown: String = whole.chars().take(COMMAND_LETTERS_MAX).collect();
        if shown.len() < whole.len() {
            shown.push_str("...");
        }
        Some(shown)
    }

    /// The holders of locks on a file, by any of the three kinds of lock.
    pub(crate) fn locks_on(&self, device: DeviceNumber, inode: u64) -> Vec<LockOwner> {
        let wanted = format!("{:02x}:{:02x}:{inode}", device.major, device.minor);
        let own = std::process::id();
        let owner_of = |line: &String| {
            // The line of a process that waits for a lock has an arrow after its number, which
            // shifts words. Such a process holds nothing.
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some(&process_id), Some(&file)) = (words.get(4), words.get(5)) else {
                return None;
            };
            // The process number is -1 for open-file-description locks, and 0 for processes hidden
            // from us.
            let process_id = process_id.parse::<u32>().ok().filter(|&process_id| process_id != 0);
            match process_id {
                _ if file != wanted => None,
                Some(process_id) if process_id == own => Some(LockOwner::ThisProcess),
                process_id => Some(LockOwner::Other { process_id }),
            }
        };
        self.proc_lines("locks").iter().filter_map(owner_of).collect()
    }

    /// The queue below a block device. A partition has the queue of its whole disk.
    pub(crate) fn queue_of(&self, device: DeviceNumber) -> Queue {
        let Some(folder) = self.device_folder(device) else { return Queue::default() };
        let disk = disk_of(&folder);
        let queue = disk.join("queue");
        let number = |name: &str| number_in(&queue.join(name));
        let is_rotational = number("rotational").map(|value| value != 0);
        Queue {
            rotational: is_rotational.filter(|turns| !turns || !is_virtual(disk)),
            zeroes_fast: number("write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0),
            requests: number("nr_requests").and_then(|count| u32::try_from(count).ok()),
        }
    }

    fn device_folder(&self, device: DeviceNumber) -> Option<PathBuf> {
        fs::canonicalize(self.sys.join("dev/block").join(device.to_string())).ok()
    }

    /// The device first, then its partitions, or the whole disk if the device is a partition.
    fn related_devices(&self, device: DeviceNumber) -> Vec<NamedDevice> {
        let Some(folder) = self.device_folder(device) else {
            return vec![NamedDevice { name: device.to_string(), number: device }];
        };
        let mut related: Vec<NamedDevice> = named(&folder).into_iter().collect();
        let mut partitions: Vec<NamedDevice> = entries(&folder)
            .iter()
            .map(|entry| folder.join(entry))
            .filter(|path| path.join("partition").is_file())
            .filter_map(|path| named(&path))
            .collect();
        partitions.sort();
        related.append(&mut partitions);
        let disk = disk_of(&folder);
        if disk != folder {
            related.extend(named(disk));
        }
        related
    }

    fn holder_in_sysfs(&self, related: &[NamedDevice]) -> Option<Holder> {
        related.iter().find_map(|device| {
            let holders = self.device_folder(device.number)?.join("holders");
            let holder = entries(&holders).into_iter().next()?;
            Some(Holder::Device {
                held: device.name.clone(),
                holder: holder.to_string_lossy().into_owned(),
            })
        })
    }

    /// Lines such as `md127 : active raid5 sdc1[2] sdb1[0](S)`.
    fn holder_in_mdstat(&self, related: &[NamedDevice]) -> Option<Holder> {
        self.proc_lines("mdstat").iter().find_map(|line| {
            let (array, rest) = line.split_once(" : ")?;
            let listed: BTreeSet<&str> = rest
                .split_whitespace()
                .filter_map(|word| word.split_once('[').map(|(name, _)| name))
                .collect();
            let held = related.iter().find(|device| listed.contains(device.name.as_str()))?;
            Some(Holder::KernelArray { held: held.name.clone(), array: array.to_owned() })
        })
    }

    /// The mount of one of these devices. Compares the mount's own device number, or, for file
    /// systems that number themselves (btrfs), the device named as the mount's source.
    fn mount_of(&self, related: &[NamedDevice]) -> Option<Holder> {
        self.proc_lines("self/mountinfo").iter().find_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let words: Vec<&str> = front.split(' ').collect();
            let number = words.get(2).and_then(|word| parse_device_number(word));
            let source = back.split(' ').nth(1).map(unescape).and_then(|path| block_number(&path));
            let held = related
                .iter()
                .find(|device| number == Some(device.number) || source == Some(device.number))?;
            let mounted_at = unescape(words.get(4)?);
            Some(Holder::Mount { held: held.name.clone(), mounted_at })
        })
    }

    fn swap_on(&self, key: IdentityKey, related: &[NamedDevice]) -> Option<Holder> {
        self.proc_lines("swaps").iter().skip(1).find_map(|line| {
            let path = unescape(line.split_whitespace().next()?);
            let is_ours = key_of_path(&path).is_some_and(|used| is_one_of(used, key, related));
            is_ours.then(|| Holder::Swap { held: path.to_string_lossy().into_owned() })
        })
    }

    fn loop_device_over(&self, key: IdentityKey, related: &[NamedDevice]) -> Option<Holder> {
        let is_ours = |attached: &LoopAttachment| is_one_of(attached.over, key, related);
        self.loop_holder(self.loops().into_iter().filter(is_ours))
    }

    fn proc_lines(&self, name: &str) -> Vec<String> {
        let bytes = fs::read(self.proc.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

/// The key of the file at a path, following links.
pub(crate) fn key_of(metadata: &fs::Metadata) -> Option<IdentityKey> {
    if metadata.is_file() {
        let device = DeviceNumber::from_packed(metadata.dev());
        Some(IdentityKey::File { device, inode: metadata.ino() })
    } else if metadata.file_type().is_block_device() {
        Some(IdentityKey::BlockDevice { device: DeviceNumber::from_packed(metadata.rdev()) })
    } else {
        None
    }
}

fn key_of_path(path: &Path) -> Option<IdentityKey> {
    key_of(&fs::metadata(path).ok()?)
}

fn block_number(path: &Path) -> Option<DeviceNumber> {
    match key_of_path(path)? {
        IdentityKey::BlockDevice { device } => Some(device),
        _ => None,
    }
}

fn is_one_of(used: IdentityKey, key: IdentityKey, related: &[NamedDevice]) -> bool {
    used == key
        || related.iter().any(|device| used == IdentityKey::BlockDevice { device: device.number })
}

/// The sysfs folder of the device's disk: the device's own, or that of the disk around a partition.
fn disk_of(device: &Path) -> &Path {
    let is_partition = device.join("partition").is_file();
    device.parent().filter(|_| is_partition).unwrap_or(device)
}

/// Whether a hypervisor provides the disk, or all the disks below it. Linux calls such a disk
/// rotational whatever stores its data, unless the hypervisor denies that.
fn is_virtual(disk: &Path) -> bool {
    let slaves = disk.join("slaves");
    let below: Vec<PathBuf> = entries(&slaves)
        .iter()
        .filter_map(|name| fs::canonicalize(slaves.join(name)).ok())
        .collect();
    if !below.is_empty() {
        return below.iter().all(|device| is_virtual(disk_of(device)));
    }
    let driver = fs::read_link(disk.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let is_make = |name: &&str| {
        let make = fs::read_to_string(disk.join("device").join(name)).unwrap_or_default();
        VIRTUAL_MAKES.iter().any(|one| make.starts_with(one))
    };
    driver.is_some_and(|driver| VIRTUAL_DRIVERS.contains(&driver))
        || ["vendor", "model"].iter().any(is_make)
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn named(folder: &Path) -> Option<NamedDevice> {
    let number = fs::read_to_string(folder.join("dev")).ok()?;
    Some(NamedDevice {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        number: parse_device_number(number.trim())?,
    })
}

/// Names in a folder, in a stable order; empty if the folder does not exist.
fn entries(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    names
}

fn parse_device_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Undoes the octal escapes (`\040` for a space) of mountinfo and swaps.
fn unescape(word: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (byte, escaped) {
            (b'\\', Some(value)) => {
                bytes.push(value);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests;
