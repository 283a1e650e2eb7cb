//! The control socket: looking at a running array, and tuning it.
//!
//! One line of JSON in, one line of JSON out, one client at a time:
//!
//! ```text
//!   {}                                      the settings, what is dirty, the counters
//!   {"set": {"dirty-limit": "8M", ...}}     sets them, all or none; then as above
//!   {"show": "elevators"}                   the elevators, and the multiplexer's last slices
//!                                           {"error": "..."} if it cannot be done
//! ```
//!
//! The socket lies in a folder that only this user may enter, or where the user said; it is made as those
//! of clients are, so that only this user may connect. A client that says nothing is cut off after a few seconds.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_frontend_nbd::{BindError, Listener};
use braid_runtime::Volume;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use serde_json::{Map, Value, json};

use super::{cache, scheduling, sit_out};

/// Longest request, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// How long a client may take to say what it wants, and to hear the answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a shortage of the system is given to pass.
const PAUSE: Duration = Duration::from_millis(50);

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot start the control thread: {0}")]
    System(#[from] std::io::Error),
}

/// The thread that listens; dropped, it ends and takes the socket away.
pub(super) struct Control {
    ends: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path`. A socket that nobody answers at is replaced.
    pub(super) fn start(path: &Path, volume: Arc<Volume>) -> Result<Self, ControlError> {
        let listener = Listener::bind_unix(path)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(std::io::Error::from)?);
        let ends = Arc::new(AtomicBool::new(false));
        let (their_ends, their_wake) = (Arc::clone(&ends), Arc::clone(&wake));
        let body = move || {
            while !their_ends.load(Ordering::Acquire) {
                // What a client does wrong is its own affair.
                if let Some(client) = next_client(&listener, &their_wake) {
                    drop(serve(&client, &volume));
                }
            }
        };
        let thread = std::thread::Builder::new().name("braid-control".into()).spawn(body)?;
        Ok(Self { ends, wake, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Only a full counter could refuse this, and then the thread is awake anyway.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the control thread does not panic");
        }
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

fn serve(client: &UnixStream, volume: &Volume) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(client.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let answer = match answer(&line, volume) {
        Ok(answer) => answer,
        Err(why) => json!({ "error": why }),
    };
    let mut client = client;
    client.write_all(format!("{answer}\n").as_bytes())
}

fn answer(line: &str, volume: &Volume) -> Result<Value, String> {
    let request: Map<String, Value> =
        serde_json::from_str(line).map_err(|_| "the request is no object in JSON".to_owned())?;
    for (key, value) in &request {
        match (key.as_str(), value) {
            ("show", Value::String(what)) if what == "elevators" => {
                return Ok(scheduling::state(volume));
            }
            ("show", _) => return Err("only 'elevators' can be shown".to_owned()),
            ("set", Value::Object(values)) => set_all(values, volume)?,
            ("set", _) => return Err("'set' wants an object".to_owned()),
            _ => return Err(format!("there is no request called '{key}'")),
        }
    }
    let counters = volume.counters().named();
    let counters: Map<String, Value> =
        counters.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
    let mut settings = scheduling::to_json(&volume.scheduling());
    if let Value::Object(cache) = cache::to_json(&volume.cache()) {
        settings.extend(cache);
    }
    settings.extend(sit_out::to_json(&volume.sit_out()));
    Ok(json!({
        "settings": settings,
        "dirty_bytes": volume.dirty_bytes(),
        "sitting_out": sit_out::state(volume),
        "counters": counters,
    }))
}

/// Sets all of them, or none.
fn set_all(values: &Map<String, Value>, volume: &Volume) -> Result<(), String> {
    let (mut cache, mut scheduling) = (volume.cache(), volume.scheduling());
    let (cached, scheduled) = (cache, scheduling.clone());
    let mut sits_out = volume.sit_out();
    for (key, value) in values {
        let text = value.as_str().ok_or_else(|| format!("{key}: a text is wanted"))?;
        let set = if scheduling::is_key(key) {
            scheduling::set(&mut scheduling, key, text)
        } else if cache::LIVE_KEYS.contains(&key.as_str()) {
            cache::set(&mut cache, key, text)
        } else if sit_out::KEYS.contains(&key.as_str()) {
            sit_out::set(&mut sits_out, key, text)
        } else {
            let keys = [&cache::LIVE_KEYS[..], &scheduling::KEYS[..], &sit_out::KEYS[..]];
            let keys = keys.concat().join(", ");
            Err(format!("cannot be set on a running array; {keys} can"))
        };
        set.map_err(|why| format!("{key}: {why}"))?;
    }
    scheduling::check_slots(&scheduling, volume)?;
    if cache != cached {
        volume.tune(cache);
    }
    if sits_out != volume.sit_out() {
        volume.set_sit_out(sits_out);
    }
    if scheduling != scheduled {
        volume.schedule(scheduling);
    }
    Ok(())
}
