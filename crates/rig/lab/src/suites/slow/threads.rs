//! The suite's clients with threads and clocks, on a volume over members in memory, one of which
//! stalls.
//!
//! Every request takes a member 2 ms, so that the threads do not run at the speed of memory. Reads
//! go through `Volume::call`, from a thread for each reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use braid_engine::SitOut;
use braid_geometry::Level;
use braid_member::layer::{Delays, Slow};
use braid_runtime::{ClientRequest, Io, Notice, Options, Payload, Volume};

use super::world::{BLOCK_SECTORS, Outcome, READERS, SLOTS, STALLED, THINK_NS, WRITERS};
use crate::array::{self, Plan, Policy};
use crate::random::Random;

const ORDINARY: Duration = Duration::from_millis(2);
const BEFORE: Duration = Duration::from_secs(1);
/// More time than passes until the member is read again.
const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK_BYTES: u64 = BLOCK_SECTORS * 512;

/// Runs once, for a few seconds longer than the stall.
pub(super) fn run(sit_out: SitOut, stall: Duration) -> Outcome {
    let begin = Instant::now();
    let since = move || u64::try_from(begin.elapsed().as_nanos()).expect("some years");
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let heard = Arc::clone(&outcome);
    let hear = move |notice: Notice| {
        let mut outcome = heard.lock().expect("no holder panics");
        match notice {
            Notice::SitsOut { .. } => _ = outcome.noticed_ns.get_or_insert(since()),
            Notice::Back { .. } => outcome.back_ns = Some(since()),
            _ => {}
        }
    };
    let delays: Arc<Mutex<Vec<Delays>>> = Arc::default();
    let plan = Plan {
        level: Level::Raid6,
        slots: SLOTS,
        chunk_sectors: 128,
        member_bytes: 64 << 20,
        policy: Policy::Resync,
    };
    let options = Options { io: Io::Threads, sit_out, ..Options::default() };
    let known = Arc::clone(&delays);
    let wrap = move |member| {
        let slow = Slow::new(member);
        slow.delays().set_read(ORDINARY);
        slow.delays().set_write(ORDINARY);
        known.lock().expect("no holder panics").push(slow.delays());
        slow
    };
    let volume = array::open_heard(plan, &options, wrap, hear);
    let stalled = delays.lock().expect("no holder panics")[STALLED].clone();
    let (ends, errors) = (AtomicBool::new(false), AtomicU64::new(0));
    let (start_ns, end_ns, reads) = thread::scope(|scope| {
        let (volume, ends, errors) = (&volume, &ends, &errors);
        let client =
            |number: usize| scope.spawn(move || ask(volume, number, (ends, errors), since));
        let clients: Vec<_> = (0..READERS + WRITERS).map(client).collect();
        thread::sleep(BEFORE);
        let start_ns = since();
        stalled.set_read(stall);
        stalled.set_write(stall);
        // Only requests that have begun already wait so long. After them the member is fast again.
        thread::sleep(stall.min(Duration::from_millis(100)));
        stalled.set_read(ORDINARY);
        stalled.set_write(ORDINARY);
        let end_ns = start_ns + u64::try_from(stall.as_nanos()).expect("a minute");
        thread::sleep(Duration::from_nanos(end_ns.saturating_sub(since())));
        let patience = Instant::now();
        while !volume.sitting_out().is_empty() {
            assert!(patience.elapsed() < PATIENCE, "it is read again");
            thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, Ordering::Relaxed);
        let reads: Vec<(u64, u64)> =
            clients.into_iter().flat_map(|client| client.join().expect("all went well")).collect();
        (start_ns, end_ns, reads)
    });
    assert!(volume.stop().clean, "everything was written");
    let mut outcome = outcome.lock().expect("no holder panics").clone();
    let in_stall = reads.into_iter().filter(|(from, to)| *to >= start_ns && *from < end_ns);
    outcome.read_ns = in_stall.map(|(from, to)| to - from).collect();
    (outcome.start_ns, outcome.end_ns) = (start_ns, end_ns);
    outcome.errors = errors.load(Ordering::Relaxed);
    outcome
}

/// Runs one client until the end of the run; returns when each of its reads began and ended.
fn ask(
    volume: &Volume,
    number: usize,
    (ends, errors): (&AtomicBool, &AtomicU64),
    since: impl Fn() -> u64,
) -> Vec<(u64, u64)> {
    let mut random = Random::new(number as u64 + 1);
    let blocks = volume.size_bytes() / BLOCK_BYTES;
    let length = usize::try_from(BLOCK_BYTES).expect("short");
    let mut times = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let offset = random.below(blocks) * BLOCK_BYTES;
        let from = since();
        let payload = Payload::zeroed(length);
        let operation = match number < READERS {
            true => ClientRequest::Read { offset, payload },
            false => ClientRequest::Write { offset, payload, durable: false },
        };
        let failed = volume.call(operation).result.is_err();
        errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        if number < READERS {
            times.push((from, since()));
        } else {
            thread::sleep(Duration::from_nanos(THINK_NS));
        }
    }
    times
}
