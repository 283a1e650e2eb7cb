//! What "clean" promises: copies are equal and parity fits, on the disks themselves (I5).

use braid_assembly::AssembledArray;
use braid_geometry::{ChunkRow, Geometry, MirrorGeometry, Slot, StripeGeometry};

use crate::content::{bytes, parity, places};
use crate::disk::Disk;

/// The data areas of the disks in the array's slots.
struct Areas<'a> {
    disks: &'a [Disk],
    /// By slot: disk and sector of it where data begins.
    slots: Vec<Option<(usize, u64)>>,
}

impl Areas<'_> {
    fn get(&self, slot: Slot, start: u64, sectors: u64) -> Option<&[u8]> {
        let (disk, offset) = self.slots[slot.index()]?;
        Some(&self.disks[disk].seen[bytes(offset + start, sectors)])
    }
}

/// Checks an array that assembly found clean.
///
/// # Panics
/// When redundancy does not agree.
pub(crate) fn check_clean(
    assembled: &AssembledArray,
    disks: &[Disk],
    presented: &[usize],
    data_offset: u64,
) {
    let slots = assembled.slots.iter();
    let slots = slots.map(|slot| slot.as_ref().map(|one| (presented[one.member], data_offset)));
    let areas = Areas { disks, slots: slots.collect() };
    match &assembled.geometry {
        Geometry::Direct(_) => {}
        Geometry::Mirror(mirror) => check_mirror(&assembled.geometry, mirror, &areas),
        Geometry::Stripe(stripe) => check_stripe(stripe, &areas),
    }
}

fn check_mirror(geometry: &Geometry, mirror: &MirrorGeometry, areas: &Areas<'_>) {
    for sector in 0..mirror.capacity_sectors() {
        let places = places(geometry, sector).into_iter();
        let mut copies = places.filter_map(|(slot, place)| areas.get(slot, place.0, 1));
        let first = copies.next();
        let agree = copies.all(|copy| Some(copy) == first);
        assert!(agree, "the array is clean and the copies of sector {sector} differ");
    }
}

fn check_stripe(stripe: &StripeGeometry, areas: &Areas<'_>) {
    for row in (0..stripe.rows()).map(ChunkRow) {
        let map = stripe.row_map(row);
        let chunk =
            |slot| areas.get(slot, stripe.row_start(row).0, u64::from(stripe.chunk_sectors()));
        let columns: Option<Vec<&[u8]>> =
            (0..map.data_slots()).map(|index| chunk(map.data_slot(index))).collect();
        // With a data column missing, what is computed for it is checked by reading.
        let Some(columns) = columns else { continue };
        for (slot, expected) in parity(stripe, row, &columns) {
            let agrees = chunk(slot).is_none_or(|found| found == expected);
            assert!(agrees, "the array is clean and parity of {row:?} in slot {slot} does not fit");
        }
    }
}
