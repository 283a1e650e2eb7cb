//! The device's configuration, as the driver reads it.

use zerocopy::IntoBytes;

use crate::limits::{QUEUES_MAX, RUN_BYTES_MAX, RUNS_MAX, STRETCH_BYTES};
use crate::wire::{Configuration, SECTOR_BYTES, feature};

/// The physical block in bytes: a page, since a smaller write needs a read first.
const PHYSICAL_BYTES: u32 = 4096;

/// The array's properties that the configuration shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The array's size in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// The smallest block that can be written: a power of two from 512 to 4096.
    pub logical_block_bytes: u32,
    /// The unit that is best written as a whole: a chunk row.
    pub unit_bytes: u64,
}

/// Features offered to the driver. `CONFIG_WCE`, by which a driver switches write caching, is not
/// among these: a restarted server would not have the driver's choice.
#[must_use]
pub const fn offered(shape: &Shape) -> u64 {
    let always = feature::SIZE_MAX
        | feature::SEG_MAX
        | feature::BLK_SIZE
        | feature::TOPOLOGY
        | feature::FLUSH
        | feature::MQ
        | feature::INDIRECT_DESC
        | feature::EVENT_IDX
        | feature::VERSION_1;
    let access =
        if shape.is_read_only { feature::RO } else { feature::DISCARD | feature::WRITE_ZEROES };
    always | access
}

/// The bytes of the configuration space from `offset` on, with zeroes after its end.
///
/// # Panics
/// When the logical block is invalid for a disk.
#[must_use]
pub fn configuration(shape: &Shape, offset: usize, length: usize) -> Vec<u8> {
    let block = shape.logical_block_bytes;
    assert!(block.is_power_of_two() && (SECTOR_BYTES..=PHYSICAL_BYTES).contains(&block));
    let sectors = |bytes: u32| bytes.checked_div(SECTOR_BYTES).unwrap_or_default();
    let blocks = |bytes: u64| bytes.checked_div(u64::from(block)).unwrap_or_default();
    let exponent = PHYSICAL_BYTES.ilog2().saturating_sub(block.ilog2());
    let smallest = blocks(u64::from(PHYSICAL_BYTES));
    let best = blocks(shape.unit_bytes).max(smallest);
    let alignment = u32::try_from(shape.unit_bytes).unwrap_or(STRETCH_BYTES).max(PHYSICAL_BYTES);
    let told = Configuration {
        capacity: shape.size_bytes.div_euclid(u64::from(SECTOR_BYTES)).into(),
        size_max: RUN_BYTES_MAX.into(),
        seg_max: RUNS_MAX.into(),
        blk_size: block.into(),
        physical_block_exp: u8::try_from(exponent).unwrap_or_default(),
        min_io_size: u16::try_from(smallest).unwrap_or(1).into(),
        opt_io_size: u32::try_from(best).unwrap_or_default().into(),
        writeback: 1,
        num_queues: QUEUES_MAX.into(),
        max_discard_sectors: sectors(STRETCH_BYTES).into(),
        max_discard_seg: 1.into(),
        discard_sector_alignment: sectors(alignment.min(STRETCH_BYTES)).into(),
        max_write_zeroes_sectors: sectors(STRETCH_BYTES).into(),
        max_write_zeroes_seg: 1.into(),
        write_zeroes_may_unmap: 1,
        ..Configuration::default()
    };
    let zeroes = std::iter::repeat(0);
    told.as_bytes().iter().copied().chain(zeroes).skip(offset).take(length).collect()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const ARRAY: Shape = Shape {
        size_bytes: 3 << 30,
        is_read_only: false,
        logical_block_bytes: 512,
        unit_bytes: 192 << 10,
    };

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
    }

    #[test]
    fn a_driver_is_told_where_the_specification_says() {
        let told = configuration(&ARRAY, 0, 100);
        assert_eq!(told[..8], (3_u64 << 21).to_le_bytes());
        assert_eq!((word(&told, 8), word(&told, 12)), (RUN_BYTES_MAX, RUNS_MAX));
        assert_eq!((word(&told, 20), told[24], told[32]), (512, 3, 1));
        assert_eq!((told[26], word(&told, 28)), (8, 384));
        assert_eq!(u16::from_le_bytes([told[34], told[35]]), QUEUES_MAX);
        assert_eq!((word(&told, 36), word(&told, 40), word(&told, 44)), (1 << 19, 1, 384));
        assert_eq!((word(&told, 48), word(&told, 52), told[56]), (1 << 19, 1, 1));
        assert!(told[57..].iter().all(|byte| *byte == 0) && told.len() == 100);
        assert_eq!(configuration(&ARRAY, 20, 4), 512_u32.to_le_bytes());
        let large = configuration(&Shape { logical_block_bytes: 4096, ..ARRAY }, 0, 60);
        assert_eq!((word(&large, 20), large[24], word(&large, 28)), (4096, 0, 48));
    }

    #[test]
    fn an_array_that_is_only_read_is_not_changed() {
        let changing = feature::DISCARD | feature::WRITE_ZEROES;
        let only_read = offered(&Shape { is_read_only: true, ..ARRAY });
        assert_eq!((only_read & changing, only_read & feature::RO), (0, feature::RO));
        assert_eq!((offered(&ARRAY) & changing, offered(&ARRAY) & feature::RO), (changing, 0));
    }
}
