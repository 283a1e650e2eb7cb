//! P and Q arithmetic: generate, update, recover, with kernels chosen at run time.
//!
//! The crate stands below all others but `sim-hooks`. The engine names parity work, and a driver
//! runs it with this crate. Bytes in, bytes out: no I/O, no threads, no allocation, no knowledge of
//! slots, layouts or chunks.
//!
//! The crate does not decide which data column has which exponent: geometry does (DDF layouts leave
//! gaps). It judges a block only by the arithmetic of [`locate`](mod@locate) and the count of
//! copies by [`vote`](fn@vote).
//!
//! # Algebra
//!
//! The field is GF(2^8) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and generator g = 2, as
//! in md and in H. P. Anvin, "The mathematics of RAID-6". With data columns D0 .. Dn-1:
//!
//! ```text
//!     P = D0 + D1 + ... + Dn-1                     (+ is XOR)
//!     Q = g^0 D0 + g^1 D1 + ... + g^(n-1) Dn-1     (md's order: the index is the exponent)
//! ```
//!
//! | lost | how |
//! |---|---|
//! | P | [`Kernel::xor`] of the data |
//! | Q | [`Kernel::q`] of the data |
//! | P and Q | [`Kernel::pq`] of the data |
//! | Dx | [`Kernel::xor`] of P and the other data |
//! | Dx and Q | Dx as above, then [`Kernel::q`] |
//! | Dx and P | [`Kernel::recover_data_from_q`], then [`Kernel::xor`] |
//! | Dx and Dy | [`Kernel::recover_two_data`] |
//!
//! A wrong column, not a lost one, is another question: `locate/mod.rs` has its algebra.
//!
//! # Invariants
//!
//! 1. Multiplication is the bitwise definition: `gf256::tests::multiply_is_the_bitwise_definition`,
//!    all 65,536 pairs.
//! 2. Every kernel equals [`definition`]: at start (`kernel::self_test`), and in `tests/kernels.rs`
//!    over random lengths, alignments, gaps and all erasure sets.
//! 3. A kernel runs only where the processor has its instructions: [`kernels`] lists no other, and
//!    there is no other way to a [`Kernel`].
//! 4. One rotten column is located; two are not taken for a third: `locate/tests.rs`.

#![deny(unsafe_code)]

pub mod definition;
pub mod gf256;
mod kernel;
mod locate;
mod vote;

pub use kernel::{COLUMNS_MAX, Kernel, STREAM_BYTES_MIN, kernel, kernel_named, kernels};
pub use locate::{Column, ColumnSet, Evidence, VALUES_ENOUGH, Verdict, locate};
pub use vote::{Vote, vote};
