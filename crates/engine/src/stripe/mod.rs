//! Levels with parity: 4, 5 and 6.
//!
//! Reads of ranges whose member can be asked go straight from the member into the client's payload
//! ([`read`]). Everything else goes through a *stripe*: the band of one stripe unit's height over
//! all slots. A band has at most one stripe, so everything that concerns its parity happens in one
//! place and one after the other. Four rooms: [`facts`] folds a stripe into a small value, [`decide`]
//! is the pure table, [`act`] changes state and emits effects, [`state`] is what there is to change.
//! [`plan`] is the arithmetic of what to read; [`steps`] is the work on bytes.
//!
//! Write-through: a write is answered when every member in the view holds it; nothing stays in the
//! stripe after that. The steps are numbered in docs/write-path.md.
//!
//! A piece that finds no free stripe waits in the shard's own queue, first come, first served; a
//! stripe that becomes free is handed to the head of that queue.

mod act;
mod decide;
mod facts;
mod index;
mod plan;
mod read;
mod state;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_geometry::{ChunkRow, LogicalSector, MemberSector, Slot, StripeGeometry};
use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes};

use crate::effect::{IoId, MemberIoDone};
use crate::job::JobId;
use crate::request::{Operation, Piece};
use crate::shard::{Common, PieceKey};
use index::Index;
use read::DirectRead;
use state::{Attachment, BandKey, Column, Phase, Segment, Stripe, Want};

/// Largest stripe unit, in sectors: 64 KiB. A sector set is one 128-bit word.
const UNIT_SECTORS_MAX: u32 = 128;

/// The machine of RAID-4, 5 and 6.
#[derive(Debug)]
pub(crate) struct Stripes {
    geometry: StripeGeometry,
    unit_sectors: u32,
    pool: Vec<Stripe>,
    free: Vec<u16>,
    index: Index,
    waiting: VecDeque<(BandKey, Attachment)>,
    in_flight: BTreeMap<IoId, IoOwner>,
    /// Bands where a write was left half done: their parity is not believed again.
    torn: BTreeSet<BandKey>,
}

/// Whose a member request is.
#[derive(Clone, Copy, Debug)]
enum IoOwner {
    Column { index: u16, slot: Slot },
    Direct(DirectRead),
}

impl Stripes {
    pub(crate) fn new(geometry: StripeGeometry, stripes: u16) -> Self {
        assert!(stripes > 0, "without a stripe nothing can be written");
        let stripes = if sometimes(Point::OneStripe) { 1 } else { stripes };
        let chunk_sectors = geometry.chunk_sectors();
        let unit_sectors = chunk_sectors.min(UNIT_SECTORS_MAX);
        assert!(chunk_sectors.is_multiple_of(unit_sectors), "md's chunks are powers of two here");
        let blank = Stripe {
            key: BandKey(u64::MAX),
            map: geometry.row_map(ChunkRow(0)),
            start: MemberSector(0),
            phase: Phase::Ready,
            columns: vec![Column::EMPTY; usize::from(geometry.slots())],
            batch: None,
            queue: VecDeque::new(),
            has_served: false,
            outstanding: 0,
        };
        let mut pool = Vec::new();
        pool.resize_with(usize::from(stripes), || Stripe {
            columns: blank.columns.clone(),
            queue: VecDeque::new(),
            batch: None,
            ..blank
        });
        Self {
            geometry,
            unit_sectors,
            pool,
            free: (0..stripes).rev().collect(),
            index: Index::new(usize::from(stripes)),
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            torn: BTreeSet::new(),
        }
    }

    pub(crate) fn arena_blocks(&self) -> u32 {
        u32::try_from(self.pool.len()).expect("a u16") * 2 * u32::from(self.geometry.slots())
    }

    pub(crate) fn unit_sectors(&self) -> u32 {
        self.unit_sectors
    }

    pub(crate) fn handle_piece(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        let want = match piece.operation {
            Operation::Read => return self.begin_read(common, key, piece),
            Operation::Write { durable } => Want::Write { durable },
            Operation::WriteZeroes { may_punch, durable } => Want::Zero { may_punch, durable },
            // What is trimmed may read as anything, so it may as well be zeroes with their parity;
            // bands that are not trimmed whole are left as they are.
            Operation::Trim if common.view.zero_is_fast => {
                Want::Zero { may_punch: true, durable: false }
            }
            Operation::Trim => return,
        };
        let mut bands = self.bands(piece, (0, piece.sectors));
        if piece.operation == Operation::Trim {
            let whole = u32::from(self.geometry.data_slots()) * self.unit_sectors;
            bands.retain(|_, segments| segments.iter().map(|s| s.sectors).sum::<u32>() == whole);
        }
        for (band, segments) in bands {
            common.add_part(key);
            let attachment = Attachment { piece: key, request: piece.request, want, segments };
            self.attach(common, band, attachment);
        }
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        match self.in_flight.remove(&done.id).expect("an answer to our own request") {
            IoOwner::Column { index, slot } => {
                self.column_done(common, (index, slot), done.result);
            }
            IoOwner::Direct(read) => self.direct_done(common, &read, done.result),
        }
    }

    pub(crate) fn handle_job_done(&mut self, common: &mut Common, job: JobId) {
        self.job_done(common, u16::try_from(job.0).expect("jobs are named after stripes"));
    }

    /// Stripes that hold their answer may go on.
    pub(crate) fn handle_view(&mut self, common: &mut Common) {
        for index in 0..self.pool.len() {
            if self.pool[index].phase == Phase::Hold {
                self.step(common, u16::try_from(index).expect("stripes are counted so"));
            }
        }
    }

    /// Cuts sectors `from..to` of a piece into segments, by band.
    fn bands(&self, piece: &Piece, (from, to): (u32, u32)) -> BTreeMap<BandKey, Vec<Segment>> {
        let mut bands: BTreeMap<BandKey, Vec<Segment>> = BTreeMap::new();
        let mut done = from;
        while done < to {
            let address = self.geometry.locate(LogicalSector(piece.start.0 + u64::from(done)));
            let offset = address.offset_sectors % self.unit_sectors;
            let sectors = (self.unit_sectors - offset).min(to - done);
            let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
            let segment = Segment {
                data_index: address.data_index,
                offset,
                sectors,
                payload_offset: piece.payload_offset_sectors.saturating_add(done),
            };
            bands.entry(BandKey(start / u64::from(self.unit_sectors))).or_default().push(segment);
            done += sectors;
        }
        bands
    }

    /// Gives work to a band's stripe; waits in line when there is no free stripe for it.
    fn attach(&mut self, common: &mut Common, band: BandKey, attachment: Attachment) {
        if let Some(index) = self.index.get(band) {
            self.pool[usize::from(index)].queue.push_back(attachment);
            self.step(common, index);
        } else if self.waiting.is_empty()
            && let Some(index) = self.free.pop()
        {
            self.occupy(index, band, attachment);
            self.step(common, index);
        } else {
            reached(Mark::WaitsForStripe);
            common.counters.stripe_waits += 1;
            self.waiting.push_back((band, attachment));
        }
    }

    /// Makes a free stripe the stripe of `band`.
    fn occupy(&mut self, index: u16, band: BandKey, attachment: Attachment) {
        let start = MemberSector(band.0 * u64::from(self.unit_sectors));
        let stripe = &mut self.pool[usize::from(index)];
        assert!(stripe.queue.is_empty() && stripe.batch.is_none(), "a free stripe has no work");
        stripe.key = band;
        let row = self.geometry.row_of(start).0 + u64::from(planted(Bug::NextRowsMap));
        stripe.map = self.geometry.row_map(ChunkRow(row));
        stripe.start = start;
        stripe.phase = Phase::Ready;
        stripe.has_served = false;
        stripe.queue.push_back(attachment);
        self.index.insert(band, index);
    }

    /// A stripe has no work left, or has had its turn: it goes to the head of the line, or becomes
    /// free. True when it has work again.
    fn release(&mut self, common: &mut Common, index: u16) -> bool {
        let stripe = &mut self.pool[usize::from(index)];
        let key = stripe.key;
        self.waiting.extend(stripe.queue.drain(..).map(|attachment| (key, attachment)));
        if planted(Bug::QueueLost) {
            self.waiting.pop_back();
        }
        assert_eq!(self.index.remove(key), index, "the index knows every occupied stripe");
        while let Some((band, attachment)) = self.waiting.pop_front() {
            // A band that got a stripe meanwhile takes its work along; the first that needs a
            // stripe of its own gets this one.
            if let Some(other) = self.index.get(band) {
                self.pool[usize::from(other)].queue.push_back(attachment);
                continue;
            }
            reached(Mark::HandsStripeOver);
            common.counters.stripe_hand_overs += 1;
            self.occupy(index, band, attachment);
            return true;
        }
        self.free.push(index);
        false
    }
}
