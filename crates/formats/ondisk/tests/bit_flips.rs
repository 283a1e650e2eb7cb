//! Every single-bit error in a superblock is refused, by the checksum or an earlier check. For
//! version 1 that covers the 256 bytes and all roles; for 0.90 all 4096 bytes.

use crate::common::{DEVICE_BYTES, V0_OFFSET_BYTES, superblock_v0_bytes, superblock_v1};
use braid_ondisk::{UnvalidatedV0, UnvalidatedV1, Version};

#[test]
fn version_1() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let superblock = superblock_v1(version);
        let whole = superblock.to_bytes();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = UnvalidatedV1::recognise(&bytes, version)
                .map(|unvalidated| unvalidated.validate(DEVICE_BYTES, superblock.offset_bytes()));
            assert!(found.is_none_or(|found| found.is_err()), "{version}, bit {bit}");
        }
    }
}

#[test]
fn version_0_90() {
    let little = superblock_v0_bytes();
    for whole in [of_big_endian(&little), little] {
        every_bit_of_0_90(&whole);
    }
}

/// Turns a little-endian superblock big-endian: reverses the bytes of each word, and exchanges the
/// halves of 64-bit numbers.
fn of_big_endian(bytes: &[u8]) -> Vec<u8> {
    let (words, _) = bytes.as_chunks::<4>();
    let mut words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    [39, 41, 44].into_iter().for_each(|at| words.swap(at, at + 1));
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

fn every_bit_of_0_90(whole: &[u8]) {
    let validate = |bytes: &[u8]| {
        UnvalidatedV0::recognise(bytes).map(|found| found.validate(DEVICE_BYTES, V0_OFFSET_BYTES))
    };
    assert!(validate(whole).is_some_and(|found| found.is_ok()));
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(validate(&bytes).is_none_or(|found| found.is_err()), "bit {bit}");
    }
}
