//! Volumes of LVM: which there are on which physical volumes, and where each of their bytes lies.
//!
//! Where it stands: a pure crate; whoever has the bytes reads them, and tells where physical volumes begin. Of a NAS these are arrays,
//! or partitions of arrays, and a group may lie on several (SHR does).
//!
//! ```text
//!   bytes ─▶ physical: label ─▶ header ─▶ metadata areas ─▶ text ─┐
//!                                                                 ├─▶ group: the newest text of each, whose parts are here
//!   bytes ─▶ physical: ...                                        ┘        │
//!                                                                          ▼
//!                      volume ─▶ map: pieces, one behind the other ─▶ (part, offset), zeroes, or lost
//!                         │                                              ▲
//!                         └─ thin ─▶ pool: superblock ─▶ trees of blocks ┘
//! ```
//!
//! A volume is a list of segments of extents. A segment lies on one part (linear), or goes round several (striped). Of a thin volume the
//! blocks lie anywhere in its pool, and a tree in the pool's metadata says where ([`thin`]); what it does not say was never written, and
//! is zeroes.
//!
//! What it does not do: write; follow snapshots that are not thin, caches, or LVM's own RAID but for copies, of which the first is read.
//! They are named, and why they are not read ([`Unread`]). What is on a part that is not here is lost, and the rest is not.
//!
//! Nothing from the disk is trusted: text, its nesting, volumes, segments and what they lead to are counted ([`limits`]), and sums are
//! compared before anything is believed.
//!
//! Sources: the manual page lvm.conf(5) and what LVM writes, for the text; the layouts of label, header and metadata areas, as libvslvm's
//! documentation has them; the kernel's `Documentation/admin-guide/device-mapper/{thin-provisioning,persistent-data}.rst` and the layouts
//! of `dm-thin-metadata.c` and `dm-btree-internal.h`, and for a NAS of QNAP's those of its published kernel: facts of the format only.
//!
//! Invariants
//! - Text that is cut, nested or endless is refused, in bounded time `[check: text_is_bounded]`.
//! - A tree that leads to itself, out of its pool, or back is lost where it does so, and ends `[check: trees_that_lead_astray_end]`.
//! - What LVM's own tools made reads as they say `[check: what_lvm_made_is_where_it_says]`, and what `thin_restore` made as
//!   its description says `[check: what_thin_restore_made_is_where_it_says]`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod described;
mod fault;
mod group;
pub mod limits;
mod map;
mod physical;
mod text;
pub mod thin;

pub use fault::{Fault, Unread};
pub use group::{Group, Logical, Part, Pool, Shape, groups};
pub use map::{Map, Spot};
pub use physical::{PhysicalVolume, physical};
pub use text::{Entry, Section, Value, parse};

/// Reads so many bytes from an offset; none if they cannot be read.
pub type Read<'a> = &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>;
