//! Accepting, receiving, sending and cancelling.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{event_channel, workers};
use braid_ring::{Descriptor, Handler, Memory, Operation, Payload, Segment, Segments};

fn pair() -> (Descriptor, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    (Arc::new(ours.into()), theirs)
}

fn first_bytes(mut operation: Operation) -> Vec<u8> {
    let memory = std::mem::take(operation.memory().expect("it has memory"));
    match memory.into_iter().next().expect("one segment").into_memory() {
        Memory::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_is_accepted_served_and_seen_to_leave() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener: Descriptor = Arc::new(UnixListener::bind(&path).expect("bind").into());
    let (workers, (sender, receiver)) = (workers(2, 8), event_channel());
    workers.submit(0, Operation::Accept { socket: listener }, sender.clone(), 1).expect("running");
    let mut client = UnixStream::connect(&path).expect("connect");
    let socket: Descriptor = Arc::new(receiver.next().accepted.expect("a client"));

    client.write_all(b"hello").expect("write");
    let memory = Segments::from_iter([vec![0; 100].into()]);
    let receive = Operation::Receive { socket: Arc::clone(&socket), memory, whole: false };
    workers.submit(0, receive, sender.clone(), 2).expect("running");
    let completion = receiver.next();
    let count = completion.result.expect("received");
    assert_eq!(&first_bytes(completion.operation)[..count], b"hello");

    let memory = [b"to ".to_vec().into(), b"you".to_vec().into()].into_iter().collect();
    let send = Operation::Send { socket: Arc::clone(&socket), memory, more: false };
    workers.submit(0, send, sender.clone(), 3).expect("running");
    assert_eq!(receiver.next().result.expect("sent"), 6);
    let mut answer = [0; 6];
    client.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"to you");

    drop(client);
    let memory = Segments::from_iter([vec![0; 100].into()]);
    let receive = Operation::Receive { socket, memory, whole: true };
    workers.submit(0, receive, sender, 4).expect("running");
    assert_eq!(receiver.next().result.expect("the end"), 0);
}

#[test]
fn a_whole_receive_waits_for_its_last_byte() {
    let (workers, (sender, receiver), (socket, mut client)) =
        (workers(1, 8), event_channel(), pair());
    let (header, payload) = (vec![0; 10], Payload::zeroed(100_000));
    let memory = [header.into(), Segment::part(Memory::Payload(payload), 500..90_500)];
    let memory = memory.into_iter().collect();
    let receive = Operation::Receive { socket, memory, whole: true };
    workers.submit(0, receive, sender, 0).expect("running");
    let content: Vec<u8> = (0..90_010_u32).map(|at| (at % 253) as u8).collect();
    for part in content.chunks(20_000) {
        std::thread::sleep(Duration::from_millis(3));
        client.write_all(part).expect("write");
    }
    let mut completion = receiver.next();
    assert_eq!(completion.result.expect("received"), 90_010);
    let memory = std::mem::take(completion.operation.memory().expect("memory"));
    let mut memories = memory.into_iter().map(Segment::into_memory);
    let (Some(Memory::Bytes(header)), Some(Memory::Payload(payload))) =
        (memories.next(), memories.next())
    else {
        panic!("the memory comes back as it was given")
    };
    assert_eq!([&header[..], &payload[500..90_500]].concat(), content);
    assert!(payload[..500].iter().chain(&payload[90_500..]).all(|byte| *byte == 0));
}

#[test]
fn a_send_that_does_not_fit_goes_on_when_there_is_room() {
    let (workers, (sender, receiver), (socket, mut client)) =
        (workers(1, 8), event_channel(), pair());
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 241) as u8).collect();
    let memory = [content[..7].to_vec().into(), Payload::from(&content[7..]).into()];
    let send = Operation::Send { socket, memory: memory.into_iter().collect(), more: false };
    workers.submit(0, send, sender, 0).expect("running");
    let mut received = vec![0; content.len()];
    client.read_exact(&mut received).expect("read");
    assert_eq!(received, content);
    assert_eq!(receiver.next().result.expect("sent"), content.len());
}

#[test]
fn sending_to_nobody_is_an_error_and_no_signal() {
    let (workers, (sender, receiver), (socket, client)) = (workers(1, 8), event_channel(), pair());
    drop(client);
    let memory = Segments::from_iter([vec![1; 10].into()]);
    workers.submit(0, Operation::Send { socket, memory, more: false }, sender, 0).expect("running");
    let error = receiver.next().result.expect_err("nothing listens there");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_receive_is_cancelled_and_its_memory_comes_back() {
    let (workers, (sender, receiver), (socket, _client)) = (workers(1, 8), event_channel(), pair());
    for (token, socket) in [(1, Arc::clone(&socket)), (2, socket)] {
        let memory = Segments::from_iter([vec![7; 3].into()]);
        let receive = Operation::Receive { socket, memory, whole: true };
        workers.submit(0, receive, sender.clone(), token).expect("running");
    }
    let as_handler: Arc<dyn Handler> = sender;
    workers.cancel(0, as_handler, 2).expect("running");
    let completion = receiver.next();
    assert_eq!(completion.token, 2, "the other waits on");
    assert_eq!(completion.result.expect_err("cancelled").raw_os_error(), Some(libc::ECANCELED));
    assert_eq!(first_bytes(completion.operation), [7; 3]);
}

#[test]
fn moments_come_in_their_order_and_not_early() {
    let (workers, (sender, receiver)) = (workers(2, 8), event_channel());
    let start = Instant::now();
    for ms in [30_u64, 10, 20] {
        let at = start + Duration::from_millis(ms);
        workers.wake_at(1, at, sender.clone(), ms).expect("running");
    }
    for ms in [10, 20, 30] {
        assert_eq!(receiver.next_wake(), (1, ms));
        assert!(start.elapsed() >= Duration::from_millis(ms));
    }
}

#[test]
fn a_look_tells_that_there_is_something_and_takes_nothing() {
    let (workers, (sender, receiver), (socket, mut client)) =
        (workers(1, 8), event_channel(), pair());
    let look = || Operation::Poll { file: Arc::clone(&socket) };
    workers.submit(0, look(), sender.clone(), 1).expect("running");
    let early = receiver.completions.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "there is nothing yet");
    client.write_all(b"x").expect("write");
    for token in 1..3 {
        let completion = receiver.next();
        assert_eq!((completion.token, completion.result.expect("something")), (token, 0));
        workers.submit(0, look(), sender.clone(), token + 1).expect("running");
    }
    assert_eq!(receiver.next().token, 3);
    // A cancel ends an endless poll, and so does a stop.
    let (quiet, _theirs) = pair();
    workers
        .submit(0, Operation::Poll { file: Arc::clone(&quiet) }, sender.clone(), 7)
        .expect("running");
    let handler: Arc<dyn Handler> = sender.clone();
    workers.cancel(0, handler, 7).expect("running");
    assert_eq!(
        receiver.next().result.expect_err("cancelled").raw_os_error(),
        Some(libc::ECANCELED)
    );
    workers.submit(0, Operation::Poll { file: quiet }, sender, 8).expect("running");
    workers.stop();
    assert_eq!(
        receiver.next().result.expect_err("cancelled").raw_os_error(),
        Some(libc::ECANCELED)
    );
}
