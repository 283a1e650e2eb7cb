//! Jobs of a running array: the current one, waiting ones, results of the last ones, and requests.
//!
//! A job counts the bytes that its cursor passes. For levels 4, 5 and 6 and for recoveries these
//! are bytes of each member, for comparisons of copies (levels 1 and 10) bytes of the array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kinds of jobs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Makes redundancy agree with the data after an unclean stop or a creation.
    Resync,
    /// Computes the content of a new or returned member.
    Recovery,
    /// Copies a member that still serves to its replacement.
    Replace,
    /// Reads everything and reports where redundancy disagrees, with the wrong member if known. A
    /// check that repairs has this kind, too: [`Found::repairs`].
    Check,
    /// Moves the array's data to another shape. Progress counts sectors of the array.
    Reshape,
}

impl JobKind {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Recovery => "recovery",
            Self::Replace => "replace",
            Self::Check => "check",
            Self::Reshape => "reshape",
        }
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// The job makes progress.
    Running,
    /// The job waits until jobs are resumed.
    Paused,
    /// The job begins when no other job is left.
    Waiting,
}

/// A current or waiting job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// The job's kind.
    pub kind: JobKind,
    /// The job's state.
    pub state: JobState,
    /// Offset in bytes at which the job began.
    pub from_bytes: u64,
    /// Bytes up to which the job is done.
    pub done_bytes: u64,
    /// Bytes at which the job ends.
    pub total_bytes: u64,
    /// The done part of the total, from 0 to 100.
    pub percent: f64,
    /// Recent bytes per second; null while unknown, 0 if the job stands still.
    pub bytes_per_second: Option<u64>,
    /// Seconds until the job is done; null while unknown, and if that is more than a hundred days.
    pub seconds_left: Option<u64>,
    /// Sectors of 512 bytes of parity or copies that disagreed with the other members, so far.
    pub differing_sectors: u64,
    /// Sectors of 512 bytes that the job has written to members so far.
    pub written_sectors: u64,
    /// Sectors of 512 bytes that a recovery could not compute, or that a reshape found on no
    /// member; bad-block logs list them.
    #[serde(default)]
    pub unmade_sectors: u64,
    /// Sectors of 512 bytes in members' bad-block logs, as the job saw them on its way or at its
    /// end. A check counts only sectors that the other members cannot give.
    #[serde(default)]
    pub named_sectors: u64,
    /// For a check: its findings so far. For a reshape: the sectors that it lost.
    #[serde(default)]
    pub found: Found,
}

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// The check writes sectors known to be wrong again, computed from the other members.
    pub repairs: bool,
    /// The check also reads sectors that bad-block logs list and the other members cannot give. A
    /// sector that can be read and agrees leaves the log.
    #[serde(default)]
    pub retries_bad: bool,
    /// Wrong sectors of 512 bytes whose member is known.
    pub located_sectors: u64,
    /// Wrong sectors that were written again, read again, and then agreed with the other members.
    pub repaired_sectors: u64,
    /// Sectors of each member that disagree while the wrong member is unknown. The check leaves
    /// them unchanged.
    pub ambiguous_sectors: u64,
    /// The findings as runs of sectors; the list has a limit.
    pub runs: Vec<FoundRun>,
    /// Number of runs beyond the limit of the list.
    pub more_runs: u64,
}

impl Found {
    /// Whether all findings have been repaired.
    #[must_use]
    pub const fn is_repaired(&self) -> bool {
        self.located_sectors > 0
            && self.repaired_sectors == self.located_sectors
            && self.ambiguous_sectors == 0
    }
}

/// A run of sectors that are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundRun {
    /// The kind of sectors.
    pub kind: FoundKind,
    /// The slot whose member is wrong; null if unknown.
    pub slot: Option<u16>,
    /// The path of the wrong member; null if unknown.
    pub member: Option<String>,
    /// The slots that may be wrong if the wrong slot is unknown; the first sixteen if there are
    /// more.
    pub candidate_slots: Vec<u16>,
    /// The run's place on the member, or on each candidate, in bytes from the start of the array's
    /// data there (`data offset` of `braid examine`); 0 for a lost run.
    pub member_offset_bytes: u64,
    /// The run's place in the array; null for parity, and if the kind is unknown.
    pub array_offset_bytes: Option<u64>,
    /// The run's length.
    pub length_bytes: u64,
    /// The check's action on the run.
    pub fate: FoundFate,
}

/// The kind of sectors that are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FoundKind {
    /// Data, or a copy of it.
    Data,
    /// The first parity.
    P,
    /// The second parity.
    Q,
    /// Unknown.
    Unknown,
}

impl FoundKind {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::P => "p",
            Self::Q => "q",
            Self::Unknown => "unknown",
        }
    }
}

/// The check's action on a run that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FoundFate {
    /// The check did not change the run.
    Left,
    /// The run was written again, but could not be verified.
    Unverified,
    /// The run was written again, read again, and agrees with the other members.
    Repaired,
    /// A reshape found the run on no member. Bad-block logs list it, and reads of it fail until a
    /// client writes it.
    Lost,
}

impl FoundFate {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Unverified => "unverified",
            Self::Repaired => "repaired",
            Self::Lost => "lost",
        }
    }
}

/// How a job yields to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobPace {
    /// The current phase.
    pub phase: PacePhase,
    /// Bytes that the job may have in flight while clients are active, on average.
    pub allowance_bytes: u64,
    /// Bytes that the job has in flight now.
    pub in_flight_bytes: u64,
    /// The 99th percentile of client latency without the job, in nanoseconds; null while unknown.
    pub alone_p99_ns: Option<u64>,
    /// The limit of the 99th percentile of client latency while the job runs, in nanoseconds; null
    /// if unknown or without a limit.
    pub target_p99_ns: Option<u64>,
}

/// Phases of a job's yielding to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PacePhase {
    /// No client is active: the job has all of the members' time.
    Idle,
    /// Clients and the job share the members.
    Shared,
    /// The job pauses for a moment to measure client latency without it.
    Probe,
}

/// The result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobResult {
    /// The job is complete.
    Completed,
    /// A request, another job or a stop ended it. A check is then over; other jobs continue.
    Interrupted,
    /// The job's target member is lost.
    TargetLost,
    /// At one place too many members are unreadable to compute the rest, and the target's bad-block
    /// log is full. The job is not tried again before something changes or jobs are resumed.
    Unreadable,
    /// The storage below a member is full. The job is not tried again before something changes or
    /// jobs are resumed.
    Unwritten,
}

impl JobResult {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::TargetLost => "target-lost",
            Self::Unreadable => "unreadable",
            Self::Unwritten => "unwritten",
        }
    }

    /// Whether the job could not be finished, and is not tried again by itself.
    #[must_use]
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::Unreadable | Self::Unwritten)
    }
}

/// The last job of a kind that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastJob {
    /// The number of this end among all ended jobs of the array: a later job has a larger number.
    pub number: u64,
    /// The job's kind.
    pub kind: JobKind,
    /// The job's result.
    pub result: JobResult,
    /// The time when the job began.
    pub began: String,
    /// The time when the job ended.
    pub ended: String,
    /// How long the job took, in milliseconds, including pauses.
    pub took_ms: u64,
    /// Offset in bytes at which the job began.
    pub from_bytes: u64,
    /// Bytes up to which the job was done.
    pub done_bytes: u64,
    /// Bytes at which the job would end.
    pub total_bytes: u64,
    /// Sectors of 512 bytes of parity or copies that disagreed with the other members.
    pub differing_sectors: u64,
    /// Sectors of 512 bytes that the job wrote to members.
    pub written_sectors: u64,
    /// Sectors of 512 bytes that a recovery could not compute, or that a reshape found on no
    /// member; bad-block logs list them.
    #[serde(default)]
    pub unmade_sectors: u64,
    /// Sectors of 512 bytes in members' bad-block logs, as the job saw them on its way or at its
    /// end. A check counts only sectors that the other members cannot give.
    #[serde(default)]
    pub named_sectors: u64,
    /// For a check: its findings. For a reshape: the sectors that it lost.
    #[serde(default)]
    pub found: Found,
}

/// Requests about jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobRequest {
    /// Check the whole array when no other job is left.
    Check,
    /// Check, and also compute sectors known to be wrong from the other members and write them
    /// again.
    Repair,
    /// Check, and also read sectors that bad-block logs list and the other members cannot give. A
    /// sector that can be read and agrees leaves the log.
    RetryBad,
    /// End the running or waiting check, even if it repairs.
    EndCheck,
    /// Let no job begin or continue until jobs are resumed.
    Pause,
    /// Let jobs continue, and try refused jobs again.
    Resume,
}

/// The body of `POST /v1/jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsWanted {
    /// The request.
    pub request: JobRequest,
}

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobEffect {
    /// A check begins.
    Begins,
    /// A check begins when no other job is left.
    Waits,
    /// A check ends.
    Ends,
    /// Jobs are paused.
    Pauses,
    /// Jobs continue.
    Resumes,
    /// Jobs that ended unfinished are tried again.
    TriesAgain,
    /// No effect: the jobs were already as requested.
    Nothing,
}

/// The answer to `POST /v1/jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobsAnswer {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// The request.
    pub request: JobRequest,
    /// The effect of the request, or on a dry run the expected effect.
    pub effect: JobEffect,
    /// Jobs at the time of the request.
    pub jobs: Vec<Job>,
    /// Results of the last jobs at the time of the request.
    pub last_jobs: Vec<LastJob>,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
}

/// The result of a check: the output of `braid check --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// The check.
    pub check: LastJob,
}
