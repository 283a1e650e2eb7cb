//! Requests about an array's shape (level, layout, chunk, members, size), and their effects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::members::{MembersAnswer, MembersWanted};

/// Requests about the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeRequest {
    /// The array gets another shape.
    Grow,
    /// The reshape under way goes back to the old shape.
    Revert,
}

/// The body of `POST /v1/shape`. A part without a value stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShapeWanted {
    /// The request.
    pub request: ShapeRequest,
    /// The level: raid0, raid1, raid4, raid5, raid6 or raid10.
    #[serde(default)]
    pub level: Option<String>,
    /// The layout, by mdadm's name for it.
    #[serde(default)]
    pub layout: Option<String>,
    /// Bytes of a chunk.
    #[serde(default)]
    pub chunk_bytes: Option<u64>,
    /// The number of slots.
    #[serde(default)]
    pub members: Option<u16>,
    /// Bytes to use of each member, or `max`.
    #[serde(default)]
    pub size: Option<String>,
    /// Where the array ends for clients, and nothing else changes: a size, or `max`.
    #[serde(default)]
    pub array_size: Option<String>,
    /// Names of content on the array that may be cut off behind its new end.
    #[serde(default)]
    pub cut: Vec<String>,
    /// Devices that become spares before, for new slots.
    #[serde(default)]
    pub join: Option<MembersWanted>,
}

/// A shape in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shape {
    /// The level: raid0, raid1, raid4, raid5, raid6 or raid10.
    pub level: String,
    /// The layout, by mdadm's name for it; null if the level has only one.
    pub layout: Option<String>,
    /// Bytes of a chunk; null if the level has no chunks.
    pub chunk_bytes: Option<u64>,
    /// The number of slots.
    pub members: u16,
    /// Bytes that clients see.
    pub size_bytes: u64,
}

/// A reshape under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reshape {
    /// The shape that the array leaves.
    pub before: Shape,
    /// The shape that the array gets.
    pub after: Shape,
    /// Whether data moves from the array's end to its start.
    pub backwards: bool,
    /// Bytes of the array that are in the new shape.
    pub moved_bytes: u64,
    /// Bytes that are to move, with the new part that is zeroed.
    pub total_bytes: u64,
}

/// How an array gets another shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeChangeKind {
    /// Data moves while the array serves.
    Reshape,
    /// Superblocks change, and no data moves.
    TakeOver,
    /// Members are used further, and the new part is synced; or less of them is used.
    Size,
    /// The array ends elsewhere for clients, and nothing changes on members.
    ArraySize,
    /// A reshape under way goes back.
    Revert,
}

/// The answer to `POST /v1/shape`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShapeAnswer {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// The way to the new shape.
    pub kind: ShapeChangeKind,
    /// The shape before.
    pub before: Shape,
    /// The shape afterwards.
    pub after: Shape,
    /// Bytes that each member reads and writes on the way; 0 if no data moves.
    pub bytes_each: u64,
    /// About how many seconds that takes without clients, by the slowest member's speed now; null
    /// if no data moves, or the speed is unknown.
    pub seconds: Option<u64>,
    /// Bytes by which each member's data moves towards its start, or towards its end if the array
    /// gets fewer members or only has room there, as `notes` says; 0 if it stays.
    pub gap_bytes: u64,
    /// Consequences that the operator should know, in words.
    pub notes: Vec<String>,
    /// The devices that became spares before; null if none were named.
    pub joined: Option<MembersAnswer>,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
}
