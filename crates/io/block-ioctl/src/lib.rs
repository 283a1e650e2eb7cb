//! What the kernel says of a block device: what a loop device is over, and whether a device may be written.
//!
//! Where it stands: `braid-member` asks, when it opens a device, and when it follows one to what is below it. The path that sysfs gives may be
//! stale, of another mount namespace, or covered by another mount; the device and inode that `LOOP_GET_STATUS64`
//! answers (loop(4), `linux/loop.h`) are the file itself.
//!
//! A block device that may not be written opens for writing all the same; only the write itself fails. `BLKROGET`
//! (`linux/fs.h`) answers before, and needs neither `/sys` nor `/proc`.
//!
//! What it does not do: open, attach or detach anything; look at paths. It is a crate of its own because the calls are
//! unsafe and `braid-member` has no unsafe code.
//!
//! Invariant: what is no loop device, or has nothing attached, has no status; what is no block device is not called
//! read-only `[check: what_is_no_loop_device_has_no_status]`.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `LOOP_GET_STATUS64`; loop devices' numbers do not encode the argument's size.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// `struct loop_info64` in words: 232 bytes, of which the first five words are all that is wanted here.
type LoopInfo64 = [u64; 29];

/// `BLKROGET`; its number does not encode the argument's size either.
const BLKROGET: Opcode = 0x125E;

/// What a loop device is over, and which part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// `st_dev` of the file below, packed.
    pub device: u64,
    /// `st_ino` of the file below.
    pub inode: u64,
    /// `st_rdev` where that is a block device, packed; 0 where it is a regular file.
    pub block_device: u64,
    /// Where in it the loop device begins.
    pub offset_bytes: u64,
    /// How much of it the loop device has at most; 0: all that follows.
    pub length_bytes_max: u64,
}

/// Asks an open loop device.
///
/// # Errors
/// `ENXIO` where nothing is attached; `ENOTTY` or another where it is no loop device.
#[allow(unsafe_code)]
pub fn status(device: impl AsFd) -> Result<Status, Errno> {
    // SAFETY: the request writes a `struct loop_info64`, which has the size and no more than the alignment of the
    // type given, all of it when it succeeds; every pattern of bits is a value of that type. A driver that gives
    // the number another meaning is no loop device: the caller asks sysfs for that first, and the number lies in
    // the loop driver's own range ('L', 0x00-0x0F, in the kernel's list of ioctl numbers).
    let words: LoopInfo64 =
        unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) }?;
    let [device, inode, block_device, offset_bytes, length_bytes_max, ..] = words;
    Ok(Status { device, inode, block_device, offset_bytes, length_bytes_max })
}

/// Whether the kernel refuses to write an open block device: a switch of the card, a write blocker, `blockdev --setro`.
///
/// # Errors
/// `ENOTTY` or another where it is no block device.
#[allow(unsafe_code)]
pub fn is_read_only(device: impl AsFd) -> Result<bool, Errno> {
    // SAFETY: the request writes a C `int`, all of it when it succeeds, and every pattern of bits is an `i32`. The
    // number lies in the block layer's own range (0x12, 93-106, in the kernel's list of ioctl numbers).
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
