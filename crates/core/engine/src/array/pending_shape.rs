//! A change of the array's shape, and what superblocks get from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_geometry::Slot;

use super::jobs::JobKind;
use super::update::{DataArea, DeviceRole, ShapeState};
use crate::ids::MemberId;

/// A change of shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeChange {
    /// A reshape begins, or a level is taken over.
    Begin {
        /// The shape for superblocks.
        shape: ShapeState,
        /// Spares that get a slot.
        joins: BTreeMap<MemberId, Slot>,
        /// Redundancy agrees below this offset of the new shape, in md's unit; `None` for
        /// everywhere.
        resync_from: Option<u64>,
    },
    /// All is moved: the new shape becomes the only one.
    Finish {
        /// The members' data areas in the new shape.
        areas: Vec<(MemberId, DataArea)>,
    },
    /// The reshape goes back from where it is.
    TurnRound {
        /// The members' data areas: the new ones become the old ones.
        areas: Vec<(MemberId, DataArea)>,
    },
}

/// Why an array's shape does not change now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeRefusal {
    /// The array was opened for reading only.
    #[error("the array is open for reading only")]
    ReadOnly,
    /// The array is broken, or stops.
    #[error("the array takes no writes")]
    TakesNoWrites,
    /// Another job must end first.
    #[error("a {} must end first", format!("{:?}", .0).to_lowercase())]
    Busy(JobKind),
    /// Parity logs or a journal name sectors by their place in one shape.
    #[error("writes are logged")]
    Logs,
    /// A lockless bitmap cannot say what is unwritten in two shapes.
    #[error("the bitmap is lockless")]
    Lockless,
    /// There is no reshape, or another one.
    #[error("no such reshape is under way")]
    NotUnderWay,
    /// A change is on its way to the superblocks.
    #[error("another change of shape is being recorded")]
    Changing,
}

/// The change that superblocks get.
#[derive(Debug, Default)]
pub(super) struct PendingShape {
    shape: Option<Arc<ShapeState>>,
    joins: BTreeMap<MemberId, Slot>,
    /// Slots that the array keeps: members of others become spares.
    kept_slots: Option<u16>,
    resync_from: Option<u64>,
    /// The reshape turns round when its window has moved: members' data areas after that.
    turn: Option<Vec<(MemberId, DataArea)>>,
    is_told: bool,
}

impl PendingShape {
    /// A change to `shape`. Members of slots that it lacks become spares.
    pub(super) fn to(shape: ShapeState) -> Self {
        let kept_slots = Some(u16::try_from(shape.raid_slots).unwrap_or(u16::MAX));
        Self { shape: Some(Arc::new(shape)), kept_slots, ..Self::default() }
    }

    /// With spares that get a slot, and the offset below which redundancy agrees.
    pub(super) fn with_joins(
        self,
        joins: BTreeMap<MemberId, Slot>,
        resync_from: Option<u64>,
    ) -> Self {
        Self { joins, resync_from, ..self }
    }

    /// A reshape that turns round when its window has moved.
    pub(super) fn of_turn(areas: Vec<(MemberId, DataArea)>) -> Self {
        Self { turn: Some(areas), ..Self::default() }
    }

    /// Turns round, if that was asked for. Returns whether superblocks have a change to record.
    pub(super) fn turn(
        &mut self,
        turned: impl FnOnce(Vec<(MemberId, DataArea)>) -> ShapeState,
    ) -> bool {
        let Some(areas) = self.turn.take() else { return false };
        self.shape = Some(Arc::new(turned(areas)));
        true
    }

    /// Notes that superblocks have the change. Returns whether that is news.
    pub(super) fn is_recorded(&mut self) -> bool {
        self.shape.is_some() && !std::mem::replace(&mut self.is_told, true)
    }

    /// Whether a change was asked for.
    pub(super) fn is_there(&self) -> bool {
        self.shape.is_some() || self.turn.is_some()
    }

    pub(super) fn shape(&self) -> Option<&Arc<ShapeState>> {
        self.shape.as_ref()
    }

    /// The offset below which redundancy agrees, for superblocks.
    pub(super) fn resync_offset(&self, now: u64) -> u64 {
        self.resync_from.map_or(now, |from| from.min(now))
    }

    /// The roles of devices after the change.
    pub(super) fn roles(&self, mut roles: Vec<DeviceRole>) -> Vec<DeviceRole> {
        for role in &mut roles {
            role.slot = match self.joins.get(&role.member) {
                Some(slot) => Some(*slot),
                None => role.slot.filter(|slot| self.kept_slots.is_none_or(|kept| slot.0 < kept)),
            };
        }
        roles
    }
}
