//! Zeroing on a ring: one operation after the other, until it is done.
//!
//! ```text
//!   punch ──refused──▶ zero the range ──refused──▶ write zeroes     (`braid_member::Raw::way_to_zero`)
//!     └──────────────────────┴──────────────────────────┴──▶ sync, if it is to be durable ──▶ answer
//! ```
//!
//! Where it stands: beside [`super::Port`], which has operations that are over when they have ended. What has more zeroes
//! to write than one operation carries goes to the member's threads.
//!
//! Invariant: it is answered once, when the last operation has ended, and the answer is the one that
//! [`crate::member_threads::MemberQueue::perform`] would give (`tests/threads.rs`, `tests/ring.rs`).

use std::io;

use braid_engine::array::MemberId;
use braid_engine::effect::MemberOperation;
use braid_member::{Deed, MemberError, Raw, ZeroWay};
use braid_ring::{
    Completion, Handler, Memory, Operation, Segment, Segments, Worker, Zeroing as Way,
};

use super::{Ring, drive_touched};
use crate::core::Core;
use crate::lane::{Flight, Lane};
use crate::member_threads::{MemberQueue, Work, fault};
use crate::sync::{Arc, Weak};

/// Runs of zeroes that one operation writes.
const RUNS_MAX: usize = 256;

/// As an error of zeroing counts.
const DEED: Deed = Deed::Write { durable: false };

/// A member's zeroing: where its operations end.
pub(super) struct ZeroPort {
    pub(super) core: Weak<Core>,
    pub(super) member: MemberId,
}

/// What comes after an operation.
enum Step {
    Answer(Result<(), MemberError>),
    Submit(Operation),
    /// It is for the member's threads.
    Leave,
}

impl Ring {
    /// Submits zeroing; gives back what threads have to do, who say what is wrong with it.
    ///
    /// # Panics
    /// When it has several parts: zeroing is not merged.
    pub(super) fn zero(&self, member: &MemberQueue, zeroing: Flight) -> Option<Flight> {
        assert!(zeroing.parts.len() == 1, "zeroing is not merged");
        let Some(raw) = member.raw() else { return Some(zeroing) };
        let Step::Submit(operation) = begin(raw, member, &zeroing) else { return Some(zeroing) };
        let on = usize::from(zeroing.parts[0].0.0);
        let ports = self.zero_ports.get().expect("a core that is driven is connected");
        let port = Arc::clone(&ports[usize::from(member.id().0)]);
        let token = member.zeroings.add(zeroing);
        let submitted = self.workers.submit(on, operation, port, token);
        submitted.is_err().then(|| member.zeroings.take(token))
    }
}

/// The best way that is left.
fn begin(raw: &Raw, member: &MemberQueue, zeroing: &Flight) -> Step {
    let (_, io) = &zeroing.parts[0];
    let (offset, length) = member.range(io);
    let MemberOperation::Zero { may_punch, .. } = io.operation else { panic!("it is zeroing") };
    let file = raw.check(DEED, offset, length).and_then(|()| raw.file(0, 0, offset));
    let file = match file {
        Ok(file) => file,
        Err(error) => return Step::Answer(Err(error)),
    };
    let how = match raw.way_to_zero(offset, length, may_punch) {
        Some(ZeroWay::PunchHole) => Way::PunchHole,
        Some(ZeroWay::ZeroRange) => Way::ZeroRange,
        None => {
            let memory = zeroes(length);
            return memory.map_or(Step::Leave, |memory| {
                Step::Submit(Operation::Write { file, offset, memory, durable: false })
            });
        }
    };
    Step::Submit(Operation::Zero { file, offset, length, how })
}

/// So many zeroes, unless they are too many.
fn zeroes(length_bytes: u64) -> Option<Segments> {
    let (zeroes, mut left) = (Raw::zeroes(), usize::try_from(length_bytes).ok()?);
    if left.div_ceil(zeroes.len()) > RUNS_MAX {
        return None;
    }
    let mut memory = Segments::new();
    while left > 0 {
        let run = left.min(zeroes.len());
        memory.push(Segment::part(Memory::Constant(zeroes), 0..run));
        left -= run;
    }
    Some(memory)
}

/// What comes after `operation`, which ended as `result`.
fn after(
    raw: &Raw,
    member: &MemberQueue,
    zeroing: &Flight,
    (operation, result): (&Operation, io::Result<usize>),
) -> Step {
    match (operation, result) {
        (Operation::Sync { .. }, result) => {
            Step::Answer(result.map(drop).map_err(|error| raw.fault(Deed::Flush, error)))
        }
        (Operation::Zero { how, .. }, Err(error)) if raw.is_refused(way(*how), &error) => {
            begin(raw, member, zeroing)
        }
        (_, Err(error)) => Step::Answer(Err(raw.fault(DEED, error))),
        (_, Ok(_)) => {
            let MemberOperation::Zero { durable, .. } = zeroing.parts[0].1.operation else {
                panic!("it is zeroing");
            };
            if !durable {
                return Step::Answer(Ok(()));
            }
            let file = raw.check(Deed::Flush, 0, 0).and_then(|()| raw.file(0, 0, 0));
            file.map_or_else(
                |error| Step::Answer(Err(error)),
                |file| Step::Submit(Operation::Sync { file }),
            )
        }
    }
}

fn way(how: Way) -> ZeroWay {
    match how {
        Way::PunchHole => ZeroWay::PunchHole,
        Way::ZeroRange => ZeroWay::ZeroRange,
    }
}

impl Handler for ZeroPort {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let Some(core) = self.core.upgrade() else { return };
        let Completion { token, result, operation, .. } = completion;
        let member = &core.members[usize::from(self.member.0)];
        let raw = member.raw().expect("only members with a descriptor have ports");
        let zeroing = member.zeroings.take(token);
        match after(raw, member, &zeroing, (&operation, result)) {
            Step::Submit(operation) => {
                let token = member.zeroings.add(zeroing);
                worker.submit(operation, self, token);
            }
            Step::Leave => {
                member.berth.leave();
                member.push(Work::Flight(zeroing));
                core.begin_kept(member);
            }
            Step::Answer(result) => {
                member.berth.leave();
                let lane = Lane::new(&core, member);
                lane.land(zeroing, result.map_err(fault));
                lane.begin_kept();
                drive_touched(worker, &core, lane.into_touched());
            }
        }
    }

    fn wake(self: Arc<Self>, _: &Worker, _: u64) {
        unreachable!("ports are told of completions only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_as_many_as_are_asked_for() {
        let run = Raw::zeroes().len();
        for length in [512, run, run + 512, RUNS_MAX * run] {
            let memory = zeroes(length as u64).expect("few enough");
            assert_eq!(memory.iter().map(Segment::length_bytes).sum::<usize>(), length);
        }
        assert!(zeroes((RUNS_MAX * run + 1) as u64).is_none());
    }
}
