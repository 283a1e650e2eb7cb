//! The world's held writes (acknowledged before members have them): it notes each of them until
//! members have it. It checks the rules of held writes after every action of a shard.

use std::collections::BTreeSet;

use braid_engine::effect::PieceReply;
use braid_engine::request::RequestId;

use super::HeldRequest;
use crate::world::World;

/// How many times in a row a shard may request a timeout that is past already.
const UNHEEDED_MAX: u32 = 8;

impl World {
    /// A piece was answered, but its shard, or a member that left, still uses the payload.
    pub(crate) fn keep(&mut self, shard: usize, reply: &PieceReply) {
        let id = reply.request;
        *self.engine.held.users.entry(id).or_default() += 1;
        if !self.engine.machines.shards[shard].shard.keeps(id) {
            return self.tally.count("payload-left");
        }
        let flight = &self.engine.clients.flights[&id];
        let request = &flight.request;
        assert!(request.operation.is_write(), "{reply:?} of {request:?}");
        let side = &self.engine.machines.shards[shard];
        let could = side.early_until >= flight.began;
        assert!(could, "{request:?} was acknowledged early, but the limits forbid it");
        self.tally.count("answered-early");
        let write = flight.call.unwrap_or(id).0;
        let range = (request.start.0, request.sectors);
        let held = self.engine.held.requests.entry(id);
        let held =
            held.or_insert(HeldRequest { shards: BTreeSet::new(), write, range, answered: 0 });
        held.shards.insert(shard);
        held.answered = self.clock.step;
    }

    /// The payload of a piece is no longer used by its shard or by a member that left.
    pub(crate) fn release(&mut self, id: RequestId) {
        let users = self.engine.held.users.get_mut(&id);
        let users = users.unwrap_or_else(|| panic!("a shard releases {id:?} without use"));
        *users -= 1;
        if *users == 0 {
            self.engine.held.users.remove(&id);
            self.note("released", [id.0, 0, 0]);
            if !self.engine.clients.flights.contains_key(&id) {
                self.engine.payloads.remove(&id);
            }
        }
    }

    /// Held requests of which this shard has released its pieces.
    pub(crate) fn no_longer_kept(&self, shard: usize) -> Vec<RequestId> {
        let engine = &self.engine;
        let is_over = |id: &RequestId| !engine.machines.shards[shard].shard.keeps(*id);
        let held = engine.held.requests.iter().filter(|(_, held)| held.shards.contains(&shard));
        held.map(|(id, _)| *id).filter(is_over).collect()
    }

    /// A shard has released its pieces of a held request. After the last shard, the members have
    /// the write.
    pub(crate) fn reaches_members(&mut self, shard: usize, id: RequestId) {
        let held = self.engine.held.requests.get_mut(&id).expect("it was kept");
        held.shards.remove(&shard);
        if !held.shards.is_empty() {
            return;
        }
        let HeldRequest { write, range, .. } =
            self.engine.held.requests.remove(&id).expect("it was just there");
        self.model.released(range, write);
        self.cover(range);
    }

    /// Tells the model that members have these sectors' current version, unless it is a held one.
    pub(crate) fn cover(&mut self, range: (u64, u64)) {
        let held = &self.engine.held;
        self.model.cover(range, &|write| held.is_held(write));
    }

    /// The array lost an acknowledged write: tells the model that any held write may be lost.
    pub(crate) fn lose_answered(&mut self) {
        let held = &self.engine.held;
        self.model.lose_answered(&|write| held.is_held(write));
    }

    /// After each message to a shard, or action of the shard: checks that the shard's dirty sectors
    /// are within the limit, or did not increase.
    pub(crate) fn check_held(&mut self, shard: usize) {
        let pieces = self.engine.held.pieces_of(shard);
        let side = &mut self.engine.machines.shards[shard];
        let dirty = side.shard.dirty_sectors();
        let limit = u64::from(side.cache.tuning.dirty_sectors_max);
        assert!(dirty <= limit.max(side.dirty), "{dirty} sectors are dirty, the limit is {limit}");
        assert!(u64::from(pieces) <= dirty, "{pieces} pieces are held for {dirty} sectors");
        side.dirty = dirty;
    }

    /// A shard's timeout passed: checks that the shard does not request past timeouts again and
    /// again.
    pub(crate) fn heed(&mut self, index: usize) {
        let now = self.clock.now;
        let side = &mut self.engine.machines.shards[index];
        let left = side.shard.poll_timeout();
        side.unheeded = if left.is_some_and(|due| due <= now) { side.unheeded + 1 } else { 0 };
        let is_heeded = side.unheeded < UNHEEDED_MAX;
        assert!(is_heeded, "the shard ignores a timeout: {left:?} at {now:?}");
    }

    /// Nothing is in flight and time is about to pass: checks that every shard with held writes
    /// requests a timeout within twice the age limit.
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
                "an acknowledged write waits too long: shard {index}, {due:?}, latest {latest:?}"
            );
        }
    }

    /// A flush submitted at step `asked` succeeded: checks that no write acknowledged before that
    /// step is held.
    pub(crate) fn check_flushed(&self, asked: u64) {
        let mut held = self.engine.held.requests.iter();
        let left = held.find(|(_, held)| held.answered < asked);
        assert!(left.is_none(), "a flush is acknowledged, but {left:?} is not on the members");
        assert!(!self.engine.held.has_lost, "a flush succeeds after a lost write");
    }

    pub(crate) fn check_nothing_held(&self) {
        let held = &self.engine.held.requests;
        assert!(held.is_empty(), "the array stopped, but shards hold payloads: {held:?}");
        let payloads: Vec<&RequestId> = self.engine.payloads.keys().collect();
        assert!(self.cache_file.is_empty(), "the array stopped, but the cache file holds copies");
        assert!(payloads.is_empty(), "the array stopped, but payloads remain: {payloads:?}");
    }
}
