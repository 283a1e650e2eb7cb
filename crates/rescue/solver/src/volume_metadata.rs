//! The structure of a volume, learned from its own metadata.

use crate::bytes::SECTOR;
use crate::sign::{Volume, Walk, btrfs, ext, table, xfs};

/// The metadata of a volume with the places of its other structures.
#[derive(Debug, Clone)]
pub(crate) enum VolumeMetadata {
    Ext(Box<ext::ExtSuperblock>, Option<ext::Tables>),
    Xfs(xfs::XfsSuperblock),
    Btrfs(btrfs::BtrfsSuperblock, btrfs::Chunks),
    Table(table::Gpt),
    Lvm,
}

impl VolumeMetadata {
    /// Addresses of structures that must exist and can be recognised: a missing structure speaks
    /// against a guess.
    pub(crate) fn predictions(&self) -> Vec<u64> {
        match self {
            Self::Ext(found, _) => found.backups().iter().map(|it| found.place(*it)).collect(),
            Self::Xfs(found) => {
                (0..found.groups.min(64)).map(|it| found.header_place(it)).collect()
            }
            Self::Btrfs(..) => btrfs::COPIES[..2].iter().map(|it| it / SECTOR as u64).collect(),
            Self::Table(found) => vec![found.place, found.other],
            Self::Lvm => Vec::new(),
        }
    }

    /// Follows addresses from one structure to the next, and counts structures found and missing.
    /// `read` returns bytes of the volume, from a byte offset and a length. `read` also gets a test
    /// that recognises the right bytes.
    pub(crate) fn walk(
        &self,
        read: impl FnMut(u64, usize, &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>,
    ) -> Walk {
        match self {
            Self::Ext(found, Some(tables)) => found.walk(tables, read),
            Self::Btrfs(found, chunks) => found.walk(chunks, read),
            _ => Walk::default(),
        }
    }

    /// Whether `bytes` are the structure that the metadata predicts at address `sector`.
    pub(crate) fn confirms(&self, volume: &Volume, sector: u64, bytes: &[u8]) -> bool {
        match self {
            Self::Ext(found, _) => ext::ExtSuperblock::recognise(bytes)
                .is_some_and(|it| it.uuid == volume.uuid && found.place(it.group) == sector),
            Self::Xfs(found) => found.place(bytes) == Some(sector),
            Self::Btrfs(..) => btrfs::BtrfsSuperblock::recognise(bytes)
                .is_some_and(|it| it.uuid == volume.uuid && it.place / SECTOR as u64 == sector),
            Self::Table(_) => table::Gpt::recognise(bytes)
                .is_some_and(|it| it.uuid == volume.uuid && it.place == sector),
            Self::Lvm => true,
        }
    }
}
