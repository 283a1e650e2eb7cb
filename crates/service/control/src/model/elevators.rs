//! What an array's elevators do, and how reads and write-back took turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::Settings;

/// What `GET /v1/elevators` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Elevators {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// The settings that are about elevators and the multiplexer.
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
    /// Whether the device turns; null if it does not say.
    pub rotational: Option<bool>,
    /// `deadline`, or `none`.
    pub policy: String,
    /// Dispatches that the member has at once, at most.
    pub depth: u32,
    /// Milliseconds after which a read goes before nearer ones.
    pub read_expiry_ms: u64,
    /// The same for a write.
    pub write_expiry_ms: u64,
    /// Reads that wait now.
    pub waiting_reads: u64,
    /// Writes that wait now.
    pub waiting_writes: u64,
    /// Dispatches that the member has now.
    pub out: u64,
    /// Requests that came, so far.
    pub inserted: u64,
    /// Dispatches so far.
    pub dispatched: u64,
    /// Requests merged behind another.
    pub merged_back: u64,
    /// Requests merged before another.
    pub merged_front: u64,
    /// Merged requests that met and became one.
    pub joined: u64,
    /// Batches so far.
    pub batches: u64,
    /// Requests that went because their time was up.
    pub expired: u64,
    /// Batches of writes that went because reads had gone often enough.
    pub starved: u64,
    /// Requests that went because they had been passed too long.
    pub aged: u64,
    /// Requests taken over from insertion lists.
    pub drained: u64,
    /// In how many goes.
    pub drained_batches: u64,
    /// How many goes had 1, 2 to 3, 4 to 7, ... requests.
    pub drained_sizes: Vec<u64>,
    /// Goes in which something was dispatched.
    pub dispatched_batches: u64,
    /// How often a thread found another one dispatching.
    pub owner_misses: u64,
    /// Bytes that the member was read, so far.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes that it was written, so far; superblocks and zeroing are not among them.
    #[serde(default)]
    pub written_bytes: u64,
    /// Reads, writes and zeroings that failed at it, so far.
    #[serde(default)]
    pub errors: u64,
}

/// One period of the multiplexer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceRow {
    /// When it began, in nanoseconds since the array was started.
    pub start_ns: u64,
    /// The share that write-back was given, in thousandths.
    pub share_permille: u32,
    /// The length of write-back's part.
    pub flusher_ns: u64,
    /// How long members were busy reading.
    pub busy_reads_ns: u64,
    /// How long they were busy writing.
    pub busy_writes_ns: u64,
    /// Whether reads were held in it.
    pub held_reads: bool,
    /// Whether writes were.
    pub held_writes: bool,
}
