//! The array as a disk of a virtual machine, whose part the test plays: the loss of a member, kills
//! of the server, machines that leave and return, and refusals. `cargo xtask guests` boots a guest
//! from such a disk.

mod machine;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::kit::{Array, RAID_5, RAID_6, ServerProcess, assert_same, needs, random_bytes};
use crate::remedies::words_of;
use machine::{Ask, Machine, SLOT_BYTES, SLOTS};

fn socket(array: &Array) -> PathBuf {
    array.path("machine.sock")
}

fn serve(array: &Array, more: &[&str]) -> ServerProcess {
    let path = socket(array).display().to_string();
    array.serve_with(&[&["--vhost-user", &path], more].concat(), &array.present())
}

fn status(array: &Array) -> Value {
    let ran = array.braid(&["status", "tank"], &[]);
    let status: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    status["arrays"][0].clone()
}

#[test]
fn what_a_machine_writes_is_there_for_all_and_survives_a_member() {
    needs!("nbdcopy");
    for io in ["auto", "threads"] {
        let array = Array::create(RAID_5);
        let mut served = serve(&array, &["--io", io]);
        let path = socket(&array).display().to_string();
        assert_eq!(served.wait_for("serving")["vhost_user"], path.as_str());
        assert_eq!(status(&array)["vhost_user"], path.as_str());
        let mut machine = Machine::new();
        machine.plug(&socket(&array));
        assert_eq!(machine.configuration(0, 8) * 512, served.size_bytes);
        let mut bytes = random_bytes(3, served.length());
        machine.write_all(&bytes);
        assert_eq!(machine.ask(Ask::Flush, 0, Ok(&[])), 0);
        assert_same(
            &served.read_all(&array),
            &bytes,
            "what the machine wrote, for a client of NBD",
        );
        served.lose(&array, 2);
        assert_same(&machine.read_all(bytes.len()), &bytes, "what was there, without a member");
        // A member is missing: the machine writes parts of chunks, writes zeroes, and discards.
        let part = random_bytes(4, 70 << 10);
        assert_eq!(machine.ask(Ask::Write, 99, Ok(&part)), 0);
        bytes[99 * 512..][..part.len()].copy_from_slice(&part);
        assert_eq!(machine.clear(Ask::Zero, 1001, 300), 0);
        bytes[1001 * 512..][..300 * 512].fill(0);
        assert_eq!(machine.clear(Ask::Discard, 4096, 256), 0);
        assert_eq!(machine.ask(Ask::Read, 4096 + 256, Err(512)), 0);
        let after = machine.read_all(bytes.len());
        assert_same(&after[..4096 * 512], &bytes[..4096 * 512], "before what was discarded");
        assert_same(
            &after[(4096 + 256) * 512..],
            &bytes[(4096 + 256) * 512..],
            "behind what was discarded",
        );
        assert_eq!(machine.ask(Ask::Name, 0, Err(20)), 0);
        let name = String::from_utf8(machine.bytes(0, 20)).expect("digits");
        let uuid = status(&array)["uuid"].as_str().expect("a UUID").replace([':', '-'], "");
        assert_eq!(name, uuid[..20]);
        // A request beyond the disk's end fails, and no other request does.
        assert_eq!(machine.ask(Ask::Read, served.size_bytes / 512, Err(512)), 1);
        assert_eq!(machine.clear(Ask::Discard, 0, u32::MAX), 1);
        assert!(machine.stop_ring() > 0);
        machine.unplug();
        served.stop();
    }
}

#[test]
fn a_server_that_is_killed_is_followed_by_one_that_knows_what_was_asked() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let mut served = serve(&array, &[]);
    assert_eq!(status(&array)["settings"]["cache"], array.default_cache());
    let mut machine = Machine::new();
    machine.plug(&socket(&array));
    let mut bytes = random_bytes(5, served.length());
    machine.write_all(&bytes);
    let mut random = fastrand::Rng::with_seed(11);
    let (mut open_at_death, mut answered) = (0, 0);
    // Each ring slot writes its own part of the disk, so that the part's content is known.
    let part = bytes.len() / usize::from(SLOTS) / 512 * 512;
    for _ in 0..12 {
        let process = i32::try_from(served.process_id()).expect("a process id");
        let process = Pid::from_raw(process).expect("not zero");
        let (moment, is_dead) =
            (Duration::from_micros(random.u64(..30_000)), AtomicBool::new(false));
        // Waits for one answer, since on a busy machine the server would be killed before its first
        // answer.
        let has_answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let began = std::time::Instant::now();
                while !has_answered.load(Ordering::Relaxed)
                    && began.elapsed() < Duration::from_secs(20)
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(moment);
                kill_process(process, Signal::KILL).expect("our own child");
                is_dead.store(true, Ordering::Relaxed);
            });
            let mut free: Vec<u16> = (0..SLOTS).collect();
            while !is_dead.load(Ordering::Relaxed) {
                for slot in free.drain(..) {
                    let most = part.min(usize::try_from(SLOT_BYTES).expect("small"));
                    let length = random.usize(1..=most / 512) * 512;
                    let at = random.usize(0..=(part - length) / 512) * 512;
                    let at = usize::from(slot) * part + at;
                    let new = random_bytes(random.u64(..), length);
                    bytes[at..at + length].copy_from_slice(&new);
                    machine.put(slot, Ask::Write, at as u64 / 512, Ok(&new));
                }
                machine.kick();
                free.extend(machine.answered());
                assert!(free.iter().all(|slot| machine.status(*slot) == 0), "no request failed");
                answered += free.len();
                has_answered.fetch_or(!free.is_empty(), Ordering::Relaxed);
            }
        });
        served.kill();
        answered += machine.answered().len();
        open_at_death += machine.open();
        served = serve(&array, &[]);
        machine.plug(&socket(&array));
        machine.wait();
        assert!((0..SLOTS).all(|slot| machine.status(slot) == 0), "no request failed");
    }
    assert!(answered > 0, "it did nothing");
    assert!(open_at_death > 0, "it has died between requests only");
    assert_same(&machine.read_all(bytes.len()), &bytes, "after all kills, for the machine");
    assert_same(&served.read_all(&array), &bytes, "after all kills, for a client of NBD");
    served.stop();
}

#[test]
fn machines_go_and_come_and_nonsense_is_let_go() {
    let array = Array::create(RAID_6);
    let mut served = serve(&array, &[]);
    let bytes = random_bytes(6, 1 << 20);
    for turn in 0..5 {
        let mut machine = Machine::new();
        machine.plug(&socket(&array));
        machine.write_all(&bytes[turn * 512..]);
        // The machine disconnects with requests in flight.
        for slot in 0..SLOTS {
            machine.put(slot, Ask::Read, u64::from(slot), Err(4096));
        }
        machine.kick();
        machine.unplug();
        let mut nonsense = UnixStream::connect(socket(&array)).expect("it is listened at");
        // The server may cut the connection while the bytes are sent.
        let _ = nonsense.write_all(&random_bytes(turn as u64, 5000));
    }
    let mut machine = Machine::new();
    machine.plug(&socket(&array));
    assert_same(
        &machine.read_all(1 << 19),
        &bytes[4 * 512..][..1 << 19],
        "after machines that went",
    );
    served.signal(Signal::TERM);
    let cut = served.wait_for("machine-cut");
    assert_eq!(cut["unanswered"], 0, "{cut}");
    assert!(served.wait().success());
    assert!(!socket(&array).exists(), "its socket is left behind");
    // The machine continues with the next server, at the same position of its ring.
    let served = serve(&array, &[]);
    machine.plug(&socket(&array));
    assert_same(&machine.read_all(1 << 19), &bytes[4 * 512..][..1 << 19], "with the next server");
    machine.unplug();
    served.stop();
}

#[test]
fn a_machine_may_not_write_what_is_only_read() {
    let array = Array::create(RAID_5);
    let served = serve(&array, &["--read-only"]);
    let mut machine = Machine::new();
    machine.plug(&socket(&array));
    assert_eq!(machine.ask(Ask::Read, 0, Err(4096)), 0);
    assert_eq!(machine.ask(Ask::Write, 0, Ok(&[7; 512])), 1);
    assert_eq!(machine.clear(Ask::Zero, 0, 8), 1);
    machine.unplug();
    served.stop();
}

#[test]
fn a_confined_server_has_machines_too() {
    let array = Array::create(RAID_5);
    for io in ["auto", "threads"] {
        let served = serve(&array, &["--confine", "full", "--io", io]);
        let confined = status(&array)["confined"].clone();
        assert_eq!(confined, json!(["files", "system-calls", "capabilities"]));
        let mut machine = Machine::new();
        machine.plug(&socket(&array));
        let bytes = random_bytes(7, 1 << 20);
        machine.write_all(&bytes);
        assert_same(&machine.read_all(bytes.len()), &bytes, "in a confined server");
        machine.unplug();
        served.stop();
    }
}

#[test]
fn a_socket_that_is_taken_is_refused_and_another_is_offered() {
    let (array, other) = (Array::create(RAID_5), Array::create(RAID_5));
    let served = serve(&array, &[]);
    let path = socket(&array).display().to_string();
    let refused = other.refused(&["serve", "--vhost-user", &path], &other.members);
    refused.is("B070", 11);
    let elsewhere = other.path("elsewhere.sock").display().to_string();
    let chosen = [("/tmp/other.sock", &*elsewhere), ("MEMBER...", &*words_of(&other.members))];
    other.follow_with(&refused.json, "Name another place", &chosen);
    let mut machine = Machine::new();
    machine.plug(&socket(&array));
    assert_eq!(machine.ask(Ask::Flush, 0, Ok(&[])), 0);
    machine.unplug();
    served.stop();
}
