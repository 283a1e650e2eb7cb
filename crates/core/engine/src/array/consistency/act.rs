//! Carries consistency's decisions out, and takes the reports of shards and members.

use std::ops::Range;
use std::sync::Arc;

use braid_ondisk::{BitmapSuperblock, JournalPiece, JournalRecord};
use braid_sim_hooks::{Mark, reached};

use super::bitmap_change::{NewBitmap, first_bits};
use super::context::ConsistencyContext;
use super::decide::Action;
use super::intent::{Intent, IntentAction};
use super::journal::Journal;
use super::log_change::LogWish;
use super::machine::{Consistency, Logs};
use super::parity_logs::{LogAction, ParityLogs};
use crate::Instant;
use crate::array::effect::{ArrayEffect, MetadataArea, MetadataRecord, Notice};
use crate::array::order::{Activity, FlushPurpose};
use crate::array::outbox::Outbox;
use crate::array::parity_log_record::ParityLogRecord;
use crate::array::setup::{BitmapSetup, JournalSetup, ParityLogSetup};
use crate::cause::Cause;
use crate::effect::Report;
use crate::ids::{BitmapId, MemberId, ShardIndex};

/// A request that consistency makes to the rest of the array.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) enum ArrayRequest {
    Flush(FlushPurpose),
    /// A device becomes the array's journal.
    JournalComes(JournalSetup),
    JournalGoes,
}

impl Consistency {
    pub(in crate::array) fn act(
        &mut self,
        action: Action,
        now: Instant,
        context: &ConsistencyContext<'_>,
        out: &mut Outbox,
    ) -> Option<ArrayRequest> {
        match action {
            Action::ChangeLogs => return self.change_logs(context, out),
            Action::WipeLogs => {
                let targets = self.targets(context);
                let records = self.parity().wipe_out(targets.into_iter());
                ask_for_logs(records, out);
            }
            Action::DropLogs => self.drop_logs(out),
            Action::DropBitmap => {
                self.bitmap_change.is_dropped();
                (self.intent, self.file) = (None, None);
                out.publish();
            }
            Action::ChangeBitmap => self.change_bitmap(context, out),
            Action::Bits(action) => return self.act_on_bits(action, now, context, out),
            Action::Logs(action) => return self.act_on_logs(action, context, out),
        }
        None
    }

    fn intent(&mut self) -> &mut Intent {
        self.intent.as_mut().expect("only an array with a bitmap has to do with bits")
    }

    fn parity(&mut self) -> &mut ParityLogs {
        self.logs.parity_mut().expect("only an array with logs has to do with them")
    }

    fn act_on_bits(
        &mut self,
        action: IntentAction,
        now: Instant,
        context: &ConsistencyContext<'_>,
        out: &mut Outbox,
    ) -> Option<ArrayRequest> {
        let bits_context = self.intent_context(context);
        let shards = || (0..context.shards).map(ShardIndex).collect();
        match action {
            IntentAction::Wait => {}
            IntentAction::Open => {
                let is_recorded = !bits_context.has_unrecorded;
                assert!(is_recorded, "I4: who lacks a bit is out, and superblocks say so");
                self.intent().open();
                out.publish();
            }
            // The bits that shards and superblocks wait for go into every member's bitmap.
            IntentAction::Write => {
                let targets = self.targets(context);
                let records = self.intent().write(targets.into_iter(), &bits_context);
                out.extend(records.into_iter().map(|(member, record)| {
                    let record = MetadataRecord::Bitmap(record);
                    ArrayEffect::WriteMetadata { member, record }
                }));
            }
            IntentAction::Ask => {
                self.intent().ask(shards());
                out.push(ArrayEffect::QueryTouched);
            }
            IntentAction::Revoke => {
                let is_news = self.intent().revoke(now, shards(), &bits_context);
                out.publish_if(is_news);
            }
            IntentAction::Forget => self.intent().forget(now),
            IntentAction::Flush => {
                self.intent().flush_begins();
                return Some(ArrayRequest::Flush(FlushPurpose::Bits));
            }
            IntentAction::Clear => {
                assert_eq!(context.on_disk, Activity::Clean, "I5: all that was written is flushed");
                self.intent().clear_all(&bits_context);
                out.publish();
            }
        }
        None
    }

    fn act_on_logs(
        &mut self,
        action: LogAction,
        context: &ConsistencyContext<'_>,
        out: &mut Outbox,
    ) -> Option<ArrayRequest> {
        match action {
            LogAction::Wait => {}
            LogAction::Blank => self.make_logs(context, out),
            LogAction::Write => self.write_logs(context, out),
            LogAction::Grant => self.grant_logs(context, out),
            LogAction::Flush => {
                match &mut self.logs {
                    Logs::Journal(journal) => journal.flush_begins(),
                    Logs::Parity(_) | Logs::None => self.parity().flush_begins(),
                }
                return Some(ArrayRequest::Flush(FlushPurpose::Logs));
            }
        }
        None
    }

    pub(in crate::array) fn is_flushed(
        &mut self,
        purpose: FlushPurpose,
        now: Instant,
        context: &ConsistencyContext<'_>,
        out: &mut Outbox,
    ) {
        if purpose == FlushPurpose::Bits {
            let context = self.intent_context(context);
            return self.intent().is_flushed(now, &context);
        }
        match &mut self.logs {
            Logs::Journal(journal) => out.change_if(journal.is_flushed()),
            Logs::Parity(_) | Logs::None => self.parity().is_flushed(),
        }
    }

    /// Gives new members an empty log, or the journal an empty block.
    fn make_logs(&mut self, context: &ConsistencyContext<'_>, out: &mut Outbox) {
        if let Some(journal) = self.logs.journal_mut() {
            let record = journal.make();
            return ask_for_journal(journal, record, out);
        }
        let targets = self.targets(context);
        let news = context.awaiting.expect("superblocks wait for it").news;
        let records = self.parity().make(targets.into_iter(), news);
        ask_for_logs(records, out);
    }

    /// Writes the records that shards wait for, to the members with the parity or into the journal.
    fn write_logs(&mut self, context: &ConsistencyContext<'_>, out: &mut Outbox) {
        if let Some(journal) = self.logs.journal_mut() {
            let record = journal.write();
            return ask_for_journal(journal, record, out);
        }
        let targets = self.targets(context);
        let records = self.parity().write(|member| targets.contains(&member));
        ask_for_logs(records, out);
    }

    fn grant_logs(&mut self, context: &ConsistencyContext<'_>, out: &mut Outbox) {
        // Journal records are only on the journal's device, so the loss of another member does not
        // matter.
        let has_unrecorded = self.intent_context(context).has_unrecorded;
        let is_recorded = !has_unrecorded || self.logs.journal().is_some();
        assert!(is_recorded, "I4: who did not take a record is out, by superblocks");
        let granted = match &mut self.logs {
            Logs::Journal(journal) => journal.grant(),
            Logs::Parity(_) | Logs::None => self.parity().grant(),
        };
        for (shard, ticket) in granted {
            out.push(ArrayEffect::Logged { shard, ticket });
        }
    }

    /// Called when superblocks say clean: the next superblocks record the new logs, or none. If a
    /// member without room for a log joined meanwhile, nothing changes.
    fn change_logs(
        &mut self,
        context: &ConsistencyContext<'_>,
        out: &mut Outbox,
    ) -> Option<ArrayRequest> {
        let is_still = context.on_disk == Activity::Clean;
        assert!(is_still, "I3: nothing is written that is not logged, or logged in part");
        let ask = match self.log_change.begin(self.logs.journal().is_some()) {
            LogWish::Logs(places) => {
                reached(Mark::LogsMade);
                let mut targets = context.roster.all().filter(|_| self.file.is_none());
                let has_file = self.file.is_none_or(|file| places.contains_key(&file));
                let is_still_there = self.bitmap_change.is_settled() && has_file;
                if !is_still_there || !targets.all(|member| places.contains_key(&member)) {
                    self.log_change.is_over();
                    return None;
                }
                let log = |(member, place)| (member, ParityLogSetup { place, newest: None });
                let logs = places.into_iter().map(log);
                let logs = ParityLogs::new(context.geometry, self.file.is_some(), logs, false);
                self.logs = Logs::Parity(logs);
                None
            }
            LogWish::Journal(setup) => {
                self.logs = Logs::Journal(Journal::new(setup));
                Some(ArrayRequest::JournalComes(setup))
            }
            LogWish::Nothing => match self.logs.journal() {
                Some(journal) => {
                    assert!(journal.is_at_rest(), "I3: what it has is on the members");
                    self.logs = Logs::None;
                    Some(ArrayRequest::JournalGoes)
                }
                None => {
                    reached(Mark::LogsGivenUp);
                    None
                }
            },
        };
        out.change();
        ask
    }

    fn drop_logs(&mut self, out: &mut Outbox) {
        assert!(self.log_change.is_left(), "no superblock names what is dropped");
        self.log_change.is_over();
        // The log was lost while writes were in flight; superblocks no longer call it valid.
        let waiting: Vec<_> = self.parity().waiting().collect();
        self.logs = Logs::None;
        for (shard, ticket) in waiting {
            out.push(ArrayEffect::Logged { shard, ticket });
        }
        out.publish();
    }

    /// Makes the next superblocks name the new bitmap, or none.
    fn change_bitmap(&mut self, context: &ConsistencyContext<'_>, out: &mut Outbox) {
        let made = self.bitmap_change.begin(self.intent.is_some());
        reached(if made.is_some() { Mark::BitmapMade } else { Mark::BitmapGivenUp });
        if let Some((id, NewBitmap { head, file })) = made {
            self.file = file;
            let head = BitmapSuperblock { events_cleared: context.events, ..head };
            let says = first_bits(&head, context.on_disk, context.resync_offset);
            let setup = BitmapSetup { head, says, doubt: None, marks: None };
            let mut intent = Intent::new(id, setup, u64::MAX);
            if context.on_disk == Activity::Active {
                intent.open_all();
            }
            self.intent = Some(intent);
            out.publish();
        }
        out.change();
    }

    /// Notes that a resync of due runs has passed all sectors below `to`, except `failed`, and that
    /// members are flushed.
    pub(in crate::array) fn is_synced(&mut self, to: u64, failed: &[Range<u64>], out: &mut Outbox) {
        out.publish_if(self.intent().is_synced(to, failed));
    }

    /// Takes the end of a metadata write for consistency, at a member or the journal's device.
    pub(in crate::array) fn is_written(
        &mut self,
        now: Instant,
        (member, area): (MemberId, MetadataArea),
        is_well: bool,
        out: &mut Outbox,
    ) {
        match area {
            MetadataArea::Superblock | MetadataArea::BadBlocks => {
                unreachable!("neither is consistency's")
            }
            MetadataArea::Bitmap => self.intent().is_written(now, member, is_well),
            MetadataArea::ParityLog => self.parity().is_written(member, is_well),
            MetadataArea::Journal => {
                // The journal is gone if its device left while its first block was being written.
                let journal = self.logs.journal_mut();
                if let Some(rest) = journal.and_then(|one| one.is_written(is_well)) {
                    let record = MetadataRecord::Journal(rest, JournalPiece::Rest);
                    out.push(ArrayEffect::WriteMetadata { member, record });
                }
            }
        }
    }

    /// Drops the bitmap file, because it failed a write or is gone. The array works on without the
    /// file: superblocks count more events than the file before any write begins that the file does
    /// not name.
    pub(in crate::array) fn lose_file(&mut self, cause: Cause, out: &mut Outbox) {
        if self.is_file_out() {
            return;
        }
        reached(Mark::BitmapFileLost);
        self.bitmap_change.is_lost();
        if self.logs.parity().is_some() {
            self.log_change.is_lost();
        } else if self.log_change.is_wanted() {
            // The requested log would lie in the lost file, so the request is dropped.
            self.log_change.is_over();
        }
        out.change();
        out.notice(Notice::BitmapFileLost { member: cause.member, cause });
    }

    /// Called when the journal's device has failed: drops the journal if no member's superblock
    /// names it. True if dropped.
    pub(in crate::array) fn journal_fails(&mut self, out: &mut Outbox) -> bool {
        let is_untold = self.log_change.is_journal_untold();
        if is_untold {
            self.logs = Logs::None;
            self.log_change.is_over();
            out.publish();
        } else if let Some(journal) = self.logs.journal_mut() {
            journal.fails();
        }
        is_untold
    }

    /// The bitmap of this name, unless the array dropped it since: shards then request bits of the
    /// new bitmap.
    fn bitmap_named(&mut self, name: BitmapId) -> Option<&mut Intent> {
        let intent = self.intent.as_mut()?;
        let is_this = intent.id() == name;
        is_this.then_some(intent)
    }

    /// Takes a shard's report about bits, log records or the journal.
    pub(in crate::array) fn handle_report(
        &mut self,
        shard: ShardIndex,
        report: Report,
        context: &ConsistencyContext<'_>,
        out: &mut Outbox,
    ) {
        match report {
            Report::WantBits { bitmap, from, to } => {
                if let Some(intent) = self.bitmap_named(bitmap) {
                    intent.is_wanted(from..to);
                }
            }
            Report::Touched { bitmap, bits } => {
                if let Some(intent) = self.bitmap_named(bitmap) {
                    intent.is_touched(shard, &bits);
                }
            }
            Report::Trimmed { bitmap, start, sectors } => {
                if let Some(intent) = self.bitmap_named(bitmap) {
                    intent.is_trimmed(context.geometry, start, sectors);
                }
            }
            Report::WrittenAgain { bitmap, from, to } => {
                if let Some(intent) = self.bitmap_named(bitmap) {
                    intent.is_written_again(context.geometry, from..to);
                }
            }
            Report::Drained { bitmap, revocation } => {
                if let Some(intent) = self.bitmap_named(bitmap) {
                    intent.is_drained(shard, revocation);
                }
            }
            Report::WantLog { ticket, entries } => {
                let file = self.file;
                let members = |slot| {
                    let members = context.roster.members_of(slot).filter(move |_| file.is_none());
                    members.chain(file)
                };
                match self.logs.parity_mut() {
                    Some(logs) => logs.wants((shard, ticket), &entries, members),
                    // Superblocks record the loss of the log's file, and the shard has not heard of
                    // the loss yet.
                    None => out.push(ArrayEffect::Logged { shard, ticket }),
                }
            }
            Report::WantJournal { ticket, rows } => {
                let journal = self.logs.journal_mut().expect("only an array with one is asked");
                journal.wants((shard, ticket), rows);
            }
            Report::LogOver { ticket } => match &mut self.logs {
                // The log was lost with its file meanwhile.
                Logs::None => {}
                Logs::Parity(logs) => logs.is_over((shard, ticket)),
                Logs::Journal(journal) => journal.is_over((shard, ticket)),
            },
            other => unreachable!("{other:?} is not about consistency"),
        }
    }
}

fn ask_for_journal(journal: &Journal, record: Arc<JournalRecord>, out: &mut Outbox) {
    let record = MetadataRecord::Journal(record, JournalPiece::First);
    out.push(ArrayEffect::WriteMetadata { member: journal.member(), record });
}

fn ask_for_logs(records: Vec<(MemberId, Arc<ParityLogRecord>)>, out: &mut Outbox) {
    out.extend(records.into_iter().map(|(member, record)| {
        let record = MetadataRecord::ParityLog(record);
        ArrayEffect::WriteMetadata { member, record }
    }));
}
