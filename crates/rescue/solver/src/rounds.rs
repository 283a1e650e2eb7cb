//! Turns votes into guesses that are worth a close look. The first round tries every shape with a
//! few signs. The second round tries the best shapes with many signs and a walk. Both rounds rank
//! chunk sizes, layouts and levels.
//!
//! ```text
//!   every shape, every start ─▶ few signs vote
//!   ─▶ of each level and layout some, and all that are nearly as good as the best
//!   ─▶ many signs vote, and a walk counts ─▶ the same
//! ```

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::Level;

use crate::Platter;
use crate::evidence;
use crate::fit::{Fit, fits, spread};
use crate::guess::{Guess, VolumeStart, roomy};
use crate::habits;
use crate::scan::Scan;
use crate::shapes::{Arrangement, arrangements};
use crate::sign::{ALIKE, Sign};
use crate::slots::assigned;

/// The most signs that vote in the first round.
const FIRST_ROUND: usize = 96;
/// The most signs that vote in the second round.
const SECOND_ROUND: usize = 512;
/// The most guesses that go from the first round into the second.
const SECOND_MAX: usize = 8192;
/// The most guesses that go from the second round into the close look.
const CLOSE_MAX: usize = 64;
/// Guesses kept of every level and layout, unless they are worth less than half of the best.
const EACH_MIN: usize = 3;
/// The size of members that the first rounds assume, in data sectors: more than any member has.
const ROOMY_SECTORS: u64 = 1 << 44;
/// RAID-10 with two far copies.
const FAR_2: u32 = 0x201;

/// A shape with a start of the volume, and the worth of both.
struct Candidate {
    worth: usize,
    shape: Arrangement,
    start: VolumeStart,
    /// Data sectors of each member.
    sectors: u64,
    /// The data offset of all members; `None` if votes decide the offset of each member.
    offset: Option<u64>,
}

/// Both rounds for one volume.
pub(crate) struct Rounds<'a> {
    volume: usize,
    scan: &'a Scan,
    members: &'a [&'a dyn Platter],
    few: Vec<&'a Sign>,
    many: Vec<&'a Sign>,
    /// The signs in the first zone of a RAID-0, for each round. After this zone, it is unknown
    /// which members have data.
    zoned: (Vec<&'a Sign>, Vec<&'a Sign>),
    /// Sectors of the smallest member.
    smallest: u64,
    /// Usual data offsets for members of the smallest member's size.
    usual: Vec<u64>,
}

impl<'a> Rounds<'a> {
    pub(crate) fn of(
        volume: usize,
        signs: &[&'a Sign],
        scan: &'a Scan,
        members: &'a [&'a dyn Platter],
    ) -> Self {
        let smallest = members.iter().map(|member| member.sectors()).min().unwrap_or(0);
        let count = members.len();
        let rounds = |signs: &[&'a Sign]| {
            (spread(signs, FIRST_ROUND, count), spread(signs, SECOND_ROUND, count))
        };
        let first_zone = smallest.saturating_mul(count as u64);
        let is_within = |sign: &&&Sign| sign.addresses.iter().any(|address| address < first_zone);
        let within: Vec<&Sign> = signs.iter().filter(is_within).copied().collect();
        let ((few, many), zoned) = (rounds(signs), rounds(&within));
        let usual = habits::offsets(smallest);
        Self { volume, scan, members, few, many, zoned, smallest, usual }
    }

    /// The guesses that survive both rounds.
    pub(crate) fn best(&self, starts: &[u64]) -> Vec<Guess> {
        let mut first = Vec::new();
        for shape in arrangements(self.members.len(), self.are_unequal()) {
            for sector in starts {
                let start = VolumeStart { volume: self.volume, sector: *sector };
                let found = self.fitted(&shape, *sector).into_iter();
                let found = found.filter(|(fit, _)| fit.strength > 0);
                first.extend(found.map(|(fit, sectors)| Candidate {
                    worth: fit.strength + ALIKE * self.habit(&fit),
                    shape,
                    start,
                    sectors,
                    offset: fit.offset,
                }));
            }
        }
        self.keep_best(&mut first, SECOND_MAX, |it| (it.worth, it.shape));
        let second = first.iter().filter_map(|it| {
            let (worth, guess) = self.looked_at_again(it)?;
            Some((worth, guess, it.shape))
        });
        let mut second: Vec<(usize, Guess, Arrangement)> = second.collect();
        self.keep_best(&mut second, CLOSE_MAX, |(worth, _, shape)| (*worth, *shape));
        second.into_iter().map(|(_, guess, _)| guess).collect()
    }

    fn are_unequal(&self) -> bool {
        self.members.iter().any(|member| member.sectors() != self.smallest)
    }

    /// Lets signs vote, with the data offsets that explain most, and with the offsets of `usual`.
    fn sized(
        &self,
        shape: &Arrangement,
        signs: &[&Sign],
        (start, sectors): (u64, u64),
        usual: &[u64],
    ) -> Option<Vec<Fit>> {
        Some(fits(&roomy(shape, sectors)?, signs, start, self.members.len(), usual))
    }

    /// The weight of a usual data offset, in addresses.
    fn habit(&self, fit: &Fit) -> usize {
        match fit.offset {
            Some(offset) if self.usual.contains(&offset) => habits::OFFSET_ADDRESSES,
            _ => 0,
        }
    }

    /// The votes of the first round, with the sectors of data that they assume.
    ///
    /// The place of far copies depends on the size of the data, and the size on the start of the
    /// data. So a first vote finds the start. Shapes without far copies vote with a size beyond any
    /// member.
    fn fitted(&self, shape: &Arrangement, start: u64) -> Vec<(Fit, u64)> {
        if shape.level == Level::Raid10 && shape.layout == FAR_2 {
            return self.fitted_far(shape, start).into_iter().collect();
        }
        let few = if shape.level == Level::Raid0 { &self.zoned.0 } else { &self.few };
        let found = self.sized(shape, few, (start, ROOMY_SECTORS), &self.usual);
        found.into_iter().flatten().map(|fit| (fit, ROOMY_SECTORS)).collect()
    }

    fn fitted_far(&self, shape: &Arrangement, start: u64) -> Option<(Fit, u64)> {
        let chunk = u64::from(shape.chunk_sectors);
        let voted =
            |sectors| self.sized(shape, &self.few, (start, sectors), &[])?.into_iter().next();
        let found = voted(self.smallest)?;
        let offsets = found.assignments.iter().flatten().map(|assignment| assignment.1);
        // The offsets found may be those of the second copies. The second copies follow the first
        // copies by as many chunks as fit between the data's start and its end.
        let offsets = offsets.flat_map(|offset| {
            let rows = self.smallest.saturating_sub(offset) / chunk;
            [0, rows, rows.saturating_sub(1)].map(|rows| offset.saturating_sub(rows * chunk))
        });
        let offsets = offsets.chain(self.usual.iter().copied());
        let offsets = offsets.collect::<BTreeSet<u64>>().into_iter();
        let sizes = offsets.filter_map(|offset| self.smallest.checked_sub(offset));
        let fits = sizes.filter_map(|sectors| Some((voted(sectors)?, sectors)));
        // With the right size, first and second copies vote for the same slots.
        fits.max_by_key(|(fit, _)| (fit.votes, fit.strength))
    }

    /// The second round's vote on a candidate. With few votes many guesses tie; a walk tells these
    /// guesses apart at once.
    fn looked_at_again(&self, first: &Candidate) -> Option<(usize, Guess)> {
        let usual: Vec<u64> = first.offset.into_iter().collect();
        let place = (first.start.sector, first.sectors);
        let many = if first.shape.level == Level::Raid0 { &self.zoned.1 } else { &self.many };
        let found = self.sized(&first.shape, many, place, &usual)?;
        let is_asked = |fit: &Fit| first.offset.is_none() || fit.offset == first.offset;
        let fit = found.into_iter().find(is_asked)?;
        let as_voted = self.walked(&fit.assignments, first);
        // A member with contradicting votes may have another slot, so the walk decides.
        let mut cautious = fit.assignments.clone();
        fit.contested.iter().for_each(|member| cautious[*member] = None);
        let is_contested = cautious != fit.assignments;
        let cautious = is_contested.then(|| self.walked(&cautious, first)).flatten();
        let (met, guess) =
            as_voted.into_iter().chain(cautious).rev().max_by_key(|(met, _)| *met)?;
        Some((fit.strength / ALIKE + met + self.habit(&fit), guess))
    }

    /// Walks through the volume with members in these slots. Returns how much the walk confirms,
    /// and the guess, with members that the walk assigned.
    fn walked(
        &self,
        assignments: &[Option<(u16, u64)>],
        first: &Candidate,
    ) -> Option<(usize, Guess)> {
        let guess = assigned(assignments, &first.shape, first.start, self.members);
        let geometry = guess.geometry()?;
        let (guess, walk) =
            evidence::assign_by_walk(&guess, &geometry, self.scan, self.members, first.start);
        Some((walk.confirmed.saturating_sub(walk.refuted), guess))
    }

    /// Keeps the best guesses: some of every level and layout, and up to `max` that are nearly as
    /// good as the best of all. Among ties, guesses in which every member has a slot come first.
    fn keep_best<T>(
        &self,
        found: &mut Vec<T>,
        max: usize,
        of: impl Fn(&T) -> (usize, Arrangement),
    ) {
        let members = self.members.len();
        found.sort_by_key(|it| {
            let (worth, shape) = of(it);
            (std::cmp::Reverse(worth), usize::from(shape.slots).abs_diff(members))
        });
        let best = found.first().map_or(0, |it| of(it).0);
        let mut counts: BTreeMap<(Level, u32), usize> = BTreeMap::new();
        let mut kept = 0;
        found.retain(|it| {
            let (worth, shape) = of(it);
            let count = counts.entry((shape.level, shape.layout)).or_default();
            *count += 1;
            let is_kept = *count <= EACH_MIN || kept < max && worth * 10 >= best * 9;
            kept += usize::from(is_kept);
            is_kept && worth * 2 >= best
        });
    }
}
