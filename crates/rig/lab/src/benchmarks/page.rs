//! The HTML page, with all plots inside it.

use std::fmt::Write;

use super::NOT_TO_CONCLUDE;
use super::gap_to_best::behind;
use super::run_record::{RunRecord, Suite};
use crate::frame::{Figure, escape, number, plot};

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>braid: benchmarks</title>\n<style>\n\
    body { font-family: 'DejaVu Sans', Helvetica, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222222 }\n\
    table { border-collapse: collapse; font-size: 85% }\n\
    th, td { border-bottom: 1px solid #dddddd; padding: 0.2em 0.7em; text-align: left }\n\
    td.number { text-align: right; white-space: nowrap }\n\
    tr.behind { background: #fbe9e7 }\n\
    svg { max-width: 100%; height: auto }\n\
    </style>\n</head>\n<body>\n<h1>braid: benchmarks</h1>\n";

pub(super) fn html(runs: &[RunRecord]) -> String {
    let mut out = HEAD.to_owned();
    let _never_fails = write_page(&mut out, runs);
    out
}

fn write_page(out: &mut String, runs: &[RunRecord]) -> std::fmt::Result {
    writeln!(
        out,
        "<p>A figure is the median over the rounds of one run; in each round all variants took \
         turns. The line on a bar goes from the smallest to the largest figure. Coloured rows are \
         behind another variant of the same case.</p>\n<h2>What not to conclude</h2>"
    )?;
    list(out, NOT_TO_CONCLUDE)?;
    for run in runs {
        writeln!(out, "<h2><code>{}</code></h2>", escape(&run.command))?;
        writeln!(out, "<p>{}</p>", escape(&run.machine))?;
        list(out, run.versions.iter().map(String::as_str))?;
        for suite in &run.suites {
            write_suite(out, suite)?;
        }
    }
    writeln!(out, "</body>\n</html>")
}

fn list<'a>(out: &mut String, lines: impl IntoIterator<Item = &'a str>) -> std::fmt::Result {
    writeln!(out, "<ul>")?;
    for line in lines {
        writeln!(out, "<li>{}</li>", escape(line))?;
    }
    writeln!(out, "</ul>")
}

fn write_suite(out: &mut String, suite: &Suite) -> std::fmt::Result {
    writeln!(out, "<h3>{}</h3>", escape(&suite.name))?;
    if !suite.report.cases.is_empty() {
        out.push_str(&plot::svg(&suite.name, &suite.report));
        writeln!(
            out,
            "<table>\n<tr><th>case</th><th>metric</th><th>variant</th><th>median</th><th>smallest to largest</th>\
             <th>of the first</th><th></th></tr>"
        )?;
        for case in &suite.report.cases {
            for figure in &case.figures {
                write_figure(out, &case.name, figure)?;
            }
        }
        writeln!(out, "</table>")?;
    }
    if !suite.targets.is_empty() {
        writeln!(out, "<h4>Targets</h4>")?;
        list(out, suite.targets.iter().map(String::as_str))?;
    }
    if !suite.report.notes.is_empty() {
        writeln!(out, "<h4>Notes</h4>")?;
        list(out, suite.report.notes.iter().map(String::as_str))?;
    }
    Ok(())
}

fn write_figure(out: &mut String, case: &str, figure: &Figure) -> std::fmt::Result {
    let better = figure.metric.better.phrase();
    for series in &figure.series {
        let spread = series.spread();
        let behind = behind(figure, series).map(|behind| behind.to_string());
        let class = if behind.is_some() { " class=\"behind\"" } else { "" };
        writeln!(
            out,
            "<tr{class}><td>{}</td><td>{} ({}, {better})</td><td>{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{} to {}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            escape(case),
            escape(figure.metric.name),
            escape(figure.metric.unit),
            escape(series.variant),
            number(spread.median),
            number(spread.min),
            number(spread.max),
            super::gap_to_best::times(series.over(&figure.series[0]).median),
            escape(&behind.unwrap_or_default()),
        )?;
    }
    Ok(())
}
