//! The table: a row for each scenario, as in docs/rescue.md.

use super::super::report::CaseReport;
use super::rescue::Answer;

/// One scenario and its result.
pub(super) struct Row {
    pub(super) about: &'static str,
    pub(super) files: usize,
    pub(super) answer: Answer,
    pub(super) force: Option<CaseReport>,
    pub(super) wiki: Option<CaseReport>,
    pub(super) wiki_about: &'static str,
}

impl Row {
    /// Whether files are wrong although braid reported every byte as readable and none at risk.
    pub(super) fn is_wrongly_sure(&self) -> bool {
        self.answer.is_sure && self.answer.at_risk == 0 && self.answer.right < self.files
    }
}

pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "| Scenario | braid: files right | tries | seconds, copied out | `--assemble --force` | the usual pages |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let answer = &row.answer;
        let first = match (answer.is_sure, answer.at_risk) {
            (true, 0) => "1, certain".to_owned(),
            (true, stripes) => format!("1, names {stripes} stripes as at risk"),
            (false, _) if answer.right == 0 => "none of three, calls none certain".to_owned(),
            (false, _) => format!("{}, calls none certain", answer.tries),
        };
        text += &format!(
            "| {} | {} of {} | {first} | {:.1}, {:.1} | {} | {}: {} |\n",
            row.about,
            answer.right,
            row.files,
            answer.seconds,
            answer.copied_seconds,
            of_mdadm(row.force.as_ref()),
            row.wiki_about,
            of_mdadm(row.wiki.as_ref()),
        );
    }
    text
}

/// The table's text for one of mdadm's tries.
fn of_mdadm(report: Option<&CaseReport>) -> String {
    let Some(report) = report else { return "not asked".to_owned() };
    if report.succeeded().is_err() {
        return format!("failed: {}", report.log().lines().last().unwrap_or("no word"));
    }
    let value = |key: &str| report.values.get(key).map_or("0", String::as_str);
    let written = value("written").parse::<u64>().unwrap_or(0);
    let tries =
        report.values.get("tries").map_or_else(String::new, |tries| format!(", order {tries}"));
    let state = if value("mounted") == "yes" { "" } else { "no file system, " };
    format!("{state}{} right{tries}, wrote {}", value("right"), size(written))
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => "nothing".to_owned(),
        1..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}
