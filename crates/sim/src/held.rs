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

use std::collections::BTreeMap;

use braid_engine::CacheMode;
use braid_engine::array::Gate;
use braid_engine::effect::PieceReply;
use braid_engine::request::RequestId;
use braid_geometry::Geometry;

use crate::open::ShardSide;
use crate::world::World;

/// Times in a row that a shard may ask for the same moment.
const UNHEEDED_MAX: u32 = 8;

/// One answered request of which pieces are held.
#[derive(Debug)]
struct HeldRequest {
    /// Pieces, by shard.
    pieces: BTreeMap<usize, u32>,
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
    /// An answered write was lost: nobody knows whose, so no flush goes well any more in this run.
    pub(crate) has_lost: bool,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn holds(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request)
    }

    /// Whether a write, by its name in the model, is with the process only.
    pub(crate) fn is_held(&self, write: u64) -> bool {
        self.requests.values().any(|held| held.write == write)
    }

    /// Sectors of which some may still be written.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (RequestId, (u64, u64))> {
        self.requests.iter().map(|(id, held)| (*id, held.range))
    }

    fn pieces_of(&self, shard: usize) -> u32 {
        self.requests.values().filter_map(|held| held.pieces.get(&shard)).sum()
    }

    /// How many pieces, for who wants to know whether something changed.
    pub(crate) fn pieces(&self) -> u64 {
        self.requests
            .values()
            .flat_map(|held| held.pieces.values())
            .map(|one| u64::from(*one))
            .sum()
    }
}

/// Whether a shard may answer a write early, by what it has been told.
pub(crate) fn may_answer_early(side: &ShardSide, geometry: &Geometry) -> bool {
    let Geometry::Stripe(stripe) = geometry else { return false };
    let view = &side.view;
    // A member that is being recovered counts, for it does where it is.
    let present = view.slots.iter().flatten().count();
    let is_redundant = usize::from(stripe.slots()) - present < usize::from(stripe.parity_slots());
    side.cache.tuning.mode == CacheMode::WriteBack && view.gate == Gate::Open && is_redundant
}

impl World {
    /// A piece was answered and goes on.
    pub(crate) fn keep(&mut self, shard: usize, reply: &PieceReply) {
        let id = reply.request;
        let flight = &self.engine.clients.flights[&id];
        let request = &flight.request;
        assert!(request.operation.is_write(), "{reply:?} of {request:?}");
        let side = &self.engine.machines.shards[shard];
        let could = side.early_until >= flight.began;
        assert!(could, "{request:?} was answered early, which nothing allows");
        self.tally.count("answered-early");
        let write = flight.call.unwrap_or(id).0;
        let range = (request.start.0, request.sectors);
        let held = self.engine.held.requests.entry(id);
        let held =
            held.or_insert(HeldRequest { pieces: BTreeMap::new(), write, range, answered: 0 });
        *held.pieces.entry(shard).or_default() += 1;
        held.answered = self.clock.step;
    }

    /// A held piece of a request is not held any more.
    pub(crate) fn release(&mut self, shard: usize, id: RequestId) {
        let held = self.engine.held.requests.get_mut(&id);
        let held = held.unwrap_or_else(|| panic!("{id:?} is released and was not held"));
        let pieces = held.pieces.get_mut(&shard);
        let pieces = pieces.unwrap_or_else(|| panic!("{id:?} is released by shard {shard}"));
        *pieces -= 1;
        if *pieces == 0 {
            held.pieces.remove(&shard);
        }
        if !held.pieces.is_empty() {
            return;
        }
        let HeldRequest { write, range, .. } =
            self.engine.held.requests.remove(&id).expect("it was just there");
        self.note("released", [id.0, 0, 0]);
        if !self.engine.clients.flights.contains_key(&id) {
            self.engine.payloads.remove(&id);
        }
        self.model.released(range, write);
        self.cover(range);
    }

    /// Unless something held is current there, the members have what is.
    pub(crate) fn cover(&mut self, range: (u64, u64)) {
        let held = &self.engine.held;
        self.model.cover(range, &|write| held.is_held(write));
    }

    /// What an answered write would have changed may be changed or not.
    pub(crate) fn lose_answered(&mut self) {
        let held = &self.engine.held;
        self.model.lose_answered(&|write| held.is_held(write));
    }

    /// A shard has been told or has done something: what it keeps is within its limit, or shrinks.
    pub(crate) fn check_held(&mut self, shard: usize) {
        let pieces = self.engine.held.pieces_of(shard);
        let side = &mut self.engine.machines.shards[shard];
        let dirty = side.shard.dirty_sectors();
        let limit = u64::from(side.cache.tuning.dirty_sectors_max);
        assert!(dirty <= limit.max(side.dirty), "{dirty} sectors are kept, {limit} may be");
        assert!(u64::from(pieces) <= dirty, "{pieces} pieces are held for {dirty} sectors");
        side.dirty = dirty;
    }

    /// A shard has been told that its time has come: sooner or later it asks for another.
    pub(crate) fn heed(&mut self, index: usize) {
        let now = self.clock.now;
        let side = &mut self.engine.machines.shards[index];
        let left = side.shard.poll_timeout();
        side.unheeded = if left.is_some_and(|due| due <= now) { side.unheeded + 1 } else { 0 };
        let is_heeded = side.unheeded < UNHEEDED_MAX;
        assert!(is_heeded, "a timeout has come and is not heeded: {left:?} at {now:?}");
    }

    /// Nothing goes on, and time is about to pass: what is held is waited for, not forgotten.
    pub(crate) fn check_due(&self) {
        if self.engine.held.is_empty() || !self.is_quiet() {
            return;
        }
        for (index, side) in self.engine.machines.shards.iter().enumerate() {
            if self.engine.held.pieces_of(index) == 0 {
                continue;
            }
            let due = side.shard.poll_timeout();
            let age = side.cache.tuning.age_max_ms.max(side.age_before_ms).saturating_mul(2);
            let latest = self.clock.now.plus_milliseconds(age);
            assert!(
                due.is_some_and(|due| due <= latest),
                "an answered write is forgotten: shard {index} is due at {due:?}, at most {latest:?}"
            );
        }
    }

    /// A flush that was asked for at step `asked` is answered well.
    pub(crate) fn check_flushed(&self, asked: u64) {
        let mut held = self.engine.held.requests.iter();
        let left = held.find(|(_, held)| held.answered < asked);
        assert!(left.is_none(), "a flush is answered and {left:?} is held still");
        assert!(!self.engine.held.has_lost, "a write was lost, and a flush goes well");
    }

    /// The array has stopped.
    pub(crate) fn check_nothing_held(&self) {
        let held = &self.engine.held.requests;
        assert!(held.is_empty(), "the array has stopped, and payloads are held: {held:?}");
        let payloads: Vec<&RequestId> = self.engine.payloads.keys().collect();
        assert!(payloads.is_empty(), "the array has stopped, and payloads are left: {payloads:?}");
    }
}
