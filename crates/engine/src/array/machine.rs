//! The state of the control machine, and the events that change what is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_geometry::{Family, Geometry, Slot};
use braid_hooks::{Bug, Mark, planted, reached, spoiled};

use super::bad_logs::BadLogs;
use super::bitmap_record::BitmapLook;
use super::consistency::{Consistency, JournalLook, NewBitmap, News};
use super::effect::{ArrayEffect, MetadataArea, Notice};
use super::event_count::Events;
use super::jobs::{JobAllowance, JobFlow, JobProgress, JobRequest, Jobs};
use super::order::{Activity, FlushPurpose};
use super::outbox::Outbox;
use super::read_errors::Errors;
use super::refusals::{BitmapRefusal, LogRefusal, MemberRefusal};
use super::roster::{Roster, Wish};
use super::set::Set;
use super::setup::{
    AcceptedRisk, ArraySetup, JournalSetup, MemberSetup, ReplacementSetup, Returns, SpareSetup,
};
use super::sitting_out::SittingOut;
use super::update::SuperblockState;
use super::view::MemberView;
use crate::Instant;
use crate::cause::Cause;
use crate::effect::{MemberFault, Report};
use crate::ids::{MemberId, RequestId, ShardIndex};
use crate::ranges::BadRange;
use crate::request::Regions;
use braid_ondisk::{LogPlace, OwnLogPlace};

/// The control machine of one array.
#[derive(Debug)]
pub struct Array {
    pub(super) geometry: Arc<Geometry>,
    pub(super) setup: Setup,
    pub(super) roster: Roster,
    /// What every member's superblock says, once an update of this run is through.
    pub(super) told: Option<Arc<SuperblockState>>,
    pub(super) events: Events,
    pub(super) condition: Condition,
    /// The update that is being written.
    pub(super) update: Option<Update>,
    /// A record is kept, beside members, of which of them are in.
    pub(super) keeps_record: bool,
    /// What members' caches are being flushed for.
    pub(super) flushing: Option<FlushPurpose>,
    pub(super) flushes: Flushes,
    pub(super) closing: Closing,
    pub(super) sitting_out: SittingOut,
    pub(super) read_errors: Errors,
    pub(super) jobs: Jobs,
    pub(super) bad_logs: BadLogs,
    pub(super) consistency: Consistency,
    /// Members that have been recovered in their slots, until superblocks say so.
    pub(super) recovered: Vec<(MemberId, Slot)>,
    pub(super) out: Outbox,
}

/// What never changes while the array is open.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) regions: Regions,
    pub(super) work_sectors: u32,
    pub(super) zero_is_fast: bool,
    pub(super) clean_delay_ms: u64,
    pub(super) superblocks_tear: bool,
    pub(super) accepted_risk: Option<Arc<AcceptedRisk>>,
}

/// Superblocks that are being written, or are to be. `later` are when all of `missing` are durable.
#[derive(Debug)]
pub(super) struct Update {
    /// A superblock was asked for.
    pub(super) has_begun: bool,
    /// A power cut can tear them.
    pub(super) may_tear: bool,
    pub(super) missing: BTreeSet<MemberId>,
    pub(super) later: BTreeSet<MemberId>,
    pub(super) state: Arc<SuperblockState>,
    pub(super) becomes: Activity,
    /// What it tells parity logs, whatever changes while it is written.
    pub(super) news: News,
    /// What it says was said before, with one event less.
    pub(super) again: bool,
    /// [`Outbox::changes`] when it was made.
    pub(super) changes: u64,
    /// Whose turn comes before all others'.
    pub(super) first: Option<MemberId>,
    /// Members whose turn comes when all others have it.
    pub(super) last: BTreeSet<MemberId>,
    /// Members that it says are in slots, and that shards do not know yet.
    pub(super) newcomers: Vec<MemberId>,
    /// The bitmap file was written no more when it was made: it counts beyond what the file has.
    pub(super) leaves_file: bool,
    /// Whether the record has the loss that it tells of, if there is a record.
    pub(super) kept: Kept,
}

/// How far the record of a loss is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    No,
    Asked,
    Done,
}

/// Where the array stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    /// Where redundancy agrees up to; `u64::MAX` when everywhere.
    pub(super) resync_offset: u64,
    /// Changes that superblocks tell ([`Outbox::changes`]).
    pub(super) changes_recorded: u64,
    /// What durable superblocks say.
    pub(super) on_disk: Activity,
    /// A shard waits for the gate.
    pub(super) write_wanted: bool,
    /// The last update of this run was written once; a second time is due.
    pub(super) said_once: bool,
    /// The array was found dirty without some of its members, and no superblock says so yet.
    pub(super) absent_unrecorded: bool,
    pub(super) read_only: bool,
    pub(super) broken: bool,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
    pub(super) epoch: u64,
}

/// Clients' flushes, and what they are about.
///
/// ```text
///   queue ──every shard writes back──▶ written back ──members flush──▶ answered
/// ```
#[derive(Debug, Default)]
pub(super) struct Flushes {
    pub(super) queue: Vec<RequestId>,
    /// Those whose round of writing back is under way or over.
    pub(super) written_back: Vec<RequestId>,
    /// Shards that have not yet told that the round is over.
    pub(super) unwritten: Set<ShardIndex>,
    pub(super) round: u64,
    pub(super) running: Vec<RequestId>,
    pub(super) failed: bool,
    /// A write that had been answered was lost. It is not known whose it was, so no flush is answered
    /// well from then on.
    pub(super) lost: bool,
    /// Members that have been written since their last flush began.
    pub(super) unflushed: Set<MemberId>,
    /// Members that are being flushed.
    pub(super) missing: Set<MemberId>,
}

/// The way from active back to clean.
#[derive(Debug, Default)]
pub(super) struct Closing {
    pub(super) next_look: Option<Instant>,
    /// Shards that have not yet told their activity; none when no shard was asked.
    pub(super) asked: BTreeSet<ShardIndex>,
    /// One of them had a write not long ago.
    pub(super) busy: bool,
    /// None of them had.
    pub(super) idle: bool,
    /// Shards that have not yet confirmed the closed gate, while it is being closed.
    pub(super) unconfirmed: Option<BTreeSet<ShardIndex>>,
    /// A write that one of them has under way waits for others that wait for the gate.
    pub(super) is_held_up: bool,
    /// The final flush of an array that keeps no intent is done.
    pub(super) last_flush_done: bool,
    /// The last round of writing back of a broken array has been asked for: it comes before the array
    /// says that it has stopped.
    pub(super) last_round: bool,
}

impl Array {
    /// The machine for an array as assembly found it; its first effect is the first view.
    ///
    /// # Panics
    /// When the setup contradicts its geometry: wrong number of slots, or too few members.
    #[must_use]
    pub fn new(mut setup: ArraySetup) -> Self {
        assert_eq!(setup.slots.len(), usize::from(setup.geometry.slots()), "one entry per slot");
        let is_lost = |slot: Slot| {
            let member = &setup.slots[usize::from(slot.0)];
            member.as_ref().is_none_or(|member| member.recovered_sectors != u64::MAX)
        };
        assert!(setup.geometry.survives(&is_lost), "assembly lets no array through that lost data");
        let mut device_numbers: BTreeMap<MemberId, u16> =
            setup.spares.iter().map(|spare| (spare.id, spare.device_number)).collect();
        device_numbers.extend(setup.slots.iter().flatten().map(|m| (m.id, m.device_number)));
        // What was written before may be in their caches still.
        let mut flushes = Flushes::default();
        flushes.unflushed.extend(device_numbers.keys().copied());
        flushes.unflushed.extend(setup.replacements.iter().map(|one| one.member.id));
        let bad_logs = bad_logs(&setup);
        let consistency = Consistency::new(&mut setup);
        let slots = setup.slots.into_iter().map(|member| member.map(view_of));
        let spares = setup.spares.iter().map(|spare| spare.id).collect();
        let mut roster = Roster::new(slots.collect(), device_numbers, spares);
        roster.write_mostly = setup.write_mostly;
        // As md does: nobody is to replay again what was replayed, with somebody missing that is here now.
        let begins_anew = setup.journal.is_some_and(|journal| journal.is_used);
        if let Some(journal) = setup.journal {
            roster.has_journal(journal.member, journal.device_number);
        }
        for ReplacementSetup { slot, member } in setup.replacements {
            let number = member.device_number;
            roster.has_replacement(slot, view_of(member), number);
        }
        let recovering: Vec<Slot> = roster.recovering().map(|(slot, ..)| slot).collect();
        for slot in recovering {
            roster.holds_from_before(slot, consistency.held_unwritten(&setup.geometry, slot));
        }
        // Levels without redundancy have no "active": a crash leaves nothing to make consistent.
        let has_intent = setup.geometry.level().family() != Family::Direct;
        assert!(
            has_intent || consistency.bitmap().is_none(),
            "a bitmap says where redundancy may not agree"
        );
        let is_degraded = roster.missing_count() > 0;
        let is_dirty = has_intent && (setup.is_unclean || setup.resync_offset != u64::MAX);
        // Superblocks say active, and nothing is in doubt any more: what was replayed is not to be replayed at the next start.
        let is_settled = is_dirty && setup.resync_offset == u64::MAX;
        let mut array = Self {
            geometry: Arc::new(setup.geometry),
            setup: Setup {
                regions: setup.regions,
                work_sectors: setup.work_sectors,
                zero_is_fast: setup.zero_is_fast,
                clean_delay_ms: setup.clean_delay_ms,
                superblocks_tear: setup.superblocks_tear,
                accepted_risk: setup.accepted_risk.map(Arc::new),
            },
            roster,
            told: None,
            events: Events::new(setup.events),
            condition: Condition {
                resync_offset: setup.resync_offset,
                changes_recorded: 0,
                on_disk: if has_intent { Activity::Clean } else { Activity::NotKept },
                write_wanted: false,
                said_once: false,
                absent_unrecorded: is_dirty && is_degraded && !setup.read_only,
                read_only: setup.read_only,
                broken: false,
                stopping: false,
                stopped: false,
                epoch: 0,
            },
            update: None,
            keeps_record: false,
            flushing: None,
            flushes,
            closing: Closing::default(),
            sitting_out: SittingOut::new(),
            read_errors: Errors::new(),
            jobs: Jobs::new(setup.jobs_paused),
            bad_logs,
            consistency,
            recovered: Vec::new(),
            out: Outbox::default(),
        };
        array.out.change_if(begins_anew || is_settled);
        array.publish();
        array
    }

    /// Number of slots without a member.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.roster.missing_count()
    }

    /// The event count that the superblocks carry, or are about to.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.count()
    }

    /// Takes what a shard has to say.
    pub fn handle_report(&mut self, now: Instant, shard: ShardIndex, report: Report) {
        match report {
            Report::WantWrite => {
                reached(Mark::GateAsked);
                self.condition.write_wanted = true;
            }
            Report::HeldUp { epoch } => {
                let is_newest = epoch == self.condition.epoch;
                self.closing.is_held_up |= is_newest && self.closing.unconfirmed.is_some();
            }
            Report::MemberFailed { cause } => self.fail_member(cause),
            Report::Mended { member } => self.note_mended(now, member),
            Report::Pace { member, pace } => {
                // Nothing else hangs on it, and it comes often.
                return self.note_pace(now, shard, (member, pace));
            }
            Report::Found { id: _, found } => {
                if self.jobs.found(&found) {
                    self.out.notice(Notice::Found(found));
                }
            }
            Report::WorkDone { id, outcome } => self.work_done(now, id, outcome),
            Report::Unmade { id, member, start, sectors } => {
                let range = BadRange { start, sectors: u64::from(sectors) };
                return self.jobs.lacks(id, member, range);
            }
            Report::BadBlocksWritten { member, start, sectors } => {
                self.bad_logs.clear(member, BadRange { start, sectors: u64::from(sectors) });
                self.tell_bad_blocks(member);
            }
            Report::Unmended { cause, start, sectors } => {
                self.is_unmended(cause, BadRange { start, sectors: u64::from(sectors) });
            }
            Report::WantBits { .. }
            | Report::Touched { .. }
            | Report::Trimmed { .. }
            | Report::WrittenAgain { .. }
            | Report::Drained { .. }
            | Report::WantLog { .. }
            | Report::WantJournal { .. }
            | Report::LogOver { .. } => {
                let (consistency, ground, out) = self.consistency_and_ground();
                consistency.handle_report(shard, report, &ground, out);
            }
            Report::Lacking { start } => {
                return self.jobs.is_read(start, self.roster.ranges_ahead());
            }
            Report::MemberWritten { member } => {
                self.flushes.unflushed.insert(member);
            }
            Report::WrittenBack { round } => {
                assert!(round <= self.flushes.round, "no round is over before it is asked for");
                if round == self.flushes.round {
                    self.flushes.unwritten.remove(&shard);
                }
            }
            Report::WriteLost { start, sectors, cause } => {
                self.flushes.lost = true;
                let notice = Notice::WriteLost { start, sectors, cause };
                self.out.notice(notice);
            }
            Report::NotTaken { fault } => self.misses_write(fault),
            Report::ViewInForce { epoch } => {
                assert!(
                    epoch <= self.condition.epoch,
                    "no view is in force before it is published"
                );
                if epoch != self.condition.epoch {
                    reached(Mark::OldEpochConfirmed);
                }
                let is_newest = epoch == self.condition.epoch;
                let is_newest = spoiled(Bug::EpochIgnored, is_newest, true);
                if is_newest && let Some(unconfirmed) = &mut self.closing.unconfirmed {
                    unconfirmed.remove(&shard);
                }
            }
            Report::Activity { last_write, writing } => {
                let due = last_write.plus_milliseconds(self.setup.clean_delay_ms);
                self.closing.busy |= writing || due > now;
                if self.closing.asked.remove(&shard) && self.closing.asked.is_empty() {
                    self.all_have_reported(now);
                }
            }
        }
        self.step(now);
    }

    /// A member is gone for good though it may still take writes: a file that was deleted. A level
    /// without redundancy then takes none, since they would be lost without an error.
    pub fn handle_member_gone(&mut self, now: Instant, cause: Cause) {
        let is_direct = self.geometry.level().family() == Family::Direct;
        if is_direct && self.roster.slot_of(cause.member).is_some() {
            self.break_down(cause);
        } else {
            self.fail_member(cause);
        }
        self.step(now);
    }

    /// A device that is no member is to become one, under a name that none had: it waits as a spare, and gets the slot that is
    /// wanted, or another that has no member; or it replaces a member.
    ///
    /// # Errors
    /// The array takes no writes, or keeps nothing twice; the slot that it is wanted for has nothing to be replaced.
    pub fn handle_member_added(
        &mut self,
        now: Instant,
        newcomer: SpareSetup,
        wanted: Option<Wish>,
    ) -> Result<(), MemberRefusal> {
        self.may_change_members()?;
        if let Some(Wish { slot, replaces: true }) = wanted {
            let member = self.roster.slots.get(usize::from(slot.0)).and_then(Option::as_ref);
            self.may_replace(member.map(|member| member.id).ok_or(MemberRefusal::NoMember)?)?;
            reached(Mark::ReplacementWanted);
        }
        if !self.consistency.may_come(&newcomer) {
            return Err(MemberRefusal::Changing);
        }
        reached(Mark::MemberAdded);
        let SpareSetup { id, device_number, bad_log_sectors, tears, .. } = newcomer;
        self.consistency.waits(&newcomer);
        self.roster.join(id, device_number, wanted);
        self.bad_logs.keep_blank(id, bad_log_sectors);
        self.setup.superblocks_tear |= tears;
        self.out.change();
        self.step(now);
        Ok(())
    }

    /// The lowest place in the superblocks' role table that is free.
    #[must_use]
    pub fn free_device_number(&self) -> u16 {
        self.roster.free_number()
    }

    /// Sectors that a member which comes back would not have to be recovered, if it got its slot now: what no bit of the bitmap names.
    #[must_use]
    pub fn would_keep(&self, returns: Returns) -> u64 {
        self.consistency.would_keep(&self.geometry, returns)
    }

    /// Its write-intent bitmap, if it keeps one.
    #[must_use]
    pub fn bitmap(&self) -> Option<BitmapLook> {
        self.consistency.bitmap()
    }

    /// The bitmap file that has its bitmap, and our own parity log if there is one.
    #[must_use]
    pub fn bitmap_file(&self) -> Option<MemberId> {
        self.consistency.file()
    }

    /// The place of our own parity log on each of its members, if it keeps such logs there, and the sectors that its bitmap takes.
    #[must_use]
    pub fn own_log(&self) -> Option<(OwnLogPlace, u64)> {
        let place = self.consistency.own_place()?;
        self.bitmap_file().is_none().then(|| (place, self.consistency.bitmap_sectors()))
    }

    /// Whether it keeps a parity log of our own, on members or in its bitmap file.
    #[must_use]
    pub fn has_own_logs(&self) -> bool {
        self.consistency.own_place().is_some()
    }

    /// Sectors that its bitmap takes on each member; 0 if it keeps none there.
    #[must_use]
    pub fn bitmap_sectors(&self) -> u64 {
        if self.bitmap_file().is_none() { self.consistency.bitmap_sectors() } else { 0 }
    }

    /// Sectors that its bitmap takes in its bitmap file; 0 if it has none.
    #[must_use]
    pub fn bitmap_file_sectors(&self) -> u64 {
        if self.bitmap_file().is_some() { self.consistency.bitmap_sectors() } else { 0 }
    }

    /// A person wants a bitmap made, instead of what there is; or that given up. It is so when [`Self::is_bitmap_settled`] says so.
    ///
    /// # Errors
    /// There is none to give up; the array takes no writes, keeps something else, or needs the bitmap: nothing is changed.
    pub fn handle_bitmap_request(
        &mut self,
        now: Instant,
        wanted: Option<NewBitmap>,
    ) -> Result<(), BitmapRefusal> {
        self.may_change_bitmap(wanted.is_some())?;
        self.consistency.want_bitmap(wanted);
        self.step(now);
        Ok(())
    }

    /// Whether a bitmap may be made, or given up.
    ///
    /// # Errors
    /// As [`Self::handle_bitmap_request`] says.
    pub fn may_change_bitmap(&self, is_to_be_there: bool) -> Result<(), BitmapRefusal> {
        self.may_change_members()?;
        self.consistency.may_change_bitmap(&self.consistency_ground(), is_to_be_there)
    }

    /// Whether no bitmap is being made or given up.
    #[must_use]
    pub fn is_bitmap_settled(&self) -> bool {
        self.consistency.is_bitmap_settled()
    }

    /// A person wants parity logs made at these places, all of one kind and one for each member; or those given up which there are. It is
    /// so when [`Self::are_logs_settled`] says so.
    ///
    /// # Errors
    /// There are none to give up; the array takes no writes, keeps something else, or needs what it has: nothing is changed.
    pub fn handle_log_request(
        &mut self,
        now: Instant,
        wanted: Option<BTreeMap<MemberId, LogPlace>>,
    ) -> Result<(), LogRefusal> {
        let is_own = wanted.as_ref().map(|places| {
            let ppls = places.values().filter(|place| place.ppl().is_some()).count();
            assert!(ppls == 0 || ppls == places.len(), "logs are of one kind");
            ppls == 0
        });
        self.may_change_logs(is_own)?;
        self.consistency.want_logs(wanted, &mut self.out);
        self.step(now);
        Ok(())
    }

    /// A person wants a write journal, on a device that is none of the array's. It is so when [`Self::are_logs_settled`] says so, unless the
    /// device has failed meanwhile: then nothing was changed.
    ///
    /// # Errors
    /// The array takes no writes, keeps something else for a crash, or is not whole: nothing is changed.
    pub fn handle_journal_added(
        &mut self,
        now: Instant,
        journal: JournalSetup,
    ) -> Result<(), LogRefusal> {
        self.may_add_journal()?;
        self.consistency.want_journal(journal);
        self.step(now);
        Ok(())
    }

    /// Whether a device may come that is to have a write journal.
    ///
    /// # Errors
    /// As [`Self::handle_journal_added`] says.
    pub fn may_add_journal(&self) -> Result<(), LogRefusal> {
        self.may_change_members()?;
        self.consistency.may_add_journal(&self.consistency_ground())
    }

    /// Whether parity logs may be made, our own or md's; or given up.
    ///
    /// # Errors
    /// As [`Self::handle_log_request`] says.
    pub fn may_change_logs(&self, is_own: Option<bool>) -> Result<(), LogRefusal> {
        self.may_change_members()?;
        self.consistency.may_change_logs(&self.consistency_ground(), is_own)
    }

    /// Whether no parity logs are being made or given up.
    #[must_use]
    pub fn are_logs_settled(&self) -> bool {
        self.consistency.are_logs_settled()
    }

    /// Whether it keeps partial parity logs; if so, whether everything is logged, or will be once parity agrees everywhere.
    #[must_use]
    pub fn parity_logs(&self) -> Option<bool> {
        // They are made before the first write: nothing is written without them that agrees.
        let agrees = self.condition.resync_offset == u64::MAX;
        let writes = self.condition.on_disk == Activity::Active;
        self.consistency.logs_parity().map(|is_on| is_on || agrees && !writes)
    }

    /// Its write journal, if it is written.
    #[must_use]
    pub fn journal(&self) -> Option<JournalLook> {
        self.consistency.journal()
    }

    /// Members that wait without a slot.
    #[must_use]
    pub fn spares(&self) -> Vec<MemberId> {
        self.roster.spares.iter().copied().collect()
    }

    /// Members that are in the array: in a slot, or to have one, or waiting for one. What failed is not among them, from the moment that it did.
    #[must_use]
    pub fn members(&self) -> Vec<MemberId> {
        self.roster.all().collect()
    }

    /// Whether superblocks tell all that has changed: who came, and how far jobs are.
    #[must_use]
    pub fn tells_all(&self) -> bool {
        self.out.changes() == self.condition.changes_recorded
    }

    /// The member that is to take the place of the one in `slot`, or is wanted to.
    #[must_use]
    pub fn replacement_of(&self, slot: Slot) -> Option<MemberId> {
        self.roster.replacement_of(slot)
    }

    /// The slot whose member this one is to replace, or is wanted to.
    #[must_use]
    pub fn slot_to_replace(&self, member: MemberId) -> Option<Slot> {
        self.roster.slot_wanted_to_replace(member)
    }

    /// Whether a person may have a member replaced.
    ///
    /// # Errors
    /// It is none, does not hold all itself, or is being replaced; or the array takes no writes, or keeps nothing twice.
    pub fn may_replace(&self, member: MemberId) -> Result<Slot, MemberRefusal> {
        self.may_change_members()?;
        let slot = self.roster.slot_of(member).ok_or(MemberRefusal::NoMember)?;
        match () {
            () if self.roster.replacement_of(slot).is_some() => Err(MemberRefusal::Replaced),
            () if self.roster.is_lost(slot) => Err(MemberRefusal::Unrecovered),
            () => Ok(slot),
        }
    }

    /// A person wants a member's place to go to a spare, which is filled while the member still serves.
    ///
    /// # Errors
    /// As [`Self::may_replace`] says, or the other waits for no place: nothing is changed.
    pub fn handle_replace_request(
        &mut self,
        now: Instant,
        member: MemberId,
        spare: MemberId,
    ) -> Result<(), MemberRefusal> {
        let slot = self.may_replace(member)?;
        if !self.roster.spares.contains(&spare) {
            return Err(MemberRefusal::NoSpare);
        }
        reached(Mark::ReplacementWanted);
        self.roster.wish_to_replace(spare, slot);
        self.step(now);
        Ok(())
    }

    /// Whether a person may have a member fail.
    ///
    /// # Errors
    /// It is none, the array takes no writes, or the level could not make up for it.
    pub fn may_fail(&self, member: MemberId) -> Result<(), MemberRefusal> {
        self.may_change_members()?;
        let is_replacement = self.roster.slot_to_replace(member).is_some();
        if is_replacement || self.roster.spares.contains(&member) {
            return Ok(());
        }
        if self.roster.is_journal(member) {
            return Err(MemberRefusal::Needed);
        }
        let slot = self.roster.slot_of(member).ok_or(MemberRefusal::NoMember)?;
        let is_lost = |other: Slot| other == slot || self.roster.is_lost(other);
        // Parity that may not fit makes up for nothing.
        let is_doubtful = self.condition.resync_offset != u64::MAX
            && self.geometry.level().family() == Family::Stripe;
        let would_lose =
            !self.roster.is_lost(slot) && (is_doubtful || !self.geometry.survives(&is_lost));
        if would_lose { Err(MemberRefusal::Needed) } else { Ok(()) }
    }

    /// A person says that a member fails: it is out, as if it had failed a write.
    ///
    /// # Errors
    /// It is none, the array takes no writes, or the level could not make up for it: nothing is changed.
    pub fn handle_fail_request(
        &mut self,
        now: Instant,
        member: MemberId,
    ) -> Result<(), MemberRefusal> {
        self.may_fail(member)?;
        match self.roster.spares.contains(&member) {
            true => self.out.change(),
            false => reached(Mark::MemberFailedByPerson),
        }
        self.fail_member(Cause::person(member));
        self.step(now);
        Ok(())
    }

    /// Whether superblocks could say of a member that it is read only where no other copy is.
    ///
    /// # Errors
    /// There is none of this name, or nothing is written to members.
    pub fn may_set_write_mostly(&self, member: MemberId) -> Result<(), MemberRefusal> {
        if !self.roster.device_numbers.contains_key(&member) {
            return Err(MemberRefusal::NoMember);
        }
        self.may_change_members()
    }

    /// A member is read only where no other copy is, or as the others are from now on. Its superblock is to say so with the next update.
    ///
    /// # Errors
    /// See [`Self::may_set_write_mostly`].
    pub fn handle_write_mostly(
        &mut self,
        now: Instant,
        member: MemberId,
        is_it: bool,
    ) -> Result<(), MemberRefusal> {
        self.may_set_write_mostly(member)?;
        let write_mostly = &mut self.roster.write_mostly;
        let is_news =
            if is_it { write_mostly.insert(member) } else { write_mostly.remove(&member) };
        self.out.change_if(is_news);
        self.out.publish_if(is_news);
        self.step(now);
        Ok(())
    }

    /// Whether a record is kept, beside members, of which of them are in: from now on a loss is in there before any write counts on it.
    pub fn handle_keeps_record(&mut self, now: Instant, keeps: bool) {
        self.keeps_record = keeps;
        self.step(now);
    }

    /// The record has the members that have the update of this count, durably.
    pub fn handle_record_kept(&mut self, now: Instant, events: u64) {
        // Another member may have been lost meanwhile: then another update tells of that.
        if let Some(update) = self.update.as_mut().filter(|one| one.state.events == events) {
            update.kept = Kept::Done;
        }
        self.step(now);
    }

    /// A person takes a member away: one that waits without a slot, or one that is out already.
    ///
    /// # Errors
    /// It has a slot: nothing is changed.
    pub fn handle_remove_request(
        &mut self,
        now: Instant,
        member: MemberId,
    ) -> Result<(), MemberRefusal> {
        let is_unrecorded = self.roster.is_unrecorded(member);
        let is_replacement = self.roster.slot_to_replace(member).is_some();
        let is_in_slot = self.roster.slot_of(member).is_some() || is_replacement;
        let is_other = self.roster.is_journal(member) || self.bitmap_file() == Some(member);
        if is_in_slot || is_unrecorded || is_other {
            return Err(MemberRefusal::InUse);
        }
        if self.roster.spares.contains(&member) {
            self.may_change_members()?;
            self.roster.leave(member);
            self.out.change();
        }
        self.step(now);
        Ok(())
    }

    fn may_change_members(&self) -> Result<(), MemberRefusal> {
        let Condition { on_disk, read_only, broken, stopping, .. } = self.condition;
        match () {
            () if on_disk == Activity::NotKept => Err(MemberRefusal::NoRedundancy),
            () if read_only || broken || stopping => Err(MemberRefusal::NoWrites),
            () => Ok(()),
        }
    }

    /// Takes the result of an [`ArrayEffect::WriteMetadata`].
    ///
    /// # Panics
    /// When no such effect is out for the member, or the cause is of another member.
    pub fn handle_metadata_written(
        &mut self,
        now: Instant,
        (member, area): (MemberId, MetadataArea),
        written: Result<(), MemberFault>,
    ) {
        match area {
            MetadataArea::Superblock => {
                let update = self.update.as_mut().expect("superblocks are being written");
                assert!(update.missing.remove(&member), "this superblock was not asked for");
            }
            MetadataArea::BadBlocks => self.bad_blocks_written(member, written.is_ok()),
            MetadataArea::Bitmap | MetadataArea::ParityLog | MetadataArea::Journal => {
                let is_well = written.is_ok();
                self.consistency.is_written(now, (member, area), is_well, &mut self.out);
            }
        }
        let written = spoiled(Bug::SuperblockErrorIgnored, written, Ok(()));
        if let Err(fault) = written {
            let asked = fault.cause.member;
            assert_eq!(asked, member, "a member fails by what it was asked itself");
            self.misses_write(fault);
        }
        self.step(now);
    }

    /// Takes the result of an [`ArrayEffect::Flush`].
    ///
    /// # Panics
    /// When no such effect is out for the member, or the cause is of another member.
    pub fn handle_flushed(&mut self, now: Instant, member: MemberId, flushed: Result<(), Cause>) {
        assert!(self.flushes.missing.remove(&member), "this flush was not asked for");
        let flushed = spoiled(Bug::FlushErrorIgnored, flushed, Ok(()));
        if let Err(cause) = flushed {
            assert_eq!(cause.member, member, "a member fails by what it was asked itself");
            // A failed flush is believed for good: what was in the cache is gone (fsyncgate).
            self.flushes.failed |= self.condition.on_disk == Activity::NotKept;
            if planted(Bug::FailedFlushForgotten) {
                self.fail_member(cause);
                return self.step(now);
            }
            self.flushes.unflushed.insert(member);
            self.fail_member(cause);
        }
        self.step(now);
    }

    /// A client asks that every write answered so far be on stable storage.
    pub fn handle_flush_request(&mut self, now: Instant, request: RequestId) {
        self.flushes.queue.push(request);
        self.step(now);
    }

    /// The moment asked for by [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.look_for_idleness(now);
        self.step(now);
    }

    /// No request will come any more: turn clean and say [`Notice::Stopped`].
    pub fn handle_stop(&mut self, now: Instant) {
        self.condition.stopping = true;
        self.step(now);
    }

    /// A person asks something of the jobs.
    pub fn handle_job_request(&mut self, now: Instant, request: JobRequest) {
        self.jobs.handle_request(request);
        self.step(now);
    }

    /// From now on a job asks for no more than this, until it is told again; what was left of the last allowance is over, and
    /// what one job was allowed is not the next one's. Without a first allowance a job asks for as much as shards take.
    pub fn handle_job_allowance(&mut self, now: Instant, allowance: JobAllowance) {
        self.jobs.handle_allowance(allowance);
        self.step(now);
    }

    /// What jobs have asked for, and what of it has come back.
    #[must_use]
    pub fn job_flow(&self) -> JobFlow {
        self.jobs.flow()
    }

    /// How far the job is, if there is one.
    #[must_use]
    pub fn job(&self) -> Option<JobProgress> {
        self.jobs.progress()
    }

    /// The next thing to do, in order.
    #[must_use]
    pub fn poll_effect(&mut self) -> Option<ArrayEffect> {
        self.out.pop()
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ground = self.ground();
        let begins = self.jobs.is_due(&ground) && !self.condition.stopped;
        // An array that has just been opened has heard nothing yet that would make it begin.
        let begins = begins.then(Instant::default);
        let job = begins.or_else(|| self.jobs.poll_timeout(&ground));
        let sweep = self.consistency.poll_timeout(&self.consistency_ground());
        self.closing.next_look.into_iter().chain(job).chain(sweep).min()
    }
}

/// The bad-block logs of an array that is opened.
fn bad_logs(setup: &ArraySetup) -> BadLogs {
    let mut logs = BadLogs::default();
    if setup.geometry.level().family() == Family::Direct {
        return logs; // Nothing is made there, and superblocks are not written.
    }
    let replacements = setup.replacements.iter().map(|one| &one.member);
    for member in setup.slots.iter().flatten().chain(replacements) {
        logs.keep(member.id, member.bad_log.clone(), member.bad_blocks.clone());
    }
    for spare in &setup.spares {
        logs.keep_blank(spare.id, spare.bad_log_sectors);
    }
    logs
}

fn view_of(member: MemberSetup) -> MemberView {
    let bad_blocks = Arc::new(member.bad_blocks);
    MemberView { bad_blocks, ..MemberView::new(member.id, member.recovered_sectors) }
}
