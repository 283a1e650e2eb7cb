//! Suite `slow`: one member of a RAID-6 stalls, up to a minute, while clients read and write.
//!
//! *before* waits for the member, *braid* reads around it. Every length of the stall runs in
//! virtual time on modelled disks ([`world`]), and one length with threads and clocks
//! ([`threads`]).

mod threads;
mod world;

use std::cell::RefCell;
use std::time::Duration;

use braid_engine::SitOut;

use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};
use world::{Outcome, World};

pub(super) const SUITE: Suite =
    Suite { name: "slow", about: "a member of a RAID-6 stalls for 10 ms to 60 s under load", run };

const P99: &str = "read p99";
const ERRORS: &str = "errors";
const BACK: &str = "read again after the stall's end";
const METRICS: [Metric; 5] = [
    Metric::less("read p50", "ms"),
    Metric::less(P99, "ms"),
    Metric::less("read longest", "ms"),
    Metric::less(ERRORS, "1"),
    Metric::more("reads in the stall", "1/s"),
];
const NOTICED: [Metric; 2] = [Metric::less("noticed after", "ms"), Metric::less(BACK, "ms")];

const STALLS: [u64; 5] = [10, 100, 1_000, 10_000, 60_000];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    let once = Settings { runs: 1, ..settings.clone() };
    for stall_ms in STALLS {
        let name = format!("stalls for {}", length(stall_ms));
        let go = |sit_out| World::new(sit_out, stall_ms * 1_000_000).run();
        case(&once, &mut report, (&name, stall_ms), go);
    }
    let stall_ms = if settings.small { 300 } else { 60_000 };
    let name = format!("threads, stalls for {}", length(stall_ms));
    let stall = Duration::from_millis(stall_ms);
    let go = |sit_out| threads::run(sit_out, stall);
    // Runs as a small run, which has no warm-up round: each run takes a minute.
    case(&Settings { small: true, ..once }, &mut report, (&name, stall_ms), go);
    report.note(format!(
        "RAID-6 of {} members, {} readers and {} writers of {} KiB at random places, one request \
         at a time each; a read counts if part of it was in the stall; {:?}",
        world::SLOTS,
        world::READERS,
        world::WRITERS,
        world::BLOCK_SECTORS / 2,
        SitOut::default()
    ));
    report
}

fn length(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        _ => format!("{} s", milliseconds / 1000),
    }
}

fn case(
    settings: &Settings,
    report: &mut Report,
    (name, stall_ms): (&str, u64),
    go: impl Fn(SitOut) -> Outcome,
) {
    let noticed: RefCell<Option<Outcome>> = RefCell::default();
    let contenders = vec![
        Contender::new("before", || values(&go(SitOut::OFF))),
        Contender::new("braid", || {
            let outcome = go(SitOut::default());
            let values = values(&outcome);
            noticed.replace(Some(outcome));
            values
        }),
    ];
    let targets: &[Target] = match stall_ms {
        60_000 => &[
            Target::value(P99, "braid", 1000.0, ""),
            Target::value(ERRORS, "braid", 0.0, ""),
            Target::value(BACK, "braid", 10_000.0, "by itself"),
        ],
        _ => &[Target::ratio(P99, "braid", "before", 1.05)],
    };
    let case = race(settings, name, &METRICS, contenders);
    let mut case = case.map(|case| case.with(targets.iter().cloned()));
    // Only *braid* notices a stall, and only if the stall is long enough.
    let times = noticed.into_inner().and_then(|outcome| {
        let noticed = outcome.noticed_ns?.saturating_sub(outcome.start_ns);
        Some((noticed, outcome.back_ns?.saturating_sub(outcome.end_ns)))
    });
    if let (Some((noticed, back)), Some(case)) = (times, &mut case) {
        let once = Settings { small: true, runs: 1, ..Settings::default() };
        let turn = || vec![milliseconds(noticed), milliseconds(back)];
        let other = race(&once, name, &NOTICED, vec![Contender::new("braid", turn)]);
        case.figures.extend(other.into_iter().flat_map(|other| other.figures));
    }
    report.add(case);
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(outcome: &Outcome) -> Vec<f64> {
    let mut sorted = outcome.read_ns.clone();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    let at = |percent: usize| {
        milliseconds(sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or(0))
    };
    let seconds = (outcome.end_ns - outcome.start_ns) as f64 / 1e9;
    vec![at(50), at(99), at(100), outcome.errors as f64, sorted.len() as f64 / seconds]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_same_to_the_last_digit_and_a_long_stall_is_announced() {
        let run = |sit_out| World::new(sit_out, 2_000_000_000).run();
        let braid = run(SitOut::default());
        assert_eq!(values(&braid), values(&run(SitOut::default())));
        assert!(braid.noticed_ns.is_some() && braid.back_ns >= Some(braid.end_ns), "{braid:?}");
        assert_eq!((braid.errors, run(SitOut::OFF).noticed_ns), (0, None));
    }
}
