//! Consistency policy of a running array (how redundancy survives a crash): shown, judged, changed.
//!
//! ```text
//!   consistency=WORD, bitmap-chunk=SIZE ─▶ read (words) ─▶ judge: room, the array's own rules
//!     ─▶ apply: returns once superblocks have it
//! ```
//!
//! Unlike other settings, the policy is stored on members and survives a restart. A request that
//! sets it may set nothing else: other settings could fail afterwards. A change overwrites md's own
//! space for a bitmap or a log, and space between that and the data. Setting the old word reverts
//! the change.
//!
//! A change takes up to three steps in this order ([`Steps`]): drop logs; make or drop a bitmap;
//! make logs. All steps are judged before the first step begins. Between two steps the array has
//! only a bitmap, or neither a bitmap nor a log.
//!
//! Invariants
//! - a refused change or a dry run changes nothing
//!   [check: a_bitmap_is_refused_with_what_to_do_and_nothing_is_changed].

use std::path::{Path, PathBuf};

use braid_control::model::Settings;
use braid_geometry::{Family, Slot};
use braid_member::OpenError;
use braid_ondisk::BitmapSuperblock;
use braid_runtime::{
    BitmapError, BitmapHome, BitmapRefusal, LogError, LogKind, LogRefusal, MemberRefusal, Volume,
    WantedBitmap,
};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::{format_size_exact, parse_size};
use braid_console::state::remove_files;
use braid_discovery::bitmap_file;
use braid_discovery::policy::{BITMAP_CHUNK_WORDS, Policy, bitmap_chunk};
use braid_discovery::probe::open_error;

pub(super) const AFTER_ITS_JOURNAL: &str = "serve it again with the journal's device, or, if that \
                                            is lost for good, with --without-journal";

const POLICY: &str = "consistency";
pub(super) const CHUNK: &str = "bitmap-chunk";
/// Key of the bitmap file outside of members.
pub const FILE: &str = "bitmap-file";
pub(super) const KEYS: [&str; 3] = [POLICY, CHUNK, FILE];
/// The value of `bitmap-file` for no bitmap file.
pub const NO_FILE: &str = "none";

/// The array's current policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CurrentPolicy {
    NoRedundancy,
    Resync,
    /// A bitmap, with this many bytes for each bit.
    Bitmap(u64),
    ParityLogs,
    Journal,
    /// braid's own logs. With a bitmap in addition: the bytes for each of its bits.
    OwnLogs(Option<u64>),
}

/// The place of the new bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    Members,
    /// In the array's current bitmap file.
    SameFile,
    /// In a new bitmap file.
    NewFile(PathBuf),
}

/// The change to the array's bitmap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Change {
    #[default]
    None,
    /// Make a bitmap in place of the current one.
    Make(BitmapSuperblock, Home),
    GiveUp,
}

/// The steps of a change of policy; they run in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Steps {
    /// Drop the array's logs.
    ends_logs: bool,
    bitmap: Change,
    /// Make logs of this kind.
    logs: Option<LogKind>,
}

pub(super) struct ArrayName<'a> {
    pub(super) name: &'a str,
    /// The array's name for use in commands.
    pub(super) word: String,
}

/// The current policy, the requested one, and the steps to it.
pub(super) struct Consistency {
    current: CurrentPolicy,
    /// The current or planned bitmap file.
    file: Option<PathBuf>,
    policy: Option<Policy>,
    chunk_bytes: Option<u32>,
    /// The requested bitmap file; `Some(None)` for none.
    asked_file: Option<Option<PathBuf>>,
    steps: Steps,
}

impl Consistency {
    pub(super) fn now(volume: &Volume) -> Self {
        let is_direct = volume.geometry().level().family() == Family::Direct;
        let bit_bytes = volume.bitmap().map(|look| look.bit_bytes);
        let current = match bit_bytes {
            _ if is_direct => CurrentPolicy::NoRedundancy,
            bit_bytes if volume.has_own_parity_logs() => CurrentPolicy::OwnLogs(bit_bytes),
            Some(bit_bytes) => CurrentPolicy::Bitmap(bit_bytes),
            None if volume.parity_logs().is_some() => CurrentPolicy::ParityLogs,
            None if volume.journal().is_some() => CurrentPolicy::Journal,
            None => CurrentPolicy::Resync,
        };
        let file = volume.bitmap_file();
        let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
        let (policy, chunk_bytes, asked_file) = (None, None, None);
        Self { current, file, policy, chunk_bytes, asked_file, steps: Steps::default() }
    }

    pub(super) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            POLICY => {
                let policy = Policy::parse(text).filter(|one| *one != Policy::Lockless);
                let policy = policy.ok_or("it is 'bitmap', 'resync', 'log' or 'ppl'")?;
                self.policy = Some(policy);
            }
            CHUNK => {
                let bytes = parse_size(text).map_err(|error| error.to_string())?;
                let chunk = bitmap_chunk(bytes).ok_or(BITMAP_CHUNK_WORDS)?;
                self.chunk_bytes = Some(chunk);
            }
            FILE if text == NO_FILE => self.asked_file = Some(None),
            FILE => {
                let path = PathBuf::from(text);
                if !path.is_absolute() {
                    return Err("it is an absolute path, or 'none'".to_owned());
                }
                self.asked_file = Some(Some(path));
            }
            _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// Checks whether the change is possible, and plans its steps.
    pub(super) fn judge(&mut self, volume: &Volume, named: &ArrayName<'_>) -> Result<(), CliError> {
        let (current, asked) = (self.current, self.chunk_bytes);
        let is_asked = |bytes: u64| asked.is_none_or(|asked| u64::from(asked) == bytes);
        let had = match current {
            CurrentPolicy::Bitmap(_) => Policy::Bitmap,
            CurrentPolicy::ParityLogs => Policy::Ppl,
            CurrentPolicy::OwnLogs(_) => Policy::Log,
            CurrentPolicy::Journal => Policy::Journal,
            CurrentPolicy::Resync | CurrentPolicy::NoRedundancy => Policy::Resync,
        };
        let file = self.asked_file.clone().unwrap_or_else(|| self.file.clone());
        let refused = RefusalContext { volume, named, asked, file: file.clone() };
        let is_moved = file != self.file;
        // If a request sets only `bitmap-file`, it asks for a bitmap in that file.
        let policy = match (self.policy, had) {
            (None, Policy::Resync) if file.is_some() && is_moved => Policy::Bitmap,
            (policy, had) => policy.unwrap_or(had),
        };
        // With the policies resync and ppl, the current bitmap file stays empty.
        let keeps_none = matches!(policy, Policy::Resync | Policy::Ppl);
        let file = file.filter(|_| !keeps_none || self.asked_file.is_some());
        let is_moved = file != self.file && !keeps_none;
        if let (Some(path), true) = (&file, self.asked_file.is_some()) {
            refused.check_file(path, policy, is_moved)?;
        }
        match (policy, current) {
            (Policy::Journal, _) if is_moved => return Err(refused.journal()),
            _ if is_moved => {}
            (Policy::Bitmap, CurrentPolicy::Bitmap(bytes)) if is_asked(bytes) => return Ok(()),
            (Policy::Log, CurrentPolicy::OwnLogs(Some(bytes))) if is_asked(bytes) => return Ok(()),
            (policy, _) if policy == had && asked.is_none() => return Ok(()),
            (Policy::Journal, _) => return Err(refused.journal()),
            (Policy::Resync | Policy::Ppl, _) if asked.is_some() => return Err(refused.no_bitmap()),
            _ => {}
        }
        // A lockless bitmap exists since its array was created, and never together with a log.
        let is_lockless = volume.bitmap().is_some_and(|look| look.unwritten.is_some());
        let has_bitmap = match current {
            CurrentPolicy::Bitmap(bytes) | CurrentPolicy::OwnLogs(Some(bytes)) => Some(bytes),
            _ => None,
        };
        let keeps_bitmap = has_bitmap.is_some_and(is_asked) && !is_lockless && !is_moved;
        let logs = match policy {
            Policy::Ppl => Some(LogKind::Ppl),
            Policy::Log => Some(LogKind::Own),
            Policy::Bitmap | Policy::Resync | Policy::Lockless | Policy::Journal => None,
        };
        let ends_logs = matches!(
            current,
            CurrentPolicy::ParityLogs | CurrentPolicy::OwnLogs(_) | CurrentPolicy::Journal
        );
        let makes_bitmap = matches!(policy, Policy::Bitmap | Policy::Log) && !keeps_bitmap;
        let ends_bitmap = matches!(policy, Policy::Resync | Policy::Ppl) && has_bitmap.is_some();
        if ends_logs {
            volume.may_change_logs(None).map_err(|error| refused.by_logs(&error))?;
        } else if makes_bitmap || ends_bitmap {
            volume.may_change_bitmap(makes_bitmap).map_err(|error| refused.by(&error))?;
        }
        if logs.is_some() {
            // An earlier step of the change removes these two obstacles.
            let in_the_way = [LogRefusal::HasLogs, LogRefusal::Bitmap].map(LogError::from);
            let may = volume.may_change_logs(logs);
            let may = may.or_else(|error| match in_the_way.contains(&error) {
                true => Ok(()),
                false => Err(error),
            });
            may.map_err(|error| refused.by_logs(&error))?;
        }
        let bitmap = match () {
            () if makes_bitmap => {
                let bit_bytes = has_bitmap.and_then(|bytes| u32::try_from(bytes).ok());
                let asked = asked.or(bit_bytes.filter(|_| is_moved && file.is_some()));
                planned(volume, (asked, policy), (file.as_ref(), is_moved))
                    .map_err(|error| refused.by(&error))?
            }
            () if ends_bitmap => Change::GiveUp,
            () => Change::None,
        };
        let bitmap_bytes = match &bitmap {
            Change::Make(planned, _) => Some(u64::from(planned.chunk_bytes)),
            Change::GiveUp => None,
            Change::None => has_bitmap,
        };
        if let Some(kind) = logs {
            let sectors = match &bitmap {
                Change::Make(planned, _) => planned.area_sectors(),
                Change::GiveUp => 0,
                Change::None => volume.bitmap_sectors(),
            };
            let may = match (kind, &bitmap) {
                _ if kind == LogKind::Ppl || file.is_none() => volume.plan_logs(kind, sectors),
                (_, Change::None) => volume.plan_log_in_file(),
                // A file with a new bitmap has room for a log, whether or not the file is new.
                _ => Ok(()),
            };
            may.map_err(|error| refused.by_logs(&error))?;
        }
        self.file = file;
        self.steps = Steps { ends_logs, bitmap, logs };
        self.current = match (logs, bitmap_bytes) {
            (Some(LogKind::Ppl), _) => CurrentPolicy::ParityLogs,
            (Some(LogKind::Own), bytes) => CurrentPolicy::OwnLogs(bytes),
            (None, Some(bytes)) => CurrentPolicy::Bitmap(bytes),
            (None, None) => CurrentPolicy::Resync,
        };
        Ok(())
    }

    /// Whether the requested policy needs a bitmap, and has it on the members.
    pub(super) fn is_on_members(&self) -> bool {
        let has_bitmap = matches!(
            self.current,
            CurrentPolicy::Bitmap(_)
                | CurrentPolicy::OwnLogs(Some(_))
                | CurrentPolicy::NoRedundancy
        );
        has_bitmap && self.file.is_none()
    }

    /// Whether the change writes to members.
    pub(super) fn changes(&self) -> bool {
        self.steps != Steps::default()
    }

    /// Applies the change of policy. Returns once superblocks record the change.
    pub(super) fn apply(self, volume: &Volume, named: &ArrayName<'_>) -> Result<(), CliError> {
        let refused =
            RefusalContext { volume, named, asked: self.chunk_bytes, file: self.file.clone() };
        let Steps { ends_logs, bitmap, logs } = self.steps;
        let has_begun = ends_logs || bitmap != Change::None;
        // Make the bitmap file before the array drops its logs or its bitmap.
        let mut made = None;
        let bitmap = match bitmap {
            Change::None => None,
            Change::GiveUp => Some(None),
            Change::Make(planned, home) => {
                let home = match home {
                    Home::Members => BitmapHome::Members,
                    Home::SameFile => BitmapHome::SameFile,
                    Home::NewFile(path) => {
                        let device = bitmap_file::create(&path, &planned)?;
                        made = Some(path);
                        BitmapHome::File(device)
                    }
                };
                Some(Some(WantedBitmap { chunk_bytes: planned.chunk_bytes, home }))
            }
        };
        let unmake = |error: CliError| {
            // If the array already uses the bitmap file, the file stays.
            let used = Self::now(volume).file;
            let unused = made.filter(|path| used.as_ref() != Some(path));
            remove_files(&unused.into_iter().collect::<Vec<PathBuf>>());
            error
        };
        let changed = match ends_logs {
            true => volume.change_logs(None).map_err(|error| refused.by_logs(&error)),
            false => Ok(()),
        };
        let changed = changed.and_then(|()| match bitmap {
            None => Ok(()),
            Some(wanted) => volume
                .change_bitmap(wanted)
                .map_err(|error| refused.on_the_way(refused.by(&error), ends_logs)),
        });
        changed.map_err(unmake)?;
        let Some(kind) = logs else { return Ok(()) };
        let changed = volume.change_logs(Some(kind));
        changed.map_err(|error| refused.on_the_way(refused.by_logs(&error), has_begun))
    }

    pub(super) fn to_settings(&self) -> Settings {
        let (policy, chunk_bytes) = match self.current {
            CurrentPolicy::NoRedundancy => ("none", None),
            CurrentPolicy::Resync => ("resync", None),
            CurrentPolicy::Bitmap(bytes) => ("bitmap", Some(bytes)),
            CurrentPolicy::ParityLogs => ("ppl", None),
            CurrentPolicy::Journal => ("journal", None),
            CurrentPolicy::OwnLogs(bytes) => ("log", bytes),
        };
        let mut settings = Settings::from([(POLICY.to_owned(), policy.into())]);
        settings.extend(chunk_bytes.map(|bytes| (CHUNK.to_owned(), bytes.into())));
        let file = self.file.as_ref().map(|file| file.display().to_string());
        settings.extend(file.map(|file| (FILE.to_owned(), file.into())));
        settings
    }
}

/// Plans a bitmap. If no bitmap fits, braid's own log works without one, as in an array that was
/// created with a log.
fn planned(
    volume: &Volume,
    (asked, policy): (Option<u32>, Policy),
    (file, is_moved): (Option<&PathBuf>, bool),
) -> Result<Change, BitmapError> {
    if let Some(file) = file {
        let size_bytes = volume.bitmap_file_bytes().filter(|_| !is_moved);
        let planned = volume.plan_bitmap_in_file(file, size_bytes, asked)?;
        let home = if is_moved { Home::NewFile(file.clone()) } else { Home::SameFile };
        return Ok(Change::Make(planned, home));
    }
    match volume.plan_bitmap(asked) {
        Ok(planned) => Ok(Change::Make(planned, Home::Members)),
        Err(BitmapError::NoRoom { fitting_bytes: None, .. })
            if policy == Policy::Log && asked.is_none() =>
        {
            Ok(Change::None)
        }
        Err(error) => Err(error),
    }
}

struct RefusalContext<'a> {
    volume: &'a Volume,
    named: &'a ArrayName<'a>,
    asked: Option<u32>,
    file: Option<PathBuf>,
}

impl RefusalContext<'_> {
    /// Refuses a bitmap file that exists already, or that the requested policy does not need.
    fn check_file(&self, path: &Path, policy: Policy, is_moved: bool) -> Result<(), CliError> {
        if is_moved && path.symlink_metadata().is_ok() {
            let there = OpenError::AlreadyExists { path: path.to_path_buf() };
            return Err(open_error(&there).because("nothing was changed"));
        }
        if matches!(policy, Policy::Bitmap | Policy::Log) {
            return Ok(());
        }
        let what = format!("{} has no bitmap or log to put into a file", self.named.name);
        let error = CliError::new(Code::ConsistencyStays, what).about(self.named.name);
        let error = error.because("only a bitmap, and braid's own log with it, can be in a file");
        let path = path.display().to_string();
        let command = format!(
            "braid set {} consistency=bitmap {FILE}={}",
            self.named.word,
            shell_word(&path)
        );
        let error = error.because("nothing was changed");
        Err(error.remedy(Risk::Change, "Put a bitmap into it", command))
    }

    fn stays(&self, code: Code) -> CliError {
        let name = self.named.name;
        let what = format!("the bitmap or log of {name} cannot be changed now");
        CliError::new(code, what).about(name)
    }

    fn look(&self, error: CliError) -> CliError {
        let command = format!("braid status {}", self.named.word);
        error.remedy(Risk::Look, "See its state", command)
    }

    fn no_bitmap(&self) -> CliError {
        let name = self.named.name;
        let what = format!("{name} has no bitmap whose size could be set");
        let error = CliError::new(Code::ConsistencyStays, what).about(name);
        let size = self.asked.map_or("64M".to_owned(), |bytes| format_size_exact(bytes.into()));
        let command =
            format!("braid set {} consistency=bitmap bitmap-chunk={size}", self.named.word);
        error.because("nothing was changed").remedy(Risk::Change, "Make one", command)
    }

    /// Explains an error of a later step of the change, if an earlier step has changed something.
    fn on_the_way(&self, error: CliError, has_begun: bool) -> CliError {
        if !has_begun {
            return error;
        }
        let settings = Consistency::now(self.volume).to_settings();
        let word = settings.get(POLICY).map(ToString::to_string).unwrap_or_default();
        error.because(format!("its previous policy was dropped already: now it has '{word}'"))
    }

    fn by_logs(&self, error: &LogError) -> CliError {
        match error {
            LogError::Refused(refusal) => self.by_log_refusal(*refusal),
            LogError::NoRoom { member, needed_sectors } => {
                let (name, word) = (self.named.name, &self.named.word);
                let member = member.to_string_lossy();
                let what = format!("{} has no room for a parity log of {name}", printable(&member));
                let needed = format_size_exact(needed_sectors * 512);
                let why = format!(
                    "each member needs {needed} between superblock and data; nothing was changed"
                );
                let error = CliError::new(Code::SizeInvalid, what).about(name).because(why);
                let command = format!("braid set {word} consistency=bitmap");
                error.remedy(Risk::Change, "Keep a bitmap instead", command)
            }
        }
    }

    fn by_log_refusal(&self, refusal: LogRefusal) -> CliError {
        let word = &self.named.word;
        match refusal {
            LogRefusal::Array(refusal) => self.by_members(refusal),
            LogRefusal::Level => {
                let error = self.stays(Code::ConsistencyStays);
                let level = self.volume.geometry().level();
                if level.family() != Family::Stripe {
                    let why = "parity logs need parity: levels 4, 5 and 6";
                    return self.look(error.because(why).because("nothing was changed"));
                }
                let error = error.because("md's partial parity log exists only on RAID-5");
                let command = format!("braid set {word} consistency=log");
                error.because("nothing was changed").remedy(
                    Risk::Change,
                    "Use braid's own log, which does the same here",
                    command,
                )
            }
            LogRefusal::InDoubt => {
                self.in_doubt("it is being resynced, and logs do not cover a resync")
            }
            LogRefusal::Degraded => self.degraded("a member is missing or being rebuilt"),
            LogRefusal::Busy => self.busy(),
            LogRefusal::Reshaping => self.reshaping(),
            LogRefusal::HasNone | LogRefusal::HasLogs | LogRefusal::Bitmap => {
                self.look(self.stays(Code::BitmapBusy).because(
                    "another command changed it \
                                                                meanwhile",
                ))
            }
        }
    }

    /// The refusal to make a write journal by this setting: a journal needs its own device.
    fn journal(&self) -> CliError {
        let error = self.stays(Code::ConsistencyStays);
        let error = error.because("a write journal needs a device of its own");
        let command = format!("braid add {} --write-journal DEVICE", self.named.word);
        let error = error.because("nothing was changed");
        error.remedy(Risk::Change, "Name the device", command)
    }

    fn by(&self, error: &BitmapError) -> CliError {
        match error {
            BitmapError::Refused(refusal) => self.by_array(*refusal),
            BitmapError::NoRoom { member, fitting_bytes } => {
                let member = member.to_string_lossy();
                self.no_room(&printable(&member), *fitting_bytes)
            }
            BitmapError::FileFailed => {
                let what = format!("the bitmap file of {} could not be written", self.named.name);
                let error = CliError::new(Code::MemberIo, what).about(self.named.name);
                self.look(error.because("the array goes on without the contents of that file"))
            }
            BitmapError::Thread(_) => {
                let what = format!("{} cannot have a bitmap file now", self.named.name);
                CliError::new(Code::Shortage, what).caused_by(error)
            }
        }
    }

    fn no_room(&self, member: &str, fitting_bytes: Option<u32>) -> CliError {
        let name = self.named.name;
        let what = format!("{member} has no room for this bitmap of {name}");
        let error = CliError::new(Code::SizeInvalid, what).about(name);
        let why = match self.file {
            Some(_) => "its bitmap fills that file; nothing was changed",
            None => {
                "a bitmap lies between superblock and data, the same on every member; nothing was changed"
            }
        };
        let error = error.because(why);
        let Some(bytes) = fitting_bytes else {
            return self.look(error.because("not even one of the largest size would fit"));
        };
        let size = format_size_exact(bytes.into());
        let command =
            format!("braid set {} consistency=bitmap bitmap-chunk={size}", self.named.word);
        error.remedy(Risk::Change, "Use fewer bits, which fit", command)
    }

    fn by_array(&self, refusal: BitmapRefusal) -> CliError {
        match refusal {
            BitmapRefusal::Array(refusal) => self.by_members(refusal),
            BitmapRefusal::Journal | BitmapRefusal::HasNone | BitmapRefusal::ParityLogs => self
                .look(self.stays(Code::BitmapBusy).because(
                    "another command changed it \
                                                                meanwhile",
                )),
            BitmapRefusal::InDoubt => self.in_doubt(
                "it was interrupted while writing, and only its bitmap tells which stripes need a \
                 resync",
            ),
            BitmapRefusal::Degraded => self.degraded(
                "a member is missing or being rebuilt, and only the bitmap tells what a returning \
                 member lacks",
            ),
            BitmapRefusal::Busy => self.busy(),
            BitmapRefusal::Reshaping => self.reshaping(),
        }
    }

    fn in_doubt(&self, why: &str) -> CliError {
        let error = self.stays(Code::ConsistencyStays).because(why);
        let wait = format!("braid wait {}", self.named.word);
        error.because("nothing was changed").remedy(Risk::Look, "Wait until it is resynced", wait)
    }

    fn degraded(&self, why: &str) -> CliError {
        let word = &self.named.word;
        let error = self.stays(Code::ConsistencyStays).because(why);
        let error = error.because("nothing was changed");
        let (view, slots) = (self.volume.view(), self.volume.geometry().slots());
        if (0..slots).all(|slot| view.member(Slot(slot)).is_some()) {
            let wait = format!("braid wait {word} --for rebuild");
            return error.remedy(Risk::Look, "Wait until it is rebuilt", wait);
        }
        let add = format!("braid add {word} DEVICE");
        error.remedy(Risk::Change, "Put a device in its place", add)
    }

    fn reshaping(&self) -> CliError {
        let why = "its shape is being changed, and data moves to where a log may be";
        let error = self.stays(Code::ConsistencyStays).because(why).because("nothing was changed");
        let wait = format!("braid wait {} --for idle", self.named.word);
        error.remedy(Risk::Look, "Wait until its shape is changed", wait)
    }

    fn busy(&self) -> CliError {
        let what = format!("the bitmap or log of {} is being changed", self.named.name);
        let error = CliError::new(Code::BitmapBusy, what).about(self.named.name);
        let why = "the previous change waits for a member to answer; it completes by itself";
        let command = format!("braid get {} {POLICY}", self.named.word);
        error.because(why).remedy(Risk::Look, "See its present state", command)
    }

    fn by_members(&self, refusal: MemberRefusal) -> CliError {
        let stop = format!("braid stop {}", self.named.word);
        match refusal {
            MemberRefusal::NoRedundancy => {
                let why = "its level has neither copies nor parity that a crash could make wrong";
                self.look(self.stays(Code::NoRedundancy).because(why))
            }
            _ if self.volume.is_read_only() => {
                let why = "it is served read-only, and this change writes to members";
                let error = self.stays(Code::ServedReadOnly).because(why);
                error.remedy(Risk::Change, "Stop it, and serve it without --read-only", stop)
            }
            _ if self.volume.journal().is_some_and(|journal| journal.has_failed) => {
                let error = self.stays(Code::ArrayFailed).because("its write journal is lost");
                error.because(AFTER_ITS_JOURNAL).remedy(Risk::Change, "Stop it", stop)
            }
            _ => {
                let why = "it takes no more writes: more is lost than its level tolerates, or it \
                           is being stopped";
                self.look(self.stays(Code::ArrayFailed).because(why))
            }
        }
    }
}
