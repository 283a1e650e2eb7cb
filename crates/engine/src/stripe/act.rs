//! Carrying decisions out: the only place where a stripe's state changes and effects leave it.

use braid_geometry::Slot;
use braid_hooks::{Bug, Mark, planted, reached};

use super::decide::{Action, Turn, decide};
use super::facts::{Around, facts};
use super::plan::{Method, Plan, Recovery};
use super::state::{Column, ColumnState, Fresh, Phase, Place, SectorSet, Stripe};
use super::steps::{Blocks, Builder};
use super::{IoOwner, Stripes};
use crate::buffer::{Buffer, Half};
use crate::effect::{IoId, MemberFault, MemberOperation, Report};
use crate::job::{JobId, Step};
use crate::request::Fault;
use crate::shard::Common;

impl Stripes {
    /// Lets a stripe go on until it waits for an event, stands in a list, or is idle.
    pub(super) fn step(&mut self, common: &mut Common, index: u32) {
        loop {
            let stripe = self.cache.stripe(index);
            if matches!(stripe.place, Place::Idle | Place::Retired) {
                return;
            }
            let ready = stripe.phase == Phase::Ready;
            let around = Around {
                parity_agrees: self.parity_agrees(common, stripe),
                turn: if ready { self.turn(common, stripe) } else { Turn::Now },
            };
            let is_beside = self.is_beside(index);
            let is_any_out = is_beside || common.clocks.is_any_out();
            let doubts = is_any_out.then_some(|slot| self.is_doubtful_beside(common, index, slot));
            let (facts, plan) =
                facts(stripe, &common.view, around, doubts.map(|doubts| (doubts, is_beside)));
            match decide(&facts) {
                Action::Wait if !is_beside && self.is_stuck(common, index) => {
                    return self.take_reads_out(common, index);
                }
                Action::Wait => return,
                Action::Write if self.must_wait_beside(index) => {
                    return reached(Mark::WriteWaitsBeside);
                }
                Action::Release if is_beside => return self.release_beside(index),
                Action::Release => return self.release(common, index),
                Action::PutOff(turn) => return self.put_off(common, index, turn),
                Action::Begin if self.must_let_in(index) => return,
                Action::Begin => {
                    self.count_beginning(common, index);
                    self.cache.stripe_mut(index).phase = Phase::Fill;
                }
                Action::Read => self.read(common, index, &plan.expect("a need has a plan")),
                Action::Compute => self.compute(common, index, &plan.expect("nothing lacks")),
                Action::Write => self.write(common, index),
                Action::Hold => self.hold(common, index),
                Action::Finish => self.end_batch(common, index, Ok(())),
                Action::Refuse if self.narrow(common, index) => reached(Mark::BatchNarrowed),
                Action::Refuse if is_beside => self.read_after_all(common, index),
                Action::Refuse => self.refuse(common, index),
            }
        }
    }

    /// Whether parity may be believed for this band: redundancy is in sync there and no write was
    /// left half done (I7).
    pub(super) fn parity_agrees(&self, common: &Common, stripe: &Stripe) -> bool {
        let band = stripe.band();
        let end = band.start.0 + u64::from(self.unit_sectors);
        let agrees = end <= common.view.resync_offset || planted(Bug::DirtyBelieved);
        agrees && !self.torn.contains(&band.key)
    }

    /// Whether the stripe is about to write a band that is being read beside it.
    fn must_wait_beside(&self, index: u32) -> bool {
        let stripe = self.cache.stripe(index);
        let writes = stripe.batch.as_ref().is_some_and(|batch| batch.is_write);
        writes && self.is_read_beside(stripe.band().key)
    }

    fn blocks(&self, index: u32) -> Blocks {
        Blocks { first: index * 2 * u32::from(self.geometry.slots()) }
    }

    fn read(&mut self, common: &mut Common, index: u32, plan: &Plan) {
        let blocks = self.blocks(index);
        let stripe = self.cache.stripe_mut(index);
        let map = stripe.map;
        let p = plan.p.then(|| map.p_slot());
        let q = plan.q.then(|| map.q_slot().expect("a plan reads Q only where there is one"));
        let range = stripe.range();
        let batch = stripe.batch.as_ref().expect("a batch is being filled");
        let offset = if planted(Bug::ReadsAtUnitStart) { 0 } else { batch.window.offset };
        if batch.is_write {
            common.counters.pre_reads += plan.reads() as u64;
        }
        for slot in plan.data.iter().map(|data| map.data_slot(*data)).chain(p).chain(q) {
            let buffer = blocks.at(stripe, slot, Half::Old, offset);
            let io = IoId(self.in_flight.insert(IoOwner::Column { index, slot }));
            common.submit((io, slot), range, MemberOperation::Read { buffer });
            stripe.column_mut(slot).state = ColumnState::Reading;
            stripe.outstanding += 1;
        }
    }

    fn compute(&mut self, common: &mut Common, index: u32, plan: &Plan) {
        let blocks = self.blocks(index);
        let stripe = self.cache.stripe_mut(index);
        count(common, stripe, plan);
        stripe.phase = Phase::Compute;
        let job = common.blank_job(JobId(u64::from(index)), stripe.window().sectors);
        let job = Builder { stripe: &mut *stripe, blocks, job }.build(plan);
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
    }

    /// Answers reads, then writes every column whose member lacks its content.
    fn write(&mut self, common: &mut Common, index: u32) {
        let (blocks, is_beside) = (self.blocks(index), self.is_beside(index));
        let stripe = self.cache.stripe_mut(index);
        stripe.phase = Phase::Write;
        let range = stripe.range();
        let batch = *stripe.batch.as_ref().expect("a batch is being written");
        let offset = batch.window.offset;
        let durable = stripe.attachments().any(|attachment| attachment.want.is_durable());
        let durable = durable && !planted(Bug::StripeIgnoresFua);
        if !batch.is_write || planted(Bug::AnsweredUnwritten) {
            self.answer_batch(common, index, Ok(()));
        }
        let stripe = self.cache.stripe_mut(index);
        for slot in stripe.slots() {
            let column = *stripe.column(slot);
            let fresh = match column.fresh {
                Fresh::Nothing if !is_beside && is_repairable(common, &column) => {
                    reached(Mark::RepairsStripe);
                    common.counters.read_repairs += 1;
                    let is_wrong = planted(Bug::RepairWritesWrong);
                    Fresh::Block(if is_wrong { Half::New } else { Half::Old })
                }
                fresh => fresh,
            };
            let is_forgotten = slot == stripe.map.p_slot()
                && common.view.slots.contains(&None)
                && planted(Bug::DegradedWithoutP);
            if fresh == Fresh::Nothing || common.view.member(slot).is_none() || is_forgotten {
                continue;
            }
            let write = |buffer| MemberOperation::Write { buffer, durable };
            let operation = match fresh {
                Fresh::Nothing => continue,
                Fresh::Payload { request, offset_sectors } => {
                    write(Buffer::Payload { request, offset_sectors })
                }
                Fresh::Zeroes { may_punch } => MemberOperation::Zero { may_punch, durable },
                Fresh::Block(half) => write(blocks.at(stripe, slot, half, offset)),
            };
            let io = IoId(self.in_flight.insert(IoOwner::Column { index, slot }));
            common.submit((io, slot), range, operation);
            stripe.column_mut(slot).state = ColumnState::Writing;
            stripe.outstanding += 1;
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

    /// A batch that lacks more than can be solved for may lack it in different places: it begins again
    /// with one request, and that with one block, so that nothing is refused that can be had alone.
    /// False when there is nothing left to narrow, or writing has begun.
    fn narrow(&mut self, common: &mut Common, index: u32) -> bool {
        let stripe = self.cache.stripe_mut(index);
        // A member that is not there is missing everywhere; what it holds badly, here and there.
        let (start, sectors) = stripe.range();
        let is_local = |slot: Slot| {
            let readable = common.view.readable(slot, start, u64::from(sectors)).is_some();
            stripe.column(slot).unreadable || common.view.member(slot).is_some() && !readable
        };
        let may_help = stripe.phase == Phase::Fill && stripe.slots().any(is_local);
        if !may_help {
            return false;
        }
        let batch = stripe.batch.take().expect("a batch is being filled");
        if batch.count == 1 {
            let Some((first, rest)) = stripe.queue[0].cut(stripe.band()) else {
                stripe.batch = Some(batch);
                return false;
            };
            if rest.kept {
                common.keep_part(rest.piece);
            } else {
                common.add_part(rest.piece);
                stripe.awaited += 1;
            }
            rest.owes.into_iter().for_each(|debt| self.promises.part(debt));
            stripe.queue[0] = first;
            stripe.queue.insert(1, rest);
        }
        // One of several may be full; what is cut never is.
        stripe.begin_batch(self.unit_sectors, 1);
        self.writers.end(&batch);
        self.writers.begin(stripe.batch.as_ref().expect("just begun"));
        true
    }

    /// The batch cannot be served. If it had begun to write, the band is torn from now on.
    fn refuse(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe(index);
        let batch = stripe.batch.as_ref().expect("a batch is being refused");
        let is_full =
            |column: &Column| column.missed.is_some_and(|(_, fault)| fault == MemberFault::NoSpace);
        let fault = match batch.is_write {
            false => Fault::Unreadable,
            true if stripe.columns.iter().any(is_full) => Fault::NoSpace,
            true => Fault::Unwritable,
        };
        if batch.is_write && stripe.phase == Phase::Hold && !planted(Bug::TornForgotten) {
            reached(Mark::TearsBand);
            self.torn.insert(stripe.band().key);
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
        // Without a member that takes it parity is not made: what the blocks hold of it is old.
        for slot in [Some(stripe.map.p_slot()), stripe.map.q_slot()].into_iter().flatten() {
            let column = stripe.column_mut(slot);
            let is_old = batch.is_write && column.fresh == Fresh::Nothing;
            if is_old && !planted(Bug::OldParityBelieved) {
                column.valid = column.valid.without(batch.window.set());
            }
        }
        for column in &mut stripe.columns {
            if result.is_ok() {
                column.settle(batch.window);
            } else if !planted(Bug::FailedBatchBelieved) {
                column.valid = SectorSet::EMPTY;
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
        let stripe = self.cache.stripe_mut(index);
        let batch = stripe.batch.as_mut().expect("a batch is being answered");
        for _ in 0..std::mem::take(&mut batch.count) {
            let stripe = self.cache.stripe_mut(index);
            let work = stripe.queue.pop_front().expect("a batch is a part of the queue");
            stripe.awaited -= u32::from(!work.kept);
            if result.is_err() && work.owes.is_some() && !planted(Bug::LostUntold) {
                reached(Mark::WriteLost);
                common.report(Report::WriteLost);
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

    /// A column's read or write came back.
    pub(super) fn column_done(
        &mut self,
        common: &mut Common,
        (index, slot): (u32, Slot),
        result: Result<(), MemberFault>,
    ) {
        self.look_at(index);
        let stripe = self.cache.stripe_mut(index);
        stripe.outstanding -= 1;
        let window = stripe.window();
        let column = stripe.column_mut(slot);
        if column.state == ColumnState::Writing {
            common.note_written(slot);
        }
        match (column.state, result) {
            (ColumnState::Writing, Ok(())) => column.state = ColumnState::Clean,
            (ColumnState::Reading, Ok(())) => {
                column.state = ColumnState::Clean;
                column.was_read = true;
                column.valid = column.valid.union(window.set());
            }
            (ColumnState::Reading, Err(fault)) => {
                column.state = ColumnState::Empty;
                column.unreadable = true;
                column.valid = column.valid.without(window.set());
                common.note_read_fault(slot, fault);
            }
            (ColumnState::Writing, Err(fault)) => {
                column.state = ColumnState::Dirty;
                reached(Mark::MissesWrite);
                // A repair that finds no space changes nothing: what was bad stays bad.
                let is_repair = column.fresh == Fresh::Nothing;
                let counts = !planted(Bug::WriteErrorIgnored);
                if counts && !(is_repair && fault == MemberFault::NoSpace) {
                    column.missed = common.view.member(slot).map(|member| (member.id, fault));
                }
            }
            (state @ (ColumnState::Empty | ColumnState::Clean | ColumnState::Dirty), _) => {
                unreachable!("no request was out for a column in state {state:?}")
            }
        }
    }

    pub(super) fn job_done(&mut self, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        assert!(stripe.phase == Phase::Compute && stripe.outstanding > 0, "one job at a time");
        stripe.outstanding -= 1;
        self.look_at(index);
    }
}

/// Whether a column that could not be read holds its content again, so that writing it may help.
fn is_repairable(common: &Common, column: &Column) -> bool {
    column.unreadable && column.state == ColumnState::Clean && common.may_repair()
}

fn count(common: &mut Common, stripe: &Stripe, plan: &Plan) {
    let batch = stripe.batch.as_ref().expect("a batch is counted");
    let parity = [Some(stripe.map.p_slot()), stripe.map.q_slot()];
    let from_cache = |slot: &Slot| {
        let column = stripe.column(*slot);
        column.state == ColumnState::Clean && !column.was_read
    };
    let touched = |slot: &Slot| !stripe.column(*slot).touched.is_empty();
    let covered = |slot: &Slot| stripe.column(*slot).touched.contains(batch.window.set());
    let cached = match plan.method {
        Method::NoParity => 0,
        Method::Rcw => stripe.data_slots().filter(|slot| !covered(slot)).filter(from_cache).count(),
        Method::Rmw => {
            let data = stripe.data_slots().filter(touched);
            data.chain(parity.into_iter().flatten()).filter(from_cache).count()
        }
    };
    let counters = &mut common.counters;
    counters.cache.cached_columns += cached as u64;
    counters.reconstructions += u64::from(plan.recovery != Recovery::None);
    counters.rcw_writes += u64::from(plan.method == Method::Rcw);
    counters.rmw_writes += u64::from(plan.method == Method::Rmw);
    let full = batch.is_write && stripe.data_slots().all(|slot| covered(&slot));
    counters.full_stripe_writes += u64::from(full && plan.method == Method::Rcw);
}
