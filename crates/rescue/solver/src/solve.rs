//! From members to ranked guesses, with a verdict whether the first is to be believed.
//!
//! ```text
//!   certain    it explains most addresses, what it predicts is there,
//!              redundancy agrees where it can be compared,
//!              every member that it places has signs there,
//!              and no guess that reads differently explains nearly as many
//!   likely     the best there is
//! ```

use std::collections::BTreeMap;

use braid_geometry::{Family, Level};

use crate::Platter;
use crate::cache::CachedPlatter;
use crate::counts::Evidence;
use crate::evidence;
use crate::guess::Guess;
use crate::judge::{judge, starts_of, worth};
use crate::linear::linear;
use crate::rounds::Rounds;
use crate::scan::{Effort, Scan, scan};
use crate::sign::{Sign, Volume};
use crate::slots::{assign_the_rest, measure, most_common};

/// The most volumes from which guesses are made; volumes with the most signs are taken.
const MAIN_MAX: usize = 3;
/// The most guesses in the solver's answer.
const ANSWERS_MAX: usize = 8;
/// The fewest addresses that a certain guess explains.
const CERTAIN_MIN: usize = 8;
/// The fewest predictions that a certain guess confirms if no redundancy agrees.
const CONFIRMED_MIN: usize = 12;
/// The number of places at which two guesses are compared.
const HELD_AGAINST: u64 = 1024;
/// The most guesses in which slots are exchanged.
const EXCHANGED_MAX: usize = 24;
/// The most guesses of each layout in which slots are exchanged.
const EXCHANGED_EACH: usize = 2;

/// How far the operator may believe a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belief {
    /// The first guess, if there is one, is the best, but not certain.
    Likely,
    /// No other guess comes near, and all evidence agrees.
    Certain,
}

/// The solver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// Whether the first guess is certain.
    pub belief: Belief,
    /// Guesses that read differently, the best first. Empty if the members hold no address.
    pub guesses: Vec<Guess>,
    /// The volumes recognised on the array.
    pub volumes: Vec<Volume>,
    /// The number of signs that were found.
    pub signs: usize,
    /// Sectors that could not be read.
    pub unreadable_sectors: u64,
}

/// Finds how `members`, in any order, were put together.
#[must_use]
pub fn solve(members: &[&dyn Platter], effort: &Effort) -> Solution {
    let scan = scan(members, |member| effort.regions(member.sectors()));
    let cached: Vec<CachedPlatter<'_>> =
        members.iter().map(|member| CachedPlatter::of(*member)).collect();
    let cached: Vec<&dyn Platter> = cached.iter().map(|it| it as &dyn Platter).collect();
    let members = cached.as_slice();
    let mut guesses = Vec::new();
    for volume in main_volumes(&scan) {
        guesses.extend(guesses_of(volume, &scan, members));
    }
    let mut ranked = rank(guesses, members);
    let belief = belief(&ranked, members.len());
    ranked.truncate(ANSWERS_MAX);
    Solution {
        belief,
        guesses: ranked,
        signs: scan.signs.len(),
        unreadable_sectors: scan.unreadable,
        volumes: scan.volumes,
    }
}

/// The volumes with the most evidence, in falling order.
pub(crate) fn main_volumes(scan: &Scan) -> Vec<usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for sign in &scan.signs {
        *counts.entry(sign.volume).or_default() += 1;
    }
    let mut volumes: Vec<(usize, usize)> =
        counts.into_iter().map(|(volume, count)| (count, volume)).collect();
    volumes.sort_by_key(|(count, volume)| (std::cmp::Reverse(*count), *volume));
    volumes.into_iter().map(|(_, volume)| volume).take(MAIN_MAX).collect()
}

/// Guesses from the signs of one volume, with all their evidence.
fn guesses_of(volume: usize, scan: &Scan, members: &[&dyn Platter]) -> Vec<Guess> {
    let signs: Vec<&Sign> = scan.signs.iter().filter(|sign| sign.volume == volume).collect();
    let starts = starts_of(&scan.volumes[volume], scan);
    let best = Rounds::of(volume, &signs, scan, members).best(&starts);
    let close = best.into_iter().filter_map(|guess| look_closely(guess, scan, members));
    let mut close: Vec<Guess> = close.collect();
    close.sort_by_key(|guess| std::cmp::Reverse(worth(guess, members)));
    close.dedup();
    let mut counts: BTreeMap<(Level, u32, u64), usize> = BTreeMap::new();
    let mut better = Vec::new();
    for guess in &close {
        let count = counts.entry((guess.level, guess.layout, guess.starts[0].sector)).or_default();
        let is_suspect = guess.evidence.refuted > 0 || guess.evidence.disagrees();
        if is_suspect && *count < EXCHANGED_EACH && better.len() < EXCHANGED_MAX {
            *count += 1;
            better.push(exchanged(guess.clone(), scan, members));
        }
    }
    close.extend(better);
    close.retain(is_readable);
    close.extend(linear(volume, &signs, &starts, scan, members));
    close
}

/// The guess, with the remaining members assigned and all evidence collected.
fn look_closely(mut guess: Guess, scan: &Scan, members: &[&dyn Platter]) -> Option<Guess> {
    measure(&mut guess, members);
    assign_the_rest(&mut guess, members);
    without_idle_q(&mut guess);
    judge(&mut guess, scan, members)?;
    Some(guess)
}

/// Whether the array can be read without its empty slots. A guess that cannot be read is useless.
fn is_readable(guess: &Guess) -> bool {
    let survives =
        |map: braid_geometry::Geometry| map.survives(&|slot| guess.slots[slot.index()].is_none());
    guess.geometry().is_some_and(survives)
}

/// RAID-6 whose Q has a fixed, empty slot reads as RAID-5 without that slot. RAID-5 is the plainer
/// name.
fn without_idle_q(guess: &mut Guess) {
    let last = guess.slots.len() - 1;
    let (slot, layout) = match (guess.level, guess.layout) {
        (Level::Raid6, layout @ 16..=20) => (last, layout - 16),
        (Level::Raid6, layout @ 4) => (1, layout),
        (Level::Raid6, layout @ 5) => (last, layout),
        _ => return,
    };
    if guess.slots[slot].is_none() {
        guess.slots.remove(slot);
        guess.offsets.remove(slot);
        guess.data_sectors.remove(slot);
        (guess.level, guess.layout) = (Level::Raid5, layout);
    }
}

/// The guess with the member of this slot as Q instead. Q looks like data where the row's other
/// members are zero.
fn as_q(guess: &Guess, slot: usize, offset: u64) -> Option<Guess> {
    guess.slots[slot]?;
    let (layout, q) = match (guess.level, guess.layout) {
        (Level::Raid5, layout @ 0..=3) => (layout + 16, guess.slots.len()),
        (Level::Raid5, layout @ 4) => (layout, 1),
        (Level::Raid5 | Level::Raid4, _) => (5, guess.slots.len()),
        _ => return None,
    };
    let mut tried = guess.clone();
    (tried.level, tried.layout) = (Level::Raid6, layout);
    let member = tried.slots[slot].take();
    tried.slots.insert(q, member);
    tried.offsets.insert(q, offset);
    tried.data_sectors.insert(q, 0);
    Some(tried)
}

/// Exchanges pairs of slots as long as each exchange improves the guess. Votes can name a wrong
/// slot: a copy votes for another copy's slot, and parity for the slot of the only member in the
/// row that is not zero.
fn exchanged(mut guess: Guess, scan: &Scan, members: &[&dyn Platter]) -> Guess {
    let worth_of = |guess: &Guess| {
        let geometry = guess.geometry()?;
        let found = evidence::explain(guess, &geometry, scan);
        let (it, _) = evidence::predict(guess, &geometry, scan, members);
        let (agreeing, compared) = match guess.level.family() {
            Family::Mirror => evidence::compare(guess, &geometry, members),
            _ => (0, 0),
        };
        let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let sum = Evidence { confirmed: it.confirmed, refuted: it.refuted, ..found }.sum();
        Some(sum + of(agreeing) - of(compared))
    };
    let Some(mut best) = worth_of(&guess) else { return guess };
    let before = best;
    for _ in 0..guess.slots.len() {
        let pairs = (0..guess.slots.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        let pairs = pairs.filter(|(one, other)| guess.slots[*one] != guess.slots[*other]);
        let assigned = guess.slots.iter().zip(&guess.offsets).filter(|(slot, _)| slot.is_some());
        let common = most_common(assigned.map(|(_, offset)| *offset));
        let is_uneven = guess.offsets.iter().any(|offset| *offset != common);
        // A member in a wrong slot may have a wrong offset as well.
        let tried = pairs.flat_map(|(one, other)| {
            let mut tried = guess.clone();
            tried.slots.swap(one, other);
            tried.offsets.swap(one, other);
            let mut even = tried.clone();
            (even.offsets[one], even.offsets[other]) = (common, common);
            std::iter::once(tried).chain(is_uneven.then_some(even))
        });
        let as_q = (0..guess.slots.len()).filter_map(|slot| as_q(&guess, slot, common));
        let tried = tried.chain(as_q).filter_map(|mut tried| {
            measure(&mut tried, members);
            Some((worth_of(&tried)?, tried))
        });
        match tried.max_by_key(|(worth, _)| *worth).filter(|(worth, _)| *worth > best) {
            Some((worth, better)) => (best, guess) = (worth, better),
            None => break,
        }
    }
    if best > before {
        measure(&mut guess, members);
        assign_the_rest(&mut guess, members);
        without_idle_q(&mut guess);
        judge(&mut guess, scan, members);
    }
    guess
}

/// Sorts guesses, the best first. Of guesses that read the same, only the plainest guess stays.
fn rank(mut guesses: Vec<Guess>, members: &[&dyn Platter]) -> Vec<Guess> {
    guesses.sort_by_key(|guess| std::cmp::Reverse(worth(guess, members)));
    let mut kept: Vec<Guess> = Vec::new();
    for guess in guesses {
        if kept.len() < 2 * ANSWERS_MAX && !kept.iter().any(|known| reads_alike(known, &guess)) {
            kept.push(guess);
        }
    }
    kept
}

/// Whether two guesses give the same bytes for the volume that they were made from.
pub(crate) fn reads_alike(one: &Guess, other: &Guess) -> bool {
    let both =
        one.starts.iter().find_map(|start| Some((start.sector, other.start_of(start.volume)?)));
    let (Some(map), Some(other_map)) = (one.geometry(), other.geometry()) else { return false };
    let Some((first, second)) = both else { return false };
    let room =
        |map: &braid_geometry::Geometry, start: u64| map.capacity_sectors().saturating_sub(start);
    let sectors = room(&map, first).min(room(&other_map, second));
    let step = (sectors / HELD_AGAINST).max(8) | 8;
    // Every page near the start is compared, so that the smallest chunk shows; then sample pages
    // from the whole array.
    let near = (0..HELD_AGAINST).map(|at| at * 8);
    let all = (0..HELD_AGAINST).map(|at| at * step);
    near.chain(all)
        .take_while(|at| *at < sectors || *at < HELD_AGAINST * 8)
        .filter(|at| *at < sectors)
        .all(|at| {
            let (here, there) =
                (one.places(&map, first + at), other.places(&other_map, second + at));
            // A sector that both guesses compute is equal if its sources are equal. If both guesses
            // have copies of the sector, one common place is enough.
            match (here.is_empty(), there.is_empty()) {
                (true, true) => {
                    evidence::made_of(one, &map, first + at)
                        == evidence::made_of(other, &other_map, second + at)
                }
                _ => here.iter().any(|place| there.contains(place)),
            }
        })
}

pub(crate) fn belief(ranked: &[Guess], members: usize) -> Belief {
    let Some(best) = ranked.first() else { return Belief::Likely };
    let it = best.evidence;
    let next = ranked.iter().skip(1).map(|next| next.evidence.sum()).max().unwrap_or(0).max(0);
    let own = it.sum();
    let margin = (own / 20).max(3);
    // A member with signs and without a slot does not belong to the array, or the shape is wrong. A
    // member without signs may rightly have no slot.
    let assigned = best.slots.iter().flatten().count();
    let have_spoken = it.agrees() || !it.is_unheard;
    // Members of one array nearly always have one data offset. If a single member has another
    // offset, this offset may be off by a chunk. Only redundancy can show which offset is right.
    let mut offsets = best.slots.iter().zip(&best.offsets).filter(|(slot, _)| slot.is_some());
    let first = offsets.next().map(|(_, offset)| *offset);
    let is_even = offsets.all(|(_, offset)| Some(*offset) == first);
    let is_certain = it.explained >= CERTAIN_MIN
        && (is_even || it.agrees())
        && it.explained * 10 >= it.addresses * 7
        && it.refuted * 4 <= it.confirmed
        && (it.agrees() || it.confirmed >= CONFIRMED_MIN)
        && !it.disagrees()
        && !it.is_shadowed
        && !it.is_doubted
        && !it.is_cut
        && assigned == members
        && have_spoken
        && own >= next + margin;
    if is_certain { Belief::Certain } else { Belief::Likely }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raid6_without_its_q_reads_as_the_raid5_that_it_is_called() {
        for (layout, q) in [(4, 1), (5, 5), (16, 5), (17, 5), (18, 5), (19, 5), (20, 5)] {
            let mut slots: Vec<Option<usize>> = (0..6).map(Some).collect();
            slots[q] = None;
            let six = Guess {
                level: Level::Raid6,
                layout,
                chunk_sectors: 8,
                slots,
                offsets: vec![2048; 6],
                data_sectors: vec![4096; 6],
                starts: Vec::new(),
                evidence: Evidence::default(),
            };
            let mut five = six.clone();
            without_idle_q(&mut five);
            assert_eq!((five.level, five.slots.len(), five.missing()), (Level::Raid5, 5, 0));
            let (before, after) = (six.geometry().expect("a map"), five.geometry().expect("a map"));
            assert_eq!(before.capacity_sectors(), after.capacity_sectors());
            for sector in 0..before.capacity_sectors() {
                assert_eq!(six.places(&before, sector), five.places(&after, sector), "{layout}");
                assert_eq!(six.parity_place(&before, sector), five.parity_place(&after, sector));
            }
        }
    }
}
