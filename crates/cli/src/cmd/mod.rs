//! The verbs, one file each, and the options that all of them share.

mod check;
pub(crate) mod completion;
mod create;
mod demo;
mod elevators;
mod events;
mod examine;
mod get;
mod grow;
pub(crate) mod habits;
mod hand_over;
mod help;
mod history;
mod hook;
mod image;
mod jobs;
pub(crate) mod layout_word;
mod list;
mod manual;
mod member;
mod members;
mod poll;
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
    /// The folder for saved superblocks, the last state of arrays, and the history of their events.
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
    /// Serve files or block devices of this host as members of an array on another host.
    Member(Box<member::Args>),
    /// Print the metadata of members, and the array that they would make. Never writes.
    Examine(examine::Args),
    /// Explain in plain words what is left of an array that does not start, and read it back
    /// without writing to its members.
    Rescue(Box<rescue::Args>),
    /// Copy the readable part of a failing disk into a file, with a map of that part.
    Image(image::Args),
    /// Print the state of running arrays, their problems, and remedies.
    Status(status::Args),
    /// Find the arrays on devices, and print (or write) a file for each, for `braid serve --name`.
    Scan(scan::Args),
    /// List the arrays that are being served.
    List(list::Args),
    /// Show the settings of an array that is being served.
    Get(get::Args),
    /// Change settings of an array that is being served: stripe cache, elevators, multiplexer,
    /// clients.
    #[command(visible_alias = "tune")]
    Set(set::Args),
    /// Stop an array whose owner a store names, so that another host serves it.
    HandOver(hand_over::Args),
    /// Stop an array that is being served, and wait until it has stopped.
    Stop(stop::Args),
    /// Read all of a running array and compare it with its redundancy; return when the check is
    /// over.
    Check(check::Args),
    /// Pause the resync, recovery or check of an array; clients are still served.
    Pause(jobs::PauseArgs),
    /// Resume the paused jobs of an array.
    Resume(jobs::ResumeArgs),
    /// Rebuild missing members: resume a paused job, and retry one that could not be finished.
    Rebuild(jobs::RebuildArgs),
    /// Add devices to an array that is being served: each takes a free slot and is rebuilt, or
    /// waits as a spare.
    Add(members::AddArgs),
    /// Add devices as spares of an array: a spare replaces a failed member by itself.
    Spare(members::JoinArgs),
    /// Fail a member of an array, as if it had failed a write; its data is served from the others.
    Fail(members::FailArgs),
    /// Replace a member by another device: the member is copied while it serves, and its unreadable
    /// sectors are computed from the others.
    Replace(members::ReplaceArgs),
    /// Remove a failed member, or a spare.
    Remove(members::RemoveArgs),
    /// Give an array another shape while it serves: more members, another level, chunk or layout,
    /// or larger members. No backup file.
    Grow(grow::GrowArgs),
    /// Let a reshape go back to the old shape, from wherever it is.
    Revert(grow::RevertArgs),
    /// Wait until an array is served, rebuilt, checked, idle, or degraded.
    Wait(wait::Args),
    /// Show the work of a served array's elevators, and the multiplexer's last slices.
    Elevators(elevators::Args),
    /// Show running arrays live: members, their queues, the cache, the job and its pace. q ends it.
    Top(top::Args),
    /// Show the last events of arrays, and with -f new ones.
    Events(events::Args),
    /// Show all recorded events of arrays, and the data that commands overwrote.
    History(history::Args),
    /// Put back what a command overwrote, if no client has written to the devices since.
    Undo(undo::Args),
    /// Replay the partial parity log (PPL) of an array that is not being served onto its members,
    /// so that its parity agrees again.
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
        Command::Member(args) => member::run(*args, globals),
        Command::Examine(args) => examine::run(args, globals),
        Command::Rescue(args) => rescue::run(*args, globals),
        Command::Image(args) => image::run(&args, globals),
        Command::Status(args) => status::run(&args, globals),
        Command::Scan(args) => scan::run(&args, globals),
        Command::List(args) => list::run(args, globals),
        Command::Get(args) => get::run(&args, globals),
        Command::Set(args) => set::run(&args, globals),
        Command::HandOver(args) => hand_over::run(&args, globals),
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
        Command::Grow(args) => grow::grow(&args, globals),
        Command::Revert(args) => grow::revert(&args, globals),
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
