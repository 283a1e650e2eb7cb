//! Tests that a stop takes bounded time and delivers replies in flight, in every state that a
//! client can have.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::{Client, eventually, serve, serve_memory, shelving, succeed};
use braid_frontend_nbd::{Settings, StopReport};
use braid_nbd_proto::Command;

const CLEAN: StopReport = StopReport { cut: 0, still_running: 0 };

#[test]
fn an_idle_server_stops_at_once_and_removes_its_socket() {
    let (served, _export) = serve_memory(4096);
    let idle = Client::connect(&served.socket);
    let half_open = UnixStream::connect(&served.socket).unwrap();
    let mut talking = UnixStream::connect(&served.socket).unwrap();
    talking.write_all(&[0, 0, 0]).unwrap();
    eventually("all are in", || served.server.counts().connections == 3);
    let start = Instant::now();
    assert_eq!(served.server.stop(Duration::from_secs(10)), CLEAN);
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(!served.socket.exists());
    drop((idle, half_open));
}

#[test]
fn requests_in_flight_are_answered_before_the_end() {
    let (export, shelf) = shelving();
    let served = serve(vec![export], Settings::default());
    let mut client = Client::connect(&served.socket);
    for _ in 0..10 {
        client.send(Command::Read { offset: 0, length: 4096, dont_fragment: false }, &[]);
    }
    eventually("all ten are in flight", || shelf.lock().unwrap().len() == 10);
    let stopping = std::thread::spawn(move || served.server.stop(Duration::from_secs(20)));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!stopping.is_finished(), "it waits for them");
    for (operation, done) in shelf.lock().unwrap().drain(..) {
        succeed(operation, done);
    }
    for _ in 0..10 {
        assert_eq!(client.wait().unwrap().1.unwrap().len(), 4096);
    }
    assert!(client.wait().is_none());
    drop(client);
    assert_eq!(stopping.join().unwrap(), CLEAN);
}

#[test]
fn neither_a_stuck_export_nor_a_stuck_client_can_hold_it() {
    let (export, shelf) = shelving();
    let served = serve(vec![export], Settings::default());
    let mut stuck = Client::connect(&served.socket);
    stuck.send(Command::Flush, &[]);
    let mut midway = Client::connect(&served.socket);
    let write = Command::Write { offset: 0, length: 4096, fua: false };
    midway.stream.write_all(&write.header(1).encode()).unwrap();
    midway.stream.write_all(&[1; 100]).unwrap();
    eventually("the flush is in flight", || shelf.lock().unwrap().len() == 1);
    let start = Instant::now();
    let report = served.server.stop(Duration::from_millis(300));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(report.cut, 1, "the one whose request never ended");
    assert_eq!(shelf.lock().unwrap().len(), 1, "half a write is no write");
    // The export completes its requests after the server's end; the completions must be harmless.
    for (operation, done) in shelf.lock().unwrap().drain(..) {
        succeed(operation, done);
    }
}

#[test]
fn a_client_that_does_not_read_is_cut_at_the_deadline() {
    let (served, _export) = serve_memory(8 << 20);
    let mut stalled = Client::connect(&served.socket);
    for _ in 0..8 {
        stalled.send(Command::Read { offset: 0, length: 8 << 20, dont_fragment: false }, &[]);
    }
    eventually("they have arrived", || served.server.counts().requests >= 5);
    let start = Instant::now();
    let report = served.server.stop(Duration::from_millis(300));
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(report, StopReport { cut: 1, still_running: 0 });
}

#[test]
fn a_client_that_never_reads_does_not_cost_a_stop_ten_seconds() {
    let (served, _export) = serve_memory(8 << 20);
    let read = Command::Read { offset: 0, length: 8 << 20, dont_fragment: false };
    let mut stalled = Client::connect(&served.socket);
    let mut slow = Client::try_connect(&served.socket, "", false).unwrap();
    for client in [&mut stalled, &mut slow] {
        for _ in 0..3 {
            client.send(read, &[]);
        }
    }
    eventually("they have arrived", || served.server.counts().requests == 6);
    let taking = std::thread::spawn(move || {
        let (mut taken, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let received = slow.stream.read(&mut buffer).unwrap();
            taken += received;
            if received == 0 {
                return taken;
            }
        }
    });
    let start = Instant::now();
    let report = served.server.stop(Duration::from_secs(20));
    assert_eq!(report, StopReport { cut: 1, still_running: 0 }, "after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!(taking.join().unwrap(), 3 * ((8 << 20) + 16), "one that reads has its replies");
}

#[test]
fn a_client_that_never_reads_is_waited_for_two_seconds() {
    let (served, _export) = serve_memory(8 << 20);
    let mut stalled = Client::connect(&served.socket);
    stalled.send(Command::Read { offset: 0, length: 8 << 20, dont_fragment: false }, &[]);
    eventually("it has arrived", || served.server.counts().requests == 1);
    let start = Instant::now();
    let report = served.server.stop(Duration::from_secs(10));
    assert_eq!(report, StopReport { cut: 1, still_running: 0 });
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn dropping_a_server_ends_it() {
    let (served, _export) = serve_memory(4096);
    let mut client = Client::connect(&served.socket);
    drop(served.server);
    assert!(client.next_event().is_none());
    assert!(UnixStream::connect(&served.socket).is_err());
}

#[test]
fn stop_survives_every_moment_of_a_busy_client() {
    for round in 0..30_u64 {
        let (served, _export) = serve_memory(1 << 20);
        let socket = served.socket.clone();
        let busy = std::thread::spawn(move || {
            let Some(mut client) = Client::try_connect(&socket, "", round % 2 == 0) else { return };
            let read = Command::Read { offset: 0, length: 65_536, dont_fragment: false };
            for cookie in 0..10_000 {
                let sent = client.stream.write_all(&read.header(cookie).encode());
                if sent.is_err() {
                    return;
                }
            }
        });
        std::thread::sleep(Duration::from_micros(round * 137));
        let start = Instant::now();
        let report = served.server.stop(Duration::from_millis(100));
        assert!(start.elapsed() < Duration::from_secs(2));
        assert_eq!(report.still_running, 0);
        busy.join().unwrap();
    }
}

#[test]
fn a_client_that_never_reads_and_has_its_fill_in_flight_is_waited_for_two_seconds() {
    let (served, _export) = serve_memory(8 << 20);
    let mut stalled = Client::connect(&served.socket);
    for _ in 0..200 {
        stalled.send(Command::Read { offset: 0, length: 64 << 10, dont_fragment: false }, &[]);
    }
    eventually("as many as may are there", || served.server.counts().requests >= 128);
    let start = Instant::now();
    let report = served.server.stop(Duration::from_secs(10));
    assert_eq!(report, StopReport { cut: 1, still_running: 0 });
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}
