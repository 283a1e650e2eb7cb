//! Jobs on real threads: an array recovers and resyncs by itself, and its content stays right.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client::{read, write};
use crate::kit::Array;
use braid_geometry::{Level, Slot};
use braid_member::layer::{Fault, Operation};
use braid_member::{Member, MemoryMember};
use braid_ondisk::SuperblockUpdate;
use braid_runtime::{
    AddError, ClientRequest, GovernorSettings, JobEnd, JobKind, JobRequest, MemberRefusal,
    Newcomer, Notice, Options, Payload, Phase, RemoveError, Volume,
};

const LEVELS: [(Level, u16, u32); 4] =
    [(Level::Raid1, 2, 0), (Level::Raid5, 4, 128), (Level::Raid6, 5, 64), (Level::Raid10, 4, 128)];

/// Opens an array, with a receiver on which a test can wait for notices.
fn open(array: &Array) -> (Volume, Receiver<Notice>) {
    let (tell, heard) = channel();
    let tell = Mutex::new(tell);
    let volume = array.open_busy(move |notice| {
        let _ended = tell.lock().expect("telling does not panic").send(notice);
    });
    (volume, heard)
}

/// Waits for a job of this kind to end.
fn end_of(heard: &Receiver<Notice>, kind: JobKind) -> (JobEnd, u64) {
    loop {
        let notice = heard.recv_timeout(Duration::from_secs(60)).expect("the job ends");
        if let Notice::JobEnded { progress, end } = notice
            && progress.kind == kind
        {
            return (end, progress.differing);
        }
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at / 512 % 256) ^ (at % 251);
    (0..length).map(|at| u8::try_from(byte(at)).expect("a byte") ^ seed).collect()
}

/// Regression: an array whose member failed stayed degraded for ever.
#[test]
fn a_spare_takes_over_while_clients_write() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::with_spares(level, (slots, 1), chunk);
        let (volume, heard) = open(&array);
        let length = 4 << 20;
        write(&volume, 0, &pattern(length, 1), false);
        array.faults[1].kill();
        let volume = Arc::new(volume);
        let writer = {
            let volume = Arc::clone(&volume);
            std::thread::spawn(move || {
                for round in 0..64_u8 {
                    let offset = u64::from(round) * 65_536;
                    write(&volume, offset, &pattern(65_536, round), false);
                }
            })
        };
        assert_eq!(end_of(&heard, JobKind::Recovery).0, JobEnd::Completed, "{level}");
        writer.join().expect("it writes");
        let mut expected = Vec::new();
        (0..64_u8).for_each(|round| expected.extend(pattern(65_536, round)));
        assert!(read(&volume, 0, length) == expected, "{level}");
        volume.request_job(JobRequest::Check);
        assert_eq!(end_of(&heard, JobKind::Check), (JobEnd::Completed, 0), "{level}");
        assert!(volume.stop().clean, "{level}");
        // The failed member is absent, so every read uses the others, the spare among them.
        let (_, assembly) = array.assemble();
        let assembled = assembly.array.expect("an array");
        assert!(!assembled.dirty && assembled.degraded == 0, "{level}");
    }
}

/// Regression: an unreadable sector of another member ended a recovery, and the array stayed
/// degraded for ever.
#[test]
fn a_sector_that_nobody_holds_costs_itself_and_not_the_rebuild() {
    for (level, slots, chunk) in
        [(Level::Raid1, 2, 0), (Level::Raid5, 4, 128), (Level::Raid10, 4, 128)]
    {
        let array = Array::with_spares(level, (slots, 1), chunk);
        let (volume, heard) = open(&array);
        let everything = usize::try_from(volume.size_bytes()).expect("small");
        write(&volume, 0, &pattern(everything, 1), false);
        volume.call(ClientRequest::Flush).result.expect("all flush");
        let (probed, _) = array.assemble();
        let data_offset = probed[0].probe.newest().expect("a member").device.data_offset_sectors;
        let first = (data_offset + 1000) * 512;
        array.faults[0].insert(Fault::on(Operation::Read, first..first + 512));
        array.faults[1].kill();
        write(&volume, 0, &pattern(4096, 1), false);
        assert_eq!(end_of(&heard, JobKind::Recovery).0, JobEnd::Completed, "{level}");
        let bad = || volume.view().member(Slot(1)).expect("it is in").bad_blocks.sectors();
        assert!((1..=8).contains(&bad()), "{level}: it costs its block, at most: {}", bad());
        // Reads the bad-block log on the device, as md would.
        let named = || array.assemble().0[usize::from(slots)].bad_blocks.clone().expect("a log");
        let is_named = |sector: u64| {
            named().iter().any(|one| {
                (one.range.start_sector..one.range.start_sector + one.range.length_sectors)
                    .contains(&sector)
            })
        };
        assert!(is_named(data_offset + 1000), "{level}: {:?}", named());
        let wanted = pattern(everything, 1);
        let errors = wanted.chunks_exact(512).enumerate().filter(|(sector, wanted)| {
            let payload = Payload::from(vec![0xdb; 512]);
            let outcome =
                volume.call(ClientRequest::Read { offset: *sector as u64 * 512, payload });
            let bytes = outcome.payload.expect("a read gives its payload back").to_vec();
            assert!(outcome.result.is_err() || bytes == *wanted, "{level}: sector {sector}");
            outcome.result.is_err()
        });
        let errors = errors.count();
        assert!((1..=24).contains(&errors), "{level}: {errors} sectors");
        // The device has remapped the bad sector, and clients rewrite everything.
        array.faults[0].clear();
        write(&volume, 0, &pattern(everything, 2), false);
        volume.call(ClientRequest::Flush).result.expect("all flush");
        let began = Instant::now();
        while bad() > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "{level}: it stays bad");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(named().is_empty(), "{level}: {:?}", named());
        array.faults[0].kill();
        assert!(read(&volume, 0, everything) == pattern(everything, 2), "{level}");
        volume.stop();
    }
}

/// Regression: a dirty array stayed dirty.
#[test]
fn a_dirty_array_agrees_again_and_stops_clean() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::new(level, slots, chunk);
        let (volume, _) = open(&array);
        write(&volume, 0, &pattern(1 << 20, 7), false);
        assert!(volume.stop().clean);
        let (probed, _) = array.assemble();
        for (device, probed) in array.devices.iter().zip(&probed) {
            let mut superblock = probed.probe.newest().expect("a member").clone();
            superblock.apply(&SuperblockUpdate {
                events: superblock.state.events + 1,
                update_time: superblock.state.update_time,
                resync_offset: 0,
                roles: superblock.state.roles.as_slice().into(),
                recovery_offset: None,
                is_replacement: false,
                role_of_this: superblock.state.role,
            });
            let at = superblock.offset_bytes();
            device.write_at(&superblock.to_bytes(), at, true).expect("memory takes writes");
        }
        assert!(array.assemble().1.array.expect("an array").dirty, "{level}");
        let (volume, heard) = open(&array);
        assert_eq!(end_of(&heard, JobKind::Resync).0, JobEnd::Completed, "{level}");
        assert!(read(&volume, 0, 1 << 20) == pattern(1 << 20, 7), "{level}");
        assert!(volume.stop().clean, "{level}");
        assert!(!array.assemble().1.array.expect("an array").dirty, "{level}");
    }
}

/// An operator pauses jobs, and resumes them later.
#[test]
fn a_job_that_is_paused_waits() {
    let array = Array::with_spares(Level::Raid5, (4, 1), 128);
    let (volume, heard) = open(&array);
    volume.request_job(JobRequest::Pause);
    array.faults[2].kill();
    write(&volume, 0, &pattern(1 << 20, 3), false);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((volume.missing_count(), volume.job()), (1, None), "nothing begins");
    volume.request_job(JobRequest::Resume);
    assert_eq!(end_of(&heard, JobKind::Recovery).0, JobEnd::Completed);
    assert_eq!(volume.missing_count(), 0);
    assert!(volume.stop().clean);
}

/// An operator fails and removes a member, and a new device replaces it, while clients write.
#[test]
fn a_member_is_failed_removed_and_replaced_while_clients_write() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::new(level, slots, chunk);
        let (volume, heard) = open(&array);
        write(&volume, 0, &pattern(1 << 20, 1), false);
        let old = volume.view().member(Slot(1)).expect("it is in").id;
        assert!(matches!(
            volume.remove_member(old),
            Err(RemoveError::Refused(MemberRefusal::InUse))
        ));
        volume.fail_member(old).expect("the array can do without it");
        write(&volume, 0, &pattern(1 << 20, 2), false);
        volume.call(ClientRequest::Flush).result.expect("the others flush");
        assert_eq!(volume.missing_count(), 1, "{level}");
        volume.remove_member(old).expect("it is out");
        assert!(!volume.members().contains(&old), "{level}: its device is closed");
        let device = Arc::new(MemoryMember::new(crate::kit::MEMBER_BYTES));
        let id = volume.add_member(
            Box::new(Arc::clone(&device)),
            &Newcomer { uuid: [8; 16], ..Newcomer::default() },
            |_| (),
        );
        let id = id.expect("it fits");
        write(&volume, 1 << 20, &pattern(1 << 20, 3), false);
        assert_eq!(end_of(&heard, JobKind::Recovery).0, JobEnd::Completed, "{level}");
        assert_eq!(volume.view().member(Slot(1)).map(|member| member.id), Some(id), "{level}");
        volume.request_job(JobRequest::Check);
        assert_eq!(end_of(&heard, JobKind::Check), (JobEnd::Completed, 0), "{level}");
        assert!(volume.stop().clean, "{level}");
        // Assembled as md would: the old device is stale, and the new one has its slot.
        let mut probed: Vec<_> =
            (0..).zip(&array.devices).map(|(i, d)| crate::kit::probed(i, d)).collect();
        probed.push(crate::kit::probed(usize::from(slots), &device));
        let assembly = braid_assembly::assemble(&probed, &braid_assembly::Options::default());
        let assembled = assembly.array.expect("an array");
        assert!(!assembled.dirty && assembled.degraded == 0, "{level}: {:?}", assembly.verdicts);
        let new = assembled.slots[1].as_ref().expect("it is there").member;
        assert_eq!(new, usize::from(slots), "{level}");
    }
}

#[test]
fn what_the_array_cannot_do_without_is_not_failed() {
    let array = Array::new(Level::Raid5, 3, 128);
    let (volume, _heard) = open(&array);
    let members = volume.members();
    volume.fail_member(members[0]).expect("one can be missed");
    assert_eq!(volume.fail_member(members[1]), Err(MemberRefusal::Needed));
    let small = MemoryMember::new(crate::kit::MEMBER_BYTES - (1 << 20));
    let refused = volume.add_member(
        Box::new(small),
        &Newcomer { uuid: [8; 16], ..Newcomer::default() },
        |_| (),
    );
    assert!(matches!(refused, Err(AddError::Join(_))), "{refused:?}");
    write(&volume, 0, &pattern(1 << 20, 2), false);
    assert!(read(&volume, 0, 1 << 20) == pattern(1 << 20, 2));
    assert!(volume.stop().clean);
}

/// The pace set at the start applies at once, and can change while a job runs.
#[test]
fn a_job_goes_no_faster_than_its_ceiling() {
    let array = Array::with_spares(Level::Raid5, (4, 1), 128);
    let slow = GovernorSettings {
        floor_bytes_per_second: 0,
        ceiling_bytes_per_second: 8 << 20,
        ..GovernorSettings::default()
    };
    let options = Options { clean_delay_ms: 20, job_pace: slow, ..Options::default() };
    let (tell, heard) = channel();
    let tell = Mutex::new(tell);
    let volume = array.open_with(&options, move |notice| {
        let _ended = tell.lock().expect("telling does not panic").send(notice);
    });
    let volume = volume.expect("it opens");
    assert_eq!((volume.job_pace(), volume.job_look()), (slow, None));
    let started = Instant::now();
    array.faults[1].kill();
    write(&volume, 0, &pattern(1 << 20, 1), false);
    while volume.job().is_none_or(|job| job.done < 2 << 11) {
        assert!(started.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Two windows go without delay: one may begin at once, and one more is saved up.
    assert!(started.elapsed() > Duration::from_millis(50), "{:?}", started.elapsed());
    assert_ne!(volume.job_look().map(|look| look.phase), None, "it is being looked after");
    let still = GovernorSettings { ceiling_bytes_per_second: 0, ..slow };
    volume.set_job_pace(still);
    std::thread::sleep(Duration::from_millis(100));
    let stands = volume.job().map(|job| job.done);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(volume.job().map(|job| job.done), stands, "a ceiling of nothing is a pause");
    volume.set_job_pace(GovernorSettings::default());
    assert_eq!(end_of(&heard, JobKind::Recovery).0, JobEnd::Completed);
    assert_eq!(volume.job_look(), None);
    assert!(volume.stop().clean);
}

/// The governor sees clients' latencies while a job runs.
#[test]
fn clients_are_heard_beside_a_job() {
    let array = Array::with_spares(Level::Raid5, (4, 1), 128);
    let still = GovernorSettings {
        floor_bytes_per_second: 0,
        ceiling_bytes_per_second: 0,
        ..GovernorSettings::default()
    };
    let options = Options { clean_delay_ms: 20, job_pace: still, ..Options::default() };
    let volume = array.open_with(&options, |_| ()).expect("it opens");
    array.faults[1].kill();
    write(&volume, 0, &pattern(1 << 20, 1), false);
    let phase = |volume: &Volume| volume.job_look().map(|look| look.phase);
    let started = Instant::now();
    let is_late = || started.elapsed() > Duration::from_secs(60);
    while phase(&volume) != Some(Phase::Idle) {
        assert!(!is_late(), "there is silence");
        std::thread::sleep(Duration::from_millis(5));
    }
    read(&volume, 0, 4096);
    while phase(&volume) == Some(Phase::Idle) {
        assert!(!is_late(), "a request ends it at once");
    }
    while volume.job_look().is_none_or(|look| look.alone_p99_ns.is_none()) {
        assert!(!is_late(), "what clients feel without the job is learned");
        read(&volume, 0, 4096);
    }
    volume.set_job_pace(GovernorSettings::default());
    assert!(volume.stop().clean);
}
