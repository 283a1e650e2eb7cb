//! The one interpreter of a replay's effects, over any members.

use std::ops::Range;

use braid_geometry::{SECTOR_BYTES, Slot};
use braid_parity::kernel;

use super::machine::{Effect, Event, Replay, ReplayError, Report, Weights};

const SECTOR_LENGTH: usize = 512;
const _: () = assert!(SECTOR_LENGTH as u64 == SECTOR_BYTES, "as long as everywhere else");

/// The driver's members, by slot. Each call returns whether it succeeded; the driver keeps the
/// reason of a failure.
pub trait Devices {
    /// Reads sectors of a member's data.
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool;
    /// Returns partial parity of an entry in the slot's log. `sectors` count from the first sector
    /// of the entry's partial parity.
    fn partial(&self, slot: Slot, entry: u32, sectors: Range<u64>) -> &[u8];
    /// Writes sectors of a member's data.
    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool;
    /// Makes the member's written sectors durable.
    fn flush(&mut self, slot: Slot) -> bool;
    /// Marks the member clean in its superblock, durably.
    fn record_clean(&mut self, slot: Slot) -> bool;
    /// Makes the slot's log void, durably.
    fn void(&mut self, slot: Slot) -> bool;
}

#[derive(Default)]
struct Blocks {
    columns: Vec<Vec<u8>>,
    parity: Vec<u8>,
}

impl Blocks {
    fn column(&mut self, slot: Slot, length_sectors: u64) -> &mut [u8] {
        if self.columns.len() <= slot.index() {
            self.columns.resize(slot.index() + 1, Vec::new());
        }
        let column = &mut self.columns[slot.index()];
        column.resize(bytes(length_sectors), 0);
        column
    }

    fn compute(&mut self, columns: &[Slot], partial: Option<&[u8]>, length_sectors: u64) {
        let read = columns.iter().map(|slot| &self.columns[slot.index()][..]);
        let sources: Vec<&[u8]> = read.chain(partial).collect();
        self.parity.clear();
        self.parity.resize(bytes(length_sectors), 0);
        kernel().xor(&mut self.parity, &sources);
    }

    /// Computes Q, including a missing column that P supplies.
    fn compute_q(
        &mut self,
        (columns, weights): (&[Slot], &Weights),
        (partial, p_partial): (Option<&[u8]>, Option<&[u8]>),
        length_sectors: u64,
    ) {
        let length = bytes(length_sectors);
        let mut q = partial.map_or_else(|| vec![0; length], <[u8]>::to_vec);
        for (slot, exponent) in columns.iter().zip(&weights.exponents) {
            kernel().multiply_into(&mut q, &self.columns[slot.index()], *exponent);
        }
        if let Some(solved) = &weights.solved {
            let with_p = columns.iter().chain([&solved.p_slot]);
            let read = with_p.map(|slot| &self.columns[slot.index()][..]);
            let sources: Vec<&[u8]> = read.chain(p_partial).collect();
            let mut lost = vec![0; length];
            kernel().xor(&mut lost, &sources);
            kernel().multiply_into(&mut q, &lost, solved.exponent);
        }
        self.parity = q;
    }
}

fn bytes(sectors: u64) -> usize {
    usize::try_from(sectors).expect("a step is small") * SECTOR_LENGTH
}

/// Runs the replay to its end.
///
/// # Errors
/// If a member failed a request.
///
/// # Panics
/// If the machine emits no effect before its end, because another caller drove it.
pub fn run(mut replay: Replay, devices: &mut impl Devices) -> Result<Report, ReplayError> {
    let mut blocks = Blocks::default();
    loop {
        let Some(effect) = replay.poll() else {
            return replay.end().expect("everything was answered");
        };
        let slot = effect.slot();
        let is_done = match effect {
            Effect::Read { slot, sectors } => {
                let column = blocks.column(slot, sectors.end - sectors.start);
                devices.read(slot, sectors, column)
            }
            Effect::Compute { columns, partial, parity, q, length_sectors } => {
                let partial = partial.map(|(entry, part)| devices.partial(parity, entry, part));
                match q {
                    None => blocks.compute(&columns, partial, length_sectors),
                    Some(weights) => {
                        let solved = weights.solved.as_ref();
                        let of_p = solved.and_then(|one| Some((one.p_slot, one.partial.clone()?)));
                        let of_p =
                            of_p.map(|(slot, (entry, part))| devices.partial(slot, entry, part));
                        blocks.compute_q((&columns, &weights), (partial, of_p), length_sectors);
                    }
                }
                true
            }
            Effect::Write { slot, sectors } => devices.write(slot, sectors, &blocks.parity),
            Effect::Flush { slot } => devices.flush(slot),
            Effect::RecordClean { slot } => devices.record_clean(slot),
            Effect::Void { slot } => devices.void(slot),
        };
        replay.handle(Event { slot, is_done });
    }
}
