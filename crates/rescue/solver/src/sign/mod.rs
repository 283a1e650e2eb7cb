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
    /// btrfs, on a single device.
    Btrfs,
    /// A physical volume of LVM.
    Lvm,
}

impl VolumeKind {
    /// The common name of the kind.
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
    /// The kind of the volume.
    pub kind: VolumeKind,
    /// The volume's UUID as it is stored; for a partition table, the disk's.
    pub uuid: [u8; 16],
    /// The volume's recorded size in sectors.
    pub size_sectors: u64,
}

/// A place on a member whose content reveals its address in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) member: usize,
    /// The sector of the member.
    pub(crate) sector: u64,
    /// The index of the volume.
    pub(crate) volume: usize,
    /// The content's possible addresses, in sectors from the start of the volume.
    pub(crate) addresses: Addresses,
}

/// The most addresses of a sign.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// The address of a sign, or a few possible addresses: a volume may keep a structure twice, and
/// several files may end alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Addresses {
    /// The addresses that the sign implies; entries beyond `count` are zero.
    addresses: [u64; ADDRESSES_MAX],
    count: usize,
    /// Whether the content holds its own address, rather than only resembling the content at the
    /// address.
    is_named: bool,
}

impl Addresses {
    pub(crate) fn at(address: u64) -> Self {
        Self::named([address]).expect("one is few")
    }

    /// A sign's addresses that the content itself holds; `None` as in `any`.
    pub(crate) fn named(addresses: impl IntoIterator<Item = u64>) -> Option<Self> {
        Self::any(addresses).map(|it| Self { is_named: true, ..it })
    }

    /// Addresses whose content resembles this content; `None` if there is no address, or too many
    /// addresses to help.
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

    /// The pages that contain these addresses.
    pub(crate) fn page(self) -> Self {
        Self { addresses: self.addresses.map(|sector| sector & !7), ..self }
    }

    /// The weight of a sign with these addresses, in weak votes.
    pub(crate) const fn strength(&self) -> usize {
        if self.is_named { ALIKE } else { 1 }
    }

    /// Whether the content holds its own address.
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_named
    }
}

/// The number of weak votes that count as much as one sign that holds its own address. If only some
/// of a volume's files are known, copies elsewhere of these files resemble the known ones.
pub(crate) const ALIKE: usize = 8;

/// The number of predictions confirmed and refuted, by a walk or by reading predicted places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Walk {
    pub(crate) confirmed: usize,
    pub(crate) refuted: usize,
}

impl Walk {
    /// Counts a walk's prediction; `is_there` is `None` if the predicted place was unreadable.
    pub(crate) fn saw(&mut self, is_there: Option<bool>) {
        self.confirmed += usize::from(is_there == Some(true));
        self.refuted += usize::from(is_there == Some(false));
    }
}
