//! Assigns members to slots by votes; members without votes are tried in every order.

use std::collections::BTreeMap;

use braid_geometry::Family;

use crate::Platter;
use crate::counts::Evidence;
use crate::evidence;
use crate::guess::{Guess, VolumeStart};
use crate::shapes::Arrangement;

/// The most orders of members without a slot that are tried.
const ORDERS_MAX: usize = 24;

/// The guess that the votes give.
pub(crate) fn assigned(
    assignments: &[Option<(u16, u64)>],
    shape: &Arrangement,
    start: VolumeStart,
    members: &[&dyn Platter],
) -> Guess {
    let slots = usize::from(shape.slots);
    let mut guess = Guess {
        level: shape.level,
        layout: shape.layout,
        chunk_sectors: shape.chunk_sectors,
        slots: vec![None; slots],
        offsets: vec![
            most_common(assignments.iter().flatten().map(|assignment| assignment.1));
            slots
        ],
        data_sectors: vec![0; slots],
        starts: vec![start],
        evidence: Evidence::default(),
    };
    for (member, assignment) in assignments.iter().enumerate() {
        if let Some((slot, offset)) = assignment {
            guess.slots[usize::from(*slot)] = Some(member);
            guess.offsets[usize::from(*slot)] = *offset;
        }
    }
    measure(&mut guess, members);
    guess
}

pub(crate) fn most_common(offsets: impl Iterator<Item = u64>) -> u64 {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    offsets.for_each(|offset| *counts.entry(offset).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(offset, _)| offset)
}

/// Sets the number of data sectors in each slot.
pub(crate) fn measure(guess: &mut Guess, members: &[&dyn Platter]) {
    for (slot, member) in guess.slots.iter().enumerate() {
        let room =
            member.map(|member| members[member].sectors().saturating_sub(guess.offsets[slot]));
        guess.data_sectors[slot] = room.unwrap_or(u64::MAX);
    }
    let smallest = guess.data_sectors.iter().copied().min().unwrap_or(0);
    for sectors in &mut guess.data_sectors {
        if guess.level.family() != Family::Direct || *sectors == u64::MAX {
            *sectors = smallest;
        }
    }
}

/// Gives members without signs, such as one with only parity, the slots where redundancy agrees.
pub(crate) fn assign_the_rest(guess: &mut Guess, members: &[&dyn Platter]) {
    let free = |guess: &Guess| -> Vec<usize> {
        (0..guess.slots.len()).filter(|slot| guess.slots[*slot].is_none()).collect()
    };
    let (empty, left) =
        (free(guess), (0..members.len()).filter(|it| !guess.slots.contains(&Some(*it))));
    let left: Vec<usize> = left.collect();
    if empty.is_empty() || left.is_empty() || guess.level.family() == Family::Direct {
        return;
    }
    let mut best = None;
    for order in orders(empty.len(), left.len()).into_iter().take(ORDERS_MAX) {
        let mut tried = guess.clone();
        for (at, choice) in order.into_iter().enumerate() {
            tried.slots[empty[at]] = choice.map(|choice| left[choice]);
        }
        measure(&mut tried, members);
        let Some(geometry) = tried.geometry() else { continue };
        let (agreeing, compared) = evidence::compare(&tried, &geometry, members);
        let evidence = Evidence { agreeing, compared, ..Evidence::default() };
        if evidence.agrees_as_far_as_seen()
            && best.as_ref().is_none_or(|(most, _)| agreeing > *most)
        {
            best = Some((agreeing, tried));
        }
    }
    if let Some((_, tried)) = best {
        *guess = tried;
    }
}

/// Every way to put `left` members on `empty` slots. If there are more members than slots, some
/// members stay out.
pub(crate) fn orders(empty: usize, left: usize) -> Vec<Vec<Option<usize>>> {
    fn go(
        empty: usize,
        free: &mut Vec<usize>,
        idle: usize,
        so_far: &mut Vec<Option<usize>>,
        out: &mut Vec<Vec<Option<usize>>>,
    ) {
        if out.len() >= ORDERS_MAX {
            return;
        }
        if so_far.len() == empty {
            out.push(so_far.clone());
            return;
        }
        for at in 0..free.len() {
            let taken = free.remove(at);
            so_far.push(Some(taken));
            go(empty, free, idle, so_far, out);
            so_far.pop();
            free.insert(at, taken);
        }
        if idle > 0 {
            so_far.push(None);
            go(empty, free, idle - 1, so_far, out);
            so_far.pop();
        }
    }
    let mut out = Vec::new();
    go(empty, &mut (0..left).collect(), empty.saturating_sub(left), &mut Vec::new(), &mut out);
    out
}
