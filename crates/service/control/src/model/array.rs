//! A running array, as `GET /v1/array` and `braid status --json` report it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::{Job, JobKind, JobPace, LastJob};
use super::settings::Settings;
use super::shape::Reshape;

/// A running array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Array {
    /// The version of this object: 1.
    pub version: u32,
    /// The name that the array is served under.
    pub name: String,
    /// The array's UUID, in md's grouping: four groups of eight digits.
    pub uuid: String,
    /// The array's level: linear, raid0, raid1, raid4, raid5, raid6 or raid10.
    pub level: String,
    /// The layout of chunks, by mdadm's name for it; null if the level has only one layout.
    pub layout: Option<String>,
    /// The version of the array's metadata, such as 1.2.
    pub metadata: String,
    /// Bytes of a chunk; null if the level has no chunks.
    pub chunk_bytes: Option<u64>,
    /// Bytes that clients see.
    pub size_bytes: u64,
    /// Bytes of the whole array, if it ends earlier for clients; null if clients see all of it.
    #[serde(default)]
    pub whole_size_bytes: Option<u64>,
    /// The array's state.
    pub state: State,
    /// Whether the array was started read-only, so that it refuses writes.
    pub read_only: bool,
    /// Whether the array was interrupted while writing: redundancy may disagree until a resync.
    pub dirty: bool,
    /// How many more members the array can lose, in any combination.
    pub can_lose: u16,
    /// Parity may not fit the data until a resync, so the array can lose fewer members than its
    /// level allows.
    pub parity_in_doubt: bool,
    /// Copies may differ, until a resync, in places that were being written when the array was
    /// interrupted.
    pub copies_in_doubt: bool,
    /// One row for each slot, in order, with or without a member, then one for each spare.
    pub slots: Vec<Slot>,
    /// Members that failed since the array was started and were not removed, while another member
    /// has their slot. Each row has the member's former slot; null for a former spare.
    #[serde(default)]
    pub replaced: Vec<Slot>,
    /// Members that were left out when this owner took the array over. Each is added and recovered
    /// by itself when its server answers.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The current job, if any, then a check that waits for it.
    #[serde(default)]
    pub jobs: Vec<Job>,
    /// The last job of each kind that ended since the array was started.
    #[serde(default)]
    pub last_jobs: Vec<LastJob>,
    /// The reshape under way; null if none.
    #[serde(default)]
    pub reshape: Option<Reshape>,
    /// The time of the next scheduled check, in the past if it could not begin; null if none.
    #[serde(default)]
    pub next_check: Option<String>,
    /// No job begins or continues until jobs are resumed.
    #[serde(default)]
    pub jobs_paused: bool,
    /// How the running job yields to clients; null if no job runs.
    #[serde(default)]
    pub pace: Option<JobPace>,
    /// Problems of the array with advice, the worst first; empty if it has none.
    #[serde(default)]
    pub advice: Vec<Advice>,
    /// Why the array has refused writes since it was started; null if it has refused none.
    pub failure: Option<Failure>,
    /// Acknowledged writes that were lost since the array was started; null if none were.
    pub lost: Option<Spread>,
    /// NBD URIs that the array is served at.
    pub uris: Vec<String>,
    /// The file that the array appears as through FUSE; null if none.
    #[serde(default)]
    pub file: Option<String>,
    /// The block device that the array appears as through ublk; null if none.
    #[serde(default)]
    pub device: Option<String>,
    /// The vhost-user socket at which virtual machines use the array as a disk; null if none.
    #[serde(default)]
    pub vhost_user: Option<String>,
    /// The array's settings.
    pub settings: Settings,
    /// Acknowledged bytes that members do not have yet; a flush writes them.
    pub dirty_bytes: u64,
    /// The array's write-intent bitmap; null if the array has none.
    #[serde(default)]
    pub bitmap: Option<Bitmap>,
    /// The array's parity logs; null if the array has none.
    #[serde(default)]
    pub parity_logs: Option<ParityLogs>,
    /// The array's write journal; null if the array has none.
    #[serde(default)]
    pub journal: Option<Journal>,
    /// The array's clients.
    pub clients: Clients,
    /// Milliseconds that slow members have sat out; the sum of all members.
    pub sat_out_ms: u64,
    /// The array's counters since it was started, by name; the names may change.
    pub counters: BTreeMap<String, u64>,
    /// Resources that the serving process has closed off for itself: files, system-calls,
    /// capabilities.
    #[serde(default)]
    pub confined: Vec<String>,
    /// The process that serves the array.
    pub server: Server,
}

/// Parity logs, md's (PPL) or braid's own: they record each write durably before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParityLogs {
    /// Every write is logged before it begins.
    Kept,
    /// Not yet in use: parity disagrees somewhere, or the array has not been idle since parity came
    /// to agree.
    Pending,
}

/// A write journal: every write is durable in the journal before members have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Journal {
    /// The path of the journal's device.
    pub path: String,
    /// Bytes of the journal in use, including writes that members have not flushed.
    pub used_bytes: u64,
    /// The journal's capacity in bytes.
    pub size_bytes: u64,
}

/// A write-intent bitmap: regions where members may differ after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bitmap {
    /// Bytes that a bit covers: bytes of each member, or on level 10 bytes of the array.
    pub bit_bytes: u64,
    /// Bits in all.
    pub bits: u64,
    /// Set bits. Their regions were recently written, are in doubt, or have writes that a member
    /// missed.
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

/// A problem of an array, and what the operator can do about it, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// The problem.
    pub problem: String,
    /// The problem's present effect.
    pub now: String,
    /// The recommended action.
    pub what: String,
    /// The command for the recommended action, to be typed on the array's machine; null if there is
    /// none.
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
    /// The array is served, but slots lack up-to-date members.
    Degraded,
    /// The array refuses writes: too many members are lost, or the storage below a member is full.
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
    /// The slot's number; null for a spare, and for a replacement.
    pub slot: Option<u16>,
    /// For a replacement, and for a spare reserved as one: the slot of the member that it replaces.
    #[serde(default)]
    pub replaces: Option<u16>,
    /// The path by which the member was named. A failed member has one if it failed since the array
    /// was started. Null if the slot was empty at the start.
    pub member: Option<String>,
    /// The member's role.
    pub role: Role,
    /// The slot's state.
    pub state: SlotState,
    /// The time of the last change of state since the array was started.
    pub since: Option<String>,
    /// The cause of the slot's state, in words for people.
    pub cause: Option<String>,
    /// Sectors of 512 bytes in the member's bad-block log: their content is not trusted, and reads
    /// compute it from the other members. A write makes a sector good again.
    #[serde(default)]
    pub bad_sectors: u64,
    /// Reads avoid the member while another member has a copy (mirrors).
    #[serde(default)]
    pub write_mostly: bool,
    /// Corrected read errors of the member.
    #[serde(default)]
    pub read_errors: ReadErrors,
    /// The connection to a member on another host; null for a member of this host.
    #[serde(default)]
    pub link: Option<Link>,
}

/// The connection to a member on another host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// The member's server can be reached, as far as is known.
    pub is_up: bool,
    /// How often the connection was made anew after a loss.
    pub reconnects: u64,
    /// The cause of the last loss; null without one.
    pub last_loss: Option<String>,
    /// Mean time of the last requests, in microseconds.
    pub mean_latency_us: u64,
}

/// A member that was left out when its array was taken over. The owner tries to add it again and
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The member's URI.
    pub member: String,
    /// The member's server answers, and the array did not take the member.
    pub answers: bool,
    /// Why the array does not have the member yet; null until its server has been asked.
    pub cause: Option<String>,
}

/// Read errors of a member, corrected by writing the sectors again from other members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadErrors {
    /// Corrected read errors since the member joined or the array was started.
    pub corrected: u64,
    /// Corrected read errors with decay: an error counts half after an hour, a quarter after two,
    /// and so on.
    pub recent: u32,
    /// The recent errors exceed the setting `read-errors-max`.
    pub over_limit: bool,
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The member has a slot and its share of the data.
    Active,
    /// The member waits to take the slot of a member that fails.
    Spare,
    /// The member replaces another, which still serves; it receives every write, and a copy of the
    /// other's content.
    Replacement,
    /// The slot has no member.
    None,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// Reads and writes use the slot's member.
    Ok,
    /// The slot's member is much slower than the other members; reads avoid it for now.
    Slow,
    /// The slot's member receives writes, and is not yet up to date.
    Recovering,
    /// The slot's member does not answer. The member is out until it answers, and then comes back
    /// by itself.
    Away,
    /// The slot's member failed since the array was started, and is out.
    Failed,
    /// The slot had no member at the start, or its member was removed (then with a cause).
    Missing,
    /// A spare that waits for a slot.
    Waiting,
    /// A replacement that receives writes and is not yet up to date.
    Filling,
    /// A member without a fault whose slot another member has taken.
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
    /// The time when the refusals began.
    pub since: String,
    /// Whether the only cause is that the storage below the member is full.
    pub out_of_space: bool,
    /// Whether the only cause is that the member has become write-protected.
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
    /// Connections refused so far because all allowed connections were in use.
    pub refused: u64,
    /// Connections cut so far because the client stalled.
    pub stalled: u64,
    /// Idle connections cut so far to make room.
    pub idled: u64,
}

/// The process that serves an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// The number of the process, in its own PID namespace.
    pub pid: u32,
    /// The version of braid that the process runs.
    pub version: String,
    /// The path of the array's control socket.
    pub control: String,
    /// The log of the process's messages, if it was started in the background (`serve --detach`).
    #[serde(default)]
    pub log: Option<String>,
    /// The time when the process began to serve.
    pub since: String,
    /// Whether a stop has begun.
    pub stopping: bool,
}
