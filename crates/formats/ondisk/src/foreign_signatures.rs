//! Signatures of other formats on a device: file systems, partition tables, volume managers, other
//! RAID formats.
//!
//! braid recognises these formats so that it never overwrites them by mistake. A signature, a label
//! and a UUID are enough for recognition; no check here shows that the content is sound.
//!
//! Most formats have a fixed string at a fixed place: [`TABLE`]. The few formats that need more
//! than one field have a function each. Places and strings are public facts of each format. Formats
//! whose signature is beyond the bytes that `probe` reads are missing, such as VMFS (1 MiB and 2
//! MiB).

use std::fmt;

use crate::snippet::Bytes;

/// A recognised signature that is not md's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignSignature {
    /// The format.
    pub kind: ForeignKind,
    /// The content's label, if it has one.
    pub label: Option<String>,
    /// The UUID or serial number as the format's own tools print it, if one exists.
    pub uuid: Option<String>,
    /// Byte offset of the signature.
    pub offset: u64,
}

/// The recognised formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs)] // each variant is the name of what it stands for
pub enum ForeignKind {
    Ext,
    Xfs,
    Btrfs,
    Ntfs,
    Vfat,
    Exfat,
    F2fs,
    Jfs,
    Reiserfs,
    Swap,
    Lvm2,
    Luks,
    Zfs,
    Bcache,
    Bcachefs,
    Squashfs,
    Iso9660,
    Gpt,
    Mbr,
    Ddf,
    Imsm,
    Drbd,
    Bluestore,
    Apfs,
    HfsPlus,
    Bitlocker,
    Refs,
    Erofs,
    Nilfs2,
    Ocfs2,
    Gfs2,
    Ufs,
    Stratis,
    Vdo,
    Integrity,
    Qcow2,
    Vmdk,
    Vdi,
    Vhdx,
    Vhd,
    Ewf,
    Gzip,
    Xz,
    Zstd,
    Bzip2,
    Lz4,
    Zip,
    SevenZip,
}

impl ForeignKind {
    /// The format's name in reports and in `--destroy`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ntfs => "ntfs",
            Self::Vfat => "vfat",
            Self::Exfat => "exfat",
            Self::F2fs => "f2fs",
            Self::Jfs => "jfs",
            Self::Reiserfs => "reiserfs",
            Self::Swap => "swap",
            Self::Lvm2 => "lvm2",
            Self::Luks => "luks",
            Self::Zfs => "zfs",
            Self::Bcache => "bcache",
            Self::Bcachefs => "bcachefs",
            Self::Squashfs => "squashfs",
            Self::Iso9660 => "iso9660",
            Self::Gpt => "gpt",
            Self::Mbr => "mbr",
            Self::Ddf => "ddf",
            Self::Imsm => "imsm",
            Self::Drbd => "drbd",
            Self::Bluestore => "bluestore",
            Self::Apfs => "apfs",
            Self::HfsPlus => "hfs+",
            Self::Bitlocker => "bitlocker",
            Self::Refs => "refs",
            Self::Erofs => "erofs",
            Self::Nilfs2 => "nilfs2",
            Self::Ocfs2 => "ocfs2",
            Self::Gfs2 => "gfs2",
            Self::Ufs => "ufs",
            Self::Stratis => "stratis",
            Self::Vdo => "vdo",
            Self::Integrity => "integrity",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vhd",
            Self::Ewf => "ewf",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
            Self::Zip => "zip",
            Self::SevenZip => "7z",
        }
    }
}

impl fmt::Display for ForeignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fixed signature. Places are byte offsets on the device; labels end at the first zero byte.
struct Entry {
    kind: ForeignKind,
    magic_at: u64,
    magic: &'static [u8],
    uuid_at: Option<u64>,
    label: Option<(u64, usize)>,
}

const fn entry(kind: ForeignKind, magic_at: u64, magic: &'static [u8]) -> Entry {
    Entry { kind, magic_at, magic, uuid_at: None, label: None }
}

impl Entry {
    const fn uuid(self, at: u64) -> Self {
        Self { uuid_at: Some(at), ..self }
    }
    const fn label(self, at: u64, length: usize) -> Self {
        Self { label: Some((at, length)), ..self }
    }
}

const BCACHE_MAGIC: &[u8] = &[
    0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81,
];
const BCACHEFS_MAGIC: &[u8] = &[
    0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef,
];

const TABLE: &[Entry] = &[
    entry(ForeignKind::Ext, 1024 + 56, &[0x53, 0xef]).uuid(1024 + 104).label(1024 + 120, 16),
    entry(ForeignKind::Xfs, 0, b"XFSB").uuid(32).label(108, 12),
    entry(ForeignKind::Btrfs, 65536 + 64, b"_BHRfS_M").uuid(65536 + 32).label(65536 + 299, 256),
    entry(ForeignKind::F2fs, 1024, &[0x10, 0x20, 0xf5, 0xf2]).uuid(1024 + 108),
    entry(ForeignKind::Jfs, 32768, b"JFS1").uuid(32768 + 136).label(32768 + 152, 16),
    entry(ForeignKind::Reiserfs, 65536 + 52, b"ReIsEr").uuid(65536 + 84).label(65536 + 100, 16),
    entry(ForeignKind::Swap, 4096 - 10, b"SWAPSPACE2").uuid(1036).label(1052, 16),
    entry(ForeignKind::Swap, 16384 - 10, b"SWAPSPACE2").uuid(1036).label(1052, 16),
    entry(ForeignKind::Swap, 65536 - 10, b"SWAPSPACE2").uuid(1036).label(1052, 16),
    entry(ForeignKind::Bcache, 4096 + 24, BCACHE_MAGIC).uuid(4096 + 40),
    entry(ForeignKind::Bcachefs, 4096 + 24, BCACHEFS_MAGIC).uuid(4096 + 56).label(4096 + 72, 32),
    entry(ForeignKind::Squashfs, 0, b"hsqs"),
    entry(ForeignKind::Iso9660, 32768 + 1, b"CD001").label(32768 + 40, 32),
    entry(ForeignKind::Ntfs, 3, b"NTFS    "),
    entry(ForeignKind::Exfat, 3, b"EXFAT   "),
    entry(ForeignKind::Bluestore, 0, b"bluestore block device"),
    entry(ForeignKind::Apfs, 32, b"NXSB").uuid(72),
    entry(ForeignKind::HfsPlus, 1024, b"H+"),
    entry(ForeignKind::HfsPlus, 1024, b"HX"),
    entry(ForeignKind::Bitlocker, 3, b"-FVE-FS-"),
    entry(ForeignKind::Refs, 3, b"ReFS\0"),
    entry(ForeignKind::Erofs, 1024, &[0xe2, 0xe1, 0xf5, 0xe0]).uuid(1024 + 48).label(1024 + 64, 16),
    entry(ForeignKind::Nilfs2, 1024 + 6, &[0x34, 0x34]).uuid(1024 + 152).label(1024 + 168, 80),
    entry(ForeignKind::Ocfs2, 1024, b"OCFSV2"),
    entry(ForeignKind::Ocfs2, 2048, b"OCFSV2"),
    entry(ForeignKind::Ocfs2, 4096, b"OCFSV2"),
    entry(ForeignKind::Ocfs2, 8192, b"OCFSV2"),
    entry(ForeignKind::Gfs2, 65536, &[0x01, 0x16, 0x19, 0x70]),
    // UFS1 and UFS2, each in both byte orders.
    entry(ForeignKind::Ufs, 8192 + 1372, &[0x54, 0x19, 0x01, 0x00]),
    entry(ForeignKind::Ufs, 8192 + 1372, &[0x00, 0x01, 0x19, 0x54]),
    entry(ForeignKind::Ufs, 65536 + 1372, &[0x19, 0x01, 0x54, 0x19]),
    entry(ForeignKind::Ufs, 65536 + 1372, &[0x19, 0x54, 0x01, 0x19]),
    // Stratis has its label in sector 1, and a copy of the label in sector 9.
    entry(ForeignKind::Stratis, 512 + 4, b"!Stra0tis\x86\xff\x02"),
    entry(ForeignKind::Stratis, 9 * 512 + 4, b"!Stra0tis\x86\xff\x02"),
    entry(ForeignKind::Vdo, 0, b"dmvdo001"),
    entry(ForeignKind::Integrity, 0, b"integrt\0"),
    entry(ForeignKind::Qcow2, 0, b"QFI\xfb"),
    entry(ForeignKind::Vmdk, 0, b"KDMV"),
    entry(ForeignKind::Vdi, 64, &[0x7f, 0x10, 0xda, 0xbe]),
    entry(ForeignKind::Vhdx, 0, b"vhdxfile"),
    // A fixed-size VHD is raw data with this signature at its end only.
    entry(ForeignKind::Vhd, 0, b"conectix"),
    entry(ForeignKind::Vmdk, 0, b"# Disk DescriptorFile"),
    entry(ForeignKind::Ewf, 0, b"EVF\x09\x0d\x0a\xff\0"),
    entry(ForeignKind::Gzip, 0, &[0x1f, 0x8b, 8]),
    entry(ForeignKind::Xz, 0, b"\xfd7zXZ\0"),
    entry(ForeignKind::Zstd, 0, &[0x28, 0xb5, 0x2f, 0xfd]),
    // The magic of bzip2's first block holds the digits of pi.
    entry(ForeignKind::Bzip2, 4, &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59]),
    entry(ForeignKind::Lz4, 0, &[0x04, 0x22, 0x4d, 0x18]),
    entry(ForeignKind::Zip, 0, b"PK\x03\x04"),
    entry(ForeignKind::SevenZip, 0, b"7z\xbc\xaf\x27\x1c"),
];

/// All recognised signatures, in no particular order, each kind at each place once.
pub(crate) fn recognise_foreign(bytes: &Bytes<'_>) -> Vec<ForeignSignature> {
    let fixed = TABLE.iter().filter_map(|entry| recognise_entry(bytes, entry));
    let others = [luks, luks_second, lvm2, zfs, gpt, gpt_backup, vfat, mbr, ddf, imsm, drbd];
    fixed.chain(others.iter().filter_map(|recognise| recognise(bytes))).collect()
}

fn recognise_entry(bytes: &Bytes<'_>, entry: &Entry) -> Option<ForeignSignature> {
    (bytes.get(entry.magic_at, entry.magic.len())? == entry.magic).then(|| ForeignSignature {
        kind: entry.kind,
        label: entry.label.and_then(|(at, length)| text(bytes.get(at, length)?)),
        uuid: entry.uuid_at.and_then(|at| uuid(bytes.get(at, 16)?)),
        offset: entry.magic_at,
    })
}

fn found(
    kind: ForeignKind,
    offset: u64,
    label: Option<String>,
    uuid: Option<String>,
) -> ForeignSignature {
    ForeignSignature { kind, label, uuid, offset }
}

fn luks(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    luks_header(bytes, 0, b"LUKS\xba\xbe")
}

/// LUKS2's second header, if the first is shorter than 512 KiB. After a longer first header, the
/// second is beyond the bytes that `probe` reads.
fn luks_second(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    (14..=18).find_map(|bits| luks_header(bytes, 1 << bits, b"SKUL\xba\xbe"))
}

fn luks_header(bytes: &Bytes<'_>, at: u64, magic: &[u8]) -> Option<ForeignSignature> {
    (bytes.get(at, 6)? == magic).then(|| {
        let has_label = bytes.get(at + 6, 2) == Some(&[0, 2]);
        let label = bytes.get(at + 24, 48).filter(|_| has_label).and_then(text);
        found(ForeignKind::Luks, at, label, bytes.get(at + 168, 40).and_then(text))
    })
}

/// LVM's label is in one of the first four sectors; the volume's UUID follows, almost base 64.
fn lvm2(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    (0..4).map(|sector| sector * 512).find_map(|at| {
        let label = bytes.get(at, 64)?;
        let is_label =
            label.starts_with(b"LABELONE") && label.get(24..32) == Some(b"LVM2 001".as_slice());
        is_label.then(|| found(ForeignKind::Lvm2, at, None, label.get(32..64).and_then(text)))
    })
}

/// A ZFS uberblock in the ring of the first label, in either byte order.
fn zfs(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    (0..128).map(|slot| (128 + slot) << 10).find_map(|at| {
        let magic = bytes.get(at, 8)?.first_chunk::<8>()?;
        let known =
            u64::from_le_bytes(*magic) == 0x00ba_b10c || u64::from_be_bytes(*magic) == 0x00ba_b10c;
        known.then(|| {
            let (pool, guid) = zfs_pool(bytes).unwrap_or_default();
            found(ForeignKind::Zfs, at, pool, guid)
        })
    })
}

/// Name and GUID of the pool, from the list of names and values in ZFS's first label. The list is
/// XDR, so big-endian. Each pair holds its encoded and its decoded size, the name, the type, the
/// number of values, and the values.
fn zfs_pool(bytes: &Bytes<'_>) -> Option<(Option<String>, Option<String>)> {
    const LIST_AT: u64 = 16 << 10;
    const LIST_BYTES: usize = 112 << 10;
    /// The most pairs that are read; the pool's own names are among the first ten.
    const PAIRS_MAX: usize = 64;
    const KIND_UINT64: u32 = 8;
    const KIND_STRING: u32 = 9;
    let list = bytes.up_to(LIST_AT, LIST_BYTES).filter(|list| list.first() == Some(&1))?;
    let word = |bytes: &[u8], at: usize| -> Option<u32> {
        bytes.get(at..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word))
    };
    // An XDR string: a length, that many bytes, then up to three bytes of padding.
    let string = |bytes: &[u8], at: usize| -> Option<(String, usize)> {
        let length = usize::try_from(word(bytes, at)?).ok()?;
        let value = bytes.get(at.checked_add(4)?..)?.get(..length)?;
        let end = at.checked_add(4)?.checked_add(length.checked_next_multiple_of(4)?)?;
        Some((text(value).unwrap_or_default(), end))
    };
    let (mut name, mut guid) = (None, None);
    // Skip the encoding, the version and the flags.
    let mut rest = list.get(12..)?;
    for _ in 0..PAIRS_MAX {
        let size = usize::try_from(word(rest, 0)?).ok().filter(|size| *size > 8);
        let Some(pair) = size.and_then(|size| rest.get(..size)) else { break };
        let (key, at) = string(pair, 8)?;
        match (key.as_str(), word(pair, at)?) {
            ("name", KIND_STRING) => {
                name = string(pair, at.checked_add(8)?).map(|(name, _)| name);
            }
            ("pool_guid", KIND_UINT64) => {
                let value = pair.get(at.checked_add(8)?..)?.first_chunk::<8>()?;
                guid = Some(u64::from_be_bytes(*value).to_string());
            }
            _ => {}
        }
        rest = rest.get(pair.len()..)?;
    }
    Some((name.filter(|name| !name.is_empty()), guid))
}

/// GPT's header, after the first sector of 512 or 4096 bytes.
fn gpt(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    [512, 4096].into_iter().find_map(|at| gpt_header(bytes, at))
}

fn gpt_backup(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    let last =
        |sector: u64| (bytes.device_bytes / sector).checked_sub(1).map(|count| count * sector);
    [512, 4096]
        .into_iter()
        .filter_map(last)
        .filter(|at| *at > 4096)
        .find_map(|at| gpt_header(bytes, at))
}

fn gpt_header(bytes: &Bytes<'_>, at: u64) -> Option<ForeignSignature> {
    let header = bytes.get(at, 72)?;
    let is_gpt = header.starts_with(b"EFI PART");
    is_gpt
        .then(|| found(ForeignKind::Gpt, at, None, header.get(56..72).and_then(mixed_endian_uuid)))
}

fn has_boot_mark(bytes: &Bytes<'_>) -> bool {
    bytes.get(510, 2) == Some(&[0x55, 0xaa])
}

/// A FAT boot sector: a jump, plausible sizes, and "FAT" at the place of FAT12/16 or of FAT32.
fn vfat(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    let sector = bytes.get(0, 512)?;
    let at = |from: usize, length: usize| sector.get(from..)?.get(..length);
    let [low, high] = *at(11, 2)?.first_chunk()?;
    let per_cluster = *sector.get(13)?;
    let sector_bytes = u16::from_le_bytes([low, high]);
    let sane = matches!(*sector.first()?, 0xeb | 0xe9)
        && matches!(sector_bytes, 512 | 1024 | 2048 | 4096)
        && per_cluster.is_power_of_two()
        && has_boot_mark(bytes);
    let (serial_at, label_at) = match (at(54, 3)?, at(82, 3)?) {
        (b"FAT", _) => (39, 43),
        (_, b"FAT") => (67, 71),
        _ => return None,
    };
    let [a, b, c, d] = *at(serial_at, 4)?.first_chunk()?;
    let label = text(at(label_at, 11)?).filter(|label| label != "NO NAME");
    sane.then(|| found(ForeignKind::Vfat, 0, label, Some(format!("{d:02X}{c:02X}-{b:02X}{a:02X}"))))
}

/// An MBR partition table: at least one entry, and only plausible entries. A boot sector, or only
/// GPT's protective entry, does not count.
fn mbr(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    const GPT_SHIELD: u8 = 0xee;
    let named = bytes.get(3, 8)?;
    if !has_boot_mark(bytes)
        || named == b"NTFS    "
        || named == b"EXFAT   "
        || vfat(bytes).is_some()
    {
        return None;
    }
    let (entries, _) = bytes.get(446, 64)?.as_chunks::<16>();
    let kind_of = |entry: &[u8; 16]| entry.get(4).copied().unwrap_or(0);
    let sane = entries.iter().all(|entry| matches!(entry.first(), Some(0 | 0x80)));
    let used = entries.iter().any(|entry| !matches!(kind_of(entry), 0 | GPT_SHIELD));
    let serial =
        bytes.get(440, 4)?.first_chunk::<4>().map(|id| format!("{:08x}", u32::from_le_bytes(*id)));
    (sane && used).then(|| found(ForeignKind::Mbr, 0, None, serial))
}

/// SNIA DDF: an anchor header in the last sector.
fn ddf(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    let at = (bytes.device_bytes / 512).checked_sub(1)? * 512;
    (bytes.get(at, 4)? == [0xde, 0x11, 0xde, 0x11]).then(|| found(ForeignKind::Ddf, at, None, None))
}

/// Intel Matrix: an anchor in the last sector but one.
fn imsm(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    const SIGNATURE: &[u8] = b"Intel Raid ISM Cfg Sig. ";
    let at = (bytes.device_bytes / 512).checked_sub(2)? * 512;
    (bytes.get(at, SIGNATURE.len())? == SIGNATURE).then(|| found(ForeignKind::Imsm, at, None, None))
}

/// DRBD's internal metadata at the last 4 KiB boundary, with the magic (big endian) at byte 60.
fn drbd(bytes: &Bytes<'_>) -> Option<ForeignSignature> {
    let at = (bytes.device_bytes & !4095).checked_sub(4096)?;
    let magic = u32::from_be_bytes(*bytes.get(at + 60, 4)?.first_chunk::<4>()?);
    (0x8374_026a..=0x8374_026d).contains(&magic).then(|| found(ForeignKind::Drbd, at, None, None))
}

/// The text up to the first zero byte, trimmed; `None` if nothing is left.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end)?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// A UUID in the usual form; `None` if it is all zero.
fn uuid(bytes: &[u8]) -> Option<String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Some(text)
}

/// GPT stores the first three groups of a UUID in little endian.
fn mixed_endian_uuid(bytes: &[u8]) -> Option<String> {
    let mut bytes = *bytes.first_chunk::<16>()?;
    for range in [0..4, 4..6, 6..8] {
        bytes.get_mut(range)?.reverse();
    }
    uuid(&bytes)
}
