//! Suite `multiplexer`: reads against write-back on disks that seek.
//!
//! The load has the shape of blogbench ([`shape`]), on a RAID-5 of modelled disks ([`crate::disk`])
//! in virtual time. The suite runs the shipped engine, the shipped elevators, and five rules for
//! which side the disks serve ([`rule`]). Every run gives the same figures, so the suite runs once.

mod bound;
mod field;
mod rule;
mod shape;
mod sweep;
mod threads;
mod world;

use std::cell::RefCell;
use std::time::Duration;

use braid_elevator::MultiplexerSettings;

use crate::disk::DiskPlan;
use crate::frame::{Case, Contender, Curves, Marks, Metric, Report, Settings, Suite, Target, race};
use rule::Rule;
use shape::Shape;
use world::{Outcome, Plan, World, percentile};

pub(super) const SUITE: Suite = Suite {
    name: "multiplexer",
    about: "reads against write-back: five rules, on disks in virtual time",
    run,
};

const READS: &str = "files read";
const WRITES: &str = "works made durable";
const WRITTEN: &str = "written";
const OFF: &str = "share off its set point";
const HELD: &str = "longest hold of a side";
const FSYNC: &str = "fsync p99";
const LATENCIES: [Metric; 5] = [
    Metric::less(OFF, "points"),
    Metric::less(HELD, "periods"),
    Metric::less("longest wait of a request", "periods"),
    Metric::less("read p50", "ms"),
    Metric::less("read p99", "ms"),
];
const READ_TAIL: Metric = Metric::less("read p99.9", "ms");
const FSYNCS: [Metric; 3] =
    [Metric::less("fsync p50", "ms"), Metric::less(FSYNC, "ms"), Metric::less("fsync p99.9", "ms")];

const EVERY_RULE: [Rule; 6] = [
    Rule::FreeForAll,
    Rule::ReadFirst,
    Rule::WriteFirst,
    Rule::HammerBefore,
    Rule::Hammer,
    Rule::Braid,
];
/// The rules for the flood. The flood's writes are never made durable, so HAMMER's locks would
/// never be released.
const RULES_WITHOUT_LOCKS: [Rule; 4] =
    [Rule::FreeForAll, Rule::ReadFirst, Rule::WriteFirst, Rule::Braid];

/// Seconds of a run. A minute has 660 works in the free-for-all; minutes differ by 1 %, too much
/// for the targets.
const BLOGBENCH_S: u64 = 600;

struct Work {
    name: &'static str,
    shape: Shape,
    rules: &'static [Rule],
    cache_sectors: u64,
    time_s: u64,
    targets: Vec<Target>,
}

fn works() -> Vec<Work> {
    let storm = Shape { readers: 100, commenters: 1, ..Shape::default() };
    let flood = Shape { readers: 100, flooders: 3, ..Shape::default() };
    let held = || [Target::value(OFF, "braid", 5.0, ""), Target::value(HELD, "braid", 2.0, "")];
    let traded = [
        Target::ratio(WRITES, "braid", "free-for-all", 3.0),
        Target::ratio(READS, "braid", "free-for-all", 0.8),
    ];
    let fsync = Target::ratio(FSYNC, "braid", "free-for-all", 1.0 / 3.0);
    let work = |name, shape, cache_sectors, targets| Work {
        name,
        shape,
        rules: &EVERY_RULE,
        cache_sectors,
        time_s: 60,
        targets,
    };
    let blogbench = |name, cache_sectors, targets| Work {
        time_s: BLOGBENCH_S,
        ..work(name, Shape::BLOGBENCH, cache_sectors, targets)
    };
    vec![
        blogbench("blogbench", 0, traded.iter().cloned().chain(held()).collect()),
        blogbench("blogbench, disks with a write cache", 16 << 10, traded.to_vec()),
        work("read storm, one fsync at a time", storm, 0, vec![fsync, held()[1].clone()]),
        Work {
            rules: &RULES_WITHOUT_LOCKS,
            ..work("read storm, flood of writes", flood, 0, held().to_vec())
        },
    ]
}

fn plan(work: &Work, rule: Rule, is_small: bool) -> Plan {
    let disk = DiskPlan { cache_sectors: work.cache_sectors, ..DiskPlan::SATA_2005 };
    field::plan(work.shape, rule, (disk, 4), if is_small { (1, 2) } else { (10, work.time_s) })
}

fn run(settings: &Settings) -> Report {
    // Every run gives the same figures to the last digit, so one run is enough.
    let once = Settings { runs: 1, ..settings.clone() };
    let mut report = Report::default();
    for work in works() {
        one(&once, &mut report, &work);
    }
    threaded(settings, &mut report);
    sweep::run(settings, &mut report);
    let MultiplexerSettings { period_ns, .. } = MultiplexerSettings::default();
    report.note(format!(
        "virtual time; blogbench {BLOGBENCH_S} s, the others 60 s, after 10 s; period {} ms; {:?}",
        period_ns / 1_000_000,
        DiskPlan { cache_sectors: 0, ..DiskPlan::SATA_2005 }
    ));
    report.note(format!(
        "requests of {} KiB, files of {} of them, {} µs between an answer and the next request; {:?}",
        shape::BLOCK_SECTORS / 2,
        shape::FILE_BLOCKS,
        shape::THINK_NS / 1000,
        Shape::BLOGBENCH
    ));
    report.note(format!(
        "HAMMER: {} leaves, with locks that readers share and the flusher needs exclusively",
        world::LEAVES
    ));
    report.note(
        "hold: the multiplexer withholds a side's queued requests from a member; wait: a \
                 request stands in the elevator, mostly behind others of its side",
    );
    report
}

fn one(settings: &Settings, report: &mut Report, work: &Work) {
    let has_fsyncs = work.shape.flooders == 0;
    let written = match has_fsyncs {
        true => Metric::more(WRITES, "1/s"),
        false => Metric::more(WRITTEN, "MB/s"),
    };
    let mut metrics = vec![Metric::more(READS, "1/s"), written];
    metrics.extend(LATENCIES);
    metrics.push(READ_TAIL);
    if has_fsyncs {
        metrics.extend(FSYNCS);
    }
    let outcomes: RefCell<Vec<(Rule, Outcome)>> = RefCell::default();
    let contender = |rule: Rule| {
        let outcomes = &outcomes;
        Contender::new(rule.name(), move || {
            let plan = plan(work, rule, settings.small);
            let outcome = World::new(&plan).run();
            let values = values(&plan, &outcome, has_fsyncs);
            let mut outcomes = outcomes.borrow_mut();
            outcomes.retain(|(other, _)| *other != rule);
            outcomes.push((rule, outcome));
            values
        })
    };
    let contenders = work.rules.iter().map(|rule| contender(*rule)).collect();
    let case = race(settings, work.name, &metrics, contenders);
    report.add(case.map(|case| case.with(work.targets.iter().cloned())));
    let mut outcomes = outcomes.into_inner();
    outcomes.sort_by_key(|(rule, _)| work.rules.iter().position(|other| other == rule));
    for (rule, outcome) in &outcomes {
        let line = format!(
            "the flusher's share of the members' time {:.1} %, its set point {:.1} %",
            outcome.share_permille / 10.0,
            outcome.set_point_permille / 10.0
        );
        report.counter(format!("{}, {}", work.name, rule.name()), line);
    }
    report.curves.extend(curves(work.name, &outcomes));
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn threaded(settings: &Settings, report: &mut Report) {
    let name = "threads, throttled members, blogbench";
    let time = Duration::from_millis(if settings.small { 300 } else { 5000 });
    let metrics = [
        Metric::more(READS, "1/s"),
        Metric::more(WRITES, "1/s"),
        Metric::less("read p99", "ms"),
        Metric::less(FSYNC, "ms"),
    ];
    let contender = |rule: Rule| {
        Contender::new(rule.name(), move || {
            let outcome = threads::run(rule, Shape::BLOGBENCH, time);
            let p99 = |sorted: &[u64]| percentile(sorted, 99_000) as f64 / 1e6;
            let per_second = |count: u64| count as f64 / time.as_secs_f64();
            vec![
                per_second(outcome.files_read),
                per_second(outcome.works_written),
                p99(&outcome.read_ns),
                p99(&outcome.fsync_ns),
            ]
        })
    };
    let contenders = vec![contender(Rule::FreeForAll), contender(Rule::Braid)];
    let case = race(settings, name, &metrics, contenders);
    if let Some(case) = &case {
        report.note(throttled_bound(case));
    }
    report.add(case.map(|case| {
        case.with([
            Target::ratio(WRITES, "braid", "free-for-all", 3.0),
            Target::ratio(READS, "braid", "free-for-all", 0.8),
        ])
    }));
    report.note(format!(
        "throttled members: one thread each, {:?} for any request at any place",
        threads::SERVICE
    ));
}

/// The limit of members with a fixed time for a read at any place; writes get the rest of the time.
/// A work of writes counts with its least time under the two rules.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn throttled_bound(case: &Case) -> String {
    let rate = |metric: &str, of: &str| {
        case.series(metric, of).map_or(0.0, |series| series.spread().median).max(f64::MIN_POSITIVE)
    };
    let has = f64::from(threads::MEMBERS);
    let read = shape::FILE_BLOCKS as f64 * threads::SERVICE.as_secs_f64();
    let left = |of: &str| (has - read * rate(READS, of)).max(0.0);
    let least = ["free-for-all", "braid"].map(|of| left(of) / rate(WRITES, of));
    let most = (has - 0.8 * (has - left("free-for-all"))) / least[0].min(least[1]);
    format!(
        "throttled members: in the free-for-all, reads leave {:.1} % to the flusher, and a work \
         takes {:.1} ms of members; with braid it takes {:.1} ms; with 80 % of the reads, {:.2}x \
         the writes fit",
        100.0 * left("free-for-all") / has,
        1e3 * least[0],
        1e3 * least[1],
        most / rate(WRITES, "free-for-all")
    )
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(plan: &Plan, outcome: &Outcome, has_fsyncs: bool) -> Vec<f64> {
    let seconds = plan.time_ns as f64 / 1e9;
    let periods =
        |times: [u64; 2]| times[0].max(times[1]) as f64 / plan.multiplexer.period_ns as f64;
    let milliseconds = |sorted: &[u64], part| percentile(sorted, part) as f64 / 1e6;
    let written = match has_fsyncs {
        true => outcome.works_written as f64 / seconds,
        false => outcome.write_sectors as f64 * 512e-6 / seconds,
    };
    let mut values = vec![
        outcome.files_read as f64 / seconds,
        written,
        (outcome.share_permille - outcome.set_point_permille).abs() / 10.0,
        periods(outcome.waits.held_ns),
        periods(outcome.waits.longest_ns),
    ];
    let parts = [50_000, 99_000, 99_900];
    values.extend(parts.map(|part| milliseconds(&outcome.read_ns, part)));
    if has_fsyncs {
        values.extend(parts.map(|part| milliseconds(&outcome.fsync_ns, part)));
    }
    values
}

/// The curves of a case: both throughputs over time, and latencies by percentile.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn curves(case: &str, outcomes: &[(Rule, Outcome)]) -> Vec<Curves> {
    /// Places of percentiles on the x axis: the further right, the rarer the latency.
    const PARTS: [(f64, &str); 5] =
        [(0.3, "50 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %")];
    const OF_100_000: [usize; 5] = [50_000, 90_000, 99_000, 99_900, 99_990];
    let over_time = |side: usize| -> Vec<(&'static str, Vec<(f64, f64)>)> {
        let line = |outcome: &Outcome| {
            let seconds = outcome.by_second.iter().enumerate();
            seconds.map(|(second, counts)| (second as f64, counts[side] as f64)).collect()
        };
        outcomes.iter().map(|(rule, outcome)| (rule.name(), line(outcome))).collect()
    };
    let by_part = |sorted: fn(&Outcome) -> &[u64]| -> Vec<(&'static str, Vec<(f64, f64)>)> {
        let line = |outcome: &Outcome| {
            let parts = PARTS.iter().zip(OF_100_000);
            let sorted = sorted(outcome);
            parts.map(|((x, _), part)| (*x, percentile(sorted, part) as f64 / 1e6)).collect()
        };
        outcomes.iter().map(|(rule, outcome)| (rule.name(), line(outcome))).collect()
    };
    let plot = |title: &str, x, y, ticks, lines| Curves {
        title: format!("{title}: {case}"),
        x,
        y,
        ticks,
        lines,
        marks: Marks::Line,
    };
    let read: fn(&Outcome) -> &[u64] = |outcome| &outcome.read_ns;
    let fsync: fn(&Outcome) -> &[u64] = |outcome| &outcome.fsync_ns;
    vec![
        plot(READS, "second", "1/s", &[], over_time(0)),
        plot(WRITES, "second", "1/s", &[], over_time(1)),
        plot("latency of reads", "percentile", "ms", &PARTS, by_part(read)),
        plot("latency of fsync", "percentile", "ms", &PARTS, by_part(fsync)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_same_to_the_last_digit() {
        for work in works() {
            for rule in work.rules {
                let run = || {
                    let plan = plan(&work, *rule, true);
                    values(&plan, &World::new(&plan).run(), true)
                };
                assert_eq!(run(), run(), "{} {}", work.name, rule.name());
            }
        }
    }

    #[test]
    fn the_shipped_rule_holds_its_share_and_nobody_for_two_periods() {
        let works = works();
        let work = works.iter().find(|work| work.shape.flooders > 0).expect("a flood");
        let plan = Plan { time_ns: 10_000_000_000, ..plan(work, Rule::Braid, true) };
        let outcome = World::new(&plan).run();
        let off = outcome.share_permille - outcome.set_point_permille;
        assert!(off.abs() < 50.0, "{off} thousandths off the set point");
        let held_ns = outcome.waits.held_ns.into_iter().max().expect("two sides");
        assert!(held_ns < 2 * plan.multiplexer.period_ns, "{held_ns}");
    }
}
