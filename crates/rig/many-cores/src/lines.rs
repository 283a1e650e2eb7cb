//! Cache lines: which core holds each line, and the time of a transfer.
//!
//! One core has a line for writing, or several cores have it for reading. A core that lacks the
//! line gets it from another core; further cores wait for their turn. If a holder is in the same
//! cluster, that holder serves reads.

use std::collections::HashMap;
use std::ops::Range;

use crate::costs::{Cost, Costs};

const CORES_MAX: usize = 256;

/// A line of memory by its address, or a stand-in for memory to which a vector or a pointer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Line(usize, usize);

impl Line {
    const BYTES: usize = 64;

    /// The line of a value's address.
    pub(crate) fn of<T>(value: &T) -> Self {
        Self(std::ptr::from_ref(value).addr() / Self::BYTES, 0)
    }

    /// A stand-in for a line of memory that belongs to `owner` and is not inside it.
    pub(crate) fn held_by<T>(owner: &T, index: usize) -> Self {
        Self(std::ptr::from_ref(owner).addr(), 1 + index)
    }

    /// Indices of the lines of a buffer that hold these bytes.
    pub(crate) fn indices(bytes: Range<usize>) -> Range<usize> {
        match bytes.is_empty() {
            true => 0..0,
            false => bytes.start / Self::BYTES..(bytes.end - 1) / Self::BYTES + 1,
        }
    }
}

/// Kinds of access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    /// A locked instruction, which reads and writes the line.
    Change,
}

/// A set of cores, with a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Cores([u64; CORES_MAX / 64]);

impl Cores {
    fn has(&self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 == 1
    }

    fn add(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        (0..).zip(self.0).flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < 64).then(|| word * 64 + bit as usize)
            })
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    holders: Cores,
    is_exclusive: bool,
    /// The time from which another core can get the line.
    free_ps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Lines(HashMap<Line, State>);

impl Lines {
    /// The time at which a core's access to `count` lines ends, if these lines move together.
    pub(crate) fn access(
        &mut self,
        costs: &Costs,
        line: Line,
        access: Access,
        (core, now_ps, count): (usize, u64, u64),
    ) -> u64 {
        let state = self.0.entry(line).or_default();
        let is_load = access == Access::Load;
        let is_own = state.holders.has(core) && (is_load || state.is_exclusive);
        let own_ps = costs.ps(if access == Access::Change { Cost::Locked } else { Cost::Own });
        if is_own {
            return now_ps + own_ps;
        }
        let others = state.holders.all().filter(|other| *other != core);
        let distances = others.map(|other| costs.transfer_ps(other, core));
        // A write waits until the farthest holder has given the line up. The nearest holder serves
        // a read.
        let move_ps = if is_load { distances.min() } else { distances.max() }.unwrap_or(0) * count;
        let start_ps = now_ps.max(state.free_ps);
        let end_ps = start_ps + move_ps;
        // A holder serves reads one after the other.
        let busy_ps = if is_load { move_ps.min(costs.ps(Cost::Near)) } else { move_ps };
        state.free_ps = start_ps + busy_ps;
        if !is_load {
            state.holders = Cores::default();
        }
        state.holders.add(core);
        state.is_exclusive = !is_load || state.holders.all().count() == 1;
        end_ps + own_ps
    }
}
