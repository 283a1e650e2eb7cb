//! The clients of the control socket: served side by side, each within one deadline, and left behind by a stop.
//!
//! ```text
//!   listener --accept--> a thread for each --one line, within the deadline--> Answer --> written, within what is left
//!                          many already? the one that has waited longest is cut off
//! ```
//!
//! It knows lines and nothing of what they say. A client that cannot be understood, or says nothing, is told so
//! before it is cut off. Nothing waits for a client: not another client, and not a stop, which waits a moment for
//! answers that are being made and for nothing else.
//!
//! Invariants
//! - A deadline covers the whole request, however many bytes it comes in `[check: a_byte_now_and_then_is_no_way_to_stay]`.
//! - Silent clients delay no other `[check: the_longest_silent_makes_room]`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_frontend_nbd::{BindError, Listener};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send};

/// Longest request, in bytes, its end of line not counted.
const LINE_BYTES_MAX: usize = 4096;

/// Clients at a time: more than people and their programs ask at once, and few threads.
const CLIENTS_MAX: usize = 32;

/// How long a client may take to say what it wants, and to hear the answer: both together.
const DEADLINE: Duration = Duration::from_secs(5);

/// What is left for the answer, at least: one that is read at all needs no more.
const ANSWER_TIME_MIN: Duration = Duration::from_millis(100);

/// How long a stop waits for answers that are being made.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// How long a shortage of the system is given to pass.
const PAUSE: Duration = Duration::from_millis(50);

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot start the control thread: {0}")]
    System(#[from] std::io::Error),
}

/// What a line is answered with; called by several threads at once. Makes the answer without a newline.
pub(super) trait Answer: Send + Sync {
    /// To a request.
    fn answer(&self, line: &str) -> String;
    /// To what is none.
    fn refuse(&self, why: &str) -> String;
}

/// A client that is being served.
struct Client {
    stream: Arc<UnixStream>,
    /// It has asked, and only its answer is not out yet.
    has_asked: bool,
}

struct Shared {
    ends: AtomicBool,
    /// By the order in which they came.
    clients: Mutex<BTreeMap<u64, Client>>,
    one_less: Condvar,
    answer: Box<dyn Answer>,
    deadline: Duration,
}

/// The listener; dropped, it ends and takes the socket away.
pub(super) struct Clients {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    listener: Option<JoinHandle<()>>,
}

impl Clients {
    /// Listens at `path`. A socket that no process answers at is replaced.
    pub(super) fn start(path: &Path, answer: Box<dyn Answer>) -> Result<Self, ControlError> {
        Self::start_with(path, answer, DEADLINE)
    }

    fn start_with(
        path: &Path,
        answer: Box<dyn Answer>,
        deadline: Duration,
    ) -> Result<Self, ControlError> {
        let listener = Listener::bind_unix(path)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(io::Error::from)?);
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            clients: Mutex::default(),
            one_less: Condvar::new(),
            answer,
            deadline,
        });
        let (theirs, their_wake) = (Arc::clone(&shared), Arc::clone(&wake));
        let body = move || {
            let mut number = 0;
            while !theirs.ends.load(Ordering::Acquire) {
                if let Some(client) = next_client(&listener, &their_wake) {
                    admit(&theirs, number, client);
                    number += 1;
                }
            }
        };
        let thread = std::thread::Builder::new().name("braid-control".into()).spawn(body)?;
        Ok(Self { shared, wake, listener: Some(thread) })
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        // Only a full counter could refuse this, and then the thread is awake anyway.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(listener) = self.listener.take() {
            listener.join().expect("the control thread does not panic");
        }
        let mut clients = self.shared.clients();
        // Who has not asked yet is not waited for.
        for client in clients.values().filter(|client| !client.has_asked) {
            self.shared.cut_off(client, "the array is being stopped");
        }
        clients.retain(|_, client| client.has_asked);
        let waited =
            self.shared.one_less.wait_timeout_while(clients, STOP_PATIENCE, |it| !it.is_empty());
        drop(waited);
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a client why, if it can be told at once, and ends its connection; its thread sees that.
    fn cut_off(&self, client: &Client, why: &str) {
        self.tell_at_once(&client.stream, why);
        // It may be gone already.
        let _ = client.stream.shutdown(Shutdown::Both);
    }

    fn tell_at_once(&self, stream: &UnixStream, why: &str) {
        let text = format!("{}\n", self.answer.refuse(why));
        // A client that reads nothing has room for this, or has had its chance.
        let _ = send(stream, text.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// One more, with the one that has waited longest cut off if there are too many.
    fn enter(&self, number: u64, stream: Arc<UnixStream>) {
        let mut clients = self.clients();
        if clients.len() >= CLIENTS_MAX {
            let silent = clients.iter().find(|(_, client)| !client.has_asked);
            let oldest = silent.or_else(|| clients.iter().next()).map(|(number, _)| *number);
            if let Some(client) = oldest.and_then(|oldest| clients.remove(&oldest)) {
                self.cut_off(&client, "too many clients, and this one has waited longest");
            }
        }
        clients.insert(number, Client { stream, has_asked: false });
    }

    /// From here on the answer is waited for; unless the client was cut off meanwhile.
    fn note_asked(&self, number: u64) -> bool {
        let mut clients = self.clients();
        let client = clients.get_mut(&number).filter(|_| !self.ends.load(Ordering::Acquire));
        client.map(|client| client.has_asked = true).is_some()
    }

    fn leave(&self, number: u64) {
        self.clients().remove(&number);
        self.one_less.notify_all();
    }
}

/// Waits for a client; none if woken, or if it is gone again.
fn next_client(listener: &Listener, wake: &OwnedFd) -> Option<UnixStream> {
    let listening = PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN);
    let mut polled = [PollFd::new(wake, PollFlags::IN), listening];
    let client = match poll(&mut polled, None) {
        Ok(_) if polled[1].revents().is_empty() => return None,
        Ok(_) => accept_with(listener, SocketFlags::CLOEXEC),
        Err(errno) => Err(errno),
    };
    match client {
        Ok(client) => Some(client.into()),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => None,
        Err(_) => {
            // Out of descriptors, or of the kernel's memory.
            std::thread::sleep(PAUSE);
            None
        }
    }
}

fn admit(shared: &Arc<Shared>, number: u64, stream: UnixStream) {
    let stream = Arc::new(stream);
    shared.enter(number, Arc::clone(&stream));
    let (theirs, their_stream) = (Arc::clone(shared), Arc::clone(&stream));
    let body = move || {
        // What a client does wrong is its own affair.
        drop(serve(&theirs, number, &their_stream));
        theirs.leave(number);
    };
    let thread = std::thread::Builder::new().name("braid-asked".into()).spawn(body);
    if thread.is_err() {
        shared.tell_at_once(&stream, "no thread can be started to answer");
        shared.leave(number);
    }
}

fn serve(shared: &Shared, number: u64, stream: &UnixStream) -> io::Result<()> {
    let deadline = Instant::now() + shared.deadline;
    let answer = match read_line(stream, deadline) {
        Ok(line) if shared.note_asked(number) => shared.answer.answer(&line),
        Ok(_) => return Ok(()),
        Err(Unheard::Gone(error)) => return Err(error),
        Err(unheard) => shared.answer.refuse(&unheard.to_string()),
    };
    write_all(stream, format!("{answer}\n").as_bytes(), deadline)?;
    stream.shutdown(Shutdown::Write)
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
enum Unheard {
    #[error("nothing was asked within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the request did not end within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("the request is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("the request is not text in UTF-8")]
    NotText,
    #[error("the client is gone")]
    Gone(#[from] io::Error),
}

/// A line, or what there is when the client has said its last.
fn read_line(mut stream: &UnixStream, deadline: Instant) -> Result<String, Unheard> {
    let begun = Instant::now();
    let mut line = Vec::new();
    let mut piece = [0; 1024];
    let end = loop {
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            break end;
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(Unheard::TooLong);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let late = || match line.as_slice() {
            [] => Unheard::Silent(deadline.saturating_duration_since(begun)),
            _ => Unheard::Slow(deadline.saturating_duration_since(begun)),
        };
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break line.len(),
            Ok(count) => line.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    };
    if end > LINE_BYTES_MAX {
        return Err(Unheard::TooLong);
    }
    line.truncate(end);
    String::from_utf8(line).map_err(|_| Unheard::NotText)
}

fn write_all(mut stream: &UnixStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let deadline = deadline.max(Instant::now() + ANSWER_TIME_MIN);
    let mut rest = bytes;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(600);

    struct Echo;

    impl Answer for Echo {
        fn answer(&self, line: &str) -> String {
            format!("heard {line}")
        }
        fn refuse(&self, why: &str) -> String {
            format!("refused: {why}")
        }
    }

    struct Place {
        clients: Option<Clients>,
        path: std::path::PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Place {
        fn new(deadline: Duration) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("control");
            let clients = Clients::start_with(&path, Box::new(Echo), deadline).unwrap();
            Self { clients: Some(clients), path, _folder: folder }
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(&self.path).unwrap()
        }

        fn ask(&self, bytes: &[u8]) -> String {
            let mut stream = self.connect();
            // It may be cut off before everything is said.
            let _ = stream.write_all(bytes);
            heard(&stream)
        }
    }

    fn heard(stream: &UnixStream) -> String {
        let mut line = String::new();
        io::BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn whatever_is_said_is_answered() {
        let place = Place::new(LIMIT);
        assert_eq!(place.ask(b"hello\n"), "heard hello\n");
        assert_eq!(place.ask(b"hello\nagain\n"), "heard hello\n");
        let most = [vec![b'a'; LINE_BYTES_MAX], b"\n".to_vec()].concat();
        assert!(place.ask(&most).starts_with("heard aaa"));
        for (bytes, why) in [
            (&b"\xff\xfe\n"[..], "UTF-8"),
            (&[b'a'; LINE_BYTES_MAX + 1], "longer"),
            (&[b'a'; 100 * LINE_BYTES_MAX], "longer"),
            (b"", "nothing was asked"),
            (b"no end of line", "did not end"),
        ] {
            let answer = place.ask(bytes);
            assert!(answer.starts_with("refused: ") && answer.contains(why), "{answer}");
        }
        // Who has said its last need not end the line.
        let stream = place.connect();
        (&stream).write_all(b"last").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(heard(&stream), "heard last\n");
    }

    #[test]
    fn a_byte_now_and_then_is_no_way_to_stay() {
        let place = Place::new(LIMIT);
        let stream = place.connect();
        let begun = Instant::now();
        while (&stream).write_all(b" ").is_ok() {
            assert!(begun.elapsed() < 5 * LIMIT, "it is still there");
            std::thread::sleep(LIMIT / 10);
        }
        assert!(begun.elapsed() >= LIMIT / 2, "it was cut off before its time");
    }

    #[test]
    fn the_longest_silent_makes_room() {
        let place = Place::new(Duration::from_secs(600));
        let silent: Vec<UnixStream> = (0..2 * CLIENTS_MAX).map(|_| place.connect()).collect();
        assert_eq!(place.ask(b"hello\n"), "heard hello\n");
        assert!(heard(&silent[0]).contains("too many clients"));
        assert_eq!(place.ask(b"hello\n"), "heard hello\n");
    }

    #[test]
    fn nobody_who_waits_is_waited_for() {
        let mut place = Place::new(Duration::from_secs(600));
        let silent: Vec<UnixStream> = (0..8).map(|_| place.connect()).collect();
        (&silent[3]).write_all(b"half a requ").unwrap();
        assert_eq!(place.ask(b"all are there\n"), "heard all are there\n");
        let begun = Instant::now();
        drop(place.clients.take());
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(heard(&silent[0]).contains("stopped"));
        assert!(!place.path.exists(), "the socket is left behind");
    }
}
