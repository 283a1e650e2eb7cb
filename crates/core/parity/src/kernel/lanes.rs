//! The arithmetic of one register: the only difference between kernels.
//!
//! `body.rs` is written once over this trait; each kernel file implements it.
//!
//! Every method of every implementation is `#[inline(always)]`: an instruction that is not inlined
//! into a function with its target feature is a call, and a hundred times slower.
//!
//! Soundness: a value of a `Lanes` type exists only where the processor has the instructions of
//! that type. The only functions that make a first value, `load`, `zero` and `factor`, are unsafe
//! and demand the instructions. So a value is the proof that the safe methods need.

/// Bytes side by side in one register, each an element of GF(2^8).
pub(super) trait Lanes: Copy {
    /// How many bytes one value holds.
    const BYTES: usize;
    /// A constant, in the form in which this instruction set multiplies by it.
    type Factor: Copy;

    /// # Safety
    /// The processor has this type's instructions.
    unsafe fn factor(constant: u8) -> Self::Factor;

    /// # Safety
    /// The processor has this type's instructions.
    unsafe fn zero() -> Self;

    /// # Safety
    /// The processor has this type's instructions; `source` has `BYTES` readable bytes, at any
    /// alignment.
    unsafe fn load(source: *const u8) -> Self;

    /// # Safety
    /// `BYTES` bytes can be written at `target`, at any alignment.
    unsafe fn store(self, target: *mut u8);

    /// Writes around the caches. Only [`Lanes::fence`] orders the write before later writes.
    ///
    /// # Safety
    /// `BYTES` bytes can be written at `target`, which is a multiple of `BYTES`.
    #[inline(always)]
    unsafe fn stream(self, target: *mut u8) {
        // SAFETY: the caller promises more than an ordinary store needs.
        unsafe { self.store(target) }
    }

    /// Orders every earlier `stream` of this thread before its later stores.
    #[inline(always)]
    fn fence() {}

    fn xor(self, other: Self) -> Self;

    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        self.xor(second).xor(third)
    }

    /// 2 `self` + `next`: one step of Horner's rule.
    fn horner(self, next: Self) -> Self;

    /// 4 `self` + 2 `next` + `last`: two steps of Horner's rule.
    #[inline(always)]
    fn horner_pair(self, next: Self, last: Self) -> Self {
        self.horner(next).horner(last)
    }

    fn multiply(self, factor: Self::Factor) -> Self;
}
