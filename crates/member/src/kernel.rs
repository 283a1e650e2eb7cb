//! What the kernel knows about a device: who holds it, and how big its blocks are.
//!
//! Read from `/sys` and `/proc` as text, so that an ordinary user can ask and no unsafe call is
//! needed. The roots are fields, so that tests can build a small kernel in a folder.
//!
//! What it does not do: keep anybody out. These looks are advice with a good error message; the
//! lock and `O_EXCL` taken afterwards are what excludes (`open`).
//!
//! Who holds a device `D`: a holder in sysfs, an array in mdstat, a mount, swap, a loop device over
//! it; of `D` itself, of any partition of `D`, and, where `D` is a partition, of the whole disk.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::{DeviceNumber, Holder, IdentityKey};

/// The kernel's two windows.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    sys: PathBuf,
    proc: PathBuf,
}

/// A block device by both of its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    name: String,
    number: DeviceNumber,
}

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockOwner {
    ThisProcess,
    Other { process_id: Option<u32> },
}

/// What sysfs says about a device's request queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Queue {
    pub(crate) rotational: Option<bool>,
    pub(crate) zeroes_fast: bool,
}

impl Kernel {
    /// The running kernel.
    pub(crate) fn running() -> Self {
        Self { sys: PathBuf::from("/sys"), proc: PathBuf::from("/proc") }
    }

    /// Who holds the device or file with this key, if anybody does.
    pub(crate) fn holder_of(&self, key: IdentityKey) -> Option<Holder> {
        let related = match key {
            IdentityKey::BlockDevice { device } => self.related_devices(device),
            IdentityKey::File { .. } | IdentityKey::Memory { .. } => Vec::new(),
        };
        self.holder_in_sysfs(&related)
            .or_else(|| self.holder_in_mdstat(&related))
            .or_else(|| self.mount_of(&related))
            .or_else(|| self.swap_on(key, &related))
            .or_else(|| self.loop_device_over(key, &related))
    }

    /// The holders of locks on a file, by any of the three kinds of lock.
    pub(crate) fn locks_on(&self, device: DeviceNumber, inode: u64) -> Vec<LockOwner> {
        let wanted = format!("{:02x}:{:02x}:{inode}", device.major, device.minor);
        let own = std::process::id();
        let owner_of = |line: &String| {
            // A waiter's line has an arrow after its number, which moves every word; it holds nothing.
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some(&process_id), Some(&file)) = (words.get(4), words.get(5)) else {
                return None;
            };
            // Open-file-description locks have -1, processes that we may not see have 0.
            let process_id = process_id.parse::<u32>().ok().filter(|&process_id| process_id != 0);
            match process_id {
                _ if file != wanted => None,
                Some(process_id) if process_id == own => Some(LockOwner::ThisProcess),
                process_id => Some(LockOwner::Other { process_id }),
            }
        };
        self.proc_lines("locks").iter().filter_map(owner_of).collect()
    }

    /// The queue below a block device; a partition has its whole disk's.
    pub(crate) fn queue_of(&self, device: DeviceNumber) -> Queue {
        let Some(folder) = self.device_folder(device) else { return Queue::default() };
        let own = folder.join("queue");
        let queue = match (own.is_dir(), folder.parent()) {
            (false, Some(disk)) => disk.join("queue"),
            _ => own,
        };
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(queue.join(name)).ok()?.trim().parse().ok()
        };
        Queue {
            rotational: number("rotational").map(|value| value != 0),
            zeroes_fast: number("write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0),
        }
    }

    fn device_folder(&self, device: DeviceNumber) -> Option<PathBuf> {
        fs::canonicalize(self.sys.join("dev/block").join(device.to_string())).ok()
    }

    /// The device, its partitions, and its whole disk where it is a partition; the device first.
    fn related_devices(&self, device: DeviceNumber) -> Vec<Named> {
        let Some(folder) = self.device_folder(device) else {
            return vec![Named { name: device.to_string(), number: device }];
        };
        let mut related: Vec<Named> = named(&folder).into_iter().collect();
        let mut partitions: Vec<Named> = entries(&folder)
            .iter()
            .map(|entry| folder.join(entry))
            .filter(|path| path.join("partition").is_file())
            .filter_map(|path| named(&path))
            .collect();
        partitions.sort();
        related.append(&mut partitions);
        if folder.join("partition").is_file() {
            related.extend(folder.parent().and_then(named));
        }
        related
    }

    fn holder_in_sysfs(&self, related: &[Named]) -> Option<Holder> {
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
    fn holder_in_mdstat(&self, related: &[Named]) -> Option<Holder> {
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

    /// The mount's own device number, or, for file systems that number themselves (btrfs), the
    /// device named as its source.
    fn mount_of(&self, related: &[Named]) -> Option<Holder> {
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

    fn swap_on(&self, key: IdentityKey, related: &[Named]) -> Option<Holder> {
        self.proc_lines("swaps").iter().skip(1).find_map(|line| {
            let path = unescape(line.split_whitespace().next()?);
            let is_ours = key_of_path(&path).is_some_and(|used| is_one_of(used, key, related));
            is_ours.then(|| Holder::Swap { held: path.to_string_lossy().into_owned() })
        })
    }

    fn loop_device_over(&self, key: IdentityKey, related: &[Named]) -> Option<Holder> {
        let block = self.sys.join("block");
        entries(&block).into_iter().find_map(|name| {
            let folder = block.join(&name).join("loop");
            let mut backing = fs::read(folder.join("backing_file")).ok()?;
            while backing.last() == Some(&b'\n') {
                backing.pop();
            }
            let backing = PathBuf::from(OsString::from_vec(backing));
            let is_ours = key_of_path(&backing).is_some_and(|used| is_one_of(used, key, related));
            is_ours.then(|| Holder::LoopDevice { name: name.to_string_lossy().into_owned() })
        })
    }

    fn proc_lines(&self, name: &str) -> Vec<String> {
        let bytes = fs::read(self.proc.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

/// The key of whatever is at a path, following links.
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
        IdentityKey::File { .. } | IdentityKey::Memory { .. } => None,
    }
}

fn is_one_of(used: IdentityKey, key: IdentityKey, related: &[Named]) -> bool {
    used == key
        || related.iter().any(|device| used == IdentityKey::BlockDevice { device: device.number })
}

fn named(folder: &Path) -> Option<Named> {
    let number = fs::read_to_string(folder.join("dev")).ok()?;
    Some(Named {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        number: parse_device_number(number.trim())?,
    })
}

/// Names in a folder, in a stable order; none if there is no such folder.
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
