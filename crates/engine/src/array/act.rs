//! Carrying decisions out: where the array's state follows from a decision. What events say beyond that is noted where they
//! come in ([`super::machine`], [`super::slow_members`], [`super::erring_members`]).

use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes, spoiled};
use std::collections::BTreeSet;
use std::sync::Arc;

use braid_geometry::{Family, MemberSector, Slot};

use super::caches::CachesAction;
use super::consistency::{Ask, ConsistencyAction};
use super::decide::{Action, decide};
use super::effect::{ArrayEffect, MetadataRecord, Notice};
use super::event_count::Change;
use super::jobs::{JobAction, Saved, Unmade, UpkeepAction, decide_job};
use super::machine::{Array, Closing, Flushes, Kept, Update};
use super::order::{Activity, FlushPurpose};
use super::roster::{Come, Unrecorded, WhyOut};
use super::setup::JournalSetup;
use super::superblocks::SuperblocksAction;
use super::update::SuperblockState;
use super::view::{ArrayView, Gate};
use super::waves::next_wave;
use crate::Instant;
use crate::cause::Cause;
use crate::effect::{FaultKind, MemberFault};
use crate::ids::{MemberId, ShardIndex, WorkId};
use crate::ranges::BadRange;
use crate::request::Fault;
use crate::work::Outcome;
use smallvec::SmallVec;

/// What superblocks are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A step between clean and active.
    Activity,
    /// A member is out, or was away.
    Devices,
    /// A job has come further, or a newcomer has failed.
    Changes,
    /// What they say is said a second time ([`super::event_count`]).
    Again,
}

/// When a member's superblock is written in an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    First,
    Between,
    Last,
}

impl Array {
    /// Does what is to be done, until an event is waited for.
    pub(super) fn step(&mut self, now: Instant) {
        loop {
            match decide(&self.facts(now)) {
                Action::Wait
                | Action::Superblocks(SuperblocksAction::Wait)
                | Action::Caches(CachesAction::Wait) => return,
                Action::Publish => self.publish(),
                Action::Superblocks(action) => self.act_on_superblocks(action, now),
                Action::Caches(action) => self.act_on_caches(action, now),
                Action::Consistency(action) => self.act_on_consistency(action, now),
                Action::Upkeep(action) => self.act_on_upkeep(action, now),
                Action::Stop => self.stop(),
            }
        }
    }

    fn act_on_superblocks(&mut self, action: SuperblocksAction, now: Instant) {
        let on_disk = self.condition.on_disk;
        match action {
            SuperblocksAction::Wait => {}
            SuperblocksAction::WriteWave => self.write_next_wave(),
            SuperblocksAction::DropUpdate => self.drop_update(),
            SuperblocksAction::KeepRecord => self.keep_record(),
            SuperblocksAction::CompleteUpdate => self.complete_update(now),
            SuperblocksAction::Record => {
                assert!(self.has_unrecorded(), "a loss is there to be recorded");
                let wanted = self.condition.write_wanted;
                let wanted = wanted && self.consistency.are_logs_settled();
                let becomes = if wanted { Activity::Active } else { on_disk };
                self.write_superblocks(becomes, Why::Devices);
            }
            SuperblocksAction::TurnActive => {
                assert_eq!(on_disk, Activity::Clean, "active follows clean");
                self.write_superblocks(Activity::Active, Why::Activity);
                if planted(Bug::GateEarly) {
                    self.condition.on_disk = Activity::Active;
                    self.publish();
                }
            }
            SuperblocksAction::OpenGate => self.open_gate(),
            SuperblocksAction::CloseGate => self.close_gate(),
            // What an absent member holds of the last run is not flushed: if it came back with the
            // same count, it would be believed (I8).
            SuperblocksAction::RecordAbsent => {
                assert!(self.condition.absent_unrecorded, "who was away is recorded once");
                self.write_superblocks(on_disk, Why::Devices);
            }
            SuperblocksAction::SayAgain => {
                let is_once = self.condition.said_once;
                assert!(is_once, "an update is said twice, and not more often");
                self.write_superblocks(on_disk, Why::Again);
            }
            SuperblocksAction::RecordChanges => self.write_superblocks(on_disk, Why::Changes),
        }
    }

    fn act_on_caches(&mut self, action: CachesAction, now: Instant) {
        let is_drained = self.closing.unconfirmed.as_ref().is_some_and(BTreeSet::is_empty);
        match action {
            CachesAction::Wait => {}
            CachesAction::FlushAgain => self.flush_again(),
            CachesAction::Answer => self.answer_flushes(),
            CachesAction::TurnClean => {
                reached(Mark::TurnsClean);
                assert!(is_drained, "I5: no shard has a write under way");
                self.end_last_flush();
                self.consistency.turns_clean();
                self.write_superblocks(Activity::Clean, Why::Activity);
            }
            CachesAction::DropClose => self.end_last_flush(),
            CachesAction::Ended(purpose) => {
                assert!(self.flushes.missing.is_empty(), "I5: every member has ended its flush");
                self.flushing = None;
                if purpose == FlushPurpose::Job {
                    return self.note_offsets(now);
                }
                let (consistency, ground, out) = self.consistency_and_ground();
                consistency.is_flushed(purpose, now, &ground, out);
            }
            CachesAction::FlushForClients => {
                let Flushes { running, written_back, unwritten, .. } = &mut self.flushes;
                assert!(running.is_empty(), "one flush at a time");
                assert!(unwritten.is_empty(), "I8: every shard has brought what it answered");
                std::mem::swap(running, written_back);
                self.flush(FlushPurpose::Clients);
            }
            CachesAction::WriteBack => self.write_back(),
            CachesAction::FlushLast => {
                let is_last = is_drained || self.condition.on_disk == Activity::NotKept;
                assert!(is_last, "I5: what is flushed before clean is the last that was written");
                self.flush(FlushPurpose::Last);
            }
            CachesAction::LastRound => {
                // What the shards of a broken array have for the members may be of use still, and
                // names memory.
                self.closing.last_round = true;
                self.write_back();
            }
        }
    }

    fn act_on_upkeep(&mut self, action: UpkeepAction, now: Instant) {
        match action {
            UpkeepAction::TreatErring => self.treat_erring(now),
            UpkeepAction::TakeSpare => self.take_spare(),
            // A loss of the old one, to be recorded. Had superblocks not said before that the new
            // one holds all, power could be cut when some call the old one out, and the new one's
            // own still says that it holds little.
            UpkeepAction::Replace => {
                let filled = self.roster.filled().expect("one holds all");
                let is_said = self.tells_all();
                let is_said = spoiled(Bug::ReplacesEarly, is_said, true);
                assert!(is_said, "superblocks say so");
                self.roster.replace(filled);
            }
            UpkeepAction::WriteBadBlocks => self.write_bad_blocks(),
            UpkeepAction::FlushForJob => self.flush(FlushPurpose::Job),
            UpkeepAction::Job => self.job_step(now),
        }
    }

    fn act_on_consistency(&mut self, action: ConsistencyAction, now: Instant) {
        let (consistency, ground, out) = self.consistency_and_ground();
        match consistency.act(action, now, &ground, out) {
            None => {}
            Some(Ask::Flush(purpose)) => self.flush(purpose),
            Some(Ask::JournalComes(JournalSetup { member, device_number, .. })) => {
                self.roster.has_journal(member, device_number);
            }
            Some(Ask::JournalGoes) => self.roster.has_no_journal(),
        }
    }

    /// Already active (the gate was about to close), or never: the view says which.
    fn open_gate(&mut self) {
        if self.closing.unconfirmed.is_some() {
            reached(Mark::CloseCrossed);
        }
        self.condition.write_wanted = false;
        self.closing.unconfirmed = None;
        self.closing.is_held_up = false;
        self.publish();
    }

    fn stop(&mut self) {
        assert!(self.update.is_none() && self.flushing.is_none(), "nothing is under way");
        let Flushes { queue, written_back, running, .. } = &self.flushes;
        let is_answered = queue.is_empty() && written_back.is_empty() && running.is_empty();
        assert!(is_answered, "every flush is answered before the array stops");
        let is_clean = self.condition.on_disk != Activity::Active || self.condition.broken;
        assert!(is_clean, "only a broken array stops with superblocks that say active");
        self.condition.stopped = true;
        self.closing.next_look = None;
        // A flush that failed without a member to take over leaves nothing to rely on.
        let flushed = !self.flushes.failed && !self.flushes.lost && !self.condition.broken;
        let clean = self.condition.on_disk != Activity::Active && flushed;
        self.out.notice(Notice::Stopped { clean });
    }

    fn write_superblocks(&mut self, becomes: Activity, why: Why) {
        assert!(!self.condition.read_only && !self.condition.broken, "superblocks may change");
        assert_ne!(becomes, Activity::NotKept, "an array without redundancy says nothing");
        let clean = becomes == Activity::Clean;
        let degraded = self.missing_count() > 0 || self.roster.recovering().next().is_some();
        let in_sync = self.condition.resync_offset == u64::MAX;
        let (consistency, ground, _) = self.consistency_and_ground();
        let said = consistency.update_begins(becomes, &ground);
        // Where a journal has what is being written, nothing else is in doubt, and superblocks say so.
        let says_clean = clean || in_sync && said.journal.is_some();
        // No superblock names a bitmap file: it is believed by its count, which must never be that of a time without it.
        let is_named = self.consistency.file().is_none();
        let spares_too = self.events.advance(Change {
            devices: matches!(why, Why::Devices | Why::Changes),
            degraded,
            spare_sleeps: self.roster.has_spares() && is_named,
            to_clean_and_in_sync: why == Why::Activity && clean && in_sync,
        });
        let state = Arc::new(SuperblockState {
            events: self.events.count(),
            resync_offset: if says_clean { self.condition.resync_offset } else { 0 },
            roles: self.roster.device_roles().into(),
            recovered: self.roster.unfinished().collect(),
            bad_blocks: self.bad_logs.written().collect(),
            log_counts: said.log_counts,
            has_bitmap: said.has_bitmap,
            ppls: said.ppls,
            journal: said.journal,
        });
        self.roster.update_begins();
        // With the table as it was, only the first sector changes, and that is written whole.
        let has_table = self.told.as_ref().is_some_and(|told| told.has_table_of(&state));
        let may_tear = self.setup.superblocks_tear && !has_table;
        let targets: BTreeSet<MemberId> = self.roster.update_targets(spares_too).collect();
        let mut last = self.roster.told_last();
        last.retain(|member| Some(*member) != said.first);
        if planted(Bug::NewcomerFirst) {
            last.clear();
        }
        assert!(self.update.is_none(), "one update at a time");
        let again = why == Why::Again;
        let changes = self.out.changes();
        let newcomers = self.roster.newcomers().collect();
        self.update = Some(Update {
            has_begun: false,
            may_tear,
            missing: BTreeSet::new(),
            later: targets,
            first: said.first,
            last,
            state,
            becomes,
            news: said.news,
            again,
            changes,
            newcomers,
            leaves_file: said.leaves_file,
            kept: Kept::No,
        });
    }

    fn ask_for_superblocks(&mut self, members: &BTreeSet<MemberId>, state: &Arc<SuperblockState>) {
        for member in members {
            let record = MetadataRecord::Superblock(Arc::clone(state));
            self.out.push(ArrayEffect::WriteMetadata { member: *member, record });
        }
    }

    /// Of those that are to be written later, as many as may tear at once. Members that failed meanwhile are left out.
    fn write_next_wave(&mut self) {
        let targets = self.roster.update_targets(true).collect();
        let mut update = self.update.take().expect("superblocks are being written");
        assert!(update.missing.is_empty(), "a wave comes when the one before is durable");
        let slot_of = |member: MemberId| (self.roster.slot_of(member), member);
        let turn = |member: &MemberId| match () {
            () if update.first == Some(*member) => Turn::First,
            () if update.last.contains(member) => Turn::Last,
            () => Turn::Between,
        };
        let waiting = || update.later.intersection(&targets).copied();
        let soonest = waiting().map(|member| turn(&member)).min().expect("there is a next wave");
        let (now, then): (Vec<_>, Vec<_>) = waiting().partition(|one| turn(one) == soonest);
        if soonest > Turn::First {
            self.consistency.members_are_told();
        }
        let mut waiting: Vec<_> = now.into_iter().map(slot_of).collect();
        // Who holds all since a moment ago is missing to whoever reads the superblocks before these.
        let was_lost = |slot: Slot| self.recovered.iter().any(|(_, recovered)| *recovered == slot);
        let is_lost = |slot: Slot| self.roster.is_lost(slot) || was_lost(slot);
        let wave: Vec<MemberId> = match update.may_tear {
            true => next_wave(&self.geometry, &is_lost, &mut waiting),
            false => waiting.drain(..).map(|(_, member)| member).collect(),
        };
        update.has_begun = true;
        assert!(!wave.is_empty(), "there is a next wave");
        update.missing.extend(wave);
        update.later = waiting.into_iter().map(|(_, member)| member).chain(then).collect();
        self.ask_for_superblocks(&update.missing, &update.state);
        self.update = Some(update);
    }

    /// The update is durable. What it says of activity is so, whatever has happened meanwhile.
    fn end_update(&mut self) -> Update {
        let update = self.update.take().expect("superblocks were being written");
        assert!(update.missing.is_empty(), "every superblock that was asked for has ended");
        if update.has_begun {
            self.consistency.update_ends(update.news, update.state.journal);
            self.told = Some(Arc::clone(&update.state));
            self.condition.on_disk = update.becomes;
        }
        update
    }

    /// Nothing is published yet: the next update says the rest.
    fn drop_update(&mut self) {
        if !self.roster.records_all() && !self.condition.broken {
            reached(Mark::LossWhileRecording);
        }
        self.end_update();
    }

    /// The members of the update are to be in the record before anybody counts on it.
    fn keep_record(&mut self) {
        let update = self.update.as_mut().expect("an update is kept");
        assert_eq!(update.kept, Kept::No, "it is asked for once");
        update.kept = Kept::Asked;
        self.out.push(ArrayEffect::KeepRecord { events: update.state.events });
    }

    fn complete_update(&mut self, now: Instant) {
        let Update { state, becomes, again, changes, newcomers, last, leaves_file, .. } =
            self.end_update();
        self.roster.are_named(&last);
        assert!(!self.condition.broken, "what is broken records nothing any more");
        assert!(self.roster.records_all(), "I4: the update tells of every loss");
        let losses = self.roster.take_unrecorded();
        assert!(
            losses.is_empty() || self.events.are_beyond_the_lost(),
            "I4: the survivors count more events than the lost"
        );
        self.events.note_on_every_member();
        self.out.notice(Notice::Recorded { events: self.events.count() });
        self.condition.said_once = !again;
        self.condition.absent_unrecorded = false;
        let is_moved = changes != self.condition.changes_recorded;
        self.condition.changes_recorded = changes;
        self.consistency.is_said(leaves_file, &mut self.out);
        if !(losses.is_empty() && newcomers.is_empty()) {
            self.jobs.membership_changed();
        }
        let has_come = self.take_in(&newcomers) || is_moved;
        self.tell_recovered(&state);
        if again && losses.is_empty() && !has_come && !self.condition.write_wanted {
            return; // Nothing is new for the shards.
        }
        if !losses.is_empty() {
            reached(Mark::LossRecorded);
        }
        self.report_losses(&losses);
        self.closing.unconfirmed = None;
        match becomes {
            Activity::Active => {
                reached(Mark::TurnsActive);
                self.condition.write_wanted = false;
                self.closing.idle = false;
                let next_look = now.plus_milliseconds(self.setup.clean_delay_ms);
                self.closing.next_look.get_or_insert(next_look);
            }
            Activity::Clean | Activity::NotKept => self.closing.next_look = None,
        }
        self.publish();
    }

    fn report_losses(&mut self, losses: &[Unrecorded]) {
        for Unrecorded { member, slot, why, .. } in losses {
            let (member, slot, why) = (*member, *slot, *why);
            let why = spoiled(Bug::OneCauseForAll, why, losses[0].why);
            self.forget_read_errors(member);
            self.out.notice(match why {
                WhyOut::Failed(cause) => Notice::MemberOut { member, slot, cause },
                WhyOut::Replaced(by) => Notice::Replaced { member: by, slot, old: member },
            });
        }
    }

    /// What clients were told of is on its way to the members first. This is no task: a shard may
    /// need a view, hence superblocks, to get there.
    fn write_back(&mut self) {
        let Flushes { queue, written_back, unwritten, round, .. } = &mut self.flushes;
        assert!(written_back.is_empty() && unwritten.is_empty(), "one round at a time");
        std::mem::swap(queue, written_back);
        *round += 1;
        unwritten.extend((0..self.setup.regions.shards()).map(ShardIndex));
        self.out.push(ArrayEffect::WriteBack { round: *round });
    }

    /// Superblocks say what a job has done: it counts from now on.
    fn note_offsets(&mut self, now: Instant) {
        let Some(saved) = self.jobs.flush_ended(now) else { return };
        let is_news = match saved {
            Saved::Resync(to) => {
                let is_further = to >= self.condition.resync_offset;
                let is_further = spoiled(Bug::OffsetAhead, is_further, true);
                assert!(is_further, "I7: what was in sync stays so");
                let is_said = self.condition.on_disk == Activity::Clean;
                self.condition.resync_offset = to;
                if to == u64::MAX {
                    self.consistency.is_resynced();
                }
                // Superblocks that say active say that all is to be resynced: the next that say clean tell.
                self.out.publish_if(!is_said);
                is_said
            }
            // Superblocks say nothing of it; the bitmap will.
            Saved::Lazy { to, failed } => {
                self.consistency.is_synced(to, &failed, &mut self.out);
                false
            }
            Saved::Recovery(members, to) => {
                let mut is_news = false;
                for member in members {
                    is_news |= self.roster.is_recovered(member, to);
                    let slot = self.roster.slot_of(member).filter(|_| to == u64::MAX);
                    self.recovered.extend(slot.map(|slot| (member, slot)));
                }
                is_news
            }
            Saved::Replacement(members, to) => {
                let mut is_news = false;
                for member in members {
                    is_news |= self.roster.is_filled(member, to);
                }
                is_news
            }
        };
        self.out.change_if(is_news);
    }

    /// Every log that does not say what it is to.
    fn write_bad_blocks(&mut self) {
        let due: SmallVec<[MemberId; 2]> = self.due_bad_blocks().collect();
        assert!(!due.is_empty(), "one is to be written");
        for member in due {
            let record = MetadataRecord::BadBlocks(self.bad_logs.begin(member));
            self.out.push(ArrayEffect::WriteMetadata { member, record });
        }
    }

    /// Members whose log is to be written: of those that are in the array.
    pub(super) fn due_bad_blocks(&self) -> impl Iterator<Item = MemberId> {
        self.roster.superblock_targets(false).filter(|member| self.bad_logs.is_due(*member))
    }

    /// A log says what it was to, or could not be written.
    pub(super) fn bad_blocks_written(&mut self, member: MemberId, is_written: bool) {
        // Superblocks say whether a log says anything.
        let is_news = self.bad_logs.ended(member, is_written);
        self.out.change_if(is_news);
        self.tell_bad_blocks(member);
    }

    /// Shards believe what is not in a log, nor is about to be.
    pub(super) fn tell_bad_blocks(&mut self, member: MemberId) {
        let Some(bad) = self.bad_logs.bad_blocks(member) else { return };
        let is_news = self.roster.set_bad_blocks(member, bad);
        self.out.publish_if(is_news);
    }

    /// A member did not take again what it holds badly: it costs these sectors, if its log has room for them, and else the member.
    pub(super) fn is_unmended(&mut self, cause: Cause, range: BadRange) {
        let has_room = self.bad_logs.mark(cause.member, range);
        let has_room = spoiled(Bug::UnmendedIsLost, has_room, false);
        if !has_room {
            return self.fail_member(cause);
        }
        self.tell_bad_blocks(cause.member);
    }

    /// A shard has done what a job asked for, or could not. What cannot be made is written down in the logs of those that lack
    /// it, and asked for once more when that is durable: clients may have written it meanwhile. Then it is given up.
    pub(super) fn work_done(&mut self, now: Instant, id: WorkId, outcome: Outcome) {
        let unmade = self.jobs.work_done(now, id, outcome);
        let passed = self.jobs.passed();
        self.out.extend(passed.map(|far| ArrayEffect::Notice(Notice::JobPassed(far))));
        if let Some((targets, range)) = self.jobs.take_ahead() {
            for target in targets {
                let is_news = self.roster.holds_ahead(target, range);
                self.out.publish_if(is_news);
            }
        }
        let Some(Unmade { at, fills, lacks }) = unmade else { return };
        let (mut sectors, mut is_new) = (0, false);
        for (member, range) in lacks {
            let Some(range) = self.lacked(member, range, fills) else { continue };
            sectors += range.sectors;
            if self.jobs.has_marked(member, range) {
                continue;
            }
            if !self.bad_logs.mark(member, range) {
                return self.jobs.cannot_go_on();
            }
            self.jobs.marks(member, range);
            self.tell_bad_blocks(member);
            is_new = true;
        }
        if !is_new {
            self.jobs.gives_up(at, sectors);
        }
    }

    /// What of a range a member lacks: of one that is filled, only what lies beyond what it holds.
    fn lacked(&self, member: MemberId, range: BadRange, fills: bool) -> Option<BadRange> {
        let is_held = fills && self.roster.holds(member, range);
        let is_held = spoiled(Bug::HeldIsGivenUp, is_held, false);
        if is_held {
            return None;
        }
        let is_in = self.roster.slot_of(member).is_some();
        let held = if fills { self.roster.held(member) } else { is_in.then_some(0) };
        let (start, end) = (range.start.0, range.start.0 + range.sectors);
        let from = start.max(held?);
        let from = spoiled(Bug::HeldIsGivenUp, from, start);
        (from < end).then(|| BadRange { start: MemberSector(from), sectors: end - from })
    }

    fn job_step(&mut self, now: Instant) {
        let has_unrecorded = !self.tells_all();
        let mut jobs = std::mem::take(&mut self.jobs);
        let ground = self.ground();
        let mut effects = SmallVec::<[ArrayEffect; 2]>::new();
        match decide_job(&jobs.facts(now, &ground, has_unrecorded)) {
            JobAction::Wait => {}
            JobAction::Begin => {
                let progress = jobs.begin(now, &ground);
                let is_told = !jobs.is_quiet();
                effects.extend(is_told.then_some(ArrayEffect::Notice(Notice::JobBegan(progress))));
            }
            JobAction::Ask => {
                let asked = jobs.ask(now, &ground);
                effects.extend(asked.map(|(shard, work)| ArrayEffect::Work { shard, work }));
            }
            JobAction::Save => jobs.save(),
            JobAction::End => {
                let is_told = !jobs.is_quiet();
                let (progress, end) = jobs.end(&ground);
                let ended = Notice::JobEnded { progress, end };
                effects.extend(is_told.then_some(ArrayEffect::Notice(ended)));
            }
        }
        self.jobs = jobs;
        self.out.extend(effects);
    }

    /// A slot that has no member gets a spare, or one whose member is to be replaced. Superblocks say so before any shard
    /// writes to it.
    fn take_spare(&mut self) {
        reached(Mark::SpareTaken);
        self.roster.take_in_spare();
        self.write_superblocks(self.condition.on_disk, Why::Devices);
    }

    /// Superblocks say that these members are in: shards may know. True if there are any.
    fn take_in(&mut self, newcomers: &[MemberId]) -> bool {
        for member in newcomers {
            let member = *member;
            if let Some(come) = self.roster.has_come(member) {
                let kept_sectors = match come {
                    Come::Member(slot) => {
                        let (held, kept) = self.consistency.held_by(&self.geometry, member, slot);
                        if !held.is_empty() {
                            self.roster.holds_from_before(slot, held);
                        }
                        kept
                    }
                    Come::Replacement(..) => 0,
                };
                self.consistency.has_come(member);
                self.out.notice(match come {
                    Come::Member(slot) => Notice::SpareTaken { member, slot, kept_sectors },
                    Come::Replacement(slot, old) => Notice::Replacing { member, slot, old },
                });
            }
        }
        !newcomers.is_empty()
    }

    /// Superblocks say of these members that they hold all: people may know. An update that began before their recovery ended says
    /// that they do not.
    fn tell_recovered(&mut self, said: &SuperblockState) {
        let is_said = |(member, _): &mut (MemberId, Slot)| {
            said.recovered.iter().all(|(unfinished, _)| unfinished != member)
        };
        for (member, slot) in self.recovered.extract_if(.., is_said) {
            self.out.notice(Notice::Recovered { member, slot });
        }
    }

    fn flush(&mut self, purpose: FlushPurpose) {
        let mut has_written = !self.condition.read_only;
        if planted(Bug::FlushDropped) && purpose == FlushPurpose::Clients {
            has_written = false;
        }
        if planted(Bug::CleanUnflushed) && purpose == FlushPurpose::Last {
            has_written = false;
        }
        if planted(Bug::BitsClearedUnflushed) && purpose == FlushPurpose::Bits {
            has_written = false;
        }
        if planted(Bug::LogReusedUnflushed) && purpose == FlushPurpose::Logs {
            has_written = false;
        }
        if planted(Bug::JournalFreedUnflushed) && purpose == FlushPurpose::Logs {
            has_written = false;
        }
        // Where logs are kept nothing is resynced after a crash: what a member was made of has to be as durable as it is. Of a band whose
        // parity had no member when it was written no log has anything.
        let is_logged = self.consistency.has_logs();
        let is_logged = spoiled(Bug::JobFlushesOwnOnly, is_logged, false);
        let Flushes { missing, unflushed, .. } = &mut self.flushes;
        assert!(missing.is_empty() && self.flushing.is_none(), "one flush at a time");
        let targets = match purpose {
            FlushPurpose::Job => self.jobs.flush_begins().filter(|_| !is_logged),
            FlushPurpose::Clients
            | FlushPurpose::Last
            | FlushPurpose::Bits
            | FlushPurpose::Logs => None,
        };
        let is_of_job = |member: &MemberId| targets.as_ref().is_none_or(|all| all.contains(member));
        if has_written {
            let is_due = |member: &MemberId| match purpose {
                FlushPurpose::Clients => unflushed.remove(member),
                FlushPurpose::Last | FlushPurpose::Bits | FlushPurpose::Logs => true,
                FlushPurpose::Job => is_of_job(member),
            };
            missing.extend(self.roster.superblock_targets(false).filter(is_due));
        }
        if planted(Bug::FlushOnlyFirst) {
            missing.truncate(1);
        }
        self.out.extend(missing.iter().map(|member| ArrayEffect::Flush { member: *member }));
        self.flushing = Some(purpose);
    }

    /// A member failed the flush, or another way, meanwhile. Its loss is recorded first, then the round is run again over
    /// the survivors, and only then are the clients answered (I4).
    fn flush_again(&mut self) {
        reached(Mark::FlushAgain);
        assert_eq!(self.flushing, Some(FlushPurpose::Clients), "the last flush is not repeated");
        self.flushing = None;
        self.flushes.queue.append(&mut self.flushes.running);
    }

    fn answer_flushes(&mut self) {
        assert!(self.flushes.missing.is_empty(), "I8: every member has ended its flush");
        let is_recorded = self.condition.broken || !self.has_unrecorded();
        let is_recorded = spoiled(Bug::FlushedUnrecorded, is_recorded, true);
        assert!(is_recorded, "I4: no flush is answered over an unrecorded loss");
        self.flushing = None;
        let failed = std::mem::take(&mut self.flushes.failed);
        let failed = failed || self.flushes.lost || self.condition.broken;
        if planted(Bug::LossReportedOnce) {
            self.flushes.lost = false;
        }
        let result = if failed { Err(Fault::Unwritable) } else { Ok(()) };
        for request in self.flushes.running.drain(..) {
            self.out.push(ArrayEffect::Answer { request, result });
        }
    }

    fn end_last_flush(&mut self) {
        assert_eq!(self.flushing, Some(FlushPurpose::Last), "it is the last flush that ends");
        assert!(self.flushes.missing.is_empty(), "I5: every member has ended it");
        self.flushing = None;
        self.closing.last_flush_done = true;
    }

    /// A member did not take a write. One with which nothing is wrong stays, and costs the array its writes: put out, it would cost
    /// redundancy, and the next would follow. One that does not hold all yet costs nothing.
    pub(super) fn misses_write(&mut self, MemberFault { kind, cause }: MemberFault) {
        let member = cause.member;
        let slot = self.roster.slot_of(member);
        let holds_all = slot.is_some_and(|slot| !self.roster.is_lost(slot));
        match kind {
            FaultKind::NoSpace if holds_all => {
                self.take_no_writes(Notice::OutOfSpace { member, cause });
            }
            FaultKind::Protected if holds_all => {
                self.take_no_writes(Notice::WriteProtected { member, cause });
            }
            _ => self.fail_member(cause),
        }
    }

    /// Takes a member out, if the level can make up for it; otherwise the array takes no writes.
    pub(super) fn fail_member(&mut self, cause: Cause) {
        let member = cause.member;
        if self.consistency.file() == Some(member) {
            if !self.condition.read_only && !self.condition.broken {
                self.consistency.lose_file(cause, &mut self.out);
            }
            return;
        }
        if self.roster.leave(member) {
            return self.out.notice(Notice::SpareLost { member, cause });
        }
        if self.roster.is_journal(member) {
            if planted(Bug::JournalFailureIgnored) {
                return;
            }
            if self.consistency.journal_fails(&mut self.out) {
                return self.roster.has_no_journal();
            }
            return self.take_no_writes(Notice::JournalLost { member, cause });
        }
        let replaced = self.roster.slot_to_replace(member);
        let Some(failed) = self.roster.slot_of(member).or(replaced) else { return };
        if self.roster.is_newcomer(member) {
            // No shard has written to it. The update that names it will be followed by one that does not.
            self.roster.forget_newcomer(member);
            self.out.change();
            return self.out.notice(Notice::SpareLost { member, cause });
        }
        if replaced.is_some() {
            // The member that it was to replace is still there; but it missed writes that it was to have.
            reached(Mark::ReplacementLost);
            return self.roster.take_out_replacement(failed, cause);
        }
        if self.geometry.level().family() == Family::Direct {
            return; // Each error is the client's own; there is nothing to take over.
        }
        let is_lost = |slot: Slot| slot == failed || self.roster.is_lost(slot);
        let mut survives = self.geometry.survives(&is_lost);
        if planted(Bug::TooManyOut) {
            survives = self.geometry.survives(&|slot: Slot| slot == failed);
        }
        if survives {
            self.roster.take_out(failed, WhyOut::Failed(cause));
            self.forget_pace(member);
            let misses_nothing = self.condition.read_only;
            let misses_nothing = spoiled(Bug::LossUnrecorded, misses_nothing, true);
            if misses_nothing {
                // So nothing is recorded first.
                let losses = self.roster.take_unrecorded();
                self.report_losses(&losses);
                self.out.publish();
            }
        } else {
            self.break_down(cause);
        }
    }

    /// Nothing can make up for the member that failed: no writes from now on.
    pub(super) fn break_down(&mut self, cause: Cause) {
        self.take_no_writes(Notice::Broken { member: cause.member, cause });
    }

    /// Writes are refused from now on, and the superblocks stay as they are: active, so that the next start knows that
    /// redundancy may not agree.
    pub(super) fn take_no_writes(&mut self, notice: Notice) {
        if !self.condition.broken {
            reached(Mark::BreaksDown);
            self.condition.broken = true;
            self.closing = Closing::default(); // It will not turn clean any more.
            self.out.notice(notice);
            self.out.publish();
        }
    }

    pub(super) fn look_for_idleness(&mut self, now: Instant) {
        let due = self.closing.next_look.is_some_and(|due| due <= now);
        let active = self.condition.on_disk == Activity::Active;
        if due && (!active || self.condition.stopping || self.condition.broken) {
            self.closing.next_look = None;
            return;
        }
        if !due {
            return;
        }
        if sometimes(Point::LongerDelay) {
            self.closing.next_look = Some(now.plus_milliseconds(10 * self.setup.clean_delay_ms));
            return;
        }
        self.closing.next_look = Some(now.plus_milliseconds(self.setup.clean_delay_ms));
        if self.closing.asked.is_empty() && self.closing.unconfirmed.is_none() {
            self.closing.asked = self.all_shards();
            self.closing.busy = false;
            self.closing.idle = false;
            self.out.push(ArrayEffect::QueryActivity);
        }
    }

    pub(super) fn all_have_reported(&mut self, now: Instant) {
        let busy = self.closing.busy && !sometimes(Point::EarlyClose);
        self.closing.idle = !busy && !self.condition.write_wanted;
        self.closing.next_look = Some(now.plus_milliseconds(self.setup.clean_delay_ms));
    }

    fn close_gate(&mut self) {
        if self.condition.stopping {
            reached(Mark::StopsClosing);
        }
        assert_eq!(self.condition.on_disk, Activity::Active, "only an open gate is closed");
        assert!(self.closing.unconfirmed.is_none(), "and it is closed once");
        self.closing.idle = false;
        self.closing.is_held_up = false;
        self.closing.unconfirmed = Some(self.all_shards());
        self.publish();
    }

    fn all_shards(&self) -> BTreeSet<ShardIndex> {
        (0..self.setup.regions.shards()).map(ShardIndex).collect()
    }

    /// Publishes where things stand. Never called between a failure and its record (I4).
    pub(super) fn publish(&mut self) {
        self.roster.are_told();
        self.out.is_published();
        self.condition.epoch += 1;
        let gate = match self.condition {
            condition if condition.broken => Gate::Broken,
            condition if condition.read_only => Gate::ReadOnly,
            condition if condition.on_disk == Activity::NotKept => Gate::Open,
            condition
                if condition.on_disk == Activity::Active && self.closing.unconfirmed.is_none() =>
            {
                Gate::Open
            }
            _ => Gate::Closed,
        };
        let is_recorded = gate != Gate::Open || self.condition.on_disk != Activity::Clean;
        let is_recorded = spoiled(Bug::GateEarly, is_recorded, true);
        assert!(is_recorded, "I3: superblocks say active first");
        let is_in_doubt = self.condition.resync_offset != u64::MAX;
        let accepted_risk = self.setup.accepted_risk.as_ref().filter(|_| is_in_doubt);
        let view = ArrayView {
            epoch: self.condition.epoch,
            geometry: Arc::clone(&self.geometry),
            gate,
            slots: self.roster.published_slots(),
            resync_offset: self.condition.resync_offset,
            accepted_risk: accepted_risk.cloned(),
            doubt: self.consistency.doubt().cloned(),
            intent: self.consistency.view(),
            keeps_parity_logs: self.consistency.logs_parity() == Some(true),
            keeps_journal: self.consistency.journal_member().is_some(),
            zero_is_fast: self.setup.zero_is_fast,
        };
        self.out.push(ArrayEffect::Publish(Arc::new(view)));
    }
}
