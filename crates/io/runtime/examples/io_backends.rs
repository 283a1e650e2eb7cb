//! Compares rings with threads on the same files, in turns: `cargo run --release --example
//! io_backends`.
//!
//! The array is a RAID-5 of four files of 64 MiB in the folder for temporary files (`TMPDIR`), with
//! chunks of 64 KiB. I/O bypasses the page cache; with the argument `cached` it does not. With
//! `writeback` writes are acknowledged early. Each line is one workload: the median of the rounds
//! by ring and by threads, their spread, the ratio, and the cost of each request.

#[path = "../tests/kit/files.rs"]
#[allow(dead_code)]
mod files;
#[path = "../tests/kit/mod.rs"]
#[allow(dead_code)]
mod kit;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use braid_geometry::Level;
use braid_ring::{Counters, Settings};
use braid_runtime::{
    Cache, CacheMode, ClientRequest, Completion, Direct, Io, Options, Outcome, Payload, Volume,
    Workers,
};
use files::Files;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(500);
const MEMBER_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    bytes: usize,
    is_write: bool,
    is_random: bool,
}

const WORKLOADS: [Workload; 4] = [
    Workload { name: "4 KiB random read", bytes: 4096, is_write: false, is_random: true },
    Workload { name: "4 KiB random write", bytes: 4096, is_write: true, is_random: true },
    Workload { name: "1 MiB sequential read", bytes: 1 << 20, is_write: false, is_random: false },
    Workload { name: "1 MiB sequential write", bytes: 1 << 20, is_write: true, is_random: false },
];

#[derive(Clone, Copy, Default)]
struct Round {
    requests: u64,
    seconds: f64,
    switches: u64,
    /// Processor time of all threads of this process.
    ticks: u64,
    counters: Counters,
}

fn main() {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let (cached, writeback) = (has("cached"), has("writeback"));
    let mode = if writeback { CacheMode::WriteBack } else { CacheMode::WriteThrough };
    let cache = Cache { mode, ..Cache::default() };
    let manner = Options { cache, shards: 8, ..Options::default() };
    let direct = if cached { Direct::Off } else { Direct::On };
    let manner = Options { direct, ..manner };
    let array = Files::new(Level::Raid5, 4, 128, MEMBER_BYTES);
    let workers = Arc::new(Workers::start(&Settings::default()).expect("io_uring"));
    fill(&array, &workers, &manner);
    println!("{} workers, direct {direct:?}, {mode:?}", workers.count());
    println!(
        "{:<24}{:>8}{:>7}  ring/s (spread)   threads/s (spread)  ratio",
        "", "threads", "depth"
    );
    for workload in WORKLOADS {
        for threads in [1, 4] {
            for depth in [1, 16] {
                compare(&array, &workers, &manner, (workload, threads, depth));
            }
        }
    }
}

fn open(array: &Files, workers: &Arc<Workers>, io: Io, manner: &Options) -> Arc<Volume> {
    let workers = (io == Io::Ring).then(|| Arc::clone(workers));
    let options = Options { io, workers, ..manner.clone() };
    Arc::new(array.open(&options, |_| {}))
}

/// Writes the whole array once, so that no file has holes.
fn fill(array: &Files, workers: &Arc<Workers>, manner: &Options) {
    let volume = open(array, workers, Io::Ring, manner);
    for offset in (0..volume.size_bytes() - (1 << 20)).step_by(1 << 20) {
        let bytes: Vec<u8> = (0..1 << 20).map(|at: u64| (at ^ offset).to_le_bytes()[0]).collect();
        let write = ClientRequest::Write { offset, payload: bytes.into(), durable: false };
        volume.call(write).result.expect("written");
    }
}

fn compare(
    array: &Files,
    workers: &Arc<Workers>,
    manner: &Options,
    (workload, threads, depth): (Workload, u64, usize),
) {
    let mut rounds: [Vec<Round>; 2] = Default::default();
    for round in 0..ROUNDS {
        // Rings and threads take turns, and each begins as often as the other.
        for turn in 0..2 {
            let way = (round + turn) % 2;
            let volume = open(array, workers, [Io::Ring, Io::Threads][way], manner);
            rounds[way].push(run(&volume, workers, (workload, threads, depth)));
        }
    }
    let [ring, other] = rounds.map(|rounds| summary(&rounds));
    println!(
        "{:<24}{threads:>8}{depth:>7} {:>8.0} ({:>3.0} %) {:>12.0} ({:>3.0} %) {:>12.2}",
        workload.name,
        ring.0,
        ring.1,
        other.0,
        other.1,
        ring.0 / other.0
    );
    println!("{:>42}{}\n{:>42}{}", "ring: ", ring.2, "threads: ", other.2);
}

/// The median rate, its spread in percent, and the costs of each request.
fn summary(rounds: &[Round]) -> (f64, f64, String) {
    let mut rates: Vec<f64> =
        rounds.iter().map(|round| round.requests as f64 / round.seconds).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let spread = (rates[rates.len() - 1] - rates[0]) / median * 100.0;
    let requests: u64 = rounds.iter().map(|round| round.requests).sum();
    let per =
        |count: fn(&Round) -> u64| rounds.iter().map(count).sum::<u64>() as f64 / requests as f64;
    let enters = per(|round| round.counters.enters);
    let text = format!(
        "per request {:.1} us of processor, {:.2} context switches, {enters:.2} enters, {:.2} entries ({:.1} an enter), {:.2} wakes",
        per(|round| round.ticks) / 100.0 * 1e6,
        per(|round| round.switches),
        per(|round| round.counters.entries),
        per(|round| round.counters.entries) / enters.max(1e-9),
        per(|round| round.counters.wakes),
    );
    (median, spread, text)
}

fn run(
    volume: &Arc<Volume>,
    workers: &Workers,
    (workload, threads, depth): (Workload, u64, usize),
) -> Round {
    let (before, switches, ticks) = (workers.counters(), context_switches(), ticks());
    let start = Instant::now();
    let requests = std::thread::scope(|scope| {
        let client = |thread| {
            let volume = Arc::clone(volume);
            move || client(&volume, thread, workload, depth)
        };
        let clients: Vec<_> = (0..threads).map(|thread| scope.spawn(client(thread))).collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).sum()
    });
    let seconds = start.elapsed().as_secs_f64();
    let after = workers.counters();
    let counters = Counters {
        enters: after.enters - before.enters,
        entries: after.entries - before.entries,
        wakes: after.wakes - before.wakes,
        ..Counters::default()
    };
    let switches = context_switches() - switches;
    Round { requests, seconds, switches, ticks: self::ticks() - ticks, counters }
}

fn client(volume: &Volume, thread: u64, workload: Workload, depth: usize) -> u64 {
    let (sender, answers) = mpsc::channel::<Outcome>();
    let places = volume.size_bytes() / workload.bytes as u64;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread + 1);
    let mut next = places / 4 * thread;
    let mut submit = |payload: Payload| {
        if workload.is_random {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            next = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        } else {
            next += 1;
        }
        let offset = next % places * workload.bytes as u64;
        let operation = if workload.is_write {
            ClientRequest::Write { offset, payload, durable: false }
        } else {
            ClientRequest::Read { offset, payload }
        };
        let sender = sender.clone();
        let done = move |outcome| sender.send(outcome).expect("the client waits");
        volume.submit(operation, Completion::from_fn(done));
    };
    for _ in 0..depth {
        submit(Payload::from(vec![0x5a; workload.bytes]));
    }
    let (mut requests, mut out, start) = (0, depth, Instant::now());
    while out > 0 {
        let outcome = answers.recv().expect("an answer");
        outcome.result.expect("no errors");
        requests += 1;
        if start.elapsed() < ROUND {
            // A write that was acknowledged early keeps its payload, so the next one needs another.
            let another = || Payload::for_overwriting(workload.bytes);
            submit(outcome.payload.unwrap_or_else(another));
        } else {
            out -= 1;
        }
    }
    requests
}

/// User and system time of this process in hundredths of a second.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc");
    let (_, rest) = stat.rsplit_once(')').expect("the name is in brackets");
    let numbers: Vec<&str> = rest.split_whitespace().collect();
    numbers[11..13].iter().map(|number| number.parse::<u64>().expect("a number")).sum()
}

/// Context switches of this process, voluntary and involuntary.
fn context_switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let of_task = |task: std::fs::DirEntry| -> u64 {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
    };
    tasks.flatten().map(of_task).sum()
}
