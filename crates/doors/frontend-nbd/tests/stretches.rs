//! Tests requests longer than a stretch: each byte goes to the export once, other requests run in
//! between, and the request ends when its client is gone.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, Shelf, TestServer, eventually, serve, succeed};
use braid_frontend_nbd::{
    BlockSizes, ClientRequest, Completion, ErrorCode, Export, Outcome, RequestError, Settings,
    StopReport,
};
use braid_nbd_proto::{Command, Style};

/// An export larger than any length that compact headers can name.
const SIZE: u64 = 40 << 40;
const STRETCH: u64 = 1 << 40;

/// An export of [`SIZE`] bytes, which answers a request when the test decides.
struct VastExport {
    shelf: Shelf,
    zeroes_fast: bool,
}

impl Export for VastExport {
    fn name(&self) -> &str {
        "vast"
    }

    fn description(&self) -> String {
        "nothing of all this is there".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn read_only(&self) -> bool {
        false
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::BYTE_GRANULAR
    }

    fn stretch_bytes(&self) -> u64 {
        STRETCH
    }

    fn zeroes_fast(&self, _: u64, _: u64) -> bool {
        self.zeroes_fast
    }

    fn submit(&self, operation: ClientRequest, done: Completion) {
        self.shelf.lock().unwrap().push((operation, done));
    }
}

fn served(zeroes_fast: bool) -> (TestServer, Shelf) {
    let shelf = Shelf::default();
    let export = VastExport { shelf: Arc::clone(&shelf), zeroes_fast };
    (serve(vec![Arc::new(export)], Settings::default()), shelf)
}

fn connect(served: &TestServer) -> Client {
    Client::connect_as(&served.socket, "vast", Style::Extended).unwrap()
}

fn next(shelf: &Shelf) -> (ClientRequest, Completion) {
    eventually("the export is asked", || !shelf.lock().unwrap().is_empty());
    let mut shelf = shelf.lock().unwrap();
    assert_eq!(shelf.len(), 1, "one stretch at a time");
    shelf.remove(0)
}

const WHOLE: Command = Command::Trim { offset: 0, length: SIZE, fua: true };

#[test]
fn a_request_of_everything_comes_in_stretches_and_is_answered_once() {
    let (served, shelf) = served(true);
    let mut client = connect(&served);
    assert_eq!(client.info.description.as_deref(), Some("nothing of all this is there"));
    for (command, cut) in [
        (WHOLE, 40),
        (Command::Trim { offset: 0, length: 2 * STRETCH - 1, fua: true }, 1),
        (Command::Trim { offset: 7, length: 2 * STRETCH, fua: true }, 2),
    ] {
        let (begin, length) = match command {
            Command::Trim { offset, length, .. } => (offset, length),
            _ => unreachable!(),
        };
        let cookie = client.send(command, &[]);
        let mut at = begin;
        for _ in 0..cut {
            let (operation, done) = next(&shelf);
            let ClientRequest::Trim { offset, length, durable: true } = operation else {
                panic!("{operation:?}")
            };
            assert_eq!(offset, at);
            at += length;
            succeed(operation, done);
        }
        assert_eq!(at, begin + length);
        assert_eq!(client.wait().unwrap(), (cookie, Ok(Vec::new())));
    }
}

#[test]
fn others_are_served_between_and_an_error_ends_it() {
    let (served, shelf) = served(true);
    let (mut long, mut other) = (connect(&served), connect(&served));
    let zero =
        Command::WriteZeroes { offset: 0, length: SIZE, fua: false, may_punch: true, fast: false };
    let cookie = long.send(zero, &[]);
    for round in 0..3 {
        let (operation, done) = next(&shelf);
        let flush = other.send(Command::Flush, &[]);
        let (flushing, flushed) = next(&shelf);
        succeed(flushing, flushed);
        assert_eq!(other.wait().unwrap(), (flush, Ok(Vec::new())), "round {round}");
        if round < 2 {
            succeed(operation, done);
        } else {
            done.complete(Outcome { result: Err(RequestError::NoSpace), payload: None });
        }
    }
    assert_eq!(long.wait().unwrap(), (cookie, Err(ErrorCode::NoSpace)));
    assert!(shelf.lock().unwrap().is_empty(), "nothing follows an error");
}

#[test]
fn what_would_not_be_fast_is_not_begun() {
    let (served, shelf) = served(false);
    let mut client = connect(&served);
    let zero =
        Command::WriteZeroes { offset: 0, length: SIZE, fua: false, may_punch: true, fast: true };
    assert_eq!(client.call(zero, &[]), Err(ErrorCode::Unsupported));
    assert!(shelf.lock().unwrap().is_empty());
}

#[test]
fn a_client_that_has_gone_leaves_the_rest() {
    let (served, shelf) = served(true);
    let mut client = connect(&served);
    client.send(WHOLE, &[]);
    let (operation, done) = next(&shelf);
    drop(client);
    // The server notices the client's end a moment later, when it polls the socket.
    std::thread::sleep(Duration::from_millis(200));
    succeed(operation, done);
    eventually("the connection is over", || served.server.counts().connections == 0);
    assert!(shelf.lock().unwrap().is_empty(), "the rest is left");
}

#[test]
fn a_stop_ends_it_behind_its_stretch() {
    let (served, shelf) = served(true);
    let mut client = connect(&served);
    let cookie = client.send(WHOLE, &[]);
    let (operation, done) = next(&shelf);
    let stopping = std::thread::spawn(move || served.server.stop(Duration::from_secs(20)));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!stopping.is_finished(), "it waits for the stretch");
    succeed(operation, done);
    assert_eq!(client.wait().unwrap(), (cookie, Err(ErrorCode::Shutdown)));
    assert!(client.wait().is_none());
    drop(client);
    assert_eq!(stopping.join().unwrap(), StopReport { cut: 0, still_running: 0 });
    assert!(shelf.lock().unwrap().is_empty());
}

#[test]
fn one_that_takes_its_leave_has_it_finished() {
    let (served, shelf) = served(true);
    let mut client = connect(&served);
    client.send(Command::Trim { offset: 0, length: 3 * STRETCH, fua: false }, &[]);
    client.say_goodbye();
    for _ in 0..3 {
        let (operation, done) = next(&shelf);
        succeed(operation, done);
    }
    assert!(client.wait().unwrap().1.is_ok());
    assert!(client.wait().is_none());
}
