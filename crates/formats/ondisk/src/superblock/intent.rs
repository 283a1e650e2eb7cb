//! Where a member keeps its write-intent bitmap or its partial parity log, and saying so.

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

/// Sectors from a superblock of version 1.1 or 1.2 to the bitmap that mdadm makes; of 0.90 too, and there always.
const BITMAP_OFFSET_SECTORS: i32 = 8;
/// The least that a bit stands for where nothing else is asked for, as mdadm has it.
const CHUNK_BYTES_MIN: u32 = 64 << 20;
/// The largest power of two that the field holds.
const CHUNK_BYTES_MAX: u32 = 1 << 31;

/// Sectors of a partial parity log where there is room for so many: 1 MiB, as mdadm has it.
const PPL_SECTORS_MAX: u64 = 2048;

/// Room for a bitmap on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapPlace {
    /// Sectors from the superblock; negative is before it.
    pub offset_sectors: i32,
    /// Sectors that are free there.
    pub room_sectors: u64,
}

impl BitmapPlace {
    /// What a bit is to stand for so that the bitmap of `sectors` sectors fits: `asked`, or else as mdadm chooses. None if it does
    /// not fit.
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
    /// Where on the device the bitmap is, if there is one.
    #[must_use]
    pub fn bitmap_offset_bytes(&self) -> Option<u64> {
        let from_superblock = i64::from(self.intent.bitmap_offset_sectors?);
        let sector = self.device.super_offset_sectors.checked_add_signed(from_superblock)?;
        sector.checked_mul(SECTOR_BYTES)
    }

    /// Sectors from the start of the bitmap to what follows it on the device; none without a bitmap.
    #[must_use]
    pub fn bitmap_room_sectors(&self) -> Option<u64> {
        let start = self.bitmap_offset_bytes()? / SECTOR_BYTES;
        Some(self.room_from(start))
    }

    /// Sectors that are free where the bitmap is, or where one would go; 0 where there is no room for any.
    #[must_use]
    pub fn room_for_bitmap(&self) -> u64 {
        let place = || self.bitmap_place().map(|place| place.room_sectors);
        self.bitmap_room_sectors().or_else(place).unwrap_or(0)
    }

    /// Where a bitmap could be kept. None where there is no room for its superblock.
    #[must_use]
    pub fn bitmap_place(&self) -> Option<BitmapPlace> {
        self.places().next()
    }

    /// Where there is room for a bitmap or a log, the usual place first.
    fn places(&self) -> impl Iterator<Item = BitmapPlace> {
        let device = &self.device;
        let near = i64::from(BITMAP_OFFSET_SECTORS);
        // Where space for a bitmap was left there is the log behind it, else in front.
        let log = device.bad_block_log.filter(|log| log.offset_sectors > 0);
        let behind_log = log.map(|log| i64::from(log.offset_sectors) + i64::from(log.size_sectors));
        // Between data and superblock, before the bad-block log.
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

    /// Sectors from one of the device on until something else begins: data, superblock, bad-block log, or the end.
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
        // Where nothing follows: 0.90 keeps so much at the end of the device, and 1.0 this.
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

    /// Where a partial parity log could be kept. None where there is no room for one, or the superblock could not name the place.
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

    /// Where a partial parity log of so many sectors is, if one is named, whatever its size; or where it would be. None if there is no
    /// room for it.
    #[must_use]
    pub fn ppl_place_of(&self, size_sectors: u16) -> Option<PplPlace> {
        let fits = |place: &PplPlace| place.size_sectors >= size_sectors;
        let free = || self.ppl_place().filter(fits).map(|place| PplPlace { size_sectors, ..place });
        self.intent.ppl.or_else(free)
    }

    /// Says that there is a partial parity log at this place, or that there is none; changes nothing if one is named and is to be.
    ///
    /// # Panics
    /// As [`Self::set_ppl`] does.
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

    /// Says that there is a partial parity log at this place.
    ///
    /// # Panics
    /// Metadata 0.90 has none; and an array with a bitmap or a journal has none: the caller has asked [`Self::ppl_place`].
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

    /// Sectors from the superblock to the array's bitmap: as it says, or where one goes that it does not name yet. None where there
    /// is no room for one.
    #[must_use]
    pub fn bitmap_offset(&self) -> Option<i32> {
        let place = || Some(self.bitmap_place()?.offset_sectors);
        self.intent.bitmap_offset_sectors.or_else(place)
    }

    /// Says that there is a bitmap, where [`Self::bitmap_offset`] has it, or that there is none; changes nothing if it says so.
    ///
    /// # Panics
    /// As [`Self::set_bitmap`] does.
    pub fn name_bitmap(&mut self, is_there: bool) {
        if self.intent.bitmap_offset_sectors.is_some() == is_there {
            return;
        }
        let offset = is_there.then(|| self.bitmap_offset().expect("there is room for a bitmap"));
        self.set_bitmap(offset);
    }

    /// Says that there is a bitmap so many sectors from the superblock, or that there is none.
    ///
    /// # Panics
    /// When there is no room for a bitmap there, or the array has a PPL: the caller has asked [`Self::bitmap_place`].
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
