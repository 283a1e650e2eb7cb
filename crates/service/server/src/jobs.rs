//! Jobs of a served array: their state for queries ([`board`]) and over restarts ([`saved_jobs`]),
//! their API words ([`words`]), whether they may run, and the schedule of checks ([`schedule`]).

mod board;
mod saved_jobs;
mod schedule;
mod words;

pub(super) use board::{Board, JobsSnapshot, Sampler};
pub(super) use saved_jobs::{SavedJobs, path_of};
pub(super) use schedule::{Due, Schedule};
pub(super) use words::pace;
pub use words::run;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobsWhen {
    On,
    Paused,
}

impl JobsWhen {
    pub(super) const KEY: &str = "jobs";

    pub(super) const fn is_paused(self) -> bool {
        matches!(self, Self::Paused)
    }

    pub(super) const fn of(is_paused: bool) -> Self {
        if is_paused { Self::Paused } else { Self::On }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Paused => "paused",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let both = [Self::On, Self::Paused];
        let found = both.into_iter().find(|one| one.word() == text);
        found.ok_or_else(|| "it is on or paused".to_owned())
    }
}
