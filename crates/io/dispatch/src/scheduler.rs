//! The scheduler of one member: insertion lists, its elevator, and batches of dispatches.
//!
//! ```text
//!  insert ──▶ lists (head or sorted) ─┐                         under ownership ┆ without it
//!                                     ├─ one drain ─▶ elevator ─▶ batch, ≤ 64 ──┆─▶ Device::begin
//!  done ────▶ lists ──────────────────┘   (tags freed, entries sorted, merged)  ┆
//! ```
//!
//! `Device::begin` takes the batch one by one.
//!
//! With no owner at work, insertions and completions go past the lists. Completions go the same way
//! as insertions: they free tags, and the thread that drains them dispatches more. If an operation
//! has ended when [`Device::begin`] returns, the device returns its ticket. The dispatcher takes
//! that completion into its next turn, or leaves it in the lists for another. Nothing recurses.
//!
//! # Held entries
//!
//! Before it chooses a batch the dispatcher asks the device whose turn it is ([`Device::turn`]).
//! The call passes the numbers of waiting entries and of dispatches in flight at this member. A
//! slice that its side does not use here is given away ([`Turn::allowed_at`]). A flush bypasses the
//! scheduler and keeps the member from all else, so its caller reports it
//! ([`Scheduler::flush_begins`]). The flush counts as an operation in flight, and its time is the
//! flusher's ([`BusyTime`]). Held entries wait in the elevator. When the dispatcher leaves, it
//! reports the waiting entries and, if some are held, until when ([`Device::leave`]). The
//! implementor then has [`Scheduler::dispatch_held`] called. Under `none` nothing is asked or held.
//!
//! # Memory
//!
//! Lists, elevator and batches keep their capacity. Once the queue has reached its maximum, no
//! entry allocates [check: steady_state_allocates_nothing].

use braid_elevator::{
    BusyTime, Class, Directions, Dispatch, Elevator, Entry, EntryId, Operation, Policy,
    QueuePosition, Settings, Tag, Turn,
};

use crate::combiner::{Carry, Combiner};
use crate::counters::Counters;
use crate::flaw::{self, Flaw};
use braid_concurrency::Mutex;
use braid_concurrency::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum dispatches chosen in one ownership, so that no thread owns the elevator for long. One in
/// models, so that a batch gets full.
const BATCH_MAX: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// Maximum number of batches whose memory is kept: as many as threads hand over at once on known
/// machines.
const SPARES_MAX: usize = 16;

/// A request for an operation on a member, without the caller's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read, write or other.
    pub operation: Operation,
    /// The request's priority.
    pub class: Class,
    /// Among the other entries, or at the head of the queue.
    pub position: QueuePosition,
    /// First sector on the member.
    pub start: u64,
    /// Sectors; at least 1.
    pub sectors: u32,
}

/// A vector's right to be in flight at the member. The vector's end returns the ticket, once
/// ([`Scheduler::done`]).
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    tag: Tag,
    sent_ns: u64,
    operation: Operation,
}

/// An operation for the member: one entry, or several adjacent ones.
#[derive(Debug)]
pub struct Vector {
    /// Read, write or other.
    pub operation: Operation,
    /// First sector on the member.
    pub start: u64,
    /// Sectors of all entries together.
    pub sectors: u32,
    /// Number of entries. Their items come with the vector, in the order of sectors.
    pub parts: u32,
    /// The ticket to return at the vector's end; absent under policy `none`.
    pub ticket: Option<Ticket>,
}

/// Entries that wait for a member, and dispatches in flight at that member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The kinds of entries that wait in the elevator.
    pub waits: Directions,
    /// Dispatches that the member has begun and not ended: reads, and everything else.
    pub out: (u32, u32),
    /// Waiting entries plus dispatches in flight: reads, and everything else. A flush in flight
    /// counts as all vectors written since the previous flush.
    pub queued: (u32, u32),
}

/// The member below a scheduler: it takes entries, and decides whose turn it is.
pub trait Device<T> {
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Begins a vector and never waits for its end. Returns the ticket if the vector has ended
    /// already. Several threads call it at once, none of them as owner. So an implementation may
    /// insert and report completions.
    fn begin(&self, vector: Vector, parts: impl Iterator<Item = T>) -> Option<Ticket>;

    /// The side (reads or writes) whose turn it is. The dispatcher asks while it owns the elevator.
    fn turn(&self, now_ns: u64, _: State) -> Turn {
        Turn { reads: true, writes: true, until_ns: now_ns }
    }

    /// Reports the member's state after the dispatcher has chosen entries. If entries are still
    /// held, also reports when [`Scheduler::dispatch_held`] must be called at the latest. The
    /// dispatcher calls this while it owns the elevator, so the last report is the valid one.
    fn leave(&self, _: State, _until_ns: Option<u64>) {}

    /// The member was busy for `busy_ns` with a read, or with anything else. Overlapping time
    /// counts once.
    fn served(&self, _is_read: bool, _busy_ns: u64) {}
}

enum Event<T> {
    Insert(Request, T),
    Done(Ticket),
    /// A flush has ended; the field is the time when it began.
    Flushed(u64),
    /// New settings. Settings are numbered, because lists keep only each thread's order. They are
    /// boxed, since every event takes as much memory as the largest.
    Set(u64, Box<Settings>),
    Poll,
}

struct Dispatcher<T> {
    elevator: Elevator,
    /// The items, indexed by [`EntryId`].
    items: Vec<Option<T>>,
    free: Vec<usize>,
    busy: BusyTime,
    /// When the flush in flight began, if the dispatcher has seen that flush.
    flush_since_ns: Option<u64>,
    /// Vectors written since the last flush.
    unflushed: u32,
    /// The number of the current settings.
    last_set: u64,
    counters: Counters,
    /// Empty batches with capacity.
    spares: Vec<Batch<T>>,
}

struct Batch<T> {
    vectors: Vec<Vector>,
    /// The items of all vectors in the batch, in order.
    parts: Vec<T>,
    /// Tickets of vectors that ended within [`Device::begin`]. The elevator gets them at the next
    /// turn.
    ended: Vec<Ticket>,
    /// The batch is full, so more entries may be waiting.
    is_full: bool,
}

// Not derived, since that would require a default for items.
impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { vectors: Vec::new(), parts: Vec::new(), ended: Vec::new(), is_full: false }
    }
}

impl<T> Batch<T> {
    fn has_room(&self) -> bool {
        self.vectors.capacity() > 0
    }
}

/// One member's scheduler.
pub struct Scheduler<T> {
    is_straight: AtomicBool,
    sets: AtomicU64,
    /// When the flush in flight began; 0 if none is in flight.
    flush_since_ns: AtomicU64,
    combiner: Combiner<Dispatcher<T>, Event<T>>,
    spares: Mutex<Vec<Batch<T>>>,
}

impl<T> Scheduler<T> {
    /// An empty scheduler.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::around(settings, Combiner::unordered)
    }

    /// As [`Self::new`], with this number of insertion lists.
    #[must_use]
    pub fn with_lists(settings: Settings, lists: usize) -> Self {
        Self::around(settings, |dispatcher| Combiner::with_lists(dispatcher, lists))
    }

    fn around(
        settings: Settings,
        combiner: impl FnOnce(Dispatcher<T>) -> Combiner<Dispatcher<T>, Event<T>>,
    ) -> Self {
        let dispatcher = Dispatcher {
            elevator: Elevator::new(settings),
            items: Vec::new(),
            free: Vec::new(),
            busy: BusyTime::default(),
            flush_since_ns: None,
            unflushed: 0,
            last_set: 0,
            counters: Counters::default(),
            spares: Vec::new(),
        };
        Self {
            is_straight: AtomicBool::new(settings.policy == Policy::None),
            sets: AtomicU64::new(0),
            flush_since_ns: AtomicU64::new(0),
            combiner: combiner(dispatcher),
            spares: Mutex::new(Vec::new()),
        }
    }

    /// Whether the policy is `none`: every entry goes to the member at once.
    #[must_use]
    pub fn is_straight(&self) -> bool {
        self.is_straight.load(Ordering::Acquire)
    }

    /// Gives `request` to the member when its turn comes; at once under `none`.
    #[inline]
    pub fn insert(&self, device: &impl Device<T>, request: Request, item: T) {
        self.insert_all(device, std::iter::once((request, item)));
    }

    /// As [`Self::insert`], for several requests, which may be merged.
    #[inline]
    pub fn insert_all(
        &self,
        device: &impl Device<T>,
        requests: impl IntoIterator<Item = (Request, T)>,
    ) {
        if self.is_straight() {
            for (request, item) in requests {
                Self::go_straight(device, request, item);
            }
        } else {
            let inserts = requests.into_iter();
            self.bring(device, inserts.map(|(request, item)| Event::Insert(request, item)));
        }
    }

    #[inline]
    fn go_straight(device: &impl Device<T>, request: Request, item: T) {
        let Request { operation, start, sectors, .. } = request;
        let vector = Vector { operation, start, sectors, parts: 1, ticket: None };
        let ticket = device.begin(vector, std::iter::once(item));
        debug_assert!(ticket.is_none(), "there was none to give back");
    }

    /// Reports the end of a vector.
    pub fn done(&self, device: &impl Device<T>, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        if flaw::has(Flaw::DoneSilent) {
            self.combiner.push(Event::Done(ticket));
        } else {
            self.bring(device, Some(Event::Done(ticket)));
        }
    }

    /// Reports that a flush begins at the member, while no other flush is in flight. Under `none`
    /// the flush holds nothing back.
    pub fn flush_begins(&self, device: &impl Device<T>) {
        if !self.is_straight() {
            self.flush_since_ns.store(device.now_ns().max(1), Ordering::Release);
            self.dispatch_held(device);
        }
    }

    /// Reports that the flush at the member has ended.
    pub fn flush_ends(&self, device: &impl Device<T>) {
        let since_ns = self.flush_since_ns.swap(0, Ordering::AcqRel);
        if since_ns > 0 {
            self.bring(device, Some(Event::Flushed(since_ns)));
        }
    }

    /// Dispatches held entries: at the time given to [`Device::leave`], or after a new decision.
    pub fn dispatch_held(&self, device: &impl Device<T>) {
        self.bring(device, Some(Event::Poll));
    }

    /// The current settings.
    #[must_use]
    pub fn settings(&self, device: &impl Device<T>) -> Settings {
        self.combiner.inspect(|owned| *owned.elevator.settings(), || self.dispatch(device))
    }

    /// Changes the settings from the next insertion and dispatch on. No waiting entry is lost. On a
    /// switch to `none`, waiting entries are dispatched as soon as tags allow, held or not.
    pub fn set(&self, device: &impl Device<T>, settings: Settings) {
        let number = self.sets.fetch_add(1, Ordering::Relaxed) + 1;
        let event = Event::Set(number, Box::new(settings));
        if flaw::has(Flaw::SwitchSilent) {
            self.combiner.push(event);
        } else {
            self.bring(device, Some(event));
        }
    }

    /// The counters of the scheduler and its elevator.
    pub fn counters(&self, device: &impl Device<T>) -> Counters {
        let look = |owned: &Dispatcher<T>| {
            let ((reads, writes), out) = (owned.elevator.waiting(), owned.elevator.out());
            Counters {
                elevator: owned.elevator.counters(),
                waiting_reads: reads as u64,
                waiting_writes: writes as u64,
                out: u64::from(out.0) + u64::from(out.1),
                ..owned.counters
            }
        };
        let counters = self.combiner.inspect(look, || self.dispatch(device));
        Counters { owner_misses: self.combiner.owner_misses(), ..counters }
    }

    /// Becomes dispatcher if no thread is and there is work.
    fn dispatch(&self, device: &impl Device<T>) {
        let mut batch = Batch::default();
        self.combiner.combine_carrying(&mut batch, self.carry(device));
        self.keep(batch);
    }

    fn bring(&self, device: &impl Device<T>, events: impl IntoIterator<Item = Event<T>>) {
        let mut batch = Batch::default();
        self.combiner.hand_over(events, &mut batch, self.carry(device));
        self.keep(batch);
    }

    /// The closures for the combiner.
    #[allow(clippy::type_complexity, reason = "closures have no shorter names")]
    fn carry<'a>(
        &'a self,
        device: &'a impl Device<T>,
    ) -> Carry<
        impl FnMut(&mut Dispatcher<T>, &mut Vec<Event<T>>, &mut Batch<T>) + 'a,
        impl FnMut(&mut Batch<T>) -> bool + 'a,
        impl FnMut(&mut Batch<T>, &Combiner<Dispatcher<T>, Event<T>>) -> bool + 'a,
    > {
        Carry {
            drive: |dispatcher: &mut Dispatcher<T>, events: &mut Vec<_>, batch: &mut Batch<T>| {
                if !batch.has_room()
                    && let Some(spare) = dispatcher.spares.pop().or_else(|| self.spare())
                {
                    *batch = spare;
                }
                let flush_since_ns = self.flush_since_ns.load(Ordering::Acquire);
                dispatcher.turn(device, (events, flush_since_ns), batch);
                // Checked under ownership, so that the newest settings are the final ones.
                let is_straight = dispatcher.elevator.settings().policy == Policy::None;
                if is_straight != self.is_straight.load(Ordering::Relaxed) {
                    self.is_straight.store(is_straight, Ordering::Release);
                }
                if batch.vectors.is_empty() && dispatcher.spares.len() < SPARES_MAX {
                    dispatcher.spares.push(std::mem::take(batch));
                }
            },
            after: |batch: &mut Batch<T>| {
                hand_over(device, batch);
                let has_more = batch.is_full && !flaw::has(Flaw::BatchLeaves);
                has_more || !batch.ended.is_empty()
            },
            leave: |batch: &mut Batch<T>, combiner: &Combiner<_, _>| {
                let more = std::mem::take(&mut batch.is_full).then_some(Event::Poll);
                combiner.push_all(batch.ended.drain(..).map(Event::Done).chain(more))
            },
            // A device that inserts or reports a completion does so through `bring`.
            pushes: false,
        }
    }

    /// An empty batch that an earlier thread left for reuse.
    fn spare(&self) -> Option<Batch<T>> {
        let is_modelled = cfg!(any(loom, shuttle));
        let spares = if is_modelled { None } else { self.spares.try_lock().ok() };
        spares.and_then(|mut spares| spares.pop())
    }

    fn keep(&self, batch: Batch<T>) {
        if !cfg!(any(loom, shuttle))
            && batch.has_room()
            && let Ok(mut spares) = self.spares.try_lock()
            && spares.len() < SPARES_MAX
        {
            spares.push(batch);
        }
    }
}

impl<T> std::fmt::Debug for Scheduler<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scheduler").field("is_straight", &self.is_straight).finish()
    }
}

/// Hands a batch to the device, without ownership.
fn hand_over<T>(device: &impl Device<T>, batch: &mut Batch<T>) {
    let Batch { vectors, parts, ended, .. } = batch;
    let mut parts = parts.drain(..);
    for vector in vectors.drain(..) {
        // Most vectors are one entry, and need no counting.
        let ticket = if vector.parts == 1 {
            let mut own = parts.next();
            let ticket = device.begin(vector, std::iter::from_fn(|| own.take()));
            assert!(own.is_none(), "a device takes every part");
            ticket
        } else {
            let mut own = parts.by_ref().take(vector.parts as usize);
            let ticket = device.begin(vector, &mut own);
            assert!(own.next().is_none(), "a device takes every part");
            ticket
        };
        ended.extend(ticket);
    }
}

impl<T> Dispatcher<T> {
    /// One turn of the dispatcher: takes in all events, then fills a batch.
    fn turn(
        &mut self,
        device: &impl Device<T>,
        (events, flush_since_ns): (&mut Vec<Event<T>>, u64),
        batch: &mut Batch<T>,
    ) {
        let now_ns = device.now_ns();
        self.counters.ownerships += 1;
        for ticket in batch.ended.drain(..) {
            self.done(device, now_ns, &ticket);
        }
        let mut drained = 0;
        for event in events.drain(..) {
            drained += usize::from(matches!(event, Event::Insert(..) | Event::Done(_)));
            match event {
                Event::Insert(request, item) => self.insert(now_ns, request, item),
                Event::Done(ticket) => self.done(device, now_ns, &ticket),
                Event::Flushed(since_ns) => self.flushed(device, now_ns, since_ns),
                Event::Set(number, settings) => self.set(number, *settings),
                Event::Poll => {}
            }
        }
        if drained > 0 {
            self.counters.drained(drained);
        }
        if flush_since_ns > 0 && self.flush_since_ns.is_none() {
            self.flush_since_ns = Some(flush_since_ns);
            self.busy.handle_sent(flush_since_ns);
        }
        let is_straight = self.elevator.settings().policy == Policy::None;
        let turn = (!is_straight).then(|| device.turn(now_ns, self.state()));
        // If neither side is held, the turn limits nothing.
        let turn = turn.filter(|turn| !(turn.reads && turn.writes));
        if turn.is_none() {
            self.choose_run(now_ns, batch);
        } else {
            while batch.vectors.len() < BATCH_MAX
                && self.elevator.waiting() != (0, 0)
                && self.choose(now_ns, self.allowed(turn), batch)
            {}
        }
        batch.is_full = batch.vectors.len() == BATCH_MAX;
        self.counters.dispatched_batches += u64::from(!batch.vectors.is_empty());
        let (state, allowed) = (self.state(), self.allowed(turn));
        let waits = state.waits;
        let is_held = (waits.reads && !allowed.reads) || (waits.writes && !allowed.writes);
        let until_ns = turn.filter(|_| is_held).map(|turn| turn.until_ns);
        device.leave(state, until_ns);
    }

    /// The kinds that may go now. If a side has no use for its slice here, the other side gets it.
    fn allowed(&self, turn: Option<Turn>) -> Directions {
        let allowed = |turn: Turn| turn.allowed_at(self.elevator.waits(), self.elevator.out());
        turn.map_or(Directions::ALL, allowed)
    }

    fn state(&self) -> State {
        let ((reads, writes), out) = (self.elevator.waiting(), self.elevator.out());
        let count = |waiting: usize| u32::try_from(waiting).unwrap_or(u32::MAX / 2);
        let flushed = if self.flush_since_ns.is_some() { self.unflushed.max(1) } else { 0 };
        let queued = (count(reads) + out.0, (count(writes) + out.1).saturating_add(flushed));
        State { waits: self.elevator.waits(), out, queued }
    }

    /// Applies settings, unless newer ones are in force already.
    fn set(&mut self, number: u64, settings: Settings) {
        if number > self.last_set || flaw::has(Flaw::OlderSet) {
            self.last_set = number;
            self.elevator.set(settings);
        }
    }

    fn insert(&mut self, now_ns: u64, request: Request, item: T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[index] = Some(item);
        let Request { operation, class, position, start, sectors } = request;
        let entry = Entry { id: EntryId(index as u64), operation, class, start, sectors };
        self.elevator.handle_insert(now_ns, entry, position);
    }

    fn done(&mut self, device: &impl Device<T>, now_ns: u64, ticket: &Ticket) {
        self.elevator.handle_done(ticket.tag);
        self.unflushed = self.unflushed.saturating_add(u32::from(ticket.operation.is_write()));
        let is_read = ticket.operation == Operation::Read;
        device.served(is_read, self.busy.handle_done(now_ns, ticket.sent_ns));
    }

    /// A flush has ended. If the dispatcher never saw the flush begin, the flush's time is counted
    /// from `since_ns`.
    fn flushed(&mut self, device: &impl Device<T>, now_ns: u64, since_ns: u64) {
        if self.flush_since_ns != Some(since_ns) {
            self.busy.handle_sent(since_ns);
        } else {
            self.flush_since_ns = None;
        }
        self.unflushed = 0;
        device.served(false, self.busy.handle_done(now_ns, since_ns));
    }

    /// Adds the next dispatch to a batch, if a dispatch is allowed.
    fn choose(&mut self, now_ns: u64, allowed: Directions, batch: &mut Batch<T>) -> bool {
        let Some(dispatch) = self.elevator.poll_dispatch(now_ns, allowed) else { return false };
        let Self { elevator, items, free, busy, .. } = self;
        busy.handle_sent(now_ns);
        add(batch, (items, free), (dispatch, now_ns), elevator.parts(dispatch.tag));
        true
    }

    /// Fills a batch while the multiplexer holds neither reads nor writes.
    fn choose_run(&mut self, now_ns: u64, batch: &mut Batch<T>) {
        let Self { elevator, items, free, busy, .. } = self;
        let count_max = BATCH_MAX - batch.vectors.len();
        elevator.poll_run(now_ns, count_max, |dispatch, parts| {
            busy.handle_sent(now_ns);
            add(batch, (items, free), (dispatch, now_ns), parts);
        });
    }
}

/// Adds a dispatch to a batch, with the items of its entries.
fn add<'a, T>(
    batch: &mut Batch<T>,
    (items, free): (&mut [Option<T>], &mut Vec<usize>),
    (dispatch, sent_ns): (Dispatch, u64),
    entries: impl Iterator<Item = &'a Entry>,
) {
    let Dispatch { tag, operation, start, sectors, parts } = dispatch;
    for entry in entries {
        let index = usize::try_from(entry.id.0).expect("an index of ours");
        batch.parts.push(items[index].take().expect("an entry goes out once"));
        free.push(index);
    }
    let ticket = Some(Ticket { tag, sent_ns, operation });
    batch.vectors.push(Vector { operation, start, sectors, parts, ticket });
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
