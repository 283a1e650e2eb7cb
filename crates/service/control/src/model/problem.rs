//! Why a request was refused, and the remedies: the object that every verb prints with `--json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request was refused (`application/problem+json`, RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The stable code, such as B001; `braid help B001` explains it.
    pub code: String,
    /// The error, in a sentence.
    pub title: String,
    /// The cause: one line or more.
    pub cause: String,
    /// The error's subject: a member, an array, a setting; null if there is none in particular.
    pub subject: Option<String>,
    /// The ways out, the safest first.
    pub remedies: Vec<ProblemRemedy>,
}

/// A way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemRemedy {
    /// The purpose of this way out.
    pub label: String,
    /// The whole command, ready to copy; empty if no command helps.
    pub command: String,
    /// The command's possible effect on data.
    pub risk: RemedyRisk,
}

/// The possible effect of a way out on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyRisk {
    /// The way out writes nothing.
    Look,
    /// The way out writes metadata, or data where they belong; it can be undone or loses nothing.
    Change,
    /// The way out may lose data.
    Destroy,
}
