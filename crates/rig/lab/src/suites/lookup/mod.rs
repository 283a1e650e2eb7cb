//! Suite `lookup`: finding the stripe of a band, at 256, 16 K and 1 M stripes.
//!
//! *before* has 512 chained buckets, whatever the number of stripes; *seed* has two buckets for
//! each stripe; *braid* is the engine's own index. There are three ways of lookup. One after the
//! other: each lookup waits for the previous result, as when one request finds one stripe. All at
//! once: the processor works on several lookups. In turns, as in a shard: the requests of a turn
//! are known before the first is handled, so the index gets each band some requests ahead. The
//! chained tables have no call for that.

mod chained;

use std::hint::black_box;
use std::time::Instant;

use braid_engine::{Index, PREFETCH_PIECES};

use crate::frame::{
    Case, Contender, Figure, Metric, Report, Series, Settings, Suite, Target, race,
};
use crate::random::Random;
use chained::Chained;

pub(super) const SUITE: Suite =
    Suite { name: "lookup", about: "from a band to its stripe, at 256, 16 K and 1 M stripes", run };

/// Number of buckets of a table that does not grow with the cache.
const BUCKETS_BEFORE: usize = 512;

/// Number of events that a shard gets at once.
const TURN: usize = 64;

const HIT: &str = "hit, one after the other";
const HIT_AT_ONCE: &str = "hit, all at once";
const HIT_IN_TURNS: &str = "hit, in turns";
const METRICS: [Metric; 8] = [
    Metric::less(HIT, "ns"),
    Metric::less("miss, one after the other", "ns"),
    Metric::less(HIT_AT_ONCE, "ns"),
    Metric::less("miss, all at once", "ns"),
    Metric::less(HIT_IN_TURNS, "ns"),
    Metric::less("miss, in turns", "ns"),
    Metric::less("probes of a hit", "places or lines"),
    Metric::less("probes of a miss", "places or lines"),
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    let sizes: &[(usize, &str)] = if settings.small {
        &[(256, "256 stripes"), (16 << 10, "16 K stripes")]
    } else {
        &[(256, "256 stripes"), (16 << 10, "16 K stripes"), (1 << 20, "1 M stripes")]
    };
    for (stripes, name) in sizes {
        let case = settings.wants(name).then(|| size(settings, *stripes, name)).flatten();
        let targets = [
            Target::ratio(HIT, "braid", "before", 0.1),
            Target::ratio(HIT_AT_ONCE, "braid", "before", 0.1),
            Target::ratio(HIT_IN_TURNS, "braid", "before", 0.1),
        ];
        report.add(case.map(|case| if *stripes == 16 << 10 { case.with(targets) } else { case }));
    }
    growth(&mut report);
    report.note(
        "a chained head has 952 bytes, an index entry 16, four in a cache line; probes \
                 count chain heads and index lines; variants take turns of 64; bands are runs of \
                 16 neighbours, inserted and looked up in random order",
    );
    report
}

/// Reports the cost at the largest size divided by the cost at the smallest.
fn growth(report: &mut Report) {
    let [first, .., last] = report.cases.as_slice() else { return };
    let figures = GROWTHS.iter().enumerate().map(|(index, name)| {
        let series = first.figures[index].series.iter().zip(&last.figures[index].series);
        let ratios = |(a, b): (&Series, &Series)| Series {
            variant: a.variant,
            values: a.values.iter().zip(&b.values).map(|(a, b)| b / a).collect(),
        };
        Figure { metric: Metric::less(name, "times"), series: series.map(ratios).collect() }
    });
    let figures = figures.collect();
    let name = format!("from {} to {}", first.name, last.name);
    let case = Case { name, figures, targets: Vec::new() };
    let targets = [
        Target::value(GROWTHS[0], "braid", 2.0, ""),
        Target::value(GROWTHS[2], "braid", 2.0, ""),
        Target::value(GROWTHS[4], "braid", 2.0, "as a shard asks"),
    ];
    report.cases.push(case.with(targets));
}

/// Names of the ratios, in the order of the metrics.
const GROWTHS: [&str; 6] = [
    "growth of a hit",
    "growth of a miss",
    "growth of hits at once",
    "growth of misses at once",
    "growth of hits in turns",
    "growth of misses in turns",
];

trait Find {
    fn get(&mut self, band: u64) -> Option<u32>;
    fn prefetch(&self, _band: u64) {}
    fn probes(&mut self, band: u64) -> u64;
}

impl Find for Index {
    fn get(&mut self, band: u64) -> Option<u32> {
        Index::get(self, band)
    }

    fn prefetch(&self, band: u64) {
        Index::prefetch(self, band);
    }

    fn probes(&mut self, band: u64) -> u64 {
        let before = self.extra_probes();
        let _stripe = Index::get(self, band);
        1 + self.extra_probes() - before
    }
}

impl Find for Chained {
    fn get(&mut self, band: u64) -> Option<u32> {
        Chained::get(self, band)
    }

    fn probes(&mut self, band: u64) -> u64 {
        Chained::probes(self, band)
    }
}

fn size(settings: &Settings, stripes: usize, name: &str) -> Option<Case> {
    let mut random = Random::new(stripes as u64);
    let bands: Vec<u64> = (0..stripes as u64).map(band).collect();
    let mut before = Chained::new(BUCKETS_BEFORE, &bands, &mut random);
    let mut seed = Chained::new(2 * stripes.next_power_of_two(), &bands, &mut random);
    let mut index = Index::new(stripes);
    let mut order = bands.clone();
    random.shuffle(&mut order);
    (0..).zip(&order).for_each(|(stripe, band)| index.insert(*band, stripe));
    let questions = |count: usize| Questions::new(stripes as u64, count);
    let many = if settings.small { 10_000 } else { 1 << 20 };
    // Long chains get fewer lookups, so that the number of steps is about the same.
    let few = (many * BUCKETS_BEFORE / stripes).clamp(1000, many);
    let (many, few) = (questions(many), questions(few));
    let contenders = vec![
        Contender::new("before", || few.ask(&mut before)),
        Contender::new("seed", || many.ask(&mut seed)),
        Contender::new("braid", || many.ask(&mut index)),
    ];
    race(settings, name, &METRICS, contenders)
}

/// The band of a number. Bands are runs of sixteen neighbours at random places, as files leave
/// them.
fn band(number: u64) -> u64 {
    const RUN: u64 = 16;
    // Enough bits for places that no two runs meet.
    const PLACE_BITS: u32 = 44;
    let place = Random::new(number / RUN).next() >> (64 - PLACE_BITS);
    place * RUN + number % RUN
}

/// Bands to look up, in random order: existing ones, and missing ones.
struct Questions {
    hits: Vec<u64>,
    misses: Vec<u64>,
}

impl Questions {
    fn new(stripes: u64, count: usize) -> Self {
        let mut random = Random::new(7);
        let numbers: Vec<u64> = (0..count).map(|_| random.below(stripes)).collect();
        let hits = numbers.iter().map(|number| band(*number)).collect();
        let misses = numbers.iter().map(|number| band(number + stripes)).collect();
        Self { hits, misses }
    }

    fn ask(&self, table: &mut impl Find) -> Vec<f64> {
        vec![
            one_by_one(&self.hits, table),
            one_by_one(&self.misses, table),
            at_once(&self.hits, table),
            at_once(&self.misses, table),
            in_turns(&self.hits, table),
            in_turns(&self.misses, table),
            probes(&self.hits, table),
            probes(&self.misses, table),
        ]
    }
}

/// Nanoseconds for each lookup, if each lookup waits for the one before.
fn one_by_one(bands: &[u64], table: &mut impl Find) -> f64 {
    let start = Instant::now();
    let mut wait = 0;
    for band in bands {
        let found = table.get(band + wait).map_or(0, u64::from);
        // `wait` is always 0, unknown to the compiler, so each lookup depends on the one before.
        wait = black_box(found) >> 40;
    }
    black_box(wait);
    each(start, bands)
}

/// Nanoseconds for each lookup, if no lookup waits for another.
fn at_once(bands: &[u64], table: &mut impl Find) -> f64 {
    let start = Instant::now();
    let found: u64 = bands.iter().filter_map(|band| table.get(*band)).map(u64::from).sum();
    black_box(found);
    each(start, bands)
}

/// Nanoseconds for each lookup, as in a shard that gets [`TURN`] events at once. Each lookup waits
/// for the one before, and the index gets the next bands ahead of their lookups.
fn in_turns(bands: &[u64], table: &mut impl Find) -> f64 {
    let start = Instant::now();
    let mut wait = 0;
    for turn in bands.chunks(TURN) {
        turn.iter().take(PREFETCH_PIECES).for_each(|band| table.prefetch(band + wait));
        for (place, band) in turn.iter().enumerate() {
            let ahead = turn.get(place + PREFETCH_PIECES);
            ahead.into_iter().for_each(|band| table.prefetch(band + wait));
            let found = table.get(band + wait).map_or(0, u64::from);
            wait = black_box(found) >> 40;
        }
    }
    black_box(wait);
    each(start, bands)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn each(start: Instant, bands: &[u64]) -> f64 {
    start.elapsed().as_nanos() as f64 / bands.len() as f64
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn probes(bands: &[u64], table: &mut impl Find) -> f64 {
    let all: u64 = bands.iter().map(|band| table.probes(*band)).sum();
    all as f64 / bands.len() as f64
}
