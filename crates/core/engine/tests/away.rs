//! Members that do not answer: which of them go away, and how they return.

use braid_engine::array::{
    Array, ArraySetup, BitmapSetup, MemberId, MetadataArea, Notice, ReturningMember, SpareSetup,
};
use braid_engine::cause::Cause;
use braid_engine::effect::{FaultKind, MemberFault, Report};
use braid_engine::{Instant, Patience};
use braid_geometry::{Level, Slot};
use braid_ondisk::{BitmapSuperblock, Bits};

use super::array::{NOW, PolledEffects, SHARD, poll_effects, setup, write};

const PATIENCE: Patience = Patience { silence_ms: Some(8000), spare_after_ms: 60_000 };
const SECOND: MemberId = MemberId(1);
const SPARE: MemberId = MemberId(9);

fn with_bitmap(level: Level, slots: u16) -> ArraySetup {
    let setup = setup(level, slots, |_| u64::MAX);
    let sectors = setup.geometry.capacity_sectors().min(1024);
    let head = BitmapSuperblock::new(sectors, 8 * 512, 8);
    let bitmap = BitmapSetup { head, says: Bits::none(sectors, 8), doubt: None, marks: None };
    ArraySetup { bitmap: Some(bitmap), names_bitmap: Some(true), ..setup }
}

fn spare(id: MemberId, device_number: u16, returns: Option<ReturningMember>) -> SpareSetup {
    SpareSetup { returns, ..SpareSetup::new(id, device_number) }
}

fn opened(setup: ArraySetup) -> Array {
    let mut array = Array::new(setup);
    array.handle_patience(NOW, PATIENCE);
    settle(&mut array);
    array
}

/// Writes all superblocks and bitmaps, until the array wants no more writes.
fn settle(array: &mut Array) -> Vec<Notice> {
    let mut notices = Vec::new();
    loop {
        let now = poll_effects(array);
        notices.extend(now.notices.iter().copied());
        if now.superblocks.is_empty() && now.bitmaps.is_empty() {
            return notices;
        }
        for member in &now.bitmaps {
            array.handle_metadata_written(NOW, (*member, MetadataArea::Bitmap), Ok(()));
        }
        write(array, &now, &[]);
    }
}

fn is_away(array: &Array) -> bool {
    array.away().iter().any(|(member, away)| *member == SECOND && away.slot == Slot(1))
}

#[test]
fn only_a_member_that_can_come_back_goes_away() {
    let silent = [(SECOND, 8000)];
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        let mut array = opened(with_bitmap(level, 4));
        array.handle_silence(NOW, &[(SECOND, 7999)]);
        assert!(!is_away(&array), "{level}: it is too early");
        array.handle_silence(NOW, &silent);
        assert!(is_away(&array), "{level}");
        assert_eq!(poll_effects(&mut array).left, [SECOND], "what it was asked has failed");
    }
    let without_bitmap = setup(Level::Raid5, 4, |_| u64::MAX);
    let mut in_doubt = with_bitmap(Level::Raid5, 4);
    in_doubt.resync_offset = 0;
    let mut degraded = with_bitmap(Level::Raid5, 4);
    degraded.slots[3] = None;
    let mut read_only = with_bitmap(Level::Raid5, 4);
    read_only.read_only = true;
    let stripes = Array::new(setup(Level::Raid0, 4, |_| u64::MAX));
    let others = [without_bitmap, in_doubt, degraded, read_only].map(opened);
    for mut array in others.into_iter().chain([stripes]) {
        array.handle_silence(NOW, &silent);
        assert!(!is_away(&array), "nobody could do without it, or tell what it misses");
    }
    let mut patient = opened(with_bitmap(Level::Raid5, 4));
    patient.handle_patience(NOW, Patience::ENDLESS);
    patient.handle_silence(NOW, &[(SECOND, u64::MAX)]);
    assert!(!is_away(&patient));
}

/// A controller that resets holds up all of its disks: the disks are not to blame.
#[test]
fn where_most_are_silent_nobody_goes() {
    let mut array = opened(with_bitmap(Level::Raid6, 5));
    array.handle_silence(NOW, &[(SECOND, 9000), (MemberId(2), 4000), (MemberId(4), 5000)]);
    assert!(!is_away(&array));
    array.handle_silence(NOW, &[(SECOND, 9000), (MemberId(2), 4000), (MemberId(4), 500)]);
    assert!(is_away(&array), "two may be missing, and the other has not been silent for long");
    let mut array = opened(with_bitmap(Level::Raid5, 5));
    array.handle_silence(NOW, &[(SECOND, 9000), (MemberId(2), 4000)]);
    assert!(!is_away(&array), "if the other went as well, too many would be missing");
}

/// Guards against an old bug: the superblock write of a disk that hung held all writes up for as
/// long as the disk hung.
#[test]
fn an_update_does_not_wait_for_a_member_that_is_away() {
    let mut array = opened(with_bitmap(Level::Raid5, 4));
    array.handle_report(NOW, SHARD, Report::WantWrite);
    let update = loop {
        let now = poll_effects(&mut array);
        if !now.superblocks.is_empty() {
            break now;
        }
        assert!(!now.bitmaps.is_empty(), "superblocks come after bitmaps");
        for member in now.bitmaps {
            array.handle_metadata_written(NOW, (member, MetadataArea::Bitmap), Ok(()));
        }
    };
    assert_eq!(update.superblocks.len(), 4);
    let answered = update.superblocks.iter().filter(|(member, _)| *member != SECOND).cloned();
    let answered = PolledEffects { superblocks: answered.collect(), ..update };
    write(&mut array, &answered, &[]);
    assert!(poll_effects(&mut array).views.is_empty(), "it is waited for");
    array.handle_silence(NOW, &[(SECOND, 8000)]);
    assert_eq!(poll_effects(&mut array).left, [SECOND]);
    // The member's driver reports the failure, and nothing when the request ends.
    let cause = Cause::silent(SECOND);
    let failed = Err(MemberFault { kind: FaultKind::Gone, cause });
    array.handle_metadata_written(NOW, (SECOND, MetadataArea::Superblock), failed);
    let notices = settle(&mut array);
    assert!(notices.contains(&Notice::Away { member: SECOND, slot: Slot(1) }), "{notices:?}");
}

#[test]
fn a_slot_waits_for_its_member() {
    let setup = ArraySetup { spares: vec![spare(SPARE, 4, None)], ..with_bitmap(Level::Raid5, 4) };
    let mut array = opened(ArraySetup { jobs_paused: false, ..setup });
    array.handle_silence(NOW, &[(SECOND, 8000)]);
    let notices = settle(&mut array);
    assert_eq!(notices, [Notice::Away { member: SECOND, slot: Slot(1) }]);
    assert_eq!(array.spares(), [SPARE], "its slot is kept for it");
    let due = array.poll_timeout().expect("a moment comes");
    let late = NOW.plus_milliseconds(60_000);
    assert!(due <= late);
    array.handle_timeout(Instant(late.0 - 1));
    settle(&mut array);
    assert_eq!(array.spares(), [SPARE]);
    array.handle_timeout(late);
    settle(&mut array);
    assert!(array.spares().is_empty(), "the spare has it now");
    assert!(is_away(&array), "and it may come back as a spare");
}

#[test]
fn a_member_that_was_away_comes_back_to_its_slot() {
    let mut array = opened(with_bitmap(Level::Raid5, 4));
    array.handle_report(NOW, SHARD, Report::WantWrite);
    settle(&mut array);
    let events = array.events();
    assert!(!array.may_return(SECOND), "it is there");
    array.handle_silence(NOW, &[(SECOND, 8000)]);
    assert!(!array.may_return(SECOND), "its loss is not recorded");
    settle(&mut array);
    assert!(array.may_return(SECOND));
    let returns = Some(ReturningMember { slot: Slot(1), events });
    let newcomer = spare(SPARE, array.free_device_number(), returns);
    let later = NOW.plus_milliseconds(2500);
    array.handle_member_returned(later, SECOND, newcomer).expect("it is welcome");
    let told = poll_effects(&mut array).notices;
    let returned = Notice::Returned { member: SPARE, slot: Slot(1), old: SECOND, after_ms: 2500 };
    assert!(told.contains(&returned), "{told:?}");
    assert!(array.away().is_empty() && !array.may_return(SECOND));
}
