//! The state folder's file with a window's copy, on a simulated disk, in the shipped format.

use braid_ondisk::{CopiedWindow, ReshapePoint, Superblock, WINDOW_HEADER_BYTES, WindowHeader};

use super::kinds::UUID;
use crate::content::SECTOR;
use crate::disk::Disk;

/// The state folder's file, and the window whose copy counts in this process.
#[derive(Debug, Default)]
pub(super) struct CopyFile {
    pub(super) disk: Option<Disk>,
    pub(super) window: Option<CopiedWindow>,
}

impl CopyFile {
    /// Makes the file anew, without a window: a rename is one step.
    pub(super) fn prepare(&mut self, sectors: u64) {
        let mut disk = Disk::new(sectors);
        disk.put(0, &WindowHeader::default().to_bytes(&UUID), true);
        self.disk = Some(disk);
    }

    pub(super) fn header(&self) -> Option<WindowHeader> {
        WindowHeader::parse(&self.disk.as_ref()?.seen, &UUID)
    }

    /// Whether assembly may count on the file.
    pub(super) fn knows(&self, superblock: Option<&Superblock>) -> bool {
        let point = superblock.and_then(ReshapePoint::of);
        point.zip(self.header()).is_some_and(|(point, header)| header.knows(point))
    }

    /// The window that moves first, if the array is opened at this point.
    pub(super) fn at(&self, point: ReshapePoint) -> Option<CopiedWindow> {
        let (header, disk) = (self.header()?, self.disk.as_ref()?);
        let start = WINDOW_HEADER_BYTES;
        let body = &disk.seen[start..start + header.body_bytes()];
        header.window(body).filter(|_| header.is_at(point))
    }

    pub(super) fn lose_power(&mut self, fate: &mut crate::random::Random) {
        if let Some(disk) = &mut self.disk {
            disk.lose_power(fate);
        }
    }

    pub(super) fn disk(&mut self) -> &mut Disk {
        self.disk.as_mut().expect("a window in place has a file")
    }
}

/// Whole sectors, as disks take them.
pub(super) fn padded(mut data: Vec<u8>) -> Vec<u8> {
    data.resize(data.len().next_multiple_of(SECTOR), 0);
    data
}
