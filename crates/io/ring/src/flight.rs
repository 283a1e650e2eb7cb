//! Operations in flight: the one place where entries are given to the kernel.
//!
//! An entry holds raw addresses. Three rules of this file keep them valid:
//!
//! - An operation, with the memory that it owns or leases, stays in its [`Slot`] from
//!   [`Flight::submit`] until its completion was reaped. Only then is the slot reused. A failed
//!   submission frees nothing, since the entry is still queued.
//!   [check: stop_waits_for_what_is_in_flight]
//! - Slots are boxed and recycled. So the vectors and message headers inside keep their addresses
//!   while the list of slots grows.
//! - A flight that is dropped with operations in flight ends the process instead.
//!
//! An entry that finds the submission queue full waits in `overflow`, and goes first next time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use smallvec::SmallVec;

use crate::counters::{Tally, add};
use crate::files::{Descriptor, Files};
use crate::fixed_buffers::FixedBuffers;
use crate::memory::Segments;
use crate::operation::{Completion, Handler, Operation, Zeroing};

/// User data of entries that are no operations.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// Maximum number of segments of one operation; the kernel takes 1024.
const SEGMENTS_MAX: usize = 256;

/// Maximum bytes of one entry; the kernel moves 2 GiB less a page at once.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Maximum number of retries after `EAGAIN` from a file.
const BUSY_MAX: u32 = 1000;

/// One operation, and the structures, other than its memory, to which its entry points.
struct Slot {
    pending: Option<PendingOperation>,
    vectors: SmallVec<[libc::iovec; 4]>,
    header: libc::msghdr,
}

struct PendingOperation {
    operation: Operation,
    handler: Arc<dyn Handler>,
    token: u64,
    /// Bytes that the operation has moved so far.
    moved: usize,
    /// Bytes that the operation must move in total.
    length_bytes: usize,
    busy_answers: u32,
    is_cancelled: bool,
}

pub(crate) struct EndedOperation {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) completion: Completion,
}

/// The next step of an operation after one of its entries has ended.
enum Step {
    Again,
    End(io::Result<usize>),
}

pub(crate) struct Flight {
    ring: IoUring,
    // The slots are boxed, since entries point into them.
    #[allow(clippy::vec_box)]
    slots: Vec<Box<Slot>>,
    free: Vec<u32>,
    overflow: VecDeque<squeue::Entry>,
    /// Completions from the kernel: the entry's user data, the result, whether more will come.
    reaped: Vec<(u64, i32, bool)>,
    fixed_buffers: FixedBuffers,
    files: Files,
    tally: Arc<Tally>,
}

impl Flight {
    pub(crate) fn new(ring: IoUring, tally: Arc<Tally>) -> Self {
        let (fixed_buffers, files) = (FixedBuffers::new(&ring), Files::new(&ring));
        Self {
            ring,
            fixed_buffers,
            files,
            slots: Vec::new(),
            free: Vec::new(),
            overflow: VecDeque::new(),
            reaped: Vec::new(),
            tally,
        }
    }

    /// Number of operations whose end has not been reaped.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Queues an operation. Panics if the operation would write into a constant, or has too many
    /// segments.
    pub(crate) fn submit(
        &mut self,
        mut operation: Operation,
        handler: Arc<dyn Handler>,
        token: u64,
    ) {
        let fills = operation.fills();
        if let Some(memory) = operation.memory() {
            assert!(memory.len() <= SEGMENTS_MAX, "an operation has few segments");
            let writable = memory.iter().all(|segment| segment.is_writable());
            assert!(writable || !fills, "constant memory is not read into");
        }
        let length_bytes = operation.length_bytes();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Box::new(Slot::new()));
            u32::try_from(self.slots.len() - 1).expect("fewer operations than that fit in memory")
        });
        self.slots[index as usize].pending = Some(PendingOperation {
            operation,
            handler,
            token,
            moved: 0,
            length_bytes,
            busy_answers: 0,
            is_cancelled: false,
        });
        self.push_slot(index);
    }

    fn push_slot(&mut self, index: u32) {
        let Self { ring, slots, fixed_buffers, files, tally, .. } = self;
        let slot = &mut slots[index as usize];
        let descriptor = slot.descriptor();
        // Operations that wait for a peer always name the descriptor, never a registered number.
        // Before Linux 6.13 a ring releases files in the order of the requests on them, so an
        // endless request would keep every later file.
        let number = files.number(descriptor).filter(|_| slot.is_on_file());
        let fd = Fd(number.map_or(descriptor, RawFd::from));
        let mut entry = slot.entry(fd, |bytes| {
            let name = fixed_buffers.name_of(ring, bytes);
            add(&tally.registered, usize::from(name.is_some()));
            name
        });
        if number.is_some() {
            add(&tally.numbered, 1);
            entry = entry.flags(squeue::Flags::FIXED_FILE);
        }
        self.push(entry.user_data(u64::from(index)));
    }

    /// Registers a file with the ring: see [`Files`].
    pub(crate) fn register(&mut self, file: &Descriptor) {
        self.files.add(&self.ring, file);
    }

    /// Unregisters a file. The kernel looks registered numbers up when it takes entries, so no
    /// queued entry may name a number that could then mean another file. If the kernel takes no
    /// entries just now, the file stays registered until the worker ends.
    pub(crate) fn unregister(&mut self, file: &Descriptor) {
        for _ in 0..BUSY_MAX {
            if self.overflow.is_empty() && self.ring.submission().is_empty() {
                return self.files.remove(&self.ring, file);
            }
            self.enter(None);
        }
    }

    pub(crate) fn unregister_all(&mut self) {
        self.files.clear(&self.ring);
    }

    /// Makes the kernel report every write to `bell`.
    pub(crate) fn watch(&mut self, bell: BorrowedFd<'_>) {
        let poll = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32).multi(true);
        self.push(poll.build().user_data(BELL));
    }

    /// Asks the kernel to end early the operations that `is_meant` selects. Each operation ends as
    /// cancelled, or with its own result.
    pub(crate) fn cancel(&mut self, is_meant: impl Fn(&Arc<dyn Handler>, u64, &Operation) -> bool) {
        for index in 0..self.slots.len() {
            let Some(pending) = &mut self.slots[index].pending else { continue };
            let (handler, operation) = (&pending.handler, &pending.operation);
            if pending.is_cancelled || !is_meant(handler, pending.token, operation) {
                continue;
            }
            pending.is_cancelled = true;
            self.push(opcode::AsyncCancel::new(index as u64).build().user_data(CANCEL));
        }
    }

    #[allow(unsafe_code)]
    fn push(&mut self, entry: squeue::Entry) {
        if !self.overflow.is_empty() {
            self.overflow.push_back(entry);
            return add(&self.tally.overflowed, 1);
        }
        // SAFETY: the entry's pointers are valid until it completes: see the head of this file.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.overflow.push_back(entry);
            add(&self.tally.overflowed, 1);
        }
    }

    #[allow(unsafe_code)]
    fn refill(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.overflow.front() {
            // SAFETY: as in `push`.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.overflow.pop_front();
        }
    }

    /// Submits all queued entries. With `sleep`, if no completion is ready, waits for one, at most
    /// for the given time. Panics on an error that only a bug here can cause.
    pub(crate) fn enter(&mut self, sleep: Option<Option<Duration>>) {
        loop {
            self.refill();
            let is_last = self.overflow.is_empty();
            let (queued, has_task) = {
                let queue = self.ring.submission();
                (queue.len(), queue.taskrun() || queue.cq_overflow())
            };
            let sleep = sleep.filter(|_| is_last && self.ring.completion().is_empty());
            if queued == 0 && !has_task && sleep.is_none() {
                return;
            }
            add(&self.tally.enters, 1);
            match self.call(sleep) {
                Ok(taken) => {
                    add(&self.tally.submissions, usize::from(taken > 0));
                    add(&self.tally.entries, taken);
                    if is_last || taken == 0 {
                        return;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    // The call failed for a harmless reason: the sleep is over, a signal came, or
                    // completions must be reaped first.
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => return,
                    _ => panic!("io_uring_enter: {error}"),
                },
            }
        }
    }

    /// Whether completions are ready. Makes the kernel post the completions of ended operations
    /// first, and does not sleep.
    pub(crate) fn has_ended(&mut self) -> bool {
        if !self.ring.completion().is_empty() {
            return true;
        }
        self.ring.submission().taskrun() && {
            self.enter(None);
            !self.ring.completion().is_empty()
        }
    }

    fn call(&mut self, sleep: Option<Option<Duration>>) -> io::Result<usize> {
        let Some(longest) = sleep else { return self.ring.submit() };
        add(&self.tally.sleeps, 1);
        match longest.map(Timespec::from) {
            None => self.ring.submit_and_wait(1),
            Some(longest) => {
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&longest))
            }
        }
    }

    /// Takes all completions, and adds the operations that ended to `ended`. Returns whether the
    /// bell must be watched anew.
    pub(crate) fn reap(&mut self, ended: &mut Vec<EndedOperation>) -> bool {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion().map(|entry| {
            (entry.user_data(), entry.result(), io_uring::cqueue::more(entry.flags()))
        }));
        add(&self.tally.completions, reaped.len());
        let mut is_bell_silent = false;
        for (name, result, has_more) in reaped.drain(..) {
            match name {
                BELL => is_bell_silent |= !has_more,
                CANCEL => {}
                _ => ended.extend(self.settle(name, result)),
            }
        }
        self.reaped = reaped;
        is_bell_silent
    }

    fn settle(&mut self, name: u64, result: i32) -> Option<EndedOperation> {
        let index = u32::try_from(name).expect("the kernel returns our own names");
        let slot = &mut self.slots[index as usize];
        let pending = slot.pending.as_mut().expect("an operation completes once");
        let accepted = pending.accepted(result);
        let result = match pending.step(result) {
            Step::End(result) => result,
            Step::Again => {
                add(&self.tally.resumed, 1);
                self.push_slot(index);
                return None;
            }
        };
        let PendingOperation { operation, handler, token, .. } = slot.pending.take()?;
        self.free.push(index);
        Some(EndedOperation {
            handler,
            completion: Completion { token, result, accepted, operation },
        })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            // Abort, since unwinding would free memory that the kernel may be using.
            std::process::abort();
        }
    }
}

impl PendingOperation {
    #[allow(unsafe_code)]
    fn accepted(&self, result: i32) -> Option<OwnedFd> {
        let is_socket = matches!(self.operation, Operation::Accept { .. }) && result >= 0;
        // SAFETY: the kernel has just opened this descriptor for this completion, which is handled
        // once.
        is_socket.then(|| unsafe { OwnedFd::from_raw_fd(result) })
    }

    fn step(&mut self, result: i32) -> Step {
        let Ok(moved) = usize::try_from(result) else { return self.fail(-result) };
        self.moved += moved;
        let rest = self.length_bytes.saturating_sub(self.moved);
        match &self.operation {
            Operation::Sync { .. }
            | Operation::Zero { .. }
            | Operation::Accept { .. }
            | Operation::Poll { .. } => Step::End(Ok(0)),
            _ if rest == 0 => Step::End(Ok(self.moved)),
            Operation::Receive { whole, .. } => {
                if *whole && moved > 0 {
                    Step::Again
                } else {
                    Step::End(Ok(self.moved))
                }
            }
            Operation::Read { .. } if moved == 0 => {
                Step::End(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            _ if moved == 0 => Step::End(Err(io::ErrorKind::WriteZero.into())),
            _ => Step::Again,
        }
    }

    fn fail(&mut self, errno: i32) -> Step {
        let is_file = !matches!(
            self.operation,
            Operation::Accept { .. }
                | Operation::Poll { .. }
                | Operation::Receive { .. }
                | Operation::Send { .. }
        );
        let is_busy = errno == libc::EAGAIN && is_file && self.busy_answers < BUSY_MAX;
        if is_busy || (errno == libc::EINTR && !self.is_cancelled) {
            self.busy_answers += u32::from(is_busy);
            return Step::Again;
        }
        Step::End(Err(io::Error::from_raw_os_error(errno)))
    }
}

impl Slot {
    fn new() -> Self {
        // musl's header has private padding, which widens fields to the kernel's word. It must be
        // zero.
        // SAFETY: null pointers, lengths of zero and no flags are a message header.
        #[allow(unsafe_code)]
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Self { pending: None, vectors: SmallVec::new(), header }
    }

    /// Whether the operation is on a file, so that it ends without an action of a peer.
    fn is_on_file(&self) -> bool {
        let operation = &self.pending.as_ref().expect("a slot in use").operation;
        !operation.waits_for_a_peer() && !matches!(operation, Operation::Send { .. })
    }

    fn descriptor(&self) -> RawFd {
        self.pending.as_ref().expect("a slot in use").operation.file().as_raw_fd()
    }

    /// The entry for the rest of the operation, on `fd`, a descriptor or a registered number.
    /// `name_of` returns the number of registered memory.
    fn entry(
        &mut self,
        fd: Fd,
        name_of: impl FnOnce((*const u8, u32)) -> Option<u16>,
    ) -> squeue::Entry {
        let Self { pending, vectors, header } = self;
        let pending = pending.as_mut().expect("a slot in use");
        let moved = pending.moved;
        match &mut pending.operation {
            Operation::Read { offset, memory, .. } => {
                let (file, offset) = (fd, *offset + moved as u64);
                match aim(memory, moved, vectors) {
                    One(start, length) => match name_of((start, length)) {
                        Some(name) => {
                            let read = opcode::ReadFixed::new(file, start, length, name);
                            read.offset(offset).build()
                        }
                        None => opcode::Read::new(file, start, length).offset(offset).build(),
                    },
                    Many(count) => {
                        opcode::Readv::new(file, vectors.as_ptr(), count).offset(offset).build()
                    }
                }
            }
            Operation::Write { offset, memory, durable, .. } => {
                let (file, offset) = (fd, *offset + moved as u64);
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                match aim(memory, moved, vectors) {
                    One(start, length) => match name_of((start, length)) {
                        Some(name) => {
                            let write = opcode::WriteFixed::new(file, start, length, name);
                            write.offset(offset).rw_flags(flags).build()
                        }
                        None => {
                            let write = opcode::Write::new(file, start, length).offset(offset);
                            write.rw_flags(flags).build()
                        }
                    },
                    Many(count) => {
                        let write = opcode::Writev::new(file, vectors.as_ptr(), count);
                        write.offset(offset).rw_flags(flags).build()
                    }
                }
            }
            Operation::Sync { .. } => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Operation::Zero { offset, length, how, .. } => {
                let mode = libc::FALLOC_FL_KEEP_SIZE
                    | match how {
                        Zeroing::PunchHole => libc::FALLOC_FL_PUNCH_HOLE,
                        Zeroing::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
                    };
                let zero = opcode::Fallocate::new(fd, *length);
                zero.offset(*offset).mode(mode).build()
            }
            Operation::Accept { .. } => {
                let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
                let accept = opcode::Accept::new(fd, address, length);
                accept.flags(libc::SOCK_CLOEXEC).build()
            }
            Operation::Poll { .. } => opcode::PollAdd::new(fd, libc::POLLIN as u32).build(),
            Operation::Receive { memory, whole, .. } => {
                let aimed = aim(memory, moved, vectors);
                receive(fd, &aimed, (header, vectors), *whole)
            }
            Operation::Send { memory, more, .. } => {
                let aimed = aim(memory, moved, vectors);
                send(fd, &aimed, (header, vectors), *more)
            }
        }
    }
}

/// A message header, and the vectors to which it will point.
type Message<'a> = (&'a mut libc::msghdr, &'a mut SmallVec<[libc::iovec; 4]>);

fn receive(socket: Fd, aimed: &EntryBytes, message: Message<'_>, whole: bool) -> squeue::Entry {
    let flags = if whole { libc::MSG_WAITALL } else { 0 };
    match *aimed {
        One(start, length) => opcode::Recv::new(socket, start, length).flags(flags).build(),
        Many(count) => {
            let header = point(message, count);
            opcode::RecvMsg::new(socket, header).flags(flags.cast_unsigned()).build()
        }
    }
}

fn send(socket: Fd, aimed: &EntryBytes, message: Message<'_>, more: bool) -> squeue::Entry {
    let more = if more { libc::MSG_MORE } else { 0 };
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | more;
    match *aimed {
        One(start, length) => opcode::Send::new(socket, start, length).flags(flags).build(),
        Many(count) => {
            let header = point(message, count);
            opcode::SendMsg::new(socket, header).flags(flags.cast_unsigned()).build()
        }
    }
}

/// An entry's bytes: one run of memory, or several runs listed in `vectors`.
enum EntryBytes {
    One(*mut u8, u32),
    Many(u32),
}
use EntryBytes::{Many, One};

/// Makes the vectors point at `memory` beyond the first `moved` bytes.
fn aim(
    memory: &mut Segments,
    moved: usize,
    vectors: &mut SmallVec<[libc::iovec; 4]>,
) -> EntryBytes {
    vectors.clear();
    let mut skipped = moved;
    for segment in memory.iter_mut() {
        let skip = skipped.min(segment.length_bytes());
        skipped -= skip;
        let (start, length) = segment.rest(skip);
        if length > 0 {
            vectors.push(libc::iovec { iov_base: start.cast(), iov_len: length });
        }
    }
    let count = |count: usize| u32::try_from(count).expect("capped");
    match vectors.as_slice() {
        [] => One(std::ptr::NonNull::dangling().as_ptr(), 0),
        [only] => One(only.iov_base.cast(), count(only.iov_len.min(ENTRY_BYTES_MAX))),
        many => Many(count(many.len())),
    }
}

/// Makes a message header point at the vectors.
fn point((header, vectors): Message<'_>, count: u32) -> &mut libc::msghdr {
    header.msg_iov = vectors.as_mut_ptr();
    // The field is as wide as the kernel's word in glibc, and half as wide in musl.
    header.msg_iovlen = count.try_into().expect("capped");
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::ring;

    #[allow(unsafe_code)]
    fn answer(entry: squeue::Entry) -> Option<i32> {
        let mut ring = ring(8).ok()?;
        // SAFETY: the memory that the entry names lives as long as the program.
        unsafe { ring.submission().push(&entry) }.expect("there is room");
        ring.submit_and_wait(1).expect("it is answered");
        Some(ring.completion().next().expect("an answer").result())
    }

    #[test]
    fn a_ring_does_what_braid_does_and_nothing_else() {
        let Some(nothing) = answer(opcode::Nop::new().build()) else {
            // This system allows no rings. Tests of workers fail here if rings are required.
            return;
        };
        assert_eq!(nothing, 0);
        let path = c"/etc/passwd";
        let refused = [
            opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr()).build(),
            opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
            opcode::MkDirAt::new(Fd(libc::AT_FDCWD), path.as_ptr()).build(),
            // Operations with a flag that is not listed are refused as well.
            opcode::Nop::new().build().flags(squeue::Flags::IO_LINK),
        ];
        for entry in refused {
            assert_eq!(answer(entry), Some(-libc::EACCES));
        }
        let ring = ring(8).expect("there was one before");
        let probe = ring.submitter().register_probe(&mut io_uring::Probe::new());
        assert_eq!(probe.expect_err("it is not listed").raw_os_error(), Some(libc::EACCES));
    }
}
