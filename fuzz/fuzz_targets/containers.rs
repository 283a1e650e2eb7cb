//! Disks of containers that are not md's. Input: 1 byte of flags, 1 byte that selects the disks
//! with a known serial number. Then the disks' metadata follow, one after another. Flags: 1 and 2
//! are the number of disks, less one; 4 selects DDF, else Intel's; 8 leaves the checksums as they
//! are.
//!
//! Intel's metadata is its block as it reads in memory, put at its place on a disk. DDF's is a
//! header and its sections, put at the start of a disk whose anchor is a copy of the header.
//! Without flag 8 the target first makes checksums valid, since the fuzzer cannot guess them.
#![no_main]

use braid_external_metadata::{Label, ScannedDisk, gather, look};
use libfuzzer_sys::fuzz_target;

const SIGNATURE: &[u8] = b"Intel Raid ISM Cfg Sig. ";

fn intel(body: &[u8], is_sealed: bool) -> Vec<u8> {
    let mut block = body.to_vec();
    block.resize(body.len().max(512), 0);
    block[..24].copy_from_slice(SIGNATURE);
    if is_sealed {
        let size = u32::try_from(block.len() / 4 * 4).unwrap();
        block[36..40].copy_from_slice(&size.to_le_bytes());
        block[32..36].fill(0);
        let words = block.chunks_exact(4).map(|it| u32::from_le_bytes(it.try_into().unwrap()));
        let sum = words.fold(0u32, u32::wrapping_add);
        block[32..36].copy_from_slice(&sum.to_le_bytes());
    }
    block.resize(block.len().next_multiple_of(512), 0);
    let mut disk = vec![0; 4096];
    disk.extend(&block[512..]);
    disk.extend(&block[..512]);
    disk.extend([0; 512]);
    disk
}

fn be(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes.get(at..at + length).unwrap_or(&[]).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn seal(section: &mut [u8]) {
    if section.len() < 8 {
        return;
    }
    section[4..8].fill(0xff);
    let mut sum = 0u32;
    for byte in section.iter() {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    section[4..8].copy_from_slice(&sum.to_be_bytes());
}

fn ddf(body: &[u8], is_sealed: bool) -> Vec<u8> {
    let mut disk = body.to_vec();
    disk.resize(body.len().max(512).next_multiple_of(512), 0);
    disk[..4].copy_from_slice(&0xde11_de11u32.to_be_bytes());
    disk[96..104].fill(0);
    if is_sealed {
        let signatures = [0x2222_2222u32, 0xdddd_dddd, 0, 0x3333_3333];
        for (at, signature) in [200, 208, 216, 224].into_iter().zip(signatures) {
            let (from, length) = (be(&disk, at, 4), be(&disk, at + 4, 4));
            let range = from.saturating_mul(512)..from.saturating_add(length).saturating_mul(512);
            let piece = if at == 216 { be(&disk, 134, 2) * 512 } else { length.saturating_mul(512) };
            let Some(section) = disk.get_mut(range).filter(|it| from > 0 && !it.is_empty()) else {
                continue;
            };
            for part in section.chunks_mut(piece.max(512)) {
                if signature != 0 && part.len() >= 4 {
                    part[..4].copy_from_slice(&signature.to_be_bytes());
                }
                seal(part);
            }
        }
        seal(&mut disk[..512]);
    }
    let anchor = disk[..512].to_vec();
    disk.extend(anchor);
    disk
}

fuzz_target!(|input: &[u8]| {
    let [flags, known, bytes @ ..] = input else { return };
    let share = bytes.len() / (usize::from(flags & 3) + 1);
    if share == 0 {
        return;
    }
    let is_sealed = flags & 8 == 0;
    let disks = bytes.chunks_exact(share).map(|body| match flags & 4 {
        0 => intel(body, is_sealed),
        _ => ddf(body, is_sealed),
    });
    let labels: Vec<Option<Label>> = disks
        .map(|disk| {
            let mut read = |offset: u64, length: usize| {
                assert!(length <= 1 << 20);
                let start = usize::try_from(offset).ok()?;
                disk.get(start..start.checked_add(length)?).map(<[u8]>::to_vec)
            };
            look(disk.len() as u64, &mut read)?.ok()
        })
        .collect();
    let serial = |disk: usize| {
        let label = labels[disk].as_ref()?;
        let entry = label.disks.get(disk).filter(|_| known >> disk & 1 == 1)?;
        Some(entry.identity.as_str())
    };
    let scanned = (0..labels.len()).map(|disk| ScannedDisk { label: labels[disk].as_ref(), serial: serial(disk) });
    for array in gather(&scanned.collect::<Vec<_>>()) {
        assert!(array.slots.len() <= 256);
        for occupant in &array.occupants {
            assert!(occupant.slot < array.slots.len() && occupant.disk < labels.len());
        }
    }
});
