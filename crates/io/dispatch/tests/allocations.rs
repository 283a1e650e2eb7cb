//! No entry allocates once the queue has reached its maximum.
#![cfg(not(any(loom, shuttle)))]

use std::alloc::System;
use std::cell::{Cell, RefCell};

use braid_dispatch::{
    Class, Depth, Device, Operation, QueuePosition, Request, Scheduler, Settings, Ticket, Vector,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Own = Scheduler<u64>;

/// A device that keeps its dispatches in flight in a preallocated vector. While the owner asks for
/// the time, further insertions arrive, as many as `come` allows.
struct PreallocatedDevice<'a> {
    out: RefCell<Vec<Ticket>>,
    scheduler: &'a Own,
    coming: Cell<u64>,
    come: Cell<u64>,
}

impl Device<u64> for PreallocatedDevice<'_> {
    fn now_ns(&self) -> u64 {
        let coming = self.coming.take();
        if coming > 0 {
            // These insertions go through the lists, since an owner is at work.
            self.scheduler.insert_all(self, (0..coming).map(|item| entry(self.come.get() + item)));
            self.come.set(self.come.get() + coming);
        }
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u64>) -> Option<Ticket> {
        assert_eq!(parts.count(), vector.parts as usize);
        self.out.borrow_mut().extend(vector.ticket);
        None
    }
}

fn entry(number: u64) -> (Request, u64) {
    let start = number * 104_729 % 100_000 * 8;
    let operation = match number % 3 {
        0 => Operation::Write { durable: false },
        _ => Operation::Read,
    };
    let (class, position) = (Class::BestEffort, QueuePosition::Sorted);
    (Request { operation, class, position, start, sectors: 8 }, number)
}

#[test]
fn steady_state_allocates_nothing() {
    let depth = Depth { total: 8, kept_for_reads: 2, kept_for_writes: 2 };
    let scheduler = Scheduler::new(Settings { depth, ..Settings::default() });
    let device = PreallocatedDevice {
        out: RefCell::new(Vec::with_capacity(64)),
        scheduler: &scheduler,
        coming: Cell::new(0),
        come: Cell::new(0),
    };
    let mut started = None;
    for round in 0..2_000_u64 {
        if round == 1_000 {
            started = Some(Region::new(GLOBAL));
        }
        device.coming.set(50);
        scheduler.insert_all(&device, (0..50).map(|item| entry(round * 7919 + item)));
        loop {
            let ticket = device.out.borrow_mut().pop();
            let Some(ticket) = ticket else { break };
            scheduler.done(&device, Some(ticket));
        }
    }
    let change = started.expect("it is past the middle").change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "for 100 000 entries");
    assert_eq!(device.come.get(), 100_000, "half of all came by the lists");
    assert_eq!(scheduler.counters(&device).out, 0, "all of them have been done");
}
