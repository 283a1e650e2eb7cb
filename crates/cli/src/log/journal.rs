//! Entries of systemd's journal in its native protocol: one datagram each, with searchable fields.
//!
//! `MESSAGE` holds the event's text and then its fields, for reading. Each field is also an entry
//! field, called `BRAID_` and its name, for searching: `journalctl BRAID_MEMBER=/dev/sdc`.

use std::fmt::{Debug, Write};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::Lines;

/// The socket on which the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// The prefix of braid's fields in journal entries.
const PREFIX: &str = "BRAID_";

pub(super) fn connect(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

/// Turns events into journal entries.
pub(super) struct Journal {
    lines: Lines,
}

impl Journal {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, text, bytes } = fields;
        let mut entry = entry(priority(*event.metadata().level()), &format!("{message}{text}"));
        put(&mut entry, "BRAID_TARGET", event.metadata().target());
        entry.extend(bytes);
        self.lines.push(entry);
    }
}

/// A journal entry with its first two fields, which make it valid already.
pub(super) fn entry(priority: u8, message: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    put(&mut entry, "PRIORITY", &priority.to_string());
    put(&mut entry, "SYSLOG_IDENTIFIER", "braid");
    put(&mut entry, "MESSAGE", message);
    entry
}

/// syslog's priorities.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Appends a field to the entry. A value with a newline is written with its length.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    /// Fields other than the message, as text.
    text: String,
    /// Fields other than the message, as the journal's fields.
    bytes: Vec<u8>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
            return;
        }
        write!(self.text, " {}={value}", field.name()).expect("memory takes text");
        let name: String = field.name().chars().map(in_name).collect();
        put(&mut self.bytes, &format!("{PREFIX}{name}"), value);
    }
}

/// Maps a character to one that the journal allows in a field name.
fn in_name(character: char) -> char {
    if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, &format!("{value:?}"));
    }
}
