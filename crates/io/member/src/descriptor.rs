//! Positioned reads and writes on an open descriptor, shared by files and block devices.
//!
//! This module opens and locks nothing, and does not know whether it has a file or a block device.
//!
//! Invariants:
//! - Whole or an error: short transfers and `EINTR` are continued (`tests/contract.rs`).
//! - After a failed flush every later flush fails (`flushes`, `tests::a_failed_flush_is_sticky`).
//! - A file that was cut short never grows again: the range before a new end would read as zeroes
//!   that no client wrote (`tests::a_file_cut_short_takes_no_writes`).
//! - Reads from a file that was cut short fail. A write in flight when the file was cut extends the
//!   file again, with a hole that reads as zeroes. So the length is checked after every read, too,
//!   and a file once found short stays short (`tests::a_file_that_grew_again_is_not_believed`). A
//!   write that ends exactly at the file's old end, before the length was checked, goes unnoticed.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{SeekFrom, fallocate, fdatasync, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv, pwritev2, retry_on_intr};

use crate::direct::{self, DirectError};
use crate::flushes::Flushes;
use crate::limits::ZERO_BUFFER_BYTES;
use crate::reserved::Reserved;
use crate::zeroing::{ZeroMethod, ZeroMethods, is_refusal};
use crate::{Access, Identity, MemberError, MemberKind, check_bounds};

/// Zeroes, aligned for direct I/O.
#[repr(align(4096))]
struct Zeroes([u8; ZERO_BUFFER_BYTES]);

static ZEROES: Zeroes = Zeroes([0; ZERO_BUFFER_BYTES]);

pub(crate) fn zeroes() -> &'static [u8] {
    &ZEROES.0
}

/// Whether an error of a write with `RWF_DSYNC` means that the flag is not supported.
pub(crate) fn is_flag_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

/// A second descriptor of the same file, which bypasses the page cache.
#[derive(Debug)]
struct DirectFile {
    file: File,
    shared: Arc<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct Descriptor {
    file: File,
    /// The buffered descriptor, shared with callers that submit to it directly.
    shared: OnceLock<Arc<OwnedFd>>,
    /// The descriptor that bypasses the page cache, for aligned transfers.
    direct: OnceLock<DirectFile>,
    /// A descriptor that bypasses the page cache, opened before [`Self::go_direct`] asks for one.
    offered: Mutex<Option<File>>,
    identity: Identity,
    size_bytes: u64,
    writable: bool,
    zero_methods: ZeroMethods,
    /// Whether the file had a name when it was opened. A file without a name cannot lose it.
    had_name: bool,
    is_regular: bool,
    /// The last batch of reads after which the file was found to have its full length.
    whole_in: AtomicU64,
    flushes: Flushes,
    durable_flag_refused: AtomicBool,
    /// Whether the file was once found shorter than when it was opened.
    was_cut_short: AtomicBool,
    /// Locks on the layers below.
    _locks: Vec<File>,
    /// The persistent reservation of an owner by a store.
    reserved: Option<Reserved>,
}

impl Descriptor {
    pub(crate) fn new(file: File, identity: Identity, size_bytes: u64, access: Access) -> Self {
        let metadata = file.metadata().ok();
        let had_name = metadata.as_ref().is_some_and(|metadata| metadata.nlink() > 0);
        let is_regular = metadata.is_none_or(|metadata| metadata.is_file());
        // Files take any range; only block devices require whole blocks.
        let is_block = identity.kind == MemberKind::BlockDevice;
        let unit_bytes = if is_block { u64::from(identity.logical_block_bytes) } else { 1 };
        Self {
            zero_methods: ZeroMethods::new(unit_bytes),
            file,
            shared: OnceLock::new(),
            direct: OnceLock::new(),
            offered: Mutex::default(),
            identity,
            size_bytes,
            writable: access == Access::ReadWrite,
            had_name,
            is_regular,
            whole_in: AtomicU64::new(0),
            flushes: Flushes::new(),
            durable_flag_refused: AtomicBool::new(false),
            was_cut_short: AtomicBool::new(false),
            _locks: Vec::new(),
            reserved: None,
        }
    }

    pub(crate) fn with_reserved(self, reserved: Option<Reserved>) -> Self {
        Self { reserved, ..self }
    }

    pub(crate) fn reserved(&self) -> Option<&Reserved> {
        self.reserved.as_ref()
    }

    /// Reports an error to the owner's claim before the caller gets the error.
    pub(crate) fn note(&self, error: MemberError) -> MemberError {
        if let Some(reserved) = &self.reserved {
            reserved.note(error);
        }
        error
    }

    /// Adds a descriptor that bypasses the page cache, for [`Self::go_direct`].
    pub(crate) fn with_offered(self, direct: Option<File>) -> Self {
        Self { offered: Mutex::new(direct), ..self }
    }

    /// Keeps these files open, and so locked, for as long as the descriptor lives.
    pub(crate) fn with_locks(self, locks: Vec<File>) -> Self {
        Self { _locks: locks, ..self }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the file has no name left in any folder, or has lost its end.
    pub(crate) fn has_vanished(&self) -> bool {
        let is_lost = |metadata: &std::fs::Metadata| {
            (self.had_name && metadata.nlink() == 0) || self.is_cut_short(metadata)
        };
        self.file.metadata().is_ok_and(|metadata| is_lost(&metadata))
    }

    /// Whether the file has been truncated. Never true for block devices: their metadata has no
    /// length.
    fn is_cut_short(&self, metadata: &std::fs::Metadata) -> bool {
        if metadata.is_file() && metadata.len() < self.size_bytes {
            self.was_cut_short.store(true, Ordering::Release);
        }
        self.was_cut_short.load(Ordering::Acquire)
    }

    /// Confirms a read: the file must not have been cut short. Devices, and files that are opened
    /// for reading only, pass unchecked.
    pub(crate) fn check_read(&self) -> Result<(), MemberError> {
        if self.writable && self.is_regular { self.check_whole() } else { Ok(()) }
    }

    /// As [`Self::check_read`], for a read of a batch. All reads of a batch ended before the first
    /// check, so one look at the file serves all of them.
    pub(crate) fn check_read_in(&self, batch: u64) -> Result<(), MemberError> {
        if self.whole_in.load(Ordering::Acquire) == batch {
            return Ok(());
        }
        self.check_read()?;
        self.whole_in.store(batch, Ordering::Release);
        Ok(())
    }

    /// See [`crate::Member::hole_at`]. A cut file has a false hole up to its old end.
    pub(crate) fn hole_at(&self, offset_bytes: u64, length_bytes: u64) -> (bool, u64) {
        let end_bytes = offset_bytes.saturating_add(length_bytes).min(self.size_bytes);
        let data = match seek(&self.file, SeekFrom::Data(offset_bytes)) {
            Ok(data) => data.min(end_bytes),
            // `ENXIO`: only a hole is left up to the file's end.
            Err(Errno::NXIO) => end_bytes,
            Err(_) => return (false, length_bytes),
        };
        if data > offset_bytes {
            // The length is checked last, so that a cut before or during the search is seen.
            let is_whole = end_bytes == offset_bytes + length_bytes && self.check_whole().is_ok();
            return if is_whole { (true, data - offset_bytes) } else { (false, length_bytes) };
        }
        match seek(&self.file, SeekFrom::Hole(offset_bytes)) {
            Ok(hole) if hole > offset_bytes => (false, (hole - offset_bytes).min(length_bytes)),
            _ => (false, length_bytes),
        }
    }

    /// Checks the length of the file. `lseek` to the end takes the kernel a third of the time of
    /// stat(2), and no code here uses the file position.
    fn check_whole(&self) -> Result<(), MemberError> {
        if self.is_regular && seek(&self.file, SeekFrom::End(0))? < self.size_bytes {
            self.was_cut_short.store(true, Ordering::Release);
        }
        match self.was_cut_short.load(Ordering::Acquire) {
            true => Err(MemberError::Truncated),
            false => Ok(()),
        }
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        check_bounds(offset_bytes, buffer.len() as u64, self.size_bytes)?;
        let file = self.file_for(buffer, offset_bytes);
        file.read_exact_at(buffer, offset_bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => MemberError::Truncated,
            _ => MemberError::from(error),
        })?;
        self.check_read()
    }

    pub(crate) fn write_at(
        &self,
        buffer: &[u8],
        offset_bytes: u64,
        durable: bool,
    ) -> Result<(), MemberError> {
        self.check_write(offset_bytes, buffer.len() as u64)?;
        if !durable {
            return Ok(self.file_for(buffer, offset_bytes).write_all_at(buffer, offset_bytes)?);
        }
        self.check_flush()?;
        self.write_durable(buffer, offset_bytes).inspect_err(|error| self.fail_flushes(*error))
    }

    /// Reads into several buffers, one after the other on the device, in as few calls as the kernel
    /// allows.
    pub(crate) fn read_vectored_at(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        offset_bytes: u64,
    ) -> Result<(), MemberError> {
        let length_bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        check_bounds(offset_bytes, length_bytes, self.size_bytes)?;
        let is_aligned = |buffer: &IoSliceMut<'_>| {
            direct::is_aligned(buffer.as_ptr().addr(), buffer.len(), offset_bytes)
        };
        let file = self.file_if(buffers.iter().all(is_aligned));
        let (mut rest, mut position_bytes) = (buffers, offset_bytes);
        while position_bytes < offset_bytes + length_bytes {
            match preadv(file, rest, position_bytes) {
                Ok(0) => return Err(MemberError::Truncated),
                Ok(read) => {
                    IoSliceMut::advance_slices(&mut rest, read);
                    position_bytes += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.check_read()
    }

    /// Writes several buffers, one after the other on the device, in as few calls as the kernel
    /// allows.
    pub(crate) fn write_vectored_at(
        &self,
        buffers: &mut [IoSlice<'_>],
        offset_bytes: u64,
        durable: bool,
    ) -> Result<(), MemberError> {
        let length_bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        self.check_write(offset_bytes, length_bytes)?;
        if durable {
            self.check_flush()?;
        }
        let written = self.write_buffers(buffers, (offset_bytes, length_bytes), durable);
        written.inspect_err(|error| {
            if durable {
                self.fail_flushes(*error);
            }
        })
    }

    fn write_buffers(
        &self,
        buffers: &mut [IoSlice<'_>],
        (offset_bytes, length_bytes): (u64, u64),
        durable: bool,
    ) -> Result<(), MemberError> {
        let is_aligned = |buffer: &IoSlice<'_>| {
            direct::is_aligned(buffer.as_ptr().addr(), buffer.len(), offset_bytes)
        };
        let file = self.file_if(buffers.iter().all(is_aligned));
        let (mut rest, mut position_bytes) = (buffers, offset_bytes);
        while position_bytes < offset_bytes + length_bytes {
            let by_flag = durable && self.takes_durable_flag();
            let flags = if by_flag { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            match pwritev2(file, rest, position_bytes, flags) {
                Ok(0) => return Err(Errno::IO.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    position_bytes += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) if by_flag && is_flag_refusal(errno) => self.refuse_durable_flag(),
                Err(errno) => return Err(errno.into()),
            }
        }
        let is_unsure = durable && !self.takes_durable_flag();
        if is_unsure { self.sync() } else { Ok(()) }
    }

    pub(crate) fn flush(&self) -> Result<(), MemberError> {
        self.check_flush()?;
        if !self.writable {
            return Ok(());
        }
        self.sync().inspect_err(|error| self.fail_flushes(*error))
    }

    pub(crate) fn write_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), MemberError> {
        self.check_write(offset_bytes, length_bytes)?;
        let end_bytes = offset_bytes + length_bytes;
        let mut position_bytes = offset_bytes;
        while position_bytes < end_bytes {
            let step_bytes = (end_bytes - position_bytes).min(ZEROES.0.len() as u64);
            let step = usize::try_from(step_bytes).unwrap_or(ZEROES.0.len());
            let zeroes = &ZEROES.0[..step];
            self.file_for(zeroes, position_bytes).write_all_at(zeroes, position_bytes)?;
            position_bytes += step_bytes;
        }
        Ok(())
    }

    pub(crate) fn zero_methods(&self) -> &ZeroMethods {
        &self.zero_methods
    }

    pub(crate) fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        while let Some(method) = self.zero_methods.next((offset_bytes, length_bytes), may_punch) {
            if self.allocate_zeroes(offset_bytes, length_bytes, method)? {
                return Ok(());
            }
            self.zero_methods.refuse(method);
        }
        self.write_zeroes(offset_bytes, length_bytes)
    }

    /// Asks the kernel to make zeroes. `Ok(false)`: the kernel does not support this method here,
    /// and nothing changed.
    fn allocate_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        method: ZeroMethod,
    ) -> Result<bool, MemberError> {
        self.check_write(offset_bytes, length_bytes)?;
        if length_bytes == 0 {
            return Ok(true);
        }
        match retry_on_intr(|| fallocate(&self.file, method.flags(), offset_bytes, length_bytes)) {
            Ok(()) => Ok(true),
            Err(errno) if is_refusal(errno) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn write_durable(&self, buffer: &[u8], offset_bytes: u64) -> Result<(), MemberError> {
        let mut rest = buffer;
        let mut position_bytes = offset_bytes;
        while !rest.is_empty() && self.takes_durable_flag() {
            let slices = [IoSlice::new(rest)];
            let file = self.file_for(rest, position_bytes);
            match pwritev2(file, &slices, position_bytes, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(Errno::IO.into()),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    position_bytes += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) if is_flag_refusal(errno) => self.refuse_durable_flag(),
                Err(errno) => return Err(errno.into()),
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(rest, position_bytes)?;
        self.sync()
    }

    /// Bypasses the page cache from now on, if a transfer's offset, length and memory allow it.
    pub(crate) fn go_direct(&self) -> Result<(), DirectError> {
        if self.direct.get().is_none() {
            let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner).take();
            let file = offered.map_or_else(|| direct::reopen(&self.file, self.writable), Ok)?;
            let shared = direct::share(&file)?;
            // If this fails, another thread has set the same descriptor first.
            let _ = self.direct.set(DirectFile { file, shared });
        }
        Ok(())
    }

    /// The descriptor to use for a transfer of these bytes.
    fn file_for(&self, bytes: &[u8], offset_bytes: u64) -> &File {
        let is_aligned = direct::is_aligned(bytes.as_ptr().addr(), bytes.len(), offset_bytes);
        self.file_if(is_aligned)
    }

    fn file_if(&self, is_aligned: bool) -> &File {
        self.direct.get().filter(|_| is_aligned).map_or(&self.file, |direct| &direct.file)
    }

    /// As [`Self::file_for`], but as a shared handle, to hold while an operation is in flight.
    pub(crate) fn shared_for(&self, is_aligned: bool) -> Result<Arc<OwnedFd>, MemberError> {
        if let Some(direct) = self.direct.get().filter(|_| is_aligned) {
            return Ok(Arc::clone(&direct.shared));
        }
        if let Some(shared) = self.shared.get() {
            return Ok(Arc::clone(shared));
        }
        let shared = direct::share(&self.file).map_err(|_| MemberError::from(Errno::MFILE))?;
        Ok(Arc::clone(self.shared.get_or_init(|| shared)))
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct.get().is_some()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether no write with `RWF_DSYNC` has been refused yet.
    pub(crate) fn takes_durable_flag(&self) -> bool {
        !self.durable_flag_refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_durable_flag(&self) {
        self.durable_flag_refused.store(true, Ordering::Relaxed);
    }

    /// Makes every later flush fail.
    pub(crate) fn fail_flushes(&self, error: MemberError) {
        self.flushes.fail(error);
    }

    fn sync(&self) -> Result<(), MemberError> {
        Ok(retry_on_intr(|| fdatasync(&self.file))?)
    }

    pub(crate) fn check_write(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), MemberError> {
        if !self.writable {
            return Err(MemberError::ReadOnly);
        }
        check_bounds(offset_bytes, length_bytes, self.size_bytes)?;
        self.check_whole()
    }

    pub(crate) fn check_flush(&self) -> Result<(), MemberError> {
        self.flushes.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed_before(errno: Errno) -> Result<(), MemberError> {
        Err(MemberError::FlushFailedBefore { errno: Some(errno.raw_os_error()) })
    }

    /// The end of a pipe refuses `fdatasync` with `EINVAL`, so a flush fails for every user.
    #[test]
    fn a_failed_flush_is_sticky() {
        let (_reader, writer) = std::io::pipe().expect("pipe");
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        let first = descriptor.flush().expect_err("a pipe cannot be flushed");
        assert_eq!(first, MemberError::Media { errno: Errno::INVAL.raw_os_error() });
        assert_eq!(descriptor.flush(), failed_before(Errno::INVAL));
        assert_eq!(descriptor.write_at(&[1], 0, true), failed_before(Errno::INVAL));
    }

    #[test]
    fn a_failed_durable_write_fails_every_later_flush() {
        let (_reader, writer) = std::io::pipe().expect("pipe");
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        assert!(descriptor.write_at(&[1], 0, true).is_err());
        assert_eq!(descriptor.flush(), failed_before(Errno::SPIPE));
    }

    #[test]
    fn vectors_are_whole_or_an_error_and_a_failed_durable_one_is_sticky() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        for refused in [false, true] {
            descriptor.durable_flag_refused.store(refused, Ordering::Relaxed);
            for durable in [false, true] {
                let (one, two) = ([1 + u8::from(durable); 100], [7; 1000]);
                let mut buffers = [IoSlice::new(&one), IoSlice::new(&two)];
                descriptor.write_vectored_at(&mut buffers, 50, durable).expect("a write");
                let (mut front, mut back) = ([0; 99], [0; 1001]);
                let mut buffers = [IoSliceMut::new(&mut front), IoSliceMut::new(&mut back)];
                descriptor.read_vectored_at(&mut buffers, 50).expect("a read");
                assert_eq!((front, back[0]), ([one[0]; 99], one[0]));
                assert_eq!(back[1..], two);
            }
        }
        let mut long = [0; 5000];
        let beyond = descriptor.read_vectored_at(&mut [IoSliceMut::new(&mut long)], 0);
        assert!(matches!(beyond, Err(MemberError::OutOfBounds { .. })));
        let (_reader, writer) = std::io::pipe().expect("pipe");
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        assert!(descriptor.write_vectored_at(&mut [IoSlice::new(&[1])], 0, true).is_err());
        assert_eq!(descriptor.flush(), failed_before(Errno::SPIPE));
    }

    #[test]
    fn a_durable_write_works_without_the_kernel_flag() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        descriptor.durable_flag_refused.store(true, Ordering::Relaxed);
        descriptor.write_at(b"kept", 100, true).expect("write");
        let mut back = [0; 4];
        descriptor.read_at(&mut back, 100).expect("read");
        assert_eq!(&back, b"kept");
    }

    #[test]
    fn a_file_cut_short_is_an_error_and_not_zeroes() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let handle = file.try_clone().expect("clone");
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        handle.set_len(2048).expect("set_len");
        assert_eq!(descriptor.read_at(&mut [0; 1024], 1536), Err(MemberError::Truncated));
    }

    #[test]
    fn a_file_cut_short_takes_no_writes() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let handle = file.try_clone().expect("clone");
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        descriptor.write_at(&[1; 512], 3584, false).expect("whole");
        handle.set_len(2048).expect("set_len");
        let truncated = Err(MemberError::Truncated);
        assert_eq!(descriptor.write_at(&[1; 512], 3584, false), truncated);
        assert_eq!(descriptor.write_at(&[1; 512], 0, true), truncated);
        assert_eq!(descriptor.write_zeroes(3584, 512), truncated);
        let allocated = descriptor.allocate_zeroes(3584, 512, ZeroMethod::ZeroRange);
        assert_eq!(allocated, Err(MemberError::Truncated));
        assert_eq!(handle.metadata().expect("metadata").len(), 2048);
        assert!(descriptor.has_vanished());
    }

    /// The test's write acts like a write that was in flight when the file was cut.
    #[test]
    fn a_file_that_grew_again_is_not_believed() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(1 << 16).expect("set_len");
        let handle = file.try_clone().expect("clone");
        let descriptor = Descriptor::new(file, Identity::memory(), 1 << 16, Access::ReadWrite);
        descriptor.write_at(&[1; 4096], 0, false).expect("whole");
        handle.set_len(0).expect("set_len");
        handle.write_all_at(&[2; 512], 32_768).expect("a write");
        let truncated = Err(MemberError::Truncated);
        assert_eq!(
            descriptor.read_at(&mut [0; 4096], 0),
            truncated,
            "a hole is not what was written"
        );
        handle.write_all_at(&[2; 512], (1 << 16) - 512).expect("a write");
        assert_eq!(descriptor.read_at(&mut [0; 4096], 0), truncated);
        let mut bytes = [0; 4096];
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        assert_eq!(descriptor.read_vectored_at(&mut buffers, 0), truncated);
        assert_eq!(descriptor.write_at(&[1; 512], 0, false), truncated, "what was short stays so");
        assert!(descriptor.has_vanished());
    }

    #[test]
    fn a_deleted_file_has_vanished() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("member");
        let file = File::create_new(&path).expect("create");
        file.set_len(4096).expect("set_len");
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        assert!(!descriptor.has_vanished());
        std::fs::remove_file(&path).expect("remove");
        assert!(descriptor.has_vanished());
    }
}
