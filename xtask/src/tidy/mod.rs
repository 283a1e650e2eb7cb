//! `cargo xtask tidy`: the house rules as a program.
//!
//! `tidy` reads every Rust and Markdown file of the repository and `cargo metadata`, and prints one
//! line for each violation of a rule, with file and line. It changes nothing.
//!
//! ```text
//! Tree ── text ───┐
//!      ── prose ──┤
//!      ── rooms ──┤
//!      ── circles ┼── findings ── printed
//!      ── plants ─┤
//!      ─ programs ┤
//!      ── docs ───┤
//! metadata ─ crates┘
//! ```
//!
//! Invariants:
//! - every rule has a test that plants a violation, which the rule must find;
//! - the repository itself is clean `[check: the_repository_is_tidy]`.

mod circles;
mod crates;
mod docs;
mod licence;
mod plants;
mod programs;
mod prose;
mod rooms;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

pub(crate) use tree::{files, repository_root};

/// The rules by the names that ARCHITECTURE.md uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Dependencies,
    Licences,
    ForbidUnsafe,
    UnsafeRooms,
    Deterministic,
    BannedWords,
    ModuleHeader,
    CratesMapped,
    Absences,
    NamedChecks,
    GplText,
    Links,
    Circles,
    PlantedBugs,
    TestPrograms,
    Examples,
    Columns,
    PlainWords,
}

impl Rule {
    /// Every rule; a rule that this list lacks could not be named by a document.
    const ALL: [Self; 18] = [
        Self::Dependencies,
        Self::Licences,
        Self::ForbidUnsafe,
        Self::UnsafeRooms,
        Self::Deterministic,
        Self::BannedWords,
        Self::ModuleHeader,
        Self::CratesMapped,
        Self::Absences,
        Self::NamedChecks,
        Self::GplText,
        Self::Links,
        Self::Circles,
        Self::PlantedBugs,
        Self::TestPrograms,
        Self::Examples,
        Self::Columns,
        Self::PlainWords,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Dependencies => "dependencies",
            Self::Licences => "licences",
            Self::ForbidUnsafe => "forbid-unsafe",
            Self::UnsafeRooms => "unsafe-rooms",
            Self::Deterministic => "deterministic",
            Self::BannedWords => "banned-words",
            Self::ModuleHeader => "module-header",
            Self::CratesMapped => "crates-mapped",
            Self::Absences => "absences",
            Self::NamedChecks => "named-checks",
            Self::GplText => "gpl-text",
            Self::Links => "links",
            Self::Circles => "circles",
            Self::PlantedBugs => "planted-bugs",
            Self::TestPrograms => "test-programs",
            Self::Examples => "examples",
            Self::Columns => "columns",
            Self::PlainWords => "plain-words",
        }
    }
}

/// One violation of a rule at one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    rule: Rule,
    path: String,
    line: usize,
    text: String,
}

impl Finding {
    fn new(rule: Rule, path: &str, line: usize, text: impl Into<String>) -> Self {
        let path = path.to_string();
        Self { rule, path, line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: [{}] {}", self.path, self.line, self.rule.name(), self.text)
    }
}

/// Checks the whole repository and prints the findings; the error has their number.
pub(crate) fn run() -> Result<()> {
    let root = repository_root()?;
    let (findings, files) = check(&root)?;
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} broken rules", findings.len());
    }
    println!("tidy: {files} files, {} rules, nothing to say", Rule::ALL.len());
    Ok(())
}

/// Every finding, in order, and the number of files read.
fn check(root: &Path) -> Result<(Vec<Finding>, usize)> {
    let tree = tree::Tree::read(root)?;
    let metadata = crates::metadata(root)?;
    let packages = crates::packages(&metadata, root)?;
    let mut findings = Vec::new();
    for source in &tree.sources {
        text::check_source(source, &mut findings);
        prose::check_source(source, &mut findings);
        rooms::check(source, &mut findings);
        plants::check(source, &mut findings);
    }
    for document in &tree.documents {
        text::check_document(document, &mut findings);
        prose::check_document(document, &mut findings);
        docs::links(document, root, &mut findings);
    }
    rooms::rooms_exist(&tree, &mut findings);
    rooms::forbid(&tree, &mut findings);
    programs::check(&tree, &mut findings);
    circles::check(&tree, &mut findings);
    crates::directions(&packages, &mut findings);
    licence::check(&metadata, &licence::allowed(root)?, &mut findings);
    docs::architecture(&tree, &packages, &mut findings);
    docs::named_checks(&tree, &mut findings);
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    Ok((findings, tree.sources.len() + tree.documents.len()))
}
