//! Decides the next step of a job: a pure table from facts to one action.
//!
//! | job | goes on | work out | more | allowed | at the end | to save  | saving | action | what ends a Wait               |
//! |-----|---------|----------|------|---------|------------|----------|--------|--------|--------------------------------|
//! | no  |         |          |      |         |            |          |        | Begin  | (if one is due, else Wait: something amiss) |
//! | yes | no      | yes      |      |         |            |          |        | Wait   | the shards                     |
//! | yes | no      | no       |      |         |            |          | yes    | Wait   | the flush                      |
//! | yes | no      | no       |      |         |            | yes      | no     | Save   |                                |
//! | yes | no      | no       |      |         |            | no       | no     | End    |                                |
//! | yes | yes     |          | yes  | yes     |            |          |        | Ask    |                                |
//! | yes | yes     |          |      |         |            |          | yes    | Wait   | the flush                      |
//! | yes | yes     |          | no   |         | yes        | yes      | no     | Save   |                                |
//! | yes | yes     |          | no   |         | yes, logs are behind | no | no | Wait   | the logs                       |
//! | yes | yes     |          | no   |         | yes        | no       | no     | End    |                                |
//! | yes | yes     |          |      |         | no         | yes, due | no     | Save   |                                |
//! | yes | yes     |          | yes  | no      |            |          | no     | Wait   | the next allowance, the shards, the clock |
//! | yes | yes     |          | no   |         |            |          | no     | Wait   | the shards, the clock          |
//!
//! The first row that fits is taken. [check: the_table_is_total]

/// The job at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Facts {
    /// Something is to be done, and may be.
    pub(in super::super) is_due: bool,
    /// A job is there.
    pub(in super::super) is_there: bool,
    /// It still is what is to be done, and may be.
    pub(in super::super) goes_on: bool,
    /// Shards have work of it.
    pub(in super::super) is_out: bool,
    /// More work is due, and shards have room for it.
    pub(in super::super) has_more: bool,
    /// Some of it may be asked for now ([`super::JobAllowance`]).
    pub(in super::super) is_allowed: bool,
    /// All of it is done.
    pub(in super::super) is_over: bool,
    /// It has written what bad-block logs name, or could not write, and they do not say so yet.
    pub(in super::super) awaits_logs: bool,
    /// The job has progress to save.
    pub(in super::super) has_unsaved: bool,
    /// The last time is long enough ago.
    pub(in super::super) save_is_due: bool,
    /// A flush for it is wanted or under way, or superblocks do not say yet what it flushed.
    pub(in super::super) is_saving: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Action {
    /// An event will come.
    #[default]
    Wait,
    /// Make a job of what is to be done.
    Begin,
    /// Ask shards for more.
    Ask,
    /// Have members flushed, and superblocks say how far it is.
    Save,
    /// It is no more.
    End,
}

/// The table.
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
                    // No room, nothing allowed, or not yet time to save: the next allowance, the
                    // clock, or a person who paused it.
                    let later = facts.goes_on && !facts.is_over;
                    assert!(is_nothing || others || later, "nothing ends it: {facts:?}");
                }
            }
        });
    }
}
