//! Superblocks in memory, placed in front of devices that have none, so that all other code sees md
//! members.
//!
//! Used where superblocks are lost (`solve`) or never existed (`containers`). This file writes to
//! no device.

use std::ops::Range;
use std::sync::Arc;

use braid_geometry::{Family, Level, SECTOR_BYTES};
use braid_member::Member;
use braid_member::layer::{Patched, Sectors};
use braid_ondisk::{
    ArrayFacts, DeviceFlags, NewSuperblock, Placement, Role, Superblock, SuperblockUpdate,
    Timestamp, Version,
};

use super::disk::{Disk, PlainDevice, for_looking, mark};
use braid_console::error::CliError;
use braid_console::error::code::Code;
use braid_discovery::probe::probe_beside;

/// The smallest data offset that leaves room for a superblock before the data, at sector 8 as in
/// version 1.2.
const BEFORE_DATA_SECTORS: u64 = 16;
const SUPERBLOCK_SECTORS: u64 = 8;

/// The facts from which the superblock of a member with a slot is made.
pub(super) struct MemorySuperblock {
    pub(super) uuid: [u8; 16],
    pub(super) name: String,
    /// Level, layout, and chunk sectors.
    pub(super) shape: (Level, u32, u32),
    pub(super) slot: u16,
    /// The member's device number. The number equals the slot, unless another disk has taken this
    /// number since.
    pub(super) number: u16,
    pub(super) slots: u16,
    pub(super) roles: Arc<[Role]>,
    pub(super) data_offset_sectors: u64,
    /// Sectors of the member's data; `None` if the data reach to the device's end.
    pub(super) data_sectors: Option<u64>,
    /// Sectors that each member provides, in levels with equal members.
    pub(super) member_sectors: u64,
    pub(super) events: u64,
    pub(super) resync_offset: u64,
    /// If set, the member is rebuilt only up to this sector.
    pub(super) recovery_offset: Option<u64>,
}

/// A role table of an array in which some slots are held: the device whose number is a held slot
/// has this slot. All other devices are faulty.
pub(super) fn roles(held: &[bool]) -> Arc<[Role]> {
    let slots = 0..u16::try_from(held.len()).expect("few slots");
    slots
        .zip(held)
        .map(|(slot, is_held)| if *is_held { Role::Active(slot) } else { Role::Faulty })
        .collect()
}

impl MemorySuperblock {
    /// Makes the superblock. The superblock says that redundancy is right, so that no resync
    /// changes the members.
    pub(super) fn superblock(&self, disk: &Disk) -> Result<Superblock, CliError> {
        let (level, layout, chunk_sectors) = self.shape;
        let device_bytes = disk.device.size_bytes();
        let device_sectors = device_bytes / SECTOR_BYTES;
        let data_offset_sectors = self.data_offset_sectors;
        let version =
            if data_offset_sectors >= BEFORE_DATA_SECTORS { Version::V1_2 } else { Version::V1_0 };
        let cannot = |why: String| {
            CliError::new(Code::NotSolved, format!("{} has no room for a superblock", disk.label))
                .because(why)
                .about(disk.label.clone())
        };
        let at = version.super_offset_sectors(device_sectors);
        let super_offset_sectors = at.ok_or_else(|| cannot("it is too small".to_owned()))?;
        let end = if version == Version::V1_0 { super_offset_sectors } else { device_sectors };
        let room = end.saturating_sub(data_offset_sectors);
        let chunk = u64::from(chunk_sectors).max(1);
        let whole = |sectors: u64| sectors / chunk * chunk;
        let is_direct = level.family() == Family::Direct;
        let member_size_sectors = if is_direct { 0 } else { whole(self.member_sectors.min(room)) };
        let data_size_sectors = self.data_sectors.unwrap_or(room).min(room);
        let mut device_uuid = self.uuid;
        device_uuid[15] ^= u8::try_from(self.number % 255).unwrap_or(0) + 1;
        let new = NewSuperblock {
            array: ArrayFacts {
                uuid: self.uuid,
                name: self.name.clone(),
                creation_time: Timestamp { seconds: 0, microseconds: 0 },
                level,
                layout,
                chunk_sectors,
                member_size_sectors,
                raid_slots: self.slots.into(),
                preferred_minor: None,
                logical_block_bytes: None,
            },
            placement: Placement {
                version,
                device_bytes,
                super_offset_sectors,
                data_offset_sectors,
                data_size_sectors,
                usable_sectors: whole(data_size_sectors),
                member_size_sectors,
                bad_block_log: None,
            },
            device_number: self.number.into(),
            device_uuid,
            device_flags: DeviceFlags::default(),
            roles: Arc::clone(&self.roles),
            events: self.events,
            resync_offset: self.resync_offset,
        };
        let mut superblock = Superblock::new_v1(&new).map_err(|error| cannot(error.to_string()))?;
        if self.recovery_offset.is_some() {
            superblock.apply(&SuperblockUpdate {
                events: self.events,
                update_time: superblock.state.update_time,
                resync_offset: self.resync_offset,
                roles: Arc::clone(&self.roles),
                recovery_offset: self.recovery_offset,
                is_replacement: false,
                role_of_this: Role::Active(self.slot),
            });
        }
        Ok(superblock)
    }
}

/// Puts this superblock in front of the disk, and hides all other superblocks; `data` is in
/// sectors.
pub(super) fn in_front(
    superblock: &Superblock,
    data: &Range<u64>,
    disk: Disk,
) -> Result<Disk, CliError> {
    let uuid = superblock.array.uuid;
    let bytes = superblock.to_bytes();
    let first = superblock.offset_bytes() / SECTOR_BYTES;
    // Other superblocks outside of the data are blanked in memory, since they are not believed.
    let stale = disk.probed.probe.superblocks.iter().flatten();
    let stale = stale.map(|found| found.offset_bytes() / SECTOR_BYTES);
    let blank = stale
        .filter(|at| !data.contains(at))
        .flat_map(|at| (at..at + SUPERBLOCK_SECTORS).map(|at| (at, [0; 512])));
    let mut sectors: Sectors = blank.collect();
    let written = (first..).zip(bytes.chunks(512)).map(|(at, bytes)| {
        let mut sector = [0; 512];
        sector[..bytes.len()].copy_from_slice(bytes);
        (at, sector)
    });
    sectors.extend(written);
    let ranges = sectors.keys().map(|at| at * SECTOR_BYTES..(at + 1) * SECTOR_BYTES).collect();
    let plain = PlainDevice { device: Arc::clone(&disk.device), mark: disk.mark, ranges };
    let device: Arc<dyn Member> = Arc::new(Patched::new(Arc::clone(&disk.device), sectors));
    let identity = disk.probed.identity.clone();
    let seen = for_looking(&device, &disk.holes);
    let mut probed = probe_beside(&device, &seen, &disk.label)?;
    probed.identity = identity;
    // The ends of all members may be blank alike. With the superblock in memory included, each
    // member's checksum differs.
    let mark = mark(&seen, &disk.label)?;
    // Superblocks of other arrays on the device are not believed.
    probed
        .probe
        .superblocks
        .retain(|found| found.as_ref().is_ok_and(|found| found.array.uuid == uuid));
    Ok(Disk { device, probed, mark, plain: Some(plain), ..disk })
}
