//! Decides the next step of partial parity logs: a pure table from facts to one action.
//!
//! | stage    | asked for | has room | loss unrecorded | action | what ends a Wait |
//! |----------|-----------|----------|-----------------|--------|------------------|
//! | Writing  |           |          |                 | Wait   | the members      |
//! | Written  |           |          | no              | Grant  |                  |
//! | Written  |           |          | yes             | Wait   | superblocks      |
//! | Flushing |           |          |                 | Wait   | the members      |
//! | Over     | yes       | no       |                 | Flush  |                  |
//! | Live     | yes       | no       |                 | Wait   | the shards       |
//! | any else | yes       | yes      | no              | Write  |                  |
//! | any else | yes       | yes      | yes             | Wait   | superblocks      |
//! | any else | no        |          |                 | Wait   | a shard          |
//!
//! *Has room*: the first waiting batch can be logged before a flush. At Rest every batch can.
//!
//! Logs of new members are made empty, in any stage but Writing, when superblocks wait for that.
//! The first row that fits is taken. [check: the_table_is_total]

/// The progress of the newest records in the parity logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Stage {
    #[default]
    Rest,
    Writing,
    Written,
    Live,
    /// Shards have written all bands of the records.
    Over,
    Flushing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Facts {
    pub(super) stage: Stage,
    pub(super) is_wanted: bool,
    /// The first waiting batch can be logged before a flush.
    pub(super) has_room: bool,
    /// Superblocks wait for the empty log of a new member, and no empty log is being written.
    pub(super) lacks_blank: bool,
    /// A member is out, and no superblock records the loss.
    pub(super) has_unrecorded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Action {
    #[default]
    Wait,
    Blank,
    Write,
    Grant,
    Flush,
}

pub(in super::super) fn decide(facts: &Facts) -> Action {
    let Facts { has_unrecorded, .. } = *facts;
    match *facts {
        Facts { lacks_blank: true, .. } => Action::Blank,
        Facts { stage: Stage::Written, .. } if !has_unrecorded => Action::Grant,
        Facts { stage: Stage::Over, is_wanted: true, has_room: false, .. } => Action::Flush,
        Facts {
            stage: Stage::Rest | Stage::Live | Stage::Over,
            is_wanted: true,
            has_room: true,
            ..
        } if !has_unrecorded => Action::Write,
        _ => Action::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::product::{Axis, axis, flags, product, set};

    #[test]
    fn the_table_is_total() {
        use Stage::{Flushing, Live, Over, Rest, Writing, Written};
        let stages: Axis<'_, Facts> = axis!(stage: Rest, Writing, Written, Live, Over, Flushing);
        let flags: [Axis<'_, Facts>; 4] = flags![is_wanted has_room lacks_blank has_unrecorded];
        product(&[&[stages][..], &flags].concat(), &mut |facts: &Facts| {
            let Facts { stage, is_wanted, has_room, lacks_blank, has_unrecorded } = *facts;
            // At rest every batch has room.
            if has_room == (is_wanted && (has_room || stage == Rest)) {
                match decide(facts) {
                    Action::Blank => assert!(lacks_blank),
                    Action::Write => {
                        assert!(is_wanted && has_room, "what counts stays: {facts:?}");
                        assert!(matches!(stage, Rest | Live | Over), "one round: {facts:?}");
                        assert!(!has_unrecorded, "I4: and who was not is known: {facts:?}");
                    }
                    Action::Grant => {
                        assert!(stage == Written && !has_unrecorded, "I4: {facts:?}");
                    }
                    Action::Flush => {
                        assert!(stage == Over && is_wanted && !has_room, "{facts:?}");
                    }
                    Action::Wait => {
                        // Members, shards or superblocks end this wait; or no batch waits.
                        let is_ended = matches!(stage, Writing | Live | Flushing) || has_unrecorded;
                        assert!(is_ended || !is_wanted, "something will end it: {facts:?}");
                    }
                }
            }
        });
    }
}
