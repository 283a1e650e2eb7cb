//! The machine of a journal's replay: jobs one after the other, then the end; one effect at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use braid_geometry::{ChunkRow, MemberSector, Role, RowMap, Slot, StripeGeometry};
use braid_ondisk::{
    JOURNAL_BLOCK_SECTORS, JOURNAL_SEQUENCE_GAP, JournalLog, JournalMeta, JournalPayload,
};
use braid_sim_hooks::{Bug, planted, spoiled};

use super::super::machine::{Finish, Member, add};
use super::decide::{Decision, Facts, Job, Phase, decide};
use super::plan::{EntryError, Stripe, stripes};

/// The input of a replay.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The array's geometry.
    pub geometry: StripeGeometry,
    /// The members, by slot.
    pub members: Vec<Option<Member>>,
    /// Whether superblocks still count a missing member as valid, so that it could return without
    /// the data of this replay.
    pub may_return: bool,
    /// The journal's content.
    pub log: &'a JournalLog,
    /// The wanted end; [`Finish::Settled`] moves the tail if allowed.
    pub finish: Finish,
}

/// A request of the current stripe. Every slot has a buffer of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read a member's block into its buffer.
    Read {
        /// The slot.
        slot: Slot,
        /// Sectors of the member's data.
        sectors: Range<u64>,
    },
    /// Read a block of the journal into the buffer of a slot.
    Load {
        /// The block's slot.
        slot: Slot,
        /// Position in the ring, in sectors.
        position: u64,
    },
    /// Compute the data of some slots into their buffers.
    Solve {
        /// The row.
        row: ChunkRow,
        /// All data slots whose buffers are not valid.
        lost: Vec<Slot>,
        /// Parity slots whose buffers are valid.
        parities: Vec<Slot>,
    },
    /// Make parity of all data, into the buffers of its slots.
    Make {
        /// The row.
        row: ChunkRow,
    },
    /// Write parity buffers into the journal, and keep their checksums for the stripe's meta block.
    Keep {
        /// First sector of the stripe.
        stripe: u64,
        /// Slots and positions in the ring, P before Q.
        blocks: Vec<(Slot, u64)>,
    },
    /// Write a meta block that names the parity of stripes.
    WriteMeta {
        /// Position in the ring, in sectors.
        position: u64,
        /// Sequence number of the meta block.
        sequence: u64,
        /// First sectors of the stripes; none for an empty meta block.
        stripes: Vec<u64>,
    },
    /// Fill a block of the journal with zeroes.
    Clear {
        /// Position in the ring, in sectors.
        position: u64,
    },
    /// Flush the journal.
    FlushJournal,
    /// Write part of a buffer to its member.
    Write {
        /// The member's slot.
        slot: Slot,
        /// Sectors of the member's data.
        sectors: Range<u64>,
        /// Offset of the written part in the buffer, in sectors.
        from_sector: u64,
    },
    /// Flush a member.
    Flush {
        /// The member's slot.
        slot: Slot,
    },
    /// Write this tail to the journal's superblock, durably.
    MoveTail {
        /// Position in the ring, in sectors.
        position: u64,
    },
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of stripes in the journal.
    pub stripes: u64,
    /// Number of stripes of which the journal had data and no parity.
    pub pending_stripes: u64,
    /// Sectors that were written to members, or to memory laid over members.
    pub written_sectors: u64,
    /// Ranges whose new data stays in the journal, without parity: reads return their old data. In
    /// order.
    pub unsettled: Vec<Range<u64>>,
    /// Whether the replay moved the tail.
    pub is_settled: bool,
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailedRequest {
    /// A write of a member.
    Write(Slot),
    /// A flush of a member.
    Flush(Slot),
    /// A read of the journal.
    JournalRead,
    /// A write or a flush of the journal.
    JournalWrite,
    /// A write of the journal's superblock.
    Tail,
}

impl std::fmt::Display for FailedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write(slot) => write!(f, "slot {slot} could not be written"),
            Self::Flush(slot) => write!(f, "slot {slot} could not be flushed"),
            Self::JournalRead => f.write_str("the journal could not be read"),
            Self::JournalWrite => f.write_str("the journal could not be written"),
            Self::Tail => f.write_str("the journal's superblock could not be written"),
        }
    }
}

/// A replay's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReplayError {
    /// The journal has an entry that the array cannot have.
    #[error("its journal makes no sense: {0}")]
    Entry(#[from] EntryError),
    /// The journal has no room for the parity of pending stripes.
    #[error("the journal has {free_sectors} sectors free, and parity needs {needed_sectors}")]
    NoRoom {
        /// Free sectors in the journal.
        free_sectors: u64,
        /// Sectors that the parity needs.
        needed_sectors: u64,
    },
    /// A request failed.
    #[error("{0}")]
    Failed(FailedRequest),
}

/// The state of a column of a pending stripe's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseColumn {
    Read,
    Lost,
}

/// A meta block to be written, and the stripes whose parity it names.
struct Group {
    position: u64,
    sequence: u64,
    stripes: Vec<u64>,
}

/// The machine of a journal's replay. The driver polls effects and answers each, until
/// [`Self::end`] returns the result.
pub struct Replay {
    geometry: StripeGeometry,
    members: Vec<Option<Member>>,
    area: braid_ondisk::JournalArea,
    is_durable: bool,
    may_settle: bool,
    /// The position of the journal's end, and the sequence number of a meta block there.
    end: (u64, u64),
    groups: Vec<Group>,
    stripes: Vec<Stripe>,
    jobs: VecDeque<(Job, usize)>,
    /// Index of the current stripe.
    current: usize,
    base: BTreeMap<Slot, BaseColumn>,
    phase: Phase,
    effects: VecDeque<Effect>,
    asked: Option<Effect>,
    failed: Option<ReplayError>,
    report: Report,
}

impl Replay {
    /// Makes the machine, which has no effect yet.
    ///
    /// # Errors
    /// If the array cannot have an entry, or the journal has no room for the blocks that the replay
    /// adds.
    ///
    /// # Panics
    /// If `setup` does not have one member entry for each slot.
    pub fn new(setup: Setup<'_>) -> Result<Self, ReplayError> {
        let Setup { geometry, members, may_return, log, finish } = setup;
        assert_eq!(members.len(), usize::from(geometry.slots()), "one for each slot");
        let stripes = stripes(&geometry, &log.entries)?;
        let is_durable = finish != Finish::Written;
        let pending: Vec<usize> =
            (0..stripes.len()).filter(|index| !stripes[*index].pending.is_empty()).collect();
        let free_sectors = log.free_sectors();
        let needed_sectors = needed_sectors(pending.len() as u64, &geometry);
        if is_durable && !pending.is_empty() && needed_sectors > free_sectors {
            return Err(ReplayError::NoRoom { free_sectors, needed_sectors });
        }
        let mut jobs: VecDeque<(Job, usize)> =
            pending.iter().map(|index| (Job::Settle, *index)).collect();
        jobs.extend((is_durable && !pending.is_empty()).then_some((Job::Seal, 0)));
        // For a replay in memory, a pending stripe is written when its parity is computed.
        let is_copied = |index: &usize| is_durable || stripes[*index].pending.is_empty();
        jobs.extend((0..stripes.len()).filter(is_copied).map(|index| (Job::Copy, index)));
        let may_return = spoiled(Bug::JournalTailDegraded, may_return, false);
        let report = Report {
            stripes: stripes.len() as u64,
            pending_stripes: pending.len() as u64,
            ..Report::default()
        };
        Ok(Self {
            geometry,
            members,
            area: log.area,
            is_durable,
            may_settle: finish == Finish::Settled && !may_return,
            end: (log.end_sectors, log.end_sequence),
            groups: Vec::new(),
            stripes,
            jobs,
            current: 0,
            base: BTreeMap::new(),
            phase: Phase::Between,
            effects: VecDeque::new(),
            asked: None,
            failed: None,
            report,
        })
    }

    /// The next effect; `None` while an answer is due, and at the end.
    pub fn poll(&mut self) -> Option<Effect> {
        loop {
            if self.asked.is_some() {
                return None;
            }
            if let Some(effect) = self.effects.pop_front().filter(|_| self.failed.is_none()) {
                self.asked = Some(effect.clone());
                return Some(effect);
            }
            self.effects.clear();
            match decide(&self.facts()) {
                Decision::Wait => return None,
                decision => self.act(decision),
            }
        }
    }

    /// Takes the result of the effect in flight: whether it succeeded.
    ///
    /// # Panics
    /// If no effect is in flight.
    pub fn handle(&mut self, is_done: bool) {
        let effect = self.asked.take().expect("something was asked for");
        if let Effect::Read { slot, .. } = effect {
            let column = if is_done { BaseColumn::Read } else { BaseColumn::Lost };
            self.base.insert(slot, column);
            return;
        }
        let failed = match effect {
            Effect::Write { slot, .. } => FailedRequest::Write(slot),
            Effect::Flush { slot } => FailedRequest::Flush(slot),
            Effect::Load { .. } => FailedRequest::JournalRead,
            Effect::MoveTail { .. } => FailedRequest::Tail,
            _ => FailedRequest::JournalWrite,
        };
        if !is_done {
            self.failed.get_or_insert(ReplayError::Failed(failed));
        }
    }

    /// Returns the result once the replay has ended.
    pub fn end(&mut self) -> Option<Result<Report, ReplayError>> {
        let is_over = self.phase == Phase::Done;
        is_over.then(|| match self.failed {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.report)),
        })
    }

    /// The payload entry in a meta block that names a stripe's parity.
    #[must_use]
    pub fn payload(stripe: u64, checksums: Vec<u32>) -> JournalPayload {
        JournalPayload::Parity { location: stripe, checksums }
    }

    fn facts(&self) -> Facts {
        let is_base = self.phase == Phase::Base;
        let lost = if is_base { self.lost() } else { Vec::new() };
        let lacks_kept = lost.iter().any(|slot| self.is_kept(*slot));
        Facts {
            phase: self.phase,
            is_pending: self.asked.is_some(),
            has_failed: self.failed.is_some(),
            job: self.jobs.front().map(|(job, _)| *job),
            wants_column: is_base && self.wanted().is_some(),
            lacks_kept,
            can_solve: is_base && lost.len() <= self.parities().len(),
            is_durable: self.is_durable,
            has_stripes: !self.stripes.is_empty(),
            may_restart: self.may_settle && self.report.unsettled.is_empty(),
        }
    }

    fn stripe(&self) -> &Stripe {
        &self.stripes[self.current]
    }

    fn row(&self) -> (ChunkRow, RowMap) {
        let row = self.geometry.row_of(MemberSector(self.stripe().sector));
        (row, self.geometry.row_map(row))
    }

    fn sectors(&self) -> Range<u64> {
        let start = self.stripe().sector;
        start..start + JOURNAL_BLOCK_SECTORS
    }

    fn data_slots(&self) -> Vec<Slot> {
        let (_, map) = self.row();
        (0..map.data_slots()).map(|index| map.data_slot(index)).collect()
    }

    fn parity_slots(&self) -> Vec<Slot> {
        let (_, map) = self.row();
        std::iter::once(map.p_slot()).chain(map.q_slot()).collect()
    }

    /// Whether the slot has data that the stripe's pending blocks do not replace.
    fn is_kept(&self, slot: Slot) -> bool {
        !self.stripe().pending.contains_key(&slot)
    }

    fn is_lost(&self, slot: Slot) -> bool {
        self.base.get(&slot) == Some(&BaseColumn::Lost)
    }

    /// Slots whose data in the base is missing.
    fn lost(&self) -> Vec<Slot> {
        self.data_slots().into_iter().filter(|slot| self.is_lost(*slot)).collect()
    }

    /// Slots whose parity in the base is known.
    fn parities(&self) -> Vec<Slot> {
        let is_read = |slot: &Slot| self.base.get(slot) == Some(&BaseColumn::Read);
        self.parity_slots().into_iter().filter(is_read).collect()
    }

    /// The next column of the base to read: a kept column, or any column if a kept one is missing.
    fn wanted(&self) -> Option<Slot> {
        let all = self.data_slots();
        let lacks_kept = all.iter().any(|slot| self.is_kept(*slot) && self.is_lost(*slot));
        let wanted = all.into_iter().filter(|slot| lacks_kept || self.is_kept(*slot));
        let parities = self.parity_slots().into_iter().filter(|_| lacks_kept);
        wanted.chain(parities).find(|slot| !self.base.contains_key(slot))
    }

    fn act(&mut self, decision: Decision) {
        match decision {
            Decision::Wait => {}
            Decision::Begin => {
                self.begin();
                self.phase = Phase::Base;
            }
            Decision::Fetch => self.fetch(),
            Decision::Solve => self.solve(),
            Decision::Take => self.take(),
            Decision::Leave => self.leave(),
            Decision::Make => {
                let (row, _) = self.row();
                self.ask(Phase::Make, [Effect::Make { row }]);
            }
            Decision::Keep => self.keep(),
            Decision::Seal => self.seal(),
            Decision::Commit => self.commit(),
            Decision::Load => self.load(),
            Decision::Write => self.write(),
            Decision::Next => self.phase = Phase::Between,
            Decision::Flush => {
                let slots = (0..self.geometry.slots()).map(Slot);
                let there = slots.filter(|slot| self.members[slot.index()].is_some());
                let flushes: Vec<Effect> = there.map(|slot| Effect::Flush { slot }).collect();
                self.ask(Phase::Flush, flushes);
            }
            Decision::Restart => self.restart(),
            Decision::MoveTail => {
                let (position, _) = self.end;
                self.ask(Phase::Tail, [Effect::MoveTail { position }]);
            }
            Decision::Finish => {
                self.report.is_settled = self.phase == Phase::Tail;
                self.phase = Phase::Done;
            }
            Decision::Fail => self.phase = Phase::Done,
        }
    }

    fn ask(&mut self, phase: Phase, effects: impl IntoIterator<Item = Effect>) {
        self.phase = phase;
        self.effects.extend(effects);
    }

    fn begin(&mut self) {
        let (_, index) = self.jobs.pop_front().expect("there is a job");
        self.current = index;
        self.base.clear();
    }

    /// Reads the base: committed blocks from the journal, the other blocks from members.
    fn fetch(&mut self) {
        let slot = self.wanted().expect("a column is wanted");
        let sectors = self.sectors();
        let committed = self.stripe().committed.get(&slot).copied();
        if let Some(position) = committed {
            self.base.insert(slot, BaseColumn::Read);
            return self.effects.push_back(Effect::Load { slot, position });
        }
        let member = self.members[slot.index()].as_ref();
        if member.is_some_and(|member| member.holds(&sectors)) {
            return self.effects.push_back(Effect::Read { slot, sectors });
        }
        self.base.insert(slot, BaseColumn::Lost);
    }

    fn solve(&mut self) {
        let (row, _) = self.row();
        let (lost, parities) = (self.lost(), self.parities());
        self.ask(Phase::Solve, [Effect::Solve { row, lost, parities }]);
    }

    fn take(&mut self) {
        let pending = self.stripe().pending.iter();
        let loads: Vec<Effect> = pending
            .map(|(slot, position)| Effect::Load { slot: *slot, position: *position })
            .collect();
        self.ask(Phase::Take, loads);
    }

    /// Leaves the stripe's new data in the journal, and the stripe on the members in its committed
    /// state.
    fn leave(&mut self) {
        let pending = std::mem::take(&mut self.stripes[self.current].pending);
        let (row, map) = self.row();
        let offset = self.stripe().sector - self.geometry.row_start(row).0;
        let offset = u32::try_from(offset).expect("within a chunk");
        for slot in pending.into_keys() {
            let Role::Data(index) = map.role(slot) else { unreachable!("only data is pending") };
            let start = self.geometry.logical(row, index, offset).0;
            add(&mut self.report.unsettled, start..start + JOURNAL_BLOCK_SECTORS);
        }
        if !self.is_durable {
            self.jobs.push_front((Job::Copy, self.current));
        }
        self.phase = Phase::Between;
    }

    /// Writes parity after the journal's end, with room for a meta block before the first parity of
    /// each group.
    fn keep(&mut self) {
        let sector = self.stripe().sector;
        let most = stripes_of_meta(&self.geometry);
        let is_full = self.groups.last().is_none_or(|group| group.stripes.len() == most);
        let (mut position, mut sequence) = self.end;
        if is_full {
            self.groups.push(Group { position, sequence, stripes: Vec::new() });
            position = self.area.after(position, JOURNAL_BLOCK_SECTORS);
            sequence = sequence.wrapping_add(1);
        }
        self.groups.last_mut().expect("one was pushed").stripes.push(sector);
        let mut blocks = Vec::new();
        for slot in self.parity_slots() {
            blocks.push((slot, position));
            position = self.area.after(position, JOURNAL_BLOCK_SECTORS);
        }
        self.end = (position, sequence);
        let stripe = &mut self.stripes[self.current];
        stripe.committed.append(&mut stripe.pending);
        stripe.committed.extend(blocks.iter().copied());
        self.ask(Phase::Keep, [Effect::Keep { stripe: sector, blocks }]);
    }

    fn seal(&mut self) {
        self.jobs.pop_front();
        let mut effects: Vec<Effect> = self.groups.iter().skip(1).map(Group::effect).collect();
        if !self.groups.is_empty() {
            effects.push(Effect::Clear { position: self.end.0 });
            effects.push(Effect::FlushJournal);
        }
        self.ask(Phase::Seal, effects);
    }

    fn commit(&mut self) {
        let mut effects: Vec<Effect> = self.groups.first().map(Group::effect).into_iter().collect();
        if !effects.is_empty() {
            effects.push(Effect::FlushJournal);
        }
        if planted(Bug::JournalUnsealed) {
            effects.clear();
        }
        self.ask(Phase::Commit, effects);
    }

    fn load(&mut self) {
        self.begin();
        let blocks = self.stripe().committed.iter();
        let loads: Vec<Effect> = blocks
            .map(|(slot, position)| Effect::Load { slot: *slot, position: *position })
            .collect();
        self.ask(Phase::Load, loads);
    }

    /// Writes the stripe's blocks to present members, without bad sectors and without sectors that
    /// a recovery will write.
    fn write(&mut self) {
        let sectors = self.sectors();
        let stripe = self.stripe();
        let mut slots: BTreeSet<Slot> = stripe.committed.keys().copied().collect();
        slots.extend(stripe.pending.keys());
        if !stripe.pending.is_empty() {
            slots.extend(self.parity_slots());
        }
        let mut writes = Vec::new();
        for slot in slots {
            let member = self.members[slot.index()].as_ref();
            let runs = member.map(|member| member.writable(&sectors)).unwrap_or_default();
            for run in runs {
                let from_sector = run.start - sectors.start;
                self.report.written_sectors += run.end - run.start;
                writes.push(Effect::Write { slot, sectors: run, from_sector });
            }
        }
        self.ask(Phase::Write, writes);
    }

    /// Makes sure that no old meta block follows the journal's new start.
    fn restart(&mut self) {
        let (position, sequence) = self.end;
        let sequence = sequence.wrapping_add(JOURNAL_SEQUENCE_GAP);
        let meta = Effect::WriteMeta { position, sequence, stripes: Vec::new() };
        self.ask(Phase::Restart, [meta, Effect::FlushJournal]);
    }
}

impl Group {
    fn effect(&self) -> Effect {
        let (position, sequence) = (self.position, self.sequence);
        Effect::WriteMeta { position, sequence, stripes: self.stripes.clone() }
    }
}

/// The number of stripes whose parity one meta block can name.
fn stripes_of_meta(geometry: &StripeGeometry) -> usize {
    let checksums = vec![0; usize::from(geometry.parity_slots())];
    let payload = Replay::payload(0, checksums);
    JournalMeta::PAYLOAD_BYTES / payload.meta_bytes()
}

/// Sectors that the parity of `stripes` stripes takes, with its meta blocks, and the block after
/// them.
fn needed_sectors(stripes: u64, geometry: &StripeGeometry) -> u64 {
    let metas = stripes.div_ceil(stripes_of_meta(geometry) as u64);
    let blocks = stripes * u64::from(geometry.parity_slots()) + metas + 1;
    blocks * JOURNAL_BLOCK_SECTORS
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Geometry, Level, Shape};
    use braid_ondisk::{JournalArea, JournalEnd, JournalEntry};

    fn geometry() -> StripeGeometry {
        let shape = Shape::uniform(Level::Raid5, 2, 32, 4, 320);
        match Geometry::new(&shape) {
            Ok(Geometry::Stripe(stripe)) => stripe,
            other => panic!("{other:?}"),
        }
    }

    /// Two blocks of data of one stripe, in a ring with `free_blocks` free blocks after them.
    fn log(free_blocks: u64, entries: Vec<JournalEntry>) -> JournalLog {
        let ring_sectors = 8 * (3 + free_blocks);
        JournalLog {
            area: JournalArea { start_sector: 8, ring_sectors, tail_sectors: 0 },
            first_sequence: 7,
            meta_blocks: 1,
            is_write_back: true,
            entries,
            end_sectors: 24,
            end_sequence: 8,
            end: JournalEnd::NoBlock,
        }
    }

    fn data() -> Vec<JournalEntry> {
        let data = |location, position| JournalEntry::Data { location, position };
        vec![data(0, 8), data(32, 16)]
    }

    fn replay(log: &JournalLog, lost: &[usize], finish: Finish) -> Result<Replay, ReplayError> {
        let member = |slot: usize| {
            let recovered_sectors = u64::MAX;
            (!lost.contains(&slot)).then(|| Member { recovered_sectors, bad_sectors: Vec::new() })
        };
        let members = (0..4).map(member).collect();
        let may_return = !lost.is_empty();
        Replay::new(Setup { geometry: geometry(), members, may_return, log, finish })
    }

    /// Carries out all effects except those for which `fails` is true, and lists all effects.
    fn told(
        mut replay: Replay,
        fails: impl Fn(&Effect) -> bool,
    ) -> (Vec<Effect>, Result<Report, ReplayError>) {
        let mut told = Vec::new();
        while let Some(effect) = replay.poll() {
            replay.handle(!fails(&effect));
            told.push(effect);
        }
        (told, replay.end().expect("it ended"))
    }

    #[test]
    fn parity_needs_room_in_the_journal_and_in_memory_none() {
        // Needed are a meta block, the stripe's parity, and the block after them.
        let (free_sectors, needed_sectors) = (16, 24);
        let full = log(2, data());
        let error = replay(&full, &[], Finish::Settled).err();
        assert_eq!(error, Some(ReplayError::NoRoom { free_sectors, needed_sectors }));
        assert!(replay(&full, &[], Finish::Written).is_ok());
        assert!(replay(&log(3, data()), &[], Finish::Settled).is_ok());
    }

    #[test]
    fn members_are_written_when_the_journal_has_parity_and_the_tail_moves_last() {
        let (told, report) =
            told(replay(&log(9, data()), &[], Finish::Settled).unwrap(), |_| false);
        let report = report.unwrap();
        assert_eq!((report.pending_stripes, report.written_sectors), (1, 24));
        assert!(report.is_settled);
        let place = |is: fn(&Effect) -> bool| told.iter().position(is).expect("it was asked for");
        let sealed = place(|one| matches!(one, Effect::WriteMeta { position: 24, .. }));
        let cleared = place(|one| matches!(one, Effect::Clear { position: 40 }));
        let written = place(|one| matches!(one, Effect::Write { .. }));
        assert!(cleared < sealed && told[sealed - 1] == Effect::FlushJournal);
        assert!(told[sealed + 1] == Effect::FlushJournal && sealed < written);
        let sequence = 9 + JOURNAL_SEQUENCE_GAP;
        let restart = Effect::WriteMeta { position: 40, sequence, stripes: vec![] };
        assert_eq!(told[told.len() - 3], restart);
        assert_eq!(told.last(), Some(&Effect::MoveTail { position: 40 }));
    }

    type Fails = fn(&Effect) -> bool;

    #[test]
    fn what_fails_ends_it_and_is_named() {
        let slot = Slot(1);
        let fails: [(Fails, FailedRequest); 5] = [
            (|one| matches!(one, Effect::Write { slot: Slot(1), .. }), FailedRequest::Write(slot)),
            (|one| matches!(one, Effect::Flush { slot: Slot(1) }), FailedRequest::Flush(slot)),
            (|one| matches!(one, Effect::Load { .. }), FailedRequest::JournalRead),
            (|one| matches!(one, Effect::Keep { .. }), FailedRequest::JournalWrite),
            (|one| matches!(one, Effect::MoveTail { .. }), FailedRequest::Tail),
        ];
        for (fails, failed) in fails {
            let replay = replay(&log(9, data()), &[], Finish::Settled).unwrap();
            let (told, ended) = told(replay, fails);
            assert_eq!(ended, Err(ReplayError::Failed(failed)));
            assert!(fails(told.last().expect("something")), "nothing comes after it");
        }
    }

    #[test]
    fn new_data_whose_parity_cannot_be_made_stays_in_the_journal() {
        // The stripe keeps the data of slot 2, which is unreadable, and slot 0 is missing.
        let two = |effect: &Effect| matches!(effect, Effect::Read { slot: Slot(2), .. });
        for finish in [Finish::Settled, Finish::Written] {
            let (told, ended) = told(replay(&log(9, data()), &[0], finish).unwrap(), two);
            let report = ended.unwrap();
            assert_eq!((report.unsettled, report.written_sectors), (vec![0..8, 32..40], 0));
            assert!(
                !report.is_settled && !told.iter().any(|one| matches!(one, Effect::Write { .. }))
            );
        }
    }

    #[test]
    fn an_empty_journal_asks_for_nothing() {
        let (told, ended) = told(replay(&log(9, vec![]), &[], Finish::Settled).unwrap(), |_| false);
        assert_eq!((told, ended), (vec![], Ok(Report::default())));
    }
}
