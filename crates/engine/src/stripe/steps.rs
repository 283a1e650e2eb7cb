//! The steps of a batch's job: recover lost columns, gather small writes, make parity, and, for reads, copy out.
//!
//! A column has one block, and everything happens there in place. Under rcw, small writes are laid over the old content
//! of their column, and parity is made from payloads and blocks into the parity columns' blocks. Under rmw, part by part,
//! the old content becomes the difference, which parity follows; then, if the part is gathered, the new content takes the place of
//! the difference. A write that is not gathered is never copied: parity is made from its payload, and where writes
//! lie side by side, in slices in which each column is in one place ([`super::content`]).

use braid_geometry::Slot;
use braid_hooks::{Bug, Mark, planted, reached};

use smallvec::SmallVec;

use super::content::{Content, Part};
use super::plan::{Method, Plan, Recovery};
use super::sectors::{Extent, SectorSet};
use super::state::{Fresh, Stripe};
use crate::buffer::{BlockIndex, Buffer};
use crate::job::{Job, Sources, Step};

/// Where a stripe's blocks are in the shard's arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Index of the stripe's first block.
    pub(super) first: u32,
}

impl Blocks {
    /// A place in a column's block.
    pub(super) fn at(self, slot: Slot, offset_sectors: u32) -> Buffer {
        Buffer::Block { block: BlockIndex(self.first + u32::from(slot.0)), offset_sectors }
    }
}

/// Builds the job for one batch and settles the columns' states as they will be after it.
pub(super) struct Builder<'a> {
    pub(super) stripe: &'a mut Stripe,
    pub(super) blocks: Blocks,
    /// What the batch writes, if it does.
    pub(super) content: &'a Content,
    pub(super) job: Job,
}

impl Builder<'_> {
    /// All steps of the batch under `plan`.
    pub(super) fn build(mut self, plan: &Plan) -> Job {
        plan.solved.extents().for_each(|extent| self.recover(plan, extent));
        self.settle_solved(plan);
        if !self.is_write() {
            self.copy_out(plan);
            return self.job;
        }
        match plan.method {
            Method::NoParity => {
                reached(Mark::MakesNoParity);
                self.gather();
            }
            Method::Rcw => {
                self.gather();
                self.reconstruct_parity();
            }
            Method::Rmw => self.modify_parity(),
        }
        self.settle_written();
        self.job
    }

    fn is_write(&self) -> bool {
        self.stripe.batch.as_ref().expect("a batch is being computed").is_write
    }

    fn window(&self) -> SectorSet {
        self.stripe.window()
    }

    fn push(&mut self, step: Step) {
        self.job.steps.push(step);
    }

    fn data_slot(&self, index: u16) -> Slot {
        self.stripe.map.data_slot(index)
    }

    /// Names data columns by exponent: each of `content`'s, none where it has none.
    fn by_exponent(&mut self, content: impl Fn(&Self, u16) -> Option<Buffer>) -> Sources {
        let map = self.stripe.map;
        let mut sources: SmallVec<[Option<Buffer>; 16]> = SmallVec::new();
        sources.resize(usize::from(map.exponents_count()), None);
        for index in 0..map.data_slots() {
            sources[usize::from(map.exponent(index))] = content(self, index);
        }
        self.job.sources(sources.into_iter())
    }

    /// Names the old content of every data column by exponent, without the lost ones.
    fn old_by_exponent(&mut self, offset: u32, lost: &[u16]) -> Sources {
        self.by_exponent(|builder, index| {
            let slot = builder.data_slot(index);
            (!lost.contains(&index)).then(|| builder.blocks.at(slot, offset))
        })
    }

    /// The place in a client's payload of what is solved for, where a column that cannot be read is asked for by one read
    /// that wants just that, and by nobody else: it is solved for right there.
    fn straight(&self, index: u16, solved: SectorSet) -> Option<(Buffer, u32)> {
        if self.is_write() || !self.stripe.column(self.data_slot(index)).unreadable.is_empty() {
            return None;
        }
        let mut segments = self.stripe.segments(index);
        let (work, segment) = segments.next()?;
        let wants = SectorSet::run(segment.offset, segment.sectors);
        (wants == solved && segments.next().is_none()).then_some((
            Buffer::Payload { request: work.request, offset_sectors: segment.payload_offset },
            segment.offset,
        ))
    }

    /// Solves for what is lost of `extent`.
    fn recover(&mut self, plan: &Plan, extent: Extent) {
        let map = self.stripe.map;
        let Extent { offset, sectors } = extent;
        let p = self.blocks.at(map.p_slot(), offset);
        let q = || {
            let slot = map.q_slot().expect("a plan uses Q only where there is one");
            self.blocks.at(slot, offset)
        };
        let out = |builder: &Self, index: u16| match builder.straight(index, plan.solved) {
            Some((payload, from)) => payload.plus(offset - from),
            None => builder.blocks.at(map.data_slot(index), offset),
        };
        let step = match plan.recovery {
            Recovery::None => return,
            Recovery::FromP(one) => {
                reached(Mark::RecoversFromP);
                let others = (0..map.data_slots()).filter(|index| *index != one);
                let others: SmallVec<[Buffer; 16]> =
                    others.map(|index| self.blocks.at(map.data_slot(index), offset)).collect();
                let sources = self.job.sources(others.into_iter().chain([p]).map(Some));
                Step::Xor { target: out(self, one), sources, sectors }
            }
            Recovery::FromQ(one) => {
                reached(Mark::RecoversFromQ);
                let q = q();
                let sources = self.old_by_exponent(offset, &[one]);
                let lost = map.exponent(one);
                Step::RecoverFromQ { sources, q, lost, out: out(self, one), sectors }
            }
            Recovery::FromBoth(one, two) => {
                reached(Mark::RecoversTwo);
                let q = q();
                let sources = self.old_by_exponent(offset, &[one, two]);
                let lost = (map.exponent(one), map.exponent(two));
                let (one, two) = (out(self, one), out(self, two));
                let out = if planted(Bug::RecoveredSwapped) { (two, one) } else { (one, two) };
                Step::RecoverTwo { sources, p, q, lost, out, sectors }
            }
        };
        self.push(step);
    }

    /// What was solved for is in the columns' blocks, unless it went straight to a client.
    fn settle_solved(&mut self, plan: &Plan) {
        for index in plan.recovery.columns() {
            if self.straight(index, plan.solved).is_none() {
                let slot = self.data_slot(index);
                let column = self.stripe.column_mut(slot);
                column.valid = column.valid.union(plan.solved);
            }
        }
    }

    /// Lays small writes over the old content of their columns.
    fn gather(&mut self) {
        for index in 0..self.stripe.map.data_slots() {
            let content = self.content;
            content.of(index).iter().for_each(|part| self.gather_part(index, part));
        }
    }

    fn gather_part(&mut self, index: u16, part: &Part) {
        if part.is_gathered {
            let Extent { offset, sectors } = part.extent;
            let to = self.blocks.at(self.data_slot(index), offset);
            self.push(match part.payload() {
                Some(from) => Step::Copy { from, to, sectors },
                None => Step::Zero { to, sectors },
            });
        }
    }

    /// A data column's content at a place, as it will be; none is zeroes.
    fn content_at(&self, index: u16, offset: u32) -> Option<Buffer> {
        match self.content.straight_at(index, offset) {
            Some(part) => part.payload().map(|from| from.plus(offset - part.extent.offset)),
            None => Some(self.blocks.at(self.data_slot(index), offset)),
        }
    }

    /// New parity from every data column.
    fn reconstruct_parity(&mut self) {
        reached(Mark::ReconstructsParity);
        let map = self.stripe.map;
        let zeroes = self.content.all_zeroes(self.window());
        let fresh = zeroes.map_or(Fresh::Block, |may_punch| Fresh::Zeroes { may_punch });
        self.stripe.column_mut(map.p_slot()).fresh = fresh;
        if let Some(q_slot) = map.q_slot() {
            self.stripe.column_mut(q_slot).fresh = fresh;
        }
        if fresh != Fresh::Block {
            return;
        }
        let content = self.content;
        for extent in self.window().extents() {
            content.slices(extent).for_each(|slice| self.reconstruct_slice(slice));
        }
    }

    fn reconstruct_slice(&mut self, Extent { offset, sectors }: Extent) {
        let map = self.stripe.map;
        let sources = self.by_exponent(|builder, index| builder.content_at(index, offset));
        let p = self.blocks.at(map.p_slot(), offset);
        let q = map.q_slot().map(|slot| self.blocks.at(slot, offset));
        let step = match q {
            Some(q) if planted(Bug::SwapPAndQ) => {
                Step::Generate { sources, p: Some(q), q: p, sectors }
            }
            Some(q) => Step::Generate { sources, p: Some(p), q, sectors },
            None => Step::Xor { target: p, sources, sectors },
        };
        self.push(step);
    }

    /// Old parity follows what changed.
    fn modify_parity(&mut self) {
        reached(Mark::ModifiesParity);
        let map = self.stripe.map;
        let window = self.window();
        let parity = |slot: Slot| {
            let is_loaded = self.stripe.column(slot).valid.contains(window);
            is_loaded.then_some(slot)
        };
        let parity = (parity(map.p_slot()), map.q_slot().and_then(parity));
        let content = self.content;
        for index in 0..map.data_slots() {
            let is_forgotten = index == 1 && planted(Bug::RmwForgetsColumn);
            for part in content.of(index) {
                if !is_forgotten {
                    self.follow(index, part, parity);
                }
                self.gather_part(index, part);
            }
        }
        for slot in [parity.0, parity.1].into_iter().flatten() {
            self.stripe.column_mut(slot).fresh = Fresh::Block;
        }
    }

    /// Parity follows one part of a column, whose old content becomes the difference.
    fn follow(&mut self, index: u16, part: &Part, (p, q): (Option<Slot>, Option<Slot>)) {
        let Extent { offset, sectors } = part.extent;
        let delta = self.blocks.at(self.data_slot(index), offset);
        if let Some(source) = part.payload()
            && !planted(Bug::RmwNoDifference)
        {
            self.push(Step::XorInto { target: delta, source, sectors });
        }
        let exponent = self.stripe.map.exponent(index);
        let [p, q] = [p, q].map(|slot| slot.map(|slot| self.blocks.at(slot, offset)));
        self.push(Step::Update { delta, exponent, p, q, sectors });
    }

    /// What the blocks hold when the members have the batch.
    fn settle_written(&mut self) {
        let window = self.window();
        let believes_all = planted(Bug::PayloadKeepsValid);
        for index in 0..self.stripe.map.data_slots() {
            let (gathered, straight) = self.content.sets_of(index);
            let straight = if believes_all { SectorSet::EMPTY } else { straight };
            let slot = self.data_slot(index);
            let column = self.stripe.column_mut(slot);
            column.valid = column.valid.union(gathered).without(straight);
        }
        let map = self.stripe.map;
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            let column = self.stripe.column_mut(slot);
            column.valid = match column.fresh {
                Fresh::Block => column.valid.union(window),
                Fresh::Zeroes { .. } if believes_all => column.valid,
                // Without a member that takes it parity is not made: what the block holds of it is old.
                Fresh::Nothing if planted(Bug::OldParityBelieved) => column.valid,
                Fresh::Nothing | Fresh::Zeroes { .. } => column.valid.without(window),
            };
        }
    }

    /// Copies what the clients read into their payloads, but for what was solved for there.
    fn copy_out(&mut self, plan: &Plan) {
        for index in 0..self.stripe.map.data_slots() {
            let is_solved = plan.recovery.columns().any(|one| one == index);
            if is_solved && self.straight(index, plan.solved).is_some() {
                continue;
            }
            let (stripe, blocks) = (&*self.stripe, self.blocks);
            let slot = stripe.map.data_slot(index);
            self.job.steps.extend(stripe.segments(index).map(|(work, segment)| Step::Copy {
                from: blocks.at(slot, segment.offset),
                to: Buffer::Payload {
                    request: work.request,
                    offset_sectors: segment.payload_offset,
                },
                sectors: segment.sectors,
            }));
        }
    }
}
