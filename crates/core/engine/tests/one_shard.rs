//! One shard of a stripe cache, driven by hand: orders of events that the simulator meets too
//! rarely.

use std::sync::Arc;

use braid_engine::array::{ArrayView, MemberId};
use braid_engine::buffer::Buffer;
use braid_engine::cause::{Answer, Cause, RequestKind};
use braid_engine::effect::{
    CacheRecord, CachedWriteId, FaultKind, MemberIo, MemberOperation, PieceReply, Report,
    SlowMembers,
};
use braid_engine::ids::WorkId;
use braid_engine::request::Operation;
use braid_engine::work::{Class, Outcome, Purpose, Task, Work};
use braid_engine::{CacheConfig, CacheMode, Tuning};
use braid_geometry::{Geometry, Level, Shape};

use super::bed::{OneShard, WRITE};

fn view() -> ArrayView {
    let shape = Shape::uniform(Level::Raid5, 2, 128, 4, 128 * 100_000);
    ArrayView::consistent(Geometry::new(&shape).expect("a plain shape"))
}

fn one_shard(tuning: Tuning) -> OneShard {
    one_shard_with_file(tuning, None)
}

/// A driver with a file for acknowledged writes.
fn one_shard_with_file(tuning: Tuning, cached_blocks_max: Option<u32>) -> OneShard {
    let cache = CacheConfig { unit_sectors_max: 128, stripes_max: 4096, cached_blocks_max, tuning };
    OneShard::new(cache, Arc::new(view()))
}

fn tuning() -> Tuning {
    Tuning { stripes: 4, mode: CacheMode::WriteBack, age_max_ms: 50, ..Tuning::default() }
}

#[test]
fn a_hot_dirty_block_is_written_while_it_is_read() {
    let mut driver = one_shard(tuning());
    driver.ask(WRITE, 0, 1);
    driver.ask(Operation::Read, 0, 1);
    driver.handle(|shard, now| shard.handle_write_back(now, 1));
    for _ in 0..1000 {
        driver.ask(Operation::Read, 0, 1); // The next read comes before the last copy ends.
        driver.computation();
        driver.now += 1_000_000_000;
        driver.handle(|shard, now| shard.handle_timeout(now));
    }
    assert!(
        !driver.ios.is_empty(),
        "1000 s, age limit 50 ms, a flush waits, and nothing was begun"
    );
}

#[test]
fn a_cache_made_smaller_still_serves_the_line() {
    let mut driver = one_shard(Tuning { age_max_ms: 3_600_000, ..tuning() });
    for row in 0..4 {
        driver.ask(WRITE, row * 384, 1);
    }
    driver.handle(|shard, now| {
        shard.handle_tuning(now, Tuning { stripes: 1, age_max_ms: 3_600_000, ..tuning() })
    });
    driver.run();
    let w = driver.ask(WRITE, 9 * 384, 1);
    driver.run();
    assert!(driver.answered(w), "waits for the age limit of the last stripe in use");
}

/// Thousands of small writes to one band: each costs as little as the first.
#[test]
fn a_hot_sector_takes_its_own_place_however_long_the_queue() {
    let settings = Tuning { age_max_ms: 3_600_000, dirty_sectors_max: 1 << 20, ..tuning() };
    let mut driver = one_shard(settings);
    for sector in 0..100 {
        driver.ask(WRITE, 2 * sector, 1);
    }
    for _ in 0..1000 {
        driver.ask(WRITE, 300, 1);
    }
    assert_eq!(driver.shard.counters().cache.superseded_writes, 999);
    assert_eq!(driver.shard.dirty_sectors(), 101);
}

/// The payload of a whole request is kept until the last of its parts is written, and counts as
/// dirty for that long.
#[test]
fn no_more_payload_is_kept_than_the_dirty_limit_allows() {
    let limit = 4096;
    let settings =
        Tuning { stripes: 256, age_max_ms: 3_600_000, dirty_sectors_max: limit, ..tuning() };
    let mut driver = one_shard(settings);
    let sectors = 5 * 384 + 1;
    for request in 0..200 {
        driver.ask(WRITE, request * 2304, sectors);
        driver.run();
        let kept = driver.replies.iter().filter(|reply| reply.keeps_payload).count();
        let kept = (kept - driver.releases.len()) as u64 * u64::from(sectors);
        assert!(kept <= u64::from(limit), "{kept}");
        assert_eq!(kept, driver.shard.dirty_sectors());
    }
}

/// A driver that serves readers and the flusher in turns needs the purpose of each read.
#[test]
fn what_is_read_for_a_write_is_told_from_what_is_read_for_a_client() {
    let mut d = one_shard(Tuning { mode: CacheMode::WriteThrough, ..tuning() });
    d.ask(Operation::Read, 0, 8);
    let past_the_stripes = d.ios.pop_front().expect("a read");
    assert_eq!(d.shard.purpose_of(&past_the_stripes), Purpose::Client);
    let fault = past_the_stripes.fault(FaultKind::Media, 0, Answer::Os(5));
    d.end(&past_the_stripes, Err(fault));
    assert!(!d.ios.is_empty(), "it is read through its stripe");
    assert!(d.ios.iter().all(|io| d.shard.purpose_of(io) == Purpose::Client));
    d.run();
    d.ask(Operation::Write { durable: true }, 128 * 3 * 50, 8);
    assert!(!d.ios.is_empty());
    for io in &d.ios {
        let is_read = matches!(io.operation, MemberOperation::Read { .. });
        assert!(is_read && d.shard.purpose_of(io) == Purpose::Write, "{io:?}");
    }
    d.run();
}

/// Makes a read whose requests all fail with `answer`. Returns the requests, their causes, and the
/// reply.
fn read_that_fails(answer: Answer) -> (Vec<MemberIo>, Vec<Cause>, PieceReply) {
    let mut d = one_shard(tuning());
    let request = d.ask(Operation::Read, 0, 8);
    let (mut asked, mut causes) = (Vec::new(), Vec::new());
    while let Some(io) = d.ios.pop_front() {
        let fault = io.fault(FaultKind::Media, 2048, answer);
        d.end(&io, Err(fault));
        asked.push(io);
        causes.push(fault.cause);
    }
    let reply = d.reply(request).expect("an answer");
    (asked, causes, *reply)
}

/// Guards against an old bug: a client's error did not name the member, the sector and the error
/// that caused it.
#[test]
fn a_read_that_fails_is_answered_with_what_failed() {
    let (asked, causes, reply) = read_that_fails(Answer::Os(5));
    assert!(reply.result.is_err() && asked.len() > 1);
    assert_eq!(reply.cause.as_ref(), causes.last());
    let (last, cause) = (asked.last().expect("a request"), reply.cause.expect("a cause"));
    assert_eq!((cause.member, cause.asked), (last.member, RequestKind::Read));
    assert_eq!((cause.sector, cause.sectors), (2048 + last.sector.0, last.sectors));
}

#[test]
fn a_read_that_is_reconstructed_is_answered_without_a_cause() {
    let mut d = one_shard(tuning());
    let request = d.ask(Operation::Read, 0, 8);
    let io = d.ios.pop_front().expect("a read");
    let fault = io.fault(FaultKind::Media, 0, Answer::Os(5));
    d.end(&io, Err(fault));
    d.run();
    let reply = d.reply(request).expect("an answer");
    assert_eq!((reply.result, reply.cause), (Ok(()), None));
}

#[test]
fn a_cause_changes_nothing_but_what_is_said() {
    let (asked, _, reply) = read_that_fails(Answer::Os(5));
    for answer in [Answer::Os(28), Answer::CutShort, Answer::Injected] {
        let (other_asked, _, other) = read_that_fails(answer);
        assert_eq!(other_asked, asked);
        assert_eq!(PieceReply { cause: None, ..other }, PieceReply { cause: None, ..reply });
    }
}

/// The first sector and the length of each copy that was put into the cache file, and the name of
/// each copy that was erased, in order.
fn records(driver: &mut OneShard) -> Vec<Result<(u64, u32), CachedWriteId>> {
    let record = |record| match record {
        CacheRecord::Put(run) => Ok((run.start.0, run.sectors)),
        CacheRecord::Erase(id) => Err(id),
    };
    driver.records.drain(..).map(record).collect()
}

#[test]
fn an_unanswered_write_is_put_in_place_of_the_answered_one_it_covers() {
    let mut driver = one_shard_with_file(Tuning { age_max_ms: 3_600_000, ..tuning() }, Some(100));
    let older = driver.ask(WRITE, 0, 8);
    assert!(driver.answered(older));
    assert_eq!(records(&mut driver), [Ok((0, 8))]);
    let newer = driver.ask(Operation::Write { durable: true }, 0, 16);
    assert!(!driver.answered(newer));
    let erased = Err(CachedWriteId(0));
    assert_eq!(records(&mut driver), [Ok((0, 16)), erased], "never without a copy of either");
    driver.run();
    assert!(driver.answered(newer));
    assert_eq!(records(&mut driver), [Err(CachedWriteId(1))], "the members have it");
}

#[test]
fn a_write_that_finds_no_room_waits_for_the_members() {
    let mut driver = one_shard_with_file(Tuning { age_max_ms: 3_600_000, ..tuning() }, Some(2));
    let first = driver.ask(WRITE, 0, 9);
    assert!(driver.answered(first), "two blocks");
    let second = driver.ask(WRITE, 1000 * 384, 1);
    assert!(!driver.answered(second));
    assert_eq!(records(&mut driver), [Ok((0, 9))]);
    driver.run();
    assert!(driver.answered(second));
}

/// A write over two columns has a copy for each column. One erased name removes both copies.
#[test]
fn a_write_over_two_columns_is_erased_at_once() {
    let mut driver = one_shard_with_file(Tuning { age_max_ms: 3_600_000, ..tuning() }, Some(100));
    driver.ask(WRITE, 120, 16);
    assert_eq!(records(&mut driver), [Ok((120, 8)), Ok((128, 8))]);
    driver.handle(|shard, now| shard.handle_write_back(now, 1));
    driver.run();
    assert_eq!(records(&mut driver), [Err(CachedWriteId(0))]);
}

/// The first view, without the member in `slot`.
fn without(slot: usize) -> Arc<ArrayView> {
    let mut view = view();
    view.epoch += 1;
    view.slots[slot] = None;
    Arc::new(view)
}

/// Guards against an old bug: a disk that hung held up clients and stripes of its array. That
/// lasted as long as the disk hung, even after the operator had put the disk out.
#[test]
fn a_write_does_not_wait_for_a_member_that_has_left() {
    let mut driver = one_shard(Tuning { mode: CacheMode::WriteThrough, ..tuning() });
    let first = driver.ask(WRITE, 0, 384);
    driver.computation();
    let (hung, others): (Vec<_>, Vec<_>) =
        driver.ios.drain(..).partition(|io| io.member == MemberId(0));
    let of_payload = |io: &MemberIo| {
        matches!(io.operation, MemberOperation::Write { buffer: Buffer::Payload { .. }, .. })
    };
    assert!(!hung.is_empty() && hung.iter().all(of_payload), "its column is written straight");
    driver.ios.extend(others);
    driver.run();
    assert!(!driver.answered(first), "it waits for the member");
    driver.turn(without(0));
    let reply = driver.reply(first).expect("answered");
    assert!(reply.result.is_ok() && reply.keeps_payload, "its payload is still written");
    // A client writes to the same stripe again meanwhile.
    let second = driver.ask(WRITE, 0, 8);
    driver.run();
    assert!(driver.answered(second) && driver.releases.is_empty());
    hung.iter().for_each(|io| driver.end(io, Ok(())));
    assert_eq!(driver.releases, [first], "and given back when the member has ended");
    assert!(driver.shard.is_idle());
}

/// A late read of a member that has left must not land in a block that another batch uses.
#[test]
fn a_batch_that_was_reading_a_member_begins_again_in_other_memory() {
    let mut driver = one_shard(Tuning { mode: CacheMode::WriteThrough, ..tuning() });
    let first = driver.ask(WRITE, 0, 8);
    let block_of = |io: &MemberIo| match io.operation {
        MemberOperation::Read { buffer } | MemberOperation::Write { buffer, .. } => buffer,
        MemberOperation::Zero { .. } => panic!("nothing is zeroed"),
    };
    let hung = driver.ios.iter().position(|io| !io.operation.is_write()).expect("it reads");
    let hung = driver.ios.remove(hung).expect("just seen");
    driver.run();
    assert!(!driver.answered(first));
    driver.turn(without(usize::from(hung.slot.0)));
    let others: Vec<_> = driver.ios.iter().map(block_of).collect();
    assert!(!others.contains(&block_of(&hung)), "{others:?}");
    driver.run();
    assert!(driver.answered(first) && !driver.shard.is_idle());
    driver.end(&hung, Ok(()));
    assert!(driver.shard.is_idle());
}

/// Guards against an old bug: a check kept its bands from clients for as long as a stalled member
/// kept the check waiting.
#[test]
fn background_work_gives_its_band_up_when_a_member_sits_out() {
    let mut driver = one_shard(Tuning { mode: CacheMode::WriteThrough, ..tuning() });
    let id = WorkId(5);
    let (class, task) = (Class::BestEffort, Task::Compare);
    let work = Work { id, class, task, start: 0, sectors: 128 };
    driver.handle(|shard, now| shard.handle_work(now, work));
    let stalled = driver.ios.pop_front().expect("it reads");
    driver.run();
    assert!(driver.reports.is_empty(), "it waits for the member");
    let sitting_out = vec![stalled.member];
    let slow_members = SlowMembers { number: 1, watches: true, write_slack_ms: 0, sitting_out };
    driver.handle(|shard, now| shard.handle_slow_members(now, Arc::new(slow_members)));
    let sits_out = Report::WorkDone { id, outcome: Outcome::SitsOut };
    assert!(driver.reports.contains(&sits_out), "{:?}", driver.reports);
}
