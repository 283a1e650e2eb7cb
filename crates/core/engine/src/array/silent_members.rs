//! The array's reaction to members that do not answer: which of them go away, and how they return.
//!
//! `away.rs` has the rule and the data of an absent member, `context/orphans.rs` the member's
//! requests.

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, Mark, planted, reached};

use super::away::AwayMember;
use super::effect::Notice;
use super::machine::Array;
use super::refusals::MemberRefusal;
use super::roster::Wish;
use super::setup::SpareSetup;
use super::sitting_out::MS;
use crate::Instant;
use crate::cause::Cause;
use crate::ids::MemberId;
use crate::tuning::Patience;

impl Array {
    /// Sets how long the array waits for silent members. Before the first call, the array waits for
    /// ever.
    pub fn handle_patience(&mut self, now: Instant, patience: Patience) {
        self.away.patience = patience;
        self.step(now);
    }

    /// How long the array waits for silent members.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.away.patience
    }

    /// Members that are away, by name.
    #[must_use]
    pub fn away(&self) -> Vec<(MemberId, AwayMember)> {
        self.away.members.iter().map(|(member, away)| (*member, *away)).collect()
    }

    /// Takes the news that an away member has failed and cannot return. Its slot no longer waits
    /// for it.
    pub fn handle_stays_away(&mut self, now: Instant, cause: Cause) {
        if let Some(AwayMember { slot, .. }) = self.away.ends(cause.member) {
            reached(Mark::StaysAway);
            self.out.notice(Notice::MemberOut { member: cause.member, slot, cause });
        }
        self.step(now);
    }

    /// Whether a member that is away could return to the array now.
    #[must_use]
    pub fn may_return(&self, member: MemberId) -> bool {
        let may_come = self.may_change_members().is_ok() && self.consistency.are_logs_settled();
        // Until superblocks record the member's loss, shards still see the member.
        self.away.has(member) && may_come && !self.roster.is_unrecorded(member)
    }

    /// Takes the members with requests in flight, and for each the milliseconds since its last
    /// answer. If most members are silent, the members are not the cause: none goes away.
    pub fn handle_silence(&mut self, now: Instant, silent: &[(MemberId, u64)]) {
        let Some(limit_ms) = self.away.patience.silence_ms else { return };
        let in_slots = silent.iter().filter_map(|(member, silent_ms)| {
            Some((self.roster.slot_of(*member)?, *member, *silent_ms))
        });
        let suspects: Vec<(Slot, MemberId, u64)> =
            in_slots.filter(|(.., silent_ms)| *silent_ms >= limit_ms / 2).collect();
        let is_most = suspects.len() * 2 > self.roster.slots.iter().flatten().count();
        let is_suspect = |other: Slot| suspects.iter().any(|(slot, ..)| *slot == other);
        for (slot, member, silent_ms) in &suspects {
            if *silent_ms < limit_ms {
                continue;
            }
            if is_most || !self.may_go_away(*slot, *member, is_suspect) {
                reached(Mark::SilentButNeeded);
                continue;
            }
            reached(Mark::GoesAway);
            let spare_at = Some(now.plus_milliseconds(self.away.patience.spare_after_ms));
            self.away.begins(*member, AwayMember { slot: *slot, since: now, spare_at });
            self.fail_member(Cause::silent(*member));
        }
        self.step(now);
    }

    /// A member that was away has answered all its requests, and returns as `newcomer`. The member
    /// gets its slot, or becomes a spare if another member has taken the slot.
    ///
    /// # Errors
    /// As for [`Self::handle_member_added`]; the member then stays away.
    pub fn handle_member_returned(
        &mut self,
        now: Instant,
        member: MemberId,
        newcomer: SpareSetup,
    ) -> Result<(), MemberRefusal> {
        let away = self.away.members.get(&member).copied().ok_or(MemberRefusal::NoMember)?;
        let AwayMember { slot, since, .. } = away;
        let id = newcomer.id;
        self.handle_member_added(now, newcomer, Some(Wish { slot, replaces: false }))?;
        reached(Mark::ReturnsFromAway);
        self.away.ends(member);
        let after_ms = now.0.saturating_sub(since.0) / MS;
        self.out.notice(Notice::Returned { member: id, slot, old: member, after_ms });
        Ok(())
    }

    /// Whether the array can do without the member: the level tolerates the loss of it and all
    /// suspect members, and a bitmap can record the writes that the member misses.
    fn may_go_away(&self, slot: Slot, member: MemberId, is_suspect: impl Fn(Slot) -> bool) -> bool {
        if planted(Bug::GoesAwayAnyhow) {
            return self.may_change_members().is_ok();
        }
        let holds_all = !self.roster.is_lost(slot);
        let is_alone = self.roster.replacement_of(slot).is_none();
        let is_lost = |other: Slot| is_suspect(other) || self.roster.is_lost(other);
        // Without the member, sectors in doubt may read as another copy, or as zeroes. If another
        // member's log names ranges, this member may be the only one that holds those sectors. And
        // a member whose own log names ranges returns blank.
        let agrees = self.condition.resync_offset == u64::MAX;
        let is_whole = self.roster.named_sectors() == 0;
        let may_be = self.may_change_members().is_ok() && !self.roster.is_newcomer(member);
        // The array does not need a member that is being filled, and would wait for that member
        // with every write. After its return the member is filled from the start.
        let is_needed = !self.setup.survives(&is_lost)
            || holds_all && !(agrees && is_whole && self.tells_what_is_missed());
        may_be && is_alone && !is_needed
    }

    /// Whether the bitmap records the writes that a missing member misses from now on.
    fn tells_what_is_missed(&self) -> bool {
        self.consistency.tells_what_is_missed_since(self.superblocks.events())
    }
}
