//! Jobs as words: what one is, how far it is, and how it ended.

use braid_control::model;
use braid_geometry::SECTOR_BYTES;
use braid_runtime::{JobEnd, JobKind, JobProgress, Look, Phase};
use serde_json::{Value, json};

use crate::output::size::format_size;

/// The kind, as the API has it.
pub(crate) fn model_kind(kind: JobKind) -> model::JobKind {
    match kind {
        JobKind::Resync => model::JobKind::Resync,
        JobKind::Recovery => model::JobKind::Recovery,
        JobKind::Check => model::JobKind::Check,
    }
}

/// How it ended, as the API has it.
pub(crate) fn result(end: JobEnd) -> model::JobResult {
    match end {
        JobEnd::Completed => model::JobResult::Completed,
        JobEnd::Interrupted => model::JobResult::Interrupted,
        JobEnd::TargetLost => model::JobResult::TargetLost,
        JobEnd::Unreadable => model::JobResult::Unreadable,
        JobEnd::Unwritten => model::JobResult::Unwritten,
    }
}

/// How it gives way to clients, as the API has it.
pub(crate) fn pace(look: &Look) -> model::JobPace {
    model::JobPace {
        phase: match look.phase {
            Phase::Idle => model::PacePhase::Idle,
            Phase::Shared => model::PacePhase::Shared,
            Phase::Probe => model::PacePhase::Probe,
        },
        allowance_bytes: look.allowance_bytes,
        in_flight_bytes: look.in_flight_bytes,
        alone_p99_ns: look.alone_p99_ns,
        target_p99_ns: look.target_ns,
    }
}

/// For programs. Sectors as md counts them: of a member, or of the array where copies of RAID-10 are compared.
pub(crate) fn facts(progress: &JobProgress) -> Value {
    json!({
        "job": model_kind(progress.kind).word(),
        "done_sectors": progress.done,
        "total_sectors": progress.end,
        "differing_sectors": progress.differing,
        "written_sectors": progress.written,
        "paused": progress.paused,
    })
}

/// What a person reads when one begins.
pub(crate) fn began(progress: &JobProgress, name: &str) -> String {
    let from = match progress.from {
        0 => String::new(),
        from => format!(", from {} on", format_size(from * SECTOR_BYTES)),
    };
    match progress.kind {
        JobKind::Resync => format!(
            "{name} was not stopped cleanly, or is new: its redundancy is made to agree with its data again{from}"
        ),
        JobKind::Recovery => {
            format!(
                "a member of {name} does not hold all it should: it is recovered from the others{from}"
            )
        }
        JobKind::Check => format!("{name} is checked: all of it is read and compared"),
    }
}

/// What a person reads when one ends, and whether that is well.
pub(crate) fn ended(progress: &JobProgress, end: JobEnd, name: &str) -> (bool, String) {
    let kind = model_kind(progress.kind).word();
    let text = match (progress.kind, end) {
        (JobKind::Check, JobEnd::Completed) if progress.differing > 0 => {
            let differing = progress.differing;
            return (
                false,
                format!(
                    "the check of {name} is over: {differing} sectors of redundancy do not agree"
                ),
            );
        }
        (JobKind::Check, JobEnd::Completed) => {
            format!("the check of {name} is over: everything agrees")
        }
        (_, JobEnd::Completed) => format!("the {kind} of {name} is over"),
        (_, JobEnd::Interrupted) => {
            format!("the {kind} of {name} ends for now, and goes on where it was")
        }
        (_, JobEnd::TargetLost) => {
            return (
                false,
                format!("the {kind} of {name} ends: the member that it was for is lost"),
            );
        }
        (_, JobEnd::Unreadable) => {
            let at = format_size(progress.done * SECTOR_BYTES);
            return (
                false,
                format!(
                    "the {kind} of {name} cannot go on at {at}: more is unreadable there than the level can make up for; \
                     what was done stays done"
                ),
            );
        }
        (_, JobEnd::Unwritten) => {
            let text =
                format!("the {kind} of {name} cannot go on: there is no space below a member");
            return (false, text);
        }
    };
    (true, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_finds_something_is_not_well() {
        let progress = |differing| JobProgress {
            kind: JobKind::Check,
            from: 0,
            done: 80,
            end: 80,
            differing,
            written: 0,
            paused: false,
        };
        let (is_well, text) = ended(&progress(0), JobEnd::Completed, "tank");
        assert!(is_well && text.contains("everything agrees"), "{text}");
        let (is_well, text) = ended(&progress(3), JobEnd::Completed, "tank");
        assert!(!is_well && text.contains("3 sectors"), "{text}");
    }
}
