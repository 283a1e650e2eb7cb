//! Shapes without a geometry, and the words of each refusal. No input numbers cause a panic.

use crate::support::{even, uneven};
use braid_geometry::{
    Geometry, GeometryError, Level, LogicalSector, SECTORS_MAX, SLOTS_MAX, Shape, Slot,
};
use proptest::prelude::*;

fn refusal(shape: &Shape) -> GeometryError {
    Geometry::new(shape).expect_err("accepted")
}

fn with_chunk(level: Level, chunk_sectors: u32) -> Shape {
    let layout = braid_geometry::default_layout(level);
    Shape { chunk_sectors, ..even(level, layout, 4, 1 << 20) }
}

#[test]
fn slot_counts() {
    for (level, too_few) in [
        (Level::Linear, 0),
        (Level::Raid0, 0),
        (Level::Raid1, 0),
        (Level::Raid4, 1),
        (Level::Raid5, 1),
        (Level::Raid6, 3),
        (Level::Raid10, 1),
    ] {
        let layout = braid_geometry::default_layout(level);
        let max = if level == Level::Raid6 { 255 } else { SLOTS_MAX };
        let min = too_few + 1;
        for slots in [too_few, max + 1] {
            let error = refusal(&even(level, layout, slots, 1024));
            assert_eq!(error, GeometryError::SlotsOutOfRange { level, slots, min, max });
        }
        for slots in [min, max] {
            assert!(Geometry::new(&even(level, layout, slots, 1024)).is_ok(), "{level} {slots}");
        }
    }
}

#[test]
fn most_slots_are_those_of_a_4_kib_superblock() {
    // A superblock has 256 bytes of fixed fields, then two bytes for every device.
    assert_eq!(SLOTS_MAX, (4096 - 256) / 2);
}

#[test]
fn sizes_must_be_one_per_slot() {
    let shape = Shape { slots: 3, ..even(Level::Raid0, 1, 4, 1024) };
    assert_eq!(refusal(&shape), GeometryError::SizesNotPerSlot { slots: 3, sizes: 4 });
}

#[test]
fn chunks() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        for chunk_sectors in [0, 1, 4, 12, 24, 1000, u32::MAX] {
            let error = refusal(&with_chunk(level, chunk_sectors));
            assert_eq!(error, GeometryError::ChunkInvalid { level, chunk_sectors });
        }
        assert!(Geometry::new(&with_chunk(level, 8)).is_ok());
    }
    let zero = GeometryError::ChunkInvalid { level: Level::Raid0, chunk_sectors: 0 };
    assert_eq!(refusal(&with_chunk(Level::Raid0, 0)), zero);
    assert!(Geometry::new(&with_chunk(Level::Raid0, 24)).is_ok());
    assert!(Geometry::new(&with_chunk(Level::Raid1, 0)).is_ok());
    assert!(Geometry::new(&with_chunk(Level::Linear, 0)).is_ok());
}

#[test]
fn layout_numbers() {
    let known = |level: Level| -> &[u32] {
        match level {
            Level::Raid0 => &[0, 1, 2],
            Level::Raid5 => &crate::support::RAID5_LAYOUTS,
            _ => &crate::support::RAID6_LAYOUTS,
        }
    };
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        for layout in (0..64).chain([0x102, u32::MAX]) {
            let result = Geometry::new(&even(level, layout, 5, 1024));
            match known(level).contains(&layout) {
                true => assert_eq!(result.unwrap().layout(), layout),
                false => {
                    assert_eq!(result, Err(GeometryError::LayoutUnknown { level, layout }));
                }
            }
        }
    }
}

#[test]
fn raid10_layouts() {
    let raid10 = |layout, slots| refusal(&even(Level::Raid10, layout, slots, 1024));
    let copies = |near, far, slots| GeometryError::Raid10Copies { near, far, slots };
    assert_eq!(raid10(0, 4), copies(0, 0, 4));
    assert_eq!(raid10(0x002, 4), copies(2, 0, 4));
    assert_eq!(raid10(0x200, 4), copies(0, 2, 4));
    assert_eq!(raid10(0x101, 4), copies(1, 1, 4));
    assert_eq!(raid10(0x105, 4), copies(5, 1, 4));
    assert_eq!(raid10(0x302, 5), copies(2, 3, 5));
    assert_eq!(raid10(0xffff, 5), copies(255, 255, 5));
    for layout in [0x2_0201, 0x4_0201, 0x7_0202] {
        assert_eq!(raid10(layout, 4), GeometryError::Raid10FarSets { layout });
    }
    for layout in [0x8_0102, 0x8000_0102, 0xa_0201] {
        let error = GeometryError::LayoutUnknown { level: Level::Raid10, layout };
        assert_eq!(raid10(layout, 4), error);
    }
    let overlap = GeometryError::Raid10OffsetOverlap { near: 2, slots: 5 };
    assert_eq!(raid10(0x1_0202, 5), overlap);
}

#[test]
fn raid0_of_unequal_members_must_say_its_layout() {
    let sizes = [80, 160, 160, 240];
    let error = refusal(&uneven(Level::Raid0, 0, 8, &sizes));
    assert_eq!(error, GeometryError::Raid0LayoutUnspecified { zones: 3 });
    for layout in [1, 2] {
        assert!(Geometry::new(&uneven(Level::Raid0, layout, 8, &sizes)).is_ok());
    }
    // The two RAID-0 layouts differ if the second zone has two slots or more. The layouts agree if
    // that zone has one slot.
    let error = refusal(&uneven(Level::Raid0, 0, 8, &[80, 160, 160]));
    assert_eq!(error, GeometryError::Raid0LayoutUnspecified { zones: 2 });
    assert!(Geometry::new(&uneven(Level::Raid0, 0, 8, &[80, 160])).is_ok());
    // Members that differ by less than a chunk count as equal.
    assert!(Geometry::new(&uneven(Level::Raid0, 0, 8, &[80, 83, 87])).is_ok());
}

#[test]
fn members_too_small() {
    let small = |slot, sectors, needed| GeometryError::MemberTooSmall { slot, sectors, needed };
    assert_eq!(refusal(&even(Level::Raid5, 2, 3, 7)), small(Slot(0), 7, 8));
    assert_eq!(refusal(&even(Level::Raid1, 0, 2, 0)), small(Slot(0), 0, 1));
    assert_eq!(refusal(&even(Level::Raid10, 0x301, 3, 23)), small(Slot(0), 23, 24));
    assert_eq!(refusal(&uneven(Level::Raid0, 1, 8, &[64, 5])), small(Slot(1), 5, 8));
    assert_eq!(refusal(&uneven(Level::Linear, 0, 0, &[64, 0])), small(Slot(1), 0, 1));
}

#[test]
fn members_of_redundant_levels_are_equal() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let layout = braid_geometry::default_layout(level);
        let error = refusal(&uneven(level, layout, 8, &[800, 800, 808, 800]));
        let expected = GeometryError::SizesUnequal { slot: Slot(2), sectors: 808, expected: 800 };
        assert_eq!(error, expected);
    }
}

#[test]
fn sizes_that_no_device_has() {
    for level in Level::ALL {
        let layout = braid_geometry::default_layout(level);
        for sectors in [SECTORS_MAX, 1 << 60, u64::MAX] {
            let error = refusal(&even(level, layout, 4, sectors));
            assert_eq!(error, GeometryError::MemberTooLarge { slot: Slot(0), sectors });
        }
    }
    for level in [Level::Linear, Level::Raid0, Level::Raid5, Level::Raid6] {
        let layout = braid_geometry::default_layout(level);
        let error = refusal(&even(level, layout, 5, SECTORS_MAX / 2));
        assert_eq!(error, GeometryError::CapacityTooLarge);
    }
    let halves = |rest| uneven(Level::Linear, 0, 0, &[SECTORS_MAX / 2, SECTORS_MAX / 2 - rest]);
    assert_eq!(refusal(&halves(0)), GeometryError::CapacityTooLarge);
    assert!(Geometry::new(&halves(1)).is_ok());
    // Below the bound, byte offsets fit a signed 64-bit number; at the bound they do not.
    assert!((SECTORS_MAX - 1).checked_mul(512).and_then(|at| i64::try_from(at).ok()).is_some());
    assert!(i64::try_from(SECTORS_MAX * 512).is_err());
    // In the largest array every sector still has an address.
    let geometry = Geometry::new(&even(Level::Raid1, 0, 4, SECTORS_MAX - 1)).unwrap();
    assert_eq!(geometry.capacity_sectors(), SECTORS_MAX - 1);
}

#[test]
fn a_refusal_names_its_numbers() {
    let said = |shape: &Shape| refusal(shape).to_string();
    assert_eq!(said(&with_chunk(Level::Raid5, 12)), "raid5 cannot have a chunk of 12 sectors");
    assert_eq!(said(&even(Level::Raid6, 2, 3, 1024)), "raid6 takes 4 to 255 slots, not 3");
    assert_eq!(said(&even(Level::Raid5, 7, 3, 1024)), "raid5 has no layout number 0x7");
    assert_eq!(
        said(&even(Level::Raid5, 2, 3, 1 << 60)),
        "slot 0 claims 1152921504606846976 sectors, more than any device has"
    );
}

fn any_level() -> impl Strategy<Value = Level> {
    prop::sample::select(&Level::ALL[..])
}

/// Member sizes as in a damaged superblock, and plausible ones.
fn any_sectors() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..1u64 << 14, (0..64u32).prop_map(|power| 1 << power)]
}

fn any_layout() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0..24u32, (0..4u32, 0..4u32).prop_map(|(n, f)| n | f << 8)]
}

fn any_chunk() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (0..32u32).prop_map(|power| 1 << power)]
}

proptest! {
    #![proptest_config(crate::support::cases(4096))]

    /// Any numbers lead to a refusal, or to a geometry with a first and a last sector.
    #[test]
    fn no_numbers_panic(
        level in any_level(),
        layout in any_layout(),
        chunk_sectors in any_chunk(),
        slots in 0..20u16,
        sectors in any_sectors(),
        sizes in prop::collection::vec(any_sectors(), 0..20),
        is_even in any::<bool>(),
    ) {
        let member_sectors = if is_even { vec![sectors; usize::from(slots)] } else { sizes };
        let slots = if is_even { slots } else { u16::try_from(member_sectors.len())? };
        let shape = Shape { level, layout, chunk_sectors, slots, member_sectors };
        let Ok(geometry) = Geometry::new(&shape) else { return Ok(()) };
        prop_assert!(geometry.capacity_sectors() > 0);
        prop_assert!(geometry.capacity_sectors() < SECTORS_MAX);
        prop_assert!(geometry.survives(&|_| false));
        prop_assert!(!geometry.survives(&|_| true));
        for sector in [0, geometry.capacity_sectors() - 1].map(LogicalSector) {
            match &geometry {
                Geometry::Direct(direct) => {
                    let extent = direct.locate(sector);
                    prop_assert!(extent.sector.0 < geometry.used_sectors(extent.slot));
                }
                Geometry::Mirror(mirror) => {
                    let (slot, member) = mirror.copy(sector, mirror.copies() - 1);
                    prop_assert!(member.0 < geometry.used_sectors(slot));
                }
                Geometry::Stripe(stripe) => {
                    let address = stripe.locate(sector);
                    let slot = stripe.row_map(address.row).data_slot(address.data_index);
                    prop_assert!(stripe.row_start(address.row).0 < geometry.used_sectors(slot));
                }
            }
        }
        for slot in (0..slots).map(Slot) {
            prop_assert!(geometry.used_sectors(slot) <= shape.member_sectors[slot.index()]);
        }
    }
}
