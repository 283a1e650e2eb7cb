//! The trait between a queue's thread and the ring through which the queue's requests arrive.
//!
//! The kernel has an entry from `fetch` or `commit` until the entry's command ends or fails.

use std::io;
use std::os::fd::BorrowedFd;

use braid_ublk_proto::wire::Description;

#[derive(Debug)]
pub(crate) enum RingEvent {
    /// The bell rang. If `is_heard_again`, the kernel continues to watch the bell.
    Bell { is_heard_again: bool },
    /// The command of an entry has ended: the entry holds a request, or has failed for good.
    Entry { tag: u16, result: io::Result<()> },
}

pub(crate) trait Entries {
    fn depth(&self) -> u16;

    fn watch(&mut self, bell: BorrowedFd<'_>);

    fn fetch(&mut self, tag: u16);

    /// Answers the request of an entry, and gives the entry to the kernel again.
    fn commit(&mut self, tag: u16, result: i32);

    /// The description of the request in an entry.
    ///
    /// # Panics
    /// When the kernel has the entry.
    fn description(&self, tag: u16) -> Description;

    /// Copies a write's payload from the kernel.
    fn copy_in(&self, tag: u16, payload: &mut [u8]) -> io::Result<()>;

    /// Copies a read's payload to the kernel.
    fn copy_out(&self, tag: u16, payload: &[u8]) -> io::Result<()>;

    /// Submits all commands, and if `sleeps` waits for a completion.
    ///
    /// # Panics
    /// On an error that only a mistake in this crate can cause.
    fn enter(&mut self, sleeps: bool);

    fn reap(&mut self, ended: &mut Vec<RingEvent>);
}
