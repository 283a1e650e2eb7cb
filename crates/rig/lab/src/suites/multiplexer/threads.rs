//! The suite's clients with threads and clocks, on a volume over members in memory. Each member has
//! one thread and a layer that makes it slow. A request takes the same time at any place, so order
//! saves nothing here. The case shows that the runtime's turns work with threads, not how much they
//! save.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use braid_geometry::Level;
use braid_member::layer::Slow;
use braid_runtime::{ClientRequest, Elevator, Io, Multiplex, Options, Payload, Scheduling, Volume};

use super::rule::Rule;
use super::shape::{Client, Shape, Wish};
use super::world::Outcome;
use crate::array::{self, Plan, Policy};

/// The time of a read and of a write: about half a turn of a fast disk.
pub(super) const SERVICE: Duration = Duration::from_millis(3);
/// Number of members; each has one thread.
pub(super) const MEMBERS: u16 = 4;
const WARM_UP: Duration = Duration::from_millis(500);

/// Runs all clients for `time`, in real time. Possible rules are the free-for-all and the runtime's
/// own.
pub(super) fn run(rule: Rule, shape: Shape, time: Duration) -> Outcome {
    let plan = Plan {
        level: Level::Raid5,
        slots: MEMBERS,
        chunk_sectors: 128,
        member_bytes: 256 << 20,
        policy: Policy::Resync,
    };
    let multiplex = if rule == Rule::Braid { Multiplex::On } else { Multiplex::Off };
    let scheduling =
        Scheduling { elevator: Elevator::Deadline, multiplex, ..Scheduling::default() };
    let options =
        Options { io: Io::Threads, threads_per_member: 1, scheduling, ..Options::default() };
    let volume = array::open(plan, &options, |member| {
        let slow = Slow::new(member);
        slow.delays().set_read(SERVICE);
        slow.delays().set_write(SERVICE);
        slow
    });
    let outcome = Mutex::new(Outcome::default());
    let (counts, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (volume, outcome, flags) = (&volume, &outcome, (&counts, &ends));
        for client in shape.clients(volume.size_bytes() / 512) {
            scope.spawn(move || ask(volume, client, flags, outcome));
        }
        thread::sleep(WARM_UP);
        counts.store(true, Ordering::Relaxed);
        thread::sleep(time);
        counts.store(false, Ordering::Relaxed);
        ends.store(true, Ordering::Relaxed);
    });
    assert!(volume.stop().clean, "everything was written");
    let mut outcome = outcome.into_inner().expect("no holder panics");
    outcome.read_ns.sort_unstable();
    outcome.fsync_ns.sort_unstable();
    outcome
}

/// Runs one client until the end of the run.
fn ask(
    volume: &Volume,
    mut client: Client,
    (counts, ends): (&AtomicBool, &AtomicBool),
    outcome: &Mutex<Outcome>,
) {
    while !ends.load(Ordering::Relaxed) {
        let (wish, works, since) = (client.ask(0), client.works, Instant::now());
        let payload = |sectors: u64| Payload::zeroed(usize::try_from(sectors * 512).expect("few"));
        let operation = match wish {
            Wish::Read { start, sectors } => {
                ClientRequest::Read { offset: start * 512, payload: payload(sectors) }
            }
            Wish::Write { start, sectors } => {
                let payload = payload(sectors);
                ClientRequest::Write { offset: start * 512, payload, durable: false }
            }
            Wish::Fsync => ClientRequest::Flush,
        };
        volume.call(operation).result.expect("memory works");
        let took = u64::try_from(since.elapsed().as_nanos()).expect("not for ages");
        client.answered(0, wish);
        if !counts.load(Ordering::Relaxed) {
            continue;
        }
        let works = client.works - works;
        let mut outcome = outcome.lock().expect("no holder panics");
        match wish {
            Wish::Read { .. } => outcome.read_ns.push(took),
            Wish::Fsync => outcome.fsync_ns.push(took),
            Wish::Write { .. } => {}
        }
        match client.is_reader() {
            true => outcome.files_read += works,
            false => outcome.works_written += works,
        }
    }
}
