//! Tests of the log alone: levels, formats, a missing journal, and a blocked one.

use super::*;
use serde_json::Value;

/// The lines that a subscriber queues for these events.
fn said(format: Format, level: &str, events: impl FnOnce()) -> Vec<Vec<u8>> {
    let (queue, lines) = sync_channel(LINES_MAX);
    let lines_in = Lines { queue, lost: Arc::default() };
    let subscriber = subscriber(format, filter(level).expect("a level"), &lines_in);
    tracing::subscriber::with_default(subscriber, events);
    let line = |message| match message {
        Message::Line(line) => line,
        Message::Flush(_) => panic!("nothing was flushed"),
    };
    lines.try_iter().map(line).collect()
}

fn events() {
    tracing::warn!(target: "braid_runtime::array", member = "/a\nb", slot = 3_u16, os_error = Some(5), "member is out");
    tracing::debug!(target: "braid_runtime::member", sector = 7_u64, sectors = None::<u32>, "request failed");
    tracing::trace!(target: "braid_runtime::request", offset = 0, "request");
}

#[test]
fn a_level_lets_through_what_is_as_grave_and_no_more() {
    for (level, count) in [
        ("off", 0),
        ("error", 0),
        ("warn", 1),
        ("info", 1),
        ("debug", 2),
        ("trace", 3),
        ("off,braid_runtime::member=debug", 1),
        ("braid_runtime::array=warn,braid_runtime::request=trace", 2),
        ("braid_runtime=debug", 2),
    ] {
        assert_eq!(said(Format::Text, level, events).len(), count, "{level}");
    }
}

/// `tracing` takes any unknown word for a target and silently passes the events of this target.
#[test]
fn what_is_no_level_is_refused() {
    for text in ["", "inof", "INFO", "3", "info,", "sqlx=debug", "braid_runtime=all", "=info"] {
        assert!(filter(text).is_err(), "{text}");
    }
}

#[test]
fn json_lines_have_the_fields_and_numbers_stay_numbers() {
    let lines = said(Format::Json, "trace", events);
    let parsed = |line: &Vec<u8>| serde_json::from_slice::<Value>(line).expect("JSON");
    let values: Vec<Value> = lines.iter().map(parsed).collect();
    assert!(lines.iter().all(|line| line.iter().filter(|byte| **byte == b'\n').count() == 1));
    let [out, failed, _] = &values[..] else { panic!("{values:?}") };
    assert_eq!(out["level"], "WARN");
    assert_eq!(out["target"], "braid_runtime::array");
    assert_eq!(out["message"], "member is out");
    assert_eq!((&out["slot"], &out["os_error"]), (&Value::from(3), &Value::from(5)));
    assert_eq!(out["member"], "/a\nb");
    assert_eq!(failed["sector"], 7);
    assert!(failed.get("sectors").is_none(), "what is not known is not said: {failed}");
    assert!(out["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
}

/// The fields of one journal entry, as the journal reads it.
fn fields(mut entry: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    while !entry.is_empty() {
        let end = entry.iter().position(|byte| matches!(byte, b'=' | b'\n')).expect("a name");
        let name = text(&entry[..end]);
        let (value, rest) = if entry[end] == b'=' {
            let length = entry[end..].iter().position(|byte| *byte == b'\n').expect("an end");
            (&entry[end + 1..end + length], &entry[end + length + 1..])
        } else {
            let bytes = entry[end + 1..end + 9].try_into().expect("a length");
            let length = usize::try_from(u64::from_le_bytes(bytes)).expect("short");
            (&entry[end + 9..end + 9 + length], &entry[end + 10 + length..])
        };
        fields.push((name, text(value)));
        entry = rest;
    }
    fields
}

#[test]
fn the_journal_gets_fields_that_can_be_looked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let journal = UnixDatagram::bind(&path).expect("a socket");
    journal.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let lines = Lines::start(Out::Journal(journal::connect(&path).expect("it is there")));
    let lines = lines.expect("a thread");
    let subscriber = subscriber(Format::Journald, filter("debug").expect("a level"), &lines);
    tracing::subscriber::with_default(subscriber, events);
    let mut bytes = [0; 4096];
    let mut next = || {
        let length = journal.recv(&mut bytes).expect("an entry");
        fields(&bytes[..length])
    };
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    assert_eq!(
        next(),
        [
            pair("PRIORITY", "4"),
            pair("SYSLOG_IDENTIFIER", "braid"),
            pair("MESSAGE", "member is out member=/a\nb slot=3 os_error=5"),
            pair("BRAID_TARGET", "braid_runtime::array"),
            pair("BRAID_MEMBER", "/a\nb"),
            pair("BRAID_SLOT", "3"),
            pair("BRAID_OS_ERROR", "5"),
        ]
    );
    assert!(next().contains(&pair("BRAID_SECTOR", "7")));
}

/// A worker that waited for a full log pipe would serve no client until the pipe was read.
#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let journal = UnixDatagram::bind(&path).expect("a socket");
    let lines = Lines::start(Out::Journal(journal::connect(&path).expect("it is there")));
    let lines = lines.expect("a thread");
    let subscriber = subscriber(Format::Journald, filter("warn").expect("a level"), &lines);
    let count = LINES_MAX + 3000;
    tracing::subscriber::with_default(subscriber, || {
        for number in 0..count {
            tracing::warn!(number, "said");
        }
    });
    // The journal's socket takes a few lines, and the queue takes its capacity.
    let lost = lines.lost.load(Ordering::Relaxed);
    assert!(lost > 0, "a queue without an end");
    lines.flush(Duration::from_millis(10));
    journal.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
    let mut bytes = [0; 4096];
    let (mut received, mut told) = (0, 0);
    while let Ok(length) = journal.recv(&mut bytes) {
        let fields = fields(&bytes[..length]);
        let message = &fields.iter().find(|(name, _)| name == "MESSAGE").expect("a message").1;
        match message.split_once(" lines of the log are lost") {
            Some((number, _)) => told += number.parse::<usize>().expect("a number"),
            None => received += 1,
        }
    }
    assert_eq!(received + told, count, "each line is written or counted");
}

#[test]
fn standard_error_is_the_journal_only_if_it_is_that_very_stream() {
    let stat = rustix::fs::fstat(io::stderr().as_fd()).expect("standard error");
    let stream = format!("{}:{}", stat.st_dev, stat.st_ino);
    assert!(is_journal(Some(&stream)));
    let other = format!("{}:{}", stat.st_dev, stat.st_ino + 1);
    for wrong in [None, Some(""), Some("7"), Some("a:b"), Some(other.as_str())] {
        assert!(!is_journal(wrong), "{wrong:?}");
    }
}
