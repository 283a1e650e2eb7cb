//! P, Q and the recoveries, one byte at a time: the definition that every kernel is tested against.
//!
//! The definition shares no code with the kernels but the field, and is slow on purpose. The
//! simulator and the tests may use it as an oracle; no driver serves I/O with it.
//!
//! Shapes, exponents and the meaning of `None` are those of [`crate::Kernel`].

use crate::gf256::{PRODUCTS, inverse, power};

fn multiply(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// `target` = the sum of `sources`.
pub fn xor(target: &mut [u8], sources: &[&[u8]]) {
    target.fill(0);
    xor_into(target, sources);
}

/// `target` += the sum of `sources`.
pub fn xor_into(target: &mut [u8], sources: &[&[u8]]) {
    for source in sources {
        let source = &source[..target.len()];
        target.iter_mut().zip(source).for_each(|(sum, byte)| *sum ^= byte);
    }
}

/// P and Q of `sources`.
pub fn pq(sources: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8]) {
    assert_eq!(p.len(), q.len());
    p.fill(0);
    q.fill(0);
    for (exponent, source) in (0..).zip(sources) {
        if let Some(source) = source {
            xor_into(&mut p[..source.len()], &[source]);
            let coefficient = power(exponent);
            q.iter_mut().zip(*source).for_each(|(sum, byte)| *sum ^= multiply(coefficient, *byte));
        }
    }
}

/// `target` += g^exponent `source`.
pub fn multiply_into(target: &mut [u8], source: &[u8], exponent: u16) {
    for (byte, other) in target.iter_mut().zip(source) {
        *byte ^= multiply(power(exponent), *other);
    }
}

/// The lost data column, from Q: Dx = g^-x (Q + Q without Dx).
pub fn recover_data_from_q(sources: &[Option<&[u8]>], q: &[u8], lost: u16, out: &mut [u8]) {
    let factor = inverse(power(lost));
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = multiply(factor, q[index] ^ sums_at(sources, index).1);
    }
}

/// Two lost data columns, from P and Q. Solves the two equations Dx + Dy = P + P' and g^x Dx + g^y
/// Dy = Q + Q', where P' and Q' leave both columns out.
pub fn recover_two_data(
    sources: &[Option<&[u8]>],
    p: &[u8],
    q: &[u8],
    lost: (u16, u16),
    out: (&mut [u8], &mut [u8]),
) {
    let (x, y) = (power(lost.0), power(lost.1));
    for index in 0..p.len() {
        let (p_rest, q_rest) = sums_at(sources, index);
        let (p_residue, q_residue) = (p[index] ^ p_rest, q[index] ^ q_rest);
        out.0[index] = multiply(inverse(x ^ y), q_residue ^ multiply(y, p_residue));
        out.1[index] = multiply(inverse(x ^ y), q_residue ^ multiply(x, p_residue));
    }
}

/// P and Q of one byte column.
fn sums_at(sources: &[Option<&[u8]>], index: usize) -> (u8, u8) {
    (0..).zip(sources).fold((0, 0), |(p, q), (exponent, source)| {
        let byte = source.map_or(0, |source| source[index]);
        (p ^ byte, q ^ multiply(power(exponent), byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: D0 = 1, D1 = 0x80, D2 = 3 give P = 0x82 and Q = 1 + 2*0x80 + 4*3 = 1 ^ 0x1d
    /// ^ 0x0c.
    #[test]
    fn one_stripe_by_hand() {
        let data: [&[u8]; 3] = [&[1], &[0x80], &[3]];
        let (mut p, mut q) = ([0], [0]);
        pq(&data.map(Some), &mut p, &mut q);
        assert_eq!((p[0], q[0]), (0x82, 0x10));

        let (mut first, mut second) = ([0], [0]);
        recover_two_data(&[None, Some(data[1]), None], &p, &q, (2, 0), (&mut second, &mut first));
        assert_eq!((first[0], second[0]), (1, 3));

        let mut middle = [0];
        recover_data_from_q(&[Some(data[0]), None, Some(data[2])], &q, 1, &mut middle);
        assert_eq!(middle[0], 0x80);
    }
}
