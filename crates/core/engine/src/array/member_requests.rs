//! An operator's requests about members: add, remove, fail, replace, or mark write-mostly. This
//! file refuses a request or notes it; the array's machines carry it out.

use braid_geometry::{Family, Slot};
use braid_sim_hooks::{Mark, reached};

use super::effect::Notice;
use super::machine::{Array, Condition};
use super::order::Activity;
use super::refusals::MemberRefusal;
use super::roster::Wish;
use super::setup::SpareSetup;
use crate::Instant;
use crate::cause::Cause;
use crate::ids::MemberId;

impl Array {
    /// Adds a device as a spare under a new name. The spare then gets an empty slot, or replaces a
    /// member. In an array without redundancy it waits for a change of shape, and no superblock
    /// names it before.
    ///
    /// # Errors
    /// If the array takes no writes, or has no redundancy for the spare's purpose, or the slot has
    /// no member to replace.
    pub fn handle_member_added(
        &mut self,
        now: Instant,
        newcomer: SpareSetup,
        wanted: Option<Wish>,
    ) -> Result<(), MemberRefusal> {
        let is_kept = self.keeps_superblocks();
        if is_kept || wanted.is_some() {
            self.may_change_members()?;
        } else {
            self.may_change_spares()?;
        }
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
        self.superblocks.may_tear(tears);
        self.out.change_if(is_kept);
        self.step(now);
        Ok(())
    }

    /// Whether the operator can have a member replaced.
    ///
    /// # Errors
    /// If the member has no slot, is being filled or replaced, or if the array takes no writes or
    /// has no redundancy.
    pub fn may_replace(&self, member: MemberId) -> Result<Slot, MemberRefusal> {
        self.may_change_members()?;
        let slot = self.roster.slot_of(member).ok_or(MemberRefusal::NoMember)?;
        match () {
            () if self.roster.replacement_of(slot).is_some() => Err(MemberRefusal::Replaced),
            () if self.roster.is_lost(slot) => Err(MemberRefusal::Unrecovered),
            () => Ok(slot),
        }
    }

    /// Replaces a member by a spare, which is filled while the member still serves.
    ///
    /// # Errors
    /// As for [`Self::may_replace`], or if the replacement is no spare. Nothing is changed.
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

    /// Whether the operator can fail a member.
    ///
    /// # Errors
    /// If the array has no such member, takes no writes, or cannot lose the member.
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
        // Parity that may disagree with the data cannot replace a member.
        let is_doubtful = self.condition.resync_offset != u64::MAX
            && self.setup.geometry.level().family() == Family::Stripe;
        let would_lose =
            !self.roster.is_lost(slot) && (is_doubtful || !self.setup.survives(&is_lost));
        if would_lose { Err(MemberRefusal::Needed) } else { Ok(()) }
    }

    /// Fails a member, as if it had failed a write.
    ///
    /// # Errors
    /// As for [`Self::may_fail`]. Nothing is changed.
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

    /// Whether superblocks can mark a member write-mostly.
    ///
    /// # Errors
    /// If the array has no such member, has no redundancy, or takes no writes.
    pub fn may_set_write_mostly(&self, member: MemberId) -> Result<(), MemberRefusal> {
        if !self.roster.device_numbers.contains_key(&member) {
            return Err(MemberRefusal::NoMember);
        }
        self.may_change_members()
    }

    /// Sets or clears a member's write-mostly mark. The next update records the mark in the
    /// member's superblock.
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

    /// Removes a spare, or a member that is out already.
    ///
    /// # Errors
    /// If the member has a slot. Nothing is changed.
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
            self.may_change_spares()?;
            self.roster.leave(member);
            self.out.change_if(self.keeps_superblocks());
        }
        if let Some(away) = self.away.ends(member) {
            let (slot, cause) = (away.slot, Cause::person(member));
            self.out.notice(Notice::MemberOut { member, slot, cause });
        }
        self.step(now);
        Ok(())
    }

    pub(super) fn may_change_members(&self) -> Result<(), MemberRefusal> {
        match self.keeps_superblocks() {
            false => Err(MemberRefusal::NoRedundancy),
            true => self.may_change_spares(),
        }
    }

    fn may_change_spares(&self) -> Result<(), MemberRefusal> {
        let Condition { read_only, broken, stopping, .. } = self.condition;
        if read_only || broken || stopping { Err(MemberRefusal::NoWrites) } else { Ok(()) }
    }

    /// Whether superblocks are written while the array runs.
    fn keeps_superblocks(&self) -> bool {
        self.superblocks.on_disk() != Activity::NotKept
    }
}
