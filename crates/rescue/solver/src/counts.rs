//! The evidence for and against a guess, in counts.

/// Counts for and against a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Addresses that were found at the place that the guess says.
    pub explained: usize,
    /// The weight of the explained addresses: places that do not hold their own address weigh less.
    pub weight: usize,
    /// The number of addresses found for volumes with a start, except addresses on parity.
    pub addresses: usize,
    /// The number of addresses found for volumes with a start, including addresses on parity.
    pub seen: usize,
    /// Predictions that hold.
    pub confirmed: usize,
    /// Predictions that fail.
    pub refuted: usize,
    /// Places with parity or copies that were compared and are not all zero.
    pub agreeing: usize,
    /// Places that were compared and are not all zero.
    pub compared: usize,
    /// Whether some member has no sign at the place that the guess says.
    pub is_unheard: bool,
    /// Whether a volume is larger than the array would be.
    pub is_cut: bool,
    /// Whether a member lacks many predicted structures.
    pub is_doubted: bool,
    /// Whether a member that has only data looks like parity of the others: see
    /// `evidence::looks_like_parity`.
    pub is_shadowed: bool,
}

/// The most addresses that count for a guess, however many were found: predictions say more.
const ADDRESSES_MAX: usize = 300;

/// The weight of a confirmed prediction, in addresses. A wrong guess that differs by a few members
/// also confirms most predictions; a right guess refutes next to none.
const CONFIRMED: i64 = 2;
/// The weight of a refuted prediction, in addresses.
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

    /// Whether enough places with redundancy were compared, and nearly all of them agree.
    pub(crate) const fn agrees(&self) -> bool {
        self.compared >= 8 && self.agreeing * 10 >= self.compared * 9
    }

    /// Whether redundancy agrees as in `agrees`, or only a few places were compared and all of
    /// these places agree.
    pub(crate) const fn agrees_as_far_as_seen(&self) -> bool {
        self.agrees() || self.compared >= 3 && self.agreeing == self.compared
    }

    /// Whether enough places with redundancy were compared, and many of them do not agree.
    pub(crate) const fn disagrees(&self) -> bool {
        self.compared >= 8 && self.agreeing * 4 < self.compared * 3
    }
}
