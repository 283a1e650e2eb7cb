//! The steps that solve for lost columns: one equation for each readable parity column.
//!
//! P is the sum of the data columns, Q the sum of each data column times a power of the generator
//! (the algebra is in braid-parity). With everything else at hand, P or Q gives one unknown column,
//! P and Q together give two. Reads and writes use these steps alike, and differ in where the
//! result goes.

use braid_geometry::{RowMap, Slot};
use braid_sim_hooks::{Mark, reached};
use smallvec::SmallVec;

use super::plan::{Recipe, Recovery, Solution};
use crate::buffer::{BlockIndex, Buffer};
use crate::computation::{Computation, Sources, Step};
use crate::sectors::Extent;

/// How a machine's blocks in the shard's arena are distributed: each frame has one block for each
/// slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameBlocks {
    each: u32,
}

impl FrameBlocks {
    pub(super) fn new(slots: u16) -> Self {
        Self { each: u32::from(slots) }
    }

    /// Number of blocks that this many frames take.
    pub(super) fn of(self, frames: u32) -> u32 {
        frames * self.each
    }

    /// The blocks of frame number `index`.
    pub(super) fn at(self, index: u32, shift_sectors: u32) -> Blocks {
        Blocks { first: self.of(index), shift_sectors }
    }
}

/// The places of the blocks of a stripe or a read in the shard's arena: one block for each slot.
///
/// Short content is at the beginning of its block, wherever in the stripe unit it belongs. So a few
/// lines of the processor's caches are used again and again, rather than every line of every block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    first: u32,
    /// The sector of the stripe unit that the first sector of each block holds.
    shift_sectors: u32,
}

impl Blocks {
    pub(super) fn at(self, slot: Slot, offset_sectors: u32) -> Buffer {
        let offset_sectors = offset_sectors.checked_sub(self.shift_sectors).expect("it is there");
        Buffer::Block { block: BlockIndex(self.first + u32::from(slot.0)), offset_sectors }
    }
}

/// Names data columns by exponent: the buffer that `content` returns for each, or `None`.
pub(super) fn by_exponent(
    computation: &mut Computation,
    map: &RowMap,
    content: impl Fn(u16) -> Option<Buffer>,
) -> Sources {
    let mut sources: SmallVec<[Option<Buffer>; 16]> = SmallVec::new();
    sources.resize(usize::from(map.exponents_count()), None);
    for index in 0..map.data_slots() {
        sources[usize::from(map.exponent(index))] = content(index);
    }
    computation.sources(sources.into_iter())
}

/// Solves for lost sectors, into the columns' blocks.
pub(super) fn solve_in_place(
    computation: &mut Computation,
    (map, blocks): (&RowMap, Blocks),
    recipe: &Recipe,
) {
    solve(computation, (map, blocks), recipe, |index, offset| {
        blocks.at(map.data_slot(index), offset)
    });
}

/// Solves for lost sectors. `out` returns the target for a data column's bytes from a sector on.
pub(super) fn solve(
    computation: &mut Computation,
    (map, blocks): (&RowMap, Blocks),
    recipe: &Recipe,
    out: impl Fn(u16, u32) -> Buffer,
) {
    for Solution { recovery, sectors } in &recipe.solutions {
        for extent in sectors.extents() {
            let out = |index| out(index, extent.offset);
            solve_one(computation, (map, blocks), *recovery, extent, out);
        }
    }
}

fn solve_one(
    computation: &mut Computation,
    (map, blocks): (&RowMap, Blocks),
    recovery: Recovery,
    extent: Extent,
    out: impl Fn(u16) -> Buffer,
) {
    let Extent { offset, sectors } = extent;
    let p = blocks.at(map.p_slot(), offset);
    let q = || {
        let slot = map.q_slot().expect("a plan uses Q only where there is one");
        blocks.at(slot, offset)
    };
    let data = |index: u16| blocks.at(map.data_slot(index), offset);
    let known = |computation: &mut Computation, lost: &[u16]| {
        by_exponent(computation, map, |index| (!lost.contains(&index)).then(|| data(index)))
    };
    let step = match recovery {
        Recovery::FromP(one) => {
            reached(Mark::RecoversFromP);
            let others = (0..map.data_slots()).filter(|index| *index != one);
            let others: SmallVec<[Buffer; 16]> = others.map(data).collect();
            let sources = computation.sources(others.into_iter().chain([p]).map(Some));
            Step::Xor { target: out(one), sources, sectors }
        }
        Recovery::FromQ(one) => {
            reached(Mark::RecoversFromQ);
            let sources = known(computation, &[one]);
            Step::RecoverFromQ { sources, q: q(), lost: map.exponent(one), out: out(one), sectors }
        }
        Recovery::FromBoth(one, two) => {
            reached(Mark::RecoversTwo);
            let sources = known(computation, &[one, two]);
            let lost = (map.exponent(one), map.exponent(two));
            let out = (out(one), out(two));
            Step::RecoverTwo { sources, p, q: q(), lost, out, sectors }
        }
    };
    computation.steps.push(step);
}
