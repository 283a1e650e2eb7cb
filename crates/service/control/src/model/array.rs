//! A running array, as `GET /v1/array` and `braid status --json` report it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::{Job, JobKind, JobPace, LastJob};
use super::settings::Settings;

/// A running array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Array {
    /// The version of this object: 1.
    pub version: u32,
    /// The name it is served under.
    pub name: String,
    /// Its UUID, in md's grouping: four groups of eight digits.
    pub uuid: String,
    /// Its level: linear, raid0, raid1, raid4, raid5, raid6 or raid10.
    pub level: String,
    /// The layout of chunks in mdadm's word; null if the level has only one.
    pub layout: Option<String>,
    /// The version of its metadata, such as 1.2.
    pub metadata: String,
    /// Bytes of a chunk; null if the level has no chunks.
    pub chunk_bytes: Option<u64>,
    /// Bytes that clients see.
    pub size_bytes: u64,
    /// Its state.
    pub state: State,
    /// Whether it was started read-only, so that it refuses writes.
    pub read_only: bool,
    /// Whether it was interrupted while writing: redundancy may disagree until a resync.
    pub dirty: bool,
    /// How many more members it can lose, in any combination.
    pub can_lose: u16,
    /// It can lose fewer members than its level allows: parity may not fit the data until a resync.
    pub parity_in_doubt: bool,
    /// Copies may differ where the array was written when it was interrupted, until a resync.
    pub copies_in_doubt: bool,
    /// One row for each slot, in order, with or without a member, then one for each spare.
    pub slots: Vec<Slot>,
    /// Members that failed since the array was started and were not removed, if another member has
    /// their slot. Each has its former slot; null for a former spare.
    #[serde(default)]
    pub replaced: Vec<Slot>,
    /// The current job, if any, then a check that waits for it.
    #[serde(default)]
    pub jobs: Vec<Job>,
    /// The last job of each kind that ended since the array was started.
    #[serde(default)]
    pub last_jobs: Vec<LastJob>,
    /// The time of the next scheduled check, in the past if it could not begin; null if none.
    #[serde(default)]
    pub next_check: Option<String>,
    /// No job begins or continues until jobs are resumed.
    #[serde(default)]
    pub jobs_paused: bool,
    /// How the running job yields to clients; null without one.
    #[serde(default)]
    pub pace: Option<JobPace>,
    /// Problems of the array with advice, the worst first; empty if it has none.
    #[serde(default)]
    pub advice: Vec<Advice>,
    /// Why it has refused writes since it was started; null if it has not.
    pub failure: Option<Failure>,
    /// Acknowledged writes that were lost since it was started; null if none were.
    pub lost: Option<Spread>,
    /// NBD URIs that it is served at.
    pub uris: Vec<String>,
    /// The file that it appears as through FUSE; null if none.
    #[serde(default)]
    pub file: Option<String>,
    /// The block device that it appears as through ublk; null if none.
    #[serde(default)]
    pub device: Option<String>,
    /// The vhost-user socket where virtual machines use it as a disk; null if none.
    #[serde(default)]
    pub vhost_user: Option<String>,
    /// Its settings.
    pub settings: Settings,
    /// Acknowledged bytes that members do not have yet; a flush writes them.
    pub dirty_bytes: u64,
    /// Its write-intent bitmap; null if it has none.
    #[serde(default)]
    pub bitmap: Option<Bitmap>,
    /// Its parity logs; null if it has none.
    #[serde(default)]
    pub parity_logs: Option<ParityLogs>,
    /// Its write journal; null if it has none.
    #[serde(default)]
    pub journal: Option<Journal>,
    /// Its clients.
    pub clients: Clients,
    /// Milliseconds that members have sat out because they were slow; the sum of all members.
    pub sat_out_ms: u64,
    /// The array's counters since it was started, by name; the names may change.
    pub counters: BTreeMap<String, u64>,
    /// Resources that its process has closed off for itself: files, system-calls, capabilities.
    #[serde(default)]
    pub confined: Vec<String>,
    /// The process that serves it.
    pub server: Server,
}

/// Parity logs, md's (PPL) or braid's own: they record each write durably before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParityLogs {
    /// Every write is logged before it begins.
    Kept,
    /// Not yet in use: parity disagrees somewhere, or the array has not been idle since.
    Pending,
}

/// A write journal: every write is durable there before members have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Journal {
    /// The path of its device.
    pub path: String,
    /// Bytes of it in use, including writes that members have not flushed.
    pub used_bytes: u64,
    /// Its capacity in bytes.
    pub size_bytes: u64,
}

/// A write-intent bitmap: regions where members may differ after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bitmap {
    /// Bytes for each bit: of each member, on level 10 of the array.
    pub bit_bytes: u64,
    /// Bits in all.
    pub bits: u64,
    /// Set bits: regions recently written, in doubt, or missed by a member.
    pub bits_set: u64,
    /// For a lockless bitmap: bits whose regions no client has written.
    #[serde(default)]
    pub unwritten: Option<u64>,
}

impl Array {
    /// The current or waiting job of this kind.
    #[must_use]
    pub fn job(&self, kind: JobKind) -> Option<&Job> {
        self.jobs.iter().find(|job| job.kind == kind)
    }

    /// The last job of this kind that ended.
    #[must_use]
    pub fn last_job(&self, kind: JobKind) -> Option<&LastJob> {
        self.last_jobs.iter().find(|job| job.kind == kind)
    }

    /// The last job of this kind, if it was refused and is not tried again.
    #[must_use]
    pub fn refused(&self, kind: JobKind) -> Option<&LastJob> {
        self.last_job(kind).filter(|last| last.result.is_refused() && self.job(kind).is_none())
    }

    /// Whether a spare waits that is not reserved for a replacement.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        let is_spare = |row: &Slot| row.state == SlotState::Waiting && row.replaces.is_none();
        self.slots.iter().any(is_spare)
    }

    /// Whether a replacement runs or is about to begin.
    #[must_use]
    pub fn has_replacement(&self) -> bool {
        self.slots.iter().any(|row| row.replaces.is_some())
    }
}

/// A problem of an array, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// The problem.
    pub problem: String,
    /// Its present effect.
    pub now: String,
    /// The recommended action.
    pub what: String,
    /// The command for it, to be typed on the array's machine; null if there is none.
    pub command: Option<String>,
}

/// The state of an array.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Every slot has an up-to-date member.
    Ok,
    /// It is served, with fewer members than it should have.
    Degraded,
    /// It refuses writes: too many members are lost, or a member has no space below it.
    Failed,
}

impl State {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// A slot and its member, or a spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slot {
    /// Its number; null for a spare, and for a replacement.
    pub slot: Option<u16>,
    /// For a replacement, and for a spare reserved as one: the slot of the member that it replaces.
    #[serde(default)]
    pub replaces: Option<u16>,
    /// The path by which the member was named; of a failed member, if it failed since the array was
    /// started. Null if the slot was empty at the start.
    pub member: Option<String>,
    /// The member's role.
    pub role: Role,
    /// Its state.
    pub state: SlotState,
    /// The time of the last change of state since the array was started.
    pub since: Option<String>,
    /// The cause of the state, in words for people.
    pub cause: Option<String>,
    /// Sectors of 512 bytes in its member's bad-block log: their content is not trusted, and reads
    /// compute it from the other members. A write makes a sector good again.
    #[serde(default)]
    pub bad_sectors: u64,
    /// It is read only if no other member has a copy (mirrors).
    #[serde(default)]
    pub write_mostly: bool,
    /// Corrected read errors of its member.
    #[serde(default)]
    pub read_errors: ReadErrors,
}

/// Read errors of a member, corrected by writing the sectors again from other members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadErrors {
    /// Since the member came or the array was started.
    pub corrected: u64,
    /// The same with decay: errors count half after an hour, a quarter after two, and so on.
    pub recent: u32,
    /// The recent ones exceed `read-errors-max`.
    pub over_limit: bool,
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It has a slot and its share of the data.
    Active,
    /// It waits to take the slot of a member that fails.
    Spare,
    /// It replaces a member that still serves: it gets every write, and that member's content.
    Replacement,
    /// The slot has no member.
    None,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// Its member is read and written.
    Ok,
    /// Its member is much slower than the others; reads avoid it for now.
    Slow,
    /// Its member receives writes, and is not yet up to date.
    Recovering,
    /// Its member does not answer, and is out until it does: it comes back by itself.
    Away,
    /// Its member failed since the array was started, and is out.
    Failed,
    /// It had no member at the start, or its member was removed (then with a cause).
    Missing,
    /// A spare that waits.
    Waiting,
    /// A replacement that receives writes and is not yet up to date.
    Filling,
    /// A member whose slot another one has taken; it had no fault.
    Replaced,
}

impl SlotState {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slow => "slow",
            Self::Away => "away",
            Self::Recovering => "recovering",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Waiting => "waiting",
            Self::Filling => "filling",
            Self::Replaced => "replaced",
        }
    }
}

/// Why an array refuses writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The failing member: beyond the level's tolerance, unable to grow, or write-protected.
    pub member: String,
    /// When the refusals began.
    pub since: String,
    /// Whether the member only lacks space below it.
    pub out_of_space: bool,
    /// Whether the member has only become write-protected.
    #[serde(default)]
    pub write_protected: bool,
    /// The member's error, in words for people.
    pub cause: String,
}

/// Ranges of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Number of ranges.
    pub ranges: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// An array's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// Connections now.
    pub connections: u64,
    /// Bytes of payloads in memory now.
    pub payload_bytes: u64,
    /// Connections that wait for memory now.
    pub waiting_for_memory: u64,
    /// The largest request of a client, in bytes.
    pub request_bytes_max: u64,
    /// Requests so far.
    pub requests: u64,
    /// Bytes that clients have read so far.
    pub bytes_read: u64,
    /// Bytes that clients have written so far.
    pub bytes_written: u64,
    /// Connections refused so far because all were in use.
    pub refused: u64,
    /// Connections cut so far because the client stalled.
    pub stalled: u64,
    /// Idle connections cut so far to make room.
    pub idled: u64,
}

/// The process that serves an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Its process number, in its own PID namespace.
    pub pid: u32,
    /// Its version of braid.
    pub version: String,
    /// The path of its control socket.
    pub control: String,
    /// The log of its messages, if it was started in the background (`serve --detach`).
    #[serde(default)]
    pub log: Option<String>,
    /// The time it began to serve.
    pub since: String,
    /// Whether a stop has begun.
    pub stopping: bool,
}
