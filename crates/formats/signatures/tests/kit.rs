//! Devices in memory, and tables for them.

use braid_signatures::{Contents, look};

pub(crate) fn contents(bytes: &[u8]) -> Contents {
    let mut read = |offset: u64, length: usize| {
        let start = usize::try_from(offset).ok()?;
        bytes.get(start..start.checked_add(length)?).map(<[u8]>::to_vec)
    };
    look(bytes.len() as u64, &mut read)
}

/// CRC-32 by another method than the product's: a table of remainders.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256_u32)
        .map(|index| {
            (0..8).fold(
                index,
                |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 },
            )
        })
        .collect();
    let step = |sum: u32, byte: &u8| {
        let index = usize::from(sum.to_le_bytes()[0] ^ byte);
        (sum >> 8) ^ table[index]
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Writes a GPT and its copy for this sector size. Each partition is (first sector, last sector,
/// name).
pub(crate) fn put_gpt(bytes: &mut [u8], sector: usize, partitions: &[(u64, u64, &str)]) {
    let mut entries = vec![0; 128 * 128];
    for (entry, (first, last, name)) in entries.chunks_mut(128).zip(partitions) {
        entry[..16].fill(7);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        for (to, unit) in entry[56..].chunks_mut(2).zip(name.encode_utf16()) {
            to.copy_from_slice(&unit.to_le_bytes());
        }
    }
    let last = bytes.len() / sector - 1;
    let sectors = entries.len() / sector;
    for (at, entries_at) in [(1, 2), (last, last - sectors)] {
        let mut head = vec![0; 92];
        head[..8].copy_from_slice(b"EFI PART");
        head[12..16].copy_from_slice(&92_u32.to_le_bytes());
        head[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        head[72..80].copy_from_slice(&(entries_at as u64).to_le_bytes());
        head[80..84].copy_from_slice(&128_u32.to_le_bytes());
        head[84..88].copy_from_slice(&128_u32.to_le_bytes());
        head[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let sum = crc32(&head);
        head[16..20].copy_from_slice(&sum.to_le_bytes());
        bytes[at * sector..at * sector + 92].copy_from_slice(&head);
        bytes[entries_at * sector..entries_at * sector + entries.len()].copy_from_slice(&entries);
    }
}

/// Writes an MBR entry, or a link of the chain, and the boot mark. The entry is (kind, first
/// sector, sectors).
pub(crate) fn put_entry(
    bytes: &mut [u8],
    sector: usize,
    index: usize,
    (kind, start, count): (u8, u32, u32),
) {
    let at = sector * 512 + 446 + index * 16;
    bytes[at + 4] = kind;
    bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
    bytes[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    bytes[sector * 512 + 510..sector * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
}
