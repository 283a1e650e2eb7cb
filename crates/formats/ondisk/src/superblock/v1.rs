//! Superblock 1.0, 1.1 and 1.2: one format in three places.
//!
//! 256 bytes, then one 16-bit role per device number, all little endian; `docs/on-disk.md` draws
//! the format. The minor version is not stored: the superblock's place determines it. Facts are
//! from `include/uapi/linux/raid/md_p.h`. The checks are those that md makes when it loads a
//! member, and some that md lacks. `write` makes and changes superblocks.

use std::mem::{offset_of, size_of};

use braid_geometry::Level;
use zerocopy::byteorder::little_endian::{I16, I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::check;
use super::error::{Claim, SuperblockError, SuperblockFault};
use super::facts::{
    ArrayFacts, ByteOrder, DeviceFacts, DeviceFlags, Features, IntentFacts, Reshape, Role,
    StateFacts, Timestamp, Version,
};
use super::{Raw, Superblock};
use crate::bad_blocks::BadBlockLogPlace;
use crate::checksum::checksum_v1;
use crate::journal::JournalPlace;
use crate::limits::{
    BAD_BLOCK_LOG_SECTORS_MAX, MAGIC, SECTOR_BYTES, V1_DATA_SECTORS_MIN, V1_FIXED_BYTES,
    V1_ROLES_MAX,
};
use crate::ppl::PplPlace;

/// Bytes 0..64: the magic and version, and the array that the superblock belongs to.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Identity {
    pub(super) magic: U32,
    pub(super) major_version: U32,
    pub(super) feature_map: U32,
    pub(super) pad0: U32,
    pub(super) set_uuid: [u8; 16],
    pub(super) set_name: [u8; 32],
}

/// Bytes 64..100: the shape of the array.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Shape {
    pub(super) creation_time: U64,
    pub(super) level: I32,
    pub(super) layout: U32,
    pub(super) size: U64,
    pub(super) chunk_sectors: U32,
    pub(super) raid_slots: U32,
    /// Bitmap offset, or PPL offset and size.
    pub(super) intent: [u8; 4],
}

/// Bytes 100..128: valid with [`Features::RESHAPE`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ReshapeRaw {
    pub(super) new_level: I32,
    pub(super) position: U64,
    pub(super) delta_disks: I32,
    pub(super) new_layout: U32,
    pub(super) new_chunk_sectors: U32,
    pub(super) new_offset: I32,
}

/// Bytes 128..192: this device.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Device {
    pub(super) data_offset: U64,
    pub(super) data_size: U64,
    pub(super) super_offset: U64,
    /// Recovery offset, or the journal's tail on a journal device.
    pub(super) recovery_offset: U64,
    pub(super) number: U32,
    pub(super) corrected_reads: U32,
    pub(super) uuid: [u8; 16],
    pub(super) flags: u8,
    pub(super) bad_block_shift: u8,
    pub(super) bad_block_sectors: U16,
    pub(super) bad_block_offset: I32,
}

/// Bytes 192..256: the array's state.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct State {
    pub(super) update_time: U64,
    pub(super) events: U64,
    pub(super) resync_offset: U64,
    pub(super) checksum: U32,
    pub(super) role_count: U32,
    /// Bytes of a logical block; 0 if not recorded. Padding for kernels before 6.19.
    pub(super) logical_block_bytes: U32,
    pub(super) pad3: [u8; 28],
}

/// The fixed part of a superblock; `[U16; role_count]` follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Fixed {
    pub(super) identity: Identity,
    pub(super) shape: Shape,
    pub(super) reshape: ReshapeRaw,
    pub(super) device: Device,
    pub(super) state: State,
}

const _: () = assert!(size_of::<Fixed>() == V1_FIXED_BYTES);
const _: () = assert!(offset_of!(Fixed, identity.magic) == 0);
const _: () = assert!(offset_of!(Fixed, identity.major_version) == 4);
const _: () = assert!(offset_of!(Fixed, identity.feature_map) == 8);
const _: () = assert!(offset_of!(Fixed, identity.pad0) == 12);
const _: () = assert!(offset_of!(Fixed, identity.set_uuid) == 16);
const _: () = assert!(offset_of!(Fixed, identity.set_name) == 32);
const _: () = assert!(offset_of!(Fixed, shape.creation_time) == 64);
const _: () = assert!(offset_of!(Fixed, shape.level) == 72);
const _: () = assert!(offset_of!(Fixed, shape.layout) == 76);
const _: () = assert!(offset_of!(Fixed, shape.size) == 80);
const _: () = assert!(offset_of!(Fixed, shape.chunk_sectors) == 88);
const _: () = assert!(offset_of!(Fixed, shape.raid_slots) == 92);
const _: () = assert!(offset_of!(Fixed, shape.intent) == 96);
const _: () = assert!(offset_of!(Fixed, reshape.new_level) == 100);
const _: () = assert!(offset_of!(Fixed, reshape.position) == 104);
const _: () = assert!(offset_of!(Fixed, reshape.delta_disks) == 112);
const _: () = assert!(offset_of!(Fixed, reshape.new_layout) == 116);
const _: () = assert!(offset_of!(Fixed, reshape.new_chunk_sectors) == 120);
const _: () = assert!(offset_of!(Fixed, reshape.new_offset) == 124);
const _: () = assert!(offset_of!(Fixed, device.data_offset) == 128);
const _: () = assert!(offset_of!(Fixed, device.data_size) == 136);
const _: () = assert!(offset_of!(Fixed, device.super_offset) == 144);
const _: () = assert!(offset_of!(Fixed, device.recovery_offset) == 152);
const _: () = assert!(offset_of!(Fixed, device.number) == 160);
const _: () = assert!(offset_of!(Fixed, device.corrected_reads) == 164);
const _: () = assert!(offset_of!(Fixed, device.uuid) == 168);
const _: () = assert!(offset_of!(Fixed, device.flags) == 184);
const _: () = assert!(offset_of!(Fixed, device.bad_block_shift) == 185);
const _: () = assert!(offset_of!(Fixed, device.bad_block_sectors) == 186);
const _: () = assert!(offset_of!(Fixed, device.bad_block_offset) == 188);
const _: () = assert!(offset_of!(Fixed, state.update_time) == 192);
const _: () = assert!(offset_of!(Fixed, state.events) == 200);
const _: () = assert!(offset_of!(Fixed, state.resync_offset) == 208);
const _: () = assert!(offset_of!(Fixed, state.checksum) == 216);
const _: () = assert!(offset_of!(Fixed, state.role_count) == 220);
const _: () = assert!(offset_of!(Fixed, state.logical_block_bytes) == 224);
const _: () = assert!(offset_of!(Fixed, state.pad3) == 228);

/// `devflags` bit: write-mostly.
pub(super) const FLAG_WRITE_MOSTLY: u8 = 1;
/// `devflags` bit: failfast.
pub(super) const FLAG_FAILFAST: u8 = 2;

/// The number of roles that fit in the first sector.
const FIRST_SECTOR_ROLES: usize = (512 - V1_FIXED_BYTES) / 2;

/// Bytes with md's magic at the place of a version 1 superblock; worth nothing until validated.
#[derive(Debug, Clone, Copy)]
pub struct UnvalidatedV1<'a> {
    bytes: &'a [u8],
    version: Version,
}

impl<'a> UnvalidatedV1<'a> {
    /// Recognises the magic; `None` without it, or if `version` is 0.90. `bytes` start at the place
    /// of `version` and should be 4096 long, or reach the end of the device.
    #[must_use]
    pub fn recognise(bytes: &'a [u8], version: Version) -> Option<Self> {
        let magic = bytes.first_chunk::<4>()?;
        (version.is_v1() && u32::from_le_bytes(*magic) == MAGIC).then_some(Self { bytes, version })
    }

    /// Checks all fields and makes a superblock of them. `device_bytes` is the size of the device,
    /// `found_bytes` the superblock's byte offset on it.
    ///
    /// # Errors
    /// The first fault, in the order: length, version, checksum, place, then field by field.
    pub fn validate(
        self,
        device_bytes: u64,
        found_bytes: u64,
    ) -> Result<Superblock, SuperblockError> {
        self.decode(device_bytes, found_bytes).map_err(|cause| {
            let claim = matches!(cause, SuperblockFault::Checksum { .. }).then(|| self.claim());
            let (version, claim) = (self.version, claim.flatten());
            SuperblockError { version, offset_bytes: found_bytes, cause, claim }
        })
    }

    fn claim(self) -> Option<Claim> {
        let (fixed, rest) = Fixed::ref_from_prefix(self.bytes).ok()?;
        let slots = fixed.shape.raid_slots.get();
        let count = usize::try_from(fixed.state.role_count.get()).ok()?;
        if count <= FIRST_SECTOR_ROLES {
            return None;
        }
        let roles = rest.as_chunks::<2>().0.iter().take(FIRST_SECTOR_ROLES);
        let active = roles.filter(|role| u32::from(u16::from_le_bytes(**role)) < slots).count();
        Some(Claim {
            array_uuid: fixed.identity.set_uuid,
            events: fixed.state.events.get(),
            missing: slots.saturating_sub(u32::try_from(active).unwrap_or(u32::MAX)),
        })
    }

    fn decode(self, device_bytes: u64, found_bytes: u64) -> Result<Superblock, SuperblockFault> {
        let (fixed, roles) = self.whole()?;
        let found = found_bytes / SECTOR_BYTES;
        let stored = fixed.device.super_offset.get();
        let device_sectors = device_bytes / SECTOR_BYTES;
        if stored != found || self.version.super_offset_sectors(device_sectors) != Some(found) {
            return Err(SuperblockFault::WrongPlace { stored, found });
        }
        let level = check::level(fixed.shape.level.get())?;
        let array = array_facts(fixed, level);
        let features = Features(fixed.identity.feature_map.get());
        check::shape(&array, V1_ROLES_MAX)?;
        let is_reshaping = features.contains(Features::RESHAPE);
        let delta = is_reshaping.then_some(fixed.reshape.delta_disks.get());
        let roles = decode_roles(roles, check::slots_named(array.raid_slots, delta))?;
        let number = fixed.device.number.get();
        let role =
            usize::try_from(number).ok().and_then(|n| roles.get(n).copied()).unwrap_or(Role::Spare);
        check_features(features, level, role)?;
        let device = device_facts(fixed, features, role)?;
        check_areas(&array, &device, self.version, device_sectors, written_bytes(fixed)?)?;
        check_member_size(&array, &device, role)?;
        let intent = intent_facts(fixed, features, role);
        check_places(&device, &intent, features, device_sectors)?;
        let reshape = decode_reshape(fixed, features, device.data_offset_sectors)?;
        check::events(fixed.state.events.get())?;
        let state = state_facts(fixed, features, role, roles);
        let raw = Raw(self.trimmed(written_bytes(fixed)?));
        let byte_order = ByteOrder::Little;
        Ok(Superblock {
            version: self.version,
            byte_order,
            array,
            device,
            state,
            intent,
            reshape,
            raw,
        })
    }

    /// The superblock's fixed part and roles, if complete and with the right checksum.
    fn whole(&self) -> Result<(&'a Fixed, &'a [U16]), SuperblockFault> {
        let present_bytes = self.bytes.len() as u64;
        let cut_off = |needed_bytes| SuperblockFault::CutOff { present_bytes, needed_bytes };
        let (fixed, rest) =
            Fixed::ref_from_prefix(self.bytes).map_err(|_| cut_off(V1_FIXED_BYTES as u64))?;
        let major = fixed.identity.major_version.get();
        if major != 1 {
            return Err(SuperblockFault::VersionUnknown { major, minor: 0 });
        }
        let count = fixed.state.role_count.get();
        if count > V1_ROLES_MAX {
            return Err(SuperblockFault::RoleCount { count, max: V1_ROLES_MAX });
        }
        let needed_bytes = V1_FIXED_BYTES as u64 + 2 * u64::from(count);
        let (roles, _) = usize::try_from(count)
            .ok()
            .and_then(|count| <[U16]>::ref_from_prefix_with_elems(rest, count).ok())
            .ok_or(cut_off(needed_bytes))?;
        let computed = checksum_v1(self.bytes).ok_or(cut_off(needed_bytes))?;
        let stored = fixed.state.checksum.get();
        if stored != computed {
            return Err(SuperblockFault::Checksum { stored, computed });
        }
        Ok((fixed, roles))
    }

    /// The bytes to write: the superblock, rounded up to sectors and padded with zeroes.
    fn trimmed(&self, length_bytes: usize) -> Vec<u8> {
        let mut raw = self.bytes.get(..length_bytes).unwrap_or(self.bytes).to_vec();
        raw.resize(length_bytes, 0);
        raw
    }
}

/// Bytes written for a superblock with `role_count` roles; `None` beyond md's limit.
pub(super) fn written_bytes_of(role_count: u32) -> Option<usize> {
    let roles = usize::try_from(role_count).ok().filter(|_| role_count <= V1_ROLES_MAX)?;
    Some((V1_FIXED_BYTES + 2 * roles).next_multiple_of(512))
}

/// Bytes of the superblock rounded up to sectors, as mdadm writes it.
fn written_bytes(fixed: &Fixed) -> Result<usize, SuperblockFault> {
    let count = fixed.state.role_count.get();
    written_bytes_of(count).ok_or(SuperblockFault::RoleCount { count, max: V1_ROLES_MAX })
}

fn array_facts(fixed: &Fixed, level: Level) -> ArrayFacts {
    let name = &fixed.identity.set_name;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    ArrayFacts {
        uuid: fixed.identity.set_uuid,
        name: String::from_utf8_lossy(name.get(..end).unwrap_or(name)).into_owned(),
        creation_time: Timestamp::from_v1(fixed.shape.creation_time.get()),
        level,
        layout: fixed.shape.layout.get(),
        chunk_sectors: fixed.shape.chunk_sectors.get(),
        member_size_sectors: fixed.shape.size.get(),
        raid_slots: fixed.shape.raid_slots.get(),
        preferred_minor: None,
        logical_block_bytes: Some(fixed.state.logical_block_bytes.get())
            .filter(|bytes| *bytes != 0),
    }
}

fn decode_roles(stored: &[U16], slots: u32) -> Result<Vec<Role>, SuperblockFault> {
    let mut roles = Vec::with_capacity(stored.len());
    for (device, value) in (0..).zip(stored) {
        let out_of_range =
            SuperblockFault::RoleOutOfRange { device, role: u32::from(value.get()), slots };
        let role = Role::from_v1(value.get()).ok_or(out_of_range)?;
        if matches!(role, Role::Active(slot) if u32::from(slot) >= slots) {
            return Err(out_of_range);
        }
        roles.push(role);
    }
    Ok(roles)
}

/// Refuses the same combinations of features as md.
fn check_features(features: Features, level: Level, role: Role) -> Result<(), SuperblockFault> {
    let any_ppl = Features::PPL.with(Features::MULTIPLE_PPLS);
    if features.intersects(any_ppl) && features.intersects(Features::BITMAP.with(Features::JOURNAL))
    {
        return Err(SuperblockFault::Contradiction("PPL together with a bitmap or a journal"));
    }
    if features.contains(any_ppl) {
        return Err(SuperblockFault::Contradiction("one PPL and several PPLs at once"));
    }
    if features.contains(Features::RAID0_LAYOUT) && level != Level::Raid0 {
        return Err(SuperblockFault::Contradiction("a raid0 layout at another level"));
    }
    if role == Role::Journal && !features.contains(Features::JOURNAL) {
        return Err(SuperblockFault::Contradiction(
            "a journal device in an array without a journal",
        ));
    }
    Ok(())
}

fn device_facts(
    fixed: &Fixed,
    features: Features,
    role: Role,
) -> Result<DeviceFacts, SuperblockFault> {
    let raw = &fixed.device;
    let (offset, size) = (raw.bad_block_offset.get(), raw.bad_block_sectors.get());
    let bad_block_log = (offset != 0 && size != 0).then_some(BadBlockLogPlace {
        offset_sectors: offset,
        size_sectors: size,
        shift: raw.bad_block_shift,
    });
    if bad_block_log.is_none() && features.contains(Features::BAD_BLOCKS) {
        return Err(SuperblockFault::Contradiction("bad blocks recorded, but no log to hold them"));
    }
    if raw.number.get() >= V1_ROLES_MAX {
        return Err(SuperblockFault::Contradiction("its device number has no place in the table"));
    }
    let recovering = features.contains(Features::RECOVERY_OFFSET) && role != Role::Journal;
    Ok(DeviceFacts {
        number: raw.number.get(),
        uuid: raw.uuid,
        super_offset_sectors: raw.super_offset.get(),
        data_offset_sectors: raw.data_offset.get(),
        data_size_sectors: raw.data_size.get(),
        recovery_offset_sectors: recovering.then_some(raw.recovery_offset.get()),
        bad_block_log,
        corrected_read_errors: raw.corrected_reads.get(),
        flags: DeviceFlags {
            write_mostly: raw.flags & FLAG_WRITE_MOSTLY != 0,
            failfast: raw.flags & FLAG_FAILFAST != 0,
        },
    })
}

/// Checks that superblock and data area are on the device, and do not overlap.
fn check_areas(
    array: &ArrayFacts,
    device: &DeviceFacts,
    version: Version,
    device_sectors: u64,
    written_bytes: usize,
) -> Result<(), SuperblockFault> {
    let (offset, size) = (device.data_offset_sectors, device.data_size_sectors);
    check::sectors("data_offset", offset)?;
    check::sectors("data_size", size)?;
    check::sectors("size", array.member_size_sectors)?;
    if size < V1_DATA_SECTORS_MIN {
        return Err(SuperblockFault::MemberSize {
            used: array.member_size_sectors,
            available: size,
        });
    }
    if version == Version::V1_0 {
        // md compares only data_size with the superblock's place; braid also checks that the used
        // part fits.
        let used_end = offset + check::used_sectors(array);
        if size > device.super_offset_sectors || used_end > device.super_offset_sectors {
            return Err(SuperblockFault::DataOverlapsSuperblock { data_offset: offset });
        }
        return Ok(());
    }
    if offset < device.super_offset_sectors + written_bytes as u64 / SECTOR_BYTES {
        return Err(SuperblockFault::DataOverlapsSuperblock { data_offset: offset });
    }
    check::fits(offset + size, device_sectors)
}

/// Checks that the array uses a part of an active member, and no more than the member's data area.
fn check_member_size(
    array: &ArrayFacts,
    device: &DeviceFacts,
    role: Role,
) -> Result<(), SuperblockFault> {
    let (used, available) = (check::used_sectors(array), device.data_size_sectors);
    let used_none = used == 0 && check::has_member_size(array.level);
    if matches!(role, Role::Active(_)) && (used > available || used_none) {
        return Err(SuperblockFault::MemberSize { used, available });
    }
    Ok(())
}

fn intent_facts(fixed: &Fixed, features: Features, role: Role) -> IntentFacts {
    let [low, high, size_low, size_high] = fixed.shape.intent;
    let any_ppl = Features::PPL.with(Features::MULTIPLE_PPLS);
    let tail = (role == Role::Journal).then_some(fixed.device.recovery_offset.get());
    IntentFacts {
        bitmap_offset_sectors: features
            .contains(Features::BITMAP)
            .then_some(I32::from_bytes(fixed.shape.intent).get()),
        ppl: features.intersects(any_ppl).then_some(PplPlace {
            offset_sectors: I16::from_bytes([low, high]).get(),
            size_sectors: U16::from_bytes([size_low, size_high]).get(),
            multiple: features.contains(Features::MULTIPLE_PPLS),
        }),
        journal: features
            .contains(Features::JOURNAL)
            .then_some(JournalPlace { tail_sectors: tail }),
    }
}

/// Checks that bitmap, bad-block log and PPL begin on the device, and that the bad-block log is no
/// larger than md reads.
fn check_places(
    device: &DeviceFacts,
    intent: &IntentFacts,
    features: Features,
    device_sectors: u64,
) -> Result<(), SuperblockFault> {
    let inside = |offset: i64, size: u64| {
        let start = device.super_offset_sectors.checked_add_signed(offset);
        start.and_then(|start| start.checked_add(size)).is_some_and(|end| end <= device_sectors)
    };
    if let Some(log) = device.bad_block_log {
        let too_large =
            log.size_sectors > BAD_BLOCK_LOG_SECTORS_MAX && features.contains(Features::BAD_BLOCKS);
        if too_large || !inside(i64::from(log.offset_sectors), u64::from(log.size_sectors)) {
            return Err(SuperblockFault::Place("bad-block log"));
        }
    }
    if intent
        .bitmap_offset_sectors
        .is_some_and(|offset| offset == 0 || !inside(i64::from(offset), 1))
    {
        return Err(SuperblockFault::Place("bitmap"));
    }
    let ppl_fits =
        |ppl: PplPlace| inside(i64::from(ppl.offset_sectors), u64::from(ppl.size_sectors));
    if intent.ppl.is_some_and(|ppl| ppl.offset_sectors == 0 || !ppl_fits(ppl)) {
        return Err(SuperblockFault::Place("PPL"));
    }
    Ok(())
}

fn decode_reshape(
    fixed: &Fixed,
    features: Features,
    data_offset: u64,
) -> Result<Option<Reshape>, SuperblockFault> {
    if !features.contains(Features::RESHAPE) {
        return Ok(None);
    }
    let raw = &fixed.reshape;
    let delta_disks = raw.delta_disks.get();
    let new_offset = i64::from(raw.new_offset.get());
    let moved = data_offset.checked_add_signed(new_offset);
    let moves = features.contains(Features::NEW_OFFSET);
    if moves && moved.is_none() {
        return Err(SuperblockFault::Contradiction("the reshape moves the data before the device"));
    }
    check::sectors("reshape_position", raw.position.get())?;
    Ok(Some(Reshape {
        position_sectors: raw.position.get(),
        delta_disks,
        new_level: check::level(raw.new_level.get())?,
        new_layout: raw.new_layout.get(),
        new_chunk_sectors: raw.new_chunk_sectors.get(),
        new_data_offset_sectors: moved.filter(|_| moves),
        backwards: delta_disks < 0
            || (delta_disks == 0 && features.contains(Features::RESHAPE_BACKWARDS)),
    }))
}

fn state_facts(fixed: &Fixed, features: Features, role: Role, roles: Vec<Role>) -> StateFacts {
    let (update_time, log_counts) = Timestamp::from_v1_stamped(fixed.state.update_time.get());
    StateFacts {
        events: fixed.state.events.get(),
        update_time,
        log_counts,
        resync_offset: fixed.state.resync_offset.get(),
        features,
        role,
        roles,
        reserved_bytes_in_use: fixed.identity.pad0.get() != 0 || fixed.state.pad3 != [0; 28],
    }
}
