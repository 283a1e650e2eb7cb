//! A member stalls for seconds under load, on real threads: readers do not notice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_assembly::{ProbedMember, assemble};
use braid_geometry::Level;
use braid_member::layer::{Delays, Slow};
use braid_member::{Member, MemoryMember};
use braid_runtime::{ClientRequest, Io, Notice, OpenMember, Options, Volume};

use crate::client::{Random, read, write};
use crate::kit::{MEMBER_BYTES, probed, superblocks};

/// How long the member stalls.
const STALL: Duration = Duration::from_secs(4);

/// The maximum time of a read while the member stalls.
const LIMIT: Duration = Duration::from_secs(1);

const BLOCK: usize = 4096;

fn open(level: Level, slots: u16, notices: &Arc<Mutex<Vec<Notice>>>) -> (Volume, Vec<Delays>) {
    let mut delays = Vec::new();
    let devices = superblocks(level, slots, 64, MEMBER_BYTES).into_iter().map(|superblock| {
        let device = MemoryMember::new(MEMBER_BYTES);
        let bytes = superblock.to_bytes();
        device.write_at(&bytes, superblock.offset_bytes(), true).expect("memory takes writes");
        let device = Slow::new(device);
        delays.push(device.delays());
        Box::new(device) as Box<dyn Member>
    });
    let devices: Vec<Box<dyn Member>> = devices.collect();
    let probed: Vec<ProbedMember> = (0..).zip(&devices).map(|(i, d)| probed(i, d)).collect();
    let array = assemble(&probed, &braid_assembly::Options::default()).array.expect("it runs");
    let members = devices.into_iter().zip(&probed).map(|(device, probed)| {
        let superblock = probed.probe.newest().expect("a member").clone();
        Some(OpenMember { device, superblock })
    });
    let heard = Arc::clone(notices);
    let options = Options { io: Io::Threads, ..Options::default() };
    let hear = move |notice| heard.lock().expect("hearing does not panic").push(notice);
    let volume = Volume::open(&array, members.collect(), &options, hear).expect("it opens");
    (volume, delays)
}

/// The content of the block at `index` after it was written.
fn block(index: u64) -> Vec<u8> {
    let mut random = Random(index + 1);
    (0..BLOCK).map(|_| u8::try_from(random.below(256)).expect("below 256")).collect()
}

/// Until `ends` is set, reads blocks that are no longer written; returns the time of each read.
fn read_on(volume: &Volume, seed: u64, blocks: u64, ends: &AtomicBool) -> Vec<Duration> {
    let mut random = Random(seed);
    let mut times = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let index = random.below(blocks);
        let began = Instant::now();
        let found = read(volume, index * BLOCK as u64, BLOCK);
        times.push(began.elapsed());
        assert!(found == block(index), "block {index} after {:?}", began.elapsed());
    }
    times
}

fn story(level: Level, slots: u16) {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let (volume, delays) = open(level, slots, &notices);
    let size = volume.size_bytes() / BLOCK as u64;
    // The first half of the array is read; the second half is written while the member stalls.
    let blocks = size / 2;
    (0..blocks).for_each(|index| write(&volume, index * BLOCK as u64, &block(index), false));
    volume.call(ClientRequest::Flush).result.expect("a healthy flush");
    let ends = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let (volume, ends) = (&volume, &ends);
        let readers: Vec<_> =
            (1..=6).map(|seed| scope.spawn(move || read_on(volume, seed, blocks, ends))).collect();
        for seed in 7..=8 {
            scope.spawn(move || {
                let mut random = Random(seed);
                while !ends.load(Ordering::Relaxed) {
                    let index = blocks + random.below(size - blocks);
                    write(volume, index * BLOCK as u64, &block(index), false);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        delays[1].set_read(STALL);
        delays[1].set_write(STALL);
        std::thread::sleep(Duration::from_millis(100));
        // Only requests that have already begun wait for so long; later the member is fast again.
        delays[1].set_read(Duration::ZERO);
        delays[1].set_write(Duration::ZERO);
        std::thread::sleep(STALL + Duration::from_millis(500));
        let patience = Instant::now();
        while !volume.sitting_out().is_empty() {
            assert!(patience.elapsed() < Duration::from_secs(20), "it is read again");
            std::thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, Ordering::Relaxed);
        let times: Vec<Duration> =
            readers.into_iter().flat_map(|reader| reader.join().expect("all went well")).collect();
        times
    });
    let (longest, count) = (times.iter().max().expect("some"), times.len());
    let late = times.iter().filter(|time| **time > LIMIT).count();
    assert!(late * 100 < count, "{level}: {late} of {count} reads took long, up to {longest:?}");
    // A busy machine may be slow, but no read may have waited for the stalled member.
    assert!(*longest < STALL - LIMIT, "{level}: a read took {longest:?}");
    let counters = volume.counters();
    assert!(counters.reads_around > 0 && counters.abandoned_reads > 0, "{counters:?}");
    assert!(volume.sat_out_ms() > 2000);
    let hear = || notices.lock().expect("hearing does not panic").clone();
    let is_out = |notice: &Notice| matches!(notice, Notice::SitsOut { slot, .. } if slot.0 == 1);
    let is_back = |notice: &Notice| matches!(notice, Notice::Back { slot, .. } if slot.0 == 1);
    // The array announces the notice a moment after the change.
    let patience = Instant::now();
    while !hear().iter().any(is_back) && patience.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let heard = hear();
    assert!(heard.iter().any(is_out) && heard.iter().any(is_back), "{heard:?}");
    let around = volume.counters().reads_around;
    (0..blocks).for_each(|index| {
        assert!(read(&volume, index * BLOCK as u64, BLOCK) == block(index));
    });
    assert_eq!(volume.counters().reads_around, around, "it is read as ever");
    assert!(volume.stop().clean);
}

#[test]
fn readers_of_a_raid6_do_not_notice_a_stalled_member() {
    story(Level::Raid6, 6);
}

#[test]
fn readers_of_a_raid1_do_not_notice_a_stalled_member() {
    story(Level::Raid1, 2);
}
