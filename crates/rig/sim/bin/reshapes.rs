//! `braid-sim reshape`: lives of arrays that change their shape, seed after seed, or with a crash
//! before each effect.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use braid_sim::{Tally, reshape};

/// How many lives run, unless `--lives` or `--seconds` says otherwise.
const LIVES_DEFAULT: u64 = 5_000;
/// A run stops after this many failing seeds.
const FAILED_MAX: usize = 20;

struct Wanted {
    from: u64,
    lives: u64,
    limit: Option<Duration>,
    /// Repeats one small life with a crash before each effect, instead of many random lives.
    is_crashes: bool,
    part: (u64, u64),
}

impl Wanted {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut wanted =
            Self { from: 0, lives: LIVES_DEFAULT, limit: None, is_crashes: false, part: (0, 1) };
        while let Some(word) = words.next() {
            if word == "--crashes" {
                (wanted.is_crashes, wanted.lives) = (true, 1);
                continue;
            }
            let next = words.next().unwrap_or_default();
            let number = || next.parse::<u64>().map_err(|_| format!("{word} needs a number"));
            match word.as_str() {
                "--from" | "--seed" => wanted.from = number()?,
                "--lives" => wanted.lives = number()?,
                "--seconds" => {
                    (wanted.limit, wanted.lives) =
                        (Some(Duration::from_secs(number()?)), u64::MAX - wanted.from);
                }
                "--part" => {
                    let part = next.split_once('/');
                    let part = part.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                    let is_share = |(one, of): &(u64, u64)| one < of;
                    let part = part.filter(is_share);
                    wanted.part = part.ok_or("--part needs I/N, I below N")?;
                }
                _ => return Err(format!("unknown word {word}")),
            }
        }
        Ok(wanted)
    }
}

/// Runs the lives, and prints the sum of their counts.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let wanted = Wanted::parse(words)?;
    let began = Instant::now();
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    for seed in wanted.from..wanted.from + wanted.lives {
        let is_late = wanted.limit.is_some_and(|limit| began.elapsed() >= limit);
        if is_late || failed.len() == FAILED_MAX {
            break;
        }
        let life = catch_unwind(|| match wanted.is_crashes {
            true => reshape::explore_crashes(seed, wanted.part),
            false => reshape::explore(seed),
        });
        match life {
            Ok(tally) => total.add(&tally),
            Err(_) => {
                eprintln!("seed {seed} failed");
                if !wanted.is_crashes {
                    eprintln!("{}", reshape::describe(seed));
                }
                failed.push(seed);
            }
        }
    }
    crate::print(&total, Some(began.elapsed()), false);
    if failed.is_empty() { Ok(()) } else { Err(format!("seeds that failed: {failed:?}")) }
}
