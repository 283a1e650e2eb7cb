//! The operations of an owner, one at a time for each block.
//!
//! Where it stands: below [`owner`](super::owner), which says which members are in use. A write
//! makes its intent bit durable on all members in sync, then writes the copies. A member that
//! returns gets all writes, too. A read waits for the writes to its block.
//!
//! ```text
//!   write      bits ─▶ copies ─▶ ready ─▶ answered        ready: when the lease allows an answer
//!   read       fetch ─▶ ready ─▶ answered
//!   equalise   fetch ─▶ copies                            a dirty block, before the owner serves
//!   copy       fetch ─▶ copies on one member              recovery
//!   clear      clearing                                   while no member is missing
//! ```

use std::collections::VecDeque;

use super::context::Context;
use super::layout::{BLOCKS, Blocks, Layout, Set, members_of};
use super::links::{Links, Purpose};
use super::message::{Process, Reply, Value, Work};

/// Requests that may wait for a block.
const WAITING_MAX: usize = 3;

/// The members as the owner uses them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) layout: Layout,
    pub(super) in_sync: Set,
    pub(super) joining: Option<usize>,
    /// No member is missing, also by the superblocks.
    pub(super) is_whole: bool,
}

impl Membership {
    fn writers(&self) -> Set {
        self.in_sync | self.joining.map_or(0, |member| 1 << member)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write(Value),
    Equalise,
    Copy(usize),
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Bits,
    Fetch,
    Data,
    Clearing,
    Ready,
}

#[derive(Debug)]
struct Operation {
    number: u64,
    kind: Kind,
    /// When the client submitted the request, in the world's time.
    began: u64,
    stage: Stage,
    /// Members that have not answered yet.
    pending: Set,
    value: Value,
}

#[derive(Debug, Default)]
struct Lane {
    current: Option<Operation>,
    waiting: VecDeque<(Kind, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: [Lane; BLOCKS],
    /// Blocks whose copies may differ, on some member.
    dirty: Blocks,
    /// Dirty blocks whose bit is durable on all members in sync.
    durable: Blocks,
    next_number: u64,
}

/// The parts of the world that an operation needs.
pub(super) struct Tools<'a, 'b> {
    pub(super) members: Membership,
    pub(super) links: &'a mut Links,
    /// The host's clock.
    pub(super) time: u64,
    pub(super) context: &'a mut Context<'b>,
}

impl Tools<'_, '_> {
    fn call(&mut self, targets: Set, work: Work, purpose: Purpose) {
        for member in members_of(targets) {
            self.links.call(member, (work, purpose), self.time, self.context);
        }
    }

    /// A member in sync that has the block; one whose link is up, if possible.
    fn source(&mut self, block: usize) -> Set {
        let all = self.members.in_sync & self.members.layout.touched(block);
        let up = all & self.links.up();
        let list: Vec<usize> = members_of(if up == 0 { all } else { up }).collect();
        assert!(!list.is_empty(), "no member in sync has block {block}");
        1 << *self.context.random.pick(&list)
    }
}

impl Lanes {
    pub(super) fn dirty(&self) -> Blocks {
        self.dirty
    }

    /// Begins with the bits that are set on any member, and those set on all members.
    pub(super) fn begin(&mut self, (any, all): (Blocks, Blocks)) {
        (self.dirty, self.durable) = (any, all);
    }

    pub(super) fn has_room(&self, block: usize) -> bool {
        self.lanes[block].waiting.len() < WAITING_MAX
    }

    pub(super) fn is_idle(&self, block: usize) -> bool {
        self.lanes[block].current.is_none()
    }

    /// How many operations of this kind are not over.
    pub(super) fn count(&self, is_wanted: impl Fn(Kind) -> bool) -> usize {
        let kinds = self.lanes.iter().flat_map(|lane| {
            let waiting = lane.waiting.iter().map(|(kind, _)| *kind);
            lane.current.iter().map(|operation| operation.kind).chain(waiting)
        });
        kinds.filter(|kind| is_wanted(*kind)).count()
    }

    pub(super) fn submit(&mut self, block: usize, kind: Kind, tools: &mut Tools<'_, '_>) {
        self.lanes[block].waiting.push_back((kind, tools.context.now));
        self.begin_next(block, tools);
    }

    fn begin_next(&mut self, block: usize, tools: &mut Tools<'_, '_>) {
        while self.lanes[block].current.is_none()
            && let Some((kind, began)) = self.lanes[block].waiting.pop_front()
        {
            let is_needed = match kind {
                Kind::Copy(member) => tools.members.joining == Some(member),
                Kind::Clear => tools.members.is_whole && self.dirty & 1 << block != 0,
                _ => true,
            };
            if !is_needed {
                continue;
            }
            self.next_number += 1;
            let bit = 1 << block;
            let (stage, value) = match kind {
                Kind::Write(value) if self.durable & bit != 0 => (Stage::Data, value),
                Kind::Write(value) => {
                    self.dirty |= bit;
                    (Stage::Bits, value)
                }
                Kind::Clear => {
                    self.durable &= !bit;
                    (Stage::Clearing, 0)
                }
                Kind::Read | Kind::Equalise | Kind::Copy(_) => (Stage::Fetch, 0),
            };
            let number = self.next_number;
            self.lanes[block].current =
                Some(Operation { number, kind, began, stage, pending: 0, value });
            self.enter(block, stage, tools);
        }
    }

    fn enter(&mut self, block: usize, stage: Stage, tools: &mut Tools<'_, '_>) {
        let touched = tools.members.layout.touched(block);
        let operation = self.lanes[block].current.as_mut().expect("an operation goes on");
        let bits = 1 << block;
        let (targets, work) = match (stage, operation.kind) {
            (Stage::Bits, _) => (tools.members.writers(), Work::SetBits(bits)),
            (Stage::Fetch, _) => (tools.source(block), Work::Read(block)),
            (Stage::Data, Kind::Copy(member)) => (1 << member, Work::Write(block, operation.value)),
            (Stage::Data, _) => {
                (touched & tools.members.writers(), Work::Write(block, operation.value))
            }
            (Stage::Clearing, _) => (tools.members.in_sync, Work::ClearBits(bits)),
            (Stage::Ready, _) => (0, Work::Ping),
        };
        (operation.stage, operation.pending) = (stage, targets);
        tools.call(targets, work, Purpose::Operation(block, operation.number));
    }

    /// Takes a member's answer to a request of an operation.
    pub(super) fn answered(
        &mut self,
        (block, number, member): (usize, u64, usize),
        reply: Reply,
        tools: &mut Tools<'_, '_>,
    ) {
        let Some(operation) = &mut self.lanes[block].current else { return };
        if operation.number != number || operation.pending & 1 << member == 0 {
            return;
        }
        operation.pending &= !(1 << member);
        if let Reply::Read(value) = reply {
            operation.value = value;
        }
        self.advance(block, tools);
    }

    fn advance(&mut self, block: usize, tools: &mut Tools<'_, '_>) {
        let Some(operation) = &self.lanes[block].current else { return };
        if operation.pending != 0 {
            return;
        }
        let bit = 1 << block;
        match (operation.stage, operation.kind) {
            (Stage::Bits, _) => {
                self.durable |= bit;
                self.enter(block, Stage::Data, tools);
            }
            (Stage::Fetch, Kind::Read) | (Stage::Data, Kind::Write(_)) => {
                self.enter(block, Stage::Ready, tools);
            }
            (Stage::Fetch, _) => self.enter(block, Stage::Data, tools),
            (Stage::Data | Stage::Clearing, kind) => {
                if kind == Kind::Clear {
                    self.dirty &= !bit;
                    tools.context.tally.count("bits-cleared");
                }
                self.lanes[block].current = None;
                self.begin_next(block, tools);
            }
            (Stage::Ready, _) => {}
        }
    }

    /// A member is not used any more: no operation waits for it.
    pub(super) fn drop_member(&mut self, member: usize, tools: &mut Tools<'_, '_>) {
        for block in 0..BLOCKS {
            let Some(operation) = &mut self.lanes[block].current else { continue };
            if operation.kind == Kind::Copy(member) {
                self.lanes[block].current = None;
                self.begin_next(block, tools);
            } else if operation.pending & 1 << member != 0 {
                operation.pending &= !(1 << member);
                if operation.stage == Stage::Fetch {
                    self.enter(block, Stage::Fetch, tools);
                }
                self.advance(block, tools);
            }
        }
    }

    /// Answers the operations that are ready.
    pub(super) fn answer(&mut self, owner: (u64, Process), tools: &mut Tools<'_, '_>) {
        for block in 0..BLOCKS {
            while let Some(operation) = &self.lanes[block].current
                && operation.stage == Stage::Ready
            {
                let (began, value, now) = (operation.began, operation.value, tools.context.now);
                if operation.kind == Kind::Read {
                    tools.context.tally.count("reads-answered");
                    tools.context.checker.read_answered((block, value), began, owner, now);
                } else {
                    tools.context.tally.count("writes-answered");
                    tools.context.checker.write_answered(value, owner, now);
                }
                self.lanes[block].current = None;
                self.begin_next(block, tools);
            }
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        let current = self.lanes.iter().filter_map(|lane| lane.current.as_ref());
        current.into_iter().any(|operation| operation.stage == Stage::Ready)
    }
}
