//! Every foreign format is recognised at its place, with label and UUID, also next to an md
//! superblock.

use crate::common::{DEVICE_BYTES, superblock_v1};
use braid_ondisk::{ForeignKind, Probe, Snippet, Version, probe, probe_ranges};

fn probed(parts: &[(u64, &[u8])]) -> Probe {
    let mut device = vec![0; usize::try_from(DEVICE_BYTES).unwrap()];
    for (offset, bytes) in parts {
        let offset = usize::try_from(*offset).unwrap();
        device[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    let snippet = |range: std::ops::Range<u64>| Snippet {
        offset: range.start,
        bytes: device[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
            .to_vec(),
    };
    let snippets: Vec<_> = probe_ranges(DEVICE_BYTES).into_iter().map(snippet).collect();
    probe(DEVICE_BYTES, &snippets)
}

/// The only foreign signature on a device: kind, label, UUID.
fn only(parts: &[(u64, &[u8])]) -> (ForeignKind, Option<String>, Option<String>) {
    let mut found = probed(parts).foreign;
    assert_eq!(found.len(), 1, "{found:?}");
    let found = found.remove(0);
    (found.kind, found.label, found.uuid)
}

const UUID: &[u8] = &[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 7];

fn uuid() -> Option<String> {
    Some("01234567-89ab-cdef-0001-020304050607".to_owned())
}

fn label() -> Option<String> {
    Some("home".to_owned())
}

#[test]
fn images_and_what_is_compressed() {
    use ForeignKind as K;
    for (at, magic, kind) in [
        (0, &b"QFI\xfb\0\0\0\x03"[..], K::Qcow2),
        (0, b"KDMV\x01", K::Vmdk),
        (0, b"# Disk DescriptorFile\nversion=1", K::Vmdk),
        (64, b"\x7f\x10\xda\xbe", K::Vdi),
        (0, b"vhdxfile", K::Vhdx),
        (0, b"conectix\0\0\0\x02", K::Vhd),
        (0, b"EVF\x09\x0d\x0a\xff\0", K::Ewf),
        (0, b"\x1f\x8b\x08\0", K::Gzip),
        (0, b"\xfd7zXZ\0", K::Xz),
        (0, b"\x28\xb5\x2f\xfd", K::Zstd),
        (0, b"BZh91AY&SY", K::Bzip2),
        (0, b"\x04\x22\x4d\x18", K::Lz4),
        (0, b"PK\x03\x04", K::Zip),
        (0, b"7z\xbc\xaf\x27\x1c", K::SevenZip),
    ] {
        assert_eq!(only(&[(at, magic)]), (kind, None, None));
    }
}

#[test]
fn file_systems() {
    use ForeignKind as K;
    let ext: &[(u64, &[u8])] = &[(1080, &[0x53, 0xef]), (1128, UUID), (1144, b"home")];
    assert_eq!(only(ext), (K::Ext, label(), uuid()));
    assert_eq!(only(&[(0, b"XFSB"), (32, UUID), (108, b"home")]), (K::Xfs, label(), uuid()));
    let btrfs: &[(u64, &[u8])] = &[(65600, b"_BHRfS_M"), (65568, UUID), (65835, b"home")];
    assert_eq!(only(btrfs), (K::Btrfs, label(), uuid()));
    assert_eq!(only(&[(1024, &[0x10, 0x20, 0xf5, 0xf2]), (1132, UUID)]), (K::F2fs, None, uuid()));
    assert_eq!(
        only(&[(32768, b"JFS1"), (32904, UUID), (32920, b"home")]),
        (K::Jfs, label(), uuid())
    );
    assert_eq!(
        only(&[(65588, b"ReIsEr2Fs"), (65620, UUID), (65636, b"home")]),
        (K::Reiserfs, label(), uuid())
    );
    assert_eq!(only(&[(3, b"NTFS    "), (510, &[0x55, 0xaa]), (450, &[7])]), (K::Ntfs, None, None));
    assert_eq!(only(&[(3, b"EXFAT   "), (510, &[0x55, 0xaa])]), (K::Exfat, None, None));
    assert_eq!(only(&[(0, b"hsqs")]), (K::Squashfs, None, None));
    assert_eq!(only(&[(32769, b"CD001"), (32808, b"home    ")]), (K::Iso9660, label(), None));
    assert_eq!(only(&[(132 << 10, &0x00ba_b10c_u64.to_be_bytes())]), (K::Zfs, None, None));
}

/// A pair of ZFS's list: a name, the type of its value, and the value in XDR.
fn zfs_pair(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    let mut key = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    key.extend(name.as_bytes());
    key.resize(key.len().next_multiple_of(4), 0);
    let size = u32::try_from(8 + key.len() + 8 + value.len()).unwrap();
    let head = [size, size];
    let kind = [kind, 1];
    let mut pair: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
    pair.extend(key);
    pair.extend(kind.iter().flat_map(|word| word.to_be_bytes()));
    pair.extend(value);
    pair
}

#[test]
fn a_zfs_member_names_its_pool() {
    let mut list = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    list.extend(zfs_pair("version", 8, &5000u64.to_be_bytes()));
    list.extend(zfs_pair("name", 9, b"\0\0\0\x06tank-2\0\0"));
    list.extend(zfs_pair("pool_guid", 8, &12_345_678_901_234_567_890_u64.to_be_bytes()));
    list.extend([0; 8]);
    let uberblock = 0x00ba_b10c_u64.to_le_bytes();
    let found = only(&[(16 << 10, &list), (132 << 10, &uberblock)]);
    let wanted = (Some("tank-2".to_owned()), Some("12345678901234567890".to_owned()));
    assert_eq!((found.0, (found.1, found.2)), (ForeignKind::Zfs, wanted));
    // A list cut short anywhere is still recognised as ZFS, without invented names.
    for length in 0..list.len() {
        let found = only(&[(16 << 10, &list[..length]), (132 << 10, &uberblock)]);
        assert_eq!(found.0, ForeignKind::Zfs);
        assert!(found.1.is_none_or(|name| "tank-2".starts_with(&name)));
    }
}

#[test]
fn nothing_that_is_in_use_elsewhere_goes_unseen() {
    use ForeignKind as K;
    let cases: [(u64, &[u8], K); 25] = [
        (0, b"bluestore block device\n", K::Bluestore),
        (32, b"NXSB", K::Apfs),
        (1024, b"H+\0\x04", K::HfsPlus),
        (1024, b"HX\0\x05", K::HfsPlus),
        (3, b"-FVE-FS-", K::Bitlocker),
        (3, b"ReFS\0\0\0\0", K::Refs),
        (1024, &[0xe2, 0xe1, 0xf5, 0xe0], K::Erofs),
        (1030, &[0x34, 0x34], K::Nilfs2),
        (1024, b"OCFSV2", K::Ocfs2),
        (8192, b"OCFSV2", K::Ocfs2),
        (65_536, &0x0116_1970_u32.to_be_bytes(), K::Gfs2),
        (9564, &0x0001_1954_u32.to_le_bytes(), K::Ufs),
        (9564, &0x0001_1954_u32.to_be_bytes(), K::Ufs),
        (66_908, &0x1954_0119_u32.to_le_bytes(), K::Ufs),
        (66_908, &0x1954_0119_u32.to_be_bytes(), K::Ufs),
        (516, b"!Stra0tis\x86\xff\x02^\x41rh", K::Stratis),
        (4612, b"!Stra0tis\x86\xff\x02^\x41rh", K::Stratis),
        (0, b"dmvdo001", K::Vdo),
        (0, b"integrt\0", K::Integrity),
        (0, b"QFI\xfb\0\0\0\x03", K::Qcow2),
        (0, b"KDMV", K::Vmdk),
        (64, &0xbeda_107f_u32.to_le_bytes(), K::Vdi),
        (0, b"vhdxfile", K::Vhdx),
        (0x4000, b"SKUL\xba\xbe\0\x02", K::Luks),
        (0x40000, b"SKUL\xba\xbe\0\x02", K::Luks),
    ];
    for (offset, bytes, kind) in cases {
        assert_eq!(only(&[(offset, bytes)]), (kind, None, None), "{kind} at {offset}");
    }
    assert_eq!(only(&[(32, b"NXSB"), (72, UUID)]), (K::Apfs, None, uuid()));
    let erofs: &[(u64, &[u8])] =
        &[(1024, &[0xe2, 0xe1, 0xf5, 0xe0]), (1072, UUID), (1088, b"home")];
    assert_eq!(only(erofs), (K::Erofs, label(), uuid()));
    let nilfs: &[(u64, &[u8])] = &[(1030, &[0x34, 0x34]), (1176, UUID), (1192, b"home")];
    assert_eq!(only(nilfs), (K::Nilfs2, label(), uuid()));
}

#[test]
fn fat_is_told_apart_from_a_partition_table() {
    let fat: &[(u64, &[u8])] = &[
        (0, &[0xeb, 0x3c, 0x90]),
        (11, &[0, 2, 4]),
        (67, &[0x78, 0x56, 0x34, 0x12]),
        (71, b"home       FAT32   "),
        (510, &[0x55, 0xaa]),
    ];
    assert_eq!(only(fat), (ForeignKind::Vfat, label(), Some("1234-5678".to_owned())));
    let table: &[(u64, &[u8])] =
        &[(440, &[1, 2, 3, 4]), (446, &[0x80, 0, 0, 0, 0x83]), (510, &[0x55, 0xaa])];
    assert_eq!(only(table), (ForeignKind::Mbr, None, Some("04030201".to_owned())));
    // The boot mark alone, or GPT's protective entry alone, is no partition table.
    assert!(probed(&[(510, &[0x55, 0xaa])]).is_blank());
    assert!(probed(&[(450, &[0xee]), (510, &[0x55, 0xaa])]).is_blank());
}

#[test]
fn gpt_is_found_at_either_end() {
    let header = [
        b"EFI PART".as_slice(),
        &[0; 48],
        &[0x67, 0x45, 0x23, 0x01, 0xab, 0x89, 0xef, 0xcd],
        &UUID[8..],
    ]
    .concat();
    for offset in [512, 4096, DEVICE_BYTES - 512, DEVICE_BYTES - 4096] {
        assert_eq!(only(&[(offset, &header)]), (ForeignKind::Gpt, None, uuid()), "{offset}");
    }
}

#[test]
fn volume_managers_and_other_raids() {
    use ForeignKind as K;
    let luks: &[(u64, &[u8])] = &[(0, b"LUKS\xba\xbe\0\x02"), (24, b"home"), (168, b"an-uuid")];
    assert_eq!(only(luks), (K::Luks, label(), Some("an-uuid".to_owned())));
    let lvm: &[(u64, &[u8])] =
        &[(512, b"LABELONE"), (536, b"LVM2 001"), (544, b"0123456789abcdef0123456789abcdef")];
    assert_eq!(only(lvm), (K::Lvm2, None, Some("0123456789abcdef0123456789abcdef".to_owned())));
    for page in [4096, 16384, 65536] {
        let swap: &[(u64, &[u8])] = &[(page - 10, b"SWAPSPACE2"), (1036, UUID), (1052, b"home")];
        assert_eq!(only(swap), (K::Swap, label(), uuid()));
    }
    let magic = [
        0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d,
        0x81,
    ];
    assert_eq!(only(&[(4120, &magic), (4136, UUID)]), (K::Bcache, None, uuid()));
    let magic = [
        0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7,
        0xef,
    ];
    assert_eq!(
        only(&[(4120, &magic), (4152, UUID), (4168, b"home")]),
        (K::Bcachefs, label(), uuid())
    );
    assert_eq!(only(&[(DEVICE_BYTES - 512, &[0xde, 0x11, 0xde, 0x11])]), (K::Ddf, None, None));
    assert_eq!(
        only(&[(DEVICE_BYTES - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00")]),
        (K::Imsm, None, None)
    );
    assert_eq!(
        only(&[(DEVICE_BYTES - 4096 + 60, &0x8374_026d_u32.to_be_bytes())]),
        (K::Drbd, None, None)
    );
}

#[test]
fn a_stranger_does_not_hide_a_superblock_nor_the_other_way_round() {
    let superblock = superblock_v1(Version::V1_2);
    let found = probed(&[(1080, &[0x53, 0xef]), (4096, &superblock.to_bytes())]);
    assert_eq!(found.foreign.len(), 1);
    assert_eq!(found.newest(), Some(&superblock));
}
