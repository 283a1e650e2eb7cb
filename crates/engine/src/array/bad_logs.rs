//! Members' bad-block logs: which sectors of each are not to be believed, and what of that is on the member.
//!
//! ```text
//!   a job cannot make a sector ─── mark ──▶ ┌────────┐  flush, write  ┌─────────┐
//!   a shard has written over it ── clear ─▶ │ wanted │ ─────────────▶ │ on disk │     shards are told of both
//!                                           └────────┘                └─────────┘
//! ```
//!
//! Invariants:
//! - A sector that a log calls bad is not read [check: a_read_of_a_logged_sector_is_noticed].
//! - A job goes on beyond a sector that it could not make when the log on the member names it, durably
//!   [check: a_rebuild_goes_on_beyond_what_cannot_be_read].
//! - A sector is believed again when what was written to it is durable, and the log does not name it any more
//!   [check: what_is_written_over_a_bad_block_is_good_again]. So the member's cache is flushed before its log changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_hooks::{Bug, Mark, planted, reached};

use crate::ids::MemberId;
use crate::ranges::{BadBlocks, BadRange};

/// One member's log.
#[derive(Debug, Default)]
struct Log {
    /// Records that there is room for; none where no log is kept.
    records_max: u64,
    /// What it is to say.
    wanted: BadBlocks,
    /// What it says, durably.
    on_disk: BadBlocks,
    /// What is being written.
    out: Option<Arc<BadBlocks>>,
    /// It was written since the array was opened.
    is_written: bool,
}

/// The logs of all members.
#[derive(Debug, Default)]
pub(super) struct BadLogs {
    logs: BTreeMap<MemberId, Log>,
}

impl BadLogs {
    /// A member has room for so many records; its log says this.
    pub(super) fn keep(&mut self, member: MemberId, records_max: u32, says: BadBlocks) {
        let (wanted, on_disk) = (says.clone(), says);
        // A longer one, of md's, is left as it is: a power cut could tear it.
        let has_room = on_disk.records() <= u64::from(records_max);
        let records_max = if has_room { u64::from(records_max) } else { 0 };
        let log = Log { records_max, wanted, on_disk, ..Log::default() };
        self.logs.insert(member, log);
    }

    /// A member comes whose log says what does not matter any more, or nothing: all of it is filled.
    pub(super) fn keep_blank(&mut self, member: MemberId, records_max: u32) {
        // The first superblock that takes it in says that the log names nothing.
        let log = Log { records_max: u64::from(records_max), is_written: true, ..Log::default() };
        self.logs.insert(member, log);
    }

    /// A range of a member holds what nobody can make: its log is to name it. False if the member keeps no log, or there is no
    /// room in it.
    #[must_use]
    pub(super) fn mark(&mut self, member: MemberId, range: BadRange) -> bool {
        let Some(log) = self.logs.get_mut(&member) else { return false };
        if log.wanted.contains(range.start, range.sectors) {
            return true;
        }
        let wanted = log.wanted.union(&BadBlocks::new(vec![range]));
        let has_room = wanted.records() <= log.records_max;
        reached(if has_room { Mark::BadBlockMarked } else { Mark::BadBlockLogFull });
        if has_room {
            log.wanted = wanted;
        }
        has_room
    }

    /// A range of a member has been written.
    pub(super) fn clear(&mut self, member: MemberId, range: BadRange) {
        let Some(log) = self.logs.get_mut(&member).filter(|log| log.records_max > 0) else {
            return; // It keeps none, or one that is left as it is.
        };
        if planted(Bug::BadBlockStays) {
            return;
        }
        let wanted = log.wanted.without(range);
        // A hole in a range takes one record more.
        if wanted != log.wanted && wanted.records() <= log.records_max {
            reached(Mark::BadBlockCleared);
            log.wanted = wanted;
        }
    }

    /// Whether a member's log is to be written.
    pub(super) fn is_due(&self, member: MemberId) -> bool {
        self.logs.get(&member).is_some_and(|log| log.out.is_none() && log.wanted != log.on_disk)
    }

    /// Whether any log is being written.
    pub(super) fn is_any_out(&self) -> bool {
        self.logs.values().any(|log| log.out.is_some())
    }

    /// A log is being written from now on: this.
    pub(super) fn begin(&mut self, member: MemberId) -> Arc<BadBlocks> {
        let log = self.logs.get_mut(&member).expect("it keeps one");
        assert!(log.out.is_none() && log.records_max > 0, "one at a time, where there is one");
        let says = Arc::new(log.wanted.clone());
        log.out = Some(Arc::clone(&says));
        says
    }

    /// That has ended. True if superblocks do not say yet whether it says anything at all.
    pub(super) fn ended(&mut self, member: MemberId, is_written: bool) -> bool {
        let log = self.logs.get_mut(&member).expect("it keeps one");
        let says = log.out.take().expect("a log that was being written");
        if !is_written {
            return false;
        }
        let said = log.is_written.then(|| !log.on_disk.is_empty());
        (log.on_disk, log.is_written) = (BadBlocks::clone(&says), true);
        said != Some(!says.is_empty())
    }

    /// What of a member is not to be believed.
    pub(super) fn bad_blocks(&self, member: MemberId) -> Option<BadBlocks> {
        let log = self.logs.get(&member)?;
        if planted(Bug::BadBlockClearedEarly) {
            return Some(log.wanted.clone());
        }
        // What is being written may be on the disk by now, or not.
        let known = log.wanted.union(&log.on_disk);
        Some(log.out.as_ref().map_or_else(|| known.clone(), |out| known.union(out)))
    }

    /// The logs that were written since the array was opened, and whether they say anything: what superblocks tell.
    pub(super) fn written(&self) -> impl Iterator<Item = (MemberId, bool)> {
        let is_told = |(_, log): &(&MemberId, &Log)| log.is_written && log.records_max > 0;
        let written = self.logs.iter().filter(is_told);
        written.map(|(member, log)| (*member, !log.on_disk.is_empty()))
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
        logs.keep(MEMBER, 8, BadBlocks::default());
        assert!(logs.mark(MEMBER, range(8, 8)));
        assert!(logs.mark(MEMBER, range(10, 2)));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(8, 8)]));
        assert!(logs.is_due(MEMBER) && logs.written().next().is_none());
        let says = logs.begin(MEMBER);
        assert_eq!(says.ranges(), [range(8, 8)]);
        // What comes meanwhile is written next.
        assert!(logs.mark(MEMBER, range(32, 8)));
        assert!(!logs.is_due(MEMBER) && logs.is_any_out());
        assert!(logs.ended(MEMBER, true), "it says something now");
        assert!(logs.is_due(MEMBER));
        assert_eq!(logs.written().collect::<Vec<_>>(), [(MEMBER, true)]);
    }

    #[test]
    fn what_was_written_over_is_believed_when_the_log_says_so() {
        let mut logs = BadLogs::default();
        logs.keep(MEMBER, 8, BadBlocks::new(vec![range(8, 8)]));
        logs.clear(MEMBER, range(0, 12));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(8, 8)]), "not yet");
        assert_eq!(logs.begin(MEMBER).ranges(), [range(12, 4)]);
        logs.clear(MEMBER, range(12, 4));
        assert!(logs.ended(MEMBER, true));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(12, 4)]));
        // One that is named while it is being written, and taken out again before that has ended.
        assert!(logs.mark(MEMBER, range(40, 8)));
        logs.begin(MEMBER);
        logs.clear(MEMBER, range(40, 8));
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(12, 4), range(40, 8)]));
        logs.ended(MEMBER, true);
        assert!(logs.begin(MEMBER).is_empty());
        assert!(!logs.ended(MEMBER, false), "it could not be written");
        assert_eq!(logs.bad_blocks(MEMBER), bad(&[range(40, 8)]));
        logs.begin(MEMBER);
        assert!(logs.ended(MEMBER, true), "it says nothing any more");
        assert_eq!(logs.written().collect::<Vec<_>>(), [(MEMBER, false)]);
    }

    #[test]
    fn a_log_has_room_for_so_many_records() {
        let mut logs = BadLogs::default();
        logs.keep(MEMBER, 2, BadBlocks::new(vec![range(0, 512)]));
        assert!(logs.mark(MEMBER, range(512, 8)), "runs on into the second");
        assert!(!logs.mark(MEMBER, range(2000, 8)));
        assert!(!logs.mark(MemberId(9), range(0, 8)), "it keeps none");
        logs.clear(MEMBER, range(100, 8));
        assert!(logs.bad_blocks(MEMBER).is_some_and(|bad| bad.sectors() == 520));
        logs.clear(MEMBER, range(8, 512));
        assert!(logs.is_due(MEMBER), "a shorter one fits");
    }
}
