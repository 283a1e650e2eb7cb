//! Limits on the metadata that is read.

/// The most bytes of a text: enough for some 10,000 volumes.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// The most keys, sections and values of a text. A volume has some 20.
pub const ENTRIES_MAX: usize = 1 << 20;
/// The most bytes of a name. LVM's own limit is 127.
pub const NAME_BYTES_MAX: usize = 127;
/// The deepest nesting of sections. LVM nests four: group, volumes, volume, segment.
pub const DEPTH_MAX: usize = 8;
/// The most metadata areas of a physical volume. LVM makes one or two.
pub const AREAS_MAX: usize = 8;
/// The most parts of a group.
pub const PARTS_MAX: usize = 1024;
/// The most volumes of a group that are read, including internal ones.
pub const VOLUMES_MAX: usize = 8192;
/// The most stripes of a segment. LVM makes 128 at most.
pub const STRIPES_MAX: usize = 128;
/// The deepest nesting of volumes. Copies of a pool's data are four deep.
pub const NESTING_MAX: usize = 8;
/// The most segments that are followed for all volumes of a group, so that circles end.
pub const STEPS_MAX: usize = 1 << 20;
/// The most levels of a tree of blocks. Ten levels of full nodes, with 126 entries each, cover over
/// 64 bits.
pub const TREE_DEPTH_MAX: usize = 12;
/// The most runs of consecutive blocks of a thin volume: 32 bytes each in memory, half a GiB.
pub const RUNS_MAX: usize = 16 << 20;
