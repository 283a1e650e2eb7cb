//! The teller: takes changes, numbers them as events, writes the history, and passes them on.
//!
//! ```text
//!   any thread ──tell──▶ queue ──▶ thread braid-events:
//!     number ─▶ history (durable) ─▶ standing ─▶ outlets, followers
//! ```
//!
//! Telling a change never waits, so threads that serve clients may tell changes. Hooks get an event
//! after the history has it, unless the history cannot be written. If the queue is full, changes
//! are dropped and counted, and the number of dropped changes becomes an event. Lost ranges are
//! merged.
//!
//! Invariants
//! - each change becomes one event, in order, with consecutive numbers
//!   `[check: each_change_is_one_event_in_order]`;
//! - dropped changes are counted and reported `[check: a_flood_is_dropped_counted_and_told]`.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::ending::Ending;
use crate::event::{Change, Event, Identity};
use crate::history::{History, HistoryError};
use crate::kind::Kind;
use crate::notice;
use crate::outlet::{Backoff, Deliver, Outlet, OutletCounts, OutletListener, OutletNotice};
use crate::standing::Standing;

/// Most changes that wait to be written.
pub(crate) const QUEUE_MAX: usize = 1024;

/// Most events that a follower may lag behind; if it lags further, its stream ends.
pub(crate) const FOLLOWER_BEHIND_MAX: usize = 1024;

/// Lost ranges that are reported within this time become one event.
const LOST_PAUSE: Duration = Duration::from_secs(1);

/// Interval of tries to write unwritten events to the history, if no other event comes.
const WRITE_AGAIN: Duration = Duration::from_secs(30);

/// How long the end of the teller waits for the last writes to the history.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// A message about event delivery itself.
#[derive(Debug)]
pub enum Complaint<'a> {
    /// The history cannot be written. Sent once until the history can be written again.
    Unwritten(&'a HistoryError),
    /// The history can be written again; this many events are missing from it.
    WrittenAgain(u64),
    /// A message about the hook of this name.
    Outlet(&'static str, OutletNotice<'a>),
}

/// A function that receives messages about event delivery. It must not block.
pub type Listener = Arc<dyn Fn(Complaint<'_>) + Send + Sync>;

/// Counts of changes, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were numbered so far.
    pub told: u64,
    /// Changes that were dropped because too many waited.
    pub dropped: u64,
    /// Events that are missing from the history.
    pub unwritten: u64,
    /// Counts of each hook, by name.
    pub outlets: Vec<(&'static str, OutletCounts)>,
}

/// The teller of one array's changes.
pub struct Teller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Teller").finish_non_exhaustive()
    }
}

/// A handle for telling changes from any thread.
#[derive(Clone)]
pub struct Voice(Arc<Shared>);

struct Shared {
    identity: Identity,
    queue: Mutex<Queue>,
    filled: Condvar,
    results: Mutex<TellerResults>,
    outlets: Vec<Outlet>,
    ending: Arc<Ending>,
}

/// The results of the thread that tells, for other threads to read.
#[derive(Default)]
struct TellerResults {
    standing: Standing,
    told: u64,
    unwritten: u64,
    followers: Vec<mpsc::Sender<Arc<Event>>>,
    /// Whether the teller has ended, so that new followers get an empty stream.
    is_over: bool,
}

/// Changes that wait for the teller's thread; pure.
#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<Change>,
    /// Changes dropped since they were last reported.
    dropped: u64,
    dropped_in_all: u64,
    is_closed: bool,
    has_ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Tell(Box<Change>),
    Wait(Option<Duration>),
    End,
}

impl Queue {
    fn push(&mut self, change: Change, array: &str) {
        let rest = match self.changes.back_mut() {
            Some(last) => notice::merge(last, change, array),
            None => Some(change),
        };
        let Some(change) = rest else { return };
        if self.changes.len() < QUEUE_MAX && !self.is_closed {
            self.changes.push_back(change);
        } else {
            self.dropped += 1;
            self.dropped_in_all += 1;
        }
    }

    /// The teller's next step; `since_lost` is the time since the last event about lost ranges.
    fn next(&mut self, since_lost: Option<Duration>) -> Next {
        let Some(first) = self.changes.front() else {
            return match (std::mem::take(&mut self.dropped), self.is_closed) {
                (0, true) => Next::End,
                (0, false) => Next::Wait(None),
                (dropped, _) => {
                    let message = format!("{dropped} events came too fast and were dropped");
                    Next::Tell(Box::new(
                        Change::now(Kind::EventsLost, message).with("count", dropped),
                    ))
                }
            };
        };
        // Waits, since another lost range may come and merge into this one.
        let may_grow = first.kind == Kind::WriteLost && self.changes.len() == 1 && !self.is_closed;
        let pause = since_lost.and_then(|since| LOST_PAUSE.checked_sub(since));
        match pause.filter(|pause| may_grow && !pause.is_zero()) {
            Some(pause) => Next::Wait(Some(pause)),
            None => Next::Tell(Box::new(self.changes.pop_front().expect("it has a first"))),
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn results(&self) -> MutexGuard<'_, TellerResults> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next change. `None` once the queue is closed and empty; `Some(None)` if no
    /// change comes within `patience`.
    fn next(
        &self,
        last_lost: Option<Instant>,
        patience: Option<Duration>,
    ) -> Option<Option<Change>> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut queue = self.queue();
        loop {
            let wait = match queue.next(last_lost.map(|last| last.elapsed())) {
                Next::Tell(change) => return Some(Some(*change)),
                Next::End => return None,
                Next::Wait(wait) => wait,
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Some(None);
            }
            queue = match [wait, left].into_iter().flatten().min() {
                Some(time) => {
                    let waited = self.filled.wait_timeout(queue, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Voice {
    /// Queues a change for the teller, without waiting.
    pub fn tell(&self, change: Change) {
        self.0.queue().push(change, &self.0.identity.array);
        self.0.filled.notify_all();
    }

    /// Totals of the events so far.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.0.results().standing.clone()
    }

    /// Counts of changes and events so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let dropped = self.0.queue().dropped_in_all;
        let results = self.0.results();
        let outlets = self.0.outlets.iter().map(|outlet| (outlet.name(), outlet.counts()));
        Counts {
            told: results.told,
            dropped,
            unwritten: results.unwritten,
            outlets: outlets.collect(),
        }
    }

    /// A stream of all events from now on. The stream ends when the teller ends, or when the
    /// follower lags too far behind.
    #[must_use]
    pub fn follow(&self) -> mpsc::Receiver<Arc<Event>> {
        let (sender, receiver) = mpsc::channel(FOLLOWER_BEHIND_MAX);
        let mut results = self.0.results();
        // Drops followers that have disconnected since the last event.
        results.followers.retain(|follower| !follower.is_closed());
        if !results.is_over {
            results.followers.push(sender);
        }
        receiver
    }
}

impl Teller {
    /// Starts the teller of an array, with the array's history, if any, and with the hooks in
    /// `ways` as outlets.
    ///
    /// # Errors
    /// No thread could start.
    pub fn start(
        identity: Identity,
        history: Option<History>,
        ways: Vec<(Box<dyn Deliver>, Backoff)>,
        listener: &Listener,
    ) -> std::io::Result<Self> {
        let ending = Arc::new(Ending::default());
        let heard = Arc::clone(listener);
        let of_outlets: OutletListener =
            Arc::new(move |name, notice| heard(Complaint::Outlet(name, notice)));
        let start = |(way, backoff)| Outlet::start(way, backoff, &ending, &of_outlets);
        let outlets = ways.into_iter().map(start).collect::<std::io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            identity,
            queue: Mutex::default(),
            filled: Condvar::new(),
            results: Mutex::default(),
            outlets,
            ending,
        });
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            next_id: history.as_ref().map_or(1, History::next_id),
            history,
            is_unwritten: false,
            listener: Arc::clone(listener),
        };
        let body = move || worker.run();
        let thread = std::thread::Builder::new().name("braid-events".into()).spawn(body)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A handle by which other threads tell changes.
    #[must_use]
    pub fn voice(&self) -> Voice {
        Voice(Arc::clone(&self.shared))
    }

    /// Ends the teller. Waiting changes are written, and hooks have `grace` for the events in their
    /// queues; events left after that are dropped and counted.
    pub fn end(mut self, grace: Duration) -> Counts {
        self.end_within(grace);
        self.voice().counts()
    }

    fn end_within(&mut self, grace: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + LAST_WRITES;
        let mut queue = self.shared.queue();
        queue.is_closed = true;
        self.shared.filled.notify_all();
        // A hanging disk delays the end of the teller no longer than this time.
        while !queue.has_ended && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.shared.filled.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let has_ended = queue.has_ended;
        drop(queue);
        if has_ended {
            thread.join().expect("telling does not panic");
        }
        let until = Instant::now() + grace;
        self.shared.ending.begin(until);
        self.shared.outlets.iter().for_each(Outlet::close);
        for outlet in &self.shared.outlets {
            // After the deadline, hooks get a moment to react to the deadline.
            let moment = Duration::from_millis(200);
            outlet.wait(until.saturating_duration_since(Instant::now()) + moment);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.end_within(Duration::ZERO);
    }
}

struct Worker {
    shared: Arc<Shared>,
    history: Option<History>,
    next_id: u64,
    /// Whether the last write to the history failed.
    is_unwritten: bool,
    listener: Listener,
}

impl Worker {
    fn run(&mut self) {
        let mut last_lost = None;
        loop {
            let patience = self.is_unwritten.then_some(WRITE_AGAIN);
            match self.shared.next(last_lost, patience) {
                None => break,
                Some(None) => self.write_again(),
                Some(Some(change)) => {
                    if change.kind == Kind::WriteLost {
                        last_lost = Some(Instant::now());
                    }
                    self.tell(change);
                }
            }
        }
        self.write_again();
        {
            let mut results = self.shared.results();
            results.followers.clear();
            results.is_over = true;
        }
        self.shared.queue().has_ended = true;
        self.shared.filled.notify_all();
    }

    fn tell(&mut self, change: Change) {
        let event = Arc::new(Event::new(self.next_id, &self.shared.identity, change));
        self.next_id += 1;
        let written = self.history.as_mut().map(|history| history.append(&event));
        self.note_written(written);
        {
            let mut results = self.shared.results();
            results.standing.take(&event);
            results.told += 1;
            // Drops followers that have disconnected or lag too far behind.
            results.followers.retain(|follower| follower.try_send(Arc::clone(&event)).is_ok());
        }
        self.shared.outlets.iter().for_each(|outlet| outlet.give(&event));
    }

    fn write_again(&mut self) {
        let written = self.history.as_mut().map(History::write_again);
        self.note_written(written);
    }

    fn note_written(&mut self, written: Option<Result<(), HistoryError>>) {
        let (Some(history), Some(written)) = (&self.history, written) else { return };
        self.shared.results().unwritten = history.lost() + history.unwritten() as u64;
        match written {
            Ok(()) if std::mem::take(&mut self.is_unwritten) => {
                (self.listener)(Complaint::WrittenAgain(history.lost()));
            }
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(&mut self.is_unwritten, true) {
                    (self.listener)(Complaint::Unwritten(&error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::history;
    use crate::outlet::DeliveryFailure;
    use crate::samples::{events, identity};

    fn quiet() -> Listener {
        Arc::new(|_| {})
    }

    /// The numbers of all events that a follower gets until the end of its stream.
    fn all_of(mut followed: mpsc::Receiver<Arc<Event>>) -> Vec<u64> {
        std::iter::from_fn(|| followed.blocking_recv()).map(|event| event.id).collect()
    }

    fn change(kind: Kind) -> Change {
        Change::now(kind, "m")
    }

    fn lost(offset: u64) -> Change {
        let change = change(Kind::WriteLost).with("offset_bytes", offset);
        change.with("length_bytes", 512).with("ranges", 1)
    }

    struct Into(std::sync::mpsc::Sender<u64>);

    impl Deliver for Into {
        fn name(&self) -> &'static str {
            "into"
        }

        fn deliver(&mut self, event: &Event, _: &Ending) -> Result<(), DeliveryFailure> {
            self.0.send(event.id).expect("a test that looks");
            Ok(())
        }
    }

    #[test]
    fn each_change_is_one_event_in_order() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("u.events");
        let mut expected = Vec::new();
        for run in 0..3 {
            let history = History::open(&folder, history::BYTES_MAX).expect("a history");
            let (sender, delivered) = channel();
            let ways: Vec<(Box<dyn Deliver>, Backoff)> =
                vec![(Box::new(Into(sender)), Backoff::default())];
            let teller =
                Teller::start(identity(), Some(history), ways, &quiet()).expect("a thread");
            let voice = teller.voice();
            let followed = voice.follow();
            let changes: Vec<Change> = events().into_iter().map(|event| event.change).collect();
            let is_lost = |change: &Change| change.kind == Kind::WriteLost;
            let changes: Vec<Change> = changes.into_iter().filter(|one| !is_lost(one)).collect();
            changes.iter().cloned().for_each(|change| voice.tell(change));
            let counts = teller.end(Duration::from_secs(60));
            let count = changes.len() as u64;
            let first = run * count + 1;
            let numbered = (first..).zip(&changes);
            expected.extend(numbered.map(|(id, one)| Event::new(id, &identity(), one.clone())));
            assert_eq!(history::read(&folder).expect("a history"), expected);
            let ids: Vec<u64> = (first..first + count).collect();
            assert_eq!(delivered.iter().collect::<Vec<_>>(), ids);
            assert_eq!(all_of(followed), ids);
            assert_eq!((counts.told, counts.dropped, counts.unwritten), (count, 0, 0));
            assert_eq!(counts.outlets[0].1.delivered, count);
            let standing = voice.standing();
            assert!(standing.is_broken && standing.has_stopped);
            voice.tell(change(Kind::Fail));
            assert_eq!(voice.counts().dropped, 1, "it is too late, and counted");
        }
    }

    #[test]
    fn a_flood_is_dropped_counted_and_told() {
        let mut queue = Queue::default();
        for _ in 0..QUEUE_MAX + 7 {
            queue.push(change(Kind::SlowDisk), "tank");
        }
        for _ in 0..QUEUE_MAX {
            assert!(matches!(queue.next(None), Next::Tell(one) if one.kind == Kind::SlowDisk));
        }
        let Next::Tell(lost) = queue.next(None) else { panic!("the count is told") };
        assert_eq!((lost.kind.clone(), lost.number("count")), (Kind::EventsLost, Some(7)));
        assert_eq!((queue.next(None), queue.dropped_in_all), (Next::Wait(None), 7));
        queue.is_closed = true;
        assert_eq!(queue.next(None), Next::End);
    }

    #[test]
    fn ranges_that_are_lost_are_taken_together_but_never_past_another_event() {
        let mut queue = Queue::default();
        queue.push(lost(0), "tank");
        assert!(matches!(queue.next(None), Next::Tell(_)), "the first is told at once");
        let count = QUEUE_MAX as u64 * 10;
        for number in 0..count {
            queue.push(lost(number * 4096), "tank");
        }
        let second = Duration::from_secs(1);
        assert_eq!(queue.next(Some(second / 4)), Next::Wait(Some(second * 3 / 4)));
        let Next::Tell(all) = queue.next(Some(second)) else { panic!("they are told") };
        assert_eq!(all.number("ranges"), Some(count));
        queue.push(lost(0), "tank");
        queue.push(change(Kind::Fail), "tank");
        queue.push(lost(0), "tank");
        let kinds = [Kind::WriteLost, Kind::Fail].map(|kind| (kind, second / 4));
        for (kind, since) in kinds {
            assert!(matches!(queue.next(Some(since)), Next::Tell(one) if one.kind == kind));
        }
        queue.is_closed = true;
        assert!(matches!(queue.next(Some(second / 4)), Next::Tell(_)), "nothing is kept back");
        assert_eq!(queue.next(None), Next::End);
    }

    /// While the history cannot be written, event numbers continue. Once the history can be written
    /// again, it receives the events of that time.
    #[test]
    fn a_history_that_cannot_be_written_is_said_once_and_written_later() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join("u.events");
        let history = History::open(&folder, history::BYTES_MAX_MIN).expect("a history");
        let (sender, delivered) = channel();
        let (says, said) = channel();
        let listener: Listener = Arc::new(move |complaint| {
            says.send(format!("{complaint:?}")).expect("a test that listens");
        });
        let ways: Vec<(Box<dyn Deliver>, Backoff)> =
            vec![(Box::new(Into(sender)), Backoff::default())];
        let teller = Teller::start(identity(), Some(history), ways, &listener).expect("a thread");
        // Removes the history's folder; the teller notices when the file is full.
        std::fs::remove_dir_all(&folder).expect("a folder");
        let long = "x".repeat(30_000);
        let tell = |message: &str| teller.voice().tell(Change::now(Kind::Fail, message));
        (0..5).for_each(|_| tell(&long));
        assert_eq!(delivered.iter().take(5).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(teller.voice().counts().unwritten, 3);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("current.jsonl"), "").expect("a file");
        tell("again");
        assert_eq!(teller.end(Duration::from_secs(60)).unwritten, 0);
        let ids: Vec<u64> =
            history::read(&folder).expect("a history").iter().map(|one| one.id).collect();
        assert_eq!(ids, [3, 4, 5, 6], "the first two went with the folder");
        let said: Vec<String> = said.try_iter().collect();
        assert!(said.len() == 2 && said[0].starts_with("Unwritten"), "{said:?}");
        assert_eq!(said[1], "WrittenAgain(0)");
    }

    #[test]
    fn without_a_history_hooks_are_told() {
        let (sender, delivered) = channel();
        let ways: Vec<(Box<dyn Deliver>, Backoff)> =
            vec![(Box::new(Into(sender)), Backoff::default())];
        let teller = Teller::start(identity(), None, ways, &quiet()).expect("a thread");
        teller.voice().tell(change(Kind::Fail));
        teller.end(Duration::from_secs(60));
        assert_eq!(delivered.iter().collect::<Vec<_>>(), [1], "without a history hooks are told");
    }

    #[test]
    fn a_follower_that_is_too_far_behind_is_let_go_of() {
        let teller = Teller::start(identity(), None, Vec::new(), &quiet()).expect("a thread");
        let voice = teller.voice();
        let followed = voice.follow();
        for told in 1..=FOLLOWER_BEHIND_MAX as u64 + 2 {
            voice.tell(change(Kind::SlowDisk));
            while voice.counts().told < told {
                std::thread::yield_now();
            }
        }
        let ids = all_of(followed);
        assert_eq!(ids.len(), FOLLOWER_BEHIND_MAX, "it has ended, although telling has not");
        drop(teller);
    }
}
