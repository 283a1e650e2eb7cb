//! The evidence for and against a guess, in counts.

/// Counts for and against a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Addresses found on the members that stand where the guess says.
    pub explained: usize,
    /// Their weight: places without an address of their own weigh less.
    pub weight: usize,
    /// All addresses found, of volumes that have a start; but for those on parity.
    pub addresses: usize,
    /// The same, with these.
    pub seen: usize,
    /// Things that had to be at a place, and are.
    pub confirmed: usize,
    /// Things that had to be at a place, and are not.
    pub refuted: usize,
    /// Places where parity fits, or copies are alike.
    pub agreeing: usize,
    /// Places where that was looked at, and not all was zero.
    pub compared: usize,
    /// Of a member nothing is where it would be by this.
    pub is_unheard: bool,
    /// A volume is larger than the array would be.
    pub is_cut: bool,
    /// On a member much is not there that had to be.
    pub is_doubted: bool,
    /// A member that would hold only data looks like parity of the others: see
    /// `evidence::looks_like_parity`.
    pub is_shadowed: bool,
}

/// Most addresses that count, however many exist: predictions say more.
const ADDRESSES_MAX: usize = 300;

/// Weight of a confirmed and of a refuted prediction, in addresses. A wrong guess that differs by a
/// few members confirms most predictions, too; a right one refutes next to none.
const CONFIRMED: i64 = 2;
const REFUTED: i64 = 8;

impl Evidence {
    /// The total weight, in addresses.
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

    /// The same, or little was compared and all of it agrees.
    pub(crate) const fn agrees_as_far_as_seen(&self) -> bool {
        self.agrees() || self.compared >= 3 && self.agreeing == self.compared
    }

    /// Enough was compared, and much of it does not agree.
    pub(crate) const fn disagrees(&self) -> bool {
        self.compared >= 8 && self.agreeing * 4 < self.compared * 3
    }
}
