//! The checksums of md's superblocks, and the CRC forms of its logs.
//!
//! Both superblock sums add little-endian 32-bit words into 64 bits, with the checksum field
//! counted as zero, and fold the carries in once: `low 32 bits + high 32 bits`, in 32-bit
//! arithmetic.
//!
//! The logs use CRC-32C in two forms; with `crc(x)` the standard CRC-32C (start at all ones,
//! inverted at the end): PPL stores `crc(header)`, the journal stores `!crc(array uuid ++ block)`.

use crate::limits::{V1_FIXED_BYTES, V1_ROLES_MAX};

/// Byte offset of `sb_csum` in a version 1 superblock.
const V1_CHECKSUM_AT: usize = 216;
/// Byte offset of `max_dev` in a version 1 superblock.
const V1_ROLE_COUNT_AT: usize = 220;
/// Byte offset of `sb_csum` in a 0.90 superblock: word 38.
const V0_CHECKSUM_AT: usize = 152;
const V0_BYTES: usize = 4096;

/// The checksum of a version 1 superblock at the start of `block`, over `256 + 2 * max_dev` bytes.
///
/// `None` if the block is shorter, or if `max_dev` exceeds md's limit (1920).
#[must_use]
pub fn checksum_v1(block: &[u8]) -> Option<u32> {
    let role_count = u32_at(block, V1_ROLE_COUNT_AT)?;
    if role_count > V1_ROLES_MAX {
        return None;
    }
    let covered_bytes = V1_FIXED_BYTES + 2 * usize::try_from(role_count).ok()?;
    Some(fold(sum_words(block.get(..covered_bytes)?, V1_CHECKSUM_AT)))
}

/// The checksum of the 0.90 superblock in `block`, over 4096 bytes; `None` if `block` is shorter.
#[must_use]
pub fn checksum_v0(block: &[u8]) -> Option<u32> {
    Some(fold(sum_words(block.get(..V0_BYTES)?, V0_CHECKSUM_AT)))
}

/// Folds a 0.90 checksum to 16 bits, twice, as md does before it compares checksums: different
/// machines summed in different ways.
#[must_use]
pub fn fold_v0(checksum: u32) -> u32 {
    let once = (checksum & 0xffff) + (checksum >> 16);
    (once & 0xffff) + (once >> 16)
}

/// CRC-32C of `array_uuid` followed by `block`, in the journal's form (not inverted at the end).
pub(crate) fn journal_crc(array_uuid: &[u8; 16], parts: &[&[u8]]) -> u32 {
    let mut crc = crc32c::crc32c(array_uuid);
    for part in parts {
        crc = crc32c::crc32c_append(crc, part);
    }
    !crc
}

/// CRC-32C of several parts in sequence, in the standard form.
pub(crate) fn crc_of_parts(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// Sums 32-bit words, and a 16-bit tail, as little endian; the word at `skip_at` counts as zero.
fn sum_words(bytes: &[u8], skip_at: usize) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut sum: u64 = words
        .iter()
        .enumerate()
        .filter(|(index, _)| index * 4 != skip_at)
        .map(|(_, w)| u64::from(u32::from_le_bytes(*w)))
        .sum();
    if let [low, high] = tail {
        sum += u64::from(u16::from_le_bytes([*low, *high]));
    }
    sum
}

/// Adds the carries back in once; like md, a carry out of that addition is lost.
fn fold(sum: u64) -> u32 {
    let [a, b, c, d, e, f, g, h] = sum.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).wrapping_add(u32::from_le_bytes([e, f, g, h]))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_are_folded_and_the_field_itself_is_not_counted() {
        let mut block = vec![0u8; 512];
        block[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        block[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        block[V1_CHECKSUM_AT..V1_CHECKSUM_AT + 4].copy_from_slice(&0x1234_5678u32.to_le_bytes());
        // 2 * (2^32 - 1) = 1 << 32 | 0xffff_fffe; folded: 0xffff_ffff.
        assert_eq!(checksum_v1(&block), Some(u32::MAX));
    }

    #[test]
    fn an_odd_role_count_has_a_sixteen_bit_tail() {
        let mut block = vec![0u8; 512];
        block[V1_ROLE_COUNT_AT] = 1;
        block[256..260].copy_from_slice(&[0x34, 0x12, 0xff, 0xff]);
        assert_eq!(checksum_v1(&block), Some(0x1234 + 1));
    }

    #[test]
    fn role_counts_beyond_the_block_have_no_checksum() {
        let mut block = vec![0u8; 512];
        block[V1_ROLE_COUNT_AT] = 129;
        assert_eq!(checksum_v1(&block), None);
        block[V1_ROLE_COUNT_AT..V1_ROLE_COUNT_AT + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(checksum_v1(&block), None);
        assert_eq!(checksum_v0(&block), None);
    }

    #[test]
    fn the_journal_form_is_the_standard_crc_not_inverted() {
        // CRC-32C of "123456789" is 0xe3069283 (RFC 3720, B.4 uses the same polynomial).
        assert_eq!(crc_of_parts(&[b"1234", b"56789"]), 0xe306_9283);
        let uuid = *b"0123456789abcdef";
        assert_eq!(journal_crc(&uuid, &[b"xy"]), !crc32c::crc32c(b"0123456789abcdefxy"));
    }
}
