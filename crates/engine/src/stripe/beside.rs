//! Reading around members that sit out: beside the stripes, so that no read waits behind a write that is stuck.
//!
//! # Theory
//!
//! A read of a member that sits out is made from the others. The stripe of its band may be in the middle of a write that
//! the same member holds up, for as long as it likes. So such a read is given a stripe of a small pool of its own,
//! *beside* the band's: it is in no index and no line, has one read, reads the columns of the others into blocks of its
//! own, solves, answers, and is free again. It never writes.
//!
//! What the others hold must agree while it is read. It does before a batch writes, and it does again when all that
//! is left of its writes are those to members that sit out: solving for these gives what they *will* hold. So:
//!
//! ```text
//!   the band's stripe            a read may begin beside it
//!   none, idle, only reads       yes
//!   queued writes, not begun     yes
//!   Fill, held up by a member    yes: nothing is written yet
//!     that sits out
//!   Fill, Compute otherwise      not now: it is about to write, and lets them in before its next
//!   Write, all that is left is   yes: the rest agrees, but for columns that missed their write
//!     with members that sit out
//!   Write otherwise              not now: the rest is being written
//!   Hold                         yes, as before
//! ```
//!
//! and a stripe that is about to write waits until nobody reads beside it. "Not now" lasts as long as members take that do
//! not sit out, for one batch: the next one begins when those who waited have begun. So neither keeps the other waiting by
//! coming again and again.
//!
//! Reads that are *in* the stripe when it is found to be stuck are taken out, and looked at anew: what a queued write
//! covers is copied out of its payload ([`super::dirty`]), the rest goes beside. Of a batch of reads that waits for
//! the member nothing is left but the empty batch, which ends when the late answer comes; its blocks are its own until
//! then. A read straight into a payload is forsaken, and goes on in the payload's second side ([`crate::buffer`]).
//!
//! What cannot be made around the member (parity in doubt, too much unreadable) is read from the member after all, and
//! waits for it.
//!
//! # Invariants
//! - Nothing of a band is written while it is read beside its stripe [check: a_write_waits_for_reads_beside_it].
//! - A band that is always written lets reads in [check: a_read_is_let_in_between_two_writes_of_its_band].
//! - A read does not wait for a write that is stuck [check: reads_pass_a_stuck_write].
//! - What was forsaken changes nothing when it comes [check: a_late_read_changes_no_answer].

use std::collections::VecDeque;

use braid_geometry::{LogicalSector, MemberSector, Slot, StripeGeometry};
use braid_hooks::{Bug, Mark, planted, reached};

use super::band::{Attachment, Band, BandKey, Bands, Run, Want};
use super::read::DirectRead;
use super::sectors::SectorSet;
use super::state::{Column, ColumnState, Phase, Place, Stripe};
use super::{IoOwner, Stripes};
use crate::buffer::{BlockIndex, Buffer, SECOND_SIDE, Side, side_of};
use crate::effect::{IoId, MemberOperation};
use crate::request::{Operation, Piece, RequestId};
use crate::shard::Common;

/// Reads beside the stripes at once; more wait for one to end, which takes as long as the other members take.
const READS_MAX: u32 = 16;

/// Stripes beside the others. More than reads, since a read that is let go of leaves its stripe to the late answer:
/// a few members may stall one after the other before there are none for reads. What is not used is no memory.
pub(super) const BESIDE_MAX: u32 = 4 * READS_MAX;

/// The stripes beside the others. Their numbers come after those of all others.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) stripes: Vec<Stripe>,
    free: Vec<u32>,
    /// Reads that wait for a stripe, or for their band.
    waiting: VecDeque<(Band, Attachment)>,
}

impl Beside {
    pub(super) fn new(blank: impl Fn() -> Stripe) -> Self {
        let stripes = (0..BESIDE_MAX).map(|_| blank()).collect();
        Self { stripes, free: (0..BESIDE_MAX).rev().collect(), waiting: VecDeque::new() }
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.stripes.len()
    }

    /// Whether one more read may begin.
    fn has_room(&self) -> bool {
        let reads = self.stripes.iter().filter(|stripe| !stripe.queue.is_empty()).count();
        !self.free.is_empty() && reads < READS_MAX as usize
    }
}

impl Stripes {
    /// Whether a stripe is one of those beside the others.
    pub(super) fn is_beside(&self, index: u32) -> bool {
        index >= self.cache.stripes_max
    }

    /// The first block of those for probes, one for each slot.
    fn probe_blocks(&self) -> u32 {
        (self.cache.stripes_max + BESIDE_MAX) * u32::from(self.geometry.slots())
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

    /// Whether a range of a band could be read without the members that sit out, as far as is known.
    pub(super) fn may_go_around(&self, common: &Common, start: MemberSector, sectors: u32) -> bool {
        let unit = u64::from(self.unit_sectors);
        let last = (start.0 + u64::from(sectors) - 1) / unit;
        let agrees = (start.0 / unit..=last).all(|band| !self.torn.contains(&BandKey(band)))
            && (last + 1) * unit <= common.view.resync_offset;
        let is_away = |slot: &Slot| {
            common.clocks.sits_out(*slot)
                || common.view.readable(*slot, start, u64::from(sectors)).is_none()
        };
        let away = (0..self.geometry.slots()).map(Slot).filter(is_away).count();
        agrees && away <= usize::from(self.geometry.parity_slots())
    }

    /// A read around members that sit out.
    pub(super) fn go_beside(&mut self, common: &mut Common, band: Band, attachment: Attachment) {
        common.counters.reads_around += 1;
        for slot in common.clocks.slots_out().collect::<smallvec::SmallVec<[Slot; 4]>>() {
            common.clocks.note_place(slot, band.start, self.unit_sectors);
        }
        self.cache.beside.waiting.push_back((band, attachment));
    }

    /// Lets reads go beside the stripes that can now. True if any did.
    pub(super) fn serve_beside(&mut self, common: &mut Common) -> bool {
        let mut has_begun = false;
        if !common.clocks.is_any_out() {
            // Nobody is read around any more, so what waits goes the usual way.
            for (band, attachment) in std::mem::take(&mut self.cache.beside.waiting) {
                has_begun = true;
                self.read_anew(common, &band, &attachment);
                self.wake(band.key);
            }
            return has_begun;
        }
        for _ in 0..self.cache.beside.waiting.len() {
            if !self.cache.beside.has_room() {
                break;
            }
            let (band, attachment) = self.cache.beside.waiting.pop_front().expect("counted");
            if !self.may_begin_beside(common, &band) {
                reached(Mark::WaitsBeside);
                self.cache.beside.waiting.push_back((band, attachment));
                continue;
            }
            has_begun = true;
            reached(Mark::ReadsBeside);
            let place = self.cache.beside.free.pop().expect("just seen");
            let index = self.cache.stripes_max + place;
            let map = self.geometry.row_map(band.row);
            let stripe = self.cache.stripe_mut(index);
            assert!(stripe.queue.is_empty() && stripe.batch.is_none(), "a free one has no work");
            stripe.columns.fill(Column::EMPTY);
            (stripe.band, stripe.map, stripe.place) = (Some(band), map, Place::Busy);
            stripe.awaited = 1;
            stripe.queue.push_back(attachment);
            self.look_at(index);
            self.wake(band.key);
        }
        has_begun
    }

    /// See the table above.
    fn may_begin_beside(&self, common: &Common, band: &Band) -> bool {
        let Some(index) = self.cache.index.look_up(band.key.0) else { return true };
        let stripe = self.cache.stripe(index);
        if stripe.batch.as_ref().is_none_or(|batch| !batch.is_write) {
            return true;
        }
        let is_at = |state: ColumnState| {
            stripe.slots().filter(move |slot| stripe.column(*slot).state == state)
        };
        let is_out = |slot: Slot| common.clocks.sits_out(slot);
        let may = match stripe.phase {
            Phase::Ready | Phase::Hold => true,
            Phase::Fill => is_at(ColumnState::Reading).any(is_out),
            Phase::Compute => false,
            Phase::Write => stripe.outstanding > 0 && is_at(ColumnState::Writing).all(is_out),
        };
        if may && stripe.phase != Phase::Ready {
            reached(Mark::ReadsBesideStuck);
        }
        may
    }

    /// Whether reads that wait for a stripe's band are to begin before its next write does. Between two batches it is
    /// looked at by nobody else, so a band that is written again and again would never let them in.
    pub(super) fn must_let_in(&self, index: u32) -> bool {
        let waiting = &self.cache.beside.waiting;
        if waiting.is_empty() || self.is_beside(index) {
            return false;
        }
        let stripe = self.cache.stripe(index);
        let key = stripe.band().key;
        stripe.queue.front().is_some_and(|first| first.want.is_write())
            && waiting.iter().any(|(band, _)| band.key == key)
    }

    /// Whether somebody reads beside the stripe of a band.
    pub(super) fn is_read_beside(&self, key: BandKey) -> bool {
        let reads = |stripe: &Stripe| {
            stripe.place == Place::Busy && stripe.band.is_some_and(|band| band.key == key)
        };
        let beside = &self.cache.beside;
        !beside.is_idle()
            && beside.stripes.iter().any(|stripe| reads(stripe) && !stripe.queue.is_empty())
    }

    /// Whether a column is better not read: its member sits out; or, beside the band's stripe, a write of
    /// it is under way or was missed.
    pub(super) fn is_doubtful_beside(&self, common: &Common, index: u32, slot: Slot) -> bool {
        if common.clocks.sits_out(slot) {
            return true;
        }
        let key = self.cache.stripe(index).band().key;
        let Some(own) = self.cache.index.look_up(key.0).filter(|_| self.is_beside(index)) else {
            return false;
        };
        let own = self.cache.stripe(own);
        let column = own.column(slot);
        let is_off = column.missed.is_some();
        own.batch.is_some() && (is_off || column.state == ColumnState::Writing)
    }

    /// A stripe beside the others has nothing to do any more.
    pub(super) fn release_beside(&mut self, index: u32) {
        let stripe = self.cache.stripe_mut(index);
        stripe.place = Place::Retired;
        stripe.has_served = false;
        let band = stripe.band.take().expect("it had one");
        self.cache.beside.free.push(index - self.cache.stripes_max);
        self.wake(band.key);
    }

    /// The band's stripe may have waited for reads beside it.
    fn wake(&mut self, key: BandKey) {
        if let Some(own) = self.cache.index.look_up(key.0) {
            self.look_at(own);
        }
    }

    /// A batch of reads cannot be made around the members that sit out: they are read.
    pub(super) fn read_after_all(&mut self, common: &mut Common, index: u32) {
        reached(Mark::AroundFails);
        let band = *self.cache.stripe(index).band();
        for attachment in self.empty_batch(index) {
            let Attachment { piece: key, request, run, .. } = attachment;
            for (slot, piece) in self.pieces_of(&band, request, &run) {
                let start = self.place_of(&piece);
                let sectors = piece.sectors;
                if common.view.readable(slot, start, u64::from(sectors)).is_some() {
                    self.read_direct(common, key, DirectRead::insisting(key, piece, slot), start);
                } else {
                    let geometry = self.geometry;
                    for (band, run) in
                        Bands::new(&geometry, self.unit_sectors, &piece, (0, sectors))
                    {
                        self.attach_insisting(common, band, (key, request, Want::Read, run));
                    }
                }
            }
            common.part_done(key, Ok(()));
        }
    }

    fn place_of(&self, piece: &Piece) -> MemberSector {
        let address = self.geometry.locate(piece.start);
        let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        MemberSector(start)
    }

    /// What a run wants of each column of a band, as pieces; with the column's slot.
    fn pieces_of(&self, band: &Band, request: RequestId, run: &Run) -> Vec<(Slot, Piece)> {
        let geometry: &StripeGeometry = &self.geometry;
        let map = geometry.row_map(band.row);
        let piece = |index| {
            let segment = band.segment(run, index)?;
            let offset = band.offset_in_chunk() + segment.offset;
            let start: LogicalSector = geometry.logical(band.row, index, offset);
            let piece = Piece {
                request,
                operation: Operation::Read,
                start,
                sectors: segment.sectors,
                payload_offset_sectors: segment.payload_offset,
            };
            Some((map.data_slot(index), piece))
        };
        (0..geometry.data_slots()).filter_map(piece).collect()
    }

    /// Takes everything out of a batch of reads. The batch goes on, wanting nothing.
    fn empty_batch(&mut self, index: u32) -> Vec<Attachment> {
        let stripe = self.cache.stripe_mut(index);
        let batch = stripe.batch.as_mut().expect("a batch is under way");
        assert!(!batch.is_write, "what is written is written");
        let count = std::mem::take(&mut batch.count);
        stripe.columns.iter_mut().for_each(|column| column.touched = SectorSet::EMPTY);
        let taken: Vec<Attachment> = stripe.queue.drain(..count).collect();
        let awaited = taken.iter().filter(|attachment| !attachment.kept).count();
        stripe.awaited -= u32::try_from(awaited).expect("counted so before");
        self.look_at(index);
        taken
    }

    /// Whether a request of the stripe's batch is with a member that sits out, or its answer waits for
    /// superblocks, which every member is to have.
    pub(super) fn is_stuck(&self, common: &Common, index: u32) -> bool {
        let stripe = self.cache.stripe(index);
        if stripe.batch.is_none() || !common.clocks.is_any_out() {
            return false;
        }
        stripe.phase == Phase::Hold
            || common.clocks.slots_out().any(|slot| {
                let state = stripe.column(slot).state;
                matches!(state, ColumnState::Reading | ColumnState::Writing)
            })
    }

    /// Takes reads out of a stripe that is stuck, if there are any, to be made in another way.
    pub(super) fn take_reads_out(&mut self, common: &mut Common, index: u32) {
        if planted(Bug::WaitsBehindStuck) {
            return;
        }
        let stripe = self.cache.stripe(index);
        let insists = |work: &Attachment| work.insists || work.want.is_write();
        let mut taken: Vec<Attachment> = Vec::new();
        if stripe.batch.as_ref().is_some_and(|batch| !batch.is_write && batch.count > 0)
            && stripe.phase == Phase::Fill
            && !stripe.attachments().any(insists)
        {
            taken = self.empty_batch(index);
        }
        let stripe = self.cache.stripe_mut(index);
        let mut place = stripe.batch.as_ref().map_or(0, |batch| batch.count);
        while place < stripe.queue.len() {
            if insists(&stripe.queue[place]) {
                place += 1;
            } else {
                let read = stripe.queue.remove(place).expect("just seen");
                stripe.awaited -= u32::from(!read.kept);
                taken.push(read);
            }
        }
        let Some(band) = stripe.band.filter(|_| !taken.is_empty()) else { return };
        reached(Mark::TakesReadsOut);
        for attachment in taken {
            self.read_anew(common, &band, &attachment);
        }
    }

    /// A read that waited in a stripe, or in line, begins again.
    fn read_anew(&mut self, common: &mut Common, band: &Band, attachment: &Attachment) {
        let Attachment { piece: key, request, run, .. } = *attachment;
        for (_, piece) in self.pieces_of(band, request, &run) {
            self.begin_read(common, key, &piece);
        }
        common.part_done(key, Ok(()));
    }

    /// Members begin to sit out, or come back: lets go of what is under way with those that do.
    pub(crate) fn handle_attention(&mut self, common: &mut Common) {
        if common.clocks.is_any_out() {
            self.forsake_direct(common);
            let pool = u32::try_from(self.cache.pool.len()).expect("stripes are counted so");
            for index in 0..pool {
                let has_work =
                    !matches!(self.cache.stripe(index).place, Place::Idle | Place::Retired);
                let _ = has_work.then(|| self.take_reads_out_of(common, index));
            }
            for place in 0..BESIDE_MAX {
                let index = self.cache.stripes_max + place;
                let is_filling = self.cache.stripe(index).phase == Phase::Fill;
                if is_filling && self.is_stuck(common, index) {
                    self.take_reads_out(common, index);
                    self.wake_beside(index);
                }
            }
            self.take_reads_out_of_line(common);
        }
        self.settle(common);
    }

    fn wake_beside(&mut self, index: u32) {
        let key = self.cache.stripe(index).band().key;
        self.wake(key);
    }

    /// Of a stripe that may become stuck: its batch stays if it can go on.
    fn take_reads_out_of(&mut self, common: &mut Common, index: u32) {
        let stripe = self.cache.stripe(index);
        let reads_on = stripe.batch.as_ref().is_some_and(|batch| !batch.is_write);
        if !reads_on || self.is_stuck(common, index) {
            self.take_reads_out(common, index);
            self.look_at(index);
        }
    }

    fn take_reads_out_of_line(&mut self, common: &mut Common) {
        for (band, attachment) in std::mem::take(&mut self.waiting) {
            if attachment.want.is_write() || attachment.insists || planted(Bug::WaitsBehindStuck) {
                self.waiting.push_back((band, attachment));
            } else {
                self.read_anew(common, &band, &attachment);
            }
        }
    }

    /// Lets go of reads straight into payloads that are with members that sit out.
    fn forsake_direct(&mut self, common: &mut Common) {
        if planted(Bug::ForsakesNothing) {
            return;
        }
        let mut forsaken = Vec::new();
        for (name, owner) in self.in_flight.iter_mut() {
            if let IoOwner::Direct(read) = owner
                && common.clocks.sits_out(read.slot())
                && read.may_be_forsaken()
            {
                forsaken.push((name, *read));
            }
        }
        for (name, read) in forsaken {
            let (key, piece, range) = read.parts();
            let from = Piece { start: LogicalSector(piece.start.0 + u64::from(range.0)), ..piece };
            if !self.may_go_around(common, self.place_of(&from), range.1 - range.0) {
                continue;
            }
            reached(Mark::ReadForsaken);
            common.forsake(key);
            let owner = self.in_flight.get_mut(name).expect("just seen");
            *owner = IoOwner::Forsaken(read.slot());
            if planted(Bug::ForsakenForgotten) {
                continue;
            }
            let (side, offset) = side_of(piece.payload_offset_sectors);
            assert_eq!(side, Side::First, "what was made instead is not forsaken");
            let same = planted(Bug::ForsakenSameMemory);
            let payload_offset_sectors = if same { offset } else { offset + SECOND_SIDE };
            let piece = Piece { payload_offset_sectors, ..piece };
            self.read_through_stripes(common, key, &piece, range);
            common.part_done(key, Ok(()));
        }
    }
}
