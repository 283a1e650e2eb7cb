//! Jobs that may ask for little at a time: in some runs a driver says how much, in small portions, late.
//!
//! The simulator's own count of what was allowed stands beside the engine's.
//!
//! # Invariants
//! - A job asks for no more than its last allowance, in the class that it was allowed for, but for the end of one work
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].
//! - It ends however little that is, and however late [check: a_job_ends_however_little_it_is_allowed].

mod world;

use braid_engine::array::JobAllowance;

use crate::random::Random;

/// A driver that says how much a job may ask for.
#[derive(Debug)]
pub(crate) struct Allowances {
    random: Random,
    /// Steps from one word of it to the next, about.
    one_in: u64,
    /// Sectors that it allows at a time, at most.
    most_sectors: u64,
    /// What is left of the last one, by class.
    left: JobAllowance,
}

impl Allowances {
    /// One that allows as little, and as late, as the seed says; nothing yet.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let one_in = *random.pick(&[2, 10, 100]);
        let most_sectors = *random.pick(&[8, 40, 400]);
        Self { random, one_in, most_sectors, left: JobAllowance::default() }
    }
}
