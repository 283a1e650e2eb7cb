//! What a member was asked for the array as a whole, so that the array need not wait for it.
//!
//! Superblocks, logs, bitmaps and flushes of a member that leaves the array have failed, whatever
//! becomes of them at the device. They own their bytes, and may take as long as they like there.

use braid_engine::array::MetadataArea;
use smallvec::SmallVec;

use super::operation::Operation;
use crate::sync::Mutex;

/// What the array asks of a member: one of each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedForArray {
    /// To be flushed.
    Flush,
    /// To write metadata.
    Metadata(MetadataArea),
}

impl AskedForArray {
    /// Whether the member is flushed by it: a bad-block log comes after a flush.
    fn flushes(self) -> bool {
        matches!(self, Self::Flush | Self::Metadata(MetadataArea::BadBlocks))
    }

    /// What an operation is; none if it is not for the array as a whole.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Flush => Some(Self::Flush),
            Operation::Metadata { area, .. } => Some(Self::Metadata(*area)),
            Operation::Io(_) | Operation::Apart(_) | Operation::Look | Operation::Rejoin => None,
        }
    }
}

/// What is under way for the array, or that the member has left it.
#[derive(Default)]
pub(crate) struct ForArray(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: SmallVec<[AskedForArray; 2]>,
    has_left: bool,
}

impl ForArray {
    /// Something begins. False if the member has left, and it has failed.
    pub(crate) fn begin(&self, asked: AskedForArray) -> bool {
        let mut state = self.0.lock().expect("noting does not panic");
        if !state.has_left {
            state.under_way.push(asked);
        }
        !state.has_left
    }

    /// It has ended at the device. False if the array does not wait for it any more.
    pub(crate) fn end(&self, asked: AskedForArray) -> bool {
        let mut state = self.0.lock().expect("noting does not panic");
        let place = state.under_way.iter().position(|one| *one == asked);
        place.map(|place| state.under_way.swap_remove(place)).is_some()
    }

    /// The member leaves the array. Gives what has failed by that.
    pub(crate) fn leave(&self) -> SmallVec<[AskedForArray; 2]> {
        let mut state = self.0.lock().expect("noting does not panic");
        state.has_left = true;
        std::mem::take(&mut state.under_way)
    }

    /// How much of what is under way flushes the member.
    pub(crate) fn flushes(&self) -> u64 {
        let state = self.0.lock().expect("noting does not panic");
        state.under_way.iter().filter(|asked| asked.flushes()).count() as u64
    }

    /// Whether it has left.
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
        let superblock = AskedForArray::Metadata(MetadataArea::Superblock);
        let asked = ForArray::default();
        assert!(asked.begin(AskedForArray::Flush) && asked.begin(superblock));
        assert!(asked.end(AskedForArray::Flush), "the array hears of it");
        assert_eq!(asked.leave().as_slice(), [superblock]);
        assert!(!asked.end(superblock), "it has failed already");
        assert!(!asked.begin(superblock) && asked.has_left());
        assert!(asked.leave().is_empty());
    }
}
