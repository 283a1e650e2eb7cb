//! The simulator's knowledge of superblocks: which are torn, which disks they record as out, and
//! the rules for spares.
//!
//! Assembly decides by superblocks alone. This module keeps the history of each superblock, without
//! looking at event counts. A superblock of more than one sector tears: some of its sectors are
//! new, some old, and its checksum fails. Two disks *ran apart* if each recorded that the other is
//! out, in different interrupted runs. Then assembly rightly refuses to believe either.
//!
//! ```text
//!   run 1, b withheld:  a records "b is out" ── power cut        a ≠ b: the array is refused,
//!   run 2, a withheld:  b records "a is out" ── power cut        unless others know better
//! ```
//!
//! # Invariants
//! - A superblock of one sector never tears. Assembly never believes a torn one, and does not call
//!   its disk stale before another disk records that
//!   [check: worlds_with_long_superblocks_and_spares_hold].
//! - Superblocks that tear together belong to members that the level can miss, or to a single
//!   member [check: superblocks_that_tear_together_are_noticed].
//! - A spare's data area never changes, and a spare records each loss before the array goes on
//!   [check: a_spare_that_is_written_is_noticed].

mod world;

use std::collections::BTreeSet;

use braid_ondisk::{Role, Superblock};

use crate::content::SECTOR;
use crate::create::Design;

/// The known state of all superblocks.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) design: Design,
    /// Disks whose superblock has sectors of two versions, or can have them after a power cut.
    torn: BTreeSet<usize>,
    /// The slots without a member when superblocks were last in flight. `torn_together` has the
    /// disks whose superblocks the power cut tore then.
    pub(crate) missing: BTreeSet<u16>,
    torn_together: BTreeSet<usize>,
    /// Pairs `(one, other)`: disk `one` recorded that disk `other` is out.
    apart: BTreeSet<(usize, usize)>,
    pub(crate) journal: JournalPresence,
}

/// Whether the array has the journal that it was made with.
#[cfg_attr(not(any(test, braid_sim_hooks)), allow(dead_code, reason = "it changes in stories"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalPresence {
    Kept,
    /// The journal is being created or dropped.
    Either,
    Without,
}

impl Metadata {
    pub(crate) fn new(design: &Design) -> Self {
        Self {
            design: *design,
            torn: BTreeSet::new(),
            missing: BTreeSet::new(),
            torn_together: BTreeSet::new(),
            apart: BTreeSet::new(),
            journal: JournalPresence::Kept,
        }
    }

    /// A rebuild gave all disks whole, equal superblocks: none is torn, and none ran apart.
    pub(crate) fn forget(&mut self) {
        self.torn.clear();
        self.apart.clear();
    }

    pub(crate) fn is_torn(&self, disk: usize) -> bool {
        self.torn.contains(&disk)
    }

    /// The disk was replaced by a new one, which has no superblock before its first update.
    pub(crate) fn is_blank(&mut self, disk: usize) {
        self.torn.insert(disk);
        self.torn_together.remove(&disk);
        self.apart.retain(|(one, other)| *one != disk && *other != disk);
    }

    /// Two disks exchange their indices in the simulator.
    pub(crate) fn exchange(&mut self, one: usize, other: usize) {
        let to = |disk: usize| match disk {
            _ if disk == one => other,
            _ if disk == other => one,
            _ => disk,
        };
        self.torn = self.torn.iter().map(|disk| to(*disk)).collect();
        self.torn_together = self.torn_together.iter().map(|disk| to(*disk)).collect();
        self.apart.retain(|(a, b)| ![one, other].contains(a) && ![one, other].contains(b));
    }

    /// This disk's superblock was torn by a failed write, not by a power cut.
    pub(crate) fn tore_by_error(&mut self, disk: usize) {
        self.torn_together.remove(&disk);
    }

    /// Whether any two of the presented disks each recorded that the other is out.
    pub(crate) fn ran_apart(&self, presented: &[usize]) -> bool {
        let is_there = |disk: &usize| presented.contains(disk);
        self.apart.iter().any(|(one, other)| {
            is_there(one) && is_there(other) && self.apart.contains(&(*other, *one))
        })
    }

    /// Slots that have no member, by the table of roles in a superblock.
    fn missing_in(&self, superblock: &Superblock) -> BTreeSet<u16> {
        let is_in = |slot: &u16| {
            let number = usize::from(self.design.number(usize::from(*slot)));
            superblock.state.roles.get(number) == Some(&Role::Active(*slot))
        };
        (0..self.design.slots).filter(|slot| !is_in(slot)).collect()
    }

    /// A superblock was written to a disk: wholly if `for_sure`, else any part of it.
    pub(crate) fn told(&mut self, disk: usize, superblock: &Superblock, for_sure: bool) {
        if for_sure {
            self.torn.remove(&disk);
        } else if superblock.to_bytes().len() > SECTOR {
            self.torn.insert(disk);
        }
        let slots = usize::from(self.design.slots);
        for other in (0..slots).filter(|other| *other != disk && disk < slots) {
            let role = superblock.state.roles.get(usize::from(self.design.number(other)));
            if !matches!(role, Some(Role::Active(_))) {
                self.apart.insert((disk, other));
            } else if for_sure {
                self.apart.remove(&(disk, other));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chances::Purpose;
    use crate::world::World;
    use braid_assembly::Refusal;
    use braid_ondisk::Timestamp;

    use crate::chances::Chances;
    use crate::create::smallest;
    use crate::cut::Cut;
    use crate::trace::Trace;

    #[test]
    #[should_panic(expected = "data was written to spare 4")]
    fn a_spare_that_is_written_is_noticed() {
        let design = Design { spares: 1, ..smallest() };
        let mut world = World::create(&design, Chances::new(1, Cut::default()), Trace::new(false));
        world.check_spares_are_untouched();
        let start = world.taint.data_offset;
        world.disks[4].put(start + 3, &[0; SECTOR], true);
        world.check_spares_are_untouched();
    }

    /// The superblock of a disk after an update that calls disk `other` faulty.
    fn told_without(design: &Design, disk: usize, other: usize) -> Superblock {
        let mut superblock = design.superblock(disk);
        let mut roles = superblock.state.roles.clone();
        roles[usize::from(design.number(other))] = Role::Faulty;
        superblock.apply(&braid_ondisk::SuperblockUpdate {
            events: superblock.state.events + 1,
            update_time: Timestamp { seconds: 0, microseconds: 0 },
            resync_offset: u64::MAX,
            roles: roles.into(),
            recovery_offset: None,
            is_replacement: false,
            role_of_this: superblock.state.role,
        });
        superblock
    }

    /// Makes two disks run apart: two updates are cut off, with another disk withheld each time.
    /// Returns assembly's verdict. If `is_known`, other disks know which of the two is right.
    fn present_two_that_ran_apart(is_known: bool) -> Refusal {
        let design = Design { first_number: 300, ..smallest() };
        let mut world = World::create(&design, Chances::new(1, Cut::default()), Trace::new(false));
        for (disk, other) in [(0, 1), (1, 0)] {
            let superblock = told_without(&design, disk, other);
            let start = superblock.offset_bytes() / SECTOR as u64;
            world.disks[disk].put(start, &superblock.to_bytes(), true);
            if is_known {
                world.metadata.told(disk, &superblock, true);
            }
        }
        world.open(&[2, 1, 0, 3], false).expect_err("assembly cannot tell whom to believe")
    }

    #[test]
    #[should_panic(expected = "superblocks {1, 2} tore together; {0} missing")]
    fn superblocks_that_tear_together_are_noticed() {
        let design = Design { first_number: 300, ..smallest() };
        let mut world = World::create(&design, Chances::new(1, Cut::default()), Trace::new(false));
        for disk in [1, 2] {
            let superblock = told_without(&design, disk, 0);
            world.tear_superblock(disk, &superblock, Purpose::Disks);
            // The superblock's second sector is new, and its first is old.
            let (start, data) = (superblock.offset_bytes() / SECTOR as u64, superblock.to_bytes());
            world.disks[disk].put(start + 1, &data[SECTOR..], true);
            world.disks[disk].put(start, &design.superblock(disk).to_bytes()[..SECTOR], true);
        }
        world.find_torn();
    }

    #[test]
    fn disks_that_ran_apart_are_refused_with_reason() {
        assert!(matches!(present_two_that_ran_apart(true), Refusal::RolesContradict { .. }));
    }

    #[test]
    #[should_panic(expected = "contradictory? no disks ran apart")]
    fn a_contradiction_without_a_cause_is_noticed() {
        present_two_that_ran_apart(false);
    }

    #[test]
    fn two_disks_ran_apart_when_each_was_told_that_the_other_is_out() {
        let design = Design { first_number: 300, ..smallest() };
        let told_without = |disk, other| told_without(&design, disk, other);
        let mut metadata = Metadata::new(&design);
        metadata.told(0, &told_without(0, 1), true);
        assert!(!metadata.ran_apart(&[0, 1]), "only one of them was told");
        metadata.told(1, &told_without(1, 0), false);
        assert!(metadata.ran_apart(&[1, 2, 0]));
        assert!(!metadata.ran_apart(&[1, 2]), "the other is not there");
        metadata.told(1, &design.superblock(1), true);
        assert!(!metadata.ran_apart(&[0, 1]), "it was told that both are in");
    }
}
