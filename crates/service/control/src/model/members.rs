//! What is asked of an array's members, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may be asked of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberRequest {
    /// Devices become members: each takes a slot that is free and is recovered, or waits as a spare.
    Add,
    /// The same, of devices that are meant to wait.
    Spare,
    /// A member fails, as if it had failed a write.
    Fail,
    /// A member that failed, or waits as a spare, goes: its device is closed.
    Remove,
    /// A member is copied to another, which takes its place then; it serves until that is so.
    Replace,
    /// A device that is none of the array's has the write journal from now on.
    Journal,
    /// These members, and no others, are read only where no other copy is (mirrors).
    WriteMostly,
}

/// The body of `POST /v1/members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MembersWanted {
    /// What is asked for.
    pub request: MemberRequest,
    /// Devices by their paths, which are absolute. To fail and to remove: one member, by its path or by the number of its
    /// slot; to remove also `failed`, all that failed, or `detached`, those of them whose path leads nowhere any more.
    pub members: Vec<String>,
    /// To replace: the device that is to take the member's place, by its absolute path: a spare, or one that is added for it.
    /// Null for whichever spare waits.
    #[serde(default)]
    pub with: Option<String>,
    /// What is on devices that are added and may be destroyed, by name; each thing once.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Devices that are added are read only where no other copy is (mirrors).
    #[serde(default)]
    pub write_mostly: bool,
    /// How many descriptors come with the request for each device of `members`, and then for `with`: none; or one of the device, opened and
    /// locked as the server would have it, and behind it one for each lock on what is below it. Of no use but to a server that says
    /// that files are closed off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<u16>,
}

/// What comes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberEffect {
    /// It takes a slot that is free, and is recovered from its start; once jobs are resumed, if they are paused.
    Rebuilds,
    /// It takes the slot that it had, and what it missed is recovered: the rest it keeps, for no bit of the bitmap names it (mdadm calls
    /// that a re-add).
    CatchesUp,
    /// It is filled with what the named member holds, and has its slot then; once jobs are resumed, if they are paused.
    Replaces,
    /// It waits as a spare: no slot is free.
    Waits,
    /// It fails.
    Fails,
    /// It goes, and its device is free.
    Goes,
    /// It has the write journal: what is written is there before members get it.
    Journals,
    /// It is read only where no other copy is, from now on.
    WriteMostly,
    /// It is read as the others are, from now on.
    ReadAgain,
    /// It was so already.
    Nothing,
}

/// A member, and what comes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberChanged {
    /// The member, by its path.
    pub member: String,
    /// The slot that it had, or is to have; null if it had none.
    pub slot: Option<u16>,
    /// What comes of it, or would.
    pub effect: MemberEffect,
    /// It was a member of this array before.
    pub returns: bool,
    /// Sectors of its data that are not recovered, for it holds them from before; 0 unless it catches up.
    pub kept_sectors: u64,
}

/// What `POST /v1/members` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MembersAnswer {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// What was asked for.
    pub request: MemberRequest,
    /// The members, in the order in which they were named.
    pub members: Vec<MemberChanged>,
    /// What was on devices and is destroyed, or would be, in words.
    pub destroyed: Vec<String>,
    /// The folder where the first and last bytes of these devices were saved; null if nothing had to be.
    pub saved_in: Option<String>,
    /// How many more members may be lost, whichever they are, once it is done and before anything is recovered.
    pub can_lose: u16,
    /// Slots that stay without a member that could take them.
    pub free_slots: u16,
    /// Spares that wait, with those among them that are about to take a slot.
    pub spares: u16,
    /// Jobs are paused: nothing is recovered until they are resumed.
    pub jobs_paused: bool,
    /// Whether nothing was done because that was asked for.
    pub dry_run: bool,
}
