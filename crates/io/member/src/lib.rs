//! One device: a file, a block device, memory or an export on another host, opened so that no other
//! process of this host writes it.
//!
//! Place in the flow: the lowest layer. The runtime calls [`Member`]; this crate calls the
//! operating system, or an NBD server (`remote`). It knows bytes at offsets and nothing of arrays,
//! superblocks or parity.
//!
//! This crate does not queue, merge, reorder or retry: the elevator and the engine decide those. It
//! does not submit to a ring: the runtime does, on [`Raw`]. It does not judge errors for the array.
//!
//! ```text
//!  open(path, access) --> refuse what the kernel holds --> lock --> OpenedMember
//!  open(URI, access)  --> lock on this host --> connect ----------> RemoteMember
//!  layer::Faulty( layer::Slow( member ))    same trait all the way
//! ```
//!
//! Invariants, and the test that guards each:
//! - Two writers never: a second open for writing fails, in this process or in another
//!   (`tests/two_processes.rs`, `tests/refusals.rs`).
//! - Nor by another path to the same bytes: a loop device over a file, a second one, a partition
//!   and its disk (`tests/loop_device.rs`).
//! - The holder of a device is named in the refusal (`kernel::tests`, `tests/loop_device.rs`).
//! - A read or a write is whole or an error (`tests/contract.rs`).
//! - A failed flush is never followed by a successful one (`descriptor::tests`, `tests/layers.rs`).
//! - One device under two names has one [`IdentityKey`] (`tests/refusals.rs`).
#![forbid(unsafe_code)]

mod access;
mod descriptor;
mod direct;
mod error;
mod flushes;
mod identity;
mod kernel;
pub mod layer;
pub mod limits;
mod lock;
mod lower_layers;
mod memory;
mod open;
mod opened;
mod raw;
mod remote;
mod reserved;
mod sentinel;
mod zeroing;

use std::io::{IoSlice, IoSliceMut};

pub use access::Access;
pub use direct::DirectError;
pub use error::{FileKind, Holder, MemberError, OpenError, is_shortage};
pub use identity::{AnsweredBy, DeviceNumber, Identity, IdentityKey, MemberKind};
pub use lock::lock_exclusively;
pub use lower_layers::{Reach, companion_paths};
pub use memory::MemoryMember;
pub use open::{adopt, create_file, key_at, open, open_for_another};
pub use raw::{Raw, RawOperation};
pub use remote::{LinkLook, Ownership, absolute, boot_ns, is_uri, may_be_there, own_members};
pub use reserved::keeps_owners_out;
pub use sentinel::{Sentinel, SentinelEvent};
pub use zeroing::ZeroMethod;

/// One device that holds a part of an array.
///
/// Every call may be made from any thread at any time; calls on ranges that do not overlap are
/// independent, and calls on ranges that do overlap are ordered only by the caller. A call blocks
/// its thread until the operating system has answered.
pub trait Member: Send + Sync {
    /// Size in bytes, a multiple of 512, fixed when the member was opened.
    fn size_bytes(&self) -> u64;

    /// Kind, name and numbers of the member. The identity's key tells whether two members are one
    /// device.
    fn identity(&self) -> &Identity;

    /// Fills `buffer` from `offset_bytes`. After an error the contents of `buffer` are unspecified.
    ///
    /// # Errors
    /// [`MemberError::OutOfBounds`] before the device is asked; else the device's error.
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError>;

    /// Writes `buffer` at `offset_bytes`. With `durable` the bytes are on stable storage before
    /// this returns (`RWF_DSYNC`, or `fdatasync` if the kernel lacks the flag). After an error any
    /// part of the range may hold old or new bytes.
    ///
    /// # Errors
    /// A durable write that the device refused counts as a failed flush. With that refusal the
    /// kernel may have reported an earlier lost write, only to this call, and only once.
    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError>;

    /// Fills several buffers, one after the other on the device, as [`Self::read_at`] does.
    ///
    /// # Errors
    /// As for [`Self::read_at`]. After an error the contents of all buffers are unspecified.
    fn read_vectored_at(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        offset_bytes: u64,
    ) -> Result<(), MemberError> {
        let mut position_bytes = offset_bytes;
        for buffer in buffers {
            self.read_at(buffer, position_bytes)?;
            position_bytes += buffer.len() as u64;
        }
        Ok(())
    }

    /// Writes several buffers, one after the other on the device, as [`Self::write_at`] does.
    ///
    /// # Errors
    /// As for [`Self::write_at`].
    fn write_vectored_at(
        &self,
        buffers: &mut [IoSlice<'_>],
        offset_bytes: u64,
        durable: bool,
    ) -> Result<(), MemberError> {
        let mut position_bytes = offset_bytes;
        for buffer in buffers {
            self.write_at(buffer, position_bytes, durable)?;
            position_bytes += buffer.len() as u64;
        }
        Ok(())
    }

    /// Returns once every write that completed before this call is on stable storage.
    ///
    /// # Errors
    /// Sticky: after one failure every later flush and every later durable write fails. The error
    /// is [`MemberError::FlushFailedBefore`], or [`MemberError::OutOfSpace`] if only space was
    /// lacking. The kernel reports a lost page once and then forgets it ("fsyncgate", LWN 752063).
    fn flush(&self) -> Result<(), MemberError>;

    /// Makes a range read as zeroes. With `may_punch` the space may be given back to the file
    /// system. Without it the space stays allocated, if the device can promise that.
    ///
    /// # Errors
    /// As for a write that is not durable.
    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError>;

    /// Whether [`Member::zero`] with `may_punch` is expected to be much quicker than writing
    /// zeroes. The answer may turn false after a refusal and never turns true.
    fn can_zero_fast(&self) -> bool;

    /// Whether the bytes at `offset_bytes` are a hole: they take no space and read as zeroes. Also
    /// returns for how many of `length_bytes` from `offset_bytes` on the answer is the same.
    /// Unknown counts as no hole. May ask the file system, and moves no bytes.
    fn hole_at(&self, offset_bytes: u64, length_bytes: u64) -> (bool, u64) {
        let _ = offset_bytes;
        (false, length_bytes)
    }

    /// Whether no program will ever find this device again. A deleted file takes writes while it is
    /// open, and loses them when it is closed; a file that was cut short has lost its content. Asks
    /// the operating system; cheap.
    fn has_vanished(&self) -> bool {
        false
    }

    /// The open file, for a caller that submits to it directly. `None` for memory, and for layers,
    /// which must see every call.
    fn raw(&self) -> Option<Raw> {
        None
    }

    /// Whether no call ever waits for a device: process memory, or files kept in memory only.
    fn is_memory(&self) -> bool {
        false
    }

    /// Bypasses the page cache from now on, for transfers whose offset, length and memory are at
    /// multiples of 512. Other transfers use the page cache, and see the same bytes.
    ///
    /// # Errors
    /// The reason why direct I/O is not possible; nothing has changed then.
    fn go_direct(&self) -> Result<(), DirectError> {
        Err(DirectError::NotADevice)
    }

    /// Whether [`Self::go_direct`] succeeded.
    fn is_direct(&self) -> bool {
        false
    }

    /// Requests that the member serves at once, if each of them blocks a thread and the member has
    /// a limit of its own. A remote member has such a limit for its connections.
    fn requests_at_once(&self) -> Option<usize> {
        None
    }

    /// Names bytes of the member that stay the same while it is in use, and their offset. A remote
    /// member checks these bytes before it writes on a new connection.
    fn expect_after_loss(&self, offset_bytes: u64, bytes: &[u8]) {
        let _ = (offset_bytes, bytes);
    }

    /// The state of the connection to a member on another host; `None` for a local member.
    fn link(&self) -> Option<LinkLook> {
        None
    }

    /// The newest time, by [`boot_ns`], before which the member served this process's claim as its
    /// owner; `None` without such a claim.
    fn claim_seen_ns(&self) -> Option<u64> {
        None
    }

    /// Ends calls that wait for a lost connection, with an error, and all later calls. A local
    /// device cannot be given up.
    fn give_up(&self) {}
}

/// Forwards every call of the trait through a pointer.
macro_rules! forward_member {
    ($pointer:ty) => {
        impl<M: Member + ?Sized> Member for $pointer {
            fn size_bytes(&self) -> u64 {
                (**self).size_bytes()
            }
            fn identity(&self) -> &Identity {
                (**self).identity()
            }
            fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
                (**self).read_at(buffer, offset_bytes)
            }
            fn write_at(
                &self,
                buffer: &[u8],
                offset_bytes: u64,
                durable: bool,
            ) -> Result<(), MemberError> {
                (**self).write_at(buffer, offset_bytes, durable)
            }
            fn read_vectored_at(
                &self,
                buffers: &mut [IoSliceMut<'_>],
                offset_bytes: u64,
            ) -> Result<(), MemberError> {
                (**self).read_vectored_at(buffers, offset_bytes)
            }
            fn write_vectored_at(
                &self,
                buffers: &mut [IoSlice<'_>],
                offset_bytes: u64,
                durable: bool,
            ) -> Result<(), MemberError> {
                (**self).write_vectored_at(buffers, offset_bytes, durable)
            }
            fn flush(&self) -> Result<(), MemberError> {
                (**self).flush()
            }
            fn zero(
                &self,
                offset_bytes: u64,
                length_bytes: u64,
                may_punch: bool,
            ) -> Result<(), MemberError> {
                (**self).zero(offset_bytes, length_bytes, may_punch)
            }
            fn can_zero_fast(&self) -> bool {
                (**self).can_zero_fast()
            }
            fn hole_at(&self, offset_bytes: u64, length_bytes: u64) -> (bool, u64) {
                (**self).hole_at(offset_bytes, length_bytes)
            }
            fn has_vanished(&self) -> bool {
                (**self).has_vanished()
            }
            fn raw(&self) -> Option<Raw> {
                (**self).raw()
            }
            fn is_memory(&self) -> bool {
                (**self).is_memory()
            }
            fn go_direct(&self) -> Result<(), DirectError> {
                (**self).go_direct()
            }
            fn is_direct(&self) -> bool {
                (**self).is_direct()
            }
            fn requests_at_once(&self) -> Option<usize> {
                (**self).requests_at_once()
            }
            fn expect_after_loss(&self, offset_bytes: u64, bytes: &[u8]) {
                (**self).expect_after_loss(offset_bytes, bytes);
            }
            fn link(&self) -> Option<LinkLook> {
                (**self).link()
            }
            fn claim_seen_ns(&self) -> Option<u64> {
                (**self).claim_seen_ns()
            }
            fn give_up(&self) {
                (**self).give_up();
            }
        }
    };
}
forward_member!(&M);
forward_member!(Box<M>);
forward_member!(std::sync::Arc<M>);

/// Checks a range against a size. All of the crate checks ranges with this function.
///
/// # Errors
/// The range does not lie inside the size.
pub fn check_bounds(
    offset_bytes: u64,
    length_bytes: u64,
    size_bytes: u64,
) -> Result<(), MemberError> {
    match offset_bytes.checked_add(length_bytes) {
        Some(end_bytes) if end_bytes <= size_bytes => Ok(()),
        _ => Err(MemberError::OutOfBounds { offset_bytes, length_bytes, size_bytes }),
    }
}
