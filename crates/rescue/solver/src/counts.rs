//! The evidence for and against a guess, in counts.

/// Counts for and against a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Addresses that are at the place that the guess says.
    pub explained: usize,
    /// Their weight: places without an address of their own weigh less.
    pub weight: usize,
    /// All addresses found, of volumes that have a start, except on parity.
    pub addresses: usize,
    /// The same, including those on parity.
    pub seen: usize,
    /// Predictions that hold.
    pub confirmed: usize,
    /// Predictions that fail.
    pub refuted: usize,
    /// Places where parity fits, or copies are equal.
    pub agreeing: usize,
    /// Places compared that are not all zero.
    pub compared: usize,
    /// A member has no sign at the place that the guess says.
    pub is_unheard: bool,
    /// A volume is larger than the array would be.
    pub is_cut: bool,
    /// A member lacks many predicted structures.
    pub is_doubted: bool,
    /// A member with only data looks like parity of the others: `evidence::looks_like_parity`.
    pub is_shadowed: bool,
}

/// Most addresses that count, however many exist: predictions say more.
const ADDRESSES_MAX: usize = 300;

/// Weight of a confirmed and of a refuted prediction, in addresses. A wrong guess that differs by a
/// few members confirms most predictions, too; a right one refutes next to none.
const CONFIRMED: i64 = 2;
const REFUTED: i64 = 8;

impl Evidence {
    pub(crate) fn sum(&self) -> i64 {
        let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let weight = match self.seen > ADDRESSES_MAX {
            true => self.weight.saturating_mul(ADDRESSES_MAX) / self.seen,
            false => self.weight,
        };
        of(weight) + CONFIRMED * of(self.confirmed) - REFUTED * of(self.refuted)
    }

    /// Enough was compared, and nearly all of it agrees.
    pub(crate) const fn agrees(&self) -> bool {
        self.compared >= 8 && self.agreeing * 10 >= self.compared * 9
    }

    /// The same, or a few places were compared and all agree.
    pub(crate) const fn agrees_as_far_as_seen(&self) -> bool {
        self.agrees() || self.compared >= 3 && self.agreeing == self.compared
    }

    /// Enough was compared, and much of it does not agree.
    pub(crate) const fn disagrees(&self) -> bool {
        self.compared >= 8 && self.agreeing * 4 < self.compared * 3
    }
}
