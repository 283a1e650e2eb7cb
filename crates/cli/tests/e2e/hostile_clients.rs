//! Clients that exhaust memory (by announcing much data), connections or descriptors, while the
//! server is under the limits of a service manager or a container.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::kit::{Array, RAID_5, RawClient, ServerProcess, needs, wait_until};

const CLIENTS: usize = 63;
/// The longest allowed request.
const REQUEST_BYTES: u32 = 64 << 20;
/// Longest wait of a well-behaved client for 4 KiB, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client whose socket calls have a timeout.
fn connect(socket: &Path) -> std::io::Result<RawClient> {
    RawClient::connect(socket, PATIENCE)
}

fn ask(client: &mut RawClient, round: u8) {
    let (data, mut found, mut reply) = ([round; 4096], [0; 4096], [0; 16]);
    let offset = u64::from(round) * 4096;
    let write = RawClient::header(1, offset, 4096);
    client.0.write_all(&[&write[..], &data].concat()).expect("it is taken");
    client.0.read_exact(&mut reply).expect("it is answered");
    client.0.write_all(&RawClient::header(0, offset, 4096)).expect("it is taken");
    client.0.read_exact(&mut reply).and_then(|()| client.0.read_exact(&mut found)).expect("data");
    assert_eq!(found, data);
}

/// Attacks a server with many clients, under a limit that `setup` sets.
fn attacked(setup: &str, io: &str) {
    let array = Array::create_sized(RAID_5, "32M");
    let served = ServerProcess::start_under(setup, &array, &["--io", io], &array.members);
    let mut good = connect(&served.socket).expect("let in");
    (0..100).for_each(|round| ask(&mut good, round));
    let before = served.status_bytes("VmRSS");
    let mut attackers = Vec::new();
    for kind in 0..CLIENTS {
        let mut attacker = connect(&served.socket).expect("let in");
        let offset = kind as u64 / 4 % 2; // unaligned, some of them
        attacker.attack(kind, offset, REQUEST_BYTES).expect("a header is taken");
        attackers.push(attacker);
    }
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    for round in 0..200 {
        let asked = Instant::now();
        ask(&mut good, round);
        longest = longest.max(asked.elapsed());
    }
    assert!(longest < PATIENCE && start.elapsed() < 4 * PATIENCE, "{longest:?} at most");
    let grown = served.status_bytes("VmHWM").saturating_sub(before) >> 20;
    assert!(grown <= 256, "{setup}, {io}: it holds {grown} MiB more");
    // A new client is served as well, also with a larger request.
    let mut late = connect(&served.socket).expect("let in");
    ask(&mut late, 7);
    drop(attackers);
    late.0.write_all(&RawClient::header(0, 0, 8 << 20)).expect("it is taken");
    let mut reply = vec![0; 16 + (8 << 20)];
    late.0.read_exact(&mut reply).expect("the memory is there again");
    drop((good, late));
    served.stop();
}

#[test]
fn clients_that_say_much_and_send_little_hold_little_on_the_ring() {
    attacked("true", "auto");
}

#[test]
fn clients_that_say_much_and_send_little_hold_little_on_threads() {
    attacked("true", "threads");
}

#[test]
fn clients_that_say_much_and_send_little_do_not_kill_it_within_512_mib_on_the_ring() {
    attacked("ulimit -v 524288", "auto");
}

#[test]
fn clients_that_say_much_and_send_little_do_not_kill_it_within_512_mib_on_threads() {
    attacked("ulimit -v 524288", "threads");
}

/// Regression: thread stacks used up the address space, and a failed allocation ended the process.
#[test]
fn more_clients_than_there_are_addresses_for_do_not_kill_it_on_threads() {
    let array = Array::create_sized(RAID_5, "32M");
    let setup = "ulimit -v 409600";
    let served = ServerProcess::start_under(setup, &array, &["--io", "threads"], &array.members);
    let mut good = connect(&served.socket).expect("let in");
    let mut attackers = Vec::new();
    for kind in 0..250 {
        if let Ok(mut attacker) = connect(&served.socket) {
            // The server may cut off a client for which it has no room.
            let _ = attacker.0.write_all(&RawClient::header(0, 0, 1 << 20).repeat(20));
            attackers.push(attacker);
        }
        ask(&mut good, kind);
    }
    assert!(attackers.len() >= 16, "only {} were let in", attackers.len());
    let left = (409_600_u64 << 10).saturating_sub(served.status_bytes("VmPeak")) >> 20;
    assert!(left >= 8, "{left} MiB were left");
    drop((attackers, good));
    served.stop();
}

#[test]
fn clients_that_say_much_and_send_little_do_not_kill_it_within_2_gib() {
    attacked("ulimit -v 2097152", "auto");
}

#[test]
fn out_of_descriptors_it_says_so_and_goes_on_when_there_are_some() {
    let array = Array::create(RAID_5);
    let mut served = ServerProcess::start_under("ulimit -n 48", &array, &[], &array.members);
    assert_eq!(served.wait_for("few-descriptors")["connections"], 256);
    let mut clients = Vec::new();
    let mut waiting = loop {
        assert!(clients.len() < 60, "it has told no client");
        // A client beyond the limit is not answered until another one has left.
        let mut stream = UnixStream::connect(&served.socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
        if stream.read_exact(&mut [0; 18]).is_err() {
            break stream;
        }
        clients.push(RawClient::greeted(stream).expect("let in"));
    };
    served.wait_for("no-descriptors");
    assert!(served.events("descriptors-again").is_empty() && clients.len() > 10);
    drop(clients);
    waiting.set_read_timeout(Some(PATIENCE)).expect("a socket");
    waiting.read_exact(&mut [0; 18]).expect("its greeting, now that there is room");
    served.wait_for("descriptors-again");
    drop(waiting);
    wait_until("the clients to leave", PATIENCE, || connect(&served.socket).is_ok());
    served.stop();
}

#[test]
fn without_a_descriptor_for_a_client_it_does_not_start() {
    let array = Array::create(RAID_5);
    let uri = format!("nbd+unix:///?socket={}", array.path("s").display());
    let serve = ["serve", "--io", "threads", "--run", "true", "--nbd", &uri];
    let mut codes = Vec::new();
    for limit in 10..64 {
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let mut words = vec!["-c".to_owned(), script, "sh".to_owned()];
        words.push(env!("CARGO_BIN_EXE_braid").to_owned());
        words.extend(array.command_line(&serve, &array.members));
        let ran = crate::kit::run("/bin/sh", words);
        if ran.status.success() {
            break;
        }
        let last = ran.stdout.lines().last().unwrap_or_default();
        let error: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
        codes.push(error["code"].as_str().unwrap_or("none").to_owned());
        if codes.last().is_some_and(|code| code == "B076") {
            assert!(error["remedies"].to_string().contains("ulimit -"), "{error}");
        }
    }
    assert!(codes.contains(&"B076".to_owned()), "{codes:?}");
}

#[test]
fn a_full_server_tells_its_client_and_its_operator() {
    needs!("qemu-io");
    let array = Array::create(RAID_5);
    let mut served = array.serve_with(&["--connections", "2"], &array.members);
    let clients = [0, 1].map(|_| connect(&served.socket).expect("let in"));
    let ran = crate::kit::run("qemu-io", ["-f", "raw", "-c", "read 0 512", &served.uri]);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!ran.status.success() && said.contains("all 2 connections are in use"), "{said}");
    assert_eq!(served.wait_for("full")["connections"], 2);
    drop(clients);
    served.stop();
}
