//! Loom's models: small, every schedule with few preemptions, memory as weak as Rust allows.

use std::sync::Arc as Shared;
use std::sync::Mutex as Notes;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_concurrency::models::explore;
use braid_elevator::{Class, Depth, Operation, Policy, QueuePosition, Settings};
use loom::sync::Arc;
use loom::thread;

use crate::flaw::{Flaw, choose};
use crate::{Carry, Combiner, Device, Request, Scheduler, Ticket, Vector};

type Noting = Combiner<Vec<u32>, u32>;

/// Hands one event to a machine that records its events, and counts effects in `carried_out`. A
/// thread that is not the first leaves at once.
fn hand_over(combiner: &Noting, carried_out: &AtomicUsize, event: u32) {
    if combiner.push(event) {
        take_part(combiner, carried_out);
    }
}

fn take_part(combiner: &Noting, carried_out: &AtomicUsize) {
    combiner.combine(
        |machine, events| {
            let count = events.len();
            machine.append(events);
            count
        },
        |count| {
            carried_out.fetch_add(count, Ordering::Relaxed);
        },
    );
}

/// `threads` threads push `events` events each. Under every schedule the machine handles each event
/// once.
fn combine(name: &str, preemptions: usize, lists: usize, (threads, events): (u32, u32)) {
    explore(name, preemptions, move || {
        let combiner = Arc::new(Combiner::with_lists(Vec::new(), lists));
        let carried_out = Shared::new(AtomicUsize::new(0));
        let work = move |combiner: &Noting, carried_out: &AtomicUsize, thread| {
            (0..events).for_each(|event| hand_over(combiner, carried_out, thread * events + event));
        };
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let (combiner, carried_out) = (Arc::clone(&combiner), Shared::clone(&carried_out));
                thread::spawn(move || work(&combiner, &carried_out, thread))
            })
            .collect();
        work(&combiner, &carried_out, 0);
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        let mut handled = combiner.inspect(Clone::clone, || {});
        handled.sort_unstable();
        let sent: Vec<u32> = (0..threads * events).collect();
        assert_eq!(handled, sent, "every event is handled, and once");
        let carried_out = carried_out.load(Ordering::Relaxed);
        assert_eq!(carried_out, sent.len(), "all effects are carried out");
    });
}

#[test]
fn an_insertion_is_never_forgotten() {
    combine("combiner: two threads, two events each", 4, 1, (2, 2));
    combine("combiner: three threads, an event each", 2, 1, (3, 1));
    combine("insertion lists: two threads, two events each", 4, 2, (2, 2));
    combine("insertion lists: three threads, an event each", 2, 3, (3, 1));
}

#[test]
#[should_panic(expected = "every event is handled")]
fn a_combiner_without_its_last_look_is_caught() {
    choose(Flaw::NoLastLook);
    combine("flawed", 2, 1, (2, 1));
}

#[test]
#[should_panic(expected = "every event is handled")]
fn a_last_look_that_only_reads_is_caught() {
    choose(Flaw::LastLookReads);
    combine("flawed", 3, 1, (2, 1));
}

#[test]
#[should_panic(expected = "every event is handled")]
fn a_drain_that_unmarks_too_late_is_caught() {
    choose(Flaw::UnmarkedLate);
    combine("flawed", 3, 1, (2, 2));
}

/// Hands events over to a machine that records them.
fn bring(combiner: &Noting, events: impl IntoIterator<Item = u32>) {
    let carry = Carry {
        drive: |machine: &mut Vec<u32>, events: &mut Vec<u32>, _: &mut ()| machine.append(events),
        after: |_: &mut ()| false,
        leave: |_: &mut (), _: &Noting| false,
        pushes: false,
    };
    combiner.hand_over(events, &mut (), carry);
}

/// `threads` hand events over: past the lists if no owner is at work, through the lists otherwise.
fn bring_past_the_lists(
    name: &str,
    preemptions: usize,
    lists: usize,
    (threads, events): (u32, u32),
) {
    explore(name, preemptions, move || {
        let combiner = Arc::new(Combiner::with_lists(Vec::new(), lists));
        let work = move |combiner: &Noting, thread| {
            (0..events).for_each(|event| bring(combiner, [thread * events + event]));
        };
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let combiner = Arc::clone(&combiner);
                thread::spawn(move || work(&combiner, thread))
            })
            .collect();
        work(&combiner, 0);
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        let handled = combiner.inspect(Clone::clone, || {});
        for thread in 0..threads {
            let own = handled.iter().copied().filter(|event| event / events == thread);
            let sent = thread * events..(thread + 1) * events;
            assert!(own.eq(sent), "every event is handled, and once, in its thread's order");
        }
    });
}

#[test]
fn what_is_brought_past_the_lists_is_never_forgotten() {
    bring_past_the_lists("brought past the lists: two threads, two events each", 4, 2, (2, 2));
    bring_past_the_lists("brought past the lists: three threads, an event each", 2, 3, (3, 1));
}

#[test]
#[should_panic(expected = "every event is handled")]
fn a_bringer_that_does_not_look_once_more_is_caught() {
    choose(Flaw::NoLastLook);
    bring_past_the_lists("flawed", 3, 2, (2, 2));
}

#[test]
#[should_panic(expected = "every event is handled")]
fn an_owner_that_says_too_early_that_it_is_not_at_work_is_caught() {
    choose(Flaw::GivesUpOwned);
    bring_past_the_lists("flawed", 3, 2, (2, 2));
}

/// One thread's effects push an event to their own machine while another thread hands an event
/// over. The effects do not drain the inbox: the thread that carries them out checks the inbox
/// again.
fn effects_that_leave_something() {
    explore("combiner: what effects leave to their own machine", 3, || {
        let combiner = Arc::new(Combiner::with_lists(Vec::new(), 2));
        let theirs = Arc::clone(&combiner);
        let other = thread::spawn(move || bring(&theirs, [7]));
        let mut is_to_push = true;
        let carry = Carry {
            drive: |machine: &mut Vec<u32>, events: &mut Vec<u32>, _: &mut ()| {
                machine.append(events);
            },
            after: |_: &mut ()| {
                if std::mem::take(&mut is_to_push) {
                    combiner.push(2);
                }
                false
            },
            leave: |_: &mut (), _: &Noting| false,
            pushes: true,
        };
        combiner.push(1);
        combiner.combine_carrying(&mut (), carry);
        other.join().expect("it does not panic");
        // If another thread took the event, this thread carried out no effects.
        let mut handled = combiner.inspect(Clone::clone, || {});
        handled.sort_unstable();
        let sent = if is_to_push { vec![1, 7] } else { vec![1, 2, 7] };
        assert_eq!(handled, sent, "every event is handled, and once");
    });
}

#[test]
fn what_effects_leave_to_their_own_machine_is_heard() {
    effects_that_leave_something();
}

#[test]
#[should_panic(expected = "every event is handled")]
fn effects_that_are_not_heard_are_caught() {
    choose(Flaw::OwnUnheard);
    effects_that_leave_something();
}

/// A thread looks at the machine while another thread hands an event over and leaves it in the
/// inbox.
fn look_while_handing_over() {
    explore("combiner: a look at the machine", 4, || {
        let combiner = Arc::new(Combiner::new(Vec::new()));
        let carried_out = Shared::new(AtomicUsize::new(0));
        let (theirs, counted) = (Arc::clone(&combiner), Shared::clone(&carried_out));
        let other = thread::spawn(move || hand_over(&theirs, &counted, 7));
        let seen = combiner.inspect(Vec::len, || take_part(&combiner, &carried_out));
        other.join().expect("it does not panic");
        assert!(seen <= 1);
        let handled = combiner.inspect(Clone::clone, || {});
        assert_eq!(handled, [7], "every event is handled, and once");
    });
}

#[test]
fn a_look_at_the_counters_swallows_no_event() {
    look_while_handing_over();
}

#[test]
#[should_panic(expected = "every event is handled")]
fn a_look_that_leaves_events_behind_is_caught() {
    choose(Flaw::LookLeaves);
    look_while_handing_over();
}

/// A device that records its vectors. The device ends each at once, or keeps the ticket for the
/// thread that ends the vector.
#[derive(Default)]
struct RecordingDevice {
    items: Notes<Vec<u32>>,
    tickets: Option<Notes<Vec<Ticket>>>,
}

impl Device<u32> for RecordingDevice {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        self.items.lock().expect("noting does not panic").extend(parts);
        match &self.tickets {
            Some(tickets) => {
                tickets.lock().expect("noting does not panic").extend(vector.ticket);
                None
            }
            None => vector.ticket,
        }
    }
}

impl RecordingDevice {
    /// Ends all vectors in flight, as a device does some time later.
    fn end(&self, scheduler: &Scheduler<u32>) {
        let tickets = self.tickets.as_ref().expect("it keeps tickets");
        loop {
            let ticket = tickets.lock().expect("noting does not panic").pop();
            let Some(ticket) = ticket else { return };
            scheduler.done(self, Some(ticket));
        }
    }

    fn all(&self) -> Vec<u32> {
        let mut items = self.items.lock().expect("noting does not panic").clone();
        items.sort_unstable();
        items
    }
}

fn request(item: u32) -> Request {
    Request {
        operation: Operation::Read,
        class: Class::BestEffort,
        position: QueuePosition::Sorted,
        start: u64::from(item) * 100,
        sectors: 8,
    }
}

/// Settings that allow one dispatch at a time.
fn narrow() -> Settings {
    Settings::default().with_depth(Depth { total: 1, kept_for_reads: 0, kept_for_writes: 0 })
}

/// Two threads insert at a member with one tag, which completes each vector at once.
fn insert_and_end_at_once(name: &'static str, preemptions: usize, each: u32) {
    explore(name, preemptions, move || {
        let scheduler = Arc::new(Scheduler::with_lists(narrow(), 2));
        let device = Shared::new(RecordingDevice::default());
        let (theirs, given) = (Arc::clone(&scheduler), Shared::clone(&device));
        let other = thread::spawn(move || {
            (0..each).for_each(|item| theirs.insert(&*given, request(item), item));
        });
        (each..2 * each).for_each(|item| scheduler.insert(&*device, request(item), item));
        other.join().expect("it does not panic");
        assert_eq!(device.all(), (0..2 * each).collect::<Vec<_>>(), "each is dispatched, once");
    });
}

#[test]
fn every_insertion_is_dispatched_under_every_schedule() {
    insert_and_end_at_once("dispatcher: two threads, one tag, ended at once", 3, 2);
}

#[test]
#[should_panic(expected = "each is dispatched")]
fn a_full_batch_that_leaves_the_rest_is_caught() {
    choose(Flaw::BatchLeaves);
    // With tags for all entries, only the batch's own maximum leaves entries behind.
    explore("flawed", 2, || {
        let scheduler = Scheduler::with_lists(Settings::default(), 1);
        let device =
            RecordingDevice { tickets: Some(Notes::default()), ..RecordingDevice::default() };
        scheduler.insert_all(&device, (0..3).map(|item| (request(item), item)));
        assert_eq!(device.all(), [0, 1, 2], "each is dispatched, once");
    });
}

/// One thread inserts, another ends vectors. The single tag passes from one thread to the other.
fn insert_and_end_later() {
    explore("dispatcher: a tag is freed while another inserts", 3, || {
        let scheduler = Arc::new(Scheduler::with_lists(narrow(), 2));
        let device = Shared::new(RecordingDevice {
            tickets: Some(Notes::default()),
            ..RecordingDevice::default()
        });
        scheduler.insert(&*device, request(0), 0);
        let (theirs, given) = (Arc::clone(&scheduler), Shared::clone(&device));
        let other = thread::spawn(move || given.end(&theirs));
        (1..3).for_each(|item| scheduler.insert(&*device, request(item), item));
        other.join().expect("it does not panic");
        device.end(&scheduler);
        assert_eq!(device.all(), [0, 1, 2], "each is dispatched, once");
    });
}

#[test]
fn a_tag_that_is_freed_lets_the_next_out_under_every_schedule() {
    insert_and_end_later();
}

#[test]
#[should_panic(expected = "each is dispatched")]
fn a_completion_that_lets_nobody_out_is_caught() {
    choose(Flaw::DoneSilent);
    insert_and_end_later();
}

/// One thread inserts while the other switches to `none` and back. No third thread helps.
fn switch_while_inserting(name: &'static str, preemptions: usize) {
    explore(name, preemptions, || {
        let scheduler = Arc::new(Scheduler::with_lists(narrow(), 2));
        let device = Shared::new(RecordingDevice::default());
        let (theirs, given) = (Arc::clone(&scheduler), Shared::clone(&device));
        let other = thread::spawn(move || {
            theirs.set(&*given, Settings::straight());
            theirs.set(&*given, narrow());
        });
        (0..2).for_each(|item| scheduler.insert(&*device, request(item), item));
        other.join().expect("it does not panic");
        assert_eq!(device.all(), [0, 1], "each is dispatched, once");
        assert_eq!(
            scheduler.settings(&*device).policy,
            Policy::Deadline,
            "what is set last is set"
        );
    });
}

#[test]
fn a_switch_of_policy_loses_nothing() {
    switch_while_inserting("dispatcher: insertions while the policy is switched twice", 3);
}

/// Two threads change the settings, one after the other. A third thread, the owner, drains their
/// lists in the reverse order.
fn set_one_after_the_other() {
    explore("dispatcher: two set it, one after the other", 3, || {
        let scheduler = Arc::new(Scheduler::with_lists(narrow(), 2));
        let device = Shared::new(RecordingDevice::default());
        // Lists are dealt out in the order of first use. Of the two setters, the later one has the
        // list that is drained first.
        let _ = braid_concurrency::thread_number();
        let before = Arc::new(loom::sync::Mutex::new(()));
        let order = Shared::new(Notes::new(Vec::new()));
        let set = |settings: Settings| {
            let (scheduler, device) = (Arc::clone(&scheduler), Shared::clone(&device));
            let (before, order) = (Arc::clone(&before), Shared::clone(&order));
            move || {
                let _held = before.lock().expect("noting does not panic");
                scheduler.set(&*device, settings);
                order.lock().expect("noting does not panic").push(settings.policy);
            }
        };
        let others = [thread::spawn(set(Settings::straight())), thread::spawn(set(narrow()))];
        scheduler.insert(&*device, request(0), 0);
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        let last = order.lock().expect("noting does not panic").last().copied();
        assert_eq!(Some(scheduler.settings(&*device).policy), last, "what is set last is set");
        assert_eq!(device.all(), [0], "each is dispatched, once");
    });
}

#[test]
fn of_two_who_set_it_the_last_one_counts() {
    set_one_after_the_other();
}

#[test]
#[should_panic(expected = "what is set last is set")]
fn an_older_setting_that_replaces_a_newer_one_is_caught() {
    choose(Flaw::OlderSet);
    set_one_after_the_other();
}

#[test]
#[should_panic(expected = "what is set last is set")]
fn a_switch_that_looks_at_nothing_is_caught() {
    choose(Flaw::SwitchSilent);
    switch_while_inserting("flawed", 3);
}
