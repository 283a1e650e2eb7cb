//! Zeroing on a ring: one operation after the other, until the whole range is zeroed.
//! ```text
//!   punch ──refused──▶ zero the range ──refused──▶ write zeroes (`braid_member::Raw::zero_method`)
//!     └──────────────────────┴──────────────────────────┴──▶ sync, if to be durable ──▶ answer
//! ```
//! Place in the flow: the steps of [`super::ring`] for the one member operation that needs several
//! ring operations. If zeroes must be written and one operation cannot carry all of them, the
//! member's threads take over. [`braid_member::Member::zero`] then takes the same steps, in the
//! order of [`Raw::zero_method`].
//!
//! Invariant: the request is answered once, when the last operation has ended, with the answer that
//! [`super::threads::perform`] would give (`tests/threads.rs`, `tests/ring.rs`).

use std::io;

use braid_engine::effect::{MemberIo, MemberOperation};
use braid_member::{MemberError, Raw, RawOperation, ZeroMethod};
use braid_ring::{Memory, Operation, Segment, Segments, Zeroing};

use crate::members::handle::MemberHandle;
use crate::members::operation::raw_operation;

pub(crate) enum Step {
    Answer(Result<(), MemberError>),
    Submit(Operation),
    /// The member's threads must do the operation.
    Leave,
}

/// Maximum runs of zeroes that one operation writes.
const RUNS_MAX: usize = 256;

/// The best method that the device has not refused.
pub(super) fn begin(raw: &Raw, member: &MemberHandle, io: &MemberIo) -> Step {
    let (offset, length) = member.range(io);
    let MemberOperation::Zero { may_punch, .. } = io.operation else { panic!("it is zeroing") };
    let file = raw.check(raw_operation(io), offset, length).and_then(|()| raw.file(0, 0, offset));
    let file = match file {
        Ok(file) => file,
        Err(error) => return Step::Answer(Err(error)),
    };
    let how = match raw.zero_method(offset, length, may_punch) {
        Some(ZeroMethod::PunchHole) => Zeroing::PunchHole,
        Some(ZeroMethod::ZeroRange) => Zeroing::ZeroRange,
        None => {
            let memory = zeroes(length);
            return memory.map_or(Step::Leave, |memory| {
                Step::Submit(Operation::Write { file, offset, memory, durable: false })
            });
        }
    };
    Step::Submit(Operation::Zero { file, offset, length, how })
}

/// Segments of zeroes of this total length; `None` if one operation cannot carry them.
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

/// The step after `operation`, which ended with `result`.
pub(super) fn after(
    raw: &Raw,
    member: &MemberHandle,
    io: &MemberIo,
    (operation, result): (&Operation, io::Result<usize>),
) -> Step {
    match (operation, result) {
        (Operation::Sync { .. }, result) => {
            Step::Answer(result.map(drop).map_err(|error| raw.fault(RawOperation::Flush, error)))
        }
        (Operation::Zero { how, .. }, Err(error)) if raw.is_refused(method_of(*how), &error) => {
            begin(raw, member, io)
        }
        (_, Err(error)) => Step::Answer(Err(raw.fault(raw_operation(io), error))),
        (_, Ok(_)) => {
            let MemberOperation::Zero { durable, .. } = io.operation else {
                panic!("it is zeroing");
            };
            if !durable {
                return Step::Answer(Ok(()));
            }
            let file = raw.check(RawOperation::Flush, 0, 0).and_then(|()| raw.file(0, 0, 0));
            file.map_or_else(
                |error| Step::Answer(Err(error)),
                |file| Step::Submit(Operation::Sync { file }),
            )
        }
    }
}

fn method_of(how: Zeroing) -> ZeroMethod {
    match how {
        Zeroing::PunchHole => ZeroMethod::PunchHole,
        Zeroing::ZeroRange => ZeroMethod::ZeroRange,
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
