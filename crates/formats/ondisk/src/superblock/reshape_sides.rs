//! Splits a superblock during a reshape into two superblocks without a reshape: the array before,
//! and the array after.
//!
//! ```text
//!                         before                     after
//!   slots                 raid_disks − delta_disks   raid_disks
//!   level, layout, chunk  the plain fields           new_level, new_layout, new_chunk
//!   data begins           data_offset                data_offset + new_offset
//!   a recovering member   holds nothing, or all      holds data up to recovery_offset, or all
//! ```
//!
//! A recovering member holds all of a side if its recovery offset is not below the sectors that
//! this side needs of each member. The caller computes these sectors.
//!
//! A member whose slot does not exist on one side is a spare on that side. The results go through
//! the same validation as superblocks from disk. So a reshape to an impossible array is an error of
//! the superblock.
//!
//! This module neither locates sectors (`braid_assembly::reshape` does) nor writes.
//!
//! Invariant: the results mention no reshape, and all else follows the two columns
//! `[check: both_sides_of_a_reshape_say_what_they_were_made_of]`.

use zerocopy::FromBytes;
use zerocopy::byteorder::little_endian::{I32, U32, U64};

use super::error::{SuperblockError, SuperblockFault};
use super::facts::{Features, Reshape, ReshapeSide, Role};
use super::v1::{Fixed, UnvalidatedV1};
use super::write::seal;
use super::{Superblock, v0_90};
use crate::limits::V1_FIXED_BYTES;

impl Superblock {
    /// The member's superblock on one side, in no reshape. Without a reshape the superblock is
    /// unchanged. A member that is recovered up to `needed_sectors` of its data holds all that has
    /// this side's shape, and counts as whole. With `u64::MAX` no recovering member counts as
    /// whole.
    ///
    /// # Errors
    /// That side of the reshape is not a valid array.
    pub fn on_side(
        &self,
        side: ReshapeSide,
        (needed_sectors, device_bytes): (u64, u64),
    ) -> Result<Self, SuperblockError> {
        let Some(reshape) = self.reshape else { return Ok(self.clone()) };
        let found_bytes = self.offset_bytes();
        let refused = |cause| SuperblockError {
            version: self.version,
            offset_bytes: found_bytes,
            cause,
            claim: None,
        };
        let slots = self.slots_on(reshape, side).ok_or_else(|| {
            refused(SuperblockFault::Contradiction("the reshape comes from no members at all"))
        })?;
        let mut raw = self.raw.0.clone();
        if self.version.is_v1() {
            self.plain_v1(&mut raw, (reshape, side), (slots, needed_sectors)).map_err(refused)?;
            let unvalidated = UnvalidatedV1::recognise(&raw, self.version);
            return unvalidated.expect("the magic stays").validate(device_bytes, found_bytes);
        }
        v0_90::plain(&mut raw, (reshape, side), slots);
        let unvalidated = v0_90::UnvalidatedV0::recognise(&raw).expect("the magic stays");
        let plain = unvalidated.validate(device_bytes, found_bytes)?;
        Ok(Self { byte_order: self.byte_order, ..plain })
    }

    fn slots_on(&self, reshape: Reshape, side: ReshapeSide) -> Option<u32> {
        let slots = self.array.raid_slots;
        match side {
            ReshapeSide::After => Some(slots),
            ReshapeSide::Before => {
                let before = i64::from(slots).checked_sub(i64::from(reshape.delta_disks))?;
                u32::try_from(before).ok().filter(|before| *before > 0)
            }
        }
    }

    fn plain_v1(
        &self,
        raw: &mut [u8],
        (reshape, side): (Reshape, ReshapeSide),
        (slots, needed_sectors): (u32, u64),
    ) -> Result<(), SuperblockFault> {
        let of_reshape =
            Features::RESHAPE.with(Features::RESHAPE_BACKWARDS).with(Features::NEW_OFFSET);
        let mut features = self.state.features.without(of_reshape);
        let has_slot = |role: Role| !matches!(role, Role::Active(slot) if u32::from(slot) >= slots);
        if !has_slot(self.state.role) {
            features = features.without(Features::RECOVERY_OFFSET.with(Features::REPLACEMENT));
        }
        let filled = self.device.recovery_offset_sectors;
        if filled.is_some_and(|filled| filled >= needed_sectors) {
            features = features.without(Features::RECOVERY_OFFSET);
        }
        let (head, _) = Fixed::mut_from_prefix(raw).expect("validated");
        head.identity.feature_map = U32::new(features.0);
        head.shape.raid_slots = U32::new(slots);
        match side {
            ReshapeSide::Before if features.contains(Features::RECOVERY_OFFSET) => {
                head.device.recovery_offset = U64::new(0);
            }
            ReshapeSide::Before => {}
            ReshapeSide::After => {
                head.shape.level = I32::new(reshape.new_level.md_number());
                head.shape.layout = U32::new(reshape.new_layout);
                head.shape.chunk_sectors = U32::new(reshape.new_chunk_sectors);
                if let Some(moved) = reshape.new_data_offset_sectors {
                    let device = &self.device;
                    let end = device.data_offset_sectors.saturating_add(device.data_size_sectors);
                    let size = end.checked_sub(moved).ok_or(SuperblockFault::Contradiction(
                        "the reshape moves the data behind its end",
                    ))?;
                    head.device.data_offset = U64::new(moved);
                    head.device.data_size = U64::new(size);
                }
            }
        }
        let stored = raw.get_mut(V1_FIXED_BYTES..).unwrap_or_default().as_chunks_mut::<2>().0;
        for (to, role) in stored.iter_mut().zip(&self.state.roles) {
            let role = if has_slot(*role) { *role } else { Role::Spare };
            *to = role.to_v1().to_le_bytes();
        }
        seal(raw);
        Ok(())
    }
}
