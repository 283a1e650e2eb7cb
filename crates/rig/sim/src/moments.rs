//! Moments that pass too quickly for chance to meet: the array is turning, or has just broken.
//!
//! In some runs the last of the work waits for a phase: when the array comes to it, what was held
//! back of the faults happens, a few more requests are made, and the run ends soon. Only when is
//! decided here; who may come to harm is the plan's.

use braid_engine::request::ByteOperation;

use crate::chances::Purpose;
use crate::content::SECTOR;
use crate::coverage::Phase;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::world::{Did, World};

/// Runs, of a hundred, that wait for a moment; of those in which the array is to break.
const PERCENT: u64 = 45;
const RUINED_PERCENT: u64 = 80;
/// Ordinals of its requests: behind those of the clients.
const FIRST_ORDINAL: u64 = 500;
/// Steps that it is waited for.
const STEPS_MAX: u64 = 400;

/// When the last of a run happens, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    phase: Phase,
    requests: u64,
    steps_after: u64,
}

impl Moment {
    /// The moment of the run that is planned, if it waits for one; holds back some of the faults.
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
        // Every other one waits; who all fall at one step do not, and disks that lie have their time.
        let waits = |fault: &Fault| fault.ordinal.is_multiple_of(2) && !fault.is_lie();
        (plan.held, plan.faults) = std::mem::take(&mut plan.faults).into_iter().partition(waits);
        plan.held.retain(|fault| fault.mishap != Mishap::Wakes);
        Some(Self { phase, requests: random.below(6), steps_after: random.below(12) })
    }
}

impl World {
    /// Waits for the moment, and uses it.
    pub(crate) fn seize(&mut self, moment: Moment) {
        let end = self.clock.step + STEPS_MAX;
        while self.engine.phase != moment.phase && self.clock.step < end {
            if self.step(false) == Did::Nothing {
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

    /// A request of any kind: each as often as the others.
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
