//! What comes of a comparison: which columns are wrong, what may be written again, and what is told of it.
//!
//! Where it stands: a [`Read`] that a [`Task::Compare`] or [`Task::Repair`] has aimed at a band carries a [`Check`] along. The
//! rule that makes columns of verdicts is [`crate::rot`]; here sectors that could not be read come in.
//!
//! ```text
//!   sectors of the band     who speaks                      wrong, if it differs
//!   all columns were read   P and Q, together               the column that they name, or unknown
//!   the same, P alone       P                               unknown: any of them
//!   one had to be made      the parity that did not make it unknown: any of them
//!   two had to be made      nobody                          (they are written again as read repair does)
//! ```
//!
//! What had to be made of the others is written again unless somebody says that the others do not agree: what could not be read, and
//! what bad-block logs name, which is good again by that. What is wrong is
//! written again if that was asked for. What is unknown is left.
//!
//! A [`Task::Retry`] believes what bad-block logs name where somebody says that it agrees, and has it written again as it is. What was
//! made of the others it believes only where the other parity says so: one of them is named as well.
//!
//! - Nothing that is unknown is written [check: two_rotten_chunks_are_never_guessed_at].

use braid_geometry::{RowMap, Slot, StripeGeometry};
use braid_hooks::{Bug, Mark, planted, reached, spoiled};
use braid_parity::Column as Named;

use super::super::plan::{Recovery, Way};
use super::check::{Check, Rot};
use super::read::Read;
use crate::array::ArrayView;
use crate::effect::Report;
use crate::rot::Located;
use crate::sectors::{Extent, SectorSet};
use crate::work::{Candidates, Difference, Fate, Found, RotKind, Task, Work};

/// What may be made of what parity says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parity {
    /// It is known to have agreed with the data.
    pub(super) agrees: bool,
    /// Members may be written.
    pub(super) may_mend: bool,
}

impl Read {
    /// All that can be read is in the blocks: what is lacking is made by this plan.
    pub(super) fn note_erased(&mut self, way: &Way) {
        let lacks = self.columns.iter().map(|column| self.window.without(column.valid));
        let erased = lacks.fold(SectorSet::EMPTY, SectorSet::union);
        let uses =
            |is_used: fn(&Recovery) -> bool| way.solutions.iter().any(|one| is_used(&one.recovery));
        let speaks = |slot: Slot, is_used: bool| {
            !is_used && self.columns[usize::from(slot.0)].valid.contains(erased)
        };
        let p_speaks = speaks(self.map.p_slot(), uses(Recovery::uses_p));
        let q_speaks = self.map.q_slot().is_some_and(|slot| speaks(slot, uses(Recovery::uses_q)));
        if !erased.is_empty() {
            reached(Mark::CheckSolves);
        }
        let check = &mut self.work.check;
        (check.erased, check.p_speaks, check.q_speaks) = (erased, p_speaks, q_speaks);
    }

    /// The sectors of which P and Q name a column.
    pub(super) fn to_locate(&self) -> SectorSet {
        let erased = self.work.check.erased;
        let erased = spoiled(Bug::LocatesWhatWasSolved, erased, SectorSet::EMPTY);
        self.window.without(erased)
    }

    /// A comparison has ended: `found` is where parity differs.
    pub(super) fn note_checked(
        &mut self,
        work: &Work,
        (view, parity): (&ArrayView, Parity),
        (found, located): (Difference, Option<&Located>),
    ) {
        let Parity { agrees, may_mend } = parity;
        let Check { erased, p_speaks, q_speaks, is_again, .. } = self.work.check;
        let heard = |set: SectorSet, speaks: bool| {
            let of_erased = if speaks { set.common(erased) } else { SectorSet::EMPTY };
            set.without(erased).union(of_erased)
        };
        // Beyond the window nothing was read.
        let [found_p, found_q] = [found.p, found.q].map(|set| set.common(self.window));
        let found = Difference { p: heard(found_p, p_speaks), q: heard(found_q, q_speaks) };
        let differs = found.p.union(found.q);
        if is_again {
            let rot = self.work.check.rot.iter_mut();
            let written = rot.filter(|rot| rot.fate == Fate::Unverified);
            let right = written.filter(|rot| !rot.set.meets(differs));
            return right.for_each(|rot| rot.fate = Fate::Repaired);
        }
        self.work.found = found;
        if !differs.is_empty() {
            reached(Mark::ParityDiffers);
        }
        let doubted = differs.common(erased);
        let mut unknown = differs.without(erased);
        if self.map.q_slot().is_some() && agrees {
            for (column, set) in located.map_or(&[][..], |located| &located.columns) {
                unknown = unknown.without(*set);
                let slot = slot_of(&self.map, *column);
                self.work.check.rot.push(Rot { slot, set: *set, fate: Fate::Left });
                reached(Mark::RotLocated);
            }
        }
        let all = || (0..self.columns.len()).map(|slot| Slot(u16::try_from(slot).expect("a slot")));
        if !unknown.is_empty() {
            reached(Mark::RotUnknown);
            let suspects = located.filter(|located| agrees && !located.suspects.is_empty());
            let candidates = match suspects {
                None => Candidates::new(all()),
                Some(located) => {
                    let named = located.suspects.iter();
                    Candidates::new(named.map(|column| slot_of(&self.map, column)))
                }
            };
            self.work.check.unknown.push((unknown, candidates));
        }
        if !doubted.is_empty() {
            reached(Mark::RotUnknown);
            self.work.check.unknown.push((doubted, Candidates::new(all())));
        }
        let kept = doubted;
        let kept = spoiled(Bug::SolvedUnchecked, kept, SectorSet::EMPTY);
        let repairs = work.task == Task::Repair;
        let repairs = spoiled(Bug::CheckRepairs, repairs, true);
        let retries = work.task == Task::Retry;
        let is_unspoken = retries && !p_speaks && !q_speaks;
        let vouched = self.window.without(if is_unspoken { erased } else { SectorSet::EMPTY });
        let tried = |slot: Slot| {
            let named = if retries { self.named(view, slot) } else { SectorSet::EMPTY };
            named.without(differs)
        };
        let targets = all().filter(|slot| view.member(*slot).is_some()).map(|slot| {
            let unread = self.columns[usize::from(slot.0)].unreadable.union(self.named(view, slot));
            let unread = unread.common(erased).without(kept).union(tried(slot)).common(vouched);
            let wrong = if repairs { self.work.check.wrong(slot) } else { SectorSet::EMPTY };
            (slot, unread.union(wrong))
        });
        let targets = targets.filter(|(_, set)| !set.is_empty() && agrees && may_mend).collect();
        self.work.targets = targets;
        if planted(Bug::RepairWritesParity) {
            self.aim_at_parity();
        }
    }

    /// What of a column its member's bad-block log names.
    fn named(&self, view: &ArrayView, slot: Slot) -> SectorSet {
        let bad = view.member(slot).map(|member| &member.bad_blocks);
        let Some(bad) = bad.filter(|bad| !bad.is_empty()) else { return SectorSet::EMPTY };
        if planted(Bug::NamedIsLeft) {
            return SectorSet::EMPTY;
        }
        let band = self.band.as_ref().expect("a read has a band");
        let sectors = self.window.extents().flat_map(|extent| extent.offset..extent.end());
        let alone = sectors.map(|offset| Extent { offset, sectors: 1 });
        let named = alone.filter(|extent| bad.touches(band.range(*extent).0, 1));
        named.fold(SectorSet::EMPTY, |set, extent| set.union(extent.set()))
    }

    /// The mistake that a plain resync would be.
    fn aim_at_parity(&mut self) {
        let (p, q) = (self.map.p_slot(), self.map.q_slot());
        let is_parity = |slot: Slot| slot == p || Some(slot) == q;
        let sets = self.work.targets.iter().filter(|(slot, _)| !is_parity(*slot));
        let set = sets.fold(SectorSet::EMPTY, |set, (_, one)| set.union(*one));
        if !set.is_empty() {
            self.work.targets =
                [Some(p), q].into_iter().flatten().map(|slot| (slot, set)).collect();
        }
    }

    /// Says what has been found: run by run.
    pub(super) fn found(
        &self,
        work: &Work,
        (view, geometry): (&ArrayView, &StripeGeometry),
        mut report: impl FnMut(Report),
    ) {
        let band = self.band.as_ref().expect("a read has a band");
        let id = work.id;
        for rot in &self.work.check.rot {
            let Some(member) = view.member(rot.slot).map(|member| member.id) else { continue };
            for extent in rot.set.extents() {
                let (start, sectors) = band.range(extent);
                let index = (0..self.map.data_slots()).find(|i| self.map.data_slot(*i) == rot.slot);
                let kind = match index {
                    Some(index) => RotKind::Data(band.logical(geometry, index, extent.offset)),
                    None if rot.slot == self.map.p_slot() => RotKind::P,
                    None => RotKind::Q,
                };
                let fate = rot.fate;
                let fate = spoiled(Bug::RepairUnverified, fate, Fate::Repaired);
                let fate = if work.task == Task::Repair { fate } else { rot.fate };
                let found = Found::Rot { member, slot: rot.slot, start, sectors, kind, fate };
                report(Report::Found { id, found });
            }
        }
        for (set, candidates) in &self.work.check.unknown {
            for extent in set.extents() {
                let (start, sectors) = band.range(extent);
                let candidates = *candidates;
                let found = Found::Ambiguous { start, sectors, array: None, candidates };
                report(Report::Found { id, found });
            }
        }
    }
}

/// The slot of a column that residues name.
fn slot_of(map: &RowMap, column: Named) -> Slot {
    match column {
        Named::P => map.p_slot(),
        Named::Q => map.q_slot().expect("residues name Q only where there is one"),
        Named::Data(exponent) => {
            let mut indices = 0..map.data_slots();
            let index = indices.find(|index| map.exponent(*index) == exponent);
            map.data_slot(index.expect("only columns of the stripe are named"))
        }
    }
}
