//! Folding the array into the small value that decisions are made from.

use braid_hooks::{Bug, spoiled};

use super::consistency::{
    Changing, Intent, IntentAction, IntentGround, Journal, LogAction, LogChange, LogWish, News,
    ParityLogs, decide_intent, decide_journal, decide_log,
};
use super::decide::{
    Activity, ArrayFacts, Caches, Closing as GateClosing, FlushPurpose, Round, Superblocks, Writes,
};
use super::jobs::{Ground, JobAction, decide_job};
use super::machine::{Array, Condition, Kept, Update};
use crate::Instant;
use crate::ids::MemberId;
use smallvec::SmallVec;

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
            unrecorded: self.has_unrecorded(),
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
            held_up: closing.is_held_up && closing.unconfirmed.is_some(),
            idle: closing.idle && condition.on_disk == Activity::Active,
            stopping: condition.stopping,
            unsaved: !self.tells_all(),
            tail_unsaid: self.journal.as_ref().is_some_and(Journal::has_unsaid),
            replaces: self.roster.filled().is_some(),
            log_due: self.due_bad_blocks().next().is_some(),
            log_out: self.bad_logs.is_any_out(),
            job_flush: self.jobs.wants_flush(),
            job: self.job_action(now),
            has_job: self.jobs.is_there(),
            intent: self.intent_action(now),
            bitmap_out: self.intent.as_ref().is_some_and(Intent::is_out),
            bitmap_change: self.bitmap_change.is_wanted(),
            bitmap_left: self.is_bitmap_left(),
            log_change: self.log_changing(),
            parity_logs: self.log_action(),
            parity_logs_out: self.are_logs_out(),
            spare_fits: self.spare_fits(),
            errs: self.has_erring(now),
            last_flush_done: closing.last_flush_done,
            last_round: match () {
                () if !closing.last_round => Round::None,
                () if flushes.unwritten.is_empty() => Round::Over,
                () => Round::UnderWay,
            },
        }
    }

    /// Whether something is lost, a member or the bitmap file, and no superblock says so.
    pub(super) fn has_unrecorded(&self) -> bool {
        self.roster.has_unrecorded() || self.is_file_leaving()
    }

    /// Whether the bitmap file is written no more, whatever superblocks say yet.
    pub(super) fn is_file_out(&self) -> bool {
        let change = &self.bitmap_change;
        self.bitmap_file.is_some() && (change.is_leaving() || change.is_left())
    }

    /// Whether the bitmap file is written no more, and superblocks do not count beyond it yet.
    pub(super) fn is_file_leaving(&self) -> bool {
        self.bitmap_file.is_some() && self.bitmap_change.is_leaving()
    }

    fn job_action(&self, now: Instant) -> JobAction {
        let ground = self.ground();
        decide_job(&self.jobs.facts(now, &ground, !self.tells_all()))
    }

    fn intent_action(&self, now: Instant) -> IntentAction {
        let Some(intent) = &self.intent else { return IntentAction::Wait };
        let is_awaited = self.update.as_ref().is_some_and(|update| self.is_behind(update));
        decide_intent(&intent.facts(now, &self.intent_ground(), is_awaited))
    }

    /// Whether no superblock names the bitmap any more, and nobody is at work on it, nor on logs in the file that it is in.
    fn is_bitmap_left(&self) -> bool {
        let is_at_work = self.intent.as_ref().is_some_and(Intent::is_at_work);
        let has_logs = self.bitmap_file.is_some() && self.parity_logs.is_some();
        self.bitmap_change.is_left() && !is_at_work && !has_logs
    }

    fn log_changing(&self) -> Changing {
        let logs = || self.parity_logs.as_ref().expect("logs are given up that there are");
        match &self.log_change {
            LogChange::Settled => Changing::No,
            LogChange::Wanted(wish) => {
                Changing::Wanted { makes: !matches!(wish, LogWish::Nothing) }
            }
            LogChange::Made | LogChange::GivenUp => Changing::UnderWay,
            LogChange::JournalMade { .. } | LogChange::JournalGivenUp => Changing::UnderWay,
            LogChange::Left if logs().is_out() || self.flushing == Some(FlushPurpose::Logs) => {
                Changing::UnderWay
            }
            // A file that could not be written is believed no more, and not asked again.
            LogChange::Left if self.is_file_out() => Changing::Over,
            LogChange::Left => {
                let is_over = logs().are_wiped_out(self.intent_targets().into_iter());
                let is_over = spoiled(Bug::LogHeadLeft, is_over, true);
                if is_over { Changing::Over } else { Changing::ToWipe }
            }
        }
    }

    fn log_action(&self) -> LogAction {
        let lacks = self.update.as_ref().is_some_and(|update| self.lacks_logs(update));
        if let Some(journal) = &self.journal {
            return decide_journal(&journal.facts(lacks));
        }
        let Some(logs) = &self.parity_logs else { return LogAction::Wait };
        decide_log(&logs.facts(lacks, self.has_unrecorded()))
    }

    fn are_logs_out(&self) -> bool {
        let is_journal_out = self.journal.as_ref().is_some_and(Journal::is_out);
        is_journal_out || self.parity_logs.as_ref().is_some_and(ParityLogs::is_out)
    }

    /// Whether an update waits for the partial parity logs of members that come, or for the block that it calls the journal's tail.
    fn lacks_logs(&self, update: &Update) -> bool {
        if let Some(journal) = &self.journal {
            return !update.has_begun && journal.lacks();
        }
        let lacks = |logs: &ParityLogs| logs.lacks(self.intent_targets().into_iter(), update.news);
        let is_waited_for = !update.has_begun && !self.log_change.is_leaving();
        let is_made = self.log_change.is_made();
        let is_waited_for = spoiled(Bug::LogNamedUnmade, is_waited_for, is_waited_for && !is_made);
        is_waited_for && self.parity_logs.as_ref().is_some_and(lacks)
    }

    /// What an update is about, as far as parity logs go.
    pub(super) fn news_of(&self, becomes: Activity) -> News {
        let Condition { on_disk, resync_offset, .. } = self.condition;
        let was_drained = on_disk == Activity::Clean || becomes == Activity::Clean;
        let is_made = self.log_change.is_made();
        let was_drained = spoiled(Bug::LogJoinsUndrained, was_drained, was_drained || is_made);
        match was_drained {
            true => News::Drained { in_sync: resync_offset == u64::MAX },
            false => News::Other,
        }
    }

    /// What the bitmap looks at.
    pub(super) fn intent_ground(&self) -> IntentGround {
        let Self { roster, condition, .. } = self;
        let Condition { read_only, broken, stopped, absent_unrecorded, .. } = *condition;
        let is_whole = self.missing_count() == 0 && roster.recovering().next().is_none();
        let may_write = !read_only && !broken && !stopped;
        let is_leaving = self.is_file_out();
        let is_leaving = spoiled(Bug::FileWrittenOn, is_leaving, false);
        IntentGround {
            events: self.events.count(),
            may_clear: is_whole && may_write && !absent_unrecorded && !self.has_unrecorded(),
            has_unrecorded: self.has_unrecorded(),
            is_leaving,
            takes_writes: condition.on_disk == Activity::Active,
            is_over: condition.stopping && condition.on_disk == Activity::Clean,
            resync_offset: condition.resync_offset,
        }
    }

    /// Whether an update waits for members' bitmaps.
    fn is_behind(&self, update: &Update) -> bool {
        // One that is written no more is left behind.
        let is_waited_for = !update.has_begun && !self.is_file_out();
        let is_waited_for = spoiled(Bug::FileWrittenOn, is_waited_for, !update.has_begun);
        let is_behind = |intent: &Intent| {
            intent.is_behind(update.state.events, self.intent_targets().into_iter())
        };
        is_waited_for && self.intent.as_ref().is_some_and(is_behind)
    }

    /// Who has the bitmap and parity logs: members, or a file beside them.
    pub(super) fn intent_targets(&self) -> SmallVec<[MemberId; 8]> {
        match self.bitmap_file {
            Some(file) => SmallVec::from_slice(&[file]),
            None => self.roster.superblock_targets(false).collect(),
        }
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
            doubt: self.intent.as_ref().and_then(|intent| intent.doubt().map(|doubt| &**doubt)),
            lazy: self.intent.as_ref().and_then(Intent::lazy),
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

    fn stands(&self, update: &Update) -> Superblocks {
        let is_broken = self.condition.broken;
        if !is_broken && (self.is_behind(update) || self.lacks_logs(update)) {
            return Superblocks::Behind;
        }
        if !update.missing.is_empty() {
            return Superblocks::Out;
        }
        // The device of a journal that was to be made has failed, and no member says that it is there.
        let said = update.state.journal.map(|journal| journal.member);
        if said != self.journal.as_ref().map(Journal::member) {
            return Superblocks::Outdated;
        }
        let targets = self.roster.update_targets(true).collect();
        let is_last = update.later.is_disjoint(&targets);
        // The lost member's own count must be passed: said once more.
        let is_behind = self.roster.has_unrecorded() && !self.events.are_beyond_the_lost();
        match () {
            () if !is_last && !is_broken => Superblocks::WaveDurable,
            // A member that holds data cannot be told, so nothing counts as recorded: a write that another member missed is
            // never answered well (I4).
            () if is_broken || is_behind || !self.roster.records_all() => Superblocks::Outdated,
            () if self.keeps_record && self.roster.has_unrecorded() => match update.kept {
                Kept::No => Superblocks::Unkept,
                Kept::Asked => Superblocks::Out,
                Kept::Done => Superblocks::Durable,
            },
            () => Superblocks::Durable,
        }
    }
}
