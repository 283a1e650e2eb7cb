//! Carries out the decisions about reads of any kind: emits the reads' effects, and passes events
//! to the reads.

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, Mark, reached, spoiled};
use smallvec::SmallVec;

use super::super::band::Band;
use super::super::in_flight::{IoOwner, ReadIo, ReadIoKind};
use super::super::plan::{FilledPlan, Plan, Planner};
use super::super::solve::Blocks;
use super::decide::{Action, Phase, decide, waits};
use super::kind::{End, Kind, KindTraits, Steps};
use super::machine::{Outcome, Reconstruct, ReconstructContext, StartCondition};
use super::read::{Column, Origin, WorkState};
use crate::computation::{Computation, ComputationId};
use crate::context::Departures;
use crate::effect::{FaultKind, MemberFault, MemberOperation, Report};
use crate::ids::IoId;
use crate::sectors::{BLOCK_SECTORS, Extent};
use crate::work::{self, Class, Work};

impl Reconstruct {
    pub(super) fn begin(
        &mut self,
        context: &mut ReconstructContext<'_>,
        band: Band,
        origin: Origin,
    ) {
        reached(match origin {
            Origin::Client(_) => Mark::ReadReconstructs,
            Origin::Background(_) => Mark::WorkBegins,
        });
        let view = &context.common.view;
        let targets = by_kind!(origin, kind => kind.targets(view, &band));
        if let Origin::Background(Work { id, .. }) = origin
            && targets.as_ref().is_some_and(SmallVec::is_empty)
        {
            // The member that the work was to fill has left.
            return context.common.work_done(id, work::Outcome::Unwritten);
        }
        let place = self.free.pop().expect("there is room");
        let map = self.geometry.row_map(band.row);
        let read = &mut self.reads[place as usize];
        let is_free = read.origin.is_none() && read.outstanding == 0 && read.orphans == 0;
        assert!(is_free, "a free place has no work");
        read.columns.fill(Column::default());
        (read.band, read.map, read.owns_band) = (Some(band), map, true);
        read.aim(origin, self.unit_sectors);
        // Background work uses whole stripe units, at their own offset in the block.
        let is_of_client = origin.client().is_some();
        let first = read.window.first_from(0).filter(|_| is_of_client);
        read.shift_sectors = first.map_or(0, |first| first / BLOCK_SECTORS * BLOCK_SECTORS);
        self.wanted += usize::from(is_of_client);
        if let Some(slots) = targets {
            read.aim_at_columns(slots.into_iter());
        }
        self.step(context, place);
    }

    /// Advances a read until the read waits for an event, or is over.
    fn step(&mut self, context: &mut ReconstructContext<'_>, place: u32) {
        let mut planner = self.planner.take().expect("one read is looked at at a time");
        while waits(self.reads[place as usize].outstanding > 0).is_none()
            && self.go_on(context, place, &mut planner)
        {}
        self.planner = Some(planner);
    }

    /// Carries out the next action. False if the read waits for an event, or is over.
    fn go_on(
        &mut self,
        context: &mut ReconstructContext<'_>,
        place: u32,
        planner: &mut Planner,
    ) -> bool {
        let repair = self.to_repair(context, place);
        let read = &self.reads[place as usize];
        let is_behind = !read.work.targets.is_empty() && self.is_behind(context, place);
        let facts = read.facts(context, planner, (!repair.is_empty(), is_behind));
        match decide(&facts) {
            Action::Wait => return false,
            Action::Release => {
                self.release(place);
                return false;
            }
            Action::Read => {
                self.submit_reads(context, place, planner.planned().expect("a need has a plan"));
            }
            Action::Compute => self.compute(context, place, planner),
            Action::Divide => self.divide(context, place),
            Action::Insist => self.insist(place),
            Action::Mend => self.mend(context, place),
            Action::GiveWay => self.give_way_to_batch(place),
            Action::ReadAgain => self.read_again(place),
            Action::Write => self.write(context, place),
            Action::Answer => self.end(context, place, End::Answered),
            Action::Repair => self.repair(context, place, &repair),
            Action::Refuse => self.end(context, place, End::Refused),
        }
        true
    }

    pub(super) fn blocks(&self, place: u32) -> Blocks {
        let shift_sectors = self.reads[place as usize].shift_sectors;
        self.frame_blocks.at(self.first + place, shift_sectors)
    }

    pub(super) fn submit(
        &mut self,
        context: &mut ReconstructContext<'_>,
        io: ReadIo,
        operation: MemberOperation,
    ) {
        let read = &mut self.reads[io.place as usize];
        let id = IoId(context.in_flight.insert(IoOwner::Reconstruct(io)));
        let range = read.band().range(io.extent);
        match io.kind {
            ReadIoKind::Copy => {
                context.common.submit_to_replacement((id, io.slot), range, operation);
            }
            ReadIoKind::Read | ReadIoKind::Repair | ReadIoKind::Write => {
                context.common.submit((id, io.slot), range, operation);
            }
        }
        read.outstanding += 1;
        read.column_mut(io.slot).out += 1;
    }

    fn submit_reads(&mut self, context: &mut ReconstructContext<'_>, place: u32, plan: &Plan) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        assert!(read.owns_band, "its band is not written meanwhile");
        let map = read.map;
        read.filled =
            Some(FilledPlan { recipe: plan.recipe.clone(), epoch: context.common.view.epoch });
        for (slot, set) in plan.columns(&map) {
            for extent in set.extents() {
                let buffer = blocks.at(slot, extent.offset);
                let io = ReadIo { place, slot, extent, kind: ReadIoKind::Read };
                self.submit(context, io, MemberOperation::Read { buffer });
            }
        }
    }

    /// Computes by the plan of the submitted reads, or else by a plan made now, with all columns in
    /// memory.
    fn compute(&mut self, context: &mut ReconstructContext<'_>, place: u32, planner: &Planner) {
        let read = &mut self.reads[place as usize];
        assert!(read.phase == Phase::Fill && read.outstanding == 0, "all that is needed is read");
        read.phase = Phase::Compute;
        let filled = read.filled.take();
        let planned = planner.planned().map(|plan| &plan.recipe);
        let recipe = planned.or(filled.as_ref().map(|filled| &filled.recipe));
        let recipe = recipe.expect("there is a way, or it could not go on");
        self.submit_steps(context, place, |origin, steps, context| {
            by_kind!(origin, kind => kind.compute(steps, context, recipe));
        });
    }

    /// Computes wrong columns again from the other columns.
    fn mend(&mut self, context: &mut ReconstructContext<'_>, place: u32) {
        self.reads[place as usize].work.is_remade = true;
        self.submit_steps(context, place, |origin, steps, context| {
            by_kind!(origin, kind => kind.mend(steps, context));
        });
    }

    /// Submits the computation of a read's steps, if there are any.
    #[inline]
    fn submit_steps(
        &mut self,
        context: &mut ReconstructContext<'_>,
        place: u32,
        note: impl FnOnce(Origin, &mut Steps<'_>, &mut ReconstructContext<'_>),
    ) {
        let (blocks, unit_sectors) = (self.blocks(place), self.unit_sectors);
        let id = ComputationId(u64::from(self.first + place));
        let mut computation = context.common.blank_computation(id);
        let read = &mut self.reads[place as usize];
        let origin = read.origin.expect("it is wanted");
        let steps = &mut Steps { read, blocks, unit_sectors, computation: &mut computation };
        note(origin, steps, context);
        if computation.steps.is_empty() {
            // No step is left: all columns were read, or solved for in place.
            return context.common.recycle(computation);
        }
        self.reads[place as usize].outstanding += 1;
        context.common.submit_computation(computation);
    }

    /// Lets the band's batch end first. Then the background work begins anew, and keeps the band.
    fn give_way_to_batch(&mut self, place: u32) {
        reached(Mark::MendGivesWay);
        let Origin::Background(work) = self.let_go(place) else {
            unreachable!("only background work mends")
        };
        let read = &mut self.reads[place as usize];
        read.owns_band = false;
        let again = Origin::Background(Work { class: Class::BestEffort, ..work });
        self.kept_out.push_back((*read.band(), again, StartCondition::ForBand));
    }

    /// Writes computed columns to the members that lack them.
    fn write(&mut self, context: &mut ReconstructContext<'_>, place: u32) {
        let blocks = self.blocks(place);
        let read = &mut self.reads[place as usize];
        read.phase = Phase::Write;
        let targets = std::mem::take(&mut read.work.targets);
        // Repairs use FUA: they are reported as done, and superblocks may say clean meanwhile.
        let durable = read.work.check.has_rot();
        let traits = read.origin.expect("it is wanted").traits();
        let KindTraits { repairs, copies, fills, .. } = traits;
        // A repair of the same sectors by another read must reach the replacement as well.
        read.repairs |= copies;
        for (slot, set) in &targets {
            let work = &mut self.reads[place as usize].work;
            // A view that arrived since the read may have removed the member, or may allow no
            // writes.
            let is_there = traits.member_of(&context.common.view, *slot).is_some();
            if !is_there || !context.common.may_repair() {
                // A member that left during recovery needs no write.
                work.is_missed |= !fills || !context.common.may_repair();
                continue;
            }
            if repairs {
                work.check.is_written(*slot);
            }
            for extent in set.extents() {
                let from = *slot;
                let buffer = blocks.at(from, extent.offset);
                let kind = if copies { ReadIoKind::Copy } else { ReadIoKind::Write };
                let io = ReadIo { place, slot: *slot, extent, kind };
                self.submit(context, io, MemberOperation::Write { buffer, durable });
            }
        }
    }

    /// Reports the work's result to the job, once its writes have ended.
    pub(super) fn end_written(
        &self,
        context: &mut ReconstructContext<'_>,
        place: u32,
        work: &Work,
    ) {
        let WorkState { written, is_missed, is_unmade, .. } = self.reads[place as usize].work;
        context.common.work_done(
            work.id,
            match (is_missed, is_unmade) {
                (true, _) => work::Outcome::Unwritten,
                (false, true) => work::Outcome::Unmade { written },
                (false, false) => work::Outcome::Done { written },
            },
        );
    }

    /// Reports the members that lack this band's columns for good.
    pub(super) fn report_unmade(
        &self,
        context: &mut ReconstructContext<'_>,
        (place, work): (u32, &Work),
        slots: impl IntoIterator<Item = Slot>,
    ) {
        reached(Mark::WorkGivenUp);
        let read = &self.reads[place as usize];
        let (id, traits) = (work.id, Origin::Background(*work).traits());
        for slot in slots {
            let Some(member) = traits.member_of(&context.common.view, slot) else { continue };
            for extent in read.window.extents() {
                let (start, sectors) = read.band().range(extent);
                context.common.report(Report::Unmade { id, member, start, sectors });
            }
        }
    }

    fn end(&mut self, context: &mut ReconstructContext<'_>, place: u32, end: End) {
        let origin = self.let_go(place);
        by_kind!(origin, kind => kind.end(self, context, place, end));
    }

    fn release(&mut self, place: u32) {
        let read = &mut self.reads[place as usize];
        assert!(read.outstanding == 0 && read.origin.is_none(), "nothing of it is under way");
        let band = read.band.take().expect("it had one");
        (read.owns_band, read.repairs) = (false, false);
        if read.orphans == 0 {
            self.free.push(place);
        }
        self.outcomes.push_back(Outcome::Wake(band.key));
    }

    /// Called when members began to sit out: abandons the reads that wait for them, and begins
    /// these reads anew.
    pub(in super::super) fn abandon(&mut self, context: &mut ReconstructContext<'_>) {
        for place in 0..self.reads.len() {
            let read = &self.reads[place];
            let waits_for = |slot: Slot| read.column(slot).out > 0;
            let is_stuck = context.common.clocks.slots_out().any(waits_for);
            let client = read.origin.and_then(|origin| origin.client());
            let insists = client.is_some_and(|want| want.insists);
            if is_stuck && !insists {
                self.abandon_place(context, place);
            }
        }
    }

    /// Called when members left: begins the reads at these members anew, since the members may
    /// still write to the blocks.
    pub(in super::super) fn leave_reads(
        &mut self,
        context: &mut ReconstructContext<'_>,
        departures: &Departures,
    ) {
        for place in 0..self.reads.len() {
            let read = &self.reads[place];
            let mut slots = read.slots();
            if slots.any(|slot| departures.has(slot) && read.column(slot).out > 0) {
                self.abandon_place(context, place);
            }
        }
    }

    fn abandon_place(&mut self, context: &mut ReconstructContext<'_>, place: usize) {
        let read = &mut self.reads[place];
        let (Some(band), Some(_)) = (read.band, read.origin) else { return };
        // A write to a member stays until the write ends, so that it cannot overtake a client's
        // write.
        let stays = read.phase == Phase::Write;
        let stays = spoiled(Bug::WaitsBehindStuck, stays, true);
        if stays {
            return;
        }
        reached(Mark::ReadAbandoned);
        (read.owns_band, read.repairs) = (false, false);
        let at = u32::try_from(place).expect("a few places");
        self.end(context, at, End::Abandoned);
        self.outcomes.push_back(Outcome::Wake(band.key));
    }

    pub(in super::super) fn io_done(
        &mut self,
        context: &mut ReconstructContext<'_>,
        io: ReadIo,
        result: Result<(), MemberFault>,
    ) {
        let ReadIo { place, slot, extent, kind } = io;
        let read = &mut self.reads[place as usize];
        assert!(read.outstanding > 0 && read.band.is_some(), "the request was of a read");
        read.outstanding -= 1;
        if let (Some(Origin::Client(want)), Err(_)) = (read.origin, result) {
            context.common.note_cause(want.piece, result);
        }
        let is_as_planned = result.is_ok();
        if !is_as_planned {
            read.filled = None;
        }
        let column = read.column_mut(slot);
        column.out -= 1;
        match (kind, result) {
            (ReadIoKind::Read, Ok(())) => column.valid = column.valid.union(extent.set()),
            (ReadIoKind::Repair, Ok(())) => {
                context.common.note_written(slot);
                context.common.note_mended(slot);
            }
            (ReadIoKind::Write | ReadIoKind::Copy, Ok(())) => {
                context.common.note_written(slot);
                let is_mended = !read.column(slot).unreadable.common(extent.set()).is_empty();
                if is_mended && kind == ReadIoKind::Write {
                    context.common.note_mended(slot);
                }
                read.work.written += extent.sectors;
            }
            (ReadIoKind::Write, Err(fault))
                if read.origin.is_some_and(|one| one.traits().compares) =>
            {
                context.common.note_written(slot);
                // A medium error costs sectors that the log then names; the work continues.
                read.work.is_missed |= fault.kind != FaultKind::Media;
                read.work.check.is_missed(slot);
                let range = read.band().range(extent);
                context.common.report_unmended(slot, fault, range);
            }
            (ReadIoKind::Write | ReadIoKind::Copy, Err(fault)) => {
                context.common.note_written(slot);
                read.work.is_missed = true;
                // If a sound member does not take a write, the work fails, and the member stays in
                // the array.
                let is_in = context.common.still_in(slot, fault.cause.member);
                if !fault.kind.spares_member() && is_in {
                    context.common.report_failed(fault);
                }
            }
            (ReadIoKind::Repair, Err(fault)) => {
                context.common.note_written(slot);
                let range = read.band().range(extent);
                context.common.report_unmended(slot, fault, range);
            }
            (ReadIoKind::Read, Err(fault)) if self.is_read_in_parts(context, io, fault.kind) => {
                self.read_in_parts(context, io);
            }
            (ReadIoKind::Read, Err(fault)) => {
                let column = self.reads[place as usize].column_mut(slot);
                column.unreadable = column.unreadable.union(extent.set());
                column.valid = column.valid.without(extent.set());
                context.common.note_read_fault(slot, fault);
            }
        }
        self.step(context, place);
    }

    /// Whether to read again block by block: after a medium error in more than a block, for a kind
    /// that computes as little as possible from other columns.
    fn is_read_in_parts(
        &self,
        context: &ReconstructContext<'_>,
        io: ReadIo,
        kind: FaultKind,
    ) -> bool {
        let origin = self.reads[io.place as usize].origin;
        let is_fine = origin.is_some_and(|origin| origin.traits().reads_in_parts);
        let is_there = context.common.view.member(io.slot).is_some();
        let is_long = io.extent.sectors > BLOCK_SECTORS;
        is_fine && is_there && is_long && kind == FaultKind::Media
    }

    fn read_in_parts(&mut self, context: &mut ReconstructContext<'_>, io: ReadIo) {
        let ReadIo { place, slot, extent, kind } = io;
        let blocks = self.blocks(place);
        let mut offset = extent.offset;
        while offset < extent.end() {
            let end = (offset + 1).next_multiple_of(BLOCK_SECTORS).min(extent.end());
            let part = Extent { offset, sectors: end - offset };
            offset = end;
            let read = &mut self.reads[place as usize];
            let (start, sectors) = read.band().range(part);
            // By now the bad-block log may name a part of the range.
            let is_readable =
                context.common.view.readable(slot, start, u64::from(sectors)).is_some();
            if !is_readable {
                let column = read.column_mut(slot);
                column.unreadable = column.unreadable.union(part.set());
                continue;
            }
            let buffer = blocks.at(slot, part.offset);
            let io = ReadIo { place, slot, extent: part, kind };
            self.submit(context, io, MemberOperation::Read { buffer });
        }
    }

    pub(in super::super) fn computation_done(
        &mut self,
        context: &mut ReconstructContext<'_>,
        (number, computation): (u32, &Computation),
    ) {
        let place = number - self.first;
        let read = &mut self.reads[place as usize];
        assert!(read.phase == Phase::Compute && read.outstanding > 0, "one computation at a time");
        read.outstanding -= 1;
        if let Some(origin) = read.origin {
            by_kind!(origin, kind => kind.note_computed(read, context, computation));
        }
        self.step(context, place);
    }
}
