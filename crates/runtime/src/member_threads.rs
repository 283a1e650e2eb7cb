//! A queue and a few threads per member: each waits for one call to the operating system at a time.
//!
//! A member that stalls holds up its own threads and nobody else's.
//!
//! Where rings do the work a member has no thread until there is something that a ring cannot do; then it has one. If the
//! operating system has no thread to give just then, the work waits, and the alarm tries again
//! (`tests/threads.rs`: `an_array_on_rings_has_no_threads_of_its_own`). A member that may keep whoever asks has all of its
//! threads there as well, and nothing of it is for rings ([`crate::berth`]).

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::OnceLock;

use braid_dispatch::{Scheduler, Settings};
use braid_engine::array::{MemberId, SuperblockState, update_for};
use braid_engine::buffer::Buffer;
use braid_engine::effect::{MemberFault, MemberIo, MemberIoDone, MemberOperation};
use braid_engine::job::Span;
use braid_engine::request::ShardIndex;
use braid_geometry::{MemberSector, SECTOR_BYTES};
use braid_member::{Member, MemberError, MemberKind, Raw};
use braid_ondisk::{Superblock, Timestamp};
use smallvec::SmallVec;

use crate::arena::{self, ShardMemory};
use crate::berth::Berth;
use crate::core::{AbortOnPanic, ArrayEvent, Core, Machine, ShardEvent};
use crate::lane::{Flight, Item, Lane, PartLists};
use crate::places::Places;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Condvar, Mutex, Weak, thread};
use crate::telling::ToldMember;

/// Something to do with a member.
pub(crate) enum Work {
    Io(ShardIndex, MemberIo),
    Flight(Flight),
    /// One that failed as a whole: each part by itself.
    Apart(Flight),
    Flush,
    Superblock(Arc<SuperblockState>),
    /// Whether it is still there.
    Look,
}

/// One member and what is to be done with it.
pub(crate) struct MemberQueue {
    id: MemberId,
    device: Box<dyn Member>,
    raw: Option<Raw>,
    /// What stands before it.
    pub(crate) scheduler: Scheduler<Item>,
    /// What it has on a ring.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) flights: Places<Flight>,
    /// The same, of what is being zeroed.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) zeroings: Places<Flight>,
    pub(crate) part_lists: PartLists,
    slot: Option<u16>,
    data_offset_bytes: u64,
    recovered_sectors: u64,
    superblock: Mutex<Superblock>,
    /// Its place at the rings.
    pub(crate) berth: Berth<Work>,
    queue: Queue<Work>,
    crew: Crew,
    /// Whom its threads serve.
    core: OnceLock<Weak<Core>>,
}

/// A member's threads.
struct Crew {
    /// How many there are.
    count: AtomicUsize,
    /// How many are started where rings cannot be used.
    count_max: usize,
    /// A look is in the queue, or under way.
    is_looking: AtomicBool,
}

/// Work that waits for a thread.
pub(crate) struct Queue<W> {
    state: Mutex<QueueState<W>>,
    changed: Condvar,
}

struct QueueState<W> {
    work: VecDeque<W>,
    stopped: bool,
}

impl<W> Queue<W> {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(QueueState { work: VecDeque::new(), stopped: false });
        Self { state, changed: Condvar::new() }
    }

    pub(crate) fn push(&self, work: W) {
        self.state.lock().expect("queueing does not panic").work.push_back(work);
        self.changed.notify_one();
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().expect("queueing does not panic").work.is_empty()
    }

    /// Whether the threads are to end.
    fn is_stopped(&self) -> bool {
        self.state.lock().expect("queueing does not panic").stopped
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().expect("queueing does not panic").stopped = true;
        self.changed.notify_all();
    }

    /// Waits for work; `None` once the queue is stopped and empty.
    pub(crate) fn next(&self) -> Option<W> {
        let state = self.state.lock().expect("queueing does not panic");
        let idle = |state: &mut QueueState<W>| state.work.is_empty() && !state.stopped;
        let waited = self.changed.wait_while(state, idle);
        let mut state = waited.expect("queueing does not panic");
        if state.stopped && flaw::has(Flaw::QueueEndsEarly) {
            return None;
        }
        state.work.pop_front()
    }
}

impl MemberQueue {
    pub(crate) fn new(
        id: MemberId,
        device: Box<dyn Member>,
        superblock: Superblock,
        (slot, recovered_sectors): (Option<u16>, u64),
        threads_max: usize,
    ) -> Self {
        let identity = device.identity();
        Self {
            id,
            berth: Berth::new(identity.queue_requests, identity.is_answered_outside),
            scheduler: Scheduler::new(Settings::straight()),
            flights: Places::default(),
            part_lists: PartLists::default(),
            zeroings: Places::default(),
            slot,
            raw: device.raw(),
            device,
            data_offset_bytes: superblock.device.data_offset_sectors * SECTOR_BYTES,
            recovered_sectors,
            superblock: Mutex::new(superblock),
            queue: Queue::new(),
            crew: Crew {
                count: AtomicUsize::new(0),
                count_max: threads_max,
                is_looking: AtomicBool::new(false),
            },
            core: OnceLock::new(),
        }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    /// The slot that it occupies.
    pub(crate) fn slot(&self) -> Option<u16> {
        self.slot
    }

    /// Whether the device turns, if it says so.
    pub(crate) fn rotational(&self) -> Option<bool> {
        self.device.identity().rotational
    }

    /// Whether what is asked reaches a device that turns. One that says nothing does not turn; and behind the page cache
    /// the kernel decides what reaches the device when, so that an order here would only hold back copies of memory.
    pub(crate) fn turns(&self) -> bool {
        self.rotational() == Some(true) && self.device.is_direct()
    }

    /// The array reads around the member from now on, or does not any more. A file system on a disk that is slow may keep
    /// whoever asks while it looks up where a file's bytes are; a device only takes what is asked, and as much at once as ever.
    pub(crate) fn set_sits_out(&self, sits_out: bool) {
        if self.device.identity().kind == MemberKind::File {
            self.berth.set_sits_out(sits_out);
        }
    }

    /// Leaves work for the member's threads, of which there is one at least from then on.
    pub(crate) fn push(&self, work: Work) {
        self.queue.push(work);
        self.man_if_needed();
    }

    /// Starts a thread if there is work and none to do it.
    pub(crate) fn man_if_needed(&self) {
        // One does what a ring cannot do; what is not for rings at all has all of them.
        let wanted = if self.berth.is_suspect() { self.crew.count_max } else { 1 };
        if self.crew.count.load(Ordering::Acquire) >= wanted || self.queue.is_empty() {
            return;
        }
        let Some(core) = self.core.get().and_then(Weak::upgrade) else { return };
        // If there is none to be had, the alarm tries again.
        let _ = self.man(&core, wanted);
    }

    /// Starts threads until there are so many, unless the member was stopped: nobody would wait for them, and they would
    /// keep the device open. What is left for them then is nobody's, as a read that was forsaken is.
    ///
    /// # Errors
    /// One could not be started.
    pub(crate) fn man(&self, core: &Arc<Core>, count: usize) -> io::Result<()> {
        let mut threads = core.end.threads.lock().expect("starting does not panic");
        // Stopping comes before threads are taken out to be waited for: one that is started in spite of it is among them.
        if self.queue.is_stopped() {
            return Ok(());
        }
        for _ in self.crew.count.load(Ordering::Acquire)..count {
            let member = Arc::clone(&core.members[usize::from(self.id.0)]);
            let core = Arc::downgrade(core);
            let body = move || run(&core, &member);
            threads.push(thread::Builder::new().name("braid-member".into()).spawn(body)?);
            self.crew.count.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Says whom its threads are to serve.
    pub(crate) fn connect(&self, core: &Arc<Core>) {
        let is_first = self.core.set(Arc::downgrade(core)).is_ok();
        assert!(is_first, "a core is connected once");
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.queue.stop();
    }

    /// [`Member::hole_at`] of a range of the data area; in sectors, of which one that is only part of a hole is none.
    pub(crate) fn hole_at(&self, start: MemberSector, sectors: u64) -> (bool, u64) {
        let offset_bytes = self.data_offset_bytes + start.0 * SECTOR_BYTES;
        let (is_hole, bytes) = self.device.hole_at(offset_bytes, sectors * SECTOR_BYTES);
        match bytes / SECTOR_BYTES {
            0 => (false, 1),
            whole => (is_hole, whole.min(sectors)),
        }
    }

    /// Tells the array if the device's name leads nowhere any more. Asks the file system, which may keep whoever asks.
    pub(crate) fn look(&self, core: &Arc<Core>) {
        let has_vanished = self.device.has_vanished();
        self.crew.is_looking.store(false, Ordering::Release);
        if has_vanished {
            core.array.push(ArrayEvent::MemberLost(self.id));
            core.drive(Machine::Array);
        }
    }

    /// Whether it has been asked for something that has not ended.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.berth.is_busy() || self.crew.is_looking.load(Ordering::Acquire)
    }

    /// Has one of the member's threads do that, unless one is about to.
    pub(crate) fn look_by_thread(&self) {
        if !self.crew.is_looking.swap(true, Ordering::AcqRel) {
            self.push(Work::Look);
        }
    }

    /// The device's open file, if it has one.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) fn raw(&self) -> Option<&Raw> {
        self.raw.as_ref()
    }

    /// Whether carrying something out never waits. In models it may, so that there are more schedules.
    pub(crate) fn is_memory(&self) -> bool {
        self.device.is_memory() && !cfg!(shuttle)
    }

    /// Where on the device an operation's bytes are, and how many.
    pub(crate) fn range(&self, io: &MemberIo) -> (u64, u64) {
        let offset_bytes = self.data_offset_bytes + io.sector.0 * SECTOR_BYTES;
        (offset_bytes, u64::from(io.sectors) * SECTOR_BYTES)
    }

    pub(crate) fn perform(
        &self,
        core: &Core,
        shard: ShardIndex,
        io: &MemberIo,
    ) -> Result<(), MemberError> {
        let memory = &core.shard(shard).memory;
        let (offset_bytes, length_bytes) = self.range(io);
        let span = |buffer| transfer(buffer, length_bytes);
        match io.operation {
            MemberOperation::Read { buffer } => {
                let read = |bytes: &mut [u8]| self.device.read_at(bytes, offset_bytes);
                // A read that was forsaken has nobody to read for.
                memory.write(span(buffer), read).unwrap_or(Ok(()))
            }
            MemberOperation::Write { buffer, durable } => {
                let write = |bytes: &[u8]| self.device.write_at(bytes, offset_bytes, durable);
                memory.read(span(buffer), write)
            }
            MemberOperation::Zero { may_punch, durable } => {
                self.device.zero(offset_bytes, length_bytes, may_punch)?;
                if durable { self.device.flush() } else { Ok(()) }
            }
        }
    }

    /// Adjacent parts of one kind in one call.
    pub(crate) fn perform_vector(&self, core: &Core, parts: &[Item]) -> Result<(), MemberError> {
        let spans = |buffer_of: fn(&MemberIo) -> Buffer| -> SmallVec<[(&ShardMemory, Span); 16]> {
            let span = |(shard, io): &Item| {
                let memory = &core.shard(*shard).memory;
                (memory, transfer(buffer_of(io), self.range(io).1))
            };
            parts.iter().map(span).collect()
        };
        let (offset_bytes, _) = self.range(&parts[0].1);
        match parts[0].1.operation {
            MemberOperation::Read { .. } => {
                let read = |buffers: &mut [IoSliceMut<'_>]| {
                    self.device.read_vectored_at(buffers, offset_bytes)
                };
                // Some of them may have nobody to read for any more; each by itself, it shows.
                arena::write_all(&spans(buffer_of), read).unwrap_or(Err(MemberError::Truncated))
            }
            MemberOperation::Write { durable, .. } => {
                arena::read_all(&spans(buffer_of), |buffers| {
                    self.device.write_vectored_at(buffers, offset_bytes, durable)
                })
            }
            MemberOperation::Zero { .. } => panic!("zeroing is not merged"),
        }
    }

    /// Flushes it; what the array is to hear.
    pub(crate) fn flush(&self) -> ArrayEvent {
        ArrayEvent::Flushed(self.id, self.device.flush().is_ok())
    }

    /// Writes its superblock; what the array is to hear.
    pub(crate) fn write_superblock(&self, state: &SuperblockState, time: Timestamp) -> ArrayEvent {
        let (bytes, offset_bytes) = self.next_superblock(state, time);
        let written = self.device.write_at(&bytes, offset_bytes, true);
        ArrayEvent::SuperblockWritten(self.id, written.is_ok())
    }

    /// What it is in the array, for whoever keeps a record.
    pub(crate) fn told_member(&self, slot: u16) -> ToldMember {
        let superblock = self.superblock.lock().expect("writing does not panic");
        ToldMember { slot, number: superblock.device.number, uuid: superblock.device.uuid }
    }

    /// The superblock that tells of `state`, and where on the device it belongs. To be written durably, one at a time.
    pub(crate) fn next_superblock(
        &self,
        state: &SuperblockState,
        time: Timestamp,
    ) -> (Vec<u8>, u64) {
        let mut superblock = self.superblock.lock().expect("writing does not panic");
        let update = update_for(&superblock, self.id, self.recovered_sectors, state, time);
        superblock.apply(&update);
        (superblock.to_bytes(), superblock.offset_bytes())
    }
}

/// Where a transfer's bytes are.
pub(crate) fn buffer_of(io: &MemberIo) -> Buffer {
    match io.operation {
        MemberOperation::Read { buffer } | MemberOperation::Write { buffer, .. } => buffer,
        MemberOperation::Zero { .. } => panic!("zeroing moves no bytes"),
    }
}

/// The memory of a transfer.
pub(crate) fn transfer(buffer: Buffer, length_bytes: u64) -> Span {
    let length_bytes = usize::try_from(length_bytes).expect("addresses have 64 bits here");
    Span { buffer, length_bytes }
}

pub(crate) fn fault(error: MemberError) -> MemberFault {
    match error {
        MemberError::Gone | MemberError::Truncated => MemberFault::Gone,
        MemberError::OutOfSpace | MemberError::FileTooLong => MemberFault::NoSpace,
        MemberError::Media { .. }
        | MemberError::OutOfBounds { .. }
        | MemberError::ReadOnly
        | MemberError::FlushFailedBefore
        | MemberError::Injected => MemberFault::Media,
    }
}

/// Has `carry_out` done at a member, and drives whoever hears of it.
fn fly(core: &Arc<Core>, member: &MemberQueue, carry_out: impl FnOnce(&Lane<'_>)) {
    // The member's scheduler is a machine as well.
    let _guard = AbortOnPanic::new();
    let lane = Lane::new(core, member);
    carry_out(&lane);
    lane.into_touched().into_iter().for_each(|shard| core.drive(Machine::Shard(shard)));
}

/// A thread's body: works the queue until it is stopped.
pub(crate) fn run(core: &Weak<Core>, member: &MemberQueue) {
    while let Some(work) = member.queue.next() {
        let Some(core) = core.upgrade() else { return };
        if matches!(work, Work::Look) {
            member.look(&core);
            continue;
        }
        member.berth.begin_aside();
        match work {
            Work::Io(shard, io) => {
                let result = member.perform(&core, shard, &io).map_err(fault);
                let done = MemberIoDone { id: io.id, result };
                core.shard(shard).combiner.push(ShardEvent::MemberIo(done));
                core.drive(Machine::Shard(shard));
            }
            Work::Flight(flight) => fly(&core, member, |lane| lane.perform(flight)),
            Work::Apart(flight) => fly(&core, member, |lane| lane.perform_apart(flight)),
            Work::Flush => {
                core.array.push(member.flush());
                core.drive(Machine::Array);
            }
            Work::Superblock(state) => {
                let time = core.telling.time_of(state.events);
                core.array.push(member.write_superblock(&state, time));
                core.drive(Machine::Array);
            }
            Work::Look => unreachable!("looks are no requests"),
        }
        member.berth.end_aside();
    }
}
