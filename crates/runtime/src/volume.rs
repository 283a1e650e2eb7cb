//! The array as a client sees it: bytes to read and write, from any thread.

use std::collections::VecDeque;

use braid_engine::array::{Array, MemberId};
use braid_engine::request::{
    self, Allowed, ByteOperation, ByteRequest, Course, Denial, Fault, Next, Operation, Patch,
    Regions, Request, ShardIndex, Step, Way,
};
use braid_engine::{Counters, SitOut};
use braid_geometry::{Geometry, LogicalSector, SECTOR_BYTES};
use braid_member::DirectError;
use braid_ring::Payload;

use crate::cache::Cache;
use crate::core::{ArrayEvent, Core, Machine, ShardCell, ShardEvent};
use crate::edges::Turnstile;
use crate::open::{answers_early, dirty_sectors_max};
use crate::options::Options;
use crate::record::Recorder;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Condvar, Mutex, mpsc};

/// What a client asks. Offsets and lengths are in bytes and need no alignment.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum VolumeOperation {
    /// Fill the payload from `offset`.
    Read { offset: u64, payload: Payload },
    /// Write the payload at `offset`; `durable` before the answer.
    Write { offset: u64, payload: Payload, durable: bool },
    /// Make every write answered so far durable.
    Flush,
    /// Make a range read as zeroes. With `may_punch` space may be given back; with `fast` refuse
    /// ([`VolumeError::NotFast`]) rather than write zeroes out.
    WriteZeroes { offset: u64, length: u64, may_punch: bool, fast: bool, durable: bool },
    /// The content of a range is not needed any more.
    Trim { offset: u64, length: u64, durable: bool },
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// The array or the way it was opened does not allow writes.
    #[error("the array is read-only")]
    ReadOnly,
    /// More members failed than the level can make up for, here or altogether.
    #[error("input/output error: {0}")]
    Io(Fault),
    /// The file system below a member is full.
    #[error("no space is left below a member")]
    NoSpace,
    /// Zeroing this range would not be faster than writing zeroes.
    #[error("zeroing is not fast here")]
    NotFast,
    /// The range does not lie inside the array.
    #[error("the range lies outside the array")]
    OutOfRange,
    /// The array is being stopped.
    #[error("the array is stopping")]
    Stopping,
}

/// The end of a request.
#[derive(Debug)]
pub struct Outcome {
    /// How it went.
    pub result: Result<(), VolumeError>,
    /// The payload that came with the request.
    pub payload: Option<Payload>,
}

/// Called once, on any thread; it must not wait for the volume.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// How an array stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The superblocks say so: the next start needs no resync.
    pub clean: bool,
    /// The recording, if there is one, holds everything.
    pub recorded: bool,
}

/// A running array. Stop it with [`Volume::stop`]; dropping it stops it too.
pub struct Volume {
    engine: Engine,
    geometry: Geometry,
    read_only: bool,
    zero_is_fast: bool,
    cache: Mutex<Cache>,
    in_flight: Arc<InFlight>,
    stopping: AtomicBool,
    has_stopped: Mutex<bool>,
    through_page_cache: Vec<(usize, DirectError)>,
}

/// Requests that have not been answered, so that stopping can wait for them.
#[derive(Default)]
pub(crate) struct InFlight {
    count: Mutex<usize>,
    changed: Condvar,
}

impl InFlight {
    pub(crate) fn enter(&self) {
        *self.count.lock().expect("counting does not panic") += 1;
    }

    pub(crate) fn leave(&self) {
        let mut count = self.count.lock().expect("counting does not panic");
        *count -= 1;
        if *count == 0 && !flaw::has(Flaw::LastAnswerSilent) {
            self.changed.notify_all();
        }
    }

    pub(crate) fn wait_for_none(&self) {
        let count = self.count.lock().expect("counting does not panic");
        drop(self.changed.wait_while(count, |count| *count > 0).expect("counting does not panic"));
    }
}

impl Volume {
    pub(crate) fn new(
        core: Arc<Core>,
        geometry: Geometry,
        (options, zero_is_fast): (&Options, bool),
        through_page_cache: Vec<(usize, DirectError)>,
    ) -> Self {
        let shards = u16::try_from(core.shards.len()).expect("made from a u16");
        Self {
            engine: Engine {
                regions: Regions::new(&geometry, shards),
                core,
                turnstile: Arc::default(),
            },
            geometry,
            read_only: options.read_only,
            zero_is_fast,
            cache: Mutex::new(options.cache),
            in_flight: Arc::default(),
            stopping: AtomicBool::new(false),
            has_stopped: Mutex::new(false),
            through_page_cache,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.engine.core
    }

    /// Size in bytes, as md would show it.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.geometry.capacity_sectors() * SECTOR_BYTES
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Members that would be used past the page cache (`Direct::Auto`) if they could, by their index in the list that
    /// assembly was given; and why they cannot.
    #[must_use]
    pub fn through_page_cache(&self) -> &[(usize, DirectError)] {
        &self.through_page_cache
    }

    /// Where the array's bytes live.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What all shards have done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        let core = &self.engine.core;
        for (index, cell) in (0u16..).map(ShardIndex).zip(&core.shards) {
            let drive = || core.drive(Machine::Shard(index));
            sum.add(&cell.combiner.inspect(|shard| *shard.counters(), drive));
        }
        sum
    }

    /// How the stripe cache works.
    #[must_use]
    pub fn cache(&self) -> Cache {
        *self.cache.lock().expect("setting does not panic")
    }

    /// The stripe cache is to work like this from now on, under load or not; a cache that is to be
    /// smaller becomes so as stripes become idle. The stripe unit stays as it was.
    pub fn tune(&self, cache: Cache) {
        let mut set = self.cache.lock().expect("setting does not panic");
        *set = Cache { unit_bytes: set.unit_bytes, ..cache };
        let core = &self.engine.core;
        core.turns.set_cache(answers_early(&self.geometry, &set), dirty_sectors_max(&set));
        let tuning = set.tuning(&self.geometry, self.engine.regions.shards());
        for (index, cell) in (0u16..).map(ShardIndex).zip(&core.shards) {
            cell.combiner.push(ShardEvent::Tuning(tuning));
            core.drive(Machine::Shard(index));
        }
        // Whether there is a flusher decides what the multiplexer is if nobody has said.
        core.schedule_again();
    }

    /// When a slow member is read around.
    #[must_use]
    pub fn sit_out(&self) -> SitOut {
        *self.engine.core.sit_out.lock().expect("setting does not panic")
    }

    /// The same from now on, under load or not; whoever sits out when it is turned off comes back at once.
    pub fn set_sit_out(&self, settings: SitOut) {
        let core = &self.engine.core;
        *core.sit_out.lock().expect("setting does not panic") = settings;
        core.schedule_again();
    }

    /// Members that sit out now.
    #[must_use]
    pub fn sitting_out(&self) -> Vec<MemberId> {
        self.look_at_array(Array::sitting_out)
    }

    /// Milliseconds that members have sat out so far, all of them together.
    #[must_use]
    pub fn sat_out_ms(&self) -> u64 {
        let now = self.engine.core.clock.now();
        self.look_at_array(|array| array.sat_out_ns(now)) / 1_000_000
    }

    fn look_at_array<R>(&self, look: impl FnOnce(&Array) -> R) -> R {
        let drive = || self.engine.core.drive(Machine::Array);
        self.engine.core.array.inspect(look, drive)
    }

    /// Bytes that were answered and are not on the members.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        let core = &self.engine.core;
        let dirty = |(index, cell): (ShardIndex, &ShardCell)| {
            let drive = || core.drive(Machine::Shard(index));
            cell.combiner.inspect(|shard| shard.dirty_sectors(), drive)
        };
        (0u16..).map(ShardIndex).zip(&core.shards).map(dirty).sum::<u64>() * SECTOR_BYTES
    }

    /// How often a thread found a shard owned by another and went on.
    #[must_use]
    pub fn owner_misses(&self) -> u64 {
        self.engine.core.shards.iter().map(|cell| cell.combiner.owner_misses()).sum()
    }

    /// Number of slots without a member.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.look_at_array(Array::missing_count)
    }

    /// Asks for `operation`; `done` is called exactly once, possibly before this returns.
    ///
    /// Never waits. A write that does not begin and end at a sector has the array to itself: it begins
    /// when the changes before it have ended, and those after it when it has.
    pub fn submit(&self, operation: VolumeOperation, done: Done) {
        let was_running =
            flaw::has(Flaw::CheckBeforeCount) && !self.stopping.load(Ordering::SeqCst);
        self.in_flight.enter();
        let in_flight = Arc::clone(&self.in_flight);
        let urged = is_waited_for(&operation).then(|| Arc::clone(&self.engine.core));
        urged.as_ref().inspect(|core| core.turns.urge());
        let done: Done = Box::new(move |outcome| {
            urged.inspect(|core| core.turns.appease());
            done(outcome);
            in_flight.leave();
        });
        let (request, payload) = in_bytes(operation);
        if !was_running && self.stopping.load(Ordering::SeqCst) {
            return done(Outcome { result: Err(VolumeError::Stopping), payload });
        }
        let Some(request) = request else { return flush(&self.engine.core, done) };
        let (read_only, zero_is_fast) = (self.read_only, self.zero_is_fast);
        let allowed = Allowed { geometry: &self.geometry, read_only, zero_is_fast };
        if let Err(denial) = request::check(&request, allowed) {
            return done(Outcome { result: Err(denied(denial)), payload });
        }
        let course = Course::new(&request);
        let way = course.way();
        let walk = Walk { course, inside: way, payload, around: Payload::default(), done };
        let walk = match way {
            Some(way) => self.engine.turnstile.enter(way, walk),
            None => Some(walk),
        };
        if let Some(walk) = walk {
            self.engine.go_on(walk, Ok(()));
        }
    }

    /// [`Self::submit`], waiting for the outcome on this thread.
    pub fn call(&self, operation: VolumeOperation) -> Outcome {
        let (sender, receiver) = mpsc::channel();
        self.submit(
            operation,
            Box::new(move |outcome| sender.send(outcome).expect("the caller waits")),
        );
        receiver.recv().expect("every request is answered")
    }

    /// Refuses new requests, waits for those in flight, flushes, and leaves the superblocks clean
    /// if they can be. A second call waits for the first.
    pub fn stop(&self) -> Stopped {
        self.stopping.store(true, Ordering::SeqCst);
        self.in_flight.wait_for_none();
        let mut has_stopped = self.has_stopped.lock().expect("stopping does not panic");
        if !std::mem::replace(&mut *has_stopped, true) {
            self.engine.core.array.push(ArrayEvent::Stop);
            self.engine.core.drive(Machine::Array);
        }
        let clean = self.engine.core.end.wait();
        self.engine.core.alarm.stop();
        if !flaw::has(Flaw::MembersNotStopped) {
            self.engine.core.members.iter().for_each(|member| member.stop());
        }
        self.engine.core.end.join();
        self.engine.core.ring.as_ref().inspect(|ring| ring.stop());
        self.engine.core.watch.end();
        let recorded = self.engine.core.recorder.as_ref().is_none_or(Recorder::finish);
        Stopped { clean, recorded }
    }
}

/// A request on its course.
struct Walk {
    course: Course,
    /// How it goes through the turnstile, until it has left.
    inside: Option<Way>,
    payload: Option<Payload>,
    /// Whole sectors around bytes that do not fill them.
    around: Payload,
    done: Done,
}

/// What the steps of a request need; they are taken on whatever thread the step before ended on.
#[derive(Clone)]
struct Engine {
    core: Arc<Core>,
    regions: Regions,
    turnstile: Arc<Turnstile<Walk>>,
}

impl Engine {
    /// The step before came out as `result`: takes the next one, or answers.
    fn go_on(&self, mut walk: Walk, result: Result<(), VolumeError>) {
        match walk.course.next(result) {
            Next::Answer(result) => {
                self.leave(&mut walk);
                (walk.done)(Outcome { result, payload: walk.payload });
            }
            Next::Step(Step::Whole { operation, start, sectors }) => {
                let payload = walk.payload.take();
                self.issue((start, sectors), operation, payload, |engine, outcome| {
                    walk.payload = outcome.payload;
                    engine.go_on(walk, outcome.result);
                });
            }
            Next::Step(Step::Fetch { patch, start, sectors }) => {
                let payload = Some(zeroed(sectors));
                self.issue((start, sectors), Operation::Read, payload, move |engine, outcome| {
                    if let (Ok(()), Some(fetched)) = (outcome.result, &outcome.payload) {
                        let around = walk.around(&patch);
                        around[patch.place(start, sectors)].copy_from_slice(fetched);
                    }
                    engine.go_on(walk, outcome.result);
                });
            }
            Next::Step(Step::Take { patch }) => {
                let payload = walk.payload.as_deref_mut().expect("a read has a payload");
                payload.copy_from_slice(&walk.around[patch.middle()]);
                self.go_on(walk, Ok(()));
            }
            Next::Step(Step::Store { patch, durable }) => {
                walk.lay_over(&patch);
                let around = Some(std::mem::take(&mut walk.around));
                let range = (patch.start, patch.sectors);
                self.issue(range, Operation::Write { durable }, around, |engine, outcome| {
                    engine.go_on(walk, outcome.result);
                });
            }
            Next::Step(Step::Flush) => {
                self.leave(&mut walk);
                let engine = self.clone();
                let done = move |outcome: Outcome| engine.go_on(walk, outcome.result);
                flush(&self.core, Box::new(done));
            }
        }
    }

    fn leave(&self, walk: &mut Walk) {
        if let Some(way) = walk.inside.take() {
            self.turnstile.leave(way, |next| self.go_on(next, Ok(())));
        }
    }

    /// Gives a request in whole sectors to the engine.
    fn issue(
        &self,
        (start, sectors): (LogicalSector, u64),
        operation: Operation,
        payload: Option<Payload>,
        then: impl FnOnce(&Self, Outcome) + Send + 'static,
    ) {
        let id = self.core.requests.name();
        let pieces = self.regions.split(&Request { id, operation, start, sectors });
        let engine = self.clone();
        let completion = Box::new(move |result: Result<(), Fault>, payload| {
            then(&engine, Outcome { result: result.map_err(error), payload });
        });
        let request = self.core.requests.insert(id, Some(pieces), payload, completion);
        let mut machines = VecDeque::new();
        let answer = self.core.issue(&request, &mut machines);
        assert!(answer.is_none(), "a request that is not empty has a piece to wait for");
        drop(request);
        self.core.drive_all(machines);
    }
}

impl Walk {
    /// The memory around `patch`.
    fn around(&mut self, patch: &Patch) -> &mut [u8] {
        let length = patch.sectors * SECTOR_BYTES;
        if self.around.len() as u64 != length {
            self.around = zeroed(patch.sectors);
        }
        &mut self.around
    }

    /// Lays the payload, or zeroes, over what was fetched.
    fn lay_over(&mut self, patch: &Patch) {
        let payload = self.payload.take();
        let middle = &mut self.around(patch)[patch.middle()];
        match &payload {
            Some(bytes) => middle.copy_from_slice(bytes),
            None => middle.fill(0),
        }
        self.payload = payload;
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.stop();
    }
}

fn flush(core: &Arc<Core>, done: Done) {
    let id = core.requests.name();
    let completion = Box::new(move |result: Result<(), Fault>, payload| {
        done(Outcome { result: result.map_err(error), payload });
    });
    core.requests.insert(id, None, None, completion);
    core.array.push(ArrayEvent::FlushRequest(id));
    core.drive(Machine::Array);
}

fn error(fault: Fault) -> VolumeError {
    match fault {
        Fault::ReadOnly => VolumeError::ReadOnly,
        Fault::NoSpace => VolumeError::NoSpace,
        Fault::Unreadable | Fault::Unwritable => VolumeError::Io(fault),
    }
}

fn denied(denial: Denial) -> VolumeError {
    match denial {
        Denial::OutOfRange => VolumeError::OutOfRange,
        Denial::ReadOnly => VolumeError::ReadOnly,
        Denial::NotFast => VolumeError::NotFast,
    }
}

/// Whether somebody waits for the members to have it.
fn is_waited_for(operation: &VolumeOperation) -> bool {
    match operation {
        VolumeOperation::Flush => true,
        VolumeOperation::Read { .. } => false,
        VolumeOperation::Write { durable, .. }
        | VolumeOperation::WriteZeroes { durable, .. }
        | VolumeOperation::Trim { durable, .. } => *durable,
    }
}

/// What the engine is asked, and the payload; no request for a flush.
fn in_bytes(operation: VolumeOperation) -> (Option<ByteRequest>, Option<Payload>) {
    let (operation, offset, length, payload) = match operation {
        VolumeOperation::Flush => return (None, None),
        VolumeOperation::Read { offset, payload } => {
            (ByteOperation::Read, offset, payload.len() as u64, Some(payload))
        }
        VolumeOperation::Write { offset, payload, durable } => {
            (ByteOperation::Write { durable }, offset, payload.len() as u64, Some(payload))
        }
        VolumeOperation::WriteZeroes { offset, length, may_punch, fast, durable } => {
            (ByteOperation::WriteZeroes { may_punch, fast, durable }, offset, length, None)
        }
        VolumeOperation::Trim { offset, length, durable } => {
            (ByteOperation::Trim { durable }, offset, length, None)
        }
    };
    (Some(ByteRequest { operation, offset, length }), payload)
}

fn zeroed(sectors: u64) -> Payload {
    let bytes = usize::try_from(sectors * SECTOR_BYTES).expect("a payload fits in memory");
    Payload::zeroed(bytes)
}
