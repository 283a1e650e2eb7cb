//! What the array does next: a pure table from facts to one action.
//!
//! Superblocks, members' volatile caches and bitmaps are three resources. Each has at most one
//! task, and all may have one at once, except that nothing is written to superblocks between the
//! last flush and the update that says clean. The first row that fits is taken, again and again,
//! until that is Wait.
//!
//! The order is the policy: what has ended is settled, a failed member is recorded before anything
//! else (I4), then writers are let in, then flushes are served, then the array turns clean. [check:
//! the_table_keeps_its_promises]

use braid_hooks::{Bug, spoiled};

use super::consistency::{Changing, ConsistencyAction, ConsistencyFacts, decide_consistency};
use super::jobs::JobAction;
use super::order::{Activity, Around, Closing, FlushPurpose, Turn, Writes};

/// How the superblocks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Superblocks {
    /// No update is under way.
    Free,
    /// Members' bitmaps are to say first what the update counts, or members that come to have an
    /// empty partial parity log.
    Behind,
    /// Members are writing, or a loss is being written to the record.
    Out,
    /// They have written, or there was nothing to be waited for; there are more to come.
    WaveDurable,
    /// All have, but the update says less than is so by now: another member was lost, the lost
    /// one's own count is not passed, or the array has broken.
    Outdated,
    /// All have; a program that keeps a record of who is in is to write down a loss that they tell
    /// of, before anybody counts on it.
    Unkept,
    /// All have, and so has the record.
    Durable,
}

/// How the members' volatile caches stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caches {
    /// No flush is under way.
    Free,
    /// Members are flushing.
    Flushing(FlushPurpose),
    /// They have.
    Flushed(FlushPurpose),
}

/// A round in which every shard brings what it has answered to the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// None was begun.
    None,
    /// Shards are at it.
    UnderWay,
    /// They are done; what came of it has not been used.
    Over,
}

/// The array at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrayFacts {
    /// The view that shards have is not what is so.
    pub(super) unpublished: bool,
    pub(super) superblocks: Superblocks,
    pub(super) caches: Caches,
    pub(super) stopped: bool,
    pub(super) writes: Writes,
    /// What durable superblocks say.
    pub(super) on_disk: Activity,
    /// A member is out, and no durable superblock says so.
    pub(super) unrecorded: bool,
    /// The array was found dirty without some of its members, and no superblock says so yet.
    pub(super) absent: bool,
    /// A shard waits for the gate.
    pub(super) write_wanted: bool,
    /// The last update was said once; a second time is due and wakes no spare.
    pub(super) said_once: bool,
    /// Clients' flushes wait for a round to begin.
    pub(super) flush_wanted: bool,
    /// The round for clients' flushes that came before.
    pub(super) round: Round,
    pub(super) closing: Closing,
    /// What shards still have under way waits for writes that wait for the gate.
    pub(super) held_up: bool,
    /// No shard has had a write for a while.
    pub(super) idle: bool,
    pub(super) stopping: bool,
    /// A job has moved an offset, or a newcomer has failed, and no superblock says so yet.
    pub(super) unsaved: bool,
    /// A replacement holds all.
    pub(super) replaces: bool,
    /// A bad-block log does not say what it is to, and may be written.
    pub(super) log_due: bool,
    /// One is being written.
    pub(super) log_out: bool,
    /// A job wants members flushed.
    pub(super) job_flush: bool,
    /// What the job is to do next ([`super::jobs`]).
    pub(super) job: JobAction,
    pub(super) has_job: bool,
    /// What keeps redundancy right over a crash.
    pub(super) consistency: ConsistencyFacts,
    /// A spare may take the place of a member that is missing, or is to be replaced.
    pub(super) spare_fits: bool,
    /// A member errs again and again, and something is to be done about it
    /// ([`super::read_errors`]).
    pub(super) errs: bool,
    /// The last flush of an array that keeps no intent is done.
    pub(super) last_flush_done: bool,
    /// What the shards of a broken array still have for the members.
    pub(super) last_round: Round,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// An event will come.
    Wait,
    /// Tell the shards.
    Publish,
    /// Write the next superblocks of the update.
    WriteWave,
    /// Forget the update: it is not the last word.
    DropUpdate,
    /// Have the loss that the update tells of written to the record.
    KeepRecord,
    /// The update is what is so: tell those that wait for it.
    CompleteUpdate,
    /// The flush is made anew, without the member that failed.
    FlushAgain,
    /// Answer the clients whose flush it was.
    Answer,
    /// Write superblocks that say clean.
    TurnClean,
    /// Stay active.
    DropClose,
    /// Write superblocks without the lost member.
    Record,
    /// Write superblocks that say active; then the gate opens.
    TurnActive,
    /// Let writes begin, or say that they may not.
    OpenGate,
    /// Write superblocks without the absent members.
    RecordAbsent,
    FlushForClients,
    /// Ask the shards to bring what they have answered to the members.
    WriteBack,
    /// Write the last update once more.
    SayAgain,
    CloseGate,
    /// Flush all members, before superblocks turn clean or the array stops.
    FlushLast,
    /// Warn of a member that errs again and again, have it replaced, or put it out.
    TreatErring,
    /// Let a spare take the place of a member that is missing, or begin to replace one: superblocks
    /// say so first.
    TakeSpare,
    /// Let a replacement that holds all take its place: the old member is lost by that.
    Replace,
    /// Write superblocks with what has changed beside losses: offsets that a job has moved.
    RecordChanges,
    /// Write bad-block logs that do not say what they are to. They are a resource of their own, one
    /// for each member.
    WriteBadBlocks,
    /// Flush what a job has written.
    FlushForJob,
    /// What the job had done when the flush began counts.
    NoteOffsets,
    /// Let the job take its next step.
    Job,
    /// See [`super::consistency`].
    Consistency(ConsistencyAction),
    /// Members are flushed, so that bits may be cleared or logs written over.
    BitsOrLogsFlushed(FlushPurpose),
    /// Ask the shards of a broken array for what they still have.
    LastRound,
    Stop,
}

/// The table.
pub(super) fn decide(facts: &ArrayFacts) -> Action {
    let ArrayFacts { superblocks, caches, writes, on_disk, closing, .. } = *facts;
    let ArrayFacts { unrecorded, write_wanted, flush_wanted, round, .. } = *facts;
    let may_write = writes == Writes::Allowed;
    // Superblocks may be written; caches may be flushed.
    let is_last_flush = matches!(caches, Caches::Flushing(FlushPurpose::Last));
    let s_free = superblocks == Superblocks::Free && !is_last_flush;
    let c_free = caches == Caches::Free;
    // Flushes of clients do not count on what no superblock says yet.
    let to_record = unrecorded && may_write && on_disk != Activity::NotKept;
    let to_record_absent = facts.absent && may_write;
    // No write begins between the last one before a change of logs and that. Where the last ones
    // wait for others that came since, these are let in, and then the gate is closed again.
    let changes_logs = facts.consistency.log_change != Changing::No && may_write;
    let changes_logs = spoiled(Bug::LogSkippedEarly, changes_logs, false);
    let opens = write_wanted && (!changes_logs || facts.held_up && on_disk == Activity::Active);
    let turns_active = opens && may_write && on_disk == Activity::Clean;
    let may_be_clean =
        (!write_wanted || changes_logs) && !unrecorded && may_write && on_disk == Activity::Active;
    let logs_wanted = matches!(facts.consistency.log_change, Changing::Wanted { .. });
    let logs_wanted = logs_wanted && may_write && s_free;
    let closes = changes_logs && may_be_clean;
    let flushes = flush_wanted || round != Round::None;
    let job = facts.job != JobAction::Wait;
    // Superblocks say that it holds all.
    let replaces = facts.replaces && !facts.unsaved;
    let replaces = spoiled(Bug::ReplacesEarly, replaces, facts.replaces);
    let is_quiet = !flushes && c_free && s_free && !facts.has_job && !facts.log_out;
    let is_quiet = is_quiet && !facts.consistency.bits_out && !facts.consistency.logs_out;
    let frees_room = facts.unsaved && facts.consistency.tail_unsaid && may_write;
    let frees_room = spoiled(Bug::JournalFreedAfterClosing, frees_room, false);
    let stops = facts.stopping && is_quiet;
    let around = Around { writes, on_disk, superblocks_free: s_free, caches_free: c_free, stops };
    let consistency = decide_consistency(&facts.consistency, &around);
    let (turn, consistency) = match consistency {
        Some((turn, action)) => (Some(turn), Action::Consistency(action)),
        None => (None, Action::Wait),
    };
    let lacks_last_round = writes == Writes::Broken && facts.last_round != Round::Over;
    let lacks_close = may_write && on_disk == Activity::Active;
    let lacks_last_flush = may_write && on_disk == Activity::NotKept && !facts.last_flush_done;
    let lacks_last_flush = spoiled(Bug::StopUnflushed, lacks_last_flush, false);
    // Said once only, an update leaves a member that missed it one event behind, as if it had
    // missed no write. So no flush is answered before the second time (I8), which comes at once, or
    // with the next update if that is near.
    let to_say_again = facts.said_once && may_write;
    let to_say_again = spoiled(Bug::SaidOnce, to_say_again, false);
    let is_followed = closing != Closing::No || facts.stopping && on_disk == Activity::Active;
    let is_awaited = caches == Caches::Flushed(FlushPurpose::Clients);
    let turns_clean = may_be_clean;
    let turns_clean = spoiled(Bug::StaysDirty, turns_clean, false);

    let flushed_for = |purpose| caches == Caches::Flushed(purpose);
    let flush_again = unrecorded && writes != Writes::Broken;
    let flush_again = spoiled(Bug::FlushedUnrecorded, flush_again, false);
    let rows = [
        (facts.unpublished, Action::Publish),
        (superblocks == Superblocks::WaveDurable, Action::WriteWave),
        (superblocks == Superblocks::Outdated, Action::DropUpdate),
        (superblocks == Superblocks::Unkept, Action::KeepRecord),
        (superblocks == Superblocks::Durable, Action::CompleteUpdate),
        (flushed_for(FlushPurpose::Clients) && flush_again, Action::FlushAgain),
        (flushed_for(FlushPurpose::Clients) && !to_say_again, Action::Answer),
        (flushed_for(FlushPurpose::Last) && turns_clean, Action::TurnClean),
        (flushed_for(FlushPurpose::Last), Action::DropClose),
        (flushed_for(FlushPurpose::Job), Action::NoteOffsets),
        (flushed_for(FlushPurpose::Bits), Action::BitsOrLogsFlushed(FlushPurpose::Bits)),
        (flushed_for(FlushPurpose::Logs), Action::BitsOrLogsFlushed(FlushPurpose::Logs)),
        (facts.stopped, Action::Wait),
        (s_free && to_record, Action::Record),
        (s_free && turns_active, Action::TurnActive),
        (s_free && opens, Action::OpenGate),
        (logs_wanted && closes && closing == Closing::No, Action::CloseGate),
        (turn == Some(Turn::Change), consistency),
        (s_free && flushes && to_record_absent, Action::RecordAbsent),
        (
            c_free && round == Round::Over && !to_record && !to_record_absent,
            Action::FlushForClients,
        ),
        (flush_wanted && round == Round::None && !to_record_absent, Action::WriteBack),
        (s_free && to_say_again && (is_awaited || !is_followed), Action::SayAgain),
        (s_free && c_free && closing == Closing::Drained, Action::FlushLast),
        (facts.errs && may_write && !facts.stopping, Action::TreatErring),
        (s_free && facts.spare_fits && may_write && closing == Closing::No, Action::TakeSpare),
        (s_free && replaces && may_write && closing == Closing::No, Action::Replace),
        (s_free && facts.unsaved && may_write && closing == Closing::No, Action::RecordChanges),
        // What drains may wait for room in the journal; the gate closes again then.
        (s_free && frees_room && closing == Closing::Draining, Action::RecordChanges),
        (facts.log_due && may_write, Action::WriteBadBlocks),
        (s_free && c_free && facts.job_flush && may_write, Action::FlushForJob),
        (job, Action::Job),
        (turn == Some(Turn::Sweep), consistency),
        (s_free && facts.idle && may_be_clean && closing == Closing::No, Action::CloseGate),
        (stops && lacks_last_round && facts.last_round == Round::None, Action::LastRound),
        (stops && lacks_last_round, Action::Wait),
        (stops && lacks_close && closing == Closing::No, Action::CloseGate),
        (stops && lacks_close, Action::Wait),
        (stops && lacks_last_flush, Action::FlushLast),
        (turn == Some(Turn::Stop), consistency),
        (stops, Action::Stop),
    ];
    let action = rows.into_iter().find_map(|(fits, action)| fits.then_some(action));
    action.unwrap_or(Action::Wait)
}

#[cfg(test)]
mod tests;
