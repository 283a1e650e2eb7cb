//! The steps of a batch's job: recover lost columns, lay the clients' bytes over the old ones, make
//! parity, and, for reads, copy out.
//!
//! Each touched column's new content is one of: a client's payload, where one write covers the
//! window (no copy); zeroes; or the column's *new* block, made from old bytes and payloads in the
//! order of arrival. New parity goes to the parity columns' *new* blocks under rcw; under rmw the
//! *old* blocks follow the difference in place, and each touched data column's *old* block becomes
//! that difference.

use braid_geometry::Slot;
use braid_hooks::{Bug, Mark, planted, reached};

use super::plan::{Method, Plan, Recovery};
use super::state::{ColumnState, Fresh, Segment, Stripe, Want, Window};
use crate::buffer::{BlockIndex, Buffer, Half};
use crate::job::Step;
use crate::request::RequestId;

/// Where a stripe's blocks are in the shard's arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Index of the stripe's first block.
    pub(super) first: u32,
}

impl Blocks {
    /// The start of the window in one of a column's two blocks.
    pub(super) fn at(self, slot: Slot, half: Half, offset_sectors: u32) -> Buffer {
        let half = match half {
            Half::Old => 0,
            Half::New => 1,
        };
        let block = BlockIndex(self.first + 2 * u32::from(slot.0) + half);
        Buffer::Block { block, offset_sectors }
    }
}

/// Builds the job for one batch and settles the columns' states as they will be after it.
pub(super) struct Builder<'a> {
    pub(super) stripe: &'a mut Stripe,
    pub(super) blocks: Blocks,
    pub(super) steps: Vec<Step>,
}

impl Builder<'_> {
    /// All steps of the batch under `plan`.
    pub(super) fn build(mut self, plan: &Plan) -> Vec<Step> {
        self.recover(plan.recovery);
        let is_write = self.stripe.batch.as_ref().expect("a batch is being computed").is_write;
        if is_write {
            for index in 0..self.stripe.map.data_slots() {
                self.merge(index);
            }
            match plan.method {
                Method::NoParity => reached(Mark::MakesNoParity),
                Method::Rcw => self.reconstruct_parity(),
                Method::Rmw => self.modify_parity(),
            }
        } else {
            self.copy_out();
        }
        self.steps
    }

    fn window(&self) -> Window {
        self.stripe.batch.as_ref().expect("a batch is being computed").window
    }

    fn old(&self, slot: Slot) -> Buffer {
        self.blocks.at(slot, Half::Old, self.window().offset)
    }

    fn fresh(&self, slot: Slot) -> Buffer {
        self.blocks.at(slot, Half::New, self.window().offset)
    }

    fn data_slot(&self, index: u16) -> Slot {
        self.stripe.map.data_slot(index)
    }

    /// Old content of every data column by exponent, without the lost ones.
    fn old_by_exponent(&self, lost: &[u16]) -> Vec<Option<Buffer>> {
        let map = self.stripe.map;
        let mut sources = vec![None; usize::from(map.exponents_count())];
        for index in (0..map.data_slots()).filter(|index| !lost.contains(index)) {
            sources[usize::from(map.exponent(index))] = Some(self.old(map.data_slot(index)));
        }
        sources
    }

    fn recover(&mut self, recovery: Recovery) {
        let map = self.stripe.map;
        let p = self.old(map.p_slot());
        let q = map.q_slot().map(|slot| self.old(slot));
        let q = || q.expect("a plan uses Q only where there is one");
        let out = |index: u16| self.old(map.data_slot(index));
        let (step, lost) = match recovery {
            Recovery::None => return,
            Recovery::FromP(one) => {
                reached(Mark::RecoversFromP);
                let others = (0..map.data_slots()).filter(|index| *index != one).map(out);
                let sources = others.chain([p]).collect();
                (Step::Xor { target: out(one), sources }, vec![one])
            }
            Recovery::FromQ(one) => {
                reached(Mark::RecoversFromQ);
                let sources = self.old_by_exponent(&[one]);
                let lost = map.exponent(one);
                (Step::RecoverFromQ { sources, q: q(), lost, out: out(one) }, vec![one])
            }
            Recovery::FromBoth(one, two) => {
                reached(Mark::RecoversTwo);
                let sources = self.old_by_exponent(&[one, two]);
                let lost = (map.exponent(one), map.exponent(two));
                let swap = planted(Bug::RecoveredSwapped);
                let out = if swap { (out(two), out(one)) } else { (out(one), out(two)) };
                (Step::RecoverTwo { sources, p, q: q(), lost, out }, vec![one, two])
            }
        };
        self.steps.push(step);
        for index in lost {
            self.stripe.column_mut(map.data_slot(index)).state = ColumnState::Clean;
        }
    }

    /// Makes the new content of one data column.
    fn merge(&mut self, index: u16) {
        let slot = self.data_slot(index);
        let window = self.window();
        let batch = self.stripe.batch.as_ref().expect("a batch is being computed");
        let writes: Vec<(RequestId, Want, Segment)> = batch
            .attachments
            .iter()
            .flat_map(|a| a.segments.iter().map(|segment| (a.request, a.want, *segment)))
            .filter(|(_, _, segment)| segment.data_index == index)
            .collect();
        let Some((request, want, last)) = writes.last().copied() else { return };
        let last_covers = Window { offset: last.offset, sectors: last.sectors } == window;
        let fresh = match want {
            Want::Write { .. } if last_covers => {
                Fresh::Payload { request, offset_sectors: last.payload_offset }
            }
            Want::Zero { may_punch, .. } if last_covers || planted(Bug::ZeroTakesWindow) => {
                Fresh::Zeroes { may_punch }
            }
            _ => {
                self.overlay(slot, &writes);
                Fresh::Block(Half::New)
            }
        };
        self.stripe.column_mut(slot).fresh = fresh;
    }

    /// Lays writes over the old content, in the order of arrival, in the column's new block.
    fn overlay(&mut self, slot: Slot, writes: &[(RequestId, Want, Segment)]) {
        let window = self.window();
        let is_covered = self.stripe.column(slot).touched.contains(window.set());
        if !is_covered && !planted(Bug::MergeForgetsOld) {
            let (from, to) = (self.old(slot), self.fresh(slot));
            self.steps.push(Step::Copy { from, to, sectors: window.sectors });
        }
        for (request, want, segment) in writes {
            let to = self.blocks.at(slot, Half::New, segment.offset);
            let sectors = segment.sectors;
            self.steps.push(match want {
                Want::Zero { .. } => Step::Zero { to, sectors },
                Want::Read | Want::Write { .. } => {
                    let offset_sectors = segment.payload_offset;
                    let from = Buffer::Payload { request: *request, offset_sectors };
                    Step::Copy { from, to, sectors }
                }
            });
        }
    }

    /// A column's content as it will be; none is zeroes.
    fn content(&self, slot: Slot) -> Option<Buffer> {
        match self.stripe.column(slot).fresh {
            Fresh::Nothing => Some(self.old(slot)),
            Fresh::Payload { request, offset_sectors } => {
                Some(Buffer::Payload { request, offset_sectors })
            }
            Fresh::Zeroes { .. } => None,
            Fresh::Block(half) => Some(self.blocks.at(slot, half, self.window().offset)),
        }
    }

    /// New parity from every data column.
    fn reconstruct_parity(&mut self) {
        reached(Mark::ReconstructsParity);
        let map = self.stripe.map;
        let mut sources = vec![None; usize::from(map.exponents_count())];
        for index in 0..map.data_slots() {
            sources[usize::from(map.exponent(index))] = self.content(map.data_slot(index));
        }
        let fresh = self.all_zeroes().unwrap_or(Fresh::Block(Half::New));
        let (p_slot, q_slot) = (map.p_slot(), map.q_slot());
        self.stripe.column_mut(p_slot).fresh = fresh;
        if let Some(q_slot) = q_slot {
            self.stripe.column_mut(q_slot).fresh = fresh;
        }
        if fresh != Fresh::Block(Half::New) {
            return;
        }
        let p = self.fresh(p_slot);
        self.steps.push(match q_slot.map(|slot| self.fresh(slot)) {
            Some(q) if planted(Bug::SwapPAndQ) => Step::Generate { sources, p: Some(q), q: p },
            Some(q) => Step::Generate { sources, p: Some(p), q },
            None => Step::Xor { target: p, sources: sources.into_iter().flatten().collect() },
        });
    }

    /// Zeroes in every data column make zeroes of parity.
    fn all_zeroes(&self) -> Option<Fresh> {
        let mut all_punch = true;
        for slot in self.stripe.data_slots() {
            let Fresh::Zeroes { may_punch } = self.stripe.column(slot).fresh else { return None };
            all_punch &= may_punch;
        }
        Some(Fresh::Zeroes { may_punch: all_punch })
    }

    /// Old parity follows what changed.
    fn modify_parity(&mut self) {
        reached(Mark::ModifiesParity);
        let map = self.stripe.map;
        let is_loaded = |builder: &Self, slot| {
            (builder.stripe.column(slot).state == ColumnState::Clean).then(|| builder.old(slot))
        };
        let p = is_loaded(self, map.p_slot());
        let q = map.q_slot().and_then(|slot| is_loaded(self, slot));
        for index in 0..map.data_slots() {
            let slot = map.data_slot(index);
            let is_forgotten = index == 1 && planted(Bug::RmwForgetsColumn);
            if self.stripe.column(slot).fresh == Fresh::Nothing || is_forgotten {
                continue;
            }
            let delta = self.old(slot);
            if let Some(source) = self.content(slot)
                && !planted(Bug::RmwNoDifference)
            {
                self.steps.push(Step::XorInto { target: delta, source });
            }
            self.steps.push(Step::Update { delta, exponent: map.exponent(index), p, q });
        }
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            if is_loaded(self, slot).is_some() {
                self.stripe.column_mut(slot).fresh = Fresh::Block(Half::Old);
            }
        }
    }

    /// Copies what the clients read into their payloads.
    fn copy_out(&mut self) {
        let batch = self.stripe.batch.as_ref().expect("a batch is being computed");
        let segments = batch.attachments.iter().flat_map(|attachment| {
            attachment.segments.iter().map(move |segment| (attachment.request, *segment))
        });
        let copies = segments.map(|(request, segment)| Step::Copy {
            from: self.blocks.at(self.data_slot(segment.data_index), Half::Old, segment.offset),
            to: Buffer::Payload { request, offset_sectors: segment.payload_offset },
            sectors: segment.sectors,
        });
        let copies: Vec<Step> = copies.collect();
        self.steps.extend(copies);
    }
}
