//! braid as a child process that serves.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::array::Array;
use super::process::{ok, wait_until};

/// Longest wait for the server's next event; braid needs less.
const EVENT_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a stop, including clients whose connections are cut.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// The server's events so far, and whether more can come.
#[derive(Default)]
struct EventLog {
    events: Mutex<(Vec<Value>, bool)>,
    changed: Condvar,
}

/// A running server, killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    log: Arc<EventLog>,
    listener: Option<JoinHandle<()>>,
    /// The URI of the empty export name.
    pub(crate) uri: String,
    pub(crate) socket: PathBuf,
    pub(crate) size_bytes: u64,
}

impl ServerProcess {
    /// Starts the server and waits for its event "serving".
    pub(crate) fn start(array: &Array, options: &[&str], members: &[PathBuf]) -> Self {
        Self::start_under("true", array, options, members)
    }

    /// Starts `braid rescue --serve`, and waits for its event "serving".
    pub(crate) fn rescued(array: &Array, options: &[&str], members: &[PathBuf]) -> Self {
        Self::start_by(&["rescue", "--serve"], "true", array, options, members)
    }

    /// Like [`Self::start`], but in a shell after `setup`, which may set limits.
    pub(crate) fn start_under(
        setup: &str,
        array: &Array,
        options: &[&str],
        members: &[PathBuf],
    ) -> Self {
        Self::start_by(&["serve"], setup, array, options, members)
    }

    fn start_by(
        verb: &[&str],
        setup: &str,
        array: &Array,
        options: &[&str],
        members: &[PathBuf],
    ) -> Self {
        let socket = array.path("nbd.sock");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut words = [verb, &["--nbd", &uri]].concat();
        // With this variable all servers are confined, which tests confinement everywhere.
        let is_asked_for = std::env::var_os("BRAID_E2E_CONFINE").is_some();
        if is_asked_for && verb == ["serve"] && !options.contains(&"--confine") {
            words.extend(["--confine", "auto"]);
        }
        words.extend(options);
        let script = format!("{setup}; exec \"$@\"");
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_braid")])
            .args(array.command_line(&words, members))
            .env("BRAID_RUNTIME_DIR", array.runtime())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("braid starts");
        let log = Arc::<EventLog>::default();
        let output = child.stdout.take().expect("piped");
        let listening = Arc::clone(&log);
        let listener = std::thread::spawn(move || listen(output, &listening));
        let listener = Some(listener);
        let mut served = Self { child, log, listener, uri, socket, size_bytes: 0 };
        let serving = served.wait_for("serving");
        served.size_bytes = serving["size_bytes"].as_u64().expect("a size");
        served
    }

    /// Waits for an event of the server, or finds it in the output so far.
    pub(crate) fn wait_for(&mut self, event: &str) -> Value {
        let start = Instant::now();
        let mut state = self.log.events.lock().expect("no panic under this lock");
        loop {
            if let Some(found) = state.0.iter().find(|one| one["event"] == event) {
                return found.clone();
            }
            let left = EVENT_LIMIT.saturating_sub(start.elapsed());
            if state.1 || left.is_zero() {
                let said = format!("{:#?}", state.0);
                drop(state);
                // The server printed nothing in time: kill the server, and read its last output.
                let _ = self.child.kill();
                let mut words = String::new();
                let stderr = self.child.stderr.as_mut().expect("piped");
                let _ = stderr.read_to_string(&mut words);
                panic!("no event {event}; it said {said}\n{words}");
            }
            state = self.log.changed.wait_timeout(state, left).expect("no panic under it").0;
        }
    }

    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        let state = self.log.events.lock().expect("no panic under this lock");
        state.0.iter().filter(|one| one["event"] == event).cloned().collect()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The server's final error, if it has printed one.
    pub(crate) fn error(&self) -> Option<Value> {
        let state = self.log.events.lock().expect("no panic under this lock");
        state.0.iter().find(|one| one["code"].is_string()).cloned()
    }

    /// A number of `/proc/PID/status`, in bytes.
    pub(crate) fn status_bytes(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("our own child");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("braid to end", STOP_LIMIT, || {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        });
        if let Some(listener) = self.listener.take() {
            listener.join().expect("listening does not panic");
        }
        status.expect("it has ended")
    }

    /// Stops the server with SIGTERM; it must end cleanly. Returns its last event.
    pub(crate) fn stop(mut self) -> Value {
        self.signal(Signal::TERM);
        let status = self.wait();
        let stopped = self.wait_for("stopped");
        assert!(status.success(), "{status}: {stopped}");
        assert_eq!(stopped["in_order"], true, "{stopped}");
        assert_eq!(stopped["connections_cut"], 0, "{stopped}");
        assert!(!self.socket.exists(), "its socket is left behind");
        stopped
    }

    /// Stops the server, with any exit status; returns its standard error.
    pub(crate) fn last_words(mut self) -> String {
        self.signal(Signal::TERM);
        self.wait();
        let mut words = String::new();
        let stderr = self.child.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut words).expect("text");
        words
    }

    /// Kills the server, as close to a power failure as a process can get.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Deletes the member's file, and waits until braid notices.
    pub(crate) fn lose(&mut self, array: &Array, slot: usize) {
        let before = self.events("Fail").len();
        std::fs::remove_file(&array.members[slot]).expect("a member to lose");
        wait_until("the loss to be noticed", EVENT_LIMIT, || self.events("Fail").len() > before);
    }

    /// The size of the export, for arrays of some megabytes.
    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.size_bytes).expect("some megabytes")
    }

    /// Copies the whole export out with nbdcopy.
    pub(crate) fn read_all(&self, array: &Array) -> Vec<u8> {
        let path = array.path("out.img");
        let target = path.display().to_string();
        ok("nbdcopy", ["--connections=4", &self.uri, &target]);
        let bytes = std::fs::read(&path).expect("what was copied");
        std::fs::remove_file(&path).expect("a temporary file");
        bytes
    }

    pub(crate) fn write_all(&self, array: &Array, bytes: &[u8]) {
        let path = array.path("in.img");
        std::fs::write(&path, bytes).expect("a file to copy");
        let source = path.display().to_string();
        ok("nbdcopy", ["--connections=4", "--flush", &source, &self.uri]);
        std::fs::remove_file(&path).expect("a temporary file");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The server has usually ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(output: ChildStdout, log: &EventLog) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
        log.events.lock().expect("no panic under this lock").0.push(event);
        log.changed.notify_all();
    }
    log.events.lock().expect("no panic under this lock").1 = true;
    log.changed.notify_all();
}
