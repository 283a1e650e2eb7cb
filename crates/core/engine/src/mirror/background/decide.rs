//! Decides the next step of the work on a run: a pure table from facts to one action.
//!
//! | out | range      | phase    |                             | action   | what ends a Wait    |
//! |-----|------------|----------|-----------------------------|----------|---------------------|
//! | yes |            |          |                             | Wait     | member, computation |
//! | no  | not asked  |          |                             | Lock     |                     |
//! | no  | waited for |          |                             | Wait     | those that hold it  |
//! | no  | held       |          | a member left that had some | LeaveOff |                     |
//! | no  | held       | Read     | copies are to be read       | Read     |                     |
//! | no  | held       | Read     | the believed one failed     | Halve    |                     |
//! | no  | held       | Read     | none can be read            | Refuse   |                     |
//! | no  | held       | Read     | two or more were read       | Compare  |                     |
//! | no  | held       | Read     |                             | Write    |                     |
//! | no  | held       | Compared |                             | Write    |                     |
//! | no  | held       | Written  | wrong ones were written     | Look     |                     |
//! | no  | held       | Written  |                             | Next     |                     |
//!
//! *Out*: the member or the computation is outstanding. *Hold it*: hold the range.
//!
//! The first row that fits is taken. [check: the_table_is_total]

use super::super::decide::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Read,
    Compared,
    /// The copies that lack data were written.
    Written,
}

/// The state of the copies to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// More copies must be read.
    Lacking,
    /// Part of the believed copy cannot be read; another part may be readable.
    Divisible,
    /// No copy can be read.
    Unreadable,
    /// One copy was read, and the other copies need no comparison.
    One,
    Several,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) outstanding: bool,
    /// A member left with requests of this work, and may still use the work's blocks.
    pub(super) left: bool,
    pub(super) range: Range,
    pub(super) phase: Phase,
    pub(super) copies: Copies,
    /// Whether wrong copies have been written, and not read again yet. Only meaningful in
    /// [`Phase::Written`].
    pub(super) to_look: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Wait,
    Lock,
    Read,
    /// End the work unfinished; its job repeats the work, with other blocks.
    LeaveOff,
    /// Begin again with half of the run.
    Halve,
    Refuse,
    Compare,
    /// Write the copies that differ or lack data, if any.
    Write,
    /// Read all copies again, and compare.
    Look,
    /// Continue with the next run, or end.
    Next,
}

pub(super) fn decide(facts: &Facts) -> Action {
    match *facts {
        Facts { outstanding: true, .. } => Action::Wait,
        Facts { range: Range::NotAsked, .. } => Action::Lock,
        Facts { range: Range::Waiting, .. } => Action::Wait,
        Facts { left: true, .. } => Action::LeaveOff,
        Facts { phase: Phase::Read, copies, .. } => match copies {
            Copies::Lacking => Action::Read,
            Copies::Divisible => Action::Halve,
            Copies::Unreadable => Action::Refuse,
            Copies::Several => Action::Compare,
            Copies::One => Action::Write,
        },
        Facts { phase: Phase::Compared, .. } => Action::Write,
        Facts { phase: Phase::Written, to_look: true, .. } => Action::Look,
        Facts { phase: Phase::Written, .. } => Action::Next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_total() {
        let ranges = [Range::NotAsked, Range::Waiting, Range::Locked];
        let phases = [Phase::Read, Phase::Compared, Phase::Written];
        let all =
            [Copies::Lacking, Copies::Divisible, Copies::Unreadable, Copies::One, Copies::Several];
        let pairs = ranges.into_iter().flat_map(|range| phases.map(|phase| (range, phase)));
        let cases = pairs.flat_map(|pair| all.map(|copies| (pair, copies)));
        for ((range, phase), copies) in cases {
            for bits in 0..8 {
                let (outstanding, to_look, left) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
                let facts = Facts { outstanding, left, range, phase, copies, to_look };
                match decide(&facts) {
                    Action::Wait => {
                        assert!(outstanding || range == Range::Waiting, "it is woken: {facts:?}");
                    }
                    Action::Lock => assert_eq!(range, Range::NotAsked, "asked once: {facts:?}"),
                    Action::Next => assert!(!to_look, "what was written is seen: {facts:?}"),
                    // A client may be writing a copy, so all these steps need the locked range.
                    _ => assert!(!outstanding && range == Range::Locked, "{facts:?}"),
                }
            }
        }
    }
}
