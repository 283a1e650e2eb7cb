//! Stopping an array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The effect of a stop, expected or begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopPlan {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// Connected clients, which the stop cuts off.
    pub connections: u64,
    /// Bytes that the stop writes back first.
    pub dirty_bytes: u64,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
}

/// The result of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// Everything was flushed and the superblocks are in their final state.
    pub in_order: bool,
    /// The superblocks say clean: the next start needs no resync.
    pub clean: bool,
    /// Clients that were cut off in the middle of a request.
    pub connections_cut: u64,
}
