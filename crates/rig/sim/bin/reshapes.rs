//! `braid-sim reshape`: lives of arrays that change their shape, seed after seed, or with a crash
//! before each effect.

use braid_sim::reshape;

use crate::seeds::Seeds;

/// How many lives run, unless `--lives` or `--seconds` says otherwise.
const LIVES_DEFAULT: u64 = 5_000;

/// Runs the lives, and prints the sum of their counts. With `--crashes` it repeats one small life
/// with a crash before each effect.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut seeds, mut is_crashes, mut part) = (Seeds::new(LIVES_DEFAULT), false, (0, 1));
    while let Some(word) = words.next() {
        if word == "--crashes" {
            (is_crashes, seeds.count) = (true, 1);
            continue;
        }
        let next = words.next().unwrap_or_default();
        if word == "--part" {
            part = crate::part(Some(next))?;
        } else if !seeds.take("--lives", &word, &next)? {
            return Err(format!("unknown word {word}"));
        }
    }
    match is_crashes {
        true => seeds.run(|seed| reshape::explore_crashes(seed, part), |_| "with crashes".into()),
        false => seeds.run(reshape::explore, reshape::describe),
    }
}
