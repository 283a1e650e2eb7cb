//! Background work: in some runs shards compare bands while clients read and write, and disks fail.
//!
//! A comparison must find that parity fits the data: between two writes, around a failure, until
//! the array breaks. The rule holds if no disk lies, redundancy was in sync, and no acknowledged
//! write was lost.
//!
//! # Invariants
//! - Work has exactly one result, at the latest when nothing is in flight any more
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].
//! - A comparison finds nothing where nothing can differ
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].

mod world;

use std::collections::BTreeMap;

use braid_engine::work::{Work, WorkId};

/// Work that the simulator requested from shards and that has no result yet.
#[derive(Debug, Default)]
pub(crate) struct Background {
    asked: BTreeMap<WorkId, Work>,
    next: u64,
    /// Fifths of its range that the running job has passed.
    passed: u64,
}

impl Background {
    /// Whether all work has its result.
    pub(crate) fn is_over(&self) -> bool {
        self.asked.is_empty()
    }
}
