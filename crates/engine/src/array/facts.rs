//! Folding the array into the small value that decisions are made from.

use braid_hooks::{Bug, spoiled};

use super::decide::{
    Activity, ArrayFacts, Caches, Closing as GateClosing, Round, Superblocks, Writes,
};
use super::jobs::{Ground, JobAction, decide_job};
use super::machine::{Array, Condition, Update};
use crate::Instant;

impl Array {
    pub(super) fn facts(&self, now: Instant) -> ArrayFacts {
        let Self { condition, closing, flushes, .. } = self;
        let is_whole = self.missing_count() == 0;
        let wakes_a_spare = self.roster.has_spares() && is_whole;
        ArrayFacts {
            unpublished: condition.unpublished,
            superblocks: self
                .update
                .as_ref()
                .map_or(Superblocks::Free, |update| self.stands(update)),
            caches: match self.flushing {
                None => Caches::Free,
                Some(purpose) if flushes.missing.is_empty() => Caches::Flushed(purpose),
                Some(purpose) => Caches::Flushing(purpose),
            },
            stopped: condition.stopped,
            writes: match () {
                () if condition.broken => Writes::Broken,
                () if condition.read_only => Writes::ReadOnly,
                () => Writes::Allowed,
            },
            on_disk: condition.on_disk,
            unrecorded: self.roster.has_unrecorded(),
            absent: condition.absent_unrecorded,
            write_wanted: condition.write_wanted,
            said_once: condition.said_once && !wakes_a_spare,
            flush_wanted: !flushes.queue.is_empty(),
            round: match () {
                () if flushes.written_back.is_empty() => Round::None,
                () if flushes.unwritten.is_empty() => Round::Over,
                () => Round::UnderWay,
            },
            closing: match &closing.unconfirmed {
                None => GateClosing::No,
                Some(shards) if shards.is_empty() => GateClosing::Drained,
                Some(_) => GateClosing::Draining,
            },
            idle: closing.idle && condition.on_disk == Activity::Active,
            stopping: condition.stopping,
            unsaved: condition.changes != condition.changes_recorded,
            replaces: self.roster.filled().is_some(),
            log_due: self.due_bad_blocks().next().is_some(),
            log_out: self.bad_logs.is_any_out(),
            job_flush: self.jobs.wants_flush(),
            job: self.job_action(now),
            has_job: self.jobs.is_there(),
            spare_fits: self.spare_fits(),
            last_flush_done: closing.last_flush_done,
            last_round: match () {
                () if !closing.last_round => Round::None,
                () if flushes.unwritten.is_empty() => Round::Over,
                () => Round::UnderWay,
            },
        }
    }

    fn job_action(&self, now: Instant) -> JobAction {
        let ground = self.ground();
        let has_unrecorded = self.condition.changes != self.condition.changes_recorded;
        decide_job(&self.jobs.facts(now, &ground, has_unrecorded))
    }

    /// What jobs look at.
    pub(super) fn ground(&self) -> Ground<'_> {
        let Self { geometry, setup, roster, condition, .. } = self;
        let may_save = !condition.read_only
            && !condition.broken
            && !condition.stopped
            && condition.on_disk != Activity::NotKept;
        let are_logs_settled =
            !self.bad_logs.is_any_out() && self.due_bad_blocks().next().is_none();
        let are_logs_settled = spoiled(Bug::LogsUnawaited, are_logs_settled, true);
        Ground {
            geometry,
            regions: setup.regions,
            work_sectors: setup.work_sectors,
            roster,
            resync_offset: condition.resync_offset,
            may_run: may_save && !condition.stopping,
            may_save,
            are_logs_settled,
        }
    }

    /// Whether a spare may take the place of a member that is missing, or is to be replaced.
    fn spare_fits(&self) -> bool {
        let Condition { stopping, absent_unrecorded, .. } = self.condition;
        let is_settled = !self.roster.has_unrecorded() && !absent_unrecorded && !stopping;
        is_settled && self.roster.has_due_spare() && !self.jobs.is_paused()
    }

    fn stands(&self, update: &Update) -> Superblocks {
        if !update.missing.is_empty() {
            return Superblocks::Out;
        }
        let is_broken = self.condition.broken;
        let targets = self.roster.superblock_targets(true).collect();
        let is_last = update.later.is_disjoint(&targets);
        // The lost member's own count must be passed: said once more.
        let is_behind = self.roster.has_unrecorded() && !self.events.are_beyond_the_lost();
        match () {
            () if !is_last && !is_broken => Superblocks::WaveDurable,
            // A member that holds data cannot be told, so nothing counts as recorded: a write that another member missed is
            // never answered well (I4).
            () if is_broken || is_behind || !self.roster.records_all() => Superblocks::Outdated,
            () => Superblocks::Durable,
        }
    }
}
