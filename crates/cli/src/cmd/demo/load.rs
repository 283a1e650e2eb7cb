//! Four clients that write and read random places at once, each comparing its reads with a copy in
//! memory.
//! ```text
//!   array    [ image | region 0 ........ | region 1 ........ | ... ]
//!   client i writes only region i, so it knows every byte of it at any time
//! ```
//!
//! Offsets and lengths of requests are in bytes: most requests begin and end within a sector, many
//! span chunks, some whole stripes. Each client draws its requests from a fixed seed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;

use braid_nbd_client::{Client, ClientError, plan_for};

use super::process::failed;
use braid_console::error::CliError;

/// Longest silence of the server. A lost member is noticed in half a second on an idle machine.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The number of clients that run at once.
pub(super) const CLIENTS: usize = 4;
/// Longest request, as a power of two of bytes: more than a stripe of 4 data chunks of 64 KiB.
const LENGTH_SHIFT_MAX: u32 = 19;

/// A part of the array that one client writes alone, and the content that it must have.
pub(super) struct Region {
    /// The region's first byte in the array.
    pub(super) offset: u64,
    pub(super) content: Vec<u8>,
}

/// Requests of the clients, and the bytes that they moved.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// Values that the clients and their owner share.
#[derive(Default)]
struct Shared {
    must_end: AtomicBool,
    /// The index of the count for requests: 0 before the loss of members, 1 from the loss on.
    part: AtomicUsize,
    counts: [Mutex<Count>; 2],
}

/// The running clients.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Result<Region, CliError>>>,
}

impl Load {
    /// Starts a client for each region. The regions must read as zeroes.
    pub(super) fn start(socket: &Path, regions: Vec<Region>) -> Result<Self, CliError> {
        let mut load = Self { shared: Arc::default(), clients: Vec::new() };
        for (seed, mut region) in (1..).zip(regions) {
            let mut client = connect(socket)?;
            let shared = Arc::clone(&load.shared);
            load.clients.push(thread::spawn(move || {
                let outcome = work(&mut client, &mut region, &shared, Rng::with_seed(seed));
                // If this client has failed, the other clients need not continue.
                shared.must_end.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome.map(|()| region)
            }));
        }
        Ok(load)
    }

    /// Switches the clients to the second count, for requests after the loss of members.
    pub(super) fn next_part(&self) {
        self.shared.part.store(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, part: usize) -> Count {
        *self.shared.counts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the clients. Returns the regions, or the first client's error.
    pub(super) fn finish(&mut self) -> Result<Vec<Region>, CliError> {
        self.shared.must_end.store(true, Ordering::Relaxed);
        let clients = std::mem::take(&mut self.clients).into_iter();
        // Every thread is joined before the first error is looked at.
        let outcomes: Vec<_> = clients.map(|client| client.join().expect("no panic")).collect();
        outcomes.into_iter().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.must_end.store(true, Ordering::Relaxed);
    }
}

/// Connects a client to the server's default export.
pub(super) fn connect(socket: &Path) -> Result<Client, CliError> {
    Client::connect(socket, plan_for(""), SILENCE_MAX).map_err(in_client("connect"))
}

fn work(
    client: &mut Client,
    region: &mut Region,
    shared: &Shared,
    mut random: Rng,
) -> Result<(), CliError> {
    let mut buffer = Vec::new();
    while !shared.must_end.load(Ordering::Relaxed) {
        // Each power of two is equally likely as the greatest length.
        let longest = 1 << random.u32(..=LENGTH_SHIFT_MAX);
        let length = random.usize(1..=longest).min(region.content.len());
        let start = random.usize(..=region.content.len() - length);
        let offset = region.offset + start as u64;
        let content = &mut region.content[start..start + length];
        let mut moved = length;
        match random.u8(..16) {
            0..8 => {
                buffer.resize(length, 0);
                client.read(offset, &mut buffer).map_err(in_client("read"))?;
                compare(offset, content, &buffer)?;
            }
            kind @ 8..14 => {
                random.fill(content);
                client.write(offset, content, kind == 8).map_err(in_client("write"))?;
            }
            14 => {
                content.fill(0);
                client.write_zeroes(offset, length).map_err(in_client("write zeroes"))?;
            }
            _ => {
                client.flush().map_err(in_client("flush"))?;
                moved = 0;
            }
        }
        let part = &shared.counts[shared.part.load(Ordering::Relaxed)];
        let mut count = part.lock().unwrap_or_else(PoisonError::into_inner);
        count.requests += 1;
        count.bytes += moved as u64;
    }
    client.flush().map_err(in_client("flush"))
}

/// Fails with the first byte that differs between `expected` and `got`.
pub(super) fn compare(offset: u64, expected: &[u8], got: &[u8]) -> Result<(), CliError> {
    let pairs = || expected.iter().zip(got);
    let Some(at) = pairs().position(|(expected, got)| expected != got) else { return Ok(()) };
    let count = pairs().filter(|(expected, got)| expected != got).count();
    let what = format!("byte {} of the array differs from the byte written", offset + at as u64);
    let why = format!("0x{:02x} was written and 0x{:02x} was read", expected[at], got[at]);
    let length = expected.len();
    let more = format!("{count} of the {length} bytes from byte {offset} on differ");
    Err(failed(what).because(why).because(more))
}

/// Turns a client's error into the demo's: a healthy disk would not have refused the request.
pub(super) fn in_client(request: &'static str) -> impl Fn(ClientError) -> CliError {
    move |error| failed(format!("a client met an error ({request})")).caused_by(&error)
}
