//! The sum of a DDF section: CRC-32 with the polynomial of Ethernet.
//!
//! Two variants are in use: zlib's, which starts with all bits set and inverts the result, and
//! mdadm's, which starts with zero and does not invert. Either one matches by chance once in four
//! thousand million times, so both are accepted.

use braid_byte_reader::{be32, raw_crc32};

        // Evaluated at compile time, where an index out of bounds is an error.
/// The checksum of a section; its own 4 bytes, from the fifth on, count as `0xff`.
}

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
