//! Locates the wrong column, from the disagreement of P and Q.
//!
//! It serves check and repair on RAID-6. The check has read every column of a sector and computed
//! its parity again. The input is the residues S_P = P + P' and S_Q = Q + Q' (stored plus
//! computed), the result is a verdict. This module knows no slots, reads nothing and repairs
//! nothing. A stripe with a missing column has one equation less, and so no residues.
//!
//! ```text
//!   sector 0   S_P, S_Q ─ locate ─▶ Verdict ┐
//!   sector 1   S_P, S_Q ─ locate ─▶ Verdict ┼─ Verdict::and ─▶ the stripe's
//!      ...                             ...  ┘
//! ```
//!
//! # Algebra
//!
//! Let column z alone be wrong, by an error E (stored plus right), byte by byte:
//!
//! ```text
//!   z = P         S_P = E      S_Q = 0
//!   z = Q         S_P = 0      S_Q = E
//!   z = Dz        S_P = E      S_Q = g^z E
//! ```
//!
//! So each byte in which a residue is not zero names a column: P, Q, or the z with g^z = S_Q / S_P,
//! if the stripe has such a column. If a single column is rotten, every one of these bytes names
//! exactly that column. So the column is located whatever the error
//! (`tests::every_single_error_is_located`,
//! `tests::one_rotten_column_of_a_real_stripe_is_located`).
//!
//! # Two rotten columns
//!
//! The code's distance is 3: it locates one wrong column or detects two, and cannot know which of
//! the two cases it has. A byte in which only one of two rotten columns is wrong still names that
//! column. A byte in which both are wrong, by e and f, names neither. There S_Q / S_P = (g^x e +
//! g^y f) / (e + f) is a fractional linear map of f / e, one to one. It takes the values g^x and
//! g^y only where e or f is zero. As f / e goes through the 255 possible values, each of the other
//! columns is named once. P is named once, where S_Q is 0, and Q once, where S_P is 0. The
//! remaining values name no column at all.
//!
//! For a wrong name, then, every byte that disagrees must be wrong in both columns and name the
//! same third one. With unrelated errors that is a chance of 1/255 for each column and each
//! *different* pair (e, f): at most n / 255^k for k different pairs in a stripe of n columns. Pairs
//! that repeat name the same column again and prove nothing: for example, a chunk filled with one
//! byte over another chunk filled with one byte. Each pair (e, f) has syndromes (S_P, S_Q) of its
//! own, and S_Q follows from S_P where all bytes name one column. So the number of different pairs
//! is the number of different values of the error, which is the [`Evidence`].
//!
//! | different errors k | wrong name, 10 columns | 255 columns |
//! |---|---|---|
//! | 1 | 4 % | certain, nearly |
//! | 2 | 1.5e-4 | 0.4 % |
//! | 3 | 6e-7 | 1.5e-5 |
//! | 4 | 2.4e-9 | 6e-8 |
//!
//! ([`VALUES_ENOUGH`] is 4. These are chances *given* that two columns are rotten in exactly the
//! same bytes and no other; `tests::two_rotten_columns_are_never_named_on_enough_evidence` counts
//! them.) With less evidence, a name is right except in that case. A single flipped bit gives so
//! little evidence. Two bits flipped in the same byte of two columns are rarer by many orders. A
//! caller with reason to suspect a common cause (a write was interrupted here, one controller wrote
//! both columns) does not act on little evidence; any other caller may. Three or more rotten
//! columns give residues that name one given column by chance in 1 of 257 bytes: the same rule
//! holds.
//!
//! # What no arithmetic can see
//!
//! If two data columns are wrong by the same error, byte for byte, S_P is zero and all bytes name Q
//! (`tests::equal_errors_look_like_q`). Errors that are multiples of each other in the field look
//! like one third column. No number of bytes tells these errors from a wrong third column. Such
//! errors need one cause for both. A repair then rewrites P or Q to fit the columns' present
//! content, and touches no data. Arithmetic cannot see a write that was interrupted between data
//! and parity either: the new data looks rotten. A check asks only about stripes that no
//! interrupted write can have left so (after resync).
//!
//! # Stripes
//!
//! The chunks of a stripe share their fate (each lies together on one member), so the verdicts on
//! sectors are joined. The joined verdict names a column only if all sectors name the same one.
//! Otherwise it is [`Verdict::Several`], even where each sector by itself names a column. Then
//! [`Verdict::suspects`] are the columns that stand out; no column does if all were rotten in the
//! same bytes.
//!
//! # Cost
//!
//! If the residues are zero, a verdict costs reading them. If one column explains the residues, it
//! costs one product over the block, by the kernel. Bytes are looked at one by one only where
//! several columns are rotten, or to count evidence, of which the first few suffice. One core of an
//! EPYC 9005, 8 + 2 columns, 512-byte sectors: reading ten columns, computing P and Q again,
//! residues and verdicts go at 27 GB/s of the bytes read. A verdict on garbage in one column goes
//! at 5 GB/s of that column, in two at 0.17 GB/s.
//!
//! Invariants:
//! - One rotten column is located, and never under another's name: the two tests of section
//!   Algebra.
//! - Two rotten columns are never named on enough evidence, short of the previous section.
//! - The order in which sectors are joined makes no difference (`tests::joining_has_no_order`).

mod column;
mod evidence;
#[cfg(test)]
mod tests;

pub use column::{Column, ColumnSet};
pub use evidence::{Evidence, VALUES_ENOUGH};

use crate::gf256::{LOGARITHMS, ORDER};
use crate::kernel::Kernel;

/// A column is a suspect if one in this many of the disagreeing bytes names it. By chance, one byte
/// in 255 names a given column.
const SUSPECT_SHARE: usize = 8;

/// The verdict on residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All residues are zero: data, P and Q agree.
    Agree,
    /// One column explains every byte of the residues, and no other column does.
    One {
        /// The column that explains the residues.
        column: Column,
        /// The evidence for the column.
        evidence: Evidence,
    },
    /// No single column explains the residues: at least two columns are wrong.
    Several {
        /// Columns that bytes name more often than by chance. If empty, any column may be rotten.
        suspects: ColumnSet,
    },
}

impl Verdict {
    /// Joins the verdicts on two sets of sectors of one stripe.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Agree, verdict) | (verdict, Self::Agree) => verdict,
            (Self::One { column, evidence }, Self::One { column: same, evidence: more })
                if column == same =>
            {
                Self::One { column, evidence: evidence.and(more) }
            }
            _ => Self::Several { suspects: self.suspects().union(other.suspects()) },
        }
    }

    /// The wrong column, if there is enough evidence to act on, whatever other columns may be
    /// rotten.
    #[must_use]
    pub fn believed(&self) -> Option<Column> {
        match self {
            Self::One { column, evidence } if evidence.is_enough() => Some(*column),
            _ => None,
        }
    }

    /// The columns to report to the operator: the column that the verdict names, or the columns
    /// that stand out.
    #[must_use]
    pub fn suspects(&self) -> ColumnSet {
        match self {
            Self::Agree => ColumnSet::EMPTY,
            Self::One { column, .. } => ColumnSet::EMPTY.with(*column),
            Self::Several { suspects } => *suspects,
        }
    }
}

/// The verdict on the residues of one block (a sector, or more of one stripe): which column
/// explains every byte of `p_residue` = P + P' and `q_residue` = Q + Q', of a stripe whose data
/// columns are `data`. Residues of different lengths are a bug of the caller.
#[must_use]
pub fn locate(kernel: &Kernel, p_residue: &[u8], q_residue: &[u8], data: &ColumnSet) -> Verdict {
    assert_eq!(p_residue.len(), q_residue.len(), "residues are one block each");
    let Some(first) = first_difference(p_residue, q_residue) else { return Verdict::Agree };
    let named = name(p_residue[first], q_residue[first], data);
    let (p, q) = (&p_residue[first..], &q_residue[first..]);
    match named {
        Some(column) if explains(kernel, column, p, q) => {
            let errors = if column == Column::Q { q } else { p };
            Verdict::One { column, evidence: Evidence::of(errors.iter().copied()) }
        }
        _ => Verdict::Several { suspects: suspects(p, q, data) },
    }
}

/// The most bytes that are compared together.
const STEP_BYTES: usize = 512;

fn first_difference(p: &[u8], q: &[u8]) -> Option<usize> {
    let mut steps = p.chunks(STEP_BYTES).zip(q.chunks(STEP_BYTES));
    let step = steps.position(|(p, q)| !is_zero(p) || !is_zero(q))? * STEP_BYTES;
    let within = p[step..].iter().zip(&q[step..]).position(|(p, q)| p | q != 0);
    Some(step + within.expect("a step that is not zero has a byte that is not"))
}

/// Whether all bytes are zero. The compiler vectorizes the sum, which has no early exit.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum, byte| sum | byte) == 0
}

/// The column named by the residues of one byte, if the stripe has that column. `p` and `q` are not
/// both zero.
fn name(p: u8, q: u8, data: &ColumnSet) -> Option<Column> {
    match (p, q) {
        (_, 0) => Some(Column::P),
        (0, _) => Some(Column::Q),
        _ => {
            let logarithm = |byte: u8| u16::from(LOGARITHMS[usize::from(byte)]);
            let column = Column::Data((logarithm(q) + ORDER - logarithm(p)) % ORDER);
            data.contains(column).then_some(column)
        }
    }
}

/// Whether an error in `column` alone gives these residues.
fn explains(kernel: &Kernel, column: Column, p: &[u8], q: &[u8]) -> bool {
    match column {
        Column::P => is_zero(q),
        Column::Q => is_zero(p),
        // A data column explains the residues if S_Q + g^z S_P is zero.
        Column::Data(exponent) => p.chunks(STEP_BYTES).zip(q.chunks(STEP_BYTES)).all(|(p, q)| {
            let mut sum = [0; STEP_BYTES];
            let sum = &mut sum[..q.len()];
            sum.copy_from_slice(q);
            kernel.multiply_into(sum, p, exponent);
            is_zero(sum)
        }),
    }
}

/// The columns that bytes name more often than chance does.
///
/// With m bytes that disagree, chance gives a column m / 255 of them. The probability of an eighth
/// of the bytes and four different errors for one column is at most 1e-5, whatever m (largest at m
/// = 32).
fn suspects(p: &[u8], q: &[u8], data: &ColumnSet) -> ColumnSet {
    let disagree = || p.iter().zip(q).filter(|(p, q)| **p | **q != 0);
    let mut times = [0_usize; Column::COUNT];
    let mut bytes = 0_usize;
    for (p, q) in disagree() {
        bytes += 1;
        if let Some(column) = name(*p, *q, data) {
            times[column.index()] += 1;
        }
    }
    let errors = |column| {
        let by_column = disagree().filter(move |(p, q)| name(**p, **q, data) == Some(column));
        by_column.map(move |(p, q)| if column == Column::Q { *q } else { *p })
    };
    Column::all()
        .filter(|column| times[column.index()] >= bytes.div_ceil(SUSPECT_SHARE))
        .filter(|column| Evidence::of(errors(*column)).is_enough())
        .fold(ColumnSet::EMPTY, ColumnSet::with)
}
