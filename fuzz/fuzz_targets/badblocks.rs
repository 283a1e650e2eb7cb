//! The bad-block log. Input: 1 byte of size in sectors, 1 byte of shift, then the log.
//!
//! What is read, written and read again must be the same.
#![no_main]

use braid_ondisk::{BadBlockLog, BadBlockLogPlace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(([size, shift], log)) = input.split_first_chunk::<2>() else { return };
    let size_sectors = u16::from(size % 9);
    let place = BadBlockLogPlace { offset_sectors: 16, size_sectors, shift: *shift };
    let Ok(ranges) = BadBlockLog::parse(log, place) else { return };
    assert!(ranges.len() <= 64 * usize::from(size_sectors));
    let written = BadBlockLog::to_bytes(&ranges, place).expect("it came out of such a log");
    assert_eq!(BadBlockLog::parse(&written, place), Ok(ranges));
});
