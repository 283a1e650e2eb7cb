//! ISA-L's `xor_gen` and `pq_gen`, declared by hand from the documentation in its `raid.h`.
//!
//! Both functions take the number of blocks, parity included, the length of a block, and the blocks
//! in the order data, P, Q. For `pq_gen` the blocks' addresses and their length must be multiples
//! of 32 bytes. A result of zero means success.

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn xor_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
}

const ALIGNMENT_BYTES: usize = 32;
const BLOCKS_MAX: usize = 32;

/// Writes P of `data` if `parity` has one block, or P and Q if it has two.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let bytes = parity[0].len();
    let count = data.len() + parity.len();
    assert!(count <= BLOCKS_MAX && bytes.is_multiple_of(ALIGNMENT_BYTES));
    let mut blocks = [std::ptr::null_mut::<c_void>(); BLOCKS_MAX];
    for (place, block) in blocks.iter_mut().zip(data) {
        assert!(block.len() == bytes && block.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES));
        *place = block.as_ptr().cast_mut().cast();
    }
    for (place, block) in blocks[data.len()..].iter_mut().zip(parity.iter_mut()) {
        assert!(block.len() == bytes && block.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES));
        *place = block.as_mut_ptr().cast();
    }
    let vects = c_int::try_from(count).expect("at most 32");
    let len = c_int::try_from(bytes).expect("blocks are small");
    // SAFETY: `blocks` holds `vects` blocks of `len` bytes, aligned as ISA-L demands. The functions
    // write only to the last one or two blocks, which are borrowed mutably.
    let result = unsafe {
        match parity.len() {
            1 => xor_gen(vects, len, blocks.as_mut_ptr()),
            2 => pq_gen(vects, len, blocks.as_mut_ptr()),
            other => unreachable!("{other} blocks of parity"),
        }
    };
    assert_eq!(result, 0, "ISA-L refused");
}
