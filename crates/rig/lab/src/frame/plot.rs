//! A plot of a suite: a panel for each metric, and a group of bars for each case. On each bar a
//! line shows the range from the smallest to the largest value. The suite's curves follow. Bars and
//! text need no library.

use std::fmt::Write;

use super::curves::draw;
use super::report::{Better, Case, Figure, Metric, Report, Series};
use super::svg::{colour, escape, number};

const WIDTH: f64 = 960.0;
/// The horizontal start of the bars. The cases' names stand left of it.
const LEFT: f64 = 330.0;
/// Space right of the longest bar, for the bar's figure.
const RIGHT: f64 = 130.0;
const BAR: f64 = 15.0;
const GAP: f64 = 10.0;
const TITLE: f64 = 46.0;
/// If the ratio of largest to smallest value exceeds this, the scale is logarithmic.
const LINEAR_MAX: f64 = 60.0;

/// The plot as SVG.
#[must_use]
pub fn svg(suite: &str, report: &Report) -> String {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut variants: Vec<&str> = Vec::new();
    for figure in report.cases.iter().flat_map(|case| &case.figures) {
        if !metrics.contains(&figure.metric) {
            metrics.push(figure.metric);
        }
        for series in &figure.series {
            if !variants.contains(&series.variant) {
                variants.push(series.variant);
            }
        }
    }
    for (variant, _) in report.curves.iter().flat_map(|curves| &curves.lines) {
        if !variants.contains(variant) {
            variants.push(variant);
        }
    }
    let mut body = String::new();
    let mut y = 64.0;
    legend(&mut body, &variants);
    for metric in metrics {
        y = panel(&mut body, y, metric, report, &variants);
    }
    for curves in &report.curves {
        y = draw(&mut body, y, curves, &variants);
    }
    let head = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 {WIDTH} {y}\" \
         font-family=\"DejaVu Sans, Helvetica, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{y}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"18\" font-weight=\"bold\">{}</text>\n",
        escape(suite)
    );
    format!("{head}{body}</svg>\n")
}

fn legend(out: &mut String, variants: &[&str]) {
    #[allow(clippy::cast_precision_loss, reason = "a short word")]
    let widths = variants.iter().map(|variant| 36.0 + 7.6 * variant.len() as f64);
    // With many names the legend begins further left, so that it ends with the plot.
    let mut x = LEFT.min(WIDTH - widths.clone().sum::<f64>());
    for (variant, width) in variants.iter().zip(widths) {
        let fill = colour(variant, variants);
        let _never_fails = writeln!(
            out,
            "<rect x=\"{x}\" y=\"17\" width=\"13\" height=\"13\" fill=\"{fill}\"/>\
             <text x=\"{}\" y=\"28\">{}</text>",
            x + 18.0,
            escape(variant)
        );
        x += width;
    }
}

struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    fn of(values: &[f64]) -> Self {
        let high = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let low = positive.fold(f64::INFINITY, f64::min).min(high);
        Self { low: low / 2.0, high, logarithmic: high > LINEAR_MAX * low }
    }

    fn length(&self, value: f64) -> f64 {
        if self.high <= 0.0 || value <= 0.0 {
            return 0.0;
        }
        let share = if self.logarithmic {
            (value / self.low).ln().max(0.0) / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        share * (WIDTH - LEFT - RIGHT)
    }
}

fn panel(out: &mut String, top: f64, metric: Metric, report: &Report, variants: &[&str]) -> f64 {
    let with = |case: &'_ Case| case.figures.iter().position(|figure| figure.metric == metric);
    let rows: Vec<(&Case, &Figure)> = report
        .cases
        .iter()
        .filter_map(|case| with(case).map(|index| (case, &case.figures[index])))
        .filter(|(_, figure)| figure.series.iter().any(|series| series.spread().max > 0.0))
        .collect();
    if rows.is_empty() {
        return top;
    }
    let all: Vec<f64> = rows
        .iter()
        .flat_map(|(_, figure)| figure.series.iter().flat_map(|series| series.values.clone()))
        .collect();
    let scale = Scale::of(&all);
    let better = match metric.better {
        Better::More => "longer is better",
        Better::Less => "shorter is better",
    };
    let kind = if scale.logarithmic { ", logarithmic" } else { "" };
    let mut y = top + TITLE / 2.0;
    let _never_fails = writeln!(
        out,
        "<text x=\"16\" y=\"{y}\" font-size=\"14\" font-weight=\"bold\">{} <tspan font-weight=\"normal\" \
         fill=\"#666666\">({}; {better}{kind})</tspan></text>",
        escape(metric.name),
        escape(metric.unit)
    );
    y += TITLE / 2.0 - 8.0;
    for (case, figure) in rows {
        #[allow(clippy::cast_precision_loss, reason = "a few variants")]
        let middle = y + BAR * figure.series.len() as f64 / 2.0 + 4.0;
        let _never_fails = writeln!(
            out,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            escape(&case.name)
        );
        for series in &figure.series {
            bar(out, y, (series, &scale), colour(series.variant, variants));
            y += BAR;
        }
        y += GAP;
    }
    y
}

fn bar(out: &mut String, y: f64, (series, scale): (&Series, &Scale), fill: &str) {
    let spread = series.spread();
    let length = scale.length(spread.median);
    let (from, to) = (LEFT + scale.length(spread.min), LEFT + scale.length(spread.max));
    let centre = y + (BAR - 2.0) / 2.0;
    let _never_fails = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{fill}\"/>\
         <path d=\"M{from:.1} {centre}H{to:.1}M{from:.1} {}v6M{to:.1} {}v6\" stroke=\"#222222\" fill=\"none\"/>\
         <text x=\"{:.1}\" y=\"{}\" font-size=\"11\">{}</text>",
        BAR - 2.0,
        centre - 3.0,
        centre - 3.0,
        to.max(LEFT + length) + 6.0,
        centre + 4.0,
        number(spread.median)
    );
}

#[cfg(test)]
mod tests {
    use super::super::{Curves, Marks};
    use super::*;

    #[test]
    fn every_value_is_in_the_plot_and_tags_close() {
        let values = [("before", 4.0), ("seed", 400.0), ("braid", 5.5)];
        let series = values.map(|(variant, value)| Series { variant, values: vec![value] });
        let figure = Figure { metric: Metric::less("ns < all", "ns"), series: series.to_vec() };
        let case = Case { name: "16 K".to_owned(), figures: vec![figure], targets: Vec::new() };
        let curves = Curves {
            title: "over time".to_owned(),
            x: "s",
            y: "1/s",
            ticks: &[],
            lines: vec![("before", vec![(1.0, 7.0), (2.0, 14.0)])],
            ..Curves::default()
        };
        let dots = Curves { title: "places".to_owned(), marks: Marks::Dots, ..curves.clone() };
        let report = Report { cases: vec![case], curves: vec![curves, dots], ..Report::default() };
        let svg = svg("lookup", &report);
        for word in
            ["4.000", "400.0", "5.500", "ns &lt; all", "logarithmic", "16 K", "over time", "14.00"]
        {
            assert!(svg.contains(word), "{word} in {svg}");
        }
        let count = |word: &str| svg.matches(word).count();
        assert_eq!(count("<circle"), 2, "a dot for each point");
        assert_eq!(count("<text"), count("</text>"));
        assert!(svg.ends_with("</svg>\n"));
    }
}
