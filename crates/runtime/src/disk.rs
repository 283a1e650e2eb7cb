//! What a door serves: the seam between doors that ask for bytes and the array, in whose place their tests put another.

use std::sync::Arc;

use crate::client::{Receiver, VolumeOperation};
use crate::volume::Volume;

/// A thing to serve, of sectors that may be asked for by bytes.
pub trait Disk: Send + Sync + 'static {
    /// Its size, which stays.
    fn size_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// What is best written as a whole.
    fn unit_bytes(&self) -> u64;

    /// Starts an operation, and returns without waiting for others; `receiver` is told of its end once, on any thread.
    fn submit(&self, operation: VolumeOperation, receiver: Arc<dyn Receiver>, token: u64);
}

impl Disk for Volume {
    fn size_bytes(&self) -> u64 {
        self.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only()
    }

    fn unit_bytes(&self) -> u64 {
        self.unit_bytes()
    }

    fn submit(&self, operation: VolumeOperation, receiver: Arc<dyn Receiver>, token: u64) {
        self.submit_for(operation, receiver, token);
    }
}
