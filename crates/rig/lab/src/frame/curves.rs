//! Curves under the bars of a suite's plot. Each shows a value over time or over all requests.

use std::fmt::Write;

use super::report::{Curves, Marks};
use super::svg::{colour, escape, number};

const LEFT: f64 = 90.0;
const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 190.0;
/// If the ratio of largest to smallest value exceeds this, the scale is logarithmic.
const LINEAR_MAX: f64 = 30.0;

/// Draws curves from the height `top` on; returns the height at which they end.
pub(super) fn draw(out: &mut String, top: f64, curves: &Curves, variants: &[&str]) -> f64 {
    let points = || curves.lines.iter().flat_map(|(_, points)| points.iter().copied());
    let most = |value: fn((f64, f64)) -> f64| points().map(value).fold(0.0, f64::max);
    let (x_most, y_most) = (most(|(x, _)| x), most(|(_, y)| y));
    let least = points().map(|(_, y)| y).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
    if x_most <= 0.0 || y_most <= 0.0 {
        return top;
    }
    let is_logarithmic = y_most > LINEAR_MAX * least;
    let y_of = |y: f64| {
        let share = if is_logarithmic {
            (y.max(least) / least).ln() / (y_most / least).ln()
        } else {
            y / y_most
        };
        top + 34.0 + HEIGHT * (1.0 - share)
    };
    let x_of = |x: f64| LEFT + WIDTH * x / x_most;
    let kind = if is_logarithmic { ", logarithmic" } else { "" };
    let (bottom, right) = (top + 34.0 + HEIGHT, LEFT + WIDTH);
    let _never_fails = writeln!(
        out,
        "<text x=\"16\" y=\"{}\" font-size=\"14\" font-weight=\"bold\">{} <tspan font-weight=\"normal\" \
         fill=\"#666666\">({}{kind}, by {})</tspan></text>\
         <path d=\"M{LEFT} {}V{bottom}H{right}\" stroke=\"#999999\" fill=\"none\"/>",
        top + 18.0,
        escape(&curves.title),
        escape(curves.y),
        escape(curves.x),
        top + 34.0
    );
    let low = if is_logarithmic { least } else { 0.0 };
    for value in [low, y_most] {
        let _never_fails = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y_of(value) + 4.0,
            number(value)
        );
    }
    let ends = [(0.0, number(0.0)), (x_most, number(x_most))];
    let ticks = curves.ticks.iter().map(|(x, word)| (*x, (*word).to_owned()));
    let ticks: Vec<(f64, String)> =
        if curves.ticks.is_empty() { ends.into() } else { ticks.collect() };
    for (x, word) in ticks {
        let _never_fails = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
            x_of(x),
            bottom + 15.0,
            escape(&word)
        );
    }
    for (variant, points) in &curves.lines {
        let fill = colour(variant, variants);
        if curves.marks == Marks::Dots {
            for (x, y) in points {
                let _never_fails = writeln!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.4\" fill=\"{fill}\" fill-opacity=\"0.7\"/>",
                    x_of(*x),
                    y_of(*y)
                );
            }
            continue;
        }
        let path: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1} {:.1}", x_of(*x), y_of(*y))).collect();
        let _never_fails = writeln!(
            out,
            "<path d=\"M{}\" stroke=\"{}\" stroke-width=\"1.6\" fill=\"none\"/>",
            path.join("L"),
            fill
        );
    }
    bottom + 30.0
}
