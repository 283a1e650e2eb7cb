//! Recovery and replacement: computes a band's missing columns from the other columns, and writes
//! them.
//!
//! A member is copied to its replacement. Unreadable columns are computed as in a recovery.

use braid_geometry::Slot;
use braid_sim_hooks::{Mark, reached};
use smallvec::SmallVec;

use super::super::band::Band;
use super::super::plan::{Planner, Recipe, StripeFacts, plan, plan_columns};
use super::decide::RemainingWork;
use super::kind::{End, Kind, KindTraits, Steps};
use super::machine::{Reconstruct, ReconstructContext, sits_out};
use super::read::{Origin, Read};
use crate::array::{ArrayView, MemberView};
use crate::work::{Outcome, Task, Work};

/// The kind of read for [`Task::Recover`] and [`Task::Replace`].
pub(super) struct Fill(pub(super) Work);

impl Fill {
    fn copies(&self) -> bool {
        self.0.task == Task::Replace
    }
}

impl Kind for Fill {
    fn traits(&self) -> KindTraits {
        let copies = self.copies();
        // A copy computes as little as possible from other columns.
        KindTraits { fills: true, copies, reads_in_parts: copies, ..KindTraits::default() }
    }

    /// For a recovery, the slots whose recovery offset lies before the band's end. Ranges ahead are
    /// recovered once more when their turn comes.
    fn targets(&self, view: &ArrayView, band: &Band) -> Option<SmallVec<[Slot; 2]>> {
        if self.copies() {
            return Some(view.slots_with_replacement().collect());
        }
        let lacks_it = |member: &MemberView| member.recovered_sectors < band.end().0;
        let slots = (0u16..).map(Slot).zip(&view.slots);
        let slots = slots.filter(|(_, member)| member.as_ref().is_some_and(lacks_it));
        Some(slots.map(|(slot, _)| slot).collect())
    }

    fn plan(&self, read: &Read, context: &ReconstructContext<'_>, planner: &mut Planner) {
        let copy = |facts: &StripeFacts| {
            let is_copied = |slot: Slot| read.is_target(slot);
            self.copies().then(|| plan_columns(facts, &read.map, is_copied)).flatten()
        };
        read.plan_by(context, planner, |facts| copy(facts).or_else(|| plan(facts)));
    }

    /// Solves for lost data, and computes the parity columns that were not read.
    fn compute(
        &self,
        steps: &mut Steps<'_>,
        context: &mut ReconstructContext<'_>,
        recipe: &Recipe,
    ) {
        steps.solve(recipe);
        let makes_parity = steps.parity(|read, slot| read.is_target(slot) && !read.is_read(slot));
        let makes = makes_parity || !recipe.solutions.is_empty();
        context.common.counters.reconstructions += u64::from(makes);
        if makes && self.copies() {
            reached(Mark::CopyIsMade);
        }
    }

    fn rest(&self, read: &Read, is_behind: bool) -> RemainingWork {
        match (read.work.targets.is_empty(), self.copies() && is_behind) {
            (true, _) => RemainingWork::Nothing,
            (false, true) => RemainingWork::Behind,
            (false, false) => RemainingWork::Writes,
        }
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
            // A member that sits out may supply the missing columns later.
            End::Refused if context.common.clocks.is_any_out() => sits_out(context, &self.0),
            End::Refused => self.cannot_make(reads, context, place),
            End::Abandoned => sits_out(context, &self.0),
        }
    }
}

impl Fill {
    /// Copies the columns that can be copied, if some cannot.
    fn cannot_make(
        &self,
        reads: &mut Reconstruct,
        context: &mut ReconstructContext<'_>,
        place: u32,
    ) {
        let read = &reads.reads[place as usize];
        let mut copied = SmallVec::<[Slot; 2]>::new();
        if self.copies() {
            let mut facts = StripeFacts::blank();
            read.tell(&mut facts, context, |slot| read.is_gone_around(context, slot));
            let can_be = |slot| plan_columns(&facts, &read.map, |one| one == slot).is_some();
            copied.extend(read.target_slots().filter(|slot| can_be(*slot)));
        }
        let slots = read.target_slots().filter(|slot| !copied.contains(slot));
        reads.report_unmade(context, (place, &self.0), slots);
        if copied.is_empty() {
            return context.common.work_done(self.0.id, Outcome::Unmade { written: 0 });
        }
        let read = &mut reads.reads[place as usize];
        read.origin = Some(Origin::Background(self.0));
        read.work.is_unmade = true;
        read.work.targets.retain(|(slot, _)| copied.contains(slot));
    }
}
