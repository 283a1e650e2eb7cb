//! What must hold of the table, over products of facts: one for each question, since the product of
//! all is too large.

use super::super::consistency::{IntentAction, LogAction};
use super::*;

/// An array at rest: whatever a product is not about.
const AT_REST: ArrayFacts = ArrayFacts {
    unpublished: false,
    superblocks: Superblocks::Free,
    caches: Caches::Free,
    stopped: false,
    writes: Writes::Allowed,
    on_disk: Activity::Clean,
    unrecorded: false,
    absent: false,
    write_wanted: false,
    said_once: false,
    flush_wanted: false,
    round: Round::None,
    closing: Closing::No,
    held_up: false,
    idle: false,
    stopping: false,
    unsaved: false,
    replaces: false,
    log_due: false,
    log_out: false,
    job_flush: false,
    job: JobAction::Wait,
    has_job: false,
    consistency: ConsistencyFacts {
        bits: IntentAction::Wait,
        bits_out: false,
        bitmap_change: false,
        bitmap_left: false,
        log_change: Changing::No,
        logs: LogAction::Wait,
        logs_out: false,
        tail_unsaid: false,
    },
    spare_fits: false,
    errs: false,
    last_flush_done: false,
    last_round: Round::None,
};

/// One fact as it may be: each entry makes it so.
type Axis = &'static [fn(&mut ArrayFacts)];

/// What sets a fact.
macro_rules! set {
    ([$($fact:ident).+] $value:expr) => {
        |facts| facts.$($fact).+ = $value
    };
}

/// An axis of values, or of a fact that is so or not.
macro_rules! axis {
    ($($fact:ident).+) => { axis!($($fact).+: false, true) };
    ($($fact:ident).+: $($value:expr),+) => { axis!(@ [$($fact).+] $($value),+) };
    (@ $fact:tt $($value:expr),+) => {{
        const AXIS: Axis = &[$(set!($fact $value)),+];
        AXIS
    }};
}

const SUPERBLOCKS: Axis = axis!(superblocks: Superblocks::Free, Superblocks::Behind, Superblocks::Out,
    Superblocks::WaveDurable, Superblocks::Outdated, Superblocks::Unkept, Superblocks::Durable);
const WRITES: Axis = axis!(writes: Writes::Allowed, Writes::ReadOnly, Writes::Broken);
const ON_DISK: Axis = axis!(on_disk: Activity::Clean, Activity::Active, Activity::NotKept);
const CLOSING: Axis = axis!(closing: Closing::No, Closing::Draining, Closing::Drained);
const ROUND: Axis = axis!(round: Round::None, Round::UnderWay, Round::Over);
const LAST_ROUND: Axis = axis!(last_round: Round::None, Round::UnderWay, Round::Over);
const CACHES: Axis = axis!(caches: Caches::Free,
    Caches::Flushing(FlushPurpose::Clients), Caches::Flushed(FlushPurpose::Clients),
    Caches::Flushing(FlushPurpose::Last), Caches::Flushed(FlushPurpose::Last),
    Caches::Flushing(FlushPurpose::Job), Caches::Flushed(FlushPurpose::Job),
    Caches::Flushing(FlushPurpose::Bits), Caches::Flushed(FlushPurpose::Bits),
    Caches::Flushing(FlushPurpose::Logs), Caches::Flushed(FlushPurpose::Logs));

/// Every combination of these facts that is possible.
fn product(axes: &[Axis], check: &mut impl FnMut(&ArrayFacts)) {
    fn go(facts: ArrayFacts, axes: &[Axis], check: &mut impl FnMut(&ArrayFacts)) {
        let Some((axis, rest)) = axes.split_first() else {
            if is_possible(&facts) {
                check(&facts);
            }
            return;
        };
        for set in *axis {
            let mut facts = facts;
            set(&mut facts);
            go(facts, rest, check);
        }
    }
    go(AT_REST, axes, check);
}

/// Facts that the tables' own decisions do not rule out.
fn is_possible(facts: &ArrayFacts) -> bool {
    let ConsistencyFacts { bits, bits_out, bitmap_change, bitmap_left, .. } = facts.consistency;
    let ConsistencyFacts { log_change, logs, logs_out, .. } = facts.consistency;
    let is_behind = facts.superblocks == Superblocks::Behind;
    // What superblocks wait for is being written, or is to be; and what is broken waits for nothing
    // that is said before them.
    let is_awaited =
        bits_out || logs_out || bits == IntentAction::Write || logs == LogAction::Blank;
    let is_behind = !is_behind || is_awaited && facts.writes == Writes::Allowed;
    let is_last = matches!(
        facts.caches,
        Caches::Flushing(FlushPurpose::Last) | Caches::Flushed(FlushPurpose::Last)
    );
    // Nothing is written to superblocks from the last flush on, until they turn clean.
    let is_last = !is_last || facts.superblocks == Superblocks::Free;
    // One write of bitmaps at a time, and one change; and a bitmap is kept as long as members or
    // shards are at work on it.
    let is_once = bits != IntentAction::Write || !bits_out;
    let is_left = !bitmap_left || !bitmap_change && !bits_out;
    // Nothing is written while a change of logs goes on.
    let is_begun = !matches!(log_change, Changing::No | Changing::Wanted { .. });
    let is_at_rest = facts.on_disk == Activity::Clean && facts.closing == Closing::No;
    // What drains waits, if anything does.
    let is_held_up = !facts.held_up || facts.closing == Closing::Draining;
    // A job that waits to be flushed is there, and one that begins is not.
    let is_there = facts.has_job || !facts.job_flush;
    let is_new = facts.job != JobAction::Begin || !facts.has_job;
    is_behind
        && is_last
        && is_once
        && is_left
        && (!is_begun || is_at_rest)
        && is_held_up
        && is_there
        && is_new
}

/// Superblocks, caches, clients and the gate.
fn for_all(check: &mut impl FnMut(&ArrayFacts)) {
    let axes = [
        SUPERBLOCKS,
        axis!(caches: Caches::Free,
            Caches::Flushing(FlushPurpose::Clients), Caches::Flushed(FlushPurpose::Clients),
            Caches::Flushing(FlushPurpose::Last), Caches::Flushed(FlushPurpose::Last)),
        WRITES,
        ON_DISK,
        ROUND,
        LAST_ROUND,
        CLOSING,
        axis!(consistency.bits_out),
        axis!(unpublished),
        axis!(stopped),
        axis!(unrecorded),
        axis!(absent),
        axis!(write_wanted),
        axis!(said_once),
        axis!(flush_wanted),
        axis!(idle),
        axis!(stopping),
        axis!(last_flush_done),
    ];
    product(&axes, check);
}

/// Bits, records and changes of them, with the facts that they meet.
fn for_all_of_consistency(what: &[Axis], check: &mut impl FnMut(&ArrayFacts)) {
    let met = [
        axis!(superblocks: Superblocks::Free, Superblocks::Behind, Superblocks::Out),
        CACHES,
        WRITES,
        axis!(on_disk: Activity::Clean, Activity::Active),
        CLOSING,
        axis!(unpublished),
        axis!(unrecorded),
        axis!(write_wanted),
        axis!(said_once),
        axis!(flush_wanted),
        axis!(stopping),
        axis!(consistency.bits_out),
        axis!(consistency.bitmap_change),
        axis!(consistency.bitmap_left),
    ];
    product(&[what, &met].concat(), check);
}

const BITS: Axis = axis!(consistency.bits: IntentAction::Wait, IntentAction::Open,
    IntentAction::Write, IntentAction::Ask, IntentAction::Revoke, IntentAction::Flush,
    IntentAction::Forget, IntentAction::Clear);
const LOGS: Axis = axis!(consistency.logs: LogAction::Wait, LogAction::Blank, LogAction::Write,
    LogAction::Grant, LogAction::Flush);
const LOG_CHANGES: Axis = axis!(consistency.log_change: Changing::Wanted { makes: true },
    Changing::Wanted { makes: false }, Changing::UnderWay, Changing::ToWipe, Changing::Over);

fn for_all_of_bits(check: &mut impl FnMut(&ArrayFacts)) {
    for_all_of_consistency(&[BITS], check);
}

fn for_all_of_logs(check: &mut impl FnMut(&ArrayFacts)) {
    for_all_of_consistency(&[LOGS, axis!(consistency.logs_out)], check);
}

/// Superblocks are to say what is under way.
fn for_all_of_log_changes(check: &mut impl FnMut(&ArrayFacts)) {
    const UNSAVED: Axis = axis!(unsaved: true);
    for_all_of_consistency(&[LOG_CHANGES, axis!(held_up), UNSAVED], check);
}

/// Jobs, with the facts that they meet.
fn for_all_of_jobs(check: &mut impl FnMut(&ArrayFacts)) {
    let axes = [
        axis!(superblocks: Superblocks::Free, Superblocks::Out, Superblocks::Durable),
        CACHES,
        WRITES,
        ON_DISK,
        CLOSING,
        axis!(job: JobAction::Wait, JobAction::Begin, JobAction::Ask, JobAction::Save, JobAction::End),
        axis!(stopped),
        axis!(unrecorded),
        axis!(write_wanted),
        axis!(said_once),
        axis!(stopping),
        axis!(unsaved),
        axis!(job_flush),
        axis!(has_job),
        axis!(spare_fits),
        axis!(replaces),
        axis!(log_due),
        axis!(log_out),
        axis!(errs),
    ];
    product(&axes, check);
}

fn check(facts: &ArrayFacts) {
    let action = decide(facts);
    let ArrayFacts { superblocks, caches, writes, on_disk, round, closing, .. } = *facts;
    let may_write = writes == Writes::Allowed;
    let is_free = superblocks == Superblocks::Free;
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
    if begins_update {
        assert!(may_write, "superblocks only change where writes are allowed: {facts:?}");
        assert!(is_free, "one update at a time: {facts:?}");
        let is_last = caches == Caches::Flushing(FlushPurpose::Last);
        assert!(!is_last, "nothing changes between the last flush and clean: {facts:?}");
    }
    match action {
        Action::Replace => {
            assert!(may_write && facts.replaces && !facts.unsaved, "said first: {facts:?}");
        }
        Action::TurnClean => {
            assert_eq!(caches, Caches::Flushed(FlushPurpose::Last), "flushed: {facts:?}");
            let is_waiting = facts.write_wanted && facts.consistency.log_change == Changing::No;
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
            assert!(is_free && caches == Caches::Free, "{facts:?}");
            let is_drained = closing == Closing::Drained || on_disk == Activity::NotKept;
            assert!(is_drained, "no write is under way: {facts:?}");
        }
        Action::CloseGate => {
            assert!(on_disk == Activity::Active && may_write, "{facts:?}");
            assert!(closing == Closing::No && !facts.unrecorded, "{facts:?}");
            assert!(is_free, "what is written may open it: {facts:?}");
        }
        Action::OpenGate => {
            let is_allowed = on_disk != Activity::Clean || !may_write;
            assert!(is_allowed, "I2: no write begins under clean superblocks: {facts:?}");
        }
        Action::FlushForJob => {
            assert!(caches == Caches::Free && may_write, "{facts:?}");
            assert!(is_free, "what it counts is recorded next: {facts:?}");
        }
        Action::RecordChanges | Action::TakeSpare => {
            let frees_room = action == Action::RecordChanges && facts.consistency.tail_unsaid;
            let may_be = closing == Closing::No || frees_room && closing == Closing::Draining;
            assert!(may_be, "what is drained turns clean: {facts:?}");
            assert!(!facts.unrecorded || on_disk == Activity::NotKept, "a loss first: {facts:?}");
        }
        Action::WriteBadBlocks => assert!(may_write && facts.log_due, "{facts:?}"),
        Action::Consistency(action) => check_consistency(action, facts),
        Action::Stop => {
            let is_out = facts.log_out || facts.consistency.bits_out || facts.consistency.logs_out;
            assert!(!is_out, "nothing is under way: {facts:?}");
            assert!(!facts.has_job, "a job ends first: {facts:?}");
            let is_still = is_free && caches == Caches::Free;
            assert!(is_still && round == Round::None && !facts.flush_wanted, "{facts:?}");
            assert!(!(may_write && on_disk == Activity::Active), "it turns clean: {facts:?}");
        }
        Action::Wait => assert!(is_ended(facts), "something will end it: {facts:?}"),
        _ => {}
    }
}

/// What its own table cannot know of the others.
fn check_consistency(action: ConsistencyAction, facts: &ArrayFacts) {
    match action {
        ConsistencyAction::ChangeLogs | ConsistencyAction::ChangeBitmap => {
            assert!(!facts.unrecorded, "a loss first: {facts:?}");
        }
        ConsistencyAction::DropBitmap => {
            assert!(!facts.consistency.bits_out, "members are not at work on it: {facts:?}");
        }
        _ => {}
    }
}

/// Who ends a wait: a member, a shard, the clock, a client; or it is over.
fn is_ended(facts: &ArrayFacts) -> bool {
    let member =
        facts.superblocks == Superblocks::Out || matches!(facts.caches, Caches::Flushing(_));
    let member =
        member || facts.log_out || facts.consistency.bits_out || facts.consistency.logs_out;
    let shard = facts.round == Round::UnderWay
        || facts.closing == Closing::Draining
        || facts.last_round == Round::UnderWay;
    let job = facts.has_job;
    // Nothing is asked for that could be done; nor is it before logs are changed, which goes on.
    let is_waiting = facts.write_wanted && facts.consistency.log_change == Changing::No;
    let nothing = !is_waiting && !facts.flush_wanted && facts.round == Round::None;
    member || shard || job || facts.stopped || nothing && !facts.stopping
}

#[test]
fn the_table_keeps_its_promises() {
    for_all(&mut check);
    for_all_of_bits(&mut check);
    for_all_of_logs(&mut check);
    for_all_of_log_changes(&mut check);
    for_all_of_jobs(&mut check);
}

fn is_still(facts: &ArrayFacts) -> bool {
    facts.superblocks == Superblocks::Free && facts.caches == Caches::Free && !facts.stopped
}

/// Logs are made or given up however many want to write, and meanwhile no write begins.
#[test]
fn logs_are_changed_while_nothing_is_written() {
    for_all_of_log_changes(&mut |facts| {
        let action = decide(facts);
        if facts.writes != Writes::Allowed {
            return;
        }
        let begins_writes = matches!(action, Action::TurnActive | Action::OpenGate);
        assert!(!begins_writes || facts.held_up, "{facts:?}");
        let is_awaited = facts.closing == Closing::Draining || facts.consistency.bits_out;
        if is_still(facts) && (!is_awaited || facts.held_up && facts.write_wanted) {
            assert_ne!(action, Action::Wait, "something is done about it: {facts:?}");
        }
    });
}

#[test]
fn what_is_to_be_logged_is_not_forgotten() {
    for_all_of_logs(&mut |facts| {
        let is_due = facts.consistency.logs != LogAction::Wait && facts.writes == Writes::Allowed;
        if is_still(facts) && is_due {
            assert_ne!(decide(facts), Action::Wait, "{facts:?}");
        }
    });
}

/// A bitmap is made or given up, however many write.
#[test]
fn a_bitmap_is_changed_though_clients_write() {
    for_all_of_bits(&mut |facts| {
        let may = facts.writes == Writes::Allowed && !facts.unpublished && !facts.unrecorded;
        let ConsistencyFacts { bitmap_change, bitmap_left, .. } = facts.consistency;
        if is_still(facts) && may && bitmap_change && !facts.write_wanted && !bitmap_left {
            let changes = Action::Consistency(ConsistencyAction::ChangeBitmap);
            assert_eq!(decide(facts), changes, "{facts:?}");
        }
    });
}

/// What shards or superblocks wait for is done whatever else goes on.
#[test]
fn a_bit_is_not_forgotten() {
    for_all_of_bits(&mut |facts| {
        let bits = facts.consistency.bits;
        let is_awaited = matches!(bits, IntentAction::Open | IntentAction::Write);
        let is_other = matches!(
            decide(facts),
            Action::Publish
                | Action::Answer
                | Action::FlushAgain
                | Action::TurnClean
                | Action::DropClose
                | Action::NoteOffsets
                | Action::BitsOrLogsFlushed(_)
                | Action::Record
                | Action::TurnActive
                | Action::OpenGate
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

/// What a job has done comes into superblocks, whatever else goes on, and a job is heard when
/// nothing else is to be done.
#[test]
fn a_job_is_not_forgotten() {
    for_all_of_jobs(&mut |facts| {
        let may = facts.writes == Writes::Allowed && facts.closing == Closing::No;
        let is_due = facts.unsaved || facts.job_flush || facts.log_due;
        let is_due = is_due || facts.job != JobAction::Wait;
        if is_still(facts) && may && is_due {
            assert_ne!(decide(facts), Action::Wait, "{facts:?}");
        }
    });
}

/// What drains may wait for room in the journal, and that for superblocks.
#[test]
fn room_in_the_journal_is_said_while_the_gate_closes() {
    const UNSAID: [Axis; 2] = [axis!(unsaved: true), axis!(consistency.tail_unsaid: true)];
    for_all_of_consistency(&UNSAID, &mut |facts| {
        let is_closing = facts.closing == Closing::Draining && facts.writes == Writes::Allowed;
        if is_still(facts) && is_closing {
            assert_ne!(decide(facts), Action::Wait, "{facts:?}");
        }
    });
}

/// Whatever waits for superblocks or caches is not forgotten when they are free.
#[test]
fn what_is_asked_for_is_done_when_nothing_is_under_way() {
    for_all(&mut |facts| {
        let is_flush_due = facts.flush_wanted && facts.round == Round::None;
        if is_still(facts) && (facts.write_wanted || is_flush_due) {
            assert_ne!(decide(facts), Action::Wait, "{facts:?}");
        }
        let is_lost = facts.unrecorded && facts.writes == Writes::Allowed;
        let is_lost = is_lost && facts.on_disk != Activity::NotKept;
        if is_still(facts) && is_lost && !facts.unpublished {
            assert_eq!(decide(facts), Action::Record, "a loss comes first: {facts:?}");
        }
    });
}
