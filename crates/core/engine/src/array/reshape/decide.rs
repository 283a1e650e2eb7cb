//! Decides the next step of a reshape, from a table of facts. The first row that fits is taken.
//! [check: the_table_has_an_end_for_each_wait]
//!
//! | stage      | action  | when                          | a Wait ends with              |
//! |------------|---------|-------------------------------|-------------------------------|
//! | rest       | Hold    | it goes on, and is allowed    | allowance, operator, members  |
//! | rest       | End     | no window is left             |                               |
//! | passing    | Wait    |                               | earlier requests end          |
//! | passed     | Flush   |                               |                               |
//! | flushing   | Wait    |                               | the flush                     |
//! | keeping    | Wait    |                               | the copy is durable           |
//! | moving     | Move    | a piece is left, none failed  | pieces                        |
//! | moving     | GiveUp  | a piece failed, none is out   |                               |
//! | moving     | Flush   | all pieces are moved          |                               |
//! | flushed    | GiveUp  | lost, the array is broken     |                               |
//! | flushed    | Name    | lost sectors have no names    | logs drop what was overwritten|
//! | flushed    | Record  | each lost sector is named     |                               |
//! | naming     | GiveUp  | the array is broken           |                               |
//! | naming     | Flush   | superblocks and logs say so   | logs, superblocks             |
//! | recording  | Release | superblocks have the position | superblocks                   |
//! | recording  | GiveUp  | the array is broken           |                               |
//!
//! A window that has begun is completed, even if the allowance is used up or an operator pauses the
//! reshape: clients wait for the window.
//!
//! The flush after *naming* is a round trip through all shards: from then on each shard has the
//! names of the lost sectors, and reads none of them.

use crate::array::order::Turn;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Stage {
    /// No window moves.
    #[default]
    Rest,
    /// New writes to the window wait; earlier requests still run.
    Passing,
    Passed,
    /// Members receive and flush the acknowledged writes, before the window moves.
    FlushingBefore,
    /// The driver makes a copy of the window.
    Keeping,
    Moving,
    /// Members flush the moved sectors.
    FlushingAfter,
    Flushed,
    /// Bad-block logs must name the lost sectors of the window.
    Naming,
    /// Superblocks must record the reshape's new position.
    Recording,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) struct Facts {
    pub(in crate::array) stage: Stage,
    /// Whether the reshape may continue: the array takes writes, superblocks record every loss, and
    /// no operator has paused or stopped the array.
    pub(in crate::array) goes_on: bool,
    pub(in crate::array) is_allowed: bool,
    /// Whether all sectors have moved, and superblocks record that.
    pub(in crate::array) is_over: bool,
    /// Whether the reshape's end was reported.
    pub(in crate::array) is_ended: bool,
    /// Whether a piece of the window is left, and fewer than the most pieces are in flight.
    pub(in crate::array) has_more: bool,
    pub(in crate::array) is_out: bool,
    /// Whether a step of the window failed.
    pub(in crate::array) has_failed: bool,
    /// Whether the window has lost sectors that no bad-block log names yet.
    pub(in crate::array) has_unnamed: bool,
    /// Whether every bad-block log names durably what it must name.
    pub(in crate::array) is_named: bool,
    /// Whether superblocks record every change.
    pub(in crate::array) is_recorded: bool,
    /// The array is broken: superblocks get no more changes.
    pub(in crate::array) is_broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// Choose a window, and let its writes wait.
    Hold,
    /// Flush members, as for a client's flush.
    Flush,
    /// Move the next piece of the window.
    Move,
    /// Have bad-block logs name the lost sectors of the window.
    Name,
    /// Have superblocks record the position after the window.
    Record,
    /// Move the border beyond the window, and let the waiting writes begin.
    Release,
    /// Give the failed window up: the waiting writes begin in the old shape.
    GiveUp,
    /// Report the reshape's end.
    End,
}

pub(in crate::array) fn decide(facts: &Facts) -> Option<(Turn, Action)> {
    let Facts { goes_on, is_allowed, is_over, is_ended, has_more, is_out, has_failed, .. } = *facts;
    let action = match facts.stage {
        Stage::Rest if is_over && !is_ended && goes_on => Some(Action::End),
        Stage::Rest if goes_on && is_allowed && !is_over => Some(Action::Hold),
        Stage::Passed => Some(Action::Flush),
        Stage::Moving if has_more && !has_failed => Some(Action::Move),
        Stage::Moving if is_out => None,
        _ if has_failed => Some(Action::GiveUp),
        Stage::Moving => Some(Action::Flush),
        Stage::Flushed if !facts.has_unnamed => Some(Action::Record),
        Stage::Flushed | Stage::Naming if facts.is_broken => Some(Action::GiveUp),
        Stage::Flushed if facts.is_named => Some(Action::Name),
        Stage::Naming if facts.is_named && facts.is_recorded => Some(Action::Flush),
        Stage::Recording if facts.is_recorded => Some(Action::Release),
        Stage::Recording if facts.is_broken => Some(Action::GiveUp),
        _ => None,
    };
    let turn = match facts.stage {
        Stage::Rest => Turn::Work,
        _ => Turn::Serve,
    };
    action.map(|action| (turn, action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::product::{Axis, flags, product};

    const STAGES: [Stage; 10] = [
        Stage::Rest,
        Stage::Passing,
        Stage::Passed,
        Stage::FlushingBefore,
        Stage::Keeping,
        Stage::Moving,
        Stage::FlushingAfter,
        Stage::Flushed,
        Stage::Naming,
        Stage::Recording,
    ];

    #[test]
    fn the_table_has_an_end_for_each_wait() {
        let axes: [Axis<'_, Facts>; 11] = flags![goes_on is_allowed is_over is_ended has_more is_out
            has_failed has_unnamed is_named is_recorded is_broken];
        for stage in STAGES {
            product(&axes, &mut |facts: &Facts| {
                let facts = Facts { stage, ..*facts };
                let action = decide(&facts).map(|(_, action)| action);
                match (stage, action) {
                    (Stage::Rest, None) => {
                        let rests = !facts.goes_on || !facts.is_allowed || facts.is_over;
                        assert!(rests, "{facts:?}");
                    }
                    // An event ends each stage's wait: requests, a flush, the copy, superblocks.
                    (
                        Stage::Passing
                        | Stage::FlushingBefore
                        | Stage::Keeping
                        | Stage::FlushingAfter,
                        None,
                    ) => assert!(!facts.has_failed, "{facts:?}"),
                    (Stage::Moving, None) => assert!(facts.is_out, "{facts:?}"),
                    (Stage::Flushed, None) => {
                        let waits = facts.has_unnamed && !facts.is_named;
                        assert!(waits && !facts.is_broken, "{facts:?}");
                    }
                    (Stage::Naming, None) => {
                        let waits = !facts.is_named || !facts.is_recorded;
                        assert!(waits && !facts.is_broken, "{facts:?}");
                    }
                    (Stage::Recording, None) => {
                        assert!(!facts.is_recorded && !facts.is_broken, "{facts:?}");
                    }
                    (_, None) => panic!("nothing ends it: {facts:?}"),
                    (_, Some(Action::Hold)) => assert!(facts.goes_on && !facts.is_over),
                    (_, Some(Action::Move)) => assert!(facts.has_more && !facts.has_failed),
                    (_, Some(Action::Record)) => {
                        assert!(!facts.has_failed && !facts.has_unnamed, "{facts:?}");
                    }
                    (_, Some(Action::Name)) => assert!(!facts.has_failed && facts.has_unnamed),
                    (_, Some(Action::Release)) => assert!(facts.is_recorded, "{facts:?}"),
                    (_, Some(Action::GiveUp)) => {
                        let waits =
                            matches!(stage, Stage::Flushed | Stage::Naming | Stage::Recording);
                        let is_unrecorded = waits && facts.is_broken;
                        assert!(facts.has_failed || is_unrecorded, "{facts:?}");
                        assert!(stage != Stage::Moving || !facts.is_out, "{facts:?}");
                    }
                    (_, Some(Action::Flush | Action::End)) => {}
                }
            });
        }
    }
}
