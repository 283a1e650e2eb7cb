//! Coverage: which states runs visited and which never. A state is the level, the number of missing
//! members, whether redundancy agrees, the phase between clean and active, and an action or fault.
//!
//! A visit is one line in the tally. [`never_visited`] compares the tally with the product of all
//! legal states, and so names each state that no run reached.
//!
//! Some states are not legal, and so not in the product:
//! - levels without redundancy with a member missing, dirty, or in another phase than active (they
//!   keep no intent);
//! - raid5 and raid6 dirty with a data column missing (refused), except with fixed parity;
//! - starts in another phase than clean.

mod world;

use std::collections::BTreeSet;

use braid_engine::array::Gate;
use braid_engine::request::Operation;
use braid_geometry::{Family, Level};

use crate::tally::Tally;

/// The array's phase, as its views report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Clean,
    Active,
    /// The gate is closed, and the superblocks do not say clean yet.
    Turning,
    Broken,
}

const PHASES: [Phase; 4] = [Phase::Clean, Phase::Active, Phase::Turning, Phase::Broken];

impl Phase {
    /// The phase after `self` once a view with this gate is published.
    pub(crate) fn after(self, gate: Gate) -> Self {
        match (self, gate) {
            (_, Gate::Open) => Self::Active,
            (_, Gate::Broken | Gate::ReadOnly) => Self::Broken,
            (Self::Active, Gate::Closed) => Self::Turning,
            (_, Gate::Closed) => Self::Clean,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Active => "active",
            Self::Turning => "turning",
            Self::Broken => "broken",
        }
    }
}

/// An action on an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayAction {
    Read,
    Write,
    Fua,
    Zero,
    Trim,
    Flush,
    Stop,
    PowerCut,
    Kill,
    Reopen,
}

const ACTIONS: [ArrayAction; 10] = [
    ArrayAction::Read,
    ArrayAction::Write,
    ArrayAction::Fua,
    ArrayAction::Zero,
    ArrayAction::Trim,
    ArrayAction::Flush,
    ArrayAction::Stop,
    ArrayAction::PowerCut,
    ArrayAction::Kill,
    ArrayAction::Reopen,
];

impl ArrayAction {
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write { durable: false } => Self::Write,
            Operation::Write { durable: true } => Self::Fua,
            Operation::WriteZeroes { .. } => Self::Zero,
            Operation::Trim => Self::Trim,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fua => "fua",
            Self::Zero => "zero",
            Self::Trim => "trim",
            Self::Flush => "flush",
            Self::Stop => "stop",
            Self::PowerCut => "power-cut",
            Self::Kill => "kill",
            Self::Reopen => "reopen",
        }
    }
}

/// Faults that can hit any array in any phase.
const MISHAPS: [&str; 7] = [
    "disk-dies",
    "disk-power-cut",
    "writes-fail",
    "flushes-fail",
    "superblocks-fail",
    "disk-stalls",
    "bad-sectors",
];

/// Every level, and how many missing members the simulator's arrays of that level tolerate.
const LEVELS: [(Level, usize); 7] = [
    (Level::Linear, 0),
    (Level::Raid0, 0),
    (Level::Raid1, 2),
    (Level::Raid4, 1),
    (Level::Raid5, 1),
    (Level::Raid6, 2),
    (Level::Raid10, 2),
];

/// After this many cycles a run has visited every legal state. Fewer cycles miss some by chance.
pub const CYCLES_FOR_ALL_STATES: u64 = 60_000;

fn name(level: Level, missing: usize, is_dirty: bool, phase: Phase, what: &str) -> String {
    let agrees = if is_dirty { "dirty" } else { "in-sync" };
    let phase = phase.name();
    format!("{level} missing={missing} {agrees} {phase} {what}")
}

/// The part of a state's name before the action.
fn place(state: &str) -> &str {
    state.rsplit_once(' ').map_or(state, |(place, _)| place)
}

/// The legal states that a tally has not visited.
#[must_use]
pub fn never_visited(tally: &Tally) -> Vec<String> {
    legal().into_iter().filter(|state| !tally.states.contains_key(state)).collect()
}

/// The number of legal states.
#[must_use]
pub fn legal_states() -> usize {
    legal().len()
}

/// The legal states, without their actions, in which no action of this tally happened.
#[must_use]
pub fn never_entered(tally: &Tally) -> BTreeSet<String> {
    let entered: BTreeSet<&str> = tally.states.keys().map(|state| place(state)).collect();
    let all = legal();
    let never = all.iter().map(|state| place(state)).filter(|place| !entered.contains(place));
    never.map(str::to_owned).collect()
}

fn legal() -> Vec<String> {
    let mut all = Vec::new();
    for (level, missing_max) in LEVELS {
        let is_direct = level.family() == Family::Direct;
        for missing in 0..=missing_max {
            for (is_dirty, phase) in [false, true].into_iter().flat_map(|d| PHASES.map(|p| (d, p)))
            {
                if is_direct && (is_dirty || phase != Phase::Active) {
                    continue;
                }
                let may_start = is_direct || phase == Phase::Clean;
                let actions =
                    ACTIONS.iter().filter(|action| may_start || **action != ArrayAction::Reopen);
                let whats = actions.map(|action| action.name()).chain(MISHAPS);
                all.extend(whats.map(|what| name(level, missing, is_dirty, phase, what)));
            }
        }
    }
    all
}
