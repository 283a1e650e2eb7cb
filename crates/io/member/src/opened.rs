//! A member that this host has open: a regular file, or a block device.
//!
//! Zeroing goes through `fallocate`. On a block device that is `BLKZEROOUT` with a flag to allow
//! unmapping; unlike the ioctl it needs no unsafe call. The kernel requires whole logical blocks,
//! so an unaligned head or tail is written by hand (`tests/loop_device.rs`).

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::descriptor::Descriptor;
use crate::direct::DirectError;
use crate::raw::Raw;
use crate::zeroing::ZeroMethod;
use crate::{AnsweredBy, Identity, Member, MemberError, check_bounds};

#[derive(Clone, Copy, Debug)]
enum Device {
    File,
    Block { zeroes_fast: bool },
}

/// A locked regular file, or a block device opened exclusively (`O_EXCL`), for as long as this
/// value lives.
#[derive(Debug)]
pub(crate) struct OpenedMember {
    descriptor: Arc<Descriptor>,
    device: Device,
}

impl OpenedMember {
    pub(crate) fn file(descriptor: Descriptor, file_system_punches: bool) -> Self {
        if !file_system_punches {
            descriptor.zero_methods().refuse(ZeroMethod::PunchHole);
        }
        Self { descriptor: Arc::new(descriptor), device: Device::File }
    }

    pub(crate) fn block_device(descriptor: Descriptor, zeroes_fast: bool) -> Self {
        Self { descriptor: Arc::new(descriptor), device: Device::Block { zeroes_fast } }
    }

    /// Zeroes a range of a block device.
    fn zero_blocks(
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
}

impl Member for OpenedMember {
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
        let written = self.descriptor.write_at(buffer, offset_bytes, durable);
        written.map_err(|error| self.descriptor.note(error))
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
        let written = self.descriptor.write_vectored_at(buffers, offset_bytes, durable);
        written.map_err(|error| self.descriptor.note(error))
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.descriptor.flush().map_err(|error| self.descriptor.note(error))
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        let zeroed = match self.device {
            Device::File => self.descriptor.zero(offset_bytes, length_bytes, may_punch),
            Device::Block { .. } => self.zero_blocks(offset_bytes, length_bytes, may_punch),
        };
        zeroed.map_err(|error| self.descriptor.note(error))
    }

    fn can_zero_fast(&self) -> bool {
        match self.device {
            Device::File => self.descriptor.zero_methods().has(ZeroMethod::PunchHole),
            Device::Block { zeroes_fast } => zeroes_fast,
        }
    }

    fn hole_at(&self, offset_bytes: u64, length_bytes: u64) -> (bool, u64) {
        match self.device {
            Device::File => self.descriptor.hole_at(offset_bytes, length_bytes),
            Device::Block { .. } => (false, length_bytes),
        }
    }

    fn has_vanished(&self) -> bool {
        matches!(self.device, Device::File) && self.descriptor.has_vanished()
    }

    fn raw(&self) -> Option<Raw> {
        Some(Raw(Arc::clone(&self.descriptor)))
    }

    fn is_memory(&self) -> bool {
        self.identity().answered_by == AnsweredBy::Memory
    }

    fn go_direct(&self) -> Result<(), DirectError> {
        self.descriptor.go_direct()
    }

    fn is_direct(&self) -> bool {
        self.descriptor.is_direct()
    }

    fn claim_seen_ns(&self) -> Option<u64> {
        Some(self.descriptor.reserved()?.seen_ns())
    }
}
