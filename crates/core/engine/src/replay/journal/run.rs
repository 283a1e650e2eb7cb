//! The one interpreter of the effects of a journal's replay, over any members and journal.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_geometry::{ChunkRow, RowMap, Slot, StripeGeometry};
use braid_ondisk::{JOURNAL_META_BYTES, JournalMeta, journal_block_checksum};
use braid_parity::kernel;

use super::machine::{Effect, Replay, ReplayError, Report};

const BLOCK_BYTES: usize = JOURNAL_META_BYTES;
const SECTOR_BYTES: usize = 512;

/// The driver's members, by slot, and the journal. Each call returns whether it succeeded; the
/// driver keeps the reason of a failure.
pub trait Devices {
    /// Reads sectors of a member's data.
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool;
    /// Writes sectors of a member's data.
    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool;
    /// Makes the member's written sectors durable.
    fn flush(&mut self, slot: Slot) -> bool;
    /// Reads a block of the journal.
    fn read_journal(&mut self, position: u64, bytes: &mut [u8]) -> bool;
    /// Writes a block of the journal.
    fn write_journal(&mut self, position: u64, bytes: &[u8]) -> bool;
    /// Flushes the journal.
    fn flush_journal(&mut self) -> bool;
    /// Writes the journal's tail to its superblock, durably.
    fn move_tail(&mut self, position: u64) -> bool;
}

/// The buffers: one block for each slot. Also the checksums of parity in the journal, by stripe.
struct Blocks<'a> {
    geometry: StripeGeometry,
    array_uuid: &'a [u8; 16],
    columns: Vec<Vec<u8>>,
    checksums: BTreeMap<u64, Vec<u32>>,
}

impl Blocks<'_> {
    fn column(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.columns[slot.index()]
    }

    fn map(&self, row: ChunkRow) -> RowMap {
        self.geometry.row_map(row)
    }

    /// The blocks of data by their exponent in Q; `None` for lost columns.
    fn sources(&self, map: &RowMap, lost: &[Slot]) -> Vec<Option<&[u8]>> {
        let mut sources = vec![None; usize::from(map.exponents_count())];
        for index in 0..map.data_slots() {
            let slot = map.data_slot(index);
            let is_there = !lost.contains(&slot);
            sources[usize::from(map.exponent(index))] =
                is_there.then(|| &self.columns[slot.index()][..]);
        }
        sources
    }

    fn make(&mut self, row: ChunkRow) {
        let map = self.map(row);
        let (mut p, mut q) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        let sources = self.sources(&map, &[]);
        match map.q_slot() {
            Some(_) => kernel().pq(&sources, &mut p, &mut q),
            None => kernel().xor(&mut p, &sources.into_iter().flatten().collect::<Vec<_>>()),
        }
        self.column(map.p_slot()).copy_from_slice(&p);
        if let Some(slot) = map.q_slot() {
            self.column(slot).copy_from_slice(&q);
        }
    }

    fn solve(&mut self, row: ChunkRow, lost: &[Slot], parities: &[Slot]) {
        let map = self.map(row);
        let sources = self.sources(&map, lost);
        let exponent = |slot: Slot| {
            let mut indices = 0..map.data_slots();
            let index = indices.find(|index| map.data_slot(*index) == slot);
            map.exponent(index.expect("what is lost is data"))
        };
        let has_p = parities.contains(&map.p_slot());
        let p = || &self.columns[map.p_slot().index()][..];
        let q = || &self.columns[map.q_slot().expect("it was read").index()][..];
        let (mut first, mut second) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        match lost {
            [_] if has_p => {
                let known: Vec<&[u8]> = sources.into_iter().flatten().chain([p()]).collect();
                kernel().xor(&mut first, &known);
            }
            [one] => kernel().recover_data_from_q(&sources, q(), exponent(*one), &mut first),
            [one, other] => {
                let exponents = (exponent(*one), exponent(*other));
                let out = (&mut first[..], &mut second[..]);
                kernel().recover_two_data(&sources, (p(), q()), exponents, out);
            }
            _ => unreachable!("no level makes up for more than two"),
        }
        for (slot, bytes) in lost.iter().zip([first, second]) {
            self.column(*slot).copy_from_slice(&bytes);
        }
    }

    fn meta(&self, position: u64, sequence: u64, stripes: &[u64]) -> Vec<u8> {
        let payload = |stripe: &u64| Replay::payload(*stripe, self.checksums[stripe].clone());
        let payloads = stripes.iter().map(payload).collect();
        let meta = JournalMeta { sequence, position_sectors: position, payloads };
        meta.to_bytes(self.array_uuid)
    }
}

/// Runs the replay to its end. `array_uuid` is `braid_ondisk::Superblock::uuid_as_stored`.
///
/// # Errors
/// If a member or the journal failed a request.
///
/// # Panics
/// If the machine emits no effect before its end, because another caller drove it.
pub fn run(
    mut replay: Replay,
    geometry: &StripeGeometry,
    array_uuid: &[u8; 16],
    devices: &mut impl Devices,
) -> Result<Report, ReplayError> {
    let columns = vec![vec![0; BLOCK_BYTES]; usize::from(geometry.slots())];
    let checksums = BTreeMap::new();
    let mut blocks = Blocks { geometry: *geometry, array_uuid, columns, checksums };
    loop {
        let Some(effect) = replay.poll() else {
            return replay.end().expect("everything was answered");
        };
        let is_done = done(&effect, &mut blocks, devices);
        replay.handle(is_done);
    }
}

/// Carries the effect out; returns whether it succeeded.
fn done(effect: &Effect, blocks: &mut Blocks<'_>, devices: &mut impl Devices) -> bool {
    match effect {
        Effect::Read { slot, sectors } => {
            devices.read(*slot, sectors.clone(), blocks.column(*slot))
        }
        Effect::Load { slot, position } => devices.read_journal(*position, blocks.column(*slot)),
        Effect::Solve { row, lost, parities } => {
            blocks.solve(*row, lost, parities);
            true
        }
        Effect::Make { row } => {
            blocks.make(*row);
            true
        }
        Effect::Keep { stripe, blocks: kept } => {
            let column = |slot: &Slot| &blocks.columns[slot.index()][..];
            let checksum = |slot: &Slot| journal_block_checksum(blocks.array_uuid, column(slot));
            let checksums = kept.iter().map(|(slot, _)| checksum(slot)).collect();
            let mut each = kept.iter();
            let is_done =
                each.all(|(slot, position)| devices.write_journal(*position, column(slot)));
            blocks.checksums.insert(*stripe, checksums);
            is_done
        }
        Effect::WriteMeta { position, sequence, stripes } => {
            let meta = blocks.meta(*position, *sequence, stripes);
            devices.write_journal(*position, &meta)
        }
        Effect::Clear { position } => devices.write_journal(*position, &[0; BLOCK_BYTES]),
        Effect::FlushJournal => devices.flush_journal(),
        Effect::Write { slot, sectors, from_sector } => {
            let byte = |sector: u64| usize::try_from(sector).expect("in a block") * SECTOR_BYTES;
            let end = from_sector + (sectors.end - sectors.start);
            let bytes = &blocks.columns[slot.index()][byte(*from_sector)..byte(end)];
            devices.write(*slot, sectors.clone(), bytes)
        }
        Effect::Flush { slot } => devices.flush(*slot),
        Effect::MoveTail { position } => devices.move_tail(*position),
    }
}
