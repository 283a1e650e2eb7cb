//! The clients' threads: each has a few requests in flight and waits for all answers, which may
//! come from any thread. The threads are the operating system's, or those of the model of many
//! cores: see `machine`.

use std::sync::OnceLock;

use super::machine::atomic::{AtomicU32, Ordering};
use super::machine::thread::{self, Thread};
use crate::random::Random;

/// Requests that a thread submits at once before it waits for all of them.
pub(super) const DEPTH: u32 = 4;
/// How often a waiting thread yields before it sleeps. A wake-up costs as much as many requests
/// here.
const YIELDS: u32 = 20;
const SECTORS: u64 = 1 << 30;

/// A client's thread and its number of missing answers, on a cache line of their own.
#[derive(Default)]
#[repr(align(128))]
struct ClientThread {
    left: AtomicU32,
    thread: OnceLock<Thread>,
}

pub(super) struct ClientThreads(Vec<ClientThread>);

impl ClientThreads {
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| ClientThread::default()).collect())
    }

    pub(super) fn answer(&self, client: u32) {
        let client = &self.0[client as usize];
        if client.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let thread = client.thread.get().expect("it asked");
            // A thread does not wake itself. Waking a thread that does not wait has no effect.
            if thread.id() != thread::current().id() {
                thread.unpark();
            }
        }
    }

    /// Names this thread as the client.
    pub(super) fn register(&self, client: u32) {
        self.0[client as usize].thread.get_or_init(thread::current);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Makes [`DEPTH`] random reads and waits for them.
    pub(super) fn round(&self, path: &impl RequestPath, client: u32, random: &mut Random) {
        let places: [u64; DEPTH as usize] = std::array::from_fn(|_| random.below(SECTORS));
        self.0[client as usize].left.store(DEPTH, Ordering::Release);
        path.submit(self, client, &places);
        self.wait(client);
    }

    fn wait(&self, client: u32) {
        let left = &self.0[client as usize].left;
        for _ in 0..YIELDS {
            if left.load(Ordering::Acquire) == 0 {
                return;
            }
            thread::yield_now();
        }
        while left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
    }
}

/// The path from the threads to the member. A path takes requests of one sector each, with the
/// client and the sector. It answers each request through [`ClientThreads::answer`], now or later,
/// from any thread.
pub(super) trait RequestPath: Sync {
    fn submit(&self, clients: &ClientThreads, client: u32, places: &[u64]);
}
