//! The state of parity logs: the content of each member's log, and the batches that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_geometry::{Geometry, Slot, StripeGeometry};
use braid_ondisk::{
    LogPlace, LoggedEntry, OwnLogPlace, PPL_ENTRIES_MAX, PPL_HEADER_SECTORS, PplEntry, PplPlace,
};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::decide::{Facts, Stage};
use super::rows::LoggedRows;
use crate::array::parity_log_record::ParityLogRecord;
use crate::array::setup::ParityLogSetup;
use crate::effect::LogTicket;
use crate::ids::{MemberId, ShardIndex};

/// Sectors of the largest stripe unit.
const BAND_SECTORS_MAX: u64 = 128;

/// The name of a batch to be logged: its shard, and that shard's ticket.
type Ticket = (ShardIndex, LogTicket);

/// The content of a log's area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogContent {
    Unknown,
    /// The area has no record that a server would believe.
    Nothing,
    /// Records of this array, and no other bytes that look like a record.
    Records,
    /// No head: the log cannot be found.
    NoLog,
}

#[derive(Debug)]
struct Log {
    place: LogPlace,
    /// The generation of the newest record in the area.
    generation: u64,
    /// The place of the next record, if the record fits there.
    next_sector: u64,
    holds: LogContent,
    /// The number of records since members were last flushed: these records count together with the
    /// next one.
    since: u32,
    /// Sectors of the ring that the `since` records take, with any gap at the end of the ring.
    taken: u64,
}

impl Log {
    fn new(setup: ParityLogSetup) -> Self {
        let ParityLogSetup { place, newest } = setup;
        let (generation, mut next_sector) = newest.unwrap_or((0, 0));
        if place.ppl().is_none() {
            next_sector = next_sector.next_multiple_of(PPL_HEADER_SECTORS);
        }
        let holds = if newest.is_some() { LogContent::Records } else { LogContent::Unknown };
        Self { place, generation, next_sector, holds, since: 0, taken: 0 }
    }

    /// Sectors that records may take from one flush to the next, if several records may count: half
    /// of the ring. So the ring holds the records of one lap and of the lap before; the older
    /// records count until the first of the next lap is durable. `largest` is one band's record,
    /// which must fit after any other record at the start of a lap.
    fn lap_sectors(&self, largest: u64) -> Option<u64> {
        let half = self.place.used_sectors() / 2;
        (self.place.is_many() && half >= 2 * largest).then_some(half)
    }

    /// The place of a record of `sectors` sectors, and the room that the record takes of the ring.
    fn next_place(&self, sectors: u64) -> (u64, u64) {
        let used = self.place.used_sectors();
        let next = if self.place.is_ring() { self.next_sector } else { 0 };
        // Linux 6.1 misses a header at the area's very end, and follows records without a gap.
        if next + sectors >= used || !next.is_multiple_of(PPL_HEADER_SECTORS) {
            return (0, used.saturating_sub(next) + sectors);
        }
        (next, sectors)
    }

    /// Whether a record of `sectors` sectors can be written before a flush.
    fn has_room(&self, sectors: u64, largest: u64) -> bool {
        let fits = sectors <= self.place.used_sectors();
        let Some(lap) = self.lap_sectors(largest) else { return fits && self.since == 0 };
        let lap = spoiled(Bug::LogLapOverwritten, lap, u64::MAX);
        let (_, taken) = self.next_place(sectors.next_multiple_of(PPL_HEADER_SECTORS));
        fits && self.taken + taken <= lap
    }

    /// Makes the next record, and reserves its place.
    fn record(&mut self, entries: Vec<LoggedEntry>) -> Arc<ParityLogRecord> {
        let mut sectors = sectors_of(&entries);
        assert!(sectors <= self.place.used_sectors(), "what is logged together fits");
        if self.place.ppl().is_none() {
            // Members write whole blocks anyway. md allows no gaps, but never reads braid's own
            // log.
            sectors = sectors.next_multiple_of(PPL_HEADER_SECTORS);
        }
        let (sector, taken) = self.next_place(sectors);
        let before = self.since;
        if before > 0 {
            reached(if sector == 0 { Mark::LogGoesRound } else { Mark::LogCountsBeside });
        }
        self.since += 1;
        self.taken += taken;
        let generation = self.generation + 1;
        (self.generation, self.next_sector) = (generation, sector + sectors);
        let generation = Some(generation);
        Arc::new(ParityLogRecord {
            place: self.place,
            sector,
            generation,
            before,
            entries,
            is_whole: false,
            is_end: false,
        })
    }
}

fn sectors_of(entries: &[LoggedEntry]) -> u64 {
    let bytes: u64 = entries.iter().map(|one| u64::from(one.entry.parity_bytes)).sum();
    PPL_HEADER_SECTORS + bytes / braid_geometry::SECTOR_BYTES
}

/// A shard's entries to be logged, for each member that gets them: members with the parities, and
/// their replacements.
#[derive(Debug)]
struct LogRequest {
    ticket: Ticket,
    /// The entries of one parity, which name all rows that the batch writes.
    rows: Vec<PplEntry>,
    of_members: BTreeMap<MemberId, Vec<LoggedEntry>>,
}

/// The kind of an update of superblocks, as far as it matters for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum News {
    /// No write is in flight, and none begins before the update: the array turns active or clean.
    Drained {
        /// Parity agrees with the data everywhere.
        in_sync: bool,
    },
    /// Writes continue during the update.
    Other,
}

#[derive(Debug)]
pub(in super::super) struct ParityLogs {
    geometry: StripeGeometry,
    /// Sectors of the largest record that one band makes.
    largest: u64,
    logs: BTreeMap<MemberId, Log>,
    /// Shards log every write.
    is_on: bool,
    /// Superblocks mark braid's own log as valid: it names all sectors that may be in doubt.
    counts: bool,
    stage: Stage,
    /// Waiting requests, in order of arrival.
    wanted: Vec<LogRequest>,
    /// Batches whose records are in flight, or wait to be granted.
    round: BTreeSet<Ticket>,
    /// Batches that were granted, and whose writes have not ended.
    live: BTreeSet<Ticket>,
    /// Rows that were logged since members were flushed last.
    rows: LoggedRows,
    out: BTreeSet<MemberId>,
    /// Members to which an empty log, or the removal of the log, is being written.
    blanks: BTreeMap<MemberId, LogContent>,
}

impl ParityLogs {
    /// `is_in_file`: one log, in the bitmap file, serves all members.
    pub(in super::super) fn new(
        geometry: &Geometry,
        is_in_file: bool,
        setup: impl IntoIterator<Item = (MemberId, ParityLogSetup)>,
        counts: bool,
    ) -> Self {
        let Geometry::Stripe(geometry) = geometry else {
            unreachable!("levels with parity have logs")
        };
        let unit = u64::from(geometry.chunk_sectors()).min(BAND_SECTORS_MAX);
        let parities = if is_in_file { u64::from(geometry.parity_slots()) } else { 1 };
        let largest = PPL_HEADER_SECTORS + parities * unit;
        Self {
            geometry: *geometry,
            largest: largest.next_multiple_of(PPL_HEADER_SECTORS),
            logs: setup.into_iter().map(|(member, log)| (member, Log::new(log))).collect(),
            is_on: false,
            counts,
            stage: Stage::Rest,
            wanted: Vec::new(),
            round: BTreeSet::new(),
            live: BTreeSet::new(),
            rows: LoggedRows::default(),
            out: BTreeSet::new(),
            blanks: BTreeMap::new(),
        }
    }

    /// The place of braid's own log on members. The place has the smallest size of all members'
    /// places, as a record goes to several members.
    pub(in super::super) fn own_place(&self) -> Option<OwnLogPlace> {
        let own = self.logs.values().filter_map(|log| match log.place {
            LogPlace::Own(place) => Some(place),
            LogPlace::Ppl(_) => None,
        });
        own.min_by_key(|place| place.size_sectors)
    }

    /// Members with md's log, and the place of each log.
    pub(in super::super) fn ppls(&self) -> impl Iterator<Item = (MemberId, PplPlace)> {
        self.logs.iter().filter_map(|(member, log)| Some((*member, log.place.ppl()?)))
    }

    /// Those of `members` that must wipe out their log's head, because the array has dropped
    /// braid's own log.
    fn with_head(&self, members: impl Iterator<Item = MemberId>) -> impl Iterator<Item = MemberId> {
        let has_head =
            |log: &Log| matches!(log.place, LogPlace::Own(_)) && log.holds != LogContent::NoLog;
        members.filter(move |member| self.logs.get(member).is_some_and(has_head))
    }

    /// Whether no head of braid's own log is left on these members.
    pub(in super::super) fn are_wiped_out(&self, members: impl Iterator<Item = MemberId>) -> bool {
        self.with_head(members).next().is_none()
    }

    /// The records that wipe out the heads of these members' logs.
    pub(in super::super) fn wipe_out(
        &mut self,
        members: impl Iterator<Item = MemberId>,
    ) -> Vec<(MemberId, Arc<ParityLogRecord>)> {
        assert!(!self.is_out() && self.live.is_empty(), "nothing is logged any more");
        let due: Vec<MemberId> = self.with_head(members).collect();
        let record = |member: &MemberId| {
            let (place, sector, entries) = (self.logs[member].place, 0, Vec::new());
            let (generation, before, is_whole, is_end) = (None, 0, false, true);
            let record =
                ParityLogRecord { place, sector, generation, before, entries, is_whole, is_end };
            (*member, Arc::new(record))
        };
        let records = due.iter().map(record).collect();
        self.blanks.extend(due.into_iter().map(|member| (member, LogContent::NoLog)));
        records
    }

    /// Notes a new member with room for a log.
    pub(in super::super) fn keep(&mut self, member: MemberId, place: LogPlace) {
        self.logs.insert(member, Log::new(ParityLogSetup { place, newest: None }));
    }

    /// The facts of the logs. `lacks`: superblocks wait for members' logs.
    pub(in super::super) fn facts(&self, lacks: bool, has_unrecorded: bool) -> Facts {
        Facts {
            stage: self.stage,
            is_wanted: !self.wanted.is_empty(),
            has_room: self.wanted.first().is_some_and(|first| self.has_room(first)),
            lacks_blank: lacks && self.blanks.is_empty(),
            has_unrecorded,
        }
    }

    /// Whether the first waiting batch can be logged before a flush.
    fn has_room(&self, LogRequest { rows, of_members, .. }: &LogRequest) -> bool {
        let has_room = |(member, entries): (&MemberId, &Vec<LoggedEntry>)| {
            let log = &self.logs[member];
            log.holds != LogContent::Records || log.has_room(sectors_of(entries), self.largest)
        };
        self.may_follow(rows) && of_members.iter().all(has_room)
    }

    /// Whether these rows can be logged before a flush.
    fn may_follow(&self, rows: &[PplEntry]) -> bool {
        let may_follow = rows.iter().all(|entry| self.rows.may_follow(&self.geometry, entry));
        if !may_follow {
            reached(Mark::LogRowsMeet);
        }
        may_follow
    }

    /// Whether a write to members is in flight.
    pub(in super::super) fn is_out(&self) -> bool {
        !self.out.is_empty() || !self.blanks.is_empty()
    }

    pub(in super::super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The content that logs must have before an update of superblocks.
    fn wanted_by(&self, news: News) -> Option<LogContent> {
        match news {
            News::Drained { in_sync: true } => Some(LogContent::Records),
            // A partly emptied log ends with an older record. So superblocks first stop marking the
            // log as valid.
            News::Drained { in_sync: false } if self.counts => None,
            News::Drained { in_sync: false } => Some(LogContent::Nothing),
            News::Other => self.is_on.then_some(LogContent::Records),
        }
    }

    /// Whether the log of any of these members lacks the content that an update needs.
    pub(in super::super) fn lacks(
        &self,
        mut members: impl Iterator<Item = MemberId>,
        news: News,
    ) -> bool {
        let Some(wanted) = self.wanted_by(news) else { return false };
        members.any(|member| self.logs.get(&member).is_none_or(|log| log.holds != wanted))
    }

    /// Whether an update of superblocks stamps braid's own log as valid, unless the update says
    /// clean.
    pub(in super::super) fn will_count(&self, news: News) -> bool {
        let is_own = self.own_place().is_some();
        let counts = match news {
            News::Drained { in_sync } => in_sync,
            News::Other => self.counts,
        };
        is_own && counts
    }

    /// Notes that an update of superblocks is durable. Before the update, logs got the content that
    /// it needed.
    pub(in super::super) fn is_said(&mut self, news: News) {
        if let News::Drained { in_sync } = news {
            assert!(in_sync || !self.is_on, "I7: what was in sync stays so");
            if self.counts && !in_sync {
                // Old records are useless from now on, and must not be mistaken for valid ones.
                self.logs.values_mut().for_each(|log| log.holds = LogContent::Unknown);
            }
            self.is_on = in_sync;
            self.counts = in_sync;
        }
    }

    /// Takes a shard's entries for the logs of the members that are in the parity slots now.
    pub(in super::super) fn wants<M: Iterator<Item = MemberId>>(
        &mut self,
        ticket: Ticket,
        entries: &[LoggedEntry],
        members_of: impl Fn(Slot) -> M,
    ) {
        let mut of_members: BTreeMap<MemberId, Vec<LoggedEntry>> = BTreeMap::new();
        for entry in entries {
            let slot = u16::try_from(entry.entry.parity_slot).expect("a shard names its own slots");
            for member in members_of(Slot(slot)) {
                of_members.entry(member).or_default().push(entry.clone());
            }
        }
        let rows = entries.iter().map(|one| one.entry).collect();
        self.wanted.push(LogRequest { ticket, rows, of_members });
    }

    /// Notes that a batch is on the members, or cannot reach them any more.
    pub(in super::super) fn is_over(&mut self, ticket: Ticket) {
        self.wanted.retain(|wanted| wanted.ticket != ticket);
        self.round.remove(&ticket);
        self.live.remove(&ticket);
        if self.stage == Stage::Live && self.live.is_empty() {
            self.stage = Stage::Over;
        }
    }

    /// The records that an update needs in these members' logs, if a log lacks its record.
    pub(in super::super) fn make(
        &mut self,
        members: impl Iterator<Item = MemberId>,
        news: News,
    ) -> Vec<(MemberId, Arc<ParityLogRecord>)> {
        reached(Mark::LogIsMade);
        let wanted = self.wanted_by(news).expect("superblocks wait for it");
        let mut records = Vec::new();
        for member in members {
            let log = self.logs.get_mut(&member).expect("it comes with room for a log");
            if log.holds != wanted {
                let place = log.place.made_anew();
                *log = Log::new(ParityLogSetup { place, newest: None });
                (log.generation, log.next_sector) = (1, PPL_HEADER_SECTORS);
                let generation = (wanted == LogContent::Records).then_some(log.generation);
                let (sector, entries) = (0, Vec::new());
                let record = ParityLogRecord {
                    place,
                    sector,
                    generation,
                    before: 0,
                    entries,
                    is_whole: true,
                    is_end: false,
                };
                records.push((member, Arc::new(record)));
                self.blanks.insert(member, wanted);
            }
        }
        records
    }

    /// Puts waiting batches into one record for each member, as many batches as fit. `is_in`: the
    /// member is in the array.
    pub(in super::super) fn write(
        &mut self,
        is_in: impl Fn(MemberId) -> bool,
    ) -> Vec<(MemberId, Arc<ParityLogRecord>)> {
        assert!(self.round.is_empty() && self.out.is_empty(), "one round at a time");
        let mut records: BTreeMap<MemberId, Vec<LoggedEntry>> = BTreeMap::new();
        let mut full = BTreeSet::new();
        let mut later = Vec::new();
        for LogRequest { ticket, rows, mut of_members } in std::mem::take(&mut self.wanted) {
            // Shards do not write yet to a member that is just joining the array.
            let is_ready =
                |one: &MemberId| is_in(*one) && self.logs[one].holds == LogContent::Records;
            of_members.retain(|member, _| is_ready(member));
            let has_room = |(member, entries): (&MemberId, &Vec<LoggedEntry>)| {
                let logged = records.get(member).map(Vec::as_slice).unwrap_or_default();
                let sectors = sectors_of(logged) + sectors_of(entries) - PPL_HEADER_SECTORS;
                let count_max = usize::try_from(PPL_ENTRIES_MAX).expect("a header has few");
                let fits = self.logs[member].has_room(sectors, self.largest);
                fits && logged.len() + entries.len() <= count_max && !full.contains(member)
            };
            if !self.may_follow(&rows) || !of_members.iter().all(has_room) {
                reached(Mark::LogIsFull);
                full.extend(of_members.keys().copied());
                later.push(LogRequest { ticket, rows, of_members });
                continue;
            }
            for (member, entries) in of_members {
                records.entry(member).or_default().extend(entries);
            }
            rows.iter().for_each(|entry| self.rows.add(&self.geometry, entry));
            self.round.insert(ticket);
        }
        assert!(!self.round.is_empty(), "what is wanted alone has room");
        if self.round.len() > 1 {
            reached(Mark::LogTakesSeveral);
        }
        self.wanted = later;
        self.out = records.keys().copied().collect();
        // A batch whose parity has no member any more needs no record.
        self.stage = if self.out.is_empty() { Stage::Written } else { Stage::Writing };
        let log = |(member, entries)| {
            let log = self.logs.get_mut(&member).expect("whoever is in has a log");
            (member, log.record(entries))
        };
        let records: Vec<_> = records.into_iter().map(log).collect();
        if planted(Bug::LogOnFirstMember) {
            self.out = self.out.iter().copied().take(1).collect();
        }
        records
    }

    pub(in super::super) fn is_written(&mut self, member: MemberId, is_well: bool) {
        if let Some(holds) = self.blanks.remove(&member) {
            let log = self.logs.get_mut(&member).expect("it was being made");
            log.holds = if is_well { holds } else { LogContent::Unknown };
            return;
        }
        let was_out = self.out.remove(&member);
        if planted(Bug::LogOnFirstMember) && !was_out {
            return;
        }
        assert!(was_out, "it was being written");
        if self.out.is_empty() {
            self.stage = Stage::Written;
        }
    }

    /// Called when records are durable, and members that failed to write them are out: returns the
    /// records' batches.
    pub(in super::super) fn grant(&mut self) -> Vec<Ticket> {
        assert_eq!(self.stage, Stage::Written, "I3: what is written is logged before");
        let granted: Vec<Ticket> = std::mem::take(&mut self.round).into_iter().collect();
        self.live.extend(granted.iter().copied());
        self.stage = if self.live.is_empty() { Stage::Over } else { Stage::Live };
        granted
    }

    /// For logs that are dropped: all batches that wait for a record, or whose record is still
    /// needed.
    pub(in super::super) fn waiting(&self) -> impl Iterator<Item = Ticket> {
        self.round.iter().copied().chain(self.wanted.iter().map(|wanted| wanted.ticket))
    }

    pub(in super::super) fn flush_begins(&mut self) {
        assert_eq!(self.stage, Stage::Over, "what was logged is on the members");
        self.stage = Stage::Flushing;
    }

    /// Called as the array turns clean: all writes are on the members, and flushed.
    pub(in super::super) fn all_is_flushed(&mut self) {
        if self.stage == Stage::Over {
            self.begin_lap();
        }
    }

    fn begin_lap(&mut self) {
        self.stage = Stage::Rest;
        self.rows.are_flushed();
        for log in self.logs.values_mut() {
            (log.since, log.taken) = (0, 0);
        }
    }

    /// Called when members are flushed: the records are not needed any more.
    pub(in super::super) fn is_flushed(&mut self) {
        assert_eq!(self.stage, Stage::Flushing, "members were being flushed");
        self.begin_lap();
    }
}
