//! Shared code of the geometry tests: builds shapes, and reads drawings.

#![allow(dead_code, reason = "each test file uses its part")]

use proptest::test_runner::{Config, RngSeed};

use braid_geometry::{DirectGeometry, Geometry, Level, MirrorGeometry, Shape, StripeGeometry};

/// A configuration that draws the same cases in every run. Outside a suite, a developer may try
/// other seeds.
pub(crate) fn cases(cases: u32) -> Config {
    let rng_seed = RngSeed::Fixed(0x6272_6169_6420_6d64);
    Config { cases, rng_seed, failure_persistence: None, ..Config::default() }
}

/// Sectors of the smallest chunk that every level accepts.
pub(crate) const CHUNK: u32 = 8;

/// A shape whose members all have the same size.
pub(crate) fn even(level: Level, layout: u32, slots: u16, member_sectors: u64) -> Shape {
    let member_sectors = vec![member_sectors; usize::from(slots)];
    Shape { level, layout, chunk_sectors: CHUNK, slots, member_sectors }
}

/// A shape with the given member sizes.
pub(crate) fn uneven(
    level: Level,
    layout: u32,
    chunk_sectors: u32,
    member_sectors: &[u64],
) -> Shape {
    let slots = u16::try_from(member_sectors.len()).unwrap();
    Shape { level, layout, chunk_sectors, slots, member_sectors: member_sectors.to_vec() }
}

pub(crate) fn direct(shape: &Shape) -> DirectGeometry {
    match Geometry::new(shape) {
        Ok(Geometry::Direct(direct)) => direct,
        other => panic!("{shape:?} gave {other:?}"),
    }
}

pub(crate) fn mirror(shape: &Shape) -> MirrorGeometry {
    match Geometry::new(shape) {
        Ok(Geometry::Mirror(mirror)) => mirror,
        other => panic!("{shape:?} gave {other:?}"),
    }
}

pub(crate) fn stripe(shape: &Shape) -> StripeGeometry {
    match Geometry::new(shape) {
        Ok(Geometry::Stripe(stripe)) => stripe,
        other => panic!("{shape:?} gave {other:?}"),
    }
}

/// A drawing as rows of words: rows are separated by `/` or line ends, words by spaces.
pub(crate) fn cells(drawing: &str) -> Vec<Vec<&str>> {
    let rows = drawing.split(['/', '\n']).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| !row.is_empty()).collect()
}

/// Every subset of `slots` slots, as bit masks, to try all losses. `slots` must be small.
pub(crate) fn losses(slots: u16) -> std::ops::Range<u32> {
    assert!(slots <= 16);
    0..1 << slots
}

/// md's layout numbers of raid5 and raid6.
pub(crate) const RAID5_LAYOUTS: [u32; 6] = [0, 1, 2, 3, 4, 5];
pub(crate) const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

/// Every raid10 layout for this number of slots with up to four copies of each kind.
pub(crate) fn raid10_layouts(slots: u16) -> Vec<u32> {
    let mut layouts = Vec::new();
    for near in 1..=4u16 {
        for far in 1..=4u16 {
            if !(2..=slots).contains(&(near * far)) {
                continue;
            }
            let layout = u32::from(near) | u32::from(far) << 8;
            layouts.push(layout);
            if far > 1 && slots.is_multiple_of(near) {
                layouts.push(layout | 1 << 16);
            }
        }
    }
    layouts
}
