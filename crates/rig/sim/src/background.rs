//! Background work: in some runs shards are asked to compare bands while clients read and write, and disks fail.
//!
//! Where nothing has lied, the array was in sync and no answered write was lost, parity is what the data makes it whenever
//! a band is compared: between two writes, around a failure, until the array breaks.
//!
//! # Invariants
//! - Work has one result, and has it when everything has settled [check: random_worlds_hold_and_meet_every_kind_of_fault].
//! - A comparison finds nothing where nothing can differ [check: random_worlds_hold_and_meet_every_kind_of_fault].

mod world;

use std::collections::BTreeMap;

use braid_engine::work::{Work, WorkId};

/// Work that has no result yet.
#[derive(Debug, Default)]
pub(crate) struct Background {
    asked: BTreeMap<WorkId, Work>,
    next: u64,
    /// Fifths of the job's way that it has passed.
    passed: u64,
}

impl Background {
    /// Whether all of it has its result.
    pub(crate) fn is_over(&self) -> bool {
        self.asked.is_empty()
    }
}
