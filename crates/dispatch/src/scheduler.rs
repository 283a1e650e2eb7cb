//! The scheduler of one member: insertion lists before its elevator, batches of dispatches behind it.
//!
//! ```text
//!   insert ──▶ lists (head or sorted) ─┐                                   under ownership ┆ without it
//!                                      ├─ one drain ─▶ elevator ─▶ batch of at most 64 ────┆──▶ Device::begin, each
//!   done ────▶ lists ──────────────────┘   (tags freed, entries sorted and merged)         ┆
//! ```
//!
//! Completions take the same way as insertions: they free tags, and the thread that drains them lets more out. A device that has
//! done something already when [`Device::begin`] returns says so, and the dispatcher takes the completion along into its
//! next turn, or leaves it in the lists if another is dispatcher by then; nothing recurses.
//!
//! # Who is held
//!
//! Before a batch is chosen the device is asked whose turn it is ([`Device::turn`]), with what waits and what is out at
//! this member. A slice that its side does not use here is given away ([`Turn::allowed_at`]). What is held waits in the elevator; when the dispatcher leaves it says what waits and, if something was
//! held, until when ([`Device::leave`]): the implementor has [`Scheduler::dispatch_held`] called then. Under `none`
//! the device is not asked and nothing is held.
//!
//! # Memory
//!
//! Lists, elevator and batches keep their room; once the most that was ever queued has been, nothing is allocated for an
//! entry [check: steady_state_allocates_nothing].

use braid_elevator::{
    Allowed, Class, Elevator, Entry, EntryId, Operation, Place, Policy, Settings, Tag, Turn,
};

use crate::combiner::{Carry, Combiner};
use crate::counters::Counters;
use crate::flaw::{self, Flaw};
use braid_sync::Mutex;
use braid_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Dispatches that are chosen in one ownership, so that no thread owns the elevator for long. In models it is so low that
/// a batch is full.
const BATCH_MAX: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// Batches whose room is kept: as many as may be handed to the device at the same time, on the machines we know.
const SPARES_MAX: usize = 16;

/// What is asked of a member, without whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Who it yields to.
    pub class: Class,
    /// Among the others, or before them.
    pub place: Place,
    /// First sector of the member.
    pub start: u64,
    /// Sectors; at least 1.
    pub sectors: u32,
}

/// The right to be out; to be given back once, when all of the vector has ended ([`Scheduler::done`]).
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    tag: Tag,
    sent_ns: u64,
    is_read: bool,
}

/// Something for the member to do: one entry, or several that are adjacent.
#[derive(Debug)]
pub struct Vector {
    /// What to do.
    pub operation: Operation,
    /// First sector.
    pub start: u64,
    /// All sectors.
    pub sectors: u32,
    /// Entries; their items come with it, in the order of sectors.
    pub parts: u32,
    /// To be given back at its end; none under `none`.
    pub ticket: Option<Ticket>,
}

/// What is at a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What waits in the elevator.
    pub waits: Allowed,
    /// Dispatches that it has been given and has not done: reads, and everything else.
    pub out: (u32, u32),
}

/// What entries are given to, and who decides whose turn it is.
pub trait Device<T> {
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Begins something; never waits for it. The ticket back if it has ended already. Called by several threads at once,
    /// none of which owns the scheduler, so it may insert and say that others are done.
    fn begin(&self, vector: Vector, parts: impl Iterator<Item = T>) -> Option<Ticket>;

    /// Whose turn it is, asked by the dispatcher while it owns the elevator.
    fn turn(&self, now_ns: u64, _: State) -> Turn {
        Turn { reads: true, writes: true, until_ns: now_ns }
    }

    /// What still waits when the dispatcher has chosen; and, if something is held, when
    /// [`Scheduler::dispatch_held`] must be called at the latest. Said under ownership, so what is said last is so.
    fn leave(&self, _: Allowed, _until_ns: Option<u64>) {}

    /// The member was busy for so long with a read, or with anything else; what overlaps is counted once.
    fn served(&self, _is_read: bool, _busy_ns: u64) {}
}

enum Event<T> {
    Insert(Request, T),
    Done(Ticket),
    /// With its number: lists keep only each thread's order.
    Set(u64, Settings),
    Poll,
}

/// What the dispatcher owns.
struct Dispatcher<T> {
    elevator: Elevator,
    /// By [`EntryId`].
    items: Vec<Option<T>>,
    free: Vec<usize>,
    last_done_ns: u64,
    /// The number of what it is set to.
    last_set: u64,
    counters: Counters,
}

/// Chosen, and to be handed to the device.
struct Batch<T> {
    vectors: Vec<Vector>,
    /// Of all of them, one after the other.
    parts: Vec<T>,
    /// Those of vectors that had ended when they had begun; for the elevator at the next turn.
    ended: Vec<Ticket>,
    /// There may be more to choose.
    is_full: bool,
}

/// One member's scheduler.
pub struct Scheduler<T> {
    is_straight: AtomicBool,
    sets: AtomicU64,
    combiner: Combiner<Dispatcher<T>, Event<T>>,
    spares: Mutex<Vec<Batch<T>>>,
}

impl<T> Scheduler<T> {
    /// One with nothing in it.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::around(settings, Combiner::unordered)
    }

    /// The same with a number of insertion lists.
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
            last_done_ns: 0,
            last_set: 0,
            counters: Counters::default(),
        };
        Self {
            is_straight: AtomicBool::new(settings.policy == Policy::None),
            sets: AtomicU64::new(0),
            combiner: combiner(dispatcher),
            spares: Mutex::new(Vec::new()),
        }
    }

    /// Whether nothing waits here: everything goes to the member at once, as it comes.
    #[must_use]
    pub fn is_straight(&self) -> bool {
        self.is_straight.load(Ordering::Acquire)
    }

    /// Gives `request` to the member when it is its turn; at once under `none`.
    pub fn insert(&self, device: &impl Device<T>, request: Request, item: T) {
        if self.is_straight.load(Ordering::Acquire) {
            self.go_straight(device, request, item);
        } else if self.combiner.push(Event::Insert(request, item)) {
            self.dispatch_if(device, true);
        }
    }

    /// The same for the first of several, which may be merged with those that follow: true if [`Self::dispatch`] must be
    /// called after the last of them.
    pub fn leave(&self, device: &impl Device<T>, request: Request, item: T) -> bool {
        if self.is_straight.load(Ordering::Acquire) {
            self.go_straight(device, request, item);
            return false;
        }
        self.combiner.push(Event::Insert(request, item))
    }

    fn go_straight(&self, device: &impl Device<T>, request: Request, item: T) {
        let Request { operation, start, sectors, .. } = request;
        let vector = Vector { operation, start, sectors, parts: 1, ticket: None };
        let ticket = device.begin(vector, std::iter::once(item));
        debug_assert!(ticket.is_none(), "there was none to give back");
    }

    /// A vector has ended.
    pub fn done(&self, device: &impl Device<T>, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket
            && self.combiner.push(Event::Done(ticket))
            && !flaw::has(Flaw::DoneSilent)
        {
            self.dispatch_if(device, true);
        }
    }

    /// The time has come that [`Device::leave`] was told of, or whose turn it is was decided anew.
    pub fn dispatch_held(&self, device: &impl Device<T>) {
        if self.combiner.push(Event::Poll) {
            self.dispatch(device);
        }
    }

    /// How it is set.
    #[must_use]
    pub fn settings(&self, device: &impl Device<T>) -> Settings {
        self.combiner.inspect(|owned| *owned.elevator.settings(), || self.dispatch(device))
    }

    /// Sets it anew, from the next insertion and dispatch on. Nothing that waits is lost, and what waits when it is set to
    /// `none` goes as soon as tags allow, held or not.
    pub fn set(&self, device: &impl Device<T>, settings: Settings) {
        let number = self.sets.fetch_add(1, Ordering::Relaxed) + 1;
        if self.combiner.push(Event::Set(number, settings)) && !flaw::has(Flaw::SwitchSilent) {
            self.dispatch(device);
        }
    }

    /// What it did.
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

    /// Becomes dispatcher if no thread is and there is anything to do.
    pub fn dispatch(&self, device: &impl Device<T>) {
        self.dispatch_if(device, false);
    }

    /// The same; with `is_due` there is something to do, for certain.
    fn dispatch_if(&self, device: &impl Device<T>, is_due: bool) {
        let mut batch = self.spare();
        let carry = Carry {
            drive: |dispatcher: &mut Dispatcher<T>, events: &mut Vec<_>, batch: &mut Batch<T>| {
                dispatcher.turn(device, events, batch);
                // Under ownership, so that what was set last counts.
                let is_straight = dispatcher.elevator.settings().policy == Policy::None;
                if is_straight != self.is_straight.load(Ordering::Relaxed) {
                    self.is_straight.store(is_straight, Ordering::Release);
                }
            },
            after: |batch: &mut Batch<T>| {
                hand_over(device, batch);
                let has_more = batch.is_full && !flaw::has(Flaw::BatchLeaves);
                has_more || !batch.ended.is_empty()
            },
            leave: |batch: &mut Batch<T>, combiner: &Combiner<_, _>| {
                for ticket in batch.ended.drain(..) {
                    combiner.push(Event::Done(ticket));
                }
                if std::mem::take(&mut batch.is_full) {
                    combiner.push(Event::Poll);
                }
            },
        };
        self.combiner.combine_carrying(is_due, &mut batch, carry);
        self.keep(batch);
    }

    /// An empty batch, with room if there is one.
    fn spare(&self) -> Batch<T> {
        let spare = match cfg!(any(loom, shuttle)) {
            true => None,
            false => self.spares.try_lock().ok().and_then(|mut spares| spares.pop()),
        };
        spare.unwrap_or_else(|| Batch {
            vectors: Vec::new(),
            parts: Vec::new(),
            ended: Vec::new(),
            is_full: false,
        })
    }

    fn keep(&self, batch: Batch<T>) {
        if !cfg!(any(loom, shuttle))
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
        let mut own = parts.by_ref().take(vector.parts as usize);
        ended.extend(device.begin(vector, &mut own));
        assert!(own.next().is_none(), "a device takes every part");
    }
}

impl<T> Dispatcher<T> {
    /// One turn: everything in, a batch out.
    fn turn(&mut self, device: &impl Device<T>, events: &mut Vec<Event<T>>, batch: &mut Batch<T>) {
        let now_ns = device.now_ns();
        for ticket in batch.ended.drain(..) {
            self.done(device, now_ns, &ticket);
        }
        let mut drained = 0;
        for event in events.drain(..) {
            drained += usize::from(matches!(event, Event::Insert(..) | Event::Done(_)));
            match event {
                Event::Insert(request, item) => self.insert(now_ns, request, item),
                Event::Done(ticket) => self.done(device, now_ns, &ticket),
                Event::Set(number, settings) => self.set(number, settings),
                Event::Poll => {}
            }
        }
        if drained > 0 {
            self.counters.drained(drained);
        }
        let is_straight = self.elevator.settings().policy == Policy::None;
        let turn = (!is_straight).then(|| device.turn(now_ns, self.state()));
        while batch.vectors.len() < BATCH_MAX && self.elevator.waiting() != (0, 0) {
            let allowed = self.allowed(turn);
            let Some(vector) = self.choose(now_ns, allowed, &mut batch.parts) else { break };
            batch.vectors.push(vector);
        }
        batch.is_full = batch.vectors.len() == BATCH_MAX;
        self.counters.dispatched_batches += u64::from(!batch.vectors.is_empty());
        let (waits, allowed) = (self.elevator.waits(), self.allowed(turn));
        let is_held = (waits.reads && !allowed.reads) || (waits.writes && !allowed.writes);
        let until_ns = turn.filter(|_| is_held).map(|turn| turn.until_ns);
        device.leave(waits, until_ns);
    }

    /// Who may go, as things stand: a slice that its side does not use here is given away.
    fn allowed(&self, turn: Option<Turn>) -> Allowed {
        let allowed = |turn: Turn| turn.allowed_at(self.elevator.waits(), self.elevator.out());
        turn.map_or(Allowed::ALL, allowed)
    }

    fn state(&self) -> State {
        State { waits: self.elevator.waits(), out: self.elevator.out() }
    }

    /// What was set last counts, in whatever order it is heard of.
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
        let Request { operation, class, place, start, sectors } = request;
        let entry = Entry { id: EntryId(index as u64), operation, class, start, sectors };
        self.elevator.handle_insert(now_ns, entry, place);
    }

    fn done(&mut self, device: &impl Device<T>, now_ns: u64, ticket: &Ticket) {
        self.elevator.handle_done(ticket.tag);
        let since_ns = ticket.sent_ns.max(self.last_done_ns);
        self.last_done_ns = now_ns;
        device.served(ticket.is_read, now_ns.saturating_sub(since_ns));
    }

    fn choose(&mut self, now_ns: u64, allowed: Allowed, parts: &mut Vec<T>) -> Option<Vector> {
        let dispatch = self.elevator.poll_dispatch(now_ns, allowed)?;
        for entry in self.elevator.parts(dispatch.tag) {
            let index = usize::try_from(entry.id.0).expect("an index of ours");
            parts.push(self.items[index].take().expect("an entry goes out once"));
            self.free.push(index);
        }
        let is_read = dispatch.operation == Operation::Read;
        let ticket = Ticket { tag: dispatch.tag, sent_ns: now_ns, is_read };
        Some(Vector {
            operation: dispatch.operation,
            start: dispatch.start,
            sectors: dispatch.sectors,
            parts: dispatch.parts,
            ticket: Some(ticket),
        })
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
