//! Damaged or displaced superblocks that their own checksum identifies.
//!
//! The checksum covers the whole superblock, and version 1 also records its sector on the device.
//! So some damage can be recognised:
//!
//! ```text
//!   the magic alone is gone (wipefs)  ─▶ the sum fits with the magic restored
//!   the table of partitions is gone   ─▶ the member begins where found, less its recorded sector
//!   the device was enlarged (1.0)     ─▶ the same: it stood at the end of a shorter device
//!   array-wide bytes are wrong        ─▶ the sum fits with those bytes of a sound member
//!   one bit is wrong                  ─▶ the sum fits with it turned
//! ```
//!
//! A 1.0 superblock is at the end of its device. If the sum fits with several single bits, braid
//! turns the bit that makes the superblock agree with the others.
//!
//! The result is evidence only: an operator decides whether to believe it. Metadata 0.90 does not
//! record its place, so only its magic can be restored.
//!
//! Invariants:
//! - a result passes every check of a sound superblock
//!   `[check: what_nearly_stands_is_sound_once_it_is_mended]`;
//! - bytes without a superblock do not become one by mending one flaw
//!   `[check: what_is_far_from_a_superblock_is_none]`.

use core::ops::Range;

use crate::checksum::checksum_v1;
use crate::limits::{MAGIC, SECTOR_BYTES, SUPERBLOCK_BYTES_MAX, V1_FIXED_BYTES, V1_ROLES_MAX};
use crate::superblock::{Superblock, UnvalidatedV0, UnvalidatedV1, Version};

/// Bytes that are the same on all members: the array's identity and shape.
const OF_ARRAY: Range<usize> = 16..96;
/// Bytes that are the same on all members after an update: the update's time and the event count.
const OF_STATE: Range<usize> = 192..216;
const MAJOR_AT: usize = 4;
const DATA_OFFSET_AT: usize = 128;
const DATA_SIZE_AT: usize = 136;
const SUPER_OFFSET_AT: usize = 144;
const CHECKSUM_AT: usize = 216;
const ROLE_COUNT_AT: usize = 220;
/// Sectors from a 1.0 superblock to the end of its device; the device may have up to seven more.
const V1_0_SECTORS_TO_END: u64 = 16;

/// A damaged or displaced superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedSuperblock {
    /// Byte offset on the device where the superblock was found.
    pub found_bytes: u64,
    /// Byte offset on the device where its member begins, according to the superblock.
    pub start_bytes: u64,
    /// Length of the member in bytes, according to the superblock; the device may be shorter.
    pub length_bytes: u64,
    /// The flaw, which `superblock` no longer has.
    pub flaw: Flaw,
    /// The mended superblock, with its place counted from the start of its member.
    pub superblock: Superblock,
}

/// The flaw of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The superblock is sound, but at a place where md does not look.
    Place,
    /// The magic is gone.
    Magic,
    /// Array-wide bytes were wrong: the number of bytes that differed from the other members'.
    Bytes(usize),
    /// One bit was wrong.
    Bit,
}

/// Whether bytes may begin a superblock: a cheap test for every sector of a search.
#[must_use]
pub fn may_be_damaged(bytes: &[u8]) -> bool {
    let is_magic = u32_at(bytes, 0) == Some(MAGIC);
    let is_major = u32_at(bytes, MAJOR_AT) == Some(1);
    is_major && (is_magic || checksum_of(&with_magic(bytes)))
}

/// Mends the bytes at `found_bytes` of a device of `device_bytes` into a superblock of version 1,
/// if the bytes have only one flaw. `bytes` should be 4096 long, or reach the end of the device.
/// `others` are sound superblocks, possibly of the same array.
#[must_use]
pub fn recognise_damaged(
    bytes: &[u8],
    device_bytes: u64,
    found_bytes: u64,
    others: &[&Superblock],
) -> Option<DamagedSuperblock> {
    let bytes = bytes.get(..bytes.len().min(SUPERBLOCK_BYTES_MAX))?;
    let has_magic = u32_at(bytes, 0)? == MAGIC;
    let whole = with_magic(bytes);
    let place = (device_bytes, found_bytes);
    if checksum_of(&whole) {
        return placed(&whole, place, if has_magic { Flaw::Place } else { Flaw::Magic });
    }
    if !has_magic {
        return None;
    }
    let by_others = others.iter().find_map(|other| {
        let tries = [&[OF_ARRAY][..], &[OF_ARRAY, OF_STATE][..]];
        tries.into_iter().find_map(|parts| {
            let mended = with_parts(&whole, &other.to_bytes(), parts)?;
            let wrong = mended.iter().zip(&whole).filter(|(one, other)| one != other).count();
            let is_it = checksum_of(&mended);
            is_it.then(|| placed(&mended, place, Flaw::Bytes(wrong))).flatten()
        })
    });
    by_others.or_else(|| with_one_bit(&whole, place, others))
}

/// Mends a 0.90 superblock that lacks only its magic; `bytes` start at its regular place.
#[must_use]
pub fn recognise_damaged_v0(bytes: &[u8], device_bytes: u64) -> Option<DamagedSuperblock> {
    let sector = Version::V0_90.super_offset_sectors(device_bytes / SECTOR_BYTES)?;
    let found_bytes = sector.checked_mul(SECTOR_BYTES)?;
    if UnvalidatedV0::recognise(bytes).is_some() {
        return None;
    }
    [MAGIC.to_le_bytes(), MAGIC.to_be_bytes()].into_iter().find_map(|magic| {
        let whole = starting_with(magic, bytes);
        let superblock =
            UnvalidatedV0::recognise(&whole)?.validate(device_bytes, found_bytes).ok()?;
        let (start_bytes, length_bytes, flaw) = (0, device_bytes, Flaw::Magic);
        Some(DamagedSuperblock { found_bytes, start_bytes, length_bytes, flaw, superblock })
    })
}

/// Turns single bits, those of the checksum first, until the superblock passes. Of several
/// candidates, the superblock that agrees best with the superblocks in `others` wins.
fn with_one_bit(
    whole: &[u8],
    place: (u64, u64),
    others: &[&Superblock],
) -> Option<DamagedSuperblock> {
    let mut best: Option<([bool; 5], DamagedSuperblock)> = None;
    let sum = CHECKSUM_AT..CHECKSUM_AT + 4;
    let roles = usize::try_from(u32_at(whole, ROLE_COUNT_AT)?.min(V1_ROLES_MAX)).ok()?;
    let covered = (MAJOR_AT + 4..V1_FIXED_BYTES + 2 * roles).filter(|at| !sum.contains(at));
    let at = sum.clone().chain(covered);
    // One copy of the bytes serves for all bits: a copy for each bit would cost 400 MiB on hostile
    // input.
    let mut turned = whole.to_vec();
    for (at, bit) in at.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        *turned.get_mut(at)? ^= 1 << bit;
        let found = checksum_of(&turned).then(|| placed(&turned, place, Flaw::Bit)).flatten();
        *turned.get_mut(at)? ^= 1 << bit;
        let Some(found) = found else { continue };
        let of_array = others.iter().filter(|it| it.array == found.superblock.array);
        let Superblock { version, device, state, .. } = &found.superblock;
        let agrees = [
            of_array.clone().next().is_some(),
            found.start_bytes == 0
                && found.length_bytes <= place.0
                && of_array.clone().all(|it| it.version == *version),
            of_array.clone().all(|it| it.device.number != device.number),
            of_array.clone().any(|it| it.device.data_offset_sectors == device.data_offset_sectors),
            of_array.clone().any(|it| it.state.events == state.events),
        ];
        if best.as_ref().is_none_or(|(so_far, _)| agrees > *so_far) {
            best = Some((agrees, found));
        }
    }
    best.map(|(_, found)| found)
}

/// Validates the superblock against a device whose start and end are where the superblock says.
fn placed(
    whole: &[u8],
    (device_bytes, found_bytes): (u64, u64),
    flaw: Flaw,
) -> Option<DamagedSuperblock> {
    let own_sector = u64_at(whole, SUPER_OFFSET_AT)?;
    let own_bytes = own_sector.checked_mul(SECTOR_BYTES)?;
    let start_bytes = found_bytes.checked_sub(own_bytes)?;
    let version = match own_sector {
        0 => Version::V1_1,
        8 => Version::V1_2,
        _ => Version::V1_0,
    };
    let to_the_end = device_bytes.checked_sub(start_bytes)?;
    let needed_sectors = match version {
        Version::V1_0 => own_sector.checked_add(V1_0_SECTORS_TO_END)?,
        _ => u64_at(whole, DATA_OFFSET_AT)?.checked_add(u64_at(whole, DATA_SIZE_AT)?)?,
    };
    let needed_bytes = needed_sectors.checked_mul(SECTOR_BYTES)?;
    // A member that begins at the device's start also ends at the device's end, unless its
    // superblock disagrees.
    let is_in_place = version.super_offset_sectors(to_the_end / SECTOR_BYTES) == Some(own_sector);
    let is_whole = start_bytes == 0 && needed_bytes <= to_the_end && is_in_place;
    let length_bytes = if is_whole { to_the_end } else { needed_bytes };
    let superblock = UnvalidatedV1::recognise(whole, version)?;
    let superblock = superblock.validate(length_bytes, own_bytes).ok()?;
    Some(DamagedSuperblock { found_bytes, start_bytes, length_bytes, flaw, superblock })
}

fn with_magic(bytes: &[u8]) -> Vec<u8> {
    starting_with(MAGIC.to_le_bytes(), bytes)
}

fn starting_with(magic: [u8; 4], bytes: &[u8]) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    if let Some(start) = whole.first_chunk_mut::<4>() {
        *start = magic;
    }
    whole
}

fn with_parts(whole: &[u8], other: &[u8], parts: &[Range<usize>]) -> Option<Vec<u8>> {
    let mut mended = whole.to_vec();
    for part in parts {
        mended.get_mut(part.clone())?.copy_from_slice(other.get(part.clone())?);
    }
    Some(mended)
}

fn checksum_of(whole: &[u8]) -> bool {
    let stored = u32_at(whole, CHECKSUM_AT);
    // A block of zeroes has checksum zero, and is no superblock.
    let is_something =
        whole.get(16..V1_FIXED_BYTES).is_some_and(|it| it.iter().any(|byte| *byte != 0));
    is_something && stored.is_some() && checksum_v1(whole) == stored
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
