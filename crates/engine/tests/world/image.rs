//! What members must hold, computed from the geometry and the definition of parity alone.

use braid_geometry::{
    ChunkRow, Geometry, Level, LogicalSector, MemberSector, Shape, Slot, StripeGeometry,
};
use braid_parity::definition;

use crate::SECTOR;
use crate::device::bytes;

/// What no write ever touches.
const UNUSED: u8 = 0xEE;

/// Where a sector and its copies live.
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

/// P, and Q where there is one, of a row's data columns in the order of the array.
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

/// All members' data areas for the array's content.
pub(crate) fn image(shape: &Shape, geometry: &Geometry, content: &[u8]) -> Vec<Vec<u8>> {
    let blank = |sectors: &u64| vec![UNUSED; *sectors as usize * SECTOR];
    let mut members: Vec<Vec<u8>> = shape.member_sectors.iter().map(blank).collect();
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
    members
}

/// An array of `slots` members of `rows` chunks, and a bit more that cannot be used.
pub(crate) fn shape(level: Level, layout: u32, chunk_sectors: u32, slots: u16, rows: u64) -> Shape {
    let sectors = rows * u64::from(chunk_sectors) + u64::from(chunk_sectors) / 2;
    let member_sectors = vec![sectors; usize::from(slots)];
    Shape { level, layout, chunk_sectors, slots, member_sectors }
}

/// Every level and layout that keeps anything twice, with `chunk_sectors`.
pub(crate) fn redundant_shapes(chunk_sectors: u32) -> Vec<Shape> {
    let rows = (128 / u64::from(chunk_sectors)).clamp(2, 9);
    let of = |level, layout, slots| shape(level, layout, chunk_sectors, slots, rows);
    let mut shapes = vec![of(Level::Raid1, 0, 2), of(Level::Raid1, 0, 3), of(Level::Raid4, 0, 4)];
    shapes.extend((0..6).map(|layout| of(Level::Raid5, layout, 4)));
    shapes.extend([of(Level::Raid5, 2, 2), of(Level::Raid5, 2, 3), of(Level::Raid6, 2, 4)]);
    shapes.extend((0..=20).filter_map(|layout| {
        let shape = of(Level::Raid6, layout, 5);
        Geometry::new(&shape).is_ok().then_some(shape)
    }));
    for (near, far, offset, slots) in
        [(2, 1, 0, 4), (2, 1, 0, 5), (3, 1, 0, 5), (1, 2, 0, 3), (1, 2, 0, 4), (1, 2, 1, 3)]
    {
        shapes.push(of(Level::Raid10, near | far << 8 | offset << 16, slots));
    }
    shapes
}

/// Levels without redundancy, among them members of unequal size.
pub(crate) fn plain_shapes(chunk_sectors: u32) -> Vec<Shape> {
    let chunk = u64::from(chunk_sectors);
    let unequal = vec![2 * chunk + 3, 5 * chunk, 3 * chunk + 1];
    let of = |level, layout, chunk_sectors, member_sectors: &[u64]| Shape {
        level,
        layout,
        chunk_sectors,
        slots: member_sectors.len() as u16,
        member_sectors: member_sectors.to_vec(),
    };
    vec![
        of(Level::Raid0, 1, chunk_sectors, &unequal),
        of(Level::Raid0, 2, chunk_sectors, &unequal),
        of(Level::Raid0, 1, chunk_sectors, &[4 * chunk; 2]),
        of(Level::Linear, 0, 0, &unequal),
        of(Level::Linear, 0, chunk_sectors, &unequal),
    ]
}
