//! The causes of failed members and failed requests, as notices, JSON and the log give them.
//!
//! The members are files on a FUSE file system that fails on request; reports must name operation,
//! sectors and error.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::kit::{
    Array, Client, Fail, FaultFs, FileOp, RAID_0, RAID_5, ServerProcess, Shape, is_installed,
    needs, run, say, wait_until,
};

const SECTOR: u64 = 512;
const EIO: i32 = 5;
const ENODEV: i32 = 19;

const PATIENCE: Duration = Duration::from_secs(30);

/// Members whose files fail on request. The mount is dropped last, so that nothing hangs on it.
pub(crate) struct Failing {
    pub(crate) array: Array,
    pub(crate) files: FaultFs,
}

impl Failing {
    /// Makes an array on failing files; `None` if the test may not mount FUSE.
    pub(crate) fn create(shape: Shape) -> Option<Self> {
        Self::create_with(shape, "resync")
    }

    fn create_with(shape: Shape, consistency: &str) -> Option<Self> {
        let array = Array::create_with("tank", shape, "16M", &["--consistency", consistency]);
        let files = FaultFs::over(&array.members);
        if files.is_none() {
            say("skipped: no FUSE");
        }
        Some(Self { files: files?, array })
    }

    pub(crate) fn serve(&self, options: &[&str]) -> ServerProcess {
        self.array.serve_with(options, &self.files.files())
    }

    pub(crate) fn data_offset(&self) -> u64 {
        let ran = self.array.braid(&["examine"], &self.array.members);
        let members: Value = serde_json::from_str(ran.stdout.lines().next().expect("a line"))
            .expect("examine says JSON");
        let text = members.to_string();
        let key = "\"data_offset_bytes\":";
        let at = text.find(key).unwrap_or_else(|| panic!("no data offset in {text}")) + key.len();
        let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }
}

/// Ends the test's threads, however the test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const BITMAP_AT: u64 = 8192;

/// The expected content of the report about member 1.
struct ExpectedReport {
    file_op: FileOp,
    errno: i32,
    operation: &'static str,
    words: &'static str,
}

const CASES: [ExpectedReport; 5] = [
    ExpectedReport {
        file_op: FileOp::Write,
        errno: EIO,
        operation: "write",
        words: "Input/output error",
    },
    ExpectedReport {
        file_op: FileOp::Flush,
        errno: EIO,
        operation: "flush",
        words: "Input/output error",
    },
    ExpectedReport {
        file_op: FileOp::Write,
        errno: 121,
        operation: "superblock-write",
        words: "Remote I/O error",
    },
    ExpectedReport {
        file_op: FileOp::Write,
        errno: 121,
        operation: "bitmap-write",
        words: "Remote I/O error",
    },
    // A bad sector does not fail a member; a missing device does (ENODEV).
    ExpectedReport {
        file_op: FileOp::Read,
        errno: ENODEV,
        operation: "read",
        words: "No such device",
    },
];

/// Writes and flushes until `ends` is set, so that the array stays active; errors are allowed.
fn keep_busy(socket: &std::path::Path, begun: &Barrier, ends: &AtomicBool, flushes: bool) {
    let mut client = Client::connect(socket, PATIENCE);
    for cookie in 0.. {
        if cookie == 1 {
            begun.wait();
        }
        if ends.load(Ordering::Relaxed) {
            return;
        }
        client.ask_write(cookie, cookie % 64 * 4096, &[7; 4096]);
        client.hear().expect("an answer");
        if flushes {
            client.flush();
        }
    }
}

/// Fails member 1 under load as `expected` says; returns the notice and the server's log.
fn lose(failing: &Failing, io: &str, expected: &ExpectedReport) -> (Value, String) {
    let options = ["--io", io, "--log", "debug", "--log-format", "json"];
    let mut served = failing.serve(&options);
    let socket = served.socket.clone();
    let data = failing.data_offset();
    let bytes = match expected.operation {
        "superblock-write" => 0..data,
        "bitmap-write" => BITMAP_AT..data,
        _ => data..u64::MAX,
    };
    let ExpectedReport { file_op, errno, operation, .. } = *expected;
    let (begun, ends) = (Barrier::new(2), AtomicBool::new(false));
    let notice = std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        if operation != "read" {
            scope.spawn(|| keep_busy(&socket, &begun, &ends, operation == "flush"));
            // Superblock and bitmap are written before the first write's answer: do not wait for
            // it.
            if operation.ends_with("-write") {
                scope.spawn(|| begun.wait());
            } else {
                begun.wait();
            }
        }
        failing.files.fail(1, Fail { file_op, bytes, errno });
        if operation == "read" {
            let mut client = Client::connect(&socket, PATIENCE);
            client.ask_read(0, 4 << 20, 1 << 20);
            client.hear().expect("it is reconstructed");
            client.payload(1 << 20);
        }
        served.wait_for("Fail")
    });
    (notice, served.last_words())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Regression: the report on a member was only "failed and is out", whatever the cause.
#[test]
fn why_a_member_went_out_is_said() {
    for io in ["ring", "threads"] {
        for expected in &CASES {
            let has_bitmap = expected.operation == "bitmap-write";
            let consistency = if has_bitmap { "bitmap" } else { "resync" };
            let Some(failing) = Failing::create_with(RAID_5, consistency) else { return };
            let (notice, log) = lose(&failing, io, expected);
            let what = format!("{io} {}: {notice}\n{log}", expected.operation);
            assert_eq!(
                notice["subject"]["member"],
                failing.files.files()[1].display().to_string(),
                "{what}"
            );
            assert_eq!(notice["subject"]["slot"], 1, "{what}");
            assert_eq!(notice["cause"]["operation"], expected.operation, "{what}");
            assert_eq!(notice["cause"]["os_error"], expected.errno, "{what}");
            assert_eq!(notice["cause"]["answer"], "os-error", "{what}");
            let words = notice["cause"]["error"].as_str().expect("words");
            assert!(words.contains(expected.words), "{what}");
            if expected.file_op == FileOp::Flush {
                assert!(notice["cause"].get("sector").is_none(), "a flush has no place: {what}");
            } else {
                let start = number(&notice["cause"]["sector"]) * SECTOR;
                let end = start + number(&notice["cause"]["sectors"]) * SECTOR;
                let failed = failing.files.failed();
                // The kernel reads whole pages of the file, perhaps in parts.
                let is_it = |bytes: &std::ops::Range<u64>| bytes.start < end && start < bytes.end;
                assert!(failed.iter().any(is_it), "{failed:?} {what}");
                if expected.operation == "superblock-write" {
                    assert_eq!(number(&notice["cause"]["sector"]), 8, "{what}");
                }
            }
            check_log(&log, &notice);
        }
    }
}

/// Checks that every line of the log has the common fields, and the loss has those of the notice.
fn check_log(log: &str, notice: &Value) {
    let lines: Vec<Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "no {field}: {line}");
        }
        let is_ours = line["target"].as_str().is_some_and(|target| target.starts_with("braid"));
        assert!(is_ours, "{line}");
    }
    let find = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("no {message:?} in {log}"))
    };
    let told = |kind: &str| {
        let found = lines.iter().find(|line| line["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {log}"))
    };
    let out = told("Fail");
    assert_eq!((&out["level"], &out["message"]), (&"ERROR".into(), &notice["message"]));
    for field in ["member", "slot"] {
        assert_eq!(out[field], notice["subject"][field], "{field}: {out}");
    }
    for field in ["operation", "sector", "sectors", "os_error", "error"] {
        assert_eq!(out[field], notice["cause"][field], "{field}: {out}");
    }
    assert_eq!(told("ArrayStopped")["level"], "INFO");
    let failed = lines.iter().any(|line| {
        line["message"] == "request failed at a member"
            && line["sector"] == notice["cause"]["sector"]
    });
    assert!(failed, "{log}");
    for message in ["array has started", "superblocks are written"] {
        assert_eq!(find(message)["level"], "INFO");
    }
    assert_eq!(find("client has connected")["level"], "DEBUG");
}

/// The notice in words gives the cause in a sentence, and then the consequences of the loss.
#[test]
fn why_a_member_went_out_is_said_to_a_person() {
    needs!("qemu-io");
    let Some(failing) = Failing::create(RAID_5) else { return };
    failing.files.fail(
        1,
        Fail { file_op: FileOp::Write, bytes: failing.data_offset()..u64::MAX, errno: EIO },
    );
    let command = "qemu-io -f raw -c 'write 0 1M' -c flush \"$uri\"";
    let mut words =
        failing.array.command_line(&["serve", "--run", command], &failing.files.files());
    words.remove(0);
    let ran = run(env!("CARGO_BIN_EXE_braid"), words);
    let line = ran.stderr.lines().find(|line| line.contains("is out of tank"));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    let says = [
        "m1 failed",
        // The failed write is of data, or of a superblock written at that moment.
        "write of ",
        " at sector ",
        "Input/output error (os error 5); the others' superblocks say so",
    ];
    assert!(says.iter().all(|part| line.contains(part)), "{line}");
    assert!(!ran.stderr.contains("braid_runtime"), "a log that was not asked for: {}", ran.stderr);
}

/// Regression: a client got an error, and the log had no cause for it.
#[test]
fn what_failed_a_request_is_in_the_log() {
    needs!("qemu-io");
    let Some(failing) = Failing::create(RAID_0) else { return };
    let data = failing.data_offset();
    for (level, each) in [("debug", true), ("warn", false)] {
        let served = failing.serve(&["--log", level, "--log-format", "json"]);
        // The fault is set only now: at the server's start the kernel reads ahead of superblocks.
        failing.files.fail(2, Fail { file_op: FileOp::Read, bytes: data..u64::MAX, errno: EIO });
        // The third chunk is on the third member.
        let read = |count: usize| {
            let commands = (0..count).flat_map(|_| ["-c", "read 128k 4k"]);
            run(
                "qemu-io",
                ["-r", "-f", "raw"].into_iter().chain(commands).chain([served.uri.as_str()]),
            )
        };
        let ran = read(20);
        assert!((ran.stdout + &ran.stderr).contains("Input/output error"));
        let log = served.last_words();
        let lines: Vec<Value> =
            log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let count = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
        assert_eq!(count("request failed") >= 20, each, "{log}");
        let warned = count("requests fail");
        assert!((1..20).contains(&warned), "{warned} warnings: {log}");
        let warning = lines.iter().find(|line| line["message"] == "requests fail").expect("one");
        assert_eq!(warning["request"], "read", "{warning}");
        assert_eq!(warning["os_error"], EIO, "{warning}");
        assert_eq!(warning["member"], failing.files.files()[2].display().to_string());
        assert!(number(&warning["offset"]) <= 128 << 10, "{warning}");
        let (start, sectors) = (number(&warning["sector"]), number(&warning["sectors"]));
        let failed = failing.files.failed();
        let is_it = |bytes: &std::ops::Range<u64>| {
            bytes.start < (start + sectors) * SECTOR && start * SECTOR < bytes.end
        };
        assert!(failed.iter().any(is_it), "{failed:?} {warning}");
        failing.files.let_go();
    }
}

#[test]
fn a_level_that_is_none_is_refused() {
    let array = Array::create(RAID_5);
    for (words, setup) in [(&["--log", "inof"][..], "true"), (&[][..], "export BRAID_LOG=verbose")]
    {
        let mut line = array.command_line(&["serve"], &array.members);
        line.extend(words.iter().map(ToString::to_string));
        let script = format!("{setup}; exec \"$@\"");
        let start = ["-c", &script, "sh", env!("CARGO_BIN_EXE_braid")].map(str::to_string);
        let ran = run("/bin/sh", start.into_iter().chain(line));
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        assert!(ran.stdout.contains("B001"), "{ran:?}");
    }
}

#[test]
fn the_environment_asks_for_a_log_and_an_option_overrules_it() {
    let array = Array::create(RAID_5);
    for (options, is_there) in [(&[][..], true), (&["--log", "off"][..], false)] {
        let setup = "export BRAID_LOG=info";
        let served = ServerProcess::start_under(setup, &array, options, &array.members);
        let log = served.last_words();
        let is_said = log.lines().any(|line| line.contains(" INFO braid_runtime::array: "));
        assert_eq!(is_said, is_there, "{log}");
    }
}

/// Regression: under systemd only the text of a log line could be searched, not its fields.
#[test]
fn the_journal_of_systemd_gets_fields() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !is_installed("unshare") {
        return say("skipped: not root, or no unshare");
    }
    let array = Array::create(RAID_5);
    let folder = array.path("journal");
    std::fs::create_dir(&folder).expect("a folder");
    let journal = UnixDatagram::bind(folder.join("socket")).expect("a socket");
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal \
         && mount --bind '{}' /run/systemd/journal || exit 77; \
         JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$@\"",
        folder.display()
    );
    let words = ["serve", "--log", "info", "--run", "true"];
    let mut command = Command::new("unshare");
    command.args(["--mount", "/bin/sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_braid")]);
    command.args(array.command_line(&words, &array.members));
    let output = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = output.spawn().expect("unshare");
    let mut entries = Vec::new();
    let mut bytes = [0; 1 << 16];
    wait_until("braid to end", PATIENCE, || child.try_wait().expect("our child").is_some());
    journal.set_nonblocking(true).expect("a socket");
    while let Ok(length) = journal.recv(&mut bytes) {
        entries.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
    }
    let output = child.wait_with_output().expect("it has ended");
    if output.status.code() == Some(77) {
        return say("skipped: nothing can be mounted");
    }
    assert!(output.status.success(), "{output:?}");
    let started =
        entries.iter().find(|entry| entry.contains("BRAID_TARGET=braid_runtime::array\n"));
    let started = started.unwrap_or_else(|| panic!("{entries:?} {output:?}"));
    for field in [
        "PRIORITY=6\n",
        "SYSLOG_IDENTIFIER=braid\n",
        "MESSAGE=array has started",
        "BRAID_SLOTS=4\n",
        "BRAID_RAID_LEVEL=",
    ] {
        assert!(started.contains(field), "no {field:?} in {started}");
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("array has started"), "said twice: {stderr}");
}
