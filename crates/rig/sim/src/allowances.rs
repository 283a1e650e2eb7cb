//! Job allowances: in some runs a driver grants a job few sectors at a time, and late.
//!
//! The simulator keeps its own count of the bytes that the driver granted, independent of the
//! engine's count.
//!
//! # Invariants
//! - A job asks for no more than its last allowance, in the class of that allowance, except for the
//!   end of one work item [check: random_worlds_hold_and_meet_every_kind_of_fault].
//! - A job ends however small and however late its allowances are
//!   [check: a_job_ends_however_little_it_is_allowed].

mod world;

use braid_engine::array::JobAllowance;

use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Allowances {
    random: Random,
    /// Average steps between two grants.
    one_in: u64,
    most_sectors: u64,
    /// The part of the last grant that jobs have not used, by class.
    left: JobAllowance,
}

impl Allowances {
    /// A driver that has granted nothing yet. The seed decides how small and how late its grants
    /// are.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let one_in = *random.pick(&[2, 10, 100]);
        let most_sectors = *random.pick(&[8, 40, 400]);
        Self { random, one_in, most_sectors, left: JobAllowance::default() }
    }
}
