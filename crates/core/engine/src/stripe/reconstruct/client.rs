//! A client's read: it solves for the columns that their members cannot return, answers, and then
//! repairs sectors that could not be read.
//!
//! If columns lack different sectors, the read is divided ([`Reconstruct::divide`]). If the read
//! cannot be served around members that sit out, it reads from its own member, however long that
//! takes ([`Reconstruct::insist`]).

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, Mark, Point, planted, reached, sometimes};
use smallvec::SmallVec;

use super::super::batch::Phase as BatchPhase;
use super::super::in_flight::{ReadIo, ReadIoKind};
use super::super::plan::{Need, Planner, Recipe};
use super::super::solve::solve;
use super::decide::Phase;
use super::kind::{End, Kind, Steps};
use super::machine::{Outcome, Reconstruct, ReconstructContext};
use super::read::{ClientRead, Origin, Read, holds};
use crate::buffer::Buffer;
use crate::computation::Step;
use crate::effect::MemberOperation;
use crate::request::Fault;
use crate::sectors::SectorSet;

impl Kind for ClientRead {
    #[inline]
    fn plan(&self, read: &Read, context: &ReconstructContext<'_>, planner: &mut Planner) {
        planner.plan(|facts| read.tell(facts, context, read.is_left_out(context)));
        if planner.planned().is_none() && self.insists {
            let is_changing = context.is_changing(read.band());
            planner.plan(|facts| read.tell(facts, context, is_changing));
        }
    }

    fn without_plan(&self, read: &Read, context: &ReconstructContext<'_>) -> (Need, bool) {
        let need = if read.is_divisible(context) { Need::Less } else { Need::Impossible };
        (need, self.insists || !read.slots().any(read.is_left_out(context)))
    }

    /// Solves for lost sectors, and copies wanted sectors into the payload unless they were solved
    /// for in the payload itself.
    #[inline]
    fn compute(
        &self,
        steps: &mut Steps<'_>,
        context: &mut ReconstructContext<'_>,
        recipe: &Recipe,
    ) {
        let (read, computation) = (&mut *steps.read, &mut *steps.computation);
        let (map, blocks) = (read.map, steps.blocks);
        context.common.counters.reconstructions += u64::from(!recipe.solutions.is_empty());
        solve(computation, (&map, blocks), recipe, |index, offset| {
            match read.straight(index, recipe.solved(index)) {
                Some((payload, from)) => payload.plus(offset - from),
                None => blocks.at(map.data_slot(index), offset),
            }
        });
        for index in 0..map.data_slots() {
            let slot = map.data_slot(index);
            let solved = recipe.solved(index);
            if !solved.is_empty() && read.straight(index, solved).is_some() {
                continue;
            }
            let column = read.column_mut(slot);
            column.valid = column.valid.union(solved);
            let Some(segment) = read.band().segment(&self.run, index) else { continue };
            let sectors = segment.sectors;
            context.common.counters.cache.copied_sectors += u64::from(sectors);
            let offset_sectors = segment.payload_offset;
            computation.steps.push(Step::Copy {
                from: blocks.at(slot, segment.offset),
                to: Buffer::Payload { request: self.request, offset_sectors },
                sectors,
            });
        }
    }

    #[inline]
    fn end(
        &self,
        reads: &mut Reconstruct,
        context: &mut ReconstructContext<'_>,
        place: u32,
        end: End,
    ) {
        let band = *reads.reads[place as usize].band();
        let result = match end {
            End::Answered if context.damage.is_lost(band.sectors(&reads.geometry, &self.run)) => {
                reached(Mark::LostIsNotRead);
                Err(Fault::Lost)
            }
            End::Answered => Ok(()),
            End::Refused => {
                reached(Mark::ReadRefused);
                Err(Fault::Unreadable)
            }
            End::Abandoned => return reads.outcomes.push_back(Outcome::Anew(band, *self)),
        };
        context.common.part_done(self.piece, result);
    }
}

impl Read {
    /// Sets the read up for the sectors that a client wants.
    pub(super) fn aim_at(&mut self, want: &ClientRead, whole: SectorSet) {
        let (band, map) = (*self.band(), self.map);
        let mut window = SectorSet::EMPTY;
        for index in 0..map.data_slots() {
            let segment = band.segment(&want.run, index);
            let touched = segment.map_or(SectorSet::EMPTY, |segment| {
                SectorSet::run(segment.offset, segment.sectors)
            });
            self.column_mut(map.data_slot(index)).touched = touched;
            window = window.union(touched);
        }
        assert!(!window.is_empty(), "a read wants something of its band");
        self.window = if sometimes(Point::WholeWindow) { whole } else { window.joined(whole) };
    }

    /// The part of a client's read that this read serves.
    fn client(&self) -> ClientRead {
        self.origin.and_then(|origin| origin.client()).expect("a client wants it")
    }

    /// For each slot, whether the read avoids its column: the member sits out, or is being written.
    fn is_left_out(&self, context: &ReconstructContext<'_>) -> impl Fn(Slot) -> bool {
        let is_changing = context.is_changing(self.band());
        move |slot| context.common.clocks.sits_out(slot) || is_changing(slot)
    }

    /// Whether columns may lack different sectors, so that a part of the read can succeed.
    fn is_divisible(&self, context: &ReconstructContext<'_>) -> bool {
        let is_local = |slot: Slot| self.column_coverage(context, slot).lacks_some();
        self.slots().any(is_local) && self.client().run.cut(self.band()).is_some()
    }

    /// The place in the payload to solve into, if the read wants exactly the solved sectors of the
    /// column.
    fn straight(&self, index: u16, solved: SectorSet) -> Option<(Buffer, u32)> {
        if !self.column(self.map.data_slot(index)).unreadable.is_empty() {
            return None; // The repair writes from the block.
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
    /// Divides a read: this read continues with the first block, and the other blocks become a new
    /// read.
    pub(super) fn divide(&mut self, context: &mut ReconstructContext<'_>, place: u32) {
        reached(Mark::ReadDivided);
        let read = &mut self.reads[place as usize];
        let (band, want) = (*read.band(), read.client());
        let (first, rest) = want.run.cut(&band).expect("it is divisible");
        context.common.add_part(want.piece);
        self.arrived.push_front((band, ClientRead { run: rest, ..want }));
        // One bad sector made a whole extent unreadable; a shorter extent may be readable.
        read.columns.iter_mut().for_each(|column| column.unreadable = SectorSet::EMPTY);
        let window = read.window;
        read.aim(Origin::Client(ClientRead { run: first, ..want }), self.unit_sectors);
        read.window = read.window.common(window);
    }

    pub(super) fn insist(&mut self, place: u32) {
        reached(Mark::AroundFails);
        let want = ClientRead { insists: true, ..self.reads[place as usize].client() };
        self.let_go(place);
        let band = *self.reads[place as usize].band();
        self.outcomes.push_back(Outcome::Insists(band, want));
    }

    /// Unreadable sectors, by slot, that an answered read has solved for and can rewrite.
    pub(super) fn to_repair(
        &self,
        context: &ReconstructContext<'_>,
        place: u32,
    ) -> SmallVec<[(Slot, SectorSet); 2]> {
        let read = &self.reads[place as usize];
        let is_over = read.origin.is_none() && read.phase == Phase::Compute && read.owns_band;
        let repaired = |slot: Slot| read.column(slot).unreadable.common(read.column(slot).valid);
        if !is_over || !read.slots().any(|slot| !repaired(slot).is_empty()) {
            return SmallVec::new();
        }
        let band = read.band();
        // A stripe that writes cannot be stopped, so no repair of its band begins meanwhile.
        let is_written = context.batch_of(band).is_some_and(|stripe| {
            matches!(stripe.phase(), BatchPhase::Write | BatchPhase::AwaitRecord)
        });
        // Another read of the band may be repairing the same sectors.
        let is_repairing =
            |read: &Read| read.repairs && read.band.is_some_and(|other| other.key == band.key);
        if is_written || !context.common.may_repair() || self.reads.iter().any(is_repairing) {
            return SmallVec::new();
        }
        let may_help = |(slot, set): &(Slot, SectorSet)| {
            let member = context.common.view.member(*slot);
            // A member that joined since and is being recovered is not the member that failed the
            // read.
            let holds_it = member.is_some_and(|one| holds(one, band));
            !set.is_empty() && holds_it && !context.common.clocks.sits_out(*slot)
        };
        read.slots().map(|slot| (slot, repaired(slot))).filter(may_help).collect()
    }

    pub(super) fn repair(
        &mut self,
        context: &mut ReconstructContext<'_>,
        place: u32,
        repair: &[(Slot, SectorSet)],
    ) {
        let blocks = self.blocks(place);
        for &(slot, repaired) in repair {
            reached(Mark::RepairsStripe);
            context.common.counters.read_repairs += 1;
            let mut from = slot;
            if planted(Bug::RepairWritesWrong) {
                from = Slot((slot.0 + 1) % self.geometry.slots());
            }
            for extent in repaired.extents() {
                let buffer = blocks.at(from, extent.offset);
                let io = ReadIo { place, slot, extent, kind: ReadIoKind::Repair };
                self.submit(context, io, MemberOperation::Write { buffer, durable: false });
            }
        }
        let read = &mut self.reads[place as usize];
        (read.repairs, read.phase) = (true, Phase::Repair);
    }
}
