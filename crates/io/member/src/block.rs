//! A member that is a block device.
//!
//! Zeroing goes through `fallocate`. On a block device that is `BLKZEROOUT` with a flag to allow
//! unmapping; unlike the ioctl it needs no unsafe call. The kernel requires whole logical blocks,
//! so an unaligned head or tail is written by hand (`tests/loop_device.rs`).

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::descriptor::Descriptor;
use crate::direct::DirectError;
use crate::raw::Raw;
use crate::{Identity, Member, MemberError, check_bounds};

/// A block device, opened exclusively (`O_EXCL`) for writing, for as long as this value lives.
#[derive(Debug)]
pub struct BlockMember {
    descriptor: Arc<Descriptor>,
    zeroes_fast: bool,
}

impl BlockMember {
    pub(crate) fn new(descriptor: Descriptor, zeroes_fast: bool) -> Self {
        Self { descriptor: Arc::new(descriptor), zeroes_fast }
    }
}

impl Member for BlockMember {
    fn size_bytes(&self) -> u64 {
        self.descriptor.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.descriptor.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.descriptor.read_at(buffer, offset_bytes)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        self.descriptor.write_at(buffer, offset_bytes, durable)
    }

    fn read_vectored_at(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        offset_bytes: u64,
    ) -> Result<(), MemberError> {
        self.descriptor.read_vectored_at(buffers, offset_bytes)
    }

    fn write_vectored_at(
        &self,
        buffers: &mut [IoSlice<'_>],
        offset_bytes: u64,
        durable: bool,
    ) -> Result<(), MemberError> {
        self.descriptor.write_vectored_at(buffers, offset_bytes, durable)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.descriptor.flush()
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        check_bounds(offset_bytes, length_bytes, self.size_bytes())?;
        let block_bytes = u64::from(self.identity().logical_block_bytes);
        let end_bytes = offset_bytes + length_bytes;
        let first_whole = offset_bytes.next_multiple_of(block_bytes);
        let last_whole = end_bytes - end_bytes % block_bytes;
        if first_whole >= last_whole {
            return self.descriptor.write_zeroes(offset_bytes, length_bytes);
        }
        self.descriptor.write_zeroes(offset_bytes, first_whole - offset_bytes)?;
        self.descriptor.zero(first_whole, last_whole - first_whole, may_punch)?;
        self.descriptor.write_zeroes(last_whole, end_bytes - last_whole)
    }

    fn can_zero_fast(&self) -> bool {
        self.zeroes_fast
    }

    fn raw(&self) -> Option<Raw> {
        Some(Raw(Arc::clone(&self.descriptor)))
    }

    fn go_direct(&self) -> Result<(), DirectError> {
        self.descriptor.go_direct()
    }

    fn is_direct(&self) -> bool {
        self.descriptor.is_direct()
    }
}
