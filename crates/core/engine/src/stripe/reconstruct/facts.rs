//! Folds a read, its band and the view into facts for the decision table, and plans the read.

use braid_geometry::Slot;

use super::super::column_coverage::ColumnCoverage;
use super::super::damage::is_synced;
use super::super::plan::{Need, Plan, Planner, StripeFacts};
use super::decide::{Facts, Phase, RemainingWork};
use super::kind::{Kind, KindTraits};
use super::machine::ReconstructContext;
use super::read::{Column, Origin, Read};

impl Origin {
    #[inline]
    pub(super) fn traits(&self) -> KindTraits {
        by_kind!(self, kind => kind.traits())
    }
}

impl Read {
    pub(super) fn column_coverage<'a>(
        &'a self,
        context: &'a ReconstructContext<'_>,
        slot: Slot,
    ) -> ColumnCoverage<'a> {
        let (view, band) = (&*context.common.view, self.band());
        let Column { touched, valid, unreadable, .. } = *self.column(slot);
        ColumnCoverage {
            common: context.common,
            is_entire: context.entire.has(slot),
            is_synced: is_synced(view, band),
            is_consistent: !context.damage.is_inconsistent(band.key),
            band,
            slot,
            window: self.window,
            touched,
            valid,
            unreadable,
            tries_named: self.origin.is_some_and(|origin| origin.traits().tries_named),
        }
    }

    /// Fills in the facts for a plan, without the columns that are left out.
    #[inline]
    pub(super) fn tell(
        &self,
        facts: &mut StripeFacts,
        context: &ReconstructContext<'_>,
        is_left_out: impl Fn(Slot) -> bool,
    ) {
        let map = &self.map;
        let band_facts = self.column_coverage(context, map.p_slot());
        let facts_of = |slot: Slot| {
            let Column { touched, valid, unreadable, .. } = *self.column(slot);
            let is_entire = context.entire.has(slot);
            let coverage =
                ColumnCoverage { is_entire, slot, touched, valid, unreadable, ..band_facts };
            coverage.facts(is_left_out(slot))
        };
        facts.window = self.window;
        facts.data.extend((0..map.data_slots()).map(|index| facts_of(map.data_slot(index))));
        facts.p = facts_of(map.p_slot());
        facts.q = map.q_slot().map(facts_of);
        facts.is_write = false;
        facts.parity_agrees = context.damage.parity_solves(&band_facts.common.view, self.band());
        facts.is_synced = band_facts.is_synced;
    }

    /// Folds the read into facts for the decision table. In [`Phase::Fill`] the planner makes and
    /// keeps a plan, unless the read continues with its old plan.
    #[inline]
    pub(super) fn facts(
        &self,
        context: &ReconstructContext<'_>,
        planner: &mut Planner,
        (to_repair, is_behind): (bool, bool),
    ) -> Facts {
        let mut facts = Facts {
            outstanding: self.outstanding > 0,
            wanted: self.origin.is_some(),
            phase: self.phase,
            need: Need::Nothing,
            to_repair,
            rest: RemainingWork::Nothing,
            is_final: true,
        };
        planner.clear();
        let Some(origin) = self.origin else { return facts };
        facts.rest = by_kind!(origin, kind => kind.rest(self, is_behind));
        if facts.outstanding || self.phase != Phase::Fill || self.is_filled(context) {
            return facts;
        }
        by_kind!(origin, kind => kind.plan(self, context, planner));
        match planner.planned() {
            Some(plan) if plan.reads() > 0 => facts.need = Need::Reads,
            Some(_) => facts.need = Need::Nothing,
            None => {
                (facts.need, facts.is_final) =
                    by_kind!(origin, kind => kind.without_plan(self, context));
            }
        }
        facts
    }

    /// Whether all planned reads are in memory, and the plan still holds.
    fn is_filled(&self, context: &ReconstructContext<'_>) -> bool {
        let view = &context.common.view;
        let agrees = || context.damage.parity_solves(view, self.band());
        self.filled.as_ref().is_some_and(|filled| filled.holds(view.epoch, agrees))
    }

    /// Plans background work by the rule of its kind. A kind that fills members avoids members that
    /// sit out.
    pub(super) fn plan_by(
        &self,
        context: &ReconstructContext<'_>,
        planner: &mut Planner,
        rule: impl FnOnce(&StripeFacts) -> Option<Plan>,
    ) {
        let fills = self.origin.is_some_and(|origin| origin.traits().fills);
        let sits_out = |slot: Slot| fills && self.is_gone_around(context, slot);
        planner.plan_by(|facts| self.tell(facts, context, sits_out), rule);
    }

    /// Whether work that fills a member leaves out a column because that column's member sits out.
    /// False in sectors that no client has written: there the member's bytes may differ from what
    /// parity gives, and the filled member must fit the member's bytes.
    pub(super) fn is_gone_around(&self, context: &ReconstructContext<'_>, slot: Slot) -> bool {
        let may_be = is_synced(&context.common.view, self.band());
        may_be && context.common.clocks.sits_out(slot)
    }
}
