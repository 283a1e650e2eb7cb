//! What `braid top --once --json` prints: arrays, and how much went on between two looks at them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::array::Array;
use super::elevators::Elevators;

/// Arrays and their rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Top {
    /// The version of this object: 1.
    pub version: u32,
    /// The arrays, by name.
    pub arrays: Vec<TopArray>,
}

/// One array and its rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopArray {
    /// The array, at the second look.
    pub array: Array,
    /// Its elevators, then; null if they could not be asked.
    pub elevators: Option<Elevators>,
    /// What went on between the looks; null if they are not of one run of the array.
    pub rates: Option<Rates>,
}

/// What went on between two looks at an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Milliseconds between the looks.
    pub over_ms: u64,
    /// Requests of clients, for each second.
    pub requests_per_second: u64,
    /// Bytes that clients read, for each second.
    pub read_bytes_per_second: u64,
    /// Bytes that clients wrote, for each second.
    pub written_bytes_per_second: u64,
    /// One row for each slot that had one member at both looks.
    pub members: Vec<MemberRates>,
}

/// What went to and from one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberRates {
    /// Its slot.
    pub slot: u16,
    /// Bytes that it was read, for each second.
    pub read_bytes_per_second: u64,
    /// Bytes that it was written, for each second.
    pub written_bytes_per_second: u64,
    /// What failed at it between the looks.
    pub errors: u64,
}
