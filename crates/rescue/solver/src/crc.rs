//! CRC-32C, computed forwards and backwards.
//!
//! ext4 begins the checksum of an inode with the inode's number, which the inode stores nowhere
//! else. A CRC step is a bijection of its state, so it can run backwards: from the stored checksum,
//! over the known bytes, to the state right after the number. Feeding four bytes equals XORing them
//! into the state and feeding four zeroes. So the states before and after the number give its four
//! bytes.
//!
//! ```text
//!   seed ──number──▶ x ──generation, inode──▶ stored          number = seed ^ back(x, four zeroes)
//! ```
//!
//! Invariant: `unwound` undoes `raw`, for all bytes `[check: backwards_undoes_forwards]`.

/// The polynomial of CRC-32C, in reversed bit order.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// For each value of a byte, how the byte changes the CRC's state.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut state = byte;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { state >> 1 ^ POLYNOMIAL } else { state >> 1 };
            bit += 1;
        }
        table[byte as usize] = state;
        byte += 1;
    }
    table
};

/// For each top byte of an entry in `TABLE`, the index of this entry. The top bytes of all entries
/// are different.
const BYTE_OF_TOP: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut byte: u8 = 0;
    loop {
        bytes[(TABLE[byte as usize] >> 24) as usize] = byte;
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    bytes
};

/// The CRC's register after `bytes`, if the register was `state` before them; without inversions at
/// the ends, as in file systems.
pub(crate) fn raw(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// The CRC's register before `bytes`, if the register is `state` after them.
pub(crate) fn unwound(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(state, |state, byte| {
        let index = BYTE_OF_TOP[(state >> 24) as usize];
        (state ^ TABLE[usize::from(index)]) << 8 | u32::from(index ^ byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backwards_undoes_forwards() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for seed in [0, !0, 0x1234_5678] {
            for length in [0, 1, 4, 255, 512] {
                assert_eq!(unwound(raw(seed, &bytes[..length]), &bytes[..length]), seed);
            }
        }
    }

    #[test]
    fn four_bytes_are_told_by_the_states_around_them() {
        let number = 0x00c0_ffee_u32;
        let after = raw(77, &number.to_le_bytes());
        assert_eq!(77 ^ unwound(after, &[0; 4]), number);
    }
}
