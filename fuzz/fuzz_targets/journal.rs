//! The journal's meta block. Input: 16 bytes of array UUID, 1 byte of flags, then the block.
//!
//! With flag 1 magic, version and checksum are made right first: the fuzzer cannot guess a CRC.
#![no_main]

use braid_ondisk::UnvalidatedJournalMeta;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, bytes)) = input.split_first_chunk::<17>() else { return };
    let uuid: &[u8; 16] = head.first_chunk().unwrap();
    let mut bytes = bytes.to_vec();
    if head[16] & 1 != 0 {
        bytes.resize(4096, 0);
        bytes[..4].copy_from_slice(&0x6433_c509_u32.to_le_bytes());
        bytes[4..8].fill(0);
        bytes[8] = 1;
        let checksum = !crc32c::crc32c_append(crc32c::crc32c(uuid), &bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
    let Some(found) = UnvalidatedJournalMeta::recognise(&bytes) else { return };
    if let Ok(meta) = found.validate(uuid) {
        // Each payload takes at least 8 bytes of a block of 4096.
        assert!(meta.payloads.len() <= 508);
    }
});
