//! The thread that follows changes of shape: it opens the array anew when superblocks record a new
//! shape, and drops the old shape when all data has moved.
//!
//! ```text
//!   control ─▶ begin, revert ─▶ Notice::ShapeRecorded ─┐
//!   data moves ─▶ Notice::JobEnded ─▶ finish ──────────┴─▶ this thread ─▶ Volume::reopen
//! ```
//!
//! A RAID-0 has no spares: members for which the array has no slot are released, and their
//! superblocks are removed.
//!
//! Parity logs name sectors by their position in one shape, so the array does without logs during a
//! change of shape. A RAID-10 that gets larger also does without its bitmap: if md ended the
//! change, md would not resync the new part, for which no bit exists. A file in the state folder
//! says whether the array gets a log or a bitmap back, also after a restart. Another file records
//! the array's end for clients, if that is before the array's own end.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use braid_assembly::{Options as AssemblyOptions, assemble};
use braid_console::error::CliError;
use braid_console::error::code::Code;
use braid_console::state::{make_folders, remove_files, write_whole};
use braid_discovery::probe::probe_member;
use braid_discovery::{refusal, window_copies};
use braid_geometry::{Family, SECTOR_BYTES};
use braid_runtime::{
    BitmapHome, JobEnd, JobKind, LogError, LogKind, LogRefusal, MemberId, Notice, OpenError,
    OpenMember, Reassembled, ReshapeError, ShapeProposal, StoppedMember, Volume, WantedBitmap,
};
use serde_json::json;

use crate::membership::Membership;
use crate::open_errors::array_open_error;
use crate::report::Reporter;
use crate::wait::Stopper;

/// How long a request waits until the array is open with its new shape.
const REOPENED_WITHIN: Duration = Duration::from_secs(5);

/// The word in the note for a bitmap that was dropped; the bytes of a bit follow the word.
const BITMAP_WORD: &str = "bitmap";

/// An event after which the thread for changes of shape must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShapeStep {
    /// Superblocks record the new shape.
    Recorded,
    /// All data has moved.
    Moved,
    /// A resync or a recovery is over, so that the array may accept a log again.
    Healed,
    /// The array has stopped.
    Ended,
}

impl ShapeStep {
    pub(super) fn of(notice: &Notice) -> Option<Self> {
        match notice {
            Notice::ShapeRecorded => Some(Self::Recorded),
            Notice::JobEnded { progress, end: JobEnd::Completed }
                if progress.kind == JobKind::Reshape =>
            {
                Some(Self::Moved)
            }
            Notice::JobEnded { progress, end: JobEnd::Completed }
                if matches!(progress.kind, JobKind::Resync | JobKind::Recovery) =>
            {
                Some(Self::Healed)
            }
            Notice::Stopped { .. } => Some(Self::Ended),
            _ => None,
        }
    }
}

/// The listener that gets the array's notices after the array was opened anew.
pub(super) type Hear = Arc<dyn Fn(Notice) + Send + Sync>;

/// The state that the thread for changes of shape shares with requests and notices.
pub(super) struct ShapeChanges {
    reporter: Arc<Reporter>,
    log_note: PathBuf,
    end_note: PathBuf,
    copy: PathBuf,
    stopper: Mutex<Option<Stopper>>,
    membership: OnceLock<Arc<Membership>>,
    /// The number of times that the array was opened anew.
    reopened: Mutex<u64>,
    changed: Condvar,
}

/// Why the array could not be opened anew.
#[derive(Debug)]
enum ReopenError {
    Probe(CliError),
    Open(OpenError),
}

impl From<OpenError> for ReopenError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl ShapeChanges {
    pub(super) fn new(reporter: &Arc<Reporter>, state_dir: &Path, uuid: &[u8; 16]) -> Arc<Self> {
        let copy = window_copies::path(state_dir, uuid);
        let log_note = window_copies::log_note(state_dir, reporter.uuid());
        let end_note = window_copies::end_note(state_dir, reporter.uuid());
        let reporter = Arc::clone(reporter);
        let (stopper, membership, reopened, changed) = Default::default();
        Arc::new(Self {
            reporter,
            log_note,
            end_note,
            copy,
            stopper,
            membership,
            reopened,
            changed,
        })
    }

    /// Sets the handle that releases spares and reports it. Then releases spares that the last run
    /// left, and makes the log or the bitmap that was dropped.
    pub(super) fn set_membership(&self, membership: &Arc<Membership>, volume: &Volume) {
        let _set_once = self.membership.set(Arc::clone(membership));
        if volume.reshape().is_none() {
            self.let_spares_go(volume);
            if !volume.is_read_only() {
                self.log_again(volume);
            }
        }
    }

    /// Sets the handle by which this object stops the server, if the array cannot be opened anew.
    pub(super) fn set_stopper(&self, stopper: Stopper) {
        *self.stopper.lock().unwrap_or_else(PoisonError::into_inner) = Some(stopper);
    }

    /// Starts the thread for changes of shape, which ends with [`ShapeStep::Ended`].
    ///
    /// # Errors
    /// The thread could not start.
    pub(super) fn start(
        self: &Arc<Self>,
        volume: &Arc<Volume>,
        hear: Hear,
        steps: Receiver<ShapeStep>,
    ) -> std::io::Result<()> {
        let (own, volume) = (Arc::clone(self), Arc::downgrade(volume));
        let run = move || own.run(&volume, &hear, &steps);
        std::thread::Builder::new().name("braid-shape".into()).spawn(run).map(|_| ())
    }

    fn run(&self, volume: &Weak<Volume>, hear: &Hear, steps: &Receiver<ShapeStep>) {
        for step in steps {
            let Some(volume) = volume.upgrade() else { return };
            match step {
                ShapeStep::Ended => return,
                ShapeStep::Moved => {
                    if let Err(error) = volume.finish_reshape() {
                        self.say("reshape-unfinished", &error.to_string());
                    }
                }
                ShapeStep::Recorded => {
                    self.reopen(&volume, hear);
                    *self.reopened.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    self.changed.notify_all();
                }
                ShapeStep::Healed if volume.reshape().is_none() => self.log_again(&volume),
                ShapeStep::Healed => {}
            }
        }
    }

    fn reopen(&self, volume: &Volume, hear: &Hear) {
        let hears = Arc::clone(hear);
        let mut labels = Vec::new();
        let opened = volume.reopen(
            move |notice| hears(notice),
            |members| {
                labels = members.iter().map(|one| one.path.display().to_string()).collect();
                self.reassemble(members, &labels).map_err(ReopenError::Probe)
            },
        );
        match opened {
            Ok(_) if volume.reshape().is_none() => {
                remove_files(std::slice::from_ref(&self.copy));
                self.forget_end(volume);
                self.log_again(volume);
                self.let_spares_go(volume);
            }
            Ok(_) => {}
            Err(error) => {
                let error = match error {
                    ReopenError::Probe(error) => error,
                    ReopenError::Open(error) => array_open_error(&error, &labels),
                };
                let text = format!(
                    "{} could not be opened with its new shape, and ends: {error}",
                    self.reporter.name()
                );
                self.say("reshape-stopped", &text);
                let stopper = self.stopper.lock().unwrap_or_else(PoisonError::into_inner).take();
                stopper.inspect(Stopper::stop);
            }
        }
    }

    fn reassemble(
        &self,
        members: Vec<StoppedMember>,
        labels: &[String],
    ) -> Result<Reassembled, CliError> {
        // A member that cannot be read counts as missing.
        let probes = members.into_iter().zip(labels).map(|(member, label)| {
            let probed = probe_member(&*member.device, label);
            probed.map(|probed| (member, label, probed)).map_err(|error| self.say_unread(&error))
        });
        let found: Vec<_> = probes.filter_map(Result::ok).collect();
        let labels: Vec<String> = found.iter().map(|(_, label, _)| (*label).clone()).collect();
        let (members, probed): (Vec<_>, Vec<_>) =
            found.into_iter().map(|(member, _, probed)| (member, probed)).unzip();
        let uuids = probed.iter().filter_map(|one| Some(one.probe.newest()?.array.uuid));
        let options = AssemblyOptions {
            window_copies: uuids.take(1).collect(),
            // Accepts any risk: the array ran in this state until now, and its start took it.
            accept_risk: Some(u64::MAX),
            ..AssemblyOptions::default()
        };
        let assembly = assemble(&probed, &options);
        let refused = |refused| refusal::cli_error(&refused, &assembly.verdicts, &labels);
        let array = assembly.array.map_err(refused)?;
        // Gives members their numbers in this order, as the array's machines do.
        let order = array.occupants().map(|one| one.member).chain(array.spares.iter().copied());
        for (id, index) in (0..).map(MemberId).zip(order) {
            self.reporter.name_member(id, labels[index].clone());
        }
        let opened = members.into_iter().zip(&probed).map(|(member, probed)| {
            let superblock = probed.probe.newest()?.clone();
            Some(OpenMember { device: Box::new(member.device), superblock })
        });
        Ok(Reassembled { members: opened.collect(), array })
    }

    fn say_unread(&self, error: &CliError) {
        let text = format!("{} goes on without a member: {error}", self.reporter.name());
        self.say("reshape-unread", &text);
    }

    /// The file with copies of windows that a reshape moves in place.
    pub(super) fn copy(&self) -> &Path {
        &self.copy
    }

    /// The number of times that the array was opened anew.
    pub(super) fn reopened(&self) -> u64 {
        *self.reopened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the array was opened anew more than `before` times, for [`REOPENED_WITHIN`] at
    /// most: members may be slow.
    pub(super) fn wait_reopened(&self, before: u64) {
        let count = self.reopened.lock().unwrap_or_else(PoisonError::into_inner);
        let is_before = |count: &mut u64| *count == before;
        let waited = self.changed.wait_timeout_while(count, REOPENED_WITHIN, is_before);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Before a change of shape, drops the array's parity log, or the bitmap that cannot stay.
    /// Notes the dropped log or bitmap in the state folder.
    ///
    /// # Errors
    /// The log cannot be dropped now, or the state folder cannot be written.
    pub(super) fn rest_log(
        &self,
        volume: &Volume,
        proposal: &ShapeProposal,
    ) -> Result<(), CliError> {
        let bitmap = volume.bitmap().filter(|_| proposal.drops_bitmap());
        let word = match (volume.parity_logs(), &bitmap) {
            (Some(_), _) if volume.has_own_parity_logs() => "log".to_owned(),
            (Some(_), _) => "ppl".to_owned(),
            (None, Some(bitmap)) => format!("{BITMAP_WORD} {}", bitmap.bit_bytes),
            (None, None) => return Ok(()),
        };
        let failed = |error: &dyn std::error::Error| {
            let what = format!("the log or bitmap of {} cannot rest now", self.reporter.name());
            let error = CliError::new(Code::ShapeStays, what).caused_by(error);
            error.about(self.reporter.name()).because("nothing was changed")
        };
        let folder = self.log_note.parent().expect("it is in a folder");
        make_folders(folder).map_err(|error| failed(&error.1))?;
        write_whole(&self.log_note, &word).map_err(|error| failed(&error))?;
        let dropped = match bitmap {
            Some(_) => volume.change_bitmap(None).map_err(|error| failed(&error)),
            None => volume.change_logs(None).map_err(|error| failed(&error)),
        };
        dropped.inspect_err(|_| remove_files(std::slice::from_ref(&self.log_note)))
    }

    /// Releases the spares of an array without redundancy. No slot of such an array can become
    /// free, and md does not start the array with a spare.
    pub(super) fn let_spares_go(&self, volume: &Volume) {
        let is_direct = volume.geometry().level().family() == Family::Direct;
        let Some(membership) = self.membership.get().filter(|_| is_direct) else { return };
        for id in volume.spares() {
            if let Err(error) = membership.let_go(volume, id) {
                let text = format!("{} keeps a spare: {error}", self.reporter.label(id));
                self.say("spare-kept", &text);
            }
        }
    }

    /// Makes the parity log or the bitmap that [`Self::rest_log`] dropped, if it dropped one.
    pub(super) fn log_again(&self, volume: &Volume) {
        if volume.geometry().level().family() == Family::Direct {
            return self.forget_log();
        }
        let Ok(word) = std::fs::read_to_string(&self.log_note) else { return };
        let is_bitmap = word.starts_with(BITMAP_WORD);
        if volume.parity_logs().is_some() || is_bitmap && volume.bitmap().is_some() {
            return self.forget_log(); // It was not dropped, or is there again.
        }
        if let Some(chunk) = word.trim().strip_prefix(BITMAP_WORD) {
            return self.bitmap_again(volume, chunk.trim().parse().ok());
        }
        let kind = if word.trim() == "ppl" { LogKind::Ppl } else { LogKind::Own };
        let changed = volume.change_logs(Some(kind));
        // A resync or a recovery must end first; this function is called again at its end.
        let is_later = LogError::from(LogRefusal::InDoubt);
        let is_filled_first = LogError::from(LogRefusal::Degraded);
        if changed.as_ref().err().is_some_and(|why| *why == is_later || *why == is_filled_first) {
            return;
        }
        if let Err(error) = changed {
            let text = format!(
                "{} has its new shape, but not its log again: {error} (braid set {} \
                 consistency=log)",
                self.reporter.name(),
                self.reporter.name()
            );
            return self.say("log-stays-off", &text);
        }
        self.forget_log();
    }

    /// Removes the note about a dropped log or bitmap: the array has it again, or the operator
    /// chose otherwise.
    pub(super) fn forget_log(&self) {
        remove_files(std::slice::from_ref(&self.log_note));
    }

    /// Makes a bitmap on the members, with bits of `chunk_bytes` if there is room for them.
    fn bitmap_again(&self, volume: &Volume, chunk_bytes: Option<u32>) {
        let planned = volume.plan_bitmap(chunk_bytes).or_else(|_| volume.plan_bitmap(None));
        let made = planned.and_then(|planned| {
            let chunk_bytes = planned.chunk_bytes;
            volume.change_bitmap(Some(WantedBitmap { chunk_bytes, home: BitmapHome::Members }))
        });
        if let Err(error) = made {
            let text = format!(
                "{name} has its new shape, but not its bitmap again: {error} (braid set {name} \
                 consistency=bitmap)",
                name = self.reporter.name(),
            );
            return self.say("bitmap-stays-off", &text);
        }
        self.forget_log();
    }

    /// Sets the array's end for clients to the one with which the array was last served.
    pub(super) fn end_as_noted(&self, volume: &Volume) {
        let note = match std::fs::read_to_string(&self.end_note) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            note => note.map_err(|error| error.to_string()),
        };
        let sector = note.and_then(|note| {
            let bytes = note.trim().parse::<u64>().map_err(|error| error.to_string())?;
            let is_end = bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES);
            is_end.then_some(bytes / SECTOR_BYTES).ok_or_else(|| "no array ends there".to_owned())
        });
        let ends = sector
            .and_then(|sector| volume.end_at(Some(sector)).map_err(|refusal| refusal.to_string()));
        if let Err(why) = ends {
            let text = format!(
                "{} is served up to its own end: {} does not say where it ends for clients: {why}",
                self.reporter.name(),
                self.end_note.display()
            );
            self.say("array-size-unread", &text);
        }
    }

    /// Sets the array's end for clients to this byte, or to the array's own end for `None`; also
    /// for later starts.
    ///
    /// # Errors
    /// The array's shape is being changed, or the state folder cannot be written. Nothing has
    /// changed then.
    pub(super) fn end_at(&self, volume: &Volume, bytes: Option<u64>) -> Result<(), CliError> {
        let before = volume.end_sector();
        let what = format!("the end of {} stays where it is", self.reporter.name());
        let failed = |code: Code, error: &dyn std::error::Error| {
            let error = CliError::new(code, what.clone()).caused_by(error);
            error.about(self.reporter.name()).because("nothing was changed")
        };
        let ended = volume.end_at(bytes.map(|bytes| bytes / SECTOR_BYTES));
        ended.map_err(|refusal| failed(Code::ShapeStays, &refusal))?;
        let noted = match bytes {
            Some(bytes) => write_whole(&self.end_note, &format!("{bytes}\n")),
            None => remove_durably(&self.end_note),
        };
        noted.map_err(|error| {
            // A change of shape that began meanwhile opens the array anew with what is there now.
            let _is_changing = volume.end_at(before);
            failed(Code::StateFolder, &error)
        })
    }

    /// Forgets an end for clients that is not before the array's own end.
    fn forget_end(&self, volume: &Volume) {
        let whole = volume.whole_size_bytes() / SECTOR_BYTES;
        if volume.end_sector().is_some_and(|sector| sector >= whole)
            && let Err(error) = self.end_at(volume, None)
        {
            self.say("array-size-kept", &error.to_string());
        }
    }

    fn say(&self, event: &'static str, text: &str) {
        self.reporter.aside(event, &json!({ "array": self.reporter.name() }), text);
    }
}

/// Removes a file, which may be missing, durably.
fn remove_durably(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed?;
            std::fs::File::open(path.parent().expect("it is in a folder"))?.sync_all()
        }
    }
}

/// Passes a notice to the thread for changes of shape.
pub(super) fn pass_on(steps: &Sender<ShapeStep>, notice: &Notice) {
    if let Some(step) = ShapeStep::of(notice) {
        // The send fails if the thread has ended with the array.
        let _ended = steps.send(step);
    }
}

/// The error code for a change of shape that the array refuses.
pub(super) fn code_of(error: &ReshapeError) -> Code {
    match error {
        ReshapeError::Refused(_) | ReshapeError::Wish(_) | ReshapeError::Superblock(_) => {
            Code::ShapeStays
        }
        ReshapeError::Copy(_) => Code::StateFolder,
        ReshapeError::Stopped => Code::NotServed,
    }
}
