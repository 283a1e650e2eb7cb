//! The shipped elevator on a modelled machine: each call takes time and fetches the cache lines
//! that it touches.
//!
//! Place in the flow: it replaces `braid_elevator` in code that `crates/rig/many-cores-dispatch`
//! compiles a second time, and in the lab's earlier designs of that code. It decides nothing: every
//! call goes to the shipped elevator.
#![forbid(unsafe_code)]

pub use braid_elevator::{
    BusyTime, Class, Counters, Depth, Directions, Dispatch, Entry, EntryId, Operation, Parts,
    Policy, QueuePosition, Settings, Tag, Turn,
};
use braid_many_cores::{Content, Cost, own_line, own_state, work};

/// The modelled elevator.
#[derive(Debug)]
pub struct Elevator(braid_elevator::Elevator);

impl Content for Elevator {}

impl Elevator {
    /// An empty elevator.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(braid_elevator::Elevator::new(settings))
    }

    /// The elevator's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.0.settings()
    }

    /// Changes the elevator's settings.
    pub fn set(&mut self, settings: Settings) {
        self.0.set(settings);
    }

    /// The elevator's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// Number of waiting entries: reads, and all others.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        self.0.waiting()
    }

    /// The kinds with waiting entries.
    #[must_use]
    pub fn waits(&self) -> Directions {
        self.0.waits()
    }

    /// Number of dispatches in flight: reads, and all others.
    #[must_use]
    pub fn out(&self) -> (u32, u32) {
        self.0.out()
    }

    /// The entries of a dispatch in flight.
    pub fn parts(&self, tag: Tag) -> impl Iterator<Item = &Entry> {
        self.0.parts(tag)
    }

    /// Queues an entry.
    pub fn handle_insert(&mut self, now_ns: u64, entry: Entry, position: QueuePosition) {
        self.come(Some(entry.id));
        work(Cost::Insert);
        self.0.handle_insert(now_ns, entry, position);
    }

    /// The member's next dispatch.
    pub fn poll_dispatch(&mut self, now_ns: u64, allowed: Directions) -> Option<Dispatch> {
        self.come(None);
        work(Cost::Choose);
        let dispatch = self.0.poll_dispatch(now_ns, allowed)?;
        self.come(self.0.parts(dispatch.tag).next().map(|entry| entry.id));
        Some(dispatch)
    }

    /// Up to `count_max` dispatches, while both kinds are allowed.
    pub fn poll_run(
        &mut self,
        now_ns: u64,
        count_max: usize,
        mut send: impl FnMut(Dispatch, Parts<'_>),
    ) {
        for _ in 0..count_max {
            if self.waiting() == (0, 0) {
                return;
            }
            let Some(dispatch) = self.poll_dispatch(now_ns, Directions::ALL) else { return };
            send(dispatch, self.0.parts(dispatch.tag));
        }
    }

    /// Notes that a dispatch is done.
    pub fn handle_done(&mut self, tag: Tag) {
        self.come(self.0.parts(tag).next().map(|entry| entry.id));
        work(Cost::Done);
        self.0.handle_done(tag);
    }

    /// Fetches the elevator's state, and the line of this entry.
    fn come(&self, entry: Option<EntryId>) {
        own_state(self);
        if let Some(EntryId(id)) = entry {
            own_line(self, usize::try_from(id).expect("few wait at a time"));
        }
    }
}
