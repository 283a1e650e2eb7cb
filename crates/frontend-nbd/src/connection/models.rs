//! Models of one connection: its reader, its writer and the threads that finish its requests.
//!
//! Where it stands: unit tests that exist under `--cfg shuttle` only, with the rest in [`crate::models`]. The writer and
//! its socket are the real ones; the reader is played by the model, which has room for two requests.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use braid_nbd_proto::ReplyCodec;
use shuttle::thread;

use super::channel::Channel;
use super::ticket::{Kind, Ticket};
use super::writer;
use crate::counters::Counters;
use crate::export::Outcome;
use crate::models::{pair, sample};
use crate::registry::Registry;
use crate::server::{Settings, Shared};
use crate::sync::{Flaw, choose};

const REQUESTS: u64 = 4;
/// Two of these are more than a connection may have in flight.
const HEAVY_BYTES: u32 = 100 << 20;
/// The reply to a write.
const REPLY_BYTES: usize = 16;

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        exports: Vec::new(),
        settings: Settings::default(),
        counters: Counters::default(),
        registry: Registry::default(),
        stopping: AtomicBool::new(false),
    })
}

/// Begins requests as a reader does, each finished by a thread of its own, one of them by being
/// dropped; answers how many were begun before the connection broke.
fn read_requests(channel: &Arc<Channel>, shared: &Arc<Shared>) -> u64 {
    for cookie in 0..REQUESTS {
        let length = if cookie == 0 { 512 } else { HEAVY_BYTES };
        let kind = if cookie == 3 { Kind::Other } else { Kind::Write { length } };
        if !channel.begin(kind.cost_bytes()) {
            return cookie;
        }
        let ticket = Ticket::new(shared, channel, ReplyCodec::new(false), cookie, kind);
        thread::spawn(move || {
            if cookie != 2 {
                ticket.complete(Outcome { status: Ok(()), payload: None });
            }
        });
    }
    REQUESTS
}

/// The cookies of the replies that have arrived.
fn cookies(mut stream: UnixStream) -> Vec<u64> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the other end is closed");
    assert_eq!(bytes.len() % REPLY_BYTES, 0, "replies are whole");
    let cookie = |reply: &[u8]| u64::from_be_bytes(reply[8..16].try_into().expect("eight bytes"));
    let mut cookies: Vec<u64> = bytes.chunks(REPLY_BYTES).map(cookie).collect();
    cookies.sort_unstable();
    cookies
}

fn serve_to_the_end() {
    let (socket, theirs) = pair();
    let (channel, shared) = (Arc::new(Channel::default()), shared());
    let (replies, line) = (Arc::clone(&channel), Arc::clone(&socket));
    let writer = thread::spawn(move || writer::run(&line, &replies));
    assert_eq!(read_requests(&channel, &shared), REQUESTS);
    channel.finish();
    writer.join().expect("it does not panic");
    drop(socket);
    assert_eq!(cookies(theirs), [0, 1, 2, 3], "every request has one reply");
}

#[test]
fn every_request_has_one_reply_and_the_writer_ends() {
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

/// The client goes away at any moment.
fn break_in_the_middle() {
    let (socket, theirs) = pair();
    let (channel, shared) = (Arc::new(Channel::default()), shared());
    let (replies, line) = (Arc::clone(&channel), Arc::clone(&socket));
    let writer = thread::spawn(move || writer::run(&line, &replies));
    let client = thread::spawn(move || drop(theirs));
    assert!(read_requests(&channel, &shared) <= REQUESTS);
    channel.finish();
    writer.join().expect("it does not panic");
    client.join().expect("it does not panic");
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
