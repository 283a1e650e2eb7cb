//! Reads the JSON of a run back into reports, for the same tables and plots as the run's own.

use serde_json::Value;

use crate::frame::{Better, Case, Figure, Metric, Report, Series};

/// One run of the lab.
pub(super) struct RunRecord {
    pub(super) machine: String,
    pub(super) command: String,
    pub(super) versions: Vec<String>,
    pub(super) suites: Vec<Suite>,
}

pub(super) struct Suite {
    pub(super) name: String,
    pub(super) report: Report,
    /// One line for each target, which says whether the target was met.
    pub(super) targets: Vec<String>,
}

impl RunRecord {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let run: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let word = |key: &str| {
            run[key].as_str().map(str::to_owned).ok_or_else(|| format!("it does not say its {key}"))
        };
        let list = |key: &str| run[key].as_array().ok_or_else(|| format!("it has no {key}"));
        let versions = list("versions")?.iter().filter_map(Value::as_str).map(str::to_owned);
        let mut this = Self {
            machine: word("machine")?,
            command: word("command")?,
            versions: versions.collect(),
            suites: Vec::new(),
        };
        for row in list("rows")? {
            this.add(row).ok_or_else(|| format!("this is no row: {row}"))?;
        }
        for (key, is_note) in [("notes", true), ("targets", false)] {
            for said in list(key)? {
                let words = said["suite"].as_str().zip(said["line"].as_str());
                let (suite, line) =
                    words.ok_or_else(|| format!("this is none of its {key}: {said}"))?;
                let suite = this.suite(suite);
                if is_note { suite.report.note(line) } else { suite.targets.push(line.to_owned()) }
            }
        }
        Ok(this)
    }

    fn suite(&mut self, name: &str) -> &mut Suite {
        let at = self.suites.iter().position(|suite| suite.name == name).unwrap_or_else(|| {
            let (report, targets) = (Report::default(), Vec::new());
            self.suites.push(Suite { name: name.to_owned(), report, targets });
            self.suites.len() - 1
        });
        &mut self.suites[at]
    }

    /// Adds a row to the record; `None` if `row` is not a valid one.
    fn add(&mut self, row: &Value) -> Option<()> {
        let word = |key: &str| row[key].as_str().filter(|word| !word.is_empty());
        let values: Vec<f64> = row["values"].as_array()?.iter().filter_map(Value::as_f64).collect();
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let metric = Metric {
            name: kept(word("metric")?),
            unit: kept(word("unit")?),
            better: Better::from_word(word("better")?)?,
        };
        let (case, variant) = (word("case")?, kept(word("variant")?));
        let cases = &mut self.suite(word("suite")?).report.cases;
        let at = cases.iter().position(|one| one.name == case).unwrap_or_else(|| {
            cases.push(Case { name: case.to_owned(), figures: Vec::new(), targets: Vec::new() });
            cases.len() - 1
        });
        let figures = &mut cases[at].figures;
        let at = figures.iter().position(|figure| figure.metric == metric).unwrap_or_else(|| {
            figures.push(Figure { metric, series: Vec::new() });
            figures.len() - 1
        });
        figures[at].series.push(Series { variant, values });
        Some(())
    }
}

/// Leaks a word from a file, since reports use static strings; the program ends soon.
fn kept(word: &str) -> &'static str {
    Box::leak(word.to_owned().into_boxed_str())
}
