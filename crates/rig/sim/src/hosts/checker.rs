//! The checker of hosts: acknowledged writes, old reads, and owners that answer too late.
//!
//! Where it stands: sees the answers to clients, and the moments at which owners begin to serve.
//! It repairs nothing, and panics at the first error.
//!
//! ```text
//! a write ends      at its acknowledgement, at the end of the first read that returned it, or,
//!                   without both, when an owner of a higher epoch begins to serve
//! v is stale for    some write w ended before the read began, and v ended before w began; a w
//! a read            without acknowledgement and without a read proves nothing
//! v is undone       v ended without both, and a later read returned an older value
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::layout::BLOCKS;
use super::message::{Process, Value};

#[derive(Debug)]
struct WriteHistory {
    block: usize,
    epoch: u64,
    began: u64,
    /// When the write was acknowledged, or a read first returned it.
    proved: Option<u64>,
    /// When no copy of the write could become the block's content any more.
    ended: Option<u64>,
    /// A read has shown that the write never took effect.
    is_undone: bool,
}

#[derive(Debug)]
pub(super) struct Checker {
    writes: BTreeMap<Value, WriteHistory>,
    of_block: [Vec<Value>; BLOCKS],
    /// The highest epoch of which an owner has begun to serve, and that owner.
    serving: Option<(u64, Process)>,
    owners: BTreeMap<u64, Process>,
    fenced: BTreeSet<Process>,
    next_value: Value,
}

impl Checker {
    /// The checker of an array whose blocks all have content 0.
    pub(super) fn new() -> Self {
        Self {
            writes: BTreeMap::new(),
            of_block: Default::default(),
            serving: None,
            owners: BTreeMap::new(),
            fenced: BTreeSet::new(),
            next_value: 1,
        }
    }

    pub(super) fn write_begins(&mut self, block: usize, epoch: u64, now: u64) -> Value {
        let value = self.next_value;
        self.next_value += 1;
        let (proved, ended) = (None, None);
        let write = WriteHistory { block, epoch, began: now, proved, ended, is_undone: false };
        self.writes.insert(value, write);
        self.of_block[block].push(value);
        value
    }

    pub(super) fn write_answered(&mut self, value: Value, owner: (u64, Process), now: u64) {
        self.answers(owner);
        let write = self.writes.get_mut(&value).expect("a write that ends has begun");
        assert!(!write.is_undone, "write {value} is acknowledged, but a read has shown it undone");
        write.proved = write.proved.or(Some(now));
        write.ended = write.ended.or(Some(now));
    }

    pub(super) fn read_answered(
        &mut self,
        (block, value): (usize, Value),
        began: u64,
        owner: (u64, Process),
        now: u64,
    ) {
        self.answers(owner);
        self.judge_read((block, value), began);
        if let Some(write) = self.writes.get_mut(&value) {
            write.proved = write.proved.or(Some(now));
            write.ended = write.ended.or(Some(now));
        }
    }

    fn judge_read(&mut self, (block, value): (usize, Value), began: u64) {
        let ended = match self.writes.get(&value) {
            Some(write) => {
                assert!(write.block == block, "block {block} has a value of another block");
                assert!(!write.is_undone, "block {block}: write {value} was undone, and is back");
                write.ended
            }
            None => Some(0),
        };
        let Some(ended) = ended else { return };
        for other in &self.of_block[block] {
            let write = self.writes.get_mut(other).expect("each value has a write");
            if *other == value || ended >= write.began {
                continue;
            }
            if let Some(proved) = write.proved.filter(|proved| *proved < began) {
                panic!(
                    "block {block}: a read that began at {began} has value {value}, but write \
                     {other} came after it, and ended at {proved}"
                );
            }
            write.is_undone |= write.ended.is_some_and(|ended| ended < began);
        }
    }

    /// An owner has begun to serve.
    pub(super) fn serves(&mut self, (epoch, process): (u64, Process), now: u64) {
        let owner = *self.owners.entry(epoch).or_insert(process);
        assert!(owner == process, "epoch {epoch} has two owners, {owner:?} and {process:?}");
        if self.serving.is_some_and(|(serving, _)| serving > epoch) {
            return;
        }
        self.serving = Some((epoch, process));
        for write in self.writes.values_mut().filter(|write| write.epoch < epoch) {
            write.ended = write.ended.or(Some(now));
        }
    }

    /// The owner with the highest epoch that has begun to serve.
    pub(super) fn serving(&self) -> Option<(u64, Process)> {
        self.serving
    }

    /// A server has refused this owner, since the server has a later owner.
    pub(super) fn is_fenced(&mut self, process: Process) {
        self.fenced.insert(process);
    }

    /// A process sends a request to a member: checks that no server has refused the process.
    pub(super) fn acts(&self, process: Process) {
        assert!(!self.fenced.contains(&process), "{process:?} goes on after it was refused");
    }

    fn answers(&self, (epoch, process): (u64, Process)) {
        self.acts(process);
        let (serving, owner) = self.serving.expect("an owner that answers has begun to serve");
        assert!(
            (serving, owner) == (epoch, process),
            "{process:?} answers in epoch {epoch}, but {owner:?} serves in epoch {serving}"
        );
    }
}
