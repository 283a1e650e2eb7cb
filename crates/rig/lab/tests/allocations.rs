//! No heap allocation for a request in the engine's steady state, counted by the allocator itself.
//!
//! Lists and pools grow to the size that a load needs, and their last growth comes late and seldom.
//! So a load runs in windows of ten thousand requests. One of the first few windows must pass
//! without a single call of the allocator, neither to allocate nor to free. One allocation for each
//! request, or for each thousandth, leaves no such window. The driver's allocations count too.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use braid_engine::request::{ByteOperation, ByteRequest, Next, Operation, RequestPlan};
use braid_engine::{CacheMode, Tuning};
use braid_lab::driver::{Driver, Kind, Load, Pattern, Places, Plan};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // An ending thread has lost its counter; that thread is not the test's.
    let _gone = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WRITE: Operation = Operation::Write { durable: false };
const WINDOW: u64 = 10_000;
/// In write-back mode it takes some 200,000 writes until each stripe's queue has its full length.
const WINDOWS: usize = 80;
/// The memory of computations grows for longer. That growth may make less than one call for this
/// many requests.
const SELDOM: u64 = 1000;

fn calls(mode: CacheMode, missing: Option<u16>, load: Load) -> u64 {
    let tuning = Tuning { mode, ..Tuning::default() };
    let mut driver = Driver::new(Plan {
        kind: Kind::Null,
        slots: 4,
        chunk_sectors: 128,
        member_sectors: 64 << 11,
        missing,
        tuning,
        payloads: load.depth + (tuning.dirty_sectors_max / load.sectors) as usize,
        payload_sectors: load.sectors,
    });
    let mut places = Places::new(&load, driver.capacity_sectors(), 1);
    let mut fewest = u64::MAX;
    for _ in 0..WINDOWS {
        let before = CALLS.get();
        Load { requests: WINDOW, ..load }.run(&mut driver, &mut places);
        fewest = fewest.min(CALLS.get() - before);
        if fewest == 0 {
            break;
        }
    }
    fewest
}

#[test]
fn nothing_is_allocated_for_a_request() {
    let block = |operation| Load {
        operation,
        sectors: 8,
        pattern: Pattern::Random,
        depth: 64,
        requests: 0,
    };
    let row = |operation| Load { sectors: 384, pattern: Pattern::Sequential, ..block(operation) };
    let mut found = Vec::new();
    for mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        for (name, missing, load) in [
            ("direct reads", None, block(Operation::Read)),
            ("direct reads of rows", None, row(Operation::Read)),
            ("degraded reads", Some(1), block(Operation::Read)),
            ("full-stripe writes", None, row(WRITE)),
            ("writes of a part", None, block(WRITE)),
            ("degraded writes of a part", Some(1), block(WRITE)),
        ] {
            found.push((mode, name, calls(mode, missing, load)));
        }
    }
    let seldom = |name: &str| name == "degraded writes of a part";
    let holds =
        |(_, name, calls): &(_, &str, u64)| *calls == 0 || seldom(name) && *calls < WINDOW / SELDOM;
    assert!(found.iter().all(holds), "{found:#?}");
}

/// Counts the allocations of the steps of a byte request that begins and ends at a sector.
#[test]
fn an_aligned_request_needs_no_heap_for_its_steps() {
    let operations = [ByteOperation::Read, ByteOperation::Write { durable: true }];
    for operation in operations {
        let before = CALLS.get();
        let mut plan = RequestPlan::new(&ByteRequest { operation, offset: 4096, length: 8192 });
        let steps = std::iter::from_fn(|| match plan.next::<()>(Ok(())) {
            Next::Step(step) => Some(step),
            Next::Answer(_) => None,
        });
        assert_eq!(steps.count(), 1);
        drop(plan);
        assert_eq!(CALLS.get() - before, 0, "{operation:?}");
    }
}

/// The counter counts an allocation: a test that cannot fail proves nothing.
#[test]
fn an_allocation_is_counted() {
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(CALLS.get() - before, 2);
}
