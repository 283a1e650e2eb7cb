//! The one loop that drives machines: takes effects, carries out what it can, queues the rest.
//!
//! Any thread with an event enters at [`Core::drive`] and stays until it finds nothing more to do.
//! A list of machines to look at, kept on its stack, takes the place of recursion: a shard's report
//! wakes the array, whose view wakes the shards, and so on.

use std::collections::VecDeque;
use std::iter;

use braid_dispatch::{Carry, Combiner};
use braid_engine::array::{
    Array, ArrayEffect, ArrayView, MemberId, MetadataArea, MetadataRecord, Notice,
};
use braid_engine::cause::{Asked, Cause};
use braid_engine::computation::{self, Computation};
use braid_engine::effect::{Attention, FaultKind, MemberFault, MemberIoDone, PieceReply, Report};
use braid_engine::request::{Fault, Piece, Regions, RequestId, ShardIndex};
use braid_engine::{PREFETCH_PIECES, Shard, SitOut, Tuning};
use braid_parity::Kernel;
use smallvec::SmallVec;

use crate::arena::ShardMemory;
use crate::clock::Clock;
use crate::edges::Turnstile;
use crate::executor::{self, Lane, Members, Operation};
use crate::log;
use crate::requests::{self, Requests};
use crate::scheduling::Scheduling;
use crate::slate::{ArrayEffects, ShardEffects, Slate};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Condvar, Mutex, thread};
use crate::telling::Telling;
use crate::timer::Alarm;
use crate::turns::Turns;
use crate::waiter::InFlight;
use crate::walk::Walk;
use crate::watch::Watch;
use crate::workers::Drivers;

/// Parts of a vector that is made without an elevator; as many as one makes with it.
const VECTOR_PARTS_MAX: usize = 64;

/// An event for a shard.
pub(crate) enum ShardEvent {
    Piece(Piece),
    MemberIo(MemberIoDone),
    JobDone(Computation),
    View(Arc<ArrayView>),
    ActivityQuery,
    WriteBack(u64),
    Tuning(Tuning),
    Attention(Arc<Attention>),
    Timeout,
}

/// An event for the array.
pub(crate) enum ArrayEvent {
    Report(ShardIndex, Report),
    MetadataWritten(MemberId, MetadataArea, Result<(), Cause>),
    Flushed(MemberId, Result<(), Cause>),
    FlushRequest(RequestId),
    MemberLost(Cause),
    SitOut(SitOut),
    Timeout,
    Stop,
}

/// A machine to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Shard(ShardIndex),
    Array,
}

/// A shard with its memory.
pub(crate) struct ShardCell {
    pub(crate) combiner: Combiner<Shard, ShardEvent>,
    pub(crate) memory: ShardMemory,
    /// Computations that are carried out before what came of them is written; at least one.
    pub(crate) computations_max: usize,
}

/// What clients have asked for, and not been told the end of.
pub(crate) struct Clients {
    pub(crate) in_flight: InFlight,
    /// Whose turn it is to change the array.
    pub(crate) turnstile: Turnstile<Walk>,
    /// Which shard has what.
    pub(crate) regions: Regions,
    /// What the shards were given.
    pub(crate) requests: Arc<Requests>,
    pub(crate) failures: log::Failures,
}

impl Clients {
    pub(crate) fn new(regions: Regions) -> Self {
        let (in_flight, turnstile, requests, failures) = Default::default();
        Self { in_flight, turnstile, regions, requests, failures }
    }
}

/// Everything that threads share.
pub(crate) struct Core {
    pub(crate) shards: Vec<ShardCell>,
    pub(crate) array: Combiner<Array, ArrayEvent>,
    pub(crate) members: Members,
    /// The newest view, for those who look and ask nothing of the array.
    pub(crate) view: Mutex<Arc<ArrayView>>,
    pub(crate) clients: Clients,
    pub(crate) kernel: &'static Kernel,
    pub(crate) clock: Clock,
    pub(crate) alarm: Alarm,
    pub(crate) turns: Turns,
    pub(crate) scheduling: Mutex<Scheduling>,
    pub(crate) watch: Watch,
    pub(crate) end: End,
    /// The times of superblocks, and what they said last.
    pub(crate) telling: Telling,
    /// When members sit out, as a person has set it.
    pub(crate) sit_out: Mutex<SitOut>,
    /// Workers, where io_uring is used.
    pub(crate) workers: Option<Drivers>,
}

/// Whether the array has stopped, and how; and what else is to end then.
#[derive(Default)]
pub(crate) struct End {
    clean: Mutex<Option<bool>>,
    changed: Condvar,
    /// The alarm, where no worker keeps the time.
    pub(crate) threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl End {
    pub(crate) fn set(&self, clean: bool) {
        *self.clean.lock().expect("setting does not panic") = Some(clean);
        if flaw::has(Flaw::EndWakesOne) {
            return self.changed.notify_one();
        }
        self.changed.notify_all();
    }

    /// Waits for the array to stop; whether its superblocks are clean.
    pub(crate) fn wait(&self) -> bool {
        let guard = self.clean.lock().expect("setting does not panic");
        let done = self.changed.wait_while(guard, |clean| clean.is_none());
        done.expect("setting does not panic").unwrap_or(false)
    }

    /// Waits for all threads to end.
    pub(crate) fn join(&self) {
        let next = || self.threads.lock().expect("starting does not panic").pop();
        while let Some(thread) = next() {
            thread.join().expect("a thread of an array does not panic");
        }
    }
}

/// Ends the process when a thread panics inside a machine. Its effects are lost then, so requests
/// would hang for ever; a crash is what the on-disk format is made to survive.
///
/// A thread that panics elsewhere and drops its volume on the way is no such case: it stops the
/// array in order.
pub(crate) struct AbortOnPanic {
    was_panicking: bool,
}

impl AbortOnPanic {
    pub(crate) fn new() -> Self {
        Self { was_panicking: std::thread::panicking() }
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        // A model is to fail, not to end.
        if std::thread::panicking() && !self.was_panicking && !cfg!(shuttle) {
            std::process::abort();
        }
    }
}

impl Core {
    /// Has `first` driven, and whatever comes of it: by this thread, or by a worker where there are any
    /// and this is none.
    pub(crate) fn drive(self: &Arc<Self>, first: Machine) {
        let mut slate = Slate::take();
        slate.machines.push_back(first);
        self.drive_all(slate);
    }

    /// The same for every machine on the slate.
    pub(crate) fn drive_all(self: &Arc<Self>, mut slate: Slate) {
        if let Some(drivers) = self.workers.as_ref().filter(|drivers| !drivers.is_here()) {
            slate.machines.retain(|machine| !drivers.schedule(self, *machine));
        }
        self.drive_here(slate);
    }

    /// Drives the machines on the slate, and whatever comes of it, until nothing is left for this thread.
    pub(crate) fn drive_here(self: &Arc<Self>, mut slate: Slate) {
        let _guard = AbortOnPanic::new();
        while let Some(machine) = slate.machines.pop_front() {
            match machine {
                Machine::Shard(index) => self.drive_shard(index, &mut slate),
                Machine::Array => self.drive_array(&mut slate),
            }
        }
        slate.keep();
    }

    pub(crate) fn shard(&self, index: ShardIndex) -> &ShardCell {
        &self.shards[usize::from(index.0)]
    }

    fn drive_shard(self: &Arc<Self>, index: ShardIndex, slate: &mut Slate) {
        let Slate { machines, shard: effects, .. } = slate;
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
                self.run_jobs(index, effects, usize::MAX);
                for event in effects.ended.get_mut().drain(..) {
                    combiner.push(event);
                }
            },
        };
        self.shard(index).combiner.combine_carrying(false, effects, carry);
    }

    /// One turn with ownership: events in, effects out. Reports are passed on under ownership, so
    /// that the array hears them in order.
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
                ShardEvent::JobDone(computation) => shard.handle_computation_done(now, computation),
                ShardEvent::WriteBack(round) => shard.handle_write_back(now, round),
                ShardEvent::View(view) => shard.handle_view(now, view),
                ShardEvent::ActivityQuery => shard.handle_activity_query(now),
                ShardEvent::Tuning(tuning) => shard.handle_tuning(now, tuning),
                ShardEvent::Attention(attention) => shard.handle_attention(now, attention),
                ShardEvent::Timeout => shard.handle_timeout(now),
            }
        }
        let ShardEffects { computations, member_ios, replies, releases, .. } = effects;
        while let Some(computation) = shard.poll_computation() {
            computations.push_back(computation);
        }
        while let Some(io) = shard.poll_member_io() {
            member_ios.push((io, shard.purpose_of(&io)));
        }
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

    fn carry_out(
        self: &Arc<Self>,
        index: ShardIndex,
        effects: &mut ShardEffects,
        machines: &mut VecDeque<Machine>,
    ) {
        self.begin(index, effects, machines);
        self.run_jobs(index, effects, self.shard(index).computations_max);
        if std::mem::take(&mut effects.reports) {
            machines.push_back(Machine::Array);
        }
        for reply in effects.replies.drain(..) {
            self.reply(&reply, machines);
        }
        for request in effects.releases.drain(..) {
            self.clients.requests.let_go(request);
        }
    }

    /// Carries so many computations out.
    fn run_jobs(&self, index: ShardIndex, effects: &mut ShardEffects, computations_max: usize) {
        let mut memory = self.shard(index).memory.clone();
        let count = computations_max.min(effects.computations.len());
        for mut computation in effects.computations.drain(..count) {
            computation::run(&mut computation, self.kernel, &mut memory);
            effects.ended.get_mut().push(ShardEvent::JobDone(computation));
        }
    }

    /// Gives member operations to their members' schedulers: all of them first, so that adjacent ones are
    /// merged. What has ended already is for the shard, which is looked at again.
    fn begin(
        &self,
        index: ShardIndex,
        effects: &mut ShardEffects,
        machines: &mut VecDeque<Machine>,
    ) {
        let mut left: SmallVec<[MemberId; 16]> = SmallVec::new();
        let (home, members) = ((index, &effects.ended), self.members.load());
        let mut ios = effects.member_ios.drain(..).peekable();
        while let Some((io, purpose)) = ios.next() {
            let Some(member) = members.open_to_new(io.member) else {
                let cause = Cause { asked: io.operation.asked(), ..Cause::vanished(io.member) };
                let fault = MemberFault { kind: FaultKind::Gone, cause };
                let done = MemberIoDone { id: io.id, result: Err(fault) };
                effects.ended.borrow_mut().push(ShardEvent::MemberIo(done));
                continue;
            };
            let lane = Lane::of_shard(self, member, home);
            let is_followed = ios.peek().is_some_and(|(next, _)| executor::follows(&io, next));
            if is_followed && member.scheduler.is_straight() {
                let mut last = io;
                let rest = iter::from_fn(|| {
                    last = ios.next_if(|(next, _)| executor::follows(&last, next))?.0;
                    Some((index, last))
                });
                lane.begin_together(iter::once((index, io)).chain(rest).take(VECTOR_PARTS_MAX));
            } else if member.scheduler.leave(&lane, executor::request(&io, purpose), (index, io)) {
                left.push(io.member);
            }
            machines.extend(lane.into_heard());
        }
        for member in left.into_iter().filter_map(|id| members.get(id)) {
            let lane = Lane::of_shard(self, member, home);
            member.scheduler.dispatch(&lane);
            machines.extend(lane.into_heard());
        }
    }

    fn reply(self: &Arc<Self>, reply: &PieceReply, machines: &mut VecDeque<Machine>) {
        let request = self.clients.requests.get(reply.request);
        reply.cause.into_iter().for_each(|cause| request.note_cause(cause));
        let answer = request.reply(reply.result, (reply.keeps_payload, reply.leaves_payload));
        let answer = answer.or_else(|| self.hand_out(&request, machines));
        if let Some(answer) = answer {
            self.finish(reply.request, request, answer);
        }
    }

    fn finish(
        self: &Arc<Self>,
        id: RequestId,
        request: Arc<requests::Request>,
        answer: Result<(), Fault>,
    ) {
        if let Err(fault) = answer {
            let why = (fault, request.cause());
            let members = self.members.load();
            self.clients.failures.failed(self.clock.now(), &members, request.asked(), why);
        }
        let (completion, payload) = self.clients.requests.finish(id, request, answer);
        self.complete(completion, answer, payload);
    }

    /// Hands out a request's next pieces; its answer if there is nothing to wait for.
    pub(crate) fn hand_out(
        &self,
        request: &requests::Request,
        machines: &mut VecDeque<Machine>,
    ) -> Option<Result<(), Fault>> {
        request.cut(|index, piece| {
            self.shard(index).combiner.push(ShardEvent::Piece(piece));
            if !machines.contains(&Machine::Shard(index)) {
                machines.push_back(Machine::Shard(index));
            }
        })
    }

    fn drive_array(self: &Arc<Self>, slate: &mut Slate) {
        let Slate { machines, array: effects, .. } = slate;
        let carry = Carry {
            drive: |array: &mut Array, events: &mut Vec<_>, effects: &mut ArrayEffects| {
                self.turn_array(array, events, (effects, machines));
            },
            after: |effects: &mut ArrayEffects| {
                self.conclude(effects);
                false
            },
            leave: |_: &mut ArrayEffects, _: &Combiner<_, _>| {},
        };
        self.array.combine_carrying(false, effects, carry);
    }

    /// One turn with ownership. Views, superblock writes, flushes and notices are queued under
    /// ownership, so that they keep their order; queueing never waits.
    fn turn_array(
        &self,
        array: &mut Array,
        events: &mut Vec<ArrayEvent>,
        (effects, machines): (&mut ArrayEffects, &mut VecDeque<Machine>),
    ) {
        let now = self.clock.now();
        for event in events.drain(..) {
            match event {
                ArrayEvent::Report(shard, report) => array.handle_report(now, shard, report),
                ArrayEvent::MetadataWritten(member, area, written) => {
                    array.handle_metadata_written(now, (member, area), written);
                }
                ArrayEvent::Flushed(member, flushed) => array.handle_flushed(now, member, flushed),
                ArrayEvent::FlushRequest(request) => array.handle_flush_request(now, request),
                ArrayEvent::MemberLost(cause) => array.handle_member_gone(now, cause),
                ArrayEvent::SitOut(settings) => array.handle_sit_out(now, settings),
                ArrayEvent::Timeout => array.handle_timeout(now),
                ArrayEvent::Stop => array.handle_stop(now),
            }
        }
        while let Some(effect) = array.poll_effect() {
            match effect {
                ArrayEffect::Publish(view) => {
                    self.note_places(&view);
                    *self.view.lock().expect("setting does not panic") = Arc::clone(&view);
                    self.to_every_shard(machines, || ShardEvent::View(Arc::clone(&view)));
                }
                ArrayEffect::WriteBack { round } => {
                    self.to_every_shard(machines, || ShardEvent::WriteBack(round));
                }
                ArrayEffect::Attend(attention) => {
                    for member in self.members.load().iter() {
                        member.set_sits_out(attention.sitting_out.contains(&member.id()));
                    }
                    self.to_every_shard(machines, || ShardEvent::Attention(Arc::clone(&attention)));
                }
                ArrayEffect::QueryActivity => {
                    self.to_every_shard(machines, || ShardEvent::ActivityQuery);
                }
                ArrayEffect::WriteMetadata { member, record } => {
                    let MetadataRecord::Superblock(state) = record;
                    let time = self.telling.begins(&state);
                    match self.members.load().get(member) {
                        Some(handle) => {
                            log::superblock(handle, &state);
                            let write = handle.next_superblock(&state, time);
                            effects.operations.push((member, write));
                        }
                        None => {
                            let cause =
                                Cause { asked: Asked::Superblock, ..Cause::vanished(member) };
                            self.array.push(ArrayEvent::MetadataWritten(
                                member,
                                MetadataArea::Superblock,
                                Err(cause),
                            ));
                        }
                    }
                }
                ArrayEffect::Flush { member } => {
                    effects.operations.push((member, Operation::Flush));
                }
                ArrayEffect::Answer { request, result } => effects.answers.push((request, result)),
                ArrayEffect::Notice(notice) => {
                    if let Notice::Told { .. } = notice {
                        let members = self.members.load();
                        let telling = &self.telling;
                        telling.is_told(|id, slot| Some(members.get(id)?.told_member(slot)));
                    }
                    log::notice(&self.members.load(), &notice, || self.telling.state());
                    if !flaw::has(Flaw::NoticesUnowned) {
                        self.watch.tell(notice);
                    }
                    effects.notices.push(notice);
                }
            }
        }
        // Under ownership, so that an older moment never replaces a newer one.
        self.arm(self.alarm.set(Machine::Array, array.poll_timeout()));
    }

    /// Notes at the members where the view has them.
    fn note_places(&self, view: &ArrayView) {
        let members = self.members.load();
        for (slot, view) in (0..).zip(&view.slots) {
            if let Some(view) = view
                && let Some(member) = members.get(view.id)
            {
                member.note_view(slot, view);
            }
        }
    }

    /// Has something done at a member for the array, which is looked at again anyway.
    fn ask_for_array(self: &Arc<Self>, id: MemberId, operation: Operation) {
        let members = self.members.load();
        let Some(member) = members.open_to_new(id) else {
            let cause = |asked| Err(Cause { asked, ..Cause::vanished(id) });
            self.array.push(match operation {
                Operation::Flush => ArrayEvent::Flushed(id, cause(Asked::Flush)),
                Operation::Metadata { area, .. } => {
                    ArrayEvent::MetadataWritten(id, area, cause(Asked::Superblock))
                }
                _ => unreachable!("the array asks for nothing else"),
            });
            return;
        };
        let lane = Lane::new(self, member);
        lane.submit(operation);
        let heard = lane.into_heard();
        debug_assert!(heard.iter().all(|machine| *machine == Machine::Array), "for the array only");
    }

    fn to_every_shard(&self, machines: &mut VecDeque<Machine>, event: impl Fn() -> ShardEvent) {
        for (index, cell) in (0u16..).map(ShardIndex).zip(&self.shards) {
            cell.combiner.push(event());
            machines.push_back(Machine::Shard(index));
        }
    }

    fn conclude(self: &Arc<Self>, effects: &mut ArrayEffects) {
        for (id, operation) in effects.operations.drain(..) {
            self.ask_for_array(id, operation);
        }
        for (request, result) in effects.answers.drain(..) {
            self.finish(request, self.clients.requests.get(request), result);
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
