//! The state that the three families share: the view, the pieces, the effects not yet polled.
//!
//! It includes the shard's side of the write-intent bitmap. The shard requests the bits that a
//! write lacks (`want_bits`), and the write waits until a view grants them (`grant_intent`). The
//! shard reports the bits under which writes began (`tell_touched`).

use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use braid_geometry::{MemberSector, Slot};
use braid_ondisk::Bits;
use smallvec::SmallVec;

use super::clocks::Clocks;
use super::orphans::{Departures, OrphanRequest, OrphanRequests, ReservedMemory};
use super::pairs::{PairResult, Pairs};
use super::pieces::{Extent, PieceKey, Pieces};
use super::trims::Trims;
use super::written_members::WrittenMembers;
use crate::Instant;
use crate::array::{ArrayView, Gate, IntentView};
use crate::cause::Cause;
use crate::computation::{Computation, ComputationId};
use crate::counters::Counters;
use crate::effect::{
    CacheRecord, FaultKind, MemberFault, MemberIo, MemberIoDone, MemberOperation, PieceReply,
    Report,
};
use crate::ids::{BitmapId, IoId, MemberId, RequestId, WorkId};
use crate::request::{Fault, Operation, Piece};
use crate::work::Outcome;

const SPARE_COMPUTATIONS_MAX: usize = 256;

/// Steps and buffers for which a computation has room from the start: as many as a band of small
/// writes needs on most arrays. Otherwise each of many computations would allocate at its first
/// band of small writes, which comes late and seldom.
const COMPUTATION_ROOM: usize = 128;

/// The shared state of a shard; each family receives it with every event.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) now: Instant,
    pub(crate) view: Arc<ArrayView>,
    pub(crate) counters: Counters,
    pub(crate) pieces: Pieces,
    pub(crate) unconfirmed_epoch: Option<u64>,
    pub(crate) last_write: Instant,
    pub(crate) in_flight: u32,
    /// Number of background works without a result yet.
    pub(crate) works: u32,
    pub(crate) computations: VecDeque<Computation>,
    spare_computations: Vec<Computation>,
    pub(crate) member_ios: VecDeque<MemberIo>,
    pub(crate) replies: VecDeque<PieceReply>,
    pub(crate) releases: VecDeque<RequestId>,
    pub(crate) cache_records: VecDeque<CacheRecord>,
    written: WrittenMembers,
    pub(crate) reports: VecDeque<Report>,
    pub(crate) clocks: Clocks,
    pairs: Pairs,
    orphans: OrphanRequests,
    /// Bits that the shard requested of the array, as long as they are not open.
    wanted: Option<Bits>,
    /// Bits under which writes began since the array's last query.
    touched: Option<Bits>,
    trims: Trims,
    /// The bitmap and its revocation, until all earlier writes are reported as ended.
    undrained: Option<(BitmapId, u64)>,
    /// Writes in flight that cover bad ranges of their member: request, member, and range.
    over_bad: Vec<(IoId, MemberId, (MemberSector, u32))>,
    /// Ended writes over bad ranges, as long as the view still names the ranges.
    made_good: Vec<(MemberId, (MemberSector, u32))>,
}

impl Common {
    pub(crate) fn new(view: Arc<ArrayView>) -> Self {
        Self {
            written: WrittenMembers::new(&view),
            clocks: Clocks::new(view.slots.len()),
            now: Instant::default(),
            view,
            counters: Counters::default(),
            pieces: Pieces::default(),
            unconfirmed_epoch: None,
            last_write: Instant::default(),
            in_flight: 0,
            works: 0,
            computations: VecDeque::new(),
            spare_computations: Vec::new(),
            member_ios: VecDeque::new(),
            replies: VecDeque::new(),
            releases: VecDeque::new(),
            cache_records: VecDeque::new(),
            reports: VecDeque::new(),
            pairs: Pairs::default(),
            orphans: OrphanRequests::default(),
            over_bad: Vec::new(),
            made_good: Vec::new(),
            wanted: None,
            touched: None,
            trims: Trims::default(),
            undrained: None,
        }
    }

    /// Adopts a new view of the array, and returns the old one. The state kept for each slot
    /// follows the new view.
    pub(crate) fn turn_view(&mut self, view: Arc<ArrayView>) -> Arc<ArrayView> {
        self.written.turn(&self.view, &view);
        self.clocks.look(&view);
        self.unconfirmed_epoch = Some(view.epoch);
        self.made_good.retain(|(id, (start, sectors))| {
            let mut members = view.slots.iter().flatten().filter(|member| member.id == *id);
            members.any(|member| member.bad_blocks.touches(*start, u64::from(*sectors)))
        });
        std::mem::replace(&mut self.view, view)
    }

    /// Notes a write that covers bad ranges of its member.
    fn note_over_bad(
        &mut self,
        (id, slot): (IoId, Slot),
        member: MemberId,
        range: (MemberSector, u32),
    ) {
        let bad = self.view.bad_blocks_of(slot, member);
        if bad.is_some_and(|bad| bad.touches(range.0, u64::from(range.1))) {
            self.over_bad.push((id, member, range));
        }
    }

    /// Reports to the array an ended request that wrote over bad ranges.
    fn end_over_bad(&mut self, done: &MemberIoDone) {
        let Some(index) = self.over_bad.iter().position(|(id, ..)| *id == done.id) else { return };
        let (_, member, (start, sectors)) = self.over_bad.swap_remove(index);
        if done.result.is_ok() {
            let made_good = (member, (start, sectors));
            if !self.made_good.contains(&made_good) {
                self.made_good.push(made_good);
            }
            self.report(Report::BadBlocksWritten { member, start, sectors });
        }
    }

    /// Ended writes over bad ranges, while the view still names the ranges.
    pub(crate) fn made_good(&self) -> &[(MemberId, (MemberSector, u32))] {
        &self.made_good
    }

    /// Submits a request to the member in `slot`, under the family's name `id`. The view must
    /// contain the member (I6). A write goes to the member's replacement as well.
    pub(crate) fn submit(
        &mut self,
        (id, slot): (IoId, Slot),
        (sector, sectors): (MemberSector, u32),
        operation: MemberOperation,
    ) {
        let known = self.view.member(slot).expect("only members in the view are used");
        let (member, replacement) = (known.id, known.replacement);
        if operation.is_write() {
            assert!(self.view.gate != Gate::ReadOnly, "nothing is written to a read-only array");
            self.counters.member_writes += 1;
        } else {
            self.counters.member_reads += 1;
        }
        assert!(sectors > 0, "a member is asked for something");
        self.in_flight += 1;
        self.clocks.begins(self.now, (id, slot), (sector, sectors), &operation);
        if operation.is_write() {
            self.note_over_bad((id, slot), member, (sector, sectors));
        }
        self.member_ios.push_back(MemberIo { id, member, slot, sector, sectors, operation });
        let replacement = replacement.filter(|_| operation.is_write());
        let replacement = spoiled(Bug::ReplacementNotWritten, replacement, None);
        if let Some(member) = replacement {
            let id = self.pairs.begin(id, slot, member);
            self.note_over_bad((id, slot), member, (sector, sectors));
            self.counters.member_writes += 1;
            self.in_flight += 1;
            self.member_ios.push_back(MemberIo { id, member, slot, sector, sectors, operation });
        }
    }

    /// Submits a write to the replacement of the member in `slot` alone.
    pub(crate) fn submit_to_replacement(
        &mut self,
        (id, slot): (IoId, Slot),
        (sector, sectors): (MemberSector, u32),
        operation: MemberOperation,
    ) {
        let known = self.view.member(slot).and_then(|member| member.replacement);
        let member = known.expect("only members in the view are used");
        assert!(operation.is_write() && self.may_repair(), "a replacement is written");
        self.note_over_bad((id, slot), member, (sector, sectors));
        self.counters.member_writes += 1;
        self.in_flight += 1;
        self.member_ios.push_back(MemberIo { id, member, slot, sector, sectors, operation });
    }

    #[inline]
    pub(crate) fn note_done(&mut self, done: &MemberIoDone) {
        assert!(self.in_flight > 0, "more results than requests");
        self.in_flight -= 1;
        if !self.over_bad.is_empty() {
            self.end_over_bad(done);
        }
        if !Pairs::is_of_replacement(done.id) {
            self.clocks.ends(self.now, done.id);
        }
        self.counters.member_errors += u64::from(done.result.is_err());
    }

    /// Whether writes to a member and its replacement are in flight, which is rare.
    #[inline]
    pub(crate) fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Called after [`Self::note_done`] for a request that may be one of a pair. Returns the
    /// family's result once that result is final.
    #[inline(never)]
    pub(crate) fn pair_done(&mut self, done: MemberIoDone) -> Option<MemberIoDone> {
        match self.pairs.ended(&self.view, done) {
            PairResult::Tell(done) => Some(done),
            PairResult::Wait => None,
            // The replacement's failure costs the client nothing: the replaced member has the data.
            PairResult::Failed(fault) => {
                reached(Mark::ReplacementMissesWrite);
                self.report(Report::MemberFailed { cause: fault.cause });
                None
            }
        }
    }

    /// For a family's request, the member requests that are in flight at members that left: the
    /// request itself, the paired write to the replacement, or both. `is_copy` if the request is
    /// for the replacement alone.
    pub(crate) fn out_at(
        &self,
        departures: &Departures,
        (id, slot): (IoId, Slot),
        (memory, is_copy): (ReservedMemory, bool),
    ) -> SmallVec<[OrphanRequest; 2]> {
        let own = if is_copy { departures.replacement(slot) } else { departures.member(slot) };
        let own = own.filter(|_| !self.pairs.has_ended(id)).map(|member| (id, member));
        let other = self.pairs.of_replacement(id).filter(|(_, member)| departures.went(*member));
        let orphan = |(id, member)| OrphanRequest { id, member, memory };
        own.into_iter().chain(other).map(orphan).collect()
    }

    /// Drops the stamp of a read at a member that left: its duration does not count for the slot's
    /// next member.
    pub(crate) fn forget_pace_at(&mut self, departures: &Departures, (id, slot): (IoId, Slot)) {
        if departures.has(slot) {
            self.clocks.forget(id);
        }
    }

    /// Stops waiting for a request at a member that left. Returns the family's result once that
    /// result is final. The request's memory is held until [`Self::end_orphan`].
    pub(crate) fn leave(&mut self, request: OrphanRequest) -> Option<MemberIoDone> {
        let OrphanRequest { id, member, memory } = request;
        self.orphans.note(id, memory);
        self.over_bad.retain(|(other, ..)| *other != id);
        if !Pairs::is_of_replacement(id) {
            self.clocks.forget(id);
        }
        let fault = MemberFault { kind: FaultKind::Gone, cause: Cause::left(member) };
        match self.pairs.ended(&self.view, MemberIoDone { id, result: Err(fault) }) {
            PairResult::Tell(done) => Some(done),
            // The array already knows that the replacement is out.
            PairResult::Wait | PairResult::Failed(_) => None,
        }
    }

    /// Called when a request has ended: if its member had left, returns the memory that the request
    /// held.
    #[inline]
    pub(crate) fn end_orphan(&mut self, id: IoId) -> Option<ReservedMemory> {
        let memory = self.orphans.end(id)?;
        reached(Mark::LateAnswer);
        assert!(self.in_flight > 0, "more results than requests");
        self.in_flight -= 1;
        Some(memory)
    }

    /// Holds the payload of `piece`, because a write still names it although the write's member has
    /// left.
    pub(crate) fn hold_payload(&mut self, piece: PieceKey) {
        self.pieces.hold(piece);
    }

    pub(crate) fn let_go_of_payload(&mut self, piece: PieceKey) {
        self.releases.extend(self.pieces.let_go(piece));
    }

    /// Returns the results of member requests that the new view makes final, for the family.
    pub(crate) fn settle_pairs(&mut self) -> Vec<MemberIoDone> {
        self.pairs.settle(&self.view)
    }

    /// Reports the members' pace, if the time for a report has come.
    pub(crate) fn report_pace(&mut self) {
        let (view, reports) = (&self.view, &mut self.reports);
        self.clocks.report(self.now, |slot, pace| {
            if let Some(member) = view.member(slot).map(|member| member.id) {
                reports.push_back(Report::Pace { member, pace });
            }
        });
    }

    /// Takes the result of a read that no client waits for any more: a probe, or an abandoned read.
    pub(crate) fn stray_done(&mut self, slot: Slot, result: Result<(), MemberFault>) {
        result.err().into_iter().for_each(|fault| self.note_read_fault(slot, fault));
    }

    /// Notes that a write has reached the member in `slot`, at least in part: the next flush must
    /// include that member.
    pub(crate) fn note_written(&mut self, slot: Slot) {
        self.written.note(slot);
    }

    /// Whether any member has writes since the last report to the array, so that the next flush
    /// must include it.
    pub(crate) fn owes_flush(&self) -> bool {
        self.written.is_any()
    }

    /// Called when all writes of this round are on the members: reports the written members, and
    /// the round's end.
    pub(crate) fn written_back(&mut self, round: u64) {
        // A member that is out has nothing to flush.
        let members = self.written.take(&self.view).filter(|member| self.view.is_used(*member));
        self.reports.extend(members.map(|member| Report::MemberWritten { member }));
        self.report(Report::WrittenBack { round });
    }

    /// An empty computation, in reused memory if possible.
    pub(crate) fn blank_computation(&mut self, id: ComputationId) -> Computation {
        let mut computation = self.spare_computations.pop().unwrap_or_default();
        computation.steps.reserve(COMPUTATION_ROOM);
        computation.buffers.reserve(COMPUTATION_ROOM);
        let (found, partial) = Default::default();
        Computation { id, found, partial, verdicts: None, ..computation }
    }

    pub(crate) fn submit_computation(&mut self, computation: Computation) {
        assert!(!computation.steps.is_empty(), "a computation has something to do");
        self.computations.push_back(computation);
    }

    pub(crate) fn recycle(&mut self, mut computation: Computation) {
        if self.spare_computations.len() < SPARE_COMPUTATIONS_MAX {
            computation.steps.clear();
            computation.buffers.clear();
            self.spare_computations.push(computation);
        }
    }

    pub(crate) fn work_done(&mut self, id: WorkId, outcome: Outcome) {
        assert!(self.works > 0, "more results than work");
        self.works -= 1;
        self.report(Report::WorkDone { id, outcome });
    }

    pub(crate) fn report(&mut self, report: Report) {
        self.reports.push_back(report);
    }

    /// Reports that the member in `slot` took the rewrite of unreadable sectors.
    pub(crate) fn note_mended(&mut self, slot: Slot) {
        let member = self.view.member(slot).map(|member| member.id);
        member.into_iter().for_each(|member| self.report(Report::Mended { member }));
    }

    /// Called when a read failed: reports a member that is gone. The family handles a bad sector.
    pub(crate) fn note_read_fault(&mut self, slot: Slot, fault: MemberFault) {
        if fault.kind == FaultKind::Gone && self.still_in(slot, fault.cause.member) {
            self.report_failed(fault);
        }
    }

    /// Reports a failed member, or the failed write of a healthy member.
    pub(crate) fn report_failed(&mut self, fault: MemberFault) {
        let cause = fault.cause;
        self.report(match fault.kind.spares_member() {
            true => Report::NotTaken { fault },
            false => Report::MemberFailed { cause },
        });
    }

    /// Reports that a member failed the rewrite of unreadable or distrusted sectors. The sectors
    /// stay bad: the member's log must name them. A member without space, or write-protected, keeps
    /// its old data.
    pub(crate) fn report_unmended(
        &mut self,
        slot: Slot,
        fault: MemberFault,
        (start, sectors): (MemberSector, u32),
    ) {
        let cause = fault.cause;
        if !self.still_in(slot, cause.member) {
            return;
        }
        match fault.kind {
            FaultKind::NoSpace | FaultKind::Protected => {}
            FaultKind::Gone => self.report_failed(fault),
            FaultKind::Media => {
                reached(Mark::MendFails);
                self.report(Report::Unmended { cause, start, sectors });
            }
        }
    }

    /// Notes the failure of a member's request for `piece` as the cause, in case the piece fails.
    pub(crate) fn note_cause(&mut self, piece: PieceKey, result: Result<(), MemberFault>) {
        if let Err(fault) = result {
            self.pieces.note_cause(piece, fault.cause);
        }
    }

    /// Whether `member` still occupies `slot`, or is the replacement there, so that its missed
    /// write is not yet recorded.
    pub(crate) fn still_in(&self, slot: Slot, member: MemberId) -> bool {
        self.view.has(slot, member)
    }

    /// Whether unreadable sectors can be rewritten from the other members.
    pub(crate) fn may_repair(&self) -> bool {
        matches!(self.view.gate, Gate::Open | Gate::Closed) && !self.view.mends_nothing
    }

    pub(crate) fn begin(&mut self, piece: &Piece, has_intent: bool) -> PieceKey {
        if piece.operation.is_write() {
            let is_due = has_intent == (self.view.gate == Gate::Open && self.has_bits(piece));
            let is_due = spoiled(Bug::GateIgnored, is_due, true);
            let is_due = spoiled(Bug::BitsIgnored, is_due, true);
            assert!(is_due, "I3: a write has its intent if gate and bits are open, and only then");
            self.last_write = self.now;
            if has_intent && let Some(bits) = self.bits_of(piece) {
                self.touch(&bits);
            }
        }
        let key = self.pieces.begin(piece, has_intent);
        if piece.operation.is_write() {
            self.note_trim(key, piece);
        }
        key
    }

    /// Notes a trim, or a write that may cover trimmed sectors.
    fn note_trim(&mut self, key: PieceKey, piece: &Piece) {
        let Some(intent) = self.view.intent.as_ref().filter(|intent| intent.is_lockless) else {
            return;
        };
        if piece.operation == Operation::Trim {
            return self.trims.begins(key, (piece.start, piece.sectors));
        }
        if self.trims.is_idle() {
            return; // The usual case.
        }
        let (view, bitmap) = (&self.view, intent.bitmap);
        if let Some(bits) = self.bits_of(piece)
            && self.trims.writes(&bits, |(start, sectors)| view.bits_of(start, sectors))
        {
            self.report(Report::WrittenAgain { bitmap, from: bits.start, to: bits.end });
        }
    }

    /// Reports a client's trim to the array, once the trim is acknowledged.
    fn is_trimmed(&mut self, (start, sectors): Extent) {
        let Some(intent) = self.view.intent.as_ref().filter(|intent| intent.is_lockless) else {
            return;
        };
        let Some(bits) = self.view.bits_of(start, sectors) else { return };
        self.trims.tells(bits, || empty_like(&intent.open));
        self.report(Report::Trimmed { bitmap: intent.bitmap, start, sectors });
    }

    /// Bits that stand for the sectors of a write; `None` without a bitmap.
    pub(crate) fn bits_of(&self, piece: &Piece) -> Option<Range<u64>> {
        self.view.bits_of(piece.start, piece.sectors)
    }

    /// Whether the open bits cover a write.
    pub(crate) fn has_bits(&self, piece: &Piece) -> bool {
        self.bits_of(piece).is_none_or(|bits| self.are_open(&bits))
    }

    fn are_open(&self, bits: &Range<u64>) -> bool {
        self.view.intent.as_ref().is_none_or(|intent| intent.open.has_all(bits.clone()))
    }

    fn touch(&mut self, bits: &Range<u64>) {
        let Some(intent) = &self.view.intent else { return };
        let touched = self.touched.get_or_insert_with(|| empty_like(&intent.open));
        bits.clone().for_each(|bit| touched.set(bit));
    }

    /// Notes that a piece waits for these bits to become durable. Each bit is requested of the
    /// array once.
    pub(crate) fn want_bits(&mut self, bits: &Range<u64>) {
        let Some(intent) = &self.view.intent else { return };
        let open = Arc::clone(&intent.open);
        let wanted = self.wanted.get_or_insert_with(|| empty_like(&open));
        // While a piece waits for some bits, the array may take back an open bit. The shard then
        // requests that bit again.
        let lacking = || bits.clone().filter(|bit| !open.is_set(*bit));
        if lacking().any(|bit| !wanted.is_set(bit)) {
            reached(Mark::WriteWaitsForBits);
            lacking().for_each(|bit| wanted.set(bit));
            let bitmap = intent.bitmap;
            self.report(Report::WantBits { bitmap, from: bits.start, to: bits.end });
        }
    }

    /// Requests bits again: the array may have taken some back before a waiting piece had all of
    /// its bits.
    pub(crate) fn want_bits_again(&mut self) {
        self.bits_waited_for().iter().for_each(|bits| self.want_bits(bits));
    }

    /// Reports the bits under which writes began since the last query.
    pub(crate) fn tell_touched(&mut self) {
        let Some(intent) = &self.view.intent else { return };
        let touched = self.touched.take().unwrap_or_else(|| empty_like(&intent.open));
        self.report(Report::Touched { bitmap: intent.bitmap, bits: Arc::new(touched) });
    }

    /// Called when a new view of the array is in force. Returns the pieces whose answer was held
    /// until now.
    pub(crate) fn grant_intent(&mut self) -> Vec<PieceKey> {
        let view = Arc::clone(&self.view);
        let open = view.intent.as_ref().map(|intent| &intent.open);
        let waited = self.bits_waited_for();
        let granted = self.pieces.grant_intent(|(start, sectors)| {
            let bits = view.bits_of(start, sectors);
            bits.zip(open).is_none_or(|(bits, open)| open.has_all(bits))
        });
        for bits in &waited {
            if self.are_open(bits) {
                self.touch(bits);
            }
        }
        granted
    }

    /// Bits that writes wait for. Computed by the current view, since an older view may have had
    /// another bitmap.
    fn bits_waited_for(&self) -> Vec<Range<u64>> {
        let extents = self.pieces.waiting_extents();
        extents.filter_map(|(start, sectors)| self.view.bits_of(start, sectors)).collect()
    }

    /// Takes over the bitmap's bits from a new view.
    pub(crate) fn note_bits(&mut self, before: Option<&IntentView>) {
        let Some(intent) = self.view.intent.clone() else {
            (self.wanted, self.touched) = (None, None);
            self.trims.forget();
            return;
        };
        let before = before.filter(|before| before.bitmap == intent.bitmap);
        if before.is_none() {
            (self.wanted, self.touched) = (None, None);
            self.trims.forget();
        }
        if let Some(wanted) = &mut self.wanted {
            wanted.subtract(&intent.open);
        }
        if before.is_some_and(|before| before.revocation != intent.revocation) {
            self.pieces.turn_generation();
            self.undrained = Some((intent.bitmap, intent.revocation));
        }
    }

    /// Whether `piece` can be written: durable superblocks and bits record that its region may need
    /// a resync (I3).
    pub(crate) fn has_intent(&self, piece: PieceKey) -> bool {
        self.pieces.has_intent(piece)
    }

    /// Whether no write waits for its intent, which is the usual case.
    pub(crate) fn has_all_intents(&self) -> bool {
        self.pieces.waiting() == 0
    }

    pub(crate) fn add_part(&mut self, piece: PieceKey) {
        self.pieces.add_part(piece);
    }

    /// Notes that a part of `piece` is done; the last part answers the piece.
    pub(crate) fn part_done(&mut self, piece: PieceKey, result: Result<(), Fault>) {
        if let Some(reply) = self.pieces.part_done(piece, result) {
            if !self.trims.is_idle()
                && let Some(extent) = self.trims.ended(piece, reply.result.is_ok())
            {
                self.is_trimmed(extent);
            }
            self.last_write = self.now;
            if planted(Bug::PayloadReleasedEarly) && reply.keeps_payload {
                self.releases.push_back(reply.request);
            }
            self.replies.push_back(reply);
        }
    }

    /// Notes that a read straight into the payload of `piece` was abandoned.
    pub(crate) fn abandon(&mut self, piece: PieceKey) {
        self.counters.abandoned_reads += 1;
        self.pieces.leave(piece);
    }

    /// Sectors of pieces whose payload is needed beyond their answer.
    pub(crate) fn kept_sectors(&self) -> u64 {
        self.pieces.kept_sectors()
    }

    /// The value of [`Self::kept_sectors`] if a part of `piece` were acknowledged early.
    pub(crate) fn kept_sectors_with(&mut self, piece: PieceKey) -> u64 {
        self.pieces.kept_sectors_with(piece)
    }

    /// Adds to `piece` a part that was acknowledged early.
    pub(crate) fn keep_part(&mut self, piece: PieceKey) {
        self.pieces.keep(piece);
    }

    /// Acknowledges a part of `piece` before the members have its data.
    pub(crate) fn part_kept(&mut self, piece: PieceKey) {
        assert_eq!(self.view.gate, Gate::Open, "no write is answered early unless it may go on");
        self.pieces.keep(piece);
        self.part_done(piece, Ok(()));
    }

    /// Notes that a part is lost after its early acknowledgement. If its piece has no answer yet,
    /// the piece fails.
    pub(crate) fn part_lost(&mut self, piece: PieceKey, fault: Fault) {
        self.pieces.part_lost(piece, fault);
    }

    /// Notes that a part acknowledged early no longer needs its payload.
    pub(crate) fn release_payload(&mut self, piece: PieceKey) {
        self.last_write = self.now;
        let released = self.pieces.release_payload(piece);
        let released = spoiled(Bug::PayloadReleasedEarly, released, None);
        let released = spoiled(Bug::PayloadNeverReleased, released, None);
        self.releases.extend(released);
    }

    pub(crate) fn refuse(&mut self, piece: &Piece, fault: Fault) {
        assert!(piece.operation.is_write(), "reads are not refused at the gate");
        let is_final = matches!(self.view.gate, Gate::ReadOnly | Gate::Broken);
        assert!(is_final, "a write is refused only where none is ever taken");
        let (keeps_payload, leaves_payload) = (false, false);
        let result = Err(fault);
        let (request, cause) = (piece.request, None);
        let reply = PieceReply { request, result, keeps_payload, leaves_payload, cause };
        self.replies.push_back(reply);
    }

    /// Reports to the array that the view is in force, and that all writes from before a revocation
    /// have ended, each as soon as it is true.
    pub(crate) fn confirm_view(&mut self) {
        let is_drained = !self.pieces.has_writes_before();
        if !is_drained && self.undrained.is_some() {
            reached(Mark::BitsWaitForDrain);
        }
        if is_drained && let Some((bitmap, revocation)) = self.undrained.take() {
            self.report(Report::Drained { bitmap, revocation });
        }
        let drained = self.view.gate != Gate::Closed || self.pieces.writes() == 0;
        let drained = spoiled(Bug::UndrainedConfirmed, drained, true);
        if !drained && self.unconfirmed_epoch.is_some() {
            reached(Mark::CloseWaitsForDrain);
        }
        if drained && let Some(epoch) = self.unconfirmed_epoch.take() {
            assert_eq!(epoch, self.view.epoch, "the view that is confirmed is the one that rules");
            self.report(Report::ViewInForce { epoch });
        }
    }
}

/// An empty set of bits, for as many sectors as `bits`.
fn empty_like(bits: &Bits) -> Bits {
    Bits::none(bits.sectors(), bits.sectors_each())
}
