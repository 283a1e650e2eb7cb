//! A lockless bitmap's marks: where no client has written, and where redundancy must still agree.
//!
//! The bitmap's state ([`super::machine`]) owns these marks and decides when they change; this file
//! changes sets, and decides nothing. [`braid_ondisk::marks`] defines the states and their order
//! [check: sets_follow_the_table_of_states].
//!
//! ```text
//!              a shard asks            synced, flushed        no write needs its bit
//!   unwritten ──────────────▶ unsynced ────────────────▶ dirty ───────────────────────▶ clean
//!       ▲                      (set)                     (set)                            │
//!       └────────────────────────── trimmed, all of it ───────────────────────────────────┘
//! ```
//!
//! *Synced*: a job has made the run agree.
//!
//! *Unsynced* is durable before the first write to a run, as a bit is. From then on redundancy
//! agrees wherever a client has written: parity is made of all columns, never by rmw. So the loss
//! of a member loses no data. Elsewhere in the run redundancy means nothing until a resync has
//! passed the run. Runs due for a sync are gathered until a sweep, so that a job finds several.
//!
//! # Invariants
//! - No run is both unwritten and unsynced, and an unsynced run keeps its bit
//!   [check: sets_follow_the_table_of_states].
//! - A run counts as synced only if it was unsynced when the job over it began, and was not trimmed
//!   since [check: what_is_trimmed_while_it_is_synced_is_not_synced].

use std::ops::Range;
use std::sync::Arc;

use braid_ondisk::{Bits, LocklessMarks};
use braid_sim_hooks::{Mark, reached};

use super::trimmed_marks::TrimmedMarks;

#[derive(Debug)]
pub(super) struct Lockless {
    marks: LocklessMarks,
    /// The marks that every member with the whole bitmap has.
    written: Arc<LocklessMarks>,
    /// Unsynced runs that the next or the current resync covers.
    due: Bits,
    /// Unsynced runs that a resync could not make agree. No resync tries them again before the next
    /// start.
    stuck: Bits,
    /// Unsynced runs that the resync after a crash covers as well.
    opened: Bits,
    /// Unwritten or unsynced runs, as shards see them.
    shown: Arc<Bits>,
    /// Runs that became unwritten since the bitmap write in flight began.
    recalled: Bits,
    trimmed_marks: TrimmedMarks,
}

impl Lockless {
    /// `says` are the set bits, whose runs are not unwritten. Runs of set bits beyond the resync
    /// offset are resynced.
    pub(super) fn new(marks: LocklessMarks, says: &Bits, resync_offset: u64) -> Self {
        let none = Bits::none(says.sectors(), says.sectors_each());
        let mut marks = marks;
        marks.unwritten.subtract(says);
        marks.unsynced.intersect(says);
        let mut shown = marks.unwritten.clone();
        shown.join(&marks.unsynced);
        let mut opened = none.clone();
        let is_beyond = |bit: &u64| says.sectors_of(*bit).start >= resync_offset;
        marks.unsynced.iter().filter(is_beyond).for_each(|bit| opened.set(bit));
        Self {
            due: marks.unsynced.clone(),
            written: Arc::new(LocklessMarks { unwritten: none.clone(), unsynced: none.clone() }),
            stuck: none.clone(),
            opened,
            trimmed_marks: TrimmedMarks::none_of(&none),
            recalled: none,
            shown: Arc::new(shown),
            marks,
        }
    }

    pub(super) fn shown(&self) -> &Arc<Bits> {
        &self.shown
    }

    pub(super) fn unwritten(&self) -> &Bits {
        &self.marks.unwritten
    }

    pub(super) fn unsynced(&self) -> &Bits {
        &self.marks.unsynced
    }

    pub(super) fn due(&self) -> &Bits {
        &self.due
    }

    /// Called when a shard is about to write in the run of `bit`.
    pub(super) fn is_wanted(&mut self, bit: u64) {
        if !self.marks.unwritten.is_set(bit) {
            return;
        }
        reached(Mark::UnwrittenIsWritten);
        self.marks.unwritten.clear(bit);
        self.marks.unsynced.set(bit);
    }

    /// Called when a sweep begins: unsynced runs become due together, unless a job still works on
    /// earlier due runs.
    pub(super) fn gather(&mut self) {
        if self.due.is_empty() {
            self.due = self.marks.unsynced.clone();
            self.due.subtract(&self.stuck);
        }
    }

    /// Notes that a resync has passed all sectors below `to`, except `failed`, and that members are
    /// flushed. True if any run is newly synced.
    pub(super) fn is_synced(&mut self, to: u64, failed: &[Range<u64>]) -> bool {
        for range in failed {
            for bit in self.due.of(range) {
                if self.due.is_set(bit) {
                    self.due.clear(bit);
                    self.stuck.set(bit);
                }
            }
        }
        let passed: Vec<u64> =
            self.due.iter().take_while(|bit| self.due.sectors_of(*bit).end <= to).collect();
        for bit in &passed {
            reached(Mark::UnsyncedIsSynced);
            self.due.clear(*bit);
            self.marks.unsynced.clear(*bit);
            Arc::make_mut(&mut self.shown).clear(*bit);
        }
        !passed.is_empty()
    }

    /// Notes that the resync after a crash has ended, and that members were flushed. True if any
    /// run is newly synced.
    pub(super) fn is_resynced(&mut self) -> bool {
        let none = Bits::none(self.due.sectors(), self.due.sectors_each());
        let opened = std::mem::replace(&mut self.opened, none);
        self.due.subtract(&opened);
        self.marks.unsynced.subtract(&opened);
        Arc::make_mut(&mut self.shown).subtract(&opened);
        !opened.is_empty()
    }

    /// Notes that a client trimmed a range of the array.
    pub(super) fn gives_up(&mut self, range: Range<u64>) {
        self.trimmed_marks.add(range);
    }

    /// Marks `mark` as trimmed if trims cover all its sectors in the array.
    pub(super) fn look_at(&mut self, mark: u64, sectors: &[Range<u64>]) {
        self.trimmed_marks.look_at(mark, sectors);
    }

    /// Notes that a client writes again to trimmed sectors of a mark.
    pub(super) fn takes_back(&mut self, mark: u64, sectors: &[Range<u64>]) {
        self.trimmed_marks.forget(mark, sectors);
    }

    /// Marks whose sectors clients have trimmed completely.
    pub(super) fn trimmed_marks(&self) -> &Bits {
        self.trimmed_marks.marks()
    }

    /// Called when bits are cleared, without writes in flight. Trimmed marks among the cleared bits
    /// become unwritten; returns these marks.
    pub(super) fn become_unwritten(&mut self, cleared: &Bits) -> Bits {
        let mut marks = self.trimmed_marks.marks().clone();
        marks.intersect(cleared);
        for mark in marks.iter() {
            reached(Mark::TrimmedIsUnwritten);
            self.trimmed_marks.forget(mark, &[]);
            self.is_trimmed(mark);
        }
        marks
    }

    /// Makes the run of `bit` unwritten: no client needs its data any more, and no write to it is
    /// about to begin.
    fn is_trimmed(&mut self, bit: u64) {
        self.marks.unwritten.set(bit);
        self.marks.unsynced.clear(bit);
        self.due.clear(bit);
        self.stuck.clear(bit);
        self.opened.clear(bit);
        self.recalled.set(bit);
        Arc::make_mut(&mut self.shown).set(bit);
    }

    /// Begins a write of the current marks. Returns the marks, and the range that members lack.
    pub(super) fn write(&mut self) -> (Arc<LocklessMarks>, Range<u64>) {
        let marks = Arc::new(self.marks.clone());
        let unwritten = self.written.unwritten.difference(&marks.unwritten);
        let unsynced = self.written.unsynced.difference(&marks.unsynced);
        self.recalled = Bits::none(self.due.sectors(), self.due.sectors_each());
        (marks, around(unwritten, unsynced))
    }

    /// Notes that the write of `marks` is durable, with the bits `durable`. Runs that became
    /// unwritten meanwhile must not be written under their old marks.
    pub(super) fn is_written(&mut self, marks: Arc<LocklessMarks>, durable: &mut Bits) {
        self.written = marks;
        durable.subtract(&self.recalled);
    }
}

/// The shortest range that contains both ranges.
pub(super) fn around(one: Range<u64>, other: Range<u64>) -> Range<u64> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other,
        (_, true) => one,
        _ => one.start.min(other.start)..one.end.max(other.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_ondisk::{MarkAction, MarkState};

    const SECTORS: u64 = 64;

    /// A bitmap of eight marks and its bits. The first mark is in `state`, the second is clean.
    fn of(state: MarkState) -> (Lockless, Bits) {
        let mut bits = Bits::none(SECTORS, 8);
        let mut marks = LocklessMarks::clean(SECTORS, 8);
        match state {
            MarkState::Unwritten => marks.unwritten.set(0),
            MarkState::Dirty => bits.set(0),
            MarkState::NeedSync => {
                bits.set(0);
                marks.unsynced.set(0);
            }
            _ => {}
        }
        (Lockless::new(marks, &bits, u64::MAX), bits)
    }

    #[test]
    fn sets_follow_the_table_of_states() {
        let states =
            [MarkState::Unwritten, MarkState::Clean, MarkState::Dirty, MarkState::NeedSync];
        for state in states {
            let check = |lockless: &Lockless, bits: &Bits, action: MarkAction| {
                let found = lockless.marks.state(bits, 0);
                assert_eq!(found, state.after(action), "{state:?} {action:?}");
                assert_eq!(lockless.marks.state(bits, 1), MarkState::Clean);
                let (unwritten, unsynced) = (lockless.unwritten(), lockless.unsynced());
                assert!(!(unwritten.is_set(0) && (unsynced.is_set(0) || bits.is_set(0))));
                assert!(bits.is_set(0) || !unsynced.is_set(0), "it keeps its bit");
                let is_shown = unwritten.is_set(0) || unsynced.is_set(0);
                assert_eq!(lockless.shown().is_set(0), is_shown, "{state:?} {action:?}");
            };
            let (mut written, mut bits) = of(state);
            bits.set(0);
            written.is_wanted(0);
            check(&written, &bits, MarkAction::Write);
            let (mut synced, bits) = of(state);
            synced.gather();
            synced.is_synced(8, &[]);
            check(&synced, &bits, MarkAction::Synced);
            let (mut trimmed, mut bits) = of(state);
            bits.clear(0);
            trimmed.is_trimmed(0);
            check(&trimmed, &bits, MarkAction::Trimmed);
        }
    }

    #[test]
    fn what_is_trimmed_while_it_is_synced_is_not_synced() {
        let (mut lockless, _) = of(MarkState::NeedSync);
        lockless.gather();
        assert!(lockless.due().is_set(0));
        lockless.is_trimmed(0);
        lockless.is_wanted(0);
        assert!(!lockless.is_synced(SECTORS, &[]), "a job began before the second write");
        assert!(lockless.unsynced().is_set(0));
        lockless.gather();
        assert!(!lockless.is_synced(7, &[]), "it is passed in part");
        assert!(lockless.is_synced(8, &[]) && lockless.unsynced().is_empty());
    }

    #[test]
    fn what_is_resynced_after_an_interruption_is_synced() {
        let (lockless, bits) = of(MarkState::NeedSync);
        let opened = |resync_offset: u64| {
            let mut one = Lockless::new(lockless.marks.clone(), &bits, resync_offset);
            (one.is_resynced(), one.unsynced().is_empty() && one.due().is_empty())
        };
        assert_eq!(opened(0), (true, true));
        assert_eq!(opened(1), (false, false), "it begins in the middle of the run");
        assert_eq!(opened(u64::MAX), (false, false), "there is none");
    }

    #[test]
    fn what_cannot_be_synced_is_left_as_it_is() {
        let (mut lockless, _) = of(MarkState::NeedSync);
        let failed = 3..4;
        assert!(!lockless.is_synced(SECTORS, std::slice::from_ref(&failed)));
        lockless.gather();
        assert!(lockless.due().is_empty() && lockless.unsynced().is_set(0));
    }

    #[test]
    fn what_became_unwritten_while_bits_were_written_is_asked_for_again() {
        let (mut lockless, bits) = of(MarkState::Dirty);
        let (marks, _) = lockless.write();
        lockless.is_trimmed(0);
        let mut durable = bits;
        lockless.is_written(marks, &mut durable);
        assert!(!durable.is_set(0), "its mark says dirty, and is to say need sync first");
        let (_, changed) = lockless.write();
        assert_eq!(changed, 0..1);
    }
}
