//! An idle array served by threads alone: no thread wakes. The test is a program of its own, since
//! it counts the wake-ups of all threads of the process.

#[path = "kit/client.rs"]
#[allow(dead_code)] // other tests use more of it
mod client;
#[path = "kit/files.rs"]
#[allow(dead_code)] // other tests open files in other ways
mod files;
#[allow(dead_code)] // other tests use arrays in memory
mod kit;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use braid_geometry::Level;
use braid_runtime::{Io, Options};
use client::write;
use files::Files;

/// How often each thread of an array has slept, by the thread's number.
fn sleeps() -> BTreeMap<String, u64> {
    let threads = std::fs::read_dir("/proc/self/task").expect("this process");
    let of = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        let count = field("voluntary_ctxt_switches:")?.parse().ok()?;
        let number = path.file_name()?.to_str()?.to_owned();
        field("Name:")?.starts_with("braid-").then_some((number, count))
    };
    threads.filter_map(|thread| of(thread.ok()?.path())).collect()
}

/// Whether, in one of the next intervals, no thread of an array wakes.
fn rests() -> bool {
    (0..20).any(|_| {
        let before = sleeps();
        std::thread::sleep(Duration::from_millis(1500));
        sleeps() == before
    })
}

#[test]
fn threads_of_an_idle_array_sleep_and_hear_of_a_file_that_is_deleted() {
    let array = Files::new(Level::Raid5, 4, 128, kit::MEMBER_BYTES);
    let options = Options { io: Io::Threads, clean_delay_ms: 20, ..Options::default() };
    let volume = array.open(&options, |_| {});
    write(&volume, 0, &[7; 100_000], true);
    assert!(!sleeps().is_empty(), "they have names");
    assert!(rests(), "nothing is asked");
    std::fs::remove_file(array.path(1)).expect("it was there");
    let start = Instant::now();
    while volume.missing_count() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the loss is heard of");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(rests(), "the others need nothing either");
    assert!(volume.stop().clean);
}
