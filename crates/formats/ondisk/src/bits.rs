//! The bits of a write-intent bitmap: each bit covers a run of sectors, and all runs have one
//! length.
//!
//! [`crate::bitmap`] gives the bits their meaning. The bits have the same order in memory as on
//! disk: bit `n` is bit `n % 8` of byte `n / 8`.

use std::ops::Range;

use crate::limits::SECTOR_BYTES;

const WORD_BITS: u64 = 64;

/// A set of bits. It has at least one bit, even for an array of no sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Sectors per bit.
    sectors_each: u64,
    /// Sectors of all bits; the last bit may cover fewer sectors than the other bits.
    sectors: u64,
    words: Vec<u64>,
    set: u64,
}

impl Bits {
    /// A set with all bits clear, for `sectors` sectors, one bit per `sectors_each` of them.
    ///
    /// # Panics
    /// When `sectors_each` is 0, or there are more bits than memory has bytes.
    #[must_use]
    pub fn none(sectors: u64, sectors_each: u64) -> Self {
        assert!(sectors_each > 0, "a bit stands for something");
        let words = sectors.div_ceil(sectors_each).max(1).div_ceil(WORD_BITS);
        let words = usize::try_from(words).expect("addresses have 64 bits here");
        Self { sectors_each, sectors, words: vec![0; words], set: 0 }
    }

    /// A set of the same size as that of [`Self::none`], with all bits set.
    #[must_use]
    pub fn all(sectors: u64, sectors_each: u64) -> Self {
        let mut bits = Self::none(sectors, sectors_each);
        (0..bits.count()).for_each(|bit| bits.set(bit));
        bits
    }

    /// The set whose bits are in bytes of a disk. Bits beyond the last are ignored; missing bytes
    /// count as clear.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], sectors: u64, sectors_each: u64) -> Self {
        let mut bits = Self::none(sectors, sectors_each);
        for (word, bytes) in bits.words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            *word = u64::from_le_bytes(whole);
        }
        let behind = bits.count() % WORD_BITS;
        if let Some(last) = bits.words.last_mut().filter(|_| behind > 0) {
            *last &= (1 << behind) - 1;
        }
        bits.set = bits.words.iter().map(|word| u64::from(word.count_ones())).sum();
        bits
    }

    /// The bits as on disk, in whole bytes.
    pub fn to_bytes(&self) -> impl Iterator<Item = u8> {
        let bytes = usize::try_from(self.count().div_ceil(8)).expect("they are in memory");
        self.words.iter().flat_map(|word| word.to_le_bytes()).take(bytes)
    }

    /// The number of bits, set or clear.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.sectors.div_ceil(self.sectors_each).max(1)
    }

    /// Sectors per bit.
    #[must_use]
    pub fn sectors_each(&self) -> u64 {
        self.sectors_each
    }

    /// Sectors of all bits.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// The number of set bits.
    #[must_use]
    pub fn set_count(&self) -> u64 {
        self.set
    }

    /// The bits that cover a range of sectors; an empty range has none.
    #[must_use]
    pub fn of(&self, sectors: &Range<u64>) -> Range<u64> {
        if sectors.is_empty() {
            return 0..0;
        }
        let last = self.count() - 1;
        let bit = |sector: u64| (sector / self.sectors_each).min(last);
        bit(sectors.start)..bit(sectors.end - 1) + 1
    }

    /// The sectors of a bit.
    #[must_use]
    pub fn sectors_of(&self, bit: u64) -> Range<u64> {
        let start = bit * self.sectors_each;
        start..(start + self.sectors_each).min(self.sectors)
    }

    fn place(bit: u64) -> (usize, u64) {
        let word = usize::try_from(bit / WORD_BITS).expect("addresses have 64 bits here");
        (word, 1 << (bit % WORD_BITS))
    }

    /// Whether a bit is set.
    #[must_use]
    pub fn is_set(&self, bit: u64) -> bool {
        let (word, mask) = Self::place(bit);
        self.words.get(word).is_some_and(|word| word & mask != 0)
    }

    /// Sets a bit.
    ///
    /// # Panics
    /// When there is no such bit.
    pub fn set(&mut self, bit: u64) {
        assert!(bit < self.count(), "there is no such bit");
        let (word, mask) = Self::place(bit);
        let word = self.words.get_mut(word).expect("just seen");
        self.set += u64::from(*word & mask == 0);
        *word |= mask;
    }

    /// Clears a bit.
    pub fn clear(&mut self, bit: u64) {
        let (word, mask) = Self::place(bit);
        let Some(word) = self.words.get_mut(word) else { return };
        self.set -= u64::from(*word & mask != 0);
        *word &= !mask;
    }

    /// Whether all bits of a range are set.
    #[must_use]
    pub fn has_all(&self, mut bits: Range<u64>) -> bool {
        bits.all(|bit| self.is_set(bit))
    }

    /// Whether a bit of a range is set.
    #[must_use]
    pub fn has_any(&self, bits: Range<u64>) -> bool {
        self.next_set(bits.start).is_some_and(|bit| bit < bits.end)
    }

    /// The first set bit at or after `from`.
    #[must_use]
    pub fn next_set(&self, from: u64) -> Option<u64> {
        let (first, _) = Self::place(from);
        let below = (1_u64 << (from % WORD_BITS)) - 1;
        let words = self.words.iter().enumerate().skip(first);
        let mut words =
            words.map(|(at, word)| (at, if at == first { word & !below } else { *word }));
        let (at, word) = words.find(|(_, word)| *word != 0)?;
        Some(at as u64 * WORD_BITS + u64::from(word.trailing_zeros()))
    }

    /// The set bits, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let bit = self.next_set(at)?;
            at = bit + 1;
            Some(bit)
        })
    }

    /// Union with `other`.
    ///
    /// # Panics
    /// When `other` covers other sectors.
    pub fn join(&mut self, other: &Self) {
        self.combine(other, |own, other| own | other);
    }

    /// Removes the bits of `other`. Panics as [`Self::join`].
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |own, other| own & !other);
    }

    /// Keeps the bits that `other` has too. Panics as [`Self::join`].
    pub fn intersect(&mut self, other: &Self) {
        self.combine(other, |own, other| own & other);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(u64, u64) -> u64) {
        assert!(self.is_alike(other), "both stand for the same sectors");
        self.set = 0;
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own = with(*own, *other);
            self.set += u64::from(own.count_ones());
        }
    }

    /// The bits from the first that differs from `other` to the last that does; empty if none
    /// differs. Panics as [`Self::join`].
    #[must_use]
    pub fn difference(&self, other: &Self) -> Range<u64> {
        let mut differing = self.clone();
        differing.combine(other, |own, other| own ^ other);
        let last = differing.words.iter().rposition(|word| *word != 0);
        let Some((first, last)) = differing.next_set(0).zip(last) else { return 0..0 };
        let word = differing.words.get(last).copied().unwrap_or_default();
        first..(last as u64 + 1) * WORD_BITS - u64::from(word.leading_zeros())
    }

    /// Whether `other` has the same number of sectors, and of sectors per bit.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        (self.sectors, self.sectors_each) == (other.sectors, other.sectors_each)
    }

    /// The first sector at or after `sector` that a set bit covers.
    #[must_use]
    pub fn next_sector(&self, sector: u64) -> Option<u64> {
        let from = sector / self.sectors_each;
        let bit = self.next_set(from)?;
        Some(sector.max(bit * self.sectors_each))
    }

    /// The first sector at or after `sector` that a clear bit covers; the end if none does.
    #[must_use]
    pub fn next_clear_sector(&self, sector: u64) -> u64 {
        let from = sector / self.sectors_each;
        let clear = (from..self.count()).find(|bit| !self.is_set(*bit));
        clear.map_or(self.sectors, |bit| self.sectors_of(bit).start).max(sector)
    }

    /// The length of the longest run from `start`, up to `sectors`, whose bits are all set or all
    /// clear.
    #[must_use]
    pub fn alike_sectors(&self, start: u64, sectors: u64) -> u64 {
        let mut bits = self.of(&(start..start + sectors));
        let Some(first) = bits.next() else { return sectors };
        let other = bits.find(|bit| self.is_set(*bit) != self.is_set(first));
        other.map_or(sectors, |bit| self.sectors_of(bit).start - start)
    }

    /// The most bytes of memory that a set for `sectors` takes.
    #[must_use]
    pub fn memory_bytes(sectors: u64, sectors_each: u64) -> u64 {
        sectors.div_ceil(sectors_each.max(1)).max(1).div_ceil(WORD_BITS) * 8
    }
}

/// The number of whole sectors that hold `bytes` bytes.
pub(crate) fn sectors_for(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_bit_stands_for_a_run_of_sectors() {
        let mut bits = Bits::none(1000, 128);
        assert_eq!((bits.count(), bits.is_empty()), (8, true));
        assert_eq!(
            (bits.of(&(0..1)), bits.of(&(127..129)), bits.of(&(999..1000))),
            (0..1, 0..2, 7..8)
        );
        assert_eq!(bits.of(&(5..5)), 0..0);
        // md's counts run to the end of a bitmap's last chunk, beyond the last sector.
        assert_eq!(bits.of(&(1000..1100)), 7..8);
        assert_eq!((bits.sectors_of(1), bits.sectors_of(7)), (128..256, 896..1000));
        bits.set(2);
        bits.set(2);
        assert_eq!(bits.set_count(), 1);
        assert!(bits.has_any(0..3) && !bits.has_any(0..2) && !bits.has_all(1..3));
        assert_eq!(
            (bits.next_sector(0), bits.next_sector(300), bits.next_sector(384)),
            (Some(256), Some(300), None)
        );
        bits.clear(2);
        bits.clear(2);
        assert!(bits.is_empty());
    }

    #[test]
    fn a_set_for_no_sectors_has_one_bit() {
        let bits = Bits::all(0, 8);
        assert_eq!((bits.count(), bits.set_count()), (1, 1));
    }

    #[test]
    fn what_lies_behind_the_last_bit_is_not_believed() {
        let bits = Bits::from_bytes(&[0xff; 40], 70, 1);
        assert_eq!((bits.count(), bits.set_count()), (70, 70));
        assert_eq!(bits.to_bytes().collect::<Vec<_>>(), [&[0xff; 8][..], &[0x3f]].concat());
        assert_eq!(Bits::from_bytes(&[0xff], 70, 1).set_count(), 8, "what is cut off is not set");
    }

    proptest! {
        #[test]
        fn bits_are_a_set(
            sectors in 1_u64..2000, each in 1_u64..20,
            first in prop::collection::btree_set(0_u64..2000, 0..60),
            second in prop::collection::btree_set(0_u64..2000, 0..60),
        ) {
            let make = |wanted: &BTreeSet<u64>| {
                let mut bits = Bits::none(sectors, each);
                let inside: BTreeSet<u64> = wanted.iter().copied().filter(|bit| *bit < bits.count()).collect();
                inside.iter().for_each(|bit| bits.set(*bit));
                (bits, inside)
            };
            let ((a, set_a), (b, set_b)) = (make(&first), make(&second));
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), set_a.clone());
            prop_assert_eq!(a.set_count(), set_a.len() as u64);
            let bytes: Vec<u8> = a.to_bytes().collect();
            prop_assert_eq!(&Bits::from_bytes(&bytes, sectors, each), &a);
            let with = |act: fn(&mut Bits, &Bits)| { let mut own = a.clone(); act(&mut own, &b); own };
            let joined = with(Bits::join);
            prop_assert_eq!(joined.set_count(), set_a.union(&set_b).count() as u64);
            prop_assert_eq!(joined.iter().collect::<BTreeSet<_>>(), &set_a | &set_b);
            prop_assert_eq!(with(Bits::subtract).iter().collect::<BTreeSet<_>>(), &set_a - &set_b);
            let differing = &set_a ^ &set_b;
            let range = differing.first().map_or(0..0, |first| *first..*differing.last().unwrap() + 1);
            prop_assert_eq!(a.difference(&b), range);
            prop_assert_eq!(with(Bits::intersect).iter().collect::<BTreeSet<_>>(), &set_a & &set_b);
            for sector in 0..sectors {
                let is_set = |sector: u64| a.is_set(sector / each);
                let clear = (sector..sectors).find(|at| !is_set(*at)).unwrap_or(sectors);
                prop_assert_eq!(a.next_clear_sector(sector), clear);
                let left = sectors - sector;
                let alike = (sector..sectors).take_while(|at| is_set(*at) == is_set(sector)).count();
                prop_assert_eq!(a.alike_sectors(sector, left), alike as u64);
                prop_assert!(a.sectors_of(a.of(&(sector..sector + 1)).start).contains(&sector));
            }
        }
    }
}
