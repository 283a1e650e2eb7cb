//! The field GF(2^8) with polynomial 0x11d and generator 2: constants, computed at compile time.
//!
//! The kernels multiply by constants of this field. This file touches no blocks.
//!
//! Invariants: the tables equal the bitwise definition
//! (`tests::multiply_is_the_bitwise_definition`); the generator's powers visit all 255 non-zero
//! elements (`tests::the_generator_visits_every_non_zero_element`).

/// x^8 + x^4 + x^3 + x^2 + 1.
pub const POLYNOMIAL: u16 = 0x11d;

/// The bits that a doubling adds when x^8 overflows: [`POLYNOMIAL`] without x^8.
pub const FOLD: u8 = 0x1d;

/// The order of the generator: g^255 = 1, so exponents count modulo this order.
pub const ORDER: u16 = 255;

/// Two times `a`.
#[must_use]
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ (FOLD * (a >> 7))
}

/// The product, from the definition: one shift and one conditional addition per bit. Meant for
/// constants.
#[must_use]
pub const fn multiply(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut shifted = a;
    let mut bit = 0;
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = double(shifted);
        bit += 1;
    }
    product
}

/// `POWERS[e]` is g^e, for e in 0..255.
pub static POWERS: [u8; 255] = {
    let mut table = [0; 255];
    let mut element: u8 = 1;
    let mut exponent = 0;
    while exponent < 255 {
        table[exponent] = element;
        element = double(element);
        exponent += 1;
    }
    table
};

/// `LOGARITHMS[a]` is the e in 0..255 with g^e = a. Zero has no logarithm: its entry, 255, is
/// unused.
pub static LOGARITHMS: [u8; 256] = {
    let mut table = [255; 256];
    let mut element: u8 = 1;
    let mut exponent = 0;
    while exponent < 255 {
        table[element as usize] = exponent;
        element = double(element);
        exponent += 1;
    }
    table
};

/// g^exponent.
#[must_use]
pub fn power(exponent: u16) -> u8 {
    POWERS[usize::from(exponent % ORDER)]
}

/// The inverse of `a`. Zero has no inverse; a caller that passes zero has a bug.
#[must_use]
pub fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    power(ORDER - u16::from(LOGARITHMS[usize::from(a)]))
}

/// `PRODUCTS[a][b]` is a times b.
pub static PRODUCTS: [[u8; 256]; 256] = {
    let mut table = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        let mut b: usize = 0;
        while b < 256 {
            // A product is the sum of two products: with b's lowest bit, and with the rest of b.
            // The table already has both.
            let rest = b & b.wrapping_sub(1);
            table[a][b] = if b == 0 {
                0
            } else if rest == 0 {
                multiply_low(a, b)
            } else {
                table[a][rest] ^ table[a][b ^ rest]
            };
            b += 1;
        }
        a += 1;
    }
    table
};

/// `NIBBLES[a]` is a times 0..16, then a times 0x00, 0x10, .. 0xf0: the two tables of a byte
/// shuffle.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static NIBBLES: [[u8; 32]; 256] = {
    let mut table = [[0; 32]; 256];
    let mut a = 0;
    while a < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[a][nibble] = multiply_low(a, nibble);
            table[a][16 + nibble] = multiply_low(a, nibble << 4);
            nibble += 1;
        }
        a += 1;
    }
    table
};

/// `MATRICES[a]` is multiplication by a as an 8x8 matrix of bits, in the order of the GF2P8AFFINEQB
/// instruction: byte 7 - i selects the bits of the input whose sum is bit i of the output.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        let mut column = 0;
        while column < 8 {
            let product = multiply_low(a, 1 << column);
            let mut row = 0;
            while row < 8 {
                table[a] |= ((product >> row & 1) as u64) << ((7 - row) * 8 + column);
                row += 1;
            }
            column += 1;
        }
        a += 1;
    }
    table
};

/// [`multiply`] for table indices, which are all below 256.
const fn multiply_low(a: usize, b: usize) -> u8 {
    assert!(a < 256 && b < 256);
    multiply(a.to_le_bytes()[0], b.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A polynomial product, then long division by 0x11d. It shares no code with `multiply`.
    fn by_long_division(a: u8, b: u8) -> u8 {
        let mut product: u16 = 0;
        for bit in 0..8 {
            if b & (1 << bit) != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for degree in (8..16).rev() {
            if product & (1 << degree) != 0 {
                product ^= POLYNOMIAL << (degree - 8);
            }
        }
        u8::try_from(product).unwrap()
    }

    #[test]
    fn multiply_is_the_bitwise_definition() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let expected = by_long_division(a, b);
                let (row, column) = (usize::from(a), usize::from(b));
                assert_eq!(multiply(a, b), expected, "{a} x {b}");
                assert_eq!(PRODUCTS[row][column], expected, "{a} x {b}");
                by_vector_tables(a, b, expected);
            }
        }
    }

    /// Without vector kernels there are no vector tables to check.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn by_vector_tables(_: u8, _: u8, _: u8) {}

    /// Checks the tables that only vector kernels read.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn by_vector_tables(a: u8, b: u8, expected: u8) {
        let (row, column) = (usize::from(a), usize::from(b));
        let nibbles = &NIBBLES[row];
        assert_eq!(nibbles[column & 15] ^ nibbles[16 + (column >> 4)], expected, "{a} x {b}");
        #[cfg(target_arch = "x86_64")]
        {
            let matrix = MATRICES[row].to_le_bytes();
            let product = (0..8).fold(0u8, |sum, bit| {
                sum | u8::try_from((matrix[7 - bit] & b).count_ones() & 1).unwrap() << bit
            });
            assert_eq!(product, expected, "{a} x {b}");
        }
    }

    #[test]
    fn the_generator_visits_every_non_zero_element() {
        let mut seen = [false; 256];
        for exponent in 0..ORDER {
            let element = power(exponent);
            assert!(!seen[usize::from(element)], "g^{exponent} came before");
            seen[usize::from(element)] = true;
            assert_eq!(u16::from(LOGARITHMS[usize::from(element)]), exponent);
        }
        assert!(!seen[0]);
        assert_eq!(power(8), FOLD);
        assert_eq!(power(ORDER), 1);
    }

    #[test]
    fn every_non_zero_element_has_its_inverse() {
        for a in 1..=255u8 {
            assert_eq!(by_long_division(a, inverse(a)), 1, "{a}");
        }
    }

    #[test]
    #[should_panic(expected = "zero has no inverse")]
    fn zero_has_no_inverse() {
        let _ = inverse(0);
    }
}
