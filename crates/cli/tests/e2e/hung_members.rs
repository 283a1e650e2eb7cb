//! A member that does not answer for seconds, like a dead disk, a network file system without its
//! network, or a loop device on either of these. Readers do not notice, and nothing is lost when
//! the member answers again.
//!
//! The members are files on a FUSE file system that hangs on request. A thread that waits for a
//! hanging member is stuck in the kernel, even when a signal arrives. A worker that waited for it
//! would be lost, with the worker's clients and members.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use fastrand::Rng;

use crate::kit::{
    Array, Client, FaultFs, Hang, Mount, Need, RAID_1, RAID_5, RAID_6, Shape, assert_same,
    is_installed, random_bytes, run, say, skip, wait_until,
};

const BLOCK: usize = 4096;

const MEMBER_SIZE: &str = "6M";

/// How long the member hangs under load.
const HANG: Duration = Duration::from_millis(2500);

/// How long the member answers under load before it hangs.
const HEALTHY: Duration = Duration::from_millis(300);

/// Time limit of a read while the member hangs.
const LIMIT: Duration = Duration::from_secs(2);

/// Time limit of every step that is not measured.
const PATIENCE: Duration = Duration::from_secs(60);

const READERS: u64 = 3;
const READS_AT_ONCE: u64 = 8;
const WRITERS: u64 = 4;
const WRITES_AT_ONCE: u64 = 100;

/// The content of block `index` once written.
fn block(index: u64) -> Vec<u8> {
    random_bytes(index + 1, BLOCK)
}

fn at(index: u64) -> u64 {
    index * BLOCK as u64
}

/// Ends the test's threads, however the test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct ReadTimes {
    answered: usize,
    late: usize,
    longest: Duration,
    /// Reads without an answer when the reader gave up.
    unanswered: usize,
}

impl ReadTimes {
    fn add(&mut self, took: Duration) {
        self.answered += 1;
        self.late += usize::from(took > LIMIT);
        self.longest = self.longest.max(took);
    }

    fn merge(mut self, other: &Self) -> Self {
        self.answered += other.answered;
        self.late += other.late;
        self.unanswered += other.unanswered;
        self.longest = self.longest.max(other.longest);
        self
    }
}

/// Reads blocks that are no longer written until `ends` is set, several at once.
fn read_on(socket: &Path, (seed, blocks): (u64, u64), ends: &AtomicBool) -> ReadTimes {
    let mut client = Client::connect(socket, LIMIT * 2);
    let (mut random, mut seen) = (Rng::with_seed(seed), ReadTimes::default());
    let mut asked = BTreeMap::new();
    let mut cookie = 0;
    loop {
        while asked.len() < usize::try_from(READS_AT_ONCE).expect("few")
            && !ends.load(Ordering::Relaxed)
        {
            let index = random.u64(..blocks);
            client.ask_read(cookie, at(index), BLOCK);
            asked.insert(cookie, (index, Instant::now()));
            cookie += 1;
        }
        if asked.is_empty() {
            return seen;
        }
        let Some(answered) = client.hear() else {
            seen.unanswered = asked.len();
            return seen;
        };
        let (index, since) = asked.remove(&answered).expect("what was asked is answered once");
        let found = client.payload(BLOCK);
        seen.add(since.elapsed());
        assert_same(&found, &block(index), "what was read");
    }
}

/// Writes random blocks from `first` to `end` until `ends` is set, many at once. Waits for all
/// answers, and returns the written blocks.
fn write_on(socket: &Path, (seed, first, end): (u64, u64, u64), ends: &AtomicBool) -> Vec<u64> {
    let mut client = Client::connect(socket, PATIENCE);
    let mut random = Rng::with_seed(seed);
    let mut written = Vec::new();
    let mut unanswered = 0;
    while !ends.load(Ordering::Relaxed) {
        if unanswered == WRITES_AT_ONCE {
            client.hear().expect("a write is answered when its member is back");
            unanswered -= 1;
        }
        let index = first + random.u64(..end - first);
        client.ask_write(index, at(index), &block(index));
        written.push(index);
        unanswered += 1;
    }
    for _ in 0..unanswered {
        client.hear().expect("a write is answered when its member is back");
    }
    written
}

/// Which members hang, and how the array is served.
#[derive(Clone, Copy, Debug)]
struct Case {
    shape: Shape,
    hang: Hang,
    hung: &'static [usize],
    io: &'static str,
    workers: &'static str,
}

impl Case {
    const fn new(shape: Shape, hang: Hang, workers: &'static str) -> Self {
        Self { shape, hang, hung: &[1], io: "ring", workers }
    }

    fn options(&self) -> Vec<&'static str> {
        let mut options = vec!["--io", self.io];
        if self.io == "ring" {
            options.extend(["--workers", self.workers]);
        }
        options
    }
}

/// Fills the array, hangs its members under load, releases them, and compares all content.
fn hang_under_load(case: Case, array: &Array, hanging: &FaultFs, members: &[PathBuf]) -> ReadTimes {
    let options = case.options();
    let served = array.serve_with(&options, members);
    let blocks = served.size_bytes / BLOCK as u64;
    // Readers read the first half; writers write the second half while the member hangs.
    let half = blocks / 2;
    let mut client = Client::connect(&served.socket, PATIENCE);
    (0..half).for_each(|index| client.write(at(index), &block(index)));
    client.flush();
    drop(client);
    served.stop();
    // Reopening the files empties their page cache.
    let served = array.serve_with(&options, members);
    let let_go = hanging.let_go_at_end();
    let (reads_end, writes_end) = (AtomicBool::new(false), AtomicBool::new(false));
    let (seen, written) = thread::scope(|scope| {
        let _end = [Ends(&reads_end), Ends(&writes_end)];
        let socket = served.socket.as_path();
        let (reads_end, writes_end) = (&reads_end, &writes_end);
        let write = |seed| move || write_on(socket, (100 + seed, half, blocks), writes_end);
        let writers: Vec<_> = (0..WRITERS).map(|seed| scope.spawn(write(seed))).collect();
        thread::sleep(HEALTHY);
        case.hung.iter().for_each(|member| hanging.hang(*member, case.hang));
        // Readers start only when the member hangs: before the hang, a repeated read would be
        // answered from the page cache.
        let read = |seed| move || read_on(socket, (seed, half), reads_end);
        let readers: Vec<_> = (0..READERS).map(|seed| scope.spawn(read(seed))).collect();
        wait_until("something to hang", HANG, || hanging.held() > 0);
        thread::sleep(HANG);
        reads_end.store(true, Ordering::Relaxed);
        let seen = readers.into_iter().map(|reader| reader.join().expect("a reader"));
        let seen = seen.fold(ReadTimes::default(), |all, one| all.merge(&one));
        // Writers check `writes_end` only after an answer.
        writes_end.store(true, Ordering::Relaxed);
        hanging.let_go();
        let written = writers.into_iter().flat_map(|writer| writer.join().expect("a writer"));
        (seen, written.collect::<Vec<_>>())
    });
    drop(let_go);
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.flush();
    for index in (0..half).chain(BTreeSet::from_iter(written)) {
        let found = client.read(at(index), BLOCK).expect("an answer in time");
        assert_same(&found, &block(index), "what was written");
    }
    drop(client);
    served.stop();
    seen
}

/// The array's members on a FUSE that can hang.
fn mounted(array: &Array) -> Option<FaultFs> {
    let hanging = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    if hanging.is_none() {
        skip(Need::Fuse, "no FUSE can be mounted here");
    }
    hanging
}

fn on_fuse(case: Case) -> Option<ReadTimes> {
    let mut array = Array::create_sized(case.shape, MEMBER_SIZE);
    let hanging = mounted(&array)?;
    array.members = hanging.files();
    let members = array.members.clone();
    Some(hang_under_load(case, &array, &hanging, &members))
}

/// Loop devices over files, detached on drop.
struct Loops(Vec<PathBuf>);

impl Loops {
    fn attach(files: &[PathBuf]) -> Option<Self> {
        let mut loops = Self(Vec::new());
        for file in files {
            let file = file.to_str().expect("text");
            let ran = is_installed("losetup").then(|| run("losetup", ["--find", "--show", file]));
            let ran = ran.filter(|ran| ran.status.success())?;
            loops.0.push(PathBuf::from(ran.stdout.trim()));
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            // A loop device that stays attached disturbs no other test.
            let _ = run("losetup", ["--detach", device.to_str().expect("text")]);
        }
    }
}

/// Runs a case with loop devices over the files: requests wait in the block layer's limited queue.
fn on_loops(case: Case) -> Option<ReadTimes> {
    let array = Array::create_sized(case.shape, MEMBER_SIZE);
    let hanging = mounted(&array)?;
    let Some(loops) = Loops::attach(&hanging.files()) else {
        skip(Need::LoopDevices, "no loop device can be attached here");
        return None;
    };
    Some(hang_under_load(case, &array, &hanging, &loops.0))
}

#[track_caller]
fn assert_unnoticed(case: Case, seen: Option<ReadTimes>) {
    let Some(seen) = seen else { return };
    say(&format!("{case:?}: {seen:?}"));
    assert_eq!((seen.unanswered, seen.late), (0, 0), "{case:?}: {seen:?}");
    assert!(seen.answered > 100, "{case:?}: {seen:?}");
}

fn stalls_no_reader(shape: Shape) {
    for (hang, workers) in
        [(Hang::Reads, "1"), (Hang::Writes, "2"), (Hang::Both, "1"), (Hang::Everything, "2")]
    {
        let case = Case::new(shape, hang, workers);
        assert_unnoticed(case, on_fuse(case));
    }
}

#[test]
fn a_member_that_never_answers_stalls_no_reader_of_a_raid_1_on_rings() {
    stalls_no_reader(RAID_1);
}

#[test]
fn a_member_that_never_answers_stalls_no_reader_of_a_raid_5_on_rings() {
    stalls_no_reader(RAID_5);
}

#[test]
fn a_member_that_never_answers_stalls_no_reader_of_a_raid_6_on_rings() {
    stalls_no_reader(RAID_6);
}

#[test]
fn two_members_that_never_answer_stall_no_reader_of_a_raid_6_on_rings() {
    let case = Case { hung: &[0, 3], ..Case::new(RAID_6, Hang::Both, "1") };
    assert_unnoticed(case, on_fuse(case));
}

/// Regression: the alarm thread asked the hanging file system whether the member exists.
#[test]
fn a_member_that_never_answers_stalls_no_reader_on_threads() {
    for hang in [Hang::Both, Hang::Everything] {
        let case = Case { io: "threads", ..Case::new(RAID_5, hang, "1") };
        assert_unnoticed(case, on_fuse(case));
    }
}

/// Regression: the stop waited for ever, and reported nothing.
#[test]
fn a_stop_gives_up_on_a_member_that_never_answers_and_names_it() {
    let mut array = Array::create_sized(RAID_5, MEMBER_SIZE);
    let Some(hanging) = mounted(&array) else { return };
    array.members = hanging.files();
    for (io, hang) in [("ring", Hang::Writes), ("threads", Hang::Everything)] {
        let served = array.serve_with(&["--io", io], &array.members);
        let mut client = Client::connect(&served.socket, PATIENCE);
        (0..256).for_each(|index| client.write(at(index), &block(index)));
        client.flush();
        drop(client);
        served.stop();
        let options = ["--io", io, "--stop-patience", "2", "--away-after-ms", "never"];
        let mut served = array.serve_with(&options, &array.members);
        let let_go = hanging.let_go_at_end();
        let mut client = Client::connect(&served.socket, PATIENCE);
        hanging.hang(1, hang);
        (300..364).for_each(|index| client.ask_write(index, at(index), &block(index)));
        wait_until("something to hang", PATIENCE, || hanging.held() > 0);
        let begun = Instant::now();
        served.signal(Signal::TERM);
        wait_until("the stop to be given up", Duration::from_secs(30), || served.error().is_some());
        let error = served.error().expect("just seen");
        assert!(begun.elapsed() > Duration::from_secs(2), "{error}");
        assert_eq!(error["code"], "B056", "{error}");
        assert!(error.to_string().contains("m1"), "{error}");
        // The kernel keeps the ended process until its requests are answered.
        drop(let_go);
        assert_eq!(served.wait().code(), Some(1));
        let served = array.serve_with(&["--io", io], &array.members);
        let mut client = Client::connect(&served.socket, PATIENCE);
        for index in 0..256 {
            let found = client.read(at(index), BLOCK).expect("an answer in time");
            assert_same(&found, &block(index), "what was flushed");
        }
        drop(client);
        served.stop();
    }
}

/// Regression: the stop waited for ever for flushes or superblocks, which bypass ring admission.
#[test]
fn a_stop_gives_up_on_a_member_that_never_answers_its_superblock_on_rings() {
    let array = Array::create_sized(RAID_1, MEMBER_SIZE);
    let Some(hanging) = mounted(&array) else { return };
    let Some(loops) = Loops::attach(&hanging.files()) else {
        return skip(Need::LoopDevices, "no loop device can be attached here");
    };
    let options = ["--io", "ring", "--stop-patience", "2", "--away-after-ms", "never"];
    let mut served = array.serve_with(&options, &loops.0);
    let let_go = hanging.let_go_at_end();
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &block(0));
    client.flush();
    hanging.hang(1, Hang::Writes);
    drop(client);
    served.signal(Signal::TERM);
    wait_until("something to hang", PATIENCE, || hanging.held() > 0);
    wait_until("the stop to be given up", Duration::from_secs(30), || served.error().is_some());
    let error = served.error().expect("just seen");
    assert_eq!(error["code"], "B056", "{error}");
    // The kernel keeps the ended process until its requests are answered.
    drop(let_go);
    assert_eq!(served.wait().code(), Some(1));
    array.serve_with(&["--io", "ring"], &loops.0).stop();
}

#[test]
fn a_loop_device_with_hundreds_of_writes_queued_stalls_no_reader_on_rings() {
    for (shape, workers) in [(RAID_1, "1"), (RAID_5, "2")] {
        let case = Case::new(shape, Hang::Both, workers);
        assert_unnoticed(case, on_loops(case));
    }
}
