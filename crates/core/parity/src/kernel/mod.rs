//! A kernel: P and Q arithmetic on blocks, compiled for one instruction set.
//!
//! This is the crate's face towards the drivers of the engine, and the one room of this crate that
//! allows `unsafe`. From outside in: `mod.rs` (checks) -> `table.rs` (functions per instruction
//! set) -> `entry.rs` (which walk) -> `body.rs` (loops) -> `lanes.rs` (registers), implemented by
//! `scalar.rs`, `avx2.rs`, `avx512.rs`, `neon.rs`.
//!
//! This module does not read the environment or a configuration: callers that read them use
//! [`kernel_named`].
//!
//! Invariants: lengths are checked here, in release too, because everything below trusts them
//! (`tests/kernels.rs::mistakes_are_refused`); a [`Kernel`] exists only if the processor has its
//! instructions (`choose.rs` makes them, no other file can).

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod body;
mod choose;
mod entry;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod table;

use braid_sim_hooks::{Bug, spoiled};
use std::fmt;

pub use entry::STREAM_BYTES_MIN;
use table::Table;

use crate::gf256::{inverse, multiply, power};

/// The most data columns that Q tells apart: the generator has no more powers.
pub const COLUMNS_MAX: usize = 255;

/// The most sources that one walk reads side by side.
const STREAMS_MAX: usize = 16;

/// With more than `STREAMS_MAX` sources, each walk reads this many of them. The processor's
/// prefetchers follow only a few places. Columns lie a multiple of a page apart, so that many of
/// them compete for the same places of the first cache.
const TURN_SOURCES: usize = 8;

/// With more than `STREAMS_MAX` sources, walks finish this many bytes of the result before the next
/// bytes begin. So the bytes stay in the first cache.
const PIECE_BYTES: usize = 16 << 10;

/// The arithmetic for one instruction set. All kernels give the same bytes.
///
/// In every call all blocks have the same length, of any size, at any alignment; unequal lengths
/// panic. Sources are listed by exponent: `sources[e]` is multiplied by g^e in Q. `None` stands for
/// a block of zeroes: a gap in a DDF layout, a column known to be zero, or the column that is lost.
#[derive(Clone, Copy)]
pub struct Kernel(&'static Table);

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Kernel").field(&self.name()).finish()
    }
}

fn check(length: usize, blocks: &[&[u8]]) {
    assert!(
        blocks.iter().all(|block| block.len() == length),
        "blocks of one call are equally long"
    );
}

fn check_columns(length: usize, sources: &[Option<&[u8]>]) {
    assert!(sources.len() <= COLUMNS_MAX, "Q tells at most {COLUMNS_MAX} columns apart");
    let equal = sources.iter().flatten().all(|block| block.len() == length);
    assert!(equal, "blocks of one call are equally long");
}

fn check_lost(sources: &[Option<&[u8]>], lost: u16) {
    let column = sources.get(usize::from(lost));
    assert!(matches!(column, Some(None)), "a lost column is one of the stripe, and absent");
}

impl Kernel {
    /// The name: "gfni-avx512", "avx512", "gfni-avx2", "avx2", "neon" or "scalar".
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// `target` = the sum of `sources`: P of data columns, or a lost column from P and the other
    /// columns. Zeroes if there are no sources.
    pub fn xor(&self, target: &mut [u8], sources: &[&[u8]]) {
        check(target.len(), sources);
        if sources.len() > STREAMS_MAX {
            return self.xor_in_turns(target, sources, self.0.xor);
        }
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.xor)(target, sources) }
    }

    /// Does what `xor` does, in several walks, so that no walk reads from more places than the
    /// processor can follow.
    fn xor_in_turns(&self, target: &mut [u8], sources: &[&[u8]], first: table::Xor) {
        for start in (0..target.len()).step_by(PIECE_BYTES) {
            let end = target.len().min(start + PIECE_BYTES);
            let target = &mut target[start..end];
            for (turn, group) in sources.chunks(TURN_SOURCES).enumerate() {
                let mut parts: [&[u8]; TURN_SOURCES] = [&[]; TURN_SOURCES];
                for (part, source) in parts.iter_mut().zip(group) {
                    *part = &source[start..end];
                }
                let parts = &parts[..group.len()];
                let add = if turn == 0 { first } else { self.0.xor_into };
                // SAFETY: as in `xor`; parts are as long as the target's.
                unsafe { add(target, parts) }
            }
        }
    }

    /// `target` += the sum of `sources`: P's side of a read-modify-write.
    pub fn xor_into(&self, target: &mut [u8], sources: &[&[u8]]) {
        check(target.len(), sources);
        if sources.len() > STREAMS_MAX {
            return self.xor_in_turns(target, sources, self.0.xor_into);
        }
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.xor_into)(target, sources) }
    }

    /// `p` and `q` of `sources`, reading each source once.
    pub fn pq(&self, sources: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8]) {
        check(q.len(), &[p]);
        check_columns(q.len(), sources);
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.pq)(sources, p, q) }
    }

    /// `q` of `sources`.
    pub fn q(&self, sources: &[Option<&[u8]>], q: &mut [u8]) {
        check_columns(q.len(), sources);
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.q)(sources, q) }
    }

    /// `target` += g^`exponent` `source`: Q's side of a read-modify-write.
    pub fn multiply_into(&self, target: &mut [u8], source: &[u8], exponent: u16) {
        check(target.len(), &[source]);
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.multiply_into)(target, source, power(exponent)) }
    }

    /// `p` += `delta` and `q` += g^`exponent` `delta`, in one walk over `delta` (old + new data).
    pub fn pq_update(
        &self,
        delta: &[u8],
        exponent: u16,
        p: Option<&mut [u8]>,
        q: Option<&mut [u8]>,
    ) {
        match (p, q) {
            (Some(p), Some(q)) => {
                check(delta.len(), &[p, q]);
                // SAFETY: the processor has the instructions of every kernel; lengths are checked.
                unsafe { (self.0.pq_update)(delta, power(exponent), p, q) }
            }
            (Some(p), None) => self.xor_into(p, &[delta]),
            (None, Some(q)) => self.multiply_into(q, delta, exponent),
            (None, None) => {}
        }
    }

    /// `out` = the data column `lost`, computed from Q because P is lost too. `sources[lost]` must
    /// be `None`.
    pub fn recover_data_from_q(
        &self,
        sources: &[Option<&[u8]>],
        q: &[u8],
        lost: u16,
        out: &mut [u8],
    ) {
        check(out.len(), &[q]);
        check_lost(sources, lost);
        self.q(sources, out);
        let lost = spoiled(Bug::QSolvedWrong, lost, lost.wrapping_add(1));
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.solve_one)(q, inverse(power(lost)), out) }
    }

    /// `out` = the two data columns `lost`, in the same order. Both must be `None` in `sources`.
    /// `parity` is P, then Q.
    pub fn recover_two_data(
        &self,
        sources: &[Option<&[u8]>],
        (p, q): (&[u8], &[u8]),
        lost: (u16, u16),
        out: (&mut [u8], &mut [u8]),
    ) {
        check(p.len(), &[q, out.0, out.1]);
        check_lost(sources, lost.0);
        check_lost(sources, lost.1);
        assert!(lost.0 != lost.1, "two lost columns are two");
        self.pq(sources, out.0, out.1);
        // P' and Q' are computed from the remaining data. From Dx + Dy = P + P' and g^x Dx + g^y Dy
        // = Q + Q': Dx = (g^y (P + P') + (Q + Q')) / (g^x + g^y).
        let divisor = inverse(power(lost.0) ^ power(lost.1));
        let factors = (multiply(power(lost.1), divisor), divisor);
        // SAFETY: the processor has the instructions of every kernel; lengths are checked.
        unsafe { (self.0.solve_two)((p, q), factors, out) }
    }
}

/// The best kernel of this processor that passed its self-test. The first call in a process runs
/// the tests.
#[must_use]
pub fn kernel() -> &'static Kernel {
    &choose::USABLE[0]
}

/// All kernels of this processor that passed their self-test, best first; the last is "scalar".
#[must_use]
pub fn kernels() -> &'static [Kernel] {
    &choose::USABLE
}

/// The kernel called `name`, if this processor can run it and it passed its self-test.
#[must_use]
pub fn kernel_named(name: &str) -> Option<&'static Kernel> {
    kernels().iter().find(|kernel| kernel.name() == name)
}
