//! Linear arrays: no shape needs votes, since each member's signs say where it begins.

use std::collections::BTreeMap;

use braid_geometry::Level;

use crate::Platter;
use crate::counts::Evidence;
use crate::guess::{Guess, VolumeStart};
use crate::judge::judge;
use crate::scan::Scan;
use crate::sign::Sign;
use crate::slots::orders;

/// Most orders of members that are tried.
const LINES_MAX: usize = 64;
/// A member's signs give it a place in line if one in so many agree. Without named addresses half
/// of them must agree, and at least so many.
const SPOKEN_SHARE: usize = 4;
const SPOKEN_MIN: usize = 4;
/// Most sectors that md leaves unused at the end of a member in line.
const ROUNDING_SECTORS: u64 = 8192;

/// Guesses of a linear array: on one member all signs have one shift between address and sector.
pub(crate) fn linear(
    volume: usize,
    signs: &[&Sign],
    starts: &[u64],
    scan: &Scan,
    members: &[&dyn Platter],
) -> Vec<Guess> {
    let said: Vec<Shifts> = (0..members.len()).map(|member| shifts_of(signs, member)).collect();
    // Copies of a file end alike: a member without named addresses may pass for another part.
    let heard = |is_heard: fn(&Shifts) -> bool| said.iter().map(is_heard).collect::<Vec<bool>>();
    let mut ways = vec![heard(Shifts::is_heard), heard(|it| it.named > 0 && it.is_heard())];
    ways.dedup();
    let mut guesses = Vec::new();
    for way in ways {
        let silent: Vec<usize> = (0..members.len()).filter(|member| !way[*member]).collect();
        // Of a structure that a volume keeps twice, a member may have either one.
        let mut lines = vec![Vec::new()];
        for (member, said) in said.iter().enumerate().filter(|(member, _)| way[*member]) {
            let longer = lines.iter().flat_map(|line: &Vec<(i128, usize)>| {
                let longer = |shift: &i128| [line.as_slice(), &[(*shift, member)]].concat();
                said.best.iter().map(longer).collect::<Vec<_>>()
            });
            lines = longer.take(LINES_MAX).collect();
        }
        for line in lines {
            for order in orders(silent.len(), silent.len()) {
                let silent: Vec<usize> = order.into_iter().flatten().map(|at| silent[at]).collect();
                guesses.extend(in_line(line.clone(), &silent, volume, starts, scan, members));
            }
        }
    }
    guesses
}

/// The shifts between the addresses of a member's signs and their sectors.
struct Shifts {
    /// Signs that count, and those with a named address.
    spoken: usize,
    named: usize,
    /// The most frequent shifts, and how often they occur.
    best: Vec<i128>,
    most: usize,
}

impl Shifts {
    /// Few pages that end like a file's last one do so by chance.
    fn is_heard(&self) -> bool {
        match self.named {
            0 => self.most * 2 >= self.spoken && self.most >= SPOKEN_MIN,
            _ => self.most * SPOKEN_SHARE >= self.spoken,
        }
    }
}

fn shifts_of(signs: &[&Sign], member: usize) -> Shifts {
    let of_it = || signs.iter().filter(|sign| sign.member == member);
    let named = of_it().filter(|sign| sign.addresses.is_plain()).count();
    let mut counts: BTreeMap<i128, usize> = BTreeMap::new();
    // A named address says more than any number of pages that end alike.
    let counted = || of_it().filter(|sign| named == 0 || sign.addresses.is_plain());
    for sign in counted() {
        for address in sign.addresses.iter() {
            *counts.entry(i128::from(address) - i128::from(sign.sector)).or_default() += 1;
        }
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let best = counts.iter().filter(|(_, count)| **count == most).map(|(shift, _)| *shift);
    Shifts { spoken: counted().count(), named, best: best.collect(), most }
}

/// Guesses of members in line, each with its shift: the difference between addresses and sectors.
fn in_line(
    mut shifts: Vec<(i128, usize)>,
    silent: &[usize],
    volume: usize,
    starts: &[u64],
    scan: &Scan,
    members: &[&dyn Platter],
) -> Vec<Guess> {
    shifts.sort_unstable();
    let is_in_line = members.len() > 1 && shifts.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let Some(first) = shifts.first().filter(|_| is_in_line) else { return Vec::new() };
    let guess = |start: &u64| {
        // The array begins with the first member's data, so its shift is minus its offset. The
        // others are assumed to have the same offset.
        let offset = u64::try_from(-(first.0 + i128::from(*start))).ok()?;
        let room = |member: usize| members[member].sectors().checked_sub(offset);
        let (mut slots, mut data_sectors, mut silent) = (Vec::new(), Vec::new(), silent.to_vec());
        for (at, (shift, member)) in shifts.iter().enumerate() {
            let own = room(*member)?;
            slots.push(Some(*member));
            let Some(next) = shifts.get(at + 1) else {
                data_sectors.push(own);
                continue;
            };
            let until_next = u64::try_from(next.0 - shift).ok()?;
            // md uses all of a member except for less than a chunk.
            (until_next + ROUNDING_SECTORS >= own).then_some(())?;
            data_sectors.push(until_next.min(own));
            let mut gap = until_next.saturating_sub(own);
            // Silent members fill the gap between two that have a place.
            while gap > 0 {
                let filler =
                    silent.iter().position(|it| room(*it).is_some_and(|room| room <= gap))?;
                let filler = silent.remove(filler);
                let length = room(filler)?.min(gap);
                slots.push(Some(filler));
                data_sectors.push(length);
                gap -= length;
            }
        }
        for member in silent {
            slots.push(Some(member));
            data_sectors.push(room(member)?);
        }
        let mut guess = Guess {
            level: Level::Linear,
            layout: 0,
            chunk_sectors: 0,
            offsets: vec![offset; slots.len()],
            slots,
            data_sectors,
            starts: vec![VolumeStart { volume, sector: *start }],
            evidence: Evidence::default(),
        };
        judge(&mut guess, scan, members)?;
        Some(guess)
    };
    starts.iter().filter_map(guess).collect()
}
