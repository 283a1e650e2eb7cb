//! Carrying decisions out: the only place where a stripe's state changes and effects leave it.

use std::ops::Range;

use braid_geometry::{LogicalSector, Slot};
use braid_hooks::{Bug, Mark, planted, reached};

use super::band::Attachment;
use super::content::{Part, Source};
use super::decide::{Action, Turn, decide};
use super::facts::{Around, facts};
use super::plan::{Method, Plan, Recovery};
use super::sectors::SectorSet;
use super::solve::Blocks;
use super::state::{Column, ColumnState, Fresh, Phase, Place, Stripe};
use super::steps::Builder;
use super::{ColumnIo, IoOwner, Stripes};
use crate::buffer::Buffer;
use crate::effect::{IoId, MemberFault, MemberOperation, Report};
use crate::job::{JobId, Step};
use crate::request::Fault;
use crate::shard::Common;
use rangemap::RangeSet;

impl Stripes {
    /// Lets a stripe go on until it waits for an event, stands in a list, or is idle.
    pub(super) fn step(&mut self, common: &mut Common, index: u32) {
        loop {
            let stripe = self.cache.stripe(index);
            if matches!(stripe.place, Place::Idle | Place::Retired) {
                return;
            }
            let (facts, plan) = facts(stripe, &self.around(common, stripe));
            match decide(&facts) {
                Action::Wait => return,
                Action::Release => return self.release(common, index),
                Action::PutOff(turn) => return self.put_off(common, index, turn),
                Action::Begin => {
                    self.count_beginning(common, index);
                    self.cache.stripe_mut(index).phase = Phase::Fill;
                }
                Action::Read => self.read(common, index, &plan.expect("a need has a plan")),
                Action::Compute => self.compute(common, index, &plan.expect("nothing lacks")),
                Action::Write => self.write(common, index),
                Action::Hold => self.hold(common, index),
                Action::Finish => self.end_batch(common, index, Ok(())),
                Action::Narrow => self.narrow(common, index),
                Action::Refuse => self.refuse(common, index),
            }
        }
    }

    /// What a stripe's facts depend on beside itself.
    fn around<'a>(&self, common: &'a Common, stripe: &Stripe) -> Around<'a> {
        let band = stripe.band();
        Around {
            view: &common.view,
            clocks: &common.clocks,
            parity_agrees: self.damage.parity_agrees(&common.view, band),
            turn: match stripe.phase {
                Phase::Ready => self.turn(common, stripe),
                _ => Turn::Now,
            },
            read: match stripe.phase {
                Phase::Ready => self.reads.has_waiting(band.key),
                Phase::Compute => self.reads.is_reading(band.key),
                Phase::Fill | Phase::Write | Phase::Hold => false,
            },
        }
    }

    fn blocks(&self, index: u32) -> Blocks {
        Blocks::of(index, self.geometry.slots())
    }

    /// Asks a column's member for an extent, or gives it to it.
    fn submit(&mut self, common: &mut Common, io: ColumnIo, operation: MemberOperation) {
        let ColumnIo { index, slot, extent, .. } = io;
        let is_write = operation.is_write();
        let id = IoId(self.in_flight.insert(IoOwner::Column(io)));
        let stripe = self.cache.stripe_mut(index);
        common.submit((id, slot), stripe.range(extent), operation);
        stripe.outstanding += 1;
        let column = stripe.column_mut(slot);
        column.out += 1;
        column.state = if is_write { ColumnState::Writing } else { ColumnState::Reading };
    }

    fn read(&mut self, common: &mut Common, index: u32, plan: &Plan) {
        let (map, blocks) = (self.cache.stripe(index).map, self.blocks(index));
        common.counters.pre_reads += plan.reads() as u64;
        for (slot, set) in plan.columns(&map) {
            for extent in set.extents() {
                let offset = if planted(Bug::ReadsAtUnitStart) { 0 } else { extent.offset };
                let buffer = blocks.at(slot, offset);
                let io = ColumnIo { index, slot, extent, is_repair: false };
                self.submit(common, io, MemberOperation::Read { buffer });
                if planted(Bug::OneExtentRead) {
                    let column = self.cache.stripe_mut(index).column_mut(slot);
                    column.valid = column.valid.union(set);
                    break;
                }
            }
        }
    }

    fn compute(&mut self, common: &mut Common, index: u32, plan: &Plan) {
        let blocks = self.blocks(index);
        let mut content = std::mem::take(&mut self.content);
        let stripe = self.cache.stripe_mut(index);
        count(common, stripe, plan);
        stripe.phase = Phase::Compute;
        content.find(stripe);
        let job = common.blank_job(JobId(u64::from(index)));
        let job = Builder { stripe: &mut *stripe, blocks, content: &content, job }.build(plan);
        let copied = |step: &Step| match step {
            Step::Copy { sectors, .. } => u64::from(*sectors),
            _ => 0,
        };
        common.counters.cache.copied_sectors += job.steps.iter().map(copied).sum::<u64>();
        if job.steps.is_empty() {
            common.recycle(job);
        } else {
            stripe.outstanding += 1;
            common.submit_job(job);
        }
        self.content = content;
    }

    /// Writes every column whose member lacks its content.
    fn write(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        stripe.phase = Phase::Write;
        let batch = *stripe.batch.as_ref().expect("a batch is being written");
        let durable = stripe.attachments().any(|attachment| attachment.want.is_durable());
        let durable = durable && !planted(Bug::StripeIgnoresFua);
        let mut content = std::mem::take(&mut self.content);
        content.find(stripe);
        if planted(Bug::AnsweredUnwritten) {
            self.answer_batch(common, index, Ok(()));
        }
        let map = self.cache.stripe(index).map;
        for data in 0..map.data_slots() {
            let slot = map.data_slot(data);
            self.write_straight(common, (index, slot), content.of(data), durable);
            self.write_blocks(common, (index, slot), content.sets_of(data).0, durable);
        }
        self.content = content;
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            let is_forgotten = slot == map.p_slot()
                && common.view.slots.contains(&None)
                && planted(Bug::DegradedWithoutP);
            let fresh = self.cache.stripe(index).column(slot).fresh;
            let is_made = fresh == Fresh::Block && !is_forgotten;
            let made = if is_made { batch.window } else { SectorSet::EMPTY };
            self.write_blocks(common, (index, slot), made, durable);
            if let Fresh::Zeroes { may_punch } = fresh
                && !is_forgotten
                && common.view.member(slot).is_some()
            {
                for extent in batch.window.extents() {
                    let io = ColumnIo { index, slot, extent, is_repair: false };
                    self.submit(common, io, MemberOperation::Zero { may_punch, durable });
                }
            }
        }
    }

    /// Writes a column from payloads.
    fn write_straight(
        &mut self,
        common: &mut Common,
        (index, slot): (u32, Slot),
        parts: &[Part],
        durable: bool,
    ) {
        if common.view.member(slot).is_none() {
            return;
        }
        for part in parts.iter().filter(|part| !part.is_gathered) {
            let operation = match part.source {
                Source::Payload { request, offset_sectors } => MemberOperation::Write {
                    buffer: Buffer::Payload { request, offset_sectors },
                    durable,
                },
                Source::Zeroes { may_punch } => MemberOperation::Zero { may_punch, durable },
            };
            let io = ColumnIo { index, slot, extent: part.extent, is_repair: false };
            self.submit(common, io, operation);
        }
    }

    /// Writes what a column's block has anew; and once more what could not be read of it, which may help.
    fn write_blocks(
        &mut self,
        common: &mut Common,
        (index, slot): (u32, Slot),
        made: SectorSet,
        durable: bool,
    ) {
        if common.view.member(slot).is_none() {
            return;
        }
        let blocks = self.blocks(index);
        let column = self.cache.stripe(index).column(slot);
        let made = made.joined(column.valid);
        let repaired = if !common.may_repair() || column.fresh != Fresh::Nothing {
            SectorSet::EMPTY
        } else {
            column.unreadable.common(column.valid).without(column.touched.union(made))
        };
        if !repaired.is_empty() {
            reached(Mark::RepairsStripe);
            common.counters.read_repairs += 1;
        }
        for (set, is_repair) in [(made, false), (repaired, true)] {
            let is_wrong = is_repair && planted(Bug::RepairWritesWrong);
            let from = if is_wrong { Slot((slot.0 + 1) % self.geometry.slots()) } else { slot };
            for extent in set.extents() {
                let buffer = blocks.at(from, extent.offset);
                let io = ColumnIo { index, slot, extent, is_repair };
                self.submit(common, io, MemberOperation::Write { buffer, durable });
            }
        }
    }

    fn hold(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        stripe.phase = Phase::Hold;
        self.holding += 1;
        for (member, fault) in stripe.columns.iter().filter_map(|column| column.missed) {
            common.report(match fault {
                MemberFault::NoSpace => Report::OutOfSpace { member },
                MemberFault::Media | MemberFault::Gone => Report::MemberFailed { member },
            });
        }
        if planted(Bug::HoldForgets) {
            stripe.columns.iter_mut().for_each(|column| column.missed = None);
        }
    }

    /// Begins again with one write, or with the first block of it.
    fn narrow(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        let batch = stripe.batch.take().expect("a batch is being filled");
        if batch.count == 1 {
            let whole = stripe.queue[0];
            let (first, rest) = whole.run.cut(stripe.band()).expect("the facts say so");
            if whole.kept {
                common.keep_part(whole.piece);
            } else {
                common.add_part(whole.piece);
                stripe.awaited += 1;
            }
            whole.owes.into_iter().for_each(|debt| self.promises.part(debt));
            stripe.queue[0].run = first;
            stripe.queue.insert(1, Attachment { run: rest, ..whole });
        }
        // One of several may be full; what is cut never is.
        stripe.begin_batch(self.unit_sectors, 1);
        self.writers.end(&batch);
        self.writers.begin(stripe.batch.as_ref().expect("just begun"));
    }

    /// The batch cannot be served. If it had begun to write, the band is torn from now on.
    fn refuse(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe(index);
        let is_full =
            |column: &Column| column.missed.is_some_and(|(_, fault)| fault == MemberFault::NoSpace);
        let is_full = stripe.columns.iter().any(is_full);
        let fault = if is_full { Fault::NoSpace } else { Fault::Unwritable };
        if stripe.phase == Phase::Hold && !planted(Bug::TornForgotten) {
            reached(Mark::TearsBand);
            self.damage.tear(stripe.band().key);
        }
        self.end_batch(common, index, Err(fault));
    }

    fn end_batch(&mut self, common: &mut Common, index: u32, result: Result<(), Fault>) {
        self.answer_batch(common, index, result);
        let stripe = self.cache.stripe_mut(index);
        let batch = stripe.batch.take().expect("a batch is being ended");
        let was_holding = std::mem::replace(&mut stripe.phase, Phase::Ready) == Phase::Hold;
        self.holding -= u32::from(was_holding);
        stripe.has_served = true;
        stripe.is_worth_keeping = batch.is_part();
        for column in &mut stripe.columns {
            if result.is_err() {
                let believes = planted(Bug::FailedBatchBelieved);
                let all = column.valid.union(batch.window);
                column.valid = if believes { all } else { SectorSet::EMPTY };
            }
            column.queued = SectorSet::EMPTY;
        }
        for place in 0..stripe.queue.len() {
            let attachment = stripe.queue[place];
            stripe.note_queued(&attachment);
        }
        self.writers.end(&batch);
    }

    /// Answers what the batch works on, or, where that was answered, lets go of it.
    fn answer_batch(&mut self, common: &mut Common, index: u32, result: Result<(), Fault>) {
        if result.is_err() && !planted(Bug::LostUntold) {
            self.note_lost(common, index);
        }
        let stripe = self.cache.stripe_mut(index);
        let band = *stripe.band();
        let batch = stripe.batch.as_mut().expect("a batch is being answered");
        for _ in 0..std::mem::take(&mut batch.count) {
            let stripe = self.cache.stripe_mut(index);
            let work = stripe.queue.pop_front().expect("a batch is a part of the queue");
            stripe.awaited -= u32::from(!work.kept);
            if result.is_ok() {
                self.damage.written(band.sectors(&self.geometry, &work.run));
            }
            if work.kept {
                result.err().into_iter().for_each(|fault| common.part_lost(work.piece, fault));
                common.let_go(work.piece);
            } else {
                common.part_done(work.piece, result);
            }
            work.owes.into_iter().for_each(|debt| self.pay(common, debt));
        }
    }

    /// The batch has failed. What of it was answered is lost: the array is told, ahead of the end of a round that waits
    /// for it, so that no flush is answered well.
    fn note_lost(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe(index);
        let band = stripe.band();
        let mut lost = RangeSet::new();
        for work in stripe.attachments().filter(|work| work.owes.is_some()) {
            lost.extend(band.sectors(&self.geometry, &work.run));
        }
        self.damage.lose(&lost);
        for Range { start, end } in lost {
            reached(Mark::WriteLost);
            let start = LogicalSector(start);
            common.report(Report::WriteLost { start, sectors: end - start.0 });
        }
    }

    /// A column's read or write came back.
    pub(super) fn column_done(
        &mut self,
        common: &mut Common,
        io: ColumnIo,
        result: Result<(), MemberFault>,
    ) {
        let ColumnIo { index, slot, extent, is_repair } = io;
        self.look_at(index);
        let stripe = self.cache.stripe_mut(index);
        stripe.outstanding -= 1;
        let column = stripe.column_mut(slot);
        column.out -= 1;
        let state = column.state;
        if column.out == 0 {
            column.state = ColumnState::Still;
        }
        if state == ColumnState::Writing {
            common.note_written(slot);
        }
        match (state, result) {
            (ColumnState::Writing, Ok(())) => {}
            (ColumnState::Reading, Ok(())) => {
                column.was_read = true;
                column.valid = column.valid.union(extent.set());
            }
            (ColumnState::Reading, Err(fault)) => {
                column.unreadable = column.unreadable.union(extent.set());
                column.valid = column.valid.without(extent.set());
                common.note_read_fault(slot, fault);
            }
            (ColumnState::Writing, Err(fault)) => {
                reached(Mark::MissesWrite);
                // A repair that finds no space changes nothing: what was bad stays bad.
                let is_none = is_repair && fault == MemberFault::NoSpace;
                // Of several requests, one that fails for more than lack of space says what is wrong.
                let is_said = column.missed.is_some() && fault == MemberFault::NoSpace;
                if !(is_none || is_said || planted(Bug::WriteErrorIgnored)) {
                    column.missed = common.view.member(slot).map(|member| (member.id, fault));
                }
            }
            (ColumnState::Still, _) => unreachable!("no request was out for the column"),
        }
    }

    pub(super) fn job_done(&mut self, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        assert!(stripe.phase == Phase::Compute && stripe.outstanding > 0, "one job at a time");
        stripe.outstanding -= 1;
        self.look_at(index);
    }
}

fn count(common: &mut Common, stripe: &Stripe, plan: &Plan) {
    let batch = stripe.batch.as_ref().expect("a batch is counted");
    let parity = [Some(stripe.map.p_slot()), stripe.map.q_slot()];
    let has = |slot: Slot, needed: SectorSet| {
        let column = stripe.column(slot);
        !column.was_read && !needed.is_empty() && column.valid.contains(needed)
    };
    let touched = |slot: Slot| stripe.column(slot).touched.common(batch.window);
    let rest = |slot: Slot| batch.window.without(touched(slot));
    let cached = match plan.method {
        Method::NoParity => 0,
        Method::Rcw => stripe.data_slots().filter(|slot| has(*slot, rest(*slot))).count(),
        Method::Rmw => {
            let parity = parity.into_iter().flatten().filter(|slot| has(*slot, batch.window));
            stripe.data_slots().filter(|slot| has(*slot, touched(*slot))).count() + parity.count()
        }
    };
    let counters = &mut common.counters;
    counters.cache.cached_columns += cached as u64;
    counters.reconstructions += u64::from(plan.recovery != Recovery::None);
    counters.rcw_writes += u64::from(plan.method == Method::Rcw);
    counters.rmw_writes += u64::from(plan.method == Method::Rmw);
    let full = stripe.data_slots().all(|slot| rest(slot).is_empty());
    counters.full_stripe_writes += u64::from(full && plan.method == Method::Rcw);
}
