//! From members to guesses, ranked; and whether the first is to be believed.
//!
//! ```text
//!   certain    it explains most addresses, what it predicts is there, redundancy agrees where it can be compared,
//!              every member that it seats has spoken, and no guess that reads differently explains nearly as many
//!   likely     the best there is
//! ```

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::{Family, Level};

use crate::Platter;
use crate::cache::Cached;
use crate::counts::Evidence;
use crate::evidence::{self, Predicted};
use crate::fit::{fit, spread};
use crate::guess::{Guess, Start, roomy};
use crate::scan::{Effort, Scan, scan};
use crate::shapes::{Arrangement, arrangements};
use crate::sign::{ALIKE, Sign, Volume, VolumeKind};

/// Where volumes begin when no table says: at the array's first sector, and where partitions begin.
const STARTS: [u64; 3] = [0, 2048, 63];
/// Where data begin on a member, usually: of old metadata or such as is at the end, of small members and of large ones by mdadm.
const USUAL_OFFSETS: [u64; 3] = [0, 2048, 262_144];
/// Starts that are tried, those of tables inside partitions too.
const STARTS_MAX: usize = 96;
/// Signs that vote in the first round, and in the second.
const FIRST_ROUND: usize = 96;
const SECOND_ROUND: usize = 512;
/// Guesses of the first round that go into the second, and of the second that are looked at closely.
const SECOND_MAX: usize = 8192;
const CLOSE_MAX: usize = 64;
/// Guesses of every level and layout that are kept in any case, unless they are worth less than half of the best.
const EACH_MIN: usize = 3;
/// Volumes from which guesses are made, by how much was found of each.
const MAIN_MAX: usize = 3;
/// Guesses answered.
const ANSWERS_MAX: usize = 8;
/// Addresses that must be explained before anything is certain.
const CERTAIN_MIN: usize = 8;
/// Places at which two guesses are held against each other.
const HELD_AGAINST: u64 = 1024;
/// Orders of leftover members that are tried.
const ORDERS_MAX: usize = 24;
/// Guesses in which slots are exchanged.
const EXCHANGED_MAX: usize = 24;
const EXCHANGED_EACH: usize = 2;
/// Ways to put members in line that are tried.
const LINES_MAX: usize = 64;
/// A member in line has a place by its signs if one in so many agree; if none of them names its address half of them, and so many.
const SPOKEN_SHARE: usize = 4;
const SPOKEN_MIN: usize = 4;
/// What md may leave at the end of a member in line.
const ROUNDING_SECTORS: u64 = 8192;
/// Data of a member in the first rounds: more than any has.
const ROOMY_SECTORS: u64 = 1 << 44;

/// How far a solution is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belief {
    /// The best that was found, if anything was.
    Likely,
    /// Nothing else comes near, and everything that could be looked at agrees.
    Certain,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// Whether the first guess is to be believed.
    pub belief: Belief,
    /// Guesses that read differently, the best first. Empty if nothing on the members has an address.
    pub guesses: Vec<Guess>,
    /// What stands on the array, as far as it says so.
    pub volumes: Vec<Volume>,
    /// Places on members that say where they belong.
    pub signs: usize,
    /// Sectors that could not be read while looking.
    pub unreadable_sectors: u64,
}

/// Finds how `members`, in whatever order, were put together.
#[must_use]
pub fn solve(members: &[&dyn Platter], effort: &Effort) -> Solution {
    let scan = scan(members, effort);
    let cached: Vec<Cached<'_>> = members.iter().map(|member| Cached::of(*member)).collect();
    let cached: Vec<&dyn Platter> = cached.iter().map(|it| it as &dyn Platter).collect();
    let members = cached.as_slice();
    let mut guesses = Vec::new();
    for volume in main_volumes(&scan) {
        guesses.extend(guesses_of(volume, &scan, members));
    }
    let mut ranked = rank(guesses, members.len());
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

/// The volumes that say most, most first.
fn main_volumes(scan: &Scan) -> Vec<usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for sign in &scan.signs {
        *counts.entry(sign.volume).or_default() += 1;
    }
    let mut volumes: Vec<(usize, usize)> =
        counts.into_iter().map(|(volume, count)| (count, volume)).collect();
    volumes.sort_by_key(|(count, volume)| (std::cmp::Reverse(*count), *volume));
    volumes.into_iter().map(|(_, volume)| volume).take(MAIN_MAX).collect()
}

fn starts_of(volume: &Volume, scan: &Scan) -> Vec<u64> {
    if volume.kind == VolumeKind::Table {
        return vec![0];
    }
    let mut starts = STARTS.to_vec();
    let within =
        scan.starts.iter().flat_map(|outer| scan.starts.iter().map(move |inner| outer + inner));
    for start in scan.starts.iter().copied().chain(within) {
        if !starts.contains(&start) && starts.len() < STARTS_MAX {
            starts.push(start);
        }
    }
    starts
}

/// Guesses from one volume's signs, the close look included.
fn guesses_of(volume: usize, scan: &Scan, members: &[&dyn Platter]) -> Vec<Guess> {
    let signs: Vec<&Sign> = scan.signs.iter().filter(|sign| sign.volume == volume).collect();
    let (few, many) =
        (spread(&signs, FIRST_ROUND, members.len()), spread(&signs, SECOND_ROUND, members.len()));
    let starts = starts_of(&scan.volumes[volume], scan);
    let smallest = members.iter().map(|member| member.sectors()).min().unwrap_or(0);
    let sized = |shape: &Arrangement, signs: &[&Sign], start, sectors| {
        Some(fit(&roomy(shape, sectors)?, signs, start, members.len()))
    };
    // Far copies are where the size of the data says, and that depends on where they begin: it is asked for first. Of all others only what
    // is first is looked at.
    let fitted = |shape: &Arrangement, start| {
        if !(shape.level == Level::Raid10 && shape.layout == 0x201) {
            return Some((sized(shape, &few, start, ROOMY_SECTORS)?, ROOMY_SECTORS));
        }
        let chunk = u64::from(shape.chunk_sectors);
        let found = sized(shape, &few, start, smallest)?;
        let offsets = found.seats.iter().flatten().map(|seat| seat.1);
        // What was taken for first copies may have been the others, so many chunks after them as fit between them and the end.
        let offsets = offsets.flat_map(|offset| {
            let rows = smallest.saturating_sub(offset) / chunk;
            [0, rows, rows.saturating_sub(1)].map(|rows| offset.saturating_sub(rows * chunk))
        });
        let sizes = offsets.chain(USUAL_OFFSETS).collect::<BTreeSet<u64>>().into_iter();
        let sizes = sizes.filter_map(|offset| smallest.checked_sub(offset));
        let fits = sizes.filter_map(|sectors| Some((sized(shape, &few, start, sectors)?, sectors)));
        // Where it is right the copies vote for the same.
        fits.max_by_key(|(fit, _)| (fit.votes, fit.strength))
    };
    let mut first = Vec::new();
    for shape in arrangements(members.len()) {
        for start in &starts {
            let found = fitted(&shape, *start).filter(|(fit, _)| fit.strength > 0);
            first.extend(found.map(|(fit, sectors)| (fit.strength, shape, *start, sectors)));
        }
    }
    keep_best(
        &mut first,
        (SECOND_MAX, members.len()),
        |(strength, ..)| *strength,
        |(_, shape, ..)| *shape,
    );
    let second = first.into_iter().filter_map(|(_, shape, start, sectors)| {
        let fit = sized(&shape, &many, start, sectors)?;
        // Where votes are few, many guesses tie; what a walk meets tells them apart at once.
        let start = Start { volume, sector: start };
        let walked = |seats: &[Option<(u16, u64)>]| {
            let guess = seated(seats, &shape, start, members);
            let geometry = guess.geometry()?;
            let (guess, walk) = evidence::seat_by_walk(&guess, &geometry, scan, members, start);
            Some((walk.confirmed.saturating_sub(walk.refuted), guess))
        };
        let as_voted = walked(&fit.seats);
        // Whose slot is contested may have another: the walk says.
        let mut cautious = fit.seats.clone();
        fit.contested.iter().for_each(|member| cautious[*member] = None);
        let is_contested = cautious != fit.seats;
        let cautious = is_contested.then(|| walked(&cautious)).flatten();
        let (met, guess) =
            as_voted.into_iter().chain(cautious).rev().max_by_key(|(met, _)| *met)?;
        Some((fit.strength / ALIKE + met, guess, shape))
    });
    let mut second: Vec<(usize, Guess, Arrangement)> = second.collect();
    keep_best(
        &mut second,
        (CLOSE_MAX, members.len()),
        |(worth, ..)| *worth,
        |(_, _, shape)| *shape,
    );
    let close = second.into_iter().filter_map(|(_, guess, _)| look_closely(guess, scan, members));
    let mut close: Vec<Guess> = close.collect();
    close.sort_by_key(|guess| std::cmp::Reverse(worth(guess, members.len())));
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
    close.extend(line(volume, &signs, &starts, scan, members));
    close
}

/// Keeps the best: of every level and layout some, and all that are as good as the best of all, up to `max`. Of those that tie the
/// ones in which every member has a slot come first.
fn keep_best<T>(
    found: &mut Vec<T>,
    (max, members): (usize, usize),
    worth: impl Fn(&T) -> usize,
    shape: impl Fn(&T) -> Arrangement,
) {
    found.sort_by_key(|it| {
        (std::cmp::Reverse(worth(it)), usize::from(shape(it).slots).abs_diff(members))
    });
    let best = found.first().map_or(0, &worth);
    let mut counts: BTreeMap<(Level, u32), usize> = BTreeMap::new();
    let mut kept = 0;
    found.retain(|it| {
        let count = counts.entry((shape(it).level, shape(it).layout)).or_default();
        *count += 1;
        let is_kept = *count <= EACH_MIN || kept < max && worth(it) * 10 >= best * 9;
        kept += usize::from(is_kept);
        is_kept && worth(it) * 2 >= best
    });
}

/// A guess with everything that can be held against it.
fn look_closely(mut guess: Guess, scan: &Scan, members: &[&dyn Platter]) -> Option<Guess> {
    measure(&mut guess, members);
    seat_the_rest(&mut guess, members);
    without_idle_q(&mut guess);
    judge(&mut guess, scan, members)?;
    Some(guess)
}

/// What cannot be read without the slots that are empty helps nobody.
fn is_readable(guess: &Guess) -> bool {
    let survives =
        |map: braid_geometry::Geometry| map.survives(&|slot| guess.slots[slot.index()].is_none());
    guess.geometry().is_some_and(survives)
}

/// RAID-6 with its Q in one slot, and nobody there, is RAID-5 without that slot: that is the plainer word.
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

/// The same with the member of this slot as the Q of a RAID-6: where only the first data of a row are not zero it looks like them.
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

/// Copies vote for each other's slots, and so does parity for that of the only member that is not zero. So where things are not
/// where they must be two slots are exchanged, while that makes it better.
fn exchanged(mut guess: Guess, scan: &Scan, members: &[&dyn Platter]) -> Guess {
    let worth_of = |guess: &Guess| {
        let geometry = guess.geometry()?;
        let found = evidence::explain(guess, &geometry, scan);
        let it = evidence::predict(guess, &geometry, scan, members);
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
        let seated = guess.slots.iter().zip(&guess.offsets).filter(|(slot, _)| slot.is_some());
        let common = most_common(seated.map(|(_, offset)| *offset));
        let is_uneven = guess.offsets.iter().any(|offset| *offset != common);
        // A member that was seated where it does not belong has its offset from there, too.
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
        seat_the_rest(&mut guess, members);
        without_idle_q(&mut guess);
        judge(&mut guess, scan, members);
    }
    guess
}

/// What votes said.
fn seated(
    seats: &[Option<(u16, u64)>],
    shape: &Arrangement,
    start: Start,
    members: &[&dyn Platter],
) -> Guess {
    let slots = usize::from(shape.slots);
    let mut guess = Guess {
        level: shape.level,
        layout: shape.layout,
        chunk_sectors: shape.chunk_sectors,
        slots: vec![None; slots],
        offsets: vec![most_common(seats.iter().flatten().map(|seat| seat.1)); slots],
        data_sectors: vec![0; slots],
        starts: vec![start],
        evidence: Evidence::default(),
    };
    for (member, seat) in seats.iter().enumerate() {
        if let Some((slot, offset)) = seat {
            guess.slots[usize::from(*slot)] = Some(member);
            guess.offsets[usize::from(*slot)] = *offset;
        }
    }
    measure(&mut guess, members);
    guess
}

fn most_common(offsets: impl Iterator<Item = u64>) -> u64 {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    offsets.for_each(|offset| *counts.entry(offset).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(offset, _)| offset)
}

/// How many data there can be in each slot.
fn measure(guess: &mut Guess, members: &[&dyn Platter]) {
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

/// Members that have no sign of the volume on them, such as one with nothing but parity: where redundancy agrees with them.
fn seat_the_rest(guess: &mut Guess, members: &[&dyn Platter]) {
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

/// Every way to seat `left` members on `empty` slots, as many as can be.
fn orders(empty: usize, left: usize) -> Vec<Vec<Option<usize>>> {
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

/// Everything that can be counted; the other volumes' starts with it.
fn judge(guess: &mut Guess, scan: &Scan, members: &[&dyn Platter]) -> Option<()> {
    let geometry = guess.geometry()?;
    guess.starts.truncate(1);
    let main = guess.starts[0];
    for (volume, found) in
        scan.volumes.iter().enumerate().filter(|(volume, _)| *volume != main.volume)
    {
        let explained = |sector| {
            let alone = Guess { starts: vec![Start { volume, sector }], ..guess.clone() };
            (evidence::explain(&alone, &geometry, scan), sector)
        };
        let tried = starts_of(found, scan).into_iter().map(explained);
        // What is inside of a file explains nothing by any start, and does not count against the guess.
        let best = tried.max_by_key(|(found, _)| found.weight);
        if let Some((found, sector)) = best
            && found.explained * 2 > found.seen
        {
            guess.starts.push(Start { volume, sector });
        }
    }
    let found = evidence::explain(guess, &geometry, scan);
    let Predicted { confirmed, refuted, is_doubted } =
        evidence::predict(guess, &geometry, scan, members);
    let (agreeing, compared) = evidence::compare(guess, &geometry, members);
    let is_shadowed = evidence::looks_like_parity(guess, &geometry, scan, members);
    guess.evidence =
        Evidence { confirmed, refuted, agreeing, compared, is_doubted, is_shadowed, ..found };
    Some(())
}

/// Members one after another: an address and its sector differ by the same on all of a member.
fn line(
    volume: usize,
    signs: &[&Sign],
    starts: &[u64],
    scan: &Scan,
    members: &[&dyn Platter],
) -> Vec<Guess> {
    let said: Vec<Shifts> = (0..members.len()).map(|member| shifts_of(signs, member)).collect();
    // Files of which there is a copy elsewhere end like it: who names no address may have been taken for another part.
    let heard = |is_heard: fn(&Shifts) -> bool| said.iter().map(is_heard).collect::<Vec<bool>>();
    let mut ways = vec![heard(Shifts::is_heard), heard(|it| it.named > 0 && it.is_heard())];
    ways.dedup();
    let mut guesses = Vec::new();
    for way in ways {
        let silent: Vec<usize> = (0..members.len()).filter(|member| !way[*member]).collect();
        // What a volume keeps twice may be either, if a member has only one of the two.
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

/// How far from their sectors the addresses of a member's signs are.
struct Shifts {
    /// Signs that were counted, and those that name their address.
    spoken: usize,
    named: usize,
    /// What most of them say, and how many do.
    best: Vec<i128>,
    most: usize,
}

impl Shifts {
    /// A few pages that end like a file's last one do so by chance.
    fn is_heard(&self) -> bool {
        match self.named {
            0 => self.most * 2 >= self.spoken && self.most >= SPOKEN_MIN,
            _ => self.most * SPOKEN_SHARE >= self.spoken,
        }
    }
}

fn shifts_of(signs: &[&Sign], member: usize) -> Shifts {
    let of_it = || signs.iter().filter(|sign| sign.member == member);
    let named = of_it().filter(|sign| sign.belongs.is_plain()).count();
    let mut counts: BTreeMap<i128, usize> = BTreeMap::new();
    // One that names its address says more than any number of pages that end alike.
    let counted = || of_it().filter(|sign| named == 0 || sign.belongs.is_plain());
    for sign in counted() {
        for address in sign.belongs.iter() {
            *counts.entry(i128::from(address) - i128::from(sign.sector)).or_default() += 1;
        }
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let best = counts.iter().filter(|(_, count)| **count == most).map(|(shift, _)| *shift);
    Shifts { spoken: counted().count(), named, best: best.collect(), most }
}

/// Guesses of members one after another, each with the difference of its addresses and their sectors.
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
        // The first member's data are the array's first, so its shift is minus its offset. The others' is taken for the same.
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
            // md uses all of a member, but for less than a chunk.
            (until_next + ROUNDING_SECTORS >= own).then_some(())?;
            data_sectors.push(until_next.min(own));
            let mut gap = until_next.saturating_sub(own);
            // What is between two that speak are others that do not.
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
            starts: vec![Start { volume, sector: *start }],
            evidence: Evidence::default(),
        };
        judge(&mut guess, scan, members)?;
        Some(guess)
    };
    starts.iter().filter_map(guess).collect()
}

/// The best first; of those that read the same only the plainest.
fn rank(mut guesses: Vec<Guess>, members: usize) -> Vec<Guess> {
    guesses.sort_by_key(|guess| std::cmp::Reverse(worth(guess, members)));
    let mut kept: Vec<Guess> = Vec::new();
    for guess in guesses {
        if kept.len() < 2 * ANSWERS_MAX && !kept.iter().any(|known| reads_alike(known, &guess)) {
            kept.push(guess);
        }
    }
    kept
}

/// What a guess is worth, in tenths of an address: what it explains and predicts, whether redundancy agrees, how plain it is.
fn worth(guess: &Guess, members: usize) -> i64 {
    let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let it = guess.evidence;
    let mut addresses = it.sum();
    if it.disagrees() || it.is_shadowed {
        addresses /= 2;
    }
    let mut different = guess.offsets.clone();
    different.sort_unstable();
    different.dedup();
    // A member with an offset of its own explains more by chance.
    addresses -= 2 * of(different.len() - 1);
    let agreement = (it.agreeing * 50).checked_div(it.compared).map_or(0, |part| of(part) - 25);
    // A slot without a member, and a member without a slot.
    let seated = guess.slots.iter().flatten().count();
    let mut plain = agreement - 40 * of(guess.missing()) - 40 * of(members - seated);
    let first = guess.offsets.first().copied().unwrap_or(0);
    plain += if first == 0 || first.is_multiple_of(2048) { 10 } else { 0 };
    plain += if first.is_multiple_of(8) { 5 } else { 0 };
    plain += if guess.starts.first().is_some_and(|start| start.sector == 0) { 4 } else { 0 };
    plain += if [0, 2].contains(&guess.layout) { 1 } else { 0 };
    // Two members of which either is parity of the other are what everybody calls a mirror.
    plain += if guess.level == Level::Raid1 { 1 } else { 0 };
    10 * addresses + plain
}

/// Whether two guesses give the same bytes for the volume that they were made from.
fn reads_alike(one: &Guess, other: &Guess) -> bool {
    let both =
        one.starts.iter().find_map(|start| Some((start.sector, other.start_of(start.volume)?)));
    let (Some(map), Some(other_map)) = (one.geometry(), other.geometry()) else { return false };
    let Some((first, second)) = both else { return false };
    let room =
        |map: &braid_geometry::Geometry, start: u64| map.capacity_sectors().saturating_sub(start);
    let sectors = room(&map, first).min(room(&other_map, second));
    let step = (sectors / HELD_AGAINST).max(8) | 8;
    // Near the start every page, so that no chunk is too small to be seen; then all over.
    let near = (0..HELD_AGAINST).map(|at| at * 8);
    let all = (0..HELD_AGAINST).map(|at| at * step);
    near.chain(all)
        .take_while(|at| *at < sectors || *at < HELD_AGAINST * 8)
        .filter(|at| *at < sectors)
        .all(|at| {
            let (here, there) =
                (one.places(&map, first + at), other.places(&other_map, second + at));
            // What is made of the others has no place, and is the same if made of the same; copies may have one more.
            match (here.is_empty(), there.is_empty()) {
                (true, true) => {
                    evidence::made_of(one, &map, first + at)
                        == evidence::made_of(other, &other_map, second + at)
                }
                _ => here.iter().any(|place| there.contains(place)),
            }
        })
}

fn belief(ranked: &[Guess], members: usize) -> Belief {
    let Some(best) = ranked.first() else { return Belief::Likely };
    let it = best.evidence;
    let next = ranked.iter().skip(1).map(|next| next.evidence.sum()).max().unwrap_or(0).max(0);
    let own = it.sum();
    let margin = (own / 20).max(3);
    // A member that nobody seated is a stranger, or the shape is not understood. One without a sign is where it is because
    // redundancy agrees.
    let seated = best.slots.iter().flatten().count();
    let have_spoken = it.agrees() || !it.is_unheard;
    // Members of one array have their data at one offset nearly always. A single one that has not may be a chunk beside its place, which
    // only redundancy can tell.
    let mut offsets = best.slots.iter().zip(&best.offsets).filter(|(slot, _)| slot.is_some());
    let first = offsets.next().map(|(_, offset)| *offset);
    let is_even = offsets.all(|(_, offset)| Some(*offset) == first);
    let is_certain = it.explained >= CERTAIN_MIN
        && (is_even || it.agrees())
        && it.explained * 10 >= it.addresses * 7
        && it.refuted * 4 <= it.confirmed
        && !it.disagrees()
        && !it.is_shadowed
        && !it.is_doubted
        && seated == members
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
