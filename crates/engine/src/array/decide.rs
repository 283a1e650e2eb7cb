//! What the array does next: a pure table from facts to one action.
//!
//! Superblocks, members' volatile caches and bitmaps are three resources. Each has at most one task, and all may have one at once,
//! except that nothing is written to superblocks between the last flush and the update that says clean. The first row that
//! fits is taken, again and again, until that is Wait.
//!
//! The order is the policy: what has ended is settled, a failed member is recorded before anything else (I4), then writers
//! are let in, then flushes are served, then the array turns clean. [check: the_table_keeps_its_promises]

use braid_hooks::{Bug, spoiled};

use super::consistency::{Changing, IntentAction, LogAction};
use super::jobs::JobAction;

/// What durable superblocks say about writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// No redundancy, so nothing is said.
    NotKept,
    /// No write is under way.
    Clean,
    /// Writes may be under way.
    Active,
}

/// Why members are being flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPurpose {
    /// For clients that asked.
    Clients,
    /// Before the superblocks turn clean, or as the last thing of an array that keeps no intent.
    Last,
    /// So that what a job has done counts.
    Job,
    /// Before bits of the bitmap are cleared.
    Bits,
    /// Before partial parity logs are written over.
    Logs,
}

/// How the superblocks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Superblocks {
    /// No update is under way.
    Free,
    /// Members' bitmaps are to say first what the update counts, or members that come to have an empty partial parity log.
    Behind,
    /// Members are writing, or a loss is being written to the record.
    Out,
    /// They have written, or there was nothing to be waited for; there are more to come.
    WaveDurable,
    /// All have, but the update says less than is so by now: another member was lost, the lost one's own count is not
    /// passed, or the array has broken.
    Outdated,
    /// All have; a program that keeps a record of who is in is to write down a loss that they tell of, before anybody counts on it.
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

/// Whether writes may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Allowed,
    /// The array was opened for reading.
    ReadOnly,
    /// More members are lost than can be made up for.
    Broken,
}

/// How far the gate is on its way from open to closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// It is not being closed.
    No,
    /// Shards still have writes under way.
    Draining,
    /// No shard has a write under way, nor begins one.
    Drained,
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
    /// Of that: the journal has room that superblocks do not say is free.
    pub(super) tail_unsaid: bool,
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
    /// What is to be done about the bitmap ([`super::consistency`]).
    pub(super) intent: IntentAction,
    /// Members are writing their bitmaps.
    pub(super) bitmap_out: bool,
    /// A bitmap is to be made, or given up.
    pub(super) bitmap_change: bool,
    /// No superblock names the bitmap any more, and nobody is at work on it.
    pub(super) bitmap_left: bool,
    /// Whether logs are to be made, or given up.
    pub(super) log_change: Changing,
    /// What is to be done about partial parity logs ([`super::consistency`]).
    pub(super) parity_logs: LogAction,
    /// Members are writing them.
    pub(super) parity_logs_out: bool,
    /// A spare may take the place of a member that is missing, or is to be replaced.
    pub(super) spare_fits: bool,
    /// A member errs again and again, and something is to be done about it ([`super::read_errors`]).
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
    /// Let a spare take the place of a member that is missing, or begin to replace one: superblocks say so first.
    TakeSpare,
    /// Let a replacement that holds all take its place: the old member is lost by that.
    Replace,
    /// Write superblocks with what has changed beside losses: offsets that a job has moved.
    RecordChanges,
    /// Write bad-block logs that do not say what they are to. They are a resource of their own, one for each member.
    WriteBadBlocks,
    /// Flush what a job has written.
    FlushForJob,
    /// What the job had done when the flush began counts.
    NoteOffsets,
    /// Let the job take its next step.
    Job,
    /// Let shards write where bits are durable by now.
    OpenBits,
    /// Write members' bitmaps.
    WriteBitmap,
    /// Make a bitmap, or give up the one that there is: the next superblocks say so.
    ChangeBitmap,
    /// Forget a bitmap that no superblock names any more.
    DropBitmap,
    /// Ask shards where they wrote.
    AskTouched,
    /// Take bits back that nobody needed.
    RevokeBits,
    /// Flush members before these are cleared.
    FlushForBits,
    /// They are flushed.
    ClearBits,
    /// A sweep cannot go on.
    ForgetSweep,
    /// Make logs, or give up those that there are: the next superblocks say so.
    ChangeLogs,
    /// Wipe out what is left to be found of logs that were given up.
    WipeLogs,
    /// Forget logs that no superblock names any more.
    DropLogs,
    /// Make the partial parity logs of members that come.
    MakeLogs,
    /// Write records to partial parity logs.
    WriteLogs,
    /// Let shards write what is logged.
    GrantLogs,
    /// Flush members before logs are written over.
    FlushForLogs,
    /// They are flushed.
    LogsFlushed,
    /// Clear the bits that are left when the array stops.
    ClearLast,
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
    // No write begins between the last one before a change of logs and that. Where the last ones wait for others that came since, these
    // are let in, and then the gate is closed again.
    let changes_logs = facts.log_change != Changing::No && may_write;
    let changes_logs = spoiled(Bug::LogSkippedEarly, changes_logs, false);
    let opens = write_wanted && (!changes_logs || facts.held_up && on_disk == Activity::Active);
    let turns_active = opens && may_write && on_disk == Activity::Clean;
    let may_be_clean =
        (!write_wanted || changes_logs) && !unrecorded && may_write && on_disk == Activity::Active;
    let makes_logs = facts.log_change == Changing::Wanted { makes: true };
    let logs_wanted = makes_logs || facts.log_change == Changing::Wanted { makes: false };
    let logs_wanted = logs_wanted && may_write && s_free;
    let closes = changes_logs && may_be_clean;
    let is_still = on_disk == Activity::Clean;
    let is_still = spoiled(Bug::LogJoinsUndrained, is_still, is_still || makes_logs);
    let flushes = flush_wanted || round != Round::None;
    let job = facts.job != JobAction::Wait;
    // Superblocks say that it holds all.
    let replaces = facts.replaces && !facts.unsaved;
    let replaces = spoiled(Bug::ReplacesEarly, replaces, facts.replaces);
    let is_quiet = !flushes && c_free && s_free && !facts.has_job && !facts.log_out;
    let is_quiet = is_quiet && !facts.bitmap_out && !facts.parity_logs_out;
    let frees_room = facts.unsaved && facts.tail_unsaid && may_write;
    let frees_room = spoiled(Bug::JournalFreedAfterClosing, frees_room, false);
    let logs = |action| may_write && facts.parity_logs == action;
    let intends = |action| may_write && facts.intent == action;
    let stops = facts.stopping && is_quiet;
    let lacks_last_round = writes == Writes::Broken && facts.last_round != Round::Over;
    let lacks_close = may_write && on_disk == Activity::Active;
    let lacks_last_flush = may_write && on_disk == Activity::NotKept && !facts.last_flush_done;
    let lacks_last_flush = spoiled(Bug::StopUnflushed, lacks_last_flush, false);
    // Said once only, an update leaves a member that missed it one event behind, as if it had missed no write. So no flush is
    // answered before the second time (I8), which comes at once, or with the next update if that is near.
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
        (flushed_for(FlushPurpose::Bits), Action::ClearBits),
        (flushed_for(FlushPurpose::Logs), Action::LogsFlushed),
        (facts.stopped, Action::Wait),
        (s_free && to_record, Action::Record),
        (s_free && turns_active, Action::TurnActive),
        (s_free && opens, Action::OpenGate),
        (logs_wanted && is_still, Action::ChangeLogs),
        (logs_wanted && closes && closing == Closing::No, Action::CloseGate),
        (facts.log_change == Changing::ToWipe && may_write, Action::WipeLogs),
        (facts.log_change == Changing::Over && may_write, Action::DropLogs),
        (facts.bitmap_left && may_write, Action::DropBitmap),
        (s_free && facts.bitmap_change && may_write, Action::ChangeBitmap),
        (intends(IntentAction::Open), Action::OpenBits),
        (intends(IntentAction::Write), Action::WriteBitmap),
        (logs(LogAction::Blank), Action::MakeLogs),
        (logs(LogAction::Grant), Action::GrantLogs),
        (logs(LogAction::Write), Action::WriteLogs),
        (c_free && logs(LogAction::Flush), Action::FlushForLogs),
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
        (intends(IntentAction::Ask), Action::AskTouched),
        (intends(IntentAction::Revoke), Action::RevokeBits),
        (intends(IntentAction::Forget), Action::ForgetSweep),
        (c_free && intends(IntentAction::Flush), Action::FlushForBits),
        (s_free && facts.idle && may_be_clean && closing == Closing::No, Action::CloseGate),
        (stops && lacks_last_round && facts.last_round == Round::None, Action::LastRound),
        (stops && lacks_last_round, Action::Wait),
        (stops && lacks_close && closing == Closing::No, Action::CloseGate),
        (stops && lacks_close, Action::Wait),
        (stops && lacks_last_flush, Action::FlushLast),
        (stops && intends(IntentAction::Clear), Action::ClearLast),
        (stops, Action::Stop),
    ];
    let action = rows.into_iter().find_map(|(fits, action)| fits.then_some(action));
    action.unwrap_or(Action::Wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [bool; 2] = [false, true];

    /// Facts that the table's own decisions rule out.
    fn is_possible(facts: &ArrayFacts) -> bool {
        // What is broken waits for nothing that is said before superblocks.
        if facts.superblocks == Superblocks::Behind && facts.writes != Writes::Allowed {
            return false;
        }
        let is_last = |purpose| matches!(purpose, FlushPurpose::Last);
        match facts.caches {
            Caches::Flushing(purpose) | Caches::Flushed(purpose) if is_last(purpose) => {
                facts.superblocks == Superblocks::Free
            }
            _ => true,
        }
    }

    /// Every combination of facts that is possible, and many that are not.
    fn for_all(mut check: impl FnMut(&ArrayFacts)) {
        use Closing::{Drained, Draining};
        let superblocks = [
            Superblocks::Free,
            Superblocks::Behind,
            Superblocks::Out,
            Superblocks::WaveDurable,
            Superblocks::Outdated,
            Superblocks::Unkept,
            Superblocks::Durable,
        ];
        let caches = [
            Caches::Free,
            Caches::Flushing(FlushPurpose::Clients),
            Caches::Flushing(FlushPurpose::Last),
            Caches::Flushed(FlushPurpose::Clients),
            Caches::Flushed(FlushPurpose::Last),
        ];
        let rounds = [Round::None, Round::UnderWay, Round::Over];
        for superblocks in superblocks {
            for caches in caches {
                for writes in [Writes::Allowed, Writes::ReadOnly, Writes::Broken] {
                    for on_disk in [Activity::NotKept, Activity::Clean, Activity::Active] {
                        for (round, last_round) in
                            rounds.into_iter().flat_map(|one| rounds.map(|other| (one, other)))
                        {
                            for closing in [Closing::No, Draining, Drained] {
                                for bits in 0_u32..1 << 10 {
                                    let bit = |n: u32| BOTH[usize::from(bits >> n & 1 == 1)];
                                    let facts = ArrayFacts {
                                        unpublished: bit(0),
                                        superblocks,
                                        caches,
                                        stopped: bit(1),
                                        writes,
                                        on_disk,
                                        unrecorded: bit(2),
                                        absent: bit(3),
                                        write_wanted: bit(4),
                                        said_once: bit(5),
                                        flush_wanted: bit(6),
                                        round,
                                        closing,
                                        held_up: false,
                                        idle: bit(7),
                                        stopping: bit(8),
                                        last_flush_done: bit(9),
                                        last_round,
                                        unsaved: false,
                                        tail_unsaid: false,
                                        replaces: false,
                                        log_due: false,
                                        log_out: false,
                                        job_flush: false,
                                        job: JobAction::Wait,
                                        has_job: false,
                                        intent: intent_when(superblocks),
                                        bitmap_out: superblocks == Superblocks::Behind,
                                        bitmap_change: false,
                                        bitmap_left: false,
                                        log_change: Changing::No,
                                        parity_logs: LogAction::Wait,
                                        parity_logs_out: false,
                                        spare_fits: false,
                                        errs: false,
                                    };
                                    if is_possible(&facts) {
                                        check(&facts);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn intent_when(_: Superblocks) -> IntentAction {
        IntentAction::Wait
    }

    /// The facts about the bitmap, with those that they meet.
    fn for_all_of_bits(mut check: impl FnMut(&ArrayFacts)) {
        use IntentAction as Intent;
        let superblocks = [Superblocks::Free, Superblocks::Behind, Superblocks::Out];
        let purposes = [FlushPurpose::Clients, FlushPurpose::Last, FlushPurpose::Bits];
        let busy = purposes.map(|purpose| [Caches::Flushing(purpose), Caches::Flushed(purpose)]);
        let caches = [Caches::Free].into_iter().chain(busy.into_iter().flatten());
        let intents = [
            Intent::Wait,
            Intent::Open,
            Intent::Write,
            Intent::Ask,
            Intent::Revoke,
            Intent::Flush,
            Intent::Forget,
            Intent::Clear,
        ];
        for caches in caches {
            for (superblocks, intent) in
                superblocks.into_iter().flat_map(|one| intents.map(|intent| (one, intent)))
            {
                for writes in [Writes::Allowed, Writes::ReadOnly, Writes::Broken] {
                    for closing in [Closing::No, Closing::Draining, Closing::Drained] {
                        for bits in 0_u32..1 << 10 {
                            let bit = |n: u32| BOTH[usize::from(bits >> n & 1 == 1)];
                            let on_disk = if bit(0) { Activity::Active } else { Activity::Clean };
                            let facts = ArrayFacts {
                                unpublished: bit(1),
                                superblocks,
                                caches,
                                stopped: false,
                                writes,
                                on_disk,
                                unrecorded: bit(2),
                                absent: false,
                                write_wanted: bit(3),
                                said_once: bit(4),
                                flush_wanted: bit(5),
                                round: Round::None,
                                closing,
                                held_up: false,
                                idle: false,
                                stopping: bit(6),
                                last_flush_done: false,
                                last_round: Round::None,
                                unsaved: false,
                                tail_unsaid: false,
                                replaces: false,
                                log_due: false,
                                log_out: false,
                                job_flush: false,
                                job: JobAction::Wait,
                                has_job: false,
                                intent,
                                bitmap_out: bit(7),
                                bitmap_change: bit(8),
                                bitmap_left: bit(9),
                                log_change: Changing::No,
                                parity_logs: LogAction::Wait,
                                parity_logs_out: false,
                                spare_fits: false,
                                errs: false,
                            };
                            // Superblocks wait for bitmaps that are being written, or are to be.
                            let is_behind = superblocks == Superblocks::Behind;
                            let is_ended =
                                !is_behind || facts.bitmap_out || intent == Intent::Write;
                            // One write at a time.
                            let is_once = intent != Intent::Write || !facts.bitmap_out;
                            // One change at a time; and what is at work on a bitmap keeps it.
                            let is_odd =
                                facts.bitmap_left && (facts.bitmap_change || facts.bitmap_out);
                            if is_possible(&facts) && is_ended && is_once && !is_odd {
                                check(&facts);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The facts about jobs, with those that they meet.
    fn for_all_of_jobs(mut check: impl FnMut(&ArrayFacts)) {
        let superblocks = [Superblocks::Free, Superblocks::Out, Superblocks::Durable];
        let purposes = [FlushPurpose::Clients, FlushPurpose::Last, FlushPurpose::Job];
        let busy = purposes.map(|purpose| [Caches::Flushing(purpose), Caches::Flushed(purpose)]);
        let caches = [Caches::Free].into_iter().chain(busy.into_iter().flatten());
        let mut cases = Vec::new();
        for caches in caches {
            for superblocks in superblocks {
                for writes in [Writes::Allowed, Writes::ReadOnly, Writes::Broken] {
                    for on_disk in [Activity::NotKept, Activity::Clean, Activity::Active] {
                        for closing in [Closing::No, Closing::Draining, Closing::Drained] {
                            cases.push((caches, superblocks, writes, on_disk, closing));
                        }
                    }
                }
            }
        }
        let jobs =
            [JobAction::Wait, JobAction::Begin, JobAction::Ask, JobAction::Save, JobAction::End];
        for (caches, superblocks, writes, on_disk, closing) in cases {
            for (job, bits) in
                jobs.into_iter().flat_map(|job| (0_u32..1 << 13).map(move |n| (job, n)))
            {
                let bit = |n: u32| BOTH[usize::from(bits >> n & 1 == 1)];
                let facts = ArrayFacts {
                    unpublished: false,
                    superblocks,
                    caches,
                    stopped: bit(0),
                    writes,
                    on_disk,
                    unrecorded: bit(1),
                    absent: false,
                    write_wanted: bit(2),
                    said_once: bit(3),
                    flush_wanted: false,
                    round: Round::None,
                    closing,
                    held_up: false,
                    idle: false,
                    stopping: bit(4),
                    last_flush_done: false,
                    last_round: Round::None,
                    unsaved: bit(5),
                    tail_unsaid: false,
                    replaces: bit(9),
                    log_due: bit(10),
                    log_out: bit(11),
                    job_flush: bit(6),
                    job,
                    has_job: bit(7),
                    intent: IntentAction::Wait,
                    bitmap_out: false,
                    bitmap_change: false,
                    bitmap_left: false,
                    log_change: Changing::No,
                    parity_logs: LogAction::Wait,
                    parity_logs_out: false,
                    spare_fits: bit(8),
                    errs: bit(12),
                };
                // A job that waits to be flushed is there, and one that begins is not.
                let is_odd =
                    job == JobAction::Begin && facts.has_job || facts.job_flush && !facts.has_job;
                if is_possible(&facts) && !is_odd {
                    check(&facts);
                }
            }
        }
    }

    fn check(facts: &ArrayFacts) {
        let action = decide(facts);
        let ArrayFacts { superblocks, caches, writes, on_disk, round, closing, .. } = *facts;
        let may_write = writes == Writes::Allowed;
        let begins_update = matches!(
            action,
            Action::Record
                | Action::RecordAbsent
                | Action::TurnActive
                | Action::TurnClean
                | Action::SayAgain
                | Action::RecordChanges
                | Action::TakeSpare
        );
        if action == Action::Replace {
            assert!(may_write && facts.replaces && !facts.unsaved, "said first: {facts:?}");
        }
        if begins_update {
            assert!(may_write, "superblocks only change where writes are allowed: {facts:?}");
            assert_eq!(superblocks, Superblocks::Free, "one update at a time: {facts:?}");
            let is_last = caches == Caches::Flushing(FlushPurpose::Last);
            assert!(!is_last, "nothing changes between the last flush and clean: {facts:?}");
        }
        match action {
            Action::TurnClean => {
                assert_eq!(caches, Caches::Flushed(FlushPurpose::Last), "flushed: {facts:?}");
                let is_waiting = facts.write_wanted && facts.log_change == Changing::No;
                assert!(!facts.unrecorded && !is_waiting, "and nothing came: {facts:?}");
            }
            Action::Answer => {
                let is_told = !facts.unrecorded || writes == Writes::Broken;
                assert!(is_told, "I4: no flush is answered over an unrecorded loss: {facts:?}");
                let is_said = !facts.said_once || !may_write;
                assert!(is_said, "I8: nor while an absent member is one event behind: {facts:?}");
            }
            Action::FlushForClients => {
                let recorded = !facts.unrecorded && !facts.absent;
                let is_told = recorded || !may_write || on_disk == Activity::NotKept;
                assert!(is_told, "what is lost is recorded before the flush: {facts:?}");
                assert!(caches == Caches::Free && round == Round::Over, "{facts:?}");
            }
            Action::FlushLast => {
                assert!(superblocks == Superblocks::Free && caches == Caches::Free, "{facts:?}");
                let is_drained = closing == Closing::Drained || on_disk == Activity::NotKept;
                assert!(is_drained, "no write is under way: {facts:?}");
            }
            Action::CloseGate => {
                assert!(on_disk == Activity::Active && may_write, "{facts:?}");
                assert!(closing == Closing::No && !facts.unrecorded, "{facts:?}");
                assert_eq!(
                    superblocks,
                    Superblocks::Free,
                    "what is written may open it: {facts:?}"
                );
            }
            Action::OpenGate => {
                let is_allowed = on_disk != Activity::Clean || !may_write;
                assert!(is_allowed, "I2: no write begins under clean superblocks: {facts:?}");
            }
            Action::FlushForJob => {
                assert!(caches == Caches::Free && may_write, "{facts:?}");
                let is_free = superblocks == Superblocks::Free;
                assert!(is_free, "what it counts is recorded next: {facts:?}");
            }
            Action::RecordChanges | Action::TakeSpare => {
                let frees_room = action == Action::RecordChanges && facts.tail_unsaid;
                let may_be = closing == Closing::No || frees_room && closing == Closing::Draining;
                assert!(may_be, "what is drained turns clean: {facts:?}");
                assert!(
                    !facts.unrecorded || on_disk == Activity::NotKept,
                    "a loss first: {facts:?}"
                );
            }
            Action::ChangeBitmap => {
                assert!(may_write && facts.bitmap_change, "{facts:?}");
                assert_eq!(superblocks, Superblocks::Free, "they say it next: {facts:?}");
                assert!(!facts.unrecorded, "a loss first: {facts:?}");
            }
            Action::DropBitmap => assert!(!facts.bitmap_out, "nobody is at work on it: {facts:?}"),
            Action::WriteBadBlocks => assert!(may_write && facts.log_due, "{facts:?}"),
            Action::WriteBitmap | Action::OpenBits | Action::RevokeBits => {
                assert!(may_write, "bitmaps change where writes are allowed: {facts:?}");
            }
            Action::FlushForBits | Action::FlushForLogs => {
                assert!(may_write && caches == Caches::Free, "{facts:?}");
            }
            Action::MakeLogs | Action::WriteLogs | Action::GrantLogs => {
                assert!(may_write, "logs change where writes are allowed: {facts:?}");
            }
            Action::Stop => {
                let is_out = facts.log_out || facts.bitmap_out || facts.parity_logs_out;
                assert!(!is_out, "nothing is under way: {facts:?}");
                assert!(!facts.has_job, "a job ends first: {facts:?}");
                let is_still = superblocks == Superblocks::Free && caches == Caches::Free;
                assert!(is_still && round == Round::None && !facts.flush_wanted, "{facts:?}");
                assert!(!(may_write && on_disk == Activity::Active), "it turns clean: {facts:?}");
            }
            Action::Wait => assert!(is_ended(facts), "something will end it: {facts:?}"),
            _ => {}
        }
    }

    /// Who ends a wait: a member, a shard, the clock, a client; or it is over.
    fn is_ended(facts: &ArrayFacts) -> bool {
        let member =
            facts.superblocks == Superblocks::Out || matches!(facts.caches, Caches::Flushing(_));
        let member = member || facts.log_out || facts.bitmap_out || facts.parity_logs_out;
        let shard = facts.round == Round::UnderWay
            || facts.closing == Closing::Draining
            || facts.last_round == Round::UnderWay;
        let job = facts.has_job;
        // Nothing is asked for that could be done.
        // Nor is it before logs are changed, which somebody is at work on.
        let is_waiting = facts.write_wanted && facts.log_change == Changing::No;
        let nothing = !is_waiting && !facts.flush_wanted && facts.round == Round::None;
        member || shard || job || facts.stopped || nothing && !facts.stopping
    }

    /// The facts about partial parity logs, with those that they meet.
    fn for_all_of_logs(mut check: impl FnMut(&ArrayFacts)) {
        let actions = [
            LogAction::Wait,
            LogAction::Blank,
            LogAction::Write,
            LogAction::Grant,
            LogAction::Flush,
        ];
        for_all_of_bits(|facts| {
            for parity_logs in actions {
                for parity_logs_out in BOTH {
                    let intent = IntentAction::Wait;
                    let facts = ArrayFacts { parity_logs, parity_logs_out, intent, ..*facts };
                    // What superblocks wait for is being written, or is to be.
                    let is_behind = facts.superblocks == Superblocks::Behind;
                    let is_ended =
                        parity_logs_out || facts.bitmap_out || parity_logs == LogAction::Blank;
                    if !is_behind || is_ended {
                        check(&facts);
                    }
                }
            }
        });
    }

    /// The facts about a change of logs, with those that they meet.
    fn for_all_of_log_changes(mut check: impl FnMut(&ArrayFacts)) {
        let stands = [
            Changing::Wanted { makes: true },
            Changing::Wanted { makes: false },
            Changing::UnderWay,
            Changing::ToWipe,
            Changing::Over,
        ];
        for_all_of_bits(|facts| {
            for (log_change, held_up) in
                stands.into_iter().flat_map(|one| BOTH.map(|held_up| (one, held_up)))
            {
                let facts = ArrayFacts { held_up, ..*facts };
                let facts =
                    ArrayFacts { log_change, intent: IntentAction::Wait, unsaved: true, ..facts };
                // What is under way is to be said, or members are at work.
                let is_begun = !matches!(log_change, Changing::Wanted { .. });
                let is_behind = facts.superblocks == Superblocks::Behind;
                // Nothing is written while it goes on.
                let is_rest = facts.on_disk == Activity::Clean && facts.closing == Closing::No;
                let is_odd = is_begun && !is_rest
                    || held_up && facts.closing != Closing::Draining
                    || is_behind && !facts.bitmap_out;
                if !is_odd {
                    check(&facts);
                }
            }
        });
    }

    /// Logs are made or given up however many want to write, and meanwhile no write begins.
    #[test]
    fn logs_are_changed_while_nothing_is_written() {
        for_all_of_log_changes(|facts| {
            let action = decide(facts);
            if facts.writes != Writes::Allowed {
                return;
            }
            let begins_writes = matches!(action, Action::TurnActive | Action::OpenGate);
            assert!(!begins_writes || facts.held_up, "{facts:?}");
            if action == Action::ChangeLogs {
                assert_eq!(facts.on_disk, Activity::Clean, "{facts:?}");
                assert_eq!(facts.superblocks, Superblocks::Free, "they say it next: {facts:?}");
                assert!(!facts.unrecorded, "a loss first: {facts:?}");
            }
            let is_still = facts.superblocks == Superblocks::Free && facts.caches == Caches::Free;
            let is_awaited = facts.closing == Closing::Draining || facts.bitmap_out;
            if is_still && (!is_awaited || facts.held_up && facts.write_wanted) {
                assert_ne!(action, Action::Wait, "something is done about it: {facts:?}");
            }
        });
    }

    #[test]
    fn what_is_to_be_logged_is_not_forgotten() {
        for_all_of_logs(|facts| {
            let is_still = facts.caches == Caches::Free && facts.superblocks == Superblocks::Free;
            let is_due = facts.parity_logs != LogAction::Wait && facts.writes == Writes::Allowed;
            if is_still && is_due {
                assert_ne!(decide(facts), Action::Wait, "{facts:?}");
            }
        });
    }

    #[test]
    fn the_table_keeps_its_promises() {
        for_all(check);
        for_all_of_logs(check);
        for_all_of_log_changes(check);
        for_all_of_jobs(check);
        for_all_of_bits(check);
    }

    /// A bitmap is made or given up, however many write.
    #[test]
    fn a_bitmap_is_changed_though_clients_write() {
        for_all_of_bits(|facts| {
            let is_still = facts.superblocks == Superblocks::Free && facts.caches == Caches::Free;
            let may = facts.writes == Writes::Allowed && !facts.unpublished && !facts.unrecorded;
            let is_due = facts.bitmap_change && !facts.write_wanted && !facts.bitmap_left;
            if is_still && may && is_due {
                assert_eq!(decide(facts), Action::ChangeBitmap, "{facts:?}");
            }
        });
    }

    /// What shards or superblocks wait for is done whatever else goes on.
    #[test]
    fn a_bit_is_not_forgotten() {
        for_all_of_bits(|facts| {
            let is_other = matches!(
                decide(facts),
                Action::Publish
                    | Action::Answer
                    | Action::FlushAgain
                    | Action::TurnClean
                    | Action::DropClose
                    | Action::ClearBits
                    | Action::Record
                    | Action::TurnActive
                    | Action::OpenGate
                    | Action::ChangeBitmap
                    | Action::DropBitmap
            );
            if facts.writes == Writes::Allowed && !is_other {
                match facts.intent {
                    IntentAction::Open => assert_eq!(decide(facts), Action::OpenBits, "{facts:?}"),
                    IntentAction::Write => {
                        assert_eq!(decide(facts), Action::WriteBitmap, "{facts:?}")
                    }
                    _ => {}
                }
            }
        });
    }

    /// What a job has done comes into superblocks, whatever else goes on, and a job is heard when nothing else is to be done.
    #[test]
    fn a_job_is_not_forgotten() {
        for_all_of_jobs(|facts| {
            let is_still = facts.superblocks == Superblocks::Free
                && facts.caches == Caches::Free
                && !facts.stopped
                && facts.writes == Writes::Allowed
                && facts.closing == Closing::No;
            let is_due = facts.unsaved || facts.job_flush || facts.log_due;
            let is_due = is_due || facts.job != JobAction::Wait;
            if is_still && is_due {
                assert_ne!(decide(facts), Action::Wait, "{facts:?}");
            }
        });
    }

    /// What drains may wait for room in the journal, and that for superblocks.
    #[test]
    fn room_in_the_journal_is_said_while_the_gate_closes() {
        for_all_of_bits(|facts| {
            let facts = ArrayFacts { unsaved: true, tail_unsaid: true, ..*facts };
            let is_still = facts.superblocks == Superblocks::Free
                && facts.caches == Caches::Free
                && facts.closing == Closing::Draining;
            if is_still && facts.writes == Writes::Allowed && !facts.stopped {
                assert_ne!(decide(&facts), Action::Wait, "{facts:?}");
            }
        });
    }

    /// Whatever waits for superblocks or caches is not forgotten when they are free.
    #[test]
    fn what_is_asked_for_is_done_when_nothing_is_under_way() {
        for_all(|facts| {
            let is_still = facts.superblocks == Superblocks::Free
                && facts.caches == Caches::Free
                && !facts.stopped;
            if is_still && (facts.write_wanted || facts.flush_wanted && facts.round == Round::None)
            {
                assert_ne!(decide(facts), Action::Wait, "{facts:?}");
            }
            let is_lost = facts.unrecorded && facts.writes == Writes::Allowed;
            if is_still && is_lost && facts.on_disk != Activity::NotKept && !facts.unpublished {
                assert_eq!(decide(facts), Action::Record, "a loss comes first: {facts:?}");
            }
        });
    }
}
