//! Arrays in the middle of a reshape: the shape of each sector, the sectors at risk, and the
//! members of both shapes.

use std::collections::BTreeSet;

use braid_assembly::reshape::Reshaping;
use braid_assembly::{Options, ProbedMember, Verdict, assemble};
use braid_geometry::{Geometry, Level, LogicalSector, Slot};
use braid_ondisk::{BackupPart, Reshape, ReshapeSide, SuperblockUpdate};

use crate::kit::{array, edit, edit_all};

/// Sectors of a member: few, so that a test can check every sector.
const MEMBER_SECTORS: u64 = 40 * CHUNK;
const CHUNK: u64 = 128;

#[derive(Clone, Copy, Debug)]
struct Story {
    level: Level,
    slots: (u16, u16),
    layout: (u32, u32),
    chunk_sectors: (u32, u32),
    /// The shift of the members' data in sectors.
    moved: i64,
    backwards: bool,
}

const fn story(level: Level, before: u16, after: u16, moved: i64) -> Story {
    let layout = match level {
        Level::Raid10 => (0x102, 0x102),
        _ => (2, 2),
    };
    let chunk_sectors = (128, 128);
    Story { level, slots: (before, after), layout, chunk_sectors, moved, backwards: after < before }
}

fn stories() -> Vec<Story> {
    let grow = story(Level::Raid5, 4, 5, 0);
    vec![
        grow,
        story(Level::Raid5, 3, 4, -256),
        story(Level::Raid5, 4, 5, 512),
        story(Level::Raid5, 3, 7, 0),
        story(Level::Raid6, 5, 6, 0),
        story(Level::Raid5, 5, 4, 0),
        story(Level::Raid6, 7, 5, 0),
        story(Level::Raid5, 5, 4, 384),
        story(Level::Raid10, 4, 5, -1024),
        Story { chunk_sectors: (128, 256), ..grow },
        Story { chunk_sectors: (256, 64), ..grow },
        Story { slots: (4, 4), chunk_sectors: (128, 256), ..grow },
        Story { slots: (4, 4), chunk_sectors: (128, 256), moved: -256, ..grow },
        Story { slots: (4, 4), chunk_sectors: (128, 256), moved: 256, backwards: true, ..grow },
        Story { level: Level::Raid6, slots: (5, 5), layout: (18, 2), moved: -128, ..grow },
        Story { level: Level::Raid6, slots: (5, 5), layout: (18, 2), ..grow },
    ]
}

fn members(story: Story, position: u64) -> Vec<ProbedMember> {
    let slots = story.slots.0.max(story.slots.1);
    let mut members = array(story.level, slots);
    edit_all(&mut members, |superblock| {
        superblock.array.raid_slots = u32::from(story.slots.1);
        superblock.array.layout = story.layout.0;
        superblock.array.chunk_sectors = story.chunk_sectors.0;
        superblock.array.member_size_sectors = MEMBER_SECTORS;
        let offset = superblock.device.data_offset_sectors;
        superblock.reshape = Some(Reshape {
            position_sectors: position,
            delta_disks: i32::from(story.slots.1) - i32::from(story.slots.0),
            new_level: story.level,
            new_layout: story.layout.1,
            new_chunk_sectors: story.chunk_sectors.1,
            new_data_offset_sectors: (story.moved != 0)
                .then(|| offset.checked_add_signed(story.moved).expect("it fits")),
            backwards: story.backwards,
        });
    });
    members
}

fn reshaping(story: Story, position: u64) -> Reshaping {
    let found = Reshaping::of(&members(story, position)).expect("it is in one");
    found.expect("md could be doing that")
}

/// Array sectors at which md can stop: the ends of rows that both shapes fill completely.
fn positions(story: Story) -> Vec<u64> {
    let size = reshaping(story, 0).size_sectors;
    let after = reshaping(story, 0).after;
    let data = match Geometry::new(&after).expect("a geometry") {
        Geometry::Stripe(stripe) => u64::from(stripe.data_slots()),
        _ => u64::from(after.slots),
    };
    let chunk = u64::from(story.chunk_sectors.0.max(story.chunk_sectors.1));
    let step = usize::try_from(data * chunk).expect("small");
    (0..=size).step_by(step).collect()
}

#[test]
fn every_sector_is_on_one_side() {
    for story in stories() {
        for position in positions(story).into_iter().chain([1 << 40]) {
            let found = reshaping(story, position);
            let sides = found.sides();
            let mut at = 0;
            for (range, side) in &sides {
                assert_eq!(range.start, at, "{story:?}");
                assert_eq!(found.on(*side), *range);
                assert!(!range.is_empty());
                let is_low = range.start < position.min(found.size_sectors);
                let expected = if is_low != story.backwards {
                    ReshapeSide::After
                } else {
                    ReshapeSide::Before
                };
                assert_eq!(*side, expected, "{story:?} at {position}");
                at = range.end;
            }
            assert_eq!(at, found.size_sectors, "{story:?}");
            for side in ReshapeSide::ALL {
                let geometry = Geometry::new(found.shape(side)).expect("a geometry");
                assert!(found.size_sectors <= geometry.capacity_sectors());
            }
        }
    }
}

/// The places of an array sector on members, in device sectors counted from the old start of the
/// data.
fn places(geometry: &Geometry, sector: u64, moved: i64) -> Vec<(Slot, i64)> {
    let at = |sector: u64| i64::try_from(sector).expect("small") + moved;
    match geometry {
        Geometry::Stripe(stripe) => {
            let address = stripe.locate(LogicalSector(sector));
            let map = stripe.row_map(address.row);
            let start = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
            vec![(map.data_slot(address.data_index), at(start))]
        }
        Geometry::Mirror(mirror) => (0..mirror.copies())
            .map(|copy| {
                let (slot, sector) = mirror.copy(LogicalSector(sector), copy);
                (slot, at(sector.0))
            })
            .collect(),
        Geometry::Direct(_) => panic!("no such reshape"),
    }
}

/// md continues from its checkpoint row by row, and saves its position before it overwrites the row
/// at which a restart would begin. Whenever md is stopped, sectors not at risk are still in place.
/// If md could not continue without overwriting, some sectors are at risk.
#[test]
fn what_is_at_no_risk_was_not_written_over() {
    let (mut safe, mut at_risk) = (0, 0);
    for story in stories().into_iter().filter(|story| story.level != Level::Raid10) {
        let positions = positions(story);
        for &position in &positions {
            let found = reshaping(story, position);
            let [before, after] =
                ReshapeSide::ALL.map(|side| Geometry::new(found.shape(side)).expect("a geometry"));
            let ahead = found.on(ReshapeSide::Before);
            if ahead.is_empty() {
                assert_eq!(found.at_risk, None, "{story:?} at {position}: nothing is ahead");
                continue;
            }
            let risk = found.at_risk.clone().unwrap_or(ahead.start..ahead.start);
            let chunk = u64::from(story.chunk_sectors.0.max(story.chunk_sectors.1));
            let (Geometry::Stripe(new), Geometry::Stripe(_)) = (&after, &before) else {
                panic!("parity");
            };
            let row = u64::from(new.data_slots()) * chunk;
            // md's next write: a row of the larger chunk.
            let next = match story.backwards {
                false => position..(position + row).min(found.size_sectors),
                true => position.saturating_sub(row)..position,
            };
            let rows: BTreeSet<i64> =
                next.clone().map(|sector| places(&after, sector, story.moved)[0].1).collect();
            let is_read = |sector: u64| rows.contains(&places(&before, sector, 0)[0].1);
            let is_hit = ahead.clone().any(|sector| is_read(sector) && !risk.contains(&sector));
            assert!(!is_hit, "{story:?} at {position}: at risk {risk:?}");
            match found.at_risk {
                None => safe += 1,
                Some(_) => at_risk += 1,
            }
        }
    }
    assert!(safe > 100 && at_risk > 50, "{safe} safe, {at_risk} at risk");
}

/// The section at risk is where mdadm makes its backup, for the reshapes that mdadm supports.
#[test]
fn the_critical_section_is_where_mdadm_makes_its_backup() {
    let grow = story(Level::Raid5, 4, 5, 0);
    assert_eq!(reshaping(grow, 0).at_risk, Some(0..12 * CHUNK));
    assert_eq!(reshaping(grow, 8 * CHUNK).at_risk, Some(8 * CHUNK..12 * CHUNK));
    assert_eq!(reshaping(grow, 12 * CHUNK).at_risk, None);
    let shrink = story(Level::Raid5, 5, 4, 0);
    assert_eq!(reshaping(shrink, 9 * CHUNK).at_risk, Some(0..9 * CHUNK));
    assert_eq!(reshaping(shrink, 12 * CHUNK).at_risk, None);
    let moved = story(Level::Raid5, 4, 5, -2048);
    assert_eq!(reshaping(moved, 0).at_risk, None);
    let in_place = Story { slots: (4, 4), chunk_sectors: (128, 256), ..grow };
    let size = reshaping(in_place, 0).size_sectors;
    assert_eq!(reshaping(in_place, 6 * CHUNK).at_risk, Some(6 * CHUNK..size));
}

/// Rows that md had in hand are on both sides of md's place, in whole rows. All other sectors are
/// in one shape.
#[test]
fn whoever_knows_how_far_md_got_leaves_what_it_had_in_hand_at_risk() {
    let in_place =
        Story { slots: (4, 4), chunk_sectors: (128, 256), ..story(Level::Raid5, 4, 5, 0) };
    // Of a small array md has in hand twice the cache of 256 pages, for each member with data.
    let (row, in_hand) = (3 * 256, 3 * 2 * 256 * 8);
    let mut found = reshaping(in_place, row);
    assert!(found.is_in_place());
    let (size, place) = (found.size_sectors, in_hand + 2 * row + 5);
    found.got_to(&(place..place + 5), place + 1);
    assert_eq!(found.at_risk, Some(2 * row..size));
    assert_eq!(found.on(ReshapeSide::After), 0..in_hand + 2 * row);
    // A backup of sectors that md copied since the checkpoint is still right: no client wrote to
    // these sectors.
    let part = BackupPart { array_start_sectors: 0, length_sectors: 4 * row, at_sectors: 8 };
    assert_eq!(found.needed(&part), Some((row..4 * row, 8 + row)));
    // The place where md got to is never before the position, nor beyond the end.
    let mut found = reshaping(in_place, row);
    found.got_to(&(2 * row..size), 3 * row);
    assert_eq!(found.at_risk, Some(row..size));
    assert_eq!(found.on(ReshapeSide::After), 0..3 * row);
    let mut found = reshaping(Story { backwards: true, ..in_place }, size);
    found.got_to(&(row..row + 1), row);
    assert_eq!(found.at_risk, Some(0..in_hand + 2 * row));
    assert_eq!(found.on(ReshapeSide::After), row..size);
    let elsewhere = [story(Level::Raid5, 4, 5, 0), Story { moved: -256, ..in_place }];
    assert!(elsewhere.into_iter().all(|story| !reshaping(story, 0).is_in_place()));
}

/// Adds events, also in the raw bytes from which the members of each side are made.
fn count_on(member: &mut ProbedMember, events: u64) {
    edit(member, |superblock| {
        let state = superblock.state.clone();
        superblock.apply(&SuperblockUpdate {
            events: state.events + events,
            update_time: state.update_time,
            resync_offset: state.resync_offset,
            roles: state.roles.into(),
            recovery_offset: None,
            is_replacement: false,
            role_of_this: state.role,
        });
    });
}

#[test]
fn members_are_those_of_two_arrays_in_no_reshape() {
    let mut members = array(Level::Raid5, 5);
    edit_all(&mut members, |superblock| {
        superblock.reshape = Some(Reshape {
            position_sectors: 24 * CHUNK,
            delta_disks: 1,
            new_level: Level::Raid5,
            new_layout: 2,
            new_chunk_sectors: 128,
            new_data_offset_sectors: None,
            backwards: false,
        });
    });
    let verdicts = |members: &[ProbedMember], side| {
        let found = Reshaping::of(members).expect("it is in one").expect("md could be");
        let members = found.members(members, side);
        let assembly = assemble(&members, &Options { read_only: true, ..Options::default() });
        let array = assembly.array.expect("it can be read");
        let verdicts: Vec<Verdict> = assembly.verdicts.iter().map(|one| one.verdict).collect();
        (verdicts, array.geometry.slots(), array.degraded)
    };
    let fresh = |slots: u16| (0..slots).map(|slot| Verdict::Fresh { slot });
    let with_spare: Vec<Verdict> = fresh(4).chain([Verdict::Spare]).collect();
    assert_eq!(verdicts(&members, ReshapeSide::Before), (with_spare, 4, 0));
    assert_eq!(verdicts(&members, ReshapeSide::After), (fresh(5).collect(), 5, 0));
    // A member is one event behind and at an earlier checkpoint: it missed nothing.
    let position = |member: &mut ProbedMember, position| {
        edit(member, |superblock| {
            let reshape = superblock.reshape.as_mut().expect("it is in one");
            reshape.position_sectors = position;
        });
    };
    (1..5).for_each(|index| count_on(&mut members[index], 1));
    position(&mut members[0], 16 * CHUNK);
    assert_eq!(verdicts(&members, ReshapeSide::After), (fresh(5).collect(), 5, 0));
    let found = Reshaping::of(&members).expect("it is in one").expect("md could be");
    assert_eq!(found.position_sectors, 24 * CHUNK, "the newest says where it is");
    // A member that is further behind is left out of the arrays of both sides.
    (1..5).for_each(|index| count_on(&mut members[index], 3));
    for side in ReshapeSide::ALL {
        let (verdicts, _, degraded) = verdicts(&members, side);
        assert!(matches!(verdicts[0], Verdict::Stale { behind: 4 }), "{verdicts:?}");
        assert_eq!(degraded, 1);
    }
    assert_eq!(Reshaping::of(&array(Level::Raid5, 4)), None, "it is in none");
}

#[test]
fn what_was_passed_is_not_read_from_a_backup() {
    let part = |start, length| BackupPart {
        array_start_sectors: start,
        length_sectors: length,
        at_sectors: 8,
    };
    let forwards = reshaping(story(Level::Raid5, 4, 5, 0), 8 * CHUNK);
    assert_eq!(forwards.needed(&part(0, 8 * CHUNK)), None);
    let (needed, at) = forwards.needed(&part(0, 12 * CHUNK)).expect("a part is ahead");
    assert_eq!((needed, at), (8 * CHUNK..12 * CHUNK, 8 + 8 * CHUNK));
    let backwards = reshaping(story(Level::Raid5, 5, 4, 0), 8 * CHUNK);
    let (needed, at) = backwards.needed(&part(4 * CHUNK, 12 * CHUNK)).expect("a part is ahead");
    assert_eq!((needed, at), (4 * CHUNK..8 * CHUNK, 8));
    assert_eq!(backwards.needed(&part(8 * CHUNK, 12 * CHUNK)), None);
    let (needed, _) = forwards.needed(&part(8 * CHUNK, u64::MAX)).expect("all is ahead");
    assert_eq!(needed.end, forwards.size_sectors);
}

/// A RAID-0 of three that gets a fourth member, as md and braid record it: a RAID-4 of four slots
/// becomes one of five, and lacks its parity in both shapes. The new member is recovered up to
/// `held`.
fn striped(position_sectors: u64, held: u64) -> Vec<ProbedMember> {
    let mut members = array(Level::Raid4, 4);
    edit_all(&mut members, |superblock| {
        superblock.array.layout = 5;
        superblock.array.raid_slots = 5;
        superblock.array.member_size_sectors = MEMBER_SECTORS;
        superblock.reshape = Some(Reshape {
            position_sectors,
            delta_disks: 1,
            new_level: Level::Raid4,
            new_layout: 5,
            new_chunk_sectors: 128,
            new_data_offset_sectors: None,
            backwards: false,
        });
    });
    edit(&mut members[3], |superblock| superblock.device.recovery_offset_sectors = Some(held));
    let named: Vec<_> = members.iter().map(rewritten).collect();
    named
}

/// The member with a superblock whose bytes agree with its fields.
fn rewritten(member: &ProbedMember) -> ProbedMember {
    let mut member = member.clone();
    let size_bytes = member.size_bytes;
    edit(&mut member, |superblock| {
        let shape = superblock.shape();
        let state = superblock.state.clone();
        let update = SuperblockUpdate {
            events: state.events,
            update_time: state.update_time,
            resync_offset: state.resync_offset,
            roles: state.roles.as_slice().into(),
            recovery_offset: superblock.device.recovery_offset_sectors,
            is_replacement: false,
            role_of_this: state.role,
        };
        superblock.apply_with_shape(&update, &shape, size_bytes).expect("a valid shape");
    });
    member
}

#[test]
fn a_raid0_in_a_reshape_needs_each_member_on_its_side() {
    let options = || Options { window_copies: vec![[7; 16]], ..Options::default() };
    // Up to this position, 12 chunks have moved: three rows of four.
    let position = 12 * CHUNK;
    let members = striped(position, 3 * CHUNK);
    let found = Reshaping::of(&members).expect("it is in one").expect("md could be");
    assert!(found.is_striping());
    let assembled = assemble(&members, &options()).array.expect("each side has its members");
    let reshape = assembled.reshape.expect("it is under way");
    assert_eq!((reshape.before.slots, reshape.after.slots, assembled.degraded), (4, 5, 0));
    // The new member must hold all that has moved.
    let few = assemble(&striped(position, 2 * CHUNK), &options()).array;
    few.expect_err("the new member lacks a row that has moved");
    for lost in 0..4 {
        let mut left = striped(position, 3 * CHUNK);
        left.remove(lost);
        assemble(&left, &options()).array.expect_err("no member can be missed");
    }
    // A RAID-4 whose new parity was lost is no RAID-0: its member in the last old slot has parity.
    let mut members = striped(position, 3 * CHUNK);
    edit(&mut members[3], |superblock| superblock.device.recovery_offset_sectors = None);
    let found = Reshaping::of(&members).expect("it is in one").expect("md could be");
    assert!(!found.is_striping());
}

/// Regression: of two members of one age the member that was named last decided about the shape.
#[test]
fn members_of_one_age_with_two_shapes_are_judged_alike_in_any_order() {
    let mut members = array(Level::Raid5, 5);
    edit(&mut members[3], |superblock| {
        superblock.reshape = Some(Reshape {
            position_sectors: 0,
            delta_disks: 0,
            new_level: Level::Raid5,
            new_layout: 1,
            new_chunk_sectors: 128,
            new_data_offset_sectors: None,
            backwards: false,
        });
    });
    (2..4).for_each(|index| count_on(&mut members[index], 1));
    let forward = assemble(&members, &Options::default());
    members.reverse();
    let backward = assemble(&members, &Options::default());
    assert!(forward.verdicts.iter().eq(backward.verdicts.iter().rev()), "{:?}", forward.verdicts);
}
