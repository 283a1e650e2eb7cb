//! The shipped runtime with the same work: every writer's own thread calls `Volume::call`.

use braid_geometry::Level;
use braid_runtime::{Cache, CacheMode, ClientRequest, Options, Payload, Volume};

use super::work::{BLOCK_BYTES, DATA, FILE_BYTES, Files, STRIPES};
use crate::array::{self, Plan, Policy};

/// Bytes of one request: 57 rows, so that a file takes six requests.
const REQUEST_BYTES: usize = 57 * DATA * BLOCK_BYTES;
const _: () = assert!(FILE_BYTES.is_multiple_of(REQUEST_BYTES as u64), "whole requests");

pub(super) struct Braid {
    volume: Volume,
}

impl Braid {
    pub(super) fn new(files: u64) -> Self {
        Self { volume: open(files, CacheMode::WriteBack) }
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }
}

/// An array with room for this many files.
pub(super) fn open(files: u64, mode: CacheMode) -> Volume {
    let rows = files * FILE_BYTES / (DATA * BLOCK_BYTES) as u64;
    let slots = u16::try_from(DATA + 1).expect("few");
    let plan = Plan {
        level: Level::Raid5,
        slots,
        chunk_sectors: u32::try_from(BLOCK_BYTES / 512).expect("few"),
        // The second summand is room for the superblock and the space reserved after it.
        member_bytes: rows * BLOCK_BYTES as u64 + (64 << 20),
        policy: Policy::Resync,
    };
    let shards = 4;
    let stripe_bytes = BLOCK_BYTES * usize::from(slots);
    let options = Options {
        shards,
        cache: Cache { memory_bytes: (STRIPES * stripe_bytes) as u64, mode, ..Cache::default() },
        ..Options::default()
    };
    array::open(plan, &options, |member| member)
}

impl Files for Braid {
    /// The bytes of a file. The array keeps the payload of a write that it acknowledges early. So
    /// each request gets a new payload, into which the file's bytes are copied, as from a socket.
    type Payload = Vec<u8>;

    fn payload(&self, bytes: Vec<u8>) -> Self::Payload {
        bytes
    }

    fn write_file(&self, file: u64, bytes: &mut Self::Payload) {
        let mut offset = file * FILE_BYTES;
        for bytes in bytes.chunks_exact(REQUEST_BYTES) {
            let mut payload = Payload::for_overwriting(REQUEST_BYTES);
            payload.copy_from_slice(bytes);
            let operation = ClientRequest::Write { offset, payload, durable: false };
            self.volume.call(operation).result.expect("memory takes writes");
            offset += REQUEST_BYTES as u64;
        }
        self.volume.call(ClientRequest::Flush).result.expect("memory is durable enough");
    }
}
