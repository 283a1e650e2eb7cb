//! What was answered and then lost, and what reads of it may give.
//!
//! ```text
//!   reported lost ──▶ only an error ──a write of it begins──▶ either ──it is answered well──▶ no error any more
//! ```
//!
//! A report names sectors and no writes, and of several writes to a sector one may be lost and a later one not. So while
//! another write of a sector is under way or held when it is reported, reads of it may give either. The end of the
//! process forgets everything: md's format has no place for it.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use braid_engine::request::RequestId;

/// One sector.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// The step at which it was reported.
    at: u64,
    /// A write that is not the lost one may have reached the members, or may yet.
    may_be_rewritten: bool,
    /// The step at which a later write of it was answered well.
    rewritten: Option<u64>,
}

/// All sectors that were reported in this run of the process.
#[derive(Debug, Default)]
pub(crate) struct LostSectors {
    sectors: BTreeMap<u64, Loss>,
    /// Writes of which a part was answered early and lost before the rest was answered: their answer says so.
    to_be_told: BTreeSet<RequestId>,
    /// Ranges of reports that came together with the answers that are being looked at, and are noted after them.
    pub(crate) reported_now: Vec<(u64, u64)>,
}

impl LostSectors {
    /// Whether nothing was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// A write of these sectors begins.
    pub(crate) fn write_begins(&mut self, (start, sectors): (u64, u64)) {
        for (_, loss) in self.sectors.range_mut(start..start + sectors) {
            loss.may_be_rewritten = true;
        }
    }

    /// Whether a report that came with an answer is about any of these sectors.
    fn is_reported_now(&self, (start, sectors): (u64, u64)) -> bool {
        let meets = |(from, count): &(u64, u64)| *from < start + sectors && start < from + count;
        self.reported_now.iter().any(meets)
    }

    /// A write that began at step `began` was answered well.
    fn written(&mut self, (start, sectors): (u64, u64), (began, now): (u64, u64)) {
        let losses = self.sectors.range_mut(start..start + sectors).map(|(_, loss)| loss);
        for loss in losses.filter(|loss| loss.at < began) {
            loss.rewritten.get_or_insert(now);
        }
    }
}
