//! Requests in bytes: checks them, and plans them as steps in sectors.
//!
//! The engine counts in sectors. A write that covers part of a sector must keep the sector's other
//! bytes. So the sectors at its edges are read, the client's bytes are laid over them, and the
//! sectors are written back.
//!
//! This file stands between a front end, which counts in bytes, and [`super::Request`]. A driver
//! calls [`check`] and makes a [`RequestPlan`]. A request that changes bytes has a plan with a
//! [`RequestPlan::mode`], and waits for its [`super::WriteAdmission`]. Then the driver carries out
//! one [`Step`] after another, and answers the client. [`Patch`] says where bytes go.
//!
//! ```text
//!                 ┌──────── around: whole sectors ────────┐
//!   sectors   │ fetch │       │       │       │ fetch │
//!   client        ▕━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━▏
//!                 skip_bytes     length_bytes
//! ```
//!
//! After a crash each sector by itself holds its old content, or all of the new bytes in it. Bytes
//! outside the request are never lost, whatever happens.
//!
//! # Invariants
//! - A request plan changes the bytes of its request and no others, in any alignment
//!   [check: a_plan_changes_its_bytes_and_no_others].
//! - The first failure ends a plan and is its answer [check: the_first_failure_is_the_answer].

use std::collections::VecDeque;

use braid_geometry::{Geometry, LogicalSector, SECTOR_BYTES};
use braid_sim_hooks::{Bug, spoiled};

use super::operation::Operation;
use super::write_admission::AdmissionMode;

/// A client's operation on a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOperation {
    /// Fill the payload.
    Read,
    /// Write the payload.
    Write {
        /// Whether the payload must be on stable storage before the answer.
        durable: bool,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Whether the members may deallocate the space.
        may_punch: bool,
        /// Whether to refuse the request rather than write zeroes out.
        fast: bool,
        /// Whether the zeroes must be on stable storage before the answer.
        durable: bool,
    },
    /// The client no longer needs the content of the whole sectors inside the range.
    Trim {
        /// Whether the trim must be on stable storage before the answer.
        durable: bool,
    },
}

/// A request on a range of bytes, of any alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRequest {
    /// The operation.
    pub operation: ByteOperation,
    /// First byte of the array.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The reason why a request is refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The range does not lie inside the array.
    OutOfRange,
    /// Writes are not allowed.
    ReadOnly,
    /// Zeroing this range would not be faster than writing zeroes.
    NotFast,
}

/// The operations that an array allows.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits<'a> {
    /// The array's geometry.
    pub geometry: &'a Geometry,
    /// Bytes that clients may use: all of the array, or less if the operator has it end earlier.
    pub size_bytes: u64,
    /// The array was opened for reading only.
    pub read_only: bool,
    /// Every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
}

/// Whether the array can try `request`.
///
/// # Errors
/// The first reason to refuse the request.
pub fn check(request: &ByteRequest, limits: RequestLimits<'_>) -> Result<(), Denial> {
    if request.offset.checked_add(request.length).is_none_or(|end| end > limits.size_bytes) {
        return Err(Denial::OutOfRange);
    }
    if request.operation != ByteOperation::Read && limits.read_only {
        return Err(Denial::ReadOnly);
    }
    let must_be_fast = matches!(request.operation, ByteOperation::WriteZeroes { fast: true, .. });
    if must_be_fast && !is_fast(request, limits) {
        return Err(Denial::NotFast);
    }
    Ok(())
}

/// The best unit to write, zero or discard: on levels with parity a row of chunks, else a sector.
#[must_use]
pub fn unit_bytes(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Stripe(stripe) => {
            u64::from(stripe.data_slots()) * u64::from(stripe.chunk_sectors()) * SECTOR_BYTES
        }
        Geometry::Direct(_) | Geometry::Mirror(_) => SECTOR_BYTES,
    }
}

/// Whether members can zero a range without writing zeroes. On levels with parity the range must be
/// whole units, so that their parity is zero, too.
fn is_fast(request: &ByteRequest, limits: RequestLimits<'_>) -> bool {
    let unit = unit_bytes(limits.geometry);
    let is_whole = request.offset.is_multiple_of(unit) && request.length.is_multiple_of(unit);
    limits.zero_is_fast && is_whole
}

/// Bytes of a request that cover some of their sectors only in part, and the whole sectors around
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// First sector that the patch touches.
    pub start: LogicalSector,
    /// Number of sectors that the patch touches.
    pub sectors: u64,
    /// Offset of the request's bytes in these sectors.
    pub skip_bytes: u64,
    /// Number of the request's bytes.
    pub length_bytes: u64,
}

impl Patch {
    fn new(offset: u64, length_bytes: u64) -> Self {
        let start = offset / SECTOR_BYTES;
        let sectors = (offset + length_bytes).div_ceil(SECTOR_BYTES) - start;
        let skip_bytes = offset - start * SECTOR_BYTES;
        Self { start: LogicalSector(start), sectors, skip_bytes, length_bytes }
    }

    /// The place of the client's bytes in the memory that holds all sectors around them.
    #[must_use]
    pub fn middle(&self) -> std::ops::Range<usize> {
        to_usize(self.skip_bytes)..to_usize(self.skip_bytes + self.length_bytes)
    }

    /// The place of the sectors from `start` on, in memory that holds all sectors of the patch.
    #[must_use]
    pub fn place(&self, start: LogicalSector, sectors: u64) -> std::ops::Range<usize> {
        let begin = (start.0 - self.start.0) * SECTOR_BYTES;
        to_usize(begin)..to_usize(begin + sectors * SECTOR_BYTES)
    }

    /// The sectors that the patch covers in part: they are read before the patch is written.
    fn edges(&self) -> impl Iterator<Item = (LogicalSector, u64)> {
        let end_bytes = self.skip_bytes + self.length_bytes;
        let cuts_first = self.skip_bytes > 0;
        let cuts_last = !end_bytes.is_multiple_of(SECTOR_BYTES);
        let last = LogicalSector(self.start.0 + self.sectors - 1);
        let all = (self.start, self.sectors);
        let (first, second) = match (cuts_first, cuts_last) {
            (true, true) if self.sectors <= 2 => (Some(all), None),
            (true, true) => (Some((self.start, 1)), Some((last, 1))),
            (true, false) => (Some((self.start, 1)), None),
            (false, true) => (Some((last, 1)), None),
            (false, false) => (None, None),
        };
        let second = spoiled(Bug::EdgeForgotten, second, None);
        first.into_iter().chain(second)
    }
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation for the engine, straight between members and the client's payload.
    Whole {
        /// The operation.
        operation: Operation,
        /// First sector.
        start: LogicalSector,
        /// Number of sectors.
        sectors: u64,
    },
    /// Read these sectors into the memory around the patch, at [`Patch::place`].
    Fetch {
        /// The patch whose surroundings are read.
        patch: Patch,
        /// First sector.
        start: LogicalSector,
        /// Number of sectors.
        sectors: u64,
    },
    /// Lay the payload, or zeroes if there is none, over [`Patch::middle`]. Then write all sectors
    /// around the patch.
    Store {
        /// The place of the bytes to write.
        patch: Patch,
        /// Whether the sectors must be on stable storage before the step is done.
        durable: bool,
    },
    /// Copy [`Patch::middle`] of the fetched bytes to the payload. The driver does this at once.
    Take {
        /// The fetched bytes.
        patch: Patch,
    },
    /// Leave the write admission, then flush the array.
    Flush,
}

/// The next step, or the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<E> {
    /// Carry this step out, then call [`RequestPlan::next`] again.
    Step(Step),
    /// Leave the write admission, if not done yet, then give the client this answer.
    Answer(Result<(), E>),
}

/// The steps of one request.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    mode: Option<AdmissionMode>,
    steps: Steps,
}

/// Steps in order. An aligned request's single step is stored inline; others use the heap.
#[derive(Clone, Debug, Default)]
struct Steps {
    first: Option<Step>,
    rest: VecDeque<Step>,
}

impl Steps {
    fn push(&mut self, step: Step) {
        if self.first.is_none() {
            self.first = Some(step);
        } else {
            self.rest.push_back(step);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Step> {
        self.first.iter().chain(&self.rest)
    }

    fn take_next(&mut self) -> Option<Step> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }
}

impl Extend<Step> for Steps {
    fn extend<I: IntoIterator<Item = Step>>(&mut self, steps: I) {
        steps.into_iter().for_each(|step| self.push(step));
    }
}

impl RequestPlan {
    /// The steps of a request that [`check`] allows.
    #[must_use]
    pub fn new(request: &ByteRequest) -> Self {
        let ByteRequest { operation, offset, length } = *request;
        let mut steps = Steps::default();
        if length == 0 {
            return Self { mode: None, steps };
        }
        let is_aligned = offset.is_multiple_of(SECTOR_BYTES) && length.is_multiple_of(SECTOR_BYTES);
        match operation {
            ByteOperation::Read if is_aligned => whole(&mut steps, Operation::Read, offset, length),
            ByteOperation::Read => {
                let patch = Patch::new(offset, length);
                let (start, sectors) = (patch.start, patch.sectors);
                steps.extend([Step::Fetch { patch, start, sectors }, Step::Take { patch }]);
            }
            ByteOperation::Write { durable } if is_aligned => {
                whole(&mut steps, Operation::Write { durable }, offset, length);
            }
            ByteOperation::Write { durable } => store(&mut steps, offset, length, durable),
            ByteOperation::WriteZeroes { may_punch, durable, .. } => {
                let operation = Operation::WriteZeroes { may_punch, durable: false };
                zeroes(&mut steps, operation, (offset, length));
                let durable = spoiled(Bug::ZeroesUnflushed, durable, false);
                steps.extend(durable.then_some(Step::Flush));
            }
            ByteOperation::Trim { durable } => {
                let (start, end) = inside(offset, length);
                if start < end {
                    whole(&mut steps, Operation::Trim, start, end - start);
                    steps.extend(durable.then_some(Step::Flush));
                }
            }
        }
        let stores = steps.iter().any(|step| matches!(step, Step::Store { .. }));
        let stores = spoiled(Bug::PatchesShared, stores, false);
        let changes = operation != ByteOperation::Read && steps.first.is_some();
        let mode = changes.then_some(if stores {
            AdmissionMode::Exclusive
        } else {
            AdmissionMode::Shared
        });
        Self { mode, steps }
    }

    /// The plan's mode of write admission; `None` for a request that changes nothing.
    #[must_use]
    pub fn mode(&self) -> Option<AdmissionMode> {
        self.mode
    }

    /// The next step. `done` is the result of the step before; `Ok` at the beginning.
    pub fn next<E>(&mut self, done: Result<(), E>) -> Next<E> {
        let step = self.steps.take_next();
        match (done, step) {
            (Ok(()), Some(step)) => Next::Step(step),
            (Ok(()), None) => Next::Answer(Ok(())),
            (Err(error), _) => Next::Answer(Err(error)),
        }
    }
}

fn whole(steps: &mut Steps, operation: Operation, offset: u64, length: u64) {
    let start = LogicalSector(offset / SECTOR_BYTES);
    steps.push(Step::Whole { operation, start, sectors: length / SECTOR_BYTES });
}

fn store(steps: &mut Steps, offset: u64, length: u64, durable: bool) {
    if length > 0 {
        let patch = Patch::new(offset, length);
        steps.extend(patch.edges().map(|(start, sectors)| Step::Fetch { patch, start, sectors }));
        steps.push(Step::Store { patch, durable });
    }
}

/// Adds steps that patch the edges and zero the sectors between them. A flush at the end makes all
/// of them durable.
fn zeroes(steps: &mut Steps, operation: Operation, (offset, length): (u64, u64)) {
    let (start, end) = inside(offset, length);
    if start >= end {
        return store(steps, offset, length, false);
    }
    store(steps, offset, start - offset, false);
    store(steps, end, offset + length - end, false);
    whole(steps, operation, start, end - start);
}

/// The whole sectors inside a range, in bytes. If the range has none, the end may be before the
/// start.
fn inside(offset: u64, length: u64) -> (u64, u64) {
    (offset.next_multiple_of(SECTOR_BYTES), (offset + length) / SECTOR_BYTES * SECTOR_BYTES)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a payload fits in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4 * 512;

    /// Carries out a plan over an array that is a slice of memory, and returns the plan's steps.
    fn walk(array: &mut [u8], request: &ByteRequest, payload: &mut [u8]) -> Vec<Step> {
        let span = |start: LogicalSector, sectors: u64| {
            to_usize(start.0 * SECTOR_BYTES)..to_usize((start.0 + sectors) * SECTOR_BYTES)
        };
        let mut plan = RequestPlan::new(request);
        let (mut around, mut seen) = (Vec::new(), Vec::new());
        while let Next::Step(step) = plan.next::<()>(Ok(())) {
            seen.push(step);
            match step {
                Step::Whole { operation, start, sectors } => match operation {
                    Operation::Read => payload.copy_from_slice(&array[span(start, sectors)]),
                    Operation::Write { .. } => array[span(start, sectors)].copy_from_slice(payload),
                    Operation::WriteZeroes { .. } | Operation::Trim => {
                        array[span(start, sectors)].fill(0);
                    }
                },
                Step::Fetch { patch, start, sectors } => {
                    around.resize(to_usize(patch.sectors * SECTOR_BYTES), 0xEE);
                    around[patch.place(start, sectors)]
                        .copy_from_slice(&array[span(start, sectors)]);
                }
                Step::Store { patch, .. } => {
                    around.resize(to_usize(patch.sectors * SECTOR_BYTES), 0xEE);
                    match request.operation {
                        ByteOperation::Write { .. } => {
                            around[patch.middle()].copy_from_slice(payload);
                        }
                        _ => around[patch.middle()].fill(0),
                    }
                    array[span(patch.start, patch.sectors)].copy_from_slice(&around);
                    around.clear();
                }
                Step::Take { patch } => payload.copy_from_slice(&around[patch.middle()]),
                Step::Flush => {}
            }
        }
        seen
    }

    const OFFSETS: [usize; 10] = [0, 1, 100, 511, 512, 513, 1023, 1024, 1536, 2047];

    #[test]
    fn a_plan_changes_its_bytes_and_no_others() {
        let before: Vec<u8> = (1..=251).cycle().take(SIZE).collect();
        for offset in OFFSETS {
            for end in OFFSETS.into_iter().chain([SIZE]).filter(|end| *end >= offset) {
                let length = end - offset;
                let range = (offset as u64, length as u64);
                let ask = |operation| ByteRequest { operation, offset: range.0, length: range.1 };
                let (mut array, mut payload) = (before.clone(), vec![0xC7; length]);
                let steps =
                    walk(&mut array, &ask(ByteOperation::Write { durable: true }), &mut payload);
                let fits = |(index, byte): (usize, &u8)| {
                    *byte == if (offset..end).contains(&index) { 0xC7 } else { before[index] }
                };
                assert!(array.iter().enumerate().all(fits), "write {offset}..{end}: {steps:?}");
                let mut read = vec![0; length];
                walk(&mut array, &ask(ByteOperation::Read), &mut read);
                assert_eq!(read, payload, "read {offset}..{end}");
                let zero =
                    ByteOperation::WriteZeroes { may_punch: true, fast: false, durable: true };
                let mut array = before.clone();
                let steps = walk(&mut array, &ask(zero), &mut []);
                let fits = |(index, byte): (usize, &u8)| {
                    *byte == if (offset..end).contains(&index) { 0 } else { before[index] }
                };
                assert!(array.iter().enumerate().all(fits), "zero {offset}..{end}: {steps:?}");
                assert_eq!(steps.last(), (length > 0).then_some(&Step::Flush));
                let mut array = before.clone();
                walk(&mut array, &ask(ByteOperation::Trim { durable: false }), &mut []);
                let keeps = |(index, byte): (usize, &u8)| {
                    *byte == before[index] || (offset..end).contains(&index)
                };
                assert!(array.iter().enumerate().all(keeps), "trim {offset}..{end}");
            }
        }
    }

    #[test]
    fn a_long_write_fetches_its_edges_only() {
        let operation = ByteOperation::Write { durable: false };
        let mut plan = RequestPlan::new(&ByteRequest { operation, offset: 700, length: 1 << 20 });
        assert_eq!(plan.mode(), Some(AdmissionMode::Exclusive));
        let mut fetched = 0;
        while let Next::Step(step) = plan.next::<()>(Ok(())) {
            if let Step::Fetch { sectors, .. } = step {
                fetched += sectors;
            }
        }
        assert_eq!(fetched, 2);
    }

    #[test]
    fn the_first_failure_is_the_answer() {
        let operation = ByteOperation::Write { durable: false };
        let request = ByteRequest { operation, offset: 1, length: 9 };
        let mut plan = RequestPlan::new(&request);
        assert!(matches!(plan.next::<u8>(Ok(())), Next::Step(Step::Fetch { .. })));
        assert_eq!(plan.next(Err(7)), Next::Answer(Err(7)), "nothing is stored over garbage");
    }

    #[test]
    fn only_what_changes_something_goes_through_the_write_admission() {
        let mode = |operation, offset, length| {
            RequestPlan::new(&ByteRequest { operation, offset, length }).mode()
        };
        let zero = ByteOperation::WriteZeroes { may_punch: false, fast: false, durable: true };
        assert_eq!(mode(ByteOperation::Read, 3, 9), None);
        assert_eq!(
            mode(ByteOperation::Write { durable: true }, 512, 1024),
            Some(AdmissionMode::Shared)
        );
        assert_eq!(
            mode(ByteOperation::Write { durable: true }, 512, 1023),
            Some(AdmissionMode::Exclusive)
        );
        assert_eq!(mode(zero, 1, 1024), Some(AdmissionMode::Exclusive));
        assert_eq!(mode(zero, 0, 1024), Some(AdmissionMode::Shared));
        assert_eq!(
            mode(ByteOperation::Trim { durable: true }, 1, 2000),
            Some(AdmissionMode::Shared)
        );
        assert_eq!(mode(ByteOperation::Trim { durable: true }, 1, 700), None, "no whole sector");
        assert_eq!(mode(ByteOperation::Write { durable: true }, 100, 0), None);
    }
}
