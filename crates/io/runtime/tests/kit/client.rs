//! A client of a volume that waits for each answer, and a random generator.

use braid_runtime::{ClientRequest, Payload, Volume};

/// An own generator (xorshift64*), so that a seed always gives the same numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

/// Reads `length` bytes of the volume from `offset` on.
pub(crate) fn read(volume: &Volume, offset: u64, length: usize) -> Vec<u8> {
    let payload = Payload::from(vec![0xdb; length]);
    let outcome = volume.call(ClientRequest::Read { offset, payload });
    outcome.result.expect("a healthy read");
    outcome.payload.expect("a read gives its payload back").to_vec()
}

/// Writes, waiting for stable storage if `durable`.
pub(crate) fn write(volume: &Volume, offset: u64, bytes: &[u8], durable: bool) {
    let payload = Payload::from(bytes);
    let outcome = volume.call(ClientRequest::Write { offset, payload, durable });
    outcome.result.expect("a healthy write");
}
