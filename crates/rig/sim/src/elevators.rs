//! Elevators between the engine and the disks, and the multiplexer above them.
//!
//! ```text
//!   shard ─MemberIo─▶ elevator of the member ─Vector─▶ pending ─▶ disk, part by part ─IoDone─▶ shard
//!                          ▲           ▲                            │
//!             reads, writes or both    └────── tag is free ─────────┤
//!                     multiplexer ◀───── how long it took ──────────┘
//! ```
//!
//! What waits in an elevator when a run ends was never begun; what is out may be torn. A vector that fails is tried again
//! part by part, as a driver must, so that one bad sector costs only the request that asked for it. Superblocks and flushes
//! go past the elevators: the array has at most one of them under way for a member.
//!
//! One multiplexer stands above all members. It is asked whenever something comes, something is done, it is set anew, and
//! when the moment that it named has come; [`crate::patience`] looks at what it says and at who goes before whom.

mod world;

use std::collections::BTreeMap;

use braid_elevator::{
    Class, Depth, Elevator, EntryId, Multiplexer, MultiplexerSettings, Policy, Settings, Tag,
};
use braid_engine::Instant;
use braid_engine::array::MemberId;
use braid_engine::effect::MemberIo;

use crate::patience::{Patience, Waiting};
use crate::random::Random;

/// What a disk was given: adjacent requests of one kind.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) member: MemberId,
    pub(crate) tag: Tag,
    is_read: bool,
    /// Shard and request.
    pub(crate) parts: Vec<(usize, MemberIo)>,
}

/// One elevator for each member, whose entries are whose, and who may go.
#[derive(Debug)]
pub(crate) struct Elevators {
    each: Vec<Elevator>,
    /// By member: since when it has been busy with what it does now.
    busy_since_ns: Vec<u64>,
    multiplexer: Multiplexer,
    /// When the multiplexer wants to be asked again, if any request waits.
    wake_ns: Option<u64>,
    waiting: BTreeMap<EntryId, (Waiting, MemberIo)>,
    patience: Patience,
    /// Of which the class of a request is drawn: the engine says nothing of classes, so any of them must do.
    classes: &'static [Class],
    /// Whether what a write must read first goes with the writes.
    names_pre_reads: bool,
    next: u64,
}

const ALIKE: &[Class] = &[Class::BestEffort];

const MIXED: &[Class] = &[Class::BestEffort, Class::BestEffort, Class::Idle, Class::RealTime];

impl Elevators {
    /// Elevators that change nothing.
    pub(crate) fn straight(members: usize, now: Instant) -> Self {
        let each = (0..members).map(|_| Elevator::new(Settings::straight())).collect();
        let off = MultiplexerSettings { is_on: false, ..MultiplexerSettings::default() };
        Self {
            each,
            busy_since_ns: vec![0; members],
            multiplexer: Multiplexer::new(off, now.0),
            wake_ns: None,
            waiting: BTreeMap::new(),
            patience: Patience::new(off, members),
            classes: ALIKE,
            names_pre_reads: true,
            next: 0,
        }
    }

    /// Sets all of it to anything, as a person may at any time.
    fn set_any(&mut self, random: &mut Random) {
        let settings = MultiplexerSettings {
            is_on: random.chance(70),
            period_ns: *random.pick(&[10_000, 200_000, 5_000_000, 200_000_000]),
            share_min_permille: *random.pick(&[0, 100, 500, 1000]),
            share_max_permille: *random.pick(&[0, 700, 700, 1000]),
        };
        self.classes = *random.pick(&[ALIKE, MIXED]);
        self.names_pre_reads = random.chance(70);
        self.multiplexer.set(settings);
        self.patience.multiplexer_set(settings);
        for (member, elevator) in self.each.iter_mut().enumerate() {
            let policy = *random.pick(&[Policy::Deadline, Policy::Deadline, Policy::None]);
            let mut any_depth = || Depth {
                total: *random.pick(&[1, 2, 4, 32]),
                kept_for_reads: *random.pick(&[0, 1, 8]),
                kept_for_writes: *random.pick(&[0, 1, 8]),
            };
            let (depth, depth_alone) = (any_depth(), any_depth());
            elevator.set(Settings {
                policy,
                depth,
                depth_alone,
                read_expiry_ns: *random.pick(&[5_000, 500_000_000]),
                write_expiry_ns: *random.pick(&[20_000, 5_000_000_000]),
                aging_ns: *random.pick(&[50_000, 10_000_000_000]),
                hold_max_ns: *random.pick(&[100_000, 400_000_000]),
                batch: *random.pick(&[1, 2, 16]),
                writes_starved: *random.pick(&[0, 2]),
                merge_sectors_max: *random.pick(&[0, 16, 2048]),
                merge_parts_max: *random.pick(&[2, 64]),
                takes_along: random.chance(50),
            });
            self.patience.elevator_set(member, elevator);
        }
    }

    /// Requests that no disk was given yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &MemberIo> {
        self.waiting.values().map(|(_, io)| io)
    }

    /// Whether anything waits or is out.
    /// Members that there are elevators for.
    pub(crate) fn members(&self) -> usize {
        self.each.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.each.iter().all(Elevator::is_empty)
    }

    /// When a request that is held may be let go.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.wake_ns.map(Instant)
    }
}
