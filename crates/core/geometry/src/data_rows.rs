//! The rows in which a shape deals an array's sectors onto members, and the room between the reads
//! and the writes of a reshape.
//!
//! A reshape reads rows of the old shape and writes rows of the new one, on the same members. The
//! data also moves by `gap` sectors, so that writes stay behind reads:
//!
//! ```text
//!   one member, forwards
//!   new shape  [ moved, recorded ][ the next step ]
//!   old shape                     |<──── gap ────▶[ not moved yet ................. ]
//! ```
//!
//! The position of a reshape is a multiple of a *step*: of a row of the new shape, where shapes
//! have parity. The larger chunk counts in both shapes, as in md (`raid5_run` and `reshape_request`
//! in Linux 6.12). Copies have no rows to be whole, so a step is the larger chunk
//! (`raid10_start_reshape`). md takes over a reshape, or reverses it, where rows of both shapes
//! begin: at a multiple of a *unit*.
//!
//! This file does no I/O and does not choose windows; the engine's plan chooses windows
//! (`engine/src/reshape/plan.rs`), and `assembly` names the sectors at risk by the same rules.
//!
//! Invariants
//! - each copy of a sector is within its rows `[check: rows_hold_all_copies]`;
//! - a step that is not in place overwrites nothing that the array needs at its position, nor does
//!   a longer write within the room `[check: nothing_that_is_needed_is_overwritten]`;
//! - with the gap of a step no position is in place `[check: a_gap_of_a_step_is_enough]`.

use crate::Geometry;

/// The most steps that are tried for the least gap of a reshape: shapes may come from a superblock
/// that was forged.
const PERIOD_STEPS_MAX: u64 = 1 << 16;

/// How a shape deals an array's sectors onto rows of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRows {
    chunk_sectors: u64,
    /// Copies of each chunk in the deal; 1 with parity.
    copies: u64,
    /// Chunks of a row.
    chunks: u64,
    /// Rows of members for a row of the deal: the number of offset copies.
    depth: u64,
}

impl DataRows {
    /// The rows of a shape; `None` for shapes whose data is not dealt in rows from the start to the
    /// end of members: RAID-0, RAID-1, linear, and RAID-10 with far copies.
    #[must_use]
    pub fn of(geometry: &Geometry) -> Option<Self> {
        match geometry {
            Geometry::Direct(_) => None,
            Geometry::Stripe(stripe) => Some(Self {
                chunk_sectors: stripe.chunk_sectors().into(),
                copies: 1,
                chunks: stripe.data_slots().into(),
                depth: 1,
            }),
            Geometry::Mirror(mirror) => {
                let (near, depth) = mirror.near_and_offset_copies()?;
                Some(Self {
                    chunk_sectors: mirror.chunk_sectors().into(),
                    copies: near.into(),
                    chunks: mirror.slots().into(),
                    depth: depth.into(),
                })
            }
        }
    }

    /// The first sector of members on which the array's sectors from `sector` on lie.
    #[must_use]
    pub fn first_of(&self, sector: u64) -> u64 {
        let row = sector / self.chunk_sectors * self.copies / self.chunks;
        row.saturating_mul(self.row_of_members())
    }

    /// The sector of members after the rows that hold the array's sectors below `sector`.
    #[must_use]
    pub fn end_of(&self, sector: u64) -> u64 {
        let dealt = sector.div_ceil(self.chunk_sectors).saturating_mul(self.copies);
        dealt.div_ceil(self.chunks).saturating_mul(self.row_of_members())
    }

    /// The most sectors of the array that lie below a sector of members, in whole chunks.
    fn fits_below(&self, limit: u64) -> u64 {
        let rows = limit / self.row_of_members();
        (rows.saturating_mul(self.chunks) / self.copies).saturating_mul(self.chunk_sectors)
    }

    /// The start of the first chunk of the array from which on all sectors lie at or behind a
    /// sector of members.
    fn fits_behind(&self, limit: u64) -> u64 {
        let rows = limit.div_ceil(self.row_of_members());
        rows.saturating_mul(self.chunks).div_ceil(self.copies).saturating_mul(self.chunk_sectors)
    }

    /// Sectors that a row of the deal takes on each member.
    fn row_of_members(&self) -> u64 {
        self.chunk_sectors * self.depth
    }

    /// Sectors of the array after which a piece of the array may end. With parity a piece is a
    /// whole row.
    #[must_use]
    pub fn piece_sectors(&self) -> u64 {
        let is_of_copies = self.copies > 1 || self.depth > 1;
        if is_of_copies { self.chunk_sectors } else { self.chunk_sectors * self.chunks }
    }

    /// The same rows with larger chunks, as md counts them in a reshape of shapes with parity.
    fn with_chunk(self, chunk_sectors: u64) -> Self {
        Self { chunk_sectors, ..self }
    }
}

/// The steps of a reshape, and the room between its reads and its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeSteps {
    before: DataRows,
    after: DataRows,
    has_parity: bool,
    gap_sectors: i64,
    backwards: bool,
    /// Sectors of the array that both shapes have.
    size_sectors: u64,
}

impl ReshapeSteps {
    /// The steps of a reshape in which each member's data moves by at least `gap_sectors`: forwards
    /// towards its start, backwards towards its end. `None` if no data of such shapes moves.
    #[must_use]
    pub fn new(
        (before, after): (&Geometry, &Geometry),
        gap_sectors: i64,
        backwards: bool,
    ) -> Option<Self> {
        let has_parity = match (before, after) {
            (Geometry::Stripe(_), Geometry::Stripe(_)) => true,
            (Geometry::Mirror(_), Geometry::Mirror(_)) => false,
            _ => return None,
        };
        let (mut rows, mut new_rows) = (DataRows::of(before)?, DataRows::of(after)?);
        if has_parity {
            let chunk = rows.chunk_sectors.max(new_rows.chunk_sectors);
            (rows, new_rows) = (rows.with_chunk(chunk), new_rows.with_chunk(chunk));
        } else if rows.copies * rows.depth != new_rows.copies * new_rows.depth {
            return None;
        }
        let size_sectors = before.capacity_sectors().min(after.capacity_sectors());
        let (before, after) = (rows, new_rows);
        Some(Self { before, after, has_parity, gap_sectors, backwards, size_sectors })
    }

    /// Whether the reshape runs from the array's end to its start.
    #[must_use]
    pub fn is_backwards(&self) -> bool {
        self.backwards
    }

    /// The number of sectors of the array that both shapes have.
    #[must_use]
    pub fn size_sectors(&self) -> u64 {
        self.size_sectors
    }

    /// Whether writes stay behind reads in this direction, wherever they begin: forwards the new
    /// rows hold no less of the array than the old rows, backwards no more.
    #[must_use]
    pub fn stays_behind(&self) -> bool {
        let [old, new] = [&self.before, &self.after].map(|rows| rows.chunks);
        // The depth cancels out: both shapes have as many copies in all.
        if self.backwards { new <= old } else { new >= old }
    }

    /// The distance, in sectors of the array, between the positions of the reshape.
    #[must_use]
    pub fn step_sectors(&self) -> u64 {
        match self.has_parity {
            true => self.after.piece_sectors(),
            false => self.before.chunk_sectors.max(self.after.chunk_sectors),
        }
    }

    /// The distance, in sectors of the array, between positions at which the reshape can be
    /// reversed.
    #[must_use]
    pub fn unit_sectors(&self) -> u64 {
        match self.has_parity {
            true => {
                let (one, other) = (self.before.piece_sectors(), self.after.piece_sectors());
                one / gcd(one, other) * other
            }
            false => self.step_sectors(),
        }
    }

    /// The least gap, in sectors of members, with which no step is in place, and that md accepts.
    #[must_use]
    pub fn gap_of_step(&self) -> u64 {
        let [old, new] = [&self.before, &self.after].map(DataRows::row_of_members);
        if self.has_parity {
            return new;
        }
        // The distance depends on how copies lie in rows, which repeats after some steps. After
        // that period reads are as far ahead of writes, or further. A step may begin within a row,
        // and end within another row: that bounds the distance where too many steps would have to
        // be tried.
        let step = self.step_sectors();
        let (slots, new_slots) = (self.before.chunks, self.after.chunks);
        let period = slots / gcd(slots, new_slots) * new_slots;
        let distance = |number: u64| {
            let (start, end) = (number * step, number * step + step);
            match self.backwards {
                false => self.after.end_of(end).saturating_sub(self.before.first_of(start)),
                true => self.before.end_of(end).saturating_sub(self.after.first_of(start)),
            }
        };
        let largest = match period <= PERIOD_STEPS_MAX {
            true => (0..period).map(distance).max().unwrap_or(0),
            false => old + new + step,
        };
        largest.max(old).max(new).next_multiple_of(step)
    }

    /// The least gap, in sectors of members, with which md moves data without treating any part as
    /// overwriting itself: md moves less than a step at a time.
    #[must_use]
    pub fn gap_of_md(&self) -> u64 {
        self.before.row_of_members().max(self.after.row_of_members())
    }

    /// The least gap, in sectors of members, with which no unit is in place.
    #[must_use]
    pub fn gap_of_unit(&self) -> u64 {
        match self.has_parity {
            true => {
                let unit = self.unit_sectors();
                self.before.end_of(unit).max(self.after.end_of(unit))
            }
            false => self.gap_of_step(),
        }
    }

    /// Whether parts in place can be moved, from a copy. In a shape with copies, chunks share rows
    /// with chunks that other steps move, so nothing moves in place.
    #[must_use]
    pub fn can_be_in_place(&self) -> bool {
        self.has_parity
    }

    /// Whether the step at `position` overwrites sectors that it reads, or that the array needs if
    /// the step is cut short.
    #[must_use]
    pub fn is_in_place(&self, position: u64) -> bool {
        match self.backwards {
            false => self.room_end(position) < self.one_step_ahead(position),
            true => self.room_start(position) > self.one_step_ahead(position),
        }
    }

    /// The position one step after `position`, within the sectors that both shapes have.
    #[must_use]
    pub fn one_step_ahead(&self, position: u64) -> u64 {
        let step = self.step_sectors();
        match self.backwards {
            false => (position / step * step).saturating_add(step).min(self.size_sectors),
            true => position.saturating_sub(1) / step * step,
        }
    }

    /// The sector of the array below which all sectors can be written in the new shape while the
    /// old shape is needed from `position` on. For a reshape forwards.
    #[must_use]
    pub fn room_end(&self, position: u64) -> u64 {
        let read = i128::from(self.before.first_of(position));
        let room = (read + i128::from(self.gap_sectors)).max(0);
        let fits = self.after.fits_below(u64::try_from(room).unwrap_or(u64::MAX));
        // The last row of both shapes may be incomplete.
        if self.after.end_of(self.size_sectors) <= self.after.end_of(fits) {
            return self.size_sectors;
        }
        fits
    }

    /// The sector of the array from which on all sectors can be written in the new shape while the
    /// old shape is needed up to `position`. For a reshape backwards.
    #[must_use]
    pub fn room_start(&self, position: u64) -> u64 {
        let read = i128::from(self.before.end_of(position));
        let from = (read - i128::from(self.gap_sectors)).max(0);
        self.after.fits_behind(u64::try_from(from).unwrap_or(u64::MAX))
    }

    /// The end of the part in place that `position` is in: forwards the first position ahead whose
    /// step is not in place, backwards the start of the array.
    #[must_use]
    pub fn end_in_place(&self, position: u64) -> u64 {
        if self.backwards {
            return 0;
        }
        // With parity and more data in a row, reads only get further ahead of writes.
        let step = self.step_sectors();
        let (mut low, mut high) = (position / step, self.size_sectors.div_ceil(step));
        if !self.can_be_in_place() {
            low = high;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            let is_in_place = self.is_in_place(middle * step);
            (low, high) = if is_in_place { (middle + 1, high) } else { (low, middle) };
        }
        (low * step).max(position).min(self.size_sectors)
    }

    /// The sectors at the array's start whose steps are in place, in the direction of the reshape.
    #[must_use]
    pub fn sectors_in_place(&self) -> u64 {
        if !self.can_be_in_place() {
            return 0;
        }
        if !self.backwards {
            return self.end_in_place(0);
        }
        // The nearer a step is to the array's start, the nearer are its reads and writes.
        let step = self.step_sectors();
        let is_in_place = |number: u64| self.is_in_place((number * step).min(self.size_sectors));
        let (mut low, mut high) = (0, self.size_sectors.div_ceil(step));
        while low < high {
            let middle = high - (high - low) / 2;
            (low, high) = if is_in_place(middle) { (middle, high) } else { (low, middle - 1) };
        }
        (low * step).min(self.size_sectors)
    }
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}
