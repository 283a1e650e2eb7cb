//! Starts with an accepted risk: the operator accepts that some sectors can read wrong. This file
//! tracks these sectors, and has the promise for all others.
//!
//! When the array ended, rows with writes in flight could disagree. If a member is missing, the
//! data computed for it in such rows can be anything. All other sectors read right, then and later:
//! rows that disagree are resynced before any other job, so that a further loss costs nothing more.
//!
//! - No sector reads wrong except in a row that the refusal named, and there only with a write in
//!   flight at the end [check: what_was_being_written_is_resynced_after_its_risk_was_accepted].

use braid_assembly::{AssembledArray, Refusal};
use braid_geometry::{Geometry, LogicalSector, MemberSector, Role, Slot};

use crate::chances::Purpose;
use crate::model::ANYTHING;
use crate::world::World;

/// Percentage of refused starts that are retried with the risk accepted.
const PERCENT: u64 = 60;

impl World {
    /// Notes the writes in flight at the end of a run: their parity can be wrong.
    pub(crate) fn note_half_written(&mut self) {
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        let view = &self.engine.machines.shards[0].view;
        // Rows that disagree stay noted until the array is in sync with all members. Before that
        // nothing may have been resynced, and a missing member can return.
        if view.resync_offset == u64::MAX && view.slots.iter().all(Option::is_some) {
            self.half_written.clear();
        }
        for sector in (0..stripe.capacity_sectors()).filter(|one| self.model.is_unsure(*one)) {
            let place = stripe.locate(LogicalSector(sector));
            self.half_written
                .insert(stripe.row_start(place.row).0 + u64::from(place.offset_sectors));
        }
    }

    /// How many stripes the operator accepts to read wrong, after this refusal. `None` in worlds
    /// where disks lie, because the simulator does not track the consequences there.
    pub(crate) fn may_accept(&self, refusal: &Refusal) -> Option<u64> {
        let Refusal::DirtyAndDegraded(risk) = refusal else { return None };
        let is_honest = self.may_have_jobs && self.taint.is_calm();
        let is_willing = self.chances.of(Purpose::Openings, 1).chance(PERCENT);
        (is_honest && is_willing).then_some(risk.stripes)
    }

    /// The array starts with an accepted risk. In rows with writes in flight, sectors of a slot
    /// without a member may then read as anything.
    pub(crate) fn accept_risk(&mut self, assembled: &AssembledArray) {
        self.has_accepted = assembled.accepted_risk.is_some();
        let Some(risk) = &assembled.accepted_risk else { return };
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        for strip in &self.half_written {
            let row = stripe.row_of(MemberSector(*strip));
            let offset = strip - stripe.row_start(row).0;
            let offset = u32::try_from(offset).expect("it lies in a chunk");
            for slot in (0..stripe.slots()).map(Slot) {
                let occupant = assembled.slots[slot.index()].as_ref();
                let lacks = occupant.is_none_or(|one| one.recovered_until <= *strip);
                let Role::Data(index) = stripe.row_map(row).role(slot) else { continue };
                let is_named = risk.ranges.iter().any(|one| one.member_sectors.contains(strip));
                if lacks && is_named {
                    self.model.settle(stripe.logical(row, index, offset).0, ANYTHING);
                }
            }
        }
    }
}
