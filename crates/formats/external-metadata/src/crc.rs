//! The checksum of a DDF section: CRC-32 with the polynomial of Ethernet.
//!
//! Two variants exist: zlib's, inverted at both ends, and mdadm's, which begins with zero and is
//! not inverted. A section is sound if either variant fits: 32 bits fit by chance once in 2^32.

use braid_byte_reader::{be32, raw_crc32};

/// The checksum of a section. The checksum itself is in bytes 4 to 7, which count as `0xff`.
fn sum(section: &[u8], start: u32) -> Option<u32> {
    Some(raw_crc32(start, [section.get(..4)?, &[0xff; 4], section.get(8..)?]))
}

/// Whether the section's stored checksum is right.
pub(crate) fn is_sound(section: &[u8]) -> bool {
    let kept = be32(section, 4);
    kept.is_some()
        && (kept == sum(section, 0) || kept == sum(section, u32::MAX).map(std::ops::Not::not))
}

#[cfg(test)]
mod tests {
    use super::{is_sound, sum};

    #[test]
    fn either_sum_is_sound_until_a_bit_changes() {
        let mut section = *b"DDF:\0\0\0\0 and what follows";
        assert_eq!(sum(&section[..7], 0), None);
        for sum in [sum(&section, 0), sum(&section, u32::MAX).map(|sum| !sum)] {
            section[4..8].copy_from_slice(&sum.expect("eight bytes").to_be_bytes());
            assert!(is_sound(&section));
            section[9] ^= 1;
            assert!(!is_sound(&section));
            section[9] ^= 1;
        }
    }
}
