//! Partition tables and other self-describing contents. Input: 4 bytes of the device's size in KiB,
//! 1 byte of flags, then the device's first bytes. The rest of the device is zeroes.
//!
//! Flag 1 makes the sums of a GPT at sector 1 valid first: the fuzzer cannot guess a CRC. Flag 2
//! repeats the bytes over the device, so that chains and copies lead somewhere.
#![no_main]

use braid_signatures::{PARTITIONS_MAX, look};
use libfuzzer_sys::fuzz_target;

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

fuzz_target!(|input: &[u8]| {
    let Some((head, bytes)) = input.split_first_chunk::<5>() else { return };
    let size_bytes = u64::from(u32::from_le_bytes(*head.first_chunk().unwrap())) << 10;
    let (mut bytes, flags) = (bytes.to_vec(), head[4]);
    if flags & 1 != 0 && bytes.len() >= 1024 + 128 {
        bytes[512..520].copy_from_slice(b"EFI PART");
        bytes[524..528].copy_from_slice(&92_u32.to_le_bytes());
        bytes[536..544].copy_from_slice(&1_u64.to_le_bytes());
        bytes[584..592].copy_from_slice(&2_u64.to_le_bytes());
        let count = (bytes.len() - 1024) / 128;
        bytes[592..596].copy_from_slice(&u32::try_from(count).unwrap().to_le_bytes());
        bytes[596..600].copy_from_slice(&128_u32.to_le_bytes());
        let sum = crc32(&bytes[1024..1024 + count * 128]);
        bytes[600..604].copy_from_slice(&sum.to_le_bytes());
        bytes[528..532].fill(0);
        let sum = crc32(&bytes[512..604]);
        bytes[528..532].copy_from_slice(&sum.to_le_bytes());
    }
    let mut read_bytes = 0;
    let mut read = |offset: u64, length: usize| {
        assert!(offset + length as u64 <= size_bytes, "{length} bytes at {offset} of {size_bytes}");
        read_bytes += length;
        let byte = |at: u64| {
            let at = usize::try_from(at).unwrap();
            match flags & 2 != 0 && !bytes.is_empty() {
                true => bytes[at % bytes.len()],
                false => bytes.get(at).copied().unwrap_or(0),
            }
        };
        Some((offset..offset + length as u64).map(byte).collect())
    };
    let found = look(size_bytes, &mut read);
    assert!(found.volumes.len() <= PARTITIONS_MAX.max(1));
    for volume in &found.volumes {
        assert!(volume.bytes.start <= volume.bytes.end && volume.bytes.end <= size_bytes);
    }
    assert!(read_bytes < 256 << 20);
});
