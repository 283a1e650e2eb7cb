//! The array as a file: through /dev/fuse and through io_uring, with losses, stops and kills.
//!
//! Both transports are tested if root can set the kernel's switch between them, which takes effect
//! at a server's start.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;

use crate::kit::{
    Array, Client, MOUNT, Mount, Need, RAID_5, RAID_6, ServerProcess, assert_same, needs, ok,
    random_bytes, run, skip, wait_until,
};
use crate::remedies::{error_of, words_of};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
static SWITCHED: Mutex<()> = Mutex::new(());

/// Limit for a program's access to a file whose server is gone.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FuseTransport {
    Device,
    Rings,
}

fn transports() -> Vec<FuseTransport> {
    if !Mount::is_possible() || !rustix::process::geteuid().is_root() {
        skip(Need::Fuse, "no /dev/fuse for us");
        return Vec::new();
    }
    match OpenOptions::new().write(true).open(SWITCH) {
        Ok(_) => vec![FuseTransport::Device, FuseTransport::Rings],
        Err(_) => vec![FuseTransport::Device],
    }
}

fn serve(array: &Array, transport: FuseTransport, members: &[PathBuf]) -> ServerProcess {
    let disk = disk(array);
    let only_one = SWITCHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = std::fs::read_to_string(SWITCH).unwrap_or_default();
    // If the switch cannot be written, the kernel has only one transport.
    let _ = std::fs::write(SWITCH, if transport == FuseTransport::Rings { "Y" } else { "N" });
    let served = array.serve_with(&["--fuse", disk.to_str().expect("text")], members);
    let _ = std::fs::write(SWITCH, before);
    drop(only_one);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.process_id())).expect("it runs");
    let is_ring = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.expect("a thread").path().join("comm"));
        name.is_ok_and(|name| name.trim() == "braid-fuse-ring")
    };
    assert_eq!(tasks.into_iter().any(is_ring), transport == FuseTransport::Rings);
    served
}

fn disk(array: &Array) -> PathBuf {
    array.path("disk")
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("the file opens")
}

/// One user's part of the file, and its expected content.
struct User {
    file: File,
    start: u64,
    bytes: Vec<u8>,
    random: fastrand::Rng,
}

impl User {
    /// Runs a random operation at a random place, and checks the result.
    fn act(&mut self) {
        let random = &mut self.random;
        let most = *random.choice([1, 512, 4096, 70_000, 600_000].iter()).expect("some");
        let length = random.usize(1..=most).min(self.bytes.len());
        let mut at = random.usize(0..=self.bytes.len() - length);
        if random.bool() {
            at -= at % 4096;
        }
        let (offset, range) = (self.start + at as u64, at..at + length);
        match random.u8(0..10) {
            0..4 => {
                let bytes = random_bytes(random.u64(..), length);
                self.file.write_all_at(&bytes, offset).expect("a write");
                self.bytes[range].copy_from_slice(&bytes);
            }
            4..8 => {
                let mut bytes = vec![0; length];
                self.file.read_exact_at(&mut bytes, offset).expect("a read");
                assert_same(&bytes, &self.bytes[range], "what was read");
            }
            8 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let how = if random.bool() { punch } else { FallocateFlags::ZERO_RANGE };
                fallocate(&self.file, how, offset, length as u64).expect("zeroes");
                self.bytes[range].fill(0);
            }
            _ => self.file.sync_data().expect("a flush"),
        }
    }
}

/// Runs concurrent users, with a loss in the middle; returns the expected content.
fn use_it(array: &Array, served: &mut ServerProcess, seed: u64) -> Vec<u8> {
    let part = usize::try_from(served.size_bytes / 4).expect("small");
    let path = disk(array);
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..4_u64)
            .map(|number| {
                let file = open(&path);
                let start = number * part as u64;
                scope.spawn(move || {
                    let mut bytes = vec![0; part];
                    file.read_exact_at(&mut bytes, start).expect("a read");
                    let random = fastrand::Rng::with_seed(seed + number);
                    let mut user = User { file, start, bytes, random };
                    (0..150).for_each(|_| user.act());
                    user.bytes
                })
            })
            .collect();
        served.lose(array, 0);
        users.into_iter().flat_map(|user| user.join().expect("no panic")).collect()
    })
}

#[test]
fn a_file_is_the_array_through_a_loss() {
    needs!("nbdcopy");
    for transport in transports() {
        let array = Array::create(RAID_6);
        let mut served = serve(&array, transport, &array.members);
        let size = served.size_bytes;
        assert_eq!(disk(&array).metadata().expect("stat").len(), size);
        let status = array.braid(&["status", "tank"], &[]);
        let told: Value = serde_json::from_str(&status.stdout).expect("JSON");
        let told = &told["arrays"][0];
        assert_eq!(told["file"].as_str(), disk(&array).to_str(), "{status:?}");
        assert!(told["device"].is_null(), "it is no block device: {status:?}");
        let listed = array.braid(&["list"], &[]);
        let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
        assert_eq!(listed["arrays"][0]["file"], told["file"]);
        let mut expected = use_it(&array, &mut served, 7);
        let rest = usize::try_from(size).expect("small") - expected.len();
        expected.resize(expected.len() + rest, 0);
        assert_same(&std::fs::read(disk(&array)).expect("it"), &expected, "as a file");
        assert_same(&served.read_all(&array), &expected, "through NBD");
        served.stop();
        assert!(!disk(&array).exists(), "it was made for this");
        let served = array.serve_with(&[], &array.present());
        assert_same(&served.read_all(&array), &expected, "after a restart");
        served.stop();
    }
}

/// Mounting is forbidden to fusermount3 as well: it inherits the filter.
#[test]
fn who_may_not_mount_is_told_what_is_allowed_and_of_another_door() {
    needs!("fusermount3");
    if transports().is_empty() {
        return;
    }
    let array = Array::create(RAID_5);
    let path = disk(&array);
    let words = ["serve", "--fuse", path.to_str().expect("text")];
    // The `mount` system call fails with EPERM.
    let Some(ran) = array.braid_denied((MOUNT, 1), &words) else { return };
    let error = error_of(&ran);
    assert_eq!(error["code"], "B093", "{error}");
    assert!(!path.exists(), "it was made for this");
    array.follow(&error, "See its settings");
    let members = words_of(&array.members);
    array.follow_with(&error, "Serve it over NBD alone", &[("MEMBER...", &*members)]);
}

/// A loop device, detached on drop.
struct Loop(String);

impl Loop {
    fn over(path: &Path) -> Self {
        let path = path.to_str().expect("text");
        Self(ok("losetup", ["--find", "--show", "--direct-io=on", path]).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", ["--detach", &self.0]);
    }
}

#[test]
fn ext4_lives_on_a_loop_device_through_a_loss() {
    needs!("losetup", "mke2fs", "mount", "umount", "fstrim", "e2fsck");
    if !Path::new("/dev/loop-control").exists() {
        return skip(Need::LoopDevices, "no loop devices");
    }
    for transport in transports() {
        let array = Array::create_sized(RAID_5, "32M");
        let mut served = serve(&array, transport, &array.members);
        let device = Loop::over(&disk(&array));
        let direct = ok("losetup", ["--noheadings", "--output", "DIO", &device.0]);
        assert_eq!(direct.trim(), "1", "direct I/O was refused");
        ok("mke2fs", ["-q", "-F", "-t", "ext4", &device.0]);
        let folder = array.path("mounted");
        std::fs::create_dir(&folder).expect("a folder");
        let word = folder.to_str().expect("text").to_owned();
        ok("mount", [&device.0, &word]);
        let files: Vec<Vec<u8>> = (0..8).map(|seed| random_bytes(seed, 3_000_000)).collect();
        for (number, bytes) in files.iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), bytes).expect("a copy");
            if number == 4 {
                served.lose(&array, 1);
            }
        }
        std::fs::remove_file(folder.join("0")).expect("a file");
        ok("fstrim", ["-v", &word]);
        ok("umount", [&word]);
        ok("e2fsck", ["-fn", &device.0]);
        ok("mount", [&device.0, &word]);
        for (number, bytes) in files.iter().enumerate().skip(1) {
            let copy = std::fs::read(folder.join(number.to_string())).expect("a copy");
            assert_same(&copy, bytes, "a copied file");
        }
        ok("umount", [&word]);
        drop(device);
        let stopped = served.events("file-in-use");
        assert!(stopped.is_empty(), "{stopped:?}");
        served.stop();
    }
}

#[test]
fn a_stop_does_not_wait_for_an_open_file() {
    for transport in transports() {
        let array = Array::create(RAID_5);
        let mut served = serve(&array, transport, &array.members);
        let file = open(&disk(&array));
        file.write_all_at(&[7; 4096], 0).expect("a write");
        served.signal(rustix::process::Signal::TERM);
        assert!(served.wait().success());
        served.wait_for("file-in-use");
        assert_eq!(served.wait_for("stopped")["in_order"], true);
        let error = file.read_at(&mut [0; 512], 0).expect_err("the server is gone");
        assert_eq!(error.raw_os_error(), Some(107), "not connected");
        let served = serve(&array, transport, &array.members);
        let mut bytes = [0; 4096];
        open(&disk(&array)).read_exact_at(&mut bytes, 0).expect("a read");
        assert_eq!(bytes, [7; 4096], "what was answered before the stop");
        served.stop();
    }
}

/// Bytes that each user writes in a round.
const ROUND_BYTES: usize = 4096;
/// Distance between the users' bytes: whole sectors, but no whole stripes.
const USER_BYTES: u64 = 1_000_448;

/// Writes rounds and flushes each round, until an error; returns the last flushed round.
fn write_rounds(file: &File, start: u64, first: u64) -> u64 {
    (first..)
        .find(|round| {
            let bytes = round.to_le_bytes().repeat(ROUND_BYTES / 8);
            let done = file.write_all_at(&bytes, start).and_then(|()| file.sync_data());
            done.is_err()
        })
        .expect("an end")
        - 1
}

#[test]
fn nothing_hangs_when_it_is_killed_at_any_moment() {
    let mut random = fastrand::Rng::with_seed(3);
    for transport in transports() {
        let array = Array::create(RAID_5);
        for turn in 1..=20 {
            let mut served = serve(&array, transport, &array.members);
            let left_behind = served.events("stale-file").len();
            assert_eq!(left_behind, usize::from(turn > 1), "turn {turn}");
            let path = disk(&array);
            let files: Vec<File> = (0..4).map(|_| open(&path)).collect();
            let flushed: Vec<u64> = std::thread::scope(|scope| {
                let rounds: Vec<_> = (0_u64..)
                    .zip(&files)
                    .map(|(user, file)| {
                        scope.spawn(move || write_rounds(file, user * USER_BYTES, turn << 32))
                    })
                    .collect();
                std::thread::sleep(Duration::from_micros(random.u64(0..80_000)));
                served.signal(rustix::process::Signal::KILL);
                served.wait();
                let begun = Instant::now();
                let flushed = rounds.into_iter().map(|round| round.join().expect("no panic"));
                let flushed = flushed.collect();
                assert!(begun.elapsed() < PATIENCE, "turn {turn}: it hung");
                flushed
            });
            // Flushed rounds must be on the array; the next round may be on it in part or whole.
            let served = array.serve_with(&[], &array.members);
            let mut client = Client::connect(&served.socket, PATIENCE);
            for (user, flushed) in (0_u64..).zip(flushed) {
                let bytes = client.read(user * USER_BYTES, ROUND_BYTES).expect("an answer");
                for round in bytes.chunks_exact(8) {
                    let round = u64::from_le_bytes(round.try_into().expect("eight"));
                    let is_earlier = flushed < turn << 32 && round >> 32 < turn;
                    let is_well = (flushed..=flushed + 1).contains(&round) || is_earlier;
                    assert!(is_well, "turn {turn}: {round:x}, and {flushed:x} was flushed");
                }
            }
            drop(client);
            served.stop();
        }
        let served = serve(&array, transport, &array.members);
        served.stop();
        // The second server found the file already there, empty, and so does not remove it.
        assert_eq!(disk(&array).metadata().expect("stat").len(), 0);
    }
}

#[test]
fn places_that_are_unfit_are_refused() {
    if transports().is_empty() {
        return;
    }
    let array = Array::create(RAID_5);
    let fuse = |path: &Path| {
        array.serve_refused(&["--fuse", path.to_str().expect("text")], &array.members)
    };
    let full = array.path("full");
    std::fs::write(&full, b"kept").expect("a file");
    fuse(&full).is("B091", 12);
    assert_eq!(std::fs::read(&full).expect("it"), b"kept");
    let folder = array.path("folder");
    std::fs::create_dir(&folder).expect("a folder");
    fuse(&folder).is("B091", 12);
    fuse(Path::new("/dev/null")).is("B091", 12);
    let served = serve(&array, FuseTransport::Device, &array.members);
    let other = Array::create(RAID_6);
    let path = disk(&array);
    let options = ["--fuse", path.to_str().expect("text")];
    other.serve_refused(&options, &other.members).is("B092", 11);
    served.stop();
    wait_until("the file to go", PATIENCE, || !path.exists());
}
