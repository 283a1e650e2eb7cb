//! The loops, written once: every kernel is these functions compiled for its own registers.
//!
//! `mod.rs` checks lengths, then calls these functions through a kernel's table. The table has the
//! functions compiled with the kernel's instructions. This file uses no instruction set directly.
//!
//! Each operation is a [`Pass`]: the work on W registers' worth of bytes at one offset. [`run`]
//! walks the offsets once, wide, then narrow, then byte by byte, so every source byte is read once
//! and every result byte written once.
//!
//! Invariant: any length and alignment, same result as the definition (`tests/kernels.rs`).

// Plain loops over registers: an iterator's closure would be a function without the kernel's target
// features, which the compiler may fail to inline.
#![allow(clippy::needless_range_loop)]

use super::lanes::Lanes;

/// One walk over blocks of equal length.
pub(super) trait Pass {
    /// Handles the W x `L::BYTES` bytes at `offset`. With `STREAM`, results bypass the caches.
    ///
    /// # Safety
    /// The processor has L's instructions; `offset` + W x `L::BYTES` is within every block of the
    /// pass; with `STREAM`, `offset` into every result block is a multiple of `L::BYTES`.
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize);
}

/// Walks a pass over `length` bytes, W registers at a time.
///
/// # Safety
/// The processor has L's instructions; every block of the pass has `length` bytes; with `STREAM`,
/// every result block starts at a multiple of `L::BYTES`.
#[inline(always)]
pub(super) unsafe fn run<L: Lanes, const W: usize, const STREAM: bool>(
    pass: &impl Pass,
    length: usize,
) {
    let mut offset = 0;
    while length - offset >= W * L::BYTES {
        // SAFETY: the condition leaves W registers of room; offsets are multiples of `L::BYTES`.
        unsafe { pass.step::<L, W, STREAM>(offset) };
        offset += W * L::BYTES;
    }
    while length - offset >= L::BYTES {
        // SAFETY: the condition leaves one register of room.
        unsafe { pass.step::<L, 1, false>(offset) };
        offset += L::BYTES;
    }
    while offset < length {
        // SAFETY: the condition leaves one byte of room; every processor has bytes.
        unsafe { pass.step::<u8, 1, false>(offset) };
        offset += 1;
    }
    if STREAM {
        L::fence();
    }
}

/// # Safety
/// As [`Lanes::load`], for W registers at `source` + `offset`.
#[inline(always)]
pub(super) unsafe fn load<L: Lanes, const W: usize>(source: *const u8, offset: usize) -> [L; W] {
    // SAFETY: the caller's promise; a register's index is below W.
    unsafe {
        let mut lanes = [L::zero(); W];
        for index in 0..W {
            lanes[index] = L::load(source.add(offset).add(index * L::BYTES));
        }
        lanes
    }
}

/// # Safety
/// As [`Lanes::store`], or with `STREAM` [`Lanes::stream`], for W registers at `target` + `offset`.
#[inline(always)]
pub(super) unsafe fn store<L: Lanes, const W: usize, const STREAM: bool>(
    lanes: [L; W],
    target: *mut u8,
    offset: usize,
) {
    for index in 0..W {
        // SAFETY: the caller's promise; a register's index is below W.
        unsafe {
            let place = target.add(offset).add(index * L::BYTES);
            if STREAM { lanes[index].stream(place) } else { lanes[index].store(place) }
        }
    }
}

/// `target` = the sum of N sources. The pointers to the sources stay in registers.
pub(super) struct XorFew<const N: usize> {
    pub(super) sources: [*const u8; N],
    pub(super) target: *mut u8,
}

impl<const N: usize> Pass for XorFew<N> {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load` and `store`.
        unsafe {
            let mut sum: [L; W] = load(self.sources[0], offset);
            let mut next = 1;
            while next + 1 < N {
                let second: [L; W] = load(self.sources[next], offset);
                let third: [L; W] = load(self.sources[next + 1], offset);
                for index in 0..W {
                    sum[index] = sum[index].xor3(second[index], third[index]);
                }
                next += 2;
            }
            if next < N {
                let last: [L; W] = load(self.sources[next], offset);
                for index in 0..W {
                    sum[index] = sum[index].xor(last[index]);
                }
            }
            store::<L, W, STREAM>(sum, self.target, offset);
        }
    }
}

/// `target` = the sum of any number of sources, or `target` += that sum.
pub(super) struct XorMany<'a> {
    pub(super) sources: &'a [&'a [u8]],
    pub(super) target: *mut u8,
    pub(super) add: bool,
}

impl Pass for XorMany<'_> {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load`, `store` and `zero`.
        unsafe {
            let mut sum: [L; W] = if self.add { load(self.target, offset) } else { [L::zero(); W] };
            let pairs = self.sources.chunks_exact(2);
            if let [last] = pairs.remainder() {
                let last: [L; W] = load(last.as_ptr(), offset);
                for index in 0..W {
                    sum[index] = sum[index].xor(last[index]);
                }
            }
            for pair in pairs {
                let second: [L; W] = load(pair[0].as_ptr(), offset);
                let third: [L; W] = load(pair[1].as_ptr(), offset);
                for index in 0..W {
                    sum[index] = sum[index].xor3(second[index], third[index]);
                }
            }
            store::<L, W, STREAM>(sum, self.target, offset);
        }
    }
}

/// P (if wanted) and Q of N sources with exponents 0..N. The pointers to the sources stay in
/// registers.
pub(super) struct SyndromeFew<const N: usize, const P: bool> {
    pub(super) sources: [*const u8; N],
    pub(super) p: *mut u8,
    pub(super) q: *mut u8,
}

impl<const N: usize, const P: bool> Pass for SyndromeFew<N, P> {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load` and `store`.
        unsafe {
            let mut q: [L; W] = load(self.sources[N - 1], offset);
            let mut p = q;
            let mut exponent = N - 1;
            while exponent >= 2 {
                let next: [L; W] = load(self.sources[exponent - 1], offset);
                let last: [L; W] = load(self.sources[exponent - 2], offset);
                for index in 0..W {
                    p[index] = p[index].xor3(next[index], last[index]);
                }
                for index in 0..W {
                    q[index] = q[index].horner_pair(next[index], last[index]);
                }
                exponent -= 2;
            }
            if exponent == 1 {
                let last: [L; W] = load(self.sources[0], offset);
                for index in 0..W {
                    p[index] = p[index].xor(last[index]);
                }
                for index in 0..W {
                    q[index] = q[index].horner(last[index]);
                }
            }
            if P {
                store::<L, W, STREAM>(p, self.p, offset);
            }
            store::<L, W, STREAM>(q, self.q, offset);
        }
    }
}

/// P (if wanted) and Q of any sources, also with gaps, by Horner's rule from the highest exponent
/// down.
pub(super) struct SyndromeMany<'a, const P: bool> {
    pub(super) sources: &'a [Option<&'a [u8]>],
    pub(super) p: *mut u8,
    pub(super) q: *mut u8,
}

impl<const P: bool> Pass for SyndromeMany<'_, P> {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load`, `store` and `zero`.
        unsafe {
            let mut p: [L; W] = [L::zero(); W];
            let mut q = p;
            for source in self.sources.iter().rev() {
                if let Some(source) = source {
                    let next: [L; W] = load(source.as_ptr(), offset);
                    for index in 0..W {
                        p[index] = p[index].xor(next[index]);
                    }
                    for index in 0..W {
                        q[index] = q[index].horner(next[index]);
                    }
                } else {
                    for index in 0..W {
                        q[index] = q[index].horner(L::zero());
                    }
                }
            }
            if P {
                store::<L, W, STREAM>(p, self.p, offset);
            }
            store::<L, W, STREAM>(q, self.q, offset);
        }
    }
}

/// `p` += `delta` (if wanted) and `q` += `factor` x `delta`.
pub(super) struct Update<const P: bool> {
    pub(super) delta: *const u8,
    pub(super) factor: u8,
    pub(super) p: *mut u8,
    pub(super) q: *mut u8,
}

impl<const P: bool> Pass for Update<P> {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load`, `store` and `factor`.
        unsafe {
            let factor = L::factor(self.factor);
            let delta: [L; W] = load(self.delta, offset);
            let mut q: [L; W] = load(self.q, offset);
            for index in 0..W {
                q[index] = q[index].xor(delta[index].multiply(factor));
            }
            if P {
                let mut p: [L; W] = load(self.p, offset);
                for index in 0..W {
                    p[index] = p[index].xor(delta[index]);
                }
                store::<L, W, STREAM>(p, self.p, offset);
            }
            store::<L, W, STREAM>(q, self.q, offset);
        }
    }
}

/// `out`, which holds Q', becomes `factor` x (Q' + `q`).
pub(super) struct SolveOne {
    pub(super) q: *const u8,
    pub(super) factor: u8,
    pub(super) out: *mut u8,
}

impl Pass for SolveOne {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load`, `store` and `factor`.
        unsafe {
            let factor = L::factor(self.factor);
            let stored: [L; W] = load(self.q, offset);
            let mut lost: [L; W] = load(self.out, offset);
            for index in 0..W {
                lost[index] = lost[index].xor(stored[index]).multiply(factor);
            }
            store::<L, W, STREAM>(lost, self.out, offset);
        }
    }
}

/// `out` holds P' and Q', computed from the remaining data. `out` becomes the lost columns: Dx = a
/// (P' + `p`) + b (Q' + `q`) and Dy = Dx + P' + `p`.
pub(super) struct SolveTwo {
    pub(super) stored: (*const u8, *const u8),
    pub(super) factors: (u8, u8),
    pub(super) out: (*mut u8, *mut u8),
}

impl Pass for SolveTwo {
    #[inline(always)]
    unsafe fn step<L: Lanes, const W: usize, const STREAM: bool>(&self, offset: usize) {
        // SAFETY: the caller's promises are those of `load`, `store` and `factor`.
        unsafe {
            let (a, b) = (L::factor(self.factors.0), L::factor(self.factors.1));
            let p: [L; W] = load(self.stored.0, offset);
            let q: [L; W] = load(self.stored.1, offset);
            let mut x: [L; W] = load(self.out.0, offset);
            let mut y: [L; W] = load(self.out.1, offset);
            for index in 0..W {
                let p_residue = p[index].xor(x[index]);
                let q_residue = q[index].xor(y[index]);
                x[index] = p_residue.multiply(a).xor(q_residue.multiply(b));
                y[index] = x[index].xor(p_residue);
            }
            store::<L, W, STREAM>(x, self.out.0, offset);
            store::<L, W, STREAM>(y, self.out.1, offset);
        }
    }
}
