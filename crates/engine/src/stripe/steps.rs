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

use smallvec::SmallVec;

use super::band::Want;
use super::plan::{Method, Plan, Recovery};
use super::state::{ColumnState, Fresh, Stripe, Window};
use crate::buffer::{BlockIndex, Buffer, Half};
use crate::job::{Job, Sources, Step};

/// Where a stripe's blocks are in the shard's arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Index of the stripe's first block.
    pub(super) first: u32,
}

impl Blocks {
    /// The start of the window in one of a column's two blocks.
    pub(super) fn at(self, stripe: &Stripe, slot: Slot, half: Half, offset_sectors: u32) -> Buffer {
        let is_second = stripe.column(slot).is_swapped == (half == Half::Old);
        let block = BlockIndex(self.first + 2 * u32::from(slot.0) + u32::from(is_second));
        Buffer::Block { block, offset_sectors }
    }
}

/// Builds the job for one batch and settles the columns' states as they will be after it.
pub(super) struct Builder<'a> {
    pub(super) stripe: &'a mut Stripe,
    pub(super) blocks: Blocks,
    pub(super) job: Job,
}

impl Builder<'_> {
    /// All steps of the batch under `plan`.
    pub(super) fn build(mut self, plan: &Plan) -> Job {
        self.recover(plan.recovery);
        if self.is_write() {
            for index in 0..self.stripe.map.data_slots() {
                self.merge(index);
            }
            match plan.method {
                Method::NoParity => reached(Mark::MakesNoParity),
                Method::Rcw => self.reconstruct_parity(),
                Method::Rmw => self.modify_parity(),
            }
        } else {
            self.copy_out(plan.recovery);
        }
        self.job
    }

    fn is_write(&self) -> bool {
        self.stripe.batch.as_ref().expect("a batch is being computed").is_write
    }

    fn window(&self) -> Window {
        self.stripe.window()
    }

    fn push(&mut self, step: Step) {
        self.job.steps.push(step);
    }

    fn old(&self, slot: Slot) -> Buffer {
        self.blocks.at(self.stripe, slot, Half::Old, self.window().offset)
    }

    fn fresh(&self, slot: Slot) -> Buffer {
        self.blocks.at(self.stripe, slot, Half::New, self.window().offset)
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
    fn old_by_exponent(&mut self, lost: &[u16]) -> Sources {
        self.by_exponent(|builder, index| {
            (!lost.contains(&index)).then(|| builder.old(builder.data_slot(index)))
        })
    }

    /// The client's payload, where a column that cannot be read is asked for by one read that wants
    /// all of it, and by nobody else: it is solved for right there.
    fn straight(&self, index: u16) -> Option<Buffer> {
        if self.is_write() || self.stripe.column(self.data_slot(index)).unreadable {
            return None;
        }
        let mut segments = self.stripe.segments(index);
        let (work, segment) = segments.next()?;
        let covers = Window { offset: segment.offset, sectors: segment.sectors } == self.window();
        (covers && segments.next().is_none()).then_some(Buffer::Payload {
            request: work.request,
            offset_sectors: segment.payload_offset,
        })
    }

    fn recover(&mut self, recovery: Recovery) {
        let map = self.stripe.map;
        let p = self.old(map.p_slot());
        let q = map.q_slot().map(|slot| self.old(slot));
        let q = || q.expect("a plan uses Q only where there is one");
        let out = |builder: &Self, index: u16| {
            builder.straight(index).unwrap_or_else(|| builder.old(map.data_slot(index)))
        };
        let step = match recovery {
            Recovery::None => return,
            Recovery::FromP(one) => {
                reached(Mark::RecoversFromP);
                let others = (0..map.data_slots()).filter(|index| *index != one);
                let others: SmallVec<[Buffer; 16]> =
                    others.map(|index| self.old(map.data_slot(index))).collect();
                let sources = self.job.sources(others.into_iter().chain([p]).map(Some));
                Step::Xor { target: out(self, one), sources }
            }
            Recovery::FromQ(one) => {
                reached(Mark::RecoversFromQ);
                let sources = self.old_by_exponent(&[one]);
                let lost = map.exponent(one);
                Step::RecoverFromQ { sources, q: q(), lost, out: out(self, one) }
            }
            Recovery::FromBoth(one, two) => {
                reached(Mark::RecoversTwo);
                let sources = self.old_by_exponent(&[one, two]);
                let lost = (map.exponent(one), map.exponent(two));
                let (one, two) = (out(self, one), out(self, two));
                let out = if planted(Bug::RecoveredSwapped) { (two, one) } else { (one, two) };
                Step::RecoverTwo { sources, p, q: q(), lost, out }
            }
        };
        self.push(step);
        for index in lost_columns(recovery) {
            if self.straight(index).is_none() {
                let window = self.window().set();
                let column = self.stripe.column_mut(map.data_slot(index));
                column.state = ColumnState::Clean;
                column.valid = column.valid.union(window);
            }
        }
    }

    /// Makes the new content of one data column.
    fn merge(&mut self, index: u16) {
        let slot = self.data_slot(index);
        let window = self.window();
        let last = self.stripe.segments(index).next_back();
        let Some((work, last)) = last.map(|(work, segment)| (*work, segment)) else { return };
        let last_covers = Window { offset: last.offset, sectors: last.sectors } == window;
        let fresh = match work.want {
            Want::Write { .. } if last_covers => {
                Fresh::Payload { request: work.request, offset_sectors: last.payload_offset }
            }
            Want::Zero { may_punch, .. } if last_covers || planted(Bug::ZeroTakesWindow) => {
                Fresh::Zeroes { may_punch }
            }
            _ => {
                self.overlay(slot, index);
                Fresh::Block(Half::New)
            }
        };
        self.stripe.column_mut(slot).fresh = fresh;
    }

    /// Lays writes over the old content, in the order of arrival, in the column's new block.
    fn overlay(&mut self, slot: Slot, index: u16) {
        let window = self.window();
        let is_covered = self.stripe.column(slot).touched.contains(window.set());
        if !is_covered && !planted(Bug::MergeForgetsOld) {
            let (from, to) = (self.old(slot), self.fresh(slot));
            self.push(Step::Copy { from, to, sectors: window.sectors });
        }
        let (stripe, blocks) = (&*self.stripe, self.blocks);
        self.job.steps.extend(stripe.segments(index).map(|(work, segment)| {
            let to = blocks.at(stripe, slot, Half::New, segment.offset);
            let sectors = segment.sectors;
            match work.want {
                Want::Zero { .. } => Step::Zero { to, sectors },
                Want::Read | Want::Write { .. } => {
                    let offset_sectors = segment.payload_offset;
                    let from = Buffer::Payload { request: work.request, offset_sectors };
                    Step::Copy { from, to, sectors }
                }
            }
        }));
    }

    /// A column's content as it will be; none is zeroes.
    fn content(&self, slot: Slot) -> Option<Buffer> {
        match self.stripe.column(slot).fresh {
            Fresh::Nothing => Some(self.old(slot)),
            Fresh::Payload { request, offset_sectors } => {
                Some(Buffer::Payload { request, offset_sectors })
            }
            Fresh::Zeroes { .. } => None,
            Fresh::Block(half) => {
                Some(self.blocks.at(self.stripe, slot, half, self.window().offset))
            }
        }
    }

    /// New parity from every data column.
    fn reconstruct_parity(&mut self) {
        reached(Mark::ReconstructsParity);
        let map = self.stripe.map;
        let fresh = self.all_zeroes().unwrap_or(Fresh::Block(Half::New));
        let (p_slot, q_slot) = (map.p_slot(), map.q_slot());
        self.stripe.column_mut(p_slot).fresh = fresh;
        if let Some(q_slot) = q_slot {
            self.stripe.column_mut(q_slot).fresh = fresh;
        }
        if fresh != Fresh::Block(Half::New) {
            return;
        }
        let sources = self.by_exponent(|builder, index| builder.content(builder.data_slot(index)));
        let p = self.fresh(p_slot);
        let step = match q_slot.map(|slot| self.fresh(slot)) {
            Some(q) if planted(Bug::SwapPAndQ) => Step::Generate { sources, p: Some(q), q: p },
            Some(q) => Step::Generate { sources, p: Some(p), q },
            None => Step::Xor { target: p, sources },
        };
        self.push(step);
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
                self.push(Step::XorInto { target: delta, source });
            }
            self.push(Step::Update { delta, exponent: map.exponent(index), p, q });
        }
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            if is_loaded(self, slot).is_some() {
                self.stripe.column_mut(slot).fresh = Fresh::Block(Half::Old);
            }
        }
    }

    /// Copies what the clients read into their payloads, but for what was solved for there.
    fn copy_out(&mut self, recovery: Recovery) {
        for index in 0..self.stripe.map.data_slots() {
            let is_lost = lost_columns(recovery).any(|lost| lost == index);
            if is_lost && self.straight(index).is_some() {
                continue;
            }
            let (stripe, blocks) = (&*self.stripe, self.blocks);
            let slot = stripe.map.data_slot(index);
            self.job.steps.extend(stripe.segments(index).map(|(work, segment)| Step::Copy {
                from: blocks.at(stripe, slot, Half::Old, segment.offset),
                to: Buffer::Payload {
                    request: work.request,
                    offset_sectors: segment.payload_offset,
                },
                sectors: segment.sectors,
            }));
        }
    }
}

/// The data columns that are solved for.
fn lost_columns(recovery: Recovery) -> impl Iterator<Item = u16> {
    let (one, two) = match recovery {
        Recovery::None => (None, None),
        Recovery::FromP(one) | Recovery::FromQ(one) => (Some(one), None),
        Recovery::FromBoth(one, two) => (Some(one), Some(two)),
    };
    one.into_iter().chain(two)
}
