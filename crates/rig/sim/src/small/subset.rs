//! Which of the writes in doubt survive an end (power cut or kill): every possibility has a number.
//!
//! ```text
//!   with n writes in doubt on the present disks (those of lost disks do not matter):
//!     n ≤ 12   every subset: 2^n
//!     n > 12   cut down: at most two survive, or at most two are missing
//!   torn       one write of several sectors at a time: every beginning, every end, every single
//!              sector alone or missing; with it every subset of the others if they are at most 5,
//!              else none, all, the earlier ones, or the later ones
//!   killed     only the process ends: unflushed writes survive; of up to 4 in flight every subset,
//!              of more those of the first 4, or all
//! ```

/// Of up to this many writes in doubt every subset is tried, which is 4096 subsets.
const ITEMS_MAX: usize = 12;
/// Together with a torn write, every subset of up to this many other writes is tried.
const OTHERS_MAX: usize = 5;

/// If only the process ends, every subset of up to this many writes in flight is tried.
const UNDER_WAY_MAX: usize = 4;

/// A set of surviving writes (or sectors): a bit for each, by position.
pub(super) type Mask = u128;

/// The writes that survive an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) writes: Mask,
    /// The position of the torn write, and its surviving sectors.
    pub(super) torn: Option<(usize, Mask)>,
    /// Only the process ended; disks kept power.
    pub(super) is_kill: bool,
}

/// All possible remains of some writes in doubt.
#[derive(Clone, Debug)]
pub(super) struct Subsets {
    /// The length of each write in sectors.
    lengths: Vec<u64>,
    /// So many of the first writes have reached the disks, and survive as long as disks keep power.
    unflushed: u64,
    whole: u64,
    cuts: u64,
    total: u64,
}

impl Subsets {
    pub(super) fn new(lengths: Vec<u64>, unflushed: usize) -> Self {
        assert!(lengths.len() < 128, "a small world has few writes under way");
        let n = lengths.len() as u64;
        let is_cut_down = lengths.len() > ITEMS_MAX;
        let whole = if is_cut_down { 2 * few(n) } else { 1 << n };
        let torn: u64 = lengths.iter().map(|sectors| tears(*sectors)).sum();
        let others = if n == 0 { 0 } else { others(n - 1) };
        let cuts = whole + torn * others;
        let unflushed = unflushed as u64;
        let total = cuts + kills(n - unflushed);
        Self { lengths, unflushed, whole, cuts, total }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn is_cut_down(&self) -> bool {
        self.lengths.len() > ITEMS_MAX
    }

    /// The remains with this number, which is below [`Self::total`].
    pub(super) fn nth(&self, number: u64) -> Remains {
        let n = self.lengths.len() as u64;
        if number < self.whole {
            let writes = if self.is_cut_down() { cut_down(n, number) } else { Mask::from(number) };
            return Remains { writes, torn: None, is_kill: false };
        }
        if number >= self.cuts {
            return self.kill(number - self.cuts);
        }
        let others = others(n - 1);
        let (mut tear, other) = ((number - self.whole) / others, (number - self.whole) % others);
        for (index, sectors) in self.lengths.iter().enumerate() {
            if tear < tears(*sectors) {
                let writes = beside(index as u64, n, other);
                let torn = Some((index, tear_mask(*sectors, tear)));
                return Remains { writes, torn, is_kill: false };
            }
            tear -= tears(*sectors);
        }
        unreachable!("the number is below the total")
    }

    /// The remains with this number if only the process ends: all unflushed writes, and some of
    /// those in flight.
    fn kill(&self, number: u64) -> Remains {
        let under_way = self.lengths.len() as u64 - self.unflushed;
        let is_all = number + 1 == kills(under_way);
        let some = if is_all { (1 << under_way) - 1 } else { Mask::from(number) };
        let writes = ((1 << self.unflushed) - 1) | some << self.unflushed;
        Remains { writes, torn: None, is_kill: true }
    }
}

/// How many subsets of `n` writes in flight are tried if only the process ends: all, or those of
/// the first few writes and the full set.
fn kills(n: u64) -> u64 {
    if n as usize <= UNDER_WAY_MAX { 1 << n } else { (1 << UNDER_WAY_MAX) + 1 }
}

/// How many subsets of `n` elements have at most two elements.
fn few(n: u64) -> u64 {
    1 + n + n * n.saturating_sub(1) / 2
}

/// The subset with this number, if not all are tried: at most two writes survive, or at most two
/// are missing.
fn cut_down(n: u64, number: u64) -> Mask {
    let mut rest = number % few(n);
    let mut some: Mask = 0;
    if rest > n {
        rest -= n + 1;
        let mut first = 0;
        while rest >= n - 1 - first {
            rest -= n - 1 - first;
            first += 1;
        }
        some = 1 << first | 1 << (first + 1 + rest);
    } else if rest > 0 {
        some = 1 << (rest - 1);
    }
    if number < few(n) { some } else { !some & ((1 << n) - 1) }
}

/// How many subsets of `n` other writes are tried together with a torn write.
fn others(n: u64) -> u64 {
    if n as usize <= OTHERS_MAX { 1 << n } else { 4 }
}

/// The torn write at `index`, and the subset `number` of the other writes.
fn beside(index: u64, n: u64, number: u64) -> Mask {
    let (below, all): (Mask, Mask) = ((1 << index) - 1, (1 << n) - 1);
    let selected = if n as usize - 1 <= OTHERS_MAX {
        let number = Mask::from(number);
        number & below | (number & !below) << 1
    } else {
        [0, all, below, all & !below][number as usize]
    };
    selected | 1 << index
}

/// In how many ways a write of so many sectors tears.
fn tears(sectors: u64) -> u64 {
    match sectors {
        0 | 1 => 0,
        2 => 2,
        _ => 2 * (sectors - 1) + 2 * (sectors - 2),
    }
}

/// The sectors that survive in the tear with this number.
fn tear_mask(sectors: u64, number: u64) -> Mask {
    let all: Mask = (1 << sectors) - 1;
    let (ends, middles) = (sectors - 1, sectors.saturating_sub(2));
    let beginning = |length: u64| -> Mask { (1 << length) - 1 };
    if number < ends {
        beginning(number + 1)
    } else if number < 2 * ends {
        all & !beginning(number - ends + 1)
    } else if number < 2 * ends + middles {
        1 << (number - 2 * ends + 1)
    } else {
        all & !(1 << (number - 2 * ends - middles + 1))
    }
}

/// At most about `most` of the numbers below `total`, evenly spread. Over all values of `offset`,
/// every number is chosen.
pub(super) fn spread(total: u64, most: u64, offset: u64) -> impl Iterator<Item = u64> {
    let stride = total.div_ceil(most.max(1)).max(1);
    (offset % stride..total).step_by(stride as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all(subsets: &Subsets) -> Vec<Remains> {
        (0..subsets.total()).map(|number| subsets.nth(number)).collect()
    }

    #[test]
    fn every_subset_comes_once_and_every_tear_beside_every_other() {
        let subsets = Subsets::new(vec![1, 4, 2], 3);
        let remains: Vec<Remains> =
            all(&subsets).into_iter().filter(|remains| !remains.is_kill).collect();
        assert_eq!(remains.len(), 8 + (10 + 2) * 4);
        let distinct: BTreeSet<_> =
            remains.iter().map(|remains| (remains.writes, remains.torn)).collect();
        assert_eq!(distinct.len(), remains.len());
        let torn: BTreeSet<Mask> = remains
            .iter()
            .filter_map(|remains| remains.torn)
            .filter(|one| one.0 == 1)
            .map(|t| t.1)
            .collect();
        let expected = [1, 3, 7, 14, 12, 8, 2, 4, 13, 11];
        assert_eq!(torn, BTreeSet::from(expected));
        assert!(
            remains
                .iter()
                .all(|remains| remains.torn.is_none_or(|one| remains.writes >> one.0 & 1 == 1))
        );
    }

    /// Five writes, two of which have reached the disks.
    #[test]
    fn the_end_of_the_process_keeps_what_disks_have() {
        let kills = |lengths: Vec<u64>, unflushed| -> BTreeSet<Mask> {
            let remains = all(&Subsets::new(lengths, unflushed));
            remains.iter().filter(|remains| remains.is_kill).map(|remains| remains.writes).collect()
        };
        let expected = (0..8).map(|under_way| 3 | under_way << 2);
        assert_eq!(kills(vec![1; 5], 2), expected.collect());
        assert_eq!(kills(vec![1; 2], 2), BTreeSet::from([3]));
        let many = kills(vec![1; 8], 1);
        assert!(many.len() == 17 && many.contains(&0xFF) && many.contains(&0x1F));
    }

    #[test]
    fn too_many_writes_are_cut_down_to_few_there_or_few_missing() {
        let subsets = Subsets::new(vec![1; 14], 14);
        assert!(subsets.is_cut_down());
        let cuts = all(&subsets).into_iter().filter(|remains| !remains.is_kill);
        let distinct: BTreeSet<Mask> = cuts.map(|remains| remains.writes).collect();
        assert_eq!(distinct.len(), 2 * (1 + 14 + 91));
        assert!(distinct.iter().all(|mask| !(3..=11).contains(&mask.count_ones())));
        assert!(!Subsets::new(vec![1; 12], 0).is_cut_down());
    }

    #[test]
    fn slices_together_are_the_whole() {
        let mut numbers: Vec<u64> = (0..10).flat_map(|offset| spread(95, 10, offset)).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..95).collect::<Vec<_>>());
        assert_eq!(spread(5, u64::MAX, 3).count(), 5);
    }
}
