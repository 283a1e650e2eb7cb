//! `cargo xtask take-overs`: ends the owner of an array again and again; an heir takes it over.
//!
//! ```text
//! mod            ways to end an owner, rounds, the summary
//!    | partitions   directions of the network away instead, each once
//!    | fio          fio behind qemu-storage-daemon as the client instead
//!    | cluster      etcd, four member servers, an owner and an heir, as processes
//!    | network      a network namespace for each of them
//!    | client, model (crash-loop's)   writes and flushes under load, and the expected content
//!
//!   load ─ the owner ends ─ the heir serves ─ everything is read ─ all members in sync
//! ```
//!
//! The cluster runs through all rounds, so that epochs and superblocks grow old. A seed repeats the
//! choices of a run and not their moments. After a failure the files are kept.
//!
//! Invariants, which each round checks on the running processes: no acknowledged write is missing
//! after a take-over. An owner that sleeps through a take-over answers nothing and ends.

mod cluster;
mod fio;
mod network;
mod partitions;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use rustix::process::{Pid, Signal};

use super::client::Client;
use super::model::{End, Model, SECTOR_BYTES};
use crate::build::Program;
use crate::server::{Server, StartResult, send};
use cluster::{Cluster, MEMBERS};

const ROUNDS_DEFAULT: u64 = 30;
/// Time between two progress lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The silence after which an heir takes over.
const SILENCE: Duration = Duration::from_secs(3);
/// The time that an owner sleeps.
const SLEEP: Duration = SILENCE.saturating_mul(2);
/// Time of load before the owner's end: an heir has read the record by then.
const LOAD: Duration = Duration::from_millis(600);
const LOAD_MORE_MS_MAX: u64 = 800;
/// Most time between the ends of a member server and the owner, and to the server's restart.
const MEMBER_MS_MAX: u64 = 2500;
/// A take-over of this length is reported.
const SLOW: Duration = Duration::from_secs(8);
/// The exit status of an owner that a member or the store has refused.
const REFUSED: i32 = 12;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How many take-overs
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT)]
    rounds: u64,
    /// As many take-overs as begin within this time
    #[arg(long, value_name = "N", conflicts_with = "rounds")]
    seconds: Option<u64>,
    /// The choices; by itself it is the time
    #[arg(long, value_name = "N", default_value_t = super::now(), hide_default_value = true)]
    seed: u64,
    /// Only this way to end an owner
    #[arg(long, value_enum)]
    only: Option<Way>,
    /// Directions of the network away, each once, in network namespaces (root)
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "only"])]
    partitions: bool,
    /// fio is the client, behind qemu-storage-daemon, and verifies
    #[arg(long, conflicts_with = "partitions")]
    fio: bool,
    /// This program, not the release build
    #[arg(long, value_name = "FILE")]
    braid: Option<PathBuf>,
}

impl Options {
    /// Options for one take-over of each way.
    pub(crate) fn short(braid: PathBuf) -> Self {
        Self {
            rounds: Way::ALL.len() as u64,
            seconds: None,
            seed: super::now(),
            only: None,
            partitions: false,
            fio: false,
            braid: Some(braid),
        }
    }
}

/// How an owner ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// By SIGKILL
    Kill,
    /// By SIGKILL, just after a member server, which is started again
    MemberAndKill,
    /// By SIGSTOP, for twice the silence that an heir waits for
    Sleep,
    /// By `braid hand-over`
    HandOver,
    /// By `braid stop`
    Stop,
}

impl Way {
    const ALL: [Self; 5] =
        [Self::Kill, Self::MemberAndKill, Self::Sleep, Self::HandOver, Self::Stop];

    const fn words(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::MemberAndKill => "SIGKILL, a member server too",
            Self::Sleep => "SIGSTOP, woken after 6 s",
            Self::HandOver => "braid hand-over",
            Self::Stop => "braid stop",
        }
    }
}

/// The choices of one round.
#[derive(Clone, Copy)]
struct Plan {
    way: Way,
    load: Duration,
    member: usize,
    /// Time from the end of a member server to the owner's end.
    before: Duration,
    /// Time from the owner's end to the member server's restart.
    after: Duration,
}

impl Plan {
    fn new(way: Way, random: &mut Rng) -> Self {
        let mut up_to = |most_ms| Duration::from_micros(random.u64(..most_ms * 1000));
        let (before, after) = (up_to(MEMBER_MS_MAX), up_to(MEMBER_MS_MAX));
        let load = LOAD + up_to(LOAD_MORE_MS_MAX);
        Self { way, load, member: random.usize(..MEMBERS), before, after }
    }
}

/// The program or right that the machine lacks for the take-overs, if any.
fn missing(options: &Options) -> Option<String> {
    let programs = ["etcd", "curl"].into_iter();
    let programs = programs.chain(network::PROGRAMS.into_iter().filter(|_| options.partitions));
    let mut programs = programs.chain(fio::PROGRAMS.into_iter().filter(|_| options.fio));
    if options.partitions && !rustix::process::geteuid().is_root() {
        return Some("only root may make network namespaces".to_owned());
    }
    let missing = programs.find(|program| !braid_test_needs::is_installed(program));
    missing.map(|program| format!("no {program}"))
}

/// Runs the rounds; returns what the machine lacks, if they are skipped.
pub(crate) fn run(options: &Options) -> Result<Option<String>> {
    if let Some(missing) = missing(options) {
        println!("{}{missing}", braid_test_needs::MARK);
        return Ok(Some(missing));
    }
    let braid = options.braid.clone().map_or_else(|| Program::Braid.release(), Ok)?;
    let folder = tempfile::Builder::new().prefix("braid-take-overs-").tempdir_in("/dev/shm")?;
    let mut times: [Vec<Duration>; Way::ALL.len()] = Default::default();
    let done =
        Soak::new(&braid, folder.path(), options).and_then(|soak| soak.run(options, &mut times));
    done.map(|()| None).map_err(|error| {
        let rounds: usize = times.iter().map(Vec::len).sum();
        let kept = folder.keep().display().to_string();
        error.context(format!("after {rounds} rounds of seed {}; {kept} is kept", options.seed))
    })
}

struct Soak {
    /// fio as the client, if the client is not the model's. fio ends before the owner does.
    fio: Option<fio::Fio>,
    cluster: Cluster,
    owner: Server,
    /// The number of the owner's host; the heir's host is the other of two.
    host: usize,
    model: Model,
    random: Rng,
}

impl Soak {
    fn new(braid: &Path, folder: &Path, options: &Options) -> Result<Self> {
        let cluster = Cluster::new(braid, folder, options.partitions)?;
        let owner = serving(cluster.spawn(0, false)?)?;
        let mut client = Client::connect(&owner.socket)?;
        let sectors = usize::try_from(client.size_bytes())? / SECTOR_BYTES;
        let mut model = Model::new(sectors);
        client.fill(&mut model, sectors)?;
        let start =
            || fio::Fio::start(folder, &cluster.address(), options.seed, client.size_bytes());
        let fio = options.fio.then(start).transpose()?;
        let random = Rng::with_seed(options.seed);
        Ok(Self { fio, cluster, owner, host: 0, model, random })
    }

    fn run(mut self, options: &Options, times: &mut [Vec<Duration>]) -> Result<()> {
        let (begun, mut told) = (Instant::now(), Instant::now());
        let limit = options.seconds.map(Duration::from_secs);
        if options.partitions {
            partitions::run(&mut self)?;
        }
        for round in (0..).take_while(|_| !options.partitions) {
            let is_over = |limit| begun.elapsed() >= limit;
            if limit.map_or(round >= options.rounds, is_over) {
                break;
            }
            let turn = usize::try_from(options.seed.wrapping_add(round) % Way::ALL.len() as u64)?;
            let plan = Plan::new(options.only.unwrap_or(Way::ALL[turn]), &mut self.random);
            let has_fio = self.fio.is_some();
            let took = if has_fio { fio::round(&mut self, plan) } else { self.round(plan) };
            let took = took.with_context(|| plan.way.words())?;
            times[plan.way as usize].push(took);
            if took >= SLOW {
                println!(
                    "slow: {} took {:.1} s in round {round}",
                    plan.way.words(),
                    took.as_secs_f64()
                );
            }
            if told.elapsed() >= REPORT_INTERVAL {
                told = Instant::now();
                self.report(times, begun.elapsed());
            }
        }
        match &mut self.fio {
            Some(fio) => fio.end()?,
            None => self.verify(&self.owner.socket.clone())?,
        }
        self.cluster.check(self.host)?;
        self.report(times, begun.elapsed());
        self.fio = None;
        self.owner.stop()
    }

    /// Ends the owner under load; returns how long no host served.
    fn round(&mut self, plan: Plan) -> Result<Duration> {
        let heir = self.cluster.spawn(1 - self.host, true)?;
        // An idle client would delay an orderly end, so it connects only for a sleep.
        let sleeps = plan.way == Way::Sleep;
        let mut late = sleeps.then(|| Client::connect(&self.owner.socket)).transpose()?;
        let (heir, took) = self.take_over(heir, plan)?;
        self.verify(&heir.socket)?;
        self.host = 1 - self.host;
        let mut old = std::mem::replace(&mut self.owner, heir);
        match (plan.way, &mut late) {
            (Way::HandOver | Way::Stop, _) => old.stopped()?,
            (_, None) => old.kill()?,
            (_, Some(late)) => {
                let sectors = self.random.usize(1..self.model.sectors());
                Client::connect(&self.owner.socket)?.fill(&mut self.model, sectors)?;
                std::thread::sleep(SLEEP.saturating_sub(took));
                late.ask_late()?;
                send(old.process()?, Signal::CONT)?;
                late.is_never_answered()?;
                let status = old.ended()?;
                ensure!(status.code() == Some(REFUSED), "a sleeper ended with {status}");
                self.verify(&self.owner.socket.clone())?;
            }
        }
        self.cluster.wait_until_whole(self.host)?;
        Ok(took)
    }

    fn take_over(&mut self, heir: Server, plan: Plan) -> Result<(Server, Duration)> {
        let mut client = Client::connect(&self.owner.socket)?;
        let (cutter, dying) = (client.cutter()?, AtomicBool::new(false));
        let (owner, cluster) = ((self.host, self.owner.process()?), &mut self.cluster);
        std::thread::scope(|scope| {
            let end = || -> Result<Instant> {
                let began =
                    end_owner(cluster, owner, plan, || dying.store(true, Ordering::SeqCst))?;
                if plan.way == Way::Sleep {
                    // The sleeping owner never answers its last requests: the connection is cut.
                    cutter.cut();
                }
                Ok(began)
            };
            let ender = scope.spawn(end);
            let sectors = 0..self.model.sectors();
            client.load(&mut self.model, &mut self.random, sectors, &dying)?;
            // The client disconnects, as clients do when a server hangs up.
            drop(client);
            let heir = serving(heir)?;
            let serves_since = Instant::now();
            let began = ender.join().map_err(|_| anyhow::anyhow!("the ender panicked"))??;
            Ok((heir, serves_since.duration_since(began)))
        })
    }

    fn verify(&mut self, socket: &Path) -> Result<()> {
        let sectors = 0..self.model.sectors();
        Client::connect(socket)?.verify(&mut self.model, sectors, End::Process)?;
        self.model.judged_all();
        Ok(())
    }

    fn report(&self, times: &[Vec<Duration>], took: Duration) {
        for (way, times) in Way::ALL.into_iter().zip(times).filter(|(_, times)| !times.is_empty()) {
            let mut times = times.clone();
            times.sort_unstable();
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            println!(
                "{:<28} {:>4} take-overs, median {:.2} s, worst {:.2} s",
                way.words(),
                times.len(),
                median.as_secs_f64(),
                worst.as_secs_f64()
            );
        }
        let (tally, rounds) = (self.model.tally, times.iter().map(Vec::len).sum::<usize>());
        if rounds > 0 {
            print!("{rounds} take-overs: ");
        }
        let found = match &self.fio {
            Some(fio) => fio.words(),
            None => format!(
                "{} answered and {} flushed writes looked for, {} sectors compared; losses 0",
                tally.answered, tally.flushed, tally.sectors
            ),
        };
        println!("{found}; {:.1} s", took.as_secs_f64());
    }
}

/// Ends the owner as planned, and a member server before the owner; returns when the owner ended.
/// `before_end` is called just before the owner's end.
fn end_owner(
    cluster: &mut Cluster,
    owner: (usize, Pid),
    plan: Plan,
    before_end: impl FnOnce(),
) -> Result<Instant> {
    std::thread::sleep(plan.load);
    if plan.way == Way::MemberAndKill {
        cluster.kill_member(plan.member);
        std::thread::sleep(plan.before);
    }
    before_end();
    let began = Instant::now();
    end(cluster, owner, plan.way)?;
    if plan.way == Way::MemberAndKill {
        std::thread::sleep(plan.after);
        cluster.start_member(plan.member)?;
    }
    Ok(began)
}

fn end(cluster: &Cluster, (host, process): (usize, Pid), way: Way) -> Result<()> {
    match way {
        Way::Kill | Way::MemberAndKill => send(process, Signal::KILL),
        Way::Sleep => send(process, Signal::STOP),
        Way::HandOver => cluster.ask(host, "hand-over", &[]).map(drop),
        Way::Stop => cluster.ask(host, "stop", &[]).map(drop),
    }
}

fn serving(server: Server) -> Result<Server> {
    match server.serving()? {
        StartResult::Serving(server) => Ok(server),
        StartResult::Refused(code) => bail!("the array is refused with {code}"),
    }
}
