//! A lockless bitmap as the writer makes it, byte by byte: the fixture is also the fuzzer's seed.

use std::path::Path;

use braid_ondisk::{Bitmap, BitmapSuperblock, Bits, LocklessMarks, MarkState, UnvalidatedBitmap};

const UUID: [u8; 16] = *b"uuid-of-an-array";

/// 20 marks of 64 KiB: two written and synced, one dirty, one that needs sync, the rest unwritten.
fn made() -> (BitmapSuperblock, Bits, LocklessMarks) {
    let head = BitmapSuperblock::new_lockless(20 * 128, 256).unwrap();
    let head = BitmapSuperblock { events: 17, events_cleared: 15, ..head };
    let mut bits = Bits::none(20 * 128, 128);
    let mut marks = LocklessMarks::unwritten(20 * 128, 128);
    (0..4).for_each(|mark| marks.unwritten.clear(mark));
    [2, 3].into_iter().for_each(|mark| bits.set(mark));
    marks.unsynced.set(3);
    (head, bits, marks)
}

#[test]
fn the_writer_makes_what_the_fixture_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/bitmap/lockless");
    let (head, bits, marks) = made();
    let input = [&UUID[..], &head.area(&UUID, &bits, Some(&marks))].concat();
    if std::env::var_os("BRAID_MAKE_FIXTURES").is_some() {
        std::fs::write(&path, &input).unwrap();
    }
    assert!(std::fs::read(path).unwrap() == input, "other bytes than the fixture has");
    let area = &input[16..];
    let read = UnvalidatedBitmap::recognise(area).unwrap().validate(&UUID).unwrap();
    let read = Bitmap::read(read, area).unwrap();
    let (read_marks, counts) = read.marks.unwrap();
    assert_eq!((read.superblock, read.bits, read_marks), (head, bits, marks));
    let counts = MarkState::ALL.map(|state| counts.of(state));
    assert_eq!(counts, [16, 2, 1, 1, 0, 0, 0, 0]);
}
