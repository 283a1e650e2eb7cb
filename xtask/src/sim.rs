//! `cargo xtask sim`: runs the simulator in release, for a bounded time.
//!
//! First the chore compares the traces of one seed in debug and in release. Then it runs many seeds
//! for most of the time, and histories of clones and strangers, and the small worlds. At the end
//! every planted bug must be noticed, and every marked path be taken. The simulator's output is the
//! report. The simulator has one thread, so two processes run at a time; the seed of each process
//! decides its run.
//!
//! The release build has hooks (`--cfg braid_sim_hooks`), which do nothing until asked; the debug
//! build has none. So the comparison of traces also checks that idle hooks change nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::build::{Program, command};
use crate::each::each;
use crate::tidy::repository_root;

const SECONDS_DEFAULT: u64 = 60;
/// Seeds whose traces are compared between debug and release.
const SEEDS_COMPARED: u64 = 5;
/// Starts of arrays among clones and strangers, for each second of random worlds.
const STARTS_PER_SECOND: u64 = 2000;
/// Histories of hosts that own one array in turn, for each second of random worlds.
const HOSTS_PER_SECOND: u64 = 500;
/// Lives of a reshape with a crash before each write of a superblock, in a whole run.
const TORN_LIVES: u64 = 16;
/// Limits of each small story: choices without and with a failing member, and states at each crash
/// point.
const SMALL: &str = "--tellings-max 1 --failures-max 1 --states-max 1";

/// Crash-and-recover cycles with rare choices, which must reach every mark and every legal state.
const SHAKEN_CYCLES: u64 = 80_000;
/// The planted bugs are divided into this many shares: more than cores, since some bugs take a
/// hundred times as long.
const PLANTERS: usize = 24;
/// Simulator processes at a time; the results do not depend on this number.
const CORES: usize = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long random worlds run
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT)]
    seconds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    run_for(options.seconds, options.from)
}

/// Runs random worlds of the development build, and nothing else.
pub(crate) fn run_seeds(seconds: u64) -> Result<()> {
    show(&Program::Sim.dev()?, &[format!("run --seconds {seconds}")])
}

/// Runs seeds from `from` on for `seconds` seconds, then the parts that do not depend on the time.
pub(crate) fn run_for(seconds: u64, from: u64) -> Result<()> {
    let (debug, release) = (Program::Sim.dev()?, with_hooks()?);
    let seeds: Vec<u64> = (from..from + SEEDS_COMPARED).collect();
    for same in each(CORES, &seeds, |_, seed| is_the_same(*seed, (&debug, &release))) {
        same?;
    }
    println!("{SEEDS_COMPARED} seeds are the same twice, and in debug and release");
    // Runs every story if time allows, otherwise an even share of the stories.
    let shares = (SECONDS_DEFAULT / seconds.max(1)).max(1);
    let part = format!("{}/{shares}", from % shares);
    let starts = seconds * STARTS_PER_SECOND;
    let runs = [
        format!("run --seconds {seconds} --from {from}"),
        format!("small --from {from} --part {part} {SMALL}"),
        format!("histories --cycles {starts} --from {from}"),
        format!("reshape --seconds {} --from {from}", seconds / 6),
        format!("reshape --level 10 --seconds {} --from {from}", seconds / 12),
        format!("hosts --seeds {} --from {from}", seconds * HOSTS_PER_SECOND),
        format!(
            "reshape --torn --from {} --lives {}",
            from % TORN_LIVES,
            TORN_LIVES.div_ceil(shares)
        ),
        format!("reshape --crashes --part {}/{}", from % (shares * 4), shares * 4),
    ];
    show(&release, &runs)?;
    tests_of_tests(&release, from)
}

fn is_the_same(seed: u64, (debug, release): (&Path, &Path)) -> Result<()> {
    let line = format!("--seed {seed} --twice");
    let (debug, release) = (output(debug, &line)?, output(release, &line)?);
    ensure!(debug == release, "seed {seed} goes another way in release than in debug");
    Ok(())
}

fn with_hooks() -> Result<PathBuf> {
    let root = repository_root()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let target = target.join("hooks");
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default() + " --cfg braid_sim_hooks";
    let mut build = command(&["build", "--quiet", "--release", "--package", "braid-sim"]);
    build.arg("--target-dir").arg(&target).env("RUSTFLAGS", flags);
    ensure!(build.status().context("cargo build")?.success(), "braid-sim with hooks");
    Ok(target.join("release/braid-sim"))
}

/// Checks that every planted bug is noticed, and that every marked path is taken.
fn tests_of_tests(release: &Path, from: u64) -> Result<()> {
    let shaken = format!("run --shake --marks --no-shrink --cycles {SHAKEN_CYCLES} --from {from}");
    // All processes use one control run of the stories, without planted bugs.
    let control = |part| format!("planted --control --part {part}/{CORES}");
    let share = |part| format!("planted --controlled --part {part}/{PLANTERS}");
    let planted = (0..PLANTERS).map(share);
    let controls = (0..CORES).map(control);
    let runs: Vec<String> = [shaken].into_iter().chain(controls).chain(planted).collect();
    show(release, &runs)
}

/// Runs the simulator with each line, one process per core; prints each output at its end.
fn show(program: &Path, lines: &[String]) -> Result<()> {
    let said = each(CORES, lines, |_, line| {
        let said = output(program, line)?;
        print!("-- braid-sim {line}\n{said}");
        Ok(())
    });
    said.into_iter().collect()
}

/// The program's output. A failing program's output is printed, and an error is returned.
fn output(program: &Path, line: &str) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(line.split(' ')).stderr(Stdio::inherit()).output();
    let output = output.context("braid-sim")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        print!("-- braid-sim {line}\n{said}");
    }
    ensure!(output.status.success(), "braid-sim {line}: {}", output.status);
    Ok(said)
}
