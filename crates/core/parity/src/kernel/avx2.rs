//! 32 bytes in a register: AVX2, with or without GFNI.
//!
//! `Avx2` multiplies by byte shuffles over the two halves of each byte, `GfniAvx2` by bit matrices
//! (the affine instruction; GFNI's multiplication knows only the AES polynomial).
//!
//! Soundness: see `lanes.rs`. `SAFETY` comments that say "`self` proves" rest on the rule in that
//! file: a value exists only where its instructions do.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_sfence, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_gf2p8affine_epi64_epi8,
    _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_stream_si256,
    _mm256_xor_si256,
};

use super::lanes::Lanes;
use crate::gf256::{FOLD, MATRICES, NIBBLES};

#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

#[derive(Clone, Copy)]
pub(super) struct GfniAvx2(__m256i);

/// The functions that do not multiply: they are the same with and without GFNI.
macro_rules! moves_and_sums {
    () => {
        const BYTES: usize = 32;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller promises the instructions.
            Self(unsafe { _mm256_setzero_si256() })
        }

        #[inline(always)]
        unsafe fn load(source: *const u8) -> Self {
            // SAFETY: the caller promises the instructions and 32 readable bytes.
            Self(unsafe { _mm256_loadu_si256(source.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, target: *mut u8) {
            // SAFETY: the caller promises 32 writable bytes.
            unsafe { _mm256_storeu_si256(target.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, target: *mut u8) {
            // SAFETY: the caller promises 32 writable bytes at a multiple of 32, and fences before
            // sharing.
            unsafe { _mm256_stream_si256(target.cast(), self.0) }
        }

        #[inline(always)]
        fn fence() {
            // SAFETY: every x86-64 processor has SSE.
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        fn xor(self, other: Self) -> Self {
            // SAFETY: `self` proves AVX2.
            Self(unsafe { _mm256_xor_si256(self.0, other.0) })
        }
    };
}

impl Lanes for Avx2 {
    /// Two tables: the products of the low half of a byte, and of the high half.
    type Factor = (__m256i, __m256i);

    moves_and_sums!();

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let table: *const __m128i = NIBBLES[usize::from(constant)].as_ptr().cast();
        // SAFETY: the caller promises the instructions; a table is two times 16 bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table)),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(1))),
            )
        }
    }

    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let overflow = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let fold = _mm256_and_si256(overflow, _mm256_set1_epi8(FOLD as i8));
            let shifted = _mm256_add_epi8(self.0, self.0);
            Self(_mm256_xor_si256(_mm256_xor_si256(shifted, next.0), fold))
        }
    }

    #[inline(always)]
    fn multiply(self, (low, high): Self::Factor) -> Self {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let half = _mm256_set1_epi8(0x0f);
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), half);
            let lower = _mm256_and_si256(self.0, half);
            Self(_mm256_xor_si256(
                _mm256_shuffle_epi8(low, lower),
                _mm256_shuffle_epi8(high, upper),
            ))
        }
    }
}

impl Lanes for GfniAvx2 {
    /// The multiplication's bit matrix, repeated for each eight bytes.
    type Factor = __m256i;

    moves_and_sums!();

    #[inline(always)]
    unsafe fn factor(constant: u8) -> __m256i {
        let matrix = MATRICES[usize::from(constant)].cast_signed();
        // SAFETY: the caller promises the instructions.
        unsafe { _mm256_set1_epi64x(matrix) }
    }

    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: `self` proves AVX2 and GFNI.
        self.multiply(unsafe { Self::factor(2) }).xor(next)
    }

    #[inline(always)]
    fn horner_pair(self, next: Self, last: Self) -> Self {
        // SAFETY: `self` proves AVX2 and GFNI.
        let (two, four) = unsafe { (Self::factor(2), Self::factor(4)) };
        self.multiply(four).xor(next.multiply(two).xor(last))
    }

    #[inline(always)]
    fn multiply(self, factor: __m256i) -> Self {
        // SAFETY: `self` proves AVX2 and GFNI.
        Self(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}
