//! A physical volume: its label, its header, and the texts in its metadata areas.
//!
//! ```text
//!   sector 0 to 3   LABELONE, sum, header's place ─▶ UUID, size, data areas, 0, metadata areas, 0
//!   metadata area   sum, magic, text's place ─▶ a ring: text, that may go on at its front
//! ```

use crate::Read;
use crate::fault::Fault;
use crate::group_metadata::GroupMetadata;
use crate::limits::{AREAS_MAX, TEXT_BYTES_MAX};
use braid_byte_reader::{array, le32, le64, raw_crc32};

const SECTOR_BYTES: usize = 512;
/// The label is in one of this many sectors at the device's start.
const LABEL_SECTORS: usize = 4;
const AREA_MAGIC: [u8; 16] = *b" LVM2 x[5A%r0N*>";
const IGNORED: u32 = 1;

/// A physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// The physical volume's UUID, as LVM prints it.
    pub uuid: String,
    /// The physical volume's recorded size in bytes, if any.
    pub size_bytes: Option<u64>,
    /// The size in bytes of the physical volume's device.
    pub device_bytes: u64,
    pub(crate) metadata: Vec<GroupMetadata>,
    /// The faults of the other texts on the physical volume.
    pub faults: Vec<Fault>,
}

/// A UUID in the usual form with hyphens: 6, 4, 4, 4, 4, 4 and 6 letters.
fn hyphened(letters: [u8; 32]) -> String {
    let text: String = letters
        .map(|byte| if byte.is_ascii_graphic() { char::from(byte) } else { '?' })
        .iter()
        .collect();
    let mut rest = text.as_str();
    let mut words = Vec::new();
    for length in [6, 4, 4, 4, 4, 4, 6] {
        let (word, more) = rest.split_at_checked(length).unwrap_or((rest, ""));
        words.push(word);
        rest = more;
    }
    words.join("-")
}

/// The physical volume on a device of `device_bytes`; `None` without a label.
#[must_use]
pub fn physical(device_bytes: u64, read: Read<'_>) -> Option<Result<PhysicalVolume, Fault>> {
    let head_bytes = SECTOR_BYTES.saturating_mul(LABEL_SECTORS);
    if device_bytes < head_bytes as u64 {
        return None;
    }
    let head = read(0, head_bytes)?;
    let (sectors, _) = head.as_chunks::<SECTOR_BYTES>();
    let is_label = |sector: &&[u8; SECTOR_BYTES]| {
        sector.starts_with(b"LABELONE") && array::<8>(*sector, 24) == Some(*b"LVM2 001")
    };
    let label = sectors.iter().find(is_label)?;
    Some(of_label(label, device_bytes, read))
}

fn of_label(
    label: &[u8; SECTOR_BYTES],
    device_bytes: u64,
    read: Read<'_>,
) -> Result<PhysicalVolume, Fault> {
    let summed = label.get(20..).unwrap_or_default();
    if le32(label, 16) != Some(sum(summed)) {
        return Err(Fault::Sum("its label"));
    }
    let header = le32(label, 20).and_then(|at| label.get(usize::try_from(at).ok()?..));
    let header = header.ok_or(Fault::Nonsense("the place of its header"))?;
    let uuid = array::<32>(header, 0).ok_or(Fault::Nonsense("the place of its header"))?;
    let size_bytes = le64(header, 32).filter(|bytes| *bytes != 0);
    let mut lists = [Vec::new(), Vec::new()];
    let (areas, _) = header.get(40..).unwrap_or_default().as_chunks::<16>();
    let mut areas = areas.iter();
    for list in &mut lists {
        for area in areas.by_ref() {
            let (offset, size) = (le64(area, 0).unwrap_or(0), le64(area, 8).unwrap_or(0));
            if offset == 0 && size == 0 {
                break;
            }
            list.push((offset, size));
        }
    }
    let [_, metadata] = lists;
    let mut found = PhysicalVolume {
        uuid: hyphened(uuid),
        size_bytes,
        device_bytes,
        metadata: Vec::new(),
        faults: Vec::new(),
    };
    for (offset, size) in metadata.into_iter().take(AREAS_MAX) {
        match text(offset, size, device_bytes, read) {
            Ok(None) => {}
            Ok(Some(text)) => match GroupMetadata::of(&text) {
                Ok(metadata) => found.metadata.push(metadata),
                Err(fault) => found.faults.push(fault),
            },
            Err(fault) => found.faults.push(fault),
        }
    }
    Ok(found)
}

/// The text of a metadata area; `None` if the area has no text, or a text that does not count.
fn text(
    offset: u64,
    size: u64,
    device_bytes: u64,
    read: Read<'_>,
) -> Result<Option<Vec<u8>>, Fault> {
    const PLACE: Fault = Fault::Nonsense("the place of its metadata");
    let header_bytes = SECTOR_BYTES as u64;
    let end = offset.checked_add(size).filter(|end| *end <= device_bytes && size > header_bytes);
    end.ok_or(PLACE)?;
    let header = read(offset, SECTOR_BYTES).ok_or(Fault::Unreadable("its metadata area"))?;
    if le32(&header, 0) != Some(sum(header.get(4..).unwrap_or_default())) {
        return Err(Fault::Sum("its metadata area"));
    }
    if array::<16>(&header, 4) != Some(AREA_MAGIC) || le32(&header, 20) != Some(1) {
        return Err(Fault::Nonsense("its metadata area"));
    }
    let fields = (le64(&header, 40), le64(&header, 48), le32(&header, 56), le32(&header, 60));
    let (Some(at), Some(length), Some(stored), Some(flags)) = fields else { return Err(PLACE) };
    if at == 0 || length == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    let ring = size.saturating_sub(header_bytes);
    if at < header_bytes || at >= size || length > ring {
        return Err(PLACE);
    }
    if length > TEXT_BYTES_MAX {
        return Err(Fault::TooLarge("its metadata"));
    }
    // A text that reaches beyond the ring's end continues at its front.
    let first = length.min(size.saturating_sub(at));
    let mut text = Vec::new();
    let front = offset.saturating_add(header_bytes);
    for (from, bytes) in [(offset.saturating_add(at), first), (front, length.saturating_sub(first))]
    {
        let bytes = usize::try_from(bytes).map_err(|_| PLACE)?;
        if bytes > 0 {
            text.extend(read(from, bytes).ok_or(Fault::Unreadable("its metadata"))?);
        }
    }
    if sum(&text) != stored {
        return Err(Fault::Sum("its metadata"));
    }
    Ok(Some(text))
}

/// LVM's checksum of labels, areas and texts: CRC-32 from LVM's own start value, not inverted at
/// the end.
fn sum(bytes: &[u8]) -> u32 {
    raw_crc32(0xf597_a6cf, [bytes])
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn the_sum_is_the_one_of_a_label_that_lvm_wrote() {
        // The label from its byte 20 on: offset, kind, UUID, size, areas; then zeroes.
        let mut label = vec![0; 512 - 20];
        label[..12].copy_from_slice(b"\x20\0\0\0LVM2 001");
        label[12..44].copy_from_slice(b"hTr3FKqaqS3jt1Hr21bINoH2D7j5m0vh");
        for (at, value) in
            [(47, 0x10), (54, 0x10), (85, 0x10), (93, 0xf0), (94, 0x0f), (116, 2), (120, 1)]
        {
            label[at] = value;
        }
        assert_eq!(sum(&label), 0x319d_649e);
    }
}
