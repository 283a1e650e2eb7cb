//! The process's memory from which payloads are carved, in slabs that rings register.
//!
//! The kernel looks up and pins the pages of an operation's memory each time, unless the memory was
//! registered with the ring. So payloads of up to a slab come out of one arena. A ring registers
//! each slab of the arena on first use, under the slab's own number.
//!
//! ```text
//!  arena │ slab 0: 64 KiB │ slab 1: 8 KiB │ slab 2: 64 KiB │ slab 3: no size yet │ ...
//!          of one size each; two MiB, one huge page if the system has any
//! ```
//!
//! A carved slab keeps its payload size for good and is never given back to the system. Otherwise a
//! page could become two: a page pinned by a ring, and a page mapped by the process. Payloads that
//! find no room, or are too short to gain from a name, come from the allocator, unregistered.
//!
//! Invariants
//! - No two payloads share a byte: `what_is_carved_is_apart_and_within_one_slab`.
//! - The arena stays at its address until the process ends: it is leaked.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::region::Region;

/// The default size of the process's memory for payloads; [`crate::set_payload_memory`] changes it.
pub const PAYLOAD_MEMORY_BYTES: usize = 192 << 20;

/// Bytes of a slab: a huge page.
pub(crate) const SLAB_BYTES: usize = 2 << 20;

/// Minimum bytes of a payload that the ring names by number: pinning one page costs the kernel no
/// more than looking a name up. Shorter payloads are not carved, so that a flood of them leaves the
/// slabs to longer ones.
pub(crate) const NAMED_BYTES_MIN: usize = 8 << 10;

/// Maximum number of slabs of any arena. The memory of all slabs is taken only once so many are in
/// use at the same time.
pub(crate) const SLABS: usize = 64;

/// Maximum number of slabs of the process's arena.
static SLABS_MAX: AtomicUsize = AtomicUsize::new(PAYLOAD_MEMORY_BYTES / 3 / SLAB_BYTES);

/// Sets the maximum size of the process's arena. Memory that is carved already stays.
pub(crate) fn set_bytes_max(bytes: usize) {
    SLABS_MAX.store((bytes / SLAB_BYTES).min(SLABS), Ordering::Relaxed);
}

pub(crate) struct Arena {
    region: Region,
    /// Where the first slab begins in the region.
    offset_bytes: usize,
    /// Number of slabs for which addresses are reserved.
    slabs: usize,
    carving: Mutex<Carving>,
}

struct Carving {
    /// Number of slabs that have a payload size.
    used: usize,
    /// For each size, as a power of two: the slab being carved, and the start of its unused part.
    open: [Option<(usize, usize)>; SLAB_BYTES.trailing_zeros() as usize + 1],
}

static ARENA: OnceLock<Option<Arena>> = OnceLock::new();

impl Arena {
    /// The process's arena; `None` if the process has too few addresses for it.
    pub(crate) fn of_process() -> Option<&'static Self> {
        ARENA.get_or_init(|| Self::new(SLABS_MAX.load(Ordering::Relaxed))).as_ref()
    }

    fn new(slabs: usize) -> Option<Self> {
        assert!(slabs <= SLABS, "rings have room for so many");
        let region = Region::reserve((slabs + 1) * SLAB_BYTES).ok()?;
        let start = region.as_non_null().as_ptr().addr();
        let offset_bytes = start.next_multiple_of(SLAB_BYTES) - start;
        let carving = Mutex::new(Carving { used: 0, open: [None; _] });
        Some(Self { region, offset_bytes, slabs, carving })
    }

    /// Zeroed memory of this size, never handed out before; `None` when the arena is full. Panics
    /// if the size is no power of two, or more than a slab.
    pub(crate) fn carve(&self, size_bytes: usize) -> Option<NonNull<u8>> {
        assert!(size_bytes.is_power_of_two() && size_bytes <= SLAB_BYTES, "a size that slabs have");
        let mut carving = self.carving.lock().unwrap_or_else(PoisonError::into_inner);
        let class = size_bytes.trailing_zeros() as usize;
        let (slab, rest) = match carving.open[class] {
            Some(open) => open,
            None if carving.used < self.slabs.min(SLABS_MAX.load(Ordering::Relaxed)) => {
                carving.used += 1;
                (carving.used - 1, 0)
            }
            None => return None,
        };
        let is_full = rest + size_bytes == SLAB_BYTES;
        carving.open[class] = (!is_full).then_some((slab, rest + size_bytes));
        drop(carving);
        NonNull::new(self.slab(slab).as_ptr().wrapping_add(rest))
    }

    /// The address of a slab. Panics if the number is too large.
    pub(crate) fn slab(&self, slab: usize) -> NonNull<u8> {
        assert!(slab <= self.slabs, "a slab of the arena, or its end");
        let start = self.region.as_non_null().as_ptr();
        NonNull::new(start.wrapping_add(self.offset_bytes + slab * SLAB_BYTES))
            .expect("inside a mapping, which is never at address zero")
    }

    pub(crate) fn holds(&self, start: *const u8) -> bool {
        self.slab_of(start, 0).is_some()
    }

    /// The slab that holds these bytes, if a single one does.
    pub(crate) fn slab_of(&self, start: *const u8, length_bytes: usize) -> Option<usize> {
        let offset = start.addr().checked_sub(self.slab(0).as_ptr().addr())?;
        let slab = offset / SLAB_BYTES;
        let is_inside = slab < self.slabs && offset % SLAB_BYTES + length_bytes <= SLAB_BYTES;
        is_inside.then_some(slab)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    /// The number of slabs with the default setting.
    const FEW: usize = PAYLOAD_MEMORY_BYTES / 3 / SLAB_BYTES;

    #[test]
    fn what_is_carved_is_apart_and_within_one_slab() {
        let arena = Arena::new(FEW).expect("so many addresses");
        let sizes = [4096, 8192, 1 << 20, SLAB_BYTES, 65536];
        let mut carved: Vec<(usize, usize)> = Vec::new();
        for size in sizes.into_iter().cycle() {
            let Some(start) = arena.carve(size) else { break };
            let slab = arena.slab_of(start.as_ptr(), size).expect("within one");
            assert!(start.as_ptr().addr().is_multiple_of(size.min(4096)) && slab < FEW);
            assert!(arena.holds(start.as_ptr()));
            carved.push((start.as_ptr().addr(), size));
        }
        carved.sort_unstable();
        assert!(carved.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        // A size that has a partly carved slab still gets memory when the other sizes find no slab.
        assert!(arena.carve(4096).is_some() && arena.carve(SLAB_BYTES).is_none());
    }

    #[test]
    fn other_memory_is_in_no_slab() {
        let arena = Arena::new(FEW).expect("so many addresses");
        let (first, last) = (arena.slab(0).as_ptr(), arena.slab(FEW - 1).as_ptr());
        assert!(!arena.holds(first.wrapping_sub(1)) && !arena.holds(last.wrapping_add(SLAB_BYTES)));
        assert!(!arena.holds([0_u8; 8].as_ptr()));
        assert_eq!(arena.slab_of(first.wrapping_add(SLAB_BYTES - 4), 8), None, "in two");
        assert_eq!(arena.slab_of(last, SLAB_BYTES), Some(FEW - 1));
    }
}
