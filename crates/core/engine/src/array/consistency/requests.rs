//! The operator's requests to change the bitmap, the logs or the journal, and questions about them.
//!
//! A request is refused because of the current state, or noted: the table decides when the array
//! carries it out.

use std::collections::BTreeMap;

use braid_geometry::{Family, Level};
use braid_ondisk::{LogPlace, OwnLogPlace};

use super::bitmap_change::NewBitmap;
use super::held_ranges::held_ranges_of;
use super::intent::Intent;
use super::journal::{Journal, JournalLook};
use super::log_change::LogWish;
use super::machine::Logs;
use crate::Instant;
use crate::array::bitmap_record::BitmapLook;
use crate::array::machine::Array;
use crate::array::order::Activity;
use crate::array::refusals::{BitmapRefusal, LogRefusal};
use crate::array::setup::{JournalSetup, ReturningMember};
use crate::ids::MemberId;

impl Array {
    /// Sectors without a bit, which a returning member would keep without recovery.
    #[must_use]
    pub fn would_keep(&self, returns: ReturningMember) -> u64 {
        let missed = self.consistency.missed_since(returns.events);
        missed.map_or(0, |missed| {
            held_ranges_of(&self.setup.geometry, returns.slot, missed).sectors()
        })
    }

    /// The array's write-intent bitmap.
    #[must_use]
    pub fn bitmap(&self) -> Option<BitmapLook> {
        self.consistency.intent.as_ref().map(Intent::look)
    }

    /// The file with the array's bitmap, and with braid's own parity log if the array keeps that
    /// log.
    #[must_use]
    pub fn bitmap_file(&self) -> Option<MemberId> {
        self.consistency.file
    }

    /// The place of braid's own parity log, if the log is on members, and the sectors of the
    /// bitmap.
    #[must_use]
    pub fn own_log(&self) -> Option<(OwnLogPlace, u64)> {
        let place = self.consistency.logs.parity()?.own_place()?;
        self.bitmap_file().is_none().then(|| (place, self.bitmap_sectors()))
    }

    /// Whether the array keeps braid's own parity log, on members or in its bitmap file.
    #[must_use]
    pub fn has_own_logs(&self) -> bool {
        self.consistency.logs.parity().is_some_and(|logs| logs.own_place().is_some())
    }

    /// Sectors of the array's bitmap on each member; 0 if members have no bitmap.
    #[must_use]
    pub fn bitmap_sectors(&self) -> u64 {
        let on_members = self.consistency.intent.as_ref().filter(|_| self.bitmap_file().is_none());
        on_members.map_or(0, Intent::area_sectors)
    }

    /// Sectors of the array's bitmap in its bitmap file; 0 without such a file.
    #[must_use]
    pub fn bitmap_file_sectors(&self) -> u64 {
        let in_file = self.consistency.intent.as_ref().filter(|_| self.bitmap_file().is_some());
        in_file.map_or(0, Intent::area_sectors)
    }

    /// Creates, replaces or drops the bitmap. The change is done when [`Self::is_bitmap_settled`]
    /// returns true.
    ///
    /// # Errors
    /// If the array has no bitmap to drop, needs its bitmap, takes no writes, or keeps another log.
    /// Nothing is changed.
    pub fn handle_bitmap_request(
        &mut self,
        now: Instant,
        wanted: Option<NewBitmap>,
    ) -> Result<(), BitmapRefusal> {
        self.may_change_bitmap(wanted.is_some())?;
        self.consistency.bitmap_change.want(wanted);
        self.step(now);
        Ok(())
    }

    /// Whether the array can create a bitmap, or drop it.
    ///
    /// # Errors
    /// As for [`Self::handle_bitmap_request`].
    pub fn may_change_bitmap(&self, is_to_be_there: bool) -> Result<(), BitmapRefusal> {
        self.may_change_members()?;
        let context = self.consistency_context();
        let agrees = context.resync_offset == u64::MAX && self.consistency.is_made();
        let is_settled = self.is_bitmap_settled() && self.are_logs_settled();
        match (&self.consistency.logs, &self.consistency.intent) {
            _ if self.changes_shape() => Err(BitmapRefusal::Reshaping),
            _ if !is_settled => Err(BitmapRefusal::Busy),
            (Logs::Parity(_), _) => Err(BitmapRefusal::ParityLogs),
            (Logs::Journal(_), _) => Err(BitmapRefusal::Journal),
            (Logs::None, None) if !is_to_be_there => Err(BitmapRefusal::HasNone),
            (Logs::None, Some(_)) if !agrees => Err(BitmapRefusal::InDoubt),
            (Logs::None, Some(_)) if !context.is_whole() => Err(BitmapRefusal::Degraded),
            _ => Ok(()),
        }
    }

    /// Whether no change of the bitmap is in progress.
    #[must_use]
    pub fn is_bitmap_settled(&self) -> bool {
        self.consistency.bitmap_change.is_settled()
    }

    /// Creates parity logs at these places, all of one kind and one for each member; or drops them.
    /// The change is done when [`Self::are_logs_settled`] returns true.
    ///
    /// # Errors
    /// If the array has no logs to drop, needs its logs, takes no writes, or keeps another log.
    /// Nothing is changed.
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
        self.consistency.log_change.want(wanted.map_or(LogWish::Nothing, LogWish::Logs));
        self.step(now);
        Ok(())
    }

    /// Adds a write journal, on a device that is not in the array. The change is done when
    /// [`Self::are_logs_settled`] returns true, unless the device has failed meanwhile.
    ///
    /// # Errors
    /// If the array takes no writes, keeps another log, or is not whole. Nothing is changed.
    pub fn handle_journal_added(
        &mut self,
        now: Instant,
        journal: JournalSetup,
    ) -> Result<(), LogRefusal> {
        self.may_add_journal()?;
        self.consistency.log_change.want(LogWish::Journal(journal));
        self.step(now);
        Ok(())
    }

    /// Whether a device can become a write journal.
    ///
    /// # Errors
    /// As for [`Self::handle_journal_added`].
    pub fn may_add_journal(&self) -> Result<(), LogRefusal> {
        // A journal has the same requirements as braid's own log, and also allows no bitmap.
        self.may_change_logs(Some(true))?;
        if self.consistency.intent.is_some() { Err(LogRefusal::Bitmap) } else { Ok(()) }
    }

    /// Whether the array can create parity logs, braid's own or md's, or with `None` drop them.
    ///
    /// # Errors
    /// As for [`Self::handle_log_request`].
    pub fn may_change_logs(&self, is_own: Option<bool>) -> Result<(), LogRefusal> {
        self.may_change_members()?;
        let context = self.consistency_context();
        let intent = &self.consistency.intent;
        let level = context.geometry.level();
        let has_level = match is_own {
            Some(false) => level == Level::Raid5,
            Some(true) | None => level.family() == Family::Stripe,
        };
        let bears_bitmap = match is_own {
            Some(true) => intent.as_ref().is_none_or(|intent| !intent.is_lockless()),
            Some(false) => intent.is_none(),
            None => true,
        };
        let agrees = context.resync_offset == u64::MAX && self.consistency.is_made();
        match () {
            () if self.changes_shape() => Err(LogRefusal::Reshaping),
            () if !self.is_bitmap_settled() || !self.are_logs_settled() => Err(LogRefusal::Busy),
            () if !has_level => Err(LogRefusal::Level),
            () if !agrees => Err(LogRefusal::InDoubt),
            () if !context.is_whole() => Err(LogRefusal::Degraded),
            () if is_own.is_none() && !self.consistency.has_logs() => Err(LogRefusal::HasNone),
            // A journal allows no other log either.
            () if is_own.is_some() && self.consistency.has_logs() => Err(LogRefusal::HasLogs),
            () if !bears_bitmap => Err(LogRefusal::Bitmap),
            () => Ok(()),
        }
    }

    /// Whether no change of parity logs is in progress.
    #[must_use]
    pub fn are_logs_settled(&self) -> bool {
        self.consistency.are_logs_settled()
    }

    /// Whether shards log every write, or will once parity agrees; `None` without parity logs.
    #[must_use]
    pub fn parity_logs(&self) -> Option<bool> {
        // The logs are created before the first write: if parity agrees, no write begins unlogged.
        let agrees = self.condition.resync_offset == u64::MAX;
        let writes = self.superblocks.on_disk() == Activity::Active;
        self.consistency.logs_parity().map(|is_on| is_on || agrees && !writes)
    }

    /// The array's write journal, if the array writes to it.
    #[must_use]
    pub fn journal(&self) -> Option<JournalLook> {
        self.consistency.logs.journal().map(Journal::look)
    }
}
