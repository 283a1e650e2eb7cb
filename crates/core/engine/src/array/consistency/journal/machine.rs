//! The journal's state: its records, the progress of each, and the tail.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use braid_ondisk::{
    JOURNAL_BLOCK_SECTORS, JOURNAL_SEQUENCE_GAP, JournalArea, JournalPiece, JournalRecord,
    JournalRow,
};
use braid_sim_hooks::{Bug, spoiled};

use super::decide::{Facts, Stage};
use crate::array::setup::JournalSetup;
use crate::effect::LogTicket;
use crate::ids::{MemberId, ShardIndex};

/// The name of a batch to be journaled: its shard, and that shard's ticket.
type Ticket = (ShardIndex, LogTicket);

/// The most sectors of a record, except that a larger single batch gets a record of its own. A
/// record is one write, and the next batches wait for its end.
const RECORD_SECTORS_MAX: u64 = 2048;

#[derive(Debug)]
struct Record {
    position: u64,
    sectors: u64,
    /// The record has no rows: a replay that ends at it finds an empty journal.
    is_empty: bool,
    is_durable: bool,
    /// The record's batches that are not on the members yet.
    live: BTreeSet<Ticket>,
}

impl Record {
    fn is_over(&self) -> bool {
        self.is_durable && self.live.is_empty()
    }
}

/// A summary of the journal, for displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLook {
    /// The journal's device.
    pub member: MemberId,
    /// Sectors of the ring that are in use: records still need them, or they are not freed yet.
    pub used_sectors: u64,
    /// Sectors of the ring.
    pub ring_sectors: u64,
    /// The journal's device has failed: the array takes no writes any more.
    pub has_failed: bool,
}

#[derive(Debug)]
pub(in super::super) struct Journal {
    member: MemberId,
    area: JournalArea,
    /// The place of the next record.
    head: u64,
    /// The sequence number of the next record.
    sequence: u64,
    /// The records from the tail on; empty as long as the ring holds another server's records.
    records: VecDeque<Record>,
    /// The tail in durable superblocks.
    tail: u64,
    /// The tail that the next superblocks record.
    next_tail: u64,
    /// The number of records at the tail whose batches had all ended when the current flush began.
    /// The tail moves past these records when the flush ends.
    flushing: Option<usize>,
    stage: Stage,
    /// Waiting batches with their rows, in order of arrival.
    wanted: VecDeque<(Ticket, Vec<JournalRow>)>,
    /// The part of a record that is in flight.
    out: Option<JournalPiece>,
    /// The record whose second part is still to be written.
    rest: Option<Arc<JournalRecord>>,
    has_failed: bool,
}

impl Journal {
    pub(in super::super) fn new(setup: JournalSetup) -> Self {
        let JournalSetup { member, area, end_sectors, end_sequence, .. } = setup;
        Self {
            member,
            area,
            head: end_sectors,
            sequence: end_sequence.wrapping_add(JOURNAL_SEQUENCE_GAP),
            records: VecDeque::new(),
            tail: area.tail_sectors,
            next_tail: area.tail_sectors,
            flushing: None,
            stage: Stage::Rest,
            wanted: VecDeque::new(),
            out: None,
            rest: None,
            has_failed: false,
        }
    }

    pub(in super::super) fn fails(&mut self) {
        self.has_failed = true;
    }

    /// Whether no write to the journal is in flight, and no record has rows.
    pub(in super::super) fn is_at_rest(&self) -> bool {
        let is_empty = self.records.iter().all(|record| record.is_empty && record.is_durable);
        self.out.is_none() && self.flushing.is_none() && self.wanted.is_empty() && is_empty
    }

    pub(in super::super) fn member(&self) -> MemberId {
        self.member
    }

    pub(in super::super) fn next_tail(&self) -> u64 {
        self.next_tail
    }

    /// Whether the next superblocks free room in the journal.
    pub(in super::super) fn has_unsaid(&self) -> bool {
        self.tail != self.next_tail
    }

    pub(in super::super) fn look(&self) -> JournalLook {
        let Self { member, area, has_failed, .. } = *self;
        let (used_sectors, ring_sectors) = (self.used(), area.ring_sectors);
        JournalLook { member, used_sectors, ring_sectors, has_failed }
    }

    /// Sectors of the ring that must not be overwritten.
    fn used(&self) -> u64 {
        let tail = self.tail;
        let tail = spoiled(Bug::JournalFreedUnsaid, tail, self.next_tail);
        self.area.distance(tail, self.head)
    }

    /// Whether the ring has room for `sectors` sectors. An empty block must fit after them. One
    /// more block stays free, because a full ring would look like an empty one.
    fn has_room(&self, sectors: u64) -> bool {
        let needed = self.used() + sectors + JOURNAL_BLOCK_SECTORS;
        needed < self.area.ring_sectors
    }

    /// The number of records at the tail that are over, without the last durable record, which
    /// stays.
    fn over(&self) -> usize {
        let over = self.records.iter().take_while(|record| record.is_over()).count();
        let is_next_durable = self.records.get(over).is_some_and(|next| next.is_durable);
        if is_next_durable { over } else { over.saturating_sub(1) }
    }

    pub(in super::super) fn facts(&self, superblocks_wait: bool) -> Facts {
        let first = self.wanted.front();
        let has_room = first.is_none_or(|(_, rows)| self.has_room(JournalRecord::sectors_of(rows)));
        let is_settled = self.flushing.is_none() && self.tail == self.next_tail;
        Facts {
            stage: self.stage,
            lacks_blank: superblocks_wait && self.lacks(),
            is_wanted: first.is_some(),
            has_room,
            can_free: is_settled && self.over() > 0,
            is_tight: 2 * self.used() > self.area.ring_sectors,
        }
    }

    pub(in super::super) fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// Whether the block that the next superblocks name as the tail is not durable yet.
    pub(in super::super) fn lacks(&self) -> bool {
        self.records.iter().any(|record| record.is_empty && !record.is_durable)
    }

    /// Begins the journal anew while no write can be in flight and members are flushed. The next
    /// superblocks name an empty block as the tail, and the block must be written.
    pub(in super::super) fn begin_anew(&mut self) {
        assert!(self.stage == Stage::Rest && self.wanted.is_empty(), "no write is under way");
        assert!(self.records.iter().all(|one| one.live.is_empty()), "nor any that is logged");
        if !self.records.back().is_some_and(|record| record.is_empty) {
            let (position, sectors) = (self.head, JOURNAL_BLOCK_SECTORS);
            let live = BTreeSet::new();
            let is_durable = false;
            self.records.push_back(Record { position, sectors, is_empty: true, is_durable, live });
        }
        let last = self.records.pop_back().expect("there is one");
        self.next_tail = last.position;
        self.records.clear();
        self.records.push_back(last);
        self.flushing = None;
    }

    /// Makes the empty block that superblocks wait for.
    pub(in super::super) fn make(&mut self) -> Arc<JournalRecord> {
        assert!(self.lacks() && self.stage == Stage::Rest, "superblocks wait for it");
        let record = self.record(vec![Vec::new()]);
        self.begin(record, true)
    }

    /// Places the next record in the ring.
    fn record(&mut self, metas: Vec<Vec<JournalRow>>) -> JournalRecord {
        let (area, position, sequence) = (self.area, self.head, self.sequence);
        let record = JournalRecord { area, position, sequence, metas };
        self.head = area.after(position, record.sectors());
        let next = sequence.wrapping_add(record.metas.len() as u64);
        self.sequence = next;
        record
    }

    fn begin(&mut self, record: JournalRecord, is_empty: bool) -> Arc<JournalRecord> {
        assert!(self.out.is_none(), "one record at a time");
        let record = Arc::new(record);
        self.stage = Stage::Writing;
        self.out = Some(JournalPiece::First);
        if record.wraps() {
            assert!(!is_empty, "a block is in one place");
            self.rest = Some(Arc::clone(&record));
        }
        record
    }

    pub(in super::super) fn wants(&mut self, ticket: Ticket, rows: Vec<JournalRow>) {
        self.wanted.push_back((ticket, rows));
    }

    /// Notes that a batch is on the members, or cannot reach them any more.
    pub(in super::super) fn is_over(&mut self, ticket: Ticket) {
        self.wanted.retain(|(other, _)| *other != ticket);
        self.records.iter_mut().for_each(|record| {
            record.live.remove(&ticket);
        });
    }

    /// Puts waiting batches into a record, as many as fit.
    pub(in super::super) fn write(&mut self) -> Arc<JournalRecord> {
        assert_eq!(self.stage, Stage::Rest, "one record at a time");
        assert!(!self.records.is_empty(), "superblocks say where it begins");
        let most = RECORD_SECTORS_MAX.min(self.area.ring_sectors / 4);
        let (mut rows, mut live, mut sectors) = (Vec::new(), BTreeSet::new(), 0);
        while let Some((ticket, wanted)) = self.wanted.front() {
            let more = JournalRecord::sectors_of(wanted);
            let fits = live.is_empty() || sectors + more <= most;
            if !fits || !self.has_room(sectors + more) {
                break;
            }
            sectors += more;
            live.insert(*ticket);
            let (_, wanted) = self.wanted.pop_front().expect("just seen");
            rows.extend(wanted);
        }
        assert!(!live.is_empty(), "what was asked for first has room");
        let record = self.record(JournalRecord::dealt(rows));
        let (position, sectors) = (record.position, record.sectors());
        self.records.push_back(Record {
            position,
            sectors,
            is_empty: false,
            is_durable: false,
            live,
        });
        let is_kept =
            self.records.iter().map(|one| one.sectors).sum::<u64>() < self.area.ring_sectors;
        assert!(is_kept, "no record is written over another that counts");
        self.begin(record, false)
    }

    /// Notes that a part of a record is durable, or failed; returns the record if its second part
    /// follows.
    pub(in super::super) fn is_written(&mut self, is_well: bool) -> Option<Arc<JournalRecord>> {
        assert!(self.out.take().is_some(), "it was being written");
        if let Some(rest) = self.rest.take().filter(|_| is_well) {
            self.out = Some(JournalPiece::Rest);
            return Some(rest);
        }
        self.rest = None;
        let last = self.records.back_mut().expect("one was being written");
        last.is_durable = is_well;
        self.stage = if last.is_empty { Stage::Rest } else { Stage::Written };
        None
    }

    /// Called when the last record is durable: returns its batches, which shards may now write to
    /// members.
    pub(in super::super) fn grant(&mut self) -> Vec<Ticket> {
        assert_eq!(self.stage, Stage::Written, "I3: what is written is journaled before");
        self.stage = Stage::Rest;
        let last = self.records.back().expect("one was written");
        last.live.iter().copied().collect()
    }

    pub(in super::super) fn flush_begins(&mut self) {
        assert!(self.flushing.is_none(), "one flush at a time");
        self.flushing = Some(self.over());
    }

    /// Notes that members have flushed the records that were over. True if the next superblocks
    /// move the tail.
    pub(in super::super) fn is_flushed(&mut self) -> bool {
        // The flush has no effect if the array turned clean meanwhile, and the journal began anew.
        let Some(over) = self.flushing.take() else { return false };
        self.records.drain(..over);
        let first = self.records.front().expect("the last record stays");
        self.next_tail = first.position;
        true
    }

    /// Notes that superblocks with this tail are durable: the room before the tail is free.
    pub(in super::super) fn is_said(&mut self, tail: u64) {
        self.tail = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::*;
    use crate::array::consistency::parity_logs::LogAction;

    const RING: u64 = 64 * 8;

    fn journal() -> Journal {
        let area = JournalArea { start_sector: 0, ring_sectors: RING, tail_sectors: 0 };
        let member = MemberId(9);
        let (end_sectors, end_sequence, is_used) = (8, 5, false);
        let setup =
            JournalSetup { member, device_number: 9, area, end_sectors, end_sequence, is_used };
        Journal::new(setup)
    }

    fn ticket(number: u32) -> Ticket {
        (ShardIndex(0), LogTicket(number))
    }

    fn rows(count: u64) -> Vec<JournalRow> {
        let bytes = vec![0; 2 * 4096];
        let row =
            |n| JournalRow { stripe: n * 8, data: vec![n * 8], parities: 1, bytes: bytes.clone() };
        (0..count).map(row).collect()
    }

    /// A journal whose superblocks say clean, or active for the first time.
    fn begun() -> Journal {
        let mut journal = journal();
        journal.begin_anew();
        assert_eq!(decide(&journal.facts(true)), LogAction::Blank);
        let blank = journal.make();
        assert_eq!((blank.position, blank.sequence), (8, 5 + JOURNAL_SEQUENCE_GAP));
        assert!(journal.lacks() && journal.is_written(true).is_none());
        assert!(!journal.lacks());
        journal.is_said(journal.next_tail());
        assert_eq!(journal.look().used_sectors, 8);
        journal
    }

    fn written(journal: &mut Journal) -> Vec<Ticket> {
        assert_eq!(decide(&journal.facts(false)), LogAction::Write);
        let mut next = Some(journal.write());
        while next.is_some() {
            let may = [LogAction::Wait, LogAction::Flush];
            assert!(may.contains(&decide(&journal.facts(false))), "one record at a time");
            next = journal.is_written(true);
        }
        assert_eq!(decide(&journal.facts(false)), LogAction::Grant);
        journal.grant()
    }

    #[test]
    fn what_is_asked_for_meanwhile_goes_together() {
        let mut journal = begun();
        journal.wants(ticket(1), rows(1));
        let first = journal.write();
        assert_eq!((first.position, first.sequence), (16, 6 + JOURNAL_SEQUENCE_GAP));
        journal.wants(ticket(2), rows(1));
        journal.wants(ticket(3), rows(2));
        assert!(journal.is_written(true).is_none());
        assert_eq!(journal.grant(), [ticket(1)]);
        assert_eq!(written(&mut journal), [ticket(2), ticket(3)]);
    }

    #[test]
    fn room_is_free_when_superblocks_say_so() {
        let mut journal = begun();
        for number in 0..4 {
            journal.wants(ticket(number), rows(4));
            written(&mut journal);
        }
        journal.is_over(ticket(1));
        journal.is_over(ticket(0));
        let used = journal.look().used_sectors;
        assert!(2 * used > RING);
        assert_eq!(decide(&journal.facts(false)), LogAction::Flush);
        journal.flush_begins();
        journal.is_over(ticket(2));
        assert!(journal.is_flushed());
        assert_eq!(journal.look().used_sectors, used, "superblocks do not say so");
        assert_eq!(decide(&journal.facts(false)), LogAction::Wait);
        journal.is_said(journal.next_tail());
        // The records of batches 2 and 3 ended after the flush began, so they still take room.
        assert_eq!(journal.look().used_sectors, 2 * 9 * 8);
    }

    /// Batches come as fast as possible, in records of all sizes.
    #[test]
    fn no_record_is_written_over() {
        let mut journal = begun();
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let (mut live, mut counts, mut flushed) = (Vec::new(), [0; 3], false);
        for number in 0..20_000 {
            if journal.wanted.len() < 3 {
                journal.wants(ticket(number), rows(1 + random(4)));
            }
            match decide(&journal.facts(false)) {
                LogAction::Write => {
                    live.extend(written(&mut journal));
                    counts[0] += 1;
                }
                LogAction::Flush => {
                    journal.flush_begins();
                    counts[1] += 1;
                    flushed = true;
                }
                LogAction::Wait => {
                    counts[2] += 1;
                    let is_stuck = live.is_empty() && !flushed && journal.tail == journal.next_tail;
                    assert!(!is_stuck, "{journal:?}");
                }
                other => panic!("{other:?}"),
            }
            let tail = journal.records.front().expect("one stays");
            assert!(tail.is_durable && tail.position == journal.next_tail, "{journal:?}");
            let taken: u64 = journal.records.iter().map(|record| record.sectors).sum();
            assert!(taken <= journal.look().used_sectors && journal.look().used_sectors < RING);
            if flushed && random(2) == 0 {
                flushed = !journal.is_flushed();
            } else if random(2) == 0 {
                journal.is_said(journal.next_tail());
            }
            if !live.is_empty() && random(3) > 0 {
                let one = live.swap_remove(usize::try_from(random(live.len() as u64)).unwrap());
                journal.is_over(one);
            }
        }
        assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
    }

    #[test]
    fn an_array_that_turns_clean_leaves_it_empty() {
        let mut journal = begun();
        journal.wants(ticket(1), rows(3));
        written(&mut journal);
        journal.is_over(ticket(1));
        journal.begin_anew();
        let blank = journal.make();
        assert_eq!(blank.position, 16 + 7 * 8);
        assert!(journal.is_written(true).is_none());
        journal.is_said(journal.next_tail());
        assert_eq!(journal.look().used_sectors, 8);
        // The journal stays failed.
        journal.begin_anew();
        assert!(!journal.lacks());
    }
}
