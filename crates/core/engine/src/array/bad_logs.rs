//! Members' bad-block logs: for each member the sectors not to be believed (*wanted*), and the
//! ranges that its log names durably (*on disk*).
//!
//! ```text
//!   a job cannot make a sector ─── mark ──▶ ┌────────┐  flush, write  ┌─────────┐
//!   a shard has written over it ── clear ─▶ │ wanted │ ─────────────▶ │ on disk │
//!                                           └────────┘                └─────────┘
//! ```
//!
//! Shards get both sets, wanted and on disk, as sectors not to believe.
//!
//! Invariants:
//! - Shards do not read a sector that a log calls bad
//!   [check: a_read_of_a_logged_sector_is_noticed].
//! - If a job cannot compute a sector, it continues beyond that sector only once the member's log
//!   durably names the sector [check: a_rebuild_goes_on_beyond_what_cannot_be_read].
//! - A sector is believed again when its new data is durable, and the log no longer names it
//!   [check: what_is_written_over_a_bad_block_is_good_again]. So the member's cache is flushed
//!   before its log changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_sim_hooks::{Bug, Mark, planted, reached};

use crate::bad_log::{BadLog, BadLogWrite, Tail};
use crate::ids::MemberId;
use crate::ranges::{BadBlocks, BadRange};

#[derive(Debug)]
struct Log {
    /// The ranges that the log must name.
    wanted: BadBlocks,
    /// The ranges that the log names, durably.
    named: BadBlocks,
    /// The log's content on the disk. It has no sectors if the array keeps no log, or leaves the
    /// log untouched.
    on_disk: BadLog,
    out: Option<Arc<BadLogWrite>>,
    /// Whether the content after the log's last sector is known.
    tail: Tail,
    /// Whether superblocks record if the log names any range, as of the log's last write or the
    /// member's arrival.
    is_told: bool,
}

impl Log {
    /// The log content that the next write will find on disk, and the state of its tail.
    fn base(&self) -> (&BadLog, Tail) {
        match &self.out {
            Some(out) => (&out.says, Tail::Blank),
            None => (&self.on_disk, self.tail),
        }
    }

    /// Sets the ranges that the log must name, if the log has room for them; false if not.
    fn wants(&mut self, wanted: BadBlocks) -> bool {
        let (base, tail) = self.base();
        let has_room = base.reaches(&wanted, tail);
        if has_room {
            self.wanted = wanted;
        }
        has_room
    }
}

#[derive(Debug, Default)]
pub(super) struct BadLogs {
    logs: BTreeMap<MemberId, Log>,
}

impl BadLogs {
    /// Adds a member's log, which names the ranges `named`. `on_disk` has no sectors if the array
    /// shall leave the log untouched.
    pub(super) fn keep(&mut self, member: MemberId, on_disk: BadLog, named: BadBlocks) {
        assert!(!on_disk.is_kept() || on_disk.named() == named, "it says what it names");
        let wanted = named.clone();
        let log = Log { wanted, named, on_disk, out: None, tail: Tail::Unknown, is_told: false };
        self.logs.insert(member, log);
    }

    /// Adds the log of a new member and ignores the log's content: all of the member is going to be
    /// filled.
    pub(super) fn keep_blank(&mut self, member: MemberId, log_sectors: u16) {
        let on_disk = BadLog::new(log_sectors, []);
        let (wanted, named) = (BadBlocks::default(), BadBlocks::default());
        // The first superblock that names the member calls the log empty.
        let log = Log { wanted, named, on_disk, out: None, tail: Tail::Unknown, is_told: true };
        self.logs.insert(member, log);
    }

    /// Marks `range` as bad in the member's log, because no member can supply its data. False if
    /// the array keeps no log of this member, or the log has no room.
    #[must_use]
    pub(super) fn mark(&mut self, member: MemberId, range: BadRange) -> bool {
        self.mark_all(member, &BadBlocks::new(vec![range]))
    }

    /// Marks several ranges as bad, all or none, as [`Self::mark`] does for one.
    #[must_use]
    pub(super) fn mark_all(&mut self, member: MemberId, bad: &BadBlocks) -> bool {
        let Some(log) = self.logs.get_mut(&member) else { return false };
        let wanted = log.wanted.union(bad);
        let has_room = wanted == log.wanted || log.wants(wanted);
        reached(if has_room { Mark::BadBlockMarked } else { Mark::BadBlockLogFull });
        has_room
    }

    /// Whether the member's log has room for the ranges of [`Self::mark_all`].
    pub(super) fn has_room(&self, member: MemberId, bad: &BadBlocks) -> bool {
        self.logs.get(&member).is_some_and(|log| {
            let wanted = log.wanted.union(bad);
            let (base, tail) = log.base();
            wanted == log.wanted || base.reaches(&wanted, tail)
        })
    }

    /// Clears a written range of a member, so that the member's log need not name it.
    pub(super) fn clear(&mut self, member: MemberId, range: BadRange) {
        let Some(log) = self.logs.get_mut(&member).filter(|log| log.on_disk.is_kept()) else {
            return; // The member has no log, or an untouched one.
        };
        let wanted = log.wanted.without(range);
        // A hole in a range takes one more record: if the log is full, the whole range stays named.
        if wanted != log.wanted && log.wants(wanted) {
            reached(Mark::BadBlockCleared);
        }
    }

    pub(super) fn is_due(&self, member: MemberId) -> bool {
        self.logs.get(&member).is_some_and(|log| log.out.is_none() && log.wanted != log.named)
    }

    pub(super) fn is_any_out(&self) -> bool {
        self.logs.values().any(|log| log.out.is_some())
    }

    /// Begins a write of a member's log. The wanted content may take several writes.
    pub(super) fn begin(&mut self, member: MemberId) -> Arc<BadLogWrite> {
        let log = self.logs.get_mut(&member).expect("it keeps one");
        assert!(log.out.is_none() && log.on_disk.is_kept(), "one at a time, where there is one");
        let says = log.on_disk.towards(&log.wanted, log.tail);
        let sectors = log.on_disk.changed(&says, log.tail);
        assert!(!sectors.is_empty(), "what it is to say can be said");
        if sectors.len() < says.sectors().len() {
            reached(Mark::BadBlockLogInPart);
        }
        let write = Arc::new(BadLogWrite { says, sectors });
        log.out = Some(Arc::clone(&write));
        write
    }

    /// Ends the write that `begin` began. True if superblocks do not record yet whether the log
    /// names any range.
    pub(super) fn ended(&mut self, member: MemberId, is_written: bool) -> bool {
        let log = self.logs.get_mut(&member).expect("it keeps one");
        let write = log.out.take().expect("a log that was being written");
        if !is_written {
            return false;
        }
        let said = log.is_told.then(|| !log.named.is_empty());
        (log.on_disk, log.named) = (write.says.clone(), write.says.named());
        (log.is_told, log.tail) = (true, Tail::Blank);
        said != Some(!log.named.is_empty())
    }

    /// The ranges of a member that shards must not believe.
    pub(super) fn bad_blocks(&self, member: MemberId) -> Option<BadBlocks> {
        let log = self.logs.get(&member)?;
        if planted(Bug::BadBlockClearedEarly) {
            return Some(log.wanted.clone());
        }
        // A log write in flight may or may not have reached the disk.
        let known = log.wanted.union(&log.named);
        Some(log.out.as_ref().map_or_else(|| known.clone(), |out| known.union(&out.says.named())))
    }

    /// The members whose logs were written since the array was opened, and whether each log names
    /// any range.
    pub(super) fn written(&self) -> impl Iterator<Item = (MemberId, bool)> {
        let is_told = |(_, log): &(&MemberId, &Log)| log.is_told && log.on_disk.is_kept();
        let written = self.logs.iter().filter(is_told);
        written.map(|(member, log)| (*member, !log.named.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::MemberSector;

    const MEMBER: MemberId = MemberId(3);

    fn range(start: u64, sectors: u64) -> BadRange {
        BadRange { start: MemberSector(start), sectors }
    }

    fn bad(ranges: &[BadRange]) -> Option<BadBlocks> {
        Some(BadBlocks::new(ranges.to_vec()))
    }

    #[test]
    fn what_is_marked_is_not_believed_from_then_on() {
        let mut logs = BadLogs::default();
        logs.keep(MEMBER, BadLog::new(8, []), BadBlocks::default());
        assert!(logs.mark(MEMBER, range(8, 8)));
        assert!(logs.mark(MEMBER, range(10, 2)));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(8, 8)]));
        assert!(logs.is_due(MEMBER) && logs.written().next().is_none());
        let says = logs.begin(MEMBER);
        assert_eq!(says.says.named().ranges(), [range(8, 8)]);
        assert_eq!(says.sectors, 0..8, "what lay there before is not known");
        // A range marked during a write goes into the next write.
        assert!(logs.mark(MEMBER, range(32, 8)));
        assert!(!logs.is_due(MEMBER) && logs.is_any_out());
        assert!(logs.ended(MEMBER, true), "it says something now");
        assert!(logs.is_due(MEMBER));
        assert_eq!(logs.written().collect::<Vec<_>>(), [(MEMBER, true)]);
        assert_eq!(logs.begin(MEMBER).sectors, 0..1, "one sector is written");
    }

    #[test]
    fn what_was_written_over_is_believed_when_the_log_says_so() {
        let mut logs = BadLogs::default();
        let (on_disk, named) = (BadLog::new(1, [(0, range(8, 8))]), vec![range(8, 8)]);
        logs.keep(MEMBER, on_disk, BadBlocks::new(named));
        logs.clear(MEMBER, range(0, 12));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(8, 8)]), "not yet");
        assert_eq!(logs.begin(MEMBER).says.named().ranges(), [range(12, 4)]);
        logs.clear(MEMBER, range(12, 4));
        assert!(logs.ended(MEMBER, true));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(12, 4)]));
        // This range is marked during a write, and cleared before that write has ended.
        assert!(logs.mark(MEMBER, range(40, 8)));
        logs.begin(MEMBER);
        logs.clear(MEMBER, range(40, 8));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(12, 4), range(40, 8)]));
        logs.ended(MEMBER, true);
        assert!(logs.begin(MEMBER).says.named().is_empty());
        assert!(!logs.ended(MEMBER, false), "it could not be written");
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(40, 8)]));
        logs.begin(MEMBER);
        assert!(logs.ended(MEMBER, true), "it says nothing any more");
        assert_eq!(logs.written().collect::<Vec<_>>(), [(MEMBER, false)]);
    }

    #[test]
    fn a_log_has_room_for_so_many_records() {
        let mut logs = BadLogs::default();
        logs.keep_blank(MEMBER, 1);
        for block in 0..63 {
            assert!(logs.mark(MEMBER, range(block * 16, 8)), "{block}");
        }
        assert!(logs.mark(MEMBER, range(4, 12)), "joins two");
        assert!(logs.mark(MEMBER, range(5000, 512)));
        assert!(logs.mark(MEMBER, range(7000, 1)));
        assert!(!logs.mark(MEMBER, range(8000, 1)), "there is no room");
        assert!(!logs.mark(MemberId(9), range(0, 8)), "it keeps none");
        logs.clear(MEMBER, range(5100, 8));
        assert!(logs.bad_blocks(MEMBER).is_some_and(|bad| bad.contains(range(5100, 1).start, 8)));
        logs.clear(MEMBER, range(5000, 8));
        assert!(logs.is_due(MEMBER), "a shorter one fits");
        // A second sector gives the log room.
        logs.keep_blank(MEMBER, 2);
        let marked = (0..128).filter(|block| logs.mark(MEMBER, range(block * 16, 8)));
        assert_eq!(marked.count(), 128);
        assert!(!logs.mark(MEMBER, range(8000, 1)));
    }

    #[test]
    fn a_log_that_is_left_as_it_is_is_believed() {
        let mut logs = BadLogs::default();
        logs.keep(MEMBER, BadLog::default(), BadBlocks::new(vec![range(8, 8)]));
        assert!(!logs.mark(MEMBER, range(40, 8)) && logs.mark(MEMBER, range(10, 2)));
        logs.clear(MEMBER, range(8, 8));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(8, 8)]));
        assert!(!logs.is_due(MEMBER) && logs.written().next().is_none());
    }
}
