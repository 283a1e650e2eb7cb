//! Folding the array into the small value that decisions are made from.

use braid_hooks::{Bug, spoiled};

use super::caches::{CachesFacts, CachesStage, Round};
use super::consistency::{Awaiting, Consistency, ConsistencyGround};
use super::decide::ArrayFacts;
use super::jobs::{Ground, JobAction, UpkeepFacts, decide_job};
use super::machine::{Array, Condition, Kept, Update};
use super::order::{Activity, Closing as GateClosing, FlushPurpose, Writes};
use super::outbox::Outbox;
use super::superblocks::{SuperblocksFacts, SuperblocksStage};
use crate::Instant;

/// Borrows field by field, so that consistency itself may change meanwhile.
macro_rules! ground {
    ($array:expr) => {{
        let Condition { read_only, broken, stopped, .. } = $array.condition;
        let waits = |update: &&Update| !update.has_begun;
        let awaiting = $array.update.as_ref().filter(waits);
        ConsistencyGround {
            geometry: &$array.geometry,
            roster: &$array.roster,
            shards: $array.setup.regions.shards(),
            events: $array.events.count(),
            on_disk: $array.condition.on_disk,
            resync_offset: $array.condition.resync_offset,
            may_write: !read_only && !broken && !stopped,
            stopping: $array.condition.stopping,
            absent: $array.condition.absent_unrecorded,
            awaiting: awaiting
                .map(|update| Awaiting { events: update.state.events, news: update.news }),
            flushes_for_logs: $array.flushing == Some(FlushPurpose::Logs),
        }
    }};
}

impl Array {
    pub(super) fn facts(&self, now: Instant) -> ArrayFacts {
        let Self { condition, closing, flushes, .. } = self;
        let is_whole = self.missing_count() == 0;
        let wakes_a_spare = self.roster.has_spares() && is_whole;
        let round = |is_none: bool| match () {
            () if is_none => Round::None,
            () if flushes.unwritten.is_empty() => Round::Over,
            () => Round::UnderWay,
        };
        ArrayFacts {
            unpublished: self.out.is_unpublished(),
            writes: match () {
                () if condition.broken => Writes::Broken,
                () if condition.read_only => Writes::ReadOnly,
                () => Writes::Allowed,
            },
            on_disk: condition.on_disk,
            closing: match &closing.unconfirmed {
                None => GateClosing::No,
                Some(shards) if shards.is_empty() => GateClosing::Drained,
                Some(_) => GateClosing::Draining,
            },
            stopping: condition.stopping,
            stopped: condition.stopped,
            superblocks: SuperblocksFacts {
                stage: match &self.update {
                    None => SuperblocksStage::Free,
                    Some(update) => self.stands(update),
                },
                unrecorded: self.has_unrecorded(),
                absent: condition.absent_unrecorded,
                said_once: condition.said_once && !wakes_a_spare,
                unsaved: !self.tells_all(),
                write_wanted: condition.write_wanted,
                held_up: closing.is_held_up && closing.unconfirmed.is_some(),
                idle: closing.idle && condition.on_disk == Activity::Active,
            },
            caches: CachesFacts {
                stage: match self.flushing {
                    None => CachesStage::Free,
                    Some(purpose) if flushes.missing.is_empty() => CachesStage::Flushed(purpose),
                    Some(purpose) => CachesStage::Flushing(purpose),
                },
                flush_wanted: !flushes.queue.is_empty(),
                round: round(flushes.written_back.is_empty()),
                last_flush_done: closing.last_flush_done,
                last_round: round(!closing.last_round),
            },
            consistency: self.consistency.facts(now, &self.consistency_ground()),
            upkeep: UpkeepFacts {
                errs: self.has_erring(now),
                spare_fits: self.spare_fits(),
                replaces: self.roster.filled().is_some(),
                log_due: self.due_bad_blocks().next().is_some(),
                log_out: self.bad_logs.is_any_out(),
                job_flush: self.jobs.wants_flush(),
                job: self.job_action(now),
                has_job: self.jobs.is_there(),
            },
        }
    }

    /// Whether something is lost, a member or the bitmap file, and no superblock says so.
    pub(super) fn has_unrecorded(&self) -> bool {
        self.roster.has_unrecorded() || self.consistency.is_file_leaving()
    }

    fn job_action(&self, now: Instant) -> JobAction {
        let ground = self.ground();
        decide_job(&self.jobs.facts(now, &ground, !self.tells_all()))
    }

    /// What consistency looks at.
    pub(super) fn consistency_ground(&self) -> ConsistencyGround<'_> {
        ground!(self)
    }

    /// Consistency, what it looks at, and where it says what came of it.
    pub(super) fn consistency_and_ground(
        &mut self,
    ) -> (&mut Consistency, ConsistencyGround<'_>, &mut Outbox) {
        let ground = ground!(self);
        (&mut self.consistency, ground, &mut self.out)
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
            resync_end: setup.accepted_risk.as_ref().map_or(u64::MAX, |risk| risk.until_sectors),
            doubt: self.consistency.doubt().map(|doubt| &**doubt),
            lazy: self.consistency.lazy(),
            may_run: may_save && !condition.stopping,
            may_save,
            are_logs_settled,
        }
    }

    /// Whether a spare may take the place of a member that is missing, or is to be replaced.
    fn spare_fits(&self) -> bool {
        self.is_settled() && self.roster.has_due_spare() && !self.jobs.is_paused()
    }

    /// Whether superblocks tell of every loss, and the array goes on.
    pub(super) fn is_settled(&self) -> bool {
        let Condition { stopping, absent_unrecorded, .. } = self.condition;
        !self.has_unrecorded() && !absent_unrecorded && !stopping
    }

    fn stands(&self, update: &Update) -> SuperblocksStage {
        let is_broken = self.condition.broken;
        if !is_broken && self.consistency.holds_up(&self.consistency_ground()) {
            return SuperblocksStage::Behind;
        }
        if !update.missing.is_empty() {
            return SuperblocksStage::Out;
        }
        // The device of a journal that was to be made has failed, and no member says that it is there.
        let said = update.state.journal.map(|journal| journal.member);
        if said != self.consistency.journal_member() {
            return SuperblocksStage::Outdated;
        }
        let targets = self.roster.update_targets(true).collect();
        let is_last = update.later.is_disjoint(&targets);
        // The lost member's own count must be passed: said once more.
        let is_behind = self.roster.has_unrecorded() && !self.events.are_beyond_the_lost();
        match () {
            () if !is_last && !is_broken => SuperblocksStage::WaveDurable,
            // A member that holds data cannot be told, so nothing counts as recorded: a write that another member missed is
            // never answered well (I4).
            () if is_broken || is_behind || !self.roster.records_all() => {
                SuperblocksStage::Outdated
            }
            () if self.keeps_record && self.roster.has_unrecorded() => match update.kept {
                Kept::No => SuperblocksStage::Unkept,
                Kept::Asked => SuperblocksStage::Out,
                Kept::Done => SuperblocksStage::Durable,
            },
            () => SuperblocksStage::Durable,
        }
    }
}
