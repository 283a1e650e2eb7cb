//! Votes on which of several copies is right: the majority.
//!
//! The vote serves check and repair of levels with copies. The caller compares the copies; this
//! file never sees a byte, and reads and repairs nothing. Each sector is voted on by itself: copies
//! have no algebra that would tie sectors.
//!
//! A majority is more than half of the copies that could be read. Two copies never have a majority
//! when they differ; three do unless all differ. Half is not enough: of four copies two may have
//! missed the same write. Wrong copies with equal bytes outvote the right one. If they rotted
//! independently, the chance of equal bytes is 1 in 256 for each wrong byte. If one cause spoiled
//! several copies, equal bytes are no matter of chance, and no number of copies shows the error.
//!
//! Invariants: of three or more copies a single different copy is named, and never another copy;
//! without a majority no copy is named (`tests::every_way_in_which_six_copies_can_differ`).

/// The verdict of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// All copies agree.
    Agree,
    /// More than half of the copies agree with `right`; every other copy is wrong.
    Outvoted {
        /// The index of a copy in the majority.
        right: usize,
    },
    /// No majority: each copy may be right.
    Tied,
}

/// Votes among `copies` copies, numbered from 0. `alike` compares two copies; it is called at most
/// twice for each copy.
pub fn vote(copies: usize, mut alike: impl FnMut(usize, usize) -> bool) -> Vote {
    // Boyer and Moore: strike out pairs of copies that differ. A majority, if one exists, survives.
    let (mut right, mut lead) = (0, 0_usize);
    for copy in 0..copies {
        if lead == 0 {
            (right, lead) = (copy, 1);
        } else if alike(right, copy) {
            lead += 1;
        } else {
            lead -= 1;
        }
    }
    let votes = (0..copies).filter(|copy| *copy == right || alike(right, *copy)).count();
    match votes {
        _ if votes == copies => Vote::Agree,
        _ if votes > copies / 2 => Vote::Outvoted { right },
        _ => Vote::Tied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up to six copies, each with any of six contents.
    #[test]
    fn every_way_in_which_six_copies_can_differ() {
        for copies in 1..=6_usize {
            for number in 0..6_usize.pow(u32::try_from(copies).unwrap()) {
                let contents: Vec<usize> = (0..copies)
                    .scan(number, |rest, _| Some(std::mem::replace(rest, *rest / 6) % 6))
                    .collect();
                let mut asked = 0;
                let found = vote(copies, |one, other| {
                    asked += 1;
                    contents[one] == contents[other]
                });
                assert!(asked <= 2 * copies, "{asked} comparisons of {copies}");
                let count = |content| contents.iter().filter(|other| **other == content).count();
                let most = (0..6).find(|content| 2 * count(*content) > copies);
                match (found, most) {
                    (Vote::Agree, Some(content)) => assert_eq!(count(content), copies),
                    (Vote::Outvoted { right }, Some(content)) => {
                        assert!(contents[right] == content && count(content) < copies);
                    }
                    (Vote::Tied, None) => {}
                    _ => panic!("{found:?} of {contents:?}"),
                }
            }
        }
    }

    #[test]
    fn no_copies_are_alike() {
        assert_eq!(vote(0, |_, _| unreachable!()), Vote::Agree);
    }
}
