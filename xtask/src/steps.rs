//! `cargo xtask test`: everything that must hold, one step after the other.
//!
//! ```text
//! packages -> fmt -> clippy -> tidy -> test -> sim -> models -> docs -> fuzz
//!   -> oracle, crash-loop, lab, package, guests, filesystems (three at a time) -> demo -> summary
//! ```
//!
//! Steps that mostly wait run at the same time, each in its own process; its output is shown at its
//! end. Cheap steps come first. The first failing step ends the run with its name. If a step cannot
//! run on this machine, it reports that, and the summary lists it as skipped.
//!
//! Invariants:
//! - the summary of a failed run names the failing step and nothing after it
//!   `[check: the_first_failure_ends_the_run]`.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::PossibleValuesParser;

use crate::build::{Program, TestProgram, command, folder, test_programs};
use crate::each::each;
use crate::{
    bench, crash, dist, filesystems, fuzz, guests, lab, models, oracle, packages, remedies, sim,
    tidy,
};

/// Time limit of the whole run on two cores; a longer run is reported at the end.
const BUDGET: Duration = Duration::from_secs(30 * 60);
/// Tests at a time for each core, in a program whose tests mostly wait.
const WAITING_PER_CORE: usize = 2;
/// The prefix of a step's summary line.
const SAID: &str = "== ";
/// Waiting steps that run at a time. Each keeps about 0.8 of a core busy, but the oracle 1.6.
const STEPS_AT_A_TIME: usize = 3;
const PROGRAMS_AT_A_TIME: usize = 2;
/// The slowest test program, which starts first.
const LONGEST: &str = "e2e";
/// Seconds that a test program may take: a hanging program is ended, so that its output is seen.
const PROGRAM_SECONDS_MAX: u64 = 20 * 60;
/// Seconds from SIGTERM to SIGKILL.
const GRACE_SECONDS: u64 = 30;
/// Exit codes of `timeout` after `timeout` ended the program, or killed it.
const TIMED_OUT: [i32; 2] = [124, 137];
/// Disk space that all steps write from scratch, most of it by the build.
const ROOM_BYTES: u64 = 12 << 30;
/// Disk space that all steps write after an earlier build.
const ROOM_BUILT_BYTES: u64 = 4 << 30;
const SIM_SECONDS: u64 = 10;
const CRASH_SECONDS: u64 = 12;
/// Crashes of each write-hole policy on each level, each followed by starts without members.
const MATRIX_CRASHES: u64 = 2;
const FUZZ_SECONDS: u64 = 3;

/// Broken links are errors, but not links to private items: readers have the source.
const DOC_FLAGS: &str = "-D warnings -A rustdoc::private_intra_doc_links";

#[derive(Clone, Debug, PartialEq, Eq)]
enum StepResult {
    /// The step is done; the text goes into the summary, and may be empty.
    Done(String),
    Skipped(String),
}

#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    run: fn() -> Result<StepResult>,
    /// Whether the step may run at the same time as neighbouring steps with this flag.
    beside: bool,
}

impl Step {
    const fn alone(name: &'static str, run: fn() -> Result<StepResult>) -> Self {
        Self { name, run, beside: false }
    }

    /// A step that waits more than it computes.
    const fn beside(name: &'static str, run: fn() -> Result<StepResult>) -> Self {
        Self { name, run, beside: true }
    }
}

const FMT: Step = Step::alone("fmt", || cargo(&["fmt", "--all", "--check"]));
const CLIPPY: Step = Step::alone("clippy", clippy);
const TIDY: Step = Step::alone("tidy", || tidy::run().map(done));

const STEPS: [Step; 16] = [
    Step::alone("packages", || packages::ensure().map(done)),
    FMT,
    CLIPPY,
    TIDY,
    Step::alone("test", test),
    Step::alone("sim", simulate_briefly),
    Step::alone("models", check_models),
    Step::alone("docs", docs),
    Step::alone("fuzz", fuzz_briefly),
    Step::beside("oracle", || oracle::run_today().map(done)),
    Step::beside("crash-loop", crash_briefly),
    Step::beside("lab", measure_briefly),
    Step::beside("package", install_package),
    Step::beside("guests", boot_guests),
    Step::beside("filesystems", live_briefly),
    Step::alone("demo", || finish(Command::new(Program::Braid.dev()?).arg("demo"))),
];

/// The steps of a quick run, which developers make before each commit.
const QUICK: [Step; 5] = [
    FMT,
    CLIPPY,
    TIDY,
    Step::alone("test", test_quickly),
    Step::alone("sim", || sim::run_seeds(SIM_SECONDS).map(done)),
];
/// Folders whose tests a quick run leaves out: they take minutes.
const SLOW_FOLDERS: [&str; 2] = ["crates/rescue/", "crates/rig/"];
/// Modules of the end-to-end tests that a quick run leaves out: those about rescue.
const RESCUE_TESTS: [&str; 8] = [
    "broken_arrays::",
    "containers::",
    "damaged_superblocks::",
    "image::",
    "nas::",
    "rescue::",
    "reshape::",
    "solve::",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Before each commit, in about seven minutes: fmt, clippy, tidy, tests without rescue, and a
    /// short simulation
    #[arg(long, conflicts_with_all = ["skip", "only"])]
    quick: bool,
    /// Leave a step out; the summary says so
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(STEPS.map(|step| step.name)))]
    skip: Vec<String>,
    /// Do this step and no other
    #[arg(long, value_name = "STEP", conflicts_with = "skip", value_parser = PossibleValuesParser::new(STEPS.map(|step| step.name)))]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let is_wanted = |step: &&Step| args.only.as_ref().is_none_or(|only| only == step.name);
    let all = if args.quick { &QUICK[..] } else { &STEPS[..] };
    let steps: Vec<Step> = all.iter().filter(is_wanted).copied().collect();
    if args.only.is_none() {
        has_room()?;
    }
    let (summary, failure) = go_through(&steps, &args.skip);
    println!("\n== summary: seconds, and how many cores were busy");
    for line in &summary {
        println!("{line}");
    }
    let total = started.elapsed();
    println!("  {:<11} {:>8} {:>4}", "total", seconds(total), busy_cores(None, total));
    if total > BUDGET {
        println!("  over the budget of {} on two cores", seconds(BUDGET));
    }
    match failure {
        Some((name, error)) => bail!("the step {name} failed: {error:#}"),
        None => Ok(()),
    }
}

/// Refuses to start if the disk would fill up: tests then hang, or fail far from the cause.
fn has_room() -> Result<()> {
    let (target, temporary) = (folder()?, std::env::temp_dir());
    let is_built = ["debug", "hooks/release", "models/debug"]
        .iter()
        .all(|it| target.join(it).join("deps").is_dir());
    let wanted = if is_built { ROOM_BUILT_BYTES } else { ROOM_BYTES };
    let free = |path: &Path| -> Result<u64> {
        let it = rustix::fs::statvfs(path).with_context(|| path.display().to_string())?;
        Ok(it.f_bavail.saturating_mul(it.f_frsize))
    };
    let place = target.ancestors().find(|path| path.is_dir()).context("a folder to build in")?;
    let least = free(place)?.min(free(&temporary)?);
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    println!("{} free below {} and {}", gib(least), place.display(), temporary.display());
    ensure!(least >= wanted, "all of it wants {}", gib(wanted));
    Ok(())
}

/// A step's line of the summary, and its error.
type StepSummary = (String, Option<anyhow::Error>);

/// Runs the steps; returns a line for each step reached, and the failure that ended the run.
fn go_through(
    steps: &[Step],
    skip: &[String],
) -> (Vec<String>, Option<(&'static str, anyhow::Error)>) {
    let (mut summary, mut rest) = (Vec::new(), steps);
    while !rest.is_empty() {
        let together = rest.iter().take_while(|step| step.beside).count().max(1);
        let (now, later) = rest.split_at(together);
        rest = later;
        let gone = match now {
            [step] => vec![go(step, skip)],
            _ => each(STEPS_AT_A_TIME, now, |_, step| go_apart(step, skip)),
        };
        let mut failure = None;
        for (step, (line, error)) in now.iter().zip(gone) {
            summary.push(line);
            failure = failure.or(error.map(|error| (step.name, error)));
        }
        if failure.is_some() {
            return (summary, failure);
        }
    }
    (summary, None)
}

fn go(step: &Step, skip: &[String]) -> StepSummary {
    println!("\n== {}", step.name);
    let (started, busy) = (Instant::now(), busy());
    let ending = if skip.iter().any(|name| name == step.name) {
        Ok(StepResult::Skipped("as asked".to_string()))
    } else {
        (step.run)()
    };
    let (word, failure) = match ending {
        Ok(StepResult::Done(word)) if word.is_empty() => ("ok".to_string(), None),
        Ok(StepResult::Done(word)) => (format!("ok, {word}"), None),
        Ok(StepResult::Skipped(why)) => (format!("SKIPPED, {why}"), None),
        Err(error) => ("FAILED".to_string(), Some(error)),
    };
    let cores = busy_cores(busy, started.elapsed());
    let line = format!("  {:<11} {:>8} {cores:>4}  {word}", step.name, seconds(started.elapsed()));
    println!("{SAID}{line}");
    (line, failure)
}

/// Runs a step in a separate process, and shows its output at the end.
fn go_apart(step: &Step, skip: &[String]) -> StepSummary {
    if skip.iter().any(|name| name == step.name) {
        return go(step, skip);
    }
    let run = || -> Result<(String, bool)> {
        // This program's own executable, even if cargo has replaced its file since.
        let mut program = Command::new("/proc/self/exe");
        program.args(["test", "--only", step.name]).stdin(Stdio::null());
        let output = program.output().with_context(|| format!("{program:?}"))?;
        let said = [output.stdout, output.stderr].concat();
        Ok((String::from_utf8_lossy(&said).into_owned(), output.status.success()))
    };
    match run() {
        Ok((said, is_success)) => {
            print!("{said}");
            let failed = || anyhow::anyhow!("see what it said above");
            let line = line_of(&said).unwrap_or_else(|| format!("  {:<11} FAILED", step.name));
            (line, (!is_success).then(failed))
        }
        Err(error) => (format!("  {:<11} FAILED", step.name), Some(error)),
    }
}

/// The summary line in the output of a step's own process.
fn line_of(said: &str) -> Option<String> {
    let mut lines = said.lines().filter_map(|line| line.strip_prefix(SAID));
    lines.find(|line| line.starts_with("  ")).map(str::to_owned)
}

/// CPU time of this program and of its finished children; `None` if the system does not say.
fn busy() -> Option<Duration> {
    let said = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name ends with the last parenthesis; it is field 2 of proc_pid_stat(5).
    let (_, fields) = said.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(14 - 3).take(4);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

/// The average number of busy cores over `time`, since the CPU time `before`.
fn busy_cores(before: Option<Duration>, time: Duration) -> String {
    let cores = busy().map(|busy| busy.saturating_sub(before.unwrap_or_default()));
    cores.map_or_else(String::new, |cores| format!("{:.1}", cores.div_duration_f64(time)))
}

fn done((): ()) -> StepResult {
    StepResult::Done(String::new())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn clippy() -> Result<StepResult> {
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

fn measure_briefly() -> Result<StepResult> {
    let suites = lab::run()?;
    Ok(StepResult::Done(format!("{suites}, {} cells of bench", bench::try_out()?)))
}

fn docs() -> Result<StepResult> {
    let mut command = command(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    command.arg("--quiet").env("RUSTDOCFLAGS", DOC_FLAGS);
    finish(&mut command)
}

fn simulate_briefly() -> Result<StepResult> {
    sim::run_for(SIM_SECONDS, 0)?;
    Ok(StepResult::Done(format!("{SIM_SECONDS} s of random worlds")))
}

fn check_models() -> Result<StepResult> {
    let (models, schedules) = models::run()?;
    Ok(StepResult::Done(format!("{models} models, {schedules} schedules")))
}

fn crash_briefly() -> Result<StepResult> {
    let left_out = crash::run(&crash::Options::short(CRASH_SECONDS))?;
    crash::run(&crash::Options::short_matrix(MATRIX_CRASHES))?;
    let soak = crash::take_overs::Options::short(Program::Braid.dev()?);
    let took_over = match crash::take_overs::run(&soak)? {
        None => "take-overs".to_owned(),
        Some(why) => format!("SKIPPED take-overs: {why}"),
    };
    Ok(StepResult::Done(match left_out.as_str() {
        "" => format!("{CRASH_SECONDS} s, tmpfs and ext4; {took_over}"),
        _ => format!("{CRASH_SECONDS} s; SKIPPED {left_out}; {took_over}"),
    }))
}

fn live_briefly() -> Result<StepResult> {
    Ok(match filesystems::run(&filesystems::Options::short())? {
        filesystems::RunResult::Cells(count) => StepResult::Done(format!("{count} cell")),
        filesystems::RunResult::Skipped(why) => StepResult::Skipped(why),
    })
}

fn boot_guests() -> Result<StepResult> {
    Ok(StepResult::Done(format!("{} scenes", guests::run(&guests::Options::short())?)))
}

/// Installs the tested program's package in an empty root, uses the package as its systemd unit
/// would, and removes it.
fn install_package() -> Result<StepResult> {
    if !packages::is_root()? {
        return Ok(StepResult::Skipped("only root may make a root of its own".to_string()));
    }
    dist::run(&dist::Args::clean_root(Program::Braid.dev()?)).map(done)
}

fn fuzz_briefly() -> Result<StepResult> {
    Ok(match fuzz::run_targets(FUZZ_SECONDS, &[])? {
        fuzz::Outcome::Ran => StepResult::Done(format!("{FUZZ_SECONDS} s each")),
        fuzz::Outcome::Skipped => StepResult::Skipped("no nightly toolchain".to_string()),
    })
}

/// Runs the tests as `cargo test` does, but two test programs at a time: half of them wait for
/// servers, and half compute. A program's output is shown at its end. A skipped test fails if the
/// machine has all that the test needs; other skipped tests are counted and named.
fn test() -> Result<StepResult> {
    let notes = remedies::begin()?;
    let counts = run_tests(test_programs()?, &[], &notes)?;
    let remedies = remedies::end(&notes, counts.skipped.is_empty())?;
    Ok(StepResult::Done(format!("{counts}; {remedies}")))
}

/// Runs all tests except those that take minutes.
fn test_quickly() -> Result<StepResult> {
    let mut programs = test_programs()?;
    let root = tidy::repository_root()?;
    programs.retain(|it| !SLOW_FOLDERS.iter().any(|slow| it.folder.starts_with(root.join(slow))));
    let counts = run_tests(programs, &RESCUE_TESTS, &remedies::begin()?)?;
    Ok(StepResult::Done(format!("{counts}; without rescue and rig")))
}

/// Runs these test programs, without the end-to-end tests whose names are in `skipped`.
fn run_tests(mut programs: Vec<TestProgram>, skipped: &[&str], notes: &Path) -> Result<Counts> {
    ensure!(!programs.is_empty(), "cargo made no tests at all");
    programs.sort_by_key(|it| it.name != LONGEST);
    let ends = each(PROGRAMS_AT_A_TIME, &programs, |_, program| {
        let started = Instant::now();
        let mut command = Command::new("timeout");
        command.arg(format!("--kill-after={GRACE_SECONDS}"));
        command.arg(PROGRAM_SECONDS_MAX.to_string()).arg(&program.path);
        command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        // Tests of the longest program mostly wait for servers, so more of them run per core. The
        // program that runs at the same time computes.
        let is_longest = program.name == LONGEST;
        let per_core = if is_longest { WAITING_PER_CORE } else { 1 };
        let left_out = skipped.iter().filter(|_| is_longest).flat_map(|name| ["--skip", name]);
        let end = output_of(command.args(left_out), notes, per_core);
        if let Ok((output, _)) = &end {
            print!("-- {}, {}\n{output}", program.name, seconds(started.elapsed()));
        }
        (program.name.clone(), end)
    });
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    for (name, end) in ends {
        let (output, is_success) = end?;
        output.lines().for_each(|line| counts.add(line));
        if !is_success {
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "tests fail in {}", failed.join(", "));
    ensure!(counts.passed > 0, "no tests were run at all");
    Ok(counts)
}

/// Runs a test program; returns its output, and whether its tests pass.
fn output_of(command: &mut Command, notes: &Path, per_core: usize) -> Result<(String, bool)> {
    command
        .env(braid_test_needs::VARIABLE, braid_test_needs::found())
        .env(remedies::VARIABLE, notes);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", (cores * per_core).to_string());
    }
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    if output.status.code().is_some_and(|code| TIMED_OUT.contains(&code)) {
        said.push_str(&format!("ended after {PROGRAM_SECONDS_MAX} s\n"));
    }
    Ok((said, output.status.success()))
}

/// Sums over the `test result:` lines, and the reasons for skipped tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    ignored: u64,
    skipped: BTreeMap<String, u64>,
}

impl Counts {
    fn add(&mut self, line: &str) {
        // The mark may stand after words of the test harness.
        if let Some((_, why)) = line.split_once(braid_test_needs::MARK) {
            *self.skipped.entry(why.to_owned()).or_default() += 1;
        }
        let Some(result) = line.strip_prefix("test result:") else { return };
        let number = |word: &str| {
            let before =
                result.split(word).next()?.rsplit([' ', '.', ';']).find(|part| !part.is_empty());
            before?.parse::<u64>().ok()
        };
        self.passed += number(" passed").unwrap_or(0);
        self.ignored += number(" ignored").unwrap_or(0);
    }
}

impl Display for Counts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passed, {} ignored", self.passed, self.ignored)?;
        for (why, times) in &self.skipped {
            write!(formatter, ", {times} SKIPPED ({why})")?;
        }
        Ok(())
    }
}

fn cargo(args: &[&str]) -> Result<StepResult> {
    finish(&mut command(args))
}

fn finish(command: &mut Command) -> Result<StepResult> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(done(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail() -> Result<StepResult> {
        bail!("as planned")
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let steps = [
            Step::alone("one", || Ok(done(()))),
            Step::alone("two", fail),
            Step::alone("three", || Ok(done(()))),
        ];
        let (summary, failure) = go_through(&steps, &[]);
        assert_eq!(failure.expect("a failure").0, "two");
        assert_eq!(summary.len(), 2);
        assert!(summary[1].contains("two") && summary[1].contains("FAILED"));

        let (summary, failure) = go_through(&steps, &["two".to_string()]);
        assert!(failure.is_none());
        assert!(summary[1].contains("SKIPPED"));
        assert_eq!(summary.len(), 3);
    }

    #[test]
    fn what_a_process_of_a_step_says_has_its_line() {
        let said = "\n== lab\nfigures\n==   lab   90.5 s  0.9  ok\n\n== summary: seconds\n  lab\n";
        assert_eq!(line_of(said).as_deref(), Some("  lab   90.5 s  0.9  ok"));
        assert_eq!(line_of("\n== lab\npanicked"), None);
    }

    #[test]
    fn processors_are_busy_with_what_was_started_too() {
        let before = busy().expect("a system that says it");
        let loops = "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done";
        assert!(Command::new("sh").args(["-c", loops]).status().expect("a shell").success());
        assert!(busy().expect("a system that says it") > before);
    }

    #[test]
    fn result_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 17 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out");
        counts.add("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add("test passed ... ok");
        assert_eq!(counts, Counts { passed: 20, ignored: 2, ..Counts::default() });
        assert_eq!(counts.to_string(), "20 passed, 2 ignored");
        counts.add("SKIPPED: no luck");
        counts.add("test one ... SKIPPED: no luck");
        assert_eq!(counts.to_string(), "20 passed, 2 ignored, 2 SKIPPED (no luck)");
    }

    #[test]
    fn continuous_integration_runs_the_readme_and_nothing_else() {
        let root = tidy::repository_root().expect("a root");
        let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("a file");
        let script = read(".ci/run");
        let lines: Vec<&str> = script.lines().filter(|line| !line.starts_with('#')).collect();
        let expected =
            ["set -euo pipefail", "cd \"$(dirname \"$0\")/..\"", "exec cargo xtask test"];
        assert_eq!(lines, expected);
        assert!(read("README.md").contains("\ncargo xtask test "));
    }
}
