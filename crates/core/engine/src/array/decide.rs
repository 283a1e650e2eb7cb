//! The array's next action: the tables of its machines, and the fixed order among them.
//!
//! Each machine folds its state into facts of its own and has a table of at most fifteen rows; a
//! table sees the other machines as [`SharedFacts`]. The array takes the action with the earliest
//! [`Turn`], again and again, until that action is Wait. [check: the_tables_keep_their_promises]

use super::caches::{CachesAction, CachesFacts, CachesStage, Round, decide_caches};
use super::consistency::{ConsistencyAction, ConsistencyFacts, LogChangeStage, decide_consistency};
use super::jobs::{UpkeepAction, UpkeepFacts, decide_upkeep};
use super::order::{Activity, Closing, FlushPurpose, SharedFacts, Turn, Writes};
use super::reshape::{ReshapeAction, ReshapeFacts, ReshapeStage, decide_reshape};
use super::superblocks::{
    SuperblocksAction, SuperblocksFacts, SuperblocksStage, decide_superblocks,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArrayFacts {
    /// Whether the shards' view is out of date.
    pub(super) unpublished: bool,
    pub(super) writes: Writes,
    pub(super) on_disk: Activity,
    pub(super) closing: Closing,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
    pub(super) superblocks: SuperblocksFacts,
    pub(super) caches: CachesFacts,
    pub(super) consistency: ConsistencyFacts,
    pub(super) upkeep: UpkeepFacts,
    /// The reshape's facts; the default values if no reshape is under way.
    pub(super) reshape: ReshapeFacts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Wait,
    Publish,
    Superblocks(SuperblocksAction),
    Caches(CachesAction),
    Consistency(ConsistencyAction),
    Upkeep(UpkeepAction),
    Reshape(ReshapeAction),
    Stop,
}

pub(super) fn decide(facts: &ArrayFacts) -> Action {
    if facts.unpublished {
        return Action::Publish;
    }
    let shared = facts.shared();
    let rows = [
        decide_superblocks(&facts.superblocks, &shared)
            .map(|(turn, action)| (turn, Action::Superblocks(action))),
        decide_caches(&facts.caches, &shared).map(|(turn, action)| (turn, Action::Caches(action))),
        decide_consistency(&facts.consistency, &shared)
            .map(|(turn, action)| (turn, Action::Consistency(action))),
        decide_reshape(&facts.reshape).map(|(turn, action)| (turn, Action::Reshape(action))),
        decide_upkeep(&facts.upkeep, &shared).map(|(turn, action)| (turn, Action::Upkeep(action))),
    ];
    // If two actions have the same turn, the first in the list wins.
    match rows.into_iter().flatten().min_by_key(|(turn, _)| *turn) {
        Some((Turn::Settle, action)) => action,
        _ if facts.stopped => Action::Wait,
        Some((_, action)) => action,
        None if shared.stops => Action::Stop,
        None => Action::Wait,
    }
}

impl ArrayFacts {
    fn shared(&self) -> SharedFacts {
        let Self { superblocks, caches, consistency, upkeep, writes, on_disk, .. } = *self;
        let SuperblocksFacts { unrecorded, write_wanted, unsaved, .. } = superblocks;
        let may_write = writes == Writes::Allowed;
        let is_last_flush = caches.stage == CachesStage::Flushing(FlushPurpose::Last);
        let superblocks_free = superblocks.stage == SuperblocksStage::Free && !is_last_flush;
        let caches_free = caches.stage == CachesStage::Free;
        let flushes = caches.flush_wanted || caches.round != Round::None;
        let log_change = if may_write { consistency.log_change } else { LogChangeStage::No };
        let is_unwanted = !write_wanted || log_change != LogChangeStage::No;
        let to_say_again = superblocks.said_once && may_write;
        let is_out = consistency.bits_out || consistency.logs_out || upkeep.log_out;
        let moves = self.reshape.stage != ReshapeStage::Rest;
        let is_quiet =
            !flushes && caches_free && superblocks_free && !upkeep.has_job && !is_out && !moves;
        SharedFacts {
            writes,
            on_disk,
            closing: self.closing,
            superblocks_free,
            caches_free,
            unrecorded,
            to_record_absent: superblocks.absent && may_write,
            to_say_again,
            unsaved,
            may_be_clean: is_unwanted && !unrecorded && may_write && on_disk == Activity::Active,
            flushes,
            flush_ended: caches.stage == CachesStage::Flushed(FlushPurpose::Clients),
            log_change,
            tail_unsaid: consistency.tail_unsaid,
            stopping: self.stopping,
            stops: self.stopping && is_quiet,
        }
    }
}

#[cfg(test)]
mod tests;
