//! Why a member went out and why a request failed: said in notices and in JSON, as it really was.
//!
//! The members lie on a FUSE that fails what it is told to fail; what braid says of it must name the operation, the sectors
//! and the error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::kit::{Array, Client, Deed, Fail, Hanging, RAID_5, Served, Shape, needs, run, say};

const SECTOR: u64 = 512;
const EIO: i32 = 5;
const ENODEV: i32 = 19;

/// What anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Members whose files fail when they are told to; the last to go, so that nothing hangs on it.
struct Failing {
    array: Array,
    files: Hanging,
}

impl Failing {
    /// None where nobody may mount.
    fn create(shape: Shape) -> Option<Self> {
        let array = Array::create(shape);
        let files = Hanging::over(&array.members);
        if files.is_none() {
            say("skipped: no FUSE");
        }
        Some(Self { files: files?, array })
    }

    fn serve(&self, options: &[&str]) -> Served {
        self.array.serve_with(options, &self.files.files())
    }

    /// Where the data area begins, in bytes.
    fn data_offset(&self) -> u64 {
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

/// Ends what a test has running, however the test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What must be said of member 1.
struct Expected {
    deed: Deed,
    errno: i32,
    operation: &'static str,
    words: &'static str,
}

const CASES: [Expected; 4] = [
    Expected { deed: Deed::Write, errno: EIO, operation: "write", words: "Input/output error" },
    Expected { deed: Deed::Flush, errno: EIO, operation: "flush", words: "Input/output error" },
    Expected {
        deed: Deed::Write,
        errno: 30,
        operation: "superblock-write",
        words: "Read-only file system",
    },
    // A bad sector costs no member; one that is not there any more does.
    Expected { deed: Deed::Read, errno: ENODEV, operation: "read", words: "No such device" },
];

/// Writes and flushes for as long as it is let, so that the array stays active; answers may be errors.
fn keep_busy(socket: &std::path::Path, ends: &AtomicBool, flushes: bool) {
    let mut client = Client::connect(socket, PATIENCE);
    for cookie in 0.. {
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

/// Has member 1 fail as `expected` says, under load. What the notice says.
fn lose(failing: &Failing, io: &str, expected: &Expected) -> Value {
    let mut served = failing.serve(&["--io", io]);
    let socket = served.socket.clone();
    let data = failing.data_offset();
    let bytes = match expected.operation {
        "superblock-write" => 0..data,
        _ => data..u64::MAX,
    };
    let Expected { deed, errno, operation, .. } = *expected;
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        if operation != "read" {
            scope.spawn(|| keep_busy(&socket, &ends, operation == "flush"));
            if operation == "flush" {
                // It is active by now: superblocks are made durable like anything else.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        failing.files.fail(1, Fail { deed, bytes, errno });
        if operation == "read" {
            let mut client = Client::connect(&socket, PATIENCE);
            client.ask_read(0, 4 << 20, 1 << 20);
            client.hear().expect("it is reconstructed");
            client.payload(1 << 20);
        }
        served.wait_for("member-out")
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// It was "failed and is out", and nothing more, whatever had happened.
#[test]
fn why_a_member_went_out_is_said() {
    for io in ["ring", "threads"] {
        for expected in &CASES {
            let Some(failing) = Failing::create(RAID_5) else { return };
            let notice = lose(&failing, io, expected);
            let what = format!("{io} {}: {notice}", expected.operation);
            assert_eq!(notice["member"], failing.files.files()[1].display().to_string(), "{what}");
            assert_eq!(notice["slot"], 1, "{what}");
            assert_eq!(notice["operation"], expected.operation, "{what}");
            assert_eq!(notice["os_error"], expected.errno, "{what}");
            assert_eq!(notice["answer"], "os-error", "{what}");
            let words = notice["error"].as_str().expect("words");
            assert!(words.contains(expected.words), "{what}");
            if expected.deed == Deed::Flush {
                assert!(notice.get("sector").is_none(), "a flush has no place: {what}");
            } else {
                let start = number(&notice["sector"]) * SECTOR;
                let end = start + number(&notice["sectors"]) * SECTOR;
                let failed = failing.files.failed();
                // The kernel asks for whole pages, and may ask in parts.
                let is_it = |bytes: &std::ops::Range<u64>| bytes.start < end && start < bytes.end;
                assert!(failed.iter().any(is_it), "{failed:?} {what}");
                if expected.operation == "superblock-write" {
                    assert_eq!(number(&notice["sector"]), 8, "{what}");
                }
            }
        }
    }
}

/// What a person reads says the same in a sentence, and goes on with what it means.
#[test]
fn why_a_member_went_out_is_said_to_a_person() {
    needs!("qemu-io");
    let Some(failing) = Failing::create(RAID_5) else { return };
    failing
        .files
        .fail(1, Fail { deed: Deed::Write, bytes: failing.data_offset()..u64::MAX, errno: EIO });
    let command = "qemu-io -f raw -c 'write 0 1M' -c flush \"$uri\"";
    let mut words =
        failing.array.command_line(&["serve", "--run", command], &failing.files.files());
    words.remove(0);
    let ran = run(env!("CARGO_BIN_EXE_braid"), words);
    let line = ran.stderr.lines().find(|line| line.contains("is out of tank"));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    let says = [
        "m1 failed",
        "(slot 1): write of ",
        " sectors at sector ",
        "Input/output error (os error 5); the others' superblocks say so",
    ];
    assert!(says.iter().all(|part| line.contains(part)), "{line}");
}
