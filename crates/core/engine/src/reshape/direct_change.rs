//! The superblocks that begin a change of shape of an array without redundancy.
//!
//! An array without redundancy writes no superblocks while it runs. So the driver stops the array,
//! writes these superblocks, and opens the array anew. It writes newcomers as spares first, with
//! the array's event count, and then all members with the next count. After a power cut the next
//! start brings the other members to the new shape, as after any change of shape.
//!
//! This file neither writes superblocks nor decides whether the change is possible.
//!
//! Invariant: each update that is cut short is completed or ignored by the next start
//! `[check: a_striped_array_begins_to_grow_whichever_superblock_is_written_last]`.

use std::sync::Arc;

use braid_ondisk::{Superblock, SuperblockError, Timestamp};

use super::wish::ShapeMember;
use crate::array::{DeviceRole, ShapeChange, ShapeState, SuperblockState, UpdateTimes, apply_to};
use crate::ids::MemberId;

/// The superblocks of all members after the beginning of `change`; none if it begins no change.
///
/// # Errors
/// A superblock cannot express the shape.
pub fn superblocks_of_change(
    members: &[ShapeMember<'_>],
    change: &ShapeChange,
    now: Timestamp,
) -> Result<Vec<(MemberId, Superblock)>, SuperblockError> {
    let ShapeChange::Begin { shape, places, held, .. } = change else { return Ok(Vec::new()) };
    let newest = members.iter().map(|one| one.superblock).max_by_key(|one| one.state.events);
    let Some(newest) = newest else { return Ok(Vec::new()) };
    let events = newest.state.events + 1;
    let time = UpdateTimes::after(newest).of(events, now);
    let role = |one: &ShapeMember<'_>| DeviceRole {
        member: one.id,
        device_number: u16::try_from(one.superblock.device.number)
            .expect("validated: at most 1920 devices"),
        slot: places.get(&one.id).copied().unwrap_or(one.slot),
        is_replacement: false,
    };
    let state = SuperblockState {
        events,
        resync_offset: u64::MAX,
        roles: members.iter().map(role).collect(),
        recovered: held.iter().map(|(id, sectors)| (*id, *sectors)).collect(),
        bad_blocks: Arc::default(),
        log_counts: None,
        has_bitmap: None,
        ppls: Arc::default(),
        journal: None,
        shape: Some(Arc::new(ShapeState::clone(shape))),
    };
    let changed = members.iter().map(|one| {
        let mut superblock = one.superblock.clone();
        apply_to(&mut superblock, one.id, one.device_bytes, &state, time)?;
        Ok((one.id, superblock))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::levelling;
    use crate::reshape::{ShapeLimits, ShapeWish, WishError, propose};
    use braid_assembly::{Options, ProbedMember, assemble};
    use braid_geometry::{Level, Slot};
    use braid_ondisk::{
        ArrayFacts, DeviceFlags, NewSuperblock, PlacementRequest, Probe, Role, Version, placement,
    };

    const DEVICE_BYTES: u64 = 16 << 20;
    const TIME: Timestamp = Timestamp { seconds: 1_800_000_000, microseconds: 0 };

    /// The superblocks of a RAID-0 of three, and of a spare.
    fn superblocks() -> Vec<Superblock> {
        let request = PlacementRequest {
            version: Version::V1_2,
            device_bytes: DEVICE_BYTES,
            level: Level::Raid0,
            chunk_sectors: 128,
            member_size_sectors: None,
            data_offset_sectors: None,
        };
        let roles: Arc<[Role]> = (0..3).map(Role::Active).chain([Role::Spare]).collect();
        let of = |number: u16| {
            let superblock = Superblock::new_v1(&NewSuperblock {
                array: ArrayFacts {
                    uuid: [7; 16],
                    name: String::new(),
                    creation_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
                    level: Level::Raid0,
                    layout: 2,
                    chunk_sectors: 128,
                    member_size_sectors: 0,
                    raid_slots: 3,
                    preferred_minor: None,
                    logical_block_bytes: None,
                },
                placement: placement(&request).expect("there is room"),
                device_number: u32::from(number),
                device_uuid: [u8::try_from(number).expect("small"); 16],
                device_flags: DeviceFlags::default(),
                roles: roles.clone(),
                events: 7,
                resync_offset: u64::MAX,
            });
            superblock.expect("a valid superblock")
        };
        (0..4).map(of).collect()
    }

    fn probed(superblocks: &[Superblock]) -> Vec<ProbedMember> {
        let of = |superblock: &Superblock| ProbedMember {
            label: superblock.device.number.to_string(),
            size_bytes: DEVICE_BYTES,
            identity: superblock.device.number.to_string(),
            probe: Probe { superblocks: vec![Ok(superblock.clone())], foreign: vec![] },
            bad_blocks: Ok(vec![]),
            bitmap: None,
            ppl: None,
            own_log: None,
            journal: None,
        };
        superblocks.iter().map(of).collect()
    }

    fn changed(found: &[Superblock], wish: &ShapeWish) -> Result<Vec<Superblock>, WishError> {
        let slot_of = |superblock: &Superblock| match superblock.state.role {
            Role::Active(slot) => Some(Slot(slot)),
            _ => None,
        };
        let member = |(id, superblock)| {
            let slot = slot_of(superblock);
            ShapeMember { id, slot, superblock, device_bytes: DEVICE_BYTES }
        };
        let members = (0..).map(MemberId).zip(found).map(member);
        let members: Vec<ShapeMember<'_>> = members.collect();
        let limits = ShapeLimits { bitmap_sectors: 0, can_copy: true, used_sectors: 1 };
        let proposal = propose(&members, limits, wish)?;
        let changed = superblocks_of_change(&members, &proposal.change, TIME);
        let changed = changed.expect("they can say it").into_iter();
        Ok(changed.map(|(_, superblock)| superblock).collect())
    }

    /// Whichever superblocks of a change were written when the power failed, the next start brings
    /// the other members to the new shape.
    fn check_torn(found: &[Superblock], wish: &ShapeWish) -> Vec<Superblock> {
        let wanted = changed(found, wish).expect("there is a way");
        for written in 1_u32..16 {
            let is_written = |disk: usize| written & 1 << disk != 0;
            let of = |disk: usize| if is_written(disk) { &wanted[disk] } else { &found[disk] };
            let on_disk: Vec<Superblock> = (0..4).map(of).cloned().collect();
            let about = format!("{wish:?} {written:04b}");
            let assembly = assemble(&probed(&on_disk), &Options::default());
            let assembled = assembly.array.unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(assembled.reshape.is_some(), wish.slots.is_some(), "{about}");
            let mut levelled = on_disk.clone();
            let round = levelling(&assembled, |index| on_disk.get(index));
            for (index, superblock) in round.into_iter().flatten() {
                levelled[index] = superblock;
            }
            for (disk, (own, wanted)) in levelled.iter().zip(&wanted).enumerate() {
                let facts = |one: &Superblock| {
                    (one.shape(), one.state.role, one.device.recovery_offset_sectors)
                };
                // A spare that stays a spare may miss the change, in which it has no part.
                if wanted.state.role != Role::Spare {
                    assert_eq!(facts(own), facts(wanted), "{about}, disk {disk}");
                }
            }
        }
        wanted
    }

    #[test]
    fn a_striped_array_begins_to_grow_whichever_superblock_is_written_last() {
        for slots in [4, 2] {
            let wish = ShapeWish { slots: Some(slots), ..ShapeWish::default() };
            check_torn(&superblocks(), &wish);
        }
        for level in [Level::Raid4, Level::Raid5, Level::Raid10] {
            let to = |level| ShapeWish { level: Some(level), ..ShapeWish::default() };
            let taken_over = check_torn(&superblocks(), &to(level));
            let back = check_torn(&taken_over, &to(Level::Raid0));
            let data = |superblocks: &[Superblock]| -> Vec<_> {
                let of = |one: &Superblock| (one.state.role, one.device.data_offset_sectors);
                superblocks.iter().map(of).collect()
            };
            assert_eq!(data(&back), data(&superblocks()), "{level}");
        }
    }

    #[test]
    fn no_raid0_is_made_of_members_whose_logs_name_lost_sectors() {
        let to = |level| ShapeWish { level: Some(level), ..ShapeWish::default() };
        let mut found = changed(&superblocks(), &to(Level::Raid10)).expect("there is a way");
        found[0].set_bad_blocks(true);
        let refused = changed(&found, &to(Level::Raid0)).err();
        assert!(matches!(refused, Some(WishError::BadBlocks)), "{refused:?}");
    }
}
