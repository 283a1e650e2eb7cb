//! `cargo xtask tidy`: the house rules as a program.
//!
//! Reads every Rust and Markdown file of the repository and `cargo metadata`, and prints one line
//! for each thing that breaks a rule, with file and line. Changes nothing.
//!
//! ```text
//! Tree ── shape ──┐
//!      ── text ───┤
//!      ── rooms ──┼── findings ── exceptions ── printed
//!      ── docs ───┤
//! metadata ─ crates┘
//! ```
//!
//! Invariants:
//! - every rule has a test that plants a violation and sees it found;
//! - the repository itself is clean `[check: the_repository_is_tidy]`;
//! - an exception that is no longer needed is itself a finding
//!   `[check: an_exception_that_is_not_needed_is_a_finding]`.

mod crates;
mod docs;
mod exceptions;
mod licence;
mod rooms;
mod shape;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};

pub(crate) use tree::repository_root;

/// The rules by the names that ARCHITECTURE.md and the exceptions file use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    FileLength,
    FunctionLength,
    StructFields,
    Parameters,
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
    Exceptions,
}

impl Rule {
    /// Every rule; a rule that is missing here could not be named by a document.
    const ALL: [Self; 17] = [
        Self::FileLength,
        Self::FunctionLength,
        Self::StructFields,
        Self::Parameters,
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
        Self::Exceptions,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::FileLength => "file-length",
            Self::FunctionLength => "function-length",
            Self::StructFields => "struct-fields",
            Self::Parameters => "parameters",
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
            Self::Exceptions => "exceptions",
        }
    }
}

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    rule: Rule,
    path: String,
    line: usize,
    text: String,
    /// What was measured, for rules that an exception can forgive: a function or struct name.
    item: String,
    /// The measured size; 0 for rules that measure nothing.
    measure: usize,
}

impl Finding {
    fn new(rule: Rule, path: &str, line: usize, text: impl Into<String>) -> Self {
        let path = path.to_string();
        Self { rule, path, line, text: text.into(), item: String::new(), measure: 0 }
    }

    fn measured(mut self, item: &str, measure: usize) -> Self {
        self.item = item.to_string();
        self.measure = measure;
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: [{}] {}", self.path, self.line, self.rule.name(), self.text)
    }
}

/// Checks the whole repository; an error names the number of findings, which are printed.
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

/// Every finding that no exception forgives, in order, and the number of files read.
fn check(root: &Path) -> Result<(Vec<Finding>, usize)> {
    let tree = tree::Tree::read(root)?;
    let metadata = crates::metadata(root)?;
    let packages = crates::packages(&metadata, root)?;
    let mut findings = Vec::new();
    for source in &tree.sources {
        shape::check(source, &mut findings);
        text::check_source(source, &mut findings);
        rooms::check(source, &mut findings);
    }
    for document in &tree.documents {
        text::check_document(document, &mut findings);
        docs::links(document, root, &mut findings);
    }
    rooms::rooms_exist(&tree, &mut findings);
    rooms::forbid(&tree, &mut findings);
    crates::directions(&packages, &mut findings);
    licence::check(&metadata, &mut findings);
    docs::architecture(&tree, &packages, &mut findings);
    docs::named_checks(&tree, &mut findings);
    let list = root.join(exceptions::FILE);
    let list = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let mut findings = exceptions::apply(&list, findings);
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    Ok((findings, tree.sources.len() + tree.documents.len()))
}
