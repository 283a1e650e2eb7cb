//! Activity of an array's elevators, and the turns of reads and write-back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::Settings;

/// The answer to `GET /v1/elevators`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Elevators {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// The settings of elevators and of the multiplexer.
    pub settings: Settings,
    /// Whether reads and write-back take turns now.
    pub is_multiplexed: bool,
    /// One row for each member.
    pub elevators: Vec<ElevatorRow>,
    /// The multiplexer's last periods, the oldest first.
    pub slices: Vec<SliceRow>,
}

/// The elevator of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ElevatorRow {
    /// The member's slot; null for a spare.
    pub slot: Option<u16>,
    /// Whether the device is rotational; null if it does not say.
    pub rotational: Option<bool>,
    /// The elevator's policy: `deadline`, or `none`.
    pub policy: String,
    /// Most dispatches in flight at the member.
    pub depth: u32,
    /// Milliseconds after which a read goes before nearer reads.
    pub read_expiry_ms: u64,
    /// Milliseconds after which a write goes before nearer writes.
    pub write_expiry_ms: u64,
    /// Reads that wait now.
    pub waiting_reads: u64,
    /// Writes that wait now.
    pub waiting_writes: u64,
    /// Dispatches in flight at the member now.
    pub out: u64,
    /// Requests inserted so far.
    pub inserted: u64,
    /// Dispatches so far.
    pub dispatched: u64,
    /// Requests merged onto the end of another queued request.
    pub merged_back: u64,
    /// Requests merged onto the front of another queued request.
    pub merged_front: u64,
    /// Pairs of queued requests that became adjacent by a merge and were joined into one.
    pub joined: u64,
    /// Batches of dispatches so far.
    pub batches: u64,
    /// Requests dispatched because they expired.
    pub expired: u64,
    /// Batches of writes dispatched because reads had gone first often enough.
    pub starved: u64,
    /// Requests dispatched because others had passed them for too long.
    pub aged: u64,
    /// Requests taken over from insertion lists.
    pub drained: u64,
    /// Rounds in which requests were taken over from insertion lists.
    pub drained_batches: u64,
    /// Numbers of rounds that took over 1, 2 to 3, 4 to 7, ... requests from insertion lists.
    pub drained_sizes: Vec<u64>,
    /// Rounds that dispatched at least one request.
    pub dispatched_batches: u64,
    /// How often a thread found another one dispatching.
    pub owner_misses: u64,
    /// Bytes read from the member so far.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes written to the member so far, without superblocks and zeroing.
    #[serde(default)]
    pub written_bytes: u64,
    /// Failed reads, writes and zeroings of the member so far.
    #[serde(default)]
    pub errors: u64,
}

/// One period of the multiplexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceRow {
    /// When the period began, in nanoseconds since the array was started.
    pub start_ns: u64,
    /// The share of the period for write-back, in thousandths.
    pub share_permille: u32,
    /// The length of write-back's part of the period, in nanoseconds.
    pub flusher_ns: u64,
    /// How long members were busy reading during the period, in nanoseconds.
    pub busy_reads_ns: u64,
    /// How long members were busy writing during the period, in nanoseconds.
    pub busy_writes_ns: u64,
    /// Whether reads were held during the period.
    pub held_reads: bool,
    /// Whether writes were held during the period.
    pub held_writes: bool,
}
