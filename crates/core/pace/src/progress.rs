//! Estimates a job's rate, and when the job will be done.
//!
//! The job's runner reports the progress; displays ask for the estimate. The estimate knows only
//! bytes and time, and steers nothing. (The governor steers the job, and never asks for the
//! estimate.)
//!
//! ```text
//!   bytes
//!    total ┤                                          · · ·  bytes left, at the window's rate,
//!          │                                   ╱ · ·         slowing on if it has slowed so far
//!     done ┤                              ___╱
//!          │                     ________╱     ◀ window ▶  the last half of the time so far
//!          │        ___.────.───'
//!        0 ┼───.──'────────────────┬─────────────┬──────▶ time
//!         start                 half of it      now
//! ```
//!
//! # Which window
//!
//! The mean rate since the start reacts slowly when clients come to stay. The rate of the last
//! minute does not predict the next hours if load comes and goes. The last half of the time so far
//! avoids both. This window forgets in proportion to the remaining time, and needs no constant that
//! is right for a memory and wrong for a disk of 20 TB. The progress is kept as at most 128 points;
//! when these are full, every second point is dropped.
//!
//! # Disks that turn
//!
//! A turning disk is half as fast at its end as at its beginning. So an estimate from any window is
//! a fifth too low in the middle. The estimate assumes that the rate goes on falling if it has
//! fallen from each quarter of the work to the next. No single step may be most of the rate's fall.
//! The rate must fall by no more than a disk's does over its whole length. The assumed rate never
//! goes below 0.4 of the first byte's rate. A load that came is one step. A load that comes and
//! goes lets the rate fall three times in a row by chance in one of 24 cases.
//!
//! # No figure
//!
//! A job has no figure before it has progressed four times over at least a second, nor while it
//! stands still for long. No figure is beyond a hundred days. Pauses that the operator asked for do
//! not count as time.
//!
//! Invariants
//! - An estimate is right within 15 % (median) at 25, 50 and 75 % of jobs whose speed changes
//!   `[check: right_within_15_percent_in_the_median]`.
//! - No input leads to a nonsensical figure `[check: nothing_is_said_that_is_not_known]`.
//! - A pause changes nothing `[check: a_pause_is_no_time]`.
//!
//! Fractions are floats: they steer nothing, and are only added, multiplied and divided (the same
//! on every machine). A relative error of 1e-15 is too small to be seen.

const POINTS_MAX: usize = 128;
/// An estimate needs this many reports of progress.
const ADVANCES_MIN: u32 = 4;
/// An estimate needs this much running time, without pauses.
const ACTIVE_MIN_NS: u64 = 1_000_000_000;
/// The remaining time is unknown if there was no progress for this long, and for a quarter of the
/// time so far.
const STILL_NS: u64 = 30_000_000_000;
/// Remaining times above a hundred days are not given in seconds.
const LEFT_MAX_SECONDS: u64 = 100 * 86_400;
/// The rate counts as falling only if it fell by more than this part.
const FALL_MIN: f64 = 0.03;
/// No disk's rate falls by more than this part from its first to its last byte.
const FALL_MAX: f64 = 0.65;
/// The rate falls steadily only if no step between two quarters of the work is more than this part
/// of the fall over all four.
const STEP_MAX: f64 = 0.6;
/// A disk's inner tracks are at least this part as fast as its outer tracks.
const INNER: f64 = 0.4;
/// The remaining time is the sum of the times of this many parts of the remaining work.
const PARTS: u32 = 64;

/// The remaining time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingTime {
    /// The job will be done in so many seconds.
    Seconds(u64),
    /// More than a hundred days.
    Long,
    /// Unknown: the job stands still.
    Unknown,
}

/// A job's rate and remaining time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes for each second in the recent past.
    pub bytes_per_second: u64,
    /// The remaining time.
    pub remaining: RemainingTime,
}

/// A sample of a job: the time that it has run, without pauses, and the bytes done by then.
#[derive(Clone, Copy, Debug)]
struct Point {
    active_ns: u64,
    bytes: u64,
}

/// The progress of one job.
#[derive(Clone, Debug)]
pub struct Progress {
    total_bytes: u64,
    /// Points of progress, evenly spaced in time, the oldest first; never empty.
    points: Vec<Point>,
    spacing_ns: u64,
    last: Point,
    /// The last time of progress.
    advanced_ns: u64,
    advances: u32,
    now_ns: u64,
    is_paused: bool,
}

impl Progress {
    /// Starts to estimate a job that begins at `now_ns`, with `done_bytes` of `total_bytes` already
    /// done.
    #[must_use]
    pub fn new(now_ns: u64, done_bytes: u64, total_bytes: u64) -> Self {
        let start = Point { active_ns: 0, bytes: done_bytes };
        Self {
            total_bytes,
            points: vec![start],
            spacing_ns: 1,
            last: start,
            advanced_ns: 0,
            advances: 0,
            now_ns,
            is_paused: false,
        }
    }

    /// Takes the job's progress. If the progress goes back, the estimate starts again from the new
    /// progress.
    pub fn handle_done(&mut self, now_ns: u64, done_bytes: u64) {
        self.advance(now_ns);
        if done_bytes < self.last.bytes {
            *self = Self {
                is_paused: self.is_paused,
                ..Self::new(self.now_ns, done_bytes, self.total_bytes)
            };
        } else if done_bytes > self.last.bytes {
            self.last.bytes = done_bytes;
            self.advanced_ns = self.last.active_ns;
            self.advances = self.advances.saturating_add(1);
            self.keep();
        }
    }

    /// Pauses or resumes the job's clock. Time in a pause does not count.
    pub fn set_paused(&mut self, now_ns: u64, is_paused: bool) {
        self.advance(now_ns);
        self.is_paused = is_paused;
    }

    /// Bytes done, and bytes in all.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.last.bytes.min(self.total_bytes), self.total_bytes)
    }

    /// The estimate, if it is known.
    pub fn estimate(&mut self, now_ns: u64) -> Option<Estimate> {
        self.advance(now_ns);
        let now = self.last;
        let left_bytes = self.total_bytes.saturating_sub(now.bytes);
        if left_bytes == 0 {
            return Some(Estimate {
                bytes_per_second: self.rate_now(),
                remaining: RemainingTime::Seconds(0),
            });
        }
        if self.advances < ADVANCES_MIN || now.active_ns < ACTIVE_MIN_NS {
            return None;
        }
        let still_ns = now.active_ns - self.advanced_ns;
        if still_ns >= STILL_NS.max(now.active_ns / 4) {
            return Some(Estimate { bytes_per_second: 0, remaining: RemainingTime::Unknown });
        }
        let seconds = self.seconds_left(left_bytes);
        let remaining = if seconds.is_finite() && seconds < LEFT_MAX_SECONDS as f64 {
            RemainingTime::Seconds(whole(seconds))
        } else {
            RemainingTime::Long
        };
        Some(Estimate { bytes_per_second: self.rate_now(), remaining })
    }

    fn advance(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(now_ns);
        if !self.is_paused {
            self.last.active_ns = self.last.active_ns.saturating_add(elapsed_ns);
        }
    }

    fn keep(&mut self) {
        let newest = self.points[self.points.len() - 1];
        if self.last.active_ns - newest.active_ns < self.spacing_ns {
            return;
        }
        if self.points.len() == POINTS_MAX {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            let spacing_ns = self.last.active_ns / (POINTS_MAX as u64 / 2);
            self.spacing_ns = self.spacing_ns.max(spacing_ns);
        }
        self.points.push(self.last);
    }

    fn window(&self) -> (f64, f64) {
        let half_ns = self.last.active_ns / 2;
        (half_ns as f64, self.along(half_ns as f64, |point| point.active_ns, |point| point.bytes))
    }

    /// The mean rate in the window, in bytes for each nanosecond.
    fn rate(&self) -> f64 {
        let (start_ns, start_bytes) = self.window();
        let ns = self.last.active_ns as f64 - start_ns;
        if ns <= 0.0 { 0.0 } else { (self.last.bytes as f64 - start_bytes) / ns }
    }

    fn rate_now(&self) -> u64 {
        whole(self.rate() * 1e9 + 0.5)
    }

    /// Interpolates between the points: the `value` at the place where `key` is `at`.
    fn along(&self, at: f64, key: impl Fn(&Point) -> u64, value: impl Fn(&Point) -> u64) -> f64 {
        let after = self.points.partition_point(|point| (key(point) as f64) <= at);
        let before = &self.points[after.max(1) - 1];
        let after = self.points.get(after).unwrap_or(&self.last);
        let span = key(after) as f64 - key(before) as f64;
        let part =
            if span > 0.0 { ((at - key(before) as f64) / span).clamp(0.0, 1.0) } else { 0.0 };
        value(before) as f64 + part * (value(after) as f64 - value(before) as f64)
    }

    /// If the rate falls steadily: the rate lost with each byte, and the lowest rate to assume.
    /// `None` if the rate does not fall steadily.
    fn fall(&self) -> Option<(f64, f64)> {
        let (start, end) = (self.points[0].bytes as f64, self.last.bytes as f64);
        let quarter = (end - start) / 4.0;
        let mut times = [0.0; 5];
        for (index, time) in (0_u32..).zip(&mut times) {
            let bytes = start + quarter * f64::from(index);
            *time = self.along(bytes, |point| point.bytes, |point| point.active_ns);
        }
        times[4] = self.advanced_ns as f64;
        let rates: Vec<f64> = times.windows(2).map(|pair| quarter / (pair[1] - pair[0])).collect();
        let falls: Vec<f64> = rates.windows(2).map(|pair| pair[0] - pair[1]).collect();
        let all = rates[0] - rates[3];
        let is_steady = falls.iter().all(|fall| *fall > 0.0 && *fall <= STEP_MAX * all);
        let slope = all / (3.0 * quarter);
        // The job may have begun after the member's start. The rate at the first byte is on the
        // line of the same fall.
        let first = rates[0] + slope * (start + quarter / 2.0);
        let whole = slope * self.total_bytes as f64;
        let is_a_disks = all > FALL_MIN * rates[0] && whole <= FALL_MAX * first;
        (is_steady && is_a_disks).then_some((slope, INNER * first))
    }

    fn seconds_left(&self, left_bytes: u64) -> f64 {
        let (rate, done) = (self.rate(), self.last.bytes as f64);
        let part = left_bytes as f64 / f64::from(PARTS);
        let (slope, least) = self.fall().unwrap_or((0.0, 0.0));
        // The window's mean rate is the rate at the middle of the window.
        let middle = f64::midpoint(self.window().1, done);
        let ns: f64 = (0..PARTS)
            .map(|index| {
                let at = done + part * (f64::from(index) + 0.5);
                part / (rate - slope * (at - middle)).max(least.min(rate))
            })
            .sum();
        ns / 1e9
    }
}

/// A number without its fraction, at least zero. A number that is too large becomes the largest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}
