//! Decides which sectors of a stripe unit are wrong, from verdicts on its sectors: a pure rule.
//!
//! Computations bring a verdict for each sector (`braid_parity` has the algebra and its limits).
//! Background work learns here which sectors of which column, or of which copy, it may rewrite.
//!
//! # The rule for columns
//!
//! The chunks of a stripe rot together, so the rule judges the unit as a whole first. If one column
//! explains every wrong sector, that column is wrong, however weak the evidence: a single flipped
//! bit looks like that, while two columns are not wrong in the same bytes by chance. If no column
//! explains all, several columns have rotted. Then a sector counts only with proof enough of its
//! own ([`braid_parity::VALUES_ENOUGH`]); every other sector that disagrees is unknown.
//!
//! | the unit   | the sector             | the sector is          |
//! |------------|------------------------|------------------------|
//! | agrees     |                        | right                  |
//! | one column |                        | of that column         |
//! | several    | one, with proof enough | of that column         |
//! | several    | anything else          | unknown                |
//!
//! Copies are not judged as a whole unit: each sector has its own vote.
//!
//! - No sector is both unknown and located [check: a_sector_is_located_or_unknown_and_never_both].

use braid_parity::{Column, ColumnSet, Verdict, Vote};
use braid_sim_hooks::{Bug, planted, spoiled};
use smallvec::SmallVec;

use crate::sectors::SectorSet;

/// The verdict on a stripe unit's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnVerdict {
    /// Sectors that are wrong, by column.
    pub columns: SmallVec<[(Column, SectorSet); 1]>,
    /// Sectors that disagree, and whose wrong column is unknown.
    pub unknown: SectorSet,
    /// Columns that may be wrong in the unknown sectors; empty if no column is suspect.
    pub suspects: ColumnSet,
    /// Sectors that name a column, but with too little proof to be believed alone.
    weak: SmallVec<[(Column, SectorSet); 1]>,
    /// The verdict on the unit as a whole.
    whole: Whole,
}

/// The verdict on the unit as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole(Verdict);

impl Default for Whole {
    fn default() -> Self {
        Self(Verdict::Agree)
    }
}

impl ColumnVerdict {
    pub(crate) fn add(&mut self, at: u32, verdict: Verdict) {
        let set = SectorSet::run(at, 1);
        self.whole = Whole(self.whole.0.and(verdict));
        let is_enough = verdict.believed().is_some();
        match verdict {
            Verdict::Agree => {}
            Verdict::One { column, .. } if is_enough => note(&mut self.columns, column, set),
            Verdict::One { column, .. } => note(&mut self.weak, column, set),
            Verdict::Several { .. } => self.unknown = self.unknown.union(set),
        }
    }

    /// Judges the unit, once every sector has been added.
    pub(crate) fn settle(&mut self) {
        let weak = std::mem::take(&mut self.weak);
        let is_one = matches!(self.whole.0, Verdict::One { .. });
        let is_one = spoiled(Bug::WeakEvidenceBelieved, is_one, true);
        for (column, set) in weak {
            if is_one {
                note(&mut self.columns, column, set);
            } else {
                self.unknown = self.unknown.union(set);
            }
        }
        if !self.unknown.is_empty() {
            self.suspects = self.whole.0.suspects();
        }
    }
}

fn note(sets: &mut SmallVec<[(Column, SectorSet); 1]>, column: Column, set: SectorSet) {
    match sets.iter_mut().find(|(one, _)| *one == column) {
        Some((_, sectors)) => *sectors = sectors.union(set),
        None => sets.push((column, set)),
    }
}

/// The verdict on a run of sectors of several copies, which are named by their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyVerdict {
    /// Sectors that are wrong, by copy.
    pub wrong: SmallVec<[(u16, SectorSet); 1]>,
    /// Sectors where the first copy read is wrong and a later copy is right, each with the place of
    /// the right copy.
    pub right: SmallVec<[(u16, SectorSet); 1]>,
    /// Sectors on which copies differ, and none has a majority.
    pub tied: SectorSet,
}

impl CopyVerdict {
    /// Adds the vote on the sector `set`. `places` names the copies that were compared.
    pub(crate) fn add(
        &mut self,
        set: SectorSet,
        vote: Vote,
        places: &[u16],
        alike: impl Fn(usize, usize) -> bool,
    ) {
        let note = |sets: &mut SmallVec<[(u16, SectorSet); 1]>, copy: usize| match sets
            .iter_mut()
            .find(|(place, _)| *place == places[copy])
        {
            Some((_, sectors)) => *sectors = sectors.union(set),
            None => sets.push((places[copy], set)),
        };
        match vote {
            Vote::Agree => {}
            Vote::Tied => {
                self.tied = self.tied.union(set);
                if planted(Bug::VoteOfTwo) {
                    self.tied = self.tied.without(set);
                    (1..places.len()).for_each(|copy| note(&mut self.wrong, copy));
                }
            }
            Vote::Outvoted { right } => {
                let wrong = (0..places.len()).filter(|copy| !alike(right, *copy));
                wrong.for_each(|copy| note(&mut self.wrong, copy));
                if !alike(right, 0) {
                    note(&mut self.right, right);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_parity::kernel;

    use super::*;

    /// The verdict on a sector in which `columns` are wrong, by `values` different errors.
    fn verdict(columns: &[u16], values: usize) -> Verdict {
        let (mut p, mut q) = ([0_u8; 512], [0_u8; 512]);
        for column in columns {
            for at in 0..32 {
                let error =
                    u8::try_from(1 + at % values).unwrap() ^ u8::try_from(column * 16).unwrap();
                p[at] ^= error;
                kernel().multiply_into(&mut q[at..=at], &[error], *column);
            }
        }
        braid_parity::locate(kernel(), &p, &q, &ColumnSet::data(6))
    }

    #[test]
    fn a_sector_is_located_or_unknown_and_never_both() {
        let sorts: [(&[u16], usize); 6] =
            [(&[], 1), (&[2], 1), (&[2], 9), (&[4], 1), (&[4], 9), (&[2, 4], 9)];
        for number in 0..6_usize.pow(3) {
            let chosen = [number % 6, number / 6 % 6, number / 36];
            let mut located = ColumnVerdict::default();
            for (at, sort) in (0..).zip(chosen) {
                located.add(at, verdict(sorts[sort].0, sorts[sort].1));
            }
            located.settle();
            let rotten: std::collections::BTreeSet<u16> =
                chosen.iter().flat_map(|sort| sorts[*sort].0).copied().collect();
            for (at, sort) in (0..).zip(chosen) {
                let set = SectorSet::run(at, 1);
                let named: Vec<Column> = located
                    .columns
                    .iter()
                    .filter(|(_, in_it)| in_it.meets(set))
                    .map(|one| one.0)
                    .collect();
                let (columns, values) = sorts[sort];
                let is_known = columns.len() == 1 && (rotten.len() == 1 || values > 1);
                let expected = if is_known { vec![Column::Data(columns[0])] } else { vec![] };
                assert_eq!(named, expected, "{chosen:?} sector {at}");
                let is_unknown = !columns.is_empty() && !is_known;
                assert_eq!(located.unknown.meets(set), is_unknown, "{chosen:?} sector {at}");
            }
            assert!(located.suspects.is_empty() || !located.unknown.is_empty());
        }
    }

    #[test]
    fn copies_are_named_by_their_places() {
        let contents = [[1, 1, 1, 1], [1, 2, 3, 2], [2, 2, 2, 2], [1, 2, 1, 3]];
        let mut voted = CopyVerdict::default();
        for (at, content) in (0..).zip(contents) {
            let alike = |one: usize, other: usize| content[one] == content[other];
            let vote = braid_parity::vote(3, alike);
            voted.add(SectorSet::run(at, 1), vote, &[0, 2, 5], alike);
        }
        let at = |sector: u32| SectorSet::run(sector, 1);
        assert_eq!(voted.tied, at(1));
        assert_eq!(voted.wrong.as_slice(), [(2, at(3))]);
        assert!(voted.right.is_empty());
        voted.add(at(7), Vote::Outvoted { right: 1 }, &[0, 2, 5], |one, other| {
            (one == 0) == (other == 0)
        });
        assert_eq!(voted.wrong.as_slice(), [(2, at(3)), (0, at(7))]);
        assert_eq!(voted.right.as_slice(), [(2, at(7))]);
    }
}
