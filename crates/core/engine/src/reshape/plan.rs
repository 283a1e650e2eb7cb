//! The windows of a reshape: how many sectors may move before superblocks must record the new
//! position.
//!
//! A window is a run of the array's sectors that is read in the old shape and written in the new
//! one. No write may overwrite a sector that superblocks still place in the old shape. So a window
//! ends before its writes would reach the first such sector.
//!
//! ```text
//!   one member, forwards; data moves `gap` sectors towards the start
//!   new shape  [ moved, recorded ][ the next window ]
//!   old shape                     |<──── gap ────▶[ not moved yet ................. ]
//! ```
//!
//! Windows end at sectors where rows of both shapes begin, so that a reshape can go back from each
//! recorded position, and md can take over there. Where the gap has no room for a window, the
//! window is *in place*: its writes overwrite what it reads, and a copy must exist before.
//!
//! Beyond the last sector that both shapes have, a reshape to a larger shape writes zeroes, as md
//! does: there redundancy agrees from the beginning.
//!
//! Invariants
//! - a window in the gap overwrites nothing that is not recorded as moved
//!   `[check: no_window_overwrites_what_is_not_recorded]`;
//! - windows follow each other from the first sector to the last, each at a border of both rows
//!   `[check: windows_cover_the_array_once]`.

use std::ops::Range;

use braid_geometry::{Geometry, StripeGeometry};
use braid_sim_hooks::{Bug, planted, spoiled};

/// The two shapes of a reshape, its gap and its direction, from which its windows are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapePlan {
    before: StripeGeometry,
    after: StripeGeometry,
    gap_sectors: i64,
    backwards: bool,
}

/// The next part of a reshape. Sectors count from the start of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeWindow {
    /// Sectors to read in the old shape and to write in the new one.
    pub moved: Range<u64>,
    /// Sectors to write as zeroes in the new shape. They follow `moved`.
    pub zeroed: Range<u64>,
    /// Whether the window's writes overwrite the sectors that it reads.
    pub in_place: bool,
}

impl ReshapeWindow {
    /// All sectors that the window writes.
    #[must_use]
    pub fn written(&self) -> Range<u64> {
        match (self.moved.is_empty(), self.zeroed.is_empty()) {
            (true, _) => self.zeroed.clone(),
            (_, true) => self.moved.clone(),
            _ => self.moved.start..self.zeroed.end,
        }
    }
}

/// Why a reshape has no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReshapeFault {
    /// A shape has no parity: only arrays with parity are reshaped by moving data.
    #[error("only arrays with parity are reshaped by moving data")]
    Family,
    /// In this direction a window overwrites data that later windows read.
    #[error("in this direction the reshape overwrites data that it has not read yet")]
    Direction,
}

impl ReshapePlan {
    /// The plan of a reshape. Each member's data moves by at least `gap_sectors`: forwards towards
    /// its start, backwards towards its end.
    ///
    /// # Errors
    /// A shape has no parity, or the direction is impossible.
    pub fn new(
        (before, after): (&Geometry, &Geometry),
        gap_sectors: i64,
        backwards: bool,
    ) -> Result<Self, ReshapeFault> {
        let (Geometry::Stripe(before), Geometry::Stripe(after)) = (before, after) else {
            return Err(ReshapeFault::Family);
        };
        let plan = Self { before: *before, after: *after, gap_sectors, backwards };
        // Forwards, writes stay behind reads if the new rows hold no less data than the old rows;
        // backwards, if no more.
        let (old, new) = (before.data_slots(), after.data_slots());
        let falls_behind = if backwards { new <= old } else { new >= old };
        if !falls_behind || gap_sectors < 0 {
            return Err(ReshapeFault::Direction);
        }
        Ok(plan)
    }

    /// Whether the reshape runs from the array's end to its start.
    #[must_use]
    pub fn is_backwards(&self) -> bool {
        self.backwards
    }

    /// The distance, in array sectors, between sectors at which rows of both shapes begin.
    #[must_use]
    pub fn unit_sectors(&self) -> u64 {
        let (one, other) = (row(&self.before), row(&self.after));
        let one = spoiled(Bug::UnitOfNewShape, one, other);
        one / gcd(one, other) * other
    }

    /// The least gap, in sectors of a member, that lets a window of one unit move at any position.
    #[must_use]
    pub fn gap_of_unit(&self) -> u64 {
        let unit = self.unit_sectors();
        let chunk = self.before.chunk_sectors().max(self.after.chunk_sectors());
        end_of(&self.before, unit).max(end_of(&self.after, unit)).max(chunk.into())
    }

    /// The number of array sectors that both shapes have.
    #[must_use]
    pub fn size_sectors(&self) -> u64 {
        self.before.capacity_sectors().min(self.after.capacity_sectors())
    }

    /// Whether the shortest windows overwrite what they read somewhere. At the array's start reads
    /// and writes are nearest to each other.
    #[must_use]
    pub fn has_in_place(&self) -> bool {
        let nearest = if self.backwards { self.unit_sectors().min(self.size_sectors()) } else { 0 };
        self.window(nearest, 0).is_some_and(|window| window.in_place)
    }

    /// The position at which a reshape begins.
    #[must_use]
    pub fn first(&self) -> u64 {
        if self.backwards { self.size_sectors() } else { 0 }
    }

    /// The position at which a reshape is over.
    #[must_use]
    pub fn last(&self) -> u64 {
        match self.backwards {
            true => 0,
            false => {
                let capacity = self.after.capacity_sectors();
                let capacity = spoiled(Bug::NewPartUnwritten, capacity, 0);
                capacity.max(self.rows_of_size())
            }
        }
    }

    /// The position one unit after `position`, in the direction of the reshape.
    pub(crate) fn one_unit_ahead(&self, position: u64) -> u64 {
        let unit = self.unit_sectors();
        match self.backwards {
            true => position.saturating_sub(unit),
            false => position.saturating_add(unit).min(self.last()),
        }
    }

    /// Whether no sector is left to move or to zero at `position`.
    #[must_use]
    pub fn is_over(&self, position: u64) -> bool {
        let position = spoiled(Bug::LastWindowUnmoved, position, self.one_unit_ahead(position));
        if self.backwards { position == 0 } else { position >= self.last() }
    }

    /// The sectors up to which a member must be filled to hold all that has one shape at
    /// `position`; `None` if no member that is being filled holds that shape. Forwards such a
    /// member holds the new shape, backwards the old one.
    #[must_use]
    pub fn held_sectors(&self, is_after: bool, position: u64) -> Option<u64> {
        let geometry = if is_after { &self.after } else { &self.before };
        (is_after != self.backwards).then(|| end_of(geometry, position))
    }

    /// The number of sectors written up to `position`, and the number that the whole reshape
    /// writes.
    #[must_use]
    pub fn progress(&self, position: u64) -> (u64, u64) {
        match self.backwards {
            true => (self.size_sectors().saturating_sub(position), self.size_sectors()),
            false => (position.min(self.last()), self.last()),
        }
    }

    /// The end of a piece of about `sectors` that begins at `start`: a border of rows of the new
    /// shape. A reshape that goes back may begin within a row.
    #[must_use]
    pub fn piece_end(&self, start: u64, sectors: u64) -> u64 {
        let row = row(&self.after);
        ((start + sectors) / row).max(start / row + 1) * row
    }

    /// The end of the new shape's last row that holds a sector of both shapes.
    fn rows_of_size(&self) -> u64 {
        self.size_sectors().next_multiple_of(row(&self.after))
    }

    /// The first position from `sector` on, behind the sectors of both shapes, that md takes: at a
    /// row of the new shape with the larger of both chunks.
    fn tail_position(&self, sector: u64) -> u64 {
        let chunk = self.before.chunk_sectors().max(self.after.chunk_sectors());
        let row = u64::from(chunk) * u64::from(self.after.data_slots());
        sector.next_multiple_of(row).min(self.last())
    }

    /// The end of the zeroes behind the last moved sectors.
    fn zeroes_of_size(&self) -> u64 {
        match self.backwards {
            true => self.rows_of_size(),
            false => {
                if planted(Bug::LastRowUnzeroed) {
                    return self.size_sectors();
                }
                self.tail_position(self.size_sectors())
            }
        }
    }

    /// The window at `position`, of about `sectors_max`; `None` if the reshape is over there.
    #[must_use]
    pub fn window(&self, position: u64, sectors_max: u64) -> Option<ReshapeWindow> {
        if self.is_over(position) {
            return None;
        }
        let unit = self.unit_sectors();
        let most = (sectors_max / unit).max(1).saturating_mul(unit);
        let down = self.backwards;
        Some(if down { self.downwards(position, most) } else { self.upwards(position, most) })
    }

    /// The window that moves these sectors in place.
    #[must_use]
    pub fn window_in_place(&self, moved: Range<u64>) -> ReshapeWindow {
        let is_last = moved.end == self.size_sectors();
        let zeroed = moved.end..if is_last { self.zeroes_of_size() } else { moved.end };
        ReshapeWindow { moved, zeroed, in_place: true }
    }

    fn upwards(&self, position: u64, most: u64) -> ReshapeWindow {
        let size = self.size_sectors();
        if position >= size {
            let end = self.last().min(position.saturating_add(most));
            let zeroed = position..self.tail_position(end);
            return ReshapeWindow { moved: position..position, zeroed, in_place: false };
        }
        let read = i128::from(first_of(&self.before, position));
        let room = read + i128::from(self.gap_sectors);
        let chunk = u64::from(self.after.chunk_sectors());
        let rows = u64::try_from(room).map_or(0, |room| room / chunk);
        let fits = rows.saturating_mul(row(&self.after));
        let unit = self.unit_sectors();
        let fits = spoiled(Bug::WindowTooLong, fits, fits.saturating_add(unit));
        // The last row of both shapes may be shorter than a unit.
        let end = if fits >= self.rows_of_size() { size } else { fits / unit * unit };
        let in_place = end <= position;
        let end = if in_place { position.saturating_add(most) } else { end };
        let end = end.min(position.saturating_add(most)).min(size);
        let zeroed = end..if end == size { self.zeroes_of_size() } else { end };
        let in_place = spoiled(Bug::InPlaceUnseen, in_place, false);
        ReshapeWindow { moved: position..end, zeroed, in_place }
    }

    fn downwards(&self, position: u64, most: u64) -> ReshapeWindow {
        let (size, unit) = (self.size_sectors(), self.unit_sectors());
        let position = position.min(size);
        let read = i128::from(end_of(&self.before, position));
        let from = read - i128::from(self.gap_sectors);
        let chunk = u64::from(self.after.chunk_sectors());
        let rows = u64::try_from(from).map_or(0, |from| from.div_ceil(chunk));
        let fits = rows.saturating_mul(row(&self.after)).div_ceil(unit).saturating_mul(unit);
        let fits = spoiled(Bug::WindowTooLow, fits, fits.saturating_sub(unit));
        let in_place = fits >= position;
        let lowest = (position - 1) / unit * unit;
        let lowest = lowest.saturating_sub(most - unit);
        let start = if in_place { lowest } else { fits.max(lowest) };
        let zeroed = position..if position == size { self.rows_of_size() } else { position };
        let in_place = spoiled(Bug::InPlaceUnseen, in_place, false);
        ReshapeWindow { moved: start..position, zeroed, in_place }
    }
}

/// Array sectors of a row.
fn row(geometry: &StripeGeometry) -> u64 {
    u64::from(geometry.chunk_sectors()) * u64::from(geometry.data_slots())
}

/// The first sector on members of the row with an array sector.
fn first_of(geometry: &StripeGeometry, sector: u64) -> u64 {
    sector / row(geometry) * u64::from(geometry.chunk_sectors())
}

/// The sector on members after the rows that hold the array's sectors below `sector`.
fn end_of(geometry: &StripeGeometry, sector: u64) -> u64 {
    sector.div_ceil(row(geometry)) * u64::from(geometry.chunk_sectors())
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Level, Shape};

    fn geometry(level: Level, chunk: u32, slots: u16, member: u64) -> Geometry {
        Geometry::new(&Shape::uniform(level, 2, chunk, slots, member)).expect("a shape")
    }

    /// Each change that is tested: the two shapes, the gap, and the direction.
    fn plans() -> Vec<ReshapePlan> {
        let mut plans = Vec::new();
        for member in [256, 264, 1000] {
            for (before, after) in [
                ((Level::Raid5, 8, 3), (Level::Raid5, 8, 4)),
                ((Level::Raid5, 8, 4), (Level::Raid5, 8, 7)),
                ((Level::Raid5, 16, 4), (Level::Raid5, 8, 4)),
                ((Level::Raid5, 8, 4), (Level::Raid5, 32, 5)),
                ((Level::Raid6, 8, 5), (Level::Raid5, 8, 6)),
                ((Level::Raid5, 8, 4), (Level::Raid6, 8, 5)),
                ((Level::Raid5, 8, 5), (Level::Raid5, 8, 4)),
            ] {
                let of = |(level, chunk, slots)| geometry(level, chunk, slots, member);
                for gap in [0, 8, 32, 96, 400] {
                    for backwards in [false, true] {
                        let pair = (&of(before), &of(after));
                        plans.extend(ReshapePlan::new(pair, gap, backwards));
                    }
                }
            }
        }
        assert!(plans.len() > 100);
        plans
    }

    fn windows(plan: &ReshapePlan, most: u64) -> Vec<ReshapeWindow> {
        let mut position = plan.first();
        let mut windows = Vec::new();
        while let Some(window) = plan.window(position, most) {
            let written = window.written();
            position = if plan.backwards { window.moved.start } else { written.end };
            windows.push(window);
            assert!(windows.len() < 10_000, "{plan:?}");
        }
        assert!(plan.is_over(position), "{plan:?} stops at {position}");
        windows
    }

    #[test]
    fn windows_cover_the_array_once() {
        for plan in plans() {
            for most in [0, 100, u64::MAX] {
                let windows = windows(&plan, most);
                let mut moved: Vec<_> = windows.iter().map(|one| one.moved.clone()).collect();
                moved.retain(|range| !range.is_empty());
                moved.sort_by_key(|range| range.start);
                let ends: Vec<u64> = moved.iter().map(|range| range.end).collect();
                let starts: Vec<u64> = moved.iter().map(|range| range.start).collect();
                assert_eq!(starts[0], 0);
                assert_eq!(starts[1..], ends[..ends.len() - 1], "{plan:?}");
                assert_eq!(ends.last(), Some(&plan.size_sectors()));
                let unit = plan.unit_sectors();
                assert!(starts.iter().all(|start| start % unit == 0), "{plan:?} {starts:?}");
                let zeroed: u64 = windows.iter().map(|one| one.zeroed.end - one.zeroed.start).sum();
                let all = plan.after.capacity_sectors();
                let beyond = if plan.backwards { plan.rows_of_size() } else { all };
                assert_eq!(zeroed, beyond - plan.size_sectors(), "{plan:?}");
            }
        }
    }

    #[test]
    fn no_window_overwrites_what_is_not_recorded() {
        for plan in plans() {
            // Places on a member, in both shapes, from a base that keeps them positive.
            let (read_at, write_at) = match plan.backwards {
                false => (plan.gap_sectors, 0),
                true => (0, plan.gap_sectors),
            };
            for window in windows(&plan, 200) {
                if window.moved.is_empty() {
                    continue;
                }
                let Range { start, end } = window.written();
                let first = first_of(&plan.after, start) + write_at as u64;
                let written = first..end_of(&plan.after, end) + write_at as u64;
                // Sectors that are in the old shape still, and are not copied elsewhere.
                let left = match (plan.backwards, window.in_place) {
                    (false, false) => window.moved.start..plan.before.capacity_sectors(),
                    (false, true) => window.moved.end..plan.before.capacity_sectors(),
                    (true, false) => 0..window.moved.end,
                    (true, true) => 0..window.moved.start,
                };
                let first = first_of(&plan.before, left.start) + read_at as u64;
                let needed = first..end_of(&plan.before, left.end) + read_at as u64;
                let is_apart = written.end <= needed.start || needed.end <= written.start;
                assert!(left.is_empty() || is_apart, "{plan:?} {window:?} {written:?} {needed:?}");
            }
        }
    }

    #[test]
    fn a_gap_of_one_unit_needs_no_copy() {
        let (before, after) =
            (geometry(Level::Raid5, 8, 4, 960), geometry(Level::Raid5, 8, 5, 960));
        let plan = ReshapePlan::new((&before, &after), 32, false).expect("a plan");
        assert_eq!(plan.unit_sectors(), 96);
        assert!(windows(&plan, u64::MAX).iter().all(|window| !window.in_place));
        let plan = ReshapePlan::new((&before, &after), 0, false).expect("a plan");
        let in_place: Vec<_> =
            windows(&plan, 0).into_iter().take_while(|window| window.in_place).collect();
        assert_eq!(in_place.len(), 3, "until reads are a unit ahead of writes");
    }

    #[test]
    fn fewer_members_need_a_copy_at_the_end_of_the_way_only() {
        let (more, less) = (geometry(Level::Raid5, 8, 5, 960), geometry(Level::Raid5, 8, 4, 960));
        let plan = |gap| ReshapePlan::new((&more, &less), gap, true).expect("a plan");
        let of = |plan: &ReshapePlan| -> Vec<bool> {
            windows(plan, 0).iter().map(|window| window.in_place).collect()
        };
        let step = plan(0).gap_of_unit().cast_signed();
        assert!(!plan(step).has_in_place() && of(&plan(step)).iter().all(|in_place| !in_place));
        let in_place = of(&plan(0));
        assert!(plan(0).has_in_place() && !in_place[0], "{in_place:?}");
        assert!(in_place.is_sorted() && in_place.ends_with(&[true]), "{in_place:?}");
    }

    #[test]
    fn pieces_end_where_rows_of_the_new_shape_do() {
        let (less, more) = (geometry(Level::Raid5, 8, 3, 80), geometry(Level::Raid5, 8, 4, 80));
        let plan = ReshapePlan::new((&less, &more), 0, false).expect("a plan");
        for (start, sectors, end) in
            [(0, 1, 24), (0, 50, 48), (24, 47, 48), (160, 9, 168), (160, 60, 216)]
        {
            assert_eq!(plan.piece_end(start, sectors), end, "{start} {sectors}");
        }
    }

    #[test]
    fn a_direction_that_overwrites_what_is_unread_is_refused() {
        let (less, more) = (geometry(Level::Raid5, 8, 4, 960), geometry(Level::Raid5, 8, 5, 960));
        let of = |pair, backwards| ReshapePlan::new(pair, 0, backwards).map(|_| ());
        assert_eq!(of((&less, &more), true), Err(ReshapeFault::Direction));
        assert_eq!(of((&more, &less), false), Err(ReshapeFault::Direction));
        assert_eq!(of((&more, &less), true), Ok(()));
    }
}
