//! Models of one connection: its reader, its writer and the threads that finish its requests.
//!
//! Where it stands: unit tests that exist under `--cfg shuttle` only, as [`crate::models`]. Only
//! the client is simulated: it has sent all its bytes and disconnected before the model begins,
//! since a model must not wait. The connection has room for two requests, or for one READ.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use braid_nbd_proto::{BlockSizes, Command, wire};
use shuttle::thread;

use crate::connection::Identity;
use braid_ring::client::{ClientRequest, Completion, Outcome};

use crate::export::Export;
use crate::models::{pair, sample};
use crate::registry::{Admission, AdmissionLimits};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::sync::{Flaw, choose};

/// Bytes of a READ: two such reads exceed a connection's limit in flight.
const HEAVY_BYTES: u32 = 5000;
/// Bytes of the greeting and of the reply to GO, which is one item of 12 bytes and an end.
const HELLO_BYTES: usize = 18 + 20 + 12 + 20;
const REPLY_BYTES: usize = 16;

/// An export that finishes each operation on a thread of its own, except that it drops each FLUSH.
struct Scattering;

impl Export for Scattering {
    fn name(&self) -> &str {
        "scattering"
    }

    fn size_bytes(&self) -> u64 {
        1 << 20
    }

    fn read_only(&self) -> bool {
        false
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::BYTE_GRANULAR
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        thread::spawn(move || match operation {
            ClientRequest::Flush => drop(completion),
            ClientRequest::Read { payload, .. } => {
                completion.complete(Outcome { result: Ok(()), payload: Some(payload) });
            }
            _ => completion.complete(Outcome { result: Ok(()), payload: None }),
        });
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(vec![Arc::new(Scattering)], Settings::default(), None))
}

fn requests() -> Vec<u8> {
    let read = Command::Read { offset: 0, length: HEAVY_BYTES, dont_fragment: false };
    let write = Command::Write { offset: 0, length: 3, fua: false };
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(wire::encode_option(wire::OPT_GO, &[0; 6]));
    bytes.extend(read.header(0).encode());
    bytes.extend(write.header(1).encode());
    bytes.extend([1, 2, 3]);
    bytes.extend(Command::Flush.header(2).encode());
    bytes.extend(read.header(3).encode());
    bytes
}

/// Starts to serve a client that has sent all its bytes and disconnected.
fn serve() -> (Arc<Shared>, UnixStream, thread::JoinHandle<()>) {
    let (socket, mut theirs) = pair();
    theirs.write_all(&requests()).expect("it fits the socket");
    theirs.shutdown(Shutdown::Write).expect("it is open");
    let shared = shared();
    let server = serve_on(&shared, socket);
    (shared, theirs, server)
}

fn serve_on(shared: &Arc<Shared>, socket: Arc<Socket>) -> thread::JoinHandle<()> {
    let limits = AdmissionLimits { connections_max: 2, negotiating_max: 2, idle_limit: None };
    let Admission::Admitted { id, pulse, .. } = shared.registry.admit(&socket, &limits) else {
        panic!("there is room for two");
    };
    let ours = Arc::clone(shared);
    let identity = Identity { id, pulse, refusal: None };
    thread::spawn(move || super::serve(&ours, identity, &socket))
}

fn cookies(mut stream: UnixStream) -> Vec<u64> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the other end is closed");
    let mut rest = &bytes[HELLO_BYTES..];
    let mut cookies = Vec::new();
    while let Some((reply, behind)) = rest.split_at_checked(REPLY_BYTES) {
        let cookie = u64::from_be_bytes(reply[8..].try_into().expect("eight bytes"));
        let data = if matches!(cookie, 0 | 3) { HEAVY_BYTES as usize } else { 0 };
        rest = &behind[data..];
        cookies.push(cookie);
    }
    assert!(rest.is_empty(), "replies are whole");
    cookies.sort_unstable();
    cookies
}

fn serve_to_the_end() {
    let (shared, theirs, server) = serve();
    server.join().expect("it does not panic");
    assert_eq!(cookies(theirs), [0, 1, 2, 3], "every request has one reply");
    let counts = shared.counters.read(0, &shared.budget);
    assert_eq!((counts.panics, counts.contract_breaches, counts.bytes_in_flight), (0, 1, 0));
}

#[test]
fn every_request_has_one_reply_and_both_threads_end() {
    sample("connection: four requests, room for two", serve_to_the_end);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_reader_that_is_not_woken_is_caught() {
    choose(Flaw::EndSilent);
    sample("flawed", serve_to_the_end);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_that_is_not_told_of_the_end_is_caught() {
    choose(Flaw::FinishSilent);
    sample("flawed", serve_to_the_end);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_request_that_is_forgotten_is_caught() {
    choose(Flaw::DropUnanswered);
    sample("flawed", serve_to_the_end);
}

/// Two connections share memory that is enough for one of their long reads at a time.
fn share_memory() {
    let shared = shared();
    // Three quarters of the memory are common, and there are no own shares. There is room for one
    // read and a write.
    shared.budget.set_limit(4 * 4096);
    shared.budget.set_connections_max(1 << 20);
    let serving = || {
        let (socket, mut theirs) = pair();
        theirs.write_all(&requests()).expect("it fits the socket");
        theirs.shutdown(Shutdown::Write).expect("it is open");
        (theirs, serve_on(&shared, socket))
    };
    let connections = [serving(), serving()];
    for (theirs, server) in connections {
        server.join().expect("it does not panic");
        assert_eq!(cookies(theirs), [0, 1, 2, 3], "every request has one reply");
    }
    let counts = shared.counters.read(0, &shared.budget);
    assert_eq!((counts.panics, counts.bytes_in_flight, counts.waiting_for_memory), (0, 0, 0));
}

#[test]
fn connections_that_wait_for_each_others_memory_are_all_served() {
    sample("connections: two, with memory for one", share_memory);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_connection_that_is_not_told_of_memory_is_caught() {
    choose(Flaw::GiveSilent);
    sample("flawed", share_memory);
}

/// The client disconnects at any moment.
fn break_in_the_middle() {
    let (shared, theirs, server) = serve();
    let client = thread::spawn(move || drop(theirs));
    server.join().expect("it does not panic");
    client.join().expect("it does not panic");
    assert_eq!(shared.counters.read(0, &shared.budget).panics, 0);
}

#[test]
fn a_client_that_goes_away_leaves_nobody_waiting() {
    sample("connection: the client goes away", break_in_the_middle);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_broken_connection_that_leaves_its_reader_waiting_is_caught() {
    choose(Flaw::CloseForgetsReader);
    sample("flawed", break_in_the_middle);
}
