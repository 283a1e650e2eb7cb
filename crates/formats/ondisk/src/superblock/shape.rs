//! The shape of the array in a superblock, read and written as one value: the plain fields, and the
//! reshape under way.
//!
//! md's order of a reshape ([`super::Reshape`] has the fields): the plain fields keep the old
//! values until its end, except the number of slots, which is the new number from the beginning.
//! Each member has its own old and new data offset.
//!
//! ```text
//!   begin     slots, reshape { position 0 or the end, ... }
//!   go on     reshape { position }
//!   end       level, layout, chunk, offset: the new ones; no reshape
//! ```
//!
//! The result goes through the same validation as a superblock from disk, so an impossible shape is
//! an error. This module neither decides when a position is written, nor moves data.
//!
//! Invariants
//! - a written shape is read back `[check: a_shape_is_read_back_as_it_was_written]`;
//! - the bytes are the same as md's `[check: a_reshape_begins_with_the_bytes_that_md_writes]`;
//! - a change of shape stays within the first sector, so that no power cut tears it
//!   `[check: a_shape_stands_in_the_first_sector_of_what_md_wrote]`;
//! - the end of a reshape is its side *after*
//!   `[check: the_end_of_a_reshape_is_the_array_that_it_leads_to]`.

use braid_geometry::Level;
use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::{I32, U32, U64};

use super::check::slots_named;
use super::error::{SuperblockError, SuperblockFault};
use super::facts::{Features, Reshape, SuperblockShape};
use super::new::SuperblockUpdate;
use super::v1::{Fixed, UnvalidatedV1};
use super::write::seal;
use super::{Superblock, v0_90};

impl Superblock {
    /// The array's shape.
    #[must_use]
    pub fn shape(&self) -> SuperblockShape {
        SuperblockShape {
            level: self.array.level,
            layout: self.array.layout,
            chunk_sectors: self.array.chunk_sectors,
            member_size_sectors: self.array.member_size_sectors,
            raid_slots: self.array.raid_slots,
            data_offset_sectors: self.device.data_offset_sectors,
            data_size_sectors: self.device.data_size_sectors,
            reshape: self.reshape,
        }
    }

    /// First sector of the member's data; during a reshape, first sector of the lower of its two
    /// data areas.
    #[must_use]
    pub fn lowest_data_sector(&self) -> u64 {
        let old = self.device.data_offset_sectors;
        let new = self.reshape.and_then(|reshape| reshape.new_data_offset_sectors);
        new.map_or(old, |new| new.min(old))
    }

    /// First sector of the data before and after a reshape, from [`Self::lowest_data_sector`].
    #[must_use]
    pub fn starts_of_data(&self) -> [u64; 2] {
        let old = self.device.data_offset_sectors;
        let new = self.reshape.and_then(|reshape| reshape.new_data_offset_sectors);
        [old, new.unwrap_or(old)].map(|start| start - self.lowest_data_sector())
    }

    /// Does what [`Self::apply`] does, and changes the shape in the same update, on a device of
    /// this size.
    ///
    /// # Errors
    /// As [`Self::with_shape`]; the superblock is then unchanged.
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub fn apply_with_shape(
        &mut self,
        update: &SuperblockUpdate,
        shape: &SuperblockShape,
        device_bytes: u64,
    ) -> Result<(), SuperblockError> {
        let named = |slots, reshape: Option<Reshape>| {
            slots_named(slots, reshape.map(|reshape| reshape.delta_disks))
        };
        // Roles never name a slot beyond the shape: new slots are written before their roles, and
        // old roles are removed before their slots.
        let loses_slots =
            named(shape.raid_slots, shape.reshape) < named(self.array.raid_slots, self.reshape);
        let mut changed = self.clone();
        if loses_slots {
            changed.apply(update);
        }
        changed = changed.with_shape(shape, device_bytes)?;
        if !loses_slots {
            changed.apply(update);
        }
        *self = changed;
        Ok(())
    }

    /// This superblock with another shape, on a device of this size.
    ///
    /// # Errors
    /// The shape is invalid, or this version cannot express it: 0.90 moves no data offset.
    pub fn with_shape(
        &self,
        shape: &SuperblockShape,
        device_bytes: u64,
    ) -> Result<Self, SuperblockError> {
        let found_bytes = self.offset_bytes();
        let mut raw = self.raw.0.clone();
        if self.version.is_v1() {
            self.put_shape_v1(&mut raw, shape).map_err(|cause| SuperblockError {
                version: self.version,
                offset_bytes: found_bytes,
                cause,
                claim: None,
            })?;
            let unvalidated = UnvalidatedV1::recognise(&raw, self.version);
            return unvalidated.expect("the magic stays").validate(device_bytes, found_bytes);
        }
        let moves = shape.reshape.is_some_and(|reshape| reshape.new_data_offset_sectors.is_some());
        let is_said_backwards =
            shape.reshape.is_none_or(|reshape| reshape.backwards == (reshape.delta_disks < 0));
        let cause = match () {
            () if moves || shape.data_offset_sectors != self.device.data_offset_sectors => {
                Some("metadata 0.90 has no data offset to move")
            }
            () if !is_said_backwards => {
                Some("metadata 0.90 says the direction by the number of members only")
            }
            () => None,
        };
        if let Some(cause) = cause.map(SuperblockFault::Contradiction) {
            let (version, offset_bytes) = (self.version, found_bytes);
            return Err(SuperblockError { version, offset_bytes, cause, claim: None });
        }
        v0_90::put_shape(&mut raw, shape);
        let unvalidated = v0_90::UnvalidatedV0::recognise(&raw).expect("the magic stays");
        let changed = unvalidated.validate(device_bytes, found_bytes)?;
        Ok(Self { byte_order: self.byte_order, ..changed })
    }

    fn put_shape_v1(&self, raw: &mut [u8], shape: &SuperblockShape) -> Result<(), SuperblockFault> {
        let of_reshape =
            Features::RESHAPE.with(Features::RESHAPE_BACKWARDS).with(Features::NEW_OFFSET);
        let mut features = self.state.features.without(of_reshape);
        if shape.level != Level::Raid0 {
            features = features.without(Features::RAID0_LAYOUT);
        }
        let (head, _) = Fixed::mut_from_prefix(raw).expect("validated");
        head.shape.level = I32::new(shape.level.md_number());
        head.shape.layout = U32::new(shape.layout);
        head.shape.chunk_sectors = U32::new(shape.chunk_sectors);
        head.shape.size = U64::new(shape.member_size_sectors);
        head.shape.raid_slots = U32::new(shape.raid_slots);
        head.device.data_offset = U64::new(shape.data_offset_sectors);
        head.device.data_size = U64::new(shape.data_size_sectors);
        if let Some(reshape) = shape.reshape {
            features = features.with(Features::RESHAPE);
            // If the number of slots changes, the sign of the change gives the direction of the
            // reshape.
            if reshape.delta_disks == 0 && reshape.backwards {
                features = features.with(Features::RESHAPE_BACKWARDS);
            }
            let fields = &mut head.reshape;
            fields.position = U64::new(reshape.position_sectors);
            fields.delta_disks = I32::new(reshape.delta_disks);
            fields.new_level = I32::new(reshape.new_level.md_number());
            fields.new_layout = U32::new(reshape.new_layout);
            fields.new_chunk_sectors = U32::new(reshape.new_chunk_sectors);
            fields.new_offset = I32::new(0);
            if let Some(moved) = reshape.new_data_offset_sectors {
                features = features.with(Features::NEW_OFFSET);
                let by = i128::from(moved) - i128::from(shape.data_offset_sectors);
                let by = i32::try_from(by).map_err(|_| {
                    SuperblockFault::Contradiction("the data moves further than a superblock says")
                })?;
                fields.new_offset = I32::new(by);
            }
        }
        head.identity.feature_map = U32::new(features.0);
        seal(raw);
        Ok(())
    }
}
