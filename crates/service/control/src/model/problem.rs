//! Why a request was refused, and what to do about it: the same object that every verb prints with `--json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request was refused (`application/problem+json`, RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The stable code, such as B001; `braid help B001` says more.
    pub code: String,
    /// What happened.
    pub title: String,
    /// Why: one line or more.
    pub cause: String,
    /// What it is about: a member, an array, a setting; null if nothing in particular.
    pub subject: Option<String>,
    /// The ways out, the safest first.
    pub remedies: Vec<ProblemRemedy>,
}

/// A way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemRemedy {
    /// What it achieves.
    pub label: String,
    /// The whole command, ready to copy; empty where none helps.
    pub command: String,
    /// What it may do to data.
    pub risk: RemedyRisk,
}

/// What a way out may do to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyRisk {
    /// It writes nothing.
    Look,
    /// It writes where that belongs; it can be undone or loses nothing.
    Change,
    /// It may lose data.
    Destroy,
}
