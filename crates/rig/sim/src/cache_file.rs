//! The file of answered writes that outlives the process: copies of them while it runs, and what the next process does with
//! those that it finds.
//!
//! ```text
//!   Put, Erase ──▶ copies ──the process ends──▶ found ──the same array──▶ written again, in order, before any client
//!                     │                           └────another wrote meanwhile──▶ not believed: lost
//!                     └──power is cut──▶ gone
//! ```
//!
//! Not every run has one. With one, the end of the process takes nothing that was answered: the model is not told that anything was
//! lost, and reads what is there then.
//!
//! - No more is put than there is room for, and nothing is left when the array stops.
//! - A file of another time of the array is never written back [planted: stale-cache-file].

mod world;

use std::collections::BTreeMap;

use braid_assembly::AssembledArray;
use braid_engine::CacheStamp;
use braid_engine::effect::CachedRun;

/// A copy of a run of an answered write.
#[derive(Clone, Debug)]
struct Copy {
    run: CachedRun,
    /// None of zeroes.
    data: Option<Vec<u8>>,
}

/// What a process finds that an earlier one left.
#[derive(Clone, Debug)]
struct Found {
    copies: Vec<Copy>,
    stamp: CacheStamp,
    /// Names in the model of the answered writes that only it has.
    writes: Vec<u64>,
    /// Another server wrote to the array since.
    is_outdated: bool,
}

/// The file.
#[derive(Debug, Default)]
pub(crate) struct CacheFile {
    /// By shard and name.
    copies: BTreeMap<(usize, u32), Vec<Copy>>,
    stamp: CacheStamp,
    found: Option<Found>,
    /// One that was left where another server went on without it.
    stale: Option<Found>,
}

impl CacheFile {
    /// The array is started.
    pub(crate) fn begin(&mut self, array: &AssembledArray) {
        if self.found.is_none() {
            self.stamp = CacheStamp::default();
        }
        self.stamp.note(array.newest.state.events, array.newest.state.update_time);
    }

    /// Superblocks are about to be written.
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
