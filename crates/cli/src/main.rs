//! The braid command: parse, run one verb, print what came of it, exit with its number.

#[macro_use]
mod output;

mod bitmap_file;
mod cmd;
mod config;
mod contents;
mod error;
mod known;
mod log;
mod maps;
mod own_program;
mod policy;
mod private;
mod probe;
mod refusal;
mod regular;
mod replay;
mod running;
mod signals;
mod state;
mod undo;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use cmd::{Cli, Globals};
use error::code::Code;
use error::system::system;
use error::{CliError, Exit, Risk};

/// Words that people bring along from other tools.
const MDADM_HABITS: [&str; 6] = ["start", "assemble", "detail", "replace", "grow", "monitor"];

fn main() -> ExitCode {
    // A shell asks what could stand where its user is; it is answered, and that is all.
    clap_complete::CompleteEnv::with_factory(cmd::completing::command).complete();
    signals::survive_long_writes();
    let umask = private::umask();
    let json = std::env::args_os().any(|argument| argument == "--json");
    let outcome = match Cli::try_parse() {
        Ok(cli) => {
            let globals = Globals::new(&cli.options, umask);
            cmd::run(cli.command, &globals)
        }
        Err(error) => usage(&error),
    };
    let exit = outcome.unwrap_or_else(|error| {
        if json {
            outjson!(&error.to_json());
        } else {
            say(&error);
        }
        error.exit()
    });
    ExitCode::from(written(exit).number())
}

/// An error on standard error. Where that cannot be written either, the exit status is left.
fn say(error: &CliError) {
    let colour = output::colour::ColourWhen::Auto;
    let paint = output::colour::Paint::for_stream(colour, &std::io::stderr());
    err!("{}", error.to_text(paint));
}

/// The exit status, once everything is written: data that did not arrive is a failure.
fn written(exit: Exit) -> Exit {
    let Err(error) = output::stdout::end() else { return exit };
    if !output::stdout::is_closed_pipe(&error) {
        say(&system("standard output could not be written", &error));
    }
    if matches!(exit, Exit::Done | Exit::Attention) { Exit::Failed } else { exit }
}

/// What a command line means that is not one: a request for help, or a mistake.
fn usage(error: &clap::Error) -> Result<Exit, CliError> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::stdout::note(error.print());
            Ok(Exit::Done)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            err!("{}", Cli::command().render_help());
            Ok(Exit::Usage)
        }
        _ => {
            let text = error.to_string();
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let what = lines.next().unwrap_or("the command line was not understood");
            let what = what.strip_prefix("error: ").unwrap_or(what);
            // clap offers `--` for every option it does not know; that is never meant here.
            let is_noise = |line: &&str| {
                line.starts_with("For more information") || line.starts_with("tip: to pass '-")
            };
            let mut usage_error = lines
                .filter(|line| !is_noise(line))
                .fold(CliError::new(Code::Usage, what), CliError::because);
            let asked = std::env::args().nth(1).unwrap_or_default();
            if MDADM_HABITS.contains(&asked.as_str()) {
                let known = "what mdadm's verbs are called here, and what is not there yet";
                usage_error = usage_error.remedy(Risk::Look, known, "braid help mdadm");
            }
            let is_verb = Cli::command().find_subcommand(&asked).is_some();
            let help =
                if is_verb { format!("braid {asked} --help") } else { "braid --help".into() };
            Err(usage_error.remedy(Risk::Look, "See how", help))
        }
    }
}
