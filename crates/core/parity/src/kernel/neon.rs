//! 16 bytes in a register: NEON. Every aarch64 processor with Linux has it.
//!
//! The kernel multiplies by table look-ups over the two halves of each byte, as `avx2.rs` does by
//! shuffles; one register holds one table, without repeats.
//!
//! Results are not written around the caches. The instruction that writes a pair of registers
//! around the caches (STNP) has no intrinsic, and is a hint that common cores ignore.
//!
//! Soundness: see `lanes.rs`. `SAFETY` comments that say "`self` proves" rest on the rule in that
//! file: a value exists only where its instructions do.

use core::arch::aarch64::{
    uint8x16_t, vandq_u8, vcltzq_s8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8,
    vreinterpretq_s8_u8, vshlq_n_u8, vshrq_n_u8, vst1q_u8,
};

use super::lanes::Lanes;
use crate::gf256::{FOLD, NIBBLES};

#[derive(Clone, Copy)]
pub(super) struct Neon(uint8x16_t);

impl Lanes for Neon {
    const BYTES: usize = 16;

    /// Two tables: the products of the low half of a byte, and of the high half.
    type Factor = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let table = NIBBLES[usize::from(constant)].as_ptr();
        // SAFETY: the caller promises the instructions; a table is two times 16 bytes.
        unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises the instructions.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(source: *const u8) -> Self {
        // SAFETY: the caller promises the instructions and 16 readable bytes.
        Self(unsafe { vld1q_u8(source) })
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut u8) {
        // SAFETY: the caller promises 16 writable bytes.
        unsafe { vst1q_u8(target, self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: `self` proves NEON.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: `self` proves NEON.
        unsafe {
            let overflow = vcltzq_s8(vreinterpretq_s8_u8(self.0));
            let fold = vandq_u8(overflow, vdupq_n_u8(FOLD));
            let shifted = vshlq_n_u8::<1>(self.0);
            Self(veorq_u8(veorq_u8(shifted, next.0), fold))
        }
    }

    #[inline(always)]
    fn multiply(self, (low, high): Self::Factor) -> Self {
        // SAFETY: `self` proves NEON.
        unsafe {
            let upper = vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0));
            let lower = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
            Self(veorq_u8(lower, upper))
        }
    }
}
