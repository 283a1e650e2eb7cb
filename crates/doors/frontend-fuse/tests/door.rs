//! Tests a door over a disk in memory, which this process uses through the kernel.
//!
//! The disk's own threads end requests, late and out of order. The tests are skipped if this user
//! may not mount.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use braid_frontend_fuse::{Door, MountPoint, MountPointError};
use braid_runtime::{ClientRequest, Completion, Outcome, RequestError};
use braid_test_needs::{Need, skip};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

const SIZE_BYTES: usize = 8 << 20;

type Job = (ClientRequest, Completion);

/// A disk in memory that several threads serve. Each thread takes the next operation, so operations
/// end in any order.
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    read_only: bool,
    threads: Vec<Sender<Job>>,
    next: Mutex<usize>,
    flushes: Arc<Mutex<usize>>,
    /// While this lock is held, no operation ends.
    hold: Arc<Mutex<()>>,
}

impl Disk {
    fn new(read_only: bool) -> Arc<Self> {
        let bytes = Arc::new(Mutex::new(vec![0; SIZE_BYTES]));
        let (flushes, hold) = (Arc::default(), Arc::<Mutex<()>>::default());
        let threads = (0..3).map(|_| worker(&bytes, &flushes, &hold)).collect();
        Arc::new(Self { bytes, read_only, threads, next: Mutex::new(0), flushes, hold })
    }
}

fn worker(
    bytes: &Arc<Mutex<Vec<u8>>>,
    flushes: &Arc<Mutex<usize>>,
    hold: &Arc<Mutex<()>>,
) -> Sender<Job> {
    let (sender, jobs) = channel::<Job>();
    let (bytes, flushes, hold) = (Arc::clone(bytes), Arc::clone(flushes), Arc::clone(hold));
    thread::spawn(move || {
        for (operation, completion) in jobs {
            drop(hold.lock().expect("no panic under it"));
            let mut bytes = bytes.lock().expect("no panic under it");
            let at = |offset: u64| usize::try_from(offset).expect("small");
            let (result, payload) = match operation {
                ClientRequest::Read { offset, mut payload } => {
                    let length = payload.len();
                    payload.copy_from_slice(&bytes[at(offset)..at(offset) + length]);
                    (Ok(()), Some(payload))
                }
                // Keeps this payload after the answer, as the array keeps some.
                ClientRequest::Write { offset, payload, .. } if payload[0] == 0xee => {
                    bytes[at(offset)..at(offset) + payload.len()].copy_from_slice(&payload);
                    (Ok(()), None)
                }
                ClientRequest::Write { payload, .. } if payload[0] == 0xff => {
                    (Err(RequestError::NoSpace), Some(payload))
                }
                ClientRequest::Write { offset, payload, .. } => {
                    bytes[at(offset)..at(offset) + payload.len()].copy_from_slice(&payload);
                    (Ok(()), Some(payload))
                }
                ClientRequest::WriteZeroes { offset, length, .. } => {
                    bytes[at(offset)..at(offset) + at(length)].fill(0);
                    (Ok(()), None)
                }
                ClientRequest::Flush => {
                    *flushes.lock().expect("no panic under it") += 1;
                    (Ok(()), None)
                }
                ClientRequest::Trim { .. } => panic!("FUSE has no word for it"),
            };
            drop(bytes);
            completion.complete(Outcome { result, payload });
        }
    });
    sender
}

impl braid_frontend_fuse::Disk for Disk {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES as u64
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn unit_bytes(&self) -> u64 {
        4096
    }

    fn submit(&self, operation: ClientRequest, completion: Completion) {
        let mut next = self.next.lock().expect("no panic under it");
        *next = (*next + 1) % self.threads.len();
        self.threads[*next].send((operation, completion)).expect("its thread runs");
    }
}

struct TestMount {
    disk: Arc<Disk>,
    door: Door,
    gone: std::sync::mpsc::Receiver<()>,
    folder: tempfile::TempDir,
}

/// The kernel's parameter that enables io_uring for FUSE; it takes effect when a door is opened.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
static SWITCHED: Mutex<()> = Mutex::new(());

/// Both transports of requests (false: /dev/fuse, true: rings), if this machine supports them.
fn ways() -> Vec<bool> {
    let can_switch = OpenOptions::new().write(true).open(SWITCH).is_ok();
    if can_switch { vec![false, true] } else { vec![false] }
}

fn served(read_only: bool, over_rings: bool) -> Option<TestMount> {
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        skip(Need::Fuse, "no /dev/fuse");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        skip(Need::Fuse, "only root mounts without a helper");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let place = MountPoint::take(&folder.path().join("disk")).expect("a place");
    let disk = Disk::new(read_only);
    let (went, gone) = channel();
    let on_gone = move || went.send(()).expect("listened to");
    let shared: Arc<dyn braid_frontend_fuse::Disk> = Arc::<Disk>::clone(&disk);
    let only_one = SWITCHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = std::fs::read_to_string(SWITCH).unwrap_or_default();
    if ways().len() > 1 {
        std::fs::write(SWITCH, if over_rings { "Y" } else { "N" }).expect("it can be written");
    }
    let door = Door::open(place, shared, on_gone);
    if ways().len() > 1 {
        std::fs::write(SWITCH, before).expect("it can be written");
    }
    drop(only_one);
    let door = door.expect("a door");
    assert_eq!(door.is_over_rings(), over_rings);
    Some(TestMount { disk, door, gone, folder })
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it opens")
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + seed) % 200).expect("small")).collect()
}

const DEADLINE: Duration = Duration::from_secs(5);

#[test]
fn every_request_is_answered() {
    ways().into_iter().for_each(every_request_is_answered_by);
}

fn every_request_is_answered_by(over_rings: bool) {
    let Some(TestMount { disk, door, .. }) = served(false, over_rings) else { return };
    let path = door.path().to_path_buf();
    thread::scope(|scope| {
        for user in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let file = open(path);
                let own = user * SIZE_BYTES / 4;
                // The lengths are shorter, longer and much longer than the previous write; each
                // length is also written unaligned.
                for (turn, length) in [1, 511, 512, 4096, 4097, 70_000, 1 << 20, 3, 128 << 10]
                    .into_iter()
                    .cycle()
                    .take(60)
                    .enumerate()
                {
                    let offset = (own + turn * 37) as u64;
                    let bytes = pattern(user + turn, length);
                    file.write_all_at(&bytes, offset).expect("written");
                    let mut back = vec![1; length];
                    file.read_exact_at(&mut back, offset).expect("read");
                    assert_eq!(back, bytes, "user {user}, turn {turn}, {length} bytes");
                }
            });
        }
    });
    let counts = door.meter().counts();
    assert!(counts.bytes_written > 0 && counts.bytes_read == counts.bytes_written, "{counts:?}");
    assert!(over_rings || counts.bytes_copied < counts.bytes_written, "{counts:?}");
    let mut whole = Vec::new();
    open(&path).read_to_end(&mut whole).expect("read");
    assert_eq!(whole, *disk.bytes.lock().expect("no panic under it"));
    let closed = door.close(DEADLINE);
    assert!(!closed.was_in_use && closed.unanswered == 0, "{closed:?}");
    assert!(!path.exists(), "it was made here");
}

#[test]
fn writes_of_one_length_are_not_copied() {
    let Some(TestMount { door, .. }) = served(false, false) else { return };
    let file = open(door.path());
    // Writes at most 512 KiB: 1 MiB of memory that begins within a page touches more pages than one
    // request may have.
    for length in [4096, 128 << 10, 512 << 10] {
        file.write_all_at(&pattern(1, length), 0).expect("written");
        let before = door.meter().counts().bytes_copied;
        for _ in 0..5 {
            file.write_all_at(&pattern(1, length), 0).expect("written");
        }
        assert_eq!(door.meter().counts().bytes_copied, before, "{length} bytes");
    }
}

#[test]
fn direct_io_and_what_files_can_do() {
    ways().into_iter().for_each(direct_io_and_what_files_can_do_by);
}

fn direct_io_and_what_files_can_do_by(over_rings: bool) {
    let Some(TestMount { disk, door, .. }) = served(false, over_rings) else { return };
    let path = door.path();
    let direct = 0o40_000; // O_DIRECT
    let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path);
    let file = file.expect("direct I/O is taken");
    disk.bytes.lock().expect("no panic under it").fill(7);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1000, 5000)
        .expect("a hole");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 9000, 10).expect("zeroes");
    let bytes = disk.bytes.lock().expect("no panic under it").clone();
    assert!(
        bytes[..1000].iter().all(|byte| *byte == 7)
            && bytes[1000..6000].iter().all(|byte| *byte == 0)
    );
    assert!(
        bytes[6000..9000].iter().all(|byte| *byte == 7)
            && bytes[9000..9010].iter().all(|byte| *byte == 0)
    );
    let collapsed = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapsed, Err(Errno::OPNOTSUPP));
    file.sync_all().expect("flushed");
    assert_eq!(*disk.flushes.lock().expect("no panic under it"), 1);
    assert_eq!(seek(&file, SeekFrom::Hole(5)), Ok(SIZE_BYTES as u64));
    assert_eq!(seek(&file, SeekFrom::Data(5)), Ok(5));
    assert_eq!(file.set_len(5).expect_err("its size stays").kind(), ErrorKind::PermissionDenied);
    file.set_len(SIZE_BYTES as u64).expect("it has that size");

    let metadata = file.metadata().expect("stat");
    assert_eq!((metadata.len(), metadata.mode()), (SIZE_BYTES as u64, 0o100_600));
    let before = metadata.modified().expect("a time");
    thread::sleep(Duration::from_millis(20));
    let plain = open(path);
    plain.write_all_at(&[1], 5).expect("written");
    assert!(plain.metadata().expect("stat").modified().expect("a time") > before);
    let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1234);
    plain.set_modified(then).expect("times are set");
    assert_eq!(plain.metadata().expect("stat").modified().expect("a time"), then);

    assert_eq!(plain.write_at(&[0xff; 100], 0).expect_err("full").raw_os_error(), Some(28));
    plain.write_all_at(&[0xee; 9000], 3).expect("kept by the disk");
    assert_eq!(disk.bytes.lock().expect("no panic under it")[3..9003], [0xee; 9000]);
    let beyond = plain.write_at(&[1; 2], SIZE_BYTES as u64 - 1).expect_err("beyond its end");
    assert_eq!(beyond.raw_os_error(), Some(28));
    assert_eq!(plain.read_at(&mut [0; 9], SIZE_BYTES as u64 - 3).expect("cut at the end"), 3);
    assert_eq!(plain.read_at(&mut [0; 9], SIZE_BYTES as u64).expect("the end"), 0);
}

#[test]
fn what_is_only_read_is_mounted_so() {
    ways().into_iter().for_each(what_is_only_read_is_mounted_so_by);
}

fn what_is_only_read_is_mounted_so_by(over_rings: bool) {
    let Some(TestMount { door, .. }) = served(true, over_rings) else { return };
    let mut bytes = [1; 512];
    File::open(door.path()).expect("it opens").read_exact(&mut bytes).expect("read");
    assert_eq!(bytes, [0; 512]);
    let refused = OpenOptions::new().write(true).open(door.path()).expect_err("read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_door_closes_over_an_open_file() {
    ways().into_iter().for_each(a_door_closes_over_an_open_file_by);
}

fn a_door_closes_over_an_open_file_by(over_rings: bool) {
    let Some(TestMount { disk, door, folder, .. }) = served(false, over_rings) else { return };
    let path = door.path().to_path_buf();
    let file = open(&path);
    let held = disk.hold.lock().expect("no panic under it");
    let slow = thread::spawn({
        let file = file.try_clone().expect("a descriptor");
        move || file.write_at(&[1; 512], 0)
    });
    while door.meter().counts().bytes_in_flight == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    let closed = door.close(Duration::from_millis(200));
    assert!(closed.was_in_use && closed.unanswered == 1, "{closed:?}");
    assert!(begun.elapsed() < DEADLINE);
    drop(held);
    // By /dev/fuse the slow request's answer still arrives before the kernel releases the file.
    let ended = slow.join().expect("no panic");
    assert!(ended.is_ok() || over_rings, "{ended:?}");
    while file.read_at(&mut [0; 512], 0).is_ok() {
        assert!(begun.elapsed() < DEADLINE, "an open file goes on");
    }
    let stale = file.read_at(&mut [0; 512], 0).expect_err("the door is closed");
    assert_eq!(stale.raw_os_error(), Some(107), "not connected");
    assert!(!path.exists());
    MountPoint::take(&folder.path().join("disk")).expect("the place is free");
}

#[test]
fn a_door_that_others_close_says_so() {
    ways().into_iter().for_each(a_door_that_others_close_says_so_by);
}

fn a_door_that_others_close_says_so_by(over_rings: bool) {
    let Some(TestMount { door, gone, .. }) = served(false, over_rings) else { return };
    let path = door.path().to_path_buf();
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::empty()).expect("unmounted");
    gone.recv_timeout(DEADLINE).expect("told");
    let closed = door.close(DEADLINE);
    assert!(!closed.was_in_use && closed.unanswered == 0, "{closed:?}");
}

#[test]
fn a_place_in_use_is_not_taken() {
    let Some(TestMount { door, .. }) = served(false, false) else { return };
    let path: PathBuf = door.path().to_path_buf();
    let taken = MountPoint::take(&path).expect_err("in use");
    assert!(
        matches!(&taken, MountPointError::Taken { kind, .. } if kind == "fuse.braid"),
        "{taken:?}"
    );
}
