//! Ranges of writes that an array acknowledged and then lost, as reported to an operator.
//!
//! A broken array may lose thousands of small writes at once. Programs receive each range. The
//! operator receives the first [`LINES_MAX`], and the sum of all ranges when the array stops.

use std::ops::Range;

use rangemap::RangeSet;

use braid_console::output::size::format_size;

/// Number of lost ranges for which the operator gets one line each.
const LINES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct LostRanges {
    bytes: RangeSet<u64>,
    lines: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RangeLine {
    /// The first range; its line explains the loss.
    First(String),
    /// A range after the first; its line has only the range.
    Further(String),
    /// No line for this range: there are more ranges than an operator reads.
    TooMany,
    /// `TooMany` was returned for an earlier range, so this range gets no line either.
    Nothing,
}

impl LostRanges {
    pub(crate) fn add(&mut self, bytes: Range<u64>) -> RangeLine {
        let words = format!(
            "bytes {} to {} ({})",
            bytes.start,
            bytes.end,
            format_size(bytes.end - bytes.start)
        );
        self.bytes.insert(bytes);
        self.lines += 1;
        match self.lines {
            1 => RangeLine::First(words),
            2..=LINES_MAX => RangeLine::Further(words),
            _ if self.lines == LINES_MAX + 1 => RangeLine::TooMany,
            _ => RangeLine::Nothing,
        }
    }

    /// Number of separate ranges, and their bytes.
    pub(crate) fn sum(&self) -> (usize, u64) {
        (self.bytes.len(), self.bytes.iter().map(|range| range.end - range.start).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lost_ranges_is_a_few_lines_and_a_sum() {
        let mut lost = LostRanges::default();
        assert_eq!(lost.add(0..4096), RangeLine::First("bytes 0 to 4096 (4 KiB)".into()));
        for number in 1..LINES_MAX as u64 {
            let line = lost.add(number * 8192..number * 8192 + 512);
            assert!(matches!(line, RangeLine::Further(_)), "{line:?}");
        }
        assert_eq!(lost.add(4096..8192), RangeLine::TooMany);
        assert_eq!(lost.add(0..4096), RangeLine::Nothing, "the same again");
        // The first two ranges and the one between them merge.
        assert_eq!(lost.sum(), (LINES_MAX - 1, 8192 + (LINES_MAX as u64 - 1) * 512));
    }
}
