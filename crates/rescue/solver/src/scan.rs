//! Scans the members: selects the sectors to read, and finds the signs in them.
//!
//! ```text
//!   regions    the head of each member whole, small windows all over it, its tail
//!   first      superblocks, tables: the volumes, and where volumes may begin
//!   second     metadata needed by the third: group descriptors of ext, chunks of btrfs
//!   third      every structure with its own address in it
//! ```
//!
//! Regions are read three times, so that their bytes need not be kept.

use std::ops::Range;

use crate::Platter;
use crate::bytes::{SECTOR, is_blank, small};
use crate::place_index::PlaceIndex;
use crate::sign::{Addresses, Sign, Volume, VolumeKind, btrfs, ext, table, xfs};
use crate::volume_metadata::VolumeMetadata;

/// Sectors that are read at once.
const STEP: u64 = 2048;
/// Sectors read beyond the end of a region, since a sign that begins in the region may need as
/// many: a btrfs node.
const OVERLAP: u64 = 128;
/// The least distance, in sectors, of kept signs of the same kind on a member: adjacent blocks add
/// no evidence.
const SPACING: u64 = 8;
/// mdadm's default data offset on large members: 128 MiB.
const LARGE_OFFSET: u64 = 262_144;
/// The most volumes that a scan finds; disk images in a file system may add any number.
const VOLUMES_MAX: usize = 64;
/// The most different superblocks of one volume that are counted.
const VERSIONS_MAX: usize = 64;
/// The most starts of volumes that are taken from tables.
const STARTS_MAX: usize = 48;

/// How much of each member is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Sectors read from the member's start, and as many sectors from the usual data offset of
    /// large members.
    pub head_sectors: u64,
    /// The number of windows that are read over the rest of the member.
    pub windows: u64,
    /// Sectors of a window.
    pub window_sectors: u64,
}

impl Default for Effort {
    /// 64 MiB twice, and 256 windows of 128 KiB: a slow disk reads them in seconds.
    fn default() -> Self {
        Self { head_sectors: 64 << 11, windows: 256, window_sectors: 256 }
    }
}

impl Effort {
    /// The sectors to read of a member of this size: ranges in order, without overlap.
    pub(crate) fn regions(&self, sectors: u64) -> Vec<Range<u64>> {
        let head = |start: u64| start..(start + self.head_sectors).min(sectors);
        let mut regions = vec![head(0), head(LARGE_OFFSET)];
        let (start, rest) = (regions[0].end, sectors - regions[0].end);
        if rest <= self.windows * self.window_sectors {
            regions.push(start..sectors);
        } else {
            let stride = rest / self.windows.max(1);
            for window in 1..self.windows {
                // A window begins where a file system's group is likely to begin.
                let start = (start + window * stride) & !0xff;
                regions.push(start..(start + self.window_sectors).min(sectors));
            }
            regions.push(sectors - self.window_sectors..sectors);
        }
        in_order(regions)
    }

    /// The ranges that `regions` returns, and as many windows over each of `ranges`; short ranges
    /// as a whole.
    pub(crate) fn closer(&self, sectors: u64, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut regions = self.regions(sectors);
        for range in ranges {
            let length = range.end - range.start;
            if length <= self.head_sectors {
                regions.push(range.clone());
                continue;
            }
            let stride = length / self.windows.max(1);
            let starts = (0..self.windows).map(|window| (range.start + window * stride) & !0xff);
            regions.extend(starts.map(|start| start..(start + self.window_sectors).min(sectors)));
        }
        in_order(regions)
    }
}

/// Sorts regions and removes overlaps.
fn in_order(mut regions: Vec<Range<u64>>) -> Vec<Range<u64>> {
    regions.retain(|region| !region.is_empty());
    regions.sort_by_key(|region| region.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for region in regions {
        match apart.last_mut().filter(|last| region.start <= last.end) {
            Some(last) => last.end = last.end.max(region.end),
            None => apart.push(region),
        }
    }
    apart
}

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) metadata: Vec<VolumeMetadata>,
    pub(crate) places: Vec<PlaceIndex>,
    pub(crate) signs: Vec<Sign>,
    /// Starts of volumes according to tables, in sectors of the device with the table.
    pub(crate) starts: Vec<u64>,
    /// Sectors that could not be read.
    pub(crate) unreadable: u64,
    /// The superblocks of each volume, with the number of times each was seen. A superblock that is
    /// parity of other superblocks occurs once.
    versions: Vec<Vec<(ext::ExtSuperblock, usize)>>,
}

/// Scans the regions that `regions_of` selects on all members.
pub(crate) fn scan(
    members: &[&dyn Platter],
    regions_of: impl Fn(&dyn Platter) -> Vec<Range<u64>>,
) -> Scan {
    let mut scan = Scan::default();
    let regions: Vec<_> = members.iter().map(|member| regions_of(*member)).collect();
    let members = || members.iter().copied().zip(&regions).enumerate();
    for (member, (platter, regions)) in members() {
        scan.unreadable += each_sector(platter, regions, |sector, bytes| {
            scan_first(&mut scan, member, sector, bytes)
        });
    }
    for (index, versions) in scan.versions.iter().enumerate() {
        if let Some((most, _)) = versions.iter().max_by_key(|(_, count)| *count) {
            scan.volumes[index].size_sectors = most.size_sectors();
            scan.metadata[index] = VolumeMetadata::Ext(Box::new(most.clone()), None);
        }
    }
    scan.places.resize_with(scan.volumes.len(), PlaceIndex::default);
    let is_bare = |it: &&VolumeMetadata| match it {
        VolumeMetadata::Ext(found, _) => !found.has_checksums(),
        _ => false,
    };
    let is_only = scan.metadata.iter().filter(is_bare).count() == 1;
    for (places, metadata) in scan.places.iter_mut().zip(&scan.metadata) {
        places.is_heard = is_only || !is_bare(&metadata);
    }
    for (member, (platter, regions)) in members() {
        each_sector(platter, regions, |sector, bytes| {
            learn(&mut scan.metadata, bytes);
            for (places, metadata) in scan.places.iter_mut().zip(&scan.metadata) {
                places.learn(metadata, (member, sector), bytes);
            }
        });
    }
    for (places, metadata) in scan.places.iter_mut().zip(&scan.metadata) {
        places.conclude(metadata);
    }
    for (member, (platter, regions)) in members() {
        // For each volume, the last sign found on this member.
        let mut last = vec![None; scan.volumes.len()];
        each_sector(platter, regions, |sector, bytes| {
            for (volume, metadata) in scan.metadata.iter().enumerate() {
                if last[volume].is_some_and(|last| sector < last + SPACING) {
                    continue;
                }
                let places = &mut scan.places[volume];
                let addresses = addresses(metadata, bytes)
                    .or_else(|| places.addresses(metadata, (member, sector), bytes));
                let Some(addresses) = addresses else { continue };
                last[volume] = Some(sector);
                scan.signs.push(Sign { member, sector, volume, addresses });
            }
        });
    }
    scan.places.iter_mut().for_each(PlaceIndex::finish);
    scan.signs.sort_by_key(|sign| (sign.volume, sign.member, sign.sector));
    scan.signs.dedup_by_key(|sign| (sign.volume, sign.member, sign.sector));
    scan
}

/// Passes each sector and the bytes after it to `look`; returns the number of unreadable sectors.
fn each_sector(
    platter: &dyn Platter,
    regions: &[Range<u64>],
    mut look: impl FnMut(u64, &[u8]),
) -> u64 {
    let mut buffer = vec![0; small(STEP + OVERLAP) * SECTOR];
    let mut unreadable = 0;
    for region in regions {
        let mut start = region.start;
        while start < region.end {
            let end = (start + STEP).min(region.end);
            let read_end = (end + OVERLAP).min(platter.sectors());
            let bytes = &mut buffer[..small(read_end - start) * SECTOR];
            if !platter.read(start, bytes) {
                unreadable += read_by_pieces(platter, start, bytes);
            }
            for at in 0..small(end - start) {
                let rest = &bytes[at * SECTOR..];
                // A sector of zeroes never begins a sign.
                if !is_blank(&rest[..SECTOR]) {
                    look(start + at as u64, rest);
                }
            }
            start = end;
        }
    }
    unreadable
}

/// Reads page by page; unreadable sectors become zeroes. Returns the number of unreadable sectors.
fn read_by_pieces(platter: &dyn Platter, start: u64, bytes: &mut [u8]) -> u64 {
    let mut unreadable = 0;
    for (at, piece) in (start..).step_by(8).zip(bytes.chunks_mut(8 * SECTOR)) {
        if !platter.read(at, piece) {
            piece.fill(0);
            unreadable += (piece.len() / SECTOR) as u64;
        }
    }
    unreadable
}

fn scan_first(scan: &mut Scan, member: usize, sector: u64, bytes: &[u8]) {
    if scan.starts.len() < STARTS_MAX {
        let found = table::entries(bytes).into_iter().chain(table::partitions(bytes));
        let found = found.chain(text_of(bytes).map(table::logical_volumes).unwrap_or_default());
        for start in found {
            if !scan.starts.contains(&start) {
                scan.starts.push(start);
            }
        }
    }
    let Some((volume, metadata, place)) = superblock(bytes) else { return };
    let same = |known: &Volume| known.kind == volume.kind && known.uuid == volume.uuid;
    let index = match scan.volumes.iter().position(same) {
        Some(index) => index,
        None if scan.volumes.len() == VOLUMES_MAX => return,
        None => {
            scan.volumes.push(volume);
            scan.metadata.push(metadata.clone());
            scan.versions.push(Vec::new());
            scan.volumes.len() - 1
        }
    };
    if let VolumeMetadata::Ext(found, _) = metadata {
        let (found, versions) = (found.of_all_groups(), &mut scan.versions[index]);
        if let Some((_, count)) = versions.iter_mut().find(|(known, _)| *known == found) {
            *count += 1;
        } else if versions.len() < VERSIONS_MAX {
            versions.push((found, 1));
        }
    }
    if let Some(place) = place {
        scan.signs.push(Sign { member, sector, volume: index, addresses: Addresses::at(place) });
    }
}

/// The text at the start of `bytes`, if it can be LVM's metadata.
fn text_of(bytes: &[u8]) -> Option<&[u8]> {
    let is_text = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
    let marks = b" {\nid = \"";
    let is_group = is_text && bytes[..SECTOR].windows(marks.len()).any(|it| it == marks);
    is_group.then_some(bytes)
}

/// A superblock or table: its volume, the volume's metadata, and the address that it records for
/// itself, if any.
fn superblock(bytes: &[u8]) -> Option<(Volume, VolumeMetadata, Option<u64>)> {
    if let Some(found) = ext::ExtSuperblock::recognise(bytes) {
        let place = found.place(found.group);
        let volume = volume(VolumeKind::Ext, found.uuid, found.size_sectors());
        return Some((volume, VolumeMetadata::Ext(Box::new(found), None), Some(place)));
    }
    if let Some(found) = xfs::XfsSuperblock::recognise(bytes) {
        let volume = volume(VolumeKind::Xfs, found.uuid, found.size_sectors());
        return Some((volume, VolumeMetadata::Xfs(found), None));
    }
    if let Some(found) = btrfs::BtrfsSuperblock::recognise(bytes) {
        let mut chunks = btrfs::Chunks::default();
        chunks.add(&found.chunks);
        let place = found.place / SECTOR as u64;
        let volume = volume(VolumeKind::Btrfs, found.uuid, found.size_sectors());
        return Some((volume, VolumeMetadata::Btrfs(found, chunks), Some(place)));
    }
    if let Some(found) = table::Gpt::recognise(bytes) {
        let (volume, place) =
            (volume(VolumeKind::Table, found.uuid, found.size_sectors()), found.place);
        return Some((volume, VolumeMetadata::Table(found), Some(place)));
    }
    let found = table::Label::recognise(bytes)?;
    let volume = volume(VolumeKind::Lvm, found.uuid, found.size_sectors);
    Some((volume, VolumeMetadata::Lvm, Some(found.place)))
}

const fn volume(kind: VolumeKind, uuid: [u8; 16], size_sectors: u64) -> Volume {
    Volume { kind, uuid, size_sectors }
}

/// The second pass learns metadata that the third pass needs.
fn learn(known: &mut [VolumeMetadata], bytes: &[u8]) {
    for metadata in known {
        match metadata {
            VolumeMetadata::Ext(found, tables) => found.learn(bytes, tables),
            VolumeMetadata::Btrfs(found, chunks) => chunks.learn(found, bytes),
            _ => {}
        }
    }
}

/// The addresses of a structure that is not a superblock.
fn addresses(metadata: &VolumeMetadata, bytes: &[u8]) -> Option<Addresses> {
    match metadata {
        VolumeMetadata::Ext(found, Some(tables)) => {
            let inode = found.inode_place(bytes, tables).map(Addresses::at);
            inode.or_else(|| found.block_place(bytes, tables))
        }
        VolumeMetadata::Xfs(found) => found.place(bytes).map(Addresses::at),
        VolumeMetadata::Btrfs(found, chunks) => chunks.place(found.head(bytes)?),
        VolumeMetadata::Ext(_, None) | VolumeMetadata::Table(_) | VolumeMetadata::Lvm => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_in_order_and_inside() {
        let effort = Effort { head_sectors: 100, windows: 7, window_sectors: 30 };
        for sectors in [0, 1, 99, 100, 101, 310, 311, 5000, 262_150, 262_400, 1 << 40] {
            let regions = effort.regions(sectors);
            assert!(regions.windows(2).all(|pair| pair[0].end < pair[1].start), "{sectors}");
            assert!(regions.iter().all(|region| region.start < region.end));
            assert_eq!(regions.last().map_or(0, |last| last.end), sectors, "the tail is read");
            assert!(regions.len() <= 9);
        }
    }
}
