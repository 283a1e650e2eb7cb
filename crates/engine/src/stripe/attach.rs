//! How a write gets to the stripe of its band: it joins it, takes an idle one, or stands in line; and what is settled on
//! the way there: whether it is answered early, and which older writes it makes superfluous.
//!
//! Flush, resizing and quiescing need nothing more: a flush asks for what is attached and no more; a smaller cache retires
//! stripes when they become idle instead of handing them on; a closing gate lets the line run dry.

use braid_geometry::{ChunkRow, Slot};
use braid_hooks::{Bug, Mark, planted, reached, spoiled};

use super::band::{Attachment, Band};
use super::machine::Stripes;
use crate::array::Gate;
use crate::context::Common;

impl Stripes {
    /// Gives a piece's work to its band's stripe; it stands in line when there is none for it.
    pub(super) fn attach(&mut self, common: &mut Common, band: Band, work: Attachment) {
        common.add_part(work.piece);
        common.counters.cache.lookups += 1;
        let found = self.pool.find(band.key);
        let is_first = self.scheduler.line_length() == 0;
        if let Some(number) = found
            && (is_first || !self.pool.stripe(number).has_served())
        {
            self.join(common, number, work);
        } else if is_first && let Some(number) = self.pool.first_idle() {
            self.assign(number, band);
            self.join(common, number, work);
        } else {
            reached(Mark::WaitsForStripe);
            common.counters.cache.stripe_waits += 1;
            self.scheduler.stand_in_line(band, work);
        }
    }

    fn assign(&mut self, number: u32, band: Band) {
        let row = band.row;
        let row = spoiled(Bug::NextRowsMap, row, ChunkRow(row.0.wrapping_add(1)));
        self.pool.assign(number, band, self.geometry.row_map(row));
    }

    /// Work joins the stripe of its band.
    fn join(&mut self, common: &mut Common, number: u32, mut work: Attachment) {
        self.pool.take(number);
        work.order = self.cached.next_order();
        if self.epochs.is_any() {
            self.supersede(common, number, &mut work);
        }
        work.lacks_intent = !common.has_intent(work.piece);
        self.lacking_intent += u32::from(work.lacks_intent);
        self.answer_early(common, number, &mut work);
        self.pool.stripe_mut(number).join(work);
        self.scheduler.look_at(number);
    }

    /// Answers a write now, if it may be.
    fn answer_early(&mut self, common: &mut Common, number: u32, work: &mut Attachment) {
        let dirty_sectors = common.kept_sectors_with(work.piece);
        let is_durable = work.want.is_durable();
        let is_durable = spoiled(Bug::FuaAnsweredEarly, is_durable, false);
        // What the journal does not have is lost with its device, though every member is there.
        let is_journaled = common.view.keeps_journal;
        let is_journaled = spoiled(Bug::JournalAnsweredEarly, is_journaled, false);
        let may = !is_durable
            && !work.lacks_intent
            && !is_journaled
            && common.view.gate == Gate::Open
            && self.scheduler.answers_early(dirty_sectors)
            && self.can_lose_more(common, number)
            && (work.cached.is_some()
                || self.cached.has_room(self.pool.stripe(number).band(), work));
        if may {
            reached(Mark::AnsweredEarly);
            work.is_answered = true;
            work.dirty_epoch.get_or_insert_with(|| self.epochs.acquire());
            common.counters.cache.early_answers += 1;
            common.part_kept(work.piece);
        }
        let band = *self.pool.stripe(number).band();
        self.cached.put(common, (&self.geometry, &band), work);
        self.scheduler.note_dirty(dirty_sectors);
    }

    /// Superblocks say by now that regions may be written: what waited for that may be answered.
    pub(super) fn grant_intent(&mut self, common: &mut Common) {
        for number in self.pool.numbers() {
            let has_intent = |piece| common.has_intent(piece);
            for mut work in self.pool.stripe_mut(number).grant_intent(has_intent) {
                self.lacking_intent -= 1;
                self.answer_early(common, number, &mut work);
                if work.is_answered {
                    self.pool.stripe_mut(number).note_answered(&work);
                }
            }
        }
    }

    /// Whether the level can make up for one more loss in the stripe's band: a write that is answered early there can be
    /// carried out even if a member fails it.
    fn can_lose_more(&self, common: &Common, number: u32) -> bool {
        if self.is_whole && !self.damage.has_inconsistent() {
            return true;
        }
        if planted(Bug::EarlyWithoutSpare) {
            return true;
        }
        let band = self.pool.stripe(number).band();
        let sectors = u64::from(self.unit_sectors);
        let is_lost = |slot: &Slot| common.view.readable(*slot, band.start, sectors).is_none();
        let lost = (0..self.geometry.slots()).map(Slot).filter(is_lost).count();
        lost < usize::from(self.geometry.parity_slots())
            && self.damage.parity_solves(&common.view, band)
    }

    /// Answered writes that a later one covers need not be written: it takes over their dirty references.
    fn supersede(&mut self, common: &mut Common, number: u32, work: &mut Attachment) {
        if !self.cached.has_room(self.pool.stripe(number).band(), work) {
            return;
        }
        while let Some(older) = self.pool.stripe_mut(number).take_covered(&work.run) {
            reached(Mark::Superseded);
            self.cached.cover(&older);
            common.counters.cache.superseded_writes += 1;
            common.release_payload(older.piece);
            let Some(epoch) = older.dirty_epoch else { continue };
            if planted(Bug::DirtyReferenceForgotten) {
                self.release_dirty(common, epoch);
                continue;
            }
            if let Some(own) = work.dirty_epoch.replace(epoch) {
                work.dirty_epoch = Some(epoch.min(own));
                self.release_dirty(common, epoch.max(own));
            }
        }
    }

    fn release_dirty(&mut self, common: &mut Common, epoch: u64) {
        if let Some(round) = self.epochs.release(epoch) {
            common.written_back(round);
        }
    }

    /// A stripe has no work left: it is idle, handed on, or retired.
    pub(super) fn put_back(&mut self, common: &mut Common, number: u32) {
        self.scheduler.leave(number);
        if !self.pool.put_back(number) {
            self.scheduler.note_retired();
        }
        self.serve_line(common);
    }

    /// Hands idle stripes to the work that stands in line.
    pub(super) fn serve_line(&mut self, common: &mut Common) {
        while let Some(band) = self.scheduler.head_of_line() {
            // A band that got a stripe meanwhile, or whose stripe is idle, takes its work along.
            let own = self.pool.find(band);
            let Some(number) = own.or(self.pool.first_idle()) else { return };
            let (band, work) = self.scheduler.leave_line().expect("just seen");
            if own.is_none() {
                reached(Mark::HandsStripeOver);
                common.counters.cache.stripe_hand_overs += 1;
                self.assign(number, band);
            }
            self.join(common, number, work);
        }
    }
}
