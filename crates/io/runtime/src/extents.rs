//! Holes of an array: ranges that take no space and read as zeroes, seen through the levels.
//!
//! ```text
//!   acknowledged, not on the members, or lost  no hole
//!   linear, 0 ............................... where the one member has a hole
//!   1, 10 ................................... where all copies that are read have one
//!   4, 5, 6 ................................. where the member of the data has one, and is read
//!   reconstructed, or unknown, a reshape .... no hole
//! ```
//!
//! A client that copies skips holes, so "no hole" is the answer in every case of doubt. The newest
//! published view counts; it precedes any answer that depends on it. Bytes acknowledged before the
//! question are on the members when no shard has dirty stripes; otherwise the answer is "no hole"
//! [check: nothing_that_was_answered_is_a_hole, what_is_made_from_others_is_no_hole].

use braid_geometry::{Geometry, LogicalSector, MemberSector, SECTOR_BYTES, Slot};

use crate::core::Core;
use crate::volume::Volume;

/// Maximum queries to members for one request; the client requests the remaining range again.
const QUESTIONS_MAX: usize = 4096;

/// A run of bytes of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, never zero.
    pub length_bytes: u64,
    /// Whether the run reads as zeroes and takes no space on its members.
    pub is_hole: bool,
}

impl Volume {
    /// Runs from `offset` on, for at most `length` bytes and at most `extents_max` runs. The result
    /// has at least one run if `length` is not zero; the caller asks again for the rest. The call
    /// may wait for the file systems below.
    ///
    /// Partial sectors at the ends of the range are never holes.
    pub fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        let left = end.saturating_sub(offset);
        if left == 0 {
            return Vec::new();
        }
        let (start, sectors_end) = (offset / SECTOR_BYTES, end / SECTOR_BYTES);
        let is_whole = offset.is_multiple_of(SECTOR_BYTES) && start < sectors_end;
        let is_moving = self.core().clients.border.is_some();
        if !is_whole || is_moving || !self.is_on_members() {
            return vec![Extent { length_bytes: left, is_hole: false }];
        }
        let (core, geometry) = (self.core(), self.geometry());
        let mut extents: Vec<Extent> = Vec::new();
        let mut sector = start;
        for _ in 0..QUESTIONS_MAX {
            if sector == sectors_end {
                break;
            }
            let (is_hole, sectors) =
                run(&core, &geometry, LogicalSector(sector), sectors_end - sector);
            let length_bytes = sectors * SECTOR_BYTES;
            let is_full = extents.len() >= extents_max.max(1);
            match extents.last_mut() {
                Some(last) if last.is_hole == is_hole => last.length_bytes += length_bytes,
                _ if is_full => break,
                _ => extents.push(Extent { length_bytes, is_hole }),
            }
            sector += sectors;
        }
        extents
    }
}

/// Whether sector `at` is in a hole, and for how many sectors from `at` on the answer holds, at
/// most `left`.
fn run(core: &Core, geometry: &Geometry, at: LogicalSector, left: u64) -> (bool, u64) {
    let ask = |slot: Slot, sector: MemberSector, sectors: u64| {
        let view = core.view.lock().expect("setting does not panic");
        let member = view.readable(slot, sector, sectors)?;
        drop(view);
        let members = core.members.load();
        let member = members.get(member)?;
        // Workers must not block, so a worker does not ask a suspected member.
        let may_keep = core.workers.is_some() && member.admission.is_suspect();
        Some(if may_keep { (false, sectors) } else { member.hole_at(sector, sectors) })
    };
    match geometry {
        Geometry::Direct(direct) => {
            let extent = direct.locate(at);
            let sectors = extent.length_sectors.min(left);
            ask(extent.slot, extent.sector, sectors).unwrap_or((false, sectors))
        }
        Geometry::Mirror(mirror) => {
            let sectors = mirror.contiguous_sectors(at).min(left);
            let copies = (0..mirror.copies()).map(|copy| mirror.copy(at, copy));
            let holes = copies.filter_map(|(slot, sector)| ask(slot, sector, sectors));
            let same = |(one, run): (bool, u64), (other, length): (bool, u64)| {
                (one && other, run.min(length))
            };
            holes.reduce(same).unwrap_or((false, sectors))
        }
        Geometry::Stripe(stripe) => {
            let address = stripe.locate(at);
            let row = stripe.row_start(address.row).0;
            let sector = MemberSector(row + u64::from(address.offset_sectors));
            let sectors = u64::from(stripe.chunk_sectors() - address.offset_sectors).min(left);
            let slot = stripe.row_map(address.row).data_slot(address.data_index);
            ask(slot, sector, sectors).unwrap_or((false, sectors))
        }
    }
}
