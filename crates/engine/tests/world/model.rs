//! What every sector of the array may read as: the oracle.
//!
//! Each write gives its sectors a version of their own. A sector may read as the newest answered
//! version, as any version in flight, and, where writes overlapped in flight, as any of those that
//! no later answered write has replaced. What is on stable storage may lag behind down to the last
//! flush; `history` holds all that a power cut may leave.

use std::ops::RangeInclusive;

use crate::SECTOR;
use crate::random::mix;

/// Which write a sector's bytes come from; 0 is zeroes.
pub(crate) type Version = u32;

/// The content of the whole array before the first write.
pub(crate) const FIRST: Version = 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    write: u64,
    version: Version,
    /// The step at which it was answered; none while in flight.
    answered: Option<u64>,
}

#[derive(Clone, Debug)]
struct Cell {
    entries: Vec<Entry>,
    /// All that may be on stable storage.
    history: Vec<Entry>,
}

#[derive(Clone)]
pub(crate) struct Model {
    cells: Vec<Cell>,
}

/// How a write ended, for the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It replaces what was answered before it began.
    Done { durable: bool },
    /// Its sectors may or may not be changed.
    Unsure,
}

impl Model {
    pub(crate) fn new(sectors: u64) -> Self {
        let entry = Entry { write: 0, version: FIRST, answered: Some(0) };
        let cell = Cell { entries: vec![entry], history: vec![entry] };
        Self { cells: vec![cell; sectors as usize] }
    }

    fn range(&mut self, (start, sectors): (u64, u64)) -> &mut [Cell] {
        &mut self.cells[start as usize..(start + sectors) as usize]
    }

    pub(crate) fn begin(&mut self, range: (u64, u64), write: u64, version: Version) {
        for cell in self.range(range) {
            let entry = Entry { write, version, answered: None };
            cell.entries.push(entry);
            cell.history.push(entry);
        }
    }

    /// The write that began at step `began` was answered at step `now`.
    pub(crate) fn end(
        &mut self,
        range: (u64, u64),
        write: u64,
        (began, now): (u64, u64),
        end: End,
    ) {
        for cell in self.range(range) {
            if let End::Done { durable } = end {
                let stays = |entry: &Entry| {
                    entry.write == write || entry.answered.is_none_or(|answered| answered > began)
                };
                cell.entries.retain(stays);
                if durable {
                    // What was written beside it may have come later, and may still be volatile.
                    cell.history.retain(stays);
                }
            }
            let all = cell.entries.iter_mut().chain(&mut cell.history);
            for entry in all.filter(|entry| entry.write == write) {
                entry.answered = Some(now);
            }
        }
    }

    /// A flush that was asked for at step `asked` was answered.
    pub(crate) fn flushed(&mut self, asked: u64) {
        for cell in &mut self.cells {
            if cell.entries.iter().all(|entry| entry.answered.is_some_and(|at| at <= asked)) {
                cell.history.clone_from(&cell.entries);
            }
        }
    }

    /// What was written there and answered may not be there after all.
    pub(crate) fn lose(&mut self, range: (u64, u64)) {
        for cell in self.range(range) {
            cell.entries.clone_from(&cell.history);
        }
    }

    pub(crate) fn allowed(&self, sector: u64) -> Vec<Version> {
        self.cells[sector as usize].entries.iter().map(|entry| entry.version).collect()
    }

    /// Whether no write to the sector is under way.
    pub(crate) fn is_at_rest(&self, sector: u64) -> bool {
        self.cells[sector as usize].entries.iter().all(|entry| entry.answered.is_some())
    }

    /// What the sector is, where there is no doubt and it was answered in one of `steps`; 0 is
    /// before this run.
    pub(crate) fn only_of(&self, sector: u64, steps: &RangeInclusive<u64>) -> Option<Version> {
        let entries = &self.cells[sector as usize].entries;
        let in_time = |at: u64| steps.contains(&at);
        let settled = entries.iter().all(|entry| entry.answered.is_some_and(in_time));
        let first = entries[0].version;
        (settled && entries.iter().all(|entry| entry.version == first)).then_some(first)
    }

    /// A read that nothing overlapped has told which of several versions it is.
    pub(crate) fn settle(&mut self, sector: u64, version: Version) {
        let entries = &mut self.cells[sector as usize].entries;
        if entries.iter().all(|entry| entry.answered.is_some()) {
            entries.retain(|entry| entry.version == version);
        }
    }

    /// All that may be on stable storage.
    pub(crate) fn history(&self, sector: u64) -> Vec<Version> {
        self.cells[sector as usize].history.iter().map(|entry| entry.version).collect()
    }

    /// After a power cut: what may be on stable storage is what may be read.
    pub(crate) fn lose_power(&mut self) {
        for cell in &mut self.cells {
            for entry in &mut cell.history {
                *entry = Entry { write: 0, answered: Some(0), ..*entry };
            }
            cell.entries.clone_from(&cell.history);
        }
    }
}

/// The bytes of a version of a sector.
pub(crate) fn fill(version: Version, sector: u64, out: &mut [u8]) {
    assert_eq!(out.len(), SECTOR);
    if version == 0 {
        out.fill(0);
        return;
    }
    let mut state = mix(u64::from(version) << 32 | sector);
    for (index, word) in out.chunks_exact_mut(8).enumerate() {
        let value = if index == 0 { u64::from(version) << 32 | sector } else { state };
        word.copy_from_slice(&value.to_le_bytes());
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
}

/// Which version of `sector` the bytes are, if they are one.
pub(crate) fn version_of(sector: u64, data: &[u8]) -> Option<Version> {
    let head = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
    let version = (head >> 32) as Version;
    let mut expected = [0; SECTOR];
    fill(version, sector, &mut expected);
    (data == expected).then_some(version)
}
