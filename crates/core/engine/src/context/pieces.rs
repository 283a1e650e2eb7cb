//! A shard's pieces, each answered after its last part, and payloads needed after the answer.
//!
//! ```text
//!   begin ──▶ parts out ──last part done──▶ answered ──nothing kept──▶ forgotten
//!                  └─ some kept ──────────▶ answered, kept ──last let go──▶ released, forgotten
//! ```

use braid_geometry::LogicalSector;
use braid_sim_hooks::{Bug, spoiled};

use crate::cause::Cause;
use crate::effect::PieceReply;
use crate::ids::RequestId;
use crate::request::{Fault, Piece};
use crate::slab::Slab;

/// A range of the array: its first sector, and its number of sectors.
pub(crate) type Extent = (LogicalSector, u32);

/// Name of a piece inside its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PieceKey(u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: RequestId,
    sectors: u32,
    is_write: bool,
    /// Whether superblocks, and bits of the bitmap if the array has one, allow writes to the
    /// piece's region.
    has_intent: bool,
    /// The generation in which the piece began. If it differs from [`Pieces::generation`], the
    /// piece began before the last revocation of bits.
    generation: bool,
    parts: u32,
    /// Number of parts that are still being written after their answer.
    kept: u32,
    /// Number of writes at former members that still name the piece's payload.
    held: u32,
    is_answered: bool,
    /// Whether a read into the piece's payload was abandoned.
    is_left: bool,
    worst: Option<Fault>,
}

#[derive(Debug, Default)]
pub(crate) struct Pieces {
    entries: Slab<Entry>,
    /// The last failure of each unanswered piece. Kept apart from the entries, as failures are
    /// rare.
    causes: Vec<(PieceKey, Cause)>,
    /// Number of writes that have their intent.
    writes: u32,
    /// Number of writes that wait for their intent.
    waiting: u32,
    /// Flips when bits are taken back, and so separates writes with intent into two generations.
    generation: bool,
    writes_before: u32,
    /// Writes that wait for their intent, or are refused, with their extents. Each write has one
    /// part that stays open while the answer is held ([`Self::hold_answer`]).
    unanswered: Vec<(PieceKey, Extent)>,
    kept_sectors: u64,
}

impl Pieces {
    /// Adds a piece, with one part. A write without intent is prepared, but not sent to members.
    pub(crate) fn begin(&mut self, piece: &Piece, has_intent: bool) -> PieceKey {
        assert!(piece.sectors > 0, "a piece has sectors");
        let is_write = piece.operation.is_write();
        assert!(is_write || has_intent, "only a write can lack its intent");
        self.writes += u32::from(is_write && has_intent);
        self.waiting += u32::from(is_write && !has_intent);
        PieceKey(self.entries.insert(Entry {
            request: piece.request,
            sectors: piece.sectors,
            is_write,
            has_intent,
            generation: self.generation,
            parts: 1,
            kept: 0,
            held: 0,
            is_answered: false,
            is_left: false,
            worst: None,
        }))
    }

    fn entry(&mut self, key: PieceKey) -> &mut Entry {
        self.entries.get_mut(key.0).expect("a piece under way")
    }

    /// Whether this piece can be written to members.
    pub(crate) fn has_intent(&self, key: PieceKey) -> bool {
        self.waiting == 0 || self.entries.get(key.0).expect("a piece under way").has_intent
    }

    /// Holds a write's answer until its intent is durable, or never becomes durable. Otherwise a
    /// client could get an answer that superblocks contradict, though the write had no data.
    pub(crate) fn hold_answer(&mut self, key: PieceKey, extent: Extent) {
        let entry = self.entry(key);
        assert!(!entry.has_intent, "only for want of intent");
        assert!(entry.parts > 0, "an answer is held before it is given");
        self.unanswered.push((key, extent));
    }

    /// Called when superblocks allow writes. Returns the pieces that have their intent now, with
    /// all their bits open; their answer is no longer held.
    pub(crate) fn grant_intent(&mut self, is_open: impl Fn(Extent) -> bool) -> Vec<PieceKey> {
        let is_each_held = self.unanswered.len() == self.waiting as usize;
        assert!(is_each_held, "the answer to each write without intent is held");
        let mut granted = Vec::new();
        self.unanswered.retain(|(key, extent)| {
            let is_granted = is_open(*extent);
            granted.extend(is_granted.then_some(*key));
            !is_granted
        });
        for key in &granted {
            let generation = self.generation;
            let entry = self.entry(*key);
            (entry.has_intent, entry.generation) = (true, generation);
            self.waiting -= 1;
            self.writes += 1;
        }
        granted
    }

    pub(crate) fn waiting_extents(&self) -> impl Iterator<Item = Extent> {
        self.unanswered.iter().map(|(_, extent)| *extent)
    }

    /// Called when the array has taken bits back: pieces in flight belong to the earlier generation
    /// from now on.
    pub(crate) fn turn_generation(&mut self) {
        assert_eq!(self.writes_before, 0, "bits are taken back when what began before has ended");
        self.generation = !self.generation;
        self.writes_before = self.writes;
    }

    /// Whether writes are in flight that began before the array last took bits back.
    pub(crate) fn has_writes_before(&self) -> bool {
        self.writes_before > 0
    }

    /// Removes and returns all pieces whose answer is held.
    pub(crate) fn take_unanswered(&mut self) -> Vec<PieceKey> {
        std::mem::take(&mut self.unanswered).into_iter().map(|(key, _)| key).collect()
    }

    pub(crate) fn add_part(&mut self, key: PieceKey) {
        let entry = self.entry(key);
        assert!(entry.parts > 0, "what is answered gets no further part");
        entry.parts += 1;
    }

    pub(crate) fn note_cause(&mut self, key: PieceKey, cause: Cause) {
        if self.entry(key).is_answered {
            return;
        }
        self.take_cause(key);
        self.causes.push((key, cause));
    }

    fn take_cause(&mut self, key: PieceKey) -> Option<Cause> {
        let place = self.causes.iter().position(|(of, _)| *of == key)?;
        Some(self.causes.swap_remove(place).1)
    }

    pub(crate) fn leave(&mut self, key: PieceKey) {
        let entry = self.entry(key);
        assert!(
            !entry.is_write && entry.parts > 0,
            "only a read that is not answered is abandoned"
        );
        entry.is_left = true;
    }

    /// Notes that a part is still being written after its answer.
    pub(crate) fn keep(&mut self, key: PieceKey) {
        let entry = self.entry(key);
        assert!(
            entry.is_write && entry.has_intent,
            "I3: only writes with intent are answered early"
        );
        entry.kept += 1;
        if entry.kept == 1 {
            let sectors = u64::from(entry.sectors);
            self.kept_sectors += sectors;
        }
    }

    /// The value of `kept_sectors` if a part of this piece were acknowledged early too.
    pub(crate) fn kept_sectors_with(&mut self, key: PieceKey) -> u64 {
        let entry = self.entry(key);
        let more = if entry.kept == 0 { u64::from(entry.sectors) } else { 0 };
        self.kept_sectors + more
    }

    /// Sectors of client requests, in pieces by shard, that are answered while a member still needs
    /// their payload. A piece counts whole until all its payload is released.
    pub(crate) fn kept_sectors(&self) -> u64 {
        self.kept_sectors
    }

    /// Notes that a part is done; returns the piece's answer after the last part.
    #[inline]
    pub(crate) fn part_done(
        &mut self,
        key: PieceKey,
        result: Result<(), Fault>,
    ) -> Option<PieceReply> {
        let entry = self.entry(key);
        assert!(entry.parts > 0, "a part was done twice");
        entry.parts -= 1;
        entry.worst = entry.worst.max(result.err());
        if entry.parts > 0 {
            return None;
        }
        entry.is_answered = true;
        let is_over = entry.kept == 0;
        let is_held = entry.held > 0;
        let is_held = spoiled(Bug::LeftPayloadReturned, is_held, false);
        let mut reply = PieceReply {
            request: entry.request,
            result: entry.worst.map_or(Ok(()), Err),
            keeps_payload: entry.kept > 0 || is_held,
            leaves_payload: entry.is_left,
            cause: None,
        };
        if !self.causes.is_empty() {
            reply.cause = self.take_cause(key).filter(|_| reply.result.is_err());
        }
        if is_over {
            self.is_over(key);
        }
        Some(reply)
    }

    /// Notes that a part acknowledged early is lost. An unanswered piece then fails with `fault`.
    pub(crate) fn part_lost(&mut self, key: PieceKey, fault: Fault) {
        let entry = self.entry(key);
        assert!(entry.kept > 0, "what is lost was kept");
        entry.worst = entry.worst.max(Some(fault));
    }

    /// Called when a part acknowledged early has been written, or never can be. After the last such
    /// part, returns the request whose payload this piece no longer needs.
    pub(crate) fn release_payload(&mut self, key: PieceKey) -> Option<RequestId> {
        let entry = self.entry(key);
        assert!(entry.kept > 0, "a payload was released twice");
        entry.kept -= 1;
        if entry.kept > 0 {
            return None;
        }
        let Entry { sectors, is_answered, .. } = *entry;
        self.kept_sectors -= u64::from(sectors);
        if is_answered { self.is_over(key) } else { None }
    }

    /// Notes that a write still names the payload after its member has left.
    pub(crate) fn hold(&mut self, key: PieceKey) {
        let entry = self.entry(key);
        assert!(entry.is_write, "a read at a member that has left is abandoned");
        entry.held += 1;
    }

    /// Called when a write ends whose member had left before. Returns the request whose payload
    /// this piece no longer needs.
    pub(crate) fn let_go(&mut self, key: PieceKey) -> Option<RequestId> {
        let entry = self.entry(key);
        assert!(entry.held > 0, "a payload is let go of as often as it was held");
        entry.held -= 1;
        let is_free = entry.held == 0 && entry.kept == 0 && entry.is_answered;
        is_free.then(|| self.forget(key))
    }

    /// Forgets a piece that is answered and no longer kept. Returns its request, if its payload is
    /// free too.
    #[inline]
    fn is_over(&mut self, key: PieceKey) -> Option<RequestId> {
        let is_held = self.entry(key).held > 0;
        let is_held = spoiled(Bug::LeftPayloadReturned, is_held, false);
        let is_free = !is_held;
        let entry = match is_free {
            true => self.entries.remove(key.0).expect("a piece under way"),
            false => *self.entry(key),
        };
        assert!(entry.parts == 0 && entry.kept == 0, "nothing of it is under way");
        self.writes -= u32::from(entry.is_write && entry.has_intent);
        let is_before = entry.generation != self.generation;
        self.writes_before -= u32::from(entry.is_write && entry.has_intent && is_before);
        self.waiting -= u32::from(entry.is_write && !entry.has_intent);
        is_free.then_some(entry.request)
    }

    fn forget(&mut self, key: PieceKey) -> RequestId {
        self.entries.remove(key.0).expect("a piece under way").request
    }

    /// Whether a part of this request was acknowledged early, and is not on the members.
    pub(crate) fn keeps(&self, request: RequestId) -> bool {
        self.entries.iter().any(|(_, entry)| entry.request == request && entry.kept > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of writes with their intent that have not reached the members, acknowledged or not.
    pub(crate) fn writes(&self) -> u32 {
        self.writes
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }
}
