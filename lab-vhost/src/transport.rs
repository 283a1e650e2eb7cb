//! The requests to measure, and the trait of the transports to the array.

use std::error::Error;

/// The kind and length of requests to measure.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) length: usize,
    pub(crate) depth: usize,
    pub(crate) is_write: bool,
}

/// A transport to the array.
pub(crate) trait Transport {
    /// The transport's name in the table.
    fn name(&self) -> &'static str;

    /// Sends a request that uses the memory of this slot.
    fn submit(&mut self, slot: usize, offset: u64, shape: Shape);

    /// Waits for at least one answer; returns the slots whose requests were answered.
    fn complete(&mut self) -> Result<Vec<usize>, Box<dyn Error>>;
}
