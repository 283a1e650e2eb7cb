//! `cargo xtask`: the project's own chores, in the project's own language.
//!
//! | Chore | What it does |
//! |---|---|
//! | `test` | everything that must hold, in one command; what continuous integration runs |
//! | `tidy` | the house rules |
//! | `oracle` | arrays of the real kernel against ours, both ways |
//! | `sim` | crash and recover in the simulator, for a bounded time |
//! | `crash-loop` | `braid serve` killed and restarted on real files, for a bounded time |
//! | `models` | the hand-overs between threads, under every schedule or very many |
//! | `fuzz` | the parsers against chance, for a bounded time |
//! | `hostile-memory` | clients that make a server hold memory, beside other servers |

mod crash;
mod fuzz;
mod hostile;
mod lab;
mod models;
mod oracle;
mod packages;
mod sim;
mod steps;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <chore>

  test   [--skip STEP]...            everything that must hold (STEP: see the headings it prints)
  tidy                               the house rules
  oracle [ARGS]...                   arrays of the real kernel against ours, both ways
  sim    [--seconds N] [--from SEED] crash and recover in the simulator, for a bounded time
  crash-loop [--rounds N | --seconds N] [--seed N] [--level 5] [--members tmpfs|ext4|both]
                                     braid serve killed and restarted on real files
  models                             the hand-overs between threads, by loom and shuttle
  fuzz   [--seconds N] [TARGET]...   the parsers against chance (needs the nightly toolchain)
  hostile-memory [--braid PATH]      clients that make a server hold memory: braid, nbdkit, qemu-nbd";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let chore = if args.is_empty() { String::new() } else { args.remove(0) };
    match run(&chore, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {chore}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &str, args: Vec<String>) -> Result<()> {
    match chore {
        "test" => steps::run(&args),
        "tidy" => tidy::run(),
        "oracle" => oracle::run(args),
        "sim" => sim::run(&args),
        "crash-loop" => crash::run(&args),
        "models" => models::run().map(|_| ()),
        "fuzz" => fuzz::run(&args),
        "hostile-memory" => hostile::run(&args),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        "" => bail!("which chore?\n\n{USAGE}"),
        other => bail!("no chore is called {other}\n\n{USAGE}"),
    }
}
