//! How a member makes zeroes: the kernel's operations, and those among them that it refused.
//!
//! Place in the flow: below `zero` of files and block devices, and below [`crate::Raw`] for callers
//! that submit directly. A refused operation is not tried again; if none is left, zeroes are
//! written.
//!
//! ```text
//!  may punch ──▶ punch a hole ──refused──▶ zero the range ──refused──▶ write
//!  may not ───────────────────────────────▶      "       ──refused──▶   "
//! ```
//!
//! Both kernel operations are `fallocate`, which on a block device (Linux 4.9) is `BLKZEROOUT` with
//! a flag that allows unmapping blocks. On a block device the kernel requires whole logical blocks.
//!
//! Invariant: zeroes are always made (`tests::what_is_refused_is_not_tried_again`,
//! `tests/contract.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// A kernel operation that makes zeroes without transferring data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroMethod {
    /// Gives the space back to the file system.
    PunchHole,
    /// Keeps the space allocated.
    ZeroRange,
}

impl ZeroMethod {
    /// The flags for fallocate(2); they keep the file's size.
    pub(crate) fn flags(self) -> FallocateFlags {
        let method = match self {
            Self::PunchHole => FallocateFlags::PUNCH_HOLE,
            Self::ZeroRange => FallocateFlags::ZERO_RANGE,
        };
        method | FallocateFlags::KEEP_SIZE
    }
}

/// Which operations a descriptor supports.
#[derive(Debug)]
pub(crate) struct ZeroMethods {
    punches: AtomicBool,
    zeroes_ranges: AtomicBool,
    /// Ranges must begin and end at multiples of this number of bytes.
    unit_bytes: u64,
}

impl ZeroMethods {
    pub(crate) fn new(unit_bytes: u64) -> Self {
        let possible = || AtomicBool::new(true);
        Self { punches: possible(), zeroes_ranges: possible(), unit_bytes }
    }

    fn flag(&self, method: ZeroMethod) -> &AtomicBool {
        match method {
            ZeroMethod::PunchHole => &self.punches,
            ZeroMethod::ZeroRange => &self.zeroes_ranges,
        }
    }

    pub(crate) fn has(&self, method: ZeroMethod) -> bool {
        self.flag(method).load(Ordering::Relaxed)
    }

    /// Remembers that a method is not supported.
    pub(crate) fn refuse(&self, method: ZeroMethod) {
        self.flag(method).store(false, Ordering::Relaxed);
    }

    /// The method to try next; `None` if zeroes must be written.
    pub(crate) fn next(&self, (start, length): (u64, u64), may_punch: bool) -> Option<ZeroMethod> {
        if !(start | length).is_multiple_of(self.unit_bytes) {
            return None;
        }
        let punches = may_punch && self.has(ZeroMethod::PunchHole);
        let zeroes = || self.has(ZeroMethod::ZeroRange).then_some(ZeroMethod::ZeroRange);
        punches.then_some(ZeroMethod::PunchHole).or_else(zeroes)
    }
}

/// Whether an error means that this method is not supported here, and that nothing has changed.
pub(crate) fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_not_tried_again() {
        let (methods, range) = (ZeroMethods::new(4096), (8192, 4096));
        assert_eq!(methods.next(range, true), Some(ZeroMethod::PunchHole));
        assert_eq!(methods.next(range, false), Some(ZeroMethod::ZeroRange));
        assert_eq!(methods.next((8192, 512), true), None, "less than a unit");
        assert_eq!(methods.next((512, 4096), true), None);
        methods.refuse(ZeroMethod::PunchHole);
        assert_eq!(methods.next(range, true), Some(ZeroMethod::ZeroRange));
        methods.refuse(ZeroMethod::ZeroRange);
        assert_eq!((methods.next(range, true), methods.next(range, false)), (None, None));
    }
}
