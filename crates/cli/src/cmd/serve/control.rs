//! The control socket: looking at a running array, and tuning it.
//!
//! One line of JSON in, one line of JSON out, one client at a time:
//!
//! ```text
//!   {}                                      the settings, what is dirty, the counters
//!   {"set": {"dirty-limit": "8M", ...}}     sets them, all or none; then as above
//!                                           {"error": "..."} if it cannot be done
//! ```
//!
//! The socket lies in a folder that only this user may enter, or where the user said; it is made so
//! that only this user may connect. A client that says nothing is cut off after a few seconds.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_runtime::Volume;
use serde_json::{Map, Value, json};

use super::cache;

/// Longest request, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// How long a client may take to say what it wants, and to hear the answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long the end may take to be noticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The thread that listens; dropped, it ends and takes the socket away.
pub(super) struct Control {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path`. A socket that nobody answers at is replaced.
    pub(super) fn start(path: PathBuf, volume: Arc<Volume>) -> std::io::Result<Self> {
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_dead(&path) => {
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)
            }
            bound => bound,
        }?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let ends = Arc::new(AtomicBool::new(false));
        let their_ends = Arc::clone(&ends);
        let body = move || {
            while !their_ends.load(Ordering::Acquire) {
                match listener.accept() {
                    // What a client does wrong is its own affair.
                    Ok((client, _)) => drop(serve(&client, &volume)),
                    Err(_) => std::thread::sleep(LOOK_INTERVAL),
                }
            }
        };
        let thread = std::thread::Builder::new().name("braid-control".into()).spawn(body)?;
        Ok(Self { path, ends, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the control thread does not panic");
        }
    }
}

/// Whether a socket is left over from a process that is gone.
fn is_dead(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

fn serve(client: &UnixStream, volume: &Volume) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
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
    let mut settings = volume.cache();
    for (key, value) in &request {
        if key != "set" {
            return Err(format!("there is no request called '{key}'"));
        }
        let values = value.as_object().ok_or("'set' wants an object")?;
        for (key, value) in values {
            let text = value.as_str().ok_or_else(|| format!("{key}: a text is wanted"))?;
            if !cache::LIVE_KEYS.contains(&key.as_str()) {
                let keys = cache::LIVE_KEYS.join(", ");
                return Err(format!("{key}: cannot be set on a running array; {keys} can"));
            }
            cache::set(&mut settings, key, text).map_err(|why| format!("{key}: {why}"))?;
        }
        volume.tune(settings);
    }
    let counters = volume.counters().named();
    let counters: Map<String, Value> =
        counters.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
    Ok(json!({
        "settings": cache::to_json(&volume.cache()),
        "dirty_bytes": volume.dirty_bytes(),
        "counters": counters,
    }))
}
