//! The allowance of a job, if a driver sets one.
//!
//! The driver keeps the time and measures clients' load; this file keeps only the unused part of
//! the driver's last allowance. A new allowance replaces the old one. So allowances that a driver
//! sets often do not add up [check: an_allowance_takes_the_place_of_the_one_before].

use braid_sim_hooks::{Bug, planted};

use crate::work::{Class, Work};

/// The sectors that a job may request of shards now. The unit is that of [`super::JobProgress`]:
/// for a recovery, sectors of each member that is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobAllowance {
    /// Sectors to request in class idle.
    pub idle_sectors: u64,
    /// Further sectors, to request in class best effort. The job uses these first.
    pub owed_sectors: u64,
}

/// Sectors that jobs have requested in one class since the array was opened, and how many of these
/// shards have worked off, done or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFlow {
    /// Sectors that jobs requested.
    pub begun_sectors: u64,
    /// Requested sectors that shards have worked off, done or not.
    pub ended_sectors: u64,
}

/// The sectors that jobs requested and shards worked off, in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFlow {
    /// Class idle.
    pub idle: ClassFlow,
    /// Class best effort.
    pub owed: ClassFlow,
}

impl JobFlow {
    pub(in super::super) fn of(&mut self, class: Class) -> &mut ClassFlow {
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
pub(in super::super) struct RemainingAllowance {
    /// The unused part of the last allowance; `None` if the driver sets none: then there is no
    /// limit.
    rest: Option<JobAllowance>,
}

impl RemainingAllowance {
    pub(in super::super) fn set(&mut self, allowance: JobAllowance) {
        self.rest = Some(allowance);
    }

    /// Forgets the allowance at a job's end: it does not pass to the next job.
    pub(super) fn forget(&mut self) {
        self.rest = self.rest.map(|_| JobAllowance::default());
    }

    /// The unused sectors of the allowance; `None` without a limit.
    pub(in super::super) fn sectors(&self) -> Option<u64> {
        self.rest.map(|rest| rest.idle_sectors.saturating_add(rest.owed_sectors))
    }

    pub(in super::super) fn is_some(&self) -> bool {
        self.rest.is_none_or(|rest| rest != JobAllowance::default())
    }

    /// Takes `sectors` from the allowance, and returns their class. A work larger than the
    /// allowance's rest is allowed whole.
    pub(in super::super) fn take(&mut self, sectors: u64) -> Class {
        let Some(rest) = &mut self.rest else { return Class::Idle };
        let (class, of) = match rest.owed_sectors {
            0 => (Class::Idle, &mut rest.idle_sectors),
            _ => (Class::BestEffort, &mut rest.owed_sectors),
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
        let mut rest = RemainingAllowance::default();
        for _ in 0..3 {
            assert!(rest.is_some());
            assert_eq!(rest.take(1 << 40), Class::Idle);
        }
        rest.forget();
        assert!(rest.is_some());
    }

    #[test]
    fn an_allowance_takes_the_place_of_the_one_before() {
        let mut rest = RemainingAllowance::default();
        rest.set(allowance(64, 64));
        rest.set(allowance(100, 8));
        assert_eq!(rest.take(8), Class::BestEffort, "what is owed goes first");
        assert_eq!([rest.take(64), rest.take(64)], [Class::Idle; 2], "the last one whole");
        assert!(!rest.is_some());
        rest.set(allowance(64, 0));
        rest.forget();
        assert!(!rest.is_some(), "another job waits for its own");
    }
}
