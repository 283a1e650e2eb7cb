//! The PPL header. Input: 16 bytes of array UUID, 1 byte of flags, then the header.
//!
//! With flag 1 signature and checksum are made right first: the fuzzer cannot guess a CRC.
#![no_main]

use braid_ondisk::UnvalidatedPplHeader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, bytes)) = input.split_first_chunk::<17>() else { return };
    let uuid: &[u8; 16] = head.first_chunk().unwrap();
    let mut bytes = bytes.to_vec();
    if head[16] & 1 != 0 {
        bytes.resize(4096, 0);
        bytes[512..516].copy_from_slice(&crc32c::crc32c(uuid).to_le_bytes());
        bytes[532..536].fill(0);
        let checksum = crc32c::crc32c(&bytes);
        bytes[532..536].copy_from_slice(&checksum.to_le_bytes());
    }
    let Some(found) = UnvalidatedPplHeader::recognise(&bytes, uuid) else { return };
    if let Ok(header) = found.validate() {
        assert!(header.entries.len() <= 148);
    }
});
