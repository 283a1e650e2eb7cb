//! Makes superblocks, and changes them.
//!
//! A new superblock is built as bytes and then validated like one read from a disk. So braid never
//! writes a superblock that it cannot read back.

use braid_sim_hooks::{Bug, planted, spoiled};
use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::check::slots_named;
use super::facts::{Features, LogHome, Role, Timestamp, Version};
use super::new::{NAME_BYTES_MAX, NewSuperblock, NewSuperblockError, NewV0, SuperblockUpdate};
use super::v1::{FLAG_FAILFAST, FLAG_WRITE_MOSTLY, Fixed, UnvalidatedV1, written_bytes_of};
use super::{Superblock, v0_90};
use crate::checksum::checksum_v1;
use crate::journal::{JOURNAL_BLOCK_SECTORS, JournalPlace};
use crate::limits::{MAGIC, SECTOR_BYTES, V0_DEVICES_MAX, V1_FIXED_BYTES, V1_ROLES_MAX};

impl Superblock {
    /// Makes the superblock of one member of a new array (1.0, 1.1 or 1.2).
    ///
    /// Like mdadm's, the superblock reserves room for roles up to the next sector: up to 128
    /// devices in 512 bytes.
    ///
    /// # Errors
    /// Version 0.90, a name that does not fit, too many devices, or an invalid superblock.
    pub fn new_v1(new: &NewSuperblock) -> Result<Self, NewSuperblockError> {
        let version = new.placement.version;
        if !version.is_v1() {
            return Err(NewSuperblockError::Version0);
        }
        let name = new.array.name.as_bytes();
        if name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(NewSuperblockError::Name { bytes: name.len() });
        }
        let too_many = NewSuperblockError::Devices { count: new.roles.len() };
        let length_bytes =
            u32::try_from(new.roles.len()).ok().and_then(written_bytes_of).ok_or(too_many)?;
        let mut raw = vec![0xff; length_bytes];
        let (head, _) =
            Fixed::mut_from_prefix(&mut raw).expect("a superblock is longer than its head");
        *head = fixed(new, length_bytes);
        write_roles(&mut raw, &new.roles);
        seal(&mut raw);
        let found_bytes = new.placement.super_offset_sectors * SECTOR_BYTES;
        let unvalidated =
            UnvalidatedV1::recognise(&raw, version).expect("the magic was just written");
        Ok(unvalidated.validate(new.placement.device_bytes, found_bytes)?)
    }

    /// Makes the superblock of one member of a new array of version 0.90.
    ///
    /// # Errors
    /// More than 27 devices, a device that is too small, or any fault that validation finds.
    pub fn new_v0(new: &NewV0) -> Result<Self, NewSuperblockError> {
        let count = new.roles.len().max(new.nodes.len());
        if count > V0_DEVICES_MAX as usize {
            return Err(NewSuperblockError::Devices { count });
        }
        let offset = Version::V0_90.super_offset_sectors(new.device_bytes / SECTOR_BYTES);
        let too_small = NewSuperblockError::TooSmall { device_bytes: new.device_bytes };
        let found_bytes = offset.ok_or(too_small)? * SECTOR_BYTES;
        let raw = v0_90::made(new);
        let unvalidated =
            v0_90::UnvalidatedV0::recognise(&raw).expect("the magic was just written");
        Ok(unvalidated.validate(new.device_bytes, found_bytes)?)
    }

    /// Applies the changes of a running array; all other bytes stay, known or not. Clears the stamp
    /// of our own parity log, like an update of md's ([`Self::set_log_counts`]).
    ///
    /// # Panics
    /// If the update names slots beyond the array's, or more devices than the superblock has room
    /// for before its neighbours on the device: a bug of braid.
    pub fn apply(&mut self, update: &SuperblockUpdate) {
        let delta = self.reshape.map(|reshape| reshape.delta_disks);
        let slots = slots_named(self.array.raid_slots, delta);
        let in_range =
            |role: &Role| !matches!(role, Role::Active(slot) if u32::from(*slot) >= slots);
        assert!(update.roles.iter().all(in_range), "a role names a slot that the array has not");
        assert!(in_range(&update.role_of_this), "a role names a slot that the array has not");
        self.state.events = update.events;
        self.state.update_time = update.update_time;
        self.state.log_counts = None;
        self.state.resync_offset = update.resync_offset;
        if self.version.is_v1() {
            self.apply_v1(update);
        } else {
            self.apply_v0(update);
        }
    }

    /// The bytes that an update of this superblock writes. If they are more than a sector, a power
    /// cut can tear them.
    #[must_use]
    pub fn written_bytes(&self) -> usize {
        let own =
            if self.version.is_v1() { written_bytes_of(self.device.number + 1) } else { None };
        self.raw.0.len().max(own.unwrap_or(0))
    }

    /// Sets or clears the feature that says the bad-block log is not empty; version 1 with a log
    /// only.
    ///
    /// # Panics
    /// Without a log: a log is written before a bad block is recorded.
    pub fn set_bad_blocks(&mut self, present: bool) {
        assert!(self.device.bad_block_log.is_some(), "no bad-block log to speak of");
        let features = self.state.features.without(Features::BAD_BLOCKS);
        self.state.features = if present { features.with(Features::BAD_BLOCKS) } else { features };
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.identity.feature_map = U32::new(self.state.features.0);
        seal(&mut self.raw.0);
    }

    /// Sets or clears write-mostly for a device number. With metadata 1.x a superblock records only
    /// its own device's flag, with 0.90 every device's.
    pub fn set_write_mostly(&mut self, number: u32, is_it: bool) {
        let is_own = self.device.number == number;
        if is_own {
            self.device.flags.write_mostly = is_it;
        }
        if !self.version.is_v1() {
            return v0_90::set_write_mostly(&mut self.raw.0, number, is_it);
        }
        if !is_own {
            return;
        }
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        let others = head.device.flags & !FLAG_WRITE_MOSTLY;
        head.device.flags = if is_it { others | FLAG_WRITE_MOSTLY } else { others };
        seal(&mut self.raw.0);
    }

    /// Counts one more corrected read error of this device. Metadata 0.90 has no place for the
    /// count.
    pub fn count_corrected_read(&mut self) {
        if !self.version.is_v1() {
            return;
        }
        let count = self.device.corrected_read_errors.saturating_add(1);
        self.device.corrected_read_errors = count;
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.device.corrected_reads = U32::new(count);
        seal(&mut self.raw.0);
    }

    /// Sets the stamp that says that our own parity log at `home` covers all stripes in doubt since
    /// the last update.
    ///
    /// # Panics
    /// For a log on members with metadata 0.90: only a bitmap file has room for a log with 0.90.
    pub fn set_log_counts(&mut self, home: LogHome) {
        self.state.log_counts = Some(home);
        if !self.version.is_v1() {
            assert_eq!(home, LogHome::File, "a member with 0.90 has no room for a parity log");
            return v0_90::set_log_counts(&mut self.raw.0);
        }
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.state.update_time = U64::new(self.state.update_time.to_v1_stamped(home));
        seal(&mut self.raw.0);
    }

    /// Clears the array's logical block, for kernels before 6.19. All other bytes stay, including
    /// the event count, because the data has not changed.
    pub fn clear_logical_block(&mut self) {
        self.array.logical_block_bytes = None;
        if !self.version.is_v1() {
            return;
        }
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.state.logical_block_bytes = U32::new(0);
        seal(&mut self.raw.0);
    }

    /// Moves the tail of a journal device, and sets its event count to the members'. mdadm refuses
    /// a journal that is ahead of the members, as after an interrupted update. All other bytes
    /// stay.
    ///
    /// # Panics
    /// If it is not the superblock of a journal device, or the tail is outside the journal.
    pub fn set_journal_tail(&mut self, tail_sectors: u64, events: u64) {
        let area = self.journal_area().expect("a journal device has a journal");
        let is_block = tail_sectors.is_multiple_of(JOURNAL_BLOCK_SECTORS);
        assert!(is_block && tail_sectors < area.ring_sectors, "a tail is in the journal");
        self.intent.journal = Some(JournalPlace { tail_sectors: Some(tail_sectors) });
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.device.recovery_offset = U64::new(tail_sectors);
        head.state.events = U64::new(events);
        self.state.events = events;
        seal(&mut self.raw.0);
    }

    fn apply_v0(&mut self, update: &SuperblockUpdate) {
        (self.state.role, self.device.flags, self.state.roles) =
            v0_90::patch(&mut self.raw.0, update);
        let seconds = update.update_time.seconds.min(u64::from(u32::MAX));
        self.state.update_time = Timestamp { seconds, microseconds: 0 };
        let fits = update.resync_offset == u64::MAX || u32::try_from(update.resync_offset).is_ok();
        self.state.resync_offset = if fits { update.resync_offset } else { 0 };
    }

    fn apply_v1(&mut self, update: &SuperblockUpdate) {
        let roles = self.roles_after(update);
        let role_count = u32::try_from(roles.len()).expect("at most 1920 roles");
        let length_bytes = written_bytes_of(role_count).expect("at most 1920 roles");
        if length_bytes > self.raw.0.len() {
            assert!(self.has_room(length_bytes), "the longer list of roles has no room");
            self.raw.0.resize(length_bytes, 0xff);
        }
        let is_journal = update.role_of_this == Role::Journal;
        assert!(
            !is_journal || update.recovery_offset.is_none(),
            "a journal device does not recover"
        );
        let recovering = Features::RECOVERY_OFFSET;
        let features = match update.recovery_offset {
            Some(_) => self.state.features.with(recovering),
            None => self.state.features.without(recovering.with(Features::RECOVERY_BITMAP)),
        };
        let features = match update.is_replacement {
            true => features.with(Features::REPLACEMENT),
            false => features.without(Features::REPLACEMENT),
        };
        let has_journal = roles.contains(&Role::Journal);
        let features = match has_journal {
            true => features.with(Features::JOURNAL),
            false => features.without(Features::JOURNAL),
        };
        let tail_sectors = self.intent.journal.and_then(|place| place.tail_sectors);
        let tail_sectors = tail_sectors.filter(|_| is_journal);
        self.intent.journal = has_journal.then_some(JournalPlace { tail_sectors });
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.identity.feature_map = U32::new(features.0);
        head.state.events = U64::new(update.events);
        // Microseconds that look like a stamp are taken out of the time, since a reader would
        // believe the stamp.
        let (update_time, _) = Timestamp::from_v1_stamped(self.state.update_time.to_v1());
        head.state.update_time = U64::new(update_time.to_v1());
        let resync_offset = U64::new(update.resync_offset);
        let resync_offset = spoiled(Bug::DirtyNotWritten, resync_offset, head.state.resync_offset);
        head.state.resync_offset = resync_offset;
        head.state.role_count = U32::new(role_count);
        if !is_journal {
            head.device.recovery_offset = U64::new(update.recovery_offset.unwrap_or(0));
        }
        self.state.update_time = Timestamp::from_v1(head.state.update_time.get());
        write_roles_and_seal(&mut self.raw.0, &roles);
        self.state.features = features;
        self.device.recovery_offset_sectors = update.recovery_offset;
        self.state.role = update.role_of_this;
        self.state.roles = roles;
    }

    /// Whether a superblock of `length_bytes` overlaps neither data, bitmap, PPL nor bad-block log.
    fn has_room(&self, length_bytes: usize) -> bool {
        let sectors = |count: u64| i64::try_from(count).expect("validated: at most 2^54");
        let length = sectors(length_bytes as u64 / SECTOR_BYTES);
        let (device, intent) = (&self.device, &self.intent);
        let neighbours = [
            Some(sectors(device.data_offset_sectors) - sectors(device.super_offset_sectors)),
            device.bad_block_log.map(|log| i64::from(log.offset_sectors)),
            intent.bitmap_offset_sectors.map(i64::from),
            intent.ppl.map(|ppl| i64::from(ppl.offset_sectors)),
        ];
        neighbours.into_iter().flatten().all(|offset| offset < 0 || offset >= length)
    }

    /// The roles to write: never fewer than before, with this member's own role in its place.
    fn roles_after(&self, update: &SuperblockUpdate) -> Vec<Role> {
        let number = self.device.number as usize;
        let own = if update.role_of_this == Role::Spare { 0 } else { number + 1 };
        let count = self.state.roles.len().max(update.roles.len()).max(own);
        assert!(count <= V1_ROLES_MAX as usize, "more roles than a superblock can hold");
        let mut roles = update.roles.to_vec();
        roles.resize(count, Role::Spare);
        if let Some(role) = roles.get_mut(number) {
            *role = update.role_of_this;
        }
        roles
    }
}

/// The fixed part of a new superblock; `seal` adds the checksum last.
fn fixed(new: &NewSuperblock, length_bytes: usize) -> Fixed {
    let (array, place) = (&new.array, &new.placement);
    let mut fixed = Fixed::new_zeroed();
    fixed.identity.magic = U32::new(MAGIC);
    fixed.identity.major_version = U32::new(1);
    let raid0_layout = array.level == braid_geometry::Level::Raid0 && array.layout != 0;
    let features = if raid0_layout { Features::RAID0_LAYOUT } else { Features::default() };
    let has_journal = new.roles.contains(&Role::Journal);
    let features = if has_journal { features.with(Features::JOURNAL) } else { features };
    fixed.identity.feature_map = U32::new(features.0);
    fixed.identity.set_uuid = array.uuid;
    for (to, from) in fixed.identity.set_name.iter_mut().zip(array.name.bytes()) {
        *to = from;
    }
    fixed.shape.creation_time = U64::new(array.creation_time.to_v1());
    fixed.shape.level = I32::new(array.level.md_number());
    fixed.shape.layout = U32::new(array.layout);
    fixed.shape.size = U64::new(array.member_size_sectors);
    fixed.shape.chunk_sectors = U32::new(array.chunk_sectors);
    fixed.shape.raid_slots = U32::new(array.raid_slots);
    fixed.device.data_offset = U64::new(place.data_offset_sectors);
    fixed.device.data_size = U64::new(place.data_size_sectors);
    fixed.device.super_offset = U64::new(place.super_offset_sectors);
    fixed.device.number = U32::new(new.device_number);
    fixed.device.uuid = new.device_uuid;
    fixed.device.flags = if new.device_flags.write_mostly { FLAG_WRITE_MOSTLY } else { 0 }
        | if new.device_flags.failfast { FLAG_FAILFAST } else { 0 };
    if let Some(log) = place.bad_block_log {
        fixed.device.bad_block_offset = I32::new(log.offset_sectors);
        fixed.device.bad_block_sectors = U16::new(log.size_sectors);
        fixed.device.bad_block_shift = log.shift;
    }
    fixed.state.update_time = U64::new(array.creation_time.to_v1());
    fixed.state.events = U64::new(new.events);
    fixed.state.resync_offset = U64::new(new.resync_offset);
    let role_count = u32::try_from((length_bytes - V1_FIXED_BYTES) / 2).expect("at most 1920");
    fixed.state.role_count = U32::new(role_count);
    fixed.state.logical_block_bytes = U32::new(array.logical_block_bytes.unwrap_or(0));
    fixed
}

fn write_roles(raw: &mut [u8], roles: &[Role]) {
    let slots = raw.get_mut(V1_FIXED_BYTES..).unwrap_or_default().as_chunks_mut::<2>().0;
    assert!(roles.len() <= slots.len(), "the roles do not fit the superblock");
    for (to, role) in slots.iter_mut().zip(roles) {
        *to = role.to_v1().to_le_bytes();
    }
}

/// Writes the roles, then the checksum, which covers the roles too.
fn write_roles_and_seal(raw: &mut [u8], roles: &[Role]) {
    if planted(Bug::ChecksumEarly) {
        seal(raw);
        return write_roles(raw, roles);
    }
    write_roles(raw, roles);
    seal(raw);
}

pub(super) fn seal(raw: &mut [u8]) {
    let checksum = checksum_v1(raw).expect("the roles fit the superblock");
    let (head, _) = Fixed::mut_from_prefix(raw).expect("a superblock is longer than its head");
    head.state.checksum = U32::new(checksum);
    debug_assert_eq!(head.as_bytes().len(), V1_FIXED_BYTES);
}
