//! The content of members, computed from the geometry and the definition of parity alone.

use std::ops::Range;

use braid_geometry::{ChunkRow, Geometry, LogicalSector, MemberSector, Slot, StripeGeometry};
use braid_parity::definition;

/// Bytes in a sector.
pub(crate) const SECTOR: usize = 512;

pub(crate) fn bytes(start: u64, sectors: u64) -> Range<usize> {
    let start = start as usize * SECTOR;
    start..start + sectors as usize * SECTOR
}

pub(crate) fn places(geometry: &Geometry, sector: u64) -> Vec<(Slot, MemberSector)> {
    let sector = LogicalSector(sector);
    match geometry {
        Geometry::Direct(direct) => {
            let extent = direct.locate(sector);
            vec![(extent.slot, extent.sector)]
        }
        Geometry::Mirror(mirror) => {
            (0..mirror.copies()).map(|copy| mirror.copy(sector, copy)).collect()
        }
        Geometry::Stripe(stripe) => {
            let address = stripe.locate(sector);
            let slot = stripe.row_map(address.row).data_slot(address.data_index);
            let start = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
            vec![(slot, MemberSector(start))]
        }
    }
}

/// The parity columns of a row for its data columns, which are in the array's order: P, and Q on
/// RAID-6.
///
/// # Panics
/// When there are no columns.
pub(crate) fn parity(
    stripe: &StripeGeometry,
    row: ChunkRow,
    columns: &[&[u8]],
) -> Vec<(Slot, Vec<u8>)> {
    let map = stripe.row_map(row);
    let length = columns[0].len();
    let (mut p, mut q) = (vec![0; length], vec![0; length]);
    let Some(q_slot) = map.q_slot() else {
        definition::xor(&mut p, columns);
        return vec![(map.p_slot(), p)];
    };
    let mut sources = vec![None; usize::from(map.exponents_count())];
    for (index, column) in (0..).zip(columns) {
        sources[usize::from(map.exponent(index))] = Some(*column);
    }
    definition::pq(&sources, &mut p, &mut q);
    vec![(map.p_slot(), p), (q_slot, q)]
}

/// Writes the array's content, with parity and copies, into the data areas of its members.
///
/// # Panics
/// If a member is smaller than the part of it that the array uses.
pub(crate) fn lay_out(geometry: &Geometry, content: &[u8], members: &mut [Vec<u8>]) {
    for (sector, data) in (0..).zip(content.chunks_exact(SECTOR)) {
        for (slot, place) in places(geometry, sector) {
            members[slot.index()][bytes(place.0, 1)].copy_from_slice(data);
        }
    }
    if let Geometry::Stripe(stripe) = geometry {
        for row in (0..stripe.rows()).map(ChunkRow) {
            let chunk = bytes(stripe.row_start(row).0, u64::from(stripe.chunk_sectors()));
            let map = stripe.row_map(row);
            let columns: Vec<&[u8]> = (0..map.data_slots())
                .map(|index| &members[map.data_slot(index).index()][chunk.clone()])
                .collect();
            for (slot, data) in parity(stripe, row, &columns) {
                members[slot.index()][chunk.clone()].copy_from_slice(&data);
            }
        }
    }
}
