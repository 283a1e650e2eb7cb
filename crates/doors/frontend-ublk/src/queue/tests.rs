//! Tests a queue between a kernel that sends any descriptions and an array that ends operations in
//! any order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_runtime::{ClientRequest, Completion, Disk, Outcome, RequestError};
use braid_ublk_proto::Request;
use braid_ublk_proto::wire::{Description, flag, operation};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Queue, Server};
use crate::entries::{Entries, RingEvent};

const SIZE_BYTES: u64 = 16 << 20;
const DEPTH: u16 = 64;

/// A time that is longer than any operation takes in these tests.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

const DESCRIPTIONS: usize = 600;

/// The byte that fills a sector, in the array and in payloads.
fn mark(sector: u64) -> u8 {
    let [low, middle, high, ..] = sector.to_le_bytes();
    low.wrapping_mul(31) ^ middle.wrapping_mul(7) ^ high
}

fn fill(first_sector: u64, bytes: &mut [u8]) {
    let sectors = (first_sector..).zip(bytes.chunks_mut(512));
    sectors.for_each(|(sector, bytes)| bytes.fill(mark(sector)));
}

fn is_filled(first_sector: u64, bytes: &[u8]) -> bool {
    let mut sectors = (first_sector..).zip(bytes.chunks(512));
    sectors.all(|(sector, bytes)| bytes.iter().all(|byte| *byte == mark(sector)))
}

/// The array's result for an operation at this position: nearly always success.
fn verdict(place: u64) -> Result<(), RequestError> {
    match place / 512 % 31 {
        3 => Err(RequestError::NoSpace),
        7 => Err(RequestError::ReadOnly),
        11 => Err(RequestError::Stopping),
        _ => Ok(()),
    }
}

type Submission = (ClientRequest, Completion);

/// An array that ends operations in its own order, on its own thread.
struct Array(std::sync::mpsc::Sender<Submission>);

impl Array {
    fn start(seed: u64) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel::<Submission>();
        std::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut submitted: Vec<Submission> = Vec::new();
            loop {
                match receiver.recv_timeout(Duration::from_micros(200)) {
                    Ok(one) => submitted.push(one),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                }
                for _ in 0..random.usize(0..=submitted.len()) {
                    let (operation, completion) =
                        submitted.swap_remove(random.usize(0..submitted.len()));
                    completion.complete(end(operation));
                }
            }
        });
        Self(sender)
    }
}

fn end(operation: ClientRequest) -> Outcome {
    let within = |offset: u64, length: u64| {
        assert!(length > 0 && offset.checked_add(length).is_some_and(|end| end <= SIZE_BYTES));
    };
    let (result, payload) = match operation {
        ClientRequest::Read { offset, mut payload } => {
            within(offset, payload.len() as u64);
            fill(offset / 512, &mut payload);
            (verdict(offset), Some(payload))
        }
        ClientRequest::Write { offset, payload, .. } => {
            within(offset, payload.len() as u64);
            // The bytes of the kernel's payloads encode their position.
            assert!(
                is_filled(offset / 512, &payload),
                "another entry's payload is written at {offset}"
            );
            (verdict(offset), Some(payload))
        }
        ClientRequest::WriteZeroes { offset, length, .. }
        | ClientRequest::Trim { offset, length, .. } => {
            within(offset, length);
            (verdict(offset), None)
        }
        ClientRequest::Flush => (Ok(()), None),
    };
    Outcome { result, payload }
}

impl Disk for Array {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn unit_bytes(&self) -> u64 {
        65_536
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        self.0.send((operation, completion)).expect("the array lives as long as this");
    }
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    /// The kernel has the entry, without a request yet.
    Waiting,
    Given(Description),
    /// The kernel has ended the entry.
    Over,
}

struct Kernel {
    entries: Vec<Entry>,
    script: VecDeque<Description>,
    ended: Vec<RingEvent>,
    bell: Option<OwnedFd>,
    is_watched: bool,
    answers: Arc<Mutex<Vec<(Description, i32)>>>,
    read: Mutex<Vec<u16>>,
    random: fastrand::Rng,
}

impl Kernel {
    fn describe(&mut self) {
        let mut waiting: Vec<u16> = (0..DEPTH)
            .filter(|tag| matches!(self.entries[usize::from(*tag)], Entry::Waiting))
            .collect();
        self.random.shuffle(&mut waiting);
        let (how_many, is_all) = (self.random.usize(0..=waiting.len()), self.script.is_empty());
        for &tag in &waiting[..how_many] {
            let Some(told) = self.script.pop_front() else { break };
            self.entries[usize::from(tag)] = Entry::Given(told);
            self.ended.push(RingEvent::Entry { tag, result: Ok(()) });
        }
        if is_all {
            for &tag in &waiting {
                self.entries[usize::from(tag)] = Entry::Over;
                let gone = io::Error::from_raw_os_error(19);
                self.ended.push(RingEvent::Entry { tag, result: Err(gone) });
            }
        }
    }

    fn given(&self, tag: u16) -> Description {
        match self.entries[usize::from(tag)] {
            Entry::Given(told) => told,
            other => panic!("entry {tag} is {other:?}"),
        }
    }
}

impl Entries for Kernel {
    fn depth(&self) -> u16 {
        DEPTH
    }

    fn watch(&mut self, bell: BorrowedFd<'_>) {
        assert!(!self.is_watched, "the bell is watched already");
        self.bell = Some(bell.try_clone_to_owned().expect("a descriptor"));
        self.is_watched = true;
    }

    fn fetch(&mut self, tag: u16) {
        assert!(matches!(self.entries[usize::from(tag)], Entry::Over), "it was fetched before");
        self.entries[usize::from(tag)] = Entry::Waiting;
    }

    fn commit(&mut self, tag: u16, result: i32) {
        let told = self.given(tag);
        self.entries[usize::from(tag)] = Entry::Waiting;
        self.answers.lock().expect("no panic").push((told, result));
        let mut read = self.read.lock().expect("no panic");
        let is_read = read.iter().position(|one| *one == tag).map(|at| read.swap_remove(at));
        let is_good_read = told.op_flags & 0xff == operation::READ && result > 0;
        assert_eq!(is_read.is_some(), is_good_read, "what is read well has a payload: {told:?}");
    }

    fn description(&self, tag: u16) -> Description {
        self.given(tag)
    }

    fn copy_in(&self, tag: u16, payload: &mut [u8]) -> io::Result<()> {
        fill(self.given(tag).start_sector, payload);
        Ok(())
    }

    fn copy_out(&self, tag: u16, payload: &[u8]) -> io::Result<()> {
        let told = self.given(tag);
        assert_eq!(payload.len() as u64, u64::from(told.nr_sectors) * 512, "{told:?}");
        let is_its_own = is_filled(told.start_sector, payload);
        assert!(is_its_own, "another entry's payload is given to {told:?}");
        self.read.lock().expect("no panic").push(tag);
        Ok(())
    }

    fn enter(&mut self, sleeps: bool) {
        self.describe();
        let is_given = |entry: &Entry| matches!(entry, Entry::Given(_));
        while sleeps && self.ended.is_empty() && !self.entries.iter().any(is_given) {
            self.describe();
        }
        let waits = sleeps && self.ended.is_empty();
        assert!(self.is_watched, "no worker would hear the bell");
        let patience = if waits { PATIENCE } else { Timespec::default() };
        let bell = self.bell.as_ref().expect("it is watched");
        let mut watched = [PollFd::new(bell, PollFlags::IN)];
        if poll(&mut watched, Some(&patience)).expect("a poll") > 0 {
            let is_heard_again = self.random.bool();
            self.is_watched = is_heard_again;
            self.ended.push(RingEvent::Bell { is_heard_again });
        }
        assert!(!waits || !self.ended.is_empty(), "it hangs: {:?}", self.entries);
    }

    fn reap(&mut self, ended: &mut Vec<RingEvent>) {
        ended.append(&mut self.ended);
    }
}

/// A random description: mostly a valid range near the end of the array, or pure noise.
fn description(random: &mut fastrand::Rng) -> Description {
    use operation::{DISCARD, FLUSH, READ, WRITE, WRITE_ZEROES};
    let known = [READ, WRITE, READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES];
    let flags = [0, flag::FUA, flag::NOUNMAP, flag::FUA | flag::NOUNMAP];
    let (code, how) = (known[random.usize(0..known.len())], flags[random.usize(0..flags.len())]);
    let end = SIZE_BYTES / 512;
    let op_flags = if random.u8(0..8) == 0 { random.u32(..) } else { code | how };
    let nr_sectors = match random.u8(0..16) {
        0 => random.u32(..),
        1 => 0,
        2 => 2049,
        3..6 => 2048,
        _ => random.u32(1..64),
    };
    let start_sector = match random.u8(0..16) {
        0 => random.u64(..),
        1 => u64::MAX / 512,
        2 => end - random.u64(0..64),
        _ => random.u64(0..end),
    };
    Description { op_flags, nr_sectors, start_sector, addr: random.u64(..) }
}

fn expected(told: &Description) -> i32 {
    let offset = match Request::parse(told, SIZE_BYTES) {
        Err(_) => return -22,
        Ok(Request::Flush) => return 0,
        Ok(_) => told.start_sector * 512,
    };
    let is_payload = matches!(told.op_flags & 0xff, operation::READ | operation::WRITE);
    match verdict(offset) {
        Err(RequestError::NoSpace) => -28,
        Err(RequestError::ReadOnly) => -30,
        Err(_) => -5,
        Ok(()) if is_payload => i32::try_from(told.nr_sectors * 512).expect("a small number"),
        Ok(()) => 0,
    }
}

#[test]
fn whatever_the_kernel_describes_is_answered_once_and_stays_within_the_array() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let script: Vec<_> = (0..DESCRIPTIONS).map(|_| description(&mut random)).collect();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let kernel = Kernel {
            entries: vec![Entry::Over; usize::from(DEPTH)],
            script: script.iter().copied().collect(),
            ended: Vec::new(),
            bell: None,
            is_watched: false,
            answers: Arc::clone(&answers),
            read: Mutex::default(),
            random,
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a bell");
        let queue = Queue::new(Arc::new(Array::start(seed)), bell);
        Server::new(Arc::new(queue), kernel).run();
        let mut answers = answers.lock().expect("no panic").clone();
        for (told, said) in &answers {
            assert_eq!(*said, expected(told), "seed {seed}: {told:?}");
        }
        let key = |told: &Description| (told.addr, told.start_sector, told.op_flags);
        let mut script = script;
        script.sort_by_key(key);
        answers.sort_by_key(|(told, _)| key(told));
        let answered: Vec<_> = answers.into_iter().map(|(told, _)| told).collect();
        assert!(answered == script, "seed {seed}: not all of it was answered once");
        let good = script.iter().filter(|told| expected(told) >= 0).count();
        assert!((DESCRIPTIONS / 3..DESCRIPTIONS).contains(&good), "{good} of it made sense");
    }
}
