//! `cargo xtask crash-loop`: kills and restarts `braid serve` on real files, again and again.
//!
//! ```text
//! mod          choice of rounds; the summary
//! round        one array: load, crash, start, verify
//!    | matrix      each policy, started without members
//!    | manner      how it serves        | member_storage   tmpfs, or ext4 over loop and its power
//!    | client      NBD, many in flight  | file_connection  the same by FUSE
//!    | foreign     fio
//!    | model       expected content     | offline          mdadm, parity and copies on the files
//! ```
//!
//! The simulator tries the engine under virtual time. This loop tries the layers around the engine:
//! threads, system calls, sockets, a file system's journal. The printed seed makes the choices, and
//! the machine decides their timing: a seed repeats a round's plan but not its every step. If a
//! round fails, its files are kept.

mod client;
mod file_connection;
mod foreign;
mod manner;
mod matrix;
mod member_storage;
mod model;
mod offline;
mod round;
pub(crate) mod take_overs;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::builder::PossibleValuesParser;
use fastrand::Rng;

use crate::build::Program;
use member_storage::{MemberStorage, StorageKind};
use round::{Counts, Plan, Round, SHAPES, Shape};

const ROUNDS_DEFAULT: u64 = 30;

/// Time between two progress lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT)]
    rounds: u64,
    /// As many rounds as begin within this time
    #[arg(long, value_name = "N", conflicts_with = "rounds")]
    seconds: Option<u64>,
    /// The first round's choices; by itself it is the time
    #[arg(long, value_name = "N", default_value_t = now(), hide_default_value = true)]
    seed: u64,
    /// Only arrays of one level
    #[arg(long, value_parser = PossibleValuesParser::new(SHAPES.map(|shape| shape.level)))]
    level: Option<String>,
    /// Only rounds in which jobs are killed, at every percent of each
    #[arg(long)]
    jobs: bool,
    /// Only rounds in which arrays change their shape, with this many crashes in each
    #[arg(long, value_name = "N", conflicts_with = "jobs")]
    reshapes: Option<u32>,
    /// Only the crash matrix: this many crashes of each policy on each level with parity
    #[arg(long, value_name = "N", conflicts_with_all = ["rounds", "seconds", "jobs", "reshapes"])]
    matrix: Option<u64>,
    /// With the development build, not the release build
    #[arg(long)]
    dev: bool,
    /// Where members are
    #[arg(long, value_enum, default_value_t = Members::Both)]
    members: Members,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Members {
    /// In memory
    Tmpfs,
    /// On ext4 over a loop device, whose power is cut
    Ext4,
    /// Rounds of each in turn
    Both,
}

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

impl Options {
    pub(crate) fn short(seconds: u64) -> Self {
        Self {
            rounds: u64::MAX,
            seconds: Some(seconds),
            seed: now(),
            level: None,
            jobs: false,
            reshapes: None,
            matrix: None,
            dev: true,
            members: Members::Both,
        }
    }

    pub(crate) fn short_matrix(crashes: u64) -> Self {
        Self { matrix: Some(crashes), members: Members::Tmpfs, ..Self::short(0) }
    }

    fn rounds(&self) -> u64 {
        if self.seconds.is_some() { u64::MAX } else { self.rounds }
    }

    /// The plan of all rounds, if all rounds have the same plan.
    fn plan(&self) -> Option<Plan> {
        let reshapes = self.reshapes.map(|crashes| Plan::Reshapes { crashes });
        reshapes.or(self.jobs.then_some(Plan::Jobs { step: 1 }))
    }

    fn kinds(&self) -> &'static [StorageKind] {
        match self.members {
            Members::Tmpfs => &[StorageKind::Tmpfs],
            Members::Ext4 => &[StorageKind::Ext4],
            Members::Both => &[StorageKind::Tmpfs, StorageKind::Ext4],
        }
    }
}

fn shapes(options: &Options) -> Vec<Shape> {
    let wanted = |shape: &Shape| {
        let is_named = options.level.as_ref().is_none_or(|level| level == shape.level);
        is_named && options.plan().is_none_or(|plan| shape.can(plan))
    };
    SHAPES.into_iter().filter(wanted).collect()
}

/// Runs the rounds; returns the parts that were omitted and why, if any.
pub(crate) fn run(options: &Options) -> Result<String> {
    let begun = Instant::now();
    ensure!(!shapes(options).is_empty(), "arrays of this level take no part in such rounds");
    let braid = if options.dev { Program::Braid.dev()? } else { Program::Braid.release()? };
    if let Some(crashes) = options.matrix {
        matrix::run(&braid, &shapes(options), crashes, options.seed)?;
        return Ok(String::new());
    }
    let (mut kinds, mut left_out) = (Vec::new(), String::new());
    for kind in options.kinds() {
        match MemberStorage::is_possible(*kind) {
            Ok(()) => kinds.push(*kind),
            Err(error) => {
                left_out = format!("members on {}: {error:#}", kind.word());
                println!("SKIPPED: {left_out}");
            }
        }
    }
    ensure!(!kinds.is_empty(), "nowhere to put members");
    if !round::is_fuse_usable() {
        left_out = format!("{left_out} no FUSE").trim().to_owned();
        println!("SKIPPED: no /dev/fuse, or no right to mount: all clients use NBD");
    }
    if !foreign::Foreign::is_installed() {
        left_out = format!("{left_out} no fio").trim().to_owned();
        println!("SKIPPED: fio is not installed, and takes no part");
    }
    let loop_begun = Instant::now();
    let (mut counts, mut told) = (Counts::default(), loop_begun);
    for index in 0..options.rounds() {
        let limit = options.seconds.map(Duration::from_secs);
        if limit.is_some_and(|limit| loop_begun.elapsed() >= limit) {
            break;
        }
        one(&braid, options, (index, &kinds), &mut counts)?;
        // Prints the counts so far at intervals: a run may be ended by hand.
        if told.elapsed() >= REPORT_INTERVAL {
            told = Instant::now();
            println!("so far, the next round is seed {}:", options.seed.wrapping_add(index + 1));
            report(&counts, begun.elapsed());
        }
    }
    report(&counts, begun.elapsed());
    Ok(left_out)
}

/// Runs one round with a seed of its own, so that the round can be repeated alone.
fn one(
    braid: &Path,
    options: &Options,
    (index, kinds): (u64, &[StorageKind]),
    counts: &mut Counts,
) -> Result<()> {
    let seed = options.seed.wrapping_add(index);
    let mut random = Rng::with_seed(seed);
    // The seed alone chooses level, storage and plan, so the same seed repeats them.
    let (shapes, turn) = (shapes(options), usize::try_from(seed % (1 << 30))?);
    let kind = kinds[turn % kinds.len()];
    let shape = shapes[turn / kinds.len() % shapes.len()];
    let mut plans = options.plan().map_or_else(|| round::plans(kind).to_vec(), |plan| vec![plan]);
    plans.retain(|plan| shape.can(*plan));
    let plan = plans[random.usize(..plans.len())];
    let mut storage = MemberStorage::new(kind)?;
    let done = Round::new(braid, (shape, plan), &mut storage, random, counts)
        .and_then(|round| round.run(plan));
    done.map_err(|error| {
        let kept = storage.keep();
        let what = format!("RAID-{} on {}, {plan:?}", shape.level, kind.word());
        error.context(format!("seed {seed} ({what}; --rounds 1 --seed {seed}); {kept}"))
    })
}

fn report(counts: &Counts, took: Duration) {
    let Counts { rounds, kills, kills_starting, kills_stopping, jobs_killed, .. } = *counts;
    println!(
        "{rounds} rounds: {kills} kills ({kills_starting} while starting, {kills_stopping} while stopping, \
         {jobs_killed} in the middle of a job), {} power cuts, {} orderly stops, {} members lost, {} write holes refused",
        counts.power_cuts, counts.stops, counts.members_lost, counts.refusals
    );
    println!(
        "{} changes of shape and turns, {} crashes in the middle of one ({} with a client at FUSE)",
        counts.shape_changes, counts.reshapes_killed, counts.reshapes_killed_by_fuse
    );
    println!(
        "{} answered and {} flushed writes looked for, {} blocks of fio, {} sectors compared, \
         {} times redundancy of a clean array; losses 0; {:.1} s",
        counts.answered,
        counts.flushed,
        counts.fio_blocks,
        counts.sectors,
        counts.clean_checks,
        took.as_secs_f64()
    );
}
