//! Properties under any mishaps: the members' order does not matter, and no member that missed a
//! write is read.

use std::collections::{BTreeMap, BTreeSet};

use crate::kit::{
    add_events, add_feature, array_with, blank, edit, set_dirty, set_role, superblock,
};
use braid_assembly::{Assembly, Options, ProbedMember, assemble};
use braid_geometry::Level;
use braid_ondisk::{Features, Role};
use proptest::prelude::*;

/// An accident to one member, or to the entry for another member in its table.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    Events(u64),
    Believes(usize, bool),
    Recovering(u64),
    Replacement,
    Dirty(u64),
    Cloned,
    SeenTwice,
    Blank,
    Gone,
}

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        4 => (0_u64..4).prop_map(Mishap::Events),
        3 => (0_usize..6, any::<bool>()).prop_map(|(whom, spare)| Mishap::Believes(whom, spare)),
        1 => (0_u64..9000).prop_map(Mishap::Recovering),
        1 => Just(Mishap::Replacement),
        1 => (0_u64..9000).prop_map(Mishap::Dirty),
        1 => Just(Mishap::Cloned),
        1 => Just(Mishap::SeenTwice),
        1 => Just(Mishap::Blank),
        2 => Just(Mishap::Gone),
    ]
}

/// The members of an array after a number of mishaps, in order of labels. Sometimes members of a
/// second array are among them.
fn mess() -> impl Strategy<Value = Vec<ProbedMember>> {
    let level = prop_oneof![
        Just(Level::Raid0),
        Just(Level::Raid1),
        Just(Level::Raid5),
        Just(Level::Raid6),
        Just(Level::Raid10)
    ];
    let mishaps = prop::collection::vec((0_usize..6, mishap()), 0..10);
    (level, mishaps, 0_usize..8).prop_map(|(level, mishaps, strangers)| {
        let mut members = array_with(level, 4, 2, 7);
        // A device that is seen twice has one superblock under both labels, so this mishap is
        // applied last.
        let (seen, others): (Vec<_>, Vec<_>) =
            mishaps.into_iter().partition(|(_, mishap)| matches!(mishap, Mishap::SeenTwice));
        for (whom, mishap) in others.into_iter().chain(seen) {
            strike(&mut members, whom, mishap);
        }
        members.retain(|member| member.size_bytes > 0);
        let others =
            array_with(Level::Raid1, 2, 0, 9).into_iter().take(strangers.saturating_sub(5));
        members.extend(others.map(|other| {
            let label = format!("other {}", other.label);
            ProbedMember { identity: label.clone(), label, ..other }
        }));
        members
    })
}

fn strike(members: &mut Vec<ProbedMember>, whom: usize, mishap: Mishap) {
    let member = &mut members[whom];
    if member.probe.is_blank() {
        return;
    }
    match mishap {
        Mishap::Events(events) => add_events(member, events),
        Mishap::Believes(other, spare) => {
            set_role(member, other, if spare { Role::Spare } else { Role::Faulty });
        }
        Mishap::Recovering(sectors) => {
            edit(member, |superblock| superblock.device.recovery_offset_sectors = Some(sectors));
        }
        Mishap::Replacement => add_feature(&mut members[whom..=whom], Features::REPLACEMENT),
        Mishap::Dirty(offset) => set_dirty(&mut members[whom..=whom], offset),
        Mishap::Cloned | Mishap::SeenTwice => {
            let mut copy = member.clone();
            copy.label = format!("{} copy {}", copy.label, members.len());
            if matches!(mishap, Mishap::Cloned) {
                copy.identity.clone_from(&copy.label);
            }
            members.push(copy);
        }
        Mishap::Blank => *member = blank(&member.label),
        // Members without size are removed at the end, so that indices stay valid until the end.
        Mishap::Gone => member.size_bytes = 0,
    }
}

/// The decision, with labels in place of indices.
fn by_label(
    members: &[ProbedMember],
    assembly: &Assembly,
) -> impl PartialEq + std::fmt::Debug + use<> {
    let label = |index: usize| members[index].label.clone();
    let verdicts: BTreeMap<String, String> = assembly
        .verdicts
        .iter()
        .map(|judged| (judged.label.clone(), format!("{:?} {}", judged.verdict, judged.reason)))
        .collect();
    let array = assembly.array.clone().map(|mut array| {
        let occupant = |occupant: &braid_assembly::Occupant| {
            (label(occupant.member), occupant.recovered_until)
        };
        let slots: Vec<_> = array.slots.iter().map(|slot| slot.as_ref().map(occupant)).collect();
        let spares: Vec<String> = array.spares.iter().map(|&index| label(index)).collect();
        let replacements: Vec<_> =
            array.replacements.iter().map(|(slot, one)| (*slot, occupant(one))).collect();
        let newest = label(array.newest_member);
        (array.slots, array.spares, array.newest_member) = (vec![], vec![], 0);
        array.replacements.clear();
        (slots, replacements, spares, newest, array)
    });
    (verdicts, array)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_shuffle_gives_the_same_result(
        (members, shuffled) in mess().prop_flat_map(|members| {
            (Just(members.clone()), Just(members).prop_shuffle())
        }),
        (accept_risk, read_only) in any::<(bool, bool)>(),
    ) {
        let accept_risk = accept_risk.then_some(u64::MAX);
        let options = Options { accept_risk, read_only, ..Options::default() };
        let (one, other) = (assemble(&members, &options), assemble(&shuffled, &options));
        prop_assert_eq!(one.verdicts.len(), members.len());
        for (member, judged) in members.iter().zip(&one.verdicts) {
            prop_assert_eq!(&member.label, &judged.label);
        }
        prop_assert_eq!(by_label(&members, &one), by_label(&shuffled, &other));
    }

    /// Checks the rule for used members in its plainest form, whatever assembly decided.
    #[test]
    fn nobody_is_used_who_missed_a_write_or_was_given_up(members in mess(), read_only: bool) {
        let options = Options { accept_risk: Some(u64::MAX), read_only, ..Options::default() };
        let assembly = assemble(&members, &options);
        let Ok(array) = &assembly.array else { return Ok(()) };
        let used: Vec<_> = array.slots.iter().flatten().collect();
        let identities: BTreeSet<&String> =
            used.iter().map(|occupant| &members[occupant.member].identity).collect();
        prop_assert_eq!(identities.len(), used.len(), "a device in two slots");
        let newest_events = members
            .iter()
            .filter_map(|member| member.probe.newest())
            .filter(|superblock| superblock.array.uuid == array.newest.array.uuid)
            .filter(|superblock| matches!(superblock.state.role, Role::Active(_)))
            .map(|superblock| superblock.state.events)
            .max();
        prop_assert_eq!(newest_events, Some(array.newest.state.events));
        for (slot, occupant) in (0..).zip(&array.slots) {
            let Some(occupant) = occupant else { continue };
            let superblock = superblock(&members[occupant.member]);
            prop_assert_eq!(assembly.verdicts[occupant.member].verdict.slot(), Some(slot));
            prop_assert!(superblock.state.events + 1 >= array.newest.state.events);
            prop_assert_eq!(superblock.state.role, Role::Active(slot));
            let number = usize::try_from(superblock.device.number).expect("small");
            prop_assert_eq!(array.newest.state.roles[number], Role::Active(slot));
            let recovered = superblock.device.recovery_offset_sectors.unwrap_or(u64::MAX);
            prop_assert!(occupant.recovered_until <= recovered);
        }
        let in_sync = used.iter().filter(|occupant| occupant.is_in_sync()).count();
        prop_assert_eq!(array.slots.len() - in_sync, usize::from(array.degraded));
    }
}
