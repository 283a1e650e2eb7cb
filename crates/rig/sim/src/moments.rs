//! Moments too short for chance to meet: the array is turning, or has just broken.
//!
//! In some runs the last of the work waits for a phase. When the array reaches it, the faults that
//! were held back happen, a few more requests come, and the run ends soon. Only the time is decided
//! here; the plan decides which disks fail.

use braid_engine::request::ByteOperation;

use crate::chances::Purpose;
use crate::content::SECTOR;
use crate::coverage::Phase;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::world::{StepResult, World};

/// Percentage of runs that wait for a moment, and of runs that break the array.
const PERCENT: u64 = 45;
const RUINED_PERCENT: u64 = 80;
/// First ordinal of its requests, behind those of the clients.
const FIRST_ORDINAL: u64 = 500;
const STEPS_MAX: u64 = 400;

/// The phase that the last of a run waits for, and how much follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    phase: Phase,
    requests: u64,
    steps_after: u64,
}

impl Moment {
    /// The moment of the planned run, if it waits for one; holds back some of the faults.
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
        // Every second fault waits; but not a simultaneous failure of all victims, and not lies.
        let waits = |fault: &Fault| fault.ordinal.is_multiple_of(2) && !fault.is_lie();
        (plan.held, plan.faults) = std::mem::take(&mut plan.faults).into_iter().partition(waits);
        plan.held.retain(|fault| fault.mishap != Mishap::Wakes);
        Some(Self { phase, requests: random.below(6), steps_after: random.below(12) })
    }
}

impl World {
    /// Waits for the moment, and then does the rest.
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

    /// A request of any kind, each equally often.
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
