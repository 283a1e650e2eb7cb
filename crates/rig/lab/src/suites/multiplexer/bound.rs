//! The limit of the arms: how much can be written if a given part of the reads is kept.
//!
//! Each member has one arm, which does one thing at a time. In the free-for-all the flusher has a
//! part *f* of the arms' time. Take a rule under which reads keep the part *k* of their rate, and
//! writes grow *x* times. The rule then takes
//! ```text
//!   k (1 - f) + x f  times what the free-for-all spends, has  m  times that, all arms being busy:
//!   x  ≤  ( m  -  k (1 - f) ) / f
//! ```
//! Three times the writes with 80 % of the reads need f ≤ (m - 0.8) / 2.2: one eleventh if the arms
//! are always busy. If writers have a larger part already, no rule can give them three times as
//! much.
//!
//! A rule that finds shorter movements of the arm beats this formula. So each side counts with the
//! least arm time for one of its works, over all rules that were run and over the side alone
//! ([`Cost`]). Only a shorter movement than any of these rules found would beat this bound. And no
//! rule gives writers more than they reach alone on the disks.

use super::world::Outcome;
use crate::disk::ArmPurpose;

#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) reads: f64,
    pub(super) writes: f64,
    reads_ns: f64,
    writes_ns: f64,
}

impl Cost {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            reads: outcome.files_read as f64,
            writes: outcome.works_written as f64,
            reads_ns: outcome.account.of(ArmPurpose::Reader).all_ns() as f64,
            writes_ns: outcome.account.writes_ns() as f64,
        }
    }

    pub(super) fn flushers_part(&self) -> f64 {
        self.writes_ns / (self.reads_ns + self.writes_ns).max(1.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    free: Cost,
    arms_ns: f64,
    /// The least arm time of one reader's work.
    read_ns: f64,
    write_ns: f64,
    /// The writes that writers reach alone.
    writes_alone: f64,
}

impl Bound {
    /// The bound relative to the free-for-all, from the costs of `runs`. `alone` is the cost with
    /// writers alone.
    pub(super) fn new(free: Cost, alone: Cost, runs: &[Cost], arms_ns: f64) -> Self {
        let least = |each: fn(&Cost) -> (f64, f64)| {
            let counted = runs.iter().map(each).filter(|(works, _)| *works >= WORKS_MIN);
            counted.map(|(works, took_ns)| took_ns / works).fold(f64::INFINITY, f64::min)
        };
        Self {
            free,
            arms_ns,
            read_ns: least(|cost| (cost.reads, cost.reads_ns)),
            write_ns: least(|cost| (cost.writes, cost.writes_ns)),
            writes_alone: alone.writes,
        }
    }

    /// The maximum growth of writes if the part `kept` of the reads is kept.
    pub(super) fn writes(&self, kept: f64) -> f64 {
        let left_ns = self.arms_ns - kept * self.free.reads * self.read_ns;
        let most = (left_ns / self.write_ns).min(self.writes_alone);
        most / self.free.writes.max(1.0)
    }
}

/// Minimum number of works for a cost: with fewer, one work that began during the warm-up would
/// matter.
const WORKS_MIN: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_the_writes_and_four_fifths_of_the_reads_need_one_eleventh() {
        for (part, writes) in [(1.0 / 11.0, 3.0), (0.2, 1.8), (0.5, 1.2)] {
            let free = Cost {
                reads: 10_000.0 * (1.0 - part),
                writes: 10_000.0 * part,
                reads_ns: 10_000.0 * (1.0 - part),
                writes_ns: 10_000.0 * part,
            };
            let alone = Cost { writes: 10_000.0, ..free };
            let bound = Bound::new(free, alone, &[free], 10_000.0);
            assert!((free.flushers_part() - part).abs() < 1e-9);
            assert!((bound.writes(0.8) - writes).abs() < 1e-9, "{}", bound.writes(0.8));
            assert!((bound.writes(1.0) - 1.0).abs() < 1e-9, "nothing is won for nothing");
            let slow = Cost { writes: 1.1 * free.writes, ..free };
            let bound = Bound::new(free, slow, &[free], 10_000.0);
            assert!(bound.writes(0.8) <= 1.1 + 1e-9, "no more than alone");
        }
    }
}
