//! Counts and failures of a run, from any thread.
//!
//! Invariant: each failure of an array is printed once, with its reason, and makes the run fail
//! (`a_failure_is_named_and_fails_the_run`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use anyhow::{Result, bail};

/// A run with fewer arrays than this number proves nothing.
const ARRAYS_MIN: usize = 120;

/// The names of the counts, in the order of the closing line.
const COUNTS: [&str; 66] = [
    "reads by braid, healthy",
    "reads by braid, with losses",
    "read over NBD",
    "refused as they must be",
    "arrays made by braid",
    "written over NBD",
    "written with a member lost",
    "left dirty by a crash",
    "given to md",
    "given degraded to md",
    "given stale and rebuilt by md",
    "round trips",
    "jobs md began and braid ended",
    "jobs braid began and md ended",
    "fields of --examine compared",
    "logical blocks cleared for md",
    "placements on large members",
    "crashes with a partial parity log",
    "starts with a member withheld",
    "sectors of parity made fit",
    "sectors without a write, wrong under braid",
    "sectors without a write, wrong under md",
    "sectors without a write, wrong under md after braid replay",
    "crashes of braid with its own log",
    "starts with members withheld",
    "sectors without a write, wrong with its own log",
    "own logs that md made void",
    "crashes with a write journal",
    "starts from it",
    "stripes replayed",
    "of them without parity in the journal",
    "sectors wrong under braid",
    "sectors wrong under md",
    "sectors wrong under md after braid replay",
    "mismatches that md's check finds after braid replay",
    "crashes of braid with a write journal",
    "starts from it with members withheld",
    "sectors without a write, wrong with a journal",
    "mismatches that md's check finds after its replay",
    "times that md and braid took the journal of the other",
    "arrays with a journal that md took after a rebuild of braid's",
    "crashes of md with a bitmap",
    "bits that md had set",
    "bits in all",
    "sectors without a write, wrong after braid's resync",
    "mismatches that md's check finds then",
    "bitmaps that braid made on a running array and md took",
    "of them after a crash",
    "bitmaps that md made or removed and braid took",
    "crashes of md with a bitmap file",
    "crashes of braid with a bitmap file",
    "starts with a file and a member withheld",
    "bits that are set in files after crashes",
    "bits in these files",
    "sectors without a write, wrong with a file",
    "mismatches that md's check finds with a file",
    "bitmap files that md took from braid, and braid from md",
    "crashes of md under a policy",
    "sectors without a write, wrong under md, by policy",
    "sectors without a write, wrong under braid, by policy",
    "partial parity logs that braid made on a running array and md took",
    "of these arrays after a crash",
    "partial parity logs that md made or gave up and braid took",
    "arrays that md took, to which braid had added a log of its own",
    "reshapes from md ended here",
    "reshapes from here ended by md",
];

#[derive(Default)]
struct Numbers {
    counts: BTreeMap<&'static str, usize>,
    arrays: BTreeSet<String>,
    failures: Vec<(String, String)>,
}

#[derive(Default)]
pub(super) struct Tally(Mutex<Numbers>);

impl Tally {
    pub(super) fn count(&self, what: &'static str, more: usize) {
        assert!(COUNTS.contains(&what), "{what} would not be told");
        *self.numbers().counts.entry(what).or_default() += more;
    }

    /// Counts a judged array; prints a failure at once.
    pub(super) fn take<T>(&self, array: &str, judged: Result<T>) -> Option<T> {
        self.numbers().arrays.insert(array.to_owned());
        self.check(array, judged)
    }

    /// Records a result, and prints a failure at once; the result need not be about an array.
    pub(super) fn check<T>(&self, name: &str, judged: Result<T>) -> Option<T> {
        judged
            .map_err(|error| {
                let reason = format!("{error:#}");
                println!("FAILED  {name}: {reason}");
                self.numbers().failures.push((name.to_owned(), reason));
            })
            .ok()
    }

    pub(super) fn line(&self, words: &[&'static str]) -> String {
        let numbers = self.numbers();
        let say = |word: &&'static str| {
            format!("{} {word}", numbers.counts.get(*word).copied().unwrap_or(0))
        };
        words.iter().map(say).collect::<Vec<_>>().join(", ")
    }

    /// The closing line, if nothing failed.
    pub(super) fn close(self) -> Result<String> {
        let counts = self.line(&COUNTS);
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
        tally.count("round trips", 2);
        tally.count("round trips", 3);
        assert_eq!(tally.line(&["round trips", "given to md"]), "5 round trips, 0 given to md");
    }
}
