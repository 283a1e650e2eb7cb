//! Tests of the scheduler by itself: no stripe, no member, no bytes.

use super::*;

#[derive(Clone, Copy, Debug, Default)]
struct TestWork {
    full: bool,
    awaited: bool,
    flushed: bool,
    expected: bool,
}

impl QueuedWork for TestWork {
    fn is_full(&self) -> bool {
        self.full
    }

    fn is_awaited(&self) -> bool {
        self.awaited
    }

    fn is_flushed(&self) -> bool {
        self.flushed
    }

    fn expects_flush(&self) -> bool {
        self.expected
    }
}

const PART: TestWork = TestWork { full: false, awaited: false, flushed: false, expected: false };
const AWAITED: TestWork = TestWork { awaited: true, ..PART };
const FULL: TestWork = TestWork { full: true, ..PART };

fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::new(Tuning { age_max_ms: 100, ..Tuning::default() });
    scheduler.grow(8);
    scheduler
}

fn at(milliseconds: u64) -> Instant {
    Instant::default().plus_milliseconds(milliseconds)
}

/// Lets the scheduler look at a stripe with `work`. True if the stripe has begun.
fn look(scheduler: &mut Scheduler, number: u32, work: TestWork, now: Instant) -> bool {
    let counters = &mut CacheCounters::default();
    match scheduler.admission(number, &work, Gate::Open) {
        Admission::Now => {
            let width = if work.full { Width::Full } else { Width::Part };
            scheduler.begin((number, width), false, counters);
            true
        }
        later => {
            let band = BandKey(100 - u64::from(number));
            scheduler.put_off((number, later), (band, now), counters);
            false
        }
    }
}

#[test]
fn what_was_answered_waits_to_fill_up_until_it_is_old() {
    let mut scheduler = scheduler();
    assert!(!look(&mut scheduler, 1, PART, at(5)));
    assert_eq!(scheduler.poll_timeout(), Some(at(105)));
    scheduler.handle_timeout(at(104));
    assert_eq!(scheduler.next_ready(), None);
    scheduler.handle_timeout(at(105));
    assert!(scheduler.send_off((0, false), at(105)));
    assert_eq!(scheduler.next_ready(), Some(1));
    assert!(look(&mut scheduler, 1, PART, at(105)));
    assert_eq!(scheduler.poll_timeout(), None);
}

#[test]
fn what_is_awaited_or_flushed_or_full_begins_at_once() {
    let flushed = TestWork { flushed: true, ..PART };
    for work in [AWAITED, FULL, flushed] {
        assert!(look(&mut scheduler(), 1, work, at(0)), "{work:?}");
    }
    let expected = TestWork { expected: true, ..PART };
    assert!(!look(&mut scheduler(), 1, expected, at(0)), "an arm would go to each by itself");
    let mut still = scheduler();
    still.set_tuning(Tuning { expects_flushes: true, ..Tuning::default() });
    assert!(look(&mut still, 1, expected, at(0)), "members that do not seek lose nothing by it");
    let mut through = scheduler();
    through.set_tuning(Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() });
    assert!(look(&mut through, 1, PART, at(0)));
    assert_eq!(scheduler().admission(1, &PART, Gate::Closed), Admission::Now, "the gate closes");
}

#[test]
fn partial_writes_let_full_ones_pass_for_twice_the_age_at_most() {
    let mut scheduler = scheduler();
    assert!(look(&mut scheduler, 0, FULL, at(0)));
    assert!(!look(&mut scheduler, 1, AWAITED, at(10)));
    assert!(!scheduler.promote_first(&mut CacheCounters::default()), "a full one is ahead");
    assert_eq!(scheduler.poll_timeout(), Some(at(210)));
    scheduler.handle_timeout(at(210));
    assert_eq!(scheduler.next_ready(), Some(1));
    assert!(look(&mut scheduler, 1, AWAITED, at(210)), "it was promoted");
}

#[test]
fn a_held_stripe_goes_on_when_the_full_ones_are_over() {
    let mut scheduler = scheduler();
    assert!(look(&mut scheduler, 0, FULL, at(0)));
    assert!(!look(&mut scheduler, 1, AWAITED, at(0)));
    assert!(!look(&mut scheduler, 2, AWAITED, at(0)));
    scheduler.set_width(0, None);
    let counters = &mut CacheCounters::default();
    assert!(scheduler.promote_first(counters) && scheduler.promote_first(counters));
    assert!(!scheduler.promote_first(counters), "there is no third");
    assert_eq!((scheduler.next_ready(), scheduler.next_ready()), (Some(1), Some(2)));
    assert_eq!(counters.hold_promotions, 2);
}

#[test]
fn a_stripe_that_fills_up_in_its_list_begins() {
    let mut scheduler = scheduler();
    assert!(!look(&mut scheduler, 1, PART, at(0)));
    let counters = &mut CacheCounters::default();
    assert_eq!(scheduler.admission(1, &FULL, Gate::Open), Admission::Now);
    scheduler.begin((1, Width::Full), false, counters);
    assert_eq!(counters.filled_promotions, 1);
    assert_eq!(scheduler.poll_timeout(), None, "it is in no list");
}

#[test]
fn a_stripe_is_looked_at_once_for_many_reasons() {
    let mut scheduler = scheduler();
    (0..3).for_each(|_| scheduler.look_at(4));
    assert_eq!((scheduler.next_ready(), scheduler.next_ready()), (Some(4), None));
    scheduler.look_at(4);
    assert_eq!(scheduler.next_ready(), Some(4), "and again when there is a new one");
}

/// Begins all ready stripes and returns their numbers.
fn begin_all(scheduler: &mut Scheduler, now: Instant) -> Vec<u32> {
    let mut begun = Vec::new();
    while let Some(number) = scheduler.next_ready() {
        assert!(look(scheduler, number, PART, now), "what was sent off begins");
        begun.push(number);
    }
    begun
}

/// Guards against an old bug: random small writes left members with one stripe for each new write,
/// in order of arrival.
#[test]
fn what_is_short_goes_in_order_and_keeps_members_busy() {
    let mut scheduler = scheduler();
    let max = u64::from(Tuning::default().dirty_sectors_max);
    assert!(scheduler.answers_early(max) && !scheduler.answers_early(max + 1));
    scheduler.grow(100);
    for number in (0..100).map(|n| n * 37 % 100) {
        assert!(!look(&mut scheduler, number, PART, at(0)));
    }
    assert!(!scheduler.send_off((max / 2, false), at(0)));
    assert!(scheduler.send_off((max / 2 + 1, false), at(0)));
    let begun = begin_all(&mut scheduler, at(0));
    assert!(begun.into_iter().eq((68..100).rev()), "the lowest bands, as many as members bear");
    assert!(!scheduler.send_off((max, false), at(0)), "that many are under way");
    (90..100).for_each(|number| scheduler.set_width(number, None));
    assert!(scheduler.send_off((max, false), at(0)));
    assert!(begin_all(&mut scheduler, at(0)).into_iter().eq((58..68).rev()), "and on from there");
}

/// Old stripes are sent off as members have room for them, and need no timer meanwhile.
#[test]
fn what_is_old_goes_as_others_end() {
    let mut scheduler = scheduler();
    scheduler.grow(100);
    (0..40).for_each(|number| assert!(!look(&mut scheduler, number, PART, at(0))));
    (40..50).for_each(|number| assert!(!look(&mut scheduler, number, PART, at(50))));
    scheduler.handle_timeout(at(100));
    assert!(scheduler.send_off((0, false), at(100)));
    assert_eq!(begin_all(&mut scheduler, at(100)).len(), 32);
    assert_eq!((scheduler.send_off((0, false), at(100)), scheduler.poll_timeout()), (false, None));
    (8..40).for_each(|number| scheduler.set_width(number, None));
    assert!(scheduler.send_off((0, false), at(101)));
    assert!(begin_all(&mut scheduler, at(101)).into_iter().eq((0..8).rev()), "no younger one");
    (0..8).for_each(|number| scheduler.set_width(number, None));
    assert_eq!(
        (scheduler.send_off((0, false), at(102)), scheduler.poll_timeout()),
        (false, Some(at(150)))
    );
}

/// As many batches as members have use for are always under way, and clients wait for all of them.
/// Guards against an old bug: answered writes stayed in memory as long as such a load lasted.
#[test]
fn what_was_answered_gets_to_the_members_under_any_load() {
    let mut scheduler = scheduler();
    scheduler.grow(100);
    (0..20).for_each(|number| assert!(!look(&mut scheduler, number, PART, at(0))));
    (40..80).for_each(|number| assert!(look(&mut scheduler, number, AWAITED, at(50))));
    scheduler.handle_timeout(at(100));
    for left in [12, 4, 0] {
        assert!(scheduler.send_off((0, false), at(100)));
        let begun: Vec<u32> = begin_all(&mut scheduler, at(100)).into_iter().collect();
        assert!(!scheduler.send_off((0, false), at(100)), "they have their share");
        begun.iter().for_each(|number| scheduler.set_width(*number, None));
        assert_eq!(scheduler.delayed.iter(&scheduler.links).count(), left);
    }
    // Stripes that wait for memory, or are held, do not keep answered writes in memory either.
    assert!(!look(&mut scheduler, 1, PART, at(100)));
    scheduler.stand_in_line(90, &mut CacheCounters::default());
    assert!(scheduler.send_off((0, true), at(100)), "the file of answered writes is half full");
}

#[test]
fn a_stripe_stands_in_line_once_and_goes_first_come_first_served() {
    let mut scheduler = scheduler();
    let counters = &mut CacheCounters::default();
    for number in [3, 1, 3, 2] {
        scheduler.stand_in_line(number, counters);
    }
    scheduler.leave(1);
    assert_eq!((scheduler.head_of_line(), scheduler.line_length()), (Some(3), 2));
    (0..2).for_each(|_| scheduler.leave_line(counters));
    assert_eq!((scheduler.next_ready(), scheduler.next_ready()), (Some(3), Some(2)));
    assert_eq!((counters.stripe_waits, counters.stripe_hand_overs), (3, 2));
}
