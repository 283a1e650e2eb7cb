//! Arrays whose metadata is not md's: Intel's firmware RAID (IMSM, also called Matrix, RST and
//! VROC), and DDF, which many controllers write. The crate reads the label of one disk, and
//! combines the labels of several disks.
//!
//! ```text
//!   imsm, ddf   the end of one disk ─▶ Label: its disks and volumes, checksums verified
//!   gather      labels of all disks ─▶ Array: for each volume which disk has which slot,
//!                                      older and missing disks, dirty or not
//! ```
//!
//! A *container* is a set of disks with one metadata; a *volume* is an array in it, and takes a
//! stretch of each of its disks. So one disk is in several arrays. Levels and layouts are given in
//! md's numbers, because the rest of braid computes with those.
//!
//! # The identity of a disk
//!
//! DDF records on each disk which of the container's disks it is. Intel writes the same table of
//! serial numbers on all disks, and only a disk's own serial number tells its entry. So
//! [`gather()`] takes the serial number of each disk, if the caller knows it. A single unidentified
//! disk gets the only free entry `[check: the_last_disk_needs_no_serial]`; in a mirror the identity
//! does not matter.
//!
//! # What is believed
//!
//! The newest label of a container counts. A disk with an older label has missed writes: assembly
//! gets the disk with its own count of events, and calls it stale as with md's metadata. A volume
//! that was being initialised, verified or written counts as dirty: nothing is computed from its
//! redundancy. A partly rebuilt disk counts as not rebuilt. A volume in migration to another shape
//! is listed and not read.
//!
//! The formats are facts of public sources: SNIA's "Common RAID Disk Data Format" 2.0, and
//! FreeBSD's graid(8) for Intel's format; both formats were then compared with metadata that mdadm
//! writes (`oracle/containers`).
//!
//! Invariants:
//! - no input makes the crate panic, or makes it use memory or time by an unverified number
//!   `[fuzz: containers]`;
//! - a label with a wrong checksum is not used `[check: a_flipped_bit_is_noticed]`;
//! - no disk is in two slots of a volume `[check: nobody_is_in_two_slots]`.
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod bytes;
mod crc;
mod ddf;
mod gather;
mod imsm;
mod label;

pub use gather::{Array, Occupant, ScannedDisk, Slot, gather};
pub use label::{Damage, DiskEntry, Element, Identity, Kind, Label, Record, State};

/// Reads bytes of the disk: takes an offset and a number of bytes; returns `None` if the read
/// fails.
pub type Read<'a> = &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>;

/// Reads the label of a disk of `size_bytes`; `None` without IMSM or DDF metadata.
pub fn look(size_bytes: u64, read: Read<'_>) -> Option<Result<Label, Damage>> {
    imsm::look(size_bytes, read).or_else(|| ddf::look(size_bytes, read))
}
