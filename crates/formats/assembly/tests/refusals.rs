//! One scenario per refusal, and its words.

use crate::kit::{
    EVENTS, add_bitmap, add_events, add_feature, array, array_with, blank, codes, damage, edit,
    edit_all, fail, judge, judge_read_only, refusal, set_dirty, set_role, superblock,
};
use braid_assembly::{
    AssembledReplay, AtRisk, JournalFault, Options, ProbedMember, RangeAtRisk, ReadOnlyReason,
    Reason, Refusal, ReshapeFault, assemble, journal_sectors_min,
};
use braid_geometry::{GeometryError, Level, Slot};
use braid_ondisk::{
    Bitmap, BitmapError, BitmapKind, Features, JournalArea, JournalEnd, JournalLog,
    JournalLogError, LoggedEntry, PplEntry, PplLog, PplLogError, PplPlace, PplRecord, Reshape,
    Role, Superblock,
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
    // Damaged members that are not given do not count.
    assert_eq!(judge(&members[2..]).array.expect("a copy is enough").degraded, 2);
    // A member that is sound and newer settles which members are out.
    let sound = array(Level::Raid1, 3);
    members[1] = sound[1].clone();
    set_role(&mut members[1], 2, Role::Faulty);
    add_events(&mut members[1], 3);
    assert_eq!(judge(&members).array.expect("m1 knows").degraded, 2);
}

#[test]
fn one_update_that_was_cut_short_stops_nobody_who_cannot_be_out() {
    // No member was out, and the first write of the update was torn.
    let mut members = array(Level::Raid1, 2);
    add_events(&mut members[0], 1);
    damage(&mut members[0]);
    assert_eq!(judge(&members).array.expect("none was out").degraded, 1);
    // The torn update recorded a loss: the only sound member may be the lost one.
    let mut members = array(Level::Raid1, 2);
    fail(&mut members, 1);
    damage(&mut members[0]);
    assert!(matches!(refusal(&members), Refusal::NewestDamaged { .. }));
    // The torn update's table has one of the two sound members in. That member did not get the
    // update, so the update did not finish.
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
    // A damaged superblock of another array does not count for this array.
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
    // The resync offset is in the middle of the third chunk row of 128 sectors.
    set_dirty(&mut members, 300);
    members.remove(1);
    let member_size = superblock(&members[0]).array.member_size_sectors;
    let stripes = member_size / 128 - 2;
    let range =
        RangeAtRisk { member_sectors: 256..member_size, array_sectors: 3 * 256..3 * member_size };
    let risk = AtRisk { slots: vec![1], stripes, ranges: vec![range] };
    assert_eq!(refusal(&members), Refusal::DirtyAndDegraded(risk.clone()));
    let read = judge_read_only(&members).array.expect("what is not at risk can be read");
    assert_eq!((read.accepted_risk, read.withheld_risk), (None, Some(risk.clone())));
    let accepts = |stripes| Options { accept_risk: Some(stripes), ..Options::default() };
    let refused = assemble(&members, &accepts(stripes - 1)).array;
    assert_eq!(refused, Err(Refusal::DirtyAndDegraded(risk.clone())), "more than was accepted");
    let array = assemble(&members, &accepts(stripes)).array.expect("accepted");
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
    // Two members call each other faulty and the third saw no failure; either side may be right.
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
    assert_eq!(refused_with(Features::CLUSTERED), Refusal::Clustered);
    assert_eq!(refused_with(Features(1 << 20)), Refusal::UnknownFeatures { bits: 1 << 20 });
    let mut members = array(Level::Raid5, 3);
    edit(&mut members[2], |superblock| superblock.state.reserved_bytes_in_use = true);
    assert_eq!(refusal(&members), Refusal::NewerFormat);
    let mut members = array(Level::Raid5, 3);
    edit_all(&mut members, |superblock| {
        superblock.reshape = Some(Reshape {
            position_sectors: 0,
            delta_disks: 1,
            new_level: Level::Raid5,
            new_layout: 2,
            new_chunk_sectors: 128,
            new_data_offset_sectors: None,
            backwards: false,
        });
    });
    assert_eq!(
        refusal(&members),
        Refusal::Reshaping { position_sectors: 0, fault: ReshapeFault::NoCopy }
    );
    assert_eq!(
        judge_read_only(&members).array,
        Err(Refusal::Reshaping { position_sectors: 0, fault: ReshapeFault::NoCopy })
    );
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
    let label = assembly.verdicts[3].label.clone();
    let fault = JournalFault::Unusable { label, cause: JournalLogError::NoRoom };
    let all = Refusal::JournalMissing { fault, missing: vec![], array_sectors: capacity(&members) };
    assert_eq!(assembly.array, Err(all), "its log was not read");
    members[3].journal = Some(Ok(log()));
    let array = judge(&members).array.expect("it can be written");
    assert_eq!((array.journal.map(|one| one.member), array.read_only), (Some(3), None));
    let least = journal_sectors_min(&array.geometry).expect("its blocks can be named");
    let with = |ring_sectors: u64| {
        let area = JournalArea { ring_sectors, ..log().area };
        let mut members = members.clone();
        members[3].journal = Some(Ok(JournalLog { area, ..log() }));
        judge(&members).array.map(|_| ())
    };
    let read_only = Refusal::ReadOnlyOnly(ReadOnlyReason::Journal);
    assert_eq!((with(least), with(least - 8)), (Ok(()), Err(read_only)), "room for a few batches");
    let array = judge_read_only(&members).array.expect("it can be read");
    assert_eq!((array.journal.map(|one| one.member), array.journal_fault), (Some(3), None));
    assert_eq!((array.dirty, array.withheld_risk), (false, None));
    // A journal device may be smaller than members, if its own data area fits.
    edit(&mut members[3], |superblock| superblock.device.data_size_sectors = 64);
    members[3].size_bytes = 4 << 20;
    assert!(judge_read_only(&members).array.expect("it can be read").journal.is_some());
    // Like a member, the journal counts if it is one event behind, and not if it is two behind.
    let events = |superblock: &mut Superblock, less: u64| superblock.state.events -= less;
    edit(&mut members[3], |superblock| events(superblock, 1));
    assert!(judge_read_only(&members).array.expect("it can be read").journal.is_some());
    edit(&mut members[3], |superblock| events(superblock, 1));
    let assembly = judge_read_only(&members);
    assert_eq!(codes(&assembly), ["fresh", "fresh", "fresh", "stale"]);
    let fault = assembly.array.expect("it can be read").journal_fault;
    assert_eq!(fault, Some(JournalFault::Absent { number: Some(3) }));
}

fn log() -> JournalLog {
    let area = JournalArea { start_sector: 8, ring_sectors: 4096, tail_sectors: 0 };
    JournalLog {
        area,
        first_sequence: 7,
        meta_blocks: 1,
        is_write_back: false,
        entries: Vec::new(),
        end_sectors: 8,
        end_sequence: 8,
        end: JournalEnd::NoBlock,
    }
}

fn capacity(members: &[ProbedMember]) -> u64 {
    let read = judge_read_only(members).array.expect("it can be read");
    read.geometry.capacity_sectors()
}

/// An array of three members with a journal; its superblocks say clean, as always with a journal.
fn with_journal() -> Vec<ProbedMember> {
    let mut members = array_with(Level::Raid5, 3, 1, 7);
    add_feature(&mut members, Features::JOURNAL);
    for member in &mut members {
        set_role(member, 3, Role::Journal);
    }
    members[3].journal = Some(Ok(log()));
    members
}

#[test]
fn without_its_journal_all_of_an_array_is_in_doubt() {
    let mut members = with_journal();
    let journal = members.pop().expect("the last one");
    let absent = JournalFault::Absent { number: Some(3) };
    let refused = judge(&members).array;
    let array_sectors = capacity(&members);
    let missing =
        |missing| Err(Refusal::JournalMissing { fault: absent.clone(), missing, array_sectors });
    assert_eq!(refused, missing(vec![]));
    let array = judge_read_only(&members).array.expect("data is there");
    assert_eq!(array.journal_fault, Some(absent.clone()));
    assert_eq!((array.dirty, array.resync_offset, array.withheld_risk), (true, 0, None));
    // With a member missing, all computed data is withheld.
    members.remove(1);
    assert_eq!(judge(&members).array, missing(vec![1]));
    let array = judge_read_only(&members).array.expect("some data is there");
    let risk = array.withheld_risk.expect("slot 1 is missing");
    assert_eq!((risk.slots, risk.ranges[0].array_sectors.clone()), (vec![1], 0..array_sectors));
    assert!(array.newest.state.roles.contains(&Role::Journal));
    // Of two devices that both claim to be the journal, neither counts.
    let mut twice = with_journal();
    let clone = ProbedMember { label: "clone".into(), identity: "clone".into(), ..journal };
    twice.push(clone);
    let fault = judge_read_only(&twice).array.expect("data is there").journal_fault;
    let labels = vec![twice[3].label.clone(), "clone".to_owned()];
    let Some(JournalFault::Several { labels: mut named }) = fault else { panic!("{fault:?}") };
    named.sort();
    let mut labels = labels;
    labels.sort();
    assert_eq!(named, labels);
    // A device that the array no longer has as its journal does not count.
    let mut given_up = with_journal();
    let three = &mut given_up[..3];
    three.iter_mut().for_each(|member| set_role(member, 3, Role::Faulty));
    let assembly = judge_read_only(&given_up);
    assert_eq!(codes(&assembly), ["fresh", "fresh", "fresh", "faulty"]);
    let fault = assembly.array.expect("data is there").journal_fault;
    assert_eq!(fault, Some(JournalFault::Absent { number: None }));
}

/// The operator can drop a lost journal; the array is then resynced. braid refuses that if other
/// members are newer.
#[test]
fn an_array_goes_on_without_a_journal_that_is_lost() {
    let given_up = Options { without_journal: true, ..Options::default() };
    let mut members = with_journal();
    let whole = assemble(&members, &given_up).array.expect("it is there");
    assert!(whole.journal.is_some() && !whole.dirty, "one that can be had is kept");
    let mut unread = members.clone();
    unread[3].journal = Some(Err(JournalLogError::NoRoom));
    let mut ahead = members.clone();
    add_events(&mut ahead[3], 2);
    assert!(matches!(
        assemble(&ahead, &given_up).array,
        Err(Refusal::JournalMissing { fault: JournalFault::Ahead { .. }, .. })
    ));
    members.truncate(3);
    for members in [&members, &unread] {
        let array = assemble(members, &given_up).array.expect("it goes on");
        assert_eq!((array.dirty, array.resync_offset, array.read_only), (true, 0, None));
        assert!(array.journal.is_none() && array.journal_fault.is_some());
    }
    members.remove(1);
    let refused = assemble(&members, &given_up).array;
    assert!(matches!(refused, Err(Refusal::DirtyAndDegraded(_))), "{refused:?}");
    let accepted = Options { accept_risk: Some(u64::MAX), ..given_up };
    let array = assemble(&members, &accepted).array.expect("the risk is accepted");
    assert!(array.accepted_risk.is_some() && array.read_only.is_none());
}

/// The newest superblock says whether the array has a journal, whatever an older superblock says.
#[test]
fn the_newest_superblock_says_whether_there_is_a_journal() {
    let mut members = with_journal();
    for member in &mut members[..2] {
        add_events(member, 1);
        set_role(member, 3, Role::Faulty);
        edit(member, |superblock| {
            superblock.state.features = superblock.state.features.without(Features::JOURNAL);
        });
    }
    let assembly = judge(&members);
    assert_eq!(codes(&assembly), ["fresh", "fresh", "fresh", "faulty"]);
    let array = assembly.array.expect("it was given up");
    assert!(array.journal.is_none() && array.journal_fault.is_none() && !array.dirty);
    members[..2].iter_mut().for_each(|member| set_role(member, 3, Role::Spare));
    let assembly = judge(&members);
    assert_eq!(assembly.verdicts[3].reason, Reason::NoJournal { newest: "m0".into() });
}

#[test]
fn a_member_that_is_missing_and_counted_in_may_return() {
    let mut members = with_journal();
    assert!(!judge_read_only(&members).array.expect("whole").may_return());
    members.remove(1);
    assert!(judge_read_only(&members).array.expect("two are enough").may_return());
    members.iter_mut().for_each(|member| set_role(member, 1, Role::Faulty));
    assert!(!judge_read_only(&members).array.expect("two are enough").may_return());
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
fn a_bitmap_that_is_not_kept_makes_an_array_read_only() {
    let reason_with = |bitmap: Option<Result<Bitmap, BitmapError>>| {
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
        members[0].bitmap.clone()
    };
    let unknown = Some(Err(BitmapError::VersionUnknown { version: 9 }));
    assert!(reason_with(unknown).ends_with("of a version that braid does not know"));
    assert!(reason_with(kind(BitmapKind::HostEndian)).ends_with("(version 3)"));
    let mut members = array(Level::Raid5, 3);
    add_bitmap(&mut members, BitmapKind::Classic, EVENTS);
    members[2].bitmap = Some(Err(BitmapError::Clustered));
    assert_eq!(judge_read_only(&members).array, Err(Refusal::Clustered));
}

/// Writing a bitmap that overlaps data would destroy data.
#[test]
fn a_bitmap_without_room_makes_an_array_read_only() {
    let reason_at = |offset_sectors| {
        let mut members = array(Level::Raid5, 3);
        add_bitmap(&mut members, BitmapKind::Classic, EVENTS);
        edit(&mut members[1], |one| one.intent.bitmap_offset_sectors = Some(offset_sectors));
        judge_read_only(&members).array.expect("it may be read").read_only
    };
    let data = i32::try_from(superblock(&array(Level::Raid5, 3)[0]).device.data_offset_sectors);
    let data = data.expect("near the start");
    // The superblock is in sector 8, the bad-block log in 24, and the bitmap takes one sector.
    for (offset_sectors, is_refused) in [
        (0, true),
        (8, false),
        (15, false),
        (16, true),
        (24, false),
        (data - 9, false),
        (data - 8, true),
    ] {
        let reason = reason_at(offset_sectors);
        let expected = is_refused.then_some(ReadOnlyReason::BitmapPlace);
        assert_eq!(reason, expected, "{offset_sectors}");
    }
}

/// A RAID-5 with a log of one entry on each member.
fn with_ppl() -> Vec<ProbedMember> {
    let mut members = array(Level::Raid5, 3);
    let place = PplPlace { offset_sectors: 8, size_sectors: 1024, multiple: false };
    let entry =
        PplEntry { data_sector: 0, parity_bytes: 0, data_bytes: 0, parity_slot: 0, checksum: 0 };
    for (slot, member) in (0..).zip(&mut members) {
        edit(member, |superblock| superblock.intent.ppl = Some(place));
        let entry = LoggedEntry { entry: PplEntry { parity_slot: slot, ..entry }, partial: vec![] };
        let entries = vec![(0, entry)];
        let record = PplRecord { header_sector: 0, end_sector: 8, generation: 9, entries, torn: 0 };
        member.ppl = Some(Ok(PplLog { newest: Some(record), older: Vec::new() }));
    }
    members
}

#[test]
fn a_ppl_array_is_read_only_and_is_replayed_when_it_is_dirty() {
    let mut members = with_ppl();
    assert_eq!(refusal(&members), Refusal::ReadOnlyOnly(ReadOnlyReason::Ppl));
    let array = judge_read_only(&members).array.expect("clean");
    assert_eq!((array.dirty, array.replay), (false, None), "what is clean needs no replay");
    set_dirty(&mut members, 0);
    let mut array = judge_read_only(&members).array.expect("whole");
    assert_eq!((array.dirty, array.read_only), (true, Some(ReadOnlyReason::Ppl)));
    assert_eq!(array.replay.as_ref().map(AssembledReplay::entries), Some(3));
    array.note_replayed(true);
    assert_eq!((array.dirty, array.resync_offset, array.replay), (false, u64::MAX, None));
    // With a member missing, only the other members' logs remain; after the replay nothing is at
    // risk.
    members.remove(0);
    let array = judge_read_only(&members).array.expect("the logs have the answer");
    let replay = array.replay.expect("it is dirty");
    let slots: Vec<u16> = replay.logs.iter().map(|(slot, _)| slot.0).collect();
    assert_eq!((slots, array.accepted_risk), (vec![1, 2], None));
}

#[test]
fn a_ppl_that_has_not_the_answer_is_refused_when_a_member_is_missing() {
    let mut members = with_ppl();
    set_dirty(&mut members, 0);
    members[1].ppl = Some(Err(PplLogError::Unreadable));
    members[2].ppl = None;
    // With every member present parity is not read, and stays in doubt.
    let mut array = judge_read_only(&members).array.expect("whole");
    array.note_replayed(true);
    assert!(array.dirty && array.resync_offset == 0);
    let unread = vec![(Slot(1), PplLogError::Unreadable), (Slot(2), PplLogError::Absent)];
    let stripes = superblock(&members[0]).array.member_size_sectors / 128;
    let expected = Refusal::PplNotReplayed { missing: vec![0], unread, stripes };
    let risky = Options { read_only: true, accept_risk: Some(u64::MAX), ..Options::default() };
    members.remove(0);
    assert_eq!(judge_read_only(&members).array, Err(expected));
    assert!(assemble(&members, &risky).array.expect("accepted").accepted_risk.is_some());
    // Logs do not cover an unfinished resync.
    let mut members = with_ppl();
    set_dirty(&mut members, 1024);
    members.remove(0);
    let stripes = stripes - 1024 / 128;
    let expected = Refusal::PplNotReplayed { missing: vec![0], unread: vec![], stripes };
    assert_eq!(judge_read_only(&members).array, Err(expected));
    // The log of a member that is out of the array does not count.
    let mut members = with_ppl();
    fail(&mut members, 0);
    members[0].ppl = Some(Err(PplLogError::Unreadable));
    set_dirty(&mut members, 0);
    assert!(judge_read_only(&members).array.expect("degraded").replay.is_some());
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
    // One of the two up-to-date members is gone; the stale member cannot replace it.
    members.remove(2);
    let assembly = judge(&members);
    assert_eq!(codes(&assembly), ["fresh", "stale"]);
    let expected = Refusal::TooFewMembers { have: 1, need: 2, slots: 3, missing: vec![1, 2] };
    assert_eq!(assembly.array, Err(expected));
}
