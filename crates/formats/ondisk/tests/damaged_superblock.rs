//! Damaged superblocks are mended to their original, and other bytes are not mistaken for one.

use braid_geometry::Level;
use braid_ondisk::{
    Flaw, Superblock, UnvalidatedV0, Version, may_be_damaged, recognise_damaged,
    recognise_damaged_v0,
};
use proptest::prelude::*;

use crate::common::{DEVICE_BYTES, V0_OFFSET_BYTES, spec, superblock_v0_bytes, superblock_v1};

const V1: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

fn other(version: Version) -> Superblock {
    let mut spec = spec(version, Level::Raid5, 2);
    spec.device_number = 2;
    spec.device_uuid[0] ^= 1;
    Superblock::new_v1(&spec).unwrap()
}

fn block(superblock: &Superblock) -> Vec<u8> {
    let mut bytes = superblock.to_bytes();
    bytes.resize(4096, 0);
    bytes
}

#[test]
fn what_nearly_stands_is_sound_once_it_is_mended() {
    for version in V1 {
        let whole = superblock_v1(version);
        let (bytes, own) = (block(&whole), whole.offset_bytes());
        let found = |bytes: &[u8], device: u64, at: u64| {
            recognise_damaged(bytes, device, at, &[&other(version)]).map(|it| {
                assert_eq!(it.superblock, whole, "{version}");
                (it.flaw, it.start_bytes, it.length_bytes)
            })
        };
        assert_eq!(found(&bytes, DEVICE_BYTES, own), Some((Flaw::Place, 0, DEVICE_BYTES)));
        // wipefs erases only the magic.
        let mut wiped = bytes.clone();
        wiped[..4].fill(0);
        assert!(may_be_damaged(&wiped) && may_be_damaged(&bytes));
        assert_eq!(found(&wiped, DEVICE_BYTES, own), Some((Flaw::Magic, 0, DEVICE_BYTES)));
        // The member is in a partition of a lost table, on a disk that ends far beyond the member.
        let start = 1 << 20;
        let (flaw, from, length) = found(&wiped, DEVICE_BYTES * 3, start + own).unwrap();
        assert_eq!((flaw, from), (Flaw::Magic, start));
        assert!((DEVICE_BYTES - 4096..=DEVICE_BYTES).contains(&length), "{version} {length}");
        // Damage in array-wide bytes, and in the event count.
        let mut other_name = bytes.clone();
        other_name[40] = 0x41;
        other_name[41] = 0x42;
        assert!(matches!(
            found(&other_name, DEVICE_BYTES, own),
            Some((Flaw::Bytes(1 | 2), 0, DEVICE_BYTES))
        ));
        assert_eq!(
            recognise_damaged(&other_name, DEVICE_BYTES, own, &[]),
            None,
            "two bits, and no second copy"
        );
        let mut other_events = bytes.clone();
        other_events[200] ^= 0x55;
        assert_eq!(
            found(&other_events, DEVICE_BYTES, own),
            Some((Flaw::Bytes(1), 0, DEVICE_BYTES))
        );
    }
}

#[test]
fn of_0_90_only_the_magic_can_be_put_back() {
    let bytes = superblock_v0_bytes();
    let sound = UnvalidatedV0::recognise(&bytes).unwrap().validate(DEVICE_BYTES, V0_OFFSET_BYTES);
    let mut wiped = bytes.clone();
    wiped[..4].fill(0);
    let found = recognise_damaged_v0(&wiped, DEVICE_BYTES).unwrap();
    assert_eq!(
        (found.flaw, found.start_bytes, found.found_bytes),
        (Flaw::Magic, 0, V0_OFFSET_BYTES)
    );
    assert_eq!(Ok(found.superblock), sound);
    assert_eq!(recognise_damaged_v0(&bytes, DEVICE_BYTES), None, "nothing is wrong with it");
    wiped[100] ^= 1;
    assert_eq!(recognise_damaged_v0(&wiped, DEVICE_BYTES), None);
    assert_eq!(recognise_damaged_v0(&vec![0; 4096], DEVICE_BYTES), None);
}

#[test]
fn a_device_that_was_enlarged_has_its_superblock_at_its_old_end() {
    let whole = superblock_v1(Version::V1_0);
    let found =
        recognise_damaged(&block(&whole), DEVICE_BYTES + (8 << 20), whole.offset_bytes(), &[])
            .unwrap();
    assert_eq!((found.flaw, found.start_bytes, &found.superblock), (Flaw::Place, 0, &whole));
    assert_eq!(found.length_bytes / 4096, DEVICE_BYTES / 4096 - 1 + 1, "{}", found.length_bytes);
}

#[test]
fn a_bit_that_is_wrong_costs_nothing_that_matters() {
    for version in V1 {
        let whole = superblock_v1(version);
        let bytes = block(&whole);
        let covered = 256 + 2 * whole.state.roles.len();
        for bit in (8 * 8..covered * 8).filter(|bit| bit % 29 == 0 || bit / 64 == 18) {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let others = other(version);
            let found = recognise_damaged(&wrong, DEVICE_BYTES, whole.offset_bytes(), &[&others]);
            // If the recorded place is wrong, the superblock fits no device.
            let Some(found) = found else {
                assert!((144..152).contains(&(bit / 8)), "{version} bit {bit}");
                continue;
            };
            let (is, was) = (&found.superblock, &whole);
            assert_eq!((found.start_bytes, &is.array), (0, &was.array), "{version} bit {bit}");
            assert_eq!(
                is.device.data_offset_sectors, was.device.data_offset_sectors,
                "{version} bit {bit}"
            );
            assert_ne!(is.device.number, others.device.number, "{version} bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_far_from_a_superblock_is_none(
        at in 8_usize..256, value in any::<[u8; 8]>(), wiped in any::<bool>(),
    ) {
        let whole = superblock_v1(Version::V1_2);
        let mut bytes = block(&whole);
        let end = (at + 8).min(256);
        bytes[at..end].copy_from_slice(&value[..end - at]);
        if wiped {
            bytes[..4].fill(0);
        }
        let bits: u32 = bytes[4..].iter().zip(&block(&whole)[4..]).map(|(a, b)| (a ^ b).count_ones()).sum();
        let found = recognise_damaged(&bytes, DEVICE_BYTES, whole.offset_bytes(), &[]);
        if bits > 0 && wiped {
            prop_assert_eq!(&found, &None);
        }
        if let Some(found) = found {
            prop_assert_eq!(found.superblock.to_bytes().len(), whole.to_bytes().len());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), device in any::<u64>(), at in any::<u64>()) {
        let whole = superblock_v1(Version::V1_2);
        let _ = recognise_damaged_v0(&bytes, device);
        let _ = may_be_damaged(&bytes);
        let _ = recognise_damaged(&bytes, device, at, &[&whole]);
    }
}
