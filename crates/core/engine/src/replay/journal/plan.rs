//! Turns a journal's entries into stripes of 4 KiB of each member, with their blocks' positions.
//!
//! Entries come from a disk: each number is a claim about the array, and is checked here first.

use std::collections::BTreeMap;

use braid_geometry::{ChunkRow, LogicalSector, MemberSector, Slot, StripeGeometry};
use braid_ondisk::{JOURNAL_BLOCK_SECTORS, JournalEntry};

/// A stripe's content in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// First sector on every member, from the start of its data.
    pub sector: u64,
    /// Positions in the journal of blocks that were committed together, with their parity.
    pub committed: BTreeMap<Slot, u64>,
    /// Positions in the journal of data blocks without parity, written after the committed blocks.
    pub pending: BTreeMap<Slot, u64>,
}

/// An error in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EntryError {
    /// The entry's data is not one block of the array.
    #[error("data at array sector {location} is no block of the array")]
    Data {
        /// First array sector.
        location: u64,
    },
    /// The entry's parity does not belong to a stripe of the array.
    #[error("parity at sector {location} of the members is no stripe of the array")]
    Parity {
        /// First sector of the members.
        location: u64,
    },
    /// The entry has P alone for a RAID-6, or Q for another level.
    #[error("parity at sector {location} of the members is not that of this level")]
    ParityCount {
        /// First sector of the members.
        location: u64,
    },
    /// Blocks of a journal cannot be in chunks of this size.
    #[error("chunks of {sectors} sectors do not consist of blocks of 4 KiB")]
    Chunk {
        /// Sectors of a chunk.
        sectors: u32,
    },
}

/// The stripes of a journal, in order of sectors, without stripes for which the journal has parity
/// alone.
///
/// # Errors
/// If the journal has an entry that the array cannot have.
pub fn stripes(
    geometry: &StripeGeometry,
    entries: &[JournalEntry],
) -> Result<Vec<Stripe>, EntryError> {
    let sectors = geometry.chunk_sectors();
    if !u64::from(sectors).is_multiple_of(JOURNAL_BLOCK_SECTORS) {
        return Err(EntryError::Chunk { sectors });
    }
    let mut stripes: BTreeMap<u64, Stripe> = BTreeMap::new();
    let new = |sector| Stripe { sector, committed: BTreeMap::new(), pending: BTreeMap::new() };
    for entry in entries {
        match *entry {
            JournalEntry::Data { location, position } => {
                let (sector, slot) = data(geometry, location)?;
                let stripe = stripes.entry(sector).or_insert_with(|| new(sector));
                stripe.pending.insert(slot, position);
            }
            JournalEntry::Parity { location, position, q_position } => {
                let row = row(geometry, location)?;
                let map = geometry.row_map(row);
                if map.q_slot().is_some() != q_position.is_some() {
                    return Err(EntryError::ParityCount { location });
                }
                let stripe = stripes.entry(location).or_insert_with(|| new(location));
                stripe.committed.append(&mut stripe.pending);
                stripe.committed.insert(map.p_slot(), position);
                stripe.committed.extend(map.q_slot().zip(q_position));
            }
            JournalEntry::Flush { .. } => {}
        }
    }
    let has_data = |stripe: &Stripe| {
        let parities = usize::from(geometry.parity_slots());
        stripe.committed.len() > parities || !stripe.pending.is_empty()
    };
    Ok(stripes.into_values().filter(has_data).collect())
}

/// The stripe and the slot of a block of data.
fn data(geometry: &StripeGeometry, location: u64) -> Result<(u64, Slot), EntryError> {
    let end = location.checked_add(JOURNAL_BLOCK_SECTORS);
    let is_block = location.is_multiple_of(JOURNAL_BLOCK_SECTORS)
        && end.is_some_and(|end| end <= geometry.capacity_sectors());
    if !is_block {
        return Err(EntryError::Data { location });
    }
    let address = geometry.locate(LogicalSector(location));
    let slot = geometry.row_map(address.row).data_slot(address.data_index);
    Ok((geometry.row_start(address.row).0 + u64::from(address.offset_sectors), slot))
}

fn row(geometry: &StripeGeometry, sector: u64) -> Result<ChunkRow, EntryError> {
    let end = sector.checked_add(JOURNAL_BLOCK_SECTORS);
    let is_stripe = sector.is_multiple_of(JOURNAL_BLOCK_SECTORS)
        && end.is_some_and(|end| end <= geometry.used_sectors());
    is_stripe
        .then(|| geometry.row_of(MemberSector(sector)))
        .ok_or(EntryError::Parity { location: sector })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Geometry, Level, Shape};

    fn geometry(level: Level, chunk_sectors: u32) -> StripeGeometry {
        let slots = if level == Level::Raid6 { 5 } else { 4 };
        let member_sectors = vec![320; usize::from(slots)];
        match Geometry::new(&Shape { level, layout: 2, chunk_sectors, slots, member_sectors }) {
            Ok(Geometry::Stripe(stripe)) => stripe,
            other => panic!("{other:?}"),
        }
    }

    fn data(location: u64, position: u64) -> JournalEntry {
        JournalEntry::Data { location, position }
    }

    fn parity(location: u64, position: u64) -> JournalEntry {
        JournalEntry::Parity { location, position, q_position: None }
    }

    fn map(blocks: &[(u16, u64)]) -> BTreeMap<Slot, u64> {
        blocks.iter().map(|(slot, position)| (Slot(*slot), *position)).collect()
    }

    fn one(sector: u64, committed: &[(u16, u64)], pending: &[(u16, u64)]) -> Stripe {
        Stripe { sector, committed: map(committed), pending: map(pending) }
    }

    #[test]
    fn data_is_pending_until_its_parity_comes() {
        // Row 0 has data on slots 0, 1, 2 and parity on slot 3.
        let raid5 = geometry(Level::Raid5, 32);
        let of = |entries: &[JournalEntry]| stripes(&raid5, entries).unwrap();
        assert_eq!(of(&[data(8, 80)]), [one(8, &[], &[(0, 80)])]);
        assert_eq!(of(&[data(8, 80), parity(8, 88)]), [one(8, &[(0, 80), (3, 88)], &[])]);
        let again = [data(8, 80), parity(8, 88), data(40, 96), data(8, 104)];
        assert_eq!(of(&again), [one(8, &[(0, 80), (3, 88)], &[(0, 104), (1, 96)])]);
        let both = [&again[..], &[parity(8, 112)]].concat();
        assert_eq!(of(&both), [one(8, &[(0, 104), (1, 96), (3, 112)], &[])]);
        // A flush entry changes nothing.
        let flushed = [&again[..], &[JournalEntry::Flush { location: 8 }]].concat();
        assert_eq!(of(&flushed), of(&again));
    }

    #[test]
    fn parity_alone_says_nothing() {
        let raid5 = geometry(Level::Raid5, 32);
        assert_eq!(
            stripes(&raid5, &[parity(8, 88), data(0, 96)]).unwrap(),
            [one(0, &[], &[(0, 96)])]
        );
    }

    #[test]
    fn both_parities_of_a_raid_6_have_their_slots() {
        let raid6 = geometry(Level::Raid6, 32);
        let row = raid6.row_map(raid6.row_of(MemberSector(40)));
        let location = raid6.logical(raid6.row_of(MemberSector(40)), 1, 8).0;
        let (p, q) = (row.p_slot().0, row.q_slot().unwrap().0);
        let parity = JournalEntry::Parity { location: 40, position: 8, q_position: Some(16) };
        let committed = [(row.data_slot(1).0, 0), (p, 8), (q, 16)];
        assert_eq!(
            stripes(&raid6, &[data(location, 0), parity]).unwrap(),
            [one(40, &committed, &[])]
        );
    }

    #[test]
    fn entries_that_the_array_cannot_have_are_refused() {
        let (raid5, raid6) = (geometry(Level::Raid5, 32), geometry(Level::Raid6, 32));
        for location in [4, 9, 960, u64::MAX - 7, 1 << 54] {
            let error = Err(EntryError::Data { location });
            assert_eq!(stripes(&raid5, &[data(location, 0)]), error);
        }
        for location in [4, 9, 320, u64::MAX - 7] {
            let error = Err(EntryError::Parity { location });
            assert_eq!(stripes(&raid5, &[parity(location, 0)]), error);
        }
        let count = Err(EntryError::ParityCount { location: 8 });
        assert_eq!(stripes(&raid6, &[parity(8, 0)]), count);
        let q = JournalEntry::Parity { location: 8, position: 0, q_position: Some(8) };
        assert_eq!(stripes(&raid5, &[q]), count);
    }
}
