//! The PPL header, and the log that begins with it. Input: 16 bytes of array UUID, 1 byte of flags,
//! then the header, then the rest of the area.
//!
//! Flag 1 makes signature and checksum valid first: the fuzzer cannot guess a CRC. With flag 2 the
//! area is a ring. With flag 4 the header is that of braid's own log, with magic, UUID and checksum
//! made valid.
#![no_main]

use braid_ondisk::{OwnLogHead, PplLog, PplPlace, UnvalidatedPplHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, bytes)) = input.split_first_chunk::<17>() else { return };
    let uuid: &[u8; 16] = head.first_chunk().unwrap();
    let mut bytes = bytes.to_vec();
    if head[16] & 4 != 0 && bytes.len() >= 4096 {
        bytes[..8].copy_from_slice(b"braidlog");
        bytes[12..16].fill(0);
        bytes[16..32].copy_from_slice(uuid);
        let checksum = crc32c::crc32c(&bytes[..4096]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        let read = OwnLogHead::read(&bytes, uuid).expect("it has its magic");
        if let Ok(head) = read {
            assert_eq!(OwnLogHead::read(&head.to_bytes(uuid), uuid), Some(Ok(head)));
        }
        return;
    }
    if head[16] & 1 != 0 {
        let area_bytes = bytes.len().next_multiple_of(4096).max(4096);
        bytes.resize(area_bytes, 0);
        bytes[512..516].copy_from_slice(&crc32c::crc32c(uuid).to_le_bytes());
        bytes[532..536].fill(0);
        let checksum = crc32c::crc32c(&bytes[..4096]);
        bytes[532..536].copy_from_slice(&checksum.to_le_bytes());
    }
    let size_sectors = u16::try_from(bytes.len() / 512).unwrap_or(u16::MAX);
    let place = PplPlace { offset_sectors: 8, size_sectors, multiple: head[16] & 2 != 0 };
    if let Ok(PplLog { newest, older }) = PplLog::read(&bytes, place, uuid) {
        for record in newest.iter().chain(&older) {
            let partial: usize = record.entries.iter().map(|(_, one)| one.partial.len()).sum();
            assert!(record.header_sector * 512 + 4096 + partial as u64 <= bytes.len() as u64);
        }
    }
    let Some(found) = UnvalidatedPplHeader::recognise(&bytes, uuid) else { return };
    if let Ok(header) = found.validate() {
        assert!(header.entries.len() <= 148);
    }
});
