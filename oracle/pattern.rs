//! Content that is a function of its place, so that no content needs storing.
//!
//! Included by path in three programs: the guest's agent writes it, the oracle and the fixture
//! reader compute it again. It knows nothing of arrays.
//!
//! * A **stamp** is one 512-byte sector that holds the same 8-byte little-endian word 64 times. The
//!   word is a bijection of (generation, sector number), so it can be read back: a check that finds
//!   the sector on a member knows which logical sector it is. XOR and GF(256) products of stamps
//!   also repeat every 8 bytes, so P and Q of stamped rows are one word per sector too.
//! * A **stream** is bytes of full entropy: word `i` of stream `seed` is a hash of both.
//!
//! Invariants: `unstamp(stamp(g, s)) == Some((g, s))` (test `stamps_read_back`); a word that is no
//! stamp is taken for one with probability 2^-29 (24 bits of sector, 4 of generation, the rest
//! zero).

/// Bytes in a sector.
pub const SECTOR: usize = 512;

/// Largest logical sector number a stamp can carry, plus one (an array of 8 GiB).
pub const STAMP_SECTORS_MAX: u64 = 1 << 24;

/// Generations run from 1 to this.
pub const STAMP_GENERATION_MAX: u8 = 15;

const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;
const FIRST_INVERSE: u64 = inverse(FIRST);
const SECOND_INVERSE: u64 = inverse(SECOND);
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut result = odd;
    let mut round = 0;
    while round < 6 {
        result = result.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(result)));
        round += 1;
    }
    result
}

/// A bijection of 64-bit words with good avalanche (the finisher of splitmix64).
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(FIRST);
    let word = (word ^ (word >> 27)).wrapping_mul(SECOND);
    word ^ (word >> 31)
}

/// The inverse of [`mix`].
const fn unmix(word: u64) -> u64 {
    let word = word ^ (word >> 31) ^ (word >> 62);
    let word = word.wrapping_mul(SECOND_INVERSE);
    let word = word ^ (word >> 27) ^ (word >> 54);
    let word = word.wrapping_mul(FIRST_INVERSE);
    word ^ (word >> 30) ^ (word >> 60)
}

/// The word stamped on logical sector `sector` in generation `generation` (1 to 15).
#[must_use]
pub fn stamp(generation: u8, sector: u64) -> u64 {
    assert!((1..=STAMP_GENERATION_MAX).contains(&generation), "generation {generation}");
    assert!(sector < STAMP_SECTORS_MAX, "sector {sector} is too far for a stamp");
    mix((u64::from(generation) << 24 | sector).wrapping_add(STEP))
}

/// Reads a stamp back: (generation, logical sector), or `None` for any other word.
#[must_use]
pub fn unstamp(word: u64) -> Option<(u8, u64)> {
    let packed = unmix(word).wrapping_sub(STEP);
    let generation = u8::try_from(packed >> 24).ok()?;
    let known = (1..=STAMP_GENERATION_MAX).contains(&generation);
    known.then_some((generation, packed & (STAMP_SECTORS_MAX - 1)))
}

/// Fills a buffer with one word, repeated.
pub fn repeat(word: u64, buffer: &mut [u8]) {
    for piece in buffer.chunks_mut(8) {
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

/// The bytes of stream `seed` from byte `offset` on; any offset, any length.
pub fn stream(seed: u64, offset: u64, buffer: &mut [u8]) {
    let base = mix(seed.wrapping_add(STEP));
    let mut at = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let word = mix(base.wrapping_add((at / 8).wrapping_mul(STEP))).to_le_bytes();
        let skip = (at % 8) as usize;
        let length = rest.len().min(8 - skip);
        let (now, later) = rest.split_at_mut(length);
        now.copy_from_slice(&word[skip..skip + length]);
        at += length as u64;
        rest = later;
    }
}

/// Unaligned writes: `count` pairs (byte offset, byte length) inside a device of `bytes`, with
/// lengths from 1 to 200,000. All depend only on the seed. The data of each write is the stream of
/// the same seed at the same offset.
pub fn scribbles(seed: u64, bytes: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    assert!(bytes > 0, "an empty device cannot be scribbled on");
    (0..count).map(move |index| {
        let place = mix(mix(seed) ^ (2 * index).wrapping_mul(STEP));
        let width = mix(mix(seed) ^ (2 * index + 1).wrapping_mul(STEP));
        let offset = place % bytes;
        let limit = match index % 3 {
            0 => 1 << 9,
            1 => 1 << 14,
            _ => 200_000,
        };
        (offset, (1 + width % limit).min(bytes - offset))
    })
}

/// Bytes of a block that a storm writes.
pub const BLOCK: usize = 4096;

/// Whether a storm writes this block: it writes every second block.
#[must_use]
pub fn is_stormed(block: u64) -> bool {
    mix(block ^ STEP) & 1 == 0
}

/// Counts sectors of `bytes` with impossible content. The whole device got stream `old`, then power
/// was cut while a storm wrote stream `new`. The first number counts sectors of blocks that the
/// storm leaves alone. The second counts sectors of blocks that it writes, if they have neither
/// stream.
#[must_use]
pub fn wrong(old: u64, new: u64, offset: u64, bytes: &[u8]) -> (u64, u64) {
    let (mut untouched, mut torn) = (0, 0);
    for (sector, found) in (offset / SECTOR as u64..).zip(bytes.chunks(SECTOR)) {
        let holds = |seed: u64| {
            let mut expected = vec![0; found.len()];
            stream(seed, sector * SECTOR as u64, &mut expected);
            expected == found
        };
        let is_written = is_stormed(sector / (BLOCK / SECTOR) as u64);
        match (holds(old), is_written) {
            (true, _) => {}
            (false, false) => untouched += 1,
            (false, true) => torn += u64::from(!holds(new)),
        }
    }
    (untouched, torn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_read_back() {
        for generation in 1..=STAMP_GENERATION_MAX {
            for sector in [0, 1, 7, 8, 2047, 123_456, STAMP_SECTORS_MAX - 1] {
                assert_eq!(unstamp(stamp(generation, sector)), Some((generation, sector)));
            }
        }
        assert_eq!(unstamp(0), None);
        assert_eq!(unstamp(u64::MAX), None);
    }

    #[test]
    fn what_a_storm_may_leave_is_told_from_what_it_may_not() {
        let mut bytes = vec![0; 64 * BLOCK];
        stream(5, 0, &mut bytes);
        let block = |wanted: bool| {
            let number = (0..64_u8).find(|block| is_stormed(u64::from(*block)) == wanted);
            usize::from(number.unwrap()) * BLOCK
        };
        let (written, left) = (block(true), block(false));
        stream(6, written as u64, &mut bytes[written..written + SECTOR]);
        assert_eq!(wrong(5, 6, 0, &bytes), (0, 0));
        bytes[written + SECTOR] ^= 1;
        bytes[left] ^= 1;
        stream(6, (left + SECTOR) as u64, &mut bytes[left + SECTOR..left + 2 * SECTOR]);
        assert_eq!(wrong(5, 6, 0, &bytes), (2, 1));
    }

    #[test]
    fn xor_of_stamps_is_no_stamp() {
        for sector in 0..10_000 {
            let word = stamp(1, sector) ^ stamp(1, sector + 8) ^ stamp(2, sector + 16);
            assert_eq!(unstamp(word), None, "at sector {sector}");
        }
    }

    #[test]
    fn stream_does_not_depend_on_how_it_is_cut() {
        let mut whole = [0; 1000];
        stream(5, 40, &mut whole);
        let mut pieces = [0; 1000];
        let (first, second) = pieces.split_at_mut(333);
        stream(5, 40, first);
        stream(5, 373, second);
        assert_eq!(whole, pieces);
    }

    #[test]
    fn scribbles_stay_inside() {
        for (offset, length) in scribbles(9, 4096, 500) {
            assert!(length >= 1 && offset + length <= 4096);
        }
    }
}
