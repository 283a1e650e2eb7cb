//! The output of `braid top --once --json`: arrays, and their activity between two samples.

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
    /// The array, at the second sample.
    pub array: Array,
    /// The array's elevators, at the second sample; null if the request for them failed.
    pub elevators: Option<Elevators>,
    /// Activity between the samples; null if they are of different runs of the array.
    pub rates: Option<Rates>,
}

/// Activity of an array between two samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Milliseconds between the samples.
    pub over_ms: u64,
    /// Requests of clients per second.
    pub requests_per_second: u64,
    /// Bytes that clients read per second.
    pub read_bytes_per_second: u64,
    /// Bytes that clients wrote per second.
    pub written_bytes_per_second: u64,
    /// One row for each slot with the same member at both samples.
    pub members: Vec<MemberRates>,
}

/// Activity of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberRates {
    /// The member's slot.
    pub slot: u16,
    /// Bytes read from the member per second.
    pub read_bytes_per_second: u64,
    /// Bytes written to the member per second.
    pub written_bytes_per_second: u64,
    /// The member's errors between the samples.
    pub errors: u64,
}
