//! Persistent reservations of a block device (SCSI SPC-4, NVMe): which hosts may write it.
//!
//! A host registers a key, and one registered host holds the reservation. Every call here is about
//! the type *write exclusive, registrants only*: all hosts read, registered ones write. The device
//! keeps keys and reservation over a loss of power, where it can.
//!
//! Source: `linux/pr.h`. Only whole disks can be reserved, and the descriptor must be open for
//! writing. Reading the reservation needs Linux 7.0; older kernels answer `ENOTTY`.

use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// *Write exclusive, registrants only*.
pub const WRITE_EXCLUSIVE_REGISTRANTS: u32 = 3;

/// `PR_FL_IGNORE_KEY`: register a key, whichever key this host had before.
const IGNORE_KEY: u32 = 1;
/// `PR_STS_RESERVATION_CONFLICT`: the positive answer of a device that refuses.
const CONFLICT: IoctlOutput = 0x18;

const REGISTER: Opcode = opcode::write::<[u64; 3]>(b'p', 200);
const RESERVE: Opcode = opcode::write::<[u64; 2]>(b'p', 201);
const PREEMPT_ABORT: Opcode = opcode::write::<[u64; 3]>(b'p', 204);
const READ_RESERVATION: Opcode = opcode::read::<[u64; 2]>(b'p', 207);

/// The reservation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The key of the reservation's holder.
    pub key: u64,
    /// The reservation's type, a number of `enum pr_type`.
    pub kind: u32,
}

/// A call whose argument is a structure of `N` words.
struct Call<const OPCODE: Opcode, const N: usize>([u64; N]);

// SAFETY: each opcode is the one of `linux/pr.h`, and its argument has the size that the opcode
// names, as the constants above are made of that size. The kernel writes into the argument of
// `READ_RESERVATION` alone, whose two words take any bits. The numbers ('p', 200 to 207) are the
// block layer's own.
#[allow(unsafe_code)]
unsafe impl<const OPCODE: Opcode, const N: usize> Ioctl for Call<OPCODE, N> {
    type Output = (IoctlOutput, [u64; N]);
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(
        answer: IoctlOutput,
        argument: *mut c_void,
    ) -> Result<Self::Output, Errno> {
        // SAFETY: the pointer is from `as_ptr`, so it points to `N` words.
        Ok((answer, unsafe { argument.cast::<[u64; N]>().read() }))
    }
}

#[allow(unsafe_code)]
fn ask<const OPCODE: Opcode, const N: usize>(
    device: impl AsFd,
    argument: [u64; N],
) -> Result<(IoctlOutput, [u64; N]), Errno> {
    // SAFETY: see the implementation of `Ioctl` above.
    unsafe { ioctl(device, Call::<OPCODE, N>(argument)) }
}

/// Whether the device has carried out the call; false if its reservations forbid the call.
fn is_done(answer: IoctlOutput) -> Result<bool, Errno> {
    match answer {
        0 => Ok(true),
        CONFLICT => Ok(false),
        // Another status of the device, or of the path to it.
        _ => Err(Errno::IO),
    }
}

/// A type and flags, which follow each other in memory.
fn halves(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// The reservation of an open device; `None` if it has none.
///
/// # Errors
/// `ENOTTY` if the kernel is older than 7.0, or the file is no block device; `EOPNOTSUPP` if the
/// device cannot be reserved; `EPERM` for a partition.
pub fn held(device: impl AsFd) -> Result<Option<Reservation>, Errno> {
    let (answer, [key, generation_and_kind]) = ask::<READ_RESERVATION, 2>(device, [0; 2])?;
    is_done(answer)?;
    let bytes = generation_and_kind.to_ne_bytes();
    let kind = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Ok((kind != 0).then_some(Reservation { key, kind }))
}

/// Registers this host's key, in place of any earlier key.
///
/// # Errors
/// As for [`held`].
pub fn register(device: impl AsFd, key: u64) -> Result<bool, Errno> {
    let flags = halves(IGNORE_KEY, 0);
    // NVMe has two actions for a host without a key and for one with a key. The kernel takes the
    // second if the old key is not 0; the old key's value is ignored.
    Ok(is_done(ask::<REGISTER, 3>(&device, [0, key, flags])?.0)?
        || is_done(ask::<REGISTER, 3>(&device, [1, key, flags])?.0)?)
}

/// Reserves the device for registered hosts, if no other host holds it.
///
/// # Errors
/// As for [`held`].
pub fn reserve(device: impl AsFd, key: u64) -> Result<bool, Errno> {
    is_done(ask::<RESERVE, 2>(device, [key, halves(WRITE_EXCLUSIVE_REGISTRANTS, 0)])?.0)
}

/// Takes the reservation from the holder of the key `victim`, and ends that host's registration.
/// The host's requests at the device are aborted before this call returns.
///
/// The kernel passes the two keys on as SCSI and NVMe have them: first the caller's own. The
/// kernel's documentation has the keys the other way round.
///
/// # Errors
/// As for [`held`].
pub fn preempt_and_abort(device: impl AsFd, own: u64, victim: u64) -> Result<bool, Errno> {
    let kind = halves(WRITE_EXCLUSIVE_REGISTRANTS, 0);
    is_done(ask::<PREEMPT_ABORT, 3>(device, [own, victim, kind])?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reserved_is_an_error() {
        for path in ["/dev/null", "/proc/self/exe", "/"] {
            let file = std::fs::File::open(path).expect("it is there");
            assert!(held(&file).is_err() && register(&file, 1).is_err(), "{path}");
            assert!(reserve(&file, 1).is_err() && preempt_and_abort(&file, 1, 2).is_err());
        }
    }

    /// The numbers of `linux/pr.h` on this processor's ABI.
    #[test]
    fn calls_have_the_numbers_of_the_header() {
        let numbers = [REGISTER, RESERVE, PREEMPT_ABORT, READ_RESERVATION];
        assert_eq!(numbers, [0x4018_70c8, 0x4010_70c9, 0x4018_70cc, 0x8010_70cf]);
        let [low, high] = [1_u32, 2].map(u32::to_ne_bytes);
        assert_eq!(halves(1, 2).to_ne_bytes(), [low, high].concat()[..]);
    }
}
