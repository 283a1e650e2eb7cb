//! `cargo xtask crash-loop`: `braid serve` as a process on real files, killed and restarted again and again.
//!
//! ```text
//! mod          which rounds; the summary
//! round        one array: load, crash, start, verify
//!    | server      the process          | place    tmpfs, or ext4 over loop and its power
//!    | client      NBD, many in flight  | foreign  fio
//!    | model       what must be there   | offline  mdadm, parity and copies on the files
//! ```
//!
//! The simulator tries the engine under virtual time; this tries what is around it: threads, system calls, sockets, a
//! file system's journal. Choices come from a printed seed; when they take effect is up to the machine, so that a seed
//! repeats a round's plan and not its every step. On a failure the files are kept.

mod client;
mod foreign;
mod model;
mod offline;
mod place;
mod round;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;

use crate::tidy::repository_root;
use place::{Kind, Place};
use round::{Counts, Round, SHAPES, Shape};

/// Rounds unless something else is said.
const ROUNDS_DEFAULT: u64 = 30;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    rounds: u64,
    /// Ends the loop after the round in which it passes.
    seconds: Option<u64>,
    seed: u64,
    level: Option<String>,
    kinds: Vec<Kind>,
}

impl Options {
    fn read(args: &[String]) -> Result<Self> {
        let seed = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
        let kinds = vec![Kind::Tmpfs, Kind::Ext4];
        let mut options = Self { rounds: ROUNDS_DEFAULT, seconds: None, seed, level: None, kinds };
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            let value = rest.next().with_context(|| format!("{word} needs a value"))?;
            let number = || value.parse().with_context(|| format!("{word} {value}"));
            match word.as_str() {
                "--rounds" => options.rounds = number()?,
                "--seconds" => (options.seconds, options.rounds) = (Some(number()?), u64::MAX),
                "--seed" => options.seed = number()?,
                "--level" => options.level = Some(value.clone()),
                "--members" => {
                    options.kinds = match value.as_str() {
                        "tmpfs" => vec![Kind::Tmpfs],
                        "ext4" => vec![Kind::Ext4],
                        "both" => vec![Kind::Tmpfs, Kind::Ext4],
                        _ => bail!("--members tmpfs, ext4 or both"),
                    }
                }
                _ => bail!("unknown argument {word}"),
            }
        }
        ensure!(!shapes(&options).is_empty(), "no level is called {:?}", options.level);
        Ok(options)
    }

    /// For `cargo xtask test`.
    pub(crate) fn short(seconds: u64) -> Result<Self> {
        Self::read(&["--seconds".to_owned(), seconds.to_string()])
    }
}

fn shapes(options: &Options) -> Vec<Shape> {
    let wanted = |shape: &Shape| options.level.as_ref().is_none_or(|level| level == shape.level);
    SHAPES.into_iter().filter(wanted).collect()
}

/// The chore.
pub(crate) fn run(args: &[String]) -> Result<()> {
    run_with(&Options::read(args)?).map(|_| ())
}

/// Runs the rounds; what was left out, and why, or nothing.
pub(crate) fn run_with(options: &Options) -> Result<String> {
    let begun = Instant::now();
    let braid = build()?;
    let (mut kinds, mut left_out) = (Vec::new(), String::new());
    for kind in &options.kinds {
        match Place::is_possible(*kind) {
            Ok(()) => kinds.push(*kind),
            Err(error) => {
                left_out = format!("members on {}: {error:#}", kind.word());
                println!("SKIPPED: {left_out}");
            }
        }
    }
    ensure!(!kinds.is_empty(), "nowhere to put members");
    if !foreign::Foreign::is_installed() {
        left_out = format!("{left_out} no fio").trim().to_owned();
        println!("SKIPPED: fio is not installed, and takes no part");
    }
    let loop_begun = Instant::now();
    let mut counts = Counts::default();
    for index in 0..options.rounds {
        let limit = options.seconds.map(Duration::from_secs);
        if limit.is_some_and(|limit| loop_begun.elapsed() >= limit) {
            break;
        }
        one(&braid, options, (index, &kinds), &mut counts)?;
    }
    report(&counts, begun.elapsed());
    Ok(left_out)
}

/// One round of its own seed, so that it can be tried again alone.
fn one(
    braid: &Path,
    options: &Options,
    (index, kinds): (u64, &[Kind]),
    counts: &mut Counts,
) -> Result<()> {
    let seed = options.seed.wrapping_add(index);
    let mut random = Rng::with_seed(seed);
    // From the seed alone, in turn: the same seed is the same level, place and plan.
    let (shapes, turn) = (shapes(options), usize::try_from(seed % (1 << 30))?);
    let kind = kinds[turn % kinds.len()];
    let shape = shapes[turn / kinds.len() % shapes.len()];
    let plans = round::plans(kind);
    let plan = plans[random.usize(..plans.len())];
    let mut place = Place::new(kind)?;
    let done = Round::new(braid, (shape, plan), &mut place, random, counts)
        .and_then(|round| round.run(plan));
    done.map_err(|error| {
        let kept = place.keep();
        let what = format!("RAID-{} on {}, {plan:?}", shape.level, kind.word());
        error.context(format!("seed {seed} ({what}; --rounds 1 --seed {seed}); {kept}"))
    })
}

fn report(counts: &Counts, took: Duration) {
    let Counts { rounds, kills, kills_starting, kills_stopping, .. } = *counts;
    println!(
        "{rounds} rounds: {kills} kills ({kills_starting} while starting, {kills_stopping} while stopping), \
         {} power cuts, {} orderly stops, {} members lost, {} write holes refused",
        counts.power_cuts, counts.stops, counts.members_lost, counts.refusals
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

/// A release build of braid (quick if it is built already).
fn build() -> Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--package", "braid", "--message-format=json"]);
    let said = place::output(command.current_dir(repository_root()?)).context("building braid")?;
    said.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "braid")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo names no executable")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Options> {
        Options::read(&args.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_bad_ones_refused() {
        let options = read(&["--rounds", "3", "--level", "10", "--members", "tmpfs"]);
        let options = options.expect("good");
        assert_eq!((options.rounds, options.kinds.len()), (3, 1));
        assert_eq!(shapes(&options).len(), 1);
        assert_eq!(shapes(&read(&[]).expect("good")).len(), SHAPES.len());
        for bad in [&["--rounds"][..], &["--level", "7"], &["--members", "nfs"], &["--fast", "1"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
