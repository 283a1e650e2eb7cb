//! The history of an array: its last events, on disk.
//!
//! ```text
//!   <state folder>/arrays/<UUID>.events/
//!       current.jsonl      one event in each line, the newest last
//!       previous.jsonl     the former current file, full
//! ```
//!
//! Each file is limited to half of the history's bound: when the current file is full, it replaces
//! the previous file. So a history that has reached half its bound stays between half the bound and
//! the bound. A line is durable when [`History::append`] returns. Torn lines, and other lines that
//! are no events, are dropped. A lock on the folder allows one writer; any process may read. The
//! folder may be deleted at any time: event numbers then begin at 1 again.
//!
//! Events that cannot be written, say on a full disk, stay in memory, up to [`UNWRITTEN_MAX`], and
//! are written before later ones.
//!
//! Invariants
//! - after a crash at any byte, the whole lines before that byte are read, and event numbers
//!   continue `[check: a_tail_torn_at_any_byte_is_dropped]`;
//! - a disk that becomes full at any byte tears no line, and loses no event until there is room
//!   again `[check: a_disk_full_at_any_byte_loses_nothing]`;
//! - the history never exceeds its bound `[check: it_never_outgrows_its_bound]`.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::event::Event;

/// The default bound of a history: some thousand events.
pub const BYTES_MAX: u64 = 1 << 20;

/// The smallest allowed bound: a line with the longest paths fits in half of this bound.
pub const BYTES_MAX_MIN: u64 = 128 << 10;

/// Most events that wait for room on the disk; a further event replaces the oldest.
pub const UNWRITTEN_MAX: usize = 256;

/// Most bytes to read of a history's file: no history writes more.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Longest wait for the lock of a history.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// Interval between tries to take the lock of a history.
const LOCK_LOOK: Duration = Duration::from_millis(10);

const CURRENT: &str = "current.jsonl";
const PREVIOUS: &str = "previous.jsonl";

/// Why a history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another process writes to the history.
    #[error("another process writes {}", .0.display())]
    Locked(PathBuf),
    /// An error of the operating system.
    #[error("{}: {source}", path.display())]
    System {
        /// The folder or file at which the error occurred.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
}

/// The folder of an array's history; `uuid` is in md's form.
#[must_use]
pub fn folder_of(state_dir: &Path, uuid: &str) -> PathBuf {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    state_dir.join("arrays").join(format!("{digits}.events"))
}

/// Folders of all histories in a state folder; empty if there are none.
///
/// # Errors
/// The folder cannot be read.
pub fn folders(state_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(state_dir.join("arrays")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "events"));
    paths.sort();
    Ok(paths)
}

/// The events of a history, the oldest first, without locking or changing it.
///
/// # Errors
/// An existing file cannot be read.
pub fn read(folder: &Path) -> io::Result<Vec<Event>> {
    // Reads the current file first: if it becomes the previous file in between, no event is missed.
    let files = [CURRENT, PREVIOUS].map(|name| bytes_of(&folder.join(name)));
    let mut events = BTreeMap::new();
    for bytes in files {
        events.extend(parse(&bytes?).events.into_iter().map(|event| (event.id, event)));
    }
    Ok(events.into_values().collect())
}

/// The bytes of a file, up to a history's limit; empty if the file does not exist.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => drop(file?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?),
    }
    Ok(bytes)
}

struct Parsed {
    events: Vec<Event>,
    /// Bytes up to the end of the last whole line.
    whole_bytes: u64,
}

/// Parses the content of a file into events, and the length of its whole lines.
fn parse(bytes: &[u8]) -> Parsed {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let lines = bytes[..end].split(|byte| *byte == b'\n');
    let events = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Parsed { events, whole_bytes: end as u64 }
}

/// The two files of a history, for writing.
trait Store {
    /// Appends to the current file, durably. After an error, the file may have a part of `bytes`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the current file to `length_bytes`.
    fn cut(&mut self, length_bytes: u64) -> io::Result<()>;
    /// Makes the current file the previous one, and begins an empty current file.
    fn turn(&mut self) -> io::Result<()>;
}

/// The history's files in a folder that this process has locked.
struct Folder {
    path: PathBuf,
    folder: File,
    current: File,
}

fn open_current(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path.join(CURRENT))
}

impl Store for Folder {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.current.write_all(bytes)?;
        self.current.sync_data()
    }

    fn cut(&mut self, length_bytes: u64) -> io::Result<()> {
        self.current.set_len(length_bytes)?;
        self.current.sync_data()
    }

    fn turn(&mut self) -> io::Result<()> {
        fs::rename(self.path.join(CURRENT), self.path.join(PREVIOUS))?;
        self.current = open_current(&self.path)?;
        self.folder.sync_all()
    }
}

/// The history of a served array.
pub struct History {
    log: Log<Folder>,
    path: PathBuf,
    next_id: u64,
    last: Option<Event>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("History").field("path", &self.path).finish_non_exhaustive()
    }
}

impl History {
    /// Opens and locks the history in `folder`. Creates the folder if its parent exists, and cuts
    /// off a torn tail. The history takes at most `bytes_max` bytes on disk.
    ///
    /// # Errors
    /// Another process has the lock, or the operating system refuses.
    ///
    /// # Panics
    /// If `bytes_max` is less than [`BYTES_MAX_MIN`].
    pub fn open(folder: &Path, bytes_max: u64) -> Result<Self, HistoryError> {
        assert!(bytes_max >= BYTES_MAX_MIN, "half of it holds the longest line");
        let system = |source| HistoryError::System { path: folder.to_owned(), source };
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(system(error));
            }
            _ => {}
        }
        let lock = File::open(folder).map_err(system)?;
        take_lock(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => HistoryError::Locked(folder.to_owned()),
            TryLockError::Error(source) => system(source),
        })?;
        let previous = parse(&bytes_of(&folder.join(PREVIOUS)).map_err(system)?);
        let current = parse(&bytes_of(&folder.join(CURRENT)).map_err(system)?);
        let files = Folder {
            path: folder.to_owned(),
            current: open_current(folder).map_err(system)?,
            folder: lock,
        };
        files.folder.sync_all().map_err(system)?;
        let events = previous.events.into_iter().chain(current.events);
        let last = events.max_by_key(|event| event.id);
        let mut log = Log::new(files, current.whole_bytes, bytes_max / 2);
        // If the torn tail cannot be cut off now, the next append cuts it off first.
        log.is_torn = true;
        Ok(Self {
            log,
            path: folder.to_owned(),
            next_id: last.as_ref().map_or(1, |event| event.id.saturating_add(1)),
            last,
        })
    }

    /// The folder of the history.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last event of earlier runs.
    #[must_use]
    pub fn last(&self) -> Option<&Event> {
        self.last.as_ref()
    }

    /// The number of the next event, which is the lowest unused number.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Writes an event durably, after the events that are still unwritten.
    ///
    /// # Errors
    /// The event cannot be written; it stays in memory for the next append, or for
    /// [`Self::write_again`].
    pub fn append(&mut self, event: &Event) -> Result<(), HistoryError> {
        self.log.unwritten.push_back(line_of(event));
        self.write_again()
    }

    /// Writes the events that are still unwritten.
    ///
    /// # Errors
    /// The events still cannot be written.
    pub fn write_again(&mut self) -> Result<(), HistoryError> {
        let system = |source| HistoryError::System { path: self.path.clone(), source };
        self.log.write().map_err(system)
    }

    /// Number of events that wait for room on the disk.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.log.unwritten.len()
    }

    /// Number of unwritten events that later events replaced.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.log.lost
    }
}

/// Takes the lock of a history. A child of a process that has just ended may hold the lock for a
/// moment, so the function tries several times.
fn take_lock(folder: &File) -> Result<(), TryLockError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(LOCK_LOOK)
            }
            taken => return taken,
        }
    }
}

fn line_of(event: &Event) -> Vec<u8> {
    let mut line = event.to_json().into_bytes();
    line.push(b'\n');
    line
}

/// The lines of a history, within its bound, on a store that may fail at any byte.
struct Log<S> {
    store: S,
    length_bytes: u64,
    /// The largest allowed length of one file, in bytes.
    file_bytes_max: u64,
    /// Whether a torn tail may follow the whole lines.
    is_torn: bool,
    unwritten: VecDeque<Vec<u8>>,
    lost: u64,
}

impl<S: Store> Log<S> {
    fn new(store: S, length_bytes: u64, file_bytes_max: u64) -> Self {
        let unwritten = VecDeque::new();
        Self { store, length_bytes, file_bytes_max, is_torn: false, unwritten, lost: 0 }
    }

    /// Writes as many of the waiting events as possible.
    fn write(&mut self) -> io::Result<()> {
        let result = self.write_all();
        while self.unwritten.len() > UNWRITTEN_MAX {
            self.unwritten.pop_front();
            self.lost += 1;
        }
        result
    }

    fn write_all(&mut self) -> io::Result<()> {
        while let Some(line) = self.unwritten.front() {
            let line_bytes = line.len() as u64;
            if self.is_torn {
                self.store.cut(self.length_bytes)?;
                self.is_torn = false;
            }
            if line_bytes > self.file_bytes_max {
                self.unwritten.pop_front();
                self.lost += 1;
                continue;
            }
            if self.length_bytes + line_bytes > self.file_bytes_max {
                self.store.turn()?;
                self.length_bytes = 0;
            }
            self.is_torn = true;
            self.store.append(line)?;
            self.is_torn = false;
            self.length_bytes += line_bytes;
            self.unwritten.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
