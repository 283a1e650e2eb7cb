//! Decides the next step of the work on a run: a pure table from facts to one action.
//!
//! | outstanding | range      | phase    |                              | action  | what ends a Wait              |
//! |-------------|------------|----------|------------------------------|---------|-------------------------------|
//! | yes         |            |          |                              | Wait    | the member or the computation |
//! | no          | not asked  |          |                              | Lock    |                               |
//! | no          | waited for |          |                              | Wait    | those that hold the range     |
//! | no          | held       |          | a member left that had some  | LeaveOff |                              |
//! | no          | held       | Read     | copies are to be read        | Read    |                               |
//! | no          | held       | Read     | the believed one failed      | Halve   |                               |
//! | no          | held       | Read     | none can be read             | Refuse  |                               |
//! | no          | held       | Read     | two or more were read        | Compare |                               |
//! | no          | held       | Read     |                              | Write   |                               |
//! | no          | held       | Compared |                              | Write   |                               |
//! | no          | held       | Written  | wrong ones were written      | Look    |                               |
//! | no          | held       | Written  |                              | Next    |                               |
//!
//! The first row that fits is taken. [check: the_table_is_total]

use super::super::decide::Range;

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Copies are being read.
    Read,
    /// They were compared.
    Compared,
    /// Lacking copies were written.
    Written,
}

/// The state of the copies to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// One or more are to be read.
    Lacking,
    /// A part of the one that is believed cannot be read, and another part may be.
    Divisible,
    /// None can be read.
    Unreadable,
    /// One was, and the others need no look.
    One,
    /// They are to be compared.
    Several,
}

/// The work at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Requests or a computation are out.
    pub(super) outstanding: bool,
    /// A member left that was asked something for it, and may still use its blocks.
    pub(super) left: bool,
    pub(super) range: Range,
    pub(super) phase: Phase,
    /// Only meaningful in [`Phase::Read`].
    pub(super) copies: Copies,
    /// Copies that were wrong have been written, and not been looked at since. Only meaningful in
    /// [`Phase::Written`].
    pub(super) to_look: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// An event will come.
    Wait,
    /// Take the range.
    Lock,
    /// Read the copies that are lacking.
    Read,
    /// End, to be asked for again: it has other blocks then.
    LeaveOff,
    /// Begin again with half of the run.
    Halve,
    /// Nothing can be made of it.
    Refuse,
    /// Find out which copies differ.
    Compare,
    /// Write the copies that differ or lack data, if any do.
    Write,
    /// Read all copies again, and compare.
    Look,
    /// Go on with the next run, or end.
    Next,
}

/// The table.
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
                    // Nothing is read, believed or changed that a client may be writing.
                    _ => assert!(!outstanding && range == Range::Locked, "{facts:?}"),
                }
            }
        }
    }
}
