//! The meaning of each request for the one file: an answer at once, or an operation for the array.
//!
//! The file's size is the array's. The kernel asks for the size again after a second
//! ([`ATTRIBUTES_VALID_S`]). Only the file's times can be set: its mode and owner are fixed at the
//! mount. An INTERRUPT stops no request: a request that this process has read has begun already,
//! and the kernel itself cancels all other requests.

use std::time::{Duration, SystemTime};

use crate::errno::Errno;
use crate::init::{SessionParameters, Wishes};
use crate::limits::{ATTRIBUTES_VALID_S, PAGE_BYTES};
use crate::reply::Reply;
use crate::request::{Allocation, Head, Request, SetAttributes, TimeWish, Whence};
use crate::wire::{Attr, AttrOut, LseekOut, NODE_ROOT, OpenOut, StatfsOut, open};

/// The file's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owning user's ID.
    pub uid: u32,
    /// The owning group's ID.
    pub gid: u32,
}

/// The next step for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are what the variant's line says
pub enum Step {
    /// Send this answer.
    Answer(Reply),
    /// Send this answer to INIT; these parameters are in effect from now on.
    Begin(Reply, SessionParameters),
    /// Read the range from the array, and answer with its bytes; the range lies within the file.
    Read { offset: u64, length: u32 },
    /// Write the payload of the message to the array; the range lies within the file.
    Write { offset: u64, length: u32, durable: bool },
    /// Make all acknowledged writes durable.
    Flush,
    /// Make a range within the file read as zeroes; with `may_punch` it need not stay allocated.
    Zero { offset: u64, length: u64, may_punch: bool },
    /// Send no answer to the request.
    Silent,
}

/// The only file of the file system, which stands for the array.
#[derive(Clone, Copy, Debug)]
pub struct File {
    size_bytes: u64,
    read_only: bool,
    owner: Owner,
    accessed: SystemTime,
    modified: SystemTime,
    changed: SystemTime,
    request_bytes_max: u32,
}

const REGULAR: u32 = 0o100_000;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;

impl File {
    /// Makes a file of this size, with the creation time `now`.
    #[must_use]
    pub fn new(size_bytes: u64, read_only: bool, owner: Owner, now: SystemTime) -> Self {
        let (accessed, modified, changed) = (now, now, now);
        let request_bytes_max = crate::limits::REQUEST_BYTES_MAX;
        Self { size_bytes, read_only, owner, accessed, modified, changed, request_bytes_max }
    }

    /// Sets the file's size to the array's size, which a change of shape makes larger or smaller.
    pub fn set_size(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }

    /// The file's permissions and file type.
    #[must_use]
    pub fn mode(&self) -> u32 {
        REGULAR | if self.read_only { 0o400 } else { 0o600 }
    }

    /// Decides the next step for a request.
    #[must_use]
    pub fn decide(
        &mut self,
        head: &Head,
        request: &Request,
        (wishes, now): (Wishes, SystemTime),
    ) -> Step {
        let unique = head.unique;
        let is_about_it = head.node == NODE_ROOT
            || matches!(
                request,
                Request::Init(_) | Request::Interrupt | Request::Forget | Request::Destroy
            );
        if !is_about_it {
            return Step::Answer(Reply::failed(unique, Errno::Stale));
        }
        let decided = match *request {
            Request::Init(kernel) => {
                if !kernel.is_spoken() {
                    return Step::Answer(Reply::failed(unique, Errno::Protocol));
                }
                let (agreed, out) = kernel.agree(wishes);
                self.request_bytes_max = agreed.request_bytes_max;
                return Step::Begin(Reply::with(unique, &out), agreed);
            }
            Request::GetAttributes => Ok(Step::Answer(self.attributes(unique))),
            Request::SetAttributes(wish) => {
                self.set(wish, now).map(|()| Step::Answer(self.attributes(unique)))
            }
            Request::Open => Ok(Step::Answer(Reply::with(unique, &opened()))),
            Request::Read { offset, length } => self.read(unique, offset, length),
            Request::Write { offset, length, payload_bytes, durable } => {
                self.write((offset, length), payload_bytes, (durable, now))
            }
            Request::Sync => Ok(if self.read_only { done(unique) } else { Step::Flush }),
            Request::Fallocate { offset, length, mode } => {
                self.allocate(unique, (offset, length, mode), now)
            }
            Request::Seek { offset, whence } => self.seek(unique, offset, whence),
            Request::FileSystem => Ok(Step::Answer(Reply::with(unique, &self.file_system()))),
            Request::Access { mask } => self.access(mask).map(|()| done(unique)),
            Request::Release | Request::Flush | Request::Destroy => Ok(done(unique)),
            Request::Interrupt | Request::Forget => Ok(Step::Silent),
            Request::Other => Err(Errno::NotImplemented),
        };
        decided.unwrap_or_else(|errno| Step::Answer(Reply::failed(unique, errno)))
    }

    fn read(&self, unique: u64, offset: u64, length: u32) -> Result<Step, Errno> {
        if length > self.request_bytes_max {
            return Err(Errno::Invalid);
        }
        let left = self.size_bytes.saturating_sub(offset);
        let length = length.min(u32::try_from(left).unwrap_or(u32::MAX));
        let nothing = Step::Answer(Reply::read(unique, 0));
        Ok(if length == 0 { nothing } else { Step::Read { offset, length } })
    }

    fn write(
        &mut self,
        (offset, length): (u64, u32),
        payload_bytes: usize,
        (durable, now): (bool, SystemTime),
    ) -> Result<Step, Errno> {
        self.writable()?;
        if length > self.request_bytes_max || usize::try_from(length) != Ok(payload_bytes) {
            return Err(Errno::Invalid);
        }
        // Refuses the whole write: programs that do not check the returned length would not notice
        // a short write.
        if offset.checked_add(length.into()).is_none_or(|end| end > self.size_bytes) {
            return Err(Errno::NoSpace);
        }
        (self.modified, self.changed) = (now, now);
        Ok(Step::Write { offset, length, durable })
    }

    fn allocate(
        &mut self,
        unique: u64,
        (offset, length, mode): (u64, u64, u32),
        now: SystemTime,
    ) -> Result<Step, Errno> {
        self.writable()?;
        let what = Allocation::of(mode).ok_or(Errno::NotSupported)?;
        let end = offset.checked_add(length).ok_or(Errno::FileTooBig)?;
        let grows = match what {
            Allocation::Punch => false,
            Allocation::Keep { keeps_size } | Allocation::Zero { keeps_size } => !keeps_size,
        };
        if grows && end > self.size_bytes {
            return Err(Errno::FileTooBig);
        }
        let length = end.min(self.size_bytes).saturating_sub(offset);
        if length == 0 || matches!(what, Allocation::Keep { .. }) {
            return Ok(done(unique));
        }
        (self.modified, self.changed) = (now, now);
        Ok(Step::Zero { offset, length, may_punch: what == Allocation::Punch })
    }

    /// Answers lseek(2) for data and holes: the whole file is data, and the only hole begins at its
    /// end.
    fn seek(&self, unique: u64, offset: u64, whence: Whence) -> Result<Step, Errno> {
        if offset >= self.size_bytes {
            return Err(Errno::Nxio);
        }
        let offset = match whence {
            Whence::Data => offset,
            Whence::Hole => self.size_bytes,
        };
        Ok(Step::Answer(Reply::with(unique, &LseekOut { offset })))
    }

    fn set(&mut self, wish: SetAttributes, now: SystemTime) -> Result<(), Errno> {
        if wish.size_bytes.is_some_and(|size| size != self.size_bytes) || wish.changes_access {
            return Err(Errno::Perm);
        }
        let at = |wish| match wish {
            TimeWish::Now => now,
            TimeWish::At(time) => time,
        };
        self.accessed = wish.accessed.map_or(self.accessed, at);
        self.modified = wish.modified.map_or(self.modified, at);
        self.changed = now;
        Ok(())
    }

    fn access(&self, mask: u32) -> Result<(), Errno> {
        if mask & WRITE != 0 {
            self.writable()?;
        }
        if mask & EXECUTE != 0 { Err(Errno::Access) } else { Ok(()) }
    }

    fn writable(&self) -> Result<(), Errno> {
        if self.read_only { Err(Errno::ReadOnly) } else { Ok(()) }
    }

    fn attributes(&self, unique: u64) -> Reply {
        let (atime, atimensec) = seconds(self.accessed);
        let (mtime, mtimensec) = seconds(self.modified);
        let (ctime, ctimensec) = seconds(self.changed);
        let attr = Attr {
            ino: NODE_ROOT,
            size: self.size_bytes,
            blocks: self.size_bytes.div_ceil(512),
            atime,
            mtime,
            ctime,
            atimensec,
            mtimensec,
            ctimensec,
            mode: self.mode(),
            nlink: 1,
            uid: self.owner.uid,
            gid: self.owner.gid,
            blksize: PAGE_BYTES,
            ..Attr::default()
        };
        Reply::with(unique, &AttrOut { attr_valid: ATTRIBUTES_VALID_S, attr, ..AttrOut::default() })
    }

    fn file_system(&self) -> StatfsOut {
        StatfsOut {
            blocks: self.size_bytes.div_ceil(PAGE_BYTES.into()),
            files: 1,
            bsize: PAGE_BYTES,
            frsize: PAGE_BYTES,
            namelen: 255,
            ..StatfsOut::default()
        }
    }
}

fn done(unique: u64) -> Step {
    Step::Answer(Reply::done(unique))
}

/// The flags of an open file. They bypass the kernel's page cache, since clients of other doors may
/// change the same bytes. They allow concurrent writes, since the array orders writes that overlap.
fn opened() -> OpenOut {
    let open_flags = open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES;
    OpenOut { open_flags, ..OpenOut::default() }
}

/// A time as seconds since 1970, which may be negative, and nanoseconds.
fn seconds(time: SystemTime) -> (u64, u32) {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (since.as_secs(), since.subsec_nanos()),
        Err(before) => {
            let before: Duration = before.duration();
            let whole = before.as_secs().saturating_add(u64::from(before.subsec_nanos() > 0));
            let rest = Duration::from_secs(whole).saturating_sub(before);
            (whole.cast_signed().saturating_neg().cast_unsigned(), rest.subsec_nanos())
        }
    }
}
