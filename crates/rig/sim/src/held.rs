//! Writes that were answered before the members had them, and what must be true of those.
//!
//! ```text
//!   reply, keeps its payload ──▶ held ──every piece released──▶ on the members, covered by a later write, or lost
//!                                 │
//!                                 └─ the process ends: it may never have been
//! ```
//!
//! A payload that is held stays in [`crate::memory`]; after its release nothing may name it, which the
//! memory notices. Here is the rest:
//!
//! - Only a write is answered early, only where the cache is told to and one more member could be lost.
//! - No payload is kept beyond the limit that holds, and none in the end.
//! - A flush that is answered well leaves nothing held that was answered before it was asked for.
//! - What is held is due: while nothing else goes on, its shard asks for a time that is not too far.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use braid_engine::request::RequestId;

/// One answered request of which pieces are held.
#[derive(Debug)]
struct HeldRequest {
    /// Shards that have pieces.
    shards: BTreeSet<usize>,
    /// Its name in the model.
    write: u64,
    range: (u64, u64),
    /// The step at which the last piece was answered.
    answered: u64,
}

/// What is held.
#[derive(Debug, Default)]
pub(crate) struct Held {
    requests: BTreeMap<RequestId, HeldRequest>,
    /// Pieces whose payload is named beyond their answer: by these, or by members that have left.
    users: BTreeMap<RequestId, u32>,
    /// An answered write was lost: the array cannot tell whose, so no flush goes well any more in this run.
    pub(crate) has_lost: bool,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether a write, by its name in the model, is with the process only.
    pub(crate) fn is_held(&self, write: u64) -> bool {
        self.requests.values().any(|held| held.write == write)
    }

    /// Names in the model of the writes that are.
    pub(crate) fn writes(&self) -> impl Iterator<Item = u64> {
        self.requests.values().map(|held| held.write)
    }

    /// Sectors of which some may still be written.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (RequestId, (u64, u64))> {
        self.requests.iter().map(|(id, held)| (*id, held.range))
    }

    fn pieces_of(&self, shard: usize) -> u32 {
        let held = self.requests.values().filter(|held| held.shards.contains(&shard));
        held.count() as u32
    }

    /// How many pieces, for who wants to know whether something changed.
    pub(crate) fn pieces(&self) -> u64 {
        self.requests.values().map(|held| held.shards.len() as u64).sum()
    }

    /// Whether the payload of a request is named beyond its answer.
    pub(crate) fn uses_payload(&self, request: RequestId) -> bool {
        self.users.contains_key(&request)
    }
}
