//! An array in the middle of a reshape: two arrays of the same members, and which array has which
//! sectors.
//!
//! ```text
//!   array sectors  0 ............ position ............ end
//!   forwards       [    after     ][       before        ]  more members, or the same number
//!   backwards      [    before    ][       after         ]  fewer members, or superblocks say so
//!
//!   superblocks ─▶ of(): the reshape ─▶ members(Before), members(After): superblocks in memory
//!                                            └─▶ `assemble`, `rescue::plan`: as any other array
//! ```
//!
//! The position in the superblocks is a checkpoint. md moves data beyond it, and saves it again
//! before it overwrites any data that a restart from there still needs. So each of the two arrays
//! is right on its own side of the position, even if md was further: moved data is still at its
//! origin. Between two checkpoints no client writes to that range of the array.
//!
//! # The critical section
//!
//! Each array is right on its side as long as md writes behind its reads. Rows of the new shape
//! begin elsewhere than rows of the old shape, so in some places md's writes overtake its reads. If
//! both shapes hold the same number of sectors in a row and the data does not move, these places
//! are everywhere. Otherwise they are at the start (backwards: at the end), until reads are a row
//! ahead of writes. [`ReshapeSteps`] has the rule, and the engine's plan keeps copies in the same
//! part. A RAID-10 has no such part: md moves its copies only into free space.
//!
//! ```text
//!   3 data members become 4, from sector 0 on
//!     reads row  0  1  2  3 ...     position 4 c: read from row 1, written to row 1
//!     writes row 0  0  1  2 ...     position 12 c: read from row 4, written to row 3
//! ```
//!
//! In this section mdadm makes a copy first, in its backup file or on an added member. Without the
//! copy, the sectors from the position to the end of the section may be partly overwritten, and are
//! at risk. In a reshape in place, all sectors ahead are in the section, and md saves its position
//! every ten seconds. mdadm 4.2 on Linux 6.1 was seen to pass through a whole array in that time,
//! when mdadm had copied only the first two parts. A row has the same place in both shapes. So the
//! row is whole in one of the shapes unless md was moving it, or a disk lost its cache when power
//! failed. A caller that knows how far md got passes the place to `got_to`. Then only the rows that
//! md had in hand at that place are at risk.
//!
//! # Members
//!
//! If two members have different positions, the newer position is right. The member with the older
//! position missed nothing if it is one event behind. A member that is more events behind, with
//! another position, is on an earlier state and is not believed.
//!
//! A member that is recovered during the reshape holds one of the two shapes only. Forwards the
//! member holds the new shape, as far as data has moved. Backwards it holds the old shape, if it is
//! recovered up to the position; such a member came with a reshape that was reversed.
//!
//! # RAID-0
//!
//! A RAID-0 changes its shape as a RAID-4 whose parity is on its last slot, and missing in both
//! shapes. The last slot of the shape with fewer members holds data in the other shape, so its
//! member holds one shape only. This is how braid knows that the array is a RAID-0 at the end.
//!
//! This file does not read backups or data, and does not continue a reshape.
//!
//! Invariants:
//! - every sector of the array is on one side `[check: every_sector_is_on_one_side]`;
//! - sectors not at risk are right at any checkpoint at which md could stop
//!   `[check: what_is_at_no_risk_was_not_written_over]`.

use std::ops::Range;

use braid_geometry::{Family, Geometry, Level, ReshapeSteps, Shape, Slot};
use braid_ondisk::{BackupPart, Reshape, ReshapePoint, ReshapeSide, Role, Superblock};
use braid_sim_hooks::{Bug, spoiled};

use crate::bad_records::bad_records_from;
use crate::levelled_shapes::{of_all, rows_below};
use crate::{
    Assembly, MemberVerdict, Options, ProbedMember, Refusal, ReshapeFault, Verdict, assemble_shape,
};

/// A member that is at most this many events behind has missed nothing.
const EVENTS_BEHIND_MAX: u64 = 1;
/// Sectors of md's stripe cache on each member: 256 pages by default (`stripe_cache_size` in the
/// kernel's `Documentation/admin-guide/md.rst`). A reshape needs a cache of four times the larger
/// chunk.
const CACHE_SECTORS: u64 = 256 * 8;
/// The most sectors that mdadm copies at a time. mdadm asks for a cache that holds them.
const COPIED_SECTORS: u64 = 65536;
/// On small members, mdadm copies at most the member's sectors divided by this at a time.
const COPIED_PART: u64 = 16;

/// A reshape in which an array can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledReshape {
    /// The old shape.
    pub before: Shape,
    /// The new shape.
    pub after: Shape,
    /// The array sector up to which superblocks say that data is moved.
    pub position_sectors: u64,
    /// Whether the reshape runs from the array's end to its start.
    pub backwards: bool,
    /// For each member in a slot, the places of its data.
    pub moves: Vec<MemberMove>,
}

/// The places of one member's data in the two shapes of a reshape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberMove {
    /// The member's index in the input.
    pub member: usize,
    /// First sector of the data in the old shape, from the start of the device.
    pub before_sectors: u64,
    /// First sector of the data in the new shape.
    pub after_sectors: u64,
}

/// Assembles an array in the middle of a reshape; `None` if the members are of no such array.
pub(crate) fn assemble(members: &[ProbedMember], options: &Options) -> Option<Assembly> {
    let plain = assemble_shape(members, options);
    let Err(Refusal::Reshaping { position_sectors, fault }) = plain.array else { return None };
    let mut refused =
        Assembly { array: Err(Refusal::Reshaping { position_sectors, fault }), ..plain };
    let is_ours = |(_, verdict): &(&ProbedMember, &MemberVerdict)| {
        !matches!(verdict.verdict, Verdict::Foreign | Verdict::NotAMember)
    };
    let ours = members.iter().zip(&refused.verdicts).filter(is_ours);
    let ours: Vec<ProbedMember> = ours.map(|(member, _)| member.clone()).collect();
    let Some(Ok(reshaping)) = Reshaping::of(&ours) else { return Some(refused) };
    let has_copy = options.window_copies.contains(&reshaping.newest.array.uuid);
    let fault = match (reshaping.is_movable(), reshaping.at_risk.is_some()) {
        (false, _) => Some(ReshapeFault::Level),
        (true, true) if !has_copy => Some(ReshapeFault::NoCopy),
        (true, _) => None,
    };
    if let Some(fault) = fault {
        refused.array = Err(Refusal::Reshaping { position_sectors, fault });
        return Some(refused);
    }
    let (wide, narrow) = match reshaping.after.slots >= reshaping.before.slots {
        true => (ReshapeSide::After, ReshapeSide::Before),
        false => (ReshapeSide::Before, ReshapeSide::After),
    };
    // It must be possible to assemble the array in both shapes, since each row is in one shape or
    // in the other.
    let other = assemble_shape(&reshaping.members(members, narrow), options);
    let mut assembly = assemble_shape(&reshaping.members(members, wide), options);
    match (&mut assembly.array, other.array) {
        (Ok(_), Err(refusal)) => assembly.array = Err(refusal),
        // As in md, the bitmap of a RAID-10 covers the sectors that both shapes have.
        (Ok(array), Ok(narrow)) if is_wider(&array.geometry, &narrow.geometry) => {
            array.bitmap = narrow.bitmap;
        }
        _ => {}
    }
    if let Ok(array) = &mut assembly.array {
        let own = |index: usize| members[index].probe.newest().expect("it has a slot");
        array.newest = own(array.newest_member).clone();
        let said = array.newest.reshape.map(|reshape| reshape.position_sectors);
        let found_first = position_sectors;
        let position_sectors = said.unwrap_or(found_first);
        let position_sectors = spoiled(Bug::TornPositionKept, position_sectors, found_first);
        let used = array.geometry.used_sectors(Slot(0));
        let mut moves = Vec::new();
        for occupant in array.slots.iter_mut().flatten() {
            let superblock = own(occupant.member);
            let before_sectors = superblock.device.data_offset_sectors;
            let moved = superblock.reshape.and_then(|reshape| reshape.new_data_offset_sectors);
            let after_sectors = moved.unwrap_or(before_sectors);
            let base = before_sectors.min(after_sectors);
            let used = used + before_sectors.abs_diff(after_sectors);
            occupant.bad_records =
                bad_records_from(superblock, &members[occupant.member], (base, used));
            occupant.recovered_until =
                superblock.device.recovery_offset_sectors.unwrap_or(u64::MAX);
            moves.push(MemberMove { member: occupant.member, before_sectors, after_sectors });
        }
        let is_whole = |side| {
            let needed = reshaping.needed_sectors(side);
            let is_lost = |slot: Slot| {
                let occupant = array.slots.get(usize::from(slot.0)).and_then(Option::as_ref);
                occupant.is_none_or(|one| {
                    one.recovered_until != u64::MAX && one.recovered_until < needed
                })
            };
            Geometry::new(reshaping.shape(side)).is_ok_and(|one| one.survives(&is_lost))
        };
        if !ReshapeSide::ALL.into_iter().all(is_whole) {
            let fault = ReshapeFault::Members;
            assembly.array = Err(Refusal::Reshaping { position_sectors, fault });
            return Some(assembly);
        }
        // A RAID-0 lacks its parity on purpose: the array has all the members that it needs.
        array.degraded = array.degraded.saturating_sub(u16::from(reshaping.is_striping()));
        array.reshape = Some(AssembledReshape {
            before: reshaping.before.clone(),
            after: reshaping.after.clone(),
            position_sectors,
            backwards: reshaping.backwards,
            moves,
        });
    }
    Some(assembly)
}

/// A reshape and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshaping {
    /// The old shape.
    pub before: Shape,
    /// The new shape.
    pub after: Shape,
    /// The array sector up to which data is moved: the checkpoint, or a later position that the
    /// caller knows.
    pub position_sectors: u64,
    /// The array sector of the checkpoint, as superblocks record it.
    pub recorded_sectors: u64,
    /// Whether the reshape runs from the array's end to its start.
    pub backwards: bool,
    /// The sectors of the array that can be read: those that both shapes have.
    pub size_sectors: u64,
    /// Whether the members' data offset changes.
    pub moves_data: bool,
    /// Array sectors that may be overwritten, unless a backup has them.
    pub at_risk: Option<Range<u64>>,
    /// The steps of the reshape; `None` for shapes without them, or without members.
    steps: Option<ReshapeSteps>,
    /// Whether a RAID-0 changes its shape.
    is_striping: bool,
    /// The newest member's superblock.
    newest: Superblock,
}

/// The newest superblock, if it records a reshape.
fn newest(members: &[ProbedMember]) -> Option<&Superblock> {
    let in_slot = of_all(members).filter(|(one, _)| matches!(one.state.role, Role::Active(_)));
    let newest = in_slot.max_by_key(|(one, tie)| (one.state.events, *tie));
    newest.map(|(one, _)| one).filter(|one| one.reshape.is_some())
}

impl Reshaping {
    /// The reshape of these members' array; `None` if the array is in no reshape.
    ///
    /// # Errors
    /// If md has no such reshape.
    #[must_use]
    pub fn of(members: &[ProbedMember]) -> Option<Result<Self, Refusal>> {
        let newest = newest(members)?.clone();
        let reshape = newest.reshape?;
        Some(Self::new(newest, reshape, members))
    }

    fn new(
        newest: Superblock,
        reshape: Reshape,
        members: &[ProbedMember],
    ) -> Result<Self, Refusal> {
        let refused = || Refusal::Reshaping {
            position_sectors: reshape.position_sectors,
            fault: ReshapeFault::Shapes,
        };
        let slots = newest.array.raid_slots;
        let count = |slots: i64| u16::try_from(slots).map_err(|_| refused());
        let member_sectors = newest.array.member_size_sectors;
        let shape = |slots: u16, (level, layout, chunk_sectors)| {
            Shape::uniform(level, layout, chunk_sectors, slots, member_sectors)
        };
        let array = &newest.array;
        let slots_before = i64::from(slots).saturating_sub(i64::from(reshape.delta_disks));
        let before = shape(count(slots_before)?, (array.level, array.layout, array.chunk_sectors));
        let after = shape(
            count(i64::from(slots))?,
            (reshape.new_level, reshape.new_layout, reshape.new_chunk_sectors),
        );
        let sizes = (Geometry::new(&before)?, Geometry::new(&after)?);
        if before.level.family() != after.level.family() || before.level.family() == Family::Direct
        {
            return Err(refused());
        }
        let size_sectors = common_sectors(&sizes, member_sectors);
        let mut reshaping = Self {
            before,
            after,
            position_sectors: reshape.position_sectors.min(size_sectors),
            recorded_sectors: reshape.position_sectors.min(size_sectors),
            backwards: reshape.backwards,
            size_sectors,
            moves_data: false,
            at_risk: None,
            steps: None,
            is_striping: false,
            newest,
        };
        reshaping.is_striping = is_striping(&reshaping, members);
        let moves: Vec<i64> = members.iter().filter_map(|one| reshaping.moves(one)).collect();
        reshaping.moves_data = moves.iter().any(|by| *by != 0);
        // The gap of the member that has the least room between reads and writes.
        let gap = match reshape.backwards {
            false => moves.iter().max().and_then(|by| by.checked_neg()),
            true => moves.iter().min().copied(),
        };
        let (before, after) = &sizes;
        reshaping.steps =
            gap.and_then(|gap| ReshapeSteps::new((before, after), gap, reshape.backwards));
        let critical = gap.and_then(|gap| critical(&reshaping, gap));
        reshaping.at_risk = critical.filter(|range| !range.is_empty());
        Ok(reshaping)
    }

    /// Whether a RAID-0 changes its shape. During the reshape the array is a RAID-4 without a
    /// member for parity.
    #[must_use]
    pub fn is_striping(&self) -> bool {
        self.is_striping
    }

    /// Whether the data of arrays of these shapes moves.
    fn is_movable(&self) -> bool {
        let of = |shape| Geometry::new(shape).ok();
        let both = of(&self.before).zip(of(&self.after));
        both.is_some_and(|both| ReshapeSteps::new((&both.0, &both.1), 0, false).is_some())
    }

    /// The sectors by which a member's data moves; `None` if the member takes no part in the
    /// reshape.
    fn moves(&self, member: &ProbedMember) -> Option<i64> {
        let own = member.probe.newest().filter(|own| self.takes_part(own))?;
        let old = own.device.data_offset_sectors;
        let new = own.reshape?.new_data_offset_sectors.unwrap_or(old);
        let is_in_slot = matches!(own.state.role, Role::Active(_));
        i64::try_from(new).ok()?.checked_sub(i64::try_from(old).ok()?).filter(|_| is_in_slot)
    }

    /// Whether a superblock records the same reshape as the newest superblock.
    fn takes_part(&self, own: &Superblock) -> bool {
        let (Some(mine), Some(reshape)) = (own.reshape, self.newest.reshape) else { return false };
        let plan = |one: &Reshape| {
            (one.delta_disks, one.new_level, one.new_layout, one.new_chunk_sectors, one.backwards)
        };
        let behind = self.newest.state.events.saturating_sub(own.state.events);
        own.array.uuid == self.newest.array.uuid
            && own.version == self.newest.version
            && plan(&mine) == plan(&reshape)
            && (mine.position_sectors == reshape.position_sectors || behind <= EVENTS_BEHIND_MAX)
    }

    /// The members as those of an array of one shape, without a reshape. Members that take no part
    /// are unchanged.
    #[must_use]
    pub fn members(&self, members: &[ProbedMember], side: ReshapeSide) -> Vec<ProbedMember> {
        let mut members = members.to_vec();
        let needed = self.needed_sectors(side);
        for member in &mut members {
            for found in &mut member.probe.superblocks {
                if let Ok(own) = found.as_ref()
                    && self.takes_part(own)
                {
                    *found = own.on_side(side, (needed, member.size_bytes));
                }
            }
            // During a reshape md keeps no parity logs.
            (member.ppl, member.own_log) = (None, None);
        }
        members
    }

    /// The sectors up to which a recovering member must be recovered to hold all that has the shape
    /// of this side; `u64::MAX` if a recovering member never holds that side.
    fn needed_sectors(&self, side: ReshapeSide) -> u64 {
        let is_held = (side == ReshapeSide::After) != self.backwards;
        let needed = rows_below(self.shape(side), self.position_sectors).filter(|_| is_held);
        needed.unwrap_or(u64::MAX)
    }

    /// Whether every row stays at its place, so that md overwrites the rows that it has just read.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let (before, after) = (data_slots(&self.before), data_slots(&self.after));
        self.at_risk.is_some() && !self.moves_data && before.is_some() && before == after
    }

    /// Notes that md's reshape reached a position in the range `between`, most likely `likely`.
    /// `likely` becomes the position. Only sectors around `between`, which md may have had in hand,
    /// are at risk. `between` is ahead of the checkpoint. The reshape must be in place.
    pub fn got_to(&mut self, between: &Range<u64>, likely: u64) {
        assert!(self.is_in_place(), "elsewhere what is behind a place is still needed");
        let around = self.around(between);
        let row = self.array_row_sectors();
        self.position_sectors = (likely / row * row).clamp(around.start, around.end);
        self.at_risk = Some(around).filter(|range| !range.is_empty());
    }

    /// The whole rows ahead of the checkpoint that md may have been moving while its position was
    /// in `sectors`.
    #[must_use]
    pub fn around(&self, sectors: &Range<u64>) -> Range<u64> {
        let ahead = self.ahead_of_checkpoint();
        let row = self.array_row_sectors();
        let data = row / self.row_sectors();
        let member_sectors = self.before.member_sectors.first().copied().unwrap_or(0);
        let copied = COPIED_SECTORS.min(member_sectors / COPIED_PART) / data + 16;
        // Recent kernels let the stripe cache grow, so `in_hand` counts twice the cache's size.
        let in_hand = 2 * CACHE_SECTORS.max(4 * self.row_sectors()).max(copied) * data;
        let start = sectors.start.saturating_sub(in_hand) / row * row;
        let end = sectors.end.saturating_add(in_hand).checked_next_multiple_of(row);
        start.max(ahead.start)..end.unwrap_or(u64::MAX).min(ahead.end)
    }

    /// The array sectors of a row of the old shape, with the larger chunk of the two. In a reshape
    /// in place both shapes have the same rows.
    #[must_use]
    pub fn array_row_sectors(&self) -> u64 {
        self.row_sectors() * data_slots(&self.before).map_or(1, u64::from)
    }

    fn ahead_of_checkpoint(&self) -> Range<u64> {
        match self.backwards {
            false => self.recorded_sectors..self.size_sectors,
            true => 0..self.recorded_sectors,
        }
    }

    /// The shape of the array on one side of the position.
    #[must_use]
    pub fn shape(&self, side: ReshapeSide) -> &Shape {
        match side {
            ReshapeSide::Before => &self.before,
            ReshapeSide::After => &self.after,
        }
    }

    /// The array sectors on each side of the position, in order, without empty ranges.
    #[must_use]
    pub fn sides(&self) -> Vec<(Range<u64>, ReshapeSide)> {
        let (first, second) = match self.backwards {
            false => (ReshapeSide::After, ReshapeSide::Before),
            true => (ReshapeSide::Before, ReshapeSide::After),
        };
        let position = self.position_sectors;
        let both = [(0..position, first), (position..self.size_sectors, second)];
        both.into_iter().filter(|(range, _)| !range.is_empty()).collect()
    }

    /// The array sectors that have this side's shape.
    #[must_use]
    pub fn on(&self, side: ReshapeSide) -> Range<u64> {
        let found = self.sides().into_iter().find(|(_, other)| *other == side);
        found.map_or(0..0, |(range, _)| range)
    }

    /// The part of the reshape that is done, in hundredths of a per cent.
    #[must_use]
    pub fn done_basis_points(&self) -> u64 {
        let done = self.on(ReshapeSide::After);
        let (done, size) =
            (u128::from(done.end - done.start), u128::from(self.size_sectors.max(1)));
        u64::try_from(done * 10_000 / size).unwrap_or(10_000)
    }

    /// The array's UUID, as a backup stores it.
    #[must_use]
    pub fn uuid_as_stored(&self) -> [u8; 16] {
        self.newest.uuid_as_stored()
    }

    /// The time of the checkpoint, in seconds.
    #[must_use]
    pub fn updated_seconds(&self) -> u64 {
        self.newest.state.update_time.seconds
    }

    /// The range of a backup part that a reader needs: array sectors, and their place in the
    /// backup. Sectors before the checkpoint may have been written since. Sectors ahead of it are
    /// unchanged even if md has moved them, because no client writes to them before the next
    /// checkpoint.
    #[must_use]
    pub fn needed(&self, part: &BackupPart) -> Option<(Range<u64>, u64)> {
        let ahead = self.ahead_of_checkpoint();
        let start = part.array_start_sectors.max(ahead.start);
        let end = part.array_start_sectors.saturating_add(part.length_sectors).min(ahead.end);
        let at = part.at_sectors.saturating_add(start.saturating_sub(part.array_start_sectors));
        (start < end).then_some((start..end, at))
    }

    /// The window in place that begins at the checkpoint, and covers at least the sectors `needed`
    /// of the part in place. The window ends at a unit, where the reshape can also be reversed.
    /// `None` if no window moves in place at the checkpoint.
    #[must_use]
    pub fn window_in_place(&self, needed: &Range<u64>) -> Option<Range<u64>> {
        let (steps, from) = (self.steps.as_ref()?, self.recorded_sectors);
        let can_move = steps.can_be_in_place() && steps.stays_behind() && steps.is_in_place(from);
        let (unit, next) = (steps.unit_sectors(), steps.one_step_ahead(from));
        let window = match self.backwards {
            false => {
                let end = needed.end.max(next).next_multiple_of(unit);
                from..end.min(steps.end_in_place(from)).min(self.size_sectors)
            }
            true => needed.start.min(next) / unit * unit..from,
        };
        (can_move && !window.is_empty()).then_some(window)
    }

    /// The reshape and its position, as superblocks record them.
    #[must_use]
    pub fn point(&self) -> Option<ReshapePoint> {
        ReshapePoint::of(&self.newest)
    }

    /// The array's UUID.
    #[must_use]
    pub fn uuid(&self) -> &[u8; 16] {
        &self.newest.array.uuid
    }

    /// The larger chunk of the two shapes, in sectors.
    #[must_use]
    pub fn row_sectors(&self) -> u64 {
        u64::from(self.before.chunk_sectors.max(self.after.chunk_sectors)).max(1)
    }
}

/// Whether both shapes are those of a RAID-4 with parity on its last slot, and neither shape has a
/// member in that slot that holds parity.
fn is_striping(reshaping: &Reshaping, members: &[ProbedMember]) -> bool {
    /// md's layout number for parity on the last member.
    const PARITY_LAST: u32 = 5;
    let (before, after) = (&reshaping.before, &reshaping.after);
    let is_of_it = |shape: &Shape| shape.level == Level::Raid4 && shape.layout == PARITY_LAST;
    let last = |slots: u16| Role::Active(slots.saturating_sub(1));
    let own = members.iter().filter_map(|member| member.probe.newest());
    let is_whole = |own: &Superblock| {
        reshaping.takes_part(own) && own.device.recovery_offset_sectors.is_none()
    };
    let mut whole = own.filter(|own| is_whole(own)).map(|own| own.state.role);
    let narrow = last(before.slots.min(after.slots));
    [before, after].into_iter().all(is_of_it)
        && !reshaping.newest.state.roles.contains(&last(before.slots.max(after.slots)))
        && !whole.any(|role| role == narrow)
}

/// Whether a RAID-10 has more sectors than another.
fn is_wider(one: &Geometry, other: &Geometry) -> bool {
    one.level() == Level::Raid10 && one.capacity_sectors() > other.capacity_sectors()
}

/// Data slots in a row; `None` for a level without rows.
fn data_slots(shape: &Shape) -> Option<u16> {
    match Geometry::new(shape) {
        Ok(Geometry::Stripe(stripe)) => Some(stripe.data_slots()),
        _ => None,
    }
}

/// Array sectors that both shapes have, in whole chunks of both.
fn common_sectors((before, after): &(Geometry, Geometry), member_sectors: u64) -> u64 {
    let of = |geometry: &Geometry| match geometry {
        // Both chunks are powers of two, so the larger chunk is a multiple of the smaller chunk.
        Geometry::Stripe(stripe) => {
            let chunk = u64::from(before.chunk_sectors().max(after.chunk_sectors())).max(1);
            (member_sectors - member_sectors % chunk).saturating_mul(u64::from(stripe.data_slots()))
        }
        Geometry::Mirror(_) | Geometry::Direct(_) => geometry.capacity_sectors(),
    };
    of(before).min(of(after)).min(before.capacity_sectors()).min(after.capacity_sectors())
}

/// The array sectors that may be half moved, unless a copy exists.
fn critical(reshaping: &Reshaping, gap: i64) -> Option<Range<u64>> {
    let position = reshaping.position_sectors;
    let ahead = reshaping.on(ReshapeSide::Before);
    let Some(steps) = reshaping.steps else { return (gap == 0).then_some(ahead) };
    // If reads never get ahead of writes, all sectors ahead are overwritten before they are read.
    let is_possible = match steps.can_be_in_place() {
        true => steps.stays_behind(),
        false => steps.stays_behind() && gap >= steps.gap_of_md().cast_signed(),
    };
    if !is_possible {
        return Some(ahead);
    }
    let is_at_risk = steps.can_be_in_place() && !ahead.is_empty() && steps.is_in_place(position);
    let until = steps.end_in_place(position);
    let range = if reshaping.backwards { until..position } else { position..until };
    is_at_risk.then_some(range)
}
