//! Properties of raid1 and raid10: exhaustive on small arrays, sampled on large ones.

use std::collections::{HashMap, HashSet};

use crate::support::{CHUNK, even, losses, mirror, raid10_layouts};
use braid_geometry::{
    Geometry, GeometryError, Level, LogicalSector, MemberSector, MirrorGeometry, Shape, Slot,
};
use proptest::prelude::*;

/// Shapes of 2 to 16 slots. Members have a few chunks, also odd numbers of chunks and fractions of
/// one.
fn small_shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for slots in 1..=16 {
        shapes.push(even(Level::Raid1, 0, slots, 37));
        for layout in raid10_layouts(slots) {
            for chunks in [4, 5, 9] {
                shapes.push(even(Level::Raid10, layout, slots, chunks * u64::from(CHUNK) + 5));
            }
        }
    }
    shapes
}

#[test]
fn every_copy_has_its_own_place_and_comes_back() {
    for geometry in small_shapes().iter().map(mirror) {
        let mut places = HashMap::new();
        for sector in (0..geometry.capacity_sectors()).map(LogicalSector) {
            let mut slots = HashSet::new();
            for copy in 0..geometry.copies() {
                let (slot, member) = geometry.copy(sector, copy);
                assert!(slots.insert(slot), "{geometry:?}: two copies of {sector} on {slot}");
                assert!(slot.0 < geometry.slots() && member.0 < geometry.used_sectors());
                let before = places.insert((slot, member), (sector, copy));
                assert_eq!(before, None, "{geometry:?}: {slot} {member} twice");
            }
        }
        // `logical` agrees for every member sector, also for those that hold no copy.
        for slot in (0..=geometry.slots()).map(Slot) {
            for member in (0..geometry.used_sectors() + 9).map(MemberSector) {
                let expected = places.get(&(slot, member)).copied();
                assert_eq!(geometry.logical(slot, member), expected, "{geometry:?}");
            }
        }
    }
}

/// Deals the chunks of a raid10 one by one, each far copy after its near copy. Returns (slot,
/// member row) of every copy of every chunk, in md's order of copies.
fn deal(near: u16, far: u16, is_offset: bool, slots: u16, deal_rows: u64) -> Vec<Vec<(u16, u64)>> {
    let (mut slot, mut row) = (0, 0);
    let mut chunks = Vec::new();
    while row < deal_rows {
        let mut places = Vec::new();
        // With offset copies, a chunk that wraps continues in the next row of the member, which is
        // a row of copies. Layouts with this flaw are refused.
        let mut member_row = if is_offset { row * u64::from(far) } else { row };
        for _ in 0..near {
            let (mut far_slot, mut far_row) = (slot, member_row);
            for _ in 0..far {
                places.push((far_slot, far_row));
                far_slot = (far_slot + near) % slots;
                far_row += if is_offset { 1 } else { deal_rows };
            }
            slot += 1;
            if slot == slots {
                (slot, row, member_row) = (0, row + 1, member_row + 1);
            }
        }
        // The copies of the last chunk may lie beyond the last row.
        if row < deal_rows || slot == 0 {
            chunks.push(places);
        }
    }
    chunks
}

fn read(layout: u32) -> (u16, u16, bool) {
    let [near, far, flags, _] = layout.to_le_bytes();
    (u16::from(near), u16::from(far), flags == 1)
}

#[test]
fn copies_are_where_dealing_by_hand_puts_them() {
    for shape in small_shapes().iter().filter(|shape| shape.level == Level::Raid10) {
        let geometry = mirror(shape);
        let (near, far, is_offset) = read(shape.layout);
        let chunk = u64::from(CHUNK);
        let deal_rows = shape.member_sectors[0] / chunk / u64::from(far);
        let dealt = deal(near, far, is_offset, shape.slots, deal_rows);
        assert_eq!(geometry.capacity_sectors(), dealt.len() as u64 * chunk, "{shape:?}");
        for (number, places) in (0..).zip(dealt) {
            for (copy, (slot, row)) in (0..).zip(places) {
                let expected = (Slot(slot), MemberSector(row * chunk));
                assert_eq!(geometry.copy(LogicalSector(number * chunk), copy), expected);
            }
        }
    }
}

#[test]
fn layouts_refused_for_overlap_do_overlap_and_the_others_do_not() {
    for slots in 2..=16u16 {
        for (near, far) in (1..=4).flat_map(|near| (2..=4).map(move |far| (near, far))) {
            if near * far > slots {
                continue;
            }
            let layout = u32::from(near) | u32::from(far) << 8 | 1 << 16;
            let shape = even(Level::Raid10, layout, slots, 60 * u64::from(CHUNK));
            let places = deal(near, far, true, slots, 60 / u64::from(far)).concat();
            let distinct: HashSet<_> = places.iter().collect();
            let overlap = GeometryError::Raid10OffsetOverlap { near, slots };
            match distinct.len() == places.len() {
                true => assert!(Geometry::new(&shape).is_ok(), "{shape:?}"),
                false => assert_eq!(Geometry::new(&shape), Err(overlap)),
            }
        }
    }
}

#[test]
fn as_many_sectors_as_fit() {
    for geometry in small_shapes().iter().map(mirror) {
        let room = geometry.used_sectors() * u64::from(geometry.slots());
        let taken = geometry.capacity_sectors() * u64::from(geometry.copies());
        let chunk = u64::from(geometry.chunk_sectors());
        assert!(taken <= room);
        assert!(room - taken < chunk * u64::from(geometry.copies()), "{geometry:?}");
    }
}

#[test]
fn contiguous_means_all_copies_and_no_further() {
    for geometry in small_shapes().iter().map(mirror) {
        let mut sector = 0;
        while sector < geometry.capacity_sectors() {
            let length = geometry.contiguous_sectors(LogicalSector(sector));
            assert!(length > 0);
            check_run(&geometry, sector, length);
            sector += length;
        }
        assert_eq!(sector, geometry.capacity_sectors());
    }
}

fn check_run(geometry: &MirrorGeometry, sector: u64, length: u64) {
    for copy in 0..geometry.copies() {
        let (slot, start) = geometry.copy(LogicalSector(sector), copy);
        for step in 1..length {
            let place = geometry.copy(LogicalSector(sector + step), copy);
            assert_eq!(place, (slot, MemberSector(start.0 + step)));
        }
    }
    assert_eq!(geometry.contiguous_sectors(LogicalSector(sector + length - 1)), 1);
}

#[test]
fn survives_agrees_with_looking_at_every_chunk() {
    for shape in small_shapes().iter().filter(|shape| shape.slots <= 7) {
        let geometry = Geometry::new(shape).unwrap();
        let mirror = mirror(shape);
        let step = if shape.level == Level::Raid1 { 1 } else { CHUNK as usize };
        let copies: HashSet<u32> = (0..mirror.capacity_sectors())
            .step_by(step)
            .map(|sector| {
                let slots = (0..mirror.copies()).map(|n| mirror.copy(LogicalSector(sector), n).0);
                slots.map(|slot| 1 << slot.0).sum()
            })
            .collect();
        let mut tolerated = u32::MAX;
        for lost in losses(shape.slots) {
            let expected = copies.iter().all(|slots| slots & !lost != 0);
            let survives = geometry.survives(&|slot| lost >> slot.0 & 1 == 1);
            assert_eq!(survives, expected, "{shape:?} without {lost:#b}");
            if !expected {
                tolerated = tolerated.min(lost.count_ones() - 1);
            }
        }
        assert_eq!(tolerated, u32::from(geometry.lost_max()), "{shape:?}");
    }
}

#[test]
#[should_panic(expected = "beyond the array")]
fn the_sector_after_the_last_is_refused() {
    let geometry = mirror(&even(Level::Raid10, 0x102, 4, 64));
    let _ = geometry.copy(LogicalSector(geometry.capacity_sectors()), 0);
}

#[test]
#[should_panic(expected = "there are 2 copies")]
fn a_copy_too_many_is_refused() {
    let geometry = mirror(&even(Level::Raid10, 0x102, 4, 64));
    let _ = geometry.copy(LogicalSector(0), 2);
}

proptest! {
    #![proptest_config(crate::support::cases(512))]

    /// Members up to 128 TiB, chunks from 4 KiB to 64 MiB, up to 64 slots.
    #[test]
    fn large_arrays_come_back_too(
        slots in 2..=64u16,
        choice in any::<prop::sample::Index>(),
        chunk_power in 3..=17u32,
        member_sectors in 1u64 << 20..1 << 38,
        part in any::<u64>(),
    ) {
        let layouts = raid10_layouts(slots);
        let layout = layouts[choice.index(layouts.len())];
        let member_sectors = vec![member_sectors; usize::from(slots)];
        let (level, chunk_sectors) = (Level::Raid10, 1 << chunk_power);
        let geometry = mirror(&Shape { level, layout, chunk_sectors, slots, member_sectors });
        let last = geometry.capacity_sectors() - 1;
        for sector in [0, part % (last + 1), last].map(LogicalSector) {
            let mut slots = HashSet::new();
            for copy in 0..geometry.copies() {
                let (slot, member) = geometry.copy(sector, copy);
                prop_assert!(slots.insert(slot));
                prop_assert!(member.0 < geometry.used_sectors());
                prop_assert_eq!(geometry.logical(slot, member), Some((sector, copy)));
            }
        }
    }
}
