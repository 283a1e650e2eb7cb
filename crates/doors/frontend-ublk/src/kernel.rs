//! Commands for the kernel, and the memory that the commands name: this crate's only code with
//! addresses.
//!
//! A command about a device names memory while it runs, and the caller waits for the command's end.
//! A command about a request names no memory. Descriptions of requests are in a mapped area: the
//! kernel writes an entry's description before its command ends, and again only during its next
//! command.
//!
//! Invariants
//! - The description of an entry whose command is running is not read: asserted in `description`.
//! - Memory of a running command about a device is never freed: `drop`.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use braid_ublk_proto::payload_place;
use braid_ublk_proto::wire::{
    ControlCommand, DEPTH_MAX, DESCRIPTIONS_AT, Description, RequestCommand, fetching,
};
use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::entries::{Entries, RingEvent};

/// The user data of the command that watches the bell, which belongs to no entry.
const BELL: u64 = u64::MAX;

const COMMAND_BYTES: usize = 80;

/// The most bytes of memory that a command about a device may name.
const WITH_BYTES_MAX: usize = 256;

const PAGE_BYTES: usize = 4096;

/// A ring for commands about devices, one at a time.
pub(crate) struct Calls {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    with: ManuallyDrop<Box<[u8; WITH_BYTES_MAX]>>,
    is_out: bool,
}

impl Calls {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(2)?;
        let with = ManuallyDrop::new(Box::new([0; WITH_BYTES_MAX]));
        Ok(Self { ring, file, with, is_out: false })
    }

    /// Submits a command and waits for its end. The command names the memory `bytes`, in which the
    /// kernel returns its answer.
    ///
    /// # Panics
    /// With too many bytes, or on an error that only a mistake in this crate can cause.
    #[allow(unsafe_code)]
    pub(crate) fn call(
        &mut self,
        code: u32,
        command: ControlCommand,
        bytes: &mut [u8],
    ) -> io::Result<()> {
        assert!(!self.is_out, "one command at a time");
        self.with[..bytes.len()].copy_from_slice(bytes);
        let addr = self.with.as_mut_ptr().expose_provenance() as u64;
        let len = u16::try_from(bytes.len()).expect("no more than there is room for");
        let addr = if bytes.is_empty() { 0 } else { addr };
        let command = ControlCommand { addr, len, ..command };
        let mut said = [0; COMMAND_BYTES];
        said[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), code).cmd(said).build();
        // SAFETY: the memory is boxed and stays until the command has ended: this function waits
        // for the end, and `drop` does not free the memory earlier. Only this function reads or
        // writes it.
        unsafe { self.ring.submission().push(&entry) }.expect("room for the one command");
        self.is_out = true;
        let ended = loop {
            enter(self.ring.submit_and_wait(1));
            if let Some(ended) = self.ring.completion().next() {
                break ended;
            }
        };
        self.is_out = false;
        bytes.copy_from_slice(&self.with[..bytes.len()]);
        if ended.result() < 0 { Err(io::Error::from_raw_os_error(-ended.result())) } else { Ok(()) }
    }
}

impl Drop for Calls {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if !self.is_out {
            // SAFETY: only this line drops the memory, and no code uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.with) };
        }
    }
}

pub(crate) struct Commands {
    ring: IoUring,
    file: Arc<File>,
    descriptions: MmapRaw,
    number: u16,
    out: Vec<bool>,
}

impl Commands {
    /// Makes a ring for queue `number` of a device; the queue has `depth` entries.
    pub(crate) fn new(file: Arc<File>, number: u16, depth: u16) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
        let ring = builder.build(u32::from(depth) + 1)?;
        let pages =
            |entries: usize| (entries * size_of::<Description>()).next_multiple_of(PAGE_BYTES);
        let place = DESCRIPTIONS_AT + u64::from(number) * pages(DEPTH_MAX) as u64;
        let length = pages(usize::from(depth));
        let descriptions =
            MmapOptions::new().offset(place).len(length).map_raw_read_only(&*file)?;
        Ok(Self { ring, file, descriptions, number, out: vec![false; usize::from(depth)] })
    }

    fn send(&mut self, tag: u16, what: u32, result: i32) {
        let is_out = &mut self.out[usize::from(tag)];
        assert!(!*is_out, "an entry has one command at a time");
        *is_out = true;
        let said = RequestCommand { q_id: self.number, tag, result, addr: 0 };
        let said = zerocopy::transmute!(said);
        let command = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), what).cmd(said).build();
        self.push(&command.user_data(u64::from(tag)));
    }

    #[allow(unsafe_code)]
    fn push(&mut self, command: &squeue::Entry) {
        // SAFETY: the command names no memory. The device's file and the bell stay open.
        while unsafe { self.ring.submission().push(command) }.is_err() {
            self.enter(false);
        }
    }
}

impl Entries for Commands {
    fn depth(&self) -> u16 {
        u16::try_from(self.out.len()).expect("it was given as such")
    }

    fn watch(&mut self, bell: BorrowedFd<'_>) {
        let events = u32::try_from(libc::POLLIN).expect("a small number");
        let poll = opcode::PollAdd::new(Fd(bell.as_raw_fd()), events).multi(true).build();
        self.push(&poll.user_data(BELL));
    }

    fn fetch(&mut self, tag: u16) {
        self.send(tag, fetching::FETCH_REQ, 0);
    }

    fn commit(&mut self, tag: u16, result: i32) {
        self.send(tag, fetching::COMMIT_AND_FETCH_REQ, result);
    }

    #[allow(unsafe_code)]
    fn description(&self, tag: u16) -> Description {
        let index = usize::from(tag);
        assert!(!self.out[index], "the kernel has this entry");
        let all = self.descriptions.as_ptr().cast::<Description>();
        debug_assert!(self.descriptions.len() >= self.out.len() * size_of::<Description>());
        // SAFETY: the address is within the mapping, which covers all entries; any bytes are a
        // description. The kernel wrote the description before the reaped command ended, and does
        // not write it until the entry's next command.
        unsafe { all.add(index).read_volatile() }
    }

    fn copy_in(&self, tag: u16, payload: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(payload, payload_place(self.number, tag))
    }

    fn copy_out(&self, tag: u16, payload: &[u8]) -> io::Result<()> {
        self.file.write_all_at(payload, payload_place(self.number, tag))
    }

    fn enter(&mut self, sleeps: bool) {
        enter(self.ring.submit_and_wait(usize::from(sleeps)));
    }

    fn reap(&mut self, ended: &mut Vec<RingEvent>) {
        let Self { ring, out, .. } = self;
        ended.extend(ring.completion().map(|completion| {
            if completion.user_data() == BELL {
                return RingEvent::Bell { is_heard_again: cqueue::more(completion.flags()) };
            }
            let tag = u16::try_from(completion.user_data()).expect("one of our entries");
            out[usize::from(tag)] = false;
            let code = completion.result();
            let result = if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) };
            RingEvent::Entry { tag, result }
        }));
    }
}

fn enter(result: io::Result<usize>) {
    let Err(error) = result else { return };
    let passes = [Errno::INTR, Errno::AGAIN, Errno::BUSY];
    let code = error.raw_os_error();
    let passes = passes.iter().any(|errno| Some(errno.raw_os_error()) == code);
    assert!(passes, "io_uring_enter: {error}");
}
