//! Suite `rebuild`: the speed of filling a member, compared with the speed of writing such a device
//! in order.
//!
//! No client submits requests, so a rebuild has all of the members' time; [`clients`] shows its
//! effect on clients. In each round a member is failed and removed, and a blank device takes its
//! place. The clock runs from the first work of the job to its last.

mod clients;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use braid_geometry::{Level, Slot};
use braid_member::{Access, Identity, Member, MemberError, MemoryMember};
use braid_parity::kernel;
use braid_runtime::{JobEnd, JobKind, Newcomer, Notice, Options, Volume};

use crate::array::{self, Plan, Policy};
use crate::frame::{Contender, Metric, Report, Settings, Suite, Target, race};
use crate::pages::Pages;

pub(super) const SUITE: Suite = Suite {
    name: "rebuild",
    about: "filling a member, compared with writing a device from start to end",
    run,
};

const RATE: &str = "written to one member";
const METRICS: [Metric; 1] = [Metric::more(RATE, "GB/s")];

/// Bytes of one call when a device is written directly.
const CALL_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    /// Members are memory as slow as a disk: each has [`DISK_BYTES_PER_SECOND`] of its own.
    Disks,
    /// Members are slow memory as in `Disks`, with [`SMALL_DISK_BYTES_PER_SECOND`], and a
    /// millisecond more for each request.
    SmallDisks,
    /// Members are files, with direct I/O if possible. All files are on one disk, and share its
    /// speed.
    Files,
}

impl Kind {
    const fn words(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disks => "disks of 200 MB/s",
            Self::SmallDisks => "small disks",
            Self::Files => "files",
        }
    }
}

/// The sequential speed of a disk.
const DISK_BYTES_PER_SECOND: u64 = 200_000_000;
const SMALL_DISK_BYTES_PER_SECOND: u64 = 50_000_000;
const SMALL_DISK_REQUEST: Duration = Duration::from_millis(1);

/// A slow member that serves one request after the other.
struct Disk {
    inner: MemoryMember,
    bytes_per_second: u64,
    /// The time that each request takes in addition to its transfer.
    each: Duration,
    free_at: Mutex<Instant>,
}

impl Disk {
    fn take(&self, bytes: usize) {
        let transfer = bytes as u64 * 1_000_000_000 / self.bytes_per_second;
        let takes = self.each + Duration::from_nanos(transfer);
        let until = {
            let mut free_at = self.free_at.lock().expect("no holder panics");
            *free_at = (*free_at).max(Instant::now()) + takes;
            *free_at
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl Member for Disk {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.take(buffer.len());
        self.inner.read_at(buffer, offset_bytes)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        self.take(buffer.len());
        self.inner.write_at(buffer, offset_bytes, durable)
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.inner.flush()
    }

    fn zero(&self, offset_bytes: u64, bytes: u64, may_punch: bool) -> Result<(), MemberError> {
        self.inner.zero(offset_bytes, bytes, may_punch)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }
}

/// The shape of an array, and the number of members that it loses.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    level: Level,
    slots: u16,
    lost: u16,
}

impl Shape {
    /// Number of members that a rebuild reads. Q is read only if needed.
    fn sources(self) -> u16 {
        match self.level {
            Level::Raid1 | Level::Raid10 => 1,
            Level::Raid6 => self.slots - 2,
            _ => self.slots - 1,
        }
    }
}

const SHAPES: [Shape; 5] = [
    Shape { name: "RAID-1 of 2", level: Level::Raid1, slots: 2, lost: 1 },
    Shape { name: "RAID-10 of 4", level: Level::Raid10, slots: 4, lost: 1 },
    Shape { name: "RAID-5 of 4", level: Level::Raid5, slots: 4, lost: 1 },
    Shape { name: "RAID-6 of 6, one lost", level: Level::Raid6, slots: 6, lost: 1 },
    Shape { name: "RAID-6 of 6, two lost", level: Level::Raid6, slots: 6, lost: 2 },
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    for kind in [Kind::Memory, Kind::Disks, Kind::Files] {
        for shape in SHAPES {
            report.add(case(settings, kind, shape));
        }
    }
    report.add(clients::case(settings));
    report.note(
        "clients: on disks of 50 MB/s and 1 ms a request, at the default target, after a warm-up",
    );
    report.note("member: one device of the same kind, written from start to end, 1 MiB a call: by four threads, in memory by one");
    report.note(
        "the files are on one disk, so reads and writes share its rate; the page cache \
                 serves reads if the file system has no direct I/O",
    );
    report.note(
        "bare, in memory: the same copies and the same sums without an engine, by one \
                 thread; the data that braid reads to fill a member crosses memory too",
    );
    report
}

fn case(settings: &Settings, kind: Kind, shape: Shape) -> Option<crate::frame::Case> {
    let name = format!("{}, {}", shape.name, kind.words());
    if !settings.wants(&name) {
        return None;
    }
    let member_bytes = if settings.small { 8 << 20 } else { 256 << 20 };
    let folder = tempfile::tempdir().expect("a folder");
    let devices = Devices::new(kind, folder.path(), member_bytes);
    let array = RebuildArray::open(shape, &devices);
    let alone = devices.blank();
    let mut contenders = vec![Contender::new("member", || vec![written(&*alone, &devices)])];
    if kind == Kind::Memory {
        contenders.push(Contender::new("bare", || vec![bare(shape, member_bytes)]));
    }
    contenders.push(Contender::new("braid", || vec![array.rebuild(shape, &devices)]));
    let case = race(settings, &name, &METRICS, contenders);
    case.map(|case| case.with([target(kind, shape)]))
}

/// The target: nine tenths of a reference. For members in memory it is the speed of one thread's
/// copies and sums, for disks a member's own rate. For files it is a member's part of one disk's
/// rate, as if reads cost as much as writes.
fn target(kind: Kind, shape: Shape) -> Target {
    match kind {
        Kind::Memory => Target::ratio(RATE, "braid", "bare", 0.9),
        Kind::Files => {
            let passes = f64::from(shape.sources() + shape.lost);
            Target::ratio(RATE, "braid", "member", 0.9 / passes)
        }
        Kind::Disks | Kind::SmallDisks => Target::ratio(RATE, "braid", "member", 0.9),
    }
}

struct Devices<'a> {
    kind: Kind,
    folder: &'a Path,
    member_bytes: u64,
    made: RefCell<u32>,
}

impl<'a> Devices<'a> {
    fn new(kind: Kind, folder: &'a Path, member_bytes: u64) -> Self {
        Self { kind, folder, member_bytes, made: RefCell::new(0) }
    }

    fn blank(&self) -> Box<dyn Member> {
        if self.kind != Kind::Files {
            // The device is written once before, so that none of its pages is new.
            let device = MemoryMember::new(self.member_bytes);
            let page = vec![0xA5; CALL_BYTES];
            for at in (0..self.member_bytes).step_by(CALL_BYTES) {
                device.write_at(&page, at, false).expect("memory takes writes");
            }
            let (bytes_per_second, each) = match self.kind {
                Kind::Disks => (DISK_BYTES_PER_SECOND, Duration::ZERO),
                Kind::SmallDisks => (SMALL_DISK_BYTES_PER_SECOND, SMALL_DISK_REQUEST),
                _ => return Box::new(device),
            };
            let free_at = Mutex::new(Instant::now());
            return Box::new(Disk { inner: device, bytes_per_second, each, free_at });
        }
        let number = self.made.replace_with(|made| *made + 1);
        let path = self.folder.join(format!("m{number}"));
        std::fs::write(&path, vec![0xA5; usize::try_from(self.member_bytes).expect("small")])
            .expect("there is room");
        let device = braid_member::open(&path, Access::ReadWrite).expect("it was just made");
        device.flush().expect("it can be flushed");
        let _kept_in_cache = device.go_direct();
        device
    }
}

/// GB/s of writing one device from start to end, with a flush.
fn written(device: &dyn Member, devices: &Devices<'_>) -> f64 {
    let threads: usize = if devices.kind == Kind::Memory { 1 } else { 4 };
    let (page, member_bytes) = (Pages::filled(CALL_BYTES, 7), devices.member_bytes);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let page = &page;
            scope.spawn(move || {
                let first = (CALL_BYTES * thread) as u64;
                for at in (first..member_bytes).step_by(CALL_BYTES * threads) {
                    device.write_at(page, at, false).expect("it can be written");
                }
            });
        }
    });
    device.flush().expect("it can be flushed");
    rate(member_bytes, start.elapsed())
}

/// The speed of the same copies and sums without an engine, measured on a quarter of the member.
fn bare(shape: Shape, member_bytes: u64) -> f64 {
    const BLOCK: usize = 64 << 10;
    let length = usize::try_from(member_bytes / 4).expect("small");
    let members: Vec<Pages> = (0..shape.sources()).map(|_| Pages::filled(length, 3)).collect();
    let mut targets = [Pages::filled(length, 0), Pages::filled(length, 0)];
    let mut blocks: Vec<Pages> = members.iter().map(|_| Pages::filled(BLOCK, 0)).collect();
    let mut made = [Pages::filled(BLOCK, 0), Pages::filled(BLOCK, 0)];
    let start = Instant::now();
    for at in (0..length).step_by(BLOCK) {
        for (block, member) in blocks.iter_mut().zip(&members) {
            block.copy_from_slice(&member[at..at + BLOCK]);
        }
        let sources: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        match (&sources[..], shape.lost) {
            ([copy], _) => targets[0][at..at + BLOCK].copy_from_slice(copy),
            // In half of the rows both lost blocks are data. In the other rows one or both are
            // parity.
            ([data @ .., p, q], 2) => {
                let known = data.iter().copied().map(Some);
                let known: Vec<Option<&[u8]>> = [None, None].into_iter().chain(known).collect();
                let [one, two] = &mut made;
                if (at / BLOCK).is_multiple_of(2) {
                    kernel().recover_two_data(&known, (p, q), (0, 1), (one, two));
                } else {
                    kernel().pq(&known, one, two);
                }
                for (target, made) in targets.iter_mut().zip(&made) {
                    target[at..at + BLOCK].copy_from_slice(made);
                }
            }
            (sources, _) => {
                kernel().xor(&mut made[0], sources);
                targets[0][at..at + BLOCK].copy_from_slice(&made[0]);
            }
        }
    }
    std::hint::black_box(&targets);
    rate(length as u64, start.elapsed())
}

fn rate(bytes: u64, time: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let bytes = bytes as f64;
    bytes / time.as_secs_f64() / 1e9
}

/// An array whose members are lost and rebuilt repeatedly.
struct RebuildArray {
    volume: Volume,
    heard: Receiver<(Instant, Notice)>,
    uuid: RefCell<u8>,
}

impl RebuildArray {
    fn open(shape: Shape, devices: &Devices<'_>) -> Self {
        let Shape { level, slots, .. } = shape;
        let chunk_sectors = if level == Level::Raid1 { 0 } else { 128 };
        let plan = Plan {
            level,
            slots,
            chunk_sectors,
            member_bytes: devices.member_bytes,
            policy: Policy::Resync,
        };
        let members = (0..slots).map(|_| devices.blank()).collect();
        let (tell, heard) = channel();
        let tell = Mutex::new(tell);
        let volume = array::open_on(plan, &Options::default(), members, move |notice| {
            let _ended = tell.lock().expect("no holder panics").send((Instant::now(), notice));
        });
        Self { volume, heard, uuid: RefCell::new(100) }
    }

    /// Loses members, and returns the speed of filling their replacements: GB/s of each.
    fn rebuild(&self, shape: Shape, devices: &Devices<'_>) -> f64 {
        self.lose(shape, devices);
        let (sectors, took) = self.wait_until_filled(shape);
        rate(sectors * 512, took)
    }

    /// Fails and removes members, and adds blank devices, which the array starts to fill.
    fn lose(&self, shape: Shape, devices: &Devices<'_>) {
        let view = self.volume.view();
        self.volume.request_job(braid_runtime::JobRequest::Pause);
        for slot in 0..shape.lost {
            let old = view.member(Slot(slot)).expect("all are there").id;
            self.volume.fail_member(old).expect("the level can do without it");
            while self.volume.remove_member(old).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for _ in 0..shape.lost {
            let number = self.uuid.replace_with(|number| number.wrapping_add(1));
            let added = self.volume.add_member(
                devices.blank(),
                &Newcomer { uuid: [number; 16], ..Newcomer::default() },
                |_| (),
            );
            added.expect("it is as long as the others");
        }
        self.volume.request_job(braid_runtime::JobRequest::Resume);
    }

    /// Waits until the replacements are filled. Returns the sectors of each, and the time it took.
    fn wait_until_filled(&self, shape: Shape) -> (u64, Duration) {
        let (mut began, mut recovered) = (None, 0);
        loop {
            let (at, notice) = self.heard.recv_timeout(PATIENCE).expect("the rebuild ends");
            match notice {
                // With two lost members, a job may begin before the second replacement has a slot,
                // and restart.
                Notice::JobBegan(progress) if progress.kind == JobKind::Recovery => {
                    began = began.or(Some((at, progress.end)));
                }
                Notice::JobEnded { progress, end } if progress.kind == JobKind::Recovery => {
                    assert!(matches!(end, JobEnd::Completed | JobEnd::Interrupted), "{end:?}");
                }
                Notice::Recovered { .. } => {
                    recovered += 1;
                    if recovered == shape.lost {
                        let (began, sectors) = began.expect("it began");
                        return (sectors, at - began);
                    }
                }
                _ => {}
            }
        }
    }
}
