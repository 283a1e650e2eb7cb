//! Jobs in the words of the API: kinds, results, pace and findings.

use braid_control::model::{self, FoundFate, FoundKind, FoundRun};
use braid_geometry::SECTOR_BYTES;
use braid_runtime::{Fate, Finding, GovernorState, JobEnd, JobKind, MemberId, Phase, RotKind};

pub(crate) fn model_kind(kind: JobKind) -> model::JobKind {
    match kind {
        JobKind::Resync => model::JobKind::Resync,
        JobKind::Recovery => model::JobKind::Recovery,
        JobKind::Replace => model::JobKind::Replace,
        JobKind::Check | JobKind::Repair => model::JobKind::Check,
        JobKind::Reshape => model::JobKind::Reshape,
    }
}

pub(crate) fn result(end: JobEnd) -> model::JobResult {
    match end {
        JobEnd::Completed => model::JobResult::Completed,
        JobEnd::Interrupted => model::JobResult::Interrupted,
        JobEnd::TargetLost => model::JobResult::TargetLost,
        JobEnd::Unreadable => model::JobResult::Unreadable,
        JobEnd::Unwritten => model::JobResult::Unwritten,
    }
}

/// A job's pace against clients, in the API's type.
pub(crate) fn pace(look: &GovernorState) -> model::JobPace {
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

/// A run of differing sectors, in the API's type.
pub fn run(found: &Finding, label: impl Fn(MemberId) -> String) -> FoundRun {
    let bytes = |sectors: u64| sectors * SECTOR_BYTES;
    match *found {
        Finding::Rot { member, slot, start, sectors, kind, fate } => FoundRun {
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
        Finding::Ambiguous { start, sectors, array, candidates } => FoundRun {
            kind: FoundKind::Unknown,
            slot: None,
            member: None,
            candidate_slots: candidates.named().iter().map(|slot| slot.0).collect(),
            member_offset_bytes: bytes(start.0),
            array_offset_bytes: array.map(|at| bytes(at.0)),
            length_bytes: bytes(u64::from(sectors)),
            fate: FoundFate::Left,
        },
        Finding::Lost { array, sectors } => FoundRun {
            kind: FoundKind::Data,
            slot: None,
            member: None,
            candidate_slots: Vec::new(),
            // Gives no offset on a member: in another shape or after another write, the sectors may
            // lie on another member.
            member_offset_bytes: 0,
            array_offset_bytes: Some(bytes(array.0)),
            length_bytes: bytes(sectors),
            fate: FoundFate::Lost,
        },
    }
}
