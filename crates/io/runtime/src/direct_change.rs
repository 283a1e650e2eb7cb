//! The change of shape of an array without redundancy, as the driver writes it to members while the
//! array is stopped.
//!
//! Place in the flow: [`crate::reshape`] notes the change, [`crate::volume`] has it written. The
//! engine makes the superblocks ([`braid_engine::reshape::superblocks_of_change`]).

use braid_engine::array::MemberId;
use braid_member::Member;
use braid_ondisk::Superblock;

use crate::sync::Arc;

/// The superblocks of a change of shape that are written while the array is stopped.
pub(crate) struct DirectChange {
    /// Superblocks of the members that join, as spares of the array before the change.
    pub(crate) joining: Vec<(MemberId, Superblock)>,
    /// The superblocks of all members after the change.
    pub(crate) changed: Vec<(MemberId, Superblock)>,
}

impl DirectChange {
    /// Writes the superblocks, durably and one after the other, so that a power cut tears at most
    /// one. If a member that joins cannot be written, the array keeps its shape. If a later write
    /// fails, the next assembly decides what the array can do without.
    pub(crate) fn write(&self, devices: &[(MemberId, Arc<dyn Member>)]) {
        let put = |(id, superblock): &(MemberId, Superblock)| {
            let device = devices.iter().find(|(other, _)| other == id).map(|(_, device)| device);
            let bytes = superblock.to_bytes();
            device.is_some_and(|device| {
                let is_written = device.write_at(&bytes, superblock.offset_bytes(), true).is_ok();
                is_written && device.flush().is_ok()
            })
        };
        if !self.joining.iter().all(put) {
            return;
        }
        let _assembly_decides: usize =
            self.changed.iter().map(put).filter(|is_put| *is_put).count();
    }
}
