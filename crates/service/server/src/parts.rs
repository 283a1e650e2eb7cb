//! Arrays that are opened before they are served, and the parts on these arrays; each part is one
//! more export.

use std::sync::Arc;

use braid_discovery::ready::Ready;
use braid_frontend_nbd::Export;

use super::device::Device;

/// An array to serve, other arrays on the same server, and the parts on all of them.
pub struct RescuedArrays {
    /// The array.
    pub first: ArrayOrDevice,
    /// Arrays on the same server, with their names.
    pub others: Vec<(String, ArrayOrDevice)>,
    /// Parts. Array number 0 is `first`; numbers from 1 follow the order of `others`.
    pub parts: Vec<Box<dyn Part>>,
}

/// An array, or a device that stands for it.
pub enum ArrayOrDevice {
    /// The array itself, with its members open.
    Array(Box<Ready>),
    /// A device that stands for the array.
    Device(Device),
}

/// A separate part of an array: one stretch, such as a partition, or scattered bytes, such as a
/// volume of LVM.
pub trait Part {
    /// The name of the part's export.
    fn name(&self) -> &str;

    /// The part's content in words.
    fn words(&self) -> &str;

    /// Where the part begins in its array; `None` if it is scattered.
    fn offset_bytes(&self) -> Option<u64>;

    /// The part's size.
    fn size_bytes(&self) -> u64;

    /// The part as an export, given the arrays by number.
    fn export(&self, arrays: &[Arc<dyn Export>]) -> Arc<dyn Export>;
}
