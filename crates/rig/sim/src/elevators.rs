//! Elevators between the engine and the disks, and the multiplexer above them.
//!
//! ```text
//!   shard ─MemberIo─▶ elevator of the member ─Vector─▶ pending ─▶ disk, in parts ─IoDone─▶ shard
//!                          ▲           ▲                            │
//!             reads, writes or both    └────── tag is free ─────────┤
//!                     multiplexer ◀───── how long it took ──────────┘
//! ```
//!
//! When a run ends, the disks never see requests that still wait in an elevator; dispatched
//! requests can be torn. A failed vector is retried part by part, as a driver must, so that one bad
//! sector fails only its own request. Superblocks and flushes bypass the elevators: at most one of
//! each is in flight per member.
//!
//! One multiplexer stands above all members. It runs when a request comes or completes, when its
//! settings change, and at the time that it requested. [`crate::patience`] checks it.

mod world;

use std::collections::BTreeMap;

use braid_elevator::{
    Class, Depth, Elevator, EntryId, Multiplexer, MultiplexerSettings, Policy, Settings, Tag,
};
use braid_engine::Instant;
use braid_engine::array::MemberId;
use braid_engine::effect::MemberIo;

use crate::patience::{Patience, QueuedRequest};
use crate::random::Random;

/// One dispatch to a disk: adjacent requests of one kind.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) member: MemberId,
    pub(crate) tag: Tag,
    is_read: bool,
    /// The shard and the member request of each part.
    pub(crate) parts: Vec<(usize, MemberIo)>,
}

/// The elevator of each member, the requests that wait in them, and the multiplexer.
#[derive(Debug)]
pub(crate) struct Elevators {
    each: Vec<Elevator>,
    /// By member: when its disk began the work that is in progress.
    busy_since_ns: Vec<u64>,
    multiplexer: Multiplexer,
    /// When the multiplexer wants to run again, if any request waits.
    wake_ns: Option<u64>,
    waiting: BTreeMap<EntryId, (QueuedRequest, MemberIo)>,
    patience: Patience,
    /// Classes to draw a request's class from. The engine sets no class, so any class must work.
    classes: &'static [Class],
    /// Whether a read that serves a write is dispatched on the writes' side.
    names_pre_reads: bool,
    next: u64,
}

const ALIKE: &[Class] = &[Class::BestEffort];

const MIXED: &[Class] = &[Class::BestEffort, Class::BestEffort, Class::Idle, Class::RealTime];

impl Elevators {
    /// Elevators that neither reorder nor merge requests.
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

    /// Draws all settings anew, as an operator can at any time.
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

    /// Requests that no elevator has dispatched to a disk yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &MemberIo> {
        self.waiting.values().map(|(_, io)| io)
    }

    pub(crate) fn members(&self) -> usize {
        self.each.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.each.iter().all(Elevator::is_empty)
    }

    /// When the multiplexer wants to run again, because it holds a request back.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.wake_ns.map(Instant)
    }
}
