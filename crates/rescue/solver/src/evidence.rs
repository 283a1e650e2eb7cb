//! The evidence for and against a guess.
//!
//! A guess is made from signs at the places that the guess says. The guess's predictions are worth
//! more: backups and headers at places that were not read yet, parity that agrees, copies that are
//! alike. Zeroes agree with anything and are not counted.

use std::collections::BTreeSet;

use braid_geometry::{
    ChunkRow, Geometry, Level, LogicalSector, MemberSector, Role, RowMap, Slot, StripeGeometry,
};
use braid_parity::kernel;

use crate::Platter;
use crate::bytes::{SECTOR, is_blank, small};
use crate::counts::Evidence;
use crate::guess::{Guess, VolumeStart, each_place};
use crate::place_index::Fact;
use crate::scan::Scan;
use crate::sign::{ALIKE, Addresses, Walk};

const PREDICTIONS_MAX: usize = 24;
/// Facts read for each volume.
const FACTS: usize = 128;
/// Facts read for each volume for a guess that is one of thousands.
const FACTS_FIRST: usize = 48;
/// One guess of thousands is dropped once this many more facts speak against it than for it.
const AGAINST_MAX: usize = 6;
/// The number of refutations that a guess gets if a volume is larger than the guess's array.
const TOO_LARGE: usize = 4;
const COMPARED_MAX: u64 = 192;
/// Sectors compared at each compared place: a page, which is the smallest chunk.
const PAGE: usize = 8;
/// Half of the compared places are in this many sectors at the start of each member.
const NEAR_SECTORS: u64 = 32 << 11;

/// Counts the signs that a guess explains, for volumes whose start the guess has. Signs of one page
/// count once.
///
/// A journal has copies of pages. The signs on a copy are often of other sectors than the signs on
/// the page at its own place.
pub(crate) fn explain(guess: &Guess, geometry: &Geometry, scan: &Scan) -> Evidence {
    let mut evidence = Evidence::default();
    let mut heard = BTreeSet::new();
    for start in &guess.starts {
        let mut holds: BTreeSet<Addresses> = BTreeSet::new();
        let mut known: BTreeSet<Addresses> = BTreeSet::new();
        let mut seen: BTreeSet<Addresses> = BTreeSet::new();
        for sign in scan.signs.iter().filter(|sign| sign.volume == start.volume) {
            let page = sign.addresses.page();
            seen.insert(page);
            let found = (sign.member, sign.sector);
            let stands_there = |address: u64| {
                let sector = start.sector.saturating_add(address);
                let places = guess.places(geometry, sector);
                places.contains(&found)
                    || places.is_empty() && guess.parity_place(geometry, sector) == Some(found)
            };
            if sign.addresses.iter().any(stands_there) {
                heard.insert(sign.member);
                holds.insert(page);
                known.insert(page);
            } else if !is_parity(guess, geometry, found) {
                known.insert(page);
            }
        }
        evidence.explained += holds.len();
        evidence.weight += holds.iter().map(Addresses::strength).sum::<usize>() / ALIKE;
        evidence.addresses += known.len();
        evidence.seen += seen.len();
    }
    evidence.is_unheard = guess.slots.iter().flatten().any(|member| !heard.contains(member));
    evidence
}

/// Whether a guess takes this sector of a member for parity. Checksums are linear: parity of an odd
/// number of blocks with valid checksums also has a valid checksum, but a meaningless address.
fn is_parity(guess: &Guess, geometry: &Geometry, (member, sector): (usize, u64)) -> bool {
    let Geometry::Stripe(stripe) = geometry else { return false };
    let Some(slot) = guess.slots.iter().position(|slot| *slot == Some(member)) else {
        return false;
    };
    let Some(place) = sector.checked_sub(guess.offsets[slot]) else { return false };
    let row = stripe.row_of(MemberSector(place));
    let slot = u16::try_from(slot).map(Slot).expect("slots are few");
    row.0 < stripe.rows() && !matches!(stripe.row_map(row).role(slot), Role::Data(_))
}

/// Reads predicted structures. Returns the numbers of structures found and missing, and whether one
/// member lacks many.
pub(crate) fn predict(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
) -> (Walk, bool) {
    let mut met = Walk::default();
    // Predictions are counted for each member; sectors that are computed belong to no member.
    let mut by_member = vec![Walk::default(); members.len()];
    for start in &guess.starts {
        let (volume, metadata) = (&scan.volumes[start.volume], &scan.metadata[start.volume]);
        // If a volume is larger than the array, the guess lacks members.
        if start.sector.saturating_add(volume.size_sectors) > geometry.capacity_sectors() {
            met.refuted += TOO_LARGE;
        }
        for address in metadata.predictions().into_iter().take(PREDICTIONS_MAX) {
            if address >= volume.size_sectors {
                continue;
            }
            let sector = start.sector.saturating_add(address);
            let looked = read_array(guess, geometry, members, sector, PAGE);
            met.saw(looked.map(|bytes| metadata.confirms(volume, address, &bytes)));
        }
        // A wrong guess may take the sources of most facts for parity. Then facts from other
        // sources are read.
        let is_said = |fact: &Fact| !is_parity(guess, geometry, fact.source);
        for fact in scan.places[start.volume].facts_that(FACTS, is_said) {
            let looked = read_bytes(guess, geometry, members, *start, fact.byte, fact.length);
            let Some(bytes) = looked else { continue };
            let holds = fact.holds(metadata, &bytes);
            met.saw(Some(holds));
            let first = start.sector.saturating_add(fact.byte / SECTOR as u64);
            if let Some((member, _)) = guess.places(geometry, first).first() {
                by_member[*member].saw(Some(holds));
            }
        }
        let walk = walk(guess, geometry, scan, members, *start);
        met.confirmed += walk.confirmed;
        met.refuted += walk.refuted;
    }
    let is_doubted = by_member.iter().any(|it| it.refuted * 4 > it.confirmed);
    (met, is_doubted)
}

/// Walks a volume's structures at the places that the guess says.
pub(crate) fn walk(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
    start: VolumeStart,
) -> Walk {
    scan.metadata[start.volume]
        .walk(|byte, length, _| read_bytes(guess, geometry, members, start, byte, length))
}

/// Fills the empty slots of a guess. The metadata of a volume predicts its next structure, and the
/// guess says where in an empty slot that structure would be. A member without a slot gets the slot
/// if no other such member has the structure there.
pub(crate) fn assign_by_walk(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
    start: VolumeStart,
) -> (Guess, Walk) {
    let asked = guess;
    let mut guess = guess.clone();
    let mut read = |byte: u64, length: usize, is_it: &dyn Fn(&[u8]) -> bool| {
        let first = start.sector.checked_add(byte / SECTOR as u64)?;
        let mut slot = None;
        each_place(geometry, first, |at, _| slot = slot.or(Some(at.index())));
        let slot = slot.filter(|slot| guess.slots[*slot].is_none());
        let Some(slot) = slot else {
            return read_bytes(&guess, geometry, members, start, byte, length);
        };
        let free: Vec<usize> =
            (0..members.len()).filter(|member| !guess.slots.contains(&Some(*member))).collect();
        // The member may hold the data itself, or the parity from which the data is computed.
        let parities = parity_slots(geometry, first);
        let assignments = std::iter::once(slot)
            .chain(parities)
            .filter(|slot| guess.slots[*slot].is_none())
            .flat_map(|slot| free.iter().map(move |member| (slot, *member)));
        let mut found = assignments.filter_map(|(slot, member)| {
            let mut tried = guess.clone();
            tried.slots[slot] = Some(member);
            let bytes = read_bytes(&tried, geometry, members, start, byte, length)?;
            is_it(&bytes).then_some((tried, bytes))
        });
        let (assigned, bytes) = found.next()?;
        if found.next().is_some() {
            return None;
        }
        drop(found);
        guess = assigned;
        Some(bytes)
    };
    let metadata = &scan.metadata[start.volume];
    let mut walk = metadata.walk(&mut read);
    for fact in scan.places[start.volume].facts(FACTS_FIRST) {
        if walk.refuted > walk.confirmed + AGAINST_MAX {
            break;
        }
        if is_parity(asked, geometry, fact.source) {
            continue;
        }
        let holds = |bytes: &[u8]| fact.holds(metadata, bytes);
        walk.saw(read(fact.byte, fact.length, &holds).map(|bytes| holds(&bytes)));
    }
    (guess, walk)
}

fn parity_slots(geometry: &Geometry, sector: u64) -> Vec<usize> {
    let Geometry::Stripe(stripe) = geometry else { return Vec::new() };
    if sector >= stripe.capacity_sectors() {
        return Vec::new();
    }
    let map = stripe.row_map(stripe.locate(LogicalSector(sector)).row);
    std::iter::once(map.p_slot()).chain(map.q_slot()).map(Slot::index).collect()
}

fn read_bytes(
    guess: &Guess,
    geometry: &Geometry,
    members: &[&dyn Platter],
    start: VolumeStart,
    byte: u64,
    length: usize,
) -> Option<Vec<u8>> {
    let first = start.sector.checked_add(byte / SECTOR as u64)?;
    let skipped = small(byte % SECTOR as u64);
    let sectors = (skipped + length).div_ceil(SECTOR);
    let mut bytes = read_array(guess, geometry, members, first, sectors)?;
    bytes.drain(..skipped);
    bytes.truncate(length);
    Some(bytes)
}

/// Reads sectors of the array as the guess says: from the members that hold them, or computed by P.
/// `None` if neither is possible.
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
    if sector >= stripe.capacity_sectors() {
        return None;
    }
    let address = stripe.locate(LogicalSector(sector));
    let map = stripe.row_map(address.row);
    let place = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
    let read = |slot: Slot| {
        let member = members[guess.slots[slot.index()]?];
        let mut bytes = vec![0; SECTOR];
        read_sector(member, guess.offsets[slot.index()].checked_add(place)?, &mut bytes)
            .then_some(bytes)
    };
    let data: Vec<_> = (0..map.data_slots()).map(|at| read(map.data_slot(at))).collect();
    let lost: Vec<u16> =
        (0..).zip(&data).filter(|(_, bytes)| bytes.is_none()).map(|(at, _)| at).collect();
    let (p, q) = (read(map.p_slot()), map.q_slot().and_then(read));
    let own = map.exponent(address.data_index);
    match (lost.as_slice(), p, q) {
        ([_], Some(p), _) => {
            piece.copy_from_slice(&p);
            data.iter().flatten().for_each(|bytes| kernel().xor_into(piece, &[bytes]));
        }
        ([_], None, Some(q)) => {
            kernel().recover_data_from_q(&columns_of(map, &data), &q, own, piece);
        }
        ([one, two], Some(p), Some(q)) => {
            let other = if *one == address.data_index { *two } else { *one };
            let mut beside = vec![0; SECTOR];
            let lost = (own, map.exponent(other));
            kernel().recover_two_data(
                &columns_of(map, &data),
                (&p, &q),
                lost,
                (piece, &mut beside),
            );
        }
        _ => return None,
    }
    Some(())
}

/// A member, a sector of the member, and the exponent of this sector's data in Q.
type Source = (usize, u64, Option<u16>);

/// The sectors from which a sector of a missing member is computed, each with its exponent in Q if
/// Q is needed, and the sector's own exponent. `None` if the sector cannot be computed.
pub(crate) fn made_of(
    guess: &Guess,
    geometry: &Geometry,
    sector: u64,
) -> Option<(u16, BTreeSet<Source>)> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    (sector < stripe.capacity_sectors()).then_some(())?;
    let address = stripe.locate(LogicalSector(sector));
    let map = stripe.row_map(address.row);
    let at = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
    let place = |slot: Slot| {
        Some((guess.slots[slot.index()]?, guess.offsets[slot.index()].saturating_add(at)))
    };
    let data = || (0..map.data_slots()).map(|index| (index, place(map.data_slot(index))));
    let lost = data().filter(|(_, place)| place.is_none()).count();
    let (p, q) = (place(map.p_slot()), map.q_slot().and_then(place));
    let needs_q = !(lost == 1 && p.is_some());
    if needs_q && (q.is_none() || lost > 1 + usize::from(p.is_some())) {
        return None;
    }
    let exponent = |index| if needs_q { Some(map.exponent(index)) } else { None };
    let mut sources: BTreeSet<_> = data()
        .filter_map(|(index, place)| place.map(|(member, at)| (member, at, exponent(index))))
        .collect();
    sources.extend(p.map(|(member, at)| (member, at, None)));
    // The sector of Q itself is marked by an exponent above all others.
    sources.extend(q.filter(|_| needs_q).map(|(member, at)| (member, at, Some(u16::MAX))));
    Some((exponent(address.data_index).unwrap_or(u16::MAX), sources))
}

/// Data pages in order of their exponents in Q.
fn columns_of(map: RowMap, data: &[Option<Vec<u8>>]) -> Vec<Option<&[u8]>> {
    let mut columns: Vec<Option<&[u8]>> = vec![None; usize::from(map.exponents_count())];
    for (at, bytes) in (0..).zip(data) {
        columns[usize::from(map.exponent(at))] = bytes.as_deref();
    }
    columns
}

fn page(member: &dyn Platter, sector: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE * SECTOR];
    let fits = sector.checked_add(PAGE as u64)? <= member.sectors();
    (fits && member.read(sector, &mut bytes)).then_some(bytes)
}

/// Compares parity, or copies, at places all over the members. Returns the number of places that
/// agree, and the number of places compared.
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

/// Whether copies agree; `None` if there is nothing to compare.
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
        if !copies.iter().all(|page| is_blank(page)) {
            let are_alike = copies.windows(2).all(|pair| pair[0] == pair[1]);
            verdict = Some(verdict.unwrap_or(true) && are_alike);
        }
    }
    verdict
}

/// Whether parity agrees; `None` if there is nothing to compare: too many pages of the row are
/// missing, or all are zero.
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
    let mut data: Vec<_> = (0..map.data_slots()).map(|at| read(map.data_slot(at))).collect();
    let (p, q) = (read(map.p_slot()), map.q_slot().and_then(read));
    if data.iter().chain([&p, &q]).flatten().all(|page| is_blank(page)) {
        return None;
    }
    let lost: Vec<usize> = (0..data.len()).filter(|at| data[*at].is_none()).collect();
    match (lost.as_slice(), &p, &q) {
        ([], Some(_), _) | ([], _, Some(_)) => {}
        // If one data page is missing, the page is computed from P, and then Q must fit.
        ([one], Some(p), Some(_)) => {
            let mut made = p.clone();
            data.iter().flatten().for_each(|page| kernel().xor_into(&mut made, &[page]));
            data[*one] = Some(made);
        }
        _ => return None,
    }
    let (mut made_p, mut made_q) = (vec![0; PAGE * SECTOR], vec![0; PAGE * SECTOR]);
    if q.is_some() {
        kernel().pq(&columns_of(map, &data), &mut made_p, &mut made_q);
    } else {
        let data: Vec<&[u8]> = data.iter().flatten().map(Vec::as_slice).collect();
        kernel().xor(&mut made_p, &data);
    }
    Some(p.is_none_or(|p| p == made_p) && q.is_none_or(|q| q == made_q))
}

/// Whether a member that the guess takes for pure data looks like parity of others.
///
/// Where all members but one are zero, parity looks like the one that is not. But parity is zero
/// only where all members are zero, and shows an address only where all members but one are zero.
/// Plain data has no reason for such a pattern.
pub(crate) fn looks_like_parity(
    guess: &Guess,
    geometry: &Geometry,
    scan: &Scan,
    members: &[&dyn Platter],
) -> bool {
    let assignments = || (0..guess.slots.len()).filter_map(|slot| Some((slot, guess.slots[slot]?)));
    let holds_data_alone = |slot: usize| match geometry {
        Geometry::Direct(_) => guess.level == Level::Raid0,
        Geometry::Mirror(_) => false,
        Geometry::Stripe(stripe) => (0..stripe.rows().min(guess.slots.len() as u64)).all(|row| {
            let slot = u16::try_from(slot).map(Slot).expect("slots are few");
            matches!(stripe.row_map(ChunkRow(row)).role(slot), Role::Data(_))
        }),
    };
    let is_zero = |slot: usize, member: usize, place: u64| {
        let mut bytes = [0; SECTOR];
        let at = guess.offsets[slot].checked_add(place)?;
        read_sector(members[member], at, &mut bytes).then(|| is_blank(&bytes))
    };
    let others_blank = |own: usize, place: u64| {
        let mut others = assignments().filter(|(_, member)| *member != own);
        others.all(|(slot, member)| is_zero(slot, member, place) == Some(true))
    };
    assignments().filter(|(slot, _)| holds_data_alone(*slot)).any(|(slot, own)| {
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
            let Some((at, _)) = assignments().find(|(_, member)| *member == sign.member) else {
                continue;
            };
            let Some(place) = sign.sector.checked_sub(guess.offsets[at]) else { continue };
            if let Some(is_zero) = is_zero(slot, own, place) {
                all += 1;
                blank += usize::from(is_zero);
            }
        }
        all >= 6 && blank == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::Sign;

    /// In an array of md, most inodes that were found were copies in the journal, and these copies
    /// counted against the right guess.
    #[test]
    fn copies_in_a_journal_speak_against_nothing() {
        let guess = Guess {
            level: Level::Raid0,
            layout: 0,
            chunk_sectors: 128,
            slots: vec![Some(0), Some(1)],
            offsets: vec![2048; 2],
            data_sectors: vec![4096; 2],
            starts: vec![VolumeStart { volume: 0, sector: 0 }],
            evidence: Evidence::default(),
        };
        let sign = |member, sector, address| Sign {
            member,
            sector,
            volume: 0,
            addresses: Addresses::at(address),
        };
        // A page of inodes is at its right place, and copies of this page are far after it.
        let mut scan = Scan::default();
        scan.signs.extend([sign(0, 2048 + 16, 16), sign(1, 5000, 18), sign(1, 5010, 22)]);
        let geometry = guess.geometry().expect("a map");
        let counted = |scan: &Scan| {
            let found = explain(&guess, &geometry, scan);
            (found.explained, found.addresses)
        };
        assert_eq!(counted(&scan), (1, 1));
        // A different page at a wrong place does count against the guess.
        scan.signs.push(sign(1, 5020, 24));
        assert_eq!(counted(&scan), (1, 2));
    }
}
