//! A guest's memory: files that the client passes and this process maps, and the two kinds of
//! addresses in this memory.
//!
//! Descriptors hold guest-physical addresses. The client gives the positions of rings in its own
//! addresses. Both kinds of addresses are checked: an address outside all regions is an error.

use std::fs::File;
use std::io;
use std::sync::Arc;

use braid_virtio_proto::Run;
use braid_virtio_proto::wire::DESCRIPTOR_BYTES;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use crate::limits::REGIONS_MAX;

/// A region of the guest's memory, as the client describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedRegion {
    pub(crate) guest: u64,
    pub(crate) user: u64,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("a client shares more runs of memory than {REGIONS_MAX}")]
    TooMany,
    #[error("a file ends before the memory that it is said to have")]
    Short,
    #[error("a run of memory has addresses that none has, or lies upon another")]
    Addresses,
    #[error("no such run of memory was shared")]
    Unknown,
    #[error("memory cannot be mapped")]
    System(#[source] io::Error),
}

/// All regions of a guest's memory; a change of the regions makes a new value.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    map: GuestMemoryMmap,
    regions: Vec<SharedRegion>,
}

impl Memory {
    pub(crate) fn with(&self, shared: SharedRegion, file: File) -> Result<Self, MemoryError> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        let size = usize::try_from(shared.bytes).map_err(|_| MemoryError::Addresses)?;
        let end = shared.offset.checked_add(shared.bytes).ok_or(MemoryError::Addresses)?;
        shared.user.checked_add(shared.bytes).ok_or(MemoryError::Addresses)?;
        // An access to a mapped page beyond the file's end would kill the process.
        let length = file.metadata().map_err(MemoryError::System)?.len();
        if size == 0 || length < end {
            return Err(MemoryError::Short);
        }
        let place = Some(FileOffset::new(file, shared.offset));
        let region = GuestRegionMmap::from_range(GuestAddress(shared.guest), size, place)
            .map_err(|error| MemoryError::System(io::Error::other(error)))?;
        let map = self.map.insert_region(Arc::new(region)).map_err(|_| MemoryError::Addresses)?;
        let mut all = self.regions.clone();
        all.push(shared);
        Ok(Self { map, regions: all })
    }

    pub(crate) fn without(&self, shared: SharedRegion) -> Result<Self, MemoryError> {
        let is_it = |one: &SharedRegion| {
            (one.guest, one.user, one.bytes) == (shared.guest, shared.user, shared.bytes)
        };
        let place = self.regions.iter().position(is_it).ok_or(MemoryError::Unknown)?;
        let removed = self.map.remove_region(GuestAddress(shared.guest), shared.bytes);
        let (map, _region) = removed.map_err(|_| MemoryError::Unknown)?;
        let mut all = self.regions.clone();
        all.remove(place);
        Ok(Self { map, regions: all })
    }

    pub(crate) fn guest_of(&self, user: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|shared| {
            let within = user.checked_sub(shared.user).filter(|within| *within < shared.bytes)?;
            Some(GuestAddress(shared.guest + within))
        })
    }

    pub(crate) fn map(&self) -> &GuestMemoryMmap {
        &self.map
    }

    pub(crate) fn descriptor(&self, address: u64) -> Option<[u8; DESCRIPTOR_BYTES as usize]> {
        let mut bytes = [0; DESCRIPTOR_BYTES as usize];
        self.map.read_slice(&mut bytes, GuestAddress(address)).ok()?;
        Some(bytes)
    }

    /// Copies runs of the guest's memory into bytes; false if a run is missing or `to` is too long.
    pub(crate) fn copy_in(&self, runs: impl Iterator<Item = Run>, to: &mut [u8]) -> bool {
        let mut rest = to;
        for Run { address, length } in runs {
            let (now, later) = rest.split_at_mut(rest.len().min(length as usize));
            if !now.is_empty() && self.map.read_slice(now, GuestAddress(address)).is_err() {
                return false;
            }
            rest = later;
        }
        rest.is_empty()
    }

    /// Copies bytes into runs of the guest's memory; false if memory is missing or too short.
    pub(crate) fn copy_out(&self, runs: impl Iterator<Item = Run>, from: &[u8]) -> bool {
        let mut rest = from;
        for Run { address, length } in runs {
            let (now, later) = rest.split_at(rest.len().min(length as usize));
            if !now.is_empty() && self.map.write_slice(now, GuestAddress(address)).is_err() {
                return false;
            }
            rest = later;
        }
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn file(bytes: u64) -> File {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
        file.set_len(bytes).expect("a length");
        file
    }

    const LOW: SharedRegion =
        SharedRegion { guest: 0, user: 0x7000_0000, bytes: 0x2000, offset: 0 };
    const HIGH: SharedRegion =
        SharedRegion { guest: 0x10000, user: 0x1000, bytes: 0x1000, offset: 0x1000 };

    fn both() -> Memory {
        let memory = Memory::default().with(LOW, file(0x2000)).expect("memory");
        memory.with(HIGH, file(0x2000)).expect("memory")
    }

    #[test]
    fn addresses_of_both_kinds_lead_to_one_memory() {
        let memory = both();
        assert_eq!(memory.guest_of(0x7000_0010), Some(GuestAddress(0x10)));
        assert_eq!(memory.guest_of(0x1fff), Some(GuestAddress(0x10fff)));
        assert_eq!((memory.guest_of(0x2000), memory.guest_of(0)), (None, None));
        let runs = || {
            [Run { address: 0x1ff0, length: 16 }, Run { address: 0x10000, length: 8 }].into_iter()
        };
        assert!(memory.copy_out(runs(), &[7; 24]));
        let mut back = [0; 24];
        assert!(memory.copy_in(runs(), &mut back));
        assert_eq!(back, [7; 24]);
        assert!(!memory.copy_in(runs(), &mut [0; 25]), "there is no more");
    }

    #[test]
    fn nothing_outside_of_it_is_reached() {
        let memory = both();
        for address in [0x1ff1, 0x2000, 0xfff8, 0x10ff1, u64::MAX - 4] {
            let run = || std::iter::once(Run { address, length: 16 });
            assert!(!memory.copy_in(run(), &mut [0; 16]), "{address:#x}");
            assert!(!memory.copy_out(run(), &[1; 16]), "{address:#x}");
            assert_eq!(memory.descriptor(address), None);
        }
    }

    #[test]
    fn a_file_that_is_too_short_and_runs_upon_each_other_are_refused() {
        let empty = Memory::default();
        assert!(matches!(empty.with(LOW, file(0x1fff)), Err(MemoryError::Short)));
        let far = SharedRegion { offset: u64::MAX, ..LOW };
        assert!(matches!(empty.with(far, file(0x2000)), Err(MemoryError::Addresses)));
        let upon = SharedRegion { guest: 0x1000, ..HIGH };
        assert!(matches!(both().with(upon, file(0x2000)), Err(MemoryError::Addresses)));
        let askew = SharedRegion { offset: 1, ..LOW };
        assert!(matches!(empty.with(askew, file(0x3000)), Err(MemoryError::System(_))));
    }

    #[test]
    fn what_was_shared_can_be_taken_back() {
        let memory = both().without(HIGH).expect("it was shared");
        assert_eq!((memory.guest_of(0x1000), memory.descriptor(0x10000)), (None, None));
        assert!(memory.guest_of(0x7000_0000).is_some());
        assert!(matches!(memory.without(HIGH), Err(MemoryError::Unknown)));
    }
}
