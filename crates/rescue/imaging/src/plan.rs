//! Chooses the next read, so that most bytes come soonest and the disk suffers least.
//!
//! The order of reads: easy large reads first, leaping over errors; then the edges of failed reads;
//! then single sectors; then retries from both ends in turn.

use std::ops::Range;

use crate::{Map, State};

/// Bytes of a read while no read fails.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Bytes to leap over after a first failure; each further failure doubles the leap.
const LEAP_BYTES: u64 = 1 << 20;
/// The most bytes to leap over. A leap is also at most a hundredth of the disk.
const LEAP_BYTES_MAX: u64 = 1 << 30;

/// A step of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reads untried bytes, many at a time; passes 1 to 3.
    Copy(u8),
    /// Reads the edges of failed large reads.
    Trim,
    /// Reads the sectors between the edges of failed large reads.
    Scrape,
    /// Reads bad sectors again; the number of the retry, from 1.
    Retry(u32),
    /// Nothing is left to read.
    Over,
}

impl Step {
    /// The step's letter in a map's text.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Self::Copy(_) => '?',
            Self::Trim => '*',
            Self::Scrape => '/',
            Self::Retry(_) => '-',
            Self::Over => '+',
        }
    }

    /// The number of the step's pass.
    #[must_use]
    pub fn pass(self) -> u8 {
        match self {
            Self::Copy(pass) => pass,
            Self::Retry(pass) => u8::try_from(pass).unwrap_or(u8::MAX),
            Self::Trim | Self::Scrape | Self::Over => 1,
        }
    }
}

/// A read that the caller should make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The range of the disk to read, in bytes.
    pub range: Range<u64>,
}

/// The plan of a copy.
#[derive(Debug, Clone)]
pub struct Plan {
    map: Map,
    sector_bytes: u64,
    retries: u32,
    step: Step,
    /// The position within this step.
    at: u64,
    leap_bytes: u64,
    /// Whether the front of the failed large read is trimmed: then its back comes next.
    is_front_trimmed: bool,
}

impl Plan {
    /// Continues a copy from its map, with sectors of `sector_bytes` in failed reads and `retries`
    /// further reads of bad sectors.
    ///
    /// # Panics
    /// If a sector has no bytes, or more than `PIECE_BYTES`: the caller has asked the disk for its
    /// sector size.
    #[must_use]
    pub fn new(map: Map, sector_bytes: u64, retries: u32) -> Self {
        assert!((1..=PIECE_BYTES).contains(&sector_bytes), "sectors of {sector_bytes} bytes");
        let step = Step::Copy(1);
        let leap_bytes = LEAP_BYTES;
        Self { map, sector_bytes, retries, step, at: 0, leap_bytes, is_front_trimmed: false }
    }

    /// The map so far.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The present step.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// The position on the disk.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at.min(self.map.size_bytes())
    }

    /// The next read of the copy; `None` once every range was read as often as allowed.
    pub fn next_request(&mut self) -> Option<ReadRequest> {
        loop {
            // A full map ends the copy of a disk that fails everywhere, to bound time and memory.
            if self.step == Step::Over || self.map.is_full() {
                self.step = Step::Over;
                return None;
            }
            match self.within_step() {
                Some(range) => return Some(ReadRequest { range }),
                None => self.next_step(),
            }
        }
    }

    fn within_step(&mut self) -> Option<Range<u64>> {
        match self.step {
            Step::Copy(_) if self.is_backwards() => {
                let untried = self.map.last_before(State::Untried, self.at)?;
                let piece = down(untried.end.saturating_sub(1), PIECE_BYTES);
                Some(untried.start.max(piece)..untried.end)
            }
            Step::Copy(_) => {
                let untried = self.map.first_after(State::Untried, self.at)?;
                let piece = down(untried.start, PIECE_BYTES).saturating_add(PIECE_BYTES);
                Some(untried.start..untried.end.min(piece))
            }
            Step::Trim => {
                let piece = self.map.first_after(State::Untrimmed, self.at)?;
                Some(if self.is_front_trimmed { self.back(&piece) } else { self.front(&piece) })
            }
            Step::Scrape => {
                let rest = self.map.first_after(State::Unscraped, self.at)?;
                Some(self.front(&rest))
            }
            Step::Retry(_) if self.is_backwards() => {
                let bad = self.map.last_before(State::Bad, self.at)?;
                Some(self.back(&bad))
            }
            Step::Retry(_) => {
                let bad = self.map.first_after(State::Bad, self.at)?;
                Some(self.front(&bad))
            }
            Step::Over => None,
        }
    }

    fn front(&self, range: &Range<u64>) -> Range<u64> {
        let next = down(range.start, self.sector_bytes).saturating_add(self.sector_bytes);
        range.start..range.end.min(next)
    }

    fn back(&self, range: &Range<u64>) -> Range<u64> {
        let last = down(range.end.saturating_sub(1), self.sector_bytes);
        range.start.max(last)..range.end
    }

    fn is_backwards(&self) -> bool {
        match self.step {
            Step::Copy(pass) => pass == 2,
            Step::Retry(number) => number.is_multiple_of(2),
            Step::Trim | Step::Scrape | Step::Over => false,
        }
    }

    fn next_step(&mut self) {
        self.step = match self.step {
            Step::Copy(pass @ 1..=2) => Step::Copy(pass.saturating_add(1)),
            Step::Copy(_) => Step::Trim,
            Step::Trim => Step::Scrape,
            Step::Scrape if self.retries > 0 => Step::Retry(1),
            Step::Retry(number) if number < self.retries => Step::Retry(number.saturating_add(1)),
            Step::Scrape | Step::Retry(_) | Step::Over => Step::Over,
        };
        self.at = if self.is_backwards() { self.map.size_bytes() } else { 0 };
        self.leap_bytes = LEAP_BYTES;
        self.is_front_trimmed = false;
    }

    /// Records the result of a read: complete, or failed.
    pub fn answered(&mut self, request: &ReadRequest, is_read: bool) {
        let range = request.range.clone();
        let failed = match self.step {
            Step::Copy(_) => State::Untrimmed,
            Step::Trim | Step::Scrape | Step::Retry(_) | Step::Over => State::Bad,
        };
        self.map.set(range.clone(), if is_read { State::Done } else { failed });
        self.at = match self.step {
            // A failed large read that is trimmed from its back is found by its start.
            Step::Trim if self.is_front_trimmed => self.at,
            _ if self.is_backwards() => range.start,
            _ => range.end,
        };
        match self.step {
            Step::Copy(_) if is_read => self.leap_bytes = LEAP_BYTES,
            Step::Copy(3) => {}
            Step::Copy(_) => self.leap(),
            Step::Trim => self.trimmed(&range, is_read),
            Step::Scrape | Step::Retry(_) | Step::Over => {}
        }
    }

    /// Marks these bytes as untried again, because the whole disk was gone when they were read.
    pub fn take_back(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.map.set(range.clone(), State::Untried);
        }
    }

    /// Leaps in this pass over bytes whose reads are likely to fail as well.
    fn leap(&mut self) {
        let leap_bytes = self.leap_bytes;
        self.at = match self.is_backwards() {
            true => self.at.saturating_sub(leap_bytes),
            false => self.at.saturating_add(leap_bytes),
        };
        let most = down(self.map.size_bytes() / 100, PIECE_BYTES).clamp(LEAP_BYTES, LEAP_BYTES_MAX);
        self.leap_bytes = leap_bytes.saturating_mul(2).min(most);
    }

    /// Continues after the read of a sector at the edge of a failed large read.
    fn trimmed(&mut self, range: &Range<u64>, is_read: bool) {
        let (start, end) = (range.start, range.end);
        // The failed large read ends where the state changes.
        let piece = match self.is_front_trimmed {
            false => self.map.first_after(State::Untrimmed, end).filter(|it| it.start == end),
            true => self.map.last_before(State::Untrimmed, start).filter(|it| it.end == start),
        };
        match (piece, is_read) {
            (None, _) => self.is_front_trimmed = false,
            (Some(_), true) => {}
            (Some(_), false) if !self.is_front_trimmed => self.is_front_trimmed = true,
            (Some(piece), false) => {
                self.map.set(piece, State::Unscraped);
                self.is_front_trimmed = false;
            }
        }
    }
}

fn down(at: u64, to: u64) -> u64 {
    at.saturating_sub(at.checked_rem(to).unwrap_or(0))
}
