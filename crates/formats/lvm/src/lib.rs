//! Volumes of LVM: the logical volumes on physical volumes, and the place of each of their bytes.
//!
//! A pure crate: the caller reads the bytes, and says where physical volumes begin. On a NAS
//! physical volumes are arrays, or partitions of arrays, and a group may have several (SHR does
//! that).
//!
//! ```text
//!   bytes ─▶ physical: label ─▶ header ─▶ areas ─▶ text ─┐
//!                                                        ├─▶ group: newest text of each, its parts
//!   bytes ─▶ physical: ...                               ┘        │
//!                                                                 ▼
//!                      volume ─▶ map: consecutive pieces ─▶ (part, offset), zeroes, or lost
//!                         │                                              ▲
//!                         └─ thin ─▶ pool: superblock ─▶ trees of blocks ┘
//! ```
//!
//! A volume is a list of segments of extents. A segment is on one part (linear), or is striped over
//! several. The blocks of a thin volume can be anywhere in its pool; a tree in the pool's metadata
//! gives their places ([`thin`]). Blocks without an entry were never written, and read as zeroes.
//!
//! This crate does not write. It does not read caches, LVM's own RAID, or snapshots that are not
//! thin. Of LVM's mirrors it reads the first copy. Volumes that it does not read are listed with
//! the reason ([`UnreadReason`]). Bytes on a missing part are lost, all other bytes can be read.
//!
//! Input from disk is not trusted: text, its nesting, volumes, segments and their references are
//! limited ([`limits`]), and checksums are compared before anything is believed.
//!
//! Sources: the manual page lvm.conf(5) and LVM's output, for the text; libvslvm's documentation,
//! for the layouts of label, header and metadata areas; the kernel's
//! `Documentation/admin-guide/device-mapper/{thin-provisioning,persistent-data}.rst` and the
//! layouts of `dm-thin-metadata.c` and `dm-btree-internal.h`, and for a NAS of QNAP's those of its
//! published kernel: facts of the format only.
//!
//! Invariants
//! - Text that is cut, nested or endless is refused, in bounded time `[check: text_is_bounded]`.
//! - A tree that leads to itself, out of its pool, or back is lost from there on, and its walk ends
//!   `[check: trees_that_lead_astray_end]`.
//! - Volumes made by LVM's own tools read as those tools report
//!   `[check: what_lvm_made_is_where_it_says]`, and those made by `thin_restore` as its description
//!   says `[check: what_thin_restore_made_is_where_it_says]`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod fault;
mod group;
mod group_metadata;
pub mod limits;
mod map;
mod physical;
mod text;
pub mod thin;

pub use fault::{Fault, UnreadReason};
pub use group::{Group, LogicalVolume, Part, Pool, Shape, groups};
pub use map::{ByteLocation, Map};
pub use physical::{PhysicalVolume, physical};
pub use text::{Entry, Section, Value, parse};

/// The unit of extents and of the segments of thin pools, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Reads bytes: takes an offset and a number of bytes; returns `None` if the read fails.
pub type Read<'a> = &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>;
