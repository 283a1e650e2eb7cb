//! From what the array wants its superblocks to say to the update of one member's.
//!
//! Every driver writes superblocks this way. The time is the driver's to tell: one for all members of an update, which is
//! what tells an old copy of a member from the member where the counts are equal.

use std::sync::Arc;

use braid_geometry::Slot;
use braid_hooks::{Bug, planted, spoiled};
use braid_ondisk::{
    BadBlockLog, BadRange, Features, LogHome, PplPlace, Role, Superblock, SuperblockUpdate,
    Timestamp, Version,
};

use crate::bad_log::BadLogWrite;
use crate::ids::MemberId;
use crate::ranges::{BadBlocks, MemberRange};

/// Role of one device as the superblocks' table shall say. Devices not listed are faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRole {
    /// The member.
    pub member: MemberId,
    /// Its index in the table.
    pub device_number: u16,
    /// Its slot; none for a spare.
    pub slot: Option<Slot>,
    /// It is to take the place of the member in the slot.
    pub is_replacement: bool,
}

/// The write journal, as superblocks shall tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalState {
    /// Its device.
    pub member: MemberId,
    /// The device's index in the table.
    pub device_number: u16,
    /// The tail, for the device's own superblock.
    pub tail_sectors: u64,
}

/// What all superblocks of the array shall say after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockState {
    /// The event counter.
    pub events: u64,
    /// Zero while active; where redundancy agrees up to otherwise (`u64::MAX`: everywhere).
    pub resync_offset: u64,
    /// Every device that is part of the array.
    pub roles: Arc<[DeviceRole]>,
    /// Members that do not hold all yet: how many sectors of their data area hold what they should.
    pub recovered: Arc<[(MemberId, u64)]>,
    /// Members whose bad-block log was written, and whether it names anything. What superblocks say of the others stays.
    pub bad_blocks: Arc<[(MemberId, bool)]>,
    /// There is a parity log of our own that names all that may be in doubt, and where.
    pub log_counts: Option<LogHome>,
    /// Whether there is a write-intent bitmap; none to leave what each says.
    pub has_bitmap: Option<bool>,
    /// Where members have a partial parity log; nobody has one if this is empty.
    pub ppls: Arc<[(MemberId, PplPlace)]>,
    /// The write journal, if there is one.
    pub journal: Option<JournalState>,
}

impl SuperblockState {
    /// Whether both have the same table of devices: the superblocks of a member differ in the first sector at most. In version 0.90 a
    /// member that does not hold all yet is a spare in the table.
    pub(super) fn has_table_of(&self, other: &Self) -> bool {
        let journal = |state: &Self| state.journal.map(|journal| journal.device_number);
        let is_alike = self.unfinished().eq(other.unfinished()) && journal(self) == journal(other);
        let is_alike = spoiled(Bug::TableIsRoles, is_alike, true);
        self.roles == other.roles && is_alike
    }

    /// Members that do not hold all yet.
    fn unfinished(&self) -> impl Iterator<Item = MemberId> {
        self.recovered.iter().map(|(member, _)| *member)
    }
}

/// The times that updates carry.
#[derive(Clone, Copy, Debug)]
pub struct UpdateTimes {
    events: u64,
    time: Timestamp,
}

impl UpdateTimes {
    /// Those that follow the newest superblock of an array, whatever the clock says now.
    #[must_use]
    pub fn after(newest: &Superblock) -> Self {
        Self::of_update(newest.state.events, newest.state.update_time)
    }

    /// Those that follow an update.
    #[must_use]
    pub fn of_update(events: u64, time: Timestamp) -> Self {
        Self { events, time }
    }

    /// A time later than that of any update so far.
    #[must_use]
    pub fn next(&self) -> Timestamp {
        self.time.next()
    }

    /// The time of the update with this count: that of the last one if it is the same, else `now`, or just after the last one
    /// if the clock went back. The counts of two updates in a row differ.
    pub fn of(&mut self, events: u64, now: Timestamp) -> Timestamp {
        if self.events != events {
            *self = Self { events, time: now.max(self.time.next()) };
        }
        self.time
    }
}

/// What brings a member that has fewer than `events` level with that count, if it has.
///
/// Being one behind is no harm: the member missed an update, but no write that the update was to
/// allow. If the next update then reached only some members, it would be two behind the newest, and
/// be called stale. So it is brought level first, with the newest table; dirty if any member says so.
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

/// Has one member's superblock say `state`.
pub fn apply_to(
    superblock: &mut Superblock,
    member: MemberId,
    state: &SuperblockState,
    update_time: Timestamp,
) {
    superblock.apply(&update_for(superblock, member, state, update_time));
    if let Some(journal) = state.journal.filter(|journal| journal.member == member) {
        superblock.set_journal_tail(journal.tail_sectors, state.events);
    }
    let log_counts = state.log_counts;
    let log_counts = spoiled(Bug::LogUncounted, log_counts, None);
    if let Some(home) = log_counts {
        superblock.set_log_counts(home);
    }
    let log = state.bad_blocks.iter().find(|(id, _)| *id == member);
    if let Some((_, says)) = log {
        let says = *says;
        let says = spoiled(Bug::BadBlocksUntold, says, false);
        superblock.set_bad_blocks(says);
    }
    let has_bitmap = state.has_bitmap;
    let has_bitmap = spoiled(Bug::BitmapUntold, has_bitmap, None);
    // One takes the other's place.
    let is_told = true;
    let is_told = spoiled(Bug::PplUntold, is_told, false);
    if state.ppls.is_empty() && is_told {
        superblock.name_ppl(None);
    }
    if let Some(is_there) = has_bitmap {
        superblock.name_bitmap(is_there);
    }
    let ppl = state.ppls.iter().find(|(id, _)| *id == member && is_told);
    if let Some((_, place)) = ppl {
        superblock.name_ppl(Some(*place));
    }
}

/// What is to be written to a member's bad-block log: the offset on the device, in bytes, and the bytes.
///
/// # Panics
/// The member keeps no such log, or it has no room: the array knows better.
#[must_use]
pub fn bad_block_log_for(superblock: &Superblock, write: &BadLogWrite) -> (u64, Vec<u8>) {
    let place = superblock.device.bad_block_log.expect("it keeps a log");
    let offset_bytes = superblock.bad_block_log_offset_bytes().expect("it keeps a log");
    let data_offset = superblock.device.data_offset_sectors;
    let range = |range: &MemberRange| BadRange {
        start_sector: data_offset + range.start.0,
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
/// Devices that the array lists get their role; devices that were active, or had the journal, and are not listed any
/// more are faulty; what was never used stays as it was.
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
    // Version 0.90 has no recovery offset: md calls a member a spare there until it holds all, and so do we. Nor can it say
    // that two devices have one slot.
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
