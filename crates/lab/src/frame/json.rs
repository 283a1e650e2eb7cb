//! One row for each figure.

use serde_json::{Value, json};

use super::report::Report;

/// An array of `{suite, case, metric, unit, variant, median, min, max, runs}`.
#[must_use]
pub fn text(reports: &[(&str, Report)]) -> String {
    let rows: Vec<Value> = reports.iter().flat_map(|(suite, report)| rows(suite, report)).collect();
    format!("{:#}\n", Value::Array(rows))
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
                    "variant": series.variant,
                    "median": spread.median,
                    "min": spread.min,
                    "max": spread.max,
                    "runs": series.values.len(),
                }));
            }
        }
    }
    rows
}
