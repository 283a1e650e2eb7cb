//! Writes that go to two members: a member in a slot, and its replacement.
//!
//! A family submits one write, and gets one result when both writes have ended. If the replacement
//! has missed the write, the result waits for a view in which the replacement is out. An earlier
//! answer would promise data that a restart could take back, since superblocks still call the
//! replacement good up to its offset (I4).
//!
//! ```text
//!   family ── write ──▶ member       ── done ──┐
//!                  └──▶ replacement  ── done ──┴─▶ the replacement has it, or is out? ──▶ family
//!                                                       │ no: wait for a view
//! ```
//!
//! When the member has gone and the replacement is in the slot, the replacement's result counts.

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, Mark, reached, spoiled};
use std::collections::BTreeMap;

use crate::array::{ArrayView, Gate};
use crate::effect::{MemberFault, MemberIoDone};
use crate::ids::{IoId, MemberId};

/// A bit set in the name of a write to a replacement; the other bits are the name of the paired
/// write to the member. Families' names come from a [`crate::slab::Slab`], which counts uses up to
/// 2^31.
const OF_REPLACEMENT: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
struct Pair {
    slot: Slot,
    replacement: MemberId,
    of_member: Option<Result<(), MemberFault>>,
    of_replacement: Option<Result<(), MemberFault>>,
}

/// Every pair of writes whose family has no result yet.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pairs: BTreeMap<IoId, Pair>,
}

/// The result of one of the two writes of a pair.
#[derive(Clone, Copy, Debug)]
pub(super) enum PairResult {
    /// The final result, for the family.
    Tell(MemberIoDone),
    /// The result is not final.
    Wait,
    /// The result is not final: the replacement has failed.
    Failed(MemberFault),
}

impl Pairs {
    /// Pairs the write `id` with a write to `replacement`; returns the name of the second write.
    pub(super) fn begin(&mut self, id: IoId, slot: Slot, replacement: MemberId) -> IoId {
        assert_eq!(id.0 & OF_REPLACEMENT, 0, "a family's own name");
        let pair = Pair { slot, replacement, of_member: None, of_replacement: None };
        let before = self.pairs.insert(id, pair);
        assert!(before.is_none(), "a name is of one request at a time");
        IoId(id.0 | OF_REPLACEMENT)
    }

    pub(super) fn is_of_replacement(id: IoId) -> bool {
        id.0 & OF_REPLACEMENT != 0
    }

    /// Whether a family's write to a member has ended, and waits for the write to the replacement.
    pub(super) fn has_ended(&self, id: IoId) -> bool {
        self.pairs.get(&id).is_some_and(|pair| pair.of_member.is_some())
    }

    /// The name of the paired write, if it is in flight, and the replacement that receives it.
    pub(super) fn of_replacement(&self, id: IoId) -> Option<(IoId, MemberId)> {
        let pair = self.pairs.get(&id)?;
        let name = IoId(id.0 | OF_REPLACEMENT);
        pair.of_replacement.is_none().then_some((name, pair.replacement))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(super) fn ended(&mut self, view: &ArrayView, done: MemberIoDone) -> PairResult {
        let id = IoId(done.id.0 & !OF_REPLACEMENT);
        let Some(pair) = self.pairs.get_mut(&id) else { return PairResult::Tell(done) };
        let of = match Self::is_of_replacement(done.id) {
            true => &mut pair.of_replacement,
            false => &mut pair.of_member,
        };
        assert!(of.is_none(), "a request ends once");
        *of = Some(done.result);
        let pair = *pair;
        match (pair.result(view), pair.of_replacement) {
            (Some(result), _) => {
                self.pairs.remove(&id);
                PairResult::Tell(MemberIoDone { id, result })
            }
            (None, Some(Err(fault))) if Self::is_of_replacement(done.id) => {
                PairResult::Failed(fault)
            }
            (None, _) => PairResult::Wait,
        }
    }

    /// Returns the results of member requests that the new view makes final, for the family.
    pub(super) fn settle(&mut self, view: &ArrayView) -> Vec<MemberIoDone> {
        let due = self.pairs.iter().filter_map(|(id, pair)| {
            let result = pair.result(view)?;
            Some(MemberIoDone { id: *id, result })
        });
        let due: Vec<MemberIoDone> = due.collect();
        for done in &due {
            reached(Mark::PairSettledByView);
            self.pairs.remove(&done.id);
        }
        due
    }
}

impl Pair {
    /// The pair's result for the family; `None` while the result is not final.
    fn result(&self, view: &ArrayView) -> Option<Result<(), MemberFault>> {
        let (of_member, of_replacement) = (self.of_member?, self.of_replacement?);
        let Some(member) = view.member(self.slot) else { return Some(of_member) };
        if member.id == self.replacement {
            return Some(of_replacement);
        }
        let is_in = member.replacement == Some(self.replacement);
        let is_missed = is_in && of_replacement.is_err();
        let is_missed = spoiled(Bug::ReplacementMisses, is_missed, false);
        if !is_missed {
            return Some(of_member);
        }
        // A broken array publishes no view without the replacement: the client gets an error, as
        // the outcome is unknown.
        (view.gate == Gate::Broken).then_some(of_replacement)
    }
}
