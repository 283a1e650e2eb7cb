//! Limits on the metadata that is read.

/// Bytes of a text: enough for some 10,000 volumes.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Keys, sections and values of a text: a volume has some 20.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Bytes of names and other text of a group: LVM's limit is 127.
pub const NAME_BYTES_MAX: usize = 127;
/// Nesting of sections: a segment is in a volume, in volumes, in a group.
pub const DEPTH_MAX: usize = 8;
/// Metadata areas of a physical volume: LVM makes one or two.
pub const AREAS_MAX: usize = 8;
/// Parts of a group.
pub const PARTS_MAX: usize = 1024;
/// Volumes of a group that are read, including internal ones.
pub const VOLUMES_MAX: usize = 8192;
/// Stripes of a segment: LVM makes 128 at most.
pub const STRIPES_MAX: usize = 128;
/// Nesting of volumes: copies of a pool's data are four deep.
pub const NESTING_MAX: usize = 8;
/// Segments that are followed for all volumes of a group: circles end here.
pub const STEPS_MAX: usize = 1 << 20;
/// Levels of a tree of blocks: full nodes of 126 entries reach over 64 bits in ten.
pub const TREE_DEPTH_MAX: usize = 12;
/// Runs of blocks of a thin volume, consecutive in the pool: 32 bytes each in memory, half a GiB.
pub const RUNS_MAX: usize = 16 << 20;
