//! Signs: superblocks and their backups, and metadata that holds its own address.
//!
//! Facts are from the formats' own descriptions: the kernel's `Documentation/filesystems/ext4`; the
//! XFS Algorithms & Data Structures (3rd edition); the btrfs wiki's *On-disk Format*; the UEFI
//! specification (5.3, GUID partition tables); and LVM's text metadata as lvm(8) tools print it. No
//! sign is believed alone: each is one vote.

pub(crate) mod btrfs;
pub(crate) mod ext;
pub(crate) mod table;
pub(crate) mod xfs;

/// The kind of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKind {
    /// A partition table (GPT): its addresses count from the array's first sector.
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
    /// The common name.
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

/// A file system, table or other structure with addresses relative to its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its kind.
    pub kind: VolumeKind,
    /// Its UUID as it is stored; of a partition table, the disk's.
    pub uuid: [u8; 16],
    /// Its recorded size in sectors.
    pub size_sectors: u64,
}

/// A place on a member, and the address in a volume of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) member: usize,
    /// Sector of the member.
    pub(crate) sector: u64,
    /// The index of the volume.
    pub(crate) volume: usize,
    /// Sectors from the start of the volume.
    pub(crate) addresses: Addresses,
}

/// Most addresses of a sign.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// One address, or a few: a volume may keep a structure twice, and several files may end alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Addresses {
    /// Those beyond `count` are zero.
    addresses: [u64; ADDRESSES_MAX],
    count: usize,
    /// The content names its address, and does not only resemble the content of that place.
    is_named: bool,
}

impl Addresses {
    pub(crate) fn at(address: u64) -> Self {
        Self::named([address]).expect("one is few")
    }

    /// The same, with a named address.
    pub(crate) fn named(addresses: impl IntoIterator<Item = u64>) -> Option<Self> {
        Self::any(addresses).map(|it| Self { is_named: true, ..it })
    }

    /// Any of these addresses; `None` if there is none, or too many to help.
    pub(crate) fn any(addresses: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut it = Self { addresses: [0; ADDRESSES_MAX], count: 0, is_named: false };
        for address in addresses {
            *it.addresses.get_mut(it.count)? = address;
            it.count += 1;
        }
        (it.count > 0).then_some(it)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.addresses.iter().take(self.count).copied()
    }

    /// The pages of its addresses.
    pub(crate) fn page(self) -> Self {
        Self { addresses: self.addresses.map(|sector| sector & !7), ..self }
    }

    /// Its weight, in weak votes.
    pub(crate) const fn strength(&self) -> usize {
        if self.is_named { ALIKE } else { 1 }
    }

    /// Whether it names its address.
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_named
    }
}

/// Weak votes that count as much as one named address. If only some of a volume's files are known,
/// copies of them elsewhere resemble the known ones.
pub(crate) const ALIKE: usize = 8;

/// Predictions confirmed and refuted, by a walk or by reading predicted places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Walk {
    pub(crate) confirmed: usize,
    pub(crate) refuted: usize,
}

impl Walk {
    /// Counts a prediction; `None` if its place could not be read.
    pub(crate) fn saw(&mut self, is_there: Option<bool>) {
        self.confirmed += usize::from(is_there == Some(true));
        self.refuted += usize::from(is_there == Some(false));
    }
}
