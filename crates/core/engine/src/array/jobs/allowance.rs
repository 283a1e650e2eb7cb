//! The allowance of a job, if a driver sets one.
//!
//! The driver keeps the time and knows clients' load; this file keeps only the rest of its last
//! allowance. A new allowance replaces the old one. So nothing adds up while a driver speaks often
//! and a job asks for little [check: an_allowance_takes_the_place_of_the_one_before].

use braid_sim_hooks::{Bug, planted};

use crate::work::{Class, Work};

/// How much a job may request of shards now. Sectors are those that the job counts
/// ([`super::JobProgress`]): of a recovery, sectors of each member that is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobAllowance {
    /// In class idle.
    pub idle_sectors: u64,
    /// Besides, in class best effort. Goes first.
    pub owed_sectors: u64,
}

/// Sectors that jobs requested in one class, and that came back, done or not, since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Requested.
    pub begun_sectors: u64,
    /// Come back.
    pub ended_sectors: u64,
}

/// The same for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFlow {
    /// Class idle.
    pub idle: Passed,
    /// Class best effort.
    pub owed: Passed,
}

impl JobFlow {
    pub(super) fn of(&mut self, class: Class) -> &mut Passed {
        match class {
            Class::Idle => &mut self.idle,
            Class::BestEffort => &mut self.owed,
        }
    }

    pub(super) fn begins(&mut self, work: &Work) {
        self.of(work.class).begun_sectors += u64::from(work.sectors);
    }
}

#[derive(Debug, Default)]
pub(super) struct Left {
    /// `None` without a driver that sets it: then there is no limit.
    left: Option<JobAllowance>,
}

impl Left {
    pub(super) fn set(&mut self, allowance: JobAllowance) {
        self.left = Some(allowance);
    }

    /// A job's allowance does not pass to the next job.
    pub(super) fn forget(&mut self) {
        self.left = self.left.map(|_| JobAllowance::default());
    }

    pub(super) fn is_some(&self) -> bool {
        self.left.is_none_or(|left| left != JobAllowance::default())
    }

    /// Takes so much, and returns the class. Work larger than the rest goes whole.
    pub(super) fn take(&mut self, sectors: u64) -> Class {
        let Some(left) = &mut self.left else { return Class::Idle };
        let (class, of) = match left.owed_sectors {
            0 => (Class::Idle, &mut left.idle_sectors),
            _ => (Class::BestEffort, &mut left.owed_sectors),
        };
        assert!(*of > 0, "nothing is asked for that is not allowed");
        *of = of.saturating_sub(sectors);
        if planted(Bug::AllowanceUnspent) {
            *of += sectors;
        }
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(idle_sectors: u64, owed_sectors: u64) -> JobAllowance {
        JobAllowance { idle_sectors, owed_sectors }
    }

    #[test]
    fn without_a_word_there_is_always_more_in_class_idle() {
        let mut left = Left::default();
        for _ in 0..3 {
            assert!(left.is_some());
            assert_eq!(left.take(1 << 40), Class::Idle);
        }
        left.forget();
        assert!(left.is_some());
    }

    #[test]
    fn an_allowance_takes_the_place_of_the_one_before() {
        let mut left = Left::default();
        left.set(allowance(64, 64));
        left.set(allowance(100, 8));
        assert_eq!(left.take(8), Class::BestEffort, "what is owed goes first");
        assert_eq!([left.take(64), left.take(64)], [Class::Idle; 2], "the last one whole");
        assert!(!left.is_some());
        left.set(allowance(64, 0));
        left.forget();
        assert!(!left.is_some(), "another job waits for its own");
    }
}
