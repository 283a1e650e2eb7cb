//! The next action of a stripe: a pure table from facts to one action.
//!
//! | Phase       | out | need           | read | missed | broken | action      | ends a Wait |
//! |-------------|-----|----------------|------|--------|--------|-------------|-------------|
//! | any         | yes |                |      |        |        | Wait        | (4)         |
//! | Ready       | no  | (no work)      |      |        |        | Release     |             |
//! | Ready       | no  | (no intent)    |      |        | no     | Wait        | (2)         |
//! | Ready       | no  | (not yet)      |      |        |        | PutOff      |             |
//! | Ready       | no  | (admitted)     | yes  |        |        | Wait        | reads begun |
//! | Ready       | no  | (no memory)    | no   |        |        | StandInLine |             |
//! | Ready       | no  | (admitted)     | no   |        |        | Begin       |             |
//! | Fill        | no  | (no intent)    |      |        |        | Refuse      |             |
//! | Fill        | no  | (left)         |      |        |        | Restart     |             |
//! | Fill        | no  | Reads          |      |        |        | Read        |             |
//! | Fill        | no  | Nothing        |      |        |        | Compute     |             |
//! | Fill        | no  | Less           |      |        |        | Narrow      |             |
//! | Fill        | no  | Impossible     |      |        |        | Refuse      |             |
//! | Compute     | no  | (not logged)   |      |        | yes    | Refuse      |             |
//! | Compute     | no  | (to be logged) |      |        |        | Log         |             |
//! | Compute     | no  | (being logged) |      |        |        | Wait        | (1)         |
//! | Compute     | no  |                | idly |        |        | TakeBand    |             |
//! | Compute     | no  |                | yes  |        |        | Wait        | no reads    |
//! | Compute     | no  |                | no   |        |        | Write       |             |
//! | Write       | no  |                |      | no     |        | Finish      |             |
//! | Write       | no  |                |      | yes    |        | AwaitRecord |             |
//! | AwaitRecord | no  |                |      | no     |        | Finish      |             |
//! | AwaitRecord | no  |                |      | yes    | no     | Wait        | (3)         |
//! | AwaitRecord | no  |                |      | yes    | yes    | Refuse      |             |
//!
//! An empty cell matches anything, and the first line that matches wins.
//!
//! - (1) The log's members, or a view that is broken. (2) A view with the gate open. (3) A view
//!   without the member. (4) The request, computation or copy that ends.
//! - *Out*: outstanding. *Reads begun*: the reads that wait have begun. *No reads*: the band is not
//!   read any more.
//! - *Intent*: superblocks say that the region of the first queued work may be written (I3). A
//!   broken array grants none, and work without intent is refused.
//! - *read*, between batches: reads of the band wait to begin, or the band is being repaired.
//! - *read*, later: the band is being read ([`mod@super::super::reconstruct`]), *idly* if only by
//!   background work that gives way.
//! - The scheduler decides when a stripe may begin: `admission`.
//! - *memory*: the stripe has a frame, or can get one ([`super::super::pool`]).
//! - *left*: a member that left the array may still fill a block of the frame.
//!
//! [check: the_table_is_total]

use braid_sim_hooks::{Mark, reached};

use super::super::plan::Need;
use super::super::scheduler::Admission;
use super::log::LogState;
use super::stripe::Phase;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Facts {
    pub(super) phase: Phase,
    pub(super) queued: bool,
    pub(super) admission: Admission,
    /// Requests or computations of the batch are in flight, or copies from the payloads of a batch
    /// that has begun.
    pub(super) outstanding: bool,
    pub(super) need: Need,
    /// Only meaningful in [`Phase::Fill`]: a member left while the batch was reading from the
    /// member, which may still write to a block.
    pub(super) left: bool,
    /// In [`Phase::Ready`]: reads of the band wait to begin before its next batch, or the band is
    /// being repaired, and a batch would read rotten sectors. In [`Phase::Compute`]: the band is
    /// being read, and must not be written.
    pub(super) read: bool,
    /// Only meaningful if the band is being read: the reader gives the band up to a write.
    pub(super) read_idly: bool,
    /// Superblocks say that the region of the first queued work may be written (I3).
    pub(in super::super) intent: bool,
    /// Only meaningful in [`Phase::Ready`]: the stripe has a frame, or can get one.
    pub(super) memory: bool,
    /// Whether a member that missed this batch's write is still in the array's view.
    pub(super) missed: bool,
    /// Only meaningful in [`Phase::Compute`]: the state of the batch's log entries.
    pub(super) logged: LogState,
    pub(super) broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Action {
    Wait,
    Release,
    /// Queue the stripe: it may not begin yet.
    PutOff(Admission),
    StandInLine,
    Begin,
    /// Read missing sectors.
    Read,
    /// Solve for lost columns, merge the writes, compute parity.
    Compute,
    /// Begin again with fewer writes, or with one block.
    Narrow,
    /// Begin again in another frame.
    Restart,
    /// Make background work give the band up.
    TakeBand,
    Log,
    Write,
    /// Wait until superblocks record the loss of a member.
    AwaitRecord,
    /// Answer the batch: success.
    Finish,
    /// Answer the batch: failure.
    Refuse,
}

/// The table's first line, decided without other facts: most events end one of several requests.
pub(in super::super) fn waits(outstanding: bool) -> Option<Action> {
    outstanding.then(|| {
        reached(Mark::StripeWaits);
        Action::Wait
    })
}

pub(in super::super) fn decide(facts: &Facts) -> Action {
    if let Some(wait) = waits(facts.outstanding) {
        return wait;
    }
    let (mark, action) = match facts {
        Facts { phase: Phase::Ready, queued: false, .. } => (Mark::StripeIdle, Action::Release),
        Facts { phase: Phase::Ready, intent: false, broken: false, .. } => {
            (Mark::WriteWaitsForIntent, Action::Wait)
        }
        Facts {
            phase: Phase::Ready,
            intent: true,
            admission: admission @ (Admission::WhenFilled | Admission::AfterFullWrites),
            ..
        } => (Mark::StripePutOff, Action::PutOff(*admission)),
        Facts { phase: Phase::Ready, intent: true, read: true, .. } => {
            (Mark::StripeLetsReadsIn, Action::Wait)
        }
        Facts { phase: Phase::Ready, memory: false, .. } => {
            (Mark::WaitsForMemory, Action::StandInLine)
        }
        Facts { phase: Phase::Ready, .. } => (Mark::StripeBegins, Action::Begin),
        Facts { phase: Phase::Fill, intent: false, .. } => (Mark::GatedRefused, Action::Refuse),
        Facts { phase: Phase::Fill, left: true, .. } => (Mark::StripeRestarts, Action::Restart),
        Facts { phase: Phase::Fill, need, .. } => match need {
            Need::Reads => (Mark::StripeReads, Action::Read),
            Need::Nothing => (Mark::StripeComputes, Action::Compute),
            Need::Less => (Mark::BatchNarrowed, Action::Narrow),
            Need::Impossible => (Mark::StripeRefusesUnread, Action::Refuse),
        },
        Facts {
            phase: Phase::Compute,
            logged: LogState::Due | LogState::Asked,
            broken: true,
            ..
        } => (Mark::StripeRefusesUnlogged, Action::Refuse),
        Facts { phase: Phase::Compute, logged: LogState::Due, .. } => {
            (Mark::StripeLogs, Action::Log)
        }
        Facts { phase: Phase::Compute, logged: LogState::Asked, .. } => {
            (Mark::StripeAwaitsLog, Action::Wait)
        }
        Facts { phase: Phase::Compute, read: true, read_idly: true, .. } => {
            (Mark::WriteTakesBand, Action::TakeBand)
        }
        Facts { phase: Phase::Compute, read: true, .. } => (Mark::WriteWaitsForReads, Action::Wait),
        Facts { phase: Phase::Compute, .. } => (Mark::StripeWrites, Action::Write),
        Facts { phase: Phase::Write, missed: false, .. } => (Mark::StripeFinishes, Action::Finish),
        Facts { phase: Phase::Write, missed: true, .. } => {
            (Mark::StripeAwaitsRecord, Action::AwaitRecord)
        }
        Facts { phase: Phase::AwaitRecord, missed: false, .. } => {
            (Mark::StripeFinishesHeld, Action::Finish)
        }
        Facts { phase: Phase::AwaitRecord, missed: true, broken: false, .. } => {
            (Mark::StripeKeepsAwaiting, Action::Wait)
        }
        Facts { phase: Phase::AwaitRecord, missed: true, broken: true, .. } => {
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
        for phase in [Phase::Ready, Phase::Fill, Phase::Compute, Phase::Write, Phase::AwaitRecord] {
            for need in [Need::Nothing, Need::Reads, Need::Less, Need::Impossible] {
                for bits in 0..8192 {
                    let bit = |n: u32| BOTH[usize::from(bits >> n & 1 == 1)];
                    let admission = match (bit(4), bit(5)) {
                        (false, _) => Admission::Now,
                        (true, false) => Admission::WhenFilled,
                        (true, true) => Admission::AfterFullWrites,
                    };
                    all.push(Facts {
                        phase,
                        queued: bit(0),
                        outstanding: bit(1),
                        need,
                        missed: bit(2),
                        broken: bit(3),
                        read: bit(6),
                        intent: bit(7),
                        read_idly: bit(8),
                        memory: bit(11),
                        left: bit(12),
                        admission,
                        logged: match (bit(9), bit(10)) {
                            (false, false) => LogState::Needless,
                            (false, true) => LogState::Due,
                            (true, false) => LogState::Asked,
                            (true, true) => LogState::Durable,
                        },
                    });
                }
            }
        }
        all
    }

    /// The compiler checks totality. This test checks the table's promises about its answers.
    #[test]
    fn the_table_is_total() {
        for facts in all_facts() {
            let action = decide(&facts);
            if facts.outstanding {
                assert_eq!(action, Action::Wait, "nothing moves under a request: {facts:?}");
                continue;
            }
            if action == Action::Wait {
                // Reads that begin, reads that end, the view, or the log must end this wait.
                let ended = match facts.phase {
                    Phase::Ready if !facts.intent => facts.queued && !facts.broken,
                    Phase::Ready => facts.queued && facts.admission == Admission::Now && facts.read,
                    Phase::Compute if facts.logged == LogState::Asked => !facts.broken,
                    Phase::Compute => facts.read && !facts.read_idly,
                    Phase::AwaitRecord => facts.missed && !facts.broken,
                    Phase::Fill | Phase::Write => false,
                };
                assert!(ended, "something will wake it: {facts:?}");
            }
            if action == Action::Begin {
                assert!(facts.memory, "a batch has blocks: {facts:?}");
            }
            if action == Action::Write {
                assert!(!facts.read, "nothing is written to a band that is being read: {facts:?}");
                let is_logged = matches!(facts.logged, LogState::Needless | LogState::Durable);
                assert!(is_logged, "what is written is logged: {facts:?}");
            }
            if action == Action::Finish {
                assert!(!facts.missed, "I4: never done while a missed write is unrecorded");
            }
            if matches!(action, Action::Read | Action::Compute) {
                assert!(
                    facts.intent,
                    "I3: nothing is prepared before superblocks say so: {facts:?}"
                );
            }
            let allowed: &[Action] = match facts.phase {
                Phase::Ready => {
                    let put_off = Action::PutOff(facts.admission);
                    &[Action::Release, Action::Begin, Action::Wait, put_off, Action::StandInLine]
                }
                Phase::Fill if facts.left => &[Action::Restart, Action::Refuse],
                Phase::Fill => &[Action::Read, Action::Compute, Action::Narrow, Action::Refuse],
                Phase::Compute => {
                    &[Action::Write, Action::TakeBand, Action::Wait, Action::Log, Action::Refuse]
                }
                Phase::Write => &[Action::Finish, Action::AwaitRecord],
                Phase::AwaitRecord => &[Action::Finish, Action::Wait, Action::Refuse],
            };
            assert!(allowed.contains(&action), "{facts:?} -> {action:?}");
        }
    }
}
