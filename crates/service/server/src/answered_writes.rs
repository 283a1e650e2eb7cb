//! Acknowledged writes that outlive the server: their file in the runtime folder, and how the next
//! server replays it.
//!
//! ```text
//!   UUID.answered       of the last server: read, written to the array, then replaced by the next
//!   UUID.answered.new   of this server, until that is done
//!   UUID.answered.lost  of a killed server; another server wrote to the array since
//! ```
//!
//! The runtime folder must be in memory (tmpfs): a file there outlives the process, and a power cut
//! takes it with every other unflushed write. On other file systems the server makes no file. It
//! then acknowledges a write only when the members have it, unless the operator sets `--cache
//! writeback`.

use std::fs::{File, OpenOptions, rename};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_geometry::{Geometry, SECTOR_BYTES};
use braid_member::lock_exclusively;
use braid_ring::{Payload, Room};
use braid_runtime::{
    Cache, CacheFile, CacheFileError, CacheMode, ClientRequest, FoundContent, FoundWrite,
    FoundWrites, Options, Volume,
};

use super::address::own_folder;
use super::report::Reporter;
use braid_console::error::code::Code;
use braid_console::error::system::{is_shortage_of, system};
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::ready::Ready;
use braid_discovery::running;

/// Largest capacity of a file of acknowledged writes, in bytes of acknowledged writes.
const BYTES_MAX: u64 = 32 << 20;
/// A file of acknowledged writes takes at most one part in this many of the memory that is left.
const MEMORY_PART: u64 = 8;
const BYTES_MIN: u64 = 1 << 20;

/// This server's file, and the writes that the last server left.
pub(super) struct AnsweredWrites {
    path: PathBuf,
    /// This server's file and its path. Until the members have the writes that the last server
    /// left, the path is that of a new file.
    file: Option<(Arc<CacheFile>, PathBuf)>,
    found: Option<(File, FoundWrites)>,
    /// The cache mode to use once the members have the writes that the last server left.
    cache: Cache,
}

impl AnsweredWrites {
    /// Looks for the last server's writes to an array that is about to be opened, and makes a file
    /// for this server. Sets in `options` how the array begins. The members are locked, so no other
    /// server uses this array's files of acknowledged writes.
    ///
    /// Unless the operator `names_mode`, the array acknowledges writes early only if nothing but a
    /// power cut loses the file.
    ///
    /// # Errors
    /// The last server's file cannot be read. Or no new file can be made while the last server's
    /// writes are written.
    pub(super) fn prepare(
        ready: &Ready,
        (options, names_mode): (&mut Options, bool),
        reporter: &Reporter,
    ) -> Result<Option<Self>, CliError> {
        if !names_mode && !running::outlives_server() {
            options.cache.mode = CacheMode::WriteThrough;
        }
        let array = &ready.array;
        if !matches!(array.geometry, Geometry::Stripe(_)) {
            return Ok(None);
        }
        let uuid = array.newest.array.uuid;
        let name = format!("{}.answered", reporter.uuid().replace(':', ""));
        let path = match own_folder() {
            Ok(folder) => folder.join(name),
            Err(why) => {
                let path = running::folder().join(name);
                go_without((&mut *options, names_mode), &path, &why.to_string(), reporter);
                return Ok(None);
            }
        };
        let newest = &array.newest.state;
        let found = match find(&path, uuid).map_err(|why| unread(&path, &why))? {
            OldFile::Busy => {
                let why = "a server of another copy of this array has it";
                go_without((options, names_mode), &path, why, reporter);
                return Ok(None);
            }
            OldFile::Nothing => None,
            OldFile::Writes(_, found) if !found.stamp.is_of(newest.events, newest.update_time) => {
                let kept = path.with_extension("answered.lost");
                let kept = rename(&path, &kept).map_or(path.clone(), |()| kept);
                reporter.answered_writes_lost(bytes(&found.writes), &kept);
                None
            }
            OldFile::Writes(_, found) if options.read_only => {
                reporter.answered_writes_wait(bytes(&found.writes), &path);
                return Ok(None);
            }
            OldFile::Writes(file, found) => Some((file, found)),
        };
        if options.read_only {
            return Ok(None);
        }
        let file = make(&path, (uuid, options.shards), &options.cache);
        let file = file.and_then(|file| match options.cache.mode {
            CacheMode::WriteBack => file.reserve().map(|()| file),
            CacheMode::WriteThrough => Ok(file),
        });
        let file = match file {
            Ok(file) => Some((Arc::new(file), new_path(&path))),
            // Without a new file, a kill during these writes would lose them. The next server would
            // find superblocks other than those that the old file names.
            Err(why) if found.is_some() => return Err(not_written(&path, &why.to_string())),
            Err(why) => {
                go_without((&mut *options, names_mode), &path, &why.to_string(), reporter);
                None
            }
        };
        let cache = options.cache;
        options.cache_file = file.as_ref().map(|(file, _)| Arc::clone(file));
        if let (Some((found, writes)), Some((file, _))) = (&found, &file) {
            let found =
                found.try_clone().map_err(|error| not_written(&path, &error.to_string()))?;
            file.follow(found, &writes.stamp);
            // Until the members have all writes that the last server left, acknowledge no write
            // early. A third server would not find a write that only this server's file has.
            options.cache.mode = CacheMode::WriteThrough;
        }
        Ok(Some(Self { path, file, found, cache }))
    }

    /// Writes to the array, before any client connects, the writes that the last server left. Then
    /// this server's file replaces the old one.
    ///
    /// # Errors
    /// The array rejects a write. The old file stays, and the next start tries again.
    pub(super) fn write_back(
        &mut self,
        volume: &Arc<Volume>,
        reporter: &Reporter,
    ) -> Result<(), CliError> {
        if let Some((file, found)) = self.found.take() {
            for write in &found.writes {
                let result = volume.call(operation(write)).result;
                result.map_err(|error| not_written(&self.path, &error.to_string()))?;
            }
            reporter.answered_writes_written(bytes(&found.writes));
            drop(file);
        }
        if let Some((file, place)) = &mut self.file {
            let renamed = rename(&*place, &self.path);
            renamed.map_err(|error| not_written(&self.path, &error.to_string()))?;
            place.clone_from(&self.path);
            file.unfollow();
        }
        if volume.cache().mode != self.cache.mode {
            volume.tune(self.cache);
        }
        Ok(())
    }
}

impl Drop for AnsweredWrites {
    /// Removes the file, which frees its memory. If the members lack acknowledged writes, the file
    /// stays for the next server.
    fn drop(&mut self) {
        if let Some((file, place)) = &self.file
            && file.is_empty()
        {
            // If the removal fails, an empty file stays, in which the next server finds no writes.
            let _ = std::fs::remove_file(place);
        }
    }
}

/// Runs without a file of acknowledged writes. Unless the operator set the cache mode, the server
/// then acknowledges a write only when the members have it.
fn go_without(
    (options, names_mode): (&mut Options, bool),
    path: &Path,
    why: &str,
    reporter: &Reporter,
) {
    if !names_mode {
        options.cache.mode = CacheMode::WriteThrough;
    } else if options.cache.mode == CacheMode::WriteBack && !options.read_only {
        reporter.answered_writes_end(path, why);
    }
}

enum OldFile {
    /// The file does not exist or is empty.
    Nothing,
    /// The last server still runs, over other members that claim the same array UUID.
    Busy,
    Writes(File, FoundWrites),
}

fn find(path: &Path, uuid: [u8; 16]) -> Result<OldFile, CacheFileError> {
    let file = match no_link().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OldFile::Nothing),
        file => file?,
    };
    if !is_ours(&file) {
        return Ok(OldFile::Busy);
    }
    let found = FoundWrites::read(&file, uuid)?;
    Ok(if found.writes.is_empty() { OldFile::Nothing } else { OldFile::Writes(file, found) })
}

fn no_link() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).custom_flags(flags);
    options
}

/// Locks the file until this process ends. False if another process holds the lock.
fn is_ours(file: &File) -> bool {
    lock_exclusively(file) == Ok(true)
}

fn new_path(path: &Path) -> PathBuf {
    path.with_extension("answered.new")
}

fn make(path: &Path, (uuid, shards): ([u8; 16], u16), cache: &Cache) -> io::Result<CacheFile> {
    let new = new_path(path);
    let file = no_link().create(true).mode(0o600).open(&new)?;
    if !is_ours(&file) {
        return Err(io::Error::other("another server has it"));
    }
    let made = (|| {
        let system = rustix::fs::fstatfs(&file)?;
        if system.f_type != TMPFS_MAGIC {
            return Err(io::Error::other("the folder is not in memory (tmpfs)"));
        }
        let free = system.f_bavail.saturating_mul(u64::try_from(system.f_bsize).unwrap_or(0));
        let left = Room::now().least().0.min(free) / MEMORY_PART;
        let bytes = cache.dirty_bytes_max.min(BYTES_MAX).min(left);
        if bytes < BYTES_MIN.min(cache.dirty_bytes_max) {
            return Err(io::Error::other("there is too little memory"));
        }
        CacheFile::create(file, uuid, shards, bytes)
    })();
    made.inspect_err(|_| _ = std::fs::remove_file(&new))
}

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

fn operation(write: &FoundWrite) -> ClientRequest {
    let offset = write.start.0 * SECTOR_BYTES;
    match &write.content {
        FoundContent::Bytes(bytes) => {
            let mut payload = Payload::zeroed(bytes.len());
            payload.copy_from_slice(bytes);
            ClientRequest::Write { offset, payload, durable: false }
        }
        FoundContent::Zeroes(may_punch) => {
            let length = u64::from(write.sectors) * SECTOR_BYTES;
            let may_punch = *may_punch;
            ClientRequest::WriteZeroes { offset, length, may_punch, fast: false, durable: false }
        }
    }
}

fn bytes(writes: &[FoundWrite]) -> u64 {
    writes.iter().map(|write| u64::from(write.sectors) * SECTOR_BYTES).sum()
}

fn unread(path: &Path, why: &CacheFileError) -> CliError {
    if let CacheFileError::Io(error) = why
        && is_shortage_of(error)
    {
        return system("acknowledged writes of the previous server cannot be searched for", error);
    }
    kept(path, format!("{} cannot be read", path.display()))
        .because(why.to_string())
        .because("a killed server kept acknowledged writes in it")
}

fn not_written(path: &Path, why: &str) -> CliError {
    let what = "acknowledged writes of the previous server could not be written to the array";
    kept(path, what).because(why).because(format!("they are kept in {}", path.display())).remedy(
        Risk::Look,
        "See which arrays exist",
        "braid scan",
    )
}

fn kept(path: &Path, what: impl Into<String>) -> CliError {
    let remove = format!("rm {}", shell_word(&path.display().to_string()));
    CliError::new(Code::AnsweredWritesKept, what).remedy(
        Risk::Destroy,
        "Discard the acknowledged writes in this file",
        remove,
    )
}
