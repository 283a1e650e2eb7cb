//! Held writes: writes that the array acknowledged before the members have them, and their rules.
//!
//! ```text
//!   reply, keeps its payload ──▶ held ──every piece released──▶ on members, overwritten, or lost
//!                                 │
//!                                 └─ the process ends: lost or not
//! ```
//!
//! A shard keeps the payload of a held write in [`crate::memory`]. Once the shard has released the
//! payload, no request may name it. The other rules:
//!
//! - The array acknowledges only writes early, and only if the cache's mode says so and the level
//!   tolerates one more loss.
//! - Shards keep no payload beyond the current limit, and none at the end.
//! - A successful flush leaves no held write that was acknowledged before the flush was submitted.
//! - Held writes are due: while nothing else happens, their shard asks for a near timeout.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use braid_engine::request::RequestId;

/// One acknowledged request with held pieces.
#[derive(Debug)]
struct HeldRequest {
    shards: BTreeSet<usize>,
    /// The write's name in the model.
    write: u64,
    range: (u64, u64),
    /// The step at which the last piece was acknowledged.
    answered: u64,
}

#[derive(Debug, Default)]
pub(crate) struct HeldWrites {
    requests: BTreeMap<RequestId, HeldRequest>,
    /// By request: how many of its answered pieces still have a payload in use, by a held write or
    /// by a member that left.
    users: BTreeMap<RequestId, u32>,
    /// An acknowledged write was lost. The array does not know the write's client, so every flush
    /// fails from now on.
    pub(crate) has_lost: bool,
}

impl HeldWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether only the process, and no member, has a write. `write` is its name in the model.
    pub(crate) fn is_held(&self, write: u64) -> bool {
        self.requests.values().any(|held| held.write == write)
    }

    /// The model's names of all held writes.
    pub(crate) fn writes(&self) -> impl Iterator<Item = u64> {
        self.requests.values().map(|held| held.write)
    }

    /// The sectors of each held write, which members may lack.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (RequestId, (u64, u64))> {
        self.requests.iter().map(|(id, held)| (*id, held.range))
    }

    fn pieces_of(&self, shard: usize) -> u32 {
        let held = self.requests.values().filter(|held| held.shards.contains(&shard));
        held.count() as u32
    }

    /// Number of held pieces of requests. It changes whenever the set of held writes does.
    pub(crate) fn pieces(&self) -> u64 {
        self.requests.values().map(|held| held.shards.len() as u64).sum()
    }

    /// Whether the payload of an answered request is still in use.
    pub(crate) fn uses_payload(&self, request: RequestId) -> bool {
        self.users.contains_key(&request)
    }
}
