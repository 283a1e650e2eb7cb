//! Merging the bitmaps of an array's members, and when they are believed.

use crate::kit::{EVENTS, add_bitmap, array, judge, superblock};
use braid_assembly::AssembledBitmap;
use braid_geometry::Level;
use braid_ondisk::{Bitmap, BitmapKind};

fn set_bits(member: &mut braid_assembly::ProbedMember, bits: &[u64]) {
    let bitmap = member.bitmap.as_mut().expect("it has one").as_mut().expect("a sound one");
    bits.iter().for_each(|bit| bitmap.bits.set(*bit));
}

fn with_bitmaps(events: [u64; 3]) -> Vec<braid_assembly::ProbedMember> {
    let mut members = array(Level::Raid5, 3);
    for (member, events) in members.iter_mut().zip(events) {
        add_bitmap(std::slice::from_mut(member), BitmapKind::Classic, events);
    }
    members
}

/// Members of a RAID-5 with lockless bitmaps of these events. `marks` are the bytes in which each
/// member's marks differ from the common ones.
fn with_marks(events: [u64; 3], marks: [&[(u64, u8)]; 3]) -> Vec<braid_assembly::ProbedMember> {
    let mut members = array(Level::Raid5, 3);
    for ((member, events), marks) in members.iter_mut().zip(events).zip(marks) {
        add_bitmap(std::slice::from_mut(member), BitmapKind::Lockless, events);
        let head = member.bitmap.as_ref().expect("it has one").as_ref().expect("a sound one");
        let head = head.superblock;
        let mut area = vec![1; usize::try_from(head.total_bytes()).expect("few")];
        for (mark, byte) in marks {
            area[1024 + usize::try_from(*mark).expect("few")] = *byte;
        }
        member.bitmap = Some(Bitmap::read(head, &area));
    }
    members
}

fn together(members: &[braid_assembly::ProbedMember]) -> AssembledBitmap {
    let array = judge(members).array.expect("an array");
    assert_eq!(array.read_only, None);
    array.bitmap.expect("it has a bitmap")
}

#[test]
fn a_bit_that_any_member_has_counts() {
    let mut members = with_bitmaps([EVENTS, EVENTS, EVENTS + 1]);
    set_bits(&mut members[0], &[3]);
    set_bits(&mut members[2], &[9]);
    let bitmap = together(&members);
    assert!(bitmap.is_current);
    assert_eq!(bitmap.bits.iter().collect::<Vec<_>>(), [3, 9]);
    assert_eq!(bitmap.superblock.events, EVENTS + 1);
}

#[test]
fn bits_of_somebody_who_stopped_keeping_them_are_not_believed() {
    let mut members = with_bitmaps([EVENTS - 1, EVENTS, EVENTS - 1]);
    set_bits(&mut members[0], &[3]);
    set_bits(&mut members[1], &[4]);
    assert_eq!(together(&members).bits.iter().collect::<Vec<_>>(), [4], "one counts as many");
    let bitmap = together(&with_bitmaps([EVENTS - 1; 3]));
    assert!(!bitmap.is_current);
    assert_eq!(bitmap.bits.set_count(), bitmap.bits.count(), "so all of it may differ");
}

/// The superblocks were restored from a copy, so the bitmap is far ahead of them.
#[test]
fn a_bitmap_that_is_far_ahead_is_not_believed() {
    assert!(together(&with_bitmaps([EVENTS + 1; 3])).is_current);
    assert!(!together(&with_bitmaps([EVENTS + 2; 3])).is_current);
}

#[test]
fn a_member_without_a_bitmap_gets_one() {
    let mut members = with_bitmaps([EVENTS; 3]);
    set_bits(&mut members[1], &[5]);
    members[0].bitmap = None;
    assert_eq!(together(&members).bits.iter().collect::<Vec<_>>(), [5]);
    members.iter_mut().for_each(|member| member.bitmap = None);
    let bitmap = together(&members);
    assert!(!bitmap.is_current && bitmap.bits.set_count() == bitmap.bits.count());
    assert_eq!(bitmap.superblock.chunk_bytes, 64 << 20, "as mdadm chooses");
}

#[test]
fn a_bitmap_of_another_size_is_not_believed() {
    let mut members = with_bitmaps([EVENTS; 3]);
    for member in &mut members {
        let bitmap = member.bitmap.as_mut().expect("it has one").as_mut().expect("a sound one");
        bitmap.superblock.sync_size_sectors -= 128;
        bitmap.bits = braid_ondisk::Bits::none(bitmap.superblock.sync_size_sectors, 128);
    }
    let bitmap = together(&members);
    let size = superblock(&members[0]).array.member_size_sectors;
    assert!(!bitmap.is_current);
    assert_eq!((bitmap.bits.sectors(), bitmap.superblock.sync_size_sectors), (size, size));
}

#[test]
fn what_any_lockless_bitmap_calls_written_is() {
    let members = with_marks(
        [EVENTS, EVENTS, EVENTS + 1],
        [&[(0, 0), (1, 0), (2, 2), (3, 7)], &[(0, 0), (1, 3), (2, 2), (3, 0)], &[(0, 0), (2, 9)]],
    );
    let bitmap = together(&members);
    assert!(bitmap.is_current);
    let marks = bitmap.marks.expect("they are lockless");
    let set = |bits: &braid_ondisk::Bits| bits.iter().collect::<Vec<_>>();
    assert_eq!(set(&bitmap.bits), [1, 2]);
    assert_eq!(set(&marks.unwritten), [0], "the third has no word of the others");
    assert_eq!(set(&marks.unsynced), [1, 2], "a byte that no state has needs sync");
}

/// If no lockless bitmap is believed, it is unknown which regions lack parity. Then everything
/// needs sync, even after a clean stop.
#[test]
fn of_a_lockless_bitmap_that_is_not_believed_nothing_is_unwritten() {
    let bitmap = together(&with_marks([EVENTS - 1; 3], [&[(0, 0)]; 3]));
    let marks = bitmap.marks.expect("they are lockless");
    assert!(!bitmap.is_current && marks.unwritten.is_empty());
    assert_eq!(marks.unsynced.set_count(), bitmap.bits.count());
}
