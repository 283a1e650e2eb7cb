//! The reads of a shard that need the other members: what there is to change, and which of them may
//! begin.

use std::collections::VecDeque;

use braid_geometry::{Slot, StripeGeometry};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::super::band::{Band, BandKey};
use super::super::batch::{ColumnState, Phase as BatchPhase, Stripe};
use super::super::damage::Damage;
use super::super::in_flight::IoOwner;
use super::super::known::EntireSlots;
use super::super::plan::Planner;
use super::super::pool::Pool;
use super::super::solve::FrameBlocks;
use super::decide::Phase;
use super::read::{Column, Origin, Read, Want, WorkState};
use crate::context::Common;
use crate::sectors::SectorSet;
use crate::slab::Slab;
use crate::work::{self, Class, Work};

/// Clients' reads under way at once; more wait for one to end, which takes as long as the other
/// members take.
const READS_MAX: usize = 32;

/// Reads under way at once for background work: places are left for clients' reads that are
/// abandoned.
const BACKGROUND_MAX: usize = 16;

/// Places for reads. More than reads at once, since one that is abandoned keeps its place until the
/// late answer: a few members may stall one after the other before there are none. What is not used
/// is no memory.
pub(in super::super) const PLACES: u32 = 64;

/// What a read waits for before it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// That the others agree: see the table above.
    ForBand,
    /// That the batch of the band's stripe is over, whose payloads too many reads are being copied
    /// out of. Then it is looked at anew.
    ForBatch,
}

/// What a read that is over, or not to be had here, comes to.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Outcome {
    /// It begins again, from the start.
    Anew(Band, Want),
    /// It is asked of its own member, whatever that takes.
    Insists(Band, Want),
    /// The band's stripe may have waited for it.
    Wake(BandKey),
}

/// Everything around the reads that they look at or use.
pub(in super::super) struct Around<'a> {
    pub(in super::super) common: &'a mut Common,
    pub(in super::super) in_flight: &'a mut Slab<IoOwner>,
    pub(in super::super) pool: &'a mut Pool,
    pub(in super::super) damage: &'a Damage,
    pub(in super::super) entire: &'a EntireSlots,
}

impl Around<'_> {
    /// The stripe of a band, if it has one that works on a batch.
    pub(super) fn batch_of(&self, band: &Band) -> Option<&Stripe> {
        self.pool.batch_of(band.key)
    }

    /// By slot, whether what the members hold of a column is not what it is to be: its batch writes
    /// it, or it missed that.
    pub(super) fn is_changing(&self, band: &Band) -> impl Fn(Slot) -> bool {
        let stripe = self.batch_of(band);
        move |slot| stripe.is_some_and(|stripe| stripe.is_changing(slot))
    }
}

/// The reads of one shard that need the other members.
#[derive(Debug)]
pub(in super::super) struct Reconstruct {
    pub(super) geometry: StripeGeometry,
    pub(super) unit_sectors: u32,
    pub(super) frame_blocks: FrameBlocks,
    /// Number of the first place, as blocks and computations are numbered: behind all stripes.
    pub(super) first: u32,
    pub(super) reads: Box<[Read]>,
    pub(super) free: Vec<u32>,
    /// Reads that a client waits for.
    pub(super) wanted: usize,
    /// Reads that have not been looked at: for lack of room.
    pub(super) arrived: VecDeque<(Band, Want)>,
    /// Background work that has not been looked at.
    asked: VecDeque<(Band, Work)>,
    /// Reads that their band's batch keeps out.
    pub(super) kept_out: VecDeque<(Band, Origin, Waits)>,
    pub(super) outcomes: VecDeque<Outcome>,
    /// None while a read is being planned.
    pub(super) planner: Option<Box<Planner>>,
}

impl Reconstruct {
    /// For a shard whose stripes are numbered below `first`.
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
            left: 0,
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

    /// A part of a piece, which has been counted, is to be read.
    pub(in super::super) fn read(&mut self, common: &mut Common, band: Band, want: Want) {
        if common.clocks.is_any_out() && !want.insists {
            common.counters.reads_around += 1;
            for slot in common.clocks.slots_out().collect::<smallvec::SmallVec<[Slot; 4]>>() {
                common.clocks.note_place(slot, band.start, self.unit_sectors);
            }
        }
        self.arrived.push_back((band, want));
    }

    /// A part of a piece, which has been counted, is to be looked at anew when the batch of its
    /// band is over.
    pub(in super::super) fn wait_for_batch(&mut self, band: Band, want: Want) {
        self.kept_out.push_back((band, Origin::Client(want), Waits::ForBatch));
    }

    /// Background work is to be done on a band when clients' reads leave room.
    pub(in super::super) fn ask(&mut self, band: Band, work: Work) {
        self.asked.push_back((band, work));
    }

    /// The class of background work that a read at `place` is for.
    pub(in super::super) fn class_of(&self, place: u32) -> Option<Class> {
        match self.reads[place as usize].origin {
            Some(Origin::Background(work)) => Some(work.class),
            Some(Origin::Client(_)) | None => None,
        }
    }

    /// Whether a band is being read, so that it may not be written.
    pub(in super::super) fn is_reading(&self, key: BandKey) -> bool {
        let is_band = |read: &Read| read.band.is_some_and(|band| band.key == key);
        self.free.len() < self.reads.len()
            && self.reads.iter().any(|read| read.owns_band && is_band(read))
    }

    /// Whether a band is read by idle background work alone, which gives it up to a write.
    pub(in super::super) fn gives_way(&self, key: BandKey) -> bool {
        let is_band = |read: &&Read| read.band.is_some_and(|band| band.key == key);
        let mut owners = self.reads.iter().filter(|read| read.owns_band).filter(is_band);
        owners.all(|read| {
            read.phase != Phase::Write && read.origin.is_some_and(|origin| origin.is_idle())
        })
    }

    /// A write waits for a band that idle background work reads, whose requests clients go before:
    /// the work begins again when the write is over, in its turn like all else, and then keeps the
    /// band.
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
                self.kept_out.push_back((band, Origin::Background(work), Waits::ForBand));
            }
        }
    }

    /// Whether no batch of a band is to begin: what it would read is being repaired, or has been
    /// waited for to be.
    pub(in super::super) fn keeps_batches_out(&self, key: BandKey) -> bool {
        let mends = |origin: Origin| origin.is_in_its_turn() && origin.nature().compares;
        let keeps_out = |read: &Read| {
            let is_band = read.band.is_some_and(|band| band.key == key);
            read.owns_band && is_band && read.origin.is_some_and(mends)
        };
        let is_idle = self.free.len() == self.reads.len();
        let is_idle = spoiled(Bug::RepairLetsBatchBegin, is_idle, true);
        !is_idle && self.reads.iter().any(keeps_out)
    }

    /// Whether reads that a batch of a band kept out are to begin before its stripe begins another.
    /// Between two batches they have their only chance, so a band that is written again and again
    /// would never let them in. What waits for room only does not count: a write is not to wait for
    /// all reads that came before it.
    pub(in super::super) fn has_waiting(&self, key: BandKey) -> bool {
        self.kept_out.iter().any(|(band, ..)| band.key == key)
    }

    /// What reads have come to, in order.
    pub(in super::super) fn poll(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether no read is to begin, and none has come to anything.
    pub(in super::super) fn is_quiet(&self) -> bool {
        self.kept_out.is_empty()
            && self.arrived.is_empty()
            && self.asked.is_empty()
            && self.outcomes.is_empty()
    }

    /// Whether one more read of a client may begin.
    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.wanted < READS_MAX
    }

    /// A request of a read is left.
    pub(in super::super) fn hold(&mut self, place: u32) {
        self.reads[place as usize].left += 1;
    }

    /// And has ended.
    pub(in super::super) fn let_go_of(&mut self, place: u32) {
        let read = &mut self.reads[place as usize];
        read.left -= 1;
        if read.left == 0 && read.band.is_none() {
            self.free.push(place);
        }
    }

    /// Nobody waits for a read any more.
    pub(super) fn let_go(&mut self, place: u32) -> Origin {
        let origin = self.reads[place as usize].origin.take().expect("it is wanted");
        self.wanted -= usize::from(origin.client().is_some());
        origin
    }

    /// Whether one more band of background work may be taken on.
    fn has_room_for_work(&self) -> bool {
        let is_work = |origin: &Origin| matches!(origin, Origin::Background(_));
        let kept_out = || self.kept_out.iter().filter(|(_, origin, _)| is_work(origin)).count();
        let under_way = || self.count(is_work) + kept_out();
        self.arrived.is_empty() && self.has_room() && under_way() < BACKGROUND_MAX
    }

    fn count(&self, is_one: impl Fn(&Origin) -> bool) -> usize {
        self.reads.iter().filter(|read| read.origin.as_ref().is_some_and(&is_one)).count()
    }

    /// Lets reads begin that can now. True if any did.
    pub(in super::super) fn serve(&mut self, around: &mut Around<'_>) -> bool {
        let mut has_begun = false;
        // Stripes wait for those that were kept out, so they have room first.
        for _ in 0..self.kept_out.len() {
            let (band, origin, waits) = self.kept_out.pop_front().expect("counted");
            // What is only looked at anew takes no place here.
            if waits == Waits::ForBand && !self.has_room() {
                self.kept_out.push_back((band, origin, waits));
                continue;
            }
            has_begun |= self.begin_or_wait(around, band, origin, waits);
        }
        while self.has_room()
            && let Some((band, want)) = self.arrived.pop_front()
        {
            has_begun |= self.begin_or_wait(around, band, Origin::Client(want), Waits::ForBand);
        }
        while !self.asked.is_empty() && self.has_room_for_work() {
            let (band, work) = self.asked.pop_front().expect("just seen");
            has_begun |= self.begin_or_wait(around, band, Origin::Background(work), Waits::ForBand);
        }
        has_begun
    }

    fn begin_or_wait(
        &mut self,
        around: &mut Around<'_>,
        band: Band,
        origin: Origin,
        waits: Waits,
    ) -> bool {
        // What fills a member may do without one that sits out: that is seen when it is planned.
        if let Origin::Background(work) = origin
            && around.common.clocks.is_any_out()
            && !origin.nature().fills
        {
            self.outcomes.push_back(Outcome::Wake(band.key));
            sits_out(around, &work);
            return true;
        }
        let may = may_begin(around, &band, &origin, waits)
            || waits == Waits::ForBand && !origin.insists() && self.waits_for_repair(around, &band);
        if !may {
            reached(Mark::ReadWaitsForBand);
            self.kept_out.push_back((band, origin, waits));
            return false;
        }
        self.outcomes.push_back(Outcome::Wake(band.key));
        match (waits, origin) {
            (Waits::ForBatch, Origin::Client(want)) => {
                self.outcomes.push_back(Outcome::Anew(band, want));
            }
            (Waits::ForBand | Waits::ForBatch, _) => self.begin(around, band, origin),
        }
        true
    }

    /// Whether what a read has found to be wrong may not be written now: a batch of its band has
    /// begun, and may have read it; or another read may write to the band. What is copied has to
    /// wait for one that does so only.
    pub(super) fn is_behind(&self, around: &Around<'_>, place: u32) -> bool {
        let read = &self.reads[place as usize];
        let Some(band) = read.band else { return false };
        let copies = read.origin.is_some_and(|origin| origin.nature().copies);
        let has_batch = around.batch_of(&band).is_some();
        let is_other = |(at, other): (usize, &Read)| {
            let is_band = other.band.is_some_and(|one| one.key == band.key);
            let is_of_client = other.origin.is_some_and(|origin| origin.client().is_some());
            let may_write = other.repairs || is_of_client && !copies;
            at != place as usize && other.owns_band && is_band && may_write
        };
        has_batch || self.reads.iter().enumerate().any(is_other)
    }

    /// Whether the band's stripe may not write since a repair is held up by a member that sits out:
    /// as long as that lasts nothing of the band changes.
    fn waits_for_repair(&self, around: &Around<'_>, band: &Band) -> bool {
        let is_computed =
            |stripe: &Stripe| stripe.phase() == BatchPhase::Compute && !stripe.has_outstanding();
        let is_held_up = |read: &Read| {
            let is_out = |slot: Slot| read.column(slot).out > 0;
            read.repairs && around.common.clocks.slots_out().any(is_out)
        };
        let is_band = |read: &Read| read.band.is_some_and(|other| other.key == band.key);
        around.batch_of(band).is_some_and(is_computed)
            && self.reads.iter().any(|read| is_band(read) && is_held_up(read))
    }
}

/// Background work is not done while a member sits out: its band would be held, and clients with
/// it.
pub(super) fn sits_out(around: &mut Around<'_>, work: &Work) {
    reached(Mark::WorkSitsOut);
    around.common.work_done(work.id, work::Outcome::SitsOut);
}

/// The table above.
fn may_begin(around: &Around<'_>, band: &Band, origin: &Origin, waits: Waits) -> bool {
    let Some(stripe) = around.batch_of(band) else { return true };
    if waits == Waits::ForBatch {
        return stripe.is_stuck(&around.common.clocks);
    }
    if planted(Bug::WaitsBehindStuck) {
        return false;
    }
    if planted(Bug::ComparesWhileWritten) && matches!(origin, Origin::Background(_)) {
        return true;
    }
    let is_out = |slot: Slot| around.common.clocks.sits_out(slot);
    let may = !origin.insists()
        && match stripe.phase() {
            BatchPhase::Ready | BatchPhase::AwaitRecord => true,
            BatchPhase::Fill => stripe.slots_at(ColumnState::Reading).any(is_out),
            // It is not written before the log has it, nor while the band is read.
            BatchPhase::Compute => stripe.awaits_log() && around.common.clocks.is_any_out(),
            BatchPhase::Write => {
                stripe.has_outstanding() && stripe.slots_at(ColumnState::Writing).all(is_out)
            }
        };
    if may {
        reached(Mark::ReadsWhileStuck);
    }
    may
}
