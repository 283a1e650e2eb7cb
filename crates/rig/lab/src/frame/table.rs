//! Tables like those of the seeds: one for each metric, with one line for each case. A line has
//! medians with their spread, and the change against the first variant. The targets follow, then
//! the counters.

use std::fmt::Write;

use super::report::{Better, Case, Figure, Report, Settings, Target};
use super::svg::number;

/// The report as text for a terminal.
#[must_use]
pub fn text(report: &Report, settings: &Settings) -> String {
    let mut out = String::new();
    if settings.small {
        out += "small: this only shows that the benchmark works; its figures mean nothing\n\n";
    }
    for group in groups(report) {
        let _never_fails = table(&mut out, &group);
    }
    if !settings.small {
        targets(&mut out, report);
    }
    if !report.counters.is_empty() {
        out += "counters (last round)\n";
        let width = report.counters.iter().map(|(whose, _)| whose.len()).max().unwrap_or(0);
        for (whose, line) in &report.counters {
            let _never_fails = writeln!(out, "  {whose:<width$}  {line}");
        }
        out.push('\n');
    }
    for note in &report.notes {
        let _never_fails = writeln!(out, "note: {note}");
    }
    out
}

/// Maximum number of variants that fit next to each other in a line.
const WIDE_MAX: usize = 3;

/// The figures of one metric, in all cases with the same variants.
type Group<'a> = Vec<(&'a Case, &'a Figure)>;

fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let variants = |figure: &Figure| -> Vec<&'static str> {
        figure.series.iter().map(|series| series.variant).collect()
    };
    for case in &report.cases {
        for figure in &case.figures {
            let fits = |group: &&mut Group<'_>| {
                let other = group[0].1;
                other.metric == figure.metric && variants(other) == variants(figure)
            };
            match groups.iter_mut().find(fits) {
                Some(group) => group.push((case, figure)),
                None => groups.push(vec![(case, figure)]),
            }
        }
    }
    groups
}

fn table(out: &mut String, group: &Group<'_>) -> std::fmt::Result {
    let first = group[0].1;
    let runs = first.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    let better = first.metric.better.phrase();
    let title = format!("{} ({}), {better}, {runs} runs", first.metric.name, first.metric.unit);
    writeln!(out, "{title}\n{}", "=".repeat(title.len()))?;
    if first.series.len() > WIDE_MAX {
        tall(out, group)?
    } else {
        wide(out, group)?
    }
    writeln!(out)
}

/// Prints a line for each case.
fn wide(out: &mut String, group: &Group<'_>) -> std::fmt::Result {
    let first = group[0].1;
    for (index, series) in first.series.iter().enumerate() {
        write!(out, "{:>20}", series.variant)?;
        if index > 0 {
            write!(out, "{:>10}{:>10}", "change", "ratio")?;
        }
    }
    writeln!(out, "   case")?;
    for (case, figure) in group {
        for (index, series) in figure.series.iter().enumerate() {
            let spread = series.spread();
            let value = format!("{} ±{:.1}%", number(spread.median), spread.percent());
            write!(out, "{value:>20}")?;
            if index > 0 {
                let ratio = series.over(&figure.series[0]).median;
                write!(out, "{:>10}{:>10}", change(ratio), times(ratio))?;
            }
        }
        writeln!(out, "   {}", case.name)?;
    }
    Ok(())
}

/// Prints a line for each variant of each case.
fn tall(out: &mut String, group: &Group<'_>) -> std::fmt::Result {
    for (case, figure) in group {
        for (index, series) in figure.series.iter().enumerate() {
            let spread = series.spread();
            let value = format!("{} ±{:.1}%", number(spread.median), spread.percent());
            write!(out, "{value:>20}")?;
            let ratio = series.over(&figure.series[0]).median;
            let compared =
                if index > 0 { [change(ratio), times(ratio)] } else { Default::default() };
            let [change, ratio] = compared;
            writeln!(out, "{change:>10}{ratio:>10}   {:<14}{}", series.variant, case.name)?;
        }
    }
    Ok(())
}

fn targets(out: &mut String, report: &Report) {
    let lines = verdicts(report);
    if !lines.is_empty() {
        *out += "targets\n";
        for line in lines {
            let _never_fails = writeln!(out, "  {line}");
        }
        out.push('\n');
    }
}

pub(super) fn verdicts(report: &Report) -> Vec<String> {
    let cases = report.cases.iter();
    cases.flat_map(|case| case.targets.iter().filter_map(|target| verdict(case, target))).collect()
}

fn verdict(case: &Case, target: &Target) -> Option<String> {
    let series = case.series(target.metric, target.of)?;
    let metric = case.figures.iter().find(|figure| figure.metric.name == target.metric)?.metric;
    let (reached, shown, bound, whose) = if let Some(over) = target.over {
        let ratio = series.over(case.series(target.metric, over)?);
        let shown = format!("{} ({}..{})", times(ratio.median), times(ratio.min), times(ratio.max));
        (ratio.median, shown, times(target.bound), format!("{}/{over}", target.of))
    } else {
        let reached = series.spread().median;
        let shown = format!("{} {}", number(reached), metric.unit);
        (reached, shown, number(target.bound), target.of.to_owned())
    };
    let (met, bound) = match metric.better {
        Better::More => (reached >= target.bound, format!("at least {bound}")),
        Better::Less => (reached <= target.bound, format!("at most {bound}")),
    };
    let word = if met { "met   " } else { "MISSED" };
    let source =
        if target.source.is_empty() { String::new() } else { format!(" ({})", target.source) };
    Some(format!("{word} {}: {} {whose} {shown}, {bound}{source}", case.name, metric.name))
}

fn change(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:+.1}%", (ratio - 1.0) * 100.0) } else { "-".to_owned() }
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}x", number(ratio)) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Metric, Series};
    use super::*;

    fn case(values: [(&'static str, f64); 2], metric: Metric) -> Case {
        let series = values.map(|(variant, value)| Series { variant, values: vec![value; 3] });
        let figures = vec![Figure { metric, series: series.to_vec() }];
        Case { name: "64 writers".to_owned(), figures, targets: Vec::new() }
    }

    #[test]
    fn a_lost_case_is_printed_as_plainly_as_a_won_one() {
        let won = case([("before", 10.0), ("braid", 36.2)], Metric::more("files", "1/s"))
            .with([Target::ratio("files", "braid", "before", 3.6)]);
        let lost = case([("before", 10.0), ("braid", 9.0)], Metric::more("files", "1/s"))
            .with([Target::ratio("files", "braid", "before", 3.6)]);
        let report = Report { cases: vec![won, lost], ..Report::default() };
        let text = text(&report, &Settings::default());
        assert!(text.contains("+262.0%") && text.contains("-10.0%"), "{text}");
        assert!(text.contains("met    64 writers: files braid/before 3.620x"), "{text}");
        assert!(text.contains("MISSED 64 writers: files braid/before 0.900x"), "{text}");
    }

    #[test]
    fn less_is_better_where_it_is_said() {
        let case = case([("before", 100.0), ("braid", 2.0)], Metric::less("system", "s"))
            .with([Target::ratio("system", "braid", "before", 0.03)]);
        let report = Report { cases: vec![case], ..Report::default() };
        let text = text(&report, &Settings::default());
        assert!(text.contains("met ") && text.contains("at most 0.030x"), "{text}");
    }
}
