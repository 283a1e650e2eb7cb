//! Elevators and the multiplexer before a volume's members: merging, holding, switching, a loss.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::client::{Random, read, write};
use crate::files::Files;
use crate::kit::{MEMBER_BYTES, probed, superblocks};
use braid_assembly::{ProbedMember, assemble};
use braid_geometry::Level;
use braid_member::layer::{Fault, Faults, Faulty, Operation};
use braid_member::{Identity, Member, MemberError, MemoryMember};
use braid_runtime::{
    Cache, CacheMode, ClientRequest, Completion, Elevator, ElevatorTuning, Io, Multiplex,
    MultiplexerSettings, OpenMember, Options, Outcome, Payload, Scheduling, Volume,
};

/// A slow member that counts its requests in flight.
struct CountingMember {
    device: Faulty<Arc<MemoryMember>>,
    counters: Arc<MemberCounters>,
}

#[derive(Default)]
struct MemberCounters {
    now: AtomicUsize,
    most: AtomicUsize,
    /// Number of written vectors with several parts.
    vectors: AtomicUsize,
    is_slow: AtomicBool,
    is_stopped: Mutex<()>,
}

impl CountingMember {
    fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        let now = self.counters.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.counters.most.fetch_max(now, Ordering::SeqCst);
        if self.counters.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(self.counters.is_stopped.lock().expect("unpoisoned"));
        let result = call();
        self.counters.now.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Member for CountingMember {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }
    fn identity(&self) -> &Identity {
        self.device.identity()
    }
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.during(|| self.device.read_at(buffer, offset_bytes))
    }
    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        self.during(|| self.device.write_at(buffer, offset_bytes, durable))
    }
    fn write_vectored_at(
        &self,
        buffers: &mut [IoSlice<'_>],
        offset_bytes: u64,
        durable: bool,
    ) -> Result<(), MemberError> {
        self.counters.vectors.fetch_add(usize::from(buffers.len() > 1), Ordering::SeqCst);
        self.during(|| self.device.write_vectored_at(buffers, offset_bytes, durable))
    }
    fn flush(&self) -> Result<(), MemberError> {
        self.device.flush()
    }
    fn zero(&self, offset: u64, length: u64, may_punch: bool) -> Result<(), MemberError> {
        self.during(|| self.device.zero(offset, length, may_punch))
    }
    fn can_zero_fast(&self) -> bool {
        false
    }
}

/// Opens a volume on counting members, with I/O by threads. Returns the members' counts and their
/// faults as well.
fn busy(
    level: Level,
    slots: u16,
    scheduling: Scheduling,
) -> (Volume, Arc<MemberCounters>, Vec<Faults>) {
    busy_with(level, slots, (scheduling, CacheMode::WriteThrough))
}

fn busy_with(
    level: Level,
    slots: u16,
    (scheduling, mode): (Scheduling, CacheMode),
) -> (Volume, Arc<MemberCounters>, Vec<Faults>) {
    let counters = Arc::new(MemberCounters::default());
    let (mut devices, mut faults) = (Vec::new(), Vec::new());
    for superblock in superblocks(level, slots, 128, MEMBER_BYTES) {
        let memory = Arc::new(MemoryMember::new(MEMBER_BYTES));
        let bytes = superblock.to_bytes();
        memory.write_at(&bytes, superblock.offset_bytes(), true).expect("memory takes writes");
        let device = Faulty::new(memory);
        faults.push(device.faults());
        devices.push(CountingMember { device, counters: Arc::clone(&counters) });
    }
    let probed: Vec<ProbedMember> = (0..).zip(&devices).map(|(i, d)| probed(i, d)).collect();
    let array = assemble(&probed, &braid_assembly::Options::default()).array.expect("an array");
    let members = devices.into_iter().zip(&probed).map(|(device, probed)| {
        let superblock = probed.probe.newest().expect("a member").clone();
        Some(OpenMember { device: Box::new(device), superblock })
    });
    let cache = Cache { mode, ..Cache::default() };
    let options = Options {
        scheduling,
        cache,
        clean_delay_ms: 20,
        threads_per_member: 8,
        ..Options::default()
    };
    let volume = Volume::open(&array, members.collect(), &options, |_| {}).expect("it opens");
    (volume, counters, faults)
}

fn deadline(total: u32) -> Scheduling {
    Scheduling {
        elevator: Elevator::Deadline,
        tuning: ElevatorTuning { depth: Some(total), ..ElevatorTuning::default() },
        ..Scheduling::default()
    }
}

/// Submits reads of `count` blocks of 4 KiB from `first` on, all at once.
fn read_all(volume: &Volume, first: u64, count: u64) -> mpsc::Receiver<(u64, Outcome)> {
    let (sender, outcomes) = mpsc::channel();
    for block in first..first + count {
        let (sender, payload) = (sender.clone(), Payload::from(vec![0xdb; 4096]));
        let operation = ClientRequest::Read { offset: block * 4096, payload };
        let done = move |outcome| sender.send((block, outcome)).expect("the test listens");
        volume.submit(operation, Completion::from_fn(done));
    }
    outcomes
}

fn fill(volume: &Volume, blocks: u8) {
    let bytes: Vec<u8> = (0..blocks).flat_map(|block| [block + 1; 4096]).collect();
    write(volume, 0, &bytes, false);
}

#[test]
fn a_bad_sector_in_a_vector_fails_only_its_own_request() {
    let (volume, counters, faults) = busy(Level::Raid0, 2, deadline(1));
    // Writes one chunk, which is on one member.
    fill(&volume, 16);
    let data = data_offset_bytes();
    faults.iter().for_each(|faults| {
        faults.insert(Fault::on(Operation::Read, data + 9 * 4096..data + 9 * 4096 + 512));
    });
    let stopped = counters.is_stopped.lock().expect("unpoisoned");
    let outcomes = read_all(&volume, 0, 16);
    // Wait until the first read is in the device, so that all others queue after it.
    std::thread::sleep(Duration::from_millis(50));
    drop(stopped);
    for (block, outcome) in outcomes {
        assert_eq!(outcome.result.is_err(), block == 9, "block {block}: {:?}", outcome.result);
        let wanted = u8::try_from(block).expect("few") + 1;
        assert!(block == 9 || *outcome.payload.expect("it comes back") == [wanted; 4096]);
    }
    let counters = volume.elevators()[0].counters;
    let elevator = counters.elevator;
    let merged = elevator.merged_back + elevator.merged_front + elevator.joined;
    assert!(merged > 0, "they were merged: {elevator:?}");
    assert_eq!((counters.out, counters.waiting_reads), (0, 0));
}

/// Small writes that a stripe has collected go to a member as one vector, although no elevator
/// merges them. A failed vector is retried part by part. A part that cannot be written fails its
/// member, and no acknowledged write is lost.
#[test]
fn writes_side_by_side_are_one_vector_without_an_elevator() {
    for is_faulty in [false, true] {
        let none = Scheduling { elevator: Elevator::None, ..Scheduling::default() };
        let (volume, counters, faults) = busy_with(Level::Raid5, 4, (none, CacheMode::WriteBack));
        if is_faulty {
            let bad = data_offset_bytes() + 9 * 4096;
            faults[0].insert(Fault::on(Operation::Write, bad..bad + 512));
        }
        let blocks: Vec<Vec<u8>> = (1..=48).map(|block| vec![block; 4096]).collect();
        for (block, bytes) in (0..).zip(&blocks) {
            write(&volume, block * 4096, bytes, false);
        }
        volume.call(ClientRequest::Flush).result.expect("one member may go");
        assert!(
            counters.vectors.load(Ordering::SeqCst) > 0,
            "48 blocks fill a row of three chunks"
        );
        assert_eq!(volume.missing_count(), usize::from(is_faulty));
        assert_eq!(read(&volume, 0, 48 * 4096), blocks.concat(), "{is_faulty}");
        assert!(volume.stop().clean);
    }
}

fn data_offset_bytes() -> u64 {
    superblocks(Level::Raid0, 2, 128, MEMBER_BYTES)[0].device.data_offset_sectors * 512
}

#[test]
fn a_member_never_has_more_than_its_tags() {
    let (volume, counters, _) = busy(Level::Raid0, 2, deadline(2));
    counters.is_slow.store(true, Ordering::SeqCst);
    // The writes are too far apart to be merged, and in every other chunk, so that one member has
    // them all.
    let (sender, outcomes) = mpsc::channel();
    for block in 0..40_u64 {
        let (sender, payload) = (sender.clone(), Payload::from(vec![1; 4096]));
        let offset = block * 2 * 65536;
        let operation = ClientRequest::Write { offset, payload, durable: false };
        volume.submit(
            operation,
            Completion::from_fn(move |outcome| sender.send(outcome).expect("heard")),
        );
    }
    drop(sender);
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
    assert_eq!(counters.most.load(Ordering::SeqCst), 2, "two tags, and eight threads");
    assert!(volume.stop().clean);
}

#[test]
fn what_is_held_goes_when_its_slice_comes() {
    let turns = MultiplexerSettings { period_ns: 20_000_000, ..MultiplexerSettings::default() };
    let scheduling = Scheduling { multiplex: Multiplex::On, turns, ..deadline(4) };
    let (volume, counters, _) = busy(Level::Raid0, 2, scheduling);
    counters.is_slow.store(true, Ordering::SeqCst);
    assert!(volume.is_multiplexed());
    let over = Instant::now() + Duration::from_millis(400);
    let longest = Mutex::new(Duration::ZERO);
    std::thread::scope(|scope| {
        for client in 0..8_u64 {
            let (volume, longest) = (&volume, &longest);
            scope.spawn(move || {
                let mut random = Random(client + 1);
                while Instant::now() < over {
                    let (offset, began) = (random.below(1000) * 4096, Instant::now());
                    if client % 2 == 0 {
                        read(volume, offset, 4096);
                    } else {
                        write(volume, offset, &[7; 4096], false);
                    }
                    let mut longest = longest.lock().expect("unpoisoned");
                    *longest = longest.max(began.elapsed());
                }
            });
        }
    });
    let slices = volume.slices();
    assert!(slices.len() > 5, "{} periods", slices.len());
    assert!(
        slices.iter().any(|slice| slice.held_reads) && slices.iter().any(|slice| slice.held_writes)
    );
    assert!(slices.iter().any(|slice| slice.busy_reads_ns > 0 && slice.busy_writes_ns > 0));
    // Two periods are 40 ms; a busy machine may add a little.
    let longest = longest.into_inner().expect("unpoisoned");
    assert!(longest < Duration::from_secs(2), "a request waited for {longest:?}");
    assert!(volume.stop().clean, "nothing is left behind");
}

/// A member fails with queued entries: each request is answered.
#[test]
fn what_waits_for_a_member_that_is_lost_is_answered() {
    let (volume, counters, faults) = busy(Level::Raid5, 3, deadline(1));
    fill(&volume, 32);
    let stopped = counters.is_stopped.lock().expect("unpoisoned");
    let outcomes = read_all(&volume, 0, 32);
    std::thread::sleep(Duration::from_millis(30));
    faults[1].kill();
    drop(stopped);
    for (block, outcome) in outcomes {
        outcome.result.expect("two of three are left");
        let wanted = u8::try_from(block).expect("few") + 1;
        assert_eq!(*outcome.payload.expect("it comes back"), [wanted; 4096]);
    }
    assert_eq!(volume.missing_count(), 1);
    assert!(volume.stop().clean);
}

/// Clients write, force writes and read back while every setting changes.
fn switched_under_load(io: Io) {
    let files = Files::new(Level::Raid5, 4, 16, 16 << 20);
    let options = Options { io, clean_delay_ms: 20, ..Options::default() };
    let volume = files.open(&options, |_| {});
    assert!(volume.elevators().iter().all(|one| one.counters.elevator.inserted == 0));
    let (clients, over) = (4, AtomicBool::new(false));
    let area = usize::try_from(volume.size_bytes()).expect("small") / clients;
    std::thread::scope(|scope| {
        let work: Vec<_> = (0..clients)
            .map(|client| {
                let volume = &volume;
                scope.spawn(move || churn(volume, (client * area) as u64, area, client as u64 + 1))
            })
            .collect();
        let (volume, over) = (&volume, &over);
        let person = scope.spawn(move || {
            let mut random = Random(99);
            while !over.load(Ordering::SeqCst) {
                volume.schedule(any_scheduling(&mut random));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let models: Vec<Vec<u8>> =
            work.into_iter().map(|client| client.join().expect("it finds what it wrote")).collect();
        over.store(true, Ordering::SeqCst);
        person.join().expect("setting does not panic");
        assert!(read(volume, 0, area * clients) == models.concat(), "it is all there");
    });
    let elevators = volume.elevators();
    let inserted: u64 = elevators.iter().map(|one| one.counters.elevator.inserted).sum();
    assert!(inserted > 0 && elevators.iter().all(|one| one.counters.out == 0));
    assert!(volume.stop().clean);
    drop(volume);
    let again = files.open(&options, |_| {});
    assert_eq!(again.missing_count(), 0);
}

fn any_scheduling(random: &mut Random) -> Scheduling {
    let elevators = [Elevator::Deadline, Elevator::None, Elevator::Auto, Elevator::Deadline];
    let mut pick = |of: u64| usize::try_from(random.below(of)).expect("few");
    let (elevator, exception) = (elevators[pick(4)], elevators[pick(4)]);
    let (multiplex, total) = ([Multiplex::On, Multiplex::Off][pick(2)], [1, 2, 32][pick(3)]);
    let turns = MultiplexerSettings { period_ns: 5_000_000, ..MultiplexerSettings::default() };
    let exceptions = BTreeMap::from([(2, exception)]);
    Scheduling { elevator, exceptions, multiplex, turns, ..deadline(total) }
}

/// Writes one area and reads it back. Returns the area's expected content.
fn churn(volume: &Volume, start: u64, area: usize, seed: u64) -> Vec<u8> {
    let (mut model, mut random) = (vec![0; area], Random(seed));
    for round in 0..150_u64 {
        let from = usize::try_from(random.below(area as u64 / 512)).expect("small") * 512;
        let length = (512 << random.below(8)).min(area - from);
        match random.below(5) {
            0 => assert_eq!(read(volume, start + from as u64, length), model[from..from + length]),
            1 => volume.call(ClientRequest::Flush).result.expect("a healthy flush"),
            _ => {
                let bytes = vec![u8::try_from(round % 250).expect("below 250") + 1; length];
                write(volume, start + from as u64, &bytes, random.below(4) == 0);
                model[from..from + length].copy_from_slice(&bytes);
            }
        }
    }
    assert!(read(volume, start, area) == model);
    model
}

#[test]
fn nothing_is_lost_while_everything_is_set_anew_by_threads() {
    switched_under_load(Io::Threads);
}

#[test]
fn nothing_is_lost_while_everything_is_set_anew_on_rings() {
    switched_under_load(Io::Auto);
}

/// A vector reaches beyond the end of a file that was cut. The part before the end can still be
/// read: no write was in flight that could have extended the file.
#[test]
fn a_vector_on_a_ring_that_fails_is_tried_again_part_by_part() {
    for io in [Io::Auto, Io::Threads] {
        let files = Files::new(Level::Raid0, 2, 128, 8 << 20);
        let options = Options { io, scheduling: deadline(1), ..Options::default() };
        let volume = files.open(&options, |_| {});
        fill(&volume, 16);
        assert!(volume.stop().clean);
        drop(volume);
        let volume = files.open(&Options { read_only: true, ..options }, |_| {});
        let file = std::fs::OpenOptions::new().write(true).open(files.path(0)).expect("a file");
        file.set_len(data_offset_bytes() + 8 * 4096).expect("it is cut");
        // Reads that arrive while another is in flight are merged. Whether a read arrives then
        // depends on the threads.
        let over = Instant::now() + Duration::from_secs(20);
        let mut merged = 0;
        while merged == 0 && Instant::now() < over {
            for (block, outcome) in read_all(&volume, 0, 16) {
                let result = outcome.result;
                assert_eq!(result.is_err(), block >= 8, "block {block}: {result:?}");
            }
            let elevator = volume.elevators()[0].counters.elevator;
            merged = elevator.merged_back + elevator.merged_front + elevator.joined;
        }
        assert!(merged > 0, "no vector was made, {io:?}");
        assert_eq!(volume.elevators()[0].counters.out, 0, "tickets come back");
    }
}
