//! Tests that a client that stalls, dies or lies costs its own connection and no other.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    Client, OddExport, eventually, serve, serve_heard, serve_memory, shelving, succeed,
};
use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{ErrorCode, Notice, Settings};
use braid_nbd_proto::{Command, wire};

/// The bytes of a client that negotiates structured replies and reads one sector.
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
    assert!(counts.connections <= 34, "{counts:?}");
    assert!(counts.cut.evicted >= 200 - 32, "{counts:?}");
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

/// Sends an attack: announces long payloads and does not send them, or requests long replies and
/// does not read them.
fn attack(client: &mut Client, kind: usize, bytes: u32) {
    let header = |command: Command| command.header(1).encode();
    let write = header(Command::Write { offset: 0, length: bytes, fua: false });
    let read = header(Command::Read { offset: 0, length: bytes, dont_fragment: false });
    let message = match kind % 4 {
        0 => [&write[..], &[1]].concat(),
        1 => [&write[..], &[1; 4096]].concat(),
        2 => read.to_vec(),
        _ => read.repeat(20),
    };
    client.stream.write_all(&message).unwrap();
}

#[test]
fn clients_that_sit_on_their_memory_do_not_stop_others() {
    let settings = Settings { payload_bytes_max: 12 << 20, ..Settings::default() };
    let export = MemoryExport::new("a", 8 << 20);
    let served = serve(vec![Arc::new(export)], settings);
    let mut sitting: Vec<Client> = (0..63).map(|_| Client::connect(&served.socket)).collect();
    for (kind, client) in sitting.iter_mut().enumerate() {
        attack(client, kind, 4 << 20);
    }
    eventually("all have said something", || served.server.counts().requests >= 63);
    let mut good = Client::connect(&served.socket);
    let start = Instant::now();
    for round in 0..200 {
        // 8 MiB are granted, and a quarter of that is divided among 256 connections.
        let data = vec![round as u8; 8 << 10];
        good.write(512, &data).unwrap();
        assert_eq!(good.read(512, 8 << 10).unwrap(), data);
        let held = served.server.counts().bytes_in_flight;
        assert!(held <= 8 << 20, "{held} bytes are held");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(sitting);
    eventually("it is given back", || served.server.counts().bytes_in_flight == 0);
    let read = Command::Read { offset: 0, length: 4 << 20, dont_fragment: false };
    for _ in 0..10 {
        good.send(read, &[]);
    }
    (0..10).for_each(|_| assert_eq!(good.wait().unwrap().1.unwrap().len(), 4 << 20));
}

#[test]
fn sixty_three_long_writes_at_once_are_all_served() {
    let settings =
        Settings { payload_bytes_max: 12 << 20, negotiating_max: 64, ..Settings::default() };
    let served = serve(vec![Arc::new(MemoryExport::new("a", 64 << 20))], settings);
    std::thread::scope(|scope| {
        for index in 0..63_u8 {
            let socket = &served.socket;
            scope.spawn(move || {
                let mut client = Client::connect(socket);
                let data = vec![index; 4 << 20];
                client.write(u64::from(index % 16) << 22, &data).unwrap();
                assert_eq!(client.read(0, 4 << 20).unwrap().len(), 4 << 20);
            });
        }
    });
    let counts = served.server.counts();
    assert_eq!((counts.cut.stalled, counts.errors, counts.bytes_written), (0, [0; 8], 63 << 22));
    eventually("all is given back", || served.server.counts().bytes_in_flight == 0);
}

#[test]
fn a_client_that_does_not_go_on_is_cut_and_its_operator_told() {
    let progress_deadline = Duration::from_millis(300);
    let settings = Settings { progress_deadline, ..Settings::default() };
    let export = Arc::new(MemoryExport::new("a", 8 << 20));
    let (served, told) = serve_heard(vec![export], settings);
    let mut idle = Client::connect(&served.socket);
    let mut stalled: Vec<Client> = (0..4).map(|_| Client::connect(&served.socket)).collect();
    for (kind, client) in stalled.iter_mut().enumerate() {
        attack(client, kind, 8 << 20);
    }
    eventually("all four are cut", || {
        let counts = served.server.counts();
        (counts.cut.stalled, counts.connections, counts.bytes_in_flight) == (4, 1, 0)
    });
    assert!(idle.read(0, 1).is_ok(), "one that has nothing half done may wait");
    let told = told.lock().unwrap();
    // Several connections stall at once: the thread that raises the notice need not be the first to
    // count.
    let is_once = matches!(told[..], [Notice::Stalled { count: 1..=4, is_stopping: false }]);
    assert!(is_once, "{told:?}");
}

#[test]
fn a_client_whose_request_takes_long_is_not_cut() {
    let progress_deadline = Duration::from_millis(200);
    let settings = Settings { progress_deadline, ..Settings::default() };
    let (export, shelf) = shelving();
    let served = serve(vec![export], settings);
    let mut client = Client::connect(&served.socket);
    client.send(Command::Read { offset: 0, length: 1 << 20, dont_fragment: false }, &[]);
    eventually("it is in flight", || shelf.lock().unwrap().len() == 1);
    std::thread::sleep(3 * progress_deadline);
    for (operation, done) in shelf.lock().unwrap().drain(..) {
        succeed(operation, done);
    }
    assert_eq!(client.wait().unwrap().1.unwrap().len(), 1 << 20);
    assert_eq!(served.server.counts().cut.stalled, 0);
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_its_reply() {
    let progress_deadline = Duration::from_secs(2);
    let settings = Settings { progress_deadline, ..Settings::default() };
    let served = serve(vec![Arc::new(MemoryExport::new("a", 8 << 20))], settings);
    let mut client = Client::try_connect(&served.socket, "", false).unwrap();
    client.send(Command::Read { offset: 0, length: 8 << 20, dont_fragment: false }, &[]);
    let (mut left, mut buffer) = ((8 << 20) + 16, vec![0; 400_000]);
    let start = Instant::now();
    while left > 0 {
        std::thread::sleep(Duration::from_millis(100));
        let most = buffer.len().min(left);
        let received = client.stream.read(&mut buffer[..most]).unwrap();
        assert!(received > 0, "cut with {left} bytes left after {:?}", start.elapsed());
        left -= received;
    }
    assert!(start.elapsed() > progress_deadline, "it was slow: {:?}", start.elapsed());
}

/// The server's reply to a client that asks for an export: its kind and its text.
fn answer_to_go(socket: &std::path::Path) -> Option<(u32, String)> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).ok()?;
    stream.write_all(&3_u32.to_be_bytes()).ok()?;
    stream.write_all(&wire::encode_option(wire::OPT_GO, &[0; 6])).ok()?;
    let mut head = [0; 20];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let mut text = vec![0; number(16) as usize];
    stream.read_exact(&mut text).ok()?;
    Some((number(12), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn a_client_that_finds_the_server_full_is_told_so_and_so_is_the_operator() {
    let settings = Settings { connections_max: 2, ..Settings::default() };
    let export = Arc::new(MemoryExport::new("a", 4096));
    let (served, told) = serve_heard(vec![export], settings);
    let clients: Vec<Client> = (0..2).map(|_| Client::connect(&served.socket)).collect();
    for _ in 0..3 {
        let (kind, text) = answer_to_go(&served.socket).expect("not closed without a byte");
        assert_eq!(kind, wire::REP_ERR_POLICY);
        assert!(text.contains("all 2 connections are in use"), "{text}");
    }
    assert_eq!(served.server.counts().refused, 3);
    assert_eq!(told.lock().unwrap()[..], [Notice::Full { connections_max: 2 }], "once");
    // 50 more clients, beyond the limit of error replies, do no harm.
    let crowd: Vec<_> = (0..50).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    eventually("all are turned away", || served.server.counts().refused == 53);
    assert_eq!(served.server.counts().connections, 2);
    drop(crowd);
    let tuner = served.server.tuner();
    tuner.set_connections_max(3);
    let mut third = Client::connect(&served.socket);
    assert!(third.read(0, 1).is_ok());
    assert_eq!(tuner.settings().connections_max, 3);
    drop((clients, third));
}

#[test]
fn idle_clients_shut_nobody_out_where_there_is_an_idle_limit() {
    let settings = Settings {
        connections_max: 3,
        idle_limit: Some(Duration::from_millis(200)),
        ..Settings::default()
    };
    let export = Arc::new(MemoryExport::new("a", 4096));
    let (served, told) = serve_heard(vec![export], settings);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&served.socket)).collect();
    assert!(Client::try_connect(&served.socket, "", true).is_none(), "none is idle yet");
    std::thread::sleep(Duration::from_millis(300));
    assert!(clients[0].read(0, 1).is_ok() && clients[1].read(0, 1).is_ok());
    let mut late = Client::connect(&served.socket);
    assert!(late.read(0, 1).is_ok());
    assert!(clients[2].next_event().is_none(), "the one that was idle had to go");
    assert!(clients[0].read(0, 1).is_ok() && clients[1].read(0, 1).is_ok());
    assert_eq!(served.server.counts().cut.idled, 1);
    assert!(told.lock().unwrap().contains(&Notice::Idled { count: 1 }));
}

#[test]
fn clients_whose_last_request_took_a_while_are_idle_afterwards() {
    let settings = Settings {
        connections_max: 2,
        idle_limit: Some(Duration::from_millis(200)),
        ..Settings::default()
    };
    let slow = OddExport::shared(|operation, done| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            succeed(operation, done);
        });
    });
    let served = serve(vec![slow], settings);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(&served.socket)).collect();
    for client in &mut clients {
        assert!(client.read(0, 4096).is_ok());
    }
    std::thread::sleep(Duration::from_millis(400));
    assert!(Client::try_connect(&served.socket, "", true).is_some(), "one makes room");
    assert_eq!(served.server.counts().cut.idled, 1);
}

#[test]
fn a_limit_that_is_lowered_is_told_to_newcomers_and_refused_to_others() {
    let served = serve(vec![Arc::new(MemoryExport::new("a", 64 << 20))], Settings::default());
    let mut early = Client::connect(&served.socket);
    assert_eq!(early.info.block_sizes.unwrap().maximum_bytes(), 64 << 20);
    let tuner = served.server.tuner();
    tuner.set_payload_bytes_max(24 << 20);
    let late = Client::connect(&served.socket);
    assert_eq!(late.info.block_sizes.unwrap().maximum_bytes(), 8 << 20);
    assert_eq!(early.read(0, 9 << 20), Err(ErrorCode::Memory));
    assert_eq!(early.write(0, &vec![1; 9 << 20]), Err(ErrorCode::Memory));
    assert!(early.read(0, 8 << 20).is_ok() && early.write(0, &vec![1; 8 << 20]).is_ok());
    tuner.set_payload_bytes_max(braid_ring::PAYLOAD_MEMORY_BYTES);
    assert!(early.write(0, &vec![1; 64 << 20]).is_ok());
}
