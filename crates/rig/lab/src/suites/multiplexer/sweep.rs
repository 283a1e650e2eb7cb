//! Case `sweep`: every rule over the field ([`super::field`]), and the arms' limit
//! ([`super::bound`]).
//!
//! A cell of the field is *in reach* if the arms allow three times the writes of the free-for-all
//! with 80 % of its reads. In other cells the arms' maximum with 80 % of the reads replaces the
//! three times. The suite prints, cell by cell, where the shipped rule is below either target.

use super::bound::{Bound, Cost};
use super::field::Cell;
use super::rule::Rule;
use super::world::Outcome;
use crate::frame::{Case, Curves, Figure, Marks, Metric, Report, Series, Settings, Spread, Target};

const NAME: &str = "sweep";

/// The target: the part of the reads that is kept. Writes must grow [`TIMES`] times.
const KEPT: f64 = 0.8;
const TIMES: f64 = 3.0;

/// Maximum percentage points by which a share may exceed its set point.
const OFF_MAX: f64 = 5.0;
const HELD_MAX: f64 = 2.0;

const RULES: [Rule; 5] =
    [Rule::FreeForAll, Rule::ReadFirst, Rule::WriteFirst, Rule::Hammer, Rule::Braid];

const READS: &str = "reads kept";
const WRITES: &str = "writes";
const REACHED: &str = "writes, of 3x or of what the arms allow with 80 % of the reads";
const ALLOWED: &str = "writes, of what the arms allow with the reads that are kept";
const OFF: &str = "share above its set point";
const HELD: &str = "longest hold of a side";
const BOUND: &str = "bound";

type Value = fn(&Point) -> f64;
/// A function that picks one of the values of a metric over the field: the least, the median or the
/// greatest.
type End = fn(Spread) -> f64;

const METRICS: [(Metric, Value); 6] = [
    (Metric::more(READS, "times"), |point| point.kept),
    (Metric::more(WRITES, "times"), |point| point.writes),
    (Metric::more(REACHED, "times"), |point| point.reached),
    (Metric::more(ALLOWED, "times"), |point| point.allowed),
    (Metric::less(OFF, "points"), |point| point.off_points),
    (Metric::less(HELD, "periods"), |point| point.held_periods),
];

/// The result of one rule in one cell.
#[derive(Clone, Debug)]
struct Point {
    kept: f64,
    writes: f64,
    /// The writes reached, as a part of [`TIMES`], or of the arms' limit if that is less.
    reached: f64,
    /// The writes reached, as a part of the arms' limit with the reads that the rule keeps.
    allowed: f64,
    /// Points of the share above its set point. Points below do not count: idle flushers use less.
    off_points: f64,
    held_periods: f64,
}

/// The results of all rules in one cell.
#[derive(Clone, Debug)]
struct CellResult {
    cell: Cell,
    flushers_part: f64,
    bound: Bound,
    points: Vec<Point>,
}

impl CellResult {
    fn of(cell: Cell, is_small: bool) -> Self {
        let outcomes = RULES.map(|rule| cell.run(rule, is_small));
        let [reads_alone, writes_alone] =
            [true, false].map(|reads| Cost::of(&cell.run_alone(reads, is_small)));
        let mut costs: Vec<Cost> = outcomes.iter().map(Cost::of).collect();
        let free = costs[0];
        costs.extend([reads_alone, writes_alone]);
        let bound = Bound::new(free, writes_alone, &costs, cell.arms_ns(is_small));
        let point = |(outcome, cost): (&Outcome, &Cost)| {
            let (kept, writes) = (ratio(cost.reads, free.reads), ratio(cost.writes, free.writes));
            let held_ns = outcome.waits.held_ns.into_iter().max().expect("two sides");
            #[allow(clippy::cast_precision_loss, reason = "seconds in nanoseconds")]
            let held_periods = held_ns as f64 / cell.period_ns() as f64;
            Point {
                kept,
                writes,
                reached: writes / bound.writes(KEPT).min(TIMES),
                allowed: writes / bound.writes(kept),
                off_points: (outcome.share_permille - outcome.set_point_permille).max(0.0) / 10.0,
                held_periods,
            }
        };
        let points = outcomes.iter().zip(&costs).map(point).collect();
        Self { cell, flushers_part: free.flushers_part(), bound, points }
    }

    fn braid(&self) -> &Point {
        self.points.last().expect("the shipped rule is the last")
    }

    fn is_in_reach(&self) -> bool {
        self.bound.writes(KEPT) >= TIMES
    }

    /// Whether the shipped rule meets its targets in this cell.
    fn holds(&self) -> bool {
        let braid = self.braid();
        braid.kept >= KEPT && braid.reached >= 1.0 && self.is_fair()
    }

    /// Whether the rule keeps its share in this cell, and holds no side for two periods.
    fn is_fair(&self) -> bool {
        let braid = self.braid();
        braid.off_points <= OFF_MAX && braid.held_periods <= HELD_MAX
    }

    fn line(&self) -> String {
        let braid = self.braid();
        format!(
            "writes {:.2}x, reads {:.3}, held {:.2} periods; the arms allow {:.2}x with these reads, {:.2}x with 80 %; the flusher has {:.1} % anyway",
            braid.writes,
            braid.kept,
            braid.held_periods,
            self.bound.writes(braid.kept),
            self.bound.writes(KEPT),
            100.0 * self.flushers_part
        )
    }
}

/// The ratio of `value` to `of`, or 1 if both are zero.
fn ratio(value: f64, of: f64) -> f64 {
    if of > 0.0 { value / of } else { 1.0 }
}

pub(super) fn run(settings: &Settings, report: &mut Report) {
    if !settings.wants(NAME) {
        return;
    }
    let cells = Cell::all(settings.small);
    let results: Vec<CellResult> =
        cells.into_iter().map(|cell| CellResult::of(cell, settings.small)).collect();
    report.cases.extend(cases(&results));
    for result in results.iter().filter(|result| !result.holds()) {
        let which = if result.is_in_reach() { "below" } else { "below the bound" };
        report.counter(format!("{which}: {}", result.cell.name()), result.line());
    }
    report.curves.extend(plots(&results));
    let count = |wanted: &dyn Fn(&CellResult) -> bool| {
        results.iter().filter(|result| wanted(result)).count()
    };
    report.note(format!(
        "sweep: {} places; 3x and 80 % are in reach in {}; braid reaches both in {} of these, and \
         in {} of the others as much as the arms allow; it keeps 80 % of the reads in {} of all, \
         and 75 % in {}; a side is held for more than two periods in {}",
        results.len(),
        count(&CellResult::is_in_reach),
        count(&|result| result.is_in_reach() && result.holds()),
        count(&|result| !result.is_in_reach() && result.holds()),
        count(&|result| result.braid().kept >= KEPT),
        count(&|result| result.braid().kept >= 0.75),
        count(&|result| !result.is_fair()),
    ));
}

/// The minimum, the median and the maximum over the field, with a case for each.
fn cases(results: &[CellResult]) -> Vec<Case> {
    let count = results.len();
    let ends: [(&str, End); 3] = [
        ("least", |spread| spread.min),
        ("middle", |spread| spread.median),
        ("most", |spread| spread.max),
    ];
    let figure = |(metric, value): (Metric, Value), end: End| {
        let series = RULES.iter().enumerate().map(|(index, rule)| {
            let values: Vec<f64> =
                results.iter().map(|result| value(&result.points[index])).collect();
            Series { variant: rule.name(), values: vec![end(Spread::of(&values))] }
        });
        Figure { metric, series: series.collect() }
    };
    let case = |(name, end): (&str, End)| Case {
        name: format!("{NAME}, {name} of {count} places"),
        figures: METRICS.map(|metric| figure(metric, end)).into(),
        targets: match name {
            "least" => vec![
                Target::value(READS, "braid", KEPT, ""),
                Target::value(REACHED, "braid", 1.0, "the arms' arithmetic"),
            ],
            "most" => {
                vec![
                    Target::value(OFF, "braid", OFF_MAX, ""),
                    Target::value(HELD, "braid", HELD_MAX, ""),
                ]
            }
            _ => Vec::new(),
        },
    };
    ends.map(case).into()
}

fn plots(results: &[CellResult]) -> Vec<Curves> {
    let dots = |title: &str, x, y, lines| Curves {
        title: title.to_owned(),
        x,
        y,
        ticks: &[],
        lines,
        marks: Marks::Dots,
    };
    let each = |value: fn(&Point) -> (f64, f64)| -> Vec<(&'static str, Vec<(f64, f64)>)> {
        let points = |index: usize| results.iter().map(move |result| value(&result.points[index]));
        RULES
            .iter()
            .enumerate()
            .map(|(index, rule)| (rule.name(), points(index).collect()))
            .collect()
    };
    let mut against_reads = each(|point| (100.0 * point.kept, point.writes));
    let bound = |result: &CellResult| {
        (100.0 * result.braid().kept, result.bound.writes(result.braid().kept))
    };
    against_reads.push((BOUND, results.iter().map(bound).collect()));
    let by_part = |value: &dyn Fn(&CellResult) -> f64| -> Vec<(f64, f64)> {
        results.iter().map(|result| (100.0 * result.flushers_part, value(result))).collect()
    };
    let by_parts = vec![
        ("braid", by_part(&|result| result.braid().writes)),
        (BOUND, by_part(&|result| result.bound.writes(KEPT))),
    ];
    vec![
        dots(
            "writes against reads kept; bound: what the arms allow with the reads that braid keeps",
            "% of the free-for-all's reads",
            "times its writes",
            against_reads,
        ),
        dots(
            "writes against reads kept, of what the arms allow with these reads",
            "% of the free-for-all's reads",
            "1 is all",
            each(|point| (100.0 * point.kept, point.allowed)),
        ),
        dots(
            "writes by what the flusher has anyway; bound: with 80 % of the reads",
            "% of the arms' time",
            "times its writes",
            by_parts,
        ),
    ]
}
