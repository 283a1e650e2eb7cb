//! Questions to the kernel about an open block device: the backing file of a loop device, whether
//! writes are refused, and who has reserved it ([`reservation`]).
//!
//! Place in the flow: `braid-member` calls this crate when it opens a device and when it follows a
//! device to the layer below. The path in sysfs may be stale, belong to another mount namespace, or
//! be covered by another mount. The device and inode that `LOOP_GET_STATUS64` returns (loop(4),
//! `linux/loop.h`) identify the backing file itself.
//!
//! A read-only block device still opens for writing; only the write fails. `BLKROGET`
//! (`linux/fs.h`) reports a read-only device before any write, and needs neither `/sys` nor
//! `/proc`.
//!
//! The crate opens, attaches and detaches nothing, and reads no paths. It exists because these
//! calls are unsafe and `braid-member` has no unsafe code.
//!
//! Invariant: a device that is no loop device, or is detached, has no status; a file that is no
//! block device is not reported as read-only `[check: what_is_no_loop_device_has_no_status]`.

pub mod reservation;

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `LOOP_GET_STATUS64`; loop devices' numbers do not encode the argument's size.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// `struct loop_info64` as 29 words (232 bytes); only the first five are used here.
type LoopInfo64 = [u64; 29];

/// `BLKROGET`; the number does not encode the argument's size.
const BLKROGET: Opcode = 0x125E;

/// The backing file of a loop device, and the device's range in that file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// `st_dev` of the backing file, packed.
    pub device: u64,
    /// `st_ino` of the backing file.
    pub inode: u64,
    /// `st_rdev` of a backing block device, packed; 0 for a regular file.
    pub block_device: u64,
    /// The byte of the backing file at which the loop device begins.
    pub offset_bytes: u64,
    /// Maximum length of the loop device in bytes; 0: up to the backing file's end.
    pub length_bytes_max: u64,
}

/// The status of an open loop device.
///
/// # Errors
/// `ENXIO` if the device is detached; `ENOTTY` or another error if it is no loop device.
#[allow(unsafe_code)]
pub fn status(device: impl AsFd) -> Result<Status, Errno> {
    // SAFETY: on success the request writes a whole `struct loop_info64`. The structure has the
    // size of the type given, and no stricter alignment. Every bit pattern is a value of that type.
    // Only a driver other than loop could give this number another meaning. The caller asks sysfs
    // for the driver first. The number lies in loop's own range ('L', 0x00-0x0F, by the kernel's
    // list).
    let words: LoopInfo64 =
        unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) }?;
    let [device, inode, block_device, offset_bytes, length_bytes_max, ..] = words;
    Ok(Status { device, inode, block_device, offset_bytes, length_bytes_max })
}

/// Whether the kernel refuses writes to an open block device: a switch on the card, a write
/// blocker, `blockdev --setro`.
///
/// # Errors
/// `ENOTTY` or another error if the file is no block device.
#[allow(unsafe_code)]
pub fn is_read_only(device: impl AsFd) -> Result<bool, Errno> {
    // SAFETY: on success the request writes a whole C `int`, and every bit pattern is an `i32`. The
    // number is the block layer's own (0x12, 93-106, by the kernel's list).
    let answer: i32 = unsafe { ioctl(device, Getter::<BLKROGET, i32>::new()) }?;
    Ok(answer != 0)
}

const _: () = assert!(size_of::<LoopInfo64>() == 5 * 8 + 4 * 4 + 2 * 64 + 32 + 2 * 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_loop_device_has_no_status() {
        for path in ["/dev/null", "/proc/self/exe", "/"] {
            let file = std::fs::File::open(path).expect("it is there");
            assert!(status(&file).is_err() && is_read_only(&file).is_err(), "{path}");
        }
    }
}
