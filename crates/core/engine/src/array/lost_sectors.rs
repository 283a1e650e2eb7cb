//! Sectors of a reshape that no member could give: where they lie in the new shape, and the entries
//! of bad-block logs that make every read of them fail.
//!
//! ```text
//!   one row of the new shape, RAID-5      │ data │ LOST │ data │  P   │
//!   bad-block logs                            .     x      .      x
//! ```
//!
//! The logs name the lost sector on its own member, and the parity of its row. If no log named the
//! parity, md and braid would compute the lost sector, and return the content in its place. The
//! other sectors of the row stay readable, and have no redundancy until a client writes the lost
//! one. A sector of the row whose member is missing is lost as well: only that parity had it.
//!
//! With copies, each member's log names that member's copy, because an unnamed copy would be read.
//!
//! No sector counts as lost where parity is in doubt: the operator may accept the risk and read it.
//!
//! Invariants
//! - logs name all lost sectors of a window or none `[check: a_log_without_room_ends_the_reshape]`;
//! - a lost sector reads as an error, and all other sectors read as before
//!   `[check: sectors_that_no_member_gives_cost_themselves]`.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_geometry::{Geometry, LogicalSector, MemberSector, Slot, StripeGeometry};
use braid_sim_hooks::{Bug, planted, spoiled};

use super::effect::Notice;
use super::machine::Array;
use super::view::resync_range;
use crate::Instant;
use crate::ids::MemberId;
use crate::ranges::{BadBlocks, BadRange};
use crate::request::Fault;
use crate::work::Finding;

/// The entries of bad-block logs for some lost sectors.
struct Naming {
    entries: Vec<(MemberId, BadBlocks)>,
    /// Further lost sectors of the same rows, whose members are missing.
    also_lost: Vec<Range<u64>>,
}

impl Array {
    /// Whether these sectors of a window can be recorded as lost. The driver asks before it makes a
    /// safe copy without them, because the array always moves a valid copy.
    #[must_use]
    pub fn may_lose(&self, lost: &[Range<u64>]) -> bool {
        self.naming(lost, false).is_some()
    }

    /// Takes the result of [`super::ArrayEffect::Keep`].
    ///
    /// # Panics
    /// If no copy was asked for.
    pub fn handle_kept(&mut self, now: Instant, result: Result<(), Fault>) {
        self.reshaper.as_mut().expect("a copy has a reshape").kept(result);
        self.step(now);
    }

    /// Takes the result of the piece that begins at `start` ([`super::ArrayEffect::Move`]), with
    /// the sectors of it that no member could give.
    ///
    /// # Panics
    /// If no such piece was asked for.
    pub fn handle_moved(
        &mut self,
        now: Instant,
        start: u64,
        result: Result<Vec<Range<u64>>, Fault>,
    ) {
        self.reshaper.as_mut().expect("a piece has a reshape").moved(start, result);
        self.step(now);
    }

    /// Makes bad-block logs name the lost sectors of the window, all or none.
    pub(super) fn name_lost(&mut self) {
        let reshaper = self.reshaper.as_mut().expect("its table decided");
        // A window in place was checked before its copy; its old content is overwritten by now.
        let (lost, is_checked) = (reshaper.name(), reshaper.is_in_place());
        let naming = self.naming(&lost, is_checked);
        let Some(Naming { entries, also_lost }) = naming else {
            return self.reshaper.as_mut().expect("its table decided").cannot_name();
        };
        for (member, bad) in entries {
            let has_room = self.bad_logs.mark_all(member, &bad);
            assert!(has_room, "the logs were asked before");
            self.tell_bad_blocks(member);
        }
        self.reshaper.as_mut().expect("its table decided").also_lost(also_lost);
    }

    /// Reports sectors as lost. Superblocks record the reshape's position behind them.
    pub(super) fn report_lost(&mut self, lost: Vec<Range<u64>>) {
        for Range { start, end } in lost {
            let found = Finding::Lost { array: LogicalSector(start), sectors: end - start };
            self.out.notice(Notice::Found(found));
        }
    }

    /// The entries for these sectors; `None` if a log has no room or is not kept, or if parity in
    /// doubt may still have the sectors, unless that `is_checked`. A RAID-0 that grows has none: md
    /// reads no log of a RAID-0, and would return the content in the sectors' place.
    fn naming(&self, lost: &[Range<u64>], is_checked: bool) -> Option<Naming> {
        if self.is_striping() {
            return None;
        }
        let sides = self.setup.sides.as_ref()?;
        let is_doubtful = |range: &Range<u64>| self.is_in_doubt(&sides.before, range);
        if !is_checked && lost.iter().any(is_doubtful) {
            return None;
        }
        let mut ranges: BTreeMap<MemberId, Vec<BadRange>> = BTreeMap::new();
        let mut also_lost = Vec::new();
        let member_of =
            |slot: Slot| self.roster.slots[usize::from(slot.0)].as_ref().map(|member| member.id);
        for run in lost.iter().flat_map(|range| in_chunks(&sides.after, range)) {
            let sectors = run.end - run.start;
            let mut named = match &*sides.after {
                Geometry::Mirror(mirror) => {
                    let copies = 0..mirror.copies();
                    copies.map(|copy| mirror.copy(LogicalSector(run.start), copy)).collect()
                }
                Geometry::Stripe(after) => {
                    let is_missing = |slot| member_of(slot).is_none();
                    also_lost.extend(missing_of_row(after, &run, is_missing));
                    sector_and_parity(after, run.start)
                }
                Geometry::Direct(_) => return None,
            };
            if planted(Bug::LostParityUnnamed) {
                named.truncate(1);
            }
            for (slot, start) in named {
                let Some(member) = member_of(slot) else { continue };
                let is_after = true;
                let is_after = spoiled(Bug::LostMisplaced, is_after, false);
                let start = MemberSector(start.0 + sides.start_of(member, is_after));
                ranges.entry(member).or_default().push(BadRange { start, sectors });
            }
        }
        let entries: Vec<(MemberId, BadBlocks)> =
            ranges.into_iter().map(|(member, ranges)| (member, BadBlocks::new(ranges))).collect();
        let has_room = entries.iter().all(|(member, bad)| self.bad_logs.has_room(*member, bad));
        has_room.then_some(Naming { entries, also_lost })
    }

    /// Whether parity may disagree with the data in these sectors of a shape. Copies in doubt do
    /// not matter: they give no sector back that no copy has.
    fn is_in_doubt(&self, geometry: &Geometry, range: &Range<u64>) -> bool {
        if !matches!(geometry, Geometry::Stripe(_)) {
            return false;
        }
        let sectors = u32::try_from(range.end - range.start).expect("a part of a window");
        let rows = resync_range(geometry, LogicalSector(range.start), sectors);
        let beyond = rows.start.max(self.condition.resync_offset)..rows.end;
        let doubt = self.consistency.doubt();
        let is_in_doubt = doubt.is_none_or(|doubt| doubt.has_any(doubt.of(&beyond)));
        let is_in_doubt = spoiled(Bug::LostInDoubt, is_in_doubt, false);
        !beyond.is_empty() && is_in_doubt
    }
}

/// The slot and member sector of an array sector, and those of its row's parity.
fn sector_and_parity(geometry: &StripeGeometry, sector: u64) -> Vec<(Slot, MemberSector)> {
    let address = geometry.locate(LogicalSector(sector));
    let map = geometry.row_map(address.row);
    let start = geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
    let slots = [map.data_slot(address.data_index), map.p_slot()].into_iter().chain(map.q_slot());
    slots.map(|slot| (slot, MemberSector(start))).collect()
}

/// The sectors beside a run of one chunk, in the same row, whose members are missing.
fn missing_of_row(
    geometry: &StripeGeometry,
    run: &Range<u64>,
    is_missing: impl Fn(Slot) -> bool,
) -> Vec<Range<u64>> {
    let address = geometry.locate(LogicalSector(run.start));
    let map = geometry.row_map(address.row);
    let others = (0..map.data_slots()).filter(|index| *index != address.data_index);
    let missing = others.filter(|index| is_missing(map.data_slot(*index)));
    let sectors = missing.map(|index| {
        let first = geometry.logical(address.row, index, address.offset_sectors).0;
        first..first + (run.end - run.start)
    });
    sectors.collect()
}

/// Splits a range at the borders of chunks.
fn in_chunks(geometry: &Geometry, range: &Range<u64>) -> Vec<Range<u64>> {
    let chunk = u64::from(geometry.chunk_sectors());
    let chunks = range.start / chunk..range.end.div_ceil(chunk);
    chunks.map(|at| (at * chunk).max(range.start)..((at + 1) * chunk).min(range.end)).collect()
}
