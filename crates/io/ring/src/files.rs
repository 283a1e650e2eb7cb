//! The open files that one ring knows by number, which spares the kernel look-ups.
//!
//! A registered file stays open as long as the ring knows it, even if the process closes its
//! descriptor. So a file is unregistered before it is closed, and the kernel releases it at once.
//! Otherwise the file stays open until the worker ends. If a process is killed, the kernel ends its
//! rings some 40 ms later, when nothing is in flight on them. Until then a registered file keeps
//! its lock, and rightly so. Direct I/O in flight outlives the process, and no other process may
//! have the file before that I/O ends.
//!
//! Sockets are not registered: a client may be silent for ever. Before Linux 6.13 a ring releases
//! files in the order of the requests on it. So one receive without an answer would keep every file
//! that is released after it.
//!
//! If the kernel has no table of registered files (5.19 has one), operations name descriptors.
//!
//! Invariant: a number means the descriptor for which it was given. The table holds that file open,
//! so its descriptor cannot be reused [check: a_file_is_let_go_when_it_is_unregistered]
//! [check: registered_files_are_used_like_others].

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use io_uring::IoUring;

/// An open file or socket; stays open while an operation holds it.
pub type Descriptor = Arc<OwnedFd>;

/// Maximum number of files that one ring knows: twice the members of a large array.
const FILES: u16 = 512;

const NONE: u16 = u16::MAX;

#[derive(Debug)]
pub(crate) struct Files {
    /// The registered files, indexed by number; empty if the kernel has no such table.
    entries: Vec<Option<Descriptor>>,
    /// Registered numbers, indexed by descriptor.
    numbers: Vec<u16>,
}

impl Files {
    pub(crate) fn new(ring: &IoUring) -> Self {
        let is_known = ring.submitter().register_files_sparse(u32::from(FILES)).is_ok();
        let room = if is_known { usize::from(FILES) } else { 0 };
        Self { entries: vec![None; room], numbers: Vec::new() }
    }

    pub(crate) fn number(&self, descriptor: RawFd) -> Option<u16> {
        let index = usize::try_from(descriptor).ok()?;
        self.numbers.get(index).copied().filter(|number| *number != NONE)
    }

    /// Registers a file with the ring, unless the ring knows the file already or the table is full.
    pub(crate) fn add(&mut self, ring: &IoUring, file: &Descriptor) {
        let (descriptor, free) = (file.as_raw_fd(), self.entries.iter().position(Option::is_none));
        let Some(number) = free.filter(|_| self.number(descriptor).is_none()) else { return };
        let name = u16::try_from(number).expect("few");
        let updated = ring.submitter().register_files_update(u32::from(name), &[descriptor]);
        if updated.is_ok() {
            self.entries[number] = Some(Descriptor::clone(file));
            let index = usize::try_from(descriptor).expect("an open descriptor");
            if self.numbers.len() <= index {
                self.numbers.resize(index + 1, NONE);
            }
            self.numbers[index] = name;
        }
    }

    /// Unregisters a file. Panics if the kernel refuses, since the file would stay open.
    pub(crate) fn remove(&mut self, ring: &IoUring, file: &Descriptor) {
        let Some(name) = self.number(file.as_raw_fd()) else { return };
        let updated = ring.submitter().register_files_update(u32::from(name), &[-1]);
        assert!(updated.is_ok(), "what was registered is let go: {updated:?}");
        self.entries[usize::from(name)] = None;
        self.numbers[usize::try_from(file.as_raw_fd()).expect("an open descriptor")] = NONE;
    }

    pub(crate) fn clear(&mut self, ring: &IoUring) {
        if !self.entries.is_empty() {
            // The end of the ring unregisters the files as well, but later.
            let _ = ring.submitter().unregister_files();
        }
        (self.entries, self.numbers) = (Vec::new(), Vec::new());
    }
}
