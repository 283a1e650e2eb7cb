//! The values of one array at one time: plain data, made by the program that serves the array.

use std::time::Duration;

use braid_runtime::{JobKind, JobProgress};

use crate::event::Identity;
use crate::standing::Standing;
use crate::teller::Counts;

/// A source of snapshots. Separate threads call it, and it may block them.
pub trait Source: Send + Sync {
    /// The present state of the array.
    fn snapshot(&self) -> Snapshot;
}

/// The state of an array, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every slot has an up-to-date member.
    Ok,
    /// Slots lack members.
    Degraded,
    /// A member is being rebuilt.
    Rebuilding,
    /// The array refuses writes: too many members are lost, or the storage below a member is full.
    Failed,
    /// The array is read-only.
    ReadOnly,
    /// The array has been stopped.
    Stopped,
}

impl State {
    /// All states; each has a sample, with 0 or 1.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Degraded, Self::Rebuilding, Self::Failed, Self::ReadOnly, Self::Stopped];

    /// The state's word in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Rebuilding => "rebuilding",
            Self::Failed => "failed",
            Self::ReadOnly => "readonly",
            Self::Stopped => "stopped",
        }
    }
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Reads and writes use the member.
    Active,
    /// Writes use the member, reads avoid it.
    Slow,
    /// The member has a slot, and is being recovered.
    Rebuilding,
    /// The member waits for a slot.
    Spare,
    /// The member does not answer, and is out of the array; it returns by itself.
    Away,
    /// The member failed, and is out of the array.
    Failed,
}

impl MemberState {
    /// All states of a member.
    pub const ALL: [Self; 6] =
        [Self::Active, Self::Slow, Self::Rebuilding, Self::Spare, Self::Away, Self::Failed];

    /// The state's word in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Slow => "slow",
            Self::Rebuilding => "rebuilding",
            Self::Spare => "spare",
            Self::Away => "away",
            Self::Failed => "failed",
        }
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's path, as given to braid.
    pub name: String,
    /// The member's slot.
    pub slot: Option<u16>,
    /// The member's state.
    pub state: MemberState,
    /// The member's corrected read errors.
    pub corrected_read_errors: u64,
    /// The connections to the member's server; `None` for a device of this host.
    pub link: Option<MemberLink>,
}

/// The connections to a member's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLink {
    /// Whether the member's server can be reached, as far as is known.
    pub is_up: bool,
    /// Number of times that a connection was renewed after a loss.
    pub reconnects: u64,
    /// Mean time of the last requests to the member's server.
    pub mean_latency: Duration,
}

/// Numbers of members by state. The slot of a failed or recovering member also counts as missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    /// Members in slots that are up to date.
    pub active: u64,
    /// Members in slots that are being recovered.
    pub rebuilding: u64,
    /// Spares that wait for a slot.
    pub spare: u64,
    /// Members that went out of the array since it was started.
    pub failed: u64,
    /// Slots without an up-to-date member.
    pub missing: u64,
}

/// A front end's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontEnd {
    /// The front end's name: `nbd`.
    pub name: &'static str,
    /// Clients' connections at this moment.
    pub connections: u64,
    /// Clients' connections accepted so far.
    pub accepted: u64,
    /// Clients' connections refused or cut so far, by reason.
    pub rejected: Vec<(&'static str, u64)>,
    /// Requests received.
    pub requests: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub written_bytes: u64,
    /// Error replies, by error.
    pub errors: Vec<(&'static str, u64)>,
    /// Payload bytes in flight at this moment.
    pub payload_bytes: u64,
}

/// The state of one member's request queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elevator {
    /// The member's slot.
    pub slot: u16,
    /// Reads that wait in the queue at this moment.
    pub waiting_reads: u64,
    /// Requests other than reads that wait in the queue at this moment.
    pub waiting_writes: u64,
    /// Request vectors that the device is serving at this moment.
    pub in_flight: u64,
    /// Request vectors dispatched to the device so far.
    pub dispatched: u64,
}

/// The state of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The array's name and UUID.
    pub identity: Identity,
    /// The array's level, in md's word.
    pub level: String,
    /// The array's layout; empty if the level has none.
    pub layout: String,
    /// The version of the array's metadata.
    pub metadata: String,
    /// Number of the array's slots.
    pub slots: u64,
    /// How many more members the array may lose.
    pub can_lose: u64,
    /// Whether the array is read-only.
    pub is_read_only: bool,
    /// The array's size.
    pub size_bytes: u64,
    /// Acknowledged bytes that the members lack.
    pub dirty_bytes: u64,
    /// Set bits of the array's write-intent bitmap, and all bits; `None` without a bitmap.
    pub bitmap_bits: Option<(u64, u64)>,
    /// Numbers of the array's members by state.
    pub disks: Disks,
    /// The array's members, one by one.
    pub members: Vec<Member>,
    /// The progress of the array's job, if it has one.
    pub job: Option<JobProgress>,
    /// Milliseconds for which members have sat out, summed over all members.
    pub sat_out_ms: u64,
    /// The engine's counters, by name.
    pub counters: Vec<(&'static str, u64)>,
    /// The members' queues.
    pub elevators: Vec<Elevator>,
    /// The front ends' counters.
    pub front_ends: Vec<FrontEnd>,
    /// Totals of the array's events.
    pub standing: Standing,
    /// Counts of the array's events.
    pub told: Counts,
}

impl Snapshot {
    pub(super) fn is_doing(&self, kind: JobKind) -> bool {
        self.job.is_some_and(|job| job.kind == kind)
    }

    /// The array's state in one word; if several states apply, the gravest.
    #[must_use]
    pub fn state(&self) -> State {
        let standing = &self.standing;
        if standing.has_stopped {
            State::Stopped
        } else if standing.is_broken || standing.is_out_of_space {
            State::Failed
        } else if self.is_read_only {
            State::ReadOnly
        } else if self.disks.missing > 0 && self.is_doing(JobKind::Recovery) {
            State::Rebuilding
        } else if self.disks.missing > 0 {
            State::Degraded
        } else {
            State::Ok
        }
    }
}
