//! No heap allocation per request in the steady state, from the caller to memory members and back.
//!
//! The caller's thread does all the work and drives the machines itself; still, every allocation of
//! the process is counted. Lists and pools grow to the size that a load needs. So a load runs in
//! windows of a thousand requests, and one of the first few must pass without a single call of the
//! allocator. One allocation for each request, or for each hundredth, leaves no such window.

#[allow(dead_code, reason = "the kit of all tests")]
mod kit;

use std::alloc::System;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use braid_geometry::Level;
use braid_runtime::{
    Cache, CacheMode, ClientRequest, Completion, Elevator, OpenMember, Options, Payload,
    Scheduling, Volume,
};
use kit::Array;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for the whole process, so tests run one after the other.
static TURN: Mutex<()> = Mutex::new(());

const WINDOW: usize = 1000;
/// Number of windows. On a busy machine a sleeping thread's allocations fall into many of them.
const WINDOWS: usize = 150;

/// Opens a volume with memory members only.
fn open(array: &Array, mode: CacheMode, elevator: Elevator) -> Volume {
    let (probed, assembly) = array.assemble();
    let members = array.devices.iter().zip(&probed).map(|(device, probed)| {
        let superblock = probed.probe.newest().expect("a member").clone();
        Some(OpenMember { device: Box::new(Arc::clone(device)), superblock })
    });
    let options = Options {
        cache: Cache { mode, ..Cache::default() },
        scheduling: Scheduling { elevator, ..Scheduling::default() },
        ..Options::default()
    };
    let array = assembly.array.expect("an array that can be run");
    Volume::open(&array, members.collect(), &options, |_| {}).expect("it opens")
}

/// The fewest calls of the allocator in any window of `request`s.
fn fewest(mut request: impl FnMut(usize)) -> usize {
    let mut fewest = usize::MAX;
    for window in 0..WINDOWS {
        let region = Region::new(ALLOCATOR);
        (0..WINDOW).for_each(|index| request(window * WINDOW + index));
        let change = region.change();
        fewest = fewest.min(change.allocations + change.reallocations + change.deallocations);
        if fewest == 0 {
            break;
        }
    }
    fewest
}

/// Runs a test alone, so that only its own allocations count.
fn alone<R>(test: impl FnOnce() -> R) -> R {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    test()
}

struct Client<'a> {
    volume: &'a Volume,
    row_bytes: usize,
    payload: Option<Payload>,
}

impl Client<'_> {
    fn rows(&self) -> u64 {
        self.volume.size_bytes() / self.row_bytes as u64
    }

    fn call(&mut self, operation: ClientRequest) {
        let outcome = self.volume.call(operation);
        outcome.result.expect("memory does what it is told");
        self.payload = outcome.payload;
    }

    /// The client's last payload again if it has this size and came back, otherwise a new one.
    fn payload(&mut self, bytes: usize) -> Payload {
        let last = self.payload.take().filter(|payload| payload.len() == bytes);
        last.unwrap_or_else(|| Payload::for_overwriting(bytes))
    }

    fn read(&mut self, index: usize, bytes: usize) {
        let offset = (index as u64 * 7 % self.rows()) * self.row_bytes as u64;
        let payload = self.payload(bytes);
        self.call(ClientRequest::Read { offset, payload });
    }

    fn write_in_order(&mut self, index: usize, bytes: usize) {
        let places = self.rows() * self.row_bytes as u64 / bytes as u64;
        let (offset, payload) = (index as u64 % places * bytes as u64, self.payload(bytes));
        self.call(ClientRequest::Write { offset, payload, durable: false });
    }

    fn write(&mut self, index: usize, bytes: usize, durable: bool) {
        let offset = (index as u64 * 7 % self.rows()) * self.row_bytes as u64;
        let payload = self.payload(bytes);
        self.call(ClientRequest::Write { offset, payload, durable });
    }
}

fn loads(
    level: Level,
    slots: u16,
    (mode, elevator): (CacheMode, Elevator),
) -> Vec<(String, usize)> {
    let array = Array::new(level, slots, 8);
    let volume = open(&array, mode, elevator);
    let data = match level {
        Level::Raid6 => usize::from(slots) - 2,
        Level::Raid5 => usize::from(slots) - 1,
        _ => 1,
    };
    let row_bytes = data * 4096;
    let mut client = Client { volume: &volume, row_bytes, payload: None };
    // Every row is written first, since memory members take their memory at the first write.
    for row in 0..client.rows() {
        let payload = client.payload(row_bytes);
        let offset = row * row_bytes as u64;
        client.call(ClientRequest::Write { offset, payload, durable: false });
    }
    client.call(ClientRequest::Flush);
    let mut found = Vec::new();
    let mut note =
        |what: &str, calls| found.push((format!("{level} {mode:?} {elevator:?}: {what}"), calls));
    note("reads of 4 KiB", fewest(|index| client.read(index, 4096)));
    note("reads of a row", fewest(|index| client.read(index, row_bytes)));
    note("full-stripe writes", fewest(|index| client.write(index, row_bytes, false)));
    note("small writes", fewest(|index| client.write(index, 4096, false)));
    note("small writes in order", fewest(|index| client.write_in_order(index, 4096)));
    note("durable small writes", fewest(|index| client.write(index, 4096, true)));
    note(
        "small writes and flushes",
        fewest(|index| match index % 4 {
            3 => client.call(ClientRequest::Flush),
            _ => client.write(index, 4096, false),
        }),
    );
    found
}

#[test]
fn a_call_allocates_nothing() {
    alone(|| {
        let mut found = Vec::new();
        for how in [
            (CacheMode::WriteBack, Elevator::None),
            (CacheMode::WriteThrough, Elevator::None),
            (CacheMode::WriteBack, Elevator::Deadline),
        ] {
            found.extend(loads(Level::Raid5, 4, how));
        }
        for (level, slots) in
            [(Level::Raid6, 6), (Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid0, 3)]
        {
            found.extend(loads(level, slots, (CacheMode::WriteBack, Elevator::None)));
        }
        assert!(found.iter().all(|(_, calls)| *calls == 0), "{found:#?}");
    });
}

/// A request with a closure allocates the closure's box and nothing else.
#[test]
fn a_submitted_request_allocates_its_closure() {
    alone(|| {
        let array = Array::new(Level::Raid5, 4, 8);
        let volume = open(&array, CacheMode::WriteBack, Elevator::None);
        let done = Arc::new(AtomicUsize::new(0));
        let calls = fewest(|_| {
            let (payload, done) = (Payload::for_overwriting(4096), Arc::clone(&done));
            let count = move |_| {
                done.fetch_add(1, Ordering::Relaxed);
            };
            volume.submit(ClientRequest::Read { offset: 0, payload }, Completion::from_fn(count));
        });
        assert!(done.load(Ordering::Relaxed) >= WINDOW, "each is answered on the way");
        assert_eq!(calls, 2 * WINDOW, "one to make it and one to give it back, for each");
    });
}

/// Counts log events of requests, without formatting.
struct CountingSubscriber {
    level: LevelFilter,
    requests: Arc<AtomicUsize>,
}

impl Subscriber for CountingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let is_request = event.metadata().target() == "braid_runtime::request";
        self.requests.fetch_add(usize::from(is_request), Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A subscriber that leaves requests out costs requests no more than having no subscriber, as in
/// all other tests.
#[test]
fn a_log_that_leaves_requests_out_hears_and_allocates_nothing_of_them() {
    alone(|| {
        let array = Array::new(Level::Raid5, 4, 8);
        let volume = open(&array, CacheMode::WriteBack, Elevator::None);
        let mut client = Client { volume: &volume, row_bytes: 3 * 4096, payload: None };
        for (level, hears) in [(LevelFilter::DEBUG, false), (LevelFilter::TRACE, true)] {
            let requests = Arc::new(AtomicUsize::new(0));
            let ears = CountingSubscriber { level, requests: Arc::clone(&requests) };
            let calls = tracing::subscriber::with_default(ears, || {
                fewest(|index| match index % 2 {
                    0 => client.read(index, 4096),
                    _ => client.write(index, 4096, false),
                })
            });
            let heard = requests.load(Ordering::Relaxed);
            assert_eq!((calls, heard >= WINDOW), (0, hears), "{level}: {heard} heard");
            assert!(hears || heard == 0, "{level}: {heard} heard");
        }
    });
}

/// The counter counts an allocation: a test that cannot fail proves nothing.
#[test]
fn an_allocation_is_counted() {
    alone(|| {
        assert_eq!(fewest(|_| drop(std::hint::black_box(Box::new(1)))), 2 * WINDOW);
    });
}
