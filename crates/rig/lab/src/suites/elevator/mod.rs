//! Suite `elevator`: many threads submit to one member. How long do they wait for each other?

mod client_threads;
mod locked;
mod machine;
mod order;
mod run;
mod shipped;

use std::cell::RefCell;

use braid_member::MemoryMember;

use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};
use locked::{Listed, Single};
use run::RunResult;
use shipped::{Shipped, Straight};

pub(super) const SUITE: Suite = Suite {
    name: "elevator",
    about: "32 threads before one member: their waits for each other; the order of requests at \
            the member",
    run: measure,
};

const RATE: &str = "requests";
const LOST: &str = "attempts that found it owned";
const WAITED: &str = "time waited for locks";
const METRICS: [Metric; 5] = [
    Metric::more(RATE, "1/s"),
    Metric::less(LOST, "%"),
    Metric::less(WAITED, "% of thread time"),
    Metric::less("voluntary switches", "1/1000"),
    Metric::less("system time", "µs/1000"),
];

/// The name of the case with the seed's table. With fewer cores than the seed had, threads do not
/// contend for the lock at the same time.
const TABLE: &str = "the seed's table: null member, 32 threads, depth 4, 512 bytes";
const TABLE_CORES: usize = 16;

fn measure(settings: &Settings) -> Report {
    let mut report = Report::default();
    table(settings, &mut report);
    for threads in [32, 4, 1] {
        contended(settings, &mut report, &format!("null member, {threads} threads"), threads);
    }
    for threads in [4, 32] {
        straight(settings, &mut report, threads, true);
        straight(settings, &mut report, threads, false);
    }
    order::case(settings, &mut report);
    report.note(
        "attempts and waits: for \"before\" and \"seed\", those of every lock; for braid, \
                 those of ownership, which a thread only tries if it looks free; braid locks its \
                 insertion lists for a push, which is not counted",
    );
    report.note(
        "requests of one sector at random places, 4 at once from each thread, to a member \
                 that completes each at once",
    );
    report
}

fn rounds(settings: &Settings, threads: usize) -> u64 {
    let all: u64 = if settings.small { 256 } else { 200_000 };
    all / threads as u64
}

fn table(settings: &Settings, report: &mut Report) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores >= TABLE_CORES {
        contended(settings, report, TABLE, 32);
    } else if settings.wants(TABLE) {
        report.note(format!(
            "{TABLE}: NOT SHOWN. This machine has {cores} cores; the table needs {TABLE_CORES}, \
             so that threads compete for the lock. The seed had 879 K to 2867 K, 3.26x, \
             contention 93.6 % to 6 %. `braid-lab cores` is a model of machines with more"
        ));
    }
}

fn contended(settings: &Settings, report: &mut Report, name: &str, threads: usize) {
    if !settings.wants(name) {
        return;
    }
    let rounds = rounds(settings, threads);
    let (single, listed) = (Single::new(), Listed::new());
    let shipped = Shipped::new(braid_elevator::Settings::default());
    let counters = RefCell::new(report);
    let turn = |run: &dyn Fn() -> RunResult, lost: &dyn Fn() -> [u64; 3]| {
        let before = lost();
        let took = run();
        let after = lost();
        values(&took, std::array::from_fn(|index| after[index] - before[index]), threads)
    };
    let contenders = vec![
        Contender::new("before", || {
            turn(&|| run::run(&single, threads, rounds), &|| single.contention())
        }),
        Contender::new("seed", || {
            turn(&|| run::run(&listed, threads, rounds), &|| listed.contention())
        }),
        Contender::new("braid", || {
            let values = turn(&|| run::run(&shipped, threads, rounds), &|| shipped.contention());
            let seen = shipped.counters();
            let line = format!(
                "drained {} in {} batches, dispatched {} in {}, owner misses {}",
                seen.drained,
                seen.drained_batches,
                seen.elevator.dispatched,
                seen.dispatched_batches,
                seen.owner_misses
            );
            counters.borrow_mut().counter(format!("{name}, braid"), line);
            values
        }),
    ];
    let case = race(settings, name, &METRICS, contenders);
    let least = if name == TABLE { 3.26 } else { 1.0 };
    let targets = [
        Target::ratio(RATE, "braid", "before", least),
        Target::value(LOST, "braid", 6.0, "attempts"),
        Target::value(WAITED, "braid", 6.0, "time"),
    ];
    counters.into_inner().add(case.map(|case| case.with(targets)));
}

/// Runs policy `none`, over a member in memory that was never written, or over a null member.
fn straight(settings: &Settings, report: &mut Report, threads: usize, is_memory: bool) {
    let what = if is_memory { "an empty member" } else { "nothing at all" };
    let name = format!("policy none before {what}, {threads} threads");
    if !settings.wants(&name) {
        return;
    }
    let rounds = rounds(settings, threads) * if is_memory { 10 } else { 50 };
    let memory = || is_memory.then(|| MemoryMember::new(1 << 40));
    let nothing = Straight(memory());
    let shipped = Shipped::new(braid_elevator::Settings::straight()).over(memory());
    let rate = |took: &RunResult| vec![per(took, 1.0)];
    let contenders = vec![
        Contender::new("no elevator", || rate(&run::run(&nothing, threads, rounds))),
        Contender::new("braid", || rate(&run::run(&shipped, threads, rounds))),
    ];
    let case = race(settings, &name, &METRICS[..1], contenders);
    let least = if is_memory { 0.95 } else { 0.97 };
    report.add(case.map(|case| case.with([Target::ratio(RATE, "braid", "no elevator", least)])));
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn per(took: &RunResult, factor: f64) -> f64 {
    took.requests as f64 * factor / took.seconds
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(took: &RunResult, [attempts, failed, waited_ns]: [u64; 3], threads: usize) -> Vec<f64> {
    let thousands = took.requests as f64 / 1000.0;
    vec![
        per(took, 1.0),
        100.0 * failed as f64 / attempts.max(1) as f64,
        waited_ns as f64 / 1e7 / took.seconds / threads as f64,
        took.usage.voluntary / thousands,
        took.usage.system_s * 1e6 / thousands,
    ]
}
