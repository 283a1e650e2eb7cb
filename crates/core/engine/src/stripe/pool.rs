//! The stripes of a shard: the band of each stripe, and which stripes have memory for their blocks.
//!
//! ```text
//!           a band has work         its work is done       another stripe takes its memory
//!   blank ─────────────────▶ in use ────────────────▶ idle ────────────────────────────────▶ blank
//!     ▲                       │   ▲ it has work again     │
//!     └ holds nothing of use ─┘   └───────────────────────┘
//!
//!            a batch begins           the batch is over
//!   none ───────────────────▶ held ────────────────────▶ resting ──▶ held, or another stripe's
//! ```
//!
//! Stripes are made on demand: a stripe that waits to fill up is its queue and little more.
//! *Memory* bounds how many stripes are written at the same time: a frame, which is a block for
//! each slot ([`super::solve::Blocks`]). A batch holds a frame from its beginning to its end. Then
//! the frame rests with the stripe, and serves the next batch of the band until another stripe's
//! batch takes it. Frames without useful content are taken first, most recently used before others,
//! because the processor's caches still hold them. Then the frames that have rested longest are
//! taken.
//!
//! Invariants
//! - A band has at most one stripe, in the index: [`Index::insert`] and [`Index::remove`] assert
//!   it.
//! - A frame has at most one stripe, and a batch never loses its frame. Every idle stripe has a
//!   resting frame [check: stripes_come_and_go].

use std::collections::BTreeSet;

use braid_geometry::RowMap;
use braid_sim_hooks::{Mark, Point, reached, sometimes};

use super::band::{Band, BandKey};
use super::batch::Stripe;
use super::index::Index;
use super::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Blank,
    /// The stripe has no work, but the content of its blocks may be of use to its band.
    Idle,
    /// The stripe has work, or is about to get some.
    InUse,
}

/// A stripe's memory; the number is that of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    None,
    /// Another stripe may take this frame.
    Resting(u32),
    /// No other stripe may take this frame.
    Held(u32),
}

#[derive(Debug)]
pub(super) struct Pool {
    stripes: Vec<Stripe>,
    usages: Vec<Usage>,
    memories: Vec<Memory>,
    blank: Vec<u32>,
    in_use: u32,
    index: Index,
    links: Links,
    /// Stripes whose memory rests; the stripe that has rested longest is first.
    resting: List,
    /// For each frame, the stripe that has it.
    frames: Vec<Option<u32>>,
    free: Vec<u32>,
    /// Frames that former members may still access. Each has a substitute.
    apart: BTreeSet<u32>,
    /// The wanted number of frames, without the frames set apart.
    wanted: u32,
    /// The largest number of frames that can ever be wanted.
    frames_max: u32,
    /// Frames from this number on are out of use, or will be once no batch holds them.
    target: u32,
}

impl Pool {
    /// A pool without memory, for at most `frames_max` frames.
    pub(super) fn new(frames_max: u32) -> Self {
        assert!(frames_max > 0, "without memory nothing can be written");
        Self {
            stripes: Vec::new(),
            usages: Vec::new(),
            memories: Vec::new(),
            blank: Vec::new(),
            in_use: 0,
            index: Index::new(1),
            links: Links::default(),
            resting: List::EMPTY,
            frames: Vec::new(),
            free: Vec::new(),
            apart: BTreeSet::new(),
            wanted: 0,
            frames_max,
            target: 0,
        }
    }

    pub(super) fn frames_max(&self) -> u32 {
        self.frames_max
    }

    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.stripes.len()).expect("stripes are counted so")
    }

    pub(super) fn stripe(&self, number: u32) -> &Stripe {
        &self.stripes[number as usize]
    }

    pub(super) fn stripe_mut(&mut self, number: u32) -> &mut Stripe {
        &mut self.stripes[number as usize]
    }

    pub(super) fn is_in_use(&self, number: u32) -> bool {
        self.usages[number as usize] == Usage::InUse
    }

    pub(super) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// The stripe of a band, in use or idle. Probes are counted ([`Self::extra_probes`]).
    pub(super) fn find(&mut self, band: BandKey) -> Option<u32> {
        self.index.get(band.0)
    }

    /// The stripe of a band, in use or idle, without counting probes.
    pub(super) fn peek(&self, band: BandKey) -> Option<u32> {
        self.index.look_up(band.0)
    }

    /// The stripe of a band, if it works on a batch.
    pub(super) fn batch_of(&self, band: BandKey) -> Option<&Stripe> {
        Some(self.stripe(self.peek(band)?)).filter(|stripe| stripe.has_batch())
    }

    /// Lines of the index that lookups read beyond the first.
    pub(super) fn extra_probes(&self) -> u64 {
        self.index.extra_probes()
    }

    /// Whether the index is so large that prefetching pays.
    pub(super) fn is_worth_prefetching(&self) -> bool {
        self.index.is_large()
    }

    pub(super) fn prefetch(&self, band: BandKey) {
        self.index.prefetch(band.0);
    }

    /// Makes a stripe for a band that has none. The caller uses the stripe at once
    /// ([`Self::take`]).
    pub(super) fn assign(&mut self, band: Band, map: RowMap, blank: impl Fn() -> Stripe) -> u32 {
        let number = self.blank.pop().unwrap_or_else(|| {
            let number = self.numbers().end;
            self.stripes.push(blank());
            self.usages.push(Usage::Blank);
            self.memories.push(Memory::None);
            self.links.grow(self.stripes.len());
            self.index.grow(self.stripes.len());
            number
        });
        assert_eq!(self.usages[number as usize], Usage::Blank, "a stripe has one band at a time");
        self.stripes[number as usize].assign(band, map);
        self.index.insert(band.key.0, number);
        self.usages[number as usize] = Usage::Idle;
        number
    }

    pub(super) fn take(&mut self, number: u32) {
        let usage = &mut self.usages[number as usize];
        assert_ne!(*usage, Usage::Blank, "a stripe gets the work of its band");
        self.in_use += u32::from(*usage == Usage::Idle);
        *usage = Usage::InUse;
    }

    /// Puts back a stripe without more work. The pool keeps the stripe's blocks if they are worth
    /// keeping, and if the stripe still has them.
    pub(super) fn put_back(&mut self, number: u32, is_worth_keeping: bool) {
        assert!(self.is_in_use(number), "it was taken");
        self.in_use -= 1;
        self.stripes[number as usize].rest();
        match self.memories[number as usize] {
            Memory::Resting(_) if is_worth_keeping => {
                self.usages[number as usize] = Usage::Idle;
            }
            Memory::Resting(_) => {
                let frame = self.lose_memory(number);
                self.set_free(frame);
                self.make_blank(number);
            }
            Memory::None => self.make_blank(number),
            Memory::Held(_) => unreachable!("only a batch holds memory"),
        }
    }

    /// The frame of a stripe's batch.
    pub(super) fn frame(&self, number: u32) -> Option<u32> {
        match self.memories[number as usize] {
            Memory::Held(frame) => Some(frame),
            Memory::None | Memory::Resting(_) => None,
        }
    }

    /// The stripe whose batch holds a frame.
    pub(super) fn holder(&self, frame: u32) -> Option<u32> {
        let holder = *self.frames.get(frame as usize)?;
        holder.filter(|number| self.frame(*number) == Some(frame))
    }

    /// Whether a stripe has memory for a batch, or can get it now.
    pub(super) fn has_memory(&self, number: u32) -> bool {
        let has_some = !self.free.is_empty() || self.resting.first().is_some();
        has_some || self.memories[number as usize] != Memory::None
    }

    /// Gives the stripe memory for a batch: its own frame, or a frame that no batch holds.
    pub(super) fn hold(&mut self, number: u32) {
        let frame = match self.memories[number as usize] {
            Memory::Held(_) => return,
            Memory::Resting(frame) => {
                self.resting.remove(&mut self.links, number);
                frame
            }
            Memory::None => self.free.pop().unwrap_or_else(|| {
                let victim = self.resting.first().expect("there is memory that no batch has");
                reached(Mark::MemoryTaken);
                self.give_up(victim)
            }),
        };
        self.memories[number as usize] = Memory::Held(frame);
        self.frames[frame as usize] = Some(number);
    }

    /// Other stripes may take the stripe's memory from now on.
    pub(super) fn let_go(&mut self, number: u32) {
        let frame = self.frame(number).expect("it was held");
        self.memories[number as usize] = Memory::Resting(frame);
        self.resting.push_back(&mut self.links, number);
        if frame >= self.target {
            reached(Mark::MemoryGivenUp);
            self.give_up(number);
        }
    }

    /// Changes the number of frames. Surplus frames are freed at once, or when their batch ends.
    pub(super) fn resize(&mut self, frames: u32) {
        let wanted = frames.clamp(1, self.frames_max);
        self.wanted = if sometimes(Point::OneStripe) { 1 } else { wanted };
        self.aim();
    }

    /// Adjusts the number of frames to the wanted number plus the number of frames set apart.
    fn aim(&mut self) {
        let apart = u32::try_from(self.apart.len()).expect("frames are counted so");
        let target = (self.wanted + apart).min(self.frames_max);
        let before = std::mem::replace(&mut self.target, target);
        if self.frames.len() < target as usize {
            self.frames.resize(target as usize, None);
        }
        self.free.retain(|frame| *frame < target);
        for frame in target..before {
            if let Some(number) = self.frames[frame as usize]
                && self.frame(number).is_none()
            {
                reached(Mark::MemoryGivenUp);
                self.give_up(number);
            }
        }
        let is_free =
            |frame: &u32| self.frames[*frame as usize].is_none() && !self.apart.contains(frame);
        self.free.extend((before..target).rev().filter(is_free));
    }

    /// Sets the frame of a finished batch apart, until [`Self::take_back`]: a member that left may
    /// access it.
    pub(super) fn set_apart(&mut self, number: u32) {
        let frame = self.frame(number).expect("it was held");
        reached(Mark::FrameSetApart);
        self.memories[number as usize] = Memory::None;
        self.frames[frame as usize] = None;
        self.stripes[number as usize].forget_columns();
        self.apart.insert(frame);
        self.aim();
    }

    /// Takes back a frame that no former member accesses any more.
    pub(super) fn take_back(&mut self, frame: u32) {
        // The frame's batch may still be under way.
        if self.apart.remove(&frame) {
            self.aim();
            self.set_free(frame);
        }
    }

    /// Takes the resting memory of a stripe away. A stripe without work loses its band as well.
    fn give_up(&mut self, number: u32) -> u32 {
        let frame = self.lose_memory(number);
        if self.usages[number as usize] == Usage::Idle {
            self.make_blank(number);
        } else {
            reached(Mark::WaitingLosesMemory);
            self.stripes[number as usize].forget_columns();
        }
        frame
    }

    fn lose_memory(&mut self, number: u32) -> u32 {
        let Memory::Resting(frame) = self.memories[number as usize] else {
            unreachable!("only what rests is taken")
        };
        self.resting.remove(&mut self.links, number);
        self.memories[number as usize] = Memory::None;
        self.frames[frame as usize] = None;
        frame
    }

    fn set_free(&mut self, frame: u32) {
        if frame < self.target {
            self.free.push(frame);
        }
    }

    fn make_blank(&mut self, number: u32) {
        self.usages[number as usize] = Usage::Blank;
        let band = self.stripes[number as usize].leave_band();
        assert_eq!(self.index.remove(band.0), number, "the index knows every band");
        self.blank.push(number);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use braid_geometry::ChunkRow;

    use super::super::band::Bands;
    use super::super::tests::{geometry, write_piece};
    use super::*;

    const UNIT: u32 = 8;

    fn blank() -> Stripe {
        Stripe::new(&geometry(3, UNIT, 64))
    }

    fn band(row: u64) -> (Band, RowMap) {
        let geometry = geometry(3, UNIT, 64);
        let piece = write_piece(row * 2 * u64::from(UNIT), 1);
        let (band, _) = Bands::new(&geometry, UNIT, &piece, (0, 1)).next().unwrap();
        (band, geometry.row_map(ChunkRow(row)))
    }

    /// Compares a pool with maps from bands and frames to stripes, while the pool grows and
    /// shrinks.
    #[test]
    fn stripes_come_and_go() {
        let mut pool = Pool::new(8);
        pool.resize(4);
        let (mut in_use, mut held) = (BTreeMap::new(), BTreeMap::new());
        let mut state = 7_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let row = (state >> 33) % 32;
            match (state >> 50) % 8 {
                0 => pool.resize(u32::try_from((state >> 40) % 8 + 1).unwrap()),
                1..3 => {
                    if let Some((frame, number)) = held.pop_first() {
                        assert_eq!(pool.frame(number), Some(frame), "no batch loses its memory");
                        assert_eq!(pool.holder(frame), Some(number));
                        pool.let_go(number);
                    }
                }
                3..5 => {
                    let is_held = |number: &u32| held.values().any(|other| other == number);
                    let ended = in_use.iter().find(|(_, number)| !is_held(number));
                    if let Some((row, number)) = ended.map(|(row, number)| (*row, *number)) {
                        in_use.remove(&row);
                        pool.put_back(number, state >> 60 & 1 == 1);
                    }
                }
                5 => {
                    if let Some(number) = in_use.get(&row)
                        && pool.has_memory(*number)
                    {
                        pool.hold(*number);
                        held.insert(pool.frame(*number).unwrap(), *number);
                    }
                }
                _ => {
                    let (band, map) = band(row);
                    let found = pool.find(band.key);
                    let number = found.unwrap_or_else(|| pool.assign(band, map, blank));
                    pool.take(number);
                    let before = in_use.insert(row, number);
                    assert!(before.is_none_or(|before| before == number), "one stripe for a band");
                }
            }
            assert_eq!(pool.in_use() as usize, in_use.len());
            assert!(in_use.iter().all(|(row, number)| pool.peek(BandKey(*row)) == Some(*number)));
            let frames = pool.numbers().filter_map(|number| pool.frame(number));
            assert_eq!(frames.collect::<std::collections::BTreeSet<_>>().len(), held.len());
            let having = pool.memories.iter().filter(|memory| **memory != Memory::None).count();
            let beyond = held.keys().filter(|frame| **frame >= pool.target).count();
            assert_eq!(having + pool.free.len() - beyond, pool.target as usize, "none is lost");
            let idle = pool.usages.iter().zip(&pool.memories);
            let mut idle = idle.filter(|(usage, _)| **usage == Usage::Idle);
            assert!(idle.all(|(_, memory)| matches!(memory, Memory::Resting(_))));
        }
    }
}
