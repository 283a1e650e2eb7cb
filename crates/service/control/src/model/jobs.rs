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
    /// Copies a member that is there to the one that is to take its place.
    Replace,
    /// Reads everything and says where redundancy does not agree, and which member is wrong where that can be known. One that
    /// repairs is a check, too: [`Found::repairs`].
    Check,
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
    /// Sectors of 512 bytes that it could not make for members that are filled, since nobody holds them any more; bad-block logs
    /// name them.
    #[serde(default)]
    pub unmade_sectors: u64,
    /// Sectors of 512 bytes that members' bad-block logs name, as it went on, or ended: of a check, those that the others cannot give.
    #[serde(default)]
    pub named_sectors: u64,
    /// Of a check: what it has found so far.
    #[serde(default)]
    pub found: Found,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// It writes what is known to be wrong again, from the others.
    pub repairs: bool,
    /// It tries what bad-block logs name and the others cannot give: what can be read and agrees is named no more.
    #[serde(default)]
    pub retries_bad: bool,
    /// Sectors of 512 bytes that are wrong, and it is known of which member.
    pub located_sectors: u64,
    /// Of these, sectors that were written again, read again, and agree with the others.
    pub repaired_sectors: u64,
    /// Sectors of each member among which something is wrong, and it is not known in which. They are left as they are.
    pub ambiguous_sectors: u64,
    /// What was found, run by run, as far as it is kept.
    pub runs: Vec<FoundRun>,
    /// Runs that were found and are not in the list.
    pub more_runs: u64,
}

impl Found {
    /// All that was found has been repaired.
    #[must_use]
    pub const fn is_repaired(&self) -> bool {
        self.located_sectors > 0
            && self.repaired_sectors == self.located_sectors
            && self.ambiguous_sectors == 0
    }
}

/// A run of sectors in which something is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundRun {
    /// What it is.
    pub kind: FoundKind,
    /// The slot whose member is wrong; null if that is not known.
    pub slot: Option<u16>,
    /// That member, by its path; null if that is not known.
    pub member: Option<String>,
    /// Slots of which some are wrong, where it is not known which; the first sixteen if there are more.
    pub candidate_slots: Vec<u16>,
    /// Where it begins on the member, or on each of the candidates: bytes from where the array's data begins there (`data
    /// offset` of `braid examine`).
    pub member_offset_bytes: u64,
    /// Where it begins in the array; null for parity, and where it is not known what is wrong.
    pub array_offset_bytes: Option<u64>,
    /// How long it is.
    pub length_bytes: u64,
    /// What was done about it.
    pub fate: FoundFate,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FoundKind {
    /// Data, or a copy of it.
    Data,
    /// The first parity.
    P,
    /// The second parity.
    Q,
    /// Something; it is not known what.
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

/// What was done about what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FoundFate {
    /// Nothing.
    Left,
    /// It was written again; that it is right now could not be seen.
    Unverified,
    /// It was written again, read again, and agrees with the others.
    Repaired,
}

impl FoundFate {
    /// The word in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Unverified => "unverified",
            Self::Repaired => "repaired",
        }
    }
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
    /// Too much cannot be read at one place to make the rest, and the member that lacks it has no room to note that. It is not begun again before something has changed, or until jobs are
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
    /// Sectors of 512 bytes that it could not make for members that are filled, since nobody holds them any more; bad-block logs
    /// name them.
    #[serde(default)]
    pub unmade_sectors: u64,
    /// Sectors of 512 bytes that members' bad-block logs name, as it went on, or ended: of a check, those that the others cannot give.
    #[serde(default)]
    pub named_sectors: u64,
    /// Of a check: what it found.
    #[serde(default)]
    pub found: Found,
}

/// What may be asked of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobRequest {
    /// Check all of it, once no other job is left.
    Check,
    /// The same, and write what is known to be wrong again, from the others.
    Repair,
    /// Check all of it, and read what bad-block logs name and the others cannot give: what can be read and agrees is named no more.
    RetryBad,
    /// End the check that runs or waits, one that repairs, too.
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
