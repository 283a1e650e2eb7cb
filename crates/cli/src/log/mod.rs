//! The log of `braid serve`: filters and formats events of `tracing`, and writes them.
//!
//! Notices for the operator are printed by `braid_server`; the log holds more events, for finding a
//! cause. The log is off unless `--log` or `BRAID_LOG` turns it on. Without a subscriber an event
//! costs one load of a number.
//!
//! ```text
//!   workers, threads ──event──▶ formatted there ──line──▶ queue ──▶ one thread ──▶ output
//!                                                           └─ full: counted
//! ```
//!
//! The output is standard error, or the journal's socket. The next line that fits into the queue
//! reports the count of dropped lines.
//!
//! Threads that serve clients and own machines emit events. A blocked terminal or journal must not
//! stall these threads, so a line is dropped if the queue is full. The formatter's own writer and
//! `tracing-journald` both block, so neither is used here.
//! [check: a_log_that_nobody_reads_holds_up_nobody]

mod journal;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{fmt, registry};

use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::printable::printable;

/// The queue's capacity in lines: a burst when a member fails under load, and a megabyte at most.
const LINES_MAX: usize = 4096;

/// The longest wait for the last log lines to be written when the process ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The prefix of every `tracing` target of braid.
const CRATES: &str = "braid";

/// Options of the log.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Write a log to standard error: off, error, warn, info, debug or trace; or for each part of
    /// braid by itself, as in `warn,braid_runtime::member=debug`. Without it $BRAID_LOG; without
    /// that there is none.
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// How the log is written; `auto` is fields in systemd's journal where that takes standard
    /// error, and text elsewhere.
    #[arg(long, value_enum, default_value_t = Format::Auto, value_name = "HOW")]
    log_format: Format,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Fields in the journal if systemd started braid, else text.
    Auto,
    /// One line for each event.
    Text,
    /// One JSON object for each event.
    Json,
    /// Fields in systemd's journal.
    Journald,
}

pub(crate) struct Log {
    lines: Lines,
}

impl Log {
    /// Starts the log if the environment asks for it.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub(crate) fn of_environment() -> Result<Option<Self>, CliError> {
        Self::start(&LogArgs { log: None, log_format: Format::Auto })
    }

    /// Starts the log if it is asked for. Call it once, before threads start.
    ///
    /// # Errors
    /// The filter is invalid, or the log cannot be written.
    pub(crate) fn start(args: &LogArgs) -> Result<Option<Self>, CliError> {
        let from_environment = || {
            let text = std::env::var_os("BRAID_LOG").filter(|text| !text.is_empty())?;
            Some(text.to_string_lossy().into_owned())
        };
        let Some(text) = args.log.clone().or_else(from_environment) else { return Ok(None) };
        let filter = filter(&text).map_err(|why| {
            let what = format!("{text} is not a log level");
            CliError::new(Code::Usage, what).because(why).remedy(
                Risk::Look,
                "See how",
                "braid serve --help",
            )
        })?;
        let is_off = filter.iter().all(|(_, level)| level == LevelFilter::OFF)
            && filter.default_level().is_none_or(|level| level == LevelFilter::OFF);
        if is_off {
            return Ok(None);
        }
        let (format, out) = match args.log_format {
            Format::Auto if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()) => {
                // If the journal cannot be reached, lines go to standard error.
                let socket = journal::connect(journal::SOCKET).ok();
                socket.map_or((Format::Text, Out::Text), |socket| {
                    (Format::Journald, Out::Journal(socket))
                })
            }
            Format::Auto | Format::Text => (Format::Text, Out::Text),
            Format::Json => (Format::Json, Out::Json),
            Format::Journald => {
                let socket = journal::connect(journal::SOCKET);
                let socket = socket
                    .map_err(|error| system("systemd's journal cannot be reached", &error))?;
                (Format::Journald, Out::Journal(socket))
            }
        };
        let lines = Lines::start(out).map_err(|error| system("the log has no thread", &error))?;
        let subscriber = subscriber(format, filter, &lines);
        tracing::subscriber::set_global_default(subscriber).expect("the log is started once");
        Ok(Some(Self { lines }))
    }
}

impl Drop for Log {
    /// Waits until the queued lines are written, for `LAST_LINES` at most.
    fn drop(&mut self) {
        self.lines.flush(LAST_LINES);
    }
}

/// Formats events and queues them in `lines`.
fn subscriber(format: Format, filter: Targets, lines: &Lines) -> Box<dyn Subscriber + Send + Sync> {
    let layer = || fmt::layer().with_ansi(false).with_writer(lines.clone());
    let filtered = registry().with(filter);
    match format {
        Format::Auto | Format::Text => Box::new(filtered.with(layer())),
        Format::Json => {
            let json = layer().json().flatten_event(true);
            let json = json.with_current_span(false).with_span_list(false);
            Box::new(filtered.with(json))
        }
        Format::Journald => Box::new(filtered.with(journal::Journal::new(lines.clone()))),
    }
}

/// Reads a level for all targets, levels for single targets, or both. `tracing` would take a
/// misspelt level for a target.
fn filter(text: &str) -> Result<Targets, String> {
    let level = |word: &str| {
        let is_word = ["off", "error", "warn", "info", "debug", "trace"].contains(&word);
        let parsed = word.parse::<LevelFilter>().ok().filter(|_| is_word);
        parsed.ok_or_else(|| format!("{word:?} is not off, error, warn, info, debug or trace"))
    };
    let mut targets = Targets::new();
    for part in text.split(',').map(str::trim) {
        targets = match part.split_once('=') {
            None => targets.with_default(level(part)?),
            Some((target, word)) if target.starts_with(CRATES) => {
                targets.with_target(target, level(word)?)
            }
            Some((target, _)) => {
                return Err(format!(
                    "{target:?} is not a part of braid: their names begin with \
                                    {CRATES}"
                ));
            }
        };
    }
    Ok(targets)
}

/// Whether standard error leads to the journal, by the device and inode that systemd names.
fn is_journal(stream: Option<&str>) -> bool {
    let told = || {
        let (device, inode) = stream?.split_once(':')?;
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    };
    let found = || {
        let stat = rustix::fs::fstat(io::stderr().as_fd()).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    told().is_some_and(|told| found() == Some(told))
}

enum Message {
    Line(Vec<u8>),
    /// A request to answer when all earlier messages are written.
    Flush(Sender<()>),
}

/// The sending end of the log's queue. Sending never waits.
#[derive(Clone)]
struct Lines {
    queue: SyncSender<Message>,
    /// Lines dropped because the queue was full.
    lost: Arc<AtomicU64>,
}

enum Out {
    Text,
    Json,
    Journal(UnixDatagram),
}

impl Lines {
    fn start(out: Out) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let body = move || write(&lines, &out, &counted);
        std::thread::Builder::new().name("braid-log".into()).spawn(body)?;
        Ok(Self { queue, lost })
    }

    fn push(&self, line: Vec<u8>) {
        if self.queue.try_send(Message::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, patience: Duration) {
        let (done, heard) = channel();
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            // If the thread needs longer to write the queued lines, they are not waited for.
            let _ = heard.recv_timeout(patience);
        }
    }
}

fn write(lines: &Receiver<Message>, out: &Out, lost: &AtomicU64) {
    for message in lines {
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            out.put(&out.lost(lost));
        }
        match message {
            Message::Line(line) => out.put(&line),
            // The thread that asked for the flush may have stopped waiting.
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

impl Out {
    /// A line that cannot be written is dropped: there is no other output to report the error.
    fn put(&self, line: &[u8]) {
        let _ = match self {
            Self::Text => {
                // Escapes in paths or clients' words must not steer the terminal or forge lines.
                let text = String::from_utf8_lossy(line);
                writeln!(io::stderr(), "{}", printable(text.trim_end_matches('\n')))
            }
            Self::Json => io::stderr().write_all(line),
            Self::Journal(socket) => socket.send(line).map(drop),
        };
    }

    fn lost(&self, count: u64) -> Vec<u8> {
        let text = format!(
            "{count} lines of the log are lost: they came faster than they could be \
                     written"
        );
        match self {
            Self::Text => text.into_bytes(),
            Self::Json => {
                let line = serde_json::json!({ "level": "WARN", "message": text, "lost": count });
                format!("{line}\n").into_bytes()
            }
            Self::Journal(_) => journal::entry(4, &text),
        }
    }
}

/// The formatter writes each event with one call.
struct Line(Lines);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.clone())
    }
}

#[cfg(test)]
mod tests;
