//! Errors as a person sees them: what happened, why, and what to do.
//!
//! This module stands at the end of every command: the crates below return typed errors, and the
//! command turns each into one [`CliError`]. `main` prints this error and exits with its code.
//!
//! ```text
//! error[B060]: /dev/sdb is busy          what happened
//!   opened by the kernel as md127        why
//!   Stop it:  mdadm --stop /dev/md127    what to do, safest first
//! ```
//!
//! Codes are stable and texts are not: a script tests the code or the exit status.
//!
//! Invariants:
//! - every code is unique, and has a title and an explanation that says what to do
//!   `[check: every_code_is_unique_and_has_text]`;
//! - a dangerous remedy is never printed first `[check: a_dangerous_remedy_never_comes_first]`;
//! - names from disks cannot steer the terminal `[check: names_are_made_printable]`.

pub mod catalogue;
pub mod code;
mod exit;
pub mod render;
pub mod system;
#[cfg(test)]
mod tests;

use std::fmt;

use code::Code;
pub use exit::Exit;

/// Possible effect of a remedy on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// The remedy writes nothing.
    Look,
    /// The remedy writes metadata, or data where it belongs; can be undone, or loses nothing.
    Change,
    /// The remedy may lose data.
    Destroy,
}

/// One remedy for an error, with the operator's own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The remedy's purpose, in a few words.
    pub label: String,
    /// The whole command, ready to copy; empty if no command helps.
    pub command: String,
    /// The remedy's possible effect on data.
    pub risk: Risk,
}

/// One error, ready for a person or a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    code: Code,
    subject: Option<String>,
    what: String,
    why: Vec<String>,
    remedies: Vec<Remedy>,
}

impl CliError {
    /// Makes an error without cause and remedies; `what` is one sentence without a full stop.
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { code, subject: None, what, why: Vec::new(), remedies: Vec::new() }
    }

    /// Sets the error's subject: the path of a member, or the name of an array.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Adds one line about the error's cause; a newline in a name within the line is escaped.
    #[must_use]
    pub fn because(mut self, line: impl Into<String>) -> Self {
        self.why.push(line.into());
        self
    }

    /// Adds the chain of causes of a typed error, each as one line.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            self = self.because(cause.to_string());
            next = cause.source();
        }
        self
    }

    /// Adds a remedy after all remedies that are no more dangerous. Names within the command go
    /// through `output::shell::shell_word`.
    #[must_use]
    pub fn remedy(
        mut self,
        risk: Risk,
        label: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        let at = self.remedies.partition_point(|other| other.risk <= risk);
        let remedy = Remedy { label: label.into(), command: command.into(), risk };
        self.remedies.insert(at, remedy);
        self
    }

    /// The error's stable code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The status with which the command exits after this error.
    pub const fn exit(&self) -> Exit {
        self.code.exit()
    }

    /// The error's remedies, the safest first: never empty, and the first is never dangerous.
    pub fn remedies(&self) -> Vec<Remedy> {
        let mut remedies = self.remedies.clone();
        if remedies.first().is_none_or(|first| first.risk == Risk::Destroy) {
            let command = format!("braid help {}", self.code);
            remedies.insert(
                0,
                Remedy { label: "Read about it".to_string(), command, risk: Risk::Look },
            );
        }
        remedies
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.code, self.what)
    }
}

impl std::error::Error for CliError {}
