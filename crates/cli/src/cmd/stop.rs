//! `braid stop`: stops a running array as SIGTERM does, and returns when its members are free.
//!
//! The server answers when the array has stopped, and its process ends shortly after. `stop` waits
//! for the server's process if it can see this process, so that the next command finds the members
//! unlocked.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use braid_control::Client;
use braid_control::model::{StopPlan, Stopped};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Globals;
use braid_console::error::{CliError, Exit};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_discovery::running::{self, RunningArray, unanswered};

/// The longest wait for the server's process after its array has stopped.
const LAST_BREATH: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Say what a stop would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not wait until the array has stopped.
    #[arg(long)]
    detach: bool,
    /// The host that takes the array over first; empty for any.
    #[arg(skip)]
    heir: Option<String>,
}

impl Args {
    /// A stop after which another host serves the array, `heir` before others.
    pub(super) fn hand_over(array: &str, heir: &str, dry_run: bool) -> Self {
        Self { array: array.to_owned(), dry_run, detach: false, heir: Some(heir.to_owned()) }
    }

    /// The path of the stop request, with its query.
    fn path(&self) -> String {
        let dry_run = self.dry_run.then(|| "dry_run=true".to_owned());
        let detach = self.detach.then(|| "detach=true".to_owned());
        let heir = self.heir.as_ref().map(|heir| format!("hand_over_to={heir}"));
        let query: Vec<String> = [dry_run, detach, heir].into_iter().flatten().collect();
        match query.is_empty() {
            true => "/v1/stop".to_owned(),
            false => format!("/v1/stop?{}", query.join("&")),
        }
    }
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    if args.dry_run || args.detach {
        let plan = running.client().post::<StopPlan>(&args.path());
        let plan = plan.map_err(|error| unanswered(&running.control, &error))?;
        tell_plan(&plan, globals);
        return Ok(Exit::Done);
    }
    let process = process(&running);
    // The stop has no time limit: the server decides when to give up on its members.
    let stopped = Client::new(&running.control, None).post::<Stopped>(&args.path());
    let stopped = stopped.map_err(|error| unanswered(&running.control, &error))?;
    if let Some(process) = process {
        wait(&process);
    }
    tell(&stopped, globals);
    Ok(if stopped.in_order { Exit::Done } else { Exit::Attention })
}

/// The serving process, if it is the peer of the control socket.
fn process(running: &RunningArray) -> Option<OwnedFd> {
    let peer = peer(&running.control)?;
    let said = i32::try_from(running.array.server.pid).ok()?;
    (peer.as_raw_nonzero().get() == said).then_some(())?;
    pidfd_open(peer, PidfdFlags::empty()).ok()
}

fn peer(control: &Path) -> Option<Pid> {
    let stream = UnixStream::connect(control).ok()?;
    socket_peercred(&stream).ok().map(|peer| peer.pid)
}

fn wait(process: &OwnedFd) {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let limit = Timespec::try_from(LAST_BREATH).expect("a few seconds");
    // The output is the same whether the process ended or the time limit was reached.
    let _ = poll(&mut polled, Some(&limit));
}

fn tell(stopped: &Stopped, globals: &Globals) {
    if globals.json {
        outjson!(&serde_json::to_value(stopped).expect("it is made of text and numbers"));
        return;
    }
    let name = printable(&stopped.name);
    let how = match (stopped.in_order, stopped.clean) {
        (true, true) => "cleanly",
        (true, false) => "in order; it was dirty at its start and stays so until a resync",
        (false, _) => "but its superblocks are not clean: `braid examine` shows their state",
    };
    outln!("stopped {name} {how}");
    if stopped.connections_cut > 0 {
        outln!("{} connection(s) were cut in the middle of a request", stopped.connections_cut);
    }
}

fn tell_plan(plan: &StopPlan, globals: &Globals) {
    if globals.json {
        outjson!(&serde_json::to_value(plan).expect("it is made of text and numbers"));
        return;
    }
    let (name, dirty) = (printable(&plan.name), format_size(plan.dirty_bytes));
    let connections = plan.connections;
    if plan.dry_run {
        outln!(
            "would stop {name}: {connections} connected client(s) would be cut off, {dirty} written back first"
        );
    } else {
        outln!("{name} is being stopped: {connections} client(s) connected, {dirty} to write back");
    }
}
