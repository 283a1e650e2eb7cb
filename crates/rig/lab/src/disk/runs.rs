//! A set of sectors as runs. Runs that touch are joined.

use std::collections::BTreeMap;

/// Runs that do not touch each other: first sector, and the sector after the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<u64, u64>,
    sectors: u64,
}

impl Runs {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether the set contains every sector of the run.
    pub(super) fn holds(&self, from: u64, to: u64) -> bool {
        self.runs.range(..=from).next_back().is_some_and(|(_, end)| *end >= to)
    }

    /// The start of the first run at or after a sector. If there is none, the start of the lowest
    /// run.
    pub(super) fn next_up(&self, from: u64) -> Option<u64> {
        let next = self.runs.range(from..).next().or_else(|| self.runs.iter().next());
        next.map(|(sector, _)| *sector)
    }

    pub(super) fn add(&mut self, mut from: u64, mut to: u64) {
        let before = self.runs.range(..=from).next_back().map(|(start, end)| (*start, *end));
        if let Some((start, end)) = before.filter(|(_, end)| *end >= from) {
            self.take(start, end);
            (from, to) = (start, to.max(end));
        }
        while let Some((start, end)) = self.runs.range(from..=to).next().map(|(s, e)| (*s, *e)) {
            self.take(start, end);
            to = to.max(end);
        }
        self.put(from, to);
    }

    /// Removes a run from the set; returns how many of its sectors the set had.
    pub(super) fn remove(&mut self, from: u64, to: u64) -> u64 {
        let before = self.sectors;
        let overlaps = |(start, end): (&u64, &u64)| (*end > from).then_some((*start, *end));
        while let Some((start, end)) = self.runs.range(..to).next_back().and_then(overlaps) {
            self.take(start, end);
            if end > to {
                self.put(to, end);
            }
            if start < from {
                self.put(start, from);
            }
        }
        before - self.sectors
    }

    /// Removes up to `sectors_max` sectors of the run that begins at `from`; returns the end of the
    /// removed sectors.
    pub(super) fn take_first(&mut self, from: u64, sectors_max: u64) -> u64 {
        let end = *self.runs.get(&from).expect("a run begins there");
        let to = end.min(from + sectors_max);
        self.remove(from, to);
        to
    }

    fn put(&mut self, from: u64, to: u64) {
        self.runs.insert(from, to);
        self.sectors += to - from;
    }

    fn take(&mut self, from: u64, to: u64) {
        self.runs.remove(&from);
        self.sectors -= to - from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_set_of_runs_is_the_set_of_its_sectors() {
        let (mut random, mut runs, mut plain) = (Random::new(3), Runs::default(), [false; 64]);
        for _ in 0..5000 {
            let from = random.below(63);
            let to = from + 1 + random.below(64 - from);
            let range = usize::try_from(from).expect("few")..usize::try_from(to).expect("few");
            let is_added = random.below(2) == 0;
            let held = plain[range.clone()].iter().filter(|held| **held).count() as u64;
            assert_eq!(runs.holds(from, to), held == to - from);
            match is_added {
                true => runs.add(from, to),
                false => assert_eq!(runs.remove(from, to), held),
            }
            plain[range].fill(is_added);
            assert_eq!(runs.sectors(), plain.iter().filter(|held| **held).count() as u64);
            let ends: Vec<(u64, u64)> = runs.runs.iter().map(|(from, to)| (*from, *to)).collect();
            assert!(ends.windows(2).all(|two| two[0].1 < two[1].0), "they do not touch: {ends:?}");
        }
    }
}
