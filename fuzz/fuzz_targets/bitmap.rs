//! The bitmap superblock. Input: 16 bytes of array UUID, then the bytes.
#![no_main]

use braid_ondisk::UnvalidatedBitmap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((uuid, bytes)) = input.split_first_chunk::<16>() else { return };
    let Some(found) = UnvalidatedBitmap::recognise(bytes) else { return };
    if let Ok(bitmap) = found.validate(uuid) {
        assert!(bitmap.total_bytes() >= 256 + bitmap.marks() / 8);
    }
});
