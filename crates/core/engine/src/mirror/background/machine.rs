//! The background work in progress, and its steps.

use std::collections::VecDeque;

use braid_geometry::{LogicalSector, MemberSector, MirrorGeometry, Slot};
use braid_sim_hooks::{Bug, Mark, reached, spoiled};
use smallvec::SmallVec;

use super::super::decide::Range;
use super::decide::{Action, Copies, Facts, Phase, decide};
use crate::array::{Gate, MemberView};
use crate::buffer::{BlockIndex, Buffer};
use crate::computation::{Computation, ComputationId, Step};
use crate::context::Common;
use crate::effect::{FaultKind, MemberFault, MemberOperation, Report};
use crate::ids::IoId;
use crate::request::{LockKey, RangeLock};
use crate::sectors::{BLOCK_SECTORS, SectorSet};
use crate::work::{Candidates, Class, Fate, Finding, Outcome, RotKind, Task, Work};

/// The most works in progress at once; further works wait. Each has a block for every copy.
const WORKS_MAX: usize = 4;

/// Entries for works. If a member left with requests of a work, the work's entry stays unused until
/// these requests end.
const ENTRIES: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Copy {
    slot: Slot,
    start: MemberSector,
    state: State,
    /// The sectors that must be written to the copy.
    lacks: SectorSet,
    /// The copy's wrong sectors.
    wrong: SectorSet,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The copy was not read, and need not be.
    Unread,
    /// The copy's block holds the member's data.
    Read,
    Failed(FaultKind),
}

#[derive(Debug)]
struct WorkEntry {
    work: Option<Work>,
    /// First sector of the run.
    at: u64,
    sectors: u32,
    /// First sector after the work.
    end: u64,
    range: Range,
    phase: Phase,
    outstanding: u32,
    /// Requests in flight at members that have left. They may still use the entry's blocks.
    orphans: u32,
    copies: SmallVec<[Copy; 4]>,
    /// Sectors where the first copy that was read is wrong and a later copy is right, each with the
    /// index of the right copy.
    right: SmallVec<[(u16, SectorSet); 1]>,
    /// Sectors on which copies differ, and the wrong copy is unknown.
    tied: SectorSet,
    /// Whether the run is being read for the second time. Then its copies keep their findings.
    is_again: bool,
    /// Sectors that were written, over all runs.
    written: u32,
    /// Sectors that differed, over all runs.
    differing: u32,
    is_missed: bool,
    /// Whether the copies of a run could be neither made to agree nor filled, and it was reported.
    is_unmade: bool,
}

/// The mirror's state that background work uses.
pub(in super::super) struct BackgroundContext<'a> {
    pub(in super::super) common: &'a mut Common,
    pub(in super::super) geometry: &'a MirrorGeometry,
    pub(in super::super) lock: &'a mut RangeLock,
    /// Makes a request's name from the entry and the slot of the member.
    pub(in super::super) submitted: &'a mut dyn FnMut(u32, Slot) -> IoId,
}

#[derive(Debug)]
pub(in super::super) struct Background {
    entries: Box<[WorkEntry]>,
    asked: VecDeque<Work>,
    /// First block of background work in the arena.
    first_block: u32,
    block_sectors: u32,
    copies: u16,
    /// Keys of waiting work to which ended work has passed the lock.
    pub(in super::super) granted: Vec<LockKey>,
}

impl WorkEntry {
    fn free() -> Self {
        Self {
            work: None,
            at: 0,
            sectors: 0,
            end: 0,
            range: Range::NotAsked,
            phase: Phase::Read,
            outstanding: 0,
            orphans: 0,
            copies: SmallVec::new(),
            right: SmallVec::new(),
            tied: SectorSet::EMPTY,
            is_again: false,
            written: 0,
            differing: 0,
            is_missed: false,
            is_unmade: false,
        }
    }

    fn task(&self) -> Task {
        self.work.expect("an entry that works has work").task
    }

    fn copy_mut(&mut self, slot: Slot) -> &mut Copy {
        self.copies.iter_mut().find(|copy| copy.slot == slot).expect("a copy of the run")
    }

    /// Whether redundancy agrees in the run: then its copies are equal, except on members in
    /// recovery.
    fn agrees(&self, common: &Common) -> bool {
        let sectors = self.at..self.at + u64::from(self.sectors);
        common.view.agrees(sectors) && common.view.gate != Gate::Broken
    }

    fn can_be_read(&self, common: &Common, copy: &Copy) -> bool {
        let sectors = u64::from(self.sectors);
        let holds = |member: &MemberView| member.holds(copy.start, sectors);
        let can_be = match self.task() {
            // A retry also reads ranges that bad-block logs name.
            Task::Retry => common.view.member(copy.slot).is_some_and(holds),
            _ => common.view.readable(copy.slot, copy.start, sectors).is_some(),
        };
        copy.state == State::Unread && can_be
    }

    /// The copies to read next: for a comparison all readable copies, else one.
    fn to_read(&self, common: &Common) -> SmallVec<[Slot; 4]> {
        let can_be_read = self.copies.iter().filter(|copy| self.can_be_read(common, copy));
        let is_read = self.copies.iter().any(|copy| copy.state == State::Read);
        match self.task() {
            Task::Compare | Task::Repair | Task::Retry | Task::Resync => {
                can_be_read.map(|copy| copy.slot).collect()
            }
            Task::Recover | Task::Replace if is_read => SmallVec::new(),
            Task::Recover | Task::Replace => {
                let is_own = |slot: Slot| self.task() == Task::Replace && is_replaced(common, slot);
                let order = |copy: &&Copy| (common.clocks.sits_out(copy.slot), !is_own(copy.slot));
                can_be_read.min_by_key(order).map(|copy| copy.slot).into_iter().collect()
            }
        }
    }

    /// Whether the run must be repeated in halves, because a copy that it should use failed but may
    /// be readable in part.
    fn is_divisible(&self, common: &Common) -> bool {
        let is_bad = |copy: &Copy| copy.state == State::Failed(FaultKind::Media);
        let mut before = self.copies.iter().take_while(|copy| copy.state != State::Read);
        match self.task() {
            // Only sectors that are unreadable themselves come from the other copies.
            Task::Compare | Task::Repair | Task::Retry => {
                self.sectors > BLOCK_SECTORS && !self.is_again && self.copies.iter().any(is_bad)
            }
            Task::Resync | Task::Recover | Task::Replace => {
                self.sectors > 1 && !self.agrees(common) && before.any(is_bad)
            }
        }
    }

    /// Sectors that two or more copies confirm: all copies that were read agree there.
    fn vouched(&self, common: &Common) -> SectorSet {
        let read = self.copies.iter().filter(|copy| copy.state == State::Read).count();
        if read < 2 || !self.agrees(common) {
            return SectorSet::EMPTY;
        }
        let wrong = self.copies.iter().map(|copy| copy.wrong);
        let differs = wrong.fold(self.tied, SectorSet::union);
        SectorSet::run(0, self.sectors).without(differs)
    }

    fn facts(&self, common: &Common) -> Facts {
        let read = self.copies.iter().filter(|copy| copy.state == State::Read).count();
        let copies = match () {
            () if self.phase != Phase::Read || self.range != Range::Locked => Copies::Lacking,
            () if !self.to_read(common).is_empty() => Copies::Lacking,
            () if self.is_divisible(common) => Copies::Divisible,
            () if read == 0 && !self.is_again => Copies::Unreadable,
            // If rewritten copies cannot be read again, they are reported as unverified.
            () if read <= 1 => Copies::One,
            () => Copies::Several,
        };
        let Self { range, phase, .. } = *self;
        let is_open = self.copies.iter().any(|copy| copy.fate == Fate::Unverified);
        let to_look = is_open && !self.is_again;
        let (outstanding, left) = (self.outstanding > 0, self.orphans > 0);
        Facts { outstanding, left, range, phase, copies, to_look }
    }
}

impl WorkEntry {
    /// Reports members that lack the run: members that are being filled, or all members if the
    /// copies cannot be made to agree.
    fn report_unmade(&self, common: &mut Common) {
        let Some(work) = self.work else { return };
        let (id, sectors) = (work.id, self.sectors);
        for copy in &self.copies {
            let Some(view) = common.view.member(copy.slot) else { continue };
            let end = copy.start.0 + u64::from(sectors);
            let member = match work.task {
                Task::Replace => view.replacement,
                Task::Recover => Some(view.id).filter(|_| view.recovered_sectors < end),
                Task::Compare | Task::Repair | Task::Retry | Task::Resync => Some(view.id),
            };
            if let Some(member) = member {
                common.report(Report::Unmade { id, member, start: copy.start, sectors });
            }
        }
    }

    fn note_votes(&mut self, common: &Common, computation: &Computation) {
        let found = &computation.found;
        let differs = found.iter().fold(SectorSet::EMPTY, |set, one| set.union(*one));
        if self.is_again {
            let written = self.copies.iter_mut().filter(|copy| copy.fate == Fate::Unverified);
            let right = written.filter(|copy| !copy.wrong.meets(differs));
            return right.for_each(|copy| copy.fate = Fate::Repaired);
        }
        if !differs.is_empty() {
            reached(Mark::CopiesDiffer);
        }
        self.differing += found.iter().map(|set| set.sectors()).sum::<u32>();
        if !self.agrees(common) {
            // The copies need not agree here, so a copy that differs is not known to be wrong.
            return self.tied = differs;
        }
        let voted = computation.voted().expect("copies are voted on");
        (self.tied, self.right) = (voted.tied, voted.right.clone());
        for (copy, set) in &voted.wrong {
            reached(Mark::RotLocated);
            self.copies[usize::from(*copy)].wrong = *set;
        }
        if !self.tied.is_empty() {
            reached(Mark::RotUnknown);
        }
    }

    /// Reports the wrong sectors of the run.
    fn found(&self, common: &mut Common) {
        let Some(work) = self.work else { return };
        let id = work.id;
        let array = |offset: u32| LogicalSector(self.at + u64::from(offset));
        for copy in &self.copies {
            let Some(member) = common.view.member(copy.slot).map(|member| member.id) else {
                continue;
            };
            for extent in copy.wrong.extents() {
                let start = MemberSector(copy.start.0 + u64::from(extent.offset));
                let (slot, sectors, fate) = (copy.slot, extent.sectors, copy.fate);
                let kind = RotKind::Data(array(extent.offset));
                let found = Finding::Rot { member, slot, start, sectors, kind, fate };
                common.report(Report::Found { id, found });
            }
        }
        let first = self.copies.first().map_or(0, |copy| copy.start.0);
        let candidates = Candidates::new(self.copies.iter().map(|copy| copy.slot));
        for extent in self.tied.extents() {
            let (start, sectors) = (MemberSector(first + u64::from(extent.offset)), extent.sectors);
            let array = Some(array(extent.offset));
            let found = Finding::Ambiguous { start, sectors, array, candidates };
            common.report(Report::Found { id, found });
        }
    }
}

impl Background {
    pub(in super::super) fn new(
        geometry: &MirrorGeometry,
        first_block: u32,
        block_sectors: u32,
    ) -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| WorkEntry::free()).collect(),
            asked: VecDeque::new(),
            first_block,
            block_sectors,
            copies: geometry.copies(),
            granted: Vec::new(),
        }
    }

    pub(in super::super) fn blocks(&self) -> u32 {
        ENTRIES * u32::from(self.copies)
    }

    pub(in super::super) fn class_of(&self, entry: u32) -> Option<Class> {
        self.entries[entry as usize].work.map(|work| work.class)
    }

    /// Queues work, and begins it when an entry is free.
    pub(in super::super) fn ask(&mut self, context: &mut BackgroundContext<'_>, work: Work) {
        self.asked.push_back(work);
        self.begin(context);
    }

    fn begin(&mut self, context: &mut BackgroundContext<'_>) {
        let is_free = |entry: &WorkEntry| entry.work.is_none() && entry.orphans == 0;
        while self.entries.iter().filter(|entry| entry.work.is_some()).count() < WORKS_MAX
            && let Some(entry) = self.entries.iter().position(is_free)
            && let Some(work) = self.asked.pop_front()
        {
            reached(Mark::WorkBegins);
            let capacity = context.geometry.capacity_sectors();
            let end = work.start + u64::from(work.sectors);
            assert!(work.sectors <= self.block_sectors, "a block has room for it");
            assert!(end <= capacity, "work lies inside the array");
            let free = WorkEntry { work: Some(work), at: work.start, end, ..WorkEntry::free() };
            self.entries[entry] = free;
            let entry = u32::try_from(entry).expect("a few entries");
            self.aim(context, entry, self.block_sectors);
            self.step(context, entry);
        }
    }

    /// Sets the entry's run: from the entry's sector on, as long as possible, at most `sectors`.
    fn aim(&mut self, context: &BackgroundContext<'_>, number: u32, sectors: u32) {
        let view = &context.common.view;
        let entry = &mut self.entries[number as usize];
        let start = LogicalSector(entry.at);
        let whole = context.geometry.contiguous_sectors(start).min(entry.end - entry.at);
        let mut run = whole.min(u64::from(sectors));
        let copies = (0..context.geometry.copies()).map(|copy| context.geometry.copy(start, copy));
        let copies: SmallVec<[(Slot, MemberSector); 4]> = copies.collect();
        // The run ends at the next edge of a bad range: beyond that edge another copy may be
        // believed.
        for (slot, start) in &copies {
            run = view.readable_alike(*slot, *start, run);
        }
        entry.sectors = u32::try_from(run).expect("no more than a block");
        let (lacks, wrong) = (SectorSet::EMPTY, SectorSet::EMPTY);
        let (state, fate) = (State::Unread, Fate::Left);
        let unread = |(slot, start)| Copy { slot, start, state, lacks, wrong, fate };
        entry.copies = copies.into_iter().map(unread).collect();
        entry.right.clear();
        (entry.tied, entry.is_again) = (SectorSet::EMPTY, false);
        entry.phase = Phase::Read;
    }

    /// Reads the rewritten copies and the other copies again.
    fn look(&mut self, number: u32) {
        reached(Mark::MendReadAgain);
        let entry = &mut self.entries[number as usize];
        entry.copies.iter_mut().for_each(|copy| copy.state = State::Unread);
        (entry.is_again, entry.phase) = (true, Phase::Read);
    }

    fn step(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        while self.entries[number as usize].work.is_some() {
            match decide(&self.entries[number as usize].facts(context.common)) {
                Action::Wait => return,
                Action::Lock => self.lock(context, number),
                Action::Read => self.read(context, number),
                Action::Halve => {
                    let sectors = self.entries[number as usize].sectors;
                    self.aim(context, number, sectors / 2);
                }
                Action::Refuse => self.refuse(context, number),
                Action::Compare => self.compare(context, number),
                Action::Write => self.write(context, number),
                Action::Look => self.look(number),
                Action::Next => self.next(context, number),
                Action::LeaveOff => self.end(context, number, Outcome::SitsOut),
            }
        }
    }

    /// Called when no copy of the run can be read. A task that fills or resyncs members reports the
    /// members that lack the run, and continues with the next run; any other task ends.
    fn refuse(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        let entry = &mut self.entries[number as usize];
        if !entry.task().makes() {
            reached(Mark::WorkRefused);
            return self.end(context, number, Outcome::Unreadable);
        }
        reached(Mark::WorkGivenUp);
        entry.is_unmade = true;
        entry.report_unmade(context.common);
        self.next(context, number);
    }

    /// Locks the range of the whole work at once, as the range is short.
    fn lock(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        let entry = &mut self.entries[number as usize];
        let is_free =
            context.lock.acquire(LockKey(u64::from(number)), entry.at, entry.end - entry.at);
        entry.range = if is_free { Range::Locked } else { Range::Waiting };
    }

    /// Gives the entry with this key the range that it waited for.
    pub(in super::super) fn grant(&mut self, context: &mut BackgroundContext<'_>, key: LockKey) {
        let number = u32::try_from(key.0).expect("entries are numbered from 0");
        self.entries[number as usize].range = Range::Locked;
        self.step(context, number);
    }

    fn block(&self, number: u32, copy: usize) -> Buffer {
        let copy = u32::try_from(copy).expect("a few copies");
        let block = BlockIndex(self.first_block + number * u32::from(self.copies) + copy);
        Buffer::Block { block, offset_sectors: 0 }
    }

    fn submit(
        &mut self,
        context: &mut BackgroundContext<'_>,
        (number, slot): (u32, Slot),
        (start, sectors): (MemberSector, u32),
        operation: MemberOperation,
    ) {
        let id = (context.submitted)(number, slot);
        self.entries[number as usize].outstanding += 1;
        context.common.submit((id, slot), (start, sectors), operation);
    }

    fn submit_to_replacement(
        &mut self,
        context: &mut BackgroundContext<'_>,
        (number, slot): (u32, Slot),
        (start, sectors): (MemberSector, u32),
        operation: MemberOperation,
    ) {
        let id = (context.submitted)(number, slot);
        self.entries[number as usize].outstanding += 1;
        context.common.submit_to_replacement((id, slot), (start, sectors), operation);
    }

    fn read(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        let entry = &self.entries[number as usize];
        let (slots, sectors) = (entry.to_read(context.common), entry.sectors);
        for index in 0..self.copies {
            let copy = self.entries[number as usize].copies[usize::from(index)];
            if slots.contains(&copy.slot) {
                let buffer = self.block(number, usize::from(index));
                let operation = MemberOperation::Read { buffer };
                self.submit(context, (number, copy.slot), (copy.start, sectors), operation);
            }
        }
    }

    /// The index of the believed copy: the first copy that was read, in md's order.
    fn believed(&self, number: u32) -> usize {
        let copies = &self.entries[number as usize].copies;
        let is_read = |copy: &Copy| copy.state == State::Read;
        copies.iter().position(is_read).expect("one was read")
    }

    fn compare(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        let believed = self.believed(number);
        let (entry, source) = (&self.entries[number as usize], self.block(number, believed));
        let mut computation = context.common.blank_computation(ComputationId(u64::from(number)));
        let votes = entry.task().checks();
        if votes {
            let copies = (0..).zip(&entry.copies);
            let read = |(index, copy): (usize, &Copy)| {
                (copy.state == State::Read).then(|| self.block(number, index))
            };
            let copies = computation.sources(copies.map(read));
            computation.steps.push(Step::Vote { copies, sectors: entry.sectors });
        }
        for (index, _) in others(entry, believed).filter(|_| !votes) {
            let target = self.block(number, index);
            let sectors = entry.sectors;
            let into = u16::try_from(index).expect("a few copies");
            computation.xor_into(target, std::iter::once(source), sectors);
            computation.steps.push(Step::Find { unit: target, offset: 0, sectors, into });
        }
        let entry = &mut self.entries[number as usize];
        entry.outstanding += 1;
        entry.phase = Phase::Compared;
        context.common.submit_computation(computation);
    }

    /// Takes the result of a comparison: `found` has each copy's differences.
    pub(in super::super) fn computation_done(
        &mut self,
        context: &mut BackgroundContext<'_>,
        computation: &Computation,
    ) {
        let number = u32::try_from(computation.id.0).expect("entries are numbered from 0");
        let believed = self.believed(number);
        let entry = &mut self.entries[number as usize];
        assert!(entry.outstanding == 1 && entry.phase == Phase::Compared, "it was asked for");
        entry.outstanding = 0;
        if entry.task().checks() {
            entry.note_votes(context.common, computation);
            return self.step(context, number);
        }
        for index in (0..entry.copies.len()).filter(|index| *index != believed) {
            let differs = computation.found.get(index).copied().unwrap_or_default();
            if !differs.is_empty() {
                reached(Mark::CopiesDiffer);
                entry.differing += differs.sectors();
                entry.copies[index].lacks = differs;
            }
        }
        self.step(context, number);
    }

    /// Writes the copies that differ, could not be read, or are being recovered.
    fn write(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.phase = Phase::Written;
        if entry.is_again {
            return;
        }
        let believed = self.believed(number);
        let entry = &self.entries[number as usize];
        let (task, whole) = (entry.task(), SectorSet::run(0, entry.sectors));
        let end = |copy: &Copy| copy.start.0 + u64::from(entry.sectors);
        let view = &context.common.view;
        let mut targets: SmallVec<[Copy; 4]> = SmallVec::new();
        for copy in &entry.copies {
            let Some(member) = view.member(copy.slot) else { continue };
            let is_recovered = end(copy) <= member.recovered_sectors;
            let of_check = SectorSet::EMPTY;
            let of_check = spoiled(Bug::CheckRepairs, of_check, copy.wrong);
            let lacks = match (task, copy.state) {
                // Copies that agree confirm each other; a single copy has no confirmation.
                (Task::Retry, State::Read | State::Failed(FaultKind::Media))
                    if member.bad_blocks.touches(copy.start, u64::from(entry.sectors)) =>
                {
                    entry.vouched(context.common)
                }
                (Task::Retry, _) => SectorSet::EMPTY,
                (Task::Compare | Task::Repair, State::Failed(FaultKind::Media)) => {
                    whole.without(entry.tied)
                }
                // The member's log names the sectors: once written, they are good again.
                (Task::Compare | Task::Repair, State::Unread)
                    if is_recovered
                        && member.bad_blocks.touches(copy.start, u64::from(entry.sectors)) =>
                {
                    whole.without(entry.tied)
                }
                (Task::Repair, State::Read) => copy.wrong,
                (Task::Compare, State::Read) => of_check,
                (Task::Compare | Task::Repair, _) => SectorSet::EMPTY,
                (Task::Recover, _) if is_recovered => SectorSet::EMPTY,
                (Task::Recover, _) => whole,
                (Task::Replace, _) if member.replacement.is_some() => whole,
                (Task::Replace, _) => SectorSet::EMPTY,
                (_, State::Failed(FaultKind::Media)) => whole,
                // The member's log forbids reads of the copy. The copy can be written, and must
                // agree with the other copies.
                (_, State::Unread) if is_recovered => whole,
                _ => copy.lacks,
            };
            targets.push(Copy { lacks, ..*copy });
        }
        if !context.common.may_repair() {
            let is_missed = targets.iter().any(|copy| !copy.lacks.is_empty());
            self.entries[number as usize].is_missed |= is_missed;
            return;
        }
        // The source of each sector is the believed copy, unless that copy was outvoted.
        let outvoted = entry.right.iter().map(|(_, set)| *set);
        let others = outvoted.fold(SectorSet::EMPTY, SectorSet::union);
        let mut sources: SmallVec<[(usize, SectorSet); 2]> = SmallVec::new();
        sources.push((believed, whole.without(others)));
        sources.extend(entry.right.iter().map(|(copy, set)| (usize::from(*copy), *set)));
        for copy in targets {
            self.entries[number as usize].copy_mut(copy.slot).lacks = copy.lacks;
            // A repair is reported only once it is durable.
            let durable = task == Task::Repair && !copy.wrong.is_empty();
            if durable {
                let fate = Fate::Unverified;
                let fate = spoiled(Bug::RepairUnverified, fate, Fate::Repaired);
                self.entries[number as usize].copy_mut(copy.slot).fate = fate;
            }
            for (source, set) in &sources {
                for extent in copy.lacks.common(*set).extents() {
                    let buffer = self.block(number, *source).plus(extent.offset);
                    let start = MemberSector(copy.start.0 + u64::from(extent.offset));
                    let operation = MemberOperation::Write { buffer, durable };
                    self.entries[number as usize].written += extent.sectors;
                    let range = (start, extent.sectors);
                    if task == Task::Replace {
                        self.submit_to_replacement(context, (number, copy.slot), range, operation);
                    } else {
                        self.submit(context, (number, copy.slot), range, operation);
                    }
                }
            }
        }
    }

    pub(in super::super) fn io_done(
        &mut self,
        context: &mut BackgroundContext<'_>,
        (number, slot): (u32, Slot),
        result: Result<(), MemberFault>,
    ) {
        let entry = &mut self.entries[number as usize];
        assert!(entry.outstanding > 0 && entry.work.is_some(), "the request was of this work");
        entry.outstanding -= 1;
        match (entry.phase, result) {
            (Phase::Read, Ok(())) => entry.copy_mut(slot).state = State::Read,
            (Phase::Read, Err(fault)) => {
                entry.copy_mut(slot).state = State::Failed(fault.kind);
                context.common.note_read_fault(slot, fault);
            }
            (Phase::Written, Ok(())) => {
                context.common.note_written(slot);
                // A member that is being filled was not unreadable before.
                let was_unreadable = entry.copy_mut(slot).state == State::Failed(FaultKind::Media);
                if was_unreadable && !entry.task().fills() {
                    context.common.note_mended(slot);
                }
            }
            (Phase::Written, Err(fault)) if entry.task().checks() => {
                context.common.note_written(slot);
                // If only sectors are lost, the bad-block log names them, and the work continues.
                entry.is_missed |= fault.kind != FaultKind::Media;
                let copy = entry.copy_mut(slot);
                copy.fate = Fate::Left;
                for extent in copy.lacks.extents() {
                    let start = MemberSector(copy.start.0 + u64::from(extent.offset));
                    context.common.report_unmended(slot, fault, (start, extent.sectors));
                }
            }
            (Phase::Written, Err(fault)) => {
                context.common.note_written(slot);
                entry.is_missed = true;
                entry.copy_mut(slot).fate = Fate::Left;
                // A healthy member that refuses a write fails the work, not the member.
                let is_in = context.common.still_in(slot, fault.cause.member);
                if !fault.kind.spares_member() && is_in {
                    context.common.report_failed(fault);
                }
            }
            (Phase::Compared, _) => unreachable!("nothing is asked of members meanwhile"),
        }
        self.step(context, number);
    }

    /// Whether the work at an entry writes to a member's replacement.
    pub(in super::super) fn is_copy(&self, number: u32) -> bool {
        let entry = &self.entries[number as usize];
        entry.phase == Phase::Written && entry.task() == Task::Replace
    }

    /// Notes that a member has left with a request of this entry in flight.
    pub(in super::super) fn hold(&mut self, number: u32) {
        self.entries[number as usize].orphans += 1;
    }

    pub(in super::super) fn let_go_of(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        self.entries[number as usize].orphans -= 1;
        self.begin(context);
    }

    /// Ends the run that is done: begins the next run, or ends the work.
    fn next(&mut self, context: &mut BackgroundContext<'_>, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.found(context.common);
        entry.at += u64::from(entry.sectors);
        if entry.at < entry.end {
            return self.aim(context, number, self.block_sectors);
        }
        let WorkEntry { differing, written, is_unmade, .. } = *entry;
        let outcome = match entry.task() {
            Task::Compare if written == 0 => Outcome::CopiesCompared { differing },
            Task::Repair if entry.is_missed => Outcome::Unwritten,
            Task::Compare | Task::Repair | Task::Retry => Outcome::Checked { differing, written },
            Task::Resync | Task::Recover | Task::Replace if entry.is_missed => Outcome::Unwritten,
            Task::Resync | Task::Recover | Task::Replace if is_unmade => {
                Outcome::Unmade { written }
            }
            Task::Resync | Task::Recover | Task::Replace => Outcome::Done { written },
        };
        self.end(context, number, outcome);
    }

    fn end(&mut self, context: &mut BackgroundContext<'_>, number: u32, outcome: Outcome) {
        let free =
            WorkEntry { orphans: self.entries[number as usize].orphans, ..WorkEntry::free() };
        let entry = std::mem::replace(&mut self.entries[number as usize], free);
        assert!(entry.outstanding == 0 && entry.range == Range::Locked, "nothing of it is out");
        let work = entry.work.expect("it worked");
        self.granted.extend(context.lock.release(LockKey(u64::from(number))));
        context.common.work_done(work.id, outcome);
        self.begin(context);
    }
}

fn is_replaced(common: &Common, slot: Slot) -> bool {
    common.view.member(slot).is_some_and(|member| member.replacement.is_some())
}

/// The copies that were read, without the believed one.
fn others(entry: &WorkEntry, believed: usize) -> impl Iterator<Item = (usize, &Copy)> {
    let is_other =
        move |(index, copy): &(usize, &Copy)| *index != believed && copy.state == State::Read;
    entry.copies.iter().enumerate().filter(is_other)
}
