//! All limits that the parsers check bytes from a disk against, with their reasons.
//!
//! A number that is over its limit is an error, never a bigger allocation.

/// Bytes of one md sector on every device: superblocks count in md sectors.
pub const SECTOR_BYTES: u64 = braid_geometry::SECTOR_BYTES;

/// The magic of every md superblock version.
pub const MAGIC: u32 = 0xa92b_4efc;

/// Bytes read at the place of a superblock. md reads one page, and no version's superblock is
/// larger.
pub const SUPERBLOCK_BYTES_MAX: usize = 4096;

/// Bytes of the fixed part of a version 1 superblock, before the roles.
pub const V1_FIXED_BYTES: usize = 256;

/// Roles that fit after the fixed part in 4096 bytes: md's own limit for `max_dev`.
pub const V1_ROLES_MAX: u32 = 1920;

/// Devices that a 0.90 superblock can describe.
pub const V0_DEVICES_MAX: u32 = 27;

/// md reserves role values from here up to the values that have names.
pub const ROLE_RESERVED_FROM: u16 = 0xff00;

/// The most sectors that a count on disk can claim: 2^63 bytes, the largest file offset.
pub const SECTORS_MAX: u64 = 1 << 54;

/// Larger event counts are refused. At one event a nanosecond, 2^63 take 292 years, so counting on
/// from a valid count never overflows.
pub const EVENTS_MAX: u64 = 1 << 63;

/// The largest chunk in sectors: md keeps the chunk in bytes in a signed 32-bit number.
pub const CHUNK_SECTORS_MAX: u32 = (1 << 22) - 1;

/// The smallest chunk, in sectors, of raid10 and of levels with parity: md demands one page.
pub const CHUNK_SECTORS_MIN_PAGE: u32 = 8;

/// The smallest device that can carry a version 1 superblock, in sectors (mdadm's limit).
pub const V1_DEVICE_SECTORS_MIN: u64 = 24;

/// The smallest `data_size` that md accepts, in sectors.
pub const V1_DATA_SECTORS_MIN: u64 = 10;

/// 0.90 reserves this many sectors at the end of a device and aligns its superblock to them.
pub const V0_RESERVED_SECTORS: u64 = 128;

/// Sectors of a bad-block log: md reads one page.
pub const BAD_BLOCK_LOG_SECTORS_MAX: u16 = 8;

/// The largest logical block in bytes: beyond any device's, and the most that NBD can announce.
pub const LOGICAL_BLOCK_BYTES_MAX: u32 = 65_536;
