//! `braid-sim reshape`: lives of arrays that change their shape, seed after seed, or with a crash
//! before each effect.

use braid_sim::reshape::{self, ShapeFamily};

use crate::seeds::Seeds;

/// How many lives run, unless `--lives` or `--seconds` says otherwise.
const LIVES_DEFAULT: u64 = 5_000;

/// Lives with a crash before each write of a superblock, unless `--lives` says otherwise.
const TORN_LIVES_DEFAULT: u64 = 16;

/// The kind of array life to run.
enum Kind {
    Random,
    Crashes,
    Torn,
}

/// Runs the lives, and prints the sum of their counts. With `--crashes` it repeats one small life
/// with a crash before each effect, with `--torn` some before each write of a superblock.
/// `--level 0` and `--level 10` run lives of these levels instead of arrays with parity.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut seeds, mut kind, mut part) = (Seeds::new(LIVES_DEFAULT), Kind::Random, (0, 1));
    let mut family = ShapeFamily::Parity;
    while let Some(word) = words.next() {
        if word == "--crashes" {
            (kind, seeds.count) = (Kind::Crashes, 1);
            continue;
        }
        if word == "--torn" {
            (kind, seeds.count) = (Kind::Torn, TORN_LIVES_DEFAULT);
            continue;
        }
        let next = words.next().unwrap_or_default();
        if word == "--level" {
            family = match next.as_str() {
                "0" => ShapeFamily::Striped,
                "10" => ShapeFamily::Copied,
                _ => return Err(format!("--level is 0 or 10, not {next}")),
            };
        } else if word == "--part" {
            part = crate::part(Some(next))?;
        } else if !seeds.take("--lives", &word, &next)? {
            return Err(format!("unknown word {word}"));
        }
    }
    match kind {
        Kind::Crashes => {
            seeds.run(|seed| reshape::explore_crashes(seed, part), |_| "with crashes".into())
        }
        Kind::Torn => seeds.run(reshape::explore_torn, |_| "with torn superblocks".into()),
        Kind::Random => {
            seeds.run(|seed| reshape::explore(family, seed), |seed| reshape::describe(family, seed))
        }
    }
}
