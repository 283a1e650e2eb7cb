//! Jobs of a running array: the one that runs, those that wait, how the last ones ended, and what may be asked of them.
//!
//! Bytes of a job are those that its cursor goes over: of each member for levels 4, 5 and 6 and for recoveries, of the array where
//! copies are compared (levels 1 and 10).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a job does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Makes redundancy agree with the data after an unclean stop, or after the array was made.
    Resync,
    /// Makes what a member that came is to hold.
    Recovery,
    /// Reads everything and counts where redundancy does not agree; changes nothing.
    Check,
}

impl JobKind {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Recovery => "recovery",
            Self::Check => "check",
        }
    }
}

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It goes on.
    Running,
    /// It waits until jobs are resumed.
    Paused,
    /// It begins once no other job is left.
    Waiting,
}

/// A job that is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// What it does.
    pub kind: JobKind,
    /// Whether it goes on.
    pub state: JobState,
    /// Bytes that were done before it began.
    pub from_bytes: u64,
    /// Bytes up to which all is done.
    pub done_bytes: u64,
    /// Bytes up to which it goes.
    pub total_bytes: u64,
    /// The part of the total that is done, from 0 to 100.
    pub percent: f64,
    /// Bytes for each second of late; null as long as that is not known, 0 if it stands still.
    pub bytes_per_second: Option<u64>,
    /// Seconds until it is done; null as long as that is not known, and if it is more than a hundred days.
    pub seconds_left: Option<u64>,
    /// Sectors of 512 bytes that differed from what the others say, so far: of parity, or of copies.
    pub differing_sectors: u64,
    /// Sectors of 512 bytes that it has written to members, so far.
    pub written_sectors: u64,
}

/// How a job gives way to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobPace {
    /// What is done at the moment.
    pub phase: PacePhase,
    /// Bytes that may be under way for the job at once, on average, beside clients.
    pub allowance_bytes: u64,
    /// Bytes that are under way for it now.
    pub in_flight_bytes: u64,
    /// How long the slowest hundredth of clients' requests takes without the job, in nanoseconds; null as long as that is not known.
    pub alone_p99_ns: Option<u64>,
    /// How long it may take beside the job, in nanoseconds; null as long as that is not known, and if it does not matter.
    pub target_p99_ns: Option<u64>,
}

/// What is done about clients beside a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PacePhase {
    /// There are no clients: the job has all of the members' time.
    Idle,
    /// Clients and the job share the members.
    Shared,
    /// The job stands still for a moment, to see what clients feel without it.
    Probe,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobResult {
    /// All of it is done.
    Completed,
    /// It was told to end, another job came first, or the array stops. A check is over with that, others go on where they were.
    Interrupted,
    /// The member that it was for is lost.
    TargetLost,
    /// Too much cannot be read at one place to make the rest. It is not begun again before something has changed, or until jobs are
    /// resumed.
    Unreadable,
    /// There is no space below a member. The same.
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

/// How the last job of a kind ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastJob {
    /// How many jobs of the array had ended with it: a later one has a larger number.
    pub number: u64,
    /// What it did.
    pub kind: JobKind,
    /// How it ended.
    pub result: JobResult,
    /// When it began.
    pub began: String,
    /// When it ended.
    pub ended: String,
    /// How long it took, in milliseconds, pauses among it.
    pub took_ms: u64,
    /// Bytes that were done before it began.
    pub from_bytes: u64,
    /// Bytes up to which all was done.
    pub done_bytes: u64,
    /// Bytes up to which it went.
    pub total_bytes: u64,
    /// Sectors of 512 bytes that differed from what the others say: of parity, or of copies.
    pub differing_sectors: u64,
    /// Sectors of 512 bytes that it wrote to members.
    pub written_sectors: u64,
}

/// What may be asked of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobRequest {
    /// Check all of it, once no other job is left.
    Check,
    /// End the check that runs or waits.
    EndCheck,
    /// No job is to begin or go on until jobs are resumed.
    Pause,
    /// Jobs are to go on, and what could not be finished is to be tried again.
    Resume,
}

/// The body of `POST /v1/jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsWanted {
    /// What is asked for.
    pub request: JobRequest,
}

/// What comes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobEffect {
    /// A check begins.
    Begins,
    /// A check begins once the job that is there is over.
    Waits,
    /// A check ends.
    Ends,
    /// Jobs are paused.
    Pauses,
    /// Jobs go on.
    Resumes,
    /// What could not be finished is tried again.
    TriesAgain,
    /// It was so already.
    Nothing,
}

/// What `POST /v1/jobs` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobsAnswer {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// What was asked for.
    pub request: JobRequest,
    /// What comes of it, or would.
    pub effect: JobEffect,
    /// Jobs as they were when it was asked.
    pub jobs: Vec<Job>,
    /// How the last ones had ended by then.
    pub last_jobs: Vec<LastJob>,
    /// Whether nothing was done because that was asked for.
    pub dry_run: bool,
}

/// How a check that was waited for went: what `braid check --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// The check.
    pub check: LastJob,
}
