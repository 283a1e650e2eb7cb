//! Rounds on the operating system's threads, with a real clock.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client_threads::{ClientThreads, DEPTH, RequestPath};
use crate::frame::Usage;
use crate::random::Random;

pub(super) struct RunResult {
    pub(super) seconds: f64,
    pub(super) usage: Usage,
    pub(super) requests: u64,
}

/// Runs `rounds` rounds of [`DEPTH`] random reads on every thread.
pub(super) fn run(path: &impl RequestPath, threads: usize, rounds: u64) -> RunResult {
    run_on(path, &ClientThreads::new(threads), rounds)
}

/// Runs rounds as `run` does, on the given clients, which must not be used again.
pub(super) fn run_on(path: &impl RequestPath, clients: &ClientThreads, rounds: u64) -> RunResult {
    let threads = clients.count();
    let (barrier, ready) = (Barrier::new(threads + 1), AtomicUsize::new(0));
    let mut took = None;
    thread::scope(|scope| {
        let go = |client: u32| {
            let (barrier, ready) = (&barrier, &ready);
            move || {
                clients.register(client);
                let mut random = Random::new(u64::from(client) + 1);
                ready.fetch_add(1, Ordering::Release);
                barrier.wait();
                for _ in 0..rounds {
                    clients.round(path, client, &mut random);
                }
                Instant::now()
            }
        };
        let count = u32::try_from(threads).expect("few");
        let all: Vec<_> = (0..count).map(|client| scope.spawn(go(client))).collect();
        while ready.load(Ordering::Acquire) < threads {
            thread::sleep(Duration::from_micros(100));
        }
        // The start time is taken before the threads are released, since this thread may not run
        // again until they have ended.
        let (start, before) = (Instant::now(), Usage::now());
        barrier.wait();
        let ends = all.into_iter().map(|one| one.join().expect("no holder panics"));
        let end = ends.max().expect("at least one");
        took = Some((end.duration_since(start).as_secs_f64(), Usage::now() - before));
    });
    let (seconds, usage) = took.expect("it ran");
    RunResult { seconds, usage, requests: threads as u64 * rounds * u64::from(DEPTH) }
}
