//! The bad-block log. Input: 1 byte of size in sectors, 1 byte of shift, then the log.
//!
//! A log that is read, written and read again must be the same.
#![no_main]

use braid_ondisk::{BadBlockLog, BadBlockLogPlace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(([size, shift], log)) = input.split_first_chunk::<2>() else { return };
    let size_sectors = u16::from(size % 9);
    let place = BadBlockLogPlace { offset_sectors: 16, size_sectors, shift: *shift };
    let Ok(records) = BadBlockLog::parse(log, place) else { return };
    assert!(records.len() <= 64 * usize::from(size_sectors));
    let ranges = BadBlockLog::ranges(&records);
    let written = BadBlockLog::to_bytes(&ranges, place).expect("it came out of such a log");
    let read = BadBlockLog::parse(&written, place).expect("it was written so");
    assert_eq!(BadBlockLog::ranges(&read), ranges);
    let mut sectors = vec![Vec::new(); usize::from(size_sectors)];
    records.iter().for_each(|one| sectors[usize::from(one.log_sector)].push(one.range));
    // A sector of zeroes names no range. The writer omits it if other sectors follow.
    sectors.retain(|sector| !sector.is_empty());
    let written = BadBlockLog::sectors_to_bytes(&sectors, place).expect("each has room");
    let read = BadBlockLog::parse(&written, place).expect("it was written so");
    assert_eq!(BadBlockLog::ranges(&read), ranges);
});
