//! Guesses of linear arrays: no shape needs votes, since each member's signs say where the member
//! begins.

use std::collections::BTreeMap;

use braid_geometry::Level;

use crate::Platter;
use crate::counts::Evidence;
use crate::guess::{Guess, VolumeStart};
use crate::judge::judge;
use crate::scan::Scan;
use crate::sign::Sign;
use crate::slots::orders;

/// The most orders of members that are tried.
const LINES_MAX: usize = 64;
/// A member gets a place in line if at least one in this many of its signs agree on a shift. If no
/// sign holds its own address, half of the signs must agree.
const SPOKEN_SHARE: usize = 4;
/// If no sign holds its own address, at least this many signs must agree on a shift.
const SPOKEN_MIN: usize = 4;
/// The most sectors that md leaves unused at the end of a member in line.
const ROUNDING_SECTORS: u64 = 8192;

/// Guesses of a linear array. On one member all signs have the same shift: the difference between
/// address and sector.
pub(crate) fn linear(
    volume: usize,
    signs: &[&Sign],
    starts: &[u64],
    scan: &Scan,
    members: &[&dyn Platter],
) -> Vec<Guess> {
    let said: Vec<Shifts> = (0..members.len()).map(|member| shifts_of(signs, member)).collect();
    // Copies of a file end alike, so a member whose signs hold no addresses may pass for another
    // part of the array.
    let heard = |is_heard: fn(&Shifts) -> bool| said.iter().map(is_heard).collect::<Vec<bool>>();
    let mut ways = vec![heard(Shifts::is_heard), heard(|it| it.named > 0 && it.is_heard())];
    ways.dedup();
    let mut guesses = Vec::new();
    for way in ways {
        let silent: Vec<usize> = (0..members.len()).filter(|member| !way[*member]).collect();
        // A volume may keep a structure twice, and a member may have either copy. So each of the
        // member's shifts is tried.
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

/// The shifts of a member's signs: the differences between their addresses and their sectors.
struct Shifts {
    /// The number of the member's signs that count.
    spoken: usize,
    /// The number of the member's signs that hold their own address.
    named: usize,
    /// The shifts that occur most often.
    best: Vec<i128>,
    /// The number of times that each of these shifts occurs.
    most: usize,
}

impl Shifts {
    /// Whether enough signs agree on a shift. Few pages end like the last page of a file by chance.
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
    // If some signs hold their own address, only these signs count: pages that end alike prove
    // less, however many they are.
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

/// Guesses with members in the order of their shifts.
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
        // The array begins with the first member's data, so the first member's shift is minus its
        // data offset. The other members are assumed to have the same offset.
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
            // md uses all sectors of a member but less than a chunk.
            (until_next + ROUNDING_SECTORS >= own).then_some(())?;
            data_sectors.push(until_next.min(own));
            let mut gap = until_next.saturating_sub(own);
            // Members without signs fill the gap between two members with signs.
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
