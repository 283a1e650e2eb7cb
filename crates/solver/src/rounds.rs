//! From votes to guesses that are worth a close look, in two rounds: every shape by a few signs, the best of them by many and a walk.
//!
//! ```text
//!   every shape, every start ─▶ few signs vote ─▶ of each level and layout some, and all that are nearly as good as the best
//!                            ─▶ many signs vote, and what a walk meets speaks ─▶ the same
//! ```

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::Level;

use crate::Platter;
use crate::evidence;
use crate::fit::{Fit, fit, spread};
use crate::guess::{Guess, Start, roomy};
use crate::scan::Scan;
use crate::seats::seated;
use crate::shapes::{Arrangement, arrangements};
use crate::sign::{ALIKE, Sign};

/// Where data begin on a member, usually: of old metadata or such as is at the end, of small members and of large ones by mdadm.
const USUAL_OFFSETS: [u64; 3] = [0, 2048, 262_144];
/// Signs that vote in the first round, and in the second.
const FIRST_ROUND: usize = 96;
const SECOND_ROUND: usize = 512;
/// Guesses of the first round that go into the second, and of the second that are looked at closely.
const SECOND_MAX: usize = 8192;
const CLOSE_MAX: usize = 64;
/// Guesses of every level and layout that are kept in any case, unless they are worth less than half of the best.
const EACH_MIN: usize = 3;
/// Data of a member in the first rounds: more than any has.
const ROOMY_SECTORS: u64 = 1 << 44;
/// RAID-10 with two far copies.
const FAR_2: u32 = 0x201;

/// A shape, where the volume begins by it, and what that is worth.
struct Candidate {
    worth: usize,
    shape: Arrangement,
    start: Start,
    /// Sectors of data of a member.
    sectors: u64,
}

/// The rounds of one volume.
pub(crate) struct Rounds<'a> {
    volume: usize,
    scan: &'a Scan,
    members: &'a [&'a dyn Platter],
    few: Vec<&'a Sign>,
    many: Vec<&'a Sign>,
    /// Sectors of the smallest member.
    smallest: u64,
}

impl<'a> Rounds<'a> {
    pub(crate) fn of(
        volume: usize,
        signs: &[&'a Sign],
        scan: &'a Scan,
        members: &'a [&'a dyn Platter],
    ) -> Self {
        let few = spread(signs, FIRST_ROUND, members.len());
        let many = spread(signs, SECOND_ROUND, members.len());
        let smallest = members.iter().map(|member| member.sectors()).min().unwrap_or(0);
        Self { volume, scan, members, few, many, smallest }
    }

    /// The guesses of both rounds that are worth it.
    pub(crate) fn best(&self, starts: &[u64]) -> Vec<Guess> {
        let mut first = Vec::new();
        for shape in arrangements(self.members.len()) {
            for sector in starts {
                let start = Start { volume: self.volume, sector: *sector };
                let found = self.fitted(&shape, *sector).filter(|(fit, _)| fit.strength > 0);
                first.extend(found.map(|(fit, sectors)| Candidate {
                    worth: fit.strength,
                    shape,
                    start,
                    sectors,
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

    fn sized(&self, shape: &Arrangement, signs: &[&Sign], start: u64, sectors: u64) -> Option<Fit> {
        Some(fit(&roomy(shape, sectors)?, signs, start, self.members.len()))
    }

    /// The first vote, and of how many sectors of data.
    ///
    /// Far copies are where the size of the data says, and that depends on where they begin: it is asked for first. Of all others only
    /// what is first is looked at.
    fn fitted(&self, shape: &Arrangement, start: u64) -> Option<(Fit, u64)> {
        if !(shape.level == Level::Raid10 && shape.layout == FAR_2) {
            return Some((self.sized(shape, &self.few, start, ROOMY_SECTORS)?, ROOMY_SECTORS));
        }
        let chunk = u64::from(shape.chunk_sectors);
        let found = self.sized(shape, &self.few, start, self.smallest)?;
        let offsets = found.seats.iter().flatten().map(|seat| seat.1);
        // What was taken for first copies may have been the others, so many chunks after them as fit between them and the end.
        let offsets = offsets.flat_map(|offset| {
            let rows = self.smallest.saturating_sub(offset) / chunk;
            [0, rows, rows.saturating_sub(1)].map(|rows| offset.saturating_sub(rows * chunk))
        });
        let offsets = offsets.chain(USUAL_OFFSETS).collect::<BTreeSet<u64>>().into_iter();
        let sizes = offsets.filter_map(|offset| self.smallest.checked_sub(offset));
        let fits = sizes
            .filter_map(|sectors| Some((self.sized(shape, &self.few, start, sectors)?, sectors)));
        // Where it is right the copies vote for the same.
        fits.max_by_key(|(fit, _)| (fit.votes, fit.strength))
    }

    /// The second vote. Where votes are few, many guesses tie; what a walk meets tells them apart at once.
    fn looked_at_again(&self, first: &Candidate) -> Option<(usize, Guess)> {
        let fit = self.sized(&first.shape, &self.many, first.start.sector, first.sectors)?;
        let as_voted = self.walked(&fit.seats, first);
        // Whose slot is contested may have another: the walk says.
        let mut cautious = fit.seats.clone();
        fit.contested.iter().for_each(|member| cautious[*member] = None);
        let is_contested = cautious != fit.seats;
        let cautious = is_contested.then(|| self.walked(&cautious, first)).flatten();
        let (met, guess) =
            as_voted.into_iter().chain(cautious).rev().max_by_key(|(met, _)| *met)?;
        Some((fit.strength / ALIKE + met, guess))
    }

    /// How much a walk through these seats meets, and the guess, in which it may have seated others.
    fn walked(&self, seats: &[Option<(u16, u64)>], first: &Candidate) -> Option<(usize, Guess)> {
        let guess = seated(seats, &first.shape, first.start, self.members);
        let geometry = guess.geometry()?;
        let (guess, walk) =
            evidence::seat_by_walk(&guess, &geometry, self.scan, self.members, first.start);
        Some((walk.confirmed.saturating_sub(walk.refuted), guess))
    }

    /// Keeps the best: of every level and layout some, and all that are nearly as good as the best of all, up to `max`. Of those that
    /// tie the ones in which every member has a slot come first.
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
