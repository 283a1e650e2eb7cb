//! Acknowledged writes that were lost afterwards, and the results that reads of them are allowed.
//!
//! ```text
//!   reported lost ──▶ only an error ──a write begins──▶ either ──answered well──▶ no more error
//! ```
//!
//! The array reports lost sectors, not writes. Of several writes to a sector an early one can be
//! lost and a later one not. So if another write of a reported sector is in flight or held, a read
//! may fail or succeed. The end of the process forgets all reports: md's format has no place for
//! them.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use braid_engine::request::RequestId;

/// A sector of which the array lost an acknowledged write.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// The step at which the array reported the loss.
    at: u64,
    /// Another write of the sector has reached the members, or can still reach them.
    may_be_rewritten: bool,
    /// The step at which a later write of the sector succeeded.
    rewritten: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct LostSectors {
    sectors: BTreeMap<u64, Loss>,
    /// Unanswered writes of which a part was acknowledged early and lost: they must not succeed.
    to_be_told: BTreeSet<RequestId>,
    /// Ranges whose loss was reported together with the answers being checked. The ranges are noted
    /// in `sectors` after these answers.
    pub(crate) reported_now: Vec<(u64, u64)>,
}

impl LostSectors {
    pub(crate) fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    pub(crate) fn write_begins(&mut self, (start, sectors): (u64, u64)) {
        for (_, loss) in self.sectors.range_mut(start..start + sectors) {
            loss.may_be_rewritten = true;
        }
    }

    /// Whether a report that came together with an answer covers any of these sectors.
    fn is_reported_now(&self, (start, sectors): (u64, u64)) -> bool {
        let meets = |(from, count): &(u64, u64)| *from < start + sectors && start < from + count;
        self.reported_now.iter().any(meets)
    }

    /// A write of these sectors, begun at step `began`, succeeded at step `now`.
    fn written(&mut self, (start, sectors): (u64, u64), (began, now): (u64, u64)) {
        let losses = self.sectors.range_mut(start..start + sectors).map(|(_, loss)| loss);
        for loss in losses.filter(|loss| loss.at < began) {
            loss.rewritten.get_or_insert(now);
        }
    }
}
