//! What speaks for a guess, and what against it.
//!
//! Signs that stand where the guess says are what it was made of. What it then predicts is worth more: that at places nobody has
//! looked at yet, the backups and headers stand that must be there; and that parity agrees, or copies are alike. Zeroes agree
//! with anything and are not counted.

use std::collections::BTreeSet;

use braid_geometry::{
    ChunkRow, Geometry, Level, LogicalSector, MemberSector, Role, Slot, StripeGeometry,
};
use braid_parity::kernel;

use crate::Platter;
use crate::bytes::small;
use crate::guess::{Guess, Start, each_place};
use crate::scan::{SECTOR, Scan};
use crate::sign::Belongs;
use crate::sign::ext::Walk;

/// Predictions looked at, for each volume.
const PREDICTIONS_MAX: usize = 24;
/// What a volume that is larger than the array counts for.
const TOO_LARGE: usize = 4;
/// Places at which redundancy is compared.
const COMPARED_MAX: u64 = 192;
/// Sectors compared at each: a page, which no chunk is smaller than.
const PAGE: usize = 8;
/// Sectors of each member within which half of the places are.
const NEAR_SECTORS: u64 = 32 << 11;

/// Counts the signs that a guess explains, of the volumes that it has a start for; those of one page are one.
///
/// A journal has copies of pages, and shows other sectors of them than where they belong.
pub(crate) fn explain(guess: &Guess, geometry: &Geometry, scan: &Scan) -> (usize, usize) {
    let (mut explained, mut all) = (0, 0);
    for start in &guess.starts {
        let mut holds: BTreeSet<Belongs> = BTreeSet::new();
        let mut known: BTreeSet<Belongs> = BTreeSet::new();
        for sign in scan.signs.iter().filter(|sign| sign.volume == start.volume) {
            let page = sign.belongs.page();
            known.insert(page);
            let found = (sign.member, sign.sector);
            let stands_there = |address: u64| {
                let sector = start.sector.saturating_add(address);
                let places = guess.places(geometry, sector);
                places.contains(&found)
                    || places.is_empty() && guess.parity_place(geometry, sector) == Some(found)
            };
            if sign.belongs.iter().any(stands_there) {
                holds.insert(page);
            }
        }
        explained += holds.len();
        all += known.len();
    }
    (explained, all)
}

/// Looks at places where something must stand: how often it does, and how often not.
pub(crate) fn predict(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
) -> (usize, usize) {
    let (mut confirmed, mut refuted) = (0, 0);
    for start in &guess.starts {
        let (volume, knowledge) = (&scan.volumes[start.volume], &scan.knowledge[start.volume]);
        // What wants more than there is says that members are missing from the guess.
        if start.sector.saturating_add(volume.size_sectors) > geometry.capacity_sectors() {
            refuted += TOO_LARGE;
        }
        for address in knowledge.predictions().into_iter().take(PREDICTIONS_MAX) {
            if address >= volume.size_sectors {
                continue;
            }
            let sector = start.sector.saturating_add(address);
            let looked = read_array(guess, geometry, members, sector, PAGE);
            match looked.map(|bytes| knowledge.confirms(volume, address, &bytes)) {
                Some(true) => confirmed += 1,
                Some(false) => refuted += 1,
                None => {}
            }
        }
        let walk = walk(guess, geometry, scan, members, *start);
        confirmed += walk.confirmed;
        refuted += walk.refuted;
    }
    (confirmed, refuted)
}

/// Follows a volume's own addresses through the guess.
pub(crate) fn walk(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
    start: Start,
) -> Walk {
    scan.knowledge[start.volume].walk(|byte, length, _| {
        let first = start.sector.checked_add(byte / SECTOR as u64)?;
        let skipped = small(byte % SECTOR as u64);
        let sectors = (skipped + length).div_ceil(SECTOR);
        let mut bytes = read_array(guess, geometry, members, first, sectors)?;
        bytes.drain(..skipped);
        bytes.truncate(length);
        Some(bytes)
    })
}

/// The same, and what stands in an empty slot says which of the members without one has it: exactly one of them has there what
/// must be there. Answers the guess with these seated.
pub(crate) fn seat_by_walk(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
    start: Start,
) -> (Guess, Walk) {
    let mut guess = guess.clone();
    let walk = scan.knowledge[start.volume].walk(|byte, length, is_it| {
        let first = start.sector.checked_add(byte / SECTOR as u64)?;
        let skipped = small(byte % SECTOR as u64);
        let sectors = (skipped + length).div_ceil(SECTOR);
        let cut = |mut bytes: Vec<u8>| {
            bytes.drain(..skipped);
            bytes.truncate(length);
            bytes
        };
        let mut slot = None;
        each_place(geometry, first, |at, _| slot = slot.or(Some(at.index())));
        let slot = slot.filter(|slot| guess.slots[*slot].is_none());
        let Some(slot) = slot else {
            return read_array(&guess, geometry, members, first, sectors).map(cut);
        };
        let free: Vec<usize> =
            (0..members.len()).filter(|member| !guess.slots.contains(&Some(*member))).collect();
        let mut found = free.iter().filter_map(|member| {
            let mut tried = guess.clone();
            tried.slots[slot] = Some(*member);
            let bytes = read_array(&tried, geometry, members, first, sectors).map(cut)?;
            is_it(&bytes).then_some((tried, bytes))
        });
        let (seated, bytes) = found.next()?;
        if found.next().is_some() {
            return None;
        }
        drop(found);
        guess = seated;
        Some(bytes)
    });
    (guess, walk)
}

/// Sectors of the array by a guess: where they are, or made of the other members by P. `None` if that is not known.
fn read_array(
    guess: &Guess,
    geometry: &Geometry,
    members: &[&dyn Platter],
    first: u64,
    sectors: usize,
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; sectors * SECTOR];
    for (sector, piece) in (first..).zip(bytes.chunks_mut(SECTOR)) {
        let places = guess.places(geometry, sector);
        match places.first() {
            Some((member, at)) => read_sector(members[*member], *at, piece).then_some(())?,
            None => made_of_parity(guess, geometry, members, sector, piece)?,
        }
    }
    Some(bytes)
}

fn read_sector(member: &dyn Platter, at: u64, piece: &mut [u8]) -> bool {
    at < member.sectors() && member.read(at, piece)
}

fn made_of_parity(
    guess: &Guess,
    geometry: &Geometry,
    members: &[&dyn Platter],
    sector: u64,
    piece: &mut [u8],
) -> Option<()> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    let (p, at) = guess.parity_place(geometry, sector)?;
    read_sector(members[p], at, piece).then_some(())?;
    let address = stripe.locate(LogicalSector(sector));
    let map = stripe.row_map(address.row);
    let place = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
    let mut other = [0; SECTOR];
    for index in (0..map.data_slots()).filter(|index| *index != address.data_index) {
        let slot = map.data_slot(index).index();
        let member = members[guess.slots[slot]?];
        read_sector(member, guess.offsets[slot] + place, &mut other).then_some(())?;
        kernel().xor_into(piece, &[&other]);
    }
    Some(())
}

fn page(member: &dyn Platter, sector: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE * SECTOR];
    let fits = sector.checked_add(PAGE as u64)? <= member.sectors();
    (fits && member.read(sector, &mut bytes)).then_some(bytes)
}

/// Compares parity, or copies, at places all over the members: how often they agree, of how many.
pub(crate) fn compare(
    guess: &Guess,
    geometry: &Geometry,
    members: &[&dyn Platter],
) -> (usize, usize) {
    let used = (0..guess.slots.len())
        .filter(|slot| guess.slots[*slot].is_some())
        .map(|slot| guess.data_sectors[slot])
        .min()
        .unwrap_or(0);
    let half = COMPARED_MAX / 2;
    let places = |sectors: u64| (0..half).map(move |at| (sectors / half * at) & !0x7);
    let places: BTreeSet<u64> = places(used.min(NEAR_SECTORS)).chain(places(used)).collect();
    let (mut agreeing, mut compared) = (0, 0);
    for place in places {
        let agrees = match geometry {
            Geometry::Direct(_) => None,
            Geometry::Mirror(_) => copies_agree(guess, geometry, members, place),
            Geometry::Stripe(stripe) => parity_agrees(guess, stripe, members, place),
        };
        if let Some(agrees) = agrees {
            compared += 1;
            agreeing += usize::from(agrees);
        }
    }
    (agreeing, compared)
}

/// `None` if there is nothing to compare.
fn copies_agree(
    guess: &Guess,
    geometry: &Geometry,
    members: &[&dyn Platter],
    place: u64,
) -> Option<bool> {
    let Geometry::Mirror(mirror) = geometry else { return None };
    let slots = 0..u16::try_from(guess.slots.len()).ok()?;
    let mut verdict = None;
    for slot in slots {
        let Some((sector, _)) = mirror.logical(Slot(slot), MemberSector(place)) else { continue };
        let places = guess.places(geometry, sector.0);
        let copies: Option<Vec<_>> =
            places.iter().map(|(member, at)| page(members[*member], *at)).collect();
        let Some(copies) = copies.filter(|copies| copies.len() > 1) else { continue };
        let is_blank = copies.iter().flatten().all(|byte| *byte == 0);
        if !is_blank {
            let are_alike = copies.windows(2).all(|pair| pair[0] == pair[1]);
            verdict = Some(verdict.unwrap_or(true) && are_alike);
        }
    }
    verdict
}

/// `None` if there is nothing to compare: too much is missing, or all is zero.
fn parity_agrees(
    guess: &Guess,
    stripe: &StripeGeometry,
    members: &[&dyn Platter],
    place: u64,
) -> Option<bool> {
    let row = stripe.row_of(MemberSector(place));
    if row.0 >= stripe.rows() {
        return None;
    }
    let map = stripe.row_map(row);
    let read = |slot: Slot| {
        let member = guess.slots[slot.index()]?;
        page(members[member], guess.offsets[slot.index()].checked_add(place)?)
    };
    let data: Option<Vec<_>> = (0..map.data_slots()).map(|at| read(map.data_slot(at))).collect();
    let data = data?;
    let (p, q) = (read(map.p_slot()), map.q_slot().and_then(read));
    let is_blank = data.iter().chain(&p).chain(&q).flatten().all(|byte| *byte == 0);
    if is_blank || p.is_none() && q.is_none() {
        return None;
    }
    let mut columns: Vec<Option<&[u8]>> = vec![None; usize::from(map.exponents_count())];
    for (at, bytes) in (0..).zip(&data) {
        columns[usize::from(map.exponent(at))] = Some(bytes);
    }
    let (mut made_p, mut made_q) = (vec![0; PAGE * SECTOR], vec![0; PAGE * SECTOR]);
    if q.is_some() {
        kernel().pq(&columns, &mut made_p, &mut made_q);
    } else {
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        kernel().xor(&mut made_p, &data);
    }
    Some(p.is_none_or(|p| p == made_p) && q.is_none_or(|q| q == made_q))
}

/// Whether a member that the guess takes for data alone looks like parity of others.
///
/// Parity of members that are mostly zeroes looks like the one of them that is not. But it is zero only where all of them are, and
/// shows something with an address only where all but one are. A member of data has no reason to be so.
pub(crate) fn looks_like_parity(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
) -> bool {
    let seats = || (0..guess.slots.len()).filter_map(|slot| Some((slot, guess.slots[slot]?)));
    let holds_data_alone = |slot: usize| match geometry {
        Geometry::Direct(_) => guess.level == Level::Raid0,
        Geometry::Mirror(_) => false,
        Geometry::Stripe(stripe) => (0..stripe.rows().min(guess.slots.len() as u64)).all(|row| {
            let slot = u16::try_from(slot).map(Slot).expect("slots are few");
            matches!(stripe.row_map(ChunkRow(row)).role(slot), Role::Data(_))
        }),
    };
    let is_blank = |slot: usize, member: usize, place: u64| {
        let mut bytes = [0; SECTOR];
        let at = guess.offsets[slot].checked_add(place)?;
        read_sector(members[member], at, &mut bytes).then(|| bytes.iter().all(|byte| *byte == 0))
    };
    let others_blank = |own: usize, place: u64| {
        let mut others = seats().filter(|(_, member)| *member != own);
        others.all(|(slot, member)| is_blank(slot, member, place) == Some(true))
    };
    seats().filter(|(slot, _)| holds_data_alone(*slot)).any(|(slot, own)| {
        let signs = scan.signs.iter().filter(|sign| sign.member == own);
        let step = signs.clone().count().div_ceil(PREDICTIONS_MAX).max(1);
        let mut places =
            signs.step_by(step).filter_map(|sign| sign.sector.checked_sub(guess.offsets[slot]));
        if !places.all(|place| others_blank(own, place)) {
            return false;
        }
        let of_others = scan.signs.iter().filter(|sign| sign.member != own);
        let step = of_others.clone().count().div_ceil(PREDICTIONS_MAX).max(1);
        let (mut blank, mut all) = (0, 0);
        for sign in of_others.step_by(step) {
            let Some((at, _)) = seats().find(|(_, member)| *member == sign.member) else {
                continue;
            };
            let Some(place) = sign.sector.checked_sub(guess.offsets[at]) else { continue };
            if let Some(is_blank) = is_blank(slot, own, place) {
                all += 1;
                blank += usize::from(is_blank);
            }
        }
        all >= 6 && blank == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Evidence;
    use crate::sign::Sign;

    /// Of an array that md wrote, more than half of the inodes that were found stood in the journal alone, and spoke against what was right.
    #[test]
    fn copies_in_a_journal_speak_against_nothing() {
        let guess = Guess {
            level: Level::Raid0,
            layout: 0,
            chunk_sectors: 128,
            slots: vec![Some(0), Some(1)],
            offsets: vec![2048; 2],
            data_sectors: vec![4096; 2],
            starts: vec![Start { volume: 0, sector: 0 }],
            evidence: Evidence::default(),
        };
        let sign = |member, sector, address| Sign {
            member,
            sector,
            volume: 0,
            belongs: Belongs::at(address),
        };
        // A page of inodes where it belongs, and blocks of it far behind it.
        let mut scan = Scan::default();
        scan.signs.extend([sign(0, 2048 + 16, 16), sign(1, 5000, 18), sign(1, 5010, 22)]);
        let geometry = guess.geometry().expect("a map");
        assert_eq!(explain(&guess, &geometry, &scan), (1, 1));
        // Another page that stands where it should not does.
        scan.signs.push(sign(1, 5020, 24));
        assert_eq!(explain(&guess, &geometry, &scan), (1, 2));
    }
}
