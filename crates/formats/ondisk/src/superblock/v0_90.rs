//! Superblock 0.90: 1024 words of 32 bits near the end of the device.
//!
//! The byte order is that of the machine that made the array: a PC's, or big endian of an old NAS
//! on PowerPC or MIPS. The order of the two halves of each event counter follows the byte order, so
//! on disk they always form one 64-bit number. `docs/on-disk.md` draws the words.
//!
//! ```text
//!   big endian ─▶ turned: each word reversed, halves of 64-bit numbers exchanged ─▶ as from a PC
//!                 turned again, when it is written ◀─ `Superblock::byte_order`
//! ```
//!
//! So all later code handles one byte order. Each member keeps its byte order on disk, for the
//! machine that it came from. The checksum adds words as numbers, so turning does not change the
//! checksum.
//!
//! Data always starts at sector 0. The format has no device UUID, no recovery offset, no bad-block
//! log. A minor version of 91 marks a reshape.
//!
//! Invariants
//! - Turning twice changes nothing, whatever the bytes
//!   `[check: a_superblock_of_the_other_byte_order_stays_in_it]`.
//! - mdadm reads a turned superblock as the same superblock
//!   `[check: the_other_byte_order_reads_the_same]`.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::check;
use super::error::{Claim, SuperblockError, SuperblockFault};
use super::facts::{
    ArrayFacts, ByteOrder, DeviceFacts, DeviceFlags, Features, IntentFacts, LogHome, Reshape,
    ReshapeSide, Role, StateFacts, SuperblockShape, Timestamp, Version,
};
use super::new::{NewV0, SuperblockUpdate};
use super::{Raw, Superblock};
use crate::checksum::{checksum_v0, fold_v0};
use crate::limits::{MAGIC, SECTOR_BYTES, SUPERBLOCK_BYTES_MAX, V0_DEVICES_MAX};

/// Sectors from a 0.90 superblock to its bitmap. No other place is possible.
const BITMAP_OFFSET_SECTORS: i32 = 8;
/// The most sectors of a member at the levels that record the size.
const MEMBER_SECTORS_MAX: u64 = (2 << 32) - 2;

/// `state` bit: redundancy is right everywhere.
const STATE_CLEAN: u32 = 1;
/// `state` bit: a bitmap follows the superblock.
const STATE_BITMAP: u32 = 1 << 8;

const DISK_FAULTY: u32 = 1;
const DISK_ACTIVE: u32 = 1 << 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_REMOVED: u32 = 1 << 3;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
const DISK_FAILFAST: u32 = 1 << 10;
const DISK_JOURNAL: u32 = 1 << 18;

/// First words of the 64-bit numbers `events`, `cp_events`, `reshape_position`.
const WIDE_AT: [usize; 3] = [39, 41, 44];

/// The letters in the word `stamp` that say that the parity log in the bitmap file counts
/// ([`crate::own_log`]).
const LOG_STAMP: u32 = u32::from_le_bytes(*b"brlg");

/// Words 0..32: constant facts.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Constant {
    magic: U32,
    major_version: U32,
    minor_version: U32,
    patch_version: U32,
    gvalid_words: U32,
    set_uuid0: U32,
    creation_time: U32,
    level: I32,
    size_kib: U32,
    nr_disks: U32,
    raid_disks: U32,
    md_minor: U32,
    not_persistent: U32,
    set_uuid_rest: [U32; 3],
    reserved: [U32; 16],
}

/// Words 32..44: the state.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Counters {
    update_time: U32,
    state: U32,
    active_disks: U32,
    working_disks: U32,
    failed_disks: U32,
    spare_disks: U32,
    checksum: U32,
    /// The low and the high half of the event count: on little-endian machines one little-endian
    /// number.
    events: U64,
    /// The event count at which `recovery_cp` was right.
    checkpoint_events: U64,
    recovery_cp: U32,
}

/// Words 44..64: valid if the minor version is 91.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ReshapeRaw {
    position: U64,
    new_level: I32,
    delta_disks: I32,
    new_layout: U32,
    new_chunk_bytes: U32,
    reserved: [U32; 13],
    /// The word that holds braid's stamp. md writes zero here in every update.
    stamp: U32,
}

/// Words 64..128: specific to the level.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Personality {
    layout: U32,
    chunk_bytes: U32,
    root_pv: U32,
    root_block: U32,
    reserved: [U32; 60],
}

/// 32 words: one device.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Descriptor {
    number: U32,
    major: U32,
    minor: U32,
    raid_disk: U32,
    state: U32,
    reserved: [U32; 27],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SuperblockV0 {
    constant: Constant,
    counters: Counters,
    reshape: ReshapeRaw,
    personality: Personality,
    disks: [Descriptor; 27],
    this_disk: Descriptor,
}

const _: () = assert!(size_of::<SuperblockV0>() == SUPERBLOCK_BYTES_MAX);
const _: () = assert!(size_of::<Descriptor>() == 32 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.magic) == 0);
const _: () = assert!(offset_of!(SuperblockV0, constant.major_version) == 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.minor_version) == 2 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.patch_version) == 3 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.gvalid_words) == 4 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.set_uuid0) == 5 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.creation_time) == 6 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.level) == 7 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.size_kib) == 8 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.nr_disks) == 9 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.raid_disks) == 10 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.md_minor) == 11 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.not_persistent) == 12 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.set_uuid_rest) == 13 * 4);
const _: () = assert!(offset_of!(SuperblockV0, constant.reserved) == 16 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.update_time) == 32 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.state) == 33 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.active_disks) == 34 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.working_disks) == 35 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.failed_disks) == 36 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.spare_disks) == 37 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.checksum) == 38 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.events) == 39 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.checkpoint_events) == 41 * 4);
const _: () = assert!(offset_of!(SuperblockV0, counters.recovery_cp) == 43 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.position) == 44 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.new_level) == 46 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.delta_disks) == 47 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.new_layout) == 48 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.new_chunk_bytes) == 49 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.reserved) == 50 * 4);
const _: () = assert!(offset_of!(SuperblockV0, reshape.stamp) == 63 * 4);
const _: () = assert!(offset_of!(SuperblockV0, personality.layout) == 64 * 4);
const _: () = assert!(offset_of!(SuperblockV0, personality.chunk_bytes) == 65 * 4);
const _: () = assert!(offset_of!(SuperblockV0, personality.root_pv) == 66 * 4);
const _: () = assert!(offset_of!(SuperblockV0, personality.root_block) == 67 * 4);
const _: () = assert!(offset_of!(SuperblockV0, personality.reserved) == 68 * 4);
const _: () = assert!(offset_of!(SuperblockV0, disks) == 128 * 4);
const _: () = assert!(offset_of!(SuperblockV0, this_disk) == 992 * 4);
const _: () = assert!(offset_of!(Descriptor, number) == 0);
const _: () = assert!(offset_of!(Descriptor, major) == 4);
const _: () = assert!(offset_of!(Descriptor, minor) == 8);
const _: () = assert!(offset_of!(Descriptor, raid_disk) == 12);
const _: () = assert!(offset_of!(Descriptor, state) == 16);
const _: () = assert!(offset_of!(Descriptor, reserved) == 20);

/// Bytes with md's magic, in either byte order, at the place of a 0.90 superblock.
#[derive(Debug, Clone, Copy)]
pub struct UnvalidatedV0<'a> {
    bytes: &'a [u8],
    byte_order: ByteOrder,
}

impl<'a> UnvalidatedV0<'a> {
    /// Recognises the magic in either byte order; `None` if `bytes` do not have it.
    #[must_use]
    pub fn recognise(bytes: &'a [u8]) -> Option<Self> {
        let magic = bytes.first_chunk::<4>()?;
        let byte_order = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
            (MAGIC, _) => ByteOrder::Little,
            (_, MAGIC) => ByteOrder::Big,
            _ => return None,
        };
        Some(Self { bytes, byte_order })
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
        if self.byte_order == ByteOrder::Big {
            let whole = turned(self.bytes.get(..SUPERBLOCK_BYTES_MAX).unwrap_or(self.bytes));
            let native = UnvalidatedV0 { bytes: &whole, byte_order: ByteOrder::Little };
            let validated = native.validate(device_bytes, found_bytes)?;
            return Ok(Superblock { byte_order: ByteOrder::Big, ..validated });
        }
        self.decode(device_bytes / SECTOR_BYTES, found_bytes / SECTOR_BYTES).map_err(|cause| {
            let claim = matches!(cause, SuperblockFault::Checksum { .. }).then(|| self.claim());
            let claim = claim.flatten();
            SuperblockError { version: Version::V0_90, offset_bytes: found_bytes, cause, claim }
        })
    }

    fn claim(self) -> Option<Claim> {
        let (whole, _) = SuperblockV0::ref_from_prefix(self.bytes).ok()?;
        let slots = whole.constant.raid_disks.get();
        Some(Claim {
            array_uuid: swap_words(stored_uuid(whole)),
            events: whole.counters.events.get(),
            missing: slots.saturating_sub(whole.counters.active_disks.get()),
        })
    }

    fn decode(self, device_sectors: u64, found: u64) -> Result<Superblock, SuperblockFault> {
        let whole = self.whole()?;
        let place = Version::V0_90.super_offset_sectors(device_sectors);
        if place != Some(found) {
            return Err(SuperblockFault::WrongPlace { stored: place.unwrap_or(0), found });
        }
        let level = check::level(whole.constant.level.get())?;
        let array = array_facts(whole, level)?;
        check::shape(&array, V0_DEVICES_MAX)?;
        let reshape = decode_reshape(whole)?;
        let delta = reshape.map(|reshape| reshape.delta_disks);
        let (role, roles) = decode_roles(whole, check::slots_named(array.raid_slots, delta))?;
        let used = check::used_sectors(&array);
        let available =
            if check::has_member_size(level) { found.min(MEMBER_SECTORS_MAX) } else { found };
        if used > available || (used == 0 && check::has_member_size(level)) {
            return Err(SuperblockFault::MemberSize { used, available });
        }
        check::events(whole.counters.events.get())?;
        Ok(Superblock {
            version: Version::V0_90,
            byte_order: ByteOrder::Little,
            device: device_facts(whole, found, available),
            state: state_facts(whole, role, roles),
            intent: IntentFacts {
                bitmap_offset_sectors: (whole.counters.state.get() & STATE_BITMAP != 0)
                    .then_some(BITMAP_OFFSET_SECTORS),
                ..IntentFacts::default()
            },
            reshape,
            array,
            raw: Raw(whole.as_bytes().to_vec()),
        })
    }

    fn whole(&self) -> Result<&'a SuperblockV0, SuperblockFault> {
        let cut_off = SuperblockFault::CutOff {
            present_bytes: self.bytes.len() as u64,
            needed_bytes: SUPERBLOCK_BYTES_MAX as u64,
        };
        let (whole, _) = SuperblockV0::ref_from_prefix(self.bytes).map_err(|_| cut_off)?;
        let (major, minor) =
            (whole.constant.major_version.get(), whole.constant.minor_version.get());
        if major != 0 || !(90..=91).contains(&minor) {
            return Err(SuperblockFault::VersionUnknown { major, minor });
        }
        let stored = whole.counters.checksum.get();
        let computed = checksum_v0(self.bytes).ok_or(cut_off)?;
        if fold_v0(stored) != fold_v0(computed) {
            return Err(SuperblockFault::Checksum { stored, computed });
        }
        Ok(whole)
    }
}

/// The bytes of a new superblock, without the fields that every update writes.
pub(super) fn made(new: &NewV0) -> Vec<u8> {
    let mut whole = SuperblockV0::new_zeroed();
    let (constant, array) = (&mut whole.constant, &new.array);
    constant.magic = U32::new(MAGIC);
    constant.minor_version = U32::new(90);
    let mut words = swap_words(array.uuid).as_chunks::<4>().0.to_vec().into_iter();
    let mut word = || U32::from_bytes(words.next().expect("a UUID is four words"));
    constant.set_uuid0 = word();
    constant.set_uuid_rest = [word(), word(), word()];
    constant.creation_time = U32::new(seconds_in_32(array.creation_time.seconds));
    constant.level = I32::new(array.level.md_number());
    constant.size_kib = U32::new(u32::try_from(array.member_size_sectors / 2).unwrap_or(u32::MAX));
    constant.raid_disks = U32::new(array.raid_slots);
    constant.md_minor = U32::new(array.preferred_minor.unwrap_or(0));
    whole.personality.layout = U32::new(array.layout);
    whole.personality.chunk_bytes = U32::new(array.chunk_sectors.saturating_mul(512));
    let flags = if new.device_flags.write_mostly { DISK_WRITE_MOSTLY } else { 0 }
        | if new.device_flags.failfast { DISK_FAILFAST } else { 0 };
    for ((number, descriptor), (major, minor)) in (0..).zip(&mut whole.disks).zip(new.nodes.iter())
    {
        if (*major, *minor) != (0, 0) {
            descriptor.number = U32::new(number);
            descriptor.raid_disk = U32::new(number);
            descriptor.major = U32::new(*major);
            descriptor.minor = U32::new(*minor);
            descriptor.state = U32::new(if number == new.device_number { flags } else { 0 });
        }
    }
    whole.this_disk.number = U32::new(new.device_number);
    let mut raw = whole.as_bytes().to_vec();
    let number = usize::try_from(new.device_number).ok();
    let own = number.and_then(|number| new.roles.get(number)).copied();
    patch(
        &mut raw,
        &SuperblockUpdate {
            events: new.events,
            update_time: array.creation_time,
            resync_offset: new.resync_offset,
            roles: new.roles.clone(),
            recovery_offset: None,
            is_replacement: false,
            role_of_this: own.unwrap_or(Role::Spare),
        },
    );
    raw
}

fn seconds_in_32(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// Reverses the bytes of each 32-bit word, between mdadm's print order and the stored one.
pub(super) fn swap_words(mut uuid: [u8; 16]) -> [u8; 16] {
    for word in uuid.as_chunks_mut::<4>().0 {
        word.reverse();
    }
    uuid
}

/// Copies a superblock's bytes with each word in the other byte order.
pub(super) fn turned(bytes: &[u8]) -> Vec<u8> {
    let mut words = bytes.to_vec();
    let (whole, _) = words.as_chunks_mut::<4>();
    for word in &mut *whole {
        word.reverse();
    }
    for at in WIDE_AT {
        if let Some([first, second]) = whole.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            std::mem::swap(first, second);
        }
    }
    words
}

fn stored_uuid(whole: &SuperblockV0) -> [u8; 16] {
    let [b, c, d] = whole.constant.set_uuid_rest;
    let mut uuid = [0; 16];
    for (to, word) in
        uuid.as_chunks_mut::<4>().0.iter_mut().zip([whole.constant.set_uuid0, b, c, d])
    {
        *to = word.to_bytes();
    }
    uuid
}

fn chunk_sectors(bytes: u32) -> Result<u32, SuperblockFault> {
    if !bytes.is_multiple_of(512) {
        return Err(SuperblockFault::Chunk { sectors: bytes / 512 });
    }
    Ok(bytes / 512)
}

fn array_facts(
    whole: &SuperblockV0,
    level: braid_geometry::Level,
) -> Result<ArrayFacts, SuperblockFault> {
    Ok(ArrayFacts {
        uuid: swap_words(stored_uuid(whole)),
        name: String::new(),
        creation_time: seconds(whole.constant.creation_time),
        level,
        layout: whole.personality.layout.get(),
        chunk_sectors: chunk_sectors(whole.personality.chunk_bytes.get())?,
        member_size_sectors: u64::from(whole.constant.size_kib.get()) * 2,
        raid_slots: whole.constant.raid_disks.get(),
        preferred_minor: Some(whole.constant.md_minor.get()),
        logical_block_bytes: None,
    })
}

fn seconds(value: U32) -> Timestamp {
    Timestamp { seconds: u64::from(value.get()), microseconds: 0 }
}

/// This device's role, then every device's. Unused descriptors count as spares, as in 1.x.
fn decode_roles(whole: &SuperblockV0, slots: u32) -> Result<(Role, Vec<Role>), SuperblockFault> {
    let mut roles = Vec::with_capacity(whole.disks.len());
    for (device, descriptor) in (0..).zip(&whole.disks) {
        roles.push(role_of(descriptor, device, slots)?);
    }
    let number = whole.this_disk.number.get();
    let role = usize::try_from(number).ok().and_then(|number| roles.get(number).copied());
    let out_of_range = SuperblockFault::RoleOutOfRange {
        device: number,
        role: whole.this_disk.raid_disk.get(),
        slots,
    };
    Ok((role.ok_or(out_of_range)?, roles))
}

/// Reads a descriptor's role as md does. The bit for faulty takes precedence, then the bit for in
/// sync. An active device without sync is a spare, except during a reshape.
fn role_of(descriptor: &Descriptor, device: u32, slots: u32) -> Result<Role, SuperblockFault> {
    let (state, slot) = (descriptor.state.get(), descriptor.raid_disk.get());
    if state & (DISK_FAULTY | DISK_REMOVED) != 0 {
        return Ok(Role::Faulty);
    }
    if state & DISK_JOURNAL != 0 {
        return Err(SuperblockFault::Contradiction(
            "a journal device in an array without a journal",
        ));
    }
    if state & DISK_SYNC == 0 {
        return Ok(Role::Spare);
    }
    let in_range = u16::try_from(slot).ok().filter(|_| slot < slots);
    in_range.map(Role::Active).ok_or(SuperblockFault::RoleOutOfRange { device, role: slot, slots })
}

fn device_facts(whole: &SuperblockV0, found: u64, available: u64) -> DeviceFacts {
    DeviceFacts {
        number: whole.this_disk.number.get(),
        uuid: [0; 16],
        super_offset_sectors: found,
        data_offset_sectors: 0,
        data_size_sectors: available,
        recovery_offset_sectors: None,
        bad_block_log: None,
        corrected_read_errors: 0,
        flags: flags_of(whole),
    }
}

fn state_facts(whole: &SuperblockV0, role: Role, roles: Vec<Role>) -> StateFacts {
    let counters = &whole.counters;
    let resync_offset = if counters.state.get() & STATE_CLEAN != 0 {
        u64::MAX
    } else if counters.events == counters.checkpoint_events {
        u64::from(counters.recovery_cp.get())
    } else {
        0
    };
    StateFacts {
        events: counters.events.get(),
        update_time: seconds(counters.update_time),
        log_counts: (whole.reshape.stamp.get() == LOG_STAMP).then_some(LogHome::File),
        resync_offset,
        features: Features::default(),
        role,
        roles,
        reserved_bytes_in_use: false,
    }
}

fn decode_reshape(whole: &SuperblockV0) -> Result<Option<Reshape>, SuperblockFault> {
    if whole.constant.minor_version.get() < 91 {
        return Ok(None);
    }
    let raw = &whole.reshape;
    check::sectors("reshape_position", raw.position.get())?;
    Ok(Some(Reshape {
        position_sectors: raw.position.get(),
        delta_disks: raw.delta_disks.get(),
        new_level: check::level(raw.new_level.get())?,
        new_layout: raw.new_layout.get(),
        new_chunk_sectors: chunk_sectors(raw.new_chunk_bytes.get())?,
        new_data_offset_sectors: None,
        backwards: raw.delta_disks.get() < 0,
    }))
}

/// Patches the bytes of a 0.90 superblock. Returns this device's role and flags and every device's
/// role as far as the format can express them.
///
/// A member that is still recovering is written as a spare: the format has no recovery offset.
pub(super) fn patch(raw: &mut [u8], update: &SuperblockUpdate) -> (Role, DeviceFlags, Vec<Role>) {
    assert!(update.roles.len() <= V0_DEVICES_MAX as usize, "0.90 describes at most 27 devices");
    let (whole, _) =
        SuperblockV0::mut_from_prefix(raw).expect("a validated 0.90 superblock has 4096 bytes");
    let own_number = usize::try_from(whole.this_disk.number.get()).unwrap_or(usize::MAX);
    let slots = whole.constant.raid_disks.get();
    let mut roles: Vec<Role> =
        update.roles.iter().copied().chain(std::iter::repeat(Role::Spare)).take(27).collect();
    let recovering = update.recovery_offset.is_some();
    if let Some(own) = roles.get_mut(own_number) {
        *own = if recovering { Role::Spare } else { update.role_of_this };
    }
    for (number, (descriptor, role)) in (0..).zip(whole.disks.iter_mut().zip(&roles)) {
        patch_descriptor(descriptor, number, *role, slots);
    }
    if let Some(own) = whole.disks.get_mut(own_number) {
        // An unused descriptor has number 0 and slot 0: mdadm would take the member for a clone of
        // device 0.
        if own.number != whole.this_disk.number {
            own.number = whole.this_disk.number;
            own.raid_disk = whole.this_disk.number;
        }
        whole.this_disk = *own;
    }
    patch_counts(whole);
    patch_counters(&mut whole.counters, update);
    // A value that is not our stamp is kept.
    if whole.reshape.stamp.get() == LOG_STAMP {
        whole.reshape.stamp = U32::new(0);
    }
    seal(whole);
    let role = roles.get(own_number).copied().unwrap_or(Role::Spare);
    (role, flags_of(whole), roles)
}

pub(super) fn set_bitmap(raw: &mut [u8], is_there: bool) {
    let (whole, _) =
        SuperblockV0::mut_from_prefix(raw).expect("a validated 0.90 superblock has 4096 bytes");
    let state = whole.counters.state.get() & !STATE_BITMAP;
    whole.counters.state = U32::new(state | if is_there { STATE_BITMAP } else { 0 });
    seal(whole);
}

/// Sets the stamp of a parity log in the bitmap file.
pub(super) fn set_log_counts(raw: &mut [u8]) {
    let (whole, _) =
        SuperblockV0::mut_from_prefix(raw).expect("a validated 0.90 superblock has 4096 bytes");
    whole.reshape.stamp = U32::new(LOG_STAMP);
    seal(whole);
}

pub(super) fn set_write_mostly(raw: &mut [u8], number: u32, is_it: bool) {
    let (whole, _) =
        SuperblockV0::mut_from_prefix(raw).expect("a validated 0.90 superblock has 4096 bytes");
    let is_this = whole.this_disk.number.get() == number;
    let own = is_this.then_some(&mut whole.this_disk);
    let listed = usize::try_from(number).ok().and_then(|number| whole.disks.get_mut(number));
    for descriptor in own.into_iter().chain(listed) {
        let others = descriptor.state.get() & !DISK_WRITE_MOSTLY;
        descriptor.state = U32::new(if is_it { others | DISK_WRITE_MOSTLY } else { others });
    }
    seal(whole);
}

/// Rewrites the bytes for one side of a reshape ([`super::reshape_sides`]).
pub(super) fn plain(raw: &mut [u8], (reshape, side): (Reshape, ReshapeSide), slots: u32) {
    let (whole, _) =
        SuperblockV0::mut_from_prefix(raw).expect("a validated 0.90 superblock has 4096 bytes");
    whole.constant.minor_version = U32::new(90);
    whole.constant.raid_disks = U32::new(slots);
    if side == ReshapeSide::After {
        whole.constant.level = I32::new(reshape.new_level.md_number());
        whole.personality.layout = U32::new(reshape.new_layout);
        whole.personality.chunk_bytes = U32::new(reshape.new_chunk_sectors.saturating_mul(512));
    }
    for descriptor in whole.disks.iter_mut().chain([&mut whole.this_disk]) {
        let in_use = DISK_ACTIVE | DISK_SYNC;
        let state = descriptor.state.get();
        if state & (DISK_FAULTY | DISK_REMOVED) == 0 && descriptor.raid_disk.get() >= slots {
            descriptor.state = U32::new(state & !in_use);
        }
    }
    seal(whole);
}

/// Writes another shape ([`super::shape`]); a minor version of 91 marks a reshape.
pub(super) fn put_shape(raw: &mut [u8], shape: &SuperblockShape) {
    let (whole, _) =
        SuperblockV0::mut_from_prefix(raw).expect("a validated 0.90 superblock has 4096 bytes");
    whole.constant.level = I32::new(shape.level.md_number());
    whole.constant.raid_disks = U32::new(shape.raid_slots);
    whole.constant.size_kib =
        U32::new(u32::try_from(shape.member_size_sectors / 2).unwrap_or(u32::MAX));
    whole.personality.layout = U32::new(shape.layout);
    whole.personality.chunk_bytes = U32::new(shape.chunk_sectors.saturating_mul(512));
    whole.constant.minor_version = U32::new(if shape.reshape.is_some() { 91 } else { 90 });
    if let Some(reshape) = shape.reshape {
        let fields = &mut whole.reshape;
        fields.position = U64::new(reshape.position_sectors);
        fields.new_level = I32::new(reshape.new_level.md_number());
        fields.delta_disks = I32::new(reshape.delta_disks);
        fields.new_layout = U32::new(reshape.new_layout);
        fields.new_chunk_bytes = U32::new(reshape.new_chunk_sectors.saturating_mul(512));
    }
    seal(whole);
}

fn seal(whole: &mut SuperblockV0) {
    whole.counters.checksum =
        U32::new(checksum_v0(whole.as_bytes()).expect("4096 bytes are there"));
}

fn flags_of(whole: &SuperblockV0) -> DeviceFlags {
    let number = usize::try_from(whole.this_disk.number.get()).ok();
    let own = number.and_then(|number| whole.disks.get(number));
    let state = own.unwrap_or(&whole.this_disk).state.get();
    DeviceFlags {
        write_mostly: state & DISK_WRITE_MOSTLY != 0,
        failfast: state & DISK_FAILFAST != 0,
    }
}

fn patch_descriptor(descriptor: &mut Descriptor, number: u32, role: Role, slots: u32) {
    let flags = descriptor.state.get() & (DISK_WRITE_MOSTLY | DISK_FAILFAST);
    let before = role_of(descriptor, number, u32::MAX);
    if before == Ok(role) {
        return;
    }
    let (raid_disk, state) = match role {
        Role::Active(slot) => (u32::from(slot), DISK_ACTIVE | DISK_SYNC | flags),
        Role::Spare => (number, flags),
        // A slot without a device gets "removed" as well; a device with a number beyond the slots
        // is only faulty.
        Role::Faulty if number < slots => (number, DISK_FAULTY | DISK_REMOVED),
        Role::Faulty => (number, DISK_FAULTY | flags),
        Role::Journal => panic!("a 0.90 array has no journal device"),
    };
    descriptor.number = U32::new(number);
    descriptor.raid_disk = U32::new(raid_disk);
    descriptor.state = U32::new(state);
    if state & DISK_REMOVED != 0 {
        descriptor.major = U32::new(0);
        descriptor.minor = U32::new(0);
    }
}

/// Counts the descriptors in the same way as md does on each write.
fn patch_counts(whole: &mut SuperblockV0) {
    let unused = |d: &Descriptor| d.state.get() == 0 && d.major.get() == 0 && d.minor.get() == 0;
    let removed = |d: &Descriptor| d.state.get() & DISK_REMOVED != 0;
    let (mut present, mut active, mut spare, mut failed) = (0, 0, 0, 0);
    for descriptor in &whole.disks {
        if removed(descriptor) {
            failed += u32::from(descriptor.state.get() & DISK_FAULTY != 0);
        } else if !unused(descriptor) {
            present += 1;
            let is_active = descriptor.state.get() & DISK_ACTIVE != 0;
            let is_faulty = descriptor.state.get() & DISK_FAULTY != 0;
            active += u32::from(is_active && !is_faulty);
            spare += u32::from(!is_active && !is_faulty);
        }
    }
    whole.constant.nr_disks = U32::new(present);
    whole.counters.active_disks = U32::new(active);
    whole.counters.working_disks = U32::new(active + spare);
    whole.counters.failed_disks = U32::new(failed);
    whole.counters.spare_disks = U32::new(spare);
}

fn patch_counters(counters: &mut Counters, update: &SuperblockUpdate) {
    let clean = update.resync_offset == u64::MAX;
    let state = counters.state.get() & !STATE_CLEAN;
    counters.state = U32::new(state | if clean { STATE_CLEAN } else { 0 });
    counters.events = U64::new(update.events);
    counters.update_time = U32::new(u32::try_from(update.update_time.seconds).unwrap_or(u32::MAX));
    // A checkpoint beyond 32 bits is written as "from the start": more work, never less.
    let checkpoint =
        if clean { u32::MAX } else { u32::try_from(update.resync_offset).unwrap_or(0) };
    counters.recovery_cp = U32::new(checkpoint);
    counters.checkpoint_events = U64::new(if checkpoint == 0 { 0 } else { update.events });
}
