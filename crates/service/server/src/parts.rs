//! Arrays that were opened before they are served, and what stands on them: each part is an export
//! of its own beside the whole.

use std::sync::Arc;

use braid_discovery::ready::Ready;
use braid_frontend_nbd::Export;

use super::device::Device;

/// An array that is to be served, others beside it, and what stands on them.
pub struct Rescued {
    /// The array.
    pub first: Opened,
    /// Arrays that are served by the same server, by their names.
    pub beside: Vec<(String, Opened)>,
    /// They lie on the array, which is number 0, or on those beside it, counted on from there.
    pub parts: Vec<Box<dyn Part>>,
}

/// What is served of an array.
pub enum Opened {
    /// The array itself, with its members open.
    Array(Box<Ready>),
    /// A device that stands for it.
    Device(Device),
}

/// A stretch of an array that stands by itself, such as a partition, or bytes from here and there
/// that do, such as a volume of LVM.
pub trait Part {
    /// The name of its export.
    fn name(&self) -> &str;

    /// What it holds, in words.
    fn words(&self) -> &str;

    /// Where it begins in its array; none if it lies here and there.
    fn offset_bytes(&self) -> Option<u64>;

    /// How large it is.
    fn size_bytes(&self) -> u64;

    /// As clients see it, of these arrays by their numbers.
    fn export(&self, arrays: &[Arc<dyn Export>]) -> Arc<dyn Export>;
}
