//! The world grants jobs allowances, and checks that jobs stay within them.

use braid_engine::array::JobAllowance;
use braid_engine::work::{Class, Work};

use super::Allowances;
use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::world::World;

/// Faults of a cycle are numbered. This is the number of the limit on jobs.
const FIRST_ORDINAL: u64 = 5000;

/// Percentage of runs in which a driver limits jobs.
const PERCENT: u64 = 40;

impl World {
    /// Adds a limit on jobs to the plan of a run of about `steps` steps from `now` on.
    pub(crate) fn plan_allowances(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Allowances, 0);
        if !random.chance(PERCENT) {
            return;
        }
        let step = now + *random.pick(&[0, steps / 8]);
        let mishap = Mishap::AllowsLittle { seed: random.next() };
        if !self.chances.leaves_out(Kind::Fault, FIRST_ORDINAL) {
            let fault = Fault { step, disk: 0, mishap, ordinal: FIRST_ORDINAL };
            self.engine.plan.faults.push(fault);
        }
    }

    /// From now on a driver limits jobs to small allowances. The first allowance is zero.
    pub(crate) fn allow_little(&mut self, seed: u64) {
        self.engine.allowances = Some(Allowances::new(seed));
        self.allow(JobAllowance::default());
    }

    /// In some steps the driver grants an allowance.
    pub(crate) fn allow_now_and_then(&mut self) {
        let Some(allowances) = &mut self.engine.allowances else { return };
        if allowances.random.below(allowances.one_in) == 0 {
            self.allow_some();
        }
    }

    /// Nothing but a grant can happen: the driver grants allowances. True if the job then asked for
    /// work.
    pub(crate) fn allow_at_last(&mut self) -> bool {
        let machines = &self.engine.machines;
        if self.engine.allowances.is_none() || machines.array.job().is_none() {
            return false;
        }
        let before = machines.array.job_flow();
        // A grant can be zero several times in a row.
        for _ in 0..10 {
            self.allow_some();
        }
        self.engine.machines.array.job_flow() != before
    }

    fn allow_some(&mut self) {
        let Some(allowances) = &mut self.engine.allowances else { return };
        let Allowances { random, most_sectors, .. } = allowances;
        let mut portion = || if random.chance(40) { 0 } else { 1 + random.below(*most_sectors) };
        let allowance = JobAllowance { idle_sectors: portion(), owed_sectors: portion() };
        self.allow(allowance);
    }

    fn allow(&mut self, allowance: JobAllowance) {
        let Some(allowances) = &mut self.engine.allowances else { return };
        allowances.left = allowance;
        let JobAllowance { idle_sectors, owed_sectors } = allowance;
        self.note("allowed", [idle_sectors, owed_sectors, 0]);
        self.engine.machines.array.handle_job_allowance(self.clock.now, allowance);
        self.drain_array();
    }

    /// Checks that the allowance covers a job's new work, and subtracts the work's sectors.
    pub(crate) fn check_allowed(&mut self, work: &Work) {
        let Some(allowances) = &mut self.engine.allowances else { return };
        let JobAllowance { idle_sectors, owed_sectors } = &mut allowances.left;
        let left = match work.class {
            Class::Idle => idle_sectors,
            Class::BestEffort => owed_sectors,
        };
        assert!(*left > 0, "{work:?} exceeds the allowance");
        *left = left.saturating_sub(u64::from(work.sectors));
        self.tally.count("work-allowed");
    }
}
