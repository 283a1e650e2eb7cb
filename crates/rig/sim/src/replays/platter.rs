//! A disk of a replay's story: its durable content, and the writes in its cache.

use crate::random::Random;

/// Bytes of a sector.
pub(super) const SECTOR: usize = 512;

/// A request to a disk.
#[derive(Clone)]
pub(super) enum Op {
    Write {
        disk: usize,
        sector: u64,
        bytes: Vec<u8>,
    },
    Flush {
        disk: usize,
    },
    /// A write with FUA.
    WriteDurably {
        disk: usize,
        sector: u64,
        bytes: Vec<u8>,
    },
}

/// A disk with a cache. A power cut loses any part of the cache.
#[derive(Clone, Default)]
pub(super) struct Platter {
    durable: Vec<u8>,
    volatile: Vec<(u64, Vec<u8>)>,
    /// The sector that cannot be read, if any.
    pub(super) bad_sector: Option<u64>,
}

impl Platter {
    pub(super) fn new(sectors: u64) -> Self {
        Self { durable: vec![0; sectors as usize * SECTOR], ..Self::default() }
    }

    /// Reads sectors. If one of the sectors is bad, fills `bytes` with 0xee and returns false.
    pub(super) fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let end = sector + (bytes.len() / SECTOR) as u64;
        if self.bad_sector.is_some_and(|bad| (sector..end).contains(&bad)) {
            bytes.fill(0xee);
            return false;
        }
        for (at, chunk) in (sector..end).zip(bytes.chunks_exact_mut(SECTOR)) {
            chunk.copy_from_slice(self.sector(at));
        }
        true
    }

    fn sector(&self, at: u64) -> &[u8] {
        let of = |(start, bytes): &(u64, Vec<u8>)| {
            let from = at.checked_sub(*start)? as usize * SECTOR;
            (from < bytes.len()).then_some(from)
        };
        let newest = self.volatile.iter().rev().find_map(|one| Some((of(one)?, &one.1)));
        let (from, bytes) = newest.unwrap_or((at as usize * SECTOR, &self.durable));
        &bytes[from..from + SECTOR]
    }

    pub(super) fn write(&mut self, sector: u64, bytes: &[u8]) {
        self.volatile.push((sector, bytes.to_vec()));
    }

    /// Writes with FUA. Other writes stay in the cache.
    pub(super) fn write_durably(&mut self, sector: u64, bytes: &[u8]) {
        let start = sector as usize * SECTOR;
        self.durable[start..start + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn flush(&mut self) {
        for (sector, bytes) in std::mem::take(&mut self.volatile) {
            self.write_durably(sector, &bytes);
        }
    }

    pub(super) fn has_volatile(&self) -> bool {
        !self.volatile.is_empty()
    }

    pub(super) fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Write { sector, bytes, .. } => self.write(*sector, bytes),
            Op::Flush { .. } => self.flush(),
            Op::WriteDurably { sector, bytes, .. } => self.write_durably(*sector, bytes),
        }
    }

    /// Cuts power: of each unflushed write all sectors survive, or some, or none.
    pub(super) fn cut(&mut self, random: &mut Random) {
        for (sector, bytes) in std::mem::take(&mut self.volatile) {
            let kept_percent = *random.pick(&[0, 50, 100]);
            for (at, bytes) in (sector..).zip(bytes.chunks_exact(SECTOR)) {
                if random.chance(kept_percent) {
                    self.write_durably(at, bytes);
                }
            }
        }
    }
}

/// The disks of a replay, which lose power after `ops_left` operations.
pub(super) struct PoweredDisks<'a> {
    pub(super) disks: &'a mut [Platter],
    ops_left: usize,
    /// The number of operations, including those that came after power had failed.
    pub(super) ops: usize,
}

impl<'a> PoweredDisks<'a> {
    pub(super) fn new(disks: &'a mut [Platter], ops_left: usize) -> Self {
        Self { disks, ops_left, ops: 0 }
    }

    /// Carries an operation out, while power lasts. The replay takes every operation for done.
    pub(super) fn operate(&mut self, disk: usize, operation: impl FnOnce(&mut Platter)) -> bool {
        self.ops += 1;
        if self.ops_left > 0 {
            self.ops_left -= 1;
            operation(&mut self.disks[disk]);
        }
        true
    }
}

/// The disks if power is cut after these operations.
pub(super) fn cut_after(disks: &[Platter], ops: &[Op], random: &mut Random) -> Vec<Platter> {
    let mut disks = disks.to_vec();
    for op in ops {
        let (Op::Write { disk, .. } | Op::Flush { disk } | Op::WriteDurably { disk, .. }) = op;
        disks[*disk].carry_out(op);
    }
    disks.iter_mut().for_each(|disk| disk.cut(random));
    disks
}

/// The number of operations after which power is cut in a replay of `ops` operations, or right
/// after it.
pub(super) fn second_cut(ops: usize, random: &mut Random) -> usize {
    if random.chance(30) { ops } else { random.below(ops as u64 + 1) as usize }
}
