//! The state of members' caches: members that are being flushed, the purpose, and clients' flushes.
//!
//! ```text
//!   queue ──every shard writes back──▶ written back ──members flush──▶ answered
//! ```

use braid_sim_hooks::{Bug, Mark, planted, reached};

use super::decide::{Facts, Round, Stage};
use crate::array::effect::ArrayEffect;
use crate::array::order::FlushPurpose;
use crate::array::outbox::Outbox;
use crate::array::set::Set;
use crate::ids::{MemberId, RequestId, ShardIndex};
use crate::request::Fault;

/// See [`super`].
#[derive(Debug, Default)]
pub(in crate::array) struct Caches {
    /// The purpose for which members are being flushed, or have been.
    flushing: Option<FlushPurpose>,
    queue: Vec<RequestId>,
    /// Those whose round of writing back is under way or over.
    written_back: Vec<RequestId>,
    /// Shards that have not yet told that the round is over.
    unwritten: Set<ShardIndex>,
    round: u64,
    running: Vec<RequestId>,
    failed: bool,
    /// A member lost an acknowledged write of an unknown client, so every later flush fails.
    lost: bool,
    /// Members that have been written since their last flush began.
    unflushed: Set<MemberId>,
    /// Members that are being flushed.
    missing: Set<MemberId>,
    /// The final flush of an array that keeps no intent is done.
    last_flush_done: bool,
    /// The last round of writing back of a broken array has been asked for: it comes before the
    /// array says that it has stopped.
    last_round: bool,
}

impl Caches {
    /// Data written before the array was opened may be in these members' caches still.
    pub(in crate::array) fn new(members: impl Iterator<Item = MemberId>) -> Self {
        let mut caches = Self::default();
        caches.unflushed.extend(members);
        caches
    }

    pub(in crate::array) fn facts(&self) -> Facts {
        let round = |is_none: bool| match () {
            () if is_none => Round::None,
            () if self.unwritten.is_empty() => Round::Over,
            () => Round::UnderWay,
        };
        Facts {
            stage: match self.flushing {
                None => Stage::Free,
                Some(purpose) if self.missing.is_empty() => Stage::Flushed(purpose),
                Some(purpose) => Stage::Flushing(purpose),
            },
            flush_wanted: !self.queue.is_empty(),
            round: round(self.written_back.is_empty()),
            last_flush_done: self.last_flush_done,
            last_round: round(!self.last_round),
        }
    }

    /// Whether members are being flushed before logs are written over.
    pub(in crate::array) fn flush_for_logs(&self) -> bool {
        self.flushing == Some(FlushPurpose::Logs)
    }

    /// Whether no flush is under way, and every client's is answered.
    pub(in crate::array) fn are_idle(&self) -> bool {
        let Self { flushing, queue, written_back, running, .. } = self;
        flushing.is_none() && queue.is_empty() && written_back.is_empty() && running.is_empty()
    }

    /// Whether what clients were told of may not be on stable storage: a flush failed without a
    /// member to take over, or an answered write was lost.
    pub(in crate::array) fn have_failed(&self) -> bool {
        self.failed || self.lost
    }

    /// A client asks that every write answered so far be on stable storage.
    pub(in crate::array) fn want_flush(&mut self, request: RequestId) {
        self.queue.push(request);
    }

    pub(in crate::array) fn member_written(&mut self, member: MemberId) {
        self.unflushed.insert(member);
    }

    pub(in crate::array) fn write_is_lost(&mut self) {
        self.lost = true;
    }

    /// A shard has brought what it had answered when this round began to the members.
    pub(in crate::array) fn is_written_back(&mut self, shard: ShardIndex, round: u64) {
        assert!(round <= self.round, "no round is over before it is asked for");
        if round == self.round {
            self.unwritten.remove(&shard);
        }
    }

    /// A member has ended its flush.
    pub(in crate::array) fn is_flushed(&mut self, member: MemberId) {
        assert!(self.missing.remove(&member), "this flush was not asked for");
    }

    /// And it failed; `is_alone` if no other makes up for the member.
    pub(in crate::array) fn flush_failed(&mut self, member: MemberId, is_alone: bool) {
        // A failed flush is believed for good: what was in the cache is gone (fsyncgate).
        self.failed |= is_alone;
        if planted(Bug::FailedFlushForgotten) {
            return;
        }
        self.unflushed.insert(member);
    }

    /// Of these members those are flushed that need it.
    pub(in crate::array) fn flush(
        &mut self,
        purpose: FlushPurpose,
        members: impl Iterator<Item = MemberId>,
        out: &mut Outbox,
    ) {
        let mut has_written = true;
        if planted(Bug::FlushDropped) && purpose == FlushPurpose::Clients {
            has_written = false;
        }
        if planted(Bug::CleanUnflushed) && purpose == FlushPurpose::Last {
            has_written = false;
        }
        if planted(Bug::BitsClearedUnflushed) && purpose == FlushPurpose::Bits {
            has_written = false;
        }
        if planted(Bug::LogReusedUnflushed) && purpose == FlushPurpose::Logs {
            has_written = false;
        }
        if planted(Bug::JournalFreedUnflushed) && purpose == FlushPurpose::Logs {
            has_written = false;
        }
        let Self { missing, unflushed, .. } = self;
        assert!(missing.is_empty() && self.flushing.is_none(), "one flush at a time");
        let is_for_clients = purpose == FlushPurpose::Clients;
        let is_due = |member: &MemberId| !is_for_clients || unflushed.remove(member);
        missing.extend(members.filter(|_| has_written).filter(is_due));
        out.extend(missing.iter().map(|member| ArrayEffect::Flush { member: *member }));
        self.flushing = Some(purpose);
    }

    /// Answered writes are on their way to the members first. This is no task: a shard may
    /// need a view, hence superblocks, to get there.
    pub(in crate::array) fn write_back(&mut self, shards: u16, out: &mut Outbox) {
        let Self { queue, written_back, unwritten, round, .. } = self;
        assert!(written_back.is_empty() && unwritten.is_empty(), "one round at a time");
        std::mem::swap(queue, written_back);
        *round += 1;
        unwritten.extend((0..shards).map(ShardIndex));
        out.push(ArrayEffect::WriteBack { round: *round });
    }

    /// Writes that the shards of a broken array still have may be of use, and name
    /// memory.
    pub(in crate::array) fn begin_last_round(&mut self, shards: u16, out: &mut Outbox) {
        self.last_round = true;
        self.write_back(shards, out);
    }

    /// The round is over: members are flushed for these clients next.
    pub(in crate::array) fn serve_clients(&mut self) {
        let Self { running, written_back, unwritten, .. } = self;
        assert!(running.is_empty(), "one flush at a time");
        assert!(unwritten.is_empty(), "I8: every shard has brought what it answered");
        std::mem::swap(running, written_back);
    }

    /// The flush has ended.
    pub(in crate::array) fn end_flush(&mut self) {
        assert!(self.missing.is_empty(), "I5, I8: every member has ended its flush");
        assert!(self.flushing.take().is_some(), "one was under way");
    }

    /// A member failed the flush, or another way, meanwhile. Its loss is recorded first, then the
    /// round is run again over the survivors, and only then are the clients answered (I4).
    pub(in crate::array) fn flush_again(&mut self) {
        reached(Mark::FlushAgain);
        assert_eq!(self.flushing, Some(FlushPurpose::Clients), "the last flush is not repeated");
        self.flushing = None;
        self.queue.append(&mut self.running);
    }

    /// Clients are answered: well, unless what they wrote may be lost.
    pub(in crate::array) fn answer(&mut self, is_broken: bool, out: &mut Outbox) {
        self.end_flush();
        let failed = std::mem::take(&mut self.failed);
        let failed = failed || self.lost || is_broken;
        let result = if failed { Err(Fault::Unwritable) } else { Ok(()) };
        for request in self.running.drain(..) {
            out.push(ArrayEffect::Answer { request, result });
        }
    }

    pub(in crate::array) fn end_last_flush(&mut self) {
        assert_eq!(self.flushing, Some(FlushPurpose::Last), "it is the last flush that ends");
        self.end_flush();
        self.last_flush_done = true;
    }

    /// The array has broken: it does not turn clean any more.
    pub(in crate::array) fn forget_last(&mut self) {
        (self.last_flush_done, self.last_round) = (false, false);
    }
}
