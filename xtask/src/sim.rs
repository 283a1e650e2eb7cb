//! `cargo xtask sim`: the simulator in release, for a bounded time.
//!
//! First the same seed in debug and in release, whose traces must have one number; then many seeds
//! for most of the time; then histories of clones and strangers, and the small worlds. Last, in a build of its own with `--cfg braid_hooks`:
//! every planted bug must be noticed, and every marked path be taken. What the program prints is the
//! report.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tidy::repository_root;

/// How long the random worlds run unless `--seconds` says otherwise.
const SECONDS_DEFAULT: u64 = 60;
/// Seeds whose traces are compared between debug and release.
const SEEDS_COMPARED: u64 = 5;
/// Starts of arrays among clones and strangers, for each second of random worlds.
const STARTS_PER_SECOND: u64 = 2000;
/// Of each small story: tellings without and with a failing member, and states of each crash point.
const SMALL: [&str; 6] = ["--tellings-max", "1", "--failures-max", "1", "--states-max", "1"];

/// Crash-and-recover cycles with rare choices, in which every mark must be reached and every legal
/// state be visited.
const SHAKEN_CYCLES: u64 = 60_000;
/// Processes that share the planted bugs.
const PLANTERS: usize = 2;

/// What the command line asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long random worlds run
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT)]
    seconds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
}

/// The chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    run_for(options.seconds, options.from)
}

/// Runs seeds from `from` on for `seconds` seconds, and what goes with it.
pub(crate) fn run_for(seconds: u64, from: u64) -> Result<()> {
    for seed in from..from + SEEDS_COMPARED {
        let words = ["--seed", &seed.to_string(), "--twice"];
        let (debug, release) = (output(&[], &words)?, output(&["--release"], &words)?);
        ensure!(debug == release, "seed {seed} goes another way in release than in debug");
    }
    println!("{SEEDS_COMPARED} seeds are the same twice, and in debug and release");
    let random = ["run", "--seconds", &seconds.to_string(), "--from", &from.to_string()];
    show(&random)?;
    let starts = (seconds * STARTS_PER_SECOND).to_string();
    show(&["histories", "--cycles", &starts, "--from", &from.to_string()])?;
    // Every story when there is time, otherwise an even share of them.
    let shares = (SECONDS_DEFAULT / seconds.max(1)).max(1);
    let part = format!("{}/{shares}", from % shares);
    let small = ["small", "--from", &from.to_string(), "--part", &part];
    show(&[&small[..], &SMALL].concat())?;
    with_hooks(from)
}

/// The build with hooks: the tests of the tests, and coverage.
fn with_hooks(from: u64) -> Result<()> {
    let root = repository_root()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let target = target.join("hooks");
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default() + " --cfg braid_hooks";
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--release", "--package", "braid-sim", "--target-dir"]);
    build.arg(&target).env("RUSTFLAGS", flags).current_dir(&root);
    ensure!(build.status().context("cargo build")?.success(), "braid-sim with hooks");
    let program = target.join("release/braid-sim");
    let planted = (0..PLANTERS).map(|part| {
        let mut command = Command::new(&program);
        command.args(["planted", "--part", &format!("{part}/{PLANTERS}")]);
        command.stdout(Stdio::piped()).spawn().context("braid-sim planted")
    });
    let mut free = 0;
    for planter in planted.collect::<Result<Vec<_>>>()? {
        let output = planter.wait_with_output()?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        free += usize::from(!output.status.success());
    }
    ensure!(free == 0, "a planted bug was not noticed");
    let mut command = Command::new(&program);
    command.args(["run", "--shake", "--marks", "--no-shrink", "--cycles"]);
    command.args([SHAKEN_CYCLES.to_string(), "--from".to_owned(), from.to_string()]);
    ensure!(command.status().context("braid-sim")?.success(), "{command:?}");
    Ok(())
}

fn command(flags: &[&str], words: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--package", "braid-sim"]).args(flags).arg("--").args(words);
    command.current_dir(repository_root()?);
    Ok(command)
}

fn output(flags: &[&str], words: &[&str]) -> Result<String> {
    let mut command = command(flags, words)?;
    let output = command.stderr(Stdio::inherit()).output().context("braid-sim")?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn show(words: &[&str]) -> Result<()> {
    let mut command = command(&["--release"], words)?;
    let status = command.status().context("braid-sim")?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
