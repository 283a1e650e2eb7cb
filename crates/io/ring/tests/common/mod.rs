//! A handler that passes completions and wake-ups to the test.
#![allow(dead_code, unreachable_pub)] // not every test file uses all of it

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_ring::{Completion, Descriptor, Handler, Settings, Wake, Worker, Workers};

/// The number reported in place of a worker's for a dropped timer.
pub const FORGOTTEN: usize = usize::MAX;

/// Sends completions and wake-ups to the test's thread.
pub struct EventSender {
    completions: Mutex<Sender<Completion>>,
    wakes: Mutex<Sender<(usize, u64)>>,
}

/// The test's end of an [`EventSender`].
pub struct EventReceiver {
    pub completions: Receiver<Completion>,
    pub wakes: Receiver<(usize, u64)>,
}

pub fn event_channel() -> (Arc<EventSender>, EventReceiver) {
    let (completions, completed) = channel();
    let (wakes, woken) = channel();
    let sender = EventSender { completions: Mutex::new(completions), wakes: Mutex::new(wakes) };
    (Arc::new(sender), EventReceiver { completions: completed, wakes: woken })
}

impl Handler for EventSender {
    fn complete(self: Arc<Self>, _: &Worker, completion: Completion) {
        // The send fails if the test has ended while one of its operations is being cancelled.
        let _ = self.completions.lock().expect("no panic").send(completion);
    }
}

impl Wake for EventSender {
    fn wake(self: Arc<Self>, worker: &Worker, token: u64) {
        let _ = self.wakes.lock().expect("no panic").send((worker.index(), token));
    }

    fn forgotten(self: Arc<Self>, token: u64) {
        let _ = self.wakes.lock().expect("no panic").send((FORGOTTEN, token));
    }
}

impl EventReceiver {
    /// The next completion. If none comes within some seconds, the test fails.
    pub fn next(&self) -> Completion {
        self.completions.recv_timeout(Duration::from_secs(20)).expect("a completion")
    }

    pub fn next_wake(&self) -> (usize, u64) {
        self.wakes.recv_timeout(Duration::from_secs(20)).expect("a wake-up")
    }
}

pub fn workers(workers: usize, entries: u32) -> Workers {
    let settings = Settings { workers, entries, name: "test-worker", ..Settings::default() };
    Workers::start(&settings).expect("io_uring is allowed where tests run")
}

/// A temporary file of `length` bytes.
pub fn file(length: u64) -> Descriptor {
    let file = tempfile::tempfile().expect("a temporary file");
    file.set_len(length).expect("set_len");
    Arc::new(file.into())
}
