//! Drives the array's control machine alone, by hand: each test is about one way in which an array
//! went wrong.

use braid_engine::Instant;
use braid_engine::array::{
    Array, ArrayEffect, ArraySetup, ArrayView, BitmapSetup, Gate, LogRefusal, MemberId,
    MemberSetup, MetadataArea, MetadataRecord, NewBitmap, Notice, ParityLogSetup, SpareSetup,
    SuperblockState,
};
use braid_engine::cause::{self, Answer, Cause};
use braid_engine::effect::{FaultKind, LogTicket, MemberFault, Report};
use braid_engine::ids::WorkId;
use braid_engine::request::{RequestId, ShardIndex};
use braid_engine::work::Outcome;
use braid_geometry::{Geometry, Level, Shape, default_layout};
use braid_ondisk::{
    BitmapSuperblock, Bits, LogPlace, LoggedEntry, OwnLogPlace, PplEntry, PplPlace,
};
use std::sync::Arc;

pub(crate) const NOW: Instant = Instant(1);
pub(crate) const SHARD: ShardIndex = ShardIndex(0);

fn array(level: Level, slots: u16, recovered: impl Fn(u16) -> u64) -> Array {
    Array::new(setup(level, slots, recovered))
}

/// The cause of a member's failed write; every member's cause differs.
fn cause_of(member: MemberId) -> Cause {
    let (sector, answer) = (1000 + u64::from(member.0), Answer::Os(i32::from(member.0)));
    Cause { member, asked: cause::RequestKind::Write, sector, sectors: 8, answer }
}

fn failed(member: MemberId) -> Report {
    Report::MemberFailed { cause: cause_of(member) }
}

fn outcome(member: MemberId, fails: bool) -> Result<(), MemberFault> {
    let cause = Cause { asked: cause::RequestKind::Superblock, ..cause_of(member) };
    if fails { Err(MemberFault { kind: FaultKind::Media, cause }) } else { Ok(()) }
}

/// The setup of a clean array; `recovered` returns the recovered sectors of each slot.
pub(crate) fn setup(level: Level, slots: u16, recovered: impl Fn(u16) -> u64) -> ArraySetup {
    let shape = Shape::uniform(level, default_layout(level), 8, slots, 1024);
    let geometry = Geometry::new(&shape).expect("a plain shape");
    let member =
        |slot| MemberSetup { recovered_sectors: recovered(slot), ..MemberSetup::up_to_date(slot) };
    ArraySetup {
        slots: (0..slots).map(|slot| Some(member(slot))).collect(),
        events: 40,
        ..ArraySetup::consistent(geometry, 1)
    }
}

fn dirty_and_degraded(level: Level, slots: u16) -> Array {
    let mut setup = setup(level, slots, |_| u64::MAX);
    setup.resync_offset = 0;
    setup.slots[usize::from(slots) - 1] = None;
    Array::new(setup)
}

/// A killed process left writes in the cache of a member that was away at the next start. Guards
/// against an old bug: a flush was answered without that member. Then the member lost power,
/// returned with the same event count, and was read.
#[test]
fn a_flush_of_a_dirty_array_first_tells_who_is_away() {
    let mut array = dirty_and_degraded(Level::Raid1, 3);
    poll_effects(&mut array);
    array.handle_flush_request(NOW, RequestId(7));
    let told = poll_effects(&mut array);
    assert!(told.flushes.is_empty() && told.superblocks.len() == 2);
    for (_, state) in &told.superblocks {
        assert_eq!((state.events, state.resync_offset, state.roles.len()), (41, 0, 2));
    }
    write(&mut array, &told, &[]);
    let again = poll_effects(&mut array);
    assert_eq!(again.superblocks.len(), 2);
    assert!(again.superblocks.iter().all(|(_, state)| state.events == 42));
    assert_eq!(again.flushes, [MemberId(0), MemberId(1)]);
    array.handle_flushed(NOW, MemberId(0), Ok(()));
    array.handle_flushed(NOW, MemberId(1), Ok(()));
    assert_eq!(
        poll_effects(&mut array).answers,
        [],
        "who is away is one behind, as if nothing was missed"
    );
    write(&mut array, &again, &[]);
    assert_eq!(poll_effects(&mut array).answers, [RequestId(7)]);
    // One update suffices here.
    for member in [0, 1].map(MemberId) {
        array.handle_report(NOW, SHARD, Report::MemberWritten { member });
    }
    array.handle_flush_request(NOW, RequestId(8));
    assert_eq!(poll_effects(&mut array).flushes, [MemberId(0), MemberId(1)]);
}

/// An array whose superblocks have more than one sector, so that a power cut can tear them.
fn array_that_tears(level: Level, slots: u16) -> Array {
    Array::new(ArraySetup { superblocks_tear: true, ..setup(level, slots, |_| u64::MAX) })
}

pub(crate) struct PolledEffects {
    pub(crate) superblocks: Vec<(MemberId, std::sync::Arc<SuperblockState>)>,
    pub(crate) flushes: Vec<MemberId>,
    pub(crate) views: Vec<(u64, Gate)>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) answers: Vec<RequestId>,
    pub(crate) bitmaps: Vec<MemberId>,
    pub(crate) left: Vec<MemberId>,
    pub(crate) works: Vec<WorkId>,
}

pub(crate) fn poll_effects(array: &mut Array) -> PolledEffects {
    let mut effects = PolledEffects {
        superblocks: Vec::new(),
        flushes: Vec::new(),
        views: Vec::new(),
        notices: Vec::new(),
        answers: Vec::new(),
        bitmaps: Vec::new(),
        left: Vec::new(),
        works: Vec::new(),
    };
    while let Some(effect) = array.poll_effect() {
        match effect {
            ArrayEffect::WriteMetadata { member, record: MetadataRecord::Superblock(state) } => {
                effects.superblocks.push((member, state));
            }
            ArrayEffect::WriteMetadata { record: MetadataRecord::Bitmap(_), member } => {
                effects.bitmaps.push(member);
            }
            ArrayEffect::WriteMetadata { record, .. } => panic!("jobs are paused: {record:?}"),
            ArrayEffect::Flush { member } => effects.flushes.push(member),
            ArrayEffect::Publish(view) => effects.views.push((view.epoch, view.gate)),
            ArrayEffect::Notice(Notice::Recorded { .. }) => {}
            ArrayEffect::Notice(notice) => effects.notices.push(notice),
            ArrayEffect::WriteBack { round } => {
                array.handle_report(NOW, SHARD, Report::WrittenBack { round });
            }
            ArrayEffect::Answer { request, .. } => effects.answers.push(request),
            ArrayEffect::KeepRecord { events } => panic!("no record is kept: {events}"),
            ArrayEffect::AskConsent { state } => panic!("no consent is given: {}", state.events),
            ArrayEffect::Logged { ticket, .. } => panic!("nothing is logged: {ticket:?}"),
            ArrayEffect::QueryTouched
            | ArrayEffect::QueryActivity
            | ArrayEffect::SlowMembers(_) => {}
            ArrayEffect::Border(_) | ArrayEffect::Keep { .. } | ArrayEffect::Move(_) => {
                panic!("no reshape is under way")
            }
            ArrayEffect::Leave { member } => effects.left.push(member),
            ArrayEffect::Work { work, .. } => effects.works.push(work.id),
        }
    }
    effects
}

/// Writes every superblock of `effects`, except those of `failing`.
pub(crate) fn write(array: &mut Array, effects: &PolledEffects, failing: &[MemberId]) {
    for (member, _) in &effects.superblocks {
        let written = outcome(*member, failing.contains(member));
        array.handle_metadata_written(NOW, (*member, MetadataArea::Superblock), written);
    }
}

fn activate(array: &mut Array) {
    poll_effects(array);
    array.handle_report(NOW, SHARD, Report::WantWrite);
    let update = poll_effects(array);
    write(array, &update, &[]);
    let open = poll_effects(array);
    assert_eq!(open.views.last().expect("a view").1, Gate::Open);
    // The superblocks are written a second time, unless a spare sleeps; writes continue meanwhile.
    write(array, &open, &[]);
    assert!(poll_effects(array).views.is_empty(), "which changes nothing for shards");
}

/// A whole array with a spare: its event count steps back when it turns clean, as in md.
fn array_with_spare(level: Level, slots: u16) -> Array {
    let spares = vec![SpareSetup::new(MemberId(slots), slots)];
    Array::new(ArraySetup { spares, ..setup(level, slots, |_| u64::MAX) })
}

/// The good half of a half-recovered mirror failed. Guards against an old bug: the array went on
/// writing to the other half, and recorded the good half as faulty. No assembly could start that
/// array.
#[test]
fn a_recovering_member_is_no_survivor() {
    for (level, slots) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 2)] {
        let mut array = array(level, slots, |slot| if slot == 1 { 100 } else { u64::MAX });
        activate(&mut array);
        array.handle_report(NOW, SHARD, failed(MemberId(0)));
        let after = poll_effects(&mut array);
        assert!(after.superblocks.is_empty(), "{level}: nothing is recorded against the good half");
        let (member, cause) = (MemberId(0), cause_of(MemberId(0)));
        assert_eq!(after.notices, [Notice::Broken { member, cause }], "{level}");
        assert_eq!(after.views.last().expect("a view").1, Gate::Broken, "{level}");
    }
}

/// If the recovering member itself fails, the array has the same state as before the recovery.
#[test]
fn a_recovering_member_may_fail() {
    let mut array = array(Level::Raid5, 3, |slot| if slot == 1 { 100 } else { u64::MAX });
    activate(&mut array);
    array.handle_report(NOW, SHARD, failed(MemberId(1)));
    let update = poll_effects(&mut array);
    assert_eq!(update.superblocks.len(), 2);
    write(&mut array, &update, &[]);
    let told = poll_effects(&mut array).notices;
    assert!(matches!(told[..], [Notice::MemberOut { member: MemberId(1), .. }]), "{told:?}");
}

/// A member missed the step back to "clean" and kept the higher count with its own table. Guards
/// against an old bug: the survivors recorded its loss under the same count. The next start found
/// two newest tables.
#[test]
fn a_loss_recorded_after_a_step_back_is_newer_than_the_lost_member() {
    let mut array = array_with_spare(Level::Raid5, 4);
    activate(&mut array);
    let active = array.events();
    array.handle_stop(NOW);
    let (epoch, gate) = *poll_effects(&mut array).views.last().expect("the gate closes");
    assert_eq!(gate, Gate::Closed);
    array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
    for member in poll_effects(&mut array).flushes {
        array.handle_flushed(NOW, member, Ok(()));
    }
    let clean = poll_effects(&mut array);
    assert_eq!(clean.superblocks[0].1.events, active - 1, "clean takes the count back");
    write(&mut array, &clean, &[MemberId(3)]);
    let record = poll_effects(&mut array);
    assert_eq!(record.superblocks.len(), 4, "the others, and the spare");
    write(&mut array, &record, &[]);
    let beyond = poll_effects(&mut array);
    assert!(record.notices.is_empty() && beyond.notices.is_empty(), "it is not out yet");
    let told = beyond.superblocks[0].1.events;
    assert!(told > active, "member 3 still says {active}; its loss is told under {told}");
    write(&mut array, &beyond, &[]);
    let notices = poll_effects(&mut array).notices;
    assert!(matches!(notices[..], [Notice::MemberOut { member: MemberId(3), .. }, ..]));
}

/// Guards against an old bug: a loss after a step back was recorded two events above the survivors.
/// A power cut in the middle left some survivors two events behind. They counted as stale though
/// they had missed nothing.
#[test]
fn a_loss_after_a_step_back_leaves_no_member_two_behind() {
    let mut array = array_with_spare(Level::Raid5, 4);
    activate(&mut array);
    array.handle_stop(NOW);
    let (epoch, _) = *poll_effects(&mut array).views.last().expect("the gate closes");
    array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
    for member in poll_effects(&mut array).flushes {
        array.handle_flushed(NOW, member, Ok(()));
    }
    let clean = poll_effects(&mut array);
    write(&mut array, &clean, &[MemberId(3)]);
    let mut events = vec![clean.superblocks[0].1.events];
    loop {
        let update = poll_effects(&mut array);
        let Some((_, state)) = update.superblocks.first() else { break };
        events.push(state.events);
        write(&mut array, &update, &[]);
    }
    let is_one_at_a_time = events.windows(2).all(|pair| pair[1] == pair[0] + 1);
    // The updates: the step back, the loss twice to exceed the lost member's count, and the repeat
    // of the loss.
    assert!(events.len() == 4 && is_one_at_a_time, "{events:?}");
}

/// A member is lost while the array is at rest: every member has the step back, so one update
/// suffices to record the loss.
#[test]
fn a_loss_at_rest_is_told_once_and_one_event_above() {
    let mut array = array_with_spare(Level::Raid5, 4);
    activate(&mut array);
    let due = array.poll_timeout().expect("it looks whether it is at rest");
    array.handle_timeout(due);
    array.handle_report(due, SHARD, Report::Activity { last_write: Instant(0), writing: false });
    let (epoch, _) = *poll_effects(&mut array).views.last().expect("the gate closes");
    array.handle_report(due, SHARD, Report::ViewInForce { epoch });
    for member in poll_effects(&mut array).flushes {
        array.handle_flushed(due, member, Ok(()));
    }
    let clean = poll_effects(&mut array);
    write(&mut array, &clean, &[]);
    poll_effects(&mut array);
    array.handle_report(due, SHARD, failed(MemberId(3)));
    let record = poll_effects(&mut array);
    assert_eq!(record.superblocks[0].1.events, clean.superblocks[0].1.events + 1);
    write(&mut array, &record, &[]);
    let after = poll_effects(&mut array);
    assert!(matches!(after.notices[..], [Notice::MemberOut { member: MemberId(3), .. }]));
}

/// The members of each wave of superblock writes, until no wave follows.
fn waves(array: &mut Array) -> Vec<Vec<u16>> {
    let mut waves = Vec::new();
    loop {
        let update = poll_effects(array);
        if update.superblocks.is_empty() {
            return waves;
        }
        waves.push(update.superblocks.iter().map(|(member, _)| member.0).collect());
        write(array, &update, &[]);
    }
}

/// Guards against an old bug: a power cut tore all superblocks of several sectors, and left none to
/// start from.
#[test]
fn long_superblocks_are_never_all_written_at_once() {
    for (level, slots, mut all, mut less_one) in [
        (Level::Raid1, 2, vec![vec![0], vec![1]], vec![vec![0]]),
        (Level::Raid1, 4, vec![vec![0, 1], vec![2, 3]], vec![vec![0, 1], vec![2]]),
        (Level::Raid6, 4, vec![vec![0, 1], vec![2, 3]], vec![vec![0], vec![1], vec![2]]),
    ] {
        // The repeat of the update changes only the first sector of superblocks, so it is one wave.
        all.push((0..slots).collect());
        less_one.push((0..slots - 1).collect());
        let mut array = array_that_tears(level, slots);
        poll_effects(&mut array);
        array.handle_report(NOW, SHARD, Report::WantWrite);
        assert_eq!(waves(&mut array), all, "{level}: what is on the disks is unknown");
        array.handle_report(NOW, SHARD, failed(MemberId(slots - 1)));
        assert_eq!(waves(&mut array), less_one, "{level}: a loss changes the tables");
        array.handle_stop(NOW);
        let (epoch, _) = *poll_effects(&mut array).views.last().expect("the gate closes");
        array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
        for member in poll_effects(&mut array).flushes {
            array.handle_flushed(NOW, member, Ok(()));
        }
        assert_eq!(waves(&mut array).len(), 2, "{level}: twice, and only the first sector changes");
    }
}

/// After a member has failed in one wave, the other waves are written without that member.
/// Otherwise, after the next update, the members of the other waves would be two events behind
/// those of the first wave.
#[test]
fn a_member_that_fails_between_two_waves_leaves_no_member_two_behind() {
    let mut array = array_that_tears(Level::Raid1, 4);
    poll_effects(&mut array);
    array.handle_report(NOW, SHARD, Report::WantWrite);
    let mut events = [40_u64; 4];
    let mut is_first = true;
    loop {
        let update = poll_effects(&mut array);
        if update.superblocks.is_empty() {
            break;
        }
        for (member, state) in &update.superblocks {
            let fails = is_first && *member == MemberId(1);
            let index = usize::from(member.0);
            events[index] = if fails { events[index] } else { state.events };
            let written = outcome(*member, fails);
            array.handle_metadata_written(NOW, (*member, MetadataArea::Superblock), written);
        }
        if is_first {
            array.handle_report(NOW, SHARD, failed(MemberId(3)));
        }
        is_first = false;
        let survivors = [events[0], events[2]];
        assert!(survivors[0].abs_diff(survivors[1]) <= 1, "{events:?}");
    }
    assert_eq!([events[0], events[2]], [43; 2], "told, and told again");
    assert_eq!(array.missing_count(), 2);
}

/// Guards against an old bug: sparse members on a full file system were put out one after the
/// other, though all were healthy. In the end the array could not be started.
#[test]
fn a_full_file_system_costs_no_member() {
    let mut array = array(Level::Raid5, 4, |_| u64::MAX);
    activate(&mut array);
    let events = array.events();
    for member in [MemberId(2), MemberId(0), MemberId(2)] {
        let fault = MemberFault { kind: FaultKind::NoSpace, cause: cause_of(member) };
        array.handle_report(NOW, SHARD, Report::NotTaken { fault });
    }
    let after = poll_effects(&mut array);
    assert!(after.superblocks.is_empty(), "they stay active: the next start will resync");
    let (member, cause) = (MemberId(2), cause_of(MemberId(2)));
    assert_eq!(after.notices, [Notice::OutOfSpace { member, cause }]);
    assert_eq!(after.views.last().expect("a view").1, Gate::Broken);
    assert_eq!((array.missing_count(), array.events()), (0, events));
    array.handle_stop(NOW);
    assert_eq!(poll_effects(&mut array).notices, [Notice::Stopped { clean: false }]);
}

/// Guards against an old bug: a disk behind a write blocker was put out, which cost a sound array
/// its redundancy.
#[test]
fn a_disk_that_may_not_be_written_stays_and_costs_the_array_its_writes() {
    let mut array = array(Level::Raid5, 3, |_| u64::MAX);
    poll_effects(&mut array);
    array.handle_report(NOW, SHARD, Report::WantWrite);
    let update = poll_effects(&mut array);
    let cause = cause_of(MemberId(1));
    for (member, _) in &update.superblocks {
        let refused = Err(MemberFault { kind: FaultKind::Protected, cause });
        let written = if *member == MemberId(1) { refused } else { Ok(()) };
        array.handle_metadata_written(NOW, (*member, MetadataArea::Superblock), written);
    }
    let after = poll_effects(&mut array);
    assert_eq!(after.notices, [Notice::WriteProtected { member: MemberId(1), cause }]);
    assert_eq!(after.views.last().expect("a view").1, Gate::Broken);
    assert_eq!(array.missing_count(), 0);
    // A member that is still being filled does not stop the array.
    let mut array = self::array(Level::Raid5, 3, |slot| if slot == 1 { 0 } else { u64::MAX });
    activate(&mut array);
    let fault = MemberFault { kind: FaultKind::Protected, cause };
    array.handle_report(NOW, SHARD, Report::NotTaken { fault });
    assert_eq!(array.missing_count(), 1);
}

/// Guards against an old bug: a new device failed its first superblock, and was forgotten without a
/// notice.
#[test]
fn nothing_that_joins_goes_without_a_notice() {
    let mut array = dirty_and_degraded(Level::Raid1, 3);
    let member = MemberId(7);
    array.handle_member_added(NOW, SpareSetup::new(member, 7), None).expect("a slot is free");
    let mut notices = Vec::new();
    for _ in 0..8 {
        let update = poll_effects(&mut array);
        write(&mut array, &update, &[member]);
        notices.extend(update.notices);
    }
    let is_lost = |notice: &Notice| matches!(notice, Notice::SpareLost { member, .. } if *member == MemberId(7));
    assert_eq!(notices.iter().filter(|notice| is_lost(notice)).count(), 1, "{notices:?}");
    assert_eq!(array.missing_count(), 1);
}

/// Guards against an old bug: a clean run with writes ended with the event count of its begin. A
/// member put back from before the run then had the newest count. After a killed run such a member
/// was one event behind, as if it had only missed an update.
#[test]
fn every_change_is_said_twice() {
    let mut array = array(Level::Raid5, 4, |_| u64::MAX);
    let mut events = Vec::new();
    poll_effects(&mut array);
    array.handle_report(NOW, SHARD, Report::WantWrite);
    let mut finish = |array: &mut Array| {
        let mut views = Vec::new();
        loop {
            let update = poll_effects(array);
            views.extend(update.views.iter().map(|(epoch, gate)| (*epoch, *gate, events.len())));
            for member in &update.flushes {
                array.handle_flushed(NOW, *member, Ok(()));
            }
            if update.superblocks.is_empty() && update.flushes.is_empty() {
                return (views, events.clone());
            }
            assert!(update.superblocks.len() == 4 || update.superblocks.is_empty());
            events.extend(
                update.superblocks.first().map(|(_, state)| (state.events, state.resync_offset)),
            );
            write(array, &update, &[]);
        }
    };
    let (views, events) = finish(&mut array);
    assert_eq!(events, [(41, 0), (42, 0)]);
    assert!(
        matches!(views[..], [(_, Gate::Open, 1)]),
        "{views:?}: writes do not wait for the second"
    );
    array.handle_stop(NOW);
    let (views, _) = finish(&mut array);
    let [(epoch, Gate::Closed, _)] = views[..] else { panic!("{views:?}") };
    array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
    let (_, events) = finish(&mut array);
    assert_eq!(events, [(41, 0), (42, 0), (43, u64::MAX), (44, u64::MAX)]);
}

/// Guards against an old bug: notices named the member that was out, but no cause.
#[test]
fn each_loss_is_told_with_its_own_cause() {
    let mut array = array(Level::Raid6, 5, |_| u64::MAX);
    activate(&mut array);
    array.handle_report(NOW, SHARD, failed(MemberId(3)));
    // The member fails again, in another way: the notice keeps the first cause.
    let again = Cause { sector: 7, ..cause_of(MemberId(3)) };
    array.handle_report(NOW, SHARD, Report::MemberFailed { cause: again });
    let update = poll_effects(&mut array);
    assert!(update.notices.is_empty(), "nothing is told before it is recorded");
    write(&mut array, &update, &[MemberId(1)]);
    let mut told = Vec::new();
    loop {
        let next = poll_effects(&mut array);
        told.extend(next.notices.iter().copied());
        if next.superblocks.is_empty() {
            break;
        }
        write(&mut array, &next, &[]);
    }
    let by_superblock = outcome(MemberId(1), true).expect_err("it fails").cause;
    let out = |member: u16, cause| {
        let member = MemberId(member);
        Notice::MemberOut { member, slot: braid_geometry::Slot(member.0), cause }
    };
    assert_eq!(told, [out(3, cause_of(MemberId(3))), out(1, by_superblock)]);
}

/// The notice also names the cause if one loss too many breaks the array, or if a file was deleted.
#[test]
fn a_loss_too_many_is_told_with_its_cause() {
    let mut array = array(Level::Raid5, 3, |_| u64::MAX);
    activate(&mut array);
    array.handle_member_gone(NOW, Cause::vanished(MemberId(0)));
    array.handle_report(NOW, SHARD, failed(MemberId(2)));
    let told = poll_effects(&mut array).notices;
    let broken = Notice::Broken { member: MemberId(2), cause: cause_of(MemberId(2)) };
    assert!(told.contains(&broken), "{told:?}");
    let mut array = self::array(Level::Raid1, 2, |_| u64::MAX);
    activate(&mut array);
    array.handle_member_gone(NOW, Cause::vanished(MemberId(0)));
    let update = poll_effects(&mut array);
    write(&mut array, &update, &[]);
    let told = poll_effects(&mut array).notices;
    let (member, cause) = (MemberId(0), Cause::vanished(MemberId(0)));
    let slot = braid_geometry::Slot(0);
    assert_eq!(told, [Notice::MemberOut { member, slot, cause }]);
}

/// Guards against an old bug: the driver's record was a second old. After a kill, a mirror's failed
/// half was served alone.
#[test]
fn a_loss_is_in_the_record_before_anybody_counts_on_it() {
    let mut array = Array::new(setup(Level::Raid1, 2, |_| u64::MAX));
    all_goes_well(&mut array);
    array.handle_keeps_record(NOW, true);
    array.handle_fail_request(NOW, MemberId(0)).expect("the other has all");
    let (mut to_keep, mut seen) = (Vec::new(), Vec::new());
    for is_kept in [false, true] {
        if is_kept {
            array.handle_record_kept(NOW, to_keep[0]);
        }
        while let Some(effect) = array.poll_effect() {
            match effect {
                ArrayEffect::WriteMetadata { member, .. } => {
                    let area = MetadataArea::Superblock;
                    array.handle_metadata_written(NOW, (member, area), Ok(()));
                }
                ArrayEffect::KeepRecord { events } => to_keep.push(events),
                ArrayEffect::Publish(view) => seen.push((is_kept, view.is_used(MemberId(0)))),
                _ => {}
            }
        }
    }
    assert_eq!(to_keep.len(), 1, "only the loss waits for the record");
    let counted_on: Vec<bool> = seen.iter().filter(|one| !one.1).map(|one| one.0).collect();
    assert!(!counted_on.is_empty() && counted_on.iter().all(|is_kept| *is_kept), "{seen:?}");
}

/// An owner gives a member up in the store before superblocks leave it out.
#[test]
fn superblocks_without_a_member_wait_for_the_drivers_consent() {
    let mut array = Array::new(setup(Level::Raid1, 2, |_| u64::MAX));
    all_goes_well(&mut array);
    array.handle_gives_consent(NOW, true);
    array.handle_fail_request(NOW, MemberId(0)).expect("the other has all");
    let mut asked = Vec::new();
    while let Some(effect) = array.poll_effect() {
        match effect {
            ArrayEffect::AskConsent { state } => asked.push(state),
            ArrayEffect::WriteMetadata { .. } => panic!("no superblock is written yet"),
            ArrayEffect::Publish(view) => assert!(view.is_used(MemberId(0)), "it is not relied on"),
            _ => {}
        }
    }
    let [state] = &asked[..] else { panic!("{asked:?}") };
    assert!(state.in_sync().eq([(MemberId(1), braid_geometry::Slot(1))]), "{state:?}");
    array.handle_consent(NOW, state.events - 1);
    assert!(poll_effects(&mut array).superblocks.is_empty(), "another update's consent");
    array.handle_consent(NOW, state.events);
    let update = poll_effects(&mut array);
    assert!(!update.superblocks.is_empty());
    write(&mut array, &update, &[]);
}

/// Lets all requests of the array to members succeed, and returns the last view.
fn all_goes_well(array: &mut Array) -> Option<Arc<ArrayView>> {
    let mut last = None;
    while let Some(effect) = array.poll_effect() {
        match effect {
            ArrayEffect::WriteMetadata { member, record } => {
                let area = match record {
                    MetadataRecord::Bitmap(_) => MetadataArea::Bitmap,
                    _ => MetadataArea::Superblock,
                };
                array.handle_metadata_written(NOW, (member, area), Ok(()));
            }
            ArrayEffect::Publish(view) => last = Some(view),
            _ => {}
        }
    }
    last
}

/// Shards learn late that a bitmap was replaced by a bitmap of another size. Guards against an old
/// bug: until then their reports about old bits went into the new bitmap, whose bits stand for
/// other sectors.
#[test]
fn what_is_said_of_an_old_bitmap_is_not_meant_for_the_new_one() {
    const SECTORS: u64 = 1024;
    let bitmap = |each_sectors: u32| BitmapSuperblock::new(SECTORS, each_sectors * 512, 8);
    let (head, none) = (bitmap(8), Bits::none(SECTORS, 8));
    let bitmap_there = Some(BitmapSetup { head, says: none.clone(), doubt: None, marks: None });
    let mut array = Array::new(ArraySetup {
        bitmap: bitmap_there,
        names_bitmap: Some(true),
        ..setup(Level::Raid5, 3, |_| u64::MAX)
    });
    let of = |view: Option<Arc<ArrayView>>| view?.intent.as_ref().map(|intent| intent.bitmap);
    let old = of(all_goes_well(&mut array)).expect("it has one");
    let wanted = NewBitmap { head: bitmap(64), file: None };
    array.handle_bitmap_request(NOW, Some(wanted)).expect("it can be made anew");
    let new = of(all_goes_well(&mut array)).expect("it has one again");
    assert!(array.is_bitmap_settled() && new != old);
    array.handle_report(NOW, SHARD, Report::WantWrite);
    array.handle_report(NOW, SHARD, Report::WantBits { bitmap: old, from: 2, to: 128 });
    array.handle_report(NOW, SHARD, Report::Touched { bitmap: old, bits: Arc::new(none) });
    array.handle_report(NOW, SHARD, Report::Drained { bitmap: old, revocation: 0 });
    all_goes_well(&mut array);
    assert_eq!(array.bitmap().expect("it has one").bits_set, 0, "nobody asked for bits of it");
    array.handle_report(NOW, SHARD, Report::WantBits { bitmap: new, from: 2, to: 4 });
    let view = all_goes_well(&mut array).expect("bits are opened");
    let open = &view.intent.as_ref().expect("it has one").open;
    assert_eq!(open.iter().collect::<Vec<_>>(), [2, 3]);
}

/// The array's effects, in words, without repeats; all requests to members succeed. If `confirms`,
/// a shard confirms views. `newest` becomes the epoch of the newest view.
fn told(array: &mut Array, confirms: bool, newest: &mut u64) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(effect) = array.poll_effect() {
        match effect {
            ArrayEffect::WriteMetadata { member, record } => {
                let (area, what) = match &record {
                    MetadataRecord::ParityLog(record) if record.is_end => {
                        (MetadataArea::ParityLog, "wipes log".to_owned())
                    }
                    MetadataRecord::ParityLog(_) => (MetadataArea::ParityLog, "log".to_owned()),
                    MetadataRecord::Superblock(state) => {
                        let activity = if state.resync_offset == 0 { "active" } else { "clean" };
                        let named = if state.ppls.is_empty() { "" } else { " ppl" };
                        let counts = if state.log_counts.is_some() { " counts" } else { "" };
                        (MetadataArea::Superblock, format!("{activity}{named}{counts}"))
                    }
                    other => panic!("nothing else is asked for: {other:?}"),
                };
                told.push(what);
                array.handle_metadata_written(NOW, (member, area), Ok(()));
            }
            ArrayEffect::Flush { member } => {
                told.push("flush".to_owned());
                array.handle_flushed(NOW, member, Ok(()));
            }
            ArrayEffect::Publish(view) => {
                let logs = if view.keeps_parity_logs { " logged" } else { "" };
                told.push(format!("{:?}{logs}", view.gate));
                *newest = view.epoch;
                if confirms {
                    let epoch = view.epoch;
                    array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
                }
            }
            _ => {}
        }
    }
    told.dedup();
    told
}

/// The order when logs are created: earlier writes are on the members, superblocks say clean,
/// members have logs, superblocks record the logs, and then writes continue.
#[test]
fn logs_are_made_and_given_up_between_two_writes() {
    let own = LogPlace::Own(OwnLogPlace::of(512));
    let ppl = PplPlace { offset_sectors: 8, size_sectors: 512, multiple: false };
    for (place, clean, active, end) in [
        (own, "clean", "active counts", &["wipes log"][..]),
        (LogPlace::Ppl(ppl), "clean ppl", "active ppl", &[]),
    ] {
        let mut array = self::array(Level::Raid5, 3, |_| u64::MAX);
        let mut epoch = 0;
        array.handle_report(NOW, SHARD, Report::WantWrite);
        told(&mut array, true, &mut epoch);
        let places = (0..3).map(|member| (MemberId(member), place)).collect();
        array.handle_log_request(NOW, Some(places)).expect("it can have them");
        let again = array.handle_log_request(NOW, None);
        assert_eq!(again, Err(LogRefusal::Busy));
        // A shard has a write in flight; another write arrives, and waits.
        assert_eq!(told(&mut array, false, &mut epoch), ["Closed"]);
        array.handle_report(NOW, SHARD, Report::WantWrite);
        assert_eq!(told(&mut array, false, &mut epoch), [""; 0]);
        // The write in flight waits for the later write, so the gate lets the later write in and
        // then closes again.
        array.handle_report(NOW, SHARD, Report::HeldUp { epoch });
        assert_eq!(told(&mut array, false, &mut epoch), ["Open", "Closed"]);
        array.handle_report(NOW, SHARD, Report::WantWrite);
        array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
        let steps = told(&mut array, true, &mut epoch);
        assert_eq!(steps[..6], ["flush", "clean", "Closed", "log", clean, "Closed logged"]);
        assert_eq!(steps[6..8], [active, "Open logged"]);
        assert!(array.are_logs_settled());
        array.handle_log_request(NOW, None).expect("they can be given up");
        let steps = told(&mut array, true, &mut epoch);
        assert_eq!(steps[..4], ["Closed logged", "flush", clean, "Closed logged"]);
        let rest: Vec<&str> = steps[4..].iter().map(String::as_str).collect();
        let is_said = rest.iter().position(|step| *step == "clean").expect("superblocks say so");
        assert!(rest[..is_said].iter().all(|step| !step.contains("Open")), "{rest:?}");
        let wiped: Vec<&str> = rest[is_said..]
            .iter()
            .copied()
            .filter(|step| step.contains("log") && !step.contains("logged"))
            .collect();
        assert_eq!(wiped, end, "{rest:?}");
        assert_eq!(array.parity_logs(), None);
        array.handle_report(NOW, SHARD, Report::WantWrite);
        let steps = told(&mut array, true, &mut epoch);
        assert_eq!(steps[..2], ["active", "Open"], "and no log");
    }
}

/// An array with writes, and with logs at `place` on each member.
fn logging(place: impl Into<LogPlace>) -> (Array, u64) {
    let (mut array, mut epoch, place) =
        (self::array(Level::Raid5, 3, |_| u64::MAX), 0, place.into());
    let places = (0..3).map(|member| (MemberId(member), place)).collect();
    array.handle_log_request(NOW, Some(places)).expect("it can have them");
    array.handle_report(NOW, SHARD, Report::WantWrite);
    told(&mut array, true, &mut epoch);
    (array, epoch)
}

/// Logs and writes a chunk of a row; returns the array's effects.
fn logged((array, epoch): &mut (Array, u64), row: u64, column: u64) -> Vec<String> {
    let parity_slot = u32::try_from(2 - row % 3).expect("one of three");
    let data_sector = row * 16 + column * 8;
    let (parity_bytes, data_bytes) = (4096, 4096);
    let entry = PplEntry { data_sector, parity_bytes, data_bytes, parity_slot, checksum: 0 };
    let ticket = LogTicket(0);
    let entries = vec![LoggedEntry { entry, partial: vec![0; 4096] }];
    array.handle_report(NOW, SHARD, Report::WantLog { ticket, entries });
    let told = told(array, true, epoch);
    array.handle_report(NOW, SHARD, Report::LogOver { ticket });
    told
}

#[test]
fn members_are_flushed_once_a_lap_of_the_log() {
    // Half of the ring has room for 16 records of a header and a chunk each; for 15 if one would
    // cross the ring's end.
    let mut array = logging(OwnLogPlace::of(512));
    let mut flushed = Vec::new();
    for record in 0..80 {
        match &logged(&mut array, 3 * (record % 40), 0)[..] {
            [log] => assert_eq!(log, "log"),
            both => {
                assert_eq!(both, ["flush", "log"], "record {record}");
                flushed.push(record);
            }
        }
    }
    assert_eq!(flushed, [16, 31, 46, 62, 77]);
    // The logs of other members have room of their own, and a flush frees all of it again.
    assert_eq!(logged(&mut array, 1, 0), ["log"]);
}

#[test]
fn a_log_of_one_record_is_written_over_after_a_flush() {
    let small = OwnLogPlace::of(24);
    let ppl = PplPlace { offset_sectors: 8, size_sectors: 512, multiple: true };
    let of_one = OwnLogPlace { size_sectors: 512, is_many: false };
    for place in [LogPlace::Own(small), ppl.into()] {
        let mut array = logging(place);
        assert_eq!(logged(&mut array, 0, 0), ["log"], "{place:?}");
        assert_eq!(logged(&mut array, 1, 0), ["log"], "{place:?}: another member's log");
        assert_eq!(logged(&mut array, 3, 0), ["flush", "log"], "{place:?}");
        assert_eq!(logged(&mut array, 4, 0), ["log"], "{place:?}");
    }
    // A log that an older version made is written anew before use.
    let mut array = logging(of_one);
    assert_eq!(logged(&mut array, 0, 0), ["log"]);
    assert_eq!(logged(&mut array, 3, 0), ["log"]);
}

#[test]
fn rows_are_logged_with_other_columns_after_a_flush() {
    let mut array = logging(OwnLogPlace::of(512));
    assert_eq!(logged(&mut array, 0, 0), ["log"]);
    assert_eq!(logged(&mut array, 0, 0), ["log"], "the same again");
    assert_eq!(logged(&mut array, 0, 1), ["flush", "log"]);
    assert_eq!(logged(&mut array, 3, 0), ["log"], "another row");
}

/// Regression: if a replay cannot read a member, the array needs a resync. The logs were emptied in
/// part, so the newest record was gone. The next start replayed an older record, and skipped the
/// resync.
#[test]
fn a_log_that_counts_is_not_emptied() {
    let place = LogPlace::Own(OwnLogPlace::of(512));
    let logs = (0..3).map(|member| {
        let newest = (member == 2).then_some((4, 64));
        (MemberId(member), ParityLogSetup { place, newest })
    });
    let doubtful = ArraySetup {
        parity_logs: Some(logs.collect()),
        log_counts: true,
        is_unclean: true,
        resync_offset: 0,
        ..setup(Level::Raid5, 3, |_| u64::MAX)
    };
    let (mut array, mut epoch) = (Array::new(doubtful), 0);
    array.handle_report(NOW, SHARD, Report::WantWrite);
    let steps = told(&mut array, true, &mut epoch);
    let writes: Vec<&str> =
        steps.iter().map(String::as_str).filter(|step| !step.starts_with("Closed")).collect();
    assert_eq!(writes[..2], ["active", "Open"], "superblocks say first that no log counts");
}

/// A resync ends during an update that says active without a log. That update records the older
/// state.
#[test]
fn a_resync_that_ends_while_the_array_turns_active_turns_no_log_on() {
    let place = LogPlace::Own(OwnLogPlace::of(512));
    let logs = (0..3).map(|member| (MemberId(member), ParityLogSetup { place, newest: None }));
    let mut array = Array::new(ArraySetup {
        parity_logs: Some(logs.collect()),
        resync_offset: 0,
        jobs_paused: false,
        ..setup(Level::Raid5, 3, |_| u64::MAX)
    });
    let (mut flushes, mut superblocks) = (Vec::new(), Vec::new());
    let (mut counts, mut logs_everything) = (false, false);
    let mut run = |array: &mut Array, flushes: &mut Vec<MemberId>, superblocks: &mut Vec<_>| {
        while let Some(effect) = array.poll_effect() {
            match effect {
                ArrayEffect::Work { work, .. } => {
                    let outcome = Outcome::Done { written: 0 };
                    array.handle_report(NOW, SHARD, Report::WorkDone { id: work.id, outcome });
                }
                ArrayEffect::Flush { member } => flushes.push(member),
                ArrayEffect::WriteMetadata {
                    member,
                    record: MetadataRecord::Superblock(state),
                } => superblocks.push((member, state)),
                ArrayEffect::WriteMetadata { member, .. } => {
                    array.handle_metadata_written(NOW, (member, MetadataArea::ParityLog), Ok(()));
                }
                ArrayEffect::Publish(view) => {
                    logs_everything = view.keeps_parity_logs;
                    let epoch = view.epoch;
                    array.handle_report(NOW, SHARD, Report::ViewInForce { epoch });
                }
                _ => {}
            }
        }
        logs_everything
    };
    run(&mut array, &mut flushes, &mut superblocks);
    assert_eq!(flushes.len(), 3, "the resync is over but for its flush");
    array.handle_report(NOW, SHARD, Report::WantWrite);
    run(&mut array, &mut flushes, &mut superblocks);
    assert!(!superblocks.is_empty(), "the array turns active");
    for member in std::mem::take(&mut flushes) {
        array.handle_flushed(NOW, member, Ok(()));
    }
    // Superblocks are written one after the other, without any other event.
    for _ in 0..8 {
        for (member, state) in std::mem::take(&mut superblocks) {
            counts = state.log_counts.is_some();
            array.handle_metadata_written(NOW, (member, MetadataArea::Superblock), Ok(()));
        }
        let is_logged = run(&mut array, &mut flushes, &mut superblocks);
        assert!(counts || !is_logged, "no shard counts on a log of which superblocks say nothing");
    }
}
