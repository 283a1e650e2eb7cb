//! The fault overlay of a lying disk: an honest disk's content, wherever the lying disk differs.
//!
//! The overlay stands next to [`crate::disk`], which updates it with every write, flush and power
//! cut. It decides nothing: [`crate::lie_plan`] decides which disk lies, when and about what.
//!
//! ```text
//!   rot            seen changes               honest: the bytes seen before
//!   lost write     seen stays                 honest: the written bytes
//!   astray write   as lost; elsewhere seen changes, honest: the bytes seen there
//!   false flush    log entries are "claimed"; a power cut undoes them in seen, honest keeps them
//!   honest write   seen = honest: healed
//! ```
//!
//! A sector is *tainted* while its seen and its honest bytes differ. A power cut that undoes a
//! write restores both the seen and the honest bytes from before that write.
//!
//! # Invariants
//! - A sector is in the overlay exactly while it is tainted
//!   [check: the_overlay_holds_exactly_what_differs].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A change of a sector's taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The sector became tainted.
    Tainted,
    /// The sector stays tainted, but its bytes changed.
    Other,
    /// An honest write healed the sector.
    Healed,
    /// A power cut undid the write that had tainted the sector.
    Undone,
    /// A power cut undid the write that had healed the sector, so that it is tainted again.
    Back,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    #[default]
    Lands,
    /// The write is acknowledged and never lands.
    Lost,
    /// The write is acknowledged and lands at this sector instead.
    Astray(u64),
}

/// The honest bytes of tainted sectors, and the writes that the disk falsely claimed to be durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct LieOverlay {
    honest: BTreeMap<u64, Box<[u8]>>,
    /// By index in the disk's log: the honest bytes before that write, if they differed from the
    /// seen bytes.
    before: BTreeMap<usize, Box<[u8]>>,
    /// Entries of the disk's log that the disk claimed to be durable, for a FUA write.
    claimed: BTreeSet<usize>,
    /// The disk claimed that all entries of its log below this index are durable, for a flush.
    claimed_end: usize,
    /// Changes of taint that the world has not seen yet.
    pub(crate) changes: Vec<(u64, Change)>,
}

impl LieOverlay {
    /// Whether no sector is tainted and no write is falsely claimed to be durable.
    pub(crate) fn is_silent(&self) -> bool {
        self.honest.is_empty() && self.before.is_empty() && !self.has_claims()
    }

    pub(crate) fn has_claims(&self) -> bool {
        self.claimed_end > 0 || !self.claimed.is_empty()
    }

    /// The bytes of an honest disk in a tainted sector; `None` if the sector is not tainted.
    pub(crate) fn honest(&self, sector: u64) -> Option<&[u8]> {
        self.honest.get(&sector).map(AsRef::as_ref)
    }

    pub(crate) fn is_tainted(&self, sectors: Range<u64>) -> bool {
        !self.honest.is_empty() && self.honest.range(sectors).next().is_some()
    }

    pub(crate) fn tainted(&self) -> impl Iterator<Item = u64> {
        self.honest.keys().copied()
    }

    /// An honest disk would hold `honest` in this sector now, and this disk returns `seen`.
    pub(crate) fn diverge(&mut self, sector: u64, honest: &[u8], seen: &[u8]) {
        self.differ(sector, (honest, seen), Change::Tainted);
    }

    /// Notes the honest and the seen bytes of a sector, as [`diverge`](Self::diverge) does. `new`
    /// is the change to note if the sector was not tainted before.
    fn differ(&mut self, sector: u64, (honest, seen): (&[u8], &[u8]), new: Change) {
        if honest == seen {
            self.agree(sector..sector + 1, Change::Healed);
            return;
        }
        let before = self.honest.insert(sector, honest.into());
        self.changes.push((sector, if before.is_some() { Change::Other } else { new }));
    }

    /// These sectors have the bytes of an honest disk again.
    pub(crate) fn agree(&mut self, sectors: Range<u64>, change: Change) {
        if self.honest.is_empty() {
            return;
        }
        let healed: Vec<u64> = self.honest.range(sectors).map(|(sector, _)| *sector).collect();
        for sector in healed {
            self.honest.remove(&sector);
            self.changes.push((sector, change));
        }
    }

    /// Keeps the honest bytes of `sector` from before the write at `index` of the disk's log, so
    /// that they can be restored.
    pub(crate) fn remember(&mut self, index: usize, sector: u64) {
        if let Some(honest) = self.honest.get(&sector) {
            self.before.insert(index, honest.clone());
        }
    }

    /// A power cut undid the write at `index` of the disk's log: undoes it on the honest disk as
    /// well.
    pub(crate) fn undo(&mut self, index: usize, sector: u64, seen: &[u8]) {
        match self.before.remove(&index) {
            Some(honest) => self.differ(sector, (&honest, seen), Change::Back),
            None => self.agree(sector..sector + 1, Change::Undone),
        }
    }

    pub(crate) fn claim(&mut self, index: usize) {
        self.claimed.insert(index);
    }

    pub(crate) fn claim_until(&mut self, end: usize) {
        self.claimed_end = end;
    }

    pub(crate) fn is_claimed(&self, index: usize) -> bool {
        index < self.claimed_end || self.claimed.contains(&index)
    }

    /// The disk has emptied its log: forgets everything that is stored by index in that log.
    pub(crate) fn settle(&mut self) {
        self.before.clear();
        self.claimed.clear();
        self.claimed_end = 0;
    }
}
