//! The control side: who is a member, what the superblocks say, whether writes may start.
//!
//! One machine per array. It is fed reports of the shards and results of its own effects. Four rooms, as everywhere:
//! [`mod@facts`] folds it into a small value, [`mod@decide`] is the pure table that says what comes next, [`act`] does it,
//! and this file says what there is to change:
//!
//! ```text
//!            a shard wants to write            nothing written for a while, or stop
//!   clean ──────────────────────────▶ active ────────────────────────────────────────┐
//!     ▲   write superblocks "active",          close the gate, wait for every shard,   │
//!     │   then open the gate                   flush members, write "clean"            │
//!     └────────────────────────────────────────────────────────────────────────────────┘
//!   a little later, and nothing waits for it: the same once more, with one more event (`superblock`)
//!   at any time: a member failed ─▶ write the survivors' superblocks ─▶ publish a view without it
//! ```
//!
//! It does not know sectors, requests' content, devices or threads.

mod act;
mod decide;
mod facts;
mod roster;
mod set;
mod sitting_out;
mod superblock;
mod update;
mod view;
mod waves;

use braid_hooks::{Bug, Mark, planted, reached};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_geometry::{Family, Geometry, LogicalSector, Slot};

pub use crate::ids::MemberId;
pub use superblock::{DeviceRole, SuperblockState};
pub use update::{UpdateTimes, level_with, update_for};
pub use view::{ArrayView, Gate, MemberView};
pub(crate) use waves::next_wave;

use crate::Instant;
use crate::badblocks::BadBlocks;
use crate::effect::{Attention, Report};
use crate::ids::{RequestId, ShardIndex};
use crate::request::Fault;
use decide::{Activity, FlushPurpose};
use roster::Roster;
use set::Set;
use sitting_out::SittingOut;
use superblock::Events;

/// A member that occupies a slot when the array is opened.
#[derive(Clone, Debug)]
pub struct MemberSetup {
    /// Its name.
    pub id: MemberId,
    /// Its index in the superblocks' role table.
    pub device_number: u16,
    /// Sectors of its data area that hold what they should; `u64::MAX` when all do.
    pub recovered_sectors: u64,
    /// Ranges of it not to be read.
    pub bad_blocks: BadBlocks,
}

/// The array as assembly found it.
#[derive(Clone, Debug)]
pub struct ArraySetup {
    /// Where bytes live.
    pub geometry: Geometry,
    /// Per slot its member, or nothing.
    pub slots: Vec<Option<MemberSetup>>,
    /// Members without a slot: name and index in the role table.
    pub spares: Vec<(MemberId, u16)>,
    /// The newest event count.
    pub events: u64,
    /// Where redundancy agrees up to; `u64::MAX` when everywhere. Zero for an array left active.
    pub resync_offset: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// How many shards there are.
    pub shards: u16,
    /// Whether every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
    /// Milliseconds without a write after which the superblocks turn clean.
    pub clean_delay_ms: u64,
    /// Whether superblocks take more than one sector, so that a power cut can tear them.
    pub superblocks_tear: bool,
}

/// What the array asks its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayEffect {
    /// Give this view to every shard.
    Publish(Arc<ArrayView>),
    /// Write this member's superblock, durably, and say when.
    WriteSuperblock {
        /// Whose.
        member: MemberId,
        /// What it shall say.
        state: Arc<SuperblockState>,
    },
    /// Flush this member's volatile cache, and say when.
    Flush {
        /// Whose.
        member: MemberId,
    },
    /// Give this to every shard, which need not wait for what is under way.
    Attend(Arc<Attention>),
    /// Ask every shard for its activity.
    QueryActivity,
    /// Ask every shard to bring what it has answered to the members.
    WriteBack {
        /// Which time this is.
        round: u64,
    },
    /// Answer a client's flush.
    Answer {
        /// Whose.
        request: RequestId,
        /// How it went.
        result: Result<(), Fault>,
    },
    /// Tell whoever watches.
    Notice(Notice),
}

/// Something a person or a monitor wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A member failed and is out of the array; the survivors' superblocks say so, unless the
    /// array is open for reading only.
    MemberOut {
        /// Which.
        member: MemberId,
        /// The slot it had.
        slot: Slot,
    },
    /// More members failed than the level can make up for; writes are refused from now on.
    Broken {
        /// The member whose failure was one too many.
        member: MemberId,
    },
    /// A write that had been answered could not be carried out, nor could it be answered with an
    /// error any more. Every flush fails from now on, and these sectors cannot be read until they are written again. One
    /// notice for each run of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// How many; at least one.
        sectors: u64,
    },
    /// The file system below a member is full. Nothing is wrong with the member, so it stays; but
    /// a write was left half done, so writes are refused until the array is started again.
    OutOfSpace {
        /// The member that could not grow.
        member: MemberId,
    },
    /// A member has become much slower than its siblings: it is read around for now, and written.
    SitsOut {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Milliseconds that its requests take, or that the oldest has been under way.
        latency_ms: u64,
        /// Microseconds that its siblings take: the median; 0 if nothing was asked of them.
        siblings_us: u64,
    },
    /// A member that sat out is read again.
    Back {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Milliseconds that it sat out.
        after_ms: u64,
    },
    /// The superblocks of all members that are in the array say so, durably; the driver knows with which time. Of no
    /// interest to a person.
    Told {
        /// The count.
        events: u64,
    },
    /// The array has stopped.
    Stopped {
        /// Its superblocks are clean, and nothing that was answered was lost.
        clean: bool,
    },
}

/// The control machine of one array.
#[derive(Debug)]
pub struct Array {
    geometry: Arc<Geometry>,
    setup: Setup,
    roster: Roster,
    /// The table that every member's superblock has, once an update of this run is through.
    table: Option<Arc<[DeviceRole]>>,
    events: Events,
    condition: Condition,
    /// The update that is being written.
    update: Option<Update>,
    /// What members' caches are being flushed for.
    flushing: Option<FlushPurpose>,
    flushes: Flushes,
    closing: Closing,
    sitting_out: SittingOut,
    effects: VecDeque<ArrayEffect>,
}

/// What never changes while the array is open.
#[derive(Clone, Copy, Debug)]
struct Setup {
    shards: u16,
    zero_is_fast: bool,
    clean_delay_ms: u64,
    superblocks_tear: bool,
}

/// Superblocks that are being written. `later` are when all of `missing` are durable.
#[derive(Debug)]
struct Update {
    missing: BTreeSet<MemberId>,
    later: BTreeSet<MemberId>,
    state: Arc<SuperblockState>,
    becomes: Activity,
    /// What it says was said before, with one event less.
    again: bool,
}

/// Where the array stands.
#[derive(Clone, Copy, Debug)]
struct Condition {
    /// The view that shards have is not what is so.
    unpublished: bool,
    /// Where redundancy agrees up to; `u64::MAX` when everywhere.
    resync_offset: u64,
    /// What durable superblocks say.
    on_disk: Activity,
    /// A shard waits for the gate.
    write_wanted: bool,
    /// The last update of this run was written once; a second time is due.
    said_once: bool,
    /// The array was found dirty without some of its members, and no superblock says so yet.
    absent_untold: bool,
    read_only: bool,
    broken: bool,
    stopping: bool,
    stopped: bool,
    epoch: u64,
}

/// Clients' flushes, and what they are about.
///
/// ```text
///   queue ──every shard writes back──▶ written back ──members flush──▶ answered
/// ```
#[derive(Debug, Default)]
struct Flushes {
    queue: Vec<RequestId>,
    /// Those whose round of writing back is under way or over.
    written_back: Vec<RequestId>,
    /// Shards that have not yet told that the round is over.
    unwritten: Set<ShardIndex>,
    round: u64,
    running: Vec<RequestId>,
    failed: bool,
    /// A write that had been answered was lost. Nobody knows whose it was, so no flush is answered
    /// well from then on.
    lost: bool,
    /// Members that have been written since their last flush began.
    unflushed: Set<MemberId>,
    /// Members that are being flushed.
    missing: Set<MemberId>,
}

/// The way from active back to clean.
#[derive(Debug, Default)]
struct Closing {
    next_look: Option<Instant>,
    /// Shards that have not yet told their activity; none when no shard was asked.
    asked: BTreeSet<ShardIndex>,
    /// One of them had a write not long ago.
    busy: bool,
    /// None of them had.
    idle: bool,
    /// Shards that have not yet confirmed the closed gate, while it is being closed.
    unconfirmed: Option<BTreeSet<ShardIndex>>,
    /// The final flush of an array that keeps no intent is done.
    last_flush_done: bool,
    /// The last round of writing back of a broken array has been asked for: it comes before the array
    /// says that it has stopped.
    last_round: bool,
}

impl Array {
    /// The machine for an array as assembly found it; its first effect is the first view.
    ///
    /// # Panics
    /// When the setup contradicts its geometry: wrong number of slots, or too few members.
    #[must_use]
    pub fn new(setup: ArraySetup) -> Self {
        assert_eq!(setup.slots.len(), usize::from(setup.geometry.slots()), "one entry per slot");
        let is_lost = |slot: Slot| {
            let member = &setup.slots[usize::from(slot.0)];
            member.as_ref().is_none_or(|member| member.recovered_sectors != u64::MAX)
        };
        assert!(setup.geometry.survives(&is_lost), "assembly lets no array through that lost data");
        let mut device_numbers: BTreeMap<MemberId, u16> = setup.spares.iter().copied().collect();
        device_numbers.extend(setup.slots.iter().flatten().map(|m| (m.id, m.device_number)));
        // What was written before may be in their caches still.
        let mut flushes = Flushes::default();
        flushes.unflushed.extend(device_numbers.keys().copied());
        let slots = setup.slots.into_iter().map(|member| {
            member.map(|member| MemberView {
                id: member.id,
                recovered_sectors: member.recovered_sectors,
                bad_blocks: Arc::new(member.bad_blocks),
            })
        });
        let spares = setup.spares.iter().map(|(member, _)| *member).collect();
        let roster = Roster::new(slots.collect(), device_numbers, spares);
        // Levels without redundancy have no "active": a crash leaves nothing to make consistent.
        let has_intent = setup.geometry.level().family() != Family::Direct;
        let is_degraded = roster.missing_count() > 0;
        let is_dirty = has_intent && setup.resync_offset != u64::MAX;
        let mut array = Self {
            geometry: Arc::new(setup.geometry),
            setup: Setup {
                shards: setup.shards,
                zero_is_fast: setup.zero_is_fast,
                clean_delay_ms: setup.clean_delay_ms,
                superblocks_tear: setup.superblocks_tear,
            },
            roster,
            table: None,
            events: Events::new(setup.events),
            condition: Condition {
                unpublished: true,
                resync_offset: setup.resync_offset,
                on_disk: if has_intent { Activity::Clean } else { Activity::NotKept },
                write_wanted: false,
                said_once: false,
                absent_untold: is_dirty && is_degraded && !setup.read_only,
                read_only: setup.read_only,
                broken: false,
                stopping: false,
                stopped: false,
                epoch: 0,
            },
            update: None,
            flushing: None,
            flushes,
            closing: Closing::default(),
            sitting_out: SittingOut::new(),
            effects: VecDeque::new(),
        };
        array.publish();
        array
    }

    /// Number of slots without a member.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.roster.missing_count()
    }

    /// The event count that the superblocks carry, or are about to.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.count()
    }

    /// Takes what a shard has to say.
    pub fn handle_report(&mut self, now: Instant, shard: ShardIndex, report: Report) {
        match report {
            Report::WantWrite => {
                reached(Mark::GateAsked);
                self.condition.write_wanted = true;
            }
            Report::MemberFailed { member } => self.fail_member(member),
            Report::Pace { member, pace } => {
                // Nothing else hangs on it, and it comes often.
                return self.hear_pace(now, shard, (member, pace));
            }
            Report::MemberWritten { member } => {
                self.flushes.unflushed.insert(member);
            }
            Report::WrittenBack { round } => {
                assert!(round <= self.flushes.round, "no round is over before it is asked for");
                if round == self.flushes.round {
                    self.flushes.unwritten.remove(&shard);
                }
            }
            Report::WriteLost { start, sectors } => {
                self.flushes.lost = true;
                self.effects.push_back(ArrayEffect::Notice(Notice::WriteLost { start, sectors }));
            }
            Report::OutOfSpace { member } => self.take_no_writes(Notice::OutOfSpace { member }),
            Report::ViewInForce { epoch } => {
                assert!(
                    epoch <= self.condition.epoch,
                    "no view is in force before it is published"
                );
                if epoch != self.condition.epoch {
                    reached(Mark::OldEpochConfirmed);
                }
                if (epoch == self.condition.epoch || planted(Bug::EpochIgnored))
                    && let Some(unconfirmed) = &mut self.closing.unconfirmed
                {
                    unconfirmed.remove(&shard);
                }
            }
            Report::Activity { last_write, writing } => {
                let due = last_write.plus_milliseconds(self.setup.clean_delay_ms);
                self.closing.busy |= writing || due > now;
                if self.closing.asked.remove(&shard) && self.closing.asked.is_empty() {
                    self.all_have_told(now);
                }
            }
        }
        self.step(now);
    }

    /// A member is gone for good though it may still take writes: a file that was deleted. A level
    /// without redundancy then takes none, since they would be lost without an error.
    pub fn handle_member_gone(&mut self, now: Instant, member: MemberId) {
        let is_direct = self.geometry.level().family() == Family::Direct;
        if is_direct && self.roster.slot_of(member).is_some() {
            self.break_down(member);
        } else {
            self.fail_member(member);
        }
        self.step(now);
    }

    /// Takes the result of an [`ArrayEffect::WriteSuperblock`].
    pub fn handle_superblock_written(&mut self, now: Instant, member: MemberId, written: bool) {
        let update = self.update.as_mut().expect("superblocks are being written");
        assert!(update.missing.remove(&member), "this superblock was not asked for");
        if !written && !planted(Bug::SuperblockErrorIgnored) {
            self.fail_member(member);
        }
        self.step(now);
    }

    /// Takes the result of an [`ArrayEffect::Flush`].
    pub fn handle_flushed(&mut self, now: Instant, member: MemberId, flushed: bool) {
        assert!(self.flushes.missing.remove(&member), "this flush was not asked for");
        if !flushed && !planted(Bug::FlushErrorIgnored) {
            // A failed flush is believed for good: what was in the cache is gone (fsyncgate).
            self.flushes.failed |= self.condition.on_disk == Activity::NotKept;
            if !planted(Bug::FailedFlushForgotten) {
                self.flushes.unflushed.insert(member);
            }
            self.fail_member(member);
        }
        self.step(now);
    }

    /// A client asks that every write answered so far be on stable storage.
    pub fn handle_flush_request(&mut self, now: Instant, request: RequestId) {
        self.flushes.queue.push(request);
        self.step(now);
    }

    /// The moment asked for by [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.look_for_idleness(now);
        self.step(now);
    }

    /// No request will come any more: turn clean and say [`Notice::Stopped`].
    pub fn handle_stop(&mut self, now: Instant) {
        self.condition.stopping = true;
        self.step(now);
    }

    /// The next thing to do, in order.
    #[must_use]
    pub fn poll_effect(&mut self) -> Option<ArrayEffect> {
        self.effects.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.closing.next_look
    }
}
