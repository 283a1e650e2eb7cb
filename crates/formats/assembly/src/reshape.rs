//! An array in the middle of a reshape: two arrays of the same members, and which sectors are in which.
//!
//! ```text
//!   array sectors    0 ............ position ............ end
//!   forwards         [    after     ][       before        ]      members are added, or nothing changes in their number
//!   backwards        [    before    ][       after         ]      members are given up, or the superblocks say so
//!
//!   members' superblocks ─▶ of(): what is being done ─▶ members(Before), members(After): plain superblocks, in memory
//!                                                        └─▶ `assemble` and `rescue::plan` judge each as any other array
//! ```
//!
//! The position in the superblocks is a checkpoint. md moves on behind it, and saves it again before it writes over anything that is still
//! needed if it has to begin there again. So what the two arrays say on their own side of the position is right, also where md was further:
//! what was moved there is still where it came from. Between two checkpoints nobody writes to the array in that range.
//!
//! # The critical section
//!
//! What was said holds as long as md writes behind where it reads. Rows of the new shape begin elsewhere than those of the old one, so there
//! are places where it does not: where the shapes hold the same number of sectors in a row and the data does not move, everywhere; else at
//! the start (the end of the way, when it goes backwards), until the one is ahead of the other by a row.
//!
//! ```text
//!   3 data members become 4, from sector 0 on     reads row  0  1  2  3 ...        position 4 c: read from row 1, written to row 1
//!                                                 writes row 0  0  1  2 ...        position 12 c: read from row 4, written to row 3
//! ```
//!
//! There mdadm makes a copy first, in its backup file, or on a member that is added. Without it the sectors from the position to the end of
//! that section may have been written over in part, and they are at risk. Of a reshape in place that is all that is ahead: md saves its
//! position every ten seconds then, and with mdadm 4.2 on Linux 6.1 was seen to go through a whole array meanwhile, of which mdadm had
//! copied the first two pieces. A row is in the same place of the members in both shapes then, so that it is whole in one of them unless md
//! was at it, or a disk lost what it had in its cache when the power went. Whoever knows from elsewhere how far md got says so (`got_to`), and
//! all but what md had in hand there is at no risk.
//!
//! # Members
//!
//! Of two members with different positions the newer is right, and the older, if it is one event behind, has missed nothing. One that is
//! older than that and has another position says what was so on its own way, and is believed by nobody.
//!
//! A member that is being filled while md reshapes holds what has been moved, and nothing in the old shape. So a RAID-0 that grows as a RAID-4
//! without its parity bears what that bears: nothing.
//!
//! What it does not do: read backups or data, and go on with a reshape.
//!
//! Invariants:
//! - every sector of the array is on one side `[check: every_sector_is_on_one_side]`;
//! - what is not at risk is right at any checkpoint that md could have been cut at `[check: what_is_at_no_risk_was_not_written_over]`.

use std::ops::Range;

use braid_geometry::{Family, Geometry, Level, Shape};
use braid_ondisk::{BackupPart, Reshape, ReshapeSide, Role, Superblock};

use crate::{ProbedMember, Refusal};

/// Events that a member may be behind and still have missed nothing.
const EVENTS_BEHIND_MAX: u64 = 1;
/// Sectors of md's cache of stripes, for each member: 256 pages unless somebody said otherwise (`stripe_cache_size` in the kernel's
/// `Documentation/admin-guide/md.rst`). It wants four times the larger chunk for a reshape, and mdadm asks for more: for what it copies at
/// a time, which is at most this, and of small members at most a part of them.
const CACHE_SECTORS: u64 = 256 * 8;
const COPIED_SECTORS: u64 = 65536;
const COPIED_PART: u64 = 16;

/// What is being done to an array, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshaping {
    /// As it was.
    pub before: Shape,
    /// As it will be.
    pub after: Shape,
    /// Up to where it is moved: a sector of the array. The checkpoint, unless it is known how far md got behind that.
    pub position_sectors: u64,
    /// The checkpoint.
    pub recorded_sectors: u64,
    /// It runs from the end of the array to its start.
    pub backwards: bool,
    /// Sectors that can be read: what both shapes have.
    pub size_sectors: u64,
    /// Whether members' data begins elsewhere afterwards.
    pub moves_data: bool,
    /// Sectors that may have been written over unless there is a backup of them.
    pub at_risk: Option<Range<u64>>,
    /// What the newest member says.
    newest: Superblock,
}

/// The superblock that counts, if it says that a reshape is under way.
fn newest(members: &[ProbedMember]) -> Option<&Superblock> {
    let sound = members.iter().filter_map(|member| member.probe.newest());
    let in_slot = sound.filter(|one| matches!(one.state.role, Role::Active(_)));
    let newest = in_slot.max_by_key(|one| (one.state.events, std::cmp::Reverse(one.device.number)));
    newest.filter(|one| one.reshape.is_some())
}

impl Reshaping {
    /// What is being done to the array that these are members of; none if nothing is.
    ///
    /// # Errors
    /// It is nothing that md could be doing.
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
        let refused = || Refusal::Reshaping { position_sectors: reshape.position_sectors };
        let slots = newest.array.raid_slots;
        let count = |slots: i64| u16::try_from(slots).map_err(|_| refused());
        let member_sectors = newest.array.member_size_sectors;
        let shape = |slots: u16, (level, layout, chunk_sectors)| Shape {
            level,
            layout,
            chunk_sectors,
            slots,
            member_sectors: vec![member_sectors; usize::from(slots)],
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
            newest,
        };
        let moves: Vec<i64> = members.iter().filter_map(|one| reshaping.moves(one)).collect();
        reshaping.moves_data = moves.iter().any(|by| *by != 0);
        let critical = critical(&reshaping, &sizes, &moves);
        reshaping.at_risk = critical.filter(|range| !range.is_empty());
        Ok(reshaping)
    }

    /// Whether it is a RAID-0 that grows: md has it be a RAID-4 meanwhile, whose parity comes last and is on no member.
    #[must_use]
    pub fn is_striping(&self) -> bool {
        /// md's number of the layout that has parity on the last member.
        const PARITY_LAST: u32 = 5;
        let is_of_it = |shape: &Shape| shape.level == Level::Raid4 && shape.layout == PARITY_LAST;
        let parity = Role::Active(self.after.slots.saturating_sub(1));
        [&self.before, &self.after].into_iter().all(is_of_it)
            && !self.newest.state.roles.contains(&parity)
    }

    /// By how many sectors a member's data moves; none if it takes no part.
    fn moves(&self, member: &ProbedMember) -> Option<i64> {
        let own = member.probe.newest().filter(|own| self.takes_part(own))?;
        let old = own.device.data_offset_sectors;
        let new = own.reshape?.new_data_offset_sectors.unwrap_or(old);
        let is_in_slot = matches!(own.state.role, Role::Active(_));
        i64::try_from(new).ok()?.checked_sub(i64::try_from(old).ok()?).filter(|_| is_in_slot)
    }

    /// Whether what a superblock says of the reshape is so for the newest, too.
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

    /// The members as they would be if the array were of one of the shapes, and in no reshape. Those that take no part are as they are.
    #[must_use]
    pub fn members(&self, members: &[ProbedMember], side: ReshapeSide) -> Vec<ProbedMember> {
        let mut members = members.to_vec();
        let moved = self.moved_sectors();
        for member in &mut members {
            for found in &mut member.probe.superblocks {
                if let Ok(own) = found.as_ref()
                    && self.takes_part(own)
                {
                    *found = own.on_side(side, (moved, member.size_bytes));
                }
            }
            // md keeps no such logs while it reshapes.
            (member.ppl, member.own_log) = (None, None);
        }
        members
    }

    /// Sectors of a member's data that hold what has been moved, where that begins at their start; all, where it does not.
    fn moved_sectors(&self) -> u64 {
        let Some(Ok(Geometry::Stripe(after))) =
            (!self.backwards).then(|| Geometry::new(&self.after))
        else {
            return u64::MAX;
        };
        let chunk = u64::from(after.chunk_sectors());
        let row = chunk.saturating_mul(u64::from(after.data_slots())).max(1);
        self.position_sectors.div_ceil(row).saturating_mul(chunk)
    }

    /// Whether every row is where it was, in another shape: md writes over what it has just read.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let (before, after) = (data_slots(&self.before), data_slots(&self.after));
        self.at_risk.is_some() && !self.moves_data && before.is_some() && before == after
    }

    /// Takes it that md got to somewhere between these sectors, which are ahead of its position, and most likely to one of them: that
    /// becomes the position, and what md had in hand around any of them is what is at risk. Only of a reshape in place.
    pub fn got_to(&mut self, between: &Range<u64>, likely: u64) {
        assert!(self.is_in_place(), "elsewhere what is behind a place is still needed");
        let around = self.around(between);
        let row = self.array_row_sectors();
        self.position_sectors = (likely / row * row).clamp(around.start, around.end);
        self.at_risk = Some(around).filter(|range| !range.is_empty());
    }

    /// These sectors, with all that md may have had in hand when it was at any of them, in whole rows, as far as it is ahead of the
    /// checkpoint.
    #[must_use]
    pub fn around(&self, sectors: &Range<u64>) -> Range<u64> {
        let ahead = self.ahead_of_checkpoint();
        let row = self.array_row_sectors();
        let data = row / self.row_sectors();
        let member_sectors = self.before.member_sectors.first().copied().unwrap_or(0);
        let copied = COPIED_SECTORS.min(member_sectors / COPIED_PART) / data + 16;
        // Kernels of today let the cache grow.
        let in_hand = 2 * CACHE_SECTORS.max(4 * self.row_sectors()).max(copied) * data;
        let start = sectors.start.saturating_sub(in_hand) / row * row;
        let end = sectors.end.saturating_add(in_hand).checked_next_multiple_of(row);
        start.max(ahead.start)..end.unwrap_or(u64::MAX).min(ahead.end)
    }

    /// Sectors of the array in such a row, of an array that has rows.
    fn array_row_sectors(&self) -> u64 {
        self.row_sectors() * data_slots(&self.before).map_or(1, u64::from)
    }

    fn ahead_of_checkpoint(&self) -> Range<u64> {
        match self.backwards {
            false => self.recorded_sectors..self.size_sectors,
            true => 0..self.recorded_sectors,
        }
    }

    /// The shape of a side.
    #[must_use]
    pub fn shape(&self, side: ReshapeSide) -> &Shape {
        match side {
            ReshapeSide::Before => &self.before,
            ReshapeSide::After => &self.after,
        }
    }

    /// Which sectors are in which shape, in order; no range is empty.
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

    /// Sectors in a shape.
    #[must_use]
    pub fn on(&self, side: ReshapeSide) -> Range<u64> {
        let found = self.sides().into_iter().find(|(_, other)| *other == side);
        found.map_or(0..0, |(range, _)| range)
    }

    /// How much is done, in hundredths of a per cent.
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

    /// When the checkpoint was written, in seconds.
    #[must_use]
    pub fn updated_seconds(&self) -> u64 {
        self.newest.state.update_time.seconds
    }

    /// What of a part of a backup is needed: sectors of the array, and where in the backup they are. What the checkpoint has passed was
    /// written since, perhaps; what is ahead of it is as it was, also where md has moved it, as nobody writes there before the next one.
    #[must_use]
    pub fn needed(&self, part: &BackupPart) -> Option<(Range<u64>, u64)> {
        let ahead = self.ahead_of_checkpoint();
        let start = part.array_start_sectors.max(ahead.start);
        let end = part.array_start_sectors.saturating_add(part.length_sectors).min(ahead.end);
        let at = part.at_sectors.saturating_add(start.saturating_sub(part.array_start_sectors));
        (start < end).then_some((start..end, at))
    }

    /// Sectors of a member that a chunk of each shape fills.
    #[must_use]
    pub fn row_sectors(&self) -> u64 {
        u64::from(self.before.chunk_sectors.max(self.after.chunk_sectors)).max(1)
    }
}

/// Data in a row of it; none if it has no rows.
fn data_slots(shape: &Shape) -> Option<u16> {
    match Geometry::new(shape) {
        Ok(Geometry::Stripe(stripe)) => Some(stripe.data_slots()),
        _ => None,
    }
}

/// What both shapes have, in whole chunks of both.
fn common_sectors((before, after): &(Geometry, Geometry), member_sectors: u64) -> u64 {
    let of = |geometry: &Geometry| match geometry {
        // Chunks are powers of two.
        Geometry::Stripe(stripe) => {
            let chunk = u64::from(before.chunk_sectors().max(after.chunk_sectors())).max(1);
            (member_sectors - member_sectors % chunk).saturating_mul(u64::from(stripe.data_slots()))
        }
        Geometry::Mirror(_) | Geometry::Direct(_) => geometry.capacity_sectors(),
    };
    of(before).min(of(after)).min(before.capacity_sectors()).min(after.capacity_sectors())
}

/// What may have been written over. Numbers are below 2^54, slots below 2^11, so that 128 bits hold every product.
fn critical(
    reshaping: &Reshaping,
    (before, after): &(Geometry, Geometry),
    moves: &[i64],
) -> Option<Range<u64>> {
    let (position, size) = (reshaping.position_sectors, reshaping.size_sectors);
    let ahead = reshaping.on(ReshapeSide::Before);
    let chunk = u128::from(reshaping.row_sectors());
    // The one that has the least room between what is read and what is written.
    let worst = match reshaping.backwards {
        false => moves.iter().max(),
        true => moves.iter().min(),
    };
    let worst = i128::from(*worst?);
    let (Geometry::Stripe(before), Geometry::Stripe(after)) = (before, after) else {
        // Mirrors are moved only where there is room for it.
        return (worst == 0).then_some(ahead);
    };
    let [old, new] = [before, after].map(|shape| u128::from(shape.data_slots()));
    if old == new {
        let is_moved = moves.iter().all(|by| u128::from(by.unsigned_abs()) >= chunk);
        return (!is_moved).then_some(ahead);
    }
    // Where a row of the larger unit is read from, and where it goes.
    let is_apart = |sector: u128| {
        let row = |data: u128| i128::try_from(sector / (chunk * data) * chunk).unwrap_or(i128::MAX);
        let (read, written) = (row(old), row(new).saturating_add(worst));
        if reshaping.backwards { written > read } else { written < read }
    };
    // Forwards rows must become longer, and backwards shorter: else one never gets ahead of the other.
    let gets_apart = (new > old) != reshaping.backwards;
    if !gets_apart {
        return Some(ahead);
    }
    let step = chunk * if reshaping.backwards { old } else { new };
    let against = if reshaping.backwards { -worst } else { worst };
    // Before this nothing is apart; behind it, within some rows.
    let behind = u128::try_from(against.max(0)).unwrap_or(0) * old * new / old.abs_diff(new);
    let mut sector = behind / step * step;
    while !is_apart(sector) {
        sector += step;
    }
    let until = u64::try_from(sector).unwrap_or(u64::MAX).min(size);
    let range = if reshaping.backwards { 0..position } else { position..until };
    (position < until).then_some(range)
}
