//! Tags: how many dispatches may be in flight at a member at once.

use crate::entry::Direction;

/// How many dispatches a member may have in flight at once. Some tags are kept for reads, some for
/// writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Maximum number of dispatches; at least one is always allowed.
    pub total: u32,
    /// Tags of `total` that only reads may use.
    pub kept_for_reads: u32,
    /// Tags of `total` that only writes may use.
    pub kept_for_writes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) reads: u32,
    pub(crate) writes: u32,
}

impl InFlight {
    /// Whether one more dispatch may go out. With nothing in flight, a dispatch always may: no
    /// setting stops a member. If the depth shrinks while the other direction has too many in
    /// flight, this direction may still use its own tags.
    pub(crate) fn allows(self, depth: Depth, direction: Direction) -> bool {
        let Self { reads, writes } = self;
        if reads + writes == 0 {
            return true;
        }
        let Depth { total, kept_for_reads, kept_for_writes } = depth;
        let (own, kept, kept_for_others) = match direction {
            Direction::Read => (reads, kept_for_reads, kept_for_writes),
            Direction::Write => (writes, kept_for_writes, kept_for_reads),
        };
        let at_most = |kept: u32| total.saturating_sub(kept).max(1);
        let has_others_too_many = reads + writes - own > at_most(kept);
        let is_free = reads + writes < total || has_others_too_many && own < kept;
        is_free && own < at_most(kept_for_others)
    }

    pub(crate) fn take(&mut self, direction: Direction) {
        match direction {
            Direction::Read => self.reads += 1,
            Direction::Write => self.writes += 1,
        }
    }

    pub(crate) fn give_back(&mut self, direction: Direction) {
        let count = match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        };
        *count = count.checked_sub(1).expect("a dispatch is done once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: after a time without reads, a client's read waited for all of write-back's
    /// dispatches.
    #[test]
    fn what_was_out_before_the_depth_became_less_blocks_nobody() {
        let depth = Depth { total: 8, kept_for_reads: 2, kept_for_writes: 2 };
        let mut out = InFlight { reads: 0, writes: 24 };
        assert!(!out.allows(depth, Direction::Write));
        for _ in 0..2 {
            assert!(out.allows(depth, Direction::Read));
            out.take(Direction::Read);
        }
        assert!(!out.allows(depth, Direction::Read), "no more than are kept for reads");
    }

    #[test]
    fn neither_direction_can_block_the_other() {
        let depth = Depth { total: 8, kept_for_reads: 2, kept_for_writes: 3 };
        let mut out = InFlight::default();
        while out.allows(depth, Direction::Read) {
            out.take(Direction::Read);
        }
        assert_eq!((out.reads, out.allows(depth, Direction::Write)), (5, true));
        while out.allows(depth, Direction::Write) {
            out.take(Direction::Write);
        }
        assert_eq!((out.reads, out.writes), (5, 3));
        let mut out = InFlight::default();
        while out.allows(depth, Direction::Write) {
            out.take(Direction::Write);
        }
        assert_eq!((out.writes, out.allows(depth, Direction::Read)), (6, true));
    }

    #[test]
    fn a_depth_of_nothing_still_lets_one_out() {
        let depth = Depth { total: 0, kept_for_reads: 9, kept_for_writes: 9 };
        let mut out = InFlight::default();
        assert!(out.allows(depth, Direction::Read) && out.allows(depth, Direction::Write));
        out.take(Direction::Write);
        assert!(!out.allows(depth, Direction::Read) && !out.allows(depth, Direction::Write));
    }
}
