//! The scheduler by itself: no stripe, no member, no bytes.

use super::*;

/// Work of which everything is known.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    full: bool,
    awaited: bool,
    flushed: bool,
}

impl QueuedWork for Known {
    fn is_full(&self) -> bool {
        self.full
    }

    fn is_awaited(&self) -> bool {
        self.awaited
    }

    fn is_flushed(&self) -> bool {
        self.flushed
    }
}

const PART: Known = Known { full: false, awaited: false, flushed: false };
const AWAITED: Known = Known { awaited: true, ..PART };
const FULL: Known = Known { full: true, ..PART };

fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::new(Tuning { age_max_ms: 100, ..Tuning::default() });
    scheduler.grow(8);
    scheduler
}

fn at(milliseconds: u64) -> Instant {
    Instant::default().plus_milliseconds(milliseconds)
}

/// Looks at a stripe with such work. Whether it has begun.
fn look(scheduler: &mut Scheduler, number: u32, work: Known, now: Instant) -> bool {
    let counters = &mut CacheCounters::default();
    match scheduler.admission(number, &work, Gate::Open) {
        Admission::Now => {
            let width = if work.full { Width::Full } else { Width::Part };
            scheduler.begin((number, width), false, counters);
            true
        }
        later => {
            scheduler.put_off((number, later), now, counters);
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
    assert_eq!(scheduler.next_ready(), Some(1));
    assert!(look(&mut scheduler, 1, PART, at(105)));
    assert_eq!(scheduler.poll_timeout(), None);
}

#[test]
fn what_is_awaited_or_flushed_or_full_begins_at_once() {
    let flushed = Known { flushed: true, ..PART };
    for work in [AWAITED, FULL, flushed] {
        assert!(look(&mut scheduler(), 1, work, at(0)), "{work:?}");
    }
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

#[test]
fn beyond_half_of_what_may_be_dirty_each_write_sends_one_on_its_way() {
    let mut scheduler = scheduler();
    let max = u64::from(Tuning::default().dirty_sectors_max);
    assert!(scheduler.answers_early(max) && !scheduler.answers_early(max + 1));
    for number in 0..3 {
        assert!(!look(&mut scheduler, number, PART, at(0)));
    }
    scheduler.note_dirty(max / 2);
    assert_eq!(scheduler.next_ready(), None);
    scheduler.note_dirty(max / 2 + 1);
    assert_eq!((scheduler.next_ready(), scheduler.next_ready()), (Some(0), None), "the oldest");
}
