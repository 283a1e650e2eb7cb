//! Planned and unplanned ends: SIGTERM under load, SIGKILL under load, and the state at a restart.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::kit::{
    Array, Background, Client, RAID_0, RAID_1, RAID_5, RAID_6, RAID_10, Refusal, ServerProcess,
    Shape, assert_same, needs, ok, random_bytes, run, wait_until,
};

/// Bytes of the array's part that is written and flushed; the load avoids this part and its
/// stripes.
const KEPT_BYTES: usize = 6 << 20;

/// Writes and flushes the kept part.
fn keep(array: &Array, served: &ServerProcess, seed: u64) -> Vec<u8> {
    let bytes = random_bytes(seed, KEPT_BYTES);
    let path = array.path("kept.img");
    std::fs::write(&path, &bytes).expect("a file");
    let write = format!("write -s {} 0 {KEPT_BYTES}", path.display());
    ok("qemu-io", ["-f", "raw", "-c", &write, "-c", "flush", served.uri.as_str()]);
    bytes
}

fn assert_kept(array: &Array, served: &ServerProcess, kept: &[u8], what: &str) {
    assert_same(&served.read_all(array)[..KEPT_BYTES], kept, what);
}

/// The last member's content after its superblock, bitmap and logs.
fn data_of(array: &Array) -> Vec<u8> {
    let last = array.members.last().expect("a member");
    std::fs::read(last).expect("a member").split_off(1 << 20)
}

/// Writes endlessly beyond the kept part; returns as soon as writes reach the members.
fn endless_load(array: &Array, served: &ServerProcess) -> Background {
    let before = data_of(array);
    let uri = format!("--uri={}", served.uri);
    let load = Background::spawn(
        "fio",
        [
            "--name=load",
            "--ioengine=nbd",
            uri.as_str(),
            "--rw=randwrite",
            "--bs=16k",
            "--iodepth=32",
            "--offset=8m",
            "--size=5m",
            "--time_based",
            "--runtime=60",
        ],
    );
    wait_until("the load to begin", Duration::from_secs(30), || data_of(array) != before);
    load
}

/// Stops while a client writes: the client gets errors, the array is clean, flushed data can be
/// read.
fn stop_under_load(shape: Shape) {
    let array = Array::create(shape);
    let served = array.serve();
    let kept = keep(&array, &served, 20);
    let load = endless_load(&array, &served);
    let start = Instant::now();
    served.stop();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(12), "stopping took {took:?}");
    assert!(!load.wait().status.success(), "the client was not told");

    let mut served = array.serve();
    assert_eq!(served.wait_for("assembled")["dirty"], false);
    assert_kept(&array, &served, &kept, "after a stop");
    served.stop();
}

#[test]
fn sigterm_under_load_raid_0() {
    needs!("fio", "qemu-io", "nbdcopy");
    stop_under_load(RAID_0);
}

#[test]
fn sigterm_under_load_raid_5() {
    needs!("fio", "qemu-io", "nbdcopy");
    stop_under_load(RAID_5);
}

#[test]
fn sigterm_under_load_raid_10() {
    needs!("fio", "qemu-io", "nbdcopy");
    stop_under_load(RAID_10);
}

/// A connected, silent client does not delay a stop.
#[test]
fn sigterm_with_an_idle_client_takes_no_time() {
    needs!("nbdcopy", "qemu-storage-daemon");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let socket = served.socket.display();
    let node = format!("driver=nbd,node-name=disk,server.type=unix,server.path={socket}");
    let mut client = Background::spawn("qemu-storage-daemon", ["--blockdev", &node]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!client.has_ended(), "the client did not stay");
    let start = Instant::now();
    served.stop();
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

/// Kills the server of a healthy array during writes: the array is dirty, and flushed data can be
/// read.
fn kill_under_load(shape: Shape) {
    let array = Array::with_bitmap(shape);
    let served = array.serve();
    let kept = keep(&array, &served, 21);
    let load = endless_load(&array, &served);
    served.kill();
    assert!(!load.wait().status.success(), "the client was not told");
    let mut served = array.serve();
    let assembled = served.wait_for("assembled");
    assert_eq!(assembled["dirty"], true, "{assembled}");
    assert_eq!(assembled["degraded_slots"], 0, "{assembled}");
    assert_kept(&array, &served, &kept, "after a kill");
    served.stop();
}

#[test]
fn sigkill_under_load_raid_1() {
    needs!("fio", "qemu-io", "nbdcopy");
    kill_under_load(RAID_1);
}

#[test]
fn sigkill_under_load_raid_5() {
    needs!("fio", "qemu-io", "nbdcopy");
    kill_under_load(RAID_5);
}

#[test]
fn sigkill_under_load_raid_6() {
    needs!("fio", "qemu-io", "nbdcopy");
    kill_under_load(RAID_6);
}

/// The number of stripes in the last remedy of a refusal.
fn stripes_at_risk(refusal: &Refusal) -> u64 {
    let remedies = refusal.json["remedies"].as_array().expect("a list");
    let command = remedies.last().expect("one")["command"].as_str().expect("a command");
    let count = command.strip_prefix("braid serve --accept-risk ");
    let count = count.and_then(|rest| rest.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no count in {command}"))
}

/// The server is killed during writes, then a member is missing: only the bitmap's set bits are at
/// risk.
#[test]
fn dirty_and_degraded_costs_what_the_bitmap_names() {
    needs!("fio", "qemu-io", "nbdcopy");
    let array = Array::create_with(
        "tank",
        RAID_5,
        "16M",
        &["--consistency", "bitmap", "--bitmap-chunk", "1M"],
    );
    let served = array.serve();
    let kept = keep(&array, &served, 23);
    let is_clear = || {
        let ran = array.braid(&["examine"], &array.members[..1]);
        ran.stdout.contains("\"bits_set\":0")
    };
    wait_until("bits to be cleared", Duration::from_secs(60), is_clear);
    let load = endless_load(&array, &served);
    served.kill();
    drop(load);
    let rest = array.without(&[1]);
    let refusal = array.serve_refused(&[], &rest);
    refusal.is("B031", 12);
    let stripes = stripes_at_risk(&refusal);
    // 5 MiB of 8 are written, in stripes of 192 KiB; a bit of the bitmap covers 16 stripes.
    assert!((16..=64).contains(&stripes), "{stripes}");
    let served = array.serve_with(&["--read-only"], &rest);
    let mut client = Client::connect(&served.socket, Duration::from_secs(10));
    client.ask_read(0, 0, KEPT_BYTES);
    client.hear().expect("no client wrote there");
    assert!(client.payload(KEPT_BYTES) == kept, "what was flushed is there");
    let read = run("qemu-io", ["-r", "-f", "raw", "-c", "read 8M 4M", served.uri.as_str()]);
    assert!(read.stdout.contains("read failed: Input/output error"), "{read:?}");
    served.stop();
}

/// Kills the server during writes, and then a member is missing as well: the array is refused,
/// unless the operator accepts the risk.
fn dirty_and_degraded(shape: Shape) {
    let array = Array::with_bitmap(shape);
    let served = array.serve();
    let kept = keep(&array, &served, 22);
    let load = endless_load(&array, &served);
    served.kill();
    drop(load);
    let rest = array.without(&[1]);
    let refusal = array.serve_refused(&[], &rest);
    refusal.is("B031", 12);
    let stripes = stripes_at_risk(&refusal);
    let fewer = (stripes - 1).to_string();
    array.serve_refused(&["--accept-risk", &fewer], &rest).is("B031", 12);
    let stripes = stripes.to_string();

    let before: Vec<_> = rest.iter().map(|path| std::fs::read(path).expect("a member")).collect();
    // Read-only serving does not read data at risk either.
    let served = array.serve_with(&["--read-only"], &rest);
    let read = run("qemu-io", ["-r", "-f", "raw", "-c", "read 8M 4M", served.uri.as_str()]);
    assert!(read.stdout.contains("read failed: Input/output error"), "{read:?}");
    served.stop();
    let served = array.serve_with(&["--read-only", "--accept-risk", &stripes], &rest);
    assert_kept(&array, &served, &kept, "read-only, at risk");
    served.stop();
    for (path, before) in rest.iter().zip(before) {
        assert!(std::fs::read(path).expect("a member") == before, "{path:?} was written");
    }

    let served = array.serve_with(&["--accept-risk", &stripes], &rest);
    assert_kept(&array, &served, &kept, "the risk accepted");
    let kept = keep(&array, &served, 23);
    served.stop();
    // After a clean stop the array is only degraded.
    let mut served = array.serve_with(&[], &rest);
    let assembled = served.wait_for("assembled");
    assert_eq!(assembled["dirty"], false, "{assembled}");
    assert_kept(&array, &served, &kept, "after the risk");
    served.stop();
}

#[test]
fn dirty_and_degraded_raid_5() {
    needs!("fio", "qemu-io", "nbdcopy");
    dirty_and_degraded(RAID_5);
}

#[test]
fn dirty_and_degraded_raid_6() {
    needs!("fio", "qemu-io", "nbdcopy");
    dirty_and_degraded(RAID_6);
}

/// A member fails first, and then the server is killed: the array is dirty and degraded as well.
#[test]
fn killed_while_degraded_is_refused() {
    needs!("fio", "qemu-io", "nbdcopy");
    let array = Array::with_bitmap(RAID_5);
    let mut served = array.serve();
    let kept = keep(&array, &served, 24);
    served.lose(&array, 0);
    let load = endless_load(&array, &served);
    served.kill();
    drop(load);
    let refusal = array.serve_refused(&[], &array.present());
    refusal.is("B031", 12);
    let stripes = stripes_at_risk(&refusal).to_string();
    let served = array.serve_with(&["--accept-risk", &stripes], &array.present());
    assert_kept(&array, &served, &kept, "the risk accepted");
    served.stop();
}

/// An array that was idle for a while is clean on disk, so a kill costs nothing.
#[test]
fn killed_while_idle_is_clean() {
    needs!("qemu-io", "nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let kept = keep(&array, &served, 25);
    std::thread::sleep(Duration::from_secs(1));
    served.kill();
    let mut served = array.serve_with(&[], &array.without(&[0]));
    assert_eq!(served.wait_for("assembled")["dirty"], false);
    assert_kept(&array, &served, &kept, "after a kill");
    served.stop();
}

/// RAID-0 has no redundancy: the array refuses writes, which would be lost when the deleted member
/// file is closed, and the exit status shows it. The remaining data can still be read.
#[test]
fn losing_a_member_of_raid_0_is_said_and_ends_writes() {
    needs!("qemu-io", "nbdcopy");
    let array = Array::create(RAID_0);
    let mut served = array.serve();
    let kept = keep(&array, &served, 26);
    std::fs::remove_file(&array.members[1]).expect("a member");
    served.wait_for("Broken");
    let arguments = ["-f", "raw", "-c", "write -P 1 0 1M", served.uri.as_str()];
    let ran = crate::kit::run("qemu-io", arguments);
    assert!(!ran.status.success(), "a write to a broken array went through: {ran:?}");
    assert_kept(&array, &served, &kept, "while the file is open");
    served.signal(Signal::TERM);
    let status = served.wait();
    assert_eq!(served.wait_for("stopped")["clean"], false);
    assert_eq!(status.code(), Some(3), "{status}");
}
