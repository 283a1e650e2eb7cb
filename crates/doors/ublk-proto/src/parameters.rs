//! The parameters of a ublk device's disk, for the kernel.

use crate::limits::{REQUEST_BYTES_MAX, STRETCH_BYTES};
use crate::wire::{Parameters, attribute, part};

const SECTOR_BYTES: u32 = 512;

/// The physical block as a power of two: a page, since a smaller write needs a read first.
const PHYSICAL_SHIFT: u8 = 12;

/// The array's properties that become parameters.
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

/// The disk's parameters for the kernel. Kernel and server use a `Parameters` of the same length.
///
/// # Panics
/// When the logical block is invalid for a disk.
#[must_use]
pub fn parameters(shape: &Shape) -> Parameters {
    let block = shape.logical_block_bytes;
    assert!(block.is_power_of_two() && (SECTOR_BYTES..=4096).contains(&block));
    let logical = shift(u64::from(block));
    // The kernel accepts only powers of two.
    let unit = shape.unit_bytes.clamp(1, 1 << 26);
    let best = shift(unit).max(PHYSICAL_SHIFT);
    let read_only = if shape.is_read_only { attribute::READ_ONLY } else { 0 };
    Parameters {
        len: u32::try_from(size_of::<Parameters>()).unwrap_or_default(),
        types: part::BASIC | part::DISCARD,
        attrs: attribute::VOLATILE_CACHE | attribute::FUA | read_only,
        logical_bs_shift: logical,
        physical_bs_shift: PHYSICAL_SHIFT,
        io_opt_shift: best,
        io_min_shift: PHYSICAL_SHIFT,
        max_sectors: sectors(REQUEST_BYTES_MAX),
        dev_sectors: shape.size_bytes >> 9,
        discard_granularity: 1_u32 << best,
        max_discard_sectors: sectors(STRETCH_BYTES),
        max_write_zeroes_sectors: sectors(STRETCH_BYTES),
        max_discard_segments: 1,
        ..Parameters::default()
    }
}

/// Whether an existing device can continue with these parameters. The kernel's node numbers do not
/// count, nor does the best size of requests, which changes with the array's shape. The device's
/// size may differ if the kernel `can_resize` the device.
#[must_use]
pub fn fits(found: &Parameters, wanted: &Parameters, can_resize: bool) -> bool {
    let told = |parameters: &Parameters| Parameters {
        len: 0,
        types: parameters.types & (part::BASIC | part::DISCARD),
        io_opt_shift: 0,
        discard_granularity: 0,
        dev_sectors: if can_resize { 0 } else { parameters.dev_sectors },
        devt: [0; 4],
        zoned: [0; 8],
        ..*parameters
    };
    told(found) == told(wanted)
}

fn sectors(bytes: u32) -> u32 {
    bytes >> 9
}

/// The exponent of the largest power of two that divides `bytes`.
fn shift(bytes: u64) -> u8 {
    u8::try_from(bytes.trailing_zeros()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        size_bytes: 10 << 20,
        is_read_only: false,
        logical_block_bytes: 512,
        unit_bytes: 512,
    };

    #[test]
    fn the_kernel_is_told_what_the_array_is() {
        let plain = parameters(&SHAPE);
        assert_eq!((plain.len, plain.dev_sectors), (112, 20 << 10));
        assert_eq!(
            (plain.logical_bs_shift, plain.physical_bs_shift, plain.io_opt_shift),
            (9, 12, 12)
        );
        assert_eq!(plain.attrs, attribute::VOLATILE_CACHE | attribute::FUA);
        for (unit_bytes, expected) in [(4 << 19, 21), (3 << 19, 19), (1 << 40, 26), (4096, 12)] {
            let row = parameters(&Shape { unit_bytes, ..SHAPE });
            assert_eq!(row.io_opt_shift, expected, "{unit_bytes}");
            assert_eq!(row.discard_granularity, 1 << expected);
        }
        let other = parameters(&Shape { is_read_only: true, logical_block_bytes: 4096, ..SHAPE });
        assert_eq!((other.attrs & attribute::READ_ONLY, other.logical_bs_shift), (1, 12));
    }

    #[test]
    fn a_device_of_another_access_or_block_is_another() {
        let wanted = parameters(&SHAPE);
        let told = Parameters { devt: [1, 2, 3, 4], types: wanted.types | 4, ..wanted };
        let of_other_row = parameters(&Shape { unit_bytes: 3 << 19, ..SHAPE });
        assert!(fits(&told, &wanted, false) && fits(&of_other_row, &wanted, false));
        let of_other_size = parameters(&Shape { size_bytes: 11 << 20, ..SHAPE });
        assert_eq!([false, true].map(|it| fits(&of_other_size, &wanted, it)), [false, true]);
        for other in
            [Shape { is_read_only: true, ..SHAPE }, Shape { logical_block_bytes: 4096, ..SHAPE }]
        {
            assert!(!fits(&parameters(&other), &wanted, true), "{other:?}");
        }
    }
}
