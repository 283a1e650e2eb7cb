//! Several arrays, as `braid status --json` tells them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::array::Array;
use super::problem::Problem;

/// What `braid status --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of this object: 1.
    pub version: u32,
    /// The arrays, by name.
    pub arrays: Vec<Array>,
    /// Sockets at which no array could be asked.
    pub unheard: Vec<Unheard>,
}

/// A socket at which no array could be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unheard {
    /// The path of the socket.
    pub control: String,
    /// Why.
    pub problem: Problem,
}
