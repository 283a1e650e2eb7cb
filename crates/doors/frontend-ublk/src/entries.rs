//! What the thread of a queue asks of the kernel: the seam between its requests and the ring by which they come.
//!
//! An entry is with the kernel from `fetch` or `commit` on until its command has ended. Then there is a request in it, or there
//! will be none any more.

use std::io;
use std::os::fd::BorrowedFd;

use braid_ublk_proto::wire::Description;

/// What has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Somebody has left something for this queue; whether that is heard of again.
    Bell { is_heard_again: bool },
    /// The command of an entry: there is a request, or there will be none any more.
    Entry { tag: u16, result: io::Result<()> },
}

/// The entries of one queue.
pub(crate) trait Entries {
    /// How many there are.
    fn depth(&self) -> u16;

    /// Has the kernel tell whenever `bell` is written to.
    fn watch(&mut self, bell: BorrowedFd<'_>);

    /// Gives an entry to the kernel for the first time.
    fn fetch(&mut self, tag: u16);

    /// Answers the request of an entry, and gives it to the kernel again.
    fn commit(&mut self, tag: u16, result: i32);

    /// The description of the request in an entry that the kernel does not have.
    ///
    /// # Panics
    /// When the kernel has it.
    fn description(&self, tag: u16) -> Description;

    /// Takes the payload of a write from the request in an entry.
    fn copy_in(&self, tag: u16, payload: &mut [u8]) -> io::Result<()>;

    /// Gives the payload of a read to the request in an entry.
    fn copy_out(&self, tag: u16, payload: &[u8]) -> io::Result<()>;

    /// Gives what was said to the kernel, and with `sleeps` waits until something has ended.
    ///
    /// # Panics
    /// When the kernel answers what only a mistake of ours can cause.
    fn enter(&mut self, sleeps: bool);

    /// Takes everything that has ended.
    fn reap(&mut self, ended: &mut Vec<Ended>);
}
