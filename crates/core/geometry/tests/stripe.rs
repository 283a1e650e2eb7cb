//! Properties of raid4, raid5 and raid6: exhaustive on small arrays, sampled on large ones.

use std::collections::HashSet;

use crate::support::{CHUNK, RAID5_LAYOUTS, RAID6_LAYOUTS, even, losses, stripe};
use braid_geometry::{
    ChunkRow, Geometry, Level, LogicalSector, MemberSector, Role, Shape, Slot, StripeGeometry,
};
use proptest::prelude::*;

/// Every level of the stripe family with each of its layouts.
fn layouts() -> Vec<(Level, u32)> {
    let raid5 = RAID5_LAYOUTS.map(|layout| (Level::Raid5, layout));
    let raid6 = RAID6_LAYOUTS.map(|layout| (Level::Raid6, layout));
    [&[(Level::Raid4, 0)][..], &raid5, &raid6].concat()
}

fn slots_min(level: Level) -> u16 {
    if level == Level::Raid6 { 4 } else { 2 }
}

/// A member size that is no whole number of chunks, with more rows than the longest rotation.
const MEMBER_SECTORS: u64 = 35 * CHUNK as u64 + 3;

fn small_arrays() -> impl Iterator<Item = StripeGeometry> {
    layouts().into_iter().flat_map(|(level, layout)| {
        let slots = slots_min(level)..=16;
        slots.map(move |slots| stripe(&even(level, layout, slots, MEMBER_SECTORS)))
    })
}

#[test]
fn every_sector_has_its_own_place_and_comes_back() {
    for geometry in small_arrays() {
        let mut places = HashSet::new();
        for sector in (0..geometry.capacity_sectors()).map(LogicalSector) {
            let address = geometry.locate(sector);
            let back = geometry.logical(address.row, address.data_index, address.offset_sectors);
            assert_eq!(back, sector);
            let slot = geometry.row_map(address.row).data_slot(address.data_index);
            let start = geometry.row_start(address.row);
            let member = MemberSector(start.0 + u64::from(address.offset_sectors));
            assert_eq!(geometry.row_of(member), address.row);
            assert!(member.0 < geometry.used_sectors());
            assert!(places.insert((slot, member)), "{geometry:?}: two sectors at {slot} {member}");
        }
        // All member sectors that hold no data hold parity.
        let all = geometry.used_sectors() * u64::from(geometry.slots());
        let parity = geometry.used_sectors() * u64::from(geometry.parity_slots());
        assert_eq!(places.len() as u64, all - parity);
    }
}

#[test]
fn a_row_is_its_data_and_p_and_q() {
    for geometry in small_arrays() {
        for row in (0..geometry.rows()).map(ChunkRow) {
            check_row(&geometry, row);
        }
    }
}

fn check_row(geometry: &StripeGeometry, row: ChunkRow) {
    let map = geometry.row_map(row);
    assert_eq!(map.data_slots(), geometry.data_slots());
    assert_eq!(map.q_slot().is_some(), geometry.parity_slots() == 2);
    let mut by_role = HashSet::from([map.p_slot()]);
    by_role.extend(map.q_slot());
    for index in 0..geometry.data_slots() {
        let slot = map.data_slot(index);
        assert_eq!(map.role(slot), Role::Data(index), "{geometry:?} row {row}");
        by_role.insert(slot);
    }
    assert_eq!(map.role(map.p_slot()), Role::P);
    assert_eq!(by_role, (0..geometry.slots()).map(Slot).collect::<HashSet<_>>());
    let exponents: HashSet<u16> = (0..geometry.data_slots()).map(|i| map.exponent(i)).collect();
    assert_eq!(exponents.len(), usize::from(geometry.data_slots()), "exponents repeat");
    assert!(exponents.iter().all(|&exponent| exponent < map.exponents_count()));
}

#[test]
fn rows_end_where_the_used_sectors_end() {
    for geometry in small_arrays() {
        assert_eq!(geometry.rows(), 35);
        assert_eq!(geometry.used_sectors(), 35 * u64::from(CHUNK));
        let end = geometry.row_start(ChunkRow(geometry.rows()));
        assert_eq!(end, MemberSector(geometry.used_sectors()));
        assert_eq!(geometry.row_of(end), ChunkRow(geometry.rows()));
        assert_eq!(
            geometry.capacity_sectors(),
            geometry.used_sectors() * u64::from(geometry.data_slots())
        );
    }
}

#[test]
fn rotations_visit_every_slot_of_their_ring_equally() {
    for (level, layout) in layouts() {
        let slots = 7;
        let geometry = stripe(&even(level, layout, slots, 42 * u64::from(CHUNK)));
        let mut turns = vec![0; usize::from(slots)];
        for row in 0..42 {
            turns[geometry.row_map(ChunkRow(row)).p_slot().index()] += 1;
        }
        let expected = match (level, layout) {
            (Level::Raid4, _) | (Level::Raid5, 5) => vec![0, 0, 0, 0, 0, 0, 42],
            (Level::Raid6, 5) => vec![0, 0, 0, 0, 0, 42, 0],
            (_, 4 | 20) => vec![42, 0, 0, 0, 0, 0, 0],
            (_, 16..=19) => vec![7, 7, 7, 7, 7, 7, 0],
            _ => vec![6; 7],
        };
        assert_eq!(turns, expected, "{level} {layout}");
    }
}

#[test]
fn losses_are_survived_up_to_the_parities() {
    for (level, layout) in layouts() {
        for slots in slots_min(level)..=8 {
            let geometry = Geometry::new(&even(level, layout, slots, MEMBER_SECTORS)).unwrap();
            let parities = if level == Level::Raid6 { 2 } else { 1 };
            assert_eq!(u32::from(geometry.lost_max()), parities);
            for lost in losses(slots) {
                let survives = geometry.survives(&|slot| lost >> slot.0 & 1 == 1);
                assert_eq!(survives, lost.count_ones() <= parities);
            }
        }
    }
}

#[test]
fn largest_raid6_counts_exponents_up_to_254() {
    for layout in RAID6_LAYOUTS {
        let geometry = stripe(&even(Level::Raid6, layout, 255, 600 * u64::from(CHUNK)));
        for row in (0..600).map(ChunkRow) {
            check_row(&geometry, row);
        }
        let map = geometry.row_map(ChunkRow(0));
        assert_eq!(map.exponents_count(), if (8..=10).contains(&layout) { 255 } else { 253 });
    }
}

#[test]
#[should_panic(expected = "beyond the array")]
fn the_sector_after_the_last_is_refused() {
    let geometry = stripe(&even(Level::Raid5, 2, 3, MEMBER_SECTORS));
    let _ = geometry.locate(LogicalSector(geometry.capacity_sectors()));
}

#[test]
#[should_panic(expected = "beyond the array")]
fn the_row_after_the_last_has_no_map() {
    let geometry = stripe(&even(Level::Raid5, 2, 3, MEMBER_SECTORS));
    let _ = geometry.row_map(ChunkRow(geometry.rows()));
}

fn refuses<T>(ask: impl Fn() -> T + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(ask).is_err()
}

#[test]
fn questions_one_beyond_the_end_are_refused() {
    let geometry = || stripe(&even(Level::Raid6, 2, 5, MEMBER_SECTORS));
    let end = ChunkRow(geometry().rows());
    let last = ChunkRow(end.0 - 1);
    assert!(!refuses(|| geometry().logical(last, 2, CHUNK - 1)));
    assert!(refuses(|| geometry().logical(end, 2, CHUNK - 1)));
    assert!(refuses(|| geometry().logical(last, 3, CHUNK - 1)));
    assert!(refuses(|| geometry().logical(last, 2, CHUNK)));
    assert!(refuses(|| geometry().row_start(ChunkRow(end.0 + 1))));
    let map = geometry().row_map(last);
    assert!(refuses(move || map.data_slot(3)));
    assert!(refuses(move || map.exponent(3)));
    assert!(refuses(move || map.role(Slot(5))));
}

proptest! {
    #![proptest_config(crate::support::cases(512))]

    /// Members up to 128 TiB, chunks from 4 KiB to 64 MiB, up to 64 slots.
    #[test]
    fn large_arrays_come_back_too(
        which in 0..21usize,
        extra in 0..60u16,
        chunk_power in 3..=17u32,
        member_sectors in 1u64 << 18..1 << 38,
        part in any::<u64>(),
    ) {
        let (level, layout) = layouts()[which];
        let slots = slots_min(level) + extra;
        let chunk_sectors = 1 << chunk_power;
        let member_sectors = vec![member_sectors; usize::from(slots)];
        let shape = Shape { level, layout, chunk_sectors, slots, member_sectors };
        let geometry = stripe(&shape);
        let last = geometry.capacity_sectors() - 1;
        for sector in [0, part % (last + 1), last].map(LogicalSector) {
            let address = geometry.locate(sector);
            prop_assert!(address.row.0 < geometry.rows());
            let back = geometry.logical(address.row, address.data_index, address.offset_sectors);
            prop_assert_eq!(back, sector);
            check_row(&geometry, address.row);
        }
    }
}
