//! Elevators between the engine and the disks.
//!
//! ```text
//!   shard ─MemberIo─▶ elevator of the member ─Vector─▶ pending ─▶ disk, part by part ─IoDone─▶ shard
//!                          ▲                                        │
//!                          └────────────── tag is free ─────────────┘
//! ```
//!
//! What waits in an elevator when a run ends was never begun; what is out may be torn. A vector that fails is tried again
//! part by part, as a driver must, so that one bad sector costs only the request that asked for it. Superblocks and flushes
//! go past the elevators: the array has at most one of them under way for a member.

use std::collections::BTreeMap;

use braid_elevator::{
    Allowed, Class, Depth, Elevator, Entry, EntryId, Operation, Place, Policy, Settings, Tag,
};
use braid_engine::array::MemberId;
use braid_engine::effect::{MemberIo, MemberOperation};

use crate::random::Random;
use crate::schedule::Event;
use crate::world::World;

/// What a disk was given: adjacent requests of one kind.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) member: MemberId,
    pub(crate) tag: Tag,
    /// Shard and request.
    pub(crate) parts: Vec<(usize, MemberIo)>,
}

/// One elevator for each member, and whose entries are whose.
#[derive(Debug)]
pub(crate) struct Elevators {
    each: Vec<Elevator>,
    waiting: BTreeMap<EntryId, (usize, MemberIo)>,
    next: u64,
}

impl Elevators {
    /// Elevators that change nothing.
    pub(crate) fn straight(members: usize) -> Self {
        let each = (0..members).map(|_| Elevator::new(Settings::straight())).collect();
        Self { each, waiting: BTreeMap::new(), next: 0 }
    }

    /// Sets each to anything, as a person may at any time.
    pub(crate) fn set_any(&mut self, random: &mut Random) {
        for elevator in &mut self.each {
            let policy = *random.pick(&[Policy::Deadline, Policy::Deadline, Policy::None]);
            let depth = Depth {
                total: *random.pick(&[1, 2, 4, 32]),
                kept_for_reads: *random.pick(&[0, 1, 8]),
                kept_for_writes: *random.pick(&[0, 1, 8]),
            };
            elevator.set(Settings {
                policy,
                depth,
                read_expiry_ns: *random.pick(&[5_000, 500_000_000]),
                write_expiry_ns: *random.pick(&[20_000, 5_000_000_000]),
                aging_ns: *random.pick(&[50_000, 10_000_000_000]),
                batch: *random.pick(&[1, 2, 16]),
                writes_starved: *random.pick(&[0, 2]),
                merge_sectors_max: *random.pick(&[0, 16, 2048]),
                merge_parts_max: *random.pick(&[2, 64]),
            });
        }
    }

    /// Whether anything waits or is out.
    pub(crate) fn is_empty(&self) -> bool {
        self.each.iter().all(Elevator::is_empty)
    }
}

impl World {
    /// A shard wants something of a member.
    pub(crate) fn queue_io(&mut self, shard: usize, io: MemberIo) {
        let elevators = &mut self.engine.elevators;
        let id = EntryId(elevators.next);
        elevators.next += 1;
        let operation = match io.operation {
            MemberOperation::Read { .. } => Operation::Read,
            MemberOperation::Write { durable, .. } => Operation::Write { durable },
            MemberOperation::Zero { .. } => Operation::Other,
        };
        let (start, sectors) = (io.sector.0, io.sectors);
        // The engine says nothing of classes yet: any of them must do.
        let class = *self.chances.schedule.pick(&[
            Class::BestEffort,
            Class::BestEffort,
            Class::Idle,
            Class::RealTime,
        ]);
        let entry = Entry { id, operation, class, start, sectors };
        elevators.waiting.insert(id, (shard, io));
        let elevator = &mut elevators.each[usize::from(io.member.0)];
        elevator.handle_insert(self.clock.now.0, entry, Place::Sorted);
        self.dispatch(io.member);
    }

    /// Gives a member's disk what its elevator lets out.
    fn dispatch(&mut self, member: MemberId) {
        let elevators = &mut self.engine.elevators;
        let elevator = &mut elevators.each[usize::from(member.0)];
        while let Some(dispatch) = elevator.poll_dispatch(self.clock.now.0, Allowed::ALL) {
            let whose = elevator
                .parts(dispatch.tag)
                .map(|entry| elevators.waiting.remove(&entry.id).expect("an entry goes out once"));
            let parts: Vec<(usize, MemberIo)> = whose.collect();
            if parts.len() > 1 {
                self.tally.count("merged-vector");
            }
            self.engine.pending.push(Event::Io(Vector { member, tag: dispatch.tag, parts }));
        }
    }

    /// The disk has done a vector.
    pub(crate) fn vector_done(&mut self, member: MemberId, tag: Tag) {
        self.engine.elevators.each[usize::from(member.0)].handle_done(tag);
        self.dispatch(member);
    }
}
