//! A volume on files: by rings and by threads, through the page cache and with direct I/O.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::client::{Random, read, write};
use crate::files::Files;
use braid_geometry::Level;
use braid_ring::Settings;
use braid_runtime::{
    Cache, CacheMode, ClientRequest, Completion, Direct, Io, Notice, Options, Outcome, Payload,
    Volume, Workers,
};

/// Every kind of I/O and of acknowledging. Direct I/O only if the temporary folder supports it.
fn ways() -> Vec<Options> {
    let mut ways = Vec::new();
    for io in [Io::Ring, Io::Threads] {
        for direct in [Direct::Off, Direct::On] {
            for mode in [CacheMode::WriteThrough, CacheMode::WriteBack] {
                let cache = Cache { mode, ..Cache::default() };
                let options = Options { io, direct, cache, ..Options::default() };
                if direct == Direct::Off || can_go_direct() {
                    ways.push(Options { clean_delay_ms: 20, ..options });
                }
            }
        }
    }
    ways
}

fn can_go_direct() -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("probe");
    braid_member::create_file(&path, 1 << 20).expect("a file").go_direct().is_ok()
}

/// A folder in memory; `None` skips the test.
fn memory_folder() -> Option<&'static Path> {
    let folder = Path::new("/dev/shm");
    let is_memory =
        |folder| Files::new_in(folder, Level::Raid1, 2, 0, crate::kit::MEMBER_BYTES).is_memory();
    if folder.is_dir() && is_memory(folder) {
        return Some(folder);
    }
    braid_test_needs::skip(braid_test_needs::Need::Other, "no tmpfs at /dev/shm");
    None
}

/// Threads write, zero, trim and read back their own areas. Returns the expected content.
fn churn(volume: &Volume, seed: u64, midway: impl Fn() + Sync) -> Vec<u8> {
    let (threads, size) = (4, usize::try_from(volume.size_bytes()).expect("small"));
    let area = size / threads;
    let areas: Mutex<Vec<(usize, Vec<u8>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (areas, midway) = (&areas, &midway);
            scope.spawn(move || {
                let start = (thread * area) as u64;
                let mut model = read(volume, start, area);
                let mut random = Random(seed * 31 + thread as u64 + 1);
                for round in 0..60 {
                    if round == 30 && thread == 0 {
                        midway();
                    }
                    step(volume, start, &mut model, &mut random);
                }
                areas.lock().expect("no panic").push((thread, model));
            });
        }
    });
    let mut areas = areas.into_inner().expect("no panic");
    areas.sort_unstable_by_key(|(thread, _)| *thread);
    let mut all: Vec<u8> = areas.into_iter().flat_map(|(_, model)| model).collect();
    all.extend(read(volume, all.len() as u64, size - all.len()));
    all
}

fn step(volume: &Volume, start: u64, model: &mut [u8], random: &mut Random) {
    let unit = [1, 512, 4096][usize::try_from(random.below(3)).expect("small")];
    let units = model.len() as u64 / unit;
    let count = 1 + random.below(units.min(150_000 / unit + 3));
    let at = random.below(units - count + 1) * unit;
    let (offset, length) = (start + at, count * unit);
    let range = usize::try_from(at).expect("small")..usize::try_from(at + length).expect("small");
    match random.below(8) {
        0..3 => assert_eq!(read(volume, offset, range.len()), model[range]),
        3 => {
            let (may_punch, fast, durable) = (random.below(2) == 0, false, random.below(2) == 0);
            let zero = ClientRequest::WriteZeroes { offset, length, may_punch, fast, durable };
            volume.call(zero).result.expect("zeroed");
            model[range].fill(0);
        }
        4 => volume.call(ClientRequest::Flush).result.expect("flushed"),
        _ => {
            let byte = u8::try_from(random.below(256)).expect("a byte");
            let bytes: Vec<u8> = range.clone().map(|at| at.to_le_bytes()[0] ^ byte).collect();
            write(volume, offset, &bytes, random.below(8) == 0);
            model[range].copy_from_slice(&bytes);
        }
    }
}

fn is_read_after_a_clean_restart(array: &Files, level: Level) {
    for (seed, options) in (1..).zip(ways()) {
        let volume = array.open(&options, |_| {});
        let model = churn(&volume, seed, || {});
        assert!(volume.stop().clean, "{level:?} {options:?}");
        drop(volume);
        let volume = array.open(&ways()[0], |_| {});
        assert!(read(&volume, 0, model.len()) == model, "{level:?} {options:?}");
    }
}

#[test]
fn what_was_written_is_read_after_a_clean_restart_whichever_way() {
    for (level, slots) in [(Level::Raid5, 4), (Level::Raid1, 2), (Level::Raid0, 3)] {
        let array = Files::new(
            level,
            slots,
            if level == Level::Raid1 { 0 } else { 128 },
            crate::kit::MEMBER_BYTES,
        );
        is_read_after_a_clean_restart(&array, level);
    }
}

/// A ring would pass requests on a tmpfs to a kernel thread, which takes four times as long as a
/// copy.
#[test]
fn what_is_asked_of_files_in_memory_goes_to_no_ring() {
    let Some(folder) = memory_folder() else { return };
    let workers = Arc::new(Workers::start(&Settings::default()).expect("io_uring"));
    let array = Files::new_in(folder, Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options =
        Options { io: Io::Ring, workers: Some(Arc::clone(&workers)), ..Options::default() };
    let before = workers.counters();
    let volume = array.open(&options, |_| {});
    for place in 0..100_u64 {
        let offset = place * 100_000;
        write(&volume, offset, &[place.to_le_bytes()[0]; 9000], place % 10 == 0);
        assert_eq!(read(&volume, offset, 9000), [place.to_le_bytes()[0]; 9000]);
    }
    volume.call(ClientRequest::Flush).result.expect("flushed");
    assert!(volume.stop().clean);
    let entries = workers.counters().entries - before.entries;
    assert!(entries < 10, "{entries} for 100 writes, superblocks and flushes");
}

/// The submitting thread carries out reads, writes, vectors, zeroes, flushes and superblocks
/// itself.
#[test]
fn what_was_written_to_files_in_memory_is_read_after_a_clean_restart() {
    let Some(folder) = memory_folder() else { return };
    for (level, slots, chunk_sectors) in [(Level::Raid5, 4, 128), (Level::Raid1, 2, 0)] {
        let array = Files::new_in(folder, level, slots, chunk_sectors, crate::kit::MEMBER_BYTES);
        is_read_after_a_clean_restart(&array, level);
    }
}

#[test]
fn a_file_cut_short_under_load_costs_nobody_anything_whichever_way() {
    let places = std::iter::once(std::env::temp_dir());
    let places: Vec<PathBuf> = places.chain(memory_folder().map(PathBuf::from)).collect();
    for (folder, options) in
        places.iter().flat_map(|folder| ways().into_iter().map(move |way| (folder, way)))
    {
        let array = Files::new_in(folder, Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
        let (sender, notices) = mpsc::channel();
        let volume = array.open(&options, move |notice| {
            let _ = sender.send(notice);
        });
        let cut = || {
            let file = std::fs::OpenOptions::new().write(true).open(array.path(2)).expect("it");
            file.set_len(3 << 20).expect("cut short");
        };
        let model = churn(&volume, 9, cut);
        assert!(read(&volume, 0, model.len()) == model, "{options:?}");
        let lost = |notice: &Notice| matches!(notice, Notice::MemberOut { .. });
        let mut heard = std::iter::from_fn(|| notices.recv_timeout(Duration::from_secs(5)).ok());
        assert!(heard.any(|notice| lost(&notice)), "{options:?}");
        volume.stop();
        // Operations in flight when the file was cut may have extended it a little.
        let length = std::fs::metadata(array.path(2)).expect("it").len();
        assert!(length < crate::kit::MEMBER_BYTES, "what was cut off stays off: {options:?}");
    }
}

/// A write in flight extends a file that was cut. The resulting hole is neither read nor used for
/// parity.
#[test]
fn a_hole_where_a_file_was_cut_and_grew_again_is_not_believed_whichever_way() {
    for options in ways() {
        let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
        let volume = array.open(&options, |_| {});
        let size = usize::try_from(volume.size_bytes()).expect("small");
        let mut model = vec![7; size];
        write(&volume, 0, &model, true);
        let file = std::fs::OpenOptions::new().write(true).open(array.path(2)).expect("it");
        file.set_len(0).expect("cut short");
        file.set_len(crate::kit::MEMBER_BYTES - 4096).expect("as the last write but one would");
        // A partial write must read the old content first.
        write(&volume, 4096, &[9; 4096], true);
        model[4096..8192].fill(9);
        assert!(read(&volume, 0, size) == model, "{options:?}");
        volume.stop();
    }
}

#[test]
fn sixty_four_callers_at_once() {
    let workers =
        Workers::start(&Settings { workers: 2, ..Settings::default() }).expect("io_uring");
    let workers = Arc::new(workers);
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options =
        Options { io: Io::Ring, workers: Some(Arc::clone(&workers)), ..Options::default() };
    let volume = array.open(&options, |_| {});
    std::thread::scope(|scope| {
        for caller in 0..64_u8 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..20_u8 {
                    let offset = u64::from(caller) * 65_536 + u64::from(round) * 512;
                    write(volume, offset, &[caller ^ round; 512], false);
                    assert_eq!(read(volume, offset, 512), [caller ^ round; 512]);
                }
            });
        }
    });
    assert!(volume.stop().clean);
    drop(volume);
    let (sender, receiver) = mpsc::channel();
    let call = move |_: &braid_ring::Worker| {
        let _ = sender.send(());
    };
    workers.post(1, Box::new(call)).expect("shared workers outlive the volume");
    receiver.recv_timeout(Duration::from_secs(9)).expect("they go on working");
}

/// Regression: a worker that waited for its turn to change the array waited for its own work.
#[test]
fn unaligned_writes_from_the_only_worker_do_not_wait_for_themselves() {
    let workers =
        Workers::start(&Settings { workers: 1, ..Settings::default() }).expect("io_uring");
    let workers = Arc::new(workers);
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options =
        Options { io: Io::Ring, workers: Some(Arc::clone(&workers)), ..Options::default() };
    let volume = Arc::new(array.open(&options, |_| {}));
    let (sender, answers) = mpsc::channel();
    let submitter = Arc::clone(&volume);
    let submit = move |_: &braid_ring::Worker| {
        for number in 0..200_u64 {
            let length = if number % 3 == 0 { 512 } else { 100 };
            let payload = Payload::from(vec![number.to_le_bytes()[0]; length]);
            let offset = number * 512;
            let write = ClientRequest::Write { offset, payload, durable: false };
            let sender = sender.clone();
            let done = move |outcome: Outcome| {
                let _ = sender.send(outcome.result);
            };
            submitter.submit(write, Completion::from_fn(done));
        }
    };
    workers.post(0, Box::new(submit)).expect("running");
    for _ in 0..200 {
        let answer = answers.recv_timeout(Duration::from_secs(20)).expect("an answer");
        answer.expect("written");
    }
    assert_eq!(read(&volume, 199 * 512, 100), [199; 100]);
}

/// After a flush, writes that were acknowledged early are on the members, and their payloads are
/// released. A limit on dirty data far below the written data stops no write.
#[test]
fn early_answers_end_on_the_members() {
    for options in ways().into_iter().filter(|options| options.cache.mode == CacheMode::WriteBack) {
        let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
        let volume = array.open(&options, |_| {});
        volume.tune(Cache { dirty_bytes_max: 1 << 19, age_max_ms: 20, ..volume.cache() });
        let mut kept = 0;
        for place in 0..3_000_u64 {
            let payload = Payload::from(vec![place.to_le_bytes()[0]; 4096]);
            let offset = place * 4096;
            let write = ClientRequest::Write { offset, payload, durable: false };
            let outcome = volume.call(write);
            outcome.result.expect("written");
            kept += u32::from(outcome.payload.is_none());
        }
        assert!(kept > 0, "some are answered early: {options:?}");
        volume.call(ClientRequest::Flush).result.expect("flushed");
        assert_eq!(volume.dirty_bytes(), 0);
        for place in (0..3_000_u64).step_by(7) {
            assert_eq!(read(&volume, place * 4096, 4096), [place.to_le_bytes()[0]; 4096]);
        }
        assert!(volume.stop().clean);
    }
}

/// A partial stripe waits to fill up, and is written at its maximum age.
#[test]
fn what_is_dirty_does_not_stay_so() {
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options = Options::default();
    assert_eq!(options.cache.mode, CacheMode::WriteBack);
    let volume = array.open(&options, |_| {});
    volume.tune(Cache { age_max_ms: 30, ..volume.cache() });
    let before = volume.counters().member_writes;
    write(&volume, 0, &[7; 4096], false);
    wait_for_writes(&volume, before);
}

#[test]
fn stopped_workers_leave_threads_to_finish() {
    let workers = Arc::new(Workers::start(&Settings::default()).expect("io_uring"));
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options =
        Options { io: Io::Ring, workers: Some(Arc::clone(&workers)), ..Options::default() };
    let volume = array.open(&options, |_| {});
    write(&volume, 0, &[1; 8192], false);
    workers.stop();
    write(&volume, 4096, &[2; 8192], true);
    assert_eq!(read(&volume, 0, 12_288), [[1; 4096], [2; 4096], [2; 4096]].concat());
    assert!(volume.stop().clean);
}

/// Waits until the members have received more writes than `before`.
fn wait_for_writes(volume: &Volume, before: u64) {
    for _ in 0..200 {
        if volume.counters().member_writes >= before + 2 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it was not written in ten seconds");
}

/// No client submits requests any more, and dirty data must still be written at its maximum age.
#[test]
fn a_moment_that_stopped_workers_forgot_comes_all_the_same() {
    let workers = Arc::new(Workers::start(&Settings::default()).expect("io_uring"));
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options =
        Options { io: Io::Ring, workers: Some(Arc::clone(&workers)), ..Options::default() };
    let volume = array.open(&options, |_| {});
    volume.tune(Cache { age_max_ms: 300, ..volume.cache() });
    let before = volume.counters().member_writes;
    write(&volume, 0, &[7; 4096], false);
    workers.stop();
    wait_for_writes(&volume, before);
    assert_eq!(read(&volume, 0, 4096), [7; 4096]);
    assert!(volume.stop().clean);
}

/// The rings know the members by number, and outlive the volume. Still the next program need not
/// wait for the members.
#[test]
fn who_stops_leaves_the_members_to_others_at_once() {
    let workers = Arc::new(Workers::start(&Settings::default()).expect("io_uring"));
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let directs = [Direct::Off, Direct::On];
    for direct in directs.into_iter().filter(|direct| *direct == Direct::Off || can_go_direct()) {
        let workers = Some(Arc::clone(&workers));
        let options = Options { io: Io::Ring, direct, workers, ..Options::default() };
        let volume = array.open(&options, |_| {});
        write(&volume, 0, &[7; 100_000], true);
        let file = std::fs::File::open(array.path(1)).expect("it");
        assert!(file.try_lock().is_err(), "it is in use");
        assert!(volume.stop().clean);
        drop(volume);
        assert!(file.try_lock().is_ok(), "{direct:?}");
    }
    // Kernels before 5.19 have no registered file numbers.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let is_new = (numbers.next(), numbers.next()) >= (Some(5), Some(19));
    assert_eq!(workers.counters().numbered > 0, is_new, "{release}");
}

/// Whether, in one of the next intervals, no worker has a turn.
fn rests(workers: &Workers) -> bool {
    (0..20).any(|_| {
        let before = workers.counters();
        std::thread::sleep(Duration::from_millis(1500));
        let after = workers.counters();
        (after.turns, after.sleeps) == (before.turns, before.sleeps)
    })
}

/// The array looks at its members while clients submit requests, and for a while longer. Then the
/// kernel reports changes of the members' files, and no worker wakes.
#[test]
fn an_idle_array_wakes_nobody_and_hears_of_a_file_that_is_deleted() {
    let settings = Settings { workers: 2, ..Settings::default() };
    let workers = Arc::new(Workers::start(&settings).expect("io_uring"));
    let array = Files::new(Level::Raid5, 4, 128, crate::kit::MEMBER_BYTES);
    let options = Options {
        io: Io::Ring,
        clean_delay_ms: 20,
        workers: Some(Arc::clone(&workers)),
        ..Options::default()
    };
    let volume = array.open(&options, |_| {});
    write(&volume, 0, &[7; 100_000], true);
    assert!(rests(&workers), "nothing is asked");
    // One request makes the checks of members start again, as often as before.
    let before = workers.counters();
    assert_eq!(read(&volume, 0, 4096), [7; 4096]);
    std::thread::sleep(Duration::from_millis(1700));
    let looks = workers.counters().sleeps - before.sleeps;
    assert!((2..=12).contains(&looks), "{looks} looks in 1.7 s");
    assert!(rests(&workers), "nothing is asked any more");
    std::fs::remove_file(array.path(1)).expect("it was there");
    let start = Instant::now();
    while volume.missing_count() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the loss is heard of");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(rests(&workers), "the others need nothing either");
    assert_eq!(read(&volume, 0, 100_000), [7; 100_000]);
    assert!(volume.stop().clean);
}
