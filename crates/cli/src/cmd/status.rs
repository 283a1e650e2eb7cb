//! `braid status`: prints the state of running arrays, their problems, and remedies.
//!
//! `status` asks each array once ([`braid_discovery::running`]), and prints the answer as words
//! ([`render`]) or JSON. It decides nothing about arrays; the advice comes from a pure function
//! ([`braid_discovery::status::advice`]).

pub(crate) mod render;

use std::io::IsTerminal;
use std::time::Duration;

use braid_control::model::{State, Status, Unheard, VERSION};

use super::Globals;
use braid_console::error::{CliError, Exit};
use braid_discovery::running::{self, RunningArray, RunningArrays, Silent};
use braid_discovery::status::advice::is_well;
use braid_discovery::status::words::Manner;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket; without it, all that are
    /// served here.
    #[arg(value_name = "ARRAY")]
    array: Option<String>,
    /// Only arrays with problems.
    #[arg(short = 'x', long)]
    problems: bool,
    /// Print the state again and again, until interrupted.
    #[arg(long)]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, requires = "watch",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    every: u64,
    /// Exit status of `mdadm --detail --test`: 0 all is well, 1 an array is degraded, 2 one takes
    /// no writes, 4 one does not answer.
    #[arg(long)]
    exit_code: bool,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let clears = !globals.json && std::io::stdout().is_terminal();
    loop {
        let all = match &args.array {
            None => running::all(),
            Some(word) => match running::find(word) {
                Ok(running) => RunningArrays { running: vec![running], silent: Vec::new() },
                Err(error) if args.exit_code => {
                    if globals.json {
                        outjson!(&error.to_json());
                    } else {
                        errln!("{error}");
                    }
                    return Ok(Exit::Unknown);
                }
                Err(error) => return Err(error),
            },
        };
        if args.watch && clears {
            out!("\u{1b}[H\u{1b}[2J");
        }
        tell(&all, args, globals);
        if !args.watch {
            return Ok(if args.exit_code { exit_of(&all) } else { Exit::Done });
        }
        if braid_console::output::stdout::has_failed() {
            return Ok(Exit::Done);
        }
        std::thread::sleep(Duration::from_secs(args.every));
    }
}

fn tell(all: &RunningArrays, args: &Args, globals: &Globals) {
    let is_shown = |running: &&RunningArray| !args.problems || !is_well(&running.array);
    let shown: Vec<&RunningArray> = all.running.iter().filter(is_shown).collect();
    if globals.json {
        let status = Status {
            version: VERSION,
            arrays: shown.iter().map(|running| running.array.clone()).collect(),
            unheard: unheard(&all.silent),
        };
        outjson!(&serde_json::to_value(&status).expect("it is made of text and numbers"));
        return;
    }
    if all.running.is_empty() && all.silent.is_empty() {
        outln!("no array is served in {}", running::folder().display());
        return;
    }
    if shown.is_empty() && all.silent.is_empty() {
        let count = all.running.len();
        match all.running.as_slice() {
            [one] => outln!(
                "{} is healthy",
                braid_console::output::printable::printable(&one.array.name)
            ),
            _ => outln!("all {count} arrays are healthy"),
        }
        return;
    }
    let mut is_first = true;
    for running in shown {
        if !std::mem::take(&mut is_first) {
            outln!();
        }
        out!(
            "{}",
            render::array(
                &running.array,
                &running.word(&all.running),
                globals.paint_out,
                Manner::now()
            )
        );
    }
    for silent in &all.silent {
        if !std::mem::take(&mut is_first) {
            outln!();
        }
        out!("{}", render::silent(silent, globals.paint_out));
    }
}

/// The sockets at which no array answered.
pub(crate) fn unheard(silent: &[Silent]) -> Vec<Unheard> {
    let unheard = |silent: &Silent| Unheard {
        control: silent.control.display().to_string(),
        problem: silent.error.to_problem(),
    };
    silent.iter().map(unheard).collect()
}

/// The worst exit status of all arrays.
fn exit_of(all: &RunningArrays) -> Exit {
    let has = |state: State| all.running.iter().any(|one| one.array.state == state);
    if has(State::Failed) {
        Exit::Broken
    } else if !all.silent.is_empty() {
        Exit::Unknown
    } else if has(State::Degraded) {
        Exit::Degraded
    } else {
        Exit::Done
    }
}
