//! Attaches a write to its band's stripe. Here the shard decides whether to answer the write early,
//! and which older writes it supersedes.

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::band::{Attachment, Band};
use super::batch::Stripe;
use super::machine::Stripes;
use crate::array::Gate;
use crate::context::Common;
use crate::sectors::BLOCK_SECTORS;

impl Stripes {
    pub(super) fn attach(&mut self, common: &mut Common, band: Band, work: Attachment) {
        common.add_part(work.piece);
        common.counters.cache.lookups += 1;
        let number = match self.pool.find(band.key) {
            Some(number) => number,
            None => self.assign(band),
        };
        self.join(common, number, work);
    }

    fn assign(&mut self, band: Band) -> u32 {
        let (geometry, map) = (&self.geometry, self.geometry.row_map(band.row));
        let number = self.pool.assign(band, map, || Stripe::new(geometry));
        self.scheduler.grow(self.pool.numbers().len());
        number
    }

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
        if work.lacks_intent {
            self.await_view(number);
        }
        self.scheduler.look_at(number);
    }

    /// Answers a write now, if the cache and the settings allow it.
    fn answer_early(&mut self, common: &mut Common, number: u32, work: &mut Attachment) {
        let dirty_sectors = common.kept_sectors_with(work.piece).max(self.least_dirty());
        let is_durable = work.kind.is_durable();
        let is_durable = spoiled(Bug::FuaAnsweredEarly, is_durable, false);
        // In an array with a journal no write is answered early. If the journal's device failed,
        // the array would take no more writes, and lose the write although all members are present.
        let may = !is_durable
            && !work.lacks_intent
            && !common.view.keeps_journal
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
    }

    /// The sectors that a dirty stripe counts for at least: a block, however little its writes
    /// keep.
    fn least_dirty(&self) -> u64 {
        u64::from(self.pool.in_use()) * u64::from(BLOCK_SECTORS.min(self.unit_sectors))
    }

    /// Lets delayed stripes begin if much data is dirty, or if they are old. True if any may begin.
    pub(super) fn send_off(&mut self, common: &Common) -> bool {
        let dirty_sectors = common.pieces.kept_sectors().max(self.least_dirty());
        self.scheduler.send_off((dirty_sectors, self.cached.is_half_full()), common.now)
    }

    /// Answers the stripe's writes that waited for superblocks to allow writes to their region.
    pub(super) fn grant_intent(&mut self, common: &mut Common, number: u32) {
        let has_intent = |piece| common.has_intent(piece);
        for mut work in self.pool.stripe_mut(number).grant_intent(has_intent) {
            self.lacking_intent -= 1;
            self.answer_early(common, number, &mut work);
            if work.is_answered {
                self.pool.stripe_mut(number).note_answered(&work);
            }
        }
    }

    /// Whether the level tolerates one more loss in the stripe's band. A write answered early in
    /// such a band succeeds even if a member fails it.
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

    /// Drops answered writes that the later write `work` covers. `work` takes over their dirty
    /// references.
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

    pub(super) fn put_back(&mut self, number: u32) {
        self.scheduler.rest(number);
        let is_worth_keeping = self.pool.stripe(number).is_worth_keeping();
        self.pool.put_back(number, is_worth_keeping);
    }

    /// Releases the frame of a stripe whose batch has ended, or did not begin. The frame goes to
    /// the first stripe that waits for memory, if any.
    pub(super) fn let_go(&mut self, common: &mut Common, number: u32) {
        let frame = self.pool.frame(number).expect("it is held");
        match self.orphan_frames.has(frame) {
            true => self.pool.set_apart(number),
            false => self.pool.let_go(number),
        }
        self.serve_line(common);
    }

    /// Hands free frames to the stripes that wait for memory.
    pub(super) fn serve_line(&mut self, common: &mut Common) {
        while let Some(number) = self.scheduler.head_of_line()
            && self.pool.has_memory(number)
        {
            self.pool.hold(number);
            self.scheduler.leave_line(&mut common.counters.cache);
        }
    }
}
