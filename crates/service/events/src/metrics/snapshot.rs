//! What is said of one array at one time: plain values, made by the program that serves it.

use braid_runtime::{JobKind, JobProgress};

use crate::event::Identity;
use crate::standing::Standing;
use crate::teller::Counts;

/// Something that can say how an array is. Asked on threads of its own, where it may wait.
pub trait Source: Send + Sync {
    /// How it is now.
    fn snapshot(&self) -> Snapshot;
}

/// How an array is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All members are there.
    Ok,
    /// Members are missing.
    Degraded,
    /// A member is being rebuilt.
    Rebuilding,
    /// It takes no writes any more: too much is lost, or there is no space.
    Failed,
    /// It is only read.
    ReadOnly,
    /// It has been stopped.
    Stopped,
}

impl State {
    /// All of them: each is always said, with 0 or 1.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Degraded, Self::Rebuilding, Self::Failed, Self::ReadOnly, Self::Stopped];

    /// Its word.
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

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Read and written.
    Active,
    /// Read around, and written.
    Slow,
    /// In a slot, and being recovered.
    Rebuilding,
    /// Waits.
    Spare,
    /// Out since it does not answer: it comes back by itself.
    Away,
    /// Out.
    Failed,
}

impl MemberState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Active, Self::Slow, Self::Rebuilding, Self::Spare, Self::Away, Self::Failed];

    /// Its word.
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
    /// As it was named to braid.
    pub name: String,
    /// Its slot.
    pub slot: Option<u16>,
    /// How it is.
    pub state: MemberState,
    /// Read errors of it that were corrected.
    pub corrected_read_errors: u64,
}

/// Members by what they are. One that failed, or is being recovered, leaves its slot missing, so it counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    /// In a slot, with all they should hold.
    pub active: u64,
    /// In a slot, and being recovered.
    pub rebuilding: u64,
    /// Waiting.
    pub spare: u64,
    /// Out since the start.
    pub failed: u64,
    /// Slots without a member that holds all it should.
    pub missing: u64,
}

/// What a front end has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontEnd {
    /// Its name: `nbd`.
    pub name: &'static str,
    /// Connections now.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections turned away or cut, by why.
    pub rejected: Vec<(&'static str, u64)>,
    /// Requests received.
    pub requests: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub written_bytes: u64,
    /// Error replies, by error.
    pub errors: Vec<(&'static str, u64)>,
    /// Payload bytes in flight now.
    pub payload_bytes: u64,
}

/// What waits at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elevator {
    /// The member's slot.
    pub slot: u16,
    /// Reads that wait now.
    pub waiting_reads: u64,
    /// Everything else that waits now.
    pub waiting_writes: u64,
    /// Vectors that are with the device now.
    pub in_flight: u64,
    /// Vectors given to the device so far.
    pub dispatched: u64,
}

/// How an array is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Which array.
    pub identity: Identity,
    /// Its level, as md says it.
    pub level: String,
    /// Its layout; empty if the level has none.
    pub layout: String,
    /// The version of its metadata.
    pub metadata: String,
    /// How many slots it has.
    pub slots: u64,
    /// How many more members may be lost.
    pub can_lose: u64,
    /// Whether it is only read.
    pub is_read_only: bool,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes that were answered and are not on the members.
    pub dirty_bytes: u64,
    /// Bits of its write-intent bitmap that are set, and all of them; none without one.
    pub bitmap_bits: Option<(u64, u64)>,
    /// Its members, counted.
    pub disks: Disks,
    /// Its members, one by one.
    pub members: Vec<Member>,
    /// How far its job is, if there is one.
    pub job: Option<JobProgress>,
    /// Milliseconds that members have sat out, all of them together.
    pub sat_out_ms: u64,
    /// What the engine has counted, by name.
    pub counters: Vec<(&'static str, u64)>,
    /// What waits at members.
    pub elevators: Vec<Elevator>,
    /// What front ends have counted.
    pub front_ends: Vec<FrontEnd>,
    /// What events come to.
    pub standing: Standing,
    /// What became of events.
    pub told: Counts,
}

impl Snapshot {
    /// Whether a job of this kind is there.
    pub(super) fn is_doing(&self, kind: JobKind) -> bool {
        self.job.is_some_and(|job| job.kind == kind)
    }

    /// In one word: the gravest that holds.
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
