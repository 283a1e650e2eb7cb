//! Who gets a stripe: work joins its band's stripe, takes an idle one, or stands in line.
//!
//! There is one line for each shard, first come, first served. A stripe that becomes idle while
//! somebody stands there is *handed* to the head of the line: nobody else is woken, nobody can take
//! it on the way, and nobody looks twice. That is why md's rule, to let waiters in only when a
//! quarter of the stripes are free, is not needed: it keeps a crowd that was woken from thrashing over one free
//! stripe (livelock), and here there is no crowd. What the rule also does, keeping a few streams from
//! occupying all stripes at once, is done by the line itself: while somebody waits, a stripe that has
//! served a batch takes no more work than it has, so its band stands in line like any other
//! [check: busy_band_does_not_starve_others]. A piece waits at most for those ahead of it, each of
//! which needs one batch of one stripe.
//!
//! Idle stripes are taken in the order in which they became so, so that what they hold is there for as
//! long as can be; those that hold nothing of use (a whole band was written) go first, and the last one first of all, which is the cheapest for the processor's caches.
//!
//! Flush, resizing and quiescing use the same line: a flush asks for what is attached and no more; a
//! smaller cache retires stripes when they become idle instead of handing them on; a closing gate
//! lets the line run dry.

use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes};

use super::Stripes;
use super::band::{Attachment, Band, Run, Want};
use super::state::{Column, Place};
use crate::array::Gate;
use crate::request::RequestId;
use crate::shard::{Common, PieceKey};
use crate::tuning::CacheMode;
use braid_geometry::Slot;

/// Work behind the batch that is looked through for what a later write has covered.
const SUPERSEDED_LOOKS_MAX: usize = 32;

impl Stripes {
    /// Gives a piece's work to its band's stripe; it stands in line when there is none for it.
    pub(super) fn attach(
        &mut self,
        common: &mut Common,
        band: Band,
        work: (PieceKey, RequestId, Want, Run),
    ) {
        let attachment = Attachment::new(work);
        common.add_part(attachment.piece);
        common.counters.cache.lookups += 1;
        let found = self.cache.index.get(band.key.0);
        let is_served = |index: u32| self.cache.stripe(index).has_served;
        if let Some(index) = found
            && (self.waiting.is_empty() || !is_served(index))
        {
            self.join(common, index, attachment);
        } else if self.waiting.is_empty()
            && let Some(index) = self.cache.idle.first()
        {
            self.occupy(index, band);
            self.join(common, index, attachment);
        } else {
            reached(Mark::WaitsForStripe);
            common.counters.cache.stripe_waits += 1;
            self.waiting.push_back((band, attachment));
            self.urge_first();
        }
    }

    /// Makes an idle stripe the stripe of `band`.
    fn occupy(&mut self, index: u32, band: Band) {
        let row = braid_geometry::ChunkRow(band.row.0 + u64::from(planted(Bug::NextRowsMap)));
        let map = self.geometry.row_map(row);
        let cache = &mut self.cache;
        let stripe = &mut cache.pool[index as usize];
        assert!(stripe.queue.is_empty() && stripe.batch.is_none(), "an idle stripe has no work");
        if let Some(old) = stripe.band.replace(band) {
            assert_eq!(cache.index.remove(old.key.0), index, "the index knows every band");
        }
        if !planted(Bug::OldBandBelieved) {
            stripe.columns.fill(Column::EMPTY);
        }
        stripe.map = map;
        cache.index.insert(band.key.0, index);
    }

    /// Work joins the stripe of its band.
    fn join(&mut self, common: &mut Common, index: u32, mut attachment: Attachment) {
        if self.cache.stripe(index).place == Place::Idle {
            self.leave(index);
        }
        self.supersede(common, index, &mut attachment);
        self.answer_early(common, index, &mut attachment);
        let stripe = self.cache.stripe_mut(index);
        stripe.awaited += u32::from(!attachment.kept);
        stripe.note_queued(&attachment);
        if planted(Bug::OlderLaidOver) && stripe.batch.is_none() {
            stripe.queue.push_front(attachment);
        } else {
            stripe.queue.push_back(attachment);
        }
        self.look_at(index);
    }

    /// Answers a write now, if it may be.
    fn answer_early(&mut self, common: &mut Common, index: u32, attachment: &mut Attachment) {
        let dirty_max = u64::from(self.tuning.dirty_sectors_max);
        let dirty = common.kept_sectors_with(attachment.piece);
        let waits = attachment.want.is_durable() && !planted(Bug::FuaAnsweredEarly);
        let may = self.tuning.mode == CacheMode::WriteBack
            && !waits
            && common.view.gate == Gate::Open
            && (dirty <= dirty_max || planted(Bug::DirtyUnlimited))
            && self.can_lose_more(common, index);
        if may {
            reached(Mark::AnsweredEarly);
            attachment.kept = true;
            if attachment.owes.is_none() {
                attachment.owes = Some(self.promises.owe());
            }
            common.counters.cache.early_answers += 1;
            common.part_kept(attachment.piece);
        }
        if dirty > dirty_max / 2 {
            self.urge_first();
        }
    }

    /// Whether the level can make up for one more loss in the stripe's band: a write that is promised
    /// there can be kept.
    fn can_lose_more(&self, common: &Common, index: u32) -> bool {
        if self.is_whole && !self.damage.has_torn() || planted(Bug::EarlyWithoutSpare) {
            return true;
        }
        let stripe = self.cache.stripe(index);
        let (start, sectors) = (stripe.band().start, u64::from(self.unit_sectors));
        let is_lost = |slot: &Slot| common.view.readable(*slot, start, sectors).is_none();
        let lost = stripe.slots().filter(is_lost).count();
        lost < usize::from(self.geometry.parity_slots())
            && self.damage.parity_agrees(&common.view, stripe.band())
    }

    /// Answered writes that a later one covers need not be written: it takes over what they owe.
    fn supersede(&mut self, common: &mut Common, index: u32, attachment: &mut Attachment) {
        let stripe = self.cache.stripe(index);
        // A copy out of its payload may be under way.
        if !self.promises.is_any() || stripe.outstanding > 0 || stripe.copies > 0 {
            return;
        }
        let first = stripe.batch.as_ref().map_or(0, |batch| batch.count);
        let last = stripe.queue.len();
        for place in (first.max(last.saturating_sub(SUPERSEDED_LOOKS_MAX))..last).rev() {
            let older = self.cache.stripe(index).queue[place];
            let covers = attachment.run.covers(&older.run) || planted(Bug::SupersedesPart);
            if !older.kept || !covers {
                continue;
            }
            reached(Mark::Superseded);
            self.cache.stripe_mut(index).queue.remove(place);
            common.counters.cache.superseded_writes += 1;
            common.let_go(older.piece);
            let (Some(debt), false) = (older.owes, planted(Bug::DebtForgotten)) else {
                older.owes.into_iter().for_each(|debt| self.pay(common, debt));
                continue;
            };
            if let Some(own) = attachment.owes.replace(debt) {
                let (kept, paid) = (debt.min(own), debt.max(own));
                attachment.owes = Some(kept);
                self.pay(common, paid);
            }
        }
    }

    /// A debt is paid, or never will be.
    pub(super) fn pay(&mut self, common: &mut Common, debt: u64) {
        if let Some(round) = self.promises.settle(debt) {
            common.written_back(round);
        }
    }

    /// A stripe has no work left: it is idle, handed on, or retired.
    pub(super) fn release(&mut self, common: &mut Common, index: u32) {
        self.leave(index);
        let cache = &mut self.cache;
        let stripe = &mut cache.pool[index as usize];
        stripe.has_served = false;
        if index >= cache.target {
            stripe.place = Place::Retired;
            if let Some(old) = stripe.band.take() {
                assert_eq!(cache.index.remove(old.key.0), index, "the index knows every band");
            }
            // It hands nothing on, so another one must.
            if !self.waiting.is_empty() {
                self.urge_first();
            }
        } else {
            stripe.place = Place::Idle;
            if stripe.is_worth_keeping {
                cache.idle.push_back(&mut cache.pool, index);
            } else {
                // Its memory is still in the processor's caches, and that is all it is good for.
                cache.idle.push_front(&mut cache.pool, index);
            }
        }
        self.serve_line(common);
    }

    /// Hands idle stripes to those who stand in line.
    pub(super) fn serve_line(&mut self, common: &mut Common) {
        while let Some((band, _)) = self.waiting.front() {
            // A band that got a stripe meanwhile, or whose stripe is idle, takes its work along.
            let own = self.cache.index.get(band.key.0);
            let Some(index) = own.or(self.cache.idle.first()) else { return };
            let (band, attachment) = self.waiting.pop_front().expect("just seen");
            if own.is_none() {
                reached(Mark::HandsStripeOver);
                common.counters.cache.stripe_hand_overs += 1;
                self.occupy(index, band);
            }
            self.join(common, index, attachment);
            if planted(Bug::QueueLost) {
                self.waiting.pop_back();
            }
        }
    }

    /// Makes as many stripes as are asked for, or retires those that are too many.
    pub(super) fn resize(&mut self) {
        let target = self.tuning.stripes.clamp(1, self.cache.stripes_max);
        let target = if sometimes(Point::OneStripe) { 1 } else { target };
        if target == self.cache.target {
            return;
        }
        let number = |count: usize| u32::try_from(count).expect("stripes are counted so");
        while number(self.cache.pool.len()) < target {
            let blank = self.blank();
            self.cache.pool.push(blank);
        }
        if target < self.cache.target && planted(Bug::ShrinkLosesWaiting) {
            self.waiting.pop_back();
        }
        let cache = &mut self.cache;
        cache.target = target;
        let mut index = cache.index.successor(cache.pool.len());
        for stripe in 0..number(cache.pool.len()) {
            let place = cache.pool[stripe as usize].place;
            if place == Place::Retired && stripe < target {
                cache.pool[stripe as usize].place = Place::Idle;
                cache.idle.push_front(&mut cache.pool, stripe);
            } else if place == Place::Idle && stripe >= target {
                reached(Mark::StripeRetired);
                cache.idle.remove(&mut cache.pool, stripe);
                cache.pool[stripe as usize].place = Place::Retired;
                cache.pool[stripe as usize].band = None;
            }
            if let Some(band) = cache.pool[stripe as usize].band {
                index.insert(band.key.0, stripe);
            }
        }
        cache.index = index;
    }
}
