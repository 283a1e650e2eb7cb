//! Guesses from superblocks: weighed by the same evidence as guesses from the content, and ranked
//! among them.
//!
//! A slightly damaged superblock, or one that calls a former member a spare, describes most of the
//! array. The content may agree with the superblock. The content may show nothing, as when it is
//! encrypted, or may contradict the superblock, which can be of another `--create`. So guesses from
//! superblocks come first unless the content contradicts them.
//!
//! Invariant: a guess from superblocks is certain only if the content agrees with it
//! `[check: what_superblocks_tell_comes_first_unless_the_array_speaks_against_it]`.

use std::cmp::Reverse;

use crate::Platter;
use crate::cache::CachedPlatter;
use crate::evidence;
use crate::guess::{Guess, VolumeStart};
use crate::judge::{judge, starts_of, worth};
use crate::scan::{Effort, Scan, scan};
use crate::solve::{Belief, Solution, belief, main_volumes, reads_alike};

/// Adds the guesses from superblocks to a solution. The caller leaves out starts of volumes and
/// evidence in `guesses`.
#[must_use]
pub fn with_superblock_guesses(
    mut solution: Solution,
    members: &[&dyn Platter],
    effort: &Effort,
    guesses: Vec<Guess>,
) -> Solution {
    let mut weighed = weigh(members, effort, guesses).into_iter();
    let Some(best) = weighed.next() else { return solution };
    let it = best.evidence;
    let next = solution.guesses.first().map_or(0, |guess| guess.evidence.sum());
    let is_alike = solution.guesses.first().is_some_and(|guess| reads_alike(guess, &best));
    let is_spoken_against =
        it.explained * 10 < it.addresses * 7 || it.refuted * 4 > it.confirmed || it.disagrees();
    let comes_first = is_alike || !is_spoken_against || it.sum() >= next;
    let rest: Vec<Guess> = weighed.collect();
    let is_repeated = |guess: &Guess| rest.iter().chain([&best]).any(|one| reads_alike(guess, one));
    solution.guesses.retain(|guess| !is_repeated(guess));
    solution.guesses.extend(rest);
    let at = if comes_first { 0 } else { 1.min(solution.guesses.len()) };
    solution.guesses.insert(at, best);
    if comes_first {
        let is_certain = is_alike && solution.belief == Belief::Certain
            || belief(&solution.guesses, members.len()) == Belief::Certain;
        solution.belief = if is_certain { Belief::Certain } else { Belief::Likely };
    }
    solution
}

/// Collects the evidence for `guesses`, and sorts them, the best first; ties stay in their order.
#[must_use]
pub fn weigh(members: &[&dyn Platter], effort: &Effort, guesses: Vec<Guess>) -> Vec<Guess> {
    let scan = scan(members, |member| effort.regions(member.sectors()));
    let cached: Vec<CachedPlatter<'_>> =
        members.iter().map(|member| CachedPlatter::of(*member)).collect();
    let cached: Vec<&dyn Platter> = cached.iter().map(|it| it as &dyn Platter).collect();
    let members = cached.as_slice();
    let mut weighed: Vec<Guess> =
        guesses.into_iter().filter_map(|guess| weigh_one(guess, &scan, members)).collect();
    weighed.sort_by_key(|guess| Reverse(worth(guess, members)));
    weighed
}

fn weigh_one(guess: Guess, scan: &Scan, members: &[&dyn Platter]) -> Option<Guess> {
    let geometry = guess.geometry()?;
    let of_volume = |volume: usize| {
        let starts = starts_of(&scan.volumes[volume], scan).into_iter();
        let tried = starts.map(|sector| {
            let alone = Guess { starts: vec![VolumeStart { volume, sector }], ..guess.clone() };
            (evidence::explain(&alone, &geometry, scan).weight, Reverse(sector), alone)
        });
        let best = tried.max_by_key(|(weight, sector, _)| (*weight, *sector));
        best.and_then(|(.., mut found)| judge(&mut found, scan, members).map(|()| found))
    };
    let found = main_volumes(scan).into_iter().filter_map(of_volume);
    let best = found.max_by_key(|found| worth(found, members));
    Some(best.unwrap_or_else(|| {
        let (agreeing, compared) = evidence::compare(&guess, &geometry, members);
        let mut guess = guess;
        (guess.evidence.agreeing, guess.evidence.compared) = (agreeing, compared);
        guess
    }))
}

#[cfg(test)]
mod tests {
    use braid_geometry::Level;

    use super::*;
    use crate::counts::Evidence;

    const SECTORS: u64 = 4096;

    /// Bytes without signs, computed from their position and a seed.
    struct Noise(u64);

    impl Platter for Noise {
        fn sectors(&self) -> u64 {
            SECTORS
        }

        fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
            for (at, byte) in (sector * 512..).zip(bytes) {
                let mixed = (at / 8 + self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *byte = mixed.to_le_bytes()[7 - (at % 8) as usize];
            }
            true
        }
    }

    fn guess(level: Level, evidence: Evidence) -> Guess {
        Guess {
            level,
            layout: 0,
            chunk_sectors: if level == Level::Raid1 { 0 } else { 128 },
            slots: vec![Some(0), Some(1)],
            offsets: vec![0; 2],
            data_sectors: vec![SECTORS; 2],
            starts: Vec::new(),
            evidence,
        }
    }

    #[test]
    fn what_superblocks_tell_comes_first_unless_the_array_speaks_against_it() {
        let other = Evidence { explained: 20, weight: 20, addresses: 20, ..Evidence::default() };
        let solution = |guesses| Solution {
            belief: Belief::Likely,
            guesses,
            volumes: Vec::new(),
            signs: 0,
            unreadable_sectors: 0,
        };
        let levels = |members: [&dyn Platter; 2], guesses: Vec<Guess>| {
            let from_superblocks = vec![guess(Level::Raid1, Evidence::default())];
            let found = with_superblock_guesses(
                solution(guesses),
                &members,
                &Effort::default(),
                from_superblocks,
            );
            assert_eq!(found.belief, Belief::Likely, "nothing on the array agrees");
            found.guesses.iter().map(|guess| guess.level).collect::<Vec<_>>()
        };
        let (alike, differ) =
            ([&Noise(1) as &dyn Platter, &Noise(1)], [&Noise(1) as &dyn Platter, &Noise(2)]);
        assert_eq!(levels(alike, Vec::new()), [Level::Raid1]);
        let others = vec![guess(Level::Raid0, other)];
        assert_eq!(levels(alike, others.clone()), [Level::Raid1, Level::Raid0]);
        // If two copies differ, a mirror is the last guess.
        assert_eq!(levels(differ, others), [Level::Raid0, Level::Raid1]);
    }
}
