//! Tests the kernels that this processor can run, and chooses the best of them.
//!
//! [`super::kernel`] causes one run of the tests per process.
//!
//! Order of preference: gfni-avx512, avx512, gfni-avx2, avx2, scalar. The order is fixed, not raced
//! at start, so that two starts of one program on one machine never differ. The order was measured
//! with `examples/throughput` on an EPYC 9005 (Zen 5), 2026-11-20. The speed of sums follows the
//! register's width, that of products follows GFNI. Only P + Q of eight columns puts gfni-avx2
//! before avx512. On aarch64 the kernels are neon and scalar.
//!
//! Invariant: a kernel that fails its self-test is never offered
//! (`tests::a_broken_kernel_fails_the_self_test`).

use std::sync::LazyLock;

use super::Kernel;
use super::table::SCALAR;
use crate::definition;

/// The kernels that this processor can run and that passed their self-test, best first. The list is
/// never empty: its last kernel is scalar.
pub(super) static USABLE: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    let usable: Vec<_> = candidates().into_iter().filter(self_test).collect();
    assert!(
        !usable.is_empty(),
        "even the scalar parity kernel fails its self-test: the processor is broken"
    );
    usable
});

/// The kernels whose instructions this processor has, best first.
#[cfg(target_arch = "x86_64")]
fn candidates() -> Vec<Kernel> {
    use super::table::{AVX2, AVX512, GFNI_AVX2, GFNI_AVX512, Table};

    let avx2 = is_x86_feature_detected!("avx2");
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let gfni = is_x86_feature_detected!("gfni");
    let all: [(bool, &'static Table); 5] = [
        (avx512 && gfni, &GFNI_AVX512),
        (avx512, &AVX512),
        (avx2 && gfni, &GFNI_AVX2),
        (avx2, &AVX2),
        (true, &SCALAR),
    ];
    all.into_iter().filter(|(present, _)| *present).map(|(_, table)| Kernel(table)).collect()
}

#[cfg(target_arch = "aarch64")]
fn candidates() -> Vec<Kernel> {
    vec![Kernel(&super::table::NEON), Kernel(&SCALAR)]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn candidates() -> Vec<Kernel> {
    vec![Kernel(&SCALAR)]
}

/// The length of a test block: with this length every kernel takes steps of every width, and has a
/// tail.
const BLOCK_BYTES: usize = 64 * 9 + 32 + 8 + 5;

/// Pseudo-random bytes from a seed (a linear congruential generator with Knuth's constants).
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..BLOCK_BYTES)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// Whether all functions of a kernel agree with the definition: with and without gaps, for few
/// sources and for many.
pub(super) fn self_test(kernel: &Kernel) -> bool {
    let blocks: Vec<Vec<u8>> = (0..11).map(noise).collect();
    let dense: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let agree = [1, 2, 3, 4, 7, 8, 11].into_iter().all(|count| {
        let sources: Vec<_> = dense[..count].iter().copied().map(Some).collect();
        xor_agrees(kernel, &dense[..count]) && pq_agrees(kernel, &sources)
    });
    let mut gaps: Vec<_> = dense.iter().copied().map(Some).collect();
    (gaps[2], gaps[5]) = (None, None);
    agree && pq_agrees(kernel, &gaps) && recovery_agrees(kernel, &gaps) && multiply_agrees(kernel)
}

fn xor_agrees(kernel: &Kernel, sources: &[&[u8]]) -> bool {
    let (mut expected, mut found) = (noise(100), noise(200));
    definition::xor(&mut expected, sources);
    kernel.xor(&mut found, sources);
    let sum = expected == found;
    definition::xor_into(&mut expected, &sources[1..]);
    kernel.xor_into(&mut found, &sources[1..]);
    sum && expected == found
}

fn pq_agrees(kernel: &Kernel, sources: &[Option<&[u8]>]) -> bool {
    let (mut p, mut q) = (noise(100), noise(101));
    definition::pq(sources, &mut p, &mut q);
    let (mut p_found, mut q_found) = (noise(200), noise(201));
    kernel.pq(sources, &mut p_found, &mut q_found);
    let both = p == p_found && q == q_found;
    q_found.fill(0);
    kernel.q(sources, &mut q_found);
    both && q == q_found
}

/// Whether recovery agrees with the definition; columns 2 and 5 are absent from `sources`.
fn recovery_agrees(kernel: &Kernel, sources: &[Option<&[u8]>]) -> bool {
    let (p, q) = (noise(100), noise(101));
    let (mut first, mut second) = (noise(200), noise(201));
    definition::recover_two_data(sources, &p, &q, (5, 2), (&mut first, &mut second));
    let (mut first_found, mut second_found) = (noise(300), noise(301));
    kernel.recover_two_data(sources, (&p, &q), (5, 2), (&mut first_found, &mut second_found));
    let both = first == first_found && second == second_found;
    definition::recover_data_from_q(sources, &q, 5, &mut first);
    kernel.recover_data_from_q(sources, &q, 5, &mut first_found);
    both && first == first_found
}

/// Whether multiplication by every constant agrees with the definition, on blocks in which every
/// byte value occurs.
fn multiply_agrees(kernel: &Kernel) -> bool {
    let delta: Vec<u8> = (0..=255u8).cycle().take(BLOCK_BYTES).collect();
    (0..255).all(|exponent| {
        let (mut p, mut q) = (noise(100), noise(101));
        let (mut p_found, mut q_found) = (p.clone(), q.clone());
        definition::xor_into(&mut p, &[&delta]);
        definition::multiply_into(&mut q, &delta, exponent);
        kernel.pq_update(&delta, exponent, Some(&mut p_found), Some(&mut q_found));
        let both = p == p_found && q == q_found;
        kernel.multiply_into(&mut q_found, &delta, exponent);
        both && q_found == noise(101)
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    #[test]
    fn every_candidate_is_usable() {
        assert_eq!(USABLE.len(), candidates().len());
        assert_eq!(USABLE[USABLE.len() - 1].name(), "scalar");
    }

    /// One wrong bit in one function makes the self-test fail.
    #[test]
    fn a_broken_kernel_fails_the_self_test() {
        fn broken_xor(target: &mut [u8], sources: &[&[u8]]) {
            definition::xor(target, sources);
            target[BLOCK_BYTES - 1] ^= 1;
        }
        fn broken_q(sources: &[Option<&[u8]>], q: &mut [u8]) {
            definition::pq(sources, &mut vec![0; q.len()], q);
            q[0] ^= 0x80;
        }
        fn broken_solve(_: (&[u8], &[u8]), _: (u8, u8), _: (&mut [u8], &mut [u8])) {}
        fn broken_update(delta: &[u8], factor: u8, p: &mut [u8], q: &mut [u8]) {
            definition::xor_into(p, &[delta]);
            q[0] ^= factor;
        }
        let breakers: [fn(&mut Table); 5] = [
            |table| table.xor = broken_xor,
            |table| table.q = broken_q,
            |table| table.solve_two = broken_solve,
            |table| table.pq_update = broken_update,
            |table| table.xor_into = broken_xor,
        ];
        assert!(self_test(&Kernel(&SCALAR)));
        for (index, breaker) in breakers.into_iter().enumerate() {
            let mut table = SCALAR;
            breaker(&mut table);
            assert!(!self_test(&Kernel(Box::leak(Box::new(table)))), "breaker {index}");
        }
    }
}
