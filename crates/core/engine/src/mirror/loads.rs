//! The load of a mirror's members, and the positions of their heads.

use braid_geometry::{MemberSector, Slot};

#[derive(Debug)]
pub(super) struct Loads(Box<[Load]>);

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    reads: u32,
    /// The end of the member's last read: a read that starts there is sequential.
    next_sector: u64,
}

impl Loads {
    pub(super) fn new(slots: u16) -> Self {
        Self(vec![Load::default(); usize::from(slots)].into_boxed_slice())
    }

    pub(super) fn begin(&mut self, slot: Slot, start: MemberSector, sectors: u32) {
        let load = &mut self.0[usize::from(slot.0)];
        load.reads += 1;
        load.next_sector = start.0 + u64::from(sectors);
    }

    pub(super) fn end(&mut self, slot: Slot) {
        self.0[usize::from(slot.0)].reads -= 1;
    }

    /// The cost of a read of the member in `slot` at `start`; the smallest cost is best.
    pub(super) fn cost(&self, slot: Slot, start: MemberSector) -> (bool, u32) {
        let load = self.0[usize::from(slot.0)];
        (load.next_sector != start.0, load.reads)
    }
}
