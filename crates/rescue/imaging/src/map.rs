//! The map of a copy: the disk's bytes in order, each with a state.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// The most stretches of a map: without a limit, a disk that fails everywhere would fill the
/// memory.
pub const BLOCKS_MAX: usize = 1 << 20;
/// The most bytes of a map's text, which has a line for each stretch.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The most bytes of a disk; bytes beyond have no address.
const DISK_BYTES_MAX: u64 = i64::MAX.unsigned_abs() - (SECTOR_BYTES - 1);
const SECTOR_BYTES: u64 = 512;

/// The state of a byte of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// The byte was not read yet.
    Untried,
    /// A large read that contained the byte failed; which of its sectors are bad is unknown.
    Untrimmed,
    /// The byte is unread, and between two bad sectors.
    Unscraped,
    /// A read of the byte's sector alone failed.
    Bad,
    /// The copy has the byte.
    Done,
}

impl State {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Untried, Self::Untrimmed, Self::Unscraped, Self::Bad, Self::Done];

    /// The state's letter in the map's text.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Self::Untried => '?',
            Self::Untrimmed => '*',
            Self::Unscraped => '/',
            Self::Bad => '-',
            Self::Done => '+',
        }
    }

    fn of_sign(sign: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| sign.chars().eq([state.sign()]))
    }
}

/// Why a text is not a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Every line is a remark.
    #[error("it is empty")]
    Empty,
    /// The text has more stretches than the limit.
    #[error("it has more than {BLOCKS_MAX} stretches")]
    TooLong,
    /// A line is malformed.
    #[error("line {line} is not a line of a map: {what}")]
    Line {
        /// The line's number, counted from 1.
        line: usize,
        /// The fault in the line.
        what: &'static str,
    },
    /// The map names bytes that the disk does not have.
    #[error("it goes up to byte {end}, beyond the size of {size_bytes}")]
    Beyond {
        /// The end of the range that goes beyond the disk.
        end: u64,
        /// Bytes of the disk.
        size_bytes: u64,
    },
}

/// The state of every byte of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    size_bytes: u64,
    /// Each stretch by its start; the stretch ends where the next begins. Neighbours have different
    /// states.
    starts: BTreeMap<u64, State>,
}

impl Map {
    /// The map of a disk of which no byte was read yet.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes, starts: BTreeMap::from([(0, State::Untried)]) }
    }

    /// Bytes of the disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The stretches of the map, in order.
    pub fn stretches(&self) -> impl DoubleEndedIterator<Item = (Range<u64>, State)> {
        self.starts.iter().map(|(start, state)| (*start..self.end_of(*start), *state))
    }

    /// The stretches of one state.
    pub fn of(&self, wanted: State) -> impl DoubleEndedIterator<Item = Range<u64>> {
        self.stretches().filter(move |(_, state)| *state == wanted).map(|(range, _)| range)
    }

    /// The number of bytes in one state.
    #[must_use]
    pub fn bytes(&self, state: State) -> u64 {
        self.of(state).map(|range| range.end.saturating_sub(range.start)).sum()
    }

    /// Bytes that the copy lacks for any reason, as ordered and separate ranges.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        let mut missing: Vec<Range<u64>> = Vec::new();
        for (range, _) in self.stretches().filter(|(_, state)| *state != State::Done) {
            match missing.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => missing.push(range),
            }
        }
        missing
    }

    /// The first stretch of a state that ends after `at`, cut to start at `at` or later.
    pub(crate) fn first_after(&self, wanted: State, at: u64) -> Option<Range<u64>> {
        let here = self.starts.range(..=at).next_back().map(|(start, _)| *start).unwrap_or(0);
        let mut starts = self.starts.range(here..);
        let found = starts.find(|(start, state)| **state == wanted && self.end_of(**start) > at);
        found.map(|(start, _)| (*start).max(at)..self.end_of(*start))
    }

    /// The last stretch of a state that begins before `at`, cut to end at `at`.
    pub(crate) fn last_before(&self, wanted: State, at: u64) -> Option<Range<u64>> {
        let mut starts = self.starts.range(..at).rev();
        let found = starts.find(|(_, state)| **state == wanted);
        found.map(|(start, _)| *start..self.end_of(*start).min(at))
    }

    /// Sets the state of a range of bytes; bytes beyond the end of the disk are ignored.
    pub fn set(&mut self, range: Range<u64>, state: State) {
        let range = range.start..range.end.min(self.size_bytes);
        if range.is_empty() {
            return;
        }
        let after = (range.end < self.size_bytes).then(|| self.state_at(range.end));
        let within: Vec<u64> = self.starts.range(range.clone()).map(|(start, _)| *start).collect();
        for start in within {
            self.starts.remove(&start);
        }
        self.put(range.start, state);
        if let Some(after) = after {
            self.starts.remove(&range.end);
            self.put(range.end, after);
        }
    }

    /// Whether the map has reached its limit of stretches.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.starts.len() >= BLOCKS_MAX
    }

    /// The state of a byte.
    #[must_use]
    pub fn state_at(&self, at: u64) -> State {
        self.starts.range(..=at).next_back().map_or(State::Untried, |(_, state)| *state)
    }

    /// Starts a stretch at `start`, unless the stretch before has the same state.
    fn put(&mut self, start: u64, state: State) {
        let before = self.starts.range(..start).next_back().map(|(_, state)| *state);
        if before != Some(state) {
            self.starts.insert(start, state);
        }
    }

    fn end_of(&self, start: u64) -> u64 {
        let next = self.starts.range(start.saturating_add(1)..).next();
        next.map_or(self.size_bytes, |(next, _)| *next)
    }

    /// Reads the map of a disk of `size_bytes`. Bytes that the text does not mention are untried.
    ///
    /// # Errors
    /// The text is no map, or the map of a larger disk.
    pub fn parse(text: &str, size_bytes: u64) -> Result<Self, MapError> {
        Self::parse_up_to(text, size_bytes, size_bytes)
    }

    /// Reads the map of a copy of `copy_bytes` bytes, in whole sectors. A copy that was stopped
    /// early is shorter than its disk. The map may then name bytes after the copy's end; these
    /// bytes count as not read, in spite of the map.
    ///
    /// # Errors
    /// The text is no map, or has more bytes than any disk.
    pub fn parse_of_copy(text: &str, copy_bytes: u64) -> Result<Self, MapError> {
        let mut map = Self::parse_up_to(text, copy_bytes, DISK_BYTES_MAX.max(copy_bytes))?;
        let whole = map.size_bytes.checked_next_multiple_of(SECTOR_BYTES);
        map.lengthen(whole.unwrap_or(map.size_bytes));
        let behind: Vec<Range<u64>> =
            map.of(State::Done).filter(|it| it.end > copy_bytes).collect();
        for range in behind {
            map.set(range.start.max(copy_bytes)..range.end, State::Untried);
        }
        Ok(map)
    }

    /// Enlarges the disk; the new bytes are untried.
    fn lengthen(&mut self, size_bytes: u64) {
        if size_bytes > self.size_bytes {
            let end = std::mem::replace(&mut self.size_bytes, size_bytes);
            self.put(end, State::Untried);
        }
    }

    fn parse_up_to(text: &str, size_bytes: u64, bytes_max: u64) -> Result<Self, MapError> {
        let mut map = Self::new(size_bytes);
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (line, head) = lines.next().ok_or(MapError::Empty)?;
        // The first line has the position, the step, and in newer maps the pass.
        let wrong = |line, what| MapError::Line { line, what };
        let mut words = head.split_whitespace();
        words.next().and_then(number).ok_or(wrong(line, "a position is wanted first"))?;
        let (doing, pass, rest) = (words.next(), words.next(), words.next());
        if !doing.is_some_and(|word| ["?", "*", "/", "-", "F", "G", "+"].contains(&word)) {
            return Err(wrong(line, "what was being done is wanted second"));
        }
        if pass.is_some_and(|word| number(word).is_none()) || rest.is_some() {
            return Err(wrong(line, "there is more than a position, a sign and a pass"));
        }
        let mut end_before = 0;
        for (line, words) in lines {
            let mut words = words.split_whitespace();
            let mut next = || words.next();
            let (Some(start), Some(length)) = (next().and_then(number), next().and_then(number))
            else {
                return Err(wrong(line, "a position and a size are wanted"));
            };
            let state = next().and_then(State::of_sign);
            let state = state.ok_or(wrong(line, "its third word is none of ? * / - +"))?;
            if next().is_some() {
                return Err(wrong(line, "there is more than a position, a size and a sign"));
            }
            if start < end_before {
                return Err(wrong(line, "it begins before the end of the one before"));
            }
            let end = start.checked_add(length).ok_or(wrong(line, "it has no end"))?;
            if end > bytes_max {
                return Err(MapError::Beyond { end, size_bytes: bytes_max });
            }
            map.lengthen(end);
            end_before = end;
            map.set(start..end, state);
            // A plan stops when its map is full, and its last read may add two more stretches.
            if map.starts.len() > BLOCKS_MAX.saturating_add(2) {
                return Err(MapError::TooLong);
            }
        }
        Ok(map)
    }

    /// The map as text, with the position and step of the copy. `remarks` come first, each on a
    /// line of its own.
    #[must_use]
    pub fn to_text(&self, remarks: &[&str], (position, sign): (u64, char), pass: u8) -> String {
        let mut text = String::new();
        for remark in remarks {
            // Control characters are dropped, so that a remark stays on its line.
            let plain: String = remark.chars().filter(|letter| !letter.is_control()).collect();
            let _ = writeln!(text, "# {plain}");
        }
        let _ = writeln!(text, "# current_pos  current_status  current_pass");
        let _ = writeln!(text, "0x{position:08X}     {sign}               {}", pass.max(1));
        let _ = writeln!(text, "#      pos        size  status");
        for (range, state) in self.stretches().filter(|(range, _)| !range.is_empty()) {
            let length = range.end.saturating_sub(range.start);
            let _ = writeln!(text, "0x{:08X}  0x{length:08X}  {}", range.start, state.sign());
        }
        text
    }
}

/// A number as C writes it: hexadecimal after `0x`, octal after `0`, else decimal.
fn number(word: &str) -> Option<u64> {
    let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, word.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (word, 10),
    };
    // Rust's own conversion would accept a plus or minus sign.
    let is_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    is_digits.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}
