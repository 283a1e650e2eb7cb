//! The bytes of sectors, and the bytes that members must hold for them.
//!
//! Every sector of every write has different bytes, so that the bytes read name their write. This
//! module computes the content of members from the geometry and the *definition* of parity alone.

use crate::members::lay_out;
pub(crate) use crate::members::{SECTOR, bytes, parity, places};
use crate::random::mix;
use braid_geometry::{Geometry, Slot};

/// The number of the write that a sector's bytes come from; 0 for zeroes.
pub(crate) type Version = u32;

/// The content of the whole array before the first write.
pub(crate) const FIRST: Version = 1;

/// The version that is all zeroes.
pub(crate) const ZEROES: Version = 0;

/// The difference between neighbouring words of a sector; odd, so that no two words are equal.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) fn fill(version: Version, sector: u64, out: &mut [u8]) {
    assert_eq!(out.len(), SECTOR);
    if version == 0 {
        out.fill(0);
        return;
    }
    let head = u64::from(version) << 32 | sector;
    let mut word = mix(head);
    for (index, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *out = (if index == 0 { head } else { word }).to_le_bytes();
        word = word.wrapping_add(STRIDE);
    }
}

/// The version of `sector` with these bytes, if any.
pub(crate) fn version_of(sector: u64, data: &[u8]) -> Option<Version> {
    let head = u64::from_le_bytes(data[..8].try_into().expect("a sector is longer"));
    let version = (head >> 32) as Version;
    let mut expected = [0; SECTOR];
    fill(version, sector, &mut expected);
    (data == expected).then_some(version)
}

/// The bytes that the data areas of all members must hold for this content of the array.
pub(crate) fn image(geometry: &Geometry, content: &[u8]) -> Vec<Vec<u8>> {
    let used = |slot| geometry.used_sectors(Slot(slot)) as usize * SECTOR;
    let mut members: Vec<Vec<u8>> = (0..geometry.slots()).map(|s| vec![0; used(s)]).collect();
    lay_out(geometry, content, &mut members);
    members
}

/// The content of the whole array before the first write.
pub(crate) fn first_content(capacity_sectors: u64) -> Vec<u8> {
    let mut content = vec![0; capacity_sectors as usize * SECTOR];
    for (sector, out) in (0..).zip(content.chunks_exact_mut(SECTOR)) {
        fill(FIRST, sector, out);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_name_their_write_and_their_place() {
        let mut data = [0; SECTOR];
        fill(7, 12, &mut data);
        assert_eq!(version_of(12, &data), Some(7));
        assert_eq!(version_of(13, &data), None, "another place");
        for index in 0..SECTOR {
            data[index] ^= 1;
            assert_eq!(version_of(12, &data), None, "a flipped bit in byte {index}");
            data[index] ^= 1;
        }
        assert_eq!(version_of(12, &[0; SECTOR]), Some(0));
    }
}
