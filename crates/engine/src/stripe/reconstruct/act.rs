//! Carrying a read's decisions out: where it goes on, and its effects leave it. It begins, and is abandoned, in
//! [`super::machine`].

use braid_geometry::{RowMap, Slot};
use braid_hooks::{Bug, Mark, planted, reached, spoiled};
use smallvec::SmallVec;

use super::super::band::Band;
use super::super::batch::Phase as BatchPhase;
use super::super::in_flight::{IoOwner, ReadIo, ReadIoKind};
use super::super::plan::{Filled, Plan, Planner, Way};
use super::super::solve::{Blocks, by_exponent, solve, solve_in_place};
use super::comparison::Parity;
use super::decide::{Action, Phase, decide, waits};
use super::machine::{Around, Outcome, Reconstruct, Waits};
use super::read::{Column, Origin, Read, Want, WorkState, holds};
use crate::array::{ArrayView, MemberView};
use crate::buffer::Buffer;
use crate::computation::{Computation, ComputationId, Step};
use crate::effect::{FaultKind, MemberFault, MemberOperation, Report};
use crate::ids::IoId;
use crate::request::Fault;
use crate::rot::Located;
use crate::sectors::{BLOCK_SECTORS, Extent, SectorSet};
use crate::work::{self, Class, Difference, Task, Work};

/// Where a comparison notes what it finds.
const P: u16 = 0;
const Q: u16 = 1;

impl Read {
    /// A computation has ended: what it found differs, and is to be written; so is parity that could not be read.
    fn note_found(
        &mut self,
        (view, parity): (&ArrayView, Parity),
        (found, located): (Difference, Option<&Located>),
    ) {
        let Some(Origin::Background(work)) = self.origin else { return };
        if work.task.checks() {
            // What is made to be written has been compared before.
            if !self.work.is_remade || self.work.check.is_again() {
                self.note_checked(&work, (view, parity), (found, located));
            }
            return;
        }
        if work.task.fills() || self.work.is_remade {
            return;
        }
        let (map, window) = (self.map, self.window);
        if !found.p.union(found.q).is_empty() {
            reached(Mark::ParityDiffers);
        }
        self.work.found = found;
        if work.task == Task::Resync {
            let parity = [Some((map.p_slot(), found.p)), map.q_slot().map(|slot| (slot, found.q))];
            let targets = parity.into_iter().flatten().map(|(slot, differs)| {
                let was_read = self.column(slot).valid.contains(window);
                (slot, if was_read { differs.joined(window) } else { window })
            });
            let targets =
                targets.filter(|(slot, set)| !set.is_empty() && view.member(*slot).is_some());
            self.work.targets = targets.collect();
        }
    }

    /// The place in the client's payload of what is solved for, where a column that cannot be read is all that is wanted: it
    /// is solved for right there.
    fn straight(&self, index: u16, solved: SectorSet) -> Option<(Buffer, u32)> {
        if !self.column(self.map.data_slot(index)).unreadable.is_empty() {
            return None; // It is to be written again, from the block.
        }
        let want = self.client();
        let segment = self.band().segment(&want.run, index)?;
        let wants = SectorSet::run(segment.offset, segment.sectors);
        let offset_sectors = segment.payload_offset;
        let payload = Buffer::Payload { request: want.request, offset_sectors };
        (wants == solved).then_some((payload, segment.offset))
    }
}

impl Reconstruct {
    pub(super) fn begin(&mut self, around: &mut Around<'_>, band: Band, origin: Origin) {
        reached(match origin {
            Origin::Client(_) => Mark::ReadReconstructs,
            Origin::Background(_) => Mark::WorkBegins,
        });
        let view = &around.common.view;
        let to_fill: Option<SmallVec<[Slot; 2]>> = match origin {
            Origin::Background(Work { task: Task::Recover, .. }) => {
                Some(lacking(view, &band).collect())
            }
            Origin::Background(Work { task: Task::Replace, .. }) => {
                Some(view.slots_with_replacement().collect())
            }
            Origin::Client(_) | Origin::Background(_) => None,
        };
        if let Origin::Background(Work { id, .. }) = origin
            && to_fill.as_ref().is_some_and(SmallVec::is_empty)
        {
            // The member that the work was for is out.
            return around.common.work_done(id, work::Outcome::Unwritten);
        }
        let place = self.free.pop().expect("there is room");
        let map = self.geometry.row_map(band.row);
        let read = &mut self.reads[place as usize];
        assert!(read.origin.is_none() && read.outstanding == 0, "a free place has no work");
        read.columns.fill(Column::default());
        (read.band, read.map, read.owns_band) = (Some(band), map, true);
        read.aim(origin, self.unit_sectors);
        // What works on whole units finds them where they are.
        let is_of_client = origin.client().is_some();
        let first = read.window.first_from(0).filter(|_| is_of_client);
        read.shift_sectors = first.map_or(0, |first| first / BLOCK_SECTORS * BLOCK_SECTORS);
        self.wanted += usize::from(is_of_client);
        if let Some(slots) = to_fill {
            read.aim_at_columns(slots.into_iter());
        }
        self.step(around, place);
    }

    /// Lets a read go on until it waits for an event, or is over.
    fn step(&mut self, around: &mut Around<'_>, place: u32) {
        let mut planner = self.planner.take().expect("one read is looked at at a time");
        while waits(self.reads[place as usize].outstanding > 0).is_none()
            && self.go_on(around, place, &mut planner)
        {}
        self.planner = Some(planner);
    }

    /// Does the next thing. False when the read waits for an event, or is over.
    #[inline]
    fn go_on(&mut self, around: &mut Around<'_>, place: u32, planner: &mut Planner) -> bool {
        let repair = self.to_repair(around, place);
        let read = &self.reads[place as usize];
        let is_behind = !read.work.targets.is_empty() && self.is_behind(around, place);
        let facts = read.facts(around, planner, (!repair.is_empty(), is_behind));
        match decide(&facts) {
            Action::Wait => return false,
            Action::Release => {
                self.release(place);
                return false;
            }
            Action::Read => {
                self.submit_reads(around, place, planner.planned().expect("a need has a plan"));
            }
            Action::Compute => self.compute(around, place, planner),
            Action::Divide => self.divide(around, place),
            Action::Insist => self.insist(place),
            Action::Remake => self.remake(around, place),
            Action::Mend => self.mend(around, place),
            Action::GiveWay => self.give_way_to_batch(place),
            Action::ReadAgain => self.read_again(place),
            Action::Write => self.write(around, place),
            Action::Answer => self.answer(around, place),
            Action::Repair => self.repair(around, place, &repair),
            Action::Refuse => self.refuse(around, place),
        }
        true
    }

    fn blocks(&self, place: u32) -> Blocks {
        let shift_sectors = self.reads[place as usize].shift_sectors;
        Blocks::of(self.first + place, self.geometry.slots(), shift_sectors)
    }

    fn submit(&mut self, around: &mut Around<'_>, io: ReadIo, operation: MemberOperation) {
        let read = &mut self.reads[io.place as usize];
        let id = IoId(around.in_flight.insert(IoOwner::Reconstruct(io)));
        let range = read.band().range(io.extent);
        match io.kind {
            ReadIoKind::Copy => {
                around.common.submit_to_replacement((id, io.slot), range, operation);
            }
            ReadIoKind::Read | ReadIoKind::Repair | ReadIoKind::Write => {
                around.common.submit((id, io.slot), range, operation);
            }
        }
        read.outstanding += 1;
        read.column_mut(io.slot).out += 1;
    }

    fn submit_reads(&mut self, around: &mut Around<'_>, place: u32, plan: &Plan) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        assert!(read.owns_band, "its band is not written meanwhile");
        let map = read.map;
        read.filled = Some(Filled { way: plan.way.clone(), epoch: around.common.view.epoch });
        for (slot, set) in plan.columns(&map) {
            for extent in set.extents() {
                let buffer = blocks.at(slot, extent.offset);
                let io = ReadIo { place, slot, extent, kind: ReadIoKind::Read };
                self.submit(around, io, MemberOperation::Read { buffer });
            }
        }
    }

    /// Goes on as was planned when it was to be read, or else by the plan that was made now, for
    /// which all is there.
    #[inline]
    fn compute(&mut self, around: &mut Around<'_>, place: u32, planner: &Planner) {
        let number = self.first + place;
        let read = &mut self.reads[place as usize];
        assert!(read.phase == Phase::Fill && read.outstanding == 0, "all that is needed is read");
        read.phase = Phase::Compute;
        let filled = read.filled.take();
        let planned = planner.planned().map(|plan| &plan.way);
        let way = planned.or(filled.as_ref().map(|filled| &filled.way));
        let way = way.expect("there is a way, or it could not go on");
        let mut computation = around.common.blank_computation(ComputationId(u64::from(number)));
        match read.origin.expect("it is wanted") {
            Origin::Client(want) => self.make(around, place, (&want, way), &mut computation),
            Origin::Background(work) => match work.task {
                Task::Compare | Task::Repair | Task::Retry => {
                    self.check(place, way, &mut computation);
                }
                Task::Resync => self.compare(place, way, &mut computation),
                Task::Recover | Task::Replace => {
                    self.recover(around, place, way, &mut computation);
                }
            },
        }
        if computation.steps.is_empty() {
            return around.common.recycle(computation); // What is to be copied was read.
        }
        self.reads[place as usize].outstanding += 1;
        around.common.submit_computation(computation);
    }

    /// Solves for what could not be read; then compares, and has P and Q name the column that is wrong.
    fn check(&mut self, place: u32, way: &Way, computation: &mut Computation) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        let (map, sectors) = (read.map, self.unit_sectors);
        read.note_erased(way);
        solve_in_place(computation, (&map, blocks), way);
        let among = read.to_locate();
        // Where parity could not be read it says nothing, and is not asked.
        let (p, q) = (blocks.at(map.p_slot(), 0), map.q_slot().map(|slot| blocks.at(slot, 0)));
        for index in 0..map.data_slots() {
            if planted(Bug::CompareForgetsColumn) && index == 1 {
                continue;
            }
            let (delta, exponent) = (blocks.at(map.data_slot(index), 0), map.exponent(index));
            computation.steps.push(Step::Update { delta, exponent, p: Some(p), q, sectors });
        }
        computation.steps.push(Step::Find { unit: p, offset: 0, sectors, into: P });
        if let Some(q) = q {
            computation.steps.push(Step::Find { unit: q, offset: 0, sectors, into: Q });
            let columns = |index| Some(blocks.at(map.data_slot(index), 0));
            let columns = by_exponent(computation, &map, columns);
            computation.steps.push(Step::Locate { p, q, columns, among });
        }
    }

    /// Makes what is wrong, or could not be read, from the others. From here on the band is kept to the end: its requests go
    /// in their turn, and no batch of it begins.
    fn mend(&mut self, around: &mut Around<'_>, place: u32) {
        reached(Mark::ColumnsMended);
        let (number, blocks) = (self.first + place, self.blocks(place));
        let read = &mut self.reads[place as usize];
        let map = read.map;
        if let Some(Origin::Background(work)) = &mut read.origin {
            work.class = Class::BestEffort;
        }
        (read.work.is_remade, read.repairs) = (true, true);
        let stripe = around.pool.peek(read.band().key);
        let stripe = spoiled(Bug::RepairKeepsBlocks, stripe, None);
        let stripe = spoiled(Bug::RepairIgnoresBatch, stripe, None);
        if let Some(stripe) = stripe {
            around.pool.stripe_mut(stripe).forget_columns();
        }
        let mut computation = around.common.blank_computation(ComputationId(u64::from(number)));
        // P's block holds what P differs by: that is what a data column is wrong by.
        for index in 0..map.data_slots() {
            let slot = map.data_slot(index);
            let wrong = read.work.check.wrong(slot);
            let wrong = spoiled(Bug::RepairWritesParity, wrong, SectorSet::EMPTY);
            for Extent { offset, sectors } in wrong.extents() {
                let (target, source) = (blocks.at(slot, offset), blocks.at(map.p_slot(), offset));
                computation.xor_into(target, std::iter::once(source), sectors);
            }
        }
        let is_target = |slot: &Slot| read.work.targets.iter().any(|(target, _)| target == slot);
        let p = Some(map.p_slot()).filter(is_target);
        let q = map.q_slot().filter(is_target);
        make_parity(&mut computation, (&map, blocks), (p, q), self.unit_sectors);
        if computation.steps.is_empty() {
            return around.common.recycle(computation); // What is to be written was solved for.
        }
        read.outstanding += 1;
        around.common.submit_computation(computation);
    }

    /// A batch of the band goes first; then the work begins anew, and keeps the band.
    fn give_way_to_batch(&mut self, place: u32) {
        reached(Mark::MendGivesWay);
        let Origin::Background(work) = self.let_go(place) else {
            unreachable!("only background work mends")
        };
        let read = &mut self.reads[place as usize];
        read.owns_band = false;
        let again = Origin::Background(Work { class: Class::BestEffort, ..work });
        self.kept_out.push_back((*read.band(), again, Waits::ForBand));
    }

    /// What was written is read, and all else with it.
    fn read_again(&mut self, place: u32) {
        let read = &mut self.reads[place as usize];
        read.columns.iter_mut().for_each(|column| *column = Column::default());
        read.work.check.begin_again();
        read.phase = Phase::Fill;
    }

    /// Says what a comparison has found, and that it is over.
    pub(super) fn tell(&mut self, around: &mut Around<'_>, place: u32, work: &Work) {
        let read = &self.reads[place as usize];
        let view = std::sync::Arc::clone(&around.common.view);
        read.found(work, (&view, &self.geometry), |report| around.common.report(report));
        let WorkState { found, written, is_missed, ref check, .. } = read.work;
        let differing = found.p.sectors() + found.q.sectors();
        let outcome = match work.task {
            Task::Repair if is_missed => work::Outcome::Unwritten,
            Task::Compare if written == 0 && !check.has_erased() => work::Outcome::Compared(found),
            _ => work::Outcome::Checked { differing, written },
        };
        around.common.work_done(work.id, outcome);
    }

    /// Solves for what is missing; then adds every data column to P, and its multiple to Q: what is not zero then differs.
    fn compare(&mut self, place: u32, way: &Way, computation: &mut Computation) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        let map = read.map;
        let whole = read.window;
        solve_in_place(computation, (&map, blocks), way);
        // Parity that could not be read is left out.
        let at = |slot: Slot| read.column(slot).valid.contains(whole).then(|| blocks.at(slot, 0));
        let (p, q) = (at(map.p_slot()), map.q_slot().and_then(at));
        for Extent { offset, sectors } in whole.extents() {
            let from = |unit: Option<Buffer>| unit.map(|unit| unit.plus(offset));
            for index in 0..map.data_slots() {
                if planted(Bug::CompareForgetsColumn) && index == 1 {
                    continue;
                }
                let delta = blocks.at(map.data_slot(index), offset);
                let exponent = map.exponent(index);
                let (p, q) = (from(p), from(q));
                computation.steps.push(Step::Update { delta, exponent, p, q, sectors });
            }
            for (into, unit) in [(P, p), (Q, q)] {
                let find = unit.map(|unit| Step::Find { unit, offset, sectors, into });
                computation.steps.extend(find);
            }
        }
    }

    /// Solves for data that is lost, and makes parity that is, into the blocks.
    fn recover(
        &mut self,
        around: &mut Around<'_>,
        place: u32,
        way: &Way,
        computation: &mut Computation,
    ) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        let map = read.map;
        // What is to be copied may have been read as it is.
        let is_made = |slot: &Slot| read.is_target(*slot) && !read.is_read(*slot);
        let (p, q) = (Some(map.p_slot()).filter(is_made), map.q_slot().filter(is_made));
        let makes = p.is_some() || q.is_some() || !way.solutions.is_empty();
        around.common.counters.reconstructions += u64::from(makes);
        if makes && read.origin.is_some_and(|origin| origin.copies()) {
            reached(Mark::CopyIsMade);
        }
        solve_in_place(computation, (&map, blocks), way);
        make_parity(computation, (&map, blocks), (p, q), self.unit_sectors);
    }

    /// Parity differs: it is made from the data, which is believed.
    fn remake(&mut self, around: &mut Around<'_>, place: u32) {
        reached(Mark::ParityRemade);
        let (number, blocks) = (self.first + place, self.blocks(place));
        let read = &mut self.reads[place as usize];
        let map = read.map;
        if let Some(stripe) = around.pool.peek(read.band().key) {
            around.pool.stripe_mut(stripe).forget_parity();
        }
        read.work.is_remade = true;
        let is_target = |slot: &Slot| read.work.targets.iter().any(|(target, _)| target == slot);
        let p = Some(map.p_slot()).filter(is_target);
        let q = map.q_slot().filter(is_target);
        let mut computation = around.common.blank_computation(ComputationId(u64::from(number)));
        make_parity(&mut computation, (&map, blocks), (p, q), self.unit_sectors);
        read.outstanding += 1;
        around.common.submit_computation(computation);
    }

    /// Writes what was made to the members that lack it.
    fn write(&mut self, around: &mut Around<'_>, place: u32) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        read.phase = Phase::Write;
        let targets = std::mem::take(&mut read.work.targets);
        // What is told to be repaired stays so; and superblocks may say clean meanwhile.
        let durable = read.work.check.has_rot();
        let repairs = read.origin.is_some_and(|origin| origin.repairs());
        let copies = read.origin.is_some_and(|origin| origin.copies());
        let fills = read.origin.is_some_and(|origin| origin.fills());
        // What another read would write again reaches the replacement as well.
        read.repairs |= copies;
        for (slot, set) in &targets {
            let work = &mut self.reads[place as usize].work;
            // A view may have taken the member out, or the right to write, since the band was looked at.
            let member = around.common.view.member(*slot);
            let is_there = match copies {
                true => member.is_some_and(|member| member.replacement.is_some()),
                false => member.is_some(),
            };
            if !is_there || !around.common.may_repair() {
                // One that was to be filled and is there no more lacks nothing.
                work.is_missed |= !fills || !around.common.may_repair();
                continue;
            }
            if repairs {
                work.check.is_written(*slot);
            }
            for extent in set.extents() {
                let mut from = *slot;
                if planted(Bug::CopyOfAnother) && copies {
                    from = Slot((slot.0 + 1) % self.geometry.slots());
                }
                let buffer = blocks.at(from, extent.offset);
                let kind = if copies { ReadIoKind::Copy } else { ReadIoKind::Write };
                let io = ReadIo { place, slot: *slot, extent, kind };
                self.submit(around, io, MemberOperation::Write { buffer, durable });
            }
        }
    }

    /// Solves for what is lost, and copies into the payload what was not solved for right there.
    #[inline]
    fn make(
        &mut self,
        around: &mut Around<'_>,
        place: u32,
        (want, way): (&Want, &Way),
        computation: &mut Computation,
    ) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        around.common.counters.reconstructions += u64::from(!way.solutions.is_empty());
        let map = read.map;
        solve(computation, (&map, blocks), way, |index, offset| {
            match read.straight(index, way.solved(index)) {
                Some((payload, from)) => payload.plus(offset - from),
                None => blocks.at(map.data_slot(index), offset),
            }
        });
        for index in 0..map.data_slots() {
            let slot = map.data_slot(index);
            let solved = way.solved(index);
            if !solved.is_empty() && read.straight(index, solved).is_some() {
                continue;
            }
            let column = read.column_mut(slot);
            column.valid = column.valid.union(solved);
            let Some(segment) = read.band().segment(&want.run, index) else { continue };
            let sectors = segment.sectors;
            around.common.counters.cache.copied_sectors += u64::from(sectors);
            let offset_sectors = segment.payload_offset;
            computation.steps.push(Step::Copy {
                from: blocks.at(slot, segment.offset),
                to: Buffer::Payload { request: want.request, offset_sectors },
                sectors,
            });
        }
    }

    /// The first block goes on here; the rest becomes a read of its own.
    fn divide(&mut self, around: &mut Around<'_>, place: u32) {
        reached(Mark::ReadDivided);
        let read = &mut self.reads[place as usize];
        let (band, want) = (*read.band(), read.client());
        let (first, rest) = want.run.cut(&band).expect("it is divisible");
        around.common.add_part(want.piece);
        self.arrived.push_front((band, Want { run: rest, ..want }));
        // One bad sector made a whole extent unreadable; a shorter one may be read.
        read.columns.iter_mut().for_each(|column| column.unreadable = SectorSet::EMPTY);
        let window = read.window;
        read.aim(Origin::Client(Want { run: first, ..want }), self.unit_sectors);
        read.window = read.window.common(window);
    }

    fn insist(&mut self, place: u32) {
        reached(Mark::AroundFails);
        let want = Want { insists: true, ..self.reads[place as usize].client() };
        self.let_go(place);
        let band = *self.reads[place as usize].band();
        self.outcomes.push_back(Outcome::Insists(band, want));
    }

    /// The bytes are there: a client gets its answer, a job its result.
    fn answer(&mut self, around: &mut Around<'_>, place: u32) {
        match self.let_go(place) {
            Origin::Client(want) => self.answer_client(around, place, &want),
            Origin::Background(work) => match work.task {
                Task::Compare | Task::Repair | Task::Retry => self.tell(around, place, &work),
                Task::Resync | Task::Recover | Task::Replace => {
                    let work_state = &self.reads[place as usize].work;
                    let WorkState { written, is_missed, is_unmade, .. } = *work_state;
                    let unmade = work::Outcome::Unmade { written };
                    let done = if is_unmade { unmade } else { work::Outcome::Done { written } };
                    let outcome = if is_missed { work::Outcome::Unwritten } else { done };
                    around.common.work_done(work.id, outcome);
                }
            },
        }
    }

    fn refuse(&mut self, around: &mut Around<'_>, place: u32) {
        match self.let_go(place) {
            Origin::Client(want) => {
                reached(Mark::ReadRefused);
                around.common.part_done(want.piece, Err(Fault::Unreadable));
            }
            // What was written cannot be read again, and is told as it is.
            Origin::Background(work) if self.reads[place as usize].work.check.is_again() => {
                self.tell(around, place, &work);
            }
            // What sits out may make the rest of it, later.
            Origin::Background(work) if work.task.fills() && around.common.clocks.is_any_out() => {
                reached(Mark::WorkSitsOut);
                around.common.work_done(work.id, work::Outcome::SitsOut);
            }
            Origin::Background(work) if work.task.makes() => {
                self.cannot_make(around, place, &work);
            }
            Origin::Background(work) => {
                reached(Mark::WorkRefused);
                around.common.work_done(work.id, work::Outcome::Unreadable);
            }
        }
    }

    /// Says who lacks what cannot be made. What can be copied is, though not all can.
    fn cannot_make(&mut self, around: &mut Around<'_>, place: u32, work: &Work) {
        let copied = match work.task {
            Task::Replace => self.reads[place as usize].copied(around),
            _ => SmallVec::new(),
        };
        let read = &mut self.reads[place as usize];
        let (band, window, map) = (*read.band(), read.window, read.map);
        let slots: SmallVec<[Slot; 2]> = match work.task {
            Task::Resync => [Some(map.p_slot()), map.q_slot()].into_iter().flatten().collect(),
            _ => read.work.targets.iter().map(|(slot, _)| *slot).collect(),
        };
        reached(Mark::WorkGivenUp);
        for slot in slots.into_iter().filter(|slot| !copied.contains(slot)) {
            let Some(view) = around.common.view.member(slot) else { continue };
            let member = if work.task == Task::Replace { view.replacement } else { Some(view.id) };
            let Some(member) = member else { continue };
            for extent in window.extents() {
                let (start, sectors) = band.range(extent);
                let id = work.id;
                around.common.report(Report::Unmade { id, member, start, sectors });
            }
        }
        if copied.is_empty() {
            return around.common.work_done(work.id, work::Outcome::Unmade { written: 0 });
        }
        let read = &mut self.reads[place as usize];
        read.origin = Some(Origin::Background(*work));
        read.work.is_unmade = true;
        read.work.targets.retain(|(slot, _)| copied.contains(slot));
    }

    #[inline]
    fn answer_client(&mut self, around: &mut Around<'_>, place: u32, want: &Want) {
        let band = *self.reads[place as usize].band();
        let is_lost = around.damage.is_lost(band.sectors(&self.geometry, &want.run));
        if is_lost {
            reached(Mark::LostIsNotRead);
        }
        let result = if is_lost { Err(Fault::Lost) } else { Ok(()) };
        around.common.part_done(want.piece, result);
    }

    /// What of a read that has been answered can be written again, by slot: what could not be read and was solved for.
    fn to_repair(&self, around: &Around<'_>, place: u32) -> SmallVec<[(Slot, SectorSet); 2]> {
        let read = &self.reads[place as usize];
        let is_over = read.origin.is_none() && read.phase == Phase::Compute && read.owns_band;
        let repaired = |slot: Slot| read.column(slot).unreadable.common(read.column(slot).valid);
        if !is_over || !read.slots().any(|slot| !repaired(slot).is_empty()) {
            return SmallVec::new();
        }
        let band = read.band();
        // A stripe that is writing goes on doing so, and must not be met.
        let is_written = around.batch_of(band).is_some_and(|stripe| {
            matches!(stripe.phase(), BatchPhase::Write | BatchPhase::AwaitRecord)
        });
        // Another read of the band may be repairing the same sectors.
        let is_repairing =
            |read: &Read| read.repairs && read.band.is_some_and(|other| other.key == band.key);
        if is_written || !around.common.may_repair() || self.reads.iter().any(is_repairing) {
            return SmallVec::new();
        }
        let may_help = |(slot, set): &(Slot, SectorSet)| {
            let member = around.common.view.member(*slot);
            // A member that came since, and is to be recovered, is not the one that could not be read.
            let holds_it = member.is_some_and(|one| holds(one, band));
            !set.is_empty() && holds_it && !around.common.clocks.sits_out(*slot)
        };
        read.slots().map(|slot| (slot, repaired(slot))).filter(may_help).collect()
    }

    fn repair(&mut self, around: &mut Around<'_>, place: u32, repair: &[(Slot, SectorSet)]) {
        let blocks = self.blocks(place);
        for &(slot, repaired) in repair {
            reached(Mark::RepairsStripe);
            around.common.counters.read_repairs += 1;
            let mut from = slot;
            if planted(Bug::RepairWritesWrong) {
                from = Slot((slot.0 + 1) % self.geometry.slots());
            }
            for extent in repaired.extents() {
                let buffer = blocks.at(from, extent.offset);
                let io = ReadIo { place, slot, extent, kind: ReadIoKind::Repair };
                self.submit(around, io, MemberOperation::Write { buffer, durable: false });
            }
        }
        let read = &mut self.reads[place as usize];
        (read.repairs, read.phase) = (true, Phase::Repair);
    }

    fn release(&mut self, place: u32) {
        let read = &mut self.reads[place as usize];
        assert!(read.outstanding == 0 && read.origin.is_none(), "nothing of it is under way");
        let band = read.band.take().expect("it had one");
        (read.owns_band, read.repairs) = (false, false);
        self.free.push(place);
        self.outcomes.push_back(Outcome::Wake(band.key));
    }

    /// A request has ended.
    pub(in super::super) fn io_done(
        &mut self,
        around: &mut Around<'_>,
        io: ReadIo,
        result: Result<(), MemberFault>,
    ) {
        let ReadIo { place, slot, extent, kind } = io;
        let read = &mut self.reads[place as usize];
        assert!(read.outstanding > 0 && read.band.is_some(), "the request was of a read");
        read.outstanding -= 1;
        if let (Some(Origin::Client(want)), Err(_)) = (read.origin, result) {
            around.common.note_cause(want.piece, result);
        }
        let is_as_planned = result.is_ok();
        let is_as_planned = spoiled(Bug::FailedReadMade, is_as_planned, true);
        if !is_as_planned {
            read.filled = None;
        }
        let column = read.column_mut(slot);
        column.out -= 1;
        match (kind, result) {
            (ReadIoKind::Read, Ok(())) => column.valid = column.valid.union(extent.set()),
            (ReadIoKind::Repair, Ok(())) => {
                around.common.note_written(slot);
                around.common.note_mended(slot);
            }
            (ReadIoKind::Write | ReadIoKind::Copy, Ok(())) => {
                around.common.note_written(slot);
                let is_mended = !read.column(slot).unreadable.common(extent.set()).is_empty();
                if is_mended && kind == ReadIoKind::Write {
                    around.common.note_mended(slot);
                }
                read.work.written += extent.sectors;
            }
            (ReadIoKind::Write, Err(fault)) if read.origin.is_some_and(|one| one.checks()) => {
                around.common.note_written(slot);
                // What is named costs its sectors, and the work goes on.
                read.work.is_missed |= fault.kind != FaultKind::Media;
                read.work.check.is_missed(slot);
                let range = read.band().range(extent);
                around.common.report_unmended(slot, fault, range);
            }
            (ReadIoKind::Write | ReadIoKind::Copy, Err(fault)) => {
                around.common.note_written(slot);
                read.work.is_missed = true;
                // What a sound member does not take costs the work, not the member.
                let is_in = around.common.still_in(slot, fault.cause.member);
                if !fault.kind.spares_member() && is_in {
                    around.common.report_failed(fault);
                }
            }
            (ReadIoKind::Repair, Err(fault)) => {
                around.common.note_written(slot);
                let range = read.band().range(extent);
                around.common.report_unmended(slot, fault, range);
            }
            (ReadIoKind::Read, Err(fault)) if self.is_read_in_parts(around, io, fault.kind) => {
                self.read_in_parts(around, io);
            }
            (ReadIoKind::Read, Err(fault)) => {
                let column = self.reads[place as usize].column_mut(slot);
                column.unreadable = column.unreadable.union(extent.set());
                column.valid = column.valid.without(extent.set());
                around.common.note_read_fault(slot, fault);
            }
        }
        self.step(around, place);
    }

    /// Whether a comparison could not read something that is longer than a block: it is not to make more of the others than it
    /// must.
    fn is_read_in_parts(&self, around: &Around<'_>, io: ReadIo, kind: FaultKind) -> bool {
        let read = &self.reads[io.place as usize];
        let is_fine = match read.origin {
            // Nor is what is copied to be made of the others more than it must.
            Some(Origin::Background(work)) => work.task.checks() || work.task == Task::Replace,
            Some(Origin::Client(_)) | None => false,
        };
        let is_there = around.common.view.member(io.slot).is_some();
        let is_long = io.extent.sectors > BLOCK_SECTORS;
        is_fine && is_there && is_long && kind == FaultKind::Media
    }

    fn read_in_parts(&mut self, around: &mut Around<'_>, io: ReadIo) {
        let ReadIo { place, slot, extent, kind } = io;
        let blocks = self.blocks(place);
        let mut offset = extent.offset;
        while offset < extent.end() {
            let end = (offset + 1).next_multiple_of(BLOCK_SECTORS).min(extent.end());
            let part = Extent { offset, sectors: end - offset };
            offset = end;
            let read = &mut self.reads[place as usize];
            let (start, sectors) = read.band().range(part);
            // What failed may have been named in a log meanwhile.
            let is_readable =
                around.common.view.readable(slot, start, u64::from(sectors)).is_some();
            let is_readable = spoiled(Bug::NamedReadInParts, is_readable, true);
            if !is_readable {
                let column = read.column_mut(slot);
                column.unreadable = column.unreadable.union(part.set());
                continue;
            }
            let buffer = blocks.at(slot, part.offset);
            let io = ReadIo { place, slot, extent: part, kind };
            self.submit(around, io, MemberOperation::Read { buffer });
        }
    }

    /// The computation of read number `number` is done.
    pub(in super::super) fn computation_done(
        &mut self,
        around: &mut Around<'_>,
        (number, computation): (u32, &Computation),
    ) {
        let place = number - self.first;
        let read = &mut self.reads[place as usize];
        assert!(read.phase == Phase::Compute && read.outstanding > 0, "one computation at a time");
        read.outstanding -= 1;
        let (found, located) = (&computation.found, computation.located());
        let set = |index: u16| found.get(usize::from(index)).copied().unwrap_or_default();
        let band = read.band();
        let agrees = around.damage.parity_agrees(&around.common.view, band);
        let parity = Parity { agrees, may_mend: around.common.may_repair() };
        let found = Difference { p: set(P), q: set(Q) };
        read.note_found((&around.common.view, parity), (found, located));
        self.step(around, place);
    }
}

/// Slots whose member is not recovered up to the end of the band. What it holds ahead, a later job makes once more.
fn lacking(view: &ArrayView, band: &Band) -> impl Iterator<Item = Slot> {
    let end = band.end().0;
    let slots = (0u16..).map(Slot).zip(&view.slots);
    let lacks_it = move |(_, member): &(Slot, &Option<MemberView>)| {
        member.as_ref().is_some_and(|member| member.recovered_sectors < end)
    };
    slots.filter(lacks_it).map(|(slot, _)| slot)
}

/// Makes the parity that is asked for, from data that is all in the blocks.
fn make_parity(
    computation: &mut Computation,
    (map, blocks): (&RowMap, Blocks),
    (p, q): (Option<Slot>, Option<Slot>),
    sectors: u32,
) {
    if p.is_none() && q.is_none() {
        return;
    }
    let at = |slot: Slot| blocks.at(slot, 0);
    let sources = by_exponent(computation, map, |index| Some(at(map.data_slot(index))));
    computation.steps.push(match (p, q) {
        (p, Some(q)) => Step::Generate { sources, p: p.map(at), q: at(q), sectors },
        (Some(p), None) => Step::Xor { target: at(p), sources, sectors },
        (None, None) => unreachable!("seen above"),
    });
}
