//! The state of members' caches: the members that are being flushed, the flush's purpose, and
//! clients' flushes.
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

#[derive(Debug, Default)]
pub(in crate::array) struct Caches {
    /// The purpose of the flush in flight.
    flushing: Option<FlushPurpose>,
    queue: Vec<RequestId>,
    /// Clients' flushes whose write-back round is running or over.
    written_back: Vec<RequestId>,
    /// Shards that have not yet reported the end of the write-back round.
    unwritten: Set<ShardIndex>,
    round: u64,
    running: Vec<RequestId>,
    failed: bool,
    /// Whether an acknowledged write of an unknown client was lost, so that every later flush
    /// fails.
    lost: bool,
    /// Members that have been written since their last flush began.
    unflushed: Set<MemberId>,
    missing: Set<MemberId>,
    /// The final flush is done, in an array whose superblocks record no intent.
    last_flush_done: bool,
    /// The last write-back round of a broken array was requested; the notice of the stop waits for
    /// the round's end.
    last_round: bool,
}

impl Caches {
    /// Starts with all `members` unflushed: data written before the array was opened may still be
    /// in their caches.
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

    /// Whether members are being flushed before logs are overwritten.
    pub(in crate::array) fn flush_for_logs(&self) -> bool {
        self.flushing == Some(FlushPurpose::Logs)
    }

    /// Whether no flush is in flight, and every client's flush is answered.
    pub(in crate::array) fn are_idle(&self) -> bool {
        let Self { flushing, queue, written_back, running, .. } = self;
        flushing.is_none() && queue.is_empty() && written_back.is_empty() && running.is_empty()
    }

    /// Whether acknowledged data may not be durable: a flush failed on a member that the level
    /// needed, or an acknowledged write was lost.
    pub(in crate::array) fn have_failed(&self) -> bool {
        self.failed || self.lost
    }

    /// Takes a client's flush of every write acknowledged so far.
    pub(in crate::array) fn want_flush(&mut self, request: RequestId) {
        self.queue.push(request);
    }

    pub(in crate::array) fn member_written(&mut self, member: MemberId) {
        self.unflushed.insert(member);
    }

    pub(in crate::array) fn write_is_lost(&mut self) {
        self.lost = true;
    }

    /// Notes that a shard has finished the write-back round.
    pub(in crate::array) fn is_written_back(&mut self, shard: ShardIndex, round: u64) {
        assert!(round <= self.round, "no round is over before it is asked for");
        if round == self.round {
            self.unwritten.remove(&shard);
        }
    }

    pub(in crate::array) fn is_flushed(&mut self, member: MemberId) {
        assert!(self.missing.remove(&member), "this flush was not asked for");
    }

    /// Notes that a member's flush failed; `is_alone` if the level does not tolerate the member's
    /// loss.
    pub(in crate::array) fn flush_failed(&mut self, member: MemberId, is_alone: bool) {
        // A failed flush cannot be repeated: the cache has dropped its content (fsyncgate).
        self.failed |= is_alone;
        if planted(Bug::FailedFlushForgotten) {
            return;
        }
        self.unflushed.insert(member);
    }

    /// Flushes those of `members` that need a flush.
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

    /// Begins a write-back round. The round leaves the caches free, because a shard may need a
    /// view, and hence an update of superblocks.
    pub(in crate::array) fn write_back(&mut self, shards: u16, out: &mut Outbox) {
        let Self { queue, written_back, unwritten, round, .. } = self;
        assert!(written_back.is_empty() && unwritten.is_empty(), "one round at a time");
        std::mem::swap(queue, written_back);
        *round += 1;
        unwritten.extend((0..shards).map(ShardIndex));
        out.push(ArrayEffect::WriteBack { round: *round });
    }

    /// Begins the last write-back round of a broken array. The shards still hold writes, whose data
    /// may be of use and whose memory must be released.
    pub(in crate::array) fn begin_last_round(&mut self, shards: u16, out: &mut Outbox) {
        self.last_round = true;
        self.write_back(shards, out);
    }

    /// Called when a write-back round is over: flushes members for the round's clients next.
    pub(in crate::array) fn serve_clients(&mut self) {
        let Self { running, written_back, unwritten, .. } = self;
        assert!(running.is_empty(), "one flush at a time");
        assert!(unwritten.is_empty(), "I8: every shard has brought what it answered");
        std::mem::swap(running, written_back);
    }

    pub(in crate::array) fn end_flush(&mut self) {
        assert!(self.missing.is_empty(), "I5, I8: every member has ended its flush");
        assert!(self.flushing.take().is_some(), "one was under way");
    }

    /// Repeats clients' flush because a member failed during it. First superblocks record the loss,
    /// then the round runs again with the survivors, and only then are the clients answered (I4).
    pub(in crate::array) fn flush_again(&mut self) {
        reached(Mark::FlushAgain);
        assert_eq!(self.flushing, Some(FlushPurpose::Clients), "the last flush is not repeated");
        self.flushing = None;
        self.queue.append(&mut self.running);
    }

    /// Answers clients' flushes: with success, unless clients' writes may be lost. Returns the
    /// answer to a flush of the reshape.
    pub(in crate::array) fn answer(
        &mut self,
        is_broken: bool,
        out: &mut Outbox,
    ) -> Option<Result<(), Fault>> {
        self.end_flush();
        let failed = std::mem::take(&mut self.failed);
        let failed = failed || self.lost || is_broken;
        let result = if failed { Err(Fault::Unwritable) } else { Ok(()) };
        let mut own = None;
        for request in self.running.drain(..) {
            if request == RequestId::RESHAPE {
                own = Some(result);
            } else {
                out.push(ArrayEffect::Answer { request, result });
            }
        }
        own
    }

    pub(in crate::array) fn end_last_flush(&mut self) {
        assert_eq!(self.flushing, Some(FlushPurpose::Last), "it is the last flush that ends");
        self.end_flush();
        self.last_flush_done = true;
    }

    /// Forgets the last flush: the array is broken, and never turns clean again.
    pub(in crate::array) fn forget_last(&mut self) {
        (self.last_flush_done, self.last_round) = (false, false);
    }
}
