//! The threads of an array on files, with rings and without. Counts the threads of this process.

#[allow(dead_code)] // this test draws no random numbers
#[path = "kit/client.rs"]
mod client;
#[allow(dead_code)] // this test names the folder of each array
#[path = "kit/files.rs"]
mod files;
#[allow(dead_code)] // other tests use arrays in memory
mod kit;

use std::path::Path;
use std::time::Duration;

use braid_geometry::Level;
use braid_member::Member;
use braid_runtime::{Cache, CacheMode, ClientRequest, Io, Options, Volume};
use client::{read, write};
use files::Files;

/// Number of threads of this process with this name.
fn count(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim() == name).count()
}

/// Waits for this number of member threads, and of alarm threads. A thread names itself when it
/// first runs, and is visible for a moment after its end.
fn wait_for(expected: (usize, usize)) {
    let now = || (count("braid-member"), count("braid-alarm"));
    for _ in 0..1000 {
        if now() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(now(), expected);
}

/// Submits every kind of request.
fn use_it(volume: &Volume) {
    let size = usize::try_from(volume.size_bytes()).expect("small");
    let content: Vec<u8> = (0..size).map(|at| (at / 512).to_le_bytes()[0] | 1).collect();
    write(volume, 0, &content, false);
    let mut expected = content;
    for (at, (may_punch, durable)) in
        [(true, false), (true, true), (false, false), (false, true)].into_iter().enumerate()
    {
        let offset = at as u64 * (1 << 20) + 512;
        let length = 700 << 10;
        let zero = ClientRequest::WriteZeroes { offset, length, may_punch, fast: false, durable };
        volume.call(zero).result.expect("zeroed");
        let start = usize::try_from(offset).expect("small");
        expected[start..start + (700 << 10)].fill(0);
    }
    let (offset, length) = (5 << 20, 1 << 20);
    volume.call(ClientRequest::Trim { offset, length, durable: true }).result.expect("trimmed");
    volume.call(ClientRequest::Flush).result.expect("flushed");
    let (front, back) = (read(volume, 0, 5 << 20), read(volume, 6 << 20, size - (6 << 20)));
    assert!(front == expected[..5 << 20] && back == expected[6 << 20..]);
}

/// The folders cover every way to make zeroes: a tmpfs punches holes, and cannot zero ranges.
#[test]
fn an_array_on_rings_has_no_threads_of_its_own() {
    let folders = [std::env::temp_dir(), Path::new("/dev/shm").to_owned()];
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        for (level, slots, chunk) in
            [(Level::Raid5, 3, 128), (Level::Raid1, 2, 0), (Level::Raid0, 2, 128)]
        {
            for mode in [CacheMode::WriteThrough, CacheMode::WriteBack] {
                let array = Files::new_in(folder, level, slots, chunk, kit::MEMBER_BYTES);
                let cache = Cache { mode, ..Cache::default() };
                let options =
                    Options { io: Io::Ring, cache, clean_delay_ms: 20, ..Options::default() };
                let volume = array.open(&options, |_| {});
                use_it(&volume);
                let own = count("braid-member") + count("braid-alarm");
                assert_eq!(own, 0, "{level:?} in {}", folder.display());
                assert!(volume.stop().clean);
                drop(volume);
                let options = Options { io: Io::Threads, threads_per_member: 2, ..options };
                let volume = array.open(&options, |_| {});
                use_it(&volume);
                // The client's thread serves members in memory.
                let threads = if array.is_memory() { 0 } else { usize::from(slots) * 2 };
                wait_for((threads, 1));
                assert!(volume.stop().clean);
                wait_for((0, 0));
            }
        }
    }
    refused_durable_writes_are_the_threads();
}

/// Regression: a refused `RWF_DSYNC` of a superblock write lost the member.
fn refused_durable_writes_are_the_threads() {
    let array = Files::new(Level::Raid5, 3, 128, kit::MEMBER_BYTES);
    let options = Options { io: Io::Ring, clean_delay_ms: 20, ..Options::default() };
    let refuse = |member: &dyn Member| {
        let refused = std::io::Error::from_raw_os_error(95); // EOPNOTSUPP
        assert!(member.raw().expect("a file").is_durable_flag_refused(&refused));
    };
    let volume = array.open_after(&options, refuse, |notice| panic!("{notice:?}"));
    write(&volume, 0, &[7; 4096], true);
    wait_for((3, 0));
    assert!(read(&volume, 0, 4096) == [7; 4096]);
    assert!(volume.stop().clean);
    drop(volume);
    wait_for((0, 0));
    let volume = array.open(&options, |_| {});
    assert!(read(&volume, 0, 4096) == [7; 4096]);
}
