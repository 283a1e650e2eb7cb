//! Changes of shape, as the operator asks for them: proposals, and the steps that need superblocks.
//!
//! Place in the flow: above the volume. The engine proposes and records a change
//! ([`braid_engine::reshape`], [`ShapeChange`]); [`Volume::reopen`] continues it. While a reshape
//! moves data, the machines need nothing from this file.
//!
//! ```text
//!   propose ─▶ begin ─▶ Notice::ShapeRecorded ─▶ reopen ─▶ data moves ─▶ JobEnded ─▶ finish
//!                          ▲                                   │                        │
//!                          └───────────── turn round ◀─────────┘      ShapeRecorded ◀───┘
//! ```
//!
//! An array without redundancy writes no superblocks while it runs. [`Volume::reopen`] writes the
//! superblocks of the change ([`DirectChange`]) between the stop and the start.

use std::time::Instant;

use braid_engine::array::{Array, DataArea, MemberId, ReshapeLook, ShapeChange, ShapeRefusal};
use braid_engine::reshape::{
    ShapeLimits, ShapeMember, ShapeProposal, ShapeWish, WishError, propose, superblocks_of_change,
};
use braid_geometry::{Family, SECTOR_BYTES};
use braid_ondisk::{Role, Superblock, SuperblockError};

use crate::clock::time_of_day;
use crate::direct_change::DirectChange;
use crate::events::{ArrayEvent, Machine};
use crate::members::handle::MemberHandle;
use crate::operator::AddError;
use crate::sync::mpsc::channel;
use crate::sync::{Arc, MutexGuard};
use crate::volume::Volume;

/// Maximum bytes that a measurement of a member's speed reads.
const MEASURED_BYTES: usize = 4 << 20;

/// Why a change of an array's shape failed.
#[derive(Debug, thiserror::Error)]
pub enum ReshapeError {
    /// The array cannot be brought to the wanted shape.
    #[error(transparent)]
    Wish(#[from] WishError),
    /// The array cannot change its shape now.
    #[error(transparent)]
    Refused(#[from] ShapeRefusal),
    /// A member's superblock cannot express the shape.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The file for copies of windows cannot be written.
    #[error("the file for copies of what moves in place cannot be written")]
    Copy(#[from] std::io::Error),
    /// The array has been stopped.
    #[error("the array was stopped")]
    Stopped,
}

/// A member's name, superblock and device size.
type KnownMember = (MemberId, Superblock, u64);

impl Volume {
    /// Whether a change of shape may begin now.
    ///
    /// # Errors
    /// A [`ShapeRefusal`], if it may not.
    pub fn may_reshape(&self) -> Result<(), ShapeRefusal> {
        self.look_at_array(Array::may_begin_reshape)
    }

    /// How the array would get the wanted shape. `joining` are superblocks and sizes of devices
    /// that would be added before. Nothing changes.
    ///
    /// # Errors
    /// The wanted shape cannot be reached, or the array takes no change now.
    pub fn propose_shape(
        &self,
        wish: &ShapeWish,
        joining: &[(Superblock, u64)],
    ) -> Result<ShapeProposal, ReshapeError> {
        let mut known = self.known_members();
        let next = known.iter().map(|(id, ..)| id.0 + 1).max().unwrap_or(0);
        let joining = (next..).map(MemberId).zip(joining);
        known.extend(joining.map(|(id, (superblock, bytes))| (id, superblock.clone(), *bytes)));
        Ok(self.proposal(wish, &known, 0)?)
    }

    /// Begins to change the array's shape. [`crate::Notice::ShapeRecorded`] says when
    /// [`Self::reopen`] is due. Data leaves room for a bitmap of `resting_sectors`, which the
    /// caller dropped for the change and makes again.
    ///
    /// # Errors
    /// The wanted shape cannot be reached, or the array takes no change now. Then nothing changed.
    pub fn begin_reshape(
        &self,
        wish: &ShapeWish,
        resting_sectors: u64,
    ) -> Result<ShapeProposal, ReshapeError> {
        // Until the change has begun, this lock keeps the array's end where it is.
        let _one = self.changing.lock().expect("a change of shape does not panic");
        let known = self.known_members();
        let proposal = self.proposal(wish, &known, resting_sectors)?;
        if let Some(copy) = &self.core().window_copy {
            // A copy that an earlier reshape left must not count for this reshape.
            if proposal.is_in_place() { copy.prepare()? } else { copy.remove()? }
        }
        if self.geometry().level().family() == Family::Direct {
            *self.direct_change() = Some(self.direct_superblocks(&proposal, &known)?);
        }
        let changed = self.change_shape(proposal.change.clone());
        changed.inspect_err(|_| *self.direct_change() = None)?;
        Ok(proposal)
    }

    fn direct_superblocks(
        &self,
        proposal: &ShapeProposal,
        known: &[KnownMember],
    ) -> Result<DirectChange, SuperblockError> {
        let members = self.shape_members(known);
        let changed = superblocks_of_change(&members, &proposal.change, time_of_day())?;
        let joining =
            known.iter().filter(|(_, superblock, _)| superblock.state.role == Role::Spare);
        let joining = joining.map(|(id, superblock, _)| (*id, superblock.clone())).collect();
        Ok(DirectChange { joining, changed })
    }

    /// The change of shape that [`Self::reopen`] writes.
    pub(crate) fn direct_change(&self) -> MutexGuard<'_, Option<DirectChange>> {
        self.direct_change.lock().expect("noting does not panic")
    }

    /// Makes the new shape the only one, when all data has moved. Reports as
    /// [`Self::begin_reshape`].
    ///
    /// # Errors
    /// Not all data has moved, or the array takes no changes.
    pub fn finish_reshape(&self) -> Result<(), ReshapeError> {
        let areas = self.areas(|_, after, end| DataArea {
            offset_sectors: after,
            size_sectors: end.saturating_sub(after),
            new_offset_sectors: None,
        });
        self.change_shape(ShapeChange::Finish { areas })
    }

    /// Turns the reshape back to the old shape, once no window is moving. Reports as
    /// [`Self::begin_reshape`].
    ///
    /// # Errors
    /// No reshape is under way, or the array takes no changes.
    pub fn turn_reshape_round(&self) -> Result<(), ReshapeError> {
        let areas = self.areas(|before, after, end| DataArea {
            offset_sectors: after,
            size_sectors: end.saturating_sub(after),
            new_offset_sectors: before,
        });
        self.change_shape(ShapeChange::TurnRound { areas })
    }

    /// The reshape under way.
    #[must_use]
    pub fn reshape(&self) -> Option<ReshapeLook> {
        self.look_at_array(Array::reshape)
    }

    /// Whether a RAID-0 is changing its shape, in the form of a RAID-4 without parity.
    #[must_use]
    pub fn is_striping(&self) -> bool {
        self.look_at_array(Array::is_striping)
    }

    /// The superblock that a new device of this size would get.
    ///
    /// # Errors
    /// The array does not fit the device.
    pub fn joining_superblock(&self, device_bytes: u64) -> Result<Superblock, AddError> {
        Ok(self.core().joining(device_bytes, [0; 16])?.0)
    }

    /// Bytes per second at which the slowest member reads consecutive sectors. Measured now on a
    /// few mebibytes of each member's data, from its cache or its medium.
    #[must_use]
    pub fn read_speed(&self) -> Option<u64> {
        let is_in: Vec<MemberId> = self.look_at_array(Array::members);
        let core = self.core();
        let members = core.members.load();
        let members = members.iter().filter(|member| is_in.contains(&member.id()));
        let speed = |member: &Arc<MemberHandle>| {
            let mut bytes = vec![0; MEASURED_BYTES];
            let start = member.superblock().lowest_data_sector() * SECTOR_BYTES;
            let began = Instant::now();
            member.device.read_at(&mut bytes, start).ok()?;
            let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
            Some(MEASURED_BYTES as u64 * 1_000_000 / micros)
        };
        members.filter_map(speed).min()
    }

    /// The members' data areas. `of` makes each from the start in the old shape if the data moves,
    /// the start in the new shape, and the end.
    fn areas(&self, of: impl Fn(Option<u64>, u64, u64) -> DataArea) -> Vec<(MemberId, DataArea)> {
        let known = self.known_members();
        let areas = known.iter().map(|(id, superblock, _)| {
            let device = &superblock.device;
            let old = device.data_offset_sectors;
            let moved = superblock.reshape.and_then(|one| one.new_data_offset_sectors);
            let end = old.saturating_add(device.data_size_sectors);
            (*id, of(moved.map(|_| old), moved.unwrap_or(old), end))
        });
        areas.collect()
    }

    /// Members with their slots.
    fn shape_members<'a>(&self, known: &'a [KnownMember]) -> Vec<ShapeMember<'a>> {
        let view = self.view();
        let slots = &view.of_all_members().slots;
        let slot_of = |id: MemberId| {
            let mut found = (0..).map(braid_geometry::Slot).zip(slots);
            found
                .find(|(_, one)| one.as_ref().is_some_and(|one| one.id == id))
                .map(|(slot, _)| slot)
        };
        let members = known.iter().map(|(id, superblock, device_bytes)| ShapeMember {
            id: *id,
            slot: slot_of(*id),
            superblock,
            device_bytes: *device_bytes,
        });
        members.collect()
    }

    fn proposal(
        &self,
        wish: &ShapeWish,
        known: &[KnownMember],
        resting_sectors: u64,
    ) -> Result<ShapeProposal, WishError> {
        // A PPL rests during the change of shape, so its place is free.
        let mut known = known.to_vec();
        known.iter_mut().for_each(|(_, superblock, _)| superblock.name_ppl(None));
        let members = self.shape_members(&known);
        let limits = ShapeLimits {
            bitmap_sectors: self.bitmap_sectors().max(resting_sectors),
            can_copy: self.core().window_copy.is_some(),
            used_sectors: self.size_bytes() / SECTOR_BYTES,
        };
        propose(&members, limits, wish)
    }

    /// The array's members that have a superblock, spares included.
    fn known_members(&self) -> Vec<KnownMember> {
        let is_in: Vec<MemberId> = self.look_at_array(Array::members);
        let core = self.core();
        let members = core.members.load();
        let members = members.iter().filter(|member| is_in.contains(&member.id()));
        let members = members.filter(|member| !member.is_bitmap_file());
        members
            .map(|member| (member.id(), member.superblock(), member.device.size_bytes()))
            .collect()
    }

    /// Tries the change on every superblock, then makes the array record it.
    fn change_shape(&self, change: ShapeChange) -> Result<(), ReshapeError> {
        let turned = match &change {
            ShapeChange::TurnRound { areas } => self.look_at_array(|array| array.turned(areas)),
            ShapeChange::Begin { .. } | ShapeChange::Finish { .. } => None,
        };
        let begun = match &change {
            ShapeChange::Begin { shape, .. } => Some(shape),
            ShapeChange::TurnRound { .. } => turned.as_ref(),
            ShapeChange::Finish { .. } => None,
        };
        if let Some(shape) = begun {
            for (id, superblock, bytes) in self.known_members() {
                // Fewer slots are no error of their own: the roles change with them. A reshape
                // keeps the old roles until its end.
                if shape.raid_slots < superblock.array.raid_slots && shape.reshape.is_none() {
                    continue;
                }
                superblock.with_shape(&shape.of_member(id, &superblock), bytes)?;
            }
        }
        let core = self.core();
        let (sender, receiver) = channel();
        core.array.push(ArrayEvent::Shape(change, sender));
        core.drive(Machine::Array);
        Ok(receiver.recv().map_err(|_| ReshapeError::Stopped)??)
    }
}
