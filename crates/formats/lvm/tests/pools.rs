//! Pools of thin volumes: sound trees, and trees that lead astray.

use braid_lvm::{ByteLocation, Fault, Group, Map, Shape, thin};

use crate::kit::{EXTENT, START, group, head, node, superblock, text, volume};

/// Sectors of a block in these pools: 64 KiB.
const BLOCK_SECTORS: u32 = 128;
const BLOCK: u64 = 65_536;

/// A device with a pool: metadata in extent 0, data in extents 1 to 4. The volume `thin` has number
/// 5 in the pool, and 3 extents.
pub(crate) fn device(metadata: &[u8], kind: &str) -> Vec<u8> {
    let place = |extent: u64| format!("stripe_count = 1\nstripes = [\"pv0\", {extent}]");
    let pool =
        "metadata = \"pool_tmeta\"\npool = \"pool_tdata\"\ntransaction_id = 1\nchunk_size = 128";
    let mut volumes = vec![
        volume(
            "thin",
            true,
            &[(0, 3, "thin", "thin_pool = \"pool\"\ntransaction_id = 0\ndevice_id = 5")],
        ),
        volume("pool", true, &[(0, 4, kind, pool)]),
        volume("pool_tmeta", false, &[(0, 1, "striped", &place(0))]),
    ];
    match kind {
        "thin-pool" => volumes.push(volume("pool_tdata", false, &[(0, 4, "striped", &place(1))])),
        _ => {
            volumes.push(volume("pool_tierdata_0", false, &[(0, 2, "striped", &place(1))]));
            volumes.push(volume("pool_tierdata_1", false, &[(0, 1, "error", "")]));
            volumes.push(volume("pool_tierdata_2", false, &[(0, 2, "striped", &place(3))]));
        }
    }
    let text = text(1, &[('a', 8)], &volumes.concat());
    let bytes = START + 8 * EXTENT;
    let mut device = head('a', bytes as u64, &text, 512);
    device.extend(metadata);
    device.resize(bytes, 0);
    device
}

pub(crate) fn mapped(
    device: &[u8],
    group: &Group,
    wanted: std::ops::Range<u64>,
) -> Result<(Map, u64), Fault> {
    let volume = group.volumes.iter().find(|one| one.name == "thin").expect("it is there");
    let Shape::Thin { pool, device: number } = volume.shape else { panic!("{volume:?}") };
    let mut read = |part: usize, offset: u64, length: usize| {
        assert_eq!(part, 0);
        device.get(usize::try_from(offset).unwrap()..)?.get(..length).map(<[u8]>::to_vec)
    };
    thin::map(&group.pools[pool], (number, volume.size_bytes), &wanted, &mut read)
}

fn all(metadata: &[Vec<u8>], kind: &str) -> Result<(Map, u64), Fault> {
    let device = device(&metadata.concat(), kind);
    let group = group(std::slice::from_ref(&device));
    mapped(&device, &group, 0..3 * EXTENT as u64)
}

fn data(block: u64) -> ByteLocation {
    ByteLocation::On { part: 0, offset_bytes: (START + EXTENT) as u64 + block * BLOCK }
}

fn value(block: u64) -> u64 {
    block << 24 | 17
}

#[test]
fn blocks_are_where_the_tree_says_and_others_are_zero() {
    let metadata = [
        superblock(4096, 1, BLOCK_SECTORS, None),
        node(4096, 1, true, &[(4, 9), (5, 2), (6, 9)]),
        node(4096, 2, false, &[(0, 3), (10, 4)]),
        node(4096, 3, true, &[(0, value(7)), (1, value(8)), (3, value(1))]),
        node(4096, 4, true, &[(10, value(2)), (40, value(60))]),
    ];
    let (map, lost) = all(&metadata, "thin-pool").expect("a pool");
    assert_eq!((map.size_bytes(), lost), (3 * EXTENT as u64, 0));
    for (block, expected) in [
        (0, (data(7), 2 * BLOCK)),
        (1, (data(8), BLOCK)),
        (2, (ByteLocation::Zero, BLOCK)),
        (3, (data(1), BLOCK)),
        (4, (ByteLocation::Zero, 6 * BLOCK)),
        (10, (data(2), BLOCK)),
        (40, (data(60), BLOCK)),
        (41, (ByteLocation::Zero, 151 * BLOCK)),
    ] {
        assert_eq!(map.at(block * BLOCK), Some(expected), "{block}");
    }
    assert_eq!(map.at(192 * BLOCK), None);
    // A map looks up only the wanted blocks.
    let device = device(&metadata.concat(), "thin-pool");
    let group = group(std::slice::from_ref(&device));
    let (some, _) = mapped(&device, &group, 10 * BLOCK..11 * BLOCK).expect("a pool");
    assert_eq!(some.at(10 * BLOCK), map.at(10 * BLOCK));
    assert_eq!(some.at(0).map(|it| it.0), Some(ByteLocation::Lost));
}

#[test]
fn trees_that_lead_astray_end() {
    let sound = [
        superblock(4096, 1, BLOCK_SECTORS, None),
        node(4096, 1, true, &[(5, 2)]),
        node(4096, 2, false, &[(0, 3), (10, 4)]),
        node(4096, 3, true, &[(0, value(7))]),
        node(4096, 4, true, &[(10, value(2))]),
    ];
    let with = |index: usize, block: Vec<u8>| {
        let mut metadata = sound.to_vec();
        metadata[index] = block;
        all(&metadata, "thin-pool")
    };
    // If a leaf is damaged, its blocks are lost, and the other blocks remain.
    let mut torn = sound[3].clone();
    torn[2000] ^= 1;
    let leaves = [
        torn,
        // The node belongs to another place.
        node(4096, 9, true, &[(0, value(7))]),
        // The keys are outside of the parent's range, fall, or repeat.
        node(4096, 3, true, &[(10, value(7))]),
        node(4096, 3, true, &[(4, value(7)), (2, value(7))]),
        node(4096, 3, true, &[(4, value(7)), (4, value(7))]),
        // The node leads to itself, back, or out of the pool.
        node(4096, 3, false, &[(0, 3)]),
        node(4096, 3, false, &[(0, 2)]),
        node(4096, 3, false, &[(0, u64::MAX)]),
        node(4096, 3, false, &[(0, 1 << 20)]),
        node(4096, 3, false, &[]),
    ];
    for (index, leaf) in leaves.into_iter().enumerate() {
        let (map, lost) = with(3, leaf).unwrap_or_else(|fault| panic!("{index}: {fault}"));
        assert_eq!(lost, 10 * BLOCK, "{index}");
        assert_eq!(map.at(0), Some((ByteLocation::Lost, 10 * BLOCK)), "{index}");
        assert_eq!(map.at(10 * BLOCK).map(|it| it.0), Some(data(2)), "{index}");
    }
    // Blocks whose entry points beyond the pool's data are lost.
    let (map, _) = with(
        3,
        node(4096, 3, true, &[(0, value(256)), (1, value(u64::MAX >> 24)), (2, value(255))]),
    )
    .expect("a pool");
    let locations = [0, 1, 2].map(|block| map.at(block * BLOCK).map(|it| it.0));
    assert_eq!(locations, [Some(ByteLocation::Lost), Some(ByteLocation::Lost), Some(data(255))]);
    // Without the tree of volumes no volume is found.
    assert_eq!(with(1, node(4096, 1, true, &[(4, 2)])), Err(Fault::NoDevice { device: 5 }));
    assert!(matches!(with(1, vec![0; 4096]), Err(Fault::Sum(_))));
    let mut torn = sound[0].clone();
    torn[330] ^= 1;
    assert!(matches!(with(0, torn), Err(Fault::Sum(_))));
    assert!(matches!(with(0, superblock(4096, 1, 0, None)), Err(Fault::Nonsense(_))));
}

/// QNAP's pools have nodes of 8 KiB, and if they have tiers, a tree with each block's tier.
#[test]
fn pools_of_qnap_are_read_with_tiers_and_without() {
    let leaf = node(8192, 2, true, &[(0, value(1)), (1, value(70))]);
    let volumes = node(8192, 1, true, &[(5, 2)]);
    let without = [
        superblock(8192, 1, BLOCK_SECTORS, Some(3)),
        volumes.clone(),
        leaf.clone(),
        node(8192, 3, true, &[]),
    ];
    // Two volumes hold the pool's data, and no tree says which block is in which volume.
    assert_eq!(all(&without, "tier-thin-pool"), Err(Fault::Tiers));
    let (map, _) = all(&without, "thin-pool").expect("one volume holds all");
    assert_eq!(map.at(0).map(|it| it.0), Some(data(1)));
    // A block of a tier is 4 MiB here. Block 1 of the pool is in the first block of a tier, block
    // 70 in the second.
    let tiers = node(8192, 3, true, &[(0, 2 << 61 | 1 << 24 | 3), (1, 1 << 24)]);
    let with = [superblock(8192, 1, BLOCK_SECTORS, Some(3)), volumes.clone(), leaf.clone(), tiers];
    let (map, _) = all(&with, "tier-thin-pool").expect("a pool");
    // Tier 2 begins in extent 3, tier 0 in extent 1. Block 1 of a tier is one extent further on.
    let at = |extent: usize, more: u64| ByteLocation::On {
        part: 0,
        offset_bytes: (START + extent * EXTENT) as u64 + more,
    };
    assert_eq!(map.at(0).map(|it| it.0), Some(at(4, BLOCK)));
    assert_eq!(map.at(BLOCK).map(|it| it.0), Some(at(2, 6 * BLOCK)));
    // If the tree of tiers is damaged, blocks are lost. The pool does not count as a pool without
    // tiers.
    let damaged = [superblock(8192, 1, BLOCK_SECTORS, Some(3)), volumes, leaf, vec![7; 8192]];
    let (map, _) = all(&damaged, "tier-thin-pool").expect("a pool");
    assert_eq!(map.at(0).map(|it| it.0), Some(ByteLocation::Lost));
}
