//! Several arrays, as `braid status --json` reports them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::array::Array;
use super::problem::Problem;

/// The output of `braid status --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of this object: 1.
    pub version: u32,
    /// The arrays, by name.
    pub arrays: Vec<Array>,
    /// Sockets where no array answered.
    pub unheard: Vec<Unheard>,
}

/// A socket where no array answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unheard {
    /// The path of the socket.
    pub control: String,
    /// The reason.
    pub problem: Problem,
}
