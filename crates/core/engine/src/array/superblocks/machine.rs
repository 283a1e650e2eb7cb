//! The state of superblocks: the durable content, and the update in flight.
//!
//! ```text
//!   begin ─▶ Behind ─ bitmaps and logs ─▶ wave ─ durable ─▶ wave ─ … ─▶ complete: it counts
//!                                           └─ out of date ─▶ drop: the next records the rest
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, planted};

use super::decide::Stage;
use crate::array::consistency::{Consistency, ConsistencyRecord, News, PendingUpdate};
use crate::array::effect::{ArrayEffect, MetadataRecord, Notice};
use crate::array::event_count::{EventChange, Events};
use crate::array::fixed::Setup;
use crate::array::order::Activity;
use crate::array::outbox::Outbox;
use crate::array::pending_shape::PendingShape;
use crate::array::roster::{Roster, UnrecordedLoss};
use crate::array::update::{ShapeState, SuperblockState};
use crate::array::waves::next_wave;
use crate::ids::MemberId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum UpdateReason {
    /// A step between clean and active.
    Activity,
    /// A member is out, or was away.
    Devices,
    /// A job has progressed, or a newcomer has failed.
    Changes,
    /// The last update is written a second time ([`crate::array::event_count`]).
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WaveOrder {
    First,
    Between,
    Last,
}

/// The progress of the driver's record of a loss, or of its consent to an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordProgress {
    No,
    Asked,
    Done,
}

/// An update in flight. Members in `later` get it when all members in `missing` have it durably.
#[derive(Debug)]
struct Update {
    /// Whether the update's first superblock was submitted.
    has_begun: bool,
    /// Whether a power cut can tear the update's superblocks.
    may_tear: bool,
    missing: BTreeSet<MemberId>,
    later: BTreeSet<MemberId>,
    state: Arc<SuperblockState>,
    becomes: Activity,
    /// The kind of the update, as far as it matters for logs; fixed when the update begins.
    news: News,
    /// Whether the update repeats the previous update, with one event more.
    again: bool,
    /// The outbox's count of changes ([`Outbox::changes`]) when the update began.
    changes: u64,
    /// The member whose superblock is written before all others.
    first: Option<MemberId>,
    /// Members whose superblocks are written after all others.
    last: BTreeSet<MemberId>,
    /// Members that the update records in slots, and that shards do not see yet.
    newcomers: Vec<MemberId>,
    /// Whether the bitmap file was no longer written when the update began: then the update's event
    /// count exceeds the file's.
    leaves_file: bool,
    /// Whether the driver's record has the update's loss, if the driver keeps a record.
    record: RecordProgress,
    /// Whether the driver agrees to the update, if the driver must agree.
    consent: RecordProgress,
}

/// The content of an update, without members and events.
#[derive(Debug)]
pub(in crate::array) struct UpdateContent {
    pub(in crate::array) becomes: Activity,
    pub(in crate::array) why: UpdateReason,
    pub(in crate::array) resync_offset: u64,
    /// Members whose bad-block logs were written, and whether each log names any range.
    pub(in crate::array) bad_blocks: Arc<[(MemberId, bool)]>,
    pub(in crate::array) consistency: ConsistencyRecord,
    pub(in crate::array) changes: u64,
    /// The array's shape; `None` keeps each superblock's statement.
    pub(in crate::array) shape: Option<Arc<ShapeState>>,
}

/// The effects of an update that is durable.
#[derive(Debug)]
pub(in crate::array) struct UpdateResult {
    pub(in crate::array) becomes: Activity,
    pub(in crate::array) losses: Vec<UnrecordedLoss>,
    pub(in crate::array) newcomers: Vec<MemberId>,
    /// Whether the update repeated the last one, except for losses and newcomers.
    pub(in crate::array) is_again: bool,
    pub(in crate::array) leaves_file: bool,
    /// Members that superblocks record as up to date since this update.
    pub(in crate::array) recovered: Vec<(MemberId, Slot)>,
}

/// The array's facts that decide the stage of an update.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) struct StageFacts {
    pub(in crate::array) broken: bool,
    /// Whether the update waits for bitmaps or logs.
    pub(in crate::array) is_held_up: bool,
    pub(in crate::array) journal: Option<MemberId>,
}

#[derive(Debug)]
pub(in crate::array) struct Superblocks {
    /// The content of every member's superblock; `None` before the first update of this run.
    told: Option<Arc<SuperblockState>>,
    events: Events,
    on_disk: Activity,
    update: Option<Update>,
    /// Whether superblocks take more than one sector, so that a power cut can tear them.
    tear: bool,
    /// Whether the driver keeps a record, outside the members, of the members that are in the
    /// array.
    keeps_record: bool,
    /// Whether the driver must agree to each update before the first superblock is written.
    gives_consent: bool,
    /// Whether the last update of this run was written once, and must be written a second time.
    said_once: bool,
    /// Whether the array was found dirty without some of its members, and no superblock records
    /// their absence yet.
    absent: bool,
    /// The count of changes that superblocks record ([`Outbox::changes`]).
    changes: u64,
    /// Members that have been recovered in their slots, until superblocks record their recovery.
    recovered: Vec<(MemberId, Slot)>,
}

impl Superblocks {
    /// Starts from durable superblocks with this event count and state.
    pub(in crate::array) fn new(events: u64, on_disk: Activity, absent: bool, tear: bool) -> Self {
        Self {
            told: None,
            events: Events::new(events),
            on_disk,
            update: None,
            tear,
            keeps_record: false,
            gives_consent: false,
            said_once: false,
            absent,
            changes: 0,
            recovered: Vec::new(),
        }
    }

    /// The event count of the superblocks, or of the update in flight.
    pub(in crate::array) fn events(&self) -> u64 {
        self.events.count()
    }

    pub(in crate::array) fn on_disk(&self) -> Activity {
        self.on_disk
    }

    /// Whether no superblock records the members that were absent when the array was opened.
    pub(in crate::array) fn absent_untold(&self) -> bool {
        self.absent
    }

    /// Whether superblocks record all these changes ([`Outbox::changes`]).
    pub(in crate::array) fn tell_all(&self, changes: u64) -> bool {
        self.changes == changes
    }

    pub(in crate::array) fn are_settled(&self) -> bool {
        self.update.is_none()
    }

    /// The update whose first superblock is not written yet.
    pub(in crate::array) fn awaiting(&self) -> Option<PendingUpdate> {
        let update = self.update.as_ref().filter(|update| !update.has_begun)?;
        Some(PendingUpdate { events: update.state.events, news: update.news })
    }

    pub(in crate::array) fn stage(&self, roster: &Roster, facts: StageFacts) -> Stage {
        let Some(update) = &self.update else { return Stage::Free };
        let StageFacts { broken, is_held_up, journal } = facts;
        if !broken && is_held_up {
            return Stage::Behind;
        }
        if !broken && self.gives_consent && !update.has_begun {
            match update.consent {
                RecordProgress::No => return Stage::Unconsented,
                RecordProgress::Asked => return Stage::Out,
                RecordProgress::Done => {}
            }
        }
        if !update.missing.is_empty() {
            return Stage::Out;
        }
        // The device of a new journal failed before any member's superblock named it.
        if update.state.journal.map(|said| said.member) != journal {
            return Stage::Outdated;
        }
        let targets = roster.update_targets(true).collect();
        let is_last = update.later.is_disjoint(&targets);
        // An update must exceed the lost member's event count, or else is written once more.
        let is_behind = roster.has_unrecorded() && !self.events.are_beyond_the_lost();
        match () {
            () if !is_last && !broken => Stage::WaveDurable,
            // If a lost member with data cannot be recorded, nothing counts as recorded: no write
            // that another member missed is acknowledged (I4).
            () if broken || is_behind || !roster.records_all() => Stage::Outdated,
            () if self.keeps_record && roster.has_unrecorded() => match update.record {
                RecordProgress::No => Stage::Unkept,
                RecordProgress::Asked => Stage::Out,
                RecordProgress::Done => Stage::Durable,
            },
            () => Stage::Durable,
        }
    }

    /// Whether the last update must be written a second time.
    pub(in crate::array) fn are_said_once(&self) -> bool {
        self.said_once
    }

    /// Notes whether a new member's superblock takes more than one sector.
    pub(in crate::array) fn may_tear(&mut self, tears: bool) {
        self.tear |= tears;
    }

    /// Sets whether the driver keeps a record, outside the members, of the members that are in the
    /// array.
    pub(in crate::array) fn keep_record(&mut self, keeps: bool) {
        self.keeps_record = keeps;
    }

    /// Sets whether the driver must agree to each update before the first superblock is written.
    pub(in crate::array) fn ask_for_consent(&mut self, asks: bool) {
        self.gives_consent = asks;
    }

    /// Notes that the driver agrees to the update with the count `events`.
    pub(in crate::array) fn are_agreed_to(&mut self, events: u64) {
        if let Some(update) = self.update.as_mut().filter(|one| one.state.events == events) {
            update.consent = RecordProgress::Done;
        }
    }

    /// Notes that the driver's record is durable: it names the members that have the update with
    /// the count `events`.
    pub(in crate::array) fn record_has(&mut self, events: u64) {
        // If another member was lost meanwhile, the next update records that loss.
        if let Some(update) = self.update.as_mut().filter(|one| one.state.events == events) {
            update.record = RecordProgress::Done;
        }
    }

    pub(in crate::array) fn is_written(&mut self, member: MemberId) {
        let update = self.update.as_mut().expect("superblocks are being written");
        assert!(update.missing.remove(&member), "this superblock was not asked for");
    }

    /// Notes that the member in `slot` is up to date, which superblocks do not record yet.
    pub(in crate::array) fn is_recovered(&mut self, member: MemberId, slot: Slot) {
        self.recovered.push((member, slot));
    }

    pub(in crate::array) fn begin(
        &mut self,
        content: UpdateContent,
        roster: &mut Roster,
        pending: &PendingShape,
    ) {
        let UpdateContent {
            becomes,
            why,
            resync_offset,
            bad_blocks,
            consistency: said,
            changes,
            shape,
        } = content;
        assert_ne!(becomes, Activity::NotKept, "an array without redundancy says nothing");
        let clean = becomes == Activity::Clean;
        let degraded = roster.missing_count() > 0 || roster.recovering().next().is_some();
        let in_sync = resync_offset == u64::MAX;
        // A journal holds all writes, so that no other sectors are in doubt, and superblocks say
        // clean.
        let says_clean = clean || in_sync && said.journal.is_some();
        // A bitmap file is believed by its event count, which must never equal the array's count
        // from a time without the file.
        let is_named = !said.is_in_file;
        let spares_too = self.events.advance(EventChange {
            devices: matches!(why, UpdateReason::Devices | UpdateReason::Changes),
            degraded,
            // A change of shape gives spares a slot. If such a spare slept and missed "clean", the
            // array would start dirty.
            spare_sleeps: roster.has_spares() && is_named && !pending.is_there(),
            to_clean_and_in_sync: why == UpdateReason::Activity && clean && in_sync,
        });
        let state = Arc::new(SuperblockState {
            events: self.events.count(),
            resync_offset: if says_clean { resync_offset } else { 0 },
            roles: pending.roles(roster.device_roles()).into(),
            recovered: pending.unfinished(roster),
            bad_blocks,
            log_counts: said.log_counts,
            has_bitmap: said.has_bitmap,
            ppls: said.ppls,
            journal: said.journal,
            shape,
        });
        roster.update_begins();
        // If the table of devices is the same, only the first sector changes, and a device writes a
        // sector whole.
        let has_table = self.told.as_ref().is_some_and(|told| told.has_table_of(&state));
        let mut last = roster.told_last();
        last.retain(|member| Some(*member) != said.first);
        if planted(Bug::NewcomerFirst) {
            last.clear();
        }
        assert!(self.update.is_none(), "one update at a time");
        self.update = Some(Update {
            has_begun: false,
            may_tear: self.tear && !has_table,
            missing: BTreeSet::new(),
            later: roster.update_targets(spares_too || pending.is_there()).collect(),
            first: said.first,
            last,
            state,
            becomes,
            news: said.news,
            again: why == UpdateReason::Again,
            changes,
            newcomers: roster.newcomers().collect(),
            leaves_file: said.leaves_file,
            record: RecordProgress::No,
            consent: RecordProgress::No,
        });
        if planted(Bug::GateEarly) && why == UpdateReason::Activity && becomes == Activity::Active {
            self.on_disk = becomes;
        }
    }

    /// Writes the next wave: as many of the remaining members as may tear at once, without members
    /// that failed since the update began. True if the wave had only the member that must be first.
    pub(in crate::array) fn write_next_wave(
        &mut self,
        setup: &Setup,
        roster: &Roster,
        out: &mut Outbox,
    ) -> bool {
        let targets = roster.update_targets(true).collect();
        let update = self.update.as_mut().expect("superblocks are being written");
        assert!(update.missing.is_empty(), "a wave comes when the one before is durable");
        let slot_of = |member: MemberId| (roster.slot_of(member), member);
        let turn = |member: &MemberId| match () {
            () if update.first == Some(*member) => WaveOrder::First,
            () if update.last.contains(member) => WaveOrder::Last,
            () => WaveOrder::Between,
        };
        let waiting = || update.later.intersection(&targets).copied();
        let soonest = waiting().map(|member| turn(&member)).min().expect("there is a next wave");
        let (now, then): (Vec<_>, Vec<_>) = waiting().partition(|one| turn(one) == soonest);
        let mut waiting: Vec<_> = now.into_iter().map(slot_of).collect();
        // Older superblocks do not record a member's recovery that ended a moment ago.
        let was_lost = |slot: Slot| self.recovered.iter().any(|(_, recovered)| *recovered == slot);
        let is_lost = |slot: Slot| roster.is_lost(slot) || was_lost(slot);
        let wave: Vec<MemberId> = match update.may_tear {
            true => {
                let slots = setup.geometry.slots();
                next_wave((slots, &|lost| setup.survives(lost)), &is_lost, &mut waiting)
            }
            false => waiting.drain(..).map(|(_, member)| member).collect(),
        };
        assert!(!wave.is_empty(), "there is a next wave");
        update.has_begun = true;
        update.missing.extend(wave);
        update.later = waiting.into_iter().map(|(_, member)| member).chain(then).collect();
        out.extend(update.missing.iter().map(|member| {
            let record = MetadataRecord::Superblock(Arc::clone(&update.state));
            ArrayEffect::WriteMetadata { member: *member, record }
        }));
        soonest == WaveOrder::First
    }

    /// Ends a durable update. The activity that the update records is on disk, whatever has
    /// happened meanwhile.
    fn end(&mut self, consistency: &mut Consistency) -> Update {
        let update = self.update.take().expect("superblocks were being written");
        assert!(update.missing.is_empty(), "every superblock that was asked for has ended");
        if update.has_begun {
            consistency.update_ends(update.news, update.state.journal);
            self.told = Some(Arc::clone(&update.state));
            self.on_disk = update.becomes;
        }
        update
    }

    /// Drops an update that is out of date. No published view lacks the lost members yet; the next
    /// update records the remaining losses.
    pub(in crate::array) fn drop_update(&mut self, consistency: &mut Consistency) {
        self.end(consistency);
    }

    /// Asks the driver to agree to the update.
    pub(in crate::array) fn ask_driver(&mut self, out: &mut Outbox) {
        let update = self.update.as_mut().expect("an update is agreed to");
        assert_eq!(update.consent, RecordProgress::No, "it is asked for once");
        update.consent = RecordProgress::Asked;
        out.push(ArrayEffect::AskConsent { state: Arc::clone(&update.state) });
    }

    /// Asks the driver to record the members that have the update, before any write relies on it.
    pub(in crate::array) fn ask_for_record(&mut self, out: &mut Outbox) {
        let update = self.update.as_mut().expect("an update is kept");
        assert_eq!(update.record, RecordProgress::No, "it is asked for once");
        update.record = RecordProgress::Asked;
        out.push(ArrayEffect::KeepRecord { events: update.state.events });
    }

    /// Completes an update that is current, and returns its effects.
    pub(in crate::array) fn complete(
        &mut self,
        roster: &mut Roster,
        consistency: &mut Consistency,
        out: &mut Outbox,
    ) -> UpdateResult {
        let Update { state, becomes, again, changes, newcomers, last, leaves_file, .. } =
            self.end(consistency);
        roster.are_named(&last);
        assert!(roster.records_all(), "I4: the update tells of every loss");
        let losses = roster.take_unrecorded();
        let is_beyond = losses.is_empty() || self.events.are_beyond_the_lost();
        assert!(is_beyond, "I4: the survivors count more events than the lost");
        self.events.note_on_every_member();
        out.notice(Notice::Recorded { events: self.events.count() });
        self.said_once = !again;
        self.absent = false;
        let is_moved = changes != self.changes;
        self.changes = changes;
        // If an update began before a member's recovery ended, it does not record that member as up
        // to date.
        let is_said = |(member, _): &mut (MemberId, Slot)| {
            state.recovered.iter().all(|(unfinished, _)| unfinished != member)
        };
        let recovered = self.recovered.extract_if(.., is_said).collect();
        let is_again = again && !is_moved;
        UpdateResult { becomes, losses, newcomers, is_again, leaves_file, recovered }
    }
}
