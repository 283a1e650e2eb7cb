//! The listeners to an array's notices, and the start of the array with these listeners.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use braid_console::error::CliError;
use braid_console::error::system::system;
use braid_discovery::newest_state::{Keeper, Notifier};
use braid_discovery::ready::Ready;
use braid_discovery::window_copies;
use braid_runtime::{CacheMode, Direct, Notice, Options, Volume, WindowCopy};
use serde_json::json;

use super::answered_writes::AnsweredWrites;
use super::config::ServerConfig;
use super::event_delivery::{EventDelivery, StartFacts};
use super::health::Health;
use super::jobs::{self, Board, SavedJobs};
use super::membership::Membership;
use super::open_errors::array_open_error;
use super::report::Reporter;
use super::shape_changes::{Hear, ShapeChanges, pass_on};
use super::spare_group::SpareGroup;

pub(super) struct NoticeListeners {
    pub(super) reporter: Arc<Reporter>,
    pub(super) health: Arc<Health>,
    pub(super) board: Arc<Board>,
    pub(super) spare_group: Arc<SpareGroup>,
    pub(super) shape: Arc<ShapeChanges>,
}

impl NoticeListeners {
    pub(super) fn new(
        reporter: &Arc<Reporter>,
        config: &ServerConfig,
        (state_dir, uuid): (&Path, &[u8; 16]),
    ) -> Self {
        let file = jobs::path_of(state_dir, reporter.uuid());
        let saved = SavedJobs::read(&file);
        let file = (!config.assembly.read_only).then_some(file);
        let board = Board::new(config.jobs_paused, saved, file);
        Self {
            reporter: Arc::clone(reporter),
            health: Arc::default(),
            board: Arc::new(board),
            spare_group: Arc::new(SpareGroup::new(config.spare_group.as_deref())),
            shape: ShapeChanges::new(reporter, state_dir, uuid),
        }
    }

    /// State for changes of members: the reporter, whether to bypass the page cache, and the folder
    /// for saved bytes of devices.
    pub(super) fn membership(
        &self,
        delivery: &EventDelivery,
        (direct, state_dir, opens_nothing): (Direct, &Path, bool),
    ) -> Result<Arc<Membership>, CliError> {
        let heard = (&self.reporter, &self.health);
        let kept = (direct, state_dir.to_path_buf(), opens_nothing);
        let started = Membership::start(heard, delivery.of_members(), kept);
        started.map(Arc::new).map_err(|error| {
            system(
                "the thread for events of members could not \
                                                      be started",
                &error,
            )
        })
    }

    /// Starts the array, with notices reported as they occur.
    fn open(
        &self,
        ready: Ready,
        options: &Options,
        delivery: &EventDelivery,
        notifier: Notifier,
    ) -> Result<Arc<Volume>, CliError> {
        let Self { reporter, health, board, spare_group, shape } = self;
        let watcher = Arc::clone(reporter);
        let (board, spare_group) = (Arc::clone(board), Arc::clone(spare_group));
        let tell = delivery.of_notices(reporter, health);
        let labels = ready.labels();
        let (steps, stepped) = channel();
        let hear: Hear = Arc::new(move |notice| match notice {
            Notice::Recorded { .. } => notifier.notify(),
            _ => {
                pass_on(&steps, &notice);
                if let Notice::Returned { member, old, .. } = notice {
                    watcher.name_member(member, watcher.label(old));
                }
                board.note(&notice, |member| watcher.label(member));
                tell(&notice);
                if let Notice::MemberOut { .. } | Notice::Away { .. } = notice {
                    spare_group.look();
                }
            }
        });
        let hears = Arc::clone(&hear);
        let volume =
            Volume::open(&ready.array, ready.members, options, move |notice| hears(notice));
        let volume = Arc::new(volume.map_err(|error| array_open_error(&error, &labels))?);
        let started = shape.start(&volume, hear, stepped);
        started.map_err(|error| {
            system("the thread for changes of shape could not be started", &error)
        })?;
        for (index, why) in volume.through_page_cache() {
            reporter.through_page_cache(&labels[index], &why);
        }
        Ok(volume)
    }
}

/// Warns that a restart will not know how jobs ended.
pub(super) fn jobs_not_kept(reporter: &Reporter, path: &Path, error: &std::io::Error) {
    let path = path.display().to_string();
    let text = format!(
        "the results of jobs of {} cannot be recorded in {path}: {error}; a restart will not know \
         them (--state-dir names another folder)",
        reporter.name()
    );
    let facts = json!({ "file": path, "why": error.to_string() });
    reporter.aside("jobs-not-kept", &facts, &text);
}

/// A running array, and the files about it that lie outside of members.
pub(super) struct OpenArray {
    pub(super) volume: Arc<Volume>,
    pub(super) keeper: Keeper,
    pub(super) answered: Option<AnsweredWrites>,
}

impl OpenArray {
    /// Starts the array. Unless it is read-only, also keeps this host's record of its state (event
    /// count and time) up to date from now on. With `keeps_files` this host has files that the
    /// array needs after a crash: acknowledged writes, the copy of a reshape's window, the noted
    /// shape.
    pub(super) fn start(
        ready: Ready,
        mut options: Options,
        (listeners, delivery): (&NoticeListeners, &EventDelivery),
        (state_dir, names_mode, keeps_files): (&Path, bool, bool),
    ) -> Result<StopOnDrop, CliError> {
        let keeper = Keeper::new(state_dir, &ready.array, &ready.members);
        let reporter = &listeners.reporter;
        let started = StartFacts::of(&ready, reporter);
        let answered = match keeps_files {
            true => AnsweredWrites::prepare(&ready, (&mut options, names_mode), reporter)?,
            false => None,
        };
        options.window_copy = (!options.read_only && keeps_files).then(|| {
            let uuid = ready.array.newest.array.uuid;
            Arc::new(WindowCopy::new(window_copies::path(state_dir, &uuid), uuid))
        });
        if answered.is_none() && !names_mode {
            options.cache.mode = CacheMode::WriteThrough;
        }
        let volume = listeners.open(ready, &options, delivery, keeper.notifier())?;
        if keeps_files {
            listeners.shape.end_as_noted(&volume);
        }
        delivery.started(&started, &volume);
        let mut opened = StopOnDrop(Some(Self { volume, keeper, answered }));
        let Some(Self { volume, keeper, answered }) = &mut opened.0 else {
            unreachable!("it was put there")
        };
        if !options.read_only {
            let teller = Arc::clone(reporter);
            let fails = move |path: &Path, error: &std::io::Error| teller.not_kept(path, error);
            if let Err((path, error)) = keeper.start(volume, fails) {
                reporter.not_kept(&path, &error);
            }
        }
        if let Some(answered) = answered {
            answered.write_back(volume, reporter)?;
        }
        Ok(opened)
    }
}

/// Stops a running array on drop, if a later step of the start fails.
pub(super) struct StopOnDrop(Option<OpenArray>);

impl StopOnDrop {
    /// Hands the array over to the caller, which must stop it from now on.
    pub(super) fn release(mut self) -> OpenArray {
        self.0.take().expect("it is taken out once")
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        &self.0.as_ref().expect("it is taken out at the end").volume
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(array) = &self.0 {
            array.volume.stop();
        }
    }
}
