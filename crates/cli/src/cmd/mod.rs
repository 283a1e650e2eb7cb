//! The verbs, one file each, and the options that all of them share.

mod check;
pub(crate) mod completing;
mod create;
mod demo;
mod elevators;
mod events;
mod examine;
mod get;
pub(crate) mod habits;
mod help;
mod history;
mod hook;
mod image;
mod jobs;
pub(crate) mod layout_word;
mod list;
mod manual;
mod members;
mod replay;
mod rescue;
mod scan;
pub(crate) mod serve;
mod set;
mod status;
mod stop;
mod top;
mod undo;
mod wait;
mod watching;

use std::path::PathBuf;

use braid_console::Globals;
use braid_console::error::{CliError, Exit};
use braid_console::output::colour::ColourWhen;
use clap::{Args, Parser, Subcommand};
use rustix::fs::Mode;

/// Software RAID in user space, compatible with Linux md.
#[derive(Debug, Parser)]
#[command(name = "braid", version, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print JSON: one object per line, sizes in bytes.
    #[arg(long, global = true)]
    json: bool,
    /// When to use colour.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorWhen,
    /// Where saved superblocks go, how new arrays were when they were last served, and what
    /// happened to them.
    #[arg(long, global = true, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
}

/// The words of `--color`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ColorWhen {
    /// As the environment and the terminal say.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Options {
    /// The values that every verb needs.
    pub(crate) fn globals(self, umask: Mode) -> Globals {
        let colour = match self.color {
            ColorWhen::Auto => ColourWhen::Auto,
            ColorWhen::Always => ColourWhen::Always,
            ColorWhen::Never => ColourWhen::Never,
        };
        Globals::new(self.json, colour, self.state_dir, umask)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an array out of files or block devices.
    Create(Box<create::Args>),
    /// Assemble an array and serve it over NBD until told to stop.
    Serve(Box<serve::Args>),
    /// Say what is on members and what they would make together. Never writes.
    Examine(examine::Args),
    /// Say in plain words what is left of an array that does not start, and read it back without
    /// writing to its members.
    Rescue(Box<rescue::Args>),
    /// Copy a disk that fails into a file, as much of it as it still gives, with a map of what that
    /// is.
    Image(image::Args),
    /// Say the state of running arrays, their problems, and what to do.
    Status(status::Args),
    /// Look which arrays there are on devices, and print (or write) a file for each by which `braid
    /// serve --name` serves it.
    Scan(scan::Args),
    /// List the arrays that are being served.
    List(list::Args),
    /// Show the settings of an array that is being served.
    Get(get::Args),
    /// Change settings of an array that is being served: stripe cache, elevators, multiplexer,
    /// clients.
    #[command(visible_alias = "tune")]
    Set(set::Args),
    /// Stop an array that is being served, and wait until it has stopped.
    Stop(stop::Args),
    /// Read all of a running array and compare it with its redundancy; return when the check is
    /// over.
    Check(check::Args),
    /// Have the resync, recovery or check of an array wait; clients are served on.
    Pause(jobs::PauseArgs),
    /// Have the jobs of an array go on.
    Resume(jobs::ResumeArgs),
    /// Have what is missing rebuilt: what was paused goes on, and what could not be finished is
    /// tried again.
    Rebuild(jobs::RebuildArgs),
    /// Make devices members of an array that is being served: each takes a slot that is free and is
    /// rebuilt, or waits as a spare.
    Add(members::AddArgs),
    /// Have devices wait as spares of an array: one takes the place of a member that fails by
    /// itself.
    Spare(members::JoinArgs),
    /// Have a member of an array fail, as if it had failed a write; what it held is served from the
    /// others.
    Fail(members::FailArgs),
    /// Have another device take a member's place: it is copied while the member serves, and what
    /// cannot be read of it is made from the others.
    Replace(members::ReplaceArgs),
    /// Take a member away that failed, or that waits as a spare.
    Remove(members::RemoveArgs),
    /// Wait until an array is served, rebuilt, checked, idle, or degraded.
    Wait(wait::Args),
    /// Show what the elevators of an array that is being served do, and the multiplexer's last
    /// slices.
    Elevators(elevators::Args),
    /// Show arrays as they work, live: members, what waits at them, the cache, the job and its
    /// pace. q ends it.
    Top(top::Args),
    /// Show what happened last to arrays, and with -f what happens.
    Events(events::Args),
    /// Show all that is kept of what happened to arrays, and of what commands overwrote.
    History(history::Args),
    /// Put back what a command overwrote, if no client has written to the devices since.
    Undo(undo::Args),
    /// Replay the partial parity log (PPL) of an array that is not being served onto its members,
    /// so that its parity fits again.
    Replay(replay::Args),
    /// Show the main job on temporary files, in under a minute.
    Demo(demo::Args),
    /// Deliver events for a server that is confined.
    #[command(hide = true)]
    Hook(Box<hook::Args>),
    /// Write manual pages into a folder.
    #[command(hide = true)]
    Manual(manual::Args),
    /// Explain an error code (`braid help B031`), a verb, `exit` or `mdadm`.
    Help(help::Args),
}

/// Runs one verb.
pub(crate) fn run(command: Command, globals: &Globals) -> Result<Exit, CliError> {
    match command {
        Command::Create(args) => create::run(*args, globals),
        Command::Serve(args) => serve::run(*args, globals),
        Command::Examine(args) => examine::run(args, globals),
        Command::Rescue(args) => rescue::run(*args, globals),
        Command::Image(args) => image::run(&args, globals),
        Command::Status(args) => status::run(&args, globals),
        Command::Scan(args) => scan::run(&args, globals),
        Command::List(args) => list::run(args, globals),
        Command::Get(args) => get::run(&args, globals),
        Command::Set(args) => set::run(&args, globals),
        Command::Stop(args) => stop::run(&args, globals),
        Command::Check(args) => check::run(&args, globals),
        Command::Pause(args) => jobs::pause(&args, globals),
        Command::Resume(args) => jobs::resume(&args, globals),
        Command::Rebuild(args) => jobs::rebuild(&args, globals),
        Command::Add(args) => members::add(&args, globals),
        Command::Spare(args) => members::spare(&args, globals),
        Command::Fail(args) => members::fail(&args, globals),
        Command::Replace(args) => members::replace(&args, globals),
        Command::Remove(args) => members::remove(&args, globals),
        Command::Wait(args) => wait::run(&args, globals),
        Command::Elevators(args) => elevators::run(&args, globals),
        Command::Top(args) => top::run(&args, globals),
        Command::Events(args) => events::run(&args, globals),
        Command::History(args) => history::run(&args, globals),
        Command::Undo(args) => undo::run(&args, globals),
        Command::Replay(args) => replay::run(&args, globals),
        Command::Demo(args) => demo::run(&args, globals),
        Command::Hook(args) => hook::run(&args, globals),
        Command::Manual(args) => manual::run(&args, globals),
        Command::Help(args) => help::run(&args, globals),
    }
}
