//! The array of the simulator of hosts: which members a block lies on, and which members can run
//! the array.
//!
//! Where it stands: small values below the other files of this folder. A set of members is one
//! byte, with one bit per member.
//!
//! A block has one version number, and every member that the block lies on has a copy. At levels 5
//! and 6 the copies stand for data and parity: a write changes as many members, as many may be
//! lost.

use std::collections::BTreeSet;

use braid_ownership::{MemberKey, RecordedMember};

use crate::random::Random;

/// Blocks of the array.
pub(super) const BLOCKS: usize = 4;

/// Members, one bit each.
pub(super) type Set = u8;
/// Blocks, one bit each.
pub(super) type Blocks = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Raid0,
    Mirror,
    Raid5,
    Raid6,
    /// Two mirrored pairs, with near copies.
    Raid10,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) level: Level,
    pub(super) members: usize,
}

impl Layout {
    pub(super) fn any(random: &mut Random) -> Self {
        use Level::{Mirror, Raid0, Raid5, Raid6, Raid10};
        let (level, members) = *random.pick(&[
            (Raid0, 2),
            (Mirror, 2),
            (Mirror, 2),
            (Mirror, 3),
            (Mirror, 3),
            (Raid5, 3),
            (Raid5, 4),
            (Raid5, 5),
            (Raid6, 4),
            (Raid6, 5),
            (Raid10, 4),
        ]);
        Self { level, members }
    }

    pub(super) fn all(self) -> Set {
        (1 << self.members) - 1
    }

    /// The members that a block lies on.
    pub(super) fn touched(self, block: usize) -> Set {
        let in_row =
            |count: usize| (0..count).fold(0, |set, at| set | 1 << ((block + at) % self.members));
        match self.level {
            Level::Raid0 => in_row(1),
            Level::Mirror => self.all(),
            Level::Raid5 => in_row(2),
            Level::Raid6 => in_row(3),
            Level::Raid10 => 0b11 << (2 * (block % 2)),
        }
    }

    /// Whether these members can run the array by themselves.
    pub(super) fn can_run(self, set: Set) -> bool {
        let missing = (self.all() & !set).count_ones();
        match self.level {
            Level::Raid0 => missing == 0,
            Level::Mirror => set != 0,
            Level::Raid5 => missing <= 1,
            Level::Raid6 => missing <= 2,
            Level::Raid10 => set & 0b11 != 0 && set & 0b1100 != 0,
        }
    }

    pub(super) fn can_run_keys(self, keys: &BTreeSet<MemberKey>) -> bool {
        self.can_run(set_of(keys))
    }

    /// The members of the array's first record.
    pub(super) fn recorded(self) -> Vec<RecordedMember> {
        let one = |member| RecordedMember {
            key: key_of(member),
            address: String::new(),
            is_in_sync: true,
        };
        (0..self.members).map(one).collect()
    }
}

pub(super) fn key_of(member: usize) -> MemberKey {
    MemberKey([member as u8; 16])
}

pub(super) fn members_of(set: Set) -> impl Iterator<Item = usize> {
    (0..8).filter(move |member| set & 1 << member != 0)
}

pub(super) fn keys_of(set: Set) -> BTreeSet<MemberKey> {
    members_of(set).map(key_of).collect()
}

pub(super) fn set_of(keys: &BTreeSet<MemberKey>) -> Set {
    keys.iter().fold(0, |set, key| set | 1 << key.0[0])
}
