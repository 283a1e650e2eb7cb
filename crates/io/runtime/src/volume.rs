//! The array as a client sees it: bytes to read and write, from any thread.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use arc_swap::ArcSwap;
use braid_assembly::AssembledArray;
use braid_elevator::Slice;
use braid_engine::array::{
    Array, ArrayView, BitmapLook, JobProgress, JobRequest, JournalLook, MemberId, Notice,
    ReadErrors, ShapeRefusal,
};
use braid_engine::request::{self, ByteOperation, ByteRequest, Denial, RequestLimits, ShardIndex};
use braid_engine::{CacheMode, Counters, Patience, ReadErrorLimit, Shard, SitOut, Tuning};
use braid_geometry::{Geometry, SECTOR_BYTES};
use braid_member::{DirectError, Member};
use braid_pace::{GovernorSettings, GovernorState};
use braid_ring::Payload;

use crate::cache::Cache;
use crate::core::{AbortOnPanic, Core};
use crate::direct_change::DirectChange;
use crate::events::{ArrayEvent, Machine};
use crate::executor::submitter::Submitter;
use crate::log;
use crate::members::handle::MemberHandle;
use crate::open_member::{OpenError, OpenMember};
use crate::options::Options;
use crate::pending_request::{Client, OutcomeReceiver, Resumption};
use crate::scheduling::{ElevatorState, Scheduling};
use crate::scratch::DriveScratch;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Mutex};
use crate::updates::RecordedUpdate;
use crate::waiter;
use braid_ring::client::{ClientRequest, Completion, Outcome, RequestError};

/// How an array stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopResult {
    /// Whether the superblocks are clean, so that the next start needs no resync.
    pub clean: bool,
}

/// A running array. [`Volume::stop`] stops it, and so does dropping it.
///
/// A change of shape stops the machines and opens the array anew ([`Self::reopen`]). Requests that
/// arrive meanwhile wait in the volume.
pub struct Volume {
    pub(crate) opened: ArcSwap<Opened>,
    /// Requests that clients sent while the array was being opened anew.
    parked: Mutex<VecDeque<(ClientRequest, OutcomeReceiver)>>,
    /// Held while the array is stopped or opened anew, and while its end or its shape changes.
    pub(crate) changing: Mutex<()>,
    /// The sector at which the array ends for clients; [`WHOLE`] for its own end.
    ends_at_sector: AtomicU64,
    /// The superblocks that the next [`Self::reopen`] writes, in an array without redundancy.
    pub(crate) direct_change: Mutex<Option<DirectChange>>,
}

/// The array ends for clients where its geometry ends.
const WHOLE: u64 = u64::MAX;

/// A member of an array whose machines have stopped.
pub struct StoppedMember {
    /// The member's path, as the caller gave it.
    pub path: PathBuf,
    /// The device, open as before.
    pub device: Arc<dyn Member>,
}

/// An array with its members, assembled again after a change of shape.
pub struct Reassembled {
    /// The array.
    pub array: AssembledArray,
    /// The members, by their index in the input of assembly.
    pub members: Vec<Option<OpenMember>>,
}

/// The array as it was last opened.
pub(crate) struct Opened {
    core: Arc<Core>,
    geometry: Arc<Geometry>,
    read_only: bool,
    zero_is_fast: bool,
    cache: Mutex<Cache>,
    /// The options as the caller gave them.
    options: Options,
    /// The cache's mode that the operator chose; during a reshape no write is acknowledged early.
    wanted_mode: Mutex<CacheMode>,
    /// Stripes of each shard that the reserved memory can hold.
    stripes_max: u32,
    /// Whether requests are still taken: running, replaced or stopping.
    state: AtomicU8,
    has_stopped: Mutex<bool>,
    through_page_cache: Vec<(usize, DirectError)>,
}

/// Requests are taken.
const RUNNING: u8 = 0;
/// A successor serves the array or will: the array was opened anew, or is being opened.
const REPLACED: u8 = 1;
/// The array takes no more requests.
const STOPPING: u8 = 2;

impl Opened {
    pub(crate) fn new(
        core: Arc<Core>,
        geometry: Geometry,
        (options, zero_is_fast, stripes_max): (&Options, bool, u32),
        wanted: Options,
        through_page_cache: Vec<(usize, DirectError)>,
    ) -> Self {
        Self {
            core,
            read_only: options.read_only,
            zero_is_fast,
            cache: Mutex::new(options.cache.in_force(&geometry, options.shards)),
            wanted_mode: Mutex::new(wanted.cache.mode),
            options: wanted,
            stripes_max,
            geometry: Arc::new(geometry),
            state: AtomicU8::new(RUNNING),
            has_stopped: Mutex::new(false),
            through_page_cache,
        }
    }

    fn keep_record(&self, keeper: Option<Box<dyn Fn(u64) + Send>>) {
        let keeps = keeper.is_some();
        self.core.updates.set_keeper(keeper);
        self.core.array.push(ArrayEvent::KeepsRecord(keeps));
        self.core.drive(Machine::Array);
    }

    fn request_limits(&self, ends_at_sector: u64) -> RequestLimits<'_> {
        let (read_only, zero_is_fast) = (self.read_only, self.zero_is_fast);
        let sectors = self.geometry.capacity_sectors().min(ends_at_sector);
        let size_bytes = sectors * SECTOR_BYTES;
        RequestLimits { geometry: &self.geometry, size_bytes, read_only, zero_is_fast }
    }

    /// Waits for requests in flight, flushes, and leaves the superblocks clean if possible.
    fn stop(&self) -> StopResult {
        self.core.clients.in_flight.wait_for_none();
        let mut has_stopped = self.has_stopped.lock().expect("stopping does not panic");
        if !std::mem::replace(&mut *has_stopped, true) {
            self.core.array.push(ArrayEvent::Stop);
            self.core.drive(Machine::Array);
        }
        let clean = self.core.end.wait();
        self.core.alarm.stop();
        self.core.end.stop_hearing();
        self.give_up_left();
        if !flaw::has(Flaw::MembersNotStopped) {
            self.core.members.stop();
        }
        self.core.members.join();
        self.core.end.join();
        self.core.unregister_members();
        self.core.workers.as_ref().inspect(|drivers| drivers.stop());
        self.core.watch.end();
        StopResult { clean }
    }

    /// Ends the requests of members that are not in the array: their hosts may stay away.
    fn give_up_left(&self) {
        let core = &self.core;
        let is_in = core.array.inspect(Array::members, || core.drive(Machine::Array));
        let members = self.core.members.load();
        let left = members.iter().filter(|member| !is_in.contains(&member.id()));
        left.for_each(|member| member.device.give_up());
    }
}

impl Volume {
    pub(crate) fn new(opened: Opened) -> Self {
        let (parked, changing, direct_change) = Default::default();
        let ends_at_sector = AtomicU64::new(WHOLE);
        let opened = ArcSwap::from_pointee(opened);
        Self { opened, parked, changing, ends_at_sector, direct_change }
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.opened.load().core)
    }

    /// Size in bytes, as clients see it.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.opened.load().request_limits(self.ends_at()).size_bytes
    }

    /// Size in bytes of the whole array, as md would show it. Clients may see less
    /// ([`Self::end_at`]).
    #[must_use]
    pub fn whole_size_bytes(&self) -> u64 {
        self.opened.load().request_limits(WHOLE).size_bytes
    }

    /// The sector at which the array ends for clients; `None` for its own end.
    #[must_use]
    pub fn end_sector(&self) -> Option<u64> {
        Some(self.ends_at()).filter(|sector| *sector != WHOLE)
    }

    /// Lets the array end at a sector for clients, or with `None` at its own end. Nothing changes
    /// on members. Requests that began before are not cut.
    ///
    /// # Errors
    /// A change of shape is being recorded: it may take the sectors behind the end.
    pub fn end_at(&self, sector: Option<u64>) -> Result<(), ShapeRefusal> {
        let _one = self.changing.lock().expect("setting does not panic");
        if self.look_at_array(Array::may_change_shape) == Err(ShapeRefusal::Changing) {
            return Err(ShapeRefusal::Changing);
        }
        self.ends_at_sector.store(sector.unwrap_or(WHOLE), Ordering::SeqCst);
        Ok(())
    }

    fn ends_at(&self) -> u64 {
        self.ends_at_sector.load(Ordering::SeqCst)
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.opened.load().read_only
    }

    /// Members that `Direct::Auto` left in the page cache, each with its index in the input of
    /// assembly and the reason.
    #[must_use]
    pub fn through_page_cache(&self) -> Vec<(usize, DirectError)> {
        self.opened.load().through_page_cache.clone()
    }

    /// Places of the array's bytes on its members.
    #[must_use]
    pub fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(&self.opened.load().geometry)
    }

    /// The unit in bytes that is best written, zeroed and trimmed as a whole: a chunk row with
    /// parity, otherwise a sector.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        request::unit_bytes(&self.opened.load().geometry)
    }

    /// Whether all of a range can be zeroed without writing zeroes, as the `fast` flag demands.
    #[must_use]
    pub fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        let operation = ByteOperation::WriteZeroes { may_punch: true, fast: true, durable: false };
        let request = ByteRequest { operation, offset, length };
        request::check(&request, self.opened.load().request_limits(self.ends_at()))
            != Err(Denial::NotFast)
    }

    /// The counters of all shards.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        let core = &self.core();
        for (index, cell) in (0u16..).map(ShardIndex).zip(&core.shards) {
            let drive = || core.drive(Machine::Shard(index));
            sum.add(&cell.combiner.inspect(|shard| *shard.counters(), drive));
        }
        sum
    }

    /// Settings of the stripe cache.
    #[must_use]
    pub fn cache(&self) -> Cache {
        *self.opened.load().cache.lock().expect("setting does not panic")
    }

    /// Bounds for tuning the memory of the stripe cache. The memory reserved at the start is the
    /// limit.
    #[must_use]
    pub fn cache_range(&self) -> RangeInclusive<u64> {
        let opened = self.opened.load();
        let shards = opened.core.clients.regions.shards_of_shape();
        let cache = self.cache();
        let range = cache.memory_range(&opened.geometry, shards);
        let room = range.start() / crate::cache::STRIPES_MIN * u64::from(opened.stripes_max);
        *range.start()..=if room == 0 { u64::MAX } else { room.min(*range.end()) }
    }

    /// Reserves the memory of the cache file, if the volume was opened with one. Call it before the
    /// cache is tuned to acknowledge early.
    ///
    /// # Errors
    /// Memory is short.
    pub fn reserve_cache_file(&self) -> std::io::Result<()> {
        self.core().cache_file.as_ref().map_or(Ok(()), |file| file.reserve())
    }

    /// Changes the settings of the stripe cache, under load or not. A smaller cache shrinks as
    /// stripes become idle. The stripe unit does not change.
    pub fn tune(&self, cache: Cache) {
        let opened = self.opened.load();
        *opened.wanted_mode.lock().expect("setting does not panic") = cache.mode;
        let mut set = opened.cache.lock().expect("setting does not panic");
        let (core, geometry) = (&opened.core, &opened.geometry);
        // In a reshape no write is acknowledged early: the cache names a write by its position in
        // one shape.
        let mode = core.clients.border.as_ref().map_or(cache.mode, |_| CacheMode::WriteThrough);
        let cache = Cache { mode, ..cache };
        let shards = core.clients.regions.shards_of_shape();
        *set = Cache { unit_bytes: set.unit_bytes, ..cache }.in_force(geometry, shards);
        core.turns.set_cache(set.answers_early(geometry), set.dirty_sectors_max());
        log::tuned("cache", &*set);
        let tuning = set.tuning(geometry, shards);
        let told = core.tune(|told| {
            *told = Tuning { expects_flushes: told.expects_flushes, ..tuning };
        });
        told.into_iter().for_each(|machine| core.drive(machine));
        // With `auto` the multiplexer depends on whether a flusher exists, and so on the cache's
        // mode.
        core.schedule_again();
    }

    /// Sends a request to the jobs.
    pub fn request_job(&self, request: JobRequest) {
        self.core().array.push(ArrayEvent::Job(request));
        self.core().drive(Machine::Array);
    }

    /// Progress of the job, if one exists.
    #[must_use]
    pub fn job(&self) -> Option<JobProgress> {
        let core = &self.core();
        core.array.inspect(|array| array.job(), || core.drive(Machine::Array))
    }

    /// How jobs give way to clients.
    #[must_use]
    pub fn job_pace(&self) -> GovernorSettings {
        self.core().pacing.settings()
    }

    /// Changes how jobs give way to clients, under load or not.
    pub fn set_job_pace(&self, settings: GovernorSettings) {
        let core = &self.core();
        log::tuned("job-pace", &settings);
        core.pacing.set(core.clock.now(), settings);
        core.array.push(ArrayEvent::Pace);
        core.drive(Machine::Array);
    }

    /// The state of the job governor; `None` without a job.
    #[must_use]
    pub fn job_look(&self) -> Option<GovernorState> {
        self.core().pacing.look()
    }

    /// The write-intent bitmap, if the array keeps one.
    #[must_use]
    pub fn bitmap(&self) -> Option<BitmapLook> {
        self.core().array.inspect(Array::bitmap, || self.core().drive(Machine::Array))
    }

    /// Whether the array keeps partial parity logs; `None` if not. True if every write is logged,
    /// or will be once parity agrees everywhere.
    #[must_use]
    pub fn parity_logs(&self) -> Option<bool> {
        self.core().array.inspect(Array::parity_logs, || self.core().drive(Machine::Array))
    }

    /// Whether the parity logs are braid's own, not md's.
    #[must_use]
    pub fn has_own_parity_logs(&self) -> bool {
        self.core()
            .array
            .inspect(|array| array.has_own_logs(), || self.core().drive(Machine::Array))
    }

    /// The write journal, if it is in use.
    #[must_use]
    pub fn journal(&self) -> Option<JournalLook> {
        self.core().array.inspect(Array::journal, || self.core().drive(Machine::Array))
    }

    /// When a slow member sits out.
    #[must_use]
    pub fn sit_out(&self) -> SitOut {
        *self.core().sit_out.lock().expect("setting does not panic")
    }

    /// Changes when a slow member sits out, also under load. If off, all such members return at
    /// once.
    pub fn set_sit_out(&self, settings: SitOut) {
        let core = &self.core();
        log::tuned("sit-out", &settings);
        *core.sit_out.lock().expect("setting does not panic") = settings;
        core.schedule_again();
    }

    /// How long the array waits for a member that does not answer.
    #[must_use]
    pub fn patience(&self) -> Patience {
        *self.core().patience.lock().expect("setting does not panic")
    }

    /// Changes how long the array waits for a member that does not answer.
    pub fn set_patience(&self, patience: Patience) {
        let core = &self.core();
        log::tuned("patience", &patience);
        *core.patience.lock().expect("setting does not panic") = patience;
        core.array.push(ArrayEvent::Patience(patience));
        core.drive(Machine::Array);
    }

    /// Members that are away: the array put them out because they did not answer, and takes them
    /// back once they answer.
    #[must_use]
    pub fn away(&self) -> Vec<MemberId> {
        self.look_at_array(|array| array.away().iter().map(|(member, _)| *member).collect())
    }

    /// Slots reserved for members that are away, so that no spare takes them yet.
    #[must_use]
    pub fn kept_slots(&self) -> usize {
        self.look_at_array(|array| {
            array.away().iter().filter(|(_, away)| away.spare_at.is_some()).count()
        })
    }

    /// Maximum read errors of a member, and the consequence of more.
    #[must_use]
    pub fn read_error_limit(&self) -> ReadErrorLimit {
        self.look_at_array(Array::read_error_limit)
    }

    /// Changes the limit of read errors; past errors count too.
    pub fn set_read_error_limit(&self, limit: ReadErrorLimit) {
        log::tuned("read-errors", &limit);
        self.core().array.push(ArrayEvent::ReadErrorLimit(limit));
        self.core().drive(Machine::Array);
    }

    /// Members with corrected read errors, and the number of these errors.
    #[must_use]
    pub fn read_errors(&self) -> Vec<(MemberId, ReadErrors)> {
        let now = self.core().clock.now();
        self.look_at_array(|array| array.read_errors(now))
    }

    /// The last update of superblocks in this run that all members have, durably
    /// ([`crate::Notice::Recorded`] announces it).
    #[must_use]
    pub fn recorded(&self) -> Option<RecordedUpdate> {
        self.core().updates.recorded()
    }

    /// Sets `keeper`, which receives each loss of a member as the count of an update, once all
    /// other superblocks have that update. Until [`Self::record_kept`] confirms that
    /// [`Self::recorded`] is kept, the array does not rely on the loss. Until then it acknowledges
    /// no write without that member, and announces no loss. `keeper` must not block. With `None` no
    /// loss waits.
    pub fn keep_record(&self, keeper: Option<Box<dyn Fn(u64) + Send>>) {
        self.opened.load().keep_record(keeper);
    }

    /// Whether updates of superblocks wait for an [`Options::consenter`]: the array has an owner,
    /// whom another host may follow at any moment.
    #[must_use]
    pub fn has_consenter(&self) -> bool {
        self.core().updates.has_consenter()
    }

    /// Agrees to the update with this event count, which [`Options::consenter`] received.
    pub fn consent(&self, events: u64) {
        self.core().array.push(ArrayEvent::Consent(events));
        self.core().drive(Machine::Array);
    }

    /// Confirms that the record of the update with this event count is kept, durably.
    pub fn record_kept(&self, events: u64) {
        self.core().array.push(ArrayEvent::RecordKept(events));
        self.core().drive(Machine::Array);
    }

    /// The published view: which member has which slot, and whether writes may start. A failed
    /// member leaves the view once the survivors' superblocks record the failure.
    #[must_use]
    pub fn view(&self) -> Arc<ArrayView> {
        Arc::clone(&self.core().view.lock().expect("looking does not panic"))
    }

    /// A member's path as the caller gave it; `None` if no member has this name.
    #[must_use]
    pub fn member_path(&self, member: MemberId) -> Option<PathBuf> {
        self.core().members.load().get(member).map(|handle| handle.path().to_path_buf())
    }

    /// Members that sit out now.
    #[must_use]
    pub fn sitting_out(&self) -> Vec<MemberId> {
        self.look_at_array(Array::sitting_out)
    }

    /// Milliseconds that members have sat out so far, in total.
    #[must_use]
    pub fn sat_out_ms(&self) -> u64 {
        let now = self.core().clock.now();
        self.look_at_array(|array| array.sat_out_ns(now)) / 1_000_000
    }

    /// A number that changes when members end an operation.
    #[must_use]
    pub fn ended_at_members(&self) -> u64 {
        self.core().members.load().iter().map(|member| member.admission.ended()).sum()
    }

    /// Members with operations in flight.
    #[must_use]
    pub fn unanswered(&self) -> Vec<MemberId> {
        let members = self.core().members.load();
        let members = members.iter().filter(|member| member.is_unanswered());
        members.map(|member| member.id()).collect()
    }

    pub(crate) fn look_at_array<R>(&self, look: impl FnOnce(&Array) -> R) -> R {
        let core = self.core();
        core.array.inspect(look, || core.drive(Machine::Array))
    }

    /// Bytes that are acknowledged and not yet on the members.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.look_at_shards(Shard::dirty_sectors).sum::<u64>() * SECTOR_BYTES
    }

    /// Whether the members hold every acknowledged write.
    pub(crate) fn is_on_members(&self) -> bool {
        !self.look_at_shards(|shard| shard.dirty_sectors() > 0 || shard.has_lost()).any(|one| one)
    }

    pub(crate) fn look_at_shards<R>(&self, look: impl Fn(&Shard) -> R) -> impl Iterator<Item = R> {
        let core = self.core();
        (0u16..).map(ShardIndex).take(core.shards.len()).map(move |index| {
            let drive = || core.drive(Machine::Shard(index));
            core.shard(index).combiner.inspect(&look, drive)
        })
    }

    /// Number of times that a thread found a shard owned by another thread and did not wait.
    #[must_use]
    pub fn owner_misses(&self) -> u64 {
        self.core().shards.iter().map(|cell| cell.combiner.owner_misses()).sum()
    }

    /// How the members are scheduled.
    pub fn scheduling(&self) -> Scheduling {
        self.core().scheduling.lock().expect("setting does not panic").clone()
    }

    /// Changes the scheduling of members, under load or not. No waiting operation is lost.
    pub fn schedule(&self, scheduling: Scheduling) {
        log::tuned("scheduling", &scheduling);
        self.core().schedule(|chosen| *chosen = scheduling);
    }

    /// Whether reads and write-back take turns now.
    pub fn is_multiplexed(&self) -> bool {
        self.core().turns.is_on()
    }

    /// The multiplexer's last hundred periods, the oldest first, in time since the array's start.
    pub fn slices(&self) -> Vec<Slice> {
        self.core().turns.slices()
    }

    /// Every member's elevator.
    pub fn elevators(&self) -> Vec<ElevatorState> {
        let _guard = AbortOnPanic::new();
        let core = &self.core();
        let state = |member: &Arc<MemberHandle>| {
            let submitter = Submitter::new(core, member);
            let state = ElevatorState {
                slot: member.slot(),
                rotational: member.rotational(),
                settings: member.scheduler.settings(&submitter),
                counters: member.scheduler.counters(&submitter),
                traffic: member.traffic.counts(),
            };
            core.drive_notified(submitter.into_notified(), None);
            state
        };
        core.members.load().iter().map(state).collect()
    }

    /// Number of slots without a member.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.look_at_array(Array::missing_count)
    }

    /// Submits `operation`. `completion` receives the outcome, possibly before this call returns.
    ///
    /// Never waits. A write that does not begin and end at a sector runs alone: it begins when
    /// earlier changes have ended, and later changes begin when it has ended.
    pub fn submit(&self, operation: ClientRequest, completion: Completion) {
        self.ask(operation, OutcomeReceiver::Completion(completion));
    }

    /// As [`Self::submit`], but waits for the outcome on this thread. Meanwhile this thread drives
    /// the machines that no other thread drives. Allocates nothing in the steady state.
    pub fn call(&self, operation: ClientRequest) -> Outcome {
        waiter::wait_for(|waiter| self.ask(operation, OutcomeReceiver::Caller(waiter)))
    }

    fn ask(&self, operation: ClientRequest, receiver: OutcomeReceiver) {
        let opened = self.opened.load();
        let core = &opened.core;
        let was_running =
            flaw::has(Flaw::CheckBeforeCount) && opened.state.load(Ordering::SeqCst) == RUNNING;
        let under_way = core.clients.in_flight.enter();
        let state = opened.state.load(Ordering::SeqCst);
        if state == REPLACED {
            core.clients.in_flight.leave();
            return self.park(&opened, operation, receiver);
        }
        let began = if is_timed(&operation) { core.pacing.begins(&core.clock) } else { None };
        let client = Client { receiver, is_urgent: is_waited_for(&operation), began };
        if client.is_urgent {
            core.turns.urge();
        }
        let (request, payload) = in_bytes(operation);
        if !was_running && state == STOPPING {
            return core.tell(client, Outcome { result: Err(RequestError::Stopping), payload });
        }
        let Some(request) = request else {
            return drive(core, |machines| core.flush(Resumption::Flush(client), machines));
        };
        log::asked(&request);
        if let Err(denial) = request::check(&request, opened.request_limits(self.ends_at())) {
            let denial = denied(denial);
            log::refused(&request, &denial);
            return core.tell(client, Outcome { result: Err(denial), payload });
        }
        let is_handed_over = matches!(request.operation, ByteOperation::Write { .. })
            && core.clients.hand_over.is_worth_it(request.length, under_way);
        drive(core, |machines| {
            core.start(&request, payload, client, machines);
            if began.is_some() {
                core.note_client(machines);
            }
            if is_handed_over {
                core.hand_over(machines);
            }
        });
    }

    /// Keeps a request until the array is open again, or passes it on if the array is open by now.
    #[cold]
    fn park(&self, opened: &Arc<Opened>, operation: ClientRequest, receiver: OutcomeReceiver) {
        let mut parked = self.parked.lock().expect("parking does not panic");
        // If opening the array anew failed, a stop takes the kept requests out only once: then this
        // request is refused.
        let is_replaced = opened.state.load(Ordering::SeqCst) == REPLACED;
        if is_replaced && Arc::ptr_eq(&self.opened.load(), opened) {
            return parked.push_back((operation, receiver));
        }
        drop(parked);
        self.ask(operation, receiver);
    }

    /// Stops the array's machines, and opens the array anew with the same settings. `again`
    /// assembles the stopped members. Clients only notice a short silence. False if the array was
    /// stopped before. If the array cannot be opened, it stays stopped.
    ///
    /// # Errors
    /// The errors of `again` and of opening.
    pub fn reopen<E: From<OpenError>>(
        &self,
        watch: impl Fn(Notice) + Send + 'static,
        again: impl FnOnce(Vec<StoppedMember>) -> Result<Reassembled, E>,
    ) -> Result<bool, E> {
        let _one = self.changing.lock().expect("opening does not panic");
        let opened = self.opened.load_full();
        if opened.state.swap(REPLACED, Ordering::SeqCst) == STOPPING {
            opened.state.store(STOPPING, Ordering::SeqCst);
            return Ok(false);
        }
        let options = self.options();
        let (ids, members): (Vec<_>, Vec<_>) = self.stopped_members(&opened).into_iter().unzip();
        opened.core.end.expect_successor();
        opened.stop();
        if let Some(change) = self.direct_change().take() {
            let devices = members.iter().map(|one| Arc::clone(&one.device));
            change.write(&ids.into_iter().zip(devices).collect::<Vec<_>>());
        }
        let next = again(members).and_then(|Reassembled { array, members }| {
            Ok(Opened::open(&array, members, &options, watch)?)
        });
        match next {
            Ok(next) => {
                next.keep_record(opened.core.updates.take_keeper());
                self.opened.store(Arc::new(next));
            }
            Err(error) => {
                opened.state.store(STOPPING, Ordering::SeqCst);
                self.unpark();
                return Err(error);
            }
        }
        self.unpark();
        Ok(true)
    }

    /// The settings with which the array runs.
    fn options(&self) -> Options {
        let opened = self.opened.load();
        let mode = *opened.wanted_mode.lock().expect("looking does not panic");
        Options {
            cache: Cache { mode, ..self.cache() },
            scheduling: self.scheduling(),
            sit_out: self.sit_out(),
            patience: self.patience(),
            read_errors: self.read_error_limit(),
            job_pace: self.job_pace(),
            jobs_paused: self.look_at_array(Array::are_jobs_paused),
            ..opened.options.clone()
        }
    }

    fn stopped_members(&self, opened: &Opened) -> Vec<(MemberId, StoppedMember)> {
        let is_in: Vec<MemberId> = self.look_at_array(Array::members);
        let members = opened.core.members.load();
        let of = |member: &Arc<MemberHandle>| {
            let path = member.path().to_path_buf();
            (member.id(), StoppedMember { path, device: Arc::clone(&member.device) })
        };
        members.iter().filter(|member| is_in.contains(&member.id())).map(of).collect()
    }

    /// Begins the requests that arrived while the array was being opened.
    fn unpark(&self) {
        let parked = std::mem::take(&mut *self.parked.lock().expect("parking does not panic"));
        for (operation, receiver) in parked {
            self.ask(operation, receiver);
        }
    }

    /// Refuses new requests, waits for those in flight, flushes, and leaves the superblocks clean
    /// if possible. A second call waits for the first.
    pub fn stop(&self) -> StopResult {
        let _one = self.changing.lock().expect("stopping does not panic");
        let opened = self.opened.load_full();
        if opened.state.swap(STOPPING, Ordering::SeqCst) == RUNNING {
            log::stopping();
        }
        opened.stop()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.stop();
    }
}

fn drive(core: &Arc<Core>, begin: impl FnOnce(&mut VecDeque<Machine>)) {
    let mut scratch = DriveScratch::take();
    begin(&mut scratch.machines);
    core.drive_all(scratch);
}

fn denied(denial: Denial) -> RequestError {
    match denial {
        Denial::OutOfRange => RequestError::OutOfRange,
        Denial::ReadOnly => RequestError::ReadOnly,
        Denial::NotFast => RequestError::NotFast,
    }
}

/// Whether the request's latency shows how a job slows clients down.
fn is_timed(operation: &ClientRequest) -> bool {
    matches!(operation, ClientRequest::Read { .. } | ClientRequest::Write { .. })
}

/// Whether the client waits until the members have the data.
fn is_waited_for(operation: &ClientRequest) -> bool {
    match operation {
        ClientRequest::Flush => true,
        ClientRequest::Read { .. } => false,
        ClientRequest::Write { durable, .. }
        | ClientRequest::WriteZeroes { durable, .. }
        | ClientRequest::Trim { durable, .. } => *durable,
    }
}

/// The request for the engine, and the payload. A flush has no request in bytes.
fn in_bytes(operation: ClientRequest) -> (Option<ByteRequest>, Option<Payload>) {
    let (operation, offset, length, payload) = match operation {
        ClientRequest::Flush => return (None, None),
        ClientRequest::Read { offset, payload } => {
            (ByteOperation::Read, offset, payload.len() as u64, Some(payload))
        }
        ClientRequest::Write { offset, payload, durable } => {
            (ByteOperation::Write { durable }, offset, payload.len() as u64, Some(payload))
        }
        ClientRequest::WriteZeroes { offset, length, may_punch, fast, durable } => {
            (ByteOperation::WriteZeroes { may_punch, fast, durable }, offset, length, None)
        }
        ClientRequest::Trim { offset, length, durable } => {
            (ByteOperation::Trim { durable }, offset, length, None)
        }
    };
    (Some(ByteRequest { operation, offset, length }), payload)
}
