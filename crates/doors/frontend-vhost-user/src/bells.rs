//! Eventfds: a client's kicks and calls for a ring, and the door's own eventfds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use braid_ring::Descriptor;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags};

/// The name by which the kernel lists an eventfd in `/proc`.
const KIND: &str = "anon_inode:[eventfd]";

pub(crate) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Accepts a client's descriptor only if it is an eventfd: a pipe that the other end does not read
/// fills up, and then a write blocks.
pub(crate) fn adopt(file: File) -> Option<Descriptor> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    // Without /proc the client's descriptor is accepted unchecked.
    let is_one = std::fs::read_link(link).map_or(true, |target| target.as_os_str() == KIND);
    is_one.then(|| Arc::new(OwnedFd::from(file)))
}

pub(crate) fn ring(bell: impl AsFd) {
    // The write fails only after 2^64 rings without a read, when the bell rings already.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Resets the bell, so that it can ring again; never waits.
pub(crate) fn hear(bell: impl AsFd) {
    let mut count = [0; 8];
    let parts = &mut [io::IoSliceMut::new(&mut count)];
    // The read fails if the bell has been reset already.
    let heard = rustix::io::preadv2(&bell, parts, u64::MAX, ReadWriteFlags::NOWAIT);
    // Reads on an old kernel, whose eventfds do not support RWF_NOWAIT.
    if heard == Err(Errno::OPNOTSUPP) && rings(&bell) {
        let _ = rustix::io::read(&bell, &mut count);
    }
}

pub(crate) fn rings(bell: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_until_it_is_heard_and_hearing_never_waits() {
        let flags = EventfdFlags::CLOEXEC;
        for bell in [bell().expect("an eventfd"), eventfd(0, flags).expect("an eventfd")] {
            hear(&bell);
            assert!(!rings(&bell));
            ring(&bell);
            ring(&bell);
            assert!(rings(&bell));
            hear(&bell);
            assert!(!rings(&bell));
        }
    }

    #[test]
    fn only_an_eventfd_is_taken_from_a_client() {
        let (ours, _theirs) = io::pipe().expect("a pipe");
        assert!(adopt(File::from(OwnedFd::from(ours))).is_none());
        assert!(adopt(File::from(bell().expect("an eventfd"))).is_some());
    }
}
