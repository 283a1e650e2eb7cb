//! Drives one job by hand: its requests, and its reaction to the answers.

use super::*;
use braid_geometry::{Geometry, Shape};
use std::collections::{BTreeMap as Map, BTreeSet};

use crate::array::roster::{LossCause, Roster};
use crate::array::view::MemberView;
use crate::cause::Cause;
use crate::request::Regions;
use crate::work::Class;

const NOW: Instant = Instant(1_000_000_000);

fn roster(slots: u16, recovering: &[(u16, u64)]) -> Roster {
    let view = |slot: u16| {
        let found = recovering.iter().find(|(one, _)| *one == slot);
        Some(MemberView::new(MemberId(slot), found.map_or(u64::MAX, |(_, at)| *at)))
    };
    let numbers: Map<MemberId, u16> = (0..slots).map(|slot| (MemberId(slot), slot)).collect();
    Roster::new((0..slots).map(view).collect(), numbers, BTreeSet::new())
}

fn geometry(level: Level, layout: u32, slots: u16) -> Geometry {
    let shape =
        Shape::uniform(level, layout, if level == Level::Raid1 { 0 } else { 128 }, slots, 1024);
    Geometry::new(&shape).expect("a plain shape")
}

fn context<'a>(geometry: &'a Geometry, roster: &'a Roster, resync_offset: u64) -> JobsContext<'a> {
    let regions = Regions::new(geometry, 2);
    JobsContext {
        lazy: None,
        geometry,
        regions,
        work_sectors: 128,
        roster,
        resync_offset,
        resync_end: u64::MAX,
        doubt: None,
        may_run: true,
        may_save: true,
        are_logs_settled: true,
    }
}

fn ask_all(jobs: &mut Jobs, context: &JobsContext<'_>) -> Vec<Work> {
    let mut works = Vec::new();
    while matches!(jobs.facts(NOW, context, false), Facts { has_more: true, is_allowed: true, .. })
    {
        works.extend(jobs.ask(NOW, context).map(|(_, work)| work));
    }
    works
}

#[test]
fn an_offset_counts_when_it_was_flushed() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
    let context = context(&geometry, &roster, 200);
    let mut jobs = Jobs::default();
    assert!(jobs.facts(NOW, &context, false).is_due);
    assert_eq!(jobs.begin(NOW, &context).from, 128, "a band is done whole");
    let works = ask_all(&mut jobs, &context);
    let starts: Vec<u64> = works.iter().map(|work| work.start).collect();
    assert_eq!(starts, [128, 256, 384, 512, 640, 768, 896]);
    let done = Outcome::Done { written: 1 };
    jobs.work_done(NOW, works[0].id, done);
    jobs.work_done(NOW, works[2].id, done);
    jobs.save();
    assert!(jobs.wants_flush());
    assert_eq!(jobs.flush_begins(), None, "parity lies on every member");
    // This work ends after the flush began, so its data may not be durable.
    jobs.work_done(NOW, works[1].id, done);
    assert_eq!(jobs.flush_ended(NOW), Some(SavedProgress::Resync(256)));
    for work in &works[3..] {
        jobs.work_done(NOW, work.id, done);
    }
    assert!(jobs.facts(NOW, &context, false).is_over);
    jobs.save();
    jobs.flush_begins();
    assert_eq!(jobs.flush_ended(NOW), Some(SavedProgress::Resync(u64::MAX)));
    let (progress, end) = jobs.end(&context);
    assert_eq!((progress.written, end), (7, JobEnd::Completed));
}

#[test]
fn a_job_ends_when_its_work_is_back() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[(1, 0)]));
    let context = context(&geometry, &roster, u64::MAX);
    let mut jobs = Jobs::default();
    jobs.begin(NOW, &context);
    let works = ask_all(&mut jobs, &context);
    assert!(works.iter().all(|work| work.task == Task::Recover));
    assert_eq!(jobs.work_done(NOW, works[0].id, Outcome::Unwritten), None);
    let facts = jobs.facts(NOW, &context, false);
    assert!(!facts.goes_on && facts.is_out, "{facts:?}");
    for work in &works[1..] {
        jobs.work_done(NOW, work.id, Outcome::Done { written: 1 });
    }
    let facts = jobs.facts(NOW, &context, false);
    assert!(!facts.is_out && !facts.has_unsaved, "the first was not done: {facts:?}");
    assert_eq!(jobs.end(&context).1, JobEnd::Unwritten);
    assert!(!jobs.facts(NOW, &context, false).is_due, "nothing has changed since");
    jobs.membership_changed();
    assert!(jobs.facts(NOW, &context, false).is_due);
}

#[test]
fn a_job_says_once_that_it_has_passed_a_part_of_its_way() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
    // The resync covers sectors 256 to 1024.
    let context = context(&geometry, &roster, 256);
    let mut jobs = Jobs::default();
    jobs.begin(NOW, &context);
    let works = ask_all(&mut jobs, &context);
    let mut said = Vec::new();
    for work in &works {
        jobs.work_done(NOW, work.id, Outcome::Done { written: 0 });
        said.extend(jobs.passed().map(|progress| progress.done));
        assert_eq!(jobs.passed(), None, "once");
    }
    assert_eq!(said, [512, 640, 896], "beyond 410, 615 and 820");
}

#[test]
fn what_cannot_be_made_is_asked_for_by_blocks_and_sectors_and_then_given_up() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[(1, 0)]));
    let mut context = context(&geometry, &roster, u64::MAX);
    let mut jobs = Jobs::default();
    jobs.begin(NOW, &context);
    let works = ask_all(&mut jobs, &context);
    let unmade = Outcome::Unmade { written: 0 };
    assert_eq!(jobs.work_done(NOW, works[2].id, unmade), None);
    let ranges = |works: &[Work]| -> Vec<(u64, u32)> {
        works.iter().map(|work| (work.start, work.sectors)).collect()
    };
    let blocks = ask_all(&mut jobs, &context);
    let expected: Vec<(u64, u32)> = (0..16).map(|index| (256 + 8 * index, 8)).collect();
    assert_eq!(ranges(&blocks), expected);
    assert_eq!(jobs.work_done(NOW, blocks[3].id, unmade), None);
    let sectors = ask_all(&mut jobs, &context);
    assert_eq!(ranges(&sectors), (280..288).map(|at| (at, 1)).collect::<Vec<_>>());
    let lost = BadRange { start: MemberSector(283), sectors: 1 };
    jobs.lacks(sectors[3].id, MemberId(1), lost);
    let lacks = vec![(MemberId(1), lost)];
    let expected = Some(UnmadeSector { at: 283, fills: true, lacks });
    assert_eq!(jobs.work_done(NOW, sectors[3].id, unmade), expected);
    assert!(!jobs.has_marked(MemberId(1), lost));
    jobs.marks(MemberId(1), lost);
    // The job does not repeat the sector before logs name it.
    context.are_logs_settled = false;
    assert!(ask_all(&mut jobs, &context).is_empty());
    context.are_logs_settled = true;
    let again = ask_all(&mut jobs, &context);
    assert_eq!(ranges(&again), [(283, 1)]);
    jobs.lacks(again[0].id, MemberId(1), lost);
    assert_eq!(jobs.work_done(NOW, again[0].id, unmade), expected);
    assert!(jobs.has_marked(MemberId(1), lost));
    jobs.gives_up(283, 1);
    let left = [&works[..2], &works[3..], &blocks[..3], &blocks[4..]].concat();
    let sectors = [&sectors[..3], &sectors[4..]].concat();
    for work in left.iter().chain(&sectors) {
        jobs.work_done(NOW, work.id, Outcome::Done { written: work.sectors });
    }
    let facts = jobs.facts(NOW, &context, false);
    assert!(facts.is_over && facts.goes_on, "{facts:?}");
    assert_eq!(jobs.progress().expect("it is there").unmade, 1);
}

#[test]
fn what_a_slow_member_held_up_is_asked_for_again_later() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
    let context = context(&geometry, &roster, 0);
    let mut jobs = Jobs::default();
    jobs.begin(NOW, &context);
    let works = ask_all(&mut jobs, &context);
    assert_eq!(works.len(), 8);
    jobs.work_done(NOW, works[3].id, Outcome::SitsOut);
    assert!(!jobs.facts(NOW, &context, false).has_more);
    let at = jobs.poll_timeout(&context).expect("the clock ends it");
    assert!(at > NOW && jobs.facts(at, &context, false).has_more);
    let (_, work) = jobs.ask(at, &context).expect("a band lies there");
    assert_eq!((work.start, work.id > works[7].id), (works[3].start, true));
    assert_eq!(jobs.poll_timeout(&context), None, "the shards end what comes");
}

/// Guards against an old bug: if more work came back than fits into one round, the job repeated all
/// of it before it looked at the clock. While a member sat out, the job repeated the same work at
/// full processor load.
#[test]
fn what_sits_out_is_not_asked_for_again_at_once_where_more_waits() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
    let context = context(&geometry, &roster, 0);
    let mut jobs = Jobs::default();
    jobs.begin(NOW, &context);
    for work in ask_all(&mut jobs, &context) {
        jobs.work_done(NOW, work.id, Outcome::SitsOut);
    }
    let at = jobs.poll_timeout(&context).expect("the clock ends it");
    let (_, work) = jobs.ask(at, &context).expect("a band lies there");
    jobs.work_done(at, work.id, Outcome::SitsOut);
    assert!(!jobs.facts(at, &context, false).has_more, "seven others wait as well");
    assert!(jobs.poll_timeout(&context).is_some_and(|later| later > at));
}

/// A member with a replacement fails, and the replacement gets its slot. Shards see the member
/// until superblocks record the loss. Guards against an old bug: a recovery that began before that
/// record asked shards to fill another member as well. Then shards believed unfilled sectors of the
/// replacement.
#[test]
fn no_job_begins_before_superblocks_tell_of_every_loss() {
    let geometry = geometry(Level::Raid6, 2, 5);
    let mut roster = roster(5, &[(1, 0)]);
    assert!(Jobs::default().is_due(&context(&geometry, &roster, u64::MAX)));
    roster.take_out(Slot(0), LossCause::Failed(Cause::person(MemberId(0))));
    assert!(!Jobs::default().is_due(&context(&geometry, &roster, u64::MAX)));
    roster.take_unrecorded();
    assert!(Jobs::default().is_due(&context(&geometry, &roster, u64::MAX)));
}

/// A job requests as much as its allowance, no more, and in the class of the allowance.
#[test]
fn a_job_asks_for_what_it_is_allowed() {
    let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[(1, 0)]));
    let context = context(&geometry, &roster, u64::MAX);
    let mut jobs = Jobs::default();
    let allow = |jobs: &mut Jobs, idle_sectors, owed_sectors| {
        jobs.handle_allowance(JobAllowance { idle_sectors, owed_sectors });
    };
    allow(&mut jobs, 1 << 20, 0);
    jobs.begin(NOW, &context);
    let facts = jobs.facts(NOW, &context, false);
    assert!(facts.has_more && !facts.is_allowed, "what was allowed before it began is not its");
    allow(&mut jobs, 256, 128);
    let works = ask_all(&mut jobs, &context);
    let classes: Vec<Class> = works.iter().map(|work| work.class).collect();
    assert_eq!(classes, [Class::BestEffort, Class::Idle, Class::Idle]);
    jobs.work_done(NOW, works[0].id, Outcome::Done { written: 1 });
    jobs.work_done(NOW, works[1].id, Outcome::SitsOut);
    assert!(!jobs.facts(NOW, &context, false).is_allowed);
    let JobFlow { idle, owed } = jobs.flow();
    assert_eq!([idle.begun_sectors, idle.ended_sectors], [256, 128]);
    assert_eq!([owed.begun_sectors, owed.ended_sectors], [128, 128]);
    // An empty allowance keeps the job asleep, even if it has work to repeat.
    let at = NOW.plus_milliseconds(REPEAT_AFTER_MS);
    assert!(jobs.poll_timeout(&context).is_none_or(|due| due > at));
    allow(&mut jobs, 128, 0);
    assert_eq!(jobs.poll_timeout(&context), Some(at));
}

/// A recovery requests every sector of the slot's member once, whatever the layout.
#[test]
fn copies_are_asked_for_in_the_order_of_the_member() {
    for (level, layout) in [
        (Level::Raid1, 0),
        (Level::Raid10, 0x102),
        (Level::Raid10, 0x201),
        (Level::Raid10, 0x10201),
    ] {
        let (geometry, roster) = (geometry(level, layout, 4), roster(4, &[(2, 0)]));
        let Geometry::Mirror(mirror) = &geometry else { unreachable!("a mirror") };
        let context = context(&geometry, &roster, u64::MAX);
        let mut jobs = Jobs::default();
        jobs.begin(NOW, &context);
        let mut next = 0;
        for work in ask_all(&mut jobs, &context) {
            let (first, _) = mirror.logical(Slot(2), MemberSector(next)).expect("it is there");
            assert_eq!(work.start, first.0, "{level:?} {layout:#x}");
            next += u64::from(work.sectors);
        }
        assert_eq!(next, mirror.used_sectors(), "{level:?} {layout:#x}");
    }
}

/// Members of RAID-10 have different layouts, so they are recovered one after the other.
#[test]
fn members_that_lie_alike_are_recovered_together() {
    let two = [(1, 0), (2, 256)];
    for (level, layout, together) in
        [(Level::Raid6, 2, true), (Level::Raid1, 0, true), (Level::Raid10, 0x102, false)]
    {
        let (geometry, roster) = (geometry(level, layout, 5), roster(5, &two));
        let context = context(&geometry, &roster, u64::MAX);
        let mut jobs = Jobs::default();
        jobs.begin(NOW, &context);
        jobs.save();
        let targets = jobs.flush_begins().expect("only targets are flushed");
        assert_eq!(targets.len(), if together { 2 } else { 1 }, "{level:?}");
    }
}
