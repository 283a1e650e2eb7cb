//! Tests of queues. The tests act as guests, in memory that both sides map, and the disk is in
//! memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_ring::{Descriptor, Settings, Workers};
use braid_runtime::{ClientRequest, Completion, Disk, Outcome};
use braid_virtio_proto::Device;
use braid_virtio_proto::wire::{descriptor_flag, kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use vm_memory::{Bytes, GuestAddress};

use super::{Event, Queue, ServedDisk};
use crate::bells;
use crate::inflight::{Table, file_for};
use crate::memory::{Memory, SharedRegion};
use crate::ring::{Ring, Setup};

const ENTRIES: u16 = 64;
const SIZE: u64 = 1 << 20;
/// The guest's memory: rings, then heads, statuses and payloads.
const GUEST_BYTES: u64 = 4 << 20;
const USER: u64 = 0x7f00_0000_0000;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADS: u64 = 0x4000;
const STATUSES: u64 = 0x8000;
const PAYLOADS: u64 = 0x10000;
const LIMIT: Duration = Duration::from_secs(60);

type Submission = (ClientRequest, Completion);

/// A disk in memory. The disk refuses no operation, and panics at operations that it must not get.
struct Store {
    bytes: Mutex<Vec<u8>>,
    /// Operations that are held instead of being carried out.
    held: Mutex<Option<Vec<Submission>>>,
    /// Whether another thread answers some of the operations.
    elsewhere: bool,
    count: AtomicU64,
}

impl Store {
    fn new(elsewhere: bool) -> Arc<Self> {
        let bytes = Mutex::new(vec![0; usize::try_from(SIZE).expect("small")]);
        Arc::new(Self { bytes, held: Mutex::default(), elsewhere, count: AtomicU64::new(0) })
    }

    fn carry_out(&self, operation: ClientRequest) -> Outcome {
        let mut bytes = self.bytes.lock().expect("a disk");
        let range = |offset: u64, length: usize| {
            let from = usize::try_from(offset).expect("small");
            assert!(from as u64 + length as u64 <= SIZE, "{offset} {length} lie outside");
            from..from + length
        };
        let payload = match operation {
            ClientRequest::Read { offset, mut payload } => {
                let range = range(offset, payload.len());
                payload.copy_from_slice(&bytes[range]);
                Some(payload)
            }
            ClientRequest::Write { offset, payload, .. } => {
                let range = range(offset, payload.len());
                bytes[range].copy_from_slice(&payload);
                Some(payload)
            }
            ClientRequest::WriteZeroes { offset, length, .. }
            | ClientRequest::Trim { offset, length, .. } => {
                let range = range(offset, usize::try_from(length).expect("small"));
                bytes[range].fill(0);
                None
            }
            ClientRequest::Flush => None,
        };
        Outcome { result: Ok(()), payload }
    }

    fn hold(&self) {
        *self.held.lock().expect("a disk") = Some(Vec::new());
    }

    fn held(&self) -> usize {
        self.held.lock().expect("a disk").as_ref().map_or(0, Vec::len)
    }

    /// Carries out the held operations, from the last to the first.
    fn let_go(&self) {
        let held = self.held.lock().expect("a disk").take().unwrap_or_default();
        for (operation, completion) in held.into_iter().rev() {
            completion.complete(self.carry_out(operation));
        }
    }
}

impl Disk for Store {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn unit_bytes(&self) -> u64 {
        512
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        if let Some(held) = &mut *self.held.lock().expect("a disk") {
            return held.push((operation, completion));
        }
        let outcome = self.carry_out(operation);
        if self.elsewhere && self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            std::thread::spawn(move || completion.complete(outcome));
        } else {
            completion.complete(outcome);
        }
    }
}

struct Guest {
    file: File,
    memory: Arc<Memory>,
    kick: Descriptor,
    call: Descriptor,
    error: Descriptor,
    /// The index at which the guest puts its next request into the available ring.
    put: u16,
    seen: u16,
}

fn eventfd() -> Descriptor {
    Arc::new(bells::bell().expect("an eventfd"))
}

fn map(file: &File) -> Arc<Memory> {
    let shared = SharedRegion { guest: 0, user: USER, bytes: GUEST_BYTES, offset: 0 };
    let file = file.try_clone().expect("a descriptor");
    Arc::new(Memory::default().with(shared, file).expect("memory"))
}

impl Guest {
    fn new() -> Self {
        let file: File = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd").into();
        file.set_len(GUEST_BYTES).expect("a length");
        let memory = map(&file);
        let (kick, call, error) = (eventfd(), eventfd(), eventfd());
        Self { file, memory, kick, call, error, put: 0, seen: 0 }
    }

    fn set<T: vm_memory::ByteValued>(&self, address: u64, value: T) {
        self.memory.map().write_obj(value, GuestAddress(address)).expect("memory");
    }

    fn get<T: vm_memory::ByteValued>(&self, address: u64) -> T {
        self.memory.map().read_obj(GuestAddress(address)).expect("memory")
    }

    fn describe(&self, index: u16, (address, length): (u64, u32), (flags, next): (u16, u16)) {
        let at = DESCRIPTORS + 16 * u64::from(index);
        self.set(at, address);
        self.set(at + 8, length);
        self.set(at + 12, flags);
        self.set(at + 14, next);
    }

    /// Makes a request in descriptors `slot * 4` and following, with a payload that the device
    /// writes or reads.
    fn request(&self, slot: u16, (code, sector): (u32, u64), length: u32) -> u16 {
        let (head, place) = (slot * 4, u64::from(slot));
        let at = HEADS + place * 16;
        self.set(at, code);
        self.set(at + 4, 0_u32);
        self.set(at + 8, sector);
        self.set(STATUSES + place, 0xff_u8);
        let incoming =
            if matches!(code, kind::IN | kind::GET_ID) { descriptor_flag::WRITE } else { 0 };
        let payload = PAYLOADS + place * 0x10000;
        self.describe(head, (at, 16), (descriptor_flag::NEXT, head + 1));
        let flags = descriptor_flag::NEXT | incoming;
        self.describe(head + 1, (payload, length), (flags, head + 2));
        self.describe(head + 2, (STATUSES + place, 1), (descriptor_flag::WRITE, 0));
        head
    }

    fn payload(&self, slot: u16) -> u64 {
        PAYLOADS + u64::from(slot) * 0x10000
    }

    fn status(&self, slot: u16) -> u8 {
        self.get(STATUSES + u64::from(slot))
    }

    fn put(&mut self, heads: &[u16]) {
        for head in heads {
            self.set(AVAILABLE + 4 + 2 * u64::from(self.put % ENTRIES), *head);
            self.put = self.put.wrapping_add(1);
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        self.set(AVAILABLE + 2, self.put);
        bells::ring(&*self.kick);
    }

    fn used(&self) -> u16 {
        self.get(USED + 2)
    }

    /// Waits for `count` answers; returns the heads of their requests, in order.
    fn answers(&mut self, count: usize) -> Vec<u16> {
        let until = Instant::now() + LIMIT;
        let mut heads = Vec::new();
        while heads.len() < count {
            while self.used() != self.seen {
                let at = USED + 4 + 8 * u64::from(self.seen % ENTRIES);
                heads.push(u16::try_from(self.get::<u32>(at)).expect("a head"));
                self.seen = self.seen.wrapping_add(1);
            }
            assert!(heads.len() <= count, "nothing is answered twice: {heads:?}");
            assert!(Instant::now() < until, "{} of {count} answers came", heads.len());
            if heads.len() < count {
                rings(&self.call, Duration::from_millis(20));
                bells::hear(&*self.call);
            }
        }
        heads
    }

    fn ask(&mut self, slot: u16, what: (u32, u64), length: u32) -> u8 {
        let head = self.request(slot, what, length);
        self.put(&[head]);
        assert_eq!(self.answers(1), [head]);
        self.status(slot)
    }

    fn serve(
        &self,
        served: &Arc<ServedDisk>,
        workers: Option<&Arc<Workers>>,
        table: Option<&File>,
    ) -> Arc<Queue> {
        let queue = Queue::new(served, 0, workers).expect("a queue");
        queue.set_event(Event::Kick, Some(Arc::clone(&self.kick)));
        queue.set_event(Event::Call, Some(Arc::clone(&self.call)));
        queue.set_event(Event::Error, Some(Arc::clone(&self.error)));
        let part = table.map(|file| {
            let file = file.try_clone().expect("a descriptor");
            let table = Table::map(file, 0, (1, ENTRIES)).expect("a table");
            table.part(0, ENTRIES).expect("a part")
        });
        let ring = Ring::start(&setup(), map(&self.file), part).expect("a ring");
        queue.start(ring, DEVICE);
        queue.enable(true);
        queue
    }
}

const DEVICE: Device = Device { size_bytes: SIZE, is_read_only: false, is_written_through: false };

fn setup() -> Setup {
    Setup {
        entries: ENTRIES,
        descriptors: USER + DESCRIPTORS,
        available: USER + AVAILABLE,
        used: USER + USED,
        base: 0,
        has_event_index: false,
    }
}

fn served(disk: &Arc<Store>) -> Arc<ServedDisk> {
    let disk: Arc<dyn Disk> = Arc::<Store>::clone(disk);
    Arc::new(ServedDisk { disk, id: *b"0123456789abcdef0123", started: AtomicUsize::new(1) })
}

fn rings(bell: &OwnedFd, limit: Duration) -> bool {
    let nanoseconds = limit.subsec_nanos().into();
    let limit =
        Timespec { tv_sec: i64::try_from(limit.as_secs()).expect("short"), tv_nsec: nanoseconds };
    poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&limit)).expect("poll") > 0
}

/// Both drivers of turns: a thread, and workers if the machine allows these.
fn drivers() -> Vec<Option<Arc<Workers>>> {
    let settings = Settings { workers: 1, ..Settings::default() };
    let workers = Workers::start(&settings).ok().map(Arc::new);
    [None].into_iter().chain(workers.map(Some)).collect()
}

#[test]
fn what_is_written_is_read_back() {
    for workers in drivers() {
        let (disk, mut guest) = (Store::new(false), Guest::new());
        let queue = guest.serve(&served(&disk), workers.as_ref(), None);
        let head = guest.request(3, (kind::OUT, 8), 8192);
        guest
            .memory
            .map()
            .write_slice(&[0x5a; 8192], GuestAddress(guest.payload(3)))
            .expect("memory");
        guest.put(&[head]);
        assert_eq!((guest.answers(1), guest.status(3)), (vec![head], 0));
        assert_eq!(guest.ask(4, (kind::IN, 9), 4096), 0);
        assert_eq!(guest.get::<[u8; 4]>(guest.payload(4)), [0x5a; 4]);
        assert_eq!(guest.ask(5, (kind::FLUSH, 0), 0), 0);
        assert_eq!(guest.ask(6, (kind::GET_ID, 0), 20), 0);
        assert_eq!(guest.get::<[u8; 4]>(guest.payload(6)), *b"0123");
        assert_eq!(guest.ask(7, (kind::IN, SIZE / 512), 512), 1, "it lies outside");
        assert_eq!(guest.ask(8, (77, 0), 512), 2, "the number is unknown");
        assert_eq!(queue.stop(), Some(6));
        let before = guest.used();
        guest.put(&[0]);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(guest.used(), before, "a ring that was stopped is let be");
        queue.cut();
    }
}

fn wild(random: &mut fastrand::Rng) -> ((u64, u32), (u16, u16)) {
    let address = match random.u8(..8) {
        0 => random.u64(..),
        1 => GUEST_BYTES - random.u64(..64),
        2 => DESCRIPTORS + 16 * random.u64(..64),
        _ => HEADS + random.u64(..GUEST_BYTES - HEADS),
    };
    let length = match random.u8(..6) {
        0 => random.u32(..),
        1 => 16 * random.u32(..20),
        2 => 512 * random.u32(..8) + 1,
        3 => 1,
        _ => 16,
    };
    // A random write may overwrite any memory except the rings, without which there are no answers.
    let is_in_table = (DESCRIPTORS..AVAILABLE).contains(&address);
    let most = if is_in_table { AVAILABLE - address } else { u64::MAX };
    let length = length.min(u32::try_from(most).unwrap_or(u32::MAX));
    ((address, length), (random.u16(..8), random.u16(..ENTRIES + 4)))
}

#[test]
fn whatever_a_guest_asks_is_answered_once_and_stays_within_the_array() {
    for (workers, seed) in drivers().into_iter().zip(1..) {
        let (disk, mut guest) = (Store::new(true), Guest::new());
        let queue = guest.serve(&served(&disk), workers.as_ref(), None);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut statuses, mut asked) = (BTreeMap::new(), 0);
        while asked < 6000 {
            let mut slots: Vec<u16> = (0..ENTRIES / 4).collect();
            random.shuffle(&mut slots);
            slots.truncate(random.usize(1..=slots.len()));
            let mut heads = Vec::new();
            let mut sensible = Vec::new();
            // Puts requests with random descriptors first, since they fill the whole table.
            for slot in &slots {
                (0..4).for_each(|index| {
                    let (run, links) = wild(&mut random);
                    guest.describe(slot * 4 + index, run, links);
                });
            }
            for slot in &slots {
                let head = if random.bool() {
                    let code = *random.choice(&[0, 1, 4, 8, 11, 13, 99]).expect("some");
                    let sector = random.u64(..SIZE / 512 + 8);
                    let length = *random.choice(&[0, 16, 20, 100, 512, 4096, 65536]).expect("some");
                    sensible.push(*slot);
                    guest.request(*slot, (code, sector), length)
                } else {
                    slot * 4
                };
                heads.push(head);
            }
            // Random payload addresses may point into the table of descriptors, so payloads are not
            // checked.
            guest.put(&heads);
            let mut answered = guest.answers(heads.len());
            answered.sort_unstable();
            heads.sort_unstable();
            assert_eq!(answered, heads, "each once");
            asked += heads.len();
            for slot in sensible {
                *statuses.entry(guest.status(slot)).or_insert(0) += 1;
            }
        }
        assert!(!rings(&guest.error, Duration::ZERO), "the ring makes sense all the same");
        assert!(statuses[&0] > 100 && statuses[&1] > 100 && statuses[&2] > 100, "{statuses:?}");
        assert!(queue.stop().is_some());
        queue.cut();
    }
}

#[test]
fn a_ring_that_makes_no_sense_is_left_alone_and_others_are_served() {
    type Spoil = fn(&mut Guest);
    let spoilers: [(&str, Spoil); 3] = [
        ("more than there is room for", |guest| {
            guest.set(AVAILABLE + 2, guest.put.wrapping_add(ENTRIES + 1));
            bells::ring(&*guest.kick);
        }),
        ("a head outside", |guest| guest.put(&[ENTRIES])),
        ("one twice", |guest| guest.put(&[0, 0])),
    ];
    for workers in drivers() {
        for (what, spoil) in spoilers {
            let disk = Store::new(false);
            let served = served(&disk);
            let (mut bad, mut good) = (Guest::new(), Guest::new());
            let (queue, other) = (
                bad.serve(&served, workers.as_ref(), None),
                good.serve(&served, workers.as_ref(), None),
            );
            bad.request(0, (kind::IN, 0), 512);
            disk.hold();
            spoil(&mut bad);
            assert!(rings(&bad.error, LIMIT), "{what}");
            disk.let_go();
            assert_eq!(good.ask(1, (kind::IN, 0), 512), 0, "{what}");
            let head = bad.request(2, (kind::IN, 0), 512);
            bad.put(&[head]);
            std::thread::sleep(Duration::from_millis(10));
            assert!(bad.used() <= 1, "{what}");
            assert!(queue.stop().is_some() && other.stop().is_some());
            queue.cut();
            other.cut();
        }
    }
}

#[test]
fn nothing_is_written_for_a_client_that_has_gone() {
    for workers in drivers() {
        let (disk, mut guest) = (Store::new(false), Guest::new());
        disk.bytes.lock().expect("a disk").fill(9);
        let queue = guest.serve(&served(&disk), workers.as_ref(), None);
        disk.hold();
        let head = guest.request(0, (kind::IN, 0), 512);
        guest.put(&[head]);
        wait(|| disk.held() == 1);
        queue.cut();
        assert!(!queue.wait_for_array(Duration::from_millis(10)), "the array has not ended it");
        disk.let_go();
        assert!(queue.wait_for_array(LIMIT));
        assert_eq!((guest.used(), guest.status(0)), (0, 0xff));
        assert_eq!(guest.get::<u64>(guest.payload(0)), 0);
    }
}

#[test]
fn what_a_dead_server_left_is_asked_for_again() {
    for workers in drivers() {
        let (disk, mut guest) = (Store::new(false), Guest::new());
        let served = served(&disk);
        let (table, _) = file_for(1, ENTRIES).expect("memory");
        let queue = guest.serve(&served, workers.as_ref(), Some(&table));
        assert_eq!(guest.ask(9, (kind::FLUSH, 0), 0), 0);
        disk.hold();
        let heads: Vec<u16> = [5, 2, 7].map(|slot| guest.request(slot, (kind::IN, 8), 512)).into();
        guest.put(&heads);
        wait(|| disk.held() == 3);
        // The server dies: it answers no more requests, and its operations are lost.
        queue.cut();
        drop(disk.held.lock().expect("a disk").take());
        let last = guest.request(1, (kind::IN, 8), 512);
        guest.put(&[last]);
        let next = guest.serve(&served, workers.as_ref(), Some(&table));
        let mut expected = heads;
        expected.push(last);
        assert_eq!(guest.answers(4), expected, "in the order in which they were asked");
        assert_eq!([5, 2, 7, 1].map(|slot| guest.status(slot)), [0; 4]);
        assert_eq!(next.stop(), Some(5));
        next.cut();
    }
}

#[test]
fn a_guest_that_always_has_more_does_not_keep_a_worker() {
    let Some(workers) = drivers().into_iter().flatten().next() else { return };
    let (disk, guest) = (Store::new(false), Guest::new());
    // No chain of descriptors is valid, so each request is answered at once: the guest could refill
    // the ring for ever.
    guest.describe(0, (0, 16), (descriptor_flag::NEXT, ENTRIES));
    (0..ENTRIES).for_each(|at| guest.set(AVAILABLE + 4 + 2 * u64::from(at), 0_u16));
    let queue = guest.serve(&served(&disk), Some(&workers), None);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                guest.set(AVAILABLE + 2, guest.used().wrapping_add(ENTRIES));
                bells::ring(&*guest.kick);
            }
        });
        for _ in 0..50 {
            let (done, heard) = std::sync::mpsc::channel();
            let call = Box::new(move |_: &braid_ring::Worker| {
                // The send fails if the receiver has given up waiting.
                let _ = done.send(());
            });
            workers.post(0, call).expect("it runs");
            let in_time = heard.recv_timeout(Duration::from_secs(10));
            in_time.expect("the worker has time for others");
            std::thread::sleep(Duration::from_millis(1));
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(!rings(&guest.error, Duration::ZERO), "the ring makes sense");
    assert!(queue.stop().is_some());
    queue.cut();
}

fn wait(is_so: impl Fn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < until, "it never is so");
        std::thread::sleep(Duration::from_millis(1));
    }
}
