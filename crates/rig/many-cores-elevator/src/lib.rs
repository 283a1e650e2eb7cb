//! The shipped elevator on a modelled machine: the same calls, each of which takes time and has the lines it needs come.
//!
//! Where it stands: in the place of `braid_elevator`, for code that is compiled a second time (`crates/rig/many-cores-dispatch`) and
//! for the lab's states before it. It decides nothing: every call is the shipped one's.
#![forbid(unsafe_code)]

pub use braid_elevator::{
    Allowed, Busy, Class, Counters, Depth, Dispatch, Entry, EntryId, Operation, Parts, Place,
    Policy, Settings, Tag, Turn,
};
use braid_many_cores::{Content, Cost, own_line, own_state, work};

/// See the crate.
#[derive(Debug)]
pub struct Elevator(braid_elevator::Elevator);

impl Content for Elevator {}

impl Elevator {
    /// An empty one.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(braid_elevator::Elevator::new(settings))
    }

    /// What it is set to.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.0.settings()
    }

    /// Sets it anew.
    pub fn set(&mut self, settings: Settings) {
        self.0.set(settings);
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// Entries that wait, of reads and of everything else.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        self.0.waiting()
    }

    /// Of which kind something waits.
    #[must_use]
    pub fn waits(&self) -> Allowed {
        self.0.waits()
    }

    /// Dispatches that are out, of reads and of everything else.
    #[must_use]
    pub fn out(&self) -> (u32, u32) {
        self.0.out()
    }

    /// The entries of a dispatch that is out.
    pub fn parts(&self, tag: Tag) -> impl Iterator<Item = &Entry> {
        self.0.parts(tag)
    }

    /// Queues an entry.
    pub fn handle_insert(&mut self, now_ns: u64, entry: Entry, place: Place) {
        self.come(Some(entry.id));
        work(Cost::Insert);
        self.0.handle_insert(now_ns, entry, place);
    }

    /// What the member is to do next.
    pub fn poll_dispatch(&mut self, now_ns: u64, allowed: Allowed) -> Option<Dispatch> {
        self.come(None);
        work(Cost::Choose);
        let dispatch = self.0.poll_dispatch(now_ns, allowed)?;
        self.come(self.0.parts(dispatch.tag).next().map(|entry| entry.id));
        Some(dispatch)
    }

    /// The same while both kinds may go, at most `count_max` times.
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
            let Some(dispatch) = self.poll_dispatch(now_ns, Allowed::ALL) else { return };
            send(dispatch, self.0.parts(dispatch.tag));
        }
    }

    /// A dispatch is done.
    pub fn handle_done(&mut self, tag: Tag) {
        self.come(self.0.parts(tag).next().map(|entry| entry.id));
        work(Cost::Done);
        self.0.handle_done(tag);
    }

    /// What it is and, of its entries, this one.
    fn come(&self, entry: Option<EntryId>) {
        own_state(self);
        if let Some(EntryId(id)) = entry {
            own_line(self, usize::try_from(id).expect("few wait at a time"));
        }
    }
}
