//! Structures and numbers of the ublk protocol, as kernel and server see them in memory.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A command about a device (`struct ublksrv_ctrl_cmd`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ControlCommand {
    /// The device's number.
    pub dev_id: u32,
    /// The queue's number, or [`NO_QUEUE`].
    pub queue_id: u16,
    /// Length in bytes of the memory at `addr`.
    pub len: u16,
    /// Address of the memory that goes with the command.
    pub addr: u64,
    /// A word that goes with the command.
    pub data: u64,
    /// Always zero: the field is used only for devices of users other than root.
    pub dev_path_len: u16,
    /// Zero.
    pub pad: u16,
    /// Zero.
    pub reserved: u32,
}

/// A device (`struct ublksrv_ctrl_dev_info`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// Number of the device's queues.
    pub nr_hw_queues: u16,
    /// Number of requests in each of the device's queues.
    pub queue_depth: u16,
    /// The device's state: see [`state`].
    pub state: u16,
    /// Zero.
    pub pad0: u16,
    /// Length of the longest payload in bytes.
    pub max_io_buf_bytes: u32,
    /// The device's number.
    pub dev_id: u32,
    /// The ID of the process that serves the device.
    pub ublksrv_pid: i32,
    /// Zero.
    pub pad1: u32,
    /// The device's features: see [`feature`].
    pub flags: u64,
    /// A word that the server chooses; the kernel keeps it.
    pub ublksrv_flags: u64,
    /// The ID of the user who owns the device.
    pub owner_uid: u32,
    /// The ID of the group that owns the device.
    pub owner_gid: u32,
    /// Zero.
    pub reserved1: u64,
    /// Zero.
    pub reserved2: u64,
}

/// The parameters of a device's disk (`struct ublk_params`, with its consecutive parts).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Parameters {
    /// Length of the struct in bytes.
    pub len: u32,
    /// The parts of the parameters that are set: see [`part`].
    pub types: u32,
    /// The disk's attributes: see [`attribute`].
    pub attrs: u32,
    /// Size of the logical block, as a power of two.
    pub logical_bs_shift: u8,
    /// Size of the physical block, as a power of two.
    pub physical_bs_shift: u8,
    /// Size of an optimal write, as a power of two.
    pub io_opt_shift: u8,
    /// Size of the smallest efficient write, as a power of two.
    pub io_min_shift: u8,
    /// The longest request, in sectors.
    pub max_sectors: u32,
    /// Boundaries that no request may cross, in sectors; 0 for none.
    pub chunk_sectors: u32,
    /// The disk's size, in sectors.
    pub dev_sectors: u64,
    /// Always 0: the memory of payloads may begin at any address.
    pub virt_boundary_mask: u64,
    /// Alignment of the first range that can be discarded.
    pub discard_alignment: u32,
    /// Granularity of a discard, in bytes.
    pub discard_granularity: u32,
    /// The longest discard, in sectors.
    pub max_discard_sectors: u32,
    /// The longest write of zeroes, in sectors.
    pub max_write_zeroes_sectors: u32,
    /// Most ranges in one discard: 1.
    pub max_discard_segments: u16,
    /// Zero.
    pub reserved0: u16,
    /// Numbers of the device nodes, set by the kernel.
    pub devt: [u32; 4],
    /// Parameters of zoned disks.
    pub zoned: [u32; 8],
    /// Always zero: the field makes the struct's length a multiple of eight.
    pub pad: u32,
}

/// A command about a request (`struct ublksrv_io_cmd`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RequestCommand {
    /// The queue's number.
    pub q_id: u16,
    /// The request's number in the queue.
    pub tag: u16,
    /// The result of the request: a number of bytes, or a negative error.
    pub result: i32,
    /// Address of the payload; 0 if pread(2) and pwrite(2) copy the payload.
    pub addr: u64,
}

/// The description of a request (`struct ublksrv_io_desc`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Description {
    /// The operation in the lowest 8 bits (see [`operation`]), and flags ([`flag`]).
    pub op_flags: u32,
    /// The number of sectors of the range.
    pub nr_sectors: u32,
    /// The first sector of the range.
    pub start_sector: u64,
    /// Address of the payload, if the server gave one.
    pub addr: u64,
}

const CONTROL_BYTES: u32 = 32;
const REQUEST_BYTES: u32 = 16;

const _: () = assert!(size_of::<ControlCommand>() == CONTROL_BYTES as usize);
const _: () = assert!(size_of::<RequestCommand>() == REQUEST_BYTES as usize);
const _: () = assert!(size_of::<DeviceInfo>() == 64 && size_of::<Description>() == 24);

/// The queue number of a command that concerns no queue.
pub const NO_QUEUE: u16 = u16::MAX;
/// The device number with which a server requests any free number.
pub const ANY_DEVICE: u32 = u32::MAX;
/// The most requests per queue; the descriptions of each queue begin this many positions after
/// those of the previous queue.
pub const DEPTH_MAX: usize = 4096;

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// Makes a command number as `_IOR` and `_IOWR` do, from direction, size, the letter u, and number.
const fn code(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

const fn control(direction: u32, number: u32) -> u32 {
    code(direction, number, CONTROL_BYTES)
}

const fn request(number: u32) -> u32 {
    code(READ_WRITE, number, REQUEST_BYTES)
}

/// Commands about devices.
#[allow(missing_docs)] // named as the kernel names them
pub mod command {
    use super::{READ, READ_WRITE, control};

    pub const GET_DEV_INFO: u32 = control(READ, 0x02);
    pub const ADD_DEV: u32 = control(READ_WRITE, 0x04);
    pub const DEL_DEV: u32 = control(READ_WRITE, 0x05);
    pub const START_DEV: u32 = control(READ_WRITE, 0x06);
    pub const STOP_DEV: u32 = control(READ_WRITE, 0x07);
    pub const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
    pub const GET_PARAMS: u32 = control(READ, 0x09);
    pub const START_USER_RECOVERY: u32 = control(READ_WRITE, 0x10);
    pub const END_USER_RECOVERY: u32 = control(READ_WRITE, 0x11);
    pub const GET_FEATURES: u32 = control(READ, 0x13);
    pub const DEL_DEV_ASYNC: u32 = control(READ, 0x14);
    pub const UPDATE_SIZE: u32 = control(READ_WRITE, 0x15);
}

/// Commands about requests: the first fetch of an entry, and an answer with the next fetch.
#[allow(missing_docs)] // named as the kernel names them
pub mod fetching {
    use super::request;

    pub const FETCH_REQ: u32 = request(0x20);
    pub const COMMIT_AND_FETCH_REQ: u32 = request(0x21);
}

/// Features of a device.
pub mod feature {
    /// The device outlives its server, and waits for the next one.
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// The next server gets all unanswered requests again.
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands have the ioctl-encoded numbers of this file.
    pub const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// Payloads are copied by pread(2) and pwrite(2), so that the kernel borrows no memory.
    pub const USER_COPY: u64 = 1 << 7;
    /// The kernel can change the size of a live device (Linux 6.16).
    pub const UPDATE_SIZE: u64 = 1 << 10;
}

/// States of a device.
#[allow(missing_docs)] // named as the kernel names them
pub mod state {
    pub const DEAD: u16 = 0;
    pub const LIVE: u16 = 1;
    pub const QUIESCED: u16 = 2;
}

/// Parts of the disk's parameters, as bits.
#[allow(missing_docs)] // named as the kernel names them
pub mod part {
    pub const BASIC: u32 = 1 << 0;
    pub const DISCARD: u32 = 1 << 1;
}

/// Attributes of the disk.
#[allow(missing_docs)] // named as the kernel names them
pub mod attribute {
    pub const READ_ONLY: u32 = 1 << 0;
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    pub const FUA: u32 = 1 << 3;
}

/// Operations of requests.
#[allow(missing_docs)] // named as the kernel names them
pub mod operation {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 2;
    pub const DISCARD: u32 = 3;
    pub const WRITE_ZEROES: u32 = 5;
}

/// Flags of a request's operation.
pub mod flag {
    /// The write must be durable before the answer.
    pub const FUA: u32 = 1 << 13;
    /// The zeroed range stays allocated.
    pub const NOUNMAP: u32 = 1 << 15;
}

/// Offset of the requests' descriptions in the device's file.
pub const DESCRIPTIONS_AT: u64 = 0;
/// Offset of the requests' payloads in the device's file.
pub const PAYLOADS_AT: u64 = 0x8000_0000;
/// The lowest bit of the request's number in a payload's offset.
pub const TAG_BIT: u32 = 25;
/// The lowest bit of the queue's number in a payload's offset.
pub const QUEUE_BIT: u32 = TAG_BIT + 16;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn structures_lie_as_the_kernel_has_them() {
        // A C program printed these numbers from the kernel's header (Linux 6.12).
        assert_eq!((offset_of!(ControlCommand, len), offset_of!(ControlCommand, addr)), (6, 8));
        assert_eq!(offset_of!(ControlCommand, data), 16);
        assert_eq!(offset_of!(ControlCommand, dev_path_len), 24);
        assert_eq!(offset_of!(DeviceInfo, max_io_buf_bytes), 8);
        assert_eq!((offset_of!(DeviceInfo, dev_id), offset_of!(DeviceInfo, ublksrv_pid)), (12, 16));
        assert_eq!(
            (offset_of!(DeviceInfo, flags), offset_of!(DeviceInfo, ublksrv_flags)),
            (24, 32)
        );
        assert_eq!(offset_of!(DeviceInfo, owner_uid), 40);
        assert_eq!(
            (offset_of!(Parameters, attrs), offset_of!(Parameters, logical_bs_shift)),
            (8, 12)
        );
        assert_eq!(
            (offset_of!(Parameters, io_opt_shift), offset_of!(Parameters, io_min_shift)),
            (14, 15)
        );
        assert_eq!(
            (offset_of!(Parameters, max_sectors), offset_of!(Parameters, dev_sectors)),
            (16, 24)
        );
        assert_eq!(offset_of!(Parameters, discard_alignment), 40);
        assert_eq!(offset_of!(Parameters, max_discard_segments), 56);
        assert_eq!((offset_of!(Parameters, devt), offset_of!(Parameters, zoned)), (60, 76));
        assert_eq!(size_of::<Parameters>(), 112);
        assert_eq!((offset_of!(RequestCommand, result), offset_of!(RequestCommand, addr)), (4, 8));
        assert_eq!((offset_of!(Description, start_sector), offset_of!(Description, addr)), (8, 16));
    }

    #[test]
    fn commands_have_the_kernels_numbers() {
        // A C program printed these numbers from the kernel's header, too.
        assert_eq!(command::GET_DEV_INFO, 0x8020_7502);
        assert_eq!(command::ADD_DEV, 0xc020_7504);
        assert_eq!(command::GET_FEATURES, 0x8020_7513);
        assert_eq!(command::UPDATE_SIZE, 0xc020_7515);
        assert_eq!(fetching::FETCH_REQ, 0xc010_7520);
        assert_eq!(fetching::COMMIT_AND_FETCH_REQ, 0xc010_7521);
    }
}
