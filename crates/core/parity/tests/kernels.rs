//! Compares every kernel of this processor with the definition: lengths, alignments, gaps, and all
//! erasure sets.

use braid_parity::{
    COLUMNS_MAX, Kernel, STREAM_BYTES_MIN, definition, kernel, kernel_named, kernels,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Enough slack that a block can start at any offset within the widest kernel's register.
const SLACK_BYTES: usize = 64;

/// A block at a chosen alignment, with guard bytes on both sides that must stay unchanged.
struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

const GUARD: u8 = 0xa5;

impl Block {
    fn new(length: usize, offset: usize, seed: u64) -> Block {
        let mut memory = vec![GUARD; length + 2 * SLACK_BYTES];
        let base = memory.as_ptr().addr().wrapping_neg() % SLACK_BYTES;
        let start = base + offset % SLACK_BYTES;
        let mut state = seed;
        for byte in &mut memory[start..start + length] {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[0];
        }
        Block { memory, start, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }

    /// Checks that the guard bytes are unchanged, and returns the block's bytes.
    fn finish(self) -> Vec<u8> {
        let (before, rest) = self.memory.split_at(self.start);
        let (bytes, after) = rest.split_at(self.length);
        assert!(before.iter().chain(after).all(|byte| *byte == GUARD), "written beside the block");
        bytes.to_vec()
    }
}

/// The data blocks of a stripe, some of them gaps, and the alignment of its results.
#[derive(Debug, Clone)]
struct Case {
    length: usize,
    present: Vec<bool>,
    offsets: Vec<usize>,
    seed: u64,
}

fn case(columns_max: usize) -> impl Strategy<Value = Case> {
    let length = prop_oneof![0..200usize, 0..3000usize, Just(4096)];
    let columns = vec(prop::bool::weighted(0.8), 0..=columns_max);
    let offsets = vec(prop_oneof![Just(0), 0..SLACK_BYTES], 1..8);
    (length, columns, offsets, any::<u64>()).prop_map(|(length, present, offsets, seed)| Case {
        length,
        present,
        offsets,
        seed,
    })
}

impl Case {
    fn block(&self, index: usize) -> Block {
        let seed = self.seed.wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Block::new(self.length, self.offsets[index % self.offsets.len()], seed)
    }

    fn data(&self) -> Vec<Option<Block>> {
        let columns = self.present.iter().enumerate();
        columns.map(|(index, present)| present.then(|| self.block(index))).collect()
    }
}

fn sources(blocks: &[Option<Block>]) -> Vec<Option<&[u8]>> {
    blocks.iter().map(|block| block.as_ref().map(Block::bytes)).collect()
}

fn check_generation(kernel: &Kernel, case: &Case) {
    let data = case.data();
    let sources = sources(&data);
    let dense: Vec<&[u8]> = sources.iter().copied().flatten().collect();
    let (mut p, mut q) = (vec![0; case.length], vec![0; case.length]);
    definition::pq(&sources, &mut p, &mut q);

    let (mut p_found, mut q_found) = (case.block(300), case.block(301));
    kernel.pq(&sources, p_found.bytes_mut(), q_found.bytes_mut());
    assert!(p_found.finish() == p && q_found.finish() == q, "{kernel:?} pq");

    let mut q_found = case.block(302);
    kernel.q(&sources, q_found.bytes_mut());
    assert!(q_found.finish() == q, "{kernel:?} q");

    let mut sum = case.block(303);
    kernel.xor(sum.bytes_mut(), &dense);
    assert!(sum.finish() == p, "{kernel:?} xor");

    let mut sum = case.block(304);
    let mut expected = sum.bytes().to_vec();
    definition::xor_into(&mut expected, &dense);
    kernel.xor_into(sum.bytes_mut(), &dense);
    assert!(sum.finish() == expected, "{kernel:?} xor_into");
}

fn check_update(kernel: &Kernel, case: &Case, exponent: u16) {
    let (delta, p_before, q_before) = (case.block(0), case.block(1), case.block(2));
    let (mut p, mut q) = (p_before.bytes().to_vec(), q_before.bytes().to_vec());
    definition::xor_into(&mut p, &[delta.bytes()]);
    definition::multiply_into(&mut q, delta.bytes(), exponent);

    let (mut p_found, mut q_found) = (case.block(1), case.block(2));
    let both = (Some(p_found.bytes_mut()), Some(q_found.bytes_mut()));
    kernel.pq_update(delta.bytes(), exponent, both.0, both.1);
    assert!(p_found.finish() == p && q_found.finish() == q, "{kernel:?} both, g^{exponent}");

    let (mut p_found, mut q_found) = (case.block(1), case.block(2));
    kernel.pq_update(delta.bytes(), exponent, Some(p_found.bytes_mut()), None);
    kernel.pq_update(delta.bytes(), exponent, None, Some(q_found.bytes_mut()));
    kernel.pq_update(delta.bytes(), exponent, None, None);
    assert!(p_found.finish() == p && q_found.finish() == q, "{kernel:?} one each, g^{exponent}");

    let mut q_found = case.block(2);
    kernel.multiply_into(q_found.bytes_mut(), delta.bytes(), exponent);
    assert!(q_found.finish() == q, "{kernel:?} multiply_into, g^{exponent}");
}

/// Recovers the data columns `lost` from stored P and Q, and compares the results with the
/// originals.
fn check_recovery(kernel: &Kernel, case: &Case, lost: (u16, u16)) {
    let data = case.data();
    let stored = sources(&data);
    let (mut p, mut q) = (case.block(300), case.block(301));
    definition::pq(&stored, p.bytes_mut(), q.bytes_mut());
    let zeroes = vec![0; case.length];
    let was = |column: u16| stored[usize::from(column)].unwrap_or(&zeroes);

    let mut rest = stored.clone();
    rest[usize::from(lost.0)] = None;
    let mut survivors: Vec<&[u8]> = rest.iter().copied().flatten().collect();
    survivors.push(p.bytes());
    let mut out = case.block(302);
    kernel.xor(out.bytes_mut(), &survivors);
    assert!(out.finish() == was(lost.0), "{kernel:?} data {} (and Q)", lost.0);

    let mut out = case.block(303);
    kernel.recover_data_from_q(&rest, q.bytes(), lost.0, out.bytes_mut());
    assert!(out.finish() == was(lost.0), "{kernel:?} data {} and P", lost.0);

    if lost.0 != lost.1 {
        rest[usize::from(lost.1)] = None;
        let (mut first, mut second) = (case.block(304), case.block(305));
        let out = (first.bytes_mut(), second.bytes_mut());
        kernel.recover_two_data(&rest, (p.bytes(), q.bytes()), lost, out);
        let right = first.finish() == was(lost.0) && second.finish() == was(lost.1);
        assert!(right, "{kernel:?} data {lost:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn generation_is_the_definition(case in case(20)) {
        kernels().iter().for_each(|kernel| check_generation(kernel, &case));
    }

    #[test]
    fn updates_are_the_definition(case in case(0), exponent in any::<u16>()) {
        kernels().iter().for_each(|kernel| check_update(kernel, &case, exponent));
    }
}

/// Every length up to a few of the widest steps. The alignment changes with the length; stripes are
/// full, or have gaps.
#[test]
fn every_short_length() {
    for length in 0..700 {
        for count in [0, 1, 4, 9] {
            let present = (0..count).map(|column| length % 3 != 0 || column % 4 != 1).collect();
            let offsets = vec![0, length % SLACK_BYTES, 0, 7 * length % SLACK_BYTES, 32];
            let case = Case { length, present, offsets, seed: length as u64 };
            kernels().iter().for_each(|kernel| check_generation(kernel, &case));
        }
    }
}

/// Tries up to 12 sources, with all counts that kernels treat specially: without gaps, and with a
/// gap at each place.
#[test]
fn every_count_of_sources_and_every_gap() {
    for count in 0..13 {
        for gap in 0..=count {
            let present = (0..count).map(|column| column != gap).collect();
            let case = Case { length: 64 * 5 + 3, present, offsets: vec![0, 1], seed: 5 };
            kernels().iter().for_each(|kernel| check_generation(kernel, &case));
        }
    }
}

/// Loses each column and each pair of columns among P, Q and up to nine data columns. Covers every
/// length class, and gaps among the survivors.
#[test]
fn every_erasure_set() {
    for count in 1..=9u16 {
        for (lost, other) in (0..count).flat_map(|lost| (0..count).map(move |other| (lost, other)))
        {
            let length = [0, 5, 64, 64 * 4 + 32, 1000][usize::from(count + lost + 2 * other) % 5];
            let gap = (lost + 2 * other) % 11;
            let present = (0..count).map(|column| column != gap).collect();
            let case = Case { length, present, offsets: vec![0, 3, 32], seed: u64::from(lost) };
            kernels().iter().for_each(|kernel| check_recovery(kernel, &case, (lost, other)));
        }
    }
}

/// All 255 exponents, and larger exponents, which count modulo 255.
#[test]
fn every_exponent() {
    let case = Case { length: 64 * 4 + 70, present: vec![], offsets: vec![0, 9], seed: 1 };
    for exponent in (0..=256).chain([u16::MAX]) {
        kernels().iter().for_each(|kernel| check_update(kernel, &case, exponent));
    }
}

/// As many columns as Q can tell apart; the first two and the last two are lost.
#[test]
fn the_widest_stripe() {
    let case = Case { length: 200, present: vec![true; COLUMNS_MAX], offsets: vec![0], seed: 2 };
    for kernel in kernels() {
        check_generation(kernel, &case);
        check_recovery(kernel, &case, (254, 0));
        check_recovery(kernel, &case, (253, 254));
    }
}

/// With this many sources kernels sum in several walks, and long blocks part by part.
#[test]
fn more_sources_than_are_read_side_by_side() {
    for length in [1, 4096, 3 * (16 << 10) + 133] {
        for count in [15, 16, 17, 32, 33, 254] {
            let case = Case { length, present: vec![true; count], offsets: vec![0, 9], seed: 5 };
            kernels().iter().for_each(|kernel| check_generation(kernel, &case));
        }
    }
}

/// Blocks long enough to be written around the caches: aligned, unaligned, and with a tail.
#[test]
fn streamed_blocks() {
    for (length, offset) in [STREAM_BYTES_MIN, STREAM_BYTES_MIN + 133]
        .into_iter()
        .flat_map(|l| [(l, 0), (l, 32), (l, 1)])
    {
        for count in [4, 9] {
            let present = (0..count).map(|column| column != 3 || count == 4).collect();
            let case = Case { length, present, offsets: vec![offset], seed: 3 };
            for kernel in kernels() {
                check_generation(kernel, &case);
                check_recovery(kernel, &case, (2, 0));
            }
        }
    }
}

#[test]
fn kernels_have_names() {
    let names: Vec<_> = kernels().iter().map(Kernel::name).collect();
    assert_eq!(names.last(), Some(&"scalar"));
    assert_eq!(kernel().name(), names[0]);
    for name in &names {
        assert_eq!(kernel_named(name).map(Kernel::name), Some(*name));
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{names:?}");
    }
    assert!(kernel_named("mmx").is_none());
}

/// Whether the call panics, as it must if the caller has a bug.
fn refused(call: impl FnOnce(&'static Kernel) + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(|| call(kernel())).is_err()
}

#[test]
fn mistakes_are_refused() {
    let (a, b) = ([1u8; 64], [2u8; 63]);
    assert!(!refused(|kernel| kernel.xor(&mut [0; 64], &[&a])));
    assert!(refused(|kernel| kernel.xor(&mut [0; 64], &[&a, &b])));
    assert!(refused(|kernel| kernel.xor_into(&mut [0; 64], &[&b])));
    assert!(refused(|kernel| kernel.pq(&[Some(&a)], &mut [0; 64], &mut [0; 63])));
    assert!(refused(|kernel| kernel.pq(&[Some(&a)], &mut [0; 63], &mut [0; 64])));
    assert!(refused(|kernel| kernel.pq(&[Some(&b), None], &mut [0; 64], &mut [0; 64])));
    assert!(refused(|kernel| kernel.q(&[Some(&b)], &mut [0; 64])));
    assert!(refused(|kernel| kernel.q(&[None; 256], &mut [0; 64])));
    assert!(refused(|kernel| kernel.multiply_into(&mut [0; 64], &b, 1)));
    assert!(refused(|kernel| kernel.pq_update(&a, 1, Some(&mut [0; 63]), Some(&mut [0; 64]))));
    assert!(refused(|kernel| kernel.pq_update(&a, 1, Some(&mut [0; 64]), Some(&mut [0; 65]))));
    let sources = [Some(&a[..]), None, None];
    let out = || ([0u8; 64], [0u8; 64]);
    assert!(!refused(move |kernel| kernel.recover_data_from_q(&sources, &a, 1, &mut out().0)));
    assert!(refused(move |kernel| kernel.recover_data_from_q(&sources, &a, 0, &mut out().0)));
    assert!(refused(move |kernel| kernel.recover_data_from_q(&sources, &a, 3, &mut out().0)));
    assert!(refused(move |kernel| kernel.recover_data_from_q(&sources, &b, 1, &mut out().0)));
    let two = |p: &'static [u8], lost: (u16, u16)| {
        refused(move |kernel| {
            let (mut x, mut y) = out();
            kernel.recover_two_data(&sources, (p, &a), lost, (&mut x, &mut y));
        })
    };
    assert!(!two(&[3; 64], (2, 1)));
    assert!(two(&[3; 63], (2, 1)));
    assert!(two(&[3; 64], (1, 1)));
    assert!(two(&[3; 64], (0, 1)));
    assert!(two(&[3; 64], (1, 3)));
}
