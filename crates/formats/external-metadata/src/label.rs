//! The label of one disk: its metadata about its container.
//!
//! `imsm` and `ddf` make and verify it; `gather` combines it with those of other disks.

use braid_geometry::Level;

/// Which metadata it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Intel's firmware RAID.
    Imsm,
    /// SNIA's common format.
    Ddf,
}

impl Kind {
    /// In plain words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Imsm => "Intel RAID (IMSM)",
            Self::Ddf => "DDF",
        }
    }
}

/// Metadata that is there and does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Whose it is.
    pub kind: Kind,
    /// The damage.
    pub what: &'static str,
}

/// Which of the container's disks one is: a serial number, or DDF's reference in hex.
pub type Identity = String;

/// All that a disk says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Which metadata.
    pub kind: Kind,
    /// The same on all disks of a container.
    pub container: Vec<u8>,
    /// Counts up with each writing of the metadata.
    pub generation: u64,
    /// Which disk this is, if the metadata says it.
    pub own: Option<Identity>,
    /// All disks that it knows.
    pub disks: Vec<DiskEntry>,
    /// All parts of volumes that it knows.
    pub records: Vec<Record>,
}

/// A disk as the table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEntry {
    /// Its identity.
    pub identity: Identity,
    /// A spare, in no volume.
    pub is_spare: bool,
    /// Given up, or not there when this was written.
    pub has_failed: bool,
    /// Being rebuilt.
    pub is_rebuilding: bool,
}

/// The state of a volume when this was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing.
    Clean,
    /// It was being written.
    Dirty,
    /// Its redundancy was being made or checked.
    Syncing,
    /// A disk was being rebuilt from the others, whose redundancy fits.
    Rebuilding,
}

/// A volume, or with DDF one of the parts that a secondary level joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The same in all records of a volume.
    pub volume: Vec<u8>,
    /// Its name.
    pub name: String,
    /// Counts up with each writing of this record.
    pub generation: u64,
    /// Level, layout in md's numbers, and chunk sectors (0 in a mirror); or why braid does not read
    /// it.
    pub shape: Result<(Level, u32, u32), String>,
    /// Sectors of the whole volume, as far as this record knows.
    pub size_sectors: u64,
    /// How many slots the volume has.
    pub slots: usize,
    /// The slot of the first element.
    pub first_slot: usize,
    /// Slot by slot.
    pub elements: Vec<Element>,
    /// Whether it is clean, or what was interrupted.
    pub state: State,
}

/// The disk and place of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The identity of its disk; `None` without one.
    pub identity: Option<Identity>,
    /// Where its data begin.
    pub start_sector: u64,
    /// How many sectors of data.
    pub sectors: u64,
    /// The disk was not fully recovered, or missed writes.
    pub is_incomplete: bool,
}
