//! Nothing is allocated for an entry once the most that was ever queued has been.
#![cfg(not(any(loom, shuttle)))]

use std::alloc::System;
use std::cell::RefCell;

use braid_dispatch::{
    Class, Depth, Device, Operation, Place, Request, Scheduler, Settings, Ticket, Vector,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Keeps what is out in a vector with room.
struct Kept(RefCell<Vec<Ticket>>);

impl Device<u64> for Kept {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u64>) -> Option<Ticket> {
        assert_eq!(parts.count(), vector.parts as usize);
        self.0.borrow_mut().extend(vector.ticket);
        None
    }
}

#[test]
fn steady_state_allocates_nothing() {
    let depth = Depth { total: 8, kept_for_reads: 2, kept_for_writes: 2 };
    let scheduler = Scheduler::new(Settings { depth, ..Settings::default() });
    let device = Kept(RefCell::new(Vec::with_capacity(64)));
    let mut started = None;
    for round in 0..2_000_u64 {
        if round == 1_000 {
            started = Some(Region::new(GLOBAL));
        }
        let all = (0..100_u64).map(|item| {
            let start = (round * 7919 + item * 104_729) % 100_000 * 8;
            let operation = match item % 3 {
                0 => Operation::Write { durable: false },
                _ => Operation::Read,
            };
            let (class, place) = (Class::BestEffort, Place::Sorted);
            let request = Request { operation, class, place, start, sectors: 8 };
            (request, item)
        });
        scheduler.insert_all(&device, all);
        loop {
            let ticket = device.0.borrow_mut().pop();
            let Some(ticket) = ticket else { break };
            scheduler.done(&device, Some(ticket));
        }
    }
    let change = started.expect("it is past the middle").change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "for 100 000 entries");
}
