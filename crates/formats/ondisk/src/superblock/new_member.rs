//! The superblock of a device that joins an existing array.
//!
//! `Superblock::joining` copies the facts about the array, and places metadata on the new device.
//! The device is a spare until the array's next update, which goes to all members.

use std::sync::Arc;

use braid_geometry::Level;

use super::facts::{DeviceFlags, Features, Role};
use super::new::{NewSuperblock, NewSuperblockError, NewV0};
use super::{Superblock, Version};
use crate::journal::JOURNAL_BLOCK_SECTORS;
use crate::placement::{Placement, PlacementError, PlacementRequest, placement};
use crate::ppl::PplPlace;

/// Why a device cannot join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The device's data area would be too small, or at an invalid offset.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The array's facts do not make a valid superblock.
    #[error(transparent)]
    Superblock(#[from] NewSuperblockError),
    /// The array has partial parity logs, and this device lacks the room for one.
    #[error(
        "{room_sectors} sectors are free for a partial parity log, {needed_sectors} are needed"
    )]
    ParityLog {
        /// Free sectors at the best place for a log.
        room_sectors: u64,
        /// Sectors that the other members reserve.
        needed_sectors: u64,
    },
    /// The array has a bitmap, and this device has less room for it than the other members.
    #[error("{room_sectors} sectors are free for the array's bitmap, {needed_sectors} are needed")]
    Bitmap {
        /// Free sectors at the bitmap's place.
        room_sectors: u64,
        /// Sectors that the other members reserve.
        needed_sectors: u64,
    },
}

impl Superblock {
    /// The superblock of a further device of this member's array, of `device_bytes` bytes, under an
    /// unused device number. The caller writes it with an update of the whole array, which lists
    /// the device everywhere.
    ///
    /// # Errors
    /// The device is too small, or cannot hold the array's bitmap or log.
    pub fn joining(
        &self,
        device_bytes: u64,
        device_number: u16,
        device_uuid: [u8; 16],
    ) -> Result<Self, JoinError> {
        let roles = self.roles_with(device_number, Role::Spare);
        let (mut array, number) = (self.array.clone(), u32::from(device_number));
        // md stores a layout in a RAID-0's superblock that counts only together with its feature.
        if !self.state.features.contains(Features::RAID0_LAYOUT) && array.level == Level::Raid0 {
            array.layout = 0;
        }
        let (events, resync_offset) = (self.state.events, self.state.resync_offset);
        let device_flags = DeviceFlags::default();
        if self.version == Version::V0_90 {
            let new = NewV0 {
                array,
                device_bytes,
                device_number: number,
                device_flags,
                roles,
                events,
                resync_offset,
                nodes: Arc::default(),
            };
            return self.with_what_i_keep(Self::new_v0(&new)?);
        }
        let place = placement(&PlacementRequest {
            version: self.version,
            device_bytes,
            level: array.level,
            chunk_sectors: array.chunk_sectors,
            member_size_sectors: Some(array.member_size_sectors),
            data_offset_sectors: Some(self.device.data_offset_sectors),
        })?;
        self.with_what_i_keep(Self::new_v1(&NewSuperblock {
            array,
            placement: place,
            device_number: number,
            device_uuid,
            device_flags,
            roles,
            events,
            resync_offset,
        })?)
    }

    /// The superblock of a device that becomes the write journal of this member's array. The array
    /// must have no journal yet. An update of the array makes the other superblocks agree. The
    /// journal's data area is as large as the device allows, and empty.
    ///
    /// # Errors
    /// The device is too small, or the array's metadata version has no journals.
    pub fn joining_as_journal(
        &self,
        device_bytes: u64,
        device_number: u16,
        device_uuid: [u8; 16],
    ) -> Result<Self, JoinError> {
        let array = self.array.clone();
        let chunk_sectors = u32::try_from(JOURNAL_BLOCK_SECTORS).expect("eight");
        let place = placement(&PlacementRequest {
            version: self.version,
            device_bytes,
            level: array.level,
            chunk_sectors,
            member_size_sectors: None,
            data_offset_sectors: None,
        })?;
        Ok(Self::new_v1(&NewSuperblock {
            array,
            placement: Placement { bad_block_log: None, ..place },
            device_number: u32::from(device_number),
            device_uuid,
            device_flags: DeviceFlags::default(),
            roles: self.roles_with(device_number, Role::Journal),
            events: self.state.events,
            resync_offset: self.state.resync_offset,
        })?)
    }

    fn roles_with(&self, device_number: u16, role: Role) -> Arc<[Role]> {
        let mut roles = self.state.roles.clone();
        let index = usize::from(device_number);
        if roles.len() <= index {
            roles.resize(index + 1, Role::Spare);
        }
        roles.iter_mut().skip(index).take(1).for_each(|one| *one = role);
        roles.as_slice().into()
    }

    /// Gives another superblock of the array a bitmap at the same place as this superblock's, or a
    /// partial parity log of the same size. The caller writes the content of the bitmap or log
    /// before the superblock counts.
    fn with_what_i_keep(&self, mut other: Self) -> Result<Self, JoinError> {
        if let Some(mine) = self.intent.ppl {
            let needed_sectors = u64::from(mine.size_sectors);
            let place = other.ppl_place();
            let room_sectors = place.map_or(0, |place| u64::from(place.size_sectors));
            let place = place.filter(|_| room_sectors >= needed_sectors);
            let place = place.ok_or(JoinError::ParityLog { room_sectors, needed_sectors })?;
            let PplPlace { size_sectors, multiple, .. } = mine;
            other.set_ppl(PplPlace { size_sectors, multiple, ..place });
            return Ok(other);
        }
        let Some(offset_sectors) = self.intent.bitmap_offset_sectors else { return Ok(other) };
        other.intent.bitmap_offset_sectors = Some(offset_sectors);
        let room_sectors = other.bitmap_room_sectors().unwrap_or(0);
        let needed_sectors = self.bitmap_room_sectors().unwrap_or(1).max(1);
        if room_sectors < needed_sectors {
            return Err(JoinError::Bitmap { room_sectors, needed_sectors });
        }
        other.set_bitmap(Some(offset_sectors));
        Ok(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::superblock::facts::{ArrayFacts, Timestamp};

    fn member(device_bytes: u64) -> Superblock {
        let place = sample::place(Version::V1_2, Level::Raid5, 128, device_bytes);
        let member = sample::member(Level::Raid5, 128, 3, place.expect("it fits"));
        Superblock::new_v1(&member).expect("a plain superblock")
    }

    #[test]
    fn a_device_that_joins_says_of_the_array_what_the_others_say() {
        let old = member(64 << 20);
        let new = old.joining(80 << 20, 5, [9; 16]).expect("it is large enough");
        assert_eq!((&new.array, new.state.events), (&old.array, 40));
        assert_eq!((new.device.number, new.device.uuid), (5, [9; 16]));
        assert_eq!(new.device.data_offset_sectors, old.device.data_offset_sectors);
        assert_eq!(new.state.role, Role::Spare);
        assert_eq!(new.state.roles, old.state.roles, "no member's slot changes");
    }

    /// An update of the array sets the journal in both superblocks, and another update clears the
    /// journal.
    #[test]
    fn a_journal_comes_and_goes() {
        let mut old = member(64 << 20);
        let mut new = old.joining_as_journal(8 << 20, 3, [9; 16]).expect("it is large enough");
        let area = new.journal_area().expect("it has the journal");
        assert_eq!((area.ring_sectors, area.tail_sectors), ((7 << 20) / 512, 0));
        let update = |roles: &[Role], role_of_this| crate::SuperblockUpdate {
            events: 41,
            update_time: Timestamp { seconds: 1_700_000_001, microseconds: 0 },
            resync_offset: u64::MAX,
            roles: roles.into(),
            recovery_offset: None,
            is_replacement: false,
            role_of_this,
        };
        let with = old.roles_with(3, Role::Journal);
        old.apply(&update(&with, Role::Active(0)));
        new.apply(&update(&with, Role::Journal));
        new.set_journal_tail(8, 41);
        let has_journal = |one: &Superblock| {
            let bytes = one.to_bytes();
            let found = crate::superblock::v1::UnvalidatedV1::recognise(&bytes, one.version);
            let found = found.expect("a superblock").validate(64 << 20, one.offset_bytes());
            let found = found.expect("a sound one");
            assert_eq!((found.intent, found.state.features), (one.intent, one.state.features));
            found.state.features.contains(Features::JOURNAL)
        };
        assert!(has_journal(&old) && has_journal(&new));
        assert_eq!(new.journal_area().expect("it has").tail_sectors, 8);
        let without = old.roles_with(3, Role::Faulty);
        old.apply(&update(&without, Role::Active(0)));
        assert!(!has_journal(&old), "and md takes it as one without");
    }

    #[test]
    fn a_device_that_is_too_small_is_refused_with_what_fits() {
        let error = member(64 << 20).joining(63 << 20, 3, [9; 16]).expect_err("a MiB is missing");
        assert!(
            matches!(error, JoinError::Placement(PlacementError::MemberSize { .. })),
            "{error}"
        );
    }

    /// Regression: mdadm refused a 0.90 array whose new device claimed slot 0, like the first one.
    #[test]
    fn a_device_that_joins_an_array_of_0_90_is_no_clone_of_the_first() {
        let old = Superblock::new_v0(&NewV0 {
            array: ArrayFacts { uuid: [3; 16], ..member(64 << 20).array },
            device_bytes: 64 << 20,
            device_number: 0,
            device_flags: DeviceFlags::default(),
            roles: (0..3).map(Role::Active).collect(),
            events: 40,
            resync_offset: u64::MAX,
            nodes: Arc::default(),
        });
        let old = old.expect("0.90 has room for it");
        let new = old.joining(64 << 20, 2, [9; 16]).expect("it is large enough");
        // Words 992 and 995 of 0.90 are the device's own number, and its slot.
        let bytes = new.to_bytes();
        let word = |index: usize| bytes[4 * index..][..4].to_vec();
        assert_eq!([word(992), word(995)], [2_u32.to_le_bytes(), 2_u32.to_le_bytes()]);
    }
}
