//! The layer to which the models' daemon writes a row: bare copies and an XOR, or the engine.

use braid_member::{Member, MemoryMember};
use braid_parity::kernel;
use braid_runtime::{CacheMode, ClientRequest, Payload, Volume};

use super::volume;
use super::work::{BLOCK_BYTES, DATA, ROW_BYTES, STRIPES};

const STRIPE_BYTES: usize = (DATA + 1) * BLOCK_BYTES;

/// The layer below the stripes that writers wait for. Only the daemon's thread writes to it.
pub(super) trait RowWriter: Sync {
    /// Writes a row's data, from a stripe's blocks, and the row's parity.
    fn write(&self, blocks: &mut Blocks, stripe: usize, row: u64, data: &[u8]);

    fn flush(&self);
}

pub(super) struct Blocks(Vec<u8>);

impl Blocks {
    pub(super) fn new() -> Self {
        Self(vec![0; STRIPES * STRIPE_BYTES])
    }
}

/// Copies and sums with the engine's kernel, without an engine, into the same kind of members. This
/// layer is faster than md, since it has no lookup and no state machine.
pub(super) struct Bare(Vec<MemoryMember>);

impl Bare {
    pub(super) fn new(rows: u64) -> Self {
        let member_bytes = rows * BLOCK_BYTES as u64;
        Self((0..=DATA).map(|_| MemoryMember::new(member_bytes)).collect())
    }
}

impl RowWriter for Bare {
    fn write(&self, blocks: &mut Blocks, stripe: usize, row: u64, from: &[u8]) {
        let stripe = &mut blocks.0[stripe * STRIPE_BYTES..][..STRIPE_BYTES];
        let (data, parity) = stripe.split_at_mut(DATA * BLOCK_BYTES);
        data.copy_from_slice(from);
        let mut sources: [&[u8]; DATA] = [&[]; DATA];
        for (source, block) in sources.iter_mut().zip(data.chunks_exact(BLOCK_BYTES)) {
            *source = block;
        }
        kernel().xor(parity, &sources);
        // Left-symmetric layout: parity moves one slot down from row to row, and data begins in the
        // slot after it.
        let slots = DATA + 1;
        let parity_slot = DATA - usize::try_from(row % slots as u64).expect("few slots");
        let at = row * BLOCK_BYTES as u64;
        for (index, block) in sources.iter().chain([&&*parity]).enumerate() {
            let slot = (parity_slot + 1 + index) % slots;
            self.0[slot].write_at(block, at, false).expect("memory takes writes");
        }
    }

    fn flush(&self) {
        for member in &self.0 {
            member.flush().expect("memory is durable enough");
        }
    }
}

/// The engine. It gets one row at a time, and so never waits for a stripe itself.
pub(super) struct Engine(Volume);

impl Engine {
    pub(super) fn new(files: u64) -> Self {
        Self(volume::open(files, CacheMode::WriteThrough))
    }
}

impl RowWriter for Engine {
    fn write(&self, _: &mut Blocks, _: usize, row: u64, data: &[u8]) {
        let mut payload = Payload::for_overwriting(ROW_BYTES);
        payload.copy_from_slice(data);
        let offset = row * ROW_BYTES as u64;
        let write = ClientRequest::Write { offset, payload, durable: false };
        self.0.call(write).result.expect("memory takes writes");
    }

    fn flush(&self) {
        self.0.call(ClientRequest::Flush).result.expect("memory is durable enough");
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::super::stripes::Rule;
    use super::super::work::{Files, ROWS_PER_FILE};
    use super::*;

    const RULES: [Rule; 3] = [Rule::WakeAll, Rule::WakeOnePerHash, Rule::HandOver];

    fn content(file: u64) -> Vec<u8> {
        let file = u8::try_from(file).unwrap();
        let size = usize::try_from(ROWS_PER_FILE).unwrap() * ROW_BYTES;
        (0..size).map(|at| u8::try_from(at / 512 % 251).unwrap() ^ file).collect()
    }

    fn write_files<B: RowWriter + Send + 'static>(model: &Model<B>) {
        std::thread::scope(|scope| {
            for file in 0..4 {
                scope.spawn(move || model.write_file(file, &mut model.payload(content(file))));
            }
        });
    }

    #[test]
    fn bare_models_write_what_they_are_told() {
        for rule in RULES {
            let model = Model::new(rule, Bare::new(4 * ROWS_PER_FILE));
            write_files(&model);
            for row in [0, 1, 2, 3, 4, ROWS_PER_FILE, 4 * ROWS_PER_FILE - 1] {
                let mut blocks = vec![vec![0; BLOCK_BYTES]; DATA + 1];
                for (member, block) in model.writer().0.iter().zip(&mut blocks) {
                    member.read_at(block, row * BLOCK_BYTES as u64).unwrap();
                }
                let sum = |at: usize| blocks.iter().fold(0, |sum, block| sum ^ block[at]);
                assert!((0..BLOCK_BYTES).all(|at| sum(at) == 0), "parity of row {row}");
                let at = usize::try_from(row % ROWS_PER_FILE).unwrap() * ROW_BYTES;
                let wanted = &content(row / ROWS_PER_FILE)[at..at + BLOCK_BYTES];
                let parity_slot = DATA - usize::try_from(row).unwrap() % (DATA + 1);
                assert_eq!(blocks[(parity_slot + 1) % (DATA + 1)], wanted, "row {row}");
            }
        }
    }

    #[test]
    fn engines_behind_a_rule_write_what_they_are_told() {
        for rule in RULES {
            let model = Model::new(rule, Engine::new(4));
            write_files(&model);
            for file in 0..4 {
                let offset = file * ROWS_PER_FILE * ROW_BYTES as u64;
                let payload = Payload::for_overwriting(content(file).len());
                let read = model.writer().0.call(ClientRequest::Read { offset, payload });
                read.result.unwrap();
                assert!(*read.payload.unwrap() == *content(file), "file {file}");
            }
        }
    }
}
