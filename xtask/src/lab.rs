//! Runs every suite of the lab with meaninglessly little work, to notice broken benchmarks.
//!
//! Every suite must succeed, with complete rows: numbers, for every variant, in every case. No
//! figure is compared, so a busy machine fails nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::build::Program;

/// Suites that compare three variants of a mechanism: `before`, `seed` and `braid`.
const COMPARED: [&str; 3] = ["wait", "lookup", "priority"];

/// Runs every suite briefly; returns a summary.
pub(crate) fn run() -> Result<String> {
    let folder = tempfile::tempdir().context("a folder for the rows")?;
    let file = folder.path().join("lab.json");
    let mut lab = Command::new(Program::Lab.dev()?);
    lab.args(["all", "--small", "--json"]).arg(&file).arg("--svg").arg(folder.path());
    let status = lab.status().with_context(|| format!("{lab:?}"))?;
    ensure!(status.success(), "{lab:?}: {status}");
    let rows = std::fs::read_to_string(&file).context("the lab's rows")?;
    let suites = check(&rows)?;
    for suite in &suites {
        let plot = folder.path().join(format!("{suite}.svg"));
        let plot = std::fs::read_to_string(plot).with_context(|| format!("the plot of {suite}"))?;
        ensure!(plot.ends_with("</svg>\n"), "the plot of {suite} does not end");
    }
    let page = folder.path().join("lab.html");
    let mut report = Command::new(Program::Lab.dev()?);
    report.arg("report").arg(&file).arg("--html").arg(&page);
    let status = report.status().with_context(|| format!("{report:?}"))?;
    ensure!(status.success(), "{report:?}: {status}");
    let page = std::fs::read_to_string(&page).context("the page")?;
    for suite in &suites {
        ensure!(page.contains(&format!("<h3>{suite}</h3>")), "the page has no {suite}");
    }
    Ok(format!("{} suites", suites.len()))
}

/// The rows in the lab's `--json` output. Revisions before `braid-lab report` printed only rows.
pub(crate) fn rows_of(text: &str) -> Result<Vec<Value>> {
    let written: Value = serde_json::from_str(text).context("the rows are JSON")?;
    let rows = written.get("rows").unwrap_or(&written);
    Ok(rows.as_array().context("no rows")?.clone())
}

/// Checks that each row is complete and that every variant has every metric. Returns the suites
/// that have rows.
fn check(text: &str) -> Result<BTreeSet<String>> {
    let rows = rows_of(text)?;
    let mut variants: BTreeMap<[&str; 3], BTreeSet<&str>> = BTreeMap::new();
    for row in &rows {
        let word = |key: &str| {
            row[key]
                .as_str()
                .filter(|word| !word.is_empty())
                .with_context(|| format!("{key}: {row}"))
        };
        let number = |key: &str| {
            row[key]
                .as_f64()
                .filter(|number| number.is_finite())
                .with_context(|| format!("{key}: {row}"))
        };
        word("unit")?;
        let (min, median, max) = (number("min")?, number("median")?, number("max")?);
        ensure!(0.0 <= min && min <= median && median <= max, "{row}");
        ensure!(row["runs"].as_u64().is_some_and(|runs| runs > 0), "{row}");
        let of = variants.entry([word("suite")?, word("case")?, word("metric")?]).or_default();
        ensure!(of.insert(word("variant")?), "twice: {row}");
    }
    let suites: BTreeSet<String> = variants.keys().map(|[suite, ..]| (*suite).to_owned()).collect();
    for suite in COMPARED {
        let all: BTreeSet<&str> = ["before", "seed", "braid"].into();
        let mut of = variants.iter().filter(|([name, ..], _)| *name == suite).peekable();
        ensure!(of.peek().is_some(), "{suite} has no rows");
        for ([_, case, metric], found) in of {
            // Some suites have more variants of braid: with an elevator, or the multiplexer.
            ensure!(found.is_superset(&all), "{suite}, {case}, {metric}: {found:?}");
        }
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(change: impl Fn(&mut Vec<Value>)) -> String {
        let mut rows = Vec::new();
        for suite in COMPARED {
            for variant in ["before", "seed", "braid"] {
                rows.push(serde_json::json!({
                    "suite": suite, "case": "a", "metric": "b", "unit": "s", "variant": variant,
                    "median": 2.0, "min": 1.0, "max": 3.0, "runs": 1,
                }));
            }
        }
        change(&mut rows);
        serde_json::json!({ "machine": "small", "rows": rows }).to_string()
    }

    #[test]
    fn rows_that_say_nothing_are_found() {
        assert_eq!(check(&rows(|_| ())).expect("good").len(), COMPARED.len());
        let more = rows(|rows| {
            let mut more = rows[0].clone();
            more["variant"] = "before sorted".into();
            rows.push(more);
        });
        assert!(check(&more).is_ok(), "a suite may have more");
        assert!(check("[").is_err());
        assert!(check("{}").is_err());
        assert!(check("[]").is_err());
        assert!(check(&rows(|rows| drop(rows.pop()))).is_err());
        assert!(check(&rows(|rows| rows[0]["median"] = Value::Null)).is_err());
        assert!(check(&rows(|rows| rows[0]["median"] = 4.0.into())).is_err());
        assert!(check(&rows(|rows| rows[0]["runs"] = 0.into())).is_err());
        assert!(check(&rows(|rows| rows[0]["variant"] = "seed".into())).is_err());
        assert!(check(&rows(|rows| rows[0]["unit"] = "".into())).is_err());
    }
}
