//! The output of a boot, parsed.
//!
//! The guest writes lines that start with `@@` to a virtio port (see `guest/run-case.sh`):
//!
//!     @@BOOT seconds kernel
//!     @@CASE name seconds
//!     @@VALUE key words...
//!     @@TEXT key
//!     ...lines...
//!     @@END
//!     @@STATUS number seconds
//!     @@DONE seconds
//!
//! A line of any other form is an error: an unreadable report proves nothing.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CaseReport {
    /// Exit status of the case's script; `None` if the guest ended before the script did.
    pub(crate) status: Option<i32>,
    /// Seconds of the guest's time that the case took.
    pub(crate) seconds: f64,
    /// Single words and lines of the case: hashes, counts, states.
    pub(crate) values: BTreeMap<String, String>,
    /// Whole outputs of the case, such as `examine.0`.
    pub(crate) texts: BTreeMap<String, String>,
}

impl CaseReport {
    /// A value of the case; an error if the script did not report it.
    pub(crate) fn value(&self, key: &str) -> Result<&str> {
        self.values.get(key).map(String::as_str).with_context(|| format!("no value {key}"))
    }

    /// A text of the case; an error if the script did not report it.
    pub(crate) fn text(&self, key: &str) -> Result<&str> {
        self.texts.get(key).map(String::as_str).with_context(|| format!("no text {key}"))
    }

    /// An error with the guest's log, if the script did not succeed.
    pub(crate) fn succeeded(&self) -> Result<()> {
        match self.status {
            Some(0) => Ok(()),
            Some(137) => bail!("the script ran past its deadline:\n{}", self.log()),
            Some(status) => bail!("the script ended with {status}:\n{}", self.log()),
            None => bail!("the script was not run, or not to its end"),
        }
    }

    /// The end of a failed script's output and of the kernel's log.
    pub(crate) fn log(&self) -> &str {
        self.texts.get("log").map_or("", String::as_str)
    }
}

/// The output of one boot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// The kernel's release.
    pub(crate) kernel: String,
    /// Seconds of the guest's time until the first case began.
    pub(crate) boot_seconds: f64,
    /// Whether the guest ended by itself.
    pub(crate) done: bool,
    pub(crate) cases: BTreeMap<String, CaseReport>,
}

impl Report {
    /// Parses the port's bytes, which may be cut off anywhere.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut report = Self::default();
        let mut open: Option<(String, CaseReport, f64)> = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
            match (word, &mut open) {
                ("@@BOOT", None) => {
                    report.boot_seconds = key.parse()?;
                    value.clone_into(&mut report.kernel);
                }
                ("@@CASE", None) => {
                    open = Some((key.to_owned(), CaseReport::default(), value.parse()?));
                }
                ("@@VALUE", Some((_, case, _))) => {
                    case.values.insert(key.to_owned(), value.to_owned());
                }
                ("@@TEXT", Some((_, case, _))) => {
                    case.texts.insert(key.to_owned(), text_lines(&mut lines));
                }
                ("@@STATUS", Some(_)) => {
                    let (name, mut case, begun) = open.take().context("no case is open")?;
                    case.status = Some(key.parse()?);
                    case.seconds = value.parse::<f64>()? - begun;
                    report.cases.insert(name, case);
                }
                ("@@DONE", None) => report.done = true,
                _ => bail!("the guest's report has a line out of place: {line}"),
            }
        }
        if let Some((name, case, _)) = open {
            report.cases.insert(name, case);
        }
        Ok(report)
    }
}

fn text_lines<'text>(lines: &mut impl Iterator<Item = &'text str>) -> String {
    let mut text = String::new();
    for line in lines.take_while(|line| *line != "@@END") {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Report;

    const GOOD: &str = "@@BOOT 1.5 6.1.0\n@@CASE a 2.0\n@@VALUE sha ab cd\n@@TEXT examine.0\n\
                        x\n y\n@@END\n@@STATUS 0 3.5\n@@DONE 4\n";

    #[test]
    fn reads_a_whole_report() {
        let report = Report::parse(GOOD).expect("parsed");
        assert!(report.done);
        assert_eq!(report.kernel, "6.1.0");
        let case = &report.cases["a"];
        case.succeeded().expect("status 0");
        assert_eq!(case.value("sha").expect("there"), "ab cd");
        assert_eq!(case.text("examine.0").expect("there"), "x\n y\n");
        assert!((case.seconds - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_report_cut_anywhere_never_succeeds_falsely() {
        let end = GOOD.find("@@STATUS").expect("there");
        for length in 0..end {
            if let Ok(report) = Report::parse(&GOOD[..length]) {
                assert!(!report.done);
                assert!(report.cases.values().all(|case| case.succeeded().is_err()));
            }
        }
    }

    #[test]
    fn a_line_out_of_place_is_an_error() {
        for text in ["hello\n", "@@VALUE a b\n", "@@CASE a 1\n@@CASE b 2\n"] {
            Report::parse(text).expect_err("out of place");
        }
    }
}
