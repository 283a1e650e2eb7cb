//! Bytes that look random and are the same in every run.

/// xorshift64*: enough to tell any two places apart.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// As an index below `end`.
    pub(crate) fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("an index")
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(length).collect()
    }
}

/// Equal, or a panic that names the first difference instead of printing megabytes.
#[track_caller]
pub(crate) fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    if found != wanted {
        let differ = |at: &usize| found[*at] != wanted[*at];
        let count = (0..found.len()).filter(differ).count();
        let first = (0..found.len()).find(differ).expect("they differ");
        panic!(
            "{what}: {count} bytes differ, the first at {first} (sector {}): {:#04x}, not {:#04x}",
            first / 512,
            found[first],
            wanted[first]
        );
    }
}
