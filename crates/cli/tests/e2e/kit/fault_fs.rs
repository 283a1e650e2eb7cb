//! A file system that holds answers back until the test releases them, or fails requests.
//!
//! The file system passes a folder's files through by FUSE. The kernel waits for its answers as for
//! any FUSE: a few background reads at once, all others queued, and no signal frees a waiting
//! thread.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite,
    Request, WriteFlags,
};
use tempfile::TempDir;

/// The kernel's default limit for background requests.
const BACKGROUND_MAX: u16 = 12;

/// The kernel caches no attributes.
const TTL: Duration = Duration::ZERO;

const ROOT: u64 = 1;

/// Requests for a file that hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    Reads,
    Writes,
    /// Reads and writes of the file hang.
    Both,
    /// Reads, writes, and requests about the file hang.
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOp {
    Read,
    Write,
    Flush,
    Look,
}

/// Requests for a file that fail, and their error.
#[derive(Clone, Debug)]
pub(crate) struct Fail {
    pub(crate) file_op: FileOp,
    /// A range of the file; a flush covers all of it.
    pub(crate) bytes: Range<u64>,
    pub(crate) errno: i32,
}

impl Hang {
    fn holds(self, file_op: FileOp) -> bool {
        match self {
            Self::Reads => file_op == FileOp::Read,
            Self::Writes => matches!(file_op, FileOp::Write | FileOp::Flush),
            Self::Both => file_op != FileOp::Look,
            Self::Everything => true,
        }
    }
}

type Answer = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// The set hangs, by the file's inode.
    hangs: BTreeMap<u64, Hang>,
    held: Vec<Answer>,
    /// The set faults, by the file's inode.
    fails: BTreeMap<u64, Fail>,
    failed: Vec<Range<u64>>,
}

/// The mounted folder, unmounted on drop.
pub(crate) struct FaultFs {
    folder: TempDir,
    names: Vec<String>,
    state: Arc<Mutex<State>>,
    session: Option<BackgroundSession>,
}

/// Releases all held answers on drop, so that a failed test leaves no unkillable processes behind.
pub(crate) struct LetGo(Arc<Mutex<State>>);

impl Drop for LetGo {
    fn drop(&mut self) {
        let_go(&self.0);
    }
}

fn let_go(state: &Mutex<State>) {
    let held = {
        let mut state = state.lock().expect("no panic under this lock");
        state.hangs.clear();
        state.fails.clear();
        std::mem::take(&mut state.held)
    };
    held.into_iter().for_each(|answer| answer());
}

impl FaultFs {
    /// Passes these files through, by name, in one folder; `None` if the test may not mount.
    pub(crate) fn over(files: &[PathBuf]) -> Option<Self> {
        let name =
            |path: &PathBuf| path.file_name().expect("a file").to_str().expect("text").into();
        let names: Vec<String> = files.iter().map(name).collect();
        let open = |path: &PathBuf| File::options().read(true).write(true).open(path);
        let files = files.iter().map(open).collect::<Result<Vec<_>, _>>().expect("files");
        let folder = tempfile::Builder::new().prefix("braid-hang-").tempdir().expect("a folder");
        let state = Arc::<Mutex<State>>::default();
        let system = PassThrough { names: names.clone(), files, state: Arc::clone(&state) };
        let session = fuser::spawn_mount(system, folder.path(), &fuser::Config::default()).ok()?;
        Some(Self { folder, names, state, session: Some(session) })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.names.iter().map(|name| self.path().join(name)).collect()
    }

    /// Holds back answers for this file from now on.
    pub(crate) fn hang(&self, file: usize, hang: Hang) {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.hangs.insert(inode(file), hang);
    }

    /// Fails requests for this file from now on.
    pub(crate) fn fail(&self, file: usize, fail: Fail) {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.fails.insert(inode(file), fail);
    }

    pub(crate) fn failed(&self) -> Vec<Range<u64>> {
        self.state.lock().expect("no panic under this lock").failed.clone()
    }

    /// Number of requests without an answer yet.
    pub(crate) fn held(&self) -> usize {
        self.state.lock().expect("no panic under this lock").held.len()
    }

    /// Releases all held answers, and holds back no more; requests no longer fail.
    pub(crate) fn let_go(&self) {
        let_go(&self.state);
    }

    /// Releases all held answers, and holds back no more; requests still fail.
    pub(crate) fn let_go_of_held(&self) {
        let held = {
            let mut state = self.state.lock().expect("no panic under this lock");
            state.hangs.clear();
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|answer| answer());
    }

    pub(crate) fn let_go_at_end(&self) -> LetGo {
        LetGo(Arc::clone(&self.state))
    }
}

impl Drop for FaultFs {
    fn drop(&mut self) {
        self.let_go();
        if let Some(session) = self.session.take() {
            // A failed test may have left a program behind that uses the mount.
            let _ = session.umount_and_join();
        }
    }
}

fn inode(file: usize) -> u64 {
    file as u64 + ROOT + 1
}

struct PassThrough {
    names: Vec<String>,
    files: Vec<File>,
    state: Arc<Mutex<State>>,
}

impl PassThrough {
    fn file(&self, inode: INodeNo) -> Option<&File> {
        let index = u64::from(inode).checked_sub(ROOT + 1)?;
        self.files.get(usize::try_from(index).ok()?)
    }

    /// Sends an answer, now or when answers are released.
    fn answer(&self, inode: INodeNo, file_op: FileOp, answer: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock().expect("no panic under this lock");
        if state.hangs.get(&u64::from(inode)).is_some_and(|hang| hang.holds(file_op)) {
            return state.held.push(Box::new(answer));
        }
        drop(state);
        answer();
    }

    /// The error to answer a request with, if any.
    fn error(&self, inode: INodeNo, file_op: FileOp, bytes: Range<u64>) -> Option<Errno> {
        let mut state = self.state.lock().expect("no panic under this lock");
        let fail = state.fails.get(&u64::from(inode))?;
        let is_meant = fail.bytes.start < bytes.end && bytes.start < fail.bytes.end;
        if fail.file_op != file_op || !(is_meant || file_op == FileOp::Flush) {
            return None;
        }
        let errno = fail.errno;
        state.failed.push(bytes);
        Some(std::io::Error::from_raw_os_error(errno).into())
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let size = match u64::from(inode) {
            ROOT => 0,
            _ => self.file(inode)?.metadata().ok()?.len(),
        };
        let is_root = u64::from(inode) == ROOT;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o755 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for PassThrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        config.set_max_background(BACKGROUND_MAX).expect("a number that FUSE takes");
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let at = self.names.iter().position(|one| OsStr::new(one) == name);
        match at.and_then(|at| self.attributes(INodeNo(inode(at)))) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let Some(attributes) = self.attributes(inode) else { return reply.error(Errno::ENOENT) };
        self.answer(inode, FileOp::Look, move || reply.attr(&TTL, &attributes));
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(inode) else { return reply.error(Errno::EBADF) };
        let file = file.try_clone().expect("a descriptor");
        if let Some(error) = self.error(inode, FileOp::Read, offset..offset + u64::from(size)) {
            return reply.error(error);
        }
        self.answer(inode, FileOp::Read, move || {
            let mut bytes = vec![0; size as usize];
            match file.read_at(&mut bytes, offset) {
                Ok(count) => reply.data(&bytes[..count]),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(inode) else { return reply.error(Errno::EBADF) };
        let (file, data) = (file.try_clone().expect("a descriptor"), data.to_vec());
        if let Some(error) = self.error(inode, FileOp::Write, offset..offset + data.len() as u64) {
            return reply.error(error);
        }
        self.answer(inode, FileOp::Write, move || match file.write_all_at(&data, offset) {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("FUSE writes are short")),
            Err(error) => reply.error(error.into()),
        });
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if let Some(error) = self.error(inode, FileOp::Flush, 0..0) {
            return reply.error(error);
        }
        self.answer(inode, FileOp::Flush, move || reply.ok());
    }
}
