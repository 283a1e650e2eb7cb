//! Carrying decisions out: where the array's state follows from a decision. What events say beyond that is noted where they
//! come in ([`super::machine`], [`super::slow_members`], [`super::erring_members`]).

use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes, spoiled};
use std::collections::BTreeSet;
use std::sync::Arc;

use braid_geometry::{Family, MemberSector, Slot};
use braid_ondisk::{JournalPiece, JournalRecord, LogHome, PplPlace};

use super::consistency::{Intent, Journal, News, ParityLogs, held_of};
use super::decide::{Action, Activity, FlushPurpose, decide};
use super::effect::{ArrayEffect, MetadataRecord, Notice};
use super::event_count::Change;
use super::jobs::{JobAction, Saved, Unmade, decide_job};
use super::machine::{Array, Closing, Flushes, Kept, Update};
use super::parity_log_record::ParityLogRecord;
use super::roster::{Come, Unrecorded, WhyOut};
use super::update::{JournalState, SuperblockState};
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
            let on_disk = self.condition.on_disk;
            match decide(&self.facts(now)) {
                Action::Wait => return,
                Action::Publish => self.publish(),
                Action::WriteWave => self.write_next_wave(),
                Action::DropUpdate => self.drop_update(),
                Action::KeepRecord => self.keep_record(),
                Action::CompleteUpdate => self.complete_update(now),
                Action::FlushAgain => self.flush_again(),
                Action::Answer => self.answer_flushes(),
                Action::TurnClean => {
                    reached(Mark::TurnsClean);
                    let is_drained =
                        self.closing.unconfirmed.as_ref().is_some_and(|s| s.is_empty());
                    assert!(is_drained, "I5: no shard has a write under way");
                    self.end_last_flush();
                    if let Some(logs) = &mut self.parity_logs {
                        logs.all_is_flushed();
                    }
                    self.write_superblocks(Activity::Clean, Why::Activity);
                }
                Action::DropClose => self.end_last_flush(),
                Action::Record => {
                    assert!(self.has_unrecorded(), "a loss is there to be recorded");
                    let wanted = self.condition.write_wanted;
                    let wanted = wanted && self.log_change.is_settled();
                    let becomes = if wanted { Activity::Active } else { on_disk };
                    self.write_superblocks(becomes, Why::Devices);
                }
                Action::TurnActive => {
                    assert_eq!(on_disk, Activity::Clean, "active follows clean");
                    self.write_superblocks(Activity::Active, Why::Activity);
                    if planted(Bug::GateEarly) {
                        self.condition.on_disk = Activity::Active;
                        self.publish();
                    }
                }
                Action::OpenGate => self.open_gate(),
                // What an absent member holds of the last run is not flushed: if it came back with the same count, it
                // would be believed (I8).
                Action::RecordAbsent => {
                    assert!(self.condition.absent_unrecorded, "who was away is recorded once");
                    self.write_superblocks(on_disk, Why::Devices);
                }
                Action::FlushForClients => {
                    let Flushes { running, written_back, unwritten, .. } = &mut self.flushes;
                    assert!(running.is_empty(), "one flush at a time");
                    assert!(unwritten.is_empty(), "I8: every shard has brought what it answered");
                    std::mem::swap(running, written_back);
                    self.flush(FlushPurpose::Clients);
                }
                Action::WriteBack => self.write_back(),
                Action::SayAgain => {
                    assert!(
                        self.condition.said_once,
                        "an update is said twice, and not more often"
                    );
                    self.write_superblocks(on_disk, Why::Again);
                }
                Action::TreatErring => self.treat_erring(now),
                Action::TakeSpare => self.take_spare(),
                // A loss of the old one, to be recorded. Had superblocks not said before that the new one holds all, power
                // could be cut when some call the old one out, and the new one's own still says that it holds little.
                Action::Replace => {
                    let filled = self.roster.filled().expect("one holds all");
                    let is_said = self.tells_all();
                    let is_said = spoiled(Bug::ReplacesEarly, is_said, true);
                    assert!(is_said, "superblocks say so");
                    self.roster.replace(filled);
                }
                Action::RecordChanges => self.write_superblocks(on_disk, Why::Changes),
                Action::WriteBadBlocks => self.write_bad_blocks(),
                Action::FlushForJob => self.flush(FlushPurpose::Job),
                Action::NoteOffsets => self.note_offsets(now),
                Action::Job => self.job_step(now),
                Action::OpenBits => {
                    assert!(
                        !self.has_unrecorded(),
                        "I4: who lacks a bit is out, and superblocks say so"
                    );
                    self.intent_mut().open();
                    self.condition.unpublished = true;
                }
                Action::WriteBitmap => self.write_bitmap(),
                Action::AskTouched => {
                    let shards = self.all_shards();
                    self.intent_mut().ask(shards);
                    self.effects.push_back(ArrayEffect::QueryTouched);
                }
                Action::RevokeBits => {
                    let (shards, ground) = (self.all_shards(), self.intent_ground());
                    self.condition.unpublished |= self.intent_mut().revoke(now, shards, &ground);
                }
                Action::FlushForBits => {
                    self.intent_mut().flush_begins();
                    self.flush(FlushPurpose::Bits);
                }
                Action::ClearBits => {
                    assert!(
                        self.flushes.missing.is_empty(),
                        "I5: every member has ended its flush"
                    );
                    self.flushing = None;
                    let ground = self.intent_ground();
                    self.intent_mut().is_flushed(now, &ground);
                }
                Action::MakeLogs => self.make_logs(),
                Action::WriteLogs => self.write_logs(),
                Action::GrantLogs => {
                    // A record of the journal is on its device alone.
                    let is_recorded = !self.has_unrecorded() || self.journal.is_some();
                    let is_recorded = spoiled(Bug::LogGrantedUnrecorded, is_recorded, true);
                    assert!(is_recorded, "I4: who did not take a record is out, by superblocks");
                    let granted = match &mut self.journal {
                        Some(journal) => journal.grant(),
                        None => self.logs_mut().grant(),
                    };
                    for (shard, ticket) in granted {
                        self.effects.push_back(ArrayEffect::Logged { shard, ticket });
                    }
                }
                Action::FlushForLogs => {
                    match &mut self.journal {
                        Some(journal) => journal.flush_begins(),
                        None => self.logs_mut().flush_begins(),
                    }
                    self.flush(FlushPurpose::Logs);
                }
                Action::LogsFlushed => {
                    assert!(self.flushes.missing.is_empty(), "every member has ended its flush");
                    self.flushing = None;
                    match &mut self.journal {
                        Some(journal) => self.condition.changes += u64::from(journal.is_flushed()),
                        None => self.logs_mut().is_flushed(),
                    }
                }
                Action::ForgetSweep => self.intent_mut().forget(now),
                Action::ClearLast => {
                    assert_eq!(on_disk, Activity::Clean, "I5: all that was written is flushed");
                    let ground = self.intent_ground();
                    self.intent_mut().clear_all(&ground);
                    self.condition.unpublished = true;
                }
                Action::ChangeBitmap => self.change_bitmap(),
                Action::ChangeLogs => self.change_logs(),
                Action::WipeLogs => {
                    let targets = self.intent_targets();
                    let records = self.logs_mut().wipe_out(targets.into_iter());
                    self.ask_for_logs(records);
                }
                Action::DropLogs => {
                    assert!(self.log_change.is_left(), "no superblock names what is dropped");
                    self.log_change.is_over();
                    // Of a log that was lost in the midst of writes: superblocks say that it does not count.
                    let logs = self.parity_logs.take().expect("logs are dropped that there are");
                    for (shard, ticket) in logs.waiting() {
                        if planted(Bug::LostLogWaits) {
                            break;
                        }
                        self.effects.push_back(ArrayEffect::Logged { shard, ticket });
                    }
                    self.condition.unpublished = true;
                }
                Action::DropBitmap => {
                    self.bitmap_change.is_dropped();
                    self.intent = None;
                    self.bitmap_file = None;
                    self.condition.unpublished = true;
                }
                Action::CloseGate => self.close_gate(),
                Action::FlushLast => {
                    let is_drained =
                        self.closing.unconfirmed.as_ref().is_some_and(|s| s.is_empty());
                    assert!(
                        is_drained || on_disk == Activity::NotKept,
                        "I5: what is flushed before clean is the last that was written"
                    );
                    self.flush(FlushPurpose::Last);
                }
                Action::LastRound => {
                    // What the shards of a broken array have for the members may be of use still, and names memory.
                    self.closing.last_round = true;
                    self.write_back();
                }
                Action::Stop => self.stop(),
            }
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
        self.effects.push_back(ArrayEffect::Notice(Notice::Stopped { clean }));
    }

    fn write_superblocks(&mut self, becomes: Activity, why: Why) {
        assert!(!self.condition.read_only && !self.condition.broken, "superblocks may change");
        assert_ne!(becomes, Activity::NotKept, "an array without redundancy says nothing");
        let clean = becomes == Activity::Clean;
        let degraded = self.missing_count() > 0 || self.roster.recovering().next().is_some();
        let in_sync = self.condition.resync_offset == u64::MAX;
        let news = self.news_of(becomes);
        if let News::Drained { .. } = news
            && let Some(journal) = &mut self.journal
        {
            journal.begin_anew();
        }
        // Where a journal has what is being written, nothing else is in doubt, and superblocks say so.
        let says_clean = clean || in_sync && self.journal.is_some();
        // No superblock names a bitmap file: it is believed by its count, which must never be that of a time without it.
        let is_named = self.bitmap_file.is_none();
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
            log_counts: (!clean && self.will_log_count(news)).then(|| self.log_home()),
            has_bitmap: self.bitmap_change.names(),
            ppls: self.ppls_to_name(),
            journal: self.journal_to_tell(),
        });
        self.roster.update_begins();
        // With the table as it was, only the first sector changes, and that is written whole.
        let has_table = self.told.as_ref().is_some_and(|told| told.has_table_of(&state));
        let may_tear = self.setup.superblocks_tear && !has_table;
        let targets: BTreeSet<MemberId> = self.roster.update_targets(spares_too).collect();
        let mut last = self.roster.told_last();
        // A journal that members name is there.
        let first = if self.log_change.is_journal_made() { self.journal.as_ref() } else { None };
        let first = first.map(Journal::member);
        let first = spoiled(Bug::JournalNamedUnmade, first, None);
        last.retain(|member| Some(*member) != first);
        if planted(Bug::NewcomerFirst) {
            last.clear();
        }
        assert!(self.update.is_none(), "one update at a time");
        let again = why == Why::Again;
        let changes = self.condition.changes;
        let newcomers = self.roster.newcomers().collect();
        self.update = Some(Update {
            has_begun: false,
            may_tear,
            missing: BTreeSet::new(),
            later: targets,
            first,
            last,
            state,
            becomes,
            news,
            again,
            changes,
            newcomers,
            leaves_file: self.is_file_leaving(),
            kept: Kept::No,
        });
    }

    /// The journal that superblocks are to tell of.
    fn journal_to_tell(&self) -> Option<JournalState> {
        let journal = self.journal.as_ref()?;
        let (member, tail_sectors) = (journal.member(), journal.next_tail());
        let device_number = self.roster.device_numbers[&member];
        Some(JournalState { member, device_number, tail_sectors })
    }

    /// Where our own log is, or would be.
    fn log_home(&self) -> LogHome {
        if self.bitmap_file.is_some() { LogHome::File } else { LogHome::Members }
    }

    /// Partial parity logs that superblocks are to name.
    fn ppls_to_name(&self) -> Arc<[(MemberId, PplPlace)]> {
        let logs = self.parity_logs.iter().filter(|_| !self.log_change.is_leaving());
        logs.flat_map(ParityLogs::ppls).collect()
    }

    /// Whether our own log names all that may be in doubt from an update on.
    fn will_log_count(&self, news: News) -> bool {
        let is_kept = !self.log_change.is_leaving();
        let is_kept = spoiled(Bug::LostFileCounts, is_kept, true);
        is_kept && self.parity_logs.as_ref().is_some_and(|logs| logs.will_count(news))
    }

    fn ask_for_superblocks(&mut self, members: &BTreeSet<MemberId>, state: &Arc<SuperblockState>) {
        for member in members {
            let record = MetadataRecord::Superblock(Arc::clone(state));
            self.effects.push_back(ArrayEffect::WriteMetadata { member: *member, record });
        }
    }

    fn intent_mut(&mut self) -> &mut Intent {
        self.intent.as_mut().expect("only an array with a bitmap has to do with bits")
    }

    fn logs_mut(&mut self) -> &mut ParityLogs {
        self.parity_logs.as_mut().expect("only an array with logs has to do with them")
    }

    /// Members that come get an empty log.
    fn make_logs(&mut self) {
        if let Some(journal) = &mut self.journal {
            let record = journal.make();
            return self.ask_for_journal(record);
        }
        let targets = self.intent_targets();
        let update = self.update.as_ref().expect("superblocks wait for it");
        let news = self.news_of(update.becomes);
        let records = self.logs_mut().make(targets.into_iter(), news);
        self.ask_for_logs(records);
    }

    /// What shards want logged goes to the members with the parity, or into the journal.
    fn write_logs(&mut self) {
        if let Some(journal) = &mut self.journal {
            let record = journal.write();
            return self.ask_for_journal(record);
        }
        let targets = self.intent_targets();
        let records = self.logs_mut().write(|member| targets.contains(&member));
        self.ask_for_logs(records);
    }

    fn ask_for_journal(&mut self, record: Arc<JournalRecord>) {
        let member = self.journal.as_ref().expect("it has one").member();
        let record = MetadataRecord::Journal(record, JournalPiece::First);
        self.effects.push_back(ArrayEffect::WriteMetadata { member, record });
    }

    fn ask_for_logs(&mut self, records: Vec<(MemberId, Arc<ParityLogRecord>)>) {
        for (member, record) in records {
            let record = MetadataRecord::ParityLog(record);
            self.effects.push_back(ArrayEffect::WriteMetadata { member, record });
        }
    }

    /// What shards and superblocks wait for goes to every member's bitmap.
    fn write_bitmap(&mut self) {
        let ground = self.intent_ground();
        let targets = self.intent_targets();
        let records = self.intent_mut().write(targets.into_iter(), &ground);
        for (member, record) in records {
            let record = MetadataRecord::Bitmap(record);
            self.effects.push_back(ArrayEffect::WriteMetadata { member, record });
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
            self.log_change.members_are_told();
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
            if let Some(logs) = &mut self.parity_logs {
                logs.is_said(update.news);
            }
            if let (Some(journal), Some(said)) = (&mut self.journal, update.state.journal) {
                journal.is_said(said.tail_sectors);
            }
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
        self.effects.push_back(ArrayEffect::KeepRecord { events: update.state.events });
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
        self.effects
            .push_back(ArrayEffect::Notice(Notice::Recorded { events: self.events.count() }));
        self.condition.said_once = !again;
        self.condition.absent_unrecorded = false;
        let is_moved = changes != self.condition.changes_recorded;
        self.condition.changes_recorded = changes;
        // One that was begun before the file was lost says nothing of that.
        if leaves_file || !self.is_file_leaving() {
            self.bitmap_change.is_said();
            self.log_change.is_said();
        }
        // A sweep may wait for shards that wait for bits.
        let is_left = self.bitmap_change.is_left() && self.bitmap_file.is_some();
        let is_left = spoiled(Bug::LeftFileHoldsUp, is_left, false);
        if let Some(intent) = self.intent.as_mut().filter(|_| is_left) {
            intent.holds_nobody_up();
            self.condition.unpublished = true;
        }
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
            self.effects.push_back(ArrayEffect::Notice(match why {
                WhyOut::Failed(cause) => Notice::MemberOut { member, slot, cause },
                WhyOut::Replaced(by) => Notice::Replaced { member: by, slot, old: member },
            }));
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
        self.effects.push_back(ArrayEffect::WriteBack { round: *round });
    }

    /// Superblocks say what a job has done: it counts from now on.
    fn note_offsets(&mut self, now: Instant) {
        assert!(self.flushes.missing.is_empty(), "every member has ended its flush");
        self.flushing = None;
        let Some(saved) = self.jobs.flush_ended(now) else { return };
        let is_news = match saved {
            Saved::Resync(to) => {
                let is_further = to >= self.condition.resync_offset;
                let is_further = spoiled(Bug::OffsetAhead, is_further, true);
                assert!(is_further, "I7: what was in sync stays so");
                let is_said = self.condition.on_disk == Activity::Clean;
                self.condition.resync_offset = to;
                if let Some(intent) = self.intent.as_mut().filter(|_| to == u64::MAX) {
                    intent.is_resynced();
                }
                // Superblocks that say active say that all is to be resynced: the next that say clean tell.
                self.condition.unpublished |= !is_said;
                is_said
            }
            // Superblocks say nothing of it; the bitmap will.
            Saved::Lazy { to, failed } => {
                self.condition.unpublished |= self.intent_mut().is_synced(to, &failed);
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
        self.condition.changes += u64::from(is_news);
    }

    /// Every log that does not say what it is to.
    fn write_bad_blocks(&mut self) {
        let due: SmallVec<[MemberId; 2]> = self.due_bad_blocks().collect();
        assert!(!due.is_empty(), "one is to be written");
        for member in due {
            let record = MetadataRecord::BadBlocks(self.bad_logs.begin(member));
            self.effects.push_back(ArrayEffect::WriteMetadata { member, record });
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
        self.condition.changes += u64::from(is_news);
        self.tell_bad_blocks(member);
    }

    /// Shards believe what is not in a log, nor is about to be.
    pub(super) fn tell_bad_blocks(&mut self, member: MemberId) {
        let Some(bad) = self.bad_logs.bad_blocks(member) else { return };
        self.condition.unpublished |= self.roster.set_bad_blocks(member, bad);
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
        self.effects.extend(passed.map(|far| ArrayEffect::Notice(Notice::JobPassed(far))));
        if let Some((targets, range)) = self.jobs.take_ahead() {
            for target in targets {
                self.condition.unpublished |= self.roster.holds_ahead(target, range);
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
        self.effects.extend(effects);
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
                    Come::Member(slot) => self.keep_what_it_holds(member, slot),
                    Come::Replacement(..) => 0,
                };
                self.returning.remove(&member);
                self.effects.push_back(ArrayEffect::Notice(match come {
                    Come::Member(slot) => Notice::SpareTaken { member, slot, kept_sectors },
                    Come::Replacement(slot, old) => Notice::Replacing { member, slot, old },
                }));
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
            self.effects.push_back(ArrayEffect::Notice(Notice::Recovered { member, slot }));
        }
    }

    /// A member that was in this slot before holds what no bit of the bitmap names: that is not recovered. How many sectors that is.
    /// Where a lockless bitmap says that no client has written, whatever a member holds is as good as anything, and parity is made to fit
    /// it from the first write on: that is not recovered either.
    /// Shards are told right behind this: where they still write without it, bits are open by now.
    fn keep_what_it_holds(&mut self, member: MemberId, slot: Slot) -> u64 {
        let returns = self.returning.get(&member).filter(|returns| returns.slot == slot);
        let Some(intent) = &self.intent else { return 0 };
        let since = returns.map(|returns| returns.events);
        let Some(lacked) = intent.lacked_since(since) else { return 0 };
        let held = held_of(&self.geometry, slot, &lacked);
        let returns = since.is_some_and(|events| intent.missed_since(events).is_some());
        let kept_sectors = if returns { held.sectors() } else { 0 };
        reached(match returns {
            true => Mark::MemberReturns,
            false => Mark::UnwrittenNotRecovered,
        });
        if !held.is_empty() {
            self.roster.holds_from_before(slot, held);
        }
        kept_sectors
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
        let is_logged = self.parity_logs.is_some() || self.journal.is_some();
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
        self.effects.extend(missing.iter().map(|member| ArrayEffect::Flush { member: *member }));
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
            self.effects.push_back(ArrayEffect::Answer { request, result });
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
        if self.bitmap_file == Some(member) {
            return self.lose_bitmap_file(cause);
        }
        if self.roster.leave(member) {
            return self
                .effects
                .push_back(ArrayEffect::Notice(Notice::SpareLost { member, cause }));
        }
        if self.roster.is_journal(member) {
            if planted(Bug::JournalFailureIgnored) {
                return;
            }
            if self.log_change.is_journal_untold() {
                return self.give_up_making();
            }
            self.journal.iter_mut().for_each(Journal::fails);
            return self.take_no_writes(Notice::JournalLost { member, cause });
        }
        let replaced = self.roster.slot_to_replace(member);
        let Some(failed) = self.roster.slot_of(member).or(replaced) else { return };
        if self.roster.is_newcomer(member) {
            // No shard has written to it. The update that names it will be followed by one that does not.
            self.roster.forget_newcomer(member);
            self.condition.changes += 1;
            return self
                .effects
                .push_back(ArrayEffect::Notice(Notice::SpareLost { member, cause }));
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
                self.condition.unpublished = true;
            }
        } else {
            self.break_down(cause);
        }
    }

    /// The bitmap file cannot be written, or is gone. It is written no more, and the array goes on without it: superblocks count beyond it
    /// before anybody writes what it does not name.
    fn lose_bitmap_file(&mut self, cause: Cause) {
        if self.is_file_out() || self.condition.read_only || self.condition.broken {
            return;
        }
        reached(Mark::BitmapFileLost);
        self.bitmap_change.is_lost();
        if self.parity_logs.is_some() {
            self.log_change.is_lost();
        } else if self.log_change.is_wanted() {
            // Nothing is made in it any more.
            self.log_change.is_over();
        }
        self.condition.changes += 1;
        let notice = Notice::BitmapFileLost { member: cause.member, cause };
        self.effects.push_back(ArrayEffect::Notice(notice));
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
            self.effects.push_back(ArrayEffect::Notice(notice));
            self.condition.unpublished = true;
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
            self.effects.push_back(ArrayEffect::QueryActivity);
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
        self.condition.unpublished = false;
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
            doubt: self.intent.as_ref().and_then(Intent::doubt).map(Arc::clone),
            intent: self.intent.as_ref().map(Intent::view),
            keeps_parity_logs: self.parity_logs.as_ref().is_some_and(ParityLogs::is_on),
            keeps_journal: self.journal.is_some(),
            zero_is_fast: self.setup.zero_is_fast,
        };
        self.effects.push_back(ArrayEffect::Publish(Arc::new(view)));
    }
}
