//! A resync: it believes data, and rewrites differing or unreadable parity with parity of the data.

use braid_sim_hooks::{Mark, reached};

use super::super::plan::{Planner, Recipe, plan_resync};
use super::decide::RemainingWork;
use super::kind::{End, Kind, Steps, difference};
use super::machine::{Reconstruct, ReconstructContext, sits_out};
use super::read::Read;
use crate::computation::Computation;
use crate::work::{Outcome, Work};

/// The kind of read for [`crate::work::Task::Resync`].
pub(super) struct Resync(pub(super) Work);

impl Kind for Resync {
    fn plan(&self, read: &Read, context: &ReconstructContext<'_>, planner: &mut Planner) {
        read.plan_by(context, planner, plan_resync);
    }

    /// Solves for missing data, and compares. Unreadable parity is left out.
    fn compute(&self, steps: &mut Steps<'_>, _: &mut ReconstructContext<'_>, recipe: &Recipe) {
        let (map, window) = (steps.read.map, steps.read.window);
        steps.solve(recipe);
        let p = Some(map.p_slot()).filter(|slot| steps.read.is_read(*slot));
        let q = map.q_slot().filter(|slot| steps.read.is_read(*slot));
        window.extents().for_each(|extent| steps.compare((p, q), extent));
    }

    fn note_computed(&self, read: &mut Read, context: &ReconstructContext<'_>, done: &Computation) {
        if read.work.is_remade {
            return;
        }
        let (map, window, found) = (read.map, read.window, difference(done));
        if !found.p.union(found.q).is_empty() {
            reached(Mark::ParityDiffers);
        }
        read.work.found = found;
        let parity = [Some((map.p_slot(), found.p)), map.q_slot().map(|slot| (slot, found.q))];
        let targets = parity.into_iter().flatten().map(|(slot, differs)| {
            (slot, if read.is_read(slot) { differs.joined(window) } else { window })
        });
        let is_there = |slot| context.common.view.member(slot).is_some();
        let targets = targets.filter(|(slot, set)| !set.is_empty() && is_there(*slot));
        read.work.targets = targets.collect();
    }

    fn rest(&self, read: &Read, _: bool) -> RemainingWork {
        match (read.work.targets.is_empty(), read.work.is_remade) {
            (true, _) => RemainingWork::Nothing,
            (false, false) => RemainingWork::Columns,
            (false, true) => RemainingWork::Writes,
        }
    }

    fn mend(&self, steps: &mut Steps<'_>, context: &mut ReconstructContext<'_>) {
        reached(Mark::ParityRemade);
        if let Some(stripe) = context.pool.peek(steps.read.band().key) {
            context.pool.stripe_mut(stripe).forget_parity();
        }
        steps.parity(Read::is_target);
    }

    fn end(
        &self,
        reads: &mut Reconstruct,
        context: &mut ReconstructContext<'_>,
        place: u32,
        end: End,
    ) {
        match end {
            End::Answered => reads.end_written(context, place, &self.0),
            End::Refused => {
                let map = reads.reads[place as usize].map;
                let parity = [Some(map.p_slot()), map.q_slot()].into_iter().flatten();
                reads.report_unmade(context, (place, &self.0), parity);
                context.common.work_done(self.0.id, Outcome::Unmade { written: 0 });
            }
            End::Abandoned => sits_out(context, &self.0),
        }
    }
}
