//! Old copies of members. Superblocks reveal some old copies, the record reveals others, and
//! nothing reveals the rest. One test for each row of the table in docs/on-disk.md.

use crate::kit::{CLEAN, EVENTS, array, codes, edit_all, judge, set_role, superblock};
use braid_assembly::{
    Assembly, Options, ProbedMember, Reason, RecordedState, Refusal, StateMember, assemble,
};
use braid_geometry::Level;
use braid_ondisk::{Role, Timestamp};

const DIRTY: u64 = 0;

fn at(seconds: u64) -> Timestamp {
    Timestamp { seconds: 1_700_000_000 + seconds, microseconds: 0 }
}

/// Writes the same state to every member: events (added to those at creation), time, and clean or
/// not.
fn tell(members: &mut [ProbedMember], events: u64, seconds: u64, resync_offset: u64) {
    edit_all(members, |superblock| {
        superblock.state.events = EVENTS + events;
        superblock.state.update_time = at(seconds);
        superblock.state.resync_offset = resync_offset;
    });
}

/// The record of the state that these members have.
fn known(members: &[ProbedMember]) -> RecordedState {
    let newest = superblock(&members[0]);
    let member = |(slot, member): (u16, &ProbedMember)| {
        let device = &superblock(member).device;
        StateMember { slot, number: device.number, uuid: device.uuid }
    };
    RecordedState {
        uuid: newest.array.uuid,
        creation_time: newest.array.creation_time,
        events: newest.state.events,
        update_time: newest.state.update_time,
        members: (0..).zip(members).map(member).collect(),
    }
}

fn judge_knowing(members: &[ProbedMember], known: &RecordedState) -> Assembly {
    assemble(members, &Options { known: vec![known.clone()], ..Options::default() })
}

fn judge_accepting(members: &[ProbedMember], known: &RecordedState) -> Assembly {
    let options = Options { known: vec![known.clone()], accept_older: true, ..Options::default() };
    assemble(members, &options)
}

/// Levels, slots, and the member that an old copy replaces.
const ARRAYS: [(Level, u16, usize); 3] =
    [(Level::Raid1, 2, 0), (Level::Raid5, 4, 1), (Level::Raid6, 4, 3)];

/// The codes of the verdicts if member `old` is stale and all others are fresh.
fn all_but(slots: u16, old: usize) -> Vec<&'static str> {
    (0..usize::from(slots)).map(|one| if one == old { "stale" } else { "fresh" }).collect()
}

fn all_fresh(slots: u16) -> Vec<&'static str> {
    vec!["fresh"; usize::from(slots)]
}

#[test]
fn a_member_put_back_from_before_a_run_that_wrote_is_stale() {
    for (level, slots, old) in ARRAYS {
        let mut members = array(level, slots);
        let copy = members[old].clone();
        // braid writes four updates: active, active again, clean, clean again. If it is killed
        // while active, its members are two events ahead.
        for (events, resync_offset) in [(4, CLEAN), (2, DIRTY)] {
            tell(&mut members, events, 9, resync_offset);
            members[old] = copy.clone();
            assert_eq!(codes(&judge(&members)), all_but(slots, old), "{level}");
        }
    }
}

#[test]
fn an_old_copy_with_the_newest_count_is_told_by_its_time() {
    for (level, slots, old) in ARRAYS {
        let mut members = array(level, slots);
        let copy = members[old].clone();
        // md adds one event when the array becomes active, and takes one back when it turns clean.
        tell(&mut members, 0, 9, CLEAN);
        members[old] = copy;
        let judged = judge(&members);
        assert_eq!(codes(&judged), all_but(slots, old), "{level}");
        assert!(matches!(judged.verdicts[old].reason, Reason::OlderUpdate { .. }));
        let accepted = Options { accept_older: true, ..Options::default() };
        assert_eq!(codes(&assemble(&members, &accepted)), all_fresh(slots), "{level}");
    }
}

/// A sleeping spare keeps the time of the last update that it took, and is never read.
#[test]
fn a_sleeping_spare_is_not_an_old_copy() {
    let mut members = crate::kit::array_with(Level::Raid5, 3, 1, 7);
    tell(&mut members[..3], 0, 9, CLEAN);
    assert_eq!(codes(&judge(&members)), ["fresh", "fresh", "fresh", "spare"]);
}

#[test]
fn an_update_that_was_cut_short_costs_nobody_and_is_said() {
    for (level, slots, old) in ARRAYS {
        let mut members = array(level, slots);
        let copy = members[old].clone();
        tell(&mut members, 1, 9, DIRTY);
        let known = known(&array(level, slots));
        members[old] = copy;
        for judged in [judge(&members), judge_knowing(&members, &known)] {
            assert_eq!(codes(&judged), all_fresh(slots), "{level}");
            assert!(matches!(judged.verdicts[old].reason, Reason::OneBehind { .. }));
        }
    }
}

#[test]
fn a_step_back_that_was_cut_short_costs_nobody() {
    for (level, slots, told) in ARRAYS {
        let mut members = array(level, slots);
        tell(&mut members, 1, 5, DIRTY);
        let known = known(&members);
        // md's update to clean, with one event less, reaches one of the members.
        tell(&mut members[told..=told], 0, 9, CLEAN);
        for judged in [judge(&members), judge_knowing(&members, &known)] {
            assert_eq!(codes(&judged), all_fresh(slots), "{level}");
            assert!(judged.array.expect("an array").dirty, "a member says so");
        }
    }
}

/// The copy is one event behind, as after a kill of md or with a sleeping spare. A kill of braid
/// between the two updates of a change also leaves such a copy.
#[test]
fn an_old_copy_one_behind_is_told_by_the_record_alone() {
    for (level, slots, old) in ARRAYS {
        let mut members = array(level, slots);
        let copy = members[old].clone();
        tell(&mut members, 1, 9, DIRTY);
        let known = known(&members);
        members[old] = copy;
        assert_eq!(codes(&judge(&members)), all_fresh(slots), "{level}: as if cut short");
        let judged = judge_knowing(&members, &known);
        assert_eq!(codes(&judged), all_but(slots, old), "{level}");
        assert!(matches!(judged.verdicts[old].reason, Reason::OlderThanKnown { .. }));
    }
}

/// md counts one event back, so the copy has the newest count.
#[test]
fn an_old_copy_from_while_md_was_writing_is_told_by_the_record_alone() {
    for (level, slots, old) in ARRAYS {
        let mut members = array(level, slots);
        tell(&mut members, 1, 5, DIRTY);
        let copy = members[old].clone();
        tell(&mut members, 0, 9, CLEAN);
        let known = known(&members);
        members[old] = copy;
        let judged = judge(&members);
        assert_eq!(codes(&judged), all_fresh(slots), "{level}: as a step back that was cut short");
        assert!(judged.array.expect("an array").dirty);
        assert_eq!(codes(&judge_knowing(&members, &known)), all_but(slots, old), "{level}");
    }
}

/// A power cut let an update reach one member only. Then the other members ran without that member.
#[test]
fn an_old_copy_that_is_one_ahead_is_told_by_the_record_alone() {
    let mut members = array(Level::Raid5, 4);
    tell(&mut members, 1, 5, DIRTY);
    let ahead = members[2].clone();
    tell(&mut members, 2, 9, DIRTY);
    let known = known(&members);
    members[2] = ahead;
    assert_eq!(codes(&judge(&members)), all_fresh(4));
    assert_eq!(codes(&judge_knowing(&members, &known)), all_but(4, 2));
}

/// A snapshot from the middle of a run is restored after that run was killed.
#[test]
fn a_copy_from_within_the_same_update_is_told_by_nothing() {
    let mut members = array(Level::Raid5, 4);
    tell(&mut members, 2, 5, DIRTY);
    assert_eq!(codes(&judge_knowing(&members, &known(&members))), all_fresh(4));
}

/// 0.90 keeps update times in seconds, and so does md. So two updates in one second can have one
/// count and one time.
#[test]
fn two_updates_of_one_second_with_one_count_are_told_by_nothing() {
    let mut members = array(Level::Raid1, 2);
    tell(&mut members, 0, 9, CLEAN);
    tell(&mut members[1..], 0, 9, CLEAN);
    assert_eq!(codes(&judge_knowing(&members, &known(&members))), all_fresh(2));
}

#[test]
fn under_md_with_a_clock_that_went_back_the_later_time_is_believed() {
    let mut members = array(Level::Raid5, 4);
    tell(&mut members, 0, 100, CLEAN);
    let copy = members[1].clone();
    tell(&mut members, 0, 9, CLEAN);
    let record = known(&members);
    members[1] = copy;
    let judged = judge(&members);
    assert_eq!(codes(&judged), ["stale", "fresh", "stale", "stale"]);
    assert!(matches!(judged.array, Err(Refusal::TooFewMembers { .. })), "and not served");
    assert!(judge_knowing(&members, &record).array.is_err(), "the record is of no help either");
    let accepted = Options { accept_older: true, ..Options::default() };
    assert_eq!(codes(&assemble(&members[..1], &accepted)), ["fresh"]);
}

#[test]
fn all_members_put_back_are_refused_by_the_record_until_a_person_says_so() {
    for (level, slots, _) in ARRAYS {
        let backup = array(level, slots);
        let mut members = backup.clone();
        tell(&mut members, 4, 9, CLEAN);
        let known = known(&members);
        assert_eq!(codes(&judge(&backup)), all_fresh(slots), "superblocks agree");
        let judged = judge_knowing(&backup, &known);
        assert_eq!(codes(&judged), vec!["stale"; usize::from(slots)]);
        let Err(Refusal::OlderThanKnown { events, known_events, members }) = judged.array else {
            panic!("{:?}", judged.array)
        };
        assert_eq!((events, known_events, members.len()), (EVENTS, EVENTS + 4, usize::from(slots)));
        assert_eq!(codes(&judge_accepting(&backup, &known)), all_fresh(slots));
    }
}

#[test]
fn the_lost_half_of_a_mirror_alone_is_refused_by_the_record() {
    let mut members = array(Level::Raid1, 2);
    let lost = members[1].clone();
    set_role(&mut members[0], 1, Role::Faulty);
    tell(&mut members[..1], 4, 9, CLEAN);
    let known = known(&members[..1]);
    assert_eq!(codes(&judge(std::slice::from_ref(&lost))), ["fresh"], "it calls everything well");
    let judged = judge_knowing(&[lost], &known);
    assert!(matches!(judged.array, Err(Refusal::OlderThanKnown { .. })), "{:?}", judged.array);
}

#[test]
fn of_a_clone_and_its_member_the_record_tells_the_older() {
    let mut members = array(Level::Raid5, 3);
    let mut clone = members[2].clone();
    (clone.label, clone.identity) = ("clone".to_owned(), "clone".to_owned());
    tell(&mut members, 2, 9, DIRTY);
    let record = known(&members);
    members.push(clone);
    let refused = judge(&members).array;
    assert!(matches!(refused, Err(Refusal::SlotClaimedTwice { .. })), "{refused:?}");
    assert_eq!(codes(&judge_knowing(&members, &record)), ["fresh", "fresh", "fresh", "stale"]);
}

/// A member and its clone each ran alone, equally often. braid believed the device that ran later,
/// though each had writes that the other lacked. In 0.90 devices have no UUID.
#[test]
fn a_clone_that_ran_as_often_as_its_member_is_refused() {
    for uuid in [[7; 16], [0; 16]] {
        let mut members = array(Level::Raid1, 2);
        set_role(&mut members[0], 1, Role::Faulty);
        crate::kit::edit(&mut members[0], |superblock| superblock.device.uuid = uuid);
        members.truncate(1);
        tell(&mut members, 2, 5, DIRTY);
        let mut clone = members[0].clone();
        (clone.label, clone.identity) = ("clone".to_owned(), "clone".to_owned());
        members.push(clone);
        tell(&mut members[1..], 2, 9, DIRTY);
        let refused = judge(&members).array;
        assert!(matches!(refused, Err(Refusal::SlotClaimedTwice { .. })), "{refused:?}");
    }
}

/// A member ran alone, and its clone ran with the other members, whose tables have the clone in.
/// braid once used the member with the others, because the member was only one event behind.
#[test]
fn a_member_that_calls_the_newest_out_is_of_another_line() {
    let mut members = array(Level::Raid1, 3);
    let mut alone = members[0].clone();
    set_role(&mut alone, 1, Role::Faulty);
    set_role(&mut alone, 2, Role::Faulty);
    tell(std::slice::from_mut(&mut alone), 3, 5, CLEAN);
    tell(&mut members, 4, 9, CLEAN);
    members[0] = alone;
    let judged = judge(&members);
    assert_eq!(codes(&judged), ["faulty", "fresh", "fresh"]);
    assert!(matches!(judged.verdicts[0].reason, Reason::RanApart { .. }));
}

/// A record does no harm if it is older, of another array, or of an array made anew under the same
/// UUID.
#[test]
fn a_record_of_something_else_harms_nobody() {
    let mut members = array(Level::Raid5, 3);
    let mut other = known(&members);
    (other.events, other.uuid) = (EVENTS + 9, [9; 16]);
    assert_eq!(codes(&judge_knowing(&members, &other)), all_fresh(3));
    (other.uuid, other.creation_time) = (known(&members).uuid, at(5));
    assert_eq!(codes(&judge_knowing(&members, &other)), all_fresh(3));
    let before = known(&members);
    // md ran the array since the record: active, and then clean again, later and with the recorded
    // count.
    for (events, seconds, resync_offset) in [(1, 5, DIRTY), (0, 6, CLEAN), (3, 1, CLEAN)] {
        tell(&mut members, events, seconds, resync_offset);
        assert_eq!(codes(&judge_knowing(&members, &before)), all_fresh(3), "{events}");
    }
}
