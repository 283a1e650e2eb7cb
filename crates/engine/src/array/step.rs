//! What the array does next: one task at a time, chosen from what is known, in one place.
//!
//! The order of [`Array::choose`] is the policy: a failed member is recorded before anything else
//! (I4), then writers are let in, then flushes are served, then the array turns clean.

use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes};
use std::collections::BTreeSet;
use std::sync::Arc;

use braid_geometry::{Family, Slot};

use super::roster::Unrecorded;
use super::superblock::{Change, SuperblockState};
use super::waves::next_wave;
use super::{Array, ArrayEffect, ArrayView, Closing, Condition, Flushes, Gate, MemberId, Notice};
use crate::Instant;
use crate::request::{Fault, ShardIndex};

/// What durable superblocks say about writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// No redundancy, so nothing is said.
    NotKept,
    /// No write is under way.
    Clean,
    /// Writes may be under way.
    Active,
}

/// Why members are being flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPurpose {
    /// For clients that asked.
    Clients,
    /// Before the superblocks turn clean, or as the last thing of an array that keeps no intent.
    Rest,
}

/// What superblocks are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A step between clean and active.
    Activity,
    /// Somebody is out, or was away.
    Devices,
    /// What they say is said a second time ([`super::superblock`]).
    Again,
}

/// What the array is doing; effects for it are out.
#[derive(Debug)]
pub(super) enum Task {
    Nothing,
    /// `later` are written when all of `missing` are durable.
    WriteSuperblocks {
        missing: BTreeSet<MemberId>,
        later: BTreeSet<MemberId>,
        state: Arc<SuperblockState>,
        becomes: Activity,
        /// What it says was said before, with one event less.
        again: bool,
    },
    Flush {
        purpose: FlushPurpose,
    },
}

impl Array {
    /// Finishes the task when its effects are all back, and begins the next one, until one waits.
    pub(super) fn step(&mut self, now: Instant) {
        loop {
            match &self.task {
                Task::WriteSuperblocks { missing, .. } if !missing.is_empty() => return,
                Task::Flush { .. } if !self.flushes.missing.is_empty() => return,
                Task::WriteSuperblocks { becomes, again, .. } => {
                    let (becomes, again) = (*becomes, *again);
                    if !self.write_next_wave() {
                        self.superblocks_written(now, becomes, again);
                    }
                }
                Task::Flush { purpose } => {
                    let purpose = *purpose;
                    self.flushed(purpose);
                }
                Task::Nothing => {
                    if !self.choose() {
                        return;
                    }
                }
            }
        }
    }

    /// Begins the most urgent task. False when there is none.
    fn choose(&mut self) -> bool {
        let condition = self.condition;
        if condition.stopped {
            return false;
        }
        let keeps_intent = condition.on_disk != Activity::NotKept;
        let may_write = !condition.read_only && !condition.broken;
        if may_write && keeps_intent && self.roster.has_unrecorded() {
            let becomes = if condition.write_wanted { Activity::Active } else { condition.on_disk };
            self.write_superblocks(becomes, Why::Devices);
        } else if condition.write_wanted {
            self.let_writers_in(may_write);
        } else if !self.flushes.queue.is_empty() && condition.absent_untold && may_write {
            // What an absent member holds of the last run is not flushed: if it came back with the
            // same count, it would be believed (I8).
            self.write_superblocks(condition.on_disk, Why::Devices);
        } else if !self.flushes.written_back.is_empty() && self.flushes.unwritten.is_empty() {
            let Flushes { running, written_back, .. } = &mut self.flushes;
            assert!(running.is_empty(), "one flush at a time");
            std::mem::swap(running, written_back);
            self.flush(FlushPurpose::Clients);
        } else if !self.flushes.queue.is_empty() && self.flushes.written_back.is_empty() {
            self.write_back();
        } else if may_write && self.is_to_be_said_again() {
            self.write_superblocks(condition.on_disk, Why::Again);
        } else if condition.stopping && self.flushes.written_back.is_empty() {
            return self.choose_stop(may_write);
        } else if self.closing.unconfirmed.as_ref().is_some_and(BTreeSet::is_empty) {
            self.flush(FlushPurpose::Rest);
        } else {
            return false;
        }
        true
    }

    /// Whether the last update is to be written once more: unless the next one is due already, or would wake a spare.
    fn is_to_be_said_again(&self) -> bool {
        let Condition { said_once, on_disk, stopping, .. } = self.condition;
        let is_closing =
            self.closing.unconfirmed.is_some() || stopping && on_disk == Activity::Active;
        let wakes_a_spare = self.roster.has_spares() && self.missing_count() == 0;
        said_once && !is_closing && !wakes_a_spare && !planted(Bug::SaidOnce)
    }

    fn let_writers_in(&mut self, may_write: bool) {
        if may_write && self.condition.on_disk == Activity::Clean {
            self.write_superblocks(Activity::Active, Why::Activity);
            if planted(Bug::GateEarly) {
                self.condition.on_disk = Activity::Active;
                self.publish();
            }
        } else {
            // Already active (the gate was about to close), or never: the view says which.
            if self.closing.unconfirmed.is_some() {
                reached(Mark::CloseCrossed);
            }
            self.condition.write_wanted = false;
            self.closing.unconfirmed = None;
            self.publish();
        }
    }

    /// Next step of stopping. False when it waits for shards or is over.
    fn choose_stop(&mut self, may_write: bool) -> bool {
        if self.condition.broken && !self.last_round_is_over() {
            return false;
        }
        match self.condition.on_disk {
            Activity::Active if may_write => match &self.closing.unconfirmed {
                None => {
                    reached(Mark::StopsClosing);
                    self.close_gate();
                    false
                }
                Some(unconfirmed) if unconfirmed.is_empty() => {
                    self.flush(FlushPurpose::Rest);
                    true
                }
                Some(_) => false,
            },
            Activity::NotKept
                if may_write && !self.closing.last_flush_done && !planted(Bug::StopUnflushed) =>
            {
                self.flush(FlushPurpose::Rest);
                true
            }
            on_disk => {
                self.condition.stopped = true;
                self.closing.next_look = None;
                // A flush that failed without anybody to take over leaves nothing to rely on.
                let flushed = !self.flushes.failed && !self.flushes.lost && !self.condition.broken;
                let clean = on_disk != Activity::Active && flushed;
                self.effects.push_back(ArrayEffect::Notice(Notice::Stopped { clean }));
                false
            }
        }
    }

    /// What the shards of a broken array have for the members may be of use still, and names memory:
    /// it is waited for. Asks for it the first time.
    fn last_round_is_over(&mut self) -> bool {
        if !std::mem::replace(&mut self.closing.last_round, true) {
            self.write_back();
        }
        self.flushes.unwritten.is_empty()
    }

    fn write_superblocks(&mut self, becomes: Activity, why: Why) {
        let clean = becomes == Activity::Clean;
        let degraded = self.missing_count() > 0;
        let in_sync = self.setup.resync_offset == u64::MAX;
        let spares_too = self.events.advance(Change {
            devices: why == Why::Devices,
            degraded,
            spare_sleeps: self.roster.has_spares(),
            to_clean_and_in_sync: why == Why::Activity && clean && in_sync,
        });
        let state = Arc::new(SuperblockState {
            events: self.events.count(),
            resync_offset: if clean { self.setup.resync_offset } else { 0 },
            roles: self.roster.device_roles().into(),
        });
        self.roster.update_begins();
        // With the table as it was, only the first sector changes, and that is written whole.
        let may_tear = self.setup.superblocks_tear && self.table.as_ref() != Some(&state.roles);
        let targets = self.roster.superblock_targets(spares_too);
        let (missing, later) =
            if may_tear { (BTreeSet::new(), targets) } else { (targets, BTreeSet::new()) };
        self.ask_for_superblocks(&missing, &state);
        let again = why == Why::Again;
        self.task = Task::WriteSuperblocks { missing, later, state, becomes, again };
    }

    fn ask_for_superblocks(&mut self, members: &BTreeSet<MemberId>, state: &Arc<SuperblockState>) {
        for member in members {
            let state = Arc::clone(state);
            self.effects.push_back(ArrayEffect::WriteSuperblock { member: *member, state });
        }
    }

    /// Of those that are to be written later, as many as may tear at once. False when none is left:
    /// members that failed meanwhile are told nothing any more.
    fn write_next_wave(&mut self) -> bool {
        let targets = self.roster.superblock_targets(true);
        let Task::WriteSuperblocks { missing, later, state, .. } = &mut self.task else {
            unreachable!("superblocks are being written");
        };
        let slot_of = |member: MemberId| (self.roster.slot_of(member), member);
        let mut waiting = later.intersection(&targets).copied().map(slot_of).collect();
        let is_lost = |slot: Slot| self.roster.is_lost(slot);
        let wave = next_wave(&self.geometry, &is_lost, &mut waiting);
        if wave.is_empty() || self.condition.broken {
            return false;
        }
        missing.extend(wave);
        *later = waiting.into_iter().map(|(_, member)| member).collect();
        let (missing, state) = (missing.clone(), Arc::clone(state));
        self.ask_for_superblocks(&missing, &state);
        true
    }

    fn superblocks_written(&mut self, now: Instant, becomes: Activity, again: bool) {
        if let Task::WriteSuperblocks { state, .. } =
            std::mem::replace(&mut self.task, Task::Nothing)
        {
            self.table = Some(Arc::clone(&state.roles));
        }
        self.condition.on_disk = becomes;
        if self.condition.broken {
            // A member that holds data cannot be told, so nothing counts as recorded: a write that
            // another member missed is never answered well (I4).
            return;
        }
        if self.roster.has_unrecorded() && !self.events.are_beyond_the_lost() {
            return; // The lost member's own count must be passed: told once more.
        }
        let Some(losses) = self.roster.update_is_durable() else {
            reached(Mark::LossWhileRecording);
            // Another member failed meanwhile: the next round records it; nothing is published yet.
            return;
        };
        self.events.everybody_was_told();
        self.effects.push_back(ArrayEffect::Notice(Notice::Told { events: self.events.count() }));
        self.condition.said_once = !again;
        self.condition.absent_untold = false;
        if again && losses.is_empty() && !self.condition.write_wanted {
            return; // Nothing is new for the shards.
        }
        if !losses.is_empty() {
            reached(Mark::LossRecorded);
        }
        self.tell_losses(&losses);
        match becomes {
            Activity::Active => {
                reached(Mark::TurnsActive);
                self.condition.write_wanted = false;
                let next_look = now.plus_milliseconds(self.setup.clean_delay_ms);
                self.closing.next_look.get_or_insert(next_look);
                self.closing.unconfirmed = None;
            }
            Activity::Clean | Activity::NotKept => {
                self.closing.next_look = None;
                self.closing.unconfirmed = None;
            }
        }
        self.publish();
    }

    fn tell_losses(&mut self, losses: &[Unrecorded]) {
        for loss in losses {
            let (member, slot) = (loss.view.id, loss.slot);
            self.effects.push_back(ArrayEffect::Notice(Notice::MemberOut { member, slot }));
        }
    }

    /// What clients were told of is on its way to the members first. This is no task: a shard may
    /// need a view, hence superblocks, to get there.
    fn write_back(&mut self) {
        let Flushes { queue, written_back, unwritten, round, .. } = &mut self.flushes;
        std::mem::swap(queue, written_back);
        *round += 1;
        unwritten.extend((0..self.setup.shards).map(ShardIndex));
        self.effects.push_back(ArrayEffect::WriteBack { round: *round });
    }

    fn flush(&mut self, purpose: FlushPurpose) {
        let is_dropped = match purpose {
            FlushPurpose::Clients => planted(Bug::FlushDropped),
            FlushPurpose::Rest => planted(Bug::CleanUnflushed),
        };
        let Flushes { missing, unflushed, .. } = &mut self.flushes;
        if !self.condition.read_only && !is_dropped {
            let is_due =
                |member: &MemberId| purpose == FlushPurpose::Rest || unflushed.remove(member);
            missing.extend(self.roster.told(false).filter(is_due));
        }
        if planted(Bug::FlushOnlyFirst) {
            missing.truncate(1);
        }
        self.effects.extend(missing.iter().map(|member| ArrayEffect::Flush { member: *member }));
        self.task = Task::Flush { purpose };
    }

    fn flushed(&mut self, purpose: FlushPurpose) {
        self.task = Task::Nothing;
        match purpose {
            FlushPurpose::Clients
                if self.roster.has_unrecorded()
                    && !self.condition.broken
                    && !planted(Bug::FlushedUnrecorded) =>
            {
                // A member failed the flush. Its loss is recorded first, then the round is run
                // again over the survivors, and only then are the clients answered (I4).
                reached(Mark::FlushAgain);
                self.flushes.queue.append(&mut self.flushes.running);
            }
            FlushPurpose::Clients => {
                let failed = std::mem::take(&mut self.flushes.failed)
                    || self.flushes.lost
                    || self.condition.broken;
                if planted(Bug::LossToldOnce) {
                    self.flushes.lost = false;
                }
                let result = if failed { Err(Fault::Unwritable) } else { Ok(()) };
                for request in self.flushes.running.drain(..) {
                    self.effects.push_back(ArrayEffect::Answer { request, result });
                }
            }
            FlushPurpose::Rest => {
                self.closing.last_flush_done = true;
                self.turn_clean();
            }
        }
    }

    fn turn_clean(&mut self) {
        let may = !planted(Bug::StaysDirty)
            && !self.condition.broken
            && !self.condition.write_wanted
            && !self.roster.has_unrecorded()
            && self.condition.on_disk == Activity::Active;
        if may {
            reached(Mark::TurnsClean);
            self.write_superblocks(Activity::Clean, Why::Activity);
        }
    }

    /// Takes a member out, if the level can make up for it; otherwise the array takes no writes.
    pub(super) fn fail_member(&mut self, member: MemberId) {
        if self.roster.spares.remove(&member) {
            return;
        }
        let Some(failed) = self.roster.slot_of(member) else { return };
        if self.geometry.level().family() == Family::Direct {
            return; // Each error is the client's own; there is nothing to take over.
        }
        let is_lost =
            |slot: Slot| slot == failed || self.roster.is_lost(slot) && !planted(Bug::TooManyOut);
        if self.geometry.survives(&is_lost) {
            self.roster.take_out(failed);
            self.forget_pace(member);
            if self.condition.read_only || planted(Bug::LossUnrecorded) {
                // Nothing is ever missed, so nothing is recorded first.
                let losses = self.roster.take_unrecorded();
                self.tell_losses(&losses);
                self.publish();
            }
        } else {
            self.break_down(member);
        }
    }

    /// Nothing can make up for `member`: no writes from now on.
    pub(super) fn break_down(&mut self, member: MemberId) {
        self.take_no_writes(Notice::Broken { member });
    }

    /// Writes are refused from now on, and the superblocks stay as they are: active, so that
    /// whoever starts the array next knows that redundancy may not agree.
    pub(super) fn take_no_writes(&mut self, notice: Notice) {
        if !self.condition.broken {
            reached(Mark::BreaksDown);
            self.condition.broken = true;
            self.closing = Closing::default(); // It will not turn clean any more.
            self.effects.push_back(ArrayEffect::Notice(notice));
            self.publish();
        }
    }

    pub(super) fn look_for_idleness(&mut self, now: Instant) {
        let due = self.closing.next_look.is_some_and(|due| due <= now);
        let active = self.condition.on_disk == Activity::Active;
        if due && (!active || self.condition.stopping || self.condition.broken) {
            self.closing.next_look = None;
            return;
        }
        if !due {
            return;
        }
        if sometimes(Point::LongerDelay) {
            self.closing.next_look = Some(now.plus_milliseconds(10 * self.setup.clean_delay_ms));
            return;
        }
        self.closing.next_look = Some(now.plus_milliseconds(self.setup.clean_delay_ms));
        if self.closing.asked.is_empty() && self.closing.unconfirmed.is_none() {
            self.closing.asked = self.all_shards();
            self.closing.busy = false;
            self.effects.push_back(ArrayEffect::QueryActivity);
        }
    }

    pub(super) fn all_have_told(&mut self, now: Instant) {
        let busy = self.closing.busy && !sometimes(Point::EarlyClose);
        let idle = !busy && self.condition.on_disk == Activity::Active;
        if idle && !self.condition.write_wanted && self.closing.unconfirmed.is_none() {
            self.close_gate();
        } else {
            self.closing.next_look = Some(now.plus_milliseconds(self.setup.clean_delay_ms));
        }
    }

    fn close_gate(&mut self) {
        self.closing.unconfirmed = Some(self.all_shards());
        self.publish();
    }

    fn all_shards(&self) -> BTreeSet<ShardIndex> {
        (0..self.setup.shards).map(ShardIndex).collect()
    }

    /// Publishes where things stand. Never called between a failure and its record (I4).
    pub(super) fn publish(&mut self) {
        self.condition.epoch += 1;
        let gate = match self.condition {
            condition if condition.broken => Gate::Broken,
            condition if condition.read_only => Gate::ReadOnly,
            condition if condition.on_disk == Activity::NotKept => Gate::Open,
            condition
                if condition.on_disk == Activity::Active && self.closing.unconfirmed.is_none() =>
            {
                Gate::Open
            }
            _ => Gate::Closed,
        };
        let view = ArrayView {
            epoch: self.condition.epoch,
            gate,
            slots: self.roster.published_slots(),
            resync_offset: self.setup.resync_offset,
            zero_is_fast: self.setup.zero_is_fast,
        };
        self.effects.push_back(ArrayEffect::Publish(Arc::new(view)));
    }
}
