//! Operations of a member for the array as a whole, tracked so that the array need not wait for a
//! leaving member.
//!
//! Superblocks, logs, bitmaps and flushes of a member that leaves the array have failed, whatever
//! the device does with them. These operations own their bytes, and may stay at the device as long
//! as they like.

use braid_engine::array::MetadataArea;
use smallvec::SmallVec;

use super::operation::Operation;
use crate::sync::Mutex;

/// The kind of an operation that the array gives to a member. A member has at most one of each
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayOperation {
    Flush,
    Metadata(MetadataArea),
}

impl ArrayOperation {
    /// Whether the operation includes a flush. A write of the bad-block log does, since a flush
    /// precedes it.
    fn flushes(self) -> bool {
        matches!(self, Self::Flush | Self::Metadata(MetadataArea::BadBlocks))
    }

    /// The kind of an operation; `None` if it is not for the array as a whole.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Flush => Some(Self::Flush),
            Operation::Metadata { area, .. } => Some(Self::Metadata(*area)),
            Operation::Io(_) | Operation::Apart(_) | Operation::Look | Operation::Rejoin => None,
        }
    }
}

/// The operations in flight for the array, or the note that the member has left.
#[derive(Default)]
pub(crate) struct ArrayOperations(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: SmallVec<[ArrayOperation; 2]>,
    has_left: bool,
}

impl ArrayOperations {
    /// Notes that an operation begins. Returns false if the member has left, so that the operation
    /// has failed.
    pub(crate) fn begin(&self, kind: ArrayOperation) -> bool {
        let mut state = self.0.lock().expect("noting does not panic");
        if !state.has_left {
            state.under_way.push(kind);
        }
        !state.has_left
    }

    /// Notes that an operation has ended at the device. Returns false if the array no longer waits
    /// for the operation.
    pub(crate) fn end(&self, kind: ArrayOperation) -> bool {
        let mut state = self.0.lock().expect("noting does not panic");
        let place = state.under_way.iter().position(|one| *one == kind);
        place.map(|place| state.under_way.swap_remove(place)).is_some()
    }

    /// Notes that the member leaves the array. Returns the operations that fail because of that.
    pub(crate) fn leave(&self) -> SmallVec<[ArrayOperation; 2]> {
        let mut state = self.0.lock().expect("noting does not panic");
        state.has_left = true;
        std::mem::take(&mut state.under_way)
    }

    /// Number of operations in flight that include a flush.
    pub(crate) fn flushes(&self) -> u64 {
        let state = self.0.lock().expect("noting does not panic");
        state.under_way.iter().filter(|kind| kind.flushes()).count() as u64
    }

    pub(crate) fn has_left(&self) -> bool {
        self.0.lock().expect("noting does not panic").has_left
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_was_asked_fails_once_when_it_leaves() {
        let superblock = ArrayOperation::Metadata(MetadataArea::Superblock);
        let operations = ArrayOperations::default();
        assert!(operations.begin(ArrayOperation::Flush) && operations.begin(superblock));
        assert!(operations.end(ArrayOperation::Flush), "the array hears of it");
        assert_eq!(operations.leave().as_slice(), [superblock]);
        assert!(!operations.end(superblock), "it has failed already");
        assert!(!operations.begin(superblock) && operations.has_left());
        assert!(operations.leave().is_empty());
    }
}
