//! The braid command: parses its arguments, runs one verb, prints, exits with the result's number.

#[macro_use]
extern crate braid_console;

mod cmd;
mod config;
mod log;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::{output, private, signals};
use cmd::{Cli, habits};

fn main() -> ExitCode {
    // Answers a shell's completion request, and exits.
    clap_complete::CompleteEnv::with_factory(cmd::completion::command).complete();
    signals::survive_long_writes();
    let umask = private::umask();
    let json = std::env::args_os().any(|argument| argument == "--json");
    let outcome = match Cli::try_parse() {
        Ok(cli) => {
            let globals = cli.options.globals(umask);
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

/// Prints an error to standard error. If printing fails, the exit status still tells of the error.
fn say(error: &CliError) {
    let colour = output::colour::ColourWhen::Auto;
    let paint = output::colour::Paint::for_stream(colour, &std::io::stderr());
    err!("{}", error.to_text(paint));
}

/// The exit status once all output is written: lost output is a failure.
fn written(exit: Exit) -> Exit {
    let Err(error) = output::stdout::end() else { return exit };
    if !output::stdout::is_closed_pipe(&error) {
        say(&system("standard output could not be written", &error));
    }
    if matches!(exit, Exit::Done | Exit::Attention) { Exit::Failed } else { exit }
}

/// The word of the command line that clap does not know.
fn strange(error: &clap::Error, asked: &str) -> String {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let word = of(ContextKind::InvalidSubcommand).or_else(|| of(ContextKind::InvalidArg));
    word.unwrap_or_else(|| asked.to_owned())
}

/// Handles a command line that clap rejects: a request for help, or a mistake.
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
            // clap suggests `--` for every unknown option, and this suggestion never helps here.
            // clap also suggests a verb near in its letters for another program's word, which
            // misleads.
            let is_noise = |line: &&str| {
                line.starts_with("For more information")
                    || line.starts_with("tip: to pass '-")
                    || line.contains("similar subcommand")
            };
            let usage_error = lines
                .filter(|line| !is_noise(line))
                .fold(CliError::new(Code::Usage, what), CliError::because);
            let asked = std::env::args().nth(1).unwrap_or_default();
            let command = Cli::command();
            let is_verb = command.find_subcommand(&asked).is_some();
            let word = strange(error, &asked);
            let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
            let verbs: Vec<&str> = verbs.map(clap::Command::get_name).collect();
            if !is_verb && let Some(told) = habits::meant(usage_error.clone(), &word, &verbs) {
                return Err(told);
            }
            let is_no_verb = error.kind() == ErrorKind::InvalidSubcommand;
            let usage_error = match config::likely(&word, verbs.into_iter()).filter(|_| is_no_verb)
            {
                Some(verb) => usage_error.because(format!("is '{verb}' meant?")),
                None => usage_error,
            };
            let help =
                if is_verb { format!("braid {asked} --help") } else { "braid --help".into() };
            Err(usage_error.remedy(Risk::Look, "See how", help))
        }
    }
}
