//! Counts and failures of a run, from any thread.
//!
//! Invariant: an array with a failure is named once for each, with its reason, and makes the run
//! fail (`a_failure_is_named_and_fails_the_run`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use anyhow::{Result, bail};

/// Fewer arrays than this are no proof.
const ARRAYS_MIN: usize = 120;

#[derive(Default)]
struct Numbers {
    counts: BTreeMap<&'static str, usize>,
    arrays: BTreeSet<String>,
    failures: Vec<(String, String)>,
}

/// Counts and failures.
#[derive(Default)]
pub(super) struct Tally(Mutex<Numbers>);

impl Tally {
    /// Counts more of something.
    pub(super) fn count(&self, what: &'static str, more: usize) {
        *self.numbers().counts.entry(what).or_default() += more;
    }

    /// An array that was judged; a failure is told at once.
    pub(super) fn take<T>(&self, array: &str, judged: Result<T>) -> Option<T> {
        self.numbers().arrays.insert(array.to_owned());
        self.check(array, judged)
    }

    /// Something that was judged and is no array of its own.
    pub(super) fn check<T>(&self, name: &str, judged: Result<T>) -> Option<T> {
        judged
            .map_err(|error| {
                let reason = format!("{error:#}");
                println!("FAILED  {name}: {reason}");
                self.numbers().failures.push((name.to_owned(), reason));
            })
            .ok()
    }

    /// Some counts in words.
    pub(super) fn line(&self, words: &[&'static str]) -> String {
        let numbers = self.numbers();
        let say = |word: &&'static str| {
            format!("{} {word}", numbers.counts.get(*word).copied().unwrap_or(0))
        };
        words.iter().map(say).collect::<Vec<_>>().join(", ")
    }

    /// The closing line, if nothing failed.
    pub(super) fn close(self) -> Result<String> {
        let words: Vec<&'static str> = self.numbers().counts.keys().copied().collect();
        let counts = self.line(&words);
        let numbers = self.numbers();
        let failed: BTreeSet<&String> = numbers.failures.iter().map(|(array, _)| array).collect();
        let passed = numbers.arrays.iter().filter(|array| !failed.contains(array)).count();
        let line = format!("{passed} arrays pass: {counts}; failures {}", numbers.failures.len());
        if !failed.is_empty() {
            let mut list = String::new();
            for (array, reason) in &numbers.failures {
                let _ = write!(list, "\n  {array}: {}", reason.lines().next().unwrap_or_default());
            }
            bail!("{line}; failed:{list}");
        }
        if passed < ARRAYS_MIN {
            println!("(fewer than {ARRAYS_MIN} arrays: a partial run)");
        }
        Ok(line)
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, Numbers> {
        self.0.lock().expect("counting does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn a_failure_is_named_and_fails_the_run() {
        let tally = Tally::default();
        tally.take("good", anyhow::Ok(()));
        tally.take::<()>("bad", Err(anyhow::anyhow!("a reason")));
        let said = tally.close().expect_err("a failure").to_string();
        assert!(said.contains("1 arrays pass") && said.contains("bad: a reason"), "{said}");
    }

    #[test]
    fn counts_add_up() {
        let tally = Tally::default();
        tally.count("reads", 2);
        tally.count("reads", 3);
        assert_eq!(tally.line(&["reads", "writes"]), "5 reads, 0 writes");
    }
}
