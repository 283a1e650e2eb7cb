//! The order of superblock writes that can tear: never so many at once that a power cut could cost
//! the array more members than its level can miss.
//!
//! A device writes a sector whole or not at all, but not a superblock of several sectors. A torn
//! superblock has new and old sectors, its checksum fits neither, and its member is lost at the
//! next start. So long superblocks whose tables change are written in waves, each wave only after
//! the one before is durable. Superblocks that tear together lie in one wave. All waves before the
//! torn one have the new superblock, all waves after it the old one. New and old superblocks are
//! one event apart, so their members form the array.
//!
//! ```text
//!   RAID-1 of 4     0 1 │ 2 3        either half starts alone
//!   RAID-10, near   0 2 │ 1 3        one copy of each in either half
//!   RAID-6 of 5     0 1 │ 2 3 │ 4    as many as the level can still miss
//!   RAID-5 of 4,    1 │ 2 │ 3        none can be missed: one at a time, and at most one torn
//!     0 lost                         superblock has to be mended
//!   RAID-1 of 2,    0 │ 1            in version 0.90 the old superblock of 1 calls 0 a spare:
//!     0 holds all now                0 counts as lost until its own superblock is new
//! ```
//!
//! This file handles no bytes, and the caller knows whether a table has changed.

use braid_geometry::Slot;

/// Tells whether the array can do without the slots for which the function is true.
pub(crate) type Survives<'a> = &'a dyn Fn(&dyn Fn(Slot) -> bool) -> bool;

/// Takes the next wave out of `waiting`. `survives` says whether the array can do without slots. A
/// member without a slot goes into any wave: its superblock can tear without harm.
pub(crate) fn next_wave<T>(
    (slots, survives): (u16, Survives<'_>),
    is_lost: &dyn Fn(Slot) -> bool,
    waiting: &mut Vec<(Option<Slot>, T)>,
) -> Vec<T> {
    assert!(!waiting.is_empty(), "a wave is taken out of some");
    let present = (0..slots).filter(|slot| !is_lost(Slot(*slot))).count();
    let mut taken: Vec<Slot> = Vec::new();
    let bears = |taken: &[Slot], slot: Slot| {
        let is_gone = |other: Slot| is_lost(other) || other == slot || taken.contains(&other);
        taken.len() < present.div_ceil(2) && survives(&is_gone)
    };
    // A member that the array cannot miss comes last, and alone.
    let is_borne = |(slot, _): &(Option<Slot>, T)| slot.is_none_or(|slot| bears(&[], slot));
    if !waiting.iter().any(is_borne) {
        return waiting.drain(..waiting.len().min(1)).map(|(_, item)| item).collect();
    }
    let wave = waiting.extract_if(.., |(slot, _)| match slot {
        None => true,
        Some(slot) => {
            let is_borne = bears(&taken, *slot);
            if is_borne {
                taken.push(*slot);
            }
            is_borne
        }
    });
    wave.map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Geometry, Level, Shape};

    fn waves(level: Level, layout: u32, slots: u16, lost: &[u16]) -> Vec<Vec<u16>> {
        let geometry = Geometry::new(&Shape::uniform(
            level,
            layout,
            if level == Level::Raid1 { 0 } else { 8 },
            slots,
            1024,
        ));
        let geometry = geometry.expect("a plain shape");
        let members = (0..slots).filter(|slot| !lost.contains(slot));
        let mut waiting: Vec<_> = members.map(|slot| (Some(Slot(slot)), slot)).collect();
        waiting.push((None, 99));
        let mut waves = Vec::new();
        while !waiting.is_empty() {
            let is_lost = |slot: Slot| lost.contains(&slot.0);
            waves.push(next_wave((slots, &|lost| geometry.survives(lost)), &is_lost, &mut waiting));
        }
        waves
    }

    #[test]
    fn mirrors_are_written_in_halves_that_can_each_start_alone() {
        assert_eq!(waves(Level::Raid1, 0, 2, &[]), [vec![0, 99], vec![1]]);
        assert_eq!(waves(Level::Raid1, 0, 4, &[]), [vec![0, 1, 99], vec![2, 3]]);
        assert_eq!(waves(Level::Raid10, 0x102, 4, &[]), [vec![0, 2, 99], vec![1, 3]]);
        assert_eq!(waves(Level::Raid1, 0, 3, &[1]), [vec![0, 99], vec![2]]);
    }

    #[test]
    fn parity_is_written_by_as_many_as_it_can_miss() {
        assert_eq!(waves(Level::Raid6, 2, 5, &[]), [vec![0, 1, 99], vec![2, 3], vec![4]]);
        assert_eq!(waves(Level::Raid6, 2, 4, &[2]), [vec![0, 99], vec![1], vec![3]]);
        assert_eq!(waves(Level::Raid5, 2, 3, &[]), [vec![0, 99], vec![1], vec![2]]);
    }

    #[test]
    fn who_cannot_be_missed_is_written_last_and_alone() {
        assert_eq!(waves(Level::Raid5, 2, 3, &[0]), [vec![99], vec![1], vec![2]]);
        assert_eq!(waves(Level::Raid10, 0x102, 4, &[0]), [vec![2, 99], vec![3], vec![1]]);
    }
}
