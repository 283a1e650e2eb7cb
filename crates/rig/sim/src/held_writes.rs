//! Held writes: acknowledged before the members have them, and the rules for them.
//!
//! ```text
//!   reply, keeps its payload ──▶ held ──every piece released──▶ on the members, covered by a later write, or lost
//!                                 │
//!                                 └─ the process ends: lost or not
//! ```
//!
//! A held payload stays in [`crate::memory`]. After its release no request may name it. The other
//! rules:
//!
//! - Only a write is acknowledged early, if the cache's mode says so and the level tolerates one
//!   more loss.
//! - No payload is kept beyond the current limit, and none at the end.
//! - A successful flush leaves nothing held that was acknowledged before the flush was submitted.
//! - Held writes are due: while nothing else happens, their shard asks for a near time.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use braid_engine::request::RequestId;

/// One acknowledged request with held pieces.
#[derive(Debug)]
struct HeldRequest {
    shards: BTreeSet<usize>,
    /// Its name in the model.
    write: u64,
    range: (u64, u64),
    /// The step at which the last piece was acknowledged.
    answered: u64,
}

#[derive(Debug, Default)]
pub(crate) struct HeldWrites {
    requests: BTreeMap<RequestId, HeldRequest>,
    /// Pieces whose payload is named after their answer, by held writes or members that left.
    users: BTreeMap<RequestId, u32>,
    /// An acknowledged write was lost. Its client is unknown, so every flush fails from now on.
    pub(crate) has_lost: bool,
}

impl HeldWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether only the process has a write, by its name in the model.
    pub(crate) fn is_held(&self, write: u64) -> bool {
        self.requests.values().any(|held| held.write == write)
    }

    /// Names in the model of all held writes.
    pub(crate) fn writes(&self) -> impl Iterator<Item = u64> {
        self.requests.values().map(|held| held.write)
    }

    /// Sectors that can still be unwritten.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (RequestId, (u64, u64))> {
        self.requests.iter().map(|(id, held)| (*id, held.range))
    }

    fn pieces_of(&self, shard: usize) -> u32 {
        let held = self.requests.values().filter(|held| held.shards.contains(&shard));
        held.count() as u32
    }

    /// Number of held pieces, to notice changes.
    pub(crate) fn pieces(&self) -> u64 {
        self.requests.values().map(|held| held.shards.len() as u64).sum()
    }

    /// Whether the payload of a request is named after its answer.
    pub(crate) fn uses_payload(&self, request: RequestId) -> bool {
        self.users.contains_key(&request)
    }
}
