//! The columns of a RAID-6 stripe that residues can name, and sets of them.
//!
//! `mod.rs` names columns; its callers turn them into slots. A data column is named by its
//! exponent, as everywhere in this crate; geometry gives its slot.

/// A column of a stripe that has P and Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// The data column with this exponent, 0 to 254.
    Data(u16),
    /// P, the sum of the data.
    P,
    /// Q, the weighted sum of the data.
    Q,
}

/// The bits of a set: one for each data column, P and Q.
const COLUMNS: usize = crate::COLUMNS_MAX + 2;

/// A set of columns: the data columns of a stripe (layouts may leave gaps), or the suspects.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ColumnSet([u64; COLUMNS.div_ceil(64)]);

impl ColumnSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; COLUMNS.div_ceil(64)]);

    /// The data columns with exponents below `columns`: a stripe without gaps.
    #[must_use]
    pub fn data(columns: u16) -> Self {
        (0..columns).fold(Self::EMPTY, |set, exponent| set.with(Column::Data(exponent)))
    }

    /// This set with `column` added. An exponent that Q cannot tell from another is a bug of the
    /// caller.
    #[must_use]
    pub fn with(mut self, column: Column) -> Self {
        let index = column.index();
        self.0[index / 64] |= 1 << (index % 64);
        self
    }

    /// The columns that are in either set.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
        self
    }

    /// Whether the set has the column.
    #[must_use]
    pub fn contains(&self, column: Column) -> bool {
        let index = column.index();
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    /// The number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The columns: data by exponent, then P, then Q.
    pub fn iter(&self) -> impl Iterator<Item = Column> + '_ {
        Column::all().filter(|column| self.contains(*column))
    }
}

impl std::fmt::Debug for ColumnSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

impl Column {
    pub(super) const COUNT: usize = COLUMNS;

    /// Every possible column of a stripe, by [`Column::index`].
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..).take(crate::COLUMNS_MAX).map(Self::Data).chain([Self::P, Self::Q])
    }

    pub(super) fn index(self) -> usize {
        match self {
            Self::Data(exponent) => {
                let index = usize::from(exponent);
                assert!(index < crate::COLUMNS_MAX, "Q tells at most 255 columns apart");
                index
            }
            Self::P => crate::COLUMNS_MAX,
            Self::Q => crate::COLUMNS_MAX + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set = ColumnSet::data(3).with(Column::Q).with(Column::Data(254));
        let columns: Vec<Column> = set.iter().collect();
        let data = [0, 1, 2, 254].map(Column::Data);
        assert_eq!(columns, [&data[..], &[Column::Q]].concat());
        assert_eq!((set.len(), set.contains(Column::P)), (5, false));
        assert_eq!(ColumnSet::data(255).with(Column::P).with(Column::Q).len(), Column::COUNT);
        assert!(ColumnSet::default().is_empty() && !set.is_empty());
        assert_eq!(ColumnSet::data(2).union(set), set);
        assert!(Column::all().enumerate().all(|(index, column)| column.index() == index));
    }

    #[test]
    #[should_panic(expected = "at most 255 columns")]
    fn an_exponent_that_comes_round_is_no_column() {
        let _ = ColumnSet::EMPTY.with(Column::Data(255));
    }
}
