//! The command `braid-sim`: simulates one seed, or many.
//!
//! Only this part of the simulator reads a clock, to print its speed.

mod hosts;
mod planted;
mod reshapes;
mod seeds;

use std::panic::{catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_sim::shrink::shrink;
use braid_sim::small::{self, Bounds};
use braid_sim::{
    CYCLES_FOR_ALL_STATES, Cut, Report, Settings, Tally, histories, legal_states, never_entered,
    never_visited, simulate,
};
use braid_sim_hooks::{Mark, Point};

const USAGE: &str = "\
usage: braid-sim --seed N [--cycles M] [--smallest] [--twice] [--trace] [--no-shrink]
                 [--without c1,c1r3,c1f8] [--only c0,c0r3] [--one-shard] [--one-stripe]
                 [--write-through] [--straight] [--sectors-max N] [--schedule N] [--plain-cycles N]
       braid-sim run [--cycles N] [--seconds S] [--from SEED] [--smallest] [--states] [--marks]
                 [--no-shrink]
       braid-sim small [--operations N] [--tellings-max N] [--failures-max N] [--states-max N]
                       [--from N] [--part I/N]
       braid-sim histories [--cycles N] [--from SEED]
       braid-sim reshape [--lives N] [--from SEED] [--seconds S] [--crashes | --torn] [--part I/N]
       braid-sim hosts [--seeds N] [--from N] [--seconds S]
       braid-sim planted [--seeds N] [--from SEED] [--seconds S] [--part I/N] [--bug NAME]
                         [--control] [--controlled]
with hooks (RUSTFLAGS=\"--cfg braid_sim_hooks\"), run --shake lets the engine make rare choices,
and fails if any marked path was never taken (--marks is the same)";

/// Time limit for shrinking a failing seed.
const SHRINK_TIME: Duration = Duration::from_secs(60);

/// Whether panics print nothing. Shrinking sets it, because its attempts panic hundreds of times.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// `run --no-shrink` stops after this many failing worlds.
const FAILED_MAX: usize = 20;
/// Cycles of each world in `run`.
const CYCLES_PER_WORLD: u64 = 20;

#[derive(Debug, Default)]
struct Arguments {
    is_run: bool,
    is_small: bool,
    is_histories: bool,
    bounds: Bounds,
    /// Settings of one run. With `run`, `settings.seed` is the first seed of many.
    settings: Settings,
    seconds: Option<u64>,
    is_twice: bool,
    wants_states: bool,
    keeps_size: bool,
}

impl Arguments {
    fn cycles_or(&self, usual: u64) -> u64 {
        if self.settings.cycles == 0 { usual } else { self.settings.cycles }
    }
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let word = match word.as_str() {
            "--from" => "--seed",
            "--marks" => "--shake",
            word => word,
        };
        let mut value = || words.next().unwrap_or_default();
        let taken = arguments.settings.argument(word, &mut value);
        if taken.map_err(|text| format!("{text}\n{USAGE}"))? {
            continue;
        }
        let mut number = || value().parse().map_err(|_| format!("{word} needs a number\n{USAGE}"));
        match word {
            "run" => arguments.is_run = true,
            "small" => arguments.is_small = true,
            "histories" => arguments.is_histories = true,
            "--operations" => arguments.bounds.operations_max = number()?,
            "--tellings-max" => arguments.bounds.tellings_max = number()?,
            "--failures-max" => arguments.bounds.failures_max = number()?,
            "--states-max" => arguments.bounds.states_max = number()?,
            "--part" => arguments.bounds.part = part(words.next())?,
            "--seconds" => arguments.seconds = Some(number()?),
            "--twice" => arguments.is_twice = true,
            "--trace" => arguments.settings.is_traced = true,
            "--no-shrink" => arguments.keeps_size = true,
            "--states" => arguments.wants_states = true,
            _ => return Err(format!("unknown word {word}\n{USAGE}")),
        }
    }
    Ok(arguments)
}

/// Parses `--part I/N`: this process's share of the work. `1/4` is the second quarter.
fn part(word: Option<String>) -> Result<(u64, u64), String> {
    let numbers = word.as_deref().and_then(|word| word.split_once('/'));
    let numbers = numbers.and_then(|(one, of)| Some((one.parse().ok()?, of.parse().ok()?)));
    let is_share = |numbers: &(u64, u64)| numbers.0 < numbers.1;
    numbers.filter(is_share).ok_or_else(|| format!("--part needs I/N, I below N\n{USAGE}"))
}

fn main() -> ExitCode {
    set_hook(Box::new(|panic| {
        if !IS_SILENT.load(Ordering::Relaxed) {
            eprintln!("{panic}");
        }
    }));
    let mut words = std::env::args().skip(1);
    let ended = match words.next().as_deref() {
        Some("planted") => planted::run(words),
        Some("reshape") => reshapes::run(words),
        Some("hosts") => hosts::run(words),
        _ => simulate_as_asked(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("braid-sim: {text}");
            ExitCode::FAILURE
        }
    }
}

fn simulate_as_asked() -> Result<(), String> {
    parse().and_then(|arguments| {
        if arguments.is_small {
            run_small(&arguments)
        } else if arguments.is_histories {
            run_histories(&arguments)
        } else if arguments.is_run {
            run_many(&arguments)
        } else {
            run_one(&arguments)
        }
    })
}

/// Runs one simulation. If a checker panics, returns the command that repeats or shrinks the run.
fn try_simulate(settings: &Settings, keeps_size: bool) -> Result<Report, String> {
    catch_unwind(|| simulate(settings)).map_err(|_| {
        let (seed, command) = (settings.seed, settings.command());
        if !keeps_size {
            make_smaller(settings);
        }
        format!("seed {seed} failed; again, with everything in it: {command} --no-shrink --trace")
    })
}

/// Shrinks a failing run and prints the smaller run, one line per event.
fn make_smaller(settings: &Settings) {
    let began = Instant::now();
    eprintln!("shrinking the failed run, for at most {} s", SHRINK_TIME.as_secs());
    IS_SILENT.store(true, Ordering::Relaxed);
    let shrunk = shrink(settings, &mut || began.elapsed() < SHRINK_TIME);
    let Some(shrunk) = shrunk else {
        eprintln!("the run did not fail again");
        return;
    };
    let least = Settings { is_traced: true, ..shrunk.settings };
    let again = catch_unwind(|| simulate(&least));
    IS_SILENT.store(false, Ordering::Relaxed);
    assert!(again.is_err(), "a seed repeats");
    println!("{}", shrunk.message);
    println!(
        "left after {} runs: {} cycles, {} requests, {} faults",
        shrunk.runs, shrunk.cycles, shrunk.requests, shrunk.faults
    );
    println!("again: {} --no-shrink --trace", least.command());
}

fn run_one(arguments: &Arguments) -> Result<(), String> {
    let cycles = arguments.cycles_or(CYCLES_PER_WORLD);
    let settings = Settings { cycles, ..arguments.settings.clone() };
    let first = try_simulate(&settings, arguments.keeps_size)?;
    println!("seed {} trace {:016x}", settings.seed, first.trace_hash);
    if arguments.is_twice {
        let second = try_simulate(&Settings { is_traced: false, ..settings.clone() }, true)?;
        if first != second {
            return Err(format!("seed {} took another course the second time", settings.seed));
        }
        println!("both runs are the same");
    }
    print(&first.tally, None, arguments.wants_states);
    Ok(())
}

fn run_many(arguments: &Arguments) -> Result<(), String> {
    let began = Instant::now();
    let limit = arguments.seconds.map(Duration::from_secs);
    let cycles = arguments.cycles_or(if limit.is_some() { u64::MAX } else { 20_000 });
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    let mut seed = arguments.settings.seed;
    while total.cycles < cycles && limit.is_none_or(|limit| began.elapsed() < limit) {
        let settings = Settings {
            seed,
            cycles: CYCLES_PER_WORLD.min(cycles - total.cycles),
            is_traced: false,
            cut: Cut::default(),
            ..arguments.settings
        };
        match try_simulate(&settings, arguments.keeps_size) {
            Ok(report) => total.add(&report.tally),
            // Without shrinking, note the failing seed and continue with the next seed.
            Err(text) if arguments.keeps_size && failed.len() < FAILED_MAX => {
                eprintln!("{text}");
                failed.push(seed);
            }
            Err(text) => return Err(text),
        }
        seed += 1;
    }
    print(&total, Some(began.elapsed()), arguments.wants_states);
    print_failed(&failed)?;
    judge_states(&total, arguments.settings.is_smallest)?;
    if arguments.settings.is_shaken { print_marks() } else { Ok(()) }
}

/// Prints how many worlds failed. A world fails at the first lost, wrong, stuck or premature
/// answer.
fn print_failed(failed: &[u64]) -> Result<(), String> {
    println!("{:>12} losses (worlds that failed)", failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("seeds that failed: {failed:?}")) }
}

/// A long run may miss this many legal states by chance. The run must still have visited each place
/// (a state without its action) with some action.
const STATES_LEFT_TO_CHANCE: usize = 3;

/// Prints how many legal states were visited. Fails if a long run missed more than
/// `STATES_LEFT_TO_CHANCE`, or never acted in some place.
fn judge_states(tally: &Tally, is_smallest: bool) -> Result<(), String> {
    let (legal, never) = (legal_states(), never_visited(tally));
    println!("{:>12} of {legal} legal states visited", legal - never.len());
    if never.is_empty() || is_smallest || tally.cycles < CYCLES_FOR_ALL_STATES {
        return Ok(());
    }
    let is_chance = never.len() <= STATES_LEFT_TO_CHANCE;
    let never = never.join(", ");
    if is_chance && never_entered(tally).is_empty() {
        println!("left to chance: {never}");
        return Ok(());
    }
    Err(format!("never visited: {never}"))
}

/// Prints how often runs reached each mark (a counted path in the product). Fails if no run reached
/// some mark.
fn print_marks() -> Result<(), String> {
    if !braid_sim_hooks::ARE_HERE {
        return Err("this build has no marks: RUSTFLAGS=\"--cfg braid_sim_hooks\"".to_owned());
    }
    // Random worlds have no operator; stories take the paths that need one.
    braid_sim::stories::tell();
    let visits = braid_sim_hooks::visits();
    for (point, count) in Point::ALL.iter().zip(&visits.points) {
        println!("{count:>12} {:<24} {}", point.name(), point.text());
    }
    let mut never = Vec::new();
    for (mark, count) in Mark::ALL.iter().zip(&visits.marks) {
        println!("{count:>12} {:<24} {}", mark.name(), mark.text());
        never.extend((*count == 0).then_some(mark.name()));
    }
    println!("{:>12} of {} marks reached", Mark::ALL.len() - never.len(), Mark::ALL.len());
    if never.is_empty() { Ok(()) } else { Err(format!("never reached: {}", never.join(", "))) }
}

/// Runs histories (arrays with clones, halves that ran apart, and foreign disks) until the
/// requested number of starts is reached.
fn run_histories(arguments: &Arguments) -> Result<(), String> {
    let began = Instant::now();
    let (mut total, mut seed) = (Tally::default(), arguments.settings.seed);
    while total.cycles < arguments.cycles_or(100_000) {
        let history = catch_unwind(|| histories::explore(seed));
        total.add(&history.map_err(|_| format!("history {seed} failed"))?);
        seed += 1;
    }
    print(&total, Some(began.elapsed()), false);
    Ok(())
}

/// Explores small worlds exhaustively.
fn run_small(arguments: &Arguments) -> Result<(), String> {
    let began = Instant::now();
    let bounds = Bounds { from: arguments.settings.seed, ..arguments.bounds };
    let explored =
        catch_unwind(|| small::explore(&bounds)).map_err(|_| "a small world failed".to_owned())?;
    let seconds = began.elapsed().as_secs_f64();
    for (number, what) in [
        (explored.stories, "stories (array and operations)"),
        (explored.tellings, "tellings (schedule, pace, failure)"),
        (explored.failures, "of them with a failing member"),
        (explored.crash_points, "crash points"),
        (explored.crash_points_distinct, "of them distinct"),
        (explored.cut_down, "of them cut down, by loss"),
        (explored.states, "states (crash point, loss, subset)"),
        (explored.states_distinct, "of them distinct: assembled, started, read, checked"),
        (explored.torn, "of those torn"),
        (explored.killed, "of those after a killed process, without a power cut"),
        (explored.refused, "of those rightly refused"),
        (0, "failures"),
    ] {
        println!("{number:>12} {what}");
    }
    let rate = explored.states_distinct as f64 / seconds;
    println!("{rate:>12.0} distinct states per second ({seconds:.1} s)");
    Ok(())
}

fn print(tally: &Tally, took: Option<Duration>, wants_states: bool) {
    println!("{:>12} worlds", tally.worlds);
    println!("{:>12} crash-and-recover cycles", tally.cycles);
    println!("{:>12} steps", tally.steps);
    println!("{:>12} client requests", tally.requests);
    println!("{:>12} sectors read and compared", tally.sectors_checked);
    println!("{:>12} unflushed sectors undone by power cuts", tally.sectors_undone);
    for (name, count) in &tally.counts {
        println!("{count:>12} {name}");
    }
    println!("{:>12} kinds of state (level, missing, in sync, phase, deed)", tally.states.len());
    if wants_states {
        for (name, count) in &tally.states {
            println!("{count:>12} {name}");
        }
        let never = never_visited(tally);
        never.iter().for_each(|name| println!("{:>12} {name}", "never"));
    }
    if let Some(took) = took {
        let rate = tally.cycles as f64 / took.as_secs_f64();
        println!("{rate:>12.0} cycles per second ({:.1} s)", took.as_secs_f64());
    }
}
