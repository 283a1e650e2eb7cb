//! The first chunk rows of every raid4, raid5 and raid6 layout, drawn by hand.
//!
//! A column is a slot, a line is a chunk row (`/` separates rows). Digits are data indices within
//! the row, or, in the exponent tables, powers of the generator in Q. Drawn from the descriptions
//! of the layouts in md(4) and in the SNIA DDF specification, not from the output of a program.

use crate::support::{CHUNK, cells, even, stripe};
use braid_geometry::{ChunkRow, Level, Role, Slot, StripeGeometry, parse_layout};

/// A geometry with rows for two turns of the rotation. The drawings show one turn; the test checks
/// two.
fn geometry(level: Level, word: &str, slots: u16) -> StripeGeometry {
    let layout = parse_layout(level, word).unwrap();
    stripe(&even(level, layout, slots, u64::from(CHUNK) * 64))
}

fn check(level: Level, word: &str, drawing: &str) {
    let rows = cells(drawing);
    let slots = u16::try_from(rows[0].len()).unwrap();
    let geometry = geometry(level, word, slots);
    for row in 0..2 * rows.len() {
        let map = geometry.row_map(ChunkRow(row as u64));
        let line = &rows[row % rows.len()];
        assert_eq!(line.len(), usize::from(slots), "{level} {word}: drawing");
        for slot in (0..slots).map(Slot) {
            let drawn = match line[slot.index()] {
                "P" => Role::P,
                "Q" => Role::Q,
                digits => Role::Data(digits.parse().unwrap()),
            };
            assert_eq!(map.role(slot), drawn, "{level} {word} row {row} slot {slot}");
            match drawn {
                Role::P => assert_eq!(map.p_slot(), slot),
                Role::Q => assert_eq!(map.q_slot(), Some(slot)),
                Role::Data(index) => assert_eq!(map.data_slot(index), slot),
            }
        }
    }
}

fn check_exponents(word: &str, drawing: &str) {
    let rows = cells(drawing);
    let slots = u16::try_from(rows[0].len()).unwrap();
    let geometry = geometry(Level::Raid6, word, slots);
    for row in 0..2 * rows.len() {
        let map = geometry.row_map(ChunkRow(row as u64));
        for slot in (0..slots).map(Slot) {
            let drawn = rows[row % rows.len()][slot.index()];
            match map.role(slot) {
                Role::P => assert_eq!(drawn, "P", "{word} row {row}"),
                Role::Q => assert_eq!(drawn, "Q", "{word} row {row}"),
                Role::Data(index) => {
                    let exponent = map.exponent(index);
                    assert_eq!(exponent.to_string(), drawn, "{word} row {row} slot {slot}");
                }
            }
        }
    }
}

#[test]
fn raid4_keeps_parity_on_the_last_slot() {
    check(Level::Raid4, "default", "0 1 2 P");
    check(Level::Raid4, "default", "0 P");
}

#[test]
fn raid4_ignores_the_layout_number_as_md_does() {
    for layout in [0, 2, 5, 99] {
        let geometry = stripe(&even(Level::Raid4, layout, 4, 1024));
        assert_eq!(geometry.row_map(ChunkRow(1)).p_slot(), Slot(3));
        assert_eq!(geometry.layout(), layout);
    }
}

#[test]
fn raid5_rotations() {
    check(Level::Raid5, "left-asymmetric", "0 1 2 P / 0 1 P 2 / 0 P 1 2 / P 0 1 2");
    check(Level::Raid5, "right-asymmetric", "P 0 1 2 / 0 P 1 2 / 0 1 P 2 / 0 1 2 P");
    check(Level::Raid5, "left-symmetric", "0 1 2 P / 1 2 P 0 / 2 P 0 1 / P 0 1 2");
    check(Level::Raid5, "right-symmetric", "P 0 1 2 / 2 P 0 1 / 1 2 P 0 / 0 1 2 P");
    check(Level::Raid5, "parity-first", "P 0 1 2");
    check(Level::Raid5, "parity-last", "0 1 2 P");
}

#[test]
fn raid5_of_two_slots_is_a_mirror_that_turns() {
    check(Level::Raid5, "left-symmetric", "0 P / P 0");
    check(Level::Raid5, "right-asymmetric", "P 0 / 0 P");
}

#[test]
fn raid6_rotations() {
    let raid6 = |word, drawing| check(Level::Raid6, word, drawing);
    raid6("left-asymmetric", "Q 0 1 2 P / 0 1 2 P Q / 0 1 P Q 2 / 0 P Q 1 2 / P Q 0 1 2");
    raid6("right-asymmetric", "P Q 0 1 2 / 0 P Q 1 2 / 0 1 P Q 2 / 0 1 2 P Q / Q 0 1 2 P");
    raid6("left-symmetric", "Q 0 1 2 P / 0 1 2 P Q / 1 2 P Q 0 / 2 P Q 0 1 / P Q 0 1 2");
    raid6("right-symmetric", "P Q 0 1 2 / 2 P Q 0 1 / 1 2 P Q 0 / 0 1 2 P Q / Q 0 1 2 P");
    raid6("parity-first", "P Q 0 1 2");
    raid6("parity-last", "0 1 2 P Q");
}

#[test]
fn raid6_rotations_of_ddf() {
    let raid6 = |word, drawing| check(Level::Raid6, word, drawing);
    raid6("ddf-zero-restart", "P Q 0 1 2 / 0 P Q 1 2 / 0 1 P Q 2 / 0 1 2 P Q / Q 0 1 2 P");
    raid6("ddf-N-restart", "0 1 2 P Q / 0 1 P Q 2 / 0 P Q 1 2 / P Q 0 1 2 / Q 0 1 2 P");
    raid6("ddf-N-continue", "0 1 2 Q P / 1 2 Q P 0 / 2 Q P 0 1 / Q P 0 1 2 / P 0 1 2 Q");
}

#[test]
fn raid6_rotations_with_q_on_the_last_slot() {
    let raid6 = |word, drawing| check(Level::Raid6, word, drawing);
    raid6("left-asymmetric-6", "0 1 2 P Q / 0 1 P 2 Q / 0 P 1 2 Q / P 0 1 2 Q");
    raid6("right-asymmetric-6", "P 0 1 2 Q / 0 P 1 2 Q / 0 1 P 2 Q / 0 1 2 P Q");
    raid6("left-symmetric-6", "0 1 2 P Q / 1 2 P 0 Q / 2 P 0 1 Q / P 0 1 2 Q");
    raid6("right-symmetric-6", "P 0 1 2 Q / 2 P 0 1 Q / 1 2 P 0 Q / 0 1 2 P Q");
    raid6("parity-first-6", "P 0 1 2 Q");
}

#[test]
fn exponents_are_counted_from_the_slot_after_q() {
    check_exponents("left-asymmetric", "Q 0 1 2 P / 0 1 2 P Q / 1 2 P Q 0 / 2 P Q 0 1 / P Q 0 1 2");
    check_exponents(
        "right-asymmetric",
        "P Q 0 1 2 / 2 P Q 0 1 / 1 2 P Q 0 / 0 1 2 P Q / Q 0 1 2 P",
    );
    check_exponents("left-symmetric", "Q 0 1 2 P / 0 1 2 P Q / 1 2 P Q 0 / 2 P Q 0 1 / P Q 0 1 2");
    check_exponents("right-symmetric", "P Q 0 1 2 / 2 P Q 0 1 / 1 2 P Q 0 / 0 1 2 P Q / Q 0 1 2 P");
    check_exponents("parity-first", "P Q 0 1 2");
    check_exponents("parity-last", "0 1 2 P Q");
}

#[test]
fn exponents_skip_p_where_q_is_on_the_last_slot() {
    check_exponents("left-asymmetric-6", "0 1 2 P Q / 0 1 P 2 Q / 0 P 1 2 Q / P 0 1 2 Q");
    check_exponents("right-asymmetric-6", "P 0 1 2 Q / 0 P 1 2 Q / 0 1 P 2 Q / 0 1 2 P Q");
    check_exponents("left-symmetric-6", "0 1 2 P Q / 0 1 P 2 Q / 0 P 1 2 Q / P 0 1 2 Q");
    check_exponents("right-symmetric-6", "P 0 1 2 Q / 0 P 1 2 Q / 0 1 P 2 Q / 0 1 2 P Q");
    check_exponents("parity-first-6", "P 0 1 2 Q");
}

#[test]
fn exponents_of_ddf_are_slot_numbers() {
    check_exponents(
        "ddf-zero-restart",
        "P Q 2 3 4 / 0 P Q 3 4 / 0 1 P Q 4 / 0 1 2 P Q / Q 1 2 3 P",
    );
    check_exponents("ddf-N-restart", "0 1 2 P Q / 0 1 P Q 4 / 0 P Q 3 4 / P Q 2 3 4 / Q 1 2 3 P");
    check_exponents("ddf-N-continue", "0 1 2 Q P / 0 1 Q P 4 / 0 Q P 3 4 / Q P 2 3 4 / P 1 2 3 Q");
}

#[test]
fn chunks_follow_each_other_along_a_row() {
    // left-symmetric on four slots, drawn with the array's chunk numbers, as in every md guide.
    let drawing = cells("0 1 2 P / 4 5 P 3 / 8 P 6 7 / P 9 10 11 / 12 13 14 P");
    let geometry = geometry(Level::Raid5, "left-symmetric", 4);
    for (row, line) in drawing.iter().enumerate() {
        for (slot, cell) in line.iter().enumerate().filter(|cell| *cell.1 != "P") {
            let chunk: u64 = cell.parse().unwrap();
            let sector = chunk * u64::from(CHUNK) + 5;
            let address = geometry.locate(braid_geometry::LogicalSector(sector));
            assert_eq!(address.row, ChunkRow(row as u64));
            assert_eq!(address.offset_sectors, 5);
            let map = geometry.row_map(address.row);
            assert_eq!(map.data_slot(address.data_index).index(), slot, "chunk {chunk}");
        }
    }
}
