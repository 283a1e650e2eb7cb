//! Runs one seed after the other, until enough seeds have run or failed, or time is over.

use std::panic::{RefUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use braid_sim::Tally;

/// A run stops after this many failing seeds.
const FAILED_MAX: usize = 20;

/// The seeds of a run: the first, how many, and for how long.
pub(crate) struct Seeds {
    pub(crate) from: u64,
    pub(crate) count: u64,
    pub(crate) limit: Option<Duration>,
}

impl Seeds {
    pub(crate) fn new(count: u64) -> Self {
        Self { from: 0, count, limit: None }
    }

    /// Parses an option about seeds with its value. `counts` is the option for their number.
    pub(crate) fn take(&mut self, counts: &str, word: &str, value: &str) -> Result<bool, String> {
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number"));
        match word {
            "--from" | "--seed" => self.from = number()?,
            "--seconds" => {
                self.limit = Some(Duration::from_secs(number()?));
                self.count = u64::MAX - self.from;
            }
            _ if word == counts => self.count = number()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Explores the seeds, and prints the sum of their tallies. `describe` names a failing seed.
    pub(crate) fn run(
        &self,
        explore: impl Fn(u64) -> Tally + RefUnwindSafe,
        describe: impl Fn(u64) -> String,
    ) -> Result<(), String> {
        let began = Instant::now();
        let (mut total, mut failed) = (Tally::default(), Vec::new());
        for seed in self.from..self.from + self.count {
            let is_late = self.limit.is_some_and(|limit| began.elapsed() >= limit);
            if is_late || failed.len() == FAILED_MAX {
                break;
            }
            match catch_unwind(|| explore(seed)) {
                Ok(tally) => total.add(&tally),
                Err(_) => {
                    eprintln!("seed {seed} failed: {}", describe(seed));
                    failed.push(seed);
                }
            }
        }
        crate::print(&total, Some(began.elapsed()), false);
        if failed.is_empty() { Ok(()) } else { Err(format!("seeds that failed: {failed:?}")) }
    }
}
