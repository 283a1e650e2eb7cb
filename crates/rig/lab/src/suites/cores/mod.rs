//! Suite `cores`: the suite `elevator` on a modelled machine with up to 256 cores.
//!
//! The code is the shipped scheduler's and that of the designs before it. Times follow published
//! figures for moving cache lines ([`braid_many_cores`]).
//!
//! The suite runs once, since every run gives the same digits everywhere.

mod machine;
mod run;

// The same files as in the suite `elevator`. In this suite the name `machine` in those files is the
// modelled machine.
#[allow(clippy::duplicate_mod, dead_code, reason = "a part of it, for a modelled machine")]
#[path = "../elevator/client_threads.rs"]
mod client_threads;
#[allow(clippy::duplicate_mod, dead_code, reason = "a part of it, for a modelled machine")]
#[path = "../elevator/locked.rs"]
mod locked;
#[allow(clippy::duplicate_mod, dead_code, reason = "a part of it, for a modelled machine")]
#[path = "../elevator/shipped.rs"]
mod shipped;

use braid_many_cores::{COSTS, Cost, Costs, WaitPolicy};

use crate::frame::{Case, Curves, Figure, Marks, Metric, Report, Series, Settings, Suite, Target};
use run::{Outcome, Variant};

pub(super) const SUITE: Suite = Suite {
    name: "cores",
    about: "a model: 1 to 256 cores before one member, from published figures about cache lines",
    run: measure,
};

const RATE: &str = "requests (model)";
const LOST: &str = "attempts that found it owned (model)";
const WAITED: &str = "time waited for locks (model)";
const METRICS: [Metric; 3] =
    [Metric::more(RATE, "1/s"), Metric::less(LOST, "%"), Metric::less(WAITED, "% of thread time")];

const THREADS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const TICKS: [(f64, &str); 9] = [
    (0.0, "1"),
    (1.0, "2"),
    (2.0, "4"),
    (3.0, "8"),
    (4.0, "16"),
    (5.0, "32"),
    (6.0, "64"),
    (7.0, "128"),
    (8.0, "256"),
];

/// The time of a thread's own work for each request, in picoseconds.
const CLIENTS: [(&str, u64); 2] =
    [("clients as the seed's", 11_160_000), ("clients that only ask", 50_000)];

fn measure(settings: &Settings) -> Report {
    let mut report = Report::default();
    for (clients, client_ps) in CLIENTS {
        for (locks, waiting) in
            [("std's locks", WaitPolicy::Futex), ("the kernel's locks", WaitPolicy::Queue)]
        {
            let costs = Costs::server().with_waiting(waiting).with(Cost::Client, client_ps);
            by_threads(settings, &mut report, &format!("{clients}, {locks}"), costs);
        }
    }
    sensitivity(settings, &mut report);
    report
}

/// Runs the cases from one thread up to the number of cores.
fn by_threads(settings: &Settings, report: &mut Report, name: &str, costs: Costs) {
    let mut lines = METRICS.map(|_| Variant::ALL.map(|variant| (variant.name(), Vec::new())));
    for ((place, _), threads) in TICKS.into_iter().zip(THREADS) {
        let name = format!("{name}, {threads} threads");
        if !settings.wants(&name) || (settings.small && threads > 32) {
            continue;
        }
        let outcomes = outcomes(settings, costs, threads);
        for (lines, index) in lines.iter_mut().zip(0..) {
            for ((_, points), outcome) in lines.iter_mut().zip(&outcomes) {
                points.push((place, outcome.values()[index]));
            }
        }
        let targets = (threads == 32).then(|| {
            [
                Target::ratio(RATE, "braid", "before", 3.26),
                Target::value(LOST, "braid", 6.0, "seed"),
            ]
        });
        report.add(Some(case(name, &outcomes).with(targets.into_iter().flatten())));
    }
    for (metric, lines) in METRICS.iter().zip(lines).take(2) {
        let title = format!("{}: {name}", metric.name);
        let curves = Curves {
            title,
            x: "threads",
            y: metric.unit,
            ticks: &TICKS,
            lines: lines.to_vec(),
            marks: Marks::Line,
        };
        report.curves.extend((!curves.lines[0].1.is_empty()).then_some(curves));
    }
}

/// Runs with each figure of the cost model halved and doubled, with 32 threads.
fn sensitivity(settings: &Settings, report: &mut Report) {
    let costs = Costs::server();
    for cost in COSTS {
        let (ps, source) = cost.usual();
        for (word, factor_ps) in [("halved", ps / 2), ("doubled", ps * 2)] {
            let name = format!("32 threads, {word}: {}", cost.name());
            if settings.wants(&name) {
                let outcomes = outcomes(settings, costs.with(cost, factor_ps), 32);
                report.add(Some(case(name, &outcomes)));
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let ns = ps as f64 / 1000.0;
        report.note(format!("{}: {ns} ns ({source})", cost.name()));
    }
    report.note(format!(
        "cache lines of the elevator itself: {} (an estimate: it has {} bytes, and a request \
         touches only a part)",
        costs.state_lines,
        size_of::<braid_elevator::Elevator>()
    ));
    report.note(
        "a model: docs/lab.md lists its omissions; cache lines of the other socket cost \
                 32 threads nothing, because one socket has all of them",
    );
    for (word, state_lines) in
        [("halved", costs.state_lines / 2), ("doubled", costs.state_lines * 2)]
    {
        let name = format!("32 threads, {word}: lines of the elevator's own");
        if settings.wants(&name) {
            let outcomes = outcomes(settings, costs.with_state_lines(state_lines), 32);
            report.add(Some(case(name, &outcomes)));
        }
    }
}

fn outcomes(settings: &Settings, costs: Costs, threads: usize) -> [Outcome; 3] {
    Variant::ALL.map(|variant| run::run(costs, threads, variant, settings.small))
}

fn case(name: String, outcomes: &[Outcome; 3]) -> Case {
    let figure = |(index, metric): (usize, &Metric)| {
        let series = Variant::ALL.iter().zip(outcomes).map(|(variant, outcome)| Series {
            variant: variant.name(),
            values: vec![outcome.values()[index]],
        });
        Figure { metric: *metric, series: series.collect() }
    };
    Case { name, figures: METRICS.iter().enumerate().map(figure).collect(), targets: Vec::new() }
}
