//! What was counted for and against a guess.

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Addresses found on the members that stand where the guess says.
    pub explained: usize,
    /// All addresses found, of volumes that have a start.
    pub addresses: usize,
    /// Things that had to be at a place, and are.
    pub confirmed: usize,
    /// Things that had to be at a place, and are not.
    pub refuted: usize,
    /// Places where parity fits, or copies are alike.
    pub agreeing: usize,
    /// Places where that was looked at, and not all was zero.
    pub compared: usize,
    /// A member that would hold nothing but data looks like parity of the others: see `evidence::looks_like_parity`.
    pub is_shadowed: bool,
}

impl Evidence {
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
