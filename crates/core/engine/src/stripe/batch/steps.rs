//! The steps of a batch's computation: solve for lost columns, gather small writes, compute parity.
//!
//! A column has one block, and the computation changes it in place. Under rcw, small writes are
//! laid over the old content of their column. Parity is computed from payloads and blocks into the
//! parity columns' blocks. Under rmw, the old content becomes the difference, part by part, and is
//! added to parity. If the part is gathered, the new content then replaces the difference. A write
//! that is not gathered is never copied: parity is computed from its payload. Where such writes lie
//! side by side, parity is computed in slices in which each column is in one place in memory
//! ([`super::content`]).
//! `journal` names the blocks that a batch writes to a write journal: the data blocks that clients
//! wrote, and the parity of their rows.

use braid_geometry::{Slot, StripeGeometry};
use braid_ondisk::{JournalRow, LoggedEntry};
use braid_sim_hooks::{Bug, Mark, reached, spoiled};

use super::super::plan::{Method, Recipe, Solution};
use super::super::solve::{Blocks, by_exponent, solve_in_place};
use super::content::{Content, Part};
use super::log::{LogState, Rows, ToLog, rows};
use super::stripe::{NewParity, Stripe};
use crate::buffer::Buffer;
use crate::computation::{Computation, Step};
use crate::sectors::{BLOCK_SECTORS, Extent, SectorSet};

/// Builds the computation of one batch, and sets the columns' states to those after the
/// computation.
pub(super) struct Builder<'a> {
    pub(super) stripe: &'a mut Stripe,
    pub(super) blocks: Blocks,
    pub(super) content: &'a Content,
    /// The members that log the batch, if it must be logged.
    pub(super) log: Option<ToLog<'a>>,
    /// The geometry, if the batch must be journaled.
    pub(super) journal: Option<&'a StripeGeometry>,
    pub(super) computation: Computation,
}

impl Builder<'_> {
    /// All steps of the batch by this recipe.
    pub(super) fn build(mut self, recipe: &Recipe) -> Computation {
        self.solve(recipe);
        if let Some(to_log) = self.log {
            self.log(to_log, recipe.method);
        }
        match recipe.method {
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
        if let Some(geometry) = self.journal {
            self.journal(geometry);
        }
        self.settle_written();
        self.computation
    }

    fn window(&self) -> SectorSet {
        self.stripe.window()
    }

    fn push(&mut self, step: Step) {
        self.computation.steps.push(step);
    }

    fn data_slot(&self, index: u16) -> Slot {
        self.stripe.map.data_slot(index)
    }

    /// Solves for lost columns, into their blocks.
    fn solve(&mut self, recipe: &Recipe) {
        let (map, blocks) = (self.stripe.map, self.blocks);
        solve_in_place(&mut self.computation, (&map, blocks), recipe);
        for Solution { recovery, sectors } in &recipe.solutions {
            for index in recovery.columns() {
                let column = self.stripe.column_mut(map.data_slot(index));
                column.valid = column.valid.union(*sectors);
            }
        }
    }

    /// Computes the partial parity of the written rows, while the blocks still hold old content.
    fn log(&mut self, to_log: ToLog<'_>, method: Method) {
        let map = self.stripe.map;
        let touched: Vec<SectorSet> = (0..map.data_slots())
            .map(|index| self.stripe.column(self.data_slot(index)).touched)
            .collect();
        let is_rmw = method == Method::Rmw;
        let p_slot = to_log.p.then(|| map.p_slot());
        for rows in rows(&touched) {
            for slot in [p_slot, to_log.q].into_iter().flatten() {
                let band = self.stripe.band();
                let entry = rows.entry((to_log.geometry, band, &map), slot);
                if entry.parity_bytes > 0 && Some(slot) == to_log.q {
                    self.add_kept_of_q(&rows, slot, is_rmw);
                } else if entry.parity_bytes > 0 {
                    self.add_kept(&rows, is_rmw);
                }
                self.stripe.entries.push(LoggedEntry { entry, partial: Vec::new() });
            }
        }
        self.stripe.logged = LogState::Due;
    }

    /// Adds the columns that are kept to P's partial parity. Under rmw: old P without the columns
    /// that are written.
    fn add_kept(&mut self, rows: &Rows, is_rmw: bool) {
        let (map, blocks) = (self.stripe.map, self.blocks);
        let Extent { offset, sectors } = rows.extent;
        let sources = (0..map.data_slots()).filter(|index| rows.writes(*index) == is_rmw);
        let slots = sources.map(|index| map.data_slot(index));
        let slots = slots.chain(is_rmw.then(|| map.p_slot()));
        let sources = slots.map(|slot| Some(blocks.at(slot, offset)));
        let sources: Vec<_> = sources.collect();
        let sources = self.computation.sources(sources.into_iter());
        self.push(Step::Partial { sources, sectors });
    }

    /// Adds the columns that are kept to Q's partial parity. Under rmw: old Q without the columns
    /// that are written.
    fn add_kept_of_q(&mut self, rows: &Rows, q_slot: Slot, is_rmw: bool) {
        let (map, blocks) = (self.stripe.map, self.blocks);
        let Extent { offset, sectors } = rows.extent;
        let sources = by_exponent(&mut self.computation, &map, |index| {
            (rows.writes(index) == is_rmw).then(|| blocks.at(map.data_slot(index), offset))
        });
        let q = is_rmw.then(|| blocks.at(q_slot, offset));
        self.push(Step::PartialQ { sources, q, sectors });
    }

    fn gather(&mut self) {
        for index in self.stripe.touched_columns() {
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

    /// Computes new parity from every data column.
    fn reconstruct_parity(&mut self) {
        reached(Mark::ReconstructsParity);
        let map = self.stripe.map;
        let window = self.window();
        for index in 0..map.data_slots() {
            let (gathered, straight) = self.content.sets_of(index);
            let old = self.stripe.column(map.data_slot(index)).valid;
            let known = old.union(gathered).union(straight);
            assert!(known.contains(window), "parity is made of bytes that are known");
        }
        let zeroes = self.content.all_zeroes(window);
        let fresh = zeroes.map_or(NewParity::Block, |may_punch| NewParity::Zeroes { may_punch });
        self.stripe.column_mut(map.p_slot()).fresh = fresh;
        if let Some(q_slot) = map.q_slot() {
            self.stripe.column_mut(q_slot).fresh = fresh;
        }
        if fresh != NewParity::Block {
            return;
        }
        let content = self.content;
        for extent in self.window().extents() {
            content.slices(extent).for_each(|slice| self.reconstruct_slice(slice));
        }
    }

    fn reconstruct_slice(&mut self, Extent { offset, sectors }: Extent) {
        let map = self.stripe.map;
        let (stripe, content, blocks) = (&*self.stripe, self.content, self.blocks);
        let sources = by_exponent(&mut self.computation, &map, |index| {
            content_at(content, (stripe, blocks), index, offset)
        });
        let p = self.blocks.at(map.p_slot(), offset);
        let q = map.q_slot().map(|slot| self.blocks.at(slot, offset));
        let step = match q {
            Some(q) => {
                let (p, q) = spoiled(Bug::SwapPAndQ, (p, q), (q, p));
                Step::Generate { sources, p: Some(p), q, sectors }
            }
            None => Step::Xor { target: p, sources, sectors },
        };
        self.push(step);
    }

    /// Adds the changes to old parity.
    fn modify_parity(&mut self) {
        reached(Mark::ModifiesParity);
        let map = self.stripe.map;
        let window = self.window();
        let parity = |slot: Slot| {
            let is_loaded = self.stripe.column(slot).valid.contains(window);
            is_loaded.then_some(slot)
        };
        let parity = (parity(map.p_slot()), map.q_slot().and_then(parity));
        assert!(parity.0.or(parity.1).is_some(), "there is old parity to modify");
        let content = self.content;
        for index in self.stripe.touched_columns() {
            for part in content.of(index) {
                self.follow(index, part, parity);
                self.gather_part(index, part);
            }
        }
        for slot in [parity.0, parity.1].into_iter().flatten() {
            self.stripe.column_mut(slot).fresh = NewParity::Block;
        }
    }

    /// Adds the change of one part of a column to parity. P alone takes old and new content in one
    /// pass. For Q the column's block first gets the difference of old and new content.
    fn follow(&mut self, index: u16, part: &Part, (p, q): (Option<Slot>, Option<Slot>)) {
        let Extent { offset, sectors } = part.extent;
        let old = self.stripe.column(self.data_slot(index)).valid;
        assert!(old.contains(part.extent.set()), "the difference is to bytes that are known");
        let delta = self.blocks.at(self.data_slot(index), offset);
        let payload = part.payload();
        let payload = spoiled(Bug::RmwNoDifference, payload, None);
        let [p, q] = [p, q].map(|slot| slot.map(|slot| self.blocks.at(slot, offset)));
        if let (Some(p), None) = (p, q) {
            let sources = std::iter::once(delta).chain(payload);
            return self.computation.xor_into(p, sources, sectors);
        }
        if let Some(source) = payload {
            self.computation.xor_into(delta, std::iter::once(source), sectors);
        }
        let exponent = self.stripe.map.exponent(index);
        self.push(Step::Update { delta, exponent, p, q, sectors });
    }

    /// Queues the written blocks and all parity of their rows, with their new content, for the
    /// journal.
    fn journal(&mut self, geometry: &StripeGeometry) {
        let map = self.stripe.map;
        let window = self.window();
        let offsets = (0..128).step_by(BLOCK_SECTORS as usize);
        let blocks = offsets.map(|offset| Extent { offset, sectors: BLOCK_SECTORS });
        for block in blocks.filter(|block| window.contains(block.set())) {
            let mut data = Vec::new();
            for index in 0..map.data_slots() {
                let touched = self.stripe.column(map.data_slot(index)).touched;
                if touched.meets(block.set()) {
                    data.push(self.stripe.band().logical(geometry, index, block.offset).0);
                    self.take_data(index, block);
                }
            }
            let parity = [Some(map.p_slot()), map.q_slot()].into_iter().flatten();
            let parity: Vec<Slot> = parity.collect();
            parity.iter().for_each(|slot| self.take_parity(*slot, block));
            let (stripe, _) = self.stripe.range(block);
            let (stripe, parities, bytes) = (stripe.0, parity.len(), Vec::new());
            self.stripe.rows.push(JournalRow { stripe, data, parities, bytes });
        }
        self.stripe.logged = LogState::Due;
    }

    fn take_data(&mut self, index: u16, block: Extent) {
        let (content, blocks) = (self.content, self.blocks);
        for Extent { offset, sectors } in content.slices(block) {
            let source = content_at(content, (self.stripe, blocks), index, offset);
            let sources = self.computation.sources(std::iter::once(source));
            self.push(Step::Partial { sources, sectors });
        }
    }

    fn take_parity(&mut self, slot: Slot, Extent { offset, sectors }: Extent) {
        let source = match self.stripe.column(slot).fresh {
            NewParity::Block => Some(self.blocks.at(slot, offset)),
            NewParity::Zeroes { .. } => None,
            NewParity::Nothing => unreachable!("what is journaled has all its parity"),
        };
        let sources = self.computation.sources(std::iter::once(source));
        self.push(Step::Partial { sources, sectors });
    }

    /// Sets `valid` to the blocks' state after the members' writes.
    fn settle_written(&mut self) {
        let window = self.window();
        for index in self.stripe.touched_columns() {
            let (gathered, straight) = self.content.sets_of(index);
            let slot = self.data_slot(index);
            let column = self.stripe.column_mut(slot);
            column.valid = column.valid.union(gathered).without(straight);
        }
        let map = self.stripe.map;
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            let column = self.stripe.column_mut(slot);
            column.valid = match column.fresh {
                NewParity::Block => column.valid.union(window),
                // Parity without a member is not computed: its block still holds old parity.
                NewParity::Nothing | NewParity::Zeroes { .. } => column.valid.without(window),
            };
        }
    }
}

/// A data column's new content at an offset; `None` for zeroes.
fn content_at(
    content: &Content,
    (stripe, blocks): (&Stripe, Blocks),
    index: u16,
    offset: u32,
) -> Option<Buffer> {
    match content.straight_at(index, offset) {
        Some(part) => part.payload().map(|from| from.plus(offset - part.extent.offset)),
        None => Some(blocks.at(stripe.map.data_slot(index), offset)),
    }
}
