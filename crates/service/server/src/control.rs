//! The array's side of the control API: status, settings and stop.
//!
//! `braid-control` has the API itself: paths, connections, permissions. The socket is made like
//! those of clients, so only this user may connect. The server answers until the array has stopped.
//! The client that requested the stop gets its result; other clients get the error that a stop is
//! under way.

mod array;
pub(crate) mod consistency;
mod content_end;
mod job_requests;
mod jobs;
mod members;
mod setting;
mod shape;
mod shape_words;
mod spare_moves;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use braid_control::model::{
    Array, Checked, Elevators, JobRequest, JobsAnswer, MembersAnswer, MembersWanted, Settings,
    SettingsAnswer, ShapeAnswer, ShapeWanted, Status, StopPlan, Stopped, Top, VERSION,
};
use braid_control::{
    Limits, Misuse, PassedDescriptors, Refusal, ServedArray, Server, StopTeller, routes, stopping,
};
use braid_events::metrics::Source;
use braid_events::{Voice, with_telling};
use braid_frontend_nbd::{BindError, Endpoint, Listener};

use super::spare_group::SpareGroup;
use super::wait::Stopper;
use super::{clients as limits, owner, scheduling};
pub(super) use array::{Facts, state_of};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
pub(super) use job_requests::Checks;
pub(super) use setting::ArrayParts;

#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot start the control thread: {0}")]
    System(#[from] std::io::Error),
}

/// A listening control socket; the server answers no request on it yet.
pub(super) struct ControlSocket {
    listener: Listener,
    path: PathBuf,
    note: Option<Note>,
}

/// The path of a file next to a socket; drop removes the file.
struct Note(PathBuf);

impl Drop for Note {
    fn drop(&mut self) {
        // If the removal fails, the next server overwrites the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl ControlSocket {
    /// Listens at `path`. Replaces a socket there that no process listens on any more.
    pub(super) fn take(path: &Path) -> Result<Self, BindError> {
        let listener = Listener::bind_unix(path)?;
        // Makes the path absolute, because clients run in other folders.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        Ok(Self { listener, path, note: None })
    }

    /// Takes over a listening socket from the service manager; `None` if the socket has no path in
    /// the file system.
    pub(super) fn adopt(socket: OwnedFd) -> Result<Option<Self>, BindError> {
        let listener = Listener::adopt(socket)?;
        let path = match listener.endpoint() {
            Endpoint::Unix(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            Endpoint::Tcp(_) => return Ok(None),
        };
        Ok(Some(Self { listener, path, note: None }))
    }

    /// Adds a file with a hint for the operator next to the socket. If that fails, the hint is lost
    /// and nothing else.
    pub(super) fn with_note(self, path: &Path, text: &str) -> Self {
        let note = std::fs::write(path, format!("{text}\n")).is_ok();
        Self { note: note.then(|| Note(path.to_path_buf())), ..self }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The control socket and the server that answers it. Drop ends the server and removes the socket.
pub(super) struct Control {
    // Fields drop in this order: the server ends before its socket is removed.
    _server: Server,
    _listener: Listener,
    _note: Option<Note>,
    path: String,
    teller: StopTeller,
}

impl Control {
    pub(super) fn start(
        control_socket: ControlSocket,
        answers: &Arc<Answers>,
        (voice, source): (&Voice, Arc<dyn Source>),
    ) -> Result<Self, ControlError> {
        let (teller, stopped) = stopping();
        let served: Arc<dyn ServedArray> = Arc::clone(answers) as Arc<dyn ServedArray>;
        let api = routes::api(&served, &stopped).describe::<Status>();
        let api = api.describe::<Checked>().describe::<Top>();
        let api = with_telling(api, voice, source);
        let router = routes::router(api, &served);
        let socket = control_socket.listener.as_fd().try_clone_to_owned()?;
        let server = Server::start(socket, router, served, Limits::default())?;
        let ControlSocket { listener, note, .. } = control_socket;
        let path = answers.facts.control.clone();
        Ok(Self { _server: server, _listener: listener, _note: note, path, teller })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Reports the outcome of the stop to waiting clients.
    pub(super) fn end(self, outcome: Result<Stopped, &CliError>) {
        self.teller.tell(outcome.map_err(CliError::to_problem));
    }
}

/// The array's state, from which the control socket and the metrics port answer requests.
pub(super) struct Answers {
    facts: Facts,
    /// `None` once the array has stopped.
    running: RwLock<Option<ArrayParts>>,
    /// Held while settings are read, changed and written back, so that two clients do not undo each
    /// other's changes.
    setting: Mutex<()>,
    stopper: Stopper,
    is_stopping: AtomicBool,
    /// The host that should take over the array after the stop; empty if any host may.
    heir: Mutex<String>,
}

impl Answers {
    pub(super) fn new(facts: Facts, running: ArrayParts, stopper: Stopper) -> Arc<Self> {
        Arc::new(Self {
            facts,
            running: RwLock::new(Some(running)),
            setting: Mutex::default(),
            stopper,
            is_stopping: AtomicBool::new(false),
            heir: Mutex::default(),
        })
    }

    /// Reports from now on that the array is being stopped.
    pub(super) fn note_stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(super) fn heir(&self) -> String {
        self.heir.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn end(&self) {
        self.running.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(super) fn stopped(&self, in_order: bool, clean: bool, connections_cut: usize) -> Stopped {
        let facts = &self.facts;
        Stopped {
            version: VERSION,
            name: facts.name.clone(),
            uuid: facts.uuid.clone(),
            in_order,
            clean,
            connections_cut: connections_cut as u64,
        }
    }

    fn running(&self) -> Result<ArrayParts, Refusal> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner).clone();
        running.ok_or_else(|| {
            let what = format!("{} has stopped", self.facts.name);
            let error = CliError::new(Code::NotServed, what).about(&self.facts.name);
            let error = error.because("the process that served it is about to end");
            refusal(409, &error.remedy(Risk::Look, "See the served arrays", "braid list"))
        })
    }

    fn files_closed(&self) -> Refusal {
        let what = format!("the server of {} cannot open files by itself", self.facts.name);
        let error = CliError::new(Code::FilesClosed, what).about(&self.facts.name);
        let error = error.because("it was started with --confine; nothing was changed");
        refusal(409, &error.remedy(Risk::Look, "Read about it", "braid help B098"))
    }

    fn not_set(&self, refused: setting::SetError) -> Refusal {
        match refused {
            setting::SetError::ByArray(error) => refusal(members::status(&error), &error),
            setting::SetError::NotKept(path, error) => self.not_kept(&path, &error),
            setting::SetError::Bad(bad) => {
                let what = format!("{} cannot be set to '{}'", bad.key, bad.value);
                let error = CliError::new(Code::Usage, what).about(&bad.key).because(bad.why);
                let error = error.because("nothing was changed");
                refusal(400, &error.remedy(Risk::Look, "See the settings", "braid set --help"))
            }
        }
    }

    fn not_kept(&self, path: &Path, error: &std::io::Error) -> Refusal {
        let what = format!("{} cannot be written: nothing was changed", path.display());
        let error = CliError::new(Code::StateFolder, what).about(&self.facts.name).caused_by(error);
        let folder = path.parent().unwrap_or(path).display().to_string();
        let look = format!("ls -ld {}", braid_console::output::shell::shell_word(&folder));
        refusal(500, &error.remedy(Risk::Look, "See who may write there", look))
    }

    fn settings_answer(&self, from: &Settings, to: Settings, dry_run: bool) -> SettingsAnswer {
        SettingsAnswer {
            version: VERSION,
            name: self.facts.name.clone(),
            uuid: self.facts.uuid.clone(),
            changed: SettingsAnswer::changes(from, &to),
            settings: to,
            dry_run,
        }
    }
}

impl ServedArray for Answers {
    fn array(&self) -> Result<Array, Refusal> {
        let running = self.running()?;
        Ok(self.facts.array(&running, self.is_stopping.load(Ordering::Acquire)))
    }

    fn settings(&self) -> Result<SettingsAnswer, Refusal> {
        let settings = setting::all(&self.running()?);
        Ok(self.settings_answer(&settings, settings.clone(), false))
    }

    fn set(&self, wanted: &Settings, dry_run: bool) -> Result<SettingsAnswer, Refusal> {
        let running = self.running()?;
        let _alone = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let from = setting::all(&running);
        let is_wish = |key: &str, none: &str| {
            let text = wanted.get(key).map(ToString::to_string);
            text.filter(|text| text != none && wanted.get(key) != from.get(key)).is_some()
        };
        let opens = is_wish(consistency::FILE, consistency::NO_FILE)
            || is_wish(SpareGroup::KEY, SpareGroup::NONE);
        if running.membership.opens_nothing && opens {
            return Err(self.files_closed());
        }
        let (name, word) = (&*self.facts.name, self.facts.word());
        let named = consistency::ArrayName { name, word };
        let set = setting::CheckedSettings::check(&running, &named, wanted);
        let set = set.map_err(|refused| self.not_set(refused))?;
        let to = if dry_run {
            set.settings()
        } else {
            set.apply(&running, &named).map_err(|refused| self.not_set(refused))?;
            setting::all(&running)
        };
        Ok(self.settings_answer(&from, to, dry_run))
    }

    fn elevators(&self) -> Result<Elevators, Refusal> {
        let running = self.running()?;
        let (name, uuid) = (&self.facts.name, &self.facts.uuid);
        Ok(scheduling::state(&running.volume, name, uuid))
    }

    fn request_job(&self, request: JobRequest, dry_run: bool) -> Result<JobsAnswer, Refusal> {
        let running = self.running()?;
        let (effect, told) = job_requests::ask(&running, request, dry_run).map_err(|not| {
            let error = jobs::refusal(not, request, &self.facts.name, &self.facts.word());
            refusal(409, &error)
        })?;
        Ok(JobsAnswer {
            version: VERSION,
            name: self.facts.name.clone(),
            uuid: self.facts.uuid.clone(),
            request,
            effect,
            jobs: told.jobs,
            last_jobs: told.last,
            dry_run,
        })
    }

    fn change_members(
        &self,
        wanted: &MembersWanted,
        passed: &PassedDescriptors,
        dry_run: bool,
    ) -> Result<MembersAnswer, Refusal> {
        let running = self.running()?;
        let changed = members::change(&running, &self.facts, (wanted, passed), dry_run);
        changed.map_err(|(status, error)| refusal(status, &error))
    }

    fn change_shape(
        &self,
        wanted: &ShapeWanted,
        passed: &PassedDescriptors,
        dry_run: bool,
    ) -> Result<ShapeAnswer, Refusal> {
        let running = self.running()?;
        let changed = shape::change(&running, &self.facts, (wanted, passed), dry_run);
        changed.map_err(|(status, error)| refusal(status, &error))
    }

    fn plan_stop(&self, heir: Option<&str>) -> Result<StopPlan, Refusal> {
        let running = self.running()?;
        if let Some(heir) = heir {
            let checked = owner::check_heir(running.volume.has_consenter(), &self.facts.name, heir);
            checked.map_err(|error| refusal(409, &error))?;
        }
        Ok(StopPlan {
            version: VERSION,
            name: self.facts.name.clone(),
            uuid: self.facts.uuid.clone(),
            connections: limits::state(&running.tuner).connections,
            dirty_bytes: running.volume.dirty_bytes(),
            dry_run: false,
        })
    }

    fn stop(&self, heir: Option<&str>) {
        if let Some(heir) = heir {
            heir.clone_into(&mut self.heir.lock().unwrap_or_else(PoisonError::into_inner));
        }
        if !self.is_stopping.swap(true, Ordering::AcqRel) {
            self.stopper.stop();
        }
    }

    fn misused(&self, misuse: &Misuse) -> Refusal {
        let socket = braid_console::output::shell::shell_word(&self.facts.control).into_owned();
        let ask = |path: &str| format!("curl --unix-socket {socket} http://braid/{path}");
        let list = || ("See the served arrays", "braid list".to_owned());
        let (code, (label, command)) = match misuse {
            Misuse::Stranger(_) => {
                (Code::ControlDenied, ("Whose it is", format!("ls -l {socket}")))
            }
            Misuse::Host(_) | Misuse::Site(_) => {
                (Code::AskedFromElsewhere, ("Ask at the socket", ask("v1/array")))
            }
            Misuse::Late(_) => (Code::ServerSilent, list()),
            Misuse::Panicked => (Code::System, list()),
            _ => (Code::Usage, ("See the paths of the API", ask("openapi.json"))),
        };
        let error = CliError::new(code, misuse.to_string()).about(&self.facts.name);
        let error = error.because(misuse_cause(misuse)).remedy(Risk::Look, label, command);
        refusal(misuse.status().as_u16(), &error)
    }
}

fn misuse_cause(misuse: &Misuse) -> &'static str {
    match misuse {
        Misuse::Stranger(_) => "only root and the user who serves the array may use the socket",
        Misuse::Host(_) | Misuse::Site(_) => {
            "nothing was changed; `ssh -L 8080:SOCKET HOST` forwards the socket to \
             http://localhost:8080/"
        }
        Misuse::Late(_) => "the array is busy; stopping it still works",
        Misuse::Panicked => "this is a bug in braid; the array is still served",
        _ => "this server does not know the request; nothing was changed",
    }
}

fn refusal(status: u16, error: &CliError) -> Refusal {
    Refusal::new(status, error.to_problem())
}
