//! What a stripe does next: a pure table from facts to one action.
//!
//! | Phase   | outstanding | need       | read | missed | broken | action  | what ends a Wait                  |
//! |---------|-------------|------------|------|--------|--------|---------|-----------------------------------|
//! | any     | yes         |            |      |        |        | Wait    | the request, job or copy that ends |
//! | Ready   | no          | (no work)  |      |        |        | Release |                                   |
//! | Ready   | no          | (later)    |      |        |        | PutOff  |                                   |
//! | Ready   | no          | (its turn) | yes  |        |        | Wait    | the reads that wait have begun    |
//! | Ready   | no          | (its turn) | no   |        |        | Begin   |                                   |
//! | Fill    | no          | Reads      |      |        |        | Read    |                                   |
//! | Fill    | no          | Nothing    |      |        |        | Compute |                                   |
//! | Fill    | no          | Less       |      |        |        | Narrow  |                                   |
//! | Fill    | no          | Impossible |      |        |        | Refuse  |                                   |
//! | Compute | no          |            | yes  |        |        | Wait    | the band is not read any more     |
//! | Compute | no          |            | no   |        |        | Write   |                                   |
//! | Write   | no          |            |      | no     |        | Finish  |                                   |
//! | Write   | no          |            |      | yes    |        | Hold    |                                   |
//! | Hold    | no          |            |      | no     |        | Finish  |                                   |
//! | Hold    | no          |            |      | yes    | no     | Wait    | a view without the member         |
//! | Hold    | no          |            |      | yes    | yes    | Refuse  |                                   |
//!
//! An empty cell means "whatever"; the first line wins. *read*: between batches, reads of the band wait to begin; later, the
//! band is being read ([`super::reconstruct`]). Whose turn it is, is said in `turn`. [check: the_table_is_total]

use braid_hooks::{Mark, reached};

use super::state::Phase;

/// What the batch still lacks in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: compute.
    Nothing,
    /// Some columns: read.
    Reads,
    /// More than can be read or solved for at once; perhaps not more than that one by one.
    Less,
    /// More than can be read or solved for.
    Impossible,
}

/// When a stripe that has work is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now.
    Now,
    /// When it has filled up, or it has been waited for it long enough.
    WhenFilled,
    /// When no full-width write is ahead of it any more, or enough have been.
    AfterFullWrites,
}

/// A stripe at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) phase: Phase,
    /// Work is queued for the next batch.
    pub(super) queued: bool,
    /// Only meaningful in [`Phase::Ready`].
    pub(super) turn: Turn,
    /// Requests or jobs are out; or, once it has begun, copies out of its payloads.
    pub(super) outstanding: bool,
    /// Only meaningful in [`Phase::Fill`].
    pub(super) need: Need,
    /// In [`Phase::Ready`]: reads of the band wait to begin before its next batch. In [`Phase::Compute`]: the band is being
    /// read, and may not be written.
    pub(super) read: bool,
    /// A member that missed this batch's write is still in the view.
    pub(super) missed: bool,
    /// The array takes no more writes.
    pub(super) broken: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// An event will come.
    Wait,
    /// The stripe is free.
    Release,
    /// It is not its turn yet.
    PutOff(Turn),
    /// Take the next batch.
    Begin,
    /// Read what is lacking.
    Read,
    /// Recover, merge, make parity.
    Compute,
    /// Begin again with less.
    Narrow,
    /// Write what is dirty.
    Write,
    /// Wait until the loss of a member is recorded.
    Hold,
    /// Answer the batch: done.
    Finish,
    /// Answer the batch: impossible.
    Refuse,
}

/// The table.
pub(super) fn decide(facts: &Facts) -> Action {
    let (mark, action) = match facts {
        Facts { outstanding: true, .. } => (Mark::StripeWaits, Action::Wait),
        Facts { phase: Phase::Ready, queued: false, .. } => (Mark::StripeIdle, Action::Release),
        Facts { phase: Phase::Ready, turn: Turn::Now, read: true, .. } => {
            (Mark::StripeLetsReadsIn, Action::Wait)
        }
        Facts { phase: Phase::Ready, turn: Turn::Now, .. } => (Mark::StripeBegins, Action::Begin),
        Facts { phase: Phase::Ready, turn, .. } => (Mark::StripePutOff, Action::PutOff(*turn)),
        Facts { phase: Phase::Fill, need, .. } => match need {
            Need::Reads => (Mark::StripeReads, Action::Read),
            Need::Nothing => (Mark::StripeComputes, Action::Compute),
            Need::Less => (Mark::BatchNarrowed, Action::Narrow),
            Need::Impossible => (Mark::StripeRefusesUnread, Action::Refuse),
        },
        Facts { phase: Phase::Compute, read: true, .. } => (Mark::WriteWaitsForReads, Action::Wait),
        Facts { phase: Phase::Compute, .. } => (Mark::StripeWrites, Action::Write),
        Facts { phase: Phase::Write, missed: false, .. } => (Mark::StripeFinishes, Action::Finish),
        Facts { phase: Phase::Write, missed: true, .. } => (Mark::StripeHolds, Action::Hold),
        Facts { phase: Phase::Hold, missed: false, .. } => {
            (Mark::StripeFinishesHeld, Action::Finish)
        }
        Facts { phase: Phase::Hold, missed: true, broken: false, .. } => {
            (Mark::StripeKeepsHolding, Action::Wait)
        }
        Facts { phase: Phase::Hold, missed: true, broken: true, .. } => {
            (Mark::StripeRefusesHeld, Action::Refuse)
        }
    };
    reached(mark);
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [bool; 2] = [false, true];

    fn all_facts() -> Vec<Facts> {
        let mut all = Vec::new();
        for phase in [Phase::Ready, Phase::Fill, Phase::Compute, Phase::Write, Phase::Hold] {
            for need in [Need::Nothing, Need::Reads, Need::Less, Need::Impossible] {
                for bits in 0..128 {
                    let bit = |n: u32| BOTH[usize::from(bits >> n & 1 == 1)];
                    let turn = match (bit(4), bit(5)) {
                        (false, _) => Turn::Now,
                        (true, false) => Turn::WhenFilled,
                        (true, true) => Turn::AfterFullWrites,
                    };
                    all.push(Facts {
                        phase,
                        queued: bit(0),
                        outstanding: bit(1),
                        need,
                        missed: bit(2),
                        broken: bit(3),
                        read: bit(6),
                        turn,
                    });
                }
            }
        }
        all
    }

    /// Totality is the compiler's; this checks what the table promises about its answers.
    #[test]
    fn the_table_is_total() {
        for facts in all_facts() {
            let action = decide(&facts);
            if facts.outstanding {
                assert_eq!(action, Action::Wait, "nothing moves under a request: {facts:?}");
                continue;
            }
            if action == Action::Wait {
                // Who ends each wait: the reads that begin, the reads that end, the view.
                let ended = match facts.phase {
                    Phase::Ready => facts.queued && facts.turn == Turn::Now && facts.read,
                    Phase::Compute => facts.read,
                    Phase::Hold => facts.missed && !facts.broken,
                    Phase::Fill | Phase::Write => false,
                };
                assert!(ended, "something will wake it: {facts:?}");
            }
            if action == Action::Write {
                assert!(!facts.read, "nothing is written to a band that is being read: {facts:?}");
            }
            if action == Action::Finish {
                assert!(!facts.missed, "I4: never done while a missed write is unrecorded");
            }
            let allowed: &[Action] = match facts.phase {
                Phase::Ready => {
                    &[Action::Release, Action::Begin, Action::Wait, Action::PutOff(facts.turn)]
                }
                Phase::Fill => &[Action::Read, Action::Compute, Action::Narrow, Action::Refuse],
                Phase::Compute => &[Action::Write, Action::Wait],
                Phase::Write => &[Action::Finish, Action::Hold],
                Phase::Hold => &[Action::Finish, Action::Wait, Action::Refuse],
            };
            assert!(allowed.contains(&action), "{facts:?} -> {action:?}");
        }
    }
}
