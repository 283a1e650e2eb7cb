//! The history of an array: its last events, on disk.
//!
//! ```text
//!   <state folder>/arrays/<UUID>.events/
//!       current.jsonl      one event in each line, the newest last
//!       previous.jsonl     what was current before it was full
//! ```
//!
//! Two files of at most half the bound each: when the current one is full it takes the place of the previous one. So the
//! history has between half the bound and the bound, and never more. A line is durable when [`History::append`] returns.
//! What a crash has torn is no line and is dropped; so is whatever else does not read as an event. The folder is locked, so
//! that one process writes it; any may read it. It may be deleted at any time: numbers begin at 1 again then.
//!
//! What cannot be written, on a full disk say, is kept in memory, as much as [`UNWRITTEN_MAX`], and written before what
//! comes next.
//!
//! Invariants
//! - whatever byte a crash cut it at, the whole lines before are read, and numbers go on
//!   `[check: a_tail_torn_at_any_byte_is_dropped]`;
//! - a disk that is full at any byte tears no line of those before and after, and loses none that comes when there is room
//!   again `[check: a_disk_full_at_any_byte_loses_nothing]`;
//! - never larger than its bound `[check: it_never_outgrows_its_bound]`.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::event::Event;

/// How much a history takes on disk if nothing else is said: some thousand events.
pub const BYTES_MAX: u64 = 1 << 20;

/// The least bound: a line of the longest paths fits in half of it.
pub const BYTES_MAX_MIN: u64 = 128 << 10;

/// Events that wait for room; those that come when there are so many push out the oldest.
pub const UNWRITTEN_MAX: usize = 256;

/// What is read of a file: more is in none that a history wrote.
const READ_BYTES_MAX: u64 = 64 << 20;

/// How long the lock is waited for, and between two looks at it.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_LOOK: Duration = Duration::from_millis(10);

const CURRENT: &str = "current.jsonl";
const PREVIOUS: &str = "previous.jsonl";

/// Why a history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another process writes it.
    #[error("another process writes {}", .0.display())]
    Locked(PathBuf),
    /// The operating system refuses it.
    #[error("{}: {source}", path.display())]
    System {
        /// The folder or file.
        path: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
}

/// The folder of an array's history; `uuid` as md writes it.
#[must_use]
pub fn folder_of(state_dir: &Path, uuid: &str) -> PathBuf {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    state_dir.join("arrays").join(format!("{digits}.events"))
}

/// All histories in a state folder, by folder; none if there is no such folder.
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
/// A file that is there cannot be read.
pub fn read(folder: &Path) -> io::Result<Vec<Event>> {
    // In this order: when the current file takes the place of the previous one between the two, it is read twice, and
    // nothing between is missed.
    let files = [CURRENT, PREVIOUS].map(|name| bytes_of(&folder.join(name)));
    let mut events = BTreeMap::new();
    for bytes in files {
        events.extend(parse(&bytes?).events.into_iter().map(|event| (event.id, event)));
    }
    Ok(events.into_values().collect())
}

/// What a file holds; nothing if it is not there. No more than a history may have.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => drop(file?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?),
    }
    Ok(bytes)
}

/// What stands in a file.
struct Parsed {
    events: Vec<Event>,
    /// Bytes up to the end of the last whole line.
    whole_bytes: u64,
}

/// Lines that are events, and how much of the file is whole lines.
fn parse(bytes: &[u8]) -> Parsed {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let lines = bytes[..end].split(|byte| *byte == b'\n');
    let events = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Parsed { events, whole_bytes: end as u64 }
}

/// The two files, as far as a history writes them.
trait Store {
    /// Appends to the current file, durably. After an error some of it may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the current file to `length_bytes`.
    fn cut(&mut self, length_bytes: u64) -> io::Result<()>;
    /// Has the current file take the place of the previous one, and begins an empty one.
    fn turn(&mut self) -> io::Result<()>;
}

/// The files of a folder; it is locked.
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

/// The history of an array that is being served.
pub struct History {
    log: Log<Folder>,
    path: PathBuf,
    /// The number of the next event.
    next_id: u64,
    last: Option<Event>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("History").field("path", &self.path).finish_non_exhaustive()
    }
}

impl History {
    /// Opens the history in `folder`, which is made if it is not there (its parent must be there), and locks it. What a crash
    /// has torn is cut off. It will take at most `bytes_max` on disk.
    ///
    /// # Errors
    /// Another process has it, or the system refuses it.
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
        // A tail that cannot be cut off now will be before anything is appended.
        log.is_torn = true;
        Ok(Self {
            log,
            path: folder.to_owned(),
            next_id: last.as_ref().map_or(1, |event| event.id.saturating_add(1)),
            last,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last event of the runs before.
    #[must_use]
    pub fn last(&self) -> Option<&Event> {
        self.last.as_ref()
    }

    /// The number that the next event has: the least that none had.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Writes an event, durably, behind those that could not be written before.
    ///
    /// # Errors
    /// It cannot be written; it is kept, and tried again with the next, or by [`Self::write_again`].
    pub fn append(&mut self, event: &Event) -> Result<(), HistoryError> {
        self.log.unwritten.push_back(line_of(event));
        self.write_again()
    }

    /// Writes what could not be written before.
    ///
    /// # Errors
    /// It still cannot be.
    pub fn write_again(&mut self) -> Result<(), HistoryError> {
        let system = |source| HistoryError::System { path: self.path.clone(), source };
        self.log.write().map_err(system)
    }

    /// Events that wait for room on the disk.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.log.unwritten.len()
    }

    /// Events that were pushed out by later ones before there was room: in no history.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.log.lost
    }
}

/// Takes the lock. It may be held for a moment by what a process that has just ended was starting.
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

/// Lines, a bound, and a store that may fail at any byte.
struct Log<S> {
    store: S,
    /// Bytes of whole lines in the current file.
    length_bytes: u64,
    /// The most that a file may have.
    file_bytes_max: u64,
    /// There may be something behind the whole lines.
    is_torn: bool,
    unwritten: VecDeque<Vec<u8>>,
    lost: u64,
}

impl<S: Store> Log<S> {
    fn new(store: S, length_bytes: u64, file_bytes_max: u64) -> Self {
        let unwritten = VecDeque::new();
        Self { store, length_bytes, file_bytes_max, is_torn: false, unwritten, lost: 0 }
    }

    /// Writes what waits, as far as it can be.
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
