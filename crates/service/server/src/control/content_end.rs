//! Content on an array, such as a file system, and its end: an array that gets smaller must not cut
//! the content.
//!
//! ```text
//!   Volume ─▶ bytes ─▶ braid_signatures::look ─▶ Standing: names, end, the way to shrink it
//! ```
//!
//! Content that records no end counts as content up to the array's end: encrypted content, say,
//! whose size is that of its device. A partition table ends with its last partition. Content that
//! braid does not recognise is ignored: only its clients know its end.
//!
//! This file reads the array as a client does, and judges no change of shape.
//!
//! Invariants
//! - content whose end is not known is cut by any end
//!   `[check: content_without_a_known_end_is_cut_by_any_end]`.

use braid_console::output::size::format_size;
use braid_ring::Payload;
use braid_ring::client::ClientRequest;
use braid_runtime::Volume;
use braid_signatures::{Contents, Scheme, Signature, look};

/// Size in bytes of a superblock, which md's older versions keep at a member's end.
const SUPERBLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// Content on the array, such as a file system or a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The words by which an operator may name the content; braid offers the first word.
    pub(super) names: Vec<String>,
    /// A description of the content for the operator.
    pub(super) words: String,
    /// First byte behind the content; `None` if the content does not record its end.
    pub(super) end_bytes: Option<u64>,
    way: Way,
}

/// The tool that makes the content smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Ext,
    Xfs,
    Btrfs,
    PhysicalVolume,
    Encrypted,
    Partitions,
    /// Tools of the content that braid does not know.
    Other,
}

impl Standing {
    /// Whether an array that ends at this byte cuts the content.
    fn is_cut_at(&self, end_bytes: u64) -> bool {
        self.end_bytes.is_none_or(|end| end > end_bytes)
    }

    /// Whether one of these words names the content.
    pub(super) fn is_named(&self, words: &[String]) -> bool {
        self.names.iter().any(|name| words.contains(name))
    }

    /// A line that names the content and its end.
    pub(super) fn line(&self) -> String {
        match self.end_bytes {
            Some(end) => format!("{} ends at {}", self.words, format_size(end)),
            None => format!("{} does not say where it ends", self.words),
        }
    }

    /// The command that makes the content end at this byte, if braid knows one.
    pub(super) fn command(&self, end_bytes: u64) -> Option<String> {
        let kib = end_bytes / 1024;
        match self.way {
            Way::Ext => Some(format!("resize2fs DEVICE {kib}K")),
            Way::Btrfs => Some(format!("btrfs filesystem resize {kib}K MOUNTPOINT")),
            Way::PhysicalVolume => Some(format!("pvresize --setphysicalvolumesize {kib}K DEVICE")),
            Way::Partitions => Some(format!("parted DEVICE resizepart NUMBER {kib}KiB")),
            Way::Xfs | Way::Encrypted | Way::Other => None,
        }
    }

    /// Advice about making the content smaller.
    pub(super) fn hint(&self) -> &'static str {
        match self.way {
            Way::Ext => "it shrinks while it is not mounted, after `e2fsck -f`",
            Way::Btrfs => "it shrinks while it is mounted",
            Way::PhysicalVolume => "its extents behind the new end move first (`pvmove`)",
            Way::Partitions => "what is in its last partitions shrinks first",
            Way::Xfs => {
                "xfs cannot shrink: copy its files elsewhere, and make a smaller one (`mkfs.xfs`)"
            }
            Way::Encrypted => {
                "what is in it shrinks first; then `cryptsetup resize --size SECTORS NAME`"
            }
            Way::Other => "only its own tools can make it smaller",
        }
    }
}

/// The content that an array's end at this byte would cut.
pub(super) fn cut_at(volume: &Volume, end_bytes: u64) -> Vec<Standing> {
    let size_bytes = volume.size_bytes();
    let contents = look(size_bytes, &mut |offset, length| read(volume, offset, length));
    let mut standing = standing(&contents);
    standing.retain(|one| one.is_cut_at(end_bytes));
    standing
}

fn read(volume: &Volume, offset: u64, length: usize) -> Option<Vec<u8>> {
    let payload = Payload::zeroed(length);
    let outcome = volume.call(ClientRequest::Read { offset, payload });
    outcome.result.ok()?;
    Some(outcome.payload?.to_vec())
}

fn standing(contents: &Contents) -> Vec<Standing> {
    if let Some(table) = &contents.table {
        let name = if table.scheme == Scheme::Mbr { "mbr" } else { "gpt" };
        let ends = table.partitions.iter().map(|one| one.bytes.end);
        let end_bytes = ends.max().or(Some(0)).filter(|_| table.out_of_bounds == 0);
        let words = format!("a partition table ({name})");
        return vec![Standing { names: vec![name.into()], words, end_bytes, way: Way::Partitions }];
    }
    let mut all = Vec::new();
    for volume in &contents.volumes {
        all.extend(volume.signatures.iter().map(of_signature));
        all.extend(volume.superblocks.iter().map(|superblock| {
            let device = &superblock.device;
            let data = device.data_offset_sectors.saturating_add(device.data_size_sectors);
            let itself = superblock.offset_bytes().saturating_add(SUPERBLOCK_BYTES);
            let end = data.saturating_mul(SECTOR_BYTES).max(itself);
            let (names, words) = (vec!["md".to_owned()], "a member of an md array".to_owned());
            Standing { names, words, end_bytes: Some(end), way: Way::Other }
        }));
        if volume.is_unreadable {
            let words = "content that cannot be read".to_owned();
            let names = vec!["unreadable".to_owned()];
            all.push(Standing { names, words, end_bytes: None, way: Way::Other });
        }
    }
    all
}

fn of_signature(signature: &Signature) -> Standing {
    let Signature { name, label, uuid, facts } = signature;
    let way = match *name {
        "ext2" | "ext3" | "ext4" | "ext" => Way::Ext,
        "xfs" => Way::Xfs,
        "btrfs" => Way::Btrfs,
        "lvm2" => Way::PhysicalVolume,
        _ if facts.is_encrypted => Way::Encrypted,
        _ => Way::Other,
    };
    let named = label.iter().chain(uuid).cloned();
    let words = match label {
        Some(label) => format!("{name} \"{label}\""),
        None => (*name).to_owned(),
    };
    let names = std::iter::once((*name).to_owned()).chain(named).collect();
    Standing { names, words, end_bytes: facts.size_bytes, way }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_signatures::{Partition, RecordedFacts, Table, Volume};

    fn volume(signatures: Vec<Signature>) -> Volume {
        Volume {
            bytes: 0..1 << 30,
            partition: None,
            signatures,
            superblocks: Vec::new(),
            is_unreadable: false,
            is_zero: false,
        }
    }

    fn signature(name: &'static str, size_bytes: Option<u64>, is_encrypted: bool) -> Signature {
        let facts = RecordedFacts { size_bytes, is_encrypted, ..RecordedFacts::default() };
        Signature { name, label: Some("home".into()), uuid: None, facts }
    }

    fn only(signature: Signature) -> Standing {
        let contents = Contents { table: None, volumes: vec![volume(vec![signature])] };
        let found = standing(&contents);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    #[test]
    fn content_is_cut_by_an_end_before_its_own() {
        for (name, command) in [
            ("ext4", Some("resize2fs DEVICE 1000K")),
            ("btrfs", Some("btrfs filesystem resize 1000K MOUNTPOINT")),
            ("lvm2", Some("pvresize --setphysicalvolumesize 1000K DEVICE")),
            ("xfs", None),
            ("ntfs", None),
        ] {
            let one = only(signature(name, Some(1_024_001), false));
            assert!(one.is_cut_at(1_024_000) && !one.is_cut_at(1_024_001), "{one:?}");
            assert_eq!(one.command(1_024_000).as_deref(), command);
            assert!(one.is_named(&["home".into()]) && one.is_named(&[name.into()]), "{one:?}");
            assert!(one.line().contains("home") && !one.hint().is_empty(), "{one:?}");
        }
        assert!(only(signature("xfs", Some(1), false)).hint().contains("cannot shrink"));
    }

    #[test]
    fn content_without_a_known_end_is_cut_by_any_end() {
        let one = only(signature("luks2", None, true));
        assert!(one.is_cut_at(u64::MAX) && one.hint().contains("cryptsetup"), "{one:?}");
        let unreadable = Volume { is_unreadable: true, ..volume(Vec::new()) };
        let contents = Contents { table: None, volumes: vec![unreadable] };
        assert!(standing(&contents)[0].is_cut_at(u64::MAX));
        assert_eq!(standing(&Contents { table: None, volumes: vec![volume(Vec::new())] }), []);
    }

    #[test]
    fn a_table_ends_with_its_last_partition() {
        let partition = |number: u32, start: u64, end: u64| Partition {
            number,
            bytes: start << 20..end << 20,
            name: None,
        };
        let partitions = vec![partition(1, 1, 9), partition(2, 9, 12)];
        let table = Table { scheme: Scheme::Gpt, partitions, out_of_bounds: 0 };
        let of = |table: Table| standing(&Contents { table: Some(table), volumes: Vec::new() });
        let one = of(table.clone())[0].clone();
        assert!(one.is_cut_at((12 << 20) - 1) && !one.is_cut_at(12 << 20), "{one:?}");
        assert!(of(Table { out_of_bounds: 1, ..table.clone() })[0].is_cut_at(12 << 20));
        assert!(!of(Table { partitions: Vec::new(), ..table })[0].is_cut_at(1));
    }
}
