//! The state of a shard's reconstructing reads, and which of them may begin.

use std::collections::VecDeque;

use braid_geometry::{Slot, StripeGeometry};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::super::band::{Band, BandKey};
use super::super::batch::{ColumnState, Phase as BatchPhase, Stripe};
use super::super::column_coverage::EntireSlots;
use super::super::damage::Damage;
use super::super::in_flight::IoOwner;
use super::super::plan::Planner;
use super::super::pool::Pool;
use super::super::solve::FrameBlocks;
use super::decide::Phase;
use super::read::{ClientRead, Column, Origin, Read, WorkState};
use crate::context::Common;
use crate::sectors::SectorSet;
use crate::slab::Slab;
use crate::work::{self, Class, Work};

/// The most clients' reads under way at once. Further reads wait for a read to end.
const READS_MAX: usize = 32;

/// The most background reads under way at once. The other places are for clients' reads that are
/// abandoned.
const BACKGROUND_MAX: usize = 16;

/// Number of places for reads. It exceeds the number of reads at once, since an abandoned read
/// keeps its place until the late answer. So a few members may stall in turn. Unused places cost no
/// memory.
pub(in super::super) const PLACES: u32 = 64;

/// The condition for a read to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartCondition {
    /// The members agree in the read's band: see the table in the module header.
    ForBand,
    /// The batch of the band's stripe is over: too many reads copy from its payloads. Then the read
    /// looks for dirty data again.
    ForBatch,
}

/// The result of a read: it has ended, or the other members cannot serve it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Outcome {
    /// The read begins again, from the start.
    Anew(Band, ClientRead),
    /// The read is served from its own members, however long that takes.
    Insists(Band, ClientRead),
    /// Wake the band's stripe, which may have waited for the read.
    Wake(BandKey),
}

/// The state outside the reads that the reads use.
pub(in super::super) struct ReconstructContext<'a> {
    pub(in super::super) common: &'a mut Common,
    pub(in super::super) in_flight: &'a mut Slab<IoOwner>,
    pub(in super::super) pool: &'a mut Pool,
    pub(in super::super) damage: &'a Damage,
    pub(in super::super) entire: &'a EntireSlots,
}

impl ReconstructContext<'_> {
    /// The stripe of a band, if it works on a batch.
    pub(super) fn batch_of(&self, band: &Band) -> Option<&Stripe> {
        self.pool.batch_of(band.key)
    }

    /// For each slot, whether its member is changing or stale in this band: the batch writes that
    /// member, or the member missed the write.
    pub(super) fn is_changing(&self, band: &Band) -> impl Fn(Slot) -> bool {
        let stripe = self.batch_of(band);
        move |slot| stripe.is_some_and(|stripe| stripe.is_changing(slot))
    }
}

#[derive(Debug)]
pub(in super::super) struct Reconstruct {
    pub(super) geometry: StripeGeometry,
    pub(super) unit_sectors: u32,
    pub(super) frame_blocks: FrameBlocks,
    /// The number that blocks and computations of place 0 have; lower numbers belong to stripes.
    pub(super) first: u32,
    pub(super) reads: Box<[Read]>,
    pub(super) free: Vec<u32>,
    /// Number of reads that a client waits for.
    pub(super) wanted: usize,
    /// New reads, waiting for room.
    pub(super) arrived: VecDeque<(Band, ClientRead)>,
    asked: VecDeque<(Band, Work)>,
    /// Reads that wait for the batch of their band.
    pub(super) kept_out: VecDeque<(Band, Origin, StartCondition)>,
    pub(super) outcomes: VecDeque<Outcome>,
    /// `None` while a read is being planned.
    pub(super) planner: Option<Box<Planner>>,
}

impl Reconstruct {
    /// The reads of a shard whose stripes are numbered below `first`.
    pub(in super::super) fn new(
        geometry: StripeGeometry,
        unit_sectors: u32,
        frame_blocks: FrameBlocks,
        first: u32,
    ) -> Self {
        let map = geometry.row_map(braid_geometry::ChunkRow(0));
        let blank = || Read {
            band: None,
            map,
            origin: None,
            owns_band: false,
            repairs: false,
            phase: Phase::Fill,
            columns: vec![Column::default(); usize::from(geometry.slots())].into_boxed_slice(),
            window: SectorSet::EMPTY,
            shift_sectors: 0,
            outstanding: 0,
            orphans: 0,
            filled: None,
            work: WorkState::default(),
        };
        Self {
            geometry,
            unit_sectors,
            frame_blocks,
            first,
            reads: (0..PLACES).map(|_| blank()).collect(),
            free: (0..PLACES).rev().collect(),
            wanted: 0,
            arrived: VecDeque::new(),
            asked: VecDeque::new(),
            kept_out: VecDeque::new(),
            outcomes: VecDeque::new(),
            planner: Some(Box::new(Planner::blank())),
        }
    }

    /// Queues a part of a piece to be read. The caller has added the part to the piece.
    pub(in super::super) fn read(&mut self, common: &mut Common, band: Band, want: ClientRead) {
        if common.clocks.is_any_out() && !want.insists {
            common.counters.reads_around += 1;
            for slot in common.clocks.slots_out().collect::<smallvec::SmallVec<[Slot; 4]>>() {
                common.clocks.note_place(slot, band.start, self.unit_sectors);
            }
        }
        self.arrived.push_back((band, want));
    }

    /// Queues a part of a piece until the batch of its band is over. The caller has added the part
    /// to the piece.
    pub(in super::super) fn wait_for_batch(&mut self, band: Band, want: ClientRead) {
        self.kept_out.push_back((band, Origin::Client(want), StartCondition::ForBatch));
    }

    /// Queues background work on a band; it begins when clients' reads leave room.
    pub(in super::super) fn ask(&mut self, band: Band, work: Work) {
        self.asked.push_back((band, work));
    }

    /// The class of the background work at `place`.
    pub(in super::super) fn class_of(&self, place: u32) -> Option<Class> {
        match self.reads[place as usize].origin {
            Some(Origin::Background(work)) => Some(work.class),
            Some(Origin::Client(_)) | None => None,
        }
    }

    /// Whether a band is being read, so that no batch may write it.
    pub(in super::super) fn is_reading(&self, key: BandKey) -> bool {
        let is_band = |read: &Read| read.band.is_some_and(|band| band.key == key);
        self.free.len() < self.reads.len()
            && self.reads.iter().any(|read| read.owns_band && is_band(read))
    }

    /// Whether only idle background work reads a band: such work gives the band up to a write.
    pub(in super::super) fn gives_way(&self, key: BandKey) -> bool {
        let is_band = |read: &&Read| read.band.is_some_and(|band| band.key == key);
        let mut owners = self.reads.iter().filter(|read| read.owns_band).filter(is_band);
        owners.all(|read| {
            read.phase != Phase::Write && read.origin.is_some_and(|origin| origin.is_idle())
        })
    }

    /// Called when a write waits for a band that idle background work reads. The work begins again
    /// in its turn when the write is over, and then keeps the band.
    pub(in super::super) fn give_way(&mut self, key: BandKey) {
        for read in &mut self.reads {
            let (Some(band), Some(Origin::Background(work))) = (read.band, read.origin) else {
                continue;
            };
            if band.key == key && read.owns_band {
                reached(Mark::WorkGivesWay);
                read.origin = None;
                read.owns_band = false;
                let work = Work { class: Class::BestEffort, ..work };
                self.kept_out.push_back((band, Origin::Background(work), StartCondition::ForBand));
            }
        }
    }

    /// Whether no batch of a band may begin: a repair owns the band, or is due after a batch.
    pub(in super::super) fn keeps_batches_out(&self, key: BandKey) -> bool {
        let mends = |origin: Origin| origin.is_in_its_turn() && origin.traits().compares;
        let keeps_out = |read: &Read| {
            let is_band = read.band.is_some_and(|band| band.key == key);
            read.owns_band && is_band && read.origin.is_some_and(mends)
        };
        let is_idle = self.free.len() == self.reads.len();
        let is_idle = spoiled(Bug::RepairLetsBatchBegin, is_idle, true);
        !is_idle && self.reads.iter().any(keeps_out)
    }

    /// Whether reads that a batch of a band kept out must begin before the next batch. They can
    /// begin only between two batches, so a band under constant writes would starve them. Reads
    /// that wait only for room do not count, so that a write does not wait for all earlier reads.
    pub(in super::super) fn has_waiting(&self, key: BandKey) -> bool {
        self.kept_out.iter().any(|(band, ..)| band.key == key)
    }

    pub(in super::super) fn poll(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether no read waits to begin, and no outcome is left.
    pub(in super::super) fn is_quiet(&self) -> bool {
        self.kept_out.is_empty()
            && self.arrived.is_empty()
            && self.asked.is_empty()
            && self.outcomes.is_empty()
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.wanted < READS_MAX
    }

    /// Notes that a member has left with a request of the read at `place` in flight.
    pub(in super::super) fn hold(&mut self, place: u32) {
        self.reads[place as usize].orphans += 1;
    }

    pub(in super::super) fn let_go_of(&mut self, place: u32) {
        let read = &mut self.reads[place as usize];
        read.orphans -= 1;
        if read.orphans == 0 && read.band.is_none() {
            self.free.push(place);
        }
    }

    /// Detaches a read from its client or job, which waits no longer.
    pub(super) fn let_go(&mut self, place: u32) -> Origin {
        let origin = self.reads[place as usize].origin.take().expect("it is wanted");
        self.wanted -= usize::from(origin.client().is_some());
        origin
    }

    /// Whether one more band of background work may begin.
    fn has_room_for_work(&self) -> bool {
        let is_work = |origin: &Origin| matches!(origin, Origin::Background(_));
        let kept_out = || self.kept_out.iter().filter(|(_, origin, _)| is_work(origin)).count();
        let under_way = || self.count(is_work) + kept_out();
        self.arrived.is_empty() && self.has_room() && under_way() < BACKGROUND_MAX
    }

    fn count(&self, is_one: impl Fn(&Origin) -> bool) -> usize {
        self.reads.iter().filter(|read| read.origin.as_ref().is_some_and(&is_one)).count()
    }

    /// Begins reads that may begin now. True if any read began.
    pub(in super::super) fn serve(&mut self, context: &mut ReconstructContext<'_>) -> bool {
        let mut has_begun = false;
        // Stripes wait for the reads that batches kept out, so these reads get room first.
        for _ in 0..self.kept_out.len() {
            let (band, origin, waits) = self.kept_out.pop_front().expect("counted");
            // A read that only looks for dirty data again needs no free place.
            if waits == StartCondition::ForBand && !self.has_room() {
                self.kept_out.push_back((band, origin, waits));
                continue;
            }
            has_begun |= self.begin_or_wait(context, band, origin, waits);
        }
        while self.has_room()
            && let Some((band, want)) = self.arrived.pop_front()
        {
            has_begun |=
                self.begin_or_wait(context, band, Origin::Client(want), StartCondition::ForBand);
        }
        while !self.asked.is_empty() && self.has_room_for_work() {
            let (band, work) = self.asked.pop_front().expect("just seen");
            has_begun |= self.begin_or_wait(
                context,
                band,
                Origin::Background(work),
                StartCondition::ForBand,
            );
        }
        has_begun
    }

    fn begin_or_wait(
        &mut self,
        context: &mut ReconstructContext<'_>,
        band: Band,
        origin: Origin,
        waits: StartCondition,
    ) -> bool {
        // Work that fills a member may do without a member that sits out; its plan decides that.
        if let Origin::Background(work) = origin
            && context.common.clocks.is_any_out()
            && !origin.traits().fills
        {
            self.outcomes.push_back(Outcome::Wake(band.key));
            sits_out(context, &work);
            return true;
        }
        let may = may_begin(context, &band, &origin, waits)
            || waits == StartCondition::ForBand
                && !origin.insists()
                && self.waits_for_repair(context, &band);
        if !may {
            reached(Mark::ReadWaitsForBand);
            self.kept_out.push_back((band, origin, waits));
            return false;
        }
        self.outcomes.push_back(Outcome::Wake(band.key));
        match (waits, origin) {
            (StartCondition::ForBatch, Origin::Client(want)) => {
                self.outcomes.push_back(Outcome::Anew(band, want));
            }
            (StartCondition::ForBand | StartCondition::ForBatch, _) => {
                self.begin(context, band, origin)
            }
        }
        true
    }

    /// Whether a repair must wait: a batch of the band has begun and may have read wrong sectors,
    /// or another read may write to the band. A copy waits only for repairs by other reads.
    pub(super) fn is_behind(&self, context: &ReconstructContext<'_>, place: u32) -> bool {
        let read = &self.reads[place as usize];
        let Some(band) = read.band else { return false };
        let copies = read.origin.is_some_and(|origin| origin.traits().copies);
        let has_batch = context.batch_of(&band).is_some();
        let is_other = |(at, other): (usize, &Read)| {
            let is_band = other.band.is_some_and(|one| one.key == band.key);
            let is_of_client = other.origin.is_some_and(|origin| origin.client().is_some());
            let may_write = other.repairs || is_of_client && !copies;
            at != place as usize && other.owns_band && is_band && may_write
        };
        has_batch || self.reads.iter().enumerate().any(is_other)
    }

    /// Whether the band's stripe cannot write because a member that sits out delays a repair: the
    /// band does not change until the repair ends.
    fn waits_for_repair(&self, context: &ReconstructContext<'_>, band: &Band) -> bool {
        let is_computed =
            |stripe: &Stripe| stripe.phase() == BatchPhase::Compute && !stripe.has_outstanding();
        let is_held_up = |read: &Read| {
            let is_out = |slot: Slot| read.column(slot).out > 0;
            read.repairs && context.common.clocks.slots_out().any(is_out)
        };
        let is_band = |read: &Read| read.band.is_some_and(|other| other.key == band.key);
        context.batch_of(band).is_some_and(is_computed)
            && self.reads.iter().any(|read| is_band(read) && is_held_up(read))
    }
}

/// Ends background work on a band because a member sits out: the work would block the band, and
/// clients with it.
pub(super) fn sits_out(context: &mut ReconstructContext<'_>, work: &Work) {
    reached(Mark::WorkSitsOut);
    context.common.work_done(work.id, work::Outcome::SitsOut);
}

/// Whether a read may begin, by the table of the module header.
fn may_begin(
    context: &ReconstructContext<'_>,
    band: &Band,
    origin: &Origin,
    waits: StartCondition,
) -> bool {
    let Some(stripe) = context.batch_of(band) else { return true };
    if waits == StartCondition::ForBatch {
        return stripe.is_stuck(&context.common.clocks);
    }
    if planted(Bug::WaitsBehindStuck) {
        return false;
    }
    if planted(Bug::ComparesWhileWritten) && matches!(origin, Origin::Background(_)) {
        return true;
    }
    let is_out = |slot: Slot| context.common.clocks.sits_out(slot);
    let may = !origin.insists()
        && match stripe.phase() {
            BatchPhase::Ready | BatchPhase::AwaitRecord => true,
            BatchPhase::Fill => stripe.slots_at(ColumnState::Reading).any(is_out),
            // The batch writes only after the log has its entries, and while no read uses the band.
            BatchPhase::Compute => stripe.awaits_log() && context.common.clocks.is_any_out(),
            BatchPhase::Write => {
                stripe.has_outstanding() && stripe.slots_at(ColumnState::Writing).all(is_out)
            }
        };
    if may {
        reached(Mark::ReadsWhileStuck);
    }
    may
}
