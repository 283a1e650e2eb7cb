//! Checks that tests have run every command in braid's refusals.
//!
//! ```text
//!   crates/{cli,service,rescue}: `.remedy(Risk::…, "label", …)` ──▶ labels ─┐
//!   crates/cli/tests/e2e/kit/remedies.rs: run, and noted ───────────────────┴─▶ compared
//! ```
//!
//! A label that no test ran is an error, unless `APART` lists it.
//!
//! Commands of one kind have the same label, so one run is enough for all commands with a label.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::tidy::files;

/// Environment variable with the path of the file in which tests note labels of commands that they
/// ran.
pub(crate) const VARIABLE: &str = "BRAID_REMEDIES_RUN";

/// Labels of commands that no test runs, and why.
const APART: &[(&str, &str)] = &[
    (
        "Copy the files out of the array instead",
        "an overlay would have to hold more than 256 MiB that differ from the members",
    ),
    (
        "Let root raise it for this shell, and serve again",
        "it asks for a password, and needs CAP_SYS_RESOURCE",
    ),
    ("Install it", "it installs a package"),
    (
        "Let the kernel's md finish it; mdadm wants its backup file if it made one",
        "it needs the kernel's md",
    ),
    ("Let the kernel's md run it", "it needs the kernel's md"),
    ("Let this user", "it asks for a password"),
    ("Load its module", "it asks for a password, and loads a module into the kernel"),
    (
        "Replay it onto the members first",
        "a journal would have to hold 256 MiB that members do not have",
    ),
    (
        "See how to serve it, or to clear it",
        "it needs a disk with reservations (`cargo xtask reservations`)",
    ),
    ("See its name", "no name that md keeps is too long for NBD"),
    (
        "See what it is",
        "a file would have to appear between two looks of one command; a block device needs a kernel with ublk (`cargo xtask ublk`)",
    ),
    ("See which server has it", "it needs a kernel with ublk (`cargo xtask ublk`)"),
    ("Stop it", "it needs the kernel's md"),
    ("Stop swapping to it", "no test has its machine swap"),
];

/// Makes the empty file in which tests note labels; returns its path.
pub(crate) fn begin() -> Result<PathBuf> {
    let folder = std::env::current_dir().context("the folder")?.join("target");
    std::fs::create_dir_all(&folder).context("target/")?;
    let path = folder.join("remedies-run.txt");
    std::fs::write(&path, "").with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Counts the labels and those whose command ran. If every test could run, a label without a run is
/// an error.
pub(crate) fn end(notes: &Path, is_complete: bool) -> Result<String> {
    let notes = std::fs::read_to_string(notes).with_context(|| notes.display().to_string())?;
    let run: BTreeSet<&str> = notes.lines().collect();
    let mut labels = BTreeSet::new();
    for (path, text) in sources()? {
        // Labels in a test module are not printed to operators.
        if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            labels.extend(labels_of(
                text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default(),
            ));
        }
    }
    let apart: BTreeSet<&str> = APART.iter().map(|(label, _)| *label).collect();
    let left: Vec<&String> = labels
        .iter()
        .filter(|label| !run.contains(label.as_str()) && !apart.contains(label.as_str()))
        .collect();
    if !left.is_empty() {
        let what = format!("no test has run the commands that are offered as: {left:?}");
        ensure!(!is_complete, what);
        println!("{what}");
    }
    let gone: Vec<&&str> = apart.iter().filter(|label| !labels.contains(**label)).collect();
    ensure!(gone.is_empty(), "set apart, and not there any more: {gone:?}");
    let run = labels.len() - apart.len() - left.len();
    Ok(format!("{run} kinds of remedies run, {} set apart", apart.len()))
}

/// The crates whose errors an operator reads.
const CRATES: [&str; 5] =
    ["cli", "service/console", "service/discovery", "service/server", "rescue/rescue"];

fn sources() -> Result<Vec<(PathBuf, String)>> {
    let mut sources = Vec::new();
    for name in CRATES {
        sources.extend(files(&Path::new("crates").join(name).join("src"))?);
    }
    Ok(sources)
}

fn labels_of(source: &str) -> Vec<String> {
    let calls = source.split(".remedy(").skip(1);
    let label = |call: &str| {
        let (_, rest) = call.trim_start().strip_prefix("Risk::")?.split_once(',')?;
        let (label, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        Some(label.to_owned())
    };
    calls.filter_map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_where_remedies_are_made() {
        let source = r#"
            error.remedy(Risk::Look, "See it", "lsblk")
                .remedy(
                    Risk::Destroy,
                    "Write over it",
                    command,
                )
                .remedy(risk, "a label of a function's", x)
                .remedy(Risk::Look, format!("made up"), x)
        "#;
        assert_eq!(labels_of(source), ["See it", "Write over it"]);
    }
}
