//! Changes of shape over memory members, while clients read and write: more members, other chunks
//! and layouts, back again, and take-overs.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::{Random, read, write};
use crate::kit::{Array, probed};
use braid_engine::array::ShapeChange;
use braid_engine::reshape::{ShapeProposal, ShapeWish};
use braid_geometry::{Geometry, Level, LogicalSector, Slot};
use braid_member::MemberError;
use braid_member::layer::{Fault, Faults, Operation};
use braid_runtime::{
    ClientRequest, Finding, JobEnd, JobKind, JobRequest, LogKind, LogRefusal, Notice, OpenError,
    OpenMember, Options, Payload, Reassembled, ShapeRefusal, StoppedMember, Volume, WindowCopy,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running array, and what it reports.
struct Running {
    volume: Arc<Volume>,
    notices: Receiver<Notice>,
    sender: Sender<Notice>,
}

impl Running {
    fn open(array: &Array) -> Self {
        Self::open_with(array, &Options { clean_delay_ms: 20, ..Options::default() })
    }

    fn open_with(array: &Array, options: &Options) -> Self {
        Self::open_assembled(array, options, &braid_assembly::Options::default())
    }

    fn open_assembled(array: &Array, options: &Options, choices: &braid_assembly::Options) -> Self {
        let (sender, notices) = channel();
        let watch = Mutex::new(sender.clone());
        let tell = move |notice| {
            let _over = watch.lock().expect("unpoisoned").send(notice);
        };
        let volume = array.open_assembled(options, choices, tell).expect("it opens");
        Self { volume: Arc::new(volume), notices, sender }
    }

    /// Waits for a notice that fits.
    fn hear(&self, mut fits: impl FnMut(&Notice) -> bool) -> Notice {
        loop {
            let notice = self.notices.recv_timeout(PATIENCE).expect("the notice comes");
            assert!(!matches!(notice, Notice::Broken { .. }), "{notice:?}");
            if fits(&notice) {
                return notice;
            }
        }
    }

    fn reopen(&self) {
        self.hear(|notice| matches!(notice, Notice::ShapeRecorded));
        let watch = Mutex::new(self.sender.clone());
        let tell = move |notice| {
            let _over = watch.lock().expect("unpoisoned").send(notice);
        };
        let is_open = self.volume.reopen::<OpenError>(tell, |members| Ok(again(members)));
        assert!(is_open.expect("it opens"));
    }

    /// Begins a reshape that waits for the operator, so that members can be made to fail first.
    fn begin_paused(&self, wish: &ShapeWish) -> ShapeProposal {
        self.volume.request_job(JobRequest::Pause);
        let proposal = self.volume.begin_reshape(wish, 0).expect("it may");
        self.reopen();
        proposal
    }

    fn await_end(&self, kind: JobKind) {
        let is_it = |notice: &Notice| match notice {
            Notice::JobEnded { progress, end } if progress.kind == kind => {
                assert_eq!(*end, JobEnd::Completed, "{progress:?}");
                true
            }
            _ => false,
        };
        self.hear(is_it);
    }

    fn await_reshape(&self) {
        self.await_end(JobKind::Reshape);
        self.volume.finish_reshape().expect("all has moved");
        self.reopen();
    }

    /// Compares parity and data of the whole array.
    fn check(&self) {
        self.volume.request_job(JobRequest::Check);
        let ended = self.hear(|notice| {
            matches!(notice, Notice::JobEnded { progress, .. } if progress.kind == JobKind::Check)
        });
        let Notice::JobEnded { progress, end } = ended else { unreachable!("just seen") };
        assert_eq!((progress.differing, end), (0, JobEnd::Completed), "{progress:?}");
    }
}

fn again(members: Vec<StoppedMember>) -> Reassembled {
    let probed: Vec<_> =
        (0..).zip(&members).map(|(index, member)| probed(index, &*member.device)).collect();
    let uuid = probed[0].probe.newest().expect("a member").array.uuid;
    let options = braid_assembly::Options { window_copies: vec![uuid], ..Default::default() };
    let assembly = braid_assembly::assemble(&probed, &options);
    let opened = members.into_iter().zip(&probed).map(|(member, probed)| {
        let superblock = probed.probe.newest().expect("a member").clone();
        Some(OpenMember { device: Box::new(member.device), superblock })
    });
    Reassembled { array: assembly.array.expect("it can run"), members: opened.collect() }
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect()
}

/// Sets a flag, also when a test fails.
struct SetOnDrop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Writes and reads at random, in areas of each thread's own, until `act` has ended. Returns the
/// content.
fn while_written(volume: &Arc<Volume>, model: Vec<u8>, act: impl FnOnce()) -> Vec<u8> {
    const THREADS: usize = 3;
    let (area, done) = (model.len() / THREADS, std::sync::atomic::AtomicBool::new(false));
    let model = Mutex::new(model);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (model, done) = (&model, &done);
            let volume = Arc::clone(volume);
            scope.spawn(move || {
                let start = thread * area;
                let mut own = model.lock().expect("unpoisoned")[start..start + area].to_vec();
                let mut random = Random(thread as u64 + 7);
                let mut rounds = 0;
                while !done.load(std::sync::atomic::Ordering::SeqCst) || rounds < 20 {
                    rounds += 1;
                    let length = 1 + below(&mut random, area.min(90_000));
                    let at = below(&mut random, area - length + 1);
                    let offset = (start + at) as u64;
                    if random.below(2) == 0 {
                        let found = read(&volume, offset, length);
                        assert!(found == own[at..at + length], "thread {thread} round {rounds}");
                        continue;
                    }
                    let fill = u8::try_from(random.below(256)).expect("a byte");
                    own[at..at + length].fill(fill);
                    write(&volume, offset, &own[at..at + length], random.below(8) == 0);
                }
                model.lock().expect("unpoisoned")[start..start + area].copy_from_slice(&own);
            });
        }
        let _done = SetOnDrop(&done);
        act();
    });
    model.into_inner().expect("unpoisoned")
}

fn below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).expect("small")
}

/// An array with content.
fn filled(array: &Array) -> (Running, Vec<u8>) {
    let running = Running::open(array);
    let size = usize::try_from(running.volume.size_bytes()).expect("small");
    let content = pattern(5, size);
    write(&running.volume, 0, &content, false);
    (running, content)
}

fn more(slots: u16) -> ShapeWish {
    ShapeWish { slots: Some(slots), ..ShapeWish::default() }
}

#[test]
fn an_array_grows_by_members_while_it_is_written() {
    for (level, slots, spares, chunk) in [
        (Level::Raid5, 3, 1, 8),
        (Level::Raid5, 4, 2, 128),
        (Level::Raid4, 3, 2, 16),
        (Level::Raid6, 4, 3, 32),
    ] {
        let array = Array::with_spares(level, (slots, spares), chunk);
        let (running, content) = filled(&array);
        let before = running.volume.size_bytes();
        let content = while_written(&running.volume, content, || {
            running.volume.begin_reshape(&more(slots + spares), 0).expect("it may");
            running.reopen();
            assert_eq!(running.volume.size_bytes(), before, "until all has moved");
            running.await_reshape();
        });
        let data = |slots: u16| u64::from(slots - if level == Level::Raid6 { 2 } else { 1 });
        let grown = before / data(slots) * data(slots + spares);
        assert_eq!(running.volume.size_bytes(), grown);
        assert!(read(&running.volume, 0, content.len()) == content, "{level}");
        let new = read(&running.volume, before, usize::try_from(grown - before).expect("small"));
        assert!(new.iter().all(|byte| *byte == 0), "the new part is zeroes, as md makes it");
        running.check();
        assert!(running.volume.stop().clean);
        let running = Running::open(&array);
        assert!(read(&running.volume, 0, content.len()) == content, "{level}");
    }
}

/// Options with a file for windows in place.
fn with_copies(folder: &tempfile::TempDir, array: &Array) -> Options {
    let (probed, _) = array.assemble();
    let uuid = probed[0].probe.newest().expect("a member").array.uuid;
    let copy = WindowCopy::new(folder.path().join("copy"), uuid);
    Options { clean_delay_ms: 20, window_copy: Some(Arc::new(copy)), ..Options::default() }
}

/// Options with a pace at which a test sees the middle of a reshape.
fn slow() -> Options {
    let job_pace =
        braid_pace::GovernorSettings { ceiling_bytes_per_second: 4 << 20, ..Default::default() };
    Options { clean_delay_ms: 20, job_pace, ..Options::default() }
}

fn fill(running: &Running) -> Vec<u8> {
    let content = pattern(5, usize::try_from(running.volume.size_bytes()).expect("small"));
    write(&running.volume, 0, &content, false);
    content
}

/// Regression: data moved into the place of a RAID-10's bitmap, which rests during a growth.
#[test]
fn data_leaves_room_for_a_bitmap_that_comes_back() {
    let gap_beside = |bitmap_sectors: u64| {
        let array = Array::with_spares(Level::Raid5, (3, 1), 8);
        let running = Running::open(&array);
        let proposal = running.volume.begin_reshape(&more(4), bitmap_sectors);
        running.reopen();
        running.volume.stop();
        let ShapeChange::Begin { shape, .. } = proposal.expect("it may").change else {
            panic!("a reshape begins");
        };
        let (_, area) = shape.data_areas[0];
        area.offset_sectors - area.new_offset_sectors.expect("data moves")
    };
    let (alone, beside) = (gap_beside(0), gap_beside(512));
    assert!(beside < alone, "{beside} and {alone}");
}

#[test]
fn without_room_the_first_windows_are_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let array = Array::without_room(Level::Raid5, (3, 1), 2048);
    let running = Running::open(&array);
    let refused = running.volume.begin_reshape(&more(4), 0).expect_err("there is no room");
    assert!(refused.to_string().contains("sectors are needed before"), "{refused}");
    running.volume.stop();
    let running = Running::open_with(&array, &with_copies(&folder, &array));
    let content = fill(&running);
    let content = while_written(&running.volume, content, || {
        let proposal = running.volume.begin_reshape(&more(4), 0).expect("it may");
        assert!(proposal.is_in_place());
        running.reopen();
        running.await_reshape();
    });
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
}

#[test]
fn an_array_loses_members_while_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    for (level, slots, left, chunk) in [
        (Level::Raid5, 4, 3, 8),
        (Level::Raid5, 6, 4, 16),
        (Level::Raid4, 5, 3, 16),
        (Level::Raid6, 6, 4, 32),
    ] {
        let array = Array::with_spares(level, (slots, 0), chunk);
        let running = Running::open_with(&array, &with_copies(&folder, &array));
        let mut content = fill(&running);
        let refused =
            running.volume.begin_reshape(&more(left), 0).expect_err("clients use all of it");
        assert!(refused.to_string().contains("clients use"), "{refused}");
        let data = |slots: u16| u64::from(slots - if level == Level::Raid6 { 2 } else { 1 });
        let end = content.len() as u64 / data(slots) * data(left);
        running.volume.end_at(Some(end / 512)).expect("nothing is being changed");
        assert_eq!(running.volume.size_bytes(), end);
        assert_eq!(running.volume.whole_size_bytes(), content.len() as u64);
        content.truncate(usize::try_from(end).expect("small"));
        let content = while_written(&running.volume, content, || {
            let proposal = running.volume.begin_reshape(&more(left), 0).expect("it may");
            assert!(proposal.is_in_place(), "there is no room behind the data");
            let changing = running.volume.end_at(None);
            assert_eq!(changing, Err(ShapeRefusal::Changing), "it would show what is lost");
            running.reopen();
            running.await_reshape();
        });
        let spares = running.volume.waiting().len();
        assert_eq!((running.volume.geometry().slots(), spares), (left, usize::from(slots - left)));
        assert_eq!(running.volume.whole_size_bytes(), end);
        assert!(read(&running.volume, 0, content.len()) == content, "{level}");
        running.check();
        assert!(running.volume.stop().clean);
    }
}

#[test]
fn chunks_and_layouts_change_while_they_are_written() {
    let layout = |word| braid_geometry::parse_layout(Level::Raid5, word).expect("a layout");
    let folder = tempfile::tempdir().expect("a folder");
    for wish in [
        ShapeWish { chunk_sectors: Some(64), ..ShapeWish::default() },
        ShapeWish { chunk_sectors: Some(16), ..ShapeWish::default() },
        ShapeWish { layout: Some(layout("right-asymmetric")), ..ShapeWish::default() },
        ShapeWish { chunk_sectors: Some(8), slots: Some(5), ..ShapeWish::default() },
        ShapeWish { chunk_sectors: Some(2048), ..ShapeWish::default() },
    ] {
        let array = Array::with_spares(Level::Raid5, (4, 1), 32);
        let running = Running::open_with(&array, &with_copies(&folder, &array));
        let content = fill(&running);
        let content = while_written(&running.volume, content, || {
            running.volume.begin_reshape(&wish, 0).expect("it may");
            running.reopen();
            running.await_reshape();
        });
        assert!(read(&running.volume, 0, content.len()) == content, "{wish:?}");
        let chunk = wish.chunk_sectors.unwrap_or(32);
        assert_eq!(running.volume.geometry().chunk_sectors(), chunk);
        running.check();
    }
}

#[test]
fn a_reshape_goes_back_from_where_it_is() {
    let array = Array::with_spares(Level::Raid5, (4, 2), 16);
    let running = Running::open_with(&array, &slow());
    let content = fill(&running);
    let before = running.volume.size_bytes();
    let content = while_written(&running.volume, content, || {
        running.volume.begin_reshape(&more(6), 0).expect("it may");
        running.reopen();
        running.hear(|notice| matches!(notice, Notice::JobPassed(far) if far.done > 0));
        running.volume.turn_reshape_round().expect("it is under way");
        running.reopen();
        running.volume.set_job_pace(Default::default());
        running.await_reshape();
    });
    assert_eq!(running.volume.size_bytes(), before);
    assert_eq!(running.volume.geometry().slots(), 4);
    assert_eq!(running.volume.waiting().len(), 2, "the new members are spares again");
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
}

/// Regression: after a loss between two windows, one thread released the first window after another
/// had held the second. Acknowledged writes to the second were not moved: 4 % of these rounds.
#[test]
fn a_member_is_lost_on_the_way() {
    (0..4).for_each(a_member_is_lost);
}

fn a_member_is_lost(lost: usize) {
    let array = Array::with_spares(Level::Raid5, (4, 1), 16);
    let running = Running::open_with(&array, &slow());
    let content = fill(&running);
    let content = while_written(&running.volume, content, || {
        running.volume.begin_reshape(&more(5), 0).expect("it may");
        running.reopen();
        assert_eq!(running.volume.view().resync_offset, u64::MAX, "it was clean");
        running.hear(|notice| matches!(notice, Notice::JobPassed(far) if far.done > 0));
        let id = running.volume.view().slots[lost].as_ref().expect("a member").id;
        running.volume.fail_member(id).expect("it may be missed");
        running.volume.set_job_pace(Default::default());
        running.await_reshape();
    });
    assert_eq!(running.volume.missing_count(), 1);
    assert!(read(&running.volume, 0, content.len()) == content);
}

#[test]
fn levels_are_taken_over_and_spares_filled() {
    let array = Array::with_spares(Level::Raid5, (4, 1), 16);
    let running = Running::open(&array);
    let content = fill(&running);
    let level = |level| ShapeWish { level: Some(level), ..ShapeWish::default() };
    let content = while_written(&running.volume, content, || {
        running.volume.begin_reshape(&level(Level::Raid6), 0).expect("it may");
        running.reopen();
        running.await_end(JobKind::Recovery);
    });
    assert_eq!(running.volume.geometry().level(), Level::Raid6);
    assert_eq!(running.volume.missing_count(), 0);
    running.check();
    assert!(read(&running.volume, 0, content.len()) == content);
    running.volume.begin_reshape(&level(Level::Raid5), 0).expect("it may");
    running.reopen();
    assert_eq!((running.volume.geometry().slots(), running.volume.waiting().len()), (4, 1));
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
    let wish = level(Level::Raid1);
    assert!(running.volume.begin_reshape(&wish, 0).is_err(), "four members are no mirror");
}

#[test]
fn a_mirror_of_two_becomes_a_raid_5_and_grows() {
    let array = Array::with_spares(Level::Raid1, (2, 1), 0);
    let running = Running::open(&array);
    let content = fill(&running);
    let wish = ShapeWish { level: Some(Level::Raid5), ..ShapeWish::default() };
    running.volume.begin_reshape(&wish, 0).expect("it may");
    running.reopen();
    assert_eq!(running.volume.geometry().level(), Level::Raid5);
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
    running.volume.begin_reshape(&more(3), 0).expect("it may");
    running.reopen();
    running.await_reshape();
    assert_eq!(running.volume.size_bytes(), 2 * content.len() as u64);
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
}

/// Regression: md has one number for "P and Q last" on RAID-6, and no layout 21.
#[test]
fn parity_that_is_last_gets_q_behind_it() {
    let array = Array::with_spares(Level::Raid4, (3, 1), 16);
    let running = Running::open(&array);
    let content = fill(&running);
    let level = |level| ShapeWish { level: Some(level), ..ShapeWish::default() };
    running.volume.begin_reshape(&level(Level::Raid6), 0).expect("it may");
    running.reopen();
    running.await_end(JobKind::Recovery);
    running.check();
    running.volume.begin_reshape(&level(Level::Raid5), 0).expect("it may");
    running.reopen();
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
}

/// Regression: the log of an array in a reshape was made where data of the new shape lay.
#[test]
fn no_log_is_made_during_a_reshape() {
    let array = Array::with_spares(Level::Raid5, (4, 1), 16);
    let running = Running::open_with(&array, &slow());
    let content = fill(&running);
    running.volume.begin_reshape(&more(5), 0).expect("it may");
    running.reopen();
    for kind in [LogKind::Own, LogKind::Ppl] {
        let refused = running.volume.change_logs(Some(kind));
        assert_eq!(refused, Err(LogRefusal::Reshaping.into()), "{kind:?}");
    }
    running.volume.set_job_pace(Default::default());
    running.await_reshape();
    assert!(read(&running.volume, 0, content.len()) == content);
    running.volume.change_logs(Some(LogKind::Own)).expect("the shape is settled");
}

/// Regression: a window in place that failed was read in the old shape, whose sectors it had
/// overwritten.
#[test]
fn a_window_in_place_that_fails_is_closed_until_it_has_moved() {
    const BESIDE: usize = 20 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let array = Array::with_spares(Level::Raid5, (4, 0), 32);
    let options = with_copies(&folder, &array);
    let running = Running::open_with(&array, &options);
    let content = fill(&running);
    running.volume.call(ClientRequest::Flush).result.expect("it flushes");
    let full = Fault::on(Operation::Write, 3 << 20..4 << 20);
    array.faults[0].insert(full.error(MemberError::OutOfSpace { errno: 28 }));
    let wish = ShapeWish { chunk_sectors: Some(2048), ..ShapeWish::default() };
    assert!(running.volume.begin_reshape(&wish, 0).expect("it may").is_in_place());
    running.reopen();
    let is_end = |notice: &Notice| {
        matches!(notice, Notice::JobEnded { progress, end }
            if progress.kind == JobKind::Reshape && *end == JobEnd::Unwritten)
    };
    while !is_end(&running.notices.recv_timeout(PATIENCE).expect("it ends")) {}
    let payload = Payload::from(vec![0; 4096]);
    let outcome = running.volume.call(ClientRequest::Read { offset: 0, payload });
    assert!(outcome.result.is_err(), "neither shape has these sectors");
    let beside = read(&running.volume, BESIDE as u64, 4096);
    assert!(beside == content[BESIDE..][..4096], "other sectors are read as ever");
    running.volume.stop();

    array.faults[0].clear();
    let (probed, _) = array.assemble();
    let uuid = probed[0].probe.newest().expect("a member").array.uuid;
    let options_of_assembly =
        braid_assembly::Options { window_copies: vec![uuid], ..Default::default() };
    let running = Running::open_assembled(&array, &options, &options_of_assembly);
    running.await_reshape();
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
}

/// Makes a member's sector fail all reads. Sectors count from the member's data.
fn cannot_read(array: &Array, slot: Slot, sector: u64) {
    let (probed, _) = array.assemble();
    let superblock = probed[slot.index()].probe.newest().expect("a member");
    let start = (superblock.device.data_offset_sectors + sector) * 512;
    array.faults[slot.index()].insert(Fault::on(Operation::Read, start..start + 512));
}

/// Makes sectors of a strip fail all reads: that of an array sector, and those of `more` other
/// columns, data first. Returns the sectors of the array that are lost.
fn lose(array: &Array, geometry: &Geometry, sector: u64, more: u16) -> Vec<u64> {
    let (place, columns) = strip(geometry, sector);
    let bad = columns.iter().take(usize::from(more) + 1);
    bad.clone().for_each(|(slot, _)| cannot_read(array, *slot, place));
    bad.filter_map(|(_, sector)| *sector).collect()
}

/// The place of an array sector on members, and the columns there: data with its array sectors,
/// beginning with the sector's own, then parity.
fn strip(geometry: &Geometry, sector: u64) -> (u64, Vec<(Slot, Option<u64>)>) {
    let Geometry::Stripe(stripe) = geometry else { unreachable!("it has parity") };
    let address = stripe.locate(LogicalSector(sector));
    let map = stripe.row_map(address.row);
    let place = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
    let count = map.data_slots();
    let indices = (0..count).map(|index| (index + address.data_index) % count);
    let data = indices.map(|index| {
        let sector = stripe.logical(address.row, index, address.offset_sectors).0;
        (map.data_slot(index), Some(sector))
    });
    let parity = [Some(map.p_slot()), map.q_slot()].into_iter().flatten();
    (place, data.chain(parity.map(|slot| (slot, None))).collect())
}

/// The sectors that cannot be read; all others must have this content.
fn unreadable(volume: &Volume, content: &[u8]) -> Vec<u64> {
    fn look(volume: &Volume, content: &[u8], range: Range<usize>, found: &mut Vec<u64>) {
        let length = (range.end - range.start) * 512;
        let payload = Payload::from(vec![0; length]);
        let offset = range.start as u64 * 512;
        let outcome = volume.call(ClientRequest::Read { offset, payload });
        match (outcome.result, range.end - range.start) {
            (Ok(()), _) => {
                let read = outcome.payload.expect("a read has bytes");
                assert!(read[..] == content[range.start * 512..range.end * 512], "{range:?}");
            }
            (Err(_), 1) => found.push(range.start as u64),
            (Err(_), sectors) => {
                let middle = range.start + sectors / 2;
                look(volume, content, range.start..middle, found);
                look(volume, content, middle..range.end, found);
            }
        }
    }
    let mut found = Vec::new();
    look(volume, content, 0..content.len() / 512, &mut found);
    found
}

/// The sectors that the reshape so far has reported as lost.
fn reported(running: &Running) -> Vec<u64> {
    let mut lost = Vec::new();
    running.hear(|notice| match notice {
        Notice::Found(Finding::Lost { array, sectors }) => {
            lost.extend(array.0..array.0 + sectors);
            false
        }
        Notice::JobEnded { progress, end } if progress.kind == JobKind::Reshape => {
            assert_eq!((*end, progress.unmade), (JobEnd::Completed, lost.len() as u64));
            true
        }
        _ => false,
    });
    lost.sort_unstable();
    lost
}

/// Regression: one row with two unreadable sectors ended a reshape.
#[test]
fn sectors_that_no_member_gives_cost_themselves() {
    for (level, slots, parity) in [(Level::Raid5, 4, 1), (Level::Raid6, 5, 2)] {
        let array = Array::with_spares(level, (slots, 1), 16);
        let running = Running::open(&array);
        let mut content = fill(&running);
        running.volume.call(ClientRequest::Flush).result.expect("it flushes");
        let geometry = running.volume.geometry();
        running.begin_paused(&more(slots + 1));
        let mut lost = lose(&array, &geometry, 1000, parity);
        // Two sectors in a row, and one in the array's last row.
        lost.extend(lose(&array, &geometry, 5003, parity));
        lost.extend(lose(&array, &geometry, 5004, parity));
        lost.extend(lose(&array, &geometry, content.len() as u64 / 512 - 1, parity));
        lost.sort_unstable();
        lost.dedup();
        running.volume.request_job(JobRequest::Resume);
        assert_eq!(reported(&running), lost, "{level}");
        array.faults.iter().for_each(Faults::clear);
        running.volume.finish_reshape().expect("all has moved");
        running.reopen();
        assert_eq!(unreadable(&running.volume, &content), lost, "{level}");
        assert!(running.volume.stop().clean);
        let running = Running::open(&array);
        assert_eq!(unreadable(&running.volume, &content), lost, "{level}, after a restart");

        // The parity of the row fits the text in the place of a lost sector.
        running.volume.request_job(JobRequest::RetryBad);
        running.hear(|notice| {
            matches!(notice, Notice::JobEnded { progress, .. } if progress.kind.is_check())
        });
        assert_eq!(unreadable(&running.volume, &content), lost, "{level}: no text is believed");
        // Regression: with one more fault in the row, the other parity confirmed the text.
        let (place, columns) = strip(&running.volume.geometry(), lost[0]);
        let parity = columns.iter().filter(|(_, sector)| sector.is_none());
        for (slot, _) in std::iter::once(&columns[0]).chain(parity) {
            cannot_read(&array, *slot, place);
            running.volume.request_job(JobRequest::RetryBad);
            running.hear(|notice| {
                matches!(notice, Notice::JobEnded { progress, .. } if progress.kind.is_check())
            });
            array.faults.iter().for_each(Faults::clear);
            let found = unreadable(&running.volume, &content);
            assert_eq!(found, lost, "{level}: no text is believed beside a fault of {slot:?}");
        }

        // Each neighbour in a row can be written, and each lost sector heals by its own write.
        let around = lost.iter().flat_map(|sector| [sector - 16, sector + 16, *sector]);
        let end = content.len() as u64;
        let around = around.filter(|sector| sector * 512 < end);
        for (sector, seed) in around.zip(90..) {
            let bytes = pattern(seed, 512);
            let at = usize::try_from(sector * 512).expect("small");
            write(&running.volume, sector * 512, &bytes, seed % 2 == 0);
            content[at..at + 512].copy_from_slice(&bytes);
        }
        // A sector can be read once its member's log no longer names it.
        let named = || -> u64 {
            let view = running.volume.view();
            view.slots.iter().flatten().map(|member| member.bad_blocks.sectors()).sum()
        };
        // Two lost sectors of a row that are written within moments leave the row's parity named.
        running.check();
        let began = std::time::Instant::now();
        while named() > 0 {
            assert!(began.elapsed() < PATIENCE, "{} sectors are named still", named());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(unreadable(&running.volume, &content), [0_u64; 0], "{level}");
        running.check();
    }
}

/// Regression: a lost sector in a window in place closed the window.
#[test]
fn a_lost_sector_in_a_window_in_place_costs_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let array = Array::with_spares(Level::Raid5, (4, 0), 32);
    let running = Running::open_with(&array, &with_copies(&folder, &array));
    let content = fill(&running);
    running.volume.call(ClientRequest::Flush).result.expect("it flushes");
    let geometry = running.volume.geometry();
    let wish = ShapeWish { chunk_sectors: Some(2048), ..ShapeWish::default() };
    assert!(running.begin_paused(&wish).is_in_place());
    let mut sorted = lose(&array, &geometry, 3000, 1);
    sorted.sort_unstable();
    running.volume.request_job(JobRequest::Resume);
    assert_eq!(reported(&running), sorted);
    array.faults.iter().for_each(Faults::clear);
    running.volume.finish_reshape().expect("all has moved");
    running.reopen();
    assert_eq!(unreadable(&running.volume, &content), sorted);
}

#[test]
fn a_log_without_room_ends_the_reshape() {
    let array = Array::without_logs(Level::Raid5, (4, 1), 16);
    let running = Running::open(&array);
    let mut content = fill(&running);
    running.volume.call(ClientRequest::Flush).result.expect("it flushes");
    let geometry = running.volume.geometry();
    running.begin_paused(&more(5));
    let lost = lose(&array, &geometry, 1000, 1);
    running.volume.request_job(JobRequest::Resume);
    let is_end = |notice: &Notice| {
        matches!(notice, Notice::JobEnded { progress, end }
            if progress.kind == JobKind::Reshape && *end == JobEnd::Unreadable)
    };
    running.hear(is_end);
    let mut sorted = lost.clone();
    sorted.sort_unstable();
    assert_eq!(unreadable(&running.volume, &content), sorted, "the array serves on");
    array.faults.iter().for_each(Faults::clear);
    for sector in lost {
        let at = usize::try_from(sector * 512).expect("small");
        write(&running.volume, sector * 512, &pattern(3, 512), true);
        content[at..at + 512].copy_from_slice(&pattern(3, 512));
    }
    running.volume.request_job(JobRequest::Resume);
    running.await_reshape();
    assert!(read(&running.volume, 0, content.len()) == content);
    running.check();
}
