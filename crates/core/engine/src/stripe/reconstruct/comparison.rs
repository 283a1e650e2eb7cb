//! A comparison: it finds wrong columns, rewrites some of them, and reports its findings.
//!
//! A comparison is a [`Kind`]; its [`Read`] holds a [`Check`]. [`crate::rot`] has the rule that
//! turns verdicts into columns. This file adds sectors that could not be read.
//!
//! ```text
//!   sectors of the band      witness                    wrong, if it differs
//!   all columns were read    P and Q, together          the column that they name, or unknown
//!   the same, P alone        P                          unknown: any of them
//!   one was computed         the parity not used for it unknown: any of them
//!   two were computed        no parity                  (they are rewritten as read repair does)
//! ```
//!
//! Sectors computed from the other columns are rewritten unless a witness disagrees. These are
//! unreadable sectors, and sectors that bad-block logs name; the write makes them good again. Wrong
//! columns are rewritten if the task asks for it. Sectors whose wrong column is unknown are left
//! alone.
//!
//! A [`Task::Retry`] believes sectors that bad-block logs name if a witness agrees with them, and
//! rewrites them as they are. It believes computed sectors only if the other parity agrees, because
//! one of their sources is named as well. Parity also fits the content of a sector that a reshape
//! lost; such a sector stays named [check: sectors_that_no_member_gives_cost_themselves].
//!
//! - Unknown sectors are never written [check: two_rotten_chunks_are_never_guessed_at].

use braid_geometry::{RowMap, Slot, StripeGeometry};
use braid_parity::Column as Named;
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::super::plan::{Planner, Recipe, Recovery, plan_rest, plan_whole};
use super::super::solve::by_exponent;
use super::check::{Check, Rot};
use super::decide::{Phase, RemainingWork};
use super::kind::{End, Kind, KindTraits, LOST, Steps, difference, lost};
use super::machine::{Reconstruct, ReconstructContext, sits_out};
use super::read::{Column, Origin, Read, WorkState, holds};
use crate::array::ArrayView;
use crate::computation::{Computation, Step};
use crate::effect::Report;
use crate::rot::ColumnVerdict;
use crate::sectors::{Extent, SectorSet};
use crate::work::{Candidates, Class, Difference, Fate, Finding, Outcome, RotKind, Task, Work};

/// The kind of read for [`Task::Compare`], [`Task::Repair`] and [`Task::Retry`].
pub(super) struct Comparison(pub(super) Work);

impl Kind for Comparison {
    fn traits(&self) -> KindTraits {
        KindTraits {
            compares: true,
            repairs: self.0.task == Task::Repair,
            reads_in_parts: true,
            tries_named: self.0.task == Task::Retry,
            ..KindTraits::default()
        }
    }

    fn plan(&self, read: &Read, context: &ReconstructContext<'_>, planner: &mut Planner) {
        let (view, band) = (&context.common.view, read.band());
        let is_whole = |slot: Slot| view.member(slot).is_some_and(|member| holds(member, band));
        read.plan_by(context, planner, |facts| {
            let can_solve = !read.work.check.is_again && read.slots().all(is_whole);
            let rest = || can_solve.then(|| plan_rest(facts)).flatten();
            plan_whole(facts, true).or_else(rest)
        });
    }

    /// Solves for unreadable columns, then compares. The residues of P and Q name the wrong column.
    fn compute(&self, steps: &mut Steps<'_>, _: &mut ReconstructContext<'_>, recipe: &Recipe) {
        steps.read.note_erased(recipe);
        steps.solve(recipe);
        let (map, blocks) = (steps.read.map, steps.blocks);
        let (p, q) = (map.p_slot(), map.q_slot());
        if self.0.task == Task::Retry {
            let (sectors, into) = (steps.unit_sectors, LOST);
            let units = (0..map.data_slots()).map(|index| blocks.at(map.data_slot(index), 0));
            let finds = units.map(|unit| Step::FindLost { unit, sectors, into });
            steps.computation.steps.extend(finds);
        }
        // Parity that could not be read is no witness.
        steps.compare((Some(p), q), Extent { offset: 0, sectors: steps.unit_sectors });
        if let Some(q) = q {
            let at = |slot: Slot| blocks.at(slot, 0);
            let columns = |index| Some(at(map.data_slot(index)));
            let columns = by_exponent(steps.computation, &map, columns);
            let among = steps.read.to_locate();
            steps.computation.steps.push(Step::Locate { p: at(p), q: at(q), columns, among });
        }
    }

    fn note_computed(&self, read: &mut Read, context: &ReconstructContext<'_>, done: &Computation) {
        // The computation of a repair has no findings: its comparison was noted before.
        if !read.work.is_remade || read.work.check.is_again {
            let found = (difference(done), done.located(), lost(done));
            read.note_checked(&self.0, context, found);
        }
    }

    fn rest(&self, read: &Read, is_behind: bool) -> RemainingWork {
        let WorkState { targets, check, is_remade, .. } = &read.work;
        if read.phase == Phase::Write {
            let is_looked_at = check.is_again;
            let is_looked_at = spoiled(Bug::RepairUnverified, is_looked_at, true);
            let is_open = check.has_unverified() && !is_looked_at;
            return if is_open { RemainingWork::Look } else { RemainingWork::Nothing };
        }
        match (targets.is_empty(), is_remade, is_behind) {
            (true, ..) => RemainingWork::Nothing,
            (false, true, _) => RemainingWork::Writes,
            (false, false, true) => RemainingWork::Behind,
            (false, false, false) => RemainingWork::Columns,
        }
    }

    /// Computes wrong and unreadable columns again from the other columns. From here on the read
    /// keeps the band until the read ends: its requests go in their turn, and no batch of the band
    /// begins.
    fn mend(&self, steps: &mut Steps<'_>, context: &mut ReconstructContext<'_>) {
        reached(Mark::ColumnsMended);
        let Steps { read, blocks, computation, .. } = steps;
        let work = Work { class: Class::BestEffort, ..self.0 };
        (read.origin, read.repairs) = (Some(Origin::Background(work)), true);
        let stripe = context.pool.peek(read.band().key);
        if let Some(stripe) = stripe {
            context.pool.stripe_mut(stripe).forget_columns();
        }
        // P's block holds the residue of P, which is the error of a wrong data column.
        for index in 0..read.map.data_slots() {
            let slot = read.map.data_slot(index);
            let wrong = read.work.check.wrong(slot);
            let wrong = spoiled(Bug::RepairWritesParity, wrong, SectorSet::EMPTY);
            for Extent { offset, sectors } in wrong.extents() {
                let source = blocks.at(read.map.p_slot(), offset);
                computation.xor_into(blocks.at(slot, offset), std::iter::once(source), sectors);
            }
        }
        steps.parity(Read::is_target);
    }

    fn end(
        &self,
        reads: &mut Reconstruct,
        context: &mut ReconstructContext<'_>,
        place: u32,
        end: End,
    ) {
        // A repair without a successful second read is reported as unverified.
        let is_again = reads.reads[place as usize].work.check.is_again;
        match end {
            End::Refused if !is_again => {
                reached(Mark::WorkRefused);
                context.common.work_done(self.0.id, Outcome::Unreadable);
            }
            End::Abandoned if !is_again => sits_out(context, &self.0),
            End::Answered | End::Refused | End::Abandoned => reads.tell(context, place, &self.0),
        }
    }
}

impl Reconstruct {
    /// Reads the whole band again, including the repaired sectors.
    pub(super) fn read_again(&mut self, place: u32) {
        let read = &mut self.reads[place as usize];
        read.columns.iter_mut().for_each(|column| *column = Column::default());
        read.work.check.begin_again();
        read.phase = Phase::Fill;
    }

    /// Reports the findings of a comparison, and its end.
    fn tell(&mut self, context: &mut ReconstructContext<'_>, place: u32, work: &Work) {
        let read = &self.reads[place as usize];
        let view = std::sync::Arc::clone(&context.common.view);
        read.found(work, (&view, &self.geometry), |report| context.common.report(report));
        let WorkState { found, written, is_missed, ref check, .. } = read.work;
        let differing = found.p.sectors() + found.q.sectors();
        let outcome = match work.task {
            Task::Repair if is_missed => Outcome::Unwritten,
            Task::Compare if written == 0 && check.erased.is_empty() => Outcome::Compared(found),
            _ => Outcome::Checked { differing, written },
        };
        context.common.work_done(work.id, outcome);
    }
}

impl Read {
    /// Called when all readable sectors are in the blocks: notes the sectors that the plan solves
    /// for.
    fn note_erased(&mut self, recipe: &Recipe) {
        let lacks = self.columns.iter().map(|column| self.window.without(column.valid));
        let erased = lacks.fold(SectorSet::EMPTY, SectorSet::union);
        let uses = |is_used: fn(&Recovery) -> bool| {
            recipe.solutions.iter().any(|one| is_used(&one.recovery))
        };
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

    /// The sectors in which P and Q may name a column.
    fn to_locate(&self) -> SectorSet {
        self.window.without(self.work.check.erased)
    }

    /// Takes the result of a comparison: `found` has the sectors in which parity differs.
    fn note_checked(
        &mut self,
        work: &Work,
        context: &ReconstructContext<'_>,
        (found, located, lost): (Difference, Option<&ColumnVerdict>, SectorSet),
    ) {
        let view = &*context.common.view;
        let agrees = context.damage.parity_agrees(view, self.band());
        let may_mend = context.common.may_repair();
        let Check { erased, p_speaks, q_speaks, is_again, .. } = self.work.check;
        let heard = |set: SectorSet, speaks: bool| {
            let of_erased = if speaks { set.common(erased) } else { SectorSet::EMPTY };
            set.without(erased).union(of_erased)
        };
        // Sectors beyond the window were not read.
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
        let repairs = work.task == Task::Repair;
        let repairs = spoiled(Bug::CheckRepairs, repairs, true);
        let retries = work.task == Task::Retry;
        let is_unspoken = retries && !p_speaks && !q_speaks;
        let vouched = self.window.without(if is_unspoken { erased } else { SectorSet::EMPTY });
        // The text in place of lost data fits all parity, and is never believed.
        let vouched = vouched.without(lost);
        let tried = |slot: Slot| {
            let named = if retries { self.named(view, slot) } else { SectorSet::EMPTY };
            named.without(differs)
        };
        let targets = all().filter(|slot| view.member(*slot).is_some()).map(|slot| {
            let unread = self.columns[usize::from(slot.0)].unreadable.union(self.named(view, slot));
            let unread = unread.common(erased).without(doubted).union(tried(slot)).common(vouched);
            let wrong = if repairs { self.work.check.wrong(slot) } else { SectorSet::EMPTY };
            (slot, unread.union(wrong))
        });
        let targets = targets.filter(|(_, set)| !set.is_empty() && agrees && may_mend).collect();
        self.work.targets = targets;
        if planted(Bug::RepairWritesParity) {
            self.aim_at_parity();
        }
    }

    /// The sectors of a column that its member's bad-block log names.
    fn named(&self, view: &ArrayView, slot: Slot) -> SectorSet {
        let bad = view.member(slot).map(|member| &member.bad_blocks);
        let Some(bad) = bad.filter(|bad| !bad.is_empty()) else { return SectorSet::EMPTY };
        let band = self.band.as_ref().expect("a read has a band");
        let sectors = self.window.extents().flat_map(|extent| extent.offset..extent.end());
        let alone = sectors.map(|offset| Extent { offset, sectors: 1 });
        let named = alone.filter(|extent| bad.touches(band.range(*extent).0, 1));
        named.fold(SectorSet::EMPTY, |set, extent| set.union(extent.set()))
    }

    /// Models a wrong repair, as a plain resync would do it: parity is made to agree with any data.
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

    /// Reports the findings, run by run.
    fn found(
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
                let found = Finding::Rot { member, slot: rot.slot, start, sectors, kind, fate };
                report(Report::Found { id, found });
            }
        }
        for (set, candidates) in &self.work.check.unknown {
            for extent in set.extents() {
                let (start, sectors) = band.range(extent);
                let candidates = *candidates;
                let found = Finding::Ambiguous { start, sectors, array: None, candidates };
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
