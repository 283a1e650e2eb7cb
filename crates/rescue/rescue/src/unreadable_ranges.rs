//! Finds the bytes of the array that are lost: those that a copy lacks and the other members cannot
//! replace.
//!
//! ```text
//!   holes of a copy ─▶ sectors of its data ─▶ sectors of the array ─▶ read ─▶ failed reads: lost
//! ```
//!
//! The geometry only says which sectors to read. A sector is lost if its read fails.

use std::ops::Range;

use braid_assembly::AssembledArray;
use braid_geometry::{Geometry, LogicalSector, MemberSector, Role, SECTOR_BYTES, Slot};
use braid_ring::Payload;
use braid_runtime::{ClientRequest, Volume};

use super::overlay::BLOCK_BYTES;

/// Bytes of one read; if the read fails, its sectors are read one by one.
const TRIED_BYTES: u64 = 64 << 10;
/// The most bytes missing in copies for which the array is read. Of larger holes only the first
/// bytes are tried.
const LOOKED_BYTES_MAX: u64 = 64 << 20;

/// The array sectors that are stored in these sectors of a slot's data, in ranges of at most a
/// chunk. With `is_whole`, all array sectors of the same rows, so that rows are also found by their
/// parity.
pub(super) fn array_sectors(
    geometry: &Geometry,
    slot: Slot,
    sectors: &Range<u64>,
    is_whole: bool,
) -> Vec<Range<u64>> {
    // An overlay stores whole blocks, and takes the unwritten bytes of a block from the member.
    let block = if is_whole { BLOCK_BYTES / SECTOR_BYTES } else { 1 };
    let (start, end) = (sectors.start - sectors.start % block, sectors.end.next_multiple_of(block));
    let used = start..end.min(geometry.used_sectors(slot));
    let chunk = u64::from(geometry.chunk_sectors());
    // Mirrors without chunks are handled in ranges of 2048 sectors.
    let chunk = if chunk == 0 { 2048 } else { chunk };
    let mut found = Vec::new();
    let mut at = used.start;
    while at < used.end {
        let until = (at - at % chunk + chunk).min(used.end);
        let length = until - at;
        let logical = |sector: LogicalSector| sector.0..sector.0 + length;
        match geometry {
            Geometry::Direct(direct) => {
                found.extend(direct.logical(slot, MemberSector(at)).map(logical))
            }
            Geometry::Mirror(mirror) => {
                found.extend(
                    mirror.logical(slot, MemberSector(at)).map(|(sector, _)| logical(sector)),
                );
            }
            Geometry::Stripe(stripe) => {
                let row = stripe.row_of(MemberSector(at));
                let offset = u32::try_from(at % chunk).expect("within a chunk");
                match stripe.row_map(row).role(slot) {
                    _ if is_whole => {
                        let start = stripe.logical(row, 0, 0).0;
                        found.push(start..start + chunk * u64::from(stripe.data_slots()));
                    }
                    Role::Data(index) => found.push(logical(stripe.logical(row, index, offset))),
                    Role::P | Role::Q => {}
                }
            }
        }
        at = until;
    }
    let capacity = geometry.capacity_sectors();
    found.iter_mut().for_each(|range| range.end = range.end.min(capacity));
    found.retain(|range| !range.is_empty());
    in_order(found)
}

/// Sorts ranges and merges those that touch.
pub(super) fn in_order(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| {
        let touches = next.start <= kept.end;
        if touches {
            kept.end = kept.end.max(next.end);
        }
        touches
    });
    ranges
}

/// The bytes of the array that cannot be read because of its members' holes, and whether there were
/// too many bytes to try all. `holes` are in sectors of a member's data.
pub(super) fn lost(
    volume: &Volume,
    array: &AssembledArray,
    holes: &dyn Fn(usize) -> Vec<Range<u64>>,
) -> (Vec<Range<u64>>, bool) {
    let (mut left, mut is_cut) = (LOOKED_BYTES_MAX / SECTOR_BYTES, false);
    let mut tried = Vec::new();
    for (number, occupant) in (0..).zip(&array.slots) {
        let Some(occupant) = occupant else { continue };
        for hole in holes(occupant.member) {
            let length = (hole.end - hole.start).min(left);
            is_cut |= length < hole.end - hole.start;
            left -= length;
            let looked = hole.start..hole.start + length;
            tried.extend(array_sectors(&array.geometry, Slot(number), &looked, false));
        }
    }
    let mut lost: Vec<Range<u64>> = Vec::new();
    for range in in_order(tried) {
        let bytes = range.start * SECTOR_BYTES..range.end * SECTOR_BYTES;
        for piece in pieces(&bytes, TRIED_BYTES).filter(|piece| !can_be_read(volume, piece)) {
            for one in pieces(&piece, SECTOR_BYTES).filter(|one| !can_be_read(volume, one)) {
                match lost.last_mut().filter(|last| last.end == one.start) {
                    Some(last) => last.end = one.end,
                    None => lost.push(one),
                }
            }
        }
    }
    (lost, is_cut)
}

pub(super) fn pieces(range: &Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    (range.start..end)
        .step_by(usize::try_from(length).expect("small"))
        .map(move |start| start..(start + length).min(end))
}

fn can_be_read(volume: &Volume, range: &Range<u64>) -> bool {
    read(volume, range).is_some()
}

pub(super) fn read(volume: &Volume, range: &Range<u64>) -> Option<Payload> {
    let length = usize::try_from(range.end - range.start).expect("it is bounded by the caller");
    let payload = Payload::zeroed(length);
    let outcome = volume.call(ClientRequest::Read { offset: range.start, payload });
    outcome.result.ok()?;
    outcome.payload
}
