//! Carrying decisions out: the only place where a stripe's state changes and effects leave it.

use braid_geometry::Slot;
use braid_hooks::{Bug, Mark, planted, reached};

use super::decide::{Action, Need, decide};
use super::facts::{facts, need};
use super::plan::{Method, Plan, Recovery};
use super::state::{Column, ColumnState, Fresh, Phase, SectorSet, Stripe};
use super::steps::{Blocks, Builder};
use super::{IoOwner, Stripes};
use crate::buffer::{Buffer, Half};
use crate::effect::{MemberFault, MemberOperation, Report};
use crate::job::{Job, JobId};
use crate::request::Fault;
use crate::shard::Common;

impl Stripes {
    /// Lets a stripe go on until it waits for an event or is free.
    pub(super) fn step(&mut self, common: &mut Common, index: u16) {
        loop {
            let stripe = &self.pool[usize::from(index)];
            let agrees = self.parity_agrees(common, stripe);
            let others_wait = !self.waiting.is_empty();
            match decide(&facts(stripe, &common.view, (agrees, others_wait))) {
                Action::Wait => return,
                Action::Release => {
                    if !self.release(common, index) {
                        return;
                    }
                }
                Action::Begin => {
                    let stripe = &mut self.pool[usize::from(index)];
                    stripe.begin_batch(self.unit_sectors);
                    stripe.phase = Phase::Fill;
                }
                Action::Read => self.read(common, index, agrees),
                Action::Compute => self.compute(common, index, agrees),
                Action::Write => self.write(common, index),
                Action::Hold => self.hold(common, index),
                Action::Finish => self.end_batch(common, index, Ok(())),
                Action::Refuse => self.refuse(common, index),
            }
        }
    }

    /// Whether parity may be believed for this band: redundancy is in sync there and no write was
    /// left half done (I7).
    fn parity_agrees(&self, common: &Common, stripe: &Stripe) -> bool {
        let end = stripe.start.0 + u64::from(self.unit_sectors);
        let agrees = end <= common.view.resync_offset || planted(Bug::DirtyBelieved);
        agrees && !self.torn.contains(&stripe.key)
    }

    fn blocks(&self, index: u16) -> Blocks {
        Blocks { first: u32::from(index) * 2 * u32::from(self.geometry.slots()) }
    }

    fn read(&mut self, common: &mut Common, index: u16, agrees: bool) {
        let blocks = self.blocks(index);
        let stripe = &mut self.pool[usize::from(index)];
        let (need, plan) = need(stripe, &common.view, agrees);
        assert_eq!(need, Need::Reads, "reading was decided on");
        let plan = plan.expect("a need for reads comes with a plan");
        let map = stripe.map;
        let p = plan.p.then(|| map.p_slot());
        let q = plan.q.then(|| map.q_slot().expect("a plan reads Q only where there is one"));
        let range = stripe.range();
        let offset = stripe.batch.as_ref().expect("a batch is being filled").window.offset;
        let offset = if planted(Bug::ReadsAtUnitStart) { 0 } else { offset };
        for slot in plan.data.iter().map(|data| map.data_slot(*data)).chain(p).chain(q) {
            let buffer = blocks.at(slot, Half::Old, offset);
            let io = common.submit(slot, range, MemberOperation::Read { buffer });
            self.in_flight.insert(io, IoOwner::Column { index, slot });
            stripe.column_mut(slot).state = ColumnState::Reading;
            stripe.outstanding += 1;
        }
    }

    fn compute(&mut self, common: &mut Common, index: u16, agrees: bool) {
        let blocks = self.blocks(index);
        let stripe = &mut self.pool[usize::from(index)];
        let (need, plan) = need(stripe, &common.view, agrees);
        assert_eq!(need, Need::Nothing, "computing was decided on");
        let plan = plan.expect("a batch that lacks nothing has a plan");
        count(common, stripe, &plan);
        stripe.phase = Phase::Compute;
        let sectors = stripe.batch.as_ref().expect("a batch is being computed").window.sectors;
        let steps = Builder { stripe: &mut *stripe, blocks, steps: Vec::new() }.build(&plan);
        if !steps.is_empty() {
            stripe.outstanding += 1;
            common.submit_job(Job { id: JobId(u32::from(index)), sectors, steps });
        }
    }

    /// Answers reads, then writes every column whose member lacks its content.
    fn write(&mut self, common: &mut Common, index: u16) {
        let blocks = self.blocks(index);
        let stripe = &mut self.pool[usize::from(index)];
        stripe.phase = Phase::Write;
        let range = stripe.range();
        let batch = stripe.batch.as_mut().expect("a batch is being written");
        let offset = batch.window.offset;
        let durable = batch.attachments.iter().any(|attachment| attachment.want.is_durable());
        let durable = durable && !planted(Bug::StripeIgnoresFua);
        if !batch.is_write || planted(Bug::AnsweredUnwritten) {
            for attachment in batch.attachments.drain(..) {
                common.part_done(attachment.piece, Ok(()));
            }
        }
        for slot in stripe.slots() {
            let column = *stripe.column(slot);
            let fresh = match column.fresh {
                Fresh::Nothing if is_repairable(common, &column) => {
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
                Fresh::Block(half) => write(blocks.at(slot, half, offset)),
            };
            let io = common.submit(slot, range, operation);
            self.in_flight.insert(io, IoOwner::Column { index, slot });
            stripe.column_mut(slot).state = ColumnState::Writing;
            stripe.outstanding += 1;
        }
    }

    fn hold(&mut self, common: &mut Common, index: u16) {
        let stripe = &mut self.pool[usize::from(index)];
        stripe.phase = Phase::Hold;
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

    /// The batch cannot be served. If it had begun to write, the band is torn from now on.
    fn refuse(&mut self, common: &mut Common, index: u16) {
        let stripe = &self.pool[usize::from(index)];
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
            self.torn.insert(stripe.key);
        }
        self.end_batch(common, index, Err(fault));
    }

    fn end_batch(&mut self, common: &mut Common, index: u16, result: Result<(), Fault>) {
        let stripe = &mut self.pool[usize::from(index)];
        let batch = stripe.batch.take().expect("a batch is being ended");
        stripe.phase = Phase::Ready;
        stripe.has_served = true;
        for attachment in batch.attachments {
            common.part_done(attachment.piece, result);
        }
    }

    /// A column's read or write came back.
    pub(super) fn column_done(
        &mut self,
        common: &mut Common,
        (index, slot): (u16, Slot),
        result: Result<(), MemberFault>,
    ) {
        let stripe = &mut self.pool[usize::from(index)];
        stripe.outstanding -= 1;
        let is_write = stripe.batch.as_ref().is_some_and(|batch| batch.is_write);
        let column = stripe.column_mut(slot);
        match (column.state, result) {
            (ColumnState::Reading | ColumnState::Writing, Ok(())) => {
                column.state = ColumnState::Clean;
            }
            (ColumnState::Reading, Err(fault)) => {
                column.state = ColumnState::Empty;
                column.unreadable = true;
                common.note_read_fault(slot, fault);
            }
            (ColumnState::Writing, Err(fault)) => {
                column.state = ColumnState::Dirty;
                reached(Mark::MissesWrite);
                // A repair that finds no space changes nothing: what was bad stays bad.
                let counts = !planted(Bug::WriteErrorIgnored);
                if counts && (is_write || fault != MemberFault::NoSpace) {
                    column.missed = common.view.member(slot).map(|member| (member.id, fault));
                }
            }
            (state @ (ColumnState::Empty | ColumnState::Clean | ColumnState::Dirty), _) => {
                unreachable!("no request was out for a column in state {state:?}")
            }
        }
        self.step(common, index);
    }

    pub(super) fn job_done(&mut self, common: &mut Common, index: u16) {
        let stripe = &mut self.pool[usize::from(index)];
        assert!(stripe.phase == Phase::Compute && stripe.outstanding == 1, "one job at a time");
        stripe.outstanding = 0;
        self.step(common, index);
    }
}

/// Whether a column that could not be read holds its content again, so that writing it may help.
fn is_repairable(common: &Common, column: &Column) -> bool {
    column.unreadable && column.state == ColumnState::Clean && common.may_repair()
}

fn count(common: &mut Common, stripe: &Stripe, plan: &Plan) {
    let counters = &mut common.counters;
    counters.reconstructions += u64::from(plan.recovery != Recovery::None);
    counters.rcw_writes += u64::from(plan.method == Method::Rcw);
    counters.rmw_writes += u64::from(plan.method == Method::Rmw);
    let window: SectorSet = stripe.batch.as_ref().expect("a batch is counted").window.set();
    let full = stripe.data_slots().all(|slot| stripe.column(slot).touched.contains(window));
    counters.full_stripe_writes += u64::from(full && plan.method == Method::Rcw);
}
