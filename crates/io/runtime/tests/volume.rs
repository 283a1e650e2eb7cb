//! The runtime end to end over memory members: many threads, failing members, unaligned requests,
//! and the state of the superblocks afterwards.

use std::sync::{Arc, Mutex};

use crate::client::{Random, read, write};
use crate::kit::Array;
use braid_assembly::Verdict;
use braid_geometry::Level;
use braid_member::Member;
use braid_member::layer::{Fault, Operation};
use braid_ondisk::{SuperblockUpdate, Timestamp};
use braid_runtime::{
    ClientRequest, Gate, MemberId, Notice, OpenError, Payload, RequestError, Volume,
};

const LEVELS: [(Level, u16, u32); 6] = [
    (Level::Raid0, 3, 128),
    (Level::Raid1, 2, 0),
    (Level::Raid10, 4, 128),
    (Level::Raid4, 4, 8),
    (Level::Raid5, 4, 128),
    (Level::Raid6, 6, 256),
];

/// Threads write and read back their own areas at odd offsets; `midway` runs in between.
fn churn(volume: &Volume, seed: u64, midway: impl Fn() + Sync) -> Vec<u8> {
    let threads = 4;
    let area = usize::try_from(volume.size_bytes() / threads).expect("small");
    let areas: Mutex<Vec<(u64, Vec<u8>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (areas, midway) = (&areas, &midway);
            scope.spawn(move || {
                let start = thread * area as u64;
                let mut model = read(volume, start, area);
                let mut random = Random(seed * 31 + thread + 1);
                for round in 0..60 {
                    if round == 30 && thread == 0 {
                        midway();
                    }
                    let length = 1 + random.below(200_000.min(area as u64));
                    let at = random.below(area as u64 - length + 1);
                    let range = usize::try_from(at).expect("small")
                        ..usize::try_from(at + length).expect("small");
                    if random.below(3) == 0 {
                        let found = read(volume, start + at, range.len());
                        assert_eq!(found, model[range], "thread {thread} round {round}");
                        continue;
                    }
                    let fill = u8::try_from(random.below(255)).expect("a byte");
                    for (index, byte) in model[range.clone()].iter_mut().enumerate() {
                        *byte = fill.wrapping_add(u8::try_from(index % 251).expect("a byte"));
                    }
                    write(volume, start + at, &model[range], random.below(8) == 0);
                }
                areas.lock().expect("unpoisoned").push((start, model));
            });
        }
    });
    let mut areas = areas.into_inner().expect("unpoisoned");
    areas.sort_by_key(|(start, _)| *start);
    areas.into_iter().flat_map(|(_, model)| model).collect()
}

#[test]
fn what_was_written_is_read_after_a_clean_restart() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::new(level, slots, chunk);
        let volume = array.open(|_| {});
        let model = churn(&volume, 1, || {});
        assert!(volume.stop().clean, "{level}");
        let (_, assembly) = array.assemble();
        let assembled = assembly.array.expect("an array");
        assert!(!assembled.dirty && assembled.degraded == 0, "{level}");
        let volume = array.open(|_| {});
        assert!(read(&volume, 0, model.len()) == model, "{level}");
    }
}

#[test]
fn a_member_that_dies_under_load_costs_no_client_anything_and_comes_back_stale() {
    for (level, slots, chunk) in LEVELS.into_iter().filter(|(level, ..)| *level != Level::Raid0) {
        let array = Array::new(level, slots, chunk);
        let notices: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let heard = Arc::clone(&notices);
        let volume = array.open(move |notice| heard.lock().expect("unpoisoned").push(notice));
        let model = churn(&volume, 2, || array.faults[1].kill());
        assert!(read(&volume, 0, model.len()) == model, "{level}");
        volume.call(ClientRequest::Flush).result.expect("the survivors flush");
        assert_eq!(volume.missing_count(), 1, "{level}");
        let view = volume.view();
        let empty: Vec<usize> =
            (0..view.slots.len()).filter(|&at| view.slots[at].is_none()).collect();
        assert_eq!((empty, view.gate == Gate::Broken), (vec![1], false), "{level}");
        let first = view.slots[0].as_ref().expect("it is there").id;
        assert!(volume.member_path(first).is_some(), "{level}");
        assert!(volume.member_path(MemberId(u16::MAX)).is_none(), "{level}");
        assert!(volume.stop().clean, "{level}");
        let out = notices
            .lock()
            .expect("unpoisoned")
            .iter()
            .any(|notice| matches!(notice, Notice::MemberOut { slot, .. } if slot.0 == 1));
        assert!(out, "{level}: the loss was announced");
        array.faults[1].revive();
        let (_, assembly) = array.assemble();
        let verdict = assembly.verdicts[1].verdict;
        assert!(matches!(verdict, Verdict::Stale { .. } | Verdict::Faulty), "{level}: {verdict}");
        assert_eq!(assembly.array.expect("an array").degraded, 1, "{level}");
    }
}

/// Gives a member's superblock one event more than the others have, as a power cut in an update
/// does.
fn put_ahead(array: &Array, index: usize) {
    let (probed, _) = array.assemble();
    let mut superblock = probed[index].probe.newest().expect("a member").clone();
    superblock.apply(&SuperblockUpdate {
        events: superblock.state.events + 1,
        update_time: Timestamp { seconds: 1_700_000_001, microseconds: 0 },
        resync_offset: superblock.state.resync_offset,
        roles: superblock.state.roles.as_slice().into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: superblock.state.role,
    });
    let (bytes, offset) = (superblock.to_bytes(), superblock.offset_bytes());
    array.devices[index].write_at(&bytes, offset, true).expect("memory takes writes");
}

/// Regression: a member whose superblock could not be updated was believed, on the assumption that
/// its next superblock would fail as well.
#[test]
fn a_member_that_cannot_be_told_before_the_start_is_out() {
    for (failures, missing) in [(1, 0), (2, 1)] {
        let array = Array::new(Level::Raid1, 2, 0);
        put_ahead(&array, 0);
        array.faults[1].insert(Fault::everywhere(Operation::Write).times(failures));
        let volume = array.open(|_| {});
        assert_eq!(volume.missing_count(), missing, "{failures} failures");
        assert!(volume.stop().clean);
        let (_, assembly) = array.assemble();
        let degraded = assembly.array.expect("an array").degraded;
        assert_eq!(usize::from(degraded), missing, "it is told before it stops");
    }
}

/// The superblock of a member that the array needs cannot be updated. The array does not start, and
/// a second try loses nothing.
#[test]
fn a_member_that_cannot_be_told_and_is_needed_stops_the_start() {
    let array = Array::new(Level::Raid5, 3, 8);
    put_ahead(&array, 0);
    array.faults[1].insert(Fault::everywhere(Operation::Write).times(4));
    array.faults[2].insert(Fault::everywhere(Operation::Write).times(2));
    let refused = array.try_open(|_| {}).map(|_| ());
    assert!(matches!(refused, Err(OpenError::NotRecorded { index: 2, .. })), "{refused:?}");
    let volume = array.open(|_| {});
    assert_eq!(volume.missing_count(), 1, "member 1 fails twice again");
    assert!(volume.stop().clean);
}

#[test]
fn one_bad_sector_is_rebuilt_and_written_again() {
    for (level, slots, chunk) in LEVELS.into_iter().filter(|(level, ..)| *level != Level::Raid0) {
        let array = Array::new(level, slots, chunk);
        let volume = array.open(|_| {});
        let model = churn(&volume, 3, || {});
        let everywhere = (3 << 20)..(4 << 20);
        let bad = array.faults[0].insert(Fault::on(Operation::Read, everywhere));
        assert!(read(&volume, 0, model.len()) == model, "{level}: no error within tolerance");
        // Sequential reads of a mirror stay at one member; scattered reads go to the lowest slot.
        for offset in (0..model.len() - 512).step_by(96 << 10) {
            assert!(read(&volume, offset as u64, 512) == model[offset..offset + 512], "{level}");
        }
        assert!(volume.counters().read_repairs > 0, "{level}");
        array.faults[0].remove(bad);
        assert_eq!(
            volume.missing_count(),
            0,
            "{level}: a bad sector is no reason to lose a member"
        );
        assert!(read(&volume, 0, model.len()) == model, "{level}: what was rewritten is right");
    }
}

#[test]
fn one_loss_too_many_is_an_error_and_never_wrong_bytes() {
    let array = Array::new(Level::Raid5, 4, 128);
    let volume = array.open(|_| {});
    let model = churn(&volume, 4, || {});
    // Unflushed writes may be lost although they were acknowledged; the flushes below report that.
    assert_eq!(volume.call(ClientRequest::Flush).result, Ok(()));
    array.faults[0].kill();
    array.faults[1].kill();
    let payload = Payload::from(vec![1; 1 << 20]);
    // Whether or not the write was acknowledged early, the flush must report its loss.
    let _answer = volume.call(ClientRequest::Write { offset: 0, payload, durable: false });
    for _ in 0..2 {
        let outcome = volume.call(ClientRequest::Flush);
        assert!(matches!(outcome.result, Err(RequestError::Io(_))), "{outcome:?}");
    }
    let payload = Payload::from(vec![1; 1 << 20]);
    let outcome = volume.call(ClientRequest::Write { offset: 0, payload, durable: true });
    assert!(matches!(outcome.result, Err(RequestError::Io(_))), "{outcome:?}");
    for offset in (1 << 20..model.len()).step_by(64 << 10) {
        let payload = Payload::from(vec![0; 4096]);
        let outcome = volume.call(ClientRequest::Read { offset: offset as u64, payload });
        match outcome.result {
            Ok(()) => {
                let bytes = outcome.payload.expect("a payload comes back");
                assert!(bytes[..] == model[offset..offset + 4096], "at {offset}");
            }
            Err(error) => assert!(matches!(error, RequestError::Io(_)), "{error}"),
        }
    }
    assert!(!volume.stop().clean, "what broke is not called clean");
}

#[test]
fn zeroes_and_trims_of_any_alignment() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::new(level, slots, chunk);
        let volume = array.open(|_| {});
        let mut model = vec![0xa5; usize::try_from(volume.size_bytes()).expect("small")];
        write(&volume, 0, &model, false);
        for (offset, length) in [(0, 1 << 20), (5, 3), (1_000_001, 700_000), (511, 2), (2 << 20, 1)]
        {
            let operation = ClientRequest::WriteZeroes {
                offset,
                length,
                may_punch: length % 2 == 0,
                fast: false,
                durable: false,
            };
            volume.call(operation).result.expect("zeroes");
            let start = usize::try_from(offset).expect("small");
            model[start..start + usize::try_from(length).expect("small")].fill(0);
        }
        assert!(read(&volume, 0, model.len()) == model, "{level}");
        let trimmed = 3 << 20..4 << 20;
        let trim = ClientRequest::Trim { offset: 3 << 20, length: 1 << 20, durable: true };
        volume.call(trim).result.expect("a trim");
        let found = read(&volume, 0, model.len());
        assert!(found[..3 << 20] == model[..3 << 20], "{level}: a trim harms nothing before it");
        assert!(found[4 << 20..] == model[4 << 20..], "{level}: a trim harms nothing behind it");
        assert!(found.len() > 5 << 20, "{level}: there is something behind it");
        let is_left = |&byte: &u8| byte == 0 || byte == 0xa5;
        assert!(found[trimmed].iter().all(is_left), "{level}: zeroes, or what was there");
    }
}

#[test]
fn an_idle_array_turns_clean_by_itself() {
    let array = Array::new(Level::Raid5, 4, 128);
    // Members are read one by one, so while superblocks are written, the members' superblocks may
    // be of different moments.
    let look = || {
        let one = array.assemble().1.array.ok()?;
        Some((one.newest.state.events, one.dirty))
    };
    let (before, _) = look().expect("an array");
    let volume = array.open(|_| {});
    write(&volume, 0, &[1; 4096], false);
    let began = std::time::Instant::now();
    // Turning active is one event, turning clean a second one.
    while !look().is_some_and(|(events, dirty)| events >= before + 2 && !dirty) {
        assert!(began.elapsed().as_secs() < 10, "it never turned clean");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    write(&volume, 8192, &[2; 4096], false);
    assert!(volume.stop().clean);
}

/// A full file system below a sparse member fails the client's request, not the member: no member
/// fails, and flushed data can be read.
#[test]
fn a_full_file_system_is_told_and_costs_no_member() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::new(level, slots, chunk);
        let volume = array.open(|_| {});
        let model = churn(&volume, 5, || {});
        assert_eq!(volume.call(ClientRequest::Flush).result, Ok(()));
        let no_space = braid_member::MemberError::OutOfSpace { errno: 28 };
        let full = Fault::everywhere(Operation::Write).error(no_space);
        // The fault begins after the superblocks, which exist already: only the data area cannot
        // grow.
        let full = Fault { range_bytes: (1 << 20)..u64::MAX, ..full };
        array.faults[0].insert(full);
        let payload = Payload::from(vec![9; 1 << 20]);
        let outcome = volume.call(ClientRequest::Write { offset: 1 << 20, payload, durable: true });
        assert_eq!(outcome.result, Err(RequestError::NoSpace), "{level}");
        assert_eq!(volume.missing_count(), 0, "{level}");
        assert!(read(&volume, 0, 1 << 20) == model[..1 << 20], "{level}");
        assert_eq!(volume.stop().clean, level == Level::Raid0, "{level}");
    }
}

#[test]
fn a_panic_that_drops_a_volume_stops_it_and_does_not_end_the_process() {
    let array = Array::new(Level::Raid5, 4, 128);
    let volume = array.open(|_| {});
    write(&volume, 0, &[1; 4096], false);
    let owner = std::thread::spawn(move || {
        let _volume = volume;
        panic!("meant: the owner of a volume may panic");
    });
    owner.join().expect_err("it panicked");
    assert!(!array.assemble().1.array.expect("an array").dirty, "it was stopped in order");
}

/// Regression: power failed in the middle of a superblock update, twice. The member that both
/// updates had missed was two events behind and called stale, although it had missed no write.
#[test]
fn a_member_one_event_behind_is_brought_level_before_the_next_update() {
    let array = Array::new(Level::Raid5, 4, 128);
    let superblock = |slot: usize| {
        let (probed, _) = array.assemble();
        probed[slot].probe.newest().expect("a member").clone()
    };
    let volume = array.open(|_| {});
    write(&volume, 0, &[1; 4096], false);
    assert!(volume.stop().clean);
    let newest = superblock(0).state.events;
    // Member 3's superblock becomes one event older than the others', and marks the array as
    // active.
    let mut active = superblock(3);
    active.apply(&SuperblockUpdate {
        events: newest - 1,
        update_time: active.state.update_time,
        resync_offset: 0,
        roles: active.state.roles.as_slice().into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: active.state.role,
    });
    let written = array.devices[3].write_at(&active.to_bytes(), active.offset_bytes(), true);
    written.expect("memory takes writes");
    let (_, assembly) = array.assemble();
    assert!(assembly.array.expect("one behind is fresh").dirty, "member 3 says so");
    assert!(array.open(|_| {}).stop().clean, "nothing was written");
    assert_eq!(superblock(3).state.events, newest);
    let (_, assembly) = array.assemble();
    assert!(assembly.array.expect("all are level").dirty, "what member 3 said is not forgotten");
}
