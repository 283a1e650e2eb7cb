//! The bytes of a READ that have arrived.
//!
//! Where it stands: one per READ in flight, inside the client session. It detects a server that
//! sends bytes twice, sends bytes that the client did not request, or reports success with bytes
//! missing. Undetected, such a bug would turn a lost chunk into silent zeroes.
//!
//! Invariants
//! - Complete means every byte exactly once: `tests::complete_means_every_byte_once`.

use std::collections::BTreeMap;

/// The ranges of a READ that have arrived, disjoint and merged.
#[derive(Debug, Default, Clone)]
pub(super) struct Coverage {
    /// Each range, by its start, with its end.
    ranges: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Adds the range `start..end`; false if it is empty or overlaps an earlier range.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..=start).next_back().map(|(start, end)| (*start, *end));
        let after = self.ranges.range(start..).next().map(|(start, end)| (*start, *end));
        let overlaps = before.is_some_and(|(_, before_end)| before_end > start)
            || after.is_some_and(|(after_start, _)| after_start < end);
        if start >= end || overlaps {
            return false;
        }
        let (mut merged_start, mut merged_end) = (start, end);
        if let Some((before_start, before_end)) = before
            && before_end == start
        {
            merged_start = before_start;
        }
        if let Some((after_start, after_end)) = after
            && after_start == end
        {
            self.ranges.remove(&after_start);
            merged_end = after_end;
        }
        self.ranges.insert(merged_start, merged_end);
        true
    }

    pub(super) fn is_complete(&self, start: u64, end: u64) -> bool {
        self.ranges.get(&start) == Some(&end)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn complete_means_every_byte_once(pieces in prop::collection::vec((0_u64..24, 0_u64..9), 0..40)) {
            let mut coverage = Coverage::default();
            let mut model = [false; 32];
            for (start, length) in pieces {
                let end = start + length;
                let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
                let free = length > 0 && model[range.clone()].iter().all(|taken| !taken);
                prop_assert_eq!(coverage.add(start, end), free);
                if free {
                    model[range].fill(true);
                }
                let whole = model[..24].iter().all(|taken| *taken) && !model[24];
                prop_assert_eq!(coverage.is_complete(0, 24), whole);
            }
        }
    }
}
