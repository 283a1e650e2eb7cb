//! Background work: in some runs shards compare bands while clients read and write, and disks fail.
//!
//! Parity fits the data whenever a band is compared: between two writes, around a failure, until
//! the array breaks. Conditions: no lies, in sync, no acknowledged write lost.
//!
//! # Invariants
//! - Work has exactly one result, at the latest when everything has settled
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].
//! - A comparison finds nothing where nothing can differ
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].

mod world;

use std::collections::BTreeMap;

use braid_engine::work::{Work, WorkId};

/// Work without a result yet.
#[derive(Debug, Default)]
pub(crate) struct Background {
    asked: BTreeMap<WorkId, Work>,
    next: u64,
    /// Fifths of the job's range that it has passed.
    passed: u64,
}

impl Background {
    /// Whether all work has its result.
    pub(crate) fn is_over(&self) -> bool {
        self.asked.is_empty()
    }
}
