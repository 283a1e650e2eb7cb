//! The chunk rows of raid10 layouts and of raid1, drawn by hand.
//!
//! A column is a slot, a line is a chunk row of the members, a number is the array's chunk at that
//! place; `-` is an unused chunk. Drawn from the description of the layouts in md(4).

use crate::support::{CHUNK, cells, even, mirror};
use braid_geometry::{Level, LogicalSector, MemberSector, Slot};

/// Checks a layout against a drawing of all rows of the members.
fn check(layout: u32, drawing: &str) {
    let rows = cells(drawing);
    let slots = u16::try_from(rows[0].len()).unwrap();
    // Each member has 7 sectors beyond its whole chunks, which no layout may use.
    let member_sectors = rows.len() as u64 * u64::from(CHUNK) + 7;
    let geometry = mirror(&even(Level::Raid10, layout, slots, member_sectors));
    let mut chunks_end = 0;
    for (row, line) in rows.iter().enumerate() {
        assert_eq!(line.len(), usize::from(slots), "{layout:#x}: drawing");
        for slot in (0..slots).map(Slot) {
            let member = MemberSector(row as u64 * u64::from(CHUNK) + 3);
            let found = geometry.logical(slot, member);
            let drawn = line[slot.index()];
            if drawn == "-" {
                assert_eq!(found, None, "{layout:#x} row {row} slot {slot}");
                continue;
            }
            let chunk: u64 = drawn.parse().unwrap();
            chunks_end = chunks_end.max(chunk + 1);
            let (sector, copy) = found.unwrap();
            let expected = LogicalSector(chunk * u64::from(CHUNK) + 3);
            assert_eq!(sector, expected, "{layout:#x} row {row} slot {slot}");
            assert_eq!(geometry.copy(sector, copy), (slot, member));
        }
    }
    assert_eq!(geometry.capacity_sectors(), chunks_end * u64::from(CHUNK), "{layout:#x}");
    assert_eq!(geometry.used_sectors(), member_sectors - 7);
}

#[test]
fn near_copies() {
    check(0x102, "0 0 1 1 / 2 2 3 3");
    check(0x102, "0 0 1 / 1 2 2 / 3 3 4 / 4 5 5");
    check(0x103, "0 0 0 1 / 1 1 2 2 / 2 3 3 3");
    check(0x102, "0 0 / 1 1 / 2 2");
}

#[test]
fn near_copies_leave_what_does_not_fill_a_chunk_everywhere() {
    check(0x102, "0 0 1 / 1 2 2 / 3 3 -");
    check(0x103, "0 0 0 1 / 1 1 - -");
}

#[test]
fn far_copies_begin_where_the_first_deal_ends() {
    check(0x201, "0 1 2 / 3 4 5 / 2 0 1 / 5 3 4");
    check(0x201, "0 1 / 2 3 / 1 0 / 3 2");
    check(0x301, "0 1 2 3 / 4 5 6 7 / 3 0 1 2 / 7 4 5 6 / 2 3 0 1 / 6 7 4 5");
}

#[test]
fn far_stride_rounds_down_to_whole_rows() {
    // Members have five chunks: the far copies start at row 2, and row 4 stays unused.
    let geometry = mirror(&even(Level::Raid10, 0x201, 2, 5 * u64::from(CHUNK)));
    assert_eq!(geometry.used_sectors(), 4 * u64::from(CHUNK));
    assert_eq!(geometry.capacity_sectors(), 4 * u64::from(CHUNK));
    let second = geometry.copy(LogicalSector(0), 1);
    assert_eq!(second, (Slot(1), MemberSector(2 * u64::from(CHUNK))));
    assert_eq!(geometry.logical(Slot(0), MemberSector(4 * u64::from(CHUNK))), None);
}

#[test]
fn offset_copies_follow_in_the_next_row() {
    check(0x1_0201, "0 1 2 / 2 0 1 / 3 4 5 / 5 3 4");
    check(0x1_0201, "0 1 2 3 / 3 0 1 2");
    check(0x1_0301, "0 1 2 3 / 3 0 1 2 / 2 3 0 1 / 4 5 6 7 / 7 4 5 6 / 6 7 4 5");
}

#[test]
fn offset_without_far_copies_means_nothing() {
    check(0x1_0102, "0 0 1 / 1 2 2 / 3 3 4 / 4 5 5");
}

#[test]
fn near_and_far_copies_together() {
    check(0x202, "0 0 1 1 / 2 2 3 3 / 1 1 0 0 / 3 3 2 2");
    check(0x202, "0 0 1 1 2 / 2 3 3 4 4 / 1 2 0 0 1 / 4 4 2 3 3");
    check(0x1_0202, "0 0 1 1 / 1 1 0 0 / 2 2 3 3 / 3 3 2 2");
}

#[test]
fn copies_are_numbered_near_by_far_as_in_md() {
    let geometry = mirror(&even(Level::Raid10, 0x202, 5, 4 * u64::from(CHUNK)));
    let slots = [0, 1, 2, 3].map(|copy| geometry.copy(LogicalSector(0), copy).0.0);
    // The first near copy, its far copy, the second near copy, its far copy.
    assert_eq!(slots, [0, 2, 1, 3]);
}

#[test]
fn raid1_is_the_same_everywhere() {
    let geometry = mirror(&even(Level::Raid1, 0, 3, 1001));
    assert_eq!(geometry.capacity_sectors(), 1001);
    assert_eq!(geometry.used_sectors(), 1001);
    assert_eq!(geometry.copies(), 3);
    assert_eq!(geometry.contiguous_sectors(LogicalSector(1)), 1000);
    assert_eq!(geometry.copy(LogicalSector(1000), 2), (Slot(2), MemberSector(1000)));
    assert_eq!(geometry.logical(Slot(1), MemberSector(5)), Some((LogicalSector(5), 1)));
    assert_eq!(geometry.logical(Slot(1), MemberSector(1001)), None);
    assert_eq!(geometry.logical(Slot(3), MemberSector(0)), None);
}
