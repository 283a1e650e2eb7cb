//! A test bed for one shard: the test decides when member requests and computations end.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_engine::array::ArrayView;
use braid_engine::computation::Computation;
use braid_engine::effect::{CacheRecord, MemberFault, MemberIo, MemberIoDone, PieceReply, Report};
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::{CacheConfig, Instant, Shard};
use braid_geometry::LogicalSector;

pub(crate) const WRITE: Operation = Operation::Write { durable: false };

/// A shard, and its effects that no test has taken.
pub(crate) struct OneShard {
    pub(crate) shard: Shard,
    /// The time in nanoseconds. Each event comes a microsecond after the one before.
    pub(crate) now: u64,
    next: u64,
    pub(crate) ios: VecDeque<MemberIo>,
    pub(crate) computations: VecDeque<Computation>,
    pub(crate) replies: Vec<PieceReply>,
    pub(crate) releases: Vec<RequestId>,
    pub(crate) reports: Vec<Report>,
    pub(crate) records: Vec<CacheRecord>,
}

impl OneShard {
    pub(crate) fn new(cache: CacheConfig, view: Arc<ArrayView>) -> Self {
        Self {
            shard: Shard::new(cache, view),
            now: 1,
            next: 1,
            ios: VecDeque::new(),
            computations: VecDeque::new(),
            replies: vec![],
            releases: vec![],
            reports: vec![],
            records: vec![],
        }
    }

    /// Gives the shard an event, and collects the effects.
    pub(crate) fn handle(&mut self, event: impl FnOnce(&mut Shard, Instant)) {
        self.now += 1000;
        event(&mut self.shard, Instant(self.now));
        self.computations.extend(std::iter::from_fn(|| self.shard.poll_computation()));
        self.ios.extend(std::iter::from_fn(|| self.shard.poll_member_io()));
        self.records.extend(std::iter::from_fn(|| self.shard.poll_cache_record()));
        self.replies.extend(std::iter::from_fn(|| self.shard.poll_reply()));
        self.releases.extend(std::iter::from_fn(|| self.shard.poll_release()));
        self.reports.extend(std::iter::from_fn(|| self.shard.poll_report()));
    }

    /// Gives the shard a client's request. Requests are numbered from one.
    pub(crate) fn ask(&mut self, operation: Operation, start: u64, sectors: u32) -> RequestId {
        let request = RequestId(self.next);
        self.next += 1;
        let start = LogicalSector(start);
        let piece = Piece { request, operation, start, sectors, payload_offset_sectors: 0 };
        self.handle(|shard, now| shard.handle_piece(now, piece));
        request
    }

    pub(crate) fn turn(&mut self, view: Arc<ArrayView>) {
        self.handle(|shard, now| shard.handle_view(now, view));
    }

    /// Ends a request to a member.
    pub(crate) fn end(&mut self, io: &MemberIo, result: Result<(), MemberFault>) {
        let done = MemberIoDone { id: io.id, result };
        self.handle(|shard, now| shard.handle_member_io(now, done));
    }

    /// Ends the oldest computation. Returns whether there was one.
    pub(crate) fn computation(&mut self) -> bool {
        let Some(computation) = self.computations.pop_front() else { return false };
        self.handle(|shard, now| shard.handle_computation_done(now, computation));
        true
    }

    /// Ends the oldest request to a member, without error. Returns whether there was one.
    pub(crate) fn io(&mut self) -> bool {
        let Some(io) = self.ios.pop_front() else { return false };
        self.end(&io, Ok(()));
        true
    }

    pub(crate) fn take_ios(&mut self) -> Vec<MemberIo> {
        self.ios.drain(..).collect()
    }

    pub(crate) fn run(&mut self) {
        while self.computation() || self.io() {}
    }

    pub(crate) fn reply(&self, request: RequestId) -> Option<&PieceReply> {
        self.replies.iter().find(|reply| reply.request == request)
    }

    pub(crate) fn answered(&self, request: RequestId) -> bool {
        self.reply(request).is_some()
    }
}
