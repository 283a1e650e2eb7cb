//! Recognises the content of an array or disk: partitions, file systems, volume managers,
//! encryption.
//!
//! A pure crate above `braid-ondisk`, which recognises signatures. This crate reads partition
//! tables, and the recorded size and state of each content. The caller reads the bytes.
//!
//! ```text
//!   look ─▶ table: GPT, its copy, MBR ─▶ partitions ─┐
//!                                                    ├─▶ signatures ─▶ says: size, state ─▶ Volume
//!        └─▶ no table ─▶ the whole device ───────────┘
//! ```
//!
//! The crate does not check that content is sound (the content's own tools do), open encrypted
//! content, or follow volume managers: an LVM physical volume is recognised and sized, and
//! `braid-lvm` finds its volumes.
//!
//! Input from disk is not trusted: the bytes read and the partitions listed are limited here,
//! whatever tables say.
//!
//! Sources: the UEFI specification for GPT (5.3); the layouts that ext4's, xfs', btrfs', LVM's and
//! cryptsetup's own documents give.
//!
//! Invariants
//! - No partition leaves the device, and no more than [`PARTITIONS_MAX`] are listed
//!   `[check: no_table_leads_out_of_the_device]`.
//! - A table with a wrong checksum is not believed; its copy is believed, if the copy is sound
//!   `[check: a_damaged_table_gives_way_to_its_copy]`.
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod recorded_facts;
mod table;

use std::ops::Range;

use braid_ondisk::{ForeignKind, ForeignSignature, Snippet, Superblock, probe, probe_ranges};

pub use recorded_facts::RecordedFacts;
pub use table::{Partition, Scheme, Table};

/// The most partitions that are listed: twice the usual capacity of a GPT.
pub const PARTITIONS_MAX: usize = 256;

/// Reads bytes: takes an offset and a number of bytes; returns `None` if the read fails.
pub type Read<'a> = &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>;

/// Content that was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The kind of content, in one word: `ext4`, `xfs`, `luks`, ...
    pub name: &'static str,
    /// The content's label, if it has one.
    pub label: Option<String>,
    /// The content's UUID, as its own tools print it.
    pub uuid: Option<String>,
    /// The size and state that the content records.
    pub facts: RecordedFacts,
}

/// A partition, or the whole device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The volume's bytes on the device.
    pub bytes: Range<u64>,
    /// The partition's entry in the table; `None` for the whole device.
    pub partition: Option<Partition>,
    /// The recognised content; empty if the partition is empty or of an unknown kind.
    pub signatures: Vec<Signature>,
    /// Valid superblocks on the volume, if it is a member of an array.
    pub superblocks: Vec<Superblock>,
    /// Whether the first or last bytes of the volume could not be read.
    pub is_unreadable: bool,
    /// Whether the first and last bytes of the volume are zeroes.
    pub is_zero: bool,
}

/// The partitions and content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The partition table, if there is one.
    pub table: Option<Table>,
    /// The volumes of the device, in the order of their places.
    pub volumes: Vec<Volume>,
}

/// Recognises the content of a device of `size_bytes`.
#[must_use]
pub fn look(size_bytes: u64, read: Read<'_>) -> Contents {
    let table = table::read(size_bytes, read);
    let volumes = match &table {
        Some(table) => {
            let of = |partition: &Partition| {
                let bytes = partition.bytes.clone();
                Volume { partition: Some(partition.clone()), ..volume(bytes, read) }
            };
            table.partitions.iter().map(of).collect()
        }
        None => vec![volume(0..size_bytes, read)],
    };
    Contents { table, volumes }
}

fn volume(bytes: Range<u64>, read: Read<'_>) -> Volume {
    let size_bytes = bytes.end.saturating_sub(bytes.start);
    let mut snippets = Vec::new();
    let mut is_unreadable = false;
    for range in probe_ranges(size_bytes) {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
        match read(bytes.start.saturating_add(range.start), length) {
            Some(bytes) => snippets.push(Snippet { offset: range.start, bytes }),
            None => is_unreadable = true,
        }
    }
    let found = probe(size_bytes, &snippets);
    let is_table =
        |foreign: &ForeignSignature| matches!(foreign.kind, ForeignKind::Gpt | ForeignKind::Mbr);
    let others = found.foreign.iter().filter(|foreign| !is_table(foreign));
    let signatures = others.map(|foreign| signature(foreign, &snippets)).collect();
    let is_zero = snippets.iter().all(|snippet| snippet.bytes.iter().all(|byte| *byte == 0));
    let superblocks = found.superblocks.into_iter().filter_map(Result::ok).collect();
    Volume { bytes, partition: None, signatures, superblocks, is_unreadable, is_zero }
}

fn signature(foreign: &ForeignSignature, snippets: &[Snippet]) -> Signature {
    let (name, facts) = recorded_facts::recorded_facts(foreign, snippets);
    Signature { name, label: foreign.label.clone(), uuid: foreign.uuid.clone(), facts }
}
