//! The machine of levels with parity: passes events to the parts of a shard, and the results of one
//! part to the next. A TRIM reaches members only if zeroing is fast and the TRIM covers whole
//! bands; other TRIMs change nothing.

use braid_geometry::{MemberSector, Slot, StripeGeometry};
use braid_sim_hooks::{Mark, reached};

use super::band::{Attachment, Band, BandKey, Bands, WriteKind};
use super::batch::{Action, BatchContext, Content, Effects, Phase, Stripe, decide, facts, waits};
use super::cached_writes::CachedWrites;
use super::column_coverage::EntireSlots;
use super::damage::{Damage, is_synced, sectors_of};
use super::epochs::DirtyEpochs;
use super::in_flight::{CopyOut, IoOwner};
use super::orphan_frames::OrphanFrames;
use super::plan::Planner;
use super::pool::Pool;
use super::reconstruct::{PLACES, Reconstruct};
use super::scheduler::{Admission, QueuedWork, Scheduler};
use super::solve::FrameBlocks;
use crate::Instant;
use crate::array::{ArrayView, Gate};
use crate::computation::Computation;
use crate::context::{Common, PieceKey};
use crate::effect::{LogTicket, MemberIoDone, MemberOperation, Report};
use crate::ids::IoId;
use crate::request::{Operation, Piece};
use crate::sectors::BLOCK_SECTORS;
use crate::slab::Slab;
use crate::tuning::{CacheConfig, Tuning};
use crate::work::{Purpose, Work};

/// The most bands of one piece that are prefetched. A larger piece has other work to do meanwhile.
const PREFETCHED_BANDS_MAX: u32 = 4;

#[derive(Debug)]
pub(crate) struct Stripes {
    pub(super) geometry: StripeGeometry,
    pub(super) unit_sectors: u32,
    /// Frames of stripes come first, then those of reads, then those of probes.
    frame_blocks: FrameBlocks,
    pub(super) pool: Pool,
    pub(super) scheduler: Scheduler,
    pub(super) epochs: DirtyEpochs,
    pub(super) cached: CachedWrites,
    pub(super) reads: Reconstruct,
    pub(super) damage: Damage,
    pub(super) entire: EntireSlots,
    /// Every member is up to date in full, and redundancy agrees everywhere.
    pub(super) is_whole: bool,
    /// Number of writes without intent that joined a stripe since the last time at which all writes
    /// had their intent.
    pub(super) lacking_intent: u32,
    /// Stripes that may wait for superblocks, to acknowledge a write or to begin a batch.
    awaiting_view: Vec<u32>,
    /// The epoch of the array's view in which [`Report::HeldUp`] was last sent.
    held_up_in: Option<u64>,
    pub(super) in_flight: Slab<IoOwner>,
    pub(super) copies: Slab<CopyOut>,
    pub(super) orphan_frames: OrphanFrames,
    /// The content of the current batch. The allocation is reused.
    pub(super) content: Content,
    /// `None` while a plan is being made. The allocation is reused.
    planner: Option<Box<Planner>>,
}

/// A stripe's queued work, as the scheduler sees it.
struct StripeQueue<'a> {
    stripe: &'a Stripe,
    epochs: &'a DirtyEpochs,
    unit_sectors: u32,
}

impl QueuedWork for StripeQueue<'_> {
    fn is_full(&self) -> bool {
        self.stripe.is_full(self.unit_sectors)
    }

    fn is_awaited(&self) -> bool {
        self.stripe.is_awaited()
    }

    fn is_flushed(&self) -> bool {
        let mut epochs = self.stripe.dirty_epochs();
        self.epochs.has_round() && epochs.any(|epoch| self.epochs.is_flushed(epoch))
    }

    fn expects_flush(&self) -> bool {
        let mut epochs = self.stripe.dirty_epochs();
        self.epochs.expects_flush()
            && epochs.next().inspect(|_| reached(Mark::FlushExpected)).is_some()
    }
}

impl Stripes {
    pub(crate) fn new(geometry: StripeGeometry, config: CacheConfig, view: &ArrayView) -> Self {
        let unit_sectors = config.block_sectors(&view.geometry);
        let is_of_blocks = unit_sectors.is_multiple_of(BLOCK_SECTORS);
        assert!(is_of_blocks || !view.keeps_journal, "a journal has whole blocks");
        let fits = geometry.chunk_sectors().is_multiple_of(unit_sectors);
        assert!(fits, "chunks and stripe units are powers of two");
        let frame_blocks = FrameBlocks::new(geometry.slots());
        let mut stripes = Self {
            geometry,
            unit_sectors,
            frame_blocks,
            pool: Pool::new(config.stripes_max),
            scheduler: Scheduler::new(config.tuning),
            epochs: DirtyEpochs::default(),
            cached: CachedWrites::new(config.cached_blocks_max),
            reads: Reconstruct::new(geometry, unit_sectors, frame_blocks, config.stripes_max),
            damage: Damage::default(),
            entire: EntireSlots::of_none(geometry.slots()),
            is_whole: false,
            lacking_intent: 0,
            awaiting_view: Vec::new(),
            held_up_in: None,
            in_flight: Slab::default(),
            copies: Slab::default(),
            orphan_frames: OrphanFrames::default(),
            content: Content::default(),
            planner: Some(Box::new(Planner::blank())),
        };
        stripes.resize(config.tuning.stripes);
        stripes.note_view(view);
        stripes
    }

    pub(crate) fn arena_blocks(&self) -> u32 {
        self.frame_blocks.of(self.probe_frame() + 1)
    }

    pub(crate) fn unit_sectors(&self) -> u32 {
        self.unit_sectors
    }

    /// Prefetches the index lines of a piece's bands, if the index is large.
    pub(crate) fn prefetch(&self, piece: &Piece) {
        let is_past_stripes = self.is_whole && !self.epochs.is_any();
        let is_worth_it = self.pool.is_worth_prefetching();
        if !is_worth_it || piece.operation == Operation::Read && is_past_stripes {
            return;
        }
        let address = self.geometry.locate(piece.start);
        let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        let first = start / u64::from(self.unit_sectors);
        // A piece over several columns touches the same bands in each column.
        let deep_sectors = piece.sectors.min(self.geometry.chunk_sectors());
        let bands = deep_sectors.div_ceil(self.unit_sectors).min(PREFETCHED_BANDS_MAX);
        (first..first + u64::from(bands)).for_each(|band| self.pool.prefetch(BandKey(band)));
    }

    pub(crate) fn handle_piece(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        let kind = match piece.operation {
            Operation::Read => {
                self.begin_read(common, key, piece);
                return self.settle(common);
            }
            Operation::Write { durable } => WriteKind::Write { durable },
            Operation::WriteZeroes { may_punch, durable } => WriteKind::Zero { may_punch, durable },
            // Reads of a trimmed range may return any bytes, so zeroes with matching parity will
            // do. Bands that are trimmed in part stay as they are.
            Operation::Trim if common.view.zero_is_fast => {
                WriteKind::Zero { may_punch: true, durable: false }
            }
            Operation::Trim => return,
        };
        let geometry = self.geometry;
        let data_slots = geometry.data_slots();
        for (band, run) in Bands::new(&geometry, self.unit_sectors, piece, (0, piece.sectors)) {
            let whole = u32::from(data_slots) * self.unit_sectors;
            if piece.operation == Operation::Trim && band.sectors_of(&run, data_slots) < whole {
                continue;
            }
            self.attach(common, band, Attachment::new((key, piece.request, kind, run)));
        }
        self.settle(common);
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        // By reference: a copy of a whole owner costs more than the few fields that are needed.
        let owner = self.in_flight.get(done.id.0).expect("an answer to our own request");
        match (owner, done.result) {
            (IoOwner::Direct(read), Ok(())) => {
                let (key, sectors) = (read.key, sectors_of(&read.piece));
                self.in_flight.remove(done.id.0);
                self.direct_done(common, key, sectors);
            }
            (IoOwner::Direct(read), Err(fault)) => {
                let read = *read;
                self.in_flight.remove(done.id.0);
                self.direct_failed(common, &read, fault);
            }
            (IoOwner::Column(io), result) => {
                let io = *io;
                self.in_flight.remove(done.id.0);
                self.pool.stripe_mut(io.number).column_done(common, io, result);
                self.scheduler.look_at(io.number);
            }
            (IoOwner::Reconstruct(io), result) => {
                let io = *io;
                self.in_flight.remove(done.id.0);
                self.with_reads(common, |reads, context| reads.io_done(context, io, result));
            }
            (&IoOwner::Abandoned(slot), result) => {
                reached(Mark::LateRead);
                self.in_flight.remove(done.id.0);
                common.stray_done(slot, result);
            }
            (&IoOwner::Probe(slot), result) => {
                self.in_flight.remove(done.id.0);
                common.clocks.probed(slot);
                common.stray_done(slot, result);
            }
        }
        self.settle(common);
    }

    pub(crate) fn handle_computation_done(
        &mut self,
        common: &mut Common,
        computation: Computation,
    ) {
        match u32::try_from(computation.id.0) {
            Ok(frame) if frame < self.pool.frames_max() => {
                let number = self.pool.holder(frame).expect("only a batch computes");
                self.pool.stripe_mut(number).computation_done(&computation.partial);
                self.scheduler.look_at(number);
            }
            Ok(read) => {
                self.with_reads(common, |reads, context| {
                    reads.computation_done(context, (read, &computation));
                });
            }
            Err(_) => self.copy_out_done(common, computation.id),
        }
        common.recycle(computation);
        self.settle(common);
    }

    /// Called when the log entries of a stripe's batch are durable.
    pub(crate) fn handle_logged(&mut self, common: &mut Common, ticket: LogTicket) {
        let LogTicket(frame) = ticket;
        // The array may be broken meanwhile, and the batch refused.
        if let Some(number) = self.pool.holder(frame)
            && self.pool.stripe(number).awaits_log()
        {
            self.pool.stripe_mut(number).is_logged();
            self.scheduler.look_at(number);
        }
        self.settle(common);
    }

    /// Wakes stripes that wait for superblocks. If the array allows no more writes, these stripes
    /// stop waiting.
    pub(crate) fn handle_view(&mut self, common: &mut Common, geometry: &StripeGeometry) {
        assert_eq!(self.geometry, *geometry, "blocks and bands are laid out for this one");
        self.note_view(&common.view);
        let mut awaiting = std::mem::take(&mut self.awaiting_view);
        awaiting.sort_unstable();
        awaiting.dedup();
        for number in awaiting {
            if common.view.gate == Gate::Open {
                self.grant_intent(common, number);
            }
            self.scheduler.look_at(number);
            self.await_view(number);
        }
        let is_logged = common.view.keeps_parity_logs || common.view.keeps_journal;
        if common.view.gate == Gate::Broken && is_logged {
            for number in self.pool.numbers() {
                if self.pool.stripe(number).awaits_log() {
                    self.scheduler.look_at(number);
                }
            }
        }
        let is_closed = common.view.gate != Gate::Open;
        if is_closed {
            self.scheduler.urge_all();
        }
        self.settle(common);
    }

    pub(super) fn note_view(&mut self, view: &ArrayView) {
        self.entire.note_view(view);
        self.is_whole = view.resync_offset == u64::MAX && self.entire.has_all();
    }

    /// Writes all answered data to the members.
    pub(crate) fn handle_write_back(&mut self, common: &mut Common, round: u64) {
        let over = self.epochs.begin_round(round);
        if let Some(round) = over {
            common.written_back(round);
        }
        self.scheduler.urge_all();
        self.settle(common);
    }

    pub(crate) fn handle_timeout(&mut self, common: &mut Common) {
        self.scheduler.handle_timeout(common.now);
        self.settle(common);
    }

    fn probe_frame(&self) -> u32 {
        self.pool.frames_max() + PLACES
    }

    /// Reads a few sectors, to measure how long the member takes.
    pub(crate) fn probe(&mut self, common: &mut Common, slot: Slot, run: (MemberSector, u32)) {
        let (sector, sectors) = run;
        let io = IoId(self.in_flight.insert(IoOwner::Probe(slot)));
        let buffer = self.frame_blocks.at(self.probe_frame(), 0).at(slot, 0);
        let run = (sector, sectors.min(self.unit_sectors));
        common.counters.probes += 1;
        common.submit((io, slot), run, MemberOperation::Read { buffer });
    }

    /// The purpose of a read into a block.
    pub(crate) fn purpose_of(&self, io: IoId) -> Purpose {
        match self.in_flight.get(io.0) {
            Some(IoOwner::Column(_)) => Purpose::Write,
            Some(IoOwner::Reconstruct(io)) => {
                self.reads.class_of(io.place).map_or(Purpose::Client, Purpose::Background)
            }
            _ => Purpose::Client,
        }
    }

    pub(crate) fn handle_work(&mut self, common: &mut Common, work: Work) {
        let start = work.start - work.start % u64::from(self.unit_sectors);
        let band = Band::at(&self.geometry, self.unit_sectors, MemberSector(start));
        self.reads.ask(band, work);
        self.settle(common);
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.damage.has_lost()
    }

    /// Number of stripes that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.scheduler.line_length()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.scheduler.poll_timeout()
    }

    /// Notes a stripe that waits for superblocks.
    pub(super) fn await_view(&mut self, number: u32) {
        let stripe = self.pool.stripe(number);
        let waits = stripe.phase() == Phase::AwaitRecord || stripe.lacks_intent();
        if waits && self.awaiting_view.last() != Some(&number) {
            self.awaiting_view.push(number);
        }
    }

    pub(crate) fn tuning(&self) -> Tuning {
        self.scheduler.tuning()
    }

    pub(crate) fn handle_tuning(&mut self, common: &mut Common, tuning: Tuning) {
        self.scheduler.set_tuning(tuning);
        self.resize(tuning.stripes);
        self.serve_line(common);
        self.settle(common);
    }

    fn resize(&mut self, frames: u32) {
        self.pool.resize(frames);
    }

    /// Advances every stripe and every reconstructing read that need not wait.
    pub(super) fn settle(&mut self, common: &mut Common) {
        loop {
            while let Some(number) = self.scheduler.next_ready() {
                self.step(common, number);
            }
            common.counters.cache.extra_probes = self.pool.extra_probes();
            if !self.serve_reads(common)
                && !self.scheduler.promote_first(&mut common.counters.cache)
                && !self.send_off(common)
            {
                return self.tell_if_held_up(common);
            }
        }
    }

    /// Reports to the array if every stripe in use waits for the closed gate while writes are in
    /// flight. Those writes began before the gate closed, and may wait for such a stripe, or for
    /// memory.
    fn tell_if_held_up(&mut self, common: &mut Common) {
        let epoch = common.view.epoch;
        let may_be = common.view.gate == Gate::Closed && self.lacking_intent > 0;
        if !may_be || common.pieces.writes() == 0 || self.held_up_in == Some(epoch) {
            return;
        }
        let waits = |number| {
            let stripe = self.pool.stripe(number);
            stripe.phase() == Phase::Ready && !stripe.has_intent()
        };
        let mut in_use = self.pool.numbers().filter(|number| self.pool.is_in_use(*number));
        if in_use.all(waits) {
            reached(Mark::HeldUpByGate);
            self.held_up_in = Some(epoch);
            common.report(Report::HeldUp { epoch });
        }
    }

    /// Advances a stripe until it waits for an event, is in a list of the scheduler, or is idle.
    #[inline(never)] // Most calls of `settle` find no stripe to go on, and need no room for this.
    pub(super) fn step(&mut self, common: &mut Common, number: u32) {
        while self.pool.is_in_use(number) {
            let stripe = self.pool.stripe(number);
            if waits(stripe.is_outstanding()).is_some() {
                return;
            }
            let mut planner = self.planner.take().expect("one stripe is looked at at a time");
            let facts = facts(stripe, &self.batch_context(common, number), &mut planner);
            self.planner = Some(planner);
            let stripe = self.pool.stripe(number);
            let (has_started, band) = (stripe.has_served(), stripe.band().key);
            let action = decide(&facts);
            let is_between = stripe.phase() == Phase::Ready && action != Action::Begin;
            if is_between && self.pool.frame(number).is_some() {
                reached(Mark::HandedOverInVain);
                self.let_go(common, number);
            }
            match action {
                Action::Wait => return,
                Action::Release => return self.put_back(number),
                Action::StandInLine => {
                    return self.scheduler.stand_in_line(number, &mut common.counters.cache);
                }
                Action::TakeBand => {
                    self.reads.give_way(band);
                    continue;
                }
                Action::PutOff(admission) => {
                    let (place, counters) = ((band, common.now), &mut common.counters.cache);
                    return self.scheduler.put_off((number, admission), place, counters);
                }
                Action::Begin => self.pool.hold(number),
                _ => {}
            }
            let frame = self.pool.frame(number).expect("a batch has memory");
            let Self {
                pool, in_flight, damage, epochs, cached, content, geometry, planner, ..
            } = self;
            let (unit_sectors, frame_blocks) = (self.unit_sectors, self.frame_blocks);
            let stripe = pool.stripe_mut(number);
            stripe.act(
                action,
                planner.as_deref().and_then(Planner::planned),
                &mut Effects {
                    number,
                    frame,
                    common: &mut *common,
                    in_flight,
                    damage,
                    epochs,
                    cached,
                    content,
                    geometry,
                    unit_sectors,
                    frame_blocks,
                },
            );
            match (action, stripe.width()) {
                (Action::Begin, Some(width)) => {
                    let counters = &mut common.counters.cache;
                    self.scheduler.begin((number, width), has_started, counters);
                }
                (Action::Narrow | Action::Restart | Action::Finish | Action::Refuse, width) => {
                    self.scheduler.set_width(number, width);
                }
                _ => {}
            }
            match action {
                Action::AwaitRecord => self.await_view(number),
                Action::Restart | Action::Finish | Action::Refuse => self.let_go(common, number),
                _ => {}
            }
        }
    }

    /// The facts that a stripe depends on, other than its own state.
    pub(super) fn batch_context<'a>(&'a self, common: &'a Common, number: u32) -> BatchContext<'a> {
        let stripe = self.pool.stripe(number);
        let band = stripe.band();
        let admission = || {
            let Self { epochs, unit_sectors, .. } = self;
            let work = StripeQueue { stripe, epochs, unit_sectors: *unit_sectors };
            self.scheduler.admission(number, &work, common.view.gate)
        };
        let is_between = stripe.phase() == Phase::Ready && stripe.has_work();
        let is_filled = stripe.phase() == Phase::Fill;
        let read = match stripe.phase() {
            Phase::Ready => {
                self.reads.has_waiting(band.key) || self.reads.keeps_batches_out(band.key)
            }
            Phase::Compute => self.reads.is_reading(band.key),
            Phase::Fill | Phase::Write | Phase::AwaitRecord => false,
        };
        BatchContext {
            view: &common.view,
            entire: &self.entire,
            common,
            parity_agrees: is_filled && self.damage.parity_solves(&common.view, band),
            is_synced: is_filled && is_synced(&common.view, band),
            is_consistent: is_filled && !self.damage.is_inconsistent(band.key),
            admission: if is_between { admission() } else { Admission::Now },
            intent: stripe.has_intent(),
            memory: is_between && self.pool.has_memory(number),
            read,
            read_idly: read && self.reads.gives_way(band.key),
        }
    }
}
