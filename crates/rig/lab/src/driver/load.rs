//! The load of a driver: requests of one kind, and how many of them are in flight at once.

use std::time::Instant;

use braid_engine::request::Operation;

use super::Driver;
use crate::random::Random;

/// The places on the array of a load's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Random, at multiples of the request's size.
    Random,
    /// One request after the other, and from the start again at the array's end.
    Sequential,
}

/// A number of requests of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The kind of request.
    pub operation: Operation,
    /// Sectors of each request.
    pub sectors: u32,
    /// The places of the requests.
    pub pattern: Pattern,
    /// Maximum of unanswered requests.
    pub depth: usize,
    /// Total number of requests.
    pub requests: u64,
}

/// Generates the places of a load's requests. Each turn of a contender continues where the last
/// turn ended.
#[derive(Debug)]
pub struct Places {
    random: Random,
    next: u64,
    slots: u64,
    pattern: Pattern,
    sectors: u64,
}

impl Places {
    /// The places on an array of this many sectors.
    #[must_use]
    pub fn new(load: &Load, capacity_sectors: u64, seed: u64) -> Self {
        let sectors = u64::from(load.sectors);
        let (slots, pattern) = (capacity_sectors / sectors, load.pattern);
        Self { random: Random::new(seed), next: 0, slots, pattern, sectors }
    }

    /// The first sector of the next request.
    pub fn advance(&mut self) -> u64 {
        let slot = match self.pattern {
            Pattern::Random => self.random.below(self.slots),
            Pattern::Sequential => {
                self.next = (self.next + 1) % self.slots;
                self.next
            }
        };
        slot * self.sectors
    }
}

impl Load {
    /// Runs the whole load. Returns the seconds from the first request to the last answer.
    ///
    /// # Panics
    /// If the driver has fewer payloads than requests at once, or stops answering.
    pub fn run(&self, driver: &mut Driver, places: &mut Places) -> f64 {
        let start = Instant::now();
        let (mut issued, mut answered) = (0, 0);
        while answered < self.requests {
            while issued < self.requests && issued - answered < self.depth as u64 {
                let Some(id) = driver.free_payload() else { break };
                driver.issue(id, self.operation, places.advance(), self.sectors);
                issued += 1;
            }
            let goes_on = driver.turn() || driver.expects_more();
            assert!(goes_on, "{} of {issued} requests are not answered", issued - answered);
            answered += driver.take_answered();
        }
        start.elapsed().as_secs_f64()
    }
}
