//! Folds consistency's state into the facts from which consistency decides.

use braid_sim_hooks::{Bug, spoiled};
use smallvec::SmallVec;

use super::context::{ConsistencyContext, PendingUpdate};
use super::decide::Facts;
use super::intent::{Intent, IntentAction, IntentContext, decide_intent};
use super::journal::{Journal, decide_journal};
use super::log_change::{LogChange, LogChangeStage, LogWish};
use super::machine::{Consistency, Logs};
use super::parity_logs::{LogAction, News, ParityLogs, decide_log};
use crate::Instant;
use crate::array::order::Activity;
use crate::ids::MemberId;

impl Consistency {
    pub(in crate::array) fn facts(&self, now: Instant, context: &ConsistencyContext<'_>) -> Facts {
        Facts {
            bits: self.intent_action(now, context),
            bits_out: self.intent.as_ref().is_some_and(Intent::is_out),
            bitmap_change: self.bitmap_change.is_wanted(),
            bitmap_left: self.is_bitmap_left(),
            log_change: self.log_change_stage(context),
            logs: self.log_action(context),
            logs_out: match &self.logs {
                Logs::None => false,
                Logs::Parity(logs) => logs.is_out(),
                Logs::Journal(journal) => journal.is_out(),
            },
            tail_unsaid: self.logs.journal().is_some_and(Journal::has_unsaid),
        }
    }

    /// Whether an update of superblocks waits for bitmaps or logs.
    pub(in crate::array) fn holds_up(&self, context: &ConsistencyContext<'_>) -> bool {
        self.is_behind(context) || self.lacks_logs(context)
    }

    /// Whether a member or the bitmap file is lost, and no superblock records the loss.
    fn has_unrecorded(&self, context: &ConsistencyContext<'_>) -> bool {
        context.roster.has_unrecorded() || self.is_file_leaving()
    }

    fn intent_action(&self, now: Instant, context: &ConsistencyContext<'_>) -> IntentAction {
        let Some(intent) = &self.intent else { return IntentAction::Wait };
        let is_awaited = self.is_behind(context);
        decide_intent(&intent.facts(now, &self.intent_context(context), is_awaited))
    }

    /// Whether no superblock names the bitmap any more. Shards and members must also have no
    /// request in flight for the bitmap, or for a log in its file.
    fn is_bitmap_left(&self) -> bool {
        let is_at_work = self.intent.as_ref().is_some_and(Intent::is_at_work);
        let has_logs = self.file.is_some() && self.logs.parity().is_some();
        self.bitmap_change.is_left() && !is_at_work && !has_logs
    }

    fn log_change_stage(&self, context: &ConsistencyContext<'_>) -> LogChangeStage {
        let logs = || self.logs.parity().expect("logs are given up that there are");
        match &self.log_change {
            LogChange::Settled => LogChangeStage::No,
            LogChange::Wanted(wish) => {
                LogChangeStage::Wanted { makes: !matches!(wish, LogWish::Nothing) }
            }
            LogChange::Made | LogChange::GivenUp => LogChangeStage::UnderWay,
            LogChange::JournalMade { .. } | LogChange::JournalGivenUp => LogChangeStage::UnderWay,
            LogChange::Left if logs().is_out() || context.flushes_for_logs => {
                LogChangeStage::UnderWay
            }
            // A bitmap file that failed a write is not believed any more, and not written again.
            LogChange::Left if self.is_file_out() => LogChangeStage::Over,
            LogChange::Left => {
                let is_over = logs().are_wiped_out(self.targets(context).into_iter());
                if is_over { LogChangeStage::Over } else { LogChangeStage::ToWipe }
            }
        }
    }

    fn log_action(&self, context: &ConsistencyContext<'_>) -> LogAction {
        let lacks = self.lacks_logs(context);
        match &self.logs {
            Logs::None => LogAction::Wait,
            Logs::Parity(logs) => decide_log(&logs.facts(lacks, self.has_unrecorded(context))),
            Logs::Journal(journal) => decide_journal(&journal.facts(lacks)),
        }
    }

    /// Whether an update waits for new members' parity logs, or for the journal's new tail block.
    fn lacks_logs(&self, context: &ConsistencyContext<'_>) -> bool {
        let Some(PendingUpdate { news, .. }) = context.awaiting else { return false };
        let lacks = |logs: &ParityLogs| logs.lacks(self.targets(context).into_iter(), news);
        let is_waited_for = !self.log_change.is_leaving();
        let is_made = self.log_change.is_made();
        let is_waited_for = spoiled(Bug::LogNamedUnmade, is_waited_for, is_waited_for && !is_made);
        match &self.logs {
            Logs::None => false,
            Logs::Parity(logs) => is_waited_for && lacks(logs),
            Logs::Journal(journal) => journal.lacks(),
        }
    }

    /// Whether an update waits for members' bitmaps.
    fn is_behind(&self, context: &ConsistencyContext<'_>) -> bool {
        let Some(PendingUpdate { events, .. }) = context.awaiting else { return false };
        // No update waits for a bitmap that is no longer written.
        let is_waited_for = !self.is_file_out();
        let is_behind =
            |intent: &Intent| intent.is_behind(events, self.targets(context).into_iter());
        is_waited_for && self.intent.as_ref().is_some_and(is_behind)
    }

    /// The kind of an update of superblocks, as far as it matters for parity logs.
    pub(super) fn news_of(&self, becomes: Activity, context: &ConsistencyContext<'_>) -> News {
        let was_drained = context.on_disk == Activity::Clean || becomes == Activity::Clean;
        match was_drained {
            true => News::Drained { in_sync: context.resync_offset == u64::MAX },
            false => News::Other,
        }
    }

    /// The part of the array's state that the bitmap reads.
    pub(super) fn intent_context(&self, context: &ConsistencyContext<'_>) -> IntentContext {
        let ConsistencyContext { events, on_disk, resync_offset, may_write, .. } = *context;
        let has_unrecorded = self.has_unrecorded(context);
        let is_leaving = self.is_file_out();
        IntentContext {
            events,
            may_clear: context.is_whole() && may_write && !context.absent && !has_unrecorded,
            has_unrecorded,
            is_leaving,
            takes_writes: on_disk == Activity::Active,
            is_over: context.stopping && on_disk == Activity::Clean,
            resync_offset,
        }
    }

    /// The devices with bitmaps and parity logs: the members, or the bitmap file.
    pub(super) fn targets(&self, context: &ConsistencyContext<'_>) -> SmallVec<[MemberId; 8]> {
        match self.file {
            Some(file) => SmallVec::from_slice(&[file]),
            None => context.roster.superblock_targets(false).collect(),
        }
    }
}
