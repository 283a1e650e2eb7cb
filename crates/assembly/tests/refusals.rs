//! One scenario per refusal, and what each of them says.

mod kit;

use braid_assembly::{AtRisk, Options, ReadOnlyReason, Refusal, assemble};
use braid_geometry::{GeometryError, Level};
use braid_ondisk::{BitmapError, BitmapKind, Features, PplPlace, Reshape, Role};
use kit::{
    EVENTS, add_bitmap, add_events, add_feature, array, array_with, blank, codes, damage, edit,
    edit_all, fail, judge, judge_read_only, refusal, set_dirty, set_role, superblock,
};

#[test]
fn nothing_and_strangers_are_no_array() {
    assert_eq!(refusal(&[]), Refusal::NoMembers { wanted: None });
    assert_eq!(refusal(&[blank("a"), blank("b")]), Refusal::NoMembers { wanted: None });
}

#[test]
fn several_arrays_are_listed() {
    let mut members = array(Level::Raid1, 2);
    members.extend(array_with(Level::Raid5, 3, 0, 3));
    for (index, member) in members.iter_mut().enumerate() {
        member.identity = index.to_string();
    }
    let assembly = judge(&members);
    assert_eq!(codes(&assembly), ["foreign"; 5]);
    let refusal = assembly.array.expect_err("two arrays");
    assert_eq!(
        refusal.to_string(),
        "these devices belong to several arrays: \
         host:array3 03030303:03030303:03030303:03030303 (3 here), \
         host:array7 07070707:07070707:07070707:07070707 (2 here)"
    );
}

#[test]
fn two_members_lost_from_raid5_are_too_many() {
    let members = array(Level::Raid5, 4);
    let assembly = judge(&members[1..3]);
    assert_eq!(codes(&assembly), ["fresh", "fresh"]);
    let expected = Refusal::TooFewMembers { have: 2, need: 3, slots: 4, missing: vec![0, 3] };
    assert_eq!(assembly.array, Err(expected.clone()));
    assert_eq!(
        expected.to_string(),
        "too few members: 2 of 4 are up to date, at least 3 are needed; missing: slot 0, 3"
    );
}

#[test]
fn a_stale_copy_is_not_served_when_the_newer_ones_are_damaged() {
    let mut members = array(Level::Raid1, 3);
    fail(&mut members, 2);
    add_events(&mut members[0], 2);
    add_events(&mut members[1], 2);
    let newest = judge(&members).array.expect("two are enough").newest.state.events;
    damage(&mut members[0]);
    damage(&mut members[1]);
    let (labels, sound_events) = (vec!["m0".into(), "m1".into()], EVENTS);
    let expected = Refusal::NewestDamaged { labels, events: newest, sound_events };
    assert_eq!(refusal(&members), expected);
    assert_eq!(
        expected.to_string(),
        "m0, m1 may be newer than all the others (events 43 against 40), but their superblock is damaged"
    );
    // Who is left out is not asked.
    assert_eq!(judge(&members[2..]).array.expect("a copy is enough").degraded, 2);
    // A third one that is sound and newer settles it.
    let sound = array(Level::Raid1, 3);
    members[1] = sound[1].clone();
    set_role(&mut members[1], 2, Role::Faulty);
    add_events(&mut members[1], 3);
    assert_eq!(judge(&members).array.expect("m1 knows").degraded, 2);
}

#[test]
fn one_update_that_was_cut_short_stops_nobody_who_cannot_be_out() {
    // All were in, and the first to be told was cut in the middle.
    let mut members = array(Level::Raid1, 2);
    add_events(&mut members[0], 1);
    damage(&mut members[0]);
    assert_eq!(judge(&members).array.expect("none was out").degraded, 1);
    // It told of a loss: the only sound one may be the one that was lost.
    let mut members = array(Level::Raid1, 2);
    fail(&mut members, 1);
    damage(&mut members[0]);
    assert!(matches!(refusal(&members), Refusal::NewestDamaged { .. }));
    // One of two sound ones is in its table, and was not told.
    let mut members = array(Level::Raid1, 3);
    fail(&mut members, 2);
    damage(&mut members[0]);
    edit(&mut members[1], |superblock| superblock.state.events = EVENTS);
    set_role(&mut members[1], 2, Role::Active(2));
    assert_eq!(judge(&members).array.expect("one of them is in").degraded, 1);
}

#[test]
fn a_damaged_superblock_alone_could_not_have_run_a_parity_array() {
    for (level, slots) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid4, 3)] {
        let mut members = array(level, slots);
        add_events(&mut members[0], 1 << 40);
        damage(&mut members[0]);
        assert_eq!(judge(&members).array.expect("one may be missing").degraded, 1, "{level}");
    }
    // Another array's damaged superblock says nothing of this one.
    let mut members = array(Level::Raid1, 2);
    let mut other = array_with(Level::Raid1, 1, 0, 9).remove(0);
    other.label = "other".into();
    other.identity = "other".into();
    add_events(&mut other, 9);
    damage(&mut other);
    members[0] = other;
    assert_eq!(judge(&members).array.expect("a copy is enough").degraded, 1);
}

#[test]
fn each_level_tolerates_what_it_tolerates() {
    for (level, slots, lost, starts) in [
        (Level::Linear, 2, vec![0], false),
        (Level::Raid0, 3, vec![2], false),
        (Level::Raid1, 3, vec![0, 1], true),
        (Level::Raid4, 3, vec![1], true),
        (Level::Raid5, 3, vec![1], true),
        (Level::Raid6, 4, vec![0, 3], true),
        (Level::Raid6, 4, vec![0, 1, 3], false),
        (Level::Raid10, 4, vec![0, 2], true),
        (Level::Raid10, 4, vec![0, 1], false),
    ] {
        let mut members = array(level, slots);
        members.retain(|member| !lost.iter().any(|slot| member.label == format!("m{slot}")));
        let assembly = judge(&members);
        assert_eq!(assembly.array.is_ok(), starts, "{level} {lost:?}: {:?}", assembly.array);
        if !starts {
            assert_eq!(assembly.array.expect_err("refused").code(), "too-few-members");
        }
    }
}

#[test]
fn dirty_and_degraded_is_refused_with_what_is_at_risk_unless_accepted() {
    let mut members = array(Level::Raid5, 4);
    // In the middle of the third chunk row of 128 sectors.
    set_dirty(&mut members, 300);
    members.remove(1);
    let member_size = superblock(&members[0]).array.member_size_sectors;
    let risk = AtRisk {
        slots: vec![1],
        member_sectors: 256..member_size,
        array_sectors: 3 * 256..3 * member_size,
    };
    assert_eq!(refusal(&members), Refusal::DirtyAndDegraded(risk.clone()));
    assert_eq!(
        judge_read_only(&members).array,
        Err(Refusal::DirtyAndDegraded(risk.clone())),
        "reading computes from the same parity"
    );
    let options = Options { accept_risk: true, ..Options::default() };
    let array = assemble(&members, &options).array.expect("accepted");
    assert_eq!((array.dirty, array.degraded, array.resync_offset), (true, 1, 300));
    assert_eq!(array.accepted_risk, Some(risk));
}

#[test]
fn a_dirty_recovering_member_is_at_risk_too() {
    let mut members = array(Level::Raid6, 4);
    set_dirty(&mut members, 0);
    edit(&mut members[3], |superblock| superblock.device.recovery_offset_sectors = Some(8));
    assert_eq!(refusal(&members).code(), "dirty-and-degraded");
}

#[test]
fn a_missing_slot_of_parity_only_and_a_missing_mirror_are_not_at_risk() {
    for (level, slots, lost) in [(Level::Raid4, 3, 2), (Level::Raid1, 2, 0), (Level::Raid10, 4, 1)]
    {
        let mut members = array(level, slots);
        set_dirty(&mut members, 0);
        members.remove(lost);
        let array = judge(&members).array.unwrap_or_else(|refusal| panic!("{level}: {refusal}"));
        assert_eq!((array.dirty, array.degraded, array.accepted_risk), (true, 1, None), "{level}");
    }
    let mut members = array(Level::Raid4, 3);
    set_dirty(&mut members, 0);
    members.remove(0);
    assert_eq!(refusal(&members).code(), "dirty-and-degraded", "raid4 with a data slot missing");
}

#[test]
fn halves_that_are_equally_new_and_contradict_each_other_are_no_array() {
    let mut members = array(Level::Raid1, 3);
    set_role(&mut members[0], 2, Role::Faulty);
    set_role(&mut members[2], 0, Role::Faulty);
    let assembly = judge(&members);
    // The third one knows of no failure; it is with whichever is right.
    assert_eq!(codes(&assembly), ["contradictory", "fresh", "contradictory"]);
    let labels = ["m0", "m2"].map(String::from).to_vec();
    assert_eq!(assembly.array, Err(Refusal::RolesContradict { labels }));
}

#[test]
fn equally_new_members_that_each_put_out_another_third_are_no_array() {
    let mut members = array(Level::Raid6, 5);
    for member in &mut members[..3] {
        add_events(member, 1);
    }
    set_role(&mut members[0], 4, Role::Faulty);
    set_role(&mut members[1], 3, Role::Faulty);
    set_role(&mut members[2], 3, Role::Faulty);
    let assembly = judge(&members);
    assert_eq!(&codes(&assembly)[..3], ["contradictory"; 3]);
    assert_eq!(assembly.array.expect_err("no array").code(), "roles-contradict");
}

#[test]
fn two_equally_new_devices_in_one_slot_are_no_array() {
    let mut members = array(Level::Raid5, 3);
    let mut clone = members[1].clone();
    clone.label = "clone".into();
    clone.identity = "clone".into();
    members.push(clone);
    let assembly = judge(&members);
    assert_eq!(codes(&assembly), ["fresh", "duplicate", "fresh", "duplicate"]);
    let labels = vec!["clone".into(), "m1".into()];
    assert_eq!(assembly.array, Err(Refusal::SlotClaimedTwice { slot: 1, labels }));
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let refused_with = |feature| {
        let mut members = array(Level::Raid5, 3);
        add_feature(&mut members, feature);
        refusal(&members)
    };
    assert_eq!(refused_with(Features::JOURNAL), Refusal::Journal);
    assert_eq!(refused_with(Features::CLUSTERED), Refusal::Clustered);
    assert_eq!(refused_with(Features(1 << 20)), Refusal::UnknownFeatures { bits: 1 << 20 });
    let mut members = array(Level::Raid5, 3);
    edit(&mut members[2], |superblock| superblock.state.reserved_bytes_in_use = true);
    assert_eq!(refusal(&members), Refusal::NewerFormat);
    let mut members = array(Level::Raid5, 3);
    edit_all(&mut members, |superblock| {
        superblock.reshape = Some(Reshape {
            position_sectors: 768,
            delta_disks: 1,
            new_level: Level::Raid5,
            new_layout: 2,
            new_chunk_sectors: 128,
            new_data_offset_sectors: None,
            backwards: false,
        });
    });
    assert_eq!(refusal(&members), Refusal::Reshaping { position_sectors: 768 });
    assert_eq!(judge_read_only(&members).array, Err(Refusal::Reshaping { position_sectors: 768 }));
}

#[test]
fn a_journal_device_is_named() {
    let mut members = array_with(Level::Raid5, 3, 1, 7);
    add_feature(&mut members, Features::JOURNAL);
    for member in &mut members {
        set_role(member, 3, Role::Journal);
    }
    let assembly = judge(&members);
    assert_eq!(codes(&assembly), ["fresh", "fresh", "fresh", "journal"]);
    assert_eq!(assembly.array, Err(Refusal::Journal));
}

#[test]
fn members_of_one_array_that_do_not_fit_together_are_refused() {
    let mut members = array(Level::Raid5, 3);
    edit(&mut members[2], |superblock| superblock.array.chunk_sectors = 64);
    let expected = Refusal::ConflictingGeometry {
        label: "m2".into(),
        other: "m0".into(),
        field: "chunk size",
    };
    assert_eq!(refusal(&members), expected);
}

#[test]
fn a_geometry_that_does_not_exist_is_refused() {
    let mut members = array(Level::Raid5, 3);
    edit_all(&mut members, |superblock| superblock.array.layout = 77);
    let cause = GeometryError::LayoutUnknown { level: Level::Raid5, layout: 77 };
    assert_eq!(refusal(&members), Refusal::Geometry(cause));
    edit_all(&mut members, |superblock| superblock.array.raid_slots = 70_000);
    assert_eq!(refusal(&members).code(), "geometry");
}

#[test]
fn a_classic_bitmap_is_outdated_by_the_first_superblocks_written() {
    let mut members = array(Level::Raid5, 3);
    add_bitmap(&mut members, BitmapKind::Classic, EVENTS);
    let next = |members: &[_]| judge(members).array.expect("an array").events_next_min;
    assert_eq!(next(&members), EVENTS + 1);
    // Power failed between the bitmap's superblock and the members'.
    add_bitmap(&mut members[1..2], BitmapKind::Classic, EVENTS + 1);
    assert_eq!(next(&members), EVENTS + 2);
    add_bitmap(&mut members[1..2], BitmapKind::Classic, EVENTS + 2);
    let reason = ReadOnlyReason::BitmapAhead { bitmap_events: EVENTS + 2, events: EVENTS };
    assert_eq!(refusal(&members), Refusal::ReadOnlyOnly(reason));
}

#[test]
fn a_bitmap_that_we_cannot_outdate_makes_an_array_read_only() {
    let reason_with = |bitmap| {
        let mut members = array(Level::Raid5, 3);
        add_bitmap(&mut members, BitmapKind::Classic, EVENTS);
        members[1].bitmap = bitmap;
        let refused = refusal(&members);
        let array = judge_read_only(&members).array.expect("it may be read");
        assert_eq!(refused, Refusal::ReadOnlyOnly(array.read_only.expect("a reason")));
        refused.to_string()
    };
    let kind = |kind| {
        let mut members = array(Level::Raid5, 3);
        add_bitmap(&mut members, kind, EVENTS);
        members[0].bitmap
    };
    assert!(reason_with(None).ends_with("it has a bitmap that cannot be read"));
    assert!(reason_with(Some(Err(BitmapError::OtherArray))).ends_with("cannot be read"));
    assert!(reason_with(kind(BitmapKind::Lockless)).ends_with("(lockless)"));
    assert!(reason_with(kind(BitmapKind::HostEndian)).ends_with("(version 3)"));
    let mut members = array(Level::Raid5, 3);
    add_bitmap(&mut members, BitmapKind::Classic, EVENTS);
    members[2].bitmap = Some(Err(BitmapError::Clustered));
    assert_eq!(judge_read_only(&members).array, Err(Refusal::Clustered));
}

#[test]
fn a_ppl_array_is_read_only_and_needs_replay_when_dirty_and_degraded() {
    let mut members = array(Level::Raid5, 3);
    let place = PplPlace { offset_sectors: 8, size_sectors: 1024, multiple: false };
    edit_all(&mut members, |superblock| superblock.intent.ppl = Some(place));
    assert_eq!(refusal(&members), Refusal::ReadOnlyOnly(ReadOnlyReason::Ppl));
    set_dirty(&mut members, 0);
    let array = judge_read_only(&members).array.expect("whole, so parity is not read");
    assert_eq!((array.dirty, array.read_only), (true, Some(ReadOnlyReason::Ppl)));
    members.remove(0);
    let options = Options { read_only: true, accept_risk: true, ..Options::default() };
    let expected = Err(Refusal::PplNotReplayed { missing: vec![0] });
    assert_eq!(assemble(&members, &options).array, expected);
}

#[test]
fn two_replacements_of_one_member_make_an_array_read_only() {
    let mut members = array_with(Level::Raid1, 2, 2, 7);
    for member in &mut members {
        set_role(member, 2, Role::Active(0));
        set_role(member, 3, Role::Active(0));
    }
    add_feature(&mut members[2..], Features::REPLACEMENT);
    assert_eq!(refusal(&members), Refusal::ReadOnlyOnly(ReadOnlyReason::Replacement { slot: 0 }));
}

#[test]
fn stale_members_do_not_count_as_members() {
    let mut members = array(Level::Raid5, 3);
    fail(&mut members, 1);
    add_events(&mut members[0], 4);
    add_events(&mut members[2], 4);
    // One of the two survivors is gone; the stale member cannot stand in for it.
    members.remove(2);
    let assembly = judge(&members);
    assert_eq!(codes(&assembly), ["fresh", "stale"]);
    let expected = Refusal::TooFewMembers { have: 1, need: 2, slots: 3, missing: vec![1, 2] };
    assert_eq!(assembly.array, Err(expected));
}
