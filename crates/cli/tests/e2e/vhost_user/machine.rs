//! A virtual machine as its disk's server sees it: memory with a ring, messages with addresses,
//! eventfds.
//!
//! The monitor's side of the socket is the crate `vhost`'s; the guest's driver is here.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{ByteValued, Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::poll::PollContext;

/// Time limit for any wait, including a restart of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The driver's features: flushes, discards, writes of zeroes, version 1.
const FEATURES: u64 = 1 << 9 | 1 << 13 | 1 << 14 | 1 << 29 | 1 << 30 | 1 << 32;

pub(super) const ENTRIES: u16 = 128;
/// Slots for requests in the ring, each of three descriptors.
pub(super) const SLOTS: u16 = 32;
/// Payload bytes that a slot has room for.
pub(super) const SLOT_BYTES: u64 = 128 << 10;

const MEMORY_BYTES: u64 = 8 << 20;
/// The address of the machine's memory in the monitor; the test never uses it.
const USER: u64 = 0x7f00_0000_0000;
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x6000;
const HEADS: u64 = 0x8000;
const STATUSES: u64 = 0xa000;
const PAYLOADS: u64 = 1 << 20;

const NEXT: u16 = 1;
const WRITE: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Read = 0,
    Write = 1,
    Flush = 4,
    Name = 8,
    Discard = 11,
    Zero = 13,
}

pub(super) struct Machine {
    frontend: Option<Frontend>,
    memory: GuestMemoryMmap,
    file: File,
    kick: EventFd,
    call: EventFd,
    table: Option<(VhostUserInflight, File)>,
    put: u16,
    seen: u16,
    asked: Vec<u16>,
}

impl Machine {
    /// A virtual machine that is switched on, without a disk.
    pub(super) fn new() -> Self {
        let file: File = memfd_create("machine", MemfdFlags::CLOEXEC).expect("a memfd").into();
        file.set_len(MEMORY_BYTES).expect("a length");
        let place = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let size = usize::try_from(MEMORY_BYTES).expect("small");
        let memory =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), size, Some(place))]);
        let bell = || EventFd::new(EFD_NONBLOCK).expect("an eventfd");
        Self {
            frontend: None,
            memory: memory.expect("memory"),
            file,
            kick: bell(),
            call: bell(),
            table: None,
            put: 0,
            seen: 0,
            asked: Vec::new(),
        }
    }

    /// The monitor connects to the server's socket, however many tries it takes, and sends all
    /// addresses.
    pub(super) fn plug(&mut self, socket: &Path) {
        let begun = Instant::now();
        let mut frontend = loop {
            match Frontend::connect(socket, 1) {
                Ok(frontend) => break frontend,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        frontend.set_owner().expect("an owner");
        let offered = frontend.get_features().expect("features");
        frontend.set_features(offered & FEATURES).expect("features");
        let way = frontend.get_protocol_features().expect("features");
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        assert!(way.contains(wanted), "{way:?}");
        frontend.set_protocol_features(wanted).expect("features");
        assert!(frontend.get_queue_num().expect("a number") >= 4);
        let (told, file) = self.table.get_or_insert_with(|| {
            frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 1, ENTRIES)).expect("a table")
        });
        frontend.set_inflight_fd(told, file.as_raw_fd()).expect("a table");
        let memory = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        frontend.set_mem_table(&[memory]).expect("memory");
        frontend.set_vring_num(0, ENTRIES).expect("a ring");
        // Starts from the index of the used ring, as QEMU does after the loss of a server.
        frontend.set_vring_base(0, self.get(USED + 2)).expect("a ring");
        let place = VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: USER + DESCRIPTORS,
            used_ring_addr: USER + USED,
            avail_ring_addr: USER + AVAILABLE,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &place).expect("a ring");
        frontend.set_vring_call(0, &self.call).expect("a ring");
        frontend.set_vring_kick(0, &self.kick).expect("a ring");
        frontend.set_vring_enable(0, true).expect("a ring");
        self.frontend = Some(frontend);
        // Announces requests that were put into the ring while no server was connected.
        self.kick.write(1).expect("an eventfd");
    }

    /// The monitor disconnects, as when killed.
    pub(super) fn unplug(&mut self) {
        self.frontend = None;
    }

    /// Stops the ring; returns the index of the next request.
    pub(super) fn stop_ring(&self) -> u32 {
        self.frontend.as_ref().expect("it is plugged in").get_vring_base(0).expect("a base")
    }

    pub(super) fn configuration(&mut self, offset: u32, length: u32) -> u64 {
        let frontend = self.frontend.as_mut().expect("it is plugged in");
        let room = vec![0; length as usize];
        let asked = frontend.get_config(offset, length, VhostUserConfigFlags::empty(), &room);
        let (_, bytes) = asked.expect("a configuration");
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        u64::from_le_bytes(word)
    }

    fn set<T: ByteValued>(&self, address: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(address)).expect("memory");
    }

    fn get<T: ByteValued>(&self, address: u64) -> T {
        self.memory.read_obj(GuestAddress(address)).expect("memory")
    }

    fn payload(slot: u16) -> GuestAddress {
        GuestAddress(PAYLOADS + u64::from(slot) * SLOT_BYTES)
    }

    pub(super) fn bytes(&self, slot: u16, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_slice(&mut bytes, Self::payload(slot)).expect("memory");
        bytes
    }

    /// The status of the last answer to a slot's request: 0 is good.
    pub(super) fn status(&self, slot: u16) -> u8 {
        self.get(STATUSES + u64::from(slot))
    }

    fn describe(&self, index: u16, (address, length): (u64, u32), (flags, next): (u16, u16)) {
        let at = DESCRIPTORS + 16 * u64::from(index);
        self.set(at, address);
        self.set(at + 8, length);
        self.set(at + 12, flags);
        self.set(at + 14, next);
    }

    /// Puts a request into the ring, with this payload or room for as many bytes; does not notify
    /// the server.
    pub(super) fn put(&mut self, slot: u16, ask: Ask, sector: u64, payload: Result<&[u8], u32>) {
        assert!(slot < SLOTS && !self.asked.contains(&slot), "a slot that is free");
        let (head, place) = (slot * 3, u64::from(slot));
        let at = HEADS + place * 16;
        self.set(at, ask as u32);
        self.set(at + 4, 0_u32);
        self.set(at + 8, sector);
        self.set(STATUSES + place, 0xff_u8);
        let length = payload.map_or_else(
            |length| length,
            |bytes| u32::try_from(bytes.len()).expect("a payload fits its slot"),
        );
        assert!(u64::from(length) <= SLOT_BYTES, "a payload fits its slot");
        if let Ok(bytes) = payload {
            self.memory.write_slice(bytes, Self::payload(slot)).expect("memory");
        }
        let flags = if payload.is_err() { NEXT | WRITE } else { NEXT };
        self.describe(head, (at, 16), (NEXT, head + 1));
        self.describe(head + 1, (Self::payload(slot).0, length), (flags, head + 2));
        self.describe(head + 2, (STATUSES + place, 1), (WRITE, 0));
        self.set(AVAILABLE + 4 + 2 * u64::from(self.put % ENTRIES), head);
        self.put = self.put.wrapping_add(1);
        self.asked.push(slot);
    }

    /// Notifies the server of the requests in the ring.
    pub(super) fn kick(&self) {
        fence(Ordering::SeqCst);
        self.set(AVAILABLE + 2, self.put);
        fence(Ordering::SeqCst);
        self.kick.write(1).expect("an eventfd");
    }

    /// Slots whose requests were answered since the last call, each once.
    pub(super) fn answered(&mut self) -> Vec<u16> {
        let mut slots = Vec::new();
        let used: u16 = self.get(USED + 2);
        fence(Ordering::SeqCst);
        while self.seen != used {
            let at = USED + 4 + 8 * u64::from(self.seen % ENTRIES);
            let slot = u16::try_from(self.get::<u32>(at) / 3).expect("a slot");
            let place = self.asked.iter().position(|one| *one == slot);
            self.asked.remove(place.unwrap_or_else(|| panic!("{slot} is answered twice")));
            slots.push(slot);
            self.seen = self.seen.wrapping_add(1);
            // Requests a notification of the next answer.
            self.set(AVAILABLE + 4 + 2 * u64::from(ENTRIES), self.seen);
        }
        slots
    }

    pub(super) fn open(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn wait(&mut self) {
        let begun = Instant::now();
        while !self.asked.is_empty() {
            if self.answered().is_empty() {
                assert!(begun.elapsed() < PATIENCE, "{:?} are not answered", self.asked);
                self.listen(Duration::from_secs(1));
            }
        }
    }

    /// Waits until the server notifies the machine, or `limit` is over.
    fn listen(&self, limit: Duration) {
        let looks = PollContext::<u32>::new().expect("an epoll");
        looks.add(&self.call, 0).expect("an eventfd");
        looks.wait_timeout(limit).expect("epoll");
        // If the time limit was reached, the eventfd is empty.
        let _ = self.call.read();
    }

    /// Sends one request and waits; returns its status.
    pub(super) fn ask(&mut self, ask: Ask, sector: u64, payload: Result<&[u8], u32>) -> u8 {
        self.put(0, ask, sector, payload);
        self.kick();
        self.wait();
        self.status(0)
    }

    pub(super) fn clear(&mut self, ask: Ask, sector: u64, sectors: u32) -> u8 {
        let range = [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat();
        self.ask(ask, 0, Ok(&range))
    }

    pub(super) fn read_all(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        let most = usize::try_from(SLOT_BYTES).expect("small");
        while bytes.len() < length {
            let part = most.min(length - bytes.len());
            let sector = bytes.len() as u64 / 512;
            let status = self.ask(Ask::Read, sector, Err(u32::try_from(part).expect("small")));
            assert_eq!(status, 0, "reading at sector {sector}");
            bytes.extend(self.bytes(0, part));
        }
        bytes
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) {
        let most = usize::try_from(SLOT_BYTES).expect("small");
        for (part, at) in bytes.chunks(most).zip((0_u64..).step_by(most)) {
            assert_eq!(self.ask(Ask::Write, at / 512, Ok(part)), 0, "writing at {at}");
        }
    }
}
