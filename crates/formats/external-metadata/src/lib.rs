//! Arrays whose metadata is not md's: Intel's firmware RAID (IMSM, also called Matrix, RST and VROC), and DDF, which many
//! controllers write. What a disk says of them, and what several disks say together.
//!
//! ```text
//!   imsm, ddf   the end of one disk ─▶ Label: what it says of disks and volumes, checksums verified
//!   gather      labels of all disks ─▶ Array: for each volume who holds which slot, who is older, who is missing, is it dirty
//! ```
//!
//! A *container* is a set of disks with one metadata; a *volume* is an array in it, and takes a stretch of each of its disks.
//! So one disk is in several arrays. Levels and layouts are given in md's numbers, as everything after this is md's arithmetic.
//!
//! # Who a disk is
//!
//! DDF writes on each disk which of its disks this is. Intel writes the same on all of them: a table of serial numbers, and
//! only the disk itself knows which of these is its own. So [`gather()`] takes the serial number of each disk, where somebody
//! knows it. One that nobody knows is told by what is left over, if that is only one place `[check: the_last_disk_needs_no_serial]`;
//! in a mirror it does not matter which is which.
//!
//! # What is believed
//!
//! The newest label of a container counts. A disk with an older one has missed writes: it is given to assembly with its own
//! count of events, which then calls it stale as it does with md's. A volume that was being initialised, verified or written
//! counts as dirty: its redundancy is not to be computed from. A disk that was being rebuilt counts as if nothing of it were
//! done yet. A volume that is being changed to another shape is named and not read.
//!
//! The formats are facts of public sources: SNIA's "Common RAID Disk Data Format" 2.0, and for Intel's what FreeBSD's
//! graid(8) documents of it; both were then held against what mdadm writes (`oracle/containers`).
//!
//! Invariants:
//! - nothing that is read makes this panic, or take memory or time by its word `[fuzz: containers]`;
//! - a label whose checksum is wrong says nothing `[check: a_flipped_bit_is_noticed]`;
//! - no disk is in two slots of a volume `[check: nobody_is_in_two_slots]`.
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod bytes;
mod crc;
mod ddf;
mod gather;
mod imsm;
mod label;

pub use gather::{Array, Seat, Seen, Slot, gather};
pub use label::{Damage, DiskEntry, Element, Identity, Kind, Label, Record, State};

/// Reads so many bytes at an offset of the disk; `None` where they cannot be read.
pub type Read<'a> = &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>;

/// What a disk of so many bytes says; none where it has neither metadata.
pub fn look(size_bytes: u64, read: Read<'_>) -> Option<Result<Label, Damage>> {
    imsm::look(size_bytes, read).or_else(|| ddf::look(size_bytes, read))
}
