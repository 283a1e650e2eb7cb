//! The oracle of contents: versions of each sector that a read may return, or that can be on stable
//! storage.
//!
//! ```text
//!   begin ──▶ current, in flight ──answered──▶ current ──a later write answered──▶ superseded
//!                                                        flush submitted after that ──▶ gone
//!   read       returns any version that was current since the read began
//!   kill       can lose an early answer; then its predecessor returns, unless that is covered
//!   power cut  leaves any version that is not gone
//!   next read  returns one of them; the others are superseded (pinned)
//! ```
//!
//! After an unclean stop the two copies of a mirror can hold different values. A read pins one of
//! them, but the loss of a member can bring the other back. Such entries are superseded *by pin*,
//! until [`Model::unpin`].
//!
//! A write that was acknowledged early is *held* until the members have it. An entry that is
//! superseded while no held write is current is *covered*: no kill restores it.
//!
//! A partly written sector is a version of its own, and the model keeps its bytes. If these bytes
//! equal those of another version, the sector has that version.

use std::collections::BTreeMap;

use crate::content::{FIRST, SECTOR, Version, ZEROES, fill, version_of};
use crate::random::fold;

/// The version of a sector that no client has written and that the bitmap calls unwritten: any
/// bytes are right.
pub(crate) const ANYTHING: Version = Version::MAX;

/// Versions from here on name bytes that a client read from a sector that may hold any bytes. A
/// partial write of the sector then keeps these bytes.
const FOUND: Version = 1 << 31;

/// The value of `superseded` in an entry that is not superseded.
const CURRENT: u64 = u64::MAX;

/// The value of `write` in an entry whose content is on stable storage.
const STABLE: u64 = 0;
/// The value of `write` in an entry whose content can still be in a disk's cache although no client
/// waits for the write.
const UNAWAITED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    write: u64,
    version: Version,
    /// The step at which the write was answered; `None` while it is in flight.
    answered: Option<u64>,
    superseded: u64,
    by_pin: bool,
    /// The write is gone from stable storage. If superseded by pin: from the copy that is read.
    gone: bool,
    /// The members have a later write. Only a power cut can still restore this write.
    covered: bool,
    /// The engine released this write while another write was in flight, so that members may lack
    /// it.
    replaced: bool,
    /// The array acknowledged a part of this write and lost it before it answered the client.
    lost: bool,
}

impl Entry {
    /// Whether this version returns if a later, held write is lost.
    fn is_below(&self) -> bool {
        self.superseded != CURRENT && !self.covered && !self.gone && !self.by_pin
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The write succeeded, and supersedes writes that were acknowledged before it began.
    Done { durable: bool },
    /// The write may or may not have changed its sectors.
    Unsure,
}

#[derive(Debug)]
pub(crate) struct Model {
    cells: Vec<Vec<Entry>>,
    /// The bytes of sectors that are made of two writes, by sector and version.
    merged: BTreeMap<(u64, Version), Box<[u8]>>,
    /// How many versions from `FOUND` on are in use.
    found: Version,
    /// By sector: the step at which its last trim was acknowledged; [`CURRENT`] while that trim is
    /// in flight; `None` once a client has written the sector.
    given_up: Vec<Option<u64>>,
}

/// With more merged sectors than this, the model forgets those that no read can return.
const MERGED_MAX: usize = 64;

impl Clone for Model {
    fn clone(&self) -> Self {
        Self {
            cells: self.cells.clone(),
            merged: self.merged.clone(),
            found: self.found,
            given_up: self.given_up.clone(),
        }
    }

    /// Copies `source` into the memory that `self` already has.
    fn clone_from(&mut self, source: &Self) {
        let Self { cells, merged, found, given_up } = source;
        self.found = *found;
        self.given_up.clone_from(given_up);
        self.cells.clone_from(cells);
        self.merged.clone_from(merged);
    }
}

impl Model {
    pub(crate) fn new(sectors: u64) -> Self {
        let cells = vec![vec![settled(FIRST)]; sectors as usize];
        let given_up = vec![None; sectors as usize];
        Self { cells, merged: BTreeMap::new(), found: 0, given_up }
    }

    pub(crate) fn bytes_of(&self, sector: u64, version: Version, out: &mut [u8]) {
        match self.merged.get(&(sector, version)) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => fill(version, sector, out),
        }
    }

    /// The version of `sector` with these bytes, if any.
    pub(crate) fn identify(&self, sector: u64, data: &[u8]) -> Option<Version> {
        let merged = || {
            let of_sector = self.merged.range((sector, 0)..=(sector, Version::MAX));
            let mut equal = of_sector.filter(|(_, bytes)| ***bytes == *data);
            equal.next().map(|((_, version), _)| *version)
        };
        // The head of a merged sector can have the bytes of one version, and the rest the bytes of
        // another version.
        let plain = version_of(sector, data);
        if self.merged.is_empty() {
            return plain;
        }
        plain.filter(|version| !self.merged.contains_key(&(sector, *version))).or_else(merged)
    }

    /// Begins a write that changes a part of a sector. `bytes` is the sector's whole new content.
    pub(crate) fn begin_merged(
        &mut self,
        sector: u64,
        write: u64,
        version: Version,
        bytes: &[u8; SECTOR],
    ) {
        let known = self.identify(sector, bytes);
        let version = known.unwrap_or_else(|| {
            self.forget_merged();
            self.merged.insert((sector, version), bytes.as_slice().into());
            version
        });
        self.begin((sector, 1), write, version);
    }

    fn forget_merged(&mut self) {
        if self.merged.len() >= MERGED_MAX {
            let cells = &self.cells;
            let is_there = |sector: u64, version| {
                cells[sector as usize].iter().any(|entry| entry.version == version)
            };
            self.merged.retain(|(sector, version), _| is_there(*sector, *version));
        }
    }

    /// Checks a read of `range` (bytes) of a sector. The read began at step `began` and returned
    /// `data`.
    pub(crate) fn check_part(
        &self,
        sector: u64,
        range: std::ops::Range<usize>,
        data: &[u8],
        began: u64,
    ) {
        let mut bytes = [0; SECTOR];
        let readable = self.readable(sector, began);
        let fits = readable.contains(&ANYTHING)
            || readable.iter().any(|version| {
                self.bytes_of(sector, *version, &mut bytes);
                bytes[range.clone()] == *data
            });
        assert!(fits, "bytes {range:?} of sector {sector} read as none of {readable:?}");
    }

    fn range(&mut self, (start, sectors): (u64, u64)) -> &mut [Vec<Entry>] {
        &mut self.cells[start as usize..(start + sectors) as usize]
    }

    pub(crate) fn begin(&mut self, range: (u64, u64), write: u64, version: Version) {
        for cell in self.range(range) {
            cell.push(Entry { write, answered: None, ..settled(version) });
        }
    }

    /// The write that began at step `began` was acknowledged at step `now`.
    pub(crate) fn end(&mut self, range: (u64, u64), write: u64, times: (u64, u64), end: End) {
        let (began, now) = times;
        for cell in self.range(range) {
            // If a part of the write was lost, its success means nothing, unless the write was
            // durable.
            let is_lost = |entry: &Entry| entry.write == write && entry.lost;
            let is_lost = end == (End::Done { durable: false }) && cell.iter().any(is_lost);
            let end = if is_lost { End::Unsure } else { end };
            for entry in cell.iter_mut() {
                if entry.write == write && entry.answered.is_none() {
                    entry.answered = Some(now);
                } else if let End::Done { durable } = end
                    && entry.answered.is_some_and(|answered| answered <= began)
                {
                    if entry.superseded == CURRENT || entry.by_pin {
                        (entry.superseded, entry.by_pin, entry.gone) = (now, false, false);
                    }
                    entry.gone |= durable;
                }
            }
        }
    }

    /// A flush submitted at step `asked` was acknowledged. `oldest` is the step at which the oldest
    /// read in flight began: that read can still return entries that are gone from stable storage
    /// now.
    pub(crate) fn flushed(&mut self, asked: u64, oldest: u64) {
        for cell in self.cells.iter_mut().filter(|cell| cell.len() > 1) {
            for entry in cell.iter_mut() {
                entry.gone |= entry.superseded <= asked;
            }
            cell.retain(|entry| !entry.gone || entry.by_pin || entry.superseded >= oldest);
        }
    }

    /// Whether a read that began at step `began` may return `version`.
    pub(crate) fn may_read(&self, sector: u64, version: Version, began: u64) -> bool {
        let cell = &self.cells[sector as usize];
        cell.iter().any(|entry| entry.version == version && entry.superseded >= began)
    }

    /// A trim of these sectors begins (`None`), or was acknowledged at a step.
    pub(crate) fn gives_up(&mut self, (start, sectors): (u64, u64), answered: Option<u64>) {
        let at = answered.unwrap_or(CURRENT);
        self.given_up[start as usize..(start + sectors) as usize].fill(Some(at));
    }

    /// A write that began at step `began` was acknowledged, so clients need its sectors again. If a
    /// trim ran at the same time, the order of the two is unknown, and the sectors may count as
    /// trimmed.
    pub(crate) fn needs_again(&mut self, (start, sectors): (u64, u64), began: u64) {
        for given_up in &mut self.given_up[start as usize..(start + sectors) as usize] {
            *given_up = given_up.filter(|answered| *answered > began);
        }
    }

    /// The array calls a sector unwritten: no client needs it.
    ///
    /// # Panics
    /// If a client needs the sector.
    pub(crate) fn is_unwritten(&mut self, sector: u64) {
        if self.may_be_anything(sector) {
            return;
        }
        let is_given_up = self.given_up[sector as usize].is_some();
        assert!(is_given_up, "sector {sector} counts as unwritten, but a client needs it");
        let cell = &mut self.cells[sector as usize];
        cell.retain(|entry| entry.answered.is_none());
        cell.push(settled(ANYTHING));
    }

    /// Whether a read of the sector may return any bytes.
    pub(crate) fn may_be_anything(&self, sector: u64) -> bool {
        let cell = &self.cells[sector as usize];
        cell.iter().any(|entry| entry.version == ANYTHING && entry.superseded == CURRENT)
    }

    /// The version with the bytes `data`, which a client read in order to rewrite the sector in
    /// part. Creates a version if the model has none with these bytes.
    pub(crate) fn name_of(&mut self, sector: u64, data: &[u8]) -> Version {
        if let Some(version) = self.identify(sector, data) {
            return version;
        }
        self.forget_merged();
        let version = FOUND + self.found;
        self.found += 1;
        self.merged.insert((sector, version), data.into());
        // No read may return this entry. It only keeps the version's bytes for the request that
        // names the version.
        let is_over = Entry { superseded: 0, ..settled(version) };
        self.cells[sector as usize].insert(0, is_over);
        version
    }

    /// Whether a write of the sector may have been in flight: the sector has several versions, or
    /// zeroes (which may have been written over zeroes).
    pub(crate) fn is_unsure(&self, sector: u64) -> bool {
        let cell = &self.cells[sector as usize];
        cell.len() > 1 || cell.iter().all(|entry| entry.version == ZEROES)
    }

    /// Versions that a read since step `began` is allowed to return, for messages.
    pub(crate) fn readable(&self, sector: u64, began: u64) -> Vec<Version> {
        let cell = self.cells[sector as usize].iter();
        cell.filter(|entry| entry.superseded >= began).map(|entry| entry.version).collect()
    }

    /// A read that began at step `began` returned `version`. If no write ran meanwhile, the sector
    /// has that version from now on. `firmly` is false if another copy can hold another value.
    /// `lasts` is false if the bytes read can be in a cache although no client wrote them.
    pub(crate) fn pin(
        &mut self,
        sector: u64,
        version: Version,
        (began, now): (u64, u64),
        (firmly, lasts): (bool, bool),
    ) {
        if self.may_be_anything(sector) {
            return; // The next read may return other bytes.
        }
        let cell = &mut self.cells[sector as usize];
        let alone = |entry: &Entry| {
            entry.superseded != CURRENT || entry.answered.is_some_and(|at| at <= began)
        };
        if cell.len() > 1 && cell.iter().all(alone) {
            // Nothing was written since the last power cut: the bytes read are on stable storage.
            let is_stable = lasts && cell.iter().all(|entry| entry.write == STABLE);
            for entry in cell.iter_mut() {
                if entry.superseded == CURRENT && entry.version != version {
                    (entry.superseded, entry.by_pin, entry.gone) = (now, !firmly, is_stable);
                }
            }
        }
    }

    /// A copy was lost: reads may return the other copy's version.
    pub(crate) fn unpin(&mut self) {
        for entry in self.cells.iter_mut().flatten().filter(|entry| entry.by_pin) {
            (entry.superseded, entry.by_pin, entry.gone) = (CURRENT, false, false);
        }
    }

    /// Power was cut: reads may return any version that can be on stable storage. With `of_all`
    /// every disk lost power, so that no cache holds data; otherwise a later cut can still lose
    /// these versions.
    pub(crate) fn lose_power(&mut self, of_all: bool) {
        let write = if of_all { STABLE } else { UNAWAITED };
        for cell in &mut self.cells {
            if let [entry] = cell.as_mut_slice() {
                *entry = Entry { write, ..settled(entry.version) };
                continue;
            }
            cell.retain(|entry| !entry.gone || entry.by_pin);
            for entry in cell.iter_mut() {
                let stays_pinned = entry.by_pin && entry.gone;
                *entry = if stays_pinned {
                    Entry { superseded: 0, by_pin: true, gone: true, ..settled(entry.version) }
                } else {
                    Entry { write, ..settled(entry.version) }
                };
            }
            cell.sort_by_key(|entry| (entry.version, entry.by_pin));
            cell.dedup_by_key(|entry| entry.version);
        }
    }

    /// The process ends, and the disks keep power. Writes in flight may be lost or not.
    /// Acknowledged writes for which `is_held` is true may be lost, too. `is_held` is `None` if a
    /// cache file keeps all acknowledged writes.
    pub(crate) fn lose_process(&mut self, now: u64, is_held: Option<&dyn Fn(u64) -> bool>) {
        for (cell, given_up) in self.cells.iter_mut().zip(&mut self.given_up) {
            if cell.iter().any(|entry| entry.answered.is_none()) {
                // A trim, or a write after a trim, may have been in flight.
                *given_up = given_up.filter(|answered| *answered == CURRENT).map(|_| now);
            }
            cell.iter_mut().for_each(|entry| _ = entry.answered.get_or_insert(now));
            if is_held.is_some_and(|is_held| has_held(cell, is_held)) {
                uncover(cell);
            }
        }
    }

    /// The members have every acknowledged write, and nothing is in flight.
    pub(crate) fn has_all(&mut self) {
        for entry in self.cells.iter_mut().flatten() {
            entry.replaced = false;
            entry.covered |= entry.is_below();
        }
    }

    /// An acknowledged write that only the process had may have been lost.
    pub(crate) fn lose_answered(&mut self, is_held: &dyn Fn(u64) -> bool) {
        for cell in self.cells.iter_mut().filter(|cell| has_held(cell, is_held)) {
            uncover(cell);
            let under_way = cell.iter_mut().filter(|entry| entry.answered.is_none());
            under_way.for_each(|entry| entry.lost |= is_held(entry.write));
        }
    }

    /// The engine releases a held write: the members have it, unless another write in flight took
    /// its place.
    pub(crate) fn released(&mut self, range: (u64, u64), write: u64) {
        for cell in self.range(range) {
            let is_other = |entry: &Entry| entry.write != write && entry.answered.is_none();
            let is_replaced = cell.iter().any(is_other);
            for entry in cell.iter_mut().filter(|entry| entry.write == write) {
                entry.replaced |= is_replaced;
            }
        }
    }

    /// Whether a member may hold `version`: a read may return it, or all later writes are held.
    pub(crate) fn may_be_stored(
        &self,
        sector: u64,
        version: Version,
        is_held: &dyn Fn(u64) -> bool,
    ) -> bool {
        let cell = &self.cells[sector as usize];
        let is_below = has_held(cell, is_held);
        let may_be = |entry: &Entry| entry.superseded == CURRENT || is_below && entry.is_below();
        cell.iter().any(|entry| entry.version == version && may_be(entry))
    }

    /// A write of these sectors was acknowledged or released. If no write of these sectors is held,
    /// the members have the last write, and a kill restores no earlier version.
    pub(crate) fn cover(&mut self, range: (u64, u64), is_held: &dyn Fn(u64) -> bool) {
        for cell in self.range(range) {
            let is_still = cell.iter().all(|entry| entry.answered.is_some());
            if cell.len() > 1 && is_still && !has_held(cell, is_held) {
                let superseded = cell.iter_mut().filter(|entry| entry.is_below());
                superseded.for_each(|entry| entry.covered = true);
            }
        }
    }

    /// Steps are counted anew, with no read in flight, so no read may return a superseded version.
    pub(crate) fn begin_anew(&mut self) {
        let entries = self.cells.iter_mut().flatten();
        let superseded = entries.filter(|entry| entry.superseded != CURRENT);
        superseded.for_each(|entry| entry.superseded = 0);
    }

    /// A hash of the versions that each sector may have after a power cut or a kill.
    pub(crate) fn digest(&self) -> u64 {
        let mut hash = 0;
        for (sector, cell) in (0_u64..).zip(&self.cells) {
            for entry in cell {
                let flags = u64::from(entry.by_pin) << 1 | u64::from(entry.gone);
                let flags = flags << 1 | u64::from(entry.superseded == CURRENT);
                hash = fold(hash, sector << 40 | u64::from(entry.version) << 3 | flags);
            }
        }
        hash
    }

    /// Every member holds this version of the sector, on stable storage.
    pub(crate) fn settle(&mut self, sector: u64, version: Version) {
        let cell = &mut self.cells[sector as usize];
        cell.clear();
        cell.push(settled(version));
    }
}

/// Whether a current version of the sector is held: the process has it, and members lack it.
fn has_held(cell: &[Entry], is_held: &dyn Fn(u64) -> bool) -> bool {
    let may_be = |entry: &Entry| entry.replaced || is_held(entry.write);
    cell.iter().any(|entry| entry.superseded == CURRENT && may_be(entry))
}

/// The held version of a sector can be lost: reads may return earlier versions again.
fn uncover(cell: &mut [Entry]) {
    cell.iter_mut().filter(|entry| entry.is_below()).for_each(|entry| entry.superseded = CURRENT);
}

fn settled(version: Version) -> Entry {
    Entry {
        write: STABLE,
        version,
        answered: Some(0),
        superseded: CURRENT,
        by_pin: false,
        gone: false,
        covered: false,
        replaced: false,
        lost: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(model: &mut Model, write: u64, times: (u64, u64), durable: bool) {
        model.begin((0, 1), write, write as Version);
        model.end((0, 1), write, times, End::Done { durable });
    }

    #[test]
    fn what_was_answered_may_be_lost_until_it_is_flushed() {
        let mut model = Model::new(1);
        written(&mut model, 10, (1, 2), false);
        assert!(!model.may_read(0, FIRST, 3) && model.may_read(0, 10, 3));
        let mut cut = model.clone();
        cut.lose_power(true);
        assert!(cut.may_read(0, FIRST, 3) && cut.may_read(0, 10, 3));
        let mut too_early = model.clone();
        too_early.flushed(1, 4);
        too_early.lose_power(true);
        assert!(too_early.may_read(0, FIRST, 5));
        model.flushed(3, 4);
        model.lose_power(true);
        assert!(!model.may_read(0, FIRST, 5) && model.may_read(0, 10, 5));
    }

    #[test]
    fn a_merged_sector_is_known_by_all_of_its_bytes() {
        let mut model = Model::new(2);
        let mut bytes = [0; SECTOR];
        fill(FIRST, 1, &mut bytes);
        bytes[300..310].fill(0xEE);
        model.begin_merged(1, 9, 10, &bytes);
        assert_eq!(model.identify(1, &bytes), Some(10));
        assert_eq!(model.identify(0, &bytes), None, "another place");
        model.check_part(1, 295..305, &bytes[295..305], 1);
        bytes[511] ^= 1;
        assert_eq!(model.identify(1, &bytes), None, "a flipped bit beside the patch");
        fill(10, 1, &mut bytes);
        assert_eq!(model.identify(1, &bytes), None, "it is not what a whole write would be");
        model.begin_merged(0, 9, 10, &[0; SECTOR]);
        assert_eq!(model.identify(0, &[0; SECTOR]), Some(0), "zeroes are zeroes");
    }

    #[test]
    #[should_panic(expected = "bytes 0..4 of sector 0 read as none of")]
    fn part_of_a_sector_that_was_never_there_is_noticed() {
        Model::new(1).check_part(0, 0..4, &[1, 2, 3, 4], 1);
    }

    /// Three writes of one sector: the members have the first, and the process holds the other two.
    #[test]
    fn a_kill_takes_what_is_held_and_nothing_below() {
        let is_held = |write: u64| write > 10;
        let mut model = Model::new(1);
        written(&mut model, 10, (1, 2), false);
        model.cover((0, 1), &is_held);
        written(&mut model, 11, (3, 4), false);
        model.cover((0, 1), &is_held);
        written(&mut model, 12, (5, 6), false);
        let mut killed = model.clone();
        killed.lose_process(7, Some(&is_held));
        assert!([10, 11, 12].iter().all(|version| killed.may_read(0, *version, 8)));
        assert!(!killed.may_read(0, FIRST, 8), "the members have 10");
        let mut cut = model.clone();
        cut.lose_power(true);
        assert!(cut.may_read(0, FIRST, 8), "but it was not flushed");
        // Write 12 takes the place of write 11, and reaches the members.
        let is_held = |_| false;
        model.cover((0, 1), &is_held);
        model.lose_process(7, Some(&is_held));
        assert!(model.may_read(0, 12, 8) && !model.may_read(0, 11, 8));
    }

    #[test]
    fn a_lost_write_may_read_as_old_or_new_until_the_next() {
        let mut model = Model::new(1);
        written(&mut model, 10, (1, 2), false);
        model.lose_answered(&|write| write == 10);
        model.flushed(3, 4);
        assert!(model.may_read(0, FIRST, 5) && model.may_read(0, 10, 5));
        written(&mut model, 11, (6, 7), true);
        assert!(!model.may_read(0, FIRST, 8) && model.may_read(0, 11, 8));
    }

    /// Write 10 is held. Write 11 took its place and failed.
    #[test]
    fn what_was_replaced_by_a_write_that_failed_may_be_lost() {
        let mut model = Model::new(1);
        written(&mut model, 10, (1, 2), false);
        model.begin((0, 1), 11, 11);
        model.released((0, 1), 10);
        model.cover((0, 1), &|_| false);
        model.end((0, 1), 11, (3, 4), End::Unsure);
        model.cover((0, 1), &|_| false);
        model.lose_process(5, Some(&|_| false));
        assert!([FIRST, 10, 11].iter().all(|version| model.may_read(0, *version, 6)));
    }

    #[test]
    fn durable_is_flushed_and_overlapping_writes_end_either_way() {
        let mut model = Model::new(1);
        model.begin((0, 1), 11, 11);
        written(&mut model, 10, (3, 4), true);
        model.end((0, 1), 11, (1, 5), End::Done { durable: false });
        model.lose_power(true);
        assert!(!model.may_read(0, FIRST, 6));
        assert!(model.may_read(0, 10, 6) && model.may_read(0, 11, 6));
    }

    #[test]
    fn a_value_once_read_is_pinned_and_a_loss_unpins_it() {
        let mut model = Model::new(1);
        written(&mut model, 10, (1, 2), false);
        model.lose_power(true);
        let mut mirror = model.clone();
        model.pin(0, FIRST, (3, 4), (true, true));
        assert!(!model.may_read(0, 10, 5) && model.may_read(0, 10, 3));
        model.flushed(5, 6);
        model.unpin();
        assert!(!model.may_read(0, 10, 6));
        mirror.pin(0, FIRST, (3, 4), (false, true));
        mirror.lose_power(true);
        assert!(!mirror.may_read(0, 10, 7));
        mirror.unpin();
        assert!(mirror.may_read(0, 10, 8));
    }
    #[test]
    fn what_a_copy_was_given_back_and_not_flushed_may_go_with_the_power() {
        let mut mirror = Model::new(1);
        written(&mut mirror, 10, (1, 2), false);
        mirror.lose_power(true);
        // One copy could not be read. The array rewrote this copy from the other one, into the
        // disk's cache.
        mirror.pin(0, 10, (3, 4), (false, false));
        assert!(!mirror.may_read(0, FIRST, 5));
        mirror.lose_power(true);
        assert!(mirror.may_read(0, FIRST, 6) && mirror.may_read(0, 10, 6));
    }
}
