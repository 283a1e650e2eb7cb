//! Consistency's state: logs, the operator's wishes, and answers to superblocks, shards and jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_geometry::{Geometry, Slot};
use braid_ondisk::{Bits, LogHome, PplPlace};
use braid_sim_hooks::{Bug, Mark, reached, spoiled};

use super::bitmap_change::BitmapChange;
use super::context::ConsistencyContext;
use super::held_ranges::held_ranges_of;
use super::intent::Intent;
use super::journal::Journal;
use super::log_change::LogChange;
use super::parity_logs::{News, ParityLogs};
use crate::Instant;
use crate::array::order::Activity;
use crate::array::outbox::Outbox;
use crate::array::setup::{ArraySetup, ReturningMember, SpareSetup};
use crate::array::update::JournalState;
use crate::array::view::IntentView;
use crate::ids::{BitmapId, MemberId};
use crate::ranges::MemberRanges;

/// The log that records a write before members get it. An array with braid's own log may have a
/// bitmap too, an array with a journal may not.
#[derive(Debug)]
pub(super) enum Logs {
    None,
    Parity(ParityLogs),
    Journal(Journal),
}

impl Logs {
    pub(super) fn parity(&self) -> Option<&ParityLogs> {
        if let Self::Parity(logs) = self { Some(logs) } else { None }
    }

    pub(super) fn parity_mut(&mut self) -> Option<&mut ParityLogs> {
        if let Self::Parity(logs) = self { Some(logs) } else { None }
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        if let Self::Journal(journal) = self { Some(journal) } else { None }
    }

    pub(super) fn journal_mut(&mut self) -> Option<&mut Journal> {
        if let Self::Journal(journal) = self { Some(journal) } else { None }
    }

    fn are_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

#[derive(Debug)]
pub(in crate::array) struct Consistency {
    pub(super) intent: Option<Intent>,
    pub(super) bitmap_change: BitmapChange,
    /// The file with the bitmap and braid's own log, if they are not on members.
    pub(super) file: Option<MemberId>,
    pub(super) logs: Logs,
    pub(super) log_change: LogChange,
    /// Spares that were members before.
    returning: BTreeMap<MemberId, ReturningMember>,
}

/// Consistency's part of an update of superblocks.
#[derive(Debug)]
pub(in crate::array) struct ConsistencyRecord {
    /// The kind of the update, as far as it matters for logs; fixed when the update begins.
    pub(in crate::array) news: News,
    /// The place of braid's own log, if the log is valid.
    pub(in crate::array) log_counts: Option<LogHome>,
    pub(in crate::array) has_bitmap: Option<bool>,
    pub(in crate::array) ppls: Arc<[(MemberId, PplPlace)]>,
    pub(in crate::array) journal: Option<JournalState>,
    /// The member whose superblock is written first: the journal's device, once members'
    /// superblocks name the journal.
    pub(in crate::array) first: Option<MemberId>,
    /// The bitmap, or braid's own log, is in a file.
    pub(in crate::array) is_in_file: bool,
    /// The bitmap file is no longer written: the update's event count exceeds the file's.
    pub(in crate::array) leaves_file: bool,
}

impl Consistency {
    /// Takes consistency's part out of an array's setup.
    pub(in crate::array) fn new(setup: &mut ArraySetup) -> Self {
        let bitmap = setup.bitmap.take();
        let bitmap = bitmap.map(|one| Intent::new(BitmapId::default(), one, setup.resync_offset));
        let (is_in_file, log_counts) = (setup.bitmap_file.is_some(), setup.log_counts);
        let logs = match (setup.parity_logs.take(), setup.journal) {
            (None, None) => Logs::None,
            (Some(logs), None) => {
                Logs::Parity(ParityLogs::new(&setup.geometry, is_in_file, logs, log_counts))
            }
            (None, Some(journal)) if bitmap.is_none() => Logs::Journal(Journal::new(journal)),
            _ => panic!("an array keeps one of them"),
        };
        Self {
            intent: bitmap,
            bitmap_change: BitmapChange::new(setup.names_bitmap),
            file: setup.bitmap_file,
            logs,
            log_change: LogChange::Settled,
            returning: BTreeMap::new(),
        }
    }

    /// The file with the bitmap and braid's own log, if they are not on members.
    pub(in crate::array) fn file(&self) -> Option<MemberId> {
        self.file
    }

    /// Whether shards log every write; `None` without parity logs.
    pub(in crate::array) fn logs_parity(&self) -> Option<bool> {
        self.logs.parity().map(ParityLogs::is_on)
    }

    pub(in crate::array) fn journal_member(&self) -> Option<MemberId> {
        self.logs.journal().map(Journal::member)
    }

    /// Whether writes are logged or journaled.
    pub(in crate::array) fn has_logs(&self) -> bool {
        !self.logs.are_none()
    }

    pub(in crate::array) fn view(&self) -> Option<IntentView> {
        self.intent.as_ref().map(Intent::view)
    }

    /// Bits beyond the resync offset whose sectors are in doubt; `None` if all sectors are.
    pub(in crate::array) fn doubt(&self) -> Option<&Arc<Bits>> {
        self.intent.as_ref().and_then(Intent::doubt)
    }

    /// The bits of a lockless bitmap: those whose sectors a job must make agree, and those whose
    /// sectors no check compares.
    pub(in crate::array) fn lazy(&self) -> Option<(&Bits, &Bits)> {
        self.intent.as_ref().and_then(Intent::lazy)
    }

    /// The next time at which consistency acts without an event.
    pub(in crate::array) fn poll_timeout(
        &self,
        context: &ConsistencyContext<'_>,
    ) -> Option<Instant> {
        self.intent.as_ref()?.poll_timeout(&self.intent_context(context))
    }

    /// Whether no change of logs is in progress.
    pub(in crate::array) fn are_logs_settled(&self) -> bool {
        self.log_change.is_settled()
    }

    /// Whether the bitmap file is no longer written, even if superblocks do not record that yet.
    pub(super) fn is_file_out(&self) -> bool {
        let change = &self.bitmap_change;
        self.file.is_some() && (change.is_leaving() || change.is_left())
    }

    /// Whether the bitmap file is no longer written, and superblocks do not count more events than
    /// the file yet.
    pub(in crate::array) fn is_file_leaving(&self) -> bool {
        self.file.is_some() && self.bitmap_change.is_leaving()
    }

    /// Whether redundancy was made to agree everywhere, except for writes in flight. With a
    /// lockless bitmap some sectors may never have agreed.
    pub(super) fn is_made(&self) -> bool {
        self.intent.as_ref().is_none_or(Intent::is_made)
    }

    /// Whether the bitmap records the writes that a member missed since this event count.
    pub(in crate::array) fn tells_what_is_missed_since(&self, events: u64) -> bool {
        self.missed_since(events).is_some() && self.are_logs_settled()
    }

    /// Whether a device may become a spare. The array may have created logs since the caller chose
    /// the device's place for a log, so the place is checked here.
    pub(in crate::array) fn may_come(&self, newcomer: &SpareSetup) -> bool {
        let has_place =
            self.logs.parity().is_none() || self.file.is_some() || newcomer.parity_log.is_some();
        has_place && self.are_logs_settled()
    }

    pub(in crate::array) fn waits(&mut self, newcomer: &SpareSetup) {
        let SpareSetup { id, returns, parity_log, .. } = *newcomer;
        let parity_log = parity_log.filter(|_| self.file.is_none());
        if let Some((logs, place)) = self.logs.parity_mut().zip(parity_log) {
            logs.keep(id, place);
        }
        self.returning.extend(returns.map(|returns| (id, returns)));
    }

    /// Ranges that a member in this slot holds before its recovery, because no client has written
    /// them.
    pub(in crate::array) fn held_unwritten(&self, geometry: &Geometry, slot: Slot) -> MemberRanges {
        let lacked = self.intent.as_ref().and_then(|intent| intent.lacked_since(None));
        lacked.map(|lacked| held_ranges_of(geometry, slot, &lacked)).unwrap_or_default()
    }

    /// The ranges that a member holds as it comes into a slot, and how many sectors of them it kept
    /// from a former membership. A member that was in the slot before needs recovery only in
    /// sectors with bits in the bitmap. Sectors that no client has written, by a lockless bitmap,
    /// need no recovery either: any content will do, since the first write makes parity fit it.
    /// Shards get the new view right after this call: wherever shards still write without the
    /// member, bits are set by now.
    pub(in crate::array) fn held_by(
        &self,
        geometry: &Geometry,
        member: MemberId,
        slot: Slot,
    ) -> (MemberRanges, u64) {
        let returns = self.returning.get(&member).filter(|returns| returns.slot == slot);
        let since = returns.map(|returns| returns.events);
        let lacked = self.intent.as_ref().and_then(|intent| intent.lacked_since(since));
        let Some(lacked) = lacked else { return (MemberRanges::default(), 0) };
        let held = held_ranges_of(geometry, slot, &lacked);
        let returns = since.is_some_and(|events| self.missed_since(events).is_some());
        let kept_sectors = if returns { held.sectors() } else { 0 };
        reached(match returns {
            true => Mark::MemberReturns,
            false => Mark::UnwrittenNotRecovered,
        });
        (held, kept_sectors)
    }

    /// Notes that a spare has got a slot.
    pub(in crate::array) fn has_come(&mut self, member: MemberId) {
        self.returning.remove(&member);
    }

    pub(super) fn missed_since(&self, events: u64) -> Option<&Bits> {
        self.intent.as_ref().and_then(|intent| intent.missed_since(events))
    }

    /// Begins an update of superblocks, and returns consistency's part of it. A clean update begins
    /// only while no write can be in flight.
    pub(in crate::array) fn update_begins(
        &mut self,
        becomes: Activity,
        context: &ConsistencyContext<'_>,
    ) -> ConsistencyRecord {
        let news = self.news_of(becomes, context);
        if let News::Drained { .. } = news
            && let Some(journal) = self.logs.journal_mut()
        {
            journal.begin_anew();
        }
        let is_leaving = self.log_change.is_leaving();
        let will_count = !is_leaving;
        let will_count = spoiled(Bug::LostFileCounts, will_count, true);
        let parity = self.logs.parity();
        let will_count = will_count && parity.is_some_and(|logs| logs.will_count(news));
        let log_counts = becomes != Activity::Clean && will_count;
        let home = if self.file.is_some() { LogHome::File } else { LogHome::Members };
        let ppls = parity.into_iter().filter(|_| !is_leaving).flat_map(ParityLogs::ppls).collect();
        let first = self.journal_member().filter(|_| self.log_change.is_journal_made());
        ConsistencyRecord {
            news,
            log_counts: log_counts.then_some(home),
            has_bitmap: self.bitmap_change.names(),
            ppls,
            journal: self.logs.journal().map(|journal| {
                let (member, tail_sectors) = (journal.member(), journal.next_tail());
                let device_number = context.roster.device_numbers[&member];
                JournalState { member, device_number, tail_sectors }
            }),
            first,
            is_in_file: self.file.is_some(),
            leaves_file: self.is_file_leaving(),
        }
    }

    pub(in crate::array) fn members_are_told(&mut self) {
        self.log_change.members_are_told();
    }

    /// Notes that an update is durable, and with it the superblocks' statement about logs.
    pub(in crate::array) fn update_ends(&mut self, news: News, journal: Option<JournalState>) {
        match &mut self.logs {
            Logs::None => {}
            Logs::Parity(logs) => logs.is_said(news),
            Logs::Journal(one) => {
                if let Some(said) = journal {
                    one.is_said(said.tail_sectors);
                }
            }
        }
    }

    /// Notes that an update records the current state; `leaves_file` if the update counts more
    /// events than the bitmap file.
    pub(in crate::array) fn is_said(&mut self, leaves_file: bool, out: &mut Outbox) {
        // An update that began before the file was lost does not record the loss.
        if leaves_file || !self.is_file_leaving() {
            self.bitmap_change.is_said();
            self.log_change.is_said();
        }
        // A sweep may wait for shards whose writes wait for bits. Without the file, no write waits
        // for bits.
        let is_left = self.bitmap_change.is_left() && self.file.is_some();
        if let Some(intent) = self.intent.as_mut().filter(|_| is_left) {
            intent.holds_nobody_up();
            out.publish();
        }
    }

    /// Called when superblocks are about to say clean: members are flushed, and no write is in
    /// flight.
    pub(in crate::array) fn turns_clean(&mut self) {
        if let Some(logs) = self.logs.parity_mut() {
            logs.all_is_flushed();
        }
    }

    /// Notes that redundancy agrees everywhere again, and that members are flushed.
    pub(in crate::array) fn is_resynced(&mut self) {
        if let Some(intent) = &mut self.intent {
            intent.is_resynced();
        }
    }
}
