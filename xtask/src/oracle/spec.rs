//! The shape of an array in mdadm's words, and the losses that the array must survive.
//!
//! This file stands below the matrix. It writes the arguments of `mdadm --create` and of `braid
//! create`. It counts tolerated losses from the definition of each level, not from braid's
//! geometry, which the oracle judges.

use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Linear,
    Raid0,
    Raid1,
    Raid4,
    Raid5,
    Raid6,
    Raid10,
}

impl Level {
    pub(crate) const ALL: [Self; 7] = [
        Self::Linear,
        Self::Raid0,
        Self::Raid1,
        Self::Raid4,
        Self::Raid5,
        Self::Raid6,
        Self::Raid10,
    ];
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Linear => "linear",
            Self::Raid0 => "0",
            Self::Raid1 => "1",
            Self::Raid4 => "4",
            Self::Raid5 => "5",
            Self::Raid6 => "6",
            Self::Raid10 => "10",
        })
    }
}

/// The way in which md gets the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// `mdadm --create` makes it.
    Mdadm,
    /// mdadm 4.2 refuses RAID-0 with 0.90, so md takes over a RAID-4 without its parity member.
    Takeover,
    /// For 0.90 with members of unequal size: a linear array whose superblocks are patched.
    PatchedLinear,
    /// RAID-10 far with far sets (1 = kernel 3.9's form, 2 = later): in the superblocks' layout
    /// word, bits from 17 on are patched.
    PatchedFarSets(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArraySpec {
    /// The array's unique name, derived from the other fields. The superblock stores its first 24
    /// bytes.
    pub(crate) name: String,
    pub(crate) level: Level,
    /// mdadm's word for the layout, if the level has one.
    pub(crate) layout: Option<&'static str>,
    /// The metadata version: `0.90`, `1.0`, `1.1` or `1.2`.
    pub(crate) metadata: &'static str,
    /// Chunk in KiB, if the level has one (linear uses it for rounding).
    pub(crate) chunk_kib: Option<u32>,
    /// Size of each slot's device, in sectors.
    pub(crate) members: Vec<u64>,
    pub(crate) making: Making,
    /// md's `raid0.default_layout`: the layout of unequal members if superblocks have none.
    pub(crate) raid0_default: Option<u8>,
}

impl ArraySpec {
    /// The arguments of `mdadm --create`, without devices.
    pub(crate) fn create_words(&self) -> String {
        let mut words = format!(
            "--run --metadata={} --level={} --raid-devices={} --homehost=oracle",
            self.metadata,
            self.level,
            self.members.len()
        );
        if let Some(layout) = self.layout {
            words += &format!(" --layout={layout}");
        }
        if let Some(chunk) = self.chunk_kib {
            let word = if self.level == Level::Linear { "rounding" } else { "chunk" };
            words += &format!(" --{word}={chunk}");
        }
        if !matches!(self.level, Level::Linear | Level::Raid0) {
            // Members are zeroed, so that parity and copies agree from the start.
            words += " --assume-clean";
        }
        if self.metadata != "0.90" {
            let length = self.name.len().min(24);
            words += &format!(" --name={}", &self.name[..length]);
        }
        words
    }

    /// Whether `mdadm --create`, and so `braid create`, can make the array.
    pub(crate) fn can_be_created(&self) -> bool {
        self.making == Making::Mdadm
    }

    /// Whether md's `check` can compare parity or copies of the array.
    pub(crate) fn is_redundant(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    /// Every set of slots that the array can lose without losing data; the empty set first.
    pub(crate) fn tolerated_losses(&self) -> Vec<Vec<usize>> {
        let count = self.members.len();
        let copies = self.copies();
        (0u32..1 << count)
            .map(|set| (0..count).filter(|slot| set & (1 << slot) != 0).collect::<Vec<_>>())
            .filter(|lost| match self.level {
                Level::Linear | Level::Raid0 => lost.is_empty(),
                Level::Raid1 => lost.len() < count,
                Level::Raid4 | Level::Raid5 => lost.len() <= 1,
                Level::Raid6 => lost.len() <= 2,
                Level::Raid10 => {
                    copies.iter().all(|slots| slots.iter().any(|slot| !lost.contains(slot)))
                }
            })
            .collect()
    }

    /// The sets of slots that hold copies of one chunk (RAID-10).
    fn copies(&self) -> BTreeSet<BTreeSet<usize>> {
        let count = self.members.len();
        let Some((kind, copies)) = self.layout.and_then(|word| word.split_at_checked(1)) else {
            return BTreeSet::new();
        };
        let Ok(copies) = copies.parse::<usize>() else { return BTreeSet::new() };
        (0..count)
            .map(|chunk| {
                // near: the copies of successive chunks follow each other. far and offset: each
                // copy of a chunk is one slot further to the right.
                let first = if kind == "n" { chunk * copies } else { chunk };
                let set = match self.making {
                    Making::PatchedFarSets(1) => count / copies,
                    Making::PatchedFarSets(_) => copies,
                    _ => count,
                };
                // The last far set also takes the slots that are too few for a set of their own.
                let begin = (first / set).min(count / set - 1) * set;
                let end = if begin / set == count / set - 1 { count } else { begin + set };
                (0..copies).map(|copy| begin + (first - begin + copy) % (end - begin)).collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ArraySpec, Level, Making};

    fn spec(level: Level, layout: Option<&'static str>, members: usize) -> ArraySpec {
        ArraySpec {
            name: "x".to_owned(),
            level,
            layout,
            metadata: "1.2",
            chunk_kib: Some(64),
            members: vec![8192; members],
            making: Making::Mdadm,
            raid0_default: None,
        }
    }

    #[test]
    fn losses_are_counted_by_level() {
        let count = |level, layout, members| spec(level, layout, members).tolerated_losses().len();
        assert_eq!(count(Level::Raid0, None, 4), 1);
        assert_eq!(count(Level::Raid1, None, 3), 7);
        assert_eq!(count(Level::Raid5, Some("ls"), 4), 5);
        assert_eq!(count(Level::Raid6, Some("ls"), 5), 1 + 5 + 10);
        // Two mirror pairs: each pair keeps one of its two members, or both.
        assert_eq!(count(Level::Raid10, Some("n2"), 4), 9);
        // Copies of far layouts are on neighbours in a ring of 5: no two neighbours may be lost.
        assert_eq!(count(Level::Raid10, Some("f2"), 5), 11);
        // With an odd number of members, the copies of near layouts form a ring too.
        assert_eq!(count(Level::Raid10, Some("n2"), 5), 11);
        assert_eq!(count(Level::Raid10, Some("n3"), 3), 7);
    }

    #[test]
    fn no_loss_comes_first() {
        assert!(spec(Level::Raid6, Some("ls"), 5).tolerated_losses()[0].is_empty());
    }
}
