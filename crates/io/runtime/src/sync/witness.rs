//! Watches each access to shared bytes: checks the arena's promise while a model runs.
//!
//! Place in the flow: a field of the arena's memory. In the product it has no size and does
//! nothing. Under a model checker it has a mark for each sector. If one of two accesses to a sector
//! writes, they must be ordered (loom) or must not overlap in time (shuttle).

#[cfg(not(any(loom, shuttle)))]
mod product {
    /// In the product the witness is empty.
    #[derive(Debug)]
    pub(crate) struct Witness;

    /// Held as long as an access lasts; empty in the product.
    pub(crate) struct AccessGuard;

    impl Witness {
        pub(crate) const fn new(_length_bytes: usize) -> Self {
            Self
        }

        pub(crate) const fn read(&self, _offset: usize, _length: usize) -> AccessGuard {
            AccessGuard
        }

        pub(crate) const fn write(&self, _offset: usize, _length: usize) -> AccessGuard {
            AccessGuard
        }
    }
}
#[cfg(not(any(loom, shuttle)))]
pub(crate) use product::*;

#[cfg(any(loom, shuttle))]
const MARK_BYTES: usize = 512;

#[cfg(any(loom, shuttle))]
fn marks(offset: usize, length: usize) -> std::ops::Range<usize> {
    offset / MARK_BYTES..(offset + length).div_ceil(MARK_BYTES)
}

#[cfg(shuttle)]
mod with_shuttle {
    use std::sync::{Arc, Mutex};

    /// For each sector: how many threads read it, or -1 while a thread writes it.
    #[derive(Debug)]
    pub(crate) struct Witness(Arc<Mutex<Vec<i32>>>);

    pub(crate) struct AccessGuard {
        marks: Arc<Mutex<Vec<i32>>>,
        range: std::ops::Range<usize>,
        change: i32,
    }

    impl Witness {
        pub(crate) fn new(length_bytes: usize) -> Self {
            Self(Arc::new(Mutex::new(vec![0; length_bytes.div_ceil(super::MARK_BYTES)])))
        }

        fn enter(&self, range: std::ops::Range<usize>, change: i32) -> AccessGuard {
            {
                let mut marks = self.0.lock().expect("marking does not panic");
                let is_free = |mark: &i32| if change > 0 { *mark >= 0 } else { *mark == 0 };
                let all_free = marks[range.clone()].iter().all(is_free);
                if all_free {
                    marks[range.clone()].iter_mut().for_each(|mark| *mark += change);
                }
                drop(marks);
                assert!(all_free, "two accesses to one sector at once, and one of them writes");
            }
            AccessGuard { marks: Arc::clone(&self.0), range, change }
        }

        pub(crate) fn read(&self, offset: usize, length: usize) -> AccessGuard {
            self.enter(super::marks(offset, length), 1)
        }

        pub(crate) fn write(&self, offset: usize, length: usize) -> AccessGuard {
            self.enter(super::marks(offset, length), -1)
        }
    }

    impl Drop for AccessGuard {
        fn drop(&mut self) {
            let mut marks = self.marks.lock().expect("marking does not panic");
            marks[self.range.clone()].iter_mut().for_each(|mark| *mark -= self.change);
        }
    }

    impl Drop for Witness {
        fn drop(&mut self) {
            let free = self.0.lock().expect("marking does not panic").iter().all(|mark| *mark == 0);
            assert!(free || std::thread::panicking(), "memory is freed while it is used");
        }
    }
}
#[cfg(shuttle)]
pub(crate) use with_shuttle::*;

#[cfg(loom)]
mod with_loom {
    use loom::cell::{ConstPtr, MutPtr, UnsafeCell};

    /// One cell for each sector; loom tracks which thread may touch it when.
    #[derive(Debug)]
    pub(crate) struct Witness(Vec<UnsafeCell<()>>);

    pub(crate) struct AccessGuard {
        _reads: Vec<ConstPtr<()>>,
        _writes: Vec<MutPtr<()>>,
    }

    impl Witness {
        pub(crate) fn new(length_bytes: usize) -> Self {
            let count = length_bytes.div_ceil(super::MARK_BYTES);
            Self((0..count).map(|_| UnsafeCell::new(())).collect())
        }

        pub(crate) fn read(&self, offset: usize, length: usize) -> AccessGuard {
            let cells = &self.0[super::marks(offset, length)];
            AccessGuard { _reads: cells.iter().map(UnsafeCell::get).collect(), _writes: Vec::new() }
        }

        pub(crate) fn write(&self, offset: usize, length: usize) -> AccessGuard {
            let cells = &self.0[super::marks(offset, length)];
            AccessGuard {
                _reads: Vec::new(),
                _writes: cells.iter().map(UnsafeCell::get_mut).collect(),
            }
        }
    }
}
#[cfg(loom)]
pub(crate) use with_loom::*;
