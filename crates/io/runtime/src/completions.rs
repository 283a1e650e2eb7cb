//! Ends of member operations: reports them to the machines, and drives the machines.
//!
//! Place in the flow: above the loop. Rings call a port here for each operation that has ended. A
//! member's own threads carry an operation out and report its end. The executor
//! ([`crate::executor::submitter`]) decides what the end means, for rings and threads alike.
//! ```text
//!   worker ─▶ Port::complete ─▶ ring::after ─┬─ the next one ─▶ ring
//!                                            └─ ended ┐
//!   member's thread ─▶ threads::perform ──────────────┴─▶ Submitter::complete ─▶ machines ─▶ drive
//! ```

use braid_engine::array::MemberId;
use braid_engine::cause::RequestKind;
use braid_engine::effect::IoId;
use braid_engine::request::ShardIndex;
use braid_member::RawOperation;
use braid_ring::{Completion, Handler, Operation as RingOperation, Worker};

use crate::core::{AbortOnPanic, Core};
use crate::executor::submitter::Submitter;
use crate::executor::zeroing::Step;
use crate::executor::{fault, ring};
use crate::members::handle::{MemberHandle, Ports};
use crate::members::operation::Operation;
use crate::members::threads::Start;
use crate::sync::{Arc, Weak, thread};

/// Connects a new member: gives it a port for completions from rings, and the function that its
/// threads run.
pub(crate) fn connect(core: &Arc<Core>, member: &Arc<MemberHandle>) {
    member.threads.connect(start_of(core, member));
    let is_first = member.ports.set(ports(core, member.id())).is_ok();
    assert!(is_first, "a member is registered once");
}

/// Receives the completions of one member's ring operations.
struct Port {
    core: Weak<Core>,
    member: MemberId,
    /// The shard of plain transfers, whose token is the [`IoId`]. The tokens of other operations
    /// are places.
    shard: Option<ShardIndex>,
}

fn ports(core: &Arc<Core>, member: MemberId) -> Ports {
    let port = |shard| Arc::new(Port { core: Arc::downgrade(core), member, shard });
    let shards = 0..u16::try_from(core.shards.len()).expect("made from a u16");
    let of_shards = shards.map(|shard| port(Some(ShardIndex(shard))) as Arc<dyn Handler>).collect();
    Ports { of_shards, rest: port(None) }
}

impl Handler for Port {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let Some(core) = self.core.upgrade() else { return };
        let members = core.members.load();
        let member = members.get(self.member).expect("what is closed has nothing out");
        let raw = member.raw().expect("only members with a descriptor are on rings");
        let submitter = Submitter::new(&core, member);
        let Completion { token, result, operation: done, .. } = completion;
        if let Some(shard) = self.shard {
            let (raw_operation, asked, range) = match &done {
                RingOperation::Read { offset, memory, .. } => {
                    (RawOperation::Read, RequestKind::Read, (*offset, ring::length_of(memory)))
                }
                RingOperation::Write { offset, memory, .. } => (
                    RawOperation::Write { durable: false },
                    RequestKind::Write,
                    (*offset, ring::length_of(memory)),
                ),
                _ => unreachable!("a plain transfer reads or writes"),
            };
            // The lease on the bytes is dropped before any machine receives the operation's result.
            drop(done);
            let result = ring::ended(raw, raw_operation, result, worker.batch());
            member.admission.leave();
            member.traffic.note(asked, range.1, result.is_ok());
            let result = result.map_err(|error| fault::at(member, asked, range, error));
            submitter.answer(shard, IoId(token), result);
        } else {
            let operation = member.take_back(token);
            let step = ring::after(raw, member, &operation, (&done, result), worker.batch());
            drop(done);
            if let Step::Submit(next) = step {
                return worker.submit(next, self, member.note_out(operation));
            }
            match operation.takes_room() {
                true => member.admission.leave(),
                false => member.admission.end_aside(),
            }
            match step {
                Step::Answer(result) => submitter.complete(operation, result),
                _ => member.leave_to_threads(operation),
            }
        }
        submitter.begin_kept();
        core.drive_notified(submitter.into_notified(), Some(worker));
    }
}

fn start_of(core: &Arc<Core>, member: &Arc<MemberHandle>) -> Start {
    let (core, member) = (Arc::downgrade(core), Arc::downgrade(member));
    Box::new(move || {
        let core = Weak::clone(&core);
        let member = member.upgrade().expect("a caller that wants a thread has the member");
        thread::Builder::new().name("braid-member".into()).spawn(move || run(&core, &member))
    })
}

/// The function that a member's thread runs: carries out queued operations until the queue is
/// stopped.
fn run(core: &Weak<Core>, member: &MemberHandle) {
    while let Some(operation) = member.threads.next() {
        let Some(core) = core.upgrade() else { return };
        // The member's scheduler is a machine as well, so a panic inside it ends the process.
        let _guard = AbortOnPanic::new();
        let submitter = Submitter::new(&core, member);
        // `Look` is no client's request: its end says nothing about the member's other operations.
        let is_request = !matches!(operation, Operation::Look);
        if is_request {
            member.admission.begin_aside();
        }
        submitter.perform(operation);
        core.drive_notified(submitter.into_notified(), None);
        if is_request {
            member.admission.end_aside();
        }
    }
}
