//! Moments too short for chance to meet: the array is just turning clean, or has just broken.
//!
//! Some runs, when their work is done, wait for a phase. When the array reaches that phase, the
//! faults that were held back happen, a few more requests come, and the run ends soon. This module
//! decides only the time; the plan decides which disks fail.

use braid_engine::request::ByteOperation;

use crate::chances::Purpose;
use crate::content::SECTOR;
use crate::coverage::Phase;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::world::{StepResult, World};

/// Percentage of runs that wait for a chosen phase, unless several disks fail at one step.
const PERCENT: u64 = 45;
/// Percentage of runs that wait for a chosen phase if several disks fail at one step.
const RUINED_PERCENT: u64 = 80;
/// Requests of a cycle are numbered. Numbers from here on are the requests in a chosen phase.
const FIRST_ORDINAL: u64 = 500;
const STEPS_MAX: u64 = 400;

/// The phase that a run waits for at its end, and how many requests and steps follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    phase: Phase,
    requests: u64,
    steps_after: u64,
}

impl Moment {
    /// Draws the moment that the planned run waits for, if any, and holds back some of its faults.
    pub(crate) fn any(world: &mut World) -> Option<Self> {
        let mut random = world.chances.of(Purpose::Ends, 2);
        let plan = &mut world.engine.plan;
        let percent = if plan.is_ruin { RUINED_PERCENT } else { PERCENT };
        if !random.chance(percent) {
            return None;
        }
        let phase = match random.below(8) {
            0..7 if plan.is_ruin => Phase::Broken,
            0..4 => Phase::Turning,
            4..6 => Phase::Active,
            _ => Phase::Clean,
        };
        // Faults with even numbers wait for the moment. Simultaneous failures (odd numbers) and
        // lies do not.
        let waits = |fault: &Fault| fault.ordinal.is_multiple_of(2) && !fault.is_lie();
        (plan.held, plan.faults) = std::mem::take(&mut plan.faults).into_iter().partition(waits);
        plan.held.retain(|fault| fault.mishap != Mishap::Wakes);
        Some(Self { phase, requests: random.below(6), steps_after: random.below(12) })
    }
}

impl World {
    /// Waits for the moment, then lets the held-back faults, requests and steps happen.
    pub(crate) fn seize(&mut self, moment: Moment) {
        let end = self.clock.step + STEPS_MAX;
        while self.engine.phase != moment.phase && self.clock.step < end {
            if self.step(false) == StepResult::Nothing {
                break;
            }
        }
        for fault in std::mem::take(&mut self.engine.plan.held) {
            self.befall(fault);
        }
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + moment.requests {
            self.ask_something(ordinal);
        }
        for _ in 0..moment.steps_after {
            self.step(false);
        }
    }

    /// Issues a request. Each kind is equally likely.
    fn ask_something(&mut self, ordinal: u64) {
        let mut random = self.chances.of(Purpose::Workload, ordinal);
        if self.chances.leaves_out(Kind::Request, ordinal) {
            return;
        }
        self.trace.label(self.chances.number(Kind::Request, ordinal));
        let capacity = self.geometry.capacity_sectors();
        let sectors = (1 + random.below(24)).min(capacity);
        let start = random.below(capacity - sectors + 1);
        let may_punch = random.chance(50);
        let durable = random.chance(50);
        let operation = match random.below(6) {
            0 => ByteOperation::Read,
            1 => ByteOperation::Write { durable: false },
            2 => ByteOperation::Write { durable: true },
            3 => ByteOperation::WriteZeroes { may_punch, fast: false, durable },
            4 => ByteOperation::Trim { durable },
            _ => {
                let _ = self.flush();
                return;
            }
        };
        let length = self.chances.length(sectors * SECTOR as u64);
        self.ask(operation, start * SECTOR as u64, length);
    }
}
