//! The bitmap superblock, and its bits or lockless marks. Input: 16 bytes of array UUID, then the
//! bytes of the bitmap.
#![no_main]

use braid_ondisk::{Bitmap, BitmapKind, UnvalidatedBitmap};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((uuid, bytes)) = input.split_first_chunk::<16>() else { return };
    let Some(found) = UnvalidatedBitmap::recognise(bytes) else { return };
    let Ok(head) = found.validate(uuid) else { return };
    assert!(head.total_bytes() >= 256 + head.marks() / 8);
    let Ok(read) = Bitmap::read(head, bytes) else { return };
    assert_eq!(read.marks.is_some(), head.kind == BitmapKind::Lockless);
    if head.kind == BitmapKind::HostEndian {
        return;
    }
    // The written bitmap reads as the original, but lacks the flags that name its maker.
    let marks = read.marks.as_ref().map(|(marks, _)| marks);
    let area = head.area(uuid, &read.bits, marks);
    let found = UnvalidatedBitmap::recognise(&area).expect("it has its magic");
    let again = Bitmap::read(found.validate(uuid).expect("it was valid"), &area);
    let again = again.expect("it is whole");
    assert_eq!(again.bits, read.bits);
    assert_eq!(again.marks.map(|(marks, _)| marks), read.marks.map(|(marks, _)| marks));
});
