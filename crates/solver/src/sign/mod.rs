//! What says of itself where it belongs: superblocks and their backups, and metadata with an address in it.
//!
//! Facts are from the formats' own descriptions: the kernel's `Documentation/filesystems/ext4`, the XFS Algorithms & Data
//! Structures (3rd edition), the btrfs wiki's *On-disk Format*, the UEFI specification (5.3, GUID partition tables), and
//! LVM's text metadata as lvm(8) tools print it. Nothing found is believed for itself: a sign is one vote.

pub(crate) mod btrfs;
pub(crate) mod ext;
pub(crate) mod table;
pub(crate) mod xfs;

/// What a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKind {
    /// A table of partitions (GPT): where it belongs is counted from the array's first sector.
    Table,
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// btrfs, on this one device.
    Btrfs,
    /// A physical volume of LVM.
    Lvm,
}

impl VolumeKind {
    /// The name that people know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "gpt",
            Self::Ext => "ext",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Lvm => "lvm",
        }
    }
}

/// Something with addresses of its own that begin somewhere on the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// What it is.
    pub kind: VolumeKind,
    /// Its UUID as it is stored; of a partition table, the disk's.
    pub uuid: [u8; 16],
    /// Sectors it says it has.
    pub size_sectors: u64,
}

/// A place on a member, and where in a volume what stands there belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) member: usize,
    /// Sector of the member.
    pub(crate) sector: u64,
    /// Which of the volumes.
    pub(crate) volume: usize,
    /// Sectors from the start of the volume. Two where the volume keeps it twice.
    pub(crate) belongs: Belongs,
}

/// One address, or either of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Belongs {
    pub(crate) first: u64,
    pub(crate) other: Option<u64>,
}

impl Belongs {
    pub(crate) const fn at(first: u64) -> Self {
        Self { first, other: None }
    }

    /// The page that it is in.
    pub(crate) fn page(self) -> Self {
        let page = |sector: u64| sector & !7;
        Self { first: page(self.first), other: self.other.map(page) }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u64> {
        std::iter::once(self.first).chain(self.other)
    }
}
