//! `cargo xtask fuzz`: runs every target in `fuzz/` for a bounded time.
//!
//! Plain cargo builds the targets, with the nightly toolchain, coverage counters and the address
//! sanitizer. The flags below are those of `cargo fuzz`, which need not be installed. Without
//! nightly no target runs, and the report says so.
//!
//! New inputs stay below the target folder, in `corpus/TARGET` and `crashes/TARGET`, and are not
//! committed. Handmade seeds in `fuzz/seeds/TARGET` and the minimised corpus in
//! `fuzz/corpus/TARGET` are committed, and only read. A crash is printed with the command that
//! repeats it; developers turn it into a unit test of the crate that crashed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::each::each;
use crate::tidy::repository_root;

const SECONDS_DEFAULT: u64 = 60;
/// Longest input, in bytes: two superblocks and a page of log.
const INPUT_BYTES_MAX: u64 = 16 * 1024;
/// Largest allocation, in MiB: a parser must not allocate by a size field from a disk or a socket.
const MALLOC_MIB_MAX: u64 = 128;
/// The target of the builds, which sanitizers need named; the project's continuous integration has
/// no other machine.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Compiler flags for the targets: coverage counters for libFuzzer, and the address sanitizer.
const FLAGS: [&str; 9] = [
    "--cfg=fuzzing",
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = SECONDS_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Which targets; all of them if none is named
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ran,
    /// This machine has no nightly toolchain.
    Skipped,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    run_targets(options.seconds, &options.targets)
}

pub(crate) fn run_targets(seconds: u64, named: &[String]) -> Result<Outcome> {
    if !has_nightly() {
        println!("SKIPPED: no nightly toolchain (rustup toolchain install nightly)");
        return Ok(Outcome::Skipped);
    }
    let root = repository_root()?;
    let folder = root.join("fuzz");
    let known = targets(&folder)?;
    for name in named {
        ensure!(known.contains(name), "no target is called {name}; there are: {}", known.join(" "));
    }
    let chosen = if named.is_empty() { &known } else { named };
    let target = target_folder(&folder);
    build(&folder, &target)?;
    // A target has one thread, so as many run at once as there are cores.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ended = each(cores, chosen, |_, name| run_one(&folder, &target, name, seconds));
    ended.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(Outcome::Ran)
}

fn has_nightly() -> bool {
    Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "no targets in {}", folder.display());
    Ok(names)
}

fn target_folder(folder: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| folder.join("target"), |shared| PathBuf::from(shared).join("fuzz"))
}

fn build(folder: &Path, target: &Path) -> Result<()> {
    let status = Command::new("rustup")
        .args(["run", "nightly", "cargo", "build", "--quiet", "--release", "--bins"])
        .args(["--target", TRIPLE, "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"))
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .current_dir(folder)
        .status()
        .context("rustup run nightly cargo build")?;
    ensure!(status.success(), "the targets do not build");
    Ok(())
}

fn run_one(folder: &Path, target: &Path, name: &str, seconds: u64) -> Result<()> {
    let corpus = target.join("corpus").join(name);
    let crashes = target.join("crashes").join(name);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&crashes)?;
    let mut command = Command::new(target.join(TRIPLE).join("release").join(name));
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .args(["-print_final_stats=1", "-verbosity=0", "-timeout=10"])
        .args(["-rss_limit_mb=1024".to_owned(), format!("-malloc_limit_mb={MALLOC_MIB_MAX}")])
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .arg(&corpus);
    // libFuzzer writes new inputs to the first folder, and only reads the others.
    let seeds = ["seeds", "corpus"].map(|kind| folder.join(kind).join(name));
    command.args(seeds.iter().filter(|seeds| seeds.is_dir()));
    let before = names_in(&crashes)?;
    let output = command.output().with_context(|| format!("running {name}"))?;
    let said = [output.stdout, output.stderr].concat();
    println!("-- {name}, {seconds} s\n{}", String::from_utf8_lossy(&said).trim_end());
    if output.status.success() {
        return Ok(());
    }
    let found = names_in(&crashes)?;
    for path in found.iter().filter(|path| !before.contains(path)) {
        let bytes = std::fs::read(path)?;
        println!("{name}: {} bytes in {}: {}", bytes.len(), path.display(), hex(&bytes));
        let program = command.get_program().to_string_lossy();
        println!("again: {program} {}", path.display());
    }
    bail!("{name} found something; the inputs are in {}", crashes.display())
}

fn names_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?;
    Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_a_corpus_and_no_corpus_is_without_its_target() {
        let folder = repository_root().expect("a root").join("fuzz");
        let known = targets(&folder).expect("targets");
        for kind in ["seeds", "corpus"] {
            let mut found = names_in(&folder.join(kind)).expect("a folder");
            found.sort();
            let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
            let names: Vec<String> = found.iter().filter_map(name).collect();
            assert_eq!(names, known, "{kind}");
            assert!(found.iter().all(|path| !names_in(path).expect("a folder").is_empty()));
        }
    }

    #[test]
    fn an_unknown_target_folder_is_an_error() {
        assert!(targets(Path::new("/nonexistent")).is_err());
    }
}
