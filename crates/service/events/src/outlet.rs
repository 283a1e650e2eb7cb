//! An outlet: a target of events, with its own queue and thread.
//!
//! ```text
//!   teller ──give──▶ queue (at most QUEUE_MAX) ──one at a time, in order──▶ Deliver
//!                      │ full: dropped and counted
//! ```
//!
//! A failed delivery is tried again after a while, or dropped.
//!
//! Giving an event to an outlet never waits. Dropped events are counted, and reported once until a
//! delivery succeeds. When the teller ends, an outlet continues until the deadline, then drops the
//! events that remain.
//!
//! Invariants
//! - events are delivered in order, one at a time; each event is delivered once or counted as
//!   dropped `[check: each_event_is_delivered_in_order_or_counted]`;
//! - giving an event does not wait for a delivery that hangs
//!   `[check: an_outlet_that_hangs_holds_nothing_up]`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ending::Ending;
use crate::event::Event;

/// Most events that wait for an outlet: some hours of ordinary trouble, or a minute of a flood.
pub(crate) const QUEUE_MAX: usize = 256;

/// Why an event could not be delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The hook's program could not be started.
    #[error("it could not be started: {0}")]
    Start(#[source] std::io::Error),
    /// The hook's program failed.
    #[error("it ended with {0}")]
    Status(std::process::ExitStatus),
    /// The hook's program took too long and was killed.
    #[error("it took longer than {} s and was ended", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The web server's answer was no success.
    #[error("the server answered {0}")]
    Answer(u16),
    /// The web server did not answer.
    #[error("no answer: {0}")]
    NoAnswer(#[source] Box<ureq::Error>),
    /// The process that delivers events for the hook reports an error.
    #[error("{0}")]
    HookProcess(String),
    /// The deadline of the end has passed.
    #[error("no time was left")]
    Ended,
}

/// Delivers events to a target.
pub trait Deliver: Send + 'static {
    /// The target's name in messages and metrics: one word.
    fn name(&self) -> &'static str;

    /// Whether the target is to get this event.
    fn wants(&self, event: &Event) -> bool {
        let _ = event;
        true
    }

    /// Delivers an event. The delivery may block, but not longer than `ending` allows.
    ///
    /// # Errors
    /// The delivery failed; the error says whether it may be tried again.
    fn deliver(&mut self, event: &Event, ending: &Ending) -> Result<(), DeliveryFailure>;
}

/// A failed delivery.
#[derive(Debug)]
pub struct DeliveryFailure {
    /// Why the delivery failed.
    pub error: DeliveryError,
    /// Whether another try may succeed.
    pub may_retry: bool,
}

impl DeliveryFailure {
    /// A failure for which another try would fail, too.
    #[must_use]
    pub fn for_good(error: DeliveryError) -> Self {
        Self { error, may_retry: false }
    }

    /// A failure after which another try may succeed.
    #[must_use]
    pub fn for_now(error: DeliveryError) -> Self {
        Self { error, may_retry: true }
    }
}

/// Intervals between tries: `first`, then each time twice the last interval, at most `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The interval before the second try.
    pub first: Duration,
    /// The longest interval between two tries.
    pub most: Duration,
    /// Number of tries for one event.
    pub attempts: u32,
}

impl Default for Backoff {
    /// Ten tries within about eight minutes, in which a server or network may recover.
    fn default() -> Self {
        Self { first: Duration::from_secs(1), most: Duration::from_secs(120), attempts: 10 }
    }
}

impl Backoff {
    /// The interval after this many failures; `None` after the last try.
    #[must_use]
    pub fn after(&self, failures: u32) -> Option<Duration> {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        (failures < self.attempts).then(|| self.first.saturating_mul(doubled).min(self.most))
    }
}

/// Counts of an outlet's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutletCounts {
    /// Events that were delivered.
    pub delivered: u64,
    /// Failed tries after which the delivery was tried again.
    pub retried: u64,
    /// Events that were given up after their last try failed.
    pub failed: u64,
    /// Events dropped without a try: the queue was full, or the deadline had passed.
    pub dropped: u64,
}

/// A message about an outlet.
#[derive(Debug)]
pub enum OutletNotice<'a> {
    /// An event cannot be delivered. This notice is sent once until a delivery succeeds.
    Failed(&'a DeliveryError),
    /// An event was dropped because the queue is full. Sent once until a delivery succeeds.
    Full,
    /// A delivery succeeded again, after this many events were lost.
    Again(u64),
}

/// A function that receives notices with the outlet's name. It must not block.
pub(crate) type OutletListener = Arc<dyn Fn(&'static str, OutletNotice<'_>) + Send + Sync>;

pub(crate) struct Outlet {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    queue: Mutex<Queue>,
    filled: Condvar,
    delivered: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    /// Events lost since the last delivery; only the first is reported.
    missed: AtomicU64,
    ending: Arc<Ending>,
    listener: OutletListener,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Arc<Event>>,
    is_closed: bool,
    has_ended: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a lost event. Reports the event if it is the first lost one since the last delivery.
    fn misses(&self, notice: OutletNotice<'_>) {
        if self.missed.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.listener)(self.name, notice);
        }
    }

    fn delivers(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            (self.listener)(self.name, OutletNotice::Again(missed));
        }
    }

    /// Waits for the next event; `None` at the end.
    fn next(&self) -> Option<Arc<Event>> {
        let mut queue = self.queue();
        loop {
            if let Some(event) = queue.events.pop_front() {
                return Some(event);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Outlet {
    pub(crate) fn start(
        mut deliver: Box<dyn Deliver>,
        backoff: Backoff,
        ending: &Arc<Ending>,
        listener: &OutletListener,
    ) -> std::io::Result<Self> {
        let name = deliver.name();
        let shared = Arc::new(Shared {
            name,
            queue: Mutex::default(),
            filled: Condvar::new(),
            delivered: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            ending: Arc::clone(ending),
            listener: Arc::clone(listener),
        });
        let worker = Arc::clone(&shared);
        std::thread::Builder::new().name(format!("braid-{name}")).spawn(move || {
            while let Some(event) = worker.next() {
                if deliver.wants(&event) {
                    deliver_one(&mut *deliver, &event, &backoff, &worker);
                }
            }
            worker.queue().has_ended = true;
            worker.filled.notify_all();
        })?;
        Ok(Self { shared })
    }

    /// Queues an event, or counts it as dropped.
    pub(crate) fn give(&self, event: &Arc<Event>) {
        let mut queue = self.shared.queue();
        if queue.events.len() < QUEUE_MAX {
            queue.events.push_back(Arc::clone(event));
            drop(queue);
            return self.shared.filled.notify_all();
        }
        drop(queue);
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        self.shared.misses(OutletNotice::Full);
    }

    /// Makes the outlet accept no more events.
    pub(crate) fn close(&self) {
        self.shared.queue().is_closed = true;
        self.shared.filled.notify_all();
    }

    /// Waits at most `grace` for the outlet's end, then drops its queue and a hanging delivery.
    pub(crate) fn wait(&self, grace: Duration) {
        let mut queue = self.shared.queue();
        let until = std::time::Instant::now() + grace;
        while !queue.has_ended {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.filled.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let left = std::mem::take(&mut queue.events).len() as u64;
        drop(queue);
        self.shared.dropped.fetch_add(left, Ordering::Relaxed);
    }

    pub(crate) fn name(&self) -> &'static str {
        self.shared.name
    }

    pub(crate) fn counts(&self) -> OutletCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OutletCounts {
            delivered: read(&self.shared.delivered),
            retried: read(&self.shared.retried),
            failed: read(&self.shared.failed),
            dropped: read(&self.shared.dropped),
        }
    }
}

fn deliver_one(deliver: &mut dyn Deliver, event: &Event, backoff: &Backoff, shared: &Shared) {
    for failures in 1.. {
        if shared.ending.allows(Duration::MAX).is_none() {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
            return shared.misses(OutletNotice::Failed(&DeliveryError::Ended));
        }
        let undelivered = match deliver.deliver(event, &shared.ending) {
            Ok(()) => return shared.delivers(),
            Err(undelivered) => undelivered,
        };
        let pause = backoff.after(failures).filter(|_| undelivered.may_retry);
        if !pause.is_some_and(|pause| shared.ending.sleep(pause)) {
            shared.failed.fetch_add(1, Ordering::Relaxed);
            return shared.misses(OutletNotice::Failed(&undelivered.error));
        }
        shared.retried.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    use super::*;
    use crate::event::Change;
    use crate::kind::Kind;
    use crate::samples::identity;

    fn event(id: u64) -> Arc<Event> {
        Arc::new(Event::new(id, &identity(), Change::now(Kind::Fail, "m")))
    }

    /// A target that passes events to a channel, and returns the results of a script.
    struct Scripted {
        answers: Receiver<Result<(), bool>>,
        seen: Sender<u64>,
    }

    impl Deliver for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn wants(&self, event: &Event) -> bool {
            event.id != 99
        }

        fn deliver(&mut self, event: &Event, _: &Ending) -> Result<(), DeliveryFailure> {
            self.seen.send(event.id).expect("a test that looks");
            let answer = self.answers.recv().unwrap_or(Err(false));
            answer.map_err(|may_retry| DeliveryFailure {
                error: DeliveryError::Answer(500),
                may_retry,
            })
        }
    }

    struct Rig {
        outlet: Outlet,
        answers: Sender<Result<(), bool>>,
        seen: Receiver<u64>,
        said: Receiver<String>,
        ending: Arc<Ending>,
    }

    fn rig(attempts: u32) -> Rig {
        let (answers, script) = channel();
        let (shows, seen) = channel();
        let (says, said) = channel();
        let ending = Arc::new(Ending::default());
        let listener: OutletListener = Arc::new(move |name, notice| {
            says.send(format!("{name}: {notice:?}")).expect("a test that listens");
        });
        let scripted = Box::new(Scripted { answers: script, seen: shows });
        let moment = Duration::from_millis(1);
        let backoff = Backoff { first: moment, most: moment, attempts };
        let outlet = Outlet::start(scripted, backoff, &ending, &listener).expect("a thread");
        Rig { outlet, answers, seen, said, ending }
    }

    #[test]
    fn each_event_is_delivered_in_order_or_counted() {
        let rig = rig(3);
        [1, 99, 2, 3, 4].iter().for_each(|id| rig.outlet.give(&event(*id)));
        // Event 1 succeeds at once, event 2 at the third try. Event 3 never succeeds, and event 4
        // fails without another try.
        let script =
            [Ok(()), Err(true), Err(true), Ok(()), Err(true), Err(true), Err(true), Err(false)];
        for answer in script {
            rig.answers.send(answer).expect("an outlet");
        }
        rig.outlet.give(&event(5));
        rig.answers.send(Ok(())).expect("an outlet");
        rig.outlet.close();
        rig.outlet.wait(Duration::from_secs(30));
        assert_eq!(rig.seen.try_iter().collect::<Vec<_>>(), [1, 2, 2, 2, 3, 3, 3, 4, 5]);
        let counts = OutletCounts { delivered: 3, retried: 4, failed: 2, dropped: 0 };
        assert_eq!(rig.outlet.counts(), counts);
        let said: Vec<String> = rig.said.try_iter().collect();
        assert_eq!(said, ["scripted: Failed(Answer(500))", "scripted: Again(2)"], "once each");
    }

    #[test]
    fn an_outlet_that_hangs_holds_nothing_up() {
        let rig = rig(3);
        let begun = Instant::now();
        let count = QUEUE_MAX as u64 + 20;
        for id in 1..=count {
            rig.outlet.give(&event(id));
        }
        rig.ending.begin(Instant::now() + Duration::from_millis(50));
        rig.outlet.close();
        rig.outlet.wait(Duration::from_millis(100));
        assert!(begun.elapsed() < Duration::from_secs(20));
        // The event whose delivery hangs may not be counted yet.
        let dropped = rig.outlet.counts().dropped;
        assert!((count - 1..=count).contains(&dropped), "{dropped} of {count}");
        assert_eq!(rig.said.try_iter().collect::<Vec<_>>(), ["scripted: Full"]);
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_end() {
        let backoff = Backoff::default();
        let pauses: Vec<u64> = (1..20)
            .map_while(|failures| backoff.after(failures))
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        let many = Backoff { attempts: u32::MAX, ..backoff };
        assert_eq!(many.after(u32::MAX - 1), Some(many.most));
    }
}
