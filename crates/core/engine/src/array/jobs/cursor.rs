//! A job's progress: runs in flight, runs to repeat, and the offset below which all is done.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A position that moves from a job's first sector to its last. Several runs of sectors may be in
/// flight, and end in any order. A run may begin ahead of its turn; the cursor then skips the run.
#[derive(Debug)]
pub(super) struct Cursor {
    next: u64,
    end: u64,
    /// Runs that began ahead of their turn, until the cursor passes over them. Each start maps to
    /// its end, as in the other maps.
    ahead: BTreeMap<u64, u64>,
    under_way: BTreeMap<u64, u64>,
    /// Runs that shards left undone and the job must repeat.
    again: BTreeMap<u64, u64>,
}

impl Cursor {
    pub(super) fn new(from: u64, end: u64) -> Self {
        let next = from.min(end);
        Self {
            next,
            end,
            ahead: BTreeMap::new(),
            under_way: BTreeMap::new(),
            again: BTreeMap::new(),
        }
    }

    pub(super) fn to_repeat(&self) -> Option<Run> {
        let (&start, &end) = self.again.first_key_value()?;
        Some(Run { start, end })
    }

    /// The next sector that no run has covered yet.
    pub(super) fn next(&self) -> Option<u64> {
        (self.next < self.end).then_some(self.next)
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn begin(&mut self, run: Run) {
        assert!(run.start < run.end && run.end <= self.end, "a run lies inside");
        let is_first = self.again.remove(&run.start).is_none();
        if is_first && run.start == self.next {
            self.next = run.end;
            while let Some(end) = self.ahead.remove(&self.next) {
                self.next = end;
            }
        } else if is_first {
            assert!(self.may_begin_ahead(run.start), "runs begin in their turn, or ahead of it");
            self.ahead.insert(run.start, run.end);
        }
        let next_ahead = self.ahead.first_key_value();
        assert!(next_ahead.is_none_or(|(start, _)| *start > self.next), "runs do not overlap");
        let before = self.under_way.insert(run.start, run.end);
        assert!(before.is_none(), "a run is under way once");
    }

    /// Whether a run that starts at `start` could begin ahead of its turn.
    pub(super) fn may_begin_ahead(&self, start: u64) -> bool {
        start > self.next && start < self.end && !self.ahead.contains_key(&start)
    }

    /// Whether the run at `start` began ahead of its turn, and the cursor has not passed over it.
    pub(super) fn is_ahead(&self, start: u64) -> bool {
        start > self.next
    }

    pub(super) fn is_done(&mut self, start: u64) {
        self.under_way.remove(&start).expect("it was under way");
    }

    /// Notes that the run at `start` must be repeated.
    pub(super) fn is_undone(&mut self, start: u64) {
        let end = self.under_way.remove(&start).expect("it was under way");
        self.again.insert(start, end);
    }

    /// Notes that the run at `start` must be repeated in runs of `piece` sectors.
    pub(super) fn is_divided(&mut self, start: u64, piece: u64) {
        let end = self.under_way.remove(&start).expect("it was under way");
        let mut at = start;
        while at < end {
            let next = (at + piece).min(end);
            self.again.insert(at, next);
            at = next;
        }
    }

    /// Notes that the job does not repeat the undone run at `start`.
    pub(super) fn is_given_up(&mut self, start: u64) {
        self.again.remove(&start).expect("it came back undone");
    }

    /// Skips the sectors up to `end`, which need no work.
    pub(super) fn skip(&mut self, end: u64) {
        self.next = end.min(self.end);
        // Runs that began ahead of their turn in the skipped range have ended.
        self.ahead.retain(|start, _| *start >= end);
        while let Some(end) = self.ahead.remove(&self.next) {
            self.next = end;
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The offset below which all sectors are done.
    pub(super) fn done(&self) -> u64 {
        let first = |runs: &BTreeMap<u64, u64>| runs.first_key_value().map(|(start, _)| *start);
        let open = first(&self.under_way).into_iter().chain(first(&self.again));
        open.chain([self.next]).min().expect("there is a next")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, end: u64) -> Run {
        Run { start, end }
    }

    #[test]
    fn a_cursor_is_done_up_to_the_first_that_is_not() {
        let mut cursor = Cursor::new(8, 40);
        for start in [8, 16, 24] {
            cursor.begin(run(start, start + 8));
        }
        cursor.is_done(16);
        assert_eq!((cursor.done(), cursor.under_way()), (8, 2));
        cursor.is_done(8);
        assert_eq!(cursor.done(), 24);
        cursor.is_undone(24);
        assert_eq!((cursor.done(), cursor.under_way()), (24, 0), "it came back undone");
        assert_eq!(cursor.to_repeat(), Some(run(24, 32)));
        cursor.begin(run(24, 32));
        assert_eq!(cursor.to_repeat(), None);
        assert_eq!(cursor.next(), Some(32), "what is repeated is not what comes next");
        cursor.begin(run(32, 40));
        cursor.is_done(32);
        assert_eq!(cursor.done(), 24);
        cursor.is_done(24);
        assert_eq!((cursor.done(), cursor.next()), (40, None));
    }

    #[test]
    fn what_is_asked_for_again_in_pieces_is_done_piece_by_piece() {
        let mut cursor = Cursor::new(0, 40);
        cursor.begin(run(0, 20));
        cursor.is_divided(0, 8);
        let mut pieces = Vec::new();
        while let Some(piece) = cursor.to_repeat() {
            cursor.begin(piece);
            pieces.push((piece.start, piece.end));
        }
        assert_eq!((pieces, cursor.done()), (vec![(0, 8), (8, 16), (16, 20)], 0));
        cursor.is_done(8);
        cursor.is_done(0);
        assert_eq!(cursor.done(), 16);
    }

    #[test]
    fn what_began_ahead_of_its_turn_is_passed_over() {
        let mut cursor = Cursor::new(0, 50);
        cursor.begin(run(0, 8));
        for start in [16, 24, 48] {
            assert!(cursor.may_begin_ahead(start), "{start}");
            cursor.begin(run(start, (start + 8).min(50)));
        }
        let others = [0, 8, 16, 50, 64].map(|start| cursor.may_begin_ahead(start));
        assert_eq!(others, [false; 5], "begun, or in its turn, or not there");
        cursor.is_done(16);
        assert_eq!((cursor.is_ahead(16), cursor.next()), (true, Some(8)));
        cursor.is_done(0);
        cursor.begin(run(8, 16));
        assert_eq!((cursor.next(), cursor.done()), (Some(32), 8));
        cursor.is_done(8);
        assert_eq!((cursor.is_ahead(24), cursor.done()), (false, 24), "it is under way still");
        cursor.is_divided(24, 4);
        assert_eq!(cursor.to_repeat(), Some(run(24, 28)));
        for piece in [run(24, 28), run(28, 32), run(32, 40), run(40, 48)] {
            cursor.begin(piece);
            cursor.is_done(piece.start);
        }
        assert_eq!((cursor.next(), cursor.done()), (None, 48));
        cursor.is_done(48);
        assert_eq!(cursor.done(), 50);
    }

    #[test]
    fn what_is_not_there_is_skipped() {
        let mut cursor = Cursor::new(0, 24);
        cursor.begin(run(0, 8));
        cursor.skip(100);
        assert_eq!((cursor.done(), cursor.next()), (0, None));
        cursor.is_done(0);
        assert_eq!(cursor.done(), 24);
    }

    #[test]
    fn a_job_that_begins_at_its_end_is_done() {
        let cursor = Cursor::new(50, 40);
        assert_eq!((cursor.done(), cursor.next(), cursor.end()), (40, None, 40));
    }
}
