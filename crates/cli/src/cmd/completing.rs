//! What a shell is told when its user presses the key for more: verbs and options, and the names of arrays that there are.
//!
//! `COMPLETE=bash braid` prints what a shell has to know beforehand; packages install that. From then on the shell asks braid itself, so
//! that nothing is ever out of date.

use clap::CommandFactory;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use super::Cli;
use braid_discovery::running;

use crate::config;

/// The command line, with what can be said of values.
pub(crate) fn command() -> clap::Command {
    let told = |argument: clap::Arg| match argument.get_id().as_str() {
        "array" => argument.add(ArgValueCandidates::new(served)),
        "name" => argument.add(ArgValueCandidates::new(configured)),
        _ => argument,
    };
    Cli::command().mut_subcommands(|verb| match verb.get_name() {
        // Makes a name that nobody has.
        "create" => verb,
        _ => verb.mut_args(told),
    })
}

/// Arrays that are served, by the names of their sockets: nobody is asked, for a shell does not wait.
fn served() -> Vec<CompletionCandidate> {
    let sockets = running::sockets().into_iter();
    sockets
        .filter_map(|path| Some(CompletionCandidate::new(path.file_stem()?.to_owned())))
        .collect()
}

/// Arrays that have a file.
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
