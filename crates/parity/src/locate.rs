//! Which single column is wrong, from what P and Q disagree by.
//!
//! Where it stands: for check and repair on RAID-6. Residues are P + P' and Q + Q': stored parity plus parity computed
//! from the data.
//!
//! Algebra: if only Dz is wrong, by an error E, then P + P' = E and Q + Q' = g^z E, so z = log(Q + Q') - log(P + P').
//! If only P is wrong, Q + Q' is zero; if only Q is, P + P' is zero. Two wrong columns can look like a third one
//! (the code's distance is 3): the answer is "if one column is wrong, it is this one", never more.
//!
//! Invariant: one column damaged by any error is found (`tests::any_single_column_is_found`).

use crate::gf256::{LOGARITHMS, ORDER};

/// What a pair of residues says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// All residues are zero: data, P and Q agree.
    None,
    /// P is wrong, if one column is.
    P,
    /// Q is wrong, if one column is.
    Q,
    /// The data column with this exponent is wrong, if one column is.
    Data(u16),
    /// No single column explains the residues.
    Several,
}

/// The single column that explains every byte of the two residues, of `data_columns` data columns with exponents
/// 0..data_columns.
#[must_use]
pub fn locate_corrupt(p_residue: &[u8], q_residue: &[u8], data_columns: u16) -> Culprit {
    assert_eq!(p_residue.len(), q_residue.len(), "residues are one block each");
    let mut verdict = Culprit::None;
    for (p, q) in p_residue.iter().zip(q_residue) {
        match (locate_byte(*p, *q, data_columns), verdict) {
            (Culprit::None, _) => {}
            (found, Culprit::None) => verdict = found,
            (found, before) if found == before => {}
            _ => return Culprit::Several,
        }
    }
    verdict
}

fn locate_byte(p: u8, q: u8, data_columns: u16) -> Culprit {
    match (p, q) {
        (0, 0) => Culprit::None,
        (_, 0) => Culprit::P,
        (0, _) => Culprit::Q,
        _ => {
            let logarithm = |byte: u8| u16::from(LOGARITHMS[usize::from(byte)]);
            let column = (logarithm(q) + ORDER - logarithm(p)) % ORDER;
            if column < data_columns { Culprit::Data(column) } else { Culprit::Several }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf256::{multiply, power};

    #[test]
    fn any_single_column_is_found() {
        for error in 1..=255u8 {
            assert_eq!(locate_corrupt(&[0, error], &[0, 0], 4), Culprit::P);
            assert_eq!(locate_corrupt(&[0, 0], &[0, error], 4), Culprit::Q);
            for column in 0..255 {
                let q = multiply(power(column), error);
                assert_eq!(locate_corrupt(&[error, 0], &[q, 0], 255), Culprit::Data(column));
                let beyond = locate_corrupt(&[error], &[q], column);
                assert_eq!(beyond, Culprit::Several, "column {column} of {column}");
            }
        }
    }

    #[test]
    fn bytes_that_disagree_are_several() {
        assert_eq!(locate_corrupt(&[0, 0], &[0, 0], 4), Culprit::None);
        assert_eq!(locate_corrupt(&[], &[], 4), Culprit::None);
        assert_eq!(locate_corrupt(&[7, 7], &[7, 14], 4), Culprit::Several);
        assert_eq!(locate_corrupt(&[7, 0], &[0, 7], 4), Culprit::Several);
    }
}
