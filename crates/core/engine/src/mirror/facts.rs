//! Folds the work on an extent into the facts from which the next step is decided.

use braid_geometry::{MemberSector, Slot};
use braid_sim_hooks::{Bug, spoiled};
use smallvec::SmallVec;

use super::decide::{Facts, Range, Stage};
use super::machine::{Mirror, Work};
use crate::array::Gate;
use crate::context::Common;
use crate::effect::FaultKind;

impl Mirror {
    /// The facts of the work for the decision table, and the copy to read, if any.
    pub(super) fn facts(
        &self,
        common: &Common,
        work: &Work,
    ) -> (Facts, Option<(Slot, MemberSector)>) {
        let outstanding = work.outstanding > 0;
        let reads = work.stage == Stage::Read && !outstanding && !work.was_read;
        let copy = if reads { self.choose_copy(common, work) } else { None };
        let broken = common.view.gate == Gate::Broken;
        let missed = work.is_missed(common);
        let missed = spoiled(Bug::MirrorAnswersEarly, missed, missed && broken);
        let facts = Facts {
            stage: work.stage,
            outstanding,
            range: work.range,
            was_read: work.was_read,
            halves: work.halves,
            mendable: !work.failed.is_empty() && common.may_repair(),
            to_mend: work.range == Range::Locked && !work.to_mend(common).is_empty(),
            has_copy: copy.is_some(),
            intent: work.stage != Stage::Write || common.has_intent(work.extent.key),
            begun: work.begun,
            written: work.written > 0,
            missed,
            broken,
        };
        (facts, copy)
    }
}

impl Work {
    /// Whether a copy that missed the write still counts as good: the loss of its member is
    /// unrecorded.
    pub(super) fn is_missed(&self, common: &Common) -> bool {
        self.missed.iter().any(|(slot, member)| common.still_in(*slot, *member))
    }

    /// The slots of unreadable copies that a rewrite may mend; none if the array has begun to
    /// refuse writes while the work waited for the range. The client waits for the rewrite, so a
    /// copy on a member that sits out is left to a later read.
    pub(super) fn to_mend(&self, common: &Common) -> SmallVec<[Slot; 2]> {
        let may_help = |fault| fault == FaultKind::Media && common.may_repair();
        let bad = self.failed.iter().filter(|(_, fault)| may_help(*fault)).map(|(slot, _)| *slot);
        let is_there =
            |slot: &Slot| common.view.member(*slot).is_some() && !common.clocks.sits_out(*slot);
        bad.filter(is_there).collect()
    }
}
