//! Strips: the sectors of members that hold a sector of the array, or can compute it.

use std::collections::BTreeSet;

use braid_geometry::{Geometry, LogicalSector, MemberSector, Slot, StripeGeometry};

use crate::content::places;

/// The sectors of a row at one offset, one of each slot; of a RAID-10 the copies of one sector.
pub(super) struct Strip {
    /// Data comes first, beginning with the wanted sector.
    pub(super) columns: Vec<Column>,
}

/// A slot's sector of a strip.
#[derive(PartialEq, Eq)]
pub(super) struct Column {
    pub(super) slot: Slot,
    /// The sector on the member.
    pub(super) place: u64,
    /// The sector of the array; `None` for parity.
    pub(super) sector: Option<u64>,
}

impl Strip {
    pub(super) fn of(geometry: &Geometry, sector: u64) -> Self {
        let columns = match geometry {
            Geometry::Direct(_) => Self::of_raid0(geometry, sector),
            Geometry::Mirror(_) => {
                let copies = places(geometry, sector).into_iter();
                let column = |(slot, place): (Slot, MemberSector)| Column {
                    slot,
                    place: place.0,
                    sector: Some(sector),
                };
                copies.map(column).collect()
            }
            Geometry::Stripe(stripe) => Self::of_row(stripe, sector),
        };
        Self { columns }
    }

    fn of_row(stripe: &StripeGeometry, sector: u64) -> Vec<Column> {
        let address = stripe.locate(LogicalSector(sector));
        let map = stripe.row_map(address.row);
        let place = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
        let count = map.data_slots();
        let indices = (0..count).map(|index| (index + address.data_index) % count);
        let data = indices.map(|index| {
            let sector = stripe.logical(address.row, index, address.offset_sectors);
            Column { slot: map.data_slot(index), place, sector: Some(sector.0) }
        });
        let parity = [Some(map.p_slot()), map.q_slot()].into_iter().flatten();
        data.chain(parity.map(|slot| Column { slot, place, sector: None })).collect()
    }

    fn of_raid0(geometry: &Geometry, sector: u64) -> Vec<Column> {
        let (slots, chunk) = (u64::from(geometry.slots()), u64::from(geometry.chunk_sectors()));
        let (row, data_index) = (sector / chunk / slots, sector / chunk % slots);
        let place = row * chunk + sector % chunk;
        let columns = (0..slots).map(|index| (index + data_index) % slots).map(|index| {
            let sector = (row * slots + index) * chunk + sector % chunk;
            let slot = Slot(u16::try_from(index).expect("a slot"));
            Column { slot, place, sector: Some(sector) }
        });
        columns.collect()
    }

    /// The sectors of the array in the strip.
    pub(super) fn sectors(&self) -> impl Iterator<Item = u64> {
        self.columns.iter().filter_map(|one| one.sector)
    }
}

/// The sectors lost with `lost` in either shape: those on missing disks in the strips of `lost`.
pub(super) fn also_lost(
    shapes: &[Geometry],
    missing: &[usize],
    lost: &BTreeSet<u64>,
) -> BTreeSet<u64> {
    let mut all = lost.clone();
    let mut left: Vec<u64> = lost.iter().copied().collect();
    while let Some(sector) = left.pop() {
        for geometry in shapes {
            if sector >= geometry.capacity_sectors() {
                continue;
            }
            let columns = Strip::of(geometry, sector).columns;
            let absent = columns.iter().filter(|one| missing.contains(&one.slot.index()));
            for other in absent.filter_map(|one| one.sector) {
                if all.insert(other) {
                    left.push(other);
                }
            }
        }
    }
    all.difference(lost).copied().collect()
}
