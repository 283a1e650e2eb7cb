//! Folding a read, its band and the view into what its table decides by, and planning it.

use braid_geometry::Slot;
use braid_hooks::{Bug, spoiled};
use smallvec::SmallVec;

use super::super::damage::is_synced;
use super::super::known::Known;
use super::super::plan::{
    Need, Plan, Planner, StripeFacts, plan, plan_columns, plan_rest, plan_resync, plan_whole,
};
use super::decide::{Facts, Phase, Rest};
use super::machine::Around;
use super::read::{Column, Origin, Read, Want, holds};
use crate::array::MemberView;
use crate::work::{Task, Work};

impl Read {
    /// What is still to be done before background work is answered.
    fn rest(&self, is_behind: bool) -> Rest {
        let Some(Origin::Background(work)) = self.origin else { return Rest::Nothing };
        match work.task {
            _ if work.task.checks() && self.phase == Phase::Write => {
                let is_looked_at = self.work.check.is_again();
                let is_looked_at = spoiled(Bug::RepairUnverified, is_looked_at, true);
                let is_open = self.work.check.has_unverified() && !is_looked_at;
                if is_open { Rest::Look } else { Rest::Nothing }
            }
            _ if self.work.targets.is_empty() => Rest::Nothing,
            Task::Compare | Task::Repair | Task::Retry if self.work.is_remade => Rest::Writes,
            Task::Compare | Task::Repair | Task::Retry if is_behind => Rest::Behind,
            Task::Compare | Task::Repair | Task::Retry => Rest::Columns,
            Task::Resync if !self.work.is_remade => Rest::Parity,
            Task::Replace if is_behind => Rest::Behind,
            Task::Resync | Task::Recover | Task::Replace => Rest::Writes,
        }
    }

    fn known<'a>(&'a self, around: &'a Around<'_>, slot: Slot) -> Known<'a> {
        let (view, band) = (&*around.common.view, self.band());
        let Column { touched, valid, unreadable, .. } = *self.column(slot);
        Known {
            view,
            is_entire: around.entire.has(slot),
            is_synced: is_synced(view, band),
            is_consistent: !around.damage.is_inconsistent(band.key),
            band,
            slot,
            window: self.window,
            touched,
            valid,
            unreadable,
            tries_named: self.tries_named(),
        }
    }

    /// Whether it reads what bad-block logs name.
    fn tries_named(&self) -> bool {
        matches!(self.origin, Some(Origin::Background(Work { task: Task::Retry, .. })))
    }

    /// What is known of the stripe without the columns that are left out.
    #[inline]
    fn tell(
        &self,
        facts: &mut StripeFacts,
        around: &Around<'_>,
        is_left_out: impl Fn(Slot) -> bool,
    ) {
        let map = &self.map;
        let band_facts = self.known(around, map.p_slot());
        let facts_of = |slot: Slot| {
            let Column { touched, valid, unreadable, .. } = *self.column(slot);
            let is_entire = around.entire.has(slot);
            let known = Known { is_entire, slot, touched, valid, unreadable, ..band_facts };
            known.facts(is_left_out(slot))
        };
        facts.window = self.window;
        facts.data.extend((0..map.data_slots()).map(|index| facts_of(map.data_slot(index))));
        facts.p = facts_of(map.p_slot());
        facts.q = map.q_slot().map(facts_of);
        facts.is_write = false;
        facts.parity_agrees = around.damage.parity_solves(band_facts.view, self.band());
        facts.is_synced = band_facts.is_synced;
    }

    /// What it lacks it may lack in different places, so that a part of it can be had.
    fn is_divisible(&self, around: &Around<'_>) -> bool {
        let is_local = |slot: Slot| self.known(around, slot).lacks_some();
        self.slots().any(is_local) && self.client().run.cut(self.band()).is_some()
    }

    /// The read at a glance, for the decision table. For one that is being filled the planner has the plan, unless it goes
    /// on as was planned.
    #[inline]
    pub(super) fn facts(
        &self,
        around: &Around<'_>,
        planner: &mut Planner,
        (to_repair, is_behind): (bool, bool),
    ) -> Facts {
        let mut facts = Facts {
            outstanding: self.outstanding > 0,
            wanted: self.origin.is_some(),
            phase: self.phase,
            need: Need::Nothing,
            to_repair,
            rest: self.rest(is_behind),
            is_final: true,
        };
        planner.clear();
        let Some(origin) = self.origin else { return facts };
        if facts.outstanding || self.phase != Phase::Fill || self.is_filled(around) {
            return facts;
        }
        let plan = match origin {
            Origin::Client(want) => self.plan(around, &want, planner),
            Origin::Background(work) => self.plan_work(around, &work, planner),
        };
        facts.need = match (plan, origin) {
            (Some(plan), _) if plan.reads() > 0 => Need::Reads,
            (Some(_), _) => Need::Nothing,
            (None, Origin::Client(_)) if self.is_divisible(around) => Need::Less,
            (None, _) => Need::Impossible,
        };
        if let (Need::Less | Need::Impossible, Origin::Client(want)) = (facts.need, origin) {
            facts.is_final = want.insists || !self.slots().any(self.is_left_out(around));
        }
        facts
    }

    /// Whether all that was planned to be read was, and the plan still holds.
    fn is_filled(&self, around: &Around<'_>) -> bool {
        let view = &around.common.view;
        let agrees = || around.damage.parity_solves(view, self.band());
        self.filled.as_ref().is_some_and(|filled| filled.holds(view.epoch, agrees))
    }

    /// How background work goes on, if it can.
    fn plan_work<'a>(
        &self,
        around: &Around<'_>,
        work: &Work,
        planner: &'a mut Planner,
    ) -> Option<&'a Plan> {
        let sits_out = |slot: Slot| work.task.fills() && self.is_gone_around(around, slot);
        let tell = |facts: &mut StripeFacts| self.tell(facts, around, sits_out);
        planner.plan_by(tell, |facts| match work.task {
            Task::Compare | Task::Repair | Task::Retry => {
                let can_solve = !self.work.check.is_again() && self.is_whole(around);
                let rest = || can_solve.then(|| plan_rest(facts)).flatten();
                plan_whole(facts, true).or_else(rest)
            }
            Task::Resync => plan_resync(facts),
            Task::Recover => plan(facts),
            Task::Replace => self.plan_copy(facts).or_else(|| plan(facts)),
        })
    }

    /// Brings the columns that are to be copied into memory, if they can be read.
    fn plan_copy(&self, facts: &StripeFacts) -> Option<Plan> {
        plan_columns(facts, &self.map, |slot| self.is_target(slot))
    }

    /// Slots of which what is wanted can be copied as it is.
    pub(super) fn copied(&self, around: &Around<'_>) -> SmallVec<[Slot; 2]> {
        let mut facts = StripeFacts::blank();
        self.tell(&mut facts, around, |slot| self.is_gone_around(around, slot));
        let can_be = |slot: &Slot| plan_columns(&facts, &self.map, |one| one == *slot).is_some();
        self.work.targets.iter().map(|(slot, _)| *slot).filter(can_be).collect()
    }

    /// Whether background work that fills a member does without a column because its member sits out. Not where nobody wrote: there
    /// it holds other bytes than parity makes of it, and whoever takes its place is to hold the same.
    fn is_gone_around(&self, around: &Around<'_>, slot: Slot) -> bool {
        let may_be = is_synced(&around.common.view, self.band());
        let may_be = spoiled(Bug::UnsyncedGoneAround, may_be, true);
        may_be && around.common.clocks.sits_out(slot)
    }

    /// Whether each member is there, and holds the band as far as it can be read.
    fn is_whole(&self, around: &Around<'_>) -> bool {
        let (view, band) = (&around.common.view, self.band());
        let holds_it = |member: &MemberView| holds(member, band);
        self.slots().all(|slot| view.member(slot).is_some_and(holds_it))
    }

    /// By slot, whether a client's read does without a column, if it can: its member sits out, or is being written.
    fn is_left_out(&self, around: &Around<'_>) -> impl Fn(Slot) -> bool {
        let is_changing = around.is_changing(self.band());
        move |slot| around.common.clocks.sits_out(slot) || is_changing(slot)
    }

    /// How a client's read goes on, if it can.
    #[inline]
    fn plan<'a>(
        &self,
        around: &Around<'_>,
        want: &Want,
        planner: &'a mut Planner,
    ) -> Option<&'a Plan> {
        planner.plan(|facts| self.tell(facts, around, self.is_left_out(around)));
        if planner.planned().is_none() && want.insists {
            let is_changing = around.is_changing(self.band());
            planner.plan(|facts| self.tell(facts, around, is_changing));
        }
        planner.planned()
    }
}
