//! A member that is a regular file.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;

use crate::descriptor::Descriptor;
use crate::direct::DirectError;
use crate::raw::Raw;
use crate::{Identity, Member, MemberError};

/// A regular file, locked for as long as this lives.
#[derive(Debug)]
pub struct FileMember {
    descriptor: Arc<Descriptor>,
    /// Cleared when the file system refuses; saves asking again for every request.
    punches: AtomicBool,
    /// The same for zeroing that keeps the space allocated.
    zeroes_ranges: AtomicBool,
}

impl FileMember {
    pub(crate) fn new(descriptor: Descriptor, file_system_punches: bool) -> Self {
        Self {
            descriptor: Arc::new(descriptor),
            punches: AtomicBool::new(file_system_punches),
            zeroes_ranges: AtomicBool::new(true),
        }
    }

    /// One way of making zeroes, remembered as impossible once it was refused.
    fn try_way(
        &self,
        (offset_bytes, length_bytes): (u64, u64),
        flags: FallocateFlags,
        possible: &AtomicBool,
    ) -> Result<bool, MemberError> {
        if !possible.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let done = self.descriptor.allocate_zeroes(offset_bytes, length_bytes, flags)?;
        if !done {
            possible.store(false, Ordering::Relaxed);
        }
        Ok(done)
    }
}

impl Member for FileMember {
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
        let range = (offset_bytes, length_bytes);
        if may_punch && self.try_way(range, FallocateFlags::PUNCH_HOLE, &self.punches)? {
            return Ok(());
        }
        if self.try_way(range, FallocateFlags::ZERO_RANGE, &self.zeroes_ranges)? {
            return Ok(());
        }
        self.descriptor.write_zeroes(offset_bytes, length_bytes)
    }

    fn can_zero_fast(&self) -> bool {
        self.punches.load(Ordering::Relaxed)
    }

    fn hole_at(&self, offset_bytes: u64, length_bytes: u64) -> (bool, u64) {
        self.descriptor.hole_at(offset_bytes, length_bytes)
    }

    fn has_vanished(&self) -> bool {
        self.descriptor.has_vanished()
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
