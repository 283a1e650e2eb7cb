//! linear and raid0: tables of zones, and properties over members of any sizes.

use std::collections::HashMap;

use crate::support::{cells, direct, losses, uneven};
use braid_geometry::{DirectGeometry, Geometry, Level, LogicalSector, MemberSector, Slot};
use proptest::prelude::*;

const ORIGINAL: u32 = 1;
const ALTERNATE: u32 = 2;

/// Checks a layout against a drawing. A column is a slot, a line is a chunk of its data area. A
/// number is the array's chunk; `-` is beyond the member.
fn check(layout: u32, chunk_sectors: u32, drawing: &str) {
    let rows = cells(drawing);
    let chunk = u64::from(chunk_sectors);
    let chunks_of = |slot: usize| rows.iter().filter(|row| row[slot] != "-").count() as u64;
    // Every member has chunk - 1 sectors more than its whole chunks, which md rounds away.
    let sizes: Vec<u64> =
        (0..rows[0].len()).map(|slot| chunks_of(slot) * chunk + chunk - 1).collect();
    let geometry = direct(&uneven(Level::Raid0, layout, chunk_sectors, &sizes));
    let seen = |chunks: u64| (chunks * chunk) & !(chunk - 1);
    let capacity: u64 = (0..rows[0].len()).map(|slot| seen(chunks_of(slot))).sum();
    for (row, line) in rows.iter().enumerate() {
        for (slot, drawn) in (0..).map(Slot).zip(line) {
            let member = MemberSector(row as u64 * chunk + chunk - 1);
            if *drawn == "-" {
                assert_eq!(geometry.logical(slot, member), None);
                continue;
            }
            let sector = LogicalSector(drawn.parse::<u64>().unwrap() * chunk + chunk - 1);
            if sector.0 >= capacity {
                assert_eq!(geometry.logical(slot, member), None);
                continue;
            }
            let extent = geometry.locate(sector);
            assert_eq!((extent.slot, extent.sector), (slot, member), "layout {layout} {drawing}");
            assert_eq!(geometry.logical(slot, member), Some(sector));
        }
    }
    assert_eq!(geometry.capacity_sectors(), capacity);
}

/// md 6.1 shows 12480 sectors for such an array, 48 fewer than the whole chunks of its members.
#[test]
fn a_raid0_whose_chunk_is_no_power_of_two_is_as_large_as_md_says() {
    let geometry = direct(&uneven(Level::Raid0, ORIGINAL, 24, &[4184; 3]));
    assert_eq!(geometry.capacity_sectors(), 12_480);
    assert_eq!(geometry.used_sectors(Slot(2)), 4176);
    let last = geometry.locate(LogicalSector(12_479));
    assert_eq!(last.length_sectors, 1);
    let beyond = MemberSector(last.sector.0 + 1);
    assert_eq!(geometry.logical(last.slot, beyond), None);
}

#[test]
fn raid0_of_equal_members() {
    for layout in [0, ORIGINAL, ALTERNATE] {
        check(layout, 8, "0 1 2 / 3 4 5");
        check(layout, 24, "0 1 2 / 3 4 5");
        check(layout, 1, "0 / 1 / 2");
    }
}

#[test]
fn raid0_with_a_last_zone_of_one_slot_needs_no_layout() {
    for layout in [0, ORIGINAL, ALTERNATE] {
        check(layout, 8, "0 1 / - 2 / - 3");
        check(layout, 8, "0 1 2 / 3 4 5 / - 6 - / - 7 -");
    }
}

#[test]
fn raid0_original_deals_by_the_chunk_number_in_the_array() {
    // Zone 1 starts at chunk 3, an odd number, and has two slots: its deal begins at the second
    // slot.
    check(ORIGINAL, 8, "0 1 2 / - 4 3 / - 5 -");
    check(ORIGINAL, 24, "0 1 2 / - 4 3 / - 6 5");
    // Zone 1 starts at chunk 8 and has three slots (8 mod 3 = 2). Zone 2 starts at chunk 11 and has
    // two (11 mod 2 = 1).
    check(ORIGINAL, 8, "0 1 2 3 / 4 5 6 7 / 9 - 10 8 / 12 - - 11 / 14 - - 13");
}

#[test]
fn raid0_alternate_starts_every_zone_at_its_first_slot() {
    check(ALTERNATE, 8, "0 1 2 / - 3 4 / - 5 -");
    check(ALTERNATE, 24, "0 1 2 / - 3 4 / - 5 6");
    check(ALTERNATE, 8, "0 1 2 3 / 4 5 6 7 / 8 - 9 10 / 11 - - 12 / 13 - - 14");
}

#[test]
fn linear_puts_members_one_after_another() {
    let geometry = direct(&uneven(Level::Linear, 0, 0, &[3, 10, 1]));
    assert_eq!(geometry.capacity_sectors(), 14);
    let at = |sector| {
        let extent = geometry.locate(LogicalSector(sector));
        (extent.slot.0, extent.sector.0, extent.length_sectors)
    };
    assert_eq!(at(0), (0, 0, 3));
    assert_eq!(at(2), (0, 2, 1));
    assert_eq!(at(3), (1, 0, 10));
    assert_eq!(at(12), (1, 9, 1));
    assert_eq!(at(13), (2, 0, 1));
    assert_eq!(geometry.logical(Slot(1), MemberSector(9)), Some(LogicalSector(12)));
    assert_eq!(geometry.logical(Slot(1), MemberSector(10)), None);
    assert_eq!(geometry.logical(Slot(3), MemberSector(0)), None);
}

#[test]
fn linear_rounds_members_down_where_a_chunk_is_set() {
    let geometry = direct(&uneven(Level::Linear, 0, 128, &[300, 128, 1000]));
    assert_eq!([0, 1, 2].map(|slot| geometry.used_sectors(Slot(slot))), [256, 128, 896]);
    assert_eq!(geometry.locate(LogicalSector(256)).slot, Slot(1));
    assert_eq!(geometry.logical(Slot(0), MemberSector(256)), None);
}

#[test]
fn any_loss_is_fatal() {
    for level in [Level::Linear, Level::Raid0] {
        let geometry = Geometry::new(&uneven(level, 1, 8, &[80, 80, 240])).unwrap();
        assert_eq!(geometry.lost_max(), 0);
        for lost in losses(3) {
            assert_eq!(geometry.survives(&|slot| lost >> slot.0 & 1 == 1), lost == 0);
        }
    }
}

#[test]
#[should_panic(expected = "beyond the array")]
fn the_sector_after_the_last_is_refused() {
    let geometry = direct(&uneven(Level::Raid0, 1, 8, &[80, 80]));
    let _ = geometry.locate(LogicalSector(160));
}

/// Checks that no two sectors share a place, that all used member sectors are taken, and the
/// lengths of extents.
fn check_bijection(geometry: &DirectGeometry) {
    let mut places = HashMap::new();
    let mut sector = 0;
    while sector < geometry.capacity_sectors() {
        let extent = geometry.locate(LogicalSector(sector));
        assert!(extent.length_sectors > 0);
        for step in 0..extent.length_sectors {
            let logical = LogicalSector(sector + step);
            let here = geometry.locate(logical);
            let member = MemberSector(extent.sector.0 + step);
            assert_eq!((here.slot, here.sector), (extent.slot, member));
            assert_eq!(here.length_sectors, extent.length_sectors - step);
            assert_eq!(places.insert((here.slot, member), logical), None);
        }
        sector += extent.length_sectors;
    }
    assert_eq!(sector, geometry.capacity_sectors());
    for slot in (0..geometry.slots()).map(Slot) {
        for member in (0..geometry.used_sectors(slot) + 3).map(MemberSector) {
            assert_eq!(geometry.logical(slot, member), places.get(&(slot, member)).copied());
        }
    }
}

proptest! {
    #![proptest_config(crate::support::cases(256))]

    #[test]
    fn small_raid0_is_a_bijection(
        sizes in prop::collection::vec(24..200u64, 1..=16),
        chunk_sectors in 1..=24u32,
        layout in ORIGINAL..=ALTERNATE,
    ) {
        let geometry = direct(&uneven(Level::Raid0, layout, chunk_sectors, &sizes));
        let chunk = u64::from(chunk_sectors);
        let whole = |size: u64| size / chunk * chunk;
        let seen: u64 = sizes.iter().map(|&size| whole(size) & !(chunk - 1)).sum();
        prop_assert_eq!(geometry.capacity_sectors(), seen);
        check_bijection(&geometry);
    }

    #[test]
    fn small_linear_is_a_bijection(
        sizes in prop::collection::vec(24..200u64, 1..=16),
        chunk_sectors in 0..=24u32,
    ) {
        check_bijection(&direct(&uneven(Level::Linear, 0, chunk_sectors, &sizes)));
    }

    /// Members of up to 128 TiB, some of equal size, and chunks that need not be powers of two.
    #[test]
    fn large_raid0_comes_back_too(
        sizes in prop::collection::vec((1u64..8, 0..3u64), 1..=64),
        unit in 1u64 << 20..1 << 35,
        chunk_sectors in 1..=1u32 << 17,
        layout in ORIGINAL..=ALTERNATE,
        part in any::<u64>(),
    ) {
        let sizes: Vec<u64> = sizes.iter().map(|&(times, rest)| times * unit + rest).collect();
        let geometry = direct(&uneven(Level::Raid0, layout, chunk_sectors, &sizes));
        let last = geometry.capacity_sectors() - 1;
        for sector in [0, part % (last + 1), last].map(LogicalSector) {
            let extent = geometry.locate(sector);
            prop_assert_eq!(geometry.logical(extent.slot, extent.sector), Some(sector));
            let end = LogicalSector(sector.0 + extent.length_sectors - 1);
            let end_extent = geometry.locate(end);
            prop_assert_eq!(end_extent.slot, extent.slot);
            prop_assert_eq!(end_extent.sector.0 - extent.sector.0, extent.length_sectors - 1);
        }
    }
}
