//! Arrays in memory to take apart: superblocks as `mdadm --create` would make them, and functions
//! that apply updates and mishaps.
#![allow(dead_code, reason = "each test program uses a part of it")]

use braid_assembly::{Assembly, Options, ProbedMember, Refusal, assemble};
use braid_geometry::Level;
use braid_ondisk::{
    ArrayFacts, Bitmap, BitmapKind, BitmapSuperblock, Bits, Claim, Features, LocklessMarks,
    NewSuperblock, Probe, Role, Superblock, SuperblockError, SuperblockFault, Version, sample,
};

pub(crate) const DEVICE_BYTES: u64 = 16 << 20;
pub(crate) const EVENTS: u64 = 40;
pub(crate) const CLEAN: u64 = u64::MAX;

/// A clean array of `slots` members called `m0`, `m1`, ..., each with [`EVENTS`] events.
pub(crate) fn array(level: Level, slots: u16) -> Vec<ProbedMember> {
    array_with(level, slots, 0, 7)
}

/// Probed members of an array of `level` with `slots` members, then `spares` spares. Each byte of
/// the array's UUID is `uuid`.
pub(crate) fn array_with(level: Level, slots: u16, spares: u16, uuid: u8) -> Vec<ProbedMember> {
    let chunk_sectors = if level == Level::Raid1 { 0 } else { 128 };
    let place = sample::place(Version::V1_2, level, chunk_sectors, DEVICE_BYTES);
    let member = sample::member(level, chunk_sectors, slots, place.expect("placement"));
    let roles = (0..slots).map(Role::Active).chain((0..spares).map(|_| Role::Spare));
    let member = NewSuperblock {
        array: ArrayFacts { uuid: [uuid; 16], name: format!("host:array{uuid}"), ..member.array },
        roles: roles.collect(),
        events: EVENTS,
        resync_offset: CLEAN,
        ..member
    };
    let make = |number: u16| {
        let mut device_uuid = [uuid; 16];
        device_uuid[..2].copy_from_slice(&number.to_le_bytes());
        let superblock = Superblock::new_v1(&NewSuperblock {
            device_number: u32::from(number),
            device_uuid,
            ..member.clone()
        });
        probed(&format!("m{number}"), superblock.expect("new_v1"))
    };
    (0..slots + spares).map(make).collect()
}

pub(crate) fn probed(label: &str, superblock: Superblock) -> ProbedMember {
    ProbedMember {
        label: label.to_owned(),
        size_bytes: DEVICE_BYTES,
        identity: label.to_owned(),
        probe: Probe { superblocks: vec![Ok(superblock)], foreign: vec![] },
        bad_blocks: Ok(vec![]),
        bitmap: None,
        ppl: None,
        own_log: None,
        journal: None,
    }
}

pub(crate) fn blank(label: &str) -> ProbedMember {
    let probe = Probe::default();
    ProbedMember { probe, ..probed(label, superblock(&array(Level::Raid1, 1)[0]).clone()) }
}

pub(crate) fn superblock(member: &ProbedMember) -> &Superblock {
    member.probe.superblocks[0].as_ref().expect("a sound superblock")
}

pub(crate) fn edit(member: &mut ProbedMember, change: impl FnOnce(&mut Superblock)) {
    change(member.probe.superblocks[0].as_mut().expect("a sound superblock"));
}

pub(crate) fn edit_all(members: &mut [ProbedMember], change: impl Fn(&mut Superblock)) {
    members.iter_mut().for_each(|member| edit(member, &change));
}

/// Writes a device's role into a member's table, and as the member's own role if the member is that
/// device.
pub(crate) fn set_role(member: &mut ProbedMember, number: usize, role: Role) {
    edit(member, |superblock| {
        superblock.state.roles[number] = role;
        if usize::try_from(superblock.device.number) == Ok(number) {
            superblock.state.role = role;
        }
    });
}

/// Fails a member as md does: all other members record the failure, with one more event.
pub(crate) fn fail(members: &mut [ProbedMember], failed: usize) {
    let number = usize::try_from(superblock(&members[failed]).device.number).expect("small");
    for (index, member) in members.iter_mut().enumerate() {
        if index != failed {
            set_role(member, number, Role::Faulty);
            edit(member, |superblock| superblock.state.events += 1);
        }
    }
}

pub(crate) fn add_events(member: &mut ProbedMember, events: u64) {
    edit(member, |superblock| superblock.state.events += events);
}

pub(crate) fn set_dirty(members: &mut [ProbedMember], resync_offset: u64) {
    edit_all(members, |superblock| superblock.state.resync_offset = resync_offset);
}

pub(crate) fn add_feature(members: &mut [ProbedMember], feature: Features) {
    edit_all(members, |superblock| {
        superblock.state.features = superblock.state.features.with(feature);
    });
}

/// Gives every member a bitmap with this many events.
pub(crate) fn add_bitmap(members: &mut [ProbedMember], kind: BitmapKind, events: u64) {
    add_feature(members, Features::BITMAP);
    edit_all(members, |superblock| superblock.intent.bitmap_offset_sectors = Some(8));
    for member in members {
        let sectors = superblock(member).array.member_size_sectors;
        let head = BitmapSuperblock::new(sectors, 65_536, 0);
        let head = BitmapSuperblock { kind, events, events_cleared: events, ..head };
        let bits = Bits::none(sectors, head.sectors_each());
        let area = match kind {
            BitmapKind::Lockless => {
                let marks = LocklessMarks::clean(sectors, head.sectors_each());
                head.area(&[0; 16], &bits, Some(&marks))
            }
            // braid does not read the bits of this kind.
            BitmapKind::HostEndian => vec![0; usize::try_from(head.total_bytes()).expect("few")],
            BitmapKind::Classic => head.area(&[0; 16], &bits, None),
        };
        member.bitmap = Some(Bitmap::read(head, &area));
    }
}

pub(crate) fn judge(members: &[ProbedMember]) -> Assembly {
    assemble(members, &Options::default())
}

pub(crate) fn judge_read_only(members: &[ProbedMember]) -> Assembly {
    assemble(members, &Options { read_only: true, ..Options::default() })
}

pub(crate) fn refusal(members: &[ProbedMember]) -> Refusal {
    judge(members).array.expect_err("a refusal")
}

/// The codes of the verdicts, in the order of the members.
pub(crate) fn codes(assembly: &Assembly) -> Vec<&'static str> {
    assembly.verdicts.iter().map(|judged| judged.verdict.code()).collect()
}

/// The labels of the occupants, slot by slot; an empty string for a slot without one.
pub(crate) fn occupants(members: &[ProbedMember], assembly: &Assembly) -> Vec<String> {
    let array = assembly.array.as_ref().expect("an array");
    let label = |occupant: &braid_assembly::Occupant| members[occupant.member].label.clone();
    array.slots.iter().map(|slot| slot.as_ref().map(label).unwrap_or_default()).collect()
}

/// Damages a superblock: its checksum fails, but its event count can still be read.
pub(crate) fn damage(member: &mut ProbedMember) {
    let Superblock { array, state, .. } = superblock(member);
    let is_active = |role: &&Role| matches!(role, Role::Active(_));
    let active = state.roles.iter().filter(is_active).count();
    let missing = array.raid_slots - u32::try_from(active).expect("few");
    let claim = Some(Claim { array_uuid: array.uuid, events: state.events, missing });
    let cause = SuperblockFault::Checksum { stored: 1, computed: 2 };
    let error = SuperblockError { version: Version::V1_2, offset_bytes: 4096, cause, claim };
    member.probe.superblocks = vec![Err(error)];
}
