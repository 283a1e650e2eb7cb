//! The contenders' interface: a backend takes clients' requests and sends requests to disks.

use crate::disk::{ArmPurpose, DiskRequest};

/// A client's request, whose range is in sectors of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientRequest {
    pub(super) id: u64,
    pub(super) start: u64,
    pub(super) sectors: u32,
    pub(super) is_write: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// Requests to disks: the disk, the request, and its purpose.
    pub(super) disks: Vec<(usize, DiskRequest, ArmPurpose)>,
    pub(super) answers: Vec<u64>,
}

/// An array without its disks. Any call may leave effects to be taken.
pub(super) trait Backend {
    fn request(&mut self, now: u64, request: ClientRequest);

    fn disk_done(&mut self, now: u64, id: u64);

    fn handle_timeout(&mut self, now: u64);

    /// The latest time of the next call to the backend.
    fn timeout(&self) -> Option<u64>;

    /// Starts writing all acknowledged data to the disks. Clients submit nothing more.
    fn flush(&mut self, now: u64);

    /// Takes the effects since the last call.
    fn take(&mut self) -> Effects;

    /// Acknowledged data that is not yet on the disks, in thousandths of the limit.
    fn backlog_permille(&self) -> u32;

    fn is_idle(&self) -> bool;

    /// Number of sectors read because of writes.
    fn pre_read_sectors(&self) -> u64;

    fn counters(&self) -> String;
}
