//! Folds the array's state into the facts from which the array decides.

use braid_sim_hooks::{Bug, spoiled};

use super::caches::Caches;
use super::consistency::{Consistency, ConsistencyContext};
use super::decide::ArrayFacts;
use super::fixed::Setup;
use super::jobs::{JobAction, JobsContext, UpkeepFacts, decide_job};
use super::machine::{Array, Condition};
use super::order::{Activity, Writes};
use super::outbox::Outbox;
use super::reshape::{ReshapeContext, ReshapeFacts};
use super::roster::Roster;
use super::superblocks::{StageFacts, Superblocks, SuperblocksFacts};
use crate::Instant;

impl Array {
    pub(super) fn facts(&self, now: Instant) -> ArrayFacts {
        let Self { condition, superblocks, gatekeeper, caches, .. } = self;
        let wakes_a_spare = self.roster.has_spares() && self.missing_count() == 0;
        let stage_facts = StageFacts {
            broken: condition.broken,
            is_held_up: self.consistency.holds_up(&self.consistency_context()),
            journal: self.consistency.journal_member(),
        };
        ArrayFacts {
            unpublished: self.out.is_unpublished(),
            writes: match () {
                () if condition.broken => Writes::Broken,
                () if condition.read_only => Writes::ReadOnly,
                () => Writes::Allowed,
            },
            on_disk: superblocks.on_disk(),
            closing: gatekeeper.closing(),
            stopping: condition.stopping,
            stopped: condition.stopped,
            superblocks: SuperblocksFacts {
                stage: superblocks.stage(&self.roster, stage_facts),
                unrecorded: self.has_unrecorded(),
                absent: superblocks.absent_untold(),
                said_once: superblocks.are_said_once() && !wakes_a_spare,
                unsaved: !self.tells_all(),
                write_wanted: gatekeeper.is_wanted(),
                held_up: gatekeeper.is_held_up(),
                idle: gatekeeper.is_idle() && superblocks.on_disk() == Activity::Active,
            },
            caches: caches.facts(),
            consistency: self.consistency.facts(now, &self.consistency_context()),
            upkeep: UpkeepFacts {
                errs: self.has_erring(now),
                spare_fits: self.spare_fits(now),
                replaces: self.roster.filled().is_some(),
                log_due: self.due_bad_blocks().next().is_some(),
                log_out: self.bad_logs.is_any_out(),
                job_flush: self.jobs.wants_flush(),
                job: self.job_action(now),
                has_job: self.jobs.is_there(),
            },
            reshape: self.reshape_facts(),
        }
    }

    /// Whether a member or the bitmap file is lost, and no superblock records it.
    pub(super) fn has_unrecorded(&self) -> bool {
        self.roster.has_unrecorded() || self.consistency.is_file_leaving()
    }

    fn reshape_facts(&self) -> ReshapeFacts {
        let Some(reshaper) = &self.reshaper else { return ReshapeFacts::default() };
        let Condition { read_only, broken, stopping, stopped, .. } = self.condition;
        let may_write = !read_only && !broken && !stopping && !stopped;
        let turns_later = self.pending_shape.is_turn() && reshaper.moves_before_turn();
        // The operator requested a turn: windows before the turn move even while jobs are paused.
        let is_kept = turns_later || !self.pending_shape.is_there() && !self.jobs.is_paused();
        let goes_on = may_write && self.is_settled() && is_kept;
        let is_recorded = self.tells_all();
        let is_recorded = spoiled(Bug::BorderAhead, is_recorded, true);
        let is_named = self.are_bad_logs_settled() && !self.has_unrecorded();
        let is_named = spoiled(Bug::LostUnawaited, is_named, true);
        reshaper.facts(ReshapeContext { goes_on, is_recorded, is_named, is_broken: broken })
    }

    fn job_action(&self, now: Instant) -> JobAction {
        let context = self.jobs_context();
        decide_job(&self.jobs.facts(now, &context, !self.tells_all()))
    }

    /// The part of the array's state that consistency reads.
    pub(super) fn consistency_context(&self) -> ConsistencyContext<'_> {
        let Self { setup, roster, superblocks, caches, condition, .. } = self;
        context(setup, roster, superblocks, caches, *condition)
    }

    /// Consistency, the array's state that consistency reads, and the outbox for its effects.
    pub(super) fn consistency_and_context(
        &mut self,
    ) -> (&mut Consistency, ConsistencyContext<'_>, &mut Outbox) {
        let Self { setup, roster, superblocks, caches, condition, consistency, out, .. } = self;
        (consistency, context(setup, roster, superblocks, caches, *condition), out)
    }

    pub(super) fn jobs_context(&self) -> JobsContext<'_> {
        let Self { setup, roster, condition, .. } = self;
        let may_save = !condition.read_only
            && !condition.broken
            && !condition.stopped
            && self.superblocks.on_disk() != Activity::NotKept;
        let are_logs_settled = self.are_bad_logs_settled();
        let are_logs_settled = spoiled(Bug::LogsUnawaited, are_logs_settled, true);
        JobsContext {
            geometry: &setup.geometry,
            regions: setup.regions,
            work_sectors: setup.work_sectors,
            roster,
            resync_offset: condition.resync_offset,
            resync_end: setup.accepted_risk.as_ref().map_or(u64::MAX, |risk| risk.until_sectors),
            doubt: self.consistency.doubt().map(|doubt| &**doubt),
            lazy: self.consistency.lazy(),
            // A reshape moves rows to other positions on members, so other jobs wait for its end.
            may_run: may_save
                && !condition.stopping
                && self.reshaper.is_none()
                && !self.pending_shape.is_there(),
            may_save,
            are_logs_settled,
        }
    }

    /// Whether a spare can fill a slot without a member, or replace a member.
    fn spare_fits(&self, now: Instant) -> bool {
        let is_kept = |slot| self.away.keeps(slot, now);
        self.reshaper.is_none()
            && !self.pending_shape.is_there()
            && self.is_settled()
            && self.roster.has_due_spare(is_kept)
            && !self.jobs.is_paused()
    }

    /// Whether each bad-block log names durably what it must name, and nothing else.
    fn are_bad_logs_settled(&self) -> bool {
        !self.bad_logs.is_any_out() && self.due_bad_blocks().next().is_none()
    }

    /// Whether superblocks record every loss, and the array is not stopping.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_unrecorded() && !self.superblocks.absent_untold() && !self.condition.stopping
    }
}

fn context<'a>(
    setup: &'a Setup,
    roster: &'a Roster,
    superblocks: &Superblocks,
    caches: &Caches,
    condition: Condition,
) -> ConsistencyContext<'a> {
    let Condition { resync_offset, read_only, broken, stopping, stopped } = condition;
    ConsistencyContext {
        geometry: &setup.geometry,
        roster,
        shards: setup.regions.shards(),
        events: superblocks.events(),
        on_disk: superblocks.on_disk(),
        resync_offset,
        may_write: !read_only && !broken && !stopped,
        stopping,
        absent: superblocks.absent_untold(),
        awaiting: superblocks.awaiting(),
        flushes_for_logs: caches.flush_for_logs(),
    }
}
