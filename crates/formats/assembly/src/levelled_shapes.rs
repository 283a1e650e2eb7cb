//! Changes of shape that power cut short.
//!
//! Superblocks get a new shape one after the other. A member that missed the change is one event
//! behind, and its next shape follows from its own shape and the newest one: a change begins or
//! ends a reshape, records its position, reverses it, or is a take-over of another level.
//!
//! ```text
//!   superblocks ─▶ level_shapes ─▶ superblocks in memory, all of the newest shape
//!                      └─▶ ShapeToWrite: what the driver writes before the array runs
//! ```
//!
//! This file writes nothing.

use std::cmp::Reverse;

use braid_geometry::{DataRows, Geometry, Level, Shape};
use braid_ondisk::{Features, Reshape, Role, Superblock, SuperblockShape, SuperblockUpdate};
use braid_sim_hooks::{Bug, planted, spoiled};

use crate::ProbedMember;

/// The shape that a member's superblock must get before the array runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeToWrite {
    /// The member's index in the input.
    pub member: usize,
    /// The new shape of the member's superblock.
    pub shape: SuperblockShape,
    /// The member's own role in that shape.
    pub role: Role,
    /// The member's own recovery offset.
    pub recovery_offset: Option<u64>,
    /// Bytes of the member's device.
    pub device_bytes: u64,
}

/// Members whose superblocks were brought to the newest shape in memory.
pub(crate) struct LevelledShapes {
    pub(crate) members: Vec<ProbedMember>,
    pub(crate) shapes: Vec<ShapeToWrite>,
}

/// Brings the superblocks of members that missed the last change of shape to the newest shape, in
/// memory; `None` if no member missed it. A member one event behind has missed no write, only the
/// change.
pub(crate) fn level_shapes(members: &[ProbedMember]) -> Option<LevelledShapes> {
    let mut levelled = LevelledShapes { members: Vec::new(), shapes: Vec::new() };
    for (index, member) in members.iter().enumerate() {
        let Some(own) = member.probe.newest() else { continue };
        let is_alike = |(other, _): &(&Superblock, _)| other.array.uuid == own.array.uuid;
        // The superblock of a spare that takes no part in a reshape does not say by how much data
        // moves.
        let is_in_slot = |other: &Superblock| matches!(other.state.role, Role::Active(_));
        let newest = of_all(members)
            .filter(is_alike)
            .max_by_key(|(other, tie)| (other.state.events, is_in_slot(other), *tie));
        let Some((newest, _)) = newest else { continue };
        let role = role_after(own, newest);
        let joins = own.state.role == Role::Spare && role != Role::Spare;
        // A spare holds no data. Many updates leave a spare out, so its event count says little.
        let is_between = own.reshape.is_none() && newest.reshape.is_none();
        let sleeps = own.state.role == Role::Spare && (joins || is_between);
        let is_one_behind = own.state.events.checked_add(1) == Some(newest.state.events);
        let missed_only_that = is_one_behind || sleeps && own.state.events < newest.state.events;
        let shape = shape_after(own, newest, member.size_bytes).filter(|_| missed_only_that);
        let Some(shape) = shape else { continue };
        // The roles change with the shape: each shape has roles for its own slots only. The newest
        // event count is the array's, even if only a spare has it: then all other superblocks must
        // be written.
        let recovery_offset = recovery_after(own, newest, role);
        let update = SuperblockUpdate {
            events: newest.state.events,
            update_time: newest.state.update_time,
            resync_offset: own.state.resync_offset,
            roles: newest.state.roles.as_slice().into(),
            recovery_offset,
            is_replacement: own.state.features.contains(Features::REPLACEMENT),
            role_of_this: role,
        };
        let mut changed = own.clone();
        if changed.apply_with_shape(&update, &shape, member.size_bytes).is_err() {
            continue;
        }
        let device_bytes = member.size_bytes;
        let wrote = ShapeToWrite { member: index, shape, role, recovery_offset, device_bytes };
        if levelled.members.is_empty() {
            levelled.members = members.to_vec();
        }
        for found in &mut levelled.members[index].probe.superblocks {
            if found.as_ref().is_ok_and(|found| found == own) {
                *found = Ok(changed.clone());
            }
        }
        levelled.shapes.push(wrote);
    }
    (!levelled.shapes.is_empty()).then_some(levelled)
}

/// Each member's superblock, with a rank among superblocks of the same age, so that the order of
/// the members does not matter.
pub(crate) fn of_all(
    members: &[ProbedMember],
) -> impl Iterator<Item = (&Superblock, Reverse<(u32, &str)>)> {
    members.iter().filter_map(|member| {
        let own = member.probe.newest()?;
        Some((own, Reverse((own.device.number, &*member.identity))))
    })
}

/// The role of a member after the change of shape that the newest superblock has.
///
/// The beginning of a reshape gives spares a slot. Until data moves, a spare that got a slot holds
/// no data. So a spare that missed the beginning missed no data, however many events it is behind.
/// At the end of a reshape to fewer members, some members become spares. If the array changes its
/// level without a move of data, members may get other slots, or become spares.
fn role_after(own: &Superblock, newest: &Superblock) -> Role {
    let number = usize::try_from(own.device.number).unwrap_or(usize::MAX);
    let (mine, said) = (own.state.role, newest.state.roles.get(number).copied());
    match (mine, said, newest.reshape) {
        (Role::Spare, Some(Role::Active(slot)), Some(reshape))
            if own.reshape.is_none()
                && !reshape.backwards
                && reshape.position_sectors == 0
                && i64::from(slot) >= i64::from(own.array.raid_slots) =>
        {
            Role::Active(slot)
        }
        (Role::Active(slot), Some(Role::Spare), None)
            if own.reshape.is_some() && u32::from(slot) >= newest.array.raid_slots =>
        {
            Role::Spare
        }
        (Role::Active(_), Some(said @ (Role::Active(_) | Role::Spare)), None)
            if own.reshape.is_none() && own.array.level != newest.array.level =>
        {
            said
        }
        _ => mine,
    }
}

/// The recovery offset of a member after the change of shape that the newest superblock has.
///
/// A RAID-0 has no recovery. While a RAID-0 changes its shape, the member in the last slot of the
/// narrower shape holds the other shape only. A member that missed a position has the data up to
/// that position: the position was recorded when all members had that data.
fn recovery_after(own: &Superblock, newest: &Superblock, role: Role) -> Option<u64> {
    if role == Role::Spare || newest.array.level == Level::Raid0 {
        return None;
    }
    let begins = newest.reshape.filter(|_| own.array.level == Level::Raid0);
    let half_held = begins.and_then(|reshape| {
        let slots = i64::from(newest.array.raid_slots);
        let narrow = slots.min(slots.saturating_sub(i64::from(reshape.delta_disks)));
        let is_last = matches!(role, Role::Active(slot) if i64::from(slot) + 1 == narrow);
        let held = if reshape.backwards { newest.array.member_size_sectors } else { 0 };
        is_last.then_some(held)
    });
    let said = own.device.recovery_offset_sectors;
    let moved = |one: &Superblock| {
        let reshape = one.reshape.filter(|reshape| !reshape.backwards)?;
        let slots = u16::try_from(one.array.raid_slots).ok()?;
        let (level, layout) = (reshape.new_level, reshape.new_layout);
        let size = one.array.member_size_sectors;
        let after = Shape::uniform(level, layout, reshape.new_chunk_sectors, slots, size);
        rows_below(&after, reshape.position_sectors)
    };
    let held = moved(own).zip(said).filter(|(moved, said)| said >= moved);
    let moved_on = held.and_then(|(_, said)| Some(said.max(moved(newest)?)));
    half_held.or(moved_on).or(said)
}

/// The sectors of each member up to the end of the rows below an array sector; `None` for a shape
/// without rows.
pub(crate) fn rows_below(shape: &Shape, sector: u64) -> Option<u64> {
    let geometry = Geometry::new(shape).ok()?;
    DataRows::of(&geometry).map(|rows| rows.end_of(sector))
}

/// The shape of a member after the change of shape that the newest superblock has. `None` if the
/// shapes are equal, or the newest shape does not follow from this member's shape.
fn shape_after(
    own: &Superblock,
    newest: &Superblock,
    device_bytes: u64,
) -> Option<SuperblockShape> {
    let (mine, new) = (own.shape(), newest.shape());
    let same = |one: &SuperblockShape, other: &SuperblockShape| {
        let of = |shape: &SuperblockShape| {
            let SuperblockShape { level, layout, chunk_sectors, member_size_sectors, .. } = *shape;
            let plan = shape.reshape.map(|reshape| Reshape {
                position_sectors: 0,
                new_data_offset_sectors: None,
                ..reshape
            });
            (level, layout, chunk_sectors, member_size_sectors, shape.raid_slots, plan)
        };
        of(one) == of(other)
    };
    if same(&mine, &new) {
        // The reshape has progressed. All members must record one position: once this member has
        // the newest event count, the count no longer tells which position is newer.
        if planted(Bug::TornPositionKept) {
            return None;
        }
        let (own, reshape) = (mine.reshape?, new.reshape?);
        let position_sectors = reshape.position_sectors;
        let moved = SuperblockShape { reshape: Some(Reshape { position_sectors, ..own }), ..mine };
        return (own.position_sectors != position_sectors).then_some(moved);
    }
    let offset = mine.data_offset_sectors;
    let own_area = SuperblockShape {
        data_offset_sectors: offset,
        data_size_sectors: mine.data_size_sectors,
        ..new
    };
    match (mine.reshape, new.reshape) {
        // The newer superblock records a reshape that has begun. The reshape moves every member's
        // data by the same number of sectors.
        (None, Some(reshape)) => {
            if planted(Bug::TornBeginKept) {
                return None;
            }
            let moved = reshape
                .new_data_offset_sectors
                .map(|moved| offset.wrapping_add(moved).wrapping_sub(new.data_offset_sectors));
            let reshape = Reshape { new_data_offset_sectors: moved, ..reshape };
            Some(SuperblockShape { reshape: Some(reshape), ..own_area })
        }
        // The reshape is over.
        (Some(reshape), None) => {
            let start = reshape.new_data_offset_sectors.unwrap_or(offset);
            let start = spoiled(Bug::TornEndOldStart, start, offset);
            let end = offset.saturating_add(mine.data_size_sectors);
            let size = end.checked_sub(start)?;
            // A RAID-0 uses the whole data area, so the area is no longer than the used part.
            let is_striping = new.level == Level::Raid0;
            let size = if is_striping { mine.member_size_sectors.min(size) } else { size };
            let own_area =
                SuperblockShape { data_offset_sectors: start, data_size_sectors: size, ..own_area };
            let is_of_level = reshape.new_level == new.level && reshape.new_layout == new.layout;
            let is_its_end = (is_striping && reshape.new_level == Level::Raid4 || is_of_level)
                && reshape.new_chunk_sectors == new.chunk_sectors
                && mine.raid_slots == new.raid_slots + u32::from(is_striping);
            is_its_end.then_some(own_area)
        }
        // The reshape was reversed.
        (Some(_), Some(_)) => {
            let turned = turned_round(&mine, newest.reshape?.position_sectors)?;
            same(&turned, &new).then_some(turned)
        }
        // A level without redundancy took over. The array then uses the whole data area.
        (None, None) if new.level == Level::Raid0 && mine.level != Level::Raid0 => {
            let size = mine.member_size_sectors.min(mine.data_size_sectors);
            Some(SuperblockShape { data_size_sectors: size, ..own_area })
        }
        // Members became larger: this member's data area extends to the end of its device.
        (None, None) if new.member_size_sectors > mine.data_size_sectors => {
            let size = (device_bytes / braid_geometry::SECTOR_BYTES).checked_sub(offset)?;
            Some(SuperblockShape { data_size_sectors: size, ..own_area })
        }
        // Members became larger within their data areas, or a level was taken over.
        (None, None) => Some(own_area),
    }
}

/// The shape of an array whose reshape is reversed at its present position: the old shape becomes
/// the new one.
fn turned_round(shape: &SuperblockShape, position_sectors: u64) -> Option<SuperblockShape> {
    let reshape = shape.reshape?;
    let slots = i64::from(shape.raid_slots) - i64::from(reshape.delta_disks);
    let start = reshape.new_data_offset_sectors.unwrap_or(shape.data_offset_sectors);
    let end = shape.data_offset_sectors.saturating_add(shape.data_size_sectors);
    let moves = reshape.new_data_offset_sectors.is_some();
    let moves = spoiled(Bug::TurnForgetsOffset, moves, false);
    Some(SuperblockShape {
        level: reshape.new_level,
        layout: reshape.new_layout,
        chunk_sectors: reshape.new_chunk_sectors,
        member_size_sectors: shape.member_size_sectors,
        raid_slots: u32::try_from(slots).ok()?,
        data_offset_sectors: start,
        data_size_sectors: end.checked_sub(start)?,
        reshape: Some(Reshape {
            position_sectors,
            delta_disks: reshape.delta_disks.checked_neg()?,
            new_level: shape.level,
            new_layout: shape.layout,
            new_chunk_sectors: shape.chunk_sectors,
            new_data_offset_sectors: moves.then_some(shape.data_offset_sectors),
            backwards: !reshape.backwards,
        }),
    })
}
