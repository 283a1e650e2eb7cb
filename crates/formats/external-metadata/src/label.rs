//! The label of one disk: its metadata about its container.
//!
//! `imsm` and `ddf` make and verify it; `gather` combines it with those of other disks.

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
    /// The usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Imsm => "Intel RAID (IMSM)",
            Self::Ddf => "DDF",
        }
    }
}

/// Metadata that is damaged and does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The kind of metadata.
    pub kind: Kind,
    /// The damage.
    pub what: &'static str,
}

/// A disk of the container: its serial number, or DDF's reference in hex.
pub type Identity = String;

/// A disk's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The kind of metadata.
    pub kind: Kind,
    /// Equal on all disks of a container.
    pub container: Vec<u8>,
    /// Rises with each write of the metadata.
    pub generation: u64,
    /// This disk's identity, if the metadata records it.
    pub own: Option<Identity>,
    /// All disks in its table.
    pub disks: Vec<DiskEntry>,
    /// All parts of volumes in it.
    pub records: Vec<Record>,
}

/// A disk in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEntry {
    /// Its identity.
    pub identity: Identity,
    /// A spare, in no volume.
    pub is_spare: bool,
    /// Given up, or missing when this was written.
    pub has_failed: bool,
    /// Being rebuilt.
    pub is_rebuilding: bool,
}

/// The state of a volume when this was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No interruption.
    Clean,
    /// It was being written.
    Dirty,
    /// Its redundancy was being initialised or verified.
    Syncing,
    /// A disk was being rebuilt from the others, whose redundancy is right.
    Rebuilding,
}

/// A volume, or with DDF one of the parts that a secondary level joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Equal in all records of a volume.
    pub volume: Vec<u8>,
    /// Its name.
    pub name: String,
    /// Rises with each write of this record.
    pub generation: u64,
    /// Level, layout in md's numbers, chunk sectors (0 in a mirror); or why braid does not read it.
    pub shape: Result<(Level, u32, u32), String>,
    /// Sectors of the whole volume, as far as this record covers it.
    pub size_sectors: u64,
    /// The number of slots.
    pub slots: usize,
    /// The slot of the first element.
    pub first_slot: usize,
    /// By slot number.
    pub elements: Vec<Element>,
    /// Whether it is clean, or what was interrupted.
    pub state: State,
}

/// The disk and place of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The identity of its disk; `None` without one.
    pub identity: Option<Identity>,
    /// The first sector of its data.
    pub start_sector: u64,
    /// The sectors of its data.
    pub sectors: u64,
    /// The disk was not fully recovered, or missed writes.
    pub is_incomplete: bool,
}
