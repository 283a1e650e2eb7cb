//! Carries out the array's decisions, which change the array's state. Events change the state in
//! other modules ([`super::machine`], [`super::slow_members`], [`super::erring_members`]).

use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};
use std::sync::Arc;

use braid_geometry::{Family, Slot};

use super::caches::CachesAction;
use super::consistency::{ArrayRequest, ConsistencyAction};
use super::decide::{Action, decide};
use super::effect::{ArrayEffect, Notice};
use super::fixed::Sides;
use super::machine::{Array, Condition};
use super::order::{Activity, Closing, FlushPurpose};
use super::reshape::{ReshapeAction, Reshaper};
use super::roster::{Arrival, LossCause, UnrecordedLoss};
use super::setup::JournalSetup;
use super::superblocks::{SuperblocksAction, UpdateContent, UpdateReason, UpdateResult};
use super::view::{ArrayView, Gate, MemberView};
use crate::Instant;
use crate::cause::Cause;
use crate::effect::{FaultKind, MemberFault};
use crate::ids::{MemberId, RequestId};

impl Array {
    /// Takes the array's next action, again and again, until the array has to wait for an event.
    pub(super) fn step(&mut self, now: Instant) {
        loop {
            match decide(&self.facts(now)) {
                Action::Wait
                | Action::Superblocks(SuperblocksAction::Wait)
                | Action::Caches(CachesAction::Wait) => return,
                Action::Publish => self.publish(),
                Action::Superblocks(action) => self.act_on_superblocks(action, now),
                Action::Caches(action) => self.act_on_caches(action, now),
                Action::Consistency(action) => self.act_on_consistency(action, now),
                Action::Upkeep(action) => self.act_on_upkeep(action, now),
                Action::Reshape(action) => self.act_on_reshape(action),
                Action::Stop => self.stop(),
            }
        }
    }

    fn act_on_superblocks(&mut self, action: SuperblocksAction, now: Instant) {
        let Self { setup, roster, superblocks, consistency, out, .. } = self;
        let on_disk = superblocks.on_disk();
        match action {
            SuperblocksAction::Wait => {}
            SuperblocksAction::WriteWave => {
                if !superblocks.write_next_wave(setup, roster, out) {
                    consistency.members_are_told();
                }
            }
            // No published view lacks the lost members yet; the next update records the remaining
            // losses.
            SuperblocksAction::DropUpdate => {
                if !roster.records_all() && !self.condition.broken {
                    reached(Mark::LossWhileRecording);
                }
                superblocks.drop_update(consistency);
            }
            SuperblocksAction::AskConsent => superblocks.ask_driver(out),
            SuperblocksAction::KeepRecord => superblocks.ask_for_record(out),
            SuperblocksAction::CompleteUpdate => self.complete_update(now),
            SuperblocksAction::Record => {
                assert!(self.has_unrecorded(), "a loss is there to be recorded");
                let wanted = self.gatekeeper.is_wanted();
                let wanted = wanted && self.consistency.are_logs_settled();
                let becomes = if wanted { Activity::Active } else { on_disk };
                self.write_superblocks(becomes, UpdateReason::Devices);
            }
            SuperblocksAction::TurnActive => {
                assert_eq!(on_disk, Activity::Clean, "active follows clean");
                self.write_superblocks(Activity::Active, UpdateReason::Activity);
                if planted(Bug::GateEarly) {
                    self.publish();
                }
            }
            SuperblocksAction::OpenGate => {
                self.gatekeeper.open();
                self.publish();
            }
            SuperblocksAction::CloseGate => {
                if self.condition.stopping {
                    reached(Mark::StopsClosing);
                }
                assert_eq!(on_disk, Activity::Active, "only an open gate is closed");
                self.gatekeeper.close();
                self.publish();
            }
            // An absent member may lack writes of the last run that were never flushed to it. An
            // absent member that returned with the current event count would be believed (I8).
            SuperblocksAction::RecordAbsent => {
                assert!(self.superblocks.absent_untold(), "who was away is recorded once");
                self.write_superblocks(on_disk, UpdateReason::Devices);
            }
            SuperblocksAction::SayAgain => {
                let is_once = self.superblocks.are_said_once();
                assert!(is_once, "an update is said twice, and not more often");
                self.write_superblocks(on_disk, UpdateReason::Again);
            }
            SuperblocksAction::RecordChanges => {
                self.write_superblocks(on_disk, UpdateReason::Changes)
            }
        }
    }

    fn act_on_caches(&mut self, action: CachesAction, now: Instant) {
        let is_drained = self.gatekeeper.closing() == Closing::Drained;
        let shards = self.setup.regions.shards();
        match action {
            CachesAction::Wait => {}
            CachesAction::FlushAgain => self.caches.flush_again(),
            CachesAction::Answer => {
                let is_recorded = self.condition.broken || !self.has_unrecorded();
                assert!(is_recorded, "I4: no flush is answered over an unrecorded loss");
                let own = self.caches.answer(self.condition.broken, &mut self.out);
                if let Some((reshaper, result)) = self.reshaper.as_mut().zip(own)
                    && let Some(copied) = reshaper.flushed(result)
                {
                    let (start, sectors) = (copied.start, copied.end - copied.start);
                    self.out.push(ArrayEffect::Keep { start, sectors });
                }
            }
            CachesAction::TurnClean => {
                reached(Mark::TurnsClean);
                assert!(is_drained, "I5: no shard has a write under way");
                self.caches.end_last_flush();
                self.consistency.turns_clean();
                self.write_superblocks(Activity::Clean, UpdateReason::Activity);
            }
            CachesAction::DropClose => self.caches.end_last_flush(),
            CachesAction::Ended(purpose) => {
                self.caches.end_flush();
                if purpose == FlushPurpose::Job {
                    return self.note_offsets(now);
                }
                let (consistency, context, out) = self.consistency_and_context();
                consistency.is_flushed(purpose, now, &context, out);
            }
            CachesAction::FlushForClients => {
                self.caches.serve_clients();
                self.flush(FlushPurpose::Clients);
            }
            CachesAction::WriteBack => self.caches.write_back(shards, &mut self.out),
            CachesAction::FlushLast => {
                let is_last = is_drained || self.superblocks.on_disk() == Activity::NotKept;
                assert!(is_last, "I5: what is flushed before clean is the last that was written");
                self.flush(FlushPurpose::Last);
            }
            CachesAction::LastRound => self.caches.begin_last_round(shards, &mut self.out),
        }
    }

    fn act_on_consistency(&mut self, action: ConsistencyAction, now: Instant) {
        let (consistency, context, out) = self.consistency_and_context();
        match consistency.act(action, now, &context, out) {
            None => {}
            Some(ArrayRequest::Flush(purpose)) => self.flush(purpose),
            Some(ArrayRequest::JournalComes(JournalSetup { member, device_number, .. })) => {
                self.roster.has_journal(member, device_number);
            }
            Some(ArrayRequest::JournalGoes) => self.roster.has_no_journal(),
        }
    }

    fn act_on_reshape(&mut self, action: ReshapeAction) {
        let reshaper = self.reshaper.as_mut().expect("its table decided");
        match action {
            ReshapeAction::Hold => {
                let (change, begins) = reshaper.hold();
                if begins {
                    self.out.notice(Notice::JobBegan(reshaper.progress(false)));
                }
                self.out.push(ArrayEffect::Border(change));
            }
            ReshapeAction::Flush => {
                reshaper.flush();
                if planted(Bug::PositionUnflushed) && !reshaper.is_before_move() {
                    reshaper.flushed(Ok(()));
                    return;
                }
                if planted(Bug::LostUntold) && reshaper.has_named() {
                    reshaper.flushed(Ok(()));
                    return;
                }
                self.caches.want_flush(RequestId::RESHAPE);
            }
            ReshapeAction::Move => {
                let piece = reshaper.next_piece();
                self.out.push(ArrayEffect::Move(piece));
            }
            ReshapeAction::Name => self.name_lost(),
            ReshapeAction::Record => {
                if let Some(held) = reshaper.record() {
                    self.roster.holds_half(held);
                }
                self.out.change();
            }
            ReshapeAction::Release => {
                let (change, lost) = reshaper.release();
                let passed = reshaper.passes().then(|| reshaper.progress(false));
                self.out.push(ArrayEffect::Border(change));
                self.out.extend(passed.map(|far| ArrayEffect::Notice(Notice::JobPassed(far))));
                self.report_lost(lost);
            }
            ReshapeAction::GiveUp => {
                let (change, end) = reshaper.give_up();
                if !reshaper.is_stuck() && reshaper.moves_before_turn() {
                    self.pending_shape.forget_turn();
                }
                let progress = reshaper.progress(self.jobs.is_paused());
                self.out.push(ArrayEffect::Border(change));
                self.out.notice(Notice::JobEnded { progress, end });
            }
            ReshapeAction::End => {
                let end = reshaper.end();
                let progress = reshaper.progress(false);
                self.out.notice(Notice::JobEnded { progress, end });
            }
        }
        self.turn_if_at_rest();
    }

    fn stop(&mut self) {
        let is_idle = self.superblocks.are_settled() && self.caches.are_idle();
        assert!(is_idle, "nothing is under way, and every flush is answered");
        let says_active = self.superblocks.on_disk() == Activity::Active;
        let broken = self.condition.broken;
        assert!(
            !says_active || broken,
            "only a broken array stops with superblocks that say active"
        );
        self.condition.stopped = true;
        self.gatekeeper.stop();
        let clean = !says_active && !self.caches.have_failed() && !broken;
        self.out.notice(Notice::Stopped { clean });
    }

    pub(super) fn write_superblocks(&mut self, becomes: Activity, why: UpdateReason) {
        assert!(!self.condition.read_only && !self.condition.broken, "superblocks may change");
        let resync_offset = self.pending_shape.resync_offset(self.condition.resync_offset);
        let (consistency, context, _) = self.consistency_and_context();
        let content = UpdateContent {
            becomes,
            why,
            resync_offset,
            consistency: consistency.update_begins(becomes, &context),
            bad_blocks: self.bad_logs.written().collect(),
            changes: self.out.changes(),
            shape: {
                let kept = self.reshaper.as_ref().map(Reshaper::shape);
                self.pending_shape.shape().or(kept).cloned()
            },
        };
        self.superblocks.begin(content, &mut self.roster, &self.pending_shape);
    }

    fn complete_update(&mut self, now: Instant) {
        assert!(!self.condition.broken, "what is broken records nothing any more");
        let Self { roster, superblocks, consistency, out, .. } = self;
        let UpdateResult { becomes, losses, newcomers, is_again, leaves_file, recovered } =
            superblocks.complete(roster, consistency, out);
        consistency.is_said(leaves_file, out);
        self.tell_shape();
        if !(losses.is_empty() && newcomers.is_empty()) {
            self.jobs.membership_changed();
            if let Some(reshaper) = &mut self.reshaper {
                reshaper.try_again();
            }
        }
        self.take_in(&newcomers);
        for (member, slot) in recovered {
            self.out.notice(Notice::Recovered { member, slot });
        }
        let is_new = !is_again || !losses.is_empty() || !newcomers.is_empty();
        if !is_new && !self.gatekeeper.is_wanted() {
            return; // The view has not changed.
        }
        if !losses.is_empty() {
            reached(Mark::LossRecorded);
        }
        self.report_losses(&losses);
        self.gatekeeper.follow(now, becomes);
        self.publish();
    }

    fn report_losses(&mut self, losses: &[UnrecordedLoss]) {
        for UnrecordedLoss { member, slot, why, .. } in losses {
            let (member, slot, why) = (*member, *slot, *why);
            self.forget_read_errors(member);
            self.out.notice(match why {
                LossCause::Failed(_) if self.away.has(member) => Notice::Away { member, slot },
                LossCause::Failed(cause) => Notice::MemberOut { member, slot, cause },
                LossCause::Replaced(by) => Notice::Replaced { member: by, slot, old: member },
            });
        }
    }

    /// Puts the newcomers that superblocks now record into the view that shards get.
    fn take_in(&mut self, newcomers: &[MemberId]) {
        for member in newcomers {
            let member = *member;
            if let Some(come) = self.roster.has_come(member) {
                let kept_sectors = match come {
                    Arrival::Member(slot) => {
                        let (held, kept) =
                            self.consistency.held_by(&self.setup.geometry, member, slot);
                        if !held.is_empty() {
                            self.roster.holds_from_before(slot, held);
                        }
                        kept
                    }
                    Arrival::Replacement(..) => 0,
                };
                self.consistency.has_come(member);
                self.out.notice(match come {
                    Arrival::Member(slot) => Notice::SpareTaken { member, slot, kept_sectors },
                    Arrival::Replacement(slot, old) => Notice::Replacing { member, slot, old },
                });
            }
        }
    }

    pub(super) fn flush(&mut self, purpose: FlushPurpose) {
        // With logs, no resync follows a crash. So a rebuilt member must not be more durable than
        // its sources. No log covers a band whose parity had no member when the band was written.
        let is_logged = self.consistency.has_logs();
        let targets = match purpose {
            FlushPurpose::Job => self.jobs.flush_begins().filter(|_| !is_logged),
            _ => None,
        };
        let is_due = |member: &MemberId| targets.as_ref().is_none_or(|all| all.contains(member));
        let members = self.roster.superblock_targets(false).filter(is_due);
        let members = members.filter(|_| !self.condition.read_only);
        self.caches.flush(purpose, members, &mut self.out);
    }

    /// Handles a member's failed write. A healthy member stays, and the array refuses writes from
    /// now on: putting the member out would cost redundancy, and the next member would fail as
    /// well. A member that is still being filled is put out at no cost.
    pub(super) fn misses_write(&mut self, MemberFault { kind, cause }: MemberFault) {
        let member = cause.member;
        let slot = self.roster.slot_of(member);
        let holds_all = slot.is_some_and(|slot| !self.roster.is_lost(slot));
        match kind {
            FaultKind::NoSpace if holds_all => {
                self.take_no_writes(Notice::OutOfSpace { member, cause });
            }
            FaultKind::Protected if holds_all => {
                self.take_no_writes(Notice::WriteProtected { member, cause });
            }
            _ => self.fail_member(cause),
        }
    }

    /// Takes a member out if the level tolerates the loss; otherwise the array refuses writes.
    pub(super) fn fail_member(&mut self, cause: Cause) {
        let member = cause.member;
        if self.consistency.file() == Some(member) {
            if !self.condition.read_only && !self.condition.broken {
                self.consistency.lose_file(cause, &mut self.out);
            }
            return;
        }
        if self.roster.leave(member) {
            self.out.push(ArrayEffect::Leave { member });
            return self.out.notice(Notice::SpareLost { member, cause });
        }
        if self.roster.is_journal(member) {
            if self.consistency.journal_fails(&mut self.out) {
                self.out.push(ArrayEffect::Leave { member });
                return self.roster.has_no_journal();
            }
            return self.take_no_writes(Notice::JournalLost { member, cause });
        }
        let replaced = self.roster.slot_to_replace(member);
        let Some(failed) = self.roster.slot_of(member).or(replaced) else { return };
        if self.roster.is_newcomer(member) {
            // No shard has written to this newcomer. The next update no longer names it.
            self.roster.forget_newcomer(member);
            self.out.change();
            self.out.push(ArrayEffect::Leave { member });
            return self.out.notice(Notice::SpareLost { member, cause });
        }
        if replaced.is_some() {
            // The slot's member is still present, but its replacement missed writes.
            reached(Mark::ReplacementLost);
            self.out.push(ArrayEffect::Leave { member });
            return self.roster.take_out_replacement(failed, cause);
        }
        if self.setup.geometry.level().family() == Family::Direct {
            return; // Without redundancy each error goes to the client.
        }
        let is_lost = |slot: Slot| slot == failed || self.roster.is_lost(slot);
        let mut survives = self.setup.survives(&is_lost);
        if planted(Bug::TooManyOut) {
            survives = self.setup.survives(&|slot: Slot| slot == failed);
        }
        if survives {
            self.roster.take_out(failed, LossCause::Failed(cause));
            self.out.push(ArrayEffect::Leave { member });
            self.forget_pace(member);
            let misses_nothing = self.condition.read_only;
            let misses_nothing = spoiled(Bug::LossUnrecorded, misses_nothing, true);
            if misses_nothing {
                // A read-only array writes no superblocks, so shards get a view without the lost
                // member at once.
                let losses = self.roster.take_unrecorded();
                self.report_losses(&losses);
                self.out.publish();
            }
        } else {
            self.break_down(cause);
        }
    }

    /// Stops all writes, because the level does not tolerate this member's failure.
    pub(super) fn break_down(&mut self, cause: Cause) {
        self.take_no_writes(Notice::Broken { member: cause.member, cause });
    }

    /// Refuses writes from now on. Superblocks stay active, so the next start doubts redundancy.
    pub(super) fn take_no_writes(&mut self, notice: Notice) {
        if !self.condition.broken {
            reached(Mark::BreaksDown);
            self.condition.broken = true;
            self.gatekeeper.give_up();
            self.caches.forget_last();
            self.out.notice(notice);
            self.out.publish();
        }
    }

    /// Publishes the array's current state to shards; never called between a member's failure and
    /// its record in superblocks (I4).
    pub(super) fn publish(&mut self) {
        self.roster.are_told();
        self.out.is_published();
        let epoch = self.gatekeeper.next_epoch();
        let on_disk = self.superblocks.on_disk();
        let is_open = self.gatekeeper.closing() == Closing::No;
        let gate = match self.condition {
            Condition { broken: true, .. } => Gate::Broken,
            Condition { read_only: true, .. } => Gate::ReadOnly,
            _ if on_disk == Activity::NotKept => Gate::Open,
            _ if on_disk == Activity::Active && is_open => Gate::Open,
            _ => Gate::Closed,
        };
        let is_recorded = gate != Gate::Open || on_disk != Activity::Clean;
        let is_recorded = spoiled(Bug::GateEarly, is_recorded, true);
        assert!(is_recorded, "I3: superblocks say active first");
        let is_in_doubt = self.condition.resync_offset != u64::MAX;
        let accepted_risk = self.setup.accepted_risk.as_ref().filter(|_| is_in_doubt);
        let view = ArrayView {
            epoch,
            geometry: Arc::clone(&self.setup.geometry),
            gate,
            slots: self.roster.published_slots(),
            resync_offset: self.condition.resync_offset,
            accepted_risk: accepted_risk.cloned(),
            doubt: self.consistency.doubt().cloned(),
            intent: self.consistency.view(),
            keeps_parity_logs: self.consistency.logs_parity() == Some(true),
            keeps_journal: self.consistency.journal_member().is_some(),
            zero_is_fast: self.setup.zero_is_fast,
            after: None,
            mends_nothing: false,
        };
        let view = match &self.setup.sides {
            None => view,
            Some(sides) => {
                let after = Arc::new(side_of(&view, sides, true));
                ArrayView { after: Some(after), ..side_of(&view, sides, false) }
            }
        };
        self.out.push(ArrayEffect::Publish(Arc::new(view)));
    }
}

/// The view of all members for the shards of one shape. Shards of the old shape rewrite no bad
/// sectors: at a late rewrite, those sectors could already belong to the new shape.
fn side_of(view: &ArrayView, sides: &Sides, is_after: bool) -> ArrayView {
    let mends_nothing = !is_after;
    let mends_nothing = spoiled(Bug::OldShapeMends, mends_nothing, false);
    let geometry = Arc::clone(sides.geometry(is_after));
    let slots = (0u16..).map(Slot).zip(&view.slots).take(usize::from(geometry.slots()));
    let of_member = |slot: Slot, member: &MemberView| MemberView {
        // A member that is being filled counts as up to date in the shape that it holds, and as
        // empty in the other shape.
        recovered_sectors: match member.recovered_sectors {
            u64::MAX => u64::MAX,
            _ if sides.is_held(slot, is_after) => u64::MAX,
            _ => 0,
        },
        bad_blocks: match sides.start_of(member.id, is_after) {
            0 => Arc::clone(&member.bad_blocks),
            start => Arc::new(member.bad_blocks.from_sector(start)),
        },
        ..member.clone()
    };
    ArrayView {
        slots: slots.map(|(slot, one)| one.as_ref().map(|one| of_member(slot, one))).collect(),
        geometry,
        mends_nothing,
        ..view.clone()
    }
}
