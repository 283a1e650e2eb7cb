//! Operations of a member for the array as a whole, kept so that the array need not wait for a
//! member that leaves.
//!
//! Superblocks, logs, bitmaps and flushes of a member that leaves the array have failed, whatever
//! the device does with them. They own their bytes, and may take as long as they like there.

use braid_engine::array::MetadataArea;
use smallvec::SmallVec;

use super::operation::Operation;
use crate::sync::Mutex;

/// An operation that the array asks of a member: one of each kind at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayOperation {
    Flush,
    Metadata(MetadataArea),
}

impl ArrayOperation {
    /// Whether it includes a flush: a bad-block log comes after a flush.
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

/// The operations in flight for the array, or that the member has left it.
#[derive(Default)]
pub(crate) struct ArrayOperations(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: SmallVec<[ArrayOperation; 2]>,
    has_left: bool,
}

impl ArrayOperations {
    /// An operation begins. False if the member has left: then it has failed.
    pub(crate) fn begin(&self, kind: ArrayOperation) -> bool {
        let mut state = self.0.lock().expect("noting does not panic");
        if !state.has_left {
            state.under_way.push(kind);
        }
        !state.has_left
    }

    /// An operation has ended at the device. False if the array no longer waits for it.
    pub(crate) fn end(&self, kind: ArrayOperation) -> bool {
        let mut state = self.0.lock().expect("noting does not panic");
        let place = state.under_way.iter().position(|one| *one == kind);
        place.map(|place| state.under_way.swap_remove(place)).is_some()
    }

    /// The member leaves the array. Returns the operations that fail by that.
    pub(crate) fn leave(&self) -> SmallVec<[ArrayOperation; 2]> {
        let mut state = self.0.lock().expect("noting does not panic");
        state.has_left = true;
        std::mem::take(&mut state.under_way)
    }

    /// Operations in flight that include a flush.
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
