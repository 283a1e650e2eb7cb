//! Serves one array: assembles its members, opens the array, serves it, and stops it.
//!
//! ```text
//!   Inputs ─▶ Ready ─▶ places (control, doors, endpoints) ─▶ OpenArray
//!   OpenArray ─┬▶ clients, doors, metrics, control ─▶ ServingArray
//!              └▶ stopped, if a later step fails
//! ```
//!
//! Sockets and mount points are reserved before the array is opened: an array that clients cannot
//! reach is never started.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit};
use braid_control::ServedArray;
use braid_control::model::LeftOut;
use braid_discovery::newest_state::Keeper;
use braid_discovery::ready::{self, Ready};
use braid_events::metrics::Source;
use braid_events::sockets::InheritedSockets;
use braid_frontend_nbd::tls::Tls;
use braid_frontend_nbd::{Settings, limits};
use braid_ring::{Room, Workers};
use braid_runtime::{CacheMode, Disk, Options, StopResult, Volume};

use super::address::{check_export, control_error, own_control};
use super::answered_writes::AnsweredWrites;
use super::client_addresses::ClientAddresses;
use super::config::{ServerConfig, Tuning};
use super::control::{Answers, ArrayParts, Checks, Control, ControlSocket, Facts};
use super::doors::{DoorPlaces, Doors};
use super::endpoints::Endpoints;
use super::event_delivery::{EventDelivery, Hooks};
use super::jobs::{Board, Sampler};
use super::links::LinkGuard;
use super::metrics::{self, ArrayMetrics};
use super::notice_listeners::{NoticeListeners, OpenArray, jobs_not_kept};
use super::other_arrays::OtherArrays;
use super::owner::{self, GatedDisk};
use super::parts::{ArrayOrDevice, Part};
use super::report::Reporter;
use super::several::{Clients, SharedServer};
use super::start_advice;
use super::wait::{Ending, Watch};
use super::{array_export, cache, confine, descriptors, io, service, stop};

/// Error codes of opening a member that has become unreachable since it was claimed.
const GONE: [Code; 3] = [Code::MemberUnreachable, Code::MemberMissing, Code::MemberIo];

/// File descriptors that one member may have open: buffered, direct, and one to examine the member.
const DESCRIPTORS_PER_MEMBER: usize = 4;

/// Time for clients to finish when the array stops.
pub(super) const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Longest wait for the store when the owner releases the array.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// Time for the command of `--run` to end once the server stops.
const COMMAND_GRACE: Duration = Duration::from_secs(3);

/// Settings and tasks that all arrays of a server share.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) config: &'a ServerConfig,
    pub(super) globals: &'a Globals,
    pub(super) confinement: &'a confine::Confinement,
}

/// The settings of a server that several arrays share, and one array's number in that server.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) place: (Arc<SharedServer>, usize),
    /// The first array, after which the server's socket is named by default; `None` if sockets were
    /// passed on.
    pub(super) socket_name: Option<String>,
}

/// How the server gets an array's members.
pub(super) enum Origin<'a> {
    /// Members to open and examine.
    Named(&'a [PathBuf]),
    /// Members that `braid rescue` has opened: the members are only read, and writes go to an
    /// overlay. Also the other arrays of the rescue.
    Rescued(Box<Ready>, RescuedOthers),
}

/// Other arrays rescued together with this one, and the rescued parts (such as file systems) on all
/// these arrays.
#[derive(Default)]
pub(super) struct RescuedOthers {
    pub(super) others: Vec<(String, ArrayOrDevice)>,
    pub(super) parts: Vec<Box<dyn Part>>,
}

pub(super) struct Inputs {
    pub(super) inherited: InheritedSockets,
    pub(super) tls: Option<Tls>,
    pub(super) tuning: Tuning,
    pub(super) settings: Settings,
}

impl Inputs {
    pub(super) fn take(config: &ServerConfig, shared: Option<&Shared>) -> Result<Self, CliError> {
        let inherited = match shared {
            None => service::inherited()?,
            Some(_) => InheritedSockets::default(),
        };
        let tls = config.tls.load(&config.nbd)?;
        let tuning = Tuning::of(&config.settings)?;
        let settings = match shared {
            None => tuning.take_memory(&config.settings)?,
            Some(shared) => shared.settings,
        };
        let members = config.members.len() * DESCRIPTORS_PER_MEMBER;
        descriptors::raise(settings.connections_max + members);
        Ok(Self { inherited, tls, tuning, settings })
    }

    /// Warns that payloads have little memory, if the operator did not choose it.
    pub(super) fn tell_little_memory(&self, config: &ServerConfig, reporter: &Reporter) {
        let bytes = self.settings.payload_bytes_max;
        if bytes < limits::PAYLOAD_BYTES_MAX && !config.settings.says("payload-memory") {
            reporter.little_memory(bytes, Room::now().least().1);
        }
    }
}

impl Origin<'_> {
    fn ready(
        self,
        config: &ServerConfig,
        state_dir: &Path,
    ) -> Result<(Ready, Option<RescuedOthers>), CliError> {
        let members = match self {
            Self::Named(members) => members,
            Self::Rescued(ready, others) => return Ok((*ready, Some(others))),
        };
        let named = (members, config.bitmap_file.as_deref());
        let ready = ready::ready(named, config.assembly.clone(), state_dir);
        let refused =
            |error| start_advice::with_advice(error, members, &config.assembly, state_dir);
        Ok((ready.map_err(refused)?, None))
    }
}

/// Serves the array of these members with a server of the array's own, or with a shared server.
pub(super) fn one(
    context: Context<'_>,
    origin: Origin<'_>,
    watch: &Watch,
    hooks: Hooks,
    shared: Option<&Shared>,
) -> Result<Exit, CliError> {
    let Context { config, globals, confinement } = context;
    let inputs = Inputs::take(config, shared)?;
    let is_write_back = inputs.tuning.cache.mode == CacheMode::WriteBack;
    if config.owner.is_some() && config.settings.says("cache") && is_write_back {
        return Err(owner::no_write_back());
    }
    let (owned, (ready, rescued)) = match &config.owner {
        None => (None, origin.ready(config, &globals.state_dir)?),
        Some(owner) => loop {
            let Some(owned) = owner::take_over(owner, config, (watch, globals))? else {
                return Ok(Exit::Interrupted);
            };
            match Origin::Named(&owned.members).ready(config, &globals.state_dir) {
                // A member is unreachable since it was claimed. The next take-over leaves it out.
                Err(error) if GONE.contains(&error.code()) => {
                    errln!("{error}; taking over again");
                }
                ready => break (Some(owned), ready?),
            }
        },
    };
    let is_rescued = rescued.is_some();
    let RescuedOthers { others, parts } = rescued.unwrap_or_default();
    let reporter = Arc::new(Reporter::new(globals, &ready));
    reporter.members(&ready);
    inputs.tell_little_memory(config, &reporter);
    let Inputs { inherited, tls, tuning, settings } = inputs;
    let name = reporter.name().to_string();
    if shared.is_none() {
        config.nbd.iter().try_for_each(|address| check_export(&address.export, &name))?;
    }
    let InheritedSockets { nbd: inherited, control: passed_on } = inherited;
    let is_captive = config.nbd.is_empty() && inherited.is_empty() && config.run.is_some();
    // A rescued array accepts no devices: a client that could add one could have a member written.
    let socket = match is_rescued {
        true => None,
        false => control_socket(config, (passed_on, is_captive), &reporter)?,
    };
    let places = DoorPlaces::take(config, ready.array.newest.array.uuid, &reporter)?;
    let socket_name = match shared {
        None => Some(&name).filter(|_| inherited.is_empty()),
        Some(shared) => shared.socket_name.as_ref(),
    };
    let socket_name = (socket_name.map(String::as_str), reporter.uuid());
    let endpoints = Endpoints::new(config, tls.as_ref(), socket_name)?;
    let start = || io::workers(&config.io, &reporter);
    let workers = match shared {
        None => start()?,
        Some(Shared { place: (shared_server, _), .. }) => shared_server.workers_or(start)?,
    };
    let patience = config.owner.as_ref().and_then(|owner| owner.store_patience);
    let told = (&*name, globals.json);
    let owned = owned.map(|owned| owner::OwnedArray::new(owned, &ready, patience, told));
    let mut options = options(config, tuning, workers.as_ref());
    options.consenter = owned.as_ref().map(owner::OwnedArray::consenter);
    cache::check_words(&config.settings, &options.cache, &ready.array.geometry, options.shards)?;

    let listeners = NoticeListeners::new(
        &reporter,
        config,
        (&globals.state_dir, &ready.array.newest.array.uuid),
    );
    let mut facts = Facts::new(&name, &ready, Arc::clone(&listeners.health));
    let delivery = EventDelivery::start(hooks, &globals.state_dir, &ready, &reporter)?;
    let numbers = metrics::ConstantFacts::of(&ready, &reporter);
    let block_bytes = ready.array.newest.array.logical_block_bytes;
    // For a rescued array, this host keeps no files that the array would need after a crash.
    let keeps_files = !is_rescued && owned.is_none();
    let kept = (&*globals.state_dir, config.settings.says("cache"), keeps_files);
    let opened = OpenArray::start(ready, options.clone(), (&listeners, &delivery), kept)?;
    let volume = Arc::clone(opened.volume());

    let fails = {
        let told = Arc::clone(&reporter);
        move |path: &Path, error: &std::io::Error| jobs_not_kept(&told, path, error)
    };
    let sampler = Sampler::start(&listeners.board, &volume, fails);
    let sampler =
        sampler.map_err(|error| system("the thread for jobs could not be started", &error))?;
    let disk: Arc<dyn Disk> = match &owned {
        None => Arc::clone(&volume) as _,
        Some(owned) => Arc::new(GatedDisk::new(Arc::clone(&volume) as _, owned.gate())),
    };
    let ownership = owned.map(|owned| owned.start(&volume, &name, globals.json)).transpose();
    let ownership = ownership
        .map_err(|error| system("the thread for ownership could not be started", &error))?;
    if let Some(ownership) = &ownership {
        listeners.health.note_left_out(&ownership.left_out());
    }
    let export = array_export::export(name.clone(), &volume, Arc::clone(&disk), block_bytes);
    let others = OtherArrays::open(others, &options)?;
    let arrays = others.exports(&export);
    let stretches = parts.iter().map(|part| part.export(&arrays));
    let exports: Vec<_> = std::iter::once(Arc::clone(&export)).chain(stretches).collect();
    let listen = |exports, inherited| {
        let by = (workers.as_ref(), &reporter);
        endpoints.listen(config, exports, (inherited, settings), by)
    };
    let server = match shared {
        None => Clients::Own(listen(exports, inherited)?),
        Some(Shared { place: (shared_server, index), .. }) => {
            shared_server.join(*index, (export, &volume, &reporter), listen)?
        }
    };
    let doors = Doors::open(places, (disk, block_bytes), workers.as_ref(), &reporter)?;
    let metered = (&volume, &reporter);
    let metrics = Arc::new(ArrayMetrics::new(numbers, metered, server.meter(), delivery.voice()));
    let addresses = doors.addresses(server.uris(&name));
    let reached_by_nbd: Vec<Vec<String>> =
        parts.iter().map(|part| server.uris(part.name())).collect();

    let kept = (options.direct, &*globals.state_dir, confinement.opens_nothing());
    let membership = listeners.membership(&delivery, kept)?;
    let control_path = socket.as_ref().map(|socket| socket.path().to_path_buf());
    if let Some(path) = &control_path {
        membership.set_control(path.clone());
    }
    facts.addresses = addresses.clone();
    facts.confined = confinement.words();
    facts.control = control_path.map_or_else(String::new, |path| path.display().to_string());
    facts.log.clone_from(&config.output);
    let NoticeListeners { board, spare_group, shape, health, .. } = listeners;
    shape.set_stopper(watch.stopper());
    if !is_rescued && !volume.is_read_only() {
        shape.set_membership(&membership, &volume);
    }
    let links = membership.watch_links(&volume).map_err(|error| {
        system("the thread for connections to members could not be started", &error)
    })?;
    let running = ArrayParts {
        volume: Arc::clone(&volume),
        tuner: server.tuner(),
        board: Arc::clone(&board),
        membership,
        spare_group: Arc::clone(&spare_group),
        shape,
    };
    let checks = Checks::start(running.clone());
    let checks =
        checks.map_err(|error| system("the thread for checks could not be started", &error))?;
    let answers = Answers::new(facts, running, watch.stopper());
    let served: Arc<dyn ServedArray> = Arc::clone(&answers) as Arc<dyn ServedArray>;
    let port = config.metrics.as_ref().map(|one| one.start(&metrics, &served)).transpose()?;
    let control = socket.map(|socket| {
        let path = socket.path().to_path_buf();
        let told = (&delivery.voice(), metrics as Arc<dyn Source>);
        Control::start(socket, &answers, told).map_err(|error| control_error(&path, &error))
    });
    let control = control.transpose()?;
    let taker = Arc::clone(&answers);
    let looking = spare_group.start(move |group| taker.take_spare(group));
    let looking =
        looking.map_err(|error| system("the thread for spares could not be started", &error))?;
    if let Some(ownership) = &ownership {
        let adder = Arc::clone(&answers);
        let add = move |path: &Path| adder.add_member(path);
        let note = move |left_out: &[LeftOut]| health.note_left_out(left_out);
        let returning = ownership.add_later(&volume, add, note);
        returning.map_err(|error| system("the thread for members could not be started", &error))?;
    }
    confinement.finish()?;

    reporter.serving(
        (volume.size_bytes(), volume.is_read_only()),
        &addresses,
        control.as_ref().map(Control::path),
    );
    parts.iter().zip(&reached_by_nbd).for_each(|(part, uris)| reporter.part(&**part, uris));
    tracing::info!(target: "braid::serve", array = name, reached = ?addresses, confined = confinement.line(), "serving");
    let is_alone = shared.is_none();
    let told = (&*reporter, &*addresses.uris);
    let watchdog = match is_alone {
        true => service::ready(&[Arc::clone(&volume)], workers.as_ref(), told),
        false => None,
    };
    let outcome = serve_until_end(context, (watch, &reporter), &addresses);
    if is_alone {
        service::stopping();
    }
    drop((looking, volume));
    let OpenArray { volume, keeper, answered } = opened.release();
    let serving = ServingArray {
        volume,
        keeper,
        answered,
        server,
        doors,
        sampler,
        checks,
        links,
        board,
        answers,
        control,
        delivery,
        ownership,
    };
    let stopped = serving.end(config, &reporter)?;
    drop((port, watchdog));
    let are_others_clean = others.stop(config.stop_patience());
    let exit = outcome?;
    let is_in_order = stopped.clean && are_others_clean || config.assembly.read_only;
    if is_in_order { Ok(exit) } else { Ok(Exit::Attention) }
}

fn options(config: &ServerConfig, tuning: Tuning, workers: Option<&Arc<Workers>>) -> Options {
    let Tuning { cache, scheduling, sit_out, patience, read_errors, job_pace } = tuning;
    Options {
        read_only: config.assembly.read_only,
        jobs_paused: config.jobs_paused,
        direct: config.io.direct,
        cache,
        scheduling,
        sit_out,
        patience,
        read_errors,
        job_pace,
        hand_over_bytes: config.io.hand_over_bytes,
        ..io::options(workers)
    }
}

/// Options of arrays that are rescued together with a device.
pub(super) fn options_of_rescue(config: &ServerConfig) -> Options {
    options(config, Tuning::default(), None)
}

struct ServingArray {
    volume: Arc<Volume>,
    keeper: Keeper,
    answered: Option<AnsweredWrites>,
    server: Clients,
    doors: Doors,
    sampler: Sampler,
    checks: Checks,
    links: LinkGuard,
    board: Arc<Board>,
    answers: Arc<Answers>,
    control: Option<Control>,
    delivery: EventDelivery,
    ownership: Option<owner::Keeper>,
}

impl ServingArray {
    /// Stops clients, then the array, then the records about the array. The control socket closes
    /// last, since a client on it may wait for the end of the stop.
    fn end(self, config: &ServerConfig, reporter: &Reporter) -> Result<StopResult, CliError> {
        let Self { volume, keeper, answered, server, doors, .. } = self;
        let Self { sampler, checks, links, board, answers, control, delivery, ownership, .. } =
            self;
        answers.note_stopping();
        let meter = server.meter();
        doors.close(STOP_DEADLINE, reporter);
        let clients = server.stop(STOP_DEADLINE);
        drop((checks, sampler, links));
        let stopped = stop::stop(&volume, reporter, config.stop_patience());
        if let Err((path, error)) = board.save() {
            jobs_not_kept(reporter, &path, &error);
        }
        if let Ok(stopped) = stopped {
            if let Some(ownership) = ownership {
                ownership.release(&answers.heir(), RELEASE_PATIENCE);
            }
            keeper.end();
            drop(answered);
            delivery.end();
            reporter.stopped(Some(&volume), stopped.clean, clients.cut, &meter.counts());
        }
        answers.end();
        if let Some(control) = control {
            let told = stopped.as_ref().map(|stopped| {
                // A read-only array needs no clean stop.
                let in_order = stopped.clean || config.assembly.read_only;
                answers.stopped(in_order, stopped.clean && !reporter.stays_dirty(), clients.cut)
            });
            control.end(told);
        }
        stopped
    }
}

pub(super) fn serve_until_end(
    Context { config, globals, .. }: Context<'_>,
    (watch, reporter): (&Watch, &Reporter),
    addresses: &ClientAddresses,
) -> Result<Exit, CliError> {
    let ignored = |number| reporter.ignored(number);
    let Some(command) = &config.run else {
        watch.wait(ignored);
        return Ok(Exit::Done);
    };
    let child = watch
        .run(command, addresses, globals.umask)
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
            // The command of `--run` may still use the array; the server's own deadline bounds the
            // rest of the stop.
            watch.wait_for_command(COMMAND_GRACE);
            Ok(Exit::Interrupted)
        }
    }
}

/// Listens on the control socket, if one was requested or the array's name gives one. If no socket
/// was requested and listening fails, the server runs without one.
fn control_socket(
    config: &ServerConfig,
    (passed_on, is_captive): (Vec<OwnedFd>, bool),
    reporter: &Reporter,
) -> Result<Option<ControlSocket>, CliError> {
    if let Some(socket) = service::control_socket(passed_on, config.control.is_some())? {
        return Ok(Some(socket));
    }
    if let Some(path) = &config.control {
        let socket =
            ControlSocket::take(path).map_err(|error| control_error(path, &error.into()))?;
        return Ok(Some(socket));
    }
    if is_captive {
        return Ok(None);
    }
    match own_control((reporter.name(), reporter.uuid()), &config.files()) {
        Ok(socket) => Ok(Some(socket)),
        // The array's own NBD socket lies in the same folder as the control socket.
        Err(error) if config.nbd.is_empty() => Err(error),
        Err(error) => {
            reporter.without_control(&error);
            Ok(None)
        }
    }
}
