//! A request allocates no memory once its connection has served enough requests.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod common;

use std::alloc::System;
use std::io::{Read, Write};
use std::sync::Arc;

use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{Endpoint, Server, Settings};
use braid_nbd_proto::Command;
use braid_ring::Workers;
use braid_test_needs::{Need, skip};
use common::Client;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DEPTH: usize = 32;

/// Counts the allocations during `rounds` rounds of reads and writes in flight, including the
/// client's allocations.
fn allocations(client: &mut Client, rounds: usize) -> usize {
    let read = Command::Read { offset: 4096, length: 4096, dont_fragment: false };
    let write = Command::Write { offset: 4096, length: 4096, fua: false };
    let requests = [read.header(1).encode().to_vec(), write.header(2).encode().to_vec()];
    let requests = [&requests[0][..], &requests[1], &[7; 4096]].concat().repeat(DEPTH / 2);
    let mut replies = vec![0; (16 + 4096 + 16) * DEPTH / 2];
    let region = Region::new(ALLOCATOR);
    for _ in 0..rounds {
        client.stream.write_all(&requests).unwrap();
        client.stream.read_exact(&mut replies).unwrap();
    }
    region.change().allocations
}

#[test]
fn a_warm_connection_on_the_ring_allocates_nothing() {
    let workers = match Workers::start(&braid_ring::Settings::default()) {
        Ok(workers) => Arc::new(workers),
        Err(error) if error.is_lack() => return skip(Need::Rings, &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd.sock");
    let export = Arc::new(MemoryExport::new("array", 1 << 20));
    let endpoints = [Endpoint::Unix(socket.clone())];
    let server = Server::start_on(&workers, vec![export], &endpoints, Settings::default()).unwrap();
    let mut client = Client::try_connect(&socket, "", false).unwrap();
    allocations(&mut client, 100);
    let counted = allocations(&mut client, 1000);
    assert!(counted < 50, "{counted} allocations for {} requests", 1000 * DEPTH);
    assert_eq!(server.counts().requests, (1100 * DEPTH) as u64);
}
