//! The array's reaction to members that err again and again; [`super::read_errors`] decides it.

use super::effect::{ErrorReaction, Notice};
use super::machine::Array;
use super::read_errors::{Action, Count, Facts, ReadErrors, decide};
use crate::Instant;
use crate::cause::Cause;
use crate::ids::MemberId;
use crate::tuning::{OnReadErrors, ReadErrorLimit};

impl Array {
    /// Sets the limit of read errors, and the reaction beyond it. At first there is no limit.
    pub fn handle_read_error_limit(&mut self, now: Instant, limit: ReadErrorLimit) {
        self.read_errors.limit = limit;
        self.step(now);
    }

    /// The current limit of read errors, and the reaction beyond it.
    #[must_use]
    pub fn read_error_limit(&self) -> ReadErrorLimit {
        self.read_errors.limit
    }

    /// Members with read errors, and their counts.
    #[must_use]
    pub fn read_errors(&self, now: Instant) -> Vec<(MemberId, ReadErrors)> {
        let known = &self.read_errors;
        known.members.iter().map(|(id, count)| (*id, known.look(now, count))).collect()
    }

    /// Counts a read error of a member, after a shard has rewritten the unreadable sectors.
    pub(super) fn note_mended(&mut self, now: Instant, member: MemberId) {
        // The member may have left since the shard's report.
        if self.roster.slot_of(member).is_some() {
            self.read_errors.note(now, member);
        }
    }

    pub(super) fn forget_read_errors(&mut self, member: MemberId) {
        self.read_errors.members.remove(&member);
    }

    /// Whether an erring member needs a reaction.
    pub(super) fn has_erring(&self, now: Instant) -> bool {
        self.next_erring(now).is_some()
    }

    fn next_erring(&self, now: Instant) -> Option<(MemberId, u32, Action)> {
        let known = &self.read_errors;
        known.members.iter().find_map(|(member, count)| {
            let ReadErrors { recent, is_over, .. } = known.look(now, count);
            // The other facts take longer to compute, and this code runs after each event.
            let action = if is_over { decide(self.erring(*member, count)) } else { Action::Wait };
            (action != Action::Wait).then_some((*member, recent, action))
        })
    }

    fn erring(&self, member: MemberId, count: &Count) -> Facts {
        let then = self.read_errors.limit.then;
        let slot = self.roster.slot_of(member);
        Facts {
            is_over: true,
            is_replaced: slot.is_none_or(|slot| self.roster.replacement_of(slot).is_some()),
            copies: then != OnReadErrors::Warn && self.may_replace(member).is_ok(),
            // If a loss is unrecorded, the lost member's slot needs the spare more than this member
            // does.
            has_spare: self.is_settled() && self.roster.idle_spare().is_some(),
            may_go: then == OnReadErrors::Fail && self.is_borne(member),
            is_told: count.is_told,
        }
    }

    /// Whether the other members have all of a member's data: no sector is in doubt, no log names a
    /// bad sector on them, and the level tolerates the loss.
    fn is_borne(&self, member: MemberId) -> bool {
        let mut others = self.roster.slots.iter().flatten().filter(|other| other.id != member);
        let is_certain = self.condition.resync_offset == u64::MAX;
        is_certain
            && self.may_fail(member).is_ok()
            && others.all(|other| other.bad_blocks.is_empty())
    }

    /// Reacts to an erring member.
    pub(super) fn treat_erring(&mut self, now: Instant) {
        let (member, errors, action) = self.next_erring(now).expect("one errs");
        let slot = self.roster.slot_of(member).expect("only a slot's member is counted");
        let erring = match action {
            Action::Wait => unreachable!("nothing is to be done"),
            Action::Warn => ErrorReaction::Stays,
            Action::PutOut => ErrorReaction::PutOut,
            Action::Replace => {
                ErrorReaction::Replaced(self.roster.idle_spare().expect("one waits"))
            }
        };
        let notice = Notice::Errs { member, slot, errors, erring };
        self.out.notice(notice);
        match erring {
            ErrorReaction::Stays => {
                let count = self.read_errors.members.get_mut(&member).expect("it is counted");
                count.is_told = true;
            }
            ErrorReaction::PutOut => self.fail_member(Cause::errs(member)),
            ErrorReaction::Replaced(spare) => self.roster.wish_by_itself(spare, slot),
        }
    }
}
