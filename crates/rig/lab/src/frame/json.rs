//! A run's results as JSON: one row for each figure, with the machine, the command and the
//! versions.

use serde_json::{Value, json};

use super::machine::{Machine, versions};
use super::report::Report;
use super::table;

/// `{machine, command, versions, notes, targets, rows}`; a row is
/// `{suite, case, metric, unit, better, variant, median, min, max, runs, values}`.
#[must_use]
pub fn text(reports: &[(&str, Report)]) -> String {
    let lines = |of: fn(&Report) -> Vec<String>| -> Vec<Value> {
        let lines = reports.iter().flat_map(|(suite, report)| {
            of(report).into_iter().map(move |line| json!({ "suite": suite, "line": line }))
        });
        lines.collect()
    };
    let rows: Vec<Value> = reports.iter().flat_map(|(suite, report)| rows(suite, report)).collect();
    let quoted = |word: String| if word.contains(' ') { format!("\"{word}\"") } else { word };
    let words: Vec<String> = std::env::args().skip(1).map(quoted).collect();
    let run = json!({
        "machine": Machine::look().to_string(),
        "command": format!("braid-lab {}", words.join(" ")),
        "versions": versions(),
        "notes": lines(|report| report.notes.clone()),
        "targets": lines(table::verdicts),
        "rows": rows,
    });
    format!("{run:#}\n")
}

fn rows(suite: &str, report: &Report) -> Vec<Value> {
    let mut rows = Vec::new();
    for case in &report.cases {
        for figure in &case.figures {
            for series in &figure.series {
                let spread = series.spread();
                rows.push(json!({
                    "suite": suite,
                    "case": case.name,
                    "metric": figure.metric.name,
                    "unit": figure.metric.unit,
                    "better": figure.metric.better.word(),
                    "variant": series.variant,
                    "median": spread.median,
                    "min": spread.min,
                    "max": spread.max,
                    "runs": series.values.len(),
                    "values": series.values,
                }));
            }
        }
    }
    rows
}
