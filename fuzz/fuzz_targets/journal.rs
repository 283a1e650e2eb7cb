//! The journal's meta block and the journal. Input: 16 bytes of UUID, 1 byte of flags, then the
//! journal's ring.
//!
//! Flag 1 makes magic, version and checksum of the first block valid: the fuzzer cannot guess a
//! CRC.
#![no_main]

use braid_ondisk::{JournalArea, JournalLog, UnvalidatedJournalMeta};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, bytes)) = input.split_first_chunk::<17>() else { return };
    let uuid: &[u8; 16] = head.first_chunk().unwrap();
    let mut bytes = bytes.to_vec();
    if head[16] & 1 != 0 {
        bytes.resize(bytes.len().next_multiple_of(4096).max(4096), 0);
        bytes[..4].copy_from_slice(&0x6433_c509_u32.to_le_bytes());
        bytes[4..8].fill(0);
        bytes[8] = 1;
        let checksum = !crc32c::crc32c_append(crc32c::crc32c(uuid), &bytes[..4096]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
    let ring_sectors = bytes.len() as u64 / 4096 * 8;
    if ring_sectors > 0 {
        let area = JournalArea { start_sector: 0, ring_sectors, tail_sectors: 0 };
        let log = JournalLog::read(area, uuid, &mut |position, block| {
            let start = position as usize * 512;
            block.copy_from_slice(&bytes[start..start + block.len()]);
            true
        });
        if let Ok(log) = log {
            assert!(log.meta_blocks <= ring_sectors / 8 && log.end_sectors < ring_sectors);
        }
    }
    let Some(found) = UnvalidatedJournalMeta::recognise(&bytes) else { return };
    if let Ok(meta) = found.validate(uuid) {
        // Each payload takes at least 8 bytes of a block of 4096.
        assert!(meta.payloads.len() <= 508);
    }
});
