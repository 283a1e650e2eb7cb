//! Structs and numbers of the kernel's FUSE protocol, as they lie in memory.
//!
//! Sizes and offsets are the kernel's, asserted below. `request` and `reply` interpret the fields.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The node number of the only file, which is the root of the file system.
pub const NODE_ROOT: u64 = 1;
/// The major version of the FUSE protocol.
pub const MAJOR: u32 = 7;
/// The minor version that this file follows.
pub const MINOR: u32 = 45;

/// Kinds of requests; all other kinds are answered with "not implemented".
#[allow(missing_docs)] // the kernel's names, without their prefix
pub mod opcode {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const ACCESS: u32 = 34;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const LSEEK: u32 = 46;
}

/// Bits for the features of both ends, in INIT; the upper half is in `flags2`.
#[allow(missing_docs)] // the kernel's names, without their prefix
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of an open file.
#[allow(missing_docs)]
pub mod open {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Bits of SETATTR.
#[allow(missing_docs)]
pub mod set {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// Bits of fallocate(2).
#[allow(missing_docs)]
pub mod falloc {
    pub const KEEP_SIZE: u32 = 0x01;
    pub const PUNCH_HOLE: u32 = 0x02;
    pub const ZERO_RANGE: u32 = 0x10;
}

/// Bits of open(2) in each WRITE, equal on all architectures that braid supports.
pub const O_DSYNC: u32 = 0o10_000;
/// O_SYNC without the bits of O_DSYNC.
pub const O_SYNC_ONLY: u32 = 0o4_000_000;

/// lseek(2): seeks data, or a hole.
pub const SEEK_DATA: u32 = 3;
/// See [`SEEK_DATA`].
pub const SEEK_HOLE: u32 = 4;

macro_rules! wire {
    ($(#[$about:meta])* $name:ident $size:literal { $($field:ident: $kind:ty),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        #[allow(missing_docs)] // the kernel's names
        pub struct $name { $(pub $field: $kind),+ }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

wire! {
    /// The head that begins every message of the kernel.
    InHeader 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
}
wire! {
    /// The head that begins every answer.
    OutHeader 16 { len: u32, error: i32, unique: u64 }
}
wire! {
    /// The arguments of INIT that every kernel sends.
    InitIn 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
}
wire! {
    /// The answer to INIT.
    InitOut 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
}
wire! {
    /// The attributes that stat(2) shows.
    Attr 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
}
wire! {
    /// The answer to GETATTR and SETATTR.
    AttrOut 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
}
wire! {
    /// The arguments of SETATTR.
    SetattrIn 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
}
wire! {
    /// The arguments of OPEN.
    OpenIn 8 { flags: u32, open_flags: u32 }
}
wire! {
    /// The answer to OPEN.
    OpenOut 16 { fh: u64, open_flags: u32, backing_id: i32 }
}
wire! {
    /// The arguments of READ.
    ReadIn 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
}
wire! {
    /// The arguments of WRITE; the payload follows.
    WriteIn 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
}
wire! {
    /// The answer to WRITE.
    WriteOut 8 { size: u32, padding: u32 }
}
wire! {
    /// The arguments of FALLOCATE.
    FallocateIn 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
}
wire! {
    /// The arguments of LSEEK.
    LseekIn 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
}
wire! {
    /// The answer to LSEEK.
    LseekOut 8 { offset: u64 }
}
wire! {
    /// The arguments of ACCESS.
    AccessIn 8 { mask: u32, padding: u32 }
}
wire! {
    /// The answer to STATFS.
    StatfsOut 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
}
wire! {
    /// Fields about an entry of a ring, of which kernel and server each set some.
    RingEntry 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
}
wire! {
    /// Headers of an entry, apart from its payload: the head of the request or the answer, the
    /// first argument, and the entry's fields.
    RingHeader 288 { in_out: [[u64; 8]; 2], op_in: [[u64; 8]; 2], entry: RingEntry }
}
wire! {
    /// A command for a ring, in the last 80 bytes of its submission queue entry.
    RingCommand 24 { flags: u64, commit_id: u64, qid: u16, padding: [u16; 3] }
}

/// Command of a ring: registers an entry, and waits for its first request.
pub const RING_REGISTER: u32 = 1;
/// Command of a ring: answers a request, and waits for another.
pub const RING_COMMIT_AND_FETCH: u32 = 2;

const _: () = assert!(offset_of!(InHeader, unique) == 8 && offset_of!(InHeader, nodeid) == 16);
const _: () = assert!(offset_of!(InitOut, max_write) == 20 && offset_of!(InitOut, flags2) == 32);
const _: () = assert!(offset_of!(InitOut, max_pages) == 28);
const _: () = assert!(offset_of!(SetattrIn, size) == 16 && offset_of!(SetattrIn, mode) == 68);
const _: () = assert!(offset_of!(Attr, mode) == 60 && offset_of!(AttrOut, attr) == 16);
const _: () = assert!(offset_of!(WriteIn, size) == 16 && offset_of!(WriteIn, flags) == 32);
const _: () = assert!(offset_of!(FallocateIn, mode) == 24);
const _: () = assert!(offset_of!(RingHeader, op_in) == 128 && offset_of!(RingHeader, entry) == 256);
const _: () = assert!(offset_of!(RingEntry, payload_sz) == 16);
const _: () =
    assert!(size_of::<InHeader>() + size_of::<WriteIn>() == crate::limits::WRITE_HEAD_BYTES);
