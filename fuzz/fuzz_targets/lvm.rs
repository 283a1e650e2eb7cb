//! Volumes of LVM. Input: 1 byte that chooses a metadata text (even) or blocks of a pool's metadata
//! (odd), then the text or the blocks.
//!
//! The target first makes sums valid: the fuzzer cannot guess them. The metadata text is used as it
//! is. Of each block the input has the first 256 bytes. Unless the first byte has flag 2, the
//! target also sets each block's own number in the block.
#![no_main]

use braid_lvm::{ByteLocation, Map, Shape, groups, physical, thin};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/formats/lvm/tests/kit.rs"]
#[allow(dead_code)]
mod kit;

/// Bytes of the partition with the volumes.
const BYTES: u64 = 64 << 20;

fn walk(map: &Map) {
    let (mut at, (parts, _)) = (0, map.parts());
    for _ in 0..1000 {
        let Some((location, length)) = map.at(at) else { break };
        assert!(length > 0 && at + length <= map.size_bytes());
        if let ByteLocation::On { part, .. } = location {
            assert!(parts.contains(&part));
        }
        at += length;
    }
    assert_eq!(map.at(map.size_bytes()), None);
}

fn of_text(text: &[u8]) {
    let mut device = kit::head('a', BYTES, text, 512);
    device.resize(2 << 20, 0);
    let found = physical(BYTES, &mut kit::read_of(&device));
    let Some(Ok(found)) = found else { panic!("{found:?}") };
    for group in groups(&[found]) {
        for volume in &group.volumes {
            match &volume.shape {
                Shape::Direct(map) | Shape::Copy(map) => walk(map),
                Shape::Thin { pool, device: number } => {
                    let mut read = |_: usize, offset: u64, length: usize| kit::read_of(&device)(offset, length);
                    let wanted = 0..volume.size_bytes;
                    let _ = thin::map(&group.pools[*pool], (*number, volume.size_bytes), &wanted, &mut read);
                }
                Shape::Pool | Shape::Unsupported(_) => {}
            }
        }
    }
}

fn of_blocks(flags: u8, bytes: &[u8]) {
    let node_bytes = if flags & 4 == 0 { 4096 } else { 8192 };
    let blocks: Vec<Vec<u8>> = (0_u64..)
        .zip(bytes.chunks(256))
        .map(|(place, head)| {
            let mut block = head.to_vec();
            block.resize(node_bytes, 0);
            if flags & 2 == 0 {
                block[8..16].copy_from_slice(&place.to_le_bytes());
            }
            if place == 0 {
                let sound = kit::superblock(node_bytes, 1, 128, (flags & 8 != 0).then_some(3));
                block[32..48].copy_from_slice(&sound[32..48]);
                block[320..404].copy_from_slice(&sound[320..404]);
            }
            kit::sealed(block, if place == 0 { 160_774 } else { 121_107 })
        })
        .collect();
    let metadata = blocks.concat();
    let place = |extent: u64| format!("stripe_count = 1\nstripes = [\"pv0\", {extent}]");
    let pool = "metadata = \"m\"\npool = \"d\"\nchunk_size = 128";
    let volumes = [
        kit::volume("v", true, &[(0, 3, "thin", "thin_pool = \"p\"\ndevice_id = 5")]),
        kit::volume("p", true, &[(0, 4, "thin-pool", pool)]),
        kit::volume("m", false, &[(0, 1, "striped", &place(0))]),
        kit::volume("d", false, &[(0, 4, "striped", &place(1))]),
    ];
    let text = kit::text(1, &[('a', 8)], &volumes.concat());
    let mut device = kit::head('a', BYTES, &text, 512);
    device.extend(metadata);
    let group = groups(&[physical(BYTES, &mut kit::read_of(&device)).unwrap().unwrap()]).remove(0);
    let mut reads = 0;
    let mut read = |_: usize, offset: u64, length: usize| {
        reads += 1;
        kit::read_of(&device)(offset, length)
    };
    let size_bytes = 12 << 20;
    if let Ok((map, _)) = thin::map(&group.pools[0], (5, size_bytes), &(0..size_bytes), &mut read) {
        walk(&map);
    }
    // Each tree visits at most as many blocks as the pool has.
    assert!(reads <= 3 * 1024 + 2, "{reads}");
}

fuzz_target!(|input: &[u8]| {
    let Some((flags, bytes)) = input.split_first() else { return };
    match flags & 1 {
        0 if !bytes.is_empty() => of_text(bytes),
        0 => {}
        _ => of_blocks(*flags, bytes),
    }
});
