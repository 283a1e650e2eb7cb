//! Jobs as words: what one is, how far it is, and how it ended.

use braid_control::model::{self, FoundFate, FoundKind, FoundRun};
use braid_geometry::SECTOR_BYTES;
use braid_runtime::{Fate, Found, JobEnd, JobKind, JobProgress, Look, MemberId, Phase, RotKind};
use serde_json::{Value, json};

use braid_console::output::size::format_size;

/// The kind, as the API has it.
pub(crate) fn model_kind(kind: JobKind) -> model::JobKind {
    match kind {
        JobKind::Resync => model::JobKind::Resync,
        JobKind::Recovery => model::JobKind::Recovery,
        JobKind::Replace => model::JobKind::Replace,
        JobKind::Check | JobKind::Repair => model::JobKind::Check,
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

/// A run that was found to be wrong, as the API has it.
pub fn run(found: &Found, label: impl Fn(MemberId) -> String) -> FoundRun {
    let bytes = |sectors: u64| sectors * SECTOR_BYTES;
    match *found {
        Found::Rot { member, slot, start, sectors, kind, fate } => FoundRun {
            kind: match kind {
                RotKind::Data(_) => FoundKind::Data,
                RotKind::P => FoundKind::P,
                RotKind::Q => FoundKind::Q,
            },
            slot: Some(slot.0),
            member: Some(label(member)),
            candidate_slots: Vec::new(),
            member_offset_bytes: bytes(start.0),
            array_offset_bytes: match kind {
                RotKind::Data(at) => Some(bytes(at.0)),
                RotKind::P | RotKind::Q => None,
            },
            length_bytes: bytes(u64::from(sectors)),
            fate: match fate {
                Fate::Left => FoundFate::Left,
                Fate::Unverified => FoundFate::Unverified,
                Fate::Repaired => FoundFate::Repaired,
            },
        },
        Found::Ambiguous { start, sectors, array, candidates } => FoundRun {
            kind: FoundKind::Unknown,
            slot: None,
            member: None,
            candidate_slots: candidates.named().iter().map(|slot| slot.0).collect(),
            member_offset_bytes: bytes(start.0),
            array_offset_bytes: array.map(|at| bytes(at.0)),
            length_bytes: bytes(u64::from(sectors)),
            fate: FoundFate::Left,
        },
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
        "repairs": progress.kind == JobKind::Repair,
        "located_sectors": progress.located,
        "repaired_sectors": progress.repaired,
        "ambiguous_sectors": progress.ambiguous,
        "unmade_sectors": progress.unmade,
        "named_sectors": progress.named,
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
        JobKind::Replace => {
            format!("a member of {name} is copied to the one that is to take its place{from}")
        }
        JobKind::Check => format!("{name} is checked: all of it is read and compared"),
        JobKind::Repair => format!(
            "{name} is checked and repaired: all of it is read and compared, and what is known to be wrong is written again"
        ),
    }
}

/// What a person reads when one ends, and whether that is well.
pub(crate) fn ended(progress: &JobProgress, end: JobEnd, name: &str) -> (bool, String) {
    let kind = match progress.kind {
        JobKind::Replace => "replacement",
        kind => model_kind(kind).word(),
    };
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
        (JobKind::Repair, JobEnd::Completed) if progress.differing > 0 => {
            let JobProgress { located, repaired, ambiguous, .. } = *progress;
            let text = format!(
                "the repair of {name} is over: {located} sectors were known to be wrong, {repaired} are repaired; {ambiguous} do not \
                 agree, and what is wrong there cannot be told"
            );
            return (repaired == located && ambiguous == 0, text);
        }
        (JobKind::Check | JobKind::Repair, JobEnd::Completed) if progress.named > 0 => {
            let text = format!(
                "the check of {name} is over: what could be read agrees; bad-block logs name {} sectors that the others cannot give, or \
                 that their members do not take",
                progress.named
            );
            return (false, text);
        }
        (JobKind::Check | JobKind::Repair, JobEnd::Completed) => {
            format!("the check of {name} is over: everything agrees")
        }
        (_, JobEnd::Completed) if progress.unmade > 0 => {
            let unmade = progress.unmade;
            let text = format!(
                "the {kind} of {name} is over; {unmade} sectors could not be made, since nobody holds them any more, and are noted as bad"
            );
            return (false, text);
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
                    "the {kind} of {name} cannot go on at {at}: more is unreadable there than the level can make up for, and \
                     the new member has no room to note that; what was done stays done"
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
            located: 0,
            repaired: 0,
            ambiguous: 0,
            unmade: 0,
            named: 0,
            retries: false,
            paused: false,
        };
        let (is_well, text) = ended(&progress(0), JobEnd::Completed, "tank");
        assert!(is_well && text.contains("everything agrees"), "{text}");
        let (is_well, text) = ended(&progress(3), JobEnd::Completed, "tank");
        assert!(!is_well && text.contains("3 sectors"), "{text}");
        let named = JobProgress { named: 9, ..progress(0) };
        let (is_well, text) = ended(&named, JobEnd::Completed, "tank");
        assert!(!is_well && text.contains("name 9 sectors"), "{text}");
    }
}
