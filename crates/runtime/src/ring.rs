//! Members on io_uring: effects become operations of the worker's own ring, completions events.
//!
//! Where it stands: beside [`crate::member_threads`], which does the same with threads that wait, and
//! which still does here what no ring can: members without a descriptor, vectors that are tried again part by part,
//! ranges of zeroes that are longer than one operation where the kernel makes none, and everything once the workers have
//! been stopped. A member's thread is started when there is something of that for it. How much of a member comes here, and
//! whether anything does, is [`crate::berth`]'s.
//!
//! ```text
//!   other threads: event into the shard's inbox ──▶ a worker is told once, until it has looked
//!   worker, a turn: completions → events (all of them) → shards driven → operations → one submit
//! ```
//!
//! A thread that is no worker never drives a machine while there are workers: it would have to hand
//! each operation over, and this way it hands over one event. When the workers have been stopped it
//! does drive, and threads carry out what comes of it.
//!
//! Invariant: a shard whose inbox was pushed to is driven afterwards. `scheduled` is cleared before it is
//! driven, so a push either finds it cleared, and schedules, or is seen (`volume_tests` over both ways).

mod zeroing;

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_engine::array::{MemberId, SuperblockState};
use braid_engine::effect::{IoId, MemberIo, MemberIoDone, MemberOperation};
use braid_engine::job::Span;
use braid_engine::request::ShardIndex;
use braid_member::{Deed, MemberError, Raw};
use braid_ondisk::Timestamp;
use braid_ring::{
    Completion, Descriptor, Handler, Lease, Memory, Operation, RingError, Segment, Segments,
    Settings, Worker, Workers,
};

use crate::clock::Clock;
use crate::core::{ArrayEvent, Core, Machine, ShardEvent};
use crate::lane::{Flight, Item, Lane, Touched, is_forced};
use crate::member_threads::{MemberQueue, Work, buffer_of, fault, transfer};
use crate::options::{Io, Options};
use crate::slate::Slate;
use crate::sync::{Arc, Mutex, Weak};
use crate::timer::Arm;
use zeroing::ZeroPort;

/// The token of the array; shards have their index.
const ARRAY: u64 = u64::MAX;

/// A shard's operations on one member: where their completions come back. The token is the [`IoId`].
struct Port {
    core: Weak<Core>,
    shard: ShardIndex,
    member: MemberId,
}

/// A member's flushes and superblocks, for the array. There is at most one of each under way.
struct ArrayPort {
    core: Weak<Core>,
    member: MemberId,
    /// What the superblock that is under way tells of.
    superblock: Mutex<Option<Arc<SuperblockState>>>,
}

/// What an [`ArrayPort`] is told of.
const FLUSH: u64 = 0;
const SUPERBLOCK: u64 = 1;

/// A member's flights. The token is that of [`crate::places`].
struct FlightPort {
    core: Weak<Core>,
    member: MemberId,
}

/// Moments. The token is the place that [`crate::timer`] knows them by.
struct AlarmPort {
    core: Weak<Core>,
}

/// The workers of a volume, and what they tell it by.
pub(crate) struct Ring {
    pub(crate) workers: Arc<Workers>,
    /// Whether they are the volume's alone.
    is_own: bool,
    /// By shard, then member; set once the core has its place.
    ports: OnceLock<Vec<Vec<Arc<Port>>>>,
    array_ports: OnceLock<Vec<Arc<ArrayPort>>>,
    flight_ports: OnceLock<Vec<Arc<FlightPort>>>,
    zero_ports: OnceLock<Vec<Arc<ZeroPort>>>,
    alarm_port: OnceLock<Arc<AlarmPort>>,
    /// Machines that a worker has been told to look at and has not looked at yet: shards, the array.
    scheduled: Vec<AtomicBool>,
}

impl Ring {
    /// The ring that `options` ask for; none where threads are to do it all, or nothing has a descriptor.
    pub(crate) fn start(options: &Options, has_file: bool) -> Result<Option<Self>, RingError> {
        if options.io == Io::Threads || !has_file {
            return Ok(None);
        }
        if let Some(workers) = &options.workers {
            return Ok(Some(Self::new(Arc::clone(workers), false, options.shards)));
        }
        match Workers::start(&Settings::default()) {
            Ok(workers) => Ok(Some(Self::new(Arc::new(workers), true, options.shards))),
            Err(error) if options.io == Io::Auto && error.is_lack() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new(workers: Arc<Workers>, is_own: bool, shards: u16) -> Self {
        let scheduled = (0..=shards).map(|_| AtomicBool::new(false)).collect();
        let (ports, array_ports, flight_ports, zero_ports) = Default::default();
        let alarm_port = OnceLock::new();
        Self {
            workers,
            is_own,
            ports,
            array_ports,
            flight_ports,
            zero_ports,
            alarm_port,
            scheduled,
        }
    }

    /// Makes the ports, now that the core has its place.
    pub(crate) fn connect(&self, core: &Arc<Core>) {
        let members = 0..u16::try_from(core.members.len()).expect("members have 16-bit names");
        let port = |shard, member| {
            let (core, shard, member) = (Arc::downgrade(core), ShardIndex(shard), MemberId(member));
            Arc::new(Port { core, shard, member })
        };
        let shards = 0..u16::try_from(core.shards.len()).expect("made from a u16");
        let ports = shards.map(|shard| members.clone().map(|member| port(shard, member)).collect());
        let core = || Arc::downgrade(core);
        let array = |member| {
            let superblock = Mutex::new(None);
            Arc::new(ArrayPort { core: core(), member: MemberId(member), superblock })
        };
        let flight = |member| Arc::new(FlightPort { core: core(), member: MemberId(member) });
        let zero = |member| Arc::new(ZeroPort { core: core(), member: MemberId(member) });
        let is_first = self.ports.set(ports.collect()).is_ok()
            && self.array_ports.set(members.clone().map(array).collect()).is_ok()
            && self.flight_ports.set(members.clone().map(flight).collect()).is_ok()
            && self.zero_ports.set(members.map(zero).collect()).is_ok()
            && self.alarm_port.set(Arc::new(AlarmPort { core: core() })).is_ok();
        assert!(is_first, "a core is connected once");
    }

    /// Whether a worker has been told of a machine, which worker that is, and by which token.
    fn scheduling(&self, machine: Machine) -> (&AtomicBool, usize, u64) {
        match machine {
            Machine::Shard(ShardIndex(index)) => {
                let on = usize::from(index);
                (&self.scheduled[on], on, u64::from(index))
            }
            Machine::Array => {
                (self.scheduled.last().expect("the array has the last one"), 0, ARRAY)
            }
        }
    }

    /// Whether this thread is to drive machines itself.
    pub(crate) fn is_here(&self) -> bool {
        self.workers.current().is_some()
    }

    /// Has a worker drive `machine`; false when there are none any more.
    pub(crate) fn schedule(&self, core: &Arc<Core>, machine: Machine) -> bool {
        let (slot, on, token) = self.scheduling(machine);
        if slot.swap(true, Ordering::SeqCst) {
            return true;
        }
        let told = self.workers.wake(on, Arc::clone(core) as Arc<dyn Handler>, token);
        if told.is_err() {
            slot.store(false, Ordering::SeqCst);
        }
        told.is_ok()
    }

    /// The same for a worker that has just pushed a completion: once the others of this turn are told.
    fn schedule_here(&self, worker: &Worker, core: Arc<Core>, machine: Machine) {
        let (slot, _, token) = self.scheduling(machine);
        if !slot.swap(true, Ordering::SeqCst) {
            worker.afterwards(core, token);
        }
    }

    /// Submits a member's read or write; gives back what threads have to do. An error is the end of it.
    pub(crate) fn submit(
        &self,
        core: &Core,
        member: &MemberQueue,
        (shard, io): (ShardIndex, MemberIo),
    ) -> Result<Option<MemberIo>, MemberError> {
        let Some(raw) = member.raw() else { return Ok(Some(io)) };
        let (offset_bytes, length_bytes) = member.range(&io);
        let (buffer, deed) = match io.operation {
            MemberOperation::Read { buffer } => (buffer, Deed::Read),
            MemberOperation::Write { buffer, durable } => (buffer, Deed::Write { durable }),
            MemberOperation::Zero { .. } => {
                let flight = Flight::alone(member, (shard, io));
                return Ok(self.zero(member, flight).map(|left| left.parts[0].1));
            }
        };
        if !is_for_ring(raw, deed) {
            return Ok(Some(io));
        }
        raw.check(deed, offset_bytes, length_bytes)?;
        let span = transfer(buffer, length_bytes);
        let operation = self.operation(core, raw, (shard, span), (deed, offset_bytes))?;
        // A read that was forsaken, and is over: threads end it.
        let Some(operation) = operation else { return Ok(Some(io)) };
        let ports = self.ports.get().expect("a core that is driven is connected");
        let port = Arc::clone(&ports[usize::from(shard.0)][usize::from(io.member.0)]);
        match self.workers.submit(usize::from(shard.0), operation, port, io.id.0) {
            Ok(()) => Ok(None),
            Err(_) => Ok(Some(io)),
        }
    }

    fn operation(
        &self,
        core: &Core,
        raw: &Raw,
        (shard, span): (ShardIndex, Span),
        (deed, offset): (Deed, u64),
    ) -> Result<Option<Operation>, MemberError> {
        let lease: Option<Lease> = core.shard(shard).memory.lease(span, deed == Deed::Read);
        let Some(lease) = lease else { return Ok(None) };
        let file = raw.file(lease.address(), span.length_bytes, offset)?;
        let memory = Segments::from_iter([lease.into()]);
        Ok(Some(match deed {
            Deed::Write { durable } => Operation::Write { file, offset, memory, durable },
            Deed::Read | Deed::Flush => Operation::Read { file, offset, memory },
        }))
    }

    /// Submits a flight; gives it back if threads have to carry it out, who then say what is wrong with it.
    pub(crate) fn submit_flight(
        &self,
        core: &Core,
        member: &MemberQueue,
        flight: Flight,
    ) -> Result<(), Flight> {
        if matches!(flight.parts[0].1.operation, MemberOperation::Zero { .. }) {
            return self.zero(member, flight).map_or(Ok(()), Err);
        }
        let Some(operation) = vector(core, member, &flight.parts) else { return Err(flight) };
        let (on, first) = flight.parts[0];
        let ports = self.flight_ports.get().expect("a core that is driven is connected");
        let port = Arc::clone(&ports[usize::from(first.member.0)]);
        let token = member.flights.add(flight);
        let submitted = self.workers.submit(usize::from(on.0), operation, port, token);
        submitted.map_err(|_| member.flights.take(token))
    }

    /// Submits a member's flush; false when threads have to do it.
    pub(crate) fn flush(&self, member: &MemberQueue) -> bool {
        let Some(raw) = member.raw().filter(|raw| raw.is_writable()) else { return false };
        if member.berth.is_suspect() || raw.check(Deed::Flush, 0, 0).is_err() {
            return false;
        }
        let Ok(file) = raw.file(0, 0, 0) else { return false };
        self.submit_for_array(member, Operation::Sync { file }, FLUSH)
    }

    /// Submits the writing of a member's superblock; false when threads have to do it.
    pub(crate) fn write_superblock(
        &self,
        member: &MemberQueue,
        state: &Arc<SuperblockState>,
        time: Timestamp,
    ) -> bool {
        let deed = Deed::Write { durable: true };
        let Some(raw) = member.raw().filter(|raw| is_for_ring(raw, deed)) else { return false };
        if member.berth.is_suspect() {
            return false;
        }
        let (bytes, offset) = member.next_superblock(state, time);
        let (address, length) = (bytes.as_ptr().addr(), bytes.len());
        if raw.check(deed, offset, length as u64).is_err() {
            return false;
        }
        let Ok(file) = raw.file(address, length, offset) else { return false };
        let memory = Segments::from_iter([Segment::whole(Memory::Bytes(bytes))]);
        let write = Operation::Write { file, offset, memory, durable: true };
        let ports = self.array_ports.get().expect("a core that is driven is connected");
        ports[usize::from(member.id().0)].keep(Some(Arc::clone(state)));
        self.submit_for_array(member, write, SUPERBLOCK)
    }

    fn submit_for_array(&self, member: &MemberQueue, operation: Operation, token: u64) -> bool {
        let ports = self.array_ports.get().expect("a core that is driven is connected");
        let index = usize::from(member.id().0);
        let port = Arc::clone(&ports[index]);
        member.berth.begin_aside();
        let is_submitted = self.workers.submit(index, operation, port, token).is_ok();
        if !is_submitted {
            member.berth.forgo_aside();
        }
        is_submitted
    }

    /// Has a worker wake the alarm at a moment; false when there are none any more.
    pub(crate) fn arm(&self, clock: &Clock, arm: Arm) -> bool {
        let port = self.alarm_port.get().expect("a core that is driven is connected");
        // A moment that cannot be counted up to does not come.
        let Some(at) = clock.at(arm.at) else { return true };
        let (port, token) = (Arc::clone(port), arm.place as u64);
        self.workers.wake_at(arm.place, at, port, token).is_ok()
    }

    /// Has all rings know the members' files by number. A process that is killed keeps the members' locks until what is in
    /// flight on its rings has ended, past the page cache as well, where the opening that is written to has none.
    pub(crate) fn register(&self, core: &Core) {
        for file in files(core) {
            self.workers.register(&file);
        }
    }

    /// Has them let go of the members, so that whoever closes them gives up their locks.
    pub(crate) fn unregister(&self, core: &Core) {
        for file in files(core) {
            self.workers.unregister(&file);
        }
    }

    /// Ends the workers, if they are the volume's alone.
    pub(crate) fn stop(&self) {
        if self.is_own {
            self.workers.stop();
        }
    }
}

/// The open files of all members that have any. Who has none left to open does without numbers.
fn files(core: &Core) -> impl Iterator<Item = Descriptor> {
    let raws = core.members.iter().filter_map(|member| member.raw());
    raws.flat_map(|raw| raw.files().unwrap_or_default())
}

/// Whether a ring can do it: where durable writes were refused, a write is followed by a flush, and threads do both.
fn is_for_ring(raw: &Raw, deed: Deed) -> bool {
    deed != Deed::Write { durable: true } || raw.takes_durable_flag()
}

/// A flight's operation: a segment for each part. None if it is not for a ring, or not allowed.
fn vector(core: &Core, member: &MemberQueue, parts: &[Item]) -> Option<Operation> {
    let raw = member.raw()?;
    let deed = match parts[0].1.operation {
        MemberOperation::Read { .. } => Deed::Read,
        MemberOperation::Write { durable, .. } => Deed::Write { durable },
        MemberOperation::Zero { .. } => return None,
    };
    if !is_for_ring(raw, deed) {
        return None;
    }
    let (offset, _) = member.range(&parts[0].1);
    let mut memory = Segments::new();
    // Every bit that is set anywhere: aligned is what all of them are.
    let (mut addresses, mut lengths, mut length_bytes) = (0, 0, 0);
    for (shard, io) in parts {
        let span = transfer(buffer_of(io), member.range(io).1);
        let lease: Lease = core.shard(*shard).memory.lease(span, deed == Deed::Read)?;
        addresses |= lease.address();
        lengths |= span.length_bytes;
        length_bytes += span.length_bytes as u64;
        memory.push(lease.into());
    }
    raw.check(deed, offset, length_bytes).ok()?;
    let file = raw.file(addresses, lengths, offset).ok()?;
    Some(match deed {
        Deed::Write { durable } => Operation::Write { file, offset, memory, durable },
        Deed::Read | Deed::Flush => Operation::Read { file, offset, memory },
    })
}

/// How a read or a write has ended, as the member sees it. What it leased is given back before anybody hears of the end.
fn ended(
    worker: &Worker,
    raw: &Raw,
    (operation, result): (Operation, io::Result<usize>),
) -> Result<(), MemberError> {
    let deed = match &operation {
        Operation::Write { durable, .. } => Deed::Write { durable: *durable },
        _ => Deed::Read,
    };
    drop(operation);
    result.map_err(|error| raw.fault(deed, error))?;
    raw.confirm(deed, worker.batch())
}

/// Has this worker drive shards that have heard something, once the others of this turn are told.
fn drive_touched(worker: &Worker, core: &Arc<Core>, touched: Touched) {
    let ring = core.ring.as_ref().expect("only workers complete anything");
    for shard in touched {
        ring.schedule_here(worker, Arc::clone(core), Machine::Shard(shard));
    }
}

impl Handler for FlightPort {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let Some(core) = self.core.upgrade() else { return };
        let Completion { token, result, operation, .. } = completion;
        let member = &core.members[usize::from(self.member.0)];
        let raw = member.raw().expect("only members with a descriptor have ports");
        let flight = member.flights.take(token);
        member.berth.leave();
        let is_refused = |error| raw.is_durable_flag_refused(error);
        if is_forced(&flight.parts[0].1) && result.as_ref().is_err_and(is_refused) {
            member.push(Work::Flight(flight));
            return core.begin_kept(member);
        }
        let lane = Lane::new(&core, member);
        match ended(worker, raw, (operation, result)) {
            Ok(()) => lane.land(flight, Ok(())),
            Err(_) if flight.parts.len() > 1 && !is_forced(&flight.parts[0].1) => {
                member.push(Work::Apart(flight));
            }
            Err(error) => lane.land(flight, Err(fault(error))),
        }
        lane.begin_kept();
        drive_touched(worker, &core, lane.into_touched());
    }

    fn wake(self: Arc<Self>, _: &Worker, _: u64) {
        unreachable!("ports are told of completions only");
    }
}

impl Handler for Core {
    fn complete(self: Arc<Self>, _: &Worker, _: Completion) {
        unreachable!("operations are submitted for ports");
    }

    fn wake(self: Arc<Self>, _: &Worker, token: u64) {
        let machine = match token {
            ARRAY => Machine::Array,
            index => Machine::Shard(ShardIndex(u16::try_from(index).expect("one of our tokens"))),
        };
        let ring = self.ring.as_ref().expect("only workers tell a core anything");
        // Before looking, so that whoever pushes from now on tells a worker again.
        ring.scheduling(machine).0.store(false, Ordering::SeqCst);
        let mut slate = Slate::take();
        slate.machines.push_back(machine);
        self.drive_here(slate);
    }
}

impl Handler for Port {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let Some(core) = self.core.upgrade() else { return };
        let Completion { token, result, operation, .. } = completion;
        let member = &core.members[usize::from(self.member.0)];
        let raw = member.raw().expect("only members with a descriptor have ports");
        let result = ended(worker, raw, (operation, result)).map_err(fault);
        member.berth.leave();
        let done = MemberIoDone { id: IoId(token), result };
        core.shard(self.shard).combiner.push(ShardEvent::MemberIo(done));
        let ring = core.ring.as_ref().expect("only workers complete anything");
        ring.schedule_here(worker, Arc::clone(&core), Machine::Shard(self.shard));
        if member.berth.has_kept() {
            core.begin_kept(member);
        }
    }

    fn wake(self: Arc<Self>, _: &Worker, _: u64) {
        unreachable!("ports are told of completions only");
    }
}

impl Handler for AlarmPort {
    fn complete(self: Arc<Self>, _: &Worker, _: Completion) {
        unreachable!("operations are submitted for ports");
    }

    fn wake(self: Arc<Self>, _: &Worker, token: u64) {
        let Some(core) = self.core.upgrade() else { return };
        core.rang(usize::try_from(token).expect("one of our tokens"));
    }

    fn forgotten(self: Arc<Self>, _: u64) {
        let Some(core) = self.core.upgrade() else { return };
        core.keep_time_without_workers();
    }
}

impl ArrayPort {
    /// Notes what a superblock tells of; what the one before it told of.
    fn keep(&self, state: Option<Arc<SuperblockState>>) -> Option<Arc<SuperblockState>> {
        std::mem::replace(&mut *self.superblock.lock().expect("noting does not panic"), state)
    }
}

impl Handler for ArrayPort {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        let Some(core) = self.core.upgrade() else { return };
        let member = &core.members[usize::from(self.member.0)];
        let raw = member.raw().expect("only members with a descriptor have ports");
        let Completion { token, result, .. } = completion;
        member.berth.end_aside();
        let is_flush = token == FLUSH;
        let state = if is_flush { None } else { self.keep(None) };
        let is_refused = |error| raw.is_durable_flag_refused(error);
        if let Some(state) = state
            && result.as_ref().is_err_and(is_refused)
        {
            return member.push(Work::Superblock(state));
        }
        let deed = if is_flush { Deed::Flush } else { Deed::Write { durable: true } };
        let is_done = result.map_err(|error| raw.fault(deed, error)).is_ok();
        core.array.push(match is_flush {
            true => ArrayEvent::Flushed(self.member, is_done),
            false => ArrayEvent::SuperblockWritten(self.member, is_done),
        });
        let ring = core.ring.as_ref().expect("only workers complete anything");
        ring.schedule_here(worker, Arc::clone(&core), Machine::Array);
    }

    fn wake(self: Arc<Self>, _: &Worker, _: u64) {
        unreachable!("ports are told of completions only");
    }
}
