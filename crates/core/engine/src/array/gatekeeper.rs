//! The gate that lets shards' writes begin: waiting shards, and the steps from open to closed.
//!
//! ```text
//!        no shard has written for a while,
//!        logs are changed, or a stop            every shard confirms     superblocks say clean
//!   open ─────────────────────────────▶ closing ────────────────▶ drained ────────────▶ closed
//!    ▲ ▲      a shard wants to write       │                                              │
//!    │ └───────────────────────────────────┘           superblocks say active             │
//!    └────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The gatekeeper asks shards now and then when they last wrote. The gatekeeper sees neither
//! superblocks nor caches. Superblocks decide whether the gate may open; caches are flushed when
//! shards have drained.

use std::collections::BTreeSet;

use braid_sim_hooks::{Bug, Mark, Point, reached, sometimes, spoiled};

use super::effect::ArrayEffect;
use super::order::{Activity, Closing};
use super::outbox::Outbox;
use crate::Instant;
use crate::ids::ShardIndex;

#[derive(Debug, Default)]
pub(super) struct Gatekeeper {
    delay_ms: u64,
    shards: u16,
    epoch: u64,
    write_wanted: bool,
    next_look: Option<Instant>,
    /// Shards that have not yet answered a query for their activity; empty if no shard was asked.
    asked: BTreeSet<ShardIndex>,
    /// A shard that answered the query had a recent write.
    busy: bool,
    /// All shards answered the last query, none had a recent write, and no write waits.
    idle: bool,
    /// While the gate is being closed: shards that have not yet confirmed the closed gate.
    unconfirmed: Option<BTreeSet<ShardIndex>>,
    /// A shard's write in flight waits for other writes, which wait for the gate.
    is_held_up: bool,
}

impl Gatekeeper {
    pub(super) fn new(delay_ms: u64, shards: u16) -> Self {
        Self { delay_ms, shards, ..Self::default() }
    }

    /// The gate's progress from open to closed.
    pub(super) fn closing(&self) -> Closing {
        match &self.unconfirmed {
            None => Closing::No,
            Some(shards) if shards.is_empty() => Closing::Drained,
            Some(_) => Closing::Draining,
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.write_wanted
    }

    /// Whether a draining shard waits for other writes, which wait for the gate.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_held_up && self.unconfirmed.is_some()
    }

    /// Whether no shard has had a write for a while.
    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    pub(super) fn want(&mut self) {
        reached(Mark::GateAsked);
        self.write_wanted = true;
    }

    /// Notes that a shard cannot drain for the view with this epoch before other writes have begun.
    pub(super) fn hold_up(&mut self, epoch: u64) {
        self.is_held_up |= epoch == self.epoch && self.unconfirmed.is_some();
    }

    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Notes that a shard acts on the view with this epoch from now on.
    pub(super) fn confirm(&mut self, shard: ShardIndex, epoch: u64) {
        assert!(epoch <= self.epoch, "no view is in force before it is published");
        if epoch != self.epoch {
            reached(Mark::OldEpochConfirmed);
        }
        let is_newest = epoch == self.epoch;
        let is_newest = spoiled(Bug::EpochIgnored, is_newest, true);
        if is_newest && let Some(unconfirmed) = &mut self.unconfirmed {
            unconfirmed.remove(&shard);
        }
    }

    /// Takes a shard's report: when it last wrote, and whether it has a write in flight.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        shard: ShardIndex,
        last_write: Instant,
        writing: bool,
    ) {
        let due = last_write.plus_milliseconds(self.delay_ms);
        self.busy |= writing || due > now;
        if self.asked.remove(&shard) && self.asked.is_empty() {
            let busy = self.busy && !sometimes(Point::EarlyClose);
            self.idle = !busy && !self.write_wanted;
            self.next_look = Some(now.plus_milliseconds(self.delay_ms));
        }
    }

    /// Asks shards for their activity if a query is due and the gate `may_close`.
    pub(super) fn look(&mut self, now: Instant, may_close: bool, out: &mut Outbox) {
        if self.next_look.is_none_or(|due| due > now) {
            return;
        }
        if !may_close {
            self.next_look = None;
            return;
        }
        if sometimes(Point::LongerDelay) {
            self.next_look = Some(now.plus_milliseconds(10 * self.delay_ms));
            return;
        }
        self.next_look = Some(now.plus_milliseconds(self.delay_ms));
        if self.asked.is_empty() && self.unconfirmed.is_none() {
            self.asked = self.all_shards();
            (self.busy, self.idle) = (false, false);
            out.push(ArrayEffect::QueryActivity);
        }
    }

    /// Opens the gate without an update of superblocks. They still say active, since the gate was
    /// closing, or are never written.
    pub(super) fn open(&mut self) {
        if self.unconfirmed.is_some() {
            reached(Mark::CloseCrossed);
        }
        self.write_wanted = false;
        self.unconfirmed = None;
        self.is_held_up = false;
    }

    pub(super) fn close(&mut self) {
        assert!(self.unconfirmed.is_none(), "and it is closed once");
        self.idle = false;
        self.is_held_up = false;
        self.unconfirmed = Some(self.all_shards());
    }

    /// Opens or closes the gate according to the superblocks' state `says`.
    pub(super) fn follow(&mut self, now: Instant, says: Activity) {
        self.unconfirmed = None;
        match says {
            Activity::Active => {
                reached(Mark::TurnsActive);
                self.write_wanted = false;
                self.idle = false;
                self.next_look.get_or_insert(now.plus_milliseconds(self.delay_ms));
            }
            Activity::Clean | Activity::NotKept => self.next_look = None,
        }
    }

    pub(super) fn stop(&mut self) {
        self.next_look = None;
    }

    /// Gives up closing the gate: the array is broken, and never turns clean again.
    pub(super) fn give_up(&mut self) {
        let Self { delay_ms, shards, epoch, write_wanted, .. } = *self;
        *self = Self { delay_ms, shards, epoch, write_wanted, ..Self::default() };
    }

    fn all_shards(&self) -> BTreeSet<ShardIndex> {
        (0..self.shards).map(ShardIndex).collect()
    }
}
