//! Makes the content of one member's superblock from the state that the array wants to record;
//! `event_count.rs` decides its event count.
//!
//! Every driver makes superblocks with this code. The driver supplies the time, one for all members
//! of an update. If a member and an old copy of it have equal event counts, the time shows which is
//! older.

use std::sync::Arc;

use braid_geometry::{Level, Slot};
use braid_ondisk::{
    BadBlockLog, BadRange, Features, LogHome, PplPlace, Reshape, Role, Superblock, SuperblockError,
    SuperblockShape, SuperblockUpdate, Timestamp, Version,
};
use braid_sim_hooks::{Bug, planted};

use crate::bad_log::BadLogWrite;
use crate::ids::MemberId;
use crate::ranges::{BadBlocks, MemberRange};

/// A device's role in the superblocks' table. Devices not listed are faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRole {
    /// The member.
    pub member: MemberId,
    /// The member's index in the role table.
    pub device_number: u16,
    /// The member's slot; `None` for a spare.
    pub slot: Option<Slot>,
    /// The member replaces the member in the slot.
    pub is_replacement: bool,
}

/// The write journal, as superblocks record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalState {
    /// The journal's device.
    pub member: MemberId,
    /// The device's index in the role table.
    pub device_number: u16,
    /// The journal's tail, for the device's own superblock.
    pub tail_sectors: u64,
}

/// The array's shape, as superblocks record it; [`SuperblockShape`] explains the terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeState {
    /// The level; during a reshape the old level.
    pub level: Level,
    /// md's number of the layout; during a reshape of the old layout.
    pub layout: u32,
    /// Sectors of a chunk; during a reshape of an old chunk.
    pub chunk_sectors: u32,
    /// Sectors that the array uses of each member.
    pub member_size_sectors: u64,
    /// The number of slots; during a reshape the new number.
    pub raid_slots: u32,
    /// The reshape in progress. `data_areas` has the positions that members' data moves to.
    pub reshape: Option<Reshape>,
    /// Data areas that change. Superblocks of other members keep their data area.
    pub data_areas: Vec<(MemberId, DataArea)>,
}

/// The part of a member that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataArea {
    /// First sector of the area; during a reshape the old first sector.
    pub offset_sectors: u64,
    /// Length of the area in sectors.
    pub size_sectors: u64,
    /// First sector of the area when the reshape is over, if the area moves.
    pub new_offset_sectors: Option<u64>,
}

impl ShapeState {
    /// The shape for one member's superblock.
    #[must_use]
    pub fn of_member(&self, member: MemberId, superblock: &Superblock) -> SuperblockShape {
        let said = superblock.shape();
        let kept = DataArea {
            offset_sectors: said.data_offset_sectors,
            size_sectors: said.data_size_sectors,
            new_offset_sectors: said.reshape.and_then(|said| said.new_data_offset_sectors),
        };
        let area = self.data_areas.iter().find(|(id, _)| *id == member);
        let area = area.map_or(kept, |(_, area)| *area);
        let reshape = self.reshape.map(|reshape| {
            assert_eq!(reshape.new_data_offset_sectors, None, "each member moves its own data");
            Reshape { new_data_offset_sectors: area.new_offset_sectors, ..reshape }
        });
        SuperblockShape {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            member_size_sectors: self.member_size_sectors,
            raid_slots: self.raid_slots,
            data_offset_sectors: area.offset_sectors,
            data_size_sectors: area.size_sectors,
            reshape,
        }
    }
}

/// The state that all superblocks of the array record after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockState {
    /// The event counter.
    pub events: u64,
    /// Zero while the array is active; else the offset below which redundancy agrees (`u64::MAX`:
    /// everywhere).
    pub resync_offset: u64,
    /// Every device of the array.
    pub roles: Arc<[DeviceRole]>,
    /// Members that are still being filled, with the sectors of their data area that are up to
    /// date.
    pub recovered: Arc<[(MemberId, u64)]>,
    /// Members whose bad-block log was written, and whether each log names any range. For other
    /// members, superblocks keep their last statement.
    pub bad_blocks: Arc<[(MemberId, bool)]>,
    /// The place of braid's own parity log, if that log names all sectors that may be in doubt.
    pub log_counts: Option<LogHome>,
    /// Whether the array has a write-intent bitmap; `None` keeps each superblock's statement.
    pub has_bitmap: Option<bool>,
    /// Places of the members' partial parity logs; empty if no member has such a log.
    pub ppls: Arc<[(MemberId, PplPlace)]>,
    /// The write journal.
    pub journal: Option<JournalState>,
    /// The array's shape; `None` keeps each superblock's statement.
    pub shape: Option<Arc<ShapeState>>,
}

impl SuperblockState {
    /// Whether both states have the same table of devices: then a member's superblocks differ in
    /// the first sector at most. In version 0.90, a member that is still being filled is a spare in
    /// the table. The shape is in the first sector, whatever the version
    /// ([`Superblock::apply_with_shape`]).
    pub(super) fn has_table_of(&self, other: &Self) -> bool {
        let journal = |state: &Self| state.journal.map(|journal| journal.device_number);
        let is_alike = self.unfinished().eq(other.unfinished()) && journal(self) == journal(other);
        self.roles == other.roles && is_alike
    }

    /// The members that the superblocks name as in sync, with their slots.
    pub fn in_sync(&self) -> impl Iterator<Item = (MemberId, Slot)> {
        let is_filled = |member| self.unfinished().all(|unfinished| unfinished != member);
        let members = self.roles.iter().filter(move |role| !role.is_replacement);
        members.filter_map(move |role| {
            Some((role.member, role.slot.filter(|_| is_filled(role.member))?))
        })
    }

    /// Members that are still being filled.
    fn unfinished(&self) -> impl Iterator<Item = MemberId> {
        self.recovered.iter().map(|(member, _)| *member)
    }
}

/// The times of superblock updates.
#[derive(Clone, Copy, Debug)]
pub struct UpdateTimes {
    events: u64,
    time: Timestamp,
}

impl UpdateTimes {
    /// The event count and time of an array's newest superblock, from which later updates continue.
    #[must_use]
    pub fn after(newest: &Superblock) -> Self {
        Self::of_update(newest.state.events, newest.state.update_time)
    }

    /// The event count and time of an update, from which later updates continue.
    #[must_use]
    pub fn of_update(events: u64, time: Timestamp) -> Self {
        Self { events, time }
    }

    /// A time later than that of any update so far.
    #[must_use]
    pub fn next(&self) -> Timestamp {
        self.time.next()
    }

    /// The time of the update with this event count. The last count again gives the last time. A
    /// later update has `now`, or, if the clock went back, a time just after the last time. Two
    /// updates in a row have different counts.
    pub fn of(&mut self, events: u64, now: Timestamp) -> Timestamp {
        if self.events != events {
            *self = Self { events, time: now.max(self.time.next()) };
        }
        self.time
    }
}

/// The superblock that brings a member with fewer than `events` events to that count.
///
/// A member one event behind missed an update, but no write that the update allowed. If the next
/// update then reached only some members, this member would be two events behind the newest, and be
/// called stale. So the array first brings the member to the newest count, with the newest table.
/// The new superblock is dirty if any member's superblock is.
#[must_use]
pub fn level_with(
    superblock: &Superblock,
    newest: &Superblock,
    (events, resync_offset): (u64, u64),
    update_time: Timestamp,
) -> Option<SuperblockUpdate> {
    (superblock.state.events < events).then(|| SuperblockUpdate {
        events,
        update_time,
        resync_offset,
        roles: Arc::from(newest.state.roles.as_slice()),
        recovery_offset: superblock.device.recovery_offset_sectors,
        is_replacement: superblock.state.features.contains(Features::REPLACEMENT),
        role_of_this: superblock.state.role,
    })
}

/// Writes `state` into one member's superblock. `device_bytes` is the size of the member's device.
///
/// # Errors
/// If the superblock cannot express the shape and stays unchanged. A reshape tries the shape first.
pub fn apply_to(
    superblock: &mut Superblock,
    member: MemberId,
    device_bytes: u64,
    state: &SuperblockState,
    update_time: Timestamp,
) -> Result<(), SuperblockError> {
    let update = update_for(superblock, member, state, update_time);
    match &state.shape {
        None => superblock.apply(&update),
        Some(shape) => {
            let shape = shape.of_member(member, superblock);
            superblock.apply_with_shape(&update, &shape, device_bytes)?;
        }
    }
    if let Some(journal) = state.journal.filter(|journal| journal.member == member) {
        superblock.set_journal_tail(journal.tail_sectors, state.events);
    }
    if let Some(home) = state.log_counts {
        superblock.set_log_counts(home);
    }
    let log = state.bad_blocks.iter().find(|(id, _)| *id == member);
    if let Some((_, says)) = log {
        superblock.set_bad_blocks(*says);
    }
    // A superblock names either a bitmap or partial parity logs.
    if state.ppls.is_empty() {
        superblock.name_ppl(None);
    }
    if let Some(is_there) = state.has_bitmap {
        superblock.name_bitmap(is_there);
    }
    let ppl = state.ppls.iter().find(|(id, _)| *id == member);
    if let Some((_, place)) = ppl {
        superblock.name_ppl(Some(*place));
    }
    Ok(())
}

/// The write to a member's bad-block log: the byte offset on the device, and the bytes to write
/// there. Ranges count from `start_sector`, the start of the member's data at the opening of the
/// array. In a reshape that start is the lower of two data areas, not the superblock's own offset.
///
/// # Panics
/// If the member keeps no such log, or the log has no room: the array checks that before.
#[must_use]
pub fn bad_block_log_for(
    superblock: &Superblock,
    start_sector: u64,
    write: &BadLogWrite,
) -> (u64, Vec<u8>) {
    let place = superblock.device.bad_block_log.expect("it keeps a log");
    let offset_bytes = superblock.bad_block_log_offset_bytes().expect("it keeps a log");
    let range = |range: &MemberRange| BadRange {
        start_sector: start_sector + range.start.0,
        length_sectors: range.sectors,
    };
    let ranges_of = |sector: &BadBlocks| sector.ranges().iter().map(range).collect();
    let sectors: Vec<Vec<BadRange>> = write.says.sectors().iter().map(ranges_of).collect();
    let bytes = BadBlockLog::sectors_to_bytes(&sectors, place).expect("there is room for them");
    let sector_bytes = bytes.len() / usize::from(place.size_sectors);
    let [start, end] = [write.sectors.start, write.sectors.end].map(|index| index * sector_bytes);
    (offset_bytes + start as u64, bytes[start..end].to_vec())
}

/// The update of one member's superblock for `state`.
///
/// Each listed device gets its role. A device that is no longer listed becomes faulty if it was
/// active or had the journal. Unused indices stay unchanged.
#[must_use]
pub fn update_for(
    superblock: &Superblock,
    member: MemberId,
    state: &SuperblockState,
    update_time: Timestamp,
) -> SuperblockUpdate {
    let mut roles: Vec<Role> = superblock
        .state
        .roles
        .iter()
        .map(|role| match role {
            Role::Active(_) | Role::Journal => Role::Faulty,
            _ => *role,
        })
        .collect();
    if planted(Bug::LostStaysInTable) {
        roles.clone_from(&superblock.state.roles);
    }
    let mut role_of_this = Role::Faulty;
    let mut is_replacement = false;
    let mut tell = |number: u16, role| {
        let index = usize::from(number);
        if roles.len() <= index {
            roles.resize(index + 1, Role::Spare);
        }
        roles[index] = role;
    };
    if let Some(journal) = state.journal {
        tell(journal.device_number, Role::Journal);
        if journal.member == member {
            role_of_this = Role::Journal;
        }
    }
    // Version 0.90 has no recovery offset: there md and braid call a member a spare until it is
    // filled. Version 0.90 cannot give one slot to two devices either.
    let has_offsets = superblock.version != Version::V0_90;
    let holds_all = |member: MemberId| state.unfinished().all(|id| id != member);
    for device in state.roles.iter() {
        let is_told = has_offsets || holds_all(device.member) && !device.is_replacement;
        let slot = device.slot.filter(|_| is_told);
        let role = slot.map_or(Role::Spare, |slot| Role::Active(slot.0));
        tell(device.device_number, role);
        if device.member == member {
            role_of_this = role;
            is_replacement = device.is_replacement && has_offsets;
        }
    }
    let recovered_sectors = state.recovered.iter().find(|(id, _)| *id == member && has_offsets);
    let recovered_sectors = recovered_sectors.map(|(_, sectors)| *sectors);
    SuperblockUpdate {
        events: state.events,
        update_time,
        resync_offset: state.resync_offset,
        roles: Arc::from(roles),
        recovery_offset: recovered_sectors,
        is_replacement,
        role_of_this,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bad_log::BadLog;
    use braid_geometry::MemberSector;
    use braid_ondisk::{
        ArrayFacts, DeviceFlags, NewSuperblock, NewV0, PlacementRequest, SuperblockFault, placement,
    };

    const DEVICE_BYTES: u64 = 64 << 20;
    const TIME: Timestamp = Timestamp { seconds: 1_800_000_000, microseconds: 0 };
    const MEMBERS: [MemberId; 2] = [MemberId(1), MemberId(4)];

    /// The superblocks of device 1 of a RAID-5 of four members, and of its spare, device 4.
    fn superblocks(version: Version) -> [Superblock; 2] {
        let is_v1 = version.is_v1();
        let request = PlacementRequest {
            version: if is_v1 { version } else { Version::V1_0 },
            device_bytes: DEVICE_BYTES,
            level: Level::Raid5,
            chunk_sectors: 128,
            member_size_sectors: Some(65536),
            data_offset_sectors: None,
        };
        let placement = placement(&request).expect("there is room");
        let array = ArrayFacts {
            uuid: [7; 16],
            name: String::new(),
            creation_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
            level: Level::Raid5,
            layout: 2,
            chunk_sectors: 128,
            member_size_sectors: 65536,
            raid_slots: 4,
            preferred_minor: None,
            logical_block_bytes: None,
        };
        let roles: Arc<[Role]> = (0..4).map(Role::Active).chain([Role::Spare]).collect();
        MEMBERS.map(|MemberId(number)| {
            let (array, roles) = (array.clone(), Arc::clone(&roles));
            let (device_number, device_flags) = (u32::from(number), DeviceFlags::default());
            let (events, resync_offset) = (5, u64::MAX);
            let made = if is_v1 {
                let device_uuid = [9; 16];
                Superblock::new_v1(&NewSuperblock {
                    array,
                    placement,
                    device_number,
                    device_uuid,
                    device_flags,
                    roles,
                    events,
                    resync_offset,
                })
            } else {
                let nodes = (0..5).map(|number| (8, number)).collect();
                Superblock::new_v0(&NewV0 {
                    array,
                    device_bytes: DEVICE_BYTES,
                    device_number,
                    device_flags,
                    roles,
                    nodes,
                    events,
                    resync_offset,
                })
            };
            made.expect("a plain superblock")
        })
    }

    fn state(slots: u16, shape: Option<ShapeState>) -> SuperblockState {
        let role = |number: u16| DeviceRole {
            member: MemberId(number),
            device_number: number,
            slot: Some(Slot(number)).filter(|slot| slot.0 < slots),
            is_replacement: false,
        };
        SuperblockState {
            events: 6,
            resync_offset: u64::MAX,
            roles: (0..5).map(role).collect(),
            recovered: Arc::default(),
            bad_blocks: Arc::default(),
            log_counts: None,
            has_bitmap: None,
            ppls: Arc::default(),
            journal: None,
            shape: shape.map(Arc::new),
        }
    }

    /// A reshape has begun: a fifth slot is added, and chunks become half as long.
    fn begun(data_areas: Vec<(MemberId, DataArea)>) -> ShapeState {
        ShapeState {
            level: Level::Raid5,
            layout: 2,
            chunk_sectors: 128,
            member_size_sectors: 65536,
            raid_slots: 5,
            reshape: Some(Reshape {
                position_sectors: 0,
                delta_disks: 1,
                new_level: Level::Raid5,
                new_layout: 2,
                new_chunk_sectors: 64,
                new_data_offset_sectors: None,
                backwards: false,
            }),
            data_areas,
        }
    }

    #[test]
    fn an_update_without_a_shape_says_what_it_always_said() {
        let state = state(4, None);
        for (superblock, member) in Version::ALL
            .into_iter()
            .flat_map(|version| superblocks(version).into_iter().zip(MEMBERS))
        {
            let mut expected = superblock.clone();
            expected.apply(&update_for(&superblock, member, &state, TIME));
            let mut told = superblock.clone();
            apply_to(&mut told, member, DEVICE_BYTES, &state, TIME).expect("nothing to refuse");
            assert_eq!((told.to_bytes(), told.shape()), (expected.to_bytes(), superblock.shape()));
        }
    }

    #[test]
    fn an_update_with_a_shape_is_the_shape_and_the_update() {
        for version in Version::ALL {
            let found = superblocks(version);
            let said = found[0].shape();
            let new_offset_sectors = version.is_v1().then(|| said.data_offset_sectors + 128);
            let area = DataArea {
                offset_sectors: said.data_offset_sectors,
                size_sectors: said.data_size_sectors,
                new_offset_sectors,
            };
            let shape = begun(vec![(MEMBERS[0], area)]);
            let state = state(5, Some(shape.clone()));
            // The data area of the second member stays unchanged.
            let moves = [new_offset_sectors, None];
            for ((superblock, member), new_data_offset_sectors) in
                found.into_iter().zip(MEMBERS).zip(moves)
            {
                let own =
                    Reshape { new_data_offset_sectors, ..shape.reshape.expect("one is under way") };
                let own =
                    SuperblockShape { raid_slots: 5, reshape: Some(own), ..superblock.shape() };
                let mut expected =
                    superblock.with_shape(&own, DEVICE_BYTES).expect("there is such an array");
                expected.apply(&update_for(&superblock, member, &state, TIME));
                let mut told = superblock;
                apply_to(&mut told, member, DEVICE_BYTES, &state, TIME).expect("the same array");
                assert_eq!((told.to_bytes(), &told), (expected.to_bytes(), &expected));
                assert_eq!((told.shape(), told.state.role), (own, Role::Active(member.0)));

                // The superblock keeps the data areas that the update does not name.
                let mut on = begun(Vec::new());
                let reshape = on.reshape.as_mut().expect("one is under way");
                reshape.position_sectors = 1024;
                let on = SuperblockState { shape: Some(Arc::new(on)), ..state.clone() };
                apply_to(&mut told, member, DEVICE_BYTES, &on, TIME).expect("further on");
                let reshape = told.reshape.expect("one is under way");
                assert_eq!(reshape.position_sectors, 1024);
                assert_eq!(reshape.new_data_offset_sectors, new_data_offset_sectors);
                assert!(on.has_table_of(&state), "one sector for each step");
            }
        }
    }

    #[test]
    fn a_superblock_that_cannot_say_a_shape_says_nothing_of_the_update() {
        let size_sectors = DEVICE_BYTES / 512;
        let area = DataArea { offset_sectors: 4096, size_sectors, new_offset_sectors: None };
        let state = state(5, Some(begun(vec![(MEMBERS[0], area)])));
        for version in Version::ALL {
            let [found, _] = superblocks(version);
            let mut told = found.clone();
            let error = apply_to(&mut told, MEMBERS[0], DEVICE_BYTES, &state, TIME);
            let cause = error.expect_err("it does not begin there, or goes past the end").cause;
            let is_said = match version {
                Version::V0_90 => matches!(cause, SuperblockFault::Contradiction(_)),
                Version::V1_0 => {
                    matches!(cause, SuperblockFault::DataOverlapsSuperblock { data_offset: 4096 })
                }
                _ => cause == SuperblockFault::Truncated { missing_bytes: 4096 * 512 },
            };
            assert!(is_said && told == found, "{version}: {cause}");
        }
    }

    #[test]
    fn a_bad_sector_found_in_a_reshape_is_logged_where_it_is() {
        let [mut superblock, _] = superblocks(Version::V1_2);
        let old = superblock.device.data_offset_sectors;
        let lower = old - 512;
        let size_sectors = superblock.device.data_size_sectors;
        let area = DataArea { offset_sectors: old, size_sectors, new_offset_sectors: Some(lower) };
        let state = state(5, Some(begun(vec![(MEMBERS[0], area)])));
        apply_to(&mut superblock, MEMBERS[0], DEVICE_BYTES, &state, TIME).expect("it says so");
        let range = MemberRange { start: MemberSector(700), sectors: 8 };
        let write = BadLogWrite { says: BadLog::new(8, [(0, range)]), sectors: 0..1 };
        let start_sector = superblock.lowest_data_sector();
        assert_eq!(start_sector, lower);
        let (_, bytes) = bad_block_log_for(&superblock, start_sector, &write);
        // md's record: the device's sector above ten bits with the length.
        let record = u64::from_le_bytes(*bytes.first_chunk().expect("a record"));
        assert_eq!((record >> 10, record & 1023), (lower + 700, 8));
    }
}
