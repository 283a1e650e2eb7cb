//! The checker of redundancy. "Clean" promises that copies are equal and parity fits, on the disks
//! themselves (I5 in docs/write-path.md).
//!
//! [`agrees`] checks one strip ([`crate::taint`]), with the bytes of the disks or those of honest
//! disks. Only strips that lies have touched, and logged sectors that no client has written, are
//! exempt.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_assembly::{AssembledArray, Occupant};
use braid_geometry::{ChunkRow, Geometry, MemberSector, MirrorGeometry, Slot, StripeGeometry};
use braid_parity::definition;

use crate::bad_blocks::BadLogs;
use crate::content::{SECTOR, bytes, parity, places};
use crate::disk::Disk;

pub(crate) struct Areas<'a> {
    pub(crate) disks: &'a [Disk],
    /// By slot: the disk of its member, and the sector of that disk where data begins.
    pub(crate) slots: Vec<Option<(usize, u64)>>,
    /// By slot: how many sectors of the data area hold content; empty if all do.
    pub(crate) promised: Vec<u64>,
    /// By slot: the sectors that its bad-block log names, which need not fit. Empty if only poison
    /// is exempt.
    pub(crate) logged: Vec<Vec<Range<u64>>>,
    /// Single sectors are read as an honest disk would hold them, not as the disk returns them.
    pub(crate) is_honest: bool,
}

impl<'a> Areas<'a> {
    fn is_logged(&self, slot: Slot, sectors: &Range<u64>) -> bool {
        let meets = |one: &Range<u64>| one.start < sectors.end && sectors.start < one.end;
        self.logged.get(slot.index()).is_some_and(|logged| logged.iter().any(meets))
    }

    fn get(&self, slot: Slot, start: u64, sectors: u64) -> Option<&'a [u8]> {
        let (disk, offset) = self.slots[slot.index()]?;
        let promised = self.promised.get(slot.index()).copied().unwrap_or(u64::MAX);
        (start + sectors <= promised)
            .then(|| &self.disks[disk].seen[bytes(offset + start, sectors)])
    }

    fn get_one(&self, slot: Slot, sector: MemberSector) -> Option<&'a [u8]> {
        let (disk, offset) = self.slots[slot.index()]?;
        if self.is_honest {
            return Some(self.disks[disk].honest(offset + sector.0));
        }
        self.get(slot, sector.0, 1)
    }
}

/// Whether the copies of a strip are equal, or its parity fits. `None` if nothing in the strip is
/// redundant.
pub(crate) fn agrees(geometry: &Geometry, areas: &Areas<'_>, strip: u64) -> Option<bool> {
    match geometry {
        Geometry::Direct(_) => None,
        Geometry::Mirror(_) => {
            let places = places(geometry, strip).into_iter();
            let copies: Vec<&[u8]> =
                places.filter_map(|(slot, place)| areas.get_one(slot, place)).collect();
            (copies.len() > 1).then(|| copies.iter().all(|copy| *copy == copies[0]))
        }
        Geometry::Stripe(stripe) => {
            let row = stripe.row_of(MemberSector(strip));
            let map = stripe.row_map(row);
            let column = |slot| areas.get_one(slot, MemberSector(strip));
            let data: Option<Vec<&[u8]>> =
                (0..map.data_slots()).map(|index| column(map.data_slot(index))).collect();
            let expected = parity(stripe, row, &data?);
            let found = expected.iter().filter_map(|(slot, data)| Some((column(*slot)?, data)));
            let fits: Vec<bool> = found.map(|(found, data)| found == data).collect();
            (!fits.is_empty()).then(|| fits.into_iter().all(|fits| fits))
        }
    }
}

pub(crate) struct CheckExemptions<'a> {
    /// Strips that may be wrong because of lies.
    pub(crate) doubtful: &'a BTreeSet<u64>,
    pub(crate) logs: &'a BadLogs,
    /// Parity logs were replayed since redundancy was last whole.
    pub(crate) was_replayed: bool,
}

impl CheckExemptions<'_> {
    /// One sector of a slot; `None` if a bad-block log names it and no client has written it since.
    fn sound<'a>(&self, areas: &Areas<'a>, slot: Slot, sector: u64) -> Option<&'a [u8]> {
        let (disk, _) = areas.slots[slot.index()]?;
        let data = areas.get(slot, sector, 1)?;
        let is_logged = areas.is_logged(slot, &(sector..sector + 1));
        (!is_logged && !self.logs.is_poison(disk, sector, data)).then_some(data)
    }
}

/// Checks the redundancy of an array that assembly found clean, except in exempt strips.
///
/// # Panics
/// If redundancy does not agree.
pub(crate) fn check_clean(
    assembled: &AssembledArray,
    disks: &[Disk],
    presented: &[usize],
    data_offset: u64,
    exempt: &CheckExemptions<'_>,
) {
    let slots = || assembled.slots.iter().map(Option::as_ref);
    let places = slots().map(|slot| slot.map(|one| (presented[one.member], data_offset)));
    // The sectors of a member under recovery count only up to its recovery offset.
    let promised = slots().map(|slot| slot.map_or(0, |one| one.recovered_until)).collect();
    // Replay skips sectors that a member's bad-block log names. As long as
    // the log names them, reads compute them from parity, with or without parity logs.
    let logged = match exempt.was_replayed {
        true => slots().map(|slot| slot.map(Occupant::bad_sectors).unwrap_or_default()).collect(),
        false => Vec::new(),
    };
    let areas = Areas { disks, slots: places.collect(), promised, logged, is_honest: false };
    let check = |areas: &Areas<'_>| match &assembled.geometry {
        Geometry::Direct(_) => {}
        Geometry::Mirror(mirror) => check_mirror(&assembled.geometry, mirror, areas, exempt),
        Geometry::Stripe(stripe) => check_stripe(stripe, areas, exempt),
    };
    check(&areas);
    // Up to its recovery offset a replacement must hold the same bytes as the member.
    for (slot, one) in &assembled.replacements {
        let (mut slots, mut promised) = (areas.slots.clone(), areas.promised.clone());
        slots[slot.index()] = Some((presented[one.member], data_offset));
        promised[slot.index()] = one.recovered_until;
        let logged = areas.logged.clone();
        check(&Areas { disks, slots, promised, logged, is_honest: false });
    }
}

fn check_mirror(
    geometry: &Geometry,
    mirror: &MirrorGeometry,
    areas: &Areas<'_>,
    exempt: &CheckExemptions<'_>,
) {
    for sector in 0..mirror.capacity_sectors() {
        let places = places(geometry, sector).into_iter();
        let mut copies = places.filter_map(|(slot, place)| exempt.sound(areas, slot, place.0));
        let first = copies.next();
        let agree = copies.all(|copy| Some(copy) == first) || exempt.doubtful.contains(&sector);
        assert!(agree, "the array is clean and the copies of sector {sector} differ");
    }
}

fn check_stripe(stripe: &StripeGeometry, areas: &Areas<'_>, exempt: &CheckExemptions<'_>) {
    for row in (0..stripe.rows()).map(ChunkRow) {
        let map = stripe.row_map(row);
        let start = stripe.row_start(row).0;
        let sectors = u64::from(stripe.chunk_sectors());
        if is_logged(areas, start..start + sectors, exempt) {
            (start..start + sectors).for_each(|strip| check_strip(stripe, areas, strip, exempt));
            continue;
        }
        let chunk = |slot| areas.get(slot, start, sectors);
        let columns: Option<Vec<&[u8]>> =
            (0..map.data_slots()).map(|index| chunk(map.data_slot(index))).collect();
        // If a data column is missing, this check is left to reads, which compare the computed
        // data.
        let Some(columns) = columns else { continue };
        for (slot, expected) in parity(stripe, row, &columns) {
            let agrees = chunk(slot).is_none_or(|found| {
                found == expected
                    || differ_in_doubt(stripe.row_start(row), found, &expected, exempt.doubtful)
            });
            assert!(agrees, "the array is clean and parity of {row:?} in slot {slot} does not fit");
        }
    }
}

fn is_logged(areas: &Areas<'_>, sectors: Range<u64>, exempt: &CheckExemptions<'_>) -> bool {
    let slots = (0..).map(Slot).take(areas.slots.len());
    let is_named = areas.slots.iter().flatten().any(|(disk, _)| exempt.logs.names(*disk, &sectors));
    is_named || slots.into_iter().any(|slot| areas.is_logged(slot, &sectors))
}

/// Checks a strip in which a bad-block log names sectors. If one data column is unknown, it is
/// computed from P, and then Q must fit.
fn check_strip(
    stripe: &StripeGeometry,
    areas: &Areas<'_>,
    strip: u64,
    exempt: &CheckExemptions<'_>,
) {
    let row = stripe.row_of(MemberSector(strip));
    let map = stripe.row_map(row);
    let sound = |slot| exempt.sound(areas, slot, strip);
    let columns: Vec<Option<&[u8]>> =
        (0..map.data_slots()).map(|index| sound(map.data_slot(index))).collect();
    let mut solved = vec![0; SECTOR];
    let known: Vec<&[u8]> = columns.iter().flatten().copied().collect();
    match (columns.len() - known.len(), sound(map.p_slot())) {
        (0, _) => {}
        (1, Some(p)) => definition::xor(&mut solved, &[&known[..], &[p]].concat()),
        // Too many columns are unknown for a check.
        _ => return,
    }
    let columns: Vec<&[u8]> = columns.into_iter().map(|one| one.unwrap_or(&solved)).collect();
    for (slot, expected) in parity(stripe, row, &columns) {
        let agrees = sound(slot).is_none_or(|found| found == expected);
        let is_right = agrees || exempt.doubtful.contains(&strip);
        assert!(
            is_right,
            "the array is clean and parity of strip {strip} in slot {slot} does not fit"
        );
    }
}

/// Whether the found and the expected bytes of a chunk differ in doubtful strips only.
fn differ_in_doubt(
    start: MemberSector,
    found: &[u8],
    expected: &[u8],
    doubtful: &BTreeSet<u64>,
) -> bool {
    let sectors = found.chunks_exact(SECTOR).zip(expected.chunks_exact(SECTOR));
    (start.0..).zip(sectors).all(|(strip, (one, other))| one == other || doubtful.contains(&strip))
}
