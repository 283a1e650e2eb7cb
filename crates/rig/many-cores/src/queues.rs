//! The holder of each lock, and its waiters.

use std::collections::{HashMap, VecDeque};

/// The value of a lock's word, as in a futex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Word {
    #[default]
    Free,
    Taken,
    /// The lock is taken, and a thread may be asleep waiting for it.
    Wanted,
}

#[derive(Debug, Default)]
pub(crate) struct Lock {
    pub(crate) word: Word,
    pub(crate) sleepers: VecDeque<usize>,
}

/// All locks that were used, by address.
#[derive(Debug, Default)]
pub(crate) struct Queues(HashMap<usize, Lock>);

impl Queues {
    pub(crate) fn lock(&mut self, address: usize) -> &mut Lock {
        self.0.entry(address).or_default()
    }
}
