//! The checker of layouts: compares places of bytes with drawings of md's layouts.
//!
//! All other checks use the engine's geometry, and would be wrong together with it. This checker
//! compares the geometry of each world with drawings that share no code with it. For most layouts
//! the first row is drawn, and turns by one slot for each row. For the others parity is put among
//! ascending data, and for raid10 chunks are dealt like cards. Only worlds with members of equal
//! size are compared.

use std::collections::BTreeSet;

use braid_geometry::{
    ChunkRow, Geometry, Level, LogicalSector, MemberSector, MirrorGeometry, Role, RowMap, Slot,
    StripeGeometry,
};

use crate::content::places;
use crate::create::Design;

/// Compares the geometry of an array with the drawing of its design.
///
/// # Panics
/// At the first difference.
pub(crate) fn check(design: &Design, geometry: &Geometry) {
    match geometry {
        Geometry::Direct(_) => check_direct(design, geometry),
        Geometry::Mirror(mirror) => check_mirror(design, mirror),
        Geometry::Stripe(stripe) => check_stripe(design, stripe),
    }
}

fn check_direct(design: &Design, geometry: &Geometry) {
    let (chunk, slots) = (u64::from(design.chunk_sectors), u64::from(design.slots));
    let member = design.rows * chunk;
    if geometry.capacity_sectors() != slots * member {
        return;
    }
    for sector in 0..geometry.capacity_sectors() {
        let (number, offset) = (sector / chunk, sector % chunk);
        let (slot, place) = match design.level {
            Level::Linear => (sector / member, sector % member),
            _ => (number % slots, number / slots * chunk + offset),
        };
        let expected = vec![(Slot(slot as u16), MemberSector(place))];
        assert_eq!(places(geometry, sector), expected, "sector {sector} lies elsewhere");
    }
}

fn check_mirror(design: &Design, mirror: &MirrorGeometry) {
    let (chunk, slots) = (u64::from(design.chunk_sectors), u64::from(design.slots));
    let byte = |shift: u32| u64::from(design.layout >> shift & 0xff);
    let mut expected: BTreeSet<(u64, u64, u64)> = BTreeSet::new();
    if design.level == Level::Raid1 {
        let copies = |sector| (0..slots).map(move |slot| (sector, slot, sector));
        expected.extend((0..mirror.capacity_sectors()).flat_map(copies));
    } else {
        // Deals chunks like cards round the slots, each chunk `near` times, in `far` deals. Each
        // deal begins `near` slots further on.
        let (near, far, is_offset) = (byte(0), byte(8), byte(16) == 1);
        let rows = design.rows / far;
        let cards = (0..rows * slots).filter(|card| card / near < rows * slots / near);
        for (card, copy) in cards.flat_map(|card| (0..far).map(move |copy| (card, copy))) {
            let slot = (card + copy * near) % slots;
            let row = card / slots;
            let row = if is_offset { far * row + copy } else { copy * rows + row };
            let sectors = (0..chunk).map(|at| (card / near * chunk + at, slot, row * chunk + at));
            expected.extend(sectors);
        }
    }
    let copies = |sector| (0..mirror.copies()).map(move |copy| (sector, copy));
    let found = (0..mirror.capacity_sectors()).flat_map(copies).map(|(sector, copy)| {
        let (slot, place) = mirror.copy(LogicalSector(sector), copy);
        (sector, u64::from(slot.0), place.0)
    });
    let found: BTreeSet<_> = found.collect();
    let wrong = found.symmetric_difference(&expected).next();
    assert!(wrong.is_none(), "(sector, slot, place) {wrong:?} is in one drawing only");
}

fn check_stripe(design: &Design, stripe: &StripeGeometry) {
    let slots = usize::from(design.slots);
    let chunk = u64::from(design.chunk_sectors);
    for row in 0..design.rows {
        let map = stripe.row_map(ChunkRow(row));
        let layout = if design.level == Level::Raid4 { 5 } else { design.layout };
        let cells = cells(layout, slots, design.level == Level::Raid6, row as usize);
        let found: Vec<Role> = (0..design.slots).map(|slot| map.role(Slot(slot))).collect();
        assert_eq!(found, cells, "row {row} differs from its drawing");
        for (slot, cell) in (0..).map(Slot).zip(&cells) {
            let there = match cell {
                Role::Data(index) => map.data_slot(*index) == slot,
                Role::P => map.p_slot() == slot,
                Role::Q => map.q_slot() == Some(slot),
            };
            assert!(there, "row {row} has {cell:?} elsewhere than in slot {slot}");
        }
        check_exponents(layout, &cells, &map);
        let data = u64::from(map.data_slots());
        for index in 0..data {
            let address = stripe.locate(LogicalSector((row * data + index) * chunk + chunk - 1));
            let found = (address.row.0, u64::from(address.data_index), address.offset_sectors);
            assert_eq!(found, (row, index, design.chunk_sectors - 1), "a chunk is elsewhere");
        }
        assert_eq!(stripe.row_start(ChunkRow(row)).0, row * chunk, "row {row} is elsewhere");
    }
}

/// Checks the exponents of Q's sum: data columns count from the slot after Q on, round the end; in
/// ddf layouts each column counts by its slot.
fn check_exponents(layout: u32, cells: &[Role], map: &RowMap) {
    let Some(q) = cells.iter().position(|cell| *cell == Role::Q) else { return };
    let round = (q + 1..cells.len()).chain(0..q);
    let data = round.filter_map(|slot| match cells[slot] {
        Role::Data(index) => Some((slot, index)),
        Role::P | Role::Q => None,
    });
    for (turn, (slot, index)) in data.enumerate() {
        let expected = if (8..=10).contains(&layout) { slot } else { turn };
        let found = usize::from(map.exponent(index));
        assert_eq!(found, expected, "the exponent of data {index} in {cells:?}");
    }
}

/// The roles of the slots in a chunk row, in order.
fn cells(layout: u32, slots: usize, has_q: bool, row: usize) -> Vec<Role> {
    if layout >= 16 {
        let mut cells = cells(layout - 16, slots - 1, false, row);
        cells.push(Role::Q);
        return cells;
    }
    let count = slots - 1 - usize::from(has_q);
    let data = (0..count as u16).map(Role::Data);
    let q = has_q.then_some(Role::Q);
    let turn = row % slots;
    let place = match layout {
        2 => {
            let mut cells: Vec<Role> = q.into_iter().chain(data).chain([Role::P]).collect();
            cells.rotate_left(turn);
            return cells;
        }
        3 => {
            let mut cells: Vec<Role> = [Role::P].into_iter().chain(q).chain(data).collect();
            cells.rotate_right(turn);
            return cells;
        }
        10 => {
            let mut cells: Vec<Role> = data.chain(q).chain([Role::P]).collect();
            cells.rotate_left(turn);
            return cells;
        }
        0 => slots - 1 - turn,
        1 | 8 => turn,
        4 => 0,
        5 => count,
        9 => slots - 1 - (row + 1) % slots,
        _ => unreachable!("no such layout is designed: {layout}"),
    };
    let mut data = data;
    let after = (place + 1) % slots;
    let cell = |slot: usize| match slot {
        slot if slot == place => Role::P,
        slot if has_q && slot == after => Role::Q,
        _ => data.next().expect("as many as there are slots left"),
    };
    (0..slots).map(cell).collect()
}
