//! What members must hold, computed from the geometry and the definition of parity alone.

use braid_geometry::{Geometry, Level, Shape};
use braid_testbed::content::lay_out;
pub(crate) use braid_testbed::content::{parity, places};

use crate::SECTOR;

/// What no write ever touches.
const UNUSED: u8 = 0xEE;

/// All members' data areas for the array's content.
pub(crate) fn image(shape: &Shape, geometry: &Geometry, content: &[u8]) -> Vec<Vec<u8>> {
    let blank = |sectors: &u64| vec![UNUSED; *sectors as usize * SECTOR];
    let mut members: Vec<Vec<u8>> = shape.member_sectors.iter().map(blank).collect();
    lay_out(geometry, content, &mut members);
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
