//! The kernel for every processor: eight bytes in a `u64`, and single bytes at the ends.
//!
//! The scalar kernel is the fallback, and handles the tail of every other kernel. The kernels'
//! definition is in `crate::definition`, not in this file.

use super::lanes::Lanes;
use crate::gf256::{FOLD, PRODUCTS, double};

const ONES: u64 = 0x0101_0101_0101_0101;

/// Doubles eight elements: shifts each byte by one bit, and adds the polynomial where a bit left
/// its byte.
fn double_each(lanes: u64) -> u64 {
    let overflow = (lanes >> 7) & ONES;
    ((lanes << 1) & (ONES * 0xfe)) ^ (overflow * FOLD as u64)
}

impl Lanes for u64 {
    const BYTES: usize = 8;
    type Factor = u8;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> u8 {
        constant
    }

    #[inline(always)]
    unsafe fn zero() -> u64 {
        0
    }

    #[inline(always)]
    unsafe fn load(source: *const u8) -> u64 {
        // SAFETY: the caller promises eight readable bytes; any alignment will do.
        unsafe { source.cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut u8) {
        // SAFETY: the caller promises eight writable bytes; any alignment will do.
        unsafe { target.cast::<u64>().write_unaligned(self) }
    }

    #[inline(always)]
    fn xor(self, other: u64) -> u64 {
        self ^ other
    }

    #[inline(always)]
    fn horner(self, next: u64) -> u64 {
        double_each(self) ^ next
    }

    #[inline(always)]
    fn multiply(self, factor: u8) -> u64 {
        let (mut product, mut shifted, mut rest) = (0, self, factor);
        while rest != 0 {
            product ^= shifted & u64::from(rest & 1).wrapping_neg();
            shifted = double_each(shifted);
            rest >>= 1;
        }
        product
    }
}

impl Lanes for u8 {
    const BYTES: usize = 1;
    type Factor = u8;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> u8 {
        constant
    }

    #[inline(always)]
    unsafe fn zero() -> u8 {
        0
    }

    #[inline(always)]
    unsafe fn load(source: *const u8) -> u8 {
        // SAFETY: the caller promises one readable byte.
        unsafe { source.read() }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut u8) {
        // SAFETY: the caller promises one writable byte.
        unsafe { target.write(self) }
    }

    #[inline(always)]
    fn xor(self, other: u8) -> u8 {
        self ^ other
    }

    #[inline(always)]
    fn horner(self, next: u8) -> u8 {
        double(self) ^ next
    }

    #[inline(always)]
    fn multiply(self, factor: u8) -> u8 {
        PRODUCTS[usize::from(factor)][usize::from(self)]
    }
}
