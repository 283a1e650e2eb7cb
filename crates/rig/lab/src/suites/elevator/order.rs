//! The order in which requests reach a member that seeks. There are 32 threads with 4 requests
//! each. The member takes two requests at a time and ends them one after the other. Each request's
//! place is recorded when it reaches the member; the disk's data sheet gives the arm's movements.
//!
//! With one lock and one request for each ownership, another thread may overtake a thread between
//! the thread's choice of a request and the member. With *braid* one thread hands over a batch.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use braid_dispatch::{
    Class, Depth, Device, Operation, Policy, QueuePosition, Request, Scheduler, Ticket, Vector,
};
use braid_elevator::{Directions, Elevator, Entry, EntryId, Tag};

use super::client_threads::{ClientThreads, RequestPath};
use super::run;
use crate::disk::DiskPlan;
use crate::frame::{Contender, Metric, Report, Settings, Target, race};

const THREADS: usize = 32;
const SORTED: &str = "neighbours in sorted order";
const SEEK: &str = "mean seek";
const METRICS: [Metric; 2] = [Metric::more(SORTED, "%"), Metric::less(SEEK, "ms")];

/// Minimum time of a request: far below a disk's, but enough for threads to submit meanwhile.
const SERVICE: Duration = Duration::from_micros(20);

/// Settings that allow two dispatches at a time, so that a hundred requests wait to be ordered.
fn settings_of_both() -> braid_elevator::Settings {
    let depth = Depth { total: 2, kept_for_reads: 0, kept_for_writes: 0 };
    let settings = braid_elevator::Settings { policy: Policy::Deadline, ..Default::default() };
    settings.with_depth(depth)
}

pub(super) fn case(settings: &Settings, report: &mut Report) {
    let name = "order at a member that seeks, 32 threads";
    let rounds = if settings.small { 4 } else { 100 };
    let contenders = vec![
        Contender::new("before", || values(&single(rounds))),
        Contender::new("braid", || values(&shipped(rounds))),
    ];
    let case = race(settings, name, &METRICS, contenders);
    report.add(case.map(|case| {
        case.with([
            Target::ratio(SORTED, "braid", "before", 0.99),
            Target::ratio(SEEK, "braid", "before", 1.01),
        ])
    }));
    report.note("order: \"no worse\" tolerates one hundredth, for the order of arrival");
}

/// The values of the metrics, from the places in order of arrival.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(order: &[u64]) -> Vec<f64> {
    let plan = DiskPlan::SATA_2005;
    let neighbours = order.len().saturating_sub(1).max(1) as f64;
    let sorted = order.windows(2).filter(|pair| pair[0] <= pair[1]).count();
    let on_disk = |place: u64| place % plan.sectors();
    let seeks = order.windows(2).map(|pair| plan.seek_ns(on_disk(pair[0]), on_disk(pair[1])));
    vec![100.0 * sorted as f64 / neighbours, seeks.sum::<u64>() as f64 / neighbours / 1e6]
}

/// The requests in order of arrival, and the channel to the thread that ends requests.
struct Arm<E> {
    order: Mutex<(Vec<u64>, Sender<E>)>,
}

impl<E> Arm<E> {
    fn new() -> (Self, Receiver<E>) {
        let (ends, ended) = channel();
        (Self { order: Mutex::new((Vec::new(), ends)) }, ended)
    }

    fn begin(&self, start: u64, end: E) {
        let (order, ends) = &mut *self.order.lock().expect("no holder panics");
        order.push(start);
        ends.send(end).expect("the thread that ends it lives longer");
    }

    /// Returns the requests. Closes the channel, so that the request-ending thread finishes.
    fn close(&self) -> Vec<u64> {
        let (order, ends) = &mut *self.order.lock().expect("no holder panics");
        let (nowhere, _) = channel();
        *ends = nowhere;
        std::mem::take(order)
    }
}

/// The clients with entries in a vector.
type Owners = Vec<u32>;

/// The elevator under one lock, with one choice for each ownership.
struct Single<'a> {
    elevator: Mutex<Elevator>,
    arm: &'a Arm<(Tag, Owners)>,
}

impl Single<'_> {
    fn dispatch(&self) {
        loop {
            let (dispatch, owners) = {
                let mut elevator = self.elevator.lock().expect("no holder panics");
                let Some(dispatch) = elevator.poll_dispatch(0, Directions::ALL) else { return };
                let client = |entry: &Entry| u32::try_from(entry.id.0).expect("a client");
                (dispatch, elevator.parts(dispatch.tag).map(client).collect::<Owners>())
            };
            self.arm.begin(dispatch.start, (dispatch.tag, owners));
        }
    }
}

impl RequestPath for Single<'_> {
    fn submit(&self, _: &ClientThreads, client: u32, places: &[u64]) {
        {
            let mut elevator = self.elevator.lock().expect("no holder panics");
            for place in places {
                let entry = Entry {
                    id: EntryId(u64::from(client)),
                    operation: Operation::Read,
                    class: Class::BestEffort,
                    start: place % DiskPlan::SATA_2005.sectors(),
                    sectors: 1,
                };
                elevator.handle_insert(0, entry, QueuePosition::Sorted);
            }
        }
        self.dispatch();
    }
}

fn single(rounds: u64) -> Vec<u64> {
    let (arm, ended) = Arm::new();
    let elevator = Mutex::new(Elevator::new(settings_of_both()));
    let single = Single { elevator, arm: &arm };
    let clients = ClientThreads::new(THREADS);
    thread::scope(|scope| {
        let (single, clients) = (&single, &clients);
        scope.spawn(move || {
            for (tag, owners) in ended {
                thread::sleep(SERVICE);
                single.elevator.lock().expect("no holder panics").handle_done(tag);
                single.dispatch();
                owners.into_iter().for_each(|client| clients.answer(client));
            }
        });
        run::run_on(single, clients, rounds);
        arm.close()
    })
}

/// The member below the shipped scheduler.
struct RecordingMember<'a>(&'a Arm<(Option<Ticket>, Owners)>);

impl Device<u32> for RecordingMember<'_> {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        self.0.begin(vector.start, (vector.ticket, parts.collect()));
        None
    }
}

struct Shipped<'a> {
    scheduler: Scheduler<u32>,
    member: RecordingMember<'a>,
}

impl RequestPath for Shipped<'_> {
    fn submit(&self, _: &ClientThreads, client: u32, places: &[u64]) {
        let request = |place: &u64| Request {
            operation: Operation::Read,
            class: Class::BestEffort,
            position: QueuePosition::Sorted,
            start: place % DiskPlan::SATA_2005.sectors(),
            sectors: 1,
        };
        let requests = places.iter().map(|place| (request(place), client));
        self.scheduler.insert_all(&self.member, requests);
    }
}

fn shipped(rounds: u64) -> Vec<u64> {
    let (arm, ended) = Arm::new();
    let shipped =
        Shipped { scheduler: Scheduler::new(settings_of_both()), member: RecordingMember(&arm) };
    let clients = ClientThreads::new(THREADS);
    thread::scope(|scope| {
        let (shipped, clients) = (&shipped, &clients);
        scope.spawn(move || {
            for (ticket, owners) in ended {
                thread::sleep(SERVICE);
                shipped.scheduler.done(&shipped.member, ticket);
                owners.into_iter().for_each(|client| clients.answer(client));
            }
        });
        run::run_on(shipped, clients, rounds);
        arm.close()
    })
}
