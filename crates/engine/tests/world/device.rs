//! A member with a volatile cache, that can fail in every way a member can.
//!
//! ```text
//!   write ──▶ seen ──flush, or a durable write──▶ durable
//!              └─ each write since is also remembered per sector: at a power cut any may survive
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_engine::array::SuperblockState;
use braid_engine::effect::FaultKind;

use braid_testbed::content::bytes;

use crate::SECTOR;
use crate::random::Random;

/// What is wrong with a device, beyond bad sectors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrong {
    /// Nothing works any more.
    pub(crate) dead: bool,
    pub(crate) writes_fail: bool,
    pub(crate) flushes_fail: bool,
    pub(crate) superblocks_fail: bool,
}

/// One sector as one write left it, with the step at which that was.
pub(crate) type Unflushed = (u64, Vec<u8>);

pub(crate) struct Device {
    /// What reads see.
    pub(crate) seen: Vec<u8>,
    /// What survives a power cut for sure.
    pub(crate) durable: Vec<u8>,
    /// By sector, what else may be there after a power cut.
    pub(crate) unflushed: BTreeMap<u64, Vec<Unflushed>>,
    /// Sectors that cannot be read until they are written.
    pub(crate) bad: BTreeSet<u64>,
    pub(crate) wrong: Wrong,
    /// How often it was flushed.
    pub(crate) flushes: u64,
    /// What its superblock says, durably.
    pub(crate) superblock: Arc<SuperblockState>,
}

impl Device {
    pub(crate) fn new(content: Vec<u8>, superblock: Arc<SuperblockState>) -> Self {
        Self {
            durable: content.clone(),
            seen: content,
            unflushed: BTreeMap::new(),
            bad: BTreeSet::new(),
            wrong: Wrong::default(),
            flushes: 0,
            superblock,
        }
    }

    pub(crate) fn read(&self, start: u64, sectors: u64) -> Result<&[u8], FaultKind> {
        if self.wrong.dead {
            return Err(FaultKind::Gone);
        }
        if self.bad.range(start..start + sectors).next().is_some() {
            return Err(FaultKind::Media);
        }
        Ok(&self.seen[bytes(start, sectors)])
    }

    /// Writes, or fails and leaves any part of it written.
    pub(crate) fn write(
        &mut self,
        (start, data): (u64, &[u8]),
        durable: bool,
        (step, random): (u64, &mut Random),
    ) -> Result<(), FaultKind> {
        if self.wrong.dead {
            return Err(FaultKind::Gone);
        }
        let fails = self.wrong.writes_fail;
        for (sector, data) in (start..).zip(data.chunks_exact(SECTOR)) {
            if fails && random.chance(50) {
                continue;
            }
            self.seen[bytes(sector, 1)].copy_from_slice(data);
            self.bad.remove(&sector);
            if durable && !fails {
                self.durable[bytes(sector, 1)].copy_from_slice(data);
                self.unflushed.remove(&sector);
            } else {
                self.unflushed.entry(sector).or_default().push((step, data.to_vec()));
            }
        }
        if fails { Err(FaultKind::Media) } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> bool {
        if self.wrong.dead || self.wrong.flushes_fail {
            return false;
        }
        self.flushes += 1;
        for sector in std::mem::take(&mut self.unflushed).into_keys() {
            let range = bytes(sector, 1);
            self.durable[range.clone()].copy_from_slice(&self.seen[range]);
        }
        true
    }

    pub(crate) fn write_superblock(&mut self, state: &Arc<SuperblockState>) -> bool {
        if self.wrong.dead || self.wrong.superblocks_fail {
            return false;
        }
        self.superblock = Arc::clone(state);
        true
    }

    /// Whether its superblock still can tell anything new.
    pub(crate) fn can_tell(&self) -> bool {
        !self.wrong.dead && !self.wrong.superblocks_fail
    }

    /// Power is cut and comes back: of every unflushed sector, any of its writes or none survives.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        for (sector, writes) in std::mem::take(&mut self.unflushed) {
            let survivor = random.below(writes.len() as u64 + 1) as usize;
            if let Some((_, data)) = writes.get(survivor) {
                self.durable[bytes(sector, 1)].copy_from_slice(data);
            }
        }
        self.seen.copy_from_slice(&self.durable);
    }
}
