//! Commands for the kernel, and the memory that the commands name: this crate's only code with
//! addresses.
//!
//! A queue of the kernel's has entries. Each entry has two runs of memory that are registered once:
//! the headers, and the payload. Afterwards the kernel writes into both runs only while the entry's
//! command is running. So each command lends both runs to the kernel, and this process does not
//! touch them until it has reaped the command's completion.
//!
//! Invariants
//! - The memory of an entry whose command is running is not touched: asserted in `of_idle`.
//! - A dropped queue never frees memory that the kernel may still write: `drop`.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};

use braid_fuse_proto::wire::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand, RingHeader};
use braid_ring::Region;
use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use rustix::io::Errno;

/// The user data of the command that watches the bell, which belongs to no entry.
const BELL: u64 = u64::MAX;

/// Bytes of a command in its entry of the submission queue.
const COMMAND_BYTES: usize = 80;

/// Offset of `len` in `struct io_uring_sqe`: the number of vectors.
const LENGTH_AT: usize = 24;

/// Bytes of a request's headers, in a page of their own.
const HEADER_BYTES: usize = 4096;

const _: () = assert!(size_of::<RingHeader>() <= HEADER_BYTES);

/// Memory of all entries of a queue. This is not payload memory, which is registered with the rings
/// of members and is too scarce to be lent for ever.
struct Memory {
    region: Region,
    payload_bytes: usize,
    entries: Vec<Entry>,
}

struct Entry {
    vectors: Box<[libc::iovec; 2]>,
    is_out: bool,
}

// SAFETY: the vectors point into the region that the same entry owns, and the region never moves.
#[allow(unsafe_code)]
unsafe impl Send for Entry {}

impl Memory {
    fn new(entries: usize, payload_bytes: usize) -> io::Result<Self> {
        let each_bytes = HEADER_BYTES + payload_bytes;
        let region = Region::reserve(entries * each_bytes)?;
        let start = region.as_non_null().as_ptr();
        let entry = |index: usize| {
            let header = start.wrapping_add(index * each_bytes);
            let payload = header.wrapping_add(HEADER_BYTES);
            let vector = |start: *mut u8, iov_len| libc::iovec { iov_base: start.cast(), iov_len };
            let vectors = [vector(header, HEADER_BYTES), vector(payload, payload_bytes)];
            Entry { vectors: Box::new(vectors), is_out: false }
        };
        let entries = (0..entries).map(entry).collect();
        Ok(Self { region, payload_bytes, entries })
    }

    /// Headers and payload of an entry outside the kernel's hands.
    ///
    /// # Panics
    /// When the kernel has the entry.
    #[allow(unsafe_code)]
    fn of_idle(&mut self, index: usize) -> (&mut [u8], &mut [u8]) {
        let entry = &self.entries[index];
        assert!(!entry.is_out, "the kernel has this entry's memory");
        let [header, payload] = entry.vectors.as_ref();
        debug_assert!(payload.iov_len == self.payload_bytes && self.region.length_bytes() > index);
        // SAFETY: these are two disjoint runs of the region, which was zeroed when it was made. The
        // kernel writes neither run until the entry's next command, which takes `self` exclusively,
        // as this function does.
        unsafe {
            let header = std::slice::from_raw_parts_mut(header.iov_base.cast(), header.iov_len);
            let payload = std::slice::from_raw_parts_mut(payload.iov_base.cast(), payload.iov_len);
            (header, payload)
        }
    }
}

#[derive(Debug)]
pub(super) enum RingEvent {
    /// The bell rang. If `is_heard_again`, the kernel continues to watch the bell.
    Bell { is_heard_again: bool },
    /// The command of an entry has ended.
    Entry { index: usize, result: io::Result<()> },
}

pub(super) struct Commands {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    memory: ManuallyDrop<Memory>,
    number: u16,
    device: i32,
}

impl Commands {
    /// Makes a ring with memory for its entries, for queue `number` of the FUSE connection of
    /// `device`. The caller keeps `device` open as long as it uses the queue's ring.
    pub(super) fn new(
        device: BorrowedFd<'_>,
        number: u16,
        (entries, payload_bytes): (usize, usize),
    ) -> io::Result<Self> {
        let room = u32::try_from(entries + 1).map_err(io::Error::other)?;
        let mut builder = IoUring::builder();
        builder.dontfork().setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
        let ring = builder.build(room)?;
        let memory = ManuallyDrop::new(Memory::new(entries, payload_bytes)?);
        Ok(Self { ring, memory, number, device: device.as_raw_fd() })
    }

    pub(super) fn count(&self) -> usize {
        self.memory.entries.len()
    }

    pub(super) fn watch(&mut self, bell: BorrowedFd<'_>) {
        let events = u32::try_from(libc::POLLIN).expect("a small number");
        let poll = opcode::PollAdd::new(Fd(bell.as_raw_fd()), events).multi(true).build();
        self.push(poll.user_data(BELL).into());
    }

    pub(super) fn register(&mut self, index: usize) {
        self.send(index, RING_REGISTER, 0);
    }

    /// Answers an entry's request with the bytes in the entry's memory; the kernel gets the entry.
    pub(super) fn commit(&mut self, index: usize, unique: u64) {
        self.send(index, RING_COMMIT_AND_FETCH, unique);
    }

    /// Headers and payload of an entry outside the kernel's hands.
    ///
    /// # Panics
    /// When the kernel has the entry.
    pub(super) fn of_idle(&mut self, index: usize) -> (&mut [u8], &mut [u8]) {
        self.memory.of_idle(index)
    }

    fn send(&mut self, index: usize, what: u32, unique: u64) {
        let entry = &mut self.memory.entries[index];
        assert!(!entry.is_out, "an entry has one command at a time");
        entry.is_out = true;
        let said = RingCommand { commit_id: unique, qid: self.number, ..RingCommand::default() };
        let mut bytes = [0; COMMAND_BYTES];
        let said = zerocopy::IntoBytes::as_bytes(&said);
        bytes[..said.len()].copy_from_slice(said);
        let mut command = opcode::UringCmd80::new(Fd(self.device), what).cmd(bytes);
        if what == RING_REGISTER {
            command = command.addr(Some(entry.vectors.as_ptr().expose_provenance() as u64));
        }
        let command = command.build().user_data(index as u64);
        let command = if what == RING_REGISTER { with_length(command, 2) } else { command };
        self.push(command);
    }

    #[allow(unsafe_code)]
    fn push(&mut self, command: squeue::Entry128) {
        // SAFETY: the vectors are boxed, and the memory is an entry's; both stay until the command
        // has ended: `of_idle` hands out neither, `drop` frees neither. The bell's command names no
        // memory.
        while unsafe { self.ring.submission().push(&command) }.is_err() {
            self.enter(false);
        }
    }

    /// Submits all commands, and if `sleeps` waits for a completion.
    ///
    /// # Panics
    /// On an error that only a mistake in this crate can cause.
    pub(super) fn enter(&mut self, sleeps: bool) {
        match self.ring.submit_and_wait(usize::from(sleeps)) {
            Ok(_) => {}
            Err(error) => {
                let passes = [Errno::INTR, Errno::AGAIN, Errno::BUSY];
                let code = error.raw_os_error();
                let passes = passes.iter().any(|errno| Some(errno.raw_os_error()) == code);
                assert!(passes, "io_uring_enter: {error}");
            }
        }
    }

    pub(super) fn reap(&mut self, ended: &mut Vec<RingEvent>) {
        let Self { ring, memory, .. } = self;
        ended.extend(ring.completion().map(|completion| {
            if completion.user_data() == BELL {
                return RingEvent::Bell { is_heard_again: cqueue::more(completion.flags()) };
            }
            let index = usize::try_from(completion.user_data()).expect("one of our entries");
            memory.entries[index].is_out = false;
            let code = completion.result();
            let result = if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) };
            RingEvent::Entry { index, result }
        }));
    }
}

impl Drop for Commands {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if !self.memory.entries.iter().any(|entry| entry.is_out) {
            // SAFETY: only this line drops the memory, and no code uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Sets a command's number of vectors, for which `io-uring` has no setter.
#[allow(unsafe_code)]
fn with_length(command: squeue::Entry128, length: u32) -> squeue::Entry128 {
    // SAFETY: a submission queue entry is 128 bytes of the kernel's layout, without padding; any
    // bytes are valid.
    let mut bytes: [u8; 128] = unsafe { std::mem::transmute(command) };
    bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_ne_bytes());
    // SAFETY: a queue entry has the same 128 bytes, without padding; any bytes are valid.
    unsafe { std::mem::transmute(bytes) }
}
