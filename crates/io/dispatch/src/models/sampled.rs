//! Shuttle's models: more threads and longer runs than loom's, under schedules from seeds.

use std::sync::{Arc, Mutex};

use braid_concurrency::models::sample;
use braid_elevator::{Class, Depth, Operation, QueuePosition, Settings, Turn};
use shuttle::thread;

use crate::flaw::{Flaw, choose};
use crate::{Device, Request, Scheduler, State, Ticket, Vector};

const SCHEDULES: usize = 1_500;

/// A device that passes vectors to other threads, which end them, and holds reads until `reads` is
/// set.
struct HoldingDevice {
    out: shuttle::sync::mpsc::Sender<Vector>,
    seen: Mutex<Vec<u32>>,
    reads: shuttle::sync::atomic::AtomicBool,
}

impl Device<u32> for HoldingDevice {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        self.seen.lock().expect("noting does not panic").extend(parts);
        // The run may have dropped the receiver at its end.
        let _ = self.out.send(vector);
        None
    }

    fn turn(&self, now_ns: u64, _: State) -> Turn {
        let reads = self.reads.load(shuttle::sync::atomic::Ordering::SeqCst);
        Turn { reads, writes: true, until_ns: now_ns }
    }

    fn leave(&self, _: State, _: Option<u64>) {
        thread::yield_now();
    }
}

fn request(item: u32) -> Request {
    let operation = match item % 2 {
        0 => Operation::Read,
        _ => Operation::Write { durable: false },
    };
    let (class, position) = (Class::BestEffort, QueuePosition::Sorted);
    Request { operation, class, position, start: u64::from(item) * 8, sectors: 8 }
}

/// Three threads insert, one ends vectors, one switches the policy, and one releases reads.
fn everything_at_once() {
    sample("dispatcher: insertions, completions, a switch and a turn", SCHEDULES, false, || {
        const ITEMS: u32 = 6;
        let depth = Depth { total: 2, kept_for_reads: 0, kept_for_writes: 0 };
        let settings = Settings::default().with_depth(depth);
        let scheduler = Arc::new(Scheduler::with_lists(settings, 2));
        let (out, ended) = shuttle::sync::mpsc::channel();
        let (seen, reads) = (Mutex::default(), shuttle::sync::atomic::AtomicBool::new(false));
        let device = Arc::new(HoldingDevice { out, seen, reads });
        let with = |work: fn(&Scheduler<u32>, &HoldingDevice, u32), first: u32| {
            let (scheduler, device) = (Arc::clone(&scheduler), Arc::clone(&device));
            thread::spawn(move || work(&scheduler, &device, first))
        };
        let insert = |scheduler: &Scheduler<u32>, device: &HoldingDevice, first: u32| {
            (first..first + 2).for_each(|item| scheduler.insert(device, request(item), item));
        };
        let switch = |scheduler: &Scheduler<u32>, device: &HoldingDevice, _: u32| {
            let before = scheduler.settings(device);
            scheduler.set(device, Settings::straight());
            scheduler.set(device, before);
        };
        let let_go = |scheduler: &Scheduler<u32>, device: &HoldingDevice, _: u32| {
            device.reads.store(true, shuttle::sync::atomic::Ordering::SeqCst);
            scheduler.dispatch_held(device);
        };
        let threads =
            [with(insert, 0), with(insert, 2), with(insert, 4), with(switch, 0), with(let_go, 0)];
        // If an event is lost, this loop waits for ever, which shuttle reports as a deadlock.
        let mut count = 0;
        while count < ITEMS {
            let vector = ended.recv().expect("the device lives");
            count += vector.parts;
            scheduler.done(&*device, vector.ticket);
        }
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        let mut seen = device.seen.lock().expect("noting does not panic").clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..ITEMS).collect::<Vec<_>>(), "each once");
    });
}

#[test]
fn nothing_is_lost_whatever_happens_at_once() {
    everything_at_once();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_dispatcher_without_its_last_look_is_caught() {
    choose(Flaw::NoLastLook);
    everything_at_once();
}

#[test]
#[should_panic(expected = "deadlock")]
fn completions_that_let_nobody_out_are_caught() {
    choose(Flaw::DoneSilent);
    everything_at_once();
}
