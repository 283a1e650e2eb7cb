//! Clients that write and read random places of the array at once, each checking what it reads
//! against its own copy in memory.
//!
//! ```text
//!   array    [ file-system image | region 0 ........ | region 1 ........ | ... ]
//!   client i writes only region i, so it knows every byte of it at any time
//! ```
//!
//! Offsets and lengths are any number of bytes: most requests begin and end within a sector, many
//! span chunks, some whole stripes. The numbers come from a fixed seed per client; the order
//! between clients does not.
//!
//! Invariant: a byte that differs is found `[check: a_wrong_byte_is_found_and_named]`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;

use braid_nbd_client::{Client, ClientError, plan_for};

use super::process::failed;
use braid_console::error::CliError;

/// Longest silence of a server, mid-request. Losing a member takes half a second to be noticed; a
/// machine under load is given many times that.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Clients at once.
pub(super) const CLIENTS: usize = 4;
/// Longest request is 2 to this power, in bytes: more than a stripe of 4 data chunks of 64 KiB.
const LENGTH_SHIFT_MAX: u32 = 19;

/// A part of the array, and what must be in it.
pub(super) struct Region {
    /// First byte.
    pub(super) offset: u64,
    /// What the client wrote, all of it.
    pub(super) content: Vec<u8>,
}

/// Requests and bytes of one part of the load.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: AtomicU64,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
}

impl Tally {
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

/// What the clients and their owner share.
#[derive(Debug, Default)]
struct Shared {
    must_end: AtomicBool,
    /// Which tally counts.
    part: AtomicUsize,
    /// Before the loss of members, and from it on.
    tallies: [Tally; 2],
}

/// Clients at work.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Result<Region, CliError>>>,
}

impl Load {
    /// Starts one client for each region. Regions read as zeroes.
    pub(super) fn start(socket: &Path, regions: Vec<Region>) -> Result<Self, CliError> {
        let shared = Arc::new(Shared::default());
        let mut load = Self { shared, clients: Vec::new() };
        for (seed, region) in (1..).zip(regions) {
            let client = Client::connect(socket, plan_for(""), SILENCE_MAX)
                .map_err(|error| client_error("connect", &error))?;
            let shared = Arc::clone(&load.shared);
            let mut worker =
                Worker { client, region, random: Rng::with_seed(seed), buffer: Vec::new() };
            load.clients.push(thread::spawn(move || {
                let outcome = worker.run(&shared);
                // The others need not go on once one has failed.
                shared.must_end.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome.map(|()| worker.region)
            }));
        }
        Ok(load)
    }

    /// From here on the second tally counts.
    pub(super) fn next_part(&self) {
        self.shared.part.store(1, Ordering::Relaxed);
    }

    /// What was done before the loss, and from it on.
    pub(super) fn tallies(&self) -> &[Tally; 2] {
        &self.shared.tallies
    }

    /// Ends the clients; the regions as they must be now, or the first client's error.
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

/// One client with its region.
struct Worker {
    client: Client,
    region: Region,
    random: Rng,
    buffer: Vec<u8>,
}

impl Worker {
    fn run(&mut self, shared: &Shared) -> Result<(), CliError> {
        while !shared.must_end.load(Ordering::Relaxed) {
            let step = self.step().map_err(|error| client_error("request", &error))?;
            let (written, read) = match step {
                Step::Wrote(bytes) => (bytes, 0),
                Step::Read { start, length } => {
                    let expected = &self.region.content[start..start + length];
                    compare(self.region.offset + start as u64, expected, &self.buffer)?;
                    (0, length)
                }
            };
            let part = shared.part.load(Ordering::Relaxed);
            let tally = &shared.tallies[part];
            tally.requests.fetch_add(1, Ordering::Relaxed);
            tally.bytes_written.fetch_add(written as u64, Ordering::Relaxed);
            tally.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        }
        self.client.flush().map_err(|error| client_error("flush", &error))
    }

    /// One random request: of 16, 8 read, 6 write, 1 writes zeroes, 1 flushes.
    fn step(&mut self) -> Result<Step, ClientError> {
        let (start, length) = self.place();
        let offset = self.region.offset + start as u64;
        let content = &mut self.region.content[start..start + length];
        match self.random.u8(..16) {
            0..8 => {
                self.buffer.resize(length, 0);
                self.client.read(offset, &mut self.buffer)?;
                return Ok(Step::Read { start, length });
            }
            kind @ 8..14 => {
                self.random.fill(content);
                self.client.write(offset, content, kind == 8)?;
            }
            14 => {
                content.fill(0);
                self.client.write_zeroes(offset, length)?;
            }
            _ => {
                self.client.flush()?;
                return Ok(Step::Wrote(0));
            }
        }
        Ok(Step::Wrote(length))
    }

    /// A start and a length within the region; each power of two is as likely as the others.
    fn place(&mut self) -> (usize, usize) {
        let size = self.region.content.len();
        let longest = 1 << self.random.u32(..=LENGTH_SHIFT_MAX);
        let length = self.random.usize(1..=longest).min(size);
        (self.random.usize(..=size - length), length)
    }
}

/// What a request did.
enum Step {
    Wrote(usize),
    /// Into the buffer, from `start` of the region.
    Read {
        start: usize,
        length: usize,
    },
}

/// An error that names the first byte that differs.
pub(super) fn compare(offset: u64, expected: &[u8], got: &[u8]) -> Result<(), CliError> {
    assert_eq!(expected.len(), got.len(), "as much is compared as was read");
    if expected == got {
        return Ok(());
    }
    let at = expected.iter().zip(got).position(|(expected, got)| expected != got);
    let at = at.expect("they differ");
    let count = expected.iter().zip(got).filter(|(expected, got)| expected != got).count();
    let what = format!("byte {} of the array is not what was written there", offset + at as u64);
    let why = format!("0x{:02x} was written and 0x{:02x} was read", expected[at], got[at]);
    let length = expected.len();
    let more = format!("{count} of the {length} bytes from byte {offset} on differ");
    Err(failed(what).because(why).because(more))
}

/// A request that a healthy disk would not have refused.
pub(super) fn client_error(doing: &str, error: &ClientError) -> CliError {
    failed(format!("a client met an error ({doing})")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_and_named() {
        let expected = vec![7; 1000];
        compare(5000, &expected, &expected).expect("equal");
        for at in [0, 500, 999] {
            let mut got = expected.clone();
            got[at] ^= 1;
            let error = compare(5000, &expected, &got).expect_err("one bit differs");
            assert_eq!(error.code(), braid_console::error::code::Code::VerifyFailed);
            assert!(error.to_string().contains(&format!("byte {} of", 5000 + at)), "{error}");
        }
    }
}
