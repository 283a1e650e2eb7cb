//! A change of the array's shape that waits until superblocks record it.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, spoiled};

use super::jobs::JobKind;
use super::roster::Roster;
use super::update::{DataArea, DeviceRole, ShapeState};
use crate::ids::MemberId;

/// A change of shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeChange {
    /// A reshape begins, or the array takes over another level without moving data.
    Begin {
        /// The shape that superblocks shall record.
        shape: ShapeState,
        /// Members that get these slots, or become spares.
        places: BTreeMap<MemberId, Option<Slot>>,
        /// Members that hold one shape of the reshape only, with the sectors that they hold.
        held: BTreeMap<MemberId, u64>,
        /// Redundancy agrees below this offset of the new shape, in md's unit; `None` for
        /// everywhere.
        resync_from: Option<u64>,
    },
    /// All data has moved: the new shape becomes the only one.
    Finish {
        /// The data area of each member in the new shape.
        areas: Vec<(MemberId, DataArea)>,
    },
    /// The reshape turns round at its present position, and moves the data back.
    TurnRound {
        /// The data area of each member, with the new and the old area exchanged.
        areas: Vec<(MemberId, DataArea)>,
    },
}

/// Why the array's shape cannot change now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeRefusal {
    /// The array was opened for reading only.
    #[error("the array is open for reading only")]
    ReadOnly,
    /// The array is broken, or is being stopped.
    #[error("the array takes no writes")]
    TakesNoWrites,
    /// Another job must end first.
    #[error("a {} must end first", format!("{:?}", .0).to_lowercase())]
    Busy(JobKind),
    /// The array keeps parity logs or a journal, which name sectors by their place in only one
    /// shape.
    #[error("writes are logged")]
    Logs,
    /// The array has a lockless bitmap, which cannot record unwritten sectors of two shapes.
    #[error("the bitmap is lockless")]
    Lockless,
    /// The array is in no reshape, or its reshape has not reached its end.
    #[error("no such reshape is under way")]
    NotUnderWay,
    /// Superblocks do not record the last change of shape yet.
    #[error("another change of shape is being recorded")]
    Changing,
}

/// A change of shape, from the request until superblocks record it.
#[derive(Debug, Default)]
pub(super) struct PendingShape {
    shape: Option<Arc<ShapeState>>,
    places: BTreeMap<MemberId, Option<Slot>>,
    /// At the end of a reshape: sectors of the new shape that a member has which held only one
    /// shape.
    held_at_end: Option<u64>,
    /// The number of slots that the array keeps: members of later slots become spares.
    kept_slots: Option<u16>,
    resync_from: Option<u64>,
    /// Members' data areas after a requested turn. The reshape turns round once no window is
    /// moving.
    turn: Option<Vec<(MemberId, DataArea)>>,
    is_told: bool,
}

impl PendingShape {
    /// A change to `shape`. Members of slots that the new shape lacks become spares. If the change
    /// begins a reshape, members keep the slots of the old shape.
    pub(super) fn to(shape: ShapeState) -> Self {
        let lost = shape.reshape.map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs());
        let lost = spoiled(Bug::SlotsEndEarly, lost, 0);
        let kept = shape.raid_slots.saturating_add(lost);
        let kept_slots = Some(u16::try_from(kept).unwrap_or(u16::MAX));
        Self { shape: Some(Arc::new(shape)), kept_slots, ..Self::default() }
    }

    /// Adds to the change the members that get other slots or become spares, and the offset below
    /// which redundancy agrees.
    pub(super) fn with_places(
        self,
        places: BTreeMap<MemberId, Option<Slot>>,
        resync_from: Option<u64>,
    ) -> Self {
        Self { places, resync_from, ..self }
    }

    /// Adds to a reshape's end how many sectors of the new shape a member holds that held only one
    /// shape.
    pub(super) fn with_held(self, sectors: u64) -> Self {
        Self { held_at_end: Some(sectors), ..self }
    }

    /// The members that are being filled, with their sectors, as superblocks shall record them.
    pub(super) fn unfinished(&self, roster: &Roster) -> Arc<[(MemberId, u64)]> {
        let held = |member: MemberId| self.held_at_end.filter(|_| roster.is_half_held(member));
        let said = roster.unfinished();
        let said = said.map(|(member, sectors)| (member, held(member).unwrap_or(sectors)));
        said.filter(|(_, sectors)| *sectors != u64::MAX).collect()
    }

    /// A request to turn the reshape round once no window is moving.
    pub(super) fn of_turn(areas: Vec<(MemberId, DataArea)>) -> Self {
        Self { turn: Some(areas), ..Self::default() }
    }

    /// Forgets a requested turn, because a window failed that had to move before the turn. The
    /// operator may request the turn again.
    pub(super) fn forget_turn(&mut self) {
        self.turn = None;
    }

    /// Turns a requested turn into a change that superblocks record. Returns whether a turn was
    /// requested.
    pub(super) fn turn(
        &mut self,
        turned: impl FnOnce(Vec<(MemberId, DataArea)>) -> ShapeState,
    ) -> bool {
        let Some(areas) = self.turn.take() else { return false };
        self.shape = Some(Arc::new(turned(areas)));
        true
    }

    /// Notes that superblocks record the change of shape. True the first time.
    pub(super) fn is_recorded(&mut self) -> bool {
        self.shape.is_some() && !std::mem::replace(&mut self.is_told, true)
    }

    /// Whether a change of shape is requested or on its way to superblocks.
    pub(super) fn is_there(&self) -> bool {
        self.shape.is_some() || self.turn.is_some()
    }

    /// Whether a requested turn of the reshape still waits for a window.
    pub(super) fn is_turn(&self) -> bool {
        self.turn.is_some()
    }

    pub(super) fn shape(&self) -> Option<&Arc<ShapeState>> {
        self.shape.as_ref()
    }

    /// The resync offset for superblocks, where `now` is the offset before the change of shape.
    pub(super) fn resync_offset(&self, now: u64) -> u64 {
        let from = self.resync_from;
        let from = spoiled(Bug::LargerPartInSync, from, None);
        from.map_or(now, |from| from.min(now))
    }

    /// The roles of devices after the change of shape, from the `roles` before the change.
    pub(super) fn roles(&self, mut roles: Vec<DeviceRole>) -> Vec<DeviceRole> {
        for role in &mut roles {
            role.slot = match self.places.get(&role.member) {
                Some(slot) => *slot,
                None => role.slot.filter(|slot| self.kept_slots.is_none_or(|kept| slot.0 < kept)),
            };
        }
        roles
    }
}
