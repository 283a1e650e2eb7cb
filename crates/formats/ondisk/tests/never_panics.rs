//! No bytes make a parser panic. The tests use random bytes, and sound superblocks with noise and a
//! corrected checksum, which reach the checks after that of the checksum.

use crate::common::{DEVICE_BYTES, V0_OFFSET_BYTES, superblock_v0_bytes, superblock_v1};
use braid_ondisk::{
    BitmapFile, BitmapSuperblock, Bits, OwnLogHead, OwnLogPlace, Snippet, UnvalidatedV0,
    UnvalidatedV1, Version, checksum_v0, checksum_v1, probe,
};
use proptest::prelude::*;

/// Values that overflow arithmetic, or almost do.
const EXTREMES: [u64; 10] = [
    0,
    1,
    1 << 31,
    u32::MAX as u64,
    1 << 53,
    1 << 54,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 8,
    u64::MAX,
];

/// Noise: writes of a few bytes, or of long runs that make a field extreme.
fn noise() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let bytes = (0_usize..4096, prop::collection::vec(any::<u8>(), 1..4));
    let extreme = (0_usize..72, 0..EXTREMES.len(), 1_usize..3).prop_map(|(word, which, words)| {
        (word * 4, EXTREMES[which].to_le_bytes()[..4 * words].to_vec())
    });
    prop::collection::vec(prop_oneof![bytes, extreme], 1..6)
}

fn disturb(bytes: &mut [u8], noise: &[(usize, Vec<u8>)]) {
    let (_, body) = bytes.split_at_mut(4);
    for (at, values) in noise {
        for (value, at) in values.iter().zip(at.saturating_sub(4)..) {
            let at = at % body.len();
            body[at] = *value;
        }
    }
}

/// An accepted superblock reads back as the same value after writing.
fn reads_back(superblock: &braid_ondisk::Superblock, device_bytes: u64) {
    let bytes = superblock.to_bytes();
    let offset = superblock.offset_bytes();
    let found = if superblock.version.is_v1() {
        UnvalidatedV1::recognise(&bytes, superblock.version).unwrap().validate(device_bytes, offset)
    } else {
        UnvalidatedV0::recognise(&bytes).unwrap().validate(device_bytes, offset)
    };
    assert_eq!(found.as_ref(), Ok(superblock));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn noisy_version_1(which in 1_usize..4, noise in noise(), device_bytes in prop_oneof![Just(DEVICE_BYTES), any::<u64>()]) {
        let version = Version::ALL[which];
        let superblock = superblock_v1(version);
        let mut bytes = superblock.to_bytes();
        disturb(&mut bytes, &noise);
        if let Some(checksum) = checksum_v1(&bytes) {
            bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
        }
        let found = UnvalidatedV1::recognise(&bytes, version).unwrap();
        if let Ok(superblock) = found.validate(device_bytes, superblock.offset_bytes()) {
            reads_back(&superblock, device_bytes);
        }
    }

    #[test]
    fn noisy_version_0_90(noise in noise(), device_bytes in prop_oneof![Just(DEVICE_BYTES), any::<u64>()]) {
        let mut bytes = superblock_v0_bytes();
        disturb(&mut bytes, &noise);
        let checksum = checksum_v0(&bytes).unwrap();
        bytes[152..156].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(superblock) = UnvalidatedV0::recognise(&bytes).unwrap().validate(device_bytes, V0_OFFSET_BYTES) {
            reads_back(&superblock, device_bytes);
        }
    }

    #[test]
    fn noisy_bitmap_files(noise in noise(), sectors in 1_usize..64, ring in any::<u32>()) {
        let superblock = superblock_v1(Version::V1_2);
        let uuid = superblock.uuid_as_stored();
        let head = BitmapSuperblock::new(1 << 14, 4096, 0);
        let mut file = head.area(&uuid, &Bits::none(1 << 14, 8), None);
        file.resize(sectors * 512, 0);
        disturb(&mut file, &noise);
        if let Some(at) = file.len().checked_sub(4096) {
            let head = OwnLogHead { place: OwnLogPlace::of(ring) };
            file[at..].copy_from_slice(&head.to_bytes(&uuid));
        }
        let read = |start: u64, length: u64| -> Result<Vec<u8>, ()> {
            let start = usize::try_from(start).unwrap();
            Ok(file[start..start + usize::try_from(length).unwrap()].to_vec())
        };
        let found = BitmapFile::read(file.len() as u64, read);
        prop_assert!(found.is_ok(), "it asks for what is there");
    }

    #[test]
    fn any_snippets_of_any_device(
        device_bytes in prop_oneof![0_u64..1 << 20, any::<u64>()],
        snippets in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..600)), 0..5),
    ) {
        let snippets: Vec<_> =
            snippets.into_iter().map(|(offset, bytes)| Snippet { offset, bytes }).collect();
        let _ = probe(device_bytes, &snippets);
    }
}
