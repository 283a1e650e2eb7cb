//! `braid-sim hosts`: histories of hosts that own one array in turn, seed after seed.

use braid_sim::hosts;

use crate::seeds::Seeds;

/// How many histories run, unless `--seeds` or `--seconds` says otherwise.
const SEEDS_DEFAULT: u64 = 5_000;

/// Runs the histories, and prints the sum of their counts.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seeds = Seeds::new(SEEDS_DEFAULT);
    while let Some(word) = words.next() {
        if !seeds.take("--seeds", &word, &words.next().unwrap_or_default())? {
            return Err(format!("unknown word {word}"));
        }
    }
    seeds.run(hosts::explore, hosts::describe)
}
