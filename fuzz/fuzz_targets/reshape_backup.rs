//! The head of mdadm's backup of a reshape, and the parts of the backup that it names.
//!
//! Input: 1 byte of flags, then the head. Flag 1 makes magic and sums valid first.
//!
//! An accepted head names sectors that exist in some array, and the places of these sectors.
#![no_main]

use braid_ondisk::{RESHAPE_BACKUP_BYTES, reshape_backup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((flags, head)) = input.split_first() else { return };
    let mut head = head.to_vec();
    if flags & 1 != 0 {
        head.resize(head.len().max(RESHAPE_BACKUP_BYTES), 0);
        head[..15].copy_from_slice(b"md_backup_data-");
        head[15] = if flags & 2 != 0 { b'2' } else { b'1' };
        let sum = |count: u32| (0..count).fold(0_u32, |sum, _| (sum << 3).wrapping_add(0x6d));
        head[64..68].copy_from_slice(&sum(64).to_le_bytes());
        head[96..100].copy_from_slice(&sum(96).to_le_bytes());
    }
    let Ok(backup) = reshape_backup(&head) else { return };
    assert!(backup.parts.len() <= 2);
    for part in &backup.parts {
        assert!(part.length_sectors > 0);
        for start in [part.array_start_sectors, part.at_sectors] {
            assert!(start.checked_add(part.length_sectors).is_some_and(|end| end <= 1 << 54));
        }
    }
});
