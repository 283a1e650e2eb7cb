//! Carries out the actions of a batch: advances the batch, and emits its effects. [`super::steps`]
//! builds the batch's computation and notes the new state of the blocks. [`super::stripe`] changes
//! the queue between batches.

use std::ops::Range;

use braid_geometry::{LogicalSector, Slot, StripeGeometry};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};
use rangemap::RangeSet;

use super::super::band::{Attachment, WriteKind};
use super::super::cached_writes::CachedWrites;
use super::super::damage::Damage;
use super::super::epochs::DirtyEpochs;
use super::super::in_flight::{ColumnIo, IoOwner};
use super::super::plan::{FilledPlan, Method, Plan, Recipe};
use super::super::solve::{Blocks, FrameBlocks};
use super::content::{Content, Part, Source};
use super::decide::Action;
use super::log::{LogState, ToLog};
use super::steps::Builder;
use super::stripe::{Column, ColumnState, NewParity, Phase, Stripe};
use crate::buffer::Buffer;
use crate::computation::{ComputationId, Step};
use crate::context::Common;
use crate::effect::{FaultKind, LogTicket, MemberFault, MemberOperation, Report};
use crate::ids::IoId;
use crate::request::Fault;
use crate::sectors::{Extent, SectorSet};
use crate::slab::Slab;

/// The parts of the shard that a batch changes, other than its stripe.
pub(in super::super) struct Effects<'a> {
    pub(in super::super) number: u32,
    /// The frame of the batch. Its number names the batch's blocks, computations and log entries.
    pub(in super::super) frame: u32,
    pub(in super::super) common: &'a mut Common,
    pub(in super::super) in_flight: &'a mut Slab<IoOwner>,
    pub(in super::super) damage: &'a mut Damage,
    pub(in super::super) epochs: &'a mut DirtyEpochs,
    pub(in super::super) cached: &'a mut CachedWrites,
    /// The content of the current batch. The allocation is reused.
    pub(in super::super) content: &'a mut Content,
    pub(in super::super) geometry: &'a StripeGeometry,
    pub(in super::super) unit_sectors: u32,
    pub(in super::super) frame_blocks: FrameBlocks,
}

impl Effects<'_> {
    fn blocks_of(&self, stripe: &Stripe) -> Blocks {
        self.frame_blocks.at(self.frame, stripe.shift_sectors())
    }

    fn release_dirty(&mut self, epoch: u64) {
        if let Some(round) = self.epochs.release(epoch) {
            self.common.written_back(round);
        }
    }
}

impl Stripe {
    /// Carries out an action. `plan` is the plan that the facts were made with, if a new plan was
    /// made.
    pub(in super::super) fn act(
        &mut self,
        action: Action,
        plan: Option<&Plan>,
        effects: &mut Effects<'_>,
    ) {
        match action {
            Action::Wait
            | Action::Release
            | Action::PutOff(_)
            | Action::StandInLine
            | Action::TakeBand => {
                unreachable!("the batch does not change")
            }
            Action::Begin => {
                assert_eq!(self.phase, Phase::Ready, "a batch begins when the one before is over");
                let mut count_max = self.alike();
                if effects.common.view.keeps_parity_logs {
                    count_max = self.can_be_logged(count_max);
                }
                let is_journaled = effects.common.view.keeps_journal;
                self.begin_batch(effects.unit_sectors, count_max, is_journaled);
                self.phase = Phase::Fill;
            }
            Action::Read => {
                let plan = plan.expect("a need has a plan");
                self.filled = Some(FilledPlan {
                    recipe: plan.recipe.clone(),
                    epoch: effects.common.view.epoch,
                });
                self.read(plan, effects);
            }
            Action::Compute => {
                let filled = self.filled.take();
                let recipe =
                    plan.map(|plan| plan.recipe.clone()).or(filled.map(|filled| filled.recipe));
                self.compute(&recipe.expect("nothing lacks"), effects);
            }
            Action::Log => self.log(effects),
            Action::Write => self.write(effects),
            Action::AwaitRecord => self.await_record(effects),
            Action::Finish => {
                assert!(
                    !self.is_missed(&effects.common.view),
                    "I4: a loss is recorded before the answer"
                );
                self.end_batch(Ok(()), effects);
            }
            Action::Narrow => self.narrow(effects),
            Action::Restart => self.restart(),
            Action::Refuse => self.refuse(effects),
        }
    }

    /// The number of writes at the front of the queue that agree: all have their intent, or all
    /// lack it.
    fn alike(&self) -> usize {
        let has_intent = self.has_intent();
        self.queue.iter().take_while(|work| work.lacks_intent != has_intent).count()
    }

    /// Submits a request for an extent to a column's member.
    fn submit(
        &mut self,
        (slot, extent): (Slot, Extent),
        operation: MemberOperation,
        effects: &mut Effects<'_>,
    ) {
        self.submit_io((slot, extent, false), operation, effects);
    }

    fn submit_io(
        &mut self,
        (slot, extent, is_repair): (Slot, Extent, bool),
        operation: MemberOperation,
        effects: &mut Effects<'_>,
    ) {
        let unit_sectors = effects.unit_sectors;
        assert!(extent.end() <= unit_sectors, "a request of a batch lies in its stripe unit");
        let state = match operation.is_write() {
            true => ColumnState::Writing,
            false => ColumnState::Reading,
        };
        let column = self.column(slot);
        assert!(column.out == 0 || column.state == state, "a column is read or written, not both");
        let durable = matches!(operation, MemberOperation::Write { durable: true, .. });
        let io = ColumnIo { number: effects.number, slot, extent, is_repair, durable };
        let id = IoId(effects.in_flight.insert(IoOwner::Column(io)));
        effects.common.submit((id, slot), self.range(extent), operation);
        self.outstanding += 1;
        let column = self.column_mut(slot);
        column.out += 1;
        column.state = state;
    }

    fn read(&mut self, plan: &Plan, effects: &mut Effects<'_>) {
        assert!(self.phase == Phase::Fill && plan.reads() > 0, "a batch reads before it computes");
        let (map, blocks) = (self.map, effects.blocks_of(self));
        effects.common.counters.pre_reads += u64::from(plan.reads());
        for (slot, set) in plan.columns(&map) {
            for extent in set.extents() {
                let buffer = blocks.at(slot, extent.offset);
                self.submit((slot, extent), MemberOperation::Read { buffer }, effects);
            }
        }
    }

    fn compute(&mut self, recipe: &Recipe, effects: &mut Effects<'_>) {
        assert!(self.phase == Phase::Fill && self.outstanding == 0, "all that is needed is read");
        self.phase = Phase::Compute;
        count(effects.common, self, recipe);
        effects.content.find_of(effects.number, self);
        let blocks = effects.blocks_of(self);
        let computation = effects.common.blank_computation(ComputationId(u64::from(effects.frame)));
        let log = self.to_be_logged(effects, recipe.method);
        let journal = effects.common.view.keeps_journal.then_some(effects.geometry);
        let computation =
            Builder { stripe: self, blocks, content: effects.content, log, journal, computation }
                .build(recipe);
        let copied = |step: &Step| match step {
            Step::Copy { sectors, .. } => u64::from(*sectors),
            _ => 0,
        };
        let copied = computation.steps.iter().map(copied).sum::<u64>();
        effects.common.counters.cache.copied_sectors += copied;
        if computation.steps.is_empty() {
            effects.common.recycle(computation);
        } else {
            self.outstanding += 1;
            effects.common.submit_computation(computation);
        }
    }

    /// The parity columns whose members must log the batch: the columns that get new parity by this
    /// method.
    fn to_be_logged<'a>(&self, effects: &Effects<'a>, method: Method) -> Option<ToLog<'a>> {
        let view = &effects.common.view;
        if !view.keeps_parity_logs || method == Method::NoParity {
            return None;
        }
        let window = self.window();
        let is_logged = |slot: Slot| {
            // rmw does not modify a column of old parity that is not in memory.
            let is_made = method == Method::Rcw || self.column(slot).valid.contains(window);
            view.member(slot).is_some() && is_made
        };
        let p = is_logged(self.map.p_slot());
        let q = self.map.q_slot().filter(|slot| is_logged(*slot));
        let q = spoiled(Bug::LogForgetsQ, q, None);
        (p || q.is_some()).then_some(ToLog { geometry: effects.geometry, p, q })
    }

    /// Submits the batch to the logs of the members with parity, or to the journal, before its
    /// writes.
    fn log(&mut self, effects: &mut Effects<'_>) {
        assert!(self.phase == Phase::Compute && self.outstanding == 0, "partial parity is made");
        self.logged = LogState::Asked;
        let ticket = LogTicket(effects.frame);
        if effects.common.view.keeps_journal {
            let rows = std::mem::take(&mut self.rows);
            effects.common.report(Report::WantJournal { ticket, rows });
            if planted(Bug::JournalUnawaited) {
                self.logged = LogState::Durable;
            }
            return;
        }
        let entries = std::mem::take(&mut self.entries);
        effects.common.report(Report::WantLog { ticket, entries });
        if planted(Bug::LogUnawaited) {
            self.logged = LogState::Durable;
        }
    }

    /// Writes every column whose member lacks the new content.
    fn write(&mut self, effects: &mut Effects<'_>) {
        assert!(self.phase == Phase::Compute && self.outstanding == 0, "all that is new is made");
        assert!(self.has_intent(), "I3: superblocks say so before members are written");
        let is_logged = matches!(self.logged, LogState::Needless | LogState::Durable);
        assert!(is_logged, "I3: the log has it before members are written");
        let is_counted = effects.common.pieces.writes() > 0;
        let is_counted = spoiled(Bug::GatedLost, is_counted, true);
        assert!(is_counted, "I5: no shard confirms a closed gate while a batch is written");
        self.phase = Phase::Write;
        let window = self.window();
        let durable = self.attachments().any(|attachment| attachment.kind.is_durable());
        let durable = durable || self.flushes_itself(effects);
        let durable = spoiled(Bug::StripeIgnoresFua, durable, false);
        let mut content = std::mem::take(effects.content);
        content.find_again(effects.number, self);
        if planted(Bug::AnsweredUnwritten) {
            self.answer_batch(Ok(()), effects);
        }
        let map = self.map;
        // Unreadable sectors are rewritten in any column, touched or not.
        let columns = match self.faults.is_empty() {
            true => self.touched_columns(),
            false => 0..map.data_slots(),
        };
        for data in columns {
            let slot = map.data_slot(data);
            self.write_straight(slot, content.of(data), durable, effects);
            self.write_blocks(slot, content.sets_of(data).0, durable, effects);
        }
        *effects.content = content;
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            self.write_parity(slot, window, durable, effects);
        }
    }

    /// Whether the batch uses FUA: a flush waits for this batch and few others, and then flushes no
    /// member.
    fn flushes_itself(&self, effects: &Effects<'_>) -> bool {
        let mut epochs = self.attachments().filter_map(|work| work.dirty_epoch);
        let is_flushed = epochs.any(|epoch| effects.epochs.is_written_durably(epoch));
        // Each zeroing with FUA flushes its member. A single flush that is due anyway is cheaper.
        let has_zeroes =
            || self.attachments().any(|work| matches!(work.kind, WriteKind::Zero { .. }));
        let pays = is_flushed && !effects.common.owes_flush() && !has_zeroes();
        if pays {
            reached(Mark::WrittenDurably);
        }
        pays
    }

    fn write_parity(
        &mut self,
        slot: Slot,
        window: SectorSet,
        durable: bool,
        effects: &mut Effects<'_>,
    ) {
        if planted(Bug::DegradedWithoutP)
            && effects.common.view.slots.contains(&None)
            && slot == self.map.p_slot()
        {
            return self.write_blocks(slot, SectorSet::EMPTY, durable, effects);
        }
        let fresh = self.column(slot).fresh;
        let made = if fresh == NewParity::Block { window } else { SectorSet::EMPTY };
        self.write_blocks(slot, made, durable, effects);
        if let NewParity::Zeroes { may_punch } = fresh
            && effects.common.view.member(slot).is_some()
        {
            for extent in window.extents() {
                let operation = MemberOperation::Zero { may_punch, durable };
                self.submit((slot, extent), operation, effects);
            }
        }
    }

    /// Writes a column from payloads.
    fn write_straight(
        &mut self,
        slot: Slot,
        parts: &[Part],
        durable: bool,
        effects: &mut Effects<'_>,
    ) {
        if effects.common.view.member(slot).is_none() {
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
            self.submit((slot, part.extent), operation, effects);
        }
    }

    /// Writes a column's dirty sectors, and rewrites its unreadable sectors, which may remap them.
    fn write_blocks(
        &mut self,
        slot: Slot,
        made: SectorSet,
        durable: bool,
        effects: &mut Effects<'_>,
    ) {
        if effects.common.view.member(slot).is_none() {
            return;
        }
        let blocks = effects.blocks_of(self);
        let column = self.column(slot);
        let made = made.joined(column.valid);
        let repaired = if !effects.common.may_repair() || column.fresh != NewParity::Nothing {
            SectorSet::EMPTY
        } else {
            column.unreadable.common(column.valid).without(column.touched.union(made))
        };
        if !repaired.is_empty() {
            reached(Mark::RepairsStripe);
            effects.common.counters.read_repairs += 1;
        }
        for (set, is_repair) in [(made, false), (repaired, true)] {
            let mut from = slot;
            if planted(Bug::RepairWritesWrong) && is_repair {
                from = Slot((slot.0 + 1) % effects.geometry.slots());
            }
            for extent in set.extents() {
                let buffer = blocks.at(from, extent.offset);
                // A failed FUA write costs the member; a failed repair costs nothing.
                let durable = durable && !is_repair;
                let operation = MemberOperation::Write { buffer, durable };
                self.submit_io((slot, extent, is_repair), operation, effects);
            }
        }
    }

    fn await_record(&mut self, effects: &mut Effects<'_>) {
        assert!(self.phase == Phase::Write && self.outstanding == 0, "all writes have ended");
        self.phase = Phase::AwaitRecord;
        let is_missed = self.columns.iter().any(|column| column.missed.is_some());
        assert!(is_missed, "a loss is there to be recorded");
        for missed in self.columns.iter().filter_map(|column| column.missed) {
            effects.common.report_failed(self.fault_of(missed));
        }
        if planted(Bug::RecordForgotten) {
            self.columns.iter_mut().for_each(|column| column.missed = None);
        }
    }

    /// Begins the batch again with one write, or with the first block or sector of that write.
    fn narrow(&mut self, effects: &mut Effects<'_>) {
        assert_eq!(self.phase, Phase::Fill, "nothing of it is written yet");
        let batch = self.batch.take().expect("a batch is being filled");
        if batch.count == 1 {
            let whole = self.queue[0];
            let blocks = whole.run.cut(self.band());
            let parts = blocks.or_else(|| whole.run.cut_sector(self.band()));
            let (first, rest) = parts.expect("the facts say so");
            if whole.is_answered {
                effects.common.keep_part(whole.piece);
            } else {
                effects.common.add_part(whole.piece);
                self.awaited += 1;
            }
            whole.dirty_epoch.into_iter().for_each(|epoch| effects.epochs.split(epoch));
            effects.cached.split(&whole);
            self.queue[0].run = first;
            self.queue.insert(1, Attachment { run: rest, ..whole });
        }
        // One write of several may cover every column whole; a part of a write never does.
        self.begin_batch(effects.unit_sectors, 1, effects.common.view.keeps_journal);
    }

    /// Begins the unwritten batch again in another frame: a member that left may still write to
    /// this frame.
    fn restart(&mut self) {
        assert!(self.phase == Phase::Fill && self.outstanding == 0, "only what is read is left");
        self.batch = None;
        self.phase = Phase::Ready;
        self.is_left = false;
        self.forget_columns();
    }

    /// Fails the batch. If the batch had begun to write, its band is inconsistent from now on.
    fn refuse(&mut self, effects: &mut Effects<'_>) {
        assert!(
            matches!(self.phase, Phase::Fill | Phase::Compute | Phase::AwaitRecord),
            "a batch fails before it is written, or when what it missed cannot be recorded"
        );
        let is_full =
            |column: &Column| column.missed.is_some_and(|(_, fault)| fault == FaultKind::NoSpace);
        let is_full = self.columns.iter().any(is_full);
        let fault = if is_full { Fault::NoSpace } else { Fault::Unwritable };
        let has_written = self.phase == Phase::AwaitRecord;
        let has_written = spoiled(Bug::InconsistencyForgotten, has_written, false);
        if has_written {
            reached(Mark::ParityInconsistent);
            effects.damage.mark_inconsistent(self.band().key);
        }
        self.end_batch(Err(fault), effects);
    }

    fn end_batch(&mut self, result: Result<(), Fault>, effects: &mut Effects<'_>) {
        assert!(self.outstanding == 0, "nothing of a batch is under way when it ends");
        assert!(self.copies == 0, "no payload is given back while it is copied from");
        self.answer_batch(result, effects);
        self.end_log(effects);
        let has_all = usize::try_from(self.awaited).is_ok_and(|count| count <= self.queue.len());
        assert!(has_all, "what a client waits for is queued");
        let batch = self.batch.take().expect("a batch is being ended");
        self.phase = Phase::Ready;
        self.is_left = false;
        self.has_served = true;
        self.is_worth_keeping = !batch.is_full;
        for column in &mut self.columns {
            if result.is_err() {
                column.valid = SectorSet::EMPTY;
            }
            column.queued = SectorSet::EMPTY;
        }
        for place in 0..self.queue.len() {
            let attachment = self.queue[place];
            self.note_queued(&attachment);
        }
    }

    /// Lets the log forget the batch once members have flushed its writes.
    fn end_log(&mut self, effects: &mut Effects<'_>) {
        self.entries.clear();
        self.rows.clear();
        if matches!(std::mem::take(&mut self.logged), LogState::Asked | LogState::Durable) {
            effects.common.report(Report::LogOver { ticket: LogTicket(effects.frame) });
        }
    }

    /// Answers the batch's work, or releases the payloads of writes that were answered early.
    fn answer_batch(&mut self, result: Result<(), Fault>, effects: &mut Effects<'_>) {
        let is_lost = result.is_err();
        let is_lost = spoiled(Bug::LossUnreported, is_lost, false);
        if is_lost {
            self.note_lost(effects);
        }
        let band = *self.band();
        let fault = self.faults.last().copied().filter(|_| result.is_err());
        let batch = self.batch.as_mut().expect("a batch is being answered");
        for _ in 0..std::mem::take(&mut batch.count) {
            let work = self.queue.pop_front().expect("a batch is a part of the queue");
            self.awaited -= u32::from(!work.is_answered);
            if result.is_ok() {
                effects.damage.written(band.sectors(effects.geometry, &work.run));
            }
            let common = &mut *effects.common;
            effects.cached.over(common, &work);
            common.note_cause(work.piece, fault.map_or(Ok(()), Err));
            if work.is_answered {
                result.err().into_iter().for_each(|fault| common.part_lost(work.piece, fault));
                common.release_payload(work.piece);
            } else {
                common.part_done(work.piece, result);
            }
            work.dirty_epoch.into_iter().for_each(|epoch| effects.release_dirty(epoch));
        }
    }

    /// Marks the answered writes of a failed batch as lost. The array hears of the loss before a
    /// write-back round ends, so that no flush succeeds.
    fn note_lost(&mut self, effects: &mut Effects<'_>) {
        let band = self.band();
        let mut lost = RangeSet::new();
        for work in self.attachments().filter(|work| work.dirty_epoch.is_some()) {
            lost.extend(band.sectors(effects.geometry, &work.run));
        }
        effects.damage.lose(&lost);
        let cause = self.faults.last().map(|fault| fault.cause);
        for Range { start, end } in lost {
            reached(Mark::WriteLost);
            let start = LogicalSector(start);
            effects.common.report(Report::WriteLost { start, sectors: end - start.0, cause });
        }
    }

    /// Takes the result of a column's read or write.
    pub(in super::super) fn column_done(
        &mut self,
        common: &mut Common,
        io: ColumnIo,
        result: Result<(), MemberFault>,
    ) {
        let ColumnIo { slot, extent, is_repair, durable, .. } = io;
        assert!(self.outstanding > 0 && self.batch.is_some(), "the request was of a batch");
        self.outstanding -= 1;
        self.faults.extend(result.err());
        let is_as_planned = result.is_ok();
        let is_as_planned = spoiled(Bug::FailedReadFilled, is_as_planned, true);
        if !is_as_planned {
            self.filled = None;
        }
        let column = self.column_mut(slot);
        column.out -= 1;
        let state = column.state;
        if column.out == 0 {
            column.state = ColumnState::Still;
        }
        let needs_no_flush = durable && result.is_ok();
        if state == ColumnState::Writing && !needs_no_flush {
            common.note_written(slot);
        }
        match (state, result) {
            (ColumnState::Writing, Ok(())) if is_repair => common.note_mended(slot),
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
                // A failed repair changes nothing: the sectors stay bad.
                if is_repair {
                    let range = self.range(extent);
                    return common.report_unmended(slot, fault, range);
                }
                // If several requests failed, the fault of a failed member counts more than the
                // fault of a healthy member.
                let is_said = column.missed.is_some() && fault.kind.spares_member();
                let is_said = spoiled(Bug::WriteErrorIgnored, is_said, true);
                if !is_said {
                    let member = fault.cause.member;
                    column.missed = common.still_in(slot, member).then_some((member, fault.kind));
                }
            }
            (ColumnState::Still, _) => unreachable!("no request was out for the column"),
        }
    }

    pub(in super::super) fn computation_done(&mut self, mut partial: &[u8]) {
        assert!(self.phase == Phase::Compute && self.outstanding > 0, "one computation at a time");
        self.outstanding -= 1;
        for entry in &mut self.entries {
            let length = usize::try_from(entry.entry.parity_bytes).expect("it is in memory");
            let (own, rest) = partial.split_at(length);
            entry.partial.extend_from_slice(own);
            partial = rest;
        }
        for row in &mut self.rows {
            let (own, rest) = partial.split_at(row.length_bytes());
            row.bytes.extend_from_slice(own);
            partial = rest;
        }
        assert!(partial.is_empty(), "every entry has its partial parity, every row its blocks");
    }
}

fn count(common: &mut Common, stripe: &Stripe, recipe: &Recipe) {
    let batch = stripe.batch.as_ref().expect("a batch is counted");
    let parity = [Some(stripe.map.p_slot()), stripe.map.q_slot()];
    let has = |slot: Slot, needed: SectorSet| {
        let column = stripe.column(slot);
        !column.was_read && !needed.is_empty() && column.valid.contains(needed)
    };
    let touched = |slot: Slot| stripe.column(slot).touched.common(batch.window);
    let rest = |slot: Slot| batch.window.without(touched(slot));
    let cached = match recipe.method {
        Method::NoParity => 0,
        Method::Rcw => stripe.data_slots().filter(|slot| has(*slot, rest(*slot))).count(),
        Method::Rmw => {
            let parity = parity.into_iter().flatten().filter(|slot| has(*slot, batch.window));
            stripe.data_slots().filter(|slot| has(*slot, touched(*slot))).count() + parity.count()
        }
    };
    let counters = &mut common.counters;
    counters.cache.cached_columns += cached as u64;
    counters.reconstructions += u64::from(!recipe.solutions.is_empty());
    counters.rcw_writes += u64::from(recipe.method == Method::Rcw);
    counters.rmw_writes += u64::from(recipe.method == Method::Rmw);
    let full = stripe.data_slots().all(|slot| rest(slot).is_empty());
    counters.full_stripe_writes += u64::from(full && recipe.method == Method::Rcw);
}
