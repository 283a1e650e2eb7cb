//! The report as Markdown, for docs/benchmarks.md, with its plots as files.

use std::fmt::Write;

use super::NOT_TO_CONCLUDE;
use super::gap_to_best::{behind, times};
use super::run_record::{RunRecord, Suite};
use crate::frame::{Figure, number, plot};

/// The text of the page, and its plots: (file name, SVG).
pub(super) struct MarkdownPage {
    pub(super) text: String,
    pub(super) plots: Vec<(String, String)>,
}

/// The text of these runs. The text refers to plots in a folder of this name.
pub(super) fn text(runs: &[RunRecord], folder: &str) -> MarkdownPage {
    let mut page = MarkdownPage { text: String::new(), plots: Vec::new() };
    let _never_fails = page.write(runs, folder);
    page
}

impl MarkdownPage {
    fn write(&mut self, runs: &[RunRecord], folder: &str) -> std::fmt::Result {
        writeln!(
            self.text,
            "# Benchmarks\n\nWritten by `braid-lab report`; [lab.md](lab.md) describes the \
             suites. A figure is the median over the rounds of one run; in each round all \
             variants took turns. *Behind* names the best variant of the same case. It marks \
             every figure of braid that another variant beats; if no column is braid's, every \
             beaten figure.\n\n## What not to conclude\n"
        )?;
        list(&mut self.text, NOT_TO_CONCLUDE)?;
        for (number, run) in (1..).zip(runs) {
            let heading = format!("Run {number}: `{}`", run.command);
            writeln!(self.text, "\n## {heading}\n\n{}\n", run.machine)?;
            list(&mut self.text, run.versions.iter().map(String::as_str))?;
            for suite in &run.suites {
                let plot = format!("{number}-{}.svg", suite.name);
                self.suite(suite, folder, plot)?;
            }
        }
        Ok(())
    }

    fn suite(&mut self, suite: &Suite, folder: &str, plot: String) -> std::fmt::Result {
        writeln!(self.text, "\n### {}\n", suite.name)?;
        if !suite.report.cases.is_empty() {
            writeln!(self.text, "![medians, from smallest to largest]({folder}/{plot})\n")?;
            self.plots.push((plot, plot::svg(&suite.name, &suite.report)));
            writeln!(
                self.text,
                "| case | metric | variant | median | smallest to largest | of the first | |"
            )?;
            writeln!(self.text, "|---|---|---|---|---|---|---|")?;
            for case in &suite.report.cases {
                for figure in &case.figures {
                    rows(&mut self.text, &case.name, figure)?;
                }
            }
        }
        for (title, lines) in [("Targets", &suite.targets), ("Notes", &suite.report.notes)] {
            if !lines.is_empty() {
                writeln!(self.text, "\n{title}:\n")?;
                list(&mut self.text, lines.iter().map(String::as_str))?;
            }
        }
        Ok(())
    }
}

fn list<'a>(out: &mut String, lines: impl IntoIterator<Item = &'a str>) -> std::fmt::Result {
    lines.into_iter().try_for_each(|line| writeln!(out, "- {}", line.trim_end()))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn rows(out: &mut String, case: &str, figure: &Figure) -> std::fmt::Result {
    let better = figure.metric.better.phrase();
    for series in &figure.series {
        let spread = series.spread();
        let behind = behind(figure, series).map(|behind| behind.to_string()).unwrap_or_default();
        writeln!(
            out,
            "| {} | {} ({}, {better}) | {} | {} | {} to {} | {} | {behind} |",
            cell(case),
            cell(figure.metric.name),
            cell(figure.metric.unit),
            cell(series.variant),
            number(spread.median),
            number(spread.min),
            number(spread.max),
            times(series.over(&figure.series[0]).median),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{
        "machine": "machine: a < b", "command": "braid-lab doors", "versions": ["fio-3"],
        "notes": [{"suite": "doors", "line": "without FUSE"}],
        "targets": [{"suite": "doors", "line": "MISSED read"}],
        "rows": [
            {"suite": "doors", "case": "read", "metric": "requests", "unit": "1/s", "better": "more",
             "variant": "nbdkit", "values": [100.0, 120.0, 110.0]},
            {"suite": "doors", "case": "read", "metric": "requests", "unit": "1/s", "better": "more",
             "variant": "braid", "values": [50.0, 60.0, 55.0]}
        ]
    }"#;

    #[test]
    fn a_losing_row_and_a_missed_target_are_on_the_page_and_in_the_markdown() {
        let runs = [RunRecord::read(RUN).expect("a run")];
        let page = text(&runs, "benchmarks");
        let row = "| read | requests (1/s, more is better) | braid | 55.00 | 50.00 to 60.00 | 0.500x | behind nbdkit, 0.500x |";
        assert!(page.text.contains(row), "{}", page.text);
        assert!(page.text.contains("(benchmarks/1-doors.svg)"), "{}", page.text);
        assert_eq!(page.plots.len(), 1);
        let page = super::super::page::html(&runs);
        for word in [
            "behind nbdkit, 0.500x",
            "<tr class=\"behind\">",
            "MISSED read",
            "without FUSE",
            "a &lt; b",
            "</svg>",
            "fio-3",
        ] {
            assert!(page.contains(word), "{word} in {page}");
        }
        assert!(!page.contains("<script") && !page.contains(" src="), "nothing from elsewhere");
    }

    #[test]
    fn what_is_no_run_is_refused() {
        for text in ["[]", "{}", "x", &RUN.replace("[50.0, 60.0, 55.0]", "[]")] {
            assert!(RunRecord::read(text).is_err(), "{text}");
        }
        assert!(RunRecord::read(&RUN.replace("\"more\"", "\"most\"")).is_err());
    }
}
