//! `braid-sim hosts`: histories of hosts that own one array in turn, seed after seed.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use braid_sim::{Tally, hosts};

/// How many histories run, unless `--seeds` or `--seconds` says otherwise.
const SEEDS_DEFAULT: u64 = 5_000;
/// A run stops after this many failing seeds.
const FAILED_MAX: usize = 20;

struct Wanted {
    from: u64,
    seeds: u64,
    limit: Option<Duration>,
}

impl Wanted {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut wanted = Self { from: 0, seeds: SEEDS_DEFAULT, limit: None };
        while let Some(word) = words.next() {
            let next = words.next().unwrap_or_default();
            let number = || next.parse::<u64>().map_err(|_| format!("{word} needs a number"));
            match word.as_str() {
                "--from" | "--seed" => wanted.from = number()?,
                "--seeds" => wanted.seeds = number()?,
                "--seconds" => {
                    (wanted.limit, wanted.seeds) =
                        (Some(Duration::from_secs(number()?)), u64::MAX - wanted.from);
                }
                _ => return Err(format!("unknown word {word}")),
            }
        }
        Ok(wanted)
    }
}

/// Runs the histories, and prints the sum of their counts.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let wanted = Wanted::parse(words)?;
    let began = Instant::now();
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    for seed in wanted.from..wanted.from + wanted.seeds {
        let is_late = wanted.limit.is_some_and(|limit| began.elapsed() >= limit);
        if is_late || failed.len() == FAILED_MAX {
            break;
        }
        match catch_unwind(|| hosts::explore(seed)) {
            Ok(tally) => total.add(&tally),
            Err(_) => {
                eprintln!("seed {seed} failed: {}", hosts::describe(seed));
                failed.push(seed);
            }
        }
    }
    crate::print(&total, Some(began.elapsed()), false);
    if failed.is_empty() { Ok(()) } else { Err(format!("seeds that failed: {failed:?}")) }
}
