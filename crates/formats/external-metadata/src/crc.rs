//! CRC-32 with the polynomial of Ethernet, which DDF uses.
//!
//! Two ways of it are about: zlib's, which begins with all bits set and turns the sum over at the end, and mdadm's, which begins with
//! zero and does not. Either is 32 bits that fit by chance once in four thousand million times, so either is taken.

use crate::bytes::be32;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
            bit = u32::wrapping_add(bit, 1);
        }
        // A constant that is made while compiling: an index beyond it would be an error there.
        #[allow(clippy::indexing_slicing)]
        {
            table[byte as usize] = sum;
        }
        byte = u32::wrapping_add(byte, 1);
    }
    table
}

const TABLE: [u32; 256] = table();

/// The sum of a section that keeps it in 4 bytes from the fifth on, which count as `0xff`.
fn sum(section: &[u8], start: u32) -> u32 {
    let mut sum = start;
    for (place, byte) in section.iter().enumerate() {
        let byte = if (4..8).contains(&place) { 0xff } else { *byte };
        let [low, ..] = sum.to_le_bytes();
        let entry = TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0);
        sum = (sum >> 8) ^ entry;
    }
    sum
}

/// Whether a section's sum is the one that it keeps.
pub(crate) fn is_sound(section: &[u8]) -> bool {
    be32(section, 4).is_some_and(|kept| kept == sum(section, 0) || kept == !sum(section, u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::{is_sound, sum};

    #[test]
    fn the_sum_is_the_one_of_zlib() {
        assert_eq!(!sum(b"1234", u32::MAX), 0x9be3_e0a3);
        let mut section = *b"DDF:\0\0\0\0 and what follows";
        for sum in [sum(&section, 0), !sum(&section, u32::MAX)] {
            section[4..8].copy_from_slice(&sum.to_be_bytes());
            assert!(is_sound(&section));
            section[9] ^= 1;
            assert!(!is_sound(&section));
            section[9] ^= 1;
        }
    }
}
