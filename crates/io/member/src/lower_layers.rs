//! Layers below a device: the same bytes under other names, and the locks on each layer.
//!
//! A lock on a loop device does not conflict with one on its backing file, nor with one on a second
//! loop device over that file. Neither does `O_EXCL`. So a device is followed down to the file or
//! disk that holds its bytes, and each layer is locked:
//!
//! ```text
//!  loop0p1 --partition--> loop0 --loop--> /x/a.img        dm-3 --slaves--> sda2 --partition--> sda
//! ```
//!
//! A layer that belongs to the member as a whole is locked as the member itself is. A layer of
//! which the member is a part gets a shared lock: others may use other parts, and no process the
//! whole. Two loop devices over the same bytes of one file are both refused: nothing says which of
//! them is meant, and both may write.
//!
//! A file is not followed to the device of its file system, which is mounted and held by the
//! kernel. Tables of device-mapper are not read: two dm devices over the same part of a third are
//! not recognised. If this process cannot open a layer, it only reads the layer's locks.
//!
//! Invariants
//! - One range of bytes has one writer, by any path (`tests/loop_device.rs`, `kernel::tests`).

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::kernel::{Kernel, LoopAttachment, key_of};
use crate::limits::LAYERS_MAX;
use crate::lock::{self, Sharing};
use crate::{Access, DeviceNumber, Holder, IdentityKey, OpenError};

/// The relation of a layer to the device above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerKind {
    Partition,
    Loop,
    /// The layers below device-mapper, md or bcache: all that sysfs lists as slaves.
    Slaves,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) key: IdentityKey,
    /// The layer's presumed path, which may lead to another file by now.
    path: PathBuf,
    /// The member's bytes on the layer; a longer range if the mapping is not known exactly.
    bytes: Range<u64>,
    is_exact: bool,
    /// Whether the member covers all of the layer.
    is_whole: bool,
    kind: LayerKind,
    /// The kernel's name of the device above.
    above: String,
    /// The step from the device above to this layer: "loop3 is a loop device over /x/a.img".
    words: String,
}

/// Every layer below a block device, the upper ones first.
pub(crate) fn layers(device: DeviceNumber, kernel: &Kernel) -> Vec<Layer> {
    let mut found = Vec::new();
    let mut next = vec![(device, 0..u64::MAX, true, true)];
    while let Some((device, bytes, is_exact, is_whole)) = next.pop() {
        for mut layer in step(device, &bytes, kernel) {
            layer.is_exact &= is_exact;
            layer.is_whole &= is_whole;
            if found.len() == LAYERS_MAX {
                return found;
            }
            if let IdentityKey::BlockDevice { device } = layer.key {
                next.push((device, layer.bytes.clone(), layer.is_exact, layer.is_whole));
            }
            found.push(layer);
        }
    }
    found
}

/// The devices or file directly below a device; none if it is the lowest layer.
fn step(device: DeviceNumber, bytes: &Range<u64>, kernel: &Kernel) -> Vec<Layer> {
    let Some(above) = kernel.name_of(device) else { return Vec::new() };
    if let Some((disk, part)) = kernel.disk_of(device) {
        let words = format!("{above} is a partition of {}", disk.name);
        return vec![Layer {
            key: IdentityKey::BlockDevice { device: disk.number },
            path: kernel.node_of(&disk.name),
            bytes: within(bytes, &part),
            is_exact: true,
            is_whole: false,
            kind: LayerKind::Partition,
            above,
            words,
        }];
    }
    if let Some(attached) = kernel.attached(&above) {
        let words = format!("{above} is a loop device over {}", attached.path.display());
        return vec![Layer {
            key: attached.over,
            bytes: within(bytes, &attached.bytes),
            is_exact: true,
            is_whole: attached.bytes == (0..u64::MAX),
            path: attached.path,
            kind: LayerKind::Loop,
            above,
            words,
        }];
    }
    let slaves = kernel.slaves_of(device);
    let is_alone = slaves.len() == 1;
    let size = |device| kernel.size_of(device);
    let layer = |slave: crate::kernel::NamedDevice| Layer {
        key: IdentityKey::BlockDevice { device: slave.number },
        path: kernel.node_of(&slave.name),
        bytes: 0..u64::MAX,
        is_exact: false,
        is_whole: is_alone && size(device).is_some() && size(device) == size(slave.number),
        kind: LayerKind::Slaves,
        words: format!("{above} is made of {}", slave.name),
        above: above.clone(),
    };
    slaves.into_iter().map(layer).collect()
}

/// The range `inner`, which is relative to the start of `outer`, as an absolute range.
fn within(inner: &Range<u64>, outer: &Range<u64>) -> Range<u64> {
    let at = |offset: u64| outer.start.saturating_add(offset).min(outer.end);
    at(inner.start)..at(inner.end)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Refuses a member whose bytes another process uses by another path, and locks every layer until
/// the files are closed. Fails with [`OpenError::Busy`], which names the layer and its holder.
pub(crate) fn hold(
    path: &Path,
    device: DeviceNumber,
    access: Access,
    kernel: &Kernel,
) -> Result<Vec<File>, OpenError> {
    let mut locks = Vec::new();
    for layer in layers(device, kernel) {
        let held = match layer.kind {
            LayerKind::Loop => {
                twin(&layer, access, kernel).or_else(|| kernel.holder_beside_loops(layer.key))
            }
            // The kernel's holder of this layer is the device above, which is the member or one of
            // its layers.
            LayerKind::Partition | LayerKind::Slaves => None,
        };
        let held = match held {
            Some(holder) => Err(holder),
            None => lock_layer(&layer, access, kernel),
        };
        match held {
            Ok(lock) => locks.extend(lock),
            Err(holder) => {
                let holder = Holder::Below { step: layer.words, holder: Box::new(holder) };
                return Err(OpenError::Busy { path: path.into(), holder });
            }
        }
    }
    Ok(locks)
}

/// The other process that has locked a member, or a layer below it. Used when the kernel reports
/// the device as busy without a holder.
pub(crate) fn locked_by(path: &Path, key: IdentityKey, kernel: &Kernel) -> Option<Holder> {
    let lock_on = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        kernel.foreign_lock(DeviceNumber::from_packed(metadata.dev()), metadata.ino())
    };
    let below = || {
        let IdentityKey::BlockDevice { device } = key else { return None };
        layers(device, kernel).into_iter().find_map(|layer| {
            let holder = Box::new(lock_on(&layer.path)?);
            Some(Holder::Below { step: layer.words, holder })
        })
    };
    lock_on(path).or_else(below)
}

/// Another loop device over the same bytes as `layer`, if one of the two may write.
fn twin(layer: &Layer, access: Access, kernel: &Kernel) -> Option<Holder> {
    let is_twin = |other: &LoopAttachment| {
        let may_write = access == Access::ReadWrite || !other.is_read_only;
        other.over == layer.key && overlap(&other.bytes, &layer.bytes) && may_write
    };
    let others = kernel.loops().into_iter().filter(|other| other.name != layer.above);
    kernel.loop_holder(others.filter(is_twin))
}

/// Locks a layer if this process may open it. Other processes can lock a layer that it may not.
fn lock_layer(layer: &Layer, access: Access, kernel: &Kernel) -> Result<Option<File>, Holder> {
    let sharing = match access {
        Access::ReadWrite if layer.is_whole => Sharing::Exclusive,
        Access::ReadWrite | Access::ReadOnly | Access::Examine => Sharing::Shared,
    };
    let Some(file) = open_layer(layer) else {
        let foreign = match layer.key {
            IdentityKey::File { device, inode } => kernel.foreign_lock(device, inode),
            _ => None,
        };
        return foreign.filter(|_| sharing == Sharing::Exclusive).map_or(Ok(None), Err);
    };
    let taken = lock::take_patiently(&file, sharing, kernel).or_else(|_| {
        // NFS gives no exclusive lock to a reader, so take a shared one. If the file system has no
        // locks at all, the member itself is refused.
        lock::take_patiently(&file, Sharing::Shared, kernel)
    });
    match taken {
        Ok(Some(holder)) => Err(holder),
        Ok(None) => {
            let metadata = file.metadata().ok();
            let metadata = metadata.filter(|it| it.is_file() && sharing == Sharing::Exclusive);
            let foreign = metadata.and_then(|metadata| {
                kernel.foreign_lock(DeviceNumber::from_packed(metadata.dev()), metadata.ino())
            });
            foreign.map_or(Ok(Some(file)), Err)
        }
        Err(_) => Ok(None),
    }
}

/// Opens a layer at its path, if the path still leads to that layer. Opens it for reading only,
/// which suffices for locks.
fn open_layer(layer: &Layer) -> Option<File> {
    let is_it = |metadata: &fs::Metadata| key_of(metadata) == Some(layer.key);
    fs::metadata(&layer.path).ok().filter(is_it)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let file =
        options.read(true).custom_flags(flags.bits().cast_signed()).open(&layer.path).ok()?;
    file.metadata().ok().filter(is_it)?;
    Some(file)
}

/// The paths that an open of this device opens as well: all layers below the device, to lock them.
/// If one of them is a loop device, also all loop devices, to ask for their backing files.
#[must_use]
pub fn companion_paths(path: &Path) -> Vec<PathBuf> {
    let kernel = Kernel::running();
    let key = fs::metadata(path).ok().and_then(|metadata| key_of(&metadata));
    let Some(IdentityKey::BlockDevice { device }) = key else { return Vec::new() };
    let layers = layers(device, &kernel);
    let is_loop = layers.iter().any(|layer| layer.kind == LayerKind::Loop);
    let loops = is_loop.then(|| kernel.loops()).into_iter().flatten();
    let nodes = loops.map(|one| kernel.node_of(&one.name)).collect::<Vec<_>>();
    layers.into_iter().map(|layer| layer.path).chain(nodes).collect()
}

/// The byte ranges that a path leads to, under the name of each device that shows them.
#[derive(Debug, Clone)]
pub struct Reach(Vec<DeviceRange>);

/// Bytes under one of their names, and the last step that leads to them.
#[derive(Debug, Clone)]
struct DeviceRange {
    key: IdentityKey,
    bytes: Range<u64>,
    step: Option<String>,
}

impl Reach {
    /// The byte ranges to which the path leads now. If the ranges cannot be found out, the result
    /// shares nothing with others.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let Some(key) = fs::metadata(path).ok().and_then(|metadata| key_of(&metadata)) else {
            return Self(Vec::new());
        };
        let mut ranges = vec![DeviceRange { key, bytes: 0..u64::MAX, step: None }];
        if let IdentityKey::BlockDevice { device } = key {
            let layers = layers(device, &Kernel::running());
            ranges.extend(layers.into_iter().filter(|layer| layer.is_exact).map(|layer| {
                DeviceRange { key: layer.key, bytes: layer.bytes, step: Some(layer.words) }
            }));
        }
        Self(ranges)
    }

    /// The steps by which both paths lead to common bytes; `None` if they share no bytes.
    #[must_use]
    pub fn shared_with(&self, other: &Self) -> Option<String> {
        self.0.iter().find_map(|one| {
            let is_same =
                |other: &&DeviceRange| one.key == other.key && overlap(&one.bytes, &other.bytes);
            let other = other.0.iter().find(is_same)?;
            let steps = [&one.step, &other.step].into_iter().flatten();
            let steps: Vec<&str> = steps.map(String::as_str).collect();
            Some(match steps.as_slice() {
                [] => "both names lead to one file or device".to_owned(),
                steps => steps.join(", and "),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_is_a_part_of_the_whole() {
        assert_eq!(within(&(0..u64::MAX), &(512..4096)), 512..4096);
        assert_eq!(within(&(512..1024), &(4096..u64::MAX)), 4608..5120);
        assert_eq!(within(&(512..9000), &(4096..8192)), 4608..8192);
        assert!(overlap(&(0..2), &(1..3)) && !overlap(&(0..2), &(2..3)));
    }
}
