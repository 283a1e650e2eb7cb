//! Cases with one member, then many threads at once.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use braid_elevator::Depth;

use super::*;

fn read(start: u64) -> Request {
    Request {
        operation: Operation::Read,
        class: Class::BestEffort,
        position: QueuePosition::Sorted,
        start,
        sectors: 8,
    }
}

fn write(start: u64) -> Request {
    Request { operation: Operation::Write { durable: false }, ..read(start) }
}

/// A device that keeps its vectors until a test ends them.
#[derive(Default)]
struct ManualDevice {
    now_ns: Cell<u64>,
    turn: Cell<Option<Turn>>,
    out: RefCell<Vec<(Vector, Vec<u32>)>>,
    left: RefCell<Vec<(Directions, Option<u64>)>>,
    queued: Cell<(u32, u32)>,
    served: RefCell<Vec<(bool, u64)>>,
}

impl Device<u32> for ManualDevice {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        self.out.borrow_mut().push((vector, parts.collect()));
        None
    }

    fn turn(&self, now_ns: u64, _: State) -> Turn {
        let open = Turn { reads: true, writes: true, until_ns: now_ns };
        self.turn.get().unwrap_or(open)
    }

    fn leave(&self, state: State, until_ns: Option<u64>) {
        self.left.borrow_mut().push((state.waits, until_ns));
        self.queued.set(state.queued);
    }

    fn served(&self, is_read: bool, busy_ns: u64) {
        self.served.borrow_mut().push((is_read, busy_ns));
    }
}

impl ManualDevice {
    fn given(&self) -> Vec<Vec<u32>> {
        self.out.borrow().iter().map(|(_, parts)| parts.clone()).collect()
    }

    /// Ends the first vector in flight.
    fn end_first(&self, scheduler: &Scheduler<u32>) {
        let (vector, _) = self.out.borrow_mut().remove(0);
        scheduler.done(self, vector.ticket);
    }
}

fn depth(total: u32) -> Settings {
    Settings::default().with_depth(Depth { total, kept_for_reads: 0, kept_for_writes: 0 })
}

#[test]
fn what_is_left_together_goes_out_sorted_and_merged() {
    let (device, scheduler) = (ManualDevice::default(), Scheduler::new(depth(8)));
    let all = [(0, 100), (1, 16), (2, 8), (3, 108)];
    scheduler.insert_all(&device, all.map(|(item, start)| (write(start), item)));
    assert_eq!(device.given(), [vec![2, 1], vec![0, 3]]);
    let counters = scheduler.counters(&device);
    assert_eq!((counters.drained_batches, counters.drained, counters.out), (1, 4, 2));
    assert_eq!(counters.drained_sizes[2], 1);
    assert_eq!((counters.elevator.inserted, counters.dispatched_batches), (4, 1));
}

#[test]
fn tags_are_honoured_and_a_completion_lets_the_next_out() {
    let (device, scheduler) = (ManualDevice::default(), Scheduler::new(depth(2)));
    (0..5).for_each(|item| scheduler.insert(&device, read(u64::from(item) * 100), item));
    assert_eq!(device.given(), [vec![0], vec![1]]);
    device.now_ns.set(10);
    device.end_first(&scheduler);
    assert_eq!(device.given(), [vec![1], vec![2]]);
    device.now_ns.set(15);
    device.end_first(&scheduler);
    // The first read kept the member busy for 10 ns. The second read waited until the first was
    // done, then took 5 ns.
    assert_eq!(*device.served.borrow(), [(true, 10), (true, 5)]);
    (0..3).for_each(|_| device.end_first(&scheduler));
    let counters = scheduler.counters(&device);
    assert_eq!((counters.out, counters.waiting_reads, counters.elevator.dispatched), (0, 0, 5));
}

#[test]
fn a_flush_is_the_flushers_while_it_is_out_and_so_is_its_time() {
    let (device, scheduler) = (ManualDevice::default(), Scheduler::new(depth(8)));
    for (number, start) in [(0, 0), (1, 500), (2, 900)] {
        scheduler.insert(&device, write(start), number);
    }
    device.now_ns.set(10);
    (0..3).for_each(|_| device.end_first(&scheduler));
    assert_eq!(device.queued.get(), (0, 0), "a cache has them, and nothing is left to do");
    scheduler.flush_begins(&device);
    scheduler.insert(&device, read(0), 3);
    assert_eq!(device.queued.get(), (1, 3), "a flush is as much as was written");
    device.now_ns.set(60);
    scheduler.flush_ends(&device);
    device.now_ns.set(67);
    device.end_first(&scheduler);
    let served = device.served.borrow();
    assert_eq!(
        served[served.len() - 2..],
        [(false, 50), (true, 7)],
        "the read has not paid for it"
    );
    assert_eq!(device.queued.get(), (0, 0));
    drop(served);
    scheduler.set(&device, Settings::straight());
    scheduler.flush_begins(&device);
    scheduler.flush_ends(&device);
    assert_eq!(device.served.borrow().len(), 5, "under none nobody asks");
}

#[test]
fn what_is_held_goes_when_it_is_its_turn_and_at_once_when_switched_to_none() {
    let (device, scheduler) = (ManualDevice::default(), Scheduler::new(depth(8)));
    device.turn.set(Some(Turn { reads: false, writes: true, until_ns: 77 }));
    scheduler.insert(&device, write(50), 1);
    scheduler.insert(&device, read(0), 0);
    assert_eq!(device.given(), [vec![1]]);
    let reads = Directions { reads: true, writes: false };
    assert_eq!(device.left.borrow().last(), Some(&(reads, Some(77))));
    device.turn.set(None);
    scheduler.dispatch_held(&device);
    assert_eq!(device.given(), [vec![1], vec![0]]);
    let none = Directions { reads: false, writes: false };
    assert_eq!(device.left.borrow().last(), Some(&(none, None)));
    device.turn.set(Some(Turn { reads: false, writes: true, until_ns: 99 }));
    scheduler.insert(&device, read(300), 2);
    assert_eq!(device.given().len(), 2, "a write is out: the slice is used");
    scheduler.set(&device, Settings::straight());
    assert_eq!(device.given().len(), 3, "nothing is held under none");
    scheduler.insert(&device, read(400), 3);
    assert!(device.out.borrow()[3].0.ticket.is_none(), "it went straight");
    assert_eq!(scheduler.settings(&device).policy, Policy::None);
    (0..4).for_each(|_| device.end_first(&scheduler));
    assert_eq!(scheduler.counters(&device).out, 0);
}

#[test]
fn a_head_goes_before_what_waits() {
    let (device, scheduler) = (ManualDevice::default(), Scheduler::new(depth(1)));
    (0..3).for_each(|item| scheduler.insert(&device, read(u64::from(item) * 100), item));
    scheduler.insert(&device, Request { position: QueuePosition::Head, ..read(9000) }, 9);
    (0..3).for_each(|_| device.end_first(&scheduler));
    assert_eq!(device.given(), [vec![2]]);
    let order = scheduler.counters(&device).elevator.dispatched;
    assert_eq!(order, 4);
}

/// A device that ends every vector before `begin` returns.
struct NullDevice(AtomicUsize);

impl Device<u32> for NullDevice {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        self.0.fetch_add(parts.count(), Ordering::Relaxed);
        vector.ticket
    }
}

/// Regression: each completion called the next one, until the stack was full.
#[test]
fn a_device_that_ends_everything_at_once_does_not_recurse() {
    let (device, scheduler) = (NullDevice(AtomicUsize::new(0)), Scheduler::new(depth(1)));
    scheduler.insert_all(&device, (0..20_000).map(|item| (read(u64::from(item) * 100), item)));
    assert_eq!(device.0.load(Ordering::Relaxed), 20_000);
    assert_eq!(scheduler.counters(&device).out, 0);
}

/// A device that passes every vector to another thread, which ends it.
struct ThreadedDevice {
    out: Mutex<mpsc::Sender<(Vector, Vec<u32>)>>,
    now_ns: AtomicU64,
}

impl Device<u32> for ThreadedDevice {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(1, Ordering::SeqCst)
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        let sent = self.out.lock().expect("unpoisoned").send((vector, parts.collect()));
        sent.expect("the other end listens");
        None
    }

    fn turn(&self, now_ns: u64, _: State) -> Turn {
        // Reads are held in every other span of eight, and released by the next thread.
        let reads = now_ns % 16 < 8;
        Turn { reads, writes: !reads, until_ns: now_ns }
    }
}

#[test]
fn insertions_from_many_threads_are_ended_once_whatever_is_set_meanwhile() {
    const THREADS: u32 = 6;
    const EACH: u32 = 3_000;
    let (sender, receiver) = mpsc::channel::<(Vector, Vec<u32>)>();
    let device = ThreadedDevice { out: Mutex::new(sender), now_ns: AtomicU64::new(0) };
    let scheduler = Scheduler::new(depth(4));
    let (device, scheduler) = (&device, &scheduler);
    let seen = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for item in thread * EACH..(thread + 1) * EACH {
                    let start = u64::from(item.wrapping_mul(2_654_435_761) % 4096) * 8;
                    let request = if item % 3 == 0 { write(start) } else { read(start) };
                    scheduler.insert(device, request, item);
                }
            });
        }
        scope.spawn(move || {
            for round in 0..300_u32 {
                let policy = if round % 2 == 0 { Policy::None } else { Policy::Deadline };
                scheduler.set(device, Settings { policy, ..depth(1 + round % 5) });
                scheduler.dispatch_held(device);
                std::thread::yield_now();
            }
            scheduler.set(device, Settings::straight());
        });
        let mut seen = vec![0_u8; (THREADS * EACH) as usize];
        let mut left = seen.len();
        while left > 0 {
            let patience = std::time::Duration::from_secs(20);
            let (vector, parts) = receiver.recv_timeout(patience).expect("no entry is forgotten");
            assert_eq!(vector.parts as usize, parts.len());
            parts.iter().for_each(|item| seen[*item as usize] += 1);
            left -= parts.len();
            scheduler.done(device, vector.ticket);
        }
        seen
    });
    assert!(seen.iter().all(|count| *count == 1), "each once");
    let counters = scheduler.counters(device);
    assert_eq!((counters.out, counters.waiting_reads + counters.waiting_writes), (0, 0));
}
