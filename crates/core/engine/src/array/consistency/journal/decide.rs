//! Decides the next step of the journal: a pure table from facts to one action.
//!
//! | stage    | supers | asked | room | free | tight | action | what ends a Wait |
//! |----------|--------|-------|------|------|-------|--------|------------------|
//! | Written  |        |       |      |      |       | Grant  |                  |
//! | Rest     | yes    |       |      |      |       | Blank  |                  |
//! | Rest     | no     | yes   | yes  |      |       | Write  |                  |
//! |          |        | yes   | no   | yes  |       | Flush  |                  |
//! |          |        |       |      | yes  | yes   | Flush  |                  |
//! | any else |        |       |      |      |       | Wait   | (1)              |
//!
//! *Supers*: superblocks wait. *Asked*: a batch waits. *Room*: the journal has room for the batch.
//! *Free*: records at the tail are over, and no room is being freed. (1): the journal, shards or
//! superblocks; or no batch waits. The first row that fits is taken. [check: the_table_is_total]

use crate::array::consistency::parity_logs::LogAction;

/// The progress of the journal's newest record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Stage {
    #[default]
    Rest,
    Writing,
    Written,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Facts {
    pub(super) stage: Stage,
    /// Superblocks wait for an empty block.
    pub(super) lacks_blank: bool,
    pub(super) is_wanted: bool,
    /// The first waiting batch has room in the journal.
    pub(super) has_room: bool,
    /// Records at the tail are over, and no room is being freed.
    pub(super) can_free: bool,
    /// Half of the ring is in use.
    pub(super) is_tight: bool,
}

pub(in super::super) fn decide(facts: &Facts) -> LogAction {
    match *facts {
        Facts { stage: Stage::Written, .. } => LogAction::Grant,
        Facts { stage: Stage::Rest, lacks_blank: true, .. } => LogAction::Blank,
        Facts { stage: Stage::Rest, is_wanted: true, has_room: true, .. } => LogAction::Write,
        Facts { is_wanted: true, has_room: false, can_free: true, .. }
        | Facts { is_tight: true, can_free: true, .. } => LogAction::Flush,
        _ => LogAction::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::product::{Axis, axis, flags, product, set};

    #[test]
    fn the_table_is_total() {
        let stages: Axis<'_, Facts> = axis!(stage: Stage::Rest, Stage::Writing, Stage::Written);
        let flags: [Axis<'_, Facts>; 5] = flags![lacks_blank is_wanted has_room can_free is_tight];
        product(&[&[stages][..], &flags].concat(), &mut |facts: &Facts| {
            let Facts { lacks_blank, is_wanted, has_room, can_free, stage, .. } = *facts;
            match decide(facts) {
                LogAction::Grant => assert_eq!(stage, Stage::Written, "I3: {facts:?}"),
                LogAction::Blank => assert!(lacks_blank && stage == Stage::Rest, "{facts:?}"),
                LogAction::Write => {
                    assert!(is_wanted && has_room && stage == Stage::Rest, "{facts:?}");
                }
                LogAction::Flush => assert!(can_free, "{facts:?}"),
                LogAction::Wait => {
                    // The journal's device, the writers of the bands at the tail, or superblocks
                    // end this wait.
                    let device = stage == Stage::Writing;
                    let is_idle = !lacks_blank && !is_wanted;
                    let is_full = !lacks_blank && !has_room && !can_free;
                    assert!(device || is_idle || is_full, "something will end it: {facts:?}");
                }
            }
        });
    }
}
