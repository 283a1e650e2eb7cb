//! The ranges that a returning member holds: all ranges that no bit of the bitmap names.

use braid_geometry::{Geometry, Level, LogicalSector, MemberSector, Slot};
use braid_ondisk::Bits;

use crate::ranges::{MemberRange, MemberRanges};

/// The ranges that the member in `slot` holds: its used sectors without the sectors that `bits`
/// name.
pub(super) fn held_ranges_of(geometry: &Geometry, slot: Slot, bits: &Bits) -> MemberRanges {
    let used = geometry.used_sectors(slot);
    let mut lacking: Vec<MemberRange> = Vec::new();
    for sectors in bits.iter().map(|bit| bits.sectors_of(bit)) {
        match geometry {
            Geometry::Mirror(mirror) if geometry.level() == Level::Raid10 => {
                // On level 10, bits stand for sectors of the array.
                let mut at = sectors.start;
                while at < sectors.end.min(mirror.capacity_sectors()) {
                    let start = LogicalSector(at);
                    let length = mirror.contiguous_sectors(start).min(sectors.end - at);
                    let copies = (0..mirror.copies()).map(|copy| mirror.copy(start, copy));
                    let own = copies.filter(|(other, _)| *other == slot);
                    lacking.extend(own.map(|(_, start)| MemberRange { start, sectors: length }));
                    at += length;
                }
            }
            _ => {
                let (start, length) = (MemberSector(sectors.start), sectors.end - sectors.start);
                lacking.push(MemberRange { start, sectors: length });
            }
        }
    }
    let mut held = Vec::new();
    let mut at = 0;
    for range in MemberRanges::new(lacking).ranges() {
        let start = range.start.0.min(used);
        held.push(MemberRange { start: MemberSector(at), sectors: start.saturating_sub(at) });
        at = (range.start.0 + range.sectors).min(used);
    }
    held.push(MemberRange { start: MemberSector(at), sectors: used - at });
    MemberRanges::new(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::Shape;

    fn geometry(level: Level, layout: u32, slots: u16) -> Geometry {
        let member_sectors = vec![1024; usize::from(slots)];
        let shape = Shape { level, layout, chunk_sectors: 8, slots, member_sectors };
        Geometry::new(&shape).expect("a geometry")
    }

    #[test]
    fn what_no_bit_names_is_held() {
        let raid5 = geometry(Level::Raid5, 2, 3);
        let mut bits = Bits::none(1024, 100);
        let ranges = |held: &MemberRanges| -> Vec<(u64, u64)> {
            held.ranges().iter().map(|range| (range.start.0, range.sectors)).collect()
        };
        assert_eq!(ranges(&held_ranges_of(&raid5, Slot(1), &bits)), [(0, 1024)]);
        [0, 1, 5, 10].into_iter().for_each(|bit| bits.set(bit));
        assert_eq!(ranges(&held_ranges_of(&raid5, Slot(1), &bits)), [(200, 300), (600, 400)]);
        assert!(held_ranges_of(&raid5, Slot(1), &Bits::all(1024, 100)).is_empty());
    }

    /// On level 10 a bit stands for sectors of the array: the member lacks all its copies of those
    /// sectors.
    #[test]
    fn copies_of_what_a_bit_names_are_not_held() {
        for layout in [0x102, 0x201, 0x1_0201] {
            let geometry = geometry(Level::Raid10, layout, 3);
            let Geometry::Mirror(mirror) = &geometry else { panic!("copies") };
            let mut bits = Bits::none(mirror.capacity_sectors(), 20);
            [0, 7, 30].into_iter().for_each(|bit| bits.set(bit));
            for slot in (0..3).map(Slot) {
                let held = held_ranges_of(&geometry, slot, &bits);
                for sector in 0..mirror.capacity_sectors() {
                    let copies =
                        (0..mirror.copies()).map(|copy| mirror.copy(LogicalSector(sector), copy));
                    for (_, place) in copies.filter(|(other, _)| *other == slot) {
                        let is_set = bits.is_set(sector / 20);
                        assert_eq!(held.contains(place, 1), !is_set, "{layout:#x} {slot} {sector}");
                    }
                }
            }
        }
    }
}
