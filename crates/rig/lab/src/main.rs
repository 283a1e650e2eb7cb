//! `braid-lab` runs one suite or all, prints the results, and writes JSON and plots on request.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use braid_lab::benchmarks;
use braid_lab::frame::{Machine, Report, Settings, Suite, json, plot, table};
use braid_lab::suites::{SUITES, ledger};
use clap::{Parser, Subcommand};

/// Compare every mechanism with the code before it, on the same work, in one run.
#[derive(Parser)]
#[command(
    name = "braid-lab",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Suites to run, or "all".
    suites: Vec<String>,
    /// Name the suites and what each shows.
    #[arg(long)]
    list: bool,
    /// Rounds; each contender takes one turn in each.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// So little work that the figures mean nothing: shows that the benchmark works.
    #[arg(long)]
    small: bool,
    /// Write one row for each figure to FILE, with the machine and the versions
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one plot for each suite there.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Run only cases whose names contain this.
    #[arg(long = "case", value_name = "TEXT")]
    only: Option<String>,
    /// Show only metrics and curves whose names contain this; may be given several times
    #[arg(long = "metric", value_name = "TEXT")]
    metrics: Vec<String>,
    /// Repeat one contender's turn of one case ("CASE/VARIANT") until killed, for a profiler.
    #[arg(long, value_name = "CASE/VARIANT")]
    profile: Option<String>,
}

/// Commands other than a suite.
#[derive(Subcommand)]
enum Command {
    /// Make one page of what runs wrote with --json, and the same as Markdown.
    Report(benchmarks::Args),
    /// Do the work of these cases of the suite "ledger", for callgrind to count.
    #[command(hide = true)]
    LedgerLoad {
        /// Which cases.
        cases: Vec<String>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for suite in SUITES {
            println!("{:<10} {}", suite.name, suite.about);
        }
        return ExitCode::SUCCESS;
    }
    let done = match &args.command {
        Some(Command::Report(args)) => benchmarks::run(args),
        Some(Command::LedgerLoad { cases }) => ledger::work(cases),
        None => run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("braid-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Suite>, String> {
    let mut suites = Vec::new();
    for name in names {
        match SUITES.iter().find(|suite| suite.name == name) {
            _ if name == "all" => suites.extend(SUITES),
            Some(suite) => suites.push(suite),
            None => return Err(format!("no suite is called {name}; --list names them")),
        }
    }
    if suites.is_empty() {
        return Err("which suite? --list names them, \"all\" runs them".to_owned());
    }
    Ok(suites)
}

fn run(args: &Args) -> Result<(), String> {
    let suites = chosen(&args.suites)?;
    if args.runs == 0 {
        return Err("at least one round".to_owned());
    }
    let runs = if args.small { 1 } else { args.runs };
    let settings = Settings {
        runs,
        small: args.small,
        only: args.only.clone(),
        profile: args.profile.clone(),
    };
    println!("{}", Machine::look());
    let mut reports: Vec<(&str, Report)> = Vec::new();
    for suite in suites {
        println!("\n=== {}: {}\n", suite.name, suite.about);
        let mut report = (suite.run)(&settings);
        if !args.metrics.is_empty() {
            report.keep_metrics(&args.metrics);
        }
        print!("{}", table::text(&report, &settings));
        if let Some(folder) = &args.svg {
            write(&folder.join(format!("{}.svg", suite.name)), &plot::svg(suite.name, &report))?;
        }
        reports.push((suite.name, report));
    }
    println!("\n{}", Machine::look());
    if let Some(file) = &args.json {
        write(file, &json::text(&reports))?;
    }
    Ok(())
}

fn write(path: &std::path::Path, text: &str) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
