//! The bitmap's state: its wanted and its durable content, and the sectors in which shards may
//! write.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use braid_ondisk::{BitmapSuperblock, Bits, LocklessMarks};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::decide::{Facts, Sweep};
use super::lockless::{Lockless, around};
use crate::Instant;
use crate::array::bitmap_record::{BitmapLook, BitmapRecord};
use crate::array::setup::BitmapSetup;
use crate::array::view::{IntentView, resync_range, sectors_of_resync};
use crate::ids::{BitmapId, MemberId, ShardIndex};
use braid_geometry::{Geometry, LogicalSector};

/// The array's state that the bitmap reads.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct IntentContext {
    /// The event count of superblocks, or of the update in flight.
    pub(in super::super) events: u64,
    /// Every member is up to date, and superblocks record every loss.
    pub(in super::super) may_clear: bool,
    /// A member is out, and no superblock records the loss.
    pub(in super::super) has_unrecorded: bool,
    /// The bitmap's file is no longer written, and superblocks do not record that yet.
    pub(in super::super) is_leaving: bool,
    /// Superblocks allow writes to members, so that shards can use the bits.
    pub(in super::super) takes_writes: bool,
    /// The array stops, and superblocks say clean.
    pub(in super::super) is_over: bool,
    pub(in super::super) resync_offset: u64,
}

#[derive(Debug)]
struct BitmapWrite {
    bits: Arc<Bits>,
    marks: Option<Arc<LocklessMarks>>,
    head: BitmapSuperblock,
    missing: BTreeSet<MemberId>,
    has_failed: bool,
}

/// The content of the bitmap's area on members. A write of several sectors may be cut short, and
/// leave a new superblock before old bits. So if the old bits are not believed, the superblock says
/// *stale* until all bits are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AreaContent {
    /// Bytes that are not believed.
    Void,
    /// The bitmap, under a superblock that says *stale*.
    Made,
    /// The bitmap that was believed last, or a newer one.
    Sound,
}

#[derive(Debug)]
pub(in super::super) struct Intent {
    id: BitmapId,
    /// The wanted superblock of the bitmap, except its event count.
    head: BitmapSuperblock,
    /// The bitmap's superblock, as every member in `imaged` has it.
    head_written: BitmapSuperblock,
    area: AreaContent,
    says: Bits,
    /// Bits that are set durably in every member's bitmap, and are not about to be cleared.
    durable: Bits,
    /// Bits that shards wait for, and that are not durable yet. Mostly empty.
    wanted: Bits,
    /// Bits under which shards may write. A subset of `durable`.
    open: Arc<Bits>,
    /// Bits whose sectors were in doubt when the array was opened; `None` if all sectors were.
    doubt: Option<Arc<Bits>>,
    /// Bits that shards wait for, and that are durable now: `open` gets them next.
    granted: Option<Bits>,
    /// Bits are cleared in memory, but not yet in members' bitmaps.
    is_stale: bool,
    out: Option<BitmapWrite>,
    /// The bits, as every member in `imaged` has them.
    written: Arc<Bits>,
    /// Members that have the whole bitmap.
    imaged: BTreeSet<MemberId>,
    sweep: Sweep,
    /// Shards that have not answered the current step of the sweep yet.
    unanswered: BTreeSet<ShardIndex>,
    /// The bits of shards' writes since the last sweep.
    touched: Bits,
    /// Bits under which shards must finish their writes.
    closing: Bits,
    /// Counts how often bits were taken back from shards.
    revocation: u64,
    next_sweep: Option<Instant>,
    lockless: Option<Lockless>,
}

impl Intent {
    pub(in super::super) fn new(id: BitmapId, setup: BitmapSetup, resync_offset: u64) -> Self {
        let BitmapSetup { head, says, doubt, marks } = setup;
        let lockless = marks.map(|marks| Lockless::new(marks, &says, resync_offset));
        let none = Bits::none(says.sectors(), says.sectors_each());
        Self {
            id,
            head,
            head_written: head,
            area: if doubt.is_some() { AreaContent::Sound } else { AreaContent::Void },
            says,
            durable: none.clone(),
            wanted: none.clone(),
            open: Arc::new(none.clone()),
            doubt: doubt.map(Arc::new),
            granted: None,
            is_stale: false,
            out: None,
            written: Arc::new(none.clone()),
            imaged: BTreeSet::new(),
            sweep: Sweep::Rest,
            unanswered: BTreeSet::new(),
            touched: none.clone(),
            closing: none,
            revocation: 0,
            next_sweep: None,
            lockless,
        }
    }

    /// Lets shards write everywhere: no write waits for the bits of a bitmap that no superblock
    /// names yet.
    pub(in super::super) fn open_all(&mut self) {
        self.open = Arc::new(self.says.clone());
    }

    /// Lets shards write everywhere, because superblocks count more events than the bitmap's file:
    /// the file is void.
    pub(in super::super) fn holds_nobody_up(&mut self) {
        self.open = Arc::new(Bits::all(self.says.sectors(), self.says.sectors_each()));
    }

    pub(in super::super) fn id(&self) -> BitmapId {
        self.id
    }

    /// The bitmap as shards see it.
    pub(in super::super) fn view(&self) -> IntentView {
        let (bitmap, revocation) = (self.id, self.revocation);
        let unsynced = self.lockless.as_ref().map(|lockless| Arc::clone(lockless.shown()));
        // In the usual case no run is unsynced, and shards need no look-ups.
        let unsynced = unsynced.filter(|unsynced| !unsynced.is_empty());
        let is_lockless = self.lockless.is_some();
        IntentView { bitmap, open: Arc::clone(&self.open), revocation, is_lockless, unsynced }
    }

    pub(in super::super) fn area_sectors(&self) -> u64 {
        self.head.area_sectors()
    }

    pub(in super::super) fn look(&self) -> BitmapLook {
        let (bits, bits_set) = (self.says.count(), self.says.set_count());
        let unwritten = self.lockless.as_ref().map(|lockless| lockless.unwritten().set_count());
        BitmapLook { bit_bytes: u64::from(self.head.chunk_bytes), bits, bits_set, unwritten }
    }

    /// Whether redundancy was made to agree everywhere: no run is unwritten or unsynced.
    pub(in super::super) fn is_made(&self) -> bool {
        self.lockless.as_ref().is_none_or(|lockless| lockless.shown().is_empty())
    }

    pub(in super::super) fn is_lockless(&self) -> bool {
        self.lockless.is_some()
    }

    /// For a lockless bitmap, two sets of bits. First the sectors that a job must make agree though
    /// no write to them was interrupted, second the sectors that no check compares.
    pub(in super::super) fn lazy(&self) -> Option<(&Bits, &Bits)> {
        let lockless = self.lockless.as_ref()?;
        Some((lockless.due(), lockless.shown()))
    }

    /// Notes that a resync of due runs has passed all sectors below `to`, except `failed`, and that
    /// members are flushed. True if shards need a new view.
    pub(in super::super) fn is_synced(&mut self, to: u64, failed: &[Range<u64>]) -> bool {
        let lockless = self.lockless.as_mut().expect("only a lockless bitmap has what is due");
        let is_news = lockless.is_synced(to, failed);
        self.is_stale |= is_news;
        is_news
    }

    /// Notes that the resync after a crash has ended, and that members are flushed.
    pub(in super::super) fn is_resynced(&mut self) {
        if let Some(lockless) = &mut self.lockless {
            self.is_stale |= lockless.is_resynced();
        }
    }

    /// Bits of the sectors that a new member needs: the bits of writes that the member may have
    /// missed, or all bits if these are unknown; without bits of sectors that no client has
    /// written. `None` if the member needs all sectors.
    pub(in super::super) fn lacked_since(&self, events: Option<u64>) -> Option<Bits> {
        let missed = events.and_then(|events| self.missed_since(events)).cloned();
        let Some(lockless) = &self.lockless else { return missed };
        let all = || Bits::all(self.says.sectors(), self.says.sectors_each());
        let mut lacked = missed.unwrap_or_else(all);
        lacked.subtract(lockless.unwritten());
        if planted(Bug::UnsyncedNotRecovered) {
            lacked.subtract(lockless.unsynced());
        }
        Some(lacked)
    }

    /// Bits beyond the resync offset whose sectors are in doubt; `None` if all sectors are.
    pub(in super::super) fn doubt(&self) -> Option<&Arc<Bits>> {
        self.doubt.as_ref()
    }

    /// The bitmap's facts. `is_awaited` if superblocks wait for the bitmap.
    pub(in super::super) fn facts(
        &self,
        now: Instant,
        context: &IntentContext,
        is_awaited: bool,
    ) -> Facts {
        let is_recorded = !context.has_unrecorded;
        let is_recorded = spoiled(Bug::BitOpensUnrecorded, is_recorded, true);
        Facts {
            is_leaving: context.is_leaving,
            is_granted: self.granted.is_some() && is_recorded,
            is_out: self.out.is_some(),
            // Until superblocks allow writes, requested bits are part of the write that superblocks
            // wait for.
            is_due: is_awaited || !self.wanted.is_empty() && context.takes_writes || self.is_stale,
            sweep: self.sweep,
            is_time: self.next_sweep.is_some_and(|at| at <= now),
            may_clear: self.may_clear(context),
            is_left: context.is_over && !self.idle(context).is_empty(),
        }
    }

    fn may_clear(&self, context: &IntentContext) -> bool {
        if planted(Bug::BitsClearedDegraded) {
            return true;
        }
        context.may_clear
    }

    /// Whether superblocks wait for members' bitmaps: a bitmap lacks the event count, or a member
    /// lacks the bitmap.
    pub(in super::super) fn is_behind(
        &self,
        events: u64,
        mut members: impl Iterator<Item = MemberId>,
    ) -> bool {
        if planted(Bug::BitmapBehind) {
            return false;
        }
        let is_behind = self.imaged.is_empty()
            || self.head_written.events < events
            || self.area != AreaContent::Sound;
        is_behind || members.any(|member| !self.imaged.contains(&member))
    }

    /// For a member that left the array at this event count: the bits of all sectors that the
    /// member may lack. `None` if such bits may have been cleared since. No bit is cleared while a
    /// member is away.
    pub(in super::super) fn missed_since(&self, events: u64) -> Option<&Bits> {
        // md keeps no `events_cleared` for a lockless bitmap, and writes 0.
        let is_counted = self.lockless.is_none() || self.head.events_cleared > 0;
        let knows = is_counted && events >= self.head.events_cleared;
        let knows = spoiled(Bug::ClearedSinceIgnored, knows, true);
        knows.then_some(&self.says)
    }

    pub(in super::super) fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// Whether a write of members' bitmaps is in flight, or shards still finish writes under
    /// closing bits.
    pub(in super::super) fn is_at_work(&self) -> bool {
        self.is_out() || matches!(self.sweep, Sweep::Draining | Sweep::Flushing)
    }

    /// Notes that a shard wants to write under these bits.
    pub(in super::super) fn is_wanted(&mut self, bits: Range<u64>) {
        for bit in bits.start..bits.end.min(self.says.count()) {
            self.closing.clear(bit);
            if self.open.is_set(bit) {
                continue; // The view with the open bit is on its way.
            }
            self.says.set(bit);
            if let Some(lockless) = &mut self.lockless {
                lockless.is_wanted(bit);
            }
            if self.durable.is_set(bit) {
                reached(Mark::BitOpensAgain);
                let none = Bits::none(self.says.sectors(), self.says.sectors_each());
                self.granted.get_or_insert(none).set(bit);
            } else {
                reached(Mark::BitIsWanted);
                self.wanted.set(bit);
            }
        }
    }

    /// Notes that a client has trimmed a range of the array.
    pub(in super::super) fn is_trimmed(
        &mut self,
        geometry: &Geometry,
        start: LogicalSector,
        sectors: u32,
    ) {
        let Some(lockless) = &mut self.lockless else { return };
        lockless.gives_up(start.0..start.0 + u64::from(sectors));
        for mark in self.says.of(&resync_range(geometry, start, sectors)) {
            let stands_for = sectors_of_resync(geometry, &self.says.sectors_of(mark));
            lockless.look_at(mark, &stands_for);
        }
    }

    /// Notes that a client writes under these marks, perhaps to trimmed sectors.
    pub(in super::super) fn is_written_again(&mut self, geometry: &Geometry, marks: Range<u64>) {
        let Some(lockless) = &mut self.lockless else { return };
        for mark in marks.start..marks.end.min(self.says.count()) {
            let stands_for = sectors_of_resync(geometry, &self.says.sectors_of(mark));
            lockless.takes_back(mark, &stands_for);
        }
    }

    /// Begins a write of every member's bitmap. Returns the record for each member.
    pub(in super::super) fn write(
        &mut self,
        members: impl Iterator<Item = MemberId>,
        context: &IntentContext,
    ) -> Vec<(MemberId, Arc<BitmapRecord>)> {
        assert!(self.out.is_none(), "one write at a time");
        let mut head = self.head;
        // The bitmap's event count never steps back when the superblocks' count does: a member may
        // have the higher count.
        head.events = self.head_written.events.max(context.events);
        let bits = Arc::new(self.says.clone());
        let mut changed = self.written.difference(&bits);
        let news = self.lockless.as_mut().map(Lockless::write);
        let marks = news.map(|(marks, news)| {
            changed = around(changed.clone(), news);
            marks
        });
        let has_new_head = head != self.head_written || self.area != AreaContent::Sound;
        let is_in_the_making = self.area == AreaContent::Void;
        self.durable.intersect(&bits);
        self.is_stale = false;
        let imaged = &self.imaged;
        let record = |is_whole: bool| {
            let bits = Arc::clone(&bits);
            let (changed, marks) = (changed.clone(), marks.clone());
            Arc::new(BitmapRecord {
                head,
                bits,
                marks,
                changed,
                has_new_head,
                is_whole,
                is_in_the_making,
            })
        };
        let (part, whole) = (record(false), record(true));
        let image = |member: MemberId| match imaged.contains(&member) {
            true => (member, Arc::clone(&part)),
            false => (member, Arc::clone(&whole)),
        };
        let records: Vec<_> = members.map(image).collect();
        let missing: BTreeSet<MemberId> = records.iter().map(|(member, _)| *member).collect();
        // A member that misses a write no longer has the whole bitmap.
        self.imaged.retain(|member| missing.contains(member));
        self.out = Some(BitmapWrite { bits, marks, head, missing, has_failed: false });
        records
    }

    /// Notes the end of a member's bitmap write. After the last member's write, bits are durable.
    pub(in super::super) fn is_written(&mut self, now: Instant, member: MemberId, is_well: bool) {
        let out = self.out.as_mut().expect("a bitmap that was being written");
        let was_missing = out.missing.remove(&member);
        assert!(was_missing, "it was being written");
        if is_well {
            self.imaged.insert(member);
        } else {
            self.imaged.remove(&member);
            out.has_failed = true;
        }
        if !out.missing.is_empty() {
            return;
        }
        let BitmapWrite { bits, marks, head, has_failed, .. } = self.out.take().expect("just seen");
        self.head_written = head;
        self.durable = Bits::clone(&bits);
        if let Some((lockless, marks)) = self.lockless.as_mut().zip(marks) {
            lockless.is_written(marks, &mut self.durable);
        }
        self.written = bits;
        self.area = match self.area {
            AreaContent::Sound => AreaContent::Sound,
            _ if has_failed => AreaContent::Void,
            AreaContent::Void => AreaContent::Made,
            AreaContent::Made => AreaContent::Sound,
        };
        if self.area != AreaContent::Sound {
            reached(Mark::StaleBitmapMade);
            self.durable = self.empty();
            self.is_stale = true;
            return self.rest(now);
        }
        let mut granted = self.wanted.clone();
        granted.intersect(&self.durable);
        self.wanted.subtract(&granted);
        if !granted.is_empty() {
            match &mut self.granted {
                Some(before) => before.join(&granted),
                None => self.granted = Some(granted),
            }
        }
        self.rest(now);
    }

    /// Opens durable bits that shards wait for.
    pub(in super::super) fn open(&mut self) {
        let granted = self.granted.take().expect("some are to be opened");
        assert!(
            granted.iter().all(|bit| self.durable.is_set(bit) && self.says.is_set(bit)),
            "I3: a bit is durable before shards write under it"
        );
        Arc::make_mut(&mut self.open).join(&granted);
        self.touched.join(&granted);
    }

    /// Sets the time of the next sweep.
    fn rest(&mut self, now: Instant) {
        let interval_ms = u64::from(self.head.daemon_sleep_seconds) * 1000;
        if !self.says.is_empty() {
            self.next_sweep.get_or_insert(now.plus_milliseconds(interval_ms));
        }
    }

    fn is_over(&mut self, now: Instant) {
        self.sweep = Sweep::Rest;
        self.next_sweep = None;
        self.rest(now);
    }

    /// Asks shards for the bits of their writes since the last query.
    pub(in super::super) fn ask(&mut self, shards: BTreeSet<ShardIndex>) {
        assert_eq!(self.sweep, Sweep::Rest, "one sweep at a time");
        self.sweep = Sweep::Asking;
        self.unanswered = shards;
        self.touched = self.empty();
        if let Some(lockless) = &mut self.lockless {
            lockless.gather();
        }
    }

    fn empty(&self) -> Bits {
        Bits::none(self.says.sectors(), self.says.sectors_each())
    }

    /// Takes a shard's answer: the bits of its writes since the last query.
    pub(in super::super) fn is_touched(&mut self, shard: ShardIndex, touched: &Bits) {
        self.touched.join(touched);
        if self.unanswered.remove(&shard) && self.unanswered.is_empty() {
            assert_eq!(self.sweep, Sweep::Asking, "shards were asked");
            self.sweep = Sweep::Asked;
        }
    }

    /// Takes back from shards the bits that no write needed. True if there were any such bits.
    pub(in super::super) fn revoke(
        &mut self,
        now: Instant,
        shards: BTreeSet<ShardIndex>,
        context: &IntentContext,
    ) -> bool {
        assert_eq!(self.sweep, Sweep::Asked, "shards have said where they wrote");
        let mut idle = self.idle(context);
        idle.subtract(&self.touched);
        if idle.is_empty() {
            self.is_over(now);
            return false;
        }
        reached(Mark::BitsAreRevoked);
        Arc::make_mut(&mut self.open).subtract(&idle);
        self.closing = idle;
        self.revocation += 1;
        self.unanswered = shards;
        self.sweep = Sweep::Draining;
        true
    }

    /// Bits that no shard waits for, and whose sectors need no resync.
    fn idle(&self, context: &IntentContext) -> Bits {
        let mut idle = self.says.clone();
        idle.subtract(&self.wanted);
        idle.subtract(&self.in_doubt(context));
        idle.subtract(self.granted.as_ref().unwrap_or(&self.wanted));
        if let Some(lockless) = &self.lockless {
            // Trimmed runs need no resync before their bits are cleared.
            let mut unsynced = lockless.unsynced().clone();
            unsynced.subtract(lockless.trimmed_marks());
            idle.subtract(&unsynced);
        }
        idle
    }

    /// Bits whose sectors still need a resync.
    fn in_doubt(&self, context: &IntentContext) -> Bits {
        let mut doubt = match &self.doubt {
            Some(doubt) => Bits::clone(doubt),
            None => Bits::all(self.says.sectors(), self.says.sectors_each()),
        };
        let agreeing = doubt.of(&(0..context.resync_offset.min(doubt.sectors())));
        // Only a part of the last bit's sectors may be in sync.
        let is_whole =
            context.resync_offset >= doubt.sectors_of(agreeing.end.saturating_sub(1)).end;
        let end = if is_whole { agreeing.end } else { agreeing.end.saturating_sub(1) };
        (0..end).for_each(|bit| doubt.clear(bit));
        doubt
    }

    /// Notes that a shard's writes from before this revocation have ended.
    pub(in super::super) fn is_drained(&mut self, shard: ShardIndex, revocation: u64) {
        if revocation == self.revocation
            && self.sweep == Sweep::Draining
            && self.unanswered.remove(&shard)
            && self.unanswered.is_empty()
        {
            self.sweep = Sweep::Drained;
        }
    }

    pub(in super::super) fn flush_begins(&mut self) {
        assert_eq!(self.sweep, Sweep::Drained, "I5: nothing is under way under closing bits");
        self.sweep = Sweep::Flushing;
    }

    /// Called when members are flushed: clears the bits that are still closing.
    pub(in super::super) fn is_flushed(&mut self, now: Instant, context: &IntentContext) {
        assert_eq!(self.sweep, Sweep::Flushing, "members were being flushed");
        if self.may_clear(context) && !self.closing.is_empty() {
            reached(Mark::BitsAreCleared);
            let closing = self.closing.clone();
            self.clear(&closing, context);
        }
        self.is_over(now);
    }

    fn clear(&mut self, bits: &Bits, context: &IntentContext) {
        self.says.subtract(bits);
        if let Some(lockless) = &mut self.lockless {
            // A write in a run that becomes unwritten waits for the run's new mark.
            self.durable.subtract(&lockless.become_unwritten(bits));
        }
        self.head.events_cleared = context.events;
        self.is_stale = true;
    }

    /// Clears all bits that are not in doubt, while no write is in flight and all writes are
    /// flushed.
    pub(in super::super) fn clear_all(&mut self, context: &IntentContext) {
        let idle = self.idle(context);
        Arc::make_mut(&mut self.open).subtract(&idle);
        self.closing = self.empty();
        self.clear(&idle, context);
    }

    /// Ends a sweep that can clear no bits for now.
    pub(in super::super) fn forget(&mut self, now: Instant) {
        self.closing = self.empty();
        self.is_over(now);
    }

    /// The next time at which the bitmap acts without an event.
    pub(in super::super) fn poll_timeout(&self, context: &IntentContext) -> Option<Instant> {
        let is_resting = self.sweep == Sweep::Rest && self.may_clear(context);
        self.next_sweep.filter(|_| is_resting)
    }
}
