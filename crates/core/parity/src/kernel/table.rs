//! A kernel's functions as a table; and the tables of all kernels in this program.
//!
//! `mod.rs` puts checks before the calls; `choose.rs` decides which tables the processor may use.

use super::entry;
use super::lanes::Lanes;

/// The blocks of a stripe in order of exponents; `None` is a gap.
type Sources<'a> = &'a [Option<&'a [u8]>];

/// Takes the result block, and the sources whose sum the block becomes or receives.
pub(super) type Xor = unsafe fn(&mut [u8], &[&[u8]]);

/// Takes stored P and Q, the factors for their residues, and P and Q computed from the remaining
/// data. Overwrites the computed P and Q with the lost columns.
type SolveTwo = unsafe fn((&[u8], &[u8]), (u8, u8), (&mut [u8], &mut [u8]));

/// The functions of one kernel. Every function demands that the processor has the kernel's
/// instructions, and that all blocks have the same length.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) xor: Xor,
    pub(super) xor_into: Xor,
    pub(super) pq: unsafe fn(Sources<'_>, &mut [u8], &mut [u8]),
    pub(super) q: unsafe fn(Sources<'_>, &mut [u8]),
    pub(super) multiply_into: unsafe fn(&mut [u8], &[u8], u8),
    pub(super) pq_update: unsafe fn(&[u8], u8, &mut [u8], &mut [u8]),
    pub(super) solve_one: unsafe fn(&[u8], u8, &mut [u8]),
    pub(super) solve_two: SolveTwo,
}

/// Declares a table whose functions are those of `entry.rs`, compiled for one register type and
/// instruction set.
macro_rules! table {
    ($table:ident, $name:literal, $lanes:ty, $wide:literal $(, $features:literal)?) => {
        pub(super) static $table: Table = {
            table!(@entry xor $lanes, $wide, $($features)?, (a: &mut [u8], b: &[&[u8]]));
            table!(@entry xor_into $lanes, $wide, $($features)?, (a: &mut [u8], b: &[&[u8]]));
            table!(@entry pq $lanes, $wide, $($features)?, (a: Sources<'_>, b: &mut [u8], c: &mut [u8]));
            table!(@entry q $lanes, $wide, $($features)?, (a: Sources<'_>, b: &mut [u8]));
            table!(@entry multiply_into $lanes, $wide, $($features)?, (a: &mut [u8], b: &[u8], c: u8));
            table!(@entry pq_update $lanes, $wide, $($features)?, (a: &[u8], b: u8, c: &mut [u8], d: &mut [u8]));
            table!(@entry solve_one $lanes, $wide, $($features)?, (a: &[u8], b: u8, c: &mut [u8]));
            table!(@entry solve_two $lanes, $wide, $($features)?,
                (a: (&[u8], &[u8]), b: (u8, u8), c: (&mut [u8], &mut [u8])));
            Table { name: $name, xor, xor_into, pq, q, multiply_into, pq_update, solve_one, solve_two }
        };
    };
    (@entry $entry:ident $lanes:ty, $wide:literal, $($features:literal)?, ($($argument:ident: $type:ty),*)) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $entry($($argument: $type),*) {
            const { assert!(<$lanes as Lanes>::BYTES.is_power_of_two()) }
            // SAFETY: the table's promises, handed on.
            unsafe { entry::$entry::<$lanes, $wide>($($argument),*) }
        }
    };
}

// The number after the type is the width of a walk's steps in registers. Wider steps pay while a
// step's sums stay in registers: AVX-512 has 32 registers, AVX2 has 16. Measured with
// examples/throughput on an EPYC 9005 (Zen 5), 2026-11-20.
table!(SCALAR, "scalar", u64, 2);

// NEON has 32 registers of 16 bytes. Steps of four registers, for P and for Q, leave room for two
// more sources. Not measured: see docs/service.md.
#[cfg(target_arch = "aarch64")]
table!(NEON, "neon", super::neon::Neon, 4, "neon");

#[cfg(target_arch = "x86_64")]
table!(AVX2, "avx2", super::avx2::Avx2, 2, "avx2");
#[cfg(target_arch = "x86_64")]
table!(GFNI_AVX2, "gfni-avx2", super::avx2::GfniAvx2, 2, "avx2,gfni");
#[cfg(target_arch = "x86_64")]
table!(AVX512, "avx512", super::avx512::Avx512, 4, "avx512f,avx512bw");
#[cfg(target_arch = "x86_64")]
table!(GFNI_AVX512, "gfni-avx512", super::avx512::GfniAvx512, 4, "avx512f,avx512bw,gfni");
