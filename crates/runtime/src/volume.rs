//! The array as a client sees it: bytes to read and write, from any thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;

use braid_engine::Counters;
use braid_engine::request::{Fault, Operation, Regions, Request};
use braid_geometry::{Family, Geometry, LogicalSector, SECTOR_BYTES};

use crate::core::{ArrayEvent, Core, Machine};
use crate::edges::Turnstile;

/// What a client asks. Offsets and lengths are in bytes and need no alignment.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum VolumeOperation {
    /// Fill the payload from `offset`.
    Read { offset: u64, payload: Box<[u8]> },
    /// Write the payload at `offset`; `durable` before the answer.
    Write { offset: u64, payload: Box<[u8]>, durable: bool },
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
    pub payload: Option<Box<[u8]>>,
}

/// Called once, on any thread; it must not wait for the volume.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// How an array stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The superblocks say so: the next start needs no resync.
    pub clean: bool,
}

/// A running array. Stop it with [`Volume::stop`]; dropping it stops it too.
pub struct Volume {
    core: Arc<Core>,
    geometry: Geometry,
    regions: Regions,
    read_only: bool,
    zero_is_fast: bool,
    turnstile: Arc<Turnstile>,
    in_flight: Arc<InFlight>,
    stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Requests that have not been answered, so that stopping can wait for them.
#[derive(Default)]
struct InFlight {
    count: Mutex<usize>,
    changed: Condvar,
}

impl InFlight {
    fn enter(&self) {
        *self.count.lock().expect("counting does not panic") += 1;
    }

    fn leave(&self) {
        let mut count = self.count.lock().expect("counting does not panic");
        *count -= 1;
        if *count == 0 {
            self.changed.notify_all();
        }
    }

    fn wait_for_none(&self) {
        let count = self.count.lock().expect("counting does not panic");
        drop(self.changed.wait_while(count, |count| *count > 0).expect("counting does not panic"));
    }
}

impl Volume {
    pub(crate) fn new(
        core: Arc<Core>,
        geometry: Geometry,
        (read_only, zero_is_fast): (bool, bool),
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        let shards = u16::try_from(core.shards.len()).expect("made from a u16");
        Self {
            regions: Regions::new(&geometry, shards),
            core,
            geometry,
            read_only,
            zero_is_fast,
            turnstile: Arc::default(),
            in_flight: Arc::default(),
            stopping: AtomicBool::new(false),
            threads: Mutex::new(threads),
        }
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

    /// Where the array's bytes live.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What all shards have done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for cell in &self.core.shards {
            sum.add(&cell.combiner.inspect(|shard| *shard.counters()));
        }
        sum
    }

    /// How often a thread found a shard owned by another and went on.
    #[must_use]
    pub fn owner_misses(&self) -> u64 {
        self.core.shards.iter().map(|cell| cell.combiner.owner_misses()).sum()
    }

    /// Number of slots without a member.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.core.array.inspect(braid_engine::array::Array::missing_count)
    }

    /// Asks for `operation`; `done` is called exactly once, possibly before this returns.
    ///
    /// Aligned requests never wait here. A write that does not begin and end at a sector is done on
    /// the caller's thread, with the array to itself.
    pub fn submit(&self, operation: VolumeOperation, done: Done) {
        self.in_flight.enter();
        let in_flight = Arc::clone(&self.in_flight);
        let done: Done = Box::new(move |outcome| {
            done(outcome);
            in_flight.leave();
        });
        if let Err(error) = self.check(&operation) {
            let payload = payload_of(operation);
            return done(Outcome { result: Err(error), payload });
        }
        match operation {
            VolumeOperation::Read { offset, payload } => self.read(offset, payload, done),
            VolumeOperation::Write { offset, payload, durable } => {
                self.write(offset, payload, durable, done);
            }
            VolumeOperation::Flush => self.flush(done),
            VolumeOperation::WriteZeroes { offset, length, may_punch, durable, .. } => {
                self.write_zeroes((offset, length), may_punch, durable, done);
            }
            VolumeOperation::Trim { offset, length, durable } => {
                self.trim((offset, length), durable, done);
            }
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
        let mut threads = self.threads.lock().expect("stopping does not panic");
        if !threads.is_empty() {
            self.core.array.push(ArrayEvent::Stop);
            self.core.drive(Machine::Array);
        }
        let clean = self.core.end.wait();
        self.core.alarm.stop();
        for member in &self.core.members {
            member.stop();
        }
        for thread in threads.drain(..) {
            thread.join().expect("a worker does not panic");
        }
        self.core.watch.end();
        Stopped { clean }
    }

    fn check(&self, operation: &VolumeOperation) -> Result<(), VolumeError> {
        let (offset, length, writes) = match operation {
            VolumeOperation::Read { offset, payload } => (*offset, payload.len() as u64, false),
            VolumeOperation::Write { offset, payload, .. } => (*offset, payload.len() as u64, true),
            VolumeOperation::Flush => (0, 0, false),
            VolumeOperation::WriteZeroes { offset, length, .. }
            | VolumeOperation::Trim { offset, length, .. } => (*offset, *length, true),
        };
        if self.stopping.load(Ordering::SeqCst) {
            return Err(VolumeError::Stopping);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes()) {
            return Err(VolumeError::OutOfRange);
        }
        if writes && self.read_only {
            return Err(VolumeError::ReadOnly);
        }
        match operation {
            VolumeOperation::WriteZeroes { fast: true, .. } if !self.is_fast(offset, length) => {
                Err(VolumeError::NotFast)
            }
            _ => Ok(()),
        }
    }

    /// Whether a range can be zeroed without writing zeroes: by members that can, in units whose
    /// parity becomes zero with them.
    fn is_fast(&self, offset: u64, length: u64) -> bool {
        let unit = match &self.geometry {
            Geometry::Stripe(stripe) => {
                u64::from(stripe.data_slots()) * u64::from(stripe.chunk_sectors()) * SECTOR_BYTES
            }
            Geometry::Direct(_) | Geometry::Mirror(_) => SECTOR_BYTES,
        };
        self.zero_is_fast && offset.is_multiple_of(unit) && length.is_multiple_of(unit)
    }

    fn read(&self, offset: u64, payload: Box<[u8]>, done: Done) {
        let length = payload.len();
        if is_aligned(offset) && is_aligned(length as u64) {
            return self.issue((offset, length as u64), Operation::Read, Some(payload), done);
        }
        // Whole sectors around it, and the middle of them copied out.
        let (start, end) = sectors_around(offset, length as u64);
        let around = zeroed(end - start);
        let skip = to_usize(offset - start);
        let finish: Done = Box::new(move |outcome| {
            let mut payload = payload;
            if let (Ok(()), Some(around)) = (outcome.result, &outcome.payload) {
                payload.copy_from_slice(&around[skip..skip + length]);
            }
            done(Outcome { result: outcome.result, payload: Some(payload) });
        });
        self.issue((start, end - start), Operation::Read, Some(around), finish);
    }

    fn write(&self, offset: u64, payload: Box<[u8]>, durable: bool, done: Done) {
        if is_aligned(offset) && is_aligned(payload.len() as u64) {
            let range = (offset, payload.len() as u64);
            return self.change(range, Operation::Write { durable }, Some(payload), done);
        }
        let result = self.turnstile.alone(|| self.patch(offset, &payload, durable));
        done(Outcome { result, payload: Some(payload) });
    }

    fn write_zeroes(
        &self,
        (offset, length): (u64, u64),
        may_punch: bool,
        durable: bool,
        done: Done,
    ) {
        let operation = Operation::WriteZeroes { may_punch, durable: false };
        let (start, end) = sectors_inside(offset, length);
        if (start, end) == (offset, offset + length) {
            let done = if durable { self.flush_after(done) } else { done };
            return self.change((offset, length), operation, None, done);
        }
        let result = self.turnstile.alone(|| {
            if start >= end {
                return self.patch(offset, &zeroed(length), durable);
            }
            self.patch(offset, &zeroed(start - offset), durable)?;
            self.patch(end, &zeroed(offset + length - end), durable)?;
            self.call_engine((start, end - start), operation, None).result
        });
        let done = if durable { self.flush_after(done) } else { done };
        done(Outcome { result, payload: None });
    }

    fn trim(&self, (offset, length): (u64, u64), durable: bool, done: Done) {
        let (start, end) = sectors_inside(offset, length);
        if start >= end {
            return done(Outcome { result: Ok(()), payload: None });
        }
        let done = if durable { self.flush_after(done) } else { done };
        self.change((start, end - start), Operation::Trim, None, done);
    }

    /// One flush at the end makes a whole change durable; members are flushed once, not per piece.
    fn flush_after(&self, done: Done) -> Done {
        let core = Arc::clone(&self.core);
        Box::new(move |outcome| match outcome.result {
            Ok(()) => flush(&core, done),
            Err(_) => done(outcome),
        })
    }

    fn flush(&self, done: Done) {
        flush(&self.core, done);
    }

    /// Writes bytes that do not fill their first and last sector. Only while no other write is in.
    fn patch(&self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), VolumeError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, end) = sectors_around(offset, bytes.len() as u64);
        let range = (start, end - start);
        let read = self.call_engine(range, Operation::Read, Some(zeroed(end - start)));
        read.result?;
        let mut around = read.payload.expect("a read gives its payload back");
        let skip = to_usize(offset - start);
        around[skip..skip + bytes.len()].copy_from_slice(bytes);
        self.call_engine(range, Operation::Write { durable }, Some(around)).result
    }

    fn call_engine(
        &self,
        range: (u64, u64),
        operation: Operation,
        payload: Option<Box<[u8]>>,
    ) -> Outcome {
        let (sender, receiver) = mpsc::channel();
        let done: Done = Box::new(move |outcome| sender.send(outcome).expect("the caller waits"));
        self.issue(range, operation, payload, done);
        receiver.recv().expect("every request is answered")
    }

    /// An aligned change, let in beside others of its kind.
    fn change(
        &self,
        range: (u64, u64),
        operation: Operation,
        payload: Option<Box<[u8]>>,
        done: Done,
    ) {
        self.turnstile.enter();
        let turnstile = Arc::clone(&self.turnstile);
        let done: Done = Box::new(move |outcome| {
            turnstile.leave();
            done(outcome);
        });
        self.issue(range, operation, payload, done);
    }

    /// Gives an aligned request to the engine.
    fn issue(
        &self,
        (offset, length): (u64, u64),
        operation: Operation,
        payload: Option<Box<[u8]>>,
        done: Done,
    ) {
        if length == 0 {
            return done(Outcome { result: Ok(()), payload });
        }
        let id = self.core.requests.name();
        let request = Request {
            id,
            operation,
            start: LogicalSector(offset / SECTOR_BYTES),
            sectors: length / SECTOR_BYTES,
        };
        let pieces = self.regions.split(&request);
        let completion = Box::new(move |result: Result<(), Fault>, payload| {
            done(Outcome { result: result.map_err(error), payload });
        });
        let request = self.core.requests.insert(id, Some(pieces), payload, completion);
        let mut machines = VecDeque::new();
        let answer = self.core.issue(&request, &mut machines);
        assert!(answer.is_none(), "a request that is not empty has a piece to wait for");
        drop(request);
        self.core.drive_all(machines);
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

fn payload_of(operation: VolumeOperation) -> Option<Box<[u8]>> {
    match operation {
        VolumeOperation::Read { payload, .. } | VolumeOperation::Write { payload, .. } => {
            Some(payload)
        }
        VolumeOperation::Flush
        | VolumeOperation::WriteZeroes { .. }
        | VolumeOperation::Trim { .. } => None,
    }
}

fn is_aligned(bytes: u64) -> bool {
    bytes.is_multiple_of(SECTOR_BYTES)
}

/// The whole sectors that a range touches.
fn sectors_around(offset: u64, length: u64) -> (u64, u64) {
    (offset / SECTOR_BYTES * SECTOR_BYTES, (offset + length).next_multiple_of(SECTOR_BYTES))
}

/// The whole sectors inside a range; the end may lie before the start when there are none.
fn sectors_inside(offset: u64, length: u64) -> (u64, u64) {
    (offset.next_multiple_of(SECTOR_BYTES), (offset + length) / SECTOR_BYTES * SECTOR_BYTES)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a payload fits in memory")
}

fn zeroed(bytes: u64) -> Box<[u8]> {
    vec![0; to_usize(bytes)].into_boxed_slice()
}

/// Whether an array of this geometry keeps anything in its superblocks while it is written.
pub(crate) fn keeps_intent(geometry: &Geometry) -> bool {
    geometry.level().family() != Family::Direct
}
