//! Proposes the change of superblocks that gives an array the shape that an operator wants.
//!
//! ```text
//!   more members, other chunk, other layout   a reshape: data moves; see `plan`
//!   5 to 6, 6 to 5, 4 to 5, 5 to 4, 1 to 5,
//!   0 to 4, 0 to 5, 0 to 10, and back         a take-over: only superblocks change
//!   larger members                            superblocks change, and the new part is synced
//!   smaller members                           superblocks change
//! ```
//!
//! In a reshape the data of each member also moves towards the start of its device, if there is
//! room between the metadata and the data. Then windows overwrite nothing that is still needed. A
//! reshape to fewer members runs from the array's end to its start, and data moves the other way,
//! into the room behind the data. A reshape to another chunk or layout uses the side that has room.
//! A RAID-10's data moves only into such room, and its number of copies stays: md takes no other
//! reshape of a RAID-10.
//!
//! A smaller shape is only proposed if clients do not use the sectors that it lacks: before the
//! change, the operator has the array end earlier for clients.
//!
//! A take-over keeps every byte: a RAID-6 with one of md's `*_6` layouts is a RAID-5 whose last
//! member holds Q. A RAID-5 of two members is a RAID-1. A RAID-0 of equal members is a RAID-4 that
//! lacks its parity, or a RAID-10 that lacks one copy of each chunk. Members for which a RAID-0 has
//! no slot become spares, and the driver lets them go.
//!
//! A RAID-0 reshapes as a RAID-4 whose parity is missing in both shapes. The update that begins the
//! reshape turns its superblocks into those of a RAID-4; at the end they are those of a RAID-0
//! again.
//!
//! Sources: md's take-overs are those of `raid0_takeover`, `raid4_takeover`, `raid5_takeover`,
//! `raid6_takeover` and `raid10_takeover` in Linux 6.12, its
//! limits of data offsets those of `super_1_allow_new_offset`.

use std::collections::BTreeMap;

use braid_geometry::{
    Family, Geometry, GeometryError, Level, ReshapeSteps, Shape, Slot, parse_layout,
};
use braid_ondisk::{COPIED_SECTORS_MAX, Features, Reshape, Superblock, Version};
use braid_sim_hooks::{Bug, spoiled};

use super::plan::ReshapePlan;
use crate::array::{DataArea, ShapeChange, ShapeState};
use crate::ids::MemberId;

/// Sectors after a superblock that md keeps free of data: 36 KiB.
const AFTER_SUPERBLOCK_SECTORS: u64 = 72;
/// The most sectors by which data moves. A larger gap makes no reshape faster.
const GAP_SECTORS_MAX: u64 = 64 << 11;
/// Sectors that a gap leaves free before the data, if it can: room for braid's own log.
const LEFT_FREE_SECTORS: u64 = 1024;
/// RAID-5's layout numbers plus this are RAID-6's `*_6` layouts, with Q on the last member.
const Q_LAST: u32 = 16;
/// md's number for parity on the last slot: the layout of a RAID-4 that was a RAID-0.
pub const RAID4_OF_RAID0: u32 = 5;
/// md's number for two copies in neighbouring slots.
const NEAR_2: u32 = 0x102;
/// md's largest chunk for a RAID-1 that becomes a RAID-5: 64 KiB.
const TAKEN_OVER_CHUNK_SECTORS: u32 = 128;

/// The shape that an operator wants. A part without a value stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShapeWish {
    /// The level.
    pub level: Option<Level>,
    /// md's number of the layout.
    pub layout: Option<u32>,
    /// Sectors per chunk.
    pub chunk_sectors: Option<u32>,
    /// The number of slots.
    pub slots: Option<u16>,
    /// Sectors to use of each member; `u64::MAX` for as many as every member has.
    pub member_size_sectors: Option<u64>,
}

/// A member of the array, or a spare.
#[derive(Clone, Copy, Debug)]
pub struct ShapeMember<'a> {
    /// The member's name.
    pub id: MemberId,
    /// The member's slot; `None` for a spare.
    pub slot: Option<Slot>,
    /// The member's superblock.
    pub superblock: &'a Superblock,
    /// Size of the member's device.
    pub device_bytes: u64,
}

/// How the array gets the wanted shape.
#[derive(Clone, Debug)]
pub struct ShapeProposal {
    /// The old shape.
    pub before: Shape,
    /// The new shape.
    pub after: Shape,
    /// The change for superblocks.
    pub change: ShapeChange,
    /// The data that moves; `None` for a change of superblocks only.
    pub plan: Option<ReshapePlan>,
    /// Number of spares that get slots: when the change begins, or later by a recovery.
    pub spares_used: usize,
}

impl ShapeProposal {
    /// Whether windows overwrite the sectors that they read, so that these must be copied before.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.plan.as_ref().is_some_and(ReshapePlan::has_in_place)
    }

    /// Whether the array must have no bitmap during the change: md loads the bits of the sectors
    /// that both shapes have, and would not resync the new part of a RAID-10 that it makes larger.
    #[must_use]
    pub fn drops_bitmap(&self) -> bool {
        drops_bitmap(&self.before, &self.after)
    }
}

/// The state of the array and its driver that bounds a change of shape.
#[derive(Clone, Copy, Debug)]
pub struct ShapeLimits {
    /// The length of each member's bitmap, also of a bitmap that rests during the change.
    pub bitmap_sectors: u64,
    /// The driver can copy windows, so that data also moves where a member has no free space.
    pub can_copy: bool,
    /// The array's sectors that clients use.
    pub used_sectors: u64,
}

/// Why an array does not get the wanted shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WishError {
    /// The array has the wanted shape already.
    #[error("the array has this shape already")]
    NoChange,
    /// No such change of level exists, here or in md.
    #[error("{from} does not become {to} with this layout and number of members")]
    Level {
        /// The level of the array.
        from: Level,
        /// The wanted level.
        to: Level,
    },
    /// A change of level or of member size cannot be combined with another change.
    #[error("a level changes by itself: first the level, then the rest")]
    TwoAtOnce,
    /// The wanted shape is not valid.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A reshape moves no data of this level.
    #[error("the data of {0} is not moved")]
    Family(Level),
    /// The wanted layout has another number of copies, which md does not change.
    #[error("the array has {from} copies of each chunk, and the new layout would have {to}")]
    Copies {
        /// Copies that the array has.
        from: u16,
        /// Copies that the wanted layout has.
        to: u16,
    },
    /// Members of a RAID-0 differ, so that it has several zones.
    #[error(
        "its members hold {least} to {most} sectors: where members differ, the rest of the larger \
         ones is striped by itself, which no other level and no wider stripe has"
    )]
    Zones {
        /// The fewest sectors that a member holds.
        least: u64,
        /// The most sectors that a member holds.
        most: u64,
    },
    /// A level without redundancy has no bitmap.
    #[error("{0} has no bitmap, and the array has one")]
    Bitmap(Level),
    /// Bad-block logs name lost sectors, which reads of a RAID-0 would return.
    #[error("a bad-block log names sectors, and a RAID-0 heeds no such log: write them first")]
    BadBlocks,
    /// Spares are missing.
    #[error("{needed} more members are needed; spares: {there}")]
    TooFewSpares {
        /// Slots to fill.
        needed: usize,
        /// Spares of the array.
        there: usize,
    },
    /// The new shape holds less than clients use.
    #[error("the new shape holds {after} sectors, and clients use {used}")]
    Smaller {
        /// Sectors of the array that clients use.
        used: u64,
        /// Sectors of the new shape.
        after: u64,
    },
    /// md would drop the remainder of the sectors in use, if it continued the reshape.
    #[error("{of} has {sectors} sectors in use, and a chunk of {chunk} does not divide them")]
    Remainder {
        /// The part that has the remainder: each member, or the array.
        of: &'static str,
        /// The part's sectors in use.
        sectors: u64,
        /// Sectors of the wanted chunk.
        chunk: u32,
    },
    /// The device of a member has no room to move data, and no copy can be kept.
    #[error("{needed} sectors are needed {side} each member's data, and {there} are free")]
    NoRoom {
        /// Sectors by which data must move.
        needed: u64,
        /// The fewest free sectors on that side of a member's data.
        there: u64,
        /// Where room is needed: before the data, or behind it.
        side: &'static str,
    },
    /// Members have room for fewer sectors than wanted.
    #[error("members have room for {fits} sectors, and {wanted} are wanted")]
    MemberSize {
        /// Sectors wanted of each member.
        wanted: u64,
        /// Sectors that every member has.
        fits: u64,
    },
    /// Superblocks of this metadata version cannot express the change.
    #[error("superblocks of version {0} cannot say this")]
    Version(Version),
    /// A slot has no member.
    #[error("a slot has no member")]
    Degraded,
    /// The place of each second copy depends on the size and the slots, and md does not move these
    /// copies.
    #[error("the copies of a 'far' layout would have other places")]
    FarCopies,
    /// The bitmap of larger members needs more room than it has; a larger bitmap chunk needs less.
    #[error(
        "the bitmap would need {needed} sectors, and has {there}; with a larger bitmap-chunk it \
         needs fewer"
    )]
    BitmapRoom {
        /// Sectors that the bitmap needs, at most.
        needed: u64,
        /// The fewest sectors that a member has for the bitmap.
        there: u64,
    },
    /// A window in place would be too long to be copied first.
    #[error("windows of {sectors} sectors would have to be copied, which is too many")]
    WindowTooLong {
        /// Sectors of the shortest window.
        sectors: u64,
    },
}

/// Whether a RAID-10 has its second copies in another half of each member.
fn has_far_copies(layout: u32) -> bool {
    const FAR_COPIES: u32 = 0xff00;
    const OFFSET: u32 = 1 << 16;
    layout & FAR_COPIES > 1 << 8 && layout & OFFSET == 0
}

/// Proposes the change that gives the array the wanted shape.
///
/// # Errors
/// The reason why the change is impossible.
pub fn propose(
    members: &[ShapeMember<'_>],
    limits: ShapeLimits,
    wish: &ShapeWish,
) -> Result<ShapeProposal, WishError> {
    let asker = Proposer::new(members, limits, wish)?;
    let is_level = wish.level.is_some_and(|level| level != asker.before.level);
    let is_size = wish.member_size_sectors.is_some();
    let is_shape = asker.wanted_shape() != asker.before;
    match (is_level, is_size, is_shape) {
        (true, true, _) | (false, true, true) => Err(WishError::TwoAtOnce),
        (true, false, _) => asker.take_over(),
        (false, true, false) => asker.resize(),
        (false, false, true) => asker.reshape(),
        (false, false, false) => Err(WishError::NoChange),
    }
}

struct Proposer<'a> {
    members: &'a [ShapeMember<'a>],
    limits: ShapeLimits,
    wish: ShapeWish,
    newest: &'a Superblock,
    before: Shape,
    /// Sectors that the array uses of each member.
    used: u64,
}

impl<'a> Proposer<'a> {
    fn new(
        members: &'a [ShapeMember<'a>],
        limits: ShapeLimits,
        wish: &ShapeWish,
    ) -> Result<Self, WishError> {
        let seated = || members.iter().filter(|one| one.slot.is_some()).map(|one| one.superblock);
        let newest = seated().max_by_key(|one| one.state.events).expect("an array has a member");
        let array = &newest.array;
        let slots = u16::try_from(array.raid_slots).expect("assembly made the geometry");
        // Members of equal size have one zone, in which the layouts of a RAID-0 agree.
        let (used, layout) = match array.level {
            Level::Raid0 => (zone_sectors(seated(), array.chunk_sectors)?, 0),
            _ => (array.member_size_sectors, array.layout),
        };
        let before = Shape::uniform(array.level, layout, array.chunk_sectors, slots, used);
        if array.level == Level::Raid0 && !newest.version.is_v1() {
            return Err(WishError::Version(newest.version));
        }
        Ok(Self { members, limits, wish: *wish, newest, before, used })
    }

    fn seated(&self) -> impl Iterator<Item = &'a ShapeMember<'a>> {
        self.members.iter().filter(|one| one.slot.is_some())
    }

    fn spares(&self) -> Vec<&'a ShapeMember<'a>> {
        self.members.iter().filter(|one| one.slot.is_none()).collect()
    }

    fn wanted_shape(&self) -> Shape {
        let ShapeWish { layout, chunk_sectors, slots, .. } = self.wish;
        let Shape { level, .. } = self.before;
        Shape::uniform(
            level,
            layout.unwrap_or(self.before.layout),
            chunk_sectors.unwrap_or(self.before.chunk_sectors),
            slots.unwrap_or(self.before.slots),
            self.used,
        )
    }

    /// The proposal to record the shape `after` in superblocks, without moving data.
    fn say(&self, after: Shape, spares_used: usize, resync_from: Option<u64>) -> ShapeProposal {
        // A RAID-0 uses the whole data area, so the area is no longer than the used part.
        let area = |one: &ShapeMember<'_>| {
            let offset_sectors = one.superblock.device.data_offset_sectors;
            DataArea { offset_sectors, size_sectors: self.used, new_offset_sectors: None }
        };
        let becomes_striped = after.level == Level::Raid0;
        let striped = self.seated().filter(|_| becomes_striped);
        let shape = ShapeState {
            level: after.level,
            layout: after.layout,
            chunk_sectors: after.chunk_sectors,
            member_size_sectors: after.member_sectors.first().copied().unwrap_or(0),
            raid_slots: u32::from(after.slots),
            reshape: None,
            data_areas: striped.map(|one| (one.id, area(one))).collect(),
        };
        let (places, held) = Default::default();
        let before = self.before.clone();
        let change = ShapeChange::Begin { shape, places, held, resync_from };
        ShapeProposal { before, after, change, plan: None, spares_used }
    }

    /// Proposes another level on the same bytes.
    fn take_over(&self) -> Result<ShapeProposal, WishError> {
        let from = &self.before;
        let to = self.wish.level.expect("a level is wanted");
        let parity_last = parse_layout(Level::Raid5, "parity-last").expect("md has it");
        let left_symmetric = parse_layout(Level::Raid5, "left-symmetric").expect("md has it");
        let sectors = self.used;
        let is_alone = self.wish.chunk_sectors.is_none() && self.wish.layout.is_none();
        let (layout, chunk_sectors, slots) = match (from.level, to) {
            // md has one number for P and Q at the end of each row, on RAID-5 and on RAID-6.
            (Level::Raid4, Level::Raid6) => (parity_last, from.chunk_sectors, from.slots + 1),
            (Level::Raid5, Level::Raid6) if from.layout == parity_last => {
                (parity_last, from.chunk_sectors, from.slots + 1)
            }
            (Level::Raid5, Level::Raid6) => {
                let layout = from.layout | Q_LAST;
                let layout = spoiled(Bug::TakeOverKeepsLayout, layout, from.layout);
                (layout, from.chunk_sectors, from.slots + 1)
            }
            (Level::Raid6, Level::Raid5) if from.layout == parity_last => {
                (parity_last, from.chunk_sectors, from.slots - 1)
            }
            (Level::Raid6, Level::Raid5)
                if from.layout & !Q_LAST < parity_last && from.layout & Q_LAST != 0 =>
            {
                (from.layout & !Q_LAST, from.chunk_sectors, from.slots - 1)
            }
            (Level::Raid4, Level::Raid5) => (parity_last, from.chunk_sectors, from.slots),
            (Level::Raid5, Level::Raid4) if from.layout == parity_last => {
                (0, from.chunk_sectors, from.slots)
            }
            (Level::Raid1, Level::Raid5) if from.slots == 2 => {
                let chunk = TAKEN_OVER_CHUNK_SECTORS.min(1 << sectors.trailing_zeros().min(31));
                (left_symmetric, chunk, 2)
            }
            (Level::Raid5, Level::Raid1) if from.slots == 2 => (0, 0, 2),
            (Level::Raid0, Level::Raid4 | Level::Raid5) => {
                (RAID4_OF_RAID0, from.chunk_sectors, from.slots.saturating_add(1))
            }
            (Level::Raid0, Level::Raid10) => {
                (NEAR_2, from.chunk_sectors, from.slots.saturating_mul(2))
            }
            (Level::Raid4, Level::Raid0) => (0, from.chunk_sectors, from.slots - 1),
            (Level::Raid5, Level::Raid0) if from.layout == parity_last => {
                (0, from.chunk_sectors, from.slots - 1)
            }
            (Level::Raid10, Level::Raid0)
                if from.layout == NEAR_2 && from.slots.is_multiple_of(2) =>
            {
                (0, from.chunk_sectors, from.slots / 2)
            }
            (from, to) => return Err(WishError::Level { from, to }),
        };
        if !is_alone || self.wish.slots.is_some_and(|wanted| wanted != slots) {
            return Err(WishError::TwoAtOnce);
        }
        let after = Shape::uniform(to, layout, chunk_sectors, slots, sectors);
        Geometry::new(&after)?;
        let new_slots = usize::from(slots.saturating_sub(from.slots));
        let there = self.spares().len();
        if from.level == Level::Raid0 || to == Level::Raid0 {
            return self.restripe(after, there.min(new_slots));
        }
        if there < new_slots {
            return Err(WishError::TooFewSpares { needed: new_slots, there });
        }
        if slots < from.slots && self.seated().count() < usize::from(from.slots) {
            return Err(WishError::Degraded);
        }
        Ok(self.say(after, new_slots, None))
    }

    /// A RAID-0 gets redundancy, which is filled afterwards, or an array gives up its redundancy.
    fn restripe(&self, after: Shape, spares_used: usize) -> Result<ShapeProposal, WishError> {
        let (from, to) = (self.before.level, after.level);
        if to == Level::Raid0 && !self.newest.version.is_v1() {
            return Err(WishError::Version(self.newest.version));
        }
        if to == Level::Raid0 && self.limits.bitmap_sectors > 0 {
            return Err(WishError::Bitmap(to));
        }
        let mut proposal = self.say(after, spares_used, None);
        let ShapeChange::Begin { places: moved, .. } = &mut proposal.change else {
            return Ok(proposal);
        };
        let slots = usize::from(proposal.after.slots);
        let mut filled: Vec<Option<MemberId>> = vec![None; slots];
        let mut is_any_bad = false;
        for one in self.seated() {
            let Some(Slot(slot)) = one.slot else { continue };
            let new = match (from, to) {
                (Level::Raid0, Level::Raid10) => slot * 2,
                (Level::Raid10, Level::Raid0) => slot / 2,
                _ => slot,
            };
            // The member with a chunk's second copy becomes a spare, and so does the member with
            // parity.
            let place = filled.get_mut(usize::from(new)).filter(|place| place.is_none());
            moved.insert(one.id, place.is_some().then_some(Slot(new)));
            if let Some(place) = place {
                *place = Some(one.id);
                is_any_bad |= one.superblock.state.features.contains(Features::BAD_BLOCKS);
            }
        }
        if to == Level::Raid0 && is_any_bad {
            return Err(WishError::BadBlocks);
        }
        if to == Level::Raid0 && filled.contains(&None) {
            return Err(WishError::Degraded);
        }
        Ok(proposal)
    }

    /// Proposes to use more sectors of each member, or fewer.
    fn resize(&self) -> Result<ShapeProposal, WishError> {
        let Shape { level, layout, chunk_sectors, slots, .. } = self.before;
        let unit = u64::from(chunk_sectors).max(TAKEN_OVER_CHUNK_SECTORS.into());
        let wanted = self.wish.member_size_sectors.expect("a size is wanted");
        let used = self.used;
        let fits = self.members.iter().map(room).min().unwrap_or(0);
        let fits = fits - fits % unit;
        let size = if wanted == u64::MAX { fits } else { wanted - wanted % unit };
        if size == used {
            return Err(WishError::NoChange);
        }
        let of = |sectors| Shape::uniform(level, layout, chunk_sectors, slots, sectors);
        let (after, old) = (of(size), Geometry::new(&self.before)?);
        let geometry = Geometry::new(&after)?;
        match &old {
            Geometry::Direct(_) => return Err(WishError::Family(level)),
            Geometry::Mirror(_) if level == Level::Raid10 && has_far_copies(layout) => {
                return Err(WishError::FarCopies);
            }
            Geometry::Mirror(_) | Geometry::Stripe(_) => {}
        }
        if size < used {
            self.check_smaller(&old, &geometry)?;
            return Ok(self.say(after, 0, None));
        }
        let version = self.newest.version;
        if !matches!(version, Version::V1_1 | Version::V1_2) {
            return Err(WishError::Version(version));
        }
        if size > fits {
            return Err(WishError::MemberSize { wanted: size, fits });
        }
        // The new part is in doubt until a resync, and no array is served in doubt that lacks a
        // member with data.
        if level.family() == Family::Stripe && self.seated().count() < usize::from(slots) {
            return Err(WishError::Degraded);
        }
        self.check_bitmap((used, size))?;
        // md counts a resync in sectors of each member, on RAID-10 in sectors of the array.
        let resync_from = match level {
            Level::Raid10 => old.capacity_sectors(),
            _ => used,
        };
        assert!(geometry.capacity_sectors() > old.capacity_sectors(), "larger members hold more");
        let mut proposal = self.say(after, 0, Some(resync_from));
        if let ShapeChange::Begin { shape, .. } = &mut proposal.change {
            let area = |one: &ShapeMember<'_>| DataArea {
                offset_sectors: one.superblock.device.data_offset_sectors,
                size_sectors: room(one),
                new_offset_sectors: None,
            };
            shape.data_areas = self.members.iter().map(|one| (one.id, area(one))).collect();
        }
        Ok(proposal)
    }

    /// The length of each member's bitmap once it covers `to` sectors instead of `from`, at most.
    fn bitmap_sectors_after(&self, (from, to): (u64, u64)) -> u64 {
        let kept = self.limits.bitmap_sectors;
        let grown = u128::from(kept) * u128::from(to);
        let grown = u64::try_from(grown.div_ceil(u128::from(from.max(1))));
        grown.unwrap_or(u64::MAX).max(kept)
    }

    /// Whether each member has room for a bitmap that covers `to` sectors instead of `from`.
    fn check_bitmap(&self, (from, to): (u64, u64)) -> Result<(), WishError> {
        let needed = self.bitmap_sectors_after((from, to));
        let there = self.members.iter().map(|one| one.superblock.room_for_bitmap()).min();
        let there = there.unwrap_or(0);
        match self.limits.bitmap_sectors > 0 && needed > there {
            true => Err(WishError::BitmapRoom { needed, there }),
            false => Ok(()),
        }
    }

    /// Whether clients use no more sectors than the new shape holds.
    fn check_smaller(&self, old: &Geometry, new: &Geometry) -> Result<(), WishError> {
        let after = new.capacity_sectors();
        let used = old.capacity_sectors().min(self.limits.used_sectors);
        let used = spoiled(Bug::SmallerThanUsed, used, 0);
        if after < used { Err(WishError::Smaller { used, after }) } else { Ok(()) }
    }

    /// Proposes another shape, for which data moves.
    fn reshape(&self) -> Result<ShapeProposal, WishError> {
        let (before, after) = (self.before.clone(), self.wanted_shape());
        let is_striped = before.level == Level::Raid0;
        if is_striped && self.wish.layout.is_some() {
            return Err(WishError::Family(before.level));
        }
        let (said_before, said_after) = (as_said(&before), as_said(&after));
        let old = Geometry::new(&said_before)?;
        let new = Geometry::new(&said_after)?;
        self.check_movable(&old, &new)?;
        self.check_smaller(&old, &new)?;
        let used = self.used;
        let capacities = (old.capacity_sectors(), new.capacity_sectors());
        // The bitmap of a RAID-10 covers sectors of the array. A bitmap that rests during the
        // change returns with larger chunks, if it has no more room.
        let is_longer = capacities.1 > capacities.0
            && matches!(old, Geometry::Mirror(_))
            && !drops_bitmap(&before, &after);
        let bitmap_sectors = match is_longer {
            true => self.bitmap_sectors_after(capacities),
            false => self.limits.bitmap_sectors,
        };
        if is_longer {
            self.check_bitmap(capacities)?;
        }
        let joining = self.joining(after.slots, bitmap_sectors)?;
        let slots = (before.slots..).map(|slot| Some(Slot(slot)));
        let places: BTreeMap<MemberId, Option<Slot>> =
            joining.iter().map(|one| one.id).zip(slots).collect();
        let (gap, backwards) = self.way((&old, &new), (&joining, bitmap_sectors))?;
        let plan = ReshapePlan::new((&old, &new), gap.cast_signed(), backwards);
        let plan = plan.map_err(|_| WishError::Family(before.level))?;
        let step = plan.steps().step_sectors();
        if plan.has_in_place() && step > COPIED_SECTORS_MAX {
            return Err(WishError::WindowTooLong { sectors: step });
        }
        let area = |one: &ShapeMember<'_>| {
            let device = &one.superblock.device;
            let offset = device.data_offset_sectors;
            let moved = if backwards { offset + gap } else { offset - gap };
            let new_offset_sectors = (gap > 0).then_some(moved);
            let kept = new_offset_sectors.filter(|_| one.slot.is_some());
            let new_offset_sectors = spoiled(Bug::NewcomerStaysPut, new_offset_sectors, kept);
            DataArea {
                offset_sectors: offset,
                size_sectors: device.data_size_sectors,
                new_offset_sectors,
            }
        };
        let in_shape = self.seated().chain(joining.iter().copied());
        let data_areas = in_shape.map(|one| (one.id, area(one))).collect();
        let shape = ShapeState {
            level: said_before.level,
            layout: said_before.layout,
            chunk_sectors: before.chunk_sectors,
            member_size_sectors: used,
            raid_slots: u32::from(said_after.slots),
            reshape: Some(Reshape {
                position_sectors: plan.first(),
                delta_disks: i32::from(after.slots) - i32::from(before.slots),
                new_level: said_after.level,
                new_layout: said_after.layout,
                new_chunk_sectors: after.chunk_sectors,
                new_data_offset_sectors: None,
                backwards,
            }),
            data_areas,
        };
        // In this slot the narrower shape has its missing parity, and the wider shape has data.
        let narrow = Some(Slot(before.slots.min(after.slots)));
        let half_held = |one: &&ShapeMember<'_>| {
            places.get(&one.id).copied().unwrap_or(one.slot) == narrow && is_striped
        };
        let half_held = self.members.iter().filter(half_held);
        let held = half_held.map(|one| (one.id, if backwards { used } else { 0 })).collect();
        let spares_used = joining.len();
        let change = ShapeChange::Begin { shape, places, held, resync_from: None };
        Ok(ShapeProposal { before, after, change, plan: Some(plan), spares_used })
    }

    /// Whether a reshape moves data between these two shapes, in braid and in md.
    fn check_movable(&self, old: &Geometry, new: &Geometry) -> Result<(), WishError> {
        let chunk = new.chunk_sectors();
        let is_other_chunk = chunk != old.chunk_sectors();
        let of_each = |of, sectors: u64| match sectors.is_multiple_of(u64::from(chunk)) {
            true => Ok(()),
            false => Err(WishError::Remainder { of, sectors, chunk }),
        };
        match (old, new) {
            (Geometry::Stripe(_), Geometry::Stripe(_)) if is_other_chunk => {
                of_each("each member", self.used)
            }
            (Geometry::Stripe(_), Geometry::Stripe(_)) => Ok(()),
            (Geometry::Mirror(one), Geometry::Mirror(other)) if one.level() == Level::Raid10 => {
                if has_far_copies(one.layout()) || has_far_copies(other.layout()) {
                    return Err(WishError::FarCopies);
                }
                let (from, to) = (one.copies(), other.copies());
                if from != to {
                    return Err(WishError::Copies { from, to });
                }
                if !self.newest.version.is_v1() {
                    return Err(WishError::Version(self.newest.version));
                }
                of_each("the array", one.capacity_sectors().min(other.capacity_sectors()))
            }
            _ => Err(WishError::Family(self.before.level)),
        }
    }

    /// The spares that fill new slots. md moves the data of all members by the same distance, so
    /// the spares with the most room come first.
    fn joining(
        &self,
        slots: u16,
        bitmap_sectors: u64,
    ) -> Result<Vec<&'a ShapeMember<'a>>, WishError> {
        let needed = usize::from(slots.saturating_sub(self.before.slots));
        let mut spares = self.spares();
        if spares.len() < needed {
            return Err(WishError::TooFewSpares { needed, there: spares.len() });
        }
        spares.sort_by_key(|one| std::cmp::Reverse(self.free_before(one, bitmap_sectors)));
        spares.truncate(needed);
        let sizes = spares.iter().map(|one| one.superblock.device.data_size_sectors);
        let fits = sizes.min().unwrap_or(u64::MAX);
        if fits < self.used {
            return Err(WishError::MemberSize { wanted: self.used, fits });
        }
        Ok(spares)
    }

    /// The sectors by which each member's data moves, and whether the reshape runs from the array's
    /// end to its start. md runs backwards if the array loses slots, and either way if it keeps
    /// them: then data moves to the side that has room.
    fn way(
        &self,
        (old, new): (&Geometry, &Geometry),
        others: (&[&ShapeMember<'_>], u64),
    ) -> Result<(u64, bool), WishError> {
        let (from, to) = (data_of_row(old), data_of_row(new));
        let gap = self.gap((old, new), others, to < from);
        let is_either = from == to && new.capacity_sectors() <= old.capacity_sectors();
        if !is_either || gap.as_ref().is_ok_and(|gap| *gap > 0) {
            return Ok((gap?, to < from));
        }
        match (gap, self.gap((old, new), others, true)) {
            (_, Ok(behind)) if behind > 0 => Ok((behind, true)),
            // Using fewer sectors of members makes room behind their data, but not before it.
            (Err(_), Err(behind)) => Err(behind),
            (gap, _) => Ok((gap?, false)),
        }
    }

    /// The sectors by which each member's data moves in a direction. A RAID-10's copies move only
    /// where there is room, so they leave some room for the next reshape.
    fn gap(
        &self,
        (old, new): (&Geometry, &Geometry),
        (joining, bitmap_sectors): (&[&ShapeMember<'_>], u64),
        backwards: bool,
    ) -> Result<u64, WishError> {
        let steps = ReshapeSteps::new((old, new), 0, backwards);
        let steps = steps.ok_or(WishError::Family(self.before.level))?;
        let (room, side) = if backwards {
            (self.seated().map(|one| self.free_behind(one)).min(), "behind")
        } else {
            let in_shape = self.seated().chain(joining.iter().copied());
            (in_shape.map(|one| self.free_before(one, bitmap_sectors)).min(), "before")
        };
        let there = room.unwrap_or(0);
        let are_copies = !steps.can_be_in_place();
        let left_free = match backwards {
            true => 0,
            false if are_copies => LEFT_FREE_SECTORS.max(there / 2),
            false => LEFT_FREE_SECTORS,
        };
        // With the gap of a unit the reshape can turn round after each window.
        let grain =
            if there < steps.gap_of_unit() { steps.gap_of_step() } else { steps.gap_of_unit() };
        let grains = match there.saturating_sub(left_free) / grain {
            0 if are_copies => (there / grain).min(1),
            0 => there / grain,
            grains => grains,
        };
        let gap = (grains * grain).min(GAP_SECTORS_MAX.max(grain)) / grain * grain;
        if gap == 0 && !(steps.can_be_in_place() && self.limits.can_copy) {
            return Err(WishError::NoRoom { needed: grain, there, side });
        }
        Ok(gap)
    }

    /// Free sectors behind a member's data.
    fn free_behind(&self, one: &ShapeMember<'_>) -> u64 {
        let device = &one.superblock.device;
        // Metadata 0.90 has no data offset that could move.
        if !one.superblock.version.is_v1() {
            return 0;
        }
        // The data size of metadata 1.0 may reach into metadata, as md makes members larger.
        let end = device.data_offset_sectors.saturating_add(self.used);
        let free = one.superblock.metadata_from(end).map_or(u64::MAX, |start| start - end);
        device.data_size_sectors.saturating_sub(self.used).min(free)
    }

    /// Free sectors before a member's data, behind all metadata.
    fn free_before(&self, one: &ShapeMember<'_>, bitmap_sectors: u64) -> u64 {
        let superblock = one.superblock;
        let data = superblock.device.data_offset_sectors;
        let start = superblock.device.super_offset_sectors;
        let after_superblock = if start < data { start + AFTER_SUPERBLOCK_SECTORS } else { 0 };
        let free_from = superblock.first_free_sector(bitmap_sectors);
        data.saturating_sub(free_from.max(after_superblock))
    }
}

/// As [`ShapeProposal::drops_bitmap`].
fn drops_bitmap(before: &Shape, after: &Shape) -> bool {
    before.level == Level::Raid10 && after.slots > before.slots
}

/// The slots of a row with data of the array. Only shapes with equal numbers of copies compare.
fn data_of_row(geometry: &Geometry) -> u16 {
    match geometry {
        Geometry::Stripe(stripe) => stripe.data_slots(),
        Geometry::Mirror(_) | Geometry::Direct(_) => geometry.slots(),
    }
}

/// The shape that superblocks record during a reshape: a RAID-0 is a RAID-4 then, without parity.
fn as_said(shape: &Shape) -> Shape {
    let Shape { level, chunk_sectors, slots, .. } = *shape;
    if level != Level::Raid0 {
        return shape.clone();
    }
    let used = shape.member_sectors.first().copied().unwrap_or(0);
    Shape::uniform(Level::Raid4, RAID4_OF_RAID0, chunk_sectors, slots.saturating_add(1), used)
}

/// The whole chunks of each member of a RAID-0.
///
/// # Errors
/// Members hold different numbers of chunks.
fn zone_sectors<'a>(
    seated: impl Iterator<Item = &'a Superblock>,
    chunk_sectors: u32,
) -> Result<u64, WishError> {
    let chunk = u64::from(chunk_sectors).max(1);
    let of = |one: &Superblock| one.device.data_size_sectors / chunk * chunk;
    let (mut least, mut most) = (u64::MAX, 0);
    for sectors in seated.map(of) {
        (least, most) = (least.min(sectors), most.max(sectors));
    }
    if least == most { Ok(most) } else { Err(WishError::Zones { least, most }) }
}

/// Sectors of a member's device from the start of its data on.
fn room(one: &ShapeMember<'_>) -> u64 {
    let sectors = one.device_bytes / braid_geometry::SECTOR_BYTES;
    sectors.saturating_sub(one.superblock.device.data_offset_sectors)
}
