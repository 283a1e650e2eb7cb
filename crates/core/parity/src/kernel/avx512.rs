//! 64 bytes in a register: AVX-512, with or without GFNI.
//!
//! The same methods as in `avx2.rs`, with three-way sums in one instruction and overflow bits as
//! masks.
//!
//! Soundness: see `lanes.rs`. `SAFETY` comments that say "`self` proves" rest on the rule in that
//! file: a value exists only where its instructions do.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_sfence, _mm512_add_epi8, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_maskz_mov_epi8, _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_storeu_si512,
    _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::lanes::Lanes;
use crate::gf256::{FOLD, MATRICES, NIBBLES};

/// The truth table of a three-way sum, as VPTERNLOG reads it.
const SUM: i32 = 0x96;

#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

#[derive(Clone, Copy)]
pub(super) struct GfniAvx512(__m512i);

/// The functions that do not multiply: they are the same with and without GFNI.
macro_rules! moves_and_sums {
    () => {
        const BYTES: usize = 64;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller promises the instructions.
            Self(unsafe { _mm512_setzero_si512() })
        }

        #[inline(always)]
        unsafe fn load(source: *const u8) -> Self {
            // SAFETY: the caller promises the instructions and 64 readable bytes.
            Self(unsafe { _mm512_loadu_si512(source.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, target: *mut u8) {
            // SAFETY: the caller promises 64 writable bytes.
            unsafe { _mm512_storeu_si512(target.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, target: *mut u8) {
            // SAFETY: the caller promises 64 writable bytes at a multiple of 64, and fences before
            // sharing.
            unsafe { _mm512_stream_si512(target.cast(), self.0) }
        }

        #[inline(always)]
        fn fence() {
            // SAFETY: every x86-64 processor has SSE.
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            // SAFETY: `self` proves AVX-512F.
            Self(unsafe { _mm512_xor_si512(self.0, other.0) })
        }

        #[inline(always)]
        fn xor3(self, second: Self, third: Self) -> Self {
            // SAFETY: `self` proves AVX-512F.
            Self(unsafe { _mm512_ternarylogic_epi64::<SUM>(self.0, second.0, third.0) })
        }
    };
}

impl Lanes for Avx512 {
    /// Two tables: the products of the low half of a byte, and of the high half.
    type Factor = (__m512i, __m512i);

    moves_and_sums!();

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let table: *const __m128i = NIBBLES[usize::from(constant)].as_ptr().cast();
        // SAFETY: the caller promises the instructions; a table is two times 16 bytes.
        unsafe {
            (
                _mm512_broadcast_i32x4(_mm_loadu_si128(table)),
                _mm512_broadcast_i32x4(_mm_loadu_si128(table.add(1))),
            )
        }
    }

    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: `self` proves AVX-512F and AVX-512BW.
        let (shifted, fold) = unsafe {
            let overflow = _mm512_movepi8_mask(self.0);
            let fold = _mm512_maskz_mov_epi8(overflow, _mm512_set1_epi8(FOLD as i8));
            (_mm512_add_epi8(self.0, self.0), fold)
        };
        Self(shifted).xor3(Self(fold), next)
    }

    #[inline(always)]
    fn multiply(self, (low, high): Self::Factor) -> Self {
        // SAFETY: `self` proves AVX-512F and AVX-512BW.
        unsafe {
            let half = _mm512_set1_epi8(0x0f);
            let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), half);
            let lower = _mm512_and_si512(self.0, half);
            Self(_mm512_xor_si512(
                _mm512_shuffle_epi8(low, lower),
                _mm512_shuffle_epi8(high, upper),
            ))
        }
    }
}

impl Lanes for GfniAvx512 {
    /// The multiplication's bit matrix, repeated for each eight bytes.
    type Factor = __m512i;

    moves_and_sums!();

    #[inline(always)]
    unsafe fn factor(constant: u8) -> __m512i {
        let matrix = MATRICES[usize::from(constant)].cast_signed();
        // SAFETY: the caller promises the instructions.
        unsafe { _mm512_set1_epi64(matrix) }
    }

    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: `self` proves AVX-512F and GFNI.
        self.multiply(unsafe { Self::factor(2) }).xor(next)
    }

    #[inline(always)]
    fn horner_pair(self, next: Self, last: Self) -> Self {
        // SAFETY: `self` proves AVX-512F and GFNI.
        let (two, four) = unsafe { (Self::factor(2), Self::factor(4)) };
        self.multiply(four).xor3(next.multiply(two), last)
    }

    #[inline(always)]
    fn multiply(self, factor: __m512i) -> Self {
        // SAFETY: `self` proves AVX-512F and GFNI.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}
