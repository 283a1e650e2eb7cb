//! The interface of a kind of read: the columns that it reads, computes and writes, and its end.
//!
//! Each kind implements this interface in a file of its own. The shared machine
//! ([`super::machine`], `act`, `facts`) carries out decisions of the table, and calls a kind
//! through `by_kind`. A client's read is a kind like background tasks. The call is static, and
//! functions along the call are `#[inline]`: otherwise a read costs 62 instructions more, of 4,496.

use braid_geometry::Slot;
use smallvec::SmallVec;

use super::super::band::Band;
use super::super::plan::{Need, Planner, Recipe};
use super::super::solve::{Blocks, by_exponent, solve_in_place};
use super::decide::RemainingWork;
use super::machine::{Reconstruct, ReconstructContext};
use super::read::Read;
use crate::array::ArrayView;
use crate::computation::{Computation, Step};
use crate::ids::MemberId;
use crate::sectors::{Extent, SectorSet};
use crate::work::Difference;

/// Indices under which a comparison notes its findings in P and in Q.
const P: u16 = 0;
const Q: u16 = 1;
/// The index under which a comparison notes lost sectors.
pub(super) const LOST: u16 = 2;

/// Properties of a kind that the shared machine needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KindTraits {
    /// The kind compares. It rewrites members' own sectors, so that a medium error costs only
    /// sectors.
    pub(super) compares: bool,
    /// The kind rewrites wrong columns, and verifies them.
    pub(super) repairs: bool,
    /// The kind fills members, and can leave out a member that sits out.
    pub(super) fills: bool,
    pub(super) copies: bool,
    /// The kind reads a range block by block after a medium error.
    pub(super) reads_in_parts: bool,
    /// The kind reads sectors that bad-block logs name.
    pub(super) tries_named: bool,
}

impl KindTraits {
    /// The member in a slot to which the kind writes.
    pub(super) fn member_of(self, view: &ArrayView, slot: Slot) -> Option<MemberId> {
        let member = view.member(slot)?;
        if self.copies { member.replacement } else { Some(member.id) }
    }
}

pub(super) trait Kind {
    fn traits(&self) -> KindTraits {
        KindTraits::default()
    }

    /// The columns to write, if the kind knows them before it reads.
    fn targets(&self, _view: &ArrayView, _band: &Band) -> Option<SmallVec<[Slot; 2]>> {
        None
    }

    /// Plans the sectors that the kind reads.
    fn plan(&self, read: &Read, context: &ReconstructContext<'_>, planner: &mut Planner);

    /// Called if no plan is possible. Returns whether a part of the read may be possible, and
    /// whether no readable column was left out.
    fn without_plan(&self, _read: &Read, _context: &ReconstructContext<'_>) -> (Need, bool) {
        (Need::Impossible, true)
    }

    /// Adds the steps to compute once all reads are in memory.
    fn compute(&self, steps: &mut Steps<'_>, context: &mut ReconstructContext<'_>, recipe: &Recipe);

    /// Evaluates a finished computation.
    fn note_computed(
        &self,
        _read: &mut Read,
        _context: &ReconstructContext<'_>,
        _done: &Computation,
    ) {
    }

    /// The work that remains before the read's end. `_is_behind`: a batch of the band has begun, or
    /// another read may write to the band.
    fn rest(&self, _read: &Read, _is_behind: bool) -> RemainingWork {
        RemainingWork::Nothing
    }

    /// Adds the steps that compute wrong columns again.
    fn mend(&self, _steps: &mut Steps<'_>, _context: &mut ReconstructContext<'_>) {}

    /// Ends the read: a client gets its answer, a job its result.
    fn end(
        &self,
        reads: &mut Reconstruct,
        context: &mut ReconstructContext<'_>,
        place: u32,
        end: End,
    );
}

#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The read's bytes are in memory, and its writes have ended.
    Answered,
    /// The read cannot continue. A kind that can do a part of the work takes the read's place back.
    Refused,
    /// The read waited for a member that began to sit out, and lost its place.
    Abandoned,
}

/// The steps of a read's computation.
pub(super) struct Steps<'a> {
    pub(super) read: &'a mut Read,
    pub(super) blocks: Blocks,
    pub(super) unit_sectors: u32,
    pub(super) computation: &'a mut Computation,
}

impl Steps<'_> {
    /// Solves for unreadable columns, into their blocks.
    pub(super) fn solve(&mut self, recipe: &Recipe) {
        solve_in_place(self.computation, (&self.read.map, self.blocks), recipe);
    }

    /// Adds every data column to P, and its multiple to Q: sectors that differ are then not zero.
    pub(super) fn compare(&mut self, (p, q): (Option<Slot>, Option<Slot>), extent: Extent) {
        let (map, blocks, Extent { offset, sectors }) = (&self.read.map, self.blocks, extent);
        let from = |slot: Option<Slot>| slot.map(|slot| blocks.at(slot, offset));
        for index in 0..map.data_slots() {
            let delta = blocks.at(map.data_slot(index), offset);
            let exponent = map.exponent(index);
            let (p, q) = (from(p), from(q));
            self.computation.steps.push(Step::Update { delta, exponent, p, q, sectors });
        }
        for (into, slot) in [(P, p), (Q, q)] {
            let unit = slot.map(|slot| blocks.at(slot, 0));
            let find = unit.map(|unit| Step::Find { unit, offset, sectors, into });
            self.computation.steps.extend(find);
        }
    }

    /// Computes the parity columns for which `is_made` is true, from data in the blocks. False if
    /// there are none.
    pub(super) fn parity(&mut self, is_made: impl Fn(&Read, Slot) -> bool) -> bool {
        let (read, blocks) = (&*self.read, self.blocks);
        let (map, sectors, at) = (&read.map, self.unit_sectors, |slot: Slot| blocks.at(slot, 0));
        let is_made = |slot: &Slot| is_made(read, *slot);
        let (p, q) = (Some(map.p_slot()).filter(is_made), map.q_slot().filter(is_made));
        if p.is_none() && q.is_none() {
            return false;
        }
        let sources = by_exponent(self.computation, map, |index| Some(at(map.data_slot(index))));
        self.computation.steps.push(match (p, q) {
            (p, Some(q)) => Step::Generate { sources, p: p.map(at), q: at(q), sectors },
            (Some(p), None) => Step::Xor { target: at(p), sources, sectors },
            (None, None) => unreachable!("seen above"),
        });
        true
    }
}

/// The sectors in which some data has the content of a lost sector, if the comparison looked.
pub(super) fn lost(computation: &Computation) -> SectorSet {
    computation.found.get(usize::from(LOST)).copied().unwrap_or_default()
}

/// The sectors in which parity and data differ.
pub(super) fn difference(computation: &Computation) -> Difference {
    let found = &computation.found;
    let set = |index: u16| found.get(usize::from(index)).copied().unwrap_or_default();
    Difference { p: set(P), q: set(Q) }
}
