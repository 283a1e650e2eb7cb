//! Direct I/O: whether a device allows it, and with which alignment.
//!
//! md's unit is a sector of 512 bytes, and a client may write any of them. So direct I/O is used
//! only if the kernel (`statx`, `STATX_DIOALIGN`, Linux 6.1) accepts offsets, lengths and memory at
//! multiples of 512. Otherwise a write of one sector would need a read and a longer write.
//!
//! The file is opened a second time, through its descriptor's name in the kernel. The first
//! descriptor keeps the lock and serves unaligned transfers. The kernel keeps both consistent.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::limits::SECTOR_BYTES;

/// `STATX_DIOALIGN` in linux/stat.h.
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// Why a member is used through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DirectError {
    /// The member is memory, or a layer over a device.
    #[error("it is neither a file nor a block device")]
    NotADevice,
    /// The kernel, or the file system, does not report the alignment that direct I/O needs.
    #[error("the file system does not say how direct I/O has to be aligned (Linux 6.1 can)")]
    NotSaid,
    /// The file system has no direct I/O.
    #[error("the file system has no direct I/O")]
    NotSupported,
    /// Direct I/O needs a coarser alignment than sectors.
    #[error(
        "direct I/O here wants offsets at multiples of {offset_bytes} bytes and memory at multiples of \
         {memory_bytes}; an array needs 512"
    )]
    Coarse {
        /// Alignment of offsets and lengths, in bytes.
        offset_bytes: u32,
        /// Alignment of memory, in bytes.
        memory_bytes: u32,
    },
    /// The operating system refused direct I/O.
    #[error("{call} failed: {}", std::io::Error::from_raw_os_error(*.errno))]
    System {
        /// The call that failed.
        call: &'static str,
        /// The operating system's error number.
        errno: i32,
    },
}

fn system(call: &'static str) -> impl Fn(std::io::Error) -> DirectError {
    move |error| DirectError::System { call, errno: error.raw_os_error().unwrap_or(0) }
}

pub(crate) fn reopen(file: &File, writable: bool) -> Result<File, DirectError> {
    let status = statx(file, "", AtFlags::EMPTY_PATH, DIRECT_ALIGNMENT)
        .map_err(|errno: Errno| system("statx")(errno.into()))?;
    if status.stx_mask & DIRECT_ALIGNMENT.bits() == 0 {
        return Err(DirectError::NotSaid);
    }
    judge(status.stx_dio_offset_align, status.stx_dio_mem_align)?;
    let direct = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags((OFlags::DIRECT | OFlags::NOCTTY).bits().cast_signed())
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(system("open"))?;
    probe(&direct)?;
    Ok(direct)
}

/// Reads one sector at an offset and to an address that are aligned to 512 only. A file system may
/// report an alignment that it then refuses.
fn probe(direct: &File) -> Result<(), DirectError> {
    #[repr(align(4096))]
    struct Memory([u8; 1024]);
    let mut memory = Memory([0; 1024]);
    is_kept(direct.read_at(&mut memory.0[512..], SECTOR_BYTES))
}

/// Whether the first read shows that the reported alignment is accepted. A media error says nothing
/// about the alignment.
fn is_kept(read: std::io::Result<usize>) -> Result<(), DirectError> {
    match read.as_ref().map_err(Errno::from_io_error) {
        Err(Some(Errno::INVAL | Errno::OPNOTSUPP)) => read.map(drop).map_err(system("pread")),
        _ => Ok(()),
    }
}

fn judge(offset_bytes: u32, memory_bytes: u32) -> Result<(), DirectError> {
    let sector = 512;
    match (offset_bytes, memory_bytes) {
        (0, _) | (_, 0) => Err(DirectError::NotSupported),
        (offset, memory) if offset <= sector && memory <= sector => Ok(()),
        _ => Err(DirectError::Coarse { offset_bytes, memory_bytes }),
    }
}

/// A duplicate of the descriptor, to hold while an operation is in flight.
pub(crate) fn share(file: &File) -> Result<Arc<OwnedFd>, DirectError> {
    Ok(Arc::new(file.try_clone().map_err(system("dup"))?.into()))
}

pub(crate) fn is_aligned(address: usize, length: usize, offset_bytes: u64) -> bool {
    let all = address as u64 | length as u64 | offset_bytes;
    all.is_multiple_of(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_the_coarsest_that_will_do() {
        assert_eq!(judge(512, 512), Ok(()));
        assert_eq!(judge(512, 4), Ok(()));
        assert_eq!(judge(0, 0), Err(DirectError::NotSupported));
        let coarse = DirectError::Coarse { offset_bytes: 4096, memory_bytes: 512 };
        assert_eq!(judge(4096, 512), Err(coarse));
        assert!(judge(512, 4096).is_err());
    }

    #[test]
    fn a_promise_that_is_not_kept_is_found_at_the_first_read() {
        let read = |errno: Errno| is_kept(Err(errno.into()));
        let errno = Errno::INVAL.raw_os_error();
        assert_eq!(read(Errno::INVAL), Err(DirectError::System { call: "pread", errno }));
        assert_eq!(read(Errno::IO), Ok(()), "a bad sector is found when a client reads it");
        assert_eq!(is_kept(Ok(512)), Ok(()));
    }

    #[test]
    fn any_one_thing_out_of_line_is_seen() {
        assert!(is_aligned(4096, 512, 1024));
        assert!(!is_aligned(4097, 512, 1024));
        assert!(!is_aligned(4096, 511, 1024));
        assert!(!is_aligned(4096, 512, 1023));
    }
}
