//! Stories: an array, up to three operations, and all their schedules and failures.
//!
//! ```text
//!   story   = array × word of up to three letters        every one, see [`LETTERS`]
//!   telling = schedule × cache × pace × failure of a member      see [`SCHEDULES`], [`Failure`]
//! ```
//!
//! No word begins with a flush or has two flushes in a row, because such a flush has nothing to
//! flush. The pace is one of two: all operations are submitted at once, or each after the answer to
//! the last.

use braid_engine::CacheMode;
use braid_engine::array::MemberId;
use braid_engine::request::Operation;
use braid_geometry::{Family, Level, default_layout};

use crate::create::{Design, smallest};
use crate::fault::Mishap;
use crate::random::fold;
use crate::schedule::FixedOrder;

pub(super) const CHUNK: u64 = 8;
/// The longest write, in sectors. Longer rows are written in part.
const ROW_MAX: u64 = 16;

/// The arrays of all stories.
pub(super) fn designs() -> Vec<Design> {
    let of = |level, layout, slots| Design {
        level,
        layout,
        slots,
        chunk_sectors: CHUNK as u32,
        rows: 2,
        ..smallest()
    };
    let plain = |level, slots| of(level, default_layout(level), slots);
    let mut designs = vec![
        plain(Level::Raid1, 2),
        plain(Level::Raid1, 3),
        plain(Level::Raid4, 3),
        plain(Level::Raid4, 4),
        plain(Level::Raid0, 2),
        plain(Level::Raid0, 3),
        plain(Level::Linear, 2),
    ];
    designs.extend([(2, 3), (1, 3), (0, 4), (2, 4), (4, 4)].map(|(l, n)| of(Level::Raid5, l, n)));
    designs.extend([(2, 4), (0, 4), (2, 5), (8, 5), (16, 5)].map(|(l, n)| of(Level::Raid6, l, n)));
    // Layouts of RAID-10: two near, one far, one offset.
    let layouts = [(2 | 1 << 8, 3), (2 | 1 << 8, 4), (1 | 2 << 8, 3), (1 | 2 << 8 | 1 << 16, 3)];
    designs.extend(layouts.map(|(layout, slots)| of(Level::Raid10, layout, slots)));
    designs
}

/// An operation of a client in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoryStep {
    Ask(Operation, RangeShape),
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeShape {
    /// The first chunk, whole.
    Chunk,
    /// One sector inside the first chunk.
    Sector,
    /// The middle of the first chunk, with the sector of `Sector` in it.
    Middle,
    /// The end of the first chunk and the beginning of the second.
    Across,
    /// The first row, whole if it is not longer than `ROW_MAX`.
    Row,
    /// The first sector of the second row.
    Below,
}

impl RangeShape {
    /// The first sector and the number of sectors, in an array of this capacity.
    pub(super) fn range(self, capacity: u64) -> (u64, u64) {
        let row = (capacity / 2).min(ROW_MAX);
        match self {
            Self::Chunk => (0, CHUNK),
            Self::Sector => (3, 1),
            Self::Middle => (2, 5),
            Self::Across => (CHUNK - 2, 4),
            Self::Row => (0, row),
            Self::Below => (row, 1),
        }
    }
}

const PLAIN: Operation = Operation::Write { durable: false };
const FUA: Operation = Operation::Write { durable: true };
const ZERO: Operation = Operation::WriteZeroes { may_punch: true, durable: false };

/// The operations of stories. A word names each by its letter.
pub(super) const LETTERS: [(char, StoryStep); 12] = [
    ('c', StoryStep::Ask(PLAIN, RangeShape::Chunk)),
    ('s', StoryStep::Ask(PLAIN, RangeShape::Sector)),
    ('m', StoryStep::Ask(PLAIN, RangeShape::Middle)),
    ('x', StoryStep::Ask(PLAIN, RangeShape::Across)),
    ('r', StoryStep::Ask(PLAIN, RangeShape::Row)),
    ('b', StoryStep::Ask(PLAIN, RangeShape::Below)),
    ('S', StoryStep::Ask(FUA, RangeShape::Sector)),
    ('X', StoryStep::Ask(FUA, RangeShape::Across)),
    ('R', StoryStep::Ask(FUA, RangeShape::Row)),
    ('f', StoryStep::Flush),
    ('z', StoryStep::Ask(ZERO, RangeShape::Across)),
    ('t', StoryStep::Ask(Operation::Trim, RangeShape::Chunk)),
];

/// Every word of up to `operations_max` letters, short ones first.
pub(super) fn words(operations_max: u64) -> Vec<Vec<StoryStep>> {
    let mut words = Vec::new();
    let mut longest: Vec<Vec<StoryStep>> = vec![Vec::new()];
    for _ in 0..operations_max {
        let longer = longest.iter().flat_map(|word| {
            let last_flushes = word.last().is_none_or(|last| *last == StoryStep::Flush);
            let next =
                LETTERS.iter().filter(move |(_, step)| !last_flushes || *step != StoryStep::Flush);
            next.map(|(_, step)| word.iter().copied().chain([*step]).collect())
        });
        longest = longer.collect();
        words.extend(longest.iter().cloned());
    }
    words
}

pub(super) fn spell(word: &[StoryStep]) -> String {
    let letter =
        |step: &StoryStep| LETTERS.iter().find(|(_, one)| one == step).map_or('?', |one| one.0);
    word.iter().map(letter).collect()
}

/// A number for a story, by the array's index and the word.
pub(super) fn number_of(design: usize, word: &[StoryStep]) -> u64 {
    let letter =
        |step: &StoryStep| LETTERS.iter().position(|(_, one)| one == step).unwrap_or(0) as u64;
    word.iter().fold(1 + design as u64, |hash, step| fold(hash, letter(step)))
}

const SCHEDULES: u64 = 7;
/// Paces: all operations at once, or one after another.
const PACES: u64 = 2;
/// Cache modes: write-through, and on levels with parity also write-back.
const CACHES: u64 = 2;

/// How many tellings (schedule, cache mode and pace) a word has, without failures. A single
/// operation has only one pace.
pub(super) fn tellings(level: Level, word: &[StoryStep]) -> u64 {
    let caches = if level.family() == Family::Stripe { CACHES } else { 1 };
    let paces = if word.len() == 1 { 1 } else { PACES };
    SCHEDULES * paces * caches
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Telling {
    pub(super) schedule: u64,
    pub(super) cache: CacheMode,
    pub(super) is_in_turn: bool,
    pub(super) failure: Option<Failure>,
}

impl Telling {
    /// The telling with this number, which is below [`tellings`].
    pub(super) fn nth(level: Level, number: u64) -> Self {
        let caches = if level.family() == Family::Stripe { CACHES } else { 1 };
        let (schedule, rest) = (number % SCHEDULES, number / SCHEDULES);
        let (cache, pace) = (rest % caches, rest / caches);
        let cache = if cache == 1 { CacheMode::WriteBack } else { CacheMode::WriteThrough };
        Self { schedule, cache, is_in_turn: pace == 1, failure: None }
    }

    pub(super) fn order(&self, slots: u16) -> FixedOrder {
        match self.schedule {
            0 => FixedOrder::PLAIN,
            1 => FixedOrder::PLAIN.newest_first(),
            2 => FixedOrder::answers_first(),
            3 => FixedOrder::superblocks_first(),
            4 => FixedOrder::superblocks_last().newest_first(),
            5 => FixedOrder::PLAIN.slow(MemberId(0)),
            _ => FixedOrder::answers_first().slow(MemberId(slots - 1)),
        }
    }
}

/// A failure of a member, just before its disk acts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    /// How many acts of disks come before the failure.
    pub(super) acts: usize,
    pub(super) mishap: Mishap,
}

/// A disk's part in a step of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Read,
    Write,
    Superblock,
    Flush,
}

/// All ways in which a member can fail in a story with these acts of disks. Before each act, the
/// disk dies, or fails that act and all later ones of its kind. Any other moment gives the same
/// result.
pub(super) fn failures(acts: &[Act]) -> Vec<Failure> {
    let at = |(acts, act): (usize, &Act)| {
        let fails = match act {
            Act::Read => None,
            Act::Write => Some(Mishap::WritesFail),
            Act::Superblock => Some(Mishap::SuperblocksFail),
            Act::Flush => Some(Mishap::FlushesFail),
        };
        let mishaps = [Some(Mishap::Dies), fails].into_iter().flatten();
        mishaps.map(move |mishap| Failure { acts, mishap })
    };
    acts.iter().enumerate().flat_map(at).collect()
}
