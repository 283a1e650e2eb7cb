//! Decides the next action for members' volatile caches, from a table of facts. The first row that
//! fits is taken. [check: the_tables_keep_their_promises]

use crate::array::order::{Activity, Closing, FlushPurpose, SharedFacts, Turn, Writes};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Stage {
    #[default]
    Free,
    Flushing(FlushPurpose),
    Flushed(FlushPurpose),
}

/// A round in which every shard brings its acknowledged writes to the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Round {
    #[default]
    None,
    UnderWay,
    /// The write-back round has ended, and no flush relies on the round yet.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) struct Facts {
    pub(in crate::array) stage: Stage,
    /// Whether clients' flushes wait for a round to begin.
    pub(in crate::array) flush_wanted: bool,
    /// The state of the write-back round for earlier flushes of clients.
    pub(in crate::array) round: Round,
    /// Whether the last flush is done, in an array whose superblocks record no intent.
    pub(in crate::array) last_flush_done: bool,
    /// The state of the last round, in which a broken array's shards write back.
    pub(in crate::array) last_round: Round,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// Wait while shards write back.
    Wait,
    /// Flush again, without the member whose flush failed.
    FlushAgain,
    Answer,
    /// Write superblocks that say clean.
    TurnClean,
    /// Leave superblocks active, and do not turn them clean.
    DropClose,
    /// Report the flush's end to the machine that asked for it.
    Ended(FlushPurpose),
    FlushForClients,
    /// Ask the shards to bring their acknowledged writes to the members.
    WriteBack,
    /// Flush all members, before superblocks turn clean or the array stops.
    FlushLast,
    /// Ask the shards of a broken array to write back their remaining writes.
    LastRound,
}

pub(in crate::array) fn decide(facts: &Facts, shared: &SharedFacts) -> Option<(Turn, Action)> {
    settle(facts, shared).map(|action| (Turn::Settle, action)).or_else(|| begin(facts, shared))
}

fn settle(facts: &Facts, shared: &SharedFacts) -> Option<Action> {
    let flush_again = shared.unrecorded && shared.writes != Writes::Broken;
    match facts.stage {
        Stage::Flushed(FlushPurpose::Clients) if flush_again => Some(Action::FlushAgain),
        Stage::Flushed(FlushPurpose::Clients) if shared.to_say_again => None,
        Stage::Flushed(FlushPurpose::Clients) => Some(Action::Answer),
        Stage::Flushed(FlushPurpose::Last) if shared.may_be_clean => Some(Action::TurnClean),
        Stage::Flushed(FlushPurpose::Last) => Some(Action::DropClose),
        Stage::Flushed(purpose) => Some(Action::Ended(purpose)),
        Stage::Free | Stage::Flushing(_) => None,
    }
}

fn begin(facts: &Facts, shared: &SharedFacts) -> Option<(Turn, Action)> {
    let Facts { round, last_round, .. } = *facts;
    let SharedFacts { on_disk, writes, to_record_absent, caches_free: free, stops, .. } = *shared;
    // A client's flush must not rely on a state that no superblock records yet.
    let is_recorded = !shared.is_to_record() && !to_record_absent;
    let is_drained = shared.superblocks_free && shared.closing == Closing::Drained;
    let last = stops && writes == Writes::Broken;
    let lacks_flush = shared.may_write() && on_disk == Activity::NotKept && !facts.last_flush_done;
    let rows = [
        (free && round == Round::Over && is_recorded, Turn::Serve, Action::FlushForClients),
        (
            facts.flush_wanted && round == Round::None && !to_record_absent,
            Turn::Serve,
            Action::WriteBack,
        ),
        (free && is_drained, Turn::Serve, Action::FlushLast),
        (last && last_round == Round::None, Turn::Stop, Action::LastRound),
        (last && last_round == Round::UnderWay, Turn::Stop, Action::Wait),
        (stops && lacks_flush, Turn::Stop, Action::FlushLast),
    ];
    rows.into_iter().find_map(|(fits, turn, action)| fits.then_some((turn, action)))
}
