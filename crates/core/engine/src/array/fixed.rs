//! The settings of an array that never change while it is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_geometry::{Geometry, MemberSector, Slot};
use braid_sim_hooks::{Bug, spoiled};

use super::setup::{AcceptedRisk, DataMove};
use crate::ids::{MemberId, ShardIndex};
use crate::request::Regions;

/// The settings that never change while the array is open.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The array's geometry; during a reshape the geometry with more slots.
    pub(super) geometry: Arc<Geometry>,
    /// The two geometries of a reshape, and where members' data is in each.
    pub(super) sides: Option<Sides>,
    pub(super) regions: Regions,
    pub(super) work_sectors: u32,
    pub(super) zero_is_fast: bool,
    pub(super) accepted_risk: Option<Arc<AcceptedRisk>>,
}

/// The two shapes of a reshape.
#[derive(Clone, Debug)]
pub(super) struct Sides {
    pub(super) before: Arc<Geometry>,
    pub(super) after: Arc<Geometry>,
    pub(super) moves: BTreeMap<MemberId, DataMove>,
    /// Slots whose member is being filled, and whether that member holds the new shape. The member
    /// holds nothing in the other shape.
    pub(super) half_held: BTreeMap<Slot, bool>,
}

impl Sides {
    /// The old or the new geometry.
    pub(super) fn geometry(&self, is_after: bool) -> &Arc<Geometry> {
        if is_after { &self.after } else { &self.before }
    }

    /// Whether the member in `slot`, which is being filled, holds the old or the new shape.
    pub(super) fn is_held(&self, slot: Slot, is_after: bool) -> bool {
        self.half_held.get(&slot) == Some(&is_after)
    }

    fn survives(&self, is_lost: &dyn Fn(Slot) -> bool) -> bool {
        [false, true].into_iter().all(|is_after| {
            let is_lacking = |slot: Slot| self.half_held.get(&slot) == Some(&!is_after);
            self.geometry(is_after).survives(&|slot| is_lost(slot) || is_lacking(slot))
        })
    }

    /// First sector of a member's data in the old or the new shape.
    pub(super) fn start_of(&self, member: MemberId, is_after: bool) -> u64 {
        self.moves.get(&member).map_or(0, |one| one.on_side(is_after))
    }
}

impl Setup {
    /// Whether the array can do without these slots, in each of its shapes.
    pub(super) fn survives(&self, is_lost: &dyn Fn(Slot) -> bool) -> bool {
        match &self.sides {
            None => self.geometry.survives(is_lost),
            Some(sides) => sides.survives(is_lost),
        }
    }

    /// Converts a shard's sector on a member. The result counts from the start of the member's data
    /// area; during a reshape, from the lower of the two data areas.
    pub(super) fn member_sector(
        &self,
        shard: ShardIndex,
        member: MemberId,
        at: MemberSector,
    ) -> MemberSector {
        let is_after = self.regions.is_after(shard);
        let is_after = spoiled(Bug::ClearedAtOldPlace, is_after, false);
        let start = self.sides.as_ref().map_or(0, |sides| sides.start_of(member, is_after));
        MemberSector(at.0 + start)
    }
}
