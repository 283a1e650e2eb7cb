//! The tally: how often each event and action happened.

use std::collections::BTreeMap;

/// Counts of one or many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Worlds created.
    pub worlds: u64,
    /// Ends of runs followed by assembly: crashes, kills and orderly stops.
    pub cycles: u64,
    /// Steps of all schedules.
    pub steps: u64,
    /// Client requests.
    pub requests: u64,
    /// Sectors that were read and compared with the model.
    pub sectors_checked: u64,
    /// Unflushed sectors that power cuts undid.
    pub sectors_undone: u64,
    /// All other faults and events, by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// States that were visited, by name, and how often.
    pub states: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    pub(crate) fn count_many(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    /// The count of the fault or event with this name.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.cycles += other.cycles;
        self.steps += other.steps;
        self.requests += other.requests;
        self.sectors_checked += other.sectors_checked;
        self.sectors_undone += other.sectors_undone;
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        for (name, count) in &other.states {
            *self.states.entry(name.clone()).or_default() += count;
        }
    }
}
