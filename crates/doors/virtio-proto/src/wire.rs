//! Numbers and layouts of virtio's block device, as they lie in a guest's memory.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The unit of all addresses on the device, in bytes.
pub const SECTOR_BYTES: u32 = 512;

/// Features of the device, as bits.
#[allow(missing_docs)] // named as the specification names them
pub mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const RO: u64 = 1 << 5;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const VERSION_1: u64 = 1 << 32;
}

/// Kinds of requests.
#[allow(missing_docs)] // named as the specification names them
pub mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// Flags of a descriptor.
#[allow(missing_docs)] // named as the specification names them
pub mod descriptor_flag {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}

/// The flag of a range that need not stay allocated.
pub const UNMAP: u32 = 1;

/// A descriptor: a run of the guest's memory, or of a table of descriptors.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Descriptor {
    /// The run's address in the guest's physical memory.
    pub address: U64,
    /// The run's length in bytes.
    pub length: U32,
    /// The descriptor's flags: see [`descriptor_flag`].
    pub flags: U16,
    /// The index of the next descriptor of the chain.
    pub next: U16,
}

/// Length of a descriptor in bytes.
pub const DESCRIPTOR_BYTES: u32 = 16;

/// The head of a request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// The request's kind: see [`kind`].
    pub kind: U32,
    /// A field without meaning.
    pub reserved: U32,
    /// The first sector of the range.
    pub sector: U64,
}

/// Length of a request's head in bytes.
pub const HEAD_BYTES: u32 = 16;

/// A range to discard, or to fill with zeroes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Range {
    /// The first sector of the range.
    pub sector: U64,
    /// The number of sectors of the range.
    pub sectors: U32,
    /// The range's flags: see [`UNMAP`].
    pub flags: U32,
}

/// Length of a range in bytes.
pub const RANGE_BYTES: u32 = 16;

/// The device's configuration space.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // named as the specification names them
pub struct Configuration {
    pub capacity: U64,
    pub size_max: U32,
    pub seg_max: U32,
    pub geometry: [u8; 4],
    pub blk_size: U32,
    pub physical_block_exp: u8,
    pub alignment_offset: u8,
    pub min_io_size: U16,
    pub opt_io_size: U32,
    pub writeback: u8,
    pub unused: u8,
    pub num_queues: U16,
    pub max_discard_sectors: U32,
    pub max_discard_seg: U32,
    pub discard_sector_alignment: U32,
    pub max_write_zeroes_sectors: U32,
    pub max_write_zeroes_seg: U32,
    pub write_zeroes_may_unmap: u8,
    pub padding: [u8; 3],
}

const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES as usize);
const _: () = assert!(size_of::<Head>() == HEAD_BYTES as usize);
const _: () = assert!(size_of::<Range>() == RANGE_BYTES as usize);
const _: () = assert!(size_of::<Configuration>() == 60);
