//! Plans that believe members by force, for every combination of states of four members of a RAID-5
//! or five of a RAID-6.

use std::collections::BTreeSet;

use braid_assembly::rescue::{MemberUse, MissedWrites, Outcome, Plan, plan, without};
use braid_assembly::{Options, ProbedMember, Reason, Refusal, Verdict, assemble};
use braid_geometry::Level;
use braid_ondisk::{BitmapKind, Role, format_uuid};

use crate::kit::{
    EVENTS, add_bitmap, add_events, array, edit, fail, set_dirty, set_role, superblock,
};

/// The state of a member, relative to the newest member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// The member dropped out this many events ago, and the newest table calls it faulty.
    Dropped(u64),
    /// The member missed an update; the newest table counts it in.
    Behind,
    Newest,
}

const STATES: [State; 5] =
    [State::Newest, State::Behind, State::Dropped(1), State::Dropped(2), State::Dropped(5)];

fn events_of(state: State) -> u64 {
    match state {
        State::Newest => EVENTS,
        State::Behind => EVENTS - 1,
        State::Dropped(count) => EVENTS - count,
    }
}

/// Members in these states. Each member's table calls the members faulty that dropped out before
/// its own last update.
fn members_in(level: Level, states: &[State]) -> Vec<ProbedMember> {
    let slots = u16::try_from(states.len()).expect("few");
    let mut members = array(level, slots);
    for (index, member) in members.iter_mut().enumerate() {
        let own = events_of(states[index]);
        for (other, state) in states.iter().enumerate() {
            let dropped = matches!(state, State::Dropped(_)) && events_of(*state) < own;
            if dropped && other != index {
                set_role(member, other, Role::Faulty);
            }
        }
        edit(member, |superblock| superblock.state.events = own);
    }
    members
}

/// The expected choice of members: those with the highest event counts, until they suffice. All
/// members of one count come together.
fn expected(level: Level, states: &[State]) -> Option<BTreeSet<usize>> {
    let needed = states.len() - if level == Level::Raid6 { 2 } else { 1 };
    let is_sound = |state: &State| matches!(state, State::Newest | State::Behind);
    let sound = states.iter().filter(|state| is_sound(state)).count();
    let mut believed = BTreeSet::new();
    for count in [1, 2, 5] {
        if sound + believed.len() >= needed {
            break;
        }
        let of_count = (0..states.len()).filter(|index| states[*index] == State::Dropped(count));
        believed.extend(of_count);
    }
    (sound + believed.len() >= needed).then_some(believed)
}

fn planned(members: &[ProbedMember], asked: &[usize]) -> Plan {
    plan(members, &Options::default(), &asked.iter().copied().collect())
}

fn every_case(level: Level, slots: usize, check: impl Fn(&[State], &[ProbedMember])) {
    let mut counts = 0;
    for case in 0..STATES.len().pow(u32::try_from(slots).expect("few")) {
        let mut rest = case;
        let next = |_| {
            let state = STATES[rest % STATES.len()];
            rest /= STATES.len();
            state
        };
        let states: Vec<State> = (0..slots).map(next).collect();
        if !states.contains(&State::Newest) {
            continue;
        }
        check(&states, &members_in(level, &states));
        counts += 1;
    }
    assert!(counts > 300, "{counts} cases");
}

#[test]
fn whoever_is_believed_is_of_the_newest_that_suffice() {
    for (level, slots) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        every_case(level, slots, |states, members| {
            let plan = planned(members, &[]);
            let believed: BTreeSet<usize> = plan.believed().collect();
            let expected = expected(level, states).expect("all of them together suffice");
            assert_eq!(believed, expected, "{level} {states:?}: {:?}", plan.member_uses);
            assert!(plan.array.is_ok(), "{level} {states:?}: {:?}", plan.array);
            assert_eq!(plan.refusal.is_some(), !expected.is_empty(), "{states:?}");
            for (index, member_use) in plan.member_uses.iter().enumerate() {
                let is_sound = matches!(states[index], State::Newest | State::Behind);
                assert_eq!(*member_use == MemberUse::Used, is_sound, "{states:?}: {member_use:?}");
            }
        });
    }
}

#[test]
fn what_a_plan_would_write_makes_its_array() {
    every_case(Level::Raid5, 4, |states, members| {
        let plan = planned(members, &[]);
        let read_only = Options { read_only: true, ..Options::default() };
        let again = assemble(&plan.members(members), &read_only);
        assert_eq!(again.array, plan.array, "{states:?}");
        // The plan's superblocks do not bring back members that are left out.
        for (index, member_use) in plan.member_uses.iter().enumerate() {
            let is_in = again.verdicts[index].verdict.slot().is_some();
            let expected = matches!(member_use, MemberUse::Used | MemberUse::Believed { .. });
            assert_eq!(is_in, expected, "{states:?}: {:?}", again.verdicts[index]);
        }
    });
}

/// A disk that failed in the last update is one event behind. braid once believed a disk in this
/// state, which ruined a RAID-6.
#[test]
fn a_faulty_member_one_event_behind_follows_the_newest_table() {
    let mut members = array(Level::Raid6, 5);
    fail(&mut members, 2);
    let plan = planned(&members, &[]);
    assert_eq!(plan.believed().count(), 0);
    assert!(plan.refusal.is_none());
    assert_eq!(plan.member_uses[2], MemberUse::LeftOut { slot: 2, can_be_asked_for: true });
    let reason = &plan.verdicts[2].reason;
    assert!(matches!(reason, Reason::MarkedFaulty { .. }), "{reason:?}");
    // Three members are enough for a plan, so the faulty member stays out even if two more are
    // gone.
    let gone: Vec<ProbedMember> = members[..3].iter().chain(&members[4..]).cloned().collect();
    assert_eq!(planned(&gone, &[]).believed().count(), 0);
    // The operator may name the faulty member.
    let asked = planned(&members, &[2]);
    assert_eq!(asked.believed().collect::<Vec<_>>(), [2]);
    assert_eq!(asked.array.expect("an array").degraded, 0);
}

#[test]
fn what_was_missed_is_what_the_bitmap_names() {
    let mut members = array(Level::Raid5, 3);
    fail(&mut members, 0);
    fail(&mut members[1..], 0);
    for member in &mut members[2..] {
        add_events(member, 2);
        set_role(member, 1, Role::Faulty);
    }
    set_dirty(&mut members[2..], 0);
    let newest_events = superblock(&members[2]).state.events;
    add_bitmap(&mut members, BitmapKind::Classic, newest_events);
    for member in &mut members {
        let bitmap = member.bitmap.as_mut().expect("a bitmap").as_mut().expect("sound");
        bitmap.superblock.events_cleared = EVENTS;
        bitmap.bits.set(3);
    }
    let plan = planned(&members, &[]);
    assert!(matches!(plan.refusal, Some(Refusal::TooFewMembers { .. })), "{:?}", plan.refusal);
    assert_eq!(plan.believed().collect::<Vec<_>>(), [1], "not the one that dropped out first");
    let MemberUse::Believed { slot: 1, missed: MissedWrites::Within(ranges) } =
        &plan.member_uses[1]
    else {
        panic!("{:?}", plan.member_uses);
    };
    assert!(matches!(&ranges[..], [range] if *range == (384..512)), "{ranges:?}");
    assert_eq!(plan.stripes_at_risk(), 1, "{:?}", plan.array);
    // A bitmap that has cleared bits since the member dropped out does not name all missed writes.
    for member in &mut members {
        let bitmap = member.bitmap.as_mut().expect("a bitmap").as_mut().expect("sound");
        bitmap.superblock.events_cleared = newest_events;
    }
    let plan = planned(&members, &[]);
    assert_eq!(
        plan.member_uses[1],
        MemberUse::Believed { slot: 1, missed: MissedWrites::Anywhere }
    );
}

#[test]
fn views_say_what_comes_of_the_others() {
    let mut members = array(Level::Raid5, 4);
    fail(&mut members, 3);
    fail(&mut members, 3);
    let none = BTreeSet::new();
    let view = |index| without(&members, &Options::default(), &none, index);
    let runs = |degraded, believed| Outcome::Runs { degraded, believed, stripes_at_risk: 0 };
    assert_eq!(view(3), runs(1, 0));
    // Without a sound member the old member is needed. Then all data may be stale, and nothing is
    // computed.
    match view(0) {
        Outcome::Runs { degraded: 1, believed: 1, stripes_at_risk } => {
            assert!(stripes_at_risk > 0);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_told_apart_is_not_believed() {
    // If the array ran in two halves, members of the other half stay out.
    let mut members = array(Level::Raid5, 4);
    for (index, member) in members.iter_mut().enumerate() {
        let others: [usize; 2] = if index < 2 { [2, 3] } else { [0, 1] };
        others.into_iter().for_each(|other| set_role(member, other, Role::Faulty));
        add_events(member, if index < 2 { 4 } else { 2 });
    }
    let plan = planned(&members, &[]);
    assert_eq!(plan.believed().count(), 0, "{:?}", plan.member_uses);
    assert!(matches!(plan.array, Err(Refusal::TooFewMembers { .. })));
    assert_eq!(planned(&members, &[2]).believed().collect::<Vec<_>>(), [2]);
    // A clone is given together with the dropped member: no rule tells which device is right.
    let mut members = array(Level::Raid5, 3);
    fail(&mut members, 2);
    fail(&mut members, 2);
    let mut clone = members[2].clone();
    (clone.label, clone.identity) = ("clone".to_owned(), "clone".to_owned());
    members[1] = clone;
    let plan = planned(&members, &[]);
    assert_eq!(plan.believed().count(), 0, "{:?}", plan.member_uses);
    // A member with an unfinished recovery is not believed: it holds no data after its recovery
    // offset.
    let mut members = array(Level::Raid5, 3);
    fail(&mut members, 2);
    fail(&mut members[1..], 1);
    edit(&mut members[2], |one| one.device.recovery_offset_sectors = Some(128));
    let plan = planned(&members[1..], &[1]);
    assert_eq!(plan.believed().count(), 0, "{:?}", plan.member_uses);
    // A member of another array stays foreign.
    let other = crate::kit::array_with(Level::Raid5, 3, 0, 9);
    let mixed = [&members[..1], &other[..]].concat();
    let options = Options {
        choice: braid_assembly::Choice { uuid: Some([9; 16]), name: None },
        ..Options::default()
    };
    let plan = braid_assembly::rescue::plan(&mixed, &options, &[0].into());
    assert_eq!(plan.member_uses[0], MemberUse::Apart, "{}", format_uuid(&[9; 16]));
    assert_eq!(plan.verdicts[0].verdict, Verdict::Foreign);
}
