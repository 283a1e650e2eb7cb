//! `cargo xtask models`: runs the hand-overs between threads under every schedule, or very many.
//!
//! The chore builds the combiner, the scheduler, the runtime and the NBD server against loom, and
//! against shuttle, instead of the standard library's threads. It uses a separate target folder and
//! runs the models of these crates. Each model prints its number of schedules, and the report is
//! the sum. The models of one checker run while those of the other are built.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::each::each;
use crate::tidy::repository_root;

/// A model checker by the name of its `cfg`, and the packages with models for this checker.
struct Checker {
    name: &'static str,
    packages: &'static [&'static str],
}

const CHECKERS: [Checker; 2] = [
    Checker { name: "loom", packages: &["braid-dispatch", "braid-runtime", "braid-ring"] },
    Checker {
        name: "shuttle",
        packages: &["braid-dispatch", "braid-runtime", "braid-frontend-nbd", "braid-ring"],
    },
];

/// Crates that are built unoptimised: they compile slowly, run quickly, and are not under test.
/// Parity's kernels stay optimised: their unoptimised frames overflow the stacks that shuttle gives
/// its threads.
const NOT_OPTIMISED: [&str; 3] = ["braid-engine", "braid-assembly", "braid-ondisk"];

/// Runs all models; returns the number of models and of schedules.
pub(crate) fn run() -> Result<(u64, u64)> {
    let (mut models, mut schedules) = (0, 0);
    for lines in each(CHECKERS.len(), &CHECKERS, |_, checker| check(checker)) {
        for line in lines? {
            if let Some(count) = schedules_of(&line) {
                models += 1;
                schedules += count;
            }
        }
    }
    ensure!(models > 0, "no model was run");
    println!("{models} models, {schedules} schedules");
    Ok((models, schedules))
}

/// Runs one checker's models; returns the lines that they print.
fn check(checker: &Checker) -> Result<Vec<String>> {
    let root = repository_root()?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--quiet", "--lib"]);
    command.args(["--config", "profile.dev.debug=false"]);
    command.args(["--config", "profile.dev.package.braid-parity.opt-level=1"]);
    for package in NOT_OPTIMISED {
        command.args(["--config", &format!("profile.dev.package.{package}.opt-level=0")]);
    }
    for package in checker.packages {
        command.args(["--package", package]);
    }
    command
        .args(["models::", "--", "--nocapture"])
        .env("RUSTFLAGS", format!("--cfg {}", checker.name))
        .env("CARGO_TARGET_DIR", target.join("models"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("cargo test")?;
    let errors = child.stderr.take().context("the errors of cargo test")?;
    // The errors of flawed models, which fail on purpose, are shown only if another model fails.
    let errors = std::thread::spawn(move || BufReader::new(errors).lines().collect::<Vec<_>>());
    let output = child.stdout.take().context("the output of cargo test")?;
    let lines = BufReader::new(output).lines().collect::<Result<Vec<_>, _>>()?;
    let mut told = format!("-- {}\n", checker.name);
    for line in &lines {
        // The test runner's dots and the models' lines share the stream.
        if let Some(at) = line.find("model ").filter(|_| schedules_of(line).is_some()) {
            told += &format!("{}\n", &line[at..]);
        } else if line.starts_with("test result:") {
            told += &format!("{line}\n");
        }
    }
    print!("{told}");
    let status = child.wait()?;
    let errors = errors.join().expect("collecting lines does not panic");
    if !status.success() {
        lines.iter().for_each(|line| println!("{line}"));
        errors.into_iter().map_while(Result::ok).for_each(|line| println!("{line}"));
    }
    ensure!(status.success(), "{}: {status}", checker.name);
    Ok(lines)
}

/// The number in `model NAME: N schedules, HOW`; a flawed model prints none.
fn schedules_of(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" schedules, ")?;
    let (name, count) = before.rsplit_once(": ")?;
    name.contains("model ").then(|| count.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_from_lines_of_models_only() {
        assert_eq!(schedules_of("model a: b, c: 12 schedules, all there are"), Some(12));
        assert_eq!(schedules_of(".model a: 3 schedules, the first of them"), Some(3));
        assert_eq!(schedules_of("test result: ok. 3 passed"), None);
        assert_eq!(schedules_of("model a: many schedules, none"), None);
    }
}
