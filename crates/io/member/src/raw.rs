//! A member's open file, for a caller that submits I/O to it directly.
//!
//! Such a caller keeps the member's promises with the calls below: the checks before an operation,
//! [`Raw::fault`] or [`Raw::confirm`] after it. The runtime's io_uring path is such a caller.
//!
//! Invariant: a durable write or a flush that failed here fails all later ones on the member, and
//! vice versa (`tests::failures_are_shared_with_the_member`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::descriptor::{self, Descriptor};
use crate::direct::is_aligned;
use crate::zeroing::{ZeroMethod, is_refusal};
use crate::{MemberError, check_bounds};

/// An operation on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawOperation {
    /// A read.
    Read,
    /// A write, durable or not.
    Write {
        /// `RWF_DSYNC`.
        durable: bool,
    },
    /// `fdatasync`.
    Flush,
}

/// A file or block device that is open as a member.
#[derive(Debug, Clone)]
pub struct Raw(pub(crate) Arc<Descriptor>);

impl Raw {
    /// The descriptor for a transfer of `length` bytes at `address` in memory. The descriptor
    /// bypasses the page cache if that was requested and the alignment allows it.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn file(
        &self,
        address: usize,
        length: usize,
        offset_bytes: u64,
    ) -> Result<Arc<OwnedFd>, MemberError> {
        self.0.shared_for(is_aligned(address, length, offset_bytes))
    }

    /// All descriptors that [`Self::file`] may return, the locked one among them.
    ///
    /// # Errors
    /// As for [`Self::file`].
    pub fn files(&self) -> Result<Vec<Arc<OwnedFd>>, MemberError> {
        let mut files = vec![self.0.shared_for(false)?];
        files.extend(self.0.is_direct().then(|| self.0.shared_for(true)).transpose()?);
        Ok(files)
    }

    /// Checks an operation before it is submitted.
    ///
    /// # Errors
    /// The errors of the same call of [`crate::Member`] from before it asks the device.
    pub fn check(
        &self,
        operation: RawOperation,
        offset_bytes: u64,
        length: u64,
    ) -> Result<(), MemberError> {
        match operation {
            RawOperation::Read => check_bounds(offset_bytes, length, self.0.size_bytes()),
            RawOperation::Flush => self.0.check_flush(),
            RawOperation::Write { durable } => {
                self.0.check_write(offset_bytes, length)?;
                if durable { self.0.check_flush() } else { Ok(()) }
            }
        }
    }

    /// Confirms a successful operation; call it after each operation. A read from a file that was
    /// cut short may show a hole left by a later write. `batch` names operations that all ended
    /// before the first of these calls. `batch` is never 0 and never reused: the file is checked
    /// once for the whole batch.
    ///
    /// # Errors
    /// [`MemberError::Truncated`].
    pub fn confirm(&self, operation: RawOperation, batch: u64) -> Result<(), MemberError> {
        if operation == RawOperation::Read { self.0.check_read_in(batch) } else { Ok(()) }
    }

    /// Whether a flush has any effect: a read-only member has nothing to flush.
    pub fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    /// The kernel operation that makes zeroes of a range; `None` if the caller must write
    /// [`Self::zeroes`]. Either way the operation counts as a write that is not durable.
    pub fn zero_method(
        &self,
        offset_bytes: u64,
        length: u64,
        may_punch: bool,
    ) -> Option<ZeroMethod> {
        self.0.zero_methods().next((offset_bytes, length), may_punch)
    }

    /// Whether an error means that this method of making zeroes is not supported here, so that the
    /// caller takes another method. The member remembers the refusal.
    pub fn is_refused(&self, method: ZeroMethod, error: &io::Error) -> bool {
        let is_refused = Errno::from_io_error(error).is_some_and(is_refusal);
        if is_refused {
            self.0.zero_methods().refuse(method);
        }
        is_refused
    }

    /// Whether `RWF_DSYNC` was never refused. After a refusal, [`crate::Member`] writes and
    /// flushes.
    pub fn takes_durable_flag(&self) -> bool {
        self.0.takes_durable_flag()
    }

    /// Whether the error of a durable write means that its flag is not supported here, so that the
    /// caller turns to [`crate::Member`]. The member remembers the refusal.
    pub fn is_durable_flag_refused(&self, error: &io::Error) -> bool {
        let is_refused = Errno::from_io_error(error).is_some_and(descriptor::is_flag_refusal);
        if is_refused {
            self.0.refuse_durable_flag();
        }
        is_refused
    }

    /// A buffer of zeroes to write from, aligned for direct I/O.
    pub fn zeroes() -> &'static [u8] {
        descriptor::zeroes()
    }

    /// Translates an error of the operating system. Call this for each error, since the member
    /// remembers some of them.
    pub fn fault(&self, operation: RawOperation, error: io::Error) -> MemberError {
        let error = match error.kind() {
            io::ErrorKind::UnexpectedEof => MemberError::Truncated,
            _ => MemberError::from(error),
        };
        let error = self.0.note(error);
        if matches!(operation, RawOperation::Flush | RawOperation::Write { durable: true }) {
            self.0.fail_flushes(error);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Identity};

    #[test]
    fn failures_are_shared_with_the_member() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let descriptor = Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite);
        let raw = Raw(Arc::new(descriptor));
        let durable = RawOperation::Write { durable: true };
        assert_eq!(raw.check(durable, 0, 4096), Ok(()));
        let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let no_space = MemberError::from(Errno::NOSPC);
        assert_eq!(raw.fault(durable, full), no_space);
        assert_eq!(raw.0.flush(), Err(no_space));
        assert_eq!(raw.check(durable, 0, 4096), Err(no_space));
        assert_eq!(raw.check(RawOperation::Write { durable: false }, 0, 4096), Ok(()));
        assert!(raw.check(RawOperation::Read, 4096, 1).is_err());
        let eof = io::ErrorKind::UnexpectedEof.into();
        assert_eq!(raw.fault(RawOperation::Read, eof), MemberError::Truncated);
    }

    /// Regression: a member whose file system refuses the flag was lost at its first superblock
    /// write.
    #[test]
    fn a_refused_durable_flag_is_remembered_and_no_failure() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let raw = Raw(Arc::new(Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite)));
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        for other in [error(Errno::IO), error(Errno::INVAL), io::ErrorKind::UnexpectedEof.into()] {
            assert!(!raw.is_durable_flag_refused(&other) && raw.takes_durable_flag());
        }
        assert!(raw.is_durable_flag_refused(&error(Errno::OPNOTSUPP)));
        assert!(!raw.takes_durable_flag());
        assert_eq!(raw.check(RawOperation::Write { durable: true }, 0, 4096), Ok(()));
        raw.0.write_at(&[7; 512], 0, true).expect("written and flushed");
        assert_eq!(raw.0.flush(), Ok(()));
    }

    #[test]
    fn a_cut_file_is_seen_by_the_next_batch() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(4096).expect("set_len");
        let cut = file.try_clone().expect("a second opening");
        let raw = Raw(Arc::new(Descriptor::new(file, Identity::memory(), 4096, Access::ReadWrite)));
        assert_eq!(raw.confirm(RawOperation::Read, 1), Ok(()));
        cut.set_len(512).expect("set_len");
        assert_eq!(raw.confirm(RawOperation::Read, 1), Ok(()), "it was over before the cut");
        assert_eq!(raw.confirm(RawOperation::Write { durable: false }, 2), Ok(()));
        assert_eq!(raw.confirm(RawOperation::Read, 2), Err(MemberError::Truncated));
        cut.set_len(4096).expect("set_len");
        assert_eq!(
            raw.confirm(RawOperation::Read, 3),
            Err(MemberError::Truncated),
            "a hole is where its end was"
        );
    }

    #[test]
    fn what_is_not_aligned_goes_through_the_page_cache() {
        let file = tempfile::tempfile().expect("tempfile");
        file.set_len(1 << 20).expect("set_len");
        let descriptor = Descriptor::new(file, Identity::memory(), 1 << 20, Access::ReadWrite);
        if descriptor.go_direct().is_err() {
            // tmpfs has no direct I/O, so there is nothing to test; `tests/direct.rs` prints that.
            return;
        }
        let raw = Raw(Arc::new(descriptor));
        let [direct, other] = [0, 1].map(|off| raw.file(4096, 512, off).expect("a descriptor"));
        assert!(!Arc::ptr_eq(&direct, &other));
        raw.0.write_at(&[7; 700], 100, false).expect("a write of any length");
        let mut back = [0; 700];
        raw.0.read_at(&mut back, 100).expect("a read of any length");
        assert_eq!(back, [7; 700]);
    }
}
