//! Decides the next step of the bitmap: a pure table from facts to one action.
//!
//! | write out | asked for | sweep    | may clear | action | what ends a Wait                    |
//! |-----------|-----------|----------|-----------|--------|-------------------------------------|
//! | (written no more)     |          |           | Wait   | superblocks                         |
//! |           | (durable) |          |           | Open   |                                     |
//! | no        | yes       |          |           | Write  |                                     |
//! |           |           | (stops)  | yes       | Clear  |                                     |
//! |           |           | Asking   |           | Wait   | the shards                          |
//! |           |           | Draining |           | Wait   | the shards                          |
//! |           |           | Flushing |           | Wait   | the members                         |
//! |           |           | any else | no        | Forget | (of a sweep that has begun)         |
//! |           |           | Asked    | yes       | Revoke |                                     |
//! |           |           | Drained  | yes       | Flush  |                                     |
//! |           |           | Rest, due| yes       | Ask    |                                     |
//! |           |           | Rest     |           | Wait   | a shard, the clock, or the write    |
//!
//! The first row that fits is taken. [check: the_table_is_total]

/// The progress of a sweep: the search for bits that no write needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Sweep {
    /// There is none.
    #[default]
    Rest,
    /// Shards say where they wrote since the last one.
    Asking,
    /// They have said so.
    Asked,
    /// Shards finish what they began under bits that are closing.
    Draining,
    /// They have.
    Drained,
    /// Members are being flushed.
    Flushing,
}

/// The bitmap at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Facts {
    /// It is in a file that is written no more: superblocks are to say so.
    pub(in super::super) is_leaving: bool,
    /// Bits that shards wait for are durable; so is the loss of members that failed to write them.
    pub(in super::super) is_granted: bool,
    /// Members are writing their bitmaps.
    pub(in super::super) is_out: bool,
    /// Shards or superblocks wait for what members' bitmaps do not say yet, or bits are to be
    /// cleared there.
    pub(in super::super) is_due: bool,
    pub(in super::super) sweep: Sweep,
    /// It is time for the next sweep.
    pub(in super::super) is_time: bool,
    /// Every member holds all, and superblocks tell of every loss.
    pub(in super::super) may_clear: bool,
    /// The array stops, superblocks say clean, and bits are set that no write needs.
    pub(in super::super) is_left: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// An event will come.
    #[default]
    Wait,
    /// Let shards write where bits are durable.
    Open,
    /// Have members write their bitmaps.
    Write,
    /// Ask shards where they wrote.
    Ask,
    /// Close bits that no write needed.
    Revoke,
    /// Flush members, before bits are cleared.
    Flush,
    /// There is nothing to be cleared for now.
    Forget,
    /// Clear what is left: nothing is under way, and all is flushed.
    Clear,
}

/// The table.
pub(in super::super) fn decide(facts: &Facts) -> Action {
    match *facts {
        Facts { is_leaving: true, .. } => Action::Wait,
        Facts { is_granted: true, .. } => Action::Open,
        Facts { is_out: false, is_due: true, .. } => Action::Write,
        Facts { is_left: true, may_clear: true, .. } => Action::Clear,
        Facts { sweep: Sweep::Asking | Sweep::Draining | Sweep::Flushing, .. } => Action::Wait,
        Facts { sweep: Sweep::Rest, is_time: true, may_clear: true, .. } => Action::Ask,
        Facts { sweep: Sweep::Rest, .. } => Action::Wait,
        Facts { may_clear: false, .. } => Action::Forget,
        Facts { sweep: Sweep::Asked, .. } => Action::Revoke,
        Facts { sweep: Sweep::Drained, .. } => Action::Flush,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::product::{Axis, axis, flags, product, set};

    #[test]
    fn the_table_is_total() {
        let sweeps: Axis<'_, Facts> = axis!(sweep: Sweep::Rest, Sweep::Asking, Sweep::Asked,
            Sweep::Draining, Sweep::Drained, Sweep::Flushing);
        let flags: [Axis<'_, Facts>; 7] =
            flags![is_granted is_out is_due is_time may_clear is_left is_leaving];
        product(&[&[sweeps][..], &flags].concat(), &mut |facts: &Facts| {
            let action = decide(facts);
            if facts.is_leaving {
                assert_eq!(action, Action::Wait, "it is written no more: {facts:?}");
                return;
            }
            match action {
                Action::Open => assert!(facts.is_granted, "{facts:?}"),
                Action::Write => assert!(!facts.is_out, "one write at a time: {facts:?}"),
                Action::Ask | Action::Revoke | Action::Flush | Action::Clear => {
                    assert!(facts.may_clear, "a bit says what is missed: {facts:?}");
                }
                Action::Forget => assert!(!facts.may_clear, "{facts:?}"),
                Action::Wait => {
                    let is_asked =
                        matches!(facts.sweep, Sweep::Asking | Sweep::Draining | Sweep::Flushing);
                    let is_nothing =
                        facts.sweep == Sweep::Rest && !(facts.is_time && facts.may_clear);
                    assert!(is_asked || is_nothing, "nothing ends it: {facts:?}");
                    assert!(facts.is_out || !facts.is_due, "what is due is written: {facts:?}");
                }
            }
            if facts.is_due && !facts.is_out && !facts.is_granted {
                assert_eq!(action, Action::Write, "a shard waits for it: {facts:?}");
            }
        });
    }
}
