//! Levels with parity: 4, 5 and 6.
//!
//! Reads of ranges whose member can be asked go straight from the member into the client's payload
//! ([`read`]); what the cache has and the members do not have yet is laid over it ([`dirty`]).
//! What its member cannot give is made from the others ([`mod@reconstruct`]). Writes go through a *stripe*: the band of
//! one stripe unit's height over all slots. A band has at most one stripe, so everything that changes its parity happens in
//! one place and one after the other. Four rooms: [`facts`] folds a stripe into a small value, [`decide`] is the pure
//! table, [`act`] changes state and emits effects, [`state`] is what there is to change. [`plan`] is
//! the arithmetic of what to read; [`steps`] is the work on bytes; [`mod@line`] is who gets a stripe and
//! when.
//!
//! Write-back answers a write when it has been attached to its stripe. Nothing is copied for that:
//! the client's payload is kept until the members have it ([`promises`] keeps the books). The steps are numbered in
//! docs/write-path.md.

mod act;
mod band;
mod content;
mod damage;
mod decide;
mod dirty;
mod facts;
mod index;
mod line;
mod lists;
mod plan;
mod priority;
mod promises;
mod read;
mod reconstruct;
mod sectors;
mod solve;
mod state;
mod steps;
mod turns;

pub use index::Index;
pub use priority::Bypass;

use std::collections::VecDeque;

use braid_geometry::{ChunkRow, MemberSector, Slot, StripeGeometry};
use braid_hooks::{Bug, Mark, planted, reached};

use crate::Instant;
use crate::array::{ArrayView, Gate};
use crate::buffer::{BlockIndex, Buffer};
use crate::effect::{IoId, MemberIoDone, MemberOperation};
use crate::job::Job;
use crate::request::{Operation, Piece};
use crate::shard::{Common, PieceKey};
use crate::slab::Slab;
use crate::tuning::{CacheConfig, CacheMode, Tuning, UNIT_SECTORS_MAX};
use band::{Attachment, Bands, Want};
use content::Content;
use damage::Damage;
use dirty::CopyOut;
use lists::List;
use promises::Promises;
use read::DirectRead;
use reconstruct::{PLACES, ReadIo, Reconstruct};
use sectors::{BLOCK_SECTORS, Extent};
use state::{Batch, Phase, Stripe};

/// Bands of one piece that are fetched in advance: a large piece has other work to do meanwhile.
const PREFETCHED_BANDS_MAX: u32 = 4;

/// The machine of RAID-4, 5 and 6.
#[derive(Debug)]
pub(crate) struct Stripes {
    geometry: StripeGeometry,
    unit_sectors: u32,
    tuning: Tuning,
    cache: Cache,
    /// Stripes to be looked at, first come, first served.
    ready: VecDeque<u32>,
    /// Work that found no stripe, first come, first served.
    waiting: VecDeque<(band::Band, Attachment)>,
    bypass: Bypass,
    writers: Writers,
    promises: Promises,
    /// All members are there, with all that they should hold.
    is_whole: bool,
    /// Stripes that hold their answer.
    holding: u32,
    in_flight: Slab<IoOwner>,
    copies: Slab<CopyOut>,
    /// Of the batch that is being looked at; kept for its memory.
    content: Content,
    reads: Reconstruct,
    damage: Damage,
}

/// The stripes, and where each stands.
#[derive(Debug)]
struct Cache {
    pool: Vec<Stripe>,
    index: Index,
    /// More than that are never asked for.
    stripes_max: u32,
    /// Stripes from this one on are out of use, or will be when they are idle.
    target: u32,
    /// Without work, in the order in which they are taken.
    idle: List,
    delayed: List,
    held: List,
}

impl Cache {
    fn stripe(&self, index: u32) -> &Stripe {
        &self.pool[index as usize]
    }

    fn stripe_mut(&mut self, index: u32) -> &mut Stripe {
        &mut self.pool[index as usize]
    }
}

/// Stripes under way that write.
#[derive(Debug, Default)]
struct Writers {
    /// Every data column whole.
    full: u32,
    /// A part.
    part: u32,
}

impl Writers {
    fn begin(&mut self, batch: &Batch) {
        self.full += u32::from(batch.is_full);
        self.part += u32::from(batch.is_part());
    }

    fn end(&mut self, batch: &Batch) {
        self.full -= u32::from(batch.is_full);
        self.part -= u32::from(batch.is_part());
    }
}

/// A request of a batch to a column's member.
#[derive(Clone, Copy, Debug)]
struct ColumnIo {
    index: u32,
    slot: Slot,
    extent: Extent,
    /// It writes again what could not be read.
    is_repair: bool,
}

/// Whose a member request is.
#[derive(Clone, Copy, Debug)]
enum IoOwner {
    Column(ColumnIo),
    Direct(DirectRead),
    Reconstruct(ReadIo),
    /// A read that was forsaken.
    Forsaken(Slot),
    Probe(Slot),
}

impl Stripes {
    pub(crate) fn new(geometry: StripeGeometry, config: CacheConfig, view: &ArrayView) -> Self {
        assert!(config.stripes_max > 0, "without a stripe nothing can be written");
        let unit_max = config.unit_sectors_max.clamp(1, UNIT_SECTORS_MAX);
        let unit_sectors = geometry.chunk_sectors().min(unit_max);
        let fits = geometry.chunk_sectors().is_multiple_of(unit_sectors);
        assert!(fits, "chunks and stripe units are powers of two");
        let tuning = config.tuning;
        let mut stripes = Self {
            geometry,
            unit_sectors,
            tuning,
            cache: Cache {
                pool: Vec::new(),
                index: Index::new(1),
                stripes_max: config.stripes_max,
                target: 0,
                idle: List::EMPTY,
                delayed: List::EMPTY,
                held: List::EMPTY,
            },
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            bypass: Bypass::new(tuning.bypass_threshold),
            writers: Writers::default(),
            promises: Promises::default(),
            is_whole: false,
            holding: 0,
            in_flight: Slab::default(),
            copies: Slab::default(),
            content: Content::default(),
            reads: Reconstruct::new(geometry, unit_sectors, config.stripes_max),
            damage: Damage::default(),
        };
        stripes.resize();
        stripes.note_view(view);
        stripes
    }

    pub(crate) fn arena_blocks(&self) -> u32 {
        let slots = u32::from(self.geometry.slots());
        (self.cache.stripes_max + PLACES) * slots + slots
    }

    pub(crate) fn unit_sectors(&self) -> u32 {
        self.unit_sectors
    }

    /// The piece will be handled soon: its bands' lines of the index are fetched, where that may take a while.
    pub(crate) fn prefetch(&self, piece: &Piece) {
        let is_past_stripes = self.is_whole && !self.promises.is_any();
        let index = &self.cache.index;
        if !index.is_large() || piece.operation == Operation::Read && is_past_stripes {
            return;
        }
        let address = self.geometry.locate(piece.start);
        let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        let first = start / u64::from(self.unit_sectors);
        // A piece over several columns has their bands in common.
        let deep_sectors = piece.sectors.min(self.geometry.chunk_sectors());
        let bands = deep_sectors.div_ceil(self.unit_sectors).min(PREFETCHED_BANDS_MAX);
        (first..first + u64::from(bands)).for_each(|band| index.prefetch(band));
    }

    pub(crate) fn handle_piece(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        let want = match piece.operation {
            Operation::Read => {
                self.begin_read(common, key, piece);
                return self.settle(common);
            }
            Operation::Write { durable } => Want::Write { durable },
            Operation::WriteZeroes { may_punch, durable } => Want::Zero { may_punch, durable },
            // What is trimmed may read as anything, so it may as well be zeroes with their parity;
            // bands that are not trimmed whole are left as they are.
            Operation::Trim if common.view.zero_is_fast => {
                Want::Zero { may_punch: true, durable: false }
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
            self.attach(common, band, (key, piece.request, want, run));
        }
        self.settle(common);
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        match self.in_flight.remove(done.id.0).expect("an answer to our own request") {
            IoOwner::Column(io) => self.column_done(common, io, done.result),
            IoOwner::Direct(read) => self.direct_done(common, &read, done.result),
            IoOwner::Reconstruct(io) => {
                self.with_reads(common, |reads, around| reads.io_done(around, io, done.result));
            }
            IoOwner::Forsaken(slot) => {
                reached(Mark::LateRead);
                common.stray_done(slot, done.result);
            }
            IoOwner::Probe(slot) => {
                common.clocks.probed(slot);
                common.stray_done(slot, done.result);
            }
        }
        self.settle(common);
    }

    pub(crate) fn handle_job_done(&mut self, common: &mut Common, job: Job) {
        match u32::try_from(job.id.0) {
            Ok(index) if index < self.cache.stripes_max => self.job_done(index),
            Ok(read) => self.with_reads(common, |reads, around| reads.job_done(around, read)),
            Err(_) => self.copy_out_done(common, job.id),
        }
        common.recycle(job);
        self.settle(common);
    }

    /// Stripes that hold their answer may go on; and when writing ends, nothing is waited for.
    pub(crate) fn handle_view(&mut self, common: &mut Common) {
        self.note_view(&common.view);
        if self.holding > 0 {
            let stripes = u32::try_from(self.cache.pool.len()).expect("stripes are counted so");
            for index in 0..stripes {
                if self.cache.stripe(index).phase == Phase::Hold {
                    self.look_at(index);
                }
            }
        }
        if common.view.gate != Gate::Open && !planted(Bug::DirtyAtClosing) {
            self.urge_all();
        }
        self.settle(common);
    }

    fn note_view(&mut self, view: &ArrayView) {
        let is_whole = |slot: u16| {
            view.member(Slot(slot)).is_some_and(|member| {
                member.recovered_sectors == u64::MAX && member.bad_blocks.is_empty()
            })
        };
        let in_sync = view.resync_offset == u64::MAX;
        self.is_whole = in_sync && (0..self.geometry.slots()).all(is_whole);
    }

    /// Everything that has been answered is to be on the members.
    pub(crate) fn handle_write_back(&mut self, common: &mut Common, round: u64) {
        let over = self.promises.ask(round);
        if let Some(round) = over.or(planted(Bug::RoundAtOnce).then_some(round)) {
            common.written_back(round);
        }
        self.urge_all();
        self.settle(common);
    }

    pub(crate) fn handle_timeout(&mut self, common: &mut Common) {
        self.urge_old(common.now);
        self.settle(common);
    }

    /// The first block of those for probes, one for each slot.
    fn probe_blocks(&self) -> u32 {
        (self.cache.stripes_max + PLACES) * u32::from(self.geometry.slots())
    }

    /// Reads a little, to see how long it takes.
    pub(crate) fn probe(&mut self, common: &mut Common, slot: Slot, run: (MemberSector, u32)) {
        let (sector, sectors) = run;
        let io = IoId(self.in_flight.insert(IoOwner::Probe(slot)));
        let block = BlockIndex(self.probe_blocks() + u32::from(slot.0));
        let buffer = Buffer::Block { block, offset_sectors: 0 };
        let run = (sector, sectors.min(self.unit_sectors));
        common.counters.probes += 1;
        common.submit((io, slot), run, MemberOperation::Read { buffer });
    }

    /// Whether a read that is out is for a batch.
    pub(crate) fn is_for_write(&self, io: IoId) -> bool {
        matches!(self.in_flight.get(io.0), Some(IoOwner::Column(_)))
    }

    /// Whether sectors that were answered were lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.damage.has_lost()
    }

    /// Pieces that found no stripe and wait for one.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let (delayed, held) = (self.due(&self.cache.delayed, 1), self.due(&self.cache.held, 2));
        delayed.into_iter().chain(held).min()
    }

    pub(crate) fn handle_tuning(&mut self, common: &mut Common, tuning: Tuning) {
        self.tuning = tuning;
        self.bypass.set_threshold(tuning.bypass_threshold);
        self.resize();
        if tuning.mode == CacheMode::WriteThrough {
            self.urge_all();
        }
        self.serve_line(common);
        self.settle(common);
    }

    /// A stripe that has no band yet, out of use.
    fn blank(&self) -> Stripe {
        let mut stripe = Stripe::new(self.geometry.row_map(ChunkRow(0)), self.geometry.slots());
        // A write for every block: more are seldom, and each stripe would grow by itself, late.
        let blocks =
            self.unit_sectors.div_ceil(BLOCK_SECTORS) * u32::from(self.geometry.data_slots());
        stripe.queue.reserve(usize::try_from(blocks).expect("a unit is small"));
        stripe
    }
}

#[cfg(test)]
mod tests {
    use braid_geometry::{Geometry, Level, Shape, StripeGeometry};

    /// RAID-5 in md's usual layout.
    pub(super) fn geometry(slots: u16, chunk_sectors: u32, rows: u64) -> StripeGeometry {
        let shape = Shape {
            level: Level::Raid5,
            layout: braid_geometry::default_layout(Level::Raid5),
            chunk_sectors,
            slots,
            member_sectors: vec![rows * u64::from(chunk_sectors); usize::from(slots)],
        };
        match Geometry::new(&shape).expect("a plain shape") {
            Geometry::Stripe(geometry) => geometry,
            other => unreachable!("{other:?}"),
        }
    }
}
