//! Suite `wait`: many writers, few stripes. The suite shows which writers wait for a stripe, and
//! which of them a free stripe wakes.
//!
//! *before* and *seed* are models ([`model`]); *braid* is the shipped runtime ([`volume`]). In the
//! cases of *the rule alone* all three are models over the same engine, and differ only in the rule
//! by which writers wait ([`stripes`]). The work is files of 4 MiB, each made durable. The array is
//! a RAID-5 of four memory members, with chunk and stripe unit of 4 KiB and 256 stripes.

mod model;
mod row_writer;
mod stripes;
mod volume;
mod work;

use std::cell::RefCell;

use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};
use model::Model;
use row_writer::{Bare, Engine, RowWriter};
use stripes::Rule;
use volume::Braid;
use work::{ROWS_PER_FILE, WriteResult};

pub(super) const SUITE: Suite =
    Suite { name: "wait", about: "256, 64, 8 and 1 writers wait for 256 stripes", run };

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

/// For each case: writers, files of each writer, and files of each writer in a small run.
const CASES: [(u64, u64, u64); 4] = [(256, 1, 0), (64, 2, 0), (8, 8, 1), (1, 32, 2)];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    for (writers, files, small) in CASES {
        let files = if settings.small { small } else { files };
        let plural = if writers == 1 { "" } else { "s" };
        for (is_rule_alone, what) in [(false, ""), (true, ", the rule alone")] {
            let name = format!("{writers} writer{plural}{what}");
            if files == 0 || !settings.wants(&name) {
                continue;
            }
            if is_rule_alone {
                rule_alone(settings, &mut report, (writers, files), &name);
            } else {
                shipped(settings, &mut report, (writers, files), &name);
            }
        }
    }
    report.note(
        "a wake-up: the return of a writer that waited for a stripe; braid beside models, \
                 with a stripe handed over",
    );
    report.note(
        "the rule alone: all three run the shipped runtime below the models' queue, and \
                 the third hands stripes over like the runtime",
    );
    report
}

/// Compares the models over bare copies with the shipped runtime.
fn shipped(settings: &Settings, report: &mut Report, (writers, files): (u64, u64), name: &str) {
    let rows = writers * ROWS_PER_FILE;
    let before = Model::new(Rule::WakeAll, Bare::new(rows));
    let seed = Model::new(Rule::WakeOnePerHash, Bare::new(rows));
    let braid = Braid::new(writers);
    let counters = RefCell::new(report);
    let hand_overs = || braid.volume().counters().cache.stripe_hand_overs;
    let contenders = vec![
        contender("before", &before, (writers, files)),
        contender("seed", &seed, (writers, files)),
        Contender::new("braid", || {
            let already = hand_overs();
            let took = work::write(&braid, writers, files);
            let values = values(took, hand_overs() - already);
            counters.borrow_mut().engine(format!("{name}, braid"), &braid.volume().counters());
            values
        }),
    ];
    let found = race(settings, name, &METRICS, contenders);
    let targets: &[Target] = match writers {
        64 => &[
            Target::ratio(FILES, "braid", "before", 3.7),
            Target::ratio(SYSTEM, "braid", "before", 0.03),
        ],
        _ => &[Target::ratio(FILES, "braid", "before", 1.0)],
    };
    counters.into_inner().add(found.map(|case| case.with(targets.iter().cloned())));
}

/// Compares the rules over the same engine.
fn rule_alone(settings: &Settings, report: &mut Report, (writers, files): (u64, u64), name: &str) {
    let model = |rule| Model::new(rule, Engine::new(writers));
    let [before, seed, braid] = [Rule::WakeAll, Rule::WakeOnePerHash, Rule::HandOver].map(model);
    let contenders = vec![
        contender("before", &before, (writers, files)),
        contender("seed", &seed, (writers, files)),
        contender("braid", &braid, (writers, files)),
    ];
    let found = race(settings, name, &METRICS, contenders);
    report.add(found.map(|case| case.with([Target::ratio(FILES, "braid", "before", 1.0)])));
}

fn contender<'a, B: RowWriter + Send + 'static>(
    variant: &'static str,
    model: &'a Model<B>,
    (writers, files): (u64, u64),
) -> Contender<'a> {
    Contender::new(variant, move || {
        let already = model.wake_ups();
        let took = work::write(model, writers, files);
        values(took, model.wake_ups() - already)
    })
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn values(took: WriteResult, woken: u64) -> Vec<f64> {
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
