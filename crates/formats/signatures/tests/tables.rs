//! Partition tables, sound and damaged.

use braid_signatures::{Contents, PARTITIONS_MAX, Scheme, look};
use proptest::prelude::*;

use crate::kit::{contents, put_entry, put_gpt};

/// The number, first sector and last sector of each partition.
fn places(contents: &Contents) -> Vec<(u32, u64, u64)> {
    let partition = |volume: &braid_signatures::Volume| {
        let number = volume.partition.as_ref().expect("a partition").number;
        (number, volume.bytes.start / 512, volume.bytes.end / 512 - 1)
    };
    contents.volumes.iter().map(partition).collect()
}

#[test]
fn a_gpt_is_read_with_its_names() {
    for sector in [512_usize, 4096] {
        let mut bytes = vec![0; 8 << 20];
        let each = 4096 / sector as u64;
        put_gpt(
            &mut bytes,
            sector,
            &[(256 * each, 511 * each, "home"), (64 * each, 127 * each, "")],
        );
        let found = contents(&bytes);
        let table = found.table.as_ref().expect("a table");
        assert_eq!((table.scheme, table.out_of_bounds), (Scheme::Gpt, 0));
        let names: Vec<_> =
            table.partitions.iter().map(|one| (one.number, one.name.as_deref())).collect();
        assert_eq!(names, [(2, None), (1, Some("home"))], "in order of their places");
        assert_eq!(found.volumes[1].bytes.start, 1 << 20);
        assert!(found.volumes.iter().all(|volume| volume.is_zero && volume.signatures.is_empty()));
    }
}

#[test]
fn a_damaged_table_gives_way_to_its_copy() {
    let mut bytes = vec![0; 8 << 20];
    put_gpt(&mut bytes, 512, &[(2048, 4095, "one")]);
    put_entry(&mut bytes, 0, 0, (0xee, 1, 16_383));
    let sound = places(&contents(&bytes));
    assert_eq!(sound, [(1, 2048, 4095)]);
    // Each of these bytes is in the head or in the entries, and covered by a checksum.
    for at in [512, 512 + 16, 512 + 91, 1024, 1024 + 40, 1024 + 128 * 128 - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let found = contents(&damaged);
        assert_eq!(
            found.table.as_ref().map(|table| table.scheme),
            Some(Scheme::GptCopy),
            "byte {at}"
        );
        assert_eq!(places(&found), sound);
        let last = damaged.len() - 512;
        damaged[last] ^= 1;
        assert_eq!(contents(&damaged).table, None, "and of both none is believed");
    }
}

#[test]
fn an_mbr_is_read_with_its_chain() {
    let mut bytes = vec![0; 8 << 20];
    put_entry(&mut bytes, 0, 0, (0x83, 256, 1024));
    put_entry(&mut bytes, 0, 1, (0x0f, 2048, 8192));
    put_entry(&mut bytes, 2048, 0, (0x83, 64, 1000));
    put_entry(&mut bytes, 2048, 1, (0x05, 4096, 2048));
    put_entry(&mut bytes, 6144, 0, (0xfd, 64, 500));
    put_entry(&mut bytes, 0, 2, (0x83, 16_000, 1000));
    let found = contents(&bytes);
    assert_eq!(places(&found), [(1, 256, 1279), (5, 2112, 3111), (6, 6208, 6707)]);
    let table = found.table.expect("a table");
    assert_eq!((table.scheme, table.out_of_bounds), (Scheme::Mbr, 1), "the third reaches out");
    // The chain's second link leads back, so the chain ends.
    put_entry(&mut bytes, 6144, 1, (0x05, 0, 2048));
    assert_eq!(places(&contents(&bytes)).len(), 3);
}

#[test]
fn what_only_looks_like_a_table_is_none() {
    let mut bytes = vec![0; 1 << 20];
    assert_eq!(contents(&bytes).table, None);
    put_entry(&mut bytes, 0, 0, (0xee, 1, 2047));
    assert_eq!(contents(&bytes).table, None, "a shield and no GPT");
    put_entry(&mut bytes, 0, 0, (0x83, 128, 100));
    bytes[82..90].copy_from_slice(b"FAT32   ");
    assert_eq!(contents(&bytes).table, None, "a boot sector");
    assert_eq!(contents(&[]).volumes.len(), 1);
}

/// A device of this size with `pieces`: the byte offset and the content of each.
fn of_pieces(size_bytes: u64, pieces: &[(u64, Vec<u8>)]) -> Contents {
    let mut read_bytes = 0_usize;
    let mut read = |offset: u64, length: usize| {
        let end = offset.checked_add(length as u64).filter(|end| *end <= size_bytes);
        assert!(end.is_some(), "{length} bytes at {offset} of {size_bytes} were asked for");
        read_bytes += length;
        let mut bytes = vec![0; length];
        for (at, piece) in pieces {
            for (index, byte) in piece.iter().enumerate() {
                let place =
                    (at + index as u64).checked_sub(offset).and_then(|it| usize::try_from(it).ok());
                if let Some(to) = place.and_then(|place| bytes.get_mut(place)) {
                    *to = *byte;
                }
            }
        }
        Some(bytes)
    };
    let found = look(size_bytes, &mut read);
    assert!(read_bytes < 200 << 20, "{read_bytes} bytes were read");
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_table_leads_out_of_the_device(
        size_bytes in 0_u64..1 << 24,
        entries in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u32>()), 4),
        links in proptest::collection::vec((0_u32..40_000, 0_u32..40_000), 0..6),
    ) {
        let mut first = vec![0; 512];
        for (index, entry) in entries.iter().enumerate() {
            put_entry(&mut first, 0, index, (entry.0 % 16, entry.1 % 40_000, entry.2 % 40_000));
        }
        let mut pieces = vec![(0, first)];
        for (at, next) in links {
            let mut link = vec![0; 512];
            put_entry(&mut link, 0, 0, (0x83, next % 7, next));
            put_entry(&mut link, 0, 1, (0x05, next, 1));
            pieces.push((u64::from(at) * 512, link));
        }
        let found = of_pieces(size_bytes, &pieces);
        prop_assert!(found.volumes.len() <= PARTITIONS_MAX.max(1));
        for volume in &found.volumes {
            prop_assert!(volume.bytes.start <= volume.bytes.end && volume.bytes.end <= size_bytes);
        }
    }
}
