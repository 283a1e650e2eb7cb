//! How far a reshape in place got: before the boundary one reading of the array is right, after the
//! boundary the other reading.
//!
//! ```text
//!   first (right up to the boundary)    . . + . + . . + . + | x   x     x
//!   second (right from there on)          x     x   x       | . + . + . . + .
//!                                                     between
//!
//!   +  a structure is at its place, and not in the other reading
//!   x  such a structure on the wrong side of this boundary
//! ```
//!
//! Both readings are devices of the whole array. Where the two give the same bytes, the boundary
//! does not matter. Elsewhere the content shows the boundary: structures that hold their own
//! address, and places that file systems describe. Each such sector is a vote for one reading. The
//! boundary has the fewest votes on its wrong side. Single votes may be wrong, so boundaries that
//! are nearly as good count too, and the answer is a range.
//!
//! The array is scanned as `scan` scans members, then more closely around the boundary, until a
//! closer scan finds no new range.
//!
//! Invariant: the boundary is in the returned range
//! `[check: where_a_move_in_place_got_to_is_found]`.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Platter;
use crate::bytes::{SECTOR, is_blank, small};
use crate::cache::CachedPlatter;
use crate::place_index::Fact;
use crate::scan::{Effort, Scan, scan};
use crate::sign::ALIKE;

/// The most scans, each closer than the one before.
const LOOKS_MAX: usize = 4;
const FACTS_MAX: usize = 4096;
/// The least weight of all votes together, in weak votes, for an answer.
const WEIGHT_MIN: usize = 8 * ALIKE;
/// A boundary counts as nearly as good as the best if it has at most this much more weight on the
/// wrong side.
const DOUBT: usize = 3;
/// At most one part in this many of the weight may be on the wrong side.
const WRONG_PART: usize = 50;

/// The range of sectors in which the boundary is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// The array sectors that contain the boundary. Before these sectors the first reading is
    /// right, after them the second.
    pub between: Range<u64>,
    /// The most likely boundary: the middle of the stretch with the fewest votes on its wrong side.
    pub likely: u64,
    /// The number of places whose content is right in only one of the readings.
    pub places: usize,
    /// Sectors outside of `between` that hold their own address, but as it is in the other side's
    /// reading.
    pub apart: Vec<u64>,
}

/// A sector whose content is right in only one of the two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BoundaryVote {
    sector: u64,
    is_first: bool,
    weight: usize,
}

/// Finds the sector in `within` where the right reading changes: `first` is right before this
/// sector, `second` from it on. `None` if the content does not show the sector.
#[must_use]
pub fn boundary(
    (first, second): (&dyn Platter, &dyn Platter),
    within: Range<u64>,
    effort: &Effort,
) -> Option<Boundary> {
    let cached = [CachedPlatter::of(first), CachedPlatter::of(second)];
    let (mut found, mut closer) = (None, vec![within.clone()]);
    while closer.len() <= LOOKS_MAX {
        let scan = scan(&[first, second], |it| effort.closer(it.sectors(), &closer));
        // A closer scan includes the earlier scans. If its votes contradict each other, the earlier
        // scans only missed the contradiction.
        let next = split(&votes(&scan, &cached, &within), &within)?;
        let is_new = !closer.contains(&next.between);
        closer.push(next.between.clone());
        found = Some(next);
        if !is_new {
            break;
        }
    }
    found
}

/// The votes for each of the readings, in order of sectors.
fn votes(scan: &Scan, readings: &[CachedPlatter<'_>; 2], within: &Range<u64>) -> Vec<BoundaryVote> {
    let mut votes = Vec::new();
    let differ = |sector: u64, length: usize| {
        let first = read(&readings[0], sector, length)?;
        let second = read(&readings[1], sector, length)?;
        (first != second).then_some((first, second))
    };
    for (volume, start) in starts(scan) {
        for sign in scan.signs.iter().filter(|sign| sign.volume == volume) {
            let stands_there = sign
                .addresses
                .iter()
                .any(|address| start.checked_add(address) == Some(sign.sector));
            let is_asked = stands_there && within.contains(&sign.sector);
            if is_asked && differ(sign.sector, SECTOR).is_some() {
                let (is_first, weight) = (sign.member == 0, sign.addresses.strength());
                votes.push(BoundaryVote { sector: sign.sector, is_first, weight });
            }
        }
        let metadata = &scan.metadata[volume];
        let stands = |fact: &Fact| {
            let sector = start.checked_add(fact.byte / SECTOR as u64)?;
            let skipped = small(fact.byte % SECTOR as u64);
            let whole = (skipped + fact.length).next_multiple_of(SECTOR);
            let end = sector.checked_add((whole / SECTOR) as u64)?;
            if sector < within.start || end > within.end {
                return None;
            }
            let (first, second) = differ(sector, whole)?;
            // Many places are blank, and an outdated checksum of a blank page fits all.
            let holds = |bytes: Vec<u8>| {
                let bytes = &bytes[skipped..skipped + fact.length];
                fact.holds(metadata, bytes) && !is_blank(bytes)
            };
            let (first, second) = (holds(first), holds(second));
            let vote = BoundaryVote { sector, is_first: first, weight: fact.strength(metadata) };
            (first != second).then_some(vote)
        };
        votes.extend(scan.places[volume].facts(FACTS_MAX).filter_map(stands));
    }
    votes.sort_unstable();
    // A sector that votes twice for one reading (by its address and by a prediction) counts once. A
    // sector with votes for both readings does not count: parity was taken for data in this sector.
    votes.dedup_by_key(|vote| (vote.sector, vote.is_first));
    votes
        .chunk_by(|one, other| one.sector == other.sector)
        .filter_map(|here| if let [vote] = here { Some(*vote) } else { None })
        .collect()
}

/// The volumes and the array sectors where they begin: for each volume, the sector that most of its
/// addresses imply.
fn starts(scan: &Scan) -> Vec<(usize, u64)> {
    let mut counts: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    for sign in &scan.signs {
        for start in sign.addresses.iter().filter_map(|address| sign.sector.checked_sub(address)) {
            *counts.entry((sign.volume, start)).or_default() += sign.addresses.strength();
        }
    }
    let mut best: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    for ((volume, start), count) in counts {
        let known = best.entry(volume).or_insert((count, start));
        if count > known.0 {
            *known = (count, start);
        }
    }
    best.into_iter().map(|(volume, (_, start))| (volume, start)).collect()
}

fn read(reading: &CachedPlatter<'_>, sector: u64, length: usize) -> Option<Vec<u8>> {
    let end = sector.checked_add((length / SECTOR) as u64)?;
    let mut bytes = vec![0; length];
    (end <= reading.sectors() && reading.read(sector, &mut bytes)).then_some(bytes)
}

/// The range that contains the boundary, by `votes` in order of sectors.
fn split(votes: &[BoundaryVote], within: &Range<u64>) -> Option<Boundary> {
    let all: usize = votes.iter().map(|vote| vote.weight).sum();
    let weight = |vote: &BoundaryVote, is_first: bool| {
        if vote.is_first == is_first { vote.weight } else { 0 }
    };
    // For each vote, the weight on the wrong side of a boundary right before this vote; then the
    // weight for a boundary after the last vote.
    let mut wrong: Vec<usize> = vec![votes.iter().map(|vote| weight(vote, true)).sum()];
    for vote in votes {
        let before = wrong.last().copied().unwrap_or_default();
        wrong.push(before + weight(vote, false) - weight(vote, true));
    }
    let least = wrong.iter().min().copied()?;
    if all < WEIGHT_MIN || least * WRONG_PART > all {
        return None;
    }
    let range = |worst: usize| {
        let mut possible = (0..wrong.len()).filter(|at| wrong[*at] <= worst);
        let first = possible.next()?;
        let last = possible.next_back().unwrap_or(first);
        let start = first.checked_sub(1).map_or(within.start, |at| votes[at].sector);
        let end = votes.get(last).map_or(within.end, |vote| vote.sector);
        Some(start..end.max(start))
    };
    let (between, best) = (range(least + DOUBT)?, range(least)?);
    let likely = best.start + (best.end - best.start) / 2;
    let is_apart = |vote: &&BoundaryVote| {
        let is_wrong = match vote.is_first {
            true => vote.sector >= between.end,
            false => vote.sector <= between.start,
        };
        vote.weight >= ALIKE && is_wrong
    };
    let apart = votes.iter().filter(is_apart).map(|vote| vote.sector).collect();
    Some(Boundary { between, likely, places: votes.len(), apart })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes_of(words: &str) -> Vec<BoundaryVote> {
        let of = |(at, letter): (usize, char)| match letter {
            'F' | 'f' => Some((at, true, letter == 'F')),
            'S' | 's' => Some((at, false, letter == 'S')),
            _ => None,
        };
        let votes = words.chars().enumerate().filter_map(of);
        votes
            .map(|(at, is_first, is_named)| BoundaryVote {
                sector: at as u64 * 10,
                is_first,
                weight: if is_named { ALIKE } else { 1 },
            })
            .collect()
    }

    fn between(words: &str) -> Option<Range<u64>> {
        split(&votes_of(words), &(0..words.len() as u64 * 10)).map(|found| found.between)
    }

    #[test]
    fn a_boundary_is_between_votes_of_the_two_readings() {
        assert_eq!(between(".F.F.F.F.F....S.S.S.S"), Some(90..140));
        assert_eq!(between("F.F.F.F.F.F.F.F.F...."), Some(160..210));
        assert_eq!(between("....S.S.S.S.S.S.S.S.S"), Some(0..40));
    }

    #[test]
    fn it_is_most_likely_where_no_vote_is_wrong() {
        let words = "F.F.F.F.Fff...s.S.S.S.S";
        let found = split(&votes_of(words), &(0..230)).expect("enough votes");
        assert_eq!((found.between, found.likely), (80..160, 120));
    }

    #[test]
    fn weak_votes_beside_it_leave_it_open() {
        assert_eq!(between("F.F.F.F.Fff...s.S.S.S.S"), Some(80..160));
        assert_eq!(between("F.F.F.F.F.ffff.ssss.S.S.S"), Some(100..180));
    }

    #[test]
    fn a_vote_alone_on_the_wrong_side_is_borne_and_many_are_not() {
        assert_eq!(between("F.F.F.s.F.F.F...S.S.S.S.S"), Some(120..160));
        assert_eq!(between("F.F.F.S.F.S.F...S.F.S.F.S"), None);
    }

    #[test]
    fn places_in_the_other_reading_are_named() {
        let words = format!("F.S.{}....{}f.S.", "F.".repeat(40), "S.".repeat(40));
        let found = split(&votes_of(&words), &(0..2000)).expect("one of many is wrong");
        assert_eq!((found.between, found.apart), (820..880, vec![20]));
    }

    #[test]
    fn a_few_votes_say_nothing() {
        assert_eq!(between("F.F.F...S.S.S"), None);
        assert_eq!(between(""), None);
    }
}
