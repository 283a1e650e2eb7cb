//! Shell completion: verbs, options, and the names of existing arrays.
//!
//! `COMPLETE=bash braid` prints the script that a shell loads once; packages install it. With the
//! script loaded, the shell asks braid itself, so that completions are never out of date.

use clap::CommandFactory;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use super::Cli;
use braid_discovery::running;

use crate::config;

/// The command line, with completers for its values.
pub(crate) fn command() -> clap::Command {
    let told = |argument: clap::Arg| match argument.get_id().as_str() {
        "array" => argument.add(ArgValueCandidates::new(served)),
        "name" => argument.add(ArgValueCandidates::new(configured)),
        _ => argument,
    };
    Cli::command().mut_subcommands(|verb| match verb.get_name() {
        // A new array needs an unused name, so no existing name is offered.
        "create" => verb,
        _ => verb.mut_args(told),
    })
}

/// Served arrays by the names of their sockets, none of which is asked: a shell does not wait.
fn served() -> Vec<CompletionCandidate> {
    let sockets = running::sockets().into_iter();
    sockets
        .filter_map(|path| Some(CompletionCandidate::new(path.file_stem()?.to_owned())))
        .collect()
}

/// Names of arrays that have a configuration file.
fn configured() -> Vec<CompletionCandidate> {
    config::names(&config::folder()).into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }
}
