//! Decides the next step of a job: a pure table from facts to one action.
//!
//! | job | on  | out | more | may | at end | save | saving | action | ends a Wait              |
//! |-----|-----|-----|------|-----|--------|------|--------|--------|--------------------------|
//! | no  |     |     |      |     |        |      |        | Begin  | (1)                      |
//! | yes | no  | yes |      |     |        |      |        | Wait   | the shards               |
//! | yes | no  | no  |      |     |        |      | yes    | Wait   | the flush                |
//! | yes | no  | no  |      |     |        | yes  | no     | Save   |                          |
//! | yes | no  | no  |      |     |        | no   | no     | End    |                          |
//! | yes | yes |     | yes  | yes |        |      |        | Ask    |                          |
//! | yes | yes |     |      |     |        |      | yes    | Wait   | the flush                |
//! | yes | yes |     | no   |     | yes    | yes  | no     | Save   |                          |
//! | yes | yes |     | no   |     | (2)    | no   | no     | Wait   | the logs                 |
//! | yes | yes |     | no   |     | yes    | no   | no     | End    |                          |
//! | yes | yes |     |      |     | no     | due  | no     | Save   |                          |
//! | yes | yes |     | yes  | no  |        |      | no     | Wait   | allowance, shards, clock |
//! | yes | yes |     | no   |     |        |      | no     | Wait   | shards, clock            |
//!
//! *On*: the job is still due and allowed. *Out*: shards have work of the job in flight. *May*: the
//! allowance is not used up. *Save*: there is progress to save; *due*: a save is due.
//!
//! - (1) Begin if a job is due. Otherwise Wait until a job is due.
//! - (2) The job is at its end, and bad-block logs lack its changes.
//!
//! The first row that fits is taken. [check: the_table_is_total]

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Facts {
    pub(in super::super) is_due: bool,
    pub(in super::super) is_there: bool,
    /// The job is still the due job, and allowed.
    pub(in super::super) goes_on: bool,
    /// Whether shards have work of the job in flight.
    pub(in super::super) is_out: bool,
    /// More work is due, and shards have room for it.
    pub(in super::super) has_more: bool,
    /// The allowance is not used up ([`super::JobAllowance`]).
    pub(in super::super) is_allowed: bool,
    pub(in super::super) is_over: bool,
    /// The job has written bad ranges that logs name, or failed to write them, and the logs do not
    /// record the change yet.
    pub(in super::super) awaits_logs: bool,
    /// The job has progress to save.
    pub(in super::super) has_unsaved: bool,
    /// Enough time has passed since the last save.
    pub(in super::super) save_is_due: bool,
    /// A flush for the job is wanted or in flight, or superblocks lack the flushed progress.
    pub(in super::super) is_saving: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Action {
    #[default]
    Wait,
    Begin,
    Ask,
    /// Flush members, and have superblocks record the job's progress.
    Save,
    End,
}

pub(in super::super) fn decide(facts: &Facts) -> Action {
    match *facts {
        Facts { is_there: false, is_due: true, .. } => Action::Begin,
        Facts { is_there: false, .. } => Action::Wait,
        Facts { goes_on: false, is_out: true, .. } => Action::Wait,
        Facts { goes_on: false, is_saving: true, .. } => Action::Wait,
        Facts { goes_on: false, has_unsaved: true, .. } => Action::Save,
        Facts { goes_on: false, .. } => Action::End,
        Facts { has_more: true, is_allowed: true, .. } => Action::Ask,
        Facts { is_saving: true, .. } => Action::Wait,
        Facts { is_over: true, has_unsaved: true, .. } => Action::Save,
        Facts { is_over: true, awaits_logs: true, .. } => Action::Wait,
        Facts { is_over: true, .. } => Action::End,
        Facts { has_unsaved: true, save_is_due: true, .. } => Action::Save,
        Facts { .. } => Action::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::product::{Axis, flags, product};

    #[test]
    fn the_table_is_total() {
        let flags: [Axis<'_, Facts>; 11] = flags![is_due is_there goes_on is_out has_more is_allowed
            is_over awaits_logs has_unsaved save_is_due is_saving];
        product(&flags, &mut |facts: &Facts| {
            match decide(facts) {
                Action::Begin => assert!(!facts.is_there && facts.is_due, "{facts:?}"),
                Action::Ask => {
                    assert!(facts.is_there && facts.goes_on && facts.has_more, "{facts:?}");
                    assert!(facts.is_allowed, "{facts:?}");
                }
                Action::Save => {
                    assert!(facts.has_unsaved && !facts.is_saving, "{facts:?}");
                    assert!(facts.goes_on || !facts.is_out, "{facts:?}");
                }
                Action::End => {
                    assert!(!facts.is_saving && !facts.has_unsaved, "{facts:?}");
                    assert!(facts.is_over && facts.goes_on || !facts.is_out, "{facts:?}");
                    assert!(!facts.goes_on || !facts.awaits_logs, "it says what is so: {facts:?}");
                }
                Action::Wait => {
                    let is_nothing = !facts.is_there && !facts.is_due;
                    let others = facts.is_out || facts.is_saving || facts.awaits_logs;
                    // The job has no room, no allowance, or no save due. The next allowance, the
                    // clock, or the operator who paused the job ends the wait.
                    let later = facts.goes_on && !facts.is_over;
                    assert!(is_nothing || others || later, "nothing ends it: {facts:?}");
                }
            }
        });
    }
}
