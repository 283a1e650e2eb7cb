//! The places of a member's write-intent bitmap and partial parity log, and their fields in the
//! superblock.

use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::U32;

use super::facts::{Features, Version};
use super::v1::Fixed;
use super::write::seal;
use super::{Superblock, v0_90};
use crate::bitmap::BitmapSuperblock;
use crate::limits::{SECTOR_BYTES, V0_RESERVED_SECTORS};
use crate::log_place::PPL_HEADER_SECTORS;
use crate::ppl::PplPlace;

/// Sectors from a superblock of version 1.1 or 1.2 to mdadm's bitmap. Version 0.90 allows no other
/// place.
const BITMAP_OFFSET_SECTORS: i32 = 8;
/// The least bytes per bit that mdadm chooses by default.
const CHUNK_BYTES_MIN: u32 = 64 << 20;
/// The most bytes per bit: the largest power of two that the field holds.
const CHUNK_BYTES_MAX: u32 = 1 << 31;

/// Sectors of a partial parity log if there is enough room: 1 MiB, as with mdadm.
const PPL_SECTORS_MAX: u64 = 2048;

/// Room for a bitmap on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapPlace {
    /// Sectors from the superblock to the bitmap; negative if the bitmap is before it.
    pub offset_sectors: i32,
    /// Free sectors at that place.
    pub room_sectors: u64,
}

impl BitmapPlace {
    /// Bytes per bit of a bitmap for `sectors`: `asked`, or mdadm's choice. `None` if the bitmap
    /// does not fit.
    #[must_use]
    pub fn chunk_bytes(&self, sectors: u64, asked: Option<u32>) -> Option<u32> {
        let fits = |chunk_bytes: &u32| {
            BitmapSuperblock::new(sectors, *chunk_bytes, 0).area_sectors() <= self.room_sectors
        };
        if let Some(asked) = asked {
            return Some(asked).filter(fits);
        }
        let sizes = std::iter::successors(Some(CHUNK_BYTES_MIN), |bytes| bytes.checked_mul(2));
        sizes.take_while(|bytes| *bytes <= CHUNK_BYTES_MAX).find(fits)
    }
}

impl Superblock {
    /// Byte offset of the bitmap on the device.
    #[must_use]
    pub fn bitmap_offset_bytes(&self) -> Option<u64> {
        let from_superblock = i64::from(self.intent.bitmap_offset_sectors?);
        let sector = self.device.super_offset_sectors.checked_add_signed(from_superblock)?;
        sector.checked_mul(SECTOR_BYTES)
    }

    /// Sectors from the bitmap's start to the next area on the device; `None` without a bitmap.
    #[must_use]
    pub fn bitmap_room_sectors(&self) -> Option<u64> {
        let start = self.bitmap_offset_bytes()? / SECTOR_BYTES;
        Some(self.room_from(start))
    }

    /// Sectors for a bitmap: at the place of the existing bitmap, or without one at the first
    /// place where a new bitmap fits. 0 if the member has no such place.
    #[must_use]
    pub fn room_for_bitmap(&self) -> u64 {
        let place = || self.bitmap_place().map(|place| place.room_sectors);
        self.bitmap_room_sectors().or_else(place).unwrap_or(0)
    }

    /// A possible place for a bitmap; `None` without room for its superblock.
    #[must_use]
    pub fn bitmap_place(&self) -> Option<BitmapPlace> {
        self.places().next()
    }

    /// Places with room for a bitmap or a log, the usual one first.
    fn places(&self) -> impl Iterator<Item = BitmapPlace> {
        let device = &self.device;
        let near = i64::from(BITMAP_OFFSET_SECTORS);
        // The bad-block log follows the space for a bitmap if space was reserved; otherwise the log
        // is in front.
        let log = device.bad_block_log.filter(|log| log.offset_sectors > 0);
        let behind_log = log.map(|log| i64::from(log.offset_sectors) + i64::from(log.size_sectors));
        // A place between data and superblock, before the bad-block log.
        let data_end = device.data_offset_sectors + device.data_size_sectors;
        let before = device.super_offset_sectors.checked_sub(data_end);
        let before = before.and_then(|sectors| i64::try_from(sectors).ok()).map(|sectors| -sectors);
        let offsets = match self.version {
            Version::V0_90 => [Some(near), None],
            Version::V1_0 => [before, None],
            Version::V1_1 | Version::V1_2 => [Some(near), behind_log],
        };
        let place = move |offset: i64| {
            let start = device.super_offset_sectors.checked_add_signed(offset)?;
            let (offset_sectors, room_sectors) =
                (i32::try_from(offset).ok()?, self.room_from(start));
            (room_sectors > 0).then_some(BitmapPlace { offset_sectors, room_sectors })
        };
        offsets.into_iter().flatten().filter_map(place)
    }

    /// Sectors from `start` to the next area: data, superblock, bad-block log, or the end.
    fn room_from(&self, start: u64) -> u64 {
        let device = &self.device;
        let log = self.bad_block_log_offset_bytes().map(|offset| offset / SECTOR_BYTES);
        let data = device.data_offset_sectors;
        let own_end = device.super_offset_sectors + self.written_bytes() as u64 / SECTOR_BYTES;
        let is_taken = (device.super_offset_sectors..own_end).contains(&start)
            || (data..data.saturating_add(device.data_size_sectors)).contains(&start);
        if is_taken {
            return 0;
        }
        // Without a later area: 0.90 and 1.0 keep this much at the end of the device.
        let end = match self.version {
            Version::V0_90 => device.super_offset_sectors + V0_RESERVED_SECTORS,
            Version::V1_0 | Version::V1_1 | Version::V1_2 => device.super_offset_sectors + 8,
        };
        let log_end =
            log.zip(device.bad_block_log).map(|(start, log)| start + u64::from(log.size_sectors));
        let is_in_log = log.zip(log_end).is_some_and(|(first, end)| (first..end).contains(&start));
        if is_in_log {
            return 0;
        }
        let neighbours = [Some(device.super_offset_sectors), Some(data), log];
        let behind = neighbours.into_iter().flatten().filter(|sector| *sector >= start);
        behind.min().unwrap_or(end).saturating_sub(start)
    }

    /// A possible place for a partial parity log; `None` if there is no room that the superblock's
    /// field can express.
    #[must_use]
    pub fn ppl_place(&self) -> Option<PplPlace> {
        let largest = self.places().max_by_key(|place| place.room_sectors.min(PPL_SECTORS_MAX))?;
        let BitmapPlace { offset_sectors, room_sectors } = largest;
        let sectors = room_sectors.min(PPL_SECTORS_MAX);
        let size_sectors = u16::try_from(sectors - sectors % PPL_HEADER_SECTORS).ok()?;
        let offset_sectors = i16::try_from(offset_sectors).ok()?;
        let is_v1 = self.version.is_v1();
        (is_v1 && size_sectors > 0).then_some(PplPlace {
            offset_sectors,
            size_sectors,
            multiple: false,
        })
    }

    /// The place of the partial parity log that the superblock names, whatever the log's size. If
    /// the superblock names none, a place for a log of `size_sectors`; `None` without room.
    #[must_use]
    pub fn ppl_place_of(&self, size_sectors: u16) -> Option<PplPlace> {
        let fits = |place: &PplPlace| place.size_sectors >= size_sectors;
        let free = || self.ppl_place().filter(fits).map(|place| PplPlace { size_sectors, ..place });
        self.intent.ppl.or_else(free)
    }

    /// Makes the superblock name a partial parity log at `place`, or none. If it already names a
    /// log and `place` is `Some`, nothing changes.
    ///
    /// # Panics
    /// As [`Self::set_ppl`].
    pub fn name_ppl(&mut self, place: Option<PplPlace>) {
        match place {
            Some(place) if self.intent.ppl.is_none() => self.set_ppl(place),
            None if self.intent.ppl.is_some() => self.forget_ppl(),
            _ => {}
        }
    }

    fn forget_ppl(&mut self) {
        self.intent.ppl = None;
        let features = self.state.features.without(Features::PPL);
        self.state.features = features.without(Features::MULTIPLE_PPLS);
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.identity.feature_map = U32::new(self.state.features.0);
        head.shape.intent = [0; 4];
        seal(&mut self.raw.0);
    }

    /// Makes the superblock name a partial parity log at `place`, from [`Self::ppl_place`].
    ///
    /// # Panics
    /// On metadata 0.90, or an array with a bitmap or a journal.
    pub fn set_ppl(&mut self, place: PplPlace) {
        let is_other = self.intent.bitmap_offset_sectors.is_some() || self.intent.journal.is_some();
        assert!(self.version.is_v1() && !is_other, "a superblock names one of them");
        self.intent.ppl = Some(place);
        let feature = if place.multiple { Features::MULTIPLE_PPLS } else { Features::PPL };
        self.state.features = self.state.features.with(feature);
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.identity.feature_map = U32::new(self.state.features.0);
        let [low, high] = place.offset_sectors.to_le_bytes();
        let [size_low, size_high] = place.size_sectors.to_le_bytes();
        head.shape.intent = [low, high, size_low, size_high];
        seal(&mut self.raw.0);
    }

    /// Sectors from the superblock to its bitmap, or to a possible place; `None` without room.
    #[must_use]
    pub fn bitmap_offset(&self) -> Option<i32> {
        let place = || Some(self.bitmap_place()?.offset_sectors);
        self.intent.bitmap_offset_sectors.or_else(place)
    }

    /// Makes the superblock name a bitmap at [`Self::bitmap_offset`] if `is_there`, otherwise none.
    /// Nothing changes if it already does.
    ///
    /// # Panics
    /// As [`Self::set_bitmap`].
    pub fn name_bitmap(&mut self, is_there: bool) {
        if self.intent.bitmap_offset_sectors.is_some() == is_there {
            return;
        }
        let offset = is_there.then(|| self.bitmap_offset().expect("there is room for a bitmap"));
        self.set_bitmap(offset);
    }

    /// Makes the superblock name a bitmap at this offset ([`Self::bitmap_place`]), or none.
    ///
    /// # Panics
    /// Without room for a bitmap there, or on an array with a PPL.
    pub fn set_bitmap(&mut self, offset_sectors: Option<i32>) {
        assert!(self.intent.ppl.is_none(), "a superblock names a PPL or a bitmap");
        self.intent.bitmap_offset_sectors = offset_sectors;
        assert!(self.bitmap_room_sectors() != Some(0), "there is room for the bitmap");
        if !self.version.is_v1() {
            let is_there = offset_sectors.is_some();
            assert!(
                offset_sectors.is_none_or(|at| at == BITMAP_OFFSET_SECTORS),
                "0.90 has one place"
            );
            return v0_90::set_bitmap(&mut self.raw.0, is_there);
        }
        let features = self.state.features.without(Features::BITMAP);
        let features =
            if offset_sectors.is_some() { features.with(Features::BITMAP) } else { features };
        self.state.features = features;
        let (head, _) = Fixed::mut_from_prefix(&mut self.raw.0).expect("validated");
        head.identity.feature_map = U32::new(features.0);
        head.shape.intent = offset_sectors.unwrap_or(0).to_le_bytes();
        seal(&mut self.raw.0);
    }
}
