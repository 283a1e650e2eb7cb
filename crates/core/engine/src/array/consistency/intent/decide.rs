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
    /// No sweep runs.
    #[default]
    Rest,
    /// Shards are reporting their writes since the last sweep.
    Asking,
    /// Shards have reported their writes to the sweep.
    Asked,
    /// Shards are finishing writes under bits that are being closed.
    Draining,
    Drained,
    Flushing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Facts {
    /// The bitmap is in a file that is no longer written: superblocks must record that.
    pub(in super::super) is_leaving: bool,
    /// Bits that shards wait for are durable. If members failed to write the bits, superblocks
    /// record the loss of these members durably.
    pub(in super::super) is_granted: bool,
    pub(in super::super) is_out: bool,
    /// Shards or superblocks wait for bits in members' bitmaps, or bits there must be cleared.
    pub(in super::super) is_due: bool,
    pub(in super::super) sweep: Sweep,
    pub(in super::super) is_time: bool,
    /// Every member is up to date, and superblocks record every loss.
    pub(in super::super) may_clear: bool,
    /// The array stops, superblocks say clean, and bits are set that no write needs.
    pub(in super::super) is_left: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Action {
    #[default]
    Wait,
    /// Let shards write in sectors whose bits are durable.
    Open,
    Write,
    /// Ask shards for the bits of their writes since the last sweep.
    Ask,
    /// Close bits that no write needed since the last sweep.
    Revoke,
    Flush,
    /// Forget the sweep: no bits can be cleared for now.
    Forget,
    /// Clear the remaining bits: all writes have ended and are flushed.
    Clear,
}

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
