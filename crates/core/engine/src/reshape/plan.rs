//! The windows of a reshape: how many sectors may move before superblocks must record the new
//! position.
//!
//! A window is a run of the array's sectors that is read in the old shape and written in the new
//! one. No write may overwrite a sector that superblocks still place in the old shape. So a window
//! ends before its writes would reach the first such sector: [`ReshapeSteps`] has the arithmetic.
//!
//! Windows end at steps, where md can take over the reshape, and if possible at units, where the
//! reshape can also turn round. Where the gap has no room for a step, the window is *in place*: its
//! writes overwrite the sectors that it reads, and a copy must exist before. Such a window ends
//! with the part in place, so that the recorded position tells whether sectors may be half moved.
//!
//! Beyond the last sector that both shapes have, a reshape to a larger shape writes zeroes, as md
//! does: in these sectors redundancy agrees from the beginning.
//!
//! Invariants
//! - a window in the gap overwrites nothing that is not recorded as moved
//!   `[check: no_window_overwrites_what_is_not_recorded]`;
//! - windows follow each other from the first sector to the last, each at a step
//!   `[check: windows_cover_the_array_once]`;
//! - a window is in place exactly if its position is in the part that assembly calls at risk
//!   `[check: windows_in_place_end_with_the_part_at_risk]`.

use std::ops::Range;

use braid_geometry::{DataRows, Geometry, ReshapeSteps};
use braid_sim_hooks::{Bug, planted, spoiled};

/// The two shapes of a reshape, its gap and its direction, from which its windows are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapePlan {
    steps: ReshapeSteps,
    before: Side,
    after: Side,
}

/// One of the two shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Side {
    rows: DataRows,
    capacity_sectors: u64,
}

/// The next part of a reshape. Sectors count from the start of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeWindow {
    /// Sectors to read in the old shape and to write in the new one.
    pub moved: Range<u64>,
    /// Sectors to write as zeroes in the new shape; they follow the sectors of `moved`.
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
    /// The shapes distribute the array's sectors in ways between which no data can be moved.
    #[error("between these two shapes no data is moved")]
    Family,
    /// In this direction a window overwrites data that later windows read.
    #[error("in this direction the reshape overwrites data that it has not read yet")]
    Direction,
    /// Levels with copies move data only into free space, and here it moves by too few sectors.
    #[error("the members' data moves by {there} sectors, and {needed} are needed")]
    Room {
        /// Sectors by which data must move.
        needed: u64,
        /// Sectors by which the data moves.
        there: u64,
    },
}

impl ReshapePlan {
    /// The plan of a reshape. Each member's data moves by at least `gap_sectors`: in a forward
    /// reshape towards the member's start, in a backward one towards its end.
    ///
    /// If no data can be moved between the two shapes, or the direction is impossible.
    /// The data of such shapes is not moved, or the direction is impossible.
    pub fn new(
        (before, after): (&Geometry, &Geometry),
        gap_sectors: i64,
        backwards: bool,
    ) -> Result<Self, ReshapeFault> {
        let steps = ReshapeSteps::new((before, after), gap_sectors, backwards);
        let steps = steps.ok_or(ReshapeFault::Family)?;
        if !steps.stays_behind() || gap_sectors < 0 {
            return Err(ReshapeFault::Direction);
        }
        let (needed, there) = (steps.gap_of_step(), gap_sectors.unsigned_abs());
        if !steps.can_be_in_place() && there < needed {
            return Err(ReshapeFault::Room { needed, there });
        }
        let side = |geometry: &Geometry| {
            let rows = DataRows::of(geometry).ok_or(ReshapeFault::Family)?;
            Ok(Side { rows, capacity_sectors: geometry.capacity_sectors() })
        };
        Ok(Self { steps, before: side(before)?, after: side(after)? })
    }

    /// Whether the reshape runs from the array's end to its start.
    #[must_use]
    pub fn is_backwards(&self) -> bool {
        self.steps.is_backwards()
    }

    /// The steps, and the room between reads and writes.
    #[must_use]
    pub fn steps(&self) -> &ReshapeSteps {
        &self.steps
    }

    /// The number of array sectors that both shapes have.
    #[must_use]
    pub fn size_sectors(&self) -> u64 {
        self.steps.size_sectors()
    }

    /// Whether even the shortest windows somewhere overwrite the sectors that they read.
    #[must_use]
    pub fn has_in_place(&self) -> bool {
        self.steps.sectors_in_place() > 0
    }

    /// Whether the reshape can turn round at this position: rows of both shapes begin at it, or no
    /// sector of both shapes is left on one side.
    #[must_use]
    pub fn can_turn(&self, position: u64) -> bool {
        let is_unit = position.is_multiple_of(self.steps.unit_sectors());
        let is_unit = spoiled(Bug::TurnWithinRow, is_unit, true);
        is_unit || position >= self.size_sectors()
    }

    /// The position at which a reshape begins.
    #[must_use]
    pub fn first(&self) -> u64 {
        if self.is_backwards() { self.size_sectors() } else { 0 }
    }

    /// The position at which a reshape is over.
    #[must_use]
    pub fn last(&self) -> u64 {
        match self.is_backwards() {
            true => 0,
            false => {
                let capacity = self.after.capacity_sectors;
                let capacity = spoiled(Bug::NewPartUnwritten, capacity, 0);
                capacity.max(self.rows_of_size())
            }
        }
    }

    /// The position one step after `position`, in the direction of the reshape.
    pub(crate) fn one_step_ahead(&self, position: u64) -> u64 {
        let step = self.steps.step_sectors();
        match self.is_backwards() {
            true => position.saturating_sub(step),
            false => position.saturating_add(step).min(self.last()),
        }
    }

    /// Whether no sector is left to move or to zero at `position`.
    #[must_use]
    pub fn is_over(&self, position: u64) -> bool {
        let position = spoiled(Bug::LastWindowUnmoved, position, self.one_step_ahead(position));
        if self.is_backwards() { position == 0 } else { position >= self.last() }
    }

    /// The sectors up to which a member must be filled to hold all that has one shape at
    /// `position`; `None` if no member that is being filled holds that shape. Forwards such a
    /// member holds the new shape, backwards the old one.
    #[must_use]
    pub fn held_sectors(&self, is_after: bool, position: u64) -> Option<u64> {
        let side = if is_after { &self.after } else { &self.before };
        (is_after != self.is_backwards()).then(|| side.rows.end_of(position))
    }

    /// The number of sectors written up to `position`, and the number that the whole reshape
    /// writes.
    #[must_use]
    pub fn progress(&self, position: u64) -> (u64, u64) {
        match self.is_backwards() {
            true => (self.size_sectors().saturating_sub(position), self.size_sectors()),
            false => (position.min(self.last()), self.last()),
        }
    }

    /// The end of a piece of about `sectors` that begins at `start`: a border of rows of the new
    /// shape. A reshape that goes back may begin within a row.
    #[must_use]
    pub fn piece_end(&self, start: u64, sectors: u64) -> u64 {
        let row = self.after.rows.piece_sectors();
        ((start + sectors) / row).max(start / row + 1) * row
    }

    /// The end of the new shape's last row that holds a sector of both shapes.
    fn rows_of_size(&self) -> u64 {
        self.size_sectors().next_multiple_of(self.after.rows.piece_sectors())
    }

    /// The first position that md accepts from `sector` on, behind the sectors of both shapes.
    fn tail_position(&self, sector: u64) -> u64 {
        sector.next_multiple_of(self.steps.step_sectors()).min(self.last())
    }

    /// The end of the zeroes behind the last moved sectors.
    fn zeroes_of_size(&self) -> u64 {
        match self.is_backwards() {
            true => self.rows_of_size(),
            false => {
                if planted(Bug::LastRowUnzeroed) {
                    return self.size_sectors();
                }
                self.tail_position(self.size_sectors())
            }
        }
    }

    /// The window at `position`, of about `sectors_max`; `None` if the reshape is over.
    #[must_use]
    pub fn window(&self, position: u64, sectors_max: u64) -> Option<ReshapeWindow> {
        if self.is_over(position) {
            return None;
        }
        let size = self.size_sectors();
        Some(match (self.is_backwards(), position >= size) {
            (true, _) => self.downwards(position.min(size), sectors_max),
            (false, true) => self.beyond_size(position, sectors_max),
            (false, false) => self.upwards(position, sectors_max),
        })
    }

    /// The window that moves these sectors in place.
    #[must_use]
    pub fn window_in_place(&self, moved: Range<u64>) -> ReshapeWindow {
        let is_last = moved.end == self.size_sectors();
        let zeroed = moved.end..if is_last { self.zeroes_of_size() } else { moved.end };
        ReshapeWindow { moved, zeroed, in_place: true }
    }

    fn beyond_size(&self, position: u64, most: u64) -> ReshapeWindow {
        let most = most.max(self.steps.step_sectors());
        let end = self.last().min(position.saturating_add(most));
        let zeroed = position..self.tail_position(end);
        ReshapeWindow { moved: position..position, zeroed, in_place: false }
    }

    fn upwards(&self, position: u64, most: u64) -> ReshapeWindow {
        let (steps, size) = (&self.steps, self.size_sectors());
        let in_place = steps.is_in_place(position);
        let fits = steps.room_end(position);
        let fits = spoiled(Bug::WindowTooLong, fits, fits.saturating_add(steps.step_sectors()));
        let at_risk = steps.end_in_place(position);
        let at_risk = spoiled(Bug::InPlaceBehindRisk, at_risk, size);
        let end = if in_place { at_risk } else { fits };
        let end = end.min(position.saturating_add(self.at_least_a_unit(most, in_place))).min(size);
        let end = self.rounded_down(end, position);
        let zeroed = end..if end == size { self.zeroes_of_size() } else { end };
        let in_place = spoiled(Bug::InPlaceUnseen, in_place, false);
        ReshapeWindow { moved: position..end, zeroed, in_place }
    }

    /// The most sectors of a window. A window reaches the next unit if there is room, so that the
    /// reshape can turn round at the unit. Windows in place are short, since they are copied.
    fn at_least_a_unit(&self, most: u64, in_place: bool) -> u64 {
        if in_place { most } else { most.max(self.steps.unit_sectors()) }
    }

    /// The end of a window that must not go beyond `end`: at a unit, or else at a step.
    fn rounded_down(&self, end: u64, position: u64) -> u64 {
        let size = self.size_sectors();
        let next = self.steps.one_step_ahead(position);
        let (unit, step) = (self.steps.unit_sectors(), self.steps.step_sectors());
        if end == size {
            return size; // The last row of both shapes may be shorter than a step.
        }
        let at_unit = end / unit * unit;
        if at_unit > position { at_unit } else { (end / step * step).max(next) }
    }

    fn downwards(&self, position: u64, most: u64) -> ReshapeWindow {
        let (steps, size) = (&self.steps, self.size_sectors());
        let in_place = steps.is_in_place(position);
        let fits = steps.room_start(position);
        let fits = spoiled(Bug::WindowTooLow, fits, fits.saturating_sub(steps.step_sectors()));
        let from = if in_place { 0 } else { fits };
        let from = from.max(position.saturating_sub(self.at_least_a_unit(most, in_place)));
        let start = self.rounded_up(from, position);
        let zeroed = position..if position == size { self.rows_of_size() } else { position };
        let in_place = spoiled(Bug::InPlaceUnseen, in_place, false);
        ReshapeWindow { moved: start..position, zeroed, in_place }
    }

    /// The start of a window that must not begin before `start`: at a unit, or else at a step.
    fn rounded_up(&self, start: u64, position: u64) -> u64 {
        let next = self.steps.one_step_ahead(position);
        let (unit, step) = (self.steps.unit_sectors(), self.steps.step_sectors());
        let at_unit = start.next_multiple_of(unit);
        if at_unit < position { at_unit } else { start.next_multiple_of(step).min(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Level, Shape};

    const NEAR_2: u32 = 0x102;

    fn geometry(level: Level, chunk: u32, slots: u16, member: u64) -> Geometry {
        let layout = if level == Level::Raid10 { NEAR_2 } else { 2 };
        Geometry::new(&Shape::uniform(level, layout, chunk, slots, member)).expect("a shape")
    }

    /// A plan, with its gap.
    type GapPlan = (i64, ReshapePlan);

    /// Each change that is tested: the two shapes, the gap, and the direction.
    fn plans() -> Vec<GapPlan> {
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
                ((Level::Raid10, 8, 3), (Level::Raid10, 8, 4)),
                ((Level::Raid10, 8, 6), (Level::Raid10, 16, 5)),
            ] {
                let of = |(level, chunk, slots)| geometry(level, chunk, slots, member);
                for gap in [0, 8, 32, 96, 400] {
                    for backwards in [false, true] {
                        let pair = (&of(before), &of(after));
                        let plan = ReshapePlan::new(pair, gap, backwards);
                        plans.extend(plan.map(|plan| (gap, plan)));
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
            position = if plan.is_backwards() { window.moved.start } else { written.end };
            windows.push(window);
            assert!(windows.len() < 10_000, "{plan:?}");
        }
        assert!(plan.is_over(position), "{plan:?} stops at {position}");
        windows
    }

    #[test]
    fn windows_cover_the_array_once() {
        for (_, plan) in plans() {
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
                let step = plan.steps.step_sectors();
                assert!(starts.iter().all(|start| start % step == 0), "{plan:?} {starts:?}");
                let zeroed: u64 = windows.iter().map(|one| one.zeroed.end - one.zeroed.start).sum();
                let all = plan.after.capacity_sectors;
                let beyond = if plan.is_backwards() { plan.rows_of_size() } else { all };
                assert_eq!(zeroed, beyond - plan.size_sectors(), "{plan:?}");
            }
        }
    }

    #[test]
    fn no_window_overwrites_what_is_not_recorded() {
        for (gap, plan) in plans() {
            let gap = gap.cast_unsigned();
            let (read_at, write_at) = if plan.is_backwards() { (0, gap) } else { (gap, 0) };
            for window in windows(&plan, 200) {
                if window.moved.is_empty() {
                    continue;
                }
                let Range { start, end } = window.written();
                let (old, new) = (&plan.before.rows, &plan.after.rows);
                let written = new.first_of(start) + write_at..new.end_of(end) + write_at;
                // Sectors that are in the old shape still, and are not copied elsewhere.
                let left = match (plan.is_backwards(), window.in_place) {
                    (false, false) => window.moved.start..plan.before.capacity_sectors,
                    (false, true) => window.moved.end..plan.before.capacity_sectors,
                    (true, false) => 0..window.moved.end,
                    (true, true) => 0..window.moved.start,
                };
                let needed = old.first_of(left.start) + read_at..old.end_of(left.end) + read_at;
                let is_apart = written.end <= needed.start || needed.end <= written.start;
                assert!(left.is_empty() || is_apart, "{plan:?} {window:?} {written:?} {needed:?}");
            }
        }
    }

    #[test]
    fn windows_in_place_end_with_the_part_at_risk() {
        for (_, plan) in plans() {
            for most in [0, 100, u64::MAX] {
                for window in windows(&plan, most) {
                    let Range { start, end } = window.moved;
                    let position = if plan.is_backwards() { end } else { start };
                    if start == end {
                        continue;
                    }
                    assert_eq!(window.in_place, plan.steps.is_in_place(position), "{window:?}");
                    let until = plan.steps.end_in_place(position);
                    assert!(!window.in_place || plan.is_backwards() || end <= until, "{window:?}");
                }
            }
        }
    }

    #[test]
    fn a_reshape_turns_where_rows_of_both_shapes_begin() {
        for (_, plan) in plans() {
            let (old, new) = (plan.before.rows, plan.after.rows);
            for window in windows(&plan, 0) {
                let position =
                    if plan.is_backwards() { window.moved.start } else { window.moved.end };
                let is_at = |rows: DataRows| position.is_multiple_of(rows.piece_sectors());
                let is_all = position >= plan.size_sectors();
                assert!(!plan.can_turn(position) || is_all || is_at(old) && is_at(new), "{plan:?}");
            }
            assert!(plan.can_turn(0) && plan.can_turn(plan.size_sectors()));
        }
    }

    #[test]
    fn a_gap_of_one_chunk_needs_no_copy() {
        let (before, after) =
            (geometry(Level::Raid5, 8, 4, 960), geometry(Level::Raid5, 8, 5, 960));
        let plan = |gap| ReshapePlan::new((&before, &after), gap, false).expect("a plan");
        let (step, unit) = (plan(0).steps.step_sectors(), plan(0).steps.unit_sectors());
        assert_eq!((step, unit, plan(0).steps.gap_of_step()), (32, 96, 8));
        assert!(windows(&plan(8), u64::MAX).iter().all(|window| !window.in_place));
        let windows_of_unit = windows(&plan(32), u64::MAX);
        assert!(windows_of_unit.iter().all(|window| !window.in_place));
        for most in [0, 100, u64::MAX] {
            let ends = windows(&plan(32), most).into_iter();
            let ends = ends.map(|window| window.moved.end);
            assert!(ends.into_iter().all(|end| plan(32).can_turn(end)), "units, if there is room");
        }
        let windows = windows(&plan(0), 0);
        let in_place = windows.into_iter().take_while(|window| window.in_place);
        assert_eq!(in_place.count(), 3, "until reads are a step ahead of writes");
    }

    #[test]
    fn fewer_members_need_a_copy_at_the_end_of_the_way_only() {
        let (more, less) = (geometry(Level::Raid5, 8, 5, 960), geometry(Level::Raid5, 8, 4, 960));
        let plan = |gap| ReshapePlan::new((&more, &less), gap, true).expect("a plan");
        let of = |plan: &ReshapePlan| -> Vec<bool> {
            windows(plan, 0).iter().map(|window| window.in_place).collect()
        };
        let step = plan(0).steps.gap_of_step().cast_signed();
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
