//! The one loop that drives machines: it takes effects, carries some out, and queues the rest.
//!
//! Any thread with an event enters at [`Core::drive`] and stays until it finds nothing more to do.
//! A list of machines in the thread's [`DriveScratch`] takes the place of recursion: a shard's
//! report wakes the array, whose view wakes the shards, and so on. Layers below only add to that
//! list.
//!
//! If workers exist, they run the loop:
//! ```text
//!   other threads: event into the shard's inbox ──▶ a worker is told once, until it has looked
//!   worker, a turn: completions → events (all of them) → shards driven → operations → one submit
//! ```
//! While workers exist, a thread that is no worker never drives a machine: it hands over one event
//! instead of each operation. Once the workers have stopped, that thread drives machines, and
//! members' threads carry out the operations ([`crate::executor`]).

use std::collections::VecDeque;
use std::iter;

use braid_dispatch::{Carry, Combiner};
use braid_engine::array::{
    Array, ArrayEffect, ArrayView, MemberId, MetadataRecord, Notice, SuperblockState,
};
use braid_engine::cause::RequestKind;
use braid_engine::computation;
use braid_engine::effect::{MemberFault, MemberIo, MemberIoDone, Report};
use braid_engine::request::{Fault, ShardIndex};
use braid_engine::{PREFETCH_PIECES, Shard};
use braid_geometry::MemberSector;
use braid_ring::{Wake, Worker};

use crate::core::{AbortOnPanic, Core};
use crate::events::{ArrayEvent, Machine, MemberChange, ShardEvent};
use crate::executor::fault;
use crate::executor::submitter::{NotifiedMachines, Submitter, follows, request};
use crate::log;
use crate::members::array_operations::ArrayOperation;
use crate::members::operation::Operation;
use crate::scratch::{ArrayEffects, DriveScratch, ShardEffects};
use crate::sync::Arc;
use crate::sync::flaw::{self, Flaw};
use crate::updates::PlannedUpdate;

/// Maximum parts of a vector that no elevator merged; the same as an elevator's maximum.
const VECTOR_PARTS_MAX: usize = 64;

impl Core {
    /// Drives `first` and the machines that it wakes. Runs on a worker if workers exist and this
    /// thread is no worker, otherwise on this thread.
    pub(crate) fn drive(self: &Arc<Self>, first: Machine) {
        let mut scratch = DriveScratch::take();
        scratch.machines.push_back(first);
        self.drive_all(scratch);
    }

    /// As `drive`, for every machine on the list.
    pub(crate) fn drive_all(self: &Arc<Self>, mut scratch: DriveScratch) {
        if let Some(drivers) = self.workers.as_ref().filter(|drivers| !drivers.is_here()) {
            scratch.machines.retain(|machine| !drivers.schedule(self, *machine));
        }
        self.drive_here(scratch);
    }

    /// Hands shards on the list to workers that sleep. Shards for which no worker sleeps stay on
    /// the list.
    pub(crate) fn hand_over(self: &Arc<Self>, machines: &mut VecDeque<Machine>) {
        if let Some(drivers) = &self.workers {
            machines.retain(|machine| {
                !matches!(machine, Machine::Shard(_)) || !drivers.hand_over(self, *machine)
            });
        }
    }

    /// Drives the machines on the list, and those that they wake, until the list is empty.
    pub(crate) fn drive_here(self: &Arc<Self>, mut scratch: DriveScratch) {
        let _guard = AbortOnPanic::new();
        while let Some(machine) = scratch.machines.pop_front() {
            match machine {
                Machine::Shard(index) => self.drive_shard(index, &mut scratch),
                Machine::Array => self.drive_array(&mut scratch),
            }
        }
        scratch.keep();
    }

    /// Drives the machines that received events. A worker with completions waits for the other
    /// completions of its turn first.
    pub(crate) fn drive_notified(
        self: &Arc<Self>,
        notified: NotifiedMachines,
        worker: Option<&Worker>,
    ) {
        for machine in notified {
            match (worker, &self.workers) {
                (Some(worker), Some(drivers)) => drivers.put_off(worker, self, machine),
                _ => self.drive(machine),
            }
        }
    }

    fn drive_shard(self: &Arc<Self>, index: ShardIndex, scratch: &mut DriveScratch) {
        let DriveScratch { machines, shard: effects, .. } = scratch;
        let carry = Carry {
            drive: |shard: &mut Shard, events: &mut Vec<_>, effects: &mut ShardEffects| {
                events.append(effects.ended.get_mut());
                self.turn_shard(index, shard, events, effects);
            },
            after: |effects: &mut ShardEffects| {
                self.carry_out(index, effects, machines);
                !effects.ended.get_mut().is_empty()
            },
            leave: |effects: &mut ShardEffects, combiner: &Combiner<_, _>| {
                self.run_computations(index, effects, usize::MAX);
                combiner.push_all(effects.ended.get_mut().drain(..))
            },
            pushes: true,
        };
        self.shard(index).combiner.combine_carrying(effects, carry);
    }

    /// One turn of a shard by its owner: events in, effects out. The owner also passes the shard's
    /// reports on, so that the array receives them in order.
    fn turn_shard(
        &self,
        index: ShardIndex,
        shard: &mut Shard,
        events: &mut Vec<ShardEvent>,
        effects: &mut ShardEffects,
    ) {
        let now = self.clock.now();
        let prefetch = |shard: &Shard, event: &ShardEvent| {
            if let ShardEvent::Piece(piece) = event {
                shard.prefetch(piece);
            }
        };
        events.iter().skip(1).take(PREFETCH_PIECES - 1).for_each(|event| prefetch(shard, event));
        let mut events = events.drain(..);
        while let Some(event) = events.next() {
            let ahead = events.as_slice().get(PREFETCH_PIECES - 1);
            ahead.into_iter().for_each(|event| prefetch(shard, event));
            match event {
                ShardEvent::Piece(piece) => shard.handle_piece(now, piece),
                ShardEvent::MemberIo(done) => shard.handle_member_io(now, done),
                ShardEvent::ComputationDone(computation) => {
                    shard.handle_computation_done(now, computation)
                }
                ShardEvent::WriteBack(round) => shard.handle_write_back(now, round),
                ShardEvent::View(view) => shard.handle_view(now, view),
                ShardEvent::ActivityQuery => shard.handle_activity_query(now),
                ShardEvent::Logged(ticket) => shard.handle_logged(now, ticket),
                ShardEvent::TouchedQuery => shard.handle_touched_query(now),
                ShardEvent::Tuning(tuning) => shard.handle_tuning(now, tuning),
                ShardEvent::SlowMembers(slow_members) => {
                    shard.handle_slow_members(now, slow_members)
                }
                ShardEvent::Work(work) => shard.handle_work(now, work),
                ShardEvent::Timeout => shard.handle_timeout(now),
            }
        }
        let ShardEffects { computations, member_ios, replies, releases, .. } = effects;
        while let Some(computation) = shard.poll_computation() {
            computations.push_back(computation);
        }
        while let Some(io) = shard.poll_member_io() {
            let purpose = shard.purpose_of(&io);
            member_ios.push((self.on_device(index, io), purpose));
        }
        // The shard's owner stores the records before replies leave. So the cache file has every
        // acknowledged write, and no write that an answer has undone.
        let mut part = None;
        while let Some(record) = shard.poll_cache_record() {
            let file = self.cache_file.as_ref().expect("only where there is one");
            let part = part.get_or_insert_with(|| file.part_of(index));
            part.carry_out(record, &self.shard(index).memory);
        }
        drop(part);
        while let Some(reply) = shard.poll_reply() {
            replies.push(reply);
        }
        while let Some(release) = shard.poll_release() {
            releases.push(release);
        }
        while let Some(report) = shard.poll_report() {
            effects.reports = true;
            self.array.push(ArrayEvent::Report(index, report));
        }
        if self.turns.is_on() {
            self.turns.note(index, shard.dirty_sectors(), shard.waiting());
        }
        self.arm(self.alarm.bring_forward(index, shard.poll_timeout()));
    }

    /// The request with its sector counted from the lower of the member's data areas: during a
    /// reshape a member has a data area for each shape.
    fn on_device(&self, index: ShardIndex, io: MemberIo) -> MemberIo {
        if self.clients.border.is_none() {
            return io;
        }
        let is_after = self.clients.regions.is_after(index);
        let members = self.members.load();
        let start = members.get(io.member).map_or(0, |member| member.start_of_data(is_after));
        MemberIo { sector: MemberSector(io.sector.0 + start), ..io }
    }

    fn carry_out(
        self: &Arc<Self>,
        index: ShardIndex,
        effects: &mut ShardEffects,
        machines: &mut VecDeque<Machine>,
    ) {
        self.begin(index, effects, machines);
        self.run_computations(index, effects, self.shard(index).computations_max);
        if std::mem::take(&mut effects.reports) {
            machines.push_back(Machine::Array);
        }
        for reply in effects.replies.drain(..) {
            self.reply(&reply, machines);
        }
        for request in effects.releases.drain(..) {
            self.clients.requests.release_payload(request);
        }
    }

    fn run_computations(
        &self,
        index: ShardIndex,
        effects: &mut ShardEffects,
        computations_max: usize,
    ) {
        let mut memory = self.shard(index).memory.clone();
        let count = computations_max.min(effects.computations.len());
        for mut computation in effects.computations.drain(..count) {
            computation::run(&mut computation, self.kernel, &mut memory);
            effects.ended.get_mut().push(ShardEvent::ComputationDone(computation));
        }
    }

    /// Gives member operations to their members' schedulers. All operations reach the schedulers
    /// before any is dispatched, so that adjacent ones merge. Operations that ended at once are
    /// events for the shard, which then takes another turn.
    fn begin(
        &self,
        index: ShardIndex,
        effects: &mut ShardEffects,
        machines: &mut VecDeque<Machine>,
    ) {
        let ShardEffects { ended, ordered, member_ios, .. } = effects;
        let (home, members) = ((index, &*ended), self.members.load());
        let mut ios = member_ios.drain(..).peekable();
        while let Some((io, purpose)) = ios.next() {
            let Some(member) = members.open_to_new(io.member) else {
                let result = Err(fault::gone(io.member, io.operation.asked()));
                let done = MemberIoDone { id: io.id, result };
                ended.borrow_mut().push(ShardEvent::MemberIo(done));
                continue;
            };
            if !member.scheduler.is_straight() {
                ordered.push((io, purpose));
                continue;
            }
            let submitter = Submitter::of_shard(self, member, home);
            let is_followed = ios.peek().is_some_and(|(next, _)| follows(&io, next));
            if is_followed {
                let mut last = io;
                let rest = iter::from_fn(|| {
                    last = ios.next_if(|(next, _)| follows(&last, next))?.0;
                    Some((index, last))
                });
                submitter
                    .begin_together(iter::once((index, io)).chain(rest).take(VECTOR_PARTS_MAX));
            } else {
                member.scheduler.insert(&submitter, request(&io, purpose), (index, io));
            }
            machines.extend(submitter.into_notified());
        }
        while let Some((first, _)) = ordered.first() {
            let id = first.member;
            let member = members.get(id).expect("it was open to something new");
            let submitter = Submitter::of_shard(self, member, home);
            let own = ordered.extract_if(.., |(io, _)| io.member == id);
            let requests = own.map(|(io, purpose)| (request(&io, purpose), (index, io)));
            member.scheduler.insert_all(&submitter, requests);
            machines.extend(submitter.into_notified());
        }
    }

    fn drive_array(self: &Arc<Self>, scratch: &mut DriveScratch) {
        let DriveScratch { machines, array: effects, .. } = scratch;
        let carry = Carry {
            drive: |array: &mut Array, events: &mut Vec<_>, effects: &mut ArrayEffects| {
                self.turn_array(array, events, effects);
            },
            after: |effects: &mut ArrayEffects| {
                self.conclude(effects);
                false
            },
            leave: |_: &mut ArrayEffects, _: &Combiner<_, _>| false,
            pushes: true,
        };
        self.array.combine_carrying(effects, carry);
        machines.append(&mut effects.machines);
    }

    /// One turn of the array by its owner. The owner queues views, superblock writes, flushes and
    /// notices, so that they keep their order; queueing never waits.
    fn turn_array(
        &self,
        array: &mut Array,
        events: &mut Vec<ArrayEvent>,
        effects: &mut ArrayEffects,
    ) {
        let now = self.clock.now();
        for event in events.drain(..) {
            match event {
                ArrayEvent::Report(shard, report) => {
                    if let Report::Mended { member } = report
                        && let Some(member) = self.members.load().get(member)
                    {
                        member.count_corrected_read();
                    }
                    array.handle_report(now, shard, report);
                }
                ArrayEvent::MetadataWritten(member, area, written) => {
                    array.handle_metadata_written(now, (member, area), written);
                }
                ArrayEvent::Flushed(member, flushed) => array.handle_flushed(now, member, flushed),
                ArrayEvent::FlushRequest(request) => array.handle_flush_request(now, request),
                ArrayEvent::MemberLost(cause) => array.handle_member_gone(now, cause),
                ArrayEvent::SitOut(settings) => array.handle_sit_out(now, settings),
                ArrayEvent::Patience(patience) => array.handle_patience(now, patience),
                ArrayEvent::StaysAway(cause) => array.handle_stays_away(now, cause),
                ArrayEvent::Silence(silent) => array.handle_silence(now, &silent),
                ArrayEvent::ReadErrorLimit(limit) => array.handle_read_error_limit(now, limit),
                ArrayEvent::Member(change, answer) => {
                    let changed = match change {
                        MemberChange::Add(newcomer, wanted) => {
                            array.handle_member_added(now, newcomer, wanted)
                        }
                        MemberChange::Return(old, newcomer) => {
                            array.handle_member_returned(now, old, newcomer)
                        }
                        MemberChange::Fail(member) => array.handle_fail_request(now, member),
                        MemberChange::Remove(member) => array.handle_remove_request(now, member),
                        MemberChange::Replace(member, spare) => {
                            array.handle_replace_request(now, member, spare)
                        }
                        MemberChange::WriteMostly(member, is_it) => {
                            array.handle_write_mostly(now, member, is_it)
                        }
                    };
                    // The send fails if the caller no longer waits, and then no answer is needed.
                    let _ = answer.send(changed);
                }
                ArrayEvent::Bitmap(wanted, answer) => {
                    let _ = answer.send(array.handle_bitmap_request(now, wanted));
                }
                ArrayEvent::Logs(wanted, answer) => {
                    let _ = answer.send(array.handle_log_request(now, wanted));
                }
                ArrayEvent::Journal(setup, answer) => {
                    let _ = answer.send(array.handle_journal_added(now, setup));
                }
                ArrayEvent::Shape(change, answer) => {
                    let _ = answer.send(array.handle_shape_change(now, change));
                }
                ArrayEvent::Job(request) => array.handle_job_request(now, request),
                ArrayEvent::Pace => {}
                ArrayEvent::BorderPassed => array.handle_border_passed(now),
                ArrayEvent::Kept(result) => array.handle_kept(now, result),
                ArrayEvent::LossyWindow(window) => {
                    let kept = match array.may_lose(&window.lost) {
                        true => self.keep_copy(window),
                        false => Err(Fault::Unreadable),
                    };
                    array.handle_kept(now, kept);
                }
                ArrayEvent::Moved(start, result) => array.handle_moved(now, start, result),
                ArrayEvent::Timeout => array.handle_timeout(now),
                ArrayEvent::KeepsRecord(keeps) => array.handle_keeps_record(now, keeps),
                ArrayEvent::RecordKept(events) => array.handle_record_kept(now, events),
                ArrayEvent::Consent(events) => array.handle_consent(now, events),
                ArrayEvent::Stop => array.handle_stop(now),
            }
        }
        let pace_at = self.pacing.turn(now, array, || self.clients.in_flight.count());
        while let Some(effect) = array.poll_effect() {
            match effect {
                ArrayEffect::Publish(view) => {
                    self.note_places(&view);
                    let all = match &view.after {
                        Some(after) if after.slots.len() > view.slots.len() => after,
                        _ => &view,
                    };
                    *self.view.lock().expect("setting does not panic") = Arc::clone(all);
                    let after = view.after.as_ref().unwrap_or(&view);
                    self.to_every_shard(&mut effects.machines, |shard| {
                        let is_after = self.clients.regions.is_after(shard);
                        ShardEvent::View(Arc::clone(if is_after { after } else { &view }))
                    });
                }
                ArrayEffect::WriteBack { round } => {
                    self.to_every_shard(&mut effects.machines, |_| ShardEvent::WriteBack(round));
                }
                ArrayEffect::SlowMembers(slow_members) => {
                    for member in self.members.load().iter() {
                        member.set_sits_out(slow_members.sitting_out.contains(&member.id()));
                    }
                    self.to_every_shard(&mut effects.machines, |_| {
                        ShardEvent::SlowMembers(Arc::clone(&slow_members))
                    });
                }
                ArrayEffect::QueryActivity => {
                    self.to_every_shard(&mut effects.machines, |_| ShardEvent::ActivityQuery);
                }
                ArrayEffect::QueryTouched => {
                    self.to_every_shard(&mut effects.machines, |_| ShardEvent::TouchedQuery);
                }
                ArrayEffect::WriteMetadata { member, record } => {
                    match self.to_write(member, &record) {
                        Some(write) => effects.operations.push((member, write)),
                        None => {
                            let area = record.area();
                            let gone = Err(fault::gone(member, fault::asked_of(area)));
                            self.array.push(ArrayEvent::MetadataWritten(member, area, gone));
                        }
                    }
                }
                ArrayEffect::Flush { member } => {
                    effects.operations.push((member, Operation::Flush));
                }
                ArrayEffect::Leave { member } => effects.left.push(member),
                ArrayEffect::Logged { shard, ticket } => {
                    self.shard(shard).combiner.push(ShardEvent::Logged(ticket));
                    let machine = Machine::Shard(shard);
                    if !effects.machines.contains(&machine) {
                        effects.machines.push_back(machine);
                    }
                }
                ArrayEffect::Work { shard, work } => {
                    self.shard(shard).combiner.push(ShardEvent::Work(work));
                    let machine = Machine::Shard(shard);
                    if !effects.machines.contains(&machine) {
                        effects.machines.push_back(machine);
                    }
                }
                // Done by the array's owner. Otherwise two threads could apply their changes in any
                // order, and a change that ends a hold could end the hold of the next change.
                ArrayEffect::Border(change) => effects.borders.push(self.turn_border(change)),
                ArrayEffect::Keep { start, sectors } => effects.copies.push((start, sectors)),
                ArrayEffect::Move(piece) => effects.pieces.push(piece),
                ArrayEffect::Answer { request, result } => effects.answers.push((request, result)),
                ArrayEffect::AskConsent { state } => self.ask_consent(&state),
                ArrayEffect::KeepRecord { events } => {
                    self.note_recorded();
                    self.updates.keep(events);
                }
                ArrayEffect::Notice(notice) => {
                    if let Notice::Recorded { events } = notice {
                        self.note_recorded();
                        log::recorded(events, self.updates.state());
                    }
                    if !flaw::has(Flaw::NoticesUnowned) && !self.end.is_no_news(&notice) {
                        self.watch.tell(notice);
                    }
                    effects.notices.push(notice);
                }
            }
        }
        // The alarm is set while this thread owns the array machine, so that an older moment never
        // replaces a newer one.
        let due = array.poll_timeout().into_iter().chain(pace_at).min();
        self.arm(self.alarm.set(Machine::Array, due));
    }

    fn ask_consent(&self, state: &SuperblockState) {
        let members = self.members.load();
        let in_sync = state.in_sync();
        let in_sync =
            in_sync.filter_map(|(id, slot)| Some(members.get(id)?.recorded_member(slot.0)));
        self.updates.ask(PlannedUpdate { events: state.events, in_sync: in_sync.collect() });
    }

    /// Called when all members have the last update of superblocks.
    fn note_recorded(&self) {
        let members = self.members.load();
        self.updates.record(|id, slot| Some(members.get(id)?.recorded_member(slot)));
    }

    fn note_places(&self, view: &ArrayView) {
        let members = self.members.load();
        for (slot, view) in (0..).zip(&view.of_all_members().slots) {
            if let Some(view) = view
                && let Some(member) = members.get(view.id)
            {
                member.note_view(slot);
            }
        }
    }

    /// The operation that writes this record to a member; `None` if the member has left.
    fn to_write(&self, member: MemberId, record: &MetadataRecord) -> Option<Operation> {
        let members = self.members.load();
        match record {
            MetadataRecord::Superblock(state) => {
                // The update counts as begun, whether or not this member still exists.
                let time = self.updates.begins(state);
                if let Some(file) = &self.cache_file
                    && let Err(error) = file.note_update(state.events, time)
                {
                    // The next process will refuse the cache file and report the refusal, so a log
                    // message is enough here.
                    log::cache_file_not_stamped(&error);
                }
                let handle = members.get(member)?;
                log::superblock(handle, state);
                Some(handle.next_superblock(state, time))
            }
            MetadataRecord::BadBlocks(write) => {
                let handle = members.get(member)?;
                log::bad_blocks(handle, write);
                Some(handle.next_bad_blocks(write))
            }
            MetadataRecord::ParityLog(record) => Some(members.get(member)?.next_parity_log(record)),
            MetadataRecord::Journal(record, piece) => {
                Some(members.get(member)?.next_journal(record, *piece))
            }
            MetadataRecord::Bitmap(record) => {
                let handle = members.get(member)?;
                log::bitmap(handle, record);
                Some(handle.next_bitmap(record))
            }
        }
    }

    /// Starts an operation of the array at a member. The caller takes another turn of the array
    /// anyway.
    fn ask_for_array(self: &Arc<Self>, id: MemberId, operation: Operation) {
        let members = self.members.load();
        let kind = ArrayOperation::of(&operation).expect("the array asks for nothing else");
        let Some(member) = members.open_to_new(id) else {
            return self.fail_for_array(id, kind, |asked| fault::gone(id, asked));
        };
        if !member.array_operations.begin(kind) {
            return self.fail_for_array(id, kind, |_| fault::left(id));
        }
        let submitter = Submitter::new(self, member);
        submitter.submit(operation);
        let notified = submitter.into_notified();
        debug_assert!(
            notified.iter().all(|machine| *machine == Machine::Array),
            "for the array only"
        );
    }

    /// Handles a member that leaves the array: its pending operations fail.
    fn member_leaves(&self, id: MemberId) {
        let members = self.members.load();
        let Some(member) = members.get(id) else { return };
        for kind in member.array_operations.leave() {
            self.fail_for_array(id, kind, |_| fault::left(id));
        }
    }

    /// Reports a failure to the array. The caller takes another turn of the array anyway.
    fn fail_for_array(
        &self,
        id: MemberId,
        kind: ArrayOperation,
        of: impl FnOnce(RequestKind) -> MemberFault,
    ) {
        self.array.push(match kind {
            ArrayOperation::Flush => ArrayEvent::Flushed(id, Err(of(RequestKind::Flush).cause)),
            ArrayOperation::Metadata(area) => {
                ArrayEvent::MetadataWritten(id, area, Err(of(fault::asked_of(area))))
            }
        });
    }

    fn to_every_shard(
        &self,
        machines: &mut VecDeque<Machine>,
        event: impl Fn(ShardIndex) -> ShardEvent,
    ) {
        for (index, cell) in (0u16..).map(ShardIndex).zip(&self.shards) {
            cell.combiner.push(event(index));
            machines.push_back(Machine::Shard(index));
        }
    }

    fn conclude(self: &Arc<Self>, effects: &mut ArrayEffects) {
        for (id, operation) in effects.operations.drain(..) {
            self.ask_for_array(id, operation);
        }
        for id in effects.left.drain(..) {
            self.member_leaves(id);
        }
        for (request, result) in effects.answers.drain(..) {
            let in_flight = self.clients.requests.get(request);
            self.finish(request, in_flight, result, &mut effects.machines);
        }
        if self.clients.border.is_some() {
            self.conclude_reshape(effects);
        }
        for notice in effects.notices.drain(..) {
            if flaw::has(Flaw::NoticesUnowned) {
                self.watch.tell(notice);
            }
            if let Notice::Stopped { clean } = notice {
                self.end.set(clean);
            }
        }
    }
}

impl Core {
    fn conclude_reshape(&self, effects: &mut ArrayEffects) {
        for turn in effects.borders.drain(..) {
            self.begin_after(turn, &mut effects.machines);
        }
        for (start, sectors) in effects.copies.drain(..) {
            self.copy_window((start, sectors), &mut effects.machines);
        }
        for piece in effects.pieces.drain(..) {
            self.move_piece(piece, &mut effects.machines);
        }
    }
}

impl Wake for Core {
    fn wake(self: Arc<Self>, _: &Worker, token: u64) {
        let drivers = self.workers.as_ref().expect("only workers tell a core anything");
        let mut scratch = DriveScratch::take();
        scratch.machines.push_back(drivers.begin(token));
        self.drive_here(scratch);
    }
}
