//! Tests of the rules one by one, then random operations against a model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{Depth, EntryId, Operation};

const MS: u64 = 1_000_000;
const WRITE: Operation = Operation::Write { durable: false };

fn entry(id: u64, operation: Operation, start: u64) -> Entry {
    Entry { id: EntryId(id), operation, class: Class::BestEffort, start, sectors: 8 }
}

fn wide() -> Settings {
    Settings::default().with_depth(Depth { total: 1000, kept_for_reads: 1, kept_for_writes: 1 })
}

fn starts(elevator: &mut Elevator, now_ns: u64) -> Vec<u64> {
    std::iter::from_fn(|| elevator.poll_dispatch(now_ns, Directions::ALL))
        .map(|dispatch| dispatch.start)
        .collect()
}

#[test]
fn a_batch_goes_upwards_and_then_from_the_lowest() {
    let mut elevator = Elevator::new(Settings { merge_sectors_max: 0, ..wide() });
    for (id, start) in [500, 100, 900, 300].into_iter().enumerate() {
        elevator.handle_insert(0, entry(id as u64, Operation::Read, start), QueuePosition::Sorted);
    }
    assert_eq!(elevator.poll_dispatch(0, Directions::ALL).expect("one waits").start, 100);
    elevator.handle_insert(0, entry(9, Operation::Read, 50), QueuePosition::Sorted);
    assert_eq!(starts(&mut elevator, 0), [300, 500, 900, 50]);
}

#[test]
fn expired_request_overtakes_sorted_order() {
    let settings = Settings { batch: 1, ..wide() };
    let mut elevator = Elevator::new(settings);
    elevator.handle_insert(0, entry(0, Operation::Read, 9000), QueuePosition::Sorted);
    elevator.handle_insert(400 * MS, entry(1, Operation::Read, 100), QueuePosition::Sorted);
    elevator.handle_insert(400 * MS, entry(2, Operation::Read, 200), QueuePosition::Sorted);
    assert_eq!(starts(&mut elevator, 500 * MS), [9000, 100, 200]);
    assert_eq!(elevator.counters().expired, 1);
}

/// Entries of the other kind arrive all the time, and the multiplexer never releases the held kind.
#[test]
fn who_is_held_goes_in_the_end() {
    let mut elevator = Elevator::new(wide());
    let reads = Directions { reads: true, writes: false };
    elevator.handle_insert(0, entry(0, WRITE, 0), QueuePosition::Sorted);
    assert_eq!(elevator.poll_dispatch(MS, reads), None);
    assert_eq!(elevator.poll_dispatch(400 * MS, reads), None);
    elevator.handle_insert(401 * MS, entry(1, WRITE, 5000), QueuePosition::Sorted);
    assert_eq!(elevator.poll_dispatch(401 * MS, reads).expect("held for long").start, 0);
    assert_eq!(elevator.poll_dispatch(401 * MS, reads), None, "one by one");
}

/// An aged entry goes first, however many entries of higher classes arrive and age after it.
#[test]
fn who_has_aged_goes_by_age() {
    let settings = Settings { aging_ns: 100 * MS, merge_sectors_max: 0, ..wide() };
    let mut elevator = Elevator::new(settings);
    let entry = |id, class| Entry { class, ..entry(id, Operation::Read, 5000 - 16 * id) };
    for (id, class) in [Class::Idle, Class::BestEffort, Class::RealTime].into_iter().enumerate() {
        elevator.handle_insert(id as u64, entry(id as u64, class), QueuePosition::Sorted);
    }
    elevator.handle_insert(3, entry(3, Class::BestEffort), QueuePosition::Head);
    assert_eq!(starts(&mut elevator, 200 * MS), [5000, 4984, 4968, 4952]);
}

#[test]
fn writes_are_passed_over_so_often_and_no_more() {
    let settings = Settings { batch: 2, writes_starved: 2, merge_sectors_max: 0, ..wide() };
    let mut elevator = Elevator::new(settings);
    for id in 0..10 {
        elevator.handle_insert(0, entry(id, Operation::Read, 100 * id), QueuePosition::Sorted);
        elevator.handle_insert(0, entry(100 + id, WRITE, 100 * id), QueuePosition::Sorted);
    }
    let order: Vec<bool> = std::iter::from_fn(|| elevator.poll_dispatch(0, Directions::ALL))
        .map(|dispatch| dispatch.operation == Operation::Read)
        .collect();
    let (read, write) = (true, false);
    assert_eq!(
        order[..12],
        [read, read, read, read, write, write, read, read, read, read, write, write]
    );
    assert_eq!(order.len(), 20);
}

#[test]
fn adjacent_writes_become_one_vector_front_back_and_between() {
    let mut elevator = Elevator::new(wide());
    for (id, start) in [(0, 16), (1, 0), (2, 8), (3, 24), (4, 100)] {
        elevator.handle_insert(0, entry(id, WRITE, start), QueuePosition::Sorted);
    }
    let durable = Operation::Write { durable: true };
    elevator.handle_insert(0, entry(5, durable, 32), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(6, Operation::Other, 108), QueuePosition::Sorted);
    let first = elevator.poll_dispatch(0, Directions::ALL).expect("it waits");
    assert_eq!((first.start, first.sectors, first.parts), (0, 32, 4));
    let ids: Vec<u64> = elevator.parts(first.tag).map(|entry| entry.id.0).collect();
    assert_eq!(ids, [1, 2, 0, 3]);
    assert_eq!(starts(&mut elevator, 0), [32, 100, 108]);
    let Counters { merged_back, merged_front, joined, .. } = elevator.counters();
    assert_eq!((merged_back, merged_front, joined), (2, 0, 1));
}

#[test]
fn a_merged_group_is_as_old_as_its_oldest_part() {
    let mut elevator = Elevator::new(Settings { batch: 1, ..wide() });
    elevator.handle_insert(0, entry(0, Operation::Read, 1000), QueuePosition::Sorted);
    elevator.handle_insert(1, entry(1, Operation::Read, 10), QueuePosition::Sorted);
    // Both new entries join the old entry, from both ends, although the new ones are young.
    elevator.handle_insert(499 * MS, entry(2, Operation::Read, 992), QueuePosition::Sorted);
    elevator.handle_insert(499 * MS, entry(3, Operation::Read, 1008), QueuePosition::Sorted);
    let first = elevator.poll_dispatch(500 * MS, Directions::ALL).expect("it waits");
    assert_eq!((first.start, first.sectors), (992, 24));
}

#[test]
fn classes_go_in_order_and_what_has_aged_goes_first() {
    let mut elevator = Elevator::new(wide());
    let of = |id, class, start| Entry { class, ..entry(id, Operation::Read, start) };
    elevator.handle_insert(0, of(0, Class::Idle, 0), QueuePosition::Sorted);
    elevator.handle_insert(0, of(1, Class::BestEffort, 100), QueuePosition::Sorted);
    elevator.handle_insert(0, of(2, Class::RealTime, 200), QueuePosition::Sorted);
    elevator.handle_insert(0, of(3, Class::BestEffort, 300), QueuePosition::Head);
    assert_eq!(starts(&mut elevator, 0), [200, 300, 100, 0]);
    elevator.handle_insert(0, of(4, Class::Idle, 0), QueuePosition::Sorted);
    elevator.handle_insert(9_999 * MS, of(5, Class::RealTime, 200), QueuePosition::Sorted);
    assert_eq!(starts(&mut elevator, 10_000 * MS), [0, 200]);
}

#[test]
fn without_a_policy_nothing_is_ordered_merged_or_held() {
    let narrow = Depth { total: 1, kept_for_reads: 0, kept_for_writes: 0 };
    let mut elevator = Elevator::new(Settings::straight().with_depth(narrow));
    for (id, start) in [500, 100, 108, 300].into_iter().enumerate() {
        elevator.handle_insert(0, entry(id as u64, WRITE, start), QueuePosition::Sorted);
    }
    assert_eq!(starts(&mut elevator, 0), [500, 100, 108, 300]);
}

/// Regression: an elevator was turned off while an entry was held. Each later write, which went at
/// once, restarted that entry's hold time.
#[test]
fn what_goes_at_once_leaves_the_held_their_time() {
    let mut elevator = Elevator::new(wide());
    let reads = Directions { reads: true, writes: false };
    elevator.handle_insert(0, entry(0, WRITE, 500), QueuePosition::Sorted);
    assert_eq!(elevator.poll_dispatch(MS, reads), None);
    elevator.set(Settings::straight());
    elevator.handle_insert(300 * MS, entry(1, WRITE, 900), QueuePosition::Sorted);
    assert_eq!(elevator.poll_dispatch(300 * MS, reads).expect("at once").start, 900);
    assert_eq!(elevator.poll_dispatch(402 * MS, reads).expect("held for long").start, 500);
}

#[test]
fn the_policy_can_change_while_entries_wait() {
    let mut elevator = Elevator::new(wide());
    elevator.handle_insert(0, entry(0, WRITE, 500), QueuePosition::Sorted);
    elevator.set(Settings::straight());
    elevator.handle_insert(0, entry(1, WRITE, 900), QueuePosition::Sorted);
    assert_eq!(starts(&mut elevator, 0), [900, 500]);
}

#[test]
fn what_is_held_waits_and_the_other_goes() {
    let mut elevator = Elevator::new(Settings { merge_sectors_max: 0, ..wide() });
    let (reads, writes) =
        (Directions { reads: true, writes: false }, Directions { reads: false, writes: true });
    elevator.handle_insert(0, entry(0, Operation::Read, 100), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(1, Operation::Read, 200), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(2, WRITE, 300), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(3, Operation::Read, 50), QueuePosition::Head);
    assert_eq!((elevator.waiting(), elevator.waits()), ((3, 1), Directions::ALL));
    // A batch of reads runs, an old entry is at the head, and all entries have aged.
    assert_eq!(elevator.poll_dispatch(0, reads).expect("one waits").start, 50);
    assert_eq!(elevator.poll_dispatch(0, reads).expect("one waits").start, 100);
    let later_ns = 60_000 * MS;
    assert_eq!(elevator.poll_dispatch(later_ns, writes).expect("one waits").start, 300);
    assert_eq!(elevator.poll_dispatch(later_ns, writes), None);
    assert_eq!((elevator.waiting(), elevator.out(), elevator.waits()), ((1, 0), (2, 1), reads));
    assert_eq!(elevator.poll_dispatch(later_ns, reads).expect("one waits").start, 200);
}

/// The starts of all dispatches while only reads may go.
fn starts_of_reads(elevator: &mut Elevator) -> Vec<u64> {
    let reads = Directions { reads: true, writes: false };
    std::iter::from_fn(|| elevator.poll_dispatch(0, reads)).map(|dispatch| dispatch.start).collect()
}

#[test]
fn a_write_that_lies_on_the_way_of_reads_goes_along() {
    for takes_along in [true, false] {
        let settings = Settings { takes_along, merge_sectors_max: 0, ..wide() };
        let mut elevator = Elevator::new(settings);
        for (operation, place) in [(Operation::Read, [100, 500, 900]), (WRITE, [50, 300, 950])] {
            for start in place {
                elevator.handle_insert(0, entry(start, operation, start), QueuePosition::Sorted);
            }
        }
        let (along, beyond): (&[u64], &[u64]) = match takes_along {
            true => (&[50, 100, 300, 500, 900], &[950, 20]),
            false => (&[100, 500, 900], &[20]),
        };
        assert_eq!(starts_of_reads(&mut elevator), along, "950 is on nobody's way");
        elevator.handle_insert(0, entry(1, Operation::Read, 20), QueuePosition::Sorted);
        assert_eq!(starts_of_reads(&mut elevator), beyond, "it is on the way to the lowest");
    }
}

/// Writes that keep arriving just before the next read do not hold back that read.
#[test]
fn what_goes_along_does_not_keep_the_sweep_where_it_is() {
    let mut elevator =
        Elevator::new(Settings { takes_along: true, merge_sectors_max: 0, ..wide() });
    elevator.handle_insert(0, entry(0, Operation::Read, 100), QueuePosition::Sorted);
    let reads = Directions { reads: true, writes: false };
    let went = (1..100).find(|id| {
        elevator.handle_insert(0, entry(*id, WRITE, 80), QueuePosition::Sorted);
        let dispatch = elevator.poll_dispatch(0, reads).expect("something may go");
        elevator.handle_done(dispatch.tag);
        dispatch.operation == Operation::Read
    });
    assert_eq!(went, Some(2), "the second at the same place is behind the arm");
}

#[test]
fn reads_that_are_given_a_slice_begin_where_the_arm_is() {
    for (takes_along, order) in [(true, [450, 600, 100, 470]), (false, [100, 450, 470, 600])] {
        let settings = Settings { takes_along, merge_sectors_max: 0, ..wide() };
        let mut elevator = Elevator::new(settings);
        elevator.handle_insert(0, entry(0, WRITE, 400), QueuePosition::Sorted);
        assert_eq!(starts(&mut elevator, 0), [400]);
        for start in [100, 450, 600] {
            elevator.handle_insert(0, entry(start, Operation::Read, start), QueuePosition::Sorted);
        }
        let first = elevator.poll_dispatch(0, Directions::ALL).expect("reads wait").start;
        let second = elevator.poll_dispatch(0, Directions::ALL).expect("reads wait").start;
        // This read is behind the arm's position in the reads' sweep and before its position in the
        // writes' sweep.
        elevator.handle_insert(0, entry(9, Operation::Read, 470), QueuePosition::Sorted);
        let rest = starts(&mut elevator, 0);
        assert_eq!([first, second, rest[0], rest[1]], order);
    }
}

#[test]
fn nothing_is_taken_along_past_one_that_has_expired() {
    let settings = Settings { takes_along: true, merge_sectors_max: 0, ..wide() };
    let mut elevator = Elevator::new(settings);
    elevator.handle_insert(0, entry(0, WRITE, 400), QueuePosition::Sorted);
    assert_eq!(starts(&mut elevator, 0), [400]);
    elevator.handle_insert(0, entry(1, Operation::Read, 100), QueuePosition::Sorted);
    elevator.handle_insert(1, entry(2, Operation::Read, 450), QueuePosition::Sorted);
    assert_eq!(starts(&mut elevator, 500 * MS), [100, 450]);
}

/// Reads in a higher class always continue upwards. Entries in the lower classes are served within
/// their time all the same.
#[test]
fn none_is_passed_over_for_ever() {
    let depth = Depth { total: 4, kept_for_reads: 1, kept_for_writes: 1 };
    let settings = Settings::default().with_depth(depth);
    let mut elevator = Elevator::new(settings);
    let victims = [
        Entry { class: Class::Idle, ..entry(1, WRITE, 5) },
        Entry { class: Class::BestEffort, ..entry(2, Operation::Read, 0) },
        Entry { class: Class::RealTime, ..entry(3, WRITE, 0) },
        Entry { class: Class::RealTime, ..entry(4, Operation::Read, 0) },
    ];
    let mut waiting: BTreeSet<EntryId> = victims.iter().map(|victim| victim.id).collect();
    elevator.handle_insert(
        0,
        Entry { class: Class::RealTime, ..entry(99, Operation::Read, 1000) },
        QueuePosition::Sorted,
    );
    let first = elevator.poll_dispatch(0, Directions::ALL).expect("it waits");
    elevator.handle_done(first.tag);
    victims.into_iter().for_each(|victim| elevator.handle_insert(0, victim, QueuePosition::Sorted));
    let mut served = BTreeMap::new();
    for tick in 0..12_000 {
        let storm = Entry {
            class: Class::RealTime,
            ..entry(1000 + tick, Operation::Read, 2000 + 16 * tick)
        };
        elevator.handle_insert(tick * MS, storm, QueuePosition::Sorted);
        let dispatch =
            elevator.poll_dispatch(tick * MS, Directions::ALL).expect("the storm goes on");
        for part in elevator.parts(dispatch.tag) {
            if waiting.remove(&part.id) {
                served.insert(part.id.0, tick);
            }
        }
        elevator.handle_done(dispatch.tag);
    }
    assert!(waiting.is_empty(), "{waiting:?} were never served");
    // Bounds in milliseconds: the two lower classes go by age, a write by its turn, a read by its
    // expiry.
    assert!(served[&1] <= 10_100 && served[&2] <= 10_100, "{served:?}");
    assert!(served[&3] <= 100 && served[&4] <= 600, "{served:?}");
}

#[derive(Clone, Debug)]
enum Act {
    Insert(u8, u8, u16, u8, bool),
    Poll(bool, bool),
    Done(u8),
    Wait(u32),
    Set(u8, u8, u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..4_u8, 0..3_u8, 0..200_u16, 1..9_u8, any::<bool>()).prop_map(|(o, c, s, n, h)| Act::Insert(o, c, s, n, h)),
        6 => any::<(bool, bool)>().prop_map(|(r, w)| Act::Poll(r, w)),
        4 => any::<u8>().prop_map(Act::Done),
        1 => any::<u32>().prop_map(Act::Wait),
        1 => (0..8_u8, 0..20_u8, 0..4_u8).prop_map(|(d, m, b)| Act::Set(d, m, b)),
    ];
    proptest::collection::vec(act, 0..300)
}

/// An elevator and its model.
struct Driver {
    elevator: Elevator,
    now_ns: u64,
    next: u64,
    queued: BTreeMap<EntryId, Entry>,
    out: Vec<Dispatch>,
}

impl Driver {
    /// Takes the next dispatch and checks its parts. Returns false if there is no dispatch.
    fn poll(&mut self, allowed: Directions) -> bool {
        let Some(dispatch) = self.elevator.poll_dispatch(self.now_ns, allowed) else {
            return false;
        };
        let (mut at, mut parts) = (dispatch.start, 0);
        for part in self.elevator.parts(dispatch.tag) {
            let queued = self.queued.remove(&part.id);
            assert_eq!(queued, Some(*part), "it was queued, and is out for the first time");
            assert_eq!((part.start, part.operation), (at, dispatch.operation));
            at = part.end();
            parts += 1;
        }
        let end = dispatch.start + u64::from(dispatch.sectors);
        assert_eq!((at, parts), (end, dispatch.parts));
        assert!(parts == 1 || dispatch.operation.merges());
        self.out.push(dispatch);
        true
    }

    /// Takes a run of dispatches.
    fn poll_run(&mut self, count_max: usize) {
        let Self { elevator, now_ns, queued, out, .. } = self;
        elevator.poll_run(*now_ns, count_max, |dispatch, parts| {
            for part in parts {
                assert_eq!(queued.remove(&part.id), Some(*part), "it was queued");
            }
            out.push(dispatch);
        });
    }

    fn insert(&mut self, operation: u8, class: u8, (start, sectors): (u16, u8), head: bool) {
        let durable = Operation::Write { durable: true };
        let entry = Entry {
            id: EntryId(self.next),
            operation: [Operation::Read, WRITE, durable, Operation::Other][usize::from(operation)],
            class: Class::ALL[usize::from(class)],
            start: u64::from(start),
            sectors: u32::from(sectors),
        };
        self.next += 1;
        self.queued.insert(entry.id, entry);
        let position = if head { QueuePosition::Head } else { QueuePosition::Sorted };
        self.elevator.handle_insert(self.now_ns, entry, position);
    }

    fn set(&mut self, depth: u8, merge: u8, batch: u8) {
        let total = u32::from(depth);
        self.elevator.set(Settings {
            depth: Depth { total, kept_for_reads: 1, kept_for_writes: 1 },
            merge_sectors_max: u32::from(merge),
            batch: u32::from(batch),
            policy: if merge == 0 { Policy::None } else { Policy::Deadline },
            ..*self.elevator.settings()
        });
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Insert(operation, class, start, sectors, head) => {
                self.insert(operation, class, (start, sectors), head);
            }
            Act::Poll(reads, writes) => {
                self.poll(Directions { reads, writes });
            }
            Act::Done(which) if !self.out.is_empty() => {
                let dispatch = self.out.swap_remove(usize::from(which) % self.out.len());
                self.elevator.handle_done(dispatch.tag);
            }
            Act::Done(_) => {}
            Act::Wait(ns) => self.now_ns += u64::from(ns),
            Act::Set(depth, merge, batch) => self.set(depth, merge, batch),
        }
        let out: usize = self.out.iter().map(|dispatch| dispatch.parts as usize).sum();
        assert_eq!(self.elevator.len(), self.queued.len() + out);
        let (reads, writes) = self.elevator.waiting();
        assert_eq!(reads + writes, self.queued.len());
    }

    /// Dispatches and completes everything.
    fn finish(mut self) {
        loop {
            let more = self.poll(Directions::ALL);
            let Some(dispatch) = self.out.pop() else {
                assert!(!more);
                break;
            };
            self.elevator.handle_done(dispatch.tag);
        }
        let Self { elevator, queued, .. } = self;
        assert!(queued.is_empty() && elevator.is_empty(), "{queued:?} were never dispatched");
    }
}

proptest! {
    #[test]
    fn every_entry_goes_out_once_whatever_comes(acts in acts(), takes_along in any::<bool>()) {
        let settings = Settings { aging_ns: 1 << 33, takes_along, ..Settings::default() };
        let elevator = Elevator::new(settings);
        let (queued, out) = (BTreeMap::new(), Vec::new());
        let mut driver = Driver { elevator, now_ns: 0, next: 0, queued, out };
        acts.iter().for_each(|act| driver.act(act));
        driver.finish();
    }

    #[test]
    fn a_run_is_what_one_after_the_other_would_be(acts in acts(), takes_along in any::<bool>(), count_max in 1..9_usize) {
        let settings = Settings { aging_ns: 1 << 33, takes_along, ..Settings::default() };
        let driver = || Driver {
            elevator: Elevator::new(settings),
            now_ns: 0,
            next: 0,
            queued: BTreeMap::new(),
            out: Vec::new(),
        };
        let (mut one_by_one, mut in_runs) = (driver(), driver());
        for act in &acts {
            if let Act::Poll(true, true) = act {
                let before = one_by_one.out.len();
                while one_by_one.out.len() < before + count_max
                    && one_by_one.elevator.waiting() != (0, 0)
                    && one_by_one.poll(Directions::ALL)
                {}
                in_runs.poll_run(count_max);
            } else {
                one_by_one.act(act);
                in_runs.act(act);
            }
            prop_assert_eq!(&one_by_one.out, &in_runs.out);
            prop_assert_eq!(&one_by_one.queued, &in_runs.queued);
            prop_assert_eq!(one_by_one.elevator.counters(), in_runs.elevator.counters());
        }
        one_by_one.finish();
        in_runs.finish();
    }

    #[test]
    fn tags_are_never_exceeded(total in 1..12_u32, kept in (0..6_u32, 0..6_u32), directions in proptest::collection::vec(any::<bool>(), 1..60)) {
        let depth = Depth { total, kept_for_reads: kept.0, kept_for_writes: kept.1 };
        let settings = Settings { merge_sectors_max: 0, ..Settings::default().with_depth(depth) };
        let mut elevator = Elevator::new(settings);
        for (id, is_read) in directions.iter().enumerate() {
            let operation = if *is_read { Operation::Read } else { WRITE };
            elevator.handle_insert(0, entry(id as u64, operation, id as u64), QueuePosition::Sorted);
        }
        let dispatches = std::iter::from_fn(|| elevator.poll_dispatch(0, Directions::ALL));
        let out: Vec<Dispatch> = dispatches.collect();
        let reads: u32 = out.iter().map(|one| u32::from(one.operation == Operation::Read)).sum();
        let writes: u32 = out.iter().map(|one| u32::from(one.operation != Operation::Read)).sum();
        prop_assert!(reads + writes <= total);
        prop_assert!(reads <= total.saturating_sub(kept.1).max(1) && writes <= total.saturating_sub(kept.0).max(1));
        prop_assert!(!out.is_empty());
    }
}

/// Regression: write-back alone had six requests out at each member, a quarter of the number
/// without an elevator.
#[test]
fn who_is_alone_has_the_member_to_itself() {
    let mut elevator = Elevator::new(Settings { merge_sectors_max: 0, ..Settings::multiplexed() });
    let mut id = 0;
    let mut fill = |elevator: &mut Elevator, now_ns: u64| {
        while elevator.waiting().1 < 30 {
            id += 1;
            elevator.handle_insert(now_ns, entry(id, WRITE, id * 100), QueuePosition::Sorted);
        }
        let went = std::iter::from_fn(|| elevator.poll_dispatch(now_ns, Directions::ALL));
        went.collect::<Vec<_>>()
    };
    let mut out = fill(&mut elevator, 0);
    assert_eq!(out.len(), 24, "there are no reads");
    elevator.handle_insert(1, entry(1 << 40, Operation::Read, 5), QueuePosition::Sorted);
    let read = elevator.poll_dispatch(1, Directions::ALL).expect("a tag is kept for it");
    assert_eq!(read.operation, Operation::Read);
    out.drain(..20).for_each(|write| elevator.handle_done(write.tag));
    elevator.handle_done(read.tag);
    assert_eq!(fill(&mut elevator, 2).len(), 2, "the reader may come again: six writes are out");
    let hold_max_ns = elevator.settings().hold_max_ns;
    assert_eq!(fill(&mut elevator, 1 + hold_max_ns).len(), 18, "it did not");
}

#[test]
fn what_a_write_must_read_goes_when_writes_may() {
    let mut elevator = Elevator::new(wide());
    elevator.handle_insert(0, entry(0, Operation::PreRead, 300), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(1, Operation::Read, 100), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(2, WRITE, 308), QueuePosition::Sorted);
    elevator.handle_insert(0, entry(3, Operation::PreRead, 292), QueuePosition::Sorted);
    assert_eq!(elevator.waiting(), (1, 3));
    let flushers = Directions { reads: false, writes: true };
    let first = elevator.poll_dispatch(0, flushers).expect("pre-reads wait");
    assert_eq!((first.operation, first.start, first.parts), (Operation::PreRead, 292, 2));
    let second = elevator.poll_dispatch(0, flushers).expect("a write waits");
    assert_eq!((second.operation, second.start), (WRITE, 308));
    assert_eq!(elevator.poll_dispatch(0, flushers), None);
    assert_eq!(elevator.out(), (0, 2));
}
