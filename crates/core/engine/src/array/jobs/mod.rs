//! Jobs: background work over the whole array, one job at a time.
//!
//! ```text
//!                       Begin                        every sector done, saved
//!   no job, but need ─────────────▶ a cursor moves ──────────────────────────────▶ completed
//!   (chosen anew each time)            │    ▲                │ a target is lost, the array stops,
//!                                 Work │    │ WorkDone       │ a range stays unreadable
//!                                      ▼    │                ▼
//!                                    shards: bands        aborted; what was saved counts
//! ```
//!
//! | job      | cursor counts      | target                    | saved in superblocks as       |
//! |----------|--------------------|---------------------------|-------------------------------|
//! | resync   | md's resync offset | parity, or copies         | `resync_offset`, when clean   |
//! | recovery | member sectors     | members not recovered yet | each target's `recovery_offset` |
//! | replace  | member sectors     | replacements              | each target's `recovery_offset` |
//! | check    | as resync          | nothing                   | nothing                       |
//! | repair   | as resync          | sectors known to be wrong | nothing                       |
//!
//! # Invariants
//! - A saved offset is never ahead of the data on members: it is taken from the cursor when a flush
//!   begins, and saved when the flush succeeds [check: an_offset_counts_when_it_was_flushed].
//! - A sector counts as done when shards reported it, and every sector before it, as done
//!   [check: a_cursor_is_done_up_to_the_first_that_is_not].
//! - While a job's work is in flight no other job begins: the work's outcome is of this job
//!   [check: a_job_ends_when_its_work_is_back].
//!
//! A driver that knows clients' load limits a job's requests ([`JobAllowance`]); without such a
//! driver the limit is the shards' room.
//!
//! A range that cannot be computed costs its sectors, and not the job: the job repeats the range by
//! blocks, and then by sectors. If a sector still cannot be computed, the bad-block logs of the
//! members that lack it name the sector ([`super::bad_logs`]). When the logs are durable the job
//! repeats the sector once more, and then continues beyond it. A resync marks parity that cannot be
//! made to agree, or every copy, in the same way. So no later read believes sectors in doubt.
//! [check: a_rebuild_goes_on_beyond_what_cannot_be_read]
//!
//! Checks and repairs rewrite ranges that logs name and the other members can supply. A quiet check
//! of those ranges alone does this too, when a member has been filled
//! [check: what_is_named_is_made_again_when_a_member_is_filled]. The rewrite removes the ranges
//! from the log; such a job is over when the logs record the removal
//! [check: a_check_is_over_when_logs_say_what_it_did].
//!
//! If the other members cannot supply ranges that logs name, an operator can ask for a retry in
//! spite of the logs. The retry goes sector by sector ([`crate::work::Task::Retry`])
//! [check: what_logs_name_in_vain_is_tried_and_named_no_more].
//!
//! Checks and repairs report findings one by one up to a limit, and count the rest.
//!
//! Resync comes before recovery: while redundancy does not agree, a member that is computed from it
//! may be wrong. Recovery of missing members comes before replacement of present ones.

mod allowance;
mod context;
mod cursor;
mod decide;
mod job;
mod machine;
mod upkeep;

pub(super) use allowance::RemainingAllowance;
pub use allowance::{ClassFlow, JobAllowance, JobFlow};
pub(super) use context::JobsContext;
pub(super) use decide::{Action as JobAction, decide as decide_job};
pub(super) use machine::{Jobs, SavedProgress, UnmadeSector};
pub(super) use upkeep::{Action as UpkeepAction, Facts as UpkeepFacts, decide as decide_upkeep};

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Makes redundancy agree after an unclean stop, or after the array's creation.
    Resync,
    /// Computes the missing data of new members.
    Recovery,
    /// Copies members to their replacements. Sectors that cannot be read are computed from the
    /// other members.
    Replace,
    /// Reads all sectors and reports where redundancy does not agree, with the wrong member if it
    /// is known. Writes only sectors that are unreadable or in bad-block logs.
    Check,
    /// A check that also rewrites, from the other members, sectors that are known to be wrong.
    Repair,
    /// Moves the array's data to another shape. Progress counts sectors of the array.
    Reshape,
}

impl JobKind {
    /// Whether the job is a check or a repair, which an operator asks for.
    #[must_use]
    pub const fn is_check(self) -> bool {
        matches!(self, Self::Check | Self::Repair)
    }
}

/// The way in which a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// The job reached its end.
    Completed,
    /// An operator ended the job, or the array stops or takes no writes. The next job continues
    /// from this job's offset.
    Interrupted,
    /// The job's target member is lost, or no longer wanted.
    TargetLost,
    /// A range could not be computed, and the log of a member that lacks the range is full.
    Unreadable,
    /// A member failed a write, and yet is not lost: its file system was full.
    Unwritten,
}

/// The progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// The job's kind.
    pub kind: JobKind,
    /// The job's offset when it began, in the job's own unit (see the module's table).
    pub from: u64,
    /// The offset below which the job is done.
    pub done: u64,
    /// The offset at which the job is complete.
    pub end: u64,
    /// Sectors that differed so far, in parity or in copies.
    pub differing: u64,
    /// Sectors written to members so far.
    pub written: u64,
    /// Sectors found wrong so far whose wrong member is known.
    pub located: u64,
    /// Sectors of `located` that were rewritten, and verified.
    pub repaired: u64,
    /// Sectors found wrong so far whose wrong member is unknown.
    pub ambiguous: u64,
    /// Sectors so far that could neither be read nor computed, over all filled members: logs name
    /// them.
    pub unmade: u64,
    /// Sectors in bad-block logs, over all members, when the job last looked.
    pub named: u64,
    /// The job retries ranges that bad-block logs name and the other members cannot supply.
    pub retries: bool,
    /// The job is paused.
    pub paused: bool,
}

/// An operator's request about jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRequest {
    /// Check the whole array, once no other job is left.
    Check,
    /// Check, and rewrite sectors known to be wrong. A repair replaces a check, and a check
    /// replaces a repair.
    Repair,
    /// Check the whole array, and retry ranges that bad-block logs name and the other members
    /// cannot supply. Sectors that can be read and agree leave the logs. Replaces a check or a
    /// repair.
    RetryBad,
    /// End the check or repair that waits or runs.
    EndCheck,
    /// Let no job begin or continue until [`JobRequest::Resume`].
    Pause,
    /// Let jobs continue, and try a failed job again.
    Resume,
}
