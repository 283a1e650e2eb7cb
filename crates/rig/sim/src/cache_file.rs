//! The cache file: copies of acknowledged writes that survive the process, for the next process.
//!
//! ```text
//!   Put, Erase ──▶ copies ──the process ends──▶ found ──the same array──▶ written again, in order
//!                     │                           └──another wrote meanwhile──▶ not believed: lost
//!                     └──power is cut──▶ gone
//! ```
//!
//! Found copies are written again before any client comes.
//!
//! Only some runs have a cache file. In those, the end of the process loses no acknowledged write:
//! the model notes no loss, and reads must return these writes.
//!
//! - The engine puts no more copies than the file has room for, and leaves none when the array
//!   stops.
//! - A file from an earlier state of the array is never written back [planted: stale-cache-file].

mod world;

use std::collections::BTreeMap;

use braid_assembly::AssembledArray;
use braid_engine::CacheStamp;
use braid_engine::effect::CachedRun;

#[derive(Clone, Debug)]
struct Copy {
    run: CachedRun,
    /// The written bytes; `None` for zeroes.
    data: Option<Vec<u8>>,
}

/// Copies that an earlier process left.
#[derive(Clone, Debug)]
struct CacheSnapshot {
    copies: Vec<Copy>,
    stamp: CacheStamp,
    /// The model's names of the acknowledged writes that exist only in this file.
    writes: Vec<u64>,
    /// Another server has written to the array since the process ended.
    is_outdated: bool,
}

#[derive(Debug, Default)]
pub(crate) struct CacheFile {
    /// Copies by shard and by the name that the shard gave them.
    copies: BTreeMap<(usize, u32), Vec<Copy>>,
    stamp: CacheStamp,
    found: Option<CacheSnapshot>,
    /// A cache file that was left behind while another server ran the array without it.
    stale: Option<CacheSnapshot>,
}

impl CacheFile {
    pub(crate) fn begin(&mut self, array: &AssembledArray) {
        if self.found.is_none() {
            self.stamp = CacheStamp::default();
        }
        self.stamp.note(array.newest.state.events, array.newest.state.update_time);
    }

    /// Superblocks with these events and this time are about to be written: notes both in the
    /// stamp.
    pub(crate) fn note_update(&mut self, events: u64, time: braid_ondisk::Timestamp) {
        self.stamp.note(events, time);
        if let Some(found) = &mut self.found {
            found.stamp.note(events, time);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}
