//! Paired measurement of parity code: contenders take turns on the same stripes, round after round.
//!
//! This file serves the example's `main.rs`, and the comparison with other libraries, which
//! includes it. The only contender in this file is memcpy.
//!
//! A number is bytes of data *read* per second, in units of 10^9, by one thread. Parity written is
//! not counted. A ratio is taken within a round, between neighbours in time, and the median is over
//! rounds: a disturbance of the whole machine slows both sides of a pair.

use std::time::Instant;

/// The numbers of a stripe's data and parity columns.
#[derive(Clone, Copy)]
pub struct Shape {
    pub data: usize,
    pub parity: usize,
}

pub const SHAPES: [Shape; 3] =
    [Shape { data: 4, parity: 1 }, Shape { data: 4, parity: 2 }, Shape { data: 8, parity: 2 }];

/// The memory of the stripes: one small stripe again and again, or long blocks far beyond the
/// caches, in a cycle.
#[derive(Clone, Copy)]
pub struct Footprint {
    pub name: &'static str,
    pub block_bytes: usize,
    /// The least size of all stripes together; there is at least one stripe.
    pub working_set_bytes: usize,
    /// The data that a contender reads in one round.
    pub sample_bytes: usize,
}

pub const FOOTPRINTS: [Footprint; 2] = [
    Footprint {
        name: "4 KiB in cache",
        block_bytes: 4 << 10,
        working_set_bytes: 0,
        sample_bytes: 64 << 20,
    },
    Footprint {
        name: "64 KiB out of cache",
        block_bytes: 64 << 10,
        working_set_bytes: 512 << 20,
        sample_bytes: 32 << 20,
    },
];

impl Footprint {
    /// A footprint like this one that is small enough for a test; its figures mean nothing.
    pub fn quick(self) -> Footprint {
        Footprint {
            working_set_bytes: self.working_set_bytes.min(2 << 20),
            sample_bytes: 1 << 20,
            ..self
        }
    }
}

/// One stripe's blocks.
pub struct Stripe<'a> {
    pub data: Vec<&'a [u8]>,
    /// `data`, as P and Q generation takes it.
    pub columns: Vec<Option<&'a [u8]>>,
    /// One or two blocks.
    pub parity: Vec<&'a mut [u8]>,
}

/// Code whose speed is measured.
pub struct Contender<'a> {
    pub name: &'static str,
    /// The bytes of data that the contender reads.
    pub bytes_read: usize,
    pub work: Box<dyn Fn(&mut Stripe<'_>) + 'a>,
}

/// The yardstick: copies as many blocks as a stripe has parity blocks.
pub fn memcpy(shape: Shape, footprint: Footprint) -> Contender<'static> {
    Contender {
        name: "memcpy",
        bytes_read: shape.parity * footprint.block_bytes,
        work: Box::new(|stripe| {
            for (to, from) in stripe.parity.iter_mut().zip(&stripe.data) {
                to.copy_from_slice(from);
            }
        }),
    }
}

/// Memory for the stripes of one shape and footprint, page-aligned and touched.
pub struct Arena {
    memory: Vec<u8>,
    start: usize,
    shape: Shape,
    block_bytes: usize,
}

const PAGE_BYTES: usize = 4 << 10;

impl Arena {
    pub fn new(shape: Shape, footprint: Footprint) -> Arena {
        let stripe_bytes = (shape.data + shape.parity) * footprint.block_bytes;
        let stripes = footprint.working_set_bytes.div_ceil(stripe_bytes).max(1);
        let mut state = 1u64;
        let memory: Vec<u8> = (0..stripes * stripe_bytes + PAGE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        let start = memory.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        Arena { memory, start, shape, block_bytes: footprint.block_bytes }
    }

    pub fn stripes(&mut self) -> Vec<Stripe<'_>> {
        let width = self.shape.data + self.shape.parity;
        let mut stripes = Vec::new();
        let mut blocks = self.memory[self.start..].chunks_exact_mut(self.block_bytes);
        while blocks.len() >= width {
            let data: Vec<&[u8]> =
                blocks.by_ref().take(self.shape.data).map(|block| &*block).collect();
            let parity = blocks.by_ref().take(self.shape.parity).collect();
            let columns = data.iter().copied().map(Some).collect();
            stripes.push(Stripe { data, columns, parity });
        }
        stripes
    }
}

/// The results of one contender, round by round, in GB/s.
pub struct Series {
    pub name: &'static str,
    pub rates: Vec<f64>,
}

/// The median of some numbers, the quartiles around it, and both ends.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub quartiles: (f64, f64),
    pub lowest: f64,
    pub highest: f64,
}

pub fn spread(values: &[f64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Spread {
        median: sorted[sorted.len() / 2],
        quartiles: (sorted[sorted.len() / 4], sorted[sorted.len() * 3 / 4]),
        lowest: sorted[0],
        highest: sorted[sorted.len() - 1],
    }
}

/// Round by round, how many times as fast the first contender is as the second.
pub fn ratios(first: &Series, second: &Series) -> Vec<f64> {
    first.rates.iter().zip(&second.rates).map(|(first, second)| first / second).collect()
}

/// Lets contenders take turns; each round begins with another contender. The first round is
/// dropped.
pub fn race(
    contenders: &[Contender<'_>],
    stripes: &mut [Stripe<'_>],
    sample_bytes: usize,
    rounds: usize,
) -> Vec<Series> {
    let mut series: Vec<Series> =
        contenders.iter().map(|one| Series { name: one.name, rates: Vec::new() }).collect();
    let mut cursor = 0;
    for round in 0..=rounds {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let contender = &contenders[index];
            let calls = sample_bytes.div_ceil(contender.bytes_read);
            let start = Instant::now();
            for _ in 0..calls {
                (contender.work)(&mut stripes[cursor]);
                cursor += 1;
                if cursor == stripes.len() {
                    cursor = 0;
                }
            }
            let seconds = start.elapsed().as_secs_f64();
            if round > 0 {
                series[index].rates.push((calls * contender.bytes_read) as f64 / seconds / 1e9);
            }
        }
    }
    series
}

/// The processor's own name, or "unknown".
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines().find_map(|line| {
            line.split_once(':')
                .filter(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim())
        })
    };
    match (field("model name"), field("cpu family"), field("model")) {
        (Some(name), Some(family), Some(model)) => format!("{name}, family {family} model {model}"),
        (name, ..) => name.unwrap_or("unknown").to_owned(),
    }
}
