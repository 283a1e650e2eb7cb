//! The rows of shapes, and the room of reshapes, against the places of single sectors.

use std::collections::HashSet;
use std::ops::Range;

use braid_geometry::{DataRows, Geometry, Level, LogicalSector, ReshapeSteps, Shape};

/// A level, md's layout, the chunk, and the number of slots.
type Kind = (Level, u32, u32, u16);

const NEAR_2: u32 = 0x102;
const NEAR_3: u32 = 0x103;
const OFFSET_2: u32 = 0x1_0201;
const FAR_2: u32 = 0x201;

fn geometry((level, layout, chunk, slots): Kind, member_sectors: u64) -> Geometry {
    Geometry::new(&Shape::uniform(level, layout, chunk, slots, member_sectors)).unwrap()
}

/// Changes of shape whose data moves, in each direction that keeps writes behind reads.
fn changes() -> Vec<(Kind, Kind)> {
    let raid5 = |chunk, slots| (Level::Raid5, 2, chunk, slots);
    let raid6 = |chunk, slots| (Level::Raid6, 2, chunk, slots);
    let near = |chunk, slots| (Level::Raid10, NEAR_2, chunk, slots);
    let offset = |chunk, slots| (Level::Raid10, OFFSET_2, chunk, slots);
    vec![
        (raid5(8, 3), raid5(8, 4)),
        (raid5(8, 4), raid5(8, 6)),
        (raid5(8, 4), raid5(32, 4)),
        (raid5(32, 4), raid5(8, 5)),
        (raid6(8, 5), raid6(16, 7)),
        (near(8, 3), near(8, 4)),
        (near(8, 4), near(8, 7)),
        (near(8, 4), near(32, 4)),
        (near(32, 3), near(8, 5)),
        (near(8, 4), offset(8, 4)),
        (offset(8, 3), offset(8, 5)),
        (offset(16, 5), near(8, 5)),
        ((Level::Raid10, NEAR_3, 8, 4), (Level::Raid10, NEAR_3, 8, 5)),
    ]
}

/// The steps of each change of shape, forwards and backwards, with each of some gaps.
fn all_steps() -> Vec<(Geometry, Geometry, i64, bool, ReshapeSteps)> {
    let mut all = Vec::new();
    for (less, more) in changes() {
        for member_sectors in [320, 352] {
            let (less, more) = (geometry(less, member_sectors), geometry(more, member_sectors));
            for gap in [0, 8, 12, 16, 32, 64, 128, 200] {
                for (before, after, backwards) in
                    [(less.clone(), more.clone(), false), (more.clone(), less.clone(), true)]
                {
                    let steps = ReshapeSteps::new((&before, &after), gap, backwards).unwrap();
                    assert!(steps.stays_behind());
                    all.push((before, after, gap, backwards, steps));
                }
            }
        }
    }
    all
}

/// The sectors of members that hold a sector of the array: all copies, or the data.
fn places(geometry: &Geometry, sector: u64) -> Vec<(u16, u64)> {
    let sector = LogicalSector(sector);
    match geometry {
        Geometry::Mirror(mirror) => {
            let place = |copy| mirror.copy(sector, copy);
            (0..mirror.copies()).map(place).map(|(slot, at)| (slot.0, at.0)).collect()
        }
        Geometry::Stripe(stripe) => {
            let address = stripe.locate(sector);
            let slot = stripe.row_map(address.row).data_slot(address.data_index);
            let at = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
            vec![(slot.0, at)]
        }
        Geometry::Direct(_) => unreachable!("no data of it moves"),
    }
}

/// The sectors of members that a write of these sectors touches. With parity a write touches whole
/// rows.
fn touched(geometry: &Geometry, sectors: Range<u64>) -> HashSet<(u16, u64)> {
    let sectors = sectors.start..sectors.end.min(geometry.capacity_sectors());
    let mut touched: HashSet<_> = sectors.flat_map(|sector| places(geometry, sector)).collect();
    if let Geometry::Stripe(stripe) = geometry {
        let rows: HashSet<u64> = touched.iter().map(|(_, at)| *at).collect();
        let slots = 0..stripe.slots();
        touched = slots.flat_map(|slot| rows.iter().map(move |at| (slot, *at))).collect();
    }
    touched
}

#[test]
fn rows_hold_all_copies() {
    for (before, ..) in all_steps() {
        let rows = DataRows::of(&before).unwrap();
        for sector in 0..before.capacity_sectors() {
            let held = rows.first_of(sector)..rows.end_of(sector + 1);
            assert!(places(&before, sector).iter().all(|(_, at)| held.contains(at)), "{before:?}");
        }
    }
}

#[test]
fn nothing_that_is_needed_is_overwritten() {
    let mut apart = 0;
    for (before, after, gap, backwards, steps) in all_steps() {
        let (step, size) = (steps.step_sectors(), before.capacity_sectors());
        let both = size.min(after.capacity_sectors());
        let positions = (0..=both / step).map(|number| number * step).chain([both]);
        for position in positions.filter(|position| !backwards || *position > 0) {
            if !backwards && position >= both || steps.is_in_place(position) {
                continue;
            }
            apart += 1;
            let (written, needed) = match backwards {
                false => (position..steps.room_end(position), position..size),
                true => (steps.room_start(position)..position, 0..position),
            };
            let ahead = steps.one_step_ahead(position);
            assert!(written.contains(&ahead) || written.end == ahead, "{written:?} {ahead}");
            // Writes are `gap` sectors before the places of reads; backwards, writes are behind the
            // places of reads.
            let (read_by, written_by) = if backwards { (0, gap) } else { (gap, 0) };
            let moved = |places: HashSet<(u16, u64)>, by: i64| -> HashSet<(u16, u64)> {
                places.into_iter().map(|(slot, at)| (slot, at + by.cast_unsigned())).collect()
            };
            let needed = moved(touched(&before, needed), read_by);
            let written = moved(touched(&after, written), written_by);
            assert!(needed.is_disjoint(&written), "{steps:?} at {position}");
        }
    }
    assert!(apart > 1000, "{apart}");
}

#[test]
fn a_gap_of_a_step_is_enough() {
    for (before, after, _, backwards, steps) in all_steps() {
        let of =
            |gap: u64| ReshapeSteps::new((&before, &after), gap.cast_signed(), backwards).unwrap();
        let (with, without) = (of(steps.gap_of_step()), of(0));
        let both = before.capacity_sectors().min(after.capacity_sectors());
        let step = steps.step_sectors();
        let positions = || (0..both.div_ceil(step)).map(|number| number * step + step);
        for position in positions() {
            let position = if backwards { position.min(both) } else { position - step };
            assert!(!with.is_in_place(position), "{with:?} at {position}");
        }
        let nearest = if backwards { step.min(both) } else { 0 };
        assert!(without.is_in_place(nearest), "{without:?}");
    }
}

#[test]
fn a_part_in_place_ends_where_a_step_is_in_place_no_more() {
    let less = geometry((Level::Raid5, 2, 8, 4), 1600);
    for slots in 5..12 {
        let more = geometry((Level::Raid5, 2, 8, slots), 1600);
        for gap in [0, -16] {
            let steps = ReshapeSteps::new((&less, &more), gap, false).unwrap();
            let (step, end) = (steps.step_sectors(), steps.end_in_place(0));
            assert!(end > 0 && end.is_multiple_of(step) && end < less.capacity_sectors() / 2);
            let positions = (0..less.capacity_sectors() / step).map(|number| number * step);
            for position in positions {
                assert_eq!(steps.is_in_place(position), position < end, "{steps:?} {position}");
            }
        }
    }
    let other = geometry((Level::Raid5, 1, 8, 4), 1600);
    let steps = ReshapeSteps::new((&less, &other), 0, false).unwrap();
    assert_eq!(steps.end_in_place(0), less.capacity_sectors(), "another layout, at the same place");
}

#[test]
fn the_part_in_place_is_at_the_start_in_both_directions() {
    for (before, after, gap, backwards, steps) in all_steps() {
        let (step, size) = (steps.step_sectors(), steps.size_sectors());
        let starts = (0..size.div_ceil(step)).map(|number| number * step);
        let in_place = starts.filter(|start| match backwards {
            false => steps.is_in_place(*start),
            true => steps.is_in_place((start + step).min(size)),
        });
        let in_place: Vec<u64> = in_place.filter(|_| steps.can_be_in_place()).collect();
        let end = in_place.last().map_or(0, |start| (start + step).min(size));
        let about = format!("{before:?} to {after:?}, gap {gap}");
        assert_eq!(steps.sectors_in_place(), end, "{about}");
        assert_eq!(in_place.len() as u64, end.div_ceil(step), "no gap: {about}");
    }
}

/// The gap of shapes from a forged superblock takes little time to compute, and the bound is no
/// less than the gap.
#[test]
fn the_largest_shapes_have_a_gap_too() {
    let of = |chunk, slots| geometry((Level::Raid10, NEAR_2, chunk, slots), 1 << 42);
    let (less, more) = (of(8, 1919), of(1 << 31, 1920));
    let steps = ReshapeSteps::new((&less, &more), 0, false).unwrap();
    assert_eq!(steps.gap_of_step(), 3 << 31);
    let near = ReshapeSteps::new((&of(8, 255), &of(8, 256)), 0, false).unwrap();
    assert!(near.gap_of_step() <= 3 * 8, "{near:?}");
}

#[test]
fn shapes_without_rows_move_no_data() {
    let of = |one: Kind, other: Kind| {
        ReshapeSteps::new((&geometry(one, 320), &geometry(other, 320)), 0, false)
    };
    let near = (Level::Raid10, NEAR_2, 8, 4);
    assert_eq!(of(near, (Level::Raid10, FAR_2, 8, 4)), None, "far copies are far away");
    assert_eq!(of(near, (Level::Raid10, NEAR_3, 8, 5)), None, "another number of copies");
    assert_eq!(of(near, (Level::Raid5, 2, 8, 4)), None);
    assert_eq!(of((Level::Raid1, 0, 8, 2), (Level::Raid1, 0, 8, 2)), None);
}
