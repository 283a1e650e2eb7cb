//! Requests about an array's members, and their effects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requests about members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberRequest {
    /// Devices become members: each takes a free slot and is recovered, or waits as a spare.
    Add,
    /// Devices become spares that wait.
    Spare,
    /// A member fails, as after a failed write.
    Fail,
    /// A failed member or a spare leaves the array: its device is closed.
    Remove,
    /// A member is copied to another, which then takes its slot; until then it serves.
    Replace,
    /// A device that is no member becomes the write journal.
    Journal,
    /// Exactly these members become write-mostly: reads avoid them while another member has a copy
    /// (mirrors).
    WriteMostly,
}

/// The body of `POST /v1/members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MembersWanted {
    /// The request.
    pub request: MemberRequest,
    /// Devices by their absolute paths. To fail or remove a member: its path or slot number. To
    /// remove members, also `failed`, or `detached`: failed members whose path is gone.
    pub members: Vec<String>,
    /// For a replacement: the absolute path of the device that takes the member's slot, a spare or
    /// a new device. Null for any waiting spare.
    #[serde(default)]
    pub with: Option<String>,
    /// Names of contents on added devices that may be destroyed; each content once.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Added devices become write-mostly: reads avoid them while another member has a copy
    /// (mirrors).
    #[serde(default)]
    pub write_mostly: bool,
    /// Number of descriptors with the request for each device of `members`, then for `with`. It is
    /// 0, or 1 for the device, opened and locked as the server would do it, plus 1 for each lock on
    /// files below it. Only a server that reports `files` as closed off needs descriptors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<u16>,
}

/// The effect of a request on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberEffect {
    /// The member takes a free slot and is wholly recovered, unless jobs are paused.
    Rebuilds,
    /// The member takes its former slot; only writes that it missed are recovered (mdadm: re-add).
    CatchesUp,
    /// The named member is copied to this one, unless jobs are paused; then this one takes that
    /// slot.
    Replaces,
    /// The member waits as a spare: no slot is free.
    Waits,
    /// The member fails.
    Fails,
    /// The member leaves the array, and its device is closed.
    Goes,
    /// The device becomes the write journal: it receives each write before members do.
    Journals,
    /// From now on reads avoid the member while another member has a copy.
    WriteMostly,
    /// Reads no longer avoid the member.
    ReadAgain,
    /// No effect: the member's state was already as requested.
    Nothing,
}

/// A member and the effect on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberChanged {
    /// The member, by its path.
    pub member: String,
    /// The member's former or future slot; null if none.
    pub slot: Option<u16>,
    /// The effect on the member, or on a dry run the expected effect.
    pub effect: MemberEffect,
    /// The device was a member of this array before.
    pub returns: bool,
    /// Sectors of the member's data that need no recovery; 0 unless it catches up.
    pub kept_sectors: u64,
}

/// The answer to `POST /v1/members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MembersAnswer {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// The request.
    pub request: MemberRequest,
    /// The members, in the order of the request.
    pub members: Vec<MemberChanged>,
    /// Contents of devices that are destroyed, or on a dry run would be, in words.
    pub destroyed: Vec<String>,
    /// The folder where the first and last bytes of these devices were saved; null if none were.
    pub saved_in: Option<String>,
    /// How many more members the array can lose after the request, before any recovery.
    pub can_lose: u16,
    /// Free slots for which no spare waits.
    pub free_slots: u16,
    /// Spares that wait, including those about to take a slot.
    pub spares: u16,
    /// Jobs are paused: recovery waits until they are resumed.
    pub jobs_paused: bool,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
}
