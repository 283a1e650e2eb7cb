//! Promises that span several machines, checked over products of facts: the product of all facts is
//! too large.

use super::super::consistency::{IntentAction, LogAction};
use super::super::jobs::JobAction;
use super::super::product::{Axis, axis, flags, product, set};
use super::*;

/// Whether the tables' own decisions can lead to these facts.
fn is_possible(facts: &ArrayFacts) -> bool {
    let ConsistencyFacts { bits, bits_out, bitmap_change, bitmap_left, .. } = facts.consistency;
    let ConsistencyFacts { log_change, logs, logs_out, .. } = facts.consistency;
    let is_behind = facts.superblocks.stage == SuperblocksStage::Behind;
    // Superblocks wait for a bitmap write that is in flight or due; those of a broken array never
    // wait.
    let is_awaited =
        bits_out || logs_out || bits == IntentAction::Write || logs == LogAction::Blank;
    let is_behind = !is_behind || is_awaited && facts.writes == Writes::Allowed;
    let is_last = matches!(
        facts.caches.stage,
        CachesStage::Flushing(FlushPurpose::Last) | CachesStage::Flushed(FlushPurpose::Last)
    );
    // No superblock is written from the last flush on, until superblocks turn clean.
    let is_last = !is_last || facts.superblocks.stage == SuperblocksStage::Free;
    // At most one write of bitmaps and one change run at a time. A bitmap with requests in flight
    // is kept.
    let is_once = bits != IntentAction::Write || !bits_out;
    let is_left = !bitmap_left || !bitmap_change && !bits_out;
    // An array without redundancy keeps no bitmap and no logs.
    let is_change = log_change != LogChangeStage::No || bitmap_change || bitmap_left;
    let is_kept = is_change || bits != IntentAction::Wait || logs != LogAction::Wait;
    let is_kept = !is_kept || facts.on_disk != Activity::NotKept;
    // No write is in flight during a change of logs.
    let is_begun = !matches!(log_change, LogChangeStage::No | LogChangeStage::Wanted { .. });
    let is_at_rest = facts.on_disk == Activity::Clean && facts.closing == Closing::No;
    // Only a draining gate can be held up.
    let is_held_up = !facts.superblocks.held_up || facts.closing == Closing::Draining;
    // A job that waits for a flush exists; a job that begins does not exist yet.
    let is_there = facts.upkeep.has_job || !facts.upkeep.job_flush;
    let is_new = facts.upkeep.job != JobAction::Begin || !facts.upkeep.has_job;
    is_behind
        && is_last
        && is_once
        && is_left
        && is_kept
        && (!is_begun || is_at_rest)
        && is_held_up
        && is_there
        && is_new
}

const SUPERBLOCKS: Axis<'_, ArrayFacts> = axis!(superblocks.stage: SuperblocksStage::Free,
    SuperblocksStage::Behind, SuperblocksStage::Out, SuperblocksStage::WaveDurable,
    SuperblocksStage::Outdated, SuperblocksStage::Unkept, SuperblocksStage::Durable);
const CACHES: Axis<'_, ArrayFacts> = axis!(caches.stage: CachesStage::Free,
    CachesStage::Flushing(FlushPurpose::Clients), CachesStage::Flushed(FlushPurpose::Clients),
    CachesStage::Flushing(FlushPurpose::Last), CachesStage::Flushed(FlushPurpose::Last),
    CachesStage::Flushing(FlushPurpose::Job), CachesStage::Flushed(FlushPurpose::Job),
    CachesStage::Flushing(FlushPurpose::Bits), CachesStage::Flushed(FlushPurpose::Bits),
    CachesStage::Flushing(FlushPurpose::Logs), CachesStage::Flushed(FlushPurpose::Logs));

/// Checks the facts of `axes` together with the facts that matter everywhere: whether writes are
/// allowed, superblocks, the gate.
fn with_all(axes: &[Axis<'_, ArrayFacts>], check: &mut impl FnMut(&ArrayFacts)) {
    let met: [Axis<'_, ArrayFacts>; 3] = [
        axis!(writes: Writes::Allowed, Writes::ReadOnly, Writes::Broken),
        axis!(on_disk: Activity::Clean, Activity::Active, Activity::NotKept),
        axis!(closing: Closing::No, Closing::Draining, Closing::Drained),
    ];
    let flags: [Axis<'_, ArrayFacts>; 4] =
        flags![superblocks.unrecorded superblocks.write_wanted superblocks.said_once stopping];
    product(&[axes, &met, &flags].concat(), &mut |facts| {
        if is_possible(facts) {
            check(facts);
        }
    });
}

/// Checks all facts about superblocks, caches, clients and the gate.
fn for_all(check: &mut impl FnMut(&ArrayFacts)) {
    let axes: [Axis<'_, ArrayFacts>; 4] = [
        SUPERBLOCKS,
        &CACHES[..5],
        axis!(caches.round: Round::None, Round::UnderWay, Round::Over),
        axis!(caches.last_round: Round::None, Round::UnderWay, Round::Over),
    ];
    let flags: [Axis<'_, ArrayFacts>; 7] = flags![unpublished stopped superblocks.absent
        superblocks.idle caches.flush_wanted caches.last_flush_done consistency.bits_out];
    with_all(&[&axes[..], &flags].concat(), check);
}

/// Checks all facts about bits, log records and changes of them, with the related facts.
fn for_all_of_consistency(what: &[Axis<'_, ArrayFacts>], check: &mut impl FnMut(&ArrayFacts)) {
    let flags: [Axis<'_, ArrayFacts>; 5] = flags![unpublished caches.flush_wanted
        consistency.bits_out consistency.bitmap_change consistency.bitmap_left];
    with_all(&[what, &[&SUPERBLOCKS[..3], CACHES], &flags].concat(), check);
}

fn for_all_of_bits(check: &mut impl FnMut(&ArrayFacts)) {
    let bits: Axis<'_, ArrayFacts> = axis!(consistency.bits: IntentAction::Wait,
        IntentAction::Open, IntentAction::Write, IntentAction::Ask, IntentAction::Revoke,
        IntentAction::Flush, IntentAction::Forget, IntentAction::Clear);
    for_all_of_consistency(&[bits], check);
}

fn for_all_of_logs(check: &mut impl FnMut(&ArrayFacts)) {
    let logs: Axis<'_, ArrayFacts> = axis!(consistency.logs: LogAction::Wait, LogAction::Blank,
        LogAction::Write, LogAction::Grant, LogAction::Flush);
    let [is_out]: [Axis<'_, ArrayFacts>; 1] = flags![consistency.logs_out];
    for_all_of_consistency(&[logs, is_out], check);
}

/// Checks all changes of logs that superblocks must record.
fn for_all_of_log_changes(check: &mut impl FnMut(&ArrayFacts)) {
    let changes: Axis<'_, ArrayFacts> = axis!(consistency.log_change:
        LogChangeStage::Wanted { makes: true }, LogChangeStage::Wanted { makes: false },
        LogChangeStage::UnderWay, LogChangeStage::ToWipe, LogChangeStage::Over);
    let [is_held_up]: [Axis<'_, ArrayFacts>; 1] = flags![superblocks.held_up];
    let unsaved: Axis<'_, ArrayFacts> = axis!(superblocks.unsaved: true);
    for_all_of_consistency(&[changes, is_held_up, unsaved], check);
}

/// Checks all facts about jobs, with the related facts.
fn for_all_of_jobs(check: &mut impl FnMut(&ArrayFacts)) {
    let axes: [Axis<'_, ArrayFacts>; 3] = [
        axis!(superblocks.stage: SuperblocksStage::Free, SuperblocksStage::Out,
            SuperblocksStage::Durable),
        CACHES,
        axis!(upkeep.job: JobAction::Wait, JobAction::Begin, JobAction::Ask, JobAction::Save,
            JobAction::End),
    ];
    let flags: [Axis<'_, ArrayFacts>; 9] = flags![stopped superblocks.unsaved upkeep.job_flush
        upkeep.has_job upkeep.spare_fits upkeep.replaces upkeep.log_due upkeep.log_out upkeep.errs];
    with_all(&[&axes[..], &flags].concat(), check);
}

fn check(facts: &ArrayFacts) {
    use {CachesAction as C, SuperblocksAction as S, UpkeepAction as U};
    let action = decide(facts);
    let ArrayFacts { writes, on_disk, closing, superblocks, caches, consistency, .. } = *facts;
    let SuperblocksFacts { stage, unrecorded, unsaved, .. } = superblocks;
    let may_write = writes == Writes::Allowed;
    let is_free = stage == SuperblocksStage::Free;
    let is_unflushed = caches.stage == CachesStage::Free;
    let begins_update = matches!(
        action,
        Action::Superblocks(
            S::Record | S::RecordAbsent | S::TurnActive | S::SayAgain | S::RecordChanges
        ) | Action::Caches(C::TurnClean)
            | Action::Upkeep(U::TakeSpare)
    );
    if begins_update {
        assert!(may_write, "superblocks only change where writes are allowed: {facts:?}");
        assert!(is_free, "one update at a time: {facts:?}");
        let is_last = caches.stage == CachesStage::Flushing(FlushPurpose::Last);
        assert!(!is_last, "nothing changes between the last flush and clean: {facts:?}");
    }
    match action {
        Action::Superblocks(S::CloseGate) => {
            assert!(on_disk == Activity::Active && may_write, "{facts:?}");
            assert!(closing == Closing::No && !unrecorded, "{facts:?}");
            assert!(is_free, "what is written may open it: {facts:?}");
        }
        Action::Superblocks(S::OpenGate) => {
            let is_allowed = on_disk != Activity::Clean || !may_write;
            assert!(is_allowed, "I2: no write begins under clean superblocks: {facts:?}");
        }
        Action::Superblocks(S::RecordChanges) | Action::Upkeep(U::TakeSpare) => {
            let is_told = action == Action::Superblocks(S::RecordChanges);
            let frees_room = is_told && consistency.tail_unsaid;
            let may_be = closing == Closing::No || frees_room && closing == Closing::Draining;
            assert!(may_be, "what is drained turns clean: {facts:?}");
            assert!(!unrecorded || on_disk == Activity::NotKept, "a loss first: {facts:?}");
        }
        Action::Caches(C::TurnClean) => {
            let is_flushed = caches.stage == CachesStage::Flushed(FlushPurpose::Last);
            let is_waiting =
                superblocks.write_wanted && consistency.log_change == LogChangeStage::No;
            assert!(is_flushed && !unrecorded && !is_waiting, "nothing came: {facts:?}");
        }
        Action::Caches(C::Answer) => {
            let is_told = !unrecorded || writes == Writes::Broken;
            assert!(is_told, "I4: no flush is answered over an unrecorded loss: {facts:?}");
            let is_said = !superblocks.said_once || !may_write;
            assert!(is_said, "I8: nor while an absent member is one event behind: {facts:?}");
        }
        Action::Caches(C::FlushForClients) => {
            let is_recorded = !unrecorded && !superblocks.absent;
            let is_told = is_recorded || !may_write || on_disk == Activity::NotKept;
            assert!(is_told, "what is lost is recorded before the flush: {facts:?}");
            assert!(is_unflushed && caches.round == Round::Over, "{facts:?}");
        }
        Action::Caches(C::FlushLast) => {
            assert!(is_free && is_unflushed, "{facts:?}");
            let is_drained = closing == Closing::Drained || on_disk == Activity::NotKept;
            assert!(is_drained, "no write is under way: {facts:?}");
        }
        Action::Upkeep(U::Replace) => {
            assert!(may_write && facts.upkeep.replaces && !unsaved, "said first: {facts:?}");
        }
        Action::Upkeep(U::FlushForJob) => {
            assert!(is_unflushed && may_write, "{facts:?}");
            assert!(is_free, "what it counts is recorded next: {facts:?}");
        }
        Action::Upkeep(U::WriteBadBlocks) => {
            assert!(may_write && facts.upkeep.log_due, "{facts:?}");
        }
        Action::Consistency(action) => check_consistency(action, facts),
        Action::Stop => {
            assert!(!is_member_at_work(facts), "nothing is under way: {facts:?}");
            assert!(!facts.upkeep.has_job, "a job ends first: {facts:?}");
            assert!(is_free && is_unflushed, "{facts:?}");
            assert!(caches.round == Round::None && !caches.flush_wanted, "{facts:?}");
            assert!(!(may_write && on_disk == Activity::Active), "it turns clean: {facts:?}");
        }
        Action::Wait | Action::Superblocks(S::Wait) | Action::Caches(C::Wait) => {
            assert!(is_ended(facts), "something will end it: {facts:?}");
        }
        _ => {}
    }
}

/// Checks promises that span more than consistency's own table.
fn check_consistency(action: ConsistencyAction, facts: &ArrayFacts) {
    match action {
        ConsistencyAction::ChangeLogs | ConsistencyAction::ChangeBitmap => {
            assert!(!facts.superblocks.unrecorded, "a loss first: {facts:?}");
        }
        ConsistencyAction::DropBitmap => {
            assert!(!facts.consistency.bits_out, "members are not at work on it: {facts:?}");
        }
        _ => {}
    }
}

fn is_member_at_work(facts: &ArrayFacts) -> bool {
    let is_flushing = matches!(facts.caches.stage, CachesStage::Flushing(_));
    let is_writing = facts.superblocks.stage == SuperblocksStage::Out || facts.upkeep.log_out;
    is_flushing || is_writing || facts.consistency.bits_out || facts.consistency.logs_out
}

/// Whether a member, a shard, the clock or a client ends the wait, or the array has stopped.
fn is_ended(facts: &ArrayFacts) -> bool {
    let CachesFacts { flush_wanted, round, last_round, .. } = facts.caches;
    let shard = round == Round::UnderWay
        || facts.closing == Closing::Draining
        || last_round == Round::UnderWay;
    // The array waits only if no action is possible; during a log change, others must wait.
    let is_settled = facts.consistency.log_change == LogChangeStage::No;
    let is_asked =
        facts.superblocks.write_wanted && is_settled || flush_wanted || round != Round::None;
    let is_over = facts.stopped || !is_asked && !facts.stopping;
    is_member_at_work(facts) || shard || facts.upkeep.has_job || is_over
}

#[test]
fn the_tables_keep_their_promises() {
    for_all(&mut check);
    for_all_of_bits(&mut check);
    for_all_of_logs(&mut check);
    for_all_of_log_changes(&mut check);
    for_all_of_jobs(&mut check);
}

fn waits(facts: &ArrayFacts) -> bool {
    matches!(
        decide(facts),
        Action::Wait
            | Action::Superblocks(SuperblocksAction::Wait)
            | Action::Caches(CachesAction::Wait)
    )
}

fn is_still(facts: &ArrayFacts) -> bool {
    facts.superblocks.stage == SuperblocksStage::Free
        && facts.caches.stage == CachesStage::Free
        && !facts.stopped
}

/// Logs are created or dropped however many clients wait to write, and no write begins meanwhile.
#[test]
fn logs_are_changed_while_nothing_is_written() {
    for_all_of_log_changes(&mut |facts| {
        let action = decide(facts);
        if facts.writes != Writes::Allowed {
            return;
        }
        let begins_writes = matches!(
            action,
            Action::Superblocks(SuperblocksAction::TurnActive)
                | Action::Superblocks(SuperblocksAction::OpenGate)
        );
        assert!(!begins_writes || facts.superblocks.held_up, "{facts:?}");
        let is_awaited = facts.closing == Closing::Draining || facts.consistency.bits_out;
        if is_still(facts)
            && (!is_awaited || facts.superblocks.held_up && facts.superblocks.write_wanted)
        {
            assert!(!waits(facts), "something is done about it: {facts:?}");
        }
    });
}

#[test]
fn what_is_to_be_logged_is_not_forgotten() {
    for_all_of_logs(&mut |facts| {
        let is_due = facts.consistency.logs != LogAction::Wait && facts.writes == Writes::Allowed;
        if is_still(facts) && is_due {
            assert!(!waits(facts), "{facts:?}");
        }
    });
}

/// A bitmap is created or dropped, however many clients write.
#[test]
fn a_bitmap_is_changed_though_clients_write() {
    for_all_of_bits(&mut |facts| {
        let may =
            facts.writes == Writes::Allowed && !facts.unpublished && !facts.superblocks.unrecorded;
        let ConsistencyFacts { bitmap_change, bitmap_left, .. } = facts.consistency;
        if is_still(facts)
            && may
            && bitmap_change
            && !facts.superblocks.write_wanted
            && !bitmap_left
        {
            let changes = Action::Consistency(ConsistencyAction::ChangeBitmap);
            assert_eq!(decide(facts), changes, "{facts:?}");
        }
    });
}

/// Bits that shards or superblocks wait for are written while any other work is under way.
#[test]
fn a_bit_is_not_forgotten() {
    for_all_of_bits(&mut |facts| {
        let bits = facts.consistency.bits;
        let is_awaited = matches!(bits, IntentAction::Open | IntentAction::Write);
        let is_other = matches!(
            decide(facts),
            Action::Publish
                | Action::Caches(CachesAction::Answer)
                | Action::Caches(CachesAction::FlushAgain)
                | Action::Caches(CachesAction::TurnClean)
                | Action::Caches(CachesAction::DropClose)
                | Action::Caches(CachesAction::Ended(_))
                | Action::Superblocks(SuperblocksAction::Record)
                | Action::Superblocks(SuperblocksAction::TurnActive)
                | Action::Superblocks(SuperblocksAction::OpenGate)
                | Action::Consistency(
                    ConsistencyAction::ChangeBitmap | ConsistencyAction::DropBitmap
                )
        );
        if facts.writes == Writes::Allowed && is_awaited && !is_other {
            let expected = Action::Consistency(ConsistencyAction::Bits(bits));
            assert_eq!(decide(facts), expected, "{facts:?}");
        }
    });
}

/// A job's offsets reach superblocks while any other work is under way; a job continues when no
/// other action is due.
#[test]
fn a_job_is_not_forgotten() {
    for_all_of_jobs(&mut |facts| {
        let may = facts.writes == Writes::Allowed && facts.closing == Closing::No;
        let is_due = facts.superblocks.unsaved || facts.upkeep.job_flush || facts.upkeep.log_due;
        let is_due = is_due || facts.upkeep.job != JobAction::Wait;
        if is_still(facts) && may && is_due {
            assert!(!waits(facts), "{facts:?}");
        }
    });
}

/// Draining writes may wait for room in the journal, and the room for an update of superblocks.
#[test]
fn room_in_the_journal_is_said_while_the_gate_closes() {
    let unsaid: [Axis<'_, ArrayFacts>; 2] =
        [axis!(superblocks.unsaved: true), axis!(consistency.tail_unsaid: true)];
    for_all_of_consistency(&unsaid, &mut |facts| {
        let is_closing = facts.closing == Closing::Draining && facts.writes == Writes::Allowed;
        if is_still(facts) && is_closing {
            assert!(!waits(facts), "{facts:?}");
        }
    });
}

/// The array serves a request that waits for superblocks or caches as soon as these are free.
#[test]
fn what_is_asked_for_is_done_when_nothing_is_under_way() {
    for_all(&mut |facts| {
        let is_flush_due = facts.caches.flush_wanted && facts.caches.round == Round::None;
        if is_still(facts) && (facts.superblocks.write_wanted || is_flush_due) {
            assert!(!waits(facts), "{facts:?}");
        }
        let is_lost = facts.superblocks.unrecorded && facts.writes == Writes::Allowed;
        let is_lost = is_lost && facts.on_disk != Activity::NotKept;
        if is_still(facts) && is_lost && !facts.unpublished {
            assert_eq!(
                decide(facts),
                Action::Superblocks(SuperblocksAction::Record),
                "a loss comes first: {facts:?}"
            );
        }
    });
}
