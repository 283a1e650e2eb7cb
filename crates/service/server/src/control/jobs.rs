//! Decides whether a running array accepts a job request, and the request's effect. The decision is
//! a pure table over the array's state.

use braid_control::model::{Job, JobEffect, JobKind, JobRequest, JobState};
use braid_runtime as runtime;

use crate::jobs::JobsSnapshot;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    pub(super) is_redundant: bool,
    pub(super) is_read_only: bool,
    /// More members are lost than the level tolerates.
    pub(super) has_failed: bool,
    /// Slots without a member.
    pub(super) missing_count: usize,
    /// A member in a slot is being recovered.
    pub(super) is_recovering: bool,
    /// A member is being replaced.
    pub(super) is_replacing: bool,
    /// The redundancy does not agree with the data everywhere.
    pub(super) is_dirty: bool,
}

/// The reason why the array refuses a job request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Not {
    Redundant,
    Writable,
    Alive,
    Whole,
    /// Jobs are paused.
    GoingOn,
    /// The check that runs or waits does less than the request needs.
    Unchecked,
    /// The array needs this job first, and its last attempt failed.
    Finished(JobKind),
}

/// Converts the request to the engine's type.
pub(super) fn handed_on(request: JobRequest) -> runtime::JobRequest {
    match request {
        JobRequest::Check => runtime::JobRequest::Check,
        JobRequest::Repair => runtime::JobRequest::Repair,
        JobRequest::RetryBad => runtime::JobRequest::RetryBad,
        JobRequest::EndCheck => runtime::JobRequest::EndCheck,
        JobRequest::Pause => runtime::JobRequest::Pause,
        JobRequest::Resume => runtime::JobRequest::Resume,
    }
}

/// Decides the effect of a job request.
pub(super) fn decide(
    ground: Ground,
    snapshot: &JobsSnapshot,
    request: JobRequest,
) -> Result<JobEffect, Not> {
    let check = snapshot.jobs.iter().find(|job| job.kind == JobKind::Check);
    let refused = refused(ground, snapshot);
    if !ground.is_redundant {
        return Err(Not::Redundant);
    }
    if ground.is_read_only {
        return Err(Not::Writable);
    }
    match request {
        JobRequest::Pause if snapshot.is_paused => Ok(JobEffect::Nothing),
        JobRequest::Pause => Ok(JobEffect::Pauses),
        JobRequest::Resume if refused.is_some() => Ok(JobEffect::TriesAgain),
        JobRequest::Resume if snapshot.is_paused => Ok(JobEffect::Resumes),
        JobRequest::Resume => Ok(JobEffect::Nothing),
        JobRequest::EndCheck if check.is_some() => Ok(JobEffect::Ends),
        JobRequest::EndCheck => Ok(JobEffect::Nothing),
        JobRequest::Check | JobRequest::Repair | JobRequest::RetryBad => {
            begun(ground, snapshot, (check, request), refused)
        }
    }
}

/// The effect of a check or a repair request.
fn begun(
    ground: Ground,
    snapshot: &JobsSnapshot,
    (check, request): (Option<&Job>, JobRequest),
    refused: Option<JobKind>,
) -> Result<JobEffect, Not> {
    let is_less = |check: &Job| match request {
        JobRequest::Repair => !check.found.repairs,
        JobRequest::RetryBad => !check.found.retries_bad,
        _ => false,
    };
    let fills = ground.is_recovering || ground.is_replacing;
    let will_wait = ground.is_dirty || fills || is_busy(&snapshot.jobs);
    match (refused, check) {
        _ if ground.has_failed => Err(Not::Alive),
        _ if ground.missing_count > 0 => Err(Not::Whole),
        (Some(kind), _) => Err(Not::Finished(kind)),
        _ if snapshot.is_paused => Err(Not::GoingOn),
        // While a plain check runs, a repair is refused: it would interrupt the check, for whose
        // end a client may wait.
        (None, Some(check)) if is_less(check) => Err(Not::Unchecked),
        (None, Some(_)) => Ok(JobEffect::Nothing),
        (None, None) if will_wait => Ok(JobEffect::Waits),
        (None, None) => Ok(JobEffect::Begins),
    }
}

fn is_busy(jobs: &[Job]) -> bool {
    jobs.iter().any(|job| job.state != JobState::Waiting)
}

/// The job that the array needs, if the job's last attempt failed.
fn refused(ground: Ground, snapshot: &JobsSnapshot) -> Option<JobKind> {
    let is_refused = |kind: JobKind| {
        let last = snapshot.last.iter().find(|last| last.kind == kind);
        last.is_some_and(|last| last.result.is_refused())
            && !snapshot.jobs.iter().any(|job| job.kind == kind)
    };
    let wanted = [
        (ground.is_dirty, JobKind::Resync),
        (ground.is_recovering, JobKind::Recovery),
        (ground.is_replacing, JobKind::Replace),
    ];
    wanted.into_iter().find(|(is_wanted, kind)| *is_wanted && is_refused(*kind)).map(|one| one.1)
}

/// The refusal's error, for an array that commands name by `word`.
pub(super) fn refusal(not: Not, request: JobRequest, name: &str, word: &str) -> CliError {
    let asked = match request {
        JobRequest::Check => format!("{name} cannot be checked"),
        JobRequest::Repair => format!("{name} cannot be repaired"),
        JobRequest::RetryBad => format!("bad blocks of {name} cannot be tried"),
        JobRequest::EndCheck => format!("{name} has no check to end"),
        JobRequest::Pause => format!("{name} has no jobs to pause"),
        JobRequest::Resume => format!("{name} has no jobs to resume"),
    };
    let new = |code: Code, why: &str| CliError::new(code, asked.clone()).about(name).because(why);
    let look = ("See its state", format!("braid status {word}"));
    let (error, risk, (label, command)) = match not {
        Not::Redundant => {
            let why = "its level has neither copies nor parity to compare with or to rebuild from";
            (new(Code::NoRedundancy, why), Risk::Look, look)
        }
        Not::Writable => {
            let why = "it is served read-only, and jobs write to members and to superblocks";
            let stop = ("Stop it, and serve it without --read-only", format!("braid stop {word}"));
            (new(Code::ServedReadOnly, why), Risk::Change, stop)
        }
        Not::Alive => {
            let why = "more members are lost than its level tolerates";
            (new(Code::ArrayFailed, why), Risk::Look, look)
        }
        Not::Whole => {
            let why = "a member is missing: the data of the others has no copy to compare with";
            (new(Code::CheckDegraded, why), Risk::Look, look)
        }
        Not::GoingOn => {
            let why = "jobs are paused, so a check would not begin";
            let resume = ("Resume the jobs", format!("braid resume {word}"));
            (new(Code::JobsPaused, why), Risk::Change, resume)
        }
        Not::Unchecked => {
            let why = "another check runs or waits, and only one runs at a time";
            let wait = ("Wait until it is over", format!("braid wait {word} --for check"));
            (new(Code::CheckRuns, why), Risk::Look, wait)
        }
        Not::Finished(kind) => {
            let why = format!("its {} must finish first, and failed", kind.word());
            let again = ("Try it again", format!("braid rebuild {word}"));
            (new(Code::JobRefused, &why), Risk::Change, again)
        }
    };
    error.remedy(risk, label, command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::model::{Found, JobResult, LastJob};

    const WHOLE: Ground = Ground {
        is_redundant: true,
        is_read_only: false,
        has_failed: false,
        missing_count: 0,
        is_recovering: false,
        is_replacing: false,
        is_dirty: false,
    };

    fn snapshot(
        jobs: &[(JobKind, JobState)],
        refused: Option<JobKind>,
        is_paused: bool,
    ) -> JobsSnapshot {
        let job = |&(kind, state): &(JobKind, JobState)| Job {
            kind,
            state,
            from_bytes: 0,
            done_bytes: 0,
            total_bytes: 1,
            percent: 0.0,
            bytes_per_second: None,
            seconds_left: None,
            differing_sectors: 0,
            written_sectors: 0,
            unmade_sectors: 0,
            named_sectors: 0,
            found: Found::default(),
        };
        let last = |kind: JobKind| LastJob {
            number: 1,
            kind,
            result: JobResult::Unreadable,
            began: String::new(),
            ended: String::new(),
            took_ms: 0,
            from_bytes: 0,
            done_bytes: 0,
            total_bytes: 1,
            differing_sectors: 0,
            written_sectors: 0,
            unmade_sectors: 0,
            named_sectors: 0,
            found: Found::default(),
        };
        let last = refused.into_iter().map(last).collect();
        JobsSnapshot { jobs: jobs.iter().map(job).collect(), last, is_paused }
    }

    #[test]
    fn each_request_has_its_effect_or_its_reason() {
        use JobKind::{Check, Recovery, Resync};
        use JobRequest as Ask;
        use JobState::{Running, Waiting};
        let idle = snapshot(&[], None, false);
        let paused = snapshot(&[], None, true);
        let checking = snapshot(&[(Check, Running)], None, false);
        let mut repairing = checking.clone();
        repairing.jobs[0].found.repairs = true;
        let mut retrying = checking.clone();
        retrying.jobs[0].found.retries_bad = true;
        let busy = snapshot(&[(Recovery, Running)], None, false);
        let behind = snapshot(&[(Recovery, Running), (Check, Waiting)], None, false);
        let refused = snapshot(&[], Some(Resync), false);
        let dirty = Ground { is_dirty: true, ..WHOLE };
        let degraded = Ground { missing_count: 1, ..WHOLE };
        let recovering = Ground { is_recovering: true, ..WHOLE };
        for (ground, snapshot, request, expected) in [
            (WHOLE, &idle, Ask::Check, Ok(JobEffect::Begins)),
            (WHOLE, &checking, Ask::Check, Ok(JobEffect::Nothing)),
            (WHOLE, &idle, Ask::Repair, Ok(JobEffect::Begins)),
            (WHOLE, &checking, Ask::Repair, Err(Not::Unchecked)),
            (WHOLE, &repairing, Ask::Repair, Ok(JobEffect::Nothing)),
            (WHOLE, &repairing, Ask::Check, Ok(JobEffect::Nothing)),
            (WHOLE, &idle, Ask::RetryBad, Ok(JobEffect::Begins)),
            (WHOLE, &checking, Ask::RetryBad, Err(Not::Unchecked)),
            (WHOLE, &repairing, Ask::RetryBad, Err(Not::Unchecked)),
            (WHOLE, &retrying, Ask::RetryBad, Ok(JobEffect::Nothing)),
            (WHOLE, &retrying, Ask::Repair, Err(Not::Unchecked)),
            (degraded, &idle, Ask::Repair, Err(Not::Whole)),
            (recovering, &busy, Ask::Check, Ok(JobEffect::Waits)),
            (recovering, &behind, Ask::Check, Ok(JobEffect::Nothing)),
            (dirty, &idle, Ask::Check, Ok(JobEffect::Waits)),
            (dirty, &refused, Ask::Check, Err(Not::Finished(Resync))),
            // The last resync failed, but the array no longer needs a resync.
            (WHOLE, &refused, Ask::Check, Ok(JobEffect::Begins)),
            (WHOLE, &paused, Ask::Check, Err(Not::GoingOn)),
            (degraded, &idle, Ask::Check, Err(Not::Whole)),
            (Ground { has_failed: true, ..degraded }, &idle, Ask::Check, Err(Not::Alive)),
            (Ground { is_read_only: true, ..WHOLE }, &idle, Ask::Check, Err(Not::Writable)),
            (Ground { is_redundant: false, ..WHOLE }, &idle, Ask::Pause, Err(Not::Redundant)),
            (WHOLE, &idle, Ask::EndCheck, Ok(JobEffect::Nothing)),
            (WHOLE, &behind, Ask::EndCheck, Ok(JobEffect::Ends)),
            (WHOLE, &idle, Ask::Pause, Ok(JobEffect::Pauses)),
            (WHOLE, &paused, Ask::Pause, Ok(JobEffect::Nothing)),
            (WHOLE, &paused, Ask::Resume, Ok(JobEffect::Resumes)),
            (WHOLE, &idle, Ask::Resume, Ok(JobEffect::Nothing)),
            (dirty, &refused, Ask::Resume, Ok(JobEffect::TriesAgain)),
        ] {
            assert_eq!(
                decide(ground, snapshot, request),
                expected,
                "{ground:?} {snapshot:?} {request:?}"
            );
        }
    }
}
