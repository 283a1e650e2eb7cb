//! Votes under a shape: the slot of each member, and the sector at which its data begins.

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::{Geometry, Slot};

use crate::guess::{each_place, parity_of};
use crate::sign::{Addresses, Sign};

/// An offset common to all members is preferred if it explains this many percent of what separate
/// offsets explain.
const COMMON_PERCENT: usize = 98;

/// A usual offset is tried if it explains one part in this many of what the best offset explains.
const USUAL_SHARE: usize = 2;

/// A member gets a slot only if at least one in this many of its signs votes for that slot. Fewer
/// votes may be chance, since P and Q look like data in places.
const SHARE: usize = 4;

/// A slot with at least this many of the member's votes on parity, and fewer other votes, needs no
/// `SHARE` of the signs.
const PARITY_MIN: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The data offset that all members had to have; `None` if each member could have its own.
    pub(crate) offset: Option<u64>,
    /// The slot and the data offset of each member.
    pub(crate) assignments: Vec<Option<(u16, u64)>>,
    /// Members with contradicting votes for a slot: parity looks like data where the other members
    /// of the row are zero.
    pub(crate) contested: BTreeSet<usize>,
    /// The total [`Addresses::strength`] of the volume's addresses that are at their right place by
    /// these assignments.
    pub(crate) strength: usize,
    pub(crate) votes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SlotVote {
    member: usize,
    slot: u16,
    offset: u64,
    addresses: Addresses,
    /// Whether the sign is on the parity of its address's row.
    is_parity: bool,
}

/// Counts the votes of `signs`, for a volume that begins at array sector `start` and for this many
/// members. Uses the data offsets that explain most signs, then each of the usual offsets.
pub(crate) fn fits(
    geometry: &Geometry,
    signs: &[&Sign],
    start: u64,
    members: usize,
    usual: &[u64],
) -> Vec<Fit> {
    let mut votes = Vec::with_capacity(signs.len() * 2);
    let is_short = usize::from(geometry.slots()) > members;
    for sign in signs {
        for address in sign.addresses.iter() {
            let sector = start.saturating_add(address);
            let mut vote = |slot: Slot, at, is_parity| {
                if let Some(offset) = sign.sector.checked_sub(at) {
                    let (member, slot, addresses) = (sign.member, slot.0, sign.addresses);
                    votes.push(SlotVote { member, slot, offset, addresses, is_parity });
                }
            };
            each_place(geometry, sector, |slot, at| vote(slot, at, false));
            // A missing member's data shows in the parity if the row's other members are zero.
            if let Some((slot, at)) = parity_of(geometry, sector).filter(|_| is_short) {
                vote(slot, at, true);
            }
        }
    }
    votes.sort_unstable();
    // A journal has many copies of a page; all copies of one page count once.
    let pages: BTreeSet<(usize, Addresses)> =
        signs.iter().map(|sign| (sign.member, sign.addresses.page())).collect();
    let mut spoken = vec![0; members];
    pages.iter().for_each(|(member, page)| spoken[*member] += page.strength());
    let mut best = elect(&votes, &spoken, None);
    if let Some(common) = common_offset(&votes) {
        let together = elect(&votes, &spoken, Some(common));
        if together.strength * 100 >= best.strength * COMMON_PERCENT {
            best = together;
        }
    }
    let others = usual.iter().filter(|offset| best.offset != Some(**offset));
    let others = others.map(|offset| elect(&votes, &spoken, Some(*offset)));
    let others = others.filter(|it| it.strength * USUAL_SHARE >= best.strength);
    let others: Vec<Fit> = others.filter(|it| it.strength > 0).collect();
    std::iter::once(best).chain(others).collect()
}

/// The data offset with most votes, if each member counts with its best slot.
fn common_offset(votes: &[SlotVote]) -> Option<u64> {
    let mut best: Vec<(u64, usize, usize)> = Vec::new();
    for run in votes.chunk_by(|a, b| (a.member, a.slot, a.offset) == (b.member, b.slot, b.offset)) {
        best.push((run[0].offset, run[0].member, strength(run)));
    }
    best.sort_unstable();
    let sums = best.chunk_by(|a, b| a.0 == b.0).map(|same| {
        let of_members = same.chunk_by(|a, b| a.1 == b.1);
        let sum: usize =
            of_members.map(|of| of.iter().map(|it| it.2).max().unwrap_or_default()).sum();
        (sum, same[0].0)
    });
    sums.max_by_key(|(sum, offset)| (*sum, std::cmp::Reverse(*offset))).map(|(_, offset)| offset)
}

/// Gives each member the slot and offset with most of its votes; members with the clearest votes
/// come first.
fn elect(votes: &[SlotVote], spoken: &[usize], only: Option<u64>) -> Fit {
    let runs = votes.chunk_by(|a, b| (a.member, a.slot, a.offset) == (b.member, b.slot, b.offset));
    let runs = runs.filter(|run| only.is_none_or(|only| run[0].offset == only));
    let mut counted: Vec<(usize, &[SlotVote])> = runs.map(|run| (strength(run), run)).collect();
    counted.sort_by_key(|(strength, _)| std::cmp::Reverse(*strength));
    let mut assignments = vec![None; spoken.len()];
    let mut taken: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
    let mut explained = BTreeSet::new();
    let (mut contested, mut votes_for) = (BTreeSet::new(), 0);
    for (strength, run) in counted {
        let SlotVote { member, slot, offset, .. } = run[0];
        match taken.get(&slot) {
            Some((other, votes)) if *votes == strength && *other != member => {
                contested.extend([*other, member]);
            }
            None if assignments[member].is_none()
                && speaks_for_itself((strength, run), spoken[member]) =>
            {
                assignments[member] = Some((slot, offset));
                taken.insert(slot, (member, strength));
                votes_for += run.len();
                explained.extend(run.iter().map(|vote| vote.addresses));
            }
            _ => {}
        }
    }
    Fit {
        offset: only,
        assignments,
        contested,
        strength: explained.iter().map(Addresses::strength).sum(),
        votes: votes_for,
    }
}

fn strength(run: &[SlotVote]) -> usize {
    run.iter().map(|vote| vote.addresses.strength()).sum()
}

/// Whether enough of a member's signs vote for a slot. A member with parity has few signs, so it
/// needs few votes.
fn speaks_for_itself((strength, run): (usize, &[SlotVote]), spoken: usize) -> bool {
    let as_parity = run.iter().filter(|vote| vote.is_parity).count();
    strength * SHARE >= spoken || as_parity >= PARITY_MIN && as_parity * 2 > run.len()
}

/// About `max` signs of a volume: equally many of each member, those that hold their address first,
/// spread out.
pub(crate) fn spread<'a>(signs: &[&'a Sign], max: usize, members: usize) -> Vec<&'a Sign> {
    let quota = max.div_ceil(members.max(1));
    let every = |signs: Vec<&'a Sign>, max: usize| {
        let step = signs.len().div_ceil(max.max(1)).max(1);
        signs.into_iter().step_by(step).take(max).collect::<Vec<_>>()
    };
    let of_member = |member: usize| {
        let of_it = signs.iter().filter(|sign| sign.member == member).copied();
        let (plain, vague): (Vec<_>, Vec<_>) = of_it.partition(|sign| sign.addresses.is_plain());
        let mut chosen = every(plain, quota - vague.len().min(quota / 4));
        let room = quota - chosen.len();
        chosen.extend(every(vague, room));
        chosen
    };
    (0..members).flat_map(of_member).collect()
}
