//! The levels braid knows, under md's numbers and mdadm's names, and the family each belongs to.
//!
//! This file does not interpret layout numbers (see `words`) and does not locate chunks (see the
//! three geometries). md's other personalities (multipath, faulty, container) are not levels of an
//! array with data layout and have no name here. Guarded by `tests/words.rs`.

use core::fmt;

/// A RAID level: how an array arranges data over its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after another; md number -1.
    Linear,
    /// Chunks dealt round the members; no redundancy.
    Raid0,
    /// Every member holds all data.
    Raid1,
    /// Parity on the last slot.
    Raid4,
    /// Parity that moves from row to row.
    Raid5,
    /// Two independent parities, P and Q.
    Raid6,
    /// Chunks dealt round the members with near and far copies.
    Raid10,
}

/// The kind of machine that serves a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Each sector is on one member: linear, raid0.
    Direct,
    /// Whole copies: raid1, raid10.
    Mirror,
    /// Parity over a chunk row: raid4, raid5, raid6.
    Stripe,
}

impl Level {
    /// Every level, in md's order.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// The level for a level number in an md superblock; `None` if braid does not know it.
    #[must_use]
    pub const fn from_md(number: i32) -> Option<Level> {
        Some(match number {
            -1 => Level::Linear,
            0 => Level::Raid0,
            1 => Level::Raid1,
            4 => Level::Raid4,
            5 => Level::Raid5,
            6 => Level::Raid6,
            10 => Level::Raid10,
            _ => return None,
        })
    }

    /// The number that md writes in a superblock: -1, 0, 1, 4, 5, 6 or 10.
    #[must_use]
    pub const fn md_number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }

    /// The family whose geometry and machine serve this level.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Level::Linear | Level::Raid0 => Family::Direct,
            Level::Raid1 | Level::Raid10 => Family::Mirror,
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Family::Stripe,
        }
    }

    /// The name that mdadm prints: `linear`, `raid0`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Family::Direct => "direct",
            Family::Mirror => "mirror",
            Family::Stripe => "stripe",
        })
    }
}
