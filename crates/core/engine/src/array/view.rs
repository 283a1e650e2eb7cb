//! The control side's message to the shards: an immutable picture of the array, with an epoch.

use std::ops::Range;
use std::sync::Arc;

use braid_geometry::{Geometry, LogicalSector, MemberSector, Slot};
use braid_ondisk::Bits;

use super::setup::AcceptedRisk;
use crate::ids::{BitmapId, MemberId};
use crate::ranges::{BadBlocks, MemberRanges};

/// Whether writes may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The superblocks say "clean" or are being changed: a shard must ask before it writes
    /// ([`crate::effect::Report::WantWrite`]).
    Closed,
    /// Writes may start: the superblocks say "active".
    Open,
    /// No write may start: the array was opened read-only.
    ReadOnly,
    /// No write may start again: more members were lost than the level tolerates.
    Broken,
}

/// A member that occupies a slot and takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member's name.
    pub id: MemberId,
    /// The member's replacement: it takes every write to the member, and is not read.
    pub replacement: Option<MemberId>,
    /// The replacement's ranges whose data could not be computed.
    pub replacement_bad_blocks: Arc<BadBlocks>,
    /// Sectors from the start of the member's data area that are up to date; `u64::MAX` for all.
    pub recovered_sectors: u64,
    /// Up-to-date ranges beyond `recovered_sectors`, recovered early for clients' reads. No
    /// superblock records them.
    pub ahead: Arc<MemberRanges>,
    /// The member's bad ranges.
    pub bad_blocks: Arc<BadBlocks>,
    /// Whether the member is read only if no other copy exists.
    pub is_write_mostly: bool,
}

impl MemberView {
    /// A member that is up to date below `recovered_sectors`, without bad ranges.
    #[must_use]
    pub fn new(id: MemberId, recovered_sectors: u64) -> Self {
        Self {
            id,
            replacement: None,
            replacement_bad_blocks: Arc::default(),
            recovered_sectors,
            ahead: Arc::default(),
            bad_blocks: Arc::default(),
            is_write_mostly: false,
        }
    }

    /// Whether all of a range has been recovered. The range may still contain bad blocks.
    #[must_use]
    pub fn holds(&self, start: MemberSector, sectors: u64) -> bool {
        self.lacks_from(start, sectors).is_none()
    }

    /// The first sector of a range that has not been recovered.
    #[must_use]
    pub fn lacks_from(&self, start: MemberSector, sectors: u64) -> Option<MemberSector> {
        let end = start.0 + sectors;
        let mut at = start.0.max(self.recovered_sectors.min(end));
        while at < end && self.ahead.contains(MemberSector(at), 1) {
            at += self.ahead.alike(MemberSector(at), end - at);
        }
        (at < end).then_some(MemberSector(at))
    }
}

/// The write-intent bitmap as shards see it: it says where writes may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentView {
    /// The bitmap's name, which reports about bits contain.
    pub bitmap: BitmapId,
    /// Bits that are set durably on every member: writes may begin in their sectors.
    pub open: Arc<Bits>,
    /// Grows when the array takes bits back. A shard reports [`crate::effect::Report::Drained`]
    /// when its writes from before the revocation have ended.
    pub revocation: u64,
    /// Whether the bitmap is lockless: its marks record where no client has written, so the array
    /// needs clients' trims.
    pub is_lockless: bool,
    /// For a lockless bitmap: the bits of sectors in which redundancy agrees only where a client
    /// has written. A client's data can be reconstructed in these sectors; parity is never modified
    /// by rmw. Other sectors promise nothing.
    pub unsynced: Option<Arc<Bits>>,
}

/// The state of the array at one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayView {
    /// Grows with each view.
    pub epoch: u64,
    /// The geometry. The machines of levels keep parts of it from one view to the next.
    pub geometry: Arc<Geometry>,
    /// Whether writes may start.
    pub gate: Gate,
    /// The member of each slot; `None` if the member is missing or failed.
    pub slots: Vec<Option<MemberView>>,
    /// Redundancy agrees with the data below this offset, in md's unit: member sectors for levels
    /// 1, 4, 5, 6, array sectors for level 10; `u64::MAX` for everywhere.
    pub resync_offset: u64,
    /// The risk that the operator accepted where redundancy may not agree.
    pub accepted_risk: Option<Arc<AcceptedRisk>>,
    /// Beyond `resync_offset`, only sectors of these bits are in doubt; `None` if all sectors are.
    pub doubt: Option<Arc<Bits>>,
    /// The write-intent bitmap, if the array has one.
    pub intent: Option<IntentView>,
    /// Whether members keep partial parity logs. No band is then written before its entries are
    /// durable in the log of the member with its parity ([`crate::effect::Report::WantLog`]).
    pub keeps_parity_logs: bool,
    /// Whether the array has a write journal. No band is then written before its blocks are durable
    /// in the journal ([`crate::effect::Report::WantJournal`]).
    pub keeps_journal: bool,
    /// Whether every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
    /// The view for the shards of a reshape's new shape, at the same epoch. The enclosing view is
    /// for the shards of the old shape.
    pub after: Option<Arc<ArrayView>>,
    /// Whether shards leave members' unreadable sectors as they are, and write only clients' data.
    pub mends_nothing: bool,
}

impl ArrayView {
    /// The first view of a consistent array with all its members, named after their slots, and
    /// without a bitmap or a log. Writes may start.
    #[must_use]
    pub fn consistent(geometry: Geometry) -> Self {
        let member = |slot| Some(MemberView::new(MemberId(slot), u64::MAX));
        Self {
            epoch: 1,
            gate: Gate::Open,
            slots: (0..geometry.slots()).map(member).collect(),
            geometry: Arc::new(geometry),
            resync_offset: u64::MAX,
            accepted_risk: None,
            doubt: None,
            intent: None,
            keeps_parity_logs: false,
            keeps_journal: false,
            zero_is_fast: false,
            after: None,
            mends_nothing: false,
        }
    }

    /// The view of all members: during a reshape the view of the shape with more slots.
    #[must_use]
    pub fn of_all_members(&self) -> &Self {
        match &self.after {
            Some(after) if after.slots.len() > self.slots.len() => after,
            _ => self,
        }
    }

    /// Whether redundancy agrees with the data in these sectors, in the resync offset's unit.
    #[must_use]
    pub fn agrees(&self, sectors: Range<u64>) -> bool {
        self.is_synced(&sectors) && self.may_solve(sectors)
    }

    /// Whether redundancy was made to agree in all of these sectors, also where no client has
    /// written. Interrupted writes do not matter here.
    #[must_use]
    pub fn is_synced(&self, sectors: &Range<u64>) -> bool {
        let unsynced = self.intent.as_ref().and_then(|intent| intent.unsynced.as_ref());
        unsynced.is_none_or(|unsynced| !unsynced.has_any(unsynced.of(sectors)))
    }

    /// Whether redundancy agrees with clients' data in these sectors, so that lost data can be
    /// computed from it.
    #[must_use]
    pub fn may_solve(&self, sectors: Range<u64>) -> bool {
        let end = self.accepted_risk.as_ref().map_or(u64::MAX, |risk| risk.until_sectors);
        let beyond = self.resync_offset.max(sectors.start)..sectors.end.min(end);
        let is_out_of_doubt = |doubt: &Arc<Bits>| !doubt.has_any(doubt.of(&beyond));
        beyond.is_empty() || self.doubt.as_ref().is_some_and(is_out_of_doubt)
    }

    /// Whether the operator accepted that the data of the member in `slot` is computed from parity
    /// in doubt.
    #[must_use]
    pub fn accepts_risk_of(&self, slot: Slot) -> bool {
        self.accepted_risk.as_ref().is_some_and(|risk| risk.slots.contains(&slot))
    }

    /// The bits that cover these sectors of the array; `None` without a bitmap.
    #[must_use]
    pub fn bits_of(&self, start: LogicalSector, sectors: u32) -> Option<Range<u64>> {
        let intent = self.intent.as_ref()?;
        Some(intent.open.of(&resync_range(&self.geometry, start, sectors)))
    }

    /// The member in `slot`, if it takes writes.
    #[must_use]
    pub fn member(&self, slot: Slot) -> Option<&MemberView> {
        self.slots.get(usize::from(slot.0)).and_then(Option::as_ref)
    }

    /// Whether `member` is in `slot`, or is the replacement in `slot`.
    #[must_use]
    pub fn has(&self, slot: Slot, member: MemberId) -> bool {
        self.member(slot).is_some_and(|one| one.id == member || one.replacement == Some(member))
    }

    /// Whether `member` is in a slot, as member or replacement.
    #[must_use]
    pub fn is_used(&self, member: MemberId) -> bool {
        let is_it = |one: &MemberView| one.id == member || one.replacement == Some(member);
        self.slots.iter().flatten().any(is_it)
    }

    /// Slots whose member is being replaced.
    pub fn slots_with_replacement(&self) -> impl Iterator<Item = Slot> {
        let slots = (0u16..).map(Slot).zip(&self.slots);
        let has_one = |member: &MemberView| member.replacement.is_some();
        slots.filter(move |(_, member)| member.as_ref().is_some_and(has_one)).map(|(slot, _)| slot)
    }

    /// The member in `slot`, if the whole range on it may be read.
    #[must_use]
    pub fn readable(&self, slot: Slot, start: MemberSector, sectors: u64) -> Option<MemberId> {
        let member = self.member(slot)?;
        let usable = member.holds(start, sectors) && !member.bad_blocks.touches(start, sectors);
        usable.then_some(member.id)
    }

    /// Bad ranges of a member, in `slot` or as its replacement.
    #[must_use]
    pub fn bad_blocks_of(&self, slot: Slot, id: MemberId) -> Option<&BadBlocks> {
        let member = self.member(slot)?;
        let is_replacement = member.replacement == Some(id);
        let own = (member.id == id).then_some(&*member.bad_blocks);
        own.or_else(|| is_replacement.then_some(&*member.replacement_bad_blocks))
    }

    /// The length of the longest run from `start` on that is wholly readable in `slot`, or wholly
    /// unreadable.
    #[must_use]
    pub fn readable_alike(&self, slot: Slot, start: MemberSector, sectors: u64) -> u64 {
        let Some(member) = self.member(slot) else { return sectors };
        let alike = match member.recovered_sectors.checked_sub(start.0) {
            None | Some(0) => member.ahead.alike(start, sectors),
            Some(left) => sectors.min(left),
        };
        if member.holds(start, 1) { member.bad_blocks.alike(start, alike) } else { alike }
    }
}

/// Converts sectors of the array to md's unit of resync: sectors of each member, or, on levels with
/// copies, sectors of the array. A range that spans several chunks becomes whole rows.
pub(super) fn resync_range(geometry: &Geometry, start: LogicalSector, sectors: u32) -> Range<u64> {
    let sectors = u64::from(sectors);
    let Geometry::Stripe(stripe) = geometry else { return start.0..start.0 + sectors };
    let first = stripe.locate(start);
    let row = stripe.row_start(first.row).0;
    let offset = u64::from(first.offset_sectors);
    let chunk = u64::from(stripe.chunk_sectors());
    if offset + sectors <= chunk {
        return row + offset..row + offset + sectors;
    }
    let last = stripe.locate(LogicalSector(start.0 + sectors - 1));
    row..stripe.row_start(last.row).0 + chunk
}

/// The array sectors that a resync range covers in part: exactly those for which [`resync_range`]
/// returns a part of the range.
pub(super) fn sectors_of_resync(geometry: &Geometry, range: &Range<u64>) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let Geometry::Stripe(stripe) = geometry else {
        let end = range.end.min(geometry.capacity_sectors());
        found.push(range.start.min(end)..end);
        return found;
    };
    let (start, end) = (range.start, range.end.min(stripe.used_sectors()));
    let chunk = u64::from(stripe.chunk_sectors());
    let columns = u64::from(stripe.data_slots());
    let mut at = start;
    while at < end {
        let (row, offset) = (at / chunk, at % chunk);
        if offset == 0 && end - at >= chunk {
            // Whole rows lie next to each other in the array, so they make one run.
            let rows = (end - at) / chunk;
            found.push(row * columns * chunk..(row + rows) * columns * chunk);
            at += rows * chunk;
            continue;
        }
        let sectors = (chunk - offset).min(end - at);
        found.extend((0..columns).map(|column| {
            let first = (row * columns + column) * chunk + offset;
            first..first + sectors
        }));
        at += sectors;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Level, Shape};

    #[test]
    fn each_sector_of_the_array_is_in_the_ranges_of_one_mark() {
        for (level, layout, slots) in [(Level::Raid5, 2, 4), (Level::Raid1, 0, 2)] {
            let member_sectors = vec![1024; usize::from(slots)];
            let shape = Shape { level, layout, chunk_sectors: 8, slots, member_sectors };
            let geometry = Geometry::new(&shape).expect("a geometry");
            for mark_sectors in [4, 8, 12, 64] {
                let marks = 1024_u64.div_ceil(mark_sectors);
                let mut seen = 0;
                for mark in 0..marks {
                    let range = mark * mark_sectors..((mark + 1) * mark_sectors).min(1024);
                    for sector in sectors_of_resync(&geometry, &range).into_iter().flatten() {
                        let counted = resync_range(&geometry, LogicalSector(sector), 1);
                        assert!(range.start <= counted.start && counted.end <= range.end);
                        seen += 1;
                    }
                }
                assert_eq!(seen, geometry.capacity_sectors());
            }
        }
    }

    #[test]
    fn what_is_written_is_counted_as_md_counts_what_is_resynced() {
        let geometry = |level, layout, chunk_sectors, slots| {
            let member_sectors = vec![1024; usize::from(slots)];
            Geometry::new(&Shape { level, layout, chunk_sectors, slots, member_sectors })
        };
        let raid5 = geometry(Level::Raid5, 2, 8, 4).expect("a geometry");
        let range = |start, sectors| resync_range(&raid5, LogicalSector(start), sectors);
        assert_eq!(range(0, 1), 0..1);
        assert_eq!(range(8, 8), 0..8, "the second data chunk of the first row");
        assert_eq!(range(26, 4), 10..14, "two rows on");
        assert_eq!(range(4, 8), 0..8, "two chunks of one row");
        assert_eq!(range(20, 8), 0..16, "and of two");
        let raid10 = geometry(Level::Raid10, 0x102, 8, 4).expect("a geometry");
        assert_eq!(resync_range(&raid10, LogicalSector(100), 20), 100..120);
    }
}
