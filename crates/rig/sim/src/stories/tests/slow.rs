//! A member stalls: no read waits for it, no late read changes an answer, and the member returns.

use braid_engine::array::{MemberId, Notice};
use braid_engine::buffer::Buffer;
use braid_engine::effect::MemberOperation;
use braid_engine::request::{Operation, RequestId};
use braid_engine::{CacheMode, SitOut};
use braid_geometry::Level;

use super::for_seeds;
use super::scene::{Scene, design};
use super::script::{Script, WRITE};
use crate::fault::Mishap;
use crate::schedule::Event;

/// The disk that stalls. Its member has the same number, because all disks before it are present.
const SLOW: usize = 1;

const LONG_MS: u64 = 500;

fn is_of(event: &Event, disk: usize) -> bool {
    event.waits_for().is_some_and(|member| usize::from(member.0) == disk)
}

fn is_write(event: &Event) -> bool {
    match event {
        Event::Io(vector) => vector.parts.iter().any(|(_, io)| io.operation.is_write()),
        _ => false,
    }
}

fn stall(story: &mut Script) {
    story.hold(|event| is_of(event, SLOW));
}

/// Whether an event is a read of a disk on behalf of a write.
fn reads_for_a_write(event: &Event) -> bool {
    let is_block =
        |operation| matches!(operation, MemberOperation::Read { buffer: Buffer::Block { .. } });
    matches!(event, Event::Io(vector) if vector.parts.iter().any(|(_, io)| is_block(io.operation)))
}

/// How many writes are at the disks.
fn writes_under_way(story: &Script) -> usize {
    let pending = story.world.engine.pending.iter();
    let waiting = story.world.engine.elevators.waiting();
    pending.chain(story.held()).filter(|event| is_write(event)).count()
        + waiting.filter(|io| io.operation.is_write()).count()
}

/// Opens a scene with an open gate and nothing in flight. Slow members may sit out.
fn opened(scene: &Scene) -> Script {
    let mut story = scene.open();
    story.issue(Operation::Write { durable: true }, 0, 1);
    story.run_without_time();
    story.watch(SitOut { min_ms: 150, ..SitOut::default() });
    story
}

fn sits_out(story: &Script) -> bool {
    story.sits_out(SLOW)
}

/// Issues reads of the whole array, of `step` sectors each.
fn ask_for_all(story: &mut Script, step: u64) -> Vec<RequestId> {
    let capacity = story.capacity();
    let starts = (0..capacity).step_by(step as usize);
    starts.map(|start| story.issue(Operation::Read, start, step.min(capacity - start))).collect()
}

/// Releases the stalled member, and waits until reads go to it again.
fn recover(mut story: Script) {
    story.release();
    for _ in 0..40 {
        story.pass_time(LONG_MS);
        if !sits_out(&story) {
            break;
        }
    }
    assert!(!sits_out(&story), "the member is fast again");
    story.settle();
    let reads = story.counters().direct_reads;
    story.read_all();
    assert!(story.counters().direct_reads > reads);
    assert!(!story.is_any_out(), "no member was lost");
    story.ends_well();
}

fn small(level: Level, slots: u16, seed: u64) -> Scene {
    let layout = if level == Level::Raid10 { 0x102 } else { 2 };
    Scene::new(design(level, layout, 8, slots, 6), seed).with_shards(1 + (seed % 2) as u16)
}

const LEVELS: [(Level, u16); 6] = [
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
];

/// Reads that are in flight when the member stalls, and reads that come later, go around it.
#[test]
fn reads_go_around_a_stalled_member() {
    for (level, slots) in LEVELS {
        for_seeds(4, |seed| {
            let mut story = opened(&small(level, slots, seed));
            let around = story.counters().reads_around;
            stall(&mut story);
            let under_way = ask_for_all(&mut story, 5);
            story.run_without_time();
            assert!(!story.went_well(&under_way), "some requests wait for the member");
            story.pass_time(LONG_MS);
            assert!(sits_out(&story), "{level}");
            assert!(story.went_well(&under_way), "{level}: the requests no longer wait");
            let counters = story.counters();
            assert!(counters.abandoned_reads > 0, "{level}");
            assert!(counters.reads_around > around);
            // These reads must not wait at all: no time passes.
            let later = ask_for_all(&mut story, 3);
            story.run_without_time();
            assert!(story.went_well(&later), "{level}");
            recover(story);
        });
    }
}

/// Inverts all bytes on the disks. A second call restores them.
fn flip(story: &mut Script) {
    for disk in 0..story.world.disks.len() {
        let range = story.data_bytes(disk);
        story.world.disks[disk].seen[range].iter_mut().for_each(|byte| *byte ^= u8::MAX);
    }
}

/// A read that was abandoned ends late and finds other bytes. The client has its answer already,
/// and its payload is gone.
#[test]
fn a_late_read_changes_no_answer() {
    for (level, slots) in LEVELS {
        for_seeds(4, |seed| {
            let mut story = opened(&small(level, slots, seed));
            stall(&mut story);
            let ids = ask_for_all(&mut story, 16);
            ids.iter().for_each(|id| story.keep(*id));
            story.pass_time(LONG_MS);
            assert!(story.went_well(&ids));
            let kept: Vec<Vec<u8>> = ids.iter().map(|id| story.kept(*id)).collect();
            flip(&mut story);
            story.release();
            story.run_without_time();
            for (id, kept) in ids.iter().zip(kept) {
                assert!(story.kept(*id) == kept, "{id:?} changed after its answer");
                story.forget(*id);
            }
            flip(&mut story);
            recover(story);
        });
    }
}

/// A write hangs on the stalled member, with any state of the cache. A read must not wait for that
/// write.
#[test]
fn reads_pass_a_stuck_write() {
    for (level, slots) in LEVELS {
        for mode in [CacheMode::WriteThrough, CacheMode::WriteBack] {
            for (stripes, sectors) in [(1, 1), (2, 8), (8, 3), (40, 24), (40, 500)] {
                for_seeds(1, |seed| {
                    let mut scene = small(level, slots, seed).with_stripes(stripes);
                    scene.manner.cache.tuning.mode = mode;
                    let mut story = opened(&scene);
                    stall(&mut story);
                    let capacity = story.capacity();
                    for start in (0..capacity).step_by(11) {
                        story.issue(WRITE, start, sectors.min(capacity - start));
                    }
                    story.pass_time(LONG_MS);
                    let during = ask_for_all(&mut story, 7);
                    story.pass_time(LONG_MS);
                    story.pass_time(LONG_MS);
                    let what = format!("{level} {mode:?} {stripes} {sectors}");
                    assert!(story.went_well(&during), "{what}");
                    let dirty = ask_for_all(&mut story, 4);
                    story.run_without_time();
                    assert!(story.went_well(&dirty), "{what}");
                    recover(story);
                });
            }
        }
    }
}

/// A write-through RAID-5 with one shard, whose stalled member sits out.
fn read_around(seed: u64) -> Script {
    let scene = small(Level::Raid5, 4, seed).write_through().with_shards(1);
    let mut story = opened(&scene);
    stall(&mut story);
    ask_for_all(&mut story, 5);
    story.pass_time(LONG_MS);
    assert!(sits_out(&story));
    story
}

/// A read around the slow member, without a stripe of its own, computes from the other columns. The
/// read must keep writes out of its band, or it would mix old and new columns.
#[test]
fn a_write_waits_for_reads_beside_it() {
    const OTHER: usize = 2;
    for_seeds(8, |seed| {
        let mut story = read_around(seed);
        // Another member holds up a read around the slow member in the first row.
        story.hold(|event| is_of(event, SLOW) || is_of(event, OTHER));
        let reads = ask_for_all(&mut story, 24);
        story.run_without_time();
        assert!(!story.went_well(&reads));
        for start in 0..24 {
            story.issue(WRITE, start, 1);
        }
        story.run_without_time();
        assert_eq!(writes_under_way(&story), 0);
        stall(&mut story);
        story.pass_time(LONG_MS);
        assert!(story.went_well(&reads));
        let pending = story.world.engine.pending.iter();
        let goes_on =
            pending.chain(story.held()).any(|event| is_write(event) || reads_for_a_write(event));
        assert!(goes_on, "and it goes on");
        recover(story);
    });
}

/// Writes of one block never end. A read of another column, whose member sits out, must get its
/// turn.
#[test]
fn a_read_is_let_in_between_two_writes_of_its_band() {
    for_seeds(8, |seed| {
        let mut story = read_around(seed);
        // In the first row, sectors 8 to 15 are on the stalling member, and sectors 0 to 7 are not.
        let mut writes = [0, 1].map(|start| (start, story.issue(WRITE, start, 1)));
        let (read, mut rewritten) = (story.issue(Operation::Read, 8, 4), 0);
        while !story.went_well(&[read]) {
            story.step(false);
            for (start, id) in &mut writes {
                if story.went_well(&[*id]) {
                    *id = story.issue(WRITE, *start, 1);
                    rewritten += 1;
                }
            }
            assert!(rewritten < 40, "the read waits for ever");
        }
        recover(story);
    });
}

/// One member is missing, and one stalls. A third member fails writes and is not out yet, because
/// the stalled member delays the batch.
#[test]
fn reads_go_around_a_stalled_and_a_failing_member() {
    for_seeds(12, |seed| {
        let mut scene = small(Level::Raid6, 6, seed).with_shards(1);
        if seed % 2 == 0 {
            scene.missing.push(4);
        }
        let mut story = opened(&scene);
        stall(&mut story);
        if seed % 2 == 1 {
            story.befall(3, Mishap::WritesFail);
        }
        let capacity = story.capacity();
        for start in (0..capacity).step_by(9) {
            story.issue(WRITE, start, 5.min(capacity - start));
        }
        story.pass_time(LONG_MS);
        let reads = ask_for_all(&mut story, 7);
        story.pass_time(LONG_MS);
        assert!(sits_out(&story));
        assert!(story.went_well(&reads));
        story.release();
        story.settle();
        story.check_members();
        story.read_all();
    });
}

#[test]
fn a_member_that_is_needed_does_not_sit_out() {
    for_seeds(4, |seed| {
        let mut scene = small(Level::Raid5, 4, seed);
        scene.missing.push(3);
        let mut story = opened(&scene);
        stall(&mut story);
        let ids = ask_for_all(&mut story, 5);
        story.pass_time(LONG_MS);
        assert!(!sits_out(&story) && !story.went_well(&ids));
        story.release();
        story.settle();
        assert!(story.went_well(&ids));
    });
}

#[test]
fn turned_off_nobody_sits_out() {
    for_seeds(4, |seed| {
        let mut story = opened(&small(Level::Raid6, 5, seed));
        stall(&mut story);
        let ids = ask_for_all(&mut story, 5);
        story.pass_time(LONG_MS);
        assert!(sits_out(&story) && story.went_well(&ids));
        story.watch(SitOut::OFF);
        let more = ask_for_all(&mut story, 5);
        story.pass_time(LONG_MS);
        assert!(!sits_out(&story) && !story.went_well(&more));
        let is_back = |notice: &Notice| matches!(notice, Notice::Back { member: MemberId(id), .. } if usize::from(*id) == SLOW);
        assert!(story.heard(is_back));
        story.release();
        story.settle();
        assert!(story.went_well(&more));
    });
}

/// A bad sector is computed and rewritten, and the rewrite hangs, as on a disk that remaps a
/// sector. A write of another column of the row waits for the rewrite. A read must not.
#[test]
fn reads_pass_a_stuck_repair() {
    for_seeds(4, |seed| {
        let mut story = opened(&small(Level::Raid5, 4, seed).write_through().with_shards(1));
        story.bad_sector(SLOW, 2);
        story.hold(|event| is_of(event, SLOW) && is_write(event));
        // In the first row, sectors 8 to 15 are on the stalling member.
        let first = story.issue(Operation::Read, 8, 4);
        story.run_without_time();
        assert!(story.went_well(&[first]));
        assert_eq!(writes_under_way(&story), 1, "it is being repaired");
        let write = story.issue(WRITE, 0, 1);
        story.run_without_time();
        assert!(!story.went_well(&[write]), "the write waits for the repair");
        stall(&mut story);
        story.pass_time(LONG_MS);
        assert!(sits_out(&story));
        let reads = ask_for_all(&mut story, 4);
        story.pass_time(LONG_MS);
        assert!(story.went_well(&reads), "reads wait for a stuck repair");
        recover(story);
    });
}
