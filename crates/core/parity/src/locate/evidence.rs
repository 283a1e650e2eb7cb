//! The evidence for a column: the different errors that all named the column.
//!
//! The header of `mod.rs` says why each error counts once, and how much a number of them proves.

/// A column is believed rotten if this many different errors name it.
pub const VALUES_ENOUGH: usize = 4;

/// The different errors that name one column. An error is the value of a wrong byte: stored byte
/// plus right byte. At most [`VALUES_ENOUGH`] errors are kept, since more errors add nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    values: [u8; VALUES_ENOUGH],
    count: u8,
}

impl Evidence {
    /// The different values among `errors`; a zero is no error.
    pub(super) fn of(errors: impl IntoIterator<Item = u8>) -> Self {
        let mut evidence = Self::default();
        for error in errors.into_iter().filter(|error| *error != 0) {
            evidence.add(error);
            if evidence.is_enough() {
                break;
            }
        }
        evidence
    }

    fn add(&mut self, error: u8) {
        let count = usize::from(self.count);
        if count < VALUES_ENOUGH && !self.values[..count].contains(&error) {
            self.values[count] = error;
            self.count += 1;
        }
    }

    /// The different errors of both pieces of evidence.
    pub(super) fn and(mut self, other: Self) -> Self {
        other.values[..usize::from(other.count)].iter().for_each(|error| self.add(*error));
        self
    }

    /// The number of different errors, at most [`VALUES_ENOUGH`].
    #[must_use]
    pub fn values(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether the column that the errors name can be believed, whatever other columns are rotten.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.values() >= VALUES_ENOUGH
    }
}

impl std::fmt::Debug for Evidence {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(&self.values[..usize::from(self.count)]).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_error_counts_once() {
        assert_eq!(Evidence::of([0, 7, 0, 7, 7]).values(), 1);
        assert_eq!(Evidence::of([1, 2]).and(Evidence::of([2, 3])).values(), 3);
        assert!(!Evidence::of([1, 2, 3]).is_enough());
        assert!(Evidence::of([1, 2, 3, 2, 4, 5]).is_enough());
        assert_eq!(Evidence::of([1, 2, 3, 4]).and(Evidence::of([5])).values(), VALUES_ENOUGH);
        assert_eq!(Evidence::of([]).values(), 0);
    }
}
