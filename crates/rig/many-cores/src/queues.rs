//! Who holds which lock, and who waits for it.

use std::collections::{HashMap, VecDeque};

/// A lock's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Word {
    #[default]
    Free,
    Taken,
    /// And somebody may sleep.
    Wanted,
}

/// One lock.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    pub(crate) word: Word,
    pub(crate) sleepers: VecDeque<usize>,
}

/// All locks that were touched, by address.
#[derive(Debug, Default)]
pub(crate) struct Queues(HashMap<usize, Lock>);

impl Queues {
    pub(crate) fn lock(&mut self, address: usize) -> &mut Lock {
        self.0.entry(address).or_default()
    }
}
