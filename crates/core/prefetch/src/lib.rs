//! Prefetch hints to the processor, as safe functions.
//!
//! The engine has no unsafe code of its own, so the hints are in this crate. A hint changes a time,
//! never a result. On a processor that has no such instruction, or none that Rust can name, the
//! hint does nothing.

/// Says that the program will read `value` soon. The processor fetches the first cache line of
/// `value` without waiting.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(value: &T) {
    let address = std::ptr::from_ref(value);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is part of every x86-64 processor. It reads nothing that the program
    // sees, and does not fault at any address; this address is of a live value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction does not fault at any address, here that of a live value. It
    // changes no register, no flag and no memory.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = address;
}
