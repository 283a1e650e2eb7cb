//! The state of the array's control machine, and the events that it handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_geometry::{Family, Geometry, Slot};
use braid_sim_hooks::{Bug, spoiled};

use super::away::Away;
use super::bad_logs::BadLogs;
use super::caches::Caches;
use super::consistency::Consistency;
use super::effect::{ArrayEffect, MetadataArea, Notice};
use super::fixed::{Setup, Sides};
use super::gatekeeper::Gatekeeper;
use super::jobs::{JobAllowance, JobFlow, JobProgress, JobRequest, Jobs};
use super::order::Activity;
use super::outbox::Outbox;
use super::pending_shape::PendingShape;
use super::read_errors::Errors;
use super::reshape::Reshaper;
use super::roster::Roster;
use super::setup::{ArraySetup, MemberSetup, ReplacementSetup, ReshapeSetup};
use super::sitting_out::SittingOut;
use super::superblocks::Superblocks;
use super::view::MemberView;
use crate::Instant;
use crate::cause::Cause;
use crate::effect::{MemberFault, Report};
use crate::ids::{MemberId, RequestId, ShardIndex};
use crate::ranges::BadRange;
use crate::reshape::ReshapePlan;

/// The control machine of one array.
#[derive(Debug)]
pub struct Array {
    pub(super) setup: Setup,
    pub(super) condition: Condition,
    pub(super) roster: Roster,
    pub(super) superblocks: Superblocks,
    pub(super) caches: Caches,
    pub(super) gatekeeper: Gatekeeper,
    pub(super) consistency: Consistency,
    pub(super) jobs: Jobs,
    /// The reshape under way.
    pub(super) reshaper: Option<Reshaper>,
    pub(super) pending_shape: PendingShape,
    pub(super) bad_logs: BadLogs,
    pub(super) sitting_out: SittingOut,
    pub(super) away: Away,
    pub(super) read_errors: Errors,
    pub(super) out: Outbox,
}

/// A reshape, as an operator sees it.
#[derive(Clone, Debug)]
pub struct ReshapeLook {
    /// The old shape.
    pub before: Arc<Geometry>,
    /// The new shape.
    pub after: Arc<Geometry>,
    /// Whether data moves from the array's end to its start.
    pub backwards: bool,
    /// Sectors of the array that are in the new shape.
    pub moved_sectors: u64,
    /// Sectors to move, together with the new sectors to zero.
    pub total_sectors: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    /// The offset below which redundancy agrees; `u64::MAX` for everywhere.
    pub(super) resync_offset: u64,
    pub(super) read_only: bool,
    pub(super) broken: bool,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
}

impl Array {
    /// Makes the machine of an assembled array. The machine's first effect is the first view.
    ///
    /// # Panics
    /// If the setup contradicts its geometry: wrong number of slots, or too few members.
    #[must_use]
    pub fn new(mut setup: ArraySetup) -> Self {
        assert_eq!(setup.slots.len(), usize::from(setup.geometry.slots()), "one entry per slot");
        let mut device_numbers: BTreeMap<MemberId, u16> =
            setup.spares.iter().map(|spare| (spare.id, spare.device_number)).collect();
        device_numbers.extend(setup.slots.iter().flatten().map(|m| (m.id, m.device_number)));
        let replacements = setup.replacements.iter().map(|one| one.member.id);
        let (sides, reshaper, border) = match setup.reshape.take() {
            None => (None, None, None),
            Some(ReshapeSetup {
                before,
                after,
                plan,
                shape,
                moves,
                copied,
                window_sectors_max,
            }) => {
                let (before, after) = (Arc::new(before), Arc::new(after));
                let position = shape.reshape.map_or(0, |reshape| reshape.position_sectors);
                let half_held = half_held(&setup.slots, &plan, position);
                let (reshaper, border) = Reshaper::new(plan, (shape, window_sectors_max), copied);
                (Some(Sides { before, after, moves, half_held }), Some(reshaper), border)
            }
        };
        let caches = Caches::new(device_numbers.keys().copied().chain(replacements));
        let bad_logs = bad_logs(&setup);
        let consistency = Consistency::new(&mut setup);
        let slots = setup.slots.into_iter().map(|member| member.map(view_of));
        let spares = setup.spares.iter().map(|spare| spare.id).collect();
        let mut roster = Roster::new(slots.collect(), device_numbers, spares);
        roster.write_mostly = setup.write_mostly;
        roster.half_held.extend(sides.iter().flat_map(|sides| sides.half_held.keys()));
        // If the journal was used, superblocks must record that it begins anew, as md does: a later
        // start with a missing member must not replay the journal again.
        let begins_anew = setup.journal.is_some_and(|journal| journal.is_used);
        if let Some(journal) = setup.journal {
            roster.has_journal(journal.member, journal.device_number);
        }
        for ReplacementSetup { slot, member } in setup.replacements {
            let number = member.device_number;
            roster.has_replacement(slot, view_of(member), number);
        }
        let recovering: Vec<Slot> = roster.recovering().map(|(slot, ..)| slot).collect();
        for slot in recovering {
            roster.holds_from_before(slot, consistency.held_unwritten(&setup.geometry, slot));
        }
        // Levels without redundancy have no state "active": a crash leaves nothing to make
        // consistent.
        let has_intent = setup.geometry.level().family() != Family::Direct;
        assert!(
            has_intent || consistency.view().is_none(),
            "a bitmap says where redundancy may not agree"
        );
        let fixed = Setup {
            geometry: Arc::new(setup.geometry),
            sides,
            regions: setup.regions,
            work_sectors: setup.work_sectors,
            zero_is_fast: setup.zero_is_fast,
            accepted_risk: setup.accepted_risk.map(Arc::new),
        };
        let survives = fixed.survives(&|slot| roster.is_lost(slot));
        assert!(survives, "assembly lets no array through that lost data");
        let is_degraded = roster.missing_count() > 0;
        let is_dirty = has_intent && (setup.is_unclean || setup.resync_offset != u64::MAX);
        // The superblocks say active, but no sector is in doubt: the next start must not replay the
        // journal again.
        let is_settled = is_dirty && setup.resync_offset == u64::MAX;
        let absent = is_dirty && is_degraded && !setup.read_only;
        let on_disk = if has_intent { Activity::Clean } else { Activity::NotKept };
        let (events, tear) = (setup.events, setup.superblocks_tear);
        let mut array = Self {
            condition: Condition {
                resync_offset: setup.resync_offset,
                read_only: setup.read_only,
                broken: false,
                stopping: false,
                stopped: false,
            },
            roster,
            superblocks: Superblocks::new(events, on_disk, absent, tear),
            caches,
            gatekeeper: Gatekeeper::new(setup.clean_delay_ms, setup.regions.shards()),
            consistency,
            jobs: Jobs::new(setup.jobs_paused),
            reshaper,
            pending_shape: PendingShape::default(),
            bad_logs,
            sitting_out: SittingOut::new(),
            away: Away::new(),
            read_errors: Errors::new(),
            out: Outbox::default(),
            setup: fixed,
        };
        // A reshape continues only when superblocks record the absent members. Perhaps no client
        // comes whose write or flush causes that record, so the array requests it here.
        let is_reshape_held = absent && array.reshaper.is_some();
        array.out.change_if(begins_anew || is_settled || is_reshape_held);
        array.publish();
        array.out.extend(border.map(ArrayEffect::Border));
        array
    }

    /// Number of slots without a member.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.roster.missing_count()
    }

    /// The event count of the superblocks, or of the update in flight.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.superblocks.events()
    }

    /// Takes a shard's report.
    pub fn handle_report(&mut self, now: Instant, shard: ShardIndex, report: Report) {
        match report {
            Report::WantWrite => self.gatekeeper.want(),
            Report::HeldUp { epoch } => self.gatekeeper.hold_up(epoch),
            Report::MemberFailed { cause } => self.fail_member(cause),
            Report::Mended { member } => self.note_mended(now, member),
            Report::Pace { member, pace } => {
                // Pace reports are frequent, and do not affect the other machines.
                return self.note_pace(now, shard, (member, pace));
            }
            Report::Found { id: _, found } => {
                if self.jobs.found(&found) {
                    self.out.notice(Notice::Found(found));
                }
            }
            Report::WorkDone { id, outcome } => self.work_done(now, id, outcome),
            Report::Unmade { id, member, start, sectors } => {
                let range = BadRange { start, sectors: u64::from(sectors) };
                return self.jobs.lacks(id, member, range);
            }
            Report::BadBlocksWritten { member, start, sectors } => {
                let start = self.setup.member_sector(shard, member, start);
                self.bad_logs.clear(member, BadRange { start, sectors: u64::from(sectors) });
                self.tell_bad_blocks(member);
            }
            Report::Unmended { cause, start, sectors } => {
                let start = self.setup.member_sector(shard, cause.member, start);
                self.is_unmended(cause, BadRange { start, sectors: u64::from(sectors) });
            }
            Report::WantBits { .. }
            | Report::Touched { .. }
            | Report::Trimmed { .. }
            | Report::WrittenAgain { .. }
            | Report::Drained { .. }
            | Report::WantLog { .. }
            | Report::WantJournal { .. }
            | Report::LogOver { .. } => {
                let (consistency, context, out) = self.consistency_and_context();
                consistency.handle_report(shard, report, &context, out);
            }
            Report::Lacking { start } => {
                return self.jobs.is_read(start, self.roster.ranges_ahead());
            }
            Report::MemberWritten { member } => self.caches.member_written(member),
            Report::WrittenBack { round } => self.caches.is_written_back(shard, round),
            Report::WriteLost { start, sectors, cause } => {
                self.caches.write_is_lost();
                let notice = Notice::WriteLost { start, sectors, cause };
                self.out.notice(notice);
            }
            Report::NotTaken { fault } => self.misses_write(fault),
            Report::ViewInForce { epoch } => self.gatekeeper.confirm(shard, epoch),
            Report::Activity { last_write, writing } => {
                self.gatekeeper.hear(now, shard, last_write, writing);
            }
        }
        self.step(now);
    }

    /// Takes the news that a member is gone for good, even if it still takes writes, as a deleted
    /// file does. A level without redundancy then refuses writes, which would be lost without an
    /// error.
    pub fn handle_member_gone(&mut self, now: Instant, cause: Cause) {
        let is_direct = self.setup.geometry.level().family() == Family::Direct;
        if is_direct && self.roster.slot_of(cause.member).is_some() {
            self.break_down(cause);
        } else {
            self.fail_member(cause);
        }
        self.step(now);
    }

    /// The lowest free index in the superblocks' role table.
    #[must_use]
    pub fn free_device_number(&self) -> u16 {
        self.roster.free_number()
    }

    /// Members without a slot.
    #[must_use]
    pub fn spares(&self) -> Vec<MemberId> {
        self.roster.spares.iter().copied().collect()
    }

    /// The array's members: in a slot, about to get a slot, or spare. A failed member leaves at
    /// once.
    #[must_use]
    pub fn members(&self) -> Vec<MemberId> {
        self.roster.all().collect()
    }

    /// Whether superblocks record all changes, such as new members and jobs' progress.
    #[must_use]
    pub fn tells_all(&self) -> bool {
        self.superblocks.tell_all(self.out.changes())
    }

    /// The replacement, present or requested, of the member in `slot`.
    #[must_use]
    pub fn replacement_of(&self, slot: Slot) -> Option<MemberId> {
        self.roster.replacement_of(slot)
    }

    /// The slot whose member `member` replaces, or is requested to replace.
    #[must_use]
    pub fn slot_to_replace(&self, member: MemberId) -> Option<Slot> {
        self.roster.slot_wanted_to_replace(member)
    }

    /// Sets whether the driver keeps a record, outside the members, of the members that are in the
    /// array. The driver's record then has each loss before any write relies on the loss.
    pub fn handle_keeps_record(&mut self, now: Instant, keeps: bool) {
        self.superblocks.keep_record(keeps);
        self.step(now);
    }

    /// Sets whether the driver must agree to each update before the update's first superblock is
    /// written ([`ArrayEffect::AskConsent`]).
    pub fn handle_gives_consent(&mut self, now: Instant, gives: bool) {
        self.superblocks.ask_for_consent(gives);
        self.step(now);
    }

    /// Takes the driver's consent to the update with the count `events`.
    pub fn handle_consent(&mut self, now: Instant, events: u64) {
        self.superblocks.are_agreed_to(events);
        self.step(now);
    }

    /// Takes the news that the driver's record is durable: it names the members that have the
    /// update with the count `events`.
    pub fn handle_record_kept(&mut self, now: Instant, events: u64) {
        self.superblocks.record_has(events);
        self.step(now);
    }

    /// Takes a member's result for [`ArrayEffect::WriteMetadata`].
    ///
    /// # Panics
    /// If the member has no such write in flight, or if the error names another member.
    pub fn handle_metadata_written(
        &mut self,
        now: Instant,
        (member, area): (MemberId, MetadataArea),
        written: Result<(), MemberFault>,
    ) {
        match area {
            MetadataArea::Superblock => self.superblocks.is_written(member),
            MetadataArea::BadBlocks => self.bad_blocks_written(member, written.is_ok()),
            MetadataArea::Bitmap | MetadataArea::ParityLog | MetadataArea::Journal => {
                let is_well = written.is_ok();
                self.consistency.is_written(now, (member, area), is_well, &mut self.out);
            }
        }
        let written = spoiled(Bug::SuperblockErrorIgnored, written, Ok(()));
        if let Err(fault) = written {
            let asked = fault.cause.member;
            assert_eq!(asked, member, "a member fails by what it was asked itself");
            self.misses_write(fault);
        }
        self.step(now);
    }

    /// Takes a member's result for [`ArrayEffect::Flush`].
    ///
    /// # Panics
    /// If the member has no flush in flight, or if the error names another member.
    pub fn handle_flushed(&mut self, now: Instant, member: MemberId, flushed: Result<(), Cause>) {
        self.caches.is_flushed(member);
        let flushed = spoiled(Bug::FlushErrorIgnored, flushed, Ok(()));
        if let Err(cause) = flushed {
            assert_eq!(cause.member, member, "a member fails by what it was asked itself");
            let is_alone = self.superblocks.on_disk() == Activity::NotKept;
            self.caches.flush_failed(member, is_alone);
            self.fail_member(cause);
        }
        self.step(now);
    }

    /// Takes a client's flush: every write acknowledged so far must become durable.
    pub fn handle_flush_request(&mut self, now: Instant, request: RequestId) {
        self.caches.want_flush(request);
        self.step(now);
    }

    /// Called when the time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Condition { stopping, broken, .. } = self.condition;
        let is_active = self.superblocks.on_disk() == Activity::Active;
        self.away.look(now);
        self.gatekeeper.look(now, is_active && !stopping && !broken, &mut self.out);
        self.step(now);
    }

    /// Stops the array after its last request: it turns clean and emits [`Notice::Stopped`].
    pub fn handle_stop(&mut self, now: Instant) {
        self.condition.stopping = true;
        self.step(now);
    }

    /// Takes an operator's request about jobs.
    pub fn handle_job_request(&mut self, now: Instant, request: JobRequest) {
        self.jobs.handle_request(request);
        if let Some(reshaper) = self.reshaper.as_mut().filter(|_| request == JobRequest::Resume) {
            reshaper.try_again();
        }
        self.step(now);
    }

    /// Sets a job's allowance, which replaces the rest of the last allowance and does not pass to
    /// the next job. Before the first allowance only the shards' room limits the job.
    pub fn handle_job_allowance(&mut self, now: Instant, allowance: JobAllowance) {
        self.jobs.handle_allowance(allowance);
        if let Some(reshaper) = &mut self.reshaper {
            reshaper.set_allowance(allowance);
        }
        self.step(now);
    }

    /// The counts of jobs' requests and of the answers to them.
    #[must_use]
    pub fn job_flow(&self) -> JobFlow {
        self.reshaper.as_ref().map_or(self.jobs.flow(), Reshaper::flow)
    }

    /// Takes the news that all requests from before the last [`super::BorderChange`] have ended.
    ///
    /// # Panics
    /// If no window waits for these requests.
    pub fn handle_border_passed(&mut self, now: Instant) {
        self.reshaper.as_mut().expect("a border has a reshape").passed();
        self.step(now);
    }

    /// The reshape under way.
    #[must_use]
    pub fn reshape(&self) -> Option<ReshapeLook> {
        let (reshaper, sides) = self.reshaper.as_ref().zip(self.setup.sides.as_ref())?;
        let JobProgress { done, end, .. } = reshaper.progress(self.jobs.is_paused());
        Some(ReshapeLook {
            before: Arc::clone(&sides.before),
            after: Arc::clone(&sides.after),
            backwards: reshaper.is_backwards(),
            moved_sectors: done,
            total_sectors: end,
        })
    }

    /// Whether all sectors are in the new shape, and superblocks record that: the array can be
    /// opened without the old shape.
    #[must_use]
    pub fn is_reshaped(&self) -> bool {
        self.reshaper.as_ref().is_some_and(|one| one.is_over() && !one.is_moving())
    }

    /// The current job's progress.
    #[must_use]
    pub fn job(&self) -> Option<JobProgress> {
        let reshaper = self.reshaper.as_ref();
        let reshape = reshaper.map(|one| one.progress(self.jobs.is_paused()));
        reshape.or_else(|| self.jobs.progress())
    }

    /// The next effect, in order.
    #[must_use]
    pub fn poll_effect(&mut self) -> Option<ArrayEffect> {
        self.out.pop()
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let context = self.jobs_context();
        let begins = self.jobs.is_due(&context) && !self.condition.stopped;
        // An array that has just been opened has had no event yet, so a timeout starts its first
        // action.
        let begins = begins.then(Instant::default);
        let job = begins.or_else(|| self.jobs.poll_timeout(&context));
        let sweep = self.consistency.poll_timeout(&self.consistency_context());
        let away = self.away.next_timeout();
        self.gatekeeper.next_look().into_iter().chain(job).chain(sweep).chain(away).min()
    }
}

fn bad_logs(setup: &ArraySetup) -> BadLogs {
    let mut logs = BadLogs::default();
    if setup.geometry.level().family() == Family::Direct {
        return logs; // Without redundancy no log and no superblock is written.
    }
    let replacements = setup.replacements.iter().map(|one| &one.member);
    for member in setup.slots.iter().flatten().chain(replacements) {
        logs.keep(member.id, member.bad_log.clone(), member.bad_blocks.clone());
    }
    for spare in &setup.spares {
        logs.keep_blank(spare.id, spare.bad_log_sectors);
    }
    logs
}

/// Slots whose member is being filled and holds all of one shape at this position of a reshape.
/// Each slot's value says whether that shape is the new one.
fn half_held(
    slots: &[Option<MemberSetup>],
    plan: &ReshapePlan,
    position: u64,
) -> BTreeMap<Slot, bool> {
    let position = position.min(plan.size_sectors());
    let held = |member: &MemberSetup| {
        let holds = |is_after: &bool| {
            let needed = plan.held_sectors(*is_after, position);
            needed.is_some_and(|needed| needed <= member.recovered_sectors)
        };
        [false, true].into_iter().find(holds)
    };
    let filled = (0u16..).map(Slot).zip(slots).filter_map(|(slot, member)| {
        let member = member.as_ref().filter(|member| member.recovered_sectors != u64::MAX)?;
        Some((slot, held(member)?))
    });
    filled.collect()
}

fn view_of(member: MemberSetup) -> MemberView {
    let bad_blocks = Arc::new(member.bad_blocks);
    MemberView { bad_blocks, ..MemberView::new(member.id, member.recovered_sectors) }
}
