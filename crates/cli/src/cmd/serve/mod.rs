//! `braid serve`: assemble an array, serve it over NBD, as a file, a block device and a disk of virtual machines, stop cleanly.

mod all_the_same;
mod answered;
mod apart;
pub(crate) mod assemble;
mod beside;
mod cache;
mod clients;
mod confine;
mod control;
mod described;
mod descriptors;
mod detach;
pub(crate) mod export;
mod fuse;
mod health;
mod io;
mod job_pace;
pub(crate) mod jobs;
mod lost;
pub(crate) mod mapped;
mod membership;
mod metrics;
pub(crate) mod named;
mod not_opened;
pub(crate) mod parts;
mod place;
mod reached;
mod read_errors;
pub(crate) mod report;
pub(crate) mod rescued;
mod scheduling;
mod service;
mod several;
mod sit_out;
mod spare_group;
mod stop;
pub(crate) mod telling;
mod tls;
mod ublk;
mod vhost_user;
mod wait;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_assembly::Choice;
use braid_control::Served;
use braid_frontend_nbd::{
    BindError, Export, Listener, NoticeListener, Server, Settings, StartError, limits,
};
use braid_ring::{Room, Workers, few_heaps, set_payload_memory};
use braid_runtime::{CacheMode, Notice, Options, Stopped, Volume};
use braid_telling::Voice;
use braid_telling::metrics::Source;
use braid_telling::sockets::Inherited;
use serde_json::json;

use super::Globals;
use crate::error::code::Code;
use crate::error::system::system;
use crate::error::{CliError, Exit, Risk};
use crate::known::{Keeper, Notifier};
use crate::log::{Log, LogArgs};
use crate::output::shell::shell_word;
use crate::raid0_layout::Raid0Layout;
use answered::Answered;
use assemble::Ready;
use beside::Beside;
pub(crate) use control::consistency;
use control::{Answers, Checks, Control, Facts, Place, Running};
use export::VolumeExport;
use health::Health;
use io::{Direct, Io, workers};
use jobs::{Board, JobsWhen, Kept, Sampler};
use membership::Membership;
use metrics::ArrayMetrics;
use not_opened::not_opened;
use parts::Rescued;
use place::{
    Address, Listened, address, bind_error, check_export, control_error, own_control, own_endpoint,
};
use reached::Reached;
use report::Reporter;
use several::{Clients, Together};
use spare_group::SpareGroup;
use telling::{Started, Telling, TellingArgs, Ways};
use wait::{Ending, Watch};

/// Descriptors that a member may have open: buffered, direct, and a look at what it is.
const DESCRIPTORS_PER_MEMBER: usize = 4;

/// Time that clients are given to finish when the array stops.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Time that the command behind `--run` is given to end when we are told to.
const COMMAND_GRACE: Duration = Duration::from_secs(3);

/// Arguments of `braid serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Never write: neither data nor superblocks.
    #[arg(long)]
    read_only: bool,
    /// Start an array that is dirty and degraded, although so many stripes of it, or fewer, may read wrong. Without it such an
    /// array is only served with --read-only, and what is at risk is an I/O error
    #[arg(long, value_name = "COUNT")]
    accept_risk: Option<u64>,
    /// Believe members that are older than the array was when it was last served, or than others with as many events: they
    /// were put back from a backup, and what was written since is given up.
    #[arg(long)]
    accept_older: bool,
    /// Go on without the write journal if its device is not here or cannot be followed: it is given up, newest writes may be
    /// missing, and all of the array is resynced.
    #[arg(long)]
    without_journal: bool,
    /// How a RAID-0 of unequal members goes on where its smallest ends, if its superblocks do not say it. It is not written to
    /// them, and has to be said every time.
    #[arg(long, value_enum, value_name = "LAYOUT")]
    layout: Option<Raid0Layout>,
    /// Which array, if the members are of several and not all are to be served: its name or UUID.
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// Serve every array that the members are of, also those that lack some. Without it several are served by one server if each
    /// has all its members.
    #[arg(long, conflicts_with_all = ["array", "bitmap_file"])]
    all: bool,
    /// The file that has the array's write-intent bitmap, and braid's own log if there is one, beside the members, as md has it
    /// (`mdadm --bitmap=FILE`). It is not on the array itself.
    #[arg(long, value_name = "FILE")]
    bitmap_file: Option<PathBuf>,
    /// Where to serve, as an NBD URI; may be given more than once. Without it (and without --run)
    /// a socket named after the array in the runtime folder.
    #[arg(long = "nbd", value_name = "URI")]
    uris: Vec<String>,
    #[command(flatten)]
    tls: tls::TlsArgs,
    #[command(flatten)]
    fuse: fuse::FuseArgs,
    #[command(flatten)]
    ublk: ublk::UblkArgs,
    #[command(flatten)]
    vhost_user: vhost_user::VhostUserArgs,
    /// Run a shell command with $uri set, $file with --fuse, $device with --ublk and $vhost_user with --vhost-user, and stop when
    /// it ends.
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// How clients are served and members used: by io_uring workers, or by threads that block;
    /// `auto` takes threads where io_uring is not allowed.
    #[arg(long, value_enum, default_value_t = Io::Auto, value_name = "HOW")]
    io: Io,
    /// How many workers; without it as many as there are processors, at most four.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Option<u16>,
    /// How many microseconds a worker that has nothing to do looks for more before it sleeps. Answers come sooner, and a
    /// processor is busy while clients are; 0 sleeps at once.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=io::BUSY_POLL_US_MAX))]
    busy_poll: u32,
    /// The shortest write that a worker leaves to one that sleeps, so that it can receive the next one meanwhile; done
    /// where a client is seen to have several under way. Or `never`.
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = io::hand_over_bytes)]
    hand_over: u64,
    /// Whether members are used past the page cache of the system; `auto` does where they allow it,
    /// but not with files of an array that is only read.
    #[arg(long, value_enum, default_value_t = Direct::Auto, value_name = "WHEN")]
    direct: Direct,
    #[command(flatten)]
    cache: cache::CacheArgs,
    #[command(flatten)]
    scheduling: scheduling::SchedulingArgs,
    #[command(flatten)]
    sit_out: sit_out::SitOutArgs,
    #[command(flatten)]
    read_errors: read_errors::ReadErrorArgs,
    /// Whether resyncs, recoveries and checks may begin, or wait for `braid resume`.
    #[arg(long, value_enum, default_value_t = JobsWhen::On, value_name = "WHEN")]
    jobs: JobsWhen,
    /// Takes a spare of another array that is served here with the same group, when this one lacks a member and has none itself,
    /// and gives its own likewise.
    #[arg(long, value_name = "NAME", value_parser = SpareGroup::checked)]
    spare_group: Option<String>,
    #[command(flatten)]
    job_pace: job_pace::JobPaceArgs,
    #[command(flatten)]
    clients: clients::ClientArgs,
    #[command(flatten)]
    metrics: metrics::MetricsArgs,
    /// Where this array is looked at, set and stopped: the path of a Unix socket, as HTTP. Without it (and without --run) in
    /// the runtime folder, where `braid status` and the other verbs find it by its name.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    #[command(flatten)]
    telling: TellingArgs,
    #[command(flatten)]
    log: LogArgs,
    /// Seconds that a stop goes on without any answer from members that were asked for something; then it is
    /// given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stop_patience: u64,
    #[command(flatten)]
    confine: confine::ConfineArgs,
    #[command(flatten)]
    detach: detach::DetachArgs,
    #[command(flatten)]
    named: named::NamedArgs,
    /// The members, in any order; others are recognised and left alone.
    #[arg(required_unless_present = "name", value_name = "MEMBER")]
    members: Vec<PathBuf>,
}

impl Args {
    /// All that is named by a path which means the same in another folder.
    fn files(&self) -> Vec<PathBuf> {
        self.members.iter().chain(&self.bitmap_file).cloned().collect()
    }
}

/// What an array has of others that are served beside it: settings of the server, and its place there.
struct Shared {
    settings: Settings,
    place: (Arc<Together>, usize),
    /// The first array, whose socket it is where none was named; none if sockets were passed on.
    socket_name: Option<String>,
}

pub(crate) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    if args.detach.detach {
        return detach::start(&args, globals);
    }
    detach::leave_terminal(&args.detach)?;
    let args = named::resolved(args, globals)?;
    named::check_words(&args.members)?;
    let addresses = args.uris.iter().map(|uri| address(uri)).collect::<Result<Vec<_>, _>>()?;
    let ways = match args.confine.is_wanted() {
        true => args.telling.ways_apart(globals)?,
        false => args.telling.ways(globals)?,
    };
    let confining = confine::begin(&args, &addresses, globals)?;
    let _log = Log::start(&args.log)?;
    args.metrics.check()?;
    // A confined server looks at the members of one array, and at nothing before it is confined.
    if !args.confine.is_wanted()
        && let Some(groups) = several::groups(&args)?
    {
        return several::run(&args, groups, (&confining, globals));
    }
    let watch = Watch::new().map_err(|error| system("signals cannot be watched", &error))?;
    one(&args, Origin::Named(&args.members), (&watch, globals), (ways, &confining), None)
}

/// Where an array's members come from.
enum Origin<'a> {
    /// They are opened, and looked at.
    Named(&'a [PathBuf]),
    /// They were opened before, for reading only; what is written goes elsewhere.
    Rescued(Box<Rescued>),
}

/// Serves the array of these members, by a server of its own or one that is shared.
fn one(
    args: &Args,
    origin: Origin<'_>,
    (watch, globals): (&Watch, &Globals),
    (ways, confining): (Ways, &confine::Begun),
    shared: Option<Shared>,
) -> Result<Exit, CliError> {
    let Inherited { nbd: inherited, control: passed_on } = match &shared {
        None => service::inherited()?,
        Some(_) => Inherited::default(),
    };
    let addresses = args.uris.iter().map(|uri| address(uri)).collect::<Result<Vec<_>, _>>()?;
    let tls = args.tls.load(&addresses)?;
    let cache = args.cache.cache()?;
    let scheduling = args.scheduling.scheduling()?;
    let settings = match &shared {
        None => memory_for(args, &cache)?,
        Some(shared) => shared.settings,
    };
    descriptors::raise(settings.connections_max + args.members.len() * DESCRIPTORS_PER_MEMBER);
    let (ready, (rescued, kind)) = match origin {
        Origin::Named(members) => {
            let named = (members, args.bitmap_file.as_deref());
            let ready = assemble::ready(named, wanted(args), &globals.state_dir);
            let refused =
                |error| all_the_same::offered(error, members, &wanted(args), &globals.state_dir);
            (ready.map_err(refused)?, (None, None))
        }
        Origin::Rescued(found) => {
            let Rescued { ready, beside, parts, kind } = *found;
            (ready, (Some((beside, parts)), kind))
        }
    };
    let reporter = Arc::new(Reporter::new(globals, &ready).called(kind));
    reporter.members(&ready);
    if !args.clients.says_memory() && settings.payload_bytes_max < limits::PAYLOAD_BYTES_MAX {
        reporter.little_memory(settings.payload_bytes_max, Room::now().least().1);
    }
    let name = reporter.name().to_string();
    for address in addresses.iter().filter(|_| shared.is_none()) {
        check_export(&address.export, &name)?;
    }
    let is_captive = addresses.is_empty() && inherited.is_empty() && args.run.is_some();
    // One that is rescued takes in no devices: whoever could add one could have a member written.
    let place = match rescued {
        Some(_) => None,
        None => control_place(args, (passed_on, is_captive), &reporter)?,
    };
    let places = DoorPlaces {
        file: args.fuse.place(&reporter)?,
        device: args.ublk.place(ready.array.newest.array.uuid)?,
        machines: args.vhost_user.place()?,
    };
    let hearing = Hearing::new(&reporter, args, &globals.state_dir);
    let mut facts = Facts::new(&name, &ready, Arc::clone(&hearing.health));
    // Kept until the end: the socket for --run lives in it.
    let own_folder = tempfile::Builder::new();
    let socket_name = match &shared {
        None => Some(name.clone()).filter(|_| inherited.is_empty()),
        Some(shared) => shared.socket_name.clone(),
    };
    let (endpoints, _folder) = if addresses.is_empty()
        && let Some(socket_name) = socket_name
    {
        let called = (&*socket_name, reporter.uuid());
        let (listened, folder) = own_endpoint(called, args.run.is_some(), &own_folder)?;
        (vec![listened], folder)
    } else {
        let by = |Address { endpoint, is_tls, .. }: Address| {
            let tls = tls.clone().filter(|_| is_tls);
            Listened { endpoint, tls, otherwise: None }
        };
        (addresses.into_iter().map(by).collect(), None)
    };
    let start = || workers(args.io, (args.workers, args.busy_poll), &reporter);
    let workers = match &shared {
        None => start()?,
        Some(Shared { place: (together, _), .. }) => together.workers_or(start)?,
    };
    let options = Options {
        read_only: args.read_only,
        jobs_paused: args.jobs.is_paused(),
        direct: args.direct.into(),
        cache,
        scheduling,
        sit_out: args.sit_out.sit_out()?,
        read_errors: args.read_errors.limit()?,
        job_pace: args.job_pace.job_pace()?,
        hand_over_bytes: args.hand_over,
        ..io::options(workers.as_ref())
    };
    args.cache.check(&options.cache, &ready.array.geometry, options.shards)?;
    let telling = Telling::start(ways, &globals.state_dir, &ready, &reporter)?;
    let numbers = metrics::Facts::of(&ready, &reporter);
    let block_bytes = ready.array.newest.array.logical_block_bytes;
    let watchers = (&hearing, &telling);
    // Of one that is rescued nothing is written that was not asked for now.
    let keeps_answered = rescued.is_none();
    let (volume, keeper, answered) = open_kept(
        ready,
        options.clone(),
        watchers,
        (&globals.state_dir, args.cache.names_mode(), keeps_answered),
    )?;
    let told = Arc::clone(&reporter);
    let fails = move |path: &Path, error: &std::io::Error| jobs_not_kept(&told, path, error);
    let sampler = Sampler::start(&hearing.board, &volume, fails);
    let sampler = sampler.map_err(|error| system("jobs cannot be watched", &error))?;
    let export: Arc<dyn Export> = Arc::new(VolumeExport::new(
        name.clone(),
        Arc::clone(&volume),
        block_bytes,
        described::describe,
    ));
    let start = |exports, inherited| {
        let places = (&endpoints[..], inherited);
        start_server(args, exports, (places, settings), (&workers, &reporter))
    };
    let (others, parts) = rescued.unwrap_or_default();
    let beside = Beside::open(others, &options).inspect_err(|_| {
        volume.stop();
    })?;
    let arrays = beside.exports(&export);
    let stretches = parts.iter().map(|part| part.export(&arrays));
    let exports: Vec<_> = std::iter::once(Arc::clone(&export)).chain(stretches).collect();
    let server = match &shared {
        None => start(exports, inherited).map(Clients::Own),
        Some(Shared { place: (together, index), .. }) => {
            together.join(*index, (export, &volume, &reporter), start)
        }
    };
    let server = server.inspect_err(|_| {
        volume.stop();
    })?;
    let opened = Doors::open(places, (&volume, block_bytes), (workers.as_ref(), &reporter));
    let doors = opened.inspect_err(|_| {
        volume.stop();
    })?;
    let metrics =
        Arc::new(ArrayMetrics::new(numbers, (&volume, &reporter), server.meter(), telling.voice()));
    let reached = doors.reached(server.uris(&name));
    let reached_by_nbd: Vec<Vec<String>> =
        parts.iter().map(|part| server.uris(part.name())).collect();
    facts.reached = reached.clone();
    let kept = (options.direct, &*globals.state_dir, confining.opens_nothing());
    let membership = hearing.membership(&telling, kept)?;
    facts.confined = confining.words();
    if let Some(place) = &place {
        membership.set_control(place.path().to_path_buf());
    }
    let (tuner, board, spare_group) = (server.tuner(), hearing.board, hearing.spare_group);
    let group = Arc::clone(&spare_group);
    let running = Running { volume: Arc::clone(&volume), tuner, board, membership, spare_group };
    let path = place.as_ref().map(|place| place.path().display().to_string());
    facts.control = path.unwrap_or_default();
    facts.log = args.detach.log();
    let (kept, checks) = (Arc::clone(&running.board), Checks::start(running.clone()));
    let checks = checks.map_err(|error| system("checks cannot be begun", &error))?;
    let answers = Answers::new(facts, running, watch.stopper());
    let served: Arc<dyn Served> = Arc::clone(&answers) as Arc<dyn Served>;
    let port = args.metrics.start(&metrics, &served).inspect_err(|_| {
        volume.stop();
    })?;
    let control =
        place.map(|place| start_control(place, &answers, (&telling.voice(), metrics), &volume));
    let control = control.transpose()?;
    let taker = Arc::clone(&answers);
    let looking = group.start(move |group| taker.take_spare(group));
    let looking = looking.map_err(|error| system("spares cannot be looked for", &error))?;
    confining.finish().inspect_err(|_| {
        volume.stop();
    })?;
    reporter.serving(&volume, &reached, control.as_ref().map(Control::path));
    parts.iter().zip(&reached_by_nbd).for_each(|(part, uris)| reporter.part(part, uris));
    tracing::info!(target: "braid::serve", array = name, reached = ?reached, confined = confining.line(), "serving");
    let is_alone = shared.is_none();
    let tell =
        || service::ready(&[Arc::clone(&volume)], workers.as_ref(), (&reporter, &reached.uris));
    let watchdog = if is_alone { tell() } else { None };
    let outcome = serve_until_end(args, (watch, &reporter), (&reached, globals));
    if is_alone {
        service::stopping();
    }
    drop(looking);
    let board = kept;
    let serving = Serving {
        volume,
        keeper,
        answered,
        server,
        doors,
        sampler,
        checks,
        board,
        answers,
        control,
        telling,
    };
    let stopped = serving.end(args, &reporter)?;
    drop((port, watchdog));
    beside.stop();
    let exit = outcome?;
    if stopped.clean || args.read_only { Ok(exit) } else { Ok(Exit::Attention) }
}

/// Those who hear what happens to the array.
struct Hearing {
    reporter: Arc<Reporter>,
    health: Arc<Health>,
    board: Arc<Board>,
    spare_group: Arc<SpareGroup>,
}

impl Hearing {
    /// Of an array that is about to be started.
    fn new(reporter: &Arc<Reporter>, args: &Args, state_dir: &Path) -> Self {
        let file = jobs::path_of(state_dir, reporter.uuid());
        let kept = Kept::read(&file);
        let board = Board::new(args.jobs.is_paused(), kept, (!args.read_only).then_some(file));
        Self {
            reporter: Arc::clone(reporter),
            health: Arc::default(),
            board: Arc::new(board),
            spare_group: Arc::new(SpareGroup::new(args.spare_group.as_deref())),
        }
    }
}

impl Hearing {
    /// What members that come and go need: told like this, used past the page cache or not, saved in this folder.
    fn membership(
        &self,
        telling: &Telling,
        (direct, state_dir, opens_nothing): (braid_runtime::Direct, &Path, bool),
    ) -> Result<Arc<Membership>, CliError> {
        let heard = (&self.reporter, &self.health);
        let kept = (direct, state_dir.to_path_buf(), opens_nothing);
        let started = Membership::start(heard, telling.of_members(), kept);
        started.map(Arc::new).map_err(|error| system("members cannot be told of", &error))
    }
}

fn jobs_not_kept(reporter: &Reporter, path: &Path, error: &std::io::Error) {
    let path = path.display().to_string();
    let text = format!(
        "how jobs of {} ended cannot be written down in {path}: {error}; a restart will not know (--state-dir names another \
         folder)",
        reporter.name()
    );
    let facts = json!({ "file": path, "why": error.to_string() });
    reporter.aside("jobs-not-kept", &facts, &text);
}

/// A served array, and all that serves it.
struct Serving {
    volume: Arc<Volume>,
    keeper: Keeper,
    answered: Option<Answered>,
    server: Clients,
    doors: Doors,
    sampler: Sampler,
    checks: Checks,
    board: Arc<Board>,
    answers: Arc<Answers>,
    control: Option<Control>,
    telling: Telling,
}

impl Serving {
    /// Ends all of it: clients, the array, what is kept of it; and the control socket last, since a client of it may wait for the
    /// end.
    fn end(self, args: &Args, reporter: &Reporter) -> Result<Stopped, CliError> {
        let Self {
            volume,
            keeper,
            answered,
            server,
            doors,
            sampler,
            checks,
            board,
            answers,
            control,
            telling,
        } = self;
        answers.note_stopping();
        let meter = server.meter();
        doors.close(reporter);
        let clients = server.stop(STOP_DEADLINE);
        drop((checks, sampler));
        let stopped = stop::stop(&volume, reporter, Duration::from_secs(args.stop_patience));
        if let Err((path, error)) = board.save() {
            jobs_not_kept(reporter, &path, &error);
        }
        if let Ok(stopped) = stopped {
            keeper.end();
            drop(answered);
            telling.end();
            reporter.stopped(&volume, stopped, clients.cut, &meter.counts());
        }
        answers.end();
        if let Some(control) = control {
            let told = stopped.as_ref().map(|stopped| {
                // One that is only read has nothing to put in order.
                let in_order = stopped.clean || args.read_only;
                answers.stopped(in_order, stopped.clean && !reporter.stays_dirty(), clients.cut)
            });
            control.end(told);
        }
        stopped
    }
}

/// What the array is beside an export: a file, a block device, a disk of virtual machines.
struct Doors {
    file: Option<braid_frontend_fuse::Door>,
    device: Option<braid_frontend_ublk::Door>,
    machines: Option<vhost_user::Served>,
}

/// Where they may be.
struct DoorPlaces {
    file: Option<braid_frontend_fuse::Place>,
    device: Option<braid_frontend_ublk::Place>,
    machines: Option<vhost_user::Place>,
}

impl Doors {
    /// Opens those that were asked for, of an array with these logical blocks.
    fn open(
        places: DoorPlaces,
        (volume, block_bytes): (&Arc<Volume>, Option<u32>),
        (workers, reporter): (Option<&Arc<Workers>>, &Arc<Reporter>),
    ) -> Result<Self, CliError> {
        let DoorPlaces { file, device, machines } = places;
        let file = file.map(|place| fuse::open(place, volume, reporter)).transpose()?;
        let told = (volume, block_bytes);
        let device = device.map(|place| ublk::open(place, told, reporter)).transpose()?;
        let by = (workers, reporter.uuid());
        let machines = machines.map(|place| vhost_user::open(place, told, by)).transpose()?;
        Ok(Self { file, device, machines })
    }

    /// Their paths, beside these exports.
    fn reached(&self, uris: Vec<String>) -> Reached {
        let word = |path: &Path| path.display().to_string();
        Reached {
            uris,
            file: self.file.as_ref().map(|door| word(door.path())),
            device: self.device.as_ref().map(|door| word(door.path())),
            vhost_user: self.machines.as_ref().map(|door| word(door.path())),
        }
    }

    fn close(self, reporter: &Reporter) {
        if let Some(door) = self.machines {
            vhost_user::close(door, STOP_DEADLINE, reporter);
        }
        if let Some(door) = self.device {
            ublk::close(door, STOP_DEADLINE, reporter);
        }
        if let Some(door) = self.file {
            fuse::close(door, STOP_DEADLINE, reporter);
        }
    }
}

/// Chooses how much memory payloads may have, before anything takes some.
fn memory_for(args: &Args, cache: &braid_runtime::Cache) -> Result<Settings, CliError> {
    let room = Room::now();
    if room.addresses.is_some() {
        few_heaps();
    }
    let settings = args.clients.settings(&room, cache.memory_bytes)?;
    set_payload_memory(settings.payload_bytes_max);
    Ok(settings)
}

/// Listens for clients, if there is room for any.
fn start_server(
    args: &Args,
    exports: Vec<Arc<dyn Export>>,
    ((places, inherited), settings): ((&[Listened], Vec<OwnedFd>), Settings),
    (workers, reporter): (&Option<Arc<Workers>>, &Arc<Reporter>),
) -> Result<Server, CliError> {
    let (sender, notices) = std::sync::mpsc::channel();
    let told = Arc::clone(reporter);
    // The reader of what is told may be slow, and the threads that tell it serve clients.
    let tell = move || notices.iter().for_each(|notice| told.client_notice(notice));
    let thread = std::thread::Builder::new().name("braid-notices".into()).spawn(tell);
    thread.map_err(|error| system("the server could not be started", &error))?;
    // A thread that has ended hears nothing any more.
    let listener: NoticeListener = Arc::new(move |notice| {
        let _ = sender.send(notice);
    });
    let heard = (settings, listener);
    let inherited = inherited.into_iter().map(|socket| Ok((Listener::adopt(socket)?, None)));
    let bind = |place: &Listened| {
        let Listened { endpoint, tls, otherwise } = place;
        let listener = match (tls, otherwise) {
            (Some(_), _) => Listener::bind_open(endpoint)?,
            (None, None) => Listener::bind(endpoint)?,
            (None, Some(otherwise)) => match Listener::bind(endpoint) {
                Err(BindError::InUse(_)) => Listener::bind(otherwise)?,
                listener => listener?,
            },
        };
        Ok((listener, tls.clone()))
    };
    let listeners = places.iter().map(bind).chain(inherited);
    let started = listeners
        .collect::<Result<_, BindError>>()
        .map_err(StartError::from)
        .and_then(|listeners| Server::start_listening(workers.as_ref(), exports, listeners, heard));
    let server = started.map_err(|error| start_error(&error, args))?;
    let fit = descriptors::room(settings.connections_max)?;
    if fit < settings.connections_max {
        reporter.few_descriptors(fit, settings.connections_max);
    }
    Ok(server)
}

/// Starts the array, and has written down how new it is, unless it is only read.
fn open_kept(
    ready: Ready,
    mut options: Options,
    (hearing, telling): (&Hearing, &Telling),
    (state_dir, names_mode, keeps_answered): (&Path, bool, bool),
) -> Result<(Arc<Volume>, Keeper, Option<Answered>), CliError> {
    let mut keeper = Keeper::new(state_dir, &ready.array, &ready.members);
    let reporter = &hearing.reporter;
    let started = Started::of(&ready, reporter);
    let mut answered = match keeps_answered {
        true => Answered::prepare(&ready, (&mut options, names_mode), reporter)?,
        false => None,
    };
    if answered.is_none() && !names_mode {
        options.cache.mode = CacheMode::WriteThrough;
    }
    let options = &options;
    let volume = open(ready, options, (hearing, telling), keeper.notifier())?;
    telling.started(&started, &volume);
    if !options.read_only {
        let teller = Arc::clone(reporter);
        let fails = move |path: &Path, error: &std::io::Error| teller.not_kept(path, error);
        if let Err((path, error)) = keeper.start(&volume, fails) {
            reporter.not_kept(&path, &error);
        }
    }
    if let Some(answered) = &mut answered {
        answered.write_back(&volume, reporter).inspect_err(|_| {
            volume.stop();
        })?;
    }
    Ok((volume, keeper, answered))
}

/// Starts the array; what happens to it is reported as it happens.
fn open(
    ready: Ready,
    options: &Options,
    (hearing, telling): (&Hearing, &Telling),
    notifier: Notifier,
) -> Result<Arc<Volume>, CliError> {
    let Hearing { reporter, health, board, spare_group } = hearing;
    let (watcher, health, board) = (Arc::clone(reporter), Arc::clone(health), Arc::clone(board));
    let spare_group = Arc::clone(spare_group);
    let tell = telling.of_notices(reporter);
    let labels = ready.labels();
    let volume = Volume::open(&ready.array, ready.members, options, move |notice| match notice {
        Notice::Recorded { .. } => notifier.notify(),
        _ => {
            health.note(&notice, |member| watcher.label(member));
            board.note(&notice, |member| watcher.label(member));
            watcher.notice(&notice);
            tell(&notice);
            if let Notice::MemberOut { .. } = notice {
                spare_group.look();
            }
        }
    });
    let volume = volume.map_err(|error| not_opened(&error, &labels))?;
    for (index, why) in volume.through_page_cache() {
        reporter.through_page_cache(&labels[*index], why);
    }
    Ok(Arc::new(volume))
}

/// Waits for a signal, or for the end of the command.
fn serve_until_end(
    args: &Args,
    (watch, reporter): (&Watch, &Reporter),
    (reached, globals): (&Reached, &Globals),
) -> Result<Exit, CliError> {
    let ignored = |number| reporter.ignored(number);
    let Some(command) = &args.run else {
        watch.wait(ignored);
        return Ok(Exit::Done);
    };
    let child = watch
        .run(command, reached, globals.umask)
        .map_err(|error| system("the command did not start", &error));
    let child = child?;
    match watch.wait(ignored) {
        Ending::Command(Ok(status)) if status.success() => Ok(Exit::Done),
        Ending::Command(status) => {
            let why = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let error = CliError::new(Code::CommandFailed, "the command given to --run failed");
            Err(error.because(command.clone()).because(why))
        }
        Ending::Signal => {
            child.ask_to_end();
            // It may still be talking to the array; the server's own deadline bounds the rest.
            watch.wait_for_command(COMMAND_GRACE);
            Ok(Exit::Interrupted)
        }
    }
}

/// What assembly is asked for.
fn wanted(args: &Args) -> braid_assembly::Options {
    braid_assembly::Options {
        choice: choice(args.array.as_deref()),
        read_only: args.read_only,
        accept_risk: args.accept_risk,
        accept_older: args.accept_older,
        without_journal: args.without_journal,
        raid0_layout: args.layout.map(Raid0Layout::number),
        ..braid_assembly::Options::default()
    }
}

/// A name, or a UUID as mdadm and braid print it.
pub(crate) fn choice(array: Option<&str>) -> Choice {
    let Some(text) = array else { return Choice::default() };
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-')).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(uuid) if digits.len() == 32 => {
            Choice { uuid: Some(uuid.to_be_bytes()), ..Choice::default() }
        }
        _ => Choice { name: Some(text.to_string()), ..Choice::default() },
    }
}

/// Listens for those who look at the array, where that was asked for or is found by the array's name. Where nothing was asked for
/// the array is served without, if need be.
fn control_place(
    args: &Args,
    (passed_on, is_captive): (Vec<OwnedFd>, bool),
    reporter: &Reporter,
) -> Result<Option<Place>, CliError> {
    if let Some(place) = service::control_place(passed_on, args.control.is_some())? {
        return Ok(Some(place));
    }
    if let Some(path) = &args.control {
        let place = Place::take(path).map_err(|error| control_error(path, &error.into()))?;
        return Ok(Some(place));
    }
    if is_captive {
        return Ok(None);
    }
    match own_control((reporter.name(), reporter.uuid()), &args.files()) {
        Ok(place) => Ok(Some(place)),
        // Its own socket lies there as well.
        Err(error) if args.uris.is_empty() => Err(error),
        Err(error) => {
            reporter.without_control(&error);
            Ok(None)
        }
    }
}

fn start_control(
    place: Place,
    answers: &Arc<Answers>,
    told: (&Voice, Arc<ArrayMetrics>),
    volume: &Volume,
) -> Result<Control, CliError> {
    let path = place.path().to_path_buf();
    let told = (told.0, told.1 as Arc<dyn Source>);
    Control::start(place, answers, told).map_err(|error| {
        volume.stop();
        control_error(&path, &error)
    })
}

fn start_error(error: &StartError, args: &Args) -> CliError {
    match error {
        StartError::Bind(bind) => bind_error(bind),
        StartError::System(error) => system("the server could not be started", error),
        StartError::NoExports
        | StartError::NoEndpoints
        | StartError::Name(_)
        | StartError::DuplicateName(_) => {
            let member = args.members.first().map_or_else(String::new, |m| m.display().to_string());
            CliError::new(Code::ArrayNameInvalid, "the array's name cannot be served")
                .caused_by(error)
                .remedy(
                    Risk::Look,
                    "See its name",
                    format!("braid examine {}", shell_word(&member)),
                )
        }
    }
}
