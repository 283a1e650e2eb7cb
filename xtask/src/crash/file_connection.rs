//! The array as a file: requests of the crash client as system calls, many at a time.
//!
//! `client` uses this file as it uses an NBD connection: requests have cookies, and answers come in
//! any order. A thread for each request in flight blocks in its system call. When the server dies,
//! the kernel ends all calls with an error, which counts as the end of the connection.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use braid_nbd_client::{ClientError, Command, ErrorCode, ServerMessage};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// A request: its cookie, the command, and the bytes that it writes.
type Job = (u64, Command, Vec<u8>);
/// The answer to the request with this cookie: the offset of a read, and its bytes.
type Answer = (u64, io::Result<Option<(u64, Vec<u8>)>>);

/// The errors of system calls whose server has died.
const GONE: [Errno; 3] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::NODEV];

pub(super) struct FileConnection {
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
    size_bytes: u64,
    cookie: u64,
    /// The cookie of a read whose data was returned, and whose answer comes next.
    read: Option<u64>,
    is_gone: bool,
    patience: Duration,
}

impl FileConnection {
    pub(super) fn open(path: &Path, threads: usize, patience: Duration) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = Arc::new(file.with_context(|| path.display().to_string())?);
        let size_bytes = file.metadata()?.len();
        let ((jobs, waiting), (done, answers)) = (channel::<Job>(), channel());
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads {
            let (file, waiting, done) = (file.clone(), waiting.clone(), done.clone());
            std::thread::spawn(move || {
                // The queue is locked while a thread waits for a request, not during its call.
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok((cookie, command, payload)) = next() {
                    // The thread ends if the client no longer exists.
                    if done.send((cookie, carry_out(&file, command, &payload))).is_err() {
                        return;
                    }
                }
            });
        }
        let (cookie, read, is_gone) = (0, None, false);
        Ok(Self { jobs, answers, size_bytes, cookie, read, is_gone, patience })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn send(&mut self, command: Command, payload: &[u8]) -> Result<u64, ClientError> {
        self.cookie += 1;
        let job = (self.cookie, command, payload.to_vec());
        self.jobs.send(job).map_err(|_| ClientError::HungUp)?;
        Ok(self.cookie)
    }

    pub(super) fn hear(&mut self) -> Result<ServerMessage, ClientError> {
        if let Some(cookie) = self.read.take() {
            return Ok(ServerMessage::Answer { cookie, result: Ok(()) });
        }
        loop {
            let next = match self.is_gone {
                // Calls that ended before the server died have their answers in this queue.
                true => self.answers.try_recv().map_err(|_| ClientError::HungUp)?,
                false => {
                    let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
                    self.answers.recv_timeout(self.patience).map_err(silent)?
                }
            };
            match next {
                (cookie, Ok(None)) => return Ok(ServerMessage::Answer { cookie, result: Ok(()) }),
                (cookie, Ok(Some((offset, bytes)))) => {
                    self.read = Some(cookie);
                    return Ok(ServerMessage::Data { cookie, offset, bytes });
                }
                (_, Err(error)) if is_gone(&error) => self.is_gone = true,
                (cookie, Err(_)) => {
                    return Ok(ServerMessage::Answer { cookie, result: Err(ErrorCode::Io) });
                }
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    GONE.iter().any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

fn carry_out(file: &File, command: Command, payload: &[u8]) -> io::Result<Option<(u64, Vec<u8>)>> {
    let is_durable = match command {
        Command::Read { offset, length, .. } => {
            let mut bytes = vec![0xa5; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, offset)?;
            return Ok(Some((offset, bytes)));
        }
        Command::Write { offset, fua, .. } => {
            file.write_all_at(payload, offset)?;
            fua
        }
        Command::WriteZeroes { offset, length, fua, may_punch, .. } => {
            let flags = match may_punch {
                true => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                false => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            };
            fallocate(file, flags, offset, length)?;
            fua
        }
        _ => true,
    };
    if is_durable {
        file.sync_data()?;
    }
    Ok(None)
}
