//! Clients that stall, die and lie cost their own connection and nobody else's.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{ErrorCode, Settings};
use braid_nbd_proto::{Command, wire};
use common::{Client, OddExport, eventually, serve, serve_memory, succeed};

/// All that a client says to read one sector with structured replies.
fn whole_handshake() -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(wire::encode_option(wire::OPT_STRUCTURED_REPLY, &[]));
    let mut context = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
    context.extend_from_slice(b"base:allocation");
    bytes.extend(wire::encode_option(wire::OPT_SET_META_CONTEXT, &context));
    bytes.extend(wire::encode_option(wire::OPT_LIST, &[]));
    bytes.extend(wire::encode_option(wire::OPT_GO, &[0, 0, 0, 0, 0, 1, 0, 3]));
    bytes.extend(Command::Read { offset: 0, length: 512, dont_fragment: false }.header(1).encode());
    bytes.extend(Command::Write { offset: 0, length: 64, fua: true }.header(2).encode());
    bytes.extend_from_slice(&[9; 64]);
    bytes
}

#[test]
fn a_client_may_vanish_at_every_byte() {
    let (served, _export) = serve_memory(1 << 16);
    let handshake = whole_handshake();
    for cut in 0..handshake.len() {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.write_all(&handshake[..cut]).unwrap();
    }
    let mut whole = UnixStream::connect(&served.socket).unwrap();
    whole.write_all(&handshake).unwrap();
    eventually("the one that stays has written", || served.server.counts().bytes_written > 0);
    drop(whole);
    eventually("all have come and gone", || {
        let counts = served.server.counts();
        counts.negotiated + counts.negotiations_failed == handshake.len() as u64 + 1
            && counts.connections == 0
    });
    let counts = served.server.counts();
    assert_eq!((counts.panics, counts.refused, counts.contract_breaches), (0, 0, 0));
    assert_eq!(counts.accepted, handshake.len() as u64 + 1);
    assert_eq!(counts.bytes_written, 64, "half a write was taken for one");
    let mut client = Client::connect(&served.socket);
    assert_eq!(client.read(0, 64).unwrap(), [9; 64]);
}

#[test]
fn two_hundred_half_open_connections_do_not_keep_a_good_client_out() {
    let (served, _export) = serve_memory(1 << 16);
    let mut early = Client::connect(&served.socket);
    let mut half_open = Vec::new();
    for index in 0..200 {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        if index % 2 == 0 {
            stream.write_all(&3_u32.to_be_bytes()).unwrap();
        }
        half_open.push(stream);
        if index % 50 == 0 {
            early.write(0, &[index as u8; 512]).unwrap();
        }
    }
    let start = Instant::now();
    let mut late = Client::connect(&served.socket);
    assert_eq!(late.read(0, 512).unwrap(), early.read(0, 512).unwrap());
    assert!(start.elapsed() < Duration::from_secs(2), "the good client waited");
    let counts = served.server.counts();
    assert!(counts.connections <= 64, "{counts:?}");
    assert!(counts.evicted >= 200 - 32, "{counts:?}");
}

#[test]
fn a_full_server_refuses_newcomers_and_keeps_those_it_has() {
    let settings = Settings { connections_max: 3, ..Settings::default() };
    let served = serve(vec![Arc::new(MemoryExport::new("a", 4096))], settings);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&served.socket)).collect();
    assert!(Client::try_connect(&served.socket, "", true).is_none());
    assert_eq!(served.server.counts().refused, 1);
    clients.iter_mut().for_each(|client| assert!(client.read(0, 1).is_ok()));
    clients.pop();
    eventually("there is room", || served.server.counts().connections == 2);
    assert!(Client::try_connect(&served.socket, "", true).is_some());
}

#[test]
fn the_handshake_deadline_ends_those_who_trickle() {
    let settings =
        Settings { handshake_deadline: Duration::from_millis(300), ..Settings::default() };
    let served = serve(vec![Arc::new(MemoryExport::new("a", 4096))], settings);
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let start = Instant::now();
    let bytes = whole_handshake();
    for byte in &bytes[..40] {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let took = start.elapsed();
    assert!(took > Duration::from_millis(250) && took < Duration::from_secs(3), "{took:?}");
    let mut client = Client::connect(&served.socket);
    std::thread::sleep(Duration::from_millis(400));
    assert!(client.read(0, 1).is_ok(), "the deadline ends with the handshake");
}

#[test]
fn clients_killed_in_the_middle_of_replies_harm_nobody() {
    let (served, _export) = serve_memory(8 << 20);
    for round in 0..40 {
        let mut client = Client::connect(&served.socket);
        for _ in 0..4 {
            client.send(Command::Read { offset: 0, length: 4 << 20, dont_fragment: false }, &[]);
        }
        let mut some = vec![0; 1 + round * 997];
        client.stream.read_exact(&mut some).unwrap();
    }
    eventually("all have gone", || served.server.counts().connections == 0);
    assert_eq!(served.server.counts().panics, 0);
    assert!(Client::connect(&served.socket).read(0, 4 << 20).is_ok());
}

#[test]
fn a_client_that_never_reads_its_replies_stalls_alone() {
    let (served, _export) = serve_memory(8 << 20);
    let mut stalled = Client::connect(&served.socket);
    for _ in 0..300 {
        let read = Command::Read { offset: 0, length: 1 << 20, dont_fragment: false };
        stalled.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        if stalled.stream.write_all(&read.header(1).encode()).is_err() {
            break;
        }
    }
    let mut other = Client::connect(&served.socket);
    assert!(other.read(0, 1 << 20).is_ok());
    let requested = served.server.counts().requests;
    assert!(requested <= 131, "{requested} requests were taken from a client that does not read");
}

#[test]
fn a_panicking_export_costs_one_connection() {
    let angry = Arc::new(AtomicBool::new(false));
    let mood = Arc::clone(&angry);
    let export = OddExport::shared(move |operation, done| {
        assert!(!mood.load(Ordering::SeqCst), "this panic is part of the test");
        succeed(operation, done);
    });
    let served = serve(vec![export], Settings::default());
    let mut bystander = Client::connect(&served.socket);
    let mut victim = Client::connect(&served.socket);
    assert!(victim.read(0, 1).is_ok());
    angry.store(true, Ordering::SeqCst);
    victim.send(Command::Flush, &[]);
    if let Some((_, result)) = victim.wait() {
        assert_eq!(result, Err(ErrorCode::Io));
        assert!(victim.wait().is_none(), "the connection ends");
    }
    angry.store(false, Ordering::SeqCst);
    assert!(bystander.read(0, 1).is_ok());
    assert!(Client::connect(&served.socket).read(0, 1).is_ok());
    eventually("the panic is counted", || served.server.counts().panics == 1);
}

#[test]
fn garbage_after_negotiation_ends_the_connection_and_nothing_else() {
    let (served, export) = serve_memory(4096);
    let mut client = Client::connect(&served.socket);
    client.stream.write_all(&[0xff; 1000]).unwrap();
    assert!(client.next_event().is_none());
    assert!(export.bytes().iter().all(|byte| *byte == 0));
    assert!(Client::connect(&served.socket).read(0, 1).is_ok());
}

#[test]
fn a_write_cut_off_in_its_payload_is_nobodys_error() {
    let (served, export) = serve_memory(1 << 20);
    for sent in [0, 1, 4095] {
        let mut client = Client::connect(&served.socket);
        let write = Command::Write { offset: 0, length: 4096, fua: false };
        client.stream.write_all(&write.header(1).encode()).unwrap();
        client.stream.write_all(&vec![7; sent]).unwrap();
    }
    eventually("all have come and gone", || {
        let counts = served.server.counts();
        counts.requests == 3 && counts.connections == 0
    });
    let counts = served.server.counts();
    assert_eq!((counts.contract_breaches, counts.bytes_written), (0, 0));
    assert_eq!(counts.errors, [0; 8]);
    assert_eq!(export.bytes()[..4096], [0; 4096]);
}

#[test]
fn clients_that_sit_on_their_memory_do_not_stop_others() {
    let settings = Settings { payload_bytes_max: 1 << 20, ..Settings::default() };
    let served = serve(vec![Arc::new(MemoryExport::new("a", 8 << 20))], settings);
    let write = Command::Write { offset: 0, length: 1 << 20, fua: false };
    let mut sitting: Vec<Client> = (0..4).map(|_| Client::connect(&served.socket)).collect();
    for client in &mut sitting {
        client.stream.write_all(&write.header(1).encode()).unwrap();
        client.stream.write_all(&[1; 1000]).unwrap();
    }
    eventually("all four have their one", || served.server.counts().bytes_in_flight == 4 << 20);
    let mut good = Client::connect(&served.socket);
    let read = Command::Read { offset: 0, length: 1 << 20, dont_fragment: false };
    for _ in 0..10 {
        good.send(read, &[]);
    }
    (0..10).for_each(|_| assert_eq!(good.wait().unwrap().1.unwrap().len(), 1 << 20));
    drop(sitting);
    eventually("it is given back", || served.server.counts().bytes_in_flight == 0);
    assert!(good.call(read, &[]).is_ok());
}
