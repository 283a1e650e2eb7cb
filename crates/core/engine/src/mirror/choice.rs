//! Chooses the copy to read.
//!
//! Where copies agree, the choice is a copy whose member's last read ended where this read starts,
//! else the copy of the least busy member. A *write-mostly* member is chosen only if no other copy
//! exists [check: a_write_mostly_member_is_read_only_where_no_other_copy_is]. Copies may differ
//! beyond the resync offset after a crash, and once writes are refused because one was left half
//! done. Where copies may differ, the choice is always the first readable copy, in md's order. So
//! two reads never return different data, and md's resync agrees with them.

use braid_geometry::{MemberSector, Slot};
use braid_sim_hooks::{Bug, Point, planted, sometimes, spoiled};

use super::machine::{Extent, Mirror, Work};
use crate::array::Gate;
use crate::context::Common;
use crate::effect::FaultKind;

impl Mirror {
    /// The best copy that this read may still try.
    pub(super) fn choose_copy(&self, common: &Common, work: &Work) -> Option<(Slot, MemberSector)> {
        let sectors = u64::from(work.extent.sectors);
        let agree = copies_agree(common, &work.extent);
        let mut copies = self.copies(&work.extent);
        copies.retain(|(slot, sector)| {
            let has_failed = work.failed.iter().any(|(failed, _)| failed == slot);
            !has_failed && common.view.readable(*slot, *sector, sectors).is_some()
        });
        if agree && !common.clocks.is_any_out() && sometimes(Point::OtherCopy) {
            return copies.pop();
        }
        if !agree {
            return copies.first().copied();
        }
        let sits_out = |slot: Slot| common.clocks.sits_out(slot);
        let is_write_mostly =
            |slot: Slot| common.view.member(slot).is_some_and(|member| member.is_write_mostly);
        let cost = |(slot, start): &(Slot, MemberSector)| {
            (sits_out(*slot), is_write_mostly(*slot), self.loads.cost(*slot, *start))
        };
        copies.into_iter().min_by_key(cost)
    }

    /// The number of the extent's sectors that come from one copy, where copies may differ.
    pub(super) fn cut_in_doubt(&self, common: &Common, extent: &Extent) -> u32 {
        if copies_agree(common, extent) {
            return extent.sectors;
        }
        let mut sectors = u64::from(extent.sectors);
        for (slot, start) in self.copies(extent) {
            sectors = common.view.readable_alike(slot, start, sectors);
        }
        u32::try_from(sectors).expect("no more than there were")
    }
}

impl Work {
    /// Whether a failed read is repeated in halves. If copies may differ, reads are halved until
    /// only unreadable sectors are left. A member that is gone has no data at all.
    pub(super) fn is_to_be_halved(&self, common: &Common, fault: FaultKind) -> bool {
        let is_first = self.failed.is_empty();
        let may_have_some = fault == FaultKind::Media && self.extent.sectors > 1;
        let agree = copies_agree(common, &self.extent);
        let agree = spoiled(Bug::DoubtWhole, agree, true);
        is_first && may_have_some && !agree
    }
}

/// Whether clients' data agrees in all copies of an extent: redundancy agrees there, and no write
/// was left half done. In sectors that no client has written, by a lockless bitmap, any copy will
/// do.
fn copies_agree(common: &Common, extent: &Extent) -> bool {
    if planted(Bug::CopiesBelieved) {
        return true;
    }
    let start = extent.start().0;
    let sectors = start..start + u64::from(extent.sectors);
    common.view.may_solve(sectors) && common.view.gate != Gate::Broken
}
