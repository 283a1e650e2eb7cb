//! Suite `wait`: many writers, few stripes. Who waits for a stripe, and who is woken when one is free.
//!
//! *before* and *seed* are models ([`model`]); *braid* is the shipped runtime ([`volume`]). Files of 4 MiB, each made
//! durable, on a RAID-5 of four memory members, chunk and stripe unit 4 KiB, 256 stripes.

mod model;
mod volume;
mod work;

use std::cell::RefCell;

use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};
use model::{Discipline, Model};
use volume::Braid;
use work::{ROWS_PER_FILE, Took};

pub(super) const SUITE: Suite =
    Suite { name: "wait", about: "64, 8 and 1 writers wait for 256 stripes", run };

const FILES: &str = "files";
const SYSTEM: &str = "system time";
const METRICS: [Metric; 6] = [
    Metric::more(FILES, "1/s"),
    Metric::less(SYSTEM, "s/GiB"),
    Metric::less("user time", "s/GiB"),
    Metric::less("voluntary switches", "1/MiB"),
    Metric::less("involuntary switches", "1/MiB"),
    Metric::less("wake-ups of waiters", "1/MiB"),
];

/// Writers, files of each, and files of each in a small run.
const CASES: [(u64, u64, u64, &str); 3] =
    [(64, 2, 0, "64 writers"), (8, 8, 1, "8 writers"), (1, 32, 2, "1 writer")];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    for (writers, files, small, name) in CASES {
        let files = if settings.small { small } else { files };
        if files == 0 || !settings.wants(name) {
            continue;
        }
        case(settings, &mut report, (writers, files), name);
    }
    report.note("a wake-up of a waiter: before and seed, a writer's return from waiting for a stripe; braid, a stripe handed over");
    report
}

fn case(settings: &Settings, report: &mut Report, (writers, files): (u64, u64), name: &str) {
    let rows = writers * ROWS_PER_FILE;
    let before = Model::new(Discipline::WakeAll, rows);
    let seed = Model::new(Discipline::WakeOnePerHash, rows);
    let braid = Braid::new(writers);
    let counters = RefCell::new(report);
    let hand_overs = || braid.volume().counters().cache.stripe_hand_overs;
    let turn = |one: &dyn Fn() -> Took, woken: &dyn Fn() -> u64| {
        let already = woken();
        values(one(), woken() - already)
    };
    let contenders = vec![
        Contender::new("before", || {
            turn(&|| work::write(&before, writers, files), &|| before.wake_ups())
        }),
        Contender::new("seed", || {
            turn(&|| work::write(&seed, writers, files), &|| seed.wake_ups())
        }),
        Contender::new("braid", || {
            let values = turn(&|| work::write(&braid, writers, files), &hand_overs);
            counters.borrow_mut().engine(format!("{name}, braid"), &braid.volume().counters());
            values
        }),
    ];
    let found = race(settings, name, &METRICS, contenders);
    let targets: &[Target] = match writers {
        64 => &[
            Target::ratio(FILES, "braid", "before", 3.6),
            Target::ratio(SYSTEM, "braid", "before", 0.03),
        ],
        _ => &[Target::ratio(FILES, "braid", "before", 1.0)],
    };
    counters.into_inner().add(found.map(|case| case.with(targets.iter().cloned())));
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(took: Took, woken: u64) -> Vec<f64> {
    let gibibytes = took.mebibytes / 1024.0;
    vec![
        took.files / took.seconds,
        took.usage.system_s / gibibytes,
        took.usage.user_s / gibibytes,
        took.usage.voluntary / took.mebibytes,
        took.usage.involuntary / took.mebibytes,
        woken as f64 / took.mebibytes,
    ]
}
