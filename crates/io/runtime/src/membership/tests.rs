//! Members that come and go while an array runs, on both back ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use braid_assembly::{ProbedMember, assemble};
use braid_engine::Shard;
use braid_engine::array::MemberId;
use braid_geometry::Level;
use braid_member::{Access, Member, create_file, open};

use crate::{
    Cache, ClientRequest, Elevator, Io, Notice, OpenMember, Options, Payload, Scheduling, Volume,
};

#[allow(dead_code, unreachable_pub, reason = "the kit of the tests outside, arrays in memory too")]
#[path = "../../tests/kit/mod.rs"]
mod kit;

const LONG: Duration = Duration::from_secs(20);

/// Member files that outlive the volumes opened on them.
struct Files(tempfile::TempDir);

impl Files {
    fn new(level: Level, slots: u16, chunk_sectors: u32) -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        let superblocks = kit::superblocks(level, slots, chunk_sectors, kit::MEMBER_BYTES);
        for (slot, superblock) in (0..).zip(superblocks) {
            let device = create_file(&files.path(slot), kit::MEMBER_BYTES).expect("a file");
            let written = device.write_at(&superblock.to_bytes(), superblock.offset_bytes(), true);
            written.expect("a file takes writes");
        }
        files
    }

    fn path(&self, slot: u16) -> PathBuf {
        self.0.path().join(format!("m{slot}"))
    }

    fn member(&self, slot: u16, access: Access) -> (ProbedMember, OpenMember) {
        let device = open(&self.path(slot), access).expect("it is free");
        let probed = kit::probed(usize::from(slot), &*device);
        let superblock = probed.probe.newest().expect("a member").clone();
        (probed, OpenMember { device, superblock })
    }

    fn open(
        &self,
        slots: u16,
        options: &Options,
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Volume {
        let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let members = (0..slots).map(|slot| self.member(slot, access));
        let (probed, members): (Vec<_>, Vec<_>) =
            members.map(|(one, other)| (one, Some(other))).unzip();
        let array = assemble(&probed, &braid_assembly::Options::default()).array.expect("it runs");
        Volume::open(&array, members, options, watch).expect("it opens")
    }
}

/// Whether no process has the file open as a member.
fn is_free(path: &Path) -> bool {
    File::open(path).expect("it is there").try_lock().is_ok()
}

fn read(volume: &Volume, offset: u64, length: usize) -> Vec<u8> {
    let payload = Payload::from(vec![0xdb; length]);
    let outcome = volume.call(ClientRequest::Read { offset, payload });
    outcome.result.expect("a read");
    outcome.payload.expect("a read gives its payload back").to_vec()
}

fn write(volume: &Volume, offset: u64, byte: u8, length: usize) {
    let payload = Payload::from(vec![byte; length]);
    let outcome = volume.call(ClientRequest::Write { offset, payload, durable: false });
    outcome.result.expect("a write");
}

/// A removed member's descriptor is closed while the array runs; a replacement serves the stripes.
#[test]
fn a_member_registered_later_is_used_and_one_taken_out_is_closed() {
    for io in [Io::Ring, Io::Threads] {
        let files = Files::new(Level::Raid0, 2, 8);
        let options = Options { io, ..Options::default() };
        let volume = files.open(2, &options, |_| {});
        let size = usize::try_from(volume.size_bytes()).expect("small");
        (0..16).for_each(|part| write(&volume, part * 60_000, 1 + part.to_le_bytes()[0], 60_000));
        assert!(volume.stop().clean);
        drop(volume);
        // The array is read-only, so that only the test sends requests to members.
        let options = Options { read_only: true, ..options };
        let volume = files.open(2, &options, |notice| {
            assert!(matches!(notice, Notice::Stopped { .. }), "{notice:?}");
        });
        let (core, content) = (volume.core(), read(&volume, 0, size));
        for round in 0..3 {
            assert!(!is_free(&files.path(1)), "{io:?}, round {round}");
            assert!(core.drain_member(MemberId(1), LONG), "nothing is out");
            core.close_member(MemberId(1));
            assert!(is_free(&files.path(1)), "{io:?}, round {round}");
            assert!(!is_free(&files.path(0)), "the other one stays");
            let OpenMember { device, superblock } = files.member(1, Access::ReadOnly).1;
            let registered = core.register_member(MemberId(1), (device, superblock), Some(1));
            registered.expect("threads, if any");
            core.schedule_again();
            assert!(read(&volume, 0, size) == content, "{io:?}, round {round}");
        }
        // A periodic look at a member may still be in progress.
        while !volume.unanswered().is_empty() {
            std::thread::yield_now();
        }
        volume.stop();
    }
}

/// A new name makes the table of members grow, and all other lists that are indexed by member name.
#[test]
fn a_member_of_a_new_name_is_looked_after_like_the_others() {
    for io in [Io::Ring, Io::Threads] {
        let (files, more) = (Files::new(Level::Raid1, 2, 0), Files::new(Level::Raid1, 2, 0));
        let volume = files.open(2, &Options { io, ..Options::default() }, |_| {});
        let core = volume.core();
        let OpenMember { device, superblock } = more.member(1, Access::ReadWrite).1;
        let registered = core.register_member(MemberId(7), (device, superblock), None);
        registered.expect("threads, if any");
        core.schedule_again();
        assert_eq!(volume.elevators().len(), 3, "{io:?}");
        core.arm(core.alarm.set_held(MemberId(7), core.clock.now()));
        write(&volume, 0, 7, 100_000);
        assert!(!is_free(&more.path(1)));
        core.close_member(MemberId(7));
        assert!(is_free(&more.path(1)), "{io:?}");
        assert_eq!(volume.elevators().len(), 2, "{io:?}");
        assert!(read(&volume, 0, 100_000) == vec![7; 100_000]);
        assert!(volume.stop().clean);
    }
}

/// Regression: each write that began before its flush was a seek of its own. Instead of 3.0 times
/// the writes without elevators the array did 2.7 times.
#[test]
fn writes_begin_before_their_flush_only_where_no_member_has_an_elevator() {
    let files = Files::new(Level::Raid5, 4, 128);
    let with = |elevator| Scheduling { elevator, ..Scheduling::default() };
    let scheduling = with(Elevator::None);
    let volume = files.open(4, &Options { scheduling, ..Options::default() }, |_| {});
    // The test checks what the shards know, since a worker may still be about to deliver the
    // change.
    let comes_to = |expects: bool, age_max_ms: u64| {
        let is_so = |shard: &Shard| {
            let tuning = shard.tuning().expect("it has a cache");
            (tuning.expects_flushes, tuning.age_max_ms) == (expects, age_max_ms)
        };
        let until = std::time::Instant::now() + LONG;
        while !volume.look_at_shards(is_so).all(|is_so| is_so) {
            assert!(std::time::Instant::now() < until, "shards do not come to {expects}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let age_max_ms = volume.cache().age_max_ms;
    comes_to(true, age_max_ms);
    volume.schedule(with(Elevator::Deadline));
    comes_to(false, age_max_ms);
    volume.tune(Cache { age_max_ms: 7, ..volume.cache() });
    comes_to(false, 7);
    volume.schedule(with(Elevator::None));
    comes_to(true, 7);
    assert!(volume.stop().clean);
}

/// Operations that are in flight when a member is taken out still end. Later operations fail as
/// gone, and the array continues without the member.
#[test]
fn a_member_taken_out_under_load_costs_no_request() {
    for io in [Io::Ring, Io::Threads] {
        let files = Files::new(Level::Raid5, 4, 128);
        let (sender, notices) = mpsc::channel();
        let options = Options { io, clean_delay_ms: 20, ..Options::default() };
        let volume = files.open(4, &options, move |notice| {
            let _ = sender.send(notice);
        });
        let ends = AtomicBool::new(false);
        let rounds = std::thread::scope(|scope| {
            let client = |client: u64| {
                let (volume, ends) = (&volume, &ends);
                move || {
                    let start = client * (1 << 20);
                    for round in 1_u8..=u8::MAX {
                        write(volume, start + 1000, round, 200_000);
                        assert!(read(volume, start + 1000, 200_000) == vec![round; 200_000]);
                        if ends.load(Ordering::Relaxed) {
                            return round;
                        }
                    }
                    u8::MAX
                }
            };
            let clients: Vec<_> = (0..3).map(|index| scope.spawn(client(index))).collect();
            std::thread::sleep(Duration::from_millis(100));
            assert!(volume.core().drain_member(MemberId(2), LONG), "all of it ends");
            volume.core().close_member(MemberId(2));
            assert!(is_free(&files.path(2)), "{io:?}");
            std::thread::sleep(Duration::from_millis(100));
            ends.store(true, Ordering::Relaxed);
            clients
                .into_iter()
                .map(|one| one.join().expect("it does not panic"))
                .collect::<Vec<_>>()
        });
        for (client, round) in (0..).zip(rounds) {
            let found = read(&volume, client * (1 << 20) + 1000, 200_000);
            assert!(found == vec![round; 200_000], "{io:?}");
        }
        let mut heard = std::iter::from_fn(|| notices.recv_timeout(LONG).ok());
        let is_out = |notice: Notice| matches!(notice, Notice::MemberOut { .. });
        assert!(heard.any(is_out), "{io:?}");
        assert!(volume.stop().clean);
    }
}
