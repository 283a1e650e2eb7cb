//! One shard of an array: the regions that hash to it, and everything under way in them.
//!
//! Call a `handle_*`, then drain the `poll_*` in the order they are listed, until each returns
//! `None`. The geometry decides once which family serves; the families share [`Common`].

use braid_sim_hooks::{Bug, Mark, planted, reached};
use std::sync::Arc;

use braid_geometry::{Geometry, Slot};

use crate::Instant;
use crate::array::{ArrayView, Gate, MemberView};
use crate::buffer::Buffer;
use crate::computation::Computation;
use crate::context::{Common, Departures, OrphanRequest, PROBE_SECTORS, PieceKey, ReservedMemory};
use crate::counters::Counters;
use crate::direct::Direct;
use crate::effect::{
    CacheRecord, LogTicket, MemberIo, MemberIoDone, MemberOperation, PieceReply, Report,
    SlowMembers,
};
use crate::ids::RequestId;
use crate::mirror::Mirror;
use crate::request::{Fault, Piece};
use crate::stripe::Stripes;
use crate::tuning::{CacheConfig, Tuning, UNIT_SECTORS_MAX};
use crate::work::{Purpose, Work};

/// How many pieces ahead a driver calls [`Shard::prefetch`]: about as many as the cache lines that
/// a processor fetches at once.
pub const PREFETCH_PIECES: usize = 16;

/// The machine of one shard.
#[derive(Debug)]
pub struct Shard {
    common: Common,
    family: Machine,
}

#[derive(Debug)]
enum Machine {
    Direct(Direct),
    Mirror(Mirror),
    Stripe(Box<Stripes>),
}

impl Shard {
    /// A shard that starts with `view`. Levels without parity have no stripe cache.
    #[must_use]
    pub fn new(cache: CacheConfig, view: Arc<ArrayView>) -> Self {
        let family = match &*view.geometry {
            Geometry::Direct(geometry) => Machine::Direct(Direct::new(geometry.clone())),
            Geometry::Mirror(geometry) => Machine::Mirror(Mirror::new(geometry.clone())),
            Geometry::Stripe(geometry) => {
                Machine::Stripe(Box::new(Stripes::new(*geometry, cache, &view)))
            }
        };
        Self { common: Common::new(view), family }
    }

    /// Number of blocks that the driver's arena for this shard must hold; 0 is possible.
    #[must_use]
    pub fn arena_blocks(&self) -> u32 {
        match &self.family {
            Machine::Stripe(stripes) => stripes.arena_blocks(),
            Machine::Mirror(mirror) => mirror.arena_blocks(),
            Machine::Direct(_) => 0,
        }
    }

    /// Sectors in a block of the arena (the stripe unit).
    #[must_use]
    pub fn block_sectors(&self) -> u32 {
        match &self.family {
            Machine::Stripe(stripes) => stripes.unit_sectors(),
            // A block of a mirror has as many sectors as a [`SectorSet`] can hold.
            Machine::Mirror(_) => UNIT_SECTORS_MAX,
            Machine::Direct(_) => PROBE_SECTORS,
        }
    }

    /// The shard's counts so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.common.counters
    }

    /// Whether the shard has no work.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.common.pieces.is_empty() && self.common.in_flight == 0 && self.common.works == 0
    }

    /// Prefetches the memory of a piece that [`Self::handle_piece`] will take soon, after other
    /// pieces. This is a hint without other effect; [`PREFETCH_PIECES`] ahead is enough.
    pub fn prefetch(&self, piece: &Piece) {
        if let Machine::Stripe(stripes) = &self.family {
            stripes.prefetch(piece);
        }
    }

    /// Takes a piece of a client's request. [`Self::poll_reply`] answers each piece once.
    pub fn handle_piece(&mut self, now: Instant, piece: Piece) {
        self.common.now = now;
        let mut gate = self.common.view.gate;
        if planted(Bug::GateIgnored) && gate == Gate::Closed {
            gate = Gate::Open;
        }
        match gate {
            _ if !piece.operation.is_write() => self.begin(piece, true),
            Gate::Open if self.has_bits(&piece) => self.begin(piece, true),
            Gate::Open => self.begin(piece, false),
            Gate::Closed => {
                let is_first = self.common.has_all_intents();
                reached(Mark::GatedWrite);
                self.begin(piece, false);
                // The shard asks for the gate after it has asked for bits: the gate then waits for
                // both.
                if is_first {
                    self.common.report(Report::WantWrite);
                }
            }
            Gate::ReadOnly => self.common.refuse(&piece, Fault::ReadOnly),
            Gate::Broken => self.common.refuse(&piece, Fault::Unwritable),
        }
    }

    /// Takes background work; [`Report::WorkDone`] reports its outcome. The band must be one of the
    /// shard's own ([`crate::request::Regions`]).
    ///
    /// # Panics
    /// If the level has no redundancy: it has nothing to compare.
    pub fn handle_work(&mut self, now: Instant, work: Work) {
        self.common.now = now;
        self.common.works += 1;
        match &mut self.family {
            Machine::Stripe(stripes) => stripes.handle_work(&mut self.common, work),
            Machine::Mirror(mirror) => mirror.handle_work(&mut self.common, work),
            Machine::Direct(_) => panic!("there is nothing to compare"),
        }
        self.common.confirm_view();
    }

    /// Takes the result of a [`MemberIo`].
    pub fn handle_member_io(&mut self, now: Instant, done: MemberIoDone) {
        self.common.now = now;
        if let Some(memory) = self.common.end_orphan(done.id) {
            self.let_go(memory);
        } else {
            self.common.note_done(&done);
            if !self.common.has_pairs() {
                self.tell_family(done);
            } else if let Some(done) = self.common.pair_done(done) {
                self.tell_family_later(done);
            }
        }
        self.common.confirm_view();
    }

    /// As [`Self::tell_family`], not inlined: for use after the array's view has changed, which is
    /// rare.
    #[inline(never)]
    fn tell_family_later(&mut self, done: MemberIoDone) {
        self.tell_family(done);
    }

    /// The requests in flight at members that left, collected before the shard submits any request
    /// under the new view.
    #[inline(never)]
    fn under_way_at(&mut self, departures: &Departures) -> Vec<OrphanRequest> {
        match &mut self.family {
            Machine::Direct(_) => Vec::new(), // No member leaves without redundancy.
            Machine::Mirror(mirror) => mirror.leave(&mut self.common, departures),
            Machine::Stripe(stripes) => stripes.leave(&mut self.common, departures),
        }
    }

    /// Stops waiting for requests at members that left.
    fn leave(&mut self, requests: Vec<OrphanRequest>) {
        for request in requests {
            reached(Mark::RequestLeft);
            if let Some(done) = self.common.leave(request) {
                self.tell_family_later(done);
            }
        }
    }

    /// Frees the memory of a request at a member that left, now that the request has ended.
    #[cold]
    #[inline(never)]
    fn let_go(&mut self, memory: ReservedMemory) {
        match (&mut self.family, memory) {
            (_, ReservedMemory::Nothing) => {}
            (_, ReservedMemory::Payload(piece)) => self.common.let_go_of_payload(piece),
            (Machine::Stripe(stripes), memory) => stripes.let_go_of(&mut self.common, memory),
            (Machine::Mirror(mirror), ReservedMemory::Place(place)) => {
                mirror.let_go_of(&mut self.common, place);
            }
            (Machine::Direct(_) | Machine::Mirror(_), memory) => {
                unreachable!("it has no such memory: {memory:?}")
            }
        }
    }

    /// Reports a request's end to the family. Inlined for the usual case, in which the array's view
    /// has not changed.
    #[inline(always)]
    fn tell_family(&mut self, done: MemberIoDone) {
        match &mut self.family {
            Machine::Direct(direct) => direct.handle_io(&mut self.common, done),
            Machine::Mirror(mirror) => mirror.handle_io(&mut self.common, done),
            Machine::Stripe(stripes) => stripes.handle_io(&mut self.common, done),
        }
    }

    /// Takes a carried-out [`Computation`] back.
    pub fn handle_computation_done(&mut self, now: Instant, computation: Computation) {
        self.common.now = now;
        match &mut self.family {
            Machine::Stripe(stripes) => {
                stripes.handle_computation_done(&mut self.common, computation)
            }
            Machine::Mirror(mirror) => {
                mirror.handle_computation_done(&mut self.common, computation);
            }
            Machine::Direct(_) => unreachable!("nothing is computed where nothing is redundant"),
        }
        self.common.confirm_view();
    }

    /// Takes a new view of the array. [`Report::ViewInForce`] reports when the view is in force. A
    /// view with a closed gate is in force once all writes have ended, any other at once.
    ///
    /// # Panics
    /// If the view is not newer than the view before.
    pub fn handle_view(&mut self, now: Instant, view: Arc<ArrayView>) {
        assert!(view.epoch > self.common.view.epoch, "views come in order");
        let slots = usize::from(view.geometry.slots());
        assert_eq!(view.slots.len(), slots, "a view has a place for each slot of its geometry");
        let was_final = matches!(self.common.view.gate, Gate::ReadOnly | Gate::Broken);
        let is_final = matches!(view.gate, Gate::ReadOnly | Gate::Broken);
        assert!(is_final || !was_final, "what takes no writes takes none ever after");
        let begins_so = view.gate != Gate::ReadOnly || self.common.view.gate == Gate::ReadOnly;
        assert!(begins_so, "an array is opened for reading only, and does not come to be so");
        let is_in_sync = view.resync_offset >= self.common.view.resync_offset;
        assert!(is_in_sync, "I7: redundancy that was in sync is in sync in every later view");
        let mut members = (0..).map(Slot).zip(&view.slots);
        let may_be = |(slot, new): (Slot, &Option<MemberView>)| {
            // A returning member holds every range that no bit of the bitmap names.
            let returns = |new: &MemberView| new.ahead.is_empty() || view.intent.is_some();
            let is_empty = |new: &MemberView| new.recovered_sectors == 0 && returns(new);
            new.as_ref().is_none_or(|new| self.common.view.has(slot, new.id) || is_empty(new))
        };
        assert!(
            members.all(may_be),
            "I6: of a member that comes nothing is read before it is recovered"
        );
        self.common.now = now;
        let before = self.common.turn_view(view);
        let view = Arc::clone(&self.common.view);
        let mut unanswered = Vec::new();
        self.common.note_bits(before.intent.as_ref());
        match view.gate {
            Gate::Open => unanswered = self.grant_intent(),
            Gate::ReadOnly | Gate::Broken => unanswered = self.common.pieces.take_unanswered(),
            // The shard's request to open a closed gate may have crossed this view on its way.
            Gate::Closed if !self.common.has_all_intents() => {
                reached(Mark::AskedAgain);
                self.common.report(Report::WantWrite);
            }
            Gate::Closed => {}
        }
        self.common.want_bits_again();
        let departures = Departures::between(&before, &view);
        let orphans =
            if departures.is_none() { Vec::new() } else { self.under_way_at(&departures) };
        match (&mut self.family, &*view.geometry) {
            (Machine::Direct(direct), Geometry::Direct(geometry)) => direct.handle_view(geometry),
            (Machine::Mirror(mirror), Geometry::Mirror(geometry)) => {
                mirror.handle_view(&mut self.common, geometry);
            }
            (Machine::Stripe(stripes), Geometry::Stripe(geometry)) => {
                stripes.handle_view(&mut self.common, geometry);
            }
            _ => unreachable!("an array keeps its family of levels while it is open"),
        }
        self.leave(orphans);
        for done in self.common.settle_pairs() {
            self.tell_family_later(done);
        }
        let result = if view.gate == Gate::Open { Ok(()) } else { Err(Fault::Unwritable) };
        for key in unanswered {
            self.common.part_done(key, result);
        }
        self.common.confirm_view();
    }

    /// Notes that superblocks allow writes now. Returns the pieces that waited only for
    /// superblocks, and not for bits.
    fn grant_intent(&mut self) -> Vec<PieceKey> {
        if planted(Bug::GatedLost) {
            return Vec::new();
        }
        self.common.grant_intent()
    }

    fn has_bits(&self, piece: &Piece) -> bool {
        if planted(Bug::BitsIgnored) {
            return true;
        }
        self.common.has_bits(piece)
    }

    /// Takes the report that the log entries of [`Report::WantLog`] are durable, or that their
    /// members have left.
    pub fn handle_logged(&mut self, now: Instant, ticket: LogTicket) {
        self.common.now = now;
        match &mut self.family {
            Machine::Stripe(stripes) => stripes.handle_logged(&mut self.common, ticket),
            Machine::Direct(_) | Machine::Mirror(_) => unreachable!("only parity is logged"),
        }
        self.common.confirm_view();
    }

    /// Takes the array's query for the bits of writes since the last query. [`Report::Touched`]
    /// answers it, if the array has a bitmap.
    pub fn handle_touched_query(&mut self, now: Instant) {
        self.common.now = now;
        self.common.tell_touched();
    }

    /// Takes the array's query for the time of the shard's last write. [`Report::Activity`] answers
    /// it.
    pub fn handle_activity_query(&mut self, now: Instant) {
        self.common.now = now;
        let writing = self.common.pieces.writes() + self.common.pieces.waiting() > 0;
        let last_write = self.common.last_write;
        self.common.report(Report::Activity { last_write, writing });
    }

    /// Writes all acknowledged data back to the members; [`Report::WrittenBack`] reports the end.
    /// One round at a time.
    pub fn handle_write_back(&mut self, now: Instant, round: u64) {
        self.common.now = now;
        match &mut self.family {
            Machine::Stripe(stripes) => stripes.handle_write_back(&mut self.common, round),
            Machine::Direct(_) | Machine::Mirror(_) => {
                self.common.written_back(round);
            }
        }
        self.common.confirm_view();
    }

    /// Changes the stripe cache's settings.
    pub fn handle_tuning(&mut self, now: Instant, tuning: Tuning) {
        self.common.now = now;
        if let Machine::Stripe(stripes) = &mut self.family {
            stripes.handle_tuning(&mut self.common, tuning);
        }
        self.common.confirm_view();
    }

    /// Takes the members that sit out, and whether to measure members. Unlike a view, the call does
    /// not wait for requests in flight: the shard abandons reads of a member that sits out and
    /// computes the bytes in another way.
    pub fn handle_slow_members(&mut self, now: Instant, slow_members: Arc<SlowMembers>) {
        self.common.now = now;
        let Common { clocks, view, .. } = &mut self.common;
        match &mut self.family {
            // On levels without redundancy, no member can stand in for another.
            Machine::Direct(_) => {}
            Machine::Mirror(mirror) => {
                clocks.note_slow_members(now, slow_members, view);
                mirror.handle_slow_members(&mut self.common);
            }
            Machine::Stripe(stripes) => {
                clocks.note_slow_members(now, slow_members, view);
                stripes.handle_slow_members(&mut self.common);
            }
        }
        self.common.confirm_view();
    }

    /// Reports members' pace, and probes the members that sit out, whenever one of the two is due.
    fn look_at_members(&mut self, now: Instant) {
        self.common.report_pace();
        for (slot, sector, sectors) in self.common.clocks.probes(now) {
            let readable = self.common.view.readable(slot, sector, u64::from(sectors)).is_some();
            match &mut self.family {
                Machine::Mirror(mirror) if readable => {
                    mirror.probe(&mut self.common, slot, (sector, sectors));
                }
                Machine::Stripe(stripes) if readable => {
                    stripes.probe(&mut self.common, slot, (sector, sectors));
                }
                _ => self.common.clocks.probed(slot),
            }
        }
    }

    /// Called when the time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.common.now = now;
        self.look_at_members(now);
        if let Machine::Stripe(stripes) = &mut self.family {
            stripes.handle_timeout(&mut self.common);
        }
        self.common.confirm_view();
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = match &self.family {
            Machine::Stripe(stripes) => stripes.poll_timeout(),
            Machine::Direct(_) | Machine::Mirror(_) => None,
        };
        own.into_iter().chain(self.common.clocks.poll_timeout()).min()
    }

    /// Sectors of pieces that the shard acknowledged early and whose payload it keeps. A piece
    /// counts whole until all its sectors are on the members.
    #[must_use]
    pub fn dirty_sectors(&self) -> u64 {
        self.common.kept_sectors()
    }

    /// The stripe cache's settings (levels 4, 5, 6).
    #[must_use]
    pub fn tuning(&self) -> Option<Tuning> {
        match &self.family {
            Machine::Stripe(stripes) => Some(stripes.tuning()),
            Machine::Direct(_) | Machine::Mirror(_) => None,
        }
    }

    /// Whether the shard acknowledged a piece of the request early, and that piece is not yet on
    /// the members.
    #[must_use]
    pub fn keeps(&self, request: RequestId) -> bool {
        self.common.pieces.keeps(request)
    }

    /// Whether acknowledged sectors were lost, and no client has written them again since.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        match &self.family {
            Machine::Stripe(stripes) => stripes.has_lost(),
            // These families acknowledge a write only when the members have it.
            Machine::Direct(_) | Machine::Mirror(_) => false,
        }
    }

    /// Number of stripes that could begin, and wait for memory.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.family {
            Machine::Stripe(stripes) => stripes.waiting(),
            Machine::Direct(_) | Machine::Mirror(_) => 0,
        }
    }

    /// 1. Computations on bytes, for the driver to carry out.
    pub fn poll_computation(&mut self) -> Option<Computation> {
        self.common.computations.pop_front()
    }

    /// 2. Requests to members.
    pub fn poll_member_io(&mut self) -> Option<MemberIo> {
        self.common.member_ios.pop_front()
    }

    /// The purpose of a request that was just polled. Drivers use it to serve readers and the
    /// flusher in turns, and to let background work wait.
    #[must_use]
    pub fn purpose_of(&self, io: &MemberIo) -> Purpose {
        let fills_block =
            matches!(io.operation, MemberOperation::Read { buffer: Buffer::Block { .. } });
        match &self.family {
            Machine::Stripe(stripes) if fills_block => stripes.purpose_of(io.id),
            Machine::Mirror(mirror) if fills_block => mirror.purpose_of(io.id),
            Machine::Direct(_) | Machine::Mirror(_) | Machine::Stripe(_) => Purpose::Client,
        }
    }

    /// 3. Changes to the copies of acknowledged writes. The driver carries them out before the
    ///    replies that follow: no write is acknowledged before its copy is durable, nor before
    ///    older copies that it overwrites are erased.
    pub fn poll_cache_record(&mut self) -> Option<CacheRecord> {
        self.common.cache_records.pop_front()
    }

    /// 4. Answers to pieces.
    pub fn poll_reply(&mut self) -> Option<PieceReply> {
        self.common.replies.pop_front()
    }

    /// 5. A request, one of whose pieces was acknowledged early and no longer needs the payload
    ///    ([`PieceReply::keeps_payload`]). Each request is named once for each such piece.
    pub fn poll_release(&mut self) -> Option<RequestId> {
        self.common.releases.pop_front()
    }

    /// 6. Reports for the array.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.common.reports.pop_front()
    }

    fn begin(&mut self, piece: Piece, has_intent: bool) {
        let key = self.common.begin(&piece, has_intent);
        match &mut self.family {
            Machine::Direct(direct) => direct.handle_piece(&mut self.common, key, &piece),
            Machine::Mirror(mirror) => mirror.handle_piece(&mut self.common, key, &piece),
            Machine::Stripe(stripes) => stripes.handle_piece(&mut self.common, key, &piece),
        }
        // The split itself counts as one part of the piece: otherwise the piece could end half
        // split.
        if has_intent {
            self.common.part_done(key, Ok(()));
        } else {
            if let Some(bits) = self.common.bits_of(&piece) {
                self.common.want_bits(&bits);
            }
            self.common.pieces.hold_answer(key, (piece.start, piece.sectors));
        }
        self.common.confirm_view();
    }
}
