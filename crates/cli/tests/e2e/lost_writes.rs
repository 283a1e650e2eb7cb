//! Acknowledged writes that fail later.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::kit::{Array, RAID_5, needs, ok, run, wait_until};

/// Makes members take no more data, as on a full file system; superblocks are below the size limit.
fn fill_up(id: u32) {
    let pid = Pid::from_raw(i32::try_from(id).expect("a process id")).expect("not zero");
    let limit = Some(1 << 20);
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: limit, maximum: limit })
        .expect("our own child");
}

#[test]
fn an_answered_write_that_was_lost_is_not_read_as_the_old_bytes() {
    needs!("fio", "qemu-io");
    let array = Array::create_sized(RAID_5, "32M");
    let mut served =
        array.serve_with(&["--cache", "writeback", "--dirty-age", "60000"], &array.members);
    let (disk, at) = (served.uri.clone(), 2 << 20);
    let uri = format!("--uri={disk}");
    // Opens the disk read-only: otherwise qemu-io flushes at its end.
    let read = |pattern: u8, at: u64| {
        let command = format!("read -P {pattern} {at} 4096");
        let ran = run("qemu-io", ["-r", "-f", "raw", "-c", &command, disk.as_str()]);
        ran.stdout + &ran.stderr
    };
    let flush = || {
        // QEMU flushes only after it has written itself.
        let words = ["-f", "raw", "-c", "write -P 1 16M 4k", "-c", "flush", disk.as_str()];
        run("qemu-io", words).status.success()
    };
    // The writes are small and scattered, so that no stripe fills up and is written early.
    let writes = ["--rw=write:60k", "--bs=4k", "--size=2m", "--io_size=128k", "--offset=2m"];
    let written = ["--name=w", "--ioengine=nbd", &uri, "--buffer_pattern=0x5a5a5a5a"];
    ok("fio", written.iter().chain(&writes));
    let ours = read(0x5a, at);
    assert!(ours.contains("read 4096/4096"), "out of the payload: {ours}");

    fill_up(served.process_id());
    assert!(!flush(), "what cannot be written is not flushed");
    let lost = served.wait_for("WriteLost");
    let is_ours = |lost: &serde_json::Value| lost["details"]["offset_bytes"] == at;
    wait_until("the range to be named", Duration::from_secs(10), || {
        served.events("WriteLost").iter().any(is_ours)
    });
    assert_eq!(lost["details"]["length_bytes"], 4096, "{lost}");
    let old = read(0, at);
    assert!(old.contains("Input/output error"), "the old bytes, without an error: {old}");
    let beside = read(0, at + 4096);
    assert!(beside.contains("read 4096/4096"), "nothing was written there: {beside}");
    assert!(!flush(), "the next client is told, too");
    let map = ok("nbdinfo", ["--map", disk.as_str()]);
    assert!(!map.contains("hole"), "what cannot be read is no hole: {map}");

    served.signal(rustix::process::Signal::TERM);
    assert_eq!(served.wait().code(), Some(3), "it needs attention");
    let stopped = served.wait_for("stopped");
    assert!(stopped["lost_bytes"].as_u64() >= Some(128 << 10), "{stopped}");
    assert_eq!(stopped["clean"], false, "{stopped}");
}
