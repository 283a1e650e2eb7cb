//! The interface between doors and the array: a door serves a `Disk`, and other things that hold
//! bytes can stand in for the array.

use braid_ring::client::{ClientRequest, Completion};

use crate::extents::Extent;
use crate::volume::Volume;

/// A range of sectors that doors serve, with requests in bytes.
pub trait Disk: Send + Sync + 'static {
    /// The disk's size now. A change of the array's shape makes it larger or smaller.
    fn size_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// The unit in bytes that is best written as a whole.
    fn unit_bytes(&self) -> u64;

    /// Whether zeroing this range is faster than writing zeroes. The range need not be whole units.
    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        false
    }

    /// Holes and data of a range, in order, at most `runs_max` of them. The last one may end beyond
    /// the range.
    fn extents(&self, offset: u64, length: u64, runs_max: usize) -> Vec<Extent> {
        let _ = (offset, runs_max);
        vec![Extent { length_bytes: length, is_hole: false }]
    }

    /// Starts a request, and returns without waiting for other requests.
    fn submit(&self, request: ClientRequest, completion: Completion);
}

impl Disk for Volume {
    fn size_bytes(&self) -> u64 {
        self.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only()
    }

    fn unit_bytes(&self) -> u64 {
        self.unit_bytes()
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.zeroes_fast(offset, length)
    }

    fn extents(&self, offset: u64, length: u64, runs_max: usize) -> Vec<Extent> {
        self.extents(offset, length, runs_max)
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        self.submit(request, completion);
    }
}
