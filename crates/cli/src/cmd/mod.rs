//! The verbs, one file each, and what all of them are given.

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

use clap::{Args, Parser, Subcommand};
use rustix::fs::Mode;

use crate::error::{CliError, Exit};
use crate::output::colour::{ColourWhen, Paint};

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
    color: ColourWhen,
    /// Where saved superblocks go, how new arrays were when they were last served, and what happened to them.
    #[arg(long, global = true, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an array out of files or block devices.
    Create(Box<create::Args>),
    /// Assemble an array and serve it over NBD until told to stop.
    Serve(Box<serve::Args>),
    /// Say what is on members and what they would make together. Never writes.
    Examine(examine::Args),
    /// Say in plain words what is left of an array that does not start, and read it back without writing to its members.
    Rescue(Box<rescue::Args>),
    /// Copy a disk that fails into a file, as much of it as it still gives, with a map of what that is.
    Image(image::Args),
    /// Say how arrays that are being served are, what is wrong with them, and what to do.
    Status(status::Args),
    /// Look which arrays there are on devices, and print (or write) a file for each by which `braid serve --name` serves it.
    Scan(scan::Args),
    /// List the arrays that are being served.
    List(list::Args),
    /// Show the settings of an array that is being served.
    Get(get::Args),
    /// Change settings of an array that is being served: stripe cache, elevators, multiplexer, clients.
    #[command(visible_alias = "tune")]
    Set(set::Args),
    /// Stop an array that is being served, and wait until it has stopped.
    Stop(stop::Args),
    /// Read all of an array that is being served and compare it with its redundancy; return when that is over.
    Check(check::Args),
    /// Have the resync, recovery or check of an array wait; clients are served on.
    Pause(jobs::PauseArgs),
    /// Have the jobs of an array go on.
    Resume(jobs::ResumeArgs),
    /// Have what is missing rebuilt: what was paused goes on, and what could not be finished is tried again.
    Rebuild(jobs::RebuildArgs),
    /// Make devices members of an array that is being served: each takes a slot that is free and is rebuilt, or waits as a
    /// spare.
    Add(members::AddArgs),
    /// Have devices wait as spares of an array: one takes the place of a member that fails by itself.
    Spare(members::JoinArgs),
    /// Have a member of an array fail, as if it had failed a write; what it held is served from the others.
    Fail(members::FailArgs),
    /// Have another device take a member's place: it is copied while the member serves, and what cannot be read of it is made
    /// from the others.
    Replace(members::ReplaceArgs),
    /// Take a member away that failed, or that waits as a spare.
    Remove(members::RemoveArgs),
    /// Wait until an array is served, rebuilt, checked, idle, or degraded.
    Wait(wait::Args),
    /// Show what the elevators of an array that is being served do, and the multiplexer's last slices.
    Elevators(elevators::Args),
    /// Show arrays as they work, live: members, what waits at them, the cache, the job and its pace. q ends it.
    Top(top::Args),
    /// Show what happened last to arrays, and with -f what happens.
    Events(events::Args),
    /// Show all that is kept of what happened to arrays, and of what commands overwrote.
    History(history::Args),
    /// Put back what a command overwrote, while nobody has written to the devices since.
    Undo(undo::Args),
    /// Replay the partial parity log (PPL) of an array that is not being served onto its members, so that its parity fits again.
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

/// What every verb is given.
#[derive(Clone, Debug)]
pub(crate) struct Globals {
    /// Print JSON on standard output.
    pub(crate) json: bool,
    /// For standard output.
    pub(crate) paint_out: Paint,
    /// For standard error.
    pub(crate) paint_err: Paint,
    /// Where saved superblocks go.
    pub(crate) state_dir: PathBuf,
    /// The umask that braid was started with; its own is stricter.
    pub(crate) umask: Mode,
}

impl Globals {
    pub(crate) fn new(options: &Options, umask: Mode) -> Self {
        Self {
            json: options.json,
            paint_out: Paint::for_stream(options.color, &std::io::stdout()),
            paint_err: Paint::for_stream(options.color, &std::io::stderr()),
            state_dir: options.state_dir.clone().unwrap_or_else(state_dir),
            umask,
        }
    }
}

/// `$BRAID_STATE_DIR`; else `/var/lib/braid` for root, the XDG state folder for others.
pub(crate) fn state_dir() -> PathBuf {
    if let Some(folder) = std::env::var_os("BRAID_STATE_DIR").filter(|folder| !folder.is_empty()) {
        return PathBuf::from(folder);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/braid");
    }
    let xdg = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    state_dir_of(xdg, std::env::home_dir())
}

/// The state folder of a user who is not root, by `$XDG_STATE_HOME` and the home, which is `$HOME` or as the system knows it. Where both
/// are missing it is root's: what is saved has to be found again, and is not left in the folder that one happens to stand in.
fn state_dir_of(xdg: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    let absolute = |folder: &PathBuf| folder.is_absolute();
    let of_home = home.filter(absolute).map(|home| home.join(".local/state"));
    let folder = xdg.filter(absolute).or(of_home);
    folder.unwrap_or_else(|| PathBuf::from("/var/lib")).join("braid")
}

/// Runs one verb.
pub(crate) fn run(command: Command, globals: &Globals) -> Result<Exit, CliError> {
    match command {
        Command::Create(args) => create::run(*args, globals),
        Command::Serve(args) => serve::run(*args, globals),
        Command::Examine(args) => examine::run(args, globals),
        Command::Rescue(args) => rescue::run(&args, globals),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn without_a_home_nothing_is_kept_in_the_current_folder() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (xdg, home, expected) in [
            (path("/x"), path("/h"), "/x/braid"),
            (None, path("/h"), "/h/.local/state/braid"),
            (path("x"), path("/h"), "/h/.local/state/braid"),
            (None, None, "/var/lib/braid"),
            (path(""), path(""), "/var/lib/braid"),
            (None, path("."), "/var/lib/braid"),
        ] {
            assert_eq!(
                state_dir_of(xdg.clone(), home.clone()),
                Path::new(expected),
                "{xdg:?} {home:?}"
            );
        }
    }
}
