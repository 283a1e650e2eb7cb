//! Stopping an array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a stop would do, or has begun to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopPlan {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Clients that are connected, and will be cut.
    pub connections: u64,
    /// Bytes that are written back first.
    pub dirty_bytes: u64,
    /// Whether nothing was begun because that was asked for.
    pub dry_run: bool,
}

/// How an array stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Everything was flushed and the superblocks are as they should be.
    pub in_order: bool,
    /// The superblocks say that it was stopped cleanly: the next start needs no resync.
    pub clean: bool,
    /// Clients that were cut in the middle of a request.
    pub connections_cut: u64,
}
