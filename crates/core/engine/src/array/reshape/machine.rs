//! The state of a reshape: the recorded position, the window that moves, and its pieces.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use braid_ondisk::Reshape;
use braid_sim_hooks::{Bug, planted, spoiled};

use super::decide::{Facts, Stage};
use crate::array::effect::{BorderChange, MovedPiece, WindowAccess};
use crate::array::jobs::{JobAllowance, JobEnd, JobFlow, JobKind, JobProgress, RemainingAllowance};
use crate::array::update::ShapeState;
use crate::request::Fault;
use crate::reshape::{ReshapePlan, ReshapeWindow};
use crate::work::Class;

/// Approximate sectors of a piece: enough for members to stream, few enough to keep several pieces
/// in memory.
const PIECE_SECTORS: u64 = 4096;
/// The most pieces in flight.
const PIECES_OUT_MAX: usize = 8;
/// The approximate least and most sectors of a window.
const WINDOW_SECTORS_MIN: u64 = 8192;
const WINDOW_SECTORS_MAX: u64 = 1 << 18;
/// The most sectors of a window that moves in place: its data is copied first, so it is written
/// twice.
const IN_PLACE_SECTORS_MAX: u64 = 1 << 15;
/// The reshape reports progress after each of this many equal parts.
const PARTS: u64 = 5;

/// The state of the array that decides whether a reshape continues.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) struct ReshapeContext {
    /// Whether a reshape may go on: the array accepts writes, is not being stopped, and its jobs
    /// are not paused; superblocks record every lost member.
    pub(in crate::array) goes_on: bool,
    /// Whether superblocks record every change.
    pub(in crate::array) is_recorded: bool,
    /// Whether every bad-block log names durably what it must name.
    pub(in crate::array) is_named: bool,
    /// The array is broken: superblocks get no more changes.
    pub(in crate::array) is_broken: bool,
}

/// Sectors of a window that no member could give.
#[derive(Debug, Default)]
struct LostSectors {
    sectors: Vec<Range<u64>>,
    /// Whether bad-block logs were asked to name these sectors.
    is_named: bool,
}

#[derive(Debug)]
pub(in crate::array) struct Reshaper {
    plan: ReshapePlan,
    /// The shape that superblocks record, with the recorded position.
    shape: Arc<ShapeState>,
    position: u64,
    from: u64,
    stage: Stage,
    window: Option<ReshapeWindow>,
    /// The part of the window that no piece covers yet.
    left: Range<u64>,
    /// First sectors of pieces in flight.
    out: BTreeSet<u64>,
    fault: Option<Fault>,
    /// Sectors of the window that no member could give.
    lost: LostSectors,
    /// Lost sectors of all windows since the array was opened.
    lost_sectors: u64,
    /// A safe copy of the window that moves in place exists already.
    is_copied: bool,
    /// A window in place that failed after it was overwritten in part. This window moves next, from
    /// its copy.
    stuck: Option<ReshapeWindow>,
    /// A window failed: the next attempt waits for a change of members, or for the operator.
    refused: bool,
    is_begun: bool,
    is_ended: bool,
    /// The number of fifths of the reshape that were reported.
    passed: u64,
    written: u64,
    allowance: RemainingAllowance,
    flow: JobFlow,
    class: Class,
    window_sectors_max: u64,
}

impl Reshaper {
    /// Starts at the position that superblocks record. If the driver has the copy `copied` of a
    /// window, that window moves first, and its change of the border is returned.
    pub(in crate::array) fn new(
        plan: ReshapePlan,
        (shape, window_sectors_max): (ShapeState, Option<u64>),
        copied: Option<Range<u64>>,
    ) -> (Self, Option<BorderChange>) {
        let position = shape.reshape.expect("an array in a reshape says so").position_sectors;
        let mut reshaper = Self {
            from: plan.progress(position).0,
            plan,
            shape: Arc::new(shape),
            position,
            stage: Stage::Rest,
            window: None,
            left: 0..0,
            out: BTreeSet::new(),
            fault: None,
            lost: LostSectors::default(),
            lost_sectors: 0,
            refused: false,
            is_begun: false,
            is_ended: false,
            passed: 0,
            written: 0,
            allowance: RemainingAllowance::default(),
            flow: JobFlow::default(),
            class: Class::Idle,
            is_copied: false,
            stuck: None,
            window_sectors_max: window_sectors_max.unwrap_or(WINDOW_SECTORS_MAX),
        };
        let mut copied = copied;
        if planted(Bug::CopyForgotten) {
            copied = None;
        }
        // The copied window may be partly overwritten on members, so no client reads it before it
        // has moved.
        let change = copied.map(|moved| {
            let window = reshaper.plan.window_in_place(moved);
            reshaper.is_copied = true;
            reshaper.begin(window)
        });
        (reshaper, change)
    }

    pub(in crate::array) fn facts(&self, context: ReshapeContext) -> Facts {
        Facts {
            stage: self.stage,
            goes_on: context.goes_on && !self.refused,
            is_allowed: self.allowance.is_some(),
            is_over: self.plan.is_over(self.position),
            is_ended: self.is_ended,
            has_more: !self.left.is_empty() && self.out.len() < PIECES_OUT_MAX,
            is_out: !self.out.is_empty(),
            has_failed: self.fault.is_some(),
            has_unnamed: !self.lost.is_named && !self.lost.sectors.is_empty(),
            is_named: context.is_named,
            is_recorded: context.is_recorded,
            is_broken: context.is_broken,
        }
    }

    /// The shape that superblocks shall record.
    pub(in crate::array) fn shape(&self) -> &Arc<ShapeState> {
        &self.shape
    }

    pub(in crate::array) fn is_backwards(&self) -> bool {
        self.plan.is_backwards()
    }

    /// The recorded position for a reshape that turns round, at most the end of the sectors of both
    /// shapes. Beyond that end no data has to move back, and md takes no such position backwards.
    pub(in crate::array) fn turning_position(&self) -> u64 {
        let size = self.plan.size_sectors();
        let size = spoiled(Bug::TurnBeyondSize, size, u64::MAX);
        self.position.min(size)
    }

    /// Whether windows must move before the reshape turns round: one that failed midway, or those
    /// up to the next position at which rows of both shapes begin.
    pub(in crate::array) fn moves_before_turn(&self) -> bool {
        self.stuck.is_some() || !self.plan.can_turn(self.position)
    }

    /// Whether a window in place failed midway, and has not moved since.
    pub(in crate::array) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    /// Whether a window is under way: chosen, and neither recorded nor given up.
    pub(in crate::array) fn is_moving(&self) -> bool {
        self.stage != Stage::Rest || self.stuck.is_some()
    }

    /// Whether the window overwrites the sectors that it reads.
    pub(in crate::array) fn is_in_place(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.in_place)
    }

    /// Whether bad-block logs were asked to name lost sectors of the window.
    pub(in crate::array) fn has_named(&self) -> bool {
        self.lost.is_named
    }

    /// Whether the flush in flight is the one before the window moves.
    pub(in crate::array) fn is_before_move(&self) -> bool {
        self.stage == Stage::FlushingBefore
    }

    /// Whether all sectors of the array are in the new shape, and superblocks record that.
    pub(in crate::array) fn is_over(&self) -> bool {
        self.plan.is_over(self.position)
    }

    pub(in crate::array) fn set_allowance(&mut self, allowance: JobAllowance) {
        self.allowance.set(allowance);
    }

    pub(in crate::array) fn flow(&self) -> JobFlow {
        self.flow
    }

    /// Allows the next window after a failed one. Called when members have come or gone, or the
    /// operator resumes jobs.
    pub(in crate::array) fn try_again(&mut self) {
        self.refused = false;
    }

    pub(in crate::array) fn progress(&self, paused: bool) -> JobProgress {
        let (done, end) = self.plan.progress(self.position);
        JobProgress {
            kind: JobKind::Reshape,
            from: self.from,
            done,
            end,
            differing: 0,
            written: self.written,
            located: 0,
            repaired: 0,
            ambiguous: 0,
            unmade: self.lost_sectors,
            named: 0,
            retries: false,
            paused,
        }
    }

    /// Chooses the next window. Returns the change of the border, and whether this is the first
    /// window.
    pub(in crate::array) fn hold(&mut self) -> (BorderChange, bool) {
        assert_eq!(self.stage, Stage::Rest, "one window at a time");
        if let Some(window) = self.stuck.take() {
            self.is_copied = true;
            return (self.begin(window), false);
        }
        let allowed = self.allowance.sectors().unwrap_or(u64::MAX);
        let most = allowed.max(WINDOW_SECTORS_MIN).min(self.window_sectors_max);
        let window = self.plan.window(self.position, most);
        let mut window = window.expect("something is left");
        if window.in_place && most > IN_PLACE_SECTORS_MAX {
            let shorter = self.plan.window(self.position, IN_PLACE_SECTORS_MAX);
            window = shorter.expect("something is left");
        }
        let begins = !std::mem::replace(&mut self.is_begun, true);
        (self.begin(window), begins)
    }

    fn begin(&mut self, window: ReshapeWindow) -> BorderChange {
        let written = window.written();
        let is_allowed = self.allowance.is_some();
        let sectors = written.end - written.start;
        self.class = if is_allowed { self.allowance.take(sectors) } else { Class::Idle };
        self.flow.of(self.class).begun_sectors += written.end - written.start;
        let access = if window.in_place { WindowAccess::AllWait } else { WindowAccess::WritesWait };
        let access = spoiled(Bug::ReadsInPlaceUnheld, access, WindowAccess::WritesWait);
        let held = (window.moved.clone(), access);
        self.left = written;
        self.window = Some(window);
        self.stage = Stage::Passing;
        BorderChange { position: self.position, window: Some(held) }
    }

    /// Notes that all requests from before this window have ended.
    pub(in crate::array) fn passed(&mut self) {
        assert_eq!(self.stage, Stage::Passing, "requests were waited for");
        self.stage = Stage::Passed;
    }

    pub(in crate::array) fn flush(&mut self) {
        self.stage = match self.stage {
            Stage::Passed => Stage::FlushingBefore,
            Stage::Moving | Stage::Naming => Stage::FlushingAfter,
            stage => unreachable!("nothing is flushed at {stage:?}"),
        };
    }

    /// Takes the result of a flush. Returns the sectors that must be copied before they move, if
    /// any.
    pub(in crate::array) fn flushed(&mut self, result: Result<(), Fault>) -> Option<Range<u64>> {
        self.fault = self.fault.or(result.err());
        let window = self.window.as_ref().expect("a window is flushed");
        let needs_copy = window.in_place && !self.is_copied && result.is_ok();
        let copied = needs_copy.then(|| window.moved.clone());
        self.stage = match (self.stage, &copied) {
            (Stage::FlushingBefore, Some(_)) => Stage::Keeping,
            (Stage::FlushingBefore, None) => Stage::Moving,
            (Stage::FlushingAfter, _) => Stage::Flushed,
            (stage, _) => unreachable!("no flush is out at {stage:?}"),
        };
        copied.filter(|_| self.stage == Stage::Keeping)
    }

    /// Takes the result of the copy of the window. Nothing of the window is overwritten so far.
    pub(in crate::array) fn kept(&mut self, result: Result<(), Fault>) {
        assert_eq!(self.stage, Stage::Keeping, "a copy was asked for");
        let result = spoiled(Bug::CopyFailureIgnored, result, Ok(()));
        self.fault = self.fault.or(result.err());
        self.stage = Stage::Moving;
    }

    /// Returns the next piece of the window to move: whole rows of the new shape.
    pub(in crate::array) fn next_piece(&mut self) -> MovedPiece {
        let window = self.window.as_ref().expect("a window moves");
        let start = self.left.start;
        let end = self.plan.piece_end(start, PIECE_SECTORS).min(self.left.end);
        self.left.start = end;
        assert!(self.out.insert(start), "a piece moves once");
        let moved_end = end.min(window.moved.end).max(start);
        let is_copied = window.in_place;
        MovedPiece {
            start,
            moved_sectors: moved_end - start,
            zeroed_sectors: end - moved_end,
            is_copied,
        }
    }

    /// Takes the result of the piece that begins at `start`, with the sectors of it that no member
    /// could give.
    pub(in crate::array) fn moved(&mut self, start: u64, result: Result<Vec<Range<u64>>, Fault>) {
        assert!(self.out.remove(&start), "the piece was out");
        if planted(Bug::FailedPieceMoved) {
            return;
        }
        match result {
            Ok(lost) => self.lost.sectors.extend(lost),
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
    }

    /// The lost sectors that bad-block logs must name now.
    pub(in crate::array) fn name(&mut self) -> Vec<Range<u64>> {
        assert_eq!(self.stage, Stage::Flushed, "what was moved is on the members");
        self.stage = Stage::Naming;
        self.lost.is_named = true;
        self.lost.sectors.clone()
    }

    /// Notes sectors of the new shape that are lost together with others of their rows.
    pub(in crate::array) fn also_lost(&mut self, sectors: Vec<Range<u64>>) {
        self.lost.sectors.extend(sectors);
    }

    /// Makes the window fail, because bad-block logs cannot name its lost sectors.
    pub(in crate::array) fn cannot_name(&mut self) {
        self.fault = self.fault.or(Some(Fault::Unreadable));
    }

    /// Puts the position after the window into the shape that superblocks shall record. Returns the
    /// sectors up to which a member that is being filled holds the new shape; `None` if the reshape
    /// fills none.
    pub(in crate::array) fn record(&mut self) -> Option<u64> {
        assert_eq!(self.stage, Stage::Flushed, "a position counts when it was flushed");
        let window = self.window.as_ref().expect("a window is recorded");
        let written = window.written();
        let position = if self.plan.is_backwards() { window.moved.start } else { written.end };
        let ahead = self.plan.one_step_ahead(position);
        let position = spoiled(Bug::PositionAhead, position, ahead);
        let mut shape = ShapeState::clone(&self.shape);
        let reshape = shape.reshape.expect("an array in a reshape says so");
        shape.reshape = Some(Reshape { position_sectors: position, ..reshape });
        self.shape = Arc::new(shape);
        self.stage = Stage::Recording;
        self.plan.held_sectors(true, position)
    }

    /// Ends the window, whose position superblocks record by now. Returns the change of the border,
    /// and the lost sectors.
    pub(in crate::array) fn release(&mut self) -> (BorderChange, Vec<Range<u64>>) {
        assert_eq!(self.stage, Stage::Recording, "superblocks have the window's end");
        let reshape = self.shape.reshape.expect("an array in a reshape says so");
        self.position = reshape.position_sectors;
        let lost = joined(std::mem::take(&mut self.lost.sectors));
        self.lost_sectors += lost.iter().map(|range| range.end - range.start).sum::<u64>();
        self.ends_window();
        (BorderChange { position: self.position, window: None }, lost)
    }

    /// The border after a window that failed, and how the job ends. A window in place that was
    /// overwritten in part stays closed: neither shape has the window's content.
    pub(in crate::array) fn give_up(&mut self) -> (BorderChange, JobEnd) {
        assert!(self.out.is_empty(), "no piece is out");
        let window = self.window.as_ref().expect("a window fails");
        // A copy from before this attempt means that an earlier attempt has overwritten sectors.
        let has_begun = self.is_copied || self.left.start > window.written().start;
        let is_overwritten = window.in_place && has_begun;
        self.stuck = is_overwritten.then(|| window.clone());
        let mut failed = self.stuck.as_ref().map(|one| (one.moved.clone(), WindowAccess::Fails));
        if planted(Bug::StuckWindowServed) {
            failed = None;
        }
        let end = match self.fault.take() {
            Some(Fault::NoSpace) => JobEnd::Unwritten,
            _ => JobEnd::Unreadable,
        };
        self.refused = true;
        self.ends_window();
        (BorderChange { position: self.position, window: failed }, end)
    }

    fn ends_window(&mut self) {
        let window = self.window.take().expect("a window ends");
        let Range { start, end } = window.written();
        self.flow.of(self.class).ended_sectors += end - start;
        self.written += end - start;
        self.is_copied = false;
        self.left = 0..0;
        self.lost = LostSectors::default();
        self.stage = Stage::Rest;
    }

    /// Whether the reshape has passed another fifth since the last call.
    pub(in crate::array) fn passes(&mut self) -> bool {
        let (done, end) = self.plan.progress(self.position);
        let parts = done * PARTS / end.max(1);
        let is_news = parts > self.passed && parts < PARTS;
        self.passed = self.passed.max(parts);
        is_news
    }

    /// Notes that the reshape's end is reported.
    pub(in crate::array) fn end(&mut self) -> JobEnd {
        self.is_ended = true;
        JobEnd::Completed
    }
}

/// The ranges in ascending order, without overlaps.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
