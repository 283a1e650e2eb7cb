//! A running array, as `GET /v1/array` and `braid status --json` tell it.

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
    /// Its name, as it is served.
    pub name: String,
    /// Its UUID, in md's grouping: four groups of eight digits.
    pub uuid: String,
    /// Its level: linear, raid0, raid1, raid4, raid5, raid6 or raid10.
    pub level: String,
    /// How chunks are laid out, in the word that mdadm has for it; null where the level has one way only.
    pub layout: Option<String>,
    /// The version of its metadata, such as 1.2.
    pub metadata: String,
    /// Bytes of a chunk; null where there are none.
    pub chunk_bytes: Option<u64>,
    /// Bytes that clients see.
    pub size_bytes: u64,
    /// How well it is.
    pub state: State,
    /// Whether writes are refused because it was started so.
    pub read_only: bool,
    /// Whether it was interrupted while writing at some time and redundancy may not agree since; only a resync ends that.
    pub dirty: bool,
    /// How many more members may be lost, whichever they are.
    pub can_lose: u16,
    /// It bears less than its level does otherwise: parity may not fit the data until it is resynced.
    pub parity_in_doubt: bool,
    /// Copies may differ where the array was being written when it was interrupted, until it is resynced.
    pub copies_in_doubt: bool,
    /// One row for each slot, in order, with or without a member, and behind them one for each spare.
    pub slots: Vec<Slot>,
    /// Members that failed since the array was started, whose slot another one has taken, and that were not removed; each with the
    /// slot that it had, which is null for one that waited as a spare.
    #[serde(default)]
    pub replaced: Vec<Slot>,
    /// The job that is there, if any; behind it a check that waits for it.
    #[serde(default)]
    pub jobs: Vec<Job>,
    /// How the last job of each kind ended that did while the array was served here.
    #[serde(default)]
    pub last_jobs: Vec<LastJob>,
    /// When the next check begins by itself, or since when it is to and could not; null if none does.
    #[serde(default)]
    pub next_check: Option<String>,
    /// No job begins or goes on until jobs are resumed.
    #[serde(default)]
    pub jobs_paused: bool,
    /// How the job that runs gives way to clients; null without one.
    #[serde(default)]
    pub pace: Option<JobPace>,
    /// What is wrong with it and what to do, the worst first; nothing if all is well.
    #[serde(default)]
    pub advice: Vec<Advice>,
    /// Why writes are refused since it was started; null if they are not.
    pub failure: Option<Failure>,
    /// Answered writes that were lost since it was started; null if none were.
    pub lost: Option<Spread>,
    /// Where it is served, as NBD URIs.
    pub uris: Vec<String>,
    /// The file that it is, through FUSE; null if it is none.
    #[serde(default)]
    pub file: Option<String>,
    /// The block device that it is, through ublk; null if it is none.
    #[serde(default)]
    pub device: Option<String>,
    /// The socket where it is a disk of virtual machines, by vhost-user; null if it is none.
    #[serde(default)]
    pub vhost_user: Option<String>,
    /// What it is set to.
    pub settings: Settings,
    /// Bytes that clients were told are written and that members do not have yet; a flush brings them there.
    pub dirty_bytes: u64,
    /// Its write-intent bitmap; null if it keeps none.
    #[serde(default)]
    pub bitmap: Option<Bitmap>,
    /// Its parity logs; null if it keeps none.
    #[serde(default)]
    pub parity_logs: Option<ParityLogs>,
    /// Its write journal; null if it writes none.
    #[serde(default)]
    pub journal: Option<Journal>,
    /// Its clients.
    pub clients: Clients,
    /// Milliseconds that members have sat out because they were slow, all of them together.
    pub sat_out_ms: u64,
    /// What the array has done since it was started, by name. The names are those of this version of braid.
    pub counters: BTreeMap<String, u64>,
    /// What its process has closed off for itself: files, system-calls, capabilities.
    #[serde(default)]
    pub confined: Vec<String>,
    /// The process that serves it.
    pub server: Server,
}

/// Parity logs, md's (PPL) or braid's own: what is being written, said durably before it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParityLogs {
    /// Everything is logged before it is written.
    Kept,
    /// Not yet: parity does not agree everywhere, or the array was not idle since it does.
    Pending,
}

/// A write journal: all that is written is durable there before members have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Journal {
    /// The path of its device.
    pub path: String,
    /// Bytes of it that are in use: what members have and have not flushed is among them.
    pub used_bytes: u64,
    /// Bytes that it has room for.
    pub size_bytes: u64,
}

/// A write-intent bitmap: where members may differ after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bitmap {
    /// Bytes that a bit stands for: of each member, on level 10 of the array.
    pub bit_bytes: u64,
    /// How many bits there are.
    pub bits: u64,
    /// Those that are set: what they stand for was written some seconds ago or less, is in doubt, or was missed by a member.
    pub bits_set: u64,
    /// Of a lockless one: bits whose sectors hold nothing that a client wrote.
    #[serde(default)]
    pub unwritten: Option<u64>,
}

impl Array {
    /// The job of this kind, if it is there or waits.
    #[must_use]
    pub fn job(&self, kind: JobKind) -> Option<&Job> {
        self.jobs.iter().find(|job| job.kind == kind)
    }

    /// How the last job of this kind ended, if one did.
    #[must_use]
    pub fn last_job(&self, kind: JobKind) -> Option<&LastJob> {
        self.last_jobs.iter().find(|job| job.kind == kind)
    }

    /// Why the job of this kind that is to be done is not tried again, if so.
    #[must_use]
    pub fn refused(&self, kind: JobKind) -> Option<&LastJob> {
        self.last_job(kind).filter(|last| last.result.is_refused() && self.job(kind).is_none())
    }

    /// Whether a spare waits that nobody has another use for.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        let is_spare = |row: &Slot| row.state == SlotState::Waiting && row.replaces.is_none();
        self.slots.iter().any(is_spare)
    }

    /// Whether a member is being replaced, or about to be.
    #[must_use]
    pub fn has_replacement(&self) -> bool {
        self.slots.iter().any(|row| row.replaces.is_some())
    }
}

/// One thing that is wrong with an array, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// What is wrong.
    pub problem: String,
    /// What is so meanwhile.
    pub now: String,
    /// What to do.
    pub what: String,
    /// The command to type for it, as it is where the array is served; null if there is none.
    pub command: Option<String>,
}

/// How well an array is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Every slot has a member that is wholly up to date.
    Ok,
    /// It is served, with fewer members than it should have.
    Degraded,
    /// It takes no more writes: too much is lost, or there is no space below it.
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

/// A slot and what is in it, or a spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slot {
    /// Its number; null for a spare, and for a replacement.
    pub slot: Option<u16>,
    /// Of a replacement, and of a spare that is to be one: the slot whose member it is to replace.
    #[serde(default)]
    pub replaces: Option<u16>,
    /// The member, by the path that it was named by; that of the one that failed, if one did since the array was started; null if
    /// the slot was empty from the start.
    pub member: Option<String>,
    /// What the member is for.
    pub role: Role,
    /// How it is.
    pub state: SlotState,
    /// Since when, if it has come about since the array was started.
    pub since: Option<String>,
    /// Why, in words for people.
    pub cause: Option<String>,
    /// Sectors of 512 bytes that its member's bad-block log names: what they hold is not known, and they are made of the others.
    /// They are good again when they have been written.
    #[serde(default)]
    pub bad_sectors: u64,
    /// It is read only where no other copy is (mirrors).
    #[serde(default)]
    pub write_mostly: bool,
    /// Read errors of its member that were corrected.
    #[serde(default)]
    pub read_errors: ReadErrors,
}

/// Read errors of a member that were corrected: the sectors were written again, from what the others hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadErrors {
    /// Since it came or the array was started.
    pub corrected: u64,
    /// Of these, with what is older than an hour counted half, older than two a quarter, and so on.
    pub recent: u32,
    /// There are more recent ones than `read-errors-max` allows.
    pub over_limit: bool,
}

/// What a member is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It has a slot, and its share of the data.
    Active,
    /// It waits to take the place of one that fails.
    Spare,
    /// It is to take the place of a member that is there: it takes every write, and is filled.
    Replacement,
    /// There is none.
    None,
}

/// How a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// Its member is read and written.
    Ok,
    /// Its member is much slower than the others, and read around for now.
    Slow,
    /// Its member is written, and not all of it is up to date yet.
    Recovering,
    /// Its member does not answer, and is out until it does: it comes back by itself.
    Away,
    /// Its member failed since the array was started, and is out.
    Failed,
    /// It has no member: it has had none since the array was started, or its member was removed, which has a moment and a cause.
    Missing,
    /// A spare: it waits.
    Waiting,
    /// A replacement: it is written, and not all of it is up to date yet.
    Filling,
    /// A member that another one has the place of by now: nothing was wrong with it.
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

/// Why an array takes no more writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The member that was one too many, that could not grow, or that may not be written.
    pub member: String,
    /// Since when.
    pub since: String,
    /// Whether there was no space below the member, and nothing is wrong with it.
    pub out_of_space: bool,
    /// Whether the member may not be written any more, and nothing else is wrong with it.
    #[serde(default)]
    pub write_protected: bool,
    /// What the member answered, in words for people.
    pub cause: String,
}

/// Ranges of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// How many.
    pub ranges: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// An array's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// Connections now.
    pub connections: u64,
    /// Bytes of payloads that are in memory now.
    pub payload_bytes: u64,
    /// Connections that wait for memory now.
    pub waiting_for_memory: u64,
    /// The largest request that a client may make, in bytes.
    pub request_bytes_max: u64,
    /// Requests so far.
    pub requests: u64,
    /// Bytes that clients have read so far.
    pub bytes_read: u64,
    /// Bytes that clients have written so far.
    pub bytes_written: u64,
    /// Connections that were turned away so far, since all were in use.
    pub refused: u64,
    /// Connections cut so far whose client did not go on.
    pub stalled: u64,
    /// Idle connections cut so far to make room.
    pub idled: u64,
}

/// The process that serves an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Its number, where it runs.
    pub pid: u32,
    /// Its version of braid.
    pub version: String,
    /// The path of the socket that it answers at.
    pub control: String,
    /// Where what it says goes, if it was started in the background (`serve --detach`).
    #[serde(default)]
    pub log: Option<String>,
    /// Since when it serves.
    pub since: String,
    /// Whether the array is being stopped.
    pub stopping: bool,
}
