//! Changes of the array's shape that superblocks record at once: a reshape begins, ends or turns
//! round, or the array takes over another level. The driver then stops the array and opens it anew:
//! no machine changes its geometry while it runs.
//!
//! ```text
//!   handle_shape_change ─▶ superblocks have the shape ─▶ Notice::ShapeRecorded ─▶ stop ─▶ open
//! ```
//!
//! Between the record and the stop the array serves in its present shape, which stays right until
//! the stop. At the beginning of a reshape no data has moved, at its end all data has, and a turn
//! moves none.

use braid_geometry::{Level, Slot};
use braid_ondisk::Reshape;
use braid_sim_hooks::{Bug, planted, spoiled};

use super::effect::Notice;
use super::jobs::JobKind;
use super::machine::Array;
use super::order::Activity;
use super::pending_shape::{PendingShape, ShapeChange, ShapeRefusal};
use super::reshape::Reshaper;
use super::update::{DataArea, ShapeState};
use crate::Instant;
use crate::ids::MemberId;
use crate::reshape::RAID4_OF_RAID0;

impl Array {
    /// Whether the array's shape may change now.
    ///
    /// # Errors
    /// A [`ShapeRefusal`], if the shape may not change now.
    pub fn may_change_shape(&self) -> Result<(), ShapeRefusal> {
        let condition = self.condition;
        if condition.read_only {
            return Err(ShapeRefusal::ReadOnly);
        }
        if condition.broken || condition.stopping || condition.stopped {
            return Err(ShapeRefusal::TakesNoWrites);
        }
        if self.pending_shape.is_there() {
            return Err(ShapeRefusal::Changing);
        }
        Ok(())
    }

    /// Whether a reshape is under way, or superblocks are about to record a change of shape.
    pub(super) fn changes_shape(&self) -> bool {
        self.reshaper.is_some() || self.pending_shape.is_there()
    }

    /// Whether a reshape or a take-over may begin now.
    ///
    /// # Errors
    /// A [`ShapeRefusal`], if neither may begin now.
    pub fn may_begin_reshape(&self) -> Result<(), ShapeRefusal> {
        self.may_change_shape()?;
        self.may_begin()
    }

    fn may_begin(&self) -> Result<(), ShapeRefusal> {
        let busy = if self.reshaper.is_some() {
            Some(JobKind::Reshape)
        } else if self.condition.resync_offset != u64::MAX {
            Some(JobKind::Resync)
        } else if self.roster.recovering().next().is_some() {
            Some(JobKind::Recovery)
        } else if self.roster.replacements().next().is_some() {
            Some(JobKind::Replace)
        } else {
            None
        };
        match busy {
            Some(kind) => Err(ShapeRefusal::Busy(kind)),
            None if self.consistency.has_logs() => Err(ShapeRefusal::Logs),
            None if self.consistency.lazy().is_some() => Err(ShapeRefusal::Lockless),
            None => Ok(()),
        }
    }

    /// Starts a change of shape. [`Notice::ShapeRecorded`] follows when superblocks record the
    /// change. Before this call the driver tries the shape on every member's superblock.
    ///
    /// # Errors
    /// The shape cannot change now.
    pub fn handle_shape_change(
        &mut self,
        now: Instant,
        change: ShapeChange,
    ) -> Result<(), ShapeRefusal> {
        self.may_change_shape()?;
        let pending = match change {
            ShapeChange::Begin { shape, places, held: _, resync_from } => {
                self.may_begin()?;
                PendingShape::to(shape).with_places(places, resync_from)
            }
            ShapeChange::Finish { mut areas } => {
                if planted(Bug::EndForgetsMove) {
                    areas.clear();
                }
                let reshaper = self.reshaper.as_ref().filter(|one| one.is_over());
                let reshaper = reshaper.ok_or(ShapeRefusal::NotUnderWay)?;
                let is_held = self.is_striping() || !reshaper.is_backwards();
                let shape = match self.is_striping() {
                    true => striped(reshaper.shape(), areas),
                    false => ended(reshaper.shape(), areas),
                };
                PendingShape::to(shape).with_held(if is_held { u64::MAX } else { 0 })
            }
            ShapeChange::TurnRound { areas } => {
                let reshaper = self.reshaper.as_mut().ok_or(ShapeRefusal::NotUnderWay)?;
                // The operator requested the turn, so a window that failed is tried again.
                reshaper.try_again();
                PendingShape::of_turn(areas)
            }
        };
        self.pending_shape = pending;
        if self.superblocks.on_disk() == Activity::NotKept {
            // While an array without redundancy runs, no superblock is written: the driver writes
            // superblocks between the stop and the start.
            self.out.notice(Notice::ShapeRecorded);
            return Ok(());
        }
        self.out.change_if(self.pending_shape.shape().is_some());
        self.turn_if_at_rest();
        self.step(now);
        Ok(())
    }

    /// Turns the reshape round, if the driver requested a turn, no window is moving, and rows of
    /// both shapes begin at the position.
    pub(super) fn turn_if_at_rest(&mut self) {
        let is_at_rest = |one: &&Reshaper| {
            let is_moving = one.is_moving();
            let is_moving = spoiled(Bug::TurnMidWindow, is_moving, false);
            !is_moving && !one.moves_before_turn()
        };
        let at_rest = self.reshaper.as_ref().filter(is_at_rest);
        let Some(reshaper) = at_rest else { return };
        let position = reshaper.turning_position();
        if self.pending_shape.turn(|areas| turned_round(reshaper.shape(), position, areas)) {
            self.out.change();
        }
    }

    /// The shape for superblocks if the reshape turned round now; `None` without a reshape.
    #[must_use]
    pub fn turned(&self, areas: &[(MemberId, DataArea)]) -> Option<ShapeState> {
        let reshaper = self.reshaper.as_ref()?;
        let position = reshaper.turning_position();
        Some(turned_round(reshaper.shape(), position, areas.to_vec()))
    }

    /// Whether a RAID-0 is in a reshape, as a RAID-4 whose parity is on its last slot and missing
    /// in both shapes. The array is a RAID-0 again at the end.
    #[must_use]
    pub fn is_striping(&self) -> bool {
        let sides = self.setup.sides.as_ref();
        let Some((reshaper, sides)) = self.reshaper.as_ref().zip(sides) else { return false };
        let said = reshaper.shape();
        let levels = said.reshape.map(|reshape| (reshape.new_level, reshape.new_layout));
        let is_striped = |one| one == (Level::Raid4, RAID4_OF_RAID0);
        let (before, after) = (sides.before.slots(), sides.after.slots());
        let last = |slots: u16| Slot(slots - 1);
        let [wide, narrow] = [before.max(after), before.min(after)].map(last);
        let is_empty = |slot: Slot| self.roster.members_of(slot).next().is_none();
        let is_half_held = self.roster.half_held.contains(&narrow);
        is_striped((said.level, said.layout))
            && levels.is_some_and(is_striped)
            && is_empty(wide)
            && (is_half_held || is_empty(narrow))
    }

    /// Whether jobs are paused.
    #[must_use]
    pub fn are_jobs_paused(&self) -> bool {
        self.jobs.is_paused()
    }

    /// Called when an update of superblocks is durable: reports a recorded change of shape.
    pub(super) fn tell_shape(&mut self) {
        let is_recorded = self.tells_all();
        let is_recorded = spoiled(Bug::ShapeReportedEarly, is_recorded, true);
        if is_recorded && self.pending_shape.is_recorded() {
            self.out.notice(Notice::ShapeRecorded);
        }
    }
}

/// The array's shape when a reshape is over.
fn ended(said: &ShapeState, data_areas: Vec<(MemberId, DataArea)>) -> ShapeState {
    let reshape = said.reshape.expect("an array in a reshape says so");
    ShapeState {
        level: reshape.new_level,
        layout: reshape.new_layout,
        chunk_sectors: reshape.new_chunk_sectors,
        member_size_sectors: said.member_size_sectors,
        raid_slots: said.raid_slots,
        reshape: None,
        data_areas,
    }
}

/// The shape of a RAID-0 whose reshape is over. A RAID-0 uses the whole data area of each member,
/// so these areas end where the used part ends.
fn striped(said: &ShapeState, mut data_areas: Vec<(MemberId, DataArea)>) -> ShapeState {
    for (_, area) in &mut data_areas {
        area.size_sectors = area.size_sectors.min(said.member_size_sectors);
    }
    let raid4 = ended(said, data_areas);
    ShapeState { level: Level::Raid0, layout: 0, raid_slots: raid4.raid_slots - 1, ..raid4 }
}

/// The shape of a reshape that moves the data back.
fn turned_round(
    said: &ShapeState,
    position_sectors: u64,
    data_areas: Vec<(MemberId, DataArea)>,
) -> ShapeState {
    let reshape = said.reshape.expect("an array in a reshape says so");
    let position_sectors = spoiled(Bug::TurnForgetsPosition, position_sectors, u64::MAX >> 1);
    let slots = i64::from(said.raid_slots) - i64::from(reshape.delta_disks);
    ShapeState {
        level: reshape.new_level,
        layout: reshape.new_layout,
        chunk_sectors: reshape.new_chunk_sectors,
        member_size_sectors: said.member_size_sectors,
        raid_slots: u32::try_from(slots).expect("assembly made the old shape's geometry"),
        reshape: Some(Reshape {
            position_sectors,
            delta_disks: -reshape.delta_disks,
            new_level: said.level,
            new_layout: said.layout,
            new_chunk_sectors: said.chunk_sectors,
            new_data_offset_sectors: None,
            backwards: !reshape.backwards,
        }),
        data_areas,
    }
}
