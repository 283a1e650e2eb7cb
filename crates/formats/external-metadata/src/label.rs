//! The label of one disk: its metadata about its container.
//!
//! `imsm` and `ddf` read and verify labels; `gather` combines the labels of several disks.

use braid_geometry::Level;

/// The kind of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Intel's firmware RAID.
    Imsm,
    /// SNIA's common format.
    Ddf,
}

impl Kind {
    /// The usual name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Imsm => "Intel RAID (IMSM)",
            Self::Ddf => "DDF",
        }
    }
}

/// Metadata that was found damaged, and does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The kind of metadata.
    pub kind: Kind,
    /// The damage that was found.
    pub what: &'static str,
}

/// The identity of a disk in its container: its serial number, or DDF's reference in hex.
pub type Identity = String;

/// A disk's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The kind of metadata.
    pub kind: Kind,
    /// The container's identity, equal on all its disks.
    pub container: Vec<u8>,
    /// A number that rises with each write of the metadata.
    pub generation: u64,
    /// This disk's identity, if the metadata records it.
    pub own: Option<Identity>,
    /// All disks in the label's table.
    pub disks: Vec<DiskEntry>,
    /// All parts of volumes in the label.
    pub records: Vec<Record>,
}

/// An entry for a disk in a label's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEntry {
    /// The disk's identity.
    pub identity: Identity,
    /// Whether the disk is a spare, in no volume.
    pub is_spare: bool,
    /// Whether the disk had failed or was missing when the label was written.
    pub has_failed: bool,
    /// Whether the disk was being rebuilt when the label was written.
    pub is_rebuilding: bool,
}

/// The state of a volume when its label was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No work was interrupted.
    Clean,
    /// The volume was being written.
    Dirty,
    /// The volume's redundancy was being initialised or verified.
    Syncing,
    /// A disk was being rebuilt from the other disks. The redundancy of the other disks is right.
    Rebuilding,
}

/// A volume's record. With DDF, the record of one of the parts that a secondary level joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The volume's identity, equal in all records of the volume.
    pub volume: Vec<u8>,
    /// The volume's name.
    pub name: String,
    /// A number that rises with each write of this record.
    pub generation: u64,
    /// Level, layout in md's numbers, chunk sectors (0 for a mirror). An error says why braid does
    /// not read the volume.
    pub shape: Result<(Level, u32, u32), String>,
    /// Sectors of the whole volume, or of the part that this record covers.
    pub size_sectors: u64,
    /// The number of slots.
    pub slots: usize,
    /// The slot of the first entry of `elements`.
    pub first_slot: usize,
    /// The disks of the record, by slot number.
    pub elements: Vec<Element>,
    /// Whether the volume is clean, or what was interrupted.
    pub state: State,
}

/// The disk of one slot, and the place of the slot's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The identity of the slot's disk; `None` if the slot has none.
    pub identity: Option<Identity>,
    /// The first sector of the slot's data on its disk.
    pub start_sector: u64,
    /// The sectors of the slot's data.
    pub sectors: u64,
    /// Whether the disk was not fully recovered, or missed writes.
    pub is_incomplete: bool,
}
