//! Pieces under way and how many of their parts are still out.

use std::collections::BTreeMap;

use crate::effect::PieceReply;
use crate::request::{Fault, Piece, RequestId};

/// Name of a piece inside its shard; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PieceKey(u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: RequestId,
    is_write: bool,
    parts: u32,
    worst: Option<Fault>,
}

/// The pieces of one shard.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    next: u64,
    entries: BTreeMap<PieceKey, Entry>,
    writes: u32,
}

impl Pieces {
    /// Takes a piece in, with one part.
    pub(super) fn begin(&mut self, piece: &Piece) -> PieceKey {
        let key = PieceKey(self.next);
        self.next += 1;
        let is_write = piece.operation.is_write();
        self.writes += u32::from(is_write);
        self.entries.insert(key, Entry { request: piece.request, is_write, parts: 1, worst: None });
        key
    }

    pub(super) fn add_part(&mut self, key: PieceKey) {
        self.entries.get_mut(&key).expect("an unanswered piece").parts += 1;
    }

    /// Notes that a part is done; the piece's answer, if it was the last part.
    pub(super) fn part_done(
        &mut self,
        key: PieceKey,
        result: Result<(), Fault>,
    ) -> Option<PieceReply> {
        let entry = self.entries.get_mut(&key).expect("an unanswered piece");
        assert!(entry.parts > 0, "a part was done twice");
        entry.parts -= 1;
        entry.worst = entry.worst.max(result.err());
        if entry.parts > 0 {
            return None;
        }
        let reply = PieceReply { request: entry.request, result: entry.worst.map_or(Ok(()), Err) };
        self.writes -= u32::from(entry.is_write);
        self.entries.remove(&key);
        Some(reply)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes that have passed the gate and are not answered.
    pub(super) fn writes(&self) -> u32 {
        self.writes
    }
}
