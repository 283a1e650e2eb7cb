//! Members that err again and again: counts corrected read errors, and decides the reaction.
//!
//! A shard that could not read a sector rewrites it from the other members. The shard reports each
//! run of sectors whose rewrite the member took. One error is harmless; many in a few hours mean a
//! dying disk. As md does, the count halves for each hour that passes; a member is *over* while its
//! count is beyond the limit.
//!
//! | over | being replaced | copies | a spare is free | may be put out | warned | action |
//! |---|---|---|---|---|---|---|
//! | no  |     |     |     |     |     | Wait: it errs like any disk |
//! | yes | yes |     |     |     |     | Wait: its data are on their way to another |
//! | yes | no  | yes | yes |     |     | Replace: it is copied while it lives |
//! | yes | no  |     |     | yes |     | PutOut |
//! | yes | no  |     |     |     | no  | Warn |
//! | yes | no  |     |     |     | yes | Wait |
//!
//! The first row that fits is taken. "Copies" and "may be put out" include the operator's setting:
//! [`crate::OnReadErrors::Warn`] allows neither, [`crate::OnReadErrors::Fail`] both.
//! [check: a_member_is_put_out_only_where_the_rest_bears_it]
//!
//! Sectors that stay unreadable do not count: a log names them, and no shard reads them again.

use std::collections::BTreeMap;

use crate::Instant;
use crate::ids::MemberId;
use crate::tuning::ReadErrorLimit;

const HALVED_AFTER_NS: u64 = 3600 * 1_000_000_000;

/// A member's corrected read errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadErrors {
    /// Errors since the member came or the array was started.
    pub corrected: u64,
    /// Recent errors: the count halves for each hour that passes.
    pub recent: u32,
    /// Whether recent errors exceed the limit.
    pub is_over: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    corrected: u64,
    recent: u32,
    /// Time of the last halving of `recent`.
    halved: Instant,
    /// The operator has been warned, and the count has stayed over the limit since.
    pub(super) is_told: bool,
}

impl Count {
    /// The count of recent errors at `now`, and the time of the last halving before `now`.
    fn now(&self, now: Instant) -> (u32, Instant) {
        let hours = now.0.saturating_sub(self.halved.0) / HALVED_AFTER_NS;
        let left = u32::try_from(hours).ok().and_then(|hours| self.recent.checked_shr(hours));
        (left.unwrap_or(0), Instant(self.halved.0 + hours * HALVED_AFTER_NS))
    }
}

#[derive(Debug)]
pub(super) struct Errors {
    pub(super) limit: ReadErrorLimit,
    pub(super) members: BTreeMap<MemberId, Count>,
}

impl Errors {
    pub(super) const fn new() -> Self {
        Self { limit: ReadErrorLimit::OFF, members: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, now: Instant, member: MemberId) {
        let none = Count { corrected: 0, recent: 0, halved: now, is_told: false };
        let count = self.members.entry(member).or_insert(none);
        (count.recent, count.halved) = count.now(now);
        count.is_told &= self.limit.is_exceeded_by(count.recent);
        count.corrected += 1;
        count.recent = count.recent.saturating_add(1);
    }

    pub(super) fn look(&self, now: Instant, count: &Count) -> ReadErrors {
        let (recent, _) = count.now(now);
        let is_over = self.limit.is_exceeded_by(recent);
        ReadErrors { corrected: count.corrected, recent, is_over }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) is_over: bool,
    /// A replacement is being filled from the member, or will be.
    pub(super) is_replaced: bool,
    /// A spare may be filled from the member.
    pub(super) copies: bool,
    /// A spare is present that no slot needs.
    pub(super) has_spare: bool,
    /// The member may be put out: the operator's setting allows it, and the level tolerates the
    /// loss.
    pub(super) may_go: bool,
    pub(super) is_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Wait,
    Replace,
    PutOut,
    Warn,
}

pub(super) const fn decide(facts: Facts) -> Action {
    match facts {
        Facts { is_over: false, .. } | Facts { is_replaced: true, .. } => Action::Wait,
        Facts { copies: true, has_spare: true, .. } => Action::Replace,
        Facts { may_go: true, .. } => Action::PutOut,
        Facts { is_told: false, .. } => Action::Warn,
        Facts { is_told: true, .. } => Action::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = HALVED_AFTER_NS;

    #[test]
    fn a_member_is_put_out_only_where_the_rest_bears_it() {
        for bits in 0_u32..1 << 6 {
            let bit = |n: u32| bits >> n & 1 == 1;
            let facts = Facts {
                is_over: bit(0),
                is_replaced: bit(1),
                copies: bit(2),
                has_spare: bit(3),
                may_go: bit(4),
                is_told: bit(5),
            };
            let acts = facts.is_over && !facts.is_replaced;
            let is_copied = acts && facts.copies && facts.has_spare;
            let expected = match () {
                () if is_copied => Action::Replace,
                () if acts && facts.may_go => Action::PutOut,
                () if acts && !facts.is_told => Action::Warn,
                () => Action::Wait,
            };
            assert_eq!(decide(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn errors_are_forgotten_by_halves_and_counted_for_good() {
        let mut errors = Errors::new();
        errors.limit = ReadErrorLimit { most: Some(20), ..ReadErrorLimit::OFF };
        let member = MemberId(3);
        let look = |errors: &Errors, now| errors.look(Instant(now), &errors.members[&member]);
        for at in 0..21 {
            errors.note(Instant(at * 1000), member);
        }
        let expected = ReadErrors { corrected: 21, recent: 21, is_over: true };
        assert_eq!(look(&errors, HOUR - 1), expected);
        let expected = ReadErrors { corrected: 21, recent: 10, is_over: false };
        assert_eq!(look(&errors, HOUR + HOUR / 2), expected);
        // The half hour before the next error counts towards the next halving.
        errors.note(Instant(HOUR + HOUR / 2), member);
        assert_eq!(look(&errors, 2 * HOUR).recent, 5);
        assert_eq!(look(&errors, 200 * HOUR).recent, 0);
        assert_eq!(look(&errors, 200 * HOUR).corrected, 22);
        assert_eq!(look(&errors, 0).recent, 11, "a clock that is behind forgets nothing");
    }
}
