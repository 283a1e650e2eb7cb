//! A member that is a regular file.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::descriptor::Descriptor;
use crate::direct::DirectError;
use crate::raw::Raw;
use crate::zeroing::ZeroMethod;
use crate::{AnsweredBy, Identity, Member, MemberError};

/// A regular file, locked for as long as this value lives.
#[derive(Debug)]
pub struct FileMember {
    descriptor: Arc<Descriptor>,
}

impl FileMember {
    pub(crate) fn new(descriptor: Descriptor, file_system_punches: bool) -> Self {
        if !file_system_punches {
            descriptor.zero_methods().refuse(ZeroMethod::PunchHole);
        }
        Self { descriptor: Arc::new(descriptor) }
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
        self.descriptor.zero(offset_bytes, length_bytes, may_punch)
    }

    fn can_zero_fast(&self) -> bool {
        self.descriptor.zero_methods().has(ZeroMethod::PunchHole)
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

    fn is_memory(&self) -> bool {
        self.identity().answered_by == AnsweredBy::Memory
    }

    fn go_direct(&self) -> Result<(), DirectError> {
        self.descriptor.go_direct()
    }

    fn is_direct(&self) -> bool {
        self.descriptor.is_direct()
    }
}
