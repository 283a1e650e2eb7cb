//! Reads every superblock that the real md wrote: fields equal the kernel's, and written bytes
//! stay.

use braid_geometry::Level;
use braid_ondisk::{Features, Role, Superblock};

use super::fixture::Fixture;
use super::{fixtures, look};

fn superblocks(fixture: &Fixture) -> Vec<(Superblock, Vec<u8>)> {
    let one = |index: usize| {
        let image = fixture.image(index);
        let found = look::look_at_image("member", &image).probe.superblocks;
        let [Ok(superblock)] = found.as_slice() else { panic!("member {index}: {found:?}") };
        (superblock.clone(), image)
    };
    (0..fixture.members.len()).map(one).collect()
}

#[test]
fn every_superblock_is_written_as_it_was_read() {
    let mut count = 0;
    for (name, fixture) in fixtures() {
        for (superblock, image) in superblocks(&fixture) {
            let bytes = superblock.to_bytes();
            let start = usize::try_from(superblock.offset_bytes()).expect("small");
            assert!(bytes.len() >= 256 && image[start..start + bytes.len()] == bytes, "{name}");
            count += 1;
        }
    }
    assert!(count >= 470, "only {count} members");
}

#[test]
fn fields_are_what_the_kernel_said() {
    for (name, fixture) in fixtures() {
        for (index, (superblock, _)) in superblocks(&fixture).iter().enumerate() {
            let about = format!("{name} member {index}");
            let array = &superblock.array;
            let device_facts = &fixture.members[index];
            let fact = |word: &str| fixture.facts[word].as_str();
            assert_eq!(superblock.version.to_string(), fact("metadata_version"), "{about}");
            if superblock.reshape.is_some() {
                // For an array that came from another level, the kernel reports the former level's
                // values, also if the level changed for the reshape.
                let delta = superblock.reshape.map_or(0, |reshape| reshape.delta_disks);
                let before = i64::from(array.raid_slots) - i64::from(delta);
                let stayed = array.level.name() == fact("level");
                let slots = i64::try_from(fixture.number("raid_disks")).expect("small");
                let taken = matches!(&*name, "state-raid0-reshaping" | "state-raid6-reshaping-from-raid5");
                assert_eq!(before, slots + i64::from(taken), "{about}");
                assert!(stayed || name == "state-raid0-reshaping", "{about}");
                continue;
            }
            // md chose the level of the array after a takeover, and of the patched array.
            assert_eq!(array.level.name(), fact("level"), "{about}");
            assert_eq!(
                u64::from(array.chunk_sectors) * 512,
                fixture.number("chunk_size"),
                "{about}"
            );
            let is_direct = matches!(array.level, Level::Linear | Level::Raid0);
            if !is_direct {
                assert_eq!(
                    array.member_size_sectors,
                    fixture.number("component_size") * 2,
                    "{about}"
                );
                assert_eq!(u64::from(array.layout), fixture.number("layout"), "{about}");
            }
            assert_eq!(u64::from(array.raid_slots), fixture.number("raid_disks"), "{about}");
            if superblock.state.role != Role::Journal {
                assert_eq!(
                    superblock.device.data_offset_sectors, device_facts.data_start,
                    "{about}"
                );
            }
        }
    }
}

#[test]
fn members_of_a_healthy_array_differ_in_nothing_but_themselves() {
    for (name, fixture) in fixtures().into_iter().filter(|(name, _)| !name.starts_with("state-")) {
        let all = superblocks(&fixture);
        let (first, _) = &all[0];
        for (slot, (superblock, _)) in (0..).zip(&all) {
            assert_eq!(superblock.array, first.array, "{name}");
            assert_eq!(superblock.state.role, Role::Active(slot), "{name}");
            assert_eq!(superblock.device.number, u32::from(slot), "{name}");
            assert_eq!(superblock.state.events, first.state.events, "{name}");
            assert!(superblock.state.is_clean(), "{name}");
            assert_eq!(superblock.state.features.unknown(), 0, "{name}");
            assert!(!superblock.state.reserved_bytes_in_use, "{name}");
        }
    }
}

#[test]
fn what_a_member_keeps_besides_is_seen() {
    let all: std::collections::BTreeMap<_, _> = fixtures().into_iter().collect();
    let first = |name: &str| superblocks(&all[name]).swap_remove(0).0;
    let second = |name: &str| superblocks(&all[name]).swap_remove(1).0;
    assert!(first("state-raid1-bitmap").state.features.contains(Features::BITMAP));
    assert_eq!(first("state-raid1-bitmap").intent.bitmap_offset_sectors, Some(8));
    assert!(first("state-raid5-ppl").intent.ppl.is_some());
    assert!(first("state-raid5-journal").intent.journal.is_some());
    assert!(second("state-raid1-bad-blocks").state.features.contains(Features::BAD_BLOCKS));
    assert!(!first("state-raid1-write-mostly").device.flags.write_mostly);
    assert!(second("state-raid1-write-mostly").device.flags.write_mostly);
    assert!(first("state-raid1-failfast").device.flags.failfast);
    let reshape = first("state-raid5-reshaping").reshape.expect("a reshape");
    assert_eq!((reshape.delta_disks, reshape.backwards), (1, false));
    let reshape = first("state-raid5-reshaping-shrunk").reshape.expect("a reshape");
    assert_eq!((reshape.delta_disks, reshape.backwards), (-1, true));
    let reshape = first("state-raid5-reshaping-moved").reshape.expect("a reshape");
    assert_eq!((reshape.new_data_offset_sectors, reshape.new_chunk_sectors), (Some(1920), 128));
    let bitmap = |name| look::look_at_image("m", &all[name].image(0)).bitmap;
    let bitmap = bitmap("state-raid5-bitmap-stale").expect("there").expect("sound");
    let (bits, bitmap) = (bitmap.bits, bitmap.superblock);
    assert!(!bits.is_empty(), "what the stale member has missed");
    let events = first("state-raid5-bitmap-stale").state.events;
    assert!(bitmap.events_cleared < bitmap.events && bitmap.events == events, "{bitmap:?}");
    assert_eq!(bitmap.chunk_bytes, 64 << 10);
}
