//! The layout of a new member: superblock, data area, bad-block log.
//!
//! ```text
//! 1.2   │ 4 KiB │ superblock │ room for a bitmap │ log │ headroom │ data ...                     │
//! 1.1   │ superblock │ room for a bitmap │ log │     headroom     │ data ...                     │
//! 1.0   │ data ...                    │ room for a bitmap │ log │ superblock │ at least 4 KiB    │
//! ```
//!
//! The numbers are mdadm 4.2's, so that mdadm could have made the same array. Space for a bitmap
//! depends on member size. Headroom for a later reshape is about 0.1 % of the member (at most 128
//! MiB). The data offset is in whole MiB, and a log of 8 sectors follows the space for the bitmap.
//! `tests` compares with numbers from `mdadm --create`, the oracle end to end.

use braid_geometry::Level;
use thiserror::Error;

use crate::bad_blocks::BadBlockLogPlace;
use crate::limits::SECTOR_BYTES;
use crate::superblock::{Version, has_member_size};

const MEBIBYTE: u64 = 2 * 1024;
const LOG_SECTORS: u16 = 8;
/// Unit of raid1's member size, which has no chunk: mdadm uses whole 64 KiB.
const MIRROR_UNIT: u64 = 128;
const AFTER_SUPERBLOCK: u64 = 8;

/// A member to lay out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementRequest {
    /// 1.0, 1.1 or 1.2.
    pub version: Version,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Level of the array.
    pub level: Level,
    /// Sectors per chunk; 0 where the level needs none.
    pub chunk_sectors: u32,
    /// Sectors to use of each member; `None` uses all that fit. Linear and raid0 always use all.
    pub member_size_sectors: Option<u64>,
    /// The data offset; `None` chooses the best for this device. mdadm uses the first member's
    /// offset for all members.
    pub data_offset_sectors: Option<u64>,
}

/// The layout of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The superblock version.
    pub version: Version,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Sector of the superblock.
    pub super_offset_sectors: u64,
    /// First sector of the data area.
    pub data_offset_sectors: u64,
    /// Sectors of the data area.
    pub data_size_sectors: u64,
    /// The most sectors that an array of this level and chunk can use on this device (whole chunks;
    /// raid1: whole 64 KiB). Set for linear and raid0 as well.
    pub usable_sectors: u64,
    /// Sectors that the array uses: the superblock's `size`; 0 for linear and raid0.
    pub member_size_sectors: u64,
    /// The bad-block log, if there is room for one.
    pub bad_block_log: Option<BadBlockLogPlace>,
}

/// Why a device cannot be laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// Version 0.90, which has no layout to choose.
    #[error("version 0.90 is read and updated, not made")]
    Version0,
    /// The device cannot hold the metadata and one chunk of data.
    #[error("a device of {device_bytes} bytes is too small: {needed_bytes} are needed at least")]
    TooSmall {
        /// Bytes of the device.
        device_bytes: u64,
        /// Bytes that would be enough.
        needed_bytes: u64,
    },
    /// The requested size is zero, too large, or not whole chunks.
    #[error("{asked} sectors per member do not fit: whole chunks up to {usable} do")]
    MemberSize {
        /// Sectors requested.
        asked: u64,
        /// Sectors that fit.
        usable: u64,
    },
    /// A given data offset that runs into the superblock.
    #[error(
        "a data offset of {asked} sectors leaves no room for the superblock: {min} is the least"
    )]
    DataOffset {
        /// Sectors requested.
        asked: u64,
        /// The smallest valid offset.
        min: u64,
    },
}

/// Chooses the same layout as `mdadm --create`.
///
/// # Errors
/// Version 0.90, a device that is too small, or a size or offset that does not fit.
pub fn placement(request: &PlacementRequest) -> Result<Placement, PlacementError> {
    let device_sectors = request.device_bytes / SECTOR_BYTES;
    if !request.version.is_v1() {
        return Err(PlacementError::Version0);
    }
    let reserved = reserved_sectors(request, device_sectors)?;
    let unit = match request.level {
        Level::Raid1 => MIRROR_UNIT,
        _ => u64::from(request.chunk_sectors).max(2),
    };
    let too_small = PlacementError::TooSmall {
        device_bytes: request.device_bytes,
        needed_bytes: reserved.total.saturating_add(unit.max(16)).saturating_mul(SECTOR_BYTES),
    };
    let super_offset = request.version.super_offset_sectors(device_sectors).ok_or(too_small)?;
    // For a superblock at the device's end, mdadm first rounds the device down to 4 KiB.
    let whole = if request.version == Version::V1_0 { device_sectors & !7 } else { device_sectors };
    let available = whole.checked_sub(reserved.total).ok_or(too_small)?;
    let usable = available - available % unit;
    if usable < unit.max(16) {
        return Err(too_small);
    }
    let member_size = if has_member_size(request.level) {
        let asked = request.member_size_sectors.unwrap_or(usable);
        if asked == 0 || asked > usable || !asked.is_multiple_of(unit) {
            return Err(PlacementError::MemberSize { asked, usable });
        }
        asked
    } else {
        0
    };
    let (data_size, bad_block_log) = if request.version == Version::V1_0 {
        let behind = super_offset - reserved.data_offset;
        let room = (bitmap_space(member_size) + u64::from(LOG_SECTORS)).min(behind - member_size);
        (behind - room, log_at(-i32::from(LOG_SECTORS)))
    } else {
        let log = log_after(super_offset, reserved.data_offset, bitmap_space(member_size));
        (device_sectors - reserved.data_offset, log)
    };
    Ok(Placement {
        version: request.version,
        device_bytes: request.device_bytes,
        super_offset_sectors: super_offset,
        data_offset_sectors: reserved.data_offset,
        data_size_sectors: data_size,
        usable_sectors: usable,
        member_size_sectors: member_size,
        bad_block_log,
    })
}

/// Sectors that are not available for data.
struct ReservedSpace {
    total: u64,
    data_offset: u64,
}

fn reserved_sectors(
    request: &PlacementRequest,
    device_sectors: u64,
) -> Result<ReservedSpace, PlacementError> {
    let space = bitmap_space(device_sectors);
    if request.version == Version::V1_0 {
        // A reshape may have moved the data away from the start of the device.
        let data_offset = request.data_offset_sectors.unwrap_or(0);
        let behind = 16 + u64::from(LOG_SECTORS) + space;
        return Ok(ReservedSpace { total: data_offset.saturating_add(behind), data_offset });
    }
    let min = request.version.super_offset_sectors(u64::MAX).unwrap_or(0) + AFTER_SUPERBLOCK;
    let chosen = || {
        (24 + space + headroom(device_sectors, request.chunk_sectors)).next_multiple_of(MEBIBYTE)
    };
    let data_offset = request.data_offset_sectors.unwrap_or_else(chosen);
    if data_offset < min {
        return Err(PlacementError::DataOffset { asked: data_offset, min });
    }
    Ok(ReservedSpace { total: data_offset, data_offset })
}

/// Sectors kept free for a bitmap: 4 KiB, 64 KiB beyond 8 GiB, 128 KiB beyond 200 GiB.
fn bitmap_space(sectors: u64) -> u64 {
    const GIBIBYTE: u64 = 1024 * MEBIBYTE;
    match sectors {
        0..128 => 0,
        _ if sectors - 128 >= 200 * GIBIBYTE => 256,
        _ if sectors - 8 > 8 * GIBIBYTE => 128,
        _ => 8,
    }
}

/// Sectors kept free so that a reshape can move the data: 128 MiB, halved while it is more than
/// 1/1024 of the device and at least four chunks.
fn headroom(device_sectors: u64, chunk_sectors: u32) -> u64 {
    let mut headroom = 128 * MEBIBYTE;
    while headroom << 10 > device_sectors
        && (chunk_sectors == 0 || headroom / 2 >= 2 * u64::from(chunk_sectors))
        && headroom > 0
    {
        headroom /= 2;
    }
    headroom
}

/// The place of a bad-block log: after the superblock and the space for a bitmap, or right before
/// the data. `None` if it fits neither.
fn log_after(super_offset: u64, data_offset: u64, space: u64) -> Option<BadBlockLogPlace> {
    let log = u64::from(LOG_SECTORS);
    let behind_bitmap = AFTER_SUPERBLOCK + space;
    let offset = if data_offset >= super_offset + behind_bitmap + log {
        behind_bitmap
    } else if data_offset >= super_offset + 16 {
        data_offset - log - super_offset
    } else {
        return None;
    };
    log_at(i32::try_from(offset).ok()?)
}

fn log_at(offset_sectors: i32) -> Option<BadBlockLogPlace> {
    Some(BadBlockLogPlace { offset_sectors, size_sectors: LOG_SECTORS, shift: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(version: Version, device_bytes: u64) -> PlacementRequest {
        PlacementRequest {
            version,
            device_bytes,
            level: Level::Raid5,
            chunk_sectors: 1024,
            member_size_sectors: None,
            data_offset_sectors: None,
        }
    }

    #[test]
    fn data_that_moved_away_from_the_start_ends_before_the_metadata() {
        let from_start = PlacementRequest {
            member_size_sectors: Some(4096),
            ..request(Version::V1_0, 16 << 20)
        };
        let moved = PlacementRequest { data_offset_sectors: Some(2048), ..from_start };
        let (from_start, moved) = (placement(&from_start).unwrap(), placement(&moved).unwrap());
        let end = |one: &Placement| one.data_offset_sectors + one.data_size_sectors;
        assert_eq!((moved.data_offset_sectors, end(&moved)), (2048, end(&from_start)));
        assert_eq!(moved.bad_block_log, from_start.bad_block_log);
    }

    /// Offsets from published `--examine` reports of arrays that mdadm made: 2048 for small
    /// members, 34816 for 18..35 GiB, 264192 for terabytes.
    #[test]
    fn data_offsets_are_those_of_mdadm() {
        let offset = |bytes| placement(&request(Version::V1_2, bytes)).unwrap().data_offset_sectors;
        assert_eq!(offset(64 << 20), 4096);
        assert_eq!(offset(20 << 30), 34816);
        assert_eq!(offset(1 << 40), 264_192);
        let one = PlacementRequest {
            level: Level::Raid1,
            chunk_sectors: 0,
            ..request(Version::V1_2, 64 << 20)
        };
        assert_eq!(placement(&one).unwrap().data_offset_sectors, 2048);
    }

    /// Arrays that mdadm 4.2 made in a guest: version, level, device sectors, chunk, size. Then
    /// mdadm's choices: superblock, data offset, data size, log.
    #[test]
    fn places_are_those_of_arrays_that_mdadm_made() {
        use Level::{Linear, Raid0, Raid1, Raid6};
        type Inputs = (Version, Level, u64, u32, Option<u64>);
        let made: [(Inputs, [u64; 3], i32); 8] = [
            ((Version::V1_2, Raid1, 6232, 0, None), [8, 2048, 4184], 16),
            ((Version::V1_2, Raid6, 5528, 128, None), [8, 2048, 3480], 16),
            ((Version::V1_2, Raid6, 6488, 512, None), [8, 2048, 4440], 16),
            ((Version::V1_2, Raid0, 6232, 24, None), [8, 2048, 4184], 8),
            ((Version::V1_2, Raid0, 10328, 2048, None), [8, 6144, 4184], 8),
            ((Version::V1_1, Linear, 6232, 128, None), [0, 2048, 4184], 8),
            ((Version::V1_0, Raid1, 6232, 0, None), [6216, 0, 6200], -8),
            ((Version::V1_0, Raid0, 6232, 32, None), [6216, 0, 6208], -8),
        ];
        for ((version, level, sectors, chunk_sectors, member_size_sectors), places, log) in made {
            let place = placement(&PlacementRequest {
                level,
                chunk_sectors,
                member_size_sectors,
                ..request(version, sectors * 512)
            })
            .unwrap();
            let chosen =
                [place.super_offset_sectors, place.data_offset_sectors, place.data_size_sectors];
            assert_eq!((chosen, place.bad_block_log), (places, log_at(log)), "{version} {level:?}");
        }
    }

    #[test]
    fn the_log_is_behind_the_space_for_a_bitmap() {
        let log = |request| placement(&request).unwrap().bad_block_log.unwrap().offset_sectors;
        assert_eq!(log(request(Version::V1_2, 64 << 20)), 16);
        assert_eq!(log(request(Version::V1_2, 20 << 30)), 136);
        assert_eq!(log(request(Version::V1_2, 1 << 40)), 264);
        assert_eq!(log(request(Version::V1_0, 64 << 20)), -8);
        // raid0 records no member size, and so reserves no space for a bitmap.
        assert_eq!(
            log(PlacementRequest { level: Level::Raid0, ..request(Version::V1_2, 64 << 20) }),
            8
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_number_that_would() {
        let tiny = placement(&request(Version::V1_2, 1 << 20));
        let Err(PlacementError::TooSmall { needed_bytes, .. }) = tiny else { panic!("{tiny:?}") };
        assert!(placement(&request(Version::V1_2, needed_bytes)).is_ok());
        assert!(placement(&request(Version::V1_2, needed_bytes - 512)).is_err());
        assert_eq!(placement(&request(Version::V0_90, 64 << 20)), Err(PlacementError::Version0));
        let asked = PlacementRequest {
            member_size_sectors: Some(1 << 40),
            ..request(Version::V1_2, 64 << 20)
        };
        assert!(matches!(placement(&asked), Err(PlacementError::MemberSize { .. })));
        let low =
            PlacementRequest { data_offset_sectors: Some(15), ..request(Version::V1_2, 64 << 20) };
        assert_eq!(placement(&low), Err(PlacementError::DataOffset { asked: 15, min: 16 }));
    }

    proptest! {
        #[test]
        fn nothing_overlaps(
            which in 1_usize..4, device_bytes in 0_u64..1 << 46, chunk_shift in 3_u32..12, level in 0_usize..7,
        ) {
            let request = PlacementRequest {
                level: Level::ALL[level],
                chunk_sectors: 1 << chunk_shift,
                ..request(Version::ALL[which], device_bytes)
            };
            let Ok(place) = placement(&request) else {
                prop_assert!(device_bytes < 1 << 28);
                return Ok(());
            };
            let data = place.data_offset_sectors..place.data_offset_sectors + place.data_size_sectors;
            prop_assert!(data.end <= device_bytes / 512);
            prop_assert!(place.member_size_sectors <= place.usable_sectors);
            prop_assert!(place.usable_sectors <= place.data_size_sectors);
            let log = place.bad_block_log.unwrap();
            let log = place.super_offset_sectors.checked_add_signed(i64::from(log.offset_sectors)).unwrap();
            for (start, length) in [(place.super_offset_sectors, 8), (log, 8)] {
                prop_assert!(start + length <= data.start || data.end <= start);
                prop_assert!(start + length <= device_bytes / 512);
            }
            prop_assert!(log.abs_diff(place.super_offset_sectors) >= 8);
        }
    }
}
