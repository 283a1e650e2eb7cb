//! One run of a number of threads on the modelled machine.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_many_cores::{Cost, Costs, now_ns, work_ps};

use super::client_threads::{ClientThreads, DEPTH, RequestPath};
use super::locked::{Listed, Single};
use super::shipped::Shipped;
use crate::random::Random;

/// Modelled time before requests are counted.
const WARM_NS: u64 = 200_000;
/// Modelled time in which requests are counted.
const COUNTED_NS: u64 = 2_000_000;
/// Modelled time in which a small run counts requests.
const SMALL_NS: u64 = 50_000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Variant {
    Before,
    Seed,
    Braid,
}

impl Variant {
    pub(super) const ALL: [Self; 3] = [Self::Before, Self::Seed, Self::Braid];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Seed => "seed",
            Self::Braid => "braid",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    requests: u64,
    counted_ns: u64,
    contention: [u64; 3],
    thread_ns: u64,
}

impl Outcome {
    /// The values, in the order of the suite's metrics.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(super) fn values(&self) -> [f64; 3] {
        let [attempts, failed, waited_ns] = self.contention;
        [
            self.requests as f64 * 1e9 / self.counted_ns as f64,
            100.0 * failed as f64 / attempts.max(1) as f64,
            100.0 * waited_ns as f64 / self.thread_ns as f64,
        ]
    }
}

/// Aligns a value, so that each run has the value at the same offset within a cache line. The
/// offset decides which fields share a line.
#[repr(align(128))]
struct LineAligned<B>(B);

pub(super) fn run(costs: Costs, threads: usize, variant: Variant, small: bool) -> Outcome {
    match variant {
        Variant::Before => run_of(costs, threads, small, Single::new(), Single::contention),
        Variant::Seed => run_of(costs, threads, small, Listed::new(), Listed::contention),
        Variant::Braid => {
            let shipped = Shipped::for_cores(2 * costs.socket_cores);
            run_of(costs, threads, small, shipped, Shipped::contention)
        }
    }
}

fn run_of<B: RequestPath>(
    costs: Costs,
    threads: usize,
    small: bool,
    path: B,
    contention: fn(&B) -> [u64; 3],
) -> Outcome {
    let path = LineAligned(path);
    let counted_ns = if small { SMALL_NS } else { COUNTED_NS };
    let (from_ns, to_ns) = (WARM_NS.min(counted_ns), WARM_NS.min(counted_ns) + counted_ns);
    let (clients, requests) = (ClientThreads::new(threads), AtomicU64::new(0));
    braid_many_cores::run(costs, threads, |thread| {
        let client = u32::try_from(thread).expect("few");
        clients.register(client);
        let mut random = Random::new(u64::from(client) + 1);
        while now_ns() < to_ns {
            // The pause is from half the mean to one and a half times the mean, so that threads do
            // not run in lockstep.
            let mean_ps = costs.ps(Cost::Client) * u64::from(DEPTH);
            work_ps(mean_ps / 2 + random.below(mean_ps + 1));
            clients.round(&path.0, client, &mut random);
            if (from_ns..to_ns).contains(&now_ns()) {
                requests.fetch_add(u64::from(DEPTH), Ordering::Relaxed);
            }
        }
    });
    Outcome {
        requests: requests.into_inner(),
        counted_ns,
        contention: contention(&path.0),
        thread_ns: to_ns * threads as u64,
    }
}
