//! The model of the array: per sector, the writes that a client may find.
//!
//! `client` reports its requests and their answers. After a crash the model judges every sector
//! that is read. It then pins the version that it found: later reads must find that version.
//!
//! ```text
//!   base ── write ── write ── write        in the order asked; no two in flight touch one sector
//!            │answered  │answered  └ in flight, or answered with an error
//!            └ flushed: becomes the base, and all before it is forgotten
//!
//!   stopped, or killed:  the last that was answered, or any after it
//!   power cut:           the base, or any after it
//! ```
//!
//! Invariants:
//! - an acknowledged write that is missing after a kill is noticed
//!   `[check: an_answered_write_must_survive_a_kill]`;
//! - a flushed write missing after a power cut is noticed; an unflushed write may be missing
//!   `[check: only_flushed_writes_must_survive_a_power_cut]`;
//! - a version of a sector found once must stay `[check: what_was_found_must_stay]`.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Result, bail};

pub(super) const SECTOR_BYTES: usize = 512;
/// A version with this bit set is zeroes.
const ZERO: u32 = 1 << 31;
/// The version of a sector in a new file.
pub(super) const NEVER_WRITTEN: u32 = ZERO;
/// The version of writes to a server that must refuse them: no other write has this version.
pub(super) const LATE: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Process,
    /// Power was cut: unflushed writes may be lost.
    Unflushed,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    version: u32,
    /// The number of answers when this write was answered; `None` while it is in flight.
    answered: Option<u64>,
}

/// Counts of the comparisons so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Writes acknowledged before a crash and checked after the crash.
    pub(super) answered: u64,
    /// Writes among `answered` that a FLUSH or FUA made durable.
    pub(super) flushed: u64,
    pub(super) sectors: u64,
}

/// Sectors of an array without some members, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SectorCounts {
    /// Sectors that hold the last acknowledged write.
    pub(super) right: u64,
    /// Unreadable sectors.
    pub(super) failed: u64,
    /// Sectors with a write in flight, which are not judged.
    pub(super) open: u64,
    /// Sectors with any other content.
    pub(super) wrong: u64,
}

impl SectorCounts {
    pub(super) fn add(&mut self, more: Self) {
        self.right += more.right;
        self.failed += more.failed;
        self.open += more.open;
        self.wrong += more.wrong;
    }
}

/// The versions of all sectors.
#[derive(Clone, Debug)]
pub(super) struct Model {
    base: Vec<u32>,
    later: BTreeMap<usize, Vec<Write>>,
    last_version: u32,
    answers: u64,
    /// The answers to writes that were not yet judged, each with whether the write was flushed.
    unjudged: Vec<(u64, bool)>,
    pub(super) tally: Tally,
}

impl Model {
    /// A model of `sectors` sectors that were never written.
    pub(super) fn new(sectors: usize) -> Self {
        Self {
            base: vec![NEVER_WRITTEN; sectors],
            later: BTreeMap::new(),
            last_version: 0,
            answers: 0,
            unjudged: Vec::new(),
            tally: Tally::default(),
        }
    }

    pub(super) fn sectors(&self) -> usize {
        self.base.len()
    }

    /// Records that a write is sent; returns its version.
    pub(super) fn ask(&mut self, range: &Range<usize>, zeroes: bool) -> u32 {
        self.last_version += 1;
        let version = self.last_version | if zeroes { ZERO } else { 0 };
        for sector in range.clone() {
            self.later.entry(sector).or_default().push(Write { version, answered: None });
        }
        version
    }

    /// Records that a write succeeded; `durable` for a FUA.
    pub(super) fn answer(&mut self, range: &Range<usize>, version: u32, durable: bool) {
        self.answers += 1;
        self.unjudged.push((self.answers, durable));
        for sector in range.clone() {
            let Some(writes) = self.later.get_mut(&sector) else { continue };
            if let Some(write) = writes.iter_mut().find(|write| write.version == version) {
                write.answered = Some(self.answers);
            }
            if durable {
                self.settle(sector, self.answers);
            }
        }
    }

    /// The number of answers so far: a FLUSH sent now covers the writes answered so far.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// Records a successful FLUSH, which was sent after `covered` answers.
    pub(super) fn flushed(&mut self, covered: u64) {
        let sectors: Vec<usize> = self.later.keys().copied().collect();
        for sector in sectors {
            self.settle(sector, covered);
        }
        let done = self.unjudged.iter_mut().filter(|(answer, _)| *answer <= covered);
        done.for_each(|(_, flushed)| *flushed = true);
    }

    /// Makes the last write among the first `covered` answers the sector's base.
    fn settle(&mut self, sector: usize, covered: u64) {
        let Some(writes) = self.later.get_mut(&sector) else { return };
        let is_covered = |write: &Write| write.answered.is_some_and(|answer| answer <= covered);
        if let Some(last) = writes.iter().rposition(is_covered) {
            self.base[sector] = writes[last].version;
            writes.drain(..=last);
        }
        if writes.is_empty() {
            self.later.remove(&sector);
        }
    }

    /// The versions of a sector's content that may be found after this kind of end.
    fn allowed(&self, sector: usize, end: End) -> Vec<u32> {
        let writes = self.later.get(&sector).map_or(&[][..], Vec::as_slice);
        let last = writes.iter().rposition(|write| write.answered.is_some());
        match last.filter(|_| end == End::Process) {
            Some(last) => writes[last..].iter().map(|write| write.version).collect(),
            None => {
                let later = writes.iter().map(|write| write.version);
                std::iter::once(self.base[sector]).chain(later).collect()
            }
        }
    }

    /// Judges the bytes from sector `first` on after a crash; pins the versions found.
    pub(super) fn judge(&mut self, first: usize, bytes: &[u8], end: End) -> Result<()> {
        for (index, found) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let sector = first + index;
            self.base[sector] = self.find(sector, found, end)?;
            self.later.remove(&sector);
        }
        Ok(())
    }

    /// Judges bytes read from a live server, which proves no durability.
    pub(super) fn look(&mut self, first: usize, bytes: &[u8]) -> Result<()> {
        for (index, found) in bytes.chunks(SECTOR_BYTES).enumerate() {
            self.find(first + index, found, End::Process)?;
        }
        Ok(())
    }

    /// Compares `bytes` with the sectors from `first` on, except for sectors with a write in
    /// flight.
    pub(super) fn compare(&self, first: usize, bytes: &[u8]) -> SectorCounts {
        let mut found = SectorCounts::default();
        for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR_BYTES)) {
            let later = self.later.get(&sector).map_or(&[][..], Vec::as_slice);
            let is_open = later.iter().any(|write| write.answered.is_none());
            let last = later.last().map_or(self.base[sector], |write| write.version);
            match () {
                () if is_open => found.open += 1,
                () if bytes == content(last, sector) => found.right += 1,
                () => found.wrong += 1,
            }
        }
        found
    }

    /// The legal version with the bytes `found`; an error if no version has them.
    fn find(&mut self, sector: usize, found: &[u8], end: End) -> Result<u32> {
        self.tally.sectors += 1;
        let allowed = self.allowed(sector, end);
        let fits = |version: &&u32| found == content(**version, sector);
        if let Some(version) = allowed.iter().find(fits) {
            return Ok(*version);
        }
        let allowed = allowed.iter().map(|version| name(*version)).collect::<Vec<_>>().join(", ");
        bail!("sector {sector} holds {}; allowed are the writes {allowed}", describe(found))
    }

    /// Records that all sectors were judged: writes acknowledged until now have been checked.
    pub(super) fn judged_all(&mut self) {
        self.tally.answered += self.unjudged.len() as u64;
        let flushed = self.unjudged.iter().filter(|(_, flushed)| *flushed).count();
        self.tally.flushed += flushed as u64;
        self.unjudged.clear();
    }
}

/// A version's bytes in a sector. They contain both numbers, on which all other bytes depend.
pub(super) fn content(version: u32, sector: usize) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    if version & ZERO != 0 {
        return bytes;
    }
    let mut word = (u64::from(version) << 32) | sector as u64;
    for eight in bytes.chunks_exact_mut(8) {
        eight.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(23) ^ 0x9e37_79b9_7f4a_7c15;
    }
    bytes
}

fn name(version: u32) -> String {
    match version {
        NEVER_WRITTEN => "none".to_owned(),
        _ if version & ZERO != 0 => format!("{} (zeroes)", version & !ZERO),
        _ => version.to_string(),
    }
}

/// Describes the write whose bytes are `found`, as far as the bytes show it.
fn describe(found: &[u8]) -> String {
    if found.iter().all(|byte| *byte == 0) {
        return "zeroes".to_owned();
    }
    let mut word = [0; 8];
    word.copy_from_slice(&found[..8]);
    let word = u64::from_le_bytes(word);
    let (version, sector) = ((word >> 32) as u32, word & 0xffff_ffff);
    let whole = usize::try_from(sector).is_ok_and(|sector| found == content(version, sector));
    if whole {
        format!("write {version} of sector {sector}")
    } else {
        format!("bytes of no write ({:02x?} ...)", &found[..16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writes to sector 3: the first is flushed if `flushed`, the second is answered if
    /// `answered`.
    fn two_writes(flushed: bool, answered: bool) -> (Model, [u32; 2]) {
        let mut model = Model::new(8);
        let first = model.ask(&(3..4), false);
        model.answer(&(3..4), first, false);
        if flushed {
            model.flushed(model.answers());
        }
        let second = model.ask(&(3..4), false);
        if answered {
            model.answer(&(3..4), second, false);
        }
        (model, [first, second])
    }

    fn judges(flushed: bool, answered: bool, end: End, found: usize) -> bool {
        let (mut model, versions) = two_writes(flushed, answered);
        let version = [NEVER_WRITTEN, versions[0], versions[1]][found];
        model.judge(3, &content(version, 3), end).is_ok()
    }

    #[test]
    fn an_answered_write_must_survive_a_kill() {
        assert!(judges(false, true, End::Process, 2));
        assert!(!judges(false, true, End::Process, 1));
        assert!(judges(false, false, End::Process, 1));
        assert!(judges(false, false, End::Process, 2));
        assert!(!judges(false, false, End::Process, 0));
    }

    #[test]
    fn only_flushed_writes_must_survive_a_power_cut() {
        for found in 0..3 {
            assert!(judges(false, true, End::Unflushed, found));
        }
        assert!(!judges(true, true, End::Unflushed, 0));
        assert!(judges(true, true, End::Unflushed, 1));
    }

    #[test]
    fn a_flush_covers_only_what_was_answered_when_it_was_sent() {
        let (mut model, versions) = two_writes(false, false);
        let covered = model.answers();
        model.answer(&(3..4), versions[1], false);
        model.flushed(covered);
        assert!(model.judge(3, &content(versions[0], 3), End::Unflushed).is_ok());
        model.judged_all();
        assert_eq!(model.tally, Tally { answered: 2, flushed: 1, sectors: 1 });
    }

    #[test]
    fn what_was_found_must_stay() {
        let (mut model, versions) = two_writes(false, false);
        assert!(model.judge(3, &content(versions[0], 3), End::Process).is_ok());
        assert!(model.judge(3, &content(versions[1], 3), End::Process).is_err());
        assert!(model.judge(3, &content(versions[0], 3), End::Unflushed).is_ok());
    }

    #[test]
    fn sectors_nobody_wrote_must_not_change() {
        let (mut model, versions) = two_writes(true, true);
        let moved = model.judge(4, &content(versions[0], 3), End::Process).expect_err("collateral");
        assert!(moved.to_string().contains("write 1 of sector 3"), "{moved}");
    }
}
