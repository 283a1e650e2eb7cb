//! The input and output of a suite: settings, and a report of cases and figures.

/// Settings of a run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Number of rounds; each contender takes one turn in each round.
    pub runs: usize,
    /// Do so little work that the figures mean nothing.
    pub small: bool,
    /// Run only cases whose names contain this text.
    pub only: Option<String>,
    /// The "CASE/VARIANT" to repeat for ever.
    pub profile: Option<String>,
}

impl Settings {
    /// Whether the settings want the case of this name.
    #[must_use]
    pub fn wants(&self, case: &str) -> bool {
        let profiled = self.profile.as_ref().is_none_or(|profile| profile.starts_with(case));
        profiled && self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }
}

/// One suite.
#[derive(Debug)]
pub struct Suite {
    /// The suite's name on the command line.
    pub name: &'static str,
    /// The suite's purpose, in one line.
    pub about: &'static str,
    /// Runs the suite.
    pub run: fn(&Settings) -> Report,
}

/// Whether more or less of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
}

impl Better {
    /// The direction's word in rows.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
        }
    }

    /// The direction's phrase for readers.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::More => "more is better",
            Self::Less => "less is better",
        }
    }

    /// The direction that a row's word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::More, Self::Less].into_iter().find(|better| better.word() == word)
    }
}

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The metric's name.
    pub name: &'static str,
    /// The metric's unit.
    pub unit: &'static str,
    /// Whether more or less is better.
    pub better: Better,
}

impl Metric {
    /// A metric of which more is better.
    #[must_use]
    pub const fn more(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::More }
    }

    /// A metric of which less is better.
    #[must_use]
    pub const fn less(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::Less }
    }
}

/// One variant's values, round by round.
#[derive(Clone, Debug)]
pub struct Series {
    /// "before", "seed", "braid", or a peer's name.
    pub variant: &'static str,
    /// One value for each round.
    pub values: Vec<f64>,
}

/// The median, the smallest and the largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; all zero if `values` is empty.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) && middle > 0 {
            f64::midpoint(at(middle - 1), at(middle))
        } else {
            at(middle)
        };
        Self { median, min: at(0), max: at(sorted.len().saturating_sub(1)) }
    }

    /// Half of the distance between the extremes, in percent of the median.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.median * 100.0 }
    }
}

impl Series {
    /// The median and both extremes of the series.
    #[must_use]
    pub fn spread(&self) -> Spread {
        Spread::of(&self.values)
    }

    /// The spread of the ratios to `base`, round by round; a ratio is 1 if both values are zero.
    #[must_use]
    pub fn over(&self, base: &Self) -> Spread {
        let ratio = |(a, b): (&f64, &f64)| if a == b { 1.0 } else { a / b };
        Spread::of(&self.values.iter().zip(&base.values).map(ratio).collect::<Vec<_>>())
    }
}

/// A bound that a figure must reach.
#[derive(Clone, Debug)]
pub struct Target {
    /// The metric of the case to which the bound applies.
    pub metric: &'static str,
    /// The variant to which the bound applies.
    pub of: &'static str,
    /// The variant by whose figure the figure of `of` is divided; `None` to bound the figure of
    /// `of` itself.
    pub over: Option<&'static str>,
    /// A lower bound if more is better, an upper bound if less is better.
    pub bound: f64,
    /// The bound's source, unless the seed or a mechanism set it.
    pub source: &'static str,
}

impl Target {
    /// A target for the ratio of `of` to `over`.
    #[must_use]
    pub const fn ratio(
        metric: &'static str,
        of: &'static str,
        over: &'static str,
        bound: f64,
    ) -> Self {
        Self { metric, of, over: Some(over), bound, source: "" }
    }

    /// A target for the figure of `of` itself.
    #[must_use]
    pub const fn value(
        metric: &'static str,
        of: &'static str,
        bound: f64,
        source: &'static str,
    ) -> Self {
        Self { metric, of, over: None, bound, source }
    }
}

/// One metric of a case, for every variant.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The measured quantity.
    pub metric: Metric,
    /// One series for each variant. The other series are compared with the first.
    pub series: Vec<Series>,
}

/// One work, done by every variant.
#[derive(Clone, Debug)]
pub struct Case {
    /// The work, in a few words.
    pub name: String,
    /// The results, by metric.
    pub figures: Vec<Figure>,
    /// The bounds that the figures must reach.
    pub targets: Vec<Target>,
}

impl Case {
    /// Adds targets.
    #[must_use]
    pub fn with(mut self, targets: impl IntoIterator<Item = Target>) -> Self {
        self.targets.extend(targets);
        self
    }

    /// The values of `variant` in a metric.
    #[must_use]
    pub fn series(&self, metric: &str, variant: &str) -> Option<&Series> {
        let figure = self.figures.iter().find(|figure| figure.metric.name == metric)?;
        figure.series.iter().find(|series| series.variant == variant)
    }
}

/// The results of a suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The cases, in order.
    pub cases: Vec<Case>,
    /// Notes that a reader of the figures needs; skipped cases, and why; quoted figures of others.
    pub notes: Vec<String>,
    /// Counters of the last round: (case and variant, text).
    pub counters: Vec<(String, String)>,
    /// Curves, which only the plot shows.
    pub curves: Vec<Curves>,
}

impl Report {
    /// Keeps only metrics and curves whose names contain one of `texts`.
    pub fn keep_metrics(&mut self, texts: &[String]) {
        let is_kept = |name: &str| texts.iter().any(|text| name.contains(text));
        for case in &mut self.cases {
            case.figures.retain(|figure| is_kept(figure.metric.name));
            case.targets.retain(|target| is_kept(target.metric));
        }
        self.cases.retain(|case| !case.figures.is_empty());
        self.curves.retain(|curves| is_kept(&curves.title));
    }

    /// Adds a case, unless it is `None` because it was not run.
    pub fn add(&mut self, case: Option<Case>) {
        self.cases.extend(case);
    }

    /// Adds a note that a reader of the figures needs.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Adds the engine's counters that are not zero.
    pub fn engine(&mut self, whose: impl Into<String>, counters: &braid_engine::Counters) {
        self.counter(whose, named(counters));
    }

    /// Adds counters.
    pub fn counter(&mut self, whose: impl Into<String>, line: impl Into<String>) {
        let (whose, line) = (whose.into(), line.into());
        self.counters.retain(|(other, _)| *other != whose);
        self.counters.push((whose, line));
    }
}

/// The engine's counters that are not zero, in a line.
#[must_use]
pub fn named(counters: &braid_engine::Counters) -> String {
    let counted = counters.named().into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>().join(", ")
}

/// A plot of lines.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// The title of the plot.
    pub title: String,
    /// The label of the x axis, with its unit.
    pub x: &'static str,
    /// The label of the y axis, with its unit.
    pub y: &'static str,
    /// Labels at places of the x axis; if empty, numbers at both ends.
    pub ticks: &'static [(f64, &'static str)],
    /// A line for each variant.
    pub lines: Vec<(&'static str, Vec<(f64, f64)>)>,
    /// How the points are drawn.
    pub marks: Marks,
}

/// The drawing of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// A line joins the points in their order.
    #[default]
    Line,
    /// Each point is a dot.
    Dots,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_that_are_asked_for_are_left() {
        let figure = |name| Figure { metric: Metric::more(name, "1/s"), series: Vec::new() };
        let case = |name: &str, metrics: &[&'static str]| Case {
            name: name.to_owned(),
            figures: metrics.iter().map(|name| figure(name)).collect(),
            targets: metrics.iter().map(|name| Target::value(name, "braid", 1.0, "")).collect(),
        };
        let cases = vec![case("both", &["files read", "system time"]), case("none", &["seeks"])];
        let curves = ["files by seeks", "writes"].map(|title| Curves {
            title: title.to_owned(),
            x: "",
            y: "",
            ticks: &[],
            lines: Vec::new(),
            marks: Marks::Dots,
        });
        let mut report = Report { cases, curves: curves.into(), ..Report::default() };
        report.keep_metrics(&["files".to_owned()]);
        assert_eq!(
            report.curves.iter().map(|one| &one.title[..]).collect::<Vec<_>>(),
            ["files by seeks"]
        );
        let [left] = &report.cases[..] else { panic!("a case without figures says nothing") };
        assert_eq!((left.name.as_str(), left.figures.len(), left.targets.len()), ("both", 1, 1));
        assert_eq!(left.targets[0].metric, "files read");
    }
}
