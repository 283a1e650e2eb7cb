//! Tests that no request allocates heap memory, from a client's socket through the server's own
//! export to the members' files and back.
//!
//! The server, the export and the array are those of `braid serve`, started in the process whose
//! allocator counts. Lists and pools grow to the size that a load needs. So the load runs in
//! windows of rounds, and one of the first few windows must make no allocator call. An allocation
//! for each request, or for each hundredth request, leaves no such window.

#![allow(clippy::unwrap_used)] // tests: a panic is a failure

#[path = "../../../doors/frontend-nbd/tests/common/mod.rs"]
mod common;
#[path = "../../../io/runtime/tests/kit/files.rs"]
mod files;
#[allow(dead_code)] // arrays in memory are the runtime's own tests'
#[path = "../../../io/runtime/tests/kit/mod.rs"]
mod kit;

use std::alloc::System;
use std::io::{Read, Write};
use std::sync::Arc;

use braid_frontend_nbd::{Endpoint, Export, Server, Settings};
use braid_geometry::Level;
use braid_nbd_proto::Command;
use braid_ring::Workers;
use braid_runtime::{Elevator, Io, Options, Scheduling};
use braid_server::DiskExport;
use braid_test_needs::{Need, skip};
use common::Client;
use files::Files;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests that the client has in flight.
const DEPTH: u32 = 32;
/// Rounds of requests in a window.
const ROUNDS: usize = 20;
const WINDOWS: usize = 100;
const BLOCK_BYTES: u32 = 4096;

/// The bytes of the requests that a client sends in one round, and the number of bytes in the
/// answers.
fn round(command: impl Fn(u64) -> Command, sends: usize, is_sent: usize) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    for index in 0..u64::from(DEPTH) {
        bytes.extend_from_slice(&command(index * u64::from(BLOCK_BYTES)).header(index).encode());
        bytes.resize(bytes.len() + sends, 7);
    }
    (bytes, (16 + is_sent) * DEPTH as usize)
}

/// The fewest allocator calls, of any thread, in a window of rounds.
fn fewest(client: &mut Client, (requests, answer_bytes): &(Vec<u8>, usize)) -> usize {
    let mut answers = vec![0; *answer_bytes];
    let mut fewest = usize::MAX;
    for _ in 0..WINDOWS {
        let region = Region::new(ALLOCATOR);
        for _ in 0..ROUNDS {
            client.stream.write_all(requests).unwrap();
            client.stream.read_exact(&mut answers).unwrap();
        }
        let change = region.change();
        fewest = fewest.min(change.allocations + change.reallocations + change.deallocations);
        if fewest == 0 {
            break;
        }
    }
    fewest
}

#[test]
fn a_request_allocates_nothing_from_the_socket_to_the_members() {
    let workers = match Workers::start(&braid_ring::Settings::default()) {
        Ok(workers) => Arc::new(workers),
        Err(error) if error.is_lack() => return skip(Need::Rings, &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let array = Files::new(Level::Raid5, 4, 8, kit::MEMBER_BYTES);
    let options = Options {
        io: Io::Ring,
        workers: Some(Arc::clone(&workers)),
        scheduling: Scheduling { elevator: Elevator::None, ..Scheduling::default() },
        ..Options::default()
    };
    let volume = Arc::new(array.open(&options, |_| {}));
    let served: Arc<dyn Export> =
        Arc::new(DiskExport::new("array".into(), Arc::clone(&volume) as _, None, String::new));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd.sock");
    let endpoints = [Endpoint::Unix(socket.clone())];
    let server = Server::start_on(&workers, vec![served], &endpoints, Settings::default()).unwrap();
    let mut client = Client::try_connect(&socket, "", false).unwrap();
    let block = BLOCK_BYTES as usize;
    let read = |offset| Command::Read { offset, length: BLOCK_BYTES, dont_fragment: false };
    let write = |offset| Command::Write { offset, length: BLOCK_BYTES, fua: false };
    let reads = fewest(&mut client, &round(read, 0, block));
    let writes = fewest(&mut client, &round(write, block, 0));
    assert_eq!((reads, writes), (0, 0), "reads and writes");
    drop(client);
    drop(server);
    volume.stop();
}
