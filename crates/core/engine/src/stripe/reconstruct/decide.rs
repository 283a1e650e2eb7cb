//! The next action of a reconstructing read: a pure table from facts to one action.
//!
//! | outstanding | wanted | phase   | need       | final | action   |
//! |-------------|--------|---------|------------|-------|----------|
//! | yes         |        |         |            |       | Wait     |
//! | no          | no     | Compute | to repair  |       | Repair   |
//! | no          | no     |         |            |       | Release  |
//! | no          | yes    | Fill    | Reads      |       | Read     |
//! | no          | yes    | Fill    | Nothing    |       | Compute  |
//! | no          | yes    | Fill    | Less       |       | Divide   |
//! | no          | yes    | Fill    | Impossible | no    | Insist   |
//! | no          | yes    | Fill    | Impossible | yes   | Refuse   |
//! | no          | yes    | Compute | Columns    |       | Mend     |
//! | no          | yes    | Compute | Behind     |       | GiveWay  |
//! | no          | yes    | Compute | Writes     |       | Write    |
//! | no          | yes    | Compute | Nothing    |       | Answer   |
//! | no          | yes    | Write   | Look       |       | ReadAgain |
//! | no          | yes    | Write   |            |       | Answer   |
//!
//! The first line that fits wins. While a read waits, a member request or a computation is in
//! flight, whose end wakes the read. The names in the table are defined at `Phase`, `Need`,
//! `RemainingWork` and `Action`. Only background work computes parity, or writes before its answer:
//! a client's answer never waits for a repair. [check: the_table_is_total]

use super::super::plan::Need;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Reading the columns that the read needs.
    Fill,
    Compute,
    /// Rewriting unreadable sectors.
    Repair,
    /// Writing computed columns: background work only.
    Write,
}

/// The work that remains after a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingWork {
    Nothing,
    /// Columns are wrong or unreadable, and must be computed from the other columns.
    Columns,
    /// Columns must be computed from the other columns, but not yet: a batch that has begun, or
    /// another read that writes, may rely on the wrong columns.
    Behind,
    /// Members must be written.
    Writes,
    /// Repairs must be read again.
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Member requests or a computation are in flight.
    pub(super) outstanding: bool,
    /// A client or a job still waits for the read.
    pub(super) wanted: bool,
    pub(super) phase: Phase,
    pub(super) need: Need,
    /// For an answered read: unreadable sectors were solved for, and may be rewritten.
    pub(super) to_repair: bool,
    pub(super) rest: RemainingWork,
    /// No readable column is left out because its member sits out or is being written.
    pub(super) is_final: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Wait,
    Release,
    /// Rewrite unreadable sectors.
    Repair,
    Read,
    /// Solve for lost columns, and copy wanted sectors into the payload.
    Compute,
    /// Continue with the first block; the other blocks become a new read.
    Divide,
    /// Read from the columns' own members again, however long that takes.
    Insist,
    /// Compute wrong or unreadable columns from the other columns.
    Mend,
    /// Begin anew when the current batch is over, and then let no other batch begin.
    GiveWay,
    /// Read the whole band again, and compare.
    ReadAgain,
    /// Write computed columns to the members that lack them.
    Write,
    /// Answer: success.
    Answer,
    /// Answer: failure.
    Refuse,
}

/// The first line of [`decide`], which needs no other fact. Most events of a read only end one of
/// several requests, so callers check this line first.
pub(super) fn waits(outstanding: bool) -> Option<Action> {
    outstanding.then_some(Action::Wait)
}

pub(super) fn decide(facts: &Facts) -> Action {
    if let Some(wait) = waits(facts.outstanding) {
        return wait;
    }
    match *facts {
        Facts { wanted: false, phase: Phase::Compute, to_repair: true, .. } => Action::Repair,
        Facts { wanted: false, .. } => Action::Release,
        Facts { phase: Phase::Compute, rest: RemainingWork::Columns, .. } => Action::Mend,
        Facts { phase: Phase::Compute, rest: RemainingWork::Behind, .. } => Action::GiveWay,
        Facts { phase: Phase::Compute, rest: RemainingWork::Writes, .. } => Action::Write,
        Facts { phase: Phase::Write, rest: RemainingWork::Look, .. } => Action::ReadAgain,
        Facts { phase: Phase::Compute | Phase::Write | Phase::Repair, .. } => Action::Answer,
        Facts { need: Need::Reads, .. } => Action::Read,
        Facts { need: Need::Nothing, .. } => Action::Compute,
        Facts { need: Need::Less, .. } => Action::Divide,
        Facts { need: Need::Impossible, is_final: false, .. } => Action::Insist,
        Facts { need: Need::Impossible, is_final: true, .. } => Action::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_facts() -> impl Iterator<Item = Facts> {
        let needs = [Need::Nothing, Need::Reads, Need::Less, Need::Impossible];
        let phases = [Phase::Fill, Phase::Compute, Phase::Write, Phase::Repair];
        let rests = [
            RemainingWork::Nothing,
            RemainingWork::Columns,
            RemainingWork::Behind,
            RemainingWork::Writes,
            RemainingWork::Look,
        ];
        let cases = phases.into_iter().flat_map(move |phase| needs.map(|need| (phase, need)));
        let cases = cases.flat_map(move |(phase, need)| rests.map(|rest| (phase, need, rest)));
        cases.flat_map(|(phase, need, rest)| {
            (0..16).map(move |bits: u32| Facts {
                rest,
                outstanding: bits & 1 != 0,
                wanted: bits & 2 != 0,
                phase,
                need,
                is_final: bits & 4 != 0,
                to_repair: bits & 8 != 0,
            })
        })
    }

    #[test]
    fn the_table_is_total() {
        for facts in all_facts() {
            let action = decide(&facts);
            // A read that waits has a request or a computation in flight, whose end wakes it.
            assert_eq!(action == Action::Wait, facts.outstanding, "{facts:?}");
            if facts.outstanding {
                continue;
            }
            let is_over = matches!(action, Action::Release | Action::Repair);
            assert_eq!(is_over, !facts.wanted, "no client waits for a repair: {facts:?}");
            match action {
                Action::Wait | Action::Release => {}
                Action::Repair => {
                    let is_solved = facts.phase == Phase::Compute && facts.to_repair;
                    assert!(is_solved, "written again once, when it is known: {facts:?}");
                }
                Action::Answer => {
                    let is_written = matches!(facts.phase, Phase::Write | Phase::Repair)
                        && (facts.phase, facts.rest) != (Phase::Write, RemainingWork::Look);
                    let is_made = facts.phase == Phase::Compute
                        && matches!(facts.rest, RemainingWork::Nothing | RemainingWork::Look);
                    assert!(is_written || is_made, "all of it is done: {facts:?}");
                }
                Action::Mend | Action::Write => {
                    assert_eq!(facts.phase, Phase::Compute, "written once, when made: {facts:?}");
                    assert_ne!(facts.rest, RemainingWork::Behind, "not beside a batch: {facts:?}");
                }
                Action::GiveWay => {
                    let is_before =
                        facts.phase == Phase::Compute && facts.rest == RemainingWork::Behind;
                    assert!(is_before, "only as long as nothing is written: {facts:?}");
                }
                Action::ReadAgain => assert_eq!(facts.phase, Phase::Write, "{facts:?}"),
                Action::Refuse => {
                    // No read is refused if it could succeed in part, or in another way.
                    assert!(facts.is_final, "{facts:?}");
                    assert_eq!(facts.need, Need::Impossible, "{facts:?}");
                }
                Action::Read | Action::Compute | Action::Divide | Action::Insist => {
                    assert_eq!(facts.phase, Phase::Fill, "{facts:?}");
                }
            }
        }
    }
}
